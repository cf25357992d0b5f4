"""Where four optimisers end, from a grid of starts, each run whole inside one kernel.

kernel.minimize takes all starts at once and lets each go on until its gradient vanishes. Colours
tell the four minima of Himmelblau's function apart, shades how many steps it took: light for the
method's quickest starts, dark for its slowest. Newton's method makes the Hessian positive definite
before it factors it: unlike the bare steps of example 03, it goes downhill and stops at no saddle.

    python examples/08_basins_of_minimize.py [--device cpu] [--output minimize.png]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

REACH = 6.0
MINIMA = np.array([(3, 2), (-2.805118, 3.131313), (-3.779310, -3.283186), (3.584428, -1.848127)])
COLOURS = np.array([[46, 111, 149], [209, 73, 91], [237, 174, 73], [128, 164, 101]]) / 255
METHODS: dict[str, sg.Method] = {
    "gradient descent": sg.GradientDescent(lr=0.002),
    "Adam": sg.Adam(lr=0.3),
    "L-BFGS": sg.LBFGS(),
    "Newton": sg.Newton(),
}


def himmelblau(v):
    x, y = v
    return (x * x + y - 11) ** 2 + (x + y * y - 7) ** 2


def grid(side: int) -> np.ndarray:
    """(side², 2): starts all over the plane, from the upper left."""
    axis = np.linspace(-REACH, REACH, side, dtype=np.float32)
    x, y = np.meshgrid(axis, axis[::-1])
    return np.stack([x.ravel(), y.ravel()], axis=1)


def basin(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each end the number of the nearest minimum, and the distance to it."""
    distances = np.linalg.norm(ends[:, None] - MINIMA, axis=2)
    return distances.argmin(axis=1), distances.min(axis=1)


def draw(runs: dict[str, Any], output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(8, 8.4), layout="constrained")
    for ax, (name, run) in zip(figure.subplots(2, 2).flat, runs.items(), strict=True):
        side = round(len(run.x) ** 0.5)
        which, _ = basin(run.x)
        quickest, slowest = np.percentile(run.nit, (0.5, 99.5))
        slow = np.log((run.nit + 1) / (quickest + 1)) / np.log((slowest + 1) / (quickest + 1))
        light = np.clip(1.15 - 0.8 * slow, 0.3, 1.15)[:, None]
        picture = np.minimum(COLOURS[which] * light, 1).reshape(side, side, 3)
        ax.imshow(picture, extent=(-REACH, REACH, -REACH, REACH))
        ax.plot(*MINIMA.T, "o", color="white", mfc="none", mew=2)
        ax.set_title(f"{name}: {np.median(run.nit):.0f} steps in the median")
        ax.set_axis_off()
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--side", type=int, default=500, help="side² starts (%(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-minimize.png")
    )
    given = parser.parse_args()

    kernel = sg.fused_forward_backward(2, himmelblau, device=given.device)
    starts = grid(given.side)
    runs: dict[str, Any] = {}
    for name, method in METHODS.items():
        begin = time.perf_counter()
        runs[name] = run = kernel.minimize(starts, method, steps=3000, tol=1e-3)
        seconds = time.perf_counter() - begin
        which, distance = basin(run.x)
        shares = " ".join(f"{np.mean(which == k):6.1%}" for k in range(4))
        print(f"{name:16s} {len(starts):,} starts, {run.nit.sum():,} steps in {seconds:.2f} s; "
              f"ends {shares}; {np.mean(distance < 1e-3):.2%} at a minimum")  # fmt: skip
    draw(runs, given.output)
    for name, run in runs.items():
        _, distance = basin(run.x)
        assert np.mean(distance < 1e-3) > 0.99, f"{name}: starts that have arrived nowhere"
        assert np.all(run.fun[distance < 1e-3] < 1e-4)


if __name__ == "__main__":
    main()
