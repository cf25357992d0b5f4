"""The demonstration: a data set of NIST fitted from hundreds of starting points at once.

One kernel holds the whole data set: for a vector of parameters it computes all residuals and all
their derivatives. Levenberg and Marquardt's method around it is a few lines of NumPy.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from symgrad.demo.fitting import MODELS, Fit, Model, agreeing_digits, fit, residual_kernel, scatter
from symgrad.demo.nist import Dataset, load
from symgrad.errors import SymgradError
from symgrad.front.kernels import Kernel
from symgrad.report.screen import Screen, new_figure
from symgrad.targets import choose

# --- the picture ----------------------------------------------------------------------------------


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


# --- the demonstration ----------------------------------------------------------------------------


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
