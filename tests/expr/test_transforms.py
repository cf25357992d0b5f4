"""Derivatives of functions inside a trace: JAX's meaning, at inputs of their own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg


def values(f: Callable[..., Any], *at: float) -> Any:
    return sg.fused_forward(len(at), f, device="cpu", dtype="float64").run(list(at))


def test_a_gradient_is_by_the_argument_and_not_by_what_equals_it() -> None:
    def f(v: Any) -> Any:
        p = np.sin(v)
        return sg.grad(lambda y: 2 * (p @ p) - y @ y)(np.sin(v))

    np.testing.assert_allclose(values(f, 1.0, 2.0), -2 * np.sin([1.0, 2.0]))


def test_a_derivative_by_an_expression_with_a_namesake_warns() -> None:
    def f(v: Any) -> Any:
        p = np.sin(v)
        y = np.sin(v)
        return sg.grad(2 * (p @ p) - y @ y, y)

    with pytest.warns(sg.NamesakeWarning, match=r"sin\(x0\).*two lines.*p = .*y = "):
        values(f, 1.0, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values(lambda v: sg.grad(np.sum(np.sin(v) ** 2) + np.sin(v[0]), v), 1.0, 2.0)


SCALARS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "at a constant": (lambda v: sg.grad(lambda x: v[0] * x**3)(2.0), 3 * 12),
    "no dependence": (lambda v: sg.grad(lambda x: v[0] * 2)(v[0]) + v[0], 3),
    "of a number": (lambda v: sg.grad(lambda x: 7.0)(v[0]) + v[0], 3),
    "perturbations are apart": (
        lambda v: sg.grad(lambda x: x * sg.grad(lambda y: x * y)(1.0))(v[0]), 6),
    "shadowed": (lambda v: sg.grad(lambda x: x * sg.grad(lambda x: x**2)(x))(v[0]), 12),
    "twice": (lambda v: sg.grad(sg.grad(lambda x: x**4))(v[0]), 12 * 9),
    "three times": (lambda v: sg.grad(sg.grad(sg.grad(lambda x: x**4)))(v[0]), 24 * 3),
    "second argument": (lambda v: sg.grad(lambda a, b: a * b**2, 1)(v[0], v[0]), 18),
    "last argument": (lambda v: sg.grad(lambda a, b: a * b**2, argnums=-1)(v[0], v[0]), 18),
    "named argument": (lambda v: sg.grad(lambda a, k: k * a**2)(v[0], k=5.0), 30),
    "of a loop": (
        lambda v: sg.grad(lambda x: sg.fori_loop(0, 5, lambda k, c: c * x, 1.0))(v[0]), 5 * 81),
    "of a loop, twice": (
        lambda v: sg.grad(sg.grad(lambda x: sg.fori_loop(0, 5, lambda k, c: c * x, 1.0)))(v[0]),
        20 * 27),
    "in a choice": (
        lambda v: sg.cond(v[0] > 0, lambda: sg.grad(lambda x: x**2)(v[0]), lambda: 0 * v[0]), 6),
    "of a choice": (
        lambda v: sg.grad(lambda x: sg.cond(x > 0, lambda: x**3, lambda: x))(v[0]), 27),
    "in a loop": (
        lambda v: sg.fori_loop(
            0, 30, lambda k, x: x - (x**3 - v[0]) / sg.grad(lambda x: x**3 - v[0])(x), 1.0),
        3 ** (1 / 3)),
    "while": (
        lambda v: sg.while_loop(
            lambda x: abs(sg.grad(lambda t: (t - v[0]) ** 2)(x)) > 1e-12,
            lambda x: x - 0.5 * sg.grad(lambda t: (t - v[0]) ** 2)(x), 0.0, max_steps=9),
        3),
    "hvp": (lambda v: sg.hvp(lambda x: x**4, v[0], 2.0), 2 * 12 * 9),
    "jvp of grad": (lambda v: sg.jvp(sg.grad(lambda x: x**4), (v[0],), (2.0,))[1], 2 * 12 * 9),
    "value": (lambda v: sg.value_and_grad(lambda x: x * v[0])(v[0] + 1)[0], 12),
    "integers beside": (lambda v: sg.grad(lambda x, n: x**n)(v[0], 2), 6),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALARS)
def test_gradients_of_functions_in_a_trace(name: str) -> None:
    f, wanted = SCALARS[name]
    assert values(f, 3.0) == pytest.approx(wanted, rel=1e-12)


def test_the_whole_is_differentiated_again() -> None:
    f = lambda v: sg.fori_loop(  # noqa: E731
        0, 30, lambda k, x: x - (x**3 - v[0]) / sg.grad(lambda x: x**3 - v[0])(x), 1.0
    )
    kernel = sg.fused_hessian(1, f, device="cpu", dtype="float64")
    found = np.array([float(np.ravel(part)[0]) for part in kernel.run([27.0])])
    np.testing.assert_allclose(found, [3, 1 / 27, -2 / 9 / 3**5], rtol=1e-9)


def test_nests_several_arguments_and_more_that_is_returned() -> None:
    def loss(p: Any, q: Any) -> Any:
        return np.sum(p["w"] * q) * p["b"][0], {"twice": p["w"] * 2, "fixed": "text"}

    def f(v: Any) -> Any:
        p = {"w": v[:2], "b": (v[0],)}
        both = sg.value_and_grad(loss, argnums=(0, 1), has_aux=True)
        (value, aux), (g, h) = both(p, np.array([3.0, 4.0]))
        assert aux["fixed"] == "text"
        again, aux = sg.grad(loss, argnums=1, has_aux=True)(p, np.array([3.0, 4.0]))
        return [value, *aux["twice"], *g["w"], g["b"][0], *h, *again]

    assert values(f, 2.0, 3.0) == [36, 4, 6, 6, 8, 18, 4, 6, 4, 6]


def test_jacobians_and_hessians_of_functions_are_shaped_as_jax_s() -> None:
    def f(v: Any) -> Any:
        j = sg.jacobian(lambda x: np.stack([x[0, 0] * x[0, 1], x[1, 0] ** 2]))(v[:4].reshape(2, 2))
        h = sg.hessian(lambda x: x[0] ** 2 * x[1])(v[:2])
        several = sg.jacobian(lambda a, b: {"s": a * b, "t": b}, argnums=(0, 1))(v[0], v[1])
        mixed = sg.hessian(lambda a, b: a * b[0] ** 2, argnums=(0, 1))(v[0], v[1:3])
        assert j.shape == (2, 2, 2)
        assert h.shape == (2, 2)
        assert mixed[0][1].shape == (2,)
        assert mixed[1][1].shape == (2, 2)
        parts = [j.ravel(), h.ravel(), several["s"], several["t"], mixed[0][1], mixed[1][1].ravel()]
        return np.concatenate([np.ravel(np.array(p, dtype=object)) for p in parts])

    found = values(f, 2.0, 3.0, 5.0, 7.0)
    np.testing.assert_allclose(
        found, [3, 2, 0, 0, 0, 0, 10, 0, 6, 4, 4, 0, 3, 2, 0, 1, 6, 0, 4, 0, 0, 0]
    )


def test_products_with_jacobians_of_functions() -> None:
    def f(v: Any) -> Any:
        value, moved = sg.jvp(lambda a, b: (a * b, a), (v[0], v[1]), (1.0, v[1]))
        again, pull = sg.vjp(lambda a, b: (a * b, a), v[0], v[1])
        scalar, pull_one = sg.vjp(lambda x: x @ x, v)
        return [*value, *moved, *again, *pull((1.0, 2.0)), scalar, *pull_one(0.5)[0]]

    assert values(f, 2.0, 3.0) == [6, 2, 9, 1, 6, 2, 5, 2, 13, 2, 3]


def test_steps_of_a_scan_take_gradients() -> None:
    def f(v: Any) -> Any:
        def step(p: Any, x: Any) -> Any:
            loss, slope = sg.value_and_grad(lambda p: (p * x - 1.0) ** 2)(p)
            return p - 0.1 * slope, loss

        last, losses = sg.scan(step, v[0], np.array([1.0, 2.0, 3.0]))
        return [last, losses[2]]

    p = 0.3
    for x in (1.0, 2.0, 3.0):
        loss = (p * x - 1) ** 2
        p -= 0.1 * 2 * x * (p * x - 1)
    np.testing.assert_allclose(values(f, 0.3), [p, loss])


def test_arrays_in_memory_are_arguments() -> None:
    def f(v: Any) -> Any:
        a = sg.fori_loop(0, 300, lambda k, a: a.at[k].set(v[0] * k), np.zeros(300))
        squares = sg.grad(lambda a: np.sum(a * a))(a)
        product = sg.grad(lambda a: a[v[1]] * a[3])(a)
        return [squares[2], squares[299], product[3], product[v[1]], product[0]]

    assert values(f, 2.0, 7.0) == [8, 4 * 299, 14, 6, 0]


def test_symbols_may_be_arguments_outside_of_a_trace() -> None:
    x = sg.var("x")
    value, slope = sg.value_and_grad(lambda t: t**3 * x)(2 * x)
    assert sg.evaluate(value, {"x": 2.0}) == 128
    assert sg.evaluate(slope, {"x": 2.0}) == 96


def test_what_has_no_gradient_says_so() -> None:
    x = sg.var("x")
    with pytest.raises(sg.TraceError, match="a gradient is of one real number"):
        sg.grad(lambda x: [x, x])(x)
    with pytest.raises(sg.DifferentiationError, match="is an integer"):
        sg.grad(lambda x: sg.int32(x))(x)
    with pytest.raises(sg.DifferentiationError, match="is an integer"):
        sg.grad(lambda i: 1.5 * i)(sg.int32(x))
    with pytest.raises(sg.InputError, match="argnums=2"):
        sg.grad(lambda x: x, argnums=2)(x)
    with pytest.raises(sg.TraceError, match="returns a pair with has_aux"):
        sg.grad(lambda x: x, has_aux=True)(x)
    with pytest.raises(sg.InputTypeError, match="two tuples"):
        sg.jvp(lambda x: x, x, 1.0)
