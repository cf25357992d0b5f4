"""What symgrad says that it holds of a device's memory, and what it gives back."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from launched import room_for

import symgrad as sg
from symgrad.errors import DeviceError, DeviceMemoryError
from symgrad.wgsl.device.gpus import Gpu, list_gpus, open_gpu

pytestmark = pytest.mark.usefixtures("quick_collection")


@pytest.fixture
def gpu() -> Gpu:
    """The first GPU of this machine, without idle memory."""
    if not list_gpus():
        pytest.skip("no GPU and no software Vulkan driver here")
    gc.collect()
    sg.free_memory("gpu")
    return open_gpu()


def test_what_arrays_take_is_in_use_and_then_kept(gpu: Gpu) -> None:
    before = sg.memory("gpu")
    assert before.kept == 0
    x = sg.device_array(np.zeros(1 << 20), device="gpu")
    used = sg.memory("gpu")
    assert used.in_use - before.in_use == 1 << 22
    del x
    kept = sg.memory("gpu")
    assert kept.in_use == before.in_use and kept.kept - used.kept == 1 << 22
    assert sg.free_memory("gpu") == kept.kept
    assert sg.memory("gpu") == before
    assert sg.free_memory("gpu") == 0


def test_a_full_device_says_so_and_goes_on_when_arrays_are_gone(gpu: Gpu) -> None:
    limit = sg.memory("gpu").in_use + (3 << 20)
    kernel = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="gpu")
    with room_for(gpu, 3 << 20):
        assert sg.memory("gpu").limit == limit
        x = sg.device_array(np.ones((1 << 17, 2)), device="gpu")
        held = [kernel.run(x)]
        with pytest.raises(DeviceMemoryError, match="run fewer points at a time, or let go of"):
            held.append(kernel.run(x))
        held.clear()
        for _ in range(3):
            assert all(np.all(result.numpy() == 1.0) for result in kernel.run(x))


def test_a_gpu_in_software_has_the_machines_memory(gpu: Gpu) -> None:
    if gpu.info.kind != "software":
        pytest.skip("a real GPU")
    limit = sg.memory("gpu").limit
    assert limit is not None and limit == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_what_results_on_the_cpu_take() -> None:
    gc.collect()
    sg.free_memory("cpu")
    kernel = sg.fused_forward(1, lambda v: v[0] + 1, device="cpu")
    held = kernel.run(np.zeros((1 << 20, 1)))
    nbytes = held.nbytes
    found = sg.memory("cpu")
    assert nbytes <= found.in_use < 1.01 * nbytes + 1024 and found.kept == 0
    del held
    for _ in range(10_000):  # a thread that has done its part forgets it a moment later
        if not sg.memory("cpu").in_use:
            break
        time.sleep(0.001)
    found = sg.memory("cpu")
    assert nbytes <= found.kept < 1.01 * nbytes + 1024 and found.in_use == 0
    assert sg.free_memory("cpu") == found.kept
    assert sg.memory("cpu") == sg.Memory(0, 0, None)


def test_asking_opens_no_gpu(gpu: Gpu) -> None:
    code = """
import symgrad as sg
print(sg.memory("gpu").in_use, sg.free_memory("gpu"))
from symgrad.wgsl.device.gpus import opened_gpu
assert opened_gpu(0) is None
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0 0\n", done.stderr


def test_no_such_device() -> None:
    for ask in (sg.memory, sg.free_memory):
        with pytest.raises(DeviceError, match="there is no device 99"):
            ask(99)


def test_it_is_readable() -> None:
    shown = "1,000 bytes in use, 2,048 kept to be used again, no limit is set"
    assert str(sg.Memory(1000, 2048, None)) == shown
    assert (
        str(sg.Memory(1, 2, 3000))
        == "1 bytes in use, 2 kept to be used again, at most 3,000 in all"
    )
