"""Fingerprints of plain functions: where two are equal, so are the functions' values.

A trace shows all that a function computes, but takes longer than a small fit. A function whose code
refers to numbers, other such functions, objects and classes of such attributes and methods, and
NumPy's or symgrad's functions alone always computes the same, so that what was made of it serves
again. All else may have changed since: a function that refers to it has no fingerprint.

`Fingerprint` also notes where everything was read, so that a later call sees in a few microseconds
that nothing has changed; and it may take small arrays, which it compares by their bytes.
"""

from __future__ import annotations

import abc
import builtins
import functools
import operator
import sys
import warnings
from collections import namedtuple
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
    NotImplementedType,
    WrapperDescriptorType,
)
from typing import Any, Final, Generic, Protocol

import numpy as np

from symgrad.expr.tracing.code import (
    CONSTRUCTORS,
    FIELDS_OF_STRINGS,
    references_of,
)
from symgrad.expr.tracing.snapshot import COMPARED, same_bits, snapshot

EXCEPTIONS: Final = frozenset(
    v for v in vars(builtins).values() if isinstance(v, type) and issubclass(v, BaseException)
)

PURE: Final = EXCEPTIONS | {
    abs, all, any, bool, callable, complex, dict, divmod, enumerate, filter, float, frozenset, hash,
    int, isinstance, issubclass, iter, len, list, map, max, min, next, object, pow, range, reversed,
    round, set, slice, sorted, sum, super, tuple, tuple.__new__, type, zip,
}  # fmt: skip
"""The builtins that depend on nothing but their arguments."""

MAKERS: Final = frozenset(
    {np.arange, np.array, np.asarray, np.ascontiguousarray, np.diag_indices, np.eye, np.full,
     np.identity, np.indices, np.ones, np.tri, np.tril_indices, np.triu_indices, np.zeros}
)  # fmt: skip
"""NumPy's functions that make arrays, and depend on nothing but their arguments."""

DISPATCHER: Final = type(np.where)
"""The type of NumPy's functions of arrays; those of files are of another."""

KNOWN: Final = PURE | MAKERS | {np.ndarray, np.errstate, functools.partial, functools.reduce}

MATHEMATICS: Final = (
    (BuiltinFunctionType, "math"), (BuiltinFunctionType, "cmath"),
    (BuiltinFunctionType, "_operator"), (type, "itertools"),
)  # fmt: skip
"""The types and modules of functions that depend on nothing but their arguments."""

OWN: Final = "symgrad.expr.", "symgrad.ode.", "symgrad.front.functional", "symgrad.front.jit"
"""How the names of the modules begin of symgrad's functions of numbers, arrays, and functions."""

ELEMENTWISE: Final = "symgrad.expr.tracers.functions"
"""The module of those that are made from the table of operations."""


MOST_BYTES: Final = 2**18
"""Bytes of an array that is a part of the key of a fingerprint, at most."""

MOST_COMPARED: Final = 2**28
"""Bytes of an array that is compared with a copy, at most: larger ones are not kept twice."""

WRAPPERS: Final = (
    "symgrad.expr.calls.transforms", "symgrad.front.functional", "symgrad.front.jit",
    "symgrad.front.network",
)  # fmt: skip
"""The modules whose functions of functions depend on nothing but what they wrap."""

SPECIAL: Final = frozenset(
    {n for t in (complex, dict, int, np.ndarray, set) for n in vars(t)
     if n.startswith("__") and callable(getattr(t, n))}
    | {"__array_function__", "__array_interface__", "__array_priority__", "__array_struct__",
       "__call__", "__enter__", "__exit__", "__get__", "__missing__", "__next__", "keys"}
) - {
    "__copy__", "__deepcopy__", "__delattr__", "__dir__", "__format__",
    "__getattribute__", "__getnewargs__", "__getstate__", "__init__", "__new__",
    "__reduce__", "__reduce_ex__", "__repr__", "__setattr__", "__setstate__", "__sizeof__",
    "__str__",
}  # fmt: skip
"""The methods that operators and NumPy call; not those of printing, copies and changes."""

