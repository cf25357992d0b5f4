"""Where the float64 functions are tested, and how far they may be from the true values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

import mpmath as mp
import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, Graph, inputs_of, reachable
from symgrad.expr.laws.simplify import Definition, Rewriter, simplify
from symgrad.expr.semantics.evaluate import evaluate_graph, leaf
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.define import DOUBLE, define

from ..cases import (
    BETA,
    CALM,
    FADDEEVA,
    GAMMA,
    amplitude,
    beta_arguments,
    cancelling,
    gamma_arguments,
    half_plane,
)

Array = Any
PARTS: Final = ("modulus", "far_modulus", "far_sin", "far_cos", "far_tan")
"""What other functions are composed of: tested with them."""

FORMULA: Final = {op.name: f for op, f in DOUBLE.items()}
NAMES: Final = [name for name in FORMULA if name not in PARTS]
INF: Final = np.inf
TINY: Final = float(np.finfo(np.float64).tiny)
CONTEXT: Final = mp.mp.clone()
CONTEXT.dps = 40

BOUNDS: Final[dict[str, float]] = {
    "minimum": 0.0, "maximum": 0.0, "sign": 0.0, "remainder": 0.501, "fmod": 0.0,
    "exp": 0.75, "exp2": 0.65, "expm1": 0.85, "exp_neg_square": 0.75,
    "log": 0.85, "log2": 0.85, "log10": 0.72, "log1p": 0.88,
    "sin": 0.82, "cos": 0.82, "tan": 0.92, "asin": 0.8, "acos": 0.75, "atan": 0.76, "atan2": 0.76,
    "sinh": 0.87, "cosh": 0.86, "tanh": 0.82, "asinh": 0.86, "acosh": 0.86, "atanh": 0.86,
    "pow": 0.7, "cbrt": 0.51, "rsqrt": 0.501, "hypot": 0.51, "erf": 0.82, "erfc": 0.85,
    "bell": 0.66, "normal_cdf": 0.78, "gelu": 0.72, "gelu_slope": 1.4,
    "sigmoid": 0.64, "logistic": 0.64, "softplus": 0.75, "logaddexp": 0.8,
    "sigmoid_difference": 0.7, "logistic_difference": 0.7, "real_reciprocal": 0.6,
    "real_reciprocal_square": 0.6, "direction": 0.6,
    "silu": 0.64, "silu_slope": 0.82, "gelu_tanh": 0.65, "gelu_tanh_slope": 0.85,
    "gammaln": 3.2, "digamma": 2.6, "trigamma": 2.3, "tetragamma": 2.8, "pentagamma": 4.0,
    "sinc": 2.2, "sinc_ratio": 3.8,
    "j0": 2.5, "j1": 2.4, "j1_ratio": 3.7,
    "log_ndtr": 3.8, "mills_excess": 3, "erfinv": 3.8, "ndtri": 3.8,
    "gammainc": 4, "gammaincc": 4, "gamma_density": 3.8, "gammainc_slope": 16,
    "gammainc_bend": 16, "betainc_slope_a": 12, "betainc_slope_b": 12,
    "betainc": 7, "betaincc": 7, "beta_density": 4.6,
    "faddeeva_real": 7, "faddeeva_imag": 7, "faddeeva_real_slope": 6, "faddeeva_imag_slope": 12,
    "faddeeva_real_bend": 12, "faddeeva_imag_bend": 14, "exp_square": 0.75,
    "ellipkm1": 4, "ellipe": 4, "elliptic_b": 4, "elliptic_d": 4,
}  # fmt: skip
"""Largest error found among millions of arguments, in ULP, a little rounded up."""

SPECIAL: Final = (
    "gammaln", "digamma", "trigamma", "tetragamma", "pentagamma", "sinc", "sinc_ratio",
    "log_ndtr", "mills_excess", "erfinv", "ndtri", "j0", "j1", "j1_ratio",
    "gammainc", "gammaincc", "gamma_density",
    "ellipkm1", "ellipe", "elliptic_b", "elliptic_d",
)  # fmt: skip
"""Special functions, without pairs of numbers: they may be wrong by up to 4 ULP."""

SHAPES: Final = ("gammainc_slope", "gammainc_bend", "betainc_slope_a", "betainc_slope_b")
"""Derivatives by a shape: they may be wrong by up to 16 ULP."""

PLANE: Final = FADDEEVA
"""Parts of complex functions: wrong by up to 12 ULP, those of derivatives of absolute values."""

SLOPES: Final = ("gelu_slope", "silu_slope", "gelu_tanh_slope")
"""Derivatives, which have a root where their terms cancel: they may be wrong by up to 2 ULP."""

WORST: Final[dict[str, tuple[float, ...]]] = {
    "bell": (-22.632440700115126, 19.074682981291218, -0.7961568136072328),
    "normal_cdf": (
        -0.8574737510152028, -0.7808862491663768, -0.7959397861916546, -0.8882282039314691,
        -0.875, 0.875,
    ),
    "gelu": (-1.846562898195999, -0.9999999973152915, -0.8756441585477839),
    "gelu_slope": (-0.9079814124562202, -0.8912982608870861, -0.8849454387379573),
    "sigmoid": (-404.3658258325072, -489.00087216283305, -3.8169818525874644),
    "logistic": (-479.279524876546, 557.639496538821, 581.2157767187571),
    "softplus": (-0.9194143139351043, -1.0000002248719597, -1.3153186046153698),
    "silu": (-681.6967418968665, -486.8588706900542, -691.3796607246218),
    "silu_slope": (-1.034883854005829, -1.4014024179244813, -1.2784645427610737, -1.27846454276107),
    "gelu_tanh": (-20.98457965644801, -16.383442669442108, -1.9997713085046263),
    "gelu_tanh_slope": (-0.6304219542606679, -0.8302693243844009, -0.7524614220710163),
}  # fmt: skip
"""The worst arguments found."""


@cache
def graph_of(name: str) -> tuple[Graph, int]:
    """The definition as a back end takes it: traced, expanded and simplified."""
    function = define(ops.TABLE[name], FORMULA[name], "float64")
    simple, tops = function.graph, [function.root]
    for part in PARTS:  # each is made of those after it
        simple, tops = simplify(simple, tops, True, {ops.TABLE[part]: _expansion(part)})
    return simple, tops[0]


def _expansion(name: str) -> Definition:
    """What writes a definition into a graph that is being simplified."""

    def expand(rewriter: Rewriter, *arguments: int) -> int:
        return FORMULA[name](*[Expr(rewriter.graph, a) for a in arguments]).id

    return expand


def arity(name: str) -> int:
    """The number of arguments."""
    return ops.TABLE[name].arity


def evaluate(name: str, *arguments: Array) -> Array:
    """The function in float64."""
    graph, root = graph_of(name)
    inputs = dict(zip(inputs_of(graph), arguments, strict=True))
    return evaluate_graph(graph, [root], inputs, np.float64)[0]


def contracted(name: str, *arguments: Array) -> Array:
    """The function in float64, each product that is used once fused with the sum that uses it."""
    graph, root = graph_of(name)
    order = reachable(graph, [root])
    uses = Counter(a for i in order if graph.nodes[i][0].arity for a in graph.nodes[i][1:])
    values: dict[int, Array] = dict(zip(inputs_of(graph), arguments, strict=True))

    def factors(i: int) -> tuple[Array, Array] | None:
        node = graph.nodes[i]
        fused = node[0] is ops.mul and uses[i] == 1
        return (values[node[1]], values[node[2]]) if fused else None

    with np.errstate(all="ignore"):
        for i in order:
            op, *args = graph.nodes[i]
            sign = -1.0 if op is ops.sub else 1.0
            if not op.arity:
                values[i] = values[i] if op is INPUT else leaf(graph.nodes[i], np.float64)
            elif op in (ops.add, ops.sub) and (pair := factors(args[0])):
                values[i] = _fma(*pair, sign * values[args[1]])
            elif op in (ops.add, ops.sub) and (pair := factors(args[1])):
                values[i] = _fma(sign * pair[0], pair[1], values[args[0]])
            else:
                values[i] = op.reference(*[values[a] for a in args])
    return np.broadcast_to(values[root], arguments[0].shape)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once, nearly always: the product in two exact pieces."""
    (a_high, a_low), (b_high, b_low) = _cut(a), _cut(b)
    product = a * b
    lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + c
    part = total - product
    lost = lost + ((product - (total - part)) + (c - part))
    return np.where(np.isfinite(lost), total + lost, total)


