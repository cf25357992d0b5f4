"""Records of what a trace does to integers of its arguments, by NumPy and as Python's numbers.

A traced function computes with the integers of its arguments as it would without a trace: their
values are known, those of the call. A `Recording` notes each step from them to what the program
takes, such as tokens without the last of each row, a mask, or the number of an iteration plus one,
so that the steps alone are done again for others. What asks for a value in another way, such as an
``if``, `range` or `np.asarray`, gets that of the call, and the integers that it follows from are
``fixed``: a call in which these are others is traced again.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeGuard

import numpy as np

from symgrad.expr.graph.node import Handle, Whole
from symgrad.expr.tracing.snapshot import snapshot

IN_PLACE: Final = frozenset(
    {np.copyto, np.fill_diagonal, np.place, np.put, np.put_along_axis, np.putmask}
)
"""NumPy's functions that write to their arguments."""

OF_SHAPES: Final = frozenset({np.shape, np.ndim, np.size})
"""NumPy's functions of shapes alone."""

PURE_METHODS: Final = frozenset(
    {"all", "any", "argmax", "argmin", "argsort", "astype", "choose", "clip", "compress", "copy",
     "cumprod", "cumsum", "diagonal", "flatten", "max", "mean", "min", "nonzero", "prod", "ravel",
     "repeat", "reshape", "round", "searchsorted", "squeeze", "std", "sum", "swapaxes", "take",
     "trace", "transpose", "var"}
)  # fmt: skip
"""Methods of arrays that give other arrays, and depend on nothing but their arguments."""

WRITING_METHODS: Final = frozenset(
    {"byteswap", "fill", "itemset", "partition", "put", "resize", "setfield", "setflags", "sort"}
)
"""Methods that change an array."""

NUMBERS: Final = frozenset({int, float})
"""The types of Python's numbers that are recorded: truth values are compared by identity."""

PLAIN: Final = (
    bool, int, float, str, bytes, type, type(None), type(Ellipsis), np.dtype, np.generic,
)  # fmt: skip
"""The types of arguments of steps that never change."""

Function = Callable[..., Any]


class UnknownArgumentError(Exception):
    """An argument that may change, or do anything."""


class WriteError(BaseException):
    """A write to an array, which is not recorded: the trace is to be done without a recording.

    It is none of the errors that a traced function may handle.
    """

    def __init__(self) -> None:
        super().__init__("an array of a call's integers is written to where it is recorded")


class Form(NamedTuple):
    """All of a value that a trace may have seen but its numbers."""

    kind: type
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None


class Place(NamedTuple):
    """An argument of a step: the value of this number, of those given and of the steps before."""

    number: int


class Step(NamedTuple):
    """A function that was called, and the form of its result."""

    function: Function
    args: tuple[Any, ...]
    named: dict[str, Any]
    form: Form


class Recording:
    """The steps that a trace took from some values: `replay` takes them from others.

    Of the values those at the places ``varying`` are recorded; all others are fixed.
    """

    def __init__(self, values: Sequence[Any], varying: Collection[int]) -> None:
        self.is_written = False
        """Whether an array was written to, so that the trace says nothing of other calls."""
        self.fixed = {*range(len(values))}.difference(varying)
        """The places of values that more than the steps depends on."""
        self.values = [*values]
        """The values given, and those of all steps."""
        self._varying, self._steps = varying, list[Step]()

    @property
    def given(self) -> list[Any]:
        """The values, as the traced function gets them."""
        return [
            Recorded(self, k, v, frozenset([k])) if k in self._varying else v
            for k, v in enumerate(self.values)
        ]

    def refuse_write(self) -> NoReturn:
        """Raise the error of a write to an array."""
        self.is_written = True
        raise WriteError

    def release(self) -> None:
        """Forget the values of the trace, which steps for others do not need."""
        self.values = []

    def do(self, function: Function, args: Sequence[Any], named: Any = None) -> Any:
        """The result of a function: recorded, if it and its arguments depend on nothing else."""
        named = named or {}
        if "out" in named or function in IN_PLACE:
            self.refuse_write()
        sources = frozenset[int]().union(*map(_sources, (*args, *named.values())))
        try:
            value = function(*map(plain, args), **{k: plain(v) for k, v in named.items()})
        except Exception:  # which the traced function may handle
            self.fixed |= sources
            raise
        parts = value if type(value) in (tuple, list) else (value,)
        if any(part is plain(a) for part in parts for a in args[1:] if np.ndim(part)):
            self.refuse_write()  # an argument that results go to
        try:
            kept = tuple(map(_argument, args)), {k: _argument(v) for k, v in named.items()}
        except UnknownArgumentError:
            kept = None
        is_plain = all(map(_is_recordable, parts)) and (parts is not value or _has_arrays(parts))
        if kept is None or not is_plain or _raises_of_floats():
            self.fixed |= sources
        if kept is None or sources <= self.fixed:
            return value
        if parts is not value:
            return self._recorded(value, sources, Step(function, *kept, _form(value)))
        whole = Place(self._added(value, Step(function, *kept, _form(value))))
        return type(value)(
            self._recorded(v, sources, Step(operator.getitem, (whole, k), {}, _form(v)))
            for k, v in enumerate(parts)
        )

    def _recorded(self, value: Any, sources: frozenset[int], step: Step) -> Recorded:
        return Recorded(self, self._added(value, step), value, sources)

    def _added(self, value: Any, step: Step) -> int:
        self._steps.append(step)
        self.values.append(value)
        return len(self.values) - 1

    def replay(self, given: Sequence[Any]) -> list[Any] | None:
        """The values of all steps from others of the same forms, of which those fixed are equal.

        None if one of them has another form than it had in the trace, which may have seen it.
        """
        values: list[Any] = list(given)
        for function, args, named, form in self._steps:
            filled = [_filled(a, values) for a in args]
            value = function(*filled, **{k: _filled(a, values) for k, a in named.items()})
            if _form(value) != form:
                return None
            values.append(value)
        return values


