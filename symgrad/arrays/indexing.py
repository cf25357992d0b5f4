"""Indices of whole arrays, basic ones and arrays of integers, and updates at them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, Literal

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.recording import is_recorded
from symgrad.arrays.tape import broadcast
from symgrad.arrays.views import broadcast_to, entries, layout, shown
from symgrad.arrays.whole import WholeArray, innermost
from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import ElementsNeededError
from symgrad.expr.tracers.array import Updates

Beyond = Literal["nearest", "dropped"]
"""The element that a computed index beyond an axis takes: the nearest, or none."""


def parts_of(a: WholeArray, key: Any) -> list[Any]:
    """The parts of an index, one for each axis of the array and None for new ones."""
    parts = list(key) if isinstance(key, tuple) else [key]
    used = 0
    for k, part in enumerate(parts):
        if part is None or part is Ellipsis:
            continue
        if isinstance(part, bool | np.bool_ | np.ndarray) and not np.ndim(part) and _is_mask(part):
            raise TraceError(
                located(
                    "an index that is one truth value: b[None] is b[True], and b[None][:0] none"
                )
            )
        if isinstance(part, list):
            parts[k] = part = (
                np.asarray(part, None if np.size(part) else int)
                if not any(isinstance(e, WholeArray) for e in part)
                else a.lift(part)
            )
        if isinstance(part, np.ndarray) and _is_mask(part):
            shape = a.shape[used : used + part.ndim]
            if part.shape != shape:
                raise IndexError(f"a mask of shape {part.shape} for axes of lengths {shape}")
            where = np.nonzero(part)
            parts[k : k + 1] = where
            return parts_of(a, tuple(parts))
        if is_recorded(part) and isinstance(part, (int, np.integer)) and used < a.ndim:
            parts[k] = part = a.lift(part.then(_within, a.shape[used]))
        if isinstance(part, WholeArray) and part.kind == "b":
            raise TraceError(
                located(
                    "an array of the elements where a condition holds has no shape that is known: "
                    "use np.where(mask, a, 0.0), which keeps the shape; a[mask] = x and "
                    "a.at[mask].set(x) are there"
                )
            )
        if isinstance(part, WholeArray) and part.kind != "i":
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        used += 1
    if used > a.ndim:
        raise IndexError(f"too many indices: the array has {a.ndim} axes, {used} were indexed")
    dots = [k for k, part in enumerate(parts) if part is Ellipsis]
    missing = [slice(None)] * (a.ndim - used)
    place = dots[0] if dots else len(parts)
    return [*parts[:place], *missing, *parts[place + 1 :]]


def _is_mask(part: Any) -> bool:
    """Whether it is a truth value, or an array of them."""
    return isinstance(part, bool) or part.dtype.kind == "b"


def index(a: WholeArray, key: Any, beyond: Beyond = "nearest") -> WholeArray:
    """``a[key]``."""
    parts = parts_of(a, key)
    if any(isinstance(p, WholeArray) or (isinstance(p, np.ndarray) and p.ndim) for p in parts):
        return _gathered(a, parts, beyond)
    result = shown(a, basic(a, parts))
    has_dots = any(part is Ellipsis for part in (key if isinstance(key, tuple) else [key]))
    return result if result.shape or has_dots else result.copied()  # which is a number


def basic(a: WholeArray, parts: Sequence[Any]) -> np.ndarray:
    """The view of an array's `layout` at a basic index, where it is computed at its beginning."""
    key = [
        0 if isinstance(p, WholeArray) else p if isinstance(p, slice | None) else operator.index(p)
        for p in parts
    ]
    return layout(a.shape)[(*key, ...)]


def _gathered(a: WholeArray, parts: Sequence[Any], beyond: Beyond) -> WholeArray:
    """An index with arrays of integers, which broadcast against each other."""
    a = innermost([a, *parts]).lift(a)
    numbers = (int, np.integer)
    places = [k for k, p in enumerate(parts) if isinstance(p, (np.ndarray, WholeArray, *numbers))]
    together = places == list(range(places[0], places[-1] + 1))
    common = broadcast([np.shape(parts[k]) for k in places])
    shape: list[int] = []
    first = 0 if not together else None
    if first == 0:
        shape += common
    entries: list[tuple[Any, ...]] = []
    indices: list[WholeArray] = []
    for part in parts:
        if part is None:
            shape.append(1)
            continue
        n = a.shape[len(entries)]
        if isinstance(part, slice):
            start, stop, step = part.indices(n)
            entries.append(("axis", len(shape), start, step))
            shape.append(len(range(start, stop, step)))
            continue
        if first is None:
            first = len(shape)
            shape += common
        at = _index_array(a, part, n)
        how = beyond if isinstance(part, WholeArray) else "at"
        entries.append((how, len(indices), 0, 1))
        indices.append(at)
    return a.then(rules.gathered, (tuple(entries), first or 0), tuple(shape), *indices)


