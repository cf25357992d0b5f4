"""What operations of real numbers are of integers: the same of NumPy's integers, or real numbers.

An operation that stands in neither table is refused: none makes real numbers of integers unseen.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.graph.node import Op


def _itself(x: Any) -> Any:
    return x


OF_INTEGERS: Final[dict[Op, Callable[..., Any]]] = {
    ops.add: operator.add,
    ops.sub: operator.sub,
    ops.mul: operator.mul,
    ops.fma: lambda a, b, c: a * b + c,
    ops.neg: operator.neg,
    ops.abs: abs,
    ops.sign: lambda x: x.signum(),
    ops.remainder: operator.mod,
    ops.fmod: lambda a, b: a.truncated_remainder(b.divisor()),
    ops.floor_divide: operator.floordiv,
    ops.pow: operator.pow,
    ops.lt: operator.lt,
    ops.le: operator.le,
    ops.eq: operator.eq,
    ops.ne: operator.ne,
    ops.minimum: lambda a, b: a.chosen(a < b, b),
    ops.maximum: lambda a, b: a.chosen(b < a, b),
    ops.clip: lambda x, low, high: ops.minimum(ops.maximum(x, low), high),
    ops.relu: lambda x: ops.maximum(x, 0),
    ops.where: lambda condition, a, b: a.chosen(condition, b),
    ops.stop_gradient: _itself,
    ops.floor: _itself,
    ops.ceil: _itself,
    ops.round: _itself,
    ops.trunc: _itself,
    ops.fract: lambda x: x.of(x.graph, 0),
}
"""What these are of integers of one type: an integer of that type, or a condition."""

AS_REAL: Final[frozenset[Op]] = frozenset(
    {op for op in ops.TABLE.values() if op.transcendental}
    | {
        ops.div, ops.reciprocal, ops.sqrt, ops.rsqrt, ops.cbrt, ops.hypot, ops.copysign, ops.huber,
        ops.isnan, ops.isinf, ops.isfinite, ops.uint32, ops.int32, ops.ndtr, ops.integer_pow,
    }
)  # fmt: skip
"""What takes integers for the real numbers that they are."""
