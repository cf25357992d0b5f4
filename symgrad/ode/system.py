"""The equation that is solved, with what every method asks of it, and one attempt at a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.array import array

Function = Callable[..., Any]

Powers = list[Any]
"""The solution within a step: what the powers x, x², .. of the share of it that is over, from 0 to
1, are times, added to where it began."""

Memory = dict[str, Any]
"""Numbers that a method carries from step to step."""

NO_MEMORY: Final[Memory] = {}


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
        returned = self.fun(t, y, *self.args)
        if returned is None:
            raise TraceError(located(f"{describe(self.fun)} returned nothing, not derivatives"))
        slope = array(returned)
        if not slope.ndim and self.size == 1:
            slope = slope.reshape(1)
        inner = next((np.shape(e) for e in slope.flat if isinstance(e, np.ndarray)), ())
        if inner or slope.shape[:1] == (self.size,) and slope.ndim > 1:
            raise TraceError(
                located(
                    f"{describe(self.fun)} returned an array {inner or slope.shape[1:]} for each "
                    "number of y0: to solve for many values of an argument, give y0 an axis of "
                    "problems before its last, as y0[None]; integers in args are constants, "
                    "which a.astype(float) makes values"
                )
            )
        if slope.shape == (self.size,):
            return slope
        raise TraceError(
            located(
                f"{describe(self.fun)} returned shape {slope.shape}, and y0 has {self.size} "
                f"numbers: return an array or a list of as many derivatives"
            )
        )

    def jumped(self, jump: Function, *arguments: Any) -> Any:
        """The state after a jump: an array of expressions (size,)."""
        state = array(jump(*arguments, *self.args))
        if state.shape != (self.size,):
            raise TraceError(
                located(
                    f"{describe(jump)} returned shape {state.shape}: the state after a jump has "
                    f"the {self.size} numbers of y0"
                )
            )
        return state

    def derivatives(self, t: Any, y: Any) -> tuple[Any, Any]:
        """The derivatives of the slope by t (size,) and y (size, size).

        Entries that are structurally 0 are the number 0.0.
        """
        return verbs.jacobian(self.slope, argnums=(0, 1))(t, y)

    def scale(self, a: Any, b: Any) -> Any:
        """How large an error may be in each number of a step from a to b."""
        return self.atol + self.rtol * np.maximum(np.abs(a), np.abs(b))


@dataclass(frozen=True)
class Start:
    """Where a step begins: the state y at t, its slope there, and what the method carries."""

    t: Any
    y: Any
    slope: Any
    memory: Memory


@dataclass(frozen=True)
class Attempt:
    """A step as a method proposes it.

    ``y`` and ``slope`` are the solution and its derivative at the end, and ``error`` is its
    estimated error beside what is allowed, a number, or None of a method of fixed steps. ``dense``
    makes the interpolant; what that needs beside the step is computed where it is called.
    ``memory`` is what the method carries on, also if the step is repeated.
    """

    y: Any
    slope: Any
    error: Any
    dense: Callable[[], Powers]
    evaluations: Any
    memory: Memory = field(default_factory=dict)


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

    @property
    def memory(self) -> Memory:
        """The numbers that it carries from step to step, as they begin."""
        ...

    def attempt(self, system: System, start: Start, h: Any) -> Attempt:
        """A step of length h."""
        ...


def norm(values: Any) -> Any:
    """The root of the mean of squares."""
    return ops.sqrt(np.sum(values * values) / len(values))


def combined(weights: Any, values: Any) -> Any:
    """The sum of arrays, each times its weight; those of weight 0 are left out."""
    terms = [v if w == 1.0 else w * v for w, v in zip(weights, values, strict=False) if w]
    return sum(terms[1:], terms[0]) if terms else 0.0


def hermite(start: Start, h: Any, end: Any, end_slope: Any) -> Powers:
    """The cubic that has the values and the slopes of both ends."""
    change, first, last = end - start.y, h * start.slope, h * end_slope
    return [first, 3.0 * change - 2.0 * first - last, first + last - 2.0 * change]


def interpolated(y: Any, powers: Powers, x: Any) -> Any:
    """The solution after a share x of a step from y."""
    value = powers[-1]
    for lower in powers[-2::-1]:
        value = lower + x * value
    return y + x * value
