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
from symgrad.expr.tracers.expression import lift
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

        def on_way(event: Event) -> Callable[[Any], Any]:
            return lambda x: event.value(t + x * h, interpolated(c["y"], powers, x), system.args)

        lows = list[Any]()
        for i, (e, g) in enumerate(zip(self.events, map(on_way, self.events), strict=True)):
            values = [e.value(t + s * h, y, system.args)
                      for s, y in zip(shares, states, strict=True)]  # fmt: skip
            just_now = c[f"fired{i}"] > 0.0
            still = 0.0 if e.jump is None else verbs.grad(g)(lift(t.graph, 0.0))
            lows.append(_first_part(e, [ops.where(just_now, still, values[0]), *values[1:]]))
        happen = [ops.logical_and(accepted, low < NONE) for low in lows]
        anything = functools.reduce(ops.logical_or, happen)

        def find() -> Any:
            return [
                (x := _root(on_way(e), low), interpolated(c["y"], powers, x))
                for e, low in zip(self.events, lows, strict=True)
            ]

        nothing = [(NONE, c["y"])] * len(self.events)
        roots = cond(anything, find, lambda: nothing)
        shares_of = [ops.where(w, x, NONE) for w, (x, _) in zip(happen, roots, strict=True)]
        return self._located(c, accepted, t, h, shares_of, [y for _, y in roots])

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

    def jumped(self, located: Located, system: System, t: Any, y: Any) -> Any:
        """The state after the jumps of the events that ended a step."""
        for event, fires in zip(self.events, located.fires, strict=True):
            if event.jump is not None:
                after = functools.partial(system.jumped, event.jump, t, y)
                y = cond(fires, after, lambda y=y: y)
        return y


def _first_part(event: Event, values: Sequence[Any]) -> Any:
    """Where the first part of a step begins in which an event happens.

    The first value is that at the start. Where the event has just been, it is the derivative in its
    place, which tells on which side the function goes on: 0, for no event in the first part, of one
    without a jump.
    """
    low: Any = NONE
    for s in reversed(range(SAMPLES)):
        low = ops.where(event.crosses(values[s], values[s + 1]), s / SAMPLES, low)
    return low


def _root(g: Callable[[Any], Any], low: Any) -> Any:
    """The share of a step at which a function of it is 0, in the part that begins at ``low``."""
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
    return x
