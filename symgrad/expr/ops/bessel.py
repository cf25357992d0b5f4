"""Bessel functions: the modified ones of both kinds, and those of the first kind, J_0 and J_1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from symgrad.expr.graph.node import Op
from symgrad.expr.ops.arithmetic import abs, sign, sqrt
from symgrad.expr.ops.comparison import isnan, where
from symgrad.expr.ops.exponential import exp, log, pow
from symgrad.expr.ops.trigonometric import asinh, cosh, sinh
from symgrad.lazy import mpmath as _mp
from symgrad.lazy import sympy as _sp

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

I0E_SERIES: Final = tuple((-0.5) ** k * math.comb(2 * k, k) / math.factorial(k) for k in range(30))
"""exp(-a) I_0(a), a power series in a."""
I1E_SERIES: Final = tuple(
    -((-0.5) ** k) * math.comb(2 * k, k - 1) / math.factorial(k) if k else 0.0 for k in range(30)
)
"""exp(-a) I_1(a), a power series in a."""

I0E_SLOPE: Final = (
    -0.5073557739547689, 0.6595219093236178, -0.7198915585733741, 0.7408466109652158,
    -0.7457372874229143, 0.7498823502184158, -0.7669918709892566, 0.8083222720600471,
    -0.8685966810812367, 0.8965103946617824, -0.7799044283852593, 0.41635342977206785,
    0.11261742618615807, -0.4544821841549661, 0.27791122262071843, 0.21467586639492475,
    -0.355277144319056, -0.06393804893066636, 0.3392960085362978, 0.015994429364264897,
    -0.314664114595391, -0.03784131464084203, 0.2888335786452612, 0.10707949334304481,
    -0.24044700083486303, -0.2043427927194718, 0.14286571201153406, 0.30214141386611465,
    0.01589524751598833, -0.36573836964326806, -0.21475088936706752, 0.36785946652198565,
    0.3968357843893129, -0.3065705473595159, -0.49513342306220715, 0.2089686355088621,
    0.47542884614212516, -0.11395314226367778, -0.3615840871425007, 0.04801593484011068,
    0.21752718948945146, -0.014748154986388122, -0.10166142102160093, 0.0029344545260906545,
    0.035650589738786334, -0.0002564773762694973, -0.008831348392066096, -2.3305553719145274e-05,
    0.001377983081578879, 5.8077891211174e-06, -0.00010183094324777445,
)
"""(I_1(a) - I_0(a)) exp(-a) (a + 9)**1.5 in t = 1 - 20/(a + 9), a >= 1 (tools/fit.py)."""
I1E_SLOPE: Final = (
    -0.4363279954419804, 0.4340647362880396, -0.32835414965546195, 0.18790065161833305,
    -0.037351000875180326, -0.11647531649485755, 0.2773522009642492, -0.4531881128607213,
    0.638392058374752, -0.7801228772209011, 0.7581551676199411, -0.45373645238164817,
    -0.06616216542181433, 0.4409855808336203, -0.30050257090588833, -0.19228034118675372,
    0.3625928108034846, 0.04405744771029545, -0.34098777042158757, 0.0005367055094757413,
    0.31584855450713034, 0.023876919650304442, -0.2920361868016958, -0.09564682338398822,
    0.24679525198540855, 0.1964655073887219, -0.15225484166771763, -0.29941113846534434,
    -0.004918962051447978, 0.369293190979065, 0.2046661760592867, -0.37727967306213256,
    -0.3900834092192023, 0.31948843936346727, 0.4928003640040147, -0.22192788297852142,
    -0.4766851889080149, 0.12407223991866981, 0.3644062387394298, -0.05421725462698677,
    -0.22008278989848867, 0.01768821029972424, 0.10317767086867519, -0.003977719280381435,
    -0.0362758730621597, 0.0005175360204145217, 0.009005876068974083, -1.7789443983430375e-05,
    -0.0014078506625544974, -2.7470379490112563e-06, 0.00010420764116973845,
)
"""As above, of the slope of exp(-a) I_1(a)."""

K_EXCESS: Final = (
    0.9971865030942927, -0.5762560608535712, 0.3125903272082344, -0.16212483480232273,
    0.0833526855047963, -0.04237403498431099, 0.021488385928408644, -0.01084568230535938,
    0.005469661336775768, -0.0027512707744046195, 0.0013836889330969876, -0.0006946833284371468,
    0.000348830703611547, -0.00017494072102165588, 8.776286317375834e-05,
    -4.3916479509800645e-05, 2.201657696024343e-05, -1.1181614837590525e-05,
    5.60940176152139e-06, -2.4986339576360903e-06, 1.2424908960710034e-06,
    -1.064288335648792e-06, 5.460348401208776e-07, 1.839096281043984e-07,
    -1.0383513153377757e-07, -2.7882435100251374e-07, 1.469401553128176e-07,
    8.599301457279795e-08, -4.5764680408457846e-08, -2.31033312309918e-08,
    1.2051666693059097e-08,
)
"""(K_1(x) - K_0(x)) exp(x) (x + 1)**1.5 in t = 1 - 3/(x + 1), x >= 1/2 (tools/fit.py)."""

K1E_SLOPE: Final = (
    -1.687865108259296, 1.9555416015353722, -1.528010812603655, 1.0432625508910482,
    -0.6611135001120816, 0.40059786435826966, -0.23530312383889682, 0.13518843633277283,
    -0.07635926389331646, 0.04256741559850844, -0.023476752128791887, 0.012835887127528322,
    -0.006966457000411486, 0.0037575338213495743, -0.0020159305927154375, 0.0010772841644861642,
    -0.0005729460279272005, 0.00030145582625595483, -0.00015927958473495977, 8.902431063202209e-05,
    -4.6708344416502155e-05, 1.5607163789572838e-05, -8.251139249420022e-06, 1.5675967792101943e-05,
    -8.080276284413005e-06, -6.406490626275836e-06, 3.265052717609833e-06, 5.319065757646564e-06,
    -2.725468063959351e-06, -1.6984357772358294e-06, 8.691142349923413e-07, 3.8007351953349025e-07,
    -1.9486554052633245e-07,
)
"""As above, of the derivative of exp(x) K_1(x)."""


def _sum(x: Any, coefficients: Sequence[float]) -> Any:
    total = 0.0
    for c in reversed(coefficients):
        total = total * x + c
    return total


def shifted(a: Any) -> Any:
    """1 - 20/(a + 9) for a >= 1, next to 1 from a - 1, which is exact there."""
    r = 1.0 / (a + 9.0)
    near = a < 11.0
    return where(near, 2.0 * ((where(near, a, 1.0) - 1.0) * r) - 1.0, 1.0 - 20.0 * r)


def _slope(x: Any, series: tuple[float, ...], far: tuple[float, ...]) -> Any:
    """That series' derivative for |x| < 1, else a polynomial over (|x| + 9)**1.5."""
    near = abs(x) < 1.0
    a = where(near, 1.0, abs(x))
    r = 1.0 / (a + 9.0)
    inside = _sum(where(near, abs(x), 0.0), [k * c for k, c in enumerate(series)][1:])
    return where(near, inside, _sum(shifted(a), far) * (r * sqrt(r)))


