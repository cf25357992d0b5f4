"""What a kernel may answer: each value of a graph as an interval, from the errors of its parts.

Every operation is allowed its own error, and the errors of its arguments go through it: it is
evaluated in float64 at the ends and in the middle of their intervals. Where a value is well
conditioned the interval is a few ULP wide; where it is not, as wide as it must be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, Graph, Op, reachable
from symgrad.expr.semantics.evaluate import leaf

ULPS: Final = 4.0
"""The error that an operation may have, in the normal range."""

EXTREME: Final = 2.0**-16
"""The relative error that it may have where a magnitude is near the ends of float32's range."""

FLUSHED: Final = 2.0**-126
"""Below this, a device may return 0."""

LARGEST: Final = float(np.finfo(np.float32).max) / 2
"""From here on, a device may overflow."""

EXACT: Final = frozenset(
    {ops.neg, ops.abs, ops.sign, ops.floor, ops.ceil, ops.round, ops.trunc, ops.minimum,
     ops.maximum, ops.relu, ops.copysign, ops.stop_gradient}
)  # fmt: skip
SINGULAR: Final = {
    ops.div: 1, ops.reciprocal: 0, ops.rsqrt: 0, ops.integer_pow: 0, ops.pow: 0, ops.pow_times: 1,
    ops.fmod: 1, ops.remainder: 1, ops.copysign: 1, ops.log: 0, ops.log2: 0, ops.log10: 0,
    ops.atan2: 0, ops.gamma: 0,
}  # fmt: skip
"""Where an argument of 0, whose sign a device may ignore, decides everything: which argument."""

POSITIVE: Final = {
    ops.gammaln, ops.digamma, ops.trigamma, ops.tetragamma, ops.pentagamma,
}  # fmt: skip
"""What has poles for negative arguments, and roots between them at which its terms cancel."""

WAVES: Final = {
    ops.sinc: (1.4, 1.0), ops.sinc_ratio: (0.5, 2.0), ops.j0: (0.6, 0.5), ops.j1: (0.5, 0.5),
    ops.j1_ratio: (0.2, 1.5),
}  # fmt: skip
"""What goes up and down: how steeply at most, and the power of 1/|x| with which it falls off."""


def _bend_terms(a: Any, x: Any) -> Any:
    """The terms of gammainc's second derivative by its shape: its first one, and its logarithms."""
    return ops.gammainc_slope.reference(a, x) * np.sqrt(ops.trigamma.reference(1.0 + a))


PARTS: Final[dict[Op, tuple[Callable[..., Any], float]]] = {
    ops.faddeeva_real_slope: (ops.faddeeva_imag_slope.reference, 11.0),
    ops.faddeeva_imag_slope: (ops.faddeeva_real_slope.reference, 11.0),
    ops.faddeeva_real_bend: (ops.faddeeva_imag_bend.reference, 15.0),
    ops.faddeeva_imag_bend: (ops.faddeeva_real_bend.reference, 15.0),
    ops.gammainc_bend: (_bend_terms, 12.0),
}
"""What passes through 0 where its terms do not, beside which its errors are: the other part of a
complex value, or the terms; and the ULP that the functions' own tests allow."""

COMPOSED: Final = {ops.silu_slope, ops.gelu_slope, ops.gelu_tanh_slope}
TURNING: Final = {ops.sin: 0.5, ops.cos: 0.0}
"""What has its largest value at this multiple of pi, and its least half a turn later."""

WRAPPED: Final = {ops.fmod: np.trunc, ops.remainder: np.floor}
"""Remainders, and the whole quotient that they take away."""


@dataclass
class Interval:
    """Values between low and high; NaN for certain where both are.

    Invariants:
      1. ``known`` is False where nothing is certain: the value may be anything, NaN included.
      2. ``finite`` is True where everything on the way to the value is known and finite.
    """

    low: Any
    high: Any
    known: Any
    finite: Any

    def contains(self, values: Any) -> Any:
        """Whether values may be the answer."""
        inside = (self.low <= values) & (values <= self.high)
        return inside | (np.isnan(self.low) & np.isnan(values)) | ~self.known

    @property
    def relative_width(self) -> Any:
        """How much is left open, relative to the size; infinite where nothing is known."""
        size = np.maximum(np.maximum(np.abs(self.low), np.abs(self.high)), FLUSHED)
        same = (self.low == self.high) | np.isnan(self.low)
        with np.errstate(invalid="ignore"):
            return np.where(self.known, np.where(same, 0.0, (self.high - self.low) / size), np.inf)


