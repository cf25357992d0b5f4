"""Least-squares iterations whose matrix is expressions, or kept in an array, and their data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from reference_kernels import iterate

import symgrad as sg
from symgrad.expr.tracers.array import array
from symgrad.kernel.shapes import Iteration, RowData
from symgrad.optimize.method import Bounds
from symgrad.optimize.problem import Layout, Problem, iteration, layout_of
from symgrad.pipeline import DTypeName, Options

METHOD = sg.LevenbergMarquardt()


def waves(x: Any, p: Any) -> Any:
    """A decay and a Fourier series of len(p) parameters."""
    found = p[0] * sg.exp(-p[1] * x)
    for k, c in enumerate(p[2:]):
        phase = (k // 2 + 1) * x
        found = found + c * (sg.cos(phase) if k % 2 else sg.sin(phase))
    return found


@dataclass(frozen=True)
class Waves:
    """Fits of waves to points: x is shared, y each problem's own."""

    n: int
    problems: int
    points: int
    bounds: tuple[float, float] = (-np.inf, np.inf)
    weight: float = 1.0
    residuals: int = 1
    dtype: DTypeName = "float32"

    def made(self, stored: bool = True) -> Iteration:
        """The iteration."""

        def residual(p: Any, row: Any) -> Any:
            first = waves(row[0], p) - row[1]
            more = [0.5 * first * p[k % self.n] for k in range(self.residuals - 1)]
            return array([first, *more])

        options = Options("waves", "accurate", self.dtype, True, False)
        box = Bounds.of(*self.bounds, self.n)
        stop = METHOD.tolerances(float(np.finfo(self.dtype).eps))
        problem = Problem(residual, self.n, 1, 1, self.weight)
        return iteration(problem, METHOD, box, stop, options, stored)

    @property
    def layout(self) -> Layout:
        return layout_of(METHOD, self.n)

    @property
    def x(self) -> np.ndarray:
        """The shared data."""
        return np.linspace(0.05, 6.0, self.points)[:, None]

    @property
    def y(self) -> np.ndarray:
        """The data of each problem."""
        draw = np.random.default_rng(self.n + self.points)
        true = draw.uniform(0.2, 1.0, (self.problems, self.n))
        clean = [[float(waves(v, p)) for v in self.x[:, 0]] for p in true]
        clean = np.array(clean).reshape(self.problems, self.points)
        return (clean + 0.01 * draw.normal(size=clean.shape))[:, :, None]

    @property
    def data(self) -> RowData:
        """Both."""
        return RowData(self.x, self.y)

    def states(self, steps: int = 100) -> np.ndarray:
        """The first states."""
        state = np.tile(self.layout.first(steps), (self.problems, 1))
        state[:, : self.n] = 0.5
        return state

    def expected(self, steps: int, stored: bool = True, dtype: Any = np.float64) -> np.ndarray:
        """The interpreter's answer."""
        return iterate(self.made(stored), self.states(), steps, self.data, dtype)