def _excess(x: Any) -> Any:
    """k1e - k0e, by a polynomial where they are about the same."""
    return _near_or_far(x, k1e(x) - k0e(x), K_EXCESS)


def _near_or_far(x: Any, near: Any, far: tuple[float, ...]) -> Any:
    """``near`` for x < 1/2, else a polynomial over (x + 1)**1.5."""
    r = 1.0 / (where(x < 0.5, 0.5, x) + 1.0)
    return where(x < 0.5, near, _sum(1.0 - 3.0 * r, far) * (r * sqrt(r)))


i0e = Op(
    name="i0e", signature="f->f", cost=60, transcendental=True,
    meaning="exp(-|x|)*I_0(x), a modified Bessel function", scipy=True,
    partials=lambda y, x: (sign(x) * _slope(x, I0E_SERIES, I0E_SLOPE),),
    exact=lambda x: _mp.besseli(0, x) * _mp.exp(-_mp.fabs(x)),
    latex=r"e^{{-\left|{0}\right|}}I_0\left({0}\right)",
    edges="the derivative is taken to be 0 at 0, where the slopes are 1 and -1",
    points=((0.5,), (-0.25,), (3.0,), (-9.0,), (30.0,), (1000.0,), (1e-3,)),
    example=0.645035270449, public=True,
)
i1e = Op(
    name="i1e", signature="f->f", cost=60, transcendental=True,
    meaning="exp(-|x|)*I_1(x), a modified Bessel function", scipy=True,
    partials=lambda y, x: (_slope(x, I1E_SERIES, I1E_SLOPE),),
    exact=lambda x: _mp.besseli(1, x) * _mp.exp(-_mp.fabs(x)),
    latex=r"e^{{-\left|{0}\right|}}I_1\left({0}\right)",
    edges="the second derivative is taken to be 0 at 0, where it jumps",
    points=((0.5,), (-0.25,), (2.0,), (3.0,), (-9.0,), (30.0,), (1000.0,), (1e-3,)),
    example=0.156420803185, public=True,
)
k0e = Op(
    name="k0e", signature="f->f", cost=90, transcendental=True,
    meaning="exp(x)*K_0(x), a modified Bessel function of the second kind", scipy=True,
    partials=lambda y, x: (-_excess(x),), exact=lambda x: _mp.besselk(0, x) * _mp.exp(x),
    latex=r"e^{{{0}}}K_0\left({0}\right)", domain="x >= 0", edges="inf at 0, 0 at inf",
    points=((0.25,), (1e-3,), (0.75,), (1.5,), (9.0,), (1000.0,)),
    example=1.9793338486, public=True,
)
k1e = Op(
    name="k1e", signature="f->f", cost=90, transcendental=True,
    meaning="exp(x)*K_1(x), a modified Bessel function of the second kind", scipy=True,
    partials=lambda y, x: (_near_or_far(x, y - k0e(x) - y / x, K1E_SLOPE),),
    exact=lambda x: _mp.besselk(1, x) * _mp.exp(x),
    latex=r"e^{{{0}}}K_1\left({0}\right)", domain="x >= 0", edges="inf at 0, 0 at inf",
    points=((0.25,), (1e-3,), (0.75,), (1.5,), (9.0,), (1000.0,)),
    example=4.81127658817, public=True,
)