def intervals(graph: Graph, roots: Sequence[int], points: Any) -> list[Interval]:
    """The intervals of the roots at points (B, n)."""
    found: dict[int, Interval] = {}
    with np.errstate(all="ignore"):
        for i in reachable(graph, roots):
            node = graph.nodes[i]
            if node[0] is INPUT:
                values = points[:, node[1]].astype(np.float64)
                found[i] = _interval(values, values, np.ones(len(points), bool))
            elif not node[0].arity:
                found[i] = _constant(leaf(node, np.float64), len(points))
            else:
                found[i] = _apply(node[0], [found[a] for a in node[1:]])
    return [found[i] for i in roots]


def _interval(low: Any, high: Any, known: Any, arguments: Sequence[Interval] = ()) -> Interval:
    finite = known & np.isfinite(low) & np.isfinite(high)
    return Interval(
        low, high, known, np.logical_and.reduce([finite, *[a.finite for a in arguments]])
    )


def _constant(value: Any, count: int) -> Interval:
    """A number, and what float32 makes of it."""
    possible = [value]
    if isinstance(value, np.float64):
        possible += [np.float64(np.float32(value)), *[0.0] * bool(abs(value) < FLUSHED)]
    low, high = np.min(possible), np.max(possible)
    return _interval(np.full(count, low), np.full(count, high), np.ones(count, bool))


def _apply(op: Op, arguments: list[Interval]) -> Interval:
    if op is ops.where:
        return _choice(*arguments)
    known = np.logical_and.reduce([a.known for a in arguments])
    if op in SINGULAR:
        a = arguments[SINGULAR[op]]
        known = known & ((a.low > 0) | (a.high < 0))
    if op is ops.pow:  # of a negative base, only whole exponents are known
        known = known & ((arguments[0].low > 0) | (arguments[1].low == arguments[1].high))
    if op in WAVES:
        known = known & (arguments[0].high - arguments[0].low < 0.1)
    if op in POSITIVE:
        known = known & (arguments[0].low > 0)
    values = np.array([_value(op, xs) for xs in product(*map(_samples, arguments))])
    known = known & (np.isnan(values).all(axis=0) | ~np.isnan(values).any(axis=0))
    low, high = values.min(axis=0), values.max(axis=0)
    if op in TURNING:
        low, high = _turned(op, arguments[0], low, high)
    if op in WAVES:
        low, high = _waved(op, arguments[0], low, high)
    if op is ops.tan:  # a pole may lie between
        known = known & (
            _iterations(arguments[0].low, 0.5, 1.0) == _iterations(arguments[0].high, 0.5, 1.0)
        )
    if op.result == "f":
        low, high = _widened(op, low, high, arguments)
    return _interval(low, high, known, arguments)


def _turned(op: Op, x: Interval, low: Any, high: Any) -> tuple[Any, Any]:
    """The range of a sine or cosine, with the extremes that lie between the ends."""
    peak = TURNING[op]
    peaks = _iterations(x.low, peak, 2.0) < _iterations(x.high, peak, 2.0)
    troughs = _iterations(x.low, peak + 1.0, 2.0) < _iterations(x.high, peak + 1.0, 2.0)
    return np.where(troughs, -1.0, low), np.where(peaks, 1.0, high)


def _waved(op: Op, x: Interval, low: Any, high: Any) -> tuple[Any, Any]:
    """The range with what the value may change by, and the rounding of the terms that cancel."""
    steepness, power = WAVES[op]
    away = np.abs(x.low)
    lost = steepness * (x.high - x.low) + ULPS * 2.0**-23 / (1.0 + away) ** power
    return low - lost, high + lost


