"""Special functions in NumPy's double precision, by plain algorithms, not the kernels'."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from symgrad.expr.references.reference import bell, erf, erfc, normal_cdf, pointwise

Array = Any

BERNOULLI: Final = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""B_2, B_4, ..."""


def in_double(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function computed in float64, its value in the type of the last argument."""

    def reference(*arguments: Array) -> Array:
        given = np.broadcast_arrays(*[np.asarray(a) for a in arguments])
        with np.errstate(all="ignore"):
            value = function(*[np.asarray(a, np.float64) for a in given])
        return np.asarray(value).astype(given[-1].dtype)[()]

    return reference


def where_inside(
    inside: Array, function: Callable[..., Array], *arguments: Array, dtype: Any = np.longdouble
) -> Array:
    """The function where a mask has it, in a type of more digits; NaN elsewhere."""
    value = np.full(inside.shape, np.nan, dtype)
    value[inside] = function(*[v[inside].astype(dtype) for v in arguments])
    return value


# --- logarithms -----------------------------------------------------------------------------------


@in_double
def xlogy(x: Array, y: Array) -> Array:
    """x*log(y), 0 where x is 0 and y no NaN."""
    return np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log(y))


@in_double
def xlog1py(x: Array, y: Array) -> Array:
    """x*log(1 + y), 0 where x is 0 and y no NaN."""
    return np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log1p(y))


@in_double
def entr(x: Array) -> Array:
    """-x*log(x), 0 at 0 and -inf below."""
    return np.where(x == 0, 0.0, np.where(x < 0, -np.inf, -x * np.log(x)))


@in_double
def logit(x: Array) -> Array:
    """log(x/(1 - x)), near 1/2 as the logarithm of 1 + (2x - 1)/(1 - x)."""
    near = np.log1p((2 * x - 1) / (1 - x))
    return np.where((x > 0.25) & (x < 0.75), near, np.log(x) - np.log1p(-x))


@in_double
def log1mexp(x: Array) -> Array:
    """log(1 - exp(-x)), by expm1 for a small x."""
    return np.where(x < math.log(2), np.log(-np.expm1(-x)), np.log1p(-np.exp(-x)))


@in_double
def huber(delta: Array, r: Array) -> Array:
    """Huber's loss of a residual r."""
    size = np.abs(r)
    loss = np.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta))
    return np.where(delta < 0, np.inf, loss)


# --- waves ----------------------------------------------------------------------------------------


def _half_turn(x: Array) -> tuple[Array, Array]:
    """sin(pi x) and cos(pi x)."""
    k = np.round(x)
    sign = np.where(np.fmod(k, 2) == 0, 1.0, -1.0)
    return sign * np.sin(np.pi * (x - k)), sign * np.cos(np.pi * (x - k))


@in_double
def sinc(x: Array) -> Array:
    """sin(pi x)/(pi x), exactly 0 where x is whole."""
    return np.where(x == 0, 1.0, _half_turn(x)[0] / (np.pi * x))


@in_double
def sinc_ratio(x: Array) -> Array:
    """(sinc(x) - cos(pi x))/(pi x)**2, for |x| < 1/2 by its power series."""
    z = (np.pi * x) ** 2
    near = np.zeros_like(z)
    for k in range(15, -1, -1):
        near = (2 * k + 2) / math.factorial(2 * k + 3) - near * z
    sine, cosine = _half_turn(x)
    return np.where(np.abs(x) < 0.5, near, (sine / (np.pi * x) - cosine) / z)


# --- the gamma function ---------------------------------------------------------------------------


