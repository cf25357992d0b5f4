"""Steps of the recurrence of state-space models, traced, and what is derived from them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

from symgrad.expr import ops
from symgrad.kernel.skeletons.selective import Recurrence
from symgrad.pipeline import Options
from symgrad.tensor.formulas import Formulas

Discretization = Literal["zoh", "euler"]

SERIES_BELOW: Final = 0.5
"""Where |x| is less, (exp(x) - 1)/x is a polynomial times exp(x/2)."""

TERMS: Final = {"float32": 4, "float64": 7}
"""The terms of it, by dtypes: what is left out of its derivative is below its rounding."""


def growth(x: Any, half: Any, terms: int) -> Any:
    """(exp(x) - 1)/x, by exp(x/2); near 0 that times the series of sinh(x/2)/(x/2).

    The difference would lose digits there. The derivative loses digits nowhere either, and is
    short, as the series is one of squares.
    """
    s = 0.25 * (x * x)
    near = 1.0 / math.factorial(2 * terms - 1)
    for n in range(2 * terms - 3, 0, -2):
        near = near * s + 1.0 / math.factorial(n)
    small = abs(x) < SERIES_BELOW
    inverse = 1.0 / ops.where(small, 1.0, x)
    return ops.where(small, half * near, (half * half - 1.0) * inverse)


def zero_order_hold(terms: int, state: Any, d: Any, a: Any, b: Any, u: Any) -> Any:
    """The state after a step of size d, in which the input does not change."""
    x = d * a
    half = ops.exp(0.5 * x)
    return half * half * state + growth(x, half, terms) * d * (b * u)


def euler(state: Any, d: Any, a: Any, b: Any, u: Any) -> Any:
    """The state after a step of size d whose input counts with its size, as in Mamba."""
    return ops.exp(d * a) * state + d * (b * u)


def recurrence(
    states: int, softplus: bool, discretization: Discretization, stateful: bool, options: Options
) -> Recurrence:
    """The formulas of a scan: the step, and what it adds to outputs; all others are derived."""
    step = euler if discretization == "euler" else partial(zero_order_hold, TERMS[options.dtype])
    formulas = partial(Formulas, options=replace(options, name="step"))

    def both(state: Any, d: Any, a: Any, b: Any, u: Any, c: Any) -> Any:
        after = step(state, d, a, b, u)
        return after, c * after

    size = formulas(ops.softplus if softplus else lambda raw: raw, ("raw",))
    advance = formulas(step, ("state", "d", "a", "b", "u"))
    whole = formulas(both, (*advance.names, "c"))
    product = formulas(lambda w, x: w * x, ("w", "x"))
    reverse = whole.reverse(advance.names, 2)
    step_formulas = size.value(), size.reverse(["raw"]), advance.value(), reverse
    products = product.value(), product.reverse(["w", "x"])
    return Recurrence(states, *step_formulas, *products, stateful, again=discretization == "zoh")
