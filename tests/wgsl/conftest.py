"""Fixtures of the tests that run kernels: a GPU, or a skip; and poisoned result buffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from symgrad.kernel.launch import BATCH
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu, another_gpu, list_gpus, open_gpu
from symgrad.wgsl.dispatch.launch import Launched


@pytest.fixture
def gpu() -> Gpu:
    """The first GPU of this machine."""
    if not list_gpus():
        pytest.skip("no GPU and no software Vulkan driver here")
    return open_gpu()


@pytest.fixture
def own_gpu(gpu: Gpu) -> Gpu:
    """The same, opened for one test alone, which may say that it has less, or works otherwise."""
    return another_gpu(gpu.info.index)


@pytest.fixture
def plain_gpu(gpu: Gpu) -> Gpu:
    """The same, opened for one test where wgpu has nothing but what it documents."""
    return another_gpu(gpu.info.index, documented=True)


@pytest.fixture
def poison() -> Callable[[Launched, int], None]:
    """Fills with NaN what the next run of a launch over that many points writes to."""
    return _poison


def _poison(launched: Launched, count: int) -> None:
    gpu = launched.gpu
    space = launched._reserve(min(count, launched.chunk))
    for storage in space.results:
        gpu.upload(storage, np.full(storage.nbytes // 4, np.nan, np.float32))
    shapes = [a.of(count) for a in launched.launch.outputs if BATCH in a.shape]
    dirty = [DeviceArray.from_numpy(gpu, np.full(shape, np.nan)) for shape in shapes]
    del dirty  # the pool hands these out again
