"""The values of operations where NumPy has no function, or another convention, for them.

Each takes and returns arrays of one floating-point type, and follows IEEE 754 in the edges.
Integer powers are products within 4 ULP, of arrays and of expressions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

Split = tuple[Any, Any, Any]
"""A power as a large number less a small one of the other sign, and that difference rounded."""

FACTOR: Final = {5: 4, 6: 4, 7: 4, 8: 4, 9: 4, 10: 8, 11: 8, 12: 8, 13: 7, 14: 8, 15: 8, 16: 12}
"""The exponent of one of two factors: cheap, none near an end of the range, and within 4 ULP."""


def is_product(k: int) -> bool:
    """Whether x**k is a product that is within 4 ULP, so that it needs no logarithm.

    Exponents that float32 does not have are products too, for their parity.
    """
    return -15 < k < 17 or abs(k) > 2**24


def is_split(k: int) -> bool:
    """Whether repeated squaring, off by |k| - 1 roundings, is too far off for x**k."""
    return is_product(k) and abs(k) in FACTOR and not 0 < k < 7


def power_product(x: Any, k: int, first_digits: Callable[[Any], Any]) -> Any:
    """x**|k| for k != 0, from which x**k comes within 4 ULP.

    By repeated squaring, or as the product of two powers each of which is hardly off by more than
    its last rounding. These are powers of h, the ``first_digits`` of x, exact up to the fourth,
    less a small rest of the other sign: nothing cancels, so that compilers may reassociate. As each
    of the two is far from the ends of the range where their product is inside, no rest is flushed.
    """
    size = abs(k)
    if not is_split(k):
        return power_chain(x, size)
    h = first_digits(x)
    given = (h, h - x, x)
    one, other = (
        power_chain(given, n, _split_product) for n in (FACTOR[size], size - FACTOR[size])
    )
    return one[2] * other[2]


def power_chain(x: Any, k: int, times: Callable[[Any, Any], Any] = operator.mul) -> Any:
    """x**k for k >= 1 by repeated squaring: k = 13 is (x * x**4) * x**8."""
    product, square = None, x
    while k:
        if k & 1:
            product = square if product is None else times(product, square)
        k >>= 1
        square = times(square, square) if k else square
    return product


def _split_product(a: Split, b: Split) -> Split:
    (large, small, x), (other, rest, y) = a, b
    low = small * (large + x) if a is b else large * rest + small * y
    high = large * other
    return high, low, high - low


Array = Any


def pointwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A NumPy function from one on Python floats, computed in double and rounded once."""
    ufunc = np.frompyfunc(function, 1, 1)

    def reference(x: Array) -> Array:
        x = np.asarray(x)
        return np.asarray(ufunc(x.astype(np.float64)), dtype=x.dtype)

    return reference


erf = pointwise(math.erf)
erfc = pointwise(math.erfc)


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


def exp_neg_square(x: Array) -> Array:
    """exp(-x**2), squared in double so that the exponent is exact to its last bit."""
    x = np.asarray(x)
    wide = np.clip(x.astype(np.float64), -1e3, 1e3)  # beyond, the value is 0 anyhow
    high = wide.astype(np.float32).astype(np.float64)  # high**2 is exact in double
    return (np.exp(-high * high) * np.exp(-(wide - high) * (wide + high))).astype(x.dtype)


def bell(x: Array) -> Array:
    """exp(-x**2/2)."""
    x = np.asarray(x)
    wide = np.clip(x.astype(np.float64), -1e3, 1e3)
    high = wide.astype(np.float32).astype(np.float64)  # high**2 is exact in double
    return (np.exp(-high * high / 2) * np.exp(-(wide - high) * (wide + high) / 2)).astype(x.dtype)


def normal_cdf(x: Array) -> Array:
    """erfc(-x/sqrt(2))/2, with what the rounding of x/sqrt(2) does to the tail mended."""
    x = np.asarray(x)
    wide = np.clip(x.astype(np.float64), -1e3, 1e3)
    z = wide * -math.sqrt(0.5)
    with np.errstate(all="ignore"):
        mended = np.asarray(erfc(z)) * (bell(wide) / exp_neg_square(z))
    below = (wide < 0.0) & (wide > -37.5)  # where it is normal; above 0 there is no tail
    return np.where(below, 0.5 * mended, 0.5 * erfc(z)).astype(x.dtype)


def integer_power(x: Array, exponent: Array) -> Array:
    """x**k as kernels compute it: by products, or as a power."""
    k = int(exponent)
    x = np.asarray(x)
    if not is_product(k):
        return np.power(x, x.dtype.type(k))
    if k == 0:
        return np.ones_like(x)
    product = power_product(x, k, first_digits)
    return np.reciprocal(product) if k < 0 else product


