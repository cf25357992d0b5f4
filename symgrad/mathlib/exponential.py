"""Exponentials, logarithms and powers: a reduction by powers of 2, then a polynomial, no branch.

exp(x) is 2**(2k) exp(r) for a whole number k: the two factors 2**k are normal for all results, so
overflow and gradual underflow are the multiplications' own. r lies about 0.45 ln 2, not 0, for a
polynomial rounds better where its value is not below 0.68. The logarithm of
x = 2**k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), is k ln 2 + log(1 + f).
"""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.expr.tracers.integers import Word
from symgrad.mathlib.bits import (
    MAGIC,
    coefficients,
    has_sign,
    keep_nan,
    leading,
    polynomial,
    whole,
    within,
)

EXP: Final = (0.49999934, 0.1666666, 0.04167755, 0.0083246995, 0.0013478664, 0.00026575543)
"""(exp(x) - 1 - x)/x**2 on [-0.55 ln 2, 1.45 ln 2]: exp to 0.23 * 2**-24 (tools/fit.py)."""

EXP2: Final = coefficients("""
    0.6931472 0.2402262 0.05550408 0.009620646 0.0013319808 0.00014947592 2.0432835e-05
""")
"""(2**x - 1)/x on [-0.55, 1.45]: 2**x to 0.26 * 2**-24."""

LOG: Final = coefficients("""
    -0.4999999 0.3333395 -0.25001755 0.1996207 -0.16570495 0.14917998 -0.14307643 0.0873493
""")
"""(log(1 + x) - x)/x**2 on [sqrt(1/2) - 1, sqrt(2) - 1]: log(1 + x) to 0.59 * 2**-24."""

LOG2: Final = coefficients("""
    0.442695 -0.72134733 0.48091063 -0.36070368 0.28791618 -0.2389446 0.21571596 -0.20727162
    0.12583838
""")
"""log2(1 + x)/x - 1 there: log2(1 + x) to 0.62 * 2**-24."""

LOG10: Final = coefficients("""
    -0.0032055292 -0.21714719 0.14476854 -0.10858263 0.08667141 -0.07192949 0.06493697 -0.062394977
    0.03788113
""")
"""log10(1 + x)/x - 7/16 there: log10(1 + x) to 0.55 * 2**-24."""

EXPM1: Final = (0.5, 0.16666672, 0.04166662, 0.00833263, 0.0013890425, 0.00020095627, 2.4781166e-05)
"""(exp(x) - 1 - x)/x**2 on [-ln 2, ln 2]: expm1 to 0.09 * 2**-24 of its value."""

Parts = tuple[Expr, Expr]
"""A number as the sum of two floats, the second far smaller."""

TWO_LN2: Final = (1.38629150390625, 2.8572136e-06)
"""2 ln 2: its 16 leading bits, whose product with k is exact, and the rest."""
LOG10_2: Final = (0.301025390625, 4.605039e-06)
"""log10(2): its 12 leading bits, whose product with k is exact, and the rest."""


def _whole(x: Expr, unit: float, low: float) -> tuple[Expr, Expr]:
    """The whole number k with x - k*unit in [low, low + 1]*unit, limited to ±126, and 2**k.

    The limits come first and for k only: what is made of x itself keeps NaN, and grows beyond.
    k is opaque: x - (sum - MAGIC) as (x + MAGIC) - sum, as NVIDIA has it for -x, would lose x.
    """
    share = ops.saturate(x * (1.0 / (252.0 * unit)) + (0.5 - (low + 0.5) / 252.0))
    sum_ = share * 252.0 + (MAGIC - 126.0)
    power = ops.bits_float((ops.float_bits(sum_) << 23) + 0x3F800000)
    return ops.opaque(ops.opaque(sum_) - MAGIC), power


def _raised(value: Expr, power: Expr) -> Expr:
    """value * power**2; as power * power may overflow, the first product is opaque."""
    return ops.opaque(value * power) * power


