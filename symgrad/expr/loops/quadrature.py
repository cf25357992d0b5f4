"""Integrals of traced functions: Gauss and Kronrod's rule on panels that are halved."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Graph, Handle
from symgrad.expr.loops.control import while_loop
from symgrad.expr.loops.open_loop import graph_among, require_functions
from symgrad.expr.tracers.along import balanced
from symgrad.expr.tracers.expression import Expr

NODES: Final = (
    0.9956571630258081, 0.9739065285171717, 0.9301574913557082, 0.8650633666889845,
    0.7808177265864169, 0.6794095682990244, 0.5627571346686047, 0.4333953941292472,
    0.2943928627014602, 0.1488743389816312,
)  # fmt: skip
"""The positive nodes of the rule of 21 points, every other one, from the second on, of Gauss's of
10 (Piessens and others, 1983, QUADPACK, dqk21); another node is 0."""

WEIGHTS: Final = (
    0.011694638867371874, 0.032558162307964725, 0.054755896574351995, 0.07503967481091996,
    0.0931254545836976, 0.10938715880229764, 0.12349197626206584, 0.13470921731147334,
    0.14277593857706009, 0.1477391049013385,
)  # fmt: skip
"""Kronrod's weights of these."""

MIDDLE: Final = 0.14944555400291691
"""Kronrod's weight of the node 0."""

GAUSS: Final = (
    0.06667134430868814, 0.1494513491505806, 0.21908636251598204, 0.26926671930999635,
    0.29552422471475287,
)  # fmt: skip
"""Gauss's weights."""

NARROWEST: Final = 2.0**-44
"""Panels no wider than this share of the range are not halved."""

Integrand = Callable[[Any], Any]


def quad(
    func: Callable[..., Any],
    a: Any,
    b: Any,
    args: tuple[Any, ...] = (),
    epsabs: float = 1.49e-8,
    epsrel: float = 1.49e-8,
    limit: int = 200,
) -> tuple[Any, Any]:
    """The integral of ``func(x, *args)`` from a to b, and an estimate of its error, as SciPy's.

    Gauss and Kronrod's rule of 21 points, on panels that are halved until the error of each is its
    share of what is allowed, or is as small as rounding makes it. All of it is one loop of the
    kernel, with its own panels at each point. Derivatives by what the integrand uses, and by the
    limits, are those of the sum over these panels.

    Args:
        func: The integrand: a function of a number, whose result is one. It is called once for each
            node of the rule, with expressions, and may use expressions from outside.
        a: The lower limit: a number, ``-inf`` too, or an expression.
        b: The upper limit: a number, ``inf`` too, or an expression.
        args: Further arguments of ``func``.
        epsabs: The absolute error that is allowed.
        epsrel: The relative error that is allowed.
        limit: How many panels may be tried. Where more are needed, both results are NaN; where the
            integral does not exist, the estimate is far above what is allowed.

    Returns:
        The integral and the estimate: expressions; of numbers alone, numbers.

    Raises:
        InputError: for a limit that is NaN, or tolerances or a ``limit`` that are no such.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> def loss(v):
        ...     value, error = sg.quad(lambda x: np.exp(-v[0] * x * x), 0.0, np.inf)
        ...     return value
        >>> kernel = sg.fused_forward_backward(1, loss, device="cpu", dtype="float64")
        >>> value, slope = kernel.run([4.0])
        >>> round(value, 10), round(float(slope[0]), 9)
        (0.4431134627, -0.055389183)
    """
    require_functions(func)
    numbers = [x for x in (a, b) if not isinstance(x, Handle)]
    if any(math.isnan(x) for x in numbers):
        raise InputError(located(f"the limits of an integral are numbers, not {a!r} and {b!r}"))
    if not (epsabs >= 0 and epsrel >= 0 and epsabs + epsrel > 0 and limit >= 1):
        raise InputError(
            located(
                f"epsabs={epsabs!r}, epsrel={epsrel!r}, limit={limit!r}: an integral needs an "
                "error that is allowed, and panels"
            )
        )
    integrand, sign = _on_unit_interval(lambda x: func(x, *args), a, b)
    tolerances = float(epsabs), float(epsrel)
    graph = graph_among(a, b, *args) or graph_among(integrand(0.5))
    value, error = _adaptive(graph, integrand, tolerances, int(limit))
    return sign * value, error


