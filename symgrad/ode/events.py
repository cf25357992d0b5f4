"""Events: where a function of the solution crosses 0, with what happens to the state then."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.place import describe
from symgrad.expr.loops.control import cond, fori_loop
from symgrad.expr.tracers.array import array
from symgrad.ode.system import Attempt, System, interpolated

SAMPLES: Final = 4
"""Parts of a step at whose ends the signs of event functions are compared."""

HALVINGS: Final = 26
"""How often the part in which an event lies is halved."""

POLISHINGS: Final = 2
"""Steps of Newton's method that follow: derivatives of two orders go through them."""

NONE: Final = 2.0
"""The share of a step after which an event comes that is not in it."""


@dataclass(frozen=True)
class Event:
    """``fun(t, y, *args)`` crossing 0 upwards, downwards (``direction`` 1, -1) or both ways (0).

    The solution ends at occurrence number ``terminal``, 0 for none. ``jump(t, y, *args)`` gives
    the state after an occurrence.
    """

    fun: Callable[..., Any]
    direction: float
    terminal: int
    jump: Callable[..., Any] | None

    def value(self, t: Any, y: Any, args: Sequence[Any]) -> Any:
        """The function whose zeros are the event, as one expression."""
        value = array(self.fun(t, y, *args))
        if value.size == 1:
            return value.reshape(())[()]
        raise TraceError(
            located(
                f"the event {describe(self.fun)} returned shape {value.shape}: return one number, "
                "which is 0 at the event, and give several events as a list of functions"
            )
        )

    def crosses(self, before: Any, after: Any) -> Any:
        """Whether there is an event between two values."""
        up = ops.logical_and(before < 0.0, after >= 0.0)
        down = ops.logical_and(before > 0.0, after <= 0.0)
        if self.direction:
            return up if self.direction > 0 else down
        return ops.logical_or(up, down)


@dataclass(frozen=True)
class Located:
    """The events of a step: whether one ends it, after which share, in which state."""

    breaks: Any
    share: Any
    y: Any
    terminal: Any
    overflows: Any
    fires: Sequence[Any]
    records: dict[str, Any]


