"""The loop of steps, from the start to the end: their lengths, outputs, stops, and the solution."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.loops.control import cond, while_loop
from symgrad.expr.tracers.array import TracedArray, array
from symgrad.expr.tracers.functions import uint32
from symgrad.ode.events import Events, Located
from symgrad.ode.system import Attempt, Method, Start, System, interpolated, norm

SAFETY: Final = 0.9
LEAST_FACTOR: Final = 0.2
LARGEST_FACTOR: Final = 10.0
"""How much shorter or longer the next step may be."""

PROPORTIONAL: Final = 0.2
"""The share of the last error but one in the choice, times the order (Hairer, Nørsett & Wanner,
1993, Solving Ordinary Differential Equations I, IV.2 of its second volume)."""

LEAST_LOGARITHM: Final = -13.0
"""The binary logarithm of the error that counts as the last but one where it was smaller."""


def first_step(
    system: System, t: Any, y: Any, slope: Any, span: Any, direction: Any, order: int
) -> Any:
    """A first step that explicit Euler would take with a small error (Hairer & others, II.4)."""
    scale = system.scale(y, y)
    size, speed = norm(y / scale), norm(slope / scale)
    small = ops.logical_or(size < 1e-5, speed < 1e-5)
    trial = ops.where(small, 1e-6, 0.01 * size / ops.where(small, 1.0, speed))
    trial = ops.minimum(ops.where(trial > 0.0, trial, 1e-6), span)  # of a slope that is not finite
    moved = system.slope(t + direction * trial, y + direction * trial * slope)
    bend = norm((moved - slope) / scale) / ops.where(trial > 0.0, trial, 1.0)
    most = ops.maximum(speed, bend)
    straight = most <= 1e-15
    power = ops.exp2(ops.log2(0.01 / ops.where(straight, 1.0, most)) / order)
    chosen = ops.where(straight, ops.maximum(1e-6, 1e-3 * trial), power)
    chosen = ops.where(chosen > 0.0, chosen, trial)
    return ops.minimum(ops.minimum(100.0 * trial, chosen), span)


def next_factor(error: Any, last: Any, order: int, most: Any) -> tuple[Any, Any]:
    """How much longer the next step is, and the logarithm of this error for the one after.

    ``last`` is that logarithm of the step before, and ``most`` the largest factor. A step whose
    error is too large is repeated by the error alone.
    """
    known = ops.where(error < np.inf, error, 1e30)
    logarithm = ops.log2(ops.maximum(known, 1e-10))
    gentle = 0.75 * PROPORTIONAL * last - logarithm * (1.0 - 0.75 * 0.75 * PROPORTIONAL)
    taken = ops.where(error <= 1.0, gentle, -logarithm)
    factor = SAFETY * ops.exp2(taken / order)
    bounded = ops.minimum(most, ops.maximum(LEAST_FACTOR, factor))
    return bounded, ops.maximum(logarithm, LEAST_LOGARITHM)


def rounding(one: Any) -> Any:
    """The distance of 1 from the next number, of the precision that ``one`` is computed in."""
    return ops.where(ops.opaque(ops.opaque(one) + 2.0**-30) == 1.0, 2.0**-23, 2.0**-52)


RUNNING: Final = 2.0
"""The status of a problem that has not ended."""

REACHED, EVENT, TOO_SMALL, TOO_MANY, NOT_FINITE, TOO_MANY_EVENTS = 0, 1, -1, -2, -3, -4

MESSAGES: Final = {
    REACHED: "The solver successfully reached the end of the integration interval.",
    EVENT: "A termination event occurred.",
    TOO_SMALL: "Required step size is less than spacing between numbers.",
    TOO_MANY: "The steps ran out: raise max_steps, or choose a method for stiff problems.",
    NOT_FINITE: "The solution or its slope is not finite.",
    TOO_MANY_EVENTS: "More events occurred than max_events.",
}
"""The meaning of each status; the first three are SciPy's."""

STRETCH: Final = 1.0001
"""How much longer than it was to be a step may get to end where it is to end."""


@dataclass(frozen=True)
class Stops:
    """Times (k,) at which steps end, in the order of the integration, and what happens then.

    ``jump(t, y, k, *args)`` gives the state after stop k.
    """

    times: Any
    jump: Callable[..., Any] | None


