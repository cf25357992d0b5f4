"""Differential equations that solvers are compared on, written for NumPy, JAX and CasADi alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Problem:
    """``fun(t, y, k)`` with rates k, from ``y0`` at 0 to ``end``; errors count beside ``floor``."""

    fun: Callable[[Any, Any, Any], list[Any]]
    y0: Sequence[float]
    end: float
    rates: Sequence[float]
    floor: float = 1e-6

    sums: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Rates that are the sum of two others, as what one state loses others gain."""

    def sets(self, count: int) -> np.ndarray:
        """Sets (count, rates) of rates that differ by a tenth."""
        draw = np.random.default_rng(0)
        drawn = np.array(self.rates) * np.exp(0.1 * draw.normal(size=(count, len(self.rates))))
        for k, (i, j) in self.sums.items():
            drawn[:, k] = drawn[:, i] + drawn[:, j]
        return drawn


def robertson(t: Any, y: Any, k: Any) -> list[Any]:
    slow, fast, back = k[0] * y[0], k[1] * y[1] * y[1], k[2] * y[1] * y[2]
    return [back - slow, slow - fast - back, fast]


def hires(t: Any, y: Any, k: Any) -> list[Any]:
    light = k[9] * y[5] * y[7]
    return [
        -k[0] * y[0] + k[1] * y[1] + k[2] * y[2] + k[3],
        k[0] * y[0] - k[4] * y[1],
        -k[5] * y[2] + k[1] * y[3] + k[6] * y[4],
        k[2] * y[1] + k[0] * y[2] - k[7] * y[3],
        -k[8] * y[4] + k[1] * y[5] + k[1] * y[6],
        -light + k[10] * y[3] + k[0] * y[4] - k[1] * y[5] + k[10] * y[6],
        light - k[11] * y[6],
        -light + k[11] * y[6],
    ]


def pollu(t: Any, y: Any, k: Any) -> list[Any]:
    pairs = (
        (0,), (1, 3), (4, 1), (6,), (6,), (6, 5), (8,), (8, 5), (10, 1), (10, 0), (12,), (9, 1),
        (13,), (0, 5), (2,), (3,), (3,), (15,), (15,), (16, 5), (18,), (18,), (0, 3), (18, 0),
        (19,),
    )  # fmt: skip
    r = []
    for rate, species in zip(range(len(pairs)), pairs, strict=True):
        product = k[rate] * y[species[0]]
        r.append(product if len(species) == 1 else product * y[species[1]])
    return [
        -r[0] - r[9] - r[13] - r[22] - r[23] + r[1] + r[2] + r[8] + r[10] + r[11] + r[21] + r[24],
        -r[1] - r[2] - r[8] - r[11] + r[0] + r[20],
        -r[14] + r[0] + r[16] + r[18] + r[21],
        -r[1] - r[15] - r[16] - r[22] + r[14],
        -r[2] + r[3] * 2 + r[5] + r[6] + r[12] + r[19],
        -r[5] - r[7] - r[13] - r[19] + r[2] + r[17] * 2,
        -r[3] - r[4] - r[5] + r[12],
        r[3] + r[4] + r[5] + r[6],
        -r[6] - r[7],
        -r[11] + r[6] + r[8],
        -r[8] - r[9] + r[7] + r[10],
        r[8],
        -r[10] + r[9],
        -r[12] + r[11],
        r[13],
        -r[17] - r[18] + r[15],
        -r[19],
        r[19],
        -r[20] - r[21] - r[23] + r[22] + r[24],
        -r[24] + r[23],
    ]


def oregonator(t: Any, y: Any, k: Any) -> list[Any]:
    return [
        k[0] * (y[1] + y[0] * (1 - k[1] * y[0] - y[1])),
        (y[2] - (1 + y[0]) * y[1]) / k[0],
        k[2] * (y[0] - y[2]),
    ]


def van_der_pol(t: Any, y: Any, k: Any) -> list[Any]:
    return [y[1], k[0] * (1 - y[0] * y[0]) * y[1] - y[0]]


def e5(t: Any, y: Any, k: Any) -> list[Any]:
    first, second, third = k[0] * y[0], k[1] * y[0] * y[2], k[3] * k[2] * y[1] * y[2]
    gain, bound = first - third, second - k[2] * y[3]
    return [-first - second, gain, gain - bound, bound]  # the test set's: digits do not cancel


POLLU_START = np.zeros(20)
POLLU_START[[1, 3, 6, 7, 8, 16]] = 0.2, 0.04, 0.1, 0.3, 0.01, 0.007

