"""`causal_convolution`: convolutions along sequences, channel by channel, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from symgrad.arrays.whole import WholeArray, Written, written_out
from symgrad.errors import InputError
from symgrad.pipeline import Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.activation import Activation, of_one_number
from symgrad.tensor.array_work import ArrayWork, shifted
from symgrad.tensor.kernel import Shape, TensorKernel


def causal_convolution(
    activation: Activation | None = None,
    *,
    device: DeviceChoice = None,
    math: Any = "accurate",
    dtype: Any = "float32",
) -> TensorKernel:
    """The kernel of a convolution along sequences, of each channel by itself, with its gradients.

    ``run(u, weights, bias)`` takes u (batch, length, channels), weights (channels, taps) and bias
    (channels,) and gives, of the shape of u, ``f(bias + sum_j weights[j] u[t - taps + 1 + j])``:
    nothing is seen of later steps, and what would be before the first one is 0. ``vjp(u, weights,
    bias, dy)`` gives that and the gradients of the three. ``activation`` is as for `linear`.

    Raises:
        InputTypeError: if the activation is no function. TraceError: if it cannot be traced.
        InputError: of ``run`` and ``vjp``, for shapes that do not go together.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> echo = sg.causal_convolution(device="cpu")
        >>> u = np.array([1.0, 0.0, 0.0, 2.0]).reshape(1, 4, 1)
        >>> echo.run(u, [[0.25, 0.5, 1.0]], [0.0]).ravel().tolist()
        [1.0, 0.5, 0.25, 2.0]
    """
    options = Options("causal_convolution", math=math, dtype=dtype_name(dtype), comments=False)
    function, _ = written_out(of_one_number(activation), "f")
    names, whole = ("u", "weights", "bias"), partial(_convolved, function)
    work = ArrayWork(options.name, names, whole, _require, options, ("y", "d"))
    return TensorKernel(work, options, device)


def _require(_: Sequence[str], shapes: Sequence[Shape]) -> None:
    """Refuse shapes that do not go together."""
    u, weights, bias = map(tuple, shapes)
    if len(u) != 3:
        raise InputError(f"u has shape {u}: (batch, length, channels) is needed")
    if len(weights) != 2 or weights[0] != u[2] or not weights[1]:
        raise InputError(f"weights has shape {weights}: with u {u} ({u[2]}, taps) is needed")
    if bias != u[2:]:
        raise InputError(f"bias has shape {bias}: with u {u} {u[2:]} is needed")


def _convolved(f: Written, u: WholeArray, weights: WholeArray, bias: WholeArray) -> WholeArray:
    """A function of the sums of what each step and those before it give, and of the bias."""
    taps, total = weights.shape[1], bias
    for j in range(taps):
        total = total + shifted(u * weights[:, j], taps - 1 - j, 1)
    return u.mapped(f, [total])
