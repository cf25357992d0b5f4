"""A method that is explicit until it meets stiffness, and explicit again when it is over."""

from __future__ import annotations

from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.linear.sparse import is_structural_zero
from symgrad.expr.loops.control import cond
from symgrad.ode.coefficients import TSIT5
from symgrad.ode.explicit import ExplicitMethod
from symgrad.ode.rosenbrock import RODAS5P, RosenbrockMethod
from symgrad.ode.system import Attempt, Memory, Start, System, norm

BORDER: Final = 3.0
"""The step times the size of the Jacobian at which `TSIT5` becomes unstable, or a little less."""

STIFF_STEPS: Final = 8.0
"""How many more steps have to be at the border than not for the method to become implicit."""

MILD_STEPS: Final = 3.0
"""How many have to be well within it, one after the other, for it to become explicit again."""


BEGIN: Final[Memory] = {"implicit": 0.0, "count": 0.0}
"""The first of the carried numbers: whether the method is implicit, and a count of steps."""


class Switching:
    """`TSIT5` where it is stable at the steps that accuracy allows, else `RODAS5P`: see `Method`.

    An explicit step estimates the Jacobian's largest eigenvalue by its last two stages, which stand
    at the same time (Hairer & Wanner, 1996, Solving Ordinary Differential Equations II, IV.2).
    """

    adaptive = True
    order = 5
    memory = BEGIN

    def __init__(self) -> None:
        self._explicit, self._implicit = ExplicitMethod(TSIT5), RosenbrockMethod(RODAS5P)

    def attempt(self, system: System, start: Start, h: Any) -> Attempt:
        """A step of length h, by the method of the moment."""
        implicit, count = start.memory["implicit"] > 0.5, start.memory["count"]

        def parts(attempt: Attempt, now: float, switches: Any, counted: Any) -> tuple[Any, ...]:
            memory = ops.where(switches, 1.0 - now, now), ops.where(switches, 0.0, counted)
            return (attempt.y, attempt.slope, ops.stop_gradient(attempt.error),
                    attempt.dense(), float(attempt.evaluations), memory)  # fmt: skip

        def by_explicit() -> tuple[Any, ...]:
            stages, slopes = self._explicit.stages(system, start, h)
            distance = norm(stages[-1] - stages[-2])
            bend = norm(slopes[-1] - slopes[-2])
            at_border = ops.stop_gradient(abs(h) * bend - BORDER * distance) > 0.0
            more = ops.maximum(0.0, count + ops.where(at_border, 1.0, -1.0))
            attempt = self._explicit.attempt(system, start, h)
            return parts(attempt, 0.0, more > STIFF_STEPS, more)

        def by_implicit() -> tuple[Any, ...]:
            by_time, jacobian = system.derivatives(start.t, start.y)
            mild = ops.stop_gradient(abs(h) * _size(jacobian)) < BORDER
            more = ops.where(mild, count + 1.0, 0.0)
            attempt = self._implicit.with_jacobian(system, start, h, by_time, jacobian)
            return parts(attempt, 1.0, more > MILD_STEPS, more)

        y, slope, error, powers, evaluations, memory = cond(implicit, by_implicit, by_explicit)
        carried = {"implicit": memory[0], "count": memory[1]}
        return Attempt(y, slope, error, lambda: list(powers), evaluations, carried)


def _size(jacobian: Any) -> Any:
    """The largest sum of magnitudes in a row of a matrix."""
    rows = [[abs(e) for e in row if not is_structural_zero(e)] for row in jacobian]
    sums = [sum(row[1:], row[0]) for row in rows if row]
    largest: Any = 0.0
    for total in sums:
        largest = ops.maximum(largest, total)
    return largest
