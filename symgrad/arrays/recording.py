"""Records of what NumPy does in a trace to arrays of integers.

A traced function computes with the integers of its arguments as NumPy does: their values are known,
those of the call. A `Recording` notes each step from these arrays to those that the program takes,
such as tokens without the last of each row, or a mask, so that the steps alone are done again for
other integers. What asks for a value in another way, such as an ``if`` or `np.asarray`, gets that
of the call, and the record is no longer ``complete``: a call with other integers is traced again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

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

PLAIN: Final = (
    bool, int, float, str, bytes, type, type(None), type(Ellipsis), np.dtype, np.generic,
)  # fmt: skip
"""The types of arguments of steps that never change."""


class Form(NamedTuple):
    """All of an array that a trace may have seen but its values."""

    is_array: bool
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Place(NamedTuple):
    """An argument of a step: the value of this number, of those given and of the steps before."""

    number: int


class Step(NamedTuple):
    """A function of NumPy's that was called, and the form of its result, if that is an array."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    named: dict[str, Any]
    form: Form | None


WRITING_METHODS: Final = frozenset(
    {"byteswap", "fill", "itemset", "partition", "put", "resize", "setfield", "setflags", "sort"}
)
"""Methods that change an array."""


class UnknownArgumentError(Exception):
    """An argument that may change, or do anything."""


class WriteError(BaseException):
    """A write to an array, which is not recorded: the trace is to be done without a recording.

    It is none of the errors that a traced function may handle.
    """


class Recording:
    """The steps that a trace took with arrays: `replay` takes them with others."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.complete = True
        """Whether nothing but the steps depends on the values."""
        self._count, self._steps = len(arrays), list[Step]()
        self.given = [RecordedArray(self, k, a) for k, a in enumerate(arrays)]
        """The arrays, as the traced function gets them."""

    def do(self, function: Callable[..., Any], args: Sequence[Any], named: Any = None) -> Any:
        """The result of a function: recorded, if it and its arguments depend on nothing else."""
        named = named or {}
        if "out" in named or function in IN_PLACE:
            raise WriteError
        value = function(*map(plain, args), **{k: plain(v) for k, v in named.items()})
        parts = value if type(value) in (tuple, list) else (value,)
        self.complete &= all(map(_is_recordable, parts))
        if not self.complete:
            return value
        try:
            kept = tuple(map(_argument, args)), {k: _argument(v) for k, v in named.items()}
        except UnknownArgumentError:
            self.complete = False
            return value
        if parts is not value:
            return self._recorded(value, function, *kept)
        whole = self._added(Step(function, *kept, None))
        return type(value)(
            self._recorded(part, operator.getitem, (Place(whole), k), {})
            for k, part in enumerate(parts)
        )

    def _recorded(
        self, value: Any, function: Any, args: tuple[Any, ...], named: dict[str, Any]
    ) -> RecordedArray:
        step = Step(function, args, named, _form(value))
        return RecordedArray(self, self._added(step), value)

    def _added(self, step: Step) -> int:
        self._steps.append(step)
        return self._count + len(self._steps) - 1

    def replay(self, arrays: Sequence[np.ndarray]) -> list[Any] | None:
        """The values of all steps for other arrays of the same forms.

        None if one of them has another form than it had in the trace, which may have seen it.
        """
        values: list[Any] = list(arrays)
        for function, args, named, form in self._steps:
            given = [_filled(a, values) for a in args]
            value = function(*given, **{k: _filled(a, values) for k, a in named.items()})
            if form is not None and _form(value) != form:
                return None
            values.append(value)
        return values


def plain(value: Any) -> Any:
    """A value, or a nest of them, with arrays themselves in the place of those recorded."""
    if type(value) is RecordedArray:
        return value.value
    if type(value) in (tuple, list):
        return type(value)(map(plain, value))
    return value


def is_recorded(value: Any) -> bool:
    """Whether it is an array that is recorded, which says of itself that it is one of NumPy's."""
    return type(value) is RecordedArray


def _form(value: Any) -> Form:
    return Form(type(value) is np.ndarray, np.shape(value), value.dtype)


def _is_recordable(value: Any) -> bool:
    is_array = type(value) is np.ndarray or isinstance(value, np.generic)
    return is_array and value.dtype.kind in "biuf"


def _argument(value: Any) -> Any:
    """An argument as a step keeps it: arrays and lists as they are now."""
    if type(value) is RecordedArray:
        return Place(value.number)
    if type(value) in (tuple, list):
        return type(value)(map(_argument, value))
    if type(value) is slice and not any(
        is_recorded(v) for v in (value.start, value.stop, value.step)
    ):
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


