"""Linear systems of a matrix of expressions whose structural zeros cost nothing.

Pivots are taken from the diagonal, in an order that fills in few zeros (Markowitz, 1957), which is
known before there are values, as KPP does for chemical kinetics (Sandu & Sander, 2006). Derivatives
of every order are solutions of systems of the same matrix or of its transpose, by the same factors:
elimination itself is not differentiated, and so far fewer values are alive in a reversed step.

A solution that nobody takes, as that of a step which is rejected, hands back 0 even where it is not
finite: of an array only its numbers can say so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.arrays import DETACHED, GET, PUT, ArrayRule
from symgrad.expr.graph.node import WORD, Graph, Handle, Masked, Op
from symgrad.expr.linear.linalg import solve
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Condition, lift
from symgrad.expr.tracers.memory import Array, array_of

MOST_PRODUCTS: Final = 3000
"""Products of an elimination up to which it is written out; larger ones are loops over memory."""

Place = tuple[int, int]
Entries = dict[Place, Any]


def is_structural_zero(entry: Any) -> bool:
    """Whether an entry of a matrix is the number 0, whatever the values are."""
    return not isinstance(entry, Handle) and entry == 0


def factorized(matrix: Any) -> Callable[[Any], Any]:
    """Solve ``matrix @ x == right`` for any number of right sides (n,), each given to what returns.

    The matrix (n, n) is of expressions, and of numbers 0 where it has no entries. Its pivots are
    those of its diagonal, whatever their values: it is for matrices such as the identity less a
    short step times a Jacobian.
    """
    matrix = np.asarray(matrix, dtype=object)
    n, handles = len(matrix), [e for e in matrix.flat if isinstance(e, Handle)]
    entries = {
        (i, j): matrix[i, j]
        for i, j in np.ndindex(n, n)
        if i == j or not is_structural_zero(matrix[i, j])
    }
    pattern = Pattern(n, tuple(entries))
    if not handles or pattern.products > MOST_PRODUCTS:
        return lambda right: array(solve(matrix, right))
    return partial(_solution, pattern, handles[0].graph, list(entries.values()))


@dataclass(frozen=True)
class Pattern:
    """The places of a matrix of n rows that are not structurally 0, its diagonal among them."""

    n: int
    places: tuple[Place, ...]

    @cached_property
    def elimination(self) -> tuple[tuple[int, ...], int]:
        """The order of diagonal pivots that costs least at each of them, and all its products."""
        rows = {i: {j for k, j in self.places if k == i != j} for i in range(self.n)}
        columns = {j: {i for i, k in self.places if k == j != i} for j in range(self.n)}
        order, products = list[int](), 0
        while rows:
            pivot = min(rows, key=lambda i: (len(rows[i]) * len(columns[i]), i))
            across, down = rows.pop(pivot), columns.pop(pivot)
            order.append(pivot)
            products += len(down) * (1 + len(across))
            for i in down:
                rows[i] = (rows[i] | across) - {pivot, i}
            for j in across:
                columns[j] = (columns[j] | down) - {pivot, j}
        return tuple(order), products

    @property
    def products(self) -> int:
        """The products of an elimination."""
        return self.elimination[1]

    @cached_property
    def filled(self) -> tuple[Place, ...]:
        """The places of the factors."""
        return tuple(self.factors(dict.fromkeys(self.places, math.nan)))

    def factors(self, entries: Entries) -> Entries:
        """L below the pivots and U above, of which the reciprocals are kept; L has ones there."""
        left, order = dict(entries), self.elimination[0]
        for k, pivot in enumerate(order):
            later = order[k + 1 :]
            inverse = left[pivot, pivot] = 1.0 / left[pivot, pivot]
            across = [j for j in later if (pivot, j) in left]
            for i in later:
                if (i, pivot) not in left:
                    continue
                left[i, pivot] = factor = left[i, pivot] * inverse
                for j in across:
                    product = factor * left[pivot, j]
                    left[i, j] = left[i, j] - product if (i, j) in left else -product
        return left

    def substituted(self, transposed: bool, factors: Entries, right: Sequence[Any]) -> list[Any]:
        """x of ``matrix @ x == right`` by the factors of the matrix, or of its transpose."""
        order, x = self.elimination[0], list(right)

        def less(i: int, others: Sequence[int]) -> None:
            for j in others:
                place = (j, i) if transposed else (i, j)
                if place in factors:
                    x[i] = x[i] - factors[place] * x[j]

        for k, i in enumerate(order):
            less(i, order[:k])
            if transposed:
                x[i] = x[i] * factors[i, i]
        for k, i in reversed([*enumerate(order)]):
            less(i, order[k + 1 :])
            if not transposed:
                x[i] = x[i] * factors[i, i]
        return x


def _solution(pattern: Pattern, graph: Graph, entries: list[Any], right: Any) -> Any:
    """x of ``matrix @ x == right``."""
    system = array_of(graph, [_guarded(graph, x) for x in (*right, *entries)])
    still = DETACHED(system)
    values = {place: still[pattern.n + k] for k, place in enumerate(pattern.places)}
    whole = pattern.factors(values)
    factors = DETACHED(array_of(graph, [whole[place] for place in pattern.filled]))
    x = _solved(pattern, False, factors, system)
    return array([x[i] for i in range(pattern.n)])


# --- derivatives ----------------------------------------------------------------------------------


def _guarded(graph: Graph, x: Any) -> Any:
    """A number of a system; what it is made of may have infinite derivatives where g is 0."""
    return _GUARD(lift(graph, x)) if isinstance(x, Handle) else x


def _cotangent(g: Any, *_: Any) -> tuple[Any]:
    """The cotangent of a number that is 0 where none of the solutions is taken that it serves."""
    conditions = _conditions(g.graph, g.id)
    if conditions is None:
        return (Masked(~(g == 0.0), g),)
    taken = (Condition(g.graph, c) for c in sorted(conditions))
    return (Masked(functools.reduce(ops.logical_or, taken), g),)


def _conditions(graph: Graph, i: int) -> set[int] | None:
    """Conditions outside of all of which a sum of solutions' cotangents is 0; None if not known."""
    op, *args = graph.nodes[i]
    if op is ops.add:
        left, right = _conditions(graph, args[0]), _conditions(graph, args[1])
        return None if left is None or right is None else left | right
    if op is GET:
        value = _element(graph, *args)
        return None if value is None else _conditions(graph, value)
    zero = graph.constant(0.0)
    return {args[0]} if op is ops.where and args[2] == zero else None


