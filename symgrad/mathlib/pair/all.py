"""Every definition on pairs, each named as its operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from symgrad.mathlib.double import all as double_all
from symgrad.mathlib.pair import (
    arithmetic,
    circular,
    error_function,
    exponential,
    plane,
    quotient,
    special,
)

FORMULAS: Final[tuple[Callable[..., Any], ...]] = (
    *arithmetic.FORMULAS, *exponential.FORMULAS, *circular.FORMULAS, *plane.FORMULAS,
    *error_function.FORMULAS, *quotient.FORMULAS,
)  # fmt: skip
"""The definitions that are written on pairs."""

SHARED: Final[tuple[Callable[..., Any], ...]] = (*double_all.SHARED, *special.FORMULAS)
"""The definitions on floats with the digits of float64, taken on pairs operation by operation."""
