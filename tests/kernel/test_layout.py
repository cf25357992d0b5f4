"""How a batch is cut, and how many points share a workgroup."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.kernel.language.target import (
    LIGHT,
    POINTS_PER_LARGER_WORKGROUP,
    POINTS_PER_WORKGROUP,
    invocations,
)

pytestmark = pytest.mark.skipif(not sg.devices()[:-1], reason="there is no GPU")

LARGEST = POINTS_PER_LARGER_WORKGROUP[0][1]


def mixed(columns: int) -> Any:
    """A function with so many results of cheap operations."""
    return lambda v: [v[k % len(v)] * (k + 1.0) - v[0] for k in range(columns)]


def width(kernel: Any) -> int:
    """The invocations of a workgroup of a kernel."""
    (size,) = re.findall(r"@workgroup_size\((\d+)\)", kernel.wgsl)
    return int(size)


@pytest.mark.parametrize("inputs", [1, 3, 9, 30])
@pytest.mark.parametrize("columns", [1, 2, 4, 7, 16, 20, 63, 64, 70])
def test_batches_of_any_size_are_stored_whole(inputs: int, columns: int) -> None:
    kernel = sg.fused_forward(inputs, mixed(columns), device="gpu")
    size = width(kernel)
    assert size == invocations(inputs + columns, 0)
    reference = kernel.to("cpu")
    draw = np.random.default_rng(columns)
    for batch in (1, POINTS_PER_WORKGROUP, size - 1, size, size + 1, 3 * LARGEST + 5):
        points = draw.integers(-9, 9, (batch, inputs)).astype(np.float32)  # exact in float32
        np.testing.assert_array_equal(kernel.run(points), reference.run(points))


def test_points_with_much_to_do_are_shared_by_small_workgroups() -> None:
    def long(v: Any) -> Any:
        y = v[0]
        for _ in range(LIGHT):
            y = sg.sin(y) * y
        return y

    assert width(sg.fused_forward(1, long, device="gpu")) == POINTS_PER_WORKGROUP
    light = sg.fused_forward(1, lambda v: v[0] * 2.0, device="gpu")
    assert width(light) == LARGEST


def test_loops_are_in_workgroups_of_the_least_size() -> None:
    f = lambda v: sg.fori_loop(0, v[1], lambda k, y: y + v[0], 0.0, max_steps=10)  # noqa: E731
    assert width(sg.fused_forward(2, f, device="gpu")) == POINTS_PER_WORKGROUP
