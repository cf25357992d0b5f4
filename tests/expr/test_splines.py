"""Cubic splines against SciPy's: values, derivatives, integrals, and slopes by the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg

interpolate = pytest.importorskip("scipy.interpolate")

ENDS: list[Any] = [
    "not-a-knot", "natural", "clamped", "periodic", ((1, 0.5), (2, -0.3)),
    ("not-a-knot", (1, 2.0)), ((2, 0.4), "clamped"),
]  # fmt: skip
AT = np.array([-1.3, 0.0, 0.05, 0.7, 1.9, 2.5, 3.3, 4.0, 5.7])


def values_at(n: int, ends: Any) -> tuple[Any, Any]:
    draw = np.random.default_rng(n)
    x, y = np.sort(draw.uniform(0.0, 4.0, n)), draw.normal(size=n)
    x[[0, -1]] = 0.0, 4.0
    y[-1] = y[0] if ends == "periodic" else y[-1]
    return x, y


@pytest.mark.parametrize("n", [2, 3, 4, 9])
@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_of_numbers_it_is_scipys(n: int, ends: Any) -> None:
    x, y = values_at(n, ends)
    ours, scipys = sg.CubicSpline(x, y, ends), interpolate.CubicSpline(x, y, bc_type=ends)
    for nu in range(4):
        at = AT[1:] if nu == 3 else AT
        found = np.asarray(ours(at, nu), float)
        np.testing.assert_allclose(found, scipys(at, nu), rtol=1e-9, atol=1e-9)
    for a, b in ((0.3, 3.1), (-0.7, 9.3), (3.0, 1.0)):
        found = float(ours.integrate(a, b))
        np.testing.assert_allclose(found, scipys.integrate(a, b), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ends", ["not-a-knot", "periodic"])
def test_in_kernels_with_slopes_by_values_and_place(ends: Any) -> None:
    x, y = values_at(7, ends)

    def f(v: Any) -> Any:
        knots = [*v[:6], v[0]] if ends == "periodic" else v[:7]
        spline = sg.CubicSpline(x, knots, ends)
        return spline(v[7]) + 2.0 * spline(v[7], 1) + spline.integrate(v[7], 3.5)

    def scipys(v: Any) -> Any:
        knots = [*v[:6], v[0]] if ends == "periodic" else v[:7]
        spline = interpolate.CubicSpline(x, knots, bc_type=ends)
        return spline(v[7]) + 2.0 * spline(v[7], 1) + spline.integrate(v[7], 3.5)

    kernel = sg.fused_forward_backward(8, f, device="cpu", dtype="float64")
    for place in (0.4, 2.2):
        point = np.array([*y, place])
        value, slopes = kernel.run(point)
        assert value == pytest.approx(float(scipys(point)), rel=1e-11)
        for k in range(8):
            step = 1e-5 * np.eye(8)[k]
            slope = (scipys(point + step) - scipys(point - step)) / 2e-5
            assert slopes[k] == pytest.approx(float(slope), rel=1e-6, abs=1e-7)


def test_beyond_the_ends() -> None:
    spline = sg.CubicSpline([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 0.0, 2.0], extrapolate=False)
    assert np.isnan(np.asarray(spline([-0.1, 3.1]), float)).all()
    assert float(spline(3.0)) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 1.0], [1.0, 2.0], "cubic"), "bc_type='cubic': use 'not-a-knot'"),
        (([0.0, 0.0], [1.0, 2.0]), "must increase"),
        (([0.0], [1.0]), "at least 2 points"),
        (([0.0, 1.0, 2.0], [1.0, 2.0]), "must be as many"),
        (([0.0, 1.0], [1.0, 2.0], "periodic"), "ends with the value it begins with"),
    ],
)
def test_what_is_no_spline_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(sg.InputError, match=message):
        sg.CubicSpline(*arguments)
