"""The error function, in the plane that of Faddeeva, and the normal distribution, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.mathlib.bits import coefficients, keep_nan, polynomial
from symgrad.mathlib.double.exponential import half_square_parts, neg_square_parts
from symgrad.mathlib.double.logistic import by_share, near_root, raised
from symgrad.mathlib.double.pair import (
    Pair,
    choose,
    divide,
    fast_sum,
    plus,
    scaled,
    times,
    two_sum,
    within,
)
from symgrad.mathlib.error_function import (
    INVERSE_MIDDLE,
    LOG_ROOT,
    excess,
    hazard_excess,
    log_distribution,
)

ERF: Final = coefficients("""
    0.12837916709551256 -0.37612638903183465 0.11283791670924823 -0.026866170632717665
    0.005223977370343853 -0.0008548297525307031 0.0001205332434104445 -1.4845584185908674e-05
    1.4723218425334932e-06
""")
"""erf(x)/x - 1 in x**2, |x| <= 1/2: erf to 0.13 * 2**-53 of its value (tools/fit.py)."""

ERFC: Final = coefficients("""
    0.0030080582697296528 -0.1356211061245812 -0.04756229435345117 0.12964515870276397
    -0.11927366341527552 0.06830802734385698 -0.02377051491960597 0.0025293918182126636
    0.0018886903725633748 -0.0007798322945394403 -0.0001051599025606537 0.00012509950458508795
    4.949954739428285e-06 -2.0101265929136506e-05 -7.328233848952975e-07 3.4745919205832055e-06
    3.589862554632005e-07 -6.211891298111857e-07 -1.4321946903126654e-07 1.0790608853831677e-07
    4.1352088286917145e-08 -1.7944548635636388e-08 -6.7897453972482876e-09 2.5334759043772427e-09
""")
"""erfc(a) exp(a**2) (1 + 2a) - 5/4 in t = (a - 3)/(a + 3), 0.5 <= a <= 28: to 0.03 * 2**-53."""


def _near(x: Expr) -> Expr:
    """erf(x) - x for |x| <= 1/2."""
    return x * polynomial(x * x, ERF)


def weight(a: Expr, middle: float, leading: float, coefficients: Sequence[float]) -> Pair:
    """W(t) less its leading constant, plus it: a rounded pair, t = (a - middle)/(a + middle)."""
    t, t_rest = divide(two_sum(a, -middle), two_sum(a, middle))
    slope = polynomial(t + t_rest, coefficients[1:])
    slope_high = ops.upper(slope)
    rest = slope_high * t_rest + (slope - slope_high) * (t + t_rest)
    w, lost = fast_sum(leading, slope_high * t)
    return fast_sum(w, (lost + coefficients[0]) + rest)


def _tail(a: Expr) -> Pair:
    """erfc(a) = exp(-a**2) W(t)/(1 + 2a), t = (a - 3)/(a + 3), for a >= 1/2; 0 from a = 28 on."""
    a = ops.where(a > 28.0, 28.0, a)
    w = weight(a, 3.0, 1.25, ERFC)
    k, e = neg_square_parts(a)
    above = times(w, e)
    q = fast_sum(*divide(above, two_sum(2.0 * a, 1.0)))
    return ops.scalb(q[0], k), ops.scalb(q[1], k)


def erf(x: Expr) -> Expr:
    """A polynomial for |x| < 1/2; 1 - erfc(|x|) with the sign of x beyond."""
    a = ops.abs(x)
    near = ops.where(a < 2.0**-30, x * (2.0 / math.sqrt(math.pi)), x + _near(x))
    tail, rest = _tail(a)
    high, low = fast_sum(1.0, -tail)
    return keep_nan(ops.where(a < 0.5, near, ops.copysign(high + (low - rest), x)), x)


def erfc(x: Expr) -> Expr:
    """1 - erf(x) for |x| < 1/2; beyond, exp(-a**2) W(a), a = |x|, and 2 minus that for x < 0."""
    a = ops.abs(x)
    tail, rest = _tail(a)
    far = ops.where(x < 0.0, 2.0 - tail, tail + rest)
    high, low = fast_sum(1.0, -x)
    return keep_nan(ops.where(a < 0.5, high + (low - _near(x)), far), x)


# The normal distribution, and gelu, which is made of it.

NORMAL: Final = coefficients("""
    0.02394228040143268 -0.06649038006690544 0.009973557010035546 -0.0011873282154764339
    0.00011543468758265635 -9.444656087582893e-06 6.659687811378704e-07 -4.1225425401171976e-08
    2.271735467018308e-09 -1.1137730674977512e-10 4.247782766197899e-12
