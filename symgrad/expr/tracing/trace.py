"""Tracing: a Python function of n scalars becomes a graph."""

from __future__ import annotations

import functools
import inspect
import pickle
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from symgrad.errors import (
    ForeignExpressionError,
    FrozenRandomWarning,
    InputError,
    TraceError,
    is_users,
    warn,
)
from symgrad.expr import ops
from symgrad.expr.graph.arrays import ArrayOp
from symgrad.expr.graph.misuse import Explaining
from symgrad.expr.graph.node import Graph, Handle, Node, Op, inputs_of, reachable, real_number
from symgrad.expr.graph.place import describe, resolve_places
from symgrad.expr.graph.rebuild import Copy, rebuild
from symgrad.expr.graph.region import Choice, Loop, Pick, Regional, has_holes
from symgrad.expr.graph.written_out import prefer_whole
from symgrad.expr.loops.open_loop import Tracing, require_closed
from symgrad.expr.tracers.array import ExprArray, TracedArray, plain
from symgrad.expr.tracers.expression import Condition, Expr, as_float
from symgrad.expr.tracers.integers import Word, refuse_integer
from symgrad.expr.tracers.tree import Tree, flatten

MOST_SYMBOLS: Final = 2**20
"""Variables of one trace: a symbol takes half a kilobyte, and four microseconds."""


class Content:
    """All that a trace says, lines of the user's program included: equal for equal traces.

    Its hash is computed once, since it takes a look at every node.
    """

    __slots__ = ("_hash", "_parts")

    def __init__(self, graph: Graph, *more: Hashable) -> None:
        self._parts = (*_said(graph), tuple(graph.sources), *more)
        self._hash = hash(self._parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Content) and self._hash == other._hash and self._parts == other._parts
        )


def _said(graph: Graph) -> tuple[Hashable, ...]:
    """A graph's nodes, and their places, with those in the regions of its loops and choices."""
    nodes: Sequence[Node] = graph.nodes
    inner = {op: _said_of(op) for op in _operations(graph) if isinstance(op, Regional)}
    if inner:
        nodes = [(inner.get(node[0], node[0]), *node[1:]) for node in nodes]
    return tuple(nodes), tuple(graph.places), tuple(graph.names)


def _said_of(op: Loop | Choice) -> Hashable:
    """All that a loop or a choice says: its lines are those of the program that it is in."""
    body = (*_said(op.body.graph), op.body.params, op.body.yields)
    if isinstance(op, Loop):
        return op.name, op.carries, op.test, op.down, op.most, body
    return op.name, op.results, body


def _operations(graph: Graph) -> Iterable[Op]:
    """The rows that occur in a graph, each once."""
    return dict.fromkeys(node[0] for node in graph.nodes)


def _is_known(op: Op) -> bool:
    """Whether an operation is of symgrad, with all that is in its region."""
    if isinstance(op, Regional):
        return all(map(_is_known, _operations(op.body.graph)))
    return isinstance(op, (ArrayOp, Pick)) or ops.TABLE.get(op.name) is op


@dataclass(frozen=True)
class Trace:
    """The trace of a function: ``outputs`` are node ids in ``graph``."""

    graph: Graph
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    structure: Tree

    @property
    def key(self) -> Hashable:
        """All that it says; None where a derivative is the user's own, which is not in it."""
        if not all(map(_is_known, _operations(self.graph))):
            return None
        return self.content()

    def copied(self) -> Trace:
        """This trace with a graph of its own, to be built on."""
        return Trace(self.graph.copy(), self.inputs, self.outputs, self.structure)

    def content(self, *derived: Hashable) -> Content:
        """All that it says, with what has been derived from it, whose nodes are in its graph."""
        return Content(self.graph, self.outputs, self.structure, *derived)


def trace(
    f: Callable[..., Any], n: int, names: Sequence[str] | None = None, notes: Iterable[Any] = ()
) -> Trace:
    """Call ``f`` on n symbolic scalars and record what it does.

    ``notes`` are those of the graph, such as what loops keep whose derivatives f asks for.

    Raises TraceError if f returns anything but expressions and numbers, InputError for a bad n.
    """
    graph, count = Graph(), checked_count(n)
    require_feasible(count)
    graph.repeats, graph.notes = [], {type(note): note for note in notes}
    inputs = tuple(graph.input(name) for name in names or [f"x{k}" for k in range(count)])
    with WatchingRandomNumbers(f), Explaining(), Tracing(graph):
        result = f(variables(graph, inputs))
    graph.tracing = False
    outputs, structure = flatten_result(graph, result, f)
    if has_holes(graph):
        require_closed(graph, outputs)
    resolve_places(graph)
    return Trace(graph, inputs, tuple(outputs), structure)


def variables(graph: Graph, ids: Sequence[int]) -> ExprArray:
    """The nodes as a 1-D array of expressions."""
    v = np.empty(len(ids), dtype=object)
    v[:] = [Expr(graph, i) for i in ids]
    return v.view(ExprArray)