def _element(graph: Graph, version: int, index: int) -> int | None:
    """The number at a known index of an array that is written at known ones."""
    nodes = graph.nodes
    while nodes[version][0] is PUT and nodes[index][0] is WORD is nodes[nodes[version][2]][0]:
        _, before, at, value = nodes[version]
        if at == index:
            return value
        version = before
    return None


_GUARD: Final = Op(
    name="guarded",
    signature="f->f",
    cost=0,
    reference=lambda x: x,
    transparent=True,
    meaning="x, whose derivative hands on nothing where nothing comes back",
    vjp=_cotangent,
)
"""The row of `_guarded`."""


def _solved(pattern: Pattern, transposed: bool, factors: Array, system: Array) -> Array:
    """x of a system: the right side, and then the entries of the matrix.

    The right side is first so that the arrays of systems that share their matrix share no version:
    their cotangents are summed number by number, as expressions.
    """
    still = DETACHED(system)
    known = {place: factors[k] for k, place in enumerate(pattern.filled)}
    right = [still[i] for i in range(pattern.n)]
    x = array_of(system.graph, pattern.substituted(transposed, known, right))
    return _rule(pattern, transposed)(x, factors, system)


def _with_right(pattern: Pattern, system: Array, right: Sequence[Any]) -> Array:
    """The system of the same matrix and another right side."""
    entries = [system[pattern.n + k] for k in range(len(pattern.places))]
    return array_of(system.graph, [*right, *entries])


def _pulled(
    pattern: Pattern, transposed: bool, g: Array, x: Array, _: Array, factors: Array, system: Array
) -> Any:
    """The cotangents of the arguments of a system (Giles, 2008, 2.3.1)."""
    right = _with_right(pattern, system, [g[i] for i in range(pattern.n)])
    pulled = _solved(pattern, not transposed, factors, right)
    left, across = (x, pulled) if transposed else (pulled, x)
    outer = [-(left[i] * across[j]) for i, j in pattern.places]
    is_taken = functools.reduce(ops.logical_or, [~(g[i] == 0.0) for i in range(pattern.n)])
    parts = [*(pulled[i] for i in range(pattern.n)), *outer]
    return None, None, array_of(g.graph, [ops.where(is_taken, part, 0.0) for part in parts])


def _pushed(
    pattern: Pattern, transposed: bool, x: Array, _: Array, factors: Array, system: Array,
    *changes: Array | None,
) -> Array:  # fmt: skip
    """The tangent of a solution: that of ``a @ dx == db - da @ x``."""
    change = changes[-1]
    assert change is not None, "only the system changes"
    right = [change[i] for i in range(pattern.n)]
    for k, (i, j) in enumerate(pattern.places):
        i, j = (j, i) if transposed else (i, j)
        right[i] = right[i] - change[pattern.n + k] * x[j]
    return _solved(pattern, transposed, factors, _with_right(pattern, system, right))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _SystemRule(ArrayRule):
    """The derivatives of solutions of systems of one pattern, or of their transposes."""

    pattern: Pattern
    transposed: bool

    def __reduce__(self) -> Any:
        return _rule, (self.pattern, self.transposed)


@functools.cache
def _rule(pattern: Pattern, transposed: bool) -> _SystemRule:
    return _SystemRule(
        name="transposed_system" if transposed else "system",
        signature="FFF->F",
        reference=lambda x, *_: np.array(x),
        transparent=True,
        meaning="x of a x = b, the factors of a, and the entries of a and b",
        vjp=partial(_pulled, pattern, transposed),
        push=partial(_pushed, pattern, transposed),
        home=__name__,
        pattern=pattern,
        transposed=transposed,
    )