STIFF: dict[str, Problem] = {
    "ROBER": Problem(robertson, [1.0, 0.0, 0.0], 1e4, [0.04, 3e7, 1e4], 1e-8),
    "HIRES": Problem(
        hires, [1.0, 0, 0, 0, 0, 0, 0, 0.0057], 321.8122,
        [1.71, 0.43, 8.32, 0.0007, 8.75, 10.03, 0.035, 1.12, 1.745, 280.0, 0.69, 1.81], 1e-4,
        {4: (1, 2), 5: (0, 2), 7: (1, 10), 8: (0, 6)},
    ),
    "POLLU": Problem(
        pollu, list(POLLU_START), 60.0,
        [0.35, 26.6, 1.23e4, 8.6e-4, 8.2e-4, 1.5e4, 1.3e-4, 2.4e4, 1.65e4, 9e3, 0.022, 1.2e4, 1.88,
         1.63e4, 4.8e6, 3.5e-4, 0.0175, 1e8, 4.44e11, 1.24e3, 2.1, 5.78, 0.0474, 1.78e3, 3.12],
        1e-6,
    ),
    "OREGO": Problem(oregonator, [1.0, 2.0, 3.0], 360.0, [77.27, 8.375e-6, 0.161], 1e-3),
    "van der Pol": Problem(van_der_pol, [2.0, 0.0], 2000.0, [1000.0], 1e-3),
    "E5": Problem(e5, [1.76e-3, 0, 0, 0], 1e11, [7.89e-10, 1.1e7, 1.13e3, 1e6], 1e-18),
}  # fmt: skip
"""Problems of the test set for IVP solvers (Mazzia & Magherini, 2008), E5 up to 1e11."""


def _heat(n: int) -> Problem:
    def fun(t: Any, y: Any, k: Any) -> list[Any]:
        padded = [0.0, *[y[i] for i in range(n)], 0.0]
        return [padded[i] - 2 * padded[i + 1] + padded[i + 2] for i in range(n)]

    return Problem(fun, [1.0, *[0.0] * (n - 1)], 20.0, [0.0])


def _chain(rates: Sequence[float]) -> Problem:
    def fun(t: Any, y: Any, k: Any) -> list[Any]:
        flows = [r * y[i] for i, r in enumerate(rates)]
        return [-flows[0], *(a - b for a, b in zip(flows, [*flows[1:], 0.0], strict=True))]

    return Problem(fun, [1.0, *[0.0] * len(rates)], 20.0, [0.0])


def _orbit(e: float) -> Problem:
    def fun(t: Any, y: Any, k: Any) -> list[Any]:
        cube = (y[0] * y[0] + y[1] * y[1]) ** 1.5
        return [y[2], y[3], -y[0] / cube, -y[1] / cube]

    return Problem(fun, [1 - e, 0.0, 0.0, ((1 + e) / (1 - e)) ** 0.5], 20.0, [0.0])


def _torus(t: Any, y: Any, k: Any) -> list[Any]:
    r = (y[0] * y[0] + y[1] * y[1]) ** 0.5
    return [-y[1] - y[0] * y[2] / r, y[0] - y[1] * y[2] / r, y[0] / r]


def _bessel(t: Any, y: Any, k: Any) -> list[Any]:
    return [y[1], -(y[1] / (t + 1) + (1 - 0.25 / (t + 1) ** 2) * y[0])]


def _of(fun: Callable[[Any, Any], list[Any]], y0: Sequence[float]) -> Problem:
    return Problem(lambda t, y, k: fun(t, y), y0, 20.0, [0.0])


DETEST: dict[str, Problem] = {
    "A1": _of(lambda t, y: [-y[0]], [1.0]),
    "A2": _of(lambda t, y: [-0.5 * y[0] ** 3], [1.0]),
    "A3": _of(lambda t, y: [y[0] * np.cos(t)], [1.0]),
    "A4": _of(lambda t, y: [y[0] / 4 * (1 - y[0] / 20)], [1.0]),
    "A5": _of(lambda t, y: [(y[0] - t) / (y[0] + t)], [4.0]),
    "B1": _of(lambda t, y: [2 * (y[0] - y[0] * y[1]), y[0] * y[1] - y[1]], [1.0, 3.0]),
    "B2": _of(lambda t, y: [y[1] - y[0], y[0] - 2 * y[1] + y[2], y[1] - y[2]], [2.0, 0.0, 1.0]),
    "B3": _of(lambda t, y: [-y[0], y[0] - y[1] ** 2, y[1] ** 2], [1.0, 0.0, 0.0]),
    "B4": Problem(_torus, [3.0, 0.0, 0.0], 20.0, [0.0]),
    "B5": _of(
        lambda t, y: [y[1] * y[2], -y[0] * y[2], -0.51 * y[0] * y[1]], [0.0, 1.0, 1.0]),
    "C1": _chain([1.0] * 9),
    "C2": _chain(range(1, 10)),
    "C3": _heat(10),
    "C4": _heat(51),
    **{f"D{k}": _orbit(0.2 * k - 0.1) for k in range(1, 6)},
    "E1": Problem(_bessel, [0.6713967071418030, 0.09540051444747446], 20.0, [0.0]),
    "E2": _of(lambda t, y: [y[1], (1 - y[0] ** 2) * y[1] - y[0]], [2.0, 0.0]),
    "E3": _of(
        lambda t, y: [y[1], y[0] ** 3 / 6 - y[0] + 2 * np.sin(2.78535 * t)], [0.0, 0.0]),
    "E4": _of(lambda t, y: [y[1], 0.032 - 0.4 * y[1] ** 2], [30.0, 0.0]),
    "E5": _of(lambda t, y: [y[1], (1 + y[1] ** 2) ** 0.5 / (25 - t)], [0.0, 0.0]),
}  # fmt: skip
"""DETEST's problems (Hull, Enright, Fellen & Sedgwick, 1972) but C5, the five outer planets."""
