"""Explicit methods: the steps of a tableau."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.ode.coefficients import DOP853, DOP853_DENSE, DOP853_EXTRA, DOP853_THIRD
from symgrad.ode.system import NO_MEMORY, Attempt, Powers, Start, System, combined, hermite, norm
from symgrad.ode.tableau import Tableau


class ExplicitMethod:
    """The steps of a tableau: see `Method`."""

    memory = NO_MEMORY

    def __init__(self, tableau: Tableau) -> None:
        self.tableau = tableau
        lower = tableau.error_order
        self.order = 1 + (tableau.order - 1 if lower is None else lower)
        self.adaptive = tableau.error is not None

    def attempt(self, system: System, start: Start, h: Any) -> Attempt:
        """A step of length h."""
        stages, slopes = self.stages(system, start, h)
        end, evaluations = stages[-1], len(slopes) - 1
        error = self._error(h, slopes, system.scale(start.y, end)) if self.adaptive else None
        return Attempt(
            end, slopes[-1], error, lambda: self.dense(system, start, h, end, slopes), evaluations
        )

    def stages(self, system: System, start: Start, h: Any) -> tuple[list[Any], list[Any]]:
        """The solution at each stage and then at the end, and its slope there.

        Where the last stage is the end, it is there once.
        """
        tableau, stages, slopes = self.tableau, [start.y], [start.slope]
        rows = [*zip(tableau.a[1:], tableau.c[1:], strict=True)]
        if not tableau.ends_as_it_begins:
            rows.append((tableau.b, 1.0))
        for row, c in rows:
            stages.append(start.y + h * combined(row, slopes))
            slopes.append(system.slope(start.t + c * h, stages[-1]))
        return stages, slopes

    def _error(self, h: Any, slopes: Sequence[Any], scale: Any) -> Any:
        assert self.tableau.error is not None, "a method of fixed steps has no estimate"
        return norm(h * combined(self.tableau.error, slopes) / scale)

    def dense(
        self, system: System, start: Start, h: Any, end: Any, slopes: Sequence[Any]
    ) -> Powers:
        """The interpolant."""
        if self.tableau.dense is None:
            return hermite(start, h, end, slopes[-1])
        return [h * combined(column, slopes) for column in np.transpose(self.tableau.dense)]


class DormandPrince853(ExplicitMethod):
    """The steps of `DOP853`, whose estimate is of two, and whose interpolant needs three stages."""

    def __init__(self) -> None:
        super().__init__(DOP853)

    def _error(self, h: Any, slopes: Sequence[Any], scale: Any) -> Any:
        fifth = super()._error(h, slopes, scale)
        third = norm(h * combined(DOP853_THIRD, slopes) / scale)
        both = fifth * fifth + 0.01 * third * third
        return ops.where(both > 0.0, fifth * fifth / ops.sqrt(both), fifth)

    def dense(
        self, system: System, start: Start, h: Any, end: Any, slopes: Sequence[Any]
    ) -> Powers:
        """The interpolant."""
        slopes = list(slopes)
        for row in DOP853_EXTRA:
            c = round(math.fsum(row), 14)
            slopes.append(system.slope(start.t + c * h, start.y + h * combined(row, slopes)))
        change = end - start.y
        bends = [h * slopes[0] - change, 2.0 * change - h * (slopes[0] + slopes[12])]
        terms = [change, *bends, *(h * combined(row, slopes) for row in DOP853_DENSE)]
        return [combined(column, terms) for column in BASIS.T]


def _alternating(count: int) -> np.ndarray:
    """The powers, from x on, in x, x(1-x), x²(1-x), x²(1-x)², ..: a row for each of these."""
    rows, product = np.zeros((count, count)), np.polynomial.Polynomial([1.0])
    for k in range(count):
        product = product * np.polynomial.Polynomial([1.0, -1.0] if k % 2 else [0.0, 1.0])
        rows[k, : len(product.coef) - 1] = product.coef[1:]
    return rows


BASIS: Final = _alternating(3 + len(DOP853_DENSE))
"""The powers of x in the polynomials that the interpolant of `DOP853` is made of."""
