"""Shares of iterations in cotangents of large arrays: products behind loops, beside differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.arrays.program import listing
from symgrad.arrays.trace import gradients, program_of
from symgrad.front.whole import WholeTrace

RNG = np.random.default_rng(5)
N = 150
MATRIX = np.abs(RNG.normal(size=(N, N))) + 0.5
MASK = (RNG.random((N, N)) < 0.7) / N
X = RNG.normal(size=N)
ROWS = RNG.normal(size=(5, N))


def looped(lib: Any, count: int, step: Any, carry: Any) -> Any:
    """`sg.fori_loop`, or Python's, of a step that may look a row up."""
    if lib is sg:
        return sg.fori_loop(0, count, step, carry)
    for k in range(count):
        carry = step(k, carry)
    return carry


def balanced(lib: Any, m: Any, x: Any) -> Any:
    """Sinkhorn's iteration, by a matrix and its transpose."""

    def step(_: Any, carry: Any) -> Any:
        u = 1.0 / (m @ carry[1])
        return u, (1.5 + np.tanh(x)) / (m.T @ u)

    u, v = looped(lib, 4, step, (x, np.ones(N)))
    return np.sum(np.log(u) * X + np.log(v) ** 2)


def masked(lib: Any, m: Any, x: Any) -> Any:
    """Sums and differences, a factor that is the same in each iteration, and the iteration."""

    def step(k: Any, c: Any) -> Any:
        return np.tanh((m * MASK) @ c - (c * (k + 1)) @ m / N / N) + np.cos(c) / (x**2 + 1.0)

    return np.sum(looped(lib, 3, step, x) ** 3)


def with_rows(lib: Any, m: Any, x: Any) -> Any:
    """Rows of an array from around the loop, and a form that is bilinear in them."""

    def step(k: Any, c: Any) -> Any:
        row = (sg.array(ROWS) if lib is sg else ROWS)[k]
        return np.sin(c) + row * np.sum(np.outer(c, row) * m) / N + m.T[::-1] @ row / N

    return np.sum(looped(lib, 5, step, x) ** 2)


def not_products(lib: Any, m: Any, x: Any) -> Any:
    """A matrix that is carried, of which each iteration adds a whole one."""
    end = looped(lib, 3, lambda _, c: np.sin(c * m) + c / 2, m * x)
    return np.sum(end**2)


LOOPS = [balanced, masked, with_rows, not_products]


@pytest.mark.parametrize("f", LOOPS)
def test_gradients_are_those_of_differences(f: Any) -> None:
    run = sg.value_and_grad(lambda m, x: f(sg, m, x), (0, 1), device="cpu", dtype="float64")
    value, grads = run(MATRIX, X)
    assert value == pytest.approx(f(np, MATRIX, X), rel=1e-12)
    for k, grad in enumerate(grads):
        along, ends = RNG.normal(size=grad.shape), []
        for h in (1e-6, -1e-6):
            moved = [MATRIX, X]
            moved[k] = moved[k] + h * along
            ends.append(f(np, *moved))
        assert np.sum(grad * along) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("f", [balanced, masked])
def test_second_derivatives(f: Any) -> None:
    along = RNG.normal(size=(N, N))
    run = sg.jit(
        lambda m: sg.jvp(sg.grad(lambda a: f(sg, a, X)), (m,), (along,)),
        device="cpu", dtype="float64",
    )  # fmt: skip
    slope = sg.value_and_grad(lambda m: f(sg, m, X), device="cpu", dtype="float64")
    _, second = run(MATRIX)
    ends = [slope(MATRIX + h * along)[1] for h in (1e-6, -1e-6)]
    wanted = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(second, wanted, rtol=1e-5, atol=1e-6 * np.max(np.abs(wanted)))


@pytest.mark.parametrize("f", [balanced, masked, with_rows])
def test_no_loop_carries_the_cotangent_of_a_matrix(f: Any) -> None:
    trace = WholeTrace(lambda m, x: f(sg, m, x), [MATRIX, X])
    value = trace.call(lambda arrays: iter([*arrays, {}]))
    program = program_of(trace.tape, [value, *gradients(value, trace.variables)])
    loops = [line for line in listing(program).splitlines() if "= loop(" in line]
    assert len(loops) >= 4, "carries of both directions"
    carried = [a for a in program.arrays if getattr(a, "call", None) and a.shape == (N, N)]
    assert not carried


@pytest.mark.parametrize("f", LOOPS)
def test_on_each_device(f: Any) -> None:
    wanted = sg.value_and_grad(lambda m: f(sg, m, X), device="cpu", dtype="float64")(MATRIX)
    for device in sg.devices():
        value, grad = sg.value_and_grad(lambda m: f(sg, m, X), device=device)(MATRIX)
        assert value == pytest.approx(wanted[0], rel=1e-4)
        np.testing.assert_allclose(grad, wanted[1], rtol=2e-3, atol=1e-4 * np.max(abs(wanted[1])))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_places_of_long_rows_are_kept_as_integers(device: Any) -> None:
    def loss(x: Any) -> Any:
        def step(_: Any, c: Any) -> Any:
            return c + 0.1 * c[-1 - np.argmin(c.ravel()) % 8]

        return np.sum(np.sin(sg.fori_loop(0, 3, step, x)))

    def in_numpy(x: np.ndarray) -> float:
        for _ in range(3):
            x = x + 0.1 * x[-1 - np.argmin(x.ravel()) % 8]
        return float(np.sum(np.sin(x)))

    x, h = np.random.default_rng(0).normal(size=(8, 8)), 1e-6
    grad = sg.jit(sg.grad(loss), device=device)(x)
    steps = h * np.eye(64).reshape(64, 8, 8)
    slopes = [(in_numpy(x + d) - in_numpy(x - d)) / (2 * h) for d in steps]
    np.testing.assert_allclose(grad.ravel(), slopes, rtol=1e-4, atol=1e-5)
