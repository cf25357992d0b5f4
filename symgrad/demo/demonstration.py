"""The demonstration: a data set of NIST fitted from hundreds of starting points at once.

One kernel holds the whole data set: for a vector of parameters it computes all residuals and all
their derivatives. Levenberg and Marquardt's method around it is a few lines of NumPy.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, SymgradError
from symgrad.fit.curve_fit import curve_fit
from symgrad.front.fused import fused_jacobian
from symgrad.front.kernels import Kernel
from symgrad.pipeline import DType
from symgrad.report.progress import Screen, new_figure
from symgrad.targets import DeviceChoice, choose

# --- least squares around a kernel ----------------------------------------------------------------
# Least squares around a kernel: models of NIST's data sets, fitted from many starts at once.

# --- NIST's Statistical Reference Datasets for nonlinear regression, as NIST publishes them -------

DATA = files("symgrad.demo") / "data"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Data with a model, two starting points, and parameters certified to eleven digits.

    Invariants:
      1. ``x`` and ``y`` have shape (observations,).
      2. ``starts`` has shape (2, parameters); ``certified`` and ``deviations`` (parameters,).
    """

    name: str
    level: str
    model: str
    response: str
    predictor: str
    starts: np.ndarray
    certified: np.ndarray
    deviations: np.ndarray
    residual_sum: float
    x: np.ndarray
    y: np.ndarray

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters: b1, b2, ..."""
        return tuple(f"b{k + 1}" for k in range(len(self.certified)))


def available() -> tuple[str, ...]:
    """The names of the data sets that come with symgrad."""
    return tuple(sorted(f.name.removesuffix(".dat") for f in DATA.iterdir() if ".dat" in f.name))


def load(name: str) -> Dataset:
    """The data set of this name, upper and lower case being the same.

    Raises:
        InputError: if there is none, naming those there are.

    Example:
        >>> from symgrad.demo.demonstration import load
        >>> data = load("misra1a")
        >>> data.model, len(data.x)
        ('y = b1*(1-exp[-b2*x]) + e', 14)
    """
    file_name = {n.lower(): n for n in available()}.get(name.lower())
    if file_name is None:
        raise InputError(f"there is no data set {name!r}: choose one of {', '.join(available())}")
    return parse((DATA / f"{file_name}.dat").read_text("ascii"))


def parse(text: str) -> Dataset:
    """A data set with one predictor from the text of its ``.dat`` file.

    The head of the file names the lines on which starting values, certified values and data stand.

    Raises:
        InputError: if the text is no such file.
    """
    lines = text.splitlines()
    first, last = _lines_of(text, "Starting Values")
    values = np.array([_numbers(line.partition("=")[2]) for line in lines[first - 1 : last]])
    first, last = _lines_of(text, "Data")
    table = np.array([_numbers(line) for line in lines[first - 1 : last]])
    if values.ndim != 2 or values.shape[1] != 4 or table.ndim != 2 or table.shape[1] != 2:
        raise InputError("a data set needs two starts, certified values, and columns y and x")
    return Dataset(
        name=_matched(r"Dataset Name:\s+(\w+)", text),
        level=_matched(r"(\w+) Level of Difficulty", text).lower(),
        model=" ".join(_matched(r"\n\s+(y\s+=.*?)\n\s*\n", text).split()),
        response=_variable("y", text),
        predictor=_variable("x", text),
        starts=values[:, :2].T.copy(),
        certified=values[:, 2],
        deviations=values[:, 3],
        residual_sum=_numbers(_matched(r"Residual Sum of Squares:\s+(\S+)", text))[0],
        x=table[:, 1],
        y=table[:, 0],
    )


def _lines_of(text: str, what: str) -> tuple[int, int]:
    """The first and the last line, counted from 1, on which the file says that something stands."""
    pattern = rf"{what}\s+\(lines\s+(\d+)\s+to\s+(\d+)\)"
    return int(_matched(pattern, text, 1)), int(_matched(pattern, text, 2))


def _matched(pattern: str, text: str, group: int = 1) -> str:
    match = re.search(pattern, text, re.DOTALL)
    if match is None:
        raise InputError(f"this is not a NIST data set: nothing in it matches {pattern!r}")
    return match[group]


def _variable(name: str, text: str) -> str:
    """The description of a variable in the file: "electron mobility" for y, or just "y"."""
    match = re.search(rf"\({name} = ([^)]+)\)", text)
    return match[1].replace("[", "(").replace("]", ")") if match else name


def _numbers(line: str) -> list[float]:
    try:
        return [float(word) for word in line.split()]
    except ValueError as error:
        raise InputError(
            f"a line of the data set holds something other than numbers: {line}"
        ) from error


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


INK, FIT, LOST = "#22313f", "#d1495b", "#9aa5b1"


def plot_fit(fit: Fit, model: Model, path: Path) -> str:
    """Draw data, fit, residuals and convergence into a file; returns what to tell the user."""
    try:
        figure = new_figure(11, 4.8)
    except SymgradError as error:
        return f"No plot  {error}"
    axes = figure.subplot_mosaic(
        [["data", "steps"], ["rest", "steps"]], height_ratios=[3, 1], width_ratios=[1.35, 1]
    )
    _draw_data(axes["data"], fit, model)
    _draw_residuals(axes["rest"], fit, model)
    _draw_convergence(axes["steps"], fit)
    for ax in axes.values():
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    return f"Plot     {path}"


def _draw_data(ax: Any, fit: Fit, model: Model) -> None:
    data = fit.data
    x = np.linspace(data.x.min(), data.x.max(), 400)
    with np.errstate(all="ignore"):
        begun = [model(x, b) for b in fit.starts[:40]]
    lines = ax.plot(x, np.transpose(begun), color=LOST, lw=0.6, alpha=0.45, zorder=1)
    lines[0].set_label(f"{len(begun)} of {len(fit.starts)} starting points")
    ax.plot(x, model(x, fit.polished), color=FIT, lw=2, label="fit", zorder=5)
    ax.plot(data.x, data.y, "o", color=INK, ms=4, mfc="white", label="data", zorder=4)
    margin = 0.12 * np.ptp(data.y)
    ax.set_ylim(data.y.min() - margin, data.y.max() + margin)
    ax.set_ylabel(data.response)
    ax.set_title(f"{data.name}:  {data.model}", fontsize=9, loc="left", color=INK)
    ax.legend(frameon=False)
    ax.tick_params(labelbottom=False)


def _draw_residuals(ax: Any, fit: Fit, model: Model) -> None:
    data = fit.data
    ax.axhline(0.0, color=FIT, lw=1)
    ax.plot(data.x, data.y - model(data.x, fit.polished), "o", color=INK, ms=3)
    ax.set_xlabel(data.predictor)
    ax.set_ylabel("residual")


def _draw_convergence(ax: Any, fit: Fit) -> None:
    ratio = np.where(np.isfinite(fit.history), fit.history, np.nan) / fit.data.residual_sum
    shown = ratio[:, : min(ratio.shape[1], 300)]
    reached = fit.reached[: shown.shape[1]]
    arrived = fit.reached.sum()
    ax.plot(shown[:, ~reached], color=LOST, lw=0.6, alpha=0.5)
    ax.plot(shown[:, reached], color=FIT, lw=0.6, alpha=0.5)
    ax.plot([], [], color=FIT, label=f"{arrived} to the certified minimum")
    ax.plot([], [], color=LOST, label=f"{ratio.shape[1] - arrived} elsewhere")
    ax.axhline(1.0, color=INK, lw=1, ls=":")
    ax.set_yscale("log")
    ax.set_ylim(0.5, min(np.nanmax(shown), 1e9))
    ax.set_xlabel("step")
    ax.set_title("sum of squares / certified minimum", fontsize=9, loc="left", color=INK)
    ax.legend(frameon=False, title=f"{ratio.shape[1]} starts went", loc="upper right")


# --- the picture ----------------------------------------------------------------------------------


def run_demo(
    screen: Screen,
    dataset: str = "Thurber",
    device: Any = None,
    count: int = 500,
    steps: int = 60,
    output: Path | None = None,
) -> Fit:
    """Fit a data set, and show progress, parameters, speed and a picture.

    Raises:
        InputError: if there is no such data set. DeviceError: if there is no such device.
    """
    data = load(dataset)
    target = choose(device)
    introduce(screen, data)
    start = time.perf_counter()
    kernel = residual_kernel(data, target)
    starts = scatter(data, count)
    kernel.run(starts)
    ready = time.perf_counter() - start
    screen.say(f"Kernel   {describe(kernel)}")
    screen.say(f"         ready in {ready:.2f} s on {kernel.device}")
    screen.say(f"\nLevenberg-Marquardt from {len(starts)} starts at once, in float32:")
    result = fit(data, kernel, starts, steps, screen)
    show_parameters(screen, result)
    show_speed(screen, result)
    if output is not None:
        screen.say(plot_fit(result, MODELS[data.name], output))
    return result


def introduce(screen: Screen, data: Dataset) -> None:
    """Say what is fitted."""
    screen.say(
        f"Data     {data.name}, NIST Statistical Reference Datasets, {data.level} difficulty"
    )
    screen.say(f"         {len(data.x)} observations of {data.response} against {data.predictor}")
    screen.say(f"Model    {data.model}")


def describe(kernel: Kernel) -> str:
    """The size of the kernel in words."""
    stats = kernel.stats
    shaders = f", {stats.shaders} shaders" if stats.shaders > 1 else ""
    return f"residuals and Jacobian, {stats.operations:,} operations a point{shaders}"


def show_parameters(screen: Screen, result: Fit) -> None:
    """The parameters beside the certified ones, with the digits that agree."""
    data, single = result.data, result.end.parameters[result.best]
    digits = [agreeing_digits(values, data.certified) for values in (single, result.polished)]
    columns = (data.certified, single, digits[0], result.polished, digits[1])
    header = ("", "certified by NIST", "float32", "digits", "then float64, CPU", "digits")
    forms = ("{:.10e}", "{:.7e}", "{:.1f}", "{:.10e}", "{:.1f}")
    rows = [
        [name, *[form.format(value) for form, value in zip(forms, values, strict=True)]]
        for name, *values in zip(data.parameters, *columns, strict=True)
    ]
    screen.say()
    screen.table(header, rows)
    arrived = " and ".join(f"start {k + 1}" for k in (0, 1) if result.reached[k]) or "neither start"
    screen.say(
        f"\n{result.reached.sum()} of {len(result.starts)} starts reached the certified minimum, "
        f"a sum of squares of {data.residual_sum:.6g}; of NIST's own, {arrived}."
    )


def show_speed(screen: Screen, result: Fit) -> None:
    """Where the kernel ran, and how fast."""
    kernel, starts = result.kernel, result.starts
    many, one = seconds_a_call(kernel, starts), seconds_a_call(kernel, starts[0])
    took = kernel.stats.seconds
    to_wgsl = sum(seconds for stage, seconds in took.items() if stage != "compile")
    screen.say(f"\nRan on   {kernel.device}")
    screen.say(
        f"Made in  {to_wgsl:.3f} s from Python to WGSL, then compiled in {took['compile']:.2f} s"
    )
    screen.say(
        f"Speed    {many * 1e6:,.0f} µs a call with {len(starts)} points: "
        f"{len(starts) / many:,.0f} points/s; {one * 1e6:,.0f} µs with one point"
    )
    m, n = len(result.data.x), len(result.data.certified)
    screen.say(
        f"         (a point is {n} parameters in, {m} residuals and {m * n} derivatives out)"
    )


def seconds_a_call(kernel: Kernel, points: np.ndarray, budget: float = 0.3) -> float:
    """The time of the fastest of several calls."""
    fastest, end = np.inf, time.perf_counter() + budget
    while time.perf_counter() < end:
        start = time.perf_counter()
        with np.errstate(all="ignore"):
            kernel.run(points)
        fastest = min(fastest, time.perf_counter() - start)
    return fastest
