"""Twice float32's digits where there is no float64: expressions as sums of two numbers.

A pair (high, low) stands for high + low, low at most about a ULP of high. Sums, products, quotients
and roots keep what rounding takes from them (Dekker, 1971, "A floating-point technique for
extending the available precision"; Knuth, TAOCP 2); exponentials, logarithms, sines, cosines and
arc tangents are computed anew. All keep about 44 bits of 48. Any other operation is float32's own,
and passes on what its arguments have lost, to first order.

Every sum that is taken apart again is opaque, for compilers undo what follows it otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Op, reachable
from symgrad.expr.tracers.expression import WRAP, Expr
from symgrad.mathlib.bits import polynomial

Pair = tuple[Any, Any]


def parts(value: float, bits: Sequence[int] = (24,)) -> tuple[float, ...]:
    """A number as its first so many bits, the next, and a last float32 for the rest."""
    pieces: list[float] = []
    for count in bits:
        scale = 2.0 ** (count - math.frexp(value)[1])
        pieces.append(float(np.float32(math.floor(value * scale + 0.5) / scale)) if value else 0.0)
        value -= pieces[-1]
    return *pieces, float(np.float32(value))


LN2: Final = parts(math.log(2.0), (16, 16))
"""ln 2 in parts, of which a whole number below 2**8 is an exact multiple."""
QUARTER: Final = (*parts(math.pi / 2, (10, 10, 10)),)
"""pi/2 in parts, of which a whole number below 2**14 is an exact multiple."""
FACTORIALS: Final = tuple(1.0 / math.factorial(k) for k in range(17))


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


def plus(a: Pair, b: Pair) -> Pair:
    """a + b."""
    total, lost = two_sum(a[0], b[0])
    return tidy(total, lost + (a[1] + b[1]), a[0] + b[0])


def minus(a: Pair, b: Pair) -> Pair:
    """a - b."""
    return plus(a, (-b[0], -b[1]))


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


def times(a: Pair, b: Pair) -> Pair:
    """a * b."""
    total, lost = product(a[0], b[0])
    return tidy(total, lost + (a[0] * b[1] + a[1] * b[0]), a[0] * b[0])


def over(a: Pair, b: Pair) -> Pair:
    """a / b: float32's quotient, and the rest from what that leaves of a."""
    inverse = 1.0 / b[0]
    high = ops.opaque(a[0] * inverse)
    total, lost = product(high, b[0])
    left = (ops.opaque(a[0] - total) - lost) + (a[1] - high * b[1])
    return tidy(high, left * inverse, a[0] / b[0])


def root(a: Pair) -> Pair:
    """The square root: Newton's step from float32's."""
    value, positive = ops.opaque(ops.sqrt(a[0])), a[0] > 0.0
    total, lost = product(value, value)
    left = (ops.opaque(a[0] - total) - lost) + a[1]
    share = 0.5 / ops.where(positive, value, 1.0)
    return tidy(value, ops.where(positive, left * share, 0.0), value)


def constant(value: float, like: Expr) -> Pair:
    """A number of float64 as a pair."""
    high, low = (Expr(like.graph, like.graph.constant(v)) for v in parts(value))
    return high, low


def _reduced(x: Pair, k: Any, unit: Sequence[float]) -> Pair:
    """x less k times a number that is given in parts."""
    high, low = x
    for part in unit:
        high, lost = two_sum(high, ops.opaque(k * -part))
        low = low + lost
    return tidy(high, low, high)


def _series(x: Pair, first: Sequence[float], rest: Sequence[float]) -> Pair:
    """A power series in x: the first coefficients as pairs, the rest in float32."""
    total: Pair = polynomial(x[0], rest), 0.0
    for c in reversed(first):
        total = plus(times(total, x), constant(c, x[0]))
    return total


def exp(x: Pair) -> Pair:
    """2**k times the series at r = x - k ln 2."""
    plain = ops.exp(x[0])
    inside = ops.abs(x[0]) < 86.0
    k = ops.round(ops.where(inside, x[0], 0.0) * (1.0 / math.log(2.0)))
    r = _reduced(x, k, LN2)
    high, low = _series(r, FACTORIALS[:7], FACTORIALS[7:14])
    power = ops.exp2(k)
    rest = ops.where(inside, low * power, ops.where(ops.isfinite(plain), plain * x[1], 0.0))
    return ops.where(inside, high * power, plain), rest


def log(x: Pair) -> Pair:
    """Newton's step from float32's y: y + z - z**2/2, z = x exp(-y) - 1."""
    y = ops.log(x[0])
    z, rest = minus(times(x, exp((-y, 0.0))), constant(1.0, y))
    return tidy(y, (z + rest) - 0.5 * z * z, y)


