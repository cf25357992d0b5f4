"""Extremes that results do not depend on, though they are computed with them.

A softmax takes the largest score from all of them, and whatever it took instead, the result would
be the same: exp(s - m) is exp(s) times exp(-m), so is a sum of such, and in their quotient this
factor is gone, as m is in log(sum exp(s - m)) + m. Such an m has no cotangent: derivatives need
not find where it is attained.

Of every array that is computed with m it is known here whether it is x + c m or x exp(c m), of an x
that m is not in; c = 0 is where m is gone.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Tabulate, readers
from symgrad.arrays.scalars import Array, Read, Reduce
from symgrad.expr import ops

MOST: Final = 64
"""The arrays that are followed from an extreme, at most."""


class _OtherwiseError(Exception):
    """A scalar depends on the extreme in another way."""


@dataclass(frozen=True)
class _Shift:
    """``x + c m[index]``, or ``x exp(c m[index])`` if it is a ``factor``."""

    c: float
    index: tuple[int, ...]
    factor: bool = False


def without_effect(b: Builder, order: Sequence[Array], outputs: Sequence[Array]) -> set[Array]:
    """The extremes among arrays that the outputs do not depend on."""
    extremes = [a for a in order if isinstance(a, Tabulate) and _is_extreme(b, a)]
    if not extremes:
        return set()
    place = {a: n for n, a in enumerate(order)}
    known = _Followed(b, place, readers(b, order), set(outputs))
    return {a for a in extremes if a not in known.outputs and known.vanishes(a)}


def _is_extreme(b: Builder, array: Tabulate) -> bool:
    op = b.op(array.body)
    return isinstance(op, Reduce) and op.operator in ("max", "min") and array.kind == "f"


@dataclass
class _Followed:
    """Arrays in order, with their readers."""

    b: Builder
    place: Mapping[Array, int]
    readers: Mapping[Array, Sequence[Array]]
    outputs: set[Array]

    def vanishes(self, extreme: Tabulate) -> bool:
        """Whether the outputs are the same whatever an extreme is."""
        whole = tuple(self.b.indices(extreme.counters))
        shifts: dict[Array, _Shift] = {extreme: _Shift(1.0, whole)}
        queue = [(self.place[r], id(r), r) for r in {*self.readers[extreme]}]
        heapq.heapify(queue)
        seen = set[Array]()
        while queue:
            array = heapq.heappop(queue)[-1]
            if array in seen:
                continue
            seen.add(array)
            try:
                shift = _Scalar(self.b, shifts).of_array(array)
            except _OtherwiseError:
                return False
            if shift is None:
                continue
            if array in self.outputs or len(seen) > MOST:
                return False
            shifts[array] = shift
            for r in self.readers[array]:
                heapq.heappush(queue, (self.place[r], id(r), r))
        return True


class _Scalar:
    """How scalars depend on an extreme: a shift, or None where they do not."""

    def __init__(self, b: Builder, shifts: Mapping[Array, _Shift]) -> None:
        self.b, self.shifts = b, shifts
        self._known: dict[int, _Shift | None] = {}

    def of_array(self, array: Array) -> _Shift | None:
        """How the elements of an array do."""
        of = [self.of(i) for i in array.scalars]
        if isinstance(array, Tabulate):
            return of[0]
        if of.count(None) < len(of) or any(a in self.shifts for a in array.arguments):
            raise _OtherwiseError
        return None

    def of(self, root: int) -> _Shift | None:
        """How a scalar does."""
        for i in self.b.walk([root]):
            if i not in self._known:
                self._known[i] = self._of(i)
        return self._known[root]

    def _of(self, i: int) -> _Shift | None:
        op, args = self.b.op(i), self.b.args(i)
        of = [self._known[a] for a in args]
        if isinstance(op, Read):
            return self._read(op.array, args, of)
        if of.count(None) == len(of):
            return None
        if isinstance(op, Reduce):
            return self._reduced(op, of)
        if op in (ops.add, ops.sub):
            return self._sum(args, of, 1.0 if op is ops.add else -1.0)
        if op in (ops.mul, ops.div):
            return self._product(args, of, 1.0 if op is ops.mul else -1.0)
        if op is ops.where and of[0] is None:
            return self._common(args[1:], of[1:])
        if op in (ops.lt, ops.le, ops.eq):
            if of[0] != of[1]:
                raise _OtherwiseError
            return None
        return self._function(i, of)

    def _read(
        self, array: Array, index: Sequence[int], of: Sequence[_Shift | None]
    ) -> _Shift | None:
        if of.count(None) < len(of):
            raise _OtherwiseError
        shift = self.shifts.get(array)
        if shift is None:
            return None
        assert isinstance(array, Tabulate), "arrays that are followed are tabulated"
        names = dict(zip(array.counters, index, strict=True))
        return _Shift(shift.c, tuple(self.b.substituted(shift.index, names)), shift.factor)

    def _reduced(self, op: Reduce, of: Sequence[_Shift | None]) -> _Shift:
        """A sum of multiples of one factor, or an extreme of what is shifted alike."""
        (shift,) = of if len(of) == 1 else (None,)
        if shift is None or any(
            c in self.b.free(i) for c in op.counters for i in shift.index
        ):  # each term has another one
            raise _OtherwiseError
        if op.operator in ("max", "min") or (op.operator == "add" and shift.factor):
            return shift
        raise _OtherwiseError

    def _sum(self, args: Sequence[int], of: Sequence[_Shift | None], sign: float) -> _Shift | None:
        first, second = of
        if (first and first.factor) or (second and second.factor):
            return self._common(args, of)
        return _joined(first, second, sign)

    def _common(self, args: Sequence[int], of: Sequence[_Shift | None]) -> _Shift:
        """The dependence that two scalars share: 0 has any factor, an infinity any shift."""
        shifts = {shift for a, shift in zip(args, of, strict=True) if not self._is_any(a, of)}
        if len(shifts) != 1 or None in shifts:
            raise _OtherwiseError
        return next(s for s in shifts if s is not None)

    def _is_any(self, i: int, of: Sequence[_Shift | None]) -> bool:
        value = self.b.value(i)
        shift = next(s for s in of if s is not None)
        return value == 0.0 if shift.factor else value in (float("inf"), -float("inf"))

    def _product(
        self, args: Sequence[int], of: Sequence[_Shift | None], sign: float
    ) -> _Shift | None:
        first, second = of
        if (first is None or first.factor) and (second is None or second.factor):
            return _joined(first, second, sign)
        for shift, other in ((first, args[1]), (second, args[0])):
            value = self.b.value(other)
            if shift and value and (sign > 0 or shift is first):
                return _Shift(shift.c * value**sign, shift.index)
        raise _OtherwiseError

    def _function(self, i: int, of: Sequence[_Shift | None]) -> _Shift:
        op, shift = self.b.op(i), of[0]
        if shift is not None and op is ops.neg:
            return shift if shift.factor else _Shift(-shift.c, shift.index)
        if shift is not None and len(of) == 1:
            if op is ops.exp and not shift.factor:
                return _Shift(shift.c, shift.index, factor=True)
            if op is ops.log and shift.factor:
                return _Shift(shift.c, shift.index)
            if op is ops.reciprocal and shift.factor:
                return _Shift(-shift.c, shift.index, factor=True)
        raise _OtherwiseError


def _joined(a: _Shift | None, b: _Shift | None, sign: float) -> _Shift | None:
    """The dependence of a sum, or of a product of factors; of a difference or quotient by sign."""
    if a is None or b is None:
        one = a or b
        assert one is not None, "one of them depends on the extreme"
        return one if a is not None else _Shift(sign * one.c, one.index, one.factor)
    if a.index != b.index:
        raise _OtherwiseError
    c = a.c + sign * b.c
    return _Shift(c, a.index, a.factor) if c else None
