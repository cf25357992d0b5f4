"""Back ends compile and run kernels: the rest asks them, not which kind of device it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.arrays.array_loop import ArrayLoop
from symgrad.cache import Once
from symgrad.errors import DeviceError, InputTypeError
from symgrad.expr.derivatives.transpose import MemoryBudget
from symgrad.kernel.host.memory import POOL, Blocks
from symgrad.kernel.language.ir import Target
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.launch import Launch, Program, RowSums
from symgrad.kernel.shapes import Computation, Iteration, Problems, Reduction
from symgrad.kernel.skeletons.map import Pattern, map_launch
from symgrad.kernel.skeletons.steps import iterate_launch
from symgrad.kernel.stages.plan import Plan
from symgrad.llvm.device.cpu import host
from symgrad.llvm.dispatch import launch as llvm_launch
from symgrad.llvm.dispatch import until as llvm_until
from symgrad.llvm.dispatch.compiled import bound, repeated
from symgrad.llvm.dispatch.plans import CompiledPlan
from symgrad.llvm.dispatch.sums import SimdSums
from symgrad.mathlib.define import Math
from symgrad.multi_device import SharedMap, SharedSums
from symgrad.pipeline import DTypeName, Options
from symgrad.targets import Device, DeviceChoice, Devices, choose_any
from symgrad.values.arrays import host_dtype, memory_dtype
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.adapters import FLOAT64_FEATURES
from symgrad.wgsl.device.gpu import SCRATCH_BYTES
from symgrad.wgsl.device.gpus import Gpu, open_gpu, opened_gpu
from symgrad.wgsl.dispatch import launch as wgsl_launch
from symgrad.wgsl.dispatch.compiled import fits, rows_together, steps_target
from symgrad.wgsl.dispatch.loops import RecordedLoop, recorded
from symgrad.wgsl.dispatch.sums import Rows as JoinedRows
from symgrad.wgsl.dispatch.sums import WorkgroupSums
from symgrad.wgsl.dispatch.workspace import in_blocks
from symgrad.wgsl.printing.source import Style

CACHED_ITERATIONS: Final = 32
"""Most compiled iterations that are cached."""

CACHED_LAUNCHES: Final = 256
"""Most compiled launches that are cached."""

CACHED_OPTIONS: Final = 64
"""Back ends that are kept, and options as they are for a device: verbs ask at every call."""

FLOATS: Final = np.dtype(np.float32), np.dtype(np.float64)
"""The dtypes that the CPU computes in."""

LARGEST_CACHED: Final = 2**12
"""Nodes of the largest map over points whose code for the CPU is cached."""


STRAIGHT_LINE: Final = 7
"""Variables up to which the linear systems of least squares are straight-line code on the CPU: with
6 it is 1.1 times as fast, with 8 as much slower, with 20 twice and with 30 three times."""

STRAIGHT_LINE_GPU: Final = 12
"""Variables up to which it is so on a GPU, where nothing is faster. The text grows as their cube:
with 15 variables drivers take ten seconds, with 30 a minute."""

STORED_ROWS: Final = 100_000
"""Rows up to which a GPU keeps the matrix: for more, its loops have too many iterations."""


CORE: Final = MemoryBudget(near=2**17, most=2**18, worth=64)
"""The memory of a core: 64 bytes a number, for a vector of points, of which eight MiB are near.
Strips of 10,000 to 120,000 numbers take 1.2 to 1.6 times as long as keeping them for single points
on a Zen 4 core, and 1.05 to 1.6 times for 64 and 256 points, in float32 and float64 alike."""

SCRATCH: Final = MemoryBudget(near=2**9, most=SCRATCH_BYTES // (4 * 2**17), worth=32)
"""The memory of a GPU: scratch memory for the 131,072 points that keep it busy. On an H200
strips that stay in an invocation's own memory take 0.5 to 0.9 of the time from 1,000 numbers on if
one takes 8 to 15 additions, whether there are a thousand points or 200,000; if it takes 35, 1.03 to
1.05 of it for 2,000 numbers; if it takes 50, they take 0.9 to 1.2 times up to 4,000 numbers, and
0.5 to 0.9 of 16,000."""


class Backend:
    """Compiles what a kernel computes for one device, and says where its arrays are.

    What it compiles is called alike on all devices: ``run`` takes arrays of the host and returns
    fresh ones, and the names of the arguments are the same. Here stands what is so where a back end
    says nothing else: what needs one device is refused.
    """

    device: Any
    """The device that it compiles for."""
    on_host = False
    """Whether programs work on the host's own arrays: nothing is sent, or converted there."""

    @property
    def dtype(self) -> DTypeName:
        """The most accurate dtype that it computes in."""
        raise NotImplementedError

    @property
    def budget(self) -> MemoryBudget:
        """The memory that it has for what loops keep for reverse mode."""
        raise NotImplementedError

    @property
    def memory(self) -> tuple[int, int, int | None]:
        """Bytes of its memory in use, bytes that are kept to be used again, and at most in all."""
        raise NotImplementedError

    @property
    def owner(self) -> Gpu | None:
        """Whose memory arrays are in, another one after a device was lost; None for the host's."""
        return None

    def together(self) -> AbstractContextManager[None]:
        """A context whose launches start several at a time, where starting one takes the host."""
        return nullcontext()

    def _refused(self, what: str) -> InputTypeError:
        """The refusal of what needs one device, and there are several."""
        return InputTypeError(f"{what} one device, and not {self.device}")

    def array(self, values: np.ndarray, dtype: Any = None) -> Any:
        """A copy of numbers, by default in a dtype of its own, where programs take arrays.

        The host's are NumPy's, a GPU's `DeviceArray`s; what is bound to a program is one or the
        other.
        """
        raise self._refused("an array is in the memory of")

    def in_blocks(self, work: Blocks, dtype: DTypeName) -> None:
        """Do the work on each block, on numbers in a ``dtype`` where they are sent.

        They are on their way while others are worked on, and what is returned is filled later.
        """
        raise self._refused("blocks are worked on by")

    def joined(self, pattern: Pattern, numbers: Any, indices: np.ndarray) -> JoinedRows | None:
        """Rows in its memory, where points are put together from them: None for the host's."""
        return None

    def wait(self) -> None:
        """Wait until all has been computed that was started on such arrays."""

    def free(self) -> int:
        """Give back memory that is only kept: how many bytes it was.

        Raises:
            DeviceError: if the device was lost.
        """
        raise NotImplementedError

    def require(self, dtype: str) -> None:
        """Refuse a dtype that it does not compute in.

        Raises:
            DeviceError: it names the device and the remedy.
        """

    def sums(self, reduction: Reduction, options: Options, title: str) -> Any:
        """A computation at every row of a table, summed over the rows: see `RowSums`.

        ``bind(rows)`` is a call that sums over these, every time. The ``title`` stands at the head
        of the source.
        """
        raise NotImplementedError

    def iteration(self, iteration: Iteration, options: Options, together: bool = False) -> Any:
        """The compiled launch of steps of many problems: see `symgrad.kernel.launch.Until`.

        The rows of a problem are worked on ``together`` by several invocations, or by one.
        """
        raise self._refused("an iteration runs on")

    def rows_together(self, iteration: Iteration, problems: Problems) -> bool:
        """Whether that is quicker, or needed, for problems of these sizes."""
        return False

    def device_target(self, dtype: str, math: Math = "accurate") -> Target:
        """The target of programs that compute in a dtype: groups of the usual width."""
        raise self._refused("a program is written for")

    def launch(self, launch: Launch, options: Options, title: str = "") -> Any:
        """A launch that is compiled for the device: ``run(*inputs)`` gives the outputs.

        The ``title`` stands at the head of the sources.
        """
        raise self._refused("a launch is on")

    def loop(self, loop: ArrayLoop, body: Plan, options: Options) -> RecordedLoop | None:
        """A loop whose body's plan is compiled with it; None where Python runs each iteration."""
        return None

    def map(self, computation: Computation, options: Options, title: str = "") -> Any:
        """The compiled launch of a computation at every point of a batch.

        ``bind(inputs, outputs)`` is a call that computes these into those, every time. The
        ``title`` stands at the head of the source.
        """
        raise NotImplementedError

    def keeps_matrix(self, n: int, rows: int) -> bool:
        """Whether loops over a matrix of n variables are quicker than straight-line code.

        It is the matrix of normal equations, of sums over so many rows.
        """
        return False


