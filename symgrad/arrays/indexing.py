"""Indices of whole arrays: basic ones, and arrays of integers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.tape import broadcast
from symgrad.arrays.whole import WholeArray, innermost
from symgrad.errors import TraceError
from symgrad.expr.graph.misuse import located

Entry = tuple[int | None, int | None, int]
"""Of an axis of the operand: which axis of the result reads it, from where, by which step.

Of an index that is computed: (None, None, its number among such indices).
"""

Beyond = Literal["nearest", "dropped"]
"""The element that a computed index beyond an axis takes: the nearest, or none."""


def parts_of(a: WholeArray, key: Any) -> list[Any]:
    """The parts of an index, one for each axis of the array and None for new ones."""
    parts = list(key) if isinstance(key, tuple) else [key]
    used = 0
    for k, part in enumerate(parts):
        if part is None or part is Ellipsis:
            continue
        if isinstance(part, list):
            parts[k] = part = (
                np.asarray(part)
                if not any(isinstance(e, WholeArray) for e in part)
                else a.lift(part)
            )
        if isinstance(part, np.ndarray) and part.dtype.kind == "b":
            shape = a.shape[used : used + part.ndim]
            if part.shape != shape:
                raise IndexError(f"a mask of shape {part.shape} for axes of lengths {shape}")
            where = np.nonzero(part)
            parts[k : k + 1] = where
            return parts_of(a, tuple(parts))
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


def index(a: WholeArray, key: Any, beyond: Beyond = "nearest") -> WholeArray:
    """``a[key]``."""
    parts = parts_of(a, key)
    if any(isinstance(p, (np.ndarray, WholeArray)) and not _is_number(p) for p in parts):
        return _gathered(a, parts, beyond)
    entries, shape = basic(a, parts)
    if shape == a.shape and all(e == (k, 0, 1) for k, e in enumerate(entries)):
        return a
    return a.then(rules.indexed, tuple(entries), shape)


def _is_number(part: Any) -> bool:
    return isinstance(part, np.ndarray) and not part.ndim


def basic(a: WholeArray, parts: Sequence[Any]) -> tuple[list[Entry], tuple[int, ...]]:
    """How a basic index reads each axis of an array, and the shape of the result."""
    entries: list[Entry] = []
    shape: list[int] = []
    computed = 0
    for part in parts:
        if part is None:
            shape.append(1)
            continue
        n = a.shape[len(entries)]
        if isinstance(part, slice):
            start, stop, step = part.indices(n)
            entries.append((len(shape), start, step))
            shape.append(len(range(start, stop, step)))
        elif isinstance(part, WholeArray):
            entries.append((None, None, computed))
            computed += 1
        else:
            entries.append((None, _position(part, n), 1))
    return entries, tuple(shape)


def _position(part: Any, n: int) -> int:
    k = operator.index(part)
    if not -n <= k < n:
        raise IndexError(f"index {k} is out of bounds for an axis of size {n}")
    return k % n


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
    array = np.asarray(part)
    if array.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if array.size and not (-n <= array.min() and array.max() < n):
        wrong = array.max() if array.max() >= n else array.min()
        raise IndexError(f"index {wrong} is out of bounds for an axis of size {n}")
    return a.lift(np.where(array < 0, array + n, array))


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> WholeArray:
    """np.diagonal."""
    for axis in (axis1, axis2):
        if not -a.ndim <= axis < a.ndim:
            raise np.exceptions.AxisError(axis, a.ndim)
    first, second = axis1 % a.ndim, axis2 % a.ndim
    rest = tuple(n for k, n in enumerate(a.shape) if k not in (first, second))
    rows, columns = a.shape[first], a.shape[second]
    length = max(0, min(rows + min(0, offset), columns - max(0, offset)))
    return a.then(rules.diagonal, (first, second, offset), (*rest, length))