def _index_array(a: WholeArray, part: Any, n: int) -> WholeArray:
    """An array of indices, none negative if they are known."""
    if isinstance(part, WholeArray):
        return a.lift(part)
    return a.lift(part.then(_within, n) if is_recorded(part) else _within(part, n))


def _within(places: Any, n: int) -> np.ndarray:
    """Indices of an axis of n elements, from its beginning."""
    array = np.asarray(places)
    if array.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if array.size and not (-n <= array.min() and array.max() < n):
        wrong = array.max() if array.max() >= n else array.min()
        raise IndexError(f"index {wrong} is out of bounds for an axis of size {n}")
    return np.where(array < 0, array + n, array)


NOTHING: Final = {np.sum: 0, np.prod: 1, np.max: -np.inf, np.min: np.inf}
"""The results of reductions of nothing."""

LEAST: Final = np.iinfo(np.int32)
"""The range of the integers of kernels."""


class WholeUpdates(Updates):
    """Updates of whole arrays."""

    __slots__ = ()

    def set(self, values: Any) -> WholeArray:
        """The array with these in their place; the last one of an index that is repeated."""
        a = self._array
        values = a.lift(values).astype(a.dtype)
        mask = self._mask()
        if mask is not None:
            return a.mapped(ops.where, (mask, values, a))
        parts = self._parts()
        if _has_arrays(parts):
            return _At(a, parts).changed(values, _replaced)
        of_axes = enumerate(p for p in parts if p is not None)
        computed = {k: a.lift(p) for k, p in of_axes if isinstance(p, WholeArray)}
        view = basic(a, parts)
        value = broadcast_to(values, view.shape)
        if not value.size:
            return a
        attribute = entries(a.shape, view), tuple(computed)
        return a.then(rules.written, attribute, a.shape, value, *computed.values())

    def _parts(self) -> list[Any]:
        """The parts of the index.

        Raises:
            ElementsNeededError: of one that is computed, where loops by elements write in place.
        """
        parts = parts_of(self._array, self._key)
        if self._array.tape.by_elements and any(isinstance(p, WholeArray) for p in parts):
            raise ElementsNeededError("an update at indices that are computed")
        return parts

    def _mask(self) -> WholeArray | None:
        """The condition that the key is, if it is one, with as many axes as the array."""
        a, key = self._array, self._key
        if not isinstance(key, WholeArray) or key.kind != "b":
            return None
        if key.shape != a.shape[: key.ndim]:
            raise IndexError(f"a mask of shape {key.shape} for an array of shape {a.shape}")
        return key.reshape(*key.shape, *[1] * (a.ndim - key.ndim))

    def _combined(self, combine: Callable[[Any, Any], Any], reduce: Any, values: Any) -> WholeArray:
        """The array with them combined with the reduction of those values that each one gets."""
        a, mask = self._array, self._mask()
        values = a.lift(values)
        if mask is not None:
            return a.mapped(ops.where, (mask, combine(a, values).astype(a.dtype), a))
        parts = self._parts()
        if _has_arrays(parts):
            at = _At(a, parts)
            if at.is_repeated:
                change = _Reducing(combine, reduce)
                return at.changed(values, change)
        return self.set(combine(self.get(), values))

    def add(self, values: Any) -> WholeArray:
        """The array with these added to them, each one where an index is repeated."""
        a = self._array
        if self._mask() is None and a.kind == "f" and _has_index(parts_of(a, self._key)):
            return a + self._scattered(values)
        return self._combined(operator.add, np.sum, values)

    def _scattered(self, values: Any) -> WholeArray:
        """Zeros, with values added at an index with arrays: what the derivative of a read is."""
        a = self._array
        zeros = broadcast_to(a.lift(np.zeros(())), a.shape)
        variable = zeros.then(rules.fresh, (a.number, len(a.tape.operations)), a.shape)
        read = index(variable, self._key, "dropped")
        if not read.size:
            return zeros
        seed = broadcast_to(a.lift(values).astype(a.dtype), read.shape)
        return read.then(rules.gradient, (0, 1), a.shape, seed, variable)

    def subtract(self, values: Any) -> WholeArray:
        """The array with these subtracted from them."""
        return self.add(-self._array.lift(values))


def _has_index(parts: Sequence[Any]) -> bool:
    """Whether an index has arrays, or integers that are computed."""
    return _has_arrays(parts) or any(isinstance(p, WholeArray) for p in parts)


def _has_arrays(parts: Sequence[Any]) -> bool:
    """Whether an index has arrays of integers, of one axis or more."""
    return any(isinstance(p, (np.ndarray, WholeArray)) and p.ndim for p in parts)


