"""Programs of small hand-written modules: chunks, scratch, threads, memory, device arrays."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import random
import resource
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
from launched import Interrupted

import symgrad as sg
from symgrad.errors import DeviceError, DeviceMemoryError, InputError, InputTypeError
from symgrad.expr import ops
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.launch import BATCH, Array, Dispatch, Launch
from symgrad.kernel.skeletons.map import map_launch
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpu import STORAGE
from symgrad.wgsl.device.gpus import Gpu, native_wgpu
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.dispatch.workspace import shared_memory
from symgrad.wgsl.memory.buffers import PollingMapper, WaitingMapper
from symgrad.wgsl.memory.queue import Copy, NativeEncoder, PlainEncoder, Step
from symgrad.wgsl.printing.source import Style

pytestmark = pytest.mark.usefixtures("quick_collection")

Poison = Callable[[Launched, int], None]

PARAMS = """
struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
"""

SQUARES = (
    PARAMS
    + """
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < params.count) { y[id.x] = x[id.x] * x[id.x]; }
}
"""
)
"""A module for what encodes steps, of whatever origin."""


def launched(gpu: Gpu, f: Callable[[Any], Any], n: int, gradient: bool = False) -> Launched:
    """A function of n numbers, and its gradient if wanted, at every point of a batch."""
    verb = sg.fused_forward_backward if gradient else sg.fused_forward
    computation = verb(n, f, device="cpu")._computation
    target = WorkgroupTarget(computation.workgroup)
    return Launched(gpu, map_launch(computation, target), Style())


WIDTH = 9
"""Numbers of a point: with a gradient as long, a workgroup has as few points as there may be."""

ROW = 4 * (WIDTH + 1 + WIDTH)
"""Bytes of a point and of its results."""


def sum_of_squares(v: Any) -> Any:
    """Its gradient is stored by way of a tile of the workgroup's."""
    return v @ v


SLOTS = 256
"""Numbers of an invocation that stand in scratch memory."""


