"""Fingerprints of plain functions: where two are equal, so are the functions' values.

A trace shows all that a function computes, but takes longer than a small fit. A function whose code
refers to numbers, other such functions, and NumPy's or symgrad's elementwise functions alone always
computes the same, so that what was made of it serves again. Whatever else may have changed since.

`Fingerprint` also notes where everything was read, so that a later call sees in a few microseconds
that nothing has changed; and it may take small arrays, which it compares by their bytes.
"""

from __future__ import annotations

import builtins
import dis
import functools
import operator
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np

PURE: Final = frozenset(
    {abs, all, any, bool, dict, divmod, enumerate, float, int, len, list, map, max, min, pow, range,
     reversed, round, sorted, sum, tuple, zip}
)  # fmt: skip
"""The builtins that depend on nothing but their arguments."""

CONSTRUCTORS: Final = frozenset(
    {np.arange, np.array, np.asarray, np.ascontiguousarray, np.diag_indices, np.eye, np.full,
     np.identity, np.indices, np.ones, np.tri, np.tril_indices, np.triu_indices, np.zeros}
)  # fmt: skip
"""NumPy's functions that make arrays, and depend on nothing but their arguments."""

DISPATCHER: Final = type(np.where)
"""The type of NumPy's functions of arrays; those of files are of another."""

KNOWN: Final = PURE | CONSTRUCTORS

OWN: Final = "symgrad.expr.", "symgrad.ode.", "symgrad.front.functional", "symgrad.front.jit"
"""How the names of the modules begin of symgrad's functions of numbers, arrays, and functions."""

ELEMENTWISE: Final = "symgrad.expr.tracers.functions"
"""The module of those that are made from the table of operations."""

OTHER_WAYS: Final = (
    "IMPORT", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "STORE_NAME", "DELETE"
)  # fmt: skip
"""How the names of instructions begin by which code reaches, or changes, what is not its own.

Elements may be stored: of arrays and lists that are not its own it is seen that they have changed.
"""

COMPARED: Final = "?bBhHiIlLqQefd"
"""The types of arrays whose bits are compared, by NumPy's characters: not long doubles."""

MOST_BYTES: Final = 2**18
"""Bytes of an array that is a part of a fingerprint, at most: comparing more costs a trace."""

Part = tuple[Hashable, ...]


@dataclass(frozen=True)
class _References:
    """The names that code, with the code within it, looks up: global ones, and attributes."""

    names: tuple[str, ...]
    attributes: tuple[str, ...]
    elsewhere: bool
    """Whether it reaches what is not its own in other ways."""


def fingerprint(f: Callable[..., Any]) -> Hashable | None:
    """A key of all that decides the values of a function; None where something else may.

    Small arrays that the function takes from its closure or from globals are a part of it.

    Example:
        >>> import numpy as np
        >>> def model(rate):
        ...     return lambda x, a: a * np.exp(-rate * x)
        >>> [fingerprint(model(2.0)) == fingerprint(model(rate)) for rate in (2.0, 3.0)]
        [True, False]
    """
    seen = _seen.get(f) if isinstance(f, FunctionType) else None
    if seen is not None and seen.holds():
        return seen.key
    try:
        seen = Fingerprint(f, arrays=True)
    except UnknownStateError:
        return None
    seen.key = seen.key, *seen.contents()
    if isinstance(f, FunctionType):
        if len(_seen) >= MOST_SEEN:
            _seen.clear()
        _seen[f] = seen
    return seen.key


class Unchanging:
    """An object that computes the same for ever: a part of fingerprints by itself, as kernels."""


class UnknownStateError(Exception):
    """A function refers to something that may change unseen."""


