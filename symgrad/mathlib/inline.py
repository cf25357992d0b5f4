"""Definitions expanded inside a kernel's graph, where value and derivative share parts; casts."""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.references import GELU_TANH, PARITY, ROTATIONS
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.integers import SIGN, SignedWord, Word
from symgrad.mathlib.bits import keep_nan, leading

LINEAR: Final = (1.595703125, GELU_TANH[0] - 1.595703125)
"""2 sqrt(2/pi): its 12 leading bits, and the rest."""
CUBIC: Final = (0.07135009765625, GELU_TANH[0] * GELU_TANH[1] - 0.07135009765625)
"""0.044715 of that, in the same way."""

DENSITY: Final = 1.0 / math.sqrt(2.0 * math.pi)

LIFT: Final = 33.234375
"""exp(-LIFT) is a float32 to 0.02 * 2**-24, little above a power of 2, so that a product with it
keeps most of its digits; LIFT less a float from 60 to 128 is exact.
"""

Parts = tuple[Expr, Expr, Expr]
"""e, 1/(1 + e) and the scale of e."""


def sigmoid(x: Expr) -> Expr:
    """1/(1 + e) for x >= 0, else e/(1 + e), e = exp(-|x|), which its derivative needs as well."""
    e = ops.exp(-ops.abs(x))
    r = ops.reciprocal(1.0 + e)
    return ops.where(x >= 0.0, r, e * r)


def logistic(x: Expr) -> Expr:
    """e/(1 + e)**2, e = exp(-|x|), of the parts that sigmoid has."""
    e = ops.exp(-ops.abs(x))
    r = ops.reciprocal(1.0 + e)
    return e * (r * r)


def _falling(size: Expr, rest: Expr | None = None) -> Parts:
    """e, 1/(1 + e) and a scale, e times the scale being exp(-size), or exp(-size - rest).

    From 60 on e is exp(LIFT - size): a result is subnormal long before e, or e times a rest, is, so
    that devices that flush these have the same bits. Beside 1, it is nothing all the same.
    A Newton step mends the reciprocal and what the rounding of 1 + e does to it.
    """
    far = size > 60.0
    e = ops.exp(ops.where(far, LIFT, 0.0) - size)
    e = e if rest is None else e - e * rest
    r = ops.reciprocal(1.0 + e)
    r = r + r * ((1.0 - r) - r * e)
    return e, r, ops.where(far, math.exp(-LIFT), 1.0)


def _gated(x: Expr, parts: Parts) -> Expr:
    """x r for x >= 0, else x r e, r = 1/(1 + e): x times a sigmoid, 0 at -inf."""
    e, r, scale = parts
    share = x * r
    return ops.where(x >= 0.0, share, (_unless_gone(share, e) * e) * scale)


def _gated_slope(b: Expr, parts: Parts) -> Expr:
    """r (1 + e b r) for b >= 0, else r e (1 + b r): the derivative of x s(z), b = x z'."""
    e, r, scale = parts
    share = _unless_gone(b * r, e)
    return r * ops.where(b >= 0.0, 1.0 + share * e, ((1.0 + share) * e) * scale)


def _unless_gone(x: Expr, factor: Expr) -> Expr:
    """x, which may be infinite, as a factor beside one that falls off faster."""
    return ops.where(factor == 0.0, 0.0, x)


def silu(x: Expr) -> Expr:
    """x/(1 + e) for x >= 0, else e*x/(1 + e), e = exp(-|x|), scaled where it may be subnormal."""
    return _gated(x, _falling(ops.abs(x)))


def silu_slope(x: Expr) -> Expr:
    """r*(1 + e*x*r) for x >= 0, else r*e*(1 + x*r), r = 1/(1 + e), of the parts that silu has."""
    return _gated_slope(x, _falling(ops.abs(x)))


def gelu(x: Expr) -> Expr:
    """x Phi(x), 0 at -inf."""
    below = ops.normal_cdf(x)
    return _unless_gone(x, below) * below


def gelu_slope(x: Expr) -> Expr:
    """Phi(x) + x phi(x), phi the normal density."""
    bell = ops.bell(x)
    return ops.normal_cdf(x) + _unless_gone(x, bell) * (bell * (1.0 / math.sqrt(2.0 * math.pi)))


def _cubic(a: Expr) -> tuple[Expr, Expr]:
    """z = a (LINEAR + CUBIC a**2) rounded, and the rest: e has the absolute error of z.

    The products of leading bits are exact, and so is what they leave of the sum.
    """
    h, square = leading(a), a * a
    s = leading(square)
    left = ops.opaque(h * h - s) + (a - h) * (a + h)
    high = leading(LINEAR[0] + CUBIC[0] * square)
    low = ops.opaque(ops.opaque(LINEAR[0] - high) + CUBIC[0] * s)
    low = low + ((LINEAR[1] + CUBIC[1] * s) + sum(CUBIC) * left)
    first, second = h * high, (a - h) * high + a * low
    z = ops.opaque(first + second)
    return z, second - ops.opaque(z - first)


