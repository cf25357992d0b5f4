"""Whether a run that claims a minimum has one: SciPy goes on from its end in float64.

A success is *false* if SciPy, in float64 with exact gradients, lowers the loss from there by

- more than ten times what float32 can tell, `noise`: the largest error of the loss in float32 among
  points that differ from the end by a rounding error at most (in float64: 1e-14 of the loss), and
- more than a millionth of the loss at the end, and more than 1e-10.

It is *grossly* false if the loss falls also by a millionth of all that it fell from the start, and
by 1e-5 of itself. A run that claims nothing and ends where a success would be true is *missed*.
SciPy starts at the end itself, and, where the Hessian has a negative eigenvalue, at both sides of
it along that eigenvector.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from optimize import held_out
from optimize.losses import LOSSES, Loss
from optimize.sums_of_squares import SQUARES, Squares

import symgrad as sg
from symgrad.pipeline import DTypeName

Problem = Squares | Loss
PROBLEMS: dict[str, Problem] = {**SQUARES, **LOSSES}
EVERY: dict[str, Problem] = {**PROBLEMS, **held_out.PROBLEMS}
SPREADS = np.array([0.2, 0.2, 0.5, 0.5, 1.0, 1.0, 2.0])[:, None]


def starts_of(name: str) -> np.ndarray:
    """The published start, and seven around it (8, n)."""
    start = np.array(EVERY[name].start)
    around = np.random.default_rng(zlib.crc32(name.encode())).uniform(-1, 1, (7, len(start)))
    return np.vstack([start, start + around * np.maximum(np.abs(start), 0.5) * SPREADS])


@dataclass(frozen=True)
class Counts:
    """What became of some runs."""

    runs: int
    successes: int
    false: int
    gross: int
    missed: int
    steps: int

    def __add__(self, other: Counts) -> Counts:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Counts(*(a + b for a, b in pairs))


class Judge:
    """Judges the ends of runs on one problem."""

    def __init__(self, name: str) -> None:
        self.name, self.problem = name, EVERY[name]
        n = self.problem.n
        self._single = sg.fused_forward(n, self._loss, device="cpu")
        if isinstance(self.problem, Squares):
            self._jacobian = sg.fused_jacobian(n, self._residuals, device="cpu", dtype="float64")
        else:
            self._kernel = sg.fused_forward_backward(n, self._loss, device="cpu", dtype="float64")

    def run(self, method: Any, dtype: DTypeName, steps: int = 1000) -> Counts:
        """Minimise from all starts, and judge the ends."""
        problem, starts = self.problem, starts_of(self.name)
        f: Any = problem.loss
        data: dict[str, Any] = {}
        if isinstance(problem, Squares):
            f = problem.residuals if method.needs == "squares" else f
            data = {} if problem.data is None else {"shared": problem.data}
        found = sg.minimize_from(
            f, problem.n, starts, method, steps, device="cpu", dtype=dtype, **data
        )
        counts = Counts(0, 0, 0, 0, 0, 0)
        for start, x, success, nit in zip(starts, found.x, found.success, found.nit, strict=True):
            counts += self.verdict(start, x, bool(success), int(nit), dtype)
        return counts

    def verdict(
        self, start: np.ndarray, x: np.ndarray, success: bool, nit: int, dtype: DTypeName
    ) -> Counts:
        """The judgement of one end."""
        end = np.asarray(x, float)
        loss = self._value(end)[0] if np.isfinite(end).all() else np.inf
        if not np.isfinite(loss):
            return Counts(1, int(success), int(success), int(success), 0, nit)
        best = self.lowest(end)
        fall, noise = loss - best, self.noise(end) if dtype == "float32" else 1e-14 * abs(loss)
        false = fall > 10 * noise and fall > 1e-6 * abs(loss) and fall > 1e-10
        whole = self.problem.value(start) - best
        gross = false and fall > 1e-6 * whole and fall > 1e-5 * abs(loss)
        return Counts(1, success, success and false, success and gross, not (success or false), nit)

    def lowest(self, end: np.ndarray) -> float:
        """The lowest loss that SciPy finds from there."""
        starts = [end, *self._sides(end)]
        found = [self._value(end)[0]]
        for start in starts:
            for polish in self._polishers():
                value = polish(start)
                found.append(value if np.isfinite(value) else np.inf)
        return min(found)

    def noise(self, end: np.ndarray) -> float:
        """What float32 cannot tell of the loss there."""
        single, n = end.astype(np.float32), self.problem.n
        ulps = np.random.default_rng(0).integers(-1, 2, (32, n)).astype(np.float32)
        near = single * (1 + np.float32(1.2e-7) * ulps)
        values = np.asarray(self._single.run(near.astype(np.float32)), float)
        errors = np.abs(values - self._value(end)[0])
        return float(np.max(errors[np.isfinite(errors)], initial=0.0))

    def _sides(self, end: np.ndarray) -> list[np.ndarray]:
        """Both sides of a point along its direction of negative curvature, if it has one."""
        n, step = len(end), 1e-5 * np.maximum(np.abs(end), 1e-2)
        moved = [step[i] * np.eye(n)[i] for i in range(n)]
        slopes = [self._value(end + h)[1] - self._value(end - h)[1] for h in moved]
        hessian = np.array(slopes) / (2 * step[:, None])
        hessian = (hessian + hessian.T) / 2
        if not np.isfinite(hessian).all():
            return []
        scale = np.sqrt(np.abs(np.diag(hessian)))
        scale = np.where(scale > 0, scale, 1.0)
        values, vectors = np.linalg.eigh(hessian / np.outer(scale, scale))
        if values[0] > -1e-6:
            return []
        along = vectors[:, 0] / scale
        along /= np.max(np.abs(along) / np.maximum(np.abs(end), 1.0))
        return [end + 1e-3 * along, end - 1e-3 * along]

    def _polishers(self) -> list[Callable[[np.ndarray], float]]:
        def quasi(x: np.ndarray) -> float:
            options = {"gtol": 1e-12, "maxiter": 300}
            minimize: Any = scipy.optimize.minimize
            return minimize(self._value, x, jac=True, method="BFGS", options=options).fun

        def squares(x: np.ndarray) -> float:
            parts = [lambda x, k=k: self._jacobian.run(x)[k] for k in (0, 1)]
            tight = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 300}
            least: Any = scipy.optimize.least_squares
            return 2 * least(parts[0], x, jac=parts[1], method="lm", **tight).cost

        return [quasi, squares] if isinstance(self.problem, Squares) else [quasi]

    def _value(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient in float64."""
        if isinstance(self.problem, Squares):
            r, jacobian = self._jacobian.run(np.asarray(x, float))
            return float(r @ r), 2 * r @ jacobian
        loss, gradient = self._kernel.run(np.asarray(x, float))
        return float(loss), np.asarray(gradient, float)

    def _residuals(self, v: Any) -> Any:
        problem = self.problem
        assert isinstance(problem, Squares)
        return (
            problem.residuals(v) if problem.data is None else problem.residuals(v, problem.data.T)
        )

    def _loss(self, v: Any) -> Any:
        if not isinstance(self.problem, Squares):
            return self.problem.loss(v)
        return sum(r * r for r in self._residuals(v))
