"""Explicit methods: the steps of a tableau."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from symgrad.expr import ops
from symgrad.ode.coefficients import DOP853, DOP853_DENSE, DOP853_EXTRA, DOP853_THIRD
from symgrad.ode.system import Attempt, Dense, System, combined, hermite, norm
from symgrad.ode.tableau import Tableau


class ExplicitMethod:
    """The steps of a tableau: see `Method`."""

    def __init__(self, tableau: Tableau) -> None:
        self._tableau = tableau
        lower = tableau.error_order
        self.order = 1 + (tableau.order - 1 if lower is None else lower)
        self.adaptive = tableau.error is not None

    def attempt(self, system: System, t: Any, h: Any, y: Any, slope: Any) -> Attempt:
        """A step from y at t to t + h."""
        tableau = self._tableau
        slopes, stage = [slope], y
        for row, c in zip(tableau.a[1:], tableau.c[1:], strict=True):
            stage = y + h * combined(row, slopes)
            slopes.append(system.slope(t + c * h, stage))
        evaluations = len(slopes) - 1
        if tableau.ends_as_it_begins:
            end, end_slope = stage, slopes[-1]
            slopes.append(end_slope)
        else:
            end = y + h * combined(tableau.b, slopes)
            end_slope = system.slope(t + h, end)
            slopes.append(end_slope)
            evaluations += 1
        error = self._error(h, slopes, system.scale(y, end)) if self.adaptive else None

        def dense() -> Dense:
            return self._dense(system, t, h, y, end, slopes)

        return Attempt(end, end_slope, error, dense, evaluations)

    def _error(self, h: Any, slopes: Sequence[Any], scale: Any) -> Any:
        assert self._tableau.error is not None, "a method of fixed steps has no estimate"
        return norm(h * combined(self._tableau.error, slopes) / scale)

    def _dense(
        self, system: System, t: Any, h: Any, y: Any, end: Any, slopes: Sequence[Any]
    ) -> Dense:
        if self._tableau.dense is None:
            return hermite(y, end, h, slopes[0], slopes[-1])
        return polynomials(np.asarray(self._tableau.dense, float), y, h, slopes)


class DormandPrince853(ExplicitMethod):
    """The steps of `DOP853`, whose estimate is of two, and whose interpolant needs three stages."""

    def __init__(self) -> None:
        super().__init__(DOP853)

    def _error(self, h: Any, slopes: Sequence[Any], scale: Any) -> Any:
        fifth = super()._error(h, slopes, scale)
        third = norm(h * combined(DOP853_THIRD, slopes) / scale)
        both = fifth * fifth + 0.01 * third * third
        return ops.where(both > 0.0, fifth * fifth / ops.sqrt(both), fifth)

    def _dense(
        self, system: System, t: Any, h: Any, y: Any, end: Any, slopes: Sequence[Any]
    ) -> Dense:
        slopes = list(slopes)
        for row in DOP853_EXTRA:
            stage = y + h * combined(row, slopes)
            slopes.append(system.slope(t + round(math.fsum(row), 14) * h, stage))
        change = end - y
        bends = [h * slopes[0] - change, 2.0 * change - h * (slopes[0] + slopes[12])]
        terms = [change, *bends, *(h * combined(row, slopes) for row in DOP853_DENSE)]

        def at(x: Any) -> Any:
            value = terms[-1] * x
            for k in range(len(terms) - 2, -1, -1):
                value = (value + terms[k]) * (1.0 - x if k % 2 else x)
            return y + value

        return at


def polynomials(table: np.ndarray, y: Any, h: Any, slopes: Sequence[Any]) -> Dense:
    """The interpolant whose weights are polynomials without a constant term, a row for each."""

    def at(x: Any) -> Any:
        pairs = [(_horner(row, x), s) for row, s in zip(table, slopes, strict=True) if row.any()]
        terms = [weight * s for weight, s in pairs]
        return y + h * sum(terms[1:], terms[0])

    return at


def _horner(row: np.ndarray, x: Any) -> Any:
    """``x * (row[0] + x * (row[1] + ..))``."""
    last, *others = (float(c) for c in np.trim_zeros(row, "b")[::-1])
    value = x * last
    for coefficient in others:
        value = x * (coefficient + value) if coefficient else x * value
    return value
