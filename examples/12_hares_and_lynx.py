"""A differential equation fitted to data: hares and lynx in Canada, 1900 to 1920.

The pelts that the Hudson's Bay Company collected follow the equations of Lotka and Volterra
(Howard, 2009, "Modeling basics"; the fit of Carpenter, 2018, "Predator-prey population dynamics",
is met). Years are a scan, the steps of Runge and Kutta's method a loop within it, and so are the
gradient and the Jacobian. A thousand curves that the data allow, by the covariance of the fit, are
a single call.

    python examples/12_hares_and_lynx.py [--curves 1000] [--device cpu] [--output hares.png]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

HARES = np.array([
    30.0, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22.0, 25.4, 27.1, 40.3, 57.0, 76.6, 52.3, 19.5,
    11.2, 7.6, 14.6, 16.2, 24.7,
])  # fmt: skip
LYNX = np.array([
    4.0, 6.1, 9.8, 35.2, 59.4, 41.7, 19.0, 13.0, 8.3, 9.1, 7.4, 8.0, 12.3, 19.5, 45.7, 51.1, 29.7,
    15.8, 9.7, 10.1, 8.6,
])  # fmt: skip
"""Thousands of pelts in a year."""

STEPS = 20
"""Steps of Runge and Kutta's method in a year."""

CARPENTER = np.array([0.55, 0.028, 0.024, 0.80, 34.0, 5.9])
"""Means of the posterior: growth, hunting, feeding, hunger, hares and lynx in 1900."""


def slope(p: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """How hares x and lynx y change in a year."""
    return x * (p[0] - p[1] * y), y * (p[2] * x - p[3])


def step(p: Any, x: Any, y: Any, h: float = 1 / STEPS) -> tuple[Any, Any]:
    """A step of Runge and Kutta's method."""
    x1, y1 = slope(p, x, y)
    x2, y2 = slope(p, x + h / 2 * x1, y + h / 2 * y1)
    x3, y3 = slope(p, x + h / 2 * x2, y + h / 2 * y2)
    x4, y4 = slope(p, x + h * x3, y + h * y3)
    return x + h / 6 * (x1 + 2 * x2 + 2 * x3 + x4), y + h / 6 * (y1 + 2 * y2 + 2 * y3 + y4)


def residuals(v: Any) -> Any:
    """How far the logarithms are off in each year, all parameters being logarithms too."""
    p = np.exp(v)

    def year(now: Any, seen: Any) -> tuple[Any, Any]:
        miss = np.log(now[0] / seen[0]), np.log(now[1] / seen[1])
        return sg.fori_loop(0, STEPS, lambda _, at: step(p, *at), now), miss

    _, (hares, lynx) = sg.scan(year, (p[4], p[5]), (HARES, LYNX))
    return np.concatenate([hares, lynx])


def curves(v: Any) -> Any:
    """Both populations, four times a year."""
    p = np.exp(v)

    def quarter(now: Any, _: Any) -> tuple[Any, Any]:
        return sg.fori_loop(0, STEPS // 4, lambda _, at: step(p, *at), now), now

    _, (hares, lynx) = sg.scan(quarter, (p[4], p[5]), length=4 * len(HARES) - 3)
    return {"hares": hares, "lynx": lynx}


def draw(found: dict[str, np.ndarray], output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    ax = figure.subplots()
    years = 1900 + np.arange(len(HARES))
    fine = 1900 + np.arange(4 * len(HARES) - 3) / 4
    for name, data, color in (("hares", HARES, "#2e6f95"), ("lynx", LYNX, "#d1495b")):
        low, middle, high = np.quantile(found[name], [0.05, 0.5, 0.95], axis=0)
        ax.fill_between(fine, low, high, color=color, alpha=0.25, lw=0)
        ax.plot(fine, middle, color=color, label=name)
        ax.plot(years, data, "o", color=color, ms=4)
    ax.set(ylabel="thousands of pelts", xticks=years[::4])
    ax.legend()
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--curves", type=int, default=1000)
    parser.add_argument("--device")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-hares.png")
    )
    given = parser.parse_args()

    start = np.log([0.5, 0.02, 0.02, 0.9, 30.0, 6.0])
    device = given.device
    fit = sg.minimize(lambda v: np.sum(residuals(v) ** 2), start, method="BFGS", device=device)
    # of a single point, for which the CPU is the quicker one
    _, jacobian = sg.fused_jacobian(6, residuals, device="cpu").run(fit.x)
    variance = fit.fun / (2 * len(HARES) - 6)
    covariance = np.linalg.inv(jacobian.T.astype(float) @ jacobian) * variance
    names = "growth", "hunting", "feeding", "hunger", "hares in 1900", "lynx in 1900"
    for name, value, spread, known in zip(
        names, np.exp(fit.x), np.sqrt(np.diag(covariance)), CARPENTER, strict=True
    ):
        print(f"{name:14} {value:8.4f} ± {value * spread:<8.2g} literature {known:g}")

    points = np.random.default_rng(0).multivariate_normal(fit.x, covariance, given.curves)
    kernel = sg.fused_forward(6, curves, device=device)
    found = kernel.run(points)
    print(f"{given.curves:,} curves of {80 * STEPS // 4} steps; {kernel.stats.nodes} operations")
    draw(found, given.output)

    assert np.allclose(np.exp(fit.x), CARPENTER, rtol=0.08), "not the parameters of the literature"
    middle = np.median(found["hares"][:, ::4], axis=0)
    assert np.corrcoef(np.log(middle), np.log(HARES))[0, 1] > 0.9, "the curves miss the hares"


if __name__ == "__main__":
    main()
