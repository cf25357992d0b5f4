"""Diagonally implicit methods: Newton's method at each stage, with the exact Jacobian."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.loops.control import fori_loop, while_loop
from symgrad.expr.tracers.array import array
from symgrad.ode.rosenbrock import solver
from symgrad.ode.system import NO_MEMORY, Attempt, Start, System, combined, hermite, norm

GAMMA: Final = 0.26

KVAERNO5: Final = np.array([
    [0, 0, 0, 0, 0, 0, 0],
    [0.26, 0.26, 0, 0, 0, 0, 0],
    [0.13, 0.84033320996790809, 0.26, 0, 0, 0, 0],
    [0.22371961478320505, 0.47675532319799699, -0.06470895363112615, 0.26, 0, 0, 0],
    [0.16648564323248321, 0.10450018841591720, 0.03631482272098715, -0.13090704451073998, 0.26,
     0, 0],
    [0.13855640231268224, 0, -0.04245337201752043, 0.02446657898003141, 0.61943039072480676, 0.26,
     0],
    [0.13659751177640291, 0, -0.05496908796538376, -0.04118626728321046, 0.62993304899016403,
     0.06962479448202728, 0.26],
])  # fmt: skip
"""The stages of Kvaerno5, of orders 5 and 4, whose last two are its solutions (Kvaernoe, 2004,
Singly diagonally implicit Runge-Kutta methods with an explicit first stage)."""

MOST_ITERATIONS: Final = 8
"""Iterations of Newton's method; where they are too few, the step is shortened."""

CONVERGED: Final = 1e-3
"""How much the last iteration may change, beside the error that is allowed."""


class Kvaerno5:
    """The steps of `KVAERNO5`: see `Method`. They are stiffly accurate, and L-stable.

    Derivatives are those of the equations of the stages, and not of the iterations.
    """

    adaptive = True
    order = 5
    memory = NO_MEMORY

    def attempt(self, system: System, start: Start, h: Any) -> Attempt:
        """A step of length h."""
        t, y = start.t, start.y
        count, n = KVAERNO5.shape[0], system.size
        table, shares = array(np.tril(KVAERNO5, -1)), array(KVAERNO5.sum(axis=1))
        scale = system.scale(y, y)
        slopes = array(np.zeros((count, n))).at[0].set(start.slope)

        def stage(i: Any, carry: Any) -> Any:
            slopes, evaluations, failed = carry
            base = y + h * sum(table[i, j] * slopes[j] for j in range(count - 1))
            guess = slopes[i - 1]
            k, spent, left = _solved(system, t + shares[i] * h, h, base, guess, scale)
            failed = ops.maximum(failed, ops.where(left <= CONVERGED, 0.0, 1.0))
            return slopes.at[i].set(k), evaluations + spent, failed

        slopes, evaluations, failed = fori_loop(1, count, stage, (slopes, 0.0, 0.0))
        ends = [slopes[j] for j in range(count)]
        end = y + h * combined(KVAERNO5[-1], ends)
        difference = h * combined(KVAERNO5[-1] - KVAERNO5[-2], ends)
        error = norm(difference / system.scale(y, end))
        error = ops.where(failed > 0.0, FAILED, error)

        last = array(ends[-1])
        return Attempt(end, last, error, lambda: hermite(start, h, end, last), evaluations)


FAILED: Final = 1e6
"""The error of a step whose stages have not been found."""


def _solved(
    system: System, t: Any, h: Any, base: Any, guess: Any, scale: Any
) -> tuple[Any, Any, Any]:
    """k of ``k = f(t, base + gamma h k)``, the iterations, and the last change beside ``scale``."""
    step = GAMMA * h

    def newton(k: Any) -> Any:
        at = base + step * k
        _, jacobian = system.derivatives(t, at)
        return array(solver(jacobian, step)(k - system.slope(t, at)))

    def iterate(carry: Any) -> Any:
        k, _, count = carry
        move = newton(k)
        return k - move, norm(step * move / scale), count + 1.0

    def goes_on(carry: Any) -> Any:
        return ops.logical_and(carry[1] > CONVERGED, carry[2] < MOST_ITERATIONS)

    k, left, count = while_loop(goes_on, iterate, (guess, np.inf, 0.0), MOST_ITERATIONS + 1)
    k, left = np.array([ops.stop_gradient(v) for v in k]), ops.stop_gradient(left)
    for _ in range(2):  # through which derivatives of two orders go
        k = array(k) - newton(array(k))
    return k, count + 2.0, left