PRINTING: Final = frozenset({"__format__", "__repr__", "__str__"})
"""The methods that make strings of objects."""


PLAIN_BASES: Final = frozenset({object, tuple, abc.ABC, Generic, Protocol}) | EXCEPTIONS
"""The classes of which nothing is read."""

COMPILED: Final = (
    BuiltinFunctionType, ClassMethodDescriptorType, MethodDescriptorType, WrapperDescriptorType
)  # fmt: skip
"""The types of methods that are not Python's code."""


FIELD: Final = type(vars(namedtuple("_Pair", "x"))["x"])
"""The type of a named tuple's fields."""

Part = tuple[Hashable, ...]

LITERALS: Final = frozenset({NoneType, NotImplementedType, bool, int})
"""The types of values that are parts as they are."""

PARTS: Final[dict[type, Callable[[Any], Iterable[Any]]]] = {
    tuple: tuple,
    slice: operator.attrgetter("start", "stop", "step"),
    MethodType: operator.attrgetter("__func__", "__self__"),
    functools.partial: operator.attrgetter("func", "args", "keywords", "__dict__"),
}
"""The values that others consist of, by the types of these."""


def _is_pure(value: Any) -> bool:
    """Whether a type or a function is known to depend on nothing but its arguments."""
    kind = type(value)
    return kind in (type, BuiltinFunctionType, FunctionType) and (
        value in KNOWN or (kind, value.__module__) in MATHEMATICS
    )


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
    a part of it, and with ``lists`` large ones, lists and dictionaries of what may be. The key has
    the shapes and types of arrays; their numbers are copied, and compared. ``classes`` are those of
    objects that the function is called with.

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

    def __init__(
        self, f: Callable[..., Any], arrays: bool = False, lists: bool = False,
        classes: Iterable[type] = (),
    ) -> None:  # fmt: skip
        self._takes_arrays, self._takes_lists = arrays, lists
        self.asks_types = False
        """Whether the function may ask for the type of a value."""
        self._functions: dict[FunctionType, tuple[CodeType, Any, Any, tuple[str, ...]]] = {}
        self._cells: dict[int, tuple[CellType, Any]] = {}
        self._globals: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self._names: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self._arrays: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._lists: dict[int, tuple[list[Any], list[Any]]] = {}
        self._dicts: dict[int, tuple[dict[Any, Any], dict[Any, Any]]] = {}
        self._objects: dict[int, tuple[Any, type, Any, tuple[str, ...]]] = {}
        self._slots: list[tuple[Any, str, Any]] = []
        self._classes: dict[type, tuple[type, ...]] = {}
        self._called: dict[type, None] = {}
        self._members: dict[type, tuple[Mapping[str, Any], tuple[str, ...]]] = {}
        self._modules: dict[ModuleType, None] = {}
        self._attributes: set[str] = set()
        try:
            for kind in classes:
                self._add_class(kind)
                self._called[kind] = None
            function = self._of_value(f, ())
            self.key: Hashable = function, *self._of_attributes()
        except ValueError as error:  # a cell has no contents: its name is bound later
            raise UnknownStateError from error

    def holds(self) -> bool:
        """Whether all is still what it was: the same objects, and arrays of the same numbers."""
        try:
            return (
                all(
                    f.__code__ is code
                    and f.__defaults__ is defaults
                    and f.__kwdefaults__ is named
                    and tuple(vars(f)) == keys
                    for f, (code, defaults, named, keys) in self._functions.items()
                )
                and all(cell.cell_contents is value for cell, value in self._cells.values())
                and all(_looked_up(names, n) is value for names, n, value in self._globals.values())
                and all(
                    names.get(name, _MISSING) is value
                    for names, name, value in self._names.values()
                )
                and all(
                    len(values) == len(before) and all(map(operator.is_, values, before))
                    for values, before in self._lists.values()
                )
                and all(_same_items(values, before) for values, before in self._dicts.values())
                and all(
                    type(value) is kind
                    and getattr(value, "__dict__", None) is names
                    and (names is None or tuple(names) == keys)
                    for value, kind, names, keys in self._objects.values()
                )
                and all(tuple(names) == keys for names, keys in self._members.values())
                and all(getattr(value, n, _MISSING) is slot for value, n, slot in self._slots)
                and all(kind.__mro__ is order for kind, order in self._classes.items())
                and all(same_bits(array, before) for array, before in self._arrays.values())
            )
        except ValueError:  # a cell has lost its contents
            return False

    def contents(self) -> list[bytes]:
        """The bytes of all arrays, in the order in which they were read."""
        return [before.tobytes() for _, before in self._arrays.values()]

    def _note(self, names: Mapping[str, Any], name: str, value: Any) -> None:
        self._names[id(names), name] = names, name, value

    def _of_attributes(self) -> list[Part]:
        """Modules, classes and objects: a function of one may read more attributes of others."""
        while True:
            before = self._sizes()
            self._slots.clear()
            parts = [(m, *self._of_module(m)) for m in list(self._modules)]
            parts += [(kind, *self._of_class(kind)) for kind in list(self._classes)]
            parts += [self._of_fields(value) for value, *_ in list(self._objects.values())]
            parts += [self._of_fields(f) for f in list(self._functions) if vars(f)]
            if before == self._sizes():
                return parts

    def _sizes(self) -> tuple[int, ...]:
        of = self._modules, self._classes, self._called, self._objects, self._attributes
        return tuple(map(len, of))

    def _of_value(self, value: Any, within: tuple[Any, ...]) -> Part:
        kind = type(value)
        if kind in LITERALS:
            return kind, value
        if kind is float:
            return (value.hex(),)  # which tells -0.0 from 0.0
        if kind is str:
            return self._of_string(value)
        if kind in PARTS:
            return kind, *(self._of_value(part, within) for part in PARTS[kind](value))
        if isinstance(value, np.dtype):
            return np.dtype, str(value)
        if isinstance(value, Unchanging):
            return (value,)
        if isinstance(value, type):
            return self._of_type(value)
        called = self._of_callable(value, within)
        data = called or self._of_data(value, within)
        return data or self._of_object(value, within)

    def _of_type(self, value: type) -> Part:
        kind = type(value)
        if value is np.dtype:
            return np.dtype, str(value)
        if _is_pure(value) or (kind is type and issubclass(value, np.generic)):
            self.asks_types |= value is type
            return kind, value
        if isinstance(value, abc.ABCMeta):  # others may be registered as its subclasses
            raise UnknownStateError
        self._add_class(value)
        self._called[value] = None
        return (value,)

    def _of_callable(self, value: Any, within: tuple[Any, ...]) -> Part | None:
        """The part of a function of NumPy's, or of Python; None of what is no such."""
        kind = type(value)
        if kind is np.ufunc and not all({*types} <= {*"O->"} for types in value.types):
            return kind, value  # one of `np.frompyfunc` calls Python's code
        if kind is DISPATCHER:
            self._attributes.add(value.__name__)  # a method that NumPy calls instead
            return kind, value
        if _is_pure(value):
            return kind, value
        if kind is FunctionType and value not in within:
            return self._of_function(value, (*within, value))
        return None

    def _of_data(self, value: Any, within: tuple[Any, ...]) -> Part | None:
        """The part of an array, a list or a dictionary, where these are taken; else None."""
        kind = type(value)
        if self._takes_arrays and kind is np.ndarray:
            return self._of_array(value)
        if self._takes_arrays and isinstance(value, np.number):
            return kind, value.tobytes()
        if self._takes_lists and kind is list:
            return self._of_list(value, within)
        if self._takes_lists and kind is dict:
            return self._of_dict(value, within)
        return None

    def _of_string(self, value: str) -> Part:
        if "%" in value:
            self._attributes.update(PRINTING)
        if FIELDS_OF_STRINGS.search(value):
            raise UnknownStateError
        return str, value

    def _of_list(self, values: list[Any], within: tuple[Any, ...]) -> Part:
        if id(values) in self._lists:  # another reference, or one within itself
            return list, list(self._lists).index(id(values))
        self._lists[id(values)] = values, [*values]
        return list, *(self._of_value(v, within) for v in [*values])

    def _of_dict(self, values: dict[Any, Any], within: tuple[Any, ...]) -> Part:
        if id(values) in self._dicts:
            return dict, list(self._dicts).index(id(values))
        self._dicts[id(values)] = values, {**values}
        parts = [(self._of_value(k, within), self._of_value(v, within)) for k, v in values.items()]
        return dict, *parts

    def _of_array(self, array: np.ndarray) -> Part:
        most = MOST_COMPARED if self._takes_lists else MOST_BYTES
        if array.dtype.char not in COMPARED or array.nbytes > most:
            raise UnknownStateError
        if id(array) not in self._arrays:
            self._arrays[id(array)] = array, snapshot(array)
        number = list(self._arrays).index(id(array))
        return np.ndarray, number, array.shape, array.dtype

    def _of_function(self, f: FunctionType, within: tuple[Any, ...]) -> Part:
        if _is_own(f):
            return (f,)
        if _wraps(f.__globals__.get("__name__"), f):
            return f, self._of_value(vars(f)["__wrapped__"], within)
        references = references_of(f.__code__)
        if references.elsewhere:
            raise UnknownStateError
        self._attributes.update(references.attributes)
        if references.prints:
            self._attributes.update(PRINTING)
        self._functions[f] = f.__code__, f.__defaults__, f.__kwdefaults__, tuple(vars(f))
        values = []
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            self._cells[id(cell)] = cell, cell.cell_contents
            if name == "__class__":  # that of a method, for `super`
                self._add_class(cell.cell_contents)
            else:
                values.append(cell.cell_contents)
        for name in references.names:
            values.append(_global(f, name))
            self._globals[id(f.__globals__), name] = f.__globals__, name, values[-1]
            if values[-1] is type:  # it gives the class of an object, which may be called
                self._attributes.add("__class__")
        parts = [self._of_reference(v, within) for v in values]
        positional = tuple(self._of_value(v, within) for v in f.__defaults__ or ())
        named = f.__kwdefaults__ or {}
        for name, v in named.items():
            self._note(named, name, v)
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
        names = [
            n for n in sorted(self._attributes)
            if n in has or (not n.startswith("__") and _is_lazy(module, n))
        ]  # fmt: skip
        for name in self._attributes.difference(names):
            self._note(has, name, _MISSING)
        if module.__name__ == "symgrad":  # names that it loads when they are first asked for
            values = [getattr(module, name) for name in names]
        else:
            values = [has.get(name, module) for name in names]
        if any(v is module for v in values):
            raise UnknownStateError
        for n, v in zip(names, values, strict=True):
            self._note(has, n, v)
        return tuple((n, self._of_reference(v, ())) for n, v in zip(names, values, strict=True))

    def _add_class(self, kind: type) -> None:
        """Note a class, whose attributes are read later.

        Raises:
            UnknownStateError: for one that is not Python's code alone.
        """
        if kind in self._classes:
            return
        if type(kind) not in (type, abc.ABCMeta, type(Protocol)):
            raise UnknownStateError
        for base in kind.__mro__:
            has = {} if base in PLAIN_BASES else vars(base)
            by_name = "__getattr__" in has or "__getattribute__" in has
            if by_name or any(isinstance(v, COMPILED) for v in has.values()):
                raise UnknownStateError
        self._classes[kind] = kind.__mro__

    def _of_class(self, kind: type) -> tuple[Part, ...]:
        """The methods and attributes that are read of a class and, for `super`, its bases."""
        read = (base for base in kind.__mro__ if base not in PLAIN_BASES)
        bases = [
            self._members.setdefault(base, (vars(base), tuple(vars(base))))[0] for base in read
        ]
        is_called = kind in self._called or "__class__" in self._attributes
        if is_called and (isinstance(kind, abc.ABCMeta) or any(map(_sets, bases))):
            raise UnknownStateError  # others may be its subclasses, or ``__init__`` call a setter
        parts = []
        for name in sorted(SPECIAL | self._attributes | (CONSTRUCTORS if is_called else set())):
            if not any(name in has for has in bases):
                continue
            for has in bases:
                if name not in has:
                    continue
                self._note(has, name, has[name])
                if name == "__repr__" and _is_generated(has):
                    self._attributes.update(getattr(kind, "__match_args__", ()))
                    continue
                if type(has[name]) is classmethod:
                    self._called[kind] = None
                parts.append((name, self._of_member(has[name])))
        return tuple(parts)

    def _of_member(self, value: Any) -> Part:
        """The part of a member of a class: of a method, property, slot, or value of all objects."""
        kind = type(value)
        if kind in (staticmethod, classmethod):
            return kind, self._of_reference(value.__func__, ())
        if kind is property:
            return kind, self._of_value(value.fget, ())
        if kind in (FIELD, MemberDescriptorType):
            return (kind,)
        if kind is not FunctionType and (hasattr(kind, "__get__") or hasattr(kind, "__set__")):
            raise UnknownStateError
        return self._of_reference(value, ())

    def _of_object(self, value: Any, within: tuple[Any, ...]) -> Part:
        """An object of a class of Python's code, whose attributes are read later."""
        kind = type(value)
        if _wraps(kind.__module__, value):
            return value, self._of_value(value.__wrapped__, within)
        self._add_class(kind)
        if id(value) not in self._objects:
            names = getattr(value, "__dict__", None)
            self._objects[id(value)] = value, kind, names, tuple(names or ())
        number = list(self._objects).index(id(value))
        items = tuple.__iter__(value) if isinstance(value, tuple) else ()
        return kind, number, *(self._of_reference(v, within) for v in items)

    def _of_fields(self, value: Any) -> Part:
        """The attributes of an object that are read, and are not its class's."""
        kind, parts = type(value), list[Hashable]()
        has = getattr(value, "__dict__", {})
        for name in sorted(self._attributes):
            of_class = next((vars(b)[name] for b in kind.__mro__ if name in vars(b)), _MISSING)
            if name in has:
                self._note(has, name, has[name])
            if type(of_class) is MemberDescriptorType:
                self._slots.append((value, name, getattr(value, name, _MISSING)))
                if self._slots[-1][2] is not _MISSING:
                    parts.append((name, self._of_reference(self._slots[-1][2], ())))
            elif name in has:
                parts.append((name, self._of_reference(has[name], ())))
        return tuple(parts)


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


