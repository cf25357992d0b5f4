"""The equation that is solved, with what every method asks of it, and one attempt at a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.array import array

Function = Callable[..., Any]

Dense = Callable[[Any], Any]
"""The solution within a step, as a function of the share of it that is over, from 0 to 1."""


@dataclass(frozen=True)
class System:
    """``y' = fun(t, y, *args)`` for one problem of ``size`` numbers, with its tolerances."""

    fun: Function
    args: tuple[Any, ...]
    size: int
    rtol: Any
    atol: Any

    def slope(self, t: Any, y: Any) -> Any:
        """The right-hand side: an array of expressions (size,)."""
        slope = array(self.fun(t, y, *self.args))
        if slope.shape == (self.size,):
            return slope
        raise TraceError(
            located(
                f"{describe(self.fun)} returned shape {slope.shape}, and y0 has {self.size} "
                f"numbers: return an array or a list of as many derivatives"
            )
        )

    def derivatives(self, t: Any, y: Any) -> tuple[Any, Any]:
        """The derivatives of the slope by t (size,) and y (size, size).

        Entries that are structurally 0 are the number 0.0.
        """
        return verbs.jacobian(self.slope, argnums=(0, 1))(t, y)

    def scale(self, a: Any, b: Any) -> Any:
        """How large an error may be in each number of a step from a to b."""
        return self.atol + self.rtol * np.maximum(np.abs(a), np.abs(b))


@dataclass(frozen=True)
class Attempt:
    """A step as a method proposes it.

    ``y`` and ``slope`` are the solution and its derivative at the end, and ``error`` is its
    estimated error beside what is allowed, a number, or None of a method of fixed steps. ``dense``
    makes the interpolant; what that needs beside the step is computed where it is called.
    """

    y: Any
    slope: Any
    error: Any
    dense: Callable[[], Dense]
    evaluations: Any


class Method(Protocol):
    """How a step is made."""

    @property
    def order(self) -> int:
        """The power of the step that its error estimate goes with."""
        ...

    @property
    def adaptive(self) -> bool:
        """Whether it estimates its error."""
        ...

    def attempt(self, system: System, t: Any, h: Any, y: Any, slope: Any) -> Attempt:
        """A step from y at t, where its derivative is ``slope``, to t + h."""
        ...


def norm(values: Any) -> Any:
    """The root of the mean of squares."""
    return ops.sqrt(np.sum(values * values) / len(values))


def combined(weights: Any, values: Any) -> Any:
    """The sum of arrays, each times its weight; those of weight 0 are left out."""
    terms = [v if w == 1.0 else w * v for w, v in zip(weights, values, strict=False) if w]
    return sum(terms[1:], terms[0]) if terms else 0.0


def hermite(y: Any, end: Any, h: Any, slope: Any, end_slope: Any) -> Dense:
    """The cubic that has the values and the slopes of both ends."""

    def at(x: Any) -> Any:
        rest = 1.0 - x
        bend = (1.0 - 2.0 * x) * (end - y) + h * (x * end_slope - rest * slope)
        return rest * y + x * end - x * rest * bend

    return at


def is_structural_zero(entry: Any) -> bool:
    """Whether an entry of a matrix is the number 0, whatever the values are."""
    return not isinstance(entry, Handle) and entry == 0