def sigmoid(x: Array) -> Array:
    """1/(1 + exp(-x)) without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(np.asarray(x) >= 0, 1, e) / (1 + e)


def logistic(x: Array) -> Array:
    """exp(-x)/(1 + exp(-x))**2 without overflow: an even function."""
    e = np.exp(-np.abs(x))
    r = np.reciprocal(1 + e)
    return e * (r * r)


def _apart(a: Array, b: Array) -> tuple[Array, Array]:
    """a - b rounded, 0 where a = b, infinite or not; and what the rounding lost, at most 1.

    More is lost only where the exponential of the difference is 0.
    """
    d = np.where(np.equal(a, b), 0, np.subtract(a, b))
    minus_b = d - a
    rest = (a - (d - minus_b)) - (b + minus_b)
    return d, np.where(np.isfinite(rest), np.clip(rest, -1, 1), 0).astype(d.dtype)


def decay_between(a: Array, b: Array) -> Array:
    """exp(-|a - b|), to first order in what the rounding of a - b loses."""
    d, rest = _apart(a, b)
    return np.exp(-np.abs(d)) * (1 - np.sign(d) * rest)


def sigmoid_difference(a: Array, b: Array) -> Array:
    """sigmoid(a - b), in the same way."""
    d, rest = _apart(a, b)
    return sigmoid(d) * (1 + rest * sigmoid(-d))


def logistic_difference(a: Array, b: Array) -> Array:
    """logistic(a - b), in the same way."""
    d, rest = _apart(a, b)
    return logistic(d) * (1 - rest * np.tanh(d / 2))


def _at_unit_scale(a: Array, b: Array) -> tuple[Array, Array, Array, Array]:
    """a and b in double, divided by 2**k so that the larger is in [1/2, 1); their squares' sum, k.

    The sum is 1 at (0, 0), where there is nothing to divide.
    """
    u, v = np.asarray(a, np.float64), np.asarray(b, np.float64)
    k = np.frexp(np.maximum(np.abs(u), np.abs(v)))[1]
    u, v = np.ldexp(u, -k), np.ldexp(v, -k)
    square = u * u + v * v
    return u, v, np.where(square == 0, 1, square), k


def _kept(x: Array) -> Array:
    """x, 0 where it is infinite."""
    return np.where(np.isinf(x), 0, x)


def real_reciprocal(a: Array, b: Array) -> Array:
    """a/(a**2 + b**2) without overflow."""
    u, _, square, k = _at_unit_scale(a, b)
    value = np.copysign(_kept(u) / square, u)
    return np.ldexp(value, -k).astype(np.result_type(a, b))


def real_reciprocal_square(a: Array, b: Array) -> Array:
    """(a**2 - b**2)/(a**2 + b**2)**2 without overflow."""
    u, v, square, k = _at_unit_scale(a, b)
    u, v = _kept(u), _kept(v)
    value = ((u - v) / square) * ((u + v) / square)
    return np.ldexp(value, -2 * k).astype(np.result_type(a, b))


def direction(a: Array, b: Array) -> Array:
    """a/hypot(a, b) without overflow."""
    u, _, square, _ = _at_unit_scale(a, b)
    value = np.where(np.isinf(u), np.sign(u), u / np.sqrt(square))
    return value.astype(np.result_type(a, b))


def pow_times(c: Array, x: Array, p: Array, k: Array) -> Array:
    """c * x**(p + k) as c x**k h, h = |x|**(p/2), times another h: only the whole may overflow."""
    kind, k = np.result_type(c, x, p), int(k)
    c, x, p = (np.asarray(v, np.float64) for v in (c, x, p))
    y = np.power(x, p)
    half = np.power(np.abs(x), 0.5 * p)
    value = c * np.copysign(half, y)
    for _ in range(abs(k)):
        value = value / x if k < 0 else value * x
    ends = (x == 0) | np.isinf(x)
    value = np.where(ends, c * np.power(x, p + k), value * half)
    return np.where(np.isnan(y), y, np.where(c == 0, 0, value)).astype(kind)


def _falling(x: Array, factor: Array) -> Array:
    """x*factor, 0 where the factor is 0, as it falls off faster than x grows."""
    return np.where(factor == 0, 0, x) * factor


def silu(x: Array) -> Array:
    """x*sigmoid(x); x -> -inf gives 0."""
    return _falling(x, sigmoid(x))


def silu_slope(x: Array) -> Array:
    """The derivative of x*sigmoid(x); x -> -inf gives 0."""
    return _falling(1 + _falling(x, sigmoid(np.negative(x))), sigmoid(x))


def gelu(x: Array) -> Array:
    """x*Phi(x); x -> -inf gives 0."""
    return _falling(x, 0.5 * erfc(-x * np.float64(math.sqrt(0.5))).astype(x.dtype))


def gelu_slope(x: Array) -> Array:
    """Phi(x) + x*phi(x), the derivative of x*Phi(x), phi being that of Phi."""
    return normal_cdf(x) + _falling(x, bell(x) * x.dtype.type(1.0 / math.sqrt(2.0 * math.pi)))


GELU_TANH = (2.0 * math.sqrt(2.0 / math.pi), 0.044715)
"""a, b of the tanh approximation of gelu, x*sigmoid(a*(x + b*x**3))."""


def gelu_tanh(x: Array) -> Array:
    """x*(1 + tanh(z/2))/2, that is x*sigmoid(z), z = a*(x + b*x**3); 0 or x from |x| = 30 on.

    In double, as exp has the absolute error of z for its relative one, and z is down to -100.
    """
    a, b = GELU_TANH
    wide = np.asarray(x).astype(np.float64)
    near = np.clip(wide, -30.0, 30.0)
    value = near * sigmoid(a * (near + b * (near * near * near)))
    return np.where(np.abs(wide) > 30.0, np.maximum(wide, 0.0), value).astype(x.dtype)


def gelu_tanh_slope(x: Array) -> Array:
    """The derivative of `gelu_tanh`, 0 or 1 from |x| = 30 on."""
    a, b = GELU_TANH
    near = np.clip(x, -30, 30)
    z = a * (near + b * (near * near * near))
    slope = a * (1.0 + 3.0 * b * (near * near))
    return (sigmoid(z) + near * slope * logistic(z)).astype(x.dtype)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def logit(x: Array) -> Array:
    """log(x/(1 - x)), near 1/2 as the logarithm of 1 + (2x - 1)/(1 - x), in double."""
    wide = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        near = np.log1p((2 * wide - 1) / (1 - wide))
        value = np.where(np.abs(wide - 0.5) < 0.25, near, np.log(wide) - np.log1p(-wide))
    return value.astype(np.asarray(x).dtype)


def huber(delta: Array, r: Array) -> Array:
    """Huber's loss of a residual r, infinite for delta < 0."""
    size = np.abs(r)
    with np.errstate(all="ignore"):
        loss = np.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta))
    return np.where(delta < 0, np.inf, loss).astype(np.result_type(delta, r))