_iterations: Once[Any, Any] = Once(CACHED_ITERATIONS)
_launches: Once[Any, Any] = Once(CACHED_LAUNCHES)


@dataclass(frozen=True)
class Cpu(Backend):
    """Kernels as LLVM IR, on all cores: see `Backend`."""

    device: Device
    on_host = True

    @property
    def dtype(self) -> DTypeName:
        """The widest of a core: see `Backend`."""
        return "float64"

    @property
    def budget(self) -> MemoryBudget:
        """A core's: see `Backend`."""
        return CORE

    @property
    def memory(self) -> tuple[int, int, None]:
        """The memory that large results take: see `Backend`."""
        idle = POOL.idle
        return POOL.nbytes - idle, idle, None

    def array(self, values: np.ndarray, dtype: Any = None) -> np.ndarray:
        """On the host: see `Backend`."""
        own = values.dtype if values.dtype in FLOATS else self.dtype
        return np.array(values, host_dtype(own if dtype is None else dtype))

    def in_blocks(self, work: Blocks, dtype: DTypeName) -> None:
        """As views: see `Backend`."""
        work.prepare()
        for block in work.blocks:
            for array, target in work.run(block, *work.parts(block)):
                target[...] = array

    def free(self) -> int:
        """Give back what results took: see `Backend`."""
        idle = POOL.idle
        POOL.clear()
        return idle

    def sums(self, reduction: Reduction, options: Options, title: str) -> RowSums:
        """By the lanes of all cores: see `Backend`."""
        return SimdSums(reduction, options.math, options.dtype)

    def iteration(
        self, iteration: Iteration, options: Options, together: bool = False
    ) -> llvm_launch.Launched:
        """A vector of problems at a time: see `Backend`."""
        math, dtype = options.math, options.dtype

        def launched() -> llvm_launch.Launched:
            launch = iterate_launch(iteration, llvm_until.steps_target(iteration, math, dtype))
            return llvm_launch.Launched(launch, math, dtype)

        return _iterations.get((iteration, math, dtype, host()), launched)

    def device_target(self, dtype: str, math: Math = "accurate") -> SimdTarget:
        """The lanes of a vector, the last of which may have nothing to do: see `Backend`."""
        return SimdTarget(host().shape(dtype, True, math != "strict").lanes, whole=False)

    def launch(self, launch: Launch, options: Options, title: str = "") -> llvm_launch.Launched:
        """On all cores: see `Backend`."""
        math, dtype = options.math, options.dtype
        make = partial(llvm_launch.Launched, launch, math, dtype)
        return _launches.get((launch, math, dtype, host()), make)

    def map(
        self, computation: Computation, options: Options, title: str = ""
    ) -> llvm_launch.Launched:
        """In whole vectors, of which the last is done twice: see `Backend`."""
        math, dtype = options.math, options.dtype
        target = SimdTarget(host().shape(dtype, True, math != "strict").lanes)
        launch = map_launch(computation, target)
        if len(computation.graph) > LARGEST_CACHED:
            return llvm_launch.Launched(launch, math, dtype)
        return self.launch(launch, options)

    def keeps_matrix(self, n: int, rows: int) -> bool:
        """From a few variables on: see `Backend`."""
        return rows > 0 and n > STRAIGHT_LINE


