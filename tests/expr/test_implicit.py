"""Roots and fixed points: their derivatives are those of the exact solution, to second order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import symgrad as sg

AT = np.random.default_rng(3).uniform(0.4, 0.8, (5, 2))


def newton(f: Any, x: Any) -> Any:
    """Newton's method for an array of unknowns, or one."""

    def step(x: Any) -> Any:
        y = f(x)
        if isinstance(x, sg.Expr):
            return x - y / sg.grad(y, x)
        return x - np.linalg.solve(sg.jacobian(y, x).toarray(), y)

    return sg.while_loop(lambda x: np.sum(np.abs(sg.array(f(x)))) > 1e-14, step, x, max_steps=60)


def derivatives(f: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, gradient and Hessian in float64."""
    loss, gradient, hessian = sg.fused_hessian(2, f, device="cpu", dtype="float64").run(AT)
    return loss, gradient, hessian


def agree(f: Any, solution: Any) -> None:
    """The derivatives of f are those of a solution that is known as a formula."""
    for got, want in zip(derivatives(f), derivatives(solution), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_a_root_has_the_derivatives_of_the_solution() -> None:
    def f(v: Any) -> Any:
        root = sg.custom_root(lambda x: x * x + v[0] * x - v[1], 1.0, newton)
        return root * root * v[0]

    def solution(v: Any) -> Any:
        root = 0.5 * (np.sqrt(v[0] * v[0] + 4 * v[1]) - v[0])
        return root * root * v[0]

    agree(f, solution)


def test_several_unknowns() -> None:
    def residual(v: Any) -> Any:
        return lambda x: sg.array([x[0] * x[1] - v[0], x[1] - v[1] * x[0]])

    def f(v: Any) -> Any:
        x = sg.custom_root(residual(v), np.array([1.0, 1.0]), newton)
        return x[0] + x[1] ** 3

    agree(f, lambda v: np.sqrt(v[0] / v[1]) + (v[0] * v[1]) ** 1.5)


def test_a_fixed_point_in_a_loop() -> None:
    def f(v: Any) -> Any:
        def body(k: Any, s: Any) -> Any:
            root = sg.fixed_point(lambda x: 0.5 * (x + (v[0] + s) / x), 1.0, tol=1e-14)
            return root * v[1] + k * 0.1

        return sg.fori_loop(0, 6, body, v[1])

    def solution(v: Any) -> Any:
        return sg.fori_loop(0, 6, lambda k, s: np.sqrt(v[0] + s) * v[1] + k * 0.1, v[1])

    agree(f, solution)


def test_unknowns_are_nested_as_the_first_guess() -> None:
    @dataclass
    class State:
        a: Any
        b: Any

    def f(v: Any) -> Any:
        def step(s: State) -> State:
            return State(0.5 * (s.a + v[0] / s.a), {"c": 0.3 * s.b["c"] + sg.array([v[1], s.a])})

        end = sg.fixed_point(step, State(1.0, {"c": np.ones(2)}), tol=1e-15)
        return end.a * end.b["c"][0] + end.b["c"][1]

    agree(f, lambda v: np.sqrt(v[0]) * v[1] / 0.7 + np.sqrt(v[0]) / 0.7)


def test_forward_mode_and_the_first_guess() -> None:
    def f(v: Any) -> Any:
        return sg.fixed_point(lambda x: 0.5 * (x + 2.0 / x), v[0], tol=1e-14) * v[1]

    kernel = sg.fused_jacobian(
        2, lambda v: [f(v), v[0]], mode="forward", device="cpu", dtype="float64"
    )
    np.testing.assert_allclose(kernel.run(AT)[1][:, 0], [[0.0, np.sqrt(2.0)]] * 5, rtol=1e-12)


def test_what_does_not_converge_is_nan() -> None:
    kernel = sg.fused_forward_backward(
        1, lambda v: sg.fixed_point(lambda x: v[0] * x + 1.0, 0.0, tol=1e-5, max_steps=60),
        device="cpu",
    )  # fmt: skip
    values, slopes = kernel.run([[0.5], [0.999], [1.5]])
    assert np.isnan(values).tolist() == [False, True, True]
    assert np.isnan(slopes[:, 0]).tolist() == [False, True, True]
    np.testing.assert_allclose([values[0], slopes[0, 0]], [2.0, 4.0], rtol=1e-4)


def test_numbers_alone() -> None:
    assert sg.fixed_point(lambda x: 0.5 * (x + 4 / x), 1.0) == pytest.approx(2.0, rel=1e-6)
    assert sg.custom_root(lambda x: x - 3, 1.0, lambda f, x: x - f(x)) == 3.0
    assert np.isnan(sg.fixed_point(lambda x: 2 * x + 1, np.ones(2), max_steps=9)).all()


def test_misuse() -> None:
    x = sg.var("x")
    with pytest.raises(sg.InputError, match="a tolerance is positive"):
        sg.fixed_point(lambda y: y, x, tol=0.0)
    with pytest.raises(sg.TraceError, match="a tuple of 2 parts"):
        sg.custom_root(lambda y: y[0], (x, x), lambda f, y: y)
    with pytest.raises(sg.TraceError, match=r"returns: .*shape|has shape"):
        sg.custom_root(lambda y: y, x, lambda f, y: sg.array([y, y]))
    a = sg.array([x, 2.0])
    with pytest.raises(sg.UnsupportedError, match="array in memory"):
        sg.custom_root(lambda y: y - a[y], x, lambda f, y: y)


def test_the_gradient_solves_one_system_however_many_parameters_there_are() -> None:
    n = 6

    def f(v: Any) -> Any:
        a = v[: n * n].reshape(n, n)

        def step(f: Any, x: Any) -> Any:
            return np.linalg.solve(a, sg.array(v[n * n :]))

        return np.sum(sg.custom_root(lambda x: a @ x - v[n * n :], np.ones(n), step) ** 2)

    size = n * n + n
    kernel = sg.fused_forward_backward(size, f, device="cpu", dtype="float64")
    forward = sg.fused_forward(size, f, device="cpu", dtype="float64")
    assert kernel.stats.operations < 4 * forward.stats.operations
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(n, n)) + 3 * np.eye(n), draw.normal(size=n)
    value, gradient = kernel.run(np.concatenate([a.ravel(), b]))
    x = np.linalg.solve(a, b)
    z = np.linalg.solve(a.T, 2 * x)
    assert value == pytest.approx(x @ x)
    np.testing.assert_allclose(gradient, np.concatenate([-np.outer(z, x).ravel(), z]), rtol=1e-11)


def test_a_root_that_is_not_taken_leaves_derivatives_alone() -> None:
    def f(v: Any) -> Any:
        root = sg.fixed_point(lambda x: v[0] * x + 1.0, 0.0, tol=1e-10, max_steps=400)
        return np.where(v[1] > 0.0, root, v[0] ** 2)

    kernel = sg.fused_forward_backward(2, f, device="cpu", dtype="float64")
    values, slopes = kernel.run([[2.0, -1.0], [0.5, 1.0]])
    np.testing.assert_allclose(values, [4.0, 2.0], rtol=1e-9)
    np.testing.assert_allclose(slopes, [[4.0, 0.0], [4.0, 0.0]], rtol=1e-8)


def test_residuals_that_close_over_conditions() -> None:
    def f(v: Any) -> Any:
        above = v[1] > 0.5
        root = sg.custom_root(lambda x: sg.where(above, x * x, x) - v[0], 1.0, newton)
        return root * v[1]

    def solution(v: Any) -> Any:
        return np.where(v[1] > 0.5, np.sqrt(v[0]), v[0]) * v[1]

    agree(f, solution)