def _iterations(x: Any, start: float, length: float) -> Any:
    """The periods of length*pi that have passed at x, the first of which begins at start*pi."""
    return np.floor((x / np.pi - start) / length)


def _value(op: Op, arguments: Sequence[Any]) -> Any:
    kinds = op.signature.split("->")[0]
    return op.reference(
        *[a[0] if kind == "i" else a for kind, a in zip(kinds, arguments, strict=True)]
    )


def _samples(a: Interval) -> list[Any]:
    """Both ends, the middle and a 0 between, or the one value where there is one everywhere."""
    if np.array_equal(a.low, a.high, equal_nan=a.low.dtype == np.float64):
        return [a.low]
    if a.low.dtype == bool:
        return [a.low, a.high]
    middle = np.where(a.low == a.high, a.low, 0.5 * a.low + 0.5 * a.high)
    across = (a.low < 0) & (a.high > 0)
    return [a.low, middle, a.high, *([np.where(across, 0.0, middle)] if across.any() else [])]


def _widened(op: Op, low: Any, high: Any, arguments: list[Interval]) -> tuple[Any, Any]:
    """The hull of the samples with the error of the operation, and what lies beyond the range."""
    if op in WRAPPED:
        low, high = _unwrapped(op, low, high, *arguments)
    size = np.maximum(np.abs(low), np.abs(high))
    error = np.where(np.isfinite(size), _error(op, size, arguments), 0.0)
    low, high = low - error, high + error
    low = np.where(low > LARGEST, LARGEST, np.where(low < -LARGEST, -np.inf, low))
    return low, np.where(high < -LARGEST, -LARGEST, np.where(high > LARGEST, np.inf, high))


def _error(op: Op, size: Any, arguments: list[Interval]) -> Any:
    """What an operation may be off by when its value is of this size."""
    flushed = np.where((size < 2 * FLUSHED) & (size > 0), FLUSHED, 0.0)
    if op in EXACT:
        return flushed
    if op in COMPOSED:  # float32 has these of several rounded terms, the largest of them about 1/2
        size = np.maximum(size, 0.5)
    if op is ops.logaddexp:  # a sum of the larger argument and something positive
        size = np.maximum(size, np.max([np.abs(a.low) for a in arguments], axis=0))
    if op is ops.fma:  # whose product is rounded where a device does not have it
        first, second = (np.maximum(np.abs(a.low), np.abs(a.high)) for a in arguments[:2])
        flushed = flushed + 2.0**-24 * first * second
    if op in PARTS:
        other, allowed = PARTS[op]
        values = [np.abs(other(*xs)) for xs in product(*map(_samples, arguments))]
        return allowed * 2.0**-23 * np.hypot(size, np.max(values, axis=0)) + flushed
    extreme = (size < 1e-30) | (size > 1e30)
    return np.where(extreme, EXTREME, ULPS * 2.0**-23) * size + flushed


def _unwrapped(op: Op, low: Any, high: Any, a: Interval, b: Interval) -> tuple[Any, Any]:
    """A remainder, which may be anything of its range where the whole quotient is not certain."""
    ends = [WRAPPED[op](x / y) for x, y in product((a.low, a.high), (b.low, b.high))]
    sure = (np.min(ends, axis=0) == np.max(ends, axis=0)) | np.isnan(low)
    size = np.maximum(np.abs(b.low), np.abs(b.high))
    return np.where(sure, low, -size), np.where(sure, high, size)


def _choice(condition: Interval, a: Interval, b: Interval) -> Interval:
    """Only what may be chosen counts; a NaN on one of two possible sides leaves all open."""
    sure = condition.known & (condition.low == condition.high)
    chosen = condition.low
    nan = np.isnan(a.low) != np.isnan(b.low)
    known = np.where(sure, np.where(chosen, a.known, b.known), a.known & b.known & ~nan)
    low = np.where(sure, np.where(chosen, a.low, b.low), np.minimum(a.low, b.low))
    high = np.where(sure, np.where(chosen, a.high, b.high), np.maximum(a.high, b.high))
    return _interval(low, high, known, (condition, a, b))
