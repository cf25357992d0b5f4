"""Derivatives of functions of whole arrays inside a trace, beside formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg

RNG = np.random.default_rng(5)
A, X, V = RNG.normal(size=(7, 7)), RNG.normal(size=7), RNG.normal(size=7)


def squares(x: Any) -> Any:
    return np.sum(np.tanh(A @ x) ** 2)


def nested(x: Any) -> Any:
    return {"rows": np.tanh(A @ x)[:5], "total": [x[0] * np.sum(x)]}


def compute(f: Any, *args: Any) -> Any:
    return sg.jit(f, device="cpu", dtype="float64")(*args)


TANH = np.tanh(A @ X)
SLOPES = (1 - TANH**2)[:, None] * A
TOTAL = X[0] + np.eye(7)[0] * np.sum(X)
CURVATURE = A.T @ np.diag(2 * (1 - TANH**2) * (1 - 3 * TANH**2)) @ A


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
def test_jacobians_are_nested_as_results_and_arguments(mode: Any) -> None:
    result = compute(sg.jacobian(nested, mode=mode), X)
    assert np.allclose(result["rows"], SLOPES[:5], rtol=1e-12)
    assert np.allclose(result["total"][0], TOTAL, rtol=1e-12)
    both = sg.jacobian(lambda p, y: np.outer(p["x"], y[:2]), argnums=(0, 1), mode=mode)
    by_p, by_y = compute(both, {"x": X}, V)
    assert np.allclose(by_p["x"], np.einsum("ik,j->ijk", np.eye(7), V[:2]))
    assert np.allclose(by_y, np.einsum("i,jk->ijk", X, np.eye(7)[:2]))


def test_hessians_and_products_with_them() -> None:
    assert np.allclose(compute(sg.hessian(squares), X), CURVATURE, rtol=1e-11)
    product = compute(lambda x, v: sg.hvp(squares, x, v), X, V)
    assert np.allclose(product, CURVATURE @ V, rtol=1e-11)
    newton = compute(lambda x: x - np.linalg.solve(sg.hessian(squares)(x), sg.grad(squares)(x)), X)
    slope = 2 * A.T @ (TANH * (1 - TANH**2))
    assert np.allclose(newton, X - np.linalg.solve(CURVATURE, slope), rtol=1e-9)


def test_products_with_jacobians() -> None:
    value, tangent = compute(lambda x, v: sg.jvp(nested, (x,), (v,)), X, V)
    assert np.allclose(value["rows"], TANH[:5])
    assert np.allclose(tangent["rows"], SLOPES[:5] @ V, rtol=1e-12)
    assert np.allclose(tangent["total"][0], TOTAL @ V, rtol=1e-12)

    def pulled(x: Any, v: Any) -> Any:
        value, pull, beside = sg.vjp(lambda x: (np.tanh(A @ x), x[::2]), x, has_aux=True)
        return value, beside, pull(v)[0]

    value, beside, cotangent = compute(pulled, X, V)
    assert np.allclose(value, TANH) and np.allclose(beside, X[::2])
    assert np.allclose(cotangent, V @ SLOPES, rtol=1e-12)


def test_they_nest_in_loops_maps_and_one_another() -> None:
    curved = lambda x: np.sum(sg.jacobian(lambda y: np.tanh(A @ y))(x) ** 2)  # noqa: E731
    value, slope = sg.value_and_grad(curved, device="cpu", dtype="float64")(X)
    assert np.isclose(value, np.sum(SLOPES**2), rtol=1e-12)
    weights = np.sum(A**2, axis=1) * 2 * (1 - TANH**2) * -2 * TANH * (1 - TANH**2)
    assert np.allclose(slope, A.T @ weights, rtol=1e-11)

    points = RNG.normal(size=(3, 7))
    each = compute(sg.vmap(lambda x, v: sg.jvp(squares, (x,), (v,))[1], (0, None)), points, V)
    expected = [2 * (np.tanh(A @ p) * (1 - np.tanh(A @ p) ** 2)) @ A @ V for p in points]
    assert np.allclose(each, expected, rtol=1e-11)

    bowl = lambda x: np.sum((x - V) ** 4) + np.sum((x - V) ** 2)  # noqa: E731
    step = lambda x: x - np.linalg.solve(sg.hessian(bowl)(x), sg.grad(bowl)(x))  # noqa: E731
    end = compute(lambda x: sg.fori_loop(0, 12, lambda _, x: step(x), x), X)
    assert np.allclose(end, V, rtol=1e-9)
    at_number = compute(lambda x: sg.grad(lambda t: np.sum(np.sin(t * x)))(2.0), X)
    assert np.isclose(at_number, np.sum(X * np.cos(2 * X)), rtol=1e-12)


def test_what_cannot_be_differentiated_says_so() -> None:
    with pytest.raises(sg.InputError, match=r"a cotangent of shape \(2,\) .* of shape \(7,\)"):
        compute(lambda x: sg.vjp(np.sin, x)[1](x[:2]), X)
    with pytest.raises(sg.InputError, match=r"mode='up'"):
        compute(sg.jacobian(np.sin, mode="up"), X)  # pyright: ignore[reportArgumentType]
    with pytest.raises(sg.TraceError, match="a gradient is of one real number"):
        compute(sg.hessian(np.sin), X)
    with pytest.raises(sg.DifferentiationError, match="array of integers"):
        compute(sg.grad(np.argmax), X)
