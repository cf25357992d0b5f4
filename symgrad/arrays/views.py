"""Views of whole arrays: a write to one goes to the array that it shows, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from symgrad.arrays import rules

WholeArray = Any
"""`symgrad.arrays.whole.WholeArray`, which is made of what is here."""

VIEWS: Final = frozenset(
    (rules.indexed, rules.transposed, rules.reshaped, rules.broadcast_to, rules.diagonal)
)
"""The operations whose results share the elements of their operand."""


def _into_slice(base: WholeArray, attribute: Any, value: WholeArray) -> WholeArray:
    return base.then(rules.written, attribute, base.shape, value) if value.size else base


def _back_in_order(base: WholeArray, attribute: Any, value: WholeArray) -> WholeArray:
    back = tuple(int(k) for k in np.argsort(attribute))
    return value.then(rules.transposed, back, base.shape)


def _back_in_shape(base: WholeArray, attribute: Any, value: WholeArray) -> WholeArray:
    return value.then(rules.reshaped, None, base.shape)


WRITES: Final[dict[Any, Callable[..., Any]]] = {
    rules.indexed: _into_slice,
    rules.transposed: _back_in_order,
    rules.reshaped: _back_in_shape,
}
"""The array that a view shows once the view has other elements, by the operation of the view."""


def written_through(view: WholeArray, base: WholeArray, value: WholeArray) -> WholeArray:
    """The array ``base`` after a write of all elements of a view of it.

    Raises:
        ValueError: for views that show an element several times, and diagonals, as in NumPy.
    """
    rule, attribute, *_ = view.operation
    if rule not in WRITES:
        raise ValueError("assignment destination is read-only: write to a copy, a.copy()")
    return WRITES[rule](base, attribute, value)


def is_view(a: WholeArray, base: WholeArray) -> bool:
    """Whether NumPy has the result of an operation as a view: reshapes of strides may be copies."""
    if a.operation.rule is not rules.reshaped:
        return True
    return _reshaped(base.shape, strides_of(base), a.shape) is not None


def strides_of(a: WholeArray) -> tuple[int, ...]:
    """The strides of an array, in elements, where it lies as NumPy would have it."""
    base = a.base
    if base is None:
        return tuple(np.cumprod([1, *a.shape[:0:-1]])[::-1].tolist())[-a.ndim :] if a.shape else ()
    (rule, attribute, *_), strides = a.operation, strides_of(base)
    if rule is rules.transposed:
        return tuple(strides[k] for k in attribute)
    if rule is rules.indexed:
        own = [0] * a.ndim
        for (axis, _, step), stride in zip(attribute, strides, strict=True):
            if axis is not None:
                own[axis] = stride * step
        return tuple(own)
    if rule is rules.reshaped:
        strides = _reshaped(base.shape, strides, a.shape)
        assert strides is not None, "it is a view"
        return strides
    if rule is rules.broadcast_to:
        added = a.ndim - base.ndim
        pairs = zip(a.shape[added:], base.shape, strides, strict=True)
        return (*[0] * added, *[s if n == m else 0 for n, m, s in pairs])
    first, second, _ = attribute
    rest = [s for k, s in enumerate(strides) if k not in (first, second)]
    return (*rest, strides[first] + strides[second])


def _reshaped(
    shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The strides after a reshape, or None where NumPy copies for it."""
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    first = -sum(r for r in reach if r < 0)
    memory = np.empty(first + sum(r for r in reach if r > 0) + 1, np.int8)
    line = as_strided(memory[first:], shape, strides).reshape(new)
    return line.strides if np.may_share_memory(line, memory) else None
