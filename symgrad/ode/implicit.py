"""Methods for stiff problems: Rosenbrock's, diagonally implicit ones, and one that switches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.linear.sparse import factorized, is_structural_zero
from symgrad.expr.loops.control import cond, fori_loop, while_loop
from symgrad.expr.tracers.array import array
from symgrad.ode.explicit import TSIT5, ExplicitMethod, Rows
from symgrad.ode.system import (
    NO_MEMORY,
    Attempt,
    Memory,
    Powers,
    Start,
    System,
    combined,
    hermite,
    norm,
)


@dataclass(frozen=True, eq=False)
class RosenbrockTableau:
    """A method of Rosenbrock of s stages, in the form that needs no products with the Jacobian.

    Stage i solves ``(I - gamma h J) u = gamma (h f(t + c h, y + sum a u) + sum couplings u)
    + gamma h^2 d df/dt`` (Hairer & Wanner, 1996, Solving Ordinary Differential Equations II, IV.7).

    Args:
        order: The order of the method.
        error_power: The power of the step that the error estimate goes with.
        gamma: The diagonal of the coefficients of the Jacobian.
        a: The weights of earlier stages in the argument, a row for each stage.
        couplings: Their weights on the right-hand side, c of the book.
        c: The share of the step at which a stage is evaluated.
        d: How much each takes of the derivative by time.
        b: The weights of the step.
        error: Those of the error estimate.
        dense: The weights of the polynomials that the interpolant adds to a straight line, from
            the lowest on.
    """

    order: int
    error_power: int
    gamma: float
    a: Rows
    couplings: Rows
    c: tuple[float, ...]
    d: tuple[float, ...]
    b: tuple[float, ...]
    error: tuple[float, ...]
    dense: Rows

    @cached_property
    def classical(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The weights b, and the matrices of the stages and of the Jacobian, of the usual form."""
        gammas = np.linalg.inv(np.eye(len(self.b)) / self.gamma - square(self.couplings))
        return np.array(self.b) @ gammas, square(self.a) @ gammas, gammas

    def rows(self) -> Iterator[tuple[Any, Any, float, float]]:
        """Of each stage its weights in ``a`` and ``couplings``, and its ``c`` and ``d``."""
        return zip(self.a, self.couplings, self.c, self.d, strict=True)


def _ode23s() -> RosenbrockTableau:
    """Shampine's method in this form, which its own becomes by ``u = gammas @ k``."""
    d, e = 1.0 / (2.0 + math.sqrt(2.0)), 6.0 + math.sqrt(2.0)
    alphas = np.array([[0.0, 0, 0], [0.5, 0, 0], [0.0, 1, 0]])
    gammas = np.array([[d, 0, 0], [-d, d, 0], [d * (e - 2.0), -d * e, d]])
    inverse = np.linalg.inv(gammas)
    couplings = np.eye(3) / d - inverse
    a, weights = alphas @ inverse, np.array([[0.0, 1, 0], [1 / 6, -2 / 6, 1 / 6], [1, -1, 0]])
    b, error, bend = weights @ inverse
    return RosenbrockTableau(
        order=2,
        error_power=3,
        gamma=d,
        a=[tuple(a[i, :i]) for i in range(3)],
        couplings=[tuple(couplings[i, :i]) for i in range(3)],
        c=(0.0, 0.5, 1.0),
        d=tuple(gammas.sum(axis=1)),
        b=tuple(b),
        error=tuple(error),
        dense=[tuple(bend / (1.0 - 2.0 * d))],
    )


ROSENBROCK23: Final = _ode23s()
"""The method of orders 2 and 3 of Shampine's ode23s (Shampine & Reichelt, 1997, The MATLAB ODE
suite), which keeps its order with a Jacobian that is not exact."""

_SIXTH: Final = (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256,
                 0.030198172008377946)  # fmt: skip

