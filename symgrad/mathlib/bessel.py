"""Bessel functions: J_0 and J_1 by power series, then factors next to zeros, and modified ones.

Beyond their second zeros J_0 and J_1 are waves, J_n(x) = sqrt(2/(pi x)) (p cos(t) - q sin(t)) with
t = x - (n + 1/2) pi/2, where p and q are polynomials in 1/x (Hankel). There errors are small beside
the amplitude sqrt(2/(pi x)); before, beside the value, also next to a zero.

The formulas are the same in float32 and float64; the coefficients are not, nor are the sines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from symgrad.expr import ops
from symgrad.expr.ops.bessel import I0E_SERIES, I1E_SERIES, shifted
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import Coefficients, coefficients, has_sign, keep_nan, polynomial

# The modified Bessel functions I_0 and I_1 times exp(-|x|), K_0 and K_1 times exp(x).
#
# Power series up to 1, those of K with a logarithm, and polynomials beyond.

I0E: Final = coefficients("""
    0.5443938618659506 -0.23515884302179382 0.1533918223954638 -0.11213733419485952
    0.08709148532071494 -0.07076512069976214 0.060112364402429355 -0.05375164304345915
    0.05064811835293356 -0.048676411871937365 0.04340845517463097 -0.029465006284083165
    0.006458717177617218 0.014872637387909926 -0.018120466367791677 0.00101509443751047
    0.014392587799172537 -0.0069529783772926314 -0.010267071261810541 0.00796566240538995
    0.008373692595755055 -0.007180592973249057 -0.00809249252433815 0.005706716370914472
    0.008341400068408987 -0.003971284391893115 -0.008147043193231795 0.0023239541340569197
    0.00696693890334831 -0.0010803468277177017 -0.004950924808439548 0.0003670286217387906
    0.0027986796935222545 -7.688219718385732e-05 -0.001198857357432709 4.166265774464139e-06
    0.0003635096477767614 2.1280939623512674e-06 -6.925359108486722e-05 -4.0468438937866897e-07
    6.216958201190794e-06
""")
"""exp(-a) I_0(a) (a + 9)**0.5 in t = 1 - 20/(a + 9), a >= 1 (tools/fit.py)."""
I1E: Final = coefficients("""
    0.5190260731682121 -0.17681495885787418 0.08442114900061387 -0.039100425718019256
    0.012762290401404372 0.0040158611898934915 -0.015731346665963947 0.025014063801491637
    -0.03319782898914967 0.039578949156587044 -0.040412293085498575 0.03034777587934074
    -0.008727980368314778 -0.013481162779087272 0.01849818969540692 -0.002155876034892733
    -0.014097898199569536 0.0076683323020733185 0.009857458045353311 -0.008449148611776956
    -0.008015597298215597 0.007571550097930793 0.007828747255066415 -0.006063425844108595
    -0.008180773088641458 0.0042958087633735795 0.00807988470356121 -0.0025905206166397313
    -0.0069656392358463555 0.0012653762313381788 0.00497879263269973 -0.00047014306234197003
    -0.0028264083633385926 0.00012066105380066828 0.0012146091778159145 -1.736513995035818e-05
    -0.0003691950718036338 3.771702863365252e-07 7.047378860684834e-05 1.803309356259114e-07
    -6.3364133262918285e-06
""")
"""exp(-a) I_1(a) (a + 9)**0.5 in t."""

K0E: Final = coefficients("""
    1.3955231960877035 -0.17265345863562945 0.0377102808159398 -0.009206362404387037
    0.0024672897163440957 -0.0006787029159132592 0.00019530896162707714 -5.6487948277165955e-05
    1.6895049589144924e-05 -5.013341630973642e-06 1.5408237844177516e-06 -4.6240567662796144e-07
    1.4591748996904902e-07 -4.3733284835127075e-08 1.4130226071360712e-08 -4.03938704078619e-09
    1.5977897599062022e-09 -4.5195158727198385e-10 5.029512414696314e-11 -1.5208304407839218e-11
    5.60574867718112e-11
