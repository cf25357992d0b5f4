"""When compute passes began and ended, by the device's own clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.wgsl.memory.encoding import Copy, NativeEncoder
from symgrad.wgsl.memory.mapping import STAGING, Mapper

FEATURE: Final = "timestamp-query"
"""The feature that an adapter needs for it."""

PASSES: Final = 512
"""Compute passes of which the times are kept: those of later ones are not known."""

TIME_BYTES: Final = 8
"""Bytes of a time."""


class Timestamps:
    """The times of the compute passes that an encoder encodes between `start` and `stop`.

    Args:
        device: wgpu's, with the feature.
        native: wgpu's back end.
        encoder: what encodes the passes.
        create: makes a buffer of so many bytes for a usage.
        mapper: maps buffers.
    """

    def __init__(
        self,
        device: Any,
        native: Any,
        encoder: NativeEncoder,
        create: Callable[[int, str], Any],
        mapper: Mapper,
    ) -> None:
        self._device, self._encoder, self._mapper = device, encoder, mapper
        self._ffi = native.ffi
        self._set = device.create_query_set(type="timestamp", count=2 * PASSES)
        self._resolved = create(2 * PASSES * TIME_BYTES, "QUERY_RESOLVE|COPY_SRC")
        self._read = create(2 * PASSES * TIME_BYTES, STAGING)
        self._period = 1e-9 * native.lib.wgpuQueueGetTimestampPeriod(device.queue._internal)
        self._writes = self._ffi.new("WGPUPassTimestampWrites *")
        self._writes.querySet = self._set._internal
        self._pass = self._ffi.new("WGPUComputePassDescriptor *", {"timestampWrites": self._writes})
        self._count = 0

    def start(self) -> None:
        """Forget all times."""
        self._count = 0

    def next(self) -> bool:
        """Have the next pass write its times; whether there is room for them."""
        if self._count == PASSES:
            self.stop()
            return False
        self._writes.beginningOfPassWriteIndex = 2 * self._count
        self._writes.endOfPassWriteIndex = 2 * self._count + 1
        self._encoder.passes = self._pass
        self._count += 1
        return True

    def stop(self) -> None:
        """Have passes write no times."""
        self._encoder.passes = self._ffi.NULL

    def seconds(self) -> np.ndarray:
        """How long each pass took, once all are done."""
        count = self._count
        if not count:
            return np.zeros(0)
        encoder = self._device.create_command_encoder()
        encoder.resolve_query_set(self._set, 0, 2 * count, self._resolved, 0)
        self._device.queue.submit([encoder.finish()])
        nbytes = 2 * count * TIME_BYTES
        self._encoder.submit([Copy(self._resolved, 0, self._read, 0, nbytes)])
        ticks = self._mapper.map(self._read, nbytes).view(np.uint64).reshape(-1, 2).copy()
        self._mapper.unmap(self._read)
        begun, ended = ticks.T
        return self._period * np.where(ended > begun, ended - begun, 0)
