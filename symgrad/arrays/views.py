"""Views of whole arrays: NumPy makes them, of an array on no memory whose strides tell axes apart.

Where a view reads its operand is seen from its strides and from where it begins, so that indices,
transposes, flips, splits, broadcasts, diagonals and windows are one operation, `rules.strided`, and
the arguments are NumPy's to check. A write to a view goes to the array that it shows, as in NumPy.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from symgrad.arrays import rules
from symgrad.expr.graph.node import Whole

Shape = tuple[int, ...]

Entry = tuple[int, tuple[tuple[int, int], ...]]
"""Where an axis of the operand is read: from where, and (axis of the result, step) added to it."""


_BYTE: Final = np.empty(1, np.int8)
_ORIGIN: Final[int] = _BYTE.__array_interface__["data"][0]
"""Where all layouts begin."""


@functools.lru_cache(1024)
def layout(shape: Shape) -> np.ndarray:
    """An array on no memory, whose strides are more than all that smaller ones add up to."""
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * (n + 1))
    return as_strided(_BYTE, shape, strides[::-1] if shape else ())


@functools.lru_cache(4096)
def entries_of(shape: Shape, lengths: Shape, strides: Shape, first: int) -> tuple[Entry, ...]:
    """How an array of this shape is read by a view of its `layout` with these strides."""
    axes: list[list[tuple[int, int]]] = [[] for _ in shape]
    starts: list[int] = []
    units = layout(shape).strides
    for unit in units:
        start, first = divmod(first, unit)
        starts.append(start)
    for axis, (n, stride) in enumerate(zip(lengths, strides, strict=True)):
        rest, sign = 0 if n == 1 else abs(stride), -1 if stride < 0 else 1
        for terms, unit in zip(axes, units, strict=True):
            step, rest = divmod(rest, unit)
            if step:
                terms.append((axis, sign * step))
    return tuple((start, tuple(terms)) for start, terms in zip(starts, axes, strict=True))


def entries(shape: Shape, view: np.ndarray) -> tuple[Entry, ...]:
    """How an array of this shape is read by a view of its `layout`."""
    first = view.__array_interface__["data"][0] - _ORIGIN if view.size else 0
    return entries_of(shape, view.shape, view.strides, first)


@functools.lru_cache(1024)
def _all_of(shape: Shape) -> tuple[Entry, ...]:
    """How an array is read as it is."""
    return entries(shape, layout(shape))


def shown(a: Any, view: Any) -> Any:
    """An array as a view of its layout shows it; of several views the arrays, nested alike."""
    if isinstance(view, list | tuple):
        return type(view)(shown(a, v) for v in view)
    assert isinstance(view, np.ndarray) and (
        not view.size or np.may_share_memory(view, layout(a.shape))
    ), "it is a view: nothing else is to be read of an array on no memory"
    attribute = entries(a.shape, view)
    if view.shape == a.shape and attribute == _all_of(a.shape):
        return a
    return a.then(rules.strided, attribute, view.shape)


def viewed(function: Any, *arguments: Any, **options: Any) -> Any:
    """The views that a function of NumPy's gives of a whole array."""
    if arguments and isinstance(arguments[0], Whole):
        operand: Any = arguments[0]
        return shown(operand, function(layout(operand.shape), *arguments[1:], **options))
    name, operand = next((k, a) for k, a in options.items() if isinstance(a, Whole))
    return shown(operand, function(*arguments, **(options | {name: layout(operand.shape)})))


broadcast_to: Final = functools.partial(viewed, np.broadcast_to)
expand_dims: Final = functools.partial(viewed, np.expand_dims)
flip: Final = functools.partial(viewed, np.flip)
moveaxis: Final = functools.partial(viewed, np.moveaxis)
squeeze: Final = functools.partial(viewed, np.squeeze)
swapaxes: Final = functools.partial(viewed, np.swapaxes)
transpose: Final = functools.partial(viewed, np.transpose)

TABLE: Final[dict[Any, Any]] = {
    function: functools.partial(viewed, function)
    for function in (
        np.array_split, np.broadcast_to, np.diagonal, np.dsplit, np.expand_dims, np.flip, np.fliplr,
        np.flipud, np.hsplit, np.lib.stride_tricks.sliding_window_view, np.linalg.diagonal,
        np.linalg.matrix_transpose, np.matrix_transpose, np.moveaxis, np.permute_dims, np.rollaxis,
        np.rot90, np.split, np.squeeze, np.swapaxes, np.transpose, np.vsplit,
    )
}  # fmt: skip
"""NumPy's functions that give views."""


# --- writes ---------------------------------------------------------------------------------------

VIEWS: Final = frozenset((rules.strided, rules.reshaped))
"""The operations whose results share the elements of their operand."""


def written_through(view: Any, base: Any, value: Any) -> Any:
    """The array ``base`` after a write of all elements of a view of it.

    Raises:
        ValueError: for views that show an element several times, and diagonals, as in NumPy.
    """
    rule, attribute, *_ = view.operation
    if not value.size:
        return base
    if rule is rules.reshaped:
        return value.then(rules.reshaped, None, base.shape)
    axes = [axis for _, terms in attribute for axis, _ in terms]
    shown_once = len({*axes}) == len(axes) and all(len(terms) < 2 for _, terms in attribute)
    if not shown_once or any(n > 1 and k not in axes for k, n in enumerate(view.shape)):
        raise ValueError("assignment destination is read-only: write to a copy, a.copy()")
    return base.then(rules.written, (attribute, ()), base.shape, value)


def is_view(a: Any, base: Any) -> bool:
    """Whether NumPy has the result of an operation as a view: reshapes of strides may be copies."""
    if a.operation.rule is not rules.reshaped:
        return True
    return _reshaped(base.shape, strides_of(base), a.shape) is not None


def strides_of(a: Any) -> Shape:
    """The strides of an array, in elements, where it lies as NumPy would have it."""
    base = a.base
    if base is None:
        return tuple(np.cumprod([1, *a.shape[:0:-1]])[::-1].tolist())[-a.ndim :] if a.shape else ()
    (rule, attribute, *_), strides = a.operation, strides_of(base)
    if rule is rules.reshaped:
        reshaped = _reshaped(base.shape, strides, a.shape)
        assert reshaped is not None, "it is a view"
        return reshaped
    own = [0] * a.ndim
    for (_, terms), stride in zip(attribute, strides, strict=True):
        for axis, step in terms:
            own[axis] += step * stride
    return tuple(own)


def _reshaped(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """The strides after a reshape, or None where NumPy copies for it."""
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    first = -sum(r for r in reach if r < 0)
    memory = np.empty(first + sum(r for r in reach if r > 0) + 1, np.int8)
    line = as_strided(memory[first:], shape, strides).reshape(new)
    return line.strides if np.may_share_memory(line, memory) else None
