"""Functions that use a result again and again: work grows with the results, not with the paths.

Written out, each of these has more than 2**30 terms, which no test would see the end of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import symgrad as sg

X = np.array([0.3, -0.7, 1.2, 0.4])
TIMES = range(32)


def squared(x: Any) -> Any:
    y = 1.0 + 1e-9 * x
    for _ in TIMES:
        y = y * y
    return y


def divided(x: Any) -> Any:
    y = 1.0 + 1e-10 * x
    for _ in TIMES:
        y = y / (y * y)
    return y


def held(x: Any) -> Any:
    condition = x > 0
    for k in TIMES:
        condition = (condition & (x > 0.01 * k)) | (condition & (x < 0.4))
    return np.where(condition, x**2, 0.0)


def counted(x: Any) -> Any:
    """Integers and conditions on their places, as those of branches of branches are."""
    places, condition = np.arange(4), np.arange(4) < 3
    for k in TIMES:
        places = (places + places * places) % 7
        condition = (condition & (places != k)) | condition
    return np.where(condition, x * places, 0.0)


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "squared": (squared, lambda x: 2.0**32 * 1e-9 * squared(x) / (1.0 + 1e-9 * x)),
    "divided": (divided, lambda x: 1e-10 * divided(x) / (1.0 + 1e-10 * x)),
    "held": (held, lambda x: np.where(x > 0, 2 * x, 0.0)),
    "counted": (counted, lambda x: counted(np.ones(4))),
}
"""Functions, and their derivatives."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_slopes(name: str) -> None:
    f, slope = FUNCTIONS[name]
    both = sg.jit(sg.value_and_grad(lambda x: np.sum(f(x))), device="cpu", dtype="float64")
    value, gradient = both(X)
    assert np.isclose(value, np.sum(f(X)), rtol=1e-12)
    assert np.allclose(gradient, slope(X), rtol=1e-7)


@pytest.mark.parametrize("verb", ["jvp", "grad"])
def test_second_derivatives_of_what_branches_much(verb: str) -> None:
    """The series and fractions of these functions begin in branches of branches."""

    def f(x: Any) -> Any:
        return np.sum(scipy.special.betaln(np.abs(x) + 0.5, 1.2))

    def curvature(x: Any) -> Any:
        if verb == "jvp":
            return sg.jvp(sg.grad(f), (x,), (np.ones(4),))[1]
        return sg.grad(lambda y: np.sum(sg.grad(f)(y)))(x)

    y = np.abs(X) + 0.5
    expected = scipy.special.polygamma(1, y) - scipy.special.polygamma(1, y + 1.2)
    computed = sg.jit(curvature, device="cpu", dtype="float64")(X)
    assert np.allclose(computed, expected, rtol=1e-10)


def test_long_bodies_read_the_numbers_of_their_row() -> None:
    """Of each row: they were read where the row was not yet known, those of the row before."""
    rng = np.random.default_rng(0)
    x, along, weights = rng.normal(size=(3, 4, 5))

    def f(x: Any) -> Any:
        y = scipy.special.betaln(np.abs(x) + 0.5, 1.2)
        return np.sum(weights * np.tanh(np.gradient(y, axis=-1)))

    def curvature(x: Any) -> Any:
        return sg.jvp(sg.grad(f), (x,), (along,))[1]

    step, h = sg.jit(sg.grad(f), device="cpu", dtype="float64"), 1e-5
    expected = (step(x + h * along) - step(x - h * along)) / (2 * h)
    computed = sg.jit(curvature, device="cpu", dtype="float64")(x)
    assert np.allclose(computed, expected, rtol=1e-6, atol=1e-7)


def _of_a_product(x: Any) -> Any:
    hessian = sg.jacobian(sg.grad(lambda z: np.sum(np.sin(z) * np.prod(np.cos(z)))))(x)
    return np.sum(hessian * np.arange(16.0).reshape(4, 4))


def test_kernels_of_sums_and_what_finishes_them_bind_no_more_than_they_may() -> None:
    x = np.array([0.3, 0.1, 0.4, 0.5])
    hessian = sg.jacobian(sg.grad(lambda z: np.sum(np.sin(z) * np.prod(np.cos(z)))))
    on_gpu = sg.jit(hessian, device="gpu")(x)
    on_host = sg.jit(hessian, device="cpu", dtype="float64")(x)
    np.testing.assert_allclose(on_gpu, on_host, rtol=1e-5, atol=1e-6)


def test_words_of_an_index_reach_the_functions_of_long_kernels() -> None:
    slopes = sg.grad(_of_a_product)
    f = sg.jit(lambda x: np.sum(slopes(x) ** 2), device="cpu", dtype="float64")
    grad = sg.jit(sg.grad(lambda x: np.sum(slopes(x) ** 2)), device="cpu", dtype="float64")
    x, h = np.array([0.3, 0.1, 0.4, 0.5]), 1e-5
    numbers = [(f(x + d) - f(x - d)) / (2 * h) for d in h * np.eye(4)]
    np.testing.assert_allclose(grad(x), numbers, rtol=1e-7)
