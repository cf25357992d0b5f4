"""THE OP TABLE: one row for each operation, with everything particular to it.

Meaning, derivatives, laws, domain, edge conventions, test points, cost (in units of an addition)
and the WGSL built-in stand here and nowhere else. Derivatives are in the forms that keep their
accuracy in float32; the textbook ones often do not (1 - tanh(x)**2 is 0 from x = 9 on).
"""

from __future__ import annotations

import copyreg
import math
from typing import Any, Final

import numpy as np

from symgrad.errors import PickleError
from symgrad.expr import reference
from symgrad.expr.law import Law, exact, finite, nonnegative, nonzero, positive, real
from symgrad.expr.node import LEAVES, Masked, Op

LN2: Final = math.log(2.0)
NAN: Final = math.nan


def _at_nan(condition: Any, value: Any) -> Any:
    """The value, but NaN where the condition holds: outside an operation's domain."""
    return where(condition, NAN, value)


def _laws(*laws: Law) -> tuple[Law, ...]:
    return laws


# --- arithmetic -----------------------------------------------------------------------------------

add = Op(
    name="add", signature="ff->f", reference=np.add, meaning="a + b", commutative=True,
    llvm="fadd {f} {0}, {1}", wgsl="{0} + {1}", partials=lambda y, a, b: (1, 1), latex="{0} + {1}",
    laws=lambda a, b: _laws(
        exact(a + -0.0, a),
        exact(a + (-b), a - b),
        exact(a + a, 2.0 * a),
        real(a + 0.0, a),
    ),
    edges="inf - inf is NaN", points=((1.5, -0.25), (-3.0, 7.0)),
)  # fmt: skip
sub = Op(
    name="sub", signature="ff->f", reference=np.subtract, meaning="a - b",
    llvm="fsub {f} {0}, {1}", wgsl="{0} - {1}", partials=lambda y, a, b: (1, -1), latex="{0} - {1}",
    laws=lambda a, b: _laws(
        exact(a - 0.0, a),
        exact(a - (-b), a + b),
        exact(-0.0 - a, -a),
        real(0.0 - a, -a),
        real(a - a, 0.0, when=finite(a)),
    ),
    edges="inf - inf is NaN", points=((1.5, -0.25), (-3.0, 7.0)),
)  # fmt: skip
mul = Op(
    name="mul", signature="ff->f", reference=np.multiply, meaning="a * b", commutative=True,
    llvm="fmul {f} {0}, {1}",
    wgsl="{0} * {1}", partials=lambda y, a, b: (b, a), latex=r"{0} \, {1}",
    laws=lambda a, b: _laws(
        exact(a * 1.0, a),
        exact(a * -1.0, -a),
        exact((-a) * (-b), a * b),
        exact((-a) * b, -(a * b)),
        real(a * 0.0, 0.0, when=finite(a)),
    ),
    edges="0 * inf is NaN", points=((1.5, -0.25), (-3.0, 7.0)),
)  # fmt: skip
div = Op(
    name="div", signature="ff->f", reference=np.divide, meaning="a / b", cost=4,
    llvm="fdiv {f} {0}, {1}",
    wgsl="{0} / {1}", partials=lambda y, a, b: ((r := reciprocal(b)), -(y * r)),
    latex=r"\frac{{{0}}}{{{1}}}",
    laws=lambda a, b: _laws(
        exact(a / 1.0, a),
        exact(a / -1.0, -a),
        exact(1.0 / a, reciprocal(a)),
        exact(-1.0 / a, -reciprocal(a)),
        exact((-a) / (-b), a / b),
        exact((-a) / b, -(a / b)),
        exact(a / (-b), -(a / b)),
        real(a / a, 1.0, when=nonzero(a)),
    ),
    domain="b != 0", edges="a/0 is ±inf, 0/0 is NaN; d/db is -(a/b)/b, so no square overflows",
    points=((1.5, -0.7), (0.4, 2.0)),
)  # fmt: skip
neg = Op(
    name="neg", signature="f->f", reference=np.negative, meaning="-a",
    llvm="fneg {f} {0}", wgsl="-{0}",
    partials=lambda y, a: (-1,), latex="-{0}",
    laws=lambda a: _laws(exact(neg(-a), a)), points=((1.5,), (-0.25,)),
)  # fmt: skip
reciprocal = Op(
    name="reciprocal", signature="f->f", reference=np.reciprocal, meaning="1 / a", cost=4,
    llvm="fdiv {f} {one}, {0}",
    wgsl="1.0f / {0}", partials=lambda y, a: (-(y * y),), latex=r"\frac{{1}}{{{0}}}",
    laws=lambda a: _laws(
        exact(reciprocal(-a), -reciprocal(a)),
        real(reciprocal(reciprocal(a)), a),
        real(reciprocal(sqrt(a)), rsqrt(a)),
    ),
    domain="a != 0", edges="±inf at ±0", points=((1.5,), (-0.25,)),
)  # fmt: skip
fma = Op(
    name="fma", signature="fff->f", reference=reference.fma, meaning="a * b + c", cost=1,
    llvm="call {f} @llvm.fma.{m}({f} {0}, {f} {1}, {f} {2})",
    wgsl="fma({0}, {1}, {2})", partials=lambda y, a, b, c: (b, a, 1),
    edges="rounded once where the device has a fused multiply-add", points=((1.5, -0.7, 2.0),),
)  # fmt: skip


def _turns(y: Any, a: Any, b: Any) -> Any:
    """The whole number (a - y)/b, y a remainder; a - y may overflow."""
    return round(a / b - y / b)


remainder = Op(
    name="remainder", signature="ff->f", reference=np.remainder, cost=6,
    meaning="a - b*floor(a/b), with the sign of b, as Python's %",
    partials=lambda y, a, b: (1, -_turns(y, a, b)), latex=r"{0} \bmod {1}",
    domain="b != 0", edges="NaN at b = 0", points=((7.5, 2.0), (-7.5, 2.0), (7.25, -3.0)),
)  # fmt: skip
fmod = Op(
    name="fmod", signature="ff->f", reference=np.fmod, cost=6,
    meaning="a - b*trunc(a/b), with the sign of a, as C's fmod",
    partials=lambda y, a, b: (1, -_turns(y, a, b)),
    domain="b != 0", edges="NaN at b = 0", points=((7.5, 2.0), (-7.5, 2.0), (7.25, -3.0)),
)  # fmt: skip
floor_divide = Op(
    name="floor_divide", signature="ff->f", reference=np.floor_divide,
    meaning="floor(a / b) of the exact quotient, as Python's //",
    compose=lambda a, b: where(b == 0.0, stop_gradient(a / b), _turns(remainder(a, b), a, b)),
    points=((7.5, 2.0), (-7.5, 2.0)),
    edges="the derivative is structurally 0",
)  # fmt: skip

