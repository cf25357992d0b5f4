"""Arrays of inputs in a row, and of constants: loops read them where they stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg

TABLE = np.random.default_rng(0).normal(size=40)
POINTS = np.random.default_rng(1).uniform(0.3, 0.9, (70, 42))


def of_constants(v: Any) -> Any:
    """A sequence driven by a table, and one element of it by a computed index."""

    def step(s: Any, y: Any) -> Any:
        return sg.sin(v[0] * s + v[1] * y), None

    return sg.scan(step, v[2], TABLE)[0]


def of_inputs(v: Any) -> Any:
    """All but two of the inputs in a row, and every other one of them."""

    def step(s: Any, y: Any) -> Any:
        return sg.sin(s + y * v[0]), s

    end = sg.scan(step, v[1], v[2:])[0]
    return sg.fori_loop(0, 20, lambda k, s: s + v[2 * k + 2] * v[2 * k + 3], end)


def of_both(v: Any) -> Any:
    """An array that is written to begins as a table, of which another loop reads more."""

    def step(k: Any, carry: Any) -> Any:
        a, s = carry
        a = a.at[k].set(a[k] * v[0])
        return a, s + a[k] * v[k + 1]

    a, s = sg.fori_loop(0, 30, step, (TABLE[:30], v[1]))
    return s + a[3] + sg.fori_loop(0, 30, lambda k, t: t + TABLE[7] * v[k], v[2])


FUNCTIONS = [of_constants, of_inputs, of_both]


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", "float64"), ("cpu", "float32"), ("gpu", "float32")]
)
def test_values_and_gradients(f: Any, device: Any, dtype: Any) -> None:
    """Beside the same function on numbers, whose slopes are differences."""
    kernel = sg.fused_forward_backward(42, f, device=device, dtype=dtype)
    loss, gradient = kernel.run(POINTS.astype(dtype))
    moves = 1e-6 * np.eye(42)
    at = POINTS[:2]
    slopes = np.array([[(number(f, x + h) - number(f, x - h)) / 2e-6 for h in moves] for x in at])
    off = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(loss, [number(f, x) for x in POINTS], rtol=off, atol=off / 5)
    np.testing.assert_allclose(gradient[:2], slopes, rtol=1e-5, atol=3e-6)
    alone = kernel.run(POINTS[5].astype(dtype))
    assert alone[0] == loss[5]


def number(f: Any, x: np.ndarray) -> float:
    """The function of numbers, by Python's loops."""
    v, s = x, float(x[2])
    if f is of_constants:
        for y in TABLE:
            s = np.sin(v[0] * s + v[1] * y)
        return s
    if f is of_inputs:
        s = float(v[1])
        for y in v[2:]:
            s = np.sin(s + y * v[0])
        return s + sum(v[2 * k + 2] * v[2 * k + 3] for k in range(20))
    a, s = TABLE[:30] * v[0], float(v[1])
    return s + a @ v[1:31] + a[3] + v[2] + TABLE[7] * v[:30].sum()


def test_nothing_is_copied() -> None:
    """Sources do not grow with the arrays: neither has statements for their elements."""

    def long(n: int) -> sg.Kernel:
        table = np.linspace(0.0, 1.0, n) ** 2

        def f(v: Any) -> Any:
            def turn(k: Any, s: Any) -> Any:
                return (s + v[k]) * v[0]

            end = sg.scan(lambda s, y: (s * y + v[0], None), v[1], table)[0]
            return end + sg.fori_loop(0, n, turn, v[1])

        return sg.fused_forward(n, f, device="cpu")

    few, many = (len(long(n).wgsl.splitlines()) for n in (20, 200))
    assert few == many < 50
