"""The library's functions against double precision, on NumPy: every one within its bound."""

from __future__ import annotations

import numpy as np
import pytest

from symgrad.expr import ops

from .cases import BOUNDS, COMPOSED, FUNCTIONS, PARTS, cancelling, evaluate, grid, truth, ulps


def test_every_function_has_a_bound() -> None:
    assert {op.name for op in FUNCTIONS} == {*BOUNDS, *PARTS, *COMPOSED}


@pytest.mark.parametrize("name", COMPOSED)
def test_what_is_composed_is_right_to_the_rounding_of_its_terms(name: str) -> None:
    (x,) = grid(name)
    got, want = evaluate(FUNCTIONS[ops.TABLE[name]], x), truth(name, x)
    assert got.dtype == np.float32
    assert np.all(np.abs(got - want) <= 3 * 2.0**-24 * np.maximum(1.0, np.abs(want)))


@pytest.mark.parametrize("name", BOUNDS)
def test_error_is_within_the_bound(name: str) -> None:
    arguments = grid(name)
    got, want = evaluate(FUNCTIONS[ops.TABLE[name]], *arguments), truth(name, *arguments)
    if name in ("fmod", "remainder"):
        reduced = np.abs(np.float64(arguments[0]) / arguments[1]) < 2.0**45
        got, want = got[reduced], want[reduced]
    unit = cancelling(name, arguments)
    errors = ulps(got, want, unit)
    worst = int(np.argmax(errors))
    where = [float(a[worst]) for a in arguments] if len(errors) == len(arguments[0]) else ""
    assert got.dtype == np.float32
    assert errors[worst] <= BOUNDS[name][0], (errors[worst], where, got[worst], want[worst])


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_a_remainder_out_of_reach_is_nan_or_right(name: str) -> None:
    a, b = (
        np.array([1e30, 1e30, 1e38, 3e38], np.float32),
        np.array([3.0, 0.5, 1e-3, 7.0], np.float32),
    )
    got, want = evaluate(FUNCTIONS[ops.TABLE[name]], a, b), truth(name, a, b)
    assert np.all(np.isnan(got) | (got == np.float32(want)))
    assert got[1] == 0.0
