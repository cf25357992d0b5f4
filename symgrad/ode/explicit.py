"""Explicit methods: tableaus and their steps, and symplectic ones of a separable Hamiltonian."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.place import describe
from symgrad.expr.linear.sparse import is_structural_zero
from symgrad.ode.system import NO_MEMORY, Attempt, Powers, Start, System, combined, hermite, norm

# Explicit methods of Runge and Kutta: the tables of their coefficients, and what these satisfy.
#
# Rooted trees are the conditions that a method of an order meets, one for each (Butcher).

Tree = tuple[Any, ...]
"""A rooted tree: the trees below its root, in order."""


@functools.cache
def trees(size: int) -> tuple[Tree, ...]:
    """All rooted trees with this number of vertices."""
    return tuple(_forests(size - 1, None))


def _forests(size: int, largest: Tree | None) -> Iterator[Tree]:
    """The multisets of trees with so many vertices, none after ``largest``."""
    if size == 0:
        yield ()
        return
    for first in range(size, 0, -1):
        for tree in trees(first):
            if largest is None or _key(tree) <= _key(largest):
                for rest in _forests(size - first, tree):
                    yield (tree, *rest)


@functools.cache
def _key(tree: Tree) -> tuple[Any, ...]:
    return _size(tree), tuple(_key(child) for child in tree)


@functools.cache
def _size(tree: Tree) -> int:
    return 1 + sum(_size(child) for child in tree)


@functools.cache
def density(tree: Tree) -> int:
    """The product of the sizes of all subtrees of a tree."""
    product = _size(tree)
    for child in tree:
        product *= density(child)
    return product


def order_residual(
    order: int, weights: np.ndarray, several: np.ndarray, single: np.ndarray
) -> float:
    """How far a method with these weights is from meeting all conditions up to an order.

    For each tree ``weights @ phi(tree) = 1 / density(tree)``, where phi multiplies, at each vertex,
    what a matrix makes of the vertices above it: ``several`` at vertices with several, ``single``
    at those with one. Both are A of methods of Runge and Kutta; of Rosenbrock's, ``single`` has the
    coefficients of the Jacobian added (Hairer & Wanner, 1996, Solving Ordinary Differential
    Equations II, IV.7).
    """

    @functools.cache
    def phi(tree: Tree) -> np.ndarray:
        product = np.ones(len(weights))
        for child in tree:
            product = product * ((single if len(tree) == 1 else several) @ phi(child))
        return product

    return max(
        abs(float(weights @ phi(tree)) - 1.0 / density(tree))
        for size in range(1, order + 1)
        for tree in trees(size)
    )


ROUNDING: Final = 1e-12
"""How far rounding may put coefficients from meeting the conditions of their order."""

HIGHEST_CHECKED: Final = 8
"""The highest order whose conditions are checked: there are 200 up to it."""

Rows = Sequence[Sequence[float]]


@dataclass(frozen=True, eq=False)
class Tableau:
    """An explicit method of Runge and Kutta of s stages, for `solve_ivp`.

    Args:
        order: The order of the method, up to 8. All conditions of it are checked.
        a: For each stage the weights of the stages before it: s rows, the first one empty.
        b: The weights of the step (s,).
        error: The weights of the error estimate: those of the step less those of another method
            (s,), or with one more for the slope at the end. None makes a method of fixed steps.
        error_order: The order of that other method: one less than ``order``.
        dense: The solution within a step: row i has the weights of stage i, and after the last of
            the slope at the end, times x, x², .. for the share x of the step. None is the cubic of
            Hermite.

    Raises:
        InputError: for tables that are no explicit method of this order.

    Example:
        >>> import symgrad as sg
        >>> heun = sg.Tableau(order=2, a=[[], [1.0]], b=[0.5, 0.5], error=[-0.5, 0.5])
        >>> decay = lambda t, y: -y
        >>> sg.solve_ivp(decay, (0, 1), [1.0], heun, rtol=1e-6).y[0, -1].round(5)
        np.float64(0.36788)
    """

    order: int
    a: Rows
    b: Sequence[float]
    error: Sequence[float] | None = None
    error_order: int | None = None
    dense: Any = None

    def __post_init__(self) -> None:
        s = len(self.b)
        if s < 1 or [len(row) for row in self.a] != list(range(s)):
            raise InputError(
                f"a tableau of {s} weights b has rows a of 0 to {s - 1} weights, one for each "
                f"stage before it, and not of {[len(row) for row in self.a]}"
            )
        if self.error is not None and len(self.error) not in (s, s + 1):
            raise InputError(
                f"the error estimate of {s} stages has {s} weights, or {s + 1} with that of the "
                f"slope at the end, not {len(self.error)}"
            )
        if self.dense is not None and np.shape(self.dense)[:1] != (s + 1,):
            raise InputError(
                f"the dense output of {s} stages has {s + 1} rows, the last of the slope at the "
                f"end, not shape {np.shape(self.dense)}"
            )
        if not 1 <= self.order <= HIGHEST_CHECKED:
            raise InputError(f"the order of a tableau is from 1 to {HIGHEST_CHECKED}")
        residual = order_residual(self.order, np.array(self.b, float), self.matrix, self.matrix)
        if not residual <= ROUNDING * max(1.0, np.abs(self.matrix).max()):
            raise InputError(
                f"these coefficients are not of order {self.order}: a condition of it is off by "
                f"{residual:.1e}; check them digit by digit, or say a lower order"
            )

    @property
    def matrix(self) -> np.ndarray:
        """The coefficients a as a matrix (s, s)."""
        s = len(self.b)
        return np.array([[*row, *[0.0] * (s - len(row))] for row in self.a], float)

    @cached_property
    def c(self) -> tuple[float, ...]:
        """The share of the step at which each stage is evaluated."""
        return tuple(round(math.fsum(row), 14) for row in self.a)

    @property
    def ends_as_it_begins(self) -> bool:
        """Whether the last stage is the solution at the end, whose slope the next one needs."""
        return list(self.a[-1]) == list(self.b[:-1]) and self.b[-1] == 0 and len(self.b) > 1


# The coefficients of explicit methods, each with its source.

RK4: Final = Tableau(
    order=4,
    a=[[], [0.5], [0.0, 0.5], [0.0, 0.0, 1.0]],
    b=[1 / 6, 1 / 3, 1 / 3, 1 / 6],
)
"""The classical method of Runge and Kutta (Kutta, 1901), of fixed steps."""

TSIT5: Final = Tableau(
    order=5,
    a=[
        [],
        [0.161],
        [-0.008480655492356989, 0.335480655492357],
        [2.8971530571054935, -6.359448489975075, 4.3622954328695815],
        [5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525],
        [5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401,
         -0.028269050394068383],
        [0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081,
         2.324710524099774],
    ],
    b=[0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081,
       2.324710524099774, 0.0],
    error=[0.0017800110522257771, 0.0008164344596567469, -0.007880878010261995,
           0.1447110071732629, -0.5823571654525552, 0.45808210592918697, -1 / 66],
    dense=[
        [1.0, -2.763706197274826, 2.9132554618219126, -1.0530884977290216],
        [0.0, 0.13169999999999998, -0.2234, 0.1017],
        [0.0, 3.9302962368947516, -5.941033872131505, 2.490627285651253],
        [0.0, -12.411077166933676, 30.33818863028232, -16.548102889244902],
        [0.0, 37.50931341651104, -88.1789048947664, 47.37952196281928],
        [0.0, -27.896526289197286, 65.09189467479366, -34.87065786149661],
        [0.0, 1.5, -4.0, 2.5],
        [0.0, 0.0, 0.0, 0.0],
    ],
)  # fmt: skip
"""The 5(4) pair of Tsitouras, and its interpolant of order 4 (Tsitouras, 2011, Runge-Kutta pairs of
order 5(4) satisfying only the first column simplifying assumption)."""

DOP853: Final = Tableau(
    order=8,
    error_order=7,
    a=[
        [],
        [0.05260015195876773],
        [0.0197250569845379, 0.0591751709536137],
        [0.02958758547680685, 0, 0.08876275643042054],
        [0.2413651341592667, 0, -0.8845494793282861, 0.924834003261792],
        [0.037037037037037035, 0, 0, 0.17082860872947386, 0.12546768756682242],
        [0.037109375, 0, 0, 0.17025221101954405, 0.06021653898045596, -0.017578125],
        [0.03709200011850479, 0, 0, 0.17038392571223998, 0.10726203044637328, -0.015319437748624402,
         0.008273789163814023],
        [0.6241109587160757, 0, 0, -3.3608926294469414, -0.868219346841726, 27.59209969944671,
         20.154067550477894, -43.48988418106996],
        [0.47766253643826434, 0, 0, -2.4881146199716677, -0.590290826836843, 21.230051448181193,
         15.279233632882423, -33.28821096898486, -0.020331201708508627],
        [-0.9371424300859873, 0, 0, 5.186372428844064, 1.0914373489967295, -8.149787010746927,
         -18.52006565999696, 22.739487099350505, 2.4936055526796523, -3.0467644718982196],
        [2.273310147516538, 0, 0, -10.53449546673725, -2.0008720582248625, -17.9589318631188,
         27.94888452941996, -2.8589982771350235, -8.87285693353063, 12.360567175794303,
         0.6433927460157636],
    ],
    b=[0.054293734116568765, 0, 0, 0, 0, 4.450312892752409, 1.8915178993145003,
       -5.801203960010585, 0.3111643669578199, -0.1521609496625161, 0.20136540080403034,
       0.04471061572777259],
    error=[0.01312004499419488, 0, 0, 0, 0, -1.2251564463762044, -0.4957589496572502,
           1.6643771824549864, -0.35032884874997366, 0.3341791187130175, 0.08192320648511571,
           -0.022355307863886294, 0],
)  # fmt: skip
"""The method of order 8 of Dormand and Prince, with Hairer's error estimate of order 5 (Hairer,
Nørsett & Wanner, 1993, Solving Ordinary Differential Equations I, II.5, and its DOP853)."""

DOP853_THIRD: Final = [-0.18980075407240762, 0, 0, 0, 0, 4.450312892752409, 1.8915178993145003,
     -5.801203960010585, -0.4226823213237919, -0.1521609496625161, 0.20136540080403034,
     0.02265179219836082, 0]  # fmt: skip
"""The weights of its second error estimate, of order 3, that of the slope at the end last."""

DOP853_EXTRA: Final = (
    [0.056167502283047954, 0, 0, 0, 0, 0, 0.25350021021662483, -0.2462390374708025,
     -0.12419142326381637, 0.15329179827876568, 0.00820105229563469, 0.007567897660545699,
     -0.008298],
    [0.03183464816350214, 0, 0, 0, 0, 0.028300909672366776, 0.053541988307438566,
     -0.05492374857139099, 0, 0, -0.00010834732869724932, 0.0003825710908356584,
     -0.00034046500868740456, 0.1413124436746325],
    [-0.42889630158379194, 0, 0, 0, 0, -4.697621415361164, 7.683421196062599, 4.06898981839711,
     0.3567271874552811, 0, 0, 0, -0.0013990241651590145, 2.9475147891527724,
     -9.15095847217987],
)  # fmt: skip
"""The stages that its interpolant needs besides: weights of the stages, of the slope at the end,
and of one another."""

DOP853_DENSE: Final = (
    [-8.428938276109013, 0, 0, 0, 0, 0.5667149535193777, -3.0689499459498917, 2.38466765651207,
     2.117034582445028, -0.871391583777973, 2.2404374302607883, 0.6315787787694688,
     -0.08899033645133331, 18.148505520854727, -9.194632392478356, -4.436036387594894],
    [10.427508642579134, 0, 0, 0, 0, 242.28349177525817, 165.20045171727028, -374.5467547226902,
     -22.113666853125306, 7.733432668472264, -30.674084731089398, -9.332130526430229,
     15.697238121770845, -31.139403219565178, -9.35292435884448, 35.81684148639408],
    [19.985053242002433, 0, 0, 0, 0, -387.0373087493518, -189.17813819516758, 527.8081592054236,
     -11.57390253995963, 6.8812326946963, -1.0006050966910838, 0.7777137798053443,
     -2.778205752353508, -60.19669523126412, 84.32040550667716, 11.99229113618279],
    [-25.69393346270375, 0, 0, 0, 0, -154.18974869023643, -231.5293791760455, 357.6391179106141,
     93.40532418362432, -37.45832313645163, 104.0996495089623, 29.8402934266605,
     -43.53345659001114, 96.32455395918828, -39.17726167561544, -149.72683625798564],
)  # fmt: skip
"""The weights of the last four coefficients of its interpolant, which is of order 7."""


_CUBE_ROOT: Final = 2.0 ** (1 / 3)

LEAPFROG: Final = (1.0,)
"""The method of Stoermer and Verlet, of order 2."""

YOSHIDA: Final = (
    1.0 / (2.0 - _CUBE_ROOT), -_CUBE_ROOT / (2.0 - _CUBE_ROOT), 1.0 / (2.0 - _CUBE_ROOT),
)  # fmt: skip
"""The leapfrogs of which a step of order 4 is made (Yoshida, 1990, Construction of higher order
symplectic integrators)."""


class Symplectic:
    """Leapfrogs of these shares of a step: see `Method`.

    Of y the first half are positions, whose slopes depend on momenta alone, and the second half
    momenta, whose slopes depend on positions alone, and on time.
    """

    adaptive = False
    order = 1
    memory = NO_MEMORY

    def __init__(self, shares: tuple[float, ...]) -> None:
        self._shares = shares

    def attempt(self, system: System, start: Start, h: Any) -> Attempt:
        """A step of length h."""
        if system.size % 2:
            raise InputError(
                located(
                    "a symplectic method takes as many positions as momenta, one after the other: "
                    f"y0 has {system.size} numbers"
                )
            )
        n, t, y, slope = system.size // 2, start.t, start.y, start.slope
        _, jacobian = system.derivatives(t, y)
        if not all(map(is_structural_zero, [*jacobian[:n, :n].flat, *jacobian[n:, n:].flat])):
            raise InputError(
                located(
                    f"{describe(system.fun)} is not separable, as symplectic methods need it: the "
                    "derivatives of positions, the first half of y, are of momenta alone, those of "
                    'momenta of positions and time; "Tsit5" and "DOP853" take any equation'
                )
            )
        for share in self._shares:
            part = share * h
            q, p = y[:n], y[n:] + 0.5 * part * slope[n:]
            q = q + part * system.slope(t, np.concatenate([q, p]))[:n]
            t, y = t + part, np.concatenate([q, p])
            slope = system.slope(t, y)
            y = np.concatenate([q, p + 0.5 * part * slope[n:]])
        end_slope = system.slope(t, y)
        evaluations = 2 * len(self._shares) + 1
        return Attempt(y, end_slope, None, lambda: hermite(start, h, y, end_slope), evaluations)


class ExplicitMethod:
    """The steps of a tableau: see `Method`."""

    memory = NO_MEMORY

    def __init__(self, tableau: Tableau) -> None:
        self.tableau = tableau
        lower = tableau.error_order
        self.order = 1 + (tableau.order - 1 if lower is None else lower)
        self.adaptive = tableau.error is not None

    def attempt(self, system: System, start: Start, h: Any) -> Attempt:
        """A step of length h."""
        stages, slopes = self.stages(system, start, h)
        end, evaluations = stages[-1], len(slopes) - 1
        error = self._error(h, slopes, system.scale(start.y, end)) if self.adaptive else None
        return Attempt(
            end, slopes[-1], error, lambda: self.dense(system, start, h, end, slopes), evaluations
        )

    def stages(self, system: System, start: Start, h: Any) -> tuple[list[Any], list[Any]]:
        """The solution at each stage and then at the end, and its slope there.

        Where the last stage is the end, it is there once.
        """
        tableau, stages, slopes = self.tableau, [start.y], [start.slope]
        rows = [*zip(tableau.a[1:], tableau.c[1:], strict=True)]
        if not tableau.ends_as_it_begins:
            rows.append((tableau.b, 1.0))
        for row, c in rows:
            stages.append(start.y + h * combined(row, slopes))
            slopes.append(system.slope(start.t + c * h, stages[-1]))
        return stages, slopes

    def _error(self, h: Any, slopes: Sequence[Any], scale: Any) -> Any:
        assert self.tableau.error is not None, "a method of fixed steps has no estimate"
        return norm(h * combined(self.tableau.error, slopes) / scale)

    def dense(
        self, system: System, start: Start, h: Any, end: Any, slopes: Sequence[Any]
    ) -> Powers:
        """The interpolant."""
        if self.tableau.dense is None:
            return hermite(start, h, end, slopes[-1])
        return [h * combined(column, slopes) for column in np.transpose(self.tableau.dense)]


class DormandPrince853(ExplicitMethod):
    """The steps of `DOP853`, whose estimate is of two, and whose interpolant needs three stages."""

    def __init__(self) -> None:
        super().__init__(DOP853)

    def _error(self, h: Any, slopes: Sequence[Any], scale: Any) -> Any:
        fifth = super()._error(h, slopes, scale)
        third = norm(h * combined(DOP853_THIRD, slopes) / scale)
        both = fifth * fifth + 0.01 * third * third
        return ops.where(both > 0.0, fifth * fifth / ops.sqrt(both), fifth)

    def dense(
        self, system: System, start: Start, h: Any, end: Any, slopes: Sequence[Any]
    ) -> Powers:
        """The interpolant."""
        slopes = list(slopes)
        for row in DOP853_EXTRA:
            c = round(math.fsum(row), 14)
            slopes.append(system.slope(start.t + c * h, start.y + h * combined(row, slopes)))
        change = end - start.y
        bends = [h * slopes[0] - change, 2.0 * change - h * (slopes[0] + slopes[12])]
        terms = [change, *bends, *(h * combined(row, slopes) for row in DOP853_DENSE)]
        return [combined(column, terms) for column in BASIS.T]


def _alternating(count: int) -> np.ndarray:
    """The powers, from x on, in x, x(1-x), x²(1-x), x²(1-x)², ..: a row for each of these."""
    rows, product = np.zeros((count, count)), np.polynomial.Polynomial([1.0])
    for k in range(count):
        product = product * np.polynomial.Polynomial([1.0, -1.0] if k % 2 else [0.0, 1.0])
        rows[k, : len(product.coef) - 1] = product.coef[1:]
    return rows


BASIS: Final = _alternating(3 + len(DOP853_DENSE))
"""The powers of x in the polynomials that the interpolant of `DOP853` is made of."""
