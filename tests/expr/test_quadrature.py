"""Integrals in kernels against SciPy's and closed forms: values, estimates, derivatives."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import InputError
from symgrad.expr.loops.quadrature import GAUSS, MIDDLE, NODES, WEIGHTS

integrate = pytest.importorskip("scipy.integrate")

CASES: list[tuple[Any, float, float]] = [
    (lambda x, p: np.exp(-p * x * x), 0.0, np.inf),
    (lambda x, p: p / (1e-4 + (x - 0.3) ** 2), 0.0, 1.0),
    (lambda x, p: np.exp(-p * (x - 1) ** 2), -np.inf, np.inf),
    (lambda x, p: np.sin(30 * p * x), 0.0, 2.0),
    (lambda x, p: np.exp(p * x), -np.inf, 0.5),
    (lambda x, p: p * np.log(x), 0.0, 1.0),
    (lambda x, p: abs(x - p / 7), 0.0, 1.0),
    (lambda x, p: np.exp(-p * x), np.inf, 1.0),
]
"""Integrands of a parameter, and limits."""


def test_both_rules_integrate_polynomials() -> None:
    """Kronrod's of 21 points up to the degree 31, Gauss's of 10 up to 19."""
    with mpmath.workdps(30):
        for degree in range(0, 32, 2):
            powers = [mpmath.mpf(x) ** degree for x in NODES]
            kronrod = 2 * mpmath.fdot(WEIGHTS, powers) + (MIDDLE if degree == 0 else 0)
            assert abs(kronrod - mpmath.mpf(2) / (degree + 1)) < 1e-15
            if degree < 20:
                assert abs(2 * mpmath.fdot(GAUSS, powers[1::2]) - mpmath.mpf(2) / (degree + 1)) < (
                    1e-15
                )


@pytest.mark.parametrize(("dtype", "least"), [("float64", 1e-9), ("float32", 2e-5)])
def test_integrals_and_slopes_are_scipys(dtype: Any, least: float) -> None:
    """All of them in one kernel, at two points whose panels differ."""

    def f(v: Any) -> list[Any]:
        return [e for g, a, b in CASES for e in sg.quad(lambda x, g=g: g(x, v[0]), a, b)]

    kernel = sg.fused_jacobian(1, f, device="cpu", dtype=dtype)
    for p in (2.0, 3.5):
        values, slopes = (np.asarray(part).ravel() for part in kernel.run([p]))
        for k, (g, a, b) in enumerate(CASES):
            with np.errstate(all="ignore"):
                true = integrate.quad(g, a, b, args=(p,))[0]
                by_p = [integrate.quad(g, a, b, args=(p + h,))[0] for h in (1e-5, -1e-5)]
            size = max(1.0, abs(true))
            assert abs(values[2 * k] - true) <= least * size
            assert abs(values[2 * k] - true) <= values[2 * k + 1] + 2e-9 * size
            np.testing.assert_allclose(
                slopes[2 * k], (by_p[0] - by_p[1]) / 2e-5, rtol=max(1e-4, least), atol=1e-5
            )


def test_limits_are_differentiated() -> None:
    """To the second order: those of the integral of x sin x."""
    kernel = sg.fused_hessian(
        2, lambda v: sg.quad(lambda x: np.sin(x) * x, *v)[0], device="cpu", dtype="float64"
    )
    value, slope, second = kernel.run([0.5, 2.0])
    rule = lambda x: x * math.sin(x)  # noqa: E731
    assert value == pytest.approx(integrate.quad(rule, 0.5, 2.0)[0], rel=1e-14)
    np.testing.assert_allclose(slope, [-rule(0.5), rule(2.0)], rtol=1e-11)
    bend = lambda x: math.sin(x) + x * math.cos(x)  # noqa: E731
    np.testing.assert_allclose(second, [[-bend(0.5), 0], [0, bend(2.0)]], atol=1e-9)


def test_it_works_in_a_model_of_rows() -> None:
    x = np.linspace(0.1, 3.0, 25)

    def model(t: Any, a: Any, b: Any) -> Any:
        return a * sg.quad(lambda u: np.exp(-b * u * u), 0.0, t)[0]

    y = 1.7 * np.sqrt(np.pi / 0.8) / 2 * np.array([math.erf(math.sqrt(0.8) * t) for t in x])
    found, _ = sg.curve_fit(model, x, y, p0=[1.0, 1.0])
    np.testing.assert_allclose(found, [1.7, 0.8], rtol=1e-6)


def test_of_numbers_alone_it_is_a_number() -> None:
    assert sg.quad(lambda x, n: x**n, 0, 3, args=(2,))[0] == pytest.approx(9.0, rel=1e-14)


def test_what_does_not_converge_says_so() -> None:
    kernel = sg.fused_forward(
        1, lambda v: list(sg.quad(lambda x: v[0] / x, 0, 1)), device="cpu", dtype="float64"
    )
    assert kernel.run([1.0])[1] > 1e-3
    many = sg.fused_forward(
        1, lambda v: list(sg.quad(lambda x: np.sin(1e4 * v[0] * x), 0, 1, limit=20)), device="cpu"
    )
    assert np.all(np.isnan(many.run([1.0])))


@pytest.mark.parametrize("options", [{"b": np.nan}, {"limit": 0}, {"epsabs": 0.0, "epsrel": 0.0}])
def test_what_is_no_integral_is_refused(options: Any) -> None:
    with pytest.raises(InputError):
        sg.quad(lambda x: x, **{"a": 0.0, "b": 1.0, **options})


@pytest.mark.parametrize("a", [0.6, 2.5, 12.0])
def test_distributions_have_slopes_by_their_shapes(a: float) -> None:
    """The remedy that errors of derivatives by shapes name."""

    def f(v: Any) -> Any:
        density = lambda t: np.exp((v[0] - 1.0) * np.log(t) - t - sg.gammaln(v[0]))  # noqa: E731
        return sg.quad(density, 0.0, v[1])[0]

    value, slopes = sg.fused_forward_backward(2, f, device="cpu", dtype="float64").run([a, 2.0])
    with mpmath.workdps(30):
        whole = lambda s: mpmath.gammainc(s, 0, 2, regularized=True)  # noqa: E731
        assert value == pytest.approx(float(whole(a)), rel=1e-6)
        assert slopes[0] == pytest.approx(float(mpmath.diff(whole, a)), rel=1e-5)
