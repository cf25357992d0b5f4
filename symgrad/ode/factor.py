"""Linear systems of a matrix of expressions whose structural zeros cost nothing.

Pivots are taken from the diagonal, in an order that fills in few zeros (Markowitz, 1957), which is
known before there are values, as KPP does for chemical kinetics (Sandu & Sander, 2006). The matrix
is the identity less a step times a Jacobian: where a pivot comes close to 0 the step is far too
long, its error is found to be too large, and it is repeated with a shorter one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.expr.tracers.array import array
from symgrad.ode.system import is_structural_zero

MOST_PRODUCTS: Final = 3000
"""Products of an elimination up to which it is written out; larger ones are loops over memory."""

Entries = dict[tuple[int, int], Any]


@dataclass(frozen=True)
class Factors:
    """The factors L and U of a matrix of n rows, without their zeros, in the order of pivots.

    L has ones on its diagonal; of the pivots, the reciprocals are kept.
    """

    order: tuple[int, ...]
    lower: Entries
    upper: Entries
    inverses: dict[int, Any]

    def solve(self, right: Any) -> Any:
        """x of ``matrix @ x == right``."""
        x, below = dict(enumerate(right)), list[int]()
        for i in self.order:
            for j in below:
                if (i, j) in self.lower:
                    x[i] = x[i] - self.lower[i, j] * x[j]
            below.append(i)
        for k in reversed(range(len(self.order))):
            i = self.order[k]
            for j in self.order[k + 1 :]:
                if (i, j) in self.upper:
                    x[i] = x[i] - self.upper[i, j] * x[j]
            x[i] = x[i] * self.inverses[i]
        return array([x[i] for i in range(len(x))])


@dataclass(frozen=True)
class Dense:
    """A matrix that is too full to be written out: its elimination, of which equal ones are one."""

    matrix: Any

    def solve(self, right: Any) -> Any:
        """x of ``matrix @ x == right``."""
        return array(np.linalg.solve(self.matrix, right))


def factorized(matrix: Any) -> Factors | Dense:
    """The factors of a matrix (n, n) of expressions, and of numbers 0 where it has no entries."""
    n = len(matrix)
    entries: Entries = {
        (i, j): matrix[i, j]
        for i, j in np.ndindex(n, n)
        if i == j or not is_structural_zero(matrix[i, j])
    }
    order, products = elimination_order(set(entries), n)
    return _eliminated(entries, order) if products <= MOST_PRODUCTS else Dense(matrix)


def elimination_order(pattern: set[tuple[int, int]], n: int) -> tuple[tuple[int, ...], int]:
    """The order of diagonal pivots that costs least at each of them, and the products of all."""
    rows = {i: {j for j in range(n) if (i, j) in pattern and i != j} for i in range(n)}
    columns = {j: {i for i in range(n) if (i, j) in pattern and i != j} for j in range(n)}
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


def _eliminated(entries: Entries, order: tuple[int, ...]) -> Factors:
    left, lower, upper, inverses = dict(entries), Entries(), Entries(), dict[int, Any]()
    for k, pivot in enumerate(order):
        later = order[k + 1 :]
        inverses[pivot] = 1.0 / left[pivot, pivot]
        across = [j for j in later if (pivot, j) in left]
        upper |= {(pivot, j): left[pivot, j] for j in across}
        for i in later:
            if (i, pivot) not in left:
                continue
            lower[i, pivot] = factor = left[i, pivot] * inverses[pivot]
            for j in across:
                product = factor * left[pivot, j]
                left[i, j] = left[i, j] - product if (i, j) in left else -product
    return Factors(order, lower, upper, inverses)
