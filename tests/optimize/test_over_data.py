"""Minimisations by kernels over data: a fit for each data set, or one for each start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
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
    found = kernel.minimize(np.ones((7, 3)), method, 300, data=noisy)
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
    found = kernel.minimize(np.ones((7, 3)), method, 3000, data={"x": X, "y": Y})
    np.testing.assert_allclose(found.x, TRUE, atol=1e-2)
    same = kernel.minimize(np.ones((7, 3)), method, 3000, data=DATA)
    np.testing.assert_array_equal(found.x, same.x)
    starts = np.random.default_rng(1).uniform(0.8, 1.2, (4, 3))
    shared = kernel.minimize(starts, method, 3000, data={"x": X, "y": Y[0]})
    np.testing.assert_allclose(shared.x, np.tile(TRUE[0], (4, 1)), atol=1e-2)


def test_weights_and_bounds() -> None:
    kernel = sg.fused_least_squares(3, residual, row=3, weights=2, **DOUBLE)
    weights = np.linspace(0.0, 1.0, 40)
    rows = np.column_stack([X, Y[0] + 0.01 * np.cos(5 * X), weights])
    found = kernel.minimize([1, 1, 1], sg.LevenbergMarquardt(), data=rows, bounds=(0, 5)).x
    kept = weights > 0
    want, _ = sg.curve_fit(
        lambda x, a, b, c: a * np.exp(-b * x) + c, X[kept], rows[kept, 1], [1, 1, 1],
        sigma=weights[kept] ** -0.5,
    )  # fmt: skip
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_what_does_not_fit() -> None:
    loss = sg.fused_forward_backward(3, lambda p, r: residual(p, r) ** 2, row=2, **DOUBLE)
    with pytest.raises(sg.InputError, match=r"by sg\.fused_least_squares"):
        loss.minimize(np.ones((7, 3)), sg.LevenbergMarquardt(), data=DATA)
    with pytest.raises(sg.InputError, match=r"\(fits, rows, 2\) is needed"):
        loss.minimize(np.ones((7, 3)), sg.LBFGS(), data=np.ones((7, 5, 4)))
    with pytest.raises(sg.InputError, match="3 starts for 7 problems"):
        loss.minimize(np.ones((3, 3)), sg.LBFGS(), data=DATA)
    with pytest.raises(sg.InputTypeError, match="the class Adam"):
        loss.minimize(np.ones((7, 3)), sg.Adam, data=DATA)
    lookup = sg.fused_forward_backward((5, 1), lambda p, r: p[r.k, 0] ** 2, columns=["k"], **DOUBLE)
    with pytest.raises(sg.InputError, match="look up by an index"):
        lookup.minimize(np.ones((1, 5)), sg.LBFGS(), data=np.zeros((4, 1)))
