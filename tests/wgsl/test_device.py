"""Which GPUs are listed, and how what goes wrong with one is reported."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from launched import Full

import symgrad as sg
from symgrad.errors import DeviceError, DeviceLostError, DeviceMemoryError
from symgrad.kernel.host.memory import in_pieces
from symgrad.wgsl.device.adapters import FLOAT64_FEATURES, LIMITS, choose, limits
from symgrad.wgsl.device.gpu import IDLE_PIPELINES
from symgrad.wgsl.device.gpus import Gpu, list_gpus, open_gpu
from symgrad.wgsl.memory.buffers import (
    IDLE_BYTES,
    KEEP_SECONDS,
    Pool,
    Storage,
    rounded,
    rounded_down,
)

pytestmark = pytest.mark.usefixtures("quick_collection")

MODULE = """
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = 1.0; }
"""


def adapter(
    name: str, kind: str, backend: str, features: Sequence[str] = (), **changed: int
) -> Any:
    """What wgpu says about an adapter."""
    info = {"device": name, "adapter_type": kind, "backend_type": backend}
    changes = {key.replace("_", "-"): value for key, value in changed.items()}
    return SimpleNamespace(info=info, limits=LIMITS | changes, features={*features})


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in another process, which must not hang."""
    env = os.environ | environment
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=env
    )


def test_adapters_are_listed_once_real_ones_first() -> None:
    found = choose(
        [
            adapter("llvmpipe (LLVM 15)", "CPU", "Vulkan"),
            adapter("NVIDIA H200", "DiscreteGPU", "Vulkan"),
            adapter("NVIDIA H200", "DiscreteGPU", "Vulkan"),
            adapter("NVIDIA H200 (D3D)", "Unknown", "D3D12"),
            adapter("Iris", "IntegratedGPU", "D3D12"),
            adapter("NVIDIA H200/PCIe/SSE2", "Unknown", "OpenGL"),
            adapter("llvmpipe (LLVM 15)", "CPU", "OpenGL"),
        ]
    )
    assert [(i.index, i.name, i.kind, i.backend) for i, _ in found] == [
        (0, "NVIDIA H200", "discrete", "Vulkan"),
        (1, "NVIDIA H200", "discrete", "Vulkan"),
        (2, "Iris", "integrated", "D3D12"),
        (3, "llvmpipe (LLVM 15)", "software", "Vulkan"),
    ]
    assert [str(info) for info, _ in found[:3]] == [
        "NVIDIA H200 #1 (discrete, Vulkan)",
        "NVIDIA H200 #2 (discrete, Vulkan)",
        "Iris (integrated, D3D12)",
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"max_compute_workgroup_storage_size": 8192},
        {"max_storage_buffers_per_shader_stage": 4},
        {"min_storage_buffer_offset_alignment": 512},
    ],
)
def test_an_adapter_below_the_default_limits_is_left_out(changed: dict[str, int]) -> None:
    assert choose([adapter("old", "DiscreteGPU", "Vulkan", (), **changed)]) == ()


def test_limits_are_the_default_ones_with_sane_sizes() -> None:
    own = adapter("new", "DiscreteGPU", "Vulkan", max_buffer_size=1 << 63)
    own.limits["max-storage-buffer-binding-size"] = (1 << 32) - 4
    own.limits["max-compute-workgroup-storage-size"] = 49_152
    changed = {k: v for k, v in limits(own).items() if v != LIMITS[k]}
    assert changed == {
        "max-buffer-size": 1 << 40,
        "max-storage-buffer-binding-size": 1 << 31,
        "max-compute-workgroup-storage-size": 32_768,
    }


@pytest.mark.parametrize(("shared", "has"), [(16_384, False), (49_152, True)])
def test_float64_takes_features_and_memory_for_groups(shared: int, has: bool) -> None:
    own = adapter(
        "new", "DiscreteGPU", "Vulkan", FLOAT64_FEATURES, max_compute_workgroup_storage_size=shared
    )
    ((info, _),) = choose([own])
    assert info.float64 is has
    assert limits(own)["max-compute-workgroup-storage-size"] == (32_768 if has else 16_384)
    lacks = adapter(
        "old", "DiscreteGPU", "Vulkan", FLOAT64_FEATURES[:1],
        max_compute_workgroup_storage_size=49_152,
    )  # fmt: skip
    assert not choose([lacks])[0][0].float64


