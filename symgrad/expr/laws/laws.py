"""Identities between operations; those that concern one operation stand in its row."""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Op
from symgrad.expr.ops.law import Law, constants, exact, real
from symgrad.expr.tracers.expression import WRAP

FLOAT32_LARGEST: Final = (2 - 2.0**-23) * 2.0**127
FLOAT32_SMALLEST: Final = 2.0**-126
"""The smallest number that no device flushes to 0."""


def _is_scale(p: float) -> bool:
    """Whether p is 2**k, k >= 0."""
    return 1 <= p < math.inf and math.frexp(p)[0] == 0.5


def _scales(c: float, p: float) -> bool:
    """Whether c * (p * x) is (c * p) * x to the bit: p a power of two, |c| and p at least 1.

    p * x is then exact or overflows, and where it overflows so does the product with c.
    """
    return _is_scale(p) and abs(c) >= 1 and abs(c * p) <= FLOAT32_LARGEST


def _doubles(p: float, c: float) -> bool:
    """Whether p * (c * x) is (p * c) * x to the bit: p = 2**k >= 1, and c an integer.

    c * x is then rounded in the same place or, among subnormals, not at all.
    """
    return _is_scale(p) and float(c).is_integer() and abs(c * p) <= FLOAT32_LARGEST


def _inverts(c: float) -> bool:
    """Whether 1/c is exact, and as a constant no subnormal: a / c is then a * (1/c) to the bit."""
    return math.frexp(c)[0] in (0.5, -0.5) and FLOAT32_SMALLEST <= abs(c) <= 1 / FLOAT32_SMALLEST


def _divides(c: float) -> bool:
    return FLOAT32_SMALLEST <= abs(c) <= 1 / FLOAT32_SMALLEST


def _any(*_: float) -> bool:
    return True


def _negative(c: float) -> bool:
    return c < 0


def _variables(types: str) -> list[Any]:
    graph = Graph()
    graph.tracing = False
    return [WRAP[t](graph, graph.input("abcd"[k])) for k, t in enumerate(types)]


def between_ops() -> tuple[Law, ...]:
    """The laws that relate several operations."""
    a, y, c, p = _variables("ffff")
    x = a
    return (
        exact(c * (p * a), (c * p) * a, when=constants("p is 2**k, |c| >= 1", _scales, c, p)),
        exact(p * (c * a), (p * c) * a, when=constants("p is 2**k, c whole", _doubles, p, c)),
        exact(a / c, a * ops.reciprocal(c), when=constants("c is ±2**k", _inverts, c)),
        exact(-(c * a), -c * a, when=constants("c is a constant", _any, c)),
        exact(a + c, a - -c, when=constants("c < 0", _negative, c)),
        exact(a + c * y, a - (-c) * y, when=constants("c < 0", _negative, c)),
        exact(a - c * y, a + (-c) * y, when=constants("c < 0", _negative, c)),
        real(c * (p * a), (c * p) * a, when=constants("c, p are constants", _any, c, p)),
        real(a / c, a * ops.reciprocal(c), when=constants("1/c is finite", _divides, c)),
        real(ops.exp(x) * ops.exp(y), ops.exp(x + y)),
        real(ops.exp(-x) * ops.exp(x), 1.0),
        real(ops.log(x) + ops.log(y), ops.log(x * y)),
        real(ops.sin(x) * ops.sin(x) + ops.cos(x) * ops.cos(x), 1.0),
        real(ops.cosh(x) * ops.cosh(x) - ops.sinh(x) * ops.sinh(x), 1.0),
        real(x * y + x * p, x * (y + p)),
        real(x / y + p / y, (x + p) / y),
        real(ops.sqrt(x) * ops.sqrt(x), x),
        real(x * ops.reciprocal(x), 1.0),
    )


def all_laws() -> tuple[Law, ...]:
    """Every law of the library: the rows' own and those between operations."""
    own = [law for op in ops.TABLE.values() if op.laws for law in op.laws(*_variables(_types(op)))]
    return (*own, *between_ops())


def _types(op: Op) -> str:
    return op.signature.split("->")[0]


LAWS: Final = all_laws()
"""Every law, in the order in which they are tried."""