""")
"""(Phi(x) - 1/2)/x - 3/8 in x**2, |x| <= 7/8: Phi to 0.07 * 2**-53 of its value (tools/fit.py)."""

NORMAL_TAIL: Final = coefficients("""
    0.03719577171772043 -0.023009233104596058 -0.09637998589041442 0.12890813544482277
    -0.09526047896237878 0.04436429044202294 -0.01051231925981391 -0.0012100600571395453
    0.0015769785125956438 -0.00014330552286992592 -0.0002043549698637822 3.786800310124002e-05
    3.155856894636516e-05 -6.032948625520679e-06 -5.891596190866846e-06 5.980598923025367e-07
    1.2080069967783605e-06 6.273710605985942e-08 -2.4629313733126327e-07 -5.633670617161159e-08
    4.859391145698534e-08 1.3989932264857736e-08 -8.33229281867373e-09
""")
"""Phi(-a) exp(a**2/2)(1 + 2a) - 13/16 in t = (a - 4)/(a + 4), 7/8 <= a <= 39: to 0.04 * 2**-53."""

GELU_ROOT: Final = coefficients("""
    -0.7517915246935645 1.4956759177009883e-17 0.43149399012327194 2.190774977647835e-09
""")
"""Where gelu is least, and its second derivative there, each in two pieces."""
GELU_SLOPE: Final = coefficients("""
    0.38828498299055186 -0.01819967639867108 -0.1140082332970792 -0.014771522148194133
    0.019421679786962347 0.00453922835280707 -0.0022395305615307273 -0.0007448223331843
    0.00018585870147713645 8.584490018036151e-05
