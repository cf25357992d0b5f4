"""Programs of calls that came before, recalled without a trace where nothing has changed since.

A trace shows all that a function computes, and takes longer than small programs run. A plain
function computes the same as long as its `Fingerprint` holds, for arguments of the same form: the
same nests, shapes, dtypes and constants. Integers are constants to a trace: those in which a second
call differs from the first are traced with a `Recording`, which then serves other calls.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from symgrad.arrays.recording import Recording, WriteError
from symgrad.expr.tracing.fingerprint import Fingerprint, UnknownStateError
from symgrad.front.whole import TracedCall
from symgrad.kernel.host.memory import ResidentArray

MOST_FORMS: Final = 64
"""The most forms of arguments whose programs a function keeps, and programs of one form."""

MOST_CHANGES: Final = 16
"""Changes of a function's state after which none of its programs is kept any more."""

CONSTANT_BYTES: Final = 2**14
"""Bytes of an array of integers that is a constant, at most: it is compared at every call."""


class UnknownFormError(Exception):
    """Arguments that only a trace understands."""


def is_integers(leaf: Any) -> bool:
    """Whether a leaf of an argument is an integer, or an array of such or of truth values."""
    if type(leaf) is np.ndarray:
        return leaf.dtype.kind in "iub"
    return type(leaf) is int or isinstance(leaf, np.integer)


class Form:
    """The part of a call's arguments that a trace depends on: ``key``; numbers are in ``arrays``.

    The variables, at the places ``chosen``, come first, in the order of `Arguments`. Integers, and
    arrays of them and of truth values, are in ``integers``.

    Raises:
        UnknownFormError: of objects that may be anything.
    """

    def __init__(self, args: Sequence[Any], named: dict[str, Any], chosen: Sequence[int]) -> None:
        self.arrays: list[Any] = []
        self.integers: list[Any] = []
        self.classes: dict[type, None] = {}
        """The classes of named tuples and data classes."""
        self._parts: list[Hashable] = [len(args), *chosen]
        for k in chosen:
            self._add(args[k], True)
        self.variables = len(self.arrays)
        """How many of the arrays are variables."""
        for k in range(len(args)):
            if k not in chosen:
                self._add(args[k], False)
        if named:
            self._add(named, False)
        self.key: Hashable = tuple(self._parts)

    @functools.cached_property
    def constants(self) -> list[Hashable]:
        """The numbers of each of the integers; None of so many that they are not compared."""
        return [_constant(value) for value in self.integers]

    def _add(self, value: Any, is_variable: bool) -> None:
        kind = type(value)
        if kind is np.ndarray:
            self._add_array(value, is_variable)
        elif value is None:
            self._parts.append(None)
        elif kind is float:
            self.arrays.append(np.asarray(value))
            self._parts.append(float)
        elif isinstance(value, ResidentArray):
            if value.dtype.kind != "f":
                self._add_array(value.numpy(), is_variable)
            else:
                self.arrays.append(value)
                self._parts.append((kind, value.shape, value.dtype, value.gpu))
        elif kind is dict:
            if not all(type(k) in (int, str) for k in value):
                raise UnknownFormError
            self._add_nest(kind, value.values(), tuple(value), is_variable)
        elif kind in (tuple, list):
            if kind is list and all(isinstance(v, (list, int, float, np.generic)) for v in value):
                raise UnknownFormError  # it stands for an array
            self._add_nest(kind, value, len(value), is_variable)
        elif kind in (bool, str) and not is_variable:
            self._parts.append((kind, value))
        elif isinstance(value, np.floating):
            self._add_array(np.asarray(value), is_variable)
        elif is_integers(value) and not is_variable:
            self.integers.append(value)
            self._parts.append(kind)
        elif isinstance(value, tuple) and hasattr(kind, "_fields"):
            self.classes[kind] = None
            self._add_nest(kind, value, len(value), is_variable)
        elif dataclasses.is_dataclass(kind):
            self._add_fields(value, is_variable)
        else:
            raise UnknownFormError

    def _add_fields(self, value: Any, is_variable: bool) -> None:
        """A data class: its arrays, and as constants its static fields."""
        fields = dataclasses.fields(value)
        if set(getattr(value, "__dict__", ())) - {f.name for f in fields}:
            raise UnknownFormError
        self.classes[type(value)] = None
        given = [f for f in fields if hasattr(value, f.name)]
        static = [f.name for f in given if f.metadata.get("static")]
        for name in static:
            self._add_static(getattr(value, name))
        names = tuple(f.name for f in given if f.name not in static)
        self._add_nest(type(value), [getattr(value, n) for n in names], names, is_variable)

    def _add_static(self, value: Any) -> None:
        if value is not None and type(value) not in (int, bool, str, float):
            raise UnknownFormError
        self._parts.append((type(value), value.hex() if type(value) is float else value))

    def _add_array(self, array: np.ndarray, is_variable: bool) -> None:
        if array.dtype.kind == "f":
            self.arrays.append(array)
        elif not is_variable and is_integers(array):
            self.integers.append(array)
        else:
            raise UnknownFormError
        self._parts.append((array.shape, array.dtype))

    def _add_nest(self, kind: type, values: Any, keys: Hashable, is_variable: bool) -> None:
        self._parts.append((kind, keys))
        for value in values:
            self._add(value, is_variable)


