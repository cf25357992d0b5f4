"""Every definition on pairs, each named as its operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from symgrad.mathlib.pair import arithmetic

FORMULAS: Final[tuple[Callable[..., Any], ...]] = (*arithmetic.FORMULAS,)