# --- powers and roots -----------------------------------------------------------------------------

integer_pow = Op(
    name="integer_pow", signature="fi->f", reference=reference.integer_power, cost=3,
    meaning="x**k for a constant integer k, a chain of multiplications",
    vjp=lambda g, y, x, k: ((k.number * g) * x ** (k.number - 1), None), latex="{0}^{{{1}}}",
    edges="x**0 is 1; x**-k is 1/x**k", points=((1.5, 3), (-1.25, 4), (-0.5, -3), (0.0, 2)),
)  # fmt: skip


def _shifts(base: float) -> bool:
    """Whether the logarithm, as a factor, moves a float32 over an end of the range."""
    size = math.fabs(math.log(base)) if 0.0 < base < math.inf else 1.0
    return 0.0 < size < 1.0 or size > 64.0


def _pow_partials(y: Any, x: Any, p: Any) -> tuple[Any, Any]:
    """p x**(p - 1) as p y/x, for p - 1 is rounded, and y log(x).

    Where y is tiny or overflows it is h**2, h = |x|**(p/2), and what it is multiplied by goes
    between the two, opaque, for compilers might square h first; where x is 0 or infinite h is
    x**(p - 1). A constant base takes this second power only if log(x) is below 1 or far above.
    """
    ends = (x == 0.0) | isinf(x)
    beyond = ~ends & ((abs(y) < 1e-37) | isinf(y))
    h = pow(where(ends, x, abs(x)), where(ends, p - 1.0, 0.5 * p))
    by_p = y * log(x)
    base = x.graph.value(x.id)
    if base is None or _shifts(base):
        by_p = where(beyond, opaque(h * log(x)) * h, by_p)
    by_p = where(x > 0.0, by_p, where(isnan(y), y, 0.0))
    exponent = p.graph.value(p.id)
    if exponent is not None and float(2.0 * exponent).is_integer():
        return exponent * x ** (exponent - 1.0), by_p  # the exponent less 1 is not rounded
    small = abs(x) < 1.0  # p comes before the division by it, so that neither product overflows
    first, last = where(small, p, 1.0), where(small, 1.0, p)
    inner = opaque(copysign(first * h, first * y) / x * last)
    by_x = where(beyond, inner * h, first * y / x * last)
    return where(p == 0.0, 0.0, where(ends, p * h, by_x)), by_p


pow = Op(
    name="pow", signature="ff->f", reference=np.power, meaning="x**p", cost=30,
    partials=_pow_partials,
    transcendental=True, latex="{0}^{{{1}}}", domain="x >= 0, or p an integer",
    edges="0**0 is 1; a negative x gives NaN unless p is an integer; d/dp is 0 for x <= 0",
    points=((1.5, 2.5), (0.3, -1.7), (-2.0, 3.0), (4.0, 0.5)),
)  # fmt: skip
sqrt = Op(
    name="sqrt", signature="f->f", reference=np.sqrt, meaning="the square root", cost=4,
    llvm="call {f} @llvm.sqrt.{m}({f} {0})",
    wgsl="sqrt({0})", partials=lambda y, x: (0.5 / y,), latex=r"\sqrt{{{0}}}",
    laws=lambda x: _laws(
        real(sqrt(x * x), abs(x)),
    ),
    domain="x >= 0", edges="the derivative at 0 is inf", points=((2.0,), (0.3,)),
)  # fmt: skip
rsqrt = Op(
    name="rsqrt", signature="f->f", reference=reference.rsqrt, meaning="1/sqrt(x)", cost=4,
    llvm="r = call {f} @llvm.sqrt.{m}({f} {0}); fdiv {f} {one}, {r}",
    wgsl="inverseSqrt({0})", partials=lambda y, x: ((-0.5 * y) * (y * y),),
    latex=r"\frac{{1}}{{\sqrt{{{0}}}}}",
    domain="x > 0", edges="inf at 0", points=((2.0,), (0.3,)),
)  # fmt: skip
cbrt = Op(
    name="cbrt", signature="f->f", reference=np.cbrt, meaning="the real cube root", cost=20,
    partials=lambda y, x: (reciprocal(3.0 * (y * y)),), latex=r"\sqrt[3]{{{0}}}",
    edges="the derivative at 0 is inf", points=((2.0,), (-0.3,)),
)  # fmt: skip


def _share(a: Any, whole: Any) -> Any:
    """a/whole, |a| <= whole; 0/0 is 0 and inf/inf is 1."""
    return where(abs(a) == whole, sign(a), a / whole)


