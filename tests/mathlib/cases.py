"""Where the library's functions are tested, and how far they may be from the true values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from mpmath import mp

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INPUT, Graph, Op, reachable
from symgrad.mathlib.define import INLINE, Function, define, functions

Array = Any
PARTS: Final = (
    "quarters", "angle", "far_quarters", "far_angle", "sine", "cosine", "tangent",
    "far_sin", "far_cos", "far_tan", "modulus", "far_modulus",
)  # fmt: skip
"""What sin, cos, tan and remainders are composed of: tested with them."""

COMPOSED: Final = (
    "silu_slope", "gelu_slope", "gelu_tanh_slope",
)  # fmt: skip
"""What is expanded into several of the others: right to the rounding of their largest term."""

INTEGERS: Final = (
    "uint32", "int32", "uint32_float", "int32_float", "threefry_first", "threefry_second",
)  # fmt: skip
"""What takes or gives integers, exact or rounded once: tests/expr/test_integers.py, test_random."""

FUNCTIONS: Final[dict[Op, Function]] = {
    **functions("accurate"),
    **{op: define(op, f) for op, f in INLINE.items()},
}
"""All definitions, also those that kernels expand."""
TINY: Final = float(np.finfo(np.float32).tiny)

BOUNDS: Final[dict[str, tuple[float, float]]] = {
    **{op.name: (4.0, 4.0) for op in ops.TABLE.values() if op.definition},
    "minimum": (0.0, 0.0), "maximum": (0.0, 0.0), "sign": (0.0, 0.0), "relu": (0.0, 0.0),
    "fmod": (0.0, 0.0), "remainder": (0.51, 0.51), "wide_div": (0.5, 2.5),
    "pow": (3.1, 4.0), "cbrt": (0.75, 0.75), "hypot": (1.2, 1.2),
    "exp": (2, 2), "exp2": (2, 2), "expm1": (2, 2), "exp_neg_square": (2.5, 2.5),
    "bell": (2, 2), "normal_cdf": (3.2, 3.2),
    "log": (2, 2), "log2": (2, 2), "log10": (2.5, 2.5), "log1p": (2, 2),
    "sinh": (3, 3), "cosh": (3, 3), "tanh": (2, 3),
    "asinh": (3, 3), "acosh": (3, 3), "atanh": (2, 3),
    "sin": (2.5, 2.5), "cos": (2.5, 2.5), "tan": (4, 4),
    "sin_turns": (1.72, 2.1), "cos_turns": (1.8, 2.24),
    "asin": (2.4, 2.4), "acos": (1.2, 1.3), "atan": (2.05, 2.1), "atan2": (2.8, 2.8),
    "erf": (1.4, 1.6), "erfc": (3.31, 3.31),
    "sigmoid": (3.6, 3.6), "logistic": (5, 5), "softplus": (3, 3), "logaddexp": (3.6, 3.6),
    "decay_between": (3, 3), "sigmoid_difference": (3.6, 3.6), "logistic_difference": (5, 5),
    "one_minus_square": (1.5, 1.5), "real_reciprocal": (2.8, 2.8), "direction": (2.5, 2.5),
    "real_reciprocal_square": (6, 6),
    "silu": (3, 3.4), "silu_slope": (4, 4.4), "gelu": (3.4, 3.4), "gelu_tanh": (3.7, 3.7),
    "i0e": (4.2, 4.2), "i1e": (4, 4), "k0e": (4, 4), "k1e": (4, 4),
    "log_ndtr": (4.3, 4.3), "inverse_mills": (3.5, 3.5), "mills_excess": (3.7, 4.3),
    "erfinv": (3, 3), "erfinv_slope": (4, 4), "ndtri": (3.8, 3.8), "ndtri_slope": (4.6, 4.6),
    "xlogy": (2.6, 2.6), "xlog1py": (2.6, 2.6), "entr": (2.6, 2.6), "logit": (2.5, 2.5),
    "log1mexp": (3.5, 3.5), "gammaln": (3, 3), "digamma": (3.2, 3.2), "trigamma": (3, 3),
    "tetragamma": (3.7, 3.7), "pentagamma": (4, 4.2), "sinc": (3, 3.3), "sinc_ratio": (4, 4.6),
    "j0": (3, 3.6), "j1": (3.2, 3.8), "j1_ratio": (4.1, 4.3),
    "gammainc": (5.6, 5.6), "gammaincc": (5.6, 5.6), "gamma_density": (4, 4),
    "gammainc_slope": (8, 8), "gammainc_bend": (12, 12),
    "betainc": (7.5, 7.5), "betaincc": (7.5, 7.5), "beta_density": (5.2, 5.2),
    "betainc_slope_a": (10, 10), "betainc_slope_b": (10, 10),
    "faddeeva_real": (7, 7), "faddeeva_imag": (7, 7), "faddeeva_real_slope": (6.5, 6.5),
    "faddeeva_imag_slope": (11, 11), "faddeeva_real_bend": (9, 9), "faddeeva_imag_bend": (15, 15),
    "voigt_profile": (7, 7), "exp_square": (2, 2), "erfcx": (5, 5.5), "gamma": (6.8, 7.3),
    "ellipkm1": (3.4, 4), "ellipe": (5.2, 5.2), "elliptic_b": (4.8, 4.8), "elliptic_d": (4.6, 4.6),
}  # fmt: skip
"""Largest errors on NumPy, and on llvmpipe and SwiftShader, in ULP, a little rounded up.

