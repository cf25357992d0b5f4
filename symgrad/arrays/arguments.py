"""Arguments of NumPy's functions of whole arrays: arrays, axes, and options that are refused."""

from __future__ import annotations

import inspect
from typing import Any, Final

import numpy as np

from symgrad.arrays.whole import WholeArray, flat, innermost
from symgrad.expr.graph.node import ElementsNeededError

NOT_GIVEN: Final = inspect.signature(np.sum).parameters["initial"].default
"""The default of NumPy's options that may be None."""


_NESTS: Final = WholeArray, list, tuple


def whole(value: Any, *others: Any) -> WholeArray:
    """A value as a whole array, of the tape of the first one that is among all."""
    if type(value) is WholeArray and not any(isinstance(o, _NESTS) for o in others):
        return value
    return innermost(list(flat([value, *others]))).lift(value)


def axis_of(axis: int, ndim: int) -> int:
    """The number of an axis, from the front.

    Raises:
        AxisError: if there is none.
    """
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return int(axis) % ndim


def axes_of(a: WholeArray, axis: Any) -> tuple[int, ...]:
    """The axes that a reduction is over, in order."""
    if axis is None:
        return tuple(range(a.ndim))
    if isinstance(axis, (int, np.integer)):
        return (axis_of(int(axis), a.ndim),)
    return tuple(sorted({axis_of(int(k), a.ndim) for k in axis}))


def refuse(**options: Any) -> None:
    """Leave a call with options that are not here to the trace by elements."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ElementsNeededError(f"the option {given[0]}= of a function of whole arrays")
