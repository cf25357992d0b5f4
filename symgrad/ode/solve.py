"""`solve_ivp`: SciPy's verb for differential equations, in kernels and for many problems."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import ElementsNeededError
from symgrad.expr.loops.open_loop import graph_among, is_whole, traced_graph
from symgrad.ode.eager import solved_now
from symgrad.ode.events import Event
from symgrad.ode.explicit import Tableau
from symgrad.ode.integration import OdeResult
from symgrad.ode.request import FIXED_STEPS, LIKE_SCIPY, METHODS, Request, Values, solved
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
    max_steps: int = 4096,
    t_stops: Any = None,
    jump: Callable[..., Any] | None = None,
    max_events: int = 16,
    device: DeviceChoice = None,
    dtype: DType | None = None,
    **options: Any,
) -> OdeResult:
    """Solve ``y' = fun(t, y, *args)``, as ``scipy.integrate.solve_ivp`` does, of many problems.

    Inside a traced function, and of expressions, the solution is made of expressions: it may stand
    in any loss, row, fit or loop, on any device. Of numbers it is computed at once, all problems of
    a batch by one kernel, which is kept for calls like it.

    Derivatives of the solution are those of the steps as they were taken, with their sizes held
    fixed: by ``y0``, ``args``, the ends of ``t_span``, ``t_eval``, ``t_stops`` and what ``fun``
    closes over, of any order, and right across stops and events.

    Args:
        fun: The right-hand side; returns n derivatives, in an array or a list. It is traced: it
            uses NumPy's functions or symgrad's, and no ``if`` on t or y (``sg.where``).
        t_span: The start and the end, which may be before it; of many problems each may be an
            array (...) as well.
        y0: The initial state (n,); of many problems (..., n), with the arrays of ``args`` beginning
            with the same axes, or with axes of length 1 for what all problems share. Inside a trace
            a problem is one: the batch is that of the kernel.
        method: "Tsit5", of order 5, or for high accuracy "DOP853", of order 8; for stiff problems
            "Rodas5P", of order 5, "Rosenbrock23", of order 2 for low accuracy, or "Kvaerno5", of
            order 5, an implicit method with Newton's; "auto" goes from Tsit5 to Rodas5P
            where it meets stiffness, and back; of fixed steps ``first_step`` "RK4", and "Leapfrog"
            and "Yoshida", which are symplectic: y is then positions and as many momenta. Or a
            `Tableau`.
        t_eval: The times (m,) at which the solution is given, in the order of the integration. None
            for the steps that were taken, as SciPy gives them (of more than 2,047, every second,
            fourth and so on, and the last); of many problems, and inside a trace, for the start and
            the end alone.
        dense_output: SciPy's, which is refused: give ``t_eval``.
        events: Functions ``event(t, y, *args)``, one or several, that cross 0, with SciPy's
            attributes ``terminal`` (True, or after how many occurrences) and ``direction``, and
            ``jump``: a function ``jump(t, y, *args)`` that gives the state after the event. They
            are looked for at four places of each step, and located on the interpolant. A zero at
            the start itself does not count, as it does in SciPy.
        vectorized: SciPy's; it means nothing here.
        args: Further arguments of fun. Floats and arrays of floats are data; all else, ints
            too, are constants of the kernel.
        rtol: The relative error that is allowed in a step, for all components or for each.
        atol: The absolute error that is allowed besides.
        first_step: The length of the first step; None chooses it (Hairer & others).
        max_step: The most that a step may take.
        max_steps: The most steps, those that are repeated among them.
        t_stops: Times (k,), in the order of the integration, at which steps end: those of doses,
            or where ``fun`` is not smooth. Those outside of ``t_span`` do not count.
        jump: A function ``jump(t, y, k, *args)`` that gives the state after stop k, counted from 0.
            At the time of a stop ``t_eval`` gives the state before it.
        max_events: How many occurrences of each event are recorded; a problem with more fails.
        device: Where numbers are computed: the CPU by default.
        dtype: Their precision: "float64" on the CPU by default, and else "float32".
        options: SciPy's ``jac`` and the like are taken and not needed: Jacobians are derived, with
            their sparsity.

    Returns:
        An `OdeResult`. A problem that fails has a ``status`` below 0, and NaN from there on; the
        others are as if it were not there.

    Raises:
        InputError: for arguments that do not fit together. TraceError: if ``fun`` cannot be traced,
        or returns another number of derivatives than y has.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> def predators_and_prey(t, y, growth, hunting):
        ...     return [growth * y[0] - hunting * y[0] * y[1], hunting * y[0] * y[1] - y[1]]
        >>> solution = sg.solve_ivp(
        ...     predators_and_prey, (0, 10), [2.0, 1.0], args=(1.1, 0.4), rtol=1e-8)
        >>> solution.y[:, -1].round(5), solution.message[:22]
        (array([1.16507, 4.79463]), 'The solver successfull')
        >>> growth = np.linspace(0.5, 2.0, 1000)
        >>> sg.solve_ivp(predators_and_prey, (0, 10), [[2.0, 1.0]], args=(growth, 0.4)).y.shape
        (1000, 2, 2)
    """
    _require_options(options, dense_output)
    for name, function in (("fun", fun), ("jump", jump or fun)):
        if not callable(function):
            raise InputTypeError(located(f"{name} is a function of t and y, not {function!r}"))
    request = Request(
        fun, _method(method), tuple([_event(e) for e in _listed(events)]), jump,
        _count(max_steps, "max_steps"), _count(max_events, "max_events"),
    )  # fmt: skip
    values = Values(
        _span(t_span), y0, _arguments(args), rtol, atol, first_step, max_step, t_eval, t_stops
    )
    _require_steps(request, values)
    given = (t_span, y0, values.args, rtol, atol, first_step, max_step, t_eval, t_stops)
    if traced_graph() is not None or not _is_number(given):
        if is_whole(*given):
            raise ElementsNeededError(
                "sg.solve_ivp takes no arrays that are traced as a whole: for many problems call "
                "it outside, with axes of y0 before its last"
            )
        graph = graph_among(*given)
        if graph is not None:
            return solved(graph, request, values)
    return solved_now(request, values, device, dtype)


def _require_steps(request: Request, values: Values) -> None:
    """Refuse what no steps can be made of."""
    if request.jump is not None and values.t_stops is None:
        raise InputError(located("a jump happens at stops: give their times, t_stops="))
    if values.first_step is None and _is_fixed(request.method):
        raise InputError(
            located(
                "the method estimates no error and takes equal steps: give their length, "
                "first_step="
            )
        )
    for name, value, least in (
        ("rtol", values.rtol, 0.0), ("atol", values.atol, 0.0),
        ("first_step", values.first_step, TINY), ("max_step", values.max_step, TINY),
    ):  # fmt: skip
        if value is None or (type(value) is float and value >= least) or not _is_number(value):
            continue
        if not (np.asarray(value) >= least).all():
            sign = "positive" if least else "not negative"
            raise InputError(located(f"{name} is {sign}, and not {value!r}"))
    _require_order(values)


def _is_fixed(method: str | Tableau) -> bool:
    """Whether a method estimates no error."""
    return method.error is None if isinstance(method, Tableau) else method in FIXED_STEPS


TINY: Final = np.nextafter(0.0, 1.0)
"""The least number that is positive."""


def _require_order(values: Values) -> None:
    """Refuse times that are not in the order of the integration, or outside of it."""
    if (values.t_eval is None and values.t_stops is None) or not _is_number(values.span):
        return
    for name, times in (("t_eval", values.t_eval), ("t_stops", values.t_stops)):
        if times is None or not _is_number(times):
            continue
        if not np.size(times) or not np.ndim(times):
            raise InputError(located(f"{name} is an array of times, not {times!r}"))
        start, end = values.span
        if isinstance(start, (int, float)) and isinstance(end, (int, float)):
            sign: Any = 1.0 if end >= start else -1.0
        else:
            start, end = (np.asarray(t, float)[..., None] for t in values.span)
            sign = np.where(end >= start, 1.0, -1.0)
        ordered = np.asarray(times, float) * sign
        if not (ordered[..., 1:] >= ordered[..., :-1]).all():
            raise InputError(
                located(f"{name} is sorted in the order of the integration, and these are not")
            )
        first, last = ordered[..., :1] >= start * sign, ordered[..., -1:] <= end * sign
        if name == "t_eval" and not (first & last).all():
            raise InputError(located(f"{name} is within t_span, {values.span!r}"))


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
    for t in (start, end):
        if type(t) is float and not math.isfinite(t):
            raise InputError(located(f"t_span is finite, and not {t_span!r}: give a long time"))
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
    return tuple(events) if isinstance(events, (list, tuple)) else (events,)


def _event(event: Any) -> Event:
    """An event as SciPy has it: a function with attributes."""
    if not callable(event):
        raise InputTypeError(located(f"an event is a function of t, y and args, not {event!r}"))
    jump = getattr(event, "jump", None)
    direction = float(getattr(event, "direction", 0.0))
    return Event(event, direction, int(getattr(event, "terminal", False) or 0), jump)


def _is_number(value: Any) -> bool:
    """Whether it is a number, an array of numbers, or a list or tuple of such; or None."""
    kind = type(value)
    if kind is float or kind is int or value is None:
        return True
    if kind is list or kind is tuple:
        return all(type(part) is float or _is_number(part) for part in value)
    return kind is np.ndarray and value.dtype.kind in "fiub"
