"""A line search as a state machine: each step evaluates one point of the line and judges it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import array
from symgrad.optimize.method import (
    Evaluation,
    Memory,
    Method,
    Move,
    Tolerances,
    choose,
    largest,
    where_free,
)

CHANGE_ROUNDINGS = 8.0
"""How many rounding errors of a loss a change may have that cannot be told from them."""

FLOOR_FRACTION = 16.0
"""How many times less than `Ahead.floor`, or than the rounding of the variables, cannot either."""

STEEPEST = 1e-4
"""The gradient that no descent goes on for, in units of the loss times the root of its rounding."""

SLIGHT = 3e-8
"""The gradient, in units of the loss, that is small where no step is seen to lower the loss."""

NEAR_END = 0.01
"""The part of the loss that it can fall by at most where a small gradient tells of its end."""

MOST_ROUNDED_STEPS = 16.0
"""Steps in a row that change the loss by rounding alone, after which there is nothing to learn."""

DESCENT_PARTS = 10
"""The parts of the memory that all descents have."""

NOISE_DECAY = 0.5
"""How much of the noise of the loss that was seen counts after another trial."""

NEAR_BOUND = 1e-3
"""How near to a bound, in its unit, a variable may be to be taken there at once."""

ARMIJO = 1e-4
"""Armijo's constant: the part of the decrease that the slope promises which a step must bring."""

WOLFE = 0.9
"""Wolfe's constant: a step that leaves more than this part of the slope is too short."""


@dataclass(frozen=True)
class Judged:
    """The verdict on a trial: whether it is taken, and where to try next if it is not.

    ``level`` says where it has changed the loss by no more than rounding, and ``noise`` by how much
    it changed that the slopes at both ends do not account for, where that is more than they do.
    """

    accepted: Any
    length: Any
    low: Any
    high: Any
    stuck: Any
    level: Any
    noise: Any


@dataclass(frozen=True)
class Ahead:
    """The way down from the best point, as far as it is known.

    ``promised`` is the slope of the direction, twice what a quadratic model says that the loss can
    fall; ``left`` is the gradient, ``steepest`` its largest component. The
    ``unit`` of the loss is what `Descent.unit` says, and its ``noise`` what the last trials have
    shown of it.
    """

    promised: Any
    left: Any
    steepest: Any
    loss: Any
    unit: Any
    noise: Any
    eps: float

    @property
    def rounding(self) -> Any:
        """The change that cannot be told from the loss at the point."""
        return CHANGE_ROUNDINGS * self.eps * abs(self.loss)

    @property
    def is_level(self) -> Any:
        """Whether the gradient is so small that no descent goes on for it."""
        return self.steepest <= STEEPEST * self.eps**0.5 * self.unit

    @property
    def is_slight(self) -> Any:
        """Whether the gradient is small for where no step lowers the loss."""
        return self.steepest <= SLIGHT * self.unit

    @property
    def is_gone(self) -> Any:
        """Whether the loss has all but vanished, with what is promised."""
        return functions.maximum(abs(self.loss), self.promised) <= self.floor

    def is_near(self, most: Any) -> Any:
        """Whether this fall, the most that is left, is little of the loss, or this has vanished.

        A small gradient alone does not tell: that of a loss which tends to 0 is as small as it.
        """
        return (most <= NEAR_END * abs(self.loss)) | self.is_gone

    @property
    def floor(self) -> Any:
        """Where a loss that falls to 0 may stop: with less of it, its terms are rounding."""
        return self.eps**1.5 * self.unit


