"""Python's loops in losses over rows, in minimisations and in fits: they become loops there too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr.graph.region import has_regions
from symgrad.optimize.method import Weighted
from symgrad.optimize.problem import Problem
from symgrad.targets import DeviceChoice

STEPS = 200
ROUNDING = 2.0**-51


def orbit(p: Any, x: Any, y: Any = 1.0) -> Any:
    """Predators and prey after many steps, which Python's loop writes out."""
    for _ in range(STEPS):
        k, n = p[0] * x - p[1] * x * y, p[3] * x * y - p[2] * y
        x, y = x + 0.01 * k, y + 0.01 * n
    return x, y


def apart(p: Any, row: Any) -> Any:
    """The squared distance of an end from where it was seen, of the start in a row."""
    x, y = orbit(p, row[0])
    return (x - row[1]) ** 2 + (y - row[2]) ** 2


def of_slopes(p: np.ndarray, row: np.ndarray) -> np.ndarray:
    """The gradient by complex steps."""
    return np.array([apart(p + 1e-20j * e, row).imag / 1e-20 for e in np.eye(4)])


P = np.array([1.0, 0.5, 0.7, 0.6])
ROWS = np.random.default_rng(5).uniform(0.5, 1.5, (50, 3))


@pytest.mark.parametrize("weights", [None, "w"])
def test_a_loss_over_rows_has_loops(weights: str | None) -> None:
    columns = ["a", "b", "c", "w"]
    weight = np.random.default_rng(1).uniform(0.0, 2.0, 50) * (np.arange(50) % 5 > 0)
    kernel = sg.fused_forward_backward(
        4, apart, columns=columns, weights=weights, device="cpu", dtype="float64"
    )
    loss, grad = kernel.bind(np.column_stack([ROWS, weight])).run(P)
    each = np.ones(50) if weights is None else weight
    assert has_regions(kernel.expr[0].graph)
    np.testing.assert_allclose(
        loss, sum(w * apart(P, r) for w, r in zip(each, ROWS, strict=True)), rtol=1e-12
    )
    expected = sum(w * of_slopes(P, r) for w, r in zip(each, ROWS, strict=True))
    np.testing.assert_allclose(grad, expected, rtol=1e-10)


def test_loops_over_rows_stay_written_out_if_asked() -> None:
    kernel = sg.fused_forward_backward(
        4, apart, columns=["a", "b", "c"], device="cpu", dtype="float64", roll=False
    )
    assert not has_regions(kernel.expr[0].graph)
    np.testing.assert_allclose(
        kernel.bind(ROWS).run(P)[1], sum(of_slopes(P, r) for r in ROWS), rtol=1e-10
    )


def operations(problem: Problem) -> int:
    """How long the loss of a problem is, written out."""
    v = [sg.var(f"v{k}") for k in range(problem.n)]
    return sum(sg.count_ops(problem.f(v)).values())


def test_a_problem_of_loops_is_short() -> None:
    problem = Problem(lambda v: apart(v, ROWS[0]), 4)
    turned = problem.rolled(ROUNDING)
    assert 10 * operations(turned) < operations(problem)
    few = Problem(lambda v: v[0] ** 2, 4)
    assert few.rolled(ROUNDING) is few


@pytest.mark.parametrize("weighted", [False, True])
def test_results_of_a_problem_keep_their_form(weighted: bool) -> None:
    def residuals(v: Any, row: Any) -> Any:
        x, y = orbit(v, row[0])
        found = np.array([x - row[1], y - row[2]])
        return Weighted(found * row[3], row[3]) if weighted else found

    problem = Problem(residuals, 4, own=4)
    turned = problem.rolled(ROUNDING)
    v = [sg.var(f"v{k}") for k in range(8)]
    was, now = problem.f(v[:4], v[4:]), turned.f(v[:4], v[4:])
    assert turned is not problem
    assert isinstance(now, Weighted if weighted else np.ndarray)
    values = dict(zip(v, [*P, 1.1, 0.9, 0.8, 2.0], strict=True))
    plain = [f.value if isinstance(f, Weighted) else f for f in (was, now)]
    for a, b in zip(*plain, strict=True):
        assert sg.evaluate(b, values) == pytest.approx(sg.evaluate(a, values), rel=1e-12)


def test_starts_and_fits_end_where_they_should() -> None:
    truth = np.array([1.1, 0.4, 0.8, 0.5])
    x, y = orbit(truth, 0.9)
    starts = truth * np.random.default_rng(2).uniform(0.9, 1.1, (20, 4))
    found = sg.minimize_from(
        lambda v: apart(v, [0.9, x, y]), 4, starts, sg.LBFGS(), 200, device="cpu", dtype="float64"
    )
    assert found.success.all() and found.fun.max() < 1e-12

    def logistic(t: Any, a: Any, b: Any) -> Any:
        level = 1.0
        for _ in range(STEPS):
            level = level + t / STEPS * (a * level - b * level * level)
        return level

    t = np.linspace(0.0, 2.0, 21)
    seen = np.array([logistic(s, 1.5, 0.6) for s in t])
    popt, _ = sg.curve_fit(logistic, t, seen, p0=[1.0, 1.0])
    np.testing.assert_allclose(popt, [1.5, 0.6], rtol=1e-8)
    many = sg.fit_many(logistic, t, np.tile(seen, (5, 1)), p0=[1.0, 1.0], device="cpu")
    np.testing.assert_allclose(many.x, np.tile([1.5, 0.6], (5, 1)), rtol=1e-4)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_rows_that_look_lines_up_have_loops(device: DeviceChoice) -> None:
    place = np.random.default_rng(3).integers(0, 3, 50)

    def loss(p: Any, r: Any) -> Any:
        return apart(p.rates[r.place], [r.a, r.b, r.c])

    kernel = sg.fused_forward_backward(
        {"rates": (3, 4)}, loss, columns=["place", "a", "b", "c"], device=device
    )
    rates = P * np.array([[1.0], [0.9], [1.1]])
    data = np.column_stack([place, ROWS])
    found, grad = kernel.bind(data).run({"rates": rates})
    expected = np.zeros((3, 4))
    for k, row in zip(place, ROWS, strict=True):
        expected[k] += of_slopes(rates[k], row)
    assert has_regions(kernel.expr[0].graph)
    losses = [apart(rates[k], row) for k, row in zip(place, ROWS, strict=True)]
    np.testing.assert_allclose(found, sum(losses), rtol=2e-5)
    np.testing.assert_allclose(np.asarray(grad["rates"]), expected, rtol=1e-4, atol=1e-4)