def test_gpus_are_opened_once(gpu: Gpu) -> None:
    assert list_gpus() is not list_gpus() and list_gpus() == list_gpus()
    assert open_gpu() is open_gpu(0) is gpu
    assert gpu.info == list_gpus()[0]
    assert gpu.max_binding >= 1 << 27


def test_a_device_has_the_default_limits(gpu: Gpu) -> None:
    own = gpu.device.limits
    assert own["max-compute-workgroup-storage-size"] == gpu.max_shared
    assert 16_384 * (1 + gpu.info.float64) <= gpu.max_shared <= 32_768
    assert own["max-storage-buffers-per-shader-stage"] == 8


@pytest.mark.parametrize("index", [-1, 99])
def test_an_unknown_index_is_refused(gpu: Gpu, index: int) -> None:
    with pytest.raises(DeviceError, match=f"there is no GPU {index}: 0 is "):
        open_gpu(index)


def test_a_machine_without_a_gpu_lists_none() -> None:
    code = """
import symgrad.wgsl.device.gpus as device
device.choose = lambda adapters: ()
assert device.list_gpus() == ()
try:
    device.open_gpu()
except device.DeviceError as error:
    print(error)
"""
    done = python(code)
    assert done.stdout.startswith("no GPU found (wgpu found no adapter): use device="), done.stderr


def test_without_wgpu_there_is_no_gpu() -> None:
    code = """
import sys; sys.modules["wgpu"] = None
import symgrad.wgsl.device.gpus as device
assert device.list_gpus() == ()
try:
    device.open_gpu()
except device.DeviceError as error:
    print(error)
"""
    done = python(code)
    assert "ModuleNotFoundError" in done.stdout and "device=" in done.stdout, done.stderr


def test_drivers_say_nothing_on_the_terminal(gpu: Gpu) -> None:
    code = """
import os
import symgrad as sg
print(sg.fused_forward(1, lambda v: v[0] + 1, device="gpu").run([1.0]))
assert "NODEVICE_SELECT" not in os.environ
"""
    done = python(code, XDG_RUNTIME_DIR="")
    assert (done.stdout, done.stderr) == ("2.0\n", "")


def test_a_gpu_works_where_no_code_is_compiled_for_the_host(gpu: Gpu) -> None:
    """Where LLVM compiles for another CPU than this machine's, steps are encoded by Python."""
    code = """
import symgrad as sg
from symgrad.wgsl.device.gpus import open_gpu
print(sg.fused_forward(1, lambda v: v[0] + 1, device="gpu").run([1.0]))
print(type(open_gpu().encoder).__name__)
"""
    foreign = "neoverse-n1" if platform.machine() in ("x86_64", "AMD64") else "haswell"
    done = python(code, SYMGRAD_CPU=foreign)
    assert done.stdout == "2.0\nPlainEncoder\n", done.stderr


def test_gpus_are_looked_for_once(gpu: Gpu) -> None:
    code = """
import symgrad as sg
fit = lambda x, a, b: a * sg.exp(-b * x)
sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu").run([1.0, 2.0])
sg.fit_many(fit, [0.0, 1.0, 2.0], [[3.0, 2.0, 1.0]], [1.0, 1.0], device="cpu")
import sys
assert "wgpu" not in sys.modules
from symgrad.wgsl.device import gpus as device
found, asked = device._enumerate, []
device._enumerate = lambda: asked.append(1) or found()
for _ in range(3):
    sg.devices()
    sg.fused_forward(1, lambda v: v[0] + 1).run([1.0])
print(len(asked))
"""
    done = python(code)
    assert done.stdout == "1\n", done.stderr