def gelu_tanh(x: Expr) -> Expr:
    """x sigmoid(z), z = a (x + b x**3) in two parts; from |x| = 30 on 0 or x."""
    value = _gated(x, _falling(*_cubic(ops.abs(x))))
    return ops.where(ops.abs(x) > 30.0, ops.relu(x), value)


def gelu_tanh_slope(x: Expr) -> Expr:
    """The derivative, of the parts that gelu_tanh has; from |x| = 30 on 0 or 1."""
    steepness = sum(LINEAR) + (3.0 * sum(CUBIC)) * (x * x)
    value = _gated_slope(x * steepness, _falling(*_cubic(ops.abs(x))))
    return ops.where(ops.abs(x) > 30.0, ops.where(x > 0.0, 1.0, 0.0), value)


def softplus(x: Expr) -> Expr:
    """max(x, 0) + log1p(exp(-|x|))."""
    return ops.relu(x) + ops.log1p(ops.exp(-ops.abs(x)))


def decay_between(a: Expr, b: Expr) -> Expr:
    """exp(-|a - b|), with what the rounding of the difference loses; 1 where a = b.

    That is as large as a small value.
    """
    larger, smaller = ops.maximum(a, b), ops.minimum(a, b)
    apart = ops.opaque(larger - smaller)
    part = ops.opaque(apart - larger)
    rest = ops.opaque(larger - ops.opaque(apart - part)) - ops.opaque(smaller + part)
    e = ops.exp(-ops.where(a == b, 0.0, apart))
    return e * (1.0 - ops.where(ops.isfinite(rest), rest, 0.0))


def sigmoid_difference(a: Expr, b: Expr) -> Expr:
    """1/(1 + e) for a >= b, else e/(1 + e), e = exp(-|a - b|), the difference not rounded."""
    e = ops.decay_between(a, b)
    r = ops.reciprocal(1.0 + e)
    return ops.where(a >= b, r, e * r)


def logistic_difference(a: Expr, b: Expr) -> Expr:
    """e/(1 + e)**2, e = exp(-|a - b|), of the parts that sigmoid_difference has."""
    e = ops.decay_between(a, b)
    r = ops.reciprocal(1.0 + e)
    return e * (r * r)


def logaddexp(a: Expr, b: Expr) -> Expr:
    """max(a, b) + log1p(exp(-|a - b|)), the difference not rounded."""
    return ops.maximum(a, b) + ops.log1p(ops.decay_between(a, b))


def one_minus_square(x: Expr) -> Expr:
    """(1 - x)(1 + x): next to ±1 one factor is exact."""
    return (1.0 - x) * (1.0 + x)


def power_times(c: Expr, x: Expr, p: Expr, k: int) -> Expr:
    """c y x**k, y = x**p; where y is tiny or overflows, c between two roots of its magnitude.

    It is opaque there, for compilers might square the roots first. Elsewhere c comes before what
    makes the product larger, after what makes it smaller.
    """
    y, a = ops.pow(x, p), ops.abs(x)
    ends = (x == 0.0) | ops.isinf(x)
    beyond = (ops.abs(y) < 1e-37) | ops.isinf(y)
    if k not in (0, -1):
        h = ops.pow(a, 0.5 * (p + k))
        signed = ops.copysign(h, y) * (ops.copysign(1.0, x) if k % 2 else 1.0)
        value = ops.where(beyond | ends, ops.opaque(c * signed) * h, _shifted(c, y, x, k))
        return ops.where(c == 0.0, 0.0, value)
    # k = 0 and -1 are those of gradients: both have h = |x|**(p/2), at the ends x**(p - 1) itself
    h = ops.pow(ops.where(ends, x, a), ops.where(ends, p - 1.0, 0.5 * p))
    signed = ops.copysign(h, y)
    if k == 0:
        return ops.where(beyond & ~ends, ops.opaque(c * signed) * h, c * y)
    value = ops.where(beyond, ops.opaque(_shifted(c, signed, x, -1)) * h, _shifted(c, y, x, -1))
    return ops.where(ends, ops.where(c == 0.0, 0.0, c * h), value)


def _shifted(c: Expr, value: Expr, x: Expr, k: int) -> Expr:
    """c times the value times x**k, step by step, c first where these grow."""
    grows = ops.abs(x) < 1.0 if k < 0 else ops.abs(x) > 1.0
    value = ops.where(grows, c, 1.0) * value
    for _ in range(abs(k)):
        value = value * x if k > 0 else value / x
    return value * ops.where(grows, 1.0, c)


