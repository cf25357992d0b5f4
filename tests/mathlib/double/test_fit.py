"""The coefficients of the float64 functions are those that tools/fit.py derives."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from symgrad.expr.ops import bessel as bessel_rows
from symgrad.expr.ops import error_function as quantile_rows
from symgrad.mathlib import bessel
from symgrad.mathlib.double import (
    activation,
    cylinder,
    error_function,
    exponential,
    gamma,
    hyperbolic,
    inverse,
    logarithm,
    normal,
    powers,
    quantile,
    trigonometric,
    waves,
)

FIT: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "fit.py"))
MODULES: dict[str, ModuleType] = {
    "EXP": exponential, "EXPM1": exponential, "EXP2": exponential, "LOG": logarithm,
    "LOG2": powers, "SIN": trigonometric, "COS": trigonometric, "SINH": hyperbolic,
    "ASIN": inverse, "ATAN": inverse, "INVERSE_CBRT": powers, "ERF": error_function,
    "ERFC": error_function, "NORMAL": normal, "NORMAL_TAIL": normal, "GELU_SLOPE": normal,
    "SILU_SLOPE": activation, "GELU_TANH_SLOPE": activation, "SILU_ROOT": activation,
    "GELU_TANH_ROOT": activation, "LINEAR": activation, "CUBIC": activation,
    "GELU_ROOT": normal, "DENSITY": normal, "LOG_GAMMA_1": gamma, "LOG_GAMMA_2": gamma,
    "STIRLING": gamma, "DIGAMMA": gamma, "HARMONIC": gamma, "SINC": waves, "SINC_RATIO": waves,
    "HAZARD": quantile, "INVERSE_TAIL": quantile,
    **{name: cylinder for name in vars(cylinder) if name.startswith(("J0_", "J1_"))},
}  # fmt: skip

SMOOTH = (bessel, bessel_rows, quantile_rows)
"""Modules with polynomials whose derivatives are wanted too."""

STARTS = ("INVERSE_CBRT", "INVERSE_TAIL")
"""What an iteration begins with."""

ROUGH = ("LOG_GAMMA_1", "LOG_GAMMA_2", "DIGAMMA", "SINC_RATIO", "HAZARD",
         "J0_FIRST", "J0_SECOND", "J1_FIRST", "J1_SECOND")  # fmt: skip
"""Those that are factors of a function, whose first coefficient is not exact."""


@pytest.mark.parametrize("name", FIT["DOUBLE"])
def test_coefficients_are_derived(name: str) -> None:
    coefficients, bound = FIT["fit_double"](FIT["DOUBLE"][name])
    assert coefficients == pytest.approx(getattr(MODULES[name], name), rel=1e-9)
    assert bound < (1.4 if name in ROUGH else 0.2) or name in STARTS


@pytest.mark.parametrize("name", FIT["SMOOTH"])
def test_interpolations_are_derived(name: str) -> None:
    (written,) = [getattr(m, name) for m in SMOOTH if hasattr(m, name)]
    assert FIT["interpolate"](*FIT["SMOOTH"][name]) == pytest.approx(written, rel=1e-9)


@pytest.mark.parametrize("name", FIT["PIECES"])
def test_constants_in_pieces_are_derived(name: str) -> None:
    assert FIT["PIECES"][name] == getattr(MODULES[name], name)
