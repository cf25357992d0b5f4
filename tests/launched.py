"""Launches in the interpreter of kernels, and in memory of a GPU in which there is NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from symgrad.kernel.shapes import Reduction
from symgrad.llvm.dispatch.sums import SimdSums
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.sums import WorkgroupSums
from symgrad.wgsl.memory.buffers import Mapper
from symgrad.wgsl.printing.source import Style


class Interrupted:
    """A mapper that is interrupted the nth time, from 0 on, that it is to do something."""

    def __init__(
        self, mapper: Mapper, broken: str, n: int = 0, before: Callable[[], None] = lambda: None
    ) -> None:
        self.mapper, self.broken, self.left, self.before = mapper, broken, n, before

    def __getattr__(self, name: str) -> Any:
        if name == self.broken:
            self.left -= 1
            if self.left == -1:
                self.before()
                raise KeyboardInterrupt
        return getattr(self.mapper, name)


class Full:
    """A device of wgpu's that has no memory left, and calls a function when it is asked for it."""

    def __init__(self, device: Any, asked: Callable[[], None]) -> None:
        self.device, self.asked = device, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def create_buffer(self, **_: Any) -> Any:
        self.asked()
        raise RuntimeError("Not enough memory left.")


@contextmanager
def room_for(gpu: Gpu, nbytes: int) -> Iterator[None]:
    """A context in which a GPU has room for so many more bytes of arrays."""
    gpu.free()
    limit, gpu.pool.limit = gpu.pool.limit, gpu.pool.live + nbytes
    try:
        yield
    finally:
        gpu.pool.limit = limit


@contextmanager
def memory_of_nan(gpu: Gpu) -> Iterator[None]:
    """Has whatever is stored there anew in memory that was NaN before."""
    storage = gpu.storage

    def filled(nbytes: int) -> Any:
        result = storage(nbytes)
        gpu.upload(result, np.full(result.buffer.size // 4, np.nan, np.float32))
        return result

    with mock.patch.object(gpu, "storage", filled):
        yield


def sums_on(
    device: Gpu | str, reduction: Reduction, math: Any = "accurate", dtype: str = "float32"
) -> Any:
    """Compiled sums over rows on a GPU, or on the "cpu"."""
    if isinstance(device, str):
        return SimdSums(reduction, math, dtype)
    sums = WorkgroupSums(device, reduction, Style(math))
    device.hold(sums)
    return sums


def executed(
    sums: Any, numbers: np.ndarray, rows: np.ndarray, indices: np.ndarray | None = None
) -> np.ndarray:
    """What the launch of these sums gives in float64, with NaN behind what is there."""
    plan = sums.plan(len(rows), indices)
    plan.launch.verify()
    arrays = plan.resident(rows.astype(np.float64), indices) | {"parameters": numbers}
    for a in plan.launch.inputs:
        if a.kind == "f":
            padded = np.full(a.size, np.nan)
            padded[: arrays[a.name].size] = arrays[a.name].ravel()
            arrays[a.name] = padded
    return plan.launch.execute([arrays[a.name] for a in plan.launch.inputs])