class Fingerprint:
    """All that decides the values of a function: as a ``key``, and where it was read.

    With ``arrays``, arrays of numbers that the function takes from its closure or from globals are
    a part of it, and with ``lists`` lists of what may be; arrays are copied, and are none of the
    key.

    Raises:
        UnknownStateError: where something else may decide them.

    Example:
        >>> f = lambda x: rate * x
        >>> rate = 2.0
        >>> seen = Fingerprint(f)
        >>> seen.holds()
        True
        >>> rate = 3.0
        >>> seen.holds()
        False
    """

    def __init__(self, f: Callable[..., Any], arrays: bool = False, lists: bool = False) -> None:
        self._takes_arrays, self._takes_lists = arrays, lists
        self._functions: list[tuple[FunctionType, CodeType, Any, Any]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._names: list[tuple[dict[str, Any], str, Any]] = []
        self._arrays: list[tuple[np.ndarray, np.ndarray]] = []
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._modules: dict[ModuleType, None] = {}
        self._attributes: set[str] = set()
        try:
            function = self._of_value(f, ())
        except ValueError as error:  # a cell has no contents: its name is bound later
            raise UnknownStateError from error
        self.key: Hashable = function, *self._of_modules()

    def holds(self) -> bool:
        """Whether all is still what it was: the same objects, and arrays of the same numbers."""
        try:
            return (
                all(
                    f.__code__ is code
                    and f.__defaults__ is defaults
                    and f.__kwdefaults__ is named
                    and not f.__dict__
                    for f, code, defaults, named in self._functions
                )
                and all(cell.cell_contents is value for cell, value in self._cells)
                and all(_looked_up(names, name) is value for names, name, value in self._names)
                and all(
                    len(values) == len(before) and all(map(operator.is_, values, before))
                    for values, before in self._lists
                )
                and all(_same_bits(array, before) for array, before in self._arrays)
            )
        except ValueError:  # a cell has lost its contents
            return False

    def contents(self) -> list[bytes]:
        """The bytes of all arrays, in the order in which they were read."""
        return [before.tobytes() for _, before in self._arrays]

    def _of_modules(self) -> list[Part]:
        """The modules: a function of one may read more attributes of others."""
        while True:
            before = len(self._modules), len(self._attributes)
            parts = [(m, *self._of_module(m)) for m in list(self._modules)]
            if before == (len(self._modules), len(self._attributes)):
                return parts

    def _of_value(self, value: Any, within: tuple[Any, ...]) -> Part:
        kind = type(value)
        if kind is float:
            return (value.hex(),)  # which tells -0.0 from 0.0
        if value is None or kind in (bool, int, str):
            return kind, value
        if kind in (np.ufunc, DISPATCHER) or (
            kind in (type, BuiltinFunctionType, FunctionType) and value in KNOWN
        ):
            return kind, value
        if kind is FunctionType and value not in within:
            return self._of_function(value, (*within, value))
        if kind is type and issubclass(value, np.generic):
            return kind, value
        if isinstance(value, Unchanging):
            return (value,)
        if kind is tuple:
            return kind, *(self._of_value(v, within) for v in value)
        if self._takes_arrays and kind is np.ndarray:
            return self._of_array(value)
        if self._takes_lists and kind is list:
            return self._of_list(value, within)
        if self._takes_arrays and isinstance(value, np.number):
            return kind, value.tobytes()
        raise UnknownStateError

    def _of_list(self, values: list[Any], within: tuple[Any, ...]) -> Part:
        for n, (seen, _) in enumerate(self._lists):
            if seen is values:  # another reference, or one within itself
                return list, n
        self._lists.append((values, [*values]))
        return list, *(self._of_value(v, within) for v in self._lists[-1][1])

    def _of_array(self, array: np.ndarray) -> Part:
        if array.dtype.char not in COMPARED or array.nbytes > MOST_BYTES:
            raise UnknownStateError
        self._arrays.append((array, array.copy()))
        return np.ndarray, array.shape, array.dtype

    def _of_function(self, f: FunctionType, within: tuple[Any, ...]) -> Part:
        if _is_own(f):
            return (f,)
        if vars(f):
            raise UnknownStateError
        references = _references(f.__code__)
        if references.elsewhere:
            raise UnknownStateError
        self._attributes.update(references.attributes)
        self._functions.append((f, f.__code__, f.__defaults__, f.__kwdefaults__))
        cells = [(cell, cell.cell_contents) for cell in f.__closure__ or ()]
        names = [(f.__globals__, name, _global(f, name)) for name in references.names]
        self._cells += cells
        self._names += names
        parts = [
            self._of_reference(v, within) for v in (*(v for _, v in cells), *(v for *_, v in names))
        ]
        positional = tuple(self._of_value(v, within) for v in f.__defaults__ or ())
        named = f.__kwdefaults__ or {}
        self._names += [(named, name, v) for name, v in named.items()]
        keywords = tuple((name, self._of_value(v, within)) for name, v in named.items())
        return f.__code__, tuple(parts), positional, keywords

    def _of_reference(self, value: Any, within: tuple[Any, ...]) -> Part:
        if type(value) is not ModuleType:
            return self._of_value(value, within)
        self._modules[value] = None
        return (value,)

    def _of_module(self, module: ModuleType) -> Part:
        """The values that a module has for attributes that are read, of it or of other objects."""
        has = vars(module)
        names = [n for n in sorted(self._attributes) if n in has or _is_lazy(module, n)]
        if module.__name__ == "symgrad":  # names that it loads when they are first asked for
            values = [getattr(module, name) for name in names]
        else:
            values = [has.get(name, module) for name in names]
        self._names += [(has, n, v) for n, v in zip(names, values, strict=True) if v is not module]
        return tuple((n, self._of_attribute(v, module)) for n, v in zip(names, values, strict=True))

    def _of_attribute(self, value: Any, module: ModuleType) -> Part:
        if value is module:
            raise UnknownStateError
        return self._of_reference(value, ())


MOST_SEEN: Final = 64
"""Functions whose fingerprints are kept for their next calls."""

_seen: dict[FunctionType, Fingerprint] = {}


def _is_own(f: FunctionType) -> bool:
    """Whether it is a function of symgrad's modules, not one that they made of a user's."""
    module = sys.modules.get(f.__module__ or "")
    if module is None or not (f.__module__ or "").startswith(OWN):
        return False
    if f.__closure__ is not None:  # it is of the table, or was wrapped where it stands
        of_table = f.__module__ == ELEMENTWISE
        return vars(module).get(f.__name__) is f and (of_table or hasattr(f, "__wrapped__"))
    return f.__globals__ is vars(module)


def _same_bits(array: np.ndarray, before: np.ndarray) -> bool:
    """Whether an array has the shape, the type and the bits that it had."""
    if array.shape != before.shape or array.dtype != before.dtype:
        return False
    kind = f"u{array.itemsize}"
    return bool((array.view(kind) == before.view(kind)).all())


_MISSING: Final = object()


def _looked_up(names: dict[str, Any], name: str) -> Any:
    value = names.get(name, _MISSING)
    return vars(builtins).get(name, _MISSING) if value is _MISSING else value


def _global(f: FunctionType, name: str) -> Any:
    value = _looked_up(f.__globals__, name)
    if value is _MISSING:
        raise UnknownStateError
    return value


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
    own = (i for i in instructions if i.opname != "STORE_DEREF" or i.argval in code.co_freevars)
    elsewhere = any(i.opname.startswith(OTHER_WAYS) for i in own)
    return _References(tuple(sorted(names)), tuple(sorted(attributes)), elsewhere)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)
