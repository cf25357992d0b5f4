"""Programs of small hand-written modules: chunks, scratch, threads, memory, device arrays."""

from __future__ import annotations

import copy
import gc
import pickle
import resource
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import DeviceError, DeviceMemoryError, InputError, InputTypeError
from symgrad.kernel.layout import POINTS_PER_WORKGROUP, Layout
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpu import STORAGE
from symgrad.wgsl.device.gpus import Gpu, native_wgpu
from symgrad.wgsl.dispatch import points as dispatch
from symgrad.wgsl.dispatch.points import Program
from symgrad.wgsl.memory import mapping
from symgrad.wgsl.memory.encoding import Copy, NativeEncoder, PlainEncoder, Step, choose_encoder
from symgrad.wgsl.memory.mapping import PollingMapper, WaitingMapper

Poison = Callable[[Program, int], None]

PARAMS = """
struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
"""

SQUARES = (
    PARAMS
    + """
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> grads: array<f32>;
var<workgroup> tile: array<f32, 192>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {
  let base = group.x * 64u;
  let point = base + lane;
  if (point < params.count) {
    var sum = 0.0;
    for (var i = 0u; i < 3u; i++) {
      let value = x[3u * point + i];
      sum += value * value;
      tile[3u * lane + i] = 2.0 * value;
    }
    loss[point] = sum;
  }
  workgroupBarrier();
  for (var i = lane; i < 192u; i += 64u) {
    if (3u * base + i < 3u * params.count) { grads[3u * base + i] = tile[i]; }
  }
}
"""
)

STRIDE = (
    PARAMS
    + """
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> scratch: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let stride = (params.count + 63u) / 64u * 64u;
  if (id.x < params.count) {
    BODY
  }
}
"""
)
FIRST = STRIDE.replace(
    "BODY",
    "scratch[id.x] = vec4(x[id.x]); scratch[stride + id.x] = vec4(0.0, 0.0, 10.0 * x[id.x], 0.0);",
)
SECOND = STRIDE.replace("BODY", "y[id.x] = scratch[id.x].y + scratch[stride + id.x].z;")

EDGES = STRIDE.replace(
    "BODY",
    "y[3u * id.x] = params.infinity; y[3u * id.x + 1u] = params.nan;"
    "y[3u * id.x + 2u] = bitcast<f32>(params.zero);",
)

SIZES = [1, 2, 63, 64, 65, 127, 128, 129, 192, 193, 500, 640, 641]


@pytest.fixture
def squares(gpu: Gpu) -> Program:
    """Loss and gradient of a sum of squares, with stores staged through workgroup memory."""
    return Program(gpu, [SQUARES], Layout(3, (1, 3)))


@pytest.fixture
def tiny(gpu: Gpu, monkeypatch: Any) -> Program:
    """The same on a GPU whose bindings hold 128 points."""
    monkeypatch.setattr(gpu, "max_binding", 128 * 12 + 100)
    return Program(gpu, [SQUARES], Layout(3, (1, 3)))


WIDTHS = [(4, 20), (3, 16), (20, 64), (8, 124), (5, 18)]
"""Columns of points and of results, in whole fours and not, in one tile and in several."""


@pytest.mark.parametrize(("n", "width"), WIDTHS)
def test_wide_rows_arrive_whole_and_in_order(
    gpu: Gpu, poison: Callable[[Program, int], None], n: int, width: int
) -> None:
    def f(v: Any) -> Any:
        return np.array([v[c % n] * (c + 1.0) for c in range(width)])

    kernel = sg.fused_forward(n, f, device=gpu.info.index)
    program = kernel._compiled()
    for batch in (1, 63, 64, 65, 300):
        points = draw(batch, n)
        want = points[:, np.arange(width) % n] * np.arange(1.0, width + 1, dtype=np.float32)
        poison(program, batch)
        assert np.array_equal(kernel.run(points), want)
        assert np.array_equal(kernel.run(DeviceArray.from_numpy(gpu, points)).numpy(), want)


def draw(batch: int, n: int = 3) -> np.ndarray:
    """Some points."""
    return np.random.default_rng(batch).normal(size=(batch, n)).astype(np.float32)