# Modified Bessel functions of the second kind of any constant order, of rows of the table.

_RECIPROCAL_GAMMA: Final = (
    1.0, 0.5772156649015329, -0.6558780715202539, -0.04200263503409524, 0.16653861138229148,
    -0.04219773455554433, -0.009621971527876973, 0.0072189432466631, -0.0011651675918590652,
    -0.00021524167411495098, 0.0001280502823881162, -2.013485478078824e-05, -1.2504934821426706e-06,
    1.1330272319816959e-06, -2.056338416977607e-07, 6.116095104481416e-09, 5.0020076444692229e-09,
    -1.1812745704870201e-09, 1.0434267116911005e-10,
)  # fmt: skip
"""1/Gamma(1 + f) in f (DLMF 5.7.1)."""

_TERMS: Final = 11
"""Of Temme's series, whose next is below 2**-55 at 1."""

_STEP, _NODES = 0.21875, 28
"""The trapezoidal rule's: it errs by exp(-2 pi sqrt(2)/step) at 1."""


def _series(f: float, x: Any) -> tuple[Any, Any]:
    """K of the orders f and f + 1, 0 < |f| <= 1/2, x <= 1 (Temme, 1975, J. Comp. Physics 19)."""
    even, odd = (
        sum(c * f ** (k - k % 2) for k, c in enumerate(_RECIPROCAL_GAMMA) if k % 2 == parity)
        for parity in (0, 1)
    )
    log_of = math.log(2.0) - log(x)
    growth = pow(2.0 / x, f)
    shrink = 1.0 / growth
    steep = math.fabs(f) * log_of > 1.0
    sine = where(steep, 0.5 * (growth - shrink), sinh(f * where(steep, 0.0, log_of)))
    scale = math.pi * f / math.sin(math.pi * f)
    u = scale * (sine * (even / f) - 0.5 * (growth + shrink) * odd)
    p, q = 0.5 * math.gamma(1.0 + f) * growth, 0.5 * math.gamma(1.0 - f) * shrink
    square, power = 0.25 * (x * x), 1.0
    first, second = u, p
    for k in range(1, _TERMS):
        u = (float(k) * u + p + q) * (1.0 / (k * k - f * f))
        p, q = p * (1.0 / (k - f)), q * (1.0 / (k + f))
        power = power * square * (1.0 / k)
        first, second = first + power * u, second + power * (p - float(k) * u)
    return first, second * 2.0 / x


