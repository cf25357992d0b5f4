"""Bundle adjustment: the camera of "Bundle Adjustment in the Large", its files, and drawn scenes.

Agarwal, Snavely, Seitz and Szeliski (2010), grail.cs.washington.edu/projects/bal. The file
optimize/dubrovnik-3-7-pre.txt is one of GTSAM's examples (BSD licence).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

DUBROVNIK = Path(__file__).parent / "optimize" / "dubrovnik-3-7-pre.txt"

Scene = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
"""Parameters, and the table of what was seen."""


def reprojection(p: Any, r: Any) -> Any:
    """Where a camera saw a point, less where it ought to: w, t, f, k1, k2; as it is traced."""
    c, x = p.camera[r.camera], p.point[r.point]
    w, square = c[:3], c[:3] @ c[:3]
    angle = np.sqrt(square)
    cross = np.array([w[1] * x[2] - w[2] * x[1], w[2] * x[0] - w[0] * x[2],
                      w[0] * x[1] - w[1] * x[0]])  # fmt: skip
    turned = np.cos(angle) * x + np.sin(angle) / angle * cross
    q = turned + (1.0 - np.cos(angle)) / square * (w @ x) * w + c[3:6]
    u, v = -q[0] / q[2], -q[1] / q[2]
    n = u * u + v * v
    scale = c[6] * (1.0 + n * (c[7] + n * c[8]))
    return [scale * u - r.u, scale * v - r.v]


def seen(cameras: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Where cameras (N, 9) see points (N, 3), by SciPy's rotations."""
    q = Rotation.from_rotvec(cameras[:, :3]).apply(points) + cameras[:, 3:6]
    flat = -q[:, :2] / q[:, 2:]
    n = np.sum(flat * flat, axis=1)
    return (cameras[:, 6] * (1 + n * (cameras[:, 7] + n * cameras[:, 8])))[:, None] * flat


def misfit(parameters: dict[str, np.ndarray], table: dict[str, np.ndarray]) -> np.ndarray:
    """The residuals (N, 2) in NumPy."""
    cameras, points = parameters["camera"][table["camera"]], parameters["point"][table["point"]]
    return seen(cameras, points) - np.stack([table["u"], table["v"]], axis=1)


def read_bal(path: Path) -> Scene:
    """A file of that collection."""
    words = path.read_text("utf-8").split()
    cameras, points, count = map(int, words[:3])
    rows = np.array(words[3 : 3 + 4 * count], float).reshape(count, 4)
    rest = np.array(words[3 + 4 * count :], float)
    parameters = {
        "camera": rest[: 9 * cameras].reshape(cameras, 9),
        "point": rest[9 * cameras :].reshape(points, 3),
    }
    table = {"camera": rows[:, 0].astype(int), "point": rows[:, 1].astype(int),
             "u": rows[:, 2], "v": rows[:, 3]}  # fmt: skip
    return parameters, table


def drawn(cameras: int, points: int, views: int, noise: float = 0.5, seed: int = 0) -> Scene:
    """Cameras on a ring look at points, each of which ``views`` of them see; and a start nearby."""
    draw = np.random.default_rng(seed)
    angle = np.linspace(0, 2 * np.pi, cameras, endpoint=False)
    eyes = np.stack([10 * np.cos(angle), 10 * np.sin(angle), draw.normal(0, 1, cameras)], axis=1)
    back = eyes / np.linalg.norm(eyes, axis=1, keepdims=True)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    iteration = np.stack([right, np.cross(back, right), back], axis=1)
    shift = -np.einsum("nij,nj->ni", iteration, eyes)
    inner = np.stack([draw.normal(500, 5, cameras), *draw.normal(0, 0.01, (2, cameras))], axis=1)
    true = np.concatenate([Rotation.from_matrix(iteration).as_rotvec(), shift, inner], axis=1)
    body = draw.uniform(-2, 2, (points, 3))
    who = np.argpartition(draw.random((points, cameras)), views - 1, axis=1)[:, :views].ravel()
    what = np.repeat(np.arange(points), views)
    image = seen(true[who], body[what]) + draw.normal(0, noise, (len(who), 2))
    off = np.array([0.01] * 3 + [0.05] * 3 + [5, 0.001, 0.001])
    start = {"camera": true + off * draw.normal(size=true.shape),
             "point": body + draw.normal(0, 0.05, body.shape)}  # fmt: skip
    return start, {"camera": who, "point": what, "u": image[:, 0], "v": image[:, 1]}