def _cut(a: Array) -> tuple[Array, Array]:
    """a as a sum of two numbers of at most 26 bits (Veltkamp)."""
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _power(x: Any, p: Any) -> Any:
    """x**p of real numbers: mpmath's own is complex for x < 0."""
    if x < 0:
        return CONTEXT.power(-x, p) * (-1) ** int(p)
    return CONTEXT.power(x, p)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + CONTEXT.exp(-x)) if x > -1000 else CONTEXT.exp(x)


def _normal(x: Any) -> Any:
    return CONTEXT.erfc(-max(x, -1000) / CONTEXT.sqrt(2)) / 2 if x < 1000 else 1


def _density(x: Any) -> Any:
    return CONTEXT.exp(-x * x / 2) / CONTEXT.sqrt(2 * CONTEXT.pi)


def _cubic(x: Any) -> Any:
    return 2 * CONTEXT.sqrt(2 / CONTEXT.pi) * (x + CONTEXT.mpf("0.044715") * x**3)


def _slope(z: Any, b: Any) -> Any:
    """The derivative of x s(z), s the sigmoid and b = x z'."""
    return _sigmoid(z) * (1 + b * _sigmoid(-z))


def _logaddexp(a: Any, b: Any) -> Any:
    return max(a, b) + CONTEXT.log1p(CONTEXT.exp(-abs(a - b)))