def test_importing_loads_no_wgpu() -> None:
    done = python("import symgrad.wgsl.dispatch.launch, sys; assert 'wgpu' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_a_pipeline_is_compiled_once(gpu: Gpu) -> None:
    assert gpu.pipeline(MODULE, 1) is gpu.pipeline(MODULE, 1)
    assert gpu.pipeline(MODULE, 2) is not gpu.pipeline(MODULE, 1)


def test_kernels_that_are_dropped_leave_nothing_behind(gpu: Gpu) -> None:
    """A few pipelines aside, which are kept: each has some half a MiB of a driver's memory."""
    assert IDLE_PIPELINES <= 64

    def points(k: int) -> None:
        sg.fused_forward_backward(2, lambda v: v[0] * v[1] + k, device="gpu").run(np.ones((3, 2)))

    def rows(k: int) -> None:
        kernel = sg.fused_forward_backward(2, lambda p, r: p[0] * r[0] + k, row=1, device="gpu")
        kernel.run([1.0, 2.0], np.ones((4, 1)))

    def alive() -> Counter[str]:
        for k in range(IDLE_PIPELINES):  # they take the places of others
            gpu.pipeline(f"{MODULE}// {k}", 1)
        gc.collect()
        gpu.free()  # what is kept for whichever kernels come next
        return Counter(type(item).__name__ for item in gpu.kept)

    for make in (points, rows):
        for k in range(8):
            make(k)
        before = alive()
        for k in range(8, 14):
            make(k)
        assert alive() - before == Counter()  # kernels of other tests may be dropped meanwhile


def test_pipelines_of_living_kernels_are_shared(gpu: Gpu) -> None:
    def pipelines() -> list[object]:
        return [gpu.pipeline(f"{MODULE}// {k}", 1) for k in range(IDLE_PIPELINES + 2)]

    held = pipelines()
    assert pipelines() == held


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("fn main( {", "expected identifier"),
        ("@compute @workgroup_size(1) fn main() { let a: f32 = 1u; }", "expected to be `f32`"),
        ("@compute @workgroup_size(1) fn other() { }", "Unable to find entry point 'main'"),
        (MODULE.replace("binding(2)", "binding(7)"), "not available in the pipeline layout"),
        (MODULE.replace("size(64)", "size(257)"), "total invocations"),
    ],
)
def test_a_refused_kernel_says_why(gpu: Gpu, source: str, message: str) -> None:
    with pytest.raises(DeviceError, match="a bug of symgrad") as caught:
        gpu.pipeline(source, 1)
    assert message in str(caught.value)
    gpu.check()


def test_too_much_memory_is_refused_before_wgpu_is_asked(gpu: Gpu) -> None:
    with pytest.raises(DeviceMemoryError, match="run fewer points at a time"):
        gpu.storage(gpu.max_buffer + 4)
    assert isinstance(gpu.storage(1), Storage)


def test_a_full_device_gives_up_its_idle_buffers(own_gpu: Gpu) -> None:
    own_gpu.storage(5000)
    asked: list[int] = []
    own_gpu.device = Full(own_gpu.device, lambda: asked.append(own_gpu.pool.idle))
    with pytest.raises(DeviceMemoryError, match="is full"):
        own_gpu.storage(123_456)
    assert asked[0] > 0 and asked[1] == 0
    assert own_gpu.pool.live == 0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("In wgpuDeviceCreateBuffer\n    Not enough memory left.", DeviceMemoryError),
        ("In wgpuQueueWriteBuffer\n    Parent device is lost", DeviceLostError),
        ("something else", DeviceError),
    ],
)
def test_errors_are_told_apart_by_message(gpu: Gpu, text: str, kind: type[Exception]) -> None:
    with pytest.raises(DeviceError) as caught, gpu.guard:
        raise RuntimeError(text)
    assert type(caught.value) is kind
    assert gpu.lost is (kind is DeviceLostError)
    gpu.lost = False


def test_foreign_errors_pass_the_guard(gpu: Gpu) -> None:
    with pytest.raises(KeyError), gpu.guard:
        raise KeyError("mine")


PLUS = """
import numpy as np
from symgrad.kernel.skeletons.map import map_launch
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.pipeline import VALUES, Options, build
from symgrad.wgsl.device.gpus import open_gpu
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.printing.source import Style
def plus(gpu, c):
    computation = build(lambda v: v[0] + c, 1, VALUES, Options("plus")).computation
    return Launched(gpu, map_launch(computation, WorkgroupTarget()), Style())
gpu = open_gpu()
program = plus(gpu, 1.0)
"""

LOST = """
from symgrad.errors import DeviceLostError
there = DeviceArray.from_numpy(gpu, np.zeros((5, 1)))
program.run(np.zeros((5, 1), np.float32)); program.run(there)[0].numpy()
gpu.device.destroy()
for action in (
    lambda: program.run(np.zeros((5, 1), np.float32)), lambda: program.run(there),
    lambda: there.numpy(), lambda: DeviceArray.from_numpy(gpu, np.zeros(5)),
    lambda: plus(gpu, 2.0),
):
    for _ in range(2):
        try:
            action()
        except DeviceLostError as error:
            print("lost")
    gpu.lost = False
gpu.lost = True
assert open_gpu() is not gpu
print(plus(open_gpu(), 1.0).run(np.zeros((2, 1), np.float32)))
"""


