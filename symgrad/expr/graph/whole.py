"""Arrays that are traced as a whole: what the floors below know of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, Final

from symgrad.errors import TraceError

OPEN_TAPE: Final[ContextVar[Any]] = ContextVar("OPEN_TAPE", default=None)
"""The tape of the innermost function that is being traced as a whole, if there is one."""


class ElementsNeededError(TraceError):
    """A function asks for the elements of an array one by one, and so has to be traced by them."""


class NoSuchNameError(ElementsNeededError, AttributeError):
    """A whole array lacks an attribute that arrays of elements may have."""


class Whole:
    """An array of any size, of which a trace knows the shape and how an element is computed.

    `symgrad.arrays` has what it can do; functions of symgrad ask it before they look at elements.
    """

    functions: ClassVar[dict[Any, Callable[..., Any]]] = {}
    """Functions of NumPy and symgrad on whole arrays, by themselves."""

    def mapped(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """A function of elements, of these arguments broadcast against each other."""
        raise NotImplementedError


def whole_among(arguments: Sequence[Any]) -> Whole | None:
    """The first whole array among some arguments."""
    for a in arguments:
        if isinstance(a, Whole):
            return a
    return None
