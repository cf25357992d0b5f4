"""Bodies of stages, written where a kernel is: loops for reductions, what does not move before."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import SUMS_AT_A_TIME, in_halves
from symgrad.kernel.passes.lower import inline
from symgrad.kernel.stages.body import (
    Body,
    Counter,
    Element,
    Extent,
    Reduction,
    Total,
    combined,
    nothing,
    over_lanes,
)
from symgrad.kernel.stages.sizes import FOUR

BLOCK: Final = 128
"""Terms of a long sum that are added up in floats before they go to a wide one."""

Values = Sequence[int]


class Writer:
    """Writes nodes of a body, where counters have values; ``buffers`` are the arrays it reads.

    What is known stands in frames, one for each loop or branch that is open. Of the reductions in
    ``dealt``, by their numbers, a counter is dealt out to the invocations of a group.
    """

    def __init__(self, k: KernelIR, body: Body, buffers: Sequence[Buffer]) -> None:
        self.k, self.body, self.buffers = k, body, buffers
        count = max((e.number for e in body.leaves if isinstance(e, Extent)), default=-1) + 1
        self.sizes = [Index(k, k.argument(f"n{n}")) for n in range(count)]
        self.dealt: Mapping[int, int] = {}
        self.beside = 1
        """Reductions that a group has side by side, each of as many invocations far apart."""
        self._frames: list[tuple[set[int], dict[int, Values]]] = [(set(), {})]
        """The counters of each frame, and the reductions that are known in it."""
        self._counters: dict[int, int] = {}

    # values --------------------------------------------------------------------------------------

    def values(self, roots: Values) -> list[int]:
        """The values of nodes, written where the kernel is."""
        self.reduce_below(roots)
        return inline(self.k, self.body.graph, roots, {}, self._leaf)

    def _leaf(self, i: int) -> int:
        match self.body.leaf_of[i]:
            case Counter(number):
                return self._counters[number]
            case Extent(number):
                return self.sizes[number].id
            case Element(array, index, lane):
                (at,) = self.values([index])
                if lane is not None:
                    at = self.k.offset(at, FOUR, lane)
                return self.k.load(self.buffers[array], at)
            case Total(reduction, part):
                return self._known(reduction)[part]

    def _known(self, reduction: int) -> Values:
        for _, known in reversed(self._frames):
            if reduction in known:
                return known[reduction]
        raise AssertionError("a reduction is written before what needs it")

    @contextmanager
    def frame(self, counters: Mapping[int, int]) -> Generator[None]:
        """A scope in which counters have values, and what is computed of them is known."""
        self._frames.append((set(counters), {}))
        self._counters |= counters
        yield
        self._frames.pop()

    @property
    def member(self) -> Index:
        """Which of the invocations that a reduction is dealt out to this one is."""
        local = Index(self.k, self.k.local)
        return local if self.beside == 1 else local // self.beside

    # reductions ----------------------------------------------------------------------------------

    def reduce_below(self, roots: Values) -> None:
        """Write the reductions that nodes need, as far as all of their counters have values."""
        for number in self.body.reductions_below(roots):
            free = self.body.free_of_reduction(number)
            bound = set[int]().union(*(counters for counters, _ in self._frames))
            if free <= bound and not any(number in known for _, known in self._frames):
                self._frames[-1][1][number] = self._reduced(number)

    def _reduced(self, number: int) -> Values:
        """The results of a reduction; those of a group, where a counter is dealt out to it."""
        r, dealt = self.body.reductions[number], self.dealt.get(number)
        totals = self._nest(r, self.values(r.extents), 0, dealt)
        return totals if dealt is None else over_group(self.k, r, totals, self.beside)

    def _nest(self, r: Reduction, ends: Values, level: int, shared: int | None) -> Values:
        """The results of the loops from a level on; counter ``shared`` is dealt out."""
        k, counter, last = self.k, r.counters[level], level == len(r.counters) - 1
        trips, width, member = Index(k, ends[level]), k.target.width // self.beside, self.member
        dealt = counter == shared
        if dealt:
            trips = (trips + (width - 1) - member) // width

        def terms(i: int) -> Values:
            at = (Index(k, i) * width + member).id if dealt else i
            with self.frame({counter: at}):
                self.reduce_below([*r.parts, *r.extents])
                return self.values(r.parts) if last else self._nest(r, ends, level + 1, shared)

        return self.looped(r, trips, terms, in_blocks=last)

    def looped(
        self, r: Reduction, trips: Index, terms: Callable[[int], Values], in_blocks: bool
    ) -> Values:
        """The results of a loop; ``terms`` writes what is reduced in an iteration.

        Long sums are taken block by block where the loop is ``in_blocks``, and none within it.
        """
        if r.long:
            return self._long(r, trips, terms, in_blocks)
        return self._range(r, Index(self.k, self.k.word(0)), trips, terms, in_blocks)

    def _range(
        self, r: Reduction, start: Index, end: Index, terms: Callable[[int], Values], last: bool
    ) -> Values:
        """The results of a part of a loop, whose terms are computed together if it is the ``last``.

        Beyond the end these are what the last one is, and are left out.
        """
        many, none = self.body.together(r) if last else 1, self.nothing(r)

        def iteration(i: int, totals: Values) -> Values:
            return combine(self.k, r, totals, terms(i))

        if many == 1:
            return self.k.loop(start.id, end.id, none, iteration)[0]

        def several(b: int, totals: Values) -> Values:
            first = start + Index(self.k, b) * many
            totals = combine(self.k, r, totals, terms(first.id))
            for n in range(1, many):
                i = first + n
                pairs = zip(terms(i.at_most(end - 1).id), none, strict=True)
                inside = i.below(end)
                values = [chosen(self.k, inside, value, zero) for value, zero in pairs]
                totals = combine(self.k, r, totals, values)
            return totals

        count = (end - start).ceil_div(many)
        return self.k.loop(self.k.word(0), count.id, none, several)[0]

    def _long(
        self, r: Reduction, trips: Index, terms: Callable[[int], Values], in_blocks: bool
    ) -> Values:
        """The results of a loop whose sums keep their rounding errors, block by block."""
        k, target = self.k, self.k.target

        def block(b: int) -> Values:
            start = Index(k, b) * BLOCK
            end = start + (trips - start).at_most(BLOCK)
            return self._range(r, start, end, terms, True)

        none = self.nothing(r)
        pairs = zip(r.operators, none, strict=True)
        is_sum = [operator == "add" and k.type(i) == "f" for operator, i in pairs]
        inits = [target.wide_zero(k) if s else (i,) for s, i in zip(is_sum, none, strict=True)]

        def add(i: int, carries: Values) -> Values:
            new = list[int]()
            totals, parts = _split(carries, inits), block(i) if in_blocks else terms(i)
            for s, total, part, o in zip(is_sum, totals, parts, r.operators, strict=True):
                new += target.wide_add(k, total, part) if s else combined(k, o, total, [part])
            return new

        count = trips.ceil_div(BLOCK) if in_blocks else trips
        flat, _ = k.loop(k.word(0), count.id, [i for init in inits for i in init], add)
        totals = zip(is_sum, _split(flat, inits), strict=True)
        return [target.narrow(k, total) if s else total[0] for s, total in totals]

    def nothing(self, r: Reduction) -> list[int]:
        """The results of a reduction of nothing."""
        kinds = "".join(self.body.graph.type(p) for p in r.parts)
        if r.is_tuple:
            return nothing(self.k, r.operators[0], kinds)
        parts = zip(r.operators, kinds, strict=True)
        return [i for operator, kind in parts for i in nothing(self.k, operator, kind)]


def _split(flat: Values, like: Sequence[Values]) -> list[tuple[int, ...]]:
    """Values in parts as long as those of others."""
    numbers = iter(flat)
    return [tuple(next(numbers) for _ in part) for part in like]


def chosen(k: KernelIR, condition: int, yes: int, no: int) -> int:
    """One of two numbers."""
    return k.add(ops.where if k.type(yes) == "f" else ops.word_where, condition, yes, no)


def combine(k: KernelIR, r: Reduction, a: Values, b: Values) -> list[int]:
    """The combination of two results of a reduction."""
    if r.is_tuple:
        return combined(k, r.operators[0], a, b)
    parts = zip(r.operators, a, b, strict=True)
    return [i for operator, x, y in parts for i in combined(k, operator, [x], [y])]


def over_group(k: KernelIR, r: Reduction, totals: Values, beside: int = 1) -> Values:
    """The reduction of what the invocations of a group have, known to all of them.

    In step lanes are reduced as the target does it, or else in the group's memory. There may be so
    many reductions ``beside`` each other, in turns of the invocations.
    """
    if k.target.in_step:
        if r.is_tuple:
            return over_lanes(k, r.operators[0], totals)
        parts = zip(r.operators, totals, strict=True)
        return [i for operator, total in parts for i in over_lanes(k, operator, [total])]
    if r.is_tuple:
        return _by_halves(k, r, totals)
    return [
        total
        for start in range(0, len(totals), SUMS_AT_A_TIME)
        for total in _in_two_steps(
            k,
            r.operators[start : start + SUMS_AT_A_TIME],
            totals[start : start + SUMS_AT_A_TIME],
            beside,
        )
    ]


def _tiles(k: KernelIR, kinds: Sequence[str]) -> list[Buffer]:
    """Memory of the group for a value of each invocation, of these kinds; it is used again."""
    known, tiles = {b.name: b for b in k.buffers}, list[Buffer]()
    for n, kind in enumerate(kinds):
        name = f"tile_{kind}{n}"
        tiles.append(known.get(name) or k.buffer(name, "group", kind, k.target.width))
    return tiles


def _in_two_steps(k: KernelIR, operators: Sequence[str], totals: Values, beside: int) -> list[int]:
    """The reduction of what the invocations of a group have: of parts by some, of these by all.

    Where there are reductions ``beside`` each other, these are the parts.
    """
    width, local = k.target.width, Index(k, k.local)
    branches = 1 << (width.bit_length() - 1) // 2 if beside == 1 else beside
    tiles = _tiles(k, [k.type(total) for total in totals])

    def joined(tile: Buffer, operator: str, places: Sequence[int]) -> int:
        values = [k.load(tile, place) for place in places]
        while len(values) > 1:
            half = len(values) // 2
            pairs = zip(values[:half], values[half:], strict=True)
            values = [combined(k, operator, [a], [b])[0] for a, b in pairs]
        return values[0]

    for tile, total in zip(tiles, totals, strict=True):
        k.store(tile, k.local, total)
    k.barrier()

    def parts() -> None:
        places = [(local + n).id for n in range(0, width, branches)]
        for tile, operator in zip(tiles, operators, strict=True):
            k.store(tile, k.local, joined(tile, operator, places))

    k.when(local.below(branches), parts)
    k.barrier()
    ends = [k.word(n) for n in range(branches)] if beside == 1 else [(local % beside).id]
    results = [joined(tile, o, ends) for tile, o in zip(tiles, operators, strict=True)]
    k.barrier()
    return results


def _by_halves(k: KernelIR, r: Reduction, totals: Values) -> Values:
    """The reduction of tuples that the invocations of a group have, half by half."""
    tiles = _tiles(k, [k.type(total) for total in totals])
    for tile, total in zip(tiles, totals, strict=True):
        k.store(tile, k.local, total)

    def join(half: Index) -> None:
        mine = [k.load(tile, k.local) for tile in tiles]
        others = [k.load(tile, (Index(k, k.local) + half).id) for tile in tiles]
        for tile, value in zip(tiles, combine(k, r, mine, others), strict=True):
            k.store(tile, k.local, value)

    in_halves(k, join)
    return [k.agreed(tile, k.word(0)) for tile in tiles]
