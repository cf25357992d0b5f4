"""Bodies of stages, written where a kernel is: loops for reductions, what does not move before."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import ANY_INPUT
from symgrad.kernel.index import Index
from symgrad.kernel.language import KernelIR
from symgrad.kernel.lower import inline
from symgrad.kernel.stages.body import (
    COMBINED,
    IDENTITIES,
    Body,
    Combine,
    Counter,
    Element,
    Extent,
    Kind,
    Reduction,
    Total,
)
from symgrad.kernel.statements import Buffer

BLOCK: Final = 128
"""Terms of a long sum that are added up in floats before they go to a wide one."""

Values = Sequence[int]


class Writer:
    """Writes nodes of a body, where counters have values; ``buffers`` are the arrays it reads.

    What is known stands in frames, one for each loop or branch that is open.
    """

    def __init__(self, k: KernelIR, body: Body, buffers: Sequence[Buffer]) -> None:
        self.k, self.body, self.buffers = k, body, buffers
        count = max((e.number for e in body.leaves if isinstance(e, Extent)), default=-1) + 1
        self.sizes = [Index(k, k.argument(f"n{n}")) for n in range(count)]
        self._frames: list[tuple[set[int], dict[int, Sequence[int]]]] = [(set(), {})]
        """The counters of each frame, and the reductions that are known in it."""
        self.counters: dict[int, int] = {}
        """The words that counters are."""

    # values --------------------------------------------------------------------------------------

    def values(self, roots: Values) -> list[int]:
        """The values of nodes, written where the kernel is."""
        self.reduce_below(roots)
        return inline(self.k, self.body.graph, roots, {}, self._leaf)

    def _leaf(self, i: int) -> int:
        k = self.k
        match self.body.leaf_of[i]:
            case Counter(number):
                return self.counters[number]
            case Extent(number):
                return self.sizes[number].id
            case Element(array, index):
                (at,) = self.values([index])
                loaded = k.load(self.buffers[array], at)
                is_truth = self.body.kinds[array] == "b"
                return k.add(ops.word_eq, loaded, k.word(1)) if is_truth else loaded
            case Total(reduction, part):
                return self._known(reduction)[part]

    def _known(self, reduction: int) -> Sequence[int]:
        for _, known in reversed(self._frames):
            if reduction in known:
                return known[reduction]
        raise AssertionError("a reduction is written before what needs it")

    @contextmanager
    def frame(self, counters: Mapping[int, int]) -> Generator[None]:
        """A scope in which some counters have values, and what is computed of them is known."""
        self._frames.append((set(counters), {}))
        self.counters |= counters
        yield
        self._frames.pop()

    # reductions ----------------------------------------------------------------------------------

    def reduce_below(self, roots: Values) -> None:
        """Write the reductions that nodes need, as far as their counters have values."""
        for number in self.body.reductions_below(roots):
            free = self.body.free_of_reduction(number)
            open_counters = set[int]().union(*(counters for counters, _ in self._frames))
            if free <= open_counters and not self._is_known(number):
                self.know(number, self._reduced(self.body.reductions[number]))

    def _is_known(self, number: int) -> bool:
        return any(number in known for _, known in self._frames)

    def know(self, number: int, totals: Values) -> None:
        """Note the results of a reduction, which hold in the innermost frame."""
        self._frames[-1][1][number] = totals

    def _reduced(self, r: Reduction) -> Values:
        """The results of a reduction that an invocation computes alone."""
        ends = self.values(r.extents)
        return self.nest(r, [(self.k.word(0), end) for end in ends])

    def nest(self, r: Reduction, bounds: Sequence[tuple[int, int]], level: int = 0) -> Values:
        """The results of the loops of a reduction from a level on, which begin from nothing.

        ``bounds`` are where each counter begins and ends.
        """
        lo, hi = bounds[level]
        return self.loop(r, lo, hi, lambda k: k, bounds, level)

    def loop(
        self,
        r: Reduction,
        lo: int,
        hi: int,
        counter: Callable[[int], int],
        bounds: Sequence[tuple[int, int]],
        level: int = 0,
    ) -> Values:
        """The results of a loop, whose iterations are those of a counter as ``counter`` says."""
        last = level == len(r.counters) - 1

        def terms(i: int) -> Values:
            with self.frame({r.counters[level]: counter(i)}):
                self.reduce_below([*r.parts, *r.extents])
                return self.values(r.parts) if last else self.nest(r, bounds, level + 1)

        if r.long:
            return self._long(r, lo, hi, terms, in_blocks=last)

        def iteration(i: int, totals: Sequence[int]) -> Values:
            return self.combined(r, totals, terms(i))

        return self.k.loop(lo, hi, self.nothing(r), iteration)[0]

    def _long(
        self, r: Reduction, lo: int, hi: int, terms: Callable[[int], Values], in_blocks: bool
    ) -> Values:
        """The results of a loop whose sums keep their rounding errors, block by block."""
        k, target = self.k, self.k.target
        wide = [target.wide_zero(k) for kind in r.kinds if kind == "add"]
        others = [i for i, kind in zip(self.nothing(r), r.kinds, strict=True) if kind != "add"]
        first, end = Index(k, lo), Index(k, hi)

        def block(b: int) -> Values:
            start = first + Index(k, b) * BLOCK
            stop = start + (end - start).at_most(BLOCK)

            def iteration(i: int, totals: Sequence[int]) -> Values:
                return self.combined(r, totals, terms(i))

            return k.loop(start.id, stop.id, self.nothing(r), iteration)[0]

        def add(i: int, carries: Sequence[int]) -> Values:
            flat = iter(carries)
            totals = {n: [next(flat) for _ in w] for n, w in enumerate(wide)}
            rest = list(flat)
            sums = iter(range(len(wide)))
            more = iter(rest)
            new_wide, new_rest = list[int](), list[int]()
            for kind, x in zip(r.kinds, block(i) if in_blocks else terms(i), strict=True):
                if kind == "add":
                    new_wide += target.wide_add(k, tuple(totals[next(sums)]), x)
                else:
                    new_rest.append(k.add(COMBINED[kind], next(more), x))
            return [*new_wide, *new_rest]

        start, stop = lo, hi
        if in_blocks:
            start, stop = k.word(0), (end - first).ceil_div(BLOCK).id
        results, _ = k.loop(start, stop, [i for w in wide for i in w] + others, add)
        flat = iter(results)
        sums = iter([target.narrow(k, tuple(next(flat) for _ in w)) for w in wide])
        return [next(sums) if kind == "add" else next(flat) for kind in r.kinds]

    def nothing(self, r: Reduction) -> list[int]:
        """The results of a reduction of nothing."""
        return self.values(r.identity) if r.combine else [nothing_of(self.k, x) for x in r.kinds]

    def combined(self, r: Reduction, a: Values, b: Values) -> list[int]:
        """What a reduction makes of two results."""
        if r.combine is None:
            return [self.k.add(COMBINED[x], *pair) for x, *pair in zip(r.kinds, a, b, strict=True)]
        return combine(self.k, r.combine, a, b)


def nothing_of(k: KernelIR, kind: Kind) -> int:
    """The reduction of nothing."""
    value = IDENTITIES[kind]
    return k.truth(value) if isinstance(value, bool) else k.constant(value)


def combine(k: KernelIR, function: Combine, a: Values, b: Values) -> list[int]:
    """An associative function of two tuples."""
    inputs = [*a, *b]
    nodes = enumerate(function.graph.nodes)
    known = {i: inputs[n[1]] for i, n in nodes if n[0] in ANY_INPUT}
    return inline(k, function.graph, function.roots, known)