def fma(a: Array, b: Array, c: Array) -> Array:
    """a*b + c; float32 is computed in double, so that it is rounded once (nearly always)."""
    wide = [np.asarray(v, dtype=np.float64) for v in (a, b, c)]
    return (wide[0] * wide[1] + wide[2]).astype(np.result_type(a, b, c))


def reciprocal(x: Array) -> Array:
    """1/x, of whole numbers too."""
    return np.divide(1.0, x)


def rsqrt(x: Array) -> Array:
    """1/sqrt(x)."""
    return np.reciprocal(np.sqrt(x))


NO_TURN = 12582912.0
"""1.5 * 2**23: a float32 sum with it is a whole number, whose last bits are the number's."""


def quarters(x: Array) -> Array:
    """12582912 + k, k the quarter turns nearest to x; from 3000 radians on modulo 4."""
    x = np.asarray(x)
    wide = x.astype(np.float64)
    sine, cosine = np.sin(wide), np.cos(wide)
    k = np.where(np.abs(sine) > np.abs(cosine), 2 - np.sign(sine), 1 - np.sign(cosine)) % 4
    near = np.round(wide * (2 / math.pi))
    near = near + ((k - near + 2) % 4 - 2)  # halfway between two, as sine and cosine say
    k = np.where(np.abs(wide) < 3000.0, near, k) + NO_TURN
    return np.where(np.isfinite(wide), k, NO_TURN).astype(x.dtype)


def _by_quadrant(x: Array, q: Array, ways: Callable[[Array, Array], tuple[Array, ...]]) -> Array:
    """One of four values made of sin(x) and cos(x) in double, by the quarter turns."""
    x = np.asarray(x)
    wide = x.astype(np.float64)
    four = ways(np.sin(wide), np.cos(wide))
    k = np.where(np.isfinite(q), q, NO_TURN).astype(np.int64) % 4
    chosen = np.choose(k, np.broadcast_arrays(*four))
    return np.asarray(chosen).astype(x.dtype)


def angle(x: Array, q: Array) -> Array:
    """x less k quarter turns, k given modulo 4 by q = 12582912 + k."""
    return _by_quadrant(
        x,
        q,
        lambda s, c: (np.arctan2(s, c), np.arctan2(-c, s), np.arctan2(-s, -c), np.arctan2(c, -s)),
    )


def sin_turns(x: Array) -> Array:
    """sin(2*pi*x), computed in double."""
    angle, k = _quarter_turns(x)
    return np.choose(k, (np.sin(angle), np.cos(angle), -np.sin(angle), -np.cos(angle))).astype(
        np.asarray(x).dtype
    )


