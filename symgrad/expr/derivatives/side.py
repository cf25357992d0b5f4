"""The transpose of a choice: a choice between those of its sides, on the same condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symgrad.expr.derivatives.cotangents import differentiating
from symgrad.expr.derivatives.restore import Origins, Restoring, as_word, from_word
from symgrad.expr.derivatives.sweep import Seed, like
from symgrad.expr.derivatives.transposed import Asked, Source, Transposed
from symgrad.expr.graph.arrays import EMPTIES, length
from symgrad.expr.graph.node import ARRAYS, WORD, Graph
from symgrad.expr.graph.region import Choice, choice_op, close, hole


def transposed_choice(op: Choice, asked: Asked, regions: Origins) -> Transposed:
    """The choice that keeps what its transpose reads, and the transpose."""
    return _Both(op, asked, regions).transposed()


class _Side(Restoring):
    """The reverse sweep over one side; what it keeps are results of the choice."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.extras: list[tuple[int, int]] = []

    def keep(self, value: int) -> int:
        """What stands in the transpose for a value, which becomes one more result."""
        if value not in self._kept:
            graph, kind = self.graph, self.graph.type(value)
            size = length(graph, value) if kind in ARRAYS else None
            home = hole(graph, "u" if kind == "b" else kind, size, "kept")
            self.extras.append((home, as_word(graph, value)))
            self._kept[value] = from_word(graph, home, kind)
        return self._kept[value]


class _Both:
    """The reverse sweeps over both sides, in one graph."""

    def __init__(self, op: Choice, asked: Asked, regions: Origins) -> None:
        self.op, self.asked, self.regions = op, asked, regions
        self.graph = op.body.copy()
        graph, params = self.graph, op.body.params
        self.size = len(graph)
        self.slot = hole(graph, "u", name="run")
        self.bars = {j: like(graph, op.body.yields[j], "bar") for j in sorted(asked.bars)}
        self.olds = {j: like(graph, op.body.yields[j]) for j in sorted(asked.restore)}
        self.arrays = {
            q: like(graph, params[q], "bar")
            for q in sorted(asked.captures)
            if graph.type(params[q]) == "F"
        }
        self.sides = [self._swept(side) for side in op.sides()]

    def _swept(self, yields: Sequence[int]) -> _Side:
        params = self.op.body.params
        seeds: list[Seed] = [(yields[j], bar) for j, bar in self.bars.items()]
        seeds += [(params[q], bar) for q, bar in self.arrays.items()]
        wrt = [params[q] for q in sorted(self.asked.captures)]
        given = {yields[j]: old for j, old in self.olds.items()}
        iterations = self.asked.iterations
        side = _Side(self.graph, seeds, wrt, self.regions, given, self.slot, iterations, self.size)
        side.runs = self.asked.runs
        side.run()
        return side

    def transposed(self) -> Transposed:
        """The two choices."""
        with differentiating(self.graph):
            wanted = self._wanted()
            ends = [list(self._results(side, wanted).values()) for side in self.sides]
            taken = set[int]().union(*[s.take(e) for s, e in zip(self.sides, ends, strict=True)])
            back = [
                standing(self.graph, e, s.replace) for s, e in zip(self.sides, ends, strict=True)
            ]
        sources = self._sources(taken)
        region, _ = close(self.graph, list(sources), [*back[0], *back[1]])
        homes = [home for side in self.sides for home, _ in side.homes]
        extras = [home for side in self.sides for home, _ in side.extras]
        return Transposed(
            self._forward(homes) if homes or extras else None,
            choice_op(region, len(wanted)),
            tuple((self.graph.type(home), length(self.graph, home)) for home in homes),
            tuple(sources.values()),
            tuple(wanted),
            tuple(self.graph.type(e) for e in extras),
        )

    def _wanted(self) -> list[Source]:
        """What the transpose gives: cotangents of captures that a side has, and arrays restored."""
        params = self.op.body.params
        sums = [
            ("sum", q)
            for q in sorted(self.asked.captures)
            if any(params[q] in side.found for side in self.sides)
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

    def _results(self, side: _Side, wanted: Sequence[Source]) -> dict[Source, int]:
        params, zero = self.op.body.params, self.graph.constant(0.0)
        results: dict[Source, int] = {}
        for kind, q in wanted:
            if kind == "old":
                results[kind, q] = side.restored[params[q]]
            else:
                results[kind, q] = side.found.get(params[q], self.arrays.get(q, zero))
        return results

    def _sources(self, taken: set[int]) -> dict[int, Source]:
        homes = [home for side in self.sides for home, _ in side.homes]
        extras = [home for side in self.sides for home, _ in side.extras]
        sources: dict[int, Source] = {
            **{bar: ("bar", j) for j, bar in self.bars.items()},
            **{bar: ("sum", q) for q, bar in self.arrays.items()},
            **{old: ("old", j) for j, old in self.olds.items()},
            **{home: ("home", n) for n, home in enumerate(homes)},
            **{home: ("extra", n) for n, home in enumerate(extras)},
            **{p: ("capture", q) for q, p in enumerate(self.op.body.params)},
            self.slot: ("run", 0),
        }
        return {i: source for i, source in sources.items() if i in taken or source[0] == "sum"}

    def _forward(self, homes: Sequence[int]) -> Choice:
        """The choice with more results: what each side keeps, beside blanks for the other's."""
        graph, yields = self.graph, list[int]()
        for side, results in zip(self.sides, self.op.sides(), strict=True):
            own = dict(side.extras)
            extras = [
                own[home] if home in own else self._blank(home)
                for s in self.sides
                for home, _ in s.extras
            ]
            filled = [dict(side.homes).get(home, home) for home in homes]
            yields += standing(graph, [*results, *extras, *filled], side.forward)
        region, _ = close(graph, [*homes, *self.op.body.params, self.slot], yields)
        return choice_op(region, len(yields) // 2)

    def _blank(self, home: int) -> int:
        graph, kind = self.graph, self.graph.type(home)
        if kind in ARRAYS:
            return graph.intern((EMPTIES[kind], length(graph, home)))
        return graph.constant(0.0) if kind == "f" else graph.intern((WORD, 0))


def standing(graph: Graph, roots: Sequence[int], replace: Mapping[int, int]) -> list[int]:
    """The roots, made of what stands for nodes instead of these."""
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
