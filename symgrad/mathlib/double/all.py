"""Every definition in float64, each named as its operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from symgrad.mathlib import comparison, order
from symgrad.mathlib.double import (
    activation,
    cylinder,
    elliptic,
    error_function,
    exponential,
    faddeeva,
    gamma,
    hyperbolic,
    incomplete,
    incomplete_beta,
    inverse,
    logarithm,
    logistic,
    normal,
    plane,
    powers,
    quantile,
    quotient,
    trigonometric,
    waves,
)

FORMULAS: Final[tuple[Callable[..., Any], ...]] = (
    comparison.minimum, comparison.maximum, order.sign,
    quotient.modulus, quotient.far_modulus, quotient.remainder, quotient.fmod,
    exponential.exp, exponential.exp2, exponential.expm1, exponential.exp_neg_square,
    exponential.exp_square,
    logarithm.log, logarithm.log2, logarithm.log10, logarithm.log1p,
    trigonometric.sin, trigonometric.cos, trigonometric.tan,
    trigonometric.far_sin, trigonometric.far_cos, trigonometric.far_tan,
    inverse.asin, inverse.acos, inverse.atan, inverse.atan2,
    hyperbolic.sinh, hyperbolic.cosh, hyperbolic.tanh,
    hyperbolic.asinh, hyperbolic.acosh, hyperbolic.atanh,
    powers.pow, powers.cbrt, powers.rsqrt, powers.hypot, error_function.erf, error_function.erfc,
    normal.bell, normal.normal_cdf, normal.gelu, normal.gelu_slope,
    logistic.sigmoid, logistic.logistic, logistic.softplus, logistic.logaddexp,
    logistic.sigmoid_difference, logistic.logistic_difference,
    plane.real_reciprocal, plane.real_reciprocal_square, plane.direction,
    activation.silu, activation.silu_slope, activation.gelu_tanh, activation.gelu_tanh_slope,
    gamma.gammaln, gamma.digamma, gamma.trigamma, gamma.tetragamma, gamma.pentagamma,
    waves.sinc, waves.sinc_ratio, cylinder.j0, cylinder.j1, cylinder.j1_ratio,
    quantile.log_ndtr, quantile.mills_excess, quantile.erfinv, quantile.ndtri,
    elliptic.ellipkm1, elliptic.ellipe, elliptic.elliptic_b, elliptic.elliptic_d,
    faddeeva.faddeeva_real, faddeeva.faddeeva_imag, faddeeva.faddeeva_real_slope,
    faddeeva.faddeeva_imag_slope, faddeeva.faddeeva_real_bend, faddeeva.faddeeva_imag_bend,
    incomplete.gammainc, incomplete.gammaincc, incomplete.gamma_density,
    incomplete.gammainc_slope,
    incomplete_beta.betainc, incomplete_beta.betaincc, incomplete_beta.beta_density,
)  # fmt: skip