def exp(x: Expr) -> Expr:
    """4**k times a polynomial for the exponential of r = x - 2k ln 2, subtracted in two steps."""
    k, power = _whole(x, 2.0 * math.log(2.0), -0.275)
    r = ops.opaque(x - k * TWO_LN2[0]) - k * TWO_LN2[1]
    value = _raised(1.0 + r * (1.0 + r * polynomial(r, EXP)), power)
    return ops.where(x < -104.0, 0.0, value)


def exp2(x: Expr) -> Expr:
    """4**k times a polynomial for the power of r = x - 2k."""
    k, power = _whole(x, 2.0, -0.275)
    r = x - 2.0 * k
    return ops.where(x < -150.0, 0.0, _raised(1.0 + r * polynomial(r, EXP2), power))


def expm1(x: Expr) -> Expr:
    """4**k q + (4**k - 1), q a polynomial for exp(r) - 1, r = x - 2k ln 2."""
    k, power = _whole(x, 2.0 * math.log(2.0), -0.5)
    r = ops.opaque(x - k * TWO_LN2[0]) - k * TWO_LN2[1]
    inverse = ops.bits_float(ops.word_sub(0x7F000000, ops.float_bits(power)))
    scaled = power * (r + (r * r) * polynomial(r, EXPM1)) + (power - inverse)
    value = ops.where(x < -104.0, -1.0, ops.opaque(scaled) * power)
    return ops.where(ops.abs(x) < 2.0**-27, x, value)


def _exponent(x: Expr) -> tuple[Expr, Expr]:
    """k and f of x = 2**k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for a positive finite x."""
    subnormal = x < 2.0**-126
    normal = ops.where(subnormal, whole(ops.float_bits(x)), x)
    bits: Word = ops.float_bits(normal) + (0x3F800000 - 0x3F3504F3)
    k = ops.bits_float((bits >> 23) + 0x4B000000)  # 2**23 + k + 127
    m = ops.bits_float((bits & 0x7FFFFF) + 0x3F3504F3)
    return k - ops.where(subnormal, 8388608.0 + 276.0, 8388608.0 + 127.0), m - 1.0


def _logarithm(x: Expr, value: Expr) -> Expr:
    """The value for a positive finite x; -inf at 0, inf at inf, else NaN."""
    outside = ops.where(x == 0.0, -math.inf, ops.where(x > 0.0, x, math.nan))
    return ops.where((ops.float_bits(x) - 1) < 0x7F7FFFFF, value, outside)


def log(x: Expr) -> Expr:
    """k ln 2 + a polynomial for the logarithm of 1 + f, x = 2**k (1 + f)."""
    k, f = _exponent(x)
    return _logarithm(x, k * math.log(2.0) + (f + (f * f) * polynomial(f, LOG)))


def log2(x: Expr) -> Expr:
    """k + a polynomial for the logarithm of 1 + f, x = 2**k (1 + f)."""
    k, f = _exponent(x)
    return _logarithm(x, k + (f + f * polynomial(f, LOG2)))


def log10(x: Expr) -> Expr:
    """0.301 k + a polynomial for the logarithm of 1 + f, x = 2**k (1 + f)."""
    k, f = _exponent(x)
    near = f * 0.4375 + f * polynomial(f, LOG10)
    return _logarithm(x, k * LOG10_2[0] + (k * LOG10_2[1] + near))


def log1p(x: Expr) -> Expr:
    """The logarithm of 1 + x = 2**k (1 + f), f with what the rounding of 1 + x took."""
    u = ops.opaque(1.0 + x)
    lost = x - ops.opaque(u - 1.0)
    bits: Word = ops.float_bits(u) + (0x3F800000 - 0x3F3504F3)
    # opaque: compilers would multiply the difference out, and round 8388735 ln 2
    k = ops.opaque(ops.bits_float((bits >> 23) + 0x4B000000) - (8388608.0 + 127.0))
    twice = ops.bits_float(ops.word_sub(0x7F800000, bits & 0x7F800000))  # 2**-k, doubled
    f = (ops.bits_float((bits & 0x7FFFFF) + 0x3F3504F3) - 1.0) + (0.5 * lost) * twice
    value = _logarithm(u, k * math.log(2.0) + (f + (f * f) * polynomial(f, LOG)))
    return ops.where(ops.abs(x) < 2.0**-27, x, value)


