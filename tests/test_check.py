"""`sg.check`: the columns of devices, beside the exact value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.checks import Report
from symgrad.values.tables import Reduce

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


# losses over data ---------------------------------------------------------------------------------


def misfit(p: Any, r: Any) -> Any:
    return (p.level[r.g] * sg.exp(-p.rate[0] * r.x) + p.level[0] - r.y) ** 2


DATA = {
    "g": np.array([0, 2, 2, -1]), "x": np.array([0.1, 0.5, 1.5, 2.0]),
    "y": np.array([1.0, 0.3, 0.2, 0.1]), "w": np.array([1.0, 3.0, 0.5, 0.25]),
}  # fmt: skip
PARAMS = {"level": [1.0, 0.5, 0.7], "rate": [0.3]}


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_a_loss_over_data_is_compared_as_summed(weights: str | None, reduce: Reduce) -> None:
    kernel = sg.fused_forward_backward(
        {"level": 3, "rate": 1}, misfit, columns=list(DATA), weights=weights, reduce=reduce,
        device="cpu",
    )  # fmt: skip
    report = sg.check(kernel, PARAMS, DATA, devices="all")
    found = columns(report)
    gpus = [d.name for d in sg.devices() if d.is_gpu]
    assert list(found) == [*gpus, "CPU float32", "CPU float64", "NumPy float32"]
    assert max(found["CPU float64"]) < 1e-14
    assert all(max(found[name]) < 2e-6 for name in [*gpus, "CPU float32", "NumPy float32"])
    assert {line.output for line in report.lines} == {
        "loss", "d/dlevel0", "d/dlevel1", "d/dlevel2", "d/drate0"
    }  # fmt: skip
    assert "4 rows against SymPy" in str(report) and "worst at point" not in str(report)


def test_what_cannot_be_compared_is_refused() -> None:
    points = sg.fused_forward_backward(2, bumpy, device="cpu")
    rows = sg.fused_forward_backward(1, lambda p, r: p[0] * r[0], row=1, device="cpu")
    squares = sg.fused_least_squares(1, lambda p, r: p[0] * r[0], row=1, device="cpu")
    with pytest.raises(sg.InputError, match=r"by check\(kernel, params, rows\)"):
        sg.check(rows, [1.0])
    with pytest.raises(sg.InputError, match=r"by check\(kernel, points\)"):
        sg.check(points, [1.0, 2.0], [[1.0]])
    with pytest.raises(sg.InputError, match=r"kernels of sg\.fused_forward_backward"):
        sg.check(squares, [1.0], [[1.0]])
    with pytest.raises(sg.InputError, match="at least one point, or row"):
        sg.check(points, np.zeros((0, 2)))
    with pytest.raises(sg.InputError, match="at least one point, or row"):
        sg.check(rows, [1.0], np.zeros((0, 1)))
    with pytest.raises(sg.InputTypeError, match="3 is not a kernel"):
        sg.check(3, [1.0])
