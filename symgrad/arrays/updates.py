"""Updates of whole arrays at indices: ``a.at[key].set(x)`` and its kin, each another array."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.indexing import basic, index, parts_of
from symgrad.arrays.whole import WholeArray
from symgrad.expr import ops
from symgrad.expr.graph.node import ElementsNeededError
from symgrad.expr.tracers.array import Updates

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
        starts = [a.lift(p) for p in parts if isinstance(p, WholeArray)]
        entries, shape = basic(a, parts)
        value = a.functions[np.broadcast_to](values, shape)
        return a.then(rules.written, tuple(entries), a.shape, value, *starts) if value.size else a

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
        zeros = a.lift(np.zeros(())).then(rules.broadcast_to, None, a.shape)
        variable = zeros.then(rules.fresh, (a.number, len(a.tape.operations)), a.shape)
        read = index(variable, self._key, "dropped")
        if not read.size:
            return zeros
        seed = a.functions[np.broadcast_to](a.lift(values).astype(a.dtype), read.shape)
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
        value = a.functions[np.broadcast_to](values, shape)
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
