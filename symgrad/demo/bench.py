"""``python -m symgrad bench``: some figures of a machine, beside those of machines known before.

The workloads are those of the repository's benchmarks, made small enough for any machine, and
figures are rates, so that sizes matter little. Which rates other machines have is in
``data/reference.json``, which `tools/generate_docs.py` makes of the benchmarks' results.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np

from symgrad.backend import backend_of
from symgrad.expr.loops.control import fori_loop
from symgrad.expr.tracers import functions as sg
from symgrad.front.fused import fused_forward_backward
from symgrad.optimize.least_squares import LevenbergMarquardt
from symgrad.optimize.minimize import minimize_from
from symgrad.report.progress import Screen
from symgrad.targets import Device, choose, device_array

SECONDS: Final = 3.0
"""How long a workload is repeated."""

PACKAGES: Final = "numpy", "wgpu", "llvmlite"

STEPS: Final = 1000
"""Steps of each simulation."""


@dataclass(frozen=True)
class Workload:
    """Something to measure: what, in which unit, how many of these a call has, and the call."""

    name: str
    unit: str
    count: int
    make: Callable[[Device, int], Callable[[], Any]]
    """The call, on a device, of this many points or rows."""

    inverse: bool = False
    """Whether the figure is the time of a call, in µs, and not a rate."""

    def figure(self, seconds: float, count: int) -> float:
        """The figure of a call that took so long."""
        return seconds * 1e6 if self.inverse else count / seconds


def rosenbrock(x: Any) -> Any:
    """The sum of 100 (x[i+1] - x[i]**2)**2 + (1 - x[i])**2."""
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(x.shape[0] - 1))


def one_point(device: Device, _: int) -> Callable[[], Any]:
    """A call for one point of Rosenbrock's function of 100 variables."""
    kernel, x = fused_forward_backward(100, rosenbrock, device=device), _some(100)
    return lambda: kernel.run(x)


def points(device: Device, count: int) -> Callable[[], Any]:
    """Rosenbrock's function of 10 variables at many points, which stay on the device."""
    kernel, x = fused_forward_backward(10, rosenbrock, device=device), _some(count, 10)
    if not device.is_gpu:
        return lambda: kernel.run(x)
    on_device = device_array(x, device)
    return lambda: np.asarray(kernel.run(on_device)[0][:1].numpy())


def bells(p: Any, row: Any) -> Any:
    """The squared residual of four Gaussians at a row."""
    model = sum(
        p[3 * k] * sg.exp(-(((row[0] - p[3 * k + 1]) / p[3 * k + 2]) ** 2)) for k in range(4)
    )
    return (model - row[1]) ** 2


def rows(device: Device, count: int) -> Callable[[], Any]:
    """A loss over rows that are bound, and its gradient: four Gaussians, 12 parameters."""
    table = np.random.default_rng(0).uniform(-3, 3, (count, 2)).astype(np.float32)
    bound = fused_forward_backward(12, bells, row=2, device=device).bind(table)
    p = _some(12)
    return lambda: bound.run(p)


def hunted(v: Any) -> Any:
    """The distance to a point after 1,000 steps of predators and prey, by Runge and Kutta."""
    h = 0.01

    def slope(x: Any, y: Any) -> tuple[Any, Any]:
        return v[0] * x - v[1] * x * y, v[3] * x * y - v[2] * y

    def step(_: Any, state: Any) -> Any:
        x, y = state
        a, b = slope(x, y)
        c, d = slope(x + h / 2 * a, y + h / 2 * b)
        e, f = slope(x + h / 2 * c, y + h / 2 * d)
        g, k = slope(x + h * e, y + h * f)
        return x + h / 6 * (a + 2 * c + 2 * e + g), y + h / 6 * (b + 2 * d + 2 * f + k)

    x, y = fori_loop(0, STEPS, step, (v[4], v[5]))
    return (x - 1) ** 2 + (y - 1) ** 2


