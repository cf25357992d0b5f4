"""The verbs of scans, `associative_scan` and `selective_scan`, and NumPy's `accumulate`."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, get_args

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.kernel.host.resident import ResidentArray
from symgrad.pipeline import Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.associative import AssociativeScan, ScanKernel
from symgrad.tensor.kernel import TensorKernel
from symgrad.tensor.recipes import Combine, Recipes
from symgrad.tensor.selective import Discretization, SelectiveScan
from symgrad.values.arrays import name_of


def associative_scan(
    combine: Combine,
    *,
    axis: int = -1,
    reverse: bool = False,
    device: DeviceChoice = None,
    math: Any = "accurate",
    dtype: Any = "float32",
) -> ScanKernel:
    """The kernel of a scan by an associative operation: ``y[0] = x[0], y[t] = f(y[t - 1], x[t])``.

    ``combine(a, b)`` is any function that can be traced, such as ``np.add``, ``np.multiply``,
    ``np.maximum`` or ``np.logaddexp``, of which the scans are the cumulative sum, product, maximum
    and log-sum-exp. Elements may be tuples: ``run(x0, x1)`` has ``combine`` take and return tuples
    of two numbers, and gives two arrays. All arrays have one shape, (.., length), or with
    ``axis=-2`` (.., length, k). A ``reverse`` scan begins at the last element. ``vjp`` takes a
    cotangent of each result behind the arrays; the gradient is derived, and is a scan itself.

    Sequences are done in parts, which are put together in a fixed order: ``combine`` has to be
    associative up to rounding, and need not commute.

    Raises:
        InputError: for another axis, or what is no function; of ``run`` and ``vjp``, for arrays of
            different shapes.
        TraceError: of these, if ``combine`` cannot be traced, or returns more or fewer numbers.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> sg.associative_scan(np.add, device="cpu").run([1.0, 2.0, 3.0]).tolist()
        [1.0, 3.0, 6.0]
        >>> line = lambda f, g: (g[0] * f[0], g[0] * f[1] + g[1])  # g after f, of slope and value
        >>> both = sg.associative_scan(line, device="cpu")
        >>> both.run([0.5, 0.5, 0.5], [1.0, 1.0, 1.0])[1].tolist()
        [1.0, 1.5, 1.75]
        >>> (y, _), (dslope, dvalue) = both.vjp([0.5] * 3, [1.0] * 3, [0.0] * 3, [0.0, 0.0, 1.0])
        >>> dvalue.tolist()
        [0.25, 0.5, 1.0]
    """
    if not callable(combine):
        raise InputTypeError(f"combine={combine!r}: use a function of two elements such as np.add")
    if axis not in (-1, -2):
        raise InputError(f"axis={axis!r}: use -1 for arrays (.., length), -2 for (.., length, k)")
    options = Options("associative_scan", math=math, dtype=dtype_name(dtype), comments=False)
    work = AssociativeScan(Recipes(combine, 1, bool(reverse), options), axis)
    return ScanKernel(work, options, device)


def selective_scan(
    delta_softplus: bool = False,
    discretization: Literal["zoh", "euler"] = "zoh",
    *,
    state: bool = False,
    device: DeviceChoice = None,
    math: Any = "accurate",
    dtype: Any = "float32",
) -> TensorKernel:
    """The kernel of a selective state-space model's scan (S6), with all its gradients.

    Every channel has N states h, which are 0 at first. At each step they decay, and the input is
    added to them: ``h = exp(d A) h + w B u``, where d is the step's size ``delta``, or its softplus
    if ``delta_softplus`` says so. With "zoh" ``w`` is d (exp(d A) - 1)/(d A), for inputs that do
    not change within a step; with "euler" it is d, as in Mamba (Gu and Dao, 2023, "Mamba:
    linear-time sequence modeling with selective state spaces"). The output is ``y = C h + D u``.

    ``run(u, delta, A, B, C, D)`` takes u and delta (batch, length, channels), A (channels, N), B
    and C (batch, length, N) and D (channels,), and gives y, of the shape of u. ``vjp(u, delta, A,
    B, C, D, dy)`` gives y and the gradients of the six. With ``state``, the states before the first
    step, (batch, channels, N), come behind D, and those behind the last one come with y, as
    ``(y, last)``: a long sequence is done in pieces. ``vjp`` then takes the cotangents of both.

    Results have the same bits every time: sums over channels are made in a fixed order. ``vjp``
    keeps the states of every 16th step and goes through the steps between twice.

    Raises:
        InputError: for another discretization; of ``run`` and ``vjp``, for shapes that do not go
            together.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> scan = sg.selective_scan(discretization="euler", device="cpu")
        >>> u, one = np.array([[[1.0], [0.0], [0.0]]]), np.ones((1, 3, 1))
        >>> decay = np.full((1, 1), np.log(0.5))
        >>> scan.run(u, one, decay, one, one, np.zeros(1)).ravel().tolist()
        [1.0, 0.5, 0.25]
    """
    if discretization not in get_args(Discretization):
        raise InputError(f'discretization={discretization!r}: use "zoh" or "euler"')
    options = Options("selective_scan", math=math, dtype=dtype_name(dtype), comments=False)
    work = SelectiveScan(bool(delta_softplus), discretization, bool(state), options)
    return TensorKernel(work, options, device)


@functools.cache
def _kernel(ufunc: np.ufunc, axis: int, device: int, dtype: Any) -> TensorKernel:
    return associative_scan(ufunc, axis=axis, device=device, dtype=dtype)


def accumulated(ufunc: np.ufunc, x: ResidentArray, axis: int) -> ResidentArray:
    """The array that ``ufunc.accumulate`` gives along an axis, counted from the first."""
    rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    shape = (rows, x.shape[axis], columns) if columns > 1 else (rows, x.shape[axis])
    kernel = _kernel(ufunc, -2 if columns > 1 else -1, x.device.index, name_of(x.dtype))
    return kernel.run(x.reshape(shape)).reshape(x.shape)
