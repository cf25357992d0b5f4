"""A warning where a traced function draws random numbers, which are constants from then on."""

from __future__ import annotations

import functools
import inspect
import pickle
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

import numpy as np

from symgrad.errors import FrozenRandomWarning, is_users, warn
from symgrad.expr.place import describe

State = Callable[[], Any]


@dataclass(frozen=True)
class Span:
    """For how long numbers that are drawn now are the same, and what has been warned of in it."""

    words: str
    told: set[str] = field(default_factory=set)


EVERY_RUN: Final = "they are constants of the kernel, the same at every call"
EVERY_STEP: Final = "they are constants of this run, the same at every step, and others in the next"
EVERY_CALL: Final = "each call draws others, and compiles a kernel anew with these as constants"

_span: ContextVar[Span | None] = ContextVar("_span", default=None)
"""None outside of `frozen_for`: a kernel is made, and the numbers are the same at every run."""


@contextmanager
def frozen_for(words: str) -> Generator[None]:
    """Say so of the random numbers that are drawn within, or in the function that it decorates."""
    token = _span.set(Span(words))
    try:
        yield
    finally:
        _span.reset(token)


@contextmanager
def watching_random_numbers(f: Callable[..., Any]) -> Generator[None]:
    """Warn at the end if a generator that f names has drawn a number meanwhile."""
    functions = list(_functions(f))
    watched = dict(_generators(functions))
    before = {name: state() for name, state in watched.items()}
    yield
    span = _span.get() or Span(EVERY_RUN)
    for name, state in watched.items():
        if state() != before[name] and name not in span.told:
            span.told.add(name)
            warn(
                f"{name} drew random numbers while {describe(_users(functions))} was traced: "
                f"{span.words}; draw them before, and give them to it as variables or as a column "
                "of data",
                FrozenRandomWarning,
            )


def _functions(f: Callable[..., Any]) -> Iterator[Any]:
    """A function, and those that it names, in its closure or among the user's."""
    known: set[int] = set()
    waiting: list[Any] = [f]
    while waiting:
        function = inspect.unwrap(waiting.pop())
        while isinstance(function, functools.partial):
            function = function.func
        code = getattr(function, "__code__", None)
        if code is None or id(code) in known:
            continue
        known.add(id(code))
        yield function
        for _, value, near in _named(function):
            if inspect.isroutine(value) and (near or is_users(getattr(value, "__module__", ""))):
                waiting.append(value)


def _users(functions: Sequence[Any]) -> Any:
    """The first of them that is the user's."""
    return next((f for f in functions if is_users(f.__module__)), functions[0])


def _generators(functions: Sequence[Any]) -> Iterator[tuple[str, State]]:
    """The generators of random numbers that functions name, and how to read their states."""
    for function in functions:
        names = set(_names(function.__code__))
        for name, value, _ in _named(function):
            state = _state_of(value, names)
            if state is not None:
                yield "np.random" if value is np else name, state


def _state_of(value: Any, names: set[str]) -> State | None:
    """How to read the state of a generator of random numbers; None for anything else."""
    if isinstance(value, np.random.Generator):
        return lambda: pickle.dumps(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return lambda: pickle.dumps(value.get_state())
    if isinstance(value, random.Random) or value is random:
        return value.getstate
    if (value is np and "random" in names) or value is np.random:
        return lambda: pickle.dumps(np.random.get_state())  # noqa: NPY002
    return None


def _names(code: CodeType) -> Iterator[str]:
    """The names in a function's code, and in the functions that are defined in it."""
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _named(f: Any) -> Iterator[tuple[str, Any, bool]]:
    """What a function's names stand for, and whether it is the function's own.

    Closure cells and the attributes of a method's object are; globals, which come last, are not.
    """
    names = set(_names(f.__code__))
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents, True
        except ValueError:  # not yet assigned
            continue
    owned = getattr(getattr(f, "__self__", None), "__dict__", {})
    for name in sorted(names & owned.keys()):
        yield f"self.{name}", owned[name], True
    for name in sorted(names & f.__globals__.keys()):
        yield name, f.__globals__[name], False
