"""The library's functions against double precision, on NumPy: every one within its bound."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest

from symgrad.expr import ops

from .cases import (
    BOUNDS,
    COMPOSED,
    FUNCTIONS,
    INTEGERS,
    PARTS,
    evaluate,
    grid,
    true_values,
    truth,
    ulps,
)


def test_every_function_has_a_bound() -> None:
    assert {op.name for op in FUNCTIONS} == {*BOUNDS, *PARTS, *COMPOSED, *INTEGERS}


@pytest.mark.parametrize("name", COMPOSED)
def test_what_is_composed_is_right_to_the_rounding_of_its_terms(name: str) -> None:
    (x,) = grid(name)
    got, want = evaluate(FUNCTIONS[ops.TABLE[name]], x), truth(name, x)
    assert got.dtype == np.float32
    assert np.all(np.abs(got - want) <= 3 * 2.0**-24 * np.maximum(1.0, np.abs(want)))


@pytest.mark.parametrize("name", BOUNDS)
def test_error_is_within_the_bound(name: str) -> None:
    arguments = grid(name)
    got, (want, unit) = evaluate(FUNCTIONS[ops.TABLE[name]], *arguments), true_values(name)
    errors = ulps(got, want, unit)
    worst = int(np.argmax(errors))
    where = [float(a[worst]) for a in arguments] if len(errors) == len(arguments[0]) else ""
    assert got.dtype == np.float32
    assert errors[worst] <= BOUNDS[name][0], (errors[worst], where, got[worst], want[worst])


def test_gelu_has_the_digits_that_phi_has_where_that_is_subnormal() -> None:
    x = np.append(np.linspace(-13.3, -12.9, 100_001), -13.096069).astype(np.float32)
    errors = ulps(evaluate(FUNCTIONS[ops.gelu], x), truth("gelu", x))
    assert 3.4 < errors.max() <= 9.0


def of_all_sizes(count: int) -> tuple[Any, Any]:
    """Pairs of floats with any bits but those of infinities and NaN: quotients up to 2**277."""
    random = np.random.default_rng(8)
    bits = random.integers(0, 255 << 23, (2, count), np.uint32)
    a, b = (bits | random.integers(0, 2, (2, count), np.uint32) << 31).view(np.float32)
    return a, np.where(b == 0.0, np.float32(1e-45), b)


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders_are_right_whatever_the_quotient(name: str) -> None:
    a, b = of_all_sizes(20_000)
    python = math.fmod if name == "fmod" else operator.mod
    want = np.array([python(*pair) for pair in zip(a.tolist(), b.tolist(), strict=True)])
    got = evaluate(FUNCTIONS[ops.TABLE[name]], a, b)
    np.testing.assert_array_equal(got, np.float32(want))
