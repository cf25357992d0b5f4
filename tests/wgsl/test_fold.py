"""Partial sums that are added up on the GPU, with their rounding errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tint import check_with_tint, needs_tint

from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.summation import fold_module
from symgrad.wgsl.memory.encoding import Step


def fold(gpu: Gpu, partials: np.ndarray, head: int = 3) -> np.ndarray:
    """partials (results, count) -> sums and what they lack (results, 2)."""
    results, count = partials.shape
    numbers = np.append(np.full(head, 1e30), partials).astype(np.float32)
    source, target = gpu.storage(numbers.nbytes), gpu.storage(8 * results)
    gpu.upload(source, numbers)
    arrays = [(source.buffer, 0, numbers.nbytes), (target.buffer, 0, 8 * results)]
    gpu.submit([Step(gpu.pipeline(fold_module(), 1), gpu.bind(count, arrays), results)])
    found = np.empty(2 * results, np.float32)
    gpu.download(target, found)
    return found.reshape(results, 2).astype(np.float64)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 500, 5000])
def test_sums_have_more_digits_than_a_float32(count: int, gpu: Gpu) -> None:
    draw = np.random.default_rng(count)
    partials = (draw.normal(size=(5, count)) * 10 ** draw.uniform(-3, 3, (5, count))).astype("f4")
    want = np.array([math.fsum(map(float, line)) for line in partials])
    error = np.abs(fold(gpu, partials).sum(axis=1) - want)
    assert np.all(error <= 1e-12 * np.abs(partials).sum(axis=1))


def test_what_cancels_leaves_the_small_ones(gpu: Gpu) -> None:
    line = np.array([3e8, 1.25, -3e8, 1e-3], np.float32)
    found = fold(gpu, np.tile(line, (1, 100))).sum()
    assert found == pytest.approx(100 * (1.25 + float(np.float32(1e-3))), rel=1e-6)


@needs_tint
def test_tint_takes_it() -> None:
    assert check_with_tint([fold_module()]) == [None]
