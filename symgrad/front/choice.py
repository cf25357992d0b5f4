"""Whether a function of arrays is traced by whole arrays or by their elements: the one rule.

Elements become a kernel for any number of points, whose text grows with them. Whole arrays become
programs that do not grow, but of which each operation takes a hundred times as long to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Final, NamedTuple, TypeVar

from symgrad.errors import SymgradError, TraceError, UnsupportedError
from symgrad.expr.graph.node import ElementsNeededError
from symgrad.expr.graph.written_out import AlgorithmError, ManyElementsError, whole_instead

LEAST_WHOLE: Final = 256
"""Elements of the largest argument of one call from which on it is large."""

LARGE_POINT: Final = 2**15
"""Variables of a kernel beyond which its points are large: to trace so many takes long."""

NOT_WHOLE: Final = (ElementsNeededError, UnsupportedError)
"""Errors of functions that have to be traced by their elements."""

MISFITS: Final = (
    SymgradError, AttributeError, TypeError, ValueError, IndexError, ZeroDivisionError,
)  # fmt: skip
"""Errors of a trace by elements where one of whole arrays may be without them."""

Made = TypeVar("Made")


class How(NamedTuple):
    """How a function is traced by whole arrays."""

    small: bool = False
    """Whether arrays are small: most operations have to be on more than a few elements."""
    by_elements: bool = True
    """Whether a function that writes single elements in loops is left to a trace by these."""


def whole_or_elements(
    whole: Callable[[How], Made],
    elements: Callable[[], Made],
    large: bool,
    one_call: bool = False,
    varies: bool = False,
) -> Made:
    """The kernel or program of a function, by whole arrays or by elements.

    1. Of ``large`` arguments by whole arrays, unless the function needs elements. So is what `jit`
       is given, large or not: its results may be integers and truth values.
    2. Of others by elements, as long as no operation has many (`whole_instead`); of ``one_call``
       as long as all together are few, and no algorithm is better by LAPACK.
    3. Then by whole arrays, if the function can be, and else by its elements however many.
    4. Of one call that fails by elements, as that of a factor of too large a matrix does, by whole
       arrays, if these do not fail.
    5. Of integers that a call ``varies`` before its elements, whose constants they are, by whole
       arrays, if these do not fail.
    """

    def unless_many() -> Made:
        try:
            with nullcontext() if large else whole_instead(one_call):
                return elements()
        except ManyElementsError as error:
            with suppress(*NOT_WHOLE, TraceError):
                return whole(How(small=one_call and not isinstance(error, AlgorithmError)))
            return elements()

    reason: Exception | None = None
    if varies and not large:
        with suppress(*NOT_WHOLE, *MISFITS):
            return whole(How(small=True))
    if large:
        try:
            return whole(How())
        except NOT_WHOLE as error:
            reason = error.with_traceback(None)
    try:
        return unless_many()
    except MISFITS as error:
        if one_call:
            with suppress(Exception):
                return whole(How(by_elements=False))
        raise error from reason
