"""What a Jacobian costs by forward, reverse and mixed accumulation, counted on its graph.

All modes eliminate the nodes between variables and roots, one after another: the partial
derivatives into a node are multiplied by those out of it. Forward mode takes nodes in ascending
order, reverse mode in descending order, and mixed mode those first that cost least (Markowitz's
rule: Griewank and Walther, "Evaluating Derivatives", 2008, chapter 10). So mixed mode makes the
derivatives of each step of a simulation first, and then their products.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from symgrad.expr.derivatives.cotangents import Contribution, is_structure
from symgrad.expr.derivatives.differentiate import Weights
from symgrad.expr.graph.node import CONST, Graph, bits_float

UNIT: Final = 0
"""The kind of a factor that is 1 or -1."""

CONSTANT: Final = 1
"""That of any other constant."""

GENERAL: Final = 2
"""That of what has to be computed, or holds under a condition."""

BUDGET: Final = 4
"""How many operations an edge modes are counted to at first, and by how many times more later."""

Kinds = dict[int, dict[int, int]]
"""For nodes in the order of a sweep, the kind of their partial derivative by each neighbour."""


@dataclass(frozen=True)
class Linear:
    """The linearised graph between variables and roots, of which the kinds of edges are known.

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
    mask, i = part
    op, *rest = graph.nodes[i]
    if mask is not None:
        return GENERAL
    if op is CONST:
        return UNIT if abs(bits_float(rest[0])) == 1.0 else CONSTANT
    folds = op.arity and all(graph.nodes[a][0] is CONST for a in rest)
    return CONSTANT if folds else GENERAL


# --- forward and reverse mode ---------------------------------------------------------------------


def sweeps(of: Linear) -> dict[str, int]:
    """The operations of forward and of reverse mode, as far as that is worth knowing.

    Counting takes as long as there are operations, so a mode is counted no further than to twice
    what the other one takes.
    """
    both = {"forward": _forward(of), "reverse": _reverse(of)}
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


def _forward(of: Linear) -> Sweep:
    return of.edges, of.columns, of.last


def _reverse(of: Linear) -> Sweep:
    """The same with edges reversed, and rows counted from the last one."""
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


# --- mixed mode -----------------------------------------------------------------------------------


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
    """What is left of a linearised graph while its nodes are eliminated.

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