def exp_neg_square(x: Expr) -> Expr:
    """exp(-x**2) as exp(-h**2 - (x - h)(x + h)), h the 12 leading bits of x: h**2 is exact."""
    return ops.where(ops.abs(x) > 10.3, 0.0, gaussian(x, 1.0))


def exp_square(x: Expr) -> Expr:
    """exp(x**2) as exp(h**2 + (x - h)(x + h)), h the 12 leading bits of x: h**2 is exact."""
    beyond = ops.abs(x) > 9.5
    return ops.where(beyond, ops.abs(x) * math.inf, gaussian(ops.where(beyond, 0.0, x), -1.0))


def bell(x: Expr) -> Expr:
    """exp(-x**2/2) as exp(-h**2/2 - (x - h)(x + h)/2), h the 12 leading bits of x."""
    return ops.where(ops.abs(x) > 14.5, 0.0, gaussian(x, 0.5))


def gaussian(x: Expr, share: float, factor: Parts | None = None) -> Expr:
    """exp(-share x**2), the share ±1 or 1/2, times the factor, at the cost of no more roundings."""
    h = leading(x)
    k, power = _whole((x * x) * -share, 2.0 * math.log(2.0), -0.275)
    rest = ((h - x) * share) * (x + h) - k * TWO_LN2[1]
    exact = ops.opaque((h * h) * -share - k * TWO_LN2[0])
    r = exact + rest  # its rounding does no harm where it is squared
    less = exact + ops.opaque(rest + (r * r) * polynomial(r, EXP))
    if factor is None:
        return _raised(1.0 + less, power)
    first, second = factor
    return _raised(first + (first * less + (second + second * less)), power)


# Powers and roots: x**p with its logarithm in two floats, the cube root, the hypotenuse.

LOG_SERIES: Final = (0.33333334, 0.20000006, 0.14283733, 0.11340781)
"""(atanh(s) - s)/s**3 in s**2, |s| <= 0.1011: atanh to 0.0018 * 2**-24 (tools/fit.py)."""

TWO_OVER_LN2: Final = (2.884765625, 2.0 / math.log(2.0) - 2.884765625)
"""2/ln 2: its 12 leading bits, and the rest."""
LOG2_3_HALVES: Final = (0.5849609375, math.log2(1.5) - 0.5849609375)
"""log2(3/2): bits down to 2**-12, and the rest."""


