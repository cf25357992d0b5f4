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
    digits,
    error_function,
    exponential,
    logistic,
    trigonometric,
)

FIT: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "fit.py"))
MODULES: dict[str, ModuleType] = {
    **dict.fromkeys(["EXP", "EXPM1", "EXP2", "LOG", "LOG2", "INVERSE_CBRT"], exponential),
    **dict.fromkeys(["SIN", "COS", "SINH", "ASIN", "ATAN", "SINC", "SINC_RATIO"], trigonometric),
    **dict.fromkeys(
        ["ERF", "ERFC", "NORMAL", "NORMAL_TAIL", "GELU_SLOPE", "GELU_ROOT", "DENSITY",
         "HAZARD", "INVERSE_TAIL"],
        error_function,
    ),
    **dict.fromkeys(
        ["SILU_SLOPE", "GELU_TANH_SLOPE", "SILU_ROOT", "GELU_TANH_ROOT", "LINEAR", "CUBIC"],
        logistic,
    ),
    **dict.fromkeys(["LOG_GAMMA_1", "LOG_GAMMA_2", "STIRLING", "DIGAMMA", "HARMONIC"], digits),
    **{name: digits for name in vars(digits) if name.startswith(("J0_", "J1_"))},
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