def simulations(device: Device, count: int) -> Callable[[], Any]:
    """Gradients of many simulations."""
    usual = np.array([1.1, 0.4, 0.4, 0.1, 2.0, 1.0])
    draw = np.random.default_rng(0)
    problems = (usual * draw.uniform(0.9, 1.1, (count // STEPS, 6))).astype(np.float32)
    kernel = fused_forward_backward(6, hunted, device=device)
    return lambda: kernel.run(problems)


def spot(p: Any, row: Any) -> Any:
    """The residual of a round Gaussian on a background: amplitude, centre, width, offset."""
    x, y, seen = row
    return p[0] * sg.exp(-((x - p[1]) ** 2 + (y - p[2]) ** 2) / (2 * p[3] ** 2)) + p[4] - seen


def fits(device: Device, count: int) -> Callable[[], Any]:
    """Images of 11 x 11 pixels with one spot each, fitted by Levenberg and Marquardt's method."""
    draw = np.random.default_rng(1)
    y, x = (a.ravel().astype(np.float32) for a in np.mgrid[:11, :11])
    true = draw.uniform([500, 4, 4, 1.2, 20], [1500, 6, 6, 2, 40], (count, 5))
    a, x0, y0, width, offset = true.T[:, :, None]
    exact = a * np.exp(-((x - x0) ** 2 + (y - y0) ** 2) / (2 * width**2)) + offset
    images = draw.poisson(exact).astype(np.float32)
    start = np.full((count, 5), [0, 5, 5, 1.5, 0], np.float32)
    start[:, 0], start[:, 4] = np.ptp(images, axis=1), images.min(axis=1)
    data = {"shared": np.stack([x, y], axis=1), "own": images[:, :, None]}
    method = LevenbergMarquardt()
    return lambda: minimize_from(spot, 5, start, method, 50, device=device, **data)


def _some(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)


WORKLOADS: Final = (
    Workload("a call for one point, 100 variables", "µs", 1, one_point, inverse=True),
    Workload("gradients of Rosenbrock's function, 10 variables", "points/s", 1_000_000, points),
    Workload("loss over rows, 4 Gaussians, with gradient", "rows/s", 1_000_000, rows),
    Workload("Runge-Kutta steps, with gradients", "steps/s", 2_000 * STEPS, simulations),
    Workload("fits of 11 x 11 pixels, 5 parameters", "fits/s", 20_000, fits),
)

ON_A_GPU: Final = 8
"""How many times as much a GPU is given."""


def run_bench(
    screen: Screen, device: Any = None, seconds: float = SECONDS, scale: float = 1.0
) -> dict[str, Any]:
    """Measure all workloads on a device: ``report.json`` as a dict.

    Args:
        screen: where progress is shown.
        device: as everywhere.
        seconds: how long each workload is repeated; the least time of a call counts.
        scale: the part of the usual numbers of points, rows, steps and fits that a call has.
    """
    target = choose(device)
    references = reference()["gpu" if target.is_real_gpu else "cpu"]
    measured_rows: list[dict[str, Any]] = []

    def measured() -> Any:
        for workload in WORKLOADS:
            yield _measured(workload, target, seconds, scale, references.get(workload.name))

    def note(row: dict[str, Any]) -> str:
        return f"{row['work']}: {row['figure']:.4g} {row['unit']}"

    measured_rows.extend(screen.progress(measured(), len(WORKLOADS), note))
    return {"machine": machine(target), "rows": measured_rows}


def _measured(
    workload: Workload, target: Device, seconds: float, scale: float, baseline: Any
) -> dict[str, Any]:
    """One workload: its figure, the time of the first call, and the ratio to what is known."""
    large = ON_A_GPU if target.is_real_gpu else 1
    count = workload.count if workload.inverse else max(STEPS, int(workload.count * large * scale))
    begin = time.perf_counter()
    call = workload.make(target, count)
    call()
    first = time.perf_counter() - begin
    least, end = np.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - begin)
    figure = workload.figure(least, count)
    better = {} if baseline is None else _beside(workload, figure, baseline)
    row = {"work": workload.name, "unit": workload.unit, "figure": float(figure), "count": count}
    return row | {"first result, s": round(first, 3), **better}


def _beside(workload: Workload, figure: float, baseline: dict[str, Any]) -> dict[str, Any]:
    ratio = baseline["figure"] / figure if workload.inverse else figure / baseline["figure"]
    return {"reference": baseline["figure"], "of": baseline["device"], "times as fast": ratio}


def reference() -> dict[str, Any]:
    """The figures of machines known before, by kind of device and workload."""
    return json.loads(files("symgrad.demo").joinpath("data/reference.json").read_text("utf-8"))


def machine(target: Device) -> dict[str, Any]:
    """The measurements, with their device, driver, system and versions."""
    return {
        "device": str(target),
        "driver": _driver(target),
        "backend": target.backend,
        "processor": str(choose("cpu")),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {"symgrad": vars(sys.modules["symgrad"])["__version__"]}
        | {name: number for name in PACKAGES if (number := _version(name))},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _driver(target: Device) -> str:
    """The name of the driver, with its version if it has one."""
    owner = backend_of(target).owner
    return owner.driver if owner else f"LLVM, {_version('llvmlite')}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def page(report: dict[str, Any]) -> str:
    """A report as Markdown."""
    about = report["machine"]
    lines = [f"# symgrad on {about['device']}", ""]
    lines += [f"- {name}: {_shown(value)}" for name, value in about.items()]
    lines += ["", "| work | figure | reference | times as fast | first result |"]
    lines += ["|---|---:|---:|---:|---:|"]
    for row in report["rows"]:
        is_known = "reference" in row
        beside = f"{_rate(row['reference'], row['unit'])} ({row['of']})" if is_known else "none"
        ratio = f"{row['times as fast']:.2g}" if is_known else ""
        figure, first = _rate(row["figure"], row["unit"]), row["first result, s"]
        lines.append(f"| {row['work']} | {figure} | {beside} | {ratio} | {first:.2f} s |")
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> str:
    return (
        ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
    )


def _rate(value: float, unit: str) -> str:
    """A figure with its unit, such as 4.1 million points/s."""
    for size, word in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if value >= size:
            return f"{value / size:.3g} {word} {unit}"
    return f"{value:.3g} {unit}"


def write_report(report: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write ``symgrad-report.json`` and ``.md`` into a folder."""
    data, text = folder / "symgrad-report.json", folder / "symgrad-report.md"
    data.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    text.write_text(page(report), "utf-8")
    return data, text
