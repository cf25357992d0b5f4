"""The logistic function and activations made of it, from one exponential in two pieces."""

from __future__ import annotations

from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import Coefficients, coefficients, keep_nan, polynomial
from symgrad.mathlib.double.exponential import EXPM1, exp_parts, log_sum_parts
from symgrad.mathlib.double.pair import (
    Pair,
    choose,
    divide,
    fast_sum,
    plus,
    product,
    scaled,
    square,
    times,
    two_sum,
    within,
)

FAR = 800.0
"""From here on exp(-a) is 0."""


def size(x: Expr) -> Expr:
    """|x|, at most 800; NaN stays NaN."""
    a = ops.abs(x)
    return ops.where(a > FAR, FAR, a)


def decay(a: Expr, low: Expr | float = 0.0) -> tuple[Expr, Pair, Pair]:
    """k and p of exp(-a - low) = 2**k p, and that exponential, for a >= 0: rounded pairs."""
    k, parts = exp_parts(-a, -low, EXPM1)
    high, rest = fast_sum(*parts)
    return k, (high, rest), (ops.scalb(high, k), ops.scalb(rest, k))


def one_plus(e: Pair) -> Pair:
    """1 + e, e at most 1."""
    total, lost = fast_sum(1.0, e[0])
    return total, lost + e[1]


def share(left: Condition, p: Pair, e: Pair) -> Pair:
    """1/(1 + e), or on the left e/(1 + e), to be multiplied by 2**k there: e = 2**k p."""
    one = (ops.where(left, 0.0, 1.0), 0.0)
    return divide(choose(left, p, one), one_plus(e))


def raised(left: Condition, k: Expr, value: Expr) -> Expr:
    """The value, on the left times 2**k: a power of 2 that `decay` has made already."""
    return ops.where(left, ops.scalb(value, k), value)


def divide_twice(a: Pair, d: Pair) -> Pair:
    """a/d**2 with the one division that a/d takes."""
    return divide(fast_sum(*divide(a, d)), d)


def sigmoid(x: Expr) -> Expr:
    """1/(1 + e) for x >= 0, else e/(1 + e), e = exp(-|x|) in two pieces."""
    left = x < 0.0
    k, p, e = decay(size(x))
    high, low = share(left, p, e)
    return raised(left, k, high + low)


def logistic(x: Expr) -> Expr:
    """e/(1 + e)**2, e = exp(-|x|) in two pieces."""
    k, p, e = decay(size(x))
    high, low = divide_twice(p, one_plus(e))
    return ops.scalb(high + low, k)


def softplus(x: Expr) -> Expr:
    """max(x, 0) + log(1 + exp(-|x|)), the logarithm in two pieces."""
    _, _, e = decay(size(x))
    high, low = log_sum_parts(*e)
    total, lost = two_sum(ops.where(x > 0.0, x, 0.0), high)
    return ops.where(x > FAR, x, total + (lost + low))


def _apart(a: Expr, b: Expr) -> tuple[tuple[Expr, Pair, Pair], Expr, Condition]:
    """`decay` of |a - b|, 0 where a = b; the larger; whether the difference is below 800."""
    first = a > b
    larger, smaller = ops.where(first, a, b), ops.where(first, b, a)
    apart, lost = two_sum(larger, -smaller)
    usable = apart < FAR
    apart = ops.where(a == b, 0.0, ops.where(usable, apart, FAR))
    return decay(apart, ops.where(usable, lost, 0.0)), larger, usable


def sigmoid_difference(a: Expr, b: Expr) -> Expr:
    """1/(1 + e) for a >= b, else e/(1 + e), e = exp(-|a - b|), all in two pieces."""
    (k, p, e), _, _ = _apart(a, b)
    left = a < b
    high, low = share(left, p, e)
    return keep_nan(raised(left, k, high + low), a, b)


def logistic_difference(a: Expr, b: Expr) -> Expr:
    """e/(1 + e)**2, e = exp(-|a - b|), all in two pieces."""
    (k, p, e), _, _ = _apart(a, b)
    high, low = divide_twice(p, one_plus(e))
    return keep_nan(ops.scalb(high + low, k), a, b)


def logaddexp(a: Expr, b: Expr) -> Expr:
    """max(a, b) + log(1 + exp(-|a - b|)), difference, exponential and logarithm in two pieces."""
    (_, _, e), larger, usable = _apart(a, b)
    high, low = log_sum_parts(*e)
    total, lost = two_sum(larger, high)
    return keep_nan(ops.where(usable, total + (lost + low), larger + 0.0), a, b)


# Activations, and their derivatives, also where these are near 0.

