"""The adjoint regions of loops and choices: one iteration, or both sides, taken back.

Beside each stands the region that does what the loop or choice does and keeps what the adjoint
reads: the residuals. Dependences of a region's parts, from iteration to iteration, say what has a
cotangent: of a loop or a choice inside, each result depends on its own arguments alone, so a carry
that no result needs has none in the loops around it either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from symgrad.expr import ops
from symgrad.expr.derivatives.cotangents import compensated, differentiating
from symgrad.expr.derivatives.sweep import (
    Regions,
    RegionSweep,
    Seed,
    as_word,
    from_word,
    like,
    zero_like,
)
from symgrad.expr.graph.arrays import EMPTIES, length
from symgrad.expr.graph.node import ARRAYS, WORD, Graph
from symgrad.expr.graph.region import TURNS, Choice, Loop, Pick, choice_op, close, hole, loop_op


@dataclass(frozen=True)
class Demand:
    """The task of a transpose, by the numbers of results and captures.

    Results ``bars`` have cotangents, and the arrays ``restore`` are given back as they were; the
    cotangents of ``inits`` and ``captures`` are needed. ``iterations`` is how often it is run at
    most by the loops that keep its residuals, 0 if it keeps them itself; ``runs`` is how often it
    is run at most in all. ``zero``: the counter starts at 0.
    """

    bars: frozenset[int]
    inits: frozenset[int]
    captures: frozenset[int]
    restore: frozenset[int]
    iterations: int
    runs: int
    zero: bool = False


Source = tuple[str, int]
"""The role of an argument or a result of a transpose: the n-th of a kind of values."""


@dataclass(frozen=True)
class TransposedRegion:
    """A loop or choice that keeps residuals, its transpose, and what the transpose takes and gives.

    ``residuals`` are the types and lengths of the arrays of residuals; ``extras`` are the types of
    residuals that are results of a choice, and that the loop around it keeps.
    """

    forward: Loop | Choice | None
    reverse: Loop | Choice
    residuals: tuple[tuple[str, int], ...]
    arguments: tuple[Source, ...]
    results: tuple[Source, ...]
    extras: tuple[str, ...] = ()


def transposed_loop(op: Loop, demand: Demand, regions: Regions) -> TransposedRegion:
    """The loop that keeps the residuals, and the transpose that reads them."""
    live = between(op, demand.bars, demand.inits, demand.captures)
    restored = demand.restore
    while True:
        iteration = _AdjointIteration(op, demand, live, restored, regions)
        if not iteration.lacking:
            return iteration.transposed()
        restored |= iteration.lacking  # these are read as well: their writes are undone


class _AdjointIteration(RegionSweep):
    """The reverse sweep over one iteration.

    ``lacking`` are the arrays among the carries that it reads and does not restore yet.
    """

    def __init__(
        self,
        op: Loop,
        demand: Demand,
        live: frozenset[int],
        restored: frozenset[int],
        regions: Regions,
    ) -> None:
        graph = op.body.copy()
        size = len(graph)
        self.op, self.demand = op, demand
        self.k, *rest = op.body.params
        self.carries, self.captures = op.split(rest)
        self.number = {c: j for j, c in enumerate(self.carries)}
        self.lo, self.base = hole(graph, "u", name="first"), hole(graph, "u", name="run")
        yields = op.body.yields
        self.live = {("bar", j): like(graph, self.carries[j], "bar") for j in sorted(live)}
        self.olds = {j: like(graph, self.carries[j]) for j in sorted(restored)}
        self.sums = {q: like(graph, self.captures[q], "bar") for q in sorted(demand.captures)}
        slot = self._slot(graph)
        iterations = (op.most or 0) * (demand.iterations or 1)
        last_versions = {yields[j]: old for j, old in self.olds.items()}
        seeds = [(yields[j], bar) for (_, j), bar in self.live.items()]
        seeds += [(self.captures[q], s) for q, s in self.sums.items() if graph.type(s) == "F"]
        wrt = [*[self.carries[j] for j in sorted(live)], *[self.captures[q] for q in self.sums]]
        super().__init__(graph, seeds, wrt, regions, last_versions, slot, iterations, size)
        self.runs = (op.most or 0) * demand.runs
        self.lacking: frozenset[int] = frozenset()
        self.fixed: list[tuple[int, int]] = []
        self.run()
        with differentiating(graph):
            self._results()
            self.taken = self.take(self.results.values())

    def _slot(self, graph: Graph) -> int:
        """The number of this iteration among all that keep in the same arrays."""
        step = self.k if self.demand.zero else graph.add(ops.word_sub, self.k, self.lo)
        if not self.demand.iterations:
            return step
        most = graph.intern((WORD, self.op.most))
        return graph.add(ops.word_add, graph.add(ops.word_mul, self.base, most), step)

    def _results(self) -> None:
        """Set the carries of the transpose, ``starts``, and the next ones, in the same order."""
        graph, cotangents = self.graph, self.cotangents
        self.starts: dict[Source, int] = dict(self.live)
        self.results: dict[Source, int] = {}
        for kind, j in self.live:
            carry = self.carries[j]
            self.results[kind, j] = (
                cotangents[carry] if carry in cotangents else zero_like(graph, carry)
            )
        for q, total in self.sums.items():
            more = cotangents.get(self.captures[q])
            if more is not None and more != total:
                number = graph.type(total) == "f"
                self.starts["sum", q] = total
                self.results["sum", q] = graph.add(ops.add, total, more) if number else more
        for j, old in self.olds.items():
            self.starts["old", j] = old
            self.results["old", j] = self.restored[self.carries[j]]

    def replacement(self, i: int) -> int:
        """The replacement of node i in the transpose: a carry was kept, or is restored."""
        j = self.number.get(i)
        if j is not None and i not in self.replace and i not in self.restored:
            if self.op.body.yields[j] == i:
                self.replace[i] = like(self.graph, i)
                self.fixed.append((self.replace[i], j))
            elif self.graph.type(i) in "FW" and self.regions.origin(self.op, j) is not None:
                self.lacking |= {j}
                return i
            else:
                self.replace[i] = self.keep(i)
        return super().replacement(i)

    def transposed(self) -> TransposedRegion:
        """The two loops."""
        op, graph, m = self.op, self.graph, self.op.carries
        ends = [self.lo, self.base]
        residuals = [residual for residual, _ in self.residuals]
        yields = [*op.body.yields[:m], *[end for _, end in self.residuals], *op.body.yields[m:]]
        params = [self.k, *self.carries, *residuals, *self.captures, *ends]
        forward, _ = close(graph, params, yields, self.forward)
        sources: dict[int, Source] = {
            **{start: source for source, start in self.starts.items()},
            **{r: ("residual", n) for n, r in enumerate(residuals) if r in self.taken},
            **{c: ("capture", q) for q, c in enumerate(self.captures) if c in self.taken},
            **{stands: ("init", j) for stands, j in self.fixed},
            **{
                end: (name, 0)
                for end, name in zip(ends, ("first", "run"), strict=True)
                if end in self.taken
            },
        }
        reverse, _ = close(graph, [self.k, *sources], list(self.results.values()), self.replace)
        back = loop_op(reverse, len(self.results), False, not op.down, op.most)
        anew = {j for j, (kind, _) in enumerate(self.results) if kind == "sum"}
        back, count = compensated(back, self.demand.runs, anew)
        errors: list[Source] = [("error", 0)] * count
        arguments, n = list(sources.values()), len(self.results)
        return TransposedRegion(
            loop_op(forward, m + len(residuals), op.test, op.down, op.most) if residuals else None,
            back,
            tuple((graph.type(r), length(graph, r)) for r in residuals),
            (*arguments[:n], *errors, *arguments[n:]),
            (*self.results, *errors),
        )


def transposed_choice(op: Choice, demand: Demand, regions: Regions) -> TransposedRegion:
    """The choice that keeps the residuals, and the transpose that reads them."""
    return _AdjointChoice(op, demand, regions).transposed()


class _AdjointSide(RegionSweep):
    """The reverse sweep over one side; its residuals, ``extras``, are results of the choice."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.extras: list[tuple[int, int]] = []

    def keep(self, value: int) -> int:
        """The replacement of a value in the transpose: the value becomes one more result."""
        if value not in self._kept:
            graph, kind = self.graph, self.graph.type(value)
            size = length(graph, value) if kind in ARRAYS else None
            residual = hole(graph, "u" if kind == "b" else kind, size, "kept")
            self.extras.append((residual, as_word(graph, value)))
            self._kept[value] = from_word(graph, residual, kind)
        return self._kept[value]


