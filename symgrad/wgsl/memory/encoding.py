"""How work goes to the device: dispatches and copies, and two ways to encode and submit them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np

from symgrad.llvm.device.cpu import compile_source
from symgrad.llvm.printing.source import module

SUBMITTED_STEPS: Final = 64
"""Steps that are submitted together, at most: the device does them while others are encoded."""


@dataclass(slots=True)
class Step:
    """A dispatch: a pipeline, what is bound, and the workgroups across and down.

    The ``offsets`` are bytes, for each of the bound arrays that move. ``row`` is the step as
    compiled code reads it, once an encoder has asked for it.
    """

    pipeline: Any
    bindings: Any
    across: int
    down: int = 1
    offsets: tuple[int, ...] = ()
    row: bytes = b""


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
    for kind, items in itertools.groupby(work, key=type):
        if kind is Step:
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


# --- encoding without Python ----------------------------------------------------------------------

MOST_OFFSETS: Final = 8
"""Arrays of a kernel that move, at most: as many as the storage buffers that WebGPU grants it."""

ROW: Final = struct.Struct(f"=QQIIQ{MOST_OFFSETS}I")
"""A step in memory: two handles, the workgroups, how many offsets there are, and these."""

CALLS: Final = (
    "wgpuComputePassEncoderSetPipeline",
    "wgpuComputePassEncoderSetBindGroup",
    "wgpuComputePassEncoderDispatchWorkgroups",
)
"""The C functions that a step takes."""

ENCODE: Final = f"""\
%Calls = type {{ ptr, ptr, ptr }}
%Row = type {{ ptr, ptr, i32, i32, i64, [{MOST_OFFSETS} x i32] }}

define void @run(ptr %rows, i64 %count, ptr %pass, ptr %calls) #0 {{
entry:
  %functions = load %Calls, ptr %calls
  %set_pipeline = extractvalue %Calls %functions, 0
  %set_bindings = extractvalue %Calls %functions, 1
  %dispatch = extractvalue %Calls %functions, 2
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k_next, %started ]
  %last = phi ptr [ null, %entry ], [ %pipeline, %started ]
  %last_bound = phi ptr [ null, %entry ], [ %bindings, %started ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %step, label %end
step:
  %row = getelementptr %Row, ptr %rows, i64 %k
  %pipeline = load ptr, ptr %row
  %bindings_at = getelementptr %Row, ptr %row, i64 0, i32 1
  %bindings = load ptr, ptr %bindings_at
  %across_at = getelementptr %Row, ptr %row, i64 0, i32 2
  %across = load i32, ptr %across_at
  %down_at = getelementptr %Row, ptr %row, i64 0, i32 3
  %down = load i32, ptr %down_at
  %moving_at = getelementptr %Row, ptr %row, i64 0, i32 4
  %moving = load i64, ptr %moving_at
  %offsets = getelementptr %Row, ptr %row, i64 0, i32 5
  %is_last = icmp eq ptr %pipeline, %last
  br i1 %is_last, label %chosen, label %choose
choose:
  call void %set_pipeline(ptr %pass, ptr %pipeline)
  br label %chosen
chosen:
  %is_fixed = icmp eq i64 %moving, 0
  %was_bound = icmp eq ptr %bindings, %last_bound
  %is_bound = and i1 %is_fixed, %was_bound
  br i1 %is_bound, label %started, label %bind
bind:
  call void %set_bindings(ptr %pass, i32 0, ptr %bindings, i64 %moving, ptr %offsets)
  br label %started
started:
  call void %dispatch(ptr %pass, i32 %across, i32 %down, i32 1)
  %k_next = add i64 %k, 1
  br label %next
end:
  ret void
}}
"""
"""A module of LLVM: it encodes steps, with what does not change from one to the next set once."""


class NativeEncoder:
    """Encodes by the C functions that ``native``, wgpu's back end, exports: 40 us less a call.

    Steps are encoded by compiled code, which takes an eighth of the time that Python takes.

    A mistake in a pass is an error when the commands are finished; so wgpu is asked for errors not
    after every function, as its own interface does, but once before a submit and once after it.
    """

    def __init__(self, device: Any, native: Any) -> None:
        self._ffi, self._lib, self._checked = native.ffi, native.lib, native._api.libf
        self._errors = native._api.error_handler
        self._device, self._queue = device, device.queue
        self._one = self._ffi.typeof("WGPUCommandBuffer[1]")
        calls = [self._ffi.cast("void *", getattr(self._lib, name)) for name in CALLS]
        self._calls = self._ffi.new("void *[]", calls)
        source = module([ENCODE], ("ptr", "i64", "ptr", "ptr"), 0, 1)
        self._code = compile_source(source)
        self._run = self._ffi.cast(source.kind, self._code.address)
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
        """The compute pass of some steps."""
        lib = self._lib
        rows = b"".join([step.row or self._row(step) for step in steps])
        compute = lib.wgpuCommandEncoderBeginComputePass(encoder, self.passes)
        try:
            self._run(self._ffi.from_buffer(rows), len(steps), compute, self._calls)
            lib.wgpuComputePassEncoderEnd(compute)
        finally:
            lib.wgpuComputePassEncoderRelease(compute)

    def _row(self, step: Step) -> bytes:
        """The step in memory, which has no more of it than the step itself."""
        handles = [
            int(self._ffi.cast("uintptr_t", item._internal))
            for item in (step.pipeline, step.bindings)
        ]
        offsets = step.offsets
        padding = [0] * (MOST_OFFSETS - len(offsets))
        step.row = ROW.pack(*handles, step.across, step.down, len(offsets), *offsets, *padding)
        return step.row