def checked_count(n: Any) -> int:
    """n as a count of variables."""
    if isinstance(n, (bool, np.bool_)) or not isinstance(n, (int, np.integer)):
        raise TraceError(f"the number of variables is an integer, not {n!r}")
    if n < 1:
        raise InputError(f"a kernel needs at least one variable, not {n}")
    return int(n)


def require_feasible(count: int) -> None:
    """Refuse more symbols than one trace can hold in memory."""
    if count > MOST_SYMBOLS:
        prefer_whole(count)
        raise InputError(
            f"{count:,} variables are too many: each is traced as a symbol of its own, and about "
            f"{MOST_SYMBOLS:,} are feasible; large tables of parameters are looked up by a column "
            "of indices, p[r.index], in a kernel over data (columns=)"
        )


def scalar(traced: Trace, f: Callable[..., Any]) -> Trace:
    """The trace, if its result is one number."""
    require_slope(traced.graph, traced.outputs[:1], traced.structure, f)
    if traced.structure.kind is not None and traced.structure != Tree("array", ()):
        kind = traced.structure.kind
        what = (
            f"an array of shape {traced.structure.keys}" if kind == "array" else f"a {_name(kind)}"
        )
        raise TraceError(
            f"{describe(f)} returned {what}; a loss is one scalar: sum it up, "
            "or use sg.fused_forward or sg.fused_jacobian for several outputs"
        )
    return traced


def require_slope(graph: Graph, roots: Sequence[int], structure: Tree, f: Any) -> None:
    """Refuse a loss that is true or false, or an integer."""
    if structure.kind == "condition":
        refuse_condition(f)
    if structure.kind == "integer":
        (integer,) = graph.args(roots[0])
        refuse_integer(Word(graph, integer), f"what {describe(f)} returned")


def refuse_condition(f: Callable[..., Any]) -> NoReturn:
    """Raise the error of a loss that is true or false: it has no slope to follow."""
    raise TraceError(
        f"{describe(f)} returned a condition, which is true or false: a loss is a number; "
        "use sg.where(condition, a, b) to choose between two"
    )


def _name(kind: Any) -> str:
    return kind if isinstance(kind, str) else kind.__name__


def flatten_result(graph: Graph, result: Any, f: Any) -> tuple[list[int], Tree]:
    """The nodes of a function's results, and how they were nested."""
    return flatten(result, lambda value: _leaf(graph, value, f))


def _leaf(graph: Graph, result: Any, f: Any) -> tuple[list[int], Tree] | None:
    """The nodes of a result that is a number, a condition or an array; None of a container."""
    if isinstance(result, (Condition, bool, np.bool_)):
        return [_output(graph, result, f)], Tree("condition")
    if isinstance(result, Word):
        return [_output(graph, result, f)], Tree("integer")
    if isinstance(result, Handle) or _is_number(result):
        return [_output(graph, result, f)], Tree()
    if isinstance(result, (np.ndarray, TracedArray)):
        if result.ndim == 0:
            return _leaf(graph, result.item(), f)
        return [_output(graph, r, f) for r in plain(result).flat], Tree("array", result.shape)
    if isinstance(result, (Mapping, list, tuple)):
        return None
    hint = "does it lack a return statement? " if result is None else ""
    raise TraceError(
        f"{describe(f)} returned {result!r}: {hint}return an expression of its variables"
    )


def _is_number(result: Any) -> bool:
    return isinstance(result, (int, float, np.number, np.bool_)) and not isinstance(
        result, (np.complexfloating,)
    )


def _output(graph: Graph, value: Any, f: Any) -> int:
    """The node of a returned number; an error if it belongs to another trace."""
    if isinstance(value, Handle) and value.graph is not graph:
        resolve_places(value.graph)
        place = value.graph.place_of(value.id)
        raise ForeignExpressionError(
            f"{describe(f)} returned {value!r}, which belongs to another trace: a traced function "
            "may only use the variables it is given; pass the value in as one of them, or build "
            "both sides in one trace" + (f"\n  at {place}" if place else "")
        )
    if isinstance(value, Handle):
        graph.place = graph.places[value.id]
        return as_float(value).id
    return graph.constant(real_number(value))


def replay(graph: Graph, roots: Sequence[int], values: Sequence[Expr]) -> list[Expr]:
    """The roots of a graph with its inputs replaced by these expressions, all of one graph."""
    ids = {i: values[graph.nodes[i][1]].id for i in inputs_of(graph)}
    copy = Copy(values[0].graph, ids)
    rebuild(graph, reachable(graph, roots), copy)
    return [Expr(copy.graph, copy.ids[r]) for r in roots]


# Random numbers that a traced function draws, which are constants from then on: a warning.

State = Callable[[], Any]


@dataclass(frozen=True)
class Span:
    """For how long numbers that are drawn now are the same, and what has been warned of in it."""

    words: str
    warned: set[str] = field(default_factory=set)