@dataclass(frozen=True)
class Wgpu(Backend):
    """Kernels as WGSL, on a GPU: see `Backend`."""

    device: Device

    @property
    def dtype(self) -> DTypeName:
        """The dtype that every GPU has: see `Backend`."""
        return "float32"

    @property
    def budget(self) -> MemoryBudget:
        """The scratch memory of all invocations: see `Backend`."""
        return SCRATCH

    @property
    def owner(self) -> Gpu:
        """The GPU, which is opened when it is first asked for."""
        return open_gpu(self.device.index)

    @property
    def memory(self) -> tuple[int, int, int | None]:
        """The memory that the GPU's arrays take, if it is open: see `Backend`."""
        gpu = opened_gpu(self.device.index)
        if gpu is None:
            return 0, 0, None
        return gpu.pool.live, gpu.pool.idle + gpu.transfers.nbytes, gpu.pool.limit

    def together(self) -> AbstractContextManager[None]:
        """By the queue of the GPU: see `Backend`."""
        return self.owner.queue.together()

    def array(self, values: np.ndarray, dtype: Any = None) -> DeviceArray:
        """In the memory of the GPU: see `Backend`."""
        kind = dtype or self.dtype
        kind = memory_dtype(kind) if isinstance(kind, str) else np.dtype(kind)
        return DeviceArray.from_numpy(self.owner, values, kind)

    def in_blocks(self, work: Blocks, dtype: DTypeName) -> None:
        """Two of them at a time: see `Backend`."""
        in_blocks(self.owner, work, memory_dtype(dtype))

    def joined(self, pattern: Pattern, numbers: Any, indices: np.ndarray) -> JoinedRows:
        """Rows that go up once: see `Backend`."""
        return JoinedRows(self.owner, pattern, numbers, indices)

    def wait(self) -> None:
        """Everything that was queued: see `Backend`."""
        owner = self.owner
        owner.check()
        with owner.guard:
            owner.wait()

    def free(self) -> int:
        """Give back what arrays took, once all is done that was queued: see `Backend`."""
        gpu = opened_gpu(self.device.index)
        if gpu is None:
            return 0
        gpu.check()
        with gpu.guard:
            return gpu.free()

    def require(self, dtype: str) -> None:
        """Refuse float64 where the adapter has none."""
        if dtype not in self.device.dtypes:
            raise DeviceError(
                f"{self.device} has no {dtype}: its driver lacks what WGSL needs for it (wgpu's "
                f'features {" and ".join(FLOAT64_FEATURES)}); use dtype="float32x2", which has 12 '
                'digits on every GPU, or device="cpu"'
            )

    def sums(self, reduction: Reduction, options: Options, title: str) -> RowSums:
        """By workgroups: see `Backend`."""
        self.require(options.dtype)
        owner = self.owner
        style = Style(options.math, options.comments, title, dtype=options.dtype)
        sums = WorkgroupSums(owner, reduction, style)
        owner.hold(sums)
        return sums

    def iteration(
        self, iteration: Iteration, options: Options, together: bool = False
    ) -> wgsl_launch.Launched:
        """An invocation a problem, or a workgroup: see `Backend`."""
        self.require(options.dtype)
        owner, math, dtype = self.owner, options.math, options.dtype

        def launched() -> wgsl_launch.Launched:
            launch = iterate_launch(iteration, steps_target(iteration, together))
            return wgsl_launch.Launched(owner, launch, Style(math, dtype=dtype))

        return _iterations.get((iteration, math, dtype, owner, together), launched)

    def rows_together(self, iteration: Iteration, problems: Problems) -> bool:
        """Where there are few problems of many rows, and for a matrix: see `Backend`."""
        return rows_together(iteration, problems)

    def device_target(self, dtype: str, math: Math = "accurate") -> WorkgroupTarget:
        """Workgroups: see `Backend`."""
        self.require(dtype)
        return WorkgroupTarget(itemsize=memory_dtype(dtype).itemsize)

    def launch(self, launch: Launch, options: Options, title: str = "") -> wgsl_launch.Launched:
        """In one submit: see `Backend`."""
        self.require(options.dtype)
        owner, style = self.owner, Style(options.math, options.comments, title, dtype=options.dtype)
        make = partial(wgsl_launch.Launched, owner, launch, style)
        return _launches.get((launch, style, owner), make)

    def loop(self, loop: ArrayLoop, body: Plan, options: Options) -> RecordedLoop | None:
        """Where the host has no part in an iteration: see `Backend`."""
        self.require(options.dtype)
        return recorded(
            self.owner, loop, body, Style(options.math, options.comments, dtype=options.dtype)
        )

    def map(
        self, computation: Computation, options: Options, title: str = ""
    ) -> wgsl_launch.Launched:
        """An invocation a point: see `Backend`."""
        self.require(options.dtype)
        launch = map_launch(computation, WorkgroupTarget(computation.workgroup))
        style = Style(options.math, options.comments, title, dtype=options.dtype)
        return wgsl_launch.Launched(self.owner, launch, style)

    def keeps_matrix(self, n: int, rows: int) -> bool:
        """If it fits in a workgroup: see `Backend`."""
        return 0 < rows <= STORED_ROWS and n > STRAIGHT_LINE_GPU and fits(n)