@dataclass(frozen=True)
class Integration:
    """One problem, and all that was asked of its solution."""

    system: System
    method: Method
    span: tuple[Any, Any]
    y0: Any
    first: Any
    max_step: Any
    max_steps: int
    t_eval: TracedArray | None
    recorded: int
    every: int
    stops: Stops | None
    events: Events | None

    @property
    def direction(self) -> Any:
        """1 forward, -1 backward in time."""
        start, end = self.span
        return ops.where(end >= start, 1.0, -1.0)

    def solved(self) -> dict[str, Any]:
        """The last carry of the loop over all attempts at steps."""
        end = while_loop(
            lambda c: ops.logical_and(c["status"] == RUNNING, c["steps"] < self.max_steps),
            self._step,
            self._begin(),
            self.max_steps,
        )
        ran_out = end["status"] == RUNNING
        return end | {"status": ops.where(ran_out, float(TOO_MANY), end["status"])}

    def outputs(self, end: dict[str, Any], lost: Any) -> Any:
        """The solution at the times asked for, times ``lost`` where it failed before them."""
        assert self.t_eval is not None, "outputs are recorded where some were asked for"
        count, failed, y = len(self.t_eval), end["status"] < 0.0, end["y"] * lost
        return while_loop(
            lambda pair: ops.logical_and(failed, pair[0] < count),
            lambda pair: (pair[0] + 1, pair[1].at[pair[0]].set(y)),
            (end["next"], end["outputs"]),
            count,
        )[1]

    def _begin(self) -> dict[str, Any]:
        t, y = self.span[0], self.y0
        slope = self.system.slope(t, y)
        is_finite = abs(self.span[1] - t) < np.inf
        carry = {
            "t": t, "y": y, "slope": slope, "h": self._first_step(t, y, slope),
            "last": LEAST_LOGARITHM, "most": LARGEST_FACTOR,
            "status": ops.where(is_finite, RUNNING, float(NOT_FINITE)), "steps": 0.0,
            "nfev": 1.0 + self._first_evaluations,
        }  # fmt: skip
        carry |= self.method.memory
        if self.t_eval is not None:
            blank = array(np.full((len(self.t_eval), self.system.size), math.nan))
            carry |= {"outputs": blank, "next": uint32(0)}
        if self.recorded:
            carry |= {
                "path": array(np.full((self.recorded, 1 + self.system.size), math.nan)),
                "places": 1.0,
                "taken": 0.0,
            }
        if self.stops is not None:
            passed = (array(self.stops.times) - t) * self.direction < 0.0
            carry |= {"stop": np.sum(np.where(passed, 1.0, 0.0))}
        return carry | ({} if self.events is None else self.events.begin())

    @property
    def _first_evaluations(self) -> int:
        return int(self.method.adaptive and self.first is None)

    def _first_step(self, t: Any, y: Any, slope: Any) -> Any:
        if self.first is not None:
            return ops.minimum(self.first, self.max_step)
        span = abs(self.span[1] - self.span[0])
        own = first_step(self.system, t, y, slope, span, self.direction, self.method.order)
        return ops.stop_gradient(ops.minimum(own, self.max_step))

    def _target(self, c: dict[str, Any]) -> tuple[Any, Any]:
        """Where the next step may end at the latest, and whether that is a stop."""
        end = self.span[1]
        if self.stops is None:
            return end, False
        stop = self.stops.times[c["stop"]]
        ahead = ops.logical_and(
            c["stop"] < len(self.stops.times), (stop - end) * self.direction < 0.0
        )
        return ops.where(ahead, stop, end), ahead

    def _step(self, c: dict[str, Any]) -> dict[str, Any]:
        t, length = c["t"], ops.stop_gradient(c["h"])
        target, at_stop = self._target(c)
        clipped = abs(target - t) <= STRETCH * length
        h = ops.where(clipped, target - t, self.direction * length)
        start = Start(t, c["y"], c["slope"], {name: c[name] for name in self.method.memory})
        attempt = self.method.attempt(self.system, start, h)
        error = self._error(attempt)
        accepted = error <= 1.0
        after = c | attempt.memory
        after["nfev"], after["steps"] = c["nfev"] + attempt.evaluations, c["steps"] + 1.0
        after |= self._controlled(c, length, h, clipped, error)
        reached = ops.where(clipped, target, t + h)
        t_end, y_end, stopped = reached, attempt.y, ops.logical_and(accepted, clipped)
        located = None
        if self.events is not None:
            located = self.events.locate(self.system, c, accepted, t, h, attempt)
            t_end = ops.where(located.breaks, t + located.share * h, reached)
            y_end = np.where(located.breaks, located.y, y_end)
            stopped = ops.logical_and(stopped, ops.logical_not(located.breaks))
            after |= located.records
        after["t"] = ops.where(accepted, t_end, t)
        after["y"] = np.where(accepted, y_end, c["y"])
        after["slope"] = np.where(accepted, attempt.slope, c["slope"])
        if self.t_eval is not None:
            after |= self._recorded(c, accepted, t, h, t_end, attempt)
        if self.recorded:
            after |= self._with_place(after, accepted)
        at_end = stopped if at_stop is False else ops.logical_and(stopped, ops.logical_not(at_stop))
        after["status"] = ops.where(at_end, float(REACHED), self._failure(c, after, error))
        if located is not None:
            after |= self._after_event(after, located)
        return after if self.stops is None else after | self._after_stop(after, stopped, at_stop)

    def _error(self, attempt: Attempt) -> Any:
        """The error beside what is allowed; NaN of what is not finite."""
        if attempt.error is not None:
            return ops.stop_gradient(attempt.error)
        total = ops.stop_gradient(np.sum(attempt.y))
        return ops.where(abs(total) < np.inf, 0.0, math.nan)

    def _controlled(
        self, c: dict[str, Any], length: Any, h: Any, clipped: Any, error: Any
    ) -> dict[str, Any]:
        """The length of the next step, and what the controller remembers."""
        if not self.method.adaptive:
            return {"h": length}
        accepted = error <= 1.0
        factor, last = next_factor(error, c["last"], self.method.order, c["most"])
        grown = abs(h) * factor
        kept = ops.logical_and(accepted, clipped)
        chosen = ops.where(kept, ops.maximum(length, grown), grown)
        return {
            "h": ops.stop_gradient(ops.minimum(chosen, self.max_step)),
            "last": ops.where(accepted, last, c["last"]),
            "most": ops.where(accepted, LARGEST_FACTOR, 1.0),
        }

    def _failure(self, c: dict[str, Any], after: dict[str, Any], error: Any) -> Any:
        """The status of a step that is repeated, if it cannot be made any shorter."""
        start, end = self.span
        epsilon = rounding(1.0 + 0.0 * c["steps"])
        least = 10.0 * epsilon * ops.maximum(abs(c["t"]), epsilon * abs(end - start))
        finite = error < np.inf
        if not self.method.adaptive:
            return ops.where(finite, RUNNING, float(NOT_FINITE))
        ends = ops.logical_and(ops.logical_not(error <= 1.0), after["h"] < least)
        status = ops.where(finite, float(TOO_SMALL), float(NOT_FINITE))
        return ops.where(ends, status, RUNNING)

    def _with_place(self, c: dict[str, Any], accepted: Any) -> dict[str, Any]:
        """The path with the place that an accepted step has reached.

        It stays if the step's number is a multiple of ``every``; else the next one replaces it.
        """
        k, taken = c["places"], c["taken"] + ops.where(accepted, 1.0, 0.0)
        place = np.concatenate([array([c["t"]]), c["y"]])
        kept = ops.logical_and(accepted, taken % float(self.every) == 0.0)
        return {
            "path": c["path"].at[k].set(np.where(accepted, place, c["path"][k])),
            "places": k + ops.where(kept, 1.0, 0.0),
            "taken": taken,
        }

    def _recorded(
        self, c: dict[str, Any], accepted: Any, t: Any, h: Any, t_end: Any, attempt: Attempt
    ) -> dict[str, Any]:
        """The outputs, with those that the step has come to."""
        times, direction = self.t_eval, self.direction
        assert times is not None, "outputs are recorded where some were asked for"
        count = len(times)

        def due(k: Any) -> Any:
            return ops.logical_and(k < count, (times[k] - t_end) * direction <= 0.0)

        def write() -> tuple[Any, Any]:
            powers = attempt.dense()

            def one(pair: tuple[Any, Any]) -> tuple[Any, Any]:
                k, outputs = pair
                gone = times[k] - t
                x = ops.where(h == 0.0, 0.0, gone / ops.where(h == 0.0, 1.0, h))
                before = gone * direction < 0.0
                return k + 1, outputs.at[k].set(
                    np.where(before, math.nan, interpolated(c["y"], powers, x))
                )

            return while_loop(lambda pair: due(pair[0]), one, (c["next"], c["outputs"]), count)

        any_due = ops.logical_and(accepted, due(c["next"]))
        k, outputs = cond(any_due, write, lambda: (c["next"], c["outputs"]))
        return {"next": k, "outputs": outputs}

    def _restarted(self, after: dict[str, Any], jumps: Any, y: Callable[[], Any]) -> dict[str, Any]:
        """The carry where the state jumps: the slope and the step are those of a new problem."""

        def restart() -> tuple[Any, Any, Any]:
            state = array(y())
            slope = self.system.slope(after["t"], state)
            step = after["h"]
            if self.method.adaptive:
                step = self._first_step(after["t"], state, slope)
            return state, slope, step

        state, slope, h = cond(jumps, restart, lambda: (after["y"], after["slope"], after["h"]))
        spent = ops.where(jumps, 1.0 + self._first_evaluations, 0.0)
        return {"y": state, "slope": slope, "h": h, "nfev": after["nfev"] + spent}

    def _after_stop(self, after: dict[str, Any], stopped: Any, at_stop: Any) -> dict[str, Any]:
        assert self.stops is not None, "there are stops"
        jumps, jump, k = ops.logical_and(stopped, at_stop), self.stops.jump, after["stop"]
        next_stop = {"stop": k + ops.where(jumps, 1.0, 0.0)}

        def jumped() -> Any:
            y = after["y"]
            return y if jump is None else self.system.jumped(jump, after["t"], y, k)

        return next_stop | self._restarted(after, jumps, jumped)

    def _after_event(self, after: dict[str, Any], located: Located) -> dict[str, Any]:
        """The carry after an event that ended the step."""
        assert self.events is not None, "there are events"
        status = ops.where(located.terminal, float(EVENT), after["status"])
        status = ops.where(located.overflows, float(TOO_MANY_EVENTS), status)
        events = self.events
        jumps = ops.logical_and(located.breaks, ops.logical_not(located.terminal))
        if not events.has_jumps:
            return {"status": status}
        jumped = self._restarted(
            after, jumps, lambda: events.jumped(located, self.system, after["t"], after["y"])
        )
        return jumped | {"status": status}