""")
"""exp(x) K_0(x) (x + 1)**0.5 in t = 1 - 4/(x + 1), x >= 1."""
K1E: Final = coefficients("""
    1.6131269602575737 -0.4738574102018254 0.15178416552553387 -0.05020291653821635
    0.016614226111957724 -0.00552896243490421 0.00183771989005932 -0.000612424008748726
    0.00020378202150615385 -6.795361328663536e-05 2.2615957888135544e-05 -7.5474136093613016e-06
    2.5109594214958013e-06 -8.35689075722416e-07 2.7791273405250974e-07 -9.665735303927698e-08
    3.184767175520932e-08 -7.808729164860623e-09 2.703531245435952e-09 -2.1752616244231394e-09
    6.686331437763248e-10
""")
"""exp(x) K_1(x) (x + 1)**0.5 in t."""

K_TERMS: Final = 10
"""Of the series of K, whose next is below 2**-60 at 1."""

GAMMA: Final = 0.5772156649015329
"""Euler's constant."""

TERMS: Final = 24
"""Of the power series, whose next is below 2**-55 at 1."""


def _scaled(a: Expr, far: Coefficients, near: Expr) -> Expr:
    beyond = polynomial(shifted(a), far) / ops.sqrt(a + 9.0)
    return ops.where(a < 1.0, near, beyond)


def i0e(x: Expr) -> Expr:
    """A power series below 1, a polynomial over the root of |x| + 9 beyond."""
    a = ops.abs(x)
    near = polynomial(ops.where(a < 1.0, a, 0.0), I0E_SERIES[:TERMS])
    return keep_nan(_scaled(a, I0E, near), x)


def i1e(x: Expr) -> Expr:
    """As `i0e`, for the odd function."""
    a = ops.abs(x)
    near = a * polynomial(ops.where(a < 1.0, a, 0.0), I1E_SERIES[1:TERMS])
    return keep_nan(ops.copysign(_scaled(a, I1E, near), x), x)


def _outside(x: Expr, far: Coefficients) -> Expr:
    """The polynomial for x >= 1."""
    more = ops.where(x < 1.0, 1.0, x) + 1.0
    return polynomial(1.0 - 4.0 / more, far) / ops.sqrt(more)


def _second_kind(x: Expr, near: Expr, far: Coefficients) -> Expr:
    """exp(x) times the series for x < 1, else the polynomial; inf at 0, NaN for x < 0."""
    value = ops.where(x < 1.0, near, _outside(x, far))
    return keep_nan(ops.where(x > 0.0, value, ops.where(x < 0.0, math.nan, math.inf)), x)


def _inside(x: Expr) -> tuple[Expr, Expr, Expr]:
    """x for 0 < x < 1 and elsewhere 1/2; (x/2)**2; and log(2/x) - gamma."""
    x = ops.where((x > 0.0) & (x < 1.0), x, 0.5)
    return x, (0.5 * x) * (0.5 * x), (math.log(2.0) - GAMMA) - ops.log(x)


def k0e(x: Expr) -> Expr:
    """The sum of (x/2)**(2 k)/k!**2 (log(2/x) - gamma + H_k) below 1, a polynomial beyond."""
    at, square, log = _inside(x)
    squares = [1.0 / math.factorial(k) ** 2 for k in range(K_TERMS)]
    of_log = polynomial(square, squares)
    rest = square * polynomial(square, [c * _harmonic(k) for k, c in enumerate(squares)][1:])
    return _second_kind(x, ops.exp(at) * (of_log * log + rest), K0E)


