"""Kernels of the language as WGSL: what they compute, what a person reads, what front ends take."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalog import loops
from drafts import KERNELS, POINTS, Draft, columns_of, tape
from poison import is_poison
from reference_kernels import compute
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.errors import DeviceError
from symgrad.expr import ops
from symgrad.expr.tracing.trace import trace
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import BOUND
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.launch import BATCH, Array, Dispatch, Launch
from symgrad.kernel.passes.split import split
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.skeletons.map import map_launch
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.printing import printer
from symgrad.wgsl.printing.printer import print_kernel, print_map
from symgrad.wgsl.printing.source import Printed, Style

every = pytest.mark.parametrize("build", KERNELS, ids=lambda build: build.__name__)


def printed(kernel: KernelIR, comments: bool = True) -> Printed:
    verify(kernel)
    return print_kernel(kernel, Style(comments=comments))


def launched(gpu: Gpu, kernel: KernelIR, columns: int = 3) -> Launched:
    """A kernel over points of so many columns, compiled."""
    x, names = Array("x", (BATCH, columns)), (b.name for b in kernel.buffers if b.space in BOUND)
    arrays = tuple(zip(names, "xy", strict=True))
    dispatch = Dispatch(lambda _: kernel, kernel.target, arrays, BATCH)
    y = Array("y", (BATCH, columns_of(kernel)))
    return Launched(gpu, Launch("points", (x,), (y,), (), (dispatch,)), Style())


def run(gpu: Gpu, kernel: KernelIR, points: np.ndarray) -> np.ndarray:
    """What the GPU makes of a kernel."""
    return launched(gpu, kernel, points.shape[1]).run(points)[0]


def reference(kernel: KernelIR, points: np.ndarray) -> np.ndarray:
    """What it means, in float32 as well, as words depend on rounding."""
    y = np.full((len(points), columns_of(kernel)), np.nan, np.float32)
    execute(kernel, {"x": points, "y": y}, len(points), dtype=np.float32)
    return y


@every
def test_a_gpu_computes_what_numpy_does(build: Callable[[], KernelIR], gpu: Gpu) -> None:
    found = run(gpu, build(), POINTS)
    assert not is_poison(found).any()
    np.testing.assert_allclose(found, reference(build(), POINTS), rtol=2e-5, atol=2e-6)


@every
def test_a_point_alone_has_the_bits_that_it_has_in_a_batch(
    build: Callable[[], KernelIR], gpu: Gpu
) -> None:
    if any(b.space == "group" for b in build().buffers):
        pytest.skip("points of a workgroup know of each other")
    np.testing.assert_array_equal(
        run(gpu, build(), POINTS[70:71])[0], run(gpu, build(), POINTS)[70]
    )


def test_golden() -> None:
    """What has been read and found good; SYMGRAD_UPDATE_GOLDEN=1 rewrites it, to be read again."""
    kernel = loops()[0].make(device="cpu")
    path = Path(__file__).parents[1] / "golden" / "runge_kutta.wgsl"
    if os.environ.get("SYMGRAD_UPDATE_GOLDEN"):
        path.write_text(kernel.wgsl, "utf-8")
    assert kernel.wgsl == path.read_text("utf-8")


@needs_tint
def test_tint_takes_every_kernel(monkeypatch: Any) -> None:
    sources = [source for build in KERNELS for source in printed(build()).modules]
    monkeypatch.setattr(printer, "split", lambda kernel: split(kernel, 6))
    sources += [source for build in KERNELS for source in set(printed(build()).modules)]
    assert [v for v in check_with_tint(sources) if v] == []


def test_a_map_is_what_its_computation_says(gpu: Gpu) -> None:
    traced = trace(lambda v: (v[0] * sg.exp(v[1]), v[0] / v[1], v[1]), 2)
    one, *others = traced.outputs
    outputs = Output("one", (one,)), Output("others", tuple(others))
    computation = Computation("f", traced.graph, outputs)
    found = print_map(computation, Style(title="a map"))
    assert found.modules[0].startswith(
        "// a map\n// in: x (B, 2); out: one (B, 1), others (B, 2); float32, C order"
    )
    launch = map_launch(computation, WorkgroupTarget(computation.workgroup))
    got = Launched(gpu, launch, Style(title="a map")).run(POINTS[:, :2])
    want = compute(computation, POINTS[:, :2])
    np.testing.assert_allclose(np.concatenate(got, axis=1), want, rtol=1e-6)


def test_scratch_memory_is_bounded(own_gpu: Gpu) -> None:
    kernel, source = tape(200)(), printed(tape(200)())
    own_gpu.scratch_bytes = 70 * 800
    bounded = launched(own_gpu, kernel)
    assert (source.slots, bounded.chunk) == (200, 64)
    want = reference(kernel, POINTS)
    np.testing.assert_allclose(bounded.run(POINTS)[0], want, rtol=2e-5, atol=2e-6)
    on_device = bounded.run(DeviceArray.from_numpy(own_gpu, POINTS))[0]
    np.testing.assert_array_equal(on_device.numpy(), bounded.run(POINTS)[0])


def test_a_point_whose_arrays_no_binding_holds_is_refused(own_gpu: Gpu) -> None:
    own_gpu.max_binding = 63 * 800
    with pytest.raises(DeviceError, match="too few for 64 points"):
        launched(own_gpu, tape(200)())


@every
def test_kernels_in_several_dispatches_give_the_same_numbers(
    build: Callable[[], KernelIR], gpu: Gpu, monkeypatch: Any
) -> None:
    """The same bits, but where a driver adds in another order in one alone, as WGSL allows.

    Terms are below 8 where sums cancel: an ulp of these.
    """
    want, reordered = run(gpu, build(), POINTS), gpu.info.kind != "software"
    monkeypatch.setattr(printer, "split", lambda kernel: split(kernel, 6))
    found = run(gpu, build(), POINTS)
    np.testing.assert_allclose(found, want, rtol=1e-6 * reordered, atol=2.0**-21 * reordered)


def counting(iterations: int, bounded: bool) -> KernelIR:
    """A loop that counts its iterations, within one of three; of bounds that are known, or not."""
    d = Draft(1)
    k = d.k
    size = k.word(iterations)
    if not bounded:
        size = k.add(ops.nearest_word, k.add(ops.mul, d.x[0], k.constant(float(iterations))))

    def add(_: int, c: list[int]) -> list[int]:
        return [k.add(ops.add, c[0], k.constant(1.0))]

    def many(_: int, c: list[int]) -> list[int]:
        return k.loop(k.word(0), size, c, add)[0]

    return d.store(k.loop(k.word(0), k.word(3), [k.constant(0.0)], many)[0][0])


def test_no_turn_is_lost_where_a_driver_ends_loops(gpu: Gpu) -> None:
    found = run(gpu, counting(50_000, bounded=True), np.ones((70, 3), np.float32))
    np.testing.assert_array_equal(found, np.full((70, 1), 150_000.0))


@pytest.mark.parametrize("iterations", [70_000, None])
def test_loops_that_a_driver_would_end_are_refused(gpu: Gpu, iterations: int | None) -> None:
    kernel = counting(iterations or 5, bounded=iterations is not None)
    if gpu.info.iterations is None:
        assert launched(gpu, kernel)
        return
    with pytest.raises(DeviceError, match=r"ends the loops of a kernel .*max_steps="):
        launched(gpu, kernel)


def test_results_go_through_a_tile_where_they_take_the_time(gpu: Gpu) -> None:
    few, many = (printed(nested(iterations)).modules[0] for iterations in (4, 40))
    assert "tile[local * 3u + 2u] = " in few
    assert "tile" not in many
    assert "y[cell * 3u + 2u] = " in many
    np.testing.assert_array_equal(
        run(gpu, nested(40), POINTS)[:, 2], 40 + run(gpu, nested(4), POINTS)[:, 2] - 4
    )


def nested(iterations: int) -> KernelIR:
    """Two of an invocation's numbers, and how often it turned in a loop."""
    d = Draft(3)
    results, count = d.k.loop(d.k.word(0), d.k.word(2 * iterations), d.x[:1], lambda _, c: c)
    return d.store(results[0], d.x[1], d.k.add(ops.word_div, count, d.k.word(2)))
