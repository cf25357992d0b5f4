"""Special functions in kernels of both precisions, against mpmath and SciPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

import symgrad as sg

special = pytest.importorskip("scipy.special")


def kernel(f: Any, n: int, dtype: Any = "float64") -> Any:
    return sg.fused_forward_backward(n, f, device="cpu", dtype=dtype)


GPUS = [d.index for d in sg.devices() if d.is_gpu][:1]
KERNELS = [("float64", "cpu"), ("float32", "cpu"), *[("float32", d) for d in GPUS]]
CASES = ["erfcx", "gamma"]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "ulps"), [("float64", 20), ("float32", 20)])
def test_values_and_slopes(name: str, dtype: Any, ulps: float) -> None:
    """Of SciPy's ufuncs of expressions, too."""
    x = np.array([-4.3, -0.6, 0.04, 0.5, 1.3, 3.3, 7.7, 25.0])
    values, slopes = kernel(lambda v: getattr(special, name)(v[0]), 1, dtype).run(x[:, None])
    given, least = np.asarray(x, dtype).astype(float), ulps * np.finfo(dtype).eps
    np.testing.assert_allclose(values, getattr(special, name)(given), rtol=least)
    with mpmath.workdps(40):
        f = {
            "erfcx": lambda t: mpmath.exp(t * t) * mpmath.erfc(t), "gamma": mpmath.gamma,
        }[name]  # fmt: skip
        want = [float(mpmath.diff(f, t)) for t in np.atleast_1d(given).tolist()]
    np.testing.assert_allclose(slopes[:, 0], want, rtol=least, atol=least)


def test_poles_of_the_gamma_function_are_scipys() -> None:
    x = np.array([0.0, -0.0, -1.0, -7.0, np.inf, -np.inf, np.nan, 171.6, 172.0, -171.5, -200.5])
    found = sg.fused_forward(1, lambda v: sg.gamma(v[0]), device="cpu", dtype="float64").run(
        x[:, None]
    )
    np.testing.assert_allclose(found, special.gamma(x), rtol=1e-13, atol=1e-307)
    np.testing.assert_allclose(sg.gamma(x), special.gamma(x), rtol=1e-13, atol=1e-307)


M = np.array([0.25, 0.0, -1e-9, 1e-5, 0.499, 0.501, 0.75, 0.9990234375, -0.9, -1.1, -3.0, -1e4])