""")
"""(gelu'(r + d)/d - gelu''(r))/d, r the root, |d| <= 1/8: gelu' to 0.09 * 2**-53."""

DENSITY: Final = (0.3989422768354416, 3.5659910885844774e-09)
"""1/sqrt(2 pi): its 26 leading bits, and the rest."""
NEAR: Final = 0.875
FAR: Final = 39.0
"""From here on exp(-a**2/2) is 0."""


def bell(x: Expr) -> Expr:
    """exp(-x**2/2), the square in two pieces."""
    k, (high, low) = half_square_parts(within(x, -FAR, FAR))
    return ops.scalb(high + low, k)


def _size(x: Expr) -> Expr:
    """|x|, at most 39; NaN stays NaN."""
    a = ops.abs(x)
    return ops.where(a > FAR, FAR, a)


def _mills(a: Expr) -> Pair:
    """Phi(-a) exp(a**2/2) = W(t)/(1 + 2a), t = (a - 4)/(a + 4), for a >= 7/8."""
    w = weight(a, 4.0, 0.8125, NORMAL_TAIL)
    return fast_sum(*divide(w, two_sum(2.0 * a, 1.0)))


def _middle(x: Expr) -> Pair:
    """Phi(x) for |x| <= 7/8."""
    high, low = fast_sum(0.5, 0.5 * x)
    high, more = two_sum(high, -0.125 * x)
    return high, (low + more) + x * polynomial(x * x, NORMAL)


def _distribution(x: Expr) -> tuple[Condition, Expr, Pair]:
    """Whether x is far left, k, and a pair q: Phi(x) is 2**k q there, and else q."""
    a = _size(x)
    k, parts = half_square_parts(a)
    tail = times(_mills(a), fast_sum(*parts))
    above, lost = fast_sum(1.0, -ops.scalb(tail[0], k))
    right = (above, lost - ops.scalb(tail[1], k))
    left = x <= -NEAR
    return left, k, choose(left, tail, choose(a < NEAR, fast_sum(*_middle(x)), right))


def normal_cdf(x: Expr) -> Expr:
    """The tail exp(-a**2/2) W(a), a = |x|, or 1 less it; a polynomial for a < 7/8."""
    left, k, (high, low) = _distribution(x)
    return raised(left, k, high + low)


def gelu(x: Expr) -> Expr:
    """x times the normal distribution function in two pieces."""
    return ops.where(x > FAR, x, by_share(within(x, -FAR, FAR), *_distribution(x)))


def gelu_slope(x: Expr) -> Expr:
    """1 + exp(-a**2/2)(a c - W(a)), a = |x|, less 1 for x < 0; Phi a polynomial for a < 7/8."""
    a = _size(x)
    k, parts = half_square_parts(a)
    near, left, side = a < NEAR, x <= -NEAR, ops.copysign(1.0, x)
    line, mills = scaled((a, 0.0), DENSITY), _mills(a)
    rest = fast_sum(*plus(line, (-mills[0], -mills[1])))
    high, low = times(choose(near, line, rest), fast_sum(*parts))
    high, low = side * ops.scalb(high, k), side * ops.scalb(low, k)
    one = (ops.where(near, 0.0, 1.0), 0.0)
    total, lost = plus(choose(near, _middle(x), one), (high, low))
    return near_root(ops.where(left, high + low, total + lost), x, GELU_ROOT, GELU_SLOPE)


# The normal distribution's logarithm, hazard and inverse in float64, this by Halley's step.

HAZARD: Final = coefficients("""
    0.19859192958261904 -0.8415387946870332 0.01716314677430462 0.18569957991791294
    -0.025434750641240036 -0.0546386059443191 0.007699762308687512 0.018431224996932213
    -0.0009428857937533486 -0.006371543754328798 -0.0006340023192771727 0.0020435261113203344
    0.0006121243505114593 -0.0005421550431239726 -0.0003228731710536161 9.186809030552625e-05
    0.0001222305548079741 5.393299936482968e-06 -3.2823155177185494e-05 -1.047886487207647e-05
    5.0200523339685654e-06 3.6733286868191157e-06 2.0038633976165408e-07 -4.60568474669843e-07
    -2.8094689407319725e-07 -1.1921754931664845e-07 3.844203616920923e-08 5.8979021953012424e-08
    6.666266316011449e-09 -7.848713214002261e-09 -1.886213354722649e-09
""")
"""(phi(a)/Phi(-a) - a)(a + 3) - 3/2 in t = (a - 3)/(a + 3), a >= 0 (tools/fit.py)."""

INVERSE_TAIL: Final = coefficients("""
    0.9699814646418246 0.08063319181569006 -0.08345122063895694 0.03805573413635328
    0.026322797526036605 -0.10456056802098819 0.166145023510722 -0.14156838844447953
    0.04276586265214031 0.0075672252610542055
""")
"""erfinv(x)/s in (s - 5)/(s + 5), s**2 = -log(1 - x**2), 25/4 <= s**2 <= 750: to 4e-7."""


def log_ndtr(x: Expr) -> Expr:
    """-x**2/2 less a logarithm for x <= -1/4, log1p of the other tail above."""
    return log_distribution(x, HAZARD)


def mills_excess(x: Expr) -> Expr:
    """A polynomial over a + 3 for x = -a <= 0, by the density above."""
    return hazard_excess(x, HAZARD)


def _start(x: Expr, w: Expr) -> Expr:
    """|erfinv(x)| to 4e-7, w = -log(1 - x**2)."""
    near = w < 6.25
    s = ops.sqrt(ops.where(near, 9.0, w))
    tail = s * polynomial((s - 5.0) / (s + 5.0), INVERSE_TAIL)
    return ops.where(near, ops.abs(x) * polynomial(w - 3.125, INVERSE_MIDDLE), tail)


def _inverse(x: Expr, tail: Expr, central: Condition) -> Expr:
    """|erfinv(x)|, the tail being (1 - |x|)/2: Halley's step for erf(y) - x, or for log(tail)."""
    q = ops.where(central, 0.25, tail)
    w = -ops.log(4.0 * ops.where(central, (0.5 - 0.5 * x) * (0.5 + 0.5 * x), q * (1.0 - q)))
    y = _start(x, w)
    z = ops.where(central, y, 0.0)
    d = (ops.abs(x) - ops.erf(z)) * (0.5 * math.sqrt(math.pi)) * ops.exp(z * z)
    middle = y + (d + z * (d * d))
    t = math.sqrt(2.0) * ops.where(central, 1.0, y)
    rest = excess(t, HAZARD)
    hazard = t + rest
    left = ((-0.5 * (t * t) - ops.log(q)) - LOG_ROOT) - ops.log(hazard)
    d = left / hazard
    outer = t + (d - 0.5 * rest * (d * d))
    return ops.where(central, math.sqrt(2.0) * middle, outer)


def erfinv(x: Expr) -> Expr:
    """The inverse of erf for |x| < 1/2, of the tail's logarithm beyond."""
    a = ops.abs(x)
    central = a < 0.5
    inside = ops.where(a < 1.0, a, 0.75)
    value = math.sqrt(0.5) * _inverse(inside, 0.5 - 0.5 * inside, central)
    value = ops.where(a < 1.0, value, ops.where(a == 1.0, math.inf, math.nan))
    return keep_nan(ops.copysign(value, x), x)


def ndtri(p: Expr) -> Expr:
    """sqrt(2) times the inverse of erf for |2p - 1| < 1/2, of the tail's logarithm beyond."""
    tail = ops.where(p > 0.5, 1.0 - p, p)
    x = (p - 0.5) + (p - 0.5)
    usable = (tail > 0.0) & (tail < 1.0)
    value = _inverse(ops.abs(x), ops.where(usable, tail, 0.25), ops.abs(x) < 0.5)
    value = ops.where(usable, value, ops.where(tail == 0.0, math.inf, math.nan))
    return keep_nan(ops.copysign(value, x), p)