class Recallable(Protocol):
    """A traced call, to be run with other numbers."""

    @property
    def others(self) -> bool:
        """Whether the result holds what the program does not compute."""
        ...

    def run(self, arrays: Sequence[Any]) -> Any:
        """The result of a call with these arrays."""
        ...


Recalled = TypeVar("Recalled", bound=Recallable)


class RecalledCall(NamedTuple, Generic[Recalled]):
    """A program that came before, and the arguments of the call that it serves now."""

    program: Recalled
    form: Form

    def run(self) -> Any:
        """The result of the call."""
        return self.program.run(self.form.arrays)


class _Calls(Generic[Recalled]):
    """The programs of calls of one form."""

    def __init__(self, form: Form) -> None:
        self.refused = frozenset[int]()
        """The places of integers whose values a trace asks for: they are constants."""
        self._varying = frozenset[int]()
        """The places of integers that have been others."""
        self._first = form.constants
        self._programs: dict[tuple[int, ...], dict[Hashable, _Noted[Recalled]]] = {}
        """By the places of integers that are fixed, and then by these."""

    def vary(self, form: Form) -> frozenset[int]:
        """The places of integers to be recorded: those that are others than in the first call."""
        pairs = zip(self._first, form.constants, strict=True)
        self._varying |= {k for k, (a, b) in enumerate(pairs) if a is None or a != b}
        return self._varying - self.refused

    def find(self, form: Form) -> Recalled | None:
        """The program for these integers."""
        for fixed, programs in [*self._programs.items()]:
            noted = programs.get(tuple(form.constants[k] for k in fixed))
            if noted is None:
                continue
            if noted.recording is None:
                return noted.program
            values = None
            with suppress(Exception):  # a trace says what is wrong, and where
                values = noted.recording.replay(form.integers)
            if values is not None:
                return having(noted.program, values)
        return None

    def note(self, form: Form, program: Recalled, recording: Recording | None) -> None:
        """Keep a program, for all integers that are not fixed."""
        every = range(len(form.integers))
        fixed = tuple(every if recording is None else sorted(recording.fixed))
        key = tuple(form.constants[k] for k in fixed)
        if None in key:
            return
        programs = self._programs.setdefault(fixed, {})
        if len(programs) >= MOST_FORMS:
            programs.clear()
        if recording is not None:
            program = having(program, ())
            recording.release()
        programs[key] = _Noted(program, recording)


class _Noted(NamedTuple, Generic[Recalled]):
    """A program, and the recording of its integers if some of them are."""

    program: Recalled
    recording: Recording | None


def _constant(value: Any) -> Hashable:
    if not isinstance(value, np.ndarray):
        return int(value)
    return value.tobytes() if value.nbytes <= CONSTANT_BYTES else None


def having(program: Any, values: Sequence[Any]) -> Any:
    """A traced call with these values of what is recorded."""
    assert isinstance(program, TracedCall), "calls of whole arrays are recorded"
    return program.having(values)


class _State(NamedTuple, Generic[Recalled]):
    """A function and its arguments before a trace, and the calls of the same form."""

    fingerprint: Fingerprint
    form: Form
    calls: _Calls[Recalled] | None