def _integrals(f: float, x: Any) -> tuple[Any, Any]:
    """exp(x) K of the orders f and f + 1, x >= 1: integrals of exp(-2 x sinh(t/2)**2) cosh(f t).

    With u = sqrt(2 x) sinh(t/2) they are those of exp(-u**2) times what has poles at ±i sqrt(2 x).
    """
    inverse, first, second = 1.0 / sqrt(2.0 * x), 0.0, 0.0
    for k in reversed(range(_NODES)):
        u = k * _STEP
        weight = 2.0 * _STEP * math.exp(-u * u) * (1.0 if k else 0.5)
        share = weight / sqrt(2.0 * x + u * u)
        t = 2.0 * asinh(u * inverse)
        first, second = first + share * cosh(f * t), second + share * cosh((f + 1.0) * t)
    return first, second


def scaled_bessel_k(order: float, x: Any) -> Any:
    """exp(x) K of a constant order >= 0, by the recurrence from orders about 0: all positive."""
    whole = math.floor(order + 0.5)
    f = order - whole
    if f == 0.0:
        value, after = k0e(x), k1e(x)
    else:
        inside = (x > 0.0) & (x < 1.0)
        near, far = where(inside, x, 0.5), where(x < 1.0, 1.0, x)
        growth = exp(near)
        pairs = zip(_series(f, near), _integrals(f, far), strict=True)
        value, after = (where(inside, growth * a, b) for a, b in pairs)
        value, after = (
            where(x > 0.0, v, where(isnan(x) | (x < 0.0), math.nan, math.inf))
            for v in (value, after)
        )
    for k in range(whole):
        value, after = after, value + (2.0 * (f + (k + 1))) * after / x
    return value


# The Bessel functions of the first kind J_0 and J_1, also known as cylinder functions.

_RATIO_SLOPE: Final = tuple(
    (-1) ** k * k * 4.0**-k / (math.factorial(k) * math.factorial(k + 1)) for k in range(1, 18)
)
"""The derivative of j1_ratio over x, a power series in x**2, for |x| < 3."""


def _ratio_slope(y: Any, x: Any) -> Any:
    """-J_2(x)/x by J_2 = 2 J_1/x - J_0; near 0 the series, which has all its derivatives right."""
    square, series = x * x, 0.0
    for c in reversed(_RATIO_SLOPE):
        series = series * square + c
    near = abs(x) < 3.0
    return where(near, x * series, (j0(x) - 2.0 * y) / where(near, 1.0, x))


_AMPLITUDE: Final = "beyond its second zero errors are small beside sqrt(2/(pi x)), the amplitude"

j0 = Op(
    name="j0", signature="f->f", cost=80, transcendental=True,
    meaning="J_0(x), a Bessel function of the first kind", partials=lambda y, x: (-j1(x),),
    exact=lambda x: _mp.besselj(0, x), sympy=lambda x: _sp.besselj(0, x), scipy=True,
    latex=r"J_0\left({0}\right)", edges=f"0 at ±inf; {_AMPLITUDE}",
    points=((0.0,), (1e-5,), (0.5,), (-1.0,), (1.7,), (3.0,), (-4.6,), (7.0,), (9.7,), (-123.4,)),
    example=1.0, public=True,
)
j1 = Op(
    name="j1", signature="f->f", cost=80, transcendental=True,
    meaning="J_1(x), a Bessel function of the first kind",
    partials=lambda y, x: (j0(x) - j1_ratio(x),),
    exact=lambda x: _mp.besselj(1, x), sympy=lambda x: _sp.besselj(1, x), scipy=True,
    latex=r"J_1\left({0}\right)", edges=f"±0.0 at ±inf; {_AMPLITUDE}",
    points=((0.0,), (1e-5,), (0.5,), (-1.0,), (1.2,), (3.0,), (-4.6,), (6.1,), (9.3,), (-123.4,)),
    example=0.0, public=True,
)
j1_ratio = Op(
    name="j1_ratio", signature="f->f", cost=90, transcendental=True,
    meaning="J_1(x)/x, 1/2 at 0: of the derivative of j1",
    partials=lambda y, x: (_ratio_slope(y, x),),
    exact=lambda x: _mp.besselj(1, x) / x if x else _mp.mpf(1) / 2,
    latex=r"\frac{{J_1\left({0}\right)}}{{{0}}}", edges="0 at ±inf; as j1 next to zeros",
    points=((0.0,), (1e-5,), (0.5,), (-1.0,), (1.2,), (3.0,), (-4.6,), (6.1,), (9.3,), (-123.4,)),
)