A row that says its own definition may be wrong by what the library promises, 4 ULP, unless it has
a bound here.
"""

INEXACT: Final[dict[str, float]] = {
    "cbrt": 1.2, "hypot": 1.4, "asin": 2.6, "acos": 1.6, "atan": 2.8,
    "logistic": 5.1, "logistic_difference": 5.3, "direction": 2.6, "real_reciprocal_square": 7,
    "pentagamma": 4.5, "inverse_mills": 4.1, "j1": 4.1, "j1_ratio": 5.4, "ellipe": 5.6,
    "elliptic_b": 5.2, "elliptic_d": 5.6, "faddeeva_real_slope": 7, "faddeeva_real_bend": 11.5,
    "gammainc": 8.5, "gammaincc": 8.5, "gammainc_slope": 9.6,
    "betainc_slope_a": 11, "betainc_slope_b": 11.5, "faddeeva_imag": 8.5,
}  # fmt: skip
"""Those on an H200 that are larger: GPUs need not round quotients and roots correctly.

The device that `emulate` has with quotients off by 1.9 ULP is held to them too; those of gammainc,
gammaincc, betainc_slope_b and faddeeva_imag are its own.
"""

EDGES: Final = np.array(
    [
        np.nan,
        np.inf,
        3.4e38,
        1e30,
        100.0,
        3.0,
        2.5,
        2.0,
        1.0,
        0.5,
        1e-4,
        1e-30,
        0.0,
        -np.inf,
        -3.4e38,
        -1e30,
        -100.0,
        -3.0,
        -2.5,
        -2.0,
        -1.0,
        -0.5,
        -1e-4,
        -1e-30,
        -0.0,
    ],
    np.float32,
)


WORST: Final[dict[str, tuple[float, ...]]] = {
    "exp": (33.84283, -75.55515, 32.57519, 35.202854, 21.795853),
    "exp2": (-0.5872968, -0.618131, 1.0010257, -0.62728125),
    "expm1": (3.4696884, 3.4885542, -0.6616856, 10.397203),
    "log": (0.7901942, 0.77995628, 1.5877893, 0.78588843),
    "log2": (0.70710975, 0.7072596, 0.9999999, 0.7072686),
    "log10": (1.3212062, 1.3323995, 0.99214792, 0.99123353),
    "log1p": (0.41422698, 0.4153882, -0.37216970, 0.41446981),
    "silu": (-3.2412176, -3.2305303),
    "erfc": (7.8375974, 1.3295959, 6.884403, 1.0991653, 0.8155378, 0.81976742, 1.3502575, 5.8068504,
             6.5900040),
    "sin": (2883.46, 1708.9639, -12833.658, 5.5e-4, 3.1415927, -2158.3367, 16367173 * 2.0**72,
            3.4028235e38),
    "cos": (5.8996266e29, -1525.1179, -7.6786016e33, 1.5707964, -2228.8975, 16367173 * 2.0**72,
            -2.9e38),
    "sin_turns": (0.0047769, 0.0198789), "cos_turns": (0.11810025, 0.093240164),
    "tan": (-1826.8992, -3.9267797, 1532.0609, 1.9547160e33, 16367173 * 2.0**72, 1.5707964,
            -1672.9609, -1914.785),
    "asin": (-0.503318, 0.97, 0.50019705), "acos": (-0.5177329, 0.6714785, 0.63512754),
    "atan": (-0.48968735, -0.48527077),
    "sinh": (88.622833, -2.0903287, -87.95504), "cosh": (88.622833, -89.332886, -87.95504),
    "tanh": (0.65986842, -0.63448298),
    "asinh": (-0.76938188, 1.0039569), "acosh": (1.5191107, 1.5051116),
    "atanh": (-0.5003862, -0.51354575),
    "erf": (-5.40279e-05,), "sigmoid": (-3.4449818,), "softplus": (-0.48242477, -0.44961897),
    "cbrt": (-9.8821070e32, -1600003637248.0),
    "normal_cdf": (-1.1594313, -1.1503996, -1.1706585, -2.5691669, -1.1644267, -1.1596756,
                   -3.852070),
    "gelu": (-1.3309468, -1.3762072, -3.4835143, -4.8158264), "j1_ratio": (8.6764812, 8.7382278),
    "gelu_tanh": (-9.7, -9.638620, -9.471865, -1.8344781, -2.7903328, -10.1),
}  # fmt: skip
"""The worst arguments found by benchmarks/exhaustive.py, and those next to multiples of pi/2."""


WORST_PAIRS: Final[dict[str, tuple[tuple[float, float], ...]]] = {
    "pow": ((1.2221147, 442.30966), (1.2237042, 440.5043), (1.2265002, 434.80826),
            (1.2118583, -454.12802), (1.4122177, 259.64398), (0.7270591, -281.19577)),
    "atan2": ((-12.673846, 29.0), (8.28979, -0.26282966), (0.049918603, 0.11590804)),
    "real_reciprocal": ((1.0020574, -1.0002499),),
    "logaddexp": ((-0.9930941, -0.12298856), (4.900206, -0.054220494), (1.4301578e-06, -9.738088),
                  (-0.00011778183, -9.046711), (-2.0879812, -0.058911387), (4.86032e-08, -2.053229),
                  (-16.067417, -1.0519847e-07), (-2.089339, -0.057685804)),
    "wide_div": ((-0.0074532144, -0.0019093374),),
}  # fmt: skip
"""The same of functions of two arguments; those of logaddexp are near its zeros."""


RANGES: Final[dict[str, tuple[float, float]]] = {
    "log_ndtr": (-1e18, 12.9), "inverse_mills": (-1e38, 12.9), "mills_excess": (-1e36, 1e38),
    "ndtri": (1e-37, 1.0), "ndtri_slope": (1e-36, 0.99999994), "erfinv_slope": (-1.0, 1.0),
    "entr": (1e-36, 1e36), "logit": (1e-37, 1.0), "log1mexp": (1e-37, 87.0),
    "erfcx": (-9.3, 1e36), "exp_square": (-9.3, 9.3), "gamma": (1e-37, 35.0),
    "ellipkm1": (1e-37, 1e38), "ellipe": (-1e38, 1.0), "elliptic_b": (1e-37, 1e38),
    "elliptic_d": (1e-37, 1e38),
    "k0e": (1e-37, 1e38), "k1e": (1e-37, 1e38),
    "gammaln": (1e-37, 1e36), "digamma": (1e-37, 1e38), "trigamma": (1.5e-19, 1e37),
    "tetragamma": (1e-12, 1e18), "pentagamma": (1e-9, 1e12), "sinc_ratio": (-1.2, 1.2),
}  # fmt: skip
"""Where values are normal, and no sums or waves that pass through 0, if not everywhere."""


CALM: Final = {"j0": 7.0, "j1": 8.6, "j1_ratio": 8.6}
"""Up to where errors are small beside values, next to zeros too; beyond, beside the amplitude."""


GAMMA: Final = ("gammainc", "gammaincc", "gamma_density", "gammainc_slope", "gammainc_bend")
"""Functions of the gamma distribution, of its shape and its variable."""


FADDEEVA: Final = (
    "faddeeva_real", "faddeeva_imag", "faddeeva_real_slope", "faddeeva_imag_slope",
    "faddeeva_real_bend", "faddeeva_imag_bend",
)  # fmt: skip
"""Parts of the Faddeeva function and of its first two derivatives."""


BETA: Final = ("betainc", "betaincc", "beta_density", "betainc_slope_a", "betainc_slope_b")
"""Functions of the beta distribution, of its parameters and its variable."""


REFLECTED: Final = ("gammaln", "digamma", "tetragamma")
"""Functions whose values below 0 are differences from those above."""


def evaluate(
    function: Function, *arguments: Array, functions: Mapping[Op, Function] = FUNCTIONS
) -> Array:
    """The function in float32."""
    graph = function.graph
    values: dict[int, Array] = dict(zip(function.arguments, arguments, strict=True))
    with np.errstate(all="ignore"):
        for i in reachable(graph, [function.root]):
            node = graph.nodes[i]
            if node[0].arity:
                values[i] = _apply(node[0], [values[a] for a in node[1:]], functions)
            elif node[0] is not INPUT:
                kind = np.float32 if node[0] is CONST else {"u": np.uint32}.get(node[0].result, int)
                values[i] = kind(Graph.leaf_value(node))
    shape = np.broadcast_shapes(*[np.shape(a) for a in arguments])
    return np.broadcast_to(values[function.root], shape)


def _apply(op: Op, arguments: list[Array], functions: Mapping[Op, Function]) -> Array:
    if op in functions:
        return evaluate(functions[op], *arguments, functions=functions)
    return op.reference(*arguments)


def truth(name: str, *arguments: Array) -> Array:
    """The true values, in double."""
    with np.errstate(all="ignore"):
        return ops.TABLE[name].reference(*[np.float64(a) for a in arguments])


@cache
def true_values(name: str) -> tuple[Array, Array]:
    """Those on the `grid` of a function, and what is `cancelling` there."""
    arguments = grid(name)
    return truth(name, *arguments), cancelling(name, arguments)


def cancelling(name: str, arguments: Sequence[Array]) -> Array:
    """The larger of two terms of a value that cancel; 0 for values that are no such sums.

    Those of logaddexp are its larger argument, if negative, and the logarithm that is added to it:
    both are rounded, so that near its zeros only errors relative to them are small.
    """
    if name in CALM:
        return amplitude(name, arguments[0])
    if name in FADDEEVA[2:]:  # parts of derivatives have zeros
        first = 2 * (FADDEEVA.index(name) // 2)
        return np.hypot(*[truth(n, *arguments) for n in FADDEEVA[first : first + 2]])
    if name == "gammainc_bend":  # it passes through 0 on both sides of the median
        a, x = arguments
        return np.abs(truth("gammainc_slope", a, x)) * np.sqrt(truth("trigamma", 1.0 + a))
    if name == "voigt_profile":  # next to the normal distribution the rounding of x/sigma counts
        x, sigma, gamma = arguments
        scale = np.sqrt(2.0) * np.float64(sigma)
        with np.errstate(all="ignore"):
            slope = truth("faddeeva_real_slope", x / scale, gamma / scale)
            return np.nan_to_num(np.abs(x / scale * slope) / (scale * np.sqrt(np.pi)))
    if name in REFLECTED:
        return np.where(arguments[0] < 0, np.abs(truth(name, 1.0 - arguments[0])), 0.0)
    if name != "logaddexp":
        return np.zeros(1)
    a, b = (v.astype(np.float64) for v in arguments)
    most = np.maximum(a, b)
    with np.errstate(all="ignore"):
        logarithm = np.log1p(np.exp(-np.abs(a - b)))
        return np.where(most < 0.0, np.fmin(np.fmax(-most, logarithm), np.finfo(np.float32).max), 0)


def amplitude(name: str, x: Array) -> Array:
    """Of the waves that a function of `CALM` is for a large |x|; 0 before."""
    a = np.abs(np.float64(x))
    with np.errstate(all="ignore"):
        size = np.sqrt(2.0 / np.pi) / np.sqrt(a) / (a if name == "j1_ratio" else 1.0)
    return np.where(a >= CALM[name], size, 0.0)


def ulps(got: Array, want: Array, unit: Array | float = 0.0) -> Array:
    """The errors in units of the last place of the true values, 0 where these are not normal.

    Where ``unit`` is larger than a value, in units of its last place.
    """
    with np.errstate(all="ignore"):
        nearest = np.float32(want)
        size = np.maximum(np.maximum(np.abs(nearest), np.float32(unit)), TINY)
        error = np.abs(np.float64(got) - want) / np.spacing(size)
    normal = (np.abs(want) >= TINY) & np.isfinite(nearest)
    same = np.where(np.isnan(want), np.isnan(got), got == nearest)
    unbounded = ~np.isfinite(nearest) & ~same
    return np.where(unbounded, np.inf, np.where(normal, error, 0.0))


def grid(name: str, count: int = 20_000) -> tuple[Array, ...]:
    """Arguments for a function: log-spaced, near 1, and where its exponentials matter."""
    seed = np.random.default_rng(1)
    arguments = [_spread(seed, count) for _ in FUNCTIONS[ops.TABLE[name]].arguments]
    if name == "pow":
        return _with_worst(name, _bases_and_exponents(seed, arguments[0]))
    if name in GAMMA:
        return _with_worst(name, gamma_arguments(seed, count // 20))
    if name in BETA:
        return beta_arguments(seed, count // 100)
    if name in FADDEEVA:
        return half_plane(seed, count // 10)
    if name == "voigt_profile":
        x, y = half_plane(seed, count // 10)
        sigma = np.float32(np.exp(seed.uniform(-8.0, 8.0, len(x))))
        return x * sigma, sigma, y * sigma
    if len(arguments) == 2:
        near = np.exp(seed.uniform(-9, 9, count)) * seed.choice([-1, 1], count)
        with np.errstate(over="ignore", under="ignore"):
            arguments[1][:count] = np.float32(arguments[0][:count] * near)
    arguments[0] = np.concatenate([arguments[0], np.array(WORST.get(name, ()), np.float32)])
    if name in ("sin", "cos", "tan"):
        arguments[0] = np.concatenate([arguments[0], near_quarter_turns()])
    arguments = [np.where(np.abs(a) < TINY, np.float32(1), a) for a in arguments]
    if name in RANGES:
        low, high = RANGES[name]
        arguments = [np.clip(np.abs(a) if low >= 0 else a, low, high) for a in arguments]
    if name == "gelu":  # between these it is normal, and Phi is not
        arguments = [a[(a < -13.3) | (a > -12.9)] for a in arguments]
    if name == "silu_slope":  # it has a root, around which its two terms cancel
        arguments = [a[np.abs(a + 1.3) > 1.3] for a in arguments]
    return _with_worst(name, arguments)


def _with_worst(name: str, arguments: Sequence[Array]) -> tuple[Array, ...]:
    """The arguments, and the worst pairs."""
    pairs = np.array(WORST_PAIRS.get(name, ()), np.float32).reshape(-1, len(arguments))
    return tuple(np.concatenate([a, p]) for a, p in zip(arguments, pairs.T, strict=True))


def _spread(seed: np.random.Generator, count: int) -> Array:
    parts = [
        np.exp(seed.uniform(np.log(1.2e-38), np.log(3.4e38), count)),
        np.exp(seed.uniform(np.log(1e-6), np.log(110.0), 2 * count)),
        seed.uniform(0.0, 10.0, 2 * count),
        1.0 + seed.uniform(-1.0, 1.0, count) * 2.0 ** seed.uniform(-24.0, 0.0, count),
    ]
    return np.float32(np.concatenate(parts) * seed.choice([-1, 1], 6 * count))


def near_quarter_turns() -> Array:
    """For every exponent, the float32 nearest to a multiple of pi/2: reductions show all digits.

    Of the fractions n/m next to 2**(e + 1)/pi, found by continued fractions, those whose m fits in
    24 bits have the least |m 2**e - n pi/2|.
    """
    found = [16367173.0 * 2.0**72]
    with mp.workdps(60):
        for exponent in range(-23, 104):
            ratio = mp.mpf(2) ** (exponent + 1) / mp.pi
            below, above, rest = (0, 1), (1, 0), ratio
            while above[1] < 2**24:
                whole = int(mp.floor(rest))
                after = above[0] * whole + below[0], above[1] * whole + below[1]
                below, above = above, after
                if 0 < above[1] < 2**24:
                    found.append(above[1] * 2.0**exponent)
                rest = 1 / (rest - whole)
    return np.array(found, np.float32)


def gamma_arguments(seed: np.random.Generator, count: int, top: float = 1e7) -> tuple[Array, Array]:
    """Shapes and points next to them, in both tails and far out, rounded to float32."""
    low = np.concatenate([seed.uniform(0.0, 5.0, count), seed.uniform(0.0, 40.0, count)])
    a = np.concatenate([low, np.exp(seed.uniform(np.log(1e-7), np.log(top), 3 * count))])
    size = len(a)
    x = a + np.sqrt(a) * seed.normal(0.0, 4.0, size)
    x = np.where(seed.random(size) < 0.4, a * np.exp(seed.normal(0.0, 1.5, size)), x)
    x = np.where(seed.random(size) < 0.15, np.exp(seed.uniform(-80.0, 4.0, size)), x)
    return np.float32(a), np.float32(np.where(x > 0.0, x, a * np.exp(-seed.exponential(3, size))))


def half_plane(seed: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Points of the upper half plane: about 0, next to the real axis, far out, in float32."""
    x = np.concatenate([
        seed.normal(0.0, 3.0, 3 * count), np.exp(seed.uniform(-12.0, 5.0, 2 * count)),
    ])  # fmt: skip
    y = np.concatenate([
        seed.exponential(2.0, count), np.exp(seed.uniform(-25.0, 0.0, 2 * count)),
        np.exp(seed.uniform(-12.0, 5.0, 2 * count)),
    ])  # fmt: skip
    return np.float32(x), np.float32(y)


