"""Arithmetic of pairs: sums, products, quotients, roots, order, whole numbers, and integers.

Sums are exact to 3 * 2**-48 (Joldes, Muller and Popescu, 2017, "Tight and rigorous error bounds
for basic building blocks of double-word arithmetic", algorithm 6), products to 2**-46, quotients
and roots to 2**-43 of the result. What compilers would undo is opaque. Where a result is not
finite, it is float32's; numbers below 2**-102 lose digits, as their low parts would be subnormal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.expr.tracers.integers import SignedWord, Word
from symgrad.mathlib.pair.expression import Paired, call, constant, pair
from symgrad.mathlib.quotient import LARGE

# Error-free transformations of float32: sums and products, each with its rounding error.
#
# A pair (high, low) stands for high + low, low at most about a ULP of high. Sums and products keep
# what rounding takes from them (Dekker, 1971, "A floating-point technique for extending the
# available precision"; Knuth, TAOCP 2). Every sum that is taken apart again is opaque, for
# compilers undo what follows it otherwise. Functions of float32 compute in them where its digits do
# not do.

Pair = tuple[Any, Any]


def split(value: float, bits: Sequence[int] = (24,)) -> tuple[float, ...]:
    """A number as its first so many bits, the next, and a last float32 for the rest."""
    pieces: list[float] = []
    for count in bits:
        scale = 2.0 ** (count - math.frexp(value)[1])
        pieces.append(float(np.float32(math.floor(value * scale + 0.5) / scale)) if value else 0.0)
        value -= pieces[-1]
    return *pieces, float(np.float32(value))


def two_sum(a: Any, b: Any) -> Pair:
    """a + b, and what rounding took from it."""
    total = ops.opaque(a + b)
    part = ops.opaque(total - a)
    return total, (a - ops.opaque(total - part)) + (b - part)


def tidy(high: Any, low: Any, plain: Any) -> Pair:
    """The pair with a low part below a ULP of the high one; where it is not finite, float32's."""
    total = ops.opaque(high + low)
    finite = ops.isfinite(total)
    low = low - ops.opaque(total - high)
    return ops.where(finite, total, plain), ops.where(finite, low, 0.0)


def product(a: Any, b: Any) -> Pair:
    """a * b, and what rounding took from it: products of halves are exact."""
    total, first, second = ops.opaque(a * b), _half(a), _half(b)
    rest, other = a - first, b - second
    left = ops.opaque(first * second - total)
    left = ops.opaque(ops.opaque(left + first * other) + rest * second)
    return total, left + rest * other


def _half(x: Expr) -> Expr:
    """The 12 leading bits; of a constant those that it has in float32."""
    value = x.graph.value(x.id)
    if value is None:
        return ops.upper(x)
    cut = np.float32(value).view(np.uint32) & np.uint32(0xFFFFF000)
    return Expr(x.graph, x.graph.constant(float(cut.view(np.float32))))


def over(a: Pair, b: Pair) -> Pair:
    """a / b: float32's quotient, and the rest from what that leaves of a."""
    inverse = 1.0 / b[0]
    high = ops.opaque(a[0] * inverse)
    total, lost = product(high, b[0])
    left = (ops.opaque(a[0] - total) - lost) + (a[1] - high * b[1])
    return tidy(high, left * inverse, a[0] / b[0])


def fast_sum(high: Any, low: Any) -> tuple[Expr, Expr]:
    """high + low, rounded, and what that loses, where high is 0 or not the smaller."""
    total = ops.opaque(high + low)
    return total, low - ops.opaque(total - high)


def finished(high: Any, low: Any, plain: Any) -> Paired:
    """A pair of two terms, high not the smaller; ``plain`` where that is not finite, or 0.

    That is what float32 has of it, so that the sign of 0 is float32's.
    """
    total, rest = fast_sum(high, low)
    sound = ops.isfinite(total) & (total != 0.0)
    return pair(ops.where(sound, total, plain), ops.where(sound, rest, 0.0))


def add(a: Paired, b: Paired) -> Paired:
    """a + b."""
    high, lost = two_sum(a.high, b.high)
    low, rest = two_sum(a.low, b.low)
    total, less = fast_sum(high, ops.opaque(lost) + low)  # else both parts of a constant meet
    return _finished_sum(total, less + rest, high)


def _finished_sum(high: Expr, low: Expr, plain: Expr) -> Paired:
    """As `finished`, where what is left may be 0 although float32's sum is not."""
    total, rest = fast_sum(high, low)
    sound = ops.isfinite(total) & ((total != 0.0) | (plain != 0.0))
    return pair(ops.where(sound, total, plain), ops.where(sound, rest, 0.0))


