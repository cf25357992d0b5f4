"""The coefficients in the library are those that tools/fit.py derives."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mpmath import mp, mpf

from symgrad.mathlib import bessel, error_function, exponential, gamma, incomplete, trigonometric
from symgrad.mathlib.double.digits import INCOMPLETE

FIT: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "fit.py"))
MODULES: tuple[ModuleType, ...] = (
    exponential, trigonometric, error_function, gamma, bessel,
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


DIGITS = [(incomplete.SINGLE, 0.25 * 2.0**-24), (INCOMPLETE, 0.4 * 2.0**-53)]


@pytest.mark.parametrize(("digits", "limit"), DIGITS)
def test_the_gamma_function_less_1_is_that_of_mpmath(digits: Any, limit: float) -> None:
    with mp.workdps(40):
        for k in range(1, 200):
            f = mpf(k) / 200
            found = mp.polyval([mpf(c) for c in digits.rest[::-1]], f - mpf(1) / 2)
            assert abs(found - (mp.gamma(1 + f) - 1) / f) < limit


@pytest.mark.parametrize(("digits", "limit"), DIGITS)
def test_nodes_and_weights_are_those_of_gauss_and_legendre(digits: Any, limit: float) -> None:
    nodes, weights = digits.nodes[::2], digits.nodes[1::2]
    for k in range(2 * len(nodes)):
        total = sum(2 * mpf(w) * mpf(x) ** (2 * k) for x, w in zip(nodes, weights, strict=True))
        assert abs(total - mpf(2) / (2 * k + 1)) < 2.0**-51
