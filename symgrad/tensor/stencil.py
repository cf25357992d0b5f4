"""`stencil` and `causal_convolution`: functions of the neighbours of every element, with gradients.

They are array programs: functions of arrays that are shifted to each neighbour. The gradient is
derived, by reverse mode of the function and by transposition of the reads: what an element gave to
the result at p as its neighbour with offset d, it gathers from p = q - d, if it is q itself.
Nothing is scattered, so sums are in a fixed order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal, get_args

import numpy as np

from symgrad.arrays.whole import WholeArray, Written, written_out
from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.expr.graph.node import Handle
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.define import Math
from symgrad.pipeline import DType, Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.array_work import ArrayWork, shifted
from symgrad.tensor.kernel import Shape, TensorKernel
from symgrad.tensor.layers import Activation, of_one_number


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
    work = ArrayWork(options.name, names, whole, _require_sequences, options, ("y", "d"))
    return TensorKernel(work, options, device)


def _require_sequences(_: Sequence[str], shapes: Sequence[Shape]) -> None:
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


Mode = Literal["constant", "wrap"]
"""Values beyond the edges: zeros, or the other side of the grid; SciPy's words."""

Offset = tuple[int, int]

MOST_OFFSET: Final = 2**15
"""Rows or columns that a neighbour may be away, at most."""


def stencil(
    f: Callable[[Any], Any],
    offsets: Sequence[Sequence[int]],
    *,
    mode: Mode = "constant",
    name: str | None = None,
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
) -> TensorKernel:
    """The kernel of a function of the neighbours of every element of a grid, with its gradient.

    ``run(u)`` takes u (..., rows, columns), one grid or many, and gives, of the same shape,
    ``f([u[i + di, j + dj] for di, dj in offsets])`` at every i, j. ``vjp(u, dy)`` gives that and
    the gradient by u. f is traced once, as a function of an array (neighbours,) that returns one
    number, of symgrad's or NumPy's operations; nothing need be linear in it.

    Args:
        f: the function.
        offsets: pairs (rows down, columns to the right) of whole numbers, each once.
        mode: what stands beyond the edges, in the words of ``scipy.ndimage``: "constant" for
            zeros, "wrap" for the opposite side, as on a torus.
        name: what the kernel is called; by default as f is.
        device: as for `linear`.
        math: as for `linear`.
        dtype: as for `linear`.

    Raises:
        InputTypeError: if f is no function. InputError: for offsets that are no pairs of whole
            numbers, or are there twice, and of ``run`` for a u with fewer than two axes.
        TraceError: if f cannot be traced, or returns something else than one number.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> heat = sg.stencil(lambda v: v[0] + 0.1 * (v[1:].sum() - 4.0 * v[0]),
        ...                   [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], device="cpu")
        >>> u = np.zeros((3, 3)); u[1, 1] = 1.0
        >>> heat.run(u).round(2).tolist()
        [[0.0, 0.1, 0.0], [0.1, 0.6, 0.1], [0.0, 0.1, 0.0]]
        >>> y, (du,) = heat.vjp(u, np.ones((3, 3)))
        >>> du[0].round(2).tolist()  # what leaves through the edges is lost
        [0.8, 0.9, 0.8]
    """
    if not callable(f):
        raise InputTypeError(f"f={f!r}: a function of an array of neighbours is needed")
    if mode not in get_args(Mode):
        raise InputError(f"mode={mode!r}: use {' or '.join(map(repr, get_args(Mode)))}")
    pairs = _pairs(offsets)
    shown = name or getattr(f, "__name__", "stencil").replace("<lambda>", "stencil")
    options = Options(shown, math=math, dtype=dtype_name(dtype), comments=False)
    function, _ = written_out(partial(_of_neighbours, f), "f" * len(pairs))
    whole = partial(_of_grid, function, pairs, mode)
    work = ArrayWork(shown, ("u",), whole, _require_grid, options, ("y", "d"))
    return TensorKernel(work, options, device)


def _require_grid(_: Sequence[str], shapes: Sequence[Shape]) -> None:
    """Refuse an array that is no grid."""
    (u,) = map(tuple, shapes)
    if len(u) < 2:
        raise InputError(f"u has shape {u}: (..., rows, columns) is needed")


def _of_grid(f: Written, offsets: Sequence[Offset], mode: Mode, u: WholeArray) -> WholeArray:
    """A function of the numbers at all offsets, of every element."""
    neighbours = [
        np.roll(u, (-down, -right), (-2, -1))
        if mode == "wrap"
        else shifted(shifted(u, -down, -2), -right, -1)
        for down, right in offsets
    ]
    return u.mapped(f, neighbours)


def _of_neighbours(f: Callable[[Any], Any], *neighbours: Any) -> Any:
    """One number of the numbers at all offsets."""
    result = f(array(neighbours))
    if isinstance(result, np.ndarray) and result.ndim == 0:
        result = result.item()
    if isinstance(result, tuple | list | dict | np.ndarray):
        raise TraceError(f"the stencil returned {result!r}: one number is needed")
    if isinstance(result, Handle):
        return result
    graph = neighbours[0].graph
    return Expr(graph, graph.constant(float(result)))


def _pairs(offsets: Sequence[Sequence[int]]) -> tuple[Offset, ...]:
    """The offsets, checked."""
    pairs: list[Offset] = []
    for offset in offsets:
        try:
            down, right = (operator.index(n) for n in offset)
        except (TypeError, ValueError):
            raise InputError(
                f"offsets has {offset!r}: pairs of whole numbers are needed, rows down and "
                "columns to the right, as [(0, 0), (-1, 0), (1, 0)]"
            ) from None
        if max(abs(down), abs(right)) > MOST_OFFSET:
            raise InputError(f"offsets has {offset!r}: at most {MOST_OFFSET:,} either way")
        pairs.append((down, right))
    if not pairs:
        raise InputError("offsets is empty: a neighbour at least is needed, as [(0, 0)]")
    if twice := sorted({pair for pair in pairs if pairs.count(pair) > 1}):
        raise InputError(f"offsets has {twice[0]} twice: each neighbour is given once")
    return tuple(pairs)
