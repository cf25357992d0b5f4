"""Casts between real numbers and integers of 32 bits."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from symgrad.expr import ops
from symgrad.expr.references import reference
from symgrad.expr.tracers.array import holds_expressions, map_elements
from symgrad.expr.tracers.counter import whole
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.expr.tracers.integers import SignedWord, Word

_Integer = TypeVar("_Integer", bound=Word)


def uint32(x: Any) -> Any:
    """The number as an unsigned integer of 32 bits, rounded towards 0.

    What lies beyond 0 and 2**32 - 1 becomes the nearer of them, and NaN 0; a signed integer keeps
    its bits. The operators of integers are NumPy's: see `Word`. An integer has no
    derivative: where it is made a real number again, by arithmetic with one or as the result of a
    kernel, that is taken for a constant.

    Args:
        x: An expression, an array of them, or numbers; counters of loops are taken as they are.

    Returns:
        An integer expression, an array of them, or NumPy's uint32.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(1, lambda v: sg.uint32(v[0]) % 8 ^ 1, device="cpu")
        >>> kernel.run([21.7])
        4.0
    """
    return _cast(x, Word)


def int32(x: Any) -> Any:
    """The number as a signed integer of 32 bits, rounded towards 0: as `uint32`, of either sign.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(1, lambda v: sg.int32(v[0]) // 4, device="cpu")
        >>> kernel.run([-7.9])
        -2.0
    """
    return _cast(x, SignedWord)


def _cast(x: Any, kind: type[_Integer]) -> Any:
    if holds_expressions(x):
        return map_elements(lambda e: _of(e, kind), x)
    values = np.asarray(x)
    if values.dtype.kind in "iub":
        return values.astype(kind.name)[()]
    integers = (reference.int32 if kind is SignedWord else reference.uint32)(values)
    return integers.view(kind.name)[()]


def _of(x: Any, kind: type[_Integer]) -> Any:
    """An element of an array as an integer; a number among expressions stays one of Python's."""
    if isinstance(x, Word):
        return kind(x.graph, x.id)
    if isinstance(x, Condition):
        return kind(x.graph, ops.word_where(x, 1, 0).id)
    if not isinstance(x, Expr):
        return int(_cast(x, kind))
    counted = whole(x.graph, x)
    if counted is not None:
        return kind(x.graph, counted)
    return kind(x.graph, (ops.int32 if kind is SignedWord else ops.uint32)(x).id)