def check(points: np.ndarray, results: list[np.ndarray]) -> None:
    """All of the results of SQUARES must be there, and in order."""
    loss, grads = results
    assert loss.shape == (len(points), 1) and grads.shape == (len(points), 3)
    np.testing.assert_allclose(loss[:, 0], (points**2).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(grads, 2 * points)


@pytest.mark.parametrize("batch", SIZES)
def test_every_batch_size(squares: Program, poison: Poison, batch: int) -> None:
    poison(squares, batch)
    check(draw(batch), squares.run(draw(batch)))


@pytest.mark.parametrize("batch", SIZES)
def test_batches_beyond_one_binding(tiny: Program, poison: Poison, batch: int) -> None:
    assert tiny.chunk == 128
    poison(tiny, batch)
    check(draw(batch), tiny.run(draw(batch)))


@pytest.mark.parametrize("batch", SIZES)
def test_device_arrays_beyond_one_binding(tiny: Program, poison: Poison, batch: int) -> None:
    poison(tiny, batch)
    there = DeviceArray.from_numpy(tiny.gpu, draw(batch))
    check(draw(batch), [result.numpy() for result in tiny.run_on_device(there)])


def test_batches_beyond_the_host_memory(squares: Program, poison: Poison, monkeypatch: Any) -> None:
    monkeypatch.setattr(dispatch, "STREAMED_BYTES", 200 * 28)
    monkeypatch.setattr(dispatch, "QUEUED_BYTES", 0)
    poison(squares, 192)
    check(draw(1000), squares.run(draw(1000)))
    assert squares._workspace and squares._workspace.capacity == 192


@pytest.mark.parametrize("written", [0, 1 << 20])
@pytest.mark.parametrize("kind", ["float64", ">f4", "int16", "float16"])
def test_points_are_rounded_on_the_way(
    squares: Program, monkeypatch: Any, kind: str, written: int
) -> None:
    monkeypatch.setattr(dispatch, "STREAMED_BYTES", 200 * 28)
    monkeypatch.setattr(dispatch, "QUEUED_BYTES", written)
    points = (8 * draw(1000)).astype(kind)
    for given in (points, np.asfortranarray(points), points[::-1][::-1]):
        check(points.astype(np.float32), squares.run(given))
    given.flags.writeable = False
    results = [np.zeros((1000, 2)), np.zeros((1000, 6))]
    into = [results[0][:, :1], results[1][:, ::2]]
    squares.run_into(given, into)
    check(points.astype(np.float32), into)
    assert not results[0][:, 1].any() and not results[1][:, 1::2].any()


def test_more_workgroups_than_one_dispatch_has(gpu: Gpu) -> None:
    source = STRIDE.replace("BODY", "y[id.x] = x[id.x] + 1.0;")
    program = Program(gpu, [source], Layout(1, (1,), scratch=1))
    batch = 65_535 * POINTS_PER_WORKGROUP + 65
    points = np.arange(batch, dtype=np.float32).reshape(-1, 1)
    there = DeviceArray.from_numpy(gpu, points)
    np.testing.assert_array_equal(program.run_on_device(there)[0].numpy(), points + 1)
    np.testing.assert_array_equal(program.run(points)[0], points + 1)


@pytest.mark.parametrize("batch", [1, 64, 65, 129, 300])
def test_scratch_carries_values_to_the_next_module(
    gpu: Gpu, poison: Poison, monkeypatch: Any, batch: int
) -> None:
    monkeypatch.setattr(gpu, "max_binding", 2 * 16 * 128)
    program = Program(gpu, [FIRST, SECOND], Layout(1, (1,), scratch=2))
    assert program.chunk == 128
    poison(program, batch)
    points = draw(batch, 1)
    np.testing.assert_allclose(program.run(points)[0], 11 * points, rtol=1e-6)
    there = DeviceArray.from_numpy(gpu, points)
    np.testing.assert_allclose(program.run_on_device(there)[0].numpy(), 11 * points, rtol=1e-6)


@pytest.fixture
def short(gpu: Gpu, monkeypatch: Any) -> Callable[[int], None]:
    """Leaves so many bytes of the GPU's memory for arrays."""

    def leave(nbytes: int) -> None:
        gpu.free()
        monkeypatch.setattr(gpu.pool, "limit", gpu.pool.live + nbytes)

    return leave


def test_host_batches_run_in_pieces_where_memory_is_short(
    squares: Program, poison: Poison, short: Any
) -> None:
    poison(squares, 2000)
    short(28 * 1024)
    check(draw(3000), squares.run(draw(3000)))
    assert squares._workspace and 256 <= squares._workspace.capacity <= 768
    short(256)
    with pytest.raises(DeviceMemoryError, match="beyond the limit"):
        squares.run(draw(3000))


def test_scratch_is_for_some_points_at_a_time_where_memory_is_short(gpu: Gpu, short: Any) -> None:
    program = Program(gpu, [FIRST, SECOND], Layout(1, (1,), scratch=2))
    points = draw(3000, 1)
    there = DeviceArray.from_numpy(gpu, points)
    short(4 * 3000 + 32 * 1024)
    result = program.run_on_device(there)[0].numpy()
    np.testing.assert_allclose(result, 11 * points, rtol=1e-6)
    assert program._scratch and 256 <= program._scratch.nbytes // 32 <= 960
    del result
    short(1024)
    with pytest.raises(DeviceMemoryError, match="beyond the limit"):
        program.run_on_device(there)


def test_other_kernels_let_go_of_what_they_keep_where_memory_is_short(
    gpu: Gpu, squares: Program, monkeypatch: Any
) -> None:
    other = Program(gpu, [SQUARES + " "], Layout(3, (1, 3)))
    other.run(draw(5000))
    monkeypatch.setattr(gpu.pool, "limit", gpu.pool.live + 28 * 2000)
    check(draw(3000), squares.run(draw(3000)))
    assert other._workspace is None and squares._workspace
    assert squares._workspace.capacity >= 3000


def test_scratch_is_bounded_on_the_device(gpu: Gpu, monkeypatch: Any) -> None:
    monkeypatch.setattr(dispatch, "SCRATCH_BYTES", 32 * 100)
    program = Program(gpu, [FIRST, SECOND], Layout(1, (1,), scratch=2))
    points = draw(777, 1)
    result = program.run_on_device(DeviceArray.from_numpy(gpu, points))[0].numpy()
    np.testing.assert_allclose(result, 11 * points, rtol=1e-6)
    assert program._scratch and program._scratch.nbytes == 32 * 64


def test_the_uniform_block(gpu: Gpu) -> None:
    program = Program(gpu, [EDGES], Layout(1, (3,), scratch=1))
    [result] = program.run(draw(2, 1))
    np.testing.assert_array_equal(result, [[np.inf, np.nan, 0]] * 2)


def test_an_empty_batch_needs_no_gpu(squares: Program, monkeypatch: Any) -> None:
    there = DeviceArray.from_numpy(squares.gpu, np.empty((0, 3)))
    monkeypatch.setattr(squares.gpu.queue, "encoder", None)
    check(draw(0), squares.run(draw(0)))
    results = squares.run_on_device(there)
    check(draw(0), [result.numpy() for result in results])


def test_results_are_fresh_writable_and_own_their_memory(squares: Program) -> None:
    first, second = squares.run(draw(70)), squares.run(draw(70))
    for one, other in zip(first, second, strict=True):
        assert one.flags.owndata and one.flags.writeable and one.flags.c_contiguous
        one[...] = 0
        assert other.any() and not np.shares_memory(one, other)
    check(draw(70), second)


def test_a_row_of_a_batch_is_the_point_alone(squares: Program) -> None:
    batch = squares.run(draw(130))
    for row in (0, 63, 64, 129):
        alone = squares.run(draw(130)[row : row + 1])
        for whole, one in zip(batch, alone, strict=True):
            np.testing.assert_array_equal(whole[row], one[0])


def test_the_same_program_again_costs_nothing(squares: Program) -> None:
    again = Program(squares.gpu, [SQUARES], Layout(3, (1, 3)))
    assert again._pipelines[0] is squares._pipelines[0]
    assert again.seconds < 0.1


def test_points_too_wide_for_a_binding(gpu: Gpu, monkeypatch: Any) -> None:
    monkeypatch.setattr(gpu, "max_binding", 64 * 12 - 4)
    with pytest.raises(DeviceError, match="764 bytes in one array, too few for 64 points"):
        Program(gpu, [SQUARES], Layout(3, (1, 3)))


def test_more_outputs_than_bindings(gpu: Gpu) -> None:
    with pytest.raises(DeviceError, match="binds 8 arrays, the kernel has 9"):
        Program(gpu, [SQUARES], Layout(3, (1,) * 8))


def test_wrong_points(squares: Program) -> None:
    with pytest.raises(InputError, match=r"expected \(B, 3\)"):
        squares.run(draw(5, 2))
    with pytest.raises(InputError, match=r"expected \(B, 3\)"):
        squares.run_on_device(DeviceArray.from_numpy(squares.gpu, draw(5, 2)))


def test_the_documented_way_of_mapping(gpu: Gpu, monkeypatch: Any) -> None:
    monkeypatch.setattr(gpu, "mapper", WaitingMapper(gpu._device))
    program = Program(gpu, [SQUARES], Layout(3, (1, 3)))
    for batch in (5, 200, 3):
        check(draw(batch), program.run(draw(batch)))
    gpu.wait()


def test_the_documented_way_of_encoding(gpu: Gpu, monkeypatch: Any) -> None:
    monkeypatch.setattr(gpu.queue, "encoder", PlainEncoder(gpu._device))
    program = Program(gpu, [SQUARES], Layout(3, (1, 3)))
    for batch in (5, 200, 3):
        check(draw(batch), program.run(draw(batch)))
    there = DeviceArray.from_numpy(gpu, draw(70))
    check(draw(70), [result.numpy() for result in program.run_on_device(there)])


def test_wgpu_without_its_c_functions_is_used_as_documented(gpu: Gpu) -> None:
    assert isinstance(choose_encoder(gpu._device, native_wgpu()), NativeEncoder)
    assert isinstance(choose_encoder(gpu._device, None), PlainEncoder)


@pytest.mark.parametrize("way", [NativeEncoder, PlainEncoder])
def test_a_mistake_in_a_step_is_an_error(gpu: Gpu, way: Any, monkeypatch: Any) -> None:
    native = [native_wgpu()] * (way is NativeEncoder)
    monkeypatch.setattr(gpu.queue, "encoder", way(gpu._device, *native))
    step = Step(gpu.pipeline(SQUARES, 2), gpu.bind(1, [(gpu.buffer(256, STORAGE), 0, 256)] * 2), 1)
    buffer = gpu.buffer(256, "COPY_SRC")
    with pytest.raises(DeviceError, match="refused"), gpu.guard:
        gpu.submit([step])
    with pytest.raises(DeviceError, match="refused"), gpu.guard:
        gpu.submit([], [Copy(buffer, 0, buffer, 128, 1024)])
    program = Program(gpu, [SQUARES], Layout(3, (1, 3)))
    check(draw(5), program.run(draw(5)))


def test_a_call_after_an_interrupted_one(squares: Program, monkeypatch: Any) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for broken in ("_poll", "unmap"):
        with monkeypatch.context() as patch:
            patch.setattr(squares.gpu.mapper, broken, interrupt)
            with pytest.raises(KeyboardInterrupt):
                squares.run(draw(5))
        check(draw(5), squares.run(draw(5)))


def test_an_interrupt_within_the_callback_is_not_lost(gpu: Gpu, monkeypatch: Any) -> None:
    class Interrupted(dict[int, Any]):
        def __setitem__(self, number: int, error: Any) -> None:
            super().__setitem__(number, error)
            if error is None and len(seen) < 1:
                seen.append(number)
                raise KeyboardInterrupt

    seen: list[int] = []
    native = native_wgpu()
    mapper = PollingMapper(gpu._device, native)
    mapper._finished = Interrupted()
    mapper._callback = mapping._map_callback(native.ffi, native.lib, mapper._finished)
    mapping._callbacks.append(mapper._callback)
    monkeypatch.setattr(gpu, "mapper", mapper)
    program = Program(gpu, [SQUARES], Layout(3, (1, 3)))
    with pytest.raises(KeyboardInterrupt):
        program.run(draw(5))
    check(draw(5), program.run(draw(5)))


def in_threads(actions: list[Callable[[], None]]) -> None:
    """Run all at once; the first failure is raised."""
    failures: list[BaseException] = []

    def guarded(action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def test_threads_share_one_program(tiny: Program) -> None:
    def work(seed: int) -> None:
        for step in range(25):
            points = draw(100 * seed + step + 1)
            check(points, tiny.run(points))
            there = DeviceArray.from_numpy(tiny.gpu, points)
            check(points, [result.numpy() for result in tiny.run_on_device(there)])

    in_threads([lambda seed=seed: work(seed) for seed in range(6)])


def test_threads_with_programs_of_their_own(gpu: Gpu) -> None:
    def work(factor: int) -> None:
        source = STRIDE.replace("BODY", f"y[id.x] = {factor}.0 * x[id.x];")
        for _ in range(4):
            program = Program(gpu, [source], Layout(1, (1,), scratch=1))
            for batch in (1, 300, 70):
                np.testing.assert_array_equal(
                    program.run(draw(batch, 1))[0], factor * draw(batch, 1)
                )

    in_threads([lambda factor=factor % 4: work(factor) for factor in range(8)])


def resident() -> int:
    """Bytes of memory that this process has now."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not hasattr(resource, "getpagesize"), reason="needs /proc")
@pytest.mark.parametrize("way", ["host", "device", "varying"])
def test_many_calls_leak_nothing(squares: Program, way: str) -> None:
    points = draw(1000)
    there = DeviceArray.from_numpy(squares.gpu, points)

    def call(step: int) -> None:
        if way == "host":
            squares.run(points)
        elif way == "device":
            squares.run_on_device(there)
        else:
            squares.run(points[: 1 + step % 999])

    def grown() -> int:
        before = resident()
        for step in range(1000):
            call(step)
        squares.gpu.wait()
        return resident() - before

    assert any(grown() < 1 << 20 for _ in range(4))  # drivers take memory once, a leak goes on


def test_programs_that_are_gone_free_their_buffers(gpu: Gpu) -> None:
    Program(gpu, [SQUARES], Layout(3, (1, 3))).run(draw(500))
    gc.collect()
    live = gpu.pool.live
    for _ in range(20):
        Program(gpu, [SQUARES], Layout(3, (1, 3))).run(draw(500))
    gc.collect()
    assert gpu.pool.live == live


def test_device_arrays_make_the_round_trip(gpu: Gpu) -> None:
    for shape in ((), (0,), (5,), (2, 3, 4), (0, 3), (70_001,)):
        data = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        there = DeviceArray.from_numpy(gpu, data)
        back = there.numpy()
        np.testing.assert_array_equal(back, data)
        assert back.flags.writeable and not np.shares_memory(back, there.numpy())
        assert (there.shape, there.dtype, there.ndim, there.size) == (
            data.shape,
            np.float32,
            data.ndim,
            data.size,
        )
        assert there.nbytes == data.nbytes and there.device == gpu.info


def test_device_arrays_take_any_real_array(gpu: Gpu) -> None:
    for data in (np.arange(12.0).reshape(3, 4).T, np.arange(5), [[1, 2], [3, 4]], 3):
        there = DeviceArray.from_numpy(gpu, np.asarray(data))
        np.testing.assert_array_equal(there.numpy(), np.asarray(data, np.float32))
        np.testing.assert_array_equal(np.asarray(there, np.float64), data)


def test_device_arrays_look_like_arrays(gpu: Gpu) -> None:
    there = DeviceArray.from_numpy(gpu, draw(4))
    assert len(there) == 4
    assert repr(there) == f"DeviceArray(shape=(4, 3), dtype=float32, device='{gpu.info}')"
    assert there.reshape(2, 6).shape == there.reshape((2, -1)).shape == (2, 6)
    assert there.reshape(-1).shape == (12,)
    assert DeviceArray.from_numpy(gpu, np.array(3)).reshape(1, 1).numpy() == [[3]]
    np.testing.assert_array_equal(there.reshape(6, -1).numpy(), draw(4).reshape(6, 2))
    for wrong in ((5,), (-1, -1), (-1, 5), (-2, -6)):
        with pytest.raises(InputError, match=r"of shape \(4, 3\) cannot be given the shape"):
            there.reshape(wrong)
    with pytest.raises(InputTypeError, match="no length"):
        len(DeviceArray.from_numpy(gpu, np.array(1)))
    with pytest.raises(InputTypeError, match="numpy"):
        pickle.dumps(there)
    np.testing.assert_array_equal(copy.deepcopy(there).numpy(), there.numpy())
    with pytest.raises(InputError, match="without a copy"):
        there.__array__(copy=False)


def test_device_arrays_are_chained_without_a_wait(squares: Program) -> None:
    points = draw(300)
    there = DeviceArray.from_numpy(squares.gpu, points)
    for _ in range(5):
        there = squares.run_on_device(there)[1]
    np.testing.assert_array_equal(there.numpy(), 32 * points)


def test_a_buffer_is_not_overwritten_before_its_last_use(squares: Program) -> None:
    there = DeviceArray.from_numpy(squares.gpu, draw(100))
    [_, grads] = squares.run_on_device(there)
    del there
    for _ in range(3):
        DeviceArray.from_numpy(squares.gpu, np.zeros((100, 3)))
    np.testing.assert_array_equal(grads.numpy(), 2 * draw(100))


def test_device_results_stay_what_they_are(squares: Program) -> None:
    kept = []
    for step in range(20):
        there = DeviceArray.from_numpy(squares.gpu, draw(200 + step))
        kept.append(squares.run_on_device(there))
        squares.run(draw(321))
    for step, results in enumerate(kept):
        check(draw(200 + step), [result.numpy() for result in results])


def test_device_arrays_of_another_gpu_are_refused(squares: Program) -> None:
    there = DeviceArray.from_numpy(squares.gpu, draw(3))
    other = copy.copy(squares.gpu)
    with pytest.raises(DeviceError, match="the points are on"):
        squares.run_on_device(DeviceArray(other, there.shape, there._storage))