def cos_turns(x: Array) -> Array:
    """cos(2*pi*x), computed in double."""
    angle, k = _quarter_turns(x)
    return np.choose(k, (np.cos(angle), -np.sin(angle), -np.cos(angle), np.sin(angle))).astype(
        np.asarray(x).dtype
    )


def _quarter_turns(x: Array) -> tuple[Array, Array]:
    """2*pi*x less k quarter turns, in double, and k modulo 4."""
    wide = np.asarray(x, np.float64)
    part = wide - np.round(wide)
    k = np.round(4.0 * part)
    return 2.0 * math.pi * (part - 0.25 * k), np.where(np.isfinite(k), k, 0).astype(np.int64) % 4


def sine(a: Array, q: Array) -> Array:
    """sin(a + k pi/2), q = 12582912 + k."""
    return _by_quadrant(a, q, lambda s, c: (s, c, -s, -c))


def cosine(a: Array, q: Array) -> Array:
    """cos(a + k pi/2), q = 12582912 + k."""
    return _by_quadrant(a, q, lambda s, c: (c, -s, -c, s))


def tangent(a: Array, q: Array) -> Array:
    """tan(a + k pi/2), q = 12582912 + k."""
    return _by_quadrant(a, q, lambda s, c: (s / c, -c / s, s / c, -c / s))


def where(c: Array, a: Array, b: Array) -> Array:
    """The elements of a where c holds, else those of b."""
    return np.where(c, a, b)


def scalb(x: Array, k: Array) -> Array:
    """x * 2**k for a whole k, which is no NaN unless x is."""
    return np.ldexp(x, np.clip(k, -2100, 2100).astype(np.int32))


def power_of_two(k: Array) -> Array:
    """2**k for a whole k, exactly."""
    return np.ldexp(np.ones_like(k), np.clip(k, -2100, 2100).astype(np.int32))


def exponent(x: Array) -> Array:
    """The exponent in the bits of x: floor(log2(|x|)) where x is normal."""
    x = np.asarray(x)
    word, digits, bias = _layout(x)
    field = (x.view(word) >> word(digits)) & word(2 * bias + 1)
    return field.astype(x.dtype) - x.dtype.type(bias)


def significand(x: Array) -> Array:
    """x with the exponent in its bits made 0: x / 2**exponent(x) where x is normal."""
    x = np.asarray(x)
    word, digits, bias = _layout(x)
    field, zero = word(2 * bias + 1) << word(digits), word(bias) << word(digits)
    return ((x.view(word) & ~field) | zero).view(x.dtype)


def upper(x: Array) -> Array:
    """x without the lower half of its digits: 27 of 53 bits in float64, 12 of 24 in float32."""
    x = np.asarray(x)
    word, digits, _ = _layout(x)
    dropped = 27 if digits == 52 else 12
    return (x.view(word) & ~word(2**dropped - 1)).view(x.dtype)


def first_digits(x: Array) -> Array:
    """x with a quarter of its digits, 13 of 53 bits or 6 of 24; from 2 on always less than x."""
    x = np.asarray(x)
    word, digits, _ = _layout(x)
    bits, dropped = x.view(word), digits + 1 - (digits + 1) // 4
    less = (bits >> word(8 * x.itemsize - 2)) & word(1)
    return ((bits - less) & ~word(2**dropped - 1)).view(x.dtype)


def _layout(x: Any) -> tuple[Any, int, int]:
    """The unsigned type as wide as x, its significand's stored digits, and its exponent's bias."""
    return (np.uint32, 23, 127) if x.dtype == np.float32 else (np.uint64, 52, 1023)


def uint32(x: Any) -> Any:
    """The nearest unsigned integer of 32 bits to x rounded towards 0; 0 of NaN."""
    return np.asarray(_limited(x, 0, 2**32 - 1)).astype(np.uint32)


def int32(x: Any) -> Any:
    """The nearest signed integer of 32 bits to x rounded towards 0, as a word; 0 of NaN."""
    return np.asarray(_limited(x, -(2**31), 2**31 - 1)).astype(np.int64).astype(np.uint32)


def _limited(x: Any, low: int, high: int) -> Any:
    whole = np.trunc(np.asarray(x, np.float64))
    return np.clip(np.nan_to_num(whole, nan=0.0), low, high)


ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
"""By how many bits the rounds of Threefry-2x32 rotate, four by four (Salmon et al., 2011)."""

PARITY = 0x1BD11BDA
"""The constant of Threefry's key schedule."""


@np.errstate(over="ignore")
def threefry(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    """The block (c, d) under the key (a, b), by Threefry-2x32 of 20 rounds."""
    keys = a, b, a ^ b ^ np.uint32(PARITY)
    x, y = np.add(c, a), np.add(d, b)
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x = x + y
            y = ((y << np.uint32(bits)) | (y >> np.uint32(32 - bits))) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y
