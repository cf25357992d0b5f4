"""A simulation of a model, traced: its states at the times of measurements, as expressions."""

# SymPy has no types:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import sympy

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.calls.sympy_bridge import from_sympy
from symgrad.expr.calls.verbs import jacobian
from symgrad.expr.linear.linalg import solve
from symgrad.expr.linear.matrices import StructurallySingularError
from symgrad.expr.loops.control import fori_loop
from symgrad.expr.loops.implicit import custom_root
from symgrad.expr.tracers.array import array
from symgrad.ode.solve import solve_ivp
from symgrad.petab.sbml import TIME, Event, Model, symbol

sp: Final[Any] = sympy

LONG: Final = 1e8
"""The time after which a model without a steady state is said to have none."""

NEWTON_STEPS: Final = 3
"""Newton's steps that follow, from near enough for each to double the digits."""

SETTLED: Final = 1e-9
"""The largest change, relatively, by which another step of Newton's may move a steady state."""

SAMPLES: Final = 3
"""Points a state at which rates are sampled to see which of their sums are 0 everywhere."""


@dataclass(frozen=True)
class Solver:
    """How differential equations are solved: see `solve_ivp`."""

    method: str
    rtol: float
    atol: float
    max_steps: int


class Simulation:
    """The differential equations of a model with switches at times, and events.

    A condition that compares the time with something that no state changes is a *switch*: the
    integration stops there, and the condition is a state of its own, 0 before and 1 after. So steps
    never straddle it, and the derivatives by the time of the switch are right.
    """

    def __init__(self, model: Model, solver: Solver) -> None:
        self._solver = solver
        self._switches: list[Any] = []
        states = {symbol(x) for x in model.states}
        self._states = states
        by_time = [e for e in model.events if self._switch_time(e.trigger) is not None]
        self._timed = {e.name: self._switch(e.trigger) for e in by_time}
        self._events = [e for e in model.events if e.name not in self._timed]
        self._by_time = by_time
        rates = tuple(self._switched(rate) for rate in model.rates)
        self.model = replace(model, rates=rates)

    # --- switches ---------------------------------------------------------------------------------

    def _switch_time(self, margin: Any) -> Any:
        """When a margin is 0, if that is a matter of time alone; otherwise None."""
        if TIME not in margin.free_symbols or margin.free_symbols & self._states:
            return None
        slope = sp.diff(margin, TIME)
        if TIME in slope.free_symbols or slope == 0:
            return None
        return sp.simplify(-(margin - slope * TIME) / slope)

    def _switch(self, margin: Any) -> int:
        """The number of the switch at which a margin is 0."""
        time = self._switch_time(margin)
        if time not in self._switches:
            self._switches.append(time)
        return self._switches.index(time)

    def _switched(self, rate: Any) -> Any:
        """A rate, its conditions on the time being those of switches."""

        def condition(relation: Any) -> Any:
            margin = relation.gts - relation.lts
            if self._switch_time(margin) is None:
                return relation
            after = _flag(self._switch(margin)) > sp.Rational(1, 2)
            return after if sp.diff(margin, TIME).is_positive else sp.Not(after)

        inequalities = rate.atoms(sp.Rel) - rate.atoms(sp.Eq, sp.Ne)
        return rate.xreplace({r: condition(r) for r in inequalities})

    @property
    def flags(self) -> list[Any]:
        """The symbols of the states that say which switches have been passed."""
        return [_flag(k) for k in range(len(self._switches))]

    # --- the equations ----------------------------------------------------------------------------

    def _slope(
        self, values: Mapping[Any, Any], rates: Sequence[Any], flags: Sequence[Any] = ()
    ) -> Callable[[Any, Any], Any]:
        """The right-hand side for these values of parameters, by their symbols."""
        names = [symbol(x) for x in self.model.states]

        def slope(t: Any, y: Any) -> Any:
            known = {**values, **dict(zip([*names, *flags], y, strict=True)), TIME: t}
            return array([*(from_sympy(rate, known) for rate in rates), *[0.0] * len(flags)])

        return slope

    def states(self, values: Mapping[Any, Any], y0: Any, times: Any) -> Any:
        """The states (times, states) at times in order, from time 0 on."""
        count = len(self.model.states)
        stops, jump, events = self._discontinuities(values)
        passed = [ops.where(from_sympy(t, values) < 0.0, 1.0, 0.0) for t in self._switches]
        y0 = array([*y0, *passed])
        slope = self._slope(values, self.model.rates, self.flags)
        solution = solve_ivp(
            slope, (0.0, times[len(times) - 1]), y0, self._solver.method,
            t_eval=times, rtol=self._solver.rtol, atol=self._solver.atol,
            max_steps=self._solver.max_steps, t_stops=stops, jump=jump, events=events,
        )  # fmt: skip
        return solution.y.T[:, :count] if self._switches else solution.y.T

    def _discontinuities(self, values: Mapping[Any, Any]) -> tuple[Any, Any, Any]:
        """The times of switches in order, what they do, and events, as `solve_ivp` takes them."""
        events = [self._event(e, values) for e in self._events] or None
        if not self._switches:
            return None, None, events
        times = array([from_sympy(t, values) for t in self._switches])
        count = len(self.model.states)

        def jump(t: Any, y: Any, k: Any) -> Any:
            flags = [ops.where(t >= times[j], 1.0, 0.0) for j in range(len(self._switches))]
            state = [y[j] for j in range(count)]
            for event in self._by_time:
                happens = t == times[self._timed[event.name]]
                changed = self._assigned(event, values, t, state)
                state = [ops.where(happens, a, b) for a, b in zip(changed, state, strict=True)]
            return array([*state, *flags])

        return np.sort(times), jump, events

    def _assigned(
        self, event: Event, values: Mapping[Any, Any], t: Any, y: Sequence[Any]
    ) -> list[Any]:
        """The states after the assignments of an event."""
        names = [symbol(x) for x in self.model.states]
        known = {**values, **dict(zip(names, y, strict=False)), TIME: t}
        after = dict(zip(self.model.states, y, strict=False))
        after |= {x: from_sympy(formula, known) for x, formula in event.assignments}
        return [after[x] for x in self.model.states]

    def _event(self, event: Event, values: Mapping[Any, Any]) -> Any:
        """An event whose moment the states decide, as `solve_ivp` takes it."""
        names, count = [symbol(x) for x in self.model.states], len(self.model.states)

        def margin(t: Any, y: Any) -> Any:
            return from_sympy(
                event.trigger, {**values, **dict(zip(names, y, strict=False)), TIME: t}
            )

        def jump(t: Any, y: Any) -> Any:
            return array([*self._assigned(event, values, t, list(y[:count])), *y[count:]])

        margin.direction, margin.jump = 1.0, jump  # pyright: ignore[reportFunctionMemberAccess]
        return margin

    # --- steady states ----------------------------------------------------------------------------

    @cached_property
    def _conserved(self) -> tuple[np.ndarray, list[int]]:
        """Weights (k, states) of sums of amounts that stay what they are, and a state for each.

        Sums whose rate is 0 at random states and parameters; each has a 1 at its own state, and a 0
        at those of the others.
        """
        names = [*map(symbol, self.model.states)]
        used = sorted({s for r in self._flows for s in r.free_symbols} - {*names}, key=str)
        rates = sp.lambdify([[*names, *used]], self._flows, "numpy")
        draws = np.random.default_rng(0).uniform(
            0.5, 2.0, (SAMPLES * len(names), len(names) + len(used))
        )
        sampled = np.array([rates(point) for point in draws], float)
        _, sizes, directions = np.linalg.svd(sampled)
        rank = int((sizes > sizes[0] * 1e-10).sum())
        return _reduced(directions[rank:])

    @property
    def _flows(self) -> list[Any]:
        """The rates at which amounts change before all switches."""
        return [r * v for r, v in zip(self._first_rates, self.model.volumes, strict=True)]

    @cached_property
    def _first_rates(self) -> list[Any]:
        """The rates before all switches."""
        return [sp.sympify(r).xreplace(dict.fromkeys(self.flags, 0)) for r in self.model.rates]

    @property
    def has_switches(self) -> bool:
        """Whether the equations change at times."""
        return bool(self._switches)

    def steady(self, values: Mapping[Any, Any], y0: Any) -> Any:
        """The steady state that is reached from y0, with its derivatives by the implicit function.

        It is that of the rates before all switches, as no time has passed. Sums that the equations
        conserve take the place of equations that depend on the others.
        """
        if self._events or any(TIME in r.free_symbols for r in self._first_rates):
            raise InputError(
                f"{self.model.name}: a model with events that the states decide, or whose rates "
                "depend on the time, has no steady state: neither before a simulation nor at the "
                "time inf"
            )
        slope = self._slope(values, self._first_rates)
        weights, places = self._conserved
        volumes = array([from_sympy(v, values) for v in self.model.volumes])
        totals = weights @ (volumes * y0)

        def residual(y: Any) -> Any:
            equations = [*slope(0.0, y)]
            for k, (place, total) in enumerate(zip(places, weights @ (volumes * y), strict=True)):
                equations[place] = total - totals[k]
            return array(equations)

        def reached(f: Callable[[Any], Any], y: Any) -> Any:
            solver = self._solver
            end = solve_ivp(
                slope, (0.0, LONG), y, solver.method, rtol=solver.rtol, atol=solver.atol,
                max_steps=solver.max_steps,
            )  # fmt: skip
            return _newton(f, end.y[:, -1])

        try:
            return custom_root(residual, y0, reached)
        except StructurallySingularError as error:
            raise InputError(
                f"{self.model.name}: its rates do not determine a steady state, as that of a state "
                "that only grows, or that no rate depends on: leave out "
                "preequilibrationConditionId, and measurements at the time inf, or give such "
                "states a decay, or take them out of the model"
            ) from error


def _flag(k: int) -> Any:
    """The symbol of the state that says whether switch k has been passed."""
    return sp.Symbol(f"switch {k}", real=True)


def _newton(f: Callable[[Any], Any], y: Any) -> Any:
    """A root of f, from near it, by a few steps of Newton's method."""
    slopes = jacobian(f)
    root = fori_loop(0, NEWTON_STEPS, lambda _, y: y - solve(slopes(y), f(y)), y)
    move = solve(slopes(root), f(root))
    settled = np.sum(np.abs(move)) <= SETTLED * np.sum(np.abs(root))
    return np.where(settled, root, math.nan)


def _reduced(rows: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Rows of full rank, each with a 1 where all others have a 0, by Gauss and Jordan."""
    rows, places = rows.copy(), []
    for k in range(len(rows)):
        place = int(np.abs(rows[k]).argmax())
        rows[k] /= rows[k, place]
        for j in range(len(rows)):
            if j != k:
                rows[j] -= rows[j, place] * rows[k]
        places.append(place)
    return np.where(np.abs(rows) < 1e-9, 0.0, rows), places
