"""Derivatives of the op table's rows by mpmath: which there are, at which points, and their values.

A new row is tested at its own points, to third order, by what reads this: branch points, ties and
edges of its formulas belong among them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

from meaning import MEANING
from mpmath import mp, mpf
from strategies import types

from symgrad.expr import ops
from symgrad.expr.graph.node import LEAVES, Op

Point = tuple[float, ...]

SHARP: Final = {
    ("minimum", (2.0, 2.0)), ("maximum", (2.0, 2.0)), ("sign", (0.0,)), ("round", (0.5,)),
    ("round", (-4.5,)),
}  # fmt: skip
"""Points at which a row has no derivative; test_ops says what it is taken to be there."""

DIFFERENTIABLE: Final = [
    op for op in ops.TABLE.values()
    if op not in LEAVES and op.result == "f" and "f" in types(op)
    and (op.partials or op.vjp or op.compose)
]  # fmt: skip
"""The rows that have derivatives."""

BY_SHAPE: Final = {
    "gammainc": ({0}, 2), "gammaincc": ({0}, 2), "gammainc_slope": ({0}, 1),
    "betainc": ({0, 1}, 1), "betaincc": ({0, 1}, 1),
}  # fmt: skip
"""Rows whose derivatives by some of their arguments, shapes, end at an order."""

STEP: Final = 50
"""Digits by which the step of a difference is smaller than the smallest argument."""

NOTHING: Final = mpf(10) ** -90
"""Where a derivative is 0, a difference is of the size of a step."""


def smooth_points(op: Op) -> list[Point]:
    """The points of a row at which it has derivatives."""
    return [p for p in op.points if (op.name, p) not in SHARP]


def variables_of(op: Op) -> list[int]:
    """The positions of the arguments that are floats, and no parameters."""
    return [k for k, kind in enumerate(types(op)) if kind == "f" and k >= op.parameters]


def is_derived(op: Op, by: Sequence[int]) -> bool:
    """Whether the row has this partial derivative."""
    shapes, most = BY_SHAPE.get(op.name, ((), 0))
    return sum(k in shapes for k in by) <= most


def orders_of(op: Op, highest: int) -> list[tuple[int, ...]]:
    """Every partial derivative up to an order, by the positions of the arguments it is by."""
    slots = variables_of(op)
    return [
        by for order in range(1, highest + 1)
        for by in itertools.combinations_with_replacement(slots, order)
        if is_derived(op, by)
    ]  # fmt: skip


def true_derivative(op: Op, point: Point, by: Sequence[int]) -> Any:
    """The partial derivative at a point by the arguments at these positions, to 40 digits or more.

    It is complex where the row means nothing real next to the point. Each is computed once, in
    whatever order the arguments are.
    """
    key = op.name, repr(point), tuple(sorted(by))  # 0.0 and -0.0 are equal, and have other texts
    if key not in KNOWN:
        KNOWN[key] = mpf(0) if op.transparent else _computed(op, point, key[-1])
    return KNOWN[key]


KNOWN: Final[dict[tuple[str, str, tuple[int, ...]], Any]] = {}


def _computed(op: Op, point: Point, by: Sequence[int]) -> Any:
    """A derivative by a central difference in many digits."""
    slots = variables_of(op)

    def meaning(*floats: Any) -> Any:
        full = list(point)
        for k, value in zip(slots, floats, strict=True):
            full[k] = value
        return MEANING[op.name](*full)

    sizes = [abs(mpf(point[k])) for k in slots if point[k]] + [mpf(1)]
    spread = int(mp.log10(max(sizes) / min(sizes)))
    with mp.workdps(60 + (STEP + spread) * (len(by) + 1)):
        step = min(sizes) * mpf(10) ** -STEP
        value = _difference(meaning, [mpf(point[k]) for k in slots], [*map(by.count, slots)], step)
        return mpf(0) if abs(value) < NOTHING else value


def _difference(f: Any, x: Sequence[Any], orders: Sequence[int], step: Any) -> Any:
    """The central difference of f at x, in the precision at work.

    `mpmath.diff` works with as many times the digits as an order has points, in each argument, as
    it does not know that the caller has added those that the difference cancels.
    """
    stencils = [
        [((-1) ** k * math.comb(n, k), (n - 2 * k) * step) for k in range(n + 1)] for n in orders
    ]
    total = mpf(0)
    for terms in itertools.product(*stencils):
        at = [v + move for v, (_, move) in zip(x, terms, strict=True)]
        total += math.prod(weight for weight, _ in terms) * f(*at)
    return total / (2 * step) ** sum(orders)