def _gammaln(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


gammaln = pointwise(_gammaln)


def _gamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    if x == -math.inf or (x < 0 and x == math.floor(x)):
        return math.nan
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf


gamma = pointwise(_gamma)


ROOT: Final = (1.4616321449683622, 9.549995429965697e-17)
"""Where digamma is 0, in two pieces."""


def _positive_digamma(x: Array) -> Array:
    """Of x > 0, relative to its root r: the sum of (x - r)/((x + k)(r + k)), and what is left."""
    d, far, near = (x - ROOT[0]) - ROOT[1], x + 20.0, ROOT[0] + 20.0
    value = np.log1p(d / near) + 0.5 * d / near / far
    for j, b in enumerate(BERNOULLI):
        value = value - b / (2 * j + 2) * (far ** (-2.0 * j - 2) - near ** (-2.0 * j - 2))
    for k in range(20):
        value = value + d / (x + k) / (ROOT[0] + k)
    return value


def _cotangent(x: Array) -> tuple[Array, Array]:
    """sin(pi x) and cos(pi x) but for a common sign."""
    r = np.pi * (x - np.round(x))
    return np.sin(r), np.cos(r)


@in_double
def digamma(x: Array) -> Array:
    """By reflection for x < 0."""
    left = x < 0
    value = _positive_digamma(np.where(left, 1 - x, x))
    s, c = _cotangent(x)
    value = np.where(left, np.where(s == 0, np.nan, value - np.pi * c / s), value)
    value = np.where(np.isinf(x), np.where(x > 0, np.inf, np.nan), value)
    return np.where(x == 0, -1 / x, value)


def polygamma(n: int, x: Array) -> Array:
    """The n-th derivative of digamma, n = 1, 2 or 3."""
    return in_double(functools.partial(_polygamma, n))(x)


def _polygamma(n: int, x: Array) -> Array:
    """20 terms and Euler and Maclaurin's; by reflection for x < 0."""
    left, s = x < 0, n + 1
    p = np.where(left, 1 - x, x)
    y = p + 20.0
    total = y ** (1 - s) / (s - 1) + y**-s / 2
    for j, b in enumerate(BERNOULLI):
        rising = math.prod(range(s, s + 2 * j + 1)) / math.factorial(2 * j + 2)
        total = total + b * rising * y ** (-s - 2 * j - 1)
    for k in range(20):
        total = total + (p + k if k else p) ** -s  # -0.0 + 0 has no sign
    value = (-1) ** s * math.factorial(n) * total
    sine, cosine = _cotangent(x)
    t = np.pi / sine
    reflected = {1: t**2, 2: -2 * t**3 * cosine, 3: 2 * t**4 * (1 + 2 * cosine**2)}[n]
    mirrored = np.where((sine == 0) & (n == 2), np.nan, (-1) ** n * value + reflected)
    return np.where(x == -np.inf, np.nan, np.where(left, mirrored, value))


# --- the normal distribution ----------------------------------------------------------------------


def _mills(a: Array) -> Array:
    """Phi(-a)/phi(a) for a >= 0: by erfc up to 3, then by a continued fraction (Laplace)."""
    near = np.minimum(a, 3.0)
    direct = np.asarray(normal_cdf(-near)) / np.asarray(bell(near)) * math.sqrt(2 * math.pi)
    b = np.maximum(a, 3.0)
    fraction = b
    for k in range(120, 0, -1):
        fraction = b + k / fraction
    return np.where(a < 3.0, direct, 1 / fraction)


@in_double
def mills_excess(x: Array) -> Array:
    """x + phi(x)/Phi(x), by continued fractions for x < -3."""
    a = np.abs(x)
    b = np.maximum(a, 3.0)
    fraction = b
    for k in range(120, 1, -1):
        fraction = b + k / fraction
    value = np.where(x < -3.0, 1 / fraction, x + _hazard(x))
    return np.where(x == -np.inf, 0.0, value)


def _hazard(x: Array) -> Array:
    density = np.asarray(bell(x)) / math.sqrt(2 * math.pi)
    return np.where(x < 0, 1 / _mills(np.maximum(-x, 0.0)), density / np.asarray(normal_cdf(x)))


@in_double
def inverse_mills(x: Array) -> Array:
    """phi(x)/Phi(x)."""
    return np.where(np.isinf(x), np.where(x < 0, np.inf, 0.0), _hazard(x))


@in_double
def log_ndtr(x: Array) -> Array:
    """By Mills' ratio for x < 0, log1p of the other tail above."""
    left = np.log(_mills(np.maximum(-x, 0.0))) - x * x / 2 - math.log(2 * math.pi) / 2
    value = np.where(x < 0, left, np.log1p(-np.asarray(normal_cdf(-x))))
    return np.where(np.isnan(x), x, value)


_standard = np.frompyfunc(NormalDist().inv_cdf, 1, 1)


def _quantiles(p: Array) -> Array:
    """-x of Phi(x) = p <= 1/2: the standard library's, and a Newton step for the logarithm."""
    inside = (p > 0) & (p <= 0.5)
    q = np.where(inside, p, 0.25)
    x = -np.asarray(_standard(q), np.float64)
    x = x + (np.asarray(log_ndtr(-x)) - np.log(q)) / _hazard(-x)
    return np.where(inside, x, np.where(p == 0, np.inf, np.nan))


@in_double
def ndtri(p: Array) -> Array:
    """Near 1/2 a Newton step for erf."""
    tail = np.where(p > 0.5, 1 - p, p)
    far = _quantiles(np.where(np.abs(p - 0.5) < 0.2, 0.25, tail))
    return np.where(np.abs(p - 0.5) < 0.2, _near(2 * p - 1), np.copysign(far, p - 0.5))


def _near(x: Array) -> Array:
    """sqrt(2) erfinv(x) for |x| < 0.4: Newton's steps from x itself."""
    x = np.where(np.abs(x) < 0.41, x, 0.0)
    y = 0.9 * x
    for _ in range(6):
        y = y - (np.asarray(erf(y)) - x) * np.exp(y * y) * (math.sqrt(math.pi) / 2)
    return math.sqrt(2) * y


@in_double
def erfinv(x: Array) -> Array:
    """The quantile of the tail, exactly (1 - |x|)/2; Newton's steps for |x| < 0.4."""
    tail = np.where(np.abs(x) < 0.4, 0.25, (1 - np.abs(x)) / 2)
    far = np.copysign(_quantiles(tail), x)
    return np.where(np.abs(x) < 0.4, _near(x), far) / math.sqrt(2)


@in_double
def erfinv_slope(x: Array) -> Array:
    """By the hazard of the tail, which keeps the digits of 1 - |x|."""
    y = np.abs(np.asarray(erfinv(x)))
    near = math.sqrt(math.pi) / 2 * np.exp(np.where(np.abs(x) < 0.4, y * y, 0))
    far = math.sqrt(0.5) / ((1 - np.abs(x)) * _hazard(-math.sqrt(2) * y))
    value = np.where(np.abs(x) < 0.4, near, far)
    return np.where(np.abs(x) == 1, np.inf, value)


@in_double
def ndtri_slope(p: Array) -> Array:
    """By the hazard of the tail."""
    y, central = np.abs(np.asarray(ndtri(p))), np.abs(p - 0.5) < 0.2
    near = math.sqrt(2 * math.pi) * np.exp(np.where(central, y * y / 2, 0))
    far = 1 / (np.where(p > 0.5, 1 - p, p) * _hazard(-y))
    return np.where((p == 0) | (p == 1), np.inf, np.where(central, near, far))


# --- Bessel functions -----------------------------------------------------------------------------


def _scaled_bessel(n: int, a: Array) -> Array:
    """exp(-a) I_n(a) for a >= 0: by the power series up to 25, asymptotic beyond."""
    near, far = np.minimum(a, 25.0), np.maximum(a, 25.0)
    term = (0.5 * near) ** n * np.exp(-near)
    small = term
    for k in range(1, 80):
        term = term * (0.25 * near * near) / (k * (k + n))
        small = small + term
    term = np.ones_like(far)
    large = term
    for k in range(1, 40):
        term = term * ((2 * k - 1) ** 2 - 4 * n * n) / (8 * k) / far
        large = large + term
    value = np.where(a < 25.0, small, large / np.sqrt(2 * np.pi * far))
    return np.where(np.isnan(a), a, value)


@in_double
def i0e(x: Array) -> Array:
    """exp(-|x|) I_0(x)."""
    return _scaled_bessel(0, np.abs(x))


@in_double
def i1e(x: Array) -> Array:
    """exp(-|x|) I_1(x)."""
    return np.copysign(_scaled_bessel(1, np.abs(x)), x)


ZEROS: Final = {
    0: (
        (2.404825557695773, -1.176691651530894e-16, -0.5191474972894669),
        (5.520078110286311, 8.088597146146722e-17, 0.3402648065583682),
    ),
    1: (
        (3.8317059702075125, -1.5269184090088067e-16, -0.402759395702553),
        (7.015586669815619, -9.414165653410389e-17, 0.3001157525261325),
    ),
}
"""Of J_0 and J_1 the first zeros, in two pieces, and the slopes there."""


def _about_zero(n: int, zero: tuple[float, float, float], x: Array) -> Array:
    """J_n(z + d) by its power series in d, whose coefficients Bessel's equation gives."""
    z, rest, slope = zero
    d = (np.clip(x, z - 0.5, z + 0.5) - z) - rest
    a = [0.0, 0.0, 0.0, slope]  # those before the first are 0
    for m in range(30):
        total = z * (m + 1) * (2 * m + 1) * a[-1] + (m * m + z * z - n * n) * a[-2]
        a.append(-(total + 2 * z * a[-3] + a[-4]) / (z * z * (m + 2) * (m + 1)))
    value = np.zeros_like(d)
    for c in reversed(a[2:]):
        value = value * d + c
    return value


def _descending(n: int, x: Array) -> Array:
    """J_n(x) by the recurrence from high orders down (Miller), scaled by a sum that is 1.

    In the widest floats there are, as it is a long way down.
    """
    x = np.clip(x, 1.0, 25.0).astype(np.longdouble)
    above, value, total, result = np.zeros_like(x), np.full_like(x, 1e-250), 0.0, 0.0
    for k in range(90, 0, -1):
        above, value = value, 2 * k / x * value - above
        result = value if k - 1 == n else result
        if k % 2:
            total = total + (2 * value if k > 1 else value)
    return np.asarray(result / total, np.float64)


def _hankel(n: int, x: Array) -> Array:
    """J_n(x) by its asymptotic series, in the widest floats too."""
    x = np.where((x > 25.0) & np.isfinite(x), x, 25.0).astype(np.longdouble)
    term, p, q = np.ones_like(x), np.zeros_like(x), np.zeros_like(x)
    for k in range(40):
        p, q = (p + (-1) ** (k // 2) * term, q) if k % 2 == 0 else (p, q + (-1) ** (k // 2) * term)
        term = term * (4 * n * n - (2 * k + 1) ** 2) / ((k + 1) * 8) / x
    s, c = np.sin(x), np.cos(x)
    wave = p * (s - c) + q * (s + c) if n else p * (s + c) - q * (s - c)
    return np.asarray(wave / np.sqrt(np.pi) / np.sqrt(x), np.float64)


def _first_kind(n: int, a: Array) -> Array:
    """J_n(a) for a >= 0."""
    small = np.minimum(a, 1.0)
    term = (0.5 * small) ** n
    near = term
    for k in range(1, 14):
        term = term * (-0.25 * small * small) / (k * (k + n))
        near = near + term
    value = np.where(a < 1.0, near, np.where(a < 25.0, _descending(n, a), _hankel(n, a)))
    for zero in ZEROS[n]:
        value = np.where(np.abs(a - zero[0]) < 0.5, _about_zero(n, zero, a), value)
    return np.where(np.isnan(a), a, np.where(np.isinf(a), 0.0, value))


@in_double
def j0(x: Array) -> Array:
    """J_0(x)."""
    return _first_kind(0, np.abs(x))


@in_double
def j1(x: Array) -> Array:
    """J_1(x), an odd function."""
    return np.copysign(1.0, x) * _first_kind(1, np.abs(x))


@in_double
def j1_ratio(x: Array) -> Array:
    """J_1(x)/x, 1/2 at 0."""
    a = np.abs(x)
    tiny = a < 1e-100
    return np.where(tiny, 0.5, _first_kind(1, a) / np.where(tiny, 1.0, a))


def _integral(p: Array, a: Array, b: Array) -> Array:
    """Of (a cos(t)**2 + b sin(t)**2)/sqrt(cos(t)**2 + p sin(t)**2), 0 < t < pi/2: cel2."""
    k, m, c, a = np.sqrt(p), 1.0, a, a + b
    for _ in range(14):
        b, c, before, m = 2.0 * (c * k + b), a, m, m + k
        a, k = b / m + a, 2.0 * np.sqrt(k * before)
    return 0.25 * np.pi * a / m


def _of(p: Array, a: Array, b: Array, at_zero: float, at_infinity: float) -> Array:
    """The integral, which for p > 1 is that of b, a and 1/p over sqrt(p)."""
    inside = np.where((p > 0.0) & (p < np.inf), p, 1.0)
    far = inside > 1.0
    near = np.where(far, 1.0 / inside, inside)
    value = _integral(near, np.where(far, b, a), np.where(far, a, b))
    value = np.where(far, value / np.sqrt(inside), value)
    value = np.where(p == 0.0, at_zero, np.where(p == np.inf, at_infinity, value))
    return np.where(p >= 0.0, value, np.nan)


@in_double
def ellipkm1(p: Array) -> Array:
    """K(1 - p)."""
    return _of(p, 1.0, 1.0, np.inf, 0.0)


@in_double
def ellipe(m: Array) -> Array:
    """E(m)."""
    p = 1.0 - m
    far = p > 1.0
    inside = np.where(far, 1.0 / np.where(far, p, 1.0), p)
    value = _of(inside, 1.0, inside, 1.0, np.inf)
    return np.where(p == np.inf, np.inf, np.where(far, np.sqrt(np.abs(p)) * value, value))


@in_double
def elliptic_b(p: Array) -> Array:
    """(E - p K)/(1 - p)."""
    return _of(p, 1.0, 0.0, 1.0, 0.0)


@in_double
def elliptic_d(p: Array) -> Array:
    """(K - E)/(1 - p)."""
    return _of(p, 0.0, 1.0, np.inf, 0.0)


def _series(n: int, x: Array) -> Array:
    """K_n(x), n being 0 or 1, for 0 < x <= 1."""
    log, square = np.log(2.0 / x) - np.euler_gamma, 0.25 * x * x
    total, harmonic, term = np.zeros_like(x), 0.0, np.ones_like(x)
    for k in range(12):
        after = harmonic + 1.0 / (k + 1)
        total = total + term * (log + (0.5 * (harmonic + after) if n else harmonic))
        harmonic, term = after, term * square / ((k + 1) * (k + 1 + n))
    return 1.0 / x - 0.5 * x * total if n else total


def _quadrature(n: int, x: Array) -> Array:
    """exp(x) K_n(x), x > 1: the integral of exp(-2 x sinh(t/2)**2) cosh(n t), t > 0, by steps."""
    total, step = np.zeros_like(x), 0.15 / np.sqrt(x)
    for k in range(65):
        t = k * step
        value = np.exp(-2.0 * x * np.sinh(0.5 * t) ** 2) * np.cosh(n * t)
        total = total + (value if k else 0.5 * value)
    return step * total


def _scaled(n: int, x: Array) -> Array:
    inside = np.where((x > 0.0) & (x <= 1.0), x, 1.0)
    far = _quadrature(n, np.where((x > 1.0) & (x < math.inf), x, 2.0))
    value = np.where(x > 1.0, far, np.exp(inside) * _series(n, inside))
    value = np.where(x == 0.0, math.inf, np.where(x == math.inf, 0.0, value))
    return np.where(x >= 0.0, value, math.nan)


@in_double
def k0e(x: Array) -> Array:
    """exp(x) K_0(x)."""
    return _scaled(0, x)


@in_double
def k1e(x: Array) -> Array:
    """exp(x) K_1(x)."""
    return _scaled(1, x)


@in_double
def exp_square(x: Array) -> Array:
    """exp(x**2), the square in two parts."""
    high = np.clip(x, -30, 30).astype(np.float32).astype(np.float64)
    value = np.exp(high * high) * np.exp((x - high) * (x + high))
    return np.where(np.abs(x) > 27.0, np.inf, value)


@in_double
def erfcx(x: Array) -> Array:
    """By erfc up to 1, by Mills' ratio beyond."""
    far = math.sqrt(2 / math.pi) / np.asarray(inverse_mills(-math.sqrt(2) * np.maximum(x, 1.0)))
    near = np.asarray(exp_square(np.minimum(x, 1.0))) * np.asarray(erfc(np.minimum(x, 1.0)))
    return np.where(x > 1.0, far, near)
