"""Norms of vectors to the second derivative: no part of which cancels, overflows or vanishes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

import symgrad as sg

SIZES = (3, 4, 8, 9, 12)
GPUS = [d.index for d in sg.devices() if d.is_gpu][:1]
KERNELS = [
    ("float64", "cpu", SIZES), ("float32", "cpu", SIZES), *[("float32", d, (5,)) for d in GPUS],
]  # fmt: skip


def drawn(n: int, dtype: Any, least: float) -> np.ndarray:
    """Points of some sizes, of which one element is far larger, or some are as large, or are 0.

    The ``least`` size is larger on GPUs, as these may take subnormal numbers for 0.
    """
    draw = np.random.default_rng(n)
    points = draw.normal(size=(24, n))
    points[4:12] *= np.exp(draw.uniform(-9, 9, (8, n)))
    points[12:16, n // 2] *= 1e4
    points[16:18] = draw.choice([-1.0, 1.0], (2, n))
    points[18, 1:] = 0.0
    points[19, 1] = points[19, 0] = 7.0
    points[20:] *= np.array([least, 1e-12, 1e12, 1e18])[:, None]
    return np.asarray(points, dtype).astype(float)


def true_norm(point: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    with mp.workdps(80):
        x = np.array([mpf(v) for v in point.tolist()])
        r = mp.sqrt(np.sum(x * x))
        hessian = -np.outer(x, x) / r**3
        for i in range(len(x)):
            hessian[i, i] = np.sum(np.delete(x, i) ** 2) / r**3
        return float(r), (x / r).astype(float), hessian.astype(float)


@pytest.mark.parametrize(("dtype", "device", "sizes"), KERNELS)
def test_every_second_derivative_has_its_digits(dtype: Any, device: Any, sizes: Any) -> None:
    """Also next to an axis, where the largest element's are a difference of numbers near 1."""
    starts = np.cumsum([0, *sizes])

    def norms(v: Any) -> list[Any]:
        return [np.linalg.norm(v[a:b]) for a, b in itertools.pairwise(starts)]

    points = [drawn(n, dtype, 1e-30 if device == "cpu" else 1e-18) for n in sizes]
    joint = np.concatenate(points, axis=1)
    total = sg.fused_hessian(int(starts[-1]), lambda v: sum(norms(v)), device=device, dtype=dtype)
    values = sg.fused_forward(int(starts[-1]), norms, device=device, dtype=dtype).run(joint)
    _, slopes, curves = total.run(joint)
    limits = np.finfo(dtype)
    for found, some, a in zip(values, points, starts, strict=False):
        b = a + some.shape[1]
        for k, point in enumerate(some):
            parts = found[k], slopes[k, a:b], curves[k, a:b, a:b]
            for got, want, ulps in zip(parts, true_norm(point), (3, 6, 12), strict=True):
                least = np.maximum(ulps * limits.eps * np.abs(want), limits.tiny)
                assert np.all(np.abs(got - want) <= least), (point, got, want)


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_norms_at_the_ends(n: int) -> None:
    """Flat at 0; of subnormal and of huge numbers; infinite, but of NaN NaN."""
    kernel = sg.fused_hessian(n, lambda v: np.linalg.norm(v), device="cpu", dtype="float64")
    value, slope, curve = kernel.run(np.zeros(n))
    assert value == 0.0 and not np.any(slope) and not np.any(curve)
    for size in (5e-324, 1e-310, 1e308):
        x = np.zeros(n)
        x[n // 2] = -size
        value, slope, _ = kernel.run(x)
        assert value == size and slope.tolist() == (-np.sign(-x)).tolist()
    x = np.ones(n)
    x[-1] = np.inf
    assert kernel.run(x)[0] == np.inf and kernel.run(np.full(n, -np.inf))[0] == np.inf
    x[0] = np.nan
    assert np.isnan(kernel.run(x)[0]) or n == 2  # hypot(NaN, inf) is inf, as C has it
