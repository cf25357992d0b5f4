"""Fits and losses that no tolerance was chosen by, beside the classic problems.

NIST's data sets from around both of their starts, models with drawn data of several kinds of noise,
smooth losses, and the classic sums of squares from other starts.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from optimize.data_sets import CASES
from optimize.losses import Loss
from optimize.sums_of_squares import SQUARES, Squares

Model = Callable[..., Any]

MODELS: dict[str, tuple[Model, tuple[float, ...], float]] = {
    "Michaelis and Menten": (lambda x, a, b: a * x / (b + x), (3.0, 0.8), 5.0),
    "decay": (lambda x, a, b, c: a * np.exp(-b * x) + c, (2.5, 1.3, 0.5), 4.0),
    "two decays": (
        lambda x, a, b, c, d: a * np.exp(-b * x) + c * np.exp(-d * x), (2.0, 0.5, 1.0, 3.0), 5.0
    ),
    "peak": (
        lambda x, a, m, s, c: a * np.exp(-0.5 * ((x - m) / s) ** 2) + c, (4.0, 2.0, 0.4, 1.0), 4.0
    ),
    "logistic curve": (
        lambda x, a, b, c: a / (1 + np.exp(-b * (x - c))), (10.0, 1.5, 2.0), 4.0
    ),
    "Gompertz": (lambda x, a, b, c: a * np.exp(-b * np.exp(-c * x)), (5.0, 3.0, 1.2), 4.0),
    "sine": (lambda x, a, w, p, c: a * np.sin(w * x + p) + c, (2.0, 1.7, 0.4, 30.0), 6.0),
    "damped sine": (
        lambda x, a, b, w, p: a * np.exp(-b * x) * np.cos(w * x + p), (3.0, 0.3, 4.0, 0.7), 5.0
    ),
    "power": (lambda x, a, b, c: a * (x + 0.1) ** b + c, (2.0, 0.6, -1.0), 5.0),
    "line far off": (lambda x, a, b: a + b * (x + 1000.0), (-2000.0, 2.0), 5.0),
    "Lorentzian": (
        lambda x, a, m, w, c: a * w**2 / ((x - m) ** 2 + w**2) + c, (7.0, 1.5, 0.3, 100.0), 3.0
    ),
    "rational": (
        lambda x, a, b, c, d: (a + b * x) / (1 + c * x + d * x * x), (1.0, 2.0, 0.5, 0.3), 6.0
    ),
    "Hill": (lambda x, a, k, n: a * x**n / (k**n + x**n), (6.0, 2.0, 2.5), 8.0),
    "Arrhenius": (
        lambda x, a, e: np.exp(a - e / (1.0 + 0.3 * x)), (3.0, 4.0), 5.0
    ),
}  # fmt: skip
"""Models of x and their parameters, which data are drawn at, for x from 0 to an end."""

NOISE = {"exact": 0.0, "slight": 1e-3, "rough": 0.2}


def _drawn(name: str, noise: float) -> Squares:
    model, true, end = MODELS[name]
    draw = np.random.default_rng(zlib.crc32(f"{name} {noise}".encode()))
    x = np.linspace(0.02 * end, end, 30)
    y = model(x, *true)
    y = y + noise * np.std(y) * draw.normal(size=len(x))
    start = np.array(true) * draw.uniform(0.6, 1.6, len(true))
    return Squares(
        lambda v, row: model(row[0], *v) - row[1], tuple(start), (), np.stack([x, y], axis=1)
    )


def _certified(name: str, k: int) -> Squares:
    case = CASES[name]
    data = np.column_stack([np.atleast_2d(case.x).T, case.y])
    plain = np.ndim(case.x) == 1
    return Squares(
        lambda v, row: case.f(row[0] if plain else row[:-1], *v) - row[-1],
        tuple(case.starts[k]), (), data,
    )  # fmt: skip


def _powers(v: Any) -> Any:
    """A parabola through exponentials, and the product of its coefficients."""
    t = np.arange(1, 11) / 10
    return [v[0] * s + v[1] * s**2 - np.exp(0.5 * s) for s in t] + [v[2] - v[0] * v[1]]


def _madsen(v: Any) -> Any:
    return [v[0] ** 2 + v[1] ** 2 + v[0] * v[1], np.sin(v[0]), np.cos(v[1])]


def _chained(v: Any) -> Any:
    return [r for a, b in itertools.pairwise(v) for r in (10 * (b - a * a), 1 - a)]


def _saturated(v: Any) -> Any:
    return [np.tanh(v[0] * k - v[1]) - 0.3 * k + 0.1 * v[2] for k in (0.1, 0.5, 1.0, 2.0, 3.0)]


def _rows(seed: int, n: int, m: int) -> Callable[[Any], Any]:
    """Sines and squares of random combinations, with residuals that do not vanish."""
    draw = np.random.default_rng(seed)
    a, b = draw.normal(size=(m, n)), draw.normal(size=m)
    return lambda v: [np.sin(0.5 * (row @ v)) + 0.1 * (row @ v) ** 2 - c
                      for row, c in zip(a, b, strict=True)]  # fmt: skip


def _quartics(seed: int, n: int) -> Callable[[Any], Any]:
    draw = np.random.default_rng(seed)
    a, c = draw.normal(size=(n, n)), draw.normal(size=n)
    return lambda v: sum((row @ v) ** 4 for row in a) + 0.5 * (v @ v) + c @ v


def _mixture(seed: int) -> Callable[[Any], Any]:
    data = np.random.default_rng(seed).normal(size=25)
    return lambda v: (
        -sum(
            np.log(0.3 * np.exp(-0.5 * (s - v[0]) ** 2) + 0.7 * np.exp(-0.5 * (s - v[1]) ** 2))
            for s in data
        )
    )


def _logistic(seed: int, n: int) -> Callable[[Any], Any]:
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=(40, n)), draw.integers(0, 2, 40) * 2.0 - 1
    return lambda v: sum(np.log1p(np.exp(-s * (row @ v))) for row, s in zip(x, y, strict=True))


PROBLEMS: dict[str, Squares | Loss] = {
    **{f"{name}, start {k + 1}": _certified(name, k) for name in CASES for k in (0, 1)},
    **{f"{name}, {kind}": _drawn(name, noise) for name in MODELS for kind, noise in NOISE.items()},
    **{f"{name}, other starts": problem for name, problem in SQUARES.items()},
    "powers": Squares(_powers, (1.0, 1.0, 1.0), ()),
    "Madsen": Squares(_madsen, (3.0, 1.0), ()),
    "Rosenbrock, chained": Squares(_chained, (-1.2, 1.0, -0.5, 1.0, 0.8), ()),
    "saturated": Squares(_saturated, (0.5, 0.1, 0.2), ()),
    **{f"rows {n}": Squares(_rows(n, n, 3 * n), (0.7,) * n, ()) for n in (2, 3, 4, 6)},
    **{f"quartics {n}": Loss(_quartics(n, n), (1.0,) * n, np.nan) for n in (2, 3, 5, 8)},
    **{f"mixture {k}": Loss(_mixture(k), (-0.5, 0.8), np.nan) for k in range(3)},
    **{f"logistic {n}": Loss(_logistic(n, n), (0.5,) * n, np.nan) for n in (2, 4, 8)},
}
