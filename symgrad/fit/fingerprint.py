"""Fingerprints of plain functions: where two are equal, so are the functions' values.

A trace shows all that a function computes, but takes longer than a small fit. A function whose code
refers to numbers, other such functions, and NumPy's or symgrad's elementwise functions alone always
computes the same, so that what was made of it serves again. Whatever else may have changed since.
"""

from __future__ import annotations

import builtins
import dis
import functools
import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np

PURE: Final = frozenset(
    {abs, all, any, bool, enumerate, float, int, len, list, max, min, pow, range, reversed, round,
     sum, tuple, zip}
)  # fmt: skip
"""The builtins that depend on nothing but their arguments."""

DISPATCHER: Final = type(np.where)
"""The type of NumPy's functions of arrays; those of files are of another."""

ELEMENTWISE: Final = "symgrad.expr.tracers.functions"
"""The module of symgrad's functions of numbers."""

OTHER_WAYS: Final = (
    "IMPORT", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "STORE_SUBSCR", "STORE_NAME", "DELETE"
)  # fmt: skip
"""How the names of instructions begin by which code reaches, or changes, what is not its own."""

Part = tuple[Hashable, ...]


class _UnknownError(Exception):
    """A function refers to what may change."""


@dataclass(frozen=True)
class _References:
    """The names that code, with the code within it, looks up: global ones, and attributes."""

    names: tuple[str, ...]
    attributes: tuple[str, ...]
    elsewhere: bool
    """Whether it reaches what is not its own in other ways."""


def fingerprint(f: Callable[..., Any]) -> Hashable | None:
    """A key of all that decides the values of a function; None where something else may.

    Example:
        >>> import numpy as np
        >>> def model(rate):
        ...     return lambda x, a: a * np.exp(-rate * x)
        >>> [fingerprint(model(2.0)) == fingerprint(model(rate)) for rate in (2.0, 3.0)]
        [True, False]
    """
    try:
        return _of_value(f, ())
    except (_UnknownError, ValueError):  # of a name that is bound later a cell has no contents
        return None


def _of_value(value: Any, within: tuple[Any, ...]) -> Part:
    kind = type(value)
    if kind is float:
        return (value.hex(),)  # which tells -0.0 from 0.0
    if value is None or kind in (bool, int, str):
        return kind, value
    if kind is FunctionType and value not in within:
        return _of_function(value, (*within, value))
    if kind in (np.ufunc, DISPATCHER) or (kind in (type, BuiltinFunctionType) and value in PURE):
        return kind, value
    raise _UnknownError


def _of_function(f: FunctionType, within: tuple[Any, ...]) -> Part:
    if f.__module__ == ELEMENTWISE:
        return (f,)
    if vars(f):
        raise _UnknownError
    references = _references(f.__code__)
    if references.elsewhere:
        raise _UnknownError
    cells = [cell.cell_contents for cell in f.__closure__ or ()]
    defaults = f.__defaults__ or (), tuple((f.__kwdefaults__ or {}).items())
    names = [_global(f, name) for name in references.names]
    parts = [
        _of_module(v, references.attributes) if type(v) is ModuleType else _of_value(v, within)
        for v in (*cells, *names)
    ]
    positional = tuple(_of_value(v, within) for v in defaults[0])
    keywords = tuple((name, _of_value(v, within)) for name, v in defaults[1])
    return f.__code__, tuple(parts), positional, keywords


def _global(f: FunctionType, name: str) -> Any:
    if name in f.__globals__:
        return f.__globals__[name]
    try:
        return getattr(builtins, name)
    except AttributeError as error:
        raise _UnknownError from error


def _of_module(module: ModuleType, attributes: tuple[str, ...]) -> Part:
    """A module, with what it has by these names, which may be meant of something else."""
    has = vars(module)
    names = [name for name in attributes if name in has or _is_lazy(module, name)]
    return module, *(_of_value(has.get(name, module), ()) for name in names)


@functools.lru_cache(256)
def _is_lazy(module: ModuleType, name: str) -> bool:
    """Whether a module makes an attribute when it is first asked for, as NumPy its ``random``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are deprecated
        return hasattr(module, name)


@functools.lru_cache(256)
def _references(code: CodeType) -> _References:
    instructions = [i for part in _within(code) for i in dis.get_instructions(part)]
    names = {i.argval for i in instructions if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    attributes = {i.argval for i in instructions if i.opname in ("LOAD_ATTR", "LOAD_METHOD")}
    elsewhere = any(i.opname.startswith(OTHER_WAYS) for i in instructions)
    return _References(tuple(sorted(names)), tuple(sorted(attributes)), elsewhere)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)