class Descent(Method):
    """A method that goes along a direction until the loss has decreased enough.

    The memory begins with the best point, its gradient, the direction from it, its loss, the
    length of the step that is tried, the bracket of lengths around the one wanted (``high`` is 0
    while there is no upper end), the unit of the loss, how many steps in a row have changed it by
    rounding alone, and its noise. What a subclass keeps of its own comes after it.

    A trial is taken if it meets Armijo's condition, or, where the loss has no digits left to tell,
    the slope's form of it (Hager and Zhang, 2005, "A new conjugate gradient method with guaranteed
    descent", 1.2). With ``expands``, steps also grow until Wolfe's condition holds (Lewis and
    Overton, 2013, "Nonsmooth optimization via quasi-Newton methods", algorithm 4.6).

    Variables at or near a bound that the gradient pushes them against go straight to it, and the
    direction is that of the others alone: else its projection into the bounds might lead up. What
    is near shrinks as the others come to rest (Bertsekas, 1982, "Projected Newton methods for
    optimization problems with simple constraints").

    Success is claimed where the model of the loss promises less than its tolerance, or where no
    step is seen to lower the loss any more and what is promised is lost in its rounding. Where
    neither holds rounding hides the rest, and the status is -1.
    """

    expands: ClassVar[bool] = False
    patience: ClassVar[float] = 1.0
    """Steps in a row that change the loss by rounding alone, after which the end may be near."""

    @abstractmethod
    def reach(self, at: Evaluation, memory: Memory) -> Any:
        """About the inverse of the Hessian's diagonal, a number or (n,): steps are as long."""

    @abstractmethod
    def direct(
        self, at: Evaluation, gradient: Any, active: Any, judged: Judged, memory: Memory
    ) -> Any:
        """The direction from the point, the first length, and the next memory of its own.

        ``gradient`` is that of free variables, 0 where a bound is ``active``; ``memory`` is all of
        the old one. The direction and the memory are used where the trial is accepted.
        """

    @abstractmethod
    def solved(self, ahead: Ahead, own: Memory, tolerance: float) -> Any:
        """Whether the loss can fall by no more than this, relative to it or to its unit."""

    @abstractmethod
    def lost(self, ahead: Ahead, own: Memory) -> Any:
        """Whether rounding hides what the loss can still fall by."""

    def bends(self, own: Memory) -> Any:
        """Whether the loss is known to fall along a curve, whatever the gradient."""
        return False

    def unit(self, loss: Any) -> Any:
        """The unit of a loss that falls to 0: its size at the start, or 1 if less."""
        return functions.minimum(abs(loss), 1.0)

    def begin(self, n: int) -> Memory:
        """The part of the memory that all descents have."""
        return np.zeros(n), np.zeros(n), np.zeros(n), 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0

    def advance(self, at: Evaluation, memory: Memory) -> Move:
        """The move: along the new direction if the trial is accepted, else back or further."""
        point, gradient, direction, loss, _, _, _, unit, still, noise = memory[:DESCENT_PARTS]
        judged, first = self._judge(at, memory), at.step == 0.0
        active = at.bounds.active(at.x, at.gradient, self._slack(at, memory))
        free = where_free(at.gradient, active)
        new, begun, own = self.direct(at, free, active, judged, memory)
        new = where_free(new, active)
        new = _ending(at, choose(new @ free <= 0.0, new, -free), active)
        took = judged.accepted
        point, direction = choose(took, at.x, point), choose(took, new, direction)
        gradient, loss = choose(took, at.gradient, gradient), functions.where(took, at.loss, loss)
        length = functions.where(took, begun, judged.length)
        low, high = (functions.where(took, 0.0, end) for end in (judged.low, judged.high))
        unit = functions.where(first, self.unit(at.loss), unit)
        level = functions.where(judged.level & ~first, still + 1.0, 0.0)
        still = functions.where(took, level, still)
        noise = functions.maximum(functions.where(first, 0.0, judged.noise), NOISE_DECAY * noise)
        left = at.bounds.to_go(point, gradient)
        trial = at.bounds.project(point + length * direction)
        memory = point, gradient, direction, loss, length, low, high, unit, still, noise, *own
        promised = -(direction @ gradient)
        ahead = Ahead(promised, left, largest(left), loss, unit, noise, at.eps)
        loss = functions.where(first, at.loss, loss)  # NaN where even the first has none
        return self._move(ahead, own, Move(trial, memory, point, loss, ahead.steepest), judged)

    def _move(self, ahead: Ahead, own: Memory, move: Move, judged: Judged) -> Move:
        """The move with what tells of its end."""
        still, lost = move.memory[DESCENT_PARTS - 2], self.lost(ahead, own)
        stuck = judged.stuck | (still >= MOST_ROUNDED_STEPS)
        bends = self.bends(own)

        def solved(tolerance: float) -> Any:
            return self.solved(ahead, own, tolerance)

        def slight(tolerance: float) -> Any:
            return lost | solved(tolerance) if tolerance > CHANGE_ROUNDINGS * ahead.eps else lost

        return replace(
            move,
            settled=False,
            stuck=stuck,
            slight=slight,
            solved=solved,
            worn=judged.accepted & (still >= self.patience),
            bent=bends if bends is False else bends & ~stuck,
        )

    def tolerances(self, eps: float) -> Tolerances:
        """The tolerance of the loss: gradients have more digits than it."""
        return Tolerances(gradient=0.0, loss=eps**1.5)

    def _slack(self, at: Evaluation, memory: Memory) -> Any:
        """How near to a bound is near, in units of `Bounds`; 0.0 where there are no bounds."""
        if not at.bounds.finite:
            return 0.0
        left = at.bounds.to_go(at.x, self.reach(at, memory) * at.gradient)
        sizes = [v * (1.0 / unit) for v, unit in zip(left, at.bounds.units, strict=True)]
        return functions.minimum(largest(sizes), NEAR_BOUND)

    def _judge(self, at: Evaluation, memory: Memory) -> Judged:
        point, gradient, _, loss, length, low, high, unit, _, _ = memory[:DESCENT_PARTS]
        first, h = at.step == 0.0, at.x - point
        slope, slope_there = gradient @ h, at.gradient @ h
        noise = 4.0 * at.eps * abs(loss)
        level = (at.loss <= loss + noise) & (slope_there <= (2.0 * ARMIJO - 1.0) * slope)
        enough = (at.loss <= loss + ARMIJO * slope) | level
        enough = (enough & (slope <= 0.0) & functions.isfinite(at.loss)) | first
        open_end = high == 0.0
        short = self._short(at, slope, slope_there, length, low, high, open_end) & enough & ~first
        fitted = _parabola(at.loss - loss, slope, length)
        accepted = enough & ~short
        low, high = functions.where(short, length, low), functions.where(enough, high, length)
        tried = functions.where(
            high == 0.0, 2.0 * length, functions.where(low > 0.0, 0.5 * (low + high), fitted)
        )
        unseen = abs(slope) <= at.eps**2 * functions.maximum(abs(loss), unit)
        stuck = ~enough & unseen & (length <= at.eps**0.5)
        level = abs(at.loss - loss) <= noise
        noisy = _noise(at, h, loss, slope, slope_there)
        return Judged(accepted, tried, low, high, stuck, level, noisy)

    def _short(
        self,
        at: Evaluation,
        slope: Any,
        slope_there: Any,
        length: Any,
        low: Any,
        high: Any,
        open_end: Any,
    ) -> Any:
        """Where the loss still falls so steeply that the step should be longer."""
        steep = slope_there < WOLFE * slope
        if not self.expands or at.bounds.finite:
            return steep & (slope > slope)
        return steep & functions.where(open_end, length < 1e10, high - low > 0.1 * high)