MOST_FUNCTIONS: Final = 64
"""Functions that are looked at: another library's may name thousands."""

EVERY_RUN: Final = "they are constants of the kernel, the same at every call"
EVERY_STEP: Final = "they are constants of this run, the same at every step, and others in the next"
EVERY_CALL: Final = "each call draws others, and compiles a kernel anew with these as constants"

_span: ContextVar[Span | None] = ContextVar("_span", default=None)
"""None outside of `frozen_for`: a kernel is made, and the numbers are the same at every run."""


class frozen_for(ContextDecorator):
    """Say so of the random numbers that are drawn within, or in the function that it decorates."""

    def __init__(self, words: str) -> None:
        self._words = words

    def _recreate_cm(self) -> frozen_for:
        return frozen_for(self._words)

    def __enter__(self) -> None:
        self._token = _span.set(Span(self._words))

    def __exit__(self, *_: object) -> None:
        _span.reset(self._token)


class WatchingRandomNumbers:
    """A context that warns at its end if a generator that f names has drawn a number meanwhile."""

    __slots__ = ("_functions", "_watched")

    def __init__(self, f: Callable[..., Any]) -> None:
        self._functions = list(_functions(f))

    def __enter__(self) -> None:
        generators = dict(_generators(self._functions))
        self._watched = {name: (state, state()) for name, state in generators.items()}

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None or not self._watched:
            return
        span = _span.get() or Span(EVERY_RUN)
        for name, (state, before) in self._watched.items():
            if state() != before and name not in span.warned:
                span.warned.add(name)
                warn(
                    f"{name} drew random numbers while {describe(_users(self._functions))} was "
                    f"traced: {span.words}; draw them before, and give them to it as variables or "
                    "as a column of data",
                    FrozenRandomWarning,
                )


class Named(NamedTuple):
    """A function, all names in it, and what those stand for that are not its own variables.

    Closure cells and attributes of a method's object are ``near``; globals, which come last, not.
    """

    function: Any
    names: Sequence[str]
    values: list[tuple[str, Any, bool]]


def _functions(f: Callable[..., Any]) -> Iterator[Named]:
    """A function, and those that it names, in its closure or among the user's, the nearest."""
    seen: set[int] = set()
    waiting: list[Any] = [f]
    for named in waiting:  # which grows meanwhile
        function = inspect.unwrap(named) if hasattr(named, "__wrapped__") else named
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(function, "__code__", None)
        if code is None or id(code) in seen:
            continue
        seen.add(id(code))
        names = _names_in(code)
        values = list(_values(function, names))
        yield Named(function, names, values)
        if len(seen) == MOST_FUNCTIONS:
            return
        for _, value, near in values:
            if isinstance(value, _FUNCTIONS) and (
                near or is_users(getattr(value, "__module__", ""))
            ):
                waiting.append(value)


_FUNCTIONS: Final = FunctionType, MethodType, functools.partial


def _module_of(function: Any) -> str | None:
    return getattr(function, "__module__", None)


def _users(functions: Sequence[Named]) -> Any:
    """The first of them that is the user's."""
    functions_named = [named.function for named in functions]
    return next((f for f in functions_named if is_users(_module_of(f))), functions_named[0])


def _generators(functions: Sequence[Named]) -> Iterator[tuple[str, State]]:
    """The generators of random numbers that functions name, and how to read their states."""
    for named in functions:
        for name, value, _ in named.values:
            state = _state_of(value, named.names)
            if state is not None:
                yield "np.random" if value is np else name, state


def _state_of(value: Any, names: Sequence[str]) -> State | None:
    """How to read the state of a generator of random numbers; None for anything else."""
    if isinstance(value, (FunctionType, float, int)):  # as most are
        return None
    if isinstance(value, np.random.Generator):
        return lambda: pickle.dumps(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return lambda: pickle.dumps(value.get_state())
    if isinstance(value, random.Random) or value is random:
        return value.getstate
    if (value is np and "random" in names) or value is np.random:
        return lambda: pickle.dumps(np.random.get_state())  # noqa: NPY002
    return None


@functools.lru_cache(1024)
def _names_in(code: CodeType) -> tuple[str, ...]:
    """The names in a function's code, each once: it is traced again and again."""
    return tuple(sorted(set(_names(code))))


def _names(code: CodeType) -> Iterator[str]:
    """The names in a function's code, and in the functions that are defined in it."""
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _values(f: Any, names: Sequence[str]) -> Iterator[tuple[str, Any, bool]]:
    """The variables that a function reads: name, value, and whether it owns them."""
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents, True
        except ValueError:  # not yet assigned
            continue
    owned = getattr(getattr(f, "__self__", None), "__dict__", {})
    for name in names if owned else ():
        if name in owned:
            yield f"self.{name}", owned[name], True
    for name in names:
        if name in f.__globals__:
            yield name, f.__globals__[name], False
