"""What users meet of loops: values, counts, sizes, and what cannot take one yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import InputError, TraceError, UnsupportedError
from symgrad.expr.graph.region import require_straight
from symgrad.expr.loops.control import cond


def powers(iterations: int) -> Any:
    """A loss of so many iterations, two operations and a float of the counter each."""
    return lambda v: sg.fori_loop(0, iterations, lambda k, y: y * v[0] + k, v[1])


def test_values_of_free_variables() -> None:
    x, y = sg.symbols("x y")
    end = sg.fori_loop(0, 3, lambda k, s: s * x + k, y)
    assert sg.evaluate(end, {x: 2.0, y: 1.0}) == ((1 * 2 + 0) * 2 + 1) * 2 + 2
    np.testing.assert_array_equal(sg.evaluate(end, {x: np.array([0.0, 1.0]), y: 1.0}), [2, 4])
    assert sg.evaluate(end.subs({x: 2.0}), {y: 1.0}) == 12
    assert sg.count_ops(end) == {"add": 1, "loop": 1, "mul": 1, "pick": 1, "word_float": 1}


def test_what_left_a_body_has_no_value() -> None:
    x, kept = sg.var("x"), []
    sg.fori_loop(0, 3, lambda k, s: kept.append(s * k) or s, x)
    with pytest.raises(TraceError, match="used outside of the loop"):
        sg.evaluate(kept[0], {x: 1.0})


def test_operations_within_a_loop_count_turn_by_turn() -> None:
    few, many = (
        sg.fused_forward(2, powers(iterations), device="cpu").stats for iterations in (100, 1000)
    )
    assert many.operations == 10 * few.operations == 3000
    assert many.flops == 10 * few.flops
    assert many.nodes == few.nodes
    assert many.registers == few.registers <= 10


def slopes(f: Any, at: np.ndarray) -> np.ndarray:
    """Central differences of a function of numbers at points (B, n)."""
    steps = 1e-6 * np.eye(at.shape[1])
    return np.array([[(f(x + h) - f(x - h)) / 2e-6 for h in steps] for x in at])


def leapfrog(force: Any, v: Any) -> Any:
    """The position after thirty steps of a particle."""

    def step(_: Any, state: Any) -> Any:
        q, p = state
        p = p + 0.05 * force(q)
        q = q + 0.1 * p
        return q, p + 0.05 * force(q)

    return sg.fori_loop(0, 30, step, (v[1], 1.0))[0]


def test_derivatives_within_a_body() -> None:
    """A force is the gradient of an energy, and the loss is differentiated once more."""
    at = np.array([[0.5, 0.2], [0.7, -0.1], [0.3, 0.9]])

    def traced(v: Any) -> Any:
        return leapfrog(lambda q: -sg.grad(q**4 / 4 - v[0] * sg.cos(q), q), v)

    def numbers(v: Any) -> float:
        return float(leapfrog(lambda q: -(q**3) - v[0] * np.sin(q), v))

    kernel = sg.fused_forward_backward(2, traced, device="cpu", dtype="float64")
    loss, gradient = kernel(at)
    np.testing.assert_allclose(loss, [numbers(x) for x in at], rtol=1e-13)
    np.testing.assert_allclose(gradient, slopes(numbers, at), rtol=1e-7, atol=1e-8)


def test_the_derivative_of_a_loop_within_a_loop() -> None:
    """Newton's method, the slope of whose function is that of a loop."""
    at = np.array([[0.5, 0.4], [0.7, 0.3], [0.3, 0.25]])

    def newton(v: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            y = sg.fori_loop(0, 12, lambda _, s: s + 0.1 * sg.sin(s) * x, v[0])
            return x - (y - 3.0 * v[1]) / sg.grad(y, x)

        return sg.fori_loop(0, 7, step, 1.0)

    kernel = sg.fused_forward_backward(2, newton, device="cpu", dtype="float64")
    root, gradient = kernel(at)
    end = at[:, 0]
    for _ in range(12):
        end = end + 0.1 * np.sin(end) * root
    np.testing.assert_allclose(end, 3.0 * at[:, 1], rtol=1e-12)
    differences = slopes(lambda x: float(kernel(x[None])[0][0]), at)
    np.testing.assert_allclose(gradient, differences, rtol=1e-6)


def test_a_constant_in_a_body_that_float32_cannot_hold() -> None:
    def loss(v: Any) -> Any:
        return sg.fori_loop(0, 3, lambda k, y: y * k + 1e39, v[0])

    with pytest.raises(InputError, match=r"1e\+39 is beyond float32"):
        sg.fused_forward(1, loss, device="cpu")
    assert sg.fused_forward(1, loss, device="cpu", dtype="float64")(np.ones(1)) > 1e39


@pytest.mark.parametrize("loss", [
    powers(3), lambda v: cond(v[0] > 0, lambda: v[0], lambda: v[1] * v[1]),
])  # fmt: skip
def test_what_cannot_take_a_loop_yet_says_so(loss: Any) -> None:
    x, y = sg.symbols("x y")
    expr = loss(np.array([x, y], dtype=object))
    with pytest.raises(
        UnsupportedError, match=r"an expression of SymPy cannot contain a (loop|choice)"
    ) as caught:
        sg.to_sympy(expr)
    assert __file__ in str(caught.value)
    require_straight(expr.graph, [x.id], "nothing")


def test_a_loss_of_rows_closes_over_its_columns() -> None:
    """The trace of a row is known to a loop that begins with numbers alone."""

    def loss(p: Any, r: Any) -> Any:
        return sg.fori_loop(0, 30, lambda k, s: s + r.x * p[0], 0.0)

    kernel = sg.fused_forward_backward(1, loss, columns=["x"], device="cpu", dtype="float64")
    value, slopes = kernel.run([0.5], np.array([[0.25], [2.0]]))
    np.testing.assert_allclose([value, *slopes], [30 * 2.25 * 0.5, 30 * 2.25], rtol=1e-14)
