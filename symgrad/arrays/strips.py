"""Large arrays in strips: what is far larger than all that it is made of is never stored whole.

Of a matrix of scores, one number for each pair of a query and a key, those that read it need rows,
or sums over rows:

    p = for i < n, j < n { exp(s[i, j] - m[i]) }
    y = for i < n, d { reduce j < n; add { p[i, j] * v[j, d] } }
    z = for j < n, d { reduce i < n; add { p[i, j] * g[i, d] } }

A loop over strips of rows i computes those of p, what they give of y, and adds up z. Where z needs
y as a whole, that is another loop, and p is computed in both: so derivatives compute it again.
Memory is linear in n where p is quadratic, forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from symgrad.arrays import algorithms
from symgrad.arrays.array_loop import AROUND, CARRY, COUNTER, ArrayLoop, looping
from symgrad.arrays.gradient import summed
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import (
    ArrayProgram,
    Constant,
    Counted,
    Input,
    Result,
    Tabulate,
    element_reads,
    ordered,
    sources,
)
from symgrad.arrays.scalars import Array, Read, Reduce, replaced

ROWS: Final = 64
"""Rows of a strip, at least, where these are not too large: products of fewer are slow."""

EXPANDING: Final = 2
"""How much larger an array is than all that it is made of, at least."""


def in_strips(program: ArrayProgram, large: int) -> ArrayProgram:
    """A program that stores no array of so many elements where a loop over strips can do it.

    A strip has half as many, and at least a row.
    """
    b = program.scalars
    if not isinstance(b, Builder) or not any(
        _is_large(b, a, large, EXPANDING) for a in program.stages
    ):
        return program
    return ArrayProgram(b, program.inputs, tuple(_without_large(b, program.outputs, large)))


def _without_large(b: Builder, outputs: Sequence[Array], least: int) -> list[Array]:
    """The outputs, by loops over strips in the place of what is large."""
    outputs, refused = list(outputs), set[Array]()
    while True:
        order = list(ordered(b, outputs))
        kept = {*outputs, *(a for array in order for a in array.arguments)}
        large = [a for a in order if a not in kept and _is_large(b, a, least, 1)]
        seeds = (a for a in large if a not in refused and _is_large(b, a, least, EXPANDING))
        seed = next(seeds, None)
        if seed is None:
            return outputs
        plan = _best(b, order, {*large}, seed)
        if plan is None:
            refused.add(seed)
        else:
            outputs = _Rewriting(plan, least).outputs(outputs)


def _is_large(b: Builder, array: Array, least: int, times: int) -> bool:
    """Whether an array is so much larger than what it is made of, through others as large."""
    if not isinstance(array, Tabulate) or array.size < least:
        return False
    made_of, seen, stack = 0, set[Array](), [array]
    while stack:
        for a in sources(b, stack.pop()):
            if a not in seen:
                seen.add(a)
                if isinstance(a, Tabulate) and a.size >= least:
                    stack.append(a)
                else:
                    made_of += a.size
    return array.size >= times * made_of


def _best(b: Builder, order: Sequence[Array], large: set[Array], seed: Array) -> _Plan | None:
    """The plan of the fewest loops, along the longest axis, if strips are feasible."""
    plans = list[tuple[int, int, int, _Plan]]()
    for axis, n in enumerate(seed.shape):
        if n > 1:
            plan = _Plan(b, order, large)
            if plan.grows(seed, axis):
                plans.append((plan.loops, -n, axis, plan))
    return min(plans, key=lambda p: p[:3])[-1] if plans else None


class _Unfeasible(Exception):
    """An array is needed otherwise than in strips."""


@dataclass
class _Plan:
    """Which arrays are computed in strips, along which axis, and in which loop."""

    b: Builder
    order: Sequence[Array]
    large: set[Array]
    axes: dict[Tabulate, int] = field(default_factory=dict)
    """The axis that members, large and small, are in strips along."""
    sums: dict[Tabulate, list[int]] = field(default_factory=dict)
    """The reductions over strips in arrays that read members."""
    along: dict[int, int] = field(default_factory=dict)
    """The counter of such a reduction that runs through all strips."""
    levels: dict[Array, int] = field(default_factory=dict)
    """The loop of a member; of any other array how many loops come before it."""
    inner: dict[int, int] = field(default_factory=dict)
    """The loop of a reduction over strips."""

    @property
    def loops(self) -> int:
        """How many loops there are."""
        return 1 + max([*(self.levels[a] for a in self.axes), *self.inner.values()])

    @property
    def length(self) -> int:
        """The rows of all members, of which strips are parts."""
        array, axis = next(iter(self.axes.items()))
        return array.shape[axis]

    def grows(self, seed: Array, axis: int) -> bool:
        """Whether all that belongs to a large array can be in strips along this axis of it."""
        reads = element_reads(self.b, self.order)
        try:
            stack = [self._member(seed, axis)]
            while stack:
                member = stack.pop()
                for array, position in self._sources(member):
                    if array in self.large and array not in self.axes:
                        stack.append(self._member(array, position))
                if member not in self.large:
                    continue
                for reader, read in reads[member]:
                    stack += self._reader(reader, read, self.axes[member])
            self._join()
            self._order()
        except _Unfeasible:
            return False
        return True

    def _member(self, array: Array, axis: int) -> Tabulate:
        if not isinstance(array, Tabulate) or array in self.sums:
            raise _Unfeasible
        self.axes[array] = axis
        return array

    def _sources(self, member: Tabulate) -> Iterator[tuple[Array, int]]:
        """The arrays that a member reads at its row, with the axis; large ones must be."""
        yield from self._rows_of([member.body], member.counters[self.axes[member]])

    def _rows_of(self, roots: Sequence[int], row: int) -> Iterator[tuple[Array, int]]:
        for i, op in self.b.reads(roots):
            positions = [p for p, e in enumerate(self.b.args(i)) if e == row]
            known = self.axes.get(op.array) if isinstance(op.array, Tabulate) else None
            if op.array in self.large:
                if not positions or (known is not None and known not in positions):
                    raise _Unfeasible
                yield op.array, positions[0] if known is None else known
            elif positions:
                yield op.array, positions[0]

    def _reader(self, reader: Array, read: int, axis: int) -> list[Tabulate]:
        """The members that a reader of a large one adds: itself, or those it sums with it."""
        row = self.b.args(read)[axis]
        if not isinstance(reader, Tabulate):
            raise _Unfeasible
        if row in reader.counters:
            own = reader.counters.index(row)
            if self.axes.get(reader, own) != own or reader in self.sums:
                raise _Unfeasible
            return [] if reader in self.axes else [self._member(reader, own)]
        if reader in self.axes or reader in self.large:
            raise _Unfeasible
        r = self._sum_over(reader, row)
        if self.along.setdefault(r, row) != row:
            raise _Unfeasible
        known = self.sums.setdefault(reader, [])
        if r in known:
            return []
        known.append(r)
        more = list(self._rows_of([r], row))
        fresh = {a: p for a, p in more if a in self.large and a not in self.axes}
        return [self._member(a, p) for a, p in fresh.items()]

    def _sum_over(self, reader: Tabulate, row: int) -> int:
        """The sum in a reader that runs over a counter and stands in no other reduction."""
        for i in self.b.shallow([reader.body]):
            op = self.b.op(i)
            is_sum = isinstance(op, Reduce) and op.operator == "add" and row in op.counters
            if is_sum and self.b.graph.type(i) == "f":
                return i
        raise _Unfeasible

    def _join(self) -> None:
        """Small arrays of rows of members join these where large ones read them, row by row."""
        wanted = dict[Array, int]()
        for member in self.axes:
            if member in self.large:
                for array, position in self._sources(member):
                    if wanted.setdefault(array, position) != position:
                        wanted[array] = -1
        for array in self.order:
            axis = wanted.get(array, -1)
            if axis < 0 or array in self.axes or array in self.sums:
                continue
            if isinstance(array, Tabulate):
                own = dict(self._rows_of([array.body], array.counters[axis]))
                if any(isinstance(a, Tabulate) and self.axes.get(a) == p for a, p in own.items()):
                    self.axes[array] = axis

    def _order(self) -> None:
        """Which loops compute what: see `levels`."""
        for array in self.order:
            if isinstance(array, Tabulate) and array in self.axes:
                row = array.counters[self.axes[array]]
                self.levels[array] = self._after([array.body], row)
                continue
            for r in self.sums.get(array, ()) if isinstance(array, Tabulate) else ():
                self.inner[r] = self._after([r], self.along[r])
            summed = self.sums.get(array, []) if isinstance(array, Tabulate) else []
            before = [self.inner[r] + 1 for r in summed]
            before += [self._done(a) for a in array.arguments]
            roots = self._outside(array, summed)
            self.levels[array] = max([self._after(roots, None), *before])

    def _outside(self, array: Array, summed: Sequence[int]) -> list[int]:
        """The reads of an array that are in no sum over strips."""
        b, known, stack = self.b, set(summed), list(array.scalars)
        roots, seen = list[int](), set[int]()
        while stack:
            i = stack.pop()
            if i in known or i in seen:
                continue
            seen.add(i)
            if isinstance(b.op(i), Read):
                roots.append(i)
            stack += b.args(i)
        return roots

    def _after(self, roots: Sequence[int], row: int | None) -> int:
        """How many loops come before what reads rows of members, and others as a whole."""
        level = 0
        for i, op in self.b.reads(roots):
            level = max(level, self._level(i, op.array, row))
        return level

    def _level(self, read: int, array: Array, row: int | None) -> int:
        if self.is_row(read, array, row):
            return self.levels[array]
        if array in self.large and array in self.axes:
            raise _Unfeasible
        return self._done(array)

    def is_row(self, read: int, array: Array, row: int | None) -> bool:
        """Whether a read is of a member, at this row."""
        axis = self.axes.get(array) if isinstance(array, Tabulate) else None
        return axis is not None and row is not None and self.b.args(read)[axis] == row

    def _done(self, array: Array) -> int:
        """How many loops come before an array is known as a whole."""
        inside = isinstance(array, Tabulate) and array in self.axes
        return self.levels[array] + inside


class _Rewriting:
    """The arrays of a program with loops over strips in the place of members."""

    def __init__(self, plan: _Plan, large: int) -> None:
        self.plan, self.b = plan, plan.b
        n = plan.length
        row = max(a.size for a in plan.axes if a in plan.large) // n
        most = max(large // 2 // row, min(ROWS, 8 * large // row), 1)
        self.rows = _strip(n, max(1, min(most, n // 2)))
        self.count = -(-n // self.rows)
        self.new: dict[Array, Array] = {}
        self.totals: dict[int, int] = {}
        """The reads that sums over strips have become."""

    def outputs(self, outputs: Sequence[Array]) -> list[Array]:
        """The arrays that were these outputs."""
        plan = self.plan
        for level in range(plan.loops + 1):
            for array in plan.order:
                if array not in plan.axes and plan.levels[array] == level:
                    self._outside(array)
            if level < plan.loops:
                self._loop(level)
        return [self.new[o] for o in outputs]

    def _outside(self, array: Array) -> None:
        """An array that is in no loop, of what those that it reads have become."""
        b = self.b
        if isinstance(array, Result):
            self.new[array] = algorithms.again(b, array, [self.new[a] for a in array.arguments])
        elif not isinstance(array, Counted):
            self.new[array] = array
        else:
            known = self.totals if array in self.plan.sums else {}
            roots = [replaced(b, root, known) for root in array.scalars]
            roots = b.substituted(roots, {}, lambda a, i: b.element(self.new.get(a, a), i))
            self.new[array] = b.rebuilt(array, roots)

    def _loop(self, level: int) -> None:
        """The loop that computes the members of a level, and the sums over them."""
        b, plan = self.b, self.plan
        sums = [r for r, n in plan.inner.items() if n == level]
        small = [a for a in plan.axes if a not in plan.large and plan.levels[a] == level]
        body = _Strip(self, small)
        zero, added = b.graph.constant(0.0), list[Array]()
        for r in sums:
            part = body.part(r)
            begin = b.tabulate(part.shape, lambda *_: zero)
            added.append(summed(b, [body.input(part, CARRY, begin), part]))
        outputs = (*added, *(body.member(a) for a in small))
        program = ArrayProgram(b, tuple(body.inputs), outputs)
        loop = ArrayLoop(program, tuple(body.roles), self.count, of_strips=True)
        call = looping(b, loop, body.operands)
        for k, r in enumerate(sums):
            self.totals[r] = b.element(algorithms.result(b, call, k), body.free(r))
        for k, array in enumerate(small, len(sums)):
            self.new[array] = self._joined(algorithms.result(b, call, k), array)

    def _joined(self, stacked: Array, array: Tabulate) -> Array:
        """A small member, of its strips."""
        b, axis = self.b, self.plan.axes[array]

        def element(*index: int) -> int:
            strip, row = b.divide(index[axis], self.rows)
            return b.element(stacked, (strip, *index[:axis], row, *index[axis + 1 :]))

        return b.tabulate(array.shape, element)


class _Strip:
    """The body of a loop over strips: arrays of one of them.

    Where the last strip would go beyond the end, what lies there is computed of any numbers, and
    left out of sums.
    """

    def __init__(self, rewriting: _Rewriting, small: Sequence[Array]) -> None:
        self.of, self.b, self.plan = rewriting, rewriting.b, rewriting.plan
        self.inputs: list[Input] = []
        self.roles: list[str] = []
        self.operands: list[Array] = []
        self._inside = {a for a in self.plan.axes if a in self.plan.large or a in small}
        self._known: dict[Array, Array] = {}
        number = Constant(shape=(), kind="i", data=np.zeros((), np.int64))
        self._number = self.input(number, COUNTER, number)

    def input(self, like: Array, role: str, operand: Array) -> Input:
        """An input of the body, and what the loop is given for it."""
        new = Input(shape=like.shape, kind=like.kind, number=len(self.inputs))
        self.inputs.append(new)
        self.roles.append(role)
        self.operands.append(operand)
        return new

    def _around(self, array: Array) -> Array:
        """An array that is known as a whole, as the body has it."""
        if array not in self._known:
            self._known[array] = self.input(array, AROUND, self.of.new[array])
        return self._known[array]

    def member(self, array: Array) -> Array:
        """A strip of a member."""
        if array not in self._known:
            assert isinstance(array, Tabulate), "members are tabulated"
            axis = self.plan.axes[array]
            counters, row = list(array.counters), array.counters[axis]
            counters[axis], [body], _ = self._of_strip([array.body], row)
            self._known[array] = self.b.array(counters, body)
        return self._known[array]

    def _of_strip(self, roots: Sequence[int], row: int) -> tuple[int, list[int], int]:
        """Scalars at a row of the strip: its counter, these, and which row of all it is."""
        b, plan = self.b, self.plan
        counter = b.counter(self.of.rows)
        (within,) = b.indices([counter])
        at = b.plus((self.of.rows, b.read(self._number, ())), within)

        def element(array: Array, index: Sequence[int]) -> int:
            axis = plan.axes.get(array) if isinstance(array, Tabulate) else None
            if axis is None or index[axis] != at or array not in self._inside:
                return b.element(self._around(array), index)
            own = [within if k == axis else i for k, i in enumerate(index)]
            return b.element(self.member(array), own)

        return counter, b.substituted(roots, {row: at}, element), at

    def free(self, r: int) -> list[int]:
        """The counters of the array of a sum's values."""
        return sorted(self.b.free(r))

    def part(self, r: int) -> Array:
        """The share of a strip in a sum over rows."""
        b, row = self.b, self.plan.along[r]
        op, (term,) = b.op(r), b.args(r)
        assert isinstance(op, Reduce), "a sum"
        counter, [body], at = self._of_strip([term], row)
        if self.plan.length % self.of.rows:
            body = b.where(b.below(at, b.number(self.plan.length)), body)
        total = b.total([counter if c == row else c for c in op.counters], body)
        return b.array(self.free(r), total)


def _strip(n: int, most: int) -> int:
    """The rows of strips of ``n``: at most so many, of a length that divides n if there is one."""
    count = -(-n // most)
    even = next((k for k in range(count, min(2 * count, n) + 1) if n % k == 0), count)
    return -(-n // even)
