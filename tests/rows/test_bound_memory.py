"""Bound rows stay where compiled code reads them, whatever else takes memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg


@pytest.mark.parametrize("columns", [2, 18, 42, 300])
@pytest.mark.parametrize("count", [1, 5, 17, 100])
def test_the_last_rows_are_there_in_every_call(count: int, columns: int) -> None:
    def loss(p: Any, r: Any) -> Any:
        return np.sum((p[0] - r) ** 2)

    kernel = sg.fused_forward_backward(1, loss, row=columns, device="cpu")
    rows = np.random.default_rng(count).normal(size=(count, columns)).astype("float32")
    bound = kernel.bind(rows)
    found = [bound.run([0.5])[0]]
    taken = []
    for lanes in (2, 4, 8, 16, 32):  # as much as what fills up a vector of rows
        taken += [np.full((lanes, columns), np.nan, dtype) for dtype in ("float32", "float64")]
        found.append(bound.run([0.5])[0])
    assert len(taken) == 10
    np.testing.assert_array_equal(found, kernel.run([0.5], rows)[0])