def k1e(x: Expr) -> Expr:
    """1/x less a series with the same logarithm below 1, a polynomial beyond."""
    at, square, log = _inside(x)
    products = [1.0 / (math.factorial(k) * math.factorial(k + 1)) for k in range(K_TERMS)]
    means = [0.5 * (_harmonic(k) + _harmonic(k + 1)) for k in range(K_TERMS)]
    rest = polynomial(square, [c * h for c, h in zip(products, means, strict=True)])
    series = 1.0 / at - (0.5 * at) * (polynomial(square, products) * log + rest)
    return _second_kind(x, ops.exp(at) * series, K1E)


def _harmonic(k: int) -> float:
    """1 + 1/2 + ... + 1/k."""
    return math.fsum(1.0 / j for j in range(1, k + 1))


@dataclass(frozen=True)
class Stretch:
    """Where J_n(z + d) = d P(d), z being a zero.

    Attributes:
        zero: z, in two pieces.
        end: the z + d up to which this holds.
        factor: P.
    """

    zero: tuple[float, float]
    end: float
    factor: Coefficients


@dataclass(frozen=True)
class Fits:
    """The differences of float32 and float64, and of J_0 and J_1.

    Attributes:
        order: n of J_n.
        start: up to where the power series is taken.
        series: (J_n(x)/(x/2)**n - 1)/x**2 in x**2.
        stretches: those next to zeros, up to where waves begin.
        even: (p - 1) x**2 in 1/x**2.
        odd: q x in 1/x**2.
        circle: the sine and the cosine.
    """

    order: int
    start: float
    series: Coefficients
    stretches: tuple[Stretch, ...]
    even: Coefficients
    odd: Coefficients
    circle: Callable[[Expr], tuple[Expr, Expr]]


class Digits(NamedTuple):
    """The differences of float32 and float64: the coefficients of J_0 and of J_1."""

    j0: Fits
    j1: Fits


J0_SERIES: Final = (-0.25, 0.0156249525, -0.00043388695, 6.6161642e-06)
"""(J_0(x)/1 - 1)/x**2 in x**2, x < 1: J_0 to 0.* 2**-24 of its value (tools/fit.py)."""
J0_FIRST: Final = coefficients("""
    -0.5191475 0.1079387 0.056601774 -0.008657662 -0.0021941934 0.00026435786 4.3715125e-05
    -4.318393e-06 -5.176415e-07 3.700977e-08
""")
"""J_0(z + d)/d in d, z its first zero, 1 <= z + d < 3.5."""
J0_SECOND: Final = coefficients("""
    0.3402648 -0.030820632 -0.05298855 0.004630945 0.0022574295 -0.00017504643 -4.6495075e-05
    3.1227535e-06 5.517857e-07 -1.9960138e-08
""")
"""J_0(z + d)/d in d, z its second zero, 3.5 <= z + d < 7."""
J0_EVEN: Final = (-0.0703073, 0.11048207, -0.4104098)
"""(p - 1) x**2 in 1/x**2, 7 <= x."""
J0_ODD: Final = (-0.124998994, 0.07282108, -0.18118086)
"""q x in 1/x**2."""
J1_SERIES: Final = (-0.125, 0.005208327, -0.0001084998, 1.3528456e-06, -1.05189395e-08)
"""(J_1(x)/(x/2) - 1)/x**2 in x**2, x < 2."""
J1_FIRST: Final = coefficients("""
    -0.4027594 0.05255614 0.053410415 -0.0051796753 -0.0022330482 0.00017459833 4.613344e-05
    -3.0000988e-06 -5.4160165e-07 2.5103844e-08
""")
"""J_1(z + d)/d in d, z its first zero, but 0, 2 <= z + d < 5.4."""
J1_SECOND: Final = coefficients("""
    0.30011576 -0.021389214 -0.046970457 0.003130288 0.0021055222 -0.00012550034 -4.4922715e-05
    2.3957166e-06 5.3642526e-07 -2.5391802e-08
""")
"""J_1(z + d)/d in d, z its second zero, 5.4 <= z + d < 8.6."""
J1_EVEN: Final = (0.11718545, -0.1432237, 0.5400732)
"""(p - 1) x**2 in 1/x**2, 8.6 <= x."""
J1_ODD: Final = (0.3749996, -0.10229739, 0.23909752)
"""q x in 1/x**2."""


