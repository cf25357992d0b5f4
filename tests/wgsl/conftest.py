"""Fixtures of the tests that run kernels: a GPU, or a skip; and poisoned result buffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu, list_gpus, open_gpu
from symgrad.wgsl.dispatch.points import Program


@pytest.fixture
def gpu() -> Gpu:
    """The first GPU of this machine."""
    if not list_gpus():
        pytest.skip("no GPU and no software Vulkan driver here")
    return open_gpu()


@pytest.fixture
def poison() -> Callable[[Program, int], None]:
    """Fills with NaN what the next run of a program for that many points writes to."""
    return _poison


def _poison(program: Program, count: int) -> None:
    gpu = program.gpu
    space = program._reserve(min(count, program.chunk))
    gpu.upload(space.results, np.full(space.results.nbytes // 4, np.nan, np.float32))
    shapes = [(count, k) for k in program.layout.outputs]
    dirty = [DeviceArray.from_numpy(gpu, np.full(shape, np.nan)) for shape in shapes]
    del dirty  # the pool hands these out again