def _hypot_partials(y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """a/y and b/y; (a/2)/(y/2) where y overflows, y/2 = m/2 sqrt(1 + (n/m)**2) for |n| <= m."""
    u, v = abs(a), abs(b)
    m, n = where(u > v, u, v), where(u > v, v, u)
    over = isinf(y) & isfinite(m)
    scale = where(over, 0.5, 1.0)
    ratio = n / m
    whole = where(over, (0.5 * m) * sqrt(1.0 + ratio * ratio), y)
    return _share(a * scale, whole), _share(b * scale, whole)


hypot = Op(
    name="hypot", signature="ff->f", reference=np.hypot, cost=14, commutative=True,
    meaning="sqrt(a**2 + b**2) without overflow", partials=_hypot_partials,
    edges="the derivative at (0, 0) is (0, 0), that by an infinite argument ±1",
    points=((3.0, 4.0), (-0.5, 0.1)),
)  # fmt: skip

# --- exponentials and logarithms ------------------------------------------------------------------

exp = Op(
    name="exp", signature="f->f", reference=np.exp, meaning="e**x", cost=10,
    llvm="call {f} @llvm.exp.{m}({f} {0})",
    wgsl="exp({0})",
    partials=lambda y, x: (y,), transcendental=True, latex="e^{{{0}}}",
    laws=lambda x: _laws(real(exp(log(x)), x, when=positive(x))), points=((1.5,), (-2.0,)),
)  # fmt: skip


def _exp2_slope(y: Any, x: Any) -> Any:
    """ln 2 * 2**x, which is finite a little beyond where 2**x is; x - 1 is exact there."""
    return where(isfinite(y), LN2 * y, (2.0 * LN2) * exp2(x - 1.0))


exp2 = Op(
    name="exp2", signature="f->f", reference=np.exp2, meaning="2**x", cost=10,
    llvm="call {f} @llvm.exp2.{m}({f} {0})",
    wgsl="exp2({0})",
    partials=lambda y, x: (_exp2_slope(y, x),), transcendental=True, latex="2^{{{0}}}",
    points=((1.5,), (-2.0,)),
)  # fmt: skip
expm1 = Op(
    name="expm1", signature="f->f", reference=np.expm1, cost=16, transcendental=True,
    meaning="exp(x) - 1, accurate near 0", partials=lambda y, x: (exp(x),),
    edges="the derivative is exp(x) itself, not the value plus 1",
    points=((1e-3,), (-2.0,), (1.5,)),
)  # fmt: skip
log = Op(
    name="log", signature="f->f", reference=np.log, meaning="the natural logarithm", cost=10,
    llvm="call {f} @llvm.log.{m}({f} {0})",
    wgsl="log({0})", partials=lambda y, x: (_at_nan(x < 0.0, reciprocal(x)),),
    transcendental=True, latex=r"\ln\left({0}\right)",
    laws=lambda x: _laws(real(log(exp(x)), x)),
    domain="x >= 0", edges="-inf at 0; NaN for x < 0, value and derivative",
    points=((2.0,), (0.3,)),
)  # fmt: skip
log2 = Op(
    name="log2", signature="f->f", reference=np.log2, meaning="the logarithm to base 2", cost=10,
    llvm="call {f} @llvm.log2.{m}({f} {0})",
    wgsl="log2({0})", partials=lambda y, x: (_at_nan(x < 0.0, (1.0 / LN2) / x),),
    transcendental=True, laws=lambda x: _laws(real(log2(exp2(x)), x)),
    domain="x >= 0", edges="as log", points=((2.0,), (0.3,)),
)  # fmt: skip
log10 = Op(
    name="log10", signature="f->f", reference=np.log10, meaning="the logarithm to base 10",
    cost=11, partials=lambda y, x: (_at_nan(x < 0.0, (1.0 / math.log(10.0)) / x),),
    transcendental=True, domain="x >= 0", edges="as log", points=((2.0,), (0.3,)),
)  # fmt: skip
log1p = Op(
    name="log1p", signature="f->f", reference=np.log1p, cost=18, transcendental=True,
    meaning="log(1 + x), accurate near 0",
    partials=lambda y, x: (_at_nan(x < -1.0, reciprocal(1.0 + x)),),
    domain="x >= -1", edges="-inf at -1; NaN for x < -1, value and derivative",
    points=((1e-3,), (2.0,), (-0.4,)),
)  # fmt: skip


def _logaddexp_partials(_: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """sigmoid(d + r) and sigmoid(-d - r), d = a - b rounded, r the rest (Knuth's two-sum)."""
    d = opaque(a - b)
    minus_b = opaque(d - a)
    rest = opaque(a - opaque(d - minus_b)) - opaque(b + minus_b)
    rest = stop_gradient(where(isfinite(rest), rest, 0.0))
    d = where(a == b, 0.0, a - b)
    first, second = sigmoid(d), sigmoid(-d)
    return first * (1.0 + rest * second), second * (1.0 - rest * first)


logaddexp = Op(
    name="logaddexp", signature="ff->f", reference=np.logaddexp, cost=30, commutative=True,
    meaning="log(exp(a) + exp(b)) without overflow", transcendental=True,
    partials=_logaddexp_partials,
    points=((1.5, -0.25), (30.0, 31.0)),
)  # fmt: skip

# --- trigonometry ---------------------------------------------------------------------------------

sin = Op(
    name="sin", signature="f->f", reference=np.sin, meaning="the sine of x radians", cost=12,
    llvm="call {f} @llvm.sin.{m}({f} {0})",
    wgsl="sin({0})", partials=lambda y, x: (cos(x),), transcendental=True,
    latex=r"\sin\left({0}\right)", points=((0.5,), (-4.0,)),
)  # fmt: skip
cos = Op(
    name="cos", signature="f->f", reference=np.cos, meaning="the cosine of x radians", cost=12,
    llvm="call {f} @llvm.cos.{m}({f} {0})",
    wgsl="cos({0})", partials=lambda y, x: (-sin(x),), transcendental=True,
    latex=r"\cos\left({0}\right)", points=((0.5,), (-4.0,)),
)  # fmt: skip
tan = Op(
    name="tan", signature="f->f", reference=np.tan, meaning="the tangent of x radians", cost=16,
    llvm="call {f} @llvm.tan.{m}({f} {0})",
    wgsl="tan({0})", partials=lambda y, x: (1.0 + y * y,), transcendental=True,
    latex=r"\tan\left({0}\right)", points=((0.5,), (-1.0,)),
)  # fmt: skip
asin = Op(
    name="asin", signature="f->f", reference=np.arcsin, meaning="the arc sine, in radians", cost=16,
    wgsl="asin({0})", partials=lambda y, x: (reciprocal(sqrt((1.0 - x) * (1.0 + x))),),
    transcendental=True, latex=r"\arcsin\left({0}\right)",
    domain="-1 <= x <= 1", edges="the derivative at ±1 is inf", points=((0.5,), (-0.3,)),
)  # fmt: skip
acos = Op(
    name="acos", signature="f->f", reference=np.arccos, meaning="the arc cosine, in radians",
    cost=16, wgsl="acos({0})", transcendental=True, latex=r"\arccos\left({0}\right)",
    partials=lambda y, x: (-reciprocal(sqrt((1.0 - x) * (1.0 + x))),),
    domain="-1 <= x <= 1", edges="the derivative at ±1 is -inf", points=((0.5,), (-0.3,)),
)  # fmt: skip
atan = Op(
    name="atan", signature="f->f", reference=np.arctan, meaning="the arc tangent, in radians",
    cost=14, wgsl="atan({0})", partials=lambda y, x: (reciprocal(1.0 + x * x),),
    transcendental=True, latex=r"\arctan\left({0}\right)", points=((0.5,), (-3.0,)),
)  # fmt: skip


def _atan2_partials(_: Any, y: Any, x: Any) -> tuple[Any, Any]:
    largest = maximum(abs(y), abs(x))
    a, b = _share(y, largest), _share(x, largest)
    square = a * a + b * b
    scale = where(largest < 2.0**-120, 2.0**30, 1.0)  # 1/largest may overflow, the result need not
    inverse = where(square == 0.0, 0.0, reciprocal(square * (largest * scale)))
    return (b * inverse) * scale, -((a * inverse) * scale)


atan2 = Op(
    name="atan2", signature="ff->f", reference=np.arctan2, cost=20, transcendental=True,
    meaning="the angle of the point (x, y), in radians: atan2(y, x)", partials=_atan2_partials,
    edges="atan2(0, 0) is 0 with C's signs, its derivative there and at infinity (0, 0)",
    points=((0.5, 1.5), (-1.0, -2.0), (3.0, -0.1)),
)  # fmt: skip
sinh = Op(
    name="sinh", signature="f->f", reference=np.sinh, meaning="the hyperbolic sine", cost=20,
    partials=lambda y, x: (cosh(x),), transcendental=True,
    latex=r"\sinh\left({0}\right)", points=((0.5,), (-2.0,)),
)  # fmt: skip
cosh = Op(
    name="cosh", signature="f->f", reference=np.cosh, meaning="the hyperbolic cosine", cost=16,
    wgsl="cosh({0})", partials=lambda y, x: (sinh(x),), transcendental=True,
    latex=r"\cosh\left({0}\right)", points=((0.5,), (-2.0,)),
)  # fmt: skip


tanh = Op(
    name="tanh", signature="f->f", reference=np.tanh, meaning="the hyperbolic tangent", cost=16,
    partials=lambda y, x: (4.0 * logistic(2.0 * x),), transcendental=True,
    latex=r"\tanh\left({0}\right)",
    edges="the derivative is 4u/(1+u)**2, u = exp(-2|x|), which is right where 1 - y**2 is 0",
    points=((0.5,), (-2.0,), (12.0,)),
)  # fmt: skip
asinh = Op(
    name="asinh", signature="f->f", reference=np.arcsinh, meaning="the inverse of sinh", cost=24,
    partials=lambda y, x: (
        where(abs(x) > 1e9, reciprocal(abs(x)), reciprocal(sqrt(1.0 + x * x))),
    ),
    transcendental=True, points=((0.5,), (-2.0,), (1e7,)),
)  # fmt: skip
acosh = Op(
    name="acosh", signature="f->f", reference=np.arccosh, meaning="the inverse of cosh", cost=24,
    partials=lambda y, x: (reciprocal(sqrt(x - 1.0) * sqrt(x + 1.0)),), transcendental=True,
    domain="x >= 1", edges="the derivative at 1 is inf", points=((1.5,), (30.0,)),
)  # fmt: skip
atanh = Op(
    name="atanh", signature="f->f", reference=np.arctanh, meaning="the inverse of tanh", cost=22,
    partials=lambda y, x: (_at_nan(abs(x) > 1.0, reciprocal((1.0 - x) * (1.0 + x))),),
    transcendental=True, domain="-1 <= x <= 1", edges="±inf at ±1", points=((0.5,), (-0.3,)),
)  # fmt: skip

# --- special functions and activations ------------------------------------------------------------

exp_neg_square = Op(
    name="exp_neg_square", signature="f->f", reference=reference.exp_neg_square, cost=14,
    meaning="exp(-x**2), the square exact", partials=lambda y, x: (-2.0 * (x * y),),
    transcendental=True, latex="e^{{-{0}^2}}", points=((0.5,), (-3.0,)),
)  # fmt: skip
erf = Op(
    name="erf", signature="f->f", reference=reference.erf, meaning="the error function", cost=40,
    partials=lambda y, x: ((2.0 / math.sqrt(math.pi)) * exp_neg_square(x),), transcendental=True,
    latex=r"\mathrm{{erf}}\left({0}\right)", points=((0.5,), (-2.0,)),
)  # fmt: skip
erfc = Op(
    name="erfc", signature="f->f", reference=reference.erfc, cost=40, transcendental=True,
    meaning="1 - erf(x), accurate in the tail",
    partials=lambda y, x: ((-2.0 / math.sqrt(math.pi)) * exp_neg_square(x),),
    latex=r"\mathrm{{erfc}}\left({0}\right)", points=((0.5,), (-2.0,), (4.0,)),
)  # fmt: skip


bell = Op(
    name="bell", signature="f->f", reference=reference.bell, cost=14,
    meaning="exp(-x**2/2), the square exact", partials=lambda y, x: (-(x * y),),
    transcendental=True, latex="e^{{-{0}^2/2}}", points=((0.5,), (-3.0,)),
)  # fmt: skip
normal_cdf = Op(
    name="normal_cdf", signature="f->f", reference=reference.normal_cdf, cost=40,
    meaning="the normal distribution function, erfc(-x/sqrt(2))/2", transcendental=True,
    partials=lambda y, x: ((1.0 / math.sqrt(2.0 * math.pi)) * bell(x),),
    latex=r"\Phi\left({0}\right)", points=((0.5,), (-2.0,)),
)  # fmt: skip
sigmoid = Op(
    name="sigmoid", signature="f->f", reference=reference.sigmoid, meaning="1/(1 + exp(-x))",
    cost=18, partials=lambda y, x: (logistic(x),), transcendental=True,
    latex=r"\sigma\left({0}\right)",
    edges="the derivative is exp(-|x|)/(1 + exp(-|x|))**2, right where y*(1 - y) is 0",
    points=((0.5,), (-4.0,), (20.0,)),
)  # fmt: skip
logistic = Op(
    name="logistic", signature="f->f", reference=reference.logistic, cost=20, transcendental=True,
    meaning="exp(-x)/(1 + exp(-x))**2, the derivative of sigmoid",
    partials=lambda y, x: (-(y * tanh(0.5 * x)),),
    points=((0.5,), (-4.0,), (20.0,)),
)  # fmt: skip
softplus = Op(
    name="softplus", signature="f->f", reference=reference.softplus, meaning="log(1 + exp(x))",
    cost=32, partials=lambda y, x: (sigmoid(x),), transcendental=True,
    points=((0.5,), (-30.0,), (100.0,)),
)  # fmt: skip
relu = Op(
    name="relu", signature="f->f", reference=lambda x: np.maximum(x, 0), meaning="maximum(x, 0)",
    cost=2, vjp=lambda g, y, x: (Masked(~(x <= 0.0), where(x > 0.0, g, x)),),
    edges="the derivative at 0 is 0", points=((0.5,), (-4.0,)),
)  # fmt: skip
silu = Op(
    name="silu", signature="f->f", reference=reference.silu, cost=24,
    meaning="x*sigmoid(x), also called swish; 0 at -inf", partials=lambda y, x: (silu_slope(x),),
    transcendental=True, edges="right where sigmoid(x) is subnormal, which devices flush",
    points=((0.5,), (-4.0,)),
)  # fmt: skip
silu_slope = Op(
    name="silu_slope", signature="f->f", reference=reference.silu_slope, cost=30,
    meaning="sigmoid(x)*(1 + x*sigmoid(-x)), the derivative of silu", transcendental=True,
    partials=lambda y, x: (logistic(x) * (2.0 - x * tanh(0.5 * x)),),
    points=((0.5,), (-4.0,)),
)  # fmt: skip
gelu = Op(
    name="gelu", signature="f->f",
    reference=reference.gelu, cost=44,
    meaning="x*Phi(x), Phi the normal distribution function (the exact form); 0 at -inf",
    partials=lambda y, x: (gelu_slope(x),), transcendental=True, points=((0.5,), (-4.0,)),
)  # fmt: skip


def _gelu_curvature(x: Any) -> Any:
    y = bell(x)
    return (1.0 / math.sqrt(2.0 * math.pi)) * (2.0 * y - x * (x * y))


gelu_slope = Op(
    name="gelu_slope", signature="f->f", reference=reference.gelu_slope, cost=60,
    meaning="Phi(x) + x*phi(x), phi the normal density: the derivative of gelu",
    partials=lambda y, x: (_gelu_curvature(x),), transcendental=True, points=((0.5,), (-2.0,)),
)  # fmt: skip
gelu_tanh = Op(
    name="gelu_tanh", signature="f->f", reference=reference.gelu_tanh, cost=28,
    meaning="the tanh approximation of gelu, another function: they differ by up to 5e-4",
    partials=lambda y, x: (gelu_tanh_slope(x),), transcendental=True, points=((0.5,), (-4.0,)),
)  # fmt: skip


def _gelu_tanh_curvature(x: Any) -> Any:
    """The second derivative of x*sigmoid(z), z = a (x + b x**3); 0 from |x| = 30 on."""
    a, b = reference.GELU_TANH
    x = where(abs(x) > 30.0, 30.0, x)
    z, slope, bend = a * (x + b * (x * x * x)), a * (1.0 + 3.0 * b * (x * x)), 6.0 * a * b * x
    turn = x * (slope * slope) * tanh(0.5 * z)
    return logistic(z) * ((2.0 * slope + x * bend) - turn)


gelu_tanh_slope = Op(
    name="gelu_tanh_slope", signature="f->f", reference=reference.gelu_tanh_slope, cost=44,
    meaning="the derivative of gelu_tanh", partials=lambda y, x: (_gelu_tanh_curvature(x),),
    transcendental=True, points=((0.5,), (-4.0,)),
)  # fmt: skip

# --- rounding, signs, order -----------------------------------------------------------------------

abs = Op(
    name="abs", signature="f->f", reference=np.abs, meaning="|x|",
    llvm="call {f} @llvm.fabs.{m}({f} {0})", wgsl="abs({0})",
    partials=lambda y, x: (sign(x),), latex=r"\left|{0}\right|",
    laws=lambda x: _laws(
        exact(abs(-x), abs(x)),
        exact(abs(abs(x)), abs(x)),
        exact(abs(x), x, when=nonnegative(x)),
    ),
    edges="the derivative at 0 is 0", points=((0.5,), (-4.0,)),
)  # fmt: skip
sign = Op(
    name="sign", signature="f->f", reference=np.sign, meaning="-1, 0 or 1", cost=2,
    partials=lambda y, x: (None,), edges="sign(0) is 0, sign(NaN) is NaN; the derivative is 0",
    points=((0.5,), (-4.0,), (0.0,)),
)  # fmt: skip
floor = Op(
    name="floor", signature="f->f", reference=np.floor, meaning="the largest integer <= x",
    llvm="call {f} @llvm.floor.{m}({f} {0})",
    wgsl="floor({0})", partials=lambda y, x: (None,), points=((0.5,), (-4.5,)),
    latex=r"\left\lfloor {0} \right\rfloor",
)  # fmt: skip
ceil = Op(
    name="ceil", signature="f->f", reference=np.ceil, meaning="the smallest integer >= x",
    llvm="call {f} @llvm.ceil.{m}({f} {0})",
    wgsl="ceil({0})", partials=lambda y, x: (None,), points=((0.5,), (-4.5,)),
    latex=r"\left\lceil {0} \right\rceil",
)  # fmt: skip
round = Op(
    name="round", signature="f->f", reference=np.round, meaning="the nearest integer",
    llvm="call {f} @llvm.roundeven.{m}({f} {0})",
    wgsl="round({0})", partials=lambda y, x: (None,), edges="half goes to even",
    points=((0.5,), (-4.5,), (1.7,)),
)  # fmt: skip
trunc = Op(
    name="trunc", signature="f->f", reference=np.trunc, meaning="the integer part",
    llvm="call {f} @llvm.trunc.{m}({f} {0})",
    wgsl="trunc({0})", partials=lambda y, x: (None,), points=((0.5,), (-4.5,)),
)  # fmt: skip
fract = Op(
    name="fract", signature="f->f", reference=lambda x: x - np.floor(x), meaning="x - floor(x)",
    compose=lambda x: x - floor(x), cost=2, edges="the derivative is 1", points=((0.25,), (-4.5,)),
)  # fmt: skip
copysign = Op(
    name="copysign", signature="ff->f", reference=np.copysign, cost=3,
    meaning="|a| with the sign of b",
    partials=lambda y, a, b: (copysign(1.0, a) * copysign(1.0, b), None),
    llvm="call {f} @llvm.copysign.{m}({f} {0}, {f} {1})",
    wgsl="bitcast<f32>((bitcast<u32>({0}) & 0x7fffffffu) | (bitcast<u32>({1}) & 0x80000000u))",
    points=((1.5, -2.0), (-0.5, 3.0)),
)  # fmt: skip


def _half_at_tie(g: Any, y: Any, a: Any, b: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """The cotangents of a minimum or maximum: all to one, half to each, or, from y, NaN."""
    tie = where(a == b, 0.5 * g, y)  # neither first, nor second, nor equal: y is the NaN
    return Masked(~second, where(first, g, tie)), Masked(~first, where(second, g, tie))


minimum = Op(
    name="minimum", signature="ff->f", reference=np.minimum, meaning="the smaller of a and b",
    cost=3,
    vjp=lambda g, y, a, b: _half_at_tie(g, y, a, b, a < b, b < a),
    laws=lambda a, b: _laws(exact(minimum(a, a), a)),
    latex=r"\min\left({0}, {1}\right)",
    edges="NaN if either is; the derivative at a tie is half to each",
    points=((1.5, -0.25), (-3.0, 7.0), (2.0, 2.0)),
)  # fmt: skip
maximum = Op(
    name="maximum", signature="ff->f", reference=np.maximum, meaning="the larger of a and b",
    cost=3,
    vjp=lambda g, y, a, b: _half_at_tie(g, y, a, b, b < a, a < b),
    laws=lambda a, b: _laws(exact(maximum(a, a), a)),
    latex=r"\max\left({0}, {1}\right)",
    edges="NaN if either is; the derivative at a tie is half to each",
    points=((1.5, -0.25), (-3.0, 7.0), (2.0, 2.0)),
)  # fmt: skip
clip = Op(
    name="clip", signature="fff->f", reference=np.clip, cost=6,
    meaning="x limited to [low, high]: minimum(maximum(x, low), high)",
    compose=lambda x, low, high: minimum(maximum(x, low), high),
    edges="the derivative at a bound is half", points=((0.5, 0.0, 1.0), (3.0, 0.0, 1.0)),
)  # fmt: skip

# --- conditions -----------------------------------------------------------------------------------

lt = Op(
    name="lt", signature="ff->b", reference=np.less, meaning="a < b",
    llvm="fcmp olt {f} {0}, {1}", wgsl="{0} < {1}",
    latex="{0} < {1}", points=((1.0, 2.0), (2.0, 2.0)),
)  # fmt: skip
le = Op(
    name="le", signature="ff->b", reference=np.less_equal, meaning="a <= b",
    llvm="fcmp ole {f} {0}, {1}", wgsl="{0} <= {1}",
    latex=r"{0} \le {1}", points=((1.0, 2.0), (2.0, 2.0)),
)  # fmt: skip
eq = Op(
    name="eq", signature="ff->b", reference=np.equal, meaning="a == b",
    llvm="fcmp oeq {f} {0}, {1}", wgsl="{0} == {1}",
    commutative=True, latex="{0} = {1}", points=((1.0, 2.0), (2.0, 2.0)),
)  # fmt: skip
ne = Op(
    name="ne", signature="ff->b", reference=np.not_equal, meaning="a != b",
    llvm="fcmp une {f} {0}, {1}", wgsl="{0} != {1}",
    commutative=True, latex=r"{0} \ne {1}", points=((1.0, 2.0), (2.0, 2.0)),
)  # fmt: skip
logical_and = Op(
    name="logical_and", signature="bb->b", reference=np.logical_and, meaning="a and b",
    llvm="and {b} {0}, {1}",
    wgsl="{0} & {1}", commutative=True, latex=r"{0} \wedge {1}", points=((0, 1), (1, 1)),
    laws=lambda a, b: _laws(exact(a & a, a)),
)  # fmt: skip
logical_or = Op(
    name="logical_or", signature="bb->b", reference=np.logical_or, meaning="a or b",
    llvm="or {b} {0}, {1}",
    wgsl="{0} | {1}", commutative=True, latex=r"{0} \vee {1}", points=((0, 1), (1, 1)),
    laws=lambda a, b: _laws(exact(a | a, a)),
)  # fmt: skip
logical_xor = Op(
    name="logical_xor", signature="bb->b", reference=np.logical_xor, meaning="one of a and b",
    llvm="xor {b} {0}, {1}",
    wgsl="{0} != {1}", commutative=True, latex=r"{0} \oplus {1}", points=((0, 1), (1, 1)),
)  # fmt: skip
logical_not = Op(
    name="logical_not", signature="b->b", reference=np.logical_not, meaning="not a",
    llvm="xor {b} {0}, {true}",
    wgsl="!{0}", latex=r"\neg {0}", points=((0,), (1,)), laws=lambda a: _laws(exact(~~a, a)),
)  # fmt: skip
isnan = Op(
    name="isnan", signature="f->b", reference=np.isnan, meaning="whether x is NaN", cost=2,
    llvm="fcmp uno {f} {0}, {0}",
    wgsl="(bitcast<u32>({0}) & 0x7fffffffu) > 0x7f800000u", points=((1.0,), (NAN,)),
)  # fmt: skip
isinf = Op(
    name="isinf", signature="f->b", reference=np.isinf, meaning="whether x is +inf or -inf",
    llvm="a = call {f} @llvm.fabs.{m}({f} {0}); fcmp oeq {f} {a}, {infinity}",
    wgsl="(bitcast<u32>({0}) & 0x7fffffffu) == 0x7f800000u", cost=2, points=((1.0,), (math.inf,)),
)  # fmt: skip
isfinite = Op(
    name="isfinite", signature="f->b", reference=np.isfinite, meaning="neither NaN nor infinite",
    llvm="a = call {f} @llvm.fabs.{m}({f} {0}); fcmp olt {f} {a}, {infinity}",
    wgsl="(bitcast<u32>({0}) & 0x7fffffffu) < 0x7f800000u", cost=2, points=((1.0,), (NAN,)),
)  # fmt: skip
where = Op(
    name="where", signature="bff->f", reference=reference.where, cost=1,
    meaning="a where the condition c holds, else b",
    llvm="select {b} {0}, {f} {1}, {f} {2}", wgsl="select({2}, {1}, {0})",
    vjp=lambda g, y, c, a, b: (None, Masked(c, g), Masked(~c, g)),
    laws=lambda c, a, b: _laws(
        exact(where(c, a, a), a),
        exact(where(~c, a, b), where(c, b, a)),
        exact(where(c, where(c, a, b), b), where(c, a, b)),
        exact(where(c, a, where(c, b, a)), a),
    ),
    latex=r"\begin{{cases}} {1} & {0} \\ {2} & \text{{otherwise}} \end{{cases}}",
    edges="nothing of the other branch reaches value or derivative, not even NaN",
    points=((0, 2.0, -3.0), (1, 2.0, -3.0)),
)  # fmt: skip
stop_gradient = Op(
    name="stop_gradient", signature="f->f", reference=np.positive, cost=0,
    meaning="x, taken as a constant by differentiation", partials=lambda y, x: (None,),
    transparent=True, points=((0.5,),),
)  # fmt: skip

# --- bits: what the library's own functions are made of -------------------------------------------

float_bits = Op(
    name="float_bits", signature="f->u", meaning="the 32 bits of a float",
    reference=lambda x: np.asarray(x, dtype=np.float32).view(np.uint32),
    llvm="bitcast {f} {0} to {u}", wgsl="bitcast<u32>({0})", points=((1.5,),),
)  # fmt: skip
bits_float = Op(
    name="bits_float", signature="u->f", meaning="the float with these 32 bits",
    reference=lambda x: np.asarray(x, dtype=np.uint32).view(np.float32),
    llvm="bitcast {u} {0} to {f}", wgsl="bitcast<f32>({0})", points=((0x3FC00000,),),
)  # fmt: skip
word_add = Op(
    name="word_add", signature="uu->u", reference=np.add, meaning="a + b modulo 2**32",
    llvm="add {u} {0}, {1}", wgsl="{0} + {1}", commutative=True, points=((7, 9),),
)  # fmt: skip
word_and = Op(
    name="word_and", signature="uu->u", reference=np.bitwise_and, meaning="the bits in a and in b",
    llvm="and {u} {0}, {1}", wgsl="{0} & {1}", commutative=True, points=((7, 9),),
)  # fmt: skip
word_div = Op(
    name="word_div", signature="uu->u", reference=np.floor_divide, meaning="a // b, b constant",
    llvm="udiv {u} {0}, {1}", wgsl="{0} / {1}", points=((29, 9),),
)  # fmt: skip
word_sub = Op(
    name="word_sub", signature="uu->u", reference=np.subtract, meaning="a - b modulo 2**32",
    llvm="sub {u} {0}, {1}", wgsl="{0} - {1}", points=((29, 9), (9, 29)),
)  # fmt: skip
word_mul = Op(
    name="word_mul", signature="uu->u", reference=np.multiply, meaning="a * b modulo 2**32",
    llvm="mul {u} {0}, {1}", wgsl="{0} * {1}", commutative=True,
    points=((29, 9), (0x12345678, 0x9ABCDEF)),
)  # fmt: skip
word_or = Op(
    name="word_or", signature="uu->u", reference=np.bitwise_or, meaning="the bits in a or in b",
    llvm="or {u} {0}, {1}", wgsl="{0} | {1}", commutative=True, points=((7, 9),),
)  # fmt: skip
word_xor = Op(
    name="word_xor", signature="uu->u", reference=np.bitwise_xor, meaning="the bits in one of them",
    llvm="xor {u} {0}, {1}", wgsl="{0} ^ {1}", commutative=True, points=((7, 9),),
)  # fmt: skip
word_shift_left = Op(
    name="word_shift_left", signature="uu->u", reference=np.left_shift,
    meaning="a * 2**b modulo 2**32, b < 32",
    llvm="shl {u} {0}, {1}", wgsl="{0} << {1}", points=((29, 9), (0x90000001, 3)),
)  # fmt: skip
word_shift_right = Op(
    name="word_shift_right", signature="uu->u", reference=np.right_shift,
    meaning="a // 2**b, b < 32",
    llvm="lshr {u} {0}, {1}", wgsl="{0} >> {1}", points=((29, 3), (0x90000001, 31)),
)  # fmt: skip
word_lt = Op(
    name="word_lt", signature="uu->b", reference=np.less, meaning="a < b of words",
    llvm="icmp ult {u} {0}, {1}", wgsl="{0} < {1}", points=((7, 9), (0x90000001, 3)),
)  # fmt: skip
word_where = Op(
    name="word_where", signature="buu->u", reference=reference.where,
    meaning="the word a where the condition c holds, else b",
    llvm="select {b} {0}, {u} {1}, {u} {2}", wgsl="select({2}, {1}, {0})",
    points=((1, 7, 9), (0, 7, 9)),
)  # fmt: skip
word_float = Op(
    name="word_float", signature="u->f", meaning="the float with the value of a word below 2**24",
    reference=lambda x: np.asarray(x, dtype=np.float32),
    llvm="uitofp {u} {0} to {f}", wgsl="f32({0})", points=((29,),),
)  # fmt: skip
wide_div = Op(
    name="wide_div", signature="ff->f", reference=np.true_divide, cost=6,
    meaning="a / b, also where 1/b is subnormal, which some devices flush to 0",
    llvm="fdiv {f} {0}, {1}", wgsl="{0} / {1}", points=((1.5, -0.7), (0.4, 2.0)),
)  # fmt: skip
ratio = Op(
    name="ratio", signature="ff->f", reference=np.true_divide, cost=4,
    meaning="a / b as the device divides, which may be off by 3 ULP",
    llvm="fdiv {f} {0}, {1}", wgsl="{0} / {1}", points=((1.5, -0.7), (0.4, 2.0)),
)  # fmt: skip
root = Op(
    name="root", signature="f->f", reference=np.sqrt, cost=4,
    meaning="the square root as the device has it, which may be off by 3 ULP",
    llvm="call {f} @llvm.sqrt.{m}({f} {0})", wgsl="sqrt({0})", points=((2.0,), (0.3,)),
)  # fmt: skip
saturate = Op(
    name="saturate", signature="f->f", reference=lambda x: np.clip(x, 0, 1),
    meaning="x limited to [0, 1]; of NaN, some number in [0, 1] or NaN",
    llvm="a = call {f} @llvm.maxnum.{m}({f} {0}, {f} {zero}); "
    "call {f} @llvm.minnum.{m}({f} {a}, {f} {one})",
    wgsl="saturate({0})", points=((0.25,), (-4.0,), (3.0,)),
)  # fmt: skip

# --- angles: the parts of sine, cosine and tangent ------------------------------------------------

quarters = Op(
    name="quarters", signature="f->f", reference=reference.quarters, cost=4,
    meaning="12582912 + k, k whole: the quarter turns nearest to x radians, if they are many mod 4",
    points=((0.5,), (-4.0,), (1e5,)),
)  # fmt: skip
angle = Op(
    name="angle", signature="ff->f", reference=reference.angle, cost=10,
    meaning="what is left of x radians without k quarter turns, q = quarters(x) = 12582912 + k",
    points=((0.5, 12582912.0), (-4.0, 12582909.0), (1e5, 12582912.0 + 63662 % 4)),
)  # fmt: skip
far_quarters = Op(
    name="far_quarters", signature="f->f", reference=reference.quarters, cost=50,
    meaning="quarters(x) for |x| > 3000", points=((1e5,), (-4e30,)),
)  # fmt: skip
far_angle = Op(
    name="far_angle", signature="f->f", cost=60,
    reference=lambda x: reference.angle(x, reference.quarters(x)),
    meaning="x radians without the nearest multiple of pi/2", points=((0.5,), (-4.0,), (1e5,)),
)  # fmt: skip
far_sin = Op(
    name="far_sin", signature="f->f", reference=np.sin, cost=120, transcendental=True,
    meaning="sin(x) for |x| > 3000", points=((1e5,), (-4e30,)),
)  # fmt: skip
far_cos = Op(
    name="far_cos", signature="f->f", reference=np.cos, cost=120, transcendental=True,
    meaning="cos(x) for |x| > 3000", points=((1e5,), (-4e30,)),
)  # fmt: skip
far_tan = Op(
    name="far_tan", signature="f->f", reference=np.tan, cost=120, transcendental=True,
    meaning="tan(x) for |x| > 3000", points=((1e5,), (-4e30,)),
)  # fmt: skip
sin_turns = Op(
    name="sin_turns", signature="f->f", reference=reference.sin_turns, cost=14, transcendental=True,
    meaning="the sine of x turns, sin(2*pi*x)", points=((0.3,), (-1.3,), (1e5,), (50000.3,)),
)  # fmt: skip
cos_turns = Op(
    name="cos_turns", signature="f->f", reference=reference.cos_turns, cost=12, transcendental=True,
    meaning="the cosine of x turns, cos(2*pi*x)", points=((0.3,), (-1.3,), (1e5,), (50000.3,)),
)  # fmt: skip
sine = Op(
    name="sine", signature="ff->f", reference=reference.sine, cost=12, transcendental=True,
    meaning="the sine of the angle a, |a| <= pi/4, and k quarter turns, q = 12582912 + k",
    points=((0.5, 12582912.0), (0.5, 12582913.0), (0.5, 12582910.0), (-0.5, 12582911.0)),
)  # fmt: skip
cosine = Op(
    name="cosine", signature="ff->f", reference=reference.cosine, cost=12, transcendental=True,
    meaning="the cosine of the angle a, |a| <= pi/4, and k quarter turns, q = 12582912 + k",
    points=((0.5, 12582912.0), (0.5, 12582913.0), (0.5, 12582910.0), (-0.5, 12582911.0)),
)  # fmt: skip
tangent = Op(
    name="tangent", signature="ff->f", reference=reference.tangent, cost=16, transcendental=True,
    meaning="the tangent of the angle a, |a| <= pi/4, and k quarter turns, q = 12582912 + k",
    points=((0.5, 12582912.0), (0.5, 12582913.0), (0.5, 12582910.0), (-0.5, 12582911.0)),
)  # fmt: skip

# --- scaling: what the float64 functions are made of ----------------------------------------------

scalb = Op(
    name="scalb", signature="ff->f", reference=reference.scalb, cost=3,
    meaning="x * 2**k, k a whole number of at most 2100 in absolute value",
    llvm="h = fmul {f} {1}, {half}; i = call {f} @llvm.floor.{m}({f} {h}); "
    "j = fsub {f} {1}, {i}; p = fadd {f} {i}, {biased}; q = fadd {f} {j}, {biased}; "
    "pw = bitcast {f} {p} to {w}; qw = bitcast {f} {q} to {w}; "
    "ps = shl {w} {pw}, {digits}; qs = shl {w} {qw}, {digits}; "
    "pf = bitcast {w} {ps} to {f}; qf = bitcast {w} {qs} to {f}; y = fmul {f} {0}, {pf}; "
    "fmul {f} {y}, {qf}",
    wgsl="ldexp({0}, i32({1}))", points=((1.5, 3.0), (-0.7, -5.0)),
)  # fmt: skip
exponent = Op(
    name="exponent", signature="f->f", reference=reference.exponent, cost=3,
    meaning="floor(log2(|x|)) of a normal x", points=((1.5,), (-40.0,)),
    llvm="x = bitcast {f} {0} to {w}; s = lshr {w} {x}, {digits}; e = and {w} {s}, {exponents}; "
    "o = or {w} {e}, {whole}; v = bitcast {w} {o} to {f}; fsub {f} {v}, {whole_bias}",
    wgsl="f32(i32((bitcast<u32>({0}) >> 23u) & 0xffu) - 127)",
)  # fmt: skip
significand = Op(
    name="significand", signature="f->f", reference=reference.significand, cost=2,
    meaning="x / 2**exponent(x) of a normal x, in ±[1, 2)", points=((1.5,), (-40.0,)),
    llvm="x = bitcast {f} {0} to {w}; d = and {w} {x}, {unscaled}; o = or {w} {d}, {one_word}; "
    "bitcast {w} {o} to {f}",
    wgsl="bitcast<f32>((bitcast<u32>({0}) & 0x807fffffu) | 0x3f800000u)",
)  # fmt: skip
upper = Op(
    name="upper", signature="f->f", reference=reference.upper,
    meaning="x cut to half its digits, 26 of 53 bits (float32: 12 of 24): products are exact",
    llvm="x = bitcast {f} {0} to {w}; h = and {w} {x}, {leading}; bitcast {w} {h} to {f}",
    wgsl="bitcast<f32>(bitcast<u32>({0}) & 0xfffff000u)", points=((1.5,), (-40.0 - 2.0**-40,)),
)  # fmt: skip

opaque = Op(
    name="opaque", signature="f->f", reference=np.positive, cost=1,
    meaning="x, rounded where it stands: no compiler can see through it",
    partials=lambda y, x: (1,), points=((1.5,),),
    wgsl="bitcast<f32>(bitcast<u32>({0}) ^ params.zero)",
)  # fmt: skip

TABLE: Final[dict[str, Op]] = {
    entry.name: entry for entry in (*LEAVES, *globals().values()) if isinstance(entry, Op)
}
"""Every row by its name."""


def row(name: str) -> Op:
    """The row of this name: how pickled graphs find their operations again."""
    return TABLE[name]


def _reduce(op: Op) -> tuple[Any, tuple[str]]:
    if TABLE.get(op.name) is not op:
        raise PickleError(
            f"{op.name} has a derivative of the user's own, whose code a pickle cannot hold"
        )
    return row, (op.name,)


copyreg.pickle(Op, _reduce)
