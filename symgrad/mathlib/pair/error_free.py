"""Error-free transformations of float32: sums and products, each with its rounding error.

A pair (high, low) stands for high + low, low at most about a ULP of high. Sums and products keep
what rounding takes from them (Dekker, 1971, "A floating-point technique for extending the available
precision"; Knuth, TAOCP 2). Every sum that is taken apart again is opaque, for compilers undo what
follows it otherwise. Functions of float32 compute in them where its digits do not do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr

Pair = tuple[Any, Any]


def split(value: float, bits: Sequence[int] = (24,)) -> tuple[float, ...]:
    """A number as its first so many bits, the next, and a last float32 for the rest."""
    pieces: list[float] = []
    for count in bits:
        scale = 2.0 ** (count - math.frexp(value)[1])
        pieces.append(float(np.float32(math.floor(value * scale + 0.5) / scale)) if value else 0.0)
        value -= pieces[-1]
    return *pieces, float(np.float32(value))


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


def over(a: Pair, b: Pair) -> Pair:
    """a / b: float32's quotient, and the rest from what that leaves of a."""
    inverse = 1.0 / b[0]
    high = ops.opaque(a[0] * inverse)
    total, lost = product(high, b[0])
    left = (ops.opaque(a[0] - total) - lost) + (a[1] - high * b[1])
    return tidy(high, left * inverse, a[0] / b[0])
