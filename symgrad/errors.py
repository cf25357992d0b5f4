"""Every exception that symgrad raises: what was wrong, where in the user's file, and the remedy.

Its warnings are here too, and those of arguments that have been renamed.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import Any, Final, ParamSpec, TypeVar, cast


class SymgradError(Exception):
    """Base of all errors raised by symgrad; each is also the built-in error a user would expect.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu")
        >>> try:
        ...     kernel.run([1.0, 2.0, 3.0])
        ... except sg.SymgradError as error:
        ...     print(error)
        x has shape (3,): the kernel takes (2,) or (..., 2)
    """


class TraceError(SymgradError, TypeError):
    """An expression was used where a number is needed, or a traced function is not traceable.

    Example:
        >>> import symgrad as sg
        >>> sg.fused_forward(1, lambda v: v[0] if v[0] > 0 else 0.0)
        Traceback (most recent call last):
            ...
        symgrad.errors.TraceError: an expression is neither true nor false while f is traced: ...
    """


class ForeignExpressionError(SymgradError, ValueError):
    """An expression of one trace was used in another.

    Example:
        >>> import symgrad as sg
        >>> sg.fused_forward(1, lambda v: v[0] + sg.var("y"))
        Traceback (most recent call last):
            ...
        symgrad.errors.ForeignExpressionError: the variable y belongs to another trace: ...
    """


class InputError(SymgradError, ValueError):
    """A value has the wrong shape, length or range.

    Example:
        >>> import symgrad as sg
        >>> sg.fused_forward(2, lambda v: v[0] * v[1], device="cpu").run([1.0, 2.0, 3.0])
        Traceback (most recent call last):
            ...
        symgrad.errors.InputError: x has shape (3,): the kernel takes (2,) or (..., 2)
    """


class InputTypeError(SymgradError, TypeError):
    """A value has a type that symgrad cannot turn into real numbers.

    Example:
        >>> import symgrad as sg
        >>> sg.fused_forward(1, lambda v: v[0], device="cpu").run(["1.0"])
        Traceback (most recent call last):
            ...
        symgrad.errors.InputTypeError: x holds strings: a kernel takes real numbers
    """


class NameUnknownError(SymgradError, AttributeError):
    """A row has no such column, or there are no parameters of that name.

    Example:
        >>> import symgrad as sg
        >>> sg.fused_forward_backward(1, lambda p, r: (p[0] - r.z)**2, columns=["y"])
        Traceback (most recent call last):
            ...
        symgrad.errors.NameUnknownError: a row has no column 'z': its columns are y
    """


class ProgramError(SymgradError, ValueError):
    """A program has a fault, such as a race or a barrier that some invocations do not reach.

    Example:
        >>> import symgrad as sg
        >>> def late(p):
        ...     with p.dispatch(4) as i:
        ...         p.store(p.output("y", 4), i, 1.0)
        >>> sg.program(late)
        Traceback (most recent call last):
            ...
        symgrad.errors.ProgramError: declare <output y: f32[4]> before any dispatch...
    """


class BufferUnknownError(SymgradError, LookupError):
    r"""A program has no such array, or it is not to be used so.

    Example:
        >>> import symgrad as sg
        >>> sg.program("program ones\n  dispatch 4 in groups of 64:\n    y[cell] = 1.0\n")
        Traceback (most recent call last):
            ...
        symgrad.errors.BufferUnknownError: line 3, 'y[cell] = 1.0': there is no array y here: ...
    """


class DifferentiationError(SymgradError, ValueError):
    """A derivative was asked for that there is none of.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.grad(sg.int32(x), x)
        Traceback (most recent call last):
            ...
        symgrad.errors.DifferentiationError: what is differentiated is an integer, int32(x), ...
    """


class UnsupportedError(SymgradError, NotImplementedError):
    """The request makes sense, but symgrad cannot do it yet.

    Example:
        >>> import symgrad as sg
        >>> def power(v):
        ...     return sg.fori_loop(0, 3, lambda k, y: y * v[0], 1.0)
        >>> sg.fused_forward_backward(1, power, device="cpu").audit([[2.0]])
        Traceback (most recent call last):
            ...
        symgrad.errors.UnsupportedError: the audit of power cannot contain a loop, ...
    """


class PickleError(SymgradError, pickle.PicklingError):
    """A graph holds the user's own code, which a pickle cannot.

    Example:
        >>> import pickle, symgrad as sg
        >>> square = sg.custom_vjp(lambda x: x * x, lambda g, y, x: (2 * g * x,))
        >>> pickle.dumps(square(sg.var("x")))
        Traceback (most recent call last):
            ...
        symgrad.errors.PickleError: custom_<lambda> has a derivative written in Python, ...
    """


class DeviceError(SymgradError, RuntimeError):
    """No such device, or the device cannot do what was asked of it.

    Example:
        >>> import symgrad as sg
        >>> sg.fused_forward(1, lambda v: v[0], device=99)
        Traceback (most recent call last):
            ...
        symgrad.errors.DeviceError: there is no device 99: sg.devices() lists ...
    """


class DeviceLostError(DeviceError):
    """The device was reset or removed; kernels must be compiled again.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(1, lambda v: v[0]**2, device="cpu")
        >>> try:
        ...     value = kernel.run([3.0])
        ... except sg.DeviceLostError:
        ...     value = kernel.to("cpu").run([3.0])
        >>> value
        9.0
    """


class DeviceMemoryError(DeviceError, MemoryError):
    """The device has not enough memory for the arrays of a call.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(1, lambda v: v[0]**2, device="cpu")
        >>> try:
        ...     value = kernel.run([3.0])
        ... except sg.DeviceMemoryError:
        ...     sg.free_memory("gpu")
        >>> value
        9.0
    """


class DeviceWarning(UserWarning):
    """One of several devices was lost or hangs, or is slow: the others do its share of the work.

    Example:
        >>> import warnings, symgrad as sg
        >>> square = sg.fused_forward(1, lambda v: v[0]**2, device=sg.devices())
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", sg.DeviceWarning)  # rather end than go on with less
        ...     square.run([[1.0], [2.0]]).tolist()
        [1.0, 4.0]
    """


class ExhaustedError(SymgradError, RuntimeError):
    """A loop needed more iterations than it may take, and that was asked to be an error.

    Example:
        >>> import symgrad as sg
        >>> def halvings(v):
        ...     half = lambda state: (state[0] / 2, state[1] + 1)
        ...     return sg.while_loop(lambda state: state[0] > 1, half, (v[0], 0.0), max_steps=5)[1]
        >>> kernel = sg.fused_forward(1, halvings, device="cpu")
        >>> kernel.run([20.0], exhausted="raise")
        5.0
        >>> kernel.run([2000.0], exhausted="raise")
        Traceback (most recent call last):
            ...
        symgrad.errors.ExhaustedError: the problem needed more iterations than a loop may take: ...
    """


class ExhaustedWarning(UserWarning):
    """A loop needed more iterations than it may take: the results of that problem are NaN.

    Example:
        >>> import warnings, symgrad as sg
        >>> def halved(v):
        ...     return sg.while_loop(lambda x: x > 1, lambda x: x / 2, v[0], max_steps=5)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     sg.fused_forward(1, halved, device="cpu").run([2000.0], exhausted="warn")
        nan
        >>> [w.category.__name__ for w in caught]
        ['ExhaustedWarning']
    """


class FrozenRandomWarning(UserWarning):
    """A traced function drew random numbers, which are constants of what was made of it.

    Example:
        >>> import warnings, numpy as np, symgrad as sg
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     kernel = sg.fused_forward(1, lambda v: v[0] + np.random.normal(), device="cpu")
        >>> [w.category.__name__ for w in caught], kernel.run([1.0]) == kernel.run([1.0])
        (['FrozenRandomWarning'], True)
    """


class NamesakeWarning(UserWarning):
    """A derivative by an expression that several lines of a traced function make alike.

    Equal expressions are one, so that all of them count as the variable, where the derivative of a
    function, `symgrad.grad` of it, is by its own arguments alone.

    Example:
        >>> import warnings
        >>> import symgrad as sg
        >>> def f(v):
        ...     p = 2 * v[0]
        ...     q = 2 * v[0]
        ...     return sg.grad(p * q, q)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = sg.fused_forward(1, f, device="cpu")
        >>> caught[0].category is sg.NamesakeWarning
        True
    """


class PrecisionWarning(UserWarning):
    """A float32 kernel rounds data coarsely beside their spread: dates counted from long ago.

    A column's rounding is compared with its standard deviation: more than 2**-15 of that is much.

    Example:
        >>> import warnings, symgrad as sg
        >>> misfit = sg.fused_forward_backward(
        ...     1, lambda p, row: (p[0] - row.time)**2, columns=["time"], device="cpu")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     _ = misfit.run([1.0], {"time": [1_700_000_000, 1_700_000_001]})
        >>> [w.category.__name__ for w in caught]
        ['PrecisionWarning']
    """


class SizeWarning(UserWarning):
    """One line writes out 20,000 operations or more, each for itself: that takes long to compile.

    Its message names the line, and what to write instead. Nothing is said of Python's loops that
    become loops of the kernel, nor, with ``roll=False``, of those that are written out by request.

    Example:
        >>> import warnings, numpy as np, symgrad as sg
        >>> def product(v):
        ...     a = np.array([*v]).reshape(160, 160)  # element by element
        ...     return np.sum(a @ v[:160])
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     kernel = sg.fused_forward(160 * 160, product, device="cpu")
        >>> [w.category.__name__ for w in caught]
        ['SizeWarning']
    """


def counted(count: int, noun: str) -> str:
    """A number of things in words: "1 array", "2 arrays"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