def _without_turns(x: Pair) -> Pair:
    """A large x less its whole turns, as far as they can be counted: it keeps a pair's digits."""
    far = (ops.abs(x[0]) >= 8192.0) & (ops.abs(x[0]) < 2.0**24)
    k = ops.round(ops.where(far, x[0], 0.0) * (0.5 / math.pi))
    return _select(far, minus(x, times((k, 0.0), constant(2.0 * math.pi, k))), x)


def sine_and_cosine(x: Pair) -> tuple[Pair, Pair]:
    """Both, from the series at what whole quarters of a turn leave of x."""
    x = _without_turns(x)
    inside = ops.abs(x[0]) < 8192.0
    k = ops.round(ops.where(inside, x[0], 0.0) * (2.0 / math.pi))
    r = _reduced(x, k, QUARTER)
    square = times(r, r)
    signs = [-c if n % 4 > 1 else c for n, c in enumerate(FACTORIALS)]
    sine = times(r, _series(square, signs[1:9:2], signs[9:16:2]))
    cosine = _series(square, signs[0:10:2], signs[10:16:2])
    odd, below = k - 2.0 * ops.floor(0.5 * k) > 0.5, k - 4.0 * ops.floor(0.25 * k) > 1.5
    left = (k + 1.0) - 4.0 * ops.floor(0.25 * (k + 1.0)) > 1.5
    both: list[Pair] = []
    for a, b, negative, op in ((sine, cosine, below, ops.sin), (cosine, sine, left, ops.cos)):
        high, low = _select(odd, b, a)
        sign = ops.where(negative, -1.0, 1.0)
        both.append((ops.where(inside, sign * high, op(x[0])), ops.where(inside, sign * low, 0.0)))
    return both[0], both[1]


def atan(x: Pair) -> Pair:
    """Newton's step from float32's y: the tangent of what is left is (x - tan y)/(1 + x tan y)."""
    y = ops.atan(x[0])
    s, c = sine_and_cosine((y, 0.0))
    left = over(minus(times(x, c), s), plus(c, times(x, s)))
    return tidy(y, left[0] + left[1], y)


def _power(x: Pair, k: int) -> Pair:
    """A whole power, by squares."""
    if k < 0:
        return over(constant(1.0, x[0]), _power(x, -k))
    power, square = None, x
    while k:
        if k & 1:
            power = square if power is None else times(power, square)
        k >>= 1
        square = times(square, square) if k else square
    return power or constant(1.0, x[0])


def _real_power(x: Pair, p: Pair) -> Pair:
    """exp(p log x) for a positive x; float32's own elsewhere."""
    plain, positive = ops.pow(x[0], p[0]), x[0] > 0.0
    high, low = exp(times(p, log(_select(positive, x, (1.0, 0.0)))))
    return _select(positive, (high, low), (plain, 0.0))


def _select(condition: Any, a: Pair, b: Pair) -> Pair:
    """a where the condition holds, else b."""
    high, low = (ops.where(condition, x, y) for x, y in zip(a, b, strict=True))
    return high, low


def _below(a: Pair, b: Pair) -> Any:
    """Whether a is less than b."""
    return (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))


def _not_above(a: Pair, b: Pair) -> Any:
    """Whether a is at most b."""
    return (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] <= b[1]))


def _equal(a: Pair, b: Pair) -> Any:
    """Whether a is b."""
    return (a[0] == b[0]) & (a[1] == b[1])


def whole(op: Op) -> Callable[[Pair], Pair]:
    """Floor or ceil: that of the low part counts where the high one is whole."""

    def rounded(a: Pair) -> Pair:
        high = op(a[0])
        return tidy(high, ops.where(high == a[0], op(a[1]), 0.0), high)

    return rounded


def _trunc(a: Pair) -> Pair:
    """What is left without the digits left the point."""
    return _select(a[0] < 0.0, whole(ops.ceil)(a), whole(ops.floor)(a))


def _round(a: Pair) -> Pair:
    """The nearest whole number; only a number without a low part can be half way."""
    near = whole(ops.floor)(plus(a, constant(0.5, a[0])))
    return _select(a[1] == 0.0, (ops.round(a[0]), 0.0), near)


def left_of(op: Op, wholes: Callable[[Pair], Pair]) -> Callable[[Pair, Pair], Pair]:
    """A remainder: what whole multiples leave; of infinities float32's."""

    def left(a: Pair, b: Pair) -> Pair:
        remainder = minus(a, times(b, wholes(over(a, b))))
        return _select(ops.isfinite(remainder[0]), remainder, (op(a[0], b[0]), 0.0))

    return left


