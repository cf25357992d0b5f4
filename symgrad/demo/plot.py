"""The picture of a fit; needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from symgrad.demo.fitting import Fit, Model
from symgrad.errors import SymgradError
from symgrad.report.figure import new_figure

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