def _wraps(module: str | None, value: Any) -> bool:
    """Whether it is a function of a module of `WRAPPERS`, made of another one."""
    return module in WRAPPERS and "__wrapped__" in getattr(value, "__dict__", ())


def _sets(members: Mapping[str, Any]) -> bool:
    """Whether a store of an attribute may run code of a class that has these members."""
    is_frozen = getattr(members.get("__dataclass_params__"), "frozen", False)
    plain = FIELD, GetSetDescriptorType, MemberDescriptorType
    return ("__setattr__" in members and not is_frozen) or any(
        v.fset is not None if isinstance(v, property) else hasattr(type(v), "__set__")
        for v in members.values()
        if not isinstance(v, plain)
    )


def _is_generated(members: Mapping[str, Any]) -> bool:
    """Whether ``__repr__`` is that of data classes or named tuples, which prints the fields."""
    function = members["__repr__"]
    if "_fields" in members:
        return getattr(function, "__globals__", {}).get("__name__") == "collections"
    inner = getattr(function, "__wrapped__", None)
    is_made = getattr(members.get("__dataclass_params__"), "repr", False)
    return is_made and inner is not None and inner.__code__.co_filename == "<string>"


def _same_items(values: dict[Any, Any], before: dict[Any, Any]) -> bool:
    """Whether a dictionary has the keys, in their order, and the values that it had."""
    pairs = zip([*values.items()], [*before.items()], strict=False)  # other threads may write
    return len(values) == len(before) and all(a is b and x is y for (a, x), (b, y) in pairs)


_MISSING: Final = object()


def _looked_up(names: Mapping[str, Any], name: str) -> Any:
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