def smaller(a: Pair, b: Pair) -> Pair:
    """The smaller; NaN where one is."""
    smallest = _select(_below(b, a), b, a)
    return _select(ops.isnan(b[0]), b, smallest)


def larger(a: Pair, b: Pair) -> Pair:
    """The larger; NaN where one is."""
    largest = _select(_below(a, b), b, a)
    return _select(ops.isnan(b[0]), b, largest)


RULES: Final[Mapping[Op, Callable[..., Pair]]] = {
    ops.add: plus, ops.sub: minus, ops.mul: times, ops.div: over,
    ops.neg: lambda a: (-a[0], -a[1]),
    ops.abs: lambda a: _select(a[0] < 0.0, (-a[0], -a[1]), a), ops.where: _select,
    ops.minimum: smaller, ops.maximum: larger, ops.clip: lambda a, b, c: smaller(larger(a, b), c),
    ops.floor: whole(ops.floor), ops.ceil: whole(ops.ceil), ops.round: _round,
    ops.trunc: _trunc, ops.fmod: left_of(ops.fmod, _trunc),
    ops.remainder: left_of(ops.remainder, whole(ops.floor)),
    ops.relu: lambda a: _select(a[0] < 0.0, constant(0.0, a[0]), a),
    ops.reciprocal: lambda a: over(constant(1.0, a[0]), a),
    ops.fma: lambda a, b, c: plus(times(a, b), c),
    ops.sqrt: root, ops.rsqrt: lambda a: over(constant(1.0, a[0]), root(a)),
    ops.exp: exp, ops.log: log, ops.atan: atan, ops.pow: _real_power,
    ops.exp2: lambda a: exp(times(a, constant(math.log(2.0), a[0]))),
    ops.log2: lambda a: over(log(a), constant(math.log(2.0), a[0])),
    ops.log10: lambda a: over(log(a), constant(math.log(10.0), a[0])),
    ops.sin: lambda a: sine_and_cosine(a)[0],
    ops.cos: lambda a: sine_and_cosine(a)[1],
    ops.tan: lambda a: over(*sine_and_cosine(a)),
    ops.sigmoid: lambda a: over(
        constant(1.0, a[0]), plus(constant(1.0, a[0]), exp((-a[0], -a[1])))
    ),
}  # fmt: skip
"""Operations on pairs; any other is float32's, with its derivatives."""

CONDITIONS: Final[Mapping[Op, Callable[[Pair, Pair], Any]]] = {
    ops.lt: _below,
    ops.le: _not_above,
    ops.eq: _equal,
    ops.ne: lambda a, b: ~_equal(a, b),
}
"""Comparisons of pairs: whether two numbers differ may be in their low parts alone."""


def in_pairs(roots: Sequence[Expr], given: Mapping[int, Pair]) -> list[Pair]:
    """Expressions as pairs, those of the input nodes being given."""
    graph = roots[0].graph
    pairs: dict[int, Any] = dict(given)
    for i in reachable(graph, [r.id for r in roots]):
        op, *arguments = graph.nodes[i]
        if i in pairs:
            continue
        value = graph.value(i)
        if value is not None:
            pairs[i] = constant(value, roots[0])
        elif not op.arity:
            pairs[i] = WRAP[op.result](graph, i)
        else:
            pairs[i] = _applied(graph, op, [pairs[a] for a in arguments], arguments)
    return [pairs[r.id] for r in roots]


def _applied(graph: Graph, op: Op, values: list[Any], arguments: Sequence[int]) -> Any:
    """An operation on pairs; one whose result is no float is one on their high parts."""
    if op is ops.integer_pow:
        return _power(values[0], graph.nodes[arguments[1]][1])
    if op is ops.pow_times:
        factor, x, p, _ = values
        shift = constant(float(graph.nodes[arguments[3]][1]), p[0])
        return times(factor, _real_power(x, plus(p, shift)))
    if op in RULES or op in CONDITIONS:
        return (RULES.get(op) or CONDITIONS[op])(*values)
    plain = [v[0] if isinstance(v, tuple) else v for v in values]
    result = op(*plain)
    return (result, _passed_on(op, result, plain, values)) if op.result == "f" else result


def _passed_on(op: Op, result: Any, plain: list[Any], values: list[Any]) -> Any:
    """What the low parts of the arguments do to a result, to first order."""
    if op.partials is None:
        return 0.0
    change: Any = 0.0
    for slope, value in zip(op.partials(result, *plain), values, strict=True):
        if slope is not None and isinstance(value, tuple):
            change = change + slope * value[1]
    return ops.where(ops.isfinite(change), change, 0.0) if isinstance(change, Expr) else change
