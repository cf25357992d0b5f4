"""Every definition on pairs, each named as its operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from symgrad.mathlib.double import (
    cylinder,
    error_function,
    faddeeva,
    incomplete,
    incomplete_beta,
    logistic,
    trigonometric,
)
from symgrad.mathlib.double import exponential as powers
from symgrad.mathlib.double import quotient as remainders
from symgrad.mathlib.pair import arithmetic, circular, exponential, plane, quotient, special
from symgrad.mathlib.pair import error_function as errors

FORMULAS: Final[tuple[Callable[..., Any], ...]] = (
    *arithmetic.FORMULAS, *exponential.FORMULAS, *circular.FORMULAS, *plane.FORMULAS,
    *errors.FORMULAS, *quotient.FORMULAS,
)  # fmt: skip
"""The definitions of their own."""

SHARED: Final[tuple[Callable[..., Any], ...]] = (
    remainders.fmod, remainders.remainder, powers.pow,
    logistic.gelu_tanh, logistic.gelu_tanh_slope,
    *special.FORMULAS,
    trigonometric.sinc, trigonometric.sinc_ratio, cylinder.j0, cylinder.j1, cylinder.j1_ratio,
    error_function.log_ndtr, error_function.mills_excess, error_function.erfinv,
    error_function.ndtri,
    faddeeva.faddeeva_real, faddeeva.faddeeva_imag, faddeeva.faddeeva_real_slope,
    faddeeva.faddeeva_imag_slope, faddeeva.faddeeva_real_bend, faddeeva.faddeeva_imag_bend,
    incomplete.gammainc, incomplete.gammaincc, incomplete.gamma_density,
    incomplete.gammainc_slope, incomplete.gammainc_bend,
    incomplete_beta.betainc, incomplete_beta.betaincc, incomplete_beta.beta_density,
    incomplete_beta.betainc_slope_a, incomplete_beta.betainc_slope_b,
)  # fmt: skip
"""The definitions of float64 that hold on pairs, taken operation by operation."""
