"""A line search as a state machine: each step evaluates one point of the line and judges it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.expr import functions
from symgrad.expr.array import array
from symgrad.expr.expression import Condition
from symgrad.optimize.method import (
    Evaluation,
    Memory,
    Method,
    Move,
    choose,
    largest,
    released,
    slight,
)

UNSEEN = 8.0
"""What is so many times the rounding error of a loss, or less, cannot be told from it."""

NEAR = 1e-3
"""How near to a bound, in its unit, a variable may be to be taken there at once."""

SUFFICIENT = 1e-4
"""Armijo's constant: the part of the decrease that the slope promises which a step must bring."""

STEEP = 0.9
"""Wolfe's constant: a step that leaves more than this part of the slope is too short."""


@dataclass(frozen=True)
class Judged:
    """The verdict on a trial: whether it is taken, and where to try next if it is not."""

    accepted: Any
    length: Any
    low: Any
    high: Any
    stuck: Any


class Descent(Method):
    """A method that goes along a direction until the loss has decreased enough.

    The memory begins with the best point, its gradient, the direction from it, its loss, the
    length of the step that is tried, and the bracket of lengths around the one wanted (``high`` is
    0 while there is no upper end). What a subclass keeps of its own comes after it.

    A trial is taken if it meets Armijo's condition, or, where the loss has no digits left to tell,
    the slope's form of it (Hager and Zhang, 2005, "A new conjugate gradient method with guaranteed
    descent", 1.2). With ``expands``, steps also grow until Wolfe's condition holds (Lewis and
    Overton, 2013, "Nonsmooth optimization via quasi-Newton methods", algorithm 4.6).

    Variables at or near a bound that the gradient pushes them against go straight to it, and the
    direction is that of the others alone: else its projection into the bounds might lead up. What
    is near shrinks as the others come to rest (Bertsekas, 1982, "Projected Newton methods for
    optimization problems with simple constraints").
    """

    expands = False

    @abstractmethod
    def reach(self, at: Evaluation, memory: Memory) -> Any:
        """About the inverse of the Hessian's diagonal, a number or (n,): steps are as long."""

    @abstractmethod
    def direct(
        self, at: Evaluation, gradient: Any, held: Any, judged: Judged, memory: Memory
    ) -> Any:
        """The direction from the point, the first length, and the next memory of its own.

        ``gradient`` is that of free variables, 0 for those that are ``held``; ``memory`` is all of
        the old one. The direction and the memory are used where the trial is accepted.
        """

    def begin(self, n: int) -> Memory:
        """The part of the memory that all descents have."""
        return np.zeros(n), np.zeros(n), np.zeros(n), 0.0, 1.0, 0.0, 0.0

    def advance(self, at: Evaluation, memory: Memory) -> Move:
        """The move: along the new direction if the trial is accepted, else back or further."""
        point, gradient, direction, loss, *_ = memory
        judged = self._judge(at, memory)
        held = at.bounds.held(at.x, at.gradient, self._slack(at, memory))
        free = released(at.gradient, held)
        new, first, own = self.direct(at, free, held, judged, memory)
        new = released(new, held)
        new = _ending(at, choose(new @ free < 0.0, new, -free), held)
        took = judged.accepted
        point, direction = choose(took, at.x, point), choose(took, new, direction)
        gradient, loss = choose(took, at.gradient, gradient), functions.where(took, at.loss, loss)
        length = functions.where(took, first, judged.length)
        low, high = (functions.where(took, 0.0, end) for end in (judged.low, judged.high))
        left = at.bounds.to_go(point, gradient)
        trial = at.bounds.project(point + length * direction)
        small = _slight(slight(point, loss, left), -(direction @ gradient), loss, self.knows(own))
        memory = point, gradient, direction, loss, length, low, high, *own
        loss = functions.where(at.step == 0.0, at.loss, loss)  # NaN where even the first has none
        measure = largest(left)
        return Move(point, loss, measure, trial, memory, took, judged.stuck, slight=small)

    def knows(self, own: Memory) -> Any:
        """Whether the direction is about Newton's: its slope tells how far down the minimum is."""
        return True

    def _slack(self, at: Evaluation, memory: Memory) -> Any:
        """How near to a bound is near, in units of `Bounds`; 0.0 where there are no bounds."""
        if not at.bounds.finite:
            return 0.0
        left = at.bounds.to_go(at.x, self.reach(at, memory) * at.gradient)
        sizes = [v * (1.0 / unit) for v, unit in zip(left, at.bounds.units, strict=True)]
        return functions.minimum(largest(sizes), NEAR)

    def _judge(self, at: Evaluation, memory: Memory) -> Judged:
        point, gradient, _, loss, length, low, high = memory[:7]
        first, h = at.step == 0.0, at.x - point
        slope, slope_there = gradient @ h, at.gradient @ h
        noise = 4.0 * at.eps * abs(loss)
        level = (at.loss <= loss + noise) & (slope_there <= (2.0 * SUFFICIENT - 1.0) * slope)
        enough = (at.loss <= loss + SUFFICIENT * slope) | level
        enough = (enough & (slope <= 0.0) & functions.isfinite(at.loss)) | first
        open_end = high == 0.0
        short = self._short(at, slope, slope_there, length, low, high, open_end) & enough & ~first
        fitted = _parabola(at.loss - loss, slope, length)
        accepted = enough & ~short
        low, high = functions.where(short, length, low), functions.where(enough, high, length)
        tried = functions.where(high == 0.0, 2.0 * length, functions.where(
            low > 0.0, 0.5 * (low + high), fitted))  # fmt: skip
        still = [abs(a) <= 0.5 * at.eps * abs(b) for a, b in zip(h, at.x, strict=True)]
        return Judged(accepted, tried, low, high, ~enough & _all(still))

    def _short(
        self, at: Evaluation, slope: Any, slope_there: Any, length: Any, low: Any, high: Any,
        open_end: Any,
    ) -> Any:  # fmt: skip
        """Where the loss still falls so steeply that the step should be longer."""
        steep = slope_there < STEEP * slope
        if not self.expands or at.bounds.finite:
            return steep & (slope > slope)
        return steep & functions.where(open_end, length < 1e10, high - low > 0.1 * high)


def _ending(at: Evaluation, direction: Any, held: Any) -> Any:
    """The direction, with those variables that are held going to their bounds."""
    ends = zip(direction, held, at.bounds.edges(at.gradient), at.x, strict=True)
    return array([d if h is None else functions.where(h, e - v, d) for d, h, e, v in ends])


def _slight(small: Any, promised: Any, loss: Any, known: Any) -> Callable[[float], Any]:
    """Whether the gradient is small, or not large and what it promises is lost in the loss.

    The promise alone does not tell: the curvature that it rests upon may be rounding error.
    """

    def within(tolerance: float) -> Any:
        unseen = (promised <= UNSEEN * tolerance * abs(loss)) & known
        return small(tolerance) | (unseen & small(tolerance**0.5))

    return within


def _parabola(rise: Any, slope: Any, length: Any) -> Any:
    """The length at which the parabola through both losses and the slope is lowest."""
    curved = rise - slope
    part = functions.clip(-0.5 * slope / functions.where(curved > 0.0, curved, 1.0), 0.1, 0.5)
    return length * functions.where(functions.isfinite(rise) & (curved > 0.0), part, 0.1)


def _all(conditions: list[Condition]) -> Any:
    found = conditions[0]
    for c in conditions[1:]:
        found = found & c
    return found


def stacked(rows: list[Any]) -> Any:
    """Rows of expressions as a matrix."""
    return array([list(row) for row in rows])
