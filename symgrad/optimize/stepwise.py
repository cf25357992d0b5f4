"""Few problems over many rows: a device sums the rows of each step, and the CPU does the rest.

A loop that does all steps of a problem in one invocation leaves the others idle where there are
fewer problems than lanes. Here each step is a pass over the rows by all cores, or all workgroups,
and the update of one state, which is compiled for single points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.backend import backend_of
from symgrad.cache import Once
from symgrad.errors import InputError
from symgrad.kernel.shapes import NO_DATA, Iteration, RowData
from symgrad.kernel.stats import weight_of
from symgrad.optimize.method import Method
from symgrad.optimize.problem import FLAG
from symgrad.pipeline import Options
from symgrad.targets import Device, choose

MOST_PROBLEMS: Final = 8
"""Problems up to which this is worth it: so many are the lanes of a vector, or more."""

LEAST_OPERATIONS: Final = 2**19
"""Operations of a pass over the rows from which on it is: a fraction of a millisecond."""

Evaluate = Callable[[np.ndarray], np.ndarray]
"""From a state, whose first n numbers are the variables, to the sums that an update takes."""

_sums: Once[Any, Any] = Once(32)


def is_worthwhile(iteration: Iteration, problems: int, data: RowData) -> bool:
    """Whether so few problems share so many rows that a device is better shared by the rows."""
    if iteration.rows is None or iteration.matrix is not None or data.own is not None:
        return False
    operations = data.rows * weight_of(iteration.rows.graph)
    return 0 < problems <= MOST_PROBLEMS and operations >= LEAST_OPERATIONS


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A loss of n variables that something else evaluates.

    ``run(x)`` is the loss, its gradient (n,), and, if it is ``second``, its Hessian (n, n).
    """

    run: Callable[[np.ndarray], tuple[Any, ...]]
    n: int
    second: bool

    def gradient(self, state: np.ndarray) -> np.ndarray:
        """The loss and the gradient (1 + n,)."""
        loss, gradient, *_ = self.run(state[: self.n].copy())
        return np.concatenate([[loss], gradient])

    def hessian(self, state: np.ndarray) -> np.ndarray:
        """The loss, the gradient, and the lower half of the Hessian."""
        loss, gradient, hessian = self.run(state[: self.n].copy())
        return np.concatenate([[loss], gradient, hessian[np.tril_indices(self.n)]])

    def sums(self, method: Method) -> Evaluate:
        """The evaluation that a method needs.

        Raises:
            InputError: for a method that needs more; it names it, and what to use.
        """
        name = type(method).__name__
        if method.needs == "hessian" and self.second:
            return self.hessian
        if method.needs == "hessian":
            raise InputError(
                f"{name} needs second derivatives, which this kernel does not have: make it by "
                "sg.fused_hessian, or use sg.LBFGS()"
            )
        if method.needs == "squares":
            raise InputError(
                f"{name} needs residuals, and a kernel with its rows has a loss: use sg.LBFGS(), "
                "or kernel.minimize(starts, method, rows=rows) where rows look nothing up"
            )
        return self.gradient


class Stepwise:
    """Runs an iteration step by step: see `symgrad.optimize.states.Runner`.

    The sums are those of its rows over the data, or what ``evaluate`` gives.
    """

    def __init__(
        self,
        iteration: Iteration,
        options: Options,
        device: Device,
        evaluate: Evaluate | None = None,
    ) -> None:
        self.iteration, self._options, self._device = iteration, options, device
        self._evaluate = evaluate
        dtype, update = options.floats, iteration.update
        self._x = np.empty((1, len(update.graph.names)), dtype)
        self._next = np.empty((1, iteration.state), dtype)
        launched = backend_of(choose("cpu")).map(update, options)
        self._update = launched.bind([self._x], [self._next])

    def run(self, state: np.ndarray, steps: int, data: RowData = NO_DATA) -> np.ndarray:
        """The states (S, s) after these steps."""
        evaluate = self._evaluate = self._evaluate or self._over(data)
        size, states, (x,) = self.iteration.state, state.copy(), self._x
        for row in states:
            for _ in range(steps):
                if not row[FLAG]:
                    break
                x[size:] = evaluate(row)
                x[:size] = row
                self._update()
                row[:] = self._next[0]
        return states

    def _over(self, data: RowData) -> Evaluate:
        """The sums over rows that all problems share."""
        rows, options, device = self.iteration.rows, self._options, self._device
        assert rows is not None, "there are no rows to sum over"
        key = rows, options.math, options.dtype, device
        make = partial(backend_of(device).sums, rows, options, f"{rows.name}: a step over rows")
        bound = _sums.get(key, make).bind(np.ascontiguousarray(data.shared, options.floats))
        return lambda row: bound.run(row[: rows.parameters].copy())
