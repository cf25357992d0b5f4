"""Arguments of `solve_ivp`: checked, and as one problem inside a traced function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Graph, Handle
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.array import TracedArray, array, in_memory
from symgrad.expr.tracers.expression import lift
from symgrad.ode.events import Event, Events
from symgrad.ode.explicit import (
    LEAPFROG,
    RK4,
    TSIT5,
    YOSHIDA,
    DormandPrince853,
    ExplicitMethod,
    Symplectic,
    Tableau,
)
from symgrad.ode.implicit import RODAS5P, ROSENBROCK23, Kvaerno5, RosenbrockMethod, Switching
from symgrad.ode.integration import Integration, OdeResult, Stops, rounding
from symgrad.ode.system import Function, Method, System

METHODS: Final[dict[str, Callable[[], Method]]] = {
    "Tsit5": lambda: ExplicitMethod(TSIT5),
    "DOP853": DormandPrince853,
    "Rosenbrock23": lambda: RosenbrockMethod(ROSENBROCK23),
    "Rodas5P": lambda: RosenbrockMethod(RODAS5P),
    "Kvaerno5": Kvaerno5,
    "auto": Switching,
    "Leapfrog": lambda: Symplectic(LEAPFROG),
    "Yoshida": lambda: Symplectic(YOSHIDA),
    "RK4": lambda: ExplicitMethod(RK4),
}

LEAST_RTOL: Final = 4.0
"""The least relative tolerance, in roundings: none smaller is met."""

FIXED_STEPS: Final = ("RK4", "Leapfrog", "Yoshida")
"""Methods that estimate no error."""

LIKE_SCIPY: Final = {
    "RK45": "Tsit5",
    "RK23": "Tsit5",
    "Radau": "Rodas5P",
    "BDF": "Rodas5P",
    "LSODA": "auto",
}
"""The likes of SciPy's other methods."""


@dataclass(frozen=True)
class Request:
    """The functions and limits of a call, besides numbers that differ from call to call."""

    fun: Function
    method: str | Tableau
    events: tuple[Event, ...]
    jump: Function | None
    max_steps: int
    max_events: int
    recorded: int = 0
    """How many recorded places the result's ``y`` has, with their times above them."""
    every: int = 1
    """Steps from one recorded place to the next; the last step is always recorded."""

    def step_maker(self) -> Method:
        """The method."""
        if isinstance(self.method, Tableau):
            return ExplicitMethod(self.method)
        return METHODS[self.method]()

    def require_arguments(self, count: int) -> None:
        """Refuse functions that do not take t, y and so many ``args``."""
        wanted = [(self.fun, 2, "t and y"), (self.jump, 3, "t, y and the number of the stop")]
        for event in self.events:
            wanted += [(event.fun, 2, "t and y"), (event.jump, 2, "t and y")]
        for function, first, names in wanted:
            try:
                inspect.signature(function or print).bind(*range(first + count))
            except TypeError as error:
                raise InputTypeError(
                    located(
                        f"{describe(function)} is called with {names}, then with all of args, "
                        f"which has {count}: {error}"
                    )
                ) from error
            except ValueError:  # a built-in function that does not say what it takes
                continue


@dataclass(frozen=True)
class Values:
    """The numbers of a call: of one problem inside a trace, expressions among them."""

    span: tuple[Any, Any]
    y0: Any
    args: tuple[Any, ...]
    rtol: Any
    atol: Any
    first_step: Any
    max_step: Any
    t_eval: Any
    t_stops: Any


def solved(graph: Graph, request: Request, values: Values) -> OdeResult:
    """The solution of one problem, as expressions of the graph."""
    request.require_arguments(len(values.args))
    start, end = (_expression(graph, t) for t in values.span)
    y0 = _expressions(graph, values.y0)
    if y0.ndim != 1 or not len(y0):
        raise InputError(
            located(
                f"inside a traced function y0 is one problem, of shape (n,), not {y0.shape}: "
                "the batch is that of the kernel, or of sg.scan"
            )
        )
    for name, value in (("rtol", values.rtol), ("atol", values.atol)):
        if np.shape(value) not in ((), y0.shape):
            raise InputError(
                located(
                    f"{name} is one number, or one for each of the {len(y0)} of y0, not of shape "
                    f"{np.shape(value)}"
                )
            )
    least = LEAST_RTOL * rounding(start * 0.0 + 1.0)
    tolerance = array(np.maximum(array(values.rtol), least))[()]
    system = System(request.fun, values.args, len(y0), tolerance, array(values.atol)[()])
    integration = Integration(
        system=system,
        method=request.step_maker(),
        span=(start, end),
        y0=y0,
        first=values.first_step,
        max_step=values.max_step,
        max_steps=request.max_steps,
        t_eval=_times(graph, values.t_eval),
        recorded=request.recorded,
        every=request.every,
        stops=_stops(graph, values.t_stops, request.jump),
        events=Events(request.events, request.max_events, len(y0)) if request.events else None,
    )
    return _result(integration, values)


def _expression(graph: Graph, value: Any) -> Any:
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    return value if isinstance(value, Handle) else lift(graph, float(value))


def _expressions(graph: Graph, values: Any) -> Any:
    """An array of expressions."""
    elements = array(values)
    lifted = np.empty(elements.size, dtype=object)
    lifted[:] = [_expression(graph, e) for e in elements.flat]
    return array(lifted.reshape(elements.shape))


def _times(graph: Graph, times: Any) -> TracedArray | None:
    """Times in memory, so that a loop may index them."""
    if times is None:
        return None
    return in_memory(graph, times if isinstance(times, TracedArray) else array(times))


def _stops(graph: Graph, times: Any, jump: Function | None) -> Stops | None:
    stored = _times(graph, times)
    return None if stored is None else Stops(stored, jump)


def _result(integration: Integration, values: Values) -> OdeResult:
    end = integration.solved()
    status = end["status"]
    lost = ops.where(status < 0.0, math.nan, 1.0)  # a factor: derivatives are NaN, too
    if integration.recorded:
        t, y = None, end["path"].T
    elif integration.t_eval is None:
        t, last = array([integration.span[0], end["t"]]), end["y"]
        y = np.stack([integration.y0, last * lost], axis=1)
    else:
        t, y = values.t_eval, integration.outputs(end, lost).T
    counted = range(len(integration.events.events)) if integration.events else None
    named = [None if counted is None else [end[f"{name}{i}"] for i in counted]
             for name in ("times", "states")]  # fmt: skip
    return OdeResult(t, y, status, end["nfev"], end["steps"], *named)
