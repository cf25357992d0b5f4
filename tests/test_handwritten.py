"""Kernels beside what a careful person writes: the same numbers, and hardly more operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from handwritten import BY_HAND

import symgrad as sg

SPARE = 1.1
"""Operations of a kernel for each one by hand."""

MORE = {
    "regression with Student's t": "NaN outside of the domain of a logarithm",
    "three Lennard-Jones atoms": "x**-6 is within 4 ULP, where the products by hand are 8 off",
}
"""Losses whose kernels have more, and why."""

MOST = {"three Lennard-Jones atoms": 1.69}
"""Operations of kernels for each one by hand, where these are more than 1.25."""


@pytest.mark.parametrize("name", BY_HAND)
def test_derivations_by_hand_are_the_derivatives(name: str) -> None:
    n, loss, by_hand = BY_HAND[name]
    points = np.random.default_rng(7).uniform(0.5, 1.5, (50, n))
    value, gradient = sg.fused_forward_backward(n, loss, device="cpu", dtype="float64").run(points)
    expected = sg.fused_forward(n, by_hand, device="cpu", dtype="float64").run(points)
    np.testing.assert_allclose(value, expected[0], rtol=1e-12)
    np.testing.assert_allclose(gradient.T, expected[1:], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("level", [True, "real"])
@pytest.mark.parametrize("name", BY_HAND)
def test_a_kernel_has_hardly_more_operations(name: str, level: Any) -> None:
    n, loss, by_hand = BY_HAND[name]
    derived = sg.fused_forward_backward(n, loss, device="cpu", simplify=level).stats
    written = sg.fused_forward(n, by_hand, device="cpu", simplify=False).stats
    assert (derived.operations <= SPARE * written.operations) != (name in MORE)
    assert derived.operations <= MOST.get(name, 1.25) * written.operations


@pytest.mark.parametrize("name", BY_HAND)
def test_a_fast_kernel_has_hardly_more_operations(name: str) -> None:
    """Also of powers, and one division for each denominator, as by hand."""
    n, loss, by_hand = BY_HAND[name]
    derived = sg.fused_forward_backward(n, loss, device="cpu", math="fast").stats
    written = sg.fused_forward(n, by_hand, device="cpu", simplify=False).stats
    assert derived.operations <= 1.25 * written.operations
