"""Jacobians: forward, reverse or mixed accumulation, whichever takes the fewest operations.

The derivatives of m roots for n variables are made by a reverse sweep for each root, by one sweep
with n tangents for each node, or by eliminating nodes in the order of least cost; zeros are absent
in all of them. The operations of each mode are counted on the linearised graph. Small graphs are
differentiated by all modes that come near the least, and simplified, for what is shared and folded
shows only then.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
from symgrad.expr.derivatives.differentiate import ForwardSweep, Weights, linearized, vjp
from symgrad.expr.graph.node import CONST, Graph, Op, bits_float, reachable
from symgrad.expr.graph.rebuild import excerpt
from symgrad.expr.laws.simplify import simplify

UNIT: Final = 0
"""The kind of a factor that is 1 or -1."""

CONSTANT: Final = 1
"""The kind of any other constant."""

GENERAL: Final = 2
"""The kind of a factor that has to be computed, or holds under a condition."""

BUDGET: Final = 4
"""How many operations an edge modes are counted to at first, and by how many times more later."""

Kinds = dict[int, dict[int, int]]
"""For nodes in the order of a sweep, the kind of their partial derivative by each neighbour."""


@dataclass(frozen=True)
class Linear:
    """The linearised graph between variables and roots, with the kinds of its edges.

    1. ``edges[i]`` are those of node i from its arguments; nodes stand in ascending order.
    2. ``columns[i]`` is the place of variable i, ``rows[i]`` is that of root i, the last one where
       it has several.
    3. Where it is ``lower``, entries right of the diagonal are not wanted.
    """

    edges: Kinds
    columns: Mapping[int, int]
    rows: Mapping[int, int]
    lower: bool

    @cached_property
    def last(self) -> dict[int, int]:
        """The last column for which the tangent of a node is wanted."""
        if not self.lower:
            return dict.fromkeys(self.edges, max(self.columns.values(), default=0))
        last = {i: self.rows.get(i, -1) for i in self.edges}
        for i in reversed(self.edges):
            for a in self.edges[i]:
                last[a] = max(last[a], last[i])
        return last

    @cached_property
    def first(self) -> dict[int, int]:
        """The first row for which the cotangent of a node is wanted."""
        if not self.lower:
            return dict.fromkeys(self.edges, 0)
        beyond = max(self.rows.values(), default=0) + 1
        first = {i: self.columns.get(i, beyond) for i in self.edges}
        for i, arguments in self.edges.items():
            first[i] = min([first[i], *[first[a] for a in arguments]])
        return first

    def root_vertex(self, i: int) -> int:
        """The vertex of a root, beyond all nodes."""
        return i + 1 + next(reversed(self.edges))

    def wanted(self, p: int, s: int) -> bool:
        """Whether a path from vertex p to vertex s leads to an entry that is wanted."""
        if not self.lower:
            return True
        beyond = self.root_vertex(0)
        first = variable_vertex(p) if p < 0 else self.first[p]
        return first <= (self.rows[s - beyond] if s >= beyond else self.last[s])


def linear(
    graph: Graph, weights: Weights, columns: Mapping[int, int], rows: Mapping[int, int], lower: bool
) -> Linear:
    """The kinds of these partial derivatives; loops and arrays depend on all their arguments."""
    edges = {
        i: {a: GENERAL for a in graph.args(i) if a in weights}
        if is_structure(graph, i)
        else {a: _kind(graph, part) for a, part in partials.items()}
        for i, partials in weights.items()
    }
    return Linear(edges, columns, rows, lower)


def _kind(graph: Graph, part: Contribution) -> int:
    """The kind of a partial derivative as a factor."""
    mask, i = part
    op, *rest = graph.nodes[i]
    if mask is not None:
        return GENERAL
    if op is CONST:
        return UNIT if abs(bits_float(rest[0])) == 1.0 else CONSTANT
    folds = op.arity and all(graph.nodes[a][0] is CONST for a in rest)
    return CONSTANT if folds else GENERAL


# --- operations of forward and reverse mode -------------------------------------------------------


def sweeps(of: Linear) -> dict[str, int]:
    """The operations of forward and of reverse mode, as far as that is worth knowing.

    Counting takes as long as there are operations, so a mode is counted no further than to twice
    what the other one takes.
    """
    both: dict[str, Sweep] = {"forward": (of.edges, of.columns, of.last), "reverse": _reversed(of)}
    budget = BUDGET * (1 + sum(map(len, of.edges.values())))
    while True:
        costs = {mode: _swept(*sweep, budget) for mode, sweep in both.items()}
        least = min(costs.values())
        if least <= budget:
            break
        budget *= BUDGET
    return {
        mode: cost if cost <= budget else _swept(*both[mode], 2 * least)
        for mode, cost in costs.items()
    }


Sweep = tuple[Kinds, Mapping[int, int], Mapping[int, int]]
"""Edges in the order of a sweep, the directions that start at nodes, and the last one of a node."""


def _reversed(of: Linear) -> Sweep:
    """The sweep of reverse mode: edges are reversed, and rows counted from the last one."""
    edges: Kinds = {i: {} for i in reversed(of.edges)}
    for i, arguments in of.edges.items():
        for a, kind in arguments.items():
            edges[a][i] = kind
    return edges, {i: -r for i, r in of.rows.items()}, {i: -r for i, r in of.first.items()}


def _swept(edges: Kinds, seeds: Mapping[int, int], last: Mapping[int, int], budget: int) -> int:
    """The products and sums of a sweep in all directions at once, counted up to a budget.

    A direction is present only where it is not structurally zero. So directions that share no node
    cost no more than a sweep in their sum: that is what colouring the columns, or rows, of a sparse
    Jacobian is for, and it would save nothing here.
    """
    cost, kinds = 0, dict[int, dict[int, int]]()
    for i, neighbours in edges.items():
        own, most = ({seeds[i]: UNIT} if i in seeds else {}), last[i]
        for a, weight in neighbours.items():
            for c, kind in kinds[a].items():
                if c <= most:
                    cost += _combined(own, c, weight, kind)
        kinds[i] = own
        if cost > budget:
            break
    return cost


def _combined(into: dict[int, int], key: int, a: int, b: int) -> int:
    """Add a product of two kinds to what is there: the operations that takes."""
    cost = 1 if a and b and a + b > 2 * CONSTANT else 0
    present = into.get(key)
    if present is None:
        into[key] = a if a > b else b
        return cost
    into[key] = max(a, b, present, CONSTANT)
    return cost + (into[key] == GENERAL)


# --- operations of mixed mode ---------------------------------------------------------------------


def variable_vertex(column: int) -> int:
    """The vertex of a variable, or the variable of that vertex.

    It stays when the node that the variable is has been eliminated.
    """
    return -1 - column


def eliminated(of: Linear, budget: float) -> tuple[list[int], int] | None:
    """The nodes in the order in which mixed mode eliminates them, and its operations.

    None if there are more of them than the budget.
    """
    left, order, cost = Left(of), list[int](), 0
    sign = 1 if len(of.columns) <= len(of.rows) else -1  # of nodes that cost the same
    heap = [(left.degree(i), sign * i) for i in of.edges]
    heapq.heapify(heap)
    while heap:
        degree, place = heapq.heappop(heap)
        i = sign * place
        if i not in left.out or degree != left.degree(i):
            continue
        touched = [*left.into[i], *left.out[i]]
        cost += left.eliminate(i)
        order.append(i)
        if cost > budget:
            return None
        for a in touched:
            if a in left.out:
                heapq.heappush(heap, (left.degree(a), sign * a))
    return order, cost


class Left:
    """The rest of a linearised graph while its nodes are eliminated.

    1. ``into[s][p]`` is the kind of the edge from vertex p to s. Vertices are the nodes, and one
       more for each variable and each root.
    2. ``out`` has the nodes that are left, and where their edges lead.
    3. ``_into[v]`` and ``_out[v]`` are how many of their edges are no units.
    """

    def __init__(self, of: Linear) -> None:
        self._of = of
        self.into: dict[int, dict[int, int]] = {i: {} for i in of.edges}
        self.out: dict[int, dict[int, None]] = {i: {} for i in of.edges}
        self._into, self._out = Counter[int](), Counter[int]()
        for i, arguments in of.edges.items():
            for a, kind in arguments.items():
                self._connect(a, i, UNIT, kind)
        for i, column in of.columns.items():
            self._connect(variable_vertex(column), i, UNIT, UNIT)
        for i in of.rows:
            self.into[of.root_vertex(i)] = {}
            self._connect(i, of.root_vertex(i), UNIT, UNIT)

    def degree(self, i: int) -> int:
        """The products that eliminating a node takes, and by how much edges become more."""
        before, behind = len(self.into[i]), len(self.out[i])
        return self._into[i] * self._out[i] + before * behind - before - behind

    def eliminate(self, i: int) -> int:
        """Connect what is before a node with what is behind it: the operations that takes."""
        before, behind, cost = self.into.pop(i), self.out.pop(i), 0
        for s in behind:
            kind = self.into[s].pop(i)
            self._into[s] -= kind > UNIT
            for p, other in before.items():
                if self._of.wanted(p, s):
                    cost += self._connect(p, s, kind, other)
        for p, kind in before.items():
            if p in self.out:
                del self.out[p][i]
            self._out[p] -= kind > UNIT
        return cost

    def _connect(self, p: int, s: int, a: int, b: int) -> int:
        """Add the product of two kinds to an edge: the operations that takes."""
        old = self.into[s].get(p, UNIT)
        cost = _combined(self.into[s], p, a, b)
        if self.into[s][p] > UNIT >= old:
            self._into[s] += 1
            self._out[p] += 1
        if p in self.out:
            self.out[p][s] = None
        return cost


# --- the choice of a mode -------------------------------------------------------------------------

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
"""``measure(graph, roots)``: the final cost of computing these roots."""


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
        """The roots that are nodes."""
        return [i for i in self.roots if i is not None]

    @property
    def places(self) -> dict[int, list[int]]:
        """Where each variable stands."""
        places: dict[int, list[int]] = {}
        for c, i in enumerate(self.wrt):
            places.setdefault(i, []).append(c)
        return places

    def renamed(self, new: Mapping[int, int]) -> Sought:
        """These derivatives in a graph where nodes have other ids."""
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
    return _by_mode(mode, graph, sought, linearization), mode


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
        entries = _by_mode(mode, trial, inner, linearization)
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
    linearization = replace(linearize(graph, sought), order=[old[i] for i in order])
    return _by_mode(mode, graph, sought, linearization), mode


def _by_mode(mode: Mode, graph: Graph, sought: Sought, linearization: Linearized) -> Entries:
    """The derivatives by one of the modes."""
    if mode == "reverse":
        return _reverse(graph, sought)
    return (_forward if mode == "forward" else _mixed)(graph, sought, linearization)


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


def _forward(graph: Graph, sought: Sought, linearization: Linearized) -> Entries:
    """One sweep with a tangent for each variable."""
    of, one = linearization.of, graph.constant(1.0)
    seeds = {i: {c: (None, one)} for i, c in of.columns.items()}
    sweep = ForwardSweep(graph, linearization.weights, seeds, lambda i, c: c <= of.last[i])
    with differentiating(graph):
        derivatives = {
            i: {c: selected(graph, t) for c, t in sweep.tangents[i].items()} for i in of.rows
        }
    return sought.entries(graph, derivatives)


def _mixed(graph: Graph, sought: Sought, linearization: Linearized) -> Entries:
    """Elimination of the nodes in between, those first that cost least."""
    of, one = linearization.of, graph.constant(1.0)
    into = {
        i: {a: [part] for a, part in derivatives.items()}
        for i, derivatives in linearization.weights.items()
    }
    into |= {of.root_vertex(i): {i: [(None, one)]} for i in of.rows}
    for i, c in of.columns.items():
        into[i][variable_vertex(c)] = [(None, one)]
    with differentiating(graph):
        _eliminate(graph, into, linearization.order, of)
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