def is_recorded(value: Any) -> TypeGuard[Recorded]:
    """Whether it is a value that is recorded, which says of itself that it is none."""
    return type(value) is Recorded


def is_number(value: Any) -> bool:
    """Whether it is one of Python's numbers, recorded or not."""
    return type(plain(value)) in NUMBERS


def plain(value: Any) -> Any:
    """A value, or a nest of them, with values themselves in the place of those recorded."""
    if type(value) is Recorded:
        return value.value
    if type(value) in (tuple, list):
        return type(value)(map(plain, value))
    return value


def known(value: Any) -> Any:
    """A value itself, on which more than the steps of a recording depends from now on."""
    return value.known() if type(value) is Recorded else value


def _sources(value: Any) -> frozenset[int]:
    """The places of the values that an argument, or a nest of them, follows from."""
    if type(value) is Recorded:
        return value.sources
    if type(value) in (tuple, list):
        return frozenset[int]().union(*map(_sources, value))
    return frozenset()


def _form(value: Any) -> Form:
    if type(value) in NUMBERS:
        return Form(type(value), (), None)
    if type(value) in (tuple, list):
        return Form(type(value), (len(value),), None)
    return Form(type(value), value.shape, value.dtype)


def _raises_of_floats() -> bool:
    """Whether NumPy raises, or calls a function, at a division by 0 and the like here."""
    return bool({"raise", "call"} & {*np.geterr().values()})


def _has_arrays(parts: Sequence[Any]) -> bool:
    return all(type(part) is np.ndarray for part in parts)


def _is_recordable(value: Any) -> bool:
    if type(value) in NUMBERS:
        return True
    is_array = type(value) is np.ndarray or isinstance(value, np.generic)
    return is_array and value.dtype.kind in "biuf"


def _argument(value: Any) -> Any:
    """An argument as a step keeps it: arrays and lists as they are now."""
    if type(value) is Recorded:
        return _argument(value.value) if value.is_fixed else Place(value.number)
    if type(value) in (tuple, list):
        return type(value)(map(_argument, value))
    if type(value) is slice and not any(map(is_recorded, (value.start, value.stop, value.step))):
        return value
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return snapshot(value)
    if isinstance(value, PLAIN):
        return value
    raise UnknownArgumentError


def _filled(argument: Any, values: Sequence[Any]) -> Any:
    """An argument of a step, with values in their places."""
    if type(argument) is Place:
        return values[argument.number]
    if type(argument) in (tuple, list):
        return type(argument)(_filled(a, values) for a in argument)
    return argument


def _operators(function: Function) -> tuple[Any, Any, Any]:
    """An operator, the one of a right operand, and the one that writes to an array."""

    def operate(self: Recorded, other: Any) -> Any:
        return self.of_operands(function, self, other)

    def reflected(self: Recorded, other: Any) -> Any:
        return self.of_operands(function, other, self)

    def in_place(self: Recorded, other: Any) -> Any:
        if type(self.value) is np.ndarray and not isinstance(other, (Whole, Handle)):
            self.recording.refuse_write()
        return self.of_operands(function, self, other)

    return operate, reflected, in_place


def _sign(function: Function) -> Any:
    return lambda self: self.then(function)


def _asking(function: Function) -> Any:
    """The method that is a function of the value itself."""
    return lambda self, *others: function(self.known(), *map(known, others))


