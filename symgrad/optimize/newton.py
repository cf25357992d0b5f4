"""Newton's method with the symbolic Hessian, and Gauss and Newton's for sums of squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from symgrad.expr import functions
from symgrad.expr.array import array
from symgrad.expr.expression import Condition
from symgrad.optimize.factor import solve_modified
from symgrad.optimize.line_search import Descent, Judged
from symgrad.optimize.method import Evaluation, Memory, released


@dataclass(frozen=True)
class Newton(Descent):
    """Newton's method: the symbolic Hessian, made positive definite by a modified Cholesky.

    Each step is shortened until Armijo's condition holds. Where the Hessian is positive definite
    the direction is exactly Newton's, and convergence quadratic.

    Example:
        >>> import symgrad as sg
        >>> rosenbrock = lambda v: (1 - v[0])**2 + 100 * (v[1] - v[0]**2)**2
        >>> found = sg.minimize_from(rosenbrock, 2, [[-1.2, 1.0]], sg.Newton(), 100)
        >>> found.success, found.x.round(4)
        (array([ True]), array([[1., 1.]], dtype=float32))
    """

    needs: ClassVar[str] = "hessian"
    pure: ClassVar[bool] = True

    def start(self, n: int) -> Memory:
        """The line search's memory."""
        return self.begin(n)

    def reach(self, at: Evaluation, memory: Memory) -> Any:
        """The inverse of the Hessian's diagonal."""
        assert at.hessian is not None, "Newton's method is given a Hessian"
        sizes = [abs(at.hessian[k, k]) for k in range(len(at.x))]
        return array([1.0 / functions.where(size > 0.0, size, 1.0) for size in sizes])

    def direct(
        self, at: Evaluation, gradient: Any, held: Any, judged: Judged, memory: Memory
    ) -> Any:
        """Newton's direction among the variables that are free, with a first length of 1."""
        matrix = restricted(at.hessian, held)
        return -solve_modified(matrix, gradient, at.eps), 1.0, ()


@dataclass(frozen=True)
class GaussNewton(Newton):
    """Newton's method for sums of squares, with JᵀJ in the place of the Hessian.

    It converges fast where residuals are small or nearly linear; see also `LevenbergMarquardt`.

    Example:
        >>> import symgrad as sg
        >>> found = sg.minimize_from(
        ...     lambda v: [1 - v[0], 10 * (v[1] - v[0]**2)], 2, [[-1.2, 1.0]], sg.GaussNewton(), 50)
        >>> found.x.round(4)
        array([[1., 1.]], dtype=float32)
    """

    needs: ClassVar[str] = "squares"
    pure: ClassVar[bool] = True


def restricted(matrix: Any, held: list[Condition | None]) -> Any:
    """The matrix with rows and columns of held variables as those of the identity."""
    if not any(h is not None for h in held):
        return matrix
    rows = np.asarray([released(row, held) for row in matrix])
    columns = np.asarray([released(column, held) for column in rows.T]).T
    for k, h in enumerate(held):
        if h is not None:
            columns[k, k] = columns[k, k] + array(h)[()] * 1.0
    return array(columns)
