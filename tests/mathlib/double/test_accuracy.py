"""The float64 functions against mpmath at 40 digits: every one within its bound."""

from __future__ import annotations

import numpy as np
import pytest

from ..cases import BETA
from .cases import (
    BOUNDS,
    CONTEXT,
    NAMES,
    PLANE,
    SHAPES,
    SLOPES,
    SPECIAL,
    TRUE,
    errors,
    evaluate,
    grid,
    nearest_to_zero,
)

SLOW = (
    "erfinv", "ndtri", "gammainc_slope", "gammainc_bend", "gammainc", "gammaincc", "betainc",
    "betaincc", "betainc_slope_a", "betainc_slope_b",
)  # fmt: skip
"""Whose true values are roots or long sums."""


def test_every_function_has_a_bound() -> None:
    assert set(BOUNDS) == set(NAMES)
    assert max(BOUNDS[name] for name in SLOPES) <= 2.0
    assert max(BOUNDS[name] for name in SPECIAL) <= 4.0
    assert max(BOUNDS[name] for name in {*BETA} - {*SHAPES}) <= 7.0
    assert max(BOUNDS[name] for name in SHAPES) <= 16.0
    assert max(BOUNDS[name] for name in PLANE[:4]) <= 12.0
    assert max(BOUNDS[name] for name in PLANE[4:]) <= 24.0  # parts of second derivatives
    others = set(BOUNDS) - {*SLOPES, *SPECIAL, *BETA, *SHAPES, *PLANE}
    assert max(BOUNDS[name] for name in others) <= 1.0


@pytest.mark.parametrize("name", NAMES)
def test_error_is_within_the_bound(name: str) -> None:
    """Whether products are fused with sums or not."""
    arguments = grid(name, 12 if name in SLOW else 120)
    for fuse in (False, True):
        found = errors(name, *arguments, fuse=fuse)
        worst = int(np.argmax(found))
        where = [float(a[worst]) for a in arguments]
        assert found[worst] <= BOUNDS[name], (found[worst], where, fuse)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_arguments_next_to_multiples_of_half_pi(name: str) -> None:
    """Where the reduction cancels most: to 2**-59, at convergents of 2**e * 2/pi."""
    x = nearest_to_zero()
    least = min(np.abs(evaluate("sin", x)).min(), np.abs(evaluate("cos", x)).min())
    assert 2.0**-61 < least < 2.0**-59
    assert errors(name, x).max() <= 0.51


def test_logaddexp_next_to_its_root_is_right_to_half_a_ulp_of_its_terms() -> None:
    """Where it is near 0, its two terms cancel: the error is theirs, 2**-56."""
    a = np.linspace(-0.69, -1e-3, 2_000)
    b = np.log(-np.expm1(a)) + np.linspace(-1e-3, 1e-3, 2_000)
    with CONTEXT.workdps(40):
        true = [
            TRUE["logaddexp"](CONTEXT.mpf(p), CONTEXT.mpf(q)) for p, q in zip(a, b, strict=True)
        ]
        found = evaluate("logaddexp", a, b)
        wrong = [abs(CONTEXT.mpf(v) - t) for v, t in zip(found.tolist(), true, strict=True)]
    assert 2.0**-58 < max(wrong) <= 1.1 * 2.0**-56


def test_results_are_float64() -> None:
    for name in NAMES:
        assert evaluate(name, *grid(name, 10)).dtype == np.float64