def _on_unit_interval(f: Integrand, a: Any, b: Any) -> tuple[Integrand, float]:
    """The integrand for a variable from 0 to 1, and a sign: infinite ranges by s/(1 - s)."""
    low, high = (not isinstance(x, Handle) and math.isinf(x) for x in (a, b))
    if high and b < 0 or low and a > 0:
        integrand, sign = _on_unit_interval(f, b, a)
        return integrand, -sign
    if not low and not high:
        return lambda s: (b - a) * f(a + (b - a) * s), 1.0

    def stretched(s: Any) -> Any:
        rest = 1.0 - s
        x = s / rest
        both = low and high
        value = f(x) + f(-x) if both else f(b - x) if low else f(a + x)
        return value / (rest * rest)

    return stretched, 1.0


def _adaptive(
    graph: Graph | None, f: Integrand, tolerances: tuple[float, float], limit: int
) -> tuple[Any, Any]:
    """The integral from 0 to 1, panel by panel from the left.

    A panel is k w to (k + 1) w for a power w of 1/2: if it is halved, the next is its left half,
    and after one that is taken comes the widest that begins there.
    """
    zero = 0.0 if graph is None else Expr(graph, graph.constant(0.0))
    epsilon = _epsilon(zero)

    def open_(carry: Any) -> Any:
        return ops.logical_and(carry["start"] < 1.0, carry["count"] < limit)

    def step(carry: Any) -> Any:
        start, width = (ops.stop_gradient(carry[name]) for name in ("start", "width"))
        value, error, size = _panel(f, start, width, epsilon)
        first = carry["count"] == 0.0
        scale = ops.where(first, ops.abs(value), carry["scale"])
        scale = ops.stop_gradient(ops.maximum(scale, ops.abs(carry["value"])))
        allowed = ops.maximum(tolerances[0], tolerances[1] * scale) * width
        enough = ops.maximum(allowed, 100.0 * epsilon * size)
        taken = ops.logical_or(error <= enough, width <= NARROWEST)
        after = start + width
        share = after / width
        doubled = ops.where(share == 2.0 * ops.floor(0.5 * share), 2.0 * width, width)
        return {
            "start": ops.where(taken, after, start),
            "width": ops.where(taken, doubled, 0.5 * width),
            "value": carry["value"] + ops.where(taken, value, 0.0),
            "error": carry["error"] + ops.where(taken, error, 0.0),
            "scale": scale,
            "count": carry["count"] + 1.0,
        }

    init = {"start": zero, "width": zero + 1.0, "value": zero, "error": zero, "scale": zero,
            "count": zero}  # fmt: skip
    end = while_loop(open_, step, init, limit)
    whole = end["start"] >= 1.0
    value, error = (ops.where(whole, end[name], math.nan) for name in ("value", "error"))
    return value, error


def _epsilon(zero: Any) -> Any:
    """The distance of 1 from the next number: of the precision in which it is computed."""
    one = ops.opaque(zero + 1.0)
    return ops.where(ops.opaque(one + 2.0**-30) == 1.0, 2.0**-23, 2.0**-52)


def _panel(f: Integrand, start: Any, width: Any, epsilon: Any) -> tuple[Any, Any, Any]:
    """The integral over a panel, an estimate of its error, and the integral of its size (dqk21)."""
    half = 0.5 * width
    centre = start + half
    middle = f(centre)
    pairs = [(f(centre - half * x), f(centre + half * x)) for x in NODES]
    kronrod = _weighted([p + q for p, q in pairs], WEIGHTS) + MIDDLE * middle
    fixed = ops.stop_gradient
    sums = [fixed(p + q) for p, q in pairs[1::2]]
    apart = ops.abs(fixed(kronrod) - _weighted(sums, GAUSS)) * half
    mean, middle = 0.5 * fixed(kronrod), fixed(middle)
    sizes = [ops.abs(fixed(p)) + ops.abs(fixed(q)) for p, q in pairs]
    spreads = [ops.abs(fixed(p) - mean) + ops.abs(fixed(q) - mean) for p, q in pairs]
    size = (_weighted(sizes, WEIGHTS) + MIDDLE * ops.abs(middle)) * half
    spread = (_weighted(spreads, WEIGHTS) + MIDDLE * ops.abs(middle - mean)) * half
    ratio = ops.minimum(1.0, 200.0 * apart / ops.where(spread > 0.0, spread, 1.0))
    error = ops.where(spread > 0.0, spread * (ratio * ops.sqrt(ratio)), apart)
    return kronrod * half, ops.maximum(error, 50.0 * epsilon * size), size


def _weighted(values: Sequence[Any], weights: Sequence[float]) -> Any:
    return balanced(operator.add, [w * v for w, v in zip(weights, values, strict=True)])
