"""A warning where a traced function draws random numbers, which are constants from then on."""

from __future__ import annotations

import functools
import inspect
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

import numpy as np

from symgrad.errors import FrozenRandomWarning, is_users, warn
from symgrad.expr.graph.place import describe

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