def _circle(x: Expr) -> tuple[Expr, Expr]:
    """Of one reduced angle."""
    q = ops.quarters(x)
    angle = ops.angle(x, q)
    return ops.sine(angle, q), ops.cosine(angle, q)


J0: Final = Fits(
    0, 1.0, J0_SERIES,
    (Stretch((2.404825448989868, 1.087059e-07), 3.5, J0_FIRST),
     Stretch((5.520078182220459, -7.1934146e-08), 7.0, J0_SECOND)),
    J0_EVEN, J0_ODD, _circle,
)  # fmt: skip
J1: Final = Fits(
    1, 2.0, J1_SERIES,
    (Stretch((3.8317060470581055, -7.685059e-08), 5.4, J1_FIRST),
     Stretch((7.015586853027344, -1.8321172e-07), 8.6, J1_SECOND)),
    J1_EVEN, J1_ODD, _circle,
)  # fmt: skip


SINGLE: Final = Digits(J0, J1)


def j0(x: Expr, digits: Digits) -> Expr:
    """A power series, two factors next to zeros, then Hankel's form."""
    return _first_kind(x, digits.j0)


def j1(x: Expr, digits: Digits) -> Expr:
    """As `j0`, for the odd function."""
    return _first_kind(x, digits.j1)


def _first_kind(x: Expr, fits: Fits) -> Expr:
    """J_0 or J_1, the latter an odd function."""
    a, end = ops.abs(x), fits.stretches[-1].end
    inside = a < end
    near, far = ops.where(inside, a, 0.0), ops.where(inside, end, a)
    value = ops.where(inside, _about_zeros(near, fits), _wave(far, fits))
    if fits.order:
        value = ops.where(has_sign(x), -value, value)
    return keep_nan(value, x)


def j1_ratio(x: Expr, digits: Digits) -> Expr:
    """J_1(x)/x, 1/2 at 0.

    About 0 it is the power series.
    """
    value, fits = ops.j1(x), digits.j1
    near = ops.abs(x) < fits.start
    beyond = value / ops.where(near, 1.0, x)
    series = 0.5 * _series(ops.where(near, x, 0.0), fits)
    return keep_nan(ops.where(near, series, beyond), x)


def _series(x: Expr, fits: Fits) -> Expr:
    """J_n(x)/(x/2)**n."""
    square = x * x
    return 1.0 + square * polynomial(square, fits.series)


def _about_zeros(a: Expr, fits: Fits) -> Expr:
    value, start = _series(a, fits), fits.start
    if fits.order:
        value = 0.5 * a * value
    for stretch in fits.stretches:
        d = ops.opaque(a - stretch.zero[0]) - stretch.zero[1]
        value = ops.where(a < start, value, d * polynomial(d, stretch.factor))
        start = stretch.end
    return value


def _wave(a: Expr, fits: Fits) -> Expr:
    """Hankel's form, cos(t) and sin(t) being sums of the sine and the cosine; 0 at inf."""
    sine, cosine = fits.circle(a)
    w = 1.0 / a
    square = w * w
    more, q = square * polynomial(square, fits.even), w * polynomial(square, fits.odd)
    total, rest = sine + cosine, sine - cosine
    wave = rest + (more * rest + q * total) if fits.order else total + (more * total - q * rest)
    return ops.where(a < math.inf, _over_root(0.5 * wave, (0.25 * math.pi) * a), 0.0)


def _over_root(a: Expr, b: Expr) -> Expr:
    """a/sqrt(b), mended by a Newton step for both."""
    root = ops.opaque(ops.sqrt(b))
    inverse = ops.reciprocal(root)
    ratio = ops.opaque(a * inverse)
    lost = 0.5 * inverse * (b - root * root)
    return ratio - inverse * ((ratio * root - a) + ratio * lost)
