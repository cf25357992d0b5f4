"""Minimisations by kernels over data: a fit for each data set, or one for each start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg
from symgrad.errors import InputError
from symgrad.optimize.stepwise import MOST_PROBLEMS
from symgrad.values.tables import Reduce

X = np.linspace(0.0, 4.0, 40)
TRUE = np.random.default_rng(0).uniform(0.5, 2.0, (7, 3))
Y = np.array([a * np.exp(-b * X) + c for a, b, c in TRUE])
DATA = np.stack([np.broadcast_to(X, Y.shape), Y], axis=2)
DOUBLE: dict[str, Any] = {"device": "cpu", "dtype": "float64"}
SQUARES = [sg.LevenbergMarquardt(), sg.GaussNewton()]
LOSSES = [sg.LBFGS(), sg.Newton()]


def residual(p: Any, r: Any) -> Any:
    return p[0] * np.exp(-p[1] * r[0]) + p[2] - r[1]


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("method", [*SQUARES, *LOSSES], ids=lambda m: type(m).__name__)
def test_a_fit_for_each_data_set(method: Any, reduce: Reduce) -> None:
    kernel = sg.fused_least_squares(3, residual, row=2, reduce=reduce, **DOUBLE)
    noisy = DATA + 0.01 * np.sin(37.0 * np.arange(DATA.size).reshape(DATA.shape)) * [0, 1]
    found = kernel.minimize(np.ones((7, 3)), method, 300, rows=noisy)
    want = sg.fit_many(lambda x, a, b, c: a * np.exp(-b * x) + c, X, noisy[..., 1], **DOUBLE)
    assert found.success.all()
    np.testing.assert_allclose(found.x, want.x, rtol=1e-4)
    np.testing.assert_allclose(
        found.fun, [kernel.run(x, rows)[0] for x, rows in zip(found.x, noisy, strict=True)]
    )


@pytest.mark.parametrize("method", [*LOSSES, sg.Adam(0.02)], ids=lambda m: type(m).__name__)
def test_losses_over_data_sets_and_shared_data(method: Any) -> None:
    kernel = sg.fused_forward_backward(
        {"a": 1, "rest": 2}, lambda p, r: (p.a[0] * np.exp(-p.rest[0] * r.x) + p.rest[1] - r.y)**2,
        columns=["x", "y"], **DOUBLE,
    )  # fmt: skip
    found = kernel.minimize(np.ones((7, 3)), method, 3000, rows={"x": X, "y": Y})
    np.testing.assert_allclose(found.x, TRUE, atol=1e-2)
    same = kernel.minimize(np.ones((7, 3)), method, 3000, rows=DATA)
    np.testing.assert_array_equal(found.x, same.x)
    starts = np.random.default_rng(1).uniform(0.8, 1.2, (4, 3))
    shared = kernel.minimize(starts, method, 3000, rows={"x": X, "y": Y[0]})
    np.testing.assert_allclose(shared.x, np.tile(TRUE[0], (4, 1)), atol=1e-2)


def test_weights_and_bounds() -> None:
    kernel = sg.fused_least_squares(3, residual, row=3, weights=2, **DOUBLE)
    weights = np.linspace(0.0, 1.0, 40)
    rows = np.column_stack([X, Y[0] + 0.01 * np.cos(5 * X), weights])
    found = kernel.minimize([1, 1, 1], sg.LevenbergMarquardt(), rows=rows, bounds=(0, 5)).x
    kept = weights > 0
    want, _ = sg.curve_fit(
        lambda x, a, b, c: a * np.exp(-b * x) + c, X[kept], rows[kept, 1], [1, 1, 1],
        sigma=weights[kept] ** -0.5,
    )  # fmt: skip
    np.testing.assert_allclose(found, want, rtol=1e-6)


def rate(p: Any, r: Any) -> Any:
    """A Poisson likelihood, of a rate for each group."""
    eta = p.group[r.g] + p.slope * r.x
    return sg.exp(eta) - r.y * eta


def counts(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    g, x = rng.integers(0, 4, rows), rng.normal(size=rows)
    return {"g": g, "x": x, "y": rng.poisson(np.exp(0.3 * g + 0.2 * x))}


def test_likelihoods_with_look_ups() -> None:
    """Each step is a pass over the rows, with what they look up; the end is a stationary point."""
    sizes = {"group": (4,), "slope": ()}
    kernel = sg.fused_forward_backward(sizes, rate, columns=["g", "x", "y"], **DOUBLE)
    data, start = counts(300), {"group": np.zeros(4), "slope": 0.0}
    found = kernel.minimize(start, sg.LBFGS(), rows=data)
    loss, gradient = kernel.run(found.x, data)
    want = scipy.optimize.minimize(kernel.as_scipy(data), np.zeros(5), jac=True, tol=1e-8)
    assert found.success and found.fun == loss and np.ndim(found.fun) == 0
    np.testing.assert_allclose(kernel.in_a_row(gradient), 0.0, atol=1e-6)
    np.testing.assert_allclose(found.fun, want.fun, rtol=1e-12)
    again = kernel.bind(data).minimize([np.zeros(5)] * 2, sg.LBFGS())
    np.testing.assert_array_equal(again.x[1], kernel.in_a_row(found.x))
    held = kernel.bind(data).minimize(np.zeros(5), sg.LBFGS(), bounds=(-1, 0.1))
    assert held.success and held.x.max() == 0.1


@pytest.mark.parametrize("method", [sg.LBFGS(), sg.Newton(), sg.LevenbergMarquardt()])
def test_look_ups_of_each_fit(method: Any) -> None:
    """Each start has rows of its own, whose indices look its own parameters up: means of groups."""
    squares = isinstance(method, sg.LevenbergMarquardt)
    make = sg.fused_least_squares if squares else sg.fused_forward_backward
    power = 1 if squares else 2
    kernel = make({"level": (3,)}, lambda p, r: (p.level[r.g] - r.y) ** power, columns=["g", "y"],
                  **DOUBLE)  # fmt: skip
    g, y = np.array([[0, 1, 2, 0, 1, 2], [2, 2, 1, 1, 0, 0]]), np.arange(12.0).reshape(2, 6)
    want = [[y[k][g[k] == group].mean() for group in range(3)] for k in range(2)]
    for rows in ({"g": g, "y": y}, np.stack([g, y], axis=2)):
        found = kernel.minimize(np.zeros((2, 3)), method, rows=rows)
        assert found.success.all()
        np.testing.assert_allclose(found.x, want, rtol=1e-9)
    with pytest.raises(sg.InputError, match="level has 3 entries"):
        kernel.minimize(np.zeros((2, 3)), method, rows={"g": g + 1, "y": y})
    with pytest.raises(sg.InputError, match="whole numbers are needed"):
        kernel.minimize(np.zeros((2, 3)), method, rows={"g": g + 0.5, "y": y})


@pytest.mark.parametrize("sparse", [False, True])
def test_newton_takes_the_hessian_of_rows_with_look_ups(sparse: bool) -> None:
    """In a few steps, as of any loss whose Hessian is known: L-BFGS takes several times as many."""
    sizes = {"group": (4,), "slope": ()}
    kernel = sg.fused_hessian(sizes, rate, columns=["g", "x", "y"], sparse=sparse, **DOUBLE)
    data, start = counts(300), {"group": np.zeros(4), "slope": 0.0}
    found = kernel.minimize(start, sg.Newton(), rows=data)
    want = scipy.optimize.minimize(kernel.as_scipy(data), np.zeros(5), jac=True, tol=1e-8)
    assert found.success and found.nit < 12
    np.testing.assert_allclose(kernel.in_a_row(found.x), want.x, atol=1e-6)
    bounded = kernel.bind(data).minimize(np.zeros(5), sg.Newton(), bounds=(-1, 0.1))
    box = [(-1, 0.1)] * 5
    at_most = scipy.optimize.minimize(kernel.as_scipy(data), np.zeros(5), jac=True, bounds=box)
    assert bounded.success and bounded.fun == pytest.approx(at_most.fun, rel=1e-9)


def test_newton_over_bound_rows_does_what_it_does_in_a_kernel() -> None:
    x = np.random.default_rng(5).normal(size=(200, 3))
    kernel = sg.fused_hessian(
        3, lambda p, r: np.log1p(sg.exp(p @ r)) - 0.4 * (p @ r), row=3, reduce="mean", **DOUBLE
    )
    inside = kernel.minimize(np.ones(3), sg.Newton(), rows=x)
    outside = kernel.bind(x).minimize(np.ones(3), sg.Newton())
    assert inside.success and outside.success and inside.nit == outside.nit
    np.testing.assert_allclose(outside.x, inside.x, rtol=1e-9, atol=1e-12)


def test_methods_that_need_more_than_a_bound_kernel_gives() -> None:
    line = sg.fused_forward_backward(2, lambda p, r: (p[0] + p[1] * r[0]) ** 2, row=1, **DOUBLE)
    with pytest.raises(InputError, match=r"Newton needs second derivatives.*sg\.fused_hessian"):
        line.bind([[1.0]]).minimize([0.0, 0.0], sg.Newton())
    squares = sg.fused_least_squares(2, lambda p, r: p[0] + p[1] * r[0], row=1, **DOUBLE)
    with pytest.raises(InputError, match=r"LevenbergMarquardt needs residuals.*rows=rows"):
        squares.bind([[1.0]]).minimize([0.0, 0.0], sg.LevenbergMarquardt())


@pytest.mark.parametrize("method", [sg.LBFGS(), sg.LevenbergMarquardt(), sg.Adam(0.1)])
def test_few_starts_share_the_device_among_the_rows(method: Any) -> None:
    """A run over many rows is that of as many starts as take a lane each."""
    x = np.linspace(0.0, 4.0, 2**15)
    rows = np.stack([x, 1.5 * np.exp(-0.7 * x) + 0.5], axis=1)
    kernel = sg.fused_least_squares(3, residual, row=2, reduce="mean", **DOUBLE)
    starts = np.tile([1.2, 0.5, 0.4], (MOST_PROBLEMS + 1, 1))
    together = kernel.minimize(starts, method, 12, rows=rows)
    alone = kernel.minimize(starts[0], method, 12, rows=rows, memory=True)
    np.testing.assert_allclose(alone.x, together.x[0], rtol=1e-6)
    assert alone.nit == together.nit[0] and alone.success == together.success[0]
    assert alone.memory is not None
    seen = list[float]()
    kernel.minimize(starts[0], method, 12, rows=rows, callback=lambda r: seen.append(r.fun))
    assert seen == [pytest.approx(alone.fun, rel=1e-12)]


def test_what_does_not_fit() -> None:
    loss = sg.fused_forward_backward(3, lambda p, r: residual(p, r) ** 2, row=2, **DOUBLE)
    with pytest.raises(sg.InputError, match=r"by sg\.fused_least_squares"):
        loss.minimize(np.ones((7, 3)), sg.LevenbergMarquardt(), rows=DATA)
    with pytest.raises(sg.InputError, match=r"\(fits, rows, 2\) is needed"):
        loss.minimize(np.ones((7, 3)), sg.LBFGS(), rows=np.ones((7, 5, 4)))
    with pytest.raises(sg.InputError, match="3 starts for 7 problems"):
        loss.minimize(np.ones((3, 3)), sg.LBFGS(), rows=DATA)
    with pytest.raises(sg.InputTypeError, match="the class Adam"):
        loss.minimize(np.ones((7, 3)), sg.Adam, rows=DATA)
    lookup = sg.fused_forward_backward((5, 1), lambda p, r: p[r.k, 0] ** 2, columns=["k"], **DOUBLE)
    with pytest.raises(sg.InputError, match=r"Newton needs second derivatives"):
        lookup.minimize(np.ones((1, 5)), sg.Newton(), rows=np.zeros((4, 1)))
    squares = sg.fused_least_squares((5, 1), lambda p, r: p[r.k, 0], columns=["k"], **DOUBLE)
    with pytest.raises(sg.InputError, match=r"look up by an index.*kernel\.fit"):
        squares.minimize(np.ones((1, 5)), sg.LevenbergMarquardt(), rows=np.zeros((4, 1)))
