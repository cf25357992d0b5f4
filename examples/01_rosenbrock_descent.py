"""Momentum descends the Rosenbrock valley from many starts; one kernel gives loss and gradient.

python examples/01_rosenbrock_descent.py [--device cpu] [--output rosenbrock.png]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import symgrad as sg


def rosenbrock(v):
    return np.sum(100 * (v[1:] - v[:-1] ** 2) ** 2 + (1 - v[:-1]) ** 2)


def descend(kernel: sg.Kernel, starts: np.ndarray, steps: int, rate=4e-4, momentum=0.92):
    """The positions after every step, (steps + 1, starts, n)."""
    x, velocity = starts, np.zeros_like(starts)
    path = [x]
    for _ in range(steps):
        _, gradients = kernel.run(x)
        velocity = momentum * velocity - rate * gradients
        x = x + velocity
        path.append(x)
    return np.array(path)


def draw(path: np.ndarray, kernel: sg.Kernel, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    grid = np.stack(np.meshgrid(np.linspace(-2, 2, 300), np.linspace(-1.4, 3, 300)), axis=-1)
    figure = Figure(figsize=(7, 6), layout="constrained")
    ax = figure.subplots()
    losses = kernel.run(grid)[0]
    ax.contourf(*np.moveaxis(grid, -1, 0), np.log10(losses + 1e-3), levels=24, cmap="Blues_r")
    ax.plot(path[:, :, 0], path[:, :, 1], color="#d1495b", lw=0.9, alpha=0.8)
    ax.plot(*path[0].T, "o", color="#d1495b", ms=3)
    ax.plot(1, 1, "*", color="gold", ms=16)
    ax.set(xlim=(-2, 2), ylim=(-1.4, 3), title=f"{path.shape[1]} starts, {len(path) - 1} steps")
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--starts", type=int, default=24)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-rosenbrock.png")
    )
    given = parser.parse_args()

    kernel = sg.fused_forward_backward(2, rosenbrock, device=given.device)
    starts = np.random.default_rng(0).uniform([-2, -1], [2, 3], (given.starts, 2))
    begin = time.perf_counter()
    path = descend(kernel, starts, given.steps)
    seconds = time.perf_counter() - begin

    losses, _ = kernel.run(path[-1])
    print(f"{given.steps} steps from {given.starts} starts in {seconds:.2f} s on {kernel.device}")
    print(f"largest loss at the end: {losses.max():.2g}, at {path[-1][losses.argmax()]}")
    draw(path, kernel, given.output)
    assert losses.max() < 1e-4, "a start has not reached the minimum"
    assert np.allclose(path[-1], 1, atol=0.02)


if __name__ == "__main__":
    main()