@pytest.mark.parametrize("name", ["ellipk", "ellipe"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_elliptic_integrals_to_the_second_derivative(name: str, dtype: Any) -> None:
    """Also where differences in the derivatives' textbook formulas cancel, at m = 0."""
    f = getattr(special, name)
    given = np.asarray(M, dtype).astype(float)
    found = sg.fused_hessian(1, lambda v: f(v[0]), device="cpu", dtype=dtype).run(given[:, None])
    with mpmath.workdps(50):
        true = getattr(mpmath, name)
        for order, values in enumerate(found):
            want = [float(mpmath.diff(true, m, order)) for m in given.tolist()]
            np.testing.assert_allclose(values.ravel(), want, rtol=6 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", ["ellipk", "ellipe"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_elliptic_integrals_of_all_sizes_in_float32(name: str, device: Any) -> None:
    """Values, slopes and curvatures, beside those of float64."""
    draw = np.random.default_rng(3)
    near = draw.uniform(-1, 1, 300)
    far = draw.choice([-1, 1], 300) * np.exp(draw.uniform(-16, 0, 300))
    m = np.concatenate([near, 1 - np.exp(draw.uniform(-14, 14, 300)), far]).astype("f")[:, None]
    f = getattr(special, name)
    found = sg.fused_hessian(1, lambda v: f(v[0]), device=device).run(m)
    true = sg.fused_hessian(1, lambda v: f(v[0]), device="cpu", dtype="float64").run(m)
    for got, want, ulps in zip(found, true, (6.2, 8, 8), strict=True):
        error = np.abs(got - want) / np.spacing(np.float32(np.abs(want)))
        assert error.max() < ulps, (error.max(), m.ravel()[error.argmax() % len(m)])


def test_elliptic_integrals_next_to_their_pole() -> None:
    p = np.array([1e-300, 1e-17, 1e-3, 0.5, 7.0, 1e200])
    kernel = sg.fused_forward_backward(1, lambda v: special.ellipkm1(v[0]), device="cpu",
                                       dtype="float64")  # fmt: skip
    values, slopes = kernel.run(p[:, None])
    np.testing.assert_allclose(values, special.ellipkm1(p), rtol=1e-15)
    with mpmath.workdps(50):
        b = [mpmath.pi / 4 * mpmath.hyp2f1(0.5, 0.5, 2, 1 - mpmath.mpf(x)) for x in p.tolist()]
        want = [float(-y / (2 * mpmath.mpf(x))) for x, y in zip(p.tolist(), b, strict=True)]
    np.testing.assert_allclose(slopes[:, 0], want, rtol=2e-15)
    ends = np.array([1.0, 2.0, -np.inf, np.nan])
    for f in (special.ellipk, special.ellipe):
        kernel = sg.fused_forward(1, lambda v, f=f: f(v[0]), device="cpu", dtype="float64")
        np.testing.assert_array_equal(kernel.run(ends[:, None]), f(ends))
    _, slopes = sg.fused_forward_backward(
        1, lambda v: special.ellipe(v[0]), device="cpu", dtype="float64"
    ).run([[1.0], [-np.inf]])
    assert slopes.ravel().tolist() == [-np.inf, 0.0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_zeta_and_its_derivatives_by_both_arguments(dtype: Any) -> None:
    """Next to the pole at x = 1, for small q and large ones."""
    grid = np.meshgrid([1.0009765625, 1.5, 3.0, 7.5, 20.0], [1.0, 0.25, 0.001, 3.5, 40.0])
    points = np.stack([np.asarray(g.ravel(), dtype).astype(float) for g in grid], axis=1)
    values, slopes, curves = sg.fused_hessian(
        2, lambda v: special.zeta(v[0], v[1]), device="cpu", dtype=dtype
    ).run(points)
    with mpmath.workdps(40):
        for k, (x, q) in enumerate(points.tolist()):
            want = [mpmath.zeta(x, q), mpmath.zeta(x, q, 1), -x * mpmath.zeta(x + 1, q),
                    x * (x + 1) * mpmath.zeta(x + 2, q)]  # fmt: skip
            got = [values[k], *slopes[k], curves[k, 1, 1]]
            normal = [(a, float(b)) for a, b in zip(got, want, strict=True) if abs(b) < 1e37]
            for a, b in normal:
                assert a == pytest.approx(b, rel=float(8 * np.finfo(dtype).eps))


def test_zeta_of_one_argument_and_at_the_ends() -> None:
    x = np.array([1.25, 2.0, 33.0, 1.0, np.inf, np.nan])
    kernel = sg.fused_forward_backward(1, lambda v: special.zeta(v[0]), device="cpu",
                                       dtype="float64")  # fmt: skip
    values, slopes = kernel.run(x[:, None])
    np.testing.assert_allclose(values, special.zeta(x), rtol=1e-15)
    np.testing.assert_allclose(sg.zeta(x), special.zeta(x), rtol=1e-15)
    want = [float(mpmath.zeta(v, derivative=1)) for v in x[:3].tolist()]
    np.testing.assert_allclose(slopes[:3, 0], want, rtol=2e-15)
    q = np.array([0.0, -1.5, np.inf, 0.5])
    np.testing.assert_allclose(sg.zeta(2.5, q), special.zeta(2.5, q), rtol=1e-15)
    assert np.isnan(sg.zeta(0.5, 1.0))


@pytest.mark.parametrize(("dtype", "device"), KERNELS)
def test_riemanns_zeta_function_below_one(dtype: Any, device: Any) -> None:
    """Beside its zeros, in units of what the rounding of x changes; SciPy's by its ufunc."""
    draw = np.random.default_rng(4)
    x = np.concatenate([draw.uniform(-30, 1, 150), draw.uniform(-1, 1, 100), [-1e-8, 0.0, -3.0]])
    x = np.asarray(x, dtype).astype(float)
    values, slopes = sg.fused_forward_backward(
        1, lambda v: special.zeta(v[0]), device=device, dtype=dtype
    ).run(x[:, None])
    want, slope = np.array([_riemann(v) for v in x.tolist()]).T
    least = np.finfo(dtype).eps * (6.0 + np.abs(x))
    assert np.all(np.abs(values - want) <= least * np.maximum(np.abs(want), 0.1 * np.abs(slope)))
    assert np.all(np.abs(slopes[:, 0] - slope) <= least * np.hypot(want, slope))


@cache
def _riemann(x: float) -> tuple[float, float]:
    """The zeta function and its derivative."""
    return float(mpmath.zeta(x)), float(mpmath.zeta(x, derivative=1))


def test_trivial_zeros_of_the_zeta_function_are_exact() -> None:
    x = np.array([-2.0, -4.0, -36.0])
    values = sg.fused_forward(1, lambda v: sg.zeta(v[0]), device="cpu").run(x[:, None])
    assert values.tolist() == [0.0, 0.0, 0.0] and not np.any(sg.zeta(x))
    np.testing.assert_allclose(sg.zeta(-40.5), special.zeta(-40.5), rtol=1e-14)


K_X = np.array([1e-6, 0.01, 0.49, 0.51, 0.999, 1.001, 1.5, 3.0, 10.0, 50.0, 80.0])


@pytest.mark.parametrize("name", ["k0", "k1", "k0e", "k1e"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bessel_functions_of_the_second_kind(name: str, dtype: Any) -> None:
    """To the second derivative; exp(x) K_0 and exp(x) K_1 are about the same for a large x."""
    f = getattr(special, name)
    x = np.asarray(K_X, dtype).astype(float)
    found = sg.fused_hessian(1, lambda v: f(v[0]), device="cpu", dtype=dtype).run(x[:, None])
    want = np.array([_second_kind(int(name[1]), name.endswith("e"), t) for t in x.tolist()])
    for order, values in enumerate(found):
        np.testing.assert_allclose(values.ravel(), want[:, order], rtol=6 * np.finfo(dtype).eps)


def _second_kind(order: int, scaled: bool, x: float) -> list[float]:
    """K_n for n = 0 or 1 and its first two derivatives, by the recurrences, or of exp(x) K_n."""
    with mpmath.workdps(60):
        t = mpmath.mpf(x)
        k0, k1 = _besselk(0, x), _besselk(1, x)
        first = [k0, -k1, k0 + k1 / t]
        k, slope, bend = first if order == 0 else [k1, -first[2], k1 + (k0 + 2 * k1 / t) / t]
        if not scaled:
            return [float(k), float(slope), float(bend)]
        growth = mpmath.exp(t)
        return [float(growth * v) for v in (k, k + slope, k + 2 * slope + bend)]


@cache
def _besselk(order: float, x: float) -> Any:
    """K_order(x), to 60 digits."""
    with mpmath.workdps(60):
        return mpmath.besselk(order, x)


@pytest.mark.parametrize("n", [0, 1, 2, -3, 7])
def test_bessel_functions_of_whole_orders(n: int) -> None:
    x = np.array([0.03, 0.7, 2.0, 40.0])
    for name in ("kv", "kve", "kn"):
        f = getattr(special, name)
        kernel = sg.fused_forward_backward(1, lambda v, f=f: f(n, v[0]), device="cpu",
                                           dtype="float64")  # fmt: skip
        values, slopes = kernel.run(x[:, None])
        np.testing.assert_allclose(values, f(n, x), rtol=4e-15)
        scale = np.exp(x) if name == "kve" else 1.0
        want = scale * special.kvp(n, x) + (values if name == "kve" else 0.0)
        np.testing.assert_allclose(slopes[:, 0], want, rtol=1e-13)


@pytest.mark.parametrize("order", [0.5, 1 / 3, -1.75, 7.3, 1e-7])
@pytest.mark.parametrize(("dtype", "device"), KERNELS)
def test_bessel_functions_of_real_orders(order: float, dtype: Any, device: Any) -> None:
    """From the series with a logarithm for a small x to integrals for a large one."""
    x = np.concatenate([np.exp(np.linspace(-18, 6, 60)), [0.9999999, 1.0, 1.0000001]])
    x = np.asarray(x, dtype).astype(float)
    values, slopes = sg.fused_forward_backward(
        1, lambda v: special.kve(order, v[0]), device=device, dtype=dtype
    ).run(x[:, None])
    want, slope = np.array([_scaled(order, t) for t in x.tolist()]).T
    usable = np.abs(slope) < np.finfo(dtype).max / 64
    assert np.count_nonzero(usable) > 25
    least = np.finfo(dtype).eps
    np.testing.assert_allclose(values[usable], want[usable], rtol=12 * least)
    np.testing.assert_allclose(slopes[usable, 0], slope[usable], rtol=20 * least)
    scaled = sg.fused_forward(1, lambda v: special.kv(order, v[0]), device=device, dtype=dtype)
    np.testing.assert_allclose(scaled.run([[2.5]]), special.kv(order, 2.5), rtol=12 * least)


@cache
def _scaled(order: float, x: float) -> tuple[float, float]:
    """exp(x) K_order(x) and its derivative, by the recurrence K_n' = -K_{n-1} - n/x K_n."""
    with mpmath.workdps(60):
        before, k = _besselk(mpmath.mpf(order) - 1, x), _besselk(mpmath.mpf(order), x)
        growth, t = mpmath.exp(x), mpmath.mpf(x)
        return float(growth * k), float(growth * (k - before - order / t * k))


def test_orders_are_numbers_that_are_known() -> None:
    for f in (lambda v: special.kn(0.5, v[0]), lambda v: special.kv(v[1], v[0])):
        with pytest.raises(
            sg.TraceError, match=r"k[nv]\(n, x\) takes a constant (whole )?number n"
        ):
            sg.fused_forward(2, f, device="cpu")
    ends = np.array([0.0, -1.0, np.inf, np.nan])
    kernel = sg.fused_forward(1, lambda v: special.kv(1.25, v[0]), device="cpu", dtype="float64")
    np.testing.assert_array_equal(kernel.run(ends[:, None]), special.kv(1.25, ends))


def voigt(x: Any, sigma: Any, gamma: Any) -> Any:
    """Voigt's profile in mpmath."""
    scale = mpmath.sqrt(2) * sigma
    z = mpmath.mpc(x, gamma) / scale
    return (mpmath.exp(-z * z) * mpmath.erfc(-1j * z)).real / (scale * mpmath.sqrt(mpmath.pi))


@cache
def _of_voigt(point: tuple[float, ...], by: tuple[int, ...]) -> float:
    """A derivative of Voigt's profile, so often by each argument."""
    with mpmath.workdps(60):
        return float(mpmath.diff(voigt, point, by))


LINES = np.array([
    [0.3, 1.0, 0.5], [-2.5, 0.7, 0.01], [4.0, 1.0, 2.0], [0.0, 1.0, 1.0], [30.0, 0.5, 0.125],
    [1e-3, 2.0, 1e-3], [7.0, 3.0, 4.0], [-1.2, 0.25, 0.75], [2000.0, 1.0, 3.0],
])  # fmt: skip


@pytest.mark.parametrize(("dtype", "device"), KERNELS)
def test_voigt_profiles_to_the_second_derivative(dtype: Any, device: Any) -> None:
    """By all three arguments; second derivatives by sigma cancel as 1 and |z|**2 far out."""
    points = np.asarray(LINES, dtype).astype(float)
    values, slopes, curves = sg.fused_hessian(
        3, lambda v: special.voigt_profile(v[0], v[1], v[2]), device=device, dtype=dtype
    ).run(points)
    np.testing.assert_allclose(
        values, special.voigt_profile(*points.T), rtol=9 * np.finfo(dtype).eps
    )
    with mpmath.workdps(60):
        for point, slope, curve in zip(points.tolist(), slopes, curves, strict=True):
            size = 1.0 / np.hypot(np.hypot(point[0], point[2]), point[1])
            scale = float(voigt(*point)) * size
            out = 1.0 + (point[0] ** 2 + point[2] ** 2) / point[1] ** 2
            for i in range(3):
                by = tuple(int(k == i) for k in range(3))
                want = _of_voigt(tuple(point), by)
                assert abs(slope[i] - want) <= 12 * np.finfo(dtype).eps * max(abs(want), scale)
                for j in range(3):
                    both = tuple(int(k == i) + int(k == j) for k in range(3))
                    want = _of_voigt(tuple(point), both)
                    least = max(abs(want), scale * size) * (out if i == 1 or j == 1 else 1.0)
                    assert abs(curve[i, j] - want) <= 30 * np.finfo(dtype).eps * least, (i, j)


def test_narrow_voigt_profiles_are_normal_as_far_as_float64_goes() -> None:
    """From 22.6 deviations on they were 2**-40 of it, in kernels and of numbers."""
    x = np.array([20.0, 22.7, 23.0, 30.0, 37.0])
    want = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    kernel = sg.fused_forward(
        1, lambda v: sg.voigt_profile(v[0], 1.0, 0.0), device="cpu", dtype="float64"
    )
    for values in (kernel.run(x[:, None]), sg.voigt_profile(x, 1.0, 0.0)):
        np.testing.assert_allclose(values, want, rtol=1e-13)


def test_a_normal_probability_is_at_most_one() -> None:
    x = np.array([8.0, 20.0, 33.0, 34.7, 40.0])
    values = sg.ndtr(x)
    assert np.all(values <= 1.0) and np.array_equal(values[1:], np.ones(4))


def test_voigt_profiles_at_the_ends() -> None:
    """Lorentz's line, the normal distribution, none; and where neither width may be negative."""
    points = np.array([
        [0.5, 0.0, 0.25], [0.5, 1e-12, 0.25], [0.5, 0.75, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0],
        [np.inf, 1.0, 1.0],
    ])  # fmt: skip
    kernel = sg.fused_forward_backward(3, lambda v: sg.voigt_profile(v[0], v[1], v[2]),
                                       device="cpu", dtype="float64")  # fmt: skip
    values, slopes = kernel.run(points)
    np.testing.assert_allclose(values, special.voigt_profile(*points.T), rtol=1e-14)
    x, gamma = 0.5, 0.25
    square = x * x + gamma * gamma
    want = [-2 * x * gamma / square**2, 0.0, (x * x - gamma * gamma) / square**2]
    np.testing.assert_allclose(slopes[0], np.array(want) / np.pi, rtol=1e-14)
    assert np.all(np.isnan(kernel.run([[0.5, -1.0, 1.0], [0.5, 1.0, -1.0]])[0]))


@pytest.mark.parametrize(("dtype", "device"), KERNELS)
def test_the_faddeeva_function_and_dawsons_integral(dtype: Any, device: Any) -> None:
    """Beside SciPy's, which has 12 digits, for parts of which one is far smaller."""
    draw = np.random.default_rng(2)
    x = np.concatenate([draw.normal(0, 4, 500), np.exp(draw.uniform(-20, 20, 300))])
    y = np.concatenate([np.exp(draw.uniform(-30, 3, 500)), np.exp(draw.uniform(-20, 20, 300))])
    points = np.asarray(np.stack([x, y], axis=1), dtype).astype(float)
    kernel = sg.fused_forward(
        2, lambda v: [*sg.wofz(v[0], v[1]), special.dawsn(v[0])], device=device, dtype=dtype
    )
    real, imag, dawson = kernel.run(points)
    want = special.wofz(points[:, 0] + 1j * points[:, 1])
    least = max(9 * np.finfo(dtype).eps, 4e-13)
    np.testing.assert_allclose(real, want.real, rtol=least)
    np.testing.assert_allclose(imag, want.imag, rtol=least)
    np.testing.assert_allclose(dawson, special.dawsn(points[:, 0]), rtol=least)
    real, imag = sg.wofz(x, y)
    np.testing.assert_allclose(real + 1j * imag, special.wofz(x + 1j * y), rtol=4e-13)


def test_complex_numbers_have_two_parts() -> None:
    with pytest.raises(sg.TraceError, match=r"write sg.wofz\(x, y\), the real and the imaginary"):
        sg.fused_forward(1, lambda v: special.wofz(v[0]), device="cpu")
