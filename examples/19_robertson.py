"""Robertson's reaction: how each species depends on each rate, over eleven powers of ten of time.

The problem is stiff: rates differ by nine powers of ten. Rodas5P solves it with the Jacobian that
symgrad derives, and the derivatives by all three rates are those of its steps, in forward mode,
beside differences of SciPy's solutions. A thousand sets of rates follow, in one call.

    python examples/19_robertson.py [--sets 1000] [--output robertson.png]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.integrate

import symgrad as sg

RATES = np.array([0.04, 3e7, 1e4])
TIMES = np.geomspace(1e-4, 1e7, 45)
NAMES = "A", "B", "C"


def reaction(t: Any, y: Any, k: Any) -> Any:
    """A becomes B, B and B become C, and B and C become A and C (Robertson, 1966)."""
    slow, fast, back = k[0] * y[0], k[1] * y[1] ** 2, k[2] * y[1] * y[2]
    return [back - slow, slow - fast - back, fast]


def course(k: Any) -> Any:
    """All species at all times, (3, 45)."""
    return sg.solve_ivp(
        reaction, (0.0, TIMES[-1]), [1.0, 0.0, 0.0], "Rodas5P", TIMES, args=(k,), rtol=1e-7,
        atol=np.array([1e-10, 1e-14, 1e-10]), max_steps=1000,
    ).y  # fmt: skip


def by_scipy(k: np.ndarray) -> np.ndarray:
    solution = scipy.integrate.solve_ivp(
        reaction, (0.0, TIMES[-1]), [1.0, 0.0, 0.0], "LSODA", TIMES, args=(k,), rtol=1e-11,
        atol=1e-16,
    )  # fmt: skip
    return solution.y


def draw(values: np.ndarray, slopes: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    colors = "#2e6f95", "#d1495b", "#e8a33d"
    scale = 1.0, 1e4, 1.0
    for y, by, name, color, factor in zip(values, slopes, NAMES, colors, scale, strict=True):
        label = name if factor == 1 else f"{name} x 10⁴"
        above.semilogx(TIMES, factor * y, color=color, label=label)
        for k, style in enumerate(("-", "--", ":")):
            relative = by[:, k] * RATES[k] / y
            below.semilogx(TIMES, relative, style, color=color, label=f"{name} by k{k + 1}")
    above.set(ylabel="concentration")
    below.set(xlabel="time", ylabel="d log y / d log k")
    above.legend()
    below.legend(ncols=3, fontsize=8)
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--device", help="taken, and not needed: it is in float64, on the CPU")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-robertson.png")
    )
    asked = parser.parse_args()

    kernel = sg.fused_jacobian(
        3, lambda k: course(k).reshape(-1), device="cpu", dtype="float64", mode="forward"
    )
    values, slopes = kernel.run(RATES)
    values, slopes = values.reshape(3, -1), slopes.reshape(3, -1, 3)
    draw(values, slopes, asked.output)

    rates = RATES * np.exp(0.5 * np.random.default_rng(0).normal(size=(asked.sets, 3)))
    start = time.perf_counter()
    all_values, all_slopes = kernel.run(rates)
    seconds = time.perf_counter() - start
    print(
        f"{asked.sets:,} sets of rates, with {all_slopes[0].size} derivatives each: {seconds:.2f} s"
    )

    exact = by_scipy(RATES)
    assert np.abs(values / exact - 1).max() < 1e-5, "not the solution"
    for k in range(3):
        step = np.eye(3)[k] * RATES * 1e-3
        differences = (by_scipy(RATES + step) - by_scipy(RATES - step)) / (2 * step[k])
        size = np.abs(differences).max(axis=1, keepdims=True)
        off = np.abs(slopes[:, :, k] - differences) / size
        assert off.max() < 1e-4, f"wrong derivatives by rate {k}"
    assert np.isfinite(all_values).all(), "a set of rates has failed"
    assert np.allclose(all_values.reshape(-1, 3, len(TIMES)).sum(axis=1), 1, atol=1e-6)


if __name__ == "__main__":
    main()