class _At:
    """An index with arrays, which take elements along some axes, and slices along the others.

    What the slices take is seen as lines, one for each place along the axes of the arrays; each of
    the values, a line of them, goes to one place.
    """

    def __init__(self, a: WholeArray, parts: Sequence[Any]) -> None:
        self._array, self._parts = a, parts
        of_axes = [p for p in parts if p is not None]
        self._axes = [k for k, p in enumerate(of_axes) if not isinstance(p, slice)]
        self._slices = tuple(p if isinstance(p, slice) else slice(None) for p in of_axes)
        arrays = [of_axes[k] for k in self._axes]
        self.common = np.broadcast_shapes(*map(np.shape, arrays))
        self.count = prod(a.shape[k] for k in self._axes)
        self.places = self._flat(arrays)

    def _flat(self, arrays: Sequence[Any]) -> Any:
        """The places, in order, that the values go to, known or computed."""
        a, flat = self._array, np.zeros(self.common, int)
        for k, p in zip(self._axes, arrays, strict=True):
            n = a.shape[k]
            if not isinstance(p, WholeArray) and np.size(p) and not np.all((-n <= p) & (p < n)):
                raise IndexError(f"an index is out of bounds for axis {k}, of size {n}")
            flat = flat * n + np.where(p < 0, p + n, p)
        return flat.reshape(-1)

    @property
    def is_repeated(self) -> bool:
        """Whether a place may be repeated."""
        if isinstance(self.places, WholeArray):
            return True
        return len(np.unique(self.places)) < self.places.size

    def hits(self, rank: int) -> Any:
        """Truth values, [place, value]: a value goes to a place; with axes for lines behind."""
        hits = self._array.lift(np.arange(self.count)[:, None]) == self.places
        return hits.reshape(*hits.shape, *[1] * (rank - 1))

    def changed(self, values: WholeArray, change: Callable[[_At, Any, Any], Any]) -> WholeArray:
        """The array with lines that ``change`` makes of them and of those of the values."""
        a = self._array
        whole = index(a, self._slices)
        rest = [k for k in range(a.ndim) if k not in self._axes]
        order = [*self._axes, *rest]
        lengths = [whole.shape[k] for k in rest]
        shape, first = self._shape()
        value = broadcast_to(values, shape)
        if not value.size:
            return a
        moved = [*range(first, first + len(self.common))]
        value = value.transpose(moved + [k for k in range(value.ndim) if k not in moved])
        lines = whole.transpose(order).reshape(self.count, *lengths)
        new = change(self, lines, value.reshape(self.places.size, *lengths)).astype(a.dtype)
        back = new.reshape([whole.shape[k] for k in order]).transpose(np.argsort(order).tolist())
        return WholeUpdates(a)[self._slices].set(back)

    def _shape(self) -> tuple[list[int], int]:
        """The shape that NumPy gives to what the index takes, and where the arrays' axes begin."""
        of_arrays = [k for k, p in enumerate(self._parts) if not isinstance(p, slice | None)]
        together = of_arrays == [*range(of_arrays[0], of_arrays[-1] + 1)]
        lengths = [*index(self._array, self._slices).shape]
        before, behind, axis = list[int](), list[int](), 0
        for k, p in enumerate(self._parts):
            side = before if together and k < of_arrays[0] else behind
            if p is None:
                side.append(1)
                continue
            if isinstance(p, slice):
                side.append(lengths[axis])
            axis += 1
        return [*before, *self.common, *behind], len(before)


def _replaced(at: _At, lines: Any, values: Any) -> Any:
    """Lines with the last of the values for each in their place."""
    order = np.arange(at.places.size)
    if isinstance(at.places, WholeArray):
        sources = np.max(np.where(at.hits(1), order, -1), axis=1)
    else:
        known = np.full(at.count, -1)
        known[at.places] = order
        sources = lines.lift(known)
    is_new = (sources >= 0).reshape(-1, *[1] * (lines.ndim - 1))
    return np.where(is_new, values[np.maximum(sources, 0)], lines)


class _Reducing:
    """Lines combined with the reduction of the values for each."""

    def __init__(self, combine: Callable[[Any, Any], Any], reduce: Any) -> None:
        self._combine, self._reduce = combine, reduce

    def __call__(self, at: _At, lines: Any, values: Any) -> Any:
        hits, nothing = at.hits(lines.ndim), NOTHING[self._reduce]
        if values.kind != "f":
            nothing = int(np.clip(nothing, LEAST.min, LEAST.max))
        chosen = np.where(hits, values, nothing)
        if self._reduce in (np.max, np.min):  # of which all that are equal share the derivative
            updated = self._reduce(np.concatenate([lines[:, None], chosen], axis=1), axis=1)
        else:
            updated = self._combine(lines, self._reduce(chosen, axis=1))
        return np.where(np.any(hits, axis=1), updated, lines)
