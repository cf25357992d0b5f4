"""The same numbers everywhere: every kernel on every device here, and both front ends take it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from catalog import Case, every, losses, row_case, rows
from tint import check_with_tint, needs_tint

import symgrad as sg

GPUS = [d for d in sg.devices() if d.is_gpu]


def flat(result: Any) -> Iterator[np.ndarray]:
    """The arrays in a result of any nesting."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from flat(part)
    else:
        yield np.asarray(result)


def difference(got: Any, want: Any) -> float:
    """The largest difference of results, relative to the size of each array; NaN must be NaN."""
    worst = 0.0
    for a, b in zip(flat(got), flat(want), strict=True):
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        same = (a == b) | np.isnan(b)
        scale = np.max(np.abs(b), initial=1e-30, where=np.isfinite(b))
        worst = max(worst, float(np.max(np.where(same, 0.0, np.abs(a - b)), initial=0.0) / scale))
    return worst


@pytest.mark.parametrize("case", every(), ids=str)
def test_float32_on_the_cpu_agrees_with_float64(case: Case) -> None:
    single = case.make(device="cpu").run(case.points)
    double = case.make(device="cpu", dtype="float64").run(case.points)
    assert difference(single, double) < 4e-6


@pytest.mark.parametrize("device", GPUS, ids=str)
@pytest.mark.parametrize("case", every(), ids=str)
def test_every_gpu_agrees_with_the_cpu(case: Case, device: sg.Device) -> None:
    kernel = case.make(device=device)
    assert difference(kernel.run(case.points), kernel.to("cpu").run(case.points)) < 2e-5


@pytest.mark.parametrize("device", sg.devices(), ids=str)
@pytest.mark.parametrize("case", losses(), ids=str)
def test_a_row_of_a_batch_is_the_point_run_alone(case: Case, device: sg.Device) -> None:
    kernel = case.make(device=device)
    batch, gradients = kernel.run(case.points)
    for k in (0, 33, 69):
        loss, gradient = kernel.run(case.points[k])
        assert np.float32(loss).tobytes() == batch[k].tobytes()
        assert gradient.tobytes() == gradients[k].tobytes()


@pytest.mark.parametrize("math", ["accurate", "fast"])
@needs_tint
def test_tint_takes_every_kernel(math: str) -> None:
    sources = {
        f"{case} {k}": module
        for case in every()
        for k, module in enumerate(case.make(device="cpu", math=math).modules)
    }
    verdicts = check_with_tint(list(sources.values()))
    refused = {name: v for name, v in zip(sources, verdicts, strict=True) if v is not None}
    assert not refused


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_values_of_a_row_are_its_reference(row: Any) -> None:
    case = row_case(row)
    values, _ = case.make(device="cpu", dtype="float64").run(case.points.astype(np.float64))
    want = [
        row.reference(*[np.float64(v) > 0.5 if t == "b" else np.float64(v)
                        for v, t in zip(p, row.signature, strict=False)])
        for p in case.points
    ]  # fmt: skip
    np.testing.assert_allclose(values, np.asarray(want, np.float64), rtol=1e-12)