class _AdjointChoice:
    """The reverse sweeps over both sides, in one graph."""

    def __init__(self, op: Choice, demand: Demand, regions: Regions) -> None:
        self.op, self.demand, self.regions = op, demand, regions
        self.graph = op.body.copy()
        graph, params = self.graph, op.body.params
        self.size = len(graph)
        self.slot = hole(graph, "u", name="run")
        self.bars = {j: like(graph, op.body.yields[j], "bar") for j in sorted(demand.bars)}
        self.olds = {j: like(graph, op.body.yields[j]) for j in sorted(demand.restore)}
        self.arrays = {
            q: like(graph, params[q], "bar")
            for q in sorted(demand.captures)
            if graph.type(params[q]) == "F"
        }
        self.sides = [self._swept(side) for side in op.sides()]

    def _swept(self, yields: Sequence[int]) -> _AdjointSide:
        """The reverse sweep over the side with these yields."""
        params = self.op.body.params
        seeds: list[Seed] = [(yields[j], bar) for j, bar in self.bars.items()]
        seeds += [(params[q], bar) for q, bar in self.arrays.items()]
        wrt = [params[q] for q in sorted(self.demand.captures)]
        last_versions = {yields[j]: old for j, old in self.olds.items()}
        iterations = self.demand.iterations
        side = _AdjointSide(
            self.graph, seeds, wrt, self.regions, last_versions, self.slot, iterations, self.size
        )
        side.runs = self.demand.runs
        side.run()
        return side

    def transposed(self) -> TransposedRegion:
        """The two choices."""
        with differentiating(self.graph):
            outputs = self._outputs()
            ends = [list(self._results(side, outputs).values()) for side in self.sides]
            taken = set[int]().union(*[s.take(e) for s, e in zip(self.sides, ends, strict=True)])
            back = [
                standing(self.graph, e, s.replace) for s, e in zip(self.sides, ends, strict=True)
            ]
        sources = self._sources(taken)
        region, _ = close(self.graph, list(sources), [*back[0], *back[1]])
        residuals = [residual for side in self.sides for residual, _ in side.residuals]
        extras = [residual for side in self.sides for residual, _ in side.extras]
        return TransposedRegion(
            self._forward(residuals) if residuals or extras else None,
            choice_op(region, len(outputs)),
            tuple((self.graph.type(r), length(self.graph, r)) for r in residuals),
            tuple(sources.values()),
            tuple(outputs),
            tuple(self.graph.type(e) for e in extras),
        )

    def _outputs(self) -> list[Source]:
        """The results of the transpose: cotangents of captures, and arrays that are restored."""
        params = self.op.body.params
        sums = [
            ("sum", q)
            for q in sorted(self.demand.captures)
            if any(params[q] in side.cotangents for side in self.sides)
        ]
        return sums + [("old", q) for q in sorted(self._origins())]

    def _origins(self) -> dict[int, int]:
        """Which capture each array that is restored is a version of: the result, by the capture."""
        origins: dict[int, int] = {}
        for j in self.olds:
            at = self.regions.origin(self.op, j)
            assert at is not None, "only what can be undone is restored"
            origins.setdefault(at - 1, j)
        return origins

    def _results(self, side: _AdjointSide, outputs: Sequence[Source]) -> dict[Source, int]:
        """The nodes of these results on one side."""
        params, zero = self.op.body.params, self.graph.constant(0.0)
        results: dict[Source, int] = {}
        for kind, q in outputs:
            if kind == "old":
                results[kind, q] = side.restored[params[q]]
            else:
                results[kind, q] = side.cotangents.get(params[q], self.arrays.get(q, zero))
        return results

    def _sources(self, taken: set[int]) -> dict[int, Source]:
        """The arguments of the transpose, by the nodes that stand for them."""
        residuals = [residual for side in self.sides for residual, _ in side.residuals]
        extras = [residual for side in self.sides for residual, _ in side.extras]
        sources: dict[int, Source] = {
            **{bar: ("bar", j) for j, bar in self.bars.items()},
            **{bar: ("sum", q) for q, bar in self.arrays.items()},
            **{old: ("old", j) for j, old in self.olds.items()},
            **{residual: ("residual", n) for n, residual in enumerate(residuals)},
            **{residual: ("extra", n) for n, residual in enumerate(extras)},
            **{p: ("capture", q) for q, p in enumerate(self.op.body.params)},
            self.slot: ("run", 0),
        }
        return {i: source for i, source in sources.items() if i in taken or source[0] == "sum"}

    def _forward(self, residuals: Sequence[int]) -> Choice:
        """The choice with more results: the residuals of its side, and blanks for the other's."""
        graph, yields = self.graph, list[int]()
        for side, results in zip(self.sides, self.op.sides(), strict=True):
            own = dict(side.extras)
            extras = [
                own[residual] if residual in own else self._blank(residual)
                for s in self.sides
                for residual, _ in s.extras
            ]
            filled = [dict(side.residuals).get(residual, residual) for residual in residuals]
            yields += standing(graph, [*results, *extras, *filled], side.forward)
        region, _ = close(graph, [*residuals, *self.op.body.params, self.slot], yields)
        return choice_op(region, len(yields) // 2)

    def _blank(self, residual: int) -> int:
        graph, kind = self.graph, self.graph.type(residual)
        if kind in ARRAYS:
            return graph.intern((EMPTIES[kind], length(graph, residual)))
        return graph.constant(0.0) if kind == "f" else graph.intern((WORD, 0))


def standing(graph: Graph, roots: Sequence[int], replace: Mapping[int, int]) -> list[int]:
    """The roots, made of the replacements of nodes instead of these."""
    new: dict[int, int] = {}
    for root in roots:
        stack = [root]
        while stack:
            i = stack[-1]
            needs = [replace[i]] if i in replace else graph.args(i)
            missing = [] if i in new else [a for a in needs if a not in new]
            stack += missing
            if not missing:
                stack.pop()
                if i in replace:
                    new[i] = new[replace[i]]
                elif i not in new:
                    arguments = [new[a] for a in needs]
                    new[i] = graph.add(graph.nodes[i][0], *arguments) if arguments else i
    return [new[r] for r in roots]


# Dependences of the parts of a loop's region on each other, from iteration to iteration.

MOVED = "fFt"
"""The types of nodes that have derivatives, or have parts that do."""

_dependences: WeakKeyDictionary[Loop | Choice, list[int]] = WeakKeyDictionary()


def varied(op: Loop, seeds: Mapping[int, int]) -> list[int]:
    """For each node of the region, in which directions it varies, as bits, in any iteration.

    ``seeds`` says it of parameters.
    """
    carries, _ = op.split(op.body.params[1:])
    after: dict[int, list[int]] = {}
    for carry, result in zip(carries, op.body.yields, strict=False):
        after.setdefault(result, []).append(carry)
    return _spread(op.body.graph, seeds, after)


def _spread(
    graph: Graph, seeds: Mapping[int, int], after: Mapping[int, Sequence[int]]
) -> list[int]:
    """The bits of the seeds that reach each node, also those ``after`` an iteration."""
    nodes = graph.nodes
    moves = [node[0].result in MOVED and node[0] is not ops.stop_gradient for node in nodes]
    reached = [seeds.get(i, 0) if is_moved else 0 for i, is_moved in enumerate(moves)]
    order = [(i, sources(graph, i)) for i, is_moved in enumerate(moves) if is_moved]
    order = [(i, args) for i, args in order if args]
    back = [(result, c) for result, carries in after.items() for c in carries if moves[c]]
    while True:  # in the order of the arena: again only where an iteration hands on more
        for i, args in order:
            for a in args:
                reached[i] |= reached[a]
        if all(reached[result] | reached[c] == reached[c] for result, c in back):
            break
        for result, c in back:
            reached[c] |= reached[result]
    return reached


def between(
    op: Loop, results: Iterable[int], inits: Iterable[int], captures: Iterable[int]
) -> frozenset[int]:
    """The carries that vary with some inits or captures, and with which some results vary."""
    graph, (carries, outside) = op.body.graph, op.split(op.body.params[1:])
    starts = [*[carries[j] for j in inits], *[outside[q] for q in captures]]
    active = varied(op, dict.fromkeys(starts, 1))
    number = {c: j for j, c in enumerate(carries)}
    seen: set[int] = set()
    stack = [op.body.yields[j] for j in results] + [carries[j] for j in results]
    while stack:
        i = stack.pop()
        if i not in seen and active[i]:
            seen.add(i)
            stack += sources(graph, i)
            if i in number:
                stack.append(op.body.yields[number[i]])
    return frozenset(number[i] for i in seen if i in number)


def sources(graph: Graph, i: int) -> Sequence[int]:
    """The arguments that node i may vary with: of a result, those that it depends on."""
    op, *rest = graph.nodes[i]
    if op.__class__ is not Pick:
        return graph.args(i)
    if op.index == TURNS:
        return ()
    owner, *arguments = graph.nodes[rest[0]]
    arguments = arguments[2:] if isinstance(owner, Loop) else arguments[1:]
    bits = _dependence(owner)[op.index]
    return [a for n, a in enumerate(arguments) if bits >> n & 1]


def _dependence(op: Loop | Choice) -> list[int]:
    """With which inits and captures each result varies, as bits."""
    if op not in _dependences:
        is_loop = isinstance(op, Loop)
        params = op.body.params[1:] if is_loop else op.body.params
        seeds = {p: 1 << n for n, p in enumerate(params)}
        if is_loop:
            reached = varied(op, seeds)
            _dependences[op] = [reached[c] for c in params[: op.carries]]
        else:
            reached = _spread(op.body.graph, seeds, {})
            _dependences[op] = [reached[a] | reached[b] for a, b in zip(*op.sides(), strict=True)]
    return _dependences[op]
