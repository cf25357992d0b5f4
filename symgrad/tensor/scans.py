"""The verbs of scans: `selective_scan`."""

from __future__ import annotations

from typing import Any, Literal, get_args

from symgrad.errors import InputError
from symgrad.pipeline import Options, dtype_name, require_options
from symgrad.targets import DeviceChoice
from symgrad.tensor.discretize import Discretization
from symgrad.tensor.kernel import TensorKernel
from symgrad.tensor.selective import SelectiveScan


def selective_scan(
    delta_softplus: bool = False, discretization: Literal["zoh", "euler"] = "zoh", *,
    state: bool = False, device: DeviceChoice = None, math: Any = "accurate",
    dtype: Any = "float32",
) -> TensorKernel:  # fmt: skip
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
        DeviceError: for float64 on a GPU.

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
    require_options(options)
    work = SelectiveScan(bool(delta_softplus), discretization, bool(state), options)
    return TensorKernel(work, options, device)
