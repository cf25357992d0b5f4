"""Functions with known minima, and both ways to run an iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import iterations
import numpy as np
from reference_kernels import iterate

from symgrad.kernel.shapes import NO_DATA, Iteration, RowData
from symgrad.optimize.states import Runner


def rosenbrock(v: Any) -> Any:
    """Its minimum is 0 at (1, ..., 1)."""
    return np.sum(100.0 * (v[1:] - v[:-1] ** 2) ** 2 + (1.0 - v[:-1]) ** 2)


def rosenbrock_residuals(v: Any) -> Any:
    return [2**0.5 * (1.0 - v[0]), 2**0.5 * 10.0 * (v[1] - v[0] ** 2)]


def powell(v: Any) -> Any:
    """Its minimum is 0 at 0, where the Hessian is singular."""
    a, b, c, d = v
    return (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4


def powell_residuals(v: Any) -> Any:
    a, b, c, d = v
    return [a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2]


@dataclass(frozen=True)
class Interpreted:
    """The meaning of an iteration, by NumPy: slow, and the reference for compiled loops."""

    iteration: Iteration
    dtype: Any = np.float64

    def run(self, state: np.ndarray, steps: int, data: RowData = NO_DATA) -> np.ndarray:
        """The states (S, s) after these steps."""
        return iterate(self.iteration, state, steps, data, self.dtype)


def interpreted(iteration: Iteration) -> Runner:
    return Interpreted(iteration, np.float64)


def compiled(iteration: Iteration) -> Runner:
    return iterations.compiled(iteration, dtype="float64")


DOUBLE: dict[str, Any] = {"device": "cpu", "dtype": "float64"}
