"""The quasi-Newton method of limited memory, traced: one evaluation a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import functions
from symgrad.expr.array import array
from symgrad.optimize.arguments import whole
from symgrad.optimize.line_search import Descent, Judged, stacked
from symgrad.optimize.method import Evaluation, Memory, choose


@dataclass(frozen=True)
class LBFGS(Descent):
    """L-BFGS: Newton's method with a Hessian known from the last ``history`` steps.

    Liu and Nocedal, 1989, "On the limited memory BFGS method for large scale optimization". Bounds
    are kept by projection: see `Descent`.

    Example:
        >>> import symgrad as sg
        >>> rosenbrock = lambda v: (1 - v[0])**2 + 100 * (v[1] - v[0]**2)**2
        >>> starts = [[-1.2, 1.0], [2.0, -1.0]]
        >>> sg.minimize_from(rosenbrock, 2, starts, sg.LBFGS(5), 200).success
        array([ True,  True])
    """

    history: int = 6
    expands = True
    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if whole(self.history, "LBFGS(history)", -(2**31), 2**31) < 1:
            raise InputError(f"LBFGS(history={self.history}): at least one step is remembered")

    def start(self, n: int) -> Memory:
        """The line search's memory, and no steps; the newest will be the first."""
        shape = self.history, n
        return *self.begin(n), np.zeros(shape), np.zeros(shape), np.zeros(self.history), 0.0

    def reach(self, at: Evaluation, memory: Memory) -> Any:
        """The scale of the inverse Hessian that is known so far."""
        scale = memory[-1]
        return functions.where(scale > 0.0, scale, 1.0)

    def direct(
        self, at: Evaluation, gradient: Any, held: Any, judged: Judged, memory: Memory
    ) -> Any:
        """The direction of the two loops over the steps remembered."""
        point, old, *_ = memory[:7]
        steps, changes, inverses, scale = memory[7:]
        s, y = at.x - point, at.gradient - old
        curvature, size = s @ y, y @ y
        first = at.step == 0.0
        enough = curvature > at.eps * np.sqrt(size * (s @ s))
        keep = judged.accepted & enough & ~first
        safe = functions.where(keep, curvature, 1.0)
        steps = _pushed(keep, s, steps)
        changes = _pushed(keep, y, changes)
        inverses = choose(keep, array([1.0 / safe, *inverses[:-1]]), inverses)
        scale = functions.where(keep, curvature / functions.where(keep, size, 1.0), scale)
        known = functions.where(scale > 0.0, scale, 1.0)
        direction = _two_loops(gradient, steps, changes, inverses, known)
        length = 1.0 / functions.maximum(np.sum(abs(gradient)), 1.0)
        first_length = functions.where(scale > 0.0, 1.0, length)
        return direction, first_length, (steps, changes, inverses, scale)

    def knows(self, own: Memory) -> Any:
        """Whether any step is remembered."""
        return own[-1] > 0.0


def _pushed(keep: Any, new: Any, rows: Any) -> Any:
    """The rows with a new one before them, the last one dropped, where it is to be kept."""
    return choose(keep, stacked([new, *rows[:-1]]), rows)


def _two_loops(gradient: Any, steps: Any, changes: Any, inverses: Any, scale: Any) -> Any:
    """Minus the inverse Hessian times the gradient; an inverse of 0 marks a step not known yet."""
    q, weights = gradient, list[Any]()
    for s, y, inverse in zip(steps, changes, inverses, strict=True):
        weights.append(inverse * (s @ q))
        q = q - weights[-1] * y
    r = scale * q
    for k in reversed(range(len(weights))):
        r = r + steps[k] * (weights[k] - inverses[k] * (changes[k] @ r))
    return -r