class Recall(Generic[Recalled]):
    """The programs of a function's calls. Any number of threads may ask.

    A call notes its program if the function has a fingerprint that holds until the end of the
    trace; all are forgotten once it holds no more. Of a function without one, or whose state
    changes again and again, nothing is kept.
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        self._f = f
        self._seen: tuple[Fingerprint, dict[Hashable, _Calls[Recalled]]] | None = None
        self._classes: dict[type, None] = {}
        """The classes of objects in arguments, of which the fingerprint is too."""
        self._changes = 0

    def find(
        self, args: Sequence[Any], named: dict[str, Any], chosen: Sequence[int] = ()
    ) -> RecalledCall[Recalled] | None:
        """A call like this one that came before, if there was one."""
        seen = self._seen
        if seen is None:
            return None
        try:
            form = Form(args, named, chosen)
        except UnknownFormError:
            return None
        calls = seen[1].get((form.key, _chosen_device()))
        if calls is None or not seen[0].holds():
            return None
        program = calls.find(form)
        return None if program is None else RecalledCall(program, form)

    def traced(
        self, trace: Callable[[Recording | None], Recalled], args: Sequence[Any],
        named: dict[str, Any], chosen: Sequence[int] = (),
    ) -> Recalled:  # fmt: skip
        """The program of a call by a trace.

        Integers are recorded where others came before. Such a trace may fail where one of NumPy's
        arrays does not, which decides; and what it returns beside arrays may hold what is recorded.
        """
        state = self._state(args, named, chosen)
        calls = None if state is None else state.calls
        varying = frozenset[int]()
        if state is not None and calls is not None and not state.fingerprint.asks_types:
            varying = calls.vary(state.form)
        if state is not None and calls is not None and varying:
            recording = Recording(state.form.integers, varying)
            with suppress(Exception, WriteError):
                program = trace(recording)
                if not program.others and not recording.is_written:
                    is_whole = isinstance(program, TracedCall)
                    calls.refused |= recording.fixed & varying if is_whole else varying
                    self._note(state, program, recording if is_whole else None)
                    return program
        program = trace(None)
        if calls is not None:
            calls.refused |= varying
        self._note(state, program, None)
        return program

    def varies(
        self, args: Sequence[Any], named: dict[str, Any], chosen: Sequence[int] = ()
    ) -> bool:
        """Whether integers of a call may be recorded, as they are others than those before."""
        with suppress(UnknownFormError):
            form, seen = Form(args, named, chosen), self._seen
            calls = None if seen is None else seen[1].get((form.key, _chosen_device()))
            return calls is not None and bool(calls.vary(form))
        return False

    def _state(
        self, args: Sequence[Any], named: dict[str, Any], chosen: Sequence[int]
    ) -> _State[Recalled] | None:
        """The state of the function and the form of a call, before its trace."""
        if self._changes >= MOST_CHANGES:
            return None
        try:
            form, seen = Form(args, named, chosen), self._seen
            classes = self._classes | form.classes
            state = Fingerprint(self._f, arrays=True, lists=True, classes=classes)
            _ = form.constants  # as they are now: the function may write to them
        except UnknownFormError:
            return None
        except UnknownStateError:
            self._changes = MOST_CHANGES
            return None
        of_form = None if seen is None else seen[1].get((form.key, _chosen_device()))
        holds = of_form is not None and seen is not None and seen[0].holds()
        return _State(state, form, of_form if holds else None)

    def _note(
        self, before: _State[Recalled] | None, program: Recalled, recording: Recording | None
    ) -> None:
        """Keep the program of a trace that began in this state."""
        if before is None or not before.fingerprint.holds():
            return
        seen, key = self._seen, (before.form.key, _chosen_device())
        holds = seen is not None and seen[0].holds()
        if seen is None or not holds or before.form.classes.keys() - self._classes.keys():
            self._changes += seen is not None and not holds
            self._classes |= before.form.classes
            seen = self._seen = before.fingerprint, {}
        if len(seen[1]) >= MOST_FORMS:
            seen[1].clear()
        calls = seen[1].setdefault(key, _Calls(before.form))
        if not program.others:
            calls.note(before.form, program, recording)


def _chosen_device() -> str | None:
    """The device that stands for one that no argument names."""
    return os.environ.get("SYMGRAD_DEVICE")
