"""The test problems of Moré, Garbow and Hillstrom (1981, "Testing unconstrained optimization

software", ACM Transactions on Mathematical Software 7), all sums of squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.optimize.method import array_of


@dataclass(frozen=True)
class Squares:
    """A sum of squared residuals: of x alone, or of x and the columns of data (R, k).

    ``minima`` are the sums that are published as local minima.
    """

    residuals: Callable[..., Any]
    start: tuple[float, ...]
    minima: tuple[float, ...]
    data: np.ndarray | None = None

    @property
    def n(self) -> int:
        """The number of variables."""
        return len(self.start)

    def loss(self, x: Any, *row: Any) -> Any:
        """The sum of squares; of one row if it is given."""
        found = np.ravel(array_of(self.residuals(x, *row)))
        return np.sum(found * found)

    def value(self, x: np.ndarray) -> float:
        """The sum of squares of all rows, by NumPy."""
        columns = () if self.data is None else (self.data.T,)
        return float(np.sum(np.square(np.asarray(self.residuals(x, *columns), float))))


def _table(*columns: Any) -> np.ndarray:
    return np.stack(np.broadcast_arrays(*columns), axis=-1).astype(float)


def _rosenbrock(v: Any) -> Any:
    return [r for a, b in zip(v[::2], v[1::2], strict=True) for r in (10 * (b - a * a), 1 - a)]


def _powell_singular(v: Any) -> Any:
    return [
        r
        for a, b, c, d in np.reshape(v, (-1, 4))
        for r in (a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2)
    ]


def _freudenstein_roth(v: Any) -> Any:
    a, b = v
    return [-13 + a + ((5 - b) * b - 2) * b, -29 + a + ((b + 1) * b - 14) * b]


def _powell_badly_scaled(v: Any) -> Any:
    return [1e4 * v[0] * v[1] - 1, np.exp(-v[0]) + np.exp(-v[1]) - 1.0001]


def _brown_badly_scaled(v: Any) -> Any:
    return [v[0] - 1e6, v[1] - 2e-6, v[0] * v[1] - 2]


def _beale(v: Any) -> Any:
    return [y - v[0] * (1 - v[1] ** k) for k, y in ((1, 1.5), (2, 2.25), (3, 2.625))]


def _jennrich_sampson(v: Any, r: Any) -> Any:
    return 2 + 2 * r[0] - (np.exp(r[0] * v[0]) + np.exp(r[0] * v[1]))


def _helical_valley(v: Any) -> Any:
    a, b, c = v
    iteration = np.arctan2(b, a) / (2 * np.pi)
    return [10 * (c - 10 * iteration), 10 * (np.sqrt(a * a + b * b) - 1), c]


def _bard(v: Any, r: Any) -> Any:
    return r[3] - (v[0] + r[0] / (r[1] * v[1] + r[2] * v[2]))


def _gaussian(v: Any, r: Any) -> Any:
    return v[0] * np.exp(-0.5 * v[1] * (r[0] - v[2]) ** 2) - r[1]


def _meyer(v: Any, r: Any) -> Any:
    return v[0] * np.exp(v[1] / (r[0] + v[2])) - r[1]


def _gulf(v: Any, r: Any) -> Any:
    return np.exp(-(np.abs(r[1] - v[1]) ** v[2]) / v[0]) - r[0]


def _box(v: Any, r: Any) -> Any:
    t = r[0]
    return np.exp(-t * v[0]) - np.exp(-t * v[1]) - v[2] * r[1]


def _wood(v: Any) -> Any:
    a, b, c, d = v
    return [10 * (b - a * a), 1 - a, 90**0.5 * (d - c * c), 1 - c, 10**0.5 * (b + d - 2),
            10**-0.5 * (b - d)]  # fmt: skip


def _kowalik(v: Any, r: Any) -> Any:
    u, y = r
    return y - v[0] * (u * u + u * v[1]) / (u * u + u * v[2] + v[3])


def _brown_dennis(v: Any, r: Any) -> Any:
    t, exp, sin, cos = r
    return (v[0] + t * v[1] - exp) ** 2 + (v[2] + v[3] * sin - cos) ** 2


def _osborne_1(v: Any, r: Any) -> Any:
    return r[1] - (v[0] + v[1] * np.exp(-r[0] * v[3]) + v[2] * np.exp(-r[0] * v[4]))


def _biggs(v: Any, r: Any) -> Any:
    t, y = r
    return v[2] * np.exp(-t * v[0]) - v[3] * np.exp(-t * v[1]) + v[5] * np.exp(-t * v[4]) - y


def _osborne_2(v: Any, r: Any) -> Any:
    t, y = r
    peaks = [v[k] * np.exp(-((t - v[k + 7]) ** 2) * v[k + 4]) for k in (1, 2, 3)]
    return y - (v[0] * np.exp(-t * v[4]) + sum(peaks))


def _watson(v: Any) -> Any:
    found = [v[0], v[1] - v[0] ** 2 - 1]
    for t in np.arange(1, 30) / 29:
        slope = sum(j * v[j] * t ** (j - 1) for j in range(1, len(v)))
        found.append(slope - sum(v[j] * t**j for j in range(len(v))) ** 2 - 1)
    return found


def _penalty_1(v: Any) -> Any:
    return [*(1e-5**0.5 * (v - 1)), np.sum(v * v) - 0.25]


def _penalty_2(v: Any) -> Any:
    n, root = len(v), 1e-5**0.5
    e, i = np.exp(v / 10), np.arange(2, n + 1)
    both = root * (e[1:] + e[:-1] - (np.exp(i / 10) + np.exp((i - 1) / 10)))
    weights = np.arange(n, 0, -1)
    return [v[0] - 0.2, *both, *(root * (e[1:] - np.exp(-0.1))), np.sum(weights * v * v) - 1]


def _variably_dimensioned(v: Any) -> Any:
    total = np.sum(np.arange(1, len(v) + 1) * (v - 1))
    return [*(v - 1), total, total * total]


def _trigonometric(v: Any) -> Any:
    n = len(v)
    return n - np.sum(np.cos(v)) + np.arange(1, n + 1) * (1 - np.cos(v)) - np.sin(v)


def _brown_almost_linear(v: Any) -> Any:
    return [*(v[:-1] + np.sum(v) - (len(v) + 1)), np.prod(v) - 1]


def _neighbours(v: Any) -> tuple[Any, Any]:
    """The variables before and after each, 0 beyond the ends."""
    around = [0.0, *v, 0.0]
    return array_of(around[:-2]), array_of(around[2:])


def _boundary_value(v: Any) -> Any:
    h = 1 / (len(v) + 1)
    before, after = _neighbours(v)
    t = h * np.arange(1, len(v) + 1)
    return 2 * v - before - after + h * h / 2 * (v + t + 1) ** 3


def _integral(v: Any) -> Any:
    n, h = len(v), 1 / (len(v) + 1)
    t = h * np.arange(1, n + 1)
    cubes = (v + t + 1) ** 3
    below = np.where(t[:, None] >= t, (1 - t[:, None]) * t, t[:, None] * (1 - t))
    return v + h / 2 * (below @ cubes)


def _broyden_tridiagonal(v: Any) -> Any:
    before, after = _neighbours(v)
    return (3 - 2 * v) * v - before - 2 * after + 1


def _broyden_banded(v: Any) -> Any:
    n = len(v)
    near = [[j for j in range(max(0, i - 5), min(n, i + 2)) if j != i] for i in range(n)]
    return [
        v[i] * (2 + 5 * v[i] ** 2) + 1 - sum(v[j] * (1 + v[j]) for j in near[i]) for i in range(n)
    ]


def _linear(v: Any) -> Any:
    m, total = 2 * len(v), np.sum(v)
    return [*(v - 2 / m * total - 1), *[-2 / m * total - 1] * (m - len(v))]


def _linear_rank_1(v: Any) -> Any:
    total = np.sum(np.arange(1, len(v) + 1) * v)
    return [i * total - 1 for i in range(1, 2 * len(v) + 1)]


def _linear_rank_1_zeros(v: Any) -> Any:
    total = np.sum(np.arange(2, len(v)) * v[1:-1])
    return [-1.0 + 0.0 * v[0], *[i * total - 1 for i in range(1, 2 * len(v) - 1)], -1.0]


def _chebyquad(v: Any) -> Any:
    n, x = len(v), 2 * v - 1
    before, now, found = 1.0 + 0.0 * x, x, list[Any]()
    for i in range(1, n + 1):
        found.append(np.sum(now) / n + (1 / (i * i - 1) if i % 2 == 0 else 0.0))
        before, now = now, 2 * x * now - before
    return found


_STEPS = np.arange(1, 14) / 10
_GULF = np.arange(1, 31) / 100
_BARD = np.arange(1, 16)
_BARD_Y = [0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.1, 4.39]
_BELL = [0.0009, 0.0044, 0.0175, 0.054, 0.1295, 0.242, 0.3521]
_MEYER_Y = [34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427,
            3820, 3307, 2872]  # fmt: skip
_KOWALIK = [
    [4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625],
    [0.1957, 0.1947, 0.1735, 0.16, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246],
]
_T = np.arange(1, 21) / 5
_OSBORNE_1 = [
    844, 908, 932, 936, 925, 908, 881, 850, 818, 784, 751, 718, 685, 658, 628, 603, 580, 558, 538,
    522, 506, 490, 478, 467, 457, 448, 438, 431, 424, 420, 414, 411, 406,
]  # fmt: skip
_OSBORNE_2 = [
    1366, 1191, 1112, 1013, 991, 885, 831, 847, 786, 725, 746, 679, 608, 655, 616, 606, 602, 626,
    651, 724, 649, 649, 694, 644, 624, 661, 612, 558, 533, 495, 500, 423, 395, 375, 372, 391, 396,
    405, 428, 429, 523, 562, 607, 653, 672, 708, 633, 668, 645, 632, 591, 559, 597, 625, 739, 710,
    729, 720, 636, 581, 428, 292, 162, 98, 54,
]  # fmt: skip
_H = np.arange(1, 7) / 7

SQUARES: dict[str, Squares] = {
    "Rosenbrock": Squares(_rosenbrock, (-1.2, 1.0), (0.0,)),
    "Freudenstein and Roth": Squares(_freudenstein_roth, (0.5, -2.0), (0.0, 48.9842536792)),
    "Powell, badly scaled": Squares(_powell_badly_scaled, (0.0, 1.0), (0.0,)),
    "Brown, badly scaled": Squares(_brown_badly_scaled, (1.0, 1.0), (0.0,)),
    "Beale": Squares(_beale, (1.0, 1.0), (0.0,)),
    "Jennrich and Sampson": Squares(
        _jennrich_sampson, (0.3, 0.4), (124.3621823556,), _table(np.arange(1, 11))
    ),
    "helical valley": Squares(_helical_valley, (-1.0, 0.0, 0.0), (0.0,)),
    "Bard": Squares(
        _bard, (1.0, 1.0, 1.0), (8.2148773e-3, 17.4286),
        _table(_BARD, 16 - _BARD, np.minimum(_BARD, 16 - _BARD), _BARD_Y),
    ),
    "Gaussian": Squares(
        _gaussian, (0.4, 1.0, 0.0), (1.12793277e-8,),
        _table((8 - np.arange(1, 16)) / 2, [*_BELL, 0.3989, *_BELL[::-1]]),
    ),
    "Meyer": Squares(
        _meyer, (0.02, 4000.0, 250.0), (87.9458551,), _table(45 + 5 * np.arange(1, 17), _MEYER_Y)
    ),
    "gulf research": Squares(
        _gulf, (5.0, 2.5, 0.15), (0.0,),
        _table(_GULF, 25 + (-50 * np.log(_GULF)) ** (2 / 3)),
    ),
    "Box, three-dimensional": Squares(
        _box, (0.0, 10.0, 20.0), (0.0,),
        _table(_STEPS[:10], np.exp(-_STEPS[:10]) - np.exp(-10 * _STEPS[:10])),
    ),
    "Powell, singular": Squares(_powell_singular, (3.0, -1.0, 0.0, 1.0), (0.0,)),
    "Wood": Squares(_wood, (-3.0, -1.0, -3.0, -1.0), (0.0,)),
    "Kowalik and Osborne": Squares(
        _kowalik, (0.25, 0.39, 0.415, 0.39), (3.0750560385e-4, 1.02734e-3), _table(*_KOWALIK)
    ),
    "Brown and Dennis": Squares(
        _brown_dennis, (25.0, 5.0, -5.0, -1.0), (85822.2016263,),
        _table(_T, np.exp(_T), np.sin(_T), np.cos(_T)),
    ),
    "Osborne 1": Squares(
        _osborne_1, (0.5, 1.5, -1.0, 0.01, 0.02), (5.464894697e-5,),
        _table(10 * np.arange(33), np.array(_OSBORNE_1) / 1000),
    ),
    "Biggs": Squares(
        _biggs, (1.0, 2.0, 1.0, 1.0, 1.0, 1.0), (0.0, 5.65564991e-3, 0.30636677),
        _table(_STEPS, np.exp(-_STEPS) - 5 * np.exp(-10 * _STEPS) + 3 * np.exp(-4 * _STEPS)),
    ),
    "Osborne 2": Squares(
        _osborne_2, (1.3, 0.65, 0.65, 0.7, 0.6, 3.0, 5.0, 7.0, 2.0, 4.5, 5.5),
        (4.013773629e-2,), _table(np.arange(65) / 10, np.array(_OSBORNE_2) / 1000),
    ),
    "Watson": Squares(_watson, (0.0,) * 6, (2.28767005355e-3,)),
    "Rosenbrock, extended": Squares(_rosenbrock, (-1.2, 1.0) * 3, (0.0,)),
    "Powell, singular, extended": Squares(_powell_singular, (3.0, -1.0, 0.0, 1.0) * 2, (0.0,)),
    "penalty I": Squares(_penalty_1, (1.0, 2.0, 3.0, 4.0), (2.249977500e-5,)),
    "penalty II": Squares(_penalty_2, (0.5,) * 4, (9.37629e-6,)),
    "variably dimensioned": Squares(_variably_dimensioned, tuple(1 - np.arange(1, 7) / 6), (0.0,)),
    "trigonometric": Squares(_trigonometric, (0.2,) * 5, (0.0,)),
    "Brown, almost linear": Squares(_brown_almost_linear, (0.5,) * 5, (0.0, 1.0)),
    "discrete boundary value": Squares(_boundary_value, tuple(_H * (_H - 1)), (0.0,)),
    "discrete integral equation": Squares(_integral, tuple(_H * (_H - 1)), (0.0,)),
    "Broyden, tridiagonal": Squares(_broyden_tridiagonal, (-1.0,) * 6, (0.0,)),
    "Broyden, banded": Squares(_broyden_banded, (-1.0,) * 6, (0.0,)),
    "linear, full rank": Squares(_linear, (1.0,) * 5, (5.0,)),
    "linear, rank 1": Squares(_linear_rank_1, (1.0,) * 5, (10 * 9 / 42,)),
    "linear, rank 1 with zeros": Squares(_linear_rank_1_zeros, (1.0,) * 5, (124 / 34,)),
    "Chebyquad": Squares(_chebyquad, tuple(_H), (0.0,)),
}  # fmt: skip
