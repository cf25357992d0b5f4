"""Sums of exponentials beside their maximum in one kernel: numbers of NumPy, NaN and infinities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import symgrad as sg

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 300)) * 5
ROWS[3] = -np.inf
ROWS[4, 7] = np.inf
ROWS[5, 3] = np.nan
ROWS[6, :200] = -np.inf
WEIGHTS = RNG.normal(size=ROWS.shape)
POINTS, OTHERS = RNG.normal(size=(100, 3)), RNG.normal(size=(3000, 3))


def log_sum(x: Any) -> Any:
    m = x.max(1)
    return np.log(np.exp(x - m[:, None]).sum(1)) + m


def weighted(x: Any, v: Any) -> Any:
    p = np.exp(x - x.max(1, keepdims=True))
    return (p * v).sum(1) / p.sum(1)


def mean_score(x: Any) -> Any:
    """Masked by the least float, which is a weight here."""
    s = np.where(np.arange(300) < 100, x, np.finfo(np.float32).min)
    p = np.exp(s - s.max(1, keepdims=True))
    return (p * s).sum(1) / p.sum(1)


def of_pairs(x: Any, y: Any) -> Any:
    s = -np.sum((x[:, None] - y[None]) ** 2, -1)
    p = np.exp(s - s.max(1, keepdims=True))
    return (p * y[:, 0]).sum(1) / p.sum(1)


def of_a_library(x: Any) -> Any:
    lib = sg if hasattr(x, "tape") else scipy.special
    return lib.logsumexp(x, axis=1)


@pytest.mark.parametrize(
    ("f", "args", "kernels"),
    [
        (log_sum, [ROWS], 1),
        (log_sum, [RNG.normal(size=(2, 30_000)) * 3], 2),
        (weighted, [ROWS, WEIGHTS], 1),
        (mean_score, [RNG.normal(size=(3, 300))], 1),
        (of_pairs, [POINTS, OTHERS], 1),
        (of_a_library, [ROWS], 1),
    ],
)
def test_one_pass_has_the_numbers_of_two(f: Any, args: Any, kernels: int) -> None:
    run = sg.jit(f, device="gpu")
    with np.errstate(invalid="ignore"):
        expected = f(*args)
    assert np.allclose(run(*args), expected, rtol=3e-5, atol=1e-5, equal_nan=True)
    assert len(str(run.stages).splitlines()) == kernels