def sub(a: Paired, b: Paired) -> Paired:
    """a - b."""
    return a + pair(-b.high, -b.low)


def mul(a: Paired, b: Paired) -> Paired:
    """a * b."""
    high, lost = product(a.high, b.high)
    return finished(high, lost + (a.high * b.low + a.low * b.high), high)


def div(a: Paired, b: Paired) -> Paired:
    """a / b: float32's quotient, and the rest from what that leaves of a."""
    scale = ops.where(ops.abs(b.high) > LARGE, 0.25, 1.0)
    over, under = a.high * scale, b.high * scale
    ratio = ops.opaque(over / under)
    high, lost = product(ratio, under)
    left = (ops.opaque(over - high) - lost) + (a.low * scale - ratio * (b.low * scale))
    return finished(ratio, left / under, ratio)


def wide_div(a: Paired, b: Paired) -> Paired:
    """a / b."""
    return a / b


def ratio(a: Paired, b: Paired) -> Paired:
    """a / b."""
    return a / b


def reciprocal(a: Paired) -> Paired:
    """1 / a."""
    return 1.0 / a


def sqrt(a: Paired) -> Paired:
    """The square root: Newton's step from float32's."""
    near = ops.opaque(ops.sqrt(a.high))
    square, lost = product(near, near)
    left = (ops.opaque(a.high - square) - lost) + a.low
    share = 0.5 / ops.where(a.high > 0.0, near, 1.0)
    return finished(near, left * share, near)


def root(a: Paired) -> Paired:
    """The square root."""
    return call(ops.sqrt, a)


def rsqrt(a: Paired) -> Paired:
    """1 / sqrt(a)."""
    return 1.0 / call(ops.sqrt, a)


def fma(a: Paired, b: Paired, c: Paired) -> Paired:
    """a * b + c, what the product and the sum lose being added to the low parts."""
    high, lost = product(a.high, b.high)
    total, rest = two_sum(high, c.high)
    low = ops.opaque(rest) + ((lost + c.low) + (a.high * b.low + a.low * b.high))
    return _finished_sum(total, low, total)


def neg(a: Paired) -> Paired:
    """-a."""
    return pair(-a.high, -a.low)


def abs(a: Paired) -> Paired:
    """|a|."""
    return pair(ops.abs(a.high), ops.where(a.high < 0.0, -a.low, a.low))


def sign(a: Paired) -> Paired:
    """-1, 0 or 1; NaN of NaN."""
    return pair(ops.sign(a.high))


def copysign(a: Paired, b: Paired) -> Paired:
    """|a| with the sign of b."""
    turn = ops.copysign(1.0, a.high) * ops.copysign(1.0, b.high)
    return pair(a.high * turn, a.low * turn)


def opaque(a: Paired) -> Paired:
    """a, as a value that compilers cannot see through."""
    return pair(ops.opaque(a.high), ops.opaque(a.low))


# Order.


def lt(a: Paired, b: Paired) -> Condition:
    """a < b."""
    return (a.high < b.high) | ((a.high == b.high) & (a.low < b.low))


def le(a: Paired, b: Paired) -> Condition:
    """a <= b."""
    return (a.high < b.high) | ((a.high == b.high) & (a.low <= b.low))


def eq(a: Paired, b: Paired) -> Condition:
    """a == b."""
    return (a.high == b.high) & (a.low == b.low)


def ne(a: Paired, b: Paired) -> Condition:
    """a != b."""
    return ~((a.high == b.high) & (a.low == b.low))


def isnan(a: Paired) -> Condition:
    """Whether a is NaN."""
    return ops.isnan(a.high)


def isinf(a: Paired) -> Condition:
    """Whether a is infinite."""
    return ops.isinf(a.high)


def isfinite(a: Paired) -> Condition:
    """Whether a is a number, and finite."""
    return ops.isfinite(a.high)


def where(c: Condition, a: Paired, b: Paired) -> Paired:
    """a where c holds, else b."""
    return pair(ops.where(c, a.high, b.high), ops.where(c, a.low, b.low))


def minimum(a: Paired, b: Paired) -> Paired:
    """The smaller of a and b; NaN if either is."""
    return call(ops.where, (a < b) | ops.isnan(a.high), a, b)


def maximum(a: Paired, b: Paired) -> Paired:
    """The larger of a and b; NaN if either is."""
    return call(ops.where, (b < a) | ops.isnan(a.high), a, b)