def beta_arguments(seed: np.random.Generator, count: int, top: float = 1e6) -> tuple[Array, ...]:
    """Parameters and points next to their mean, in both tails and far out, rounded to float32."""
    tops = np.repeat([top, 40.0, 4.0], 4 * count)
    a, b = np.exp(seed.uniform(np.log(1e-5), np.log(tops), (2, len(tops))))
    log = np.minimum(seed.normal(0.0, 4.0, len(a)) * np.sqrt(1.0 / a + 1.0 / b), 80.0)
    near = 1.0 / (1.0 + b / a * np.exp(log))
    wide = 1.0 / (1.0 + b / a * np.exp(seed.normal(0.0, 1.5, len(a))))
    far, kind = np.exp(-seed.exponential(8.0, len(a))), seed.random(len(a))
    x = np.where(kind < 0.4, near, np.where(kind < 0.7, wide, np.where(kind < 0.85, far, 1 - far)))
    usable = (x > 1e-37) & (np.float32(x) < 1.0)
    return np.float32(a[usable]), np.float32(b[usable]), np.float32(x[usable])


def _bases_and_exponents(seed: np.random.Generator, bases: Array) -> tuple[Array, Array]:
    """Powers over the whole range of float32, and whole exponents of negative bases."""
    wanted = seed.uniform(-126.0, 128.0, len(bases))
    with np.errstate(divide="ignore"):
        exponents = np.clip(wanted / np.log2(np.abs(np.float64(bases))), -1e30, 1e30)
    negative = seed.random(len(bases)) < 0.2
    bases = np.where(negative, -np.abs(bases), np.abs(bases))
    return bases, np.float32(np.where(negative, np.round(exponents), exponents))