def test_a_lost_device_is_an_error_and_can_be_opened_again(gpu: Gpu) -> None:
    done = python(PLUS + LOST)
    assert done.stdout.split()[:10] == ["lost"] * 10, done.stderr
    assert done.stdout.count("1.") == 2


@pytest.mark.parametrize("nbytes", [0, 1, 256, 257, 5000, 1 << 20, (1 << 20) + 1, (1 << 31) - 1])
def test_sizes_are_rounded_to_few(nbytes: int) -> None:
    size = rounded(nbytes)
    assert size >= max(nbytes, 1) and size % 256 == 0
    assert size <= max(nbytes + 256, nbytes * 1.13)
    assert rounded(size) == size
    assert rounded(rounded_down(nbytes)) == max(rounded_down(nbytes), 256)


class Clock:
    """A clock for pools."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Made:
    """A pool of buffers of no device, and what became of them."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.forgotten = 0
        self.clock = Clock()
        self.pool = Pool(self._buffer, self._forget, self.clock)

    def _buffer(self, size: int) -> Any:
        self.sizes.append(size)
        return SimpleNamespace(size=size)

    def _forget(self) -> None:
        self.forgotten += 1


def test_the_pool_recycles() -> None:
    made = Made()
    pool = made.pool
    first, second = Storage(pool, 1000), Storage(pool, 500)
    buffer = first.buffer
    assert (pool.live, pool.idle) == (1536, 0)
    del first
    assert (pool.live, pool.idle) == (512, 1024)
    assert Storage(pool, 513).buffer is not buffer
    again = Storage(pool, 1001)
    assert again.buffer is buffer
    del again, second
    assert not made.forgotten
    assert pool.clear() == 1024 + 512 + 768
    assert (pool.live, pool.idle, made.forgotten) == (0, 0, 1)


def test_buffers_come_in_the_same_order_however_they_were_let_go() -> None:
    pool = Made().pool
    storages = {k: Storage(pool, 1000) for k in range(4)}
    orders = set[tuple[int, ...]]()
    for order in ((0, 1, 2, 3), (2, 0, 3, 1), (3, 2, 1, 0)):
        for k in order:
            del storages[k]
            pool.sweep()  # shelved one by one
        storages = {k: Storage(pool, 1000) for k in range(4)}
        orders.add(tuple(id(s.buffer) for s in storages.values()))
    assert len(orders) == 1