def _remainder(a: Any, b: Any) -> Any:
    with CONTEXT.workprec(2300):
        r = abs(a) - abs(b) * CONTEXT.floor(abs(a) / abs(b))
        r = abs(b) - r if r and (a < 0) != (b < 0) else r
        return r if b > 0 else -r


def _fmod(a: Any, b: Any) -> Any:
    with CONTEXT.workprec(2300):
        r = abs(a) - abs(b) * CONTEXT.floor(abs(a) / abs(b))
        return r if a > 0 else -r


def _log_normal(x: Any) -> Any:
    """log Phi(x), by erfc's own asymptotic series far to the left."""
    with CONTEXT.workdps(60):
        if x > 0:
            return CONTEXT.log1p(-_normal(-x))
        if x > -1000:
            return CONTEXT.log(_normal(x))
        return -x * x / 2 - CONTEXT.log(2 * CONTEXT.pi) / 2 - CONTEXT.log(_mills_excess(x) - x)


def _mills_excess(x: Any) -> Any:
    """x + phi(x)/Phi(x)."""
    with CONTEXT.workdps(80):
        if x < -1000:
            z = 1 / (x * x)
            return -(1 - 2 * z + 10 * z**2 - 74 * z**3 + 706 * z**4 - 8162 * z**5) / x
        return x + (_density(x) / _normal(x) if x < 1000 else 0)


def _quantile(p: Any) -> Any:
    """The root of log Phi(x) - log p, to 40 digits."""
    with CONTEXT.workdps(60):
        if not 0 < p < 1:
            return (2 * p - 1) * CONTEXT.inf
        if p > 0.5:
            return -_quantile(1 - p)
        x = -CONTEXT.sqrt(-2 * CONTEXT.log(2 * p)) if p < 0.5 else CONTEXT.mpf(0)
        for _ in range(8 if x else 0):
            x -= (_log_normal(x) - CONTEXT.log(p)) * _normal(x) / _density(x)
        return x


def _inverse_erf(x: Any) -> Any:
    return CONTEXT.erfinv(x) if abs(x) < 0.1 else _quantile((1 + x) / 2) / CONTEXT.sqrt(2)


def _gamma(a: Any, x: Any, upper: bool) -> Any:
    """Up to a the lower function's series, above it the upper one's continued fraction (Lentz)."""
    with CONTEXT.workdps(60):
        density = CONTEXT.exp(a * CONTEXT.log(x) - x - CONTEXT.loggamma(a + 1))
        below = x <= a + 1
        value = density * (_lower_series(a, x) if below else a / _upper_fraction(a, x))
        return value if upper != below else 1 - value


def _beta(a: Any, b: Any, x: Any, upper: bool) -> Any:
    """The continued fraction of the lower function below about the mean, else of the upper one."""
    with CONTEXT.workdps(60):
        below = x < (a + 1) / (a + b + 2)
        p, q, s = (a, b, x) if below else (b, a, 1 - x)
        value = _beta_density(p, q, s) * s * (1 - s) / p * _beta_fraction(p, q, s)
        return value if upper != below else 1 - value


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    with CONTEXT.workdps(60):
        rest = CONTEXT.loggamma(a + b) - CONTEXT.loggamma(a) - CONTEXT.loggamma(b)
        return CONTEXT.exp((a - 1) * CONTEXT.log(x) + (b - 1) * CONTEXT.log(1 - x) + rest)