RODAS5P: Final = RosenbrockTableau(
    order=5,
    error_power=5,
    gamma=0.21193756319429014,
    a=[
        (),
        (3.0,),
        (2.849394379747939, 0.45842242204463923),
        (-6.954028509809101, 2.489845061869568, -10.358996098473584),
        (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
        _SIXTH,
        (*_SIXTH, 1.0),
        (*_SIXTH, 1.0, 1.0),
    ],
    couplings=[
        (),
        (-14.155112264123755,),
        (-17.97296035885952, -2.859693295451294),
        (147.12150275711716, -1.41221402718213, 71.68940251302358),
        (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
        (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125,
         -0.6610691825249471),
        (30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783,
         -19.097331116725623, -28.087943162872662),
        (37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047,
         -40.06618937091002, -54.66780262877968, -9.48861652309627),
    ],
    c=(0.0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1.0,
       1.0, 1.0),
    d=(0.21193756319429014, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734,
       2.325825639765069, 0.0, 0.0, 0.0),
    b=(*_SIXTH, 1.0, 1.0, 1.0),
    error=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
    dense=[
        (25.948786856663858, -2.5579724845846235, 10.433815404888879, -2.3679251022685204,
         0.524948541321073, 1.1241088310450404, 0.4272876194431874, -0.17202221070155493),
        (-9.91568850695171, -0.9689944594115154, 3.0438037242978453, -24.495224566215796,
         20.176138334709044, 15.98066361424651, -6.789040303419874, -6.710236069923372),
        (11.419903575922262, 2.8879645146136994, 72.92137995996029, 80.12511834622643,
         -52.072871366152654, -59.78993625266729, -0.15582684282751913, 4.883087185713722),
    ],
)  # fmt: skip
"""Rodas5P, of order 5, with an interpolant of order 4 (Steinebach, 2023, Construction of
Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the Julia Differential Equations
package)."""


class RosenbrockMethod:
    """The steps of such a tableau: see `Method`. The Jacobian is derived, with its sparsity."""

    adaptive = True
    memory = NO_MEMORY

    def __init__(self, tableau: RosenbrockTableau) -> None:
        self._tableau = tableau
        self.order = tableau.error_power

    def attempt(self, system: System, start: Start, h: Any) -> Attempt:
        """A step of length h."""
        return self.with_jacobian(system, start, h, *system.derivatives(start.t, start.y))

    def with_jacobian(
        self, system: System, start: Start, h: Any, by_time: Any, jacobian: Any
    ) -> Attempt:
        """A step of length h by these derivatives at its start."""
        tableau, y = self._tableau, start.y
        solve = solver(jacobian, tableau.gamma * h)
        varies = not all(map(is_structural_zero, by_time))

        def stage(c: Any, d: Any, moved: Any, coupled: Any, slope: Any = None) -> Any:
            value = system.slope(start.t + c * h, y + moved) if slope is None else slope
            right = h * value + coupled
            if varies and not is_structural_zero(d):
                right = right + (h * h * d) * by_time
            return solve(tableau.gamma * right)

        if system.size * len(tableau.b) > MOST_WRITTEN_OUT:
            stages = _in_a_loop(tableau, system.size, stage)
        else:
            stages = list[Any]()
            for row, couplings, c, d in tableau.rows():
                first = None if stages else start.slope
                parts = combined(row, stages), combined(couplings, stages)
                stages.append(stage(c, d, *parts, first))
        end = y + combined(tableau.b, stages)
        error = norm(combined(tableau.error, stages) / system.scale(y, end))

        def dense() -> Powers:
            bends = [combined(row, stages) for row in tableau.dense]
            falls = [end - y, *(-bend for bend in bends)]
            rises = [*bends, 0.0]
            return [rise + fall for rise, fall in zip(rises, falls, strict=True)]

        return Attempt(end, system.slope(start.t + h, end), error, dense, len(stages))


MOST_WRITTEN_OUT: Final = 96
"""Numbers of all stages up to which these are written out: of more, as of a problem of 20 states,
reversed steps would hold more values at once than compilers have registers for."""


def _in_a_loop(tableau: RosenbrockTableau, size: int, stage: Callable[..., Any]) -> list[Any]:
    """The stages as a loop, of which those before stand in memory."""
    count = len(tableau.b)
    tables = [array(square(rows)) for rows in (tableau.a, tableau.couplings)]
    c, d = array(np.array(tableau.c)), array(np.array(tableau.d))

    def following(i: Any, stages: Any) -> Any:
        parts = (sum(table[i, j] * stages[j] for j in range(count - 1)) for table in tables)
        return stages.at[i].set(array(stage(c[i], d[i], *parts)))

    stages = fori_loop(0, count, following, array(np.zeros((count, size))))
    return [stages[i] for i in range(count)]


def square(rows: Rows) -> np.ndarray:
    """Rows of weights as a square matrix, with zeros from the diagonal on."""
    return np.array([[*row, *[0.0] * (len(rows) - len(row))] for row in rows])


def solver(jacobian: Any, step: Any) -> Callable[[Any], Any]:
    """The function that gives x of ``(I - step J) x == right``."""
    matrix = np.zeros(jacobian.shape, dtype=object)
    for (i, j), entry in np.ndenumerate(np.asarray(jacobian, dtype=object)):
        diagonal = float(i == j)
        matrix[i, j] = diagonal if is_structural_zero(entry) else diagonal - step * entry
    return factorized(matrix)


# Diagonally implicit methods: Newton's method at each stage, with the exact Jacobian.

GAMMA: Final = 0.26

KVAERNO5: Final = np.array([
    [0, 0, 0, 0, 0, 0, 0],
    [0.26, 0.26, 0, 0, 0, 0, 0],
    [0.13, 0.84033320996790809, 0.26, 0, 0, 0, 0],
    [0.22371961478320505, 0.47675532319799699, -0.06470895363112615, 0.26, 0, 0, 0],
    [0.16648564323248321, 0.10450018841591720, 0.03631482272098715, -0.13090704451073998, 0.26,
     0, 0],
    [0.13855640231268224, 0, -0.04245337201752043, 0.02446657898003141, 0.61943039072480676, 0.26,
     0],
    [0.13659751177640291, 0, -0.05496908796538376, -0.04118626728321046, 0.62993304899016403,
     0.06962479448202728, 0.26],
])  # fmt: skip
"""The stages of Kvaerno5, of orders 5 and 4, whose last two are its solutions (Kvaernoe, 2004,
Singly diagonally implicit Runge-Kutta methods with an explicit first stage)."""

MOST_ITERATIONS: Final = 8
"""Iterations of Newton's method; where they are too few, the step is shortened."""

CONVERGED: Final = 1e-3
"""How much the last iteration may change, beside the error that is allowed."""


class Kvaerno5:
    """The steps of `KVAERNO5`: see `Method`. They are stiffly accurate, and L-stable.

    Derivatives are those of the equations of the stages, and not of the iterations.
    """

    adaptive = True
    order = 5
    memory = NO_MEMORY

    def attempt(self, system: System, start: Start, h: Any) -> Attempt:
        """A step of length h."""
        t, y = start.t, start.y
        count, n = KVAERNO5.shape[0], system.size
        table, shares = array(np.tril(KVAERNO5, -1)), array(KVAERNO5.sum(axis=1))
        scale = system.scale(y, y)
        slopes = array(np.zeros((count, n))).at[0].set(start.slope)

        def stage(i: Any, carry: Any) -> Any:
            slopes, evaluations, failed = carry
            base = y + h * sum(table[i, j] * slopes[j] for j in range(count - 1))
            guess = slopes[i - 1]
            k, spent, left = _solved(system, t + shares[i] * h, h, base, guess, scale)
            failed = ops.maximum(failed, ops.where(left <= CONVERGED, 0.0, 1.0))
            return slopes.at[i].set(k), evaluations + spent, failed

        slopes, evaluations, failed = fori_loop(1, count, stage, (slopes, 0.0, 0.0))
        ends = [slopes[j] for j in range(count)]
        end = y + h * combined(KVAERNO5[-1], ends)
        difference = h * combined(KVAERNO5[-1] - KVAERNO5[-2], ends)
        error = norm(difference / system.scale(y, end))
        error = ops.where(failed > 0.0, FAILED, error)

        last = array(ends[-1])
        return Attempt(end, last, error, lambda: hermite(start, h, end, last), evaluations)


FAILED: Final = 1e6
"""The error of a step whose stages have not been found."""


def _solved(
    system: System, t: Any, h: Any, base: Any, guess: Any, scale: Any
) -> tuple[Any, Any, Any]:
    """k of ``k = f(t, base + gamma h k)``, the iterations, and the last change beside ``scale``."""
    step = GAMMA * h

    def newton(k: Any) -> Any:
        at = base + step * k
        _, jacobian = system.derivatives(t, at)
        return array(solver(jacobian, step)(k - system.slope(t, at)))

    def iterate(carry: Any) -> Any:
        k, _, count = carry
        move = newton(k)
        return k - move, norm(step * move / scale), count + 1.0

    def goes_on(carry: Any) -> Any:
        return ops.logical_and(carry[1] > CONVERGED, carry[2] < MOST_ITERATIONS)

    k, left, count = while_loop(goes_on, iterate, (guess, np.inf, 0.0), MOST_ITERATIONS + 1)
    k, left = np.array([ops.stop_gradient(v) for v in k]), ops.stop_gradient(left)
    for _ in range(2):  # through which derivatives of two orders go
        k = array(k) - newton(array(k))
    return k, count + 2.0, left


# A method that is explicit until it meets stiffness, and explicit again when it is over.

BORDER: Final = 3.0
"""The step times the size of the Jacobian at which `TSIT5` becomes unstable, or a little less."""

STIFF_STEPS: Final = 8.0
"""How many more steps have to be at the border than not for the method to become implicit."""

MILD_STEPS: Final = 3.0
"""How many have to be well within it, one after the other, for it to become explicit again."""


BEGIN: Final[Memory] = {"implicit": 0.0, "count": 0.0}
"""The first of the carried numbers: whether the method is implicit, and a count of steps."""


class Switching:
    """`TSIT5` where it is stable at the steps that accuracy allows, else `RODAS5P`: see `Method`.

    An explicit step estimates the Jacobian's largest eigenvalue by its last two stages, which stand
    at the same time (Hairer & Wanner, 1996, Solving Ordinary Differential Equations II, IV.2).
    """

    adaptive = True
    order = 5
    memory = BEGIN

    def __init__(self) -> None:
        self._explicit, self._implicit = ExplicitMethod(TSIT5), RosenbrockMethod(RODAS5P)

    def attempt(self, system: System, start: Start, h: Any) -> Attempt:
        """A step of length h, by the method of the moment."""
        implicit, count = start.memory["implicit"] > 0.5, start.memory["count"]

        def parts(attempt: Attempt, now: float, switches: Any, counted: Any) -> tuple[Any, ...]:
            memory = ops.where(switches, 1.0 - now, now), ops.where(switches, 0.0, counted)
            return (attempt.y, attempt.slope, ops.stop_gradient(attempt.error),
                    attempt.dense(), float(attempt.evaluations), memory)  # fmt: skip

        def by_explicit() -> tuple[Any, ...]:
            stages, slopes = self._explicit.stages(system, start, h)
            distance = norm(stages[-1] - stages[-2])
            bend = norm(slopes[-1] - slopes[-2])
            at_border = ops.stop_gradient(abs(h) * bend - BORDER * distance) > 0.0
            more = ops.maximum(0.0, count + ops.where(at_border, 1.0, -1.0))
            attempt = self._explicit.attempt(system, start, h)
            return parts(attempt, 0.0, more > STIFF_STEPS, more)

        def by_implicit() -> tuple[Any, ...]:
            by_time, jacobian = system.derivatives(start.t, start.y)
            mild = ops.stop_gradient(abs(h) * _size(jacobian)) < BORDER
            more = ops.where(mild, count + 1.0, 0.0)
            attempt = self._implicit.with_jacobian(system, start, h, by_time, jacobian)
            return parts(attempt, 1.0, more > MILD_STEPS, more)

        y, slope, error, powers, evaluations, memory = cond(implicit, by_implicit, by_explicit)
        carried = {"implicit": memory[0], "count": memory[1]}
        return Attempt(y, slope, error, lambda: list(powers), evaluations, carried)


def _size(jacobian: Any) -> Any:
    """The largest sum of magnitudes in a row of a matrix."""
    rows = [[abs(e) for e in row if not is_structural_zero(e)] for row in jacobian]
    sums = [sum(row[1:], row[0]) for row in rows if row]
    largest: Any = 0.0
    for total in sums:
        largest = ops.maximum(largest, total)
    return largest