@dataclass(frozen=True)
class MultiDevice(Backend):
    """Kernels on several devices at once, each in its own way: see `Backend`."""

    device: Devices

    @property
    def parts(self) -> list[Backend]:
        """The back ends of each of them."""
        return [backend_of(part) for part in self.device.parts]

    @property
    def dtype(self) -> DTypeName:
        """The dtype that all of them compute in: see `Backend`."""
        return "float64" if all(part.dtype == "float64" for part in self.parts) else "float32"

    @property
    def budget(self) -> MemoryBudget:
        """The budget of the device that has the least memory: see `Backend`."""
        return min((part.budget for part in self.parts), key=lambda budget: budget.most)

    @property
    def memory(self) -> tuple[int, int, int | None]:
        """Of all of them: see `Backend`."""
        return sum(p.memory[0] for p in self.parts), sum(p.memory[1] for p in self.parts), None

    def wait(self) -> None:
        """For all of them: see `Backend`."""
        for part in self.parts:
            part.wait()

    def free(self) -> int:
        """Of all of them: see `Backend`."""
        return sum(part.free() for part in self.parts)

    def require(self, dtype: str) -> None:
        """Refuse what one of them refuses: see `Backend`."""
        for part in self.parts:
            part.require(dtype)

    def sums(self, reduction: Reduction, options: Options, title: str) -> SharedSums:
        """Each device has a share of the rows: see `Backend`."""
        return SharedSums([(p.device, p.sums(reduction, options, title)) for p in self.parts])

    def map(self, computation: Computation, options: Options, title: str = "") -> SharedMap:
        """Each device has a share of the points: see `Backend`."""
        compiled = [(part.device, part.map(computation, options, title)) for part in self.parts]
        columns = [len(o.nodes) for o in computation.outputs]
        return SharedMap(compiled, columns, options.floats)