# The solution of a differential equation, with SciPy's names.


@dataclass
class OdeResult:
    """The solution that `solve_ivp` gives, with SciPy's names; its fields are keys as well.

    Inside a traced function all numbers are expressions. Leading axes are those of the batch.

    Example:
        >>> import symgrad as sg
        >>> solution = sg.solve_ivp(lambda t, y: -y, (0, 1), [1.0], t_eval=[0.0, 0.5, 1.0])
        >>> solution.y.shape, solution["success"]
        ((1, 3), True)
    """

    t: Any
    """The times: those of t_eval, of the steps, or of the start and the end."""

    y: Any
    """The solution at each, (..., size, times); NaN from where it failed, or ended, on."""

    status: Any
    """0: the end was reached; 1: a terminal event; below 0: it failed, `message` says how."""

    nfev: Any
    """Evaluations of the right-hand side."""

    steps: Any
    """Attempts at steps, those that were repeated among them."""

    t_events: Any = None
    """For each event the times at which it happened."""

    y_events: Any = None
    """For each event the states then, before jumps."""

    @property
    def success(self) -> Any:
        """Whether the end, or a terminal event, was reached."""
        return self.status >= 0

    @property
    def message(self) -> Any:
        """The meaning of the status; of many problems, of each status that occurs."""
        if hasattr(self.status, "graph"):
            return "; ".join(f"{status}: {text}" for status, text in MESSAGES.items())
        if getattr(self.status, "ndim", 0):
            occurring = sorted({int(s) for s in self.status.ravel()})
            return "; ".join(f"{status}: {MESSAGES[status]}" for status in occurring)
        return MESSAGES[int(self.status)]

    def keys(self) -> list[str]:
        """The names of the fields."""
        return [*(f.name for f in fields(self)), "success", "message"]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)
