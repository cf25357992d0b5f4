"""A million starts of Newton's method on Himmelblau's function, coloured by where they end.

The kernel makes four whole Newton steps, gradient and Hessian derived while it is traced, and
counts those that it needed. The nine places where the gradient vanishes share the plane.

    python examples/03_himmelblau_basins.py [--device cpu] [--output basins.png]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import symgrad as sg

REACH = 6.0
COLOURS = np.array(
    [[46, 111, 149], [95, 168, 175], [57, 91, 80], [128, 164, 101],  # minima
     [209, 73, 91], [237, 174, 73], [227, 129, 102], [150, 78, 116],  # saddles
     [108, 108, 120]]  # the maximum
) / 255  # fmt: skip


def himmelblau(v):
    x, y = v
    return (x * x + y - 11) ** 2 + (x + y * y - 7) ** 2


def newton(v, steps=4):
    """(x, y, count) after some steps of Newton's method."""
    place, count = v[:2], v[2]
    for _ in range(steps):
        loss = himmelblau(place)
        g, h = sg.grad(loss, place), sg.hessian(loss, place)
        count = count + sg.where(g @ g > 1e-4, 1.0, 0.0)
        step = np.array([h[1, 1] * g[0] - h[0, 1] * g[1], h[0, 0] * g[1] - h[1, 0] * g[0]])
        place = place - step / (h[0, 0] * h[1, 1] - h[0, 1] * h[1, 0])
    return np.array([*place, count])


def starts(side: int) -> np.ndarray:
    """(side², 3): a grid over the plane, from the upper left, and a count of 0."""
    axis = np.linspace(-REACH, REACH, side, dtype=np.float32)
    x, y = np.meshgrid(axis, axis[::-1])
    return np.stack([x.ravel(), y.ravel(), np.zeros(side * side, np.float32)], axis=1)


def stationary_points(ends: np.ndarray, hessians: sg.Kernel) -> np.ndarray:
    """Where many starts end: minima first, then saddles, then the maximum."""
    found, counts = np.unique(np.round(ends[:, :2], 2), axis=0, return_counts=True)
    found = found[counts > len(ends) // 200]
    downwards = np.sum(np.linalg.eigvalsh(hessians.run(found)[2]) < 0, axis=1)
    return found[np.argsort(downwards, kind="stable")]


def nearest(ends: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each end the number of the nearest point, and the distance to it."""
    which, distance = np.zeros(len(ends), int), np.full(len(ends), np.inf, np.float32)
    for k, point in enumerate(points.astype(np.float32)):
        d = np.hypot(ends[:, 0] - point[0], ends[:, 1] - point[1])
        which, distance = np.where(d < distance, k, which), np.minimum(d, distance)
    return which, distance


def draw(which: np.ndarray, counts: np.ndarray, points: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    side = round(len(which) ** 0.5)
    light = np.clip(1.12 - 0.055 * np.minimum(counts, 14), 0.3, 1)[:, None]
    figure = Figure(figsize=(6, 6))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.imshow(
        (COLOURS[which] * light).reshape(side, side, 3), extent=(-REACH, REACH, -REACH, REACH)
    )
    ax.plot(*points[:4].T, "o", *points[4:8].T, "x", *points[8:].T, "^", color="white", mew=2)
    ax.set_axis_off()
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--side", type=int, default=1000, help="side² starts (%(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-basins.png")
    )
    given = parser.parse_args()

    kernel = sg.fused_forward(3, newton, device=given.device)
    ends = starts(given.side)
    begin = time.perf_counter()
    for _ in range(10):
        ends = kernel.run(ends)
    seconds = time.perf_counter() - begin
    print(f"{len(ends):,} starts, 40 steps each, in {seconds:.2f} s on {kernel.device}")

    hessians = sg.fused_hessian(2, himmelblau, device=given.device)
    points = stationary_points(ends, hessians)
    which, distance = nearest(ends, points)
    downwards = np.sum(np.linalg.eigvalsh(hessians.run(points)[2]) < 0, axis=1)
    for k, (x, y) in enumerate(points):
        kind = ("minimum", "saddle", "maximum")[downwards[k]]
        print(f"  {kind:8s} ({x:5.2f}, {y:5.2f})  {np.mean(which == k):6.1%} of the starts")
    draw(which, ends[:, 2], points, given.output)
    assert downwards.tolist() == [0] * 4 + [1] * 4 + [2], "four minima, four saddles, a maximum"
    assert np.mean(distance < 0.02) > 0.999, "starts that have arrived nowhere"


if __name__ == "__main__":
    main()
