"""What each row of the op table means, in mpmath: the reference of the references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from mpmath import mp, mpf

from symgrad.expr.ops import TABLE


def sigma(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def cut(x: Any) -> Any:
    return mp.sign(x) * mp.floor(abs(x))


def leading(x: Any, digits: int) -> Any:
    """x cut to so many binary digits."""
    fraction, exponent = mp.frexp(x)
    return mp.ldexp(cut(mp.ldexp(fraction, digits)), exponent - digits)


def sinc_ratio(x: Any) -> Any:
    """j1(z)/z of the spherical Bessel function j1, z = pi x."""
    return (
        mp.sqrt(mp.pi / 2)
        * mp.hyp0f1(mpf(5) / 2, -((mp.pi * x) ** 2) / 4)
        / (2 * mp.sqrt(2) * mp.gamma(mpf(5) / 2))
    )


def normal_quantile(p: Any) -> Any:
    """The root of the logarithm of the tail less log p, by secants."""
    if not 0 < p < 1:
        raise ValueError(f"{p} is no probability between 0 and 1")
    if p > 0.5:
        return -normal_quantile(1 - p)
    start = -mp.sqrt(-2 * mp.log(2 * p)) if p < 0.5 else mpf(0)
    return mp.findroot(lambda x: mp.log(mp.ncdf(x)) - mp.log(p), start)


def _threefry(a: int, b: int, *block: int) -> tuple[int, int]:
    """Threefry-2x32-20 of Salmon et al. (2011), round by round, on Python's integers."""
    key, (x, y) = (a, b, a ^ b ^ 0x1BD11BDA), block
    x, y = (x + a) % 2**32, (y + b) % 2**32
    for iteration in range(20):
        bits = (13, 15, 26, 6, 17, 29, 16, 24)[iteration % 8]
        x = (x + y) % 2**32
        y = (y << bits) % 2**32 ^ y >> (32 - bits) ^ x
        if iteration % 4 == 3:
            s = iteration // 4 + 1
            x, y = (x + key[s % 3]) % 2**32, (y + key[(s + 1) % 3] + s) % 2**32
    return x, y


def faddeeva(order: int, z: Any) -> Any:
    """w(z), or its first or second derivative."""
    value = mp.exp(-z * z) * mp.erfc(-1j * z)
    slope = 2j / mp.sqrt(mp.pi) - 2 * z * value
    return (value, slope, -2 * (value + z * slope))[order]


def scaled_k(order: int, x: Any) -> Any:
    """exp(x) K_n(x) for n = 0 and 1: the integral, by the trapezoidal rule.

    The integrand is even and entire, so that the error is exp(x - pi**2/h) for steps of h.
    """
    if not x > 0:
        return mp.inf if x == 0 else mp.nan
    step = mp.pi**2 / (mp.prec * mp.ln2 + x + 5)
    growth, power, total, term = mp.exp(step), mpf(1), mpf(0.5), mpf(1)
    while term > total * mp.eps:
        power *= growth
        cosh = (power + 1 / power) / 2
        term = mp.exp(-x * (cosh - 1)) * cosh**order
        total += term
    return total * step


def elliptic_share(p: Any) -> Any:
    """D/K of the parameter m = 1 - p: half the squares of Gauss's differences over m, doubled."""
    m, a, b, square, weight, total = 1 - p, mpf(1), mp.sqrt(p), mpf(1), mpf(0.5), mpf(0)
    while abs(weight * square) > mp.eps * abs(total):
        total += weight * square
        a, b, weight = (a + b) / 2, mp.sqrt(a * b), 2 * weight
        square = m * (square / (4 * a)) ** 2
    return total


def elliptic_k(p: Any) -> Any:
    """K of the parameter 1 - p."""
    return mp.pi / 2 / mp.agm(1, mp.sqrt(p))


