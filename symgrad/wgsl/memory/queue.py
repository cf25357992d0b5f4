"""The work on a device: how steps are encoded, and in which order they go there."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import struct
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np

from symgrad.errors import DeviceError
from symgrad.lazy import machine_code

# How work goes to the device: dispatches and copies, and two ways to encode and submit them.

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
    """The fast way to encode if this wgpu and this machine have it, else the documented one."""
    if native is None:
        return PlainEncoder(device)
    try:
        code = machine_code.compiled([ENCODE], PARAMETERS)
    except DeviceError:  # there is no LLVM, or it compiles for another CPU than this one
        return PlainEncoder(device)
    try:
        encoder = NativeEncoder(device, native, code)
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
"""Arrays of a kernel that move, at most: as many as the storage buffers that WebGPU grants it.

`Gpu.max_moving` is never more."""

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

PARAMETERS: Final = "ptr", "i64", "ptr", "ptr"
"""The types of its function's parameters."""


class NativeEncoder:
    """Encodes by the C functions that ``native``, wgpu's back end, exports: 40 us less a call.

    Steps are encoded by `ENCODE`, of which ``code`` is the type in C and what was compiled, in an
    eighth of the time that Python takes.

    A mistake in a pass is an error when the commands are finished; so wgpu is asked for errors not
    after every function, as its own interface does, but once before a submit and once after it.
    """

    def __init__(self, device: Any, native: Any, code: tuple[str, Any]) -> None:
        self._ffi, self._lib, self._checked = native.ffi, native.lib, native._api.libf
        self._errors = native._api.error_handler
        self._device, self._queue = device, device.queue
        self._one = self._ffi.typeof("WGPUCommandBuffer[1]")
        calls = [self._ffi.cast("void *", getattr(self._lib, name)) for name in CALLS]
        self._calls = self._ffi.new("void *[]", calls)
        kind, self._code = code
        self._run = self._ffi.cast(kind, self._code.address)
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


SOON: Final = 1e-4
"""Seconds after a submit in which steps are gathered: what it started keeps the device busy."""

STEPS_GATHERED: Final = 8
"""Steps that are gathered, at most: a submit costs as much of the host's time as these."""

GATHER_SECONDS: Final = 2e-3
"""Seconds that gathered steps wait for more of them, or for whoever needs their results."""


class Queue:
    """The queue of a device, in the order of the calls; any number of threads may use it.

    A submit takes the host as long as several steps take to encode, and the device pauses between
    two of them. So a step that nobody waits for starts at once only if there was no submit just
    before, else together with those after it: by the next call that submits, writes or waits, or
    by a thread that looks after what nobody asks for.

    Invariants:

    1. Whatever is written, submitted or waited for comes after all steps that were queued before.
    2. Gathered steps that an interrupt kept from the device are still gathered; those that were to
       start with others, which the device refuses, start without them.
    3. That gathered steps were refused, the next who writes, submits or waits is told.

    A submit was just before if it was not ``soon`` seconds ago, and gathered steps wait for about
    ``patience`` seconds.
    """

    def __init__(
        self, encoder: Encoder, soon: float = SOON, patience: float = GATHER_SECONDS
    ) -> None:
        self.encoder, self.soon, self.patience = encoder, soon, patience
        self.eager = False
        """Whether steps start at once, each by itself, as where they are timed."""
        self._lock = threading.RLock()
        self._gathered: list[Work] = []
        self._refused: Exception | None = None
        self._submitted = 0.0
        self._gathering = 0
        self._tended = False
        self._wanted = threading.Event()
        _queues.add(self)

    def write(self, buffer: Any, start: int, data: np.ndarray) -> None:
        """Write the bytes of a contiguous array to a buffer, ahead of what is submitted next."""
        with self._lock:
            self.flush()
            self.encoder.write(buffer, start, data)

    def submit(self, work: Sequence[Work]) -> None:
        """Start steps and copies; on a lost device this raises."""
        with self._lock:
            self._tell()
            gathered, self._gathered = self._gathered, []
            try:
                if gathered and len(gathered) + len(work) > SUBMITTED_STEPS:
                    self._start_alone(gathered)  # or a later part's refusal would start them again
                    gathered = []
                self.encoder.submit([*gathered, *work])
            except Exception:
                if gathered and work:
                    self._start_alone(gathered)
                raise
            except BaseException:
                self._gathered = gathered
                raise
            self._submitted = time.perf_counter()

    def add(self, work: Sequence[Work]) -> None:
        """Start steps and copies soon."""
        with self._lock:
            now = time.perf_counter()
            late = not self._gathering and now - self._submitted > self.soon
            if late or self.eager or len(self._gathered) + len(work) >= STEPS_GATHERED:
                self.submit(work)
                return
            self._gathered += work
            self._tend()

    @contextlib.contextmanager
    def together(self) -> Generator[None]:
        """A context whose steps start several at a time, the last of them at its end."""
        with self._lock:
            self._gathering += 1
        try:
            yield
        finally:
            with self._lock:
                self._gathering -= 1
        with self._lock:
            self.flush()

    def flush(self) -> None:
        """Start what was gathered."""
        self._tell()
        if self._gathered:
            self.submit(())

    def _start_alone(self, gathered: list[Work]) -> None:
        """Start gathered steps; that they are refused is told to the next who asks."""
        try:
            self.encoder.submit(gathered)
        except Exception as error:
            self._refused = error

    def _tell(self) -> None:
        """Raise what gathered steps were refused with, once."""
        refused, self._refused = self._refused, None
        if refused:
            raise refused

    def look_after(self) -> None:
        """Start what was gathered some time ago; whoever needs it is told if that fails."""
        with self._lock:
            age = time.perf_counter() - self._submitted
            if self._gathered and age > self.patience:
                gathered, self._gathered = self._gathered, []
                self._start_alone(gathered)
                self._submitted = time.perf_counter()
            elif age > 10 * self.patience:
                self._wanted.clear()

    def forget(self) -> None:
        """Never start what was gathered."""
        with self._lock:
            self._gathered = []

    def _tend(self) -> None:
        """See to it that a thread looks after what was gathered."""
        if not self._tended:
            with contextlib.suppress(RuntimeError):  # where no thread starts, as at Python's end
                arguments = weakref.ref(self), self._wanted, self.patience
                threading.Thread(target=_look_after, args=arguments, daemon=True).start()
                weakref.finalize(self, self._wanted.set).atexit = False
                self._tended = True
        if not self._wanted.is_set():
            self._wanted.set()


def _look_after(queue: weakref.ref[Queue], wanted: threading.Event, patience: float) -> None:
    """Look after a queue, whenever it has lately gathered steps, as long as there is one."""
    while True:
        wanted.wait()
        time.sleep(patience)
        live_queue = queue()
        if live_queue is None:
            return
        live_queue.look_after()
        del live_queue


_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
"""All queues."""


def _end() -> None:
    """Start no work when Python has ended, for drivers end then too."""
    for queue in tuple(_queues):
        queue.forget()


atexit.register(_end)
