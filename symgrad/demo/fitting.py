"""Least squares around a kernel: models of NIST's data sets, fitted from many starts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.demo.nist import Dataset
from symgrad.fit.curve_fit import curve_fit
from symgrad.front.fused import fused_jacobian
from symgrad.front.kernels import Kernel
from symgrad.pipeline import DType
from symgrad.report.screen import Screen
from symgrad.targets import DeviceChoice

Model = Callable[[Any, Any], Any]
"""``model(x, b)``, on numbers, arrays or expressions."""


def _quotient(x: Any, b: Any, degree: int) -> Any:
    """The polynomial b1 + b2*x + ... over another of the same degree that begins with 1."""
    above, below = b[degree], b[-1]
    for k in range(1, degree + 1):
        above = b[degree - k] + x * above
        below = (b[-1 - k] if k < degree else 1.0) + x * below
    return above / below


def _peak(x: Any, height: Any, centre: Any, width: Any) -> Any:
    return height * np.exp(-(((x - centre) / width) ** 2))


MODELS: Final[dict[str, Model]] = {
    "Chwirut2": lambda x, b: np.exp(-b[0] * x) / (b[1] + b[2] * x),
    "DanWood": lambda x, b: b[0] * x ** b[1],
    "Gauss1": lambda x, b: (
        b[0] * np.exp(-b[1] * x) + _peak(x, b[2], b[3], b[4]) + _peak(x, b[5], b[6], b[7])
    ),
    "Kirby2": lambda x, b: _quotient(x, b, 2),
    "Lanczos3": lambda x, b: sum(b[k] * np.exp(-b[k + 1] * x) for k in (0, 2, 4)),
    "MGH17": lambda x, b: b[0] + b[1] * np.exp(-x * b[3]) + b[2] * np.exp(-x * b[4]),
    "Misra1a": lambda x, b: b[0] * (1.0 - np.exp(-b[1] * x)),
    "Rat43": lambda x, b: b[0] / (1.0 + np.exp(b[1] - b[2] * x)) ** (1.0 / b[3]),
    "Thurber": lambda x, b: _quotient(x, b, 3),
}
"""The models of the data sets, as the files give them."""


@dataclass(frozen=True)
class State:
    """Where all the fits of a batch are: parameters (starts, n), sums of squares (starts,)."""

    parameters: np.ndarray
    costs: np.ndarray


@dataclass(frozen=True)
class Fit:
    """How a batch of fits went; ``history`` holds the sums of squares, (steps, starts)."""

    data: Dataset
    kernel: Kernel
    starts: np.ndarray
    end: State
    history: np.ndarray
    polished: np.ndarray

    @property
    def best(self) -> int:
        """The start that led to the smallest sum of squares, nearest to NIST's second start."""
        return best(self.data, self.end)

    @property
    def reached(self) -> np.ndarray:
        """Whether a start led to the certified minimum, to within a hundredth."""
        return self.end.costs <= 1.01 * self.data.residual_sum


def residual_kernel(data: Dataset, device: DeviceChoice = None, dtype: DType = "float32") -> Kernel:
    """The kernel for the residuals at all points of the data, (m,), and their Jacobian, (m, n)."""
    model = MODELS[data.name]
    points = list(zip(data.x.tolist(), data.y.tolist(), strict=True))

    def residuals(b: Any) -> list[Any]:
        return [model(x, b) - y for x, y in points]

    names = data.parameters
    return fused_jacobian(len(names), residuals, device=device, dtype=dtype, names=names)


def scatter(data: Dataset, count: int, seed: int = 0) -> np.ndarray:
    """NIST's two starting points, and others drawn from a box of twice their range around them."""
    sizes = np.log(np.abs(data.starts))
    low, high = sizes.min(0) - np.log(2.0), sizes.max(0) + np.log(2.0)
    drawn = np.random.default_rng(seed).uniform(low, high, (max(count - 2, 0), len(low)))
    return np.concatenate([data.starts, np.sign(data.starts[0]) * np.exp(drawn)])


