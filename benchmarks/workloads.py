"""The functions that are measured; ``m`` is the module whose sin, exp, ... they use."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from typing import Any

import symgrad as sg

Loss = Callable[[Any], Any]


def chain(x: Any, m: Any = sg) -> Any:
    """The dense chain: every step uses the last one twice, so as a tree it has 2**n leaves."""
    z = x[0]
    for i in range(x.shape[0]):
        z = m.sin(z * x[i] + z)
    return z


def rosenbrock(x: Any, m: Any = sg) -> Any:
    """The sum of 100 (x[i+1] - x[i]**2)**2 + (1 - x[i])**2."""
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(x.shape[0] - 1))


def gaussians(rows: int) -> Callable[..., Any]:
    """Squared residuals of 4 Gaussians, 12 parameters, summed over some rows of data."""
    draw = random.Random(1)
    data = [(round(draw.uniform(-3, 3), 3), round(draw.uniform(0, 2), 3)) for _ in range(rows)]

    def loss(p: Any, m: Any = sg) -> Any:
        total = 0
        for t, y in data:
            bells = [
                p[3 * k] * m.exp(-(((t - p[3 * k + 1]) / p[3 * k + 2]) ** 2)) for k in range(4)
            ]
            total = total + (sum(bells) - y) ** 2
        return total

    return loss


def reprojection(v: Any, m: Any = sg) -> Any:
    """The squared reprojection error of the "bundle adjustment in the large" camera.

    v is a rotation vector, a translation, f, k1, k2, and then a point; the observation is fixed.
    """
    w, t, (f, k1, k2), x = (
        [v[0], v[1], v[2]], [v[3], v[4], v[5]], [v[6], v[7], v[8]], [v[9], v[10], v[11]],
    )  # fmt: skip
    angle = m.sqrt(w[0] * w[0] + w[1] * w[1] + w[2] * w[2])
    k = [w_i / angle for w_i in w]
    cosine, sine = m.cos(angle), m.sin(angle)
    cross = [k[1] * x[2] - k[2] * x[1], k[2] * x[0] - k[0] * x[2], k[0] * x[1] - k[1] * x[0]]
    along = (k[0] * x[0] + k[1] * x[1] + k[2] * x[2]) * (1 - cosine)
    p = [x[i] * cosine + cross[i] * sine + k[i] * along + t[i] for i in range(3)]
    a, b = -p[0] / p[2], -p[1] / p[2]
    r2 = a * a + b * b
    scale = f * (1 + k1 * r2 + k2 * r2 * r2)
    return (scale * a - 0.25) ** 2 + (scale * b + 0.5) ** 2


def network(p: Any, m: Any = sg) -> Any:
    """The squared error of a 2-16-16-1 network with tanh at one sample; 337 parameters."""
    layer, at = [0.3, -0.7], 0
    for width in (16, 16, 1):
        size = len(layer)
        sums = [
            sum(p[at + j * size + i] * layer[i] for i in range(size)) + p[at + width * size + j]
            for j in range(width)
        ]
        at += width * (size + 1)
        layer = [m.tanh(s) for s in sums] if width > 1 else sums
    return (layer[0] - 0.5) ** 2


def lotka_volterra(steps: int) -> Callable[..., Any]:
    """The squared distance to a target after that many RK4 steps of predators and prey.

    v is (alpha, beta, gamma, delta, prey, predators).
    """

    def slope(v: Any, x: Any, y: Any) -> tuple[Any, Any]:
        return v[0] * x - v[1] * x * y, v[3] * x * y - v[2] * y

    def loss(v: Any, m: Any = sg) -> Any:
        h, x, y = 0.001, v[4], v[5]
        for _ in range(steps):
            a1, b1 = slope(v, x, y)
            a2, b2 = slope(v, x + h / 2 * a1, y + h / 2 * b1)
            a3, b3 = slope(v, x + h / 2 * a2, y + h / 2 * b2)
            a4, b4 = slope(v, x + h * a3, y + h * b3)
            x = x + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
            y = y + h / 6 * (b1 + 2 * b2 + 2 * b3 + b4)
        return (x - 1) ** 2 + (y - 2) ** 2

    return loss


def logistic(steps: int) -> Callable[..., Any]:
    """That many steps of the logistic map z = r z (1 - z); v is (r, z)."""

    def loss(v: Any, m: Any = sg) -> Any:
        r, z = v[0], v[1]
        for _ in range(steps):
            z = r * z * (1 - z)
        return z

    return loss


def random_dag(operations: int, seed: int = 0) -> Loss:
    """That many random operations on recent values, and one time in 20 on any value.

    What no operation used is summed up in the end, so nothing is dropped.
    """
    kinds = ["add", "sub", "mul", "mul", "sin", "tanh", "square", "scaled"]

    def loss(x: Any) -> Any:
        draw = random.Random(seed)
        values = list(x)
        free = dict.fromkeys(range(len(values)))
        for _ in range(operations):
            kind, i, j = draw.choice(kinds), _some(draw, values), _some(draw, values)
            free.pop(i, None)
            if kind in ("add", "sub", "mul"):
                free.pop(j, None)
            free[len(values)] = None
            values.append(_operation(kind, values[i], values[j], draw))
        return sum(values[i] for i in free)

    return loss


def _some(draw: random.Random, values: Any) -> int:
    recent = min(50, len(values))
    back = draw.randrange(recent if draw.random() < 0.95 else len(values))
    return len(values) - 1 - back


def _operation(kind: str, a: Any, b: Any, draw: random.Random) -> Any:
    if kind == "scaled":
        return round(draw.uniform(0.5, 2), 2) * a
    if kind == "square":
        return a * a
    if kind in ("sin", "tanh"):
        return getattr(sg, kind)(a)
    return {"add": operator.add, "sub": operator.sub, "mul": operator.mul}[kind](a, b)