def _two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b rounded, and what the rounding lost; |a| >= |b| or a = 0 (Dekker 1971)."""
    total = ops.opaque(a + b)
    return total, b - (total - a)


def _split(a: Expr) -> tuple[Expr, Expr, Condition]:
    """k, m of a = 2**k m, m in [sqrt(3)/2, sqrt(3)), and whether m > sqrt(3/2); a > 0, finite."""
    subnormal = a < 2.0**-126
    bits = ops.float_bits(ops.where(subnormal, a * 2.0**24, a))
    m = ops.bits_float(ops.word_add(ops.word_and(bits, 0x7FFFFF), 0x3F800000))
    k = whole(ops.word_div(bits, 0x800000)) - ops.where(subnormal, 151.0, 127.0)
    above = m > math.sqrt(3.0)
    return ops.where(above, k + 1.0, k), ops.where(above, 0.5 * m, m), (m > 1.2247449) & ~above


def _log2(a: Expr) -> tuple[Expr, Expr]:
    """log2(a) as a sum of two floats, to 2**-30 of its value.

    With a = 2**k m and c = 3/2 or 1, whichever is nearer to m, log2(a) is
    k + log2(c) + 2/ln 2 atanh(s), s = (m - c)/(m + c); s is kept in two pieces.
    """
    k, m, halves = _split(a)
    c = ops.where(halves, 1.5, 1.0)
    f, g = m - c, m + c
    g_high = leading(g)
    g_low = m - ops.opaque(g_high - c)
    s = f / g
    high = leading(s)
    low = (ops.opaque(f - high * g_high) - high * g_low) / g
    square = s * s
    low = low + s * square * polynomial(square, LOG_SERIES)
    rest = high * TWO_OVER_LN2[1] + low * sum(TWO_OVER_LN2)
    fraction, lost = _two_sum(high * TWO_OVER_LN2[0], rest)
    total, rest = _two_sum(k + ops.where(halves, LOG2_3_HALVES[0], 0.0), fraction)
    return total, rest + (lost + ops.where(halves, LOG2_3_HALVES[1], 0.0))


def _magnitude(a: Expr, p: Expr) -> Expr:
    """a**p for a positive finite a."""
    p = within(p, 1e12)  # beyond, the power is 0, 1 or inf already
    high, low = _log2(a)
    cut, p_cut = leading(high), leading(p)
    low = (high - cut) + low
    exponent, rest = _two_sum(p_cut * cut, (p - p_cut) * cut + p * low)
    value = ops.exp2(within(exponent, 200.0))
    return value * (1.0 + ops.where(ops.abs(exponent) < 200.0, rest * math.log(2.0), 0.0))


def pow(x: Expr, p: Expr) -> Expr:
    """|x|**p as 2**(p log2|x|), the logarithm in two floats; negative for x < 0 and odd p."""
    a = ops.abs(x)
    rising = p > 0.0
    value = ops.where(a == 0.0, ops.where(rising, 0.0, math.inf), _magnitude(a, p))
    value = ops.where(ops.isinf(a), ops.where(rising, math.inf, 0.0), value)
    return of_any_sign(x, p, value)


def of_any_sign(x: Expr, p: Expr, value: Expr) -> Expr:
    """x**p, of |x|**p: negative for x < 0 and odd p, NaN where p is no integer, and 1 for p = 0."""
    half = 0.5 * p
    integer = ops.floor(p) == p
    odd = integer & (ops.floor(half) != half)
    value = ops.where(odd & has_sign(x), -value, value)
    outside = (x < 0.0) & ops.isfinite(x) & ~integer
    value = keep_nan(ops.where(outside, math.nan, value), x, p)
    return ops.where((p == 0.0) | (x == 1.0), 1.0, value)


def cbrt(x: Expr) -> Expr:
    """Three Newton steps from a third of the exponent: y - (y - a/y**2)/3, which forms no y**3."""
    a = ops.abs(x)
    subnormal = a < 2.0**-126  # its bits are a * 2**149, also where devices flush it
    scaled = 2.0 * whole(ops.word_and(ops.float_bits(x), 0x7FFFFFFF))
    a = ops.where(subnormal, scaled, a)
    y = ops.bits_float(ops.word_add(ops.word_div(ops.float_bits(a), 3), 0x2A514067))
    for _ in range(3):
        y = y - (y - a / (y * y)) * (1.0 / 3.0)
    y = ops.where(subnormal, y * 2.0**-50, y)
    return ops.where((a == 0.0) | ~ops.isfinite(x), x, ops.copysign(y, x))


def hypot(a: Expr, b: Expr) -> Expr:
    """sqrt(a**2 + b**2), both scaled by the same 2**k so that no square leaves the range."""
    u, v = ops.abs(a), ops.abs(b)
    m = ops.where(u > v, u, v)
    large, small = m > 2.0**60, m < 2.0**-50
    scale = ops.where(large, 2.0**-70, ops.where(small, 2.0**100, 1.0))
    back = ops.where(large, 2.0**70, ops.where(small, 2.0**-100, 1.0))
    u, v = u * scale, v * scale
    value = keep_nan(ops.sqrt(u * u + v * v) * back, a, b)
    return ops.where(ops.isinf(a) | ops.isinf(b), math.inf, value)
