"""Nested numbers that a kernel computes on a GPU are those that it computes for arrays here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.wgsl.device.gpus import list_gpus
from symgrad.wgsl.dispatch.arithmetic import Arithmetic

if not list_gpus():
    pytest.skip("no GPU and no software Vulkan driver here", allow_module_level=True)


def several(v: Any) -> Any:
    x, y, z = v
    return {"a": sg.exp(x) * y, "b": [y, z / x], "c": (x, 2.0, sg.sin(z))}


def flat(result: Any) -> list[Any]:
    return [result["a"], *result["b"], *result["c"]]


@pytest.mark.parametrize("shape", [(1,), (64,), (1000,), (7, 13)])
def test_each_number_has_an_array(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = sg.fused_forward(3, several, device="gpu")
    points = np.random.default_rng(0).uniform(0.5, 2, (*shape, 3)).astype(np.float32)
    there = sg.device_array(points, "gpu")
    monkeypatch.setattr(Arithmetic, "copy", None)  # nothing is gathered
    found, want = kernel.run(there), kernel.run(points)
    for a, b in zip(flat(found), flat(want), strict=True):
        assert isinstance(a, sg.DeviceArray) and a.shape == shape
        np.testing.assert_array_equal(a.numpy(), b)


def test_a_point_no_points_and_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = sg.fused_forward(3, several, device="gpu")
    points = np.random.default_rng(0).uniform(0.5, 2, (150, 3)).astype(np.float32)
    there = sg.device_array(points, "gpu")
    want = flat(kernel.run(points))
    one = flat(kernel.run(there[7]))
    assert [a.item() for a in one] == [b[7] for b in want]
    assert [a.shape for a in flat(kernel.run(there[:0]))] == [(0,)] * 6
    columns = kernel._by_columns.get(None, lambda: None)
    assert columns is not None
    monkeypatch.setattr(columns.launched, "chunk", 64)
    for a, b in zip(flat(kernel.run(there)), want, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


def test_arrays_among_the_results_stay_together() -> None:
    kernel = sg.fused_forward(3, lambda v: {"a": v[0], "b": v * 2.0}, device="gpu")
    points = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = kernel.run(sg.device_array(points, "gpu"))
    np.testing.assert_array_equal(found["a"].numpy(), points[:, 0])
    np.testing.assert_array_equal(found["b"].numpy(), 2 * points)