def _noise(at: Evaluation, moved: Any, loss: Any, slope: Any, slope_there: Any) -> Any:
    """The part of a loss's change that the trapezoidal rule lacks; 0 if that is little of it.

    The rule's own error is of third order in the step. Of a step that is short beside each variable
    it is less than the slopes' share, unless the loss has no more digits.
    """
    error = abs((at.loss - loss) - 0.5 * (slope + slope_there))
    share = functions.maximum(abs(slope), abs(slope_there))
    told = error > share
    for h, v in zip(moved, at.x, strict=True):
        told = told & (abs(h) <= at.eps**0.5 * abs(v))
    return functions.where(told, error, 0.0)


def _ending(at: Evaluation, direction: Any, active: Any) -> Any:
    """The direction, with variables at active bounds going to them."""
    ends = zip(direction, active, at.bounds.edges(at.gradient), at.x, strict=True)
    return array([d if h is None else functions.where(h, e - v, d) for d, h, e, v in ends])


def _parabola(rise: Any, slope: Any, length: Any) -> Any:
    """The length at which the parabola through both losses and the slope is lowest."""
    curved = rise - slope
    part = functions.clip(-0.5 * slope / functions.where(curved > 0.0, curved, 1.0), 0.1, 0.5)
    return length * functions.where(functions.isfinite(rise) & (curved > 0.0), part, 0.1)


def stacked(rows: list[Any]) -> Any:
    """Rows of expressions as a matrix."""
    return array([list(row) for row in rows])
