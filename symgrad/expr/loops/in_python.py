"""Loops on numbers alone, outside of traced functions: they are Python's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from symgrad.expr.loops.stacks import Rows, paired
from symgrad.expr.tracers.tree import Tree, apart, flatten


def counted(
    iterations: range, body: Callable[[Any, Any], Any], carry: Any, most: int | None = None
) -> Any:
    """The last carry of a loop that counts; NaN where it counts further than ``most``."""
    for k in iterations[:most]:
        carry = body(k, carry)
    return carry if most is None or len(iterations) <= most else _all_nan(carry)


def repeated(
    going: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any, most: int | None = None
) -> Any:
    """The last carry of a loop with a test; NaN if the test holds after ``most`` iterations."""
    taken = 0
    while going(carry):
        if taken == most:
            return _all_nan(carry)
        carry, taken = body(carry), taken + 1
    return carry


def scanned(step: Callable[[Any, Any], Any], carry: Any, rows: Rows, reverse: bool) -> Any:
    """The last carry of a scan, and what its steps give, stacked."""
    order: Iterable[int] = range(rows.count)
    ys: list[Any] = []
    for k in reversed(range(rows.count)) if reverse else order:
        carry, y = paired(step(carry, rows[k]), step)
        ys.append(y)
    like = ys[0] if ys else paired(step(carry, rows.blank()), step)[1]
    return carry, rows.stacked(ys[::-1] if reverse else ys, like)


def _all_nan(carry: Any) -> Any:
    """NaN in the place of all numbers of a nest."""
    leaves, tree = flatten(carry, lambda x: ([x], Tree()) if apart(x) is None else None)
    return tree.nest(
        (math.nan if np.ndim(x) == 0 else np.full(np.shape(x), math.nan) for x in leaves), None
    )