@pytest.mark.parametrize("size", [1 << 20, 1 << 28, 1 << 33])
def test_the_pool_keeps_what_a_steady_loop_needs(size: int) -> None:
    made = Made()
    for _ in range(5):
        held = [[Storage(made.pool, size), Storage(made.pool, size // 10)] for _ in range(20)]
        held.clear()
        made.clock.now += 5.0
        assert made.pool.sweep()
    assert len(made.sizes) == 40 and not made.forgotten


def test_the_pool_lets_go_of_what_is_not_used_for_a_while() -> None:
    made = Made()
    used, _ = Storage(made.pool, 1 << 30), Storage(made.pool, 1 << 20)
    for _ in range(4):
        del _
        made.clock.now += 0.9 * KEEP_SECONDS
        _ = Storage(made.pool, 1 << 20)
        assert made.pool.sweep()
    del used, _
    assert made.pool.idle > 1 << 30 and len(made.sizes) == 2
    made.clock.now += 0.9 * KEEP_SECONDS
    _ = Storage(made.pool, 1 << 20)
    made.clock.now += 0.2 * KEEP_SECONDS
    assert made.pool.sweep() and made.forgotten
    assert (made.pool.live, made.pool.idle) == (1 << 20, 0)
    del _
    assert made.pool.sweep() and made.pool.idle
    made.clock.now += KEEP_SECONDS
    assert not made.pool.sweep() and not made.pool.idle


def test_idle_buffers_of_ever_other_sizes_do_not_pile_up() -> None:
    made = Made()
    sizes = [(1 << 30) + (k << 27) for k in range(40)]
    for size in sizes:
        Storage(made.pool, size)
    assert made.pool.idle <= 2 * max(sizes) + IDLE_BYTES
    count = len(made.sizes)
    Storage(made.pool, sizes[-1])
    assert len(made.sizes) == count


def test_the_pool_stays_within_its_limit() -> None:
    made = Made()
    made.pool.limit = 10 << 20
    held = [Storage(made.pool, 3 << 20), Storage(made.pool, 2 << 20), Storage(made.pool, 4 << 20)]
    for size in (3, 2, 4):  # the longest unused are to go first
        held.pop(0)
        made.clock.now += 1.0
        assert made.pool.idle >= size << 20
    new = Storage(made.pool, 5 << 20)
    assert (made.pool.live, made.pool.idle) == (5 << 20, 4 << 20)
    with pytest.raises(DeviceMemoryError, match="are beyond the limit of 10,485,760: run fewer"):
        Storage(made.pool, 6 << 20)
    assert made.pool.live == new.nbytes
    assert Storage(made.pool, 4 << 20).nbytes and len(made.sizes) == 4


def test_a_thread_lets_go_of_what_is_idle() -> None:
    before = threading.active_count()
    pool = Pool(lambda size: SimpleNamespace(size=size), lambda: None, keep_seconds=0.04)
    for _ in range(2):
        used = Storage(pool, 1 << 20)
        time.sleep(0.1)
        assert pool.live == 1 << 20
        del used
        until = time.monotonic() + 20
        while (pool.idle or threading.active_count() > before) and time.monotonic() < until:
            time.sleep(0.01)
        assert not pool.idle and threading.active_count() <= before


def test_a_pool_that_is_gone_has_no_thread() -> None:
    before = threading.active_count()
    pool = Pool(lambda size: SimpleNamespace(size=size), lambda: None, keep_seconds=0.04)
    pool.take(100)
    del pool
    gc.collect()
    until = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


@pytest.mark.parametrize(("count", "most"), [(1, 8), (8, 8), (100, 8), (100, 3), (7, 1)])
def test_pieces_are_halved_until_there_is_memory_for_them(count: int, most: int) -> None:
    done: list[tuple[int, int]] = []

    def work(start: int, end: int) -> None:
        if end - start > most:
            raise DeviceMemoryError("full")
        done.append((start, end))

    in_pieces(count, 64, 1, work)
    assert [k for start, end in done for k in range(start, end)] == list(range(count))
    assert max(end - start for start, end in done) > most // 2 or count <= most


def test_pieces_have_a_least_size() -> None:
    tried: list[int] = []

    def work(start: int, end: int) -> None:
        tried.append(end - start)
        raise DeviceMemoryError("full")

    with pytest.raises(DeviceMemoryError, match="full"):
        in_pieces(1000, 640, 64, work)
    assert tried == [640, 320, 128, 64]


def test_a_recycled_buffer_was_never_finalized() -> None:
    class Buffer:
        size = 256
        released = False

        def __del__(self) -> None:
            self.released = True

    pool = Pool(lambda size: Buffer(), lambda: None)
    cycle: list[Any] = [Storage(pool, 100)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert pool.idle == 256
    assert not Storage(pool, 100).buffer.released


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)"])
def test_a_forked_child_never_hangs(gpu: Gpu, leave: str) -> None:
    code = f"""
import gc, os, sys
from symgrad.errors import DeviceError
from symgrad.wgsl.device.gpus import list_gpus
points = np.zeros((5, 1), np.float32)
there = DeviceArray.from_numpy(gpu, points)
program.run(points)
child = os.fork()
if not child:
    assert list_gpus()
    for action in (
        open_gpu, lambda: program.run(points), lambda: program.run(there),
        there.numpy, lambda: plus(gpu, 2.0),
        lambda: DeviceArray.from_numpy(gpu, points),
    ):
        try:
            action()
        except DeviceError as error:
            assert "spawn" in str(error)
            print("refused", flush=True)
    del program, there, gpu
    gc.collect()
    {leave}
print(os.waitpid(child, 0)[1], program.run(points)[0].ravel())
"""
    done = python(PLUS + code)
    assert done.stdout.split("\n")[:7] == ["refused"] * 6 + ["0 [1. 1. 1. 1. 1.]"], done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("asked", [True, False])
def test_a_child_may_use_gpus_if_its_parent_has_not_asked_for_any(gpu: Gpu, asked: bool) -> None:
    code = f"""
import os, sys
import symgrad.wgsl.device.gpus as device
if {asked}: device.list_gpus()
child = os.fork()
try:
    print(device.open_gpu())
except device.DeviceError as error:
    print("spawn" in str(error))
sys.stdout.flush()
sys.exit(os.waitpid(child, 0)[1] if child else 0)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n"))[1:] == sorted(
        [repr(gpu), "True" if asked else repr(gpu)]
    ), done
