"""Coefficients of methods: conditions of their order, interpolants, and errors of single steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.integrate
from numpy.polynomial import Polynomial

import symgrad as sg
from symgrad.ode.explicit import DOP853, DOP853_THIRD, RK4, TSIT5, order_residual, trees
from symgrad.ode.implicit import KVAERNO5, RODAS5P, ROSENBROCK23


def test_there_is_a_condition_for_each_rooted_tree() -> None:
    assert [len(trees(n)) for n in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]  # Butcher


@pytest.mark.parametrize(
    ("name", "tableau", "order", "embedded"),
    [("RK4", RK4, 4, None), ("Tsit5", TSIT5, 5, 4), ("DOP853", DOP853, 8, 5)],
)
def test_explicit_methods_have_exactly_their_order(
    name: str, tableau: sg.Tableau, order: int, embedded: int | None
) -> None:
    a = np.zeros((len(tableau.b) + 1, len(tableau.b) + 1))
    a[:-1, :-1], a[-1, :-1] = tableau.matrix, tableau.b
    b = np.append(np.array(tableau.b, float), 0.0)
    assert order_residual(order, b, a, a) < 1e-13 * max(1.0, abs(a).max())
    if order < 8:
        assert order_residual(order + 1, b, a, a) > 1e-4
    if tableau.error is None:
        assert embedded is None
        return
    assert embedded is not None
    error = np.zeros_like(b)
    error[: len(tableau.error)] = tableau.error
    assert order_residual(embedded, b - error, a, a) < 1e-12
    assert order_residual(embedded + 1, b - error, a, a) > 1e-5


def test_the_second_estimate_of_dop853_has_order_three() -> None:
    a = np.zeros((13, 13))
    a[:-1, :-1], a[-1, :-1] = DOP853.matrix, DOP853.b
    weights = np.append(np.array(DOP853.b, float), 0.0) - DOP853_THIRD
    assert order_residual(3, weights, a, a) < 1e-12 < 1e-5 < order_residual(4, weights, a, a)


@pytest.mark.parametrize(("tableau", "order"), [(ROSENBROCK23, 2), (RODAS5P, 5)])
def test_methods_of_rosenbrock_have_exactly_their_order(tableau: Any, order: int) -> None:
    weights, alphas, gammas = tableau.classical
    assert order_residual(order, weights, alphas, alphas + gammas) < 1e-13
    assert order_residual(order + 1, weights, alphas, alphas + gammas) > 1e-3
    np.testing.assert_allclose(alphas.sum(axis=1), tableau.c, atol=1e-13)
    np.testing.assert_allclose(gammas.sum(axis=1), tableau.d, atol=1e-13)


@pytest.mark.parametrize("tableau", [ROSENBROCK23, RODAS5P])
def test_they_are_l_stable(tableau: Any) -> None:
    """The last stage of ROSENBROCK23 is for the error alone."""
    weights, alphas, gammas = tableau.classical
    beta = alphas + gammas
    at_infinity = 1.0 - weights @ np.linalg.solve(beta, np.ones(len(weights)))
    assert abs(at_infinity) < 1e-12


def test_kvaerno5_has_its_orders_and_is_stiffly_accurate() -> None:
    assert order_residual(5, KVAERNO5[-1], KVAERNO5, KVAERNO5) < 1e-13
    assert order_residual(6, KVAERNO5[-1], KVAERNO5, KVAERNO5) > 1e-5
    assert order_residual(4, KVAERNO5[-2], KVAERNO5, KVAERNO5) < 1e-13
    inner = KVAERNO5[1:, 1:]
    rest = np.linalg.solve(inner, KVAERNO5[1:, 0])
    assert abs(rest[-1]) < 1e-10  # what is left of an infinitely stiff component


def test_the_interpolant_of_tsit5_meets_both_ends_smoothly_and_has_order_four() -> None:
    rows = np.array(TSIT5.dense)
    polynomials = [Polynomial([0.0, *row]) for row in rows]
    np.testing.assert_allclose([p(1.0) for p in polynomials], [*TSIT5.b, 0.0], atol=1e-13)
    slopes = [[p.deriv()(x) for p in polynomials] for x in (0.0, 1.0)]
    np.testing.assert_allclose(slopes[0], np.eye(8)[0], atol=1e-13)
    np.testing.assert_allclose(slopes[1], np.eye(8)[6], atol=1e-13)  # stage 7: the slope at the end
    for x in (0.2, 0.5, 0.9):  # a step of length x, by these weights
        weights = np.array([p(x) for p in polynomials])[:7] / x
        rounding = 1e-13 / x**3  # which the division by x of weights and stages enlarges
        assert order_residual(4, weights, TSIT5.matrix / x, TSIT5.matrix / x) < rounding


def _error(method: Any, step: float, at: float) -> float:
    """The error after a share of a step, of a problem that is neither linear nor autonomous."""

    def fun(t: Any, y: Any) -> Any:
        return [y[1] * y[0] - np.cos(t), np.sin(y[0]) + t * y[1]]

    y0 = np.array([1.0, 0.5])
    wanted = scipy.integrate.solve_ivp(fun, (0, at * step), y0, "DOP853", rtol=1e-13, atol=1e-15).y[
        :, -1
    ]
    taken = sg.solve_ivp(
        fun, (0, step), y0, method, [at * step], first_step=step, rtol=1e9, atol=1e9
    )
    assert taken.steps == 1
    return abs(taken.y[:, 0] - wanted).max()


@pytest.mark.parametrize(
    ("method", "order", "dense"),
    [("Tsit5", 5, 4), ("DOP853", 8, 7), ("RK4", 4, 3), ("Rosenbrock23", 2, 2), ("Rodas5P", 5, 4),
     ("Kvaerno5", 5, 3)],
)  # fmt: skip
def test_the_error_of_one_step_falls_with_its_order(method: str, order: int, dense: int) -> None:
    """At the end and within: of half a step the error is less by 2 to the order plus one."""
    long = 1.0 if method == "DOP853" else 0.2
    for at, power in ((1.0, order + 1), (0.4, dense + 1)):
        ratio = _error(method, long, at) / _error(method, long / 2, at)
        assert ratio > 2 ** (power - 0.7), (at, ratio)


def test_a_tableau_of_ones_own() -> None:
    bogacki_shampine = sg.Tableau(
        order=3,
        a=[[], [1 / 2], [0, 3 / 4], [2 / 9, 1 / 3, 4 / 9]],
        b=[2 / 9, 1 / 3, 4 / 9, 0],
        error=[2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8],
    )

    def fun(t: Any, y: Any) -> Any:
        return [y[1], -np.sin(y[0])]

    ours = sg.solve_ivp(fun, (0, 5), [1.0, 0.0], bogacki_shampine, rtol=1e-6, atol=1e-8)
    theirs = scipy.integrate.solve_ivp(fun, (0, 5), [1.0, 0.0], "RK23", rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.y[:, -1], theirs.y[:, -1], rtol=1e-4)
    assert 0.7 < ours.nfev / theirs.nfev < 1.4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"b": [0.5, 0.4]}, "not of order 2"),
        ({"order": 3}, "not of order 3"),
        ({"a": [[], [1.0, 0.0]]}, "rows a of 0 to 1"),
        ({"error": [1.0]}, "has 2 weights, or 3"),
        ({"dense": [[1.0], [0.0]]}, "has 3 rows"),
        ({"order": 9}, "from 1 to 8"),
    ],
)
def test_wrong_coefficients_are_refused(wrong: dict[str, Any], message: str) -> None:
    heun: dict[str, Any] = {"order": 2, "a": [[], [1.0]], "b": [0.5, 0.5]}
    sg.Tableau(**heun)
    with pytest.raises(sg.InputError, match=message):
        sg.Tableau(**heun | wrong)
