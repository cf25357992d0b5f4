"""Arrays in parts: those larger than a device binds are bound, computed and added up part by part.

An array is cut along its first axis of more than one element, so that its parts stand one behind
the other in memory; a part that is still too large is cut along the next axis. What reads one is
cut along with it,

    y = for i < n { tanh(x[i]) }       one array for each part of x
    s = reduce i < n; add { x[i] }     the sum over a part, and those before it
    z = for i < n, j { x[j, i] }       one array that chooses among parts, element by element

so that every array of the program has at most so many elements. Sizes are no structure, so that the
kernels of parts are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, inf, prod
from types import MappingProxyType
from typing import Final

from symgrad.arrays import algorithms
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import (
    ArrayProgram,
    Constant,
    Joined,
    Part,
    Result,
    Scan,
    Scatter,
    Tabulate,
)
from symgrad.arrays.scalars import Array, Reduce, integer_mul, integer_where, replaced
from symgrad.errors import UnsupportedError
from symgrad.expr import ops

ALIGNED: Final = 64
"""Elements of which parts are multiples where they can be: devices bind arrays from there on."""

BOUND: Final = 5
"""Parts that one array reads, at most."""

MOST_COPIES: Final = 64
"""Arrays in which elements are put together for one that reads them, at most."""

SMALL: Final = 2**20
"""Elements up to which an array that is computed in parts is joined."""

FOLDS: Final = MappingProxyType(
    {"add": ops.add, "mul": ops.mul, "max": ops.maximum, "min": ops.minimum}
)
"""The operations on floats by which reductions go on from part to part."""


def in_parts(program: ArrayProgram, most: int) -> ArrayProgram:
    """A program whose arrays have at most so many elements each, but for what comes and goes whole.

    Inputs, outputs, results of calls and their operands have any number.

    Raises:
        UnsupportedError: an array is read at indices that are not known in parts.
    """
    b = program.scalars
    if not isinstance(b, Builder) or all(a.size <= most for a in program.arrays):
        return program
    cutting = _Cutting(b, most)
    for array in program.arrays:
        cutting.place(array)
    return ArrayProgram(b, program.inputs, tuple(map(cutting.whole, program.outputs)))


@dataclass(frozen=True, eq=False)
class Pieces:
    """An array of which parts begin at ``starts`` along an axis, before which all have length 1.

    The parts may be in pieces again.
    """

    shape: tuple[int, ...]
    kind: str
    axis: int
    starts: tuple[int, ...]
    parts: tuple[Some, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """Where the parts end."""
        return *self.starts[1:], self.shape[self.axis]

    @property
    def flat(self) -> list[Array]:
        """All parts, one behind the other in memory."""
        return [a for p in self.parts for a in (p.flat if isinstance(p, Pieces) else [p])]

    def some(self, first: int, end: int) -> Some:
        """The parts from one number up to another, as an array that begins with them."""
        if end - first == 1:
            return self.parts[first]
        start, stop = self.starts[first], self.ends[end - 1]
        shape = (*self.shape[: self.axis], stop - start, *self.shape[self.axis + 1 :])
        starts = tuple(s - start for s in self.starts[first:end])
        return Pieces(shape, self.kind, self.axis, starts, self.parts[first:end])


Some = Array | Pieces

Cut = tuple[int, Sequence[int]]
"""A counter around an array, and where to cut its range."""


def _first_axis(shape: Sequence[int]) -> int:
    """The axis that an array is cut along."""
    return next(k for k, n in enumerate(shape) if n > 1)


class _Cutting:
    """The arrays of a program, and what has become of each."""

    def __init__(self, b: Builder, most: int) -> None:
        self.b, self.most = b, most
        self.new: dict[Array, Some] = {}
        self.stored: dict[Array, Array] = {}
        """Arrays that stand in memory as a whole."""

    def whole(self, array: Array) -> Array:
        """An array as one, for what takes all of it."""
        new = self.new[array]
        if array not in self.stored:
            if isinstance(new, Pieces):
                new = Joined(shape=new.shape, kind=new.kind, parts=tuple(new.flat))
            self.stored[array] = new
        return self.stored[array]

    def place(self, array: Array) -> None:
        """Compute an array whose sources have their places."""
        match array:
            case Tabulate():
                self.new[array] = self.tabulated(array.counters, array.body)
            case Scatter():
                self.new[array] = self._scattered(array)
            case Scan():
                elements = self._name(self.tabulated(array.counters, array.body))
                self.new[array] = self._scanned(array, self.new.get(elements, elements))
            case Result():
                operands = list(map(self.whole, array.arguments))
                stored = algorithms.again(self.b, array, operands)
                self.new[array] = self._view(stored)
                self.stored[array] = stored
            case _:
                self.new[array] = self._view(array)
                self.stored[array] = array

    # --- shapes -----------------------------------------------------------------------------------

    def _starts(self, shape: Sequence[int]) -> list[int]:
        """Where the parts of an array begin along its first axis."""
        axis = _first_axis(shape)
        n, row = shape[axis], prod(shape) // shape[axis]
        rows = max(self.most // row, 1)
        rows = -(-n // -(-n // rows))
        unit = ALIGNED // gcd(row, ALIGNED)
        if rows % unit and -(-rows // unit) * unit * row <= self.most:
            rows = -(-rows // unit) * unit
        return list(range(0, n, rows))

    def _view(self, whole: Array) -> Some:
        """An array that stands in memory, in parts if it is large."""
        return self._part(whole, whole.shape, 0)

    def _part(self, whole: Array, shape: tuple[int, ...], first: int) -> Some:
        if prod(shape) <= self.most:
            return whole if shape == whole.shape else self._cut_out(whole, shape, first)
        axis, starts = _first_axis(shape), self._starts(shape)
        row, ends = prod(shape) // shape[axis], [*starts[1:], shape[axis]]
        parts = [
            self._part(whole, (*shape[:axis], end - start, *shape[axis + 1 :]), first + start * row)
            for start, end in zip(starts, ends, strict=True)
        ]
        return Pieces(shape, whole.kind, axis, tuple(starts), tuple(parts))

    def _cut_out(self, whole: Array, shape: tuple[int, ...], first: int) -> Array:
        if isinstance(whole, Constant):
            data = whole.data.reshape(-1)[first : first + prod(shape)].reshape(shape)
            return Constant(shape=shape, kind=whole.kind, data=data)
        return Part(shape=shape, kind=whole.kind, whole=whole, first=first)

    def _name(self, some: Some) -> Array:
        """An array to read elements of, which may stand for pieces."""
        if not isinstance(some, Pieces):
            return some
        name = Array(shape=some.shape, kind=some.kind)
        self.new[name] = some
        return name

    # --- arrays by their elements -----------------------------------------------------------------

    def tabulated(self, counters: Sequence[int], body: int) -> Some:
        """``for counters { body }``, in pieces if it is large."""
        b = self.b
        shape = tuple(map(b.extent, counters))
        if prod(shape) > self.most:
            axis = _first_axis(shape)
            starts = self._starts(shape)
            return self._pieces(counters, body, axis, starts)
        roots, cut = self._settled(counters, [body])
        if cut is None:
            return b.array(counters, self._resolved(roots)[0])
        axis = list(counters).index(cut[0])
        pieces = self._pieces(counters, roots[0], axis, cut[1])
        if axis == _first_axis(shape) and prod(shape) > SMALL:
            return pieces
        return self._joined(pieces)

    def _pieces(
        self, counters: Sequence[int], body: int, axis: int, starts: Sequence[int]
    ) -> Pieces:
        """An array, cut along one of its counters."""
        b, old = self.b, counters[axis]
        shape = tuple(map(b.extent, counters))
        parts = list[Some]()
        for start, end in zip(starts, [*starts[1:], shape[axis]], strict=True):
            own = list(counters)
            own[axis], [moved] = self._moved(old, start, end, [body])
            parts.append(self.tabulated(own, moved))
        return Pieces(shape, b.graph.type(body), axis, tuple(starts), tuple(parts))

    def _moved(self, old: int, start: int, end: int, roots: Sequence[int]) -> tuple[int, list[int]]:
        """A counter of a part of another one's range, and scalars of it."""
        counter = self.b.counter(end - start)
        at = self.b.plus(*self.b.indices([counter]), offset=start)
        return counter, self.b.substituted(roots, {old: at})

    def _joined(self, pieces: Pieces) -> Array:
        """Pieces in one array, some at a time."""
        count = len(pieces.parts)
        if count > BOUND - 1:
            step = -(-count // (BOUND - 1))
            firsts = range(0, count, step)
            parts = [pieces.some(first, min(first + step, count)) for first in firsts]
            joined = tuple(self._joined(p) if isinstance(p, Pieces) else p for p in parts)
            starts = tuple(pieces.starts[first] for first in firsts)
            pieces = replace(pieces, starts=starts, parts=joined)
        return self.b.tabulate(pieces.shape, lambda *index: self._value(pieces, index))

    def _resolved(self, roots: Sequence[int]) -> list[int]:
        """Scalars of what arrays have become."""
        return self.b.substituted(roots, {}, self._element)

    def _element(self, array: Array, index: Sequence[int]) -> int:
        return self._value(self.new.get(array, array), index)

    # --- reads ------------------------------------------------------------------------------------

    def _met(self, pieces: Pieces, index: Sequence[int]) -> range:
        """The numbers of the parts in which an element may be."""
        low, high = self.b.span(index[pieces.axis])
        last = len(pieces.parts) - 1
        first = min(sum(end <= low for end in pieces.ends), last)
        return range(first, max(first, min(sum(s <= high for s in pieces.starts) - 1, last)) + 1)

    def _within(self, pieces: Pieces, k: int, index: Sequence[int]) -> list[int]:
        """An index of part number k."""
        own = list(index)
        own[pieces.axis] = self.b.plus(own[pieces.axis], offset=-pieces.starts[k])
        return own

    def _value(self, some: Some, index: Sequence[int]) -> int:
        """An element of an array, of the part in which it is."""
        if not isinstance(some, Pieces):
            return self.b.element(some, index)
        *before, last = self._met(some, index)
        value = self._value(some.parts[last], self._within(some, last, index))
        for k in reversed(before):
            inside = self.b.below(index[some.axis], self.b.number(some.ends[k]))
            value = self._chosen(
                inside, self._value(some.parts[k], self._within(some, k, index)), value
            )
        return value

    def _chosen(self, condition: int, yes: int, no: int) -> int:
        op = ops.where if self.b.graph.type(yes) == "f" else integer_where
        return self.b.apply(op, condition, yes, no)

    def _leaves(self, some: Some, index: Sequence[int]) -> Iterator[Array]:
        """The arrays in which an element may be."""
        if isinstance(some, Pieces):
            for k in self._met(some, index):
                yield from self._leaves(some.parts[k], self._within(some, k, index))
        else:
            yield some

    def _straddling(self, roots: Sequence[int]) -> tuple[list[int], int]:
        """The reads of elements that may be in several parts, and how many parts all reads meet."""
        reads, met = list[int](), set[Array]()
        for i, op in self.b.reads(roots):
            leaves = set(self._leaves(self.new.get(op.array, op.array), self.b.args(i)))
            if isinstance(self.new.get(op.array), Pieces):
                met |= leaves
            if len(leaves) > 1:
                reads.append(i)
        return reads, len(met)

    def _crossed(self, i: int) -> tuple[Pieces, Sequence[int]]:
        """The pieces that a read straddles, and its index in them."""
        some: Some = self.new[self.b.array_of(i)]
        index: Sequence[int] = self.b.args(i)
        while isinstance(some, Pieces):
            met = self._met(some, index)
            if len(met) > 1:
                return some, index
            index, some = self._within(some, met[0], index), some.parts[met[0]]
        raise AssertionError(f"read {i} is of one part")

    def _moving(self, i: int) -> Cut | None:
        """The counter that a read moves through parts with, one by one, and where these begin."""
        pieces, index = self._crossed(i)
        offset, terms = self.b.terms(index[pieces.axis])
        if len(terms) != 1 or terms[0] != (1, terms[0][1]) or not self._is_counter(terms[0][1]):
            return None
        counter = terms[0][1]
        starts = [s - offset for s in pieces.starts]
        return counter, [0, *(s for s in starts if 0 < s < self.b.extent(counter))]

    def _is_counter(self, i: int) -> bool:
        return self.b.free(i) == frozenset((i,))

    # --- cuts -------------------------------------------------------------------------------------

    def _settled(
        self, counters: Sequence[int], roots: Sequence[int]
    ) -> tuple[list[int], Cut | None]:
        """Scalars each of whose reads meets few parts, or else where to cut a counter for them."""
        roots = list(roots)
        while True:
            reads, met = self._straddling(roots)
            if not reads:
                return roots, None
            alone = set(self.b.shallow(roots))
            added = None
            for i in reads:
                cut = self._moving(i)
                if cut is None or (cut[0] in counters and i in alone):
                    continue
                if cut[0] in counters:
                    return roots, cut
                added = self._in_turn(i, cut, roots)
                if added is not None:
                    break
            if added is not None:
                roots = added
            elif met <= BOUND:
                return roots, None
            else:
                i = reads[0]
                cut = self._halves(i, counters) or self._fewer(i)
                if cut is not None and cut[0] in counters:
                    return roots, cut
                added = cut and self._in_turn(i, cut, roots)
                roots = self._copied(i, roots) if added is None else added

    def _halves(self, i: int, counters: Sequence[int]) -> Cut | None:
        """The counter around an array that moves a read most, cut in two."""
        b = self.b
        pieces, index = self._crossed(i)
        at = index[pieces.axis]
        if inf in map(abs, b.span(at)):
            return None
        _, terms = b.terms(at)
        moves = [(abs(c) * (b.extent(a) - 1), a) for c, a in terms if a in counters]
        most, counter = max(moves, default=(0, 0))
        return (counter, [0, b.extent(counter) // 2]) if most else None

    def _fewer(self, i: int) -> Cut | None:
        """The longest counter of a read whose elements are too many for an array, cut in two."""
        b = self.b
        counters = sorted(b.free(i))
        size = prod(map(b.extent, counters))
        if not self.most < size <= MOST_COPIES * self.most:
            return None
        longest = max(counters, key=b.extent)
        return longest, [0, b.extent(longest) // 2]

    def _copied(self, i: int, roots: Sequence[int]) -> list[int]:
        """Scalars for which the elements of a read are put together, from some parts at a time."""
        b = self.b
        counters = sorted(b.free(i))
        shape = tuple(map(b.extent, counters))
        pieces, index = self._crossed(i)
        if prod(shape) > self.most:
            raise UnsupportedError(
                f"an array of shape {b.array_of(i).shape} is larger than the {self.most:,} numbers "
                "that the device binds at once, and too many elements are read at indices of which "
                'the part is not known: use device="cpu", or parts of the array'
            )
        copied: Array | None = None
        count = len(pieces.parts)
        step = min(BOUND - 1, -(-count // 2))
        for first in range(0, count, step):
            some = self._name(pieces.some(first, min(first + step, count)))
            value = b.read(some, self._within(pieces, first, index))
            if copied is not None:
                before = b.below(index[pieces.axis], b.number(pieces.starts[first]))
                value = self._chosen(before, b.read(copied, b.indices(counters)), value)
            copied = self._name(self.tabulated(counters, value))
        assert copied is not None, "there are parts"
        known = {i: b.read(copied, b.indices(counters))}
        return [replaced(b, root, known, within=True) for root in roots]

    # --- reductions -------------------------------------------------------------------------------

    def _in_turn(self, i: int, cut: Cut, roots: Sequence[int]) -> list[int] | None:
        """Scalars for which the reduction around a read is done part by part, if it can be."""
        b, (counter, starts) = self.b, cut
        for r in b.walk(roots):
            op = b.op(r)
            if isinstance(op, Reduce) and counter in op.counters and i in b.walk([r]):
                break
        else:
            return None
        free = sorted(b.free(r))
        if op.operator not in (*FOLDS, "argmax", "argmin") or prod(map(b.extent, free)) > self.most:
            return None
        so_far = list[int]()
        for start, end in zip(starts, [*starts[1:], b.extent(counter)], strict=True):
            own, parts = self._moved(counter, start, end, b.args(r))
            counters = [own if c == counter else c for c in op.counters]
            new = self._results(op, b.reduce(op.operator, counters, *parts), len(parts))
            new = self._folded(op.operator, so_far, new) if so_far else new
            arrays = [self._name(self.tabulated(free, value)) for value in new]
            so_far = [b.read(a, b.indices(free)) for a in arrays]
        known = dict(zip(self._picks(roots, r, len(so_far)), so_far, strict=True))
        return [replaced(b, root, known, within=True) for root in roots]

    def _results(self, op: Reduce, reduction: int, count: int) -> list[int]:
        """The results of a reduction: of tuples each element."""
        if count == 1:
            return [reduction]
        return [self.b.pick(reduction, k) for k in range(count)]

    def _picks(self, roots: Sequence[int], r: int, count: int) -> list[int]:
        """The nodes that are the results of a reduction."""
        return [r] if count == 1 else [self.b.pick(r, k) for k in range(count)]

    def _folded(self, operator: str, before: Sequence[int], new: Sequence[int]) -> list[int]:
        """The results of a reduction that goes on from those of the parts before."""
        b, (x, *_), (y, *_) = self.b, before, new
        if operator not in FOLDS:
            later = b.apply(ops.lt, x, y) if operator == "argmax" else b.apply(ops.lt, y, x)
            first_nan = b.both(b.apply(ops.isnan, y), b.opposite(b.apply(ops.isnan, x)))
            later = b.apply(ops.logical_or, later, first_nan)
            return [self._chosen(later, n, o) for o, n in zip(before, new, strict=True)]
        if b.graph.type(x) == "f":
            return [b.apply(FOLDS[operator], x, y)]
        if operator == "add":
            return [b.plus(x, y)]
        if operator == "mul":
            return [b.apply(integer_mul, x, y)]
        small, large = (x, y) if operator == "max" else (y, x)
        return [b.apply(integer_where, b.below(small, large), y, x)]

    # --- scatters and scans -----------------------------------------------------------------------

    def _scattered(self, array: Scatter) -> Some:
        """A scatter: a large one in pieces, each of what goes there."""
        b, shape = self.b, array.shape
        if array.size > self.most:
            axis = _first_axis(shape)
            starts, parts = self._starts(shape), list[Some]()
            for start, end in zip(starts, [*starts[1:], shape[axis]], strict=True):
                index = list(array.index)
                index[axis] = b.plus(index[axis], offset=-start)
                own = (*shape[:axis], end - start, *shape[axis + 1 :])
                parts.append(self._scattered(replace(array, shape=own, index=tuple(index))))
            return Pieces(shape, array.kind, axis, tuple(starts), tuple(parts))
        roots, cut = self._settled(array.counters, array.scalars)
        if cut is None:
            return b.rebuilt(array, self._resolved(roots))
        (counter, starts), total = cut, None
        for start, end in zip(starts, [*starts[1:], b.extent(counter)], strict=True):
            own, [*index, body] = self._moved(counter, start, end, roots)
            counters = tuple(own if c == counter else c for c in array.counters)
            part = self._scattered(replace(array, counters=counters, index=tuple(index), body=body))
            total = part if total is None else self._sum(total, part)
        assert total is not None, "there are parts"
        return total

    def _sum(self, x: Some, y: Some) -> Some:
        names = [self._name(a) for a in (x, y)]
        counters = [self.b.counter(n) for n in names[0].shape]
        values = [self.b.read(a, self.b.indices(counters)) for a in names]
        return self.tabulated(counters, self._folded("add", values[:1], values[1:])[0])

    def _scanned(self, array: Scan, elements: Some) -> Some:
        """Running totals of elements, which go on from piece to piece along the axis."""
        b = self.b
        if not isinstance(elements, Pieces):
            counters = tuple(map(b.counter, elements.shape))
            body = b.read(elements, b.indices(counters))
            return replace(array, shape=elements.shape, counters=counters, body=body)
        parts, before = list[Some](), None
        for part in reversed(elements.parts) if array.reverse else elements.parts:
            totals = self._scanned(array, part)
            if elements.axis == array.axis and before is not None:
                totals = self._continued(array, before, totals)
            parts.append(totals)
            before = totals
        return replace(elements, parts=tuple(parts[::-1] if array.reverse else parts))

    def _continued(self, array: Scan, before: Some, totals: Some) -> Some:
        """Running totals, with those at the end of the piece before."""
        b, old, new = self.b, self._name(before), self._name(totals)
        counters = [b.counter(n) for n in new.shape]
        index = b.indices(counters)
        last = list(index)
        last[array.axis] = b.number(0 if array.reverse else old.shape[array.axis] - 1)
        value = self._folded(array.operator, [b.read(old, last)], [b.read(new, index)])
        return self.tabulated(counters, value[0])
