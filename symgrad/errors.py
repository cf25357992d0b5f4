"""Every exception that symgrad raises: what was wrong, where in the user's file, and the remedy.

Its warnings are here too.
"""

from __future__ import annotations

import pickle


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


class PickleError(SymgradError, pickle.PicklingError):
    """A graph holds the user's own code, which a pickle cannot."""


class DeviceError(SymgradError, RuntimeError):
    """No such device, or the device cannot do what was asked of it."""


class DeviceLostError(DeviceError):
    """The device was reset or removed; kernels must be compiled again."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The device has not enough memory for the arrays of a call."""


class FrozenRandomWarning(UserWarning):
    """A traced function drew random numbers, which are constants of its kernel."""


class PrecisionWarning(UserWarning):
    """A column of data has different values that a kernel in float32 cannot tell apart."""