def levenberg_marquardt(kernel: Kernel, starts: np.ndarray, steps: int) -> Iterator[State]:
    """Minimise the sum of squares from many starts at once; one call of the kernel a step.

    Each start has a damping of its own: a fifth of it after a step that went down, four times as
    much after one that did not and is taken back. Columns are scaled to length 1 (Marquardt, 1963,
    "An algorithm for least-squares estimation of nonlinear parameters").
    """
    points = np.array(starts, dtype=np.float64)
    damping = np.full((len(points), 1, 1), 1e-3)
    slack = 1.0 + 100.0 * np.finfo(kernel.run(points[0])[0].dtype).eps
    residuals, jacobian, costs = measure(kernel, points)
    for _ in range(steps):
        yield State(points.copy(), costs.copy())
        trial = points - damped_step(residuals, jacobian, damping)
        trial_values = measure(kernel, trial)
        better = trial_values[2] <= slack * costs
        points[better] = trial[better]
        for old, new in zip((residuals, jacobian, costs), trial_values, strict=True):
            old[better] = new[better]
        damping *= np.where(better, 0.2, 4.0)[:, None, None]
        np.clip(damping, 1e-15, 1e15, out=damping)
    yield State(points, costs)


def measure(kernel: Kernel, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals, Jacobians and sums of squares; what is not finite costs infinity."""
    with np.errstate(all="ignore"):
        residuals, jacobian = (np.asarray(a, dtype=np.float64) for a in kernel.run(points))
        costs = np.sum(residuals**2, axis=1)
        valid = np.isfinite(costs) & np.isfinite(jacobian).all(axis=(1, 2))
    residuals[~valid], jacobian[~valid] = 0.0, 0.0
    return residuals, jacobian, np.where(valid, costs, np.inf)


def damped_step(residuals: np.ndarray, jacobian: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """The solutions of (JᵀJ + damping) step = Jᵀr, the columns of J scaled to length 1."""
    lengths = np.linalg.norm(jacobian, axis=1)
    lengths[lengths == 0.0] = 1.0
    scaled = jacobian / lengths[:, None, :]
    transposed = np.swapaxes(scaled, 1, 2)
    matrix = transposed @ scaled + (damping + 1e-15) * np.eye(jacobian.shape[2])
    return np.linalg.solve(matrix, transposed @ residuals[:, :, None])[:, :, 0] / lengths


def fit(data: Dataset, kernel: Kernel, starts: np.ndarray, steps: int, screen: Screen) -> Fit:
    """Fit from all starts with the kernel, and polish the best in float64 on the CPU."""

    def note(state: State) -> str:
        count = np.sum(state.costs <= 1.01 * data.residual_sum)
        least = f"{state.costs.min():.6g} in float32"
        return f"best sum of squares {least}; {count} starts at the certified one"

    with np.errstate(over="ignore"):
        states = levenberg_marquardt(kernel, starts, steps)
        passed = list(screen.progress(states, steps + 1, note))
    end = passed[-1]
    history = np.array([state.costs for state in passed])
    return Fit(data, kernel, starts, end, history, polished(data, end.parameters[best(data, end)]))


def best(data: Dataset, state: State) -> int:
    """The fit with the smallest sum of squares, to a hundredth; of several, the nearest to NIST's.

    NIST's second start is near the certified parameters. Terms of some models may change places:
    then there are several minima, all the same.
    """
    equal = state.costs <= 1.01 * state.costs.min()
    distances = np.linalg.norm(state.parameters / data.starts[1] - 1.0, axis=1)
    return int(np.argmin(np.where(equal, distances, np.inf)))


def polished(data: Dataset, start: np.ndarray) -> np.ndarray:
    """The minimum next to these parameters, in float64 on the CPU, its terms in NIST's order."""
    model = MODELS[data.name]

    def fitted(start: np.ndarray) -> State:
        parameters = curve_fit(lambda x, *b: model(x, b), data.x, data.y, start, device="cpu")[0]
        residuals = model(data.x, parameters) - data.y
        return State(parameters[None], np.array([np.sum(residuals**2)]))

    one, other = fitted(start), fitted(data.starts[1])
    same = np.isclose(one.costs, other.costs, rtol=1e-6)
    return (other if same or other.costs < one.costs else one).parameters[0]


def agreeing_digits(values: np.ndarray, certified: np.ndarray) -> np.ndarray:
    """The decimal digits to which numbers agree: -log10 of the relative error, at most 11."""
    error = np.abs(values - certified) / np.abs(certified)
    return np.clip(-np.log10(np.maximum(error, 1e-11)), 0.0, 11.0)
