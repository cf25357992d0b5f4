"""Symplectic methods of fixed steps, for the equations of a separable Hamiltonian."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.graph.misuse import located
from symgrad.ode.system import NO_MEMORY, Attempt, Start, System, hermite

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
