"""Levenberg and Marquardt's method, traced: JᵀJ and Jᵀr in, the next point out.

Every operation of the update is done in every step of every problem: one that many problems can do
without is left out.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import functions
from symgrad.expr.array import array
from symgrad.optimize.arguments import number
from symgrad.optimize.factor import solve_positive
from symgrad.optimize.method import (
    Evaluation,
    Memory,
    Method,
    Move,
    Tolerances,
    choose,
    released,
)
from symgrad.optimize.newton import restricted

ROUNDING: Final = 4.0
"""How many rounding errors of the variables and of the model a gradient may stem from."""

SMALLEST: Final = 1e-30
"""The least tolerance that float32 can divide by."""


@dataclass(frozen=True)
class LevenbergMarquardt(Method):
    """Damped Gauss-Newton steps for sums of squares: ``(JᵀJ + damping * D) step = -Jᵀr``.

    D is the largest diagonal of JᵀJ met so far (Moré, 1978, "The Levenberg-Marquardt algorithm:
    implementation and theory"), so that units of parameters do not matter. The damping follows how
    well the quadratic model predicted the loss (Nielsen, 1999, "Damping parameter in Marquardt's
    method"). The Jacobian is never stored. ``damping`` is the first one.

    A decrease of the loss, or a step, within its tolerance ends a fit where no column of the
    Jacobian could lower the loss by more than that tolerance, relative to it, or where the gradient
    is not above what the rounding of the variables makes of it.

    Example:
        >>> import symgrad as sg
        >>> residuals = lambda v: [1 - v[0], 10 * (v[1] - v[0]**2)]
        >>> found = sg.minimize_from(residuals, 2, [[-1.2, 1.0]], sg.LevenbergMarquardt(), 50)
        >>> found.x.round(4), found.success
        (array([[1., 1.]], dtype=float32), array([ True]))
    """

    damping: float = 1e-3
    needs: ClassVar[str] = "squares"
    pure: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not number(self.damping, "LevenbergMarquardt(damping)") > 0:
            raise InputError(f"LevenbergMarquardt(damping={self.damping}): it must be positive")

    def start(self, n: int) -> Memory:
        """The point, loss, gradient, JᵀJ (lower half), scales, damping, growth, and promise.

        The promise is by how much the quadratic model says that the step lowers the loss.
        """
        half = np.zeros(n * (n + 1) // 2)
        return np.zeros(n), 0.0, np.zeros(n), half, np.zeros(n), self.damping, 2.0, 0.0

    def advance(self, at: Evaluation, memory: Memory) -> Move:
        """The move: from the trial if the loss there is lower, else a shorter one."""
        assert at.hessian is not None, "least squares are given JᵀJ"
        point, loss, gradient, half, scales, damping, growth, promised = memory
        first = at.step == 0.0
        sound = functions.isfinite(np.sum(at.gradient) + np.trace(at.hessian))
        quality = (loss - at.loss) / functions.where(promised > 0.0, promised, 1.0)
        lower = (at.loss <= loss) & (promised > 0.0) & sound
        took = lower | first
        settled = first | (lower & (quality > 0.25)) | (abs(promised) <= 2.0 * at.eps * loss)
        damping, growth = _damping(first, took, quality, damping, growth, at.eps)
        point, gradient = choose(took, at.x, point), choose(took, at.gradient, gradient)
        half, loss = choose(took, packed(at.hessian), half), functions.where(took, at.loss, loss)
        diagonal = unpacked(half).diagonal()
        scales = _larger(_larger(scales, [_least_scale(at.eps)] * len(scales)), diagonal)
        trial, promised, cut = self._step(at, point, gradient, half, scales, damping)
        whole = True if cut is None else ~cut
        if cut is not None:  # a step that bounds cut off may promise nothing: one damped more does
            promised = functions.where(cut & (promised <= 2.0 * at.eps * loss), -loss, promised)
        left = released(gradient, at.bounds.held(point, gradient))
        solved = _orthogonal(left, diagonal, loss)
        slight = _slight(left, diagonal, loss, point, at.eps)
        memory = point, loss, gradient, half, scales, damping, growth, promised
        stuck = damping > 1.0 / at.eps**2
        sound = sound | ~first
        return Move(point, loss, solved, trial, memory, settled, stuck, sound, whole, slight)

    def _step(
        self, at: Evaluation, point: Any, gradient: Any, half: Any, scales: Any, damping: Any
    ) -> tuple[Any, Any, Any]:
        """The trial that the damped step of the free variables leads to, and its promise.

        Where the step leaves the bounds it goes to them, and the others are solved for again; the
        last result says where that is, None without bounds.
        """
        matrix, added = unpacked(half), damping * scales
        floors = list(at.eps * scales)
        held = at.bounds.held(point, gradient)
        back = _solved(matrix, added, gradient, held, floors)
        if not at.bounds.finite:  # back solves (JᵀJ + damping D) back = gradient
            return point - back, 0.5 * (back @ (added * back + gradient)), None
        over, ahead = at.bounds.crossed(point - back), at.bounds.project(point - back)
        edge = released(ahead - point, [_not(c) for c in over])
        pulled = gradient + matrix @ edge
        both = [_either(a, b) for a, b in zip(held, over, strict=True)]
        inside = point - _solved(matrix, added, pulled, both, floors)
        ends = zip(inside, ahead, over, strict=True)  # exactly there: point + edge may be rounded
        trial = [p if c is None else functions.where(c, e, p) for p, e, c in ends]
        trial = at.bounds.project(trial)
        step = trial - point
        promised = -(gradient @ step) - 0.5 * (step @ (matrix @ step))
        return trial, promised, functools.reduce(operator.or_, [c for c in over if c is not None])

    def tolerances(self, eps: float) -> Tolerances:
        """Those of a loss that is a sum: it has few more digits than its terms."""
        return Tolerances(gradient=eps**0.75, loss=8.0 * eps, step=8.0 * eps)


def _solved(matrix: Any, added: Any, gradient: Any, held: Any, floors: list[Any]) -> Any:
    """Minus the damped step of the variables that are not held."""
    matrix = np.array(restricted(matrix, held))
    for k in range(len(floors)):
        matrix[k, k] = matrix[k, k] + added[k]
    return solve_positive(matrix, released(gradient, held), floors)


def _least_scale(eps: float) -> float:
    """What still has an inverse when it is multiplied by eps: the scale where J has only zeros."""
    return 4.0 * float(np.finfo(np.float32 if eps > 1e-10 else np.float64).tiny) / eps


def _larger(a: Any, b: Any) -> Any:
    return array([functions.maximum(v, w) for v, w in zip(a, b, strict=True)])


def _not(condition: Any) -> Any:
    """Where a condition fails; ``~None``, for one that never holds, is always."""
    return True if condition is None else ~condition


def _either(a: Any, b: Any) -> Any:
    """Where one of two conditions holds, of which None never does."""
    return a | b if a is not None and b is not None else b if a is None else a


def _damping(
    first: Any, took: Any, quality: Any, damping: Any, growth: Any, eps: float
) -> tuple[Any, Any]:
    """Nielsen's rule: less after a good step, more and more after bad ones."""
    turn = 2.0 * functions.clip(quality, 0.0, 1.0) - 1.0
    less = damping * functions.maximum(1.0 / 3.0, 1.0 - turn * turn * turn)
    damping = functions.where(first, damping, functions.where(took, less, damping * growth))
    growth = functions.where(took, 2.0, 2.0 * growth)
    return functions.maximum(damping, eps), growth


def _orthogonal(gradient: Any, diagonal: Any, loss: Any) -> Callable[[float], Any]:
    """Whether no cosine between a column of the Jacobian and the residuals is above a tolerance.

    A cosine is g / sqrt(d * 2 loss); what is compared are squares, multiplied out.
    """

    def within(tolerance: float) -> Any:
        scaled, square = gradient * (1.0 / max(tolerance, SMALLEST)), 2.0 * loss
        tests = [g * g <= d * square for g, d in zip(scaled, diagonal, strict=True)]
        return functools.reduce(operator.and_, tests)

    return within


def _slight(
    gradient: Any, diagonal: Any, loss: Any, x: Any, eps: float
) -> Callable[[float], Any]:  # fmt: skip
    """Whether a change of a single variable, by its column alone, would hardly lower the loss.

    It would by g**2 / 2d. Rounding of the variables moves the residuals by some |J| eps |x|.
    """
    rounding = x @ (diagonal * x)

    def within(tolerance: float) -> Any:
        part = (ROUNDING * eps) ** 2 / tolerance
        most = functions.maximum(2.0 * loss, part * rounding)
        scaled = gradient * (1.0 / max(tolerance, SMALLEST) ** 0.5)
        tests = [g * g <= d * most for g, d in zip(scaled, diagonal, strict=True)]
        return functools.reduce(operator.and_, tests)

    return within


def packed(matrix: Any) -> Any:
    """The lower half of a symmetric matrix, row by row, (n*(n+1)/2,)."""
    return array([matrix[i][j] for i in range(len(matrix)) for j in range(i + 1)])


def unpacked(half: Any) -> Any:
    """The symmetric matrix of a lower half."""
    n = int((2 * len(half)) ** 0.5)
    index = np.zeros((n, n), int)
    index[np.tril_indices(n)] = np.arange(len(half))
    return half[np.maximum(index, index.T)]
