"""Forward mode through loops, choices and arrays.

A loop carries its values and their tangents in all directions together: one that does stands beside
the one that does not, until they are simplified to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from symgrad.expr.derivatives.cotangents import Contribution, selected
from symgrad.expr.derivatives.flow import varied
from symgrad.expr.derivatives.sweep import like, zero_like
from symgrad.expr.graph.arrays import GET, ZEROS, ArrayRule, length
from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.region import Choice, Loop, Pick, choice_op, close, loop_op, pick
from symgrad.expr.tracers.expression import WRAP

Tangents = Mapping[int, Contribution]
"""The tangents of a node by direction; of a direction that is absent it is structurally zero."""

Way = tuple[int, int]
"""A number of a carry, a capture or a result, and a direction."""

Push = Callable[[Graph, Mapping[int, Tangents], Sequence[int]], "Structures"]
"""All tangents of what some roots need, from those of some nodes."""


class Structures:
    """The tangents of a graph's nodes, as far as they are known.

    ``wide`` are the loops and choices that have tangents among their results: by the node in whose
    place they stand, the node and which result is which tangent.
    """

    def __init__(self, graph: Graph, push: Push) -> None:
        self.graph, self._push = graph, push
        self.tangents: dict[int, Tangents] = {}
        self.wide: dict[int, tuple[int, dict[Way, int]]] = {}

    def visit(self, i: int) -> Tangents:
        """The tangents of node i, a structure."""
        graph, (op, *args) = self.graph, self.graph.nodes[i]
        if isinstance(op, Loop):
            self._loop(i, op, args)
            return {}
        if isinstance(op, Choice):
            self._choice(i, op, args)
            return {}
        if isinstance(op, Pick):
            node, ways = self.wide.get(args[0], (i, {}))
            kind = op.result
            return {
                d: (None, pick(graph, node, n, kind)) for (j, d), n in ways.items() if j == op.index
            }
        moved = self._of(args[0])
        if op is GET:
            return {d: (None, graph.add(GET, t, args[1])) for d, t in moved.items()}
        if isinstance(op, ArrayRule):
            return self._ruled(i, op, args)
        return self._written(i, moved)

    def _ruled(self, i: int, op: ArrayRule, args: Sequence[int]) -> Tangents:
        """The tangents of an array that has a rule of its own."""
        if op.push is None:
            return {}
        graph = self.graph
        value, *given = (WRAP[graph.type(a)](graph, a) for a in [i, *args])
        moved = [self._of(a) for a in args]
        results: dict[int, Contribution] = {}
        for d in sorted({d for tangents in moved for d in tangents}):
            changes = [WRAP["F"](graph, t[d]) if d in t else None for t in moved]
            results[d] = None, op.push(value, *given, *changes).id
        return results

    def _written(self, i: int, moved: Mapping[int, int]) -> Tangents:
        """The tangents of a version of an array."""
        graph, (op, *args) = self.graph, self.graph.nodes[i]
        values = self._of(args[2]) if graph.type(i) == "F" else {}
        tangents: dict[int, Contribution] = {}
        for d in sorted(moved.keys() | values.keys()):
            array = moved[d] if d in moved else graph.intern((ZEROS, length(graph, i)))
            value = values[d] if d in values else graph.constant(0.0)
            tangents[d] = None, graph.add(op, array, args[1], value)
        return tangents

    def _of(self, i: int) -> dict[int, int]:
        """The tangents of node i as nodes."""
        return {d: selected(self.graph, t) for d, t in self.tangents.get(i, {}).items()}

    def _ways(self, ids: Iterable[int]) -> dict[Way, int]:
        return {(n, d): t for n, a in enumerate(ids) for d, t in sorted(self._of(a).items())}

    def stands(self) -> dict[int, int]:
        """For results of loops and choices, those of what has tangents too."""
        graph, picks = self.graph, dict[int, int]()
        for i in range(len(graph)):
            op, *args = graph.nodes[i]
            if op.__class__ is Pick and args[0] in self.wide:
                picks[i] = pick(graph, self.wide[args[0]][0], op.index, op.result)
        return {i: other for i, other in picks.items() if other != i}

    # --- loops and choices ------------------------------------------------------------------------

    def _loop(self, i: int, op: Loop, args: Sequence[int]) -> None:
        graph, (inits, captures) = self.graph, op.split(args[2:])
        first, outside = self._ways(inits), self._ways(captures)
        inner, (carries, params) = op.body.copy(), op.split(op.body.params[1:])
        moved = _moved(op, first, outside)
        names = {way: like(inner, carries[way[0]], "dot") for way in moved}
        more = {way: like(inner, params[way[0]], "dot") for way in outside}
        structures = self._push(inner, _seeds(carries, names, params, more), op.body.yields)
        m, yields = op.carries, op.body.yields
        ends = [structures.of(yields[j], d, carries[j]) for j, d in moved]
        region, _ = close(
            inner,
            [op.body.params[0], *carries, *names.values(), *params, *more.values()],
            [*yields[:m], *ends, *yields[m:]],
            structures.stands(),
        )
        wide = loop_op(region, m + len(ends), op.test, op.down, op.most)
        starts = [first[w] if w in first else zero_like(graph, inits[w[0]]) for w in moved]
        loop = graph.add(wide, *args[:2], *inits, *starts, *captures, *outside.values())
        self.wide[i] = loop, {way: m + n for n, way in enumerate(moved)}

    def _choice(self, i: int, op: Choice, args: Sequence[int]) -> None:
        graph, (condition, *captures) = self.graph, args
        outside, inner, params = self._ways(captures), op.body.copy(), op.body.params
        more = {way: like(inner, params[way[0]], "dot") for way in outside}
        structures = self._push(inner, _seeds((), {}, params, more), op.body.yields)
        sides = op.sides()
        ways = sorted(
            {
                (j, d)
                for side in sides
                for j, y in enumerate(side)
                for d in structures.tangents.get(y, ())
            }
        )
        yields = [[*side, *[structures.of(side[j], d, side[j]) for j, d in ways]] for side in sides]
        region, _ = close(
            inner, [*params, *more.values()], [*yields[0], *yields[1]], structures.stands()
        )
        wide = choice_op(region, op.results + len(ways))
        choice = graph.add(wide, condition, *captures, *outside.values())
        self.wide[i] = choice, {way: op.results + n for n, way in enumerate(ways)}

    def of(self, i: int, direction: int, kind: int) -> int:
        """A tangent of node i, which may be the zero of the type of another node."""
        part = self.tangents.get(i, {}).get(direction)
        return zero_like(self.graph, kind) if part is None else selected(self.graph, part)


def _moved(op: Loop, inits: Iterable[Way], captures: Iterable[Way]) -> list[Way]:
    """Which carries have tangents in which directions, in any turn."""
    carries, params = op.split(op.body.params[1:])
    seeds: dict[int, int] = {}
    for given, ids in ((inits, carries), (captures, params)):
        for n, d in given:
            seeds[ids[n]] = seeds.get(ids[n], 0) | 1 << d
    reached = varied(op, seeds)
    return [
        (j, d)
        for j, c in enumerate(carries)
        for d in range(reached[c].bit_length())
        if reached[c] >> d & 1
    ]


def _seeds(
    carries: Sequence[int], names: Mapping[Way, int], params: Sequence[int], more: Mapping[Way, int]
) -> dict[int, Tangents]:
    seeds: dict[int, dict[int, Contribution]] = {}
    for ids, given in ((carries, names), (params, more)):
        for (n, d), t in given.items():
            seeds.setdefault(ids[n], {})[d] = None, t
    return dict(seeds)
