"""Explicit methods: the steps of a tableau, and symplectic ones of a separable Hamiltonian."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.place import describe
from symgrad.expr.linear.sparse import is_structural_zero
from symgrad.ode.system import NO_MEMORY, Attempt, Powers, Start, System, combined, hermite, norm
from symgrad.ode.tableau import DOP853, DOP853_DENSE, DOP853_EXTRA, DOP853_THIRD, Tableau

_CUBE_ROOT: Final = 2.0 ** (1 / 3)

LEAPFROG: Final = (1.0,)
"""The method of Stoermer and Verlet, of order 2."""

YOSHIDA: Final = (
    1.0 / (2.0 - _CUBE_ROOT), -_CUBE_ROOT / (2.0 - _CUBE_ROOT), 1.0 / (2.0 - _CUBE_ROOT),
)  # fmt: skip
"""The leapfrogs of which a step of order 4 is made (Yoshida, 1990, Construction of higher order
symplectic integrators)."""


class Symplectic:
    """Leapfrogs of these shares of a step: see `Method`.

    Of y the first half are positions, whose slopes depend on momenta alone, and the second half
    momenta, whose slopes depend on positions alone, and on time.
    """

    adaptive = False
    order = 1
    memory = NO_MEMORY

    def __init__(self, shares: tuple[float, ...]) -> None:
        self._shares = shares

    def attempt(self, system: System, start: Start, h: Any) -> Attempt:
        """A step of length h."""
        if system.size % 2:
            raise InputError(
                located(
                    "a symplectic method takes as many positions as momenta, one after the other: "
                    f"y0 has {system.size} numbers"
                )
            )
        n, t, y, slope = system.size // 2, start.t, start.y, start.slope
        _, jacobian = system.derivatives(t, y)
        if not all(map(is_structural_zero, [*jacobian[:n, :n].flat, *jacobian[n:, n:].flat])):
            raise InputError(
                located(
                    f"{describe(system.fun)} is not separable, as symplectic methods need it: the "
                    "derivatives of positions, the first half of y, are of momenta alone, those of "
                    'momenta of positions and time; "Tsit5" and "DOP853" take any equation'
                )
            )
        for share in self._shares:
            part = share * h
            q, p = y[:n], y[n:] + 0.5 * part * slope[n:]
            q = q + part * system.slope(t, np.concatenate([q, p]))[:n]
            t, y = t + part, np.concatenate([q, p])
            slope = system.slope(t, y)
            y = np.concatenate([q, p + 0.5 * part * slope[n:]])
        end_slope = system.slope(t, y)
        evaluations = 2 * len(self._shares) + 1
        return Attempt(y, end_slope, None, lambda: hermite(start, h, y, end_slope), evaluations)


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
