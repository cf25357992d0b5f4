"""The length of steps: the first one, and a PI controller for the others."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.ode.system import System, norm

SAFETY: Final = 0.9
LEAST_FACTOR: Final = 0.2
LARGEST_FACTOR: Final = 10.0
"""How much shorter or longer the next step may be."""

PROPORTIONAL: Final = 0.2
"""The share of the last error but one in the choice, times the order (Hairer, Nørsett & Wanner,
1993, Solving Ordinary Differential Equations I, IV.2 of its second volume)."""

LEAST_LOGARITHM: Final = -13.0
"""The binary logarithm of the error that counts as the last but one where it was smaller."""


def first_step(
    system: System, t: Any, y: Any, slope: Any, span: Any, direction: Any, order: int
) -> Any:
    """A first step that explicit Euler would take with a small error (Hairer & others, II.4)."""
    scale = system.scale(y, y)
    size, speed = norm(y / scale), norm(slope / scale)
    small = ops.logical_or(size < 1e-5, speed < 1e-5)
    trial = ops.where(small, 1e-6, 0.01 * size / ops.where(small, 1.0, speed))
    trial = ops.minimum(ops.where(trial > 0.0, trial, 1e-6), span)  # of a slope that is not finite
    moved = system.slope(t + direction * trial, y + direction * trial * slope)
    bend = norm((moved - slope) / scale) / ops.where(trial > 0.0, trial, 1.0)
    most = ops.maximum(speed, bend)
    straight = most <= 1e-15
    power = ops.exp2(ops.log2(0.01 / ops.where(straight, 1.0, most)) / order)
    chosen = ops.where(straight, ops.maximum(1e-6, 1e-3 * trial), power)
    chosen = ops.where(chosen > 0.0, chosen, trial)
    return ops.minimum(ops.minimum(100.0 * trial, chosen), span)


def next_factor(error: Any, last: Any, order: int, most: Any) -> tuple[Any, Any]:
    """How much longer the next step is, and the logarithm of this error for the one after.

    ``last`` is that logarithm of the step before, and ``most`` the largest factor. A step whose
    error is too large is repeated by the error alone.
    """
    known = ops.where(error < np.inf, error, 1e30)
    logarithm = ops.log2(ops.maximum(known, 1e-10))
    gentle = 0.75 * PROPORTIONAL * last - logarithm * (1.0 - 0.75 * 0.75 * PROPORTIONAL)
    taken = ops.where(error <= 1.0, gentle, -logarithm)
    factor = SAFETY * ops.exp2(taken / order)
    bounded = ops.minimum(most, ops.maximum(LEAST_FACTOR, factor))
    return bounded, ops.maximum(logarithm, LEAST_LOGARITHM)


def rounding(one: Any) -> Any:
    """The distance of 1 from the next number, of the precision that ``one`` is computed in."""
    return ops.where(ops.opaque(ops.opaque(one) + 2.0**-30) == 1.0, 2.0**-23, 2.0**-52)
