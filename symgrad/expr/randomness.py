"""A warning where a traced function draws random numbers, which its kernel then has for good."""

from __future__ import annotations

import inspect
import pickle
import random
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import numpy as np

from symgrad.errors import FrozenRandomWarning

State = Callable[[], Any]


@contextmanager
def watching_random_numbers(f: Callable[..., Any], described: str) -> Generator[None]:
    """Warn at the end if a generator that f names has drawn a number meanwhile."""
    watched = dict(_generators(f))
    before = {name: state() for name, state in watched.items()}
    yield
    for name, state in watched.items():
        if state() != before[name]:
            warnings.warn(
                f"{name} drew random numbers while {described} was traced: they are constants of "
                "the kernel, the same at every call; draw them before, and give them to it as "
                "variables or as a column of data",
                FrozenRandomWarning,
                stacklevel=4,
            )


def _generators(f: Callable[..., Any]) -> Iterator[tuple[str, State]]:
    """The generators of random numbers that a function names, and how to read their states."""
    code = getattr(inspect.unwrap(f), "__code__", None)
    if code is None:
        return
    names = set(_names(code))
    for name, value in _named(inspect.unwrap(f), names):
        if isinstance(value, np.random.Generator):
            yield name, lambda g=value: pickle.dumps(g.bit_generator.state)
        elif isinstance(value, np.random.RandomState):
            yield name, lambda g=value: pickle.dumps(g.get_state())
        elif isinstance(value, random.Random) or value is random:
            yield name, value.getstate
        elif (value is np and "random" in names) or value is np.random:
            yield "np.random", lambda: pickle.dumps(np.random.get_state())  # noqa: NPY002


def _names(code: CodeType) -> Iterator[str]:
    """The names in a function's code, and in the functions that are defined in it."""
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _named(f: Any, names: set[str]) -> Iterator[tuple[str, Any]]:
    """What these names stand for in a function: closure cells first, then globals."""
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    for name in sorted(names & f.__globals__.keys()):
        yield name, f.__globals__[name]