def logit(x: Expr) -> Expr:
    """2 atanh(2 x - 1), whose argument is exact from 1/4 on; the logarithm of x/(1 - x) below."""
    far = x < 0.25
    near = 2.0 * ops.atanh(2.0 * ops.where(far, 0.5, x) - 1.0)
    odds = ops.where(far, x, 0.125) / (1.0 - ops.where(far, x, 0.125))
    odds = ops.where(x < 2.0**-60, x, odds)  # devices flush a subnormal quotient
    return keep_nan(ops.where(far, ops.log(odds), near), x)


def inverse_mills(x: Expr) -> Expr:
    """phi(x)/Phi(x), by its excess over -x for x <= 0, and as that less x above."""
    return ops.where(x > 0.0, ops.bell(x) * DENSITY / ops.normal_cdf(x), ops.mills_excess(x) - x)


def erfinv_slope(x: Expr) -> Expr:
    """sqrt(pi)/2 exp(y**2) near 0; beyond, by the hazard, in which the tail 1 - |x| is exact."""
    y, a = ops.erfinv(x), ops.abs(x)
    near = a < 0.5
    far = (1.0 - a) * ops.inverse_mills(-math.sqrt(2.0) * ops.abs(y))
    centre = (0.5 * math.sqrt(math.pi)) * ops.exp(ops.where(near, y * y, 0.0))
    return ops.where(near, centre, ops.where(a == 1.0, math.inf, math.sqrt(0.5) / far))


def ndtri_slope(p: Expr) -> Expr:
    """sqrt(2 pi) exp(y**2/2) near 1/2; beyond, by the hazard and the tail."""
    y = ops.ndtri(p)
    near = ops.abs(p - 0.5) < 0.25
    tail = ops.where(p > 0.5, 1.0 - p, p)
    far = tail * ops.inverse_mills(-ops.abs(y))
    centre = math.sqrt(2.0 * math.pi) * ops.exp(ops.where(near, 0.5 * (y * y), 0.0))
    return ops.where(near, centre, ops.where(tail == 0.0, math.inf, 1.0 / far))


# Casts between real numbers and integers, and Threefry's bits, over what every device has.
#
# A device may round, or limit, in a way of its own where a cast has no exact result; here nothing
# is cast that has none.


def uint32(x: Expr) -> Word:
    """The unsigned integer that is x rounded towards 0, or the nearest one; 0 of NaN."""
    x = ops.trunc(x)
    upper = x >= SIGN
    inside = ops.where((x > 0.0) & (x < 2.0 * SIGN), ops.where(upper, x - SIGN, x), 0.0)
    integer = ops.nearest_word(inside) | ops.word_where(upper, SIGN, 0)
    return ops.word_where(x >= 2.0 * SIGN, 2 * SIGN - 1, integer)


def int32(x: Expr) -> Word:
    """The word of the signed integer that is x rounded towards 0, or the nearest; 0 of NaN."""
    x = ops.trunc(x)
    near = ops.nearest_word(ops.where(abs(x) < SIGN, x, 0.0))
    return ops.word_where(x >= SIGN, SIGN - 1, ops.word_where(x <= -SIGN, SIGN, near))


def uint32_float(w: Word) -> Expr:
    """The word as a real number: of two halves, whose sum is rounded once."""
    return ops.word_float(w >> 16) * 65536.0 + ops.word_float(w & 0xFFFF)


def int32_float(w: Word) -> Expr:
    """The word as a signed number, rounded once."""
    integer = SignedWord(w.graph, w.id)
    size = ops.uint32_float(integer.magnitude())
    return ops.where(integer.is_negative(), -size, size)


def threefry_first(a: Word, b: Word, c: Word, d: Word) -> Word:
    """The first word of Threefry-2x32's block (c, d) under the key (a, b)."""
    return _threefry(a, b, c, d)[0]


def threefry_second(a: Word, b: Word, c: Word, d: Word) -> Word:
    """The second word of Threefry-2x32's block (c, d) under the key (a, b)."""
    return _threefry(a, b, c, d)[1]


def _threefry(a: Word, b: Word, c: Word, d: Word) -> tuple[Word, Word]:
    """Salmon, Moraes, Dror and Shaw (2011): rounds of sums and rotations, and the key between."""
    keys = a, b, a ^ b ^ PARITY
    x, y = c + a, d + b
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x = x + y
            y = (y << bits | y >> (32 - bits)) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + (keys[(group + 2) % 3] + (group + 1))
    return x, y