@dataclass(frozen=True)
class Kept:
    """Eleven times each point, by way of an array of the invocation's own."""

    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        k = KernelIR(target, "kept")
        x, y = k.buffer("x", "read"), k.buffer("y", "write")
        own = k.buffer("own", "own", size=SLOTS)
        value = k.load(x, k.target.point(k))

        def keep(j: int, _: list[int]) -> list[int]:
            k.store(own, j, k.add(ops.mul, value, k.constant(10.0)))
            return []

        k.loop(k.word(0), k.word(SLOTS), [], keep)
        last = k.load(own, k.add(ops.word_and, k.local, k.word(SLOTS // 2 - 1)))
        inside = k.add(ops.word_lt, k.cell, k.count)
        k.when(inside, lambda: k.store(y, k.cell, k.add(ops.add, value, last)))
        return k


def kept(gpu: Gpu) -> Launched:
    """A launch that needs scratch memory for each of its points."""
    arrays = ("x", "x"), ("y", "y")
    dispatch = Dispatch(Kept(), WorkgroupTarget(), arrays, BATCH)
    x, y = (Array(name, (BATCH, 1)) for name in "xy")
    return Launched(gpu, Launch("kept", (x,), (y,), (), (dispatch,)), Style())


SIZES = [1, 2, 63, 64, 65, 127, 128, 129, 192, 193, 500, 640, 641]


@pytest.fixture
def squares(gpu: Gpu) -> Launched:
    """Loss and gradient of a sum of squares, with stores staged through workgroup memory."""
    return squares_on(gpu)


def squares_on(gpu: Gpu) -> Launched:
    return launched(gpu, sum_of_squares, WIDTH, gradient=True)


@pytest.fixture
def tiny(own_gpu: Gpu) -> Launched:
    """The same on a GPU whose bindings hold 128 points."""
    own_gpu.max_binding = 4 * WIDTH * 128 + 100
    return squares_on(own_gpu)


WIDTHS = [(4, 20), (3, 16), (20, 64), (8, 124), (5, 18)]
"""Columns of points and of results, in whole fours and not, in one tile and in several."""


@pytest.mark.parametrize(("n", "width"), WIDTHS)
def test_wide_rows_arrive_whole_and_in_order(
    gpu: Gpu, poison: Callable[[Launched, int], None], n: int, width: int
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


def draw(batch: int, n: int = WIDTH) -> np.ndarray:
    """Some points."""
    return np.random.default_rng(batch).normal(size=(batch, n)).astype(np.float32)


def check(points: np.ndarray, results: list[np.ndarray]) -> None:
    """All of the results of SQUARES must be there, and in order."""
    loss, grads = results
    assert loss.shape == (len(points), 1) and grads.shape == (len(points), WIDTH)
    np.testing.assert_allclose(loss[:, 0], (points**2).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(grads, 2 * points)


@pytest.mark.parametrize("batch", SIZES)
def test_every_batch_size(squares: Launched, poison: Poison, batch: int) -> None:
    poison(squares, batch)
    check(draw(batch), squares.run(draw(batch)))


@pytest.mark.parametrize("batch", SIZES)
def test_batches_beyond_one_binding(tiny: Launched, poison: Poison, batch: int) -> None:
    assert tiny.chunk == 128
    poison(tiny, batch)
    check(draw(batch), tiny.run(draw(batch)))


@pytest.mark.parametrize("batch", SIZES)
def test_device_arrays_beyond_one_binding(tiny: Launched, poison: Poison, batch: int) -> None:
    poison(tiny, batch)
    there = DeviceArray.from_numpy(tiny.gpu, draw(batch))
    check(draw(batch), [result.numpy() for result in tiny.run(there)])


def test_batches_beyond_the_host_memory(own_gpu: Gpu, poison: Poison) -> None:
    own_gpu.streamed_bytes, own_gpu.queued_bytes = 200 * ROW, 0
    squares = squares_on(own_gpu)
    poison(squares, 192)
    check(draw(1000), squares.run(draw(1000)))
    assert own_gpu.pool.live <= 2 * 192 * ROW


@pytest.mark.parametrize("written", [0, 1 << 20])
@pytest.mark.parametrize("kind", ["float64", ">f4", "int16", "float16"])
def test_points_are_rounded_on_the_way(own_gpu: Gpu, kind: str, written: int) -> None:
    own_gpu.streamed_bytes, own_gpu.queued_bytes = 200 * ROW, written
    squares = squares_on(own_gpu)
    points = (8 * draw(1000)).astype(kind)
    for given in (points, np.asfortranarray(points), points[::-1][::-1]):
        check(points.astype(np.float32), squares.run(given))
    given.flags.writeable = False
    results = [np.zeros((1000, 2)), np.zeros((1000, 2 * WIDTH))]
    into = [results[0][:, :1], results[1][:, ::2]]
    squares.bind([given], into)()
    check(points.astype(np.float32), into)
    assert not results[0][:, 1].any() and not results[1][:, 1::2].any()


def test_more_workgroups_than_one_dispatch_has(gpu: Gpu) -> None:
    program = launched(gpu, lambda v: v[0] + 1.0, 1)
    batch = 65_535 * program._dispatches[0][1].printed.width + 65
    points = np.arange(batch, dtype=np.float32).reshape(-1, 1)
    there = DeviceArray.from_numpy(gpu, points)
    np.testing.assert_array_equal(program.run(there)[0].numpy(), points + 1)
    np.testing.assert_array_equal(program.run(points)[0], points + 1)


@pytest.mark.parametrize("batch", [1, 64, 65, 129, 300])
def test_scratch_memory_is_of_each_point(own_gpu: Gpu, poison: Poison, batch: int) -> None:
    own_gpu.max_binding = 4 * SLOTS * 128
    program = kept(own_gpu)
    assert program.chunk == 128
    poison(program, batch)
    points = draw(batch, 1)
    np.testing.assert_allclose(program.run(points)[0], 11 * points, rtol=1e-6)
    there = DeviceArray.from_numpy(own_gpu, points)
    np.testing.assert_allclose(program.run(there)[0].numpy(), 11 * points, rtol=1e-6)


def leave(gpu: Gpu, nbytes: int) -> None:
    """Leave so many bytes of the GPU's memory for arrays."""
    gpu.free()
    gpu.pool.limit = gpu.pool.live + nbytes


def test_host_batches_run_in_pieces_where_memory_is_short(own_gpu: Gpu, poison: Poison) -> None:
    squares = squares_on(own_gpu)
    poison(squares, 2000)
    leave(own_gpu, ROW * 1024)
    check(draw(3000), squares.run(draw(3000)))
    assert 256 * ROW <= own_gpu.pool.live <= 2 * 768 * ROW
    leave(own_gpu, 256)
    with pytest.raises(DeviceMemoryError, match="beyond the limit"):
        squares.run(draw(3000))


def test_scratch_is_for_some_points_at_a_time_where_memory_is_short(own_gpu: Gpu) -> None:
    program = kept(own_gpu)
    points = draw(3000, 1)
    there = DeviceArray.from_numpy(own_gpu, points)
    leave(own_gpu, 4 * 3000 + 4 * SLOTS * 1024)
    result = program.run(there)[0].numpy()
    np.testing.assert_allclose(result, 11 * points, rtol=1e-6)
    del result
    leave(own_gpu, 1024)
    with pytest.raises(DeviceMemoryError, match="beyond the limit"):
        program.run(there)


def test_other_kernels_let_go_of_what_they_keep_where_memory_is_short(own_gpu: Gpu) -> None:
    squares, other = squares_on(own_gpu), squares_on(own_gpu)
    other.run(draw(5000))
    assert own_gpu.pool.live >= ROW * 5000
    own_gpu.pool.limit = ROW * 7000
    check(draw(3000), squares.run(draw(3000)))
    assert ROW * 3000 <= own_gpu.pool.live < ROW * 5000


def test_scratch_is_bounded_on_the_device(own_gpu: Gpu) -> None:
    own_gpu.scratch_bytes = 4 * SLOTS * 100
    program = kept(own_gpu)
    points = draw(777, 1)
    result = program.run(DeviceArray.from_numpy(own_gpu, points))[0].numpy()
    np.testing.assert_allclose(result, 11 * points, rtol=1e-6)
    assert program.chunk == 64


def test_an_empty_batch_needs_no_gpu(own_gpu: Gpu) -> None:
    squares = squares_on(own_gpu)
    there = DeviceArray.from_numpy(own_gpu, np.empty((0, WIDTH)))
    own_gpu.queue.encoder = cast(Any, None)
    check(draw(0), squares.run(draw(0)))
    results = squares.run(there)
    check(draw(0), [result.numpy() for result in results])


def test_results_are_fresh_writable_and_own_their_memory(squares: Launched) -> None:
    first, second = squares.run(draw(70)), squares.run(draw(70))
    for one, other in zip(first, second, strict=True):
        assert one.flags.owndata and one.flags.writeable and one.flags.c_contiguous
        one[...] = 0
        assert other.any() and not np.shares_memory(one, other)
    check(draw(70), second)


def test_a_row_of_a_batch_is_the_point_alone(squares: Launched) -> None:
    batch = squares.run(draw(130))
    for row in (0, 63, 64, 129):
        alone = squares.run(draw(130)[row : row + 1])
        for whole, one in zip(batch, alone, strict=True):
            np.testing.assert_array_equal(whole[row], one[0])


def test_the_same_program_again_costs_nothing(squares: Launched) -> None:
    again = launched(squares.gpu, sum_of_squares, WIDTH, gradient=True)
    assert again._dispatches[0][1].pipelines[0] is squares._dispatches[0][1].pipelines[0]
    assert again.seconds < 0.1


def test_points_too_wide_for_a_binding(own_gpu: Gpu) -> None:
    own_gpu.max_binding = 4 * WIDTH * 64 - 4
    with pytest.raises(DeviceError, match="2,300 bytes in one array, too few for 64 points"):
        squares_on(own_gpu)


def test_more_outputs_than_bindings(gpu: Gpu) -> None:
    computation = sg.fused_forward(WIDTH, sum_of_squares, device="cpu")._computation
    (output,) = computation.outputs
    outputs = tuple(replace(output, name=f"y{k}") for k in range(8))
    launch = map_launch(replace(computation, outputs=outputs), WorkgroupTarget())
    with pytest.raises(DeviceError, match="binds 8 arrays, the kernel has 9"):
        Launched(gpu, launch, Style())


def test_wgpu_without_its_c_functions_is_used_as_documented(plain_gpu: Gpu, gpu: Gpu) -> None:
    assert isinstance(gpu.encoder, NativeEncoder) and isinstance(gpu.mapper, PollingMapper)
    assert isinstance(plain_gpu.encoder, PlainEncoder)
    assert isinstance(plain_gpu.mapper, WaitingMapper)
    program = squares_on(plain_gpu)
    for batch in (5, 200, 3):
        check(draw(batch), program.run(draw(batch)))
    there = DeviceArray.from_numpy(plain_gpu, draw(70))
    check(draw(70), [result.numpy() for result in program.run(there)])
    plain_gpu.wait()


@pytest.mark.parametrize("way", ["gpu", "plain_gpu"])
def test_modules_that_are_wrong_are_refused(way: str, request: pytest.FixtureRequest) -> None:
    """Whether wgpu trusts them or not, naga says where."""
    gpu: Gpu = request.getfixturevalue(way)
    with pytest.raises(DeviceError, match=r"(?s)`missing`.*wgsl:1:21"):
        gpu.pipeline("fn main() { let x = missing; }", 1)


@pytest.mark.parametrize("way", ["own_gpu", "plain_gpu"])
def test_a_mistake_in_a_step_is_an_error(way: str, request: pytest.FixtureRequest) -> None:
    gpu: Gpu = request.getfixturevalue(way)
    step = Step(gpu.pipeline(SQUARES, 2), gpu.bind(1, [(gpu.buffer(256, STORAGE), 0, 256)] * 2), 1)
    buffer = gpu.buffer(256, "COPY_SRC")
    with pytest.raises(DeviceError, match="refused"), gpu.guard:
        gpu.submit([step])
    with pytest.raises(DeviceError, match="refused"), gpu.guard:
        gpu.submit([Copy(buffer, 0, buffer, 128, 1024)])
    program = squares_on(gpu)
    check(draw(5), program.run(draw(5)))


@pytest.mark.parametrize("way", ["own_gpu", "plain_gpu"])
def test_steps_say_where_arrays_stand(way: str, request: pytest.FixtureRequest) -> None:
    gpu: Gpu = request.getfixturevalue(way)
    x, y = (DeviceArray.from_numpy(gpu, draw(192)[:, 0]) for _ in range(2))
    ranges = [(*a.place, 256) for a in (x, y)]
    pipeline = gpu.pipeline(SQUARES, 1, 1, moving=(0, 1))
    bindings = gpu.bind(64, ranges, 1, moving=(0, 1))
    with gpu.guard:
        gpu.submit([Step(pipeline, bindings, 1, 1, o) for o in ((512, 0), (0, 256), (256, 512))])
    parts = np.split(x.numpy(), 3)
    np.testing.assert_array_equal(y.numpy(), np.concatenate([parts[2], *parts[:2]]) ** 2)
    with pytest.raises(DeviceError, match="refused"), gpu.guard:
        gpu.submit([Step(pipeline, bindings, 1, 1, (0, 1 << 20))])


@pytest.mark.parametrize("broken", ["map", "unmap"])
def test_a_call_after_an_interrupted_one(own_gpu: Gpu, broken: str) -> None:
    own_gpu.mapper = cast(Any, Interrupted(own_gpu.mapper, broken))
    squares = squares_on(own_gpu)
    with pytest.raises(KeyboardInterrupt):
        squares.run(draw(5))
    check(draw(5), squares.run(draw(5)))


def test_an_interrupt_within_the_callback_is_not_lost(own_gpu: Gpu) -> None:
    class Ends(dict[int, Any]):
        def __setitem__(self, number: int, error: Any) -> None:
            super().__setitem__(number, error)
            if error is None and len(seen) < 1:
                seen.append(number)
                raise KeyboardInterrupt

    seen: list[int] = []
    own_gpu.mapper = PollingMapper(own_gpu.device, native_wgpu(), Ends())
    program = squares_on(own_gpu)
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


def test_threads_share_one_program(tiny: Launched) -> None:
    def work(seed: int) -> None:
        for step in range(25):
            points = draw(100 * seed + step + 1)
            check(points, tiny.run(points))
            there = DeviceArray.from_numpy(tiny.gpu, points)
            check(points, [result.numpy() for result in tiny.run(there)])

    in_threads([lambda seed=seed: work(seed) for seed in range(6)])


def test_threads_with_programs_of_their_own(gpu: Gpu) -> None:
    def work(factor: int) -> None:
        for _ in range(4):
            program = launched(gpu, lambda v: v[0] * float(factor), 1)
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
def test_many_calls_leak_nothing(squares: Launched, way: str) -> None:
    points = draw(1000)
    there = DeviceArray.from_numpy(squares.gpu, points)

    def call(step: int) -> None:
        if way == "host":
            squares.run(points)
        elif way == "device":
            squares.run(there)
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
    launched(gpu, sum_of_squares, WIDTH, gradient=True).run(draw(500))
    gc.collect()
    live = gpu.pool.live
    for _ in range(20):
        launched(gpu, sum_of_squares, WIDTH, gradient=True).run(draw(500))
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
    there = DeviceArray.from_numpy(gpu, draw(4, 3))
    assert len(there) == 4
    assert repr(there) == f"DeviceArray(shape=(4, 3), dtype=float32, device='{gpu.info}')"
    assert there.reshape(2, 6).shape == there.reshape((2, -1)).shape == (2, 6)
    assert there.reshape(-1).shape == (12,)
    assert DeviceArray.from_numpy(gpu, np.array(3)).reshape(1, 1).numpy() == [[3]]
    np.testing.assert_array_equal(there.reshape(6, -1).numpy(), draw(4, 3).reshape(6, 2))
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


def test_device_arrays_are_chained_without_a_wait(squares: Launched) -> None:
    points = draw(300)
    there = DeviceArray.from_numpy(squares.gpu, points)
    for _ in range(5):
        there = squares.run(there)[1]
    np.testing.assert_array_equal(there.numpy(), 32 * points)


def test_a_buffer_is_not_overwritten_before_its_last_use(squares: Launched) -> None:
    there = DeviceArray.from_numpy(squares.gpu, draw(100))
    [_, grads] = squares.run(there)
    del there
    for _ in range(3):
        DeviceArray.from_numpy(squares.gpu, np.zeros((100, WIDTH)))
    np.testing.assert_array_equal(grads.numpy(), 2 * draw(100))


def test_device_results_stay_what_they_are(squares: Launched) -> None:
    kept = []
    for step in range(20):
        there = DeviceArray.from_numpy(squares.gpu, draw(200 + step))
        kept.append(squares.run(there))
        squares.run(draw(321))
    for step, results in enumerate(kept):
        check(draw(200 + step), [result.numpy() for result in results])


def test_device_arrays_of_another_gpu_are_refused(squares: Launched) -> None:
    there = DeviceArray.from_numpy(squares.gpu, draw(3))
    other = copy.copy(squares.gpu)
    with pytest.raises(DeviceError, match="x is on"):
        squares.run(DeviceArray(other, there.shape, there._storage))


@pytest.mark.parametrize("seed", range(20))
def test_arrays_share_memory_only_while_the_other_is_not_in_use(seed: int) -> None:
    draw = random.Random(seed)
    nbytes = {f"s{k}": draw.choice([0, 4, 64, 1000]) for k in range(12)}
    uses = [draw.sample([*nbytes, "x", "y"], draw.randint(1, 4)) for _ in range(25)]
    parts, sizes = shared_memory(uses, nbytes)
    used = {name for names in uses for name in names}
    assert parts.keys() == {name for name, n in nbytes.items() if n and name in used}
    assert all(nbytes[name] <= sizes[part] for name, part in parts.items())
    times = {name: [k for k, names in enumerate(uses) if name in names] for name in parts}
    for a, b in itertools.combinations(parts, 2):
        if parts[a] == parts[b]:
            assert times[a][-1] < times[b][0] or times[b][-1] < times[a][0]
    assert sum(sizes) <= sum(nbytes[name] for name in parts)
