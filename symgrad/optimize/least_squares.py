"""Levenberg and Marquardt's method, traced: JᵀJ and Jᵀr in, the next point out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import functions
from symgrad.expr.array import array
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


@dataclass(frozen=True)
class LevenbergMarquardt(Method):
    """Damped Gauss-Newton steps for sums of squares: ``(JᵀJ + damping * D) step = -Jᵀr``.

    D is the largest diagonal of JᵀJ met so far (Moré, 1978, "The Levenberg-Marquardt algorithm:
    implementation and theory"), so that units of parameters do not matter. The damping follows how
    well the quadratic model predicted the loss (Nielsen, 1999, "Damping parameter in Marquardt's
    method"). The Jacobian is never stored. ``damping`` is the first one.

    Example:
        >>> import symgrad as sg
        >>> residuals = lambda v: [1 - v[0], 10 * (v[1] - v[0]**2)]
        >>> found = sg.minimize_from(residuals, 2, [[-1.2, 1.0]], sg.LevenbergMarquardt(), 50)
        >>> found.x.round(4), found.success
        (array([[1., 1.]], dtype=float32), array([ True]))
    """

    damping: float = 1e-3
    needs: ClassVar[str] = "squares"

    def __post_init__(self) -> None:
        if not self.damping > 0:
            raise InputError(f"LevenbergMarquardt(damping={self.damping}): it must be positive")

    def start(self, n: int) -> Memory:
        """The point, loss, gradient, JᵀJ (lower half), scales, damping and its growth."""
        half = np.zeros(n * (n + 1) // 2)
        return np.zeros(n), 0.0, np.zeros(n), half, np.zeros(n), self.damping, 2.0

    def advance(self, at: Evaluation, memory: Memory) -> Move:
        """The move: from the trial if the loss there is lower, else a shorter one."""
        assert at.hessian is not None, "least squares are given JᵀJ"
        point, loss, gradient, half, scales, damping, growth = memory
        first, h = at.step == 0.0, at.x - point
        promised = -(gradient @ h) - 0.5 * (h @ (unpacked(half) @ h))
        quality = (loss - at.loss) / functions.where(promised > 0.0, promised, 1.0)
        lower = (at.loss <= loss) & (promised > 0.0) & functions.isfinite(np.sum(at.gradient))
        took = lower | first
        damping, growth = _damping(first, took, quality, damping, growth, at.eps)
        point, gradient = choose(took, at.x, point), choose(took, at.gradient, gradient)
        half, loss = choose(took, packed(at.hessian), half), functions.where(took, at.loss, loss)
        diagonal = unpacked(half).diagonal()
        scales = array([functions.maximum(a, b) for a, b in zip(scales, diagonal, strict=True)])
        step = self._step(at, point, gradient, half, scales, damping)
        measure = _cosine(released(gradient, at.bounds.held(point, gradient)), diagonal, loss)
        memory = point, loss, gradient, half, scales, damping, growth
        settled = first | (lower & (quality > 0.25)) | (promised <= 2.0 * at.eps * loss)
        trial = at.bounds.project(point + step)
        return Move(point, loss, measure, trial, memory, settled, damping > 1.0 / at.eps**2)

    def _step(
        self, at: Evaluation, point: Any, gradient: Any, half: Any, scales: Any, damping: Any
    ) -> Any:
        """The damped step of the free variables, solved in units in which D is 1.

        Where it leaves the bounds it goes to them, and the other variables are solved for again.
        """
        units = [functions.where(s > 0.0, s, 1.0) for s in scales]
        units = array([1.0 / functions.sqrt(u) for u in units])
        matrix = unpacked(half) * np.outer(units, units)
        held = at.bounds.held(point, gradient)
        step = _solved(matrix, units, gradient, held, damping, at.eps)
        if not at.bounds.finite:
            return step
        over = at.bounds.crossed(point + step)
        edge = released(at.bounds.project(point + step) - point, [_not(c) for c in over])
        pulled = gradient + unpacked(half) @ edge
        both = [_either(a, b) for a, b in zip(held, over, strict=True)]
        return edge + _solved(matrix, units, pulled, both, damping, at.eps)

    def tolerances(self, eps: float) -> Tolerances:
        """Those of a loss that is a sum: it has few more digits than its terms."""
        return Tolerances(gradient=eps**0.75, loss=8.0 * eps, step=8.0 * eps)


def _solved(matrix: Any, units: Any, gradient: Any, held: Any, damping: Any, floor: float) -> Any:
    """The damped step of the variables that are not held."""
    matrix = restricted(matrix, held)
    for k in range(len(units)):
        matrix[k, k] = matrix[k, k] + damping
    return -units * solve_positive(matrix, units * released(gradient, held), floor)


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


def _cosine(gradient: Any, diagonal: Any, loss: Any) -> Any:
    """The largest cosine between a column of the Jacobian and the residuals."""
    largest: Any = 0.0
    for g, d in zip(gradient, diagonal, strict=True):
        length = d * (2.0 * loss)
        square = functions.where(
            length > 0.0, g * g / functions.where(length > 0.0, length, 1.0), 0.0
        )
        largest = functions.maximum(square, largest)
    return functions.sqrt(largest)


def packed(matrix: Any) -> Any:
    """The lower half of a symmetric matrix, row by row, (n*(n+1)/2,)."""
    return array([matrix[i][j] for i in range(len(matrix)) for j in range(i + 1)])


def unpacked(half: Any) -> Any:
    """The symmetric matrix of a lower half."""
    n = int((2 * len(half)) ** 0.5)
    index = np.zeros((n, n), int)
    index[np.tril_indices(n)] = np.arange(len(half))
    return half[np.maximum(index, index.T)]
