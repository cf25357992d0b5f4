"""Functions drawn from NumPy's: values are NumPy's, derivatives those of differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn_numpy import DrawnNumPy, along

import symgrad as sg

EXACT: Any = {"device": "cpu", "dtype": "float64"}


@pytest.mark.parametrize("seed", range(40))
def test_values_and_derivatives(seed: int) -> None:
    """Of gradients alone, within `sg.jit`, and mapped; of every fourth one the second, too."""
    drawn = DrawnNumPy(seed)
    x = drawn.inputs
    ways = [drawn.rng.normal(size=a.shape) for a in x]
    gradient = sg.value_and_grad(drawn.loss, argnums=(0, 1), **EXACT)
    inner = sg.jit(lambda *x: (drawn(*x), sg.value_and_grad(drawn.loss, (0, 1))(*x)), **EXACT)
    if seed % 4 == 0:
        value, slopes = gradient(*x)
    elif seed % 4 == 1:
        outer = sg.vmap(lambda *x: sg.value_and_grad(drawn.loss, (0, 1))(*x))
        stacks = [np.stack([a + 0.1, a]) for a in x]
        values, stacked = sg.jit(outer, **EXACT)(*stacks)
        value, slopes = values[1], [s[1] for s in stacked]
    else:
        results, (value, slopes) = inner(*x)
        for got, wanted in zip(results, drawn.values[2:], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(value, drawn.loss(*x), rtol=1e-11, atol=1e-12)
    slope = sum(np.sum(s * way) for s, way in zip(slopes, ways, strict=True))
    np.testing.assert_allclose(slope, along(drawn.loss, x, ways), rtol=1e-6, atol=1e-7)
    if seed % 4 == 3:
        curved = sg.jit(
            lambda *x: sg.jvp(lambda *x: sg.grad(drawn.loss, (0, 1))(*x), x, tuple(ways))[1],
            **EXACT,
        )(*x)
        for k, got in enumerate(curved):
            wanted = along(lambda *x, k=k: inner(*x)[1][1][k], x, ways)
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