def _beta_fraction(a: Any, b: Any, x: Any) -> Any:
    c = CONTEXT.one
    found = d = 1 / (1 - (a + b) * x / (a + 1))
    k, change = 0, CONTEXT.zero
    while abs(change - 1) > CONTEXT.eps:
        k += 1
        for term in (
            k * (b - k) * x / ((a - 1 + 2 * k) * (a + 2 * k)),
            -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 1 + 2 * k)),
        ):
            d, c = 1 / (1 + term * d), 1 + term / c
            change = c * d
            found *= change
    return found


def _lower_series(a: Any, x: Any) -> Any:
    total = term = CONTEXT.one
    k = 0
    while term > total * CONTEXT.eps:
        k += 1
        term *= x / (a + k)
        total += term
    return total


def _upper_fraction(a: Any, x: Any) -> Any:
    b = x + 1 - a
    found = c = b
    d, k, change = CONTEXT.zero, 0, CONTEXT.zero
    while abs(change - 1) > CONTEXT.eps:
        k += 1
        b += 2
        d = 1 / (b - k * (k - a) * d)
        c = b - k * (k - a) / c
        change = c * d
        found *= change
    return found


def _sinc_ratio(x: Any) -> Any:
    """By the series of the Bessel function of order 3/2."""
    z = (CONTEXT.pi * x) ** 2 / 4
    return CONTEXT.hyp0f1(CONTEXT.mpf(5) / 2, -z) / 3


def _by_shape(a: Any, x: Any) -> Any:
    """P(a, x) by a, by a series."""
    with CONTEXT.workdps(60):
        series = x**a / (a * a) * CONTEXT.hyp2f2(a, a, a + 1, a + 1, -x) / CONTEXT.gamma(a)
        lower = CONTEXT.gammainc(a, 0, x, regularized=True)
        return (CONTEXT.log(x) - CONTEXT.psi(0, a)) * lower - series


def _bend_by_shape(a: Any, x: Any) -> Any:
    """Its second derivative, by differences."""
    with CONTEXT.workdps(120):
        return CONTEXT.diff(
            lambda s: CONTEXT.gammainc(s, 0, x, regularized=True),
            a,
            2,
            h=a * CONTEXT.mpf(10) ** -30,
        )


def _beta_by_shape(a: Any, b: Any, x: Any, which: int) -> Any:
    """I_x(a, b) by a or b, by differences, whose values cancel 250 digits next to 1."""
    with CONTEXT.workdps(300):
        shape = (a, b)[which]
        return CONTEXT.diff(
            lambda s: CONTEXT.betainc(*((s, b), (a, s))[which], 0, x, regularized=True),
            shape, h=shape * CONTEXT.mpf(10) ** -60,
        )  # fmt: skip


def _faddeeva(order: int, x: Any, y: Any) -> Any:
    """w(z), or its first or second derivative, with the digits that these lose far out."""
    with CONTEXT.workdps(70):
        z = CONTEXT.mpc(x, y)
        if abs(z) > 40.0:
            powers = (math.prod(range(1, 2 * k, 2)) / (2 * z * z) ** k for k in range(25))
            value = 1j / (CONTEXT.sqrt(CONTEXT.pi) * z) * sum(powers)
        else:
            value = CONTEXT.exp(-z * z) * CONTEXT.erfc(-1j * z)
        slope = 2j / CONTEXT.sqrt(CONTEXT.pi) - 2 * z * value
        return (value, slope, -2 * (value + z * slope))[order]


def _elliptic(p: Any, of_sines: bool) -> Any:
    """D(1 - p) or B(1 - p), by K and E with as many more digits as their difference loses."""
    if p == 0 or p == CONTEXT.inf:
        return (CONTEXT.inf if of_sines else CONTEXT.one) if p == 0 else CONTEXT.zero
    with CONTEXT.workdps(400 if p < 1e-30 or p > 1e30 else 100):
        if p == 1:
            return CONTEXT.pi / 4
        k, e = CONTEXT.pi / 2 / CONTEXT.agm(1, CONTEXT.sqrt(p)), CONTEXT.ellipe(1 - p)
        return ((k - e) if of_sines else (e - p * k)) / (1 - p)