@dataclass(frozen=True)
class Events:
    """All events of a problem of ``size`` numbers, of each of which ``most`` are recorded."""

    events: tuple[Event, ...]
    most: int
    size: int

    @property
    def has_jumps(self) -> bool:
        """Whether the state jumps at any of them."""
        return any(e.jump is not None for e in self.events)

    def begin(self) -> dict[str, Any]:
        """The numbers that the loop over steps carries of events, as they begin."""
        carry: dict[str, Any] = {}
        for i in range(len(self.events)):
            carry[f"count{i}"] = 0.0
            carry[f"fired{i}"] = 0.0
            carry[f"times{i}"] = array(np.full(self.most, math.nan))
            carry[f"states{i}"] = array(np.full((self.most, self.size), math.nan))
        return carry

    def locate(
        self, system: System, c: dict[str, Any], accepted: Any, t: Any, h: Any, attempt: Attempt
    ) -> Located:
        """The events of a step that begins at t as the carry says."""
        powers = attempt.dense()
        shares = [s / SAMPLES for s in range(SAMPLES + 1)]
        states = [c["y"], *(interpolated(c["y"], powers, s) for s in shares[1:-1]), attempt.y]
        lows = [
            self._first_part(i, [e.value(t + s * h, y, system.args)
                                 for s, y in zip(shares, states, strict=True)], c)
            for i, e in enumerate(self.events)
        ]  # fmt: skip
        happen = [ops.logical_and(accepted, low < NONE) for low in lows]
        anything = functools.reduce(ops.logical_or, happen)

        def find() -> Any:
            def within(x: Any) -> Any:
                return interpolated(c["y"], powers, x)

            return [self._root(e, system, t, h, within, low)
                    for e, low in zip(self.events, lows, strict=True)]  # fmt: skip

        nothing = [(NONE, c["y"])] * len(self.events)
        roots = cond(anything, find, lambda: nothing)
        shares_of = [ops.where(w, x, NONE) for w, (x, _) in zip(happen, roots, strict=True)]
        return self._located(c, accepted, t, h, shares_of, [y for _, y in roots])

    def _first_part(self, i: int, values: Sequence[Any], c: dict[str, Any]) -> Any:
        """Where the first part of the step begins in which an event happens.

        An event that ended the step before is not looked for in the first part: it has just been.
        """
        low: Any = NONE
        for s in reversed(range(SAMPLES)):
            crosses = self.events[i].crosses(values[s], values[s + 1])
            if s == 0:
                crosses = ops.logical_and(crosses, c[f"fired{i}"] == 0.0)
            low = ops.where(crosses, s / SAMPLES, low)
        return low

    def _root(
        self, event: Event, system: System, t: Any, h: Any, within: Callable[[Any], Any], low: Any
    ) -> tuple[Any, Any]:
        """The share after which an event comes, and the state then."""

        def g(x: Any) -> Any:
            return event.value(t + x * h, within(x), system.args)

        high = low + 1.0 / SAMPLES
        side = ops.where(g(high) > g(low), 1.0, -1.0)

        def halve(_: Any, bracket: Any) -> Any:
            a, b = bracket
            middle = 0.5 * (a + b)
            over = g(middle) * side >= 0.0
            return ops.where(over, a, middle), ops.where(over, middle, b)

        x = ops.stop_gradient(fori_loop(0, HALVINGS, halve, (low, high))[1])
        for _ in range(POLISHINGS):
            move = g(x) / verbs.grad(g)(x)
            x = ops.where(abs(move) < 0.01, x - move, x)
        return x, within(x)

    def _located(
        self, c: dict[str, Any], accepted: Any, t: Any, h: Any, shares: Any, states: Any
    ) -> Located:
        breaking, ending = [], []
        for i, (e, x) in enumerate(zip(self.events, shares, strict=True)):
            last = ops.logical_and(x < NONE, c[f"count{i}"] + 1.0 >= (e.terminal or math.inf))
            ending.append(last)
            breaking.append(ops.where(last, x, NONE) if e.jump is None else x)
        share = functools.reduce(ops.minimum, breaking)
        breaks, y, records = share < NONE, c["y"], dict[str, Any]()
        fires, overflows, terminal = list[Any](), list[Any](), list[Any]()
        for i, (x, state) in enumerate(zip(shares, states, strict=True)):
            fires.append(ops.logical_and(breaks, breaking[i] <= share))
            terminal.append(ops.logical_and(ending[i], x <= share))
            y = np.where(fires[i], state, y)
            happens, k = ops.logical_and(x < NONE, x <= share), c[f"count{i}"]
            records[f"count{i}"] = k + ops.where(happens, 1.0, 0.0)
            records[f"fired{i}"] = ops.where(
                accepted, ops.where(fires[i], 1.0, 0.0), c[f"fired{i}"]
            )
            time = ops.where(happens, t + x * h, math.nan)
            records[f"times{i}"] = c[f"times{i}"].at[k].set(time)
            seen = np.where(happens, state, math.nan)
            records[f"states{i}"] = c[f"states{i}"].at[k].set(seen)
            overflows.append(records[f"count{i}"] > self.most)
        either = functools.partial(functools.reduce, ops.logical_or)
        return Located(breaks, share, y, either(terminal), either(overflows), fires, records)

    def jumped(self, located: Located, t: Any, y: Any, args: Sequence[Any]) -> Any:
        """The state after the jumps of the events that ended a step."""
        for event, fires in zip(self.events, located.fires, strict=True):
            if event.jump is not None:
                after = functools.partial(event.jump, t, y, *args)
                y = cond(fires, lambda f=after: array(f()), lambda y=y: y)
        return y
