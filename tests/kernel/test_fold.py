"""Partial sums that are added up with their rounding errors, by the interpreter of kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.skeletons.sums_in_workgroups import fold_program


@pytest.mark.parametrize("width", [1, 8, 64])
@pytest.mark.parametrize("count", [1, 7, 64, 200])
def test_sums_have_more_digits_than_a_float32(count: int, width: int) -> None:
    results = 3
    draw = np.random.default_rng(count)
    drawn = draw.normal(size=(results, count)) * 10 ** draw.uniform(-3, 3, (results, count))
    partials = drawn.astype(np.float32)
    sums, others = np.zeros(2 * results + 5, np.float32), np.full(5, np.float32(1e30))
    arrays = {"partials": np.append(others, partials), "sums": sums}
    kernel = fold_program(WorkgroupTarget(width))
    execute(kernel, arrays, count, results, np.float32, {"head": len(others)})
    np.testing.assert_array_equal(sums[2 * results :], others)
    want = [math.fsum(map(float, line)) for line in partials]
    pairs = sums[: 2 * results].reshape(results, 2)
    error = np.abs(pairs.sum(axis=1, dtype=np.float64) - want)
    assert np.all(error <= 1e-12 * np.abs(partials).sum(axis=1))
