"""The coefficients in the library are those that tools/fit.py derives."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from symgrad.mathlib import (
    circular,
    cylinder,
    error_function,
    exponential,
    gamma,
    hyperbolic,
    powers,
    quantile,
    trigonometric,
    waves,
)

FIT: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "fit.py"))
MODULES: tuple[ModuleType, ...] = (
    exponential, hyperbolic, circular, trigonometric, powers, error_function, gamma, waves,
    quantile, cylinder,
)  # fmt: skip

ROUGH = ("DIGAMMA", "LOG_GAMMA_2", "SINC_RATIO", "HAZARD", "INVERSE_TAIL",
         "J0_FIRST", "J0_SECOND", "J1_FIRST", "J1_SECOND")  # fmt: skip
"""Those that are factors of a function, whose first coefficient is not exact."""


@pytest.mark.parametrize("name", FIT["TARGETS"])
def test_coefficients_are_derived(name: str) -> None:
    (written,) = [getattr(m, name) for m in MODULES if hasattr(m, name)]
    coefficients, bound = FIT["fit"](FIT["TARGETS"][name])
    assert coefficients == pytest.approx(written, rel=1e-3)
    assert bound < (1.6 if name in ROUGH else 0.65)
