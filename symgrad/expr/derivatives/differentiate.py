"""Derivatives: reverse and forward mode, both from the rows' partials, with symbolic zeros.

A zero cotangent or tangent is absent, never a node: it absorbs whatever it would be multiplied by,
also infinity and NaN. What one node does is in `cotangents`, what loops and choices do in
`transpose` and `push`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from symgrad.expr.derivatives.push import Structures, Tangents
from symgrad.expr.derivatives.sweep import Sweep
from symgrad.expr.derivatives.transpose import Transposer
from symgrad.expr.graph.node import Graph

__all__ = [
    "balanced_sum",
    "deriving",
    "differentiating",
    "jvp",
    "linearized",
    "pushed",
    "vjp",
]


def vjp(graph: Graph, cotangents: Mapping[int, int], wrt: Sequence[int]) -> list[int | None]:
    """The cotangents of ``wrt`` for given cotangents of some roots; None is structurally zero.

    One sweep from the roots down: its cost is that of the nodes between roots and ``wrt``, however
    many inputs there are. Loops keep what ``graph.keeping`` says, or run in strips.
    """
    sweep = Sweep(graph, cotangents.items(), wrt, Transposer(graph.keeping))
    sweep.run()
    return [sweep.found.get(i) for i in wrt]


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


def pushed(
    graph: Graph,
    weights: Weights,
    seeds: Mapping[int, Tangents],
    keep: Callable[[int, int], bool] = lambda _, __: True,
) -> dict[int, Tangents]:
    """The tangents of all nodes, for all directions in one sweep.

    A node has tangents only of the directions that it depends on, for which ``keep(node,
    direction)`` holds. ``seeds`` are added to what comes from the arguments.
    """
    return _structures(graph, weights, seeds, keep).tangents


def _structures(
    graph: Graph,
    weights: Weights,
    seeds: Mapping[int, Tangents],
    keep: Callable[[int, int], bool] = lambda _, __: True,
) -> Structures:
    structures = Structures(graph, _pushed_within)
    tangents = structures.tangents
    with differentiating(graph):
        for i, partials in weights.items():
            graph.place = graph.places[i]
            if i not in seeds and is_structure(graph, i):
                moved = structures.visit(i)
                tangents[i] = {c: t for c, t in moved.items() if keep(i, c)}
                continue
            parts: dict[int, list[Contribution]] = {c: [t] for c, t in seeds.get(i, {}).items()}
            for a, weight in partials.items():
                for c, t in tangents[a].items():
                    if keep(i, c):
                        parts.setdefault(c, []).append(product(graph, weight, t))
            tangents[i] = {c: collected(graph, contributions) for c, contributions in parts.items()}
    return structures


def _pushed_within(graph: Graph, seeds: Mapping[int, Tangents], roots: Sequence[int]) -> Structures:
    """All tangents of what the roots of a region need."""
    return _structures(graph, linearized(graph, roots, list(seeds)), seeds)


def jvp(graph: Graph, tangents: Mapping[int, int], roots: Sequence[int]) -> list[int | None]:
    """The tangents of the roots for given tangents of some nodes; None is structurally zero."""
    weights = linearized(graph, roots, list(tangents))
    weights |= {i: {} for i in tangents if i in weights}  # what is given does not follow
    seeds = {i: {0: (None, t)} for i, t in tangents.items()}
    moved = pushed(graph, weights, seeds)
    parts = [moved[i].get(0) if i in moved else None for i in roots]
    return [None if part is None else selected(graph, part) for part in parts]
