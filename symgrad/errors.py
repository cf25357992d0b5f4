"""Every exception that symgrad raises: what was wrong, where in the user's file, and the remedy.

Its warnings are here too.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from types import FrameType
from typing import Final


class SymgradError(Exception):
    """Base of all errors raised by symgrad; each is also the built-in error a user would expect."""


class TraceError(SymgradError, TypeError):
    """An expression was used where a number is needed, or a traced function is not traceable."""


class ForeignExpressionError(SymgradError, ValueError):
    """An expression of one trace was used in another."""


class InputError(SymgradError, ValueError):
    """A value has the wrong shape, length or range."""


class InputTypeError(SymgradError, TypeError):
    """A value has a type that symgrad cannot turn into real numbers."""


class NameUnknownError(SymgradError, AttributeError):
    """A row has no such column, or there are no parameters of that name."""


class ProgramError(SymgradError, ValueError):
    """A program has a fault, such as a race or a barrier that some invocations do not reach."""


class BufferUnknownError(SymgradError, LookupError):
    """A program has no such array, or it is not to be used so."""


class DifferentiationError(SymgradError, ValueError):
    """A derivative was asked for that there is none of."""


class UnsupportedError(SymgradError, NotImplementedError):
    """What was asked for makes sense, but symgrad cannot do it yet."""


class PickleError(SymgradError, pickle.PicklingError):
    """A graph holds the user's own code, which a pickle cannot."""


class DeviceError(SymgradError, RuntimeError):
    """No such device, or the device cannot do what was asked of it."""


class DeviceLostError(DeviceError):
    """The device was reset or removed; kernels must be compiled again."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The device has not enough memory for the arrays of a call."""


class ExhaustedError(SymgradError, RuntimeError):
    """A loop needed more turns than it may take, and that was asked to be an error."""


class ExhaustedWarning(UserWarning):
    """A loop needed more turns than it may take: the results of that problem are NaN."""


class FrozenRandomWarning(UserWarning):
    """A traced function drew random numbers, which are constants of what was made of it."""


class PrecisionWarning(UserWarning):
    """A column of data has different values that a kernel in float32 cannot tell apart."""


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
