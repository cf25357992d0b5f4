"""Partial sums that are added up on the GPU, with their rounding errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tint import check_with_tint, needs_tint

from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.skeletons.sums_in_workgroups import FOLD_INVOCATIONS, fold_program
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Style


def folding(results: int, count: int, head: int) -> Launch:
    """The fold of so many partial sums of each result, which stand behind other numbers."""
    inputs = (Array("numbers", (head + results * count,)),)
    outputs = (Array("sums", (2 * results + head,)),)
    arrays, target = (("partials", "numbers"), ("sums", "sums")), WorkgroupTarget(FOLD_INVOCATIONS)
    dispatch = Dispatch(fold_program, target, arrays, count, results, (("head", head),))
    return Launch("fold", inputs, outputs, (), (dispatch,))


def fold(gpu: Gpu, partials: np.ndarray, head: int = 3) -> np.ndarray:
    """partials (results, count) -> sums and what they lack (results, 2)."""
    results, count = partials.shape
    others = np.arange(head, dtype=np.float32) + 1e30
    numbers = np.append(others, partials).astype(np.float32)
    launch = folding(results, count, head)
    (found,) = Launched(gpu, launch, Style()).run(numbers)
    np.testing.assert_array_equal(found, launch.execute([numbers], np.float32)[0])
    np.testing.assert_array_equal(found[2 * results :], others)
    return found[: 2 * results].reshape(results, 2).astype(np.float64)


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


@pytest.mark.parametrize("head", [0, 1, 700, 5000])
def test_other_numbers_come_along(head: int, gpu: Gpu) -> None:
    assert fold(gpu, np.full((2, 10), 0.5, np.float32), head).tolist() == [[5.0, 0.0]] * 2


@needs_tint
def test_tint_takes_it() -> None:
    kernel = fold_program(WorkgroupTarget(FOLD_INVOCATIONS))
    assert check_with_tint([*print_kernel(kernel, Style()).modules]) == [None]
