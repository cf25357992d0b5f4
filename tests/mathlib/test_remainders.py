"""Remainders in kernels, with derivatives, on every device: right for any finite quotient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.mathlib.define import Math
from symgrad.pipeline import DTypeName

PAIRS = [
    (7.5, 2.0), (-7.5, 2.0), (1e5, 0.3), (1e10, 3.0), (1e30, 7.0), (-3e38, 0.1), (3e38, 2.5e-30),
    (1.5e38, 3e-37), (-2.0, 3e38), (5.0, math.inf), (-5.0, math.inf), (0.3, 0.1), (2.0**90, 3.0),
    (1e-30, -7.0), (12345678.0, 0.001), (6.0, -3.0), (3.3e38, 1.1e38), (1e20, 1.0), (-1e-30, 5.0),
]  # fmt: skip
"""Also with quotients beyond the range of floats."""

TARGETS = [(d, "float32") for d in sg.devices()] + [("cpu", "float64")]


def exactly(a: float, b: float, whole: Any) -> tuple[float, float]:
    """The remainder by a rounding of the quotient, and that whole quotient, rounded at the end."""
    if math.isinf(b):
        q = 0 if whole is math.trunc or (a < 0) == (b < 0) else -1
        return (a if q == 0 else b), float(q)
    (p, r), (s, t) = a.as_integer_ratio(), b.as_integer_ratio()
    q = whole_quotient(p * t, r * s, whole)
    rest = p * t - q * s * r
    try:
        return rest / (r * t), float(q)
    except OverflowError:
        return rest / (r * t), math.copysign(math.inf, q)


def whole_quotient(p: int, q: int, whole: Any) -> int:
    """p/q rounded, of integers of any length."""
    if whole is math.floor:
        return p // q
    return abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)


@pytest.mark.parametrize("mode", ["accurate", "fast", "strict"])
@pytest.mark.parametrize(("device", "dtype"), TARGETS, ids=str)
def test_values_and_derivatives(device: Any, dtype: DTypeName, mode: Math) -> None:
    def f(v: Any) -> list[Any]:
        python, c = v[0] % v[1], sg.fmod(v[0], v[1])
        return [python, c, v[0] // v[1], *sg.grad(python, v), *sg.grad(c, v)]

    points = np.array(PAIRS, dtype)
    if mode == "fast":  # divides as the device does, which may flush 1/b
        points = points[(np.abs(points[:, 1]) < 2.0**126) | np.isinf(points[:, 1])]
    found = sg.fused_forward(2, f, device=device, dtype=dtype, math=mode).run(points)
    floored, cut = (
        np.array([exactly(a, b, whole) for a, b in points.tolist()]).T
        for whole in (math.floor, math.trunc)
    )
    ones = np.ones(len(points))
    wanted = [floored[0], cut[0], floored[1], ones, -floored[1], ones, -cut[1]]
    tight = 1e-6 if dtype == "float32" else 2e-15
    with np.errstate(over="ignore"):
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want.astype(dtype), rtol=tight)
