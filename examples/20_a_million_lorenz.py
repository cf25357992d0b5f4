"""A million Lorenz systems: where each is after some time, for a plane of parameters.

The Rayleigh number goes across the picture and the Prandtl number up. Every pixel is a system of
its own, with steps that adapt to it, all in one kernel. Where neighbours stay together the colours
are smooth, and where the system is chaotic they are noise.

    python examples/20_a_million_lorenz.py [--side 1000] [--device cpu] [--output lorenz.png]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

TIME = 15.0
RAYLEIGH, PRANDTL = (1.0, 60.0), (2.0, 20.0)


def lorenz(t: Any, y: Any, rayleigh: Any, prandtl: Any) -> Any:
    """The convection that Lorenz (1963) cut down to three numbers."""
    return [
        prandtl * (y[1] - y[0]),
        y[0] * (rayleigh - y[2]) - y[1],
        y[0] * y[1] - 8.0 / 3.0 * y[2],
    ]


def end(v: Any) -> Any:
    """Where a system is at last, and whether it got there."""
    solution = sg.solve_ivp(
        lorenz, (0.0, TIME), [1.0, 1.0, 1.0], args=(v[0], v[1]), rtol=1e-5, atol=1e-5,
        max_steps=20_000,
    )  # fmt: skip
    return {"y": solution.y[:, -1], "steps": solution.steps, "status": solution.status}


def draw(x: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(8, 6.5), layout="constrained")
    ax = figure.subplots()
    image = ax.imshow(x, origin="lower", extent=(*RAYLEIGH, *PRANDTL), aspect="auto",
                      cmap="RdBu", vmin=-15, vmax=15)  # fmt: skip
    figure.colorbar(image, label=f"x at t = {TIME:g}")
    ax.set(xlabel="Rayleigh number", ylabel="Prandtl number")
    figure.savefig(output, dpi=110)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--side", type=int, default=1000)
    parser.add_argument("--device")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-lorenz.png")
    )
    asked = parser.parse_args()

    across, up = np.linspace(*RAYLEIGH, asked.side), np.linspace(*PRANDTL, asked.side)
    points = np.stack(np.meshgrid(across, up), axis=-1).astype(np.float32)
    kernel = sg.fused_forward(2, end, device=asked.device)
    kernel.run(points[:1, :1])
    start = time.perf_counter()
    ends = kernel.run(points)
    seconds = time.perf_counter() - start
    steps = ends["steps"]
    print(f"{steps.size:,} systems, {steps.sum():,.0f} steps, from {steps.min():.0f} to "
          f"{steps.max():.0f} each: {seconds:.2f} s")  # fmt: skip
    draw(ends["y"][..., 0], asked.output)

    assert (ends["status"] == 0).all(), "a system has failed"
    # well below the onset of chaos every system comes to rest where x² = 8/3 (Rayleigh - 1)
    calm = (points[..., 0] > 3) & (points[..., 0] < 12) & (points[..., 1] > 8)
    rest = 8 / 3 * (points[calm][:, 0] - 1)
    assert np.abs(ends["y"][calm][:, 0] ** 2 / rest - 1).max() < 1e-2, "not at rest"


if __name__ == "__main__":
    main()