_WITHIN: Final = frozenset({"symgrad", "numpy", "scipy", "functools", "contextlib"})
"""The packages between a line of the user's program and what is found out about it."""


def is_users(module: str | None) -> bool:
    """Whether a module of this name is the user's, rather than this library or one it works in."""
    return (module or "").partition(".")[0] not in _WITHIN


def warn(message: str, category: type[Warning]) -> None:
    """Warn, naming the line of the user's program that is running."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    level = 2
    while frame is not None and not is_users(frame.f_globals.get("__name__")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


# Renamed things: old names go on working for two minor releases, with a warning.

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

KEPT_FOR: Final = 2
"""Minor releases, from the one that first warns, in which a deprecated name still works."""


@dataclass(frozen=True)
class Deprecation:
    """An argument of a public function that has a new name since a release (major, minor)."""

    function: str
    old: str
    new: str
    since: tuple[int, int]

    @property
    def removed_in(self) -> tuple[int, int]:
        """The first release in which the old name no longer works."""
        major, minor = self.since
        return major, minor + KEPT_FOR

    @property
    def message(self) -> str:
        """The text of the warning."""
        removal = ".".join(map(str, self.removed_in))
        return (
            f"{self.function}({self.old}=...) is deprecated and will be removed in symgrad "
            f"{removal}: write {self.new}= instead"
        )


DEPRECATIONS: Final[list[Deprecation]] = []
"""Every deprecation that there is, in the order in which modules are loaded."""


def renamed_argument(
    function: str, old: str, new: str, since: tuple[int, int]
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """A decorator for a function whose argument ``old`` has become ``new``."""
    deprecation = Deprecation(function, old, new, since)
    DEPRECATIONS.append(deprecation)

    def decorate(f: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(f)
        def call(*args: Any, **named: Any) -> Any:
            if old in named:
                if new in named:
                    raise InputTypeError(f"{function} got both {new}= and its old name {old}=")
                warn(deprecation.message, DeprecationWarning)
                named[new] = named.pop(old)
            return f(*args, **named)

        return cast("Callable[Parameters, Result]", call)

    return decorate