MEANING: Final[dict[str, Callable[..., Any]]] = {
    **{op.name: op.exact for op in TABLE.values() if op.exact},
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "neg": lambda a: -a, "reciprocal": lambda a: 1 / a,
    "fma": lambda a, b, c: a * b + c,
    "remainder": lambda a, b: a - b * mp.floor(a / b), "fmod": lambda a, b: a - b * cut(a / b),
    "floor_divide": lambda a, b: mp.floor(a / b),
    "integer_pow": lambda x, k: x ** int(k), "pow": mp.power, "sqrt": mp.sqrt,
    "rsqrt": lambda x: 1 / mp.sqrt(x), "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "pow_times": lambda c, x, p, k: c * mp.power(x, p + int(k)),
    "hypot": mp.hypot, "direction": lambda a, b: a / mp.hypot(a, b),
    "real_reciprocal": lambda a, b: a / (a * a + b * b),
    "real_reciprocal_square": lambda a, b: (a * a - b * b) / (a * a + b * b) ** 2,
    "exp": mp.exp, "exp2": lambda x: mpf(2) ** x, "expm1": mp.expm1, "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2), "log10": mp.log10, "log1p": mp.log1p,
    "logaddexp": lambda a, b: mp.log(mp.exp(a) + mp.exp(b)),
    "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "asin": mp.asin, "acos": mp.acos,
    "atan": mp.atan, "atan2": mp.atan2, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh,
    "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh,
    "bell": lambda x: mp.exp(-x * x / 2), "normal_cdf": mp.ncdf, "ndtr": mp.ncdf,
    "xlogy": lambda x, y: x * mp.log(y), "xlog1py": lambda x, y: x * mp.log(1 + y),
    "entr": lambda x: -x * mp.log(x), "logit": lambda x: mp.log(x) - mp.log(1 - x),
    "log1mexp": lambda x: mp.log(1 - mp.exp(-x)),
    "huber": lambda d, r: r * r / 2 if abs(r) <= d else d * (abs(r) - d / 2),
    "i0e": lambda x: mp.besseli(0, x) * mp.exp(-abs(x)),
    "k0e": lambda x: scaled_k(0, x), "k1e": lambda x: scaled_k(1, x),
    "i1e": lambda x: mp.besseli(1, x) * mp.exp(-abs(x)),
    "log_ndtr": lambda x: mp.log(mp.ncdf(x)), "inverse_mills": lambda x: mp.npdf(x) / mp.ncdf(x),
    "mills_excess": lambda x: x + mp.npdf(x) / mp.ncdf(x),
    "erfinv": lambda x: normal_quantile((1 + x) / 2) / mp.sqrt(2),
    "erfinv_slope": lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(MEANING["erfinv"](x) ** 2),
    "ndtri": lambda p: normal_quantile(p),
    "ndtri_slope": lambda p: mp.sqrt(2 * mp.pi) * mp.exp(normal_quantile(p) ** 2 / 2),
    **{
        f"faddeeva_{part}{name}": lambda x, y, part=part, order=order: getattr(
            faddeeva(order, mp.mpc(x, y)), part
        )
        for part in ("real", "imag")
        for order, name in enumerate(("", "_slope", "_bend"))
    },
    "dawsn": lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x),
    "voigt_profile": lambda x, s, g: faddeeva(0, mp.mpc(x, g) / (mp.sqrt(2) * s)).real
    / (mp.sqrt(2 * mp.pi) * s),
    "gammainc_slope": lambda a, x: mp.diff(
        lambda s: mp.gammainc(s, 0, x, regularized=True), a
    ),
    "gammainc_bend": lambda a, x: mp.diff(
        lambda s: mp.gammainc(s, 0, x, regularized=True), a, 2
    ),
    **{
        f"betainc_slope_{name}": lambda a, b, x, by=by: mp.diff(
            lambda p, q: mp.betainc(p, q, 0, x, regularized=True), (a, b), by
        )
        for name, by in (("a", (1, 0)), ("b", (0, 1)))
    },
    "gammainc": lambda a, x: mp.gammainc(a, 0, x, regularized=True),
    "gammaincc": lambda a, x: mp.gammainc(a, x, regularized=True),
    "gamma_density": lambda a, x: mp.exp((a - 1) * mp.log(x) - x - mp.loggamma(a)),
    "betainc": lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
    "betaincc": lambda a, b, x: mp.betainc(a, b, x, 1, regularized=True),
    "beta_density": lambda a, b, x: mp.exp(
        (a - 1) * mp.log(x) + (b - 1) * mp.log1p(-x)
        + mp.loggamma(a + b) - mp.loggamma(a) - mp.loggamma(b)
    ),
    "gammaln": lambda x: mp.log(abs(mp.gamma(x))), "digamma": lambda x: mp.psi(0, x),
    "trigamma": lambda x: mp.psi(1, x), "tetragamma": lambda x: mp.psi(2, x),
    "pentagamma": lambda x: mp.psi(3, x), "sinc": mp.sincpi, "sinc_ratio": lambda x: sinc_ratio(x),
    "j0": lambda x: mp.besselj(0, x), "j1": lambda x: mp.besselj(1, x),
    "j1_ratio": lambda x: mp.hyp0f1(2, -x * x / 4) / 2,
    "ellipkm1": elliptic_k, "ellipk": mp.ellipk, "ellipe": mp.ellipe,
    "elliptic_b": lambda p: elliptic_k(p) * (1 - elliptic_share(p)),
    "elliptic_d": lambda p: elliptic_k(p) * elliptic_share(p),
    "exp_neg_square": lambda x: mp.exp(-x * x), "erf": mp.erf, "erfc": mp.erfc,
    "logistic": lambda x: mp.exp(-x) / (1 + mp.exp(-x)) ** 2,
    "decay_between": lambda a, b: mp.exp(-abs(a - b)),
    "sigmoid_difference": lambda a, b: sigma(a - b),
    "logistic_difference": lambda a, b: sigma(a - b) * sigma(b - a),
    "sigmoid": sigma, "softplus": lambda x: mp.log(1 + mp.exp(x)),
    "relu": lambda x: max(x, mpf(0)), "silu": lambda x: x * sigma(x),
    "silu_slope": lambda x: sigma(x) * (1 + x * sigma(-x)),
    "gelu": lambda x: x * mp.ncdf(x), "gelu_slope": lambda x: mp.ncdf(x) + x * mp.npdf(x),
    "gelu_tanh_slope": lambda x: mp.diff(MEANING["gelu_tanh"], x),
    "gelu_tanh": lambda x: x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mpf(0.044715) * x**3))),
    "abs": abs, "sign": mp.sign, "floor": mp.floor, "ceil": mp.ceil, "round": mp.nint,
    "trunc": cut, "fract": lambda x: x - mp.floor(x),
    "one_minus_square": lambda x: 1 - x * x,
    "copysign": lambda a, b: abs(a) * (-1 if b < 0 else 1),
    "minimum": min, "maximum": max, "clip": lambda x, low, high: min(max(x, low), high),
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b, "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b), "logical_xor": lambda a, b: bool(a) != bool(b),
    "logical_not": lambda a: not a, "isnan": mp.isnan, "isinf": mp.isinf, "isfinite": mp.isfinite,
    "where": lambda c, a, b: a if c else b, "stop_gradient": lambda x: x, "opaque": lambda x: x,
    "float_bits": lambda x: int(np.float32(float(x)).view(np.uint32)),
    "bits_float": lambda x: mpf(float(np.uint32(int(x)).view(np.float32))),
    "word_add": lambda a, b: (int(a) + int(b)) % 2**32, "word_and": lambda a, b: int(a) & int(b),
    "word_div": lambda a, b: int(a) // int(b),
    "word_sub": lambda a, b: (int(a) - int(b)) % 2**32,
    "word_mul": lambda a, b: int(a) * int(b) % 2**32, "word_or": lambda a, b: int(a) | int(b),
    "word_xor": lambda a, b: int(a) ^ int(b),
    "word_shift_left": lambda a, b: (int(a) << int(b)) % 2**32,
    "word_shift_right": lambda a, b: int(a) >> int(b), "word_lt": lambda a, b: int(a) < int(b),
    "word_eq": lambda a, b: int(a) == int(b),
    "uint32": lambda x: min(max(int(x), 0), 2**32 - 1),
    "int32": lambda x: min(max(int(x), -(2**31)), 2**31 - 1) % 2**32,
    "uint32_float": lambda w: w, "int32_float": lambda w: w - (2**32 if w >= 2**31 else 0),
    "threefry_first": lambda *words: _threefry(*map(int, words))[0],
    "threefry_second": lambda *words: _threefry(*map(int, words))[1],
    "word_min": min, "word_where": lambda c, a, b: a if c else b, "word_float": lambda x: x,
    "signed_float": lambda x: (int(x) + 2**31) % 2**32 - 2**31,
    "nearest_word": lambda x: int(mp.nint(x)) % 2**32,
    "modulus": lambda a, b: a - b * mp.floor(a / b),
    "far_modulus": lambda a, b: a - b * mp.floor(a / b),
    "wide_div": lambda a, b: a / b, "ratio": lambda a, b: a / b, "root": mp.sqrt,
    "saturate": lambda x: min(max(x, mpf(0)), mpf(1)),
    "quarters": lambda x: 12582912 + (
        mp.nint(2 * x / mp.pi) if abs(x) < 3000 else mp.nint(2 * x / mp.pi) % 4
    ),
    "far_quarters": lambda x: 12582912 + mp.nint(2 * x / mp.pi) % 4,
    "far_sin": mp.sin, "far_cos": mp.cos, "far_tan": mp.tan,
    "far_angle": lambda x: x - mp.pi / 2 * mp.nint(2 * x / mp.pi),
    "angle": lambda x, q: x - mp.pi / 2 * mp.nint(2 * x / mp.pi),
    "sin_turns": lambda x: mp.sinpi(2 * x), "cos_turns": lambda x: mp.cospi(2 * x),
    "sine": lambda a, q: mp.sin(a + mp.pi / 2 * (q - 12582912)),
    "cosine": lambda a, q: mp.cos(a + mp.pi / 2 * (q - 12582912)),
    "tangent": lambda a, q: mp.tan(a + mp.pi / 2 * (q - 12582912)),
    "scalb": lambda x, k: x * mpf(2) ** k,
    "power_of_two": lambda k: mpf(2) ** k,
    "exponent": lambda x: mp.floor(mp.log(abs(x), 2)),
    "significand": lambda x: x / mpf(2) ** mp.floor(mp.log(abs(x), 2)),
    "first_digits": lambda x: leading(x if abs(x) < 2 else x * (1 - mpf(2) ** -55), 13),
    "upper": lambda x: leading(x, 26),
}  # fmt: skip