TRUE: Final[dict[str, Callable[..., Any]]] = {
    "minimum": min, "maximum": max, "sign": CONTEXT.sign, "remainder": _remainder, "fmod": _fmod,
    "exp2": lambda x: CONTEXT.power(2, x), "log2": lambda x: CONTEXT.log(x) / CONTEXT.ln2,
    "exp_neg_square": lambda x: CONTEXT.exp(-x * x), "pow": _power,
    "cbrt": lambda x: CONTEXT.sign(x) * CONTEXT.cbrt(abs(x)),
    "log10": lambda x: CONTEXT.log(x) / CONTEXT.ln10, "rsqrt": lambda x: 1 / CONTEXT.sqrt(x),
    "bell": lambda x: CONTEXT.exp(-x * x / 2), "normal_cdf": _normal,
    "gelu": lambda x: x * _normal(x), "gelu_slope": lambda x: _normal(x) + x * _density(x),
    "sigmoid": _sigmoid, "logistic": lambda x: _sigmoid(x) * _sigmoid(-x),
    "softplus": lambda x: max(x, 0) + CONTEXT.log1p(CONTEXT.exp(-abs(x))), "logaddexp": _logaddexp,
    "sigmoid_difference": lambda a, b: _sigmoid(a - b),
    "logistic_difference": lambda a, b: _sigmoid(a - b) * _sigmoid(b - a),
    "real_reciprocal": lambda a, b: a / (a * a + b * b),
    "real_reciprocal_square": lambda a, b: (a - b) * (a + b) / (a * a + b * b) ** 2,
    "direction": lambda a, b: a / CONTEXT.hypot(a, b),
    "silu": lambda x: x * _sigmoid(x), "silu_slope": lambda x: _slope(x, x),
    "gelu_tanh": lambda x: x * _sigmoid(_cubic(x)),
    "gelu_tanh_slope": lambda x: _slope(
        _cubic(x), 3 * _cubic(x) - 4 * CONTEXT.sqrt(2 / CONTEXT.pi) * x
    ),
    "gammaln": lambda x: CONTEXT.re(CONTEXT.loggamma(x)), "digamma": lambda x: CONTEXT.psi(0, x),
    "trigamma": lambda x: CONTEXT.psi(1, x), "tetragamma": lambda x: CONTEXT.psi(2, x),
    "pentagamma": lambda x: CONTEXT.psi(3, x), "sinc": lambda x: CONTEXT.sincpi(x),
    "sinc_ratio": lambda x: _sinc_ratio(x),
    "j0": lambda x: CONTEXT.besselj(0, x), "j1": lambda x: CONTEXT.besselj(1, x),
    "j1_ratio": lambda x: CONTEXT.besselj(1, x) / x if x else CONTEXT.mpf(0.5),
    "gammainc": lambda a, x: _gamma(a, x, False), "gammaincc": lambda a, x: _gamma(a, x, True),
    "gammainc_slope": lambda a, x: _by_shape(a, x),
    "gammainc_bend": lambda a, x: _bend_by_shape(a, x),
    "betainc_slope_a": lambda a, b, x: _beta_by_shape(a, b, x, 0),
    "betainc_slope_b": lambda a, b, x: _beta_by_shape(a, b, x, 1),
    "gamma_density": lambda a, x: CONTEXT.exp(
        (a - 1) * CONTEXT.log(x) - x - CONTEXT.loggamma(a)
    ),
    "betainc": lambda a, b, x: _beta(a, b, x, False),
    "betaincc": lambda a, b, x: _beta(a, b, x, True), "beta_density": _beta_density,
    "exp_square": lambda x: CONTEXT.exp(x * x),
    **{
        f"faddeeva_{part}{name}": lambda x, y, part=part, order=order: getattr(
            _faddeeva(order, x, y), part
        )
        for part in ("real", "imag")
        for order, name in enumerate(("", "_slope", "_bend"))
    },
    "ellipkm1": lambda p: CONTEXT.ellipk(1 - p) if p > 1e-25 else (
        CONTEXT.log(16 / p) / 2 if p else CONTEXT.inf
    ),
    "ellipe": lambda m: CONTEXT.ellipe(m), "elliptic_b": lambda p: _elliptic(p, False),
    "elliptic_d": lambda p: _elliptic(p, True),
    "log_ndtr": lambda x: _log_normal(x), "mills_excess": lambda x: _mills_excess(x),
    "erfinv": lambda x: _inverse_erf(x), "ndtri": lambda p: _quantile(p),
    **{
        n: getattr(CONTEXT, n)
        for n in [
            "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
            "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "hypot", "erf", "erfc",
        ]
    },
}  # fmt: skip
"""The true functions, of mpmath numbers."""