def _operators(ufunc: np.ufunc) -> tuple[Any, Any, Any]:
    """The operator that a ufunc is, the one of a right operand, and the one that writes."""

    def operate(self: RecordedArray, other: Any) -> Any:
        return self.of_operands(ufunc, self, other)

    def reflected(self: RecordedArray, other: Any) -> Any:
        return self.of_operands(ufunc, other, self)

    def in_place(self: RecordedArray, other: Any) -> Any:
        if isinstance(other, (Whole, Handle)):
            return NotImplemented
        if self.ndim:
            raise WriteError
        return self.of_operands(ufunc, self, other)

    return operate, reflected, in_place


class RecordedArray:
    """An array, or a number, of NumPy's in a trace, with the record of how it came about.

    It does what that does, and says of itself that it is one.
    """

    __slots__ = ("number", "recording", "value")

    def __init__(self, recording: Recording, number: int, value: Any) -> None:
        self.recording, self.number, self.value = recording, number, value

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self.value)

    def known(self) -> Any:
        """The array itself, on whose values more than the steps depends from now on."""
        self.recording.complete = False
        return self.value

    def then(self, function: Callable[..., Any], *others: Any) -> Any:
        """A function of it and others, as a step."""
        return self.recording.do(function, (self, *others))

    def of_operands(self, function: Callable[..., Any], a: Any, b: Any) -> Any:
        """A function of it and another operand, unless that is traced."""
        if isinstance(a, (Whole, Handle)) or isinstance(b, (Whole, Handle)):
            return NotImplemented
        return self.recording.do(function, (a, b))

    # --- what does not depend on values -----------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.value.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.value.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self.value.dtype

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
            raise WriteError
        if name not in PURE_METHODS:
            return getattr(self.known(), name)
        method = getattr(type(self.value), name)
        return lambda *args, **named: self.recording.do(method, (self, *args), named)

    __add__, __radd__, __iadd__ = _operators(np.add)
    __sub__, __rsub__, __isub__ = _operators(np.subtract)
    __mul__, __rmul__, __imul__ = _operators(np.multiply)
    __matmul__, __rmatmul__, __imatmul__ = _operators(np.matmul)
    __truediv__, __rtruediv__, __itruediv__ = _operators(np.divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators(np.floor_divide)
    __mod__, __rmod__, __imod__ = _operators(np.remainder)
    __pow__, __rpow__, __ipow__ = _operators(np.power)
    __and__, __rand__, __iand__ = _operators(np.bitwise_and)
    __or__, __ror__, __ior__ = _operators(np.bitwise_or)
    __xor__, __rxor__, __ixor__ = _operators(np.bitwise_xor)
    __lshift__, __rlshift__, __ilshift__ = _operators(np.left_shift)
    __rshift__, __rrshift__, __irshift__ = _operators(np.right_shift)
    __lt__, __gt__ = _operators(np.less)[:2]
    __le__, __ge__ = _operators(np.less_equal)[:2]
    __eq__, __ne__ = _operators(np.equal)[0], _operators(np.not_equal)[0]

    def __neg__(self) -> Any:
        return self.then(np.negative)

    def __pos__(self) -> Any:
        return self.then(np.positive)

    def __abs__(self) -> Any:
        return self.then(np.absolute)

    def __invert__(self) -> Any:
        return self.then(np.invert)

    # --- what asks for values ---------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.known(), dtype, copy=copy)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise WriteError

    def __bool__(self) -> bool:
        return bool(self.known())

    def __int__(self) -> int:
        return int(self.known())

    def __float__(self) -> float:
        return float(self.known())

    def __complex__(self) -> complex:
        return complex(self.known())

    def __index__(self) -> int:
        return operator.index(self.known())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.known(), digits)

    def __divmod__(self, other: Any) -> Any:
        return divmod(self.known(), plain(other))

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(plain(other), self.known())

    def __contains__(self, value: Any) -> bool:
        return plain(value) in self.known()

    def __hash__(self) -> int:
        return hash(self.known())

    def __repr__(self) -> str:
        return repr(self.known())

    def __str__(self) -> str:
        return str(self.known())

    def __format__(self, spec: str) -> str:
        return format(self.known(), spec)

    def __copy__(self) -> Any:
        return self.known().copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.known().copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.known().__reduce_ex__(protocol)
