"""Partial sums that are added up with their rounding errors, by the interpreter of kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from symgrad.kernel.execute import execute
from symgrad.kernel.skeletons.fold import fold_program
from symgrad.kernel.target import WorkgroupTarget


@pytest.mark.parametrize("width", [1, 8, 64])
@pytest.mark.parametrize("count", [1, 7, 64, 200])
def test_sums_have_more_digits_than_a_float32(count: int, width: int) -> None:
    results = 3
    draw = np.random.default_rng(count)
    drawn = draw.normal(size=(results, count)) * 10 ** draw.uniform(-3, 3, (results, count))
    partials = drawn.astype(np.float32)
    sums = np.zeros((results, 2), np.float32)
    numbers = np.append(np.full(5, np.float32(1e30)), partials)
    arrays = {"partials": numbers, "sums": sums}
    execute(fold_program(WorkgroupTarget(width)), arrays, count, results, np.float32)
    want = [math.fsum(map(float, line)) for line in partials]
    error = np.abs(sums.sum(axis=1, dtype=np.float64) - want)
    assert np.all(error <= 1e-12 * np.abs(partials).sum(axis=1))