def relu(a: Paired) -> Paired:
    """max(a, 0); NaN of NaN."""
    return call(ops.where, a.high < 0.0, constant(a, 0.0), a)


def saturate(a: Paired) -> Paired:
    """a limited to [0, 1]."""
    return call(ops.minimum, call(ops.maximum, a, constant(a, 0.0)), constant(a, 1.0))


# Whole numbers.


def _whole(a: Paired, op: Callable[[Expr], Expr]) -> Paired:
    """Floor or ceil: that of the low part counts where the high one is whole."""
    high = op(a.high)
    low = ops.where(high == a.high, op(a.low), 0.0)
    return finished(high, low, ops.where(low == 0.0, high, ops.copysign(0.0, high)))


def floor(a: Paired) -> Paired:
    """The largest whole number that is at most a."""
    return _whole(a, ops.floor)


def ceil(a: Paired) -> Paired:
    """The smallest whole number that is at least a."""
    return _whole(a, ops.ceil)


def trunc(a: Paired) -> Paired:
    """a without the digits behind the point."""
    return call(ops.where, a.high < 0.0, call(ops.ceil, a), call(ops.floor, a))


def round(a: Paired) -> Paired:
    """The nearest whole number, half to even: the low part decides what is half way in float32."""
    near = ops.round(a.high)
    left = a.high - near
    odd = a.high != 2.0 * ops.floor(0.5 * a.high)
    last = ops.where(odd & (ops.abs(a.low) == 0.5), 2.0 * a.low, ops.round(a.low))
    beyond = (ops.abs(left) == 0.5) & (left * a.low > 0.0)
    return finished(near, ops.where(left == 0.0, last, ops.where(beyond, 2.0 * left, 0.0)), near)


# Digits and exponents.


def scaled(x: Paired, k: Expr) -> Paired:
    """x * 2**k, |k| <= 252, in two steps, of which only the second may leave the range."""
    half = ops.floor(0.5 * k)
    first, second = ops.power_of_two(half), ops.power_of_two(k - half)
    high = ops.opaque(x.high * first) * second
    low = ops.opaque(x.low * first) * second
    return pair(high, ops.where(ops.isfinite(high), low, 0.0))


def scalb(x: Paired, k: Paired) -> Paired:
    """x * 2**k, k whole."""
    above = ops.where(k.high < -252.0, -252.0, k.high)
    return scaled(x, ops.where(above > 252.0, 252.0, above))


def power_of_two(k: Paired) -> Paired:
    """2**k, k whole."""
    return pair(ops.power_of_two(k.high))


def exponent(x: Paired) -> Paired:
    """floor(log2(|x|)), of the high part."""
    return pair(ops.exponent(x.high))


def significand(x: Paired) -> Paired:
    """x / 2**exponent(x)."""
    return scaled(x, -ops.exponent(x.high))


def upper(x: Paired) -> Paired:
    """The high part, which is half of the digits."""
    return pair(x.high)


def first_digits(x: Paired) -> Paired:
    """A quarter of the digits."""
    return pair(ops.upper(x.high))


# Integers.


def word_float(w: Word) -> Paired:
    """A word below 2**24."""
    return pair(ops.word_float(w))


def signed_float(w: Word) -> Paired:
    """A word taken as a signed number, below 2**24 in size."""
    return pair(ops.signed_float(w))


def uint32_float(w: Word) -> Paired:
    """A word: the sum of its two halves is exact."""
    return pair(*fast_sum(ops.word_float(w >> 16) * 65536.0, ops.word_float(w & 0xFFFF)))


def int32_float(w: Word) -> Paired:
    """A word taken as a signed number, exactly."""
    integer = SignedWord(w.graph, w.id)
    size = call(ops.uint32_float, integer.magnitude())
    return call(ops.where, integer.is_negative(), -size, size)


def nearest_word(x: Paired) -> Word:
    """The nearest whole number as a signed word: of its halves, and of the low part."""
    whole = call(ops.round, x)
    upper = ops.floor(whole.high * 2.0**-16)
    lower = whole.high - upper * 65536.0
    return (ops.nearest_word(upper) << 16) + ops.nearest_word(lower) + ops.nearest_word(whole.low)


def bits_float(w: Word) -> Paired:
    """The float32 of these bits."""
    return pair(ops.bits_float(w))


def float_bits(x: Paired) -> Word:
    """The bits of the high part."""
    return ops.float_bits(x.high)
