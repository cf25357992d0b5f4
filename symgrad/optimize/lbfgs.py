"""The quasi-Newton method of limited memory, traced: one evaluation a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import array
from symgrad.optimize.arguments import whole
from symgrad.optimize.line_search import DESCENT_PARTS, Ahead, Descent, Judged, stacked
from symgrad.optimize.method import Evaluation, Memory, choose, largest

LEAST_SQUARED_COSINE: Final = 0.9
"""The squared cosine from which two steps tell of the same direction."""

LEAST_STEP_ROUNDINGS: Final = 8.0
"""How many times longer than the rounding of the point a step must be to tell of curvature."""

CURVATURE_DECAY: Final = 0.9
"""How much of the flattest curvature that was met counts after another step."""

LOSS_ROUNDINGS_ALL: Final = 64.0
"""How many rounding errors of the loss may hide where its curvature is known in all directions."""

LOSS_ROUNDINGS_SOME: Final = 1e-4
"""How many may where it is known in some."""


@dataclass(frozen=True)
class LBFGS(Descent):
    """L-BFGS: Newton's method with a Hessian known from the last ``history`` steps.

    Liu and Nocedal, 1989, "On the limited memory BFGS method for large scale optimization". Bounds
    are kept by projection: see `Descent`.

    A success says that the point is stationary as far as gradients tell: the loss can fall by no
    more than rounding, by the flattest curvature that was met on the way. No curvature is known
    where no step has led, so a saddle that steps go straight to is not told from a minimum.

    Example:
        >>> import symgrad as sg
        >>> rosenbrock = lambda v: (1 - v[0])**2 + 100 * (v[1] - v[0]**2)**2
        >>> starts = [[-1.2, 1.0], [2.0, -1.0]]
        >>> sg.minimize_from(rosenbrock, 2, starts, sg.LBFGS(5), 200).success
        array([ True,  True])
    """

    history: int = 6
    expands: ClassVar[bool] = True
    patience: ClassVar[float] = 8.0
    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if whole(self.history, "LBFGS(history)", -(2**31), 2**31) < 1:
            raise InputError(f"LBFGS(history={self.history}): history is at least 1")

    def start(self, n: int) -> Memory:
        """The line search's memory, and no steps; the newest will be the first.

        Steps, and with them changes of the gradient, are divided by the largest magnitude in each.
        Then come the scale of the inverse Hessian, the inverse of the flattest curvature that was
        met, how often a step has turned, the square of the newest one's length, how many are worth
        it, the largest magnitudes of the variables, and the inverse of the flattest curvature in
        these as units.
        """
        shape = self.history, n
        steps = np.zeros(shape), np.zeros(shape), np.zeros(self.history)
        return *self.begin(n), *steps, 0.0, 0.0, 0.0, 0.0, 0.0, np.zeros(n), 0.0

    def reach(self, at: Evaluation, memory: Memory) -> Any:
        """The scale of the inverse Hessian that is known so far."""
        scale = memory[DESCENT_PARTS + 3]
        return functions.where(scale > 0.0, scale, 1.0)

    def direct(
        self, at: Evaluation, gradient: Any, active: Any, judged: Judged, memory: Memory
    ) -> Any:
        """The direction of the two loops over the steps remembered."""
        point, old, where = memory[0], memory[1], functions.where
        steps, changes, inverses, scale, flattest, iterations, before, needed, *sizes = memory[
            DESCENT_PARTS:
        ]
        s, moved = _unit(at.x - point)
        y = (at.gradient - old) * (1.0 / where(moved > 0.0, moved, 1.0))
        bent, most = _unit(y)
        cosine, size, square = s @ bent, bent @ bent, s @ s
        enough = cosine > at.eps * np.sqrt(size * square)
        long = moved > LEAST_STEP_ROUNDINGS * at.eps * largest(at.x)
        keep = judged.accepted & enough & long & (at.step > 0.0)
        inverse, along = 1.0 / where(keep, cosine * most, 1.0), s @ steps[0]
        turned = keep & (along * along <= LEAST_SQUARED_COSINE * square * before)
        iterations, before = (
            where(turned, iterations + 1.0, iterations),
            where(keep, square, before),
        )
        flattest = where(
            keep, functions.maximum(square * inverse, CURVATURE_DECAY * flattest), flattest
        )
        steps, changes = _pushed(keep, s, steps), _pushed(keep, y, changes)
        inverses = choose(keep, array([inverse, *inverses[:-1]]), inverses)
        scale = where(keep, cosine / (where(keep, size, 1.0) * where(keep, most, 1.0)), scale)
        known = where(scale > 0.0, scale, 1.0)
        direction = _two_loops(gradient, steps, changes, inverses, known)
        first = where(scale > 0.0, 1.0, _first_length(at, gradient))
        free = sum(1.0 if h is None else where(h, 0.0, 1.0) for h in active)
        needed = where(judged.accepted, functions.minimum(free, float(self.history)), needed)
        sizes = _in_own_units(at, s, inverse, keep, judged.accepted, *sizes)
        own = steps, changes, inverses, scale, flattest, iterations, before, needed, *sizes
        return direction, first, own

    def solved(self, ahead: Ahead, own: Memory, tolerance: float) -> Any:
        """Where the direction promises no more, nor does the flattest curvature by much.

        A loss that has all but vanished, with what is promised, is as good.
        """
        size, most = abs(ahead.loss), self._most(ahead, own)
        small = (ahead.promised <= tolerance * size) & (most <= tolerance ** (2 / 3) * size)
        level = ahead.is_level & ahead.is_near(most)
        return (_full(own) & small) | (ahead.is_gone & (own[3] > 0.0)) | (level & _seen(own))

    def lost(self, ahead: Ahead, own: Memory) -> Any:
        """Where the loss can fall by rounding alone, by the flattest curvature that was met.

        Where it is known in all directions, by the promise, if the loss is seen to be that noisy
        and the gradient is small for such noise; or where the loss has vanished, and one rounding
        of the variables changes it by nothing either.
        """
        full, size, where = _full(own), abs(ahead.loss), functions.where
        roundings = where(full, LOSS_ROUNDINGS_ALL, LOSS_ROUNDINGS_SOME)
        most = self._most(ahead, own)
        hidden = most <= roundings * ahead.eps * size
        slope = largest([g * w for g, w in zip(ahead.left, own[8], strict=True)])
        root = np.sqrt(ahead.noise)
        small = slope * own[9] * slope <= root * np.sqrt(root * np.sqrt(size))
        drowned = full & (ahead.promised <= ahead.noise) & small
        vanished = functions.maximum(size, ahead.eps * slope) <= ahead.floor
        slight = ahead.is_slight & ahead.is_near(most)
        return _seen(own) & (hidden | drowned | vanished | slight)

    def _most(self, ahead: Ahead, own: Memory) -> Any:
        """The fall of the loss that is left if it stays as flat as it ever was on the way."""
        unit, length = _unit(ahead.left)
        return (unit @ unit) * (length * own[4]) * length


def _unit(v: Any) -> tuple[Any, Any]:
    """A vector over its largest magnitude, and that: products of such vectors do not overflow."""
    length = largest(v)
    return v * (1.0 / functions.where(length > 0.0, length, 1.0)), length


def _in_own_units(
    at: Evaluation, s: Any, inverse: Any, keep: Any, accepted: Any, sizes: Any, flattest: Any
) -> tuple[Any, Any]:
    """The largest magnitudes of the variables, and the inverse of the flattest curvature in them.

    Unlike that of the variables themselves it does not depend on their units.
    """
    pairs = [*zip(at.x, sizes, strict=True)]
    sizes = array([functions.where(accepted, functions.maximum(abs(v), w), w) for v, w in pairs])
    units = [functions.where(w > 0.0, w, 1.0) for w in sizes]
    far = largest([v / w for v, w in zip(s, units, strict=True)])
    now = functions.maximum(far * inverse * far, CURVATURE_DECAY * flattest)
    return sizes, functions.where(keep, now, flattest)


def _first_length(at: Evaluation, gradient: Any) -> Any:
    """The length of the first step, at most 1 in all variables together.

    That is along the gradient itself, or further if the loss would not be seen to fall by it.
    """
    unit, steepest = _unit(gradient)
    size, some = np.sum(abs(unit)), functions.where(steepest > 0.0, steepest, 1.0)
    seen = at.eps**0.5 * (abs(at.loss) / some) / (functions.maximum(unit @ unit, 1.0) * some)
    return functions.minimum(
        1.0 / (functions.maximum(size, 1.0) * some), functions.maximum(seen, 1.0)
    )


def _full(own: Memory) -> Any:
    """Whether steps have turned as often as there are free variables, or steps remembered."""
    return own[5] >= own[7]


def _seen(own: Memory) -> Any:
    """Whether two steps are remembered, or all that can be."""
    return own[2][min(1, *(k - 1 for k in own[0].shape))] > 0.0


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
