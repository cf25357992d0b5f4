"""Bundle adjustment: cameras and points found together, from where the cameras saw the points.

The camera is that of "Bundle Adjustment in the Large" (Agarwal et al., 2010): a rotation vector, a
shift, a focal length and two coefficients of distortion. Some points are taken for others, as by
every matching of images: Cauchy's loss sees to it that they hardly count.

    python examples/11_bundle_adjustment.py [--cameras 24] [--points 2000] [--output bundle.png]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

NOISE = 0.5
"""The standard deviation of what cameras see, in pixels."""

MISTAKEN = 0.05
"""The part of the sightings that belong to another point."""

VIEWS = 8
"""How many cameras see each point."""

Parameters = dict[str, np.ndarray]


def image(camera: Any, point: Any) -> np.ndarray:
    """Where a camera sees a point, for numbers and while tracing."""
    w, angle = camera[:3], np.sqrt(camera[:3] @ camera[:3])
    axis = w / angle
    x, y, z = point
    cross = np.array([axis[1] * z - axis[2] * y, axis[2] * x - axis[0] * z,
                      axis[0] * y - axis[1] * x])  # fmt: skip
    along = (axis @ point) * (1 - np.cos(angle)) * axis
    seen = np.cos(angle) * point + np.sin(angle) * cross + along + camera[3:6]
    flat = -seen[:2] / seen[2]
    square = flat @ flat
    return camera[6] * (1 + square * (camera[7] + square * camera[8])) * flat


def misfit(p: Any, r: Any) -> Any:
    """The residuals of a sighting: x and y, in pixels."""
    u, v = image(p.camera[r.camera], p.point[r.point])
    return [u - r.u, v - r.v]


@dataclass(frozen=True)
class Scene:
    """What there is, what was seen of it, and from where the fit starts."""

    true: Parameters
    start: Parameters
    rows: Parameters
    mistaken: np.ndarray


def knot(count: int, draw: np.random.Generator) -> np.ndarray:
    """Points on a trefoil knot, a little thick."""
    t = draw.uniform(0, 2 * np.pi, count)
    curve = [np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)]
    return np.stack(curve, axis=1) + draw.normal(0, 0.1, (count, 3))


def ring(count: int, draw: np.random.Generator) -> np.ndarray:
    """Cameras around the origin that look at it, along -z."""
    iteration = np.linspace(0, 2 * np.pi, count, endpoint=False) + 0.05
    found = np.empty((count, 9))
    for k, angle in enumerate(iteration):  # first about z by -angle, then tilted by a quarter turn
        half = 0.5 * np.array([np.pi / 2, -(angle + np.pi / 2)])
        (c, d), (s, e) = np.cos(half), np.sin(half)
        vector, real = np.array([-s * d, s * e, c * e]), c * d
        size = np.linalg.norm(vector)
        found[k, :3] = 2 * np.arctan2(size, real) * vector / size
    found[:, 3:6] = [0.0, 0.0, -9.0]
    found[:, 4] += draw.normal(0, 0.5, count)
    found[:, 6] = draw.normal(600, 5, count)
    found[:, 7:] = draw.normal(0, 0.01, (count, 2))
    return found


def scene(cameras: int, points: int, seed: int = 0) -> Scene:
    draw = np.random.default_rng(seed)
    true = {"camera": ring(cameras, draw), "point": knot(points, draw)}
    sees = np.argpartition(draw.random((points, cameras)), VIEWS - 1, axis=1)[:, :VIEWS]
    who, what = sees.ravel(), np.repeat(np.arange(points), VIEWS)
    mistaken = draw.random(len(who)) < MISTAKEN
    shown = np.where(mistaken, draw.integers(0, points, len(who)), what)
    pairs = np.concatenate([true["camera"][who], true["point"][shown]], axis=1)
    seen = sg.fused_forward(12, lambda v: image(v[:9], v[9:]), device="cpu", dtype="float64")
    u, v = (seen.run(pairs) + draw.normal(0, NOISE, (len(who), 2))).T
    off = np.array([0.02] * 3 + [0.1] * 3 + [10, 0.005, 0.005])
    start = {"camera": true["camera"] + off * draw.normal(size=(cameras, 9)),
             "point": true["point"] + draw.normal(0, 0.3, (points, 3))}  # fmt: skip
    return Scene(true, start, {"camera": who, "point": what, "u": u, "v": v}, mistaken)


def aligned(points: np.ndarray, to: np.ndarray) -> np.ndarray:
    """Points moved, turned and scaled to others: images do not tell where, and how large, all is.

    Umeyama, 1991, "Least-squares estimation of transformation parameters between two point
    patterns".
    """
    a, b = points - points.mean(axis=0), to - to.mean(axis=0)
    u, sizes, vt = np.linalg.svd(a.T @ b)
    return a @ (u @ vt) * (sizes.sum() / np.sum(a * a)) + to.mean(axis=0)


def error(points: np.ndarray, to: np.ndarray) -> float:
    """How far aligned points are from others, in the median."""
    return float(np.median(np.linalg.norm(aligned(points, to) - to, axis=1)))


def centres(cameras: np.ndarray) -> np.ndarray:
    """Where cameras stand: the points that they see at their own origin."""
    return np.array([iteration(-c[:3]) @ -c[3:6] for c in cameras])


def iteration(w: np.ndarray) -> np.ndarray:
    """The matrix of a rotation vector."""
    angle = np.linalg.norm(w)
    x, y, z = w / angle
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


def draw_picture(of: Scene, found: Any, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(13, 4.4), layout="constrained")
    before, after, errors = figure.subplots(1, 3)
    for ax, p, title in ((before, of.start, "start"), (after, found.x, "fit")):
        point, eye = p["point"], centres(p["camera"])
        ax.scatter(point[:, 0], point[:, 1], s=2, c=point[:, 2], cmap="viridis", lw=0)
        ax.plot(eye[:, 0], eye[:, 1], "^", color="#d1495b", ms=5)
        ax.set(title=title, aspect="equal", xticks=[], yticks=[])
    bins = np.linspace(-4, 4, 81)
    errors.hist(found.fun[~of.mistaken].ravel(), bins, density=True, color="#95bfd6")
    bell = np.exp(-0.5 * (bins / NOISE) ** 2) / (NOISE * np.sqrt(2 * np.pi))
    errors.plot(bins, bell, color="#2e6f95", label=f"noise of {NOISE} pixels")
    errors.set(xlabel="residuals of right matches, pixels", yticks=[])
    errors.legend(frameon=False)
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cameras", type=int, default=24)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--device")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-bundle.png")
    )
    given = parser.parse_args()

    of = scene(given.cameras, given.points)
    shapes = {name: block.shape for name, block in of.start.items()}
    model = sg.fused_least_squares(shapes, misfit, columns=list(of.rows))
    began = time.perf_counter()
    found = model.fit(of.start, of.rows, loss="cauchy", f_scale=2 * NOISE, device=given.device)
    seconds = time.perf_counter() - began

    right, wrong = (np.median(np.abs(found.fun[k])) for k in (~of.mistaken, of.mistaken))
    size = 1.4826 * right  # the standard deviation of a normal distribution with this median
    expected = NOISE * np.sqrt(1 - model.n_inputs / found.fun.size)
    before, after = (error(p["point"], of.true["point"]) for p in (of.start, found.x))
    print(f"{len(of.rows['u']):,} sightings, {model.n_inputs:,} parameters")
    print(f"{found.nit} steps, {seconds:.1f} s: {found.message}")
    print(f"residuals of right matches {size:.3f} pixels, expected {expected:.3f}")
    print(f"residuals of mistaken ones {wrong:.0f} pixels, in the median")
    print(f"points are off by {after:.4f}, in the median; at first it was {before:.2f}")
    draw_picture(of, found, given.output)

    assert found.success, found.message
    assert abs(size / expected - 1) < 0.1, "more, or less, than the noise"
    assert after < 0.05 * before, "the points are not where they ought to be"


if __name__ == "__main__":
    main()
