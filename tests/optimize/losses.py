"""Losses that optimisers are tried on, from their published definitions.

Most are in Molga and Smutnicki (2005, "Test functions for optimization needs"), in Jamil and Yang
(2013, "A literature survey of benchmark functions for global optimisation problems"), or in Dixon
and Szegő (1978, "The global optimisation problem: an introduction").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Loss:
    """A loss, where to start, and its lowest value."""

    loss: Callable[[Any], Any]
    start: tuple[float, ...]
    lowest: float

    @property
    def n(self) -> int:
        """The number of variables."""
        return len(self.start)

    def value(self, x: np.ndarray) -> float:
        """The loss, by NumPy."""
        return float(self.loss(x))


def _goldstein_price(v: Any) -> Any:
    x, y = v
    a = 19 - 14 * x + 3 * x**2 - 14 * y + 6 * x * y + 3 * y**2
    b = 18 - 32 * x + 12 * x**2 + 48 * y - 36 * x * y + 27 * y**2
    return (1 + (x + y + 1) ** 2 * a) * (30 + (2 * x - 3 * y) ** 2 * b)


def _branin(v: Any) -> Any:
    x, y = v
    curve = y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    return curve**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_HARTMANN_3 = (
    np.array([[3.0, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]]),
    1e-4
    * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]),
)
_HARTMANN_6 = (
    np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
              [17, 8, 0.05, 10, 0.1, 14]]),
    1e-4 * np.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
                     [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]),
)  # fmt: skip


def _hartmann(widths: np.ndarray, centres: np.ndarray) -> Callable[[Any], Any]:
    def loss(v: Any) -> Any:
        return -sum(
            c * np.exp(-np.sum(a * (v - p) ** 2))
            for c, a, p in zip(_WEIGHTS, widths, centres, strict=True)
        )

    return loss


_FOXHOLES = np.array(
    [[4, 4, 4, 4], [1, 1, 1, 1], [8, 8, 8, 8], [6, 6, 6, 6], [3, 7, 3, 7], [2, 9, 2, 9],
     [5, 5, 3, 3], [8, 1, 8, 1], [6, 2, 6, 2], [7, 3.6, 7, 3.6]]
)  # fmt: skip
_DEPTHS = np.array([0.1, 0.2, 0.2, 0.4, 0.4, 0.6, 0.3, 0.7, 0.5, 0.5])


def _shekel(m: int) -> Callable[[Any], Any]:
    def loss(v: Any) -> Any:
        pairs = zip(_FOXHOLES[:m], _DEPTHS[:m], strict=True)
        return -sum(1 / (np.sum((v - a) ** 2) + c) for a, c in pairs)

    return loss


def _levy(v: Any) -> Any:
    w = 1 + (v - 1) / 4
    middle = np.sum((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2))
    end = (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)
    return np.sin(np.pi * w[0]) ** 2 + middle + end


def _griewank(v: Any) -> Any:
    return np.sum(v * v) / 4000 - np.prod(np.cos(v / np.sqrt(np.arange(1, len(v) + 1)))) + 1


def _ackley(v: Any) -> Any:
    n = len(v)
    bowl = np.exp(-0.2 * np.sqrt(np.sum(v * v) / n))
    return -20 * bowl - np.exp(np.sum(np.cos(2 * np.pi * v)) / n) + 20 + np.e


def _zakharov(v: Any) -> Any:
    line = np.sum(0.5 * np.arange(1, len(v) + 1) * v)
    return np.sum(v * v) + line**2 + line**4


def _dixon_price(v: Any) -> Any:
    weights = np.arange(2, len(v) + 1)
    return (v[0] - 1) ** 2 + np.sum(weights * (2 * v[1:] ** 2 - v[:-1]) ** 2)


def _trid(v: Any) -> Any:
    return np.sum((v - 1) ** 2) - np.sum(v[1:] * v[:-1])


def _ellipsoid(v: Any) -> Any:
    return sum(np.sum(v[: k + 1]) ** 2 for k in range(len(v)))


def _cragg_levy(v: Any) -> Any:
    a, b, c, d = v
    return (np.exp(a) - b) ** 4 + 100 * (b - c) ** 6 + np.tan(c - d) ** 4 + a**8 + (d - 1) ** 2


def _paviani(v: Any) -> Any:
    logs = np.log(v - 2) ** 2 + np.log(10 - v) ** 2
    return np.sum(logs) - np.prod(v) ** 0.2


def _bohachevsky(v: Any) -> Any:
    x, y = v
    return x**2 + 2 * y**2 - 0.3 * np.cos(3 * np.pi * x) - 0.4 * np.cos(4 * np.pi * y) + 0.7


def _drop(v: Any) -> Any:
    r = np.sum(v * v)
    return 0.5 + (np.sin(r) ** 2 - 0.5) / (1 + 0.001 * r) ** 2


def _six_humps(v: Any) -> Any:
    x, y = v
    return (4 - 2.1 * x**2 + x**4 / 3) * x**2 + x * y + (4 * y**2 - 4) * y**2


def _michalewicz(v: Any) -> Any:
    return -np.sum(np.sin(v) * np.sin(np.arange(1, len(v) + 1) * v**2 / np.pi) ** 20)


LOSSES: dict[str, Loss] = {
    "Goldstein and Price": Loss(_goldstein_price, (-0.5, 0.5), 3.0),
    "Branin": Loss(_branin, (-2.0, 5.0), 0.3978873577),
    "Hartmann, 3": Loss(_hartmann(*_HARTMANN_3), (0.5,) * 3, -3.8627797869),
    "Hartmann, 6": Loss(_hartmann(*_HARTMANN_6), (0.5,) * 6, -3.3223680114),
    "Shekel, 5": Loss(_shekel(5), (1.0, 3.0, 5.0, 6.0), -10.1531996791),
    "Shekel, 7": Loss(_shekel(7), (0.0, 2.0, 7.0, 9.0), -10.4029405668),
    "Shekel, 10": Loss(_shekel(10), (3.0, 5.0, 4.5, 2.0), -10.5364098167),
    "six-hump camel": Loss(_six_humps, (-1.5, 0.8), -1.0316284535),
    "three-hump camel": Loss(
        lambda v: 2 * v[0] ** 2 - 1.05 * v[0] ** 4 + v[0] ** 6 / 6 + v[0] * v[1] + v[1] ** 2,
        (1.2, -1.0), 0.0,
    ),
    "Himmelblau": Loss(
        lambda v: (v[0] ** 2 + v[1] - 11) ** 2 + (v[0] + v[1] ** 2 - 7) ** 2, (0.0, 0.0), 0.0
    ),
    "Booth": Loss(
        lambda v: (v[0] + 2 * v[1] - 7) ** 2 + (2 * v[0] + v[1] - 5) ** 2, (-5.0, 5.0), 0.0
    ),
    "Matyas": Loss(lambda v: 0.26 * (v @ v) - 0.48 * v[0] * v[1], (7.0, -3.0), 0.0),
    "McCormick": Loss(
        lambda v: np.sin(v[0] + v[1]) + (v[0] - v[1]) ** 2 - 1.5 * v[0] + 2.5 * v[1] + 1,
        (0.0, 0.0), -1.9132229550,
    ),
    "Easom": Loss(
        lambda v: -np.cos(v[0]) * np.cos(v[1]) * np.exp(-np.sum((v - np.pi) ** 2)), (2.5, 4.0), -1.0
    ),
    "Rastrigin": Loss(
        lambda v: np.sum(v * v - 10 * np.cos(2 * np.pi * v) + 10), (1.3, -2.2, 0.4), 0.0
    ),
    "Ackley": Loss(_ackley, (1.5, -0.7), 0.0),
    "Griewank": Loss(_griewank, (4.0, -6.0, 2.0), 0.0),
    "Levy": Loss(_levy, (-3.0, 2.5, 4.0), 0.0),
    "Styblinski and Tang": Loss(
        lambda v: 0.5 * np.sum(v**4 - 16 * v**2 + 5 * v), (-1.0, 1.0, 4.0), -117.4984971
    ),
    "Zakharov": Loss(_zakharov, (2.0, -1.0, 3.0), 0.0),
    "Dixon and Price": Loss(_dixon_price, (3.0, -2.0, 1.0, 2.0), 0.0),
    "Bohachevsky": Loss(_bohachevsky, (0.6, -0.5), 0.0),
    "Schaffer": Loss(_drop, (1.0, 0.5), 0.0),
    "Michalewicz": Loss(_michalewicz, (2.0, 1.5), -1.8013034),
    "cube": Loss(lambda v: 100 * (v[1] - v[0] ** 3) ** 2 + (1 - v[0]) ** 2, (-1.2, 1.0), 0.0),
    "Zettl": Loss(lambda v: (v @ v - 2 * v[0]) ** 2 + v[0] / 4, (1.0, 1.0), -0.0037912372),
    "Aluffi-Pentini": Loss(
        lambda v: (v[0] ** 4 / 2 - v[0] ** 2 + v[0] / 5 + v[1] ** 2) / 2, (0.5, 2.0), -0.3523860738
    ),
    "Trid": Loss(_trid, (1.0,) * 6, -50.0),
    "rotated ellipsoid": Loss(_ellipsoid, (2.0, -3.0, 5.0, 1.0), 0.0),
    "Cragg and Levy": Loss(_cragg_levy, (1.0, 2.0, 2.0, 2.0), 0.0),
    "Engvall": Loss(
        lambda v: v[0] ** 4 + v[1] ** 4 + 2 * (v[0] * v[1]) ** 2 - 4 * v[0] + 3, (0.5, 2.0), 0.0
    ),
    "Treccani": Loss(lambda v: v[0] ** 2 * (v[0] + 2) ** 2 + v[1] ** 2, (-0.9, 1.5), 0.0),
    "exponential": Loss(lambda v: -np.exp(-0.5 * (v @ v)), (0.9, -0.8, 0.5), -1.0),
    "Paviani": Loss(_paviani, (5.0,) * 4, 9.1000801859),
    "Sphere": Loss(lambda v: v @ v, (4.0, -3.0, 2.0), 0.0),
}  # fmt: skip