class Recorded:
    """An array of NumPy's, or a number, in a trace, with the record of how it came about.

    It does what that does, and says of itself that it is one.
    """

    __slots__ = ("number", "recording", "sources", "value")

    def __init__(
        self, recording: Recording, number: int, value: Any, sources: frozenset[int]
    ) -> None:
        self.recording, self.number, self.value, self.sources = recording, number, value, sources

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self.value)

    @property
    def is_fixed(self) -> bool:
        """Whether more than the steps depends on all that it follows from: it may be written to."""
        return self.sources <= self.recording.fixed

    def known(self) -> Any:
        """The value itself, on which more than the steps depends from now on."""
        self.recording.fixed |= self.sources
        return self.value

    def then(self, function: Function, *others: Any) -> Any:
        """A function of it and others, as a step."""
        return self.recording.do(function, (self, *others))

    def of_operands(self, function: Function, a: Any, b: Any) -> Any:
        """A function of it and another operand, unless that is traced."""
        if isinstance(a, (Whole, Handle)) or isinstance(b, (Whole, Handle)):
            return NotImplemented
        return self.recording.do(function, (a, b))

    # --- what does not depend on values -----------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return np.shape(self.value)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return np.ndim(self.value)

    @property
    def size(self) -> int:
        """The number of elements."""
        return np.size(self.value)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements, or of an array of a number."""
        return np.asarray(self.value).dtype

    def __len__(self) -> int:
        return len(self.value)

    # --- steps ------------------------------------------------------------------------------------

    @property
    def T(self) -> Any:
        """The array with its axes in reverse order."""
        return self.then(np.transpose)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        if any(isinstance(x, (Whole, Handle)) for x in inputs):
            return NotImplemented
        if method == "at":
            self.recording.refuse_write()
        return self.recording.do(getattr(ufunc, method), inputs, named)

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        if any(issubclass(kind, (Whole, Handle)) for kind in types):
            return NotImplemented
        if function in OF_SHAPES:
            return function(*map(plain, args), **named)
        return self.recording.do(function, args, named)

    def __getitem__(self, key: Any) -> Any:
        return self.then(operator.getitem, key)

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            return iter(self.known())
        return (self[k] for k in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # NumPy would read the array by its interfaces
            raise AttributeError(name)
        if name in WRITING_METHODS:
            self.recording.refuse_write()
        if name not in PURE_METHODS or type(self.value) in NUMBERS:
            return getattr(self.known(), name)
        method = getattr(type(self.value), name)
        return lambda *args, **named: self.recording.do(method, (self, *args), named)

    __add__, __radd__, __iadd__ = _operators(operator.add)
    __sub__, __rsub__, __isub__ = _operators(operator.sub)
    __mul__, __rmul__, __imul__ = _operators(operator.mul)
    __matmul__, __rmatmul__, __imatmul__ = _operators(operator.matmul)
    __truediv__, __rtruediv__, __itruediv__ = _operators(operator.truediv)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators(operator.floordiv)
    __mod__, __rmod__, __imod__ = _operators(operator.mod)
    __pow__, __rpow__, __ipow__ = _operators(operator.pow)
    __and__, __rand__, __iand__ = _operators(operator.and_)
    __or__, __ror__, __ior__ = _operators(operator.or_)
    __xor__, __rxor__, __ixor__ = _operators(operator.xor)
    __lshift__, __rlshift__, __ilshift__ = _operators(operator.lshift)
    __rshift__, __rrshift__, __irshift__ = _operators(operator.rshift)
    __lt__, __gt__ = _operators(operator.lt)[:2]
    __le__, __ge__ = _operators(operator.le)[:2]
    __eq__, __ne__ = _operators(operator.eq)[0], _operators(operator.ne)[0]
    __neg__, __pos__ = _sign(operator.neg), _sign(operator.pos)
    __abs__, __invert__ = _sign(operator.abs), _sign(operator.invert)

    # --- what asks for values ---------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.known(), dtype, copy=copy)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.recording.refuse_write()

    __bool__, __int__, __float__ = map(_asking, (bool, int, float))
    __complex__, __index__, __round__ = map(_asking, (complex, operator.index, round))
    __hash__, __repr__, __str__, __format__ = map(_asking, (hash, repr, str, format))
    __contains__, __divmod__ = _asking(operator.contains), _asking(divmod)
    __rdivmod__ = _asking(lambda value, other: divmod(other, value))
    __copy__, __deepcopy__ = _asking(copy.copy), _asking(copy.deepcopy)
    __reduce_ex__ = _asking(lambda value, protocol: value.__reduce_ex__(protocol))
