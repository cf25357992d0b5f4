"""The joint angles of a planar arm for hundreds of targets at once, by damped least squares.

python examples/02_inverse_kinematics.py [--device cpu] [--output arm.png]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import symgrad as sg

LENGTHS = np.array([0.9, 0.8, 0.7, 0.5, 0.4])


def joints(angles):
    """Where the joints and the hand are, for angles relative to the limb before."""
    x, y, direction, places = 0.0, 0.0, 0.0, []
    for length, angle in zip(LENGTHS, angles, strict=True):
        direction = direction + angle
        x, y = x + length * np.cos(direction), y + length * np.sin(direction)
        places.append((x, y))
    return places


def hand(angles):
    return joints(angles)[-1]


def heart(count: int) -> np.ndarray:
    """Targets along a heart, within reach of the arm."""
    t = np.linspace(0, 2 * np.pi, count, endpoint=False)
    x = 16 * np.sin(t) ** 3
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([0.085 * x + 0.4, 0.085 * y + 1.4], axis=1)


def solve(kernel: sg.Kernel, targets: np.ndarray, steps: int = 40, damping=0.02) -> np.ndarray:
    """Angles (targets, joints): steps Jᵀ (J Jᵀ + damping)⁻¹ error, the shortest that close it."""
    angles = np.full((len(targets), len(LENGTHS)), 0.5)
    for _ in range(steps):
        places, jacobian = kernel.run(angles)  # (B, 2) and (B, 2, joints)
        error = targets - places
        square = jacobian @ np.swapaxes(jacobian, 1, 2) + damping * np.eye(2)
        push = np.linalg.solve(square, error[:, :, None])
        angles = angles + np.clip(np.swapaxes(jacobian, 1, 2) @ push, -0.5, 0.5)[:, :, 0]
    return angles


def draw(angles: np.ndarray, targets: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(6, 6), layout="constrained")
    ax = figure.subplots()
    places = np.array([(np.zeros((2, len(angles)))), *joints(angles.T)])  # (joints + 1, 2, B)
    shown = places[:, :, :: max(len(angles) // 18, 1)]
    ax.plot(shown[:, 0], shown[:, 1], "-o", color="#22313f", lw=1, ms=2.5, alpha=0.5)
    ax.plot(*targets.T, ".", color="#d1495b", ms=5)
    ax.plot(0, 0, "s", color="#22313f", ms=10)
    ax.set(aspect="equal", title=f"{len(targets)} targets, {len(LENGTHS)} joints")
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--targets", type=int, default=2000)
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-arm.png")
    )
    given = parser.parse_args()

    kernel = sg.fused_jacobian(len(LENGTHS), hand, device=given.device)
    targets = heart(given.targets)
    begin = time.perf_counter()
    angles = solve(kernel, targets)
    seconds = time.perf_counter() - begin

    misses = np.linalg.norm(kernel.run(angles)[0] - targets, axis=1)
    print(f"{len(targets)} targets in {seconds:.2f} s on {kernel.device}")
    print(
        f"the hand misses its target by {misses.max():.1e} of the arm's {LENGTHS.sum():.1f} at most"
    )
    draw(angles, targets, given.output)
    assert misses.max() < 1e-4, "the arm does not reach a target"


if __name__ == "__main__":
    main()
