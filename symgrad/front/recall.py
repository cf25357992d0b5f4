"""Programs of calls that came before, found without a trace where nothing has changed since.

A trace shows all that a function computes, and takes longer than small programs run. A plain
function computes the same as long as its `Fingerprint` holds, for arguments of the same form: the
same nests, shapes, dtypes and constants.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from symgrad.expr.tracing.fingerprint import Fingerprint, UnknownStateError
from symgrad.front.whole import TracedCall
from symgrad.kernel.resident import ResidentArray

MOST_FORMS: Final = 64
"""The most forms of arguments whose programs a function keeps."""

MOST_CHANGES: Final = 16
"""Changes of a function's state after which none of its programs is kept any more."""

CONSTANT_BYTES: Final = 2**14
"""Bytes of an array of integers that is a constant, at most: it is compared at every call."""


class UnknownFormError(Exception):
    """Arguments that only a trace understands."""


class Form:
    """The part of a call's arguments that a trace depends on: ``key``; numbers are in ``arrays``.

    The variables, at the places ``chosen``, come first, in the order of `Arguments`.

    Raises:
        UnknownFormError: of objects that may be anything.
    """

    def __init__(self, args: Sequence[Any], named: dict[str, Any], chosen: Sequence[int]) -> None:
        self.arrays: list[Any] = []
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
                raise UnknownFormError
            self.arrays.append(value)
            self._parts.append((kind, value.shape, value.dtype, value.gpu))
        elif kind is dict:
            self._add_nest(kind, value.values(), tuple(value), is_variable)
        elif kind in (tuple, list):
            if kind is list and all(isinstance(v, (list, int, float, np.generic)) for v in value):
                raise UnknownFormError  # it stands for an array
            self._add_nest(kind, value, len(value), is_variable)
        elif kind in (int, bool, str) and not is_variable:
            self._parts.append((kind, value))
        else:
            raise UnknownFormError

    def _add_array(self, array: np.ndarray, is_variable: bool) -> None:
        if array.dtype.kind == "f":
            self.arrays.append(array)
            self._parts.append((array.shape, array.dtype))
        elif not is_variable and array.dtype.kind in "iub" and array.nbytes <= CONSTANT_BYTES:
            self._parts.append((array.shape, array.dtype, array.tobytes()))
        else:
            raise UnknownFormError

    def _add_nest(self, kind: type, values: Any, keys: Hashable, is_variable: bool) -> None:
        self._parts.append((kind, keys))
        for value in values:
            self._add(value, is_variable)


class FoundCall(NamedTuple):
    """A program that came before, and the arguments of the call that it serves now."""

    program: TracedCall
    form: Form

    def run(self) -> Any:
        """The result of the call."""
        return self.program.run(self.form.arrays)


class Recall:
    """The programs of a function's calls. Any number of threads may ask.

    A call notes its program if the function has a fingerprint that holds until the end of the
    trace; all are forgotten once it holds no more. Of a function without one, or whose state
    changes again and again, nothing is kept.
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        self._f = f
        self._seen: tuple[Fingerprint, dict[Hashable, TracedCall]] | None = None
        self._changes = 0

    def find(
        self, args: Sequence[Any], named: dict[str, Any], chosen: Sequence[int] = ()
    ) -> FoundCall | None:
        """A call like this one that came before, if there was one."""
        seen = self._seen
        if seen is None:
            return None
        try:
            form = Form(args, named, chosen)
        except UnknownFormError:
            return None
        program = seen[1].get((form.key, _chosen_device()))
        return None if program is None or not seen[0].holds() else FoundCall(program, form)

    def state(self) -> Fingerprint | None:
        """The state of the function, before a trace."""
        if self._changes >= MOST_CHANGES:
            return None
        try:
            return Fingerprint(self._f, arrays=True)
        except UnknownStateError:
            self._changes = MOST_CHANGES
            return None

    def note(
        self, before: Fingerprint | None, args: Sequence[Any], named: dict[str, Any],
        chosen: Sequence[int], program: TracedCall,
    ) -> None:  # fmt: skip
        """Keep the program of a trace that began in this state."""
        if before is None or program.others or not before.holds():
            return
        try:
            form = Form(args, named, chosen)
        except UnknownFormError:
            return
        seen = self._seen
        if seen is None or not seen[0].holds():
            self._changes += seen is not None
            seen = self._seen = before, {}
        if len(seen[1]) >= MOST_FORMS:
            seen[1].clear()
        seen[1][form.key, _chosen_device()] = program


def _chosen_device() -> str | None:
    """The device that stands for one that no argument names."""
    return os.environ.get("SYMGRAD_DEVICE")