def errors(name: str, *arguments: Array, fuse: bool = False) -> Array:
    """The errors in units of the last place, 0 where the true value is neither normal nor inf."""
    return errors_of(name, (contracted if fuse else evaluate)(name, *arguments), *arguments)


def errors_of(name: str, values: Array, *arguments: Array) -> Array:
    """The errors of these values of the function, in the same units."""
    waves = amplitude(name, arguments[0]) if name in CALM else np.zeros(len(values))
    if name in FADDEEVA[2:]:
        sizes = zip(*[v.tolist() for v in arguments], strict=True)
        waves = np.array([float(abs(_faddeeva(FADDEEVA.index(name) // 2, x, y))) for x, y in sizes])
    if name == "gammainc_bend":
        waves = cancelling(name, arguments)
    return np.array(
        [
            _error(g, _true(name, *a), u)
            for g, u, *a in zip(
                values.tolist(), waves, *[v.tolist() for v in arguments], strict=True
            )
        ]
    )


@lru_cache(2**13)
def _true(name: str, *arguments: float) -> Any:
    """The true value, which takes longer than all that is compared with it."""
    return TRUE[name](*map(CONTEXT.mpf, arguments))


def _error(got: float, want: Any, unit: float) -> float:
    nearest = float(want)
    if not np.isfinite(nearest):
        return 0.0 if got == nearest else INF
    if not np.isfinite(got):
        return INF if abs(nearest) < 1.797693134862315e308 else 0.0
    last = np.spacing(max(abs(nearest), unit))
    if abs(nearest) < TINY:
        return 0.0 if abs(CONTEXT.mpf(got) - want) <= 2 * last else INF
    return float(abs(CONTEXT.mpf(got) - want) / last)


LIMITS: Final[dict[str, tuple[float, float]]] = {
    "exp": (-746.0, 710.0), "exp2": (-1076.0, 1025.0), "expm1": (-40.0, 710.0),
    "exp_neg_square": (-28.0, 28.0), "exp_square": (-26.6, 26.6),
    "log": (0.0, INF), "log2": (0.0, INF), "log10": (0.0, INF),
    "log1p": (-1.0, INF), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0),
    "sinh": (-711.0, 711.0), "cosh": (-711.0, 711.0), "tanh": (-22.0, 22.0),
    "acosh": (1.0, INF), "atanh": (-1.0, 1.0), "erf": (-6.5, 6.5), "erfc": (-6.5, 28.0),
    "rsqrt": (0.0, INF), "bell": (-39.0, 39.0), "normal_cdf": (-39.0, 9.0), "gelu": (-39.0, 9.0),
    "gelu_slope": (-39.0, 9.0), "sigmoid": (-746.0, 40.0), "logistic": (-746.0, 746.0),
    "softplus": (-746.0, 40.0), "silu": (-753.0, 40.0), "silu_slope": (-753.0, 45.0),
    "gelu_tanh": (-21.6, 8.0), "gelu_tanh_slope": (-21.6, 8.0),
    "gammaln": (1e-300, 1e300), "digamma": (1e-300, 1e300), "trigamma": (1e-150, 1e300),
    "tetragamma": (1e-100, 1e140), "pentagamma": (1e-70, 1e90), "sinc": (-1e6, 1e6),
    "sinc_ratio": (-1.2, 1.2), "log_ndtr": (-1e6, 2.5), "mills_excess": (-1e4, 1e300),
    "ellipkm1": (0.0, INF), "ellipe": (-INF, 1.0), "elliptic_b": (0.0, INF),
    "elliptic_d": (0.0, INF),
    "erfinv": (-1.0, 1.0), "ndtri": (1e-300, 1.0),
}  # fmt: skip
"""Where the functions are defined, or not constant, if not everywhere."""


def grid(name: str, count: int = 250, seed: int = 1) -> tuple[Array, ...]:
    """Arguments for a function: over all magnitudes, near 1, near multiples of pi/2, at ends."""
    draw = np.random.default_rng(seed)
    if name == "pow":
        return _bases_and_exponents(draw, count)
    if name in GAMMA:
        a, x = gamma_arguments(draw, count, 40.0 if name in SHAPES else 1e4)
        a, x = (a[x < 80.0], x[x < 80.0]) if name in SHAPES else (a, x)
        return a.astype(np.float64), x.astype(np.float64)
    if name in FADDEEVA:
        x, y = half_plane(draw, count // 2)
        return x.astype(np.float64), y.astype(np.float64)
    if name in BETA:
        return tuple(
            v.astype(np.float64)
            for v in beta_arguments(draw, count // 10, 40.0 if name in SHAPES else 1e5)
        )
    arguments = [_spread(draw, count) for _ in range(arity(name))]
    if len(arguments) == 2:
        a, b = arguments
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            b[:count] = a[:count] * np.exp(draw.uniform(-9, 9, count))
            b[count : 2 * count] = a[count : 2 * count] * np.exp(draw.uniform(-40, 0, count))
        usable = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
        if name == "logaddexp":  # where it is near 0, the sum cancels
            usable &= np.abs(np.logaddexp(a, b)) > 0.125 * np.maximum(np.abs(a), np.abs(b))
        return a[usable], b[usable]
    x = np.concatenate([arguments[0], np.array(WORST.get(name, ()))])
    if name in LIMITS:
        low, high = LIMITS[name]
        ends = [e for e in LIMITS[name] if np.isfinite(e)]
        more = [draw.uniform(max(low, -2000.0), min(high, 2000.0), 2 * count)]
        more += [e - np.sign(e) * 2.0 ** draw.uniform(-54, 2, count) for e in ends]
        x = np.concatenate([x, *more])
        x = x[(x >= low) & (x <= high) & np.isfinite(x)]
    return (x[(x != 0) | np.full(len(x), name not in ("log", "log2", "log10", "rsqrt"))],)


def _spread(draw: np.random.Generator, count: int) -> Array:
    signs = draw.choice([-1.0, 1.0], count)
    multiples = np.concatenate([np.arange(1.0, 40.0), np.floor(2.0 ** draw.uniform(0, 23, count))])
    parts = [
        signs * 2.0 ** draw.uniform(-1022, 1024, count),
        signs * np.exp(draw.uniform(np.log(1e-9), np.log(800.0), count)),
        signs * draw.uniform(0.0, 1.5, count),
        draw.uniform(-10.0, 10.0, count),
        signs * (1.0 + draw.uniform(-1.0, 1.0, count) * 2.0 ** draw.uniform(-53.0, 0.0, count)),
        multiples * (np.pi / 2) * draw.choice([-1.0, 1.0], len(multiples)),
        np.arange(-20.0, 21.0) * np.log(2.0) / 2,
        signs * 2.0 ** draw.uniform(-1074, -1022, count),
        draw.uniform(-750.0, 750.0, count),
    ]
    return np.concatenate(parts)


def _bases_and_exponents(draw: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Powers over the whole range of float64, and whole exponents of negative bases."""
    bases = np.abs(_spread(draw, count))
    bases = bases[(bases > 0) & np.isfinite(bases) & (bases != 1.0)]
    wanted = draw.uniform(-1074.0, 1024.0, len(bases)) * draw.choice([1.0, 0.01], len(bases))
    exponents = np.clip(wanted / np.log2(bases), -1e18, 1e18)
    negative = draw.random(len(bases)) < 0.2
    return np.where(negative, -bases, bases), np.where(negative, np.round(exponents), exponents)


def nearest_to_zero() -> Array:
    """The float64 numbers below 2**24 that come nearest to multiples of pi/2, for each exponent."""
    found: list[float] = []
    with CONTEXT.workdps(80):
        for e in range(-53, -28):
            rest = CONTEXT.ldexp(2 / CONTEXT.pi, e)
            before, last = 0, 1  # denominators of the convergents of 2**e * 2/pi
            while last < 2**53:
                rest = 1 / (rest - int(rest))
                before, last = last, int(rest) * last + before
                found += [last * j * 2.0**e for j in range(1, 20) if last * j < 2**53]
    return np.array([x for x in found if 0.7 < x <= 2.0**24])
