"""`sg.check`: the columns of devices, beside the exact value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.checking import Report

POINTS = np.random.default_rng(0).uniform(0.2, 2.0, (20, 2))


def bumpy(v: Any) -> Any:
    return sg.where(v[0] > v[1], sg.log(1 + sg.exp(v[0])), v[1] ** 3) * sg.sin(v[0]) * 0.1


def columns(report: Report) -> dict[str, tuple[float, ...]]:
    return {column.device: column.relative for column in report.columns}


def test_by_default_the_kernel_and_numpy_are_compared() -> None:
    kernel = sg.fused_forward_backward(2, bumpy, device="cpu")
    found = columns(sg.check(kernel, POINTS))
    assert list(found) == ["CPU float32", "NumPy float32"]
    assert 0 < max(found["CPU float32"]) < 5e-6


def test_all_devices_are_compared() -> None:
    kernel = sg.fused_forward_backward(2, bumpy, device="cpu")
    report = sg.check(kernel, POINTS, devices="all")
    found = columns(report)
    gpus = [d.name for d in sg.devices() if d.is_gpu]
    assert list(found) == [*gpus, "CPU float32", "CPU float64", "NumPy float32"]
    assert max(found["CPU float64"]) < 1e-13
    assert all(max(found[name]) < 5e-6 for name in [*gpus, "CPU float32", "NumPy float32"])
    assert all(name[:24] in str(report) for name in found)
    assert all(len(c.relative) == len(report.lines) == 3 for c in report.columns)


def test_a_kernel_of_float64_is_compared_at_points_that_float32_holds() -> None:
    kernel = sg.fused_forward_backward(2, bumpy, device="cpu", dtype="float64")
    found = columns(sg.check(kernel, POINTS, devices="all"))
    assert max(found["CPU float32"]) < 5e-6  # far less than the rounding of the points would give
    assert max(found["NumPy float64"]) < 1e-13
    assert list(columns(sg.check(kernel, POINTS))) == ["CPU float64", "NumPy float64"]


def test_devices_are_named_as_everywhere() -> None:
    kernel = sg.fused_forward_backward(2, bumpy, device="cpu")
    assert "CPU float32" in columns(sg.check(kernel, POINTS, devices=["cpu"]))
    assert "CPU float32" in columns(sg.check(kernel, POINTS, devices="cpu"))
    with pytest.raises(sg.InputError, match="abacus"):
        sg.check(kernel, POINTS, devices=["abacus"])


def test_points_of_a_wrong_length_are_refused() -> None:
    kernel = sg.fused_forward_backward(2, bumpy, device="cpu")
    with pytest.raises(sg.InputError, match=r"points has shape \(3,\)"):
        sg.check(kernel, [1.0, 2.0, 3.0])


def test_the_worst_output_stands_first() -> None:
    kernel = sg.fused_forward_backward(2, lambda v: (v[0] + 1e4) - 1e4 + v[1] * 0, device="cpu")
    report = sg.check(kernel, POINTS)
    assert report.worst.output == "loss"
    lines = str(report).splitlines()
    assert lines[2].startswith("loss")
    assert lines[6].startswith("loss")
