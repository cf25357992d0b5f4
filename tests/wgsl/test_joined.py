"""Points of row kernels that are put together on a device are those that the host would send."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.skeletons.map import Entry, Pattern
from symgrad.rows import each_row
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch import sums
from symgrad.wgsl.dispatch.sums import Rows
from symgrad.wgsl.memory.transfer import Upload
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Style

N = 1003
RNG = np.random.default_rng(0)
ROWS = {"who": RNG.integers(0, 50, N), "kind": RNG.integers(0, 7, N), "t": RNG.random(N)}
SHAPE = {"height": 50, "rate": (), "base": (7, 2), "c": 3}
P = {"height": RNG.random(50), "rate": 0.5, "base": RNG.random((7, 2)), "c": RNG.random(3)}


def looking(p: Any, r: Any) -> Any:
    return p.height[r.who] * sg.exp(-p.rate * r.t) + p.base[r.kind] @ [r.t, 1.0] + p.c[1]


def plain(p: Any, r: Any) -> Any:
    return p.c[0] * sg.exp(-p.rate * r.t) + p.c[2] * r.who


def indices_alone(p: Any, r: Any) -> Any:
    return p.height[r.who] * p.base[r.kind][0]


def columns_alone(p: Any, r: Any) -> Any:
    return sg.exp(r.t) + r.who * r.kind


@pytest.fixture
def stays(gpu: Gpu) -> Iterator[Gpu]:
    """A GPU on which all rows are, where some points at a time are put together."""
    before, gpu.queued_bytes = gpu.queued_bytes, 0
    with mock.patch.object(sums, "POINTS_BYTES", 20_000):
        yield gpu
    gpu.queued_bytes = before


def arrays(found: Any) -> list[np.ndarray]:
    if isinstance(found, dict):
        found = tuple(found.values())
    if isinstance(found, tuple):
        return [array for part in found for array in arrays(part)]
    return [found.toarray() if hasattr(found, "toarray") else np.asarray(found)]


@pytest.mark.parametrize("f", [looking, plain, indices_alone, columns_alone])
@pytest.mark.parametrize("verb", [sg.fused_forward, sg.fused_jacobian])
def test_results_at_rows(stays: Gpu, f: Any, verb: Any) -> None:
    kernel = verb(SHAPE, f, columns=list(ROWS), reduce=None, device="gpu")
    bound, found = kernel.bind(ROWS), arrays(kernel.run(P, ROWS))
    again = [arrays(bound.run(p)) for p in (P, P | {"rate": 0.7}, P)]
    stays.queued_bytes = 1 << 40
    for part, other, last, want in zip(
        found, again[0], again[2], arrays(kernel.run(P, ROWS)), strict=True
    ):
        np.testing.assert_array_equal(part, want)
        np.testing.assert_array_equal(other, want)
        np.testing.assert_array_equal(last, want)
    for part, want in zip(again[1], arrays(kernel.run(P | {"rate": 0.7}, ROWS)), strict=True):
        np.testing.assert_array_equal(part, want)


def test_second_derivatives_are_added_up(stays: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(p: Any, r: Any) -> Any:
        return (looking(p, r) - r.t) ** 2

    kernel = sg.fused_hessian(SHAPE, loss, columns=list(ROWS), sparse=True, device="gpu")
    monkeypatch.setattr(each_row, "HESSIAN_ROWS", 256)
    found, bound = arrays(kernel.run(P, ROWS)), arrays(kernel.bind(ROWS).run(P))
    stays.queued_bytes = 1 << 40
    for part, other, want in zip(found, bound, arrays(kernel.run(P, ROWS)), strict=True):
        np.testing.assert_array_equal(part, want)
        np.testing.assert_array_equal(other, want)


def test_bound_rows_go_up_once(stays: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = sg.fused_forward(SHAPE, looking, columns=list(ROWS), reduce=None, device="gpu")
    rows = {name: values.copy() for name, values in ROWS.items()}
    bound, sent, put = kernel.bind(rows), [], Upload.put
    want = kernel.run(P, ROWS)
    for values in rows.values():
        values[:] = 0

    def counted(self: Upload, array: np.ndarray, *rest: Any, **more: Any) -> None:
        if not np.all(array.view(np.uint32) == array.view(np.uint32).flat[0]):  # no poison
            sent.append(array.size)
        put(self, array, *rest, **more)

    monkeypatch.setattr(Upload, "put", counted)
    np.testing.assert_array_equal(bound.run(P), want)
    assert len(bound) == N
    assert sent and sum(sent) < 200


def test_bits_are_kept(gpu: Gpu) -> None:
    numbers = RNG.integers(0, 2**32, (500, 2), np.uint32).view(np.float32)
    pattern = Pattern(1, 2, 1, (Entry(0, 1, 2),))
    rows = Rows(gpu, pattern, numbers, RNG.integers(0, 3, (500, 1)).astype(np.int32))
    parameters = sg.device_array(np.zeros(7), gpu.info.index)
    points = rows._points(parameters, 0, 500).numpy()
    np.testing.assert_array_equal(points[:, 1:3].view(np.uint32), numbers.view(np.uint32))


LINES = Entry(1, 4, 2), Entry(0, 90, 7)
PATTERNS = Pattern(4, 3, 2, LINES), Pattern(0, 1, 0, ()), Pattern(0, 0, 2, LINES)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_points_are_side_by_side(pattern: Pattern) -> None:
    """The interpreter refuses races, and indices that are out of bounds."""
    launch = pattern.launch(70, 120)
    launch.verify()
    arrays = {
        "parameters": RNG.integers(0, 2**32, 120, np.uint32),
        "numbers": RNG.integers(0, 2**32, (70, pattern.columns), np.uint32),
        "indices": RNG.integers(0, 4, (70, 2), np.uint32),
    }
    (points,) = launch.execute([arrays[name] for name in pattern.sources])
    p, parts = arrays["parameters"], [np.tile(arrays["parameters"][: pattern.uniform], (70, 1))]
    parts.append(arrays["numbers"])
    for entry in pattern.entries:
        table = p[entry.start : entry.start + 4 * entry.width].reshape(4, entry.width)
        parts.append(table[arrays["indices"][:, entry.column]])
    np.testing.assert_array_equal(points, np.concatenate(parts, axis=1))


@needs_tint
def test_tint_takes_it() -> None:
    kernels = [pattern(WorkgroupTarget(256, grid=True)) for pattern in PATTERNS]
    sources = [m for k in kernels for m in print_kernel(k, Style()).modules]
    assert check_with_tint(sources) == [None] * 3
