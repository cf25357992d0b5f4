"""Every definition in float64, each named as its operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from symgrad.mathlib import comparison, order
from symgrad.mathlib.double import (
    cylinder,
    elliptic,
    error_function,
    exponential,
    gamma,
    incomplete,
    incomplete_beta,
    logistic,
    quotient,
    trigonometric,
)

SHARED: Final[tuple[Callable[..., Any], ...]] = (
    quotient.fmod, quotient.remainder, exponential.pow,
    logistic.gelu_tanh, logistic.gelu_tanh_slope,
    trigonometric.sinc, trigonometric.sinc_ratio, cylinder.j0, cylinder.j1, cylinder.j1_ratio,
    error_function.log_ndtr, error_function.mills_excess, error_function.erfinv,
    error_function.ndtri,
    error_function.faddeeva_real, error_function.faddeeva_imag, error_function.faddeeva_real_slope,
    error_function.faddeeva_imag_slope, error_function.faddeeva_real_bend,
    error_function.faddeeva_imag_bend,
    incomplete.gammainc, incomplete.gammaincc, incomplete.gamma_density,
    incomplete.gammainc_slope, incomplete.gammainc_bend,
    incomplete_beta.betainc, incomplete_beta.betaincc, incomplete_beta.beta_density,
    incomplete_beta.betainc_slope_a, incomplete_beta.betainc_slope_b,
)  # fmt: skip
"""The definitions that hold on pairs of float32 as well, taken operation by operation."""

FORMULAS: Final[tuple[Callable[..., Any], ...]] = (
    comparison.minimum, comparison.maximum, order.sign,
    quotient.modulus, quotient.far_modulus,
    exponential.exp, exponential.exp2, exponential.expm1, exponential.exp_neg_square,
    exponential.exp_square,
    exponential.log, exponential.log2, exponential.log10, exponential.log1p,
    trigonometric.sin, trigonometric.cos, trigonometric.tan,
    trigonometric.far_sin, trigonometric.far_cos, trigonometric.far_tan,
    trigonometric.asin, trigonometric.acos, trigonometric.atan, trigonometric.atan2,
    trigonometric.sinh, trigonometric.cosh, trigonometric.tanh,
    trigonometric.asinh, trigonometric.acosh, trigonometric.atanh,
    exponential.cbrt, exponential.rsqrt, exponential.hypot, error_function.erf,
    error_function.erfc,
    error_function.bell, error_function.normal_cdf, error_function.gelu, error_function.gelu_slope,
    logistic.sigmoid, logistic.logistic, logistic.softplus, logistic.logaddexp,
    logistic.sigmoid_difference, logistic.logistic_difference,
    trigonometric.real_reciprocal, trigonometric.real_reciprocal_square, trigonometric.direction,
    logistic.silu, logistic.silu_slope,
    gamma.gammaln, gamma.digamma, gamma.trigamma, gamma.tetragamma, gamma.pentagamma,
    elliptic.ellipkm1, elliptic.ellipe, elliptic.elliptic_b, elliptic.elliptic_d,
    *SHARED,
)  # fmt: skip
