"""Derivatives: reverse and forward mode, both from the rows' partials, with symbolic zeros.

A zero cotangent or tangent is absent, never a node: it absorbs whatever it would be multiplied by,
also infinity and NaN. The rules of one node are in `cotangents`, reverse mode through loops and
choices is in `transpose`. In forward mode, a loop carries its values and their tangents in all
directions together: the widened loop stands beside the plain one, until both are simplified to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from symgrad.expr.derivatives.adjoint_regions import varied
from symgrad.expr.derivatives.cotangents import (
    Contribution,
    active_between,
    balanced_sum,
    collected,
    deriving,
    differentiating,
    is_structure,
    masked,
    product,
    pull_back,
    selected,
)
from symgrad.expr.derivatives.sweep import ReverseSweep, like, zero_like
from symgrad.expr.derivatives.transpose import CheckpointPolicy, Transposer
from symgrad.expr.graph.arrays import GET, ZEROS, ArrayRule, length
from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.region import Choice, Loop, Pick, choice_op, close, loop_op, pick
from symgrad.expr.tracers.expression import WRAP

__all__ = [
    "ForwardSweep",
    "balanced_sum",
    "deriving",
    "differentiating",
    "jvp",
    "linearized",
    "vjp",
]


Tangents = Mapping[int, Contribution]
"""The tangents of a node by direction; of a direction that is absent it is structurally zero."""

Keep = Callable[[int, int], bool]
"""``keep(node, direction)``: whether that tangent is wanted."""


def vjp(graph: Graph, cotangents: Mapping[int, int], wrt: Sequence[int]) -> list[int | None]:
    """The cotangents of ``wrt`` for given cotangents of some roots; None is structurally zero.

    One sweep from the roots down: its cost is that of the nodes between roots and ``wrt``, however
    many inputs there are. Loops keep residuals by the graph's `CheckpointPolicy`, or run in strips.
    """
    sweep = ReverseSweep(graph, cotangents.items(), wrt, Transposer(graph.note(CheckpointPolicy)))
    sweep.run()
    return [sweep.cotangents.get(i) for i in wrt]


Weights = dict[int, dict[int, Contribution]]
"""For each active node, in ascending order, its partial derivatives by its active arguments."""


def linearized(graph: Graph, roots: Sequence[int], wrt: Sequence[int]) -> Weights:
    """The partial derivatives of all nodes between ``wrt`` and the roots, each made once."""
    order = active_between(graph, roots, wrt)
    active, one = set(order), graph.constant(1.0)
    weights: Weights = {}
    with differentiating(graph):
        for i in order:
            graph.place = graph.places[i]
            parts: dict[int, list[Contribution]] = {}
            for a, g in pull_back(graph, i, one, active):
                parts.setdefault(a, []).append(masked(graph, None, g))
            weights[i] = {a: collected(graph, contributions) for a, contributions in parts.items()}
    return weights


def jvp(graph: Graph, tangents: Mapping[int, int], roots: Sequence[int]) -> list[int | None]:
    """The tangents of the roots for given tangents of some nodes; None is structurally zero."""
    weights = linearized(graph, roots, list(tangents))
    weights |= {i: {} for i in tangents if i in weights}  # given tangents do not follow from others
    seeds = {i: {0: (None, t)} for i, t in tangents.items()}
    tangents_of = ForwardSweep(graph, weights, seeds).tangents
    parts = [tangents_of[i].get(0) if i in tangents_of else None for i in roots]
    return [None if part is None else selected(graph, part) for part in parts]


# --- forward mode through loops, choices and arrays -----------------------------------------------

Way = tuple[int, int]
"""The number of a carry, a capture or a result, and a direction."""


class ForwardSweep:
    """One forward sweep over the nodes of ``weights``; ``tangents`` has theirs by direction.

    A node has tangents only of the directions that it depends on, for which ``keep`` holds.
    ``seeds`` are added to the tangents that come from the arguments.

    ``widened`` are the loops and choices that have tangents among their results: by the node in
    whose place they stand, the node and which result is which tangent.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Weights,
        seeds: Mapping[int, Tangents],
        keep: Keep = lambda _, __: True,
    ) -> None:
        self.graph = graph
        self.tangents: dict[int, Tangents] = {}
        self.widened: dict[int, tuple[int, dict[Way, int]]] = {}
        with differentiating(graph):
            for i, partials in weights.items():
                graph.place = graph.places[i]
                if i not in seeds and is_structure(graph, i):
                    tangents = self._structure(i)
                    self.tangents[i] = {c: t for c, t in tangents.items() if keep(i, c)}
                    continue
                parts: dict[int, list[Contribution]] = {c: [t] for c, t in seeds.get(i, {}).items()}
                for a, weight in partials.items():
                    for c, t in self.tangents[a].items():
                        if keep(i, c):
                            parts.setdefault(c, []).append(product(graph, weight, t))
                self.tangents[i] = {c: collected(graph, terms) for c, terms in parts.items()}

    def _structure(self, i: int) -> Tangents:
        """The tangents of node i: an array, a loop, a choice, or a result of these."""
        graph, (op, *args) = self.graph, self.graph.nodes[i]
        if isinstance(op, Loop):
            self._loop(i, op, args)
            return {}
        if isinstance(op, Choice):
            self._choice(i, op, args)
            return {}
        if isinstance(op, Pick):
            node, ways = self.widened.get(args[0], (i, {}))
            kind = op.result
            return {
                d: (None, pick(graph, node, n, kind)) for (j, d), n in ways.items() if j == op.index
            }
        tangents = self._of(args[0])
        if op is GET:
            return {d: (None, graph.add(GET, t, args[1])) for d, t in tangents.items()}
        if isinstance(op, ArrayRule):
            return self._ruled(i, op, args)
        return self._written(i, tangents)

    def _ruled(self, i: int, op: ArrayRule, args: Sequence[int]) -> Tangents:
        """The tangents of an array that has a rule of its own."""
        if op.push is None:
            return {}
        graph = self.graph
        handles = [WRAP[graph.type(a)](graph, a) for a in [i, *args]]
        each = [self._of(a) for a in args]
        results: dict[int, Contribution] = {}
        for d in sorted({d for tangents in each for d in tangents}):
            changes = [WRAP["F"](graph, t[d]) if d in t else None for t in each]
            results[d] = None, op.push(*handles, *changes).id
        return results

    def _written(self, i: int, arrays: Mapping[int, int]) -> Tangents:
        """The tangents of a version of an array."""
        graph, (op, *args) = self.graph, self.graph.nodes[i]
        values = self._of(args[2]) if graph.type(i) == "F" else {}
        tangents: dict[int, Contribution] = {}
        for d in sorted(arrays.keys() | values.keys()):
            array = arrays[d] if d in arrays else graph.intern((ZEROS, length(graph, i)))
            value = values[d] if d in values else graph.constant(0.0)
            tangents[d] = None, graph.add(op, array, args[1], value)
        return tangents

    def _of(self, i: int) -> dict[int, int]:
        """The tangents of node i as nodes."""
        return {d: selected(self.graph, t) for d, t in self.tangents.get(i, {}).items()}

    def _ways(self, ids: Iterable[int]) -> dict[Way, int]:
        """The tangents of some nodes, by the number of a node and the direction."""
        return {(n, d): t for n, a in enumerate(ids) for d, t in sorted(self._of(a).items())}

    def replacements(self) -> dict[int, int]:
        """For results of loops and choices, the same results of the widened ones."""
        graph, picks = self.graph, dict[int, int]()
        for i in range(len(graph)):
            op, *args = graph.nodes[i]
            if op.__class__ is Pick and args[0] in self.widened:
                picks[i] = pick(graph, self.widened[args[0]][0], op.index, op.result)
        return {i: other for i, other in picks.items() if other != i}

    # --- loops and choices ------------------------------------------------------------------------

    def _loop(self, i: int, op: Loop, args: Sequence[int]) -> None:
        """Add the loop that carries the tangents of loop i as well."""
        graph, (inits, captures) = self.graph, op.split(args[2:])
        first, outside = self._ways(inits), self._ways(captures)
        inner, (carries, params) = op.body.copy(), op.split(op.body.params[1:])
        moving = _moving(op, first, outside)
        names = {way: like(inner, carries[way[0]], "dot") for way in moving}
        more = {way: like(inner, params[way[0]], "dot") for way in outside}
        inner_sweep = _within(inner, _seeds(carries, names, params, more), op.body.yields)
        m, yields = op.carries, op.body.yields
        ends = [inner_sweep.of(yields[j], d, carries[j]) for j, d in moving]
        region, _ = close(
            inner,
            [op.body.params[0], *carries, *names.values(), *params, *more.values()],
            [*yields[:m], *ends, *yields[m:]],
            inner_sweep.replacements(),
        )
        wide = loop_op(region, m + len(ends), op.test, op.down, op.most)
        starts = [first[w] if w in first else zero_like(graph, inits[w[0]]) for w in moving]
        loop = graph.add(wide, *args[:2], *inits, *starts, *captures, *outside.values())
        self.widened[i] = loop, {way: m + n for n, way in enumerate(moving)}

    def _choice(self, i: int, op: Choice, args: Sequence[int]) -> None:
        """Add the choice whose sides give the tangents of choice i's results as well."""
        graph, (condition, *captures) = self.graph, args
        outside, inner, params = self._ways(captures), op.body.copy(), op.body.params
        more = {way: like(inner, params[way[0]], "dot") for way in outside}
        inner_sweep = _within(inner, _seeds((), {}, params, more), op.body.yields)
        sides = op.sides()
        ways = sorted(
            {
                (j, d)
                for side in sides
                for j, y in enumerate(side)
                for d in inner_sweep.tangents.get(y, ())
            }
        )
        yields = [
            [*side, *[inner_sweep.of(side[j], d, side[j]) for j, d in ways]] for side in sides
        ]
        region, _ = close(
            inner, [*params, *more.values()], [*yields[0], *yields[1]], inner_sweep.replacements()
        )
        wide = choice_op(region, op.results + len(ways))
        choice = graph.add(wide, condition, *captures, *outside.values())
        self.widened[i] = choice, {way: op.results + n for n, way in enumerate(ways)}

    def of(self, i: int, direction: int, kind: int) -> int:
        """A tangent of node i, which may be the zero of the type of another node."""
        part = self.tangents.get(i, {}).get(direction)
        return zero_like(self.graph, kind) if part is None else selected(self.graph, part)


def _moving(op: Loop, inits: Iterable[Way], captures: Iterable[Way]) -> list[Way]:
    """Which carries have tangents in which directions, in any iteration."""
    carries, params = op.split(op.body.params[1:])
    seeds: dict[int, int] = {}
    for ways, ids in ((inits, carries), (captures, params)):
        for n, d in ways:
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
    """The tangents of a region's parameters: of its carries ``names``, of its captures ``more``."""
    seeds: dict[int, dict[int, Contribution]] = {}
    for ids, holes in ((carries, names), (params, more)):
        for (n, d), t in holes.items():
            seeds.setdefault(ids[n], {})[d] = None, t
    return dict(seeds)


def _within(graph: Graph, seeds: Mapping[int, Tangents], roots: Sequence[int]) -> ForwardSweep:
    """The sweep over what the roots of a region need."""
    return ForwardSweep(graph, linearized(graph, roots, list(seeds)), seeds)