SILU_ROOT: Final = coefficients("""
    -1.2784645427610737 -1.0946994183093437e-16 0.2178117074072361 -1.6874360004634611e-09
""")
"""Where silu is least, and its second derivative there, each in two pieces."""
SILU_SLOPE: Final = coefficients("""
    0.1466487969969469 0.018874814223782295 -0.015222655223217777 -0.006606589138352628
    0.000126627420789485 0.0007985218829482284 0.00018570567327561986 -4.090570657749348e-05
    -2.9632877045096433e-05 -2.911255650648911e-06
""")
"""(silu'(r + d)/d - silu''(r))/d, r the root, |d| <= 1/8: silu' to 0.07 * 2**-53 (tools/fit.py)."""

GELU_TANH_ROOT: Final = coefficients("""
    -0.7524614220710163 3.635560509207687e-17 0.430400088429451 2.595407520310396e-09
""")
"""As `SILU_ROOT`, of gelu_tanh."""
GELU_TANH_SLOPE: Final = coefficients("""
    0.38751844613578856 -0.015782853521847644 -0.11394448308052049 -0.016619328343169926
    0.019682309301614645 0.0052610592422761854 -0.00242270860470673 -0.0009274358660191688
    0.00026243475994025333 0.00012368618482631584
""")
"""As `SILU_SLOPE`, of gelu_tanh, to 0.16 * 2**-53."""

LINEAR: Final = (1.5957691073417664, 1.426396435433791e-08)
"""2 sqrt(2/pi): its 26 leading bits, and the rest."""
CUBIC: Final = (0.071354815736413, 5.361872467621785e-10)
"""0.044715 of that, in the same way."""
GELU_TANH_FAR: Final = 22.0
"""Below the negative of it gelu_tanh is 0, and above it its argument."""


def by_share(x: Expr, left: Condition, k: Expr, q: Pair) -> Expr:
    """x times q, on the left x times 2**k q, with the sign of x."""
    high, low = product(x, q[0])
    return ops.copysign(raised(left, k, high + (low + x * q[1])), x)


def near_root(slope: Expr, x: Expr, root: Coefficients, coefficients: Coefficients) -> Expr:
    """The slope, but a polynomial within 1/8 of its root, from which the distance is exact."""
    d, rest = fast_sum(x - root[0], -root[1])
    high, low = scaled((d, rest), (root[2], root[3]))
    near = high + (low + (d * d) * polynomial(d, coefficients))
    return ops.where(ops.abs(d) < 0.125, near, slope)


def _slope(left: Condition, b: Pair, k: Expr, p: Pair, e: Pair) -> Expr:
    """s(z)(1 + b s(-z)), b >= 0, for z >= 0, and s(z)(1 - b s(-z)) for z < 0, s the sigmoid.

    That is (1 + e + b e)/(1 + e)**2, and (1 + e - b) e/(1 + e)**2 on the left; e = 2**k p.
    """
    below = one_plus(e)
    less = fast_sum(*plus(below, (-b[0], -b[1])))
    grown = times(choose(left, less, b), choose(left, p, e))
    above = choose(left, grown, fast_sum(*plus(below, grown)))
    high, low = divide_twice(above, below)
    return raised(left, k, high + low)


def silu(x: Expr) -> Expr:
    """x times the sigmoid in two pieces."""
    left = x < 0.0
    k, p, e = decay(size(x))
    value = by_share(within(x, -FAR, FAR), left, k, share(left, p, e))
    return ops.where(x > FAR, x, value)


def silu_slope(x: Expr) -> Expr:
    """s(x)(1 + x s(-x)), s the sigmoid, in two pieces."""
    a = size(x)
    return near_root(_slope(x < 0.0, (a, 0.0), *decay(a)), x, SILU_ROOT, SILU_SLOPE)


def _cubic(x: Expr) -> tuple[Expr, Pair, Pair]:
    """x within ±22, and of that |z| and |x| z', z = 2 sqrt(2/pi)(x + 0.044715 x**3)."""
    x = within(x, -GELU_TANH_FAR, GELU_TANH_FAR)
    a = ops.abs(x)
    cubic = scaled(fast_sum(*square(a)), CUBIC)
    linear, lost = two_sum(LINEAR[0], cubic[0])
    slope = fast_sum(linear, (lost + LINEAR[1]) + cubic[1])
    steeper = fast_sum(*plus(slope, (2.0 * cubic[0], 2.0 * cubic[1])))
    return x, times(slope, (a, 0.0)), times(steeper, (a, 0.0))


def gelu_tanh(x: Expr) -> Expr:
    """x s(z), s the sigmoid, z = 2 sqrt(2/pi)(x + 0.044715 x**3) and s in two pieces."""
    near, z, _ = _cubic(x)
    left = x < 0.0
    k, p, e = decay(*z)
    value = by_share(near, left, k, share(left, p, e))
    return ops.where(x > GELU_TANH_FAR, x, value)


def gelu_tanh_slope(x: Expr) -> Expr:
    """s(z)(1 + x z' s(-z)), s the sigmoid, in two pieces."""
    _, z, b = _cubic(x)
    return near_root(_slope(x < 0.0, b, *decay(*z)), x, GELU_TANH_ROOT, GELU_TANH_SLOPE)