@functools.lru_cache(CACHED_OPTIONS)
def backend_of(device: Device) -> Backend:
    """The back end of a device, or of several."""
    if isinstance(device, Devices):
        return MultiDevice(device)
    return Wgpu(device) if device.is_gpu else Cpu(device)


def bound_on_host(program: Program, arrays: Sequence[np.ndarray]) -> Callable[[], Any]:
    """A call of a kernel of one invocation in float64, on the host and with its arrays, every time.

    They are those of the kernel's buffers, in order, and it keeps them alive. What is as small as
    that needs no launch: sizes are words among the arrays.
    """
    return bound(program, arrays)


def plan_on_host(plan: Plan, options: Options) -> CompiledPlan:
    """A plan of an array program, compiled for the host."""
    return CompiledPlan(plan, options.math, options.dtype)


def repeated_on_host(calls: Sequence[Callable[[], Any]], going: np.ndarray) -> Callable[[], None]:
    """A call that does bound ones in turn, time and again, for as long as a uint32 is 1 after."""
    return repeated(calls, going)


def placed(options: Options, device: DeviceChoice) -> Options:
    """The options of a kernel that is for a device."""
    return _with_budget(options, backend_of(choose_any(device)).budget)


@functools.lru_cache(CACHED_OPTIONS)
def _with_budget(options: Options, budget: MemoryBudget) -> Options:
    return replace(options, budget=budget)
