"""How work goes to the device: dispatches and copies, and two ways to encode and submit them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np

SUBMITTED_STEPS: Final = 64
"""Steps that are submitted together, at most: the device does them while others are encoded."""


class Step(NamedTuple):
    """A dispatch: a pipeline, what is bound, and the workgroups across and down.

    The ``offsets`` are bytes, for each of the bound arrays that move.
    """

    pipeline: Any
    bindings: Any
    across: int
    down: int = 1
    offsets: tuple[int, ...] = ()


class Copy(NamedTuple):
    """Bytes that go from a place in one buffer to a place in another."""

    source: Any
    start: int
    target: Any
    place: int
    nbytes: int


class Clear(NamedTuple):
    """Zeros for all bytes of a buffer."""

    buffer: Any


Work = Step | Copy | Clear
"""A piece of work of the device, which does it in the order of the queue."""


def passes_of(work: Sequence[Work]) -> Iterator[list[Step] | Copy | Clear]:
    """The work in order: steps that follow each other in a list, and all else one by one."""
    for are_steps, items in itertools.groupby(work, key=lambda item: isinstance(item, Step)):
        if are_steps:
            yield cast("list[Step]", list(items))
        else:
            yield from cast("Iterator[Copy | Clear]", items)


class Encoder(Protocol):
    """A way to write to buffers and to have work done, in the order of the calls."""

    def write(self, buffer: Any, start: int, data: np.ndarray) -> None:
        """Write the bytes of a contiguous array to a buffer, ahead of the next submit."""
        ...

    def submit(self, work: Sequence[Work]) -> None:
        """Start steps and copies; on a lost device this raises."""
        ...


def choose_encoder(device: Any, native: Any) -> Encoder:
    """The fast way to encode if this wgpu has it, else the documented one."""
    try:
        encoder = NativeEncoder(device, native)
        encoder.submit([])
    except Exception:  # whatever another version of wgpu raises
        return PlainEncoder(device)
    return encoder


class PlainEncoder:
    """Encodes through wgpu's documented interface."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def write(self, buffer: Any, start: int, data: np.ndarray) -> None:
        """See ``Encoder``."""
        self._device.queue.write_buffer(buffer, start, data)

    def submit(self, work: Sequence[Work]) -> None:
        """See ``Encoder``. On a lost device ``finish`` raises, where submit would abort."""
        encoder = self._device.create_command_encoder()
        for part in passes_of(work):
            if isinstance(part, Copy):
                encoder.copy_buffer_to_buffer(*part)
                continue
            if isinstance(part, Clear):
                encoder.clear_buffer(part.buffer)
                continue
            compute = encoder.begin_compute_pass()
            for step in part:
                compute.set_pipeline(step.pipeline)
                compute.set_bind_group(0, step.bindings, list(step.offsets))
                compute.dispatch_workgroups(step.across, step.down)
            compute.end()
        self._device.queue.submit([encoder.finish()])


class NativeEncoder:
    """Encodes by the C functions that ``native``, wgpu's back end, exports: 40 us less a call.

    A mistake in a pass is an error when the commands are finished; so wgpu is asked for errors not
    after every function, as its own interface does, but once before a submit and once after it.
    """

    def __init__(self, device: Any, native: Any) -> None:
        self._ffi, self._lib, self._checked = native.ffi, native.lib, native._api.libf
        self._errors = native._api.error_handler
        self._device, self._queue = device, device.queue
        self._one = self._ffi.typeof("WGPUCommandBuffer[1]")
        self.passes: Any = self._ffi.NULL
        """The argument that begins compute passes: nothing, or where they write their times."""

    def write(self, buffer: Any, start: int, data: np.ndarray) -> None:
        """See ``Encoder``."""
        assert start + data.nbytes <= buffer.size, "what is written ends behind the buffer"
        self._checked.wgpuQueueWriteBuffer(
            self._queue._internal, buffer._internal, start, self._ffi.from_buffer(data), data.nbytes
        )

    def submit(self, work: Sequence[Work]) -> None:
        """See ``Encoder``. On a lost device encoding raises, where submit would abort.

        Of many steps the device does the first while the next ones are encoded.
        """
        first = 0
        if self.passes == self._ffi.NULL:
            while len(work) - first > SUBMITTED_STEPS:
                self._start(work[first : first + SUBMITTED_STEPS])
                first += SUBMITTED_STEPS
        self._start(work[first:])

    def _start(self, work: Sequence[Work]) -> None:
        commands = self._without_error(self._encode, work)
        try:
            self._without_error(
                self._lib.wgpuQueueSubmit,
                self._queue._internal,
                1,
                self._ffi.new(self._one, (commands,)),
            )
        finally:
            self._lib.wgpuCommandBufferRelease(commands)

    def _without_error(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call, or what wgpu found wrong, as an exception."""
        self._errors.capture("symgrad")
        try:
            result = call(*arguments)
        finally:
            error = self._errors.release("symgrad")
        if error is not None:
            raise RuntimeError(error[1])
        return result

    def _encode(self, work: Sequence[Work]) -> Any:
        """The commands, which are not to be submitted if there is an error."""
        lib, none = self._lib, self._ffi.NULL
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device._internal, none)
        try:
            for part in passes_of(work):
                if isinstance(part, Copy):
                    source, start, target, place, nbytes = part
                    lib.wgpuCommandEncoderCopyBufferToBuffer(
                        encoder, source._internal, start, target._internal, place, nbytes
                    )
                elif isinstance(part, Clear):
                    buffer = part.buffer
                    lib.wgpuCommandEncoderClearBuffer(encoder, buffer._internal, 0, buffer.size)
                else:
                    self._compute(encoder, part)
            return lib.wgpuCommandEncoderFinish(encoder, none)
        finally:
            lib.wgpuCommandEncoderRelease(encoder)

    def _compute(self, encoder: Any, steps: Sequence[Step]) -> None:
        """The compute pass, with what does not change from step to step set once."""
        lib, none = self._lib, self._ffi.NULL
        compute = lib.wgpuCommandEncoderBeginComputePass(encoder, self.passes)
        bind = lib.wgpuComputePassEncoderSetBindGroup
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        last = last_bound = None
        try:
            for pipeline, bindings, across, down, offsets in steps:
                if pipeline is not last:
                    lib.wgpuComputePassEncoderSetPipeline(compute, pipeline._internal)
                if offsets:
                    bind(compute, 0, bindings._internal, len(offsets), offsets)
                elif bindings is not last_bound:
                    bind(compute, 0, bindings._internal, 0, none)
                last, last_bound = pipeline, bindings
                dispatch(compute, across, down, 1)
            lib.wgpuComputePassEncoderEnd(compute)
        finally:
            lib.wgpuComputePassEncoderRelease(compute)
