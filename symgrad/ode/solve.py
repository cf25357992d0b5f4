"""`solve_ivp`: SciPy's verb for differential equations, in kernels and for many problems."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr.graph.misuse import located
from symgrad.expr.loops.open_loop import graph_among, require_functions, traced_graph
from symgrad.ode.eager import solved_now
from symgrad.ode.events import Event
from symgrad.ode.request import LIKE_SCIPY, METHODS, Request, Values, solved
from symgrad.ode.solution import OdeResult
from symgrad.ode.tableau import Tableau
from symgrad.pipeline import DType
from symgrad.targets import DeviceChoice

NOT_NEEDED: Final = frozenset({"jac", "jac_sparsity", "lband", "uband", "min_step"})
"""SciPy's options that mean nothing: Jacobians are derived, with their sparsity."""


def solve_ivp(
    fun: Callable[..., Any],
    t_span: Any,
    y0: Any,
    method: str | Tableau = "Tsit5",
    t_eval: Any = None,
    dense_output: bool = False,
    events: Any = None,
    vectorized: bool = False,
    args: tuple[Any, ...] | None = None,
    *,
    rtol: Any = 1e-3,
    atol: Any = 1e-6,
    first_step: Any = None,
    max_step: Any = math.inf,
    max_steps: int = 10_000,
    t_stops: Any = None,
    jump: Callable[..., Any] | None = None,
    max_events: int = 16,
    device: DeviceChoice = None,
    dtype: DType | None = None,
    **options: Any,
) -> OdeResult:
    """TODO doc"""
    _require_options(options, dense_output)
    request = Request(
        fun, _method(method), tuple(_event(e) for e in _listed(events)), jump,
        _count(max_steps, "max_steps"), _count(max_events, "max_events"),
    )  # fmt: skip
    require_functions(fun, *([] if jump is None else [jump]))
    if jump is not None and t_stops is None:
        raise InputError(located("a jump happens at stops: give their times, t_stops="))
    values = Values(
        _span(t_span), y0, _arguments(args), rtol, atol, first_step,
        None if max_step is None else max_step, t_eval, t_stops,
    )  # fmt: skip
    if first_step is None and not request.step_maker().adaptive:
        raise InputError(
            located(
                f"{method!r} estimates no error and takes equal steps: give their length, "
                "first_step="
            )
        )
    graph = None
    given = (t_span, y0, values.args, rtol, atol, first_step, max_step, t_eval, t_stops)
    if traced_graph() is not None or not _is_number(given):
        graph = graph_among(*given)
    if graph is not None:
        return solved(graph, request, values)
    return solved_now(request, values, device, dtype)


def _require_options(options: dict[str, Any], dense_output: bool) -> None:
    if dense_output:
        raise InputError(
            located("dense_output: give the times at which the solution is wanted, t_eval=")
        )
    unknown = sorted(options.keys() - NOT_NEEDED)
    if unknown:
        raise InputTypeError(located(f"solve_ivp has no option {', '.join(unknown)}"))


def _method(method: Any) -> str | Tableau:
    if isinstance(method, Tableau) or method in METHODS:
        return method
    names = ", ".join(METHODS)
    like = f": the like of SciPy's is {LIKE_SCIPY[method]!r}" if method in LIKE_SCIPY else ""
    raise InputError(located(f"no method {method!r}{like}; there are {names}, or a sg.Tableau"))


def _span(t_span: Any) -> tuple[Any, Any]:
    try:
        start, end = t_span
    except (TypeError, ValueError) as error:
        raise InputError(located(f"t_span is a pair, the start and the end, not {t_span!r}")) from (
            error
        )
    return start, end


def _arguments(args: Any) -> tuple[Any, ...]:
    if args is None:
        return ()
    if not isinstance(args, (tuple, list)):
        raise InputTypeError(
            located(f"args is a tuple of what fun takes after t and y: ({args!r},)?")
        )
    return tuple(args)


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise InputError(located(f"{name} is a whole number of at least 1, not {value!r}"))
    return int(value)


def _listed(events: Any) -> Sequence[Any]:
    if events is None:
        return ()
    return (events,) if callable(events) else tuple(events)


def _event(event: Any) -> Event:
    """An event as SciPy has it: a function with attributes."""
    require_functions(event)
    jump = getattr(event, "jump", None)
    direction = float(getattr(event, "direction", 0.0))
    return Event(event, direction, int(getattr(event, "terminal", False) or 0), jump)


def _is_number(value: Any) -> bool:
    """Whether it is a number, an array of numbers, or a list or tuple of such; or None."""
    kind = type(value)
    if kind in (float, int, NoneType):
        return True
    if kind in (list, tuple):
        return all(map(_is_number, value))
    return kind is np.ndarray and value.dtype.kind in "fiub"
