"""Jacobians: forward, reverse or mixed accumulation, whichever takes the fewest operations.

The derivatives of m roots for n variables are made by a reverse sweep a root, by one sweep with n
tangents a node, or by eliminating nodes where that costs least; zeros are absent in all of them.
`symgrad.expr.derivatives.count_modes` counts what each mode takes. Small graphs are differentiated
by all that come near the least, and simplified, for what is shared and folded shows only then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.derivatives.cotangents import (
    Contribution,
    active_between,
    collected,
    differentiating,
    is_structure,
    product,
    selected,
)
from symgrad.expr.derivatives.count_modes import Linear, eliminated, linear, sweeps, variable_vertex
from symgrad.expr.derivatives.differentiate import Weights, linearized, pushed, vjp
from symgrad.expr.graph.node import CONST, Graph, Op, reachable
from symgrad.expr.graph.rebuild import excerpt
from symgrad.expr.laws.simplify import simplify

Mode = Literal["auto", "forward", "reverse", "mixed"]
"""How derivatives are accumulated; "auto" is the cheapest of the others."""

MODES: Final = get_args(Mode)

MOST_OPERATIONS_TRIED: Final = 2**10
"""Operations up to which modes are tried, rather than counted on the graph."""

MOST_TIMES_LEAST: Final = 2
"""How many times the least count a mode may have that is tried."""

OPERATIONS_OF_GRACE: Final = 128
"""Operations by which a mode that is tried may always count more than the least."""

Entries = dict[tuple[int, int], int]
"""The nodes of derivatives that are not structurally 0, by row and column."""

Measure = Callable[[Graph, Sequence[int]], int]
"""What computing these roots costs in the end."""


@dataclass(frozen=True)
class Sought:
    """The derivatives of roots for variables that are wanted: a root that is None has none.

    If they are ``symmetric``, as those of a gradient are, the lower half is made and mirrored.
    """

    roots: Sequence[int | None]
    wrt: Sequence[int]
    symmetric: bool = False

    @property
    def ends(self) -> list[int]:
        """The roots that there are."""
        return [i for i in self.roots if i is not None]

    @property
    def places(self) -> dict[int, list[int]]:
        """Where each variable stands."""
        places: dict[int, list[int]] = {}
        for c, i in enumerate(self.wrt):
            places.setdefault(i, []).append(c)
        return places

    def renamed(self, new: Mapping[int, int]) -> Sought:
        """The same in a graph where nodes have other ids."""
        roots = [None if i is None else new[i] for i in self.roots]
        return replace(self, roots=roots, wrt=[new[i] for i in self.wrt])

    def entries(self, graph: Graph, derivatives: Mapping[int, Mapping[int, int]]) -> Entries:
        """The matrix of the derivatives, by root and by the first place of a variable."""
        places = {columns[0]: columns for columns in self.places.values()}
        cells = [
            (r, c, i)
            for r, root in enumerate(self.roots)
            if root is not None
            for first, i in derivatives.get(root, {}).items()
            if not _is_zero(graph, i)
            for c in places[first]
            if c <= r or not self.symmetric
        ]
        entries = {(r, c): i for r, c, i in sorted(cells)}
        return entries | {(c, r): i for r, c, i in cells} if self.symmetric else entries


@dataclass(frozen=True)
class Linearized:
    """The partial derivatives between variables and roots, and the order of mixed mode."""

    weights: Weights
    of: Linear
    order: Sequence[int] = ()


def accumulated(
    graph: Graph, sought: Sought, mode: Mode = "auto", measure: Measure | None = None
) -> tuple[Entries, Mode]:
    """The derivatives that are sought, and by which mode they were made.

    Loops are not eliminated: where there are any, derivatives are made forward or in reverse, by
    which there are fewer variables than roots or more.

    Raises:
        InputError: for a mode that does not exist.
    """
    require_mode(mode)
    if mode in ("auto", "mixed") and _has_structures(graph, sought):
        mode = "forward" if len(sought.wrt) <= len(sought.ends) else "reverse"
    if mode == "auto":
        return _cheapest(graph, sought, measure or simplified_size)
    if mode == "reverse":
        return _reverse(graph, sought), mode
    linearization = linearize(graph, sought)
    if mode == "mixed":
        order = eliminated(linearization.of, math.inf)
        assert order is not None, "there is no limit"
        linearization = replace(linearization, order=order[0])
    return _made(mode, graph, sought, linearization), mode


def _has_structures(graph: Graph, sought: Sought) -> bool:
    """Whether there are loops, choices or arrays between variables and roots."""
    return any(is_structure(graph, i) for i in active_between(graph, sought.ends, sought.wrt))


def require_mode(mode: Any) -> None:
    """Refuse a mode that does not exist."""
    if mode not in MODES:
        choices = ", ".join(f'"{m}"' for m in MODES)
        raise InputError(f"mode={mode!r} is not a choice: use one of {choices}")


def _cheapest(graph: Graph, sought: Sought, measure: Measure) -> tuple[Entries, Mode]:
    """By the mode that takes the fewest operations; reverse if several do, else forward.

    Derivatives that are the user's own are stated for cotangents, and taken in reverse.
    """
    every = [*sought.ends, *sought.wrt]
    part, new = excerpt(graph, every, min(sought.wrt, default=len(graph)))
    inner = sought.renamed(new)
    copy = part.copy()
    linearization = linearize(copy, inner)
    if any(_is_own(part.nodes[i][0]) for i in linearization.weights):
        return _reverse(graph, sought), "reverse"
    costs, order = counted(linearization.of)
    linearization = replace(linearization, order=order)

    def tried(mode: Mode) -> int:
        trial = (part if mode == "reverse" else copy).copy()
        entries = _made(mode, trial, inner, linearization)
        return measure(trial, [*inner.ends, *entries.values()])

    least = min(costs.values())
    near: list[Mode] = [
        mode for mode in costs if costs[mode] <= MOST_TIMES_LEAST * least + OPERATIONS_OF_GRACE
    ]
    few = least <= MOST_OPERATIONS_TRIED and len(near) > 1
    mode = min(near, key=tried if few else costs.__getitem__)
    if mode == "reverse":
        return _reverse(graph, sought), mode
    old = list(new)
    known = replace(linearize(graph, sought), order=[old[i] for i in order])
    return _made(mode, graph, sought, known), mode


def _made(mode: Mode, graph: Graph, sought: Sought, known: Linearized) -> Entries:
    """The derivatives by one of the modes."""
    if mode == "reverse":
        return _reverse(graph, sought)
    return (_forward if mode == "forward" else _mixed)(graph, sought, known)


def linearize(graph: Graph, sought: Sought) -> Linearized:
    """The partial derivatives between variables and roots, which become nodes."""
    weights = linearized(graph, sought.ends, sought.wrt)
    columns = {i: numbers[0] for i, numbers in sought.places.items() if i in weights}
    rows = {i: r for r, i in enumerate(sought.roots) if i is not None and i in weights}
    return Linearized(weights, linear(graph, weights, columns, rows, sought.symmetric))


def _is_own(op: Op) -> bool:
    return bool(op.arity) and ops.TABLE.get(op.name) is not op


def counted(of: Linear) -> tuple[dict[Mode, int], list[int]]:
    """The operations that each mode takes, and in which order mixed mode eliminates nodes.

    Mixed mode is absent if it takes many more than the others, or cannot take much fewer, as many
    edges would be used only once.
    """
    operations = sweeps(of)
    costs: dict[Mode, int] = {"reverse": operations["reverse"], "forward": operations["forward"]}
    least = min(costs.values())
    if MOST_OPERATIONS_TRIED < least <= sum(map(len, of.edges.values())):
        return costs, []
    mixed = eliminated(of, MOST_TIMES_LEAST * least + OPERATIONS_OF_GRACE)
    if mixed is None:
        return costs, []
    order, costs["mixed"] = mixed
    return costs, order


def simplified_size(graph: Graph, roots: Sequence[int]) -> int:
    """The operations of these roots when they are simplified."""
    simplified, ends = simplify(graph, roots)
    return sum(1 for i in reachable(simplified, ends) if simplified.nodes[i][0].arity)


# --- the modes ------------------------------------------------------------------------------------


def _reverse(graph: Graph, sought: Sought) -> Entries:
    """One sweep for each root, over what it depends on."""
    places, one = sought.places, graph.constant(1.0)
    start = min(places, default=len(graph))
    derivatives: dict[int, dict[int, int]] = {}
    for r, root in enumerate(sought.roots):
        if root is not None:
            end = r + 1 if sought.symmetric else len(sought.wrt)
            below = reachable(graph, [root], start)
            near = [i for i in below if i in places and places[i][0] < end]
            row = zip(near, vjp(graph, {root: one}, near), strict=True)
            derivatives[root] = {places[i][0]: d for i, d in row if d is not None}
    return sought.entries(graph, derivatives)


def _forward(graph: Graph, sought: Sought, known: Linearized) -> Entries:
    """One sweep with a tangent for each variable."""
    of, one = known.of, graph.constant(1.0)
    seeds = {i: {c: (None, one)} for i, c in of.columns.items()}
    tangents = pushed(graph, known.weights, seeds, lambda i, c: c <= of.last[i])
    with differentiating(graph):
        derivatives = {i: {c: selected(graph, t) for c, t in tangents[i].items()} for i in of.rows}
    return sought.entries(graph, derivatives)


def _mixed(graph: Graph, sought: Sought, known: Linearized) -> Entries:
    """Elimination of the nodes in between, those first that cost least."""
    of, one = known.of, graph.constant(1.0)
    into = {
        i: {a: [part] for a, part in derivatives.items()}
        for i, derivatives in known.weights.items()
    }
    into |= {of.root_vertex(i): {i: [(None, one)]} for i in of.rows}
    for i, c in of.columns.items():
        into[i][variable_vertex(c)] = [(None, one)]
    with differentiating(graph):
        _eliminate(graph, into, known.order, of)
        derivatives = {
            i: {
                variable_vertex(p): selected(graph, collected(graph, parts))
                for p, parts in into[of.root_vertex(i)].items()
            }
            for i in of.rows
        }
    return sought.entries(graph, derivatives)


def _eliminate(
    graph: Graph, into: dict[int, dict[int, list[Contribution]]], order: Sequence[int], of: Linear
) -> None:
    """Connect what is before each node with what is behind it, until no node is left."""
    out: dict[int, dict[int, None]] = {i: {} for i in order}
    for s, before in into.items():
        for p in before.keys() & out.keys():
            out[p][s] = None
    for i in order:
        graph.place = graph.places[i]
        before = {p: collected(graph, parts) for p, parts in into.pop(i).items()}
        for s in out.pop(i):
            weight = collected(graph, into[s].pop(i))
            for p, other in before.items():
                if of.wanted(p, s):
                    into[s].setdefault(p, []).append(product(graph, weight, other))
                    out.get(p, {})[s] = None
        for p in before.keys() & out.keys():
            del out[p][i]


def _is_zero(graph: Graph, i: int) -> bool:
    return graph.nodes[i][0] is CONST and graph.value(i) == 0.0
