"""Devices: the bytes and operations of a second that they reach, and the memory that is taken."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.backend import backend_of
from symgrad.expr import ops
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.target import GROUP_INVOCATIONS, MAX_WORKGROUPS, WorkgroupTarget
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.stats import flops
from symgrad.pipeline import VALUES, DTypeName, Options, build
from symgrad.targets import Device, DeviceChoice, choose
from symgrad.values.arrays import host_dtype

LEAST_SECONDS: Final = 0.01
"""Seconds that a measurement takes at least."""

WARM_UP_SECONDS: Final = 0.5
"""Seconds that a GPU is kept busy before it is measured: an idle one has slow clocks."""

QUAD: Final = 4
"""Numbers that an invocation of a GPU copies at a time."""

COPIES: Final = 8
"""Copies of a call, so that its submission takes little of the time."""

MEASUREMENTS: Final = 3
"""Measurements, of which the quickest counts: others may be at work."""

INDEPENDENT_CHAINS: Final = 8
"""Chains of operations, none of which waits for another."""


@dataclass(frozen=True)
class Work:
    """How much is measured: numbers copied, points computed at, and the sums of a chain at each."""

    copied: int
    computed: int
    chain: int


WORK: Final = {
    "cpu": Work(2**24, 2**16, 128),
    "software": Work(2**20, 2**14, 32),
}
"""For a CPU, and a GPU's driver there, which takes long for what is long."""

REAL: Final = Work(2**26, 2**20, 512)
"""For a GPU: more than its caches hold, and enough to do for all of it."""


@dataclass(frozen=True)
class Limits:
    """The most that a device was measured to do.

    ``bandwidth`` is in bytes moved a second, those read and those written; ``rate`` in operations
    a second, as `Stats` counts them: a product and a sum are two, though devices fuse them.
    """

    bandwidth: float
    rate: float


@functools.cache
def limits_of(device: Device, dtype: DTypeName) -> Limits:
    """The limits of a device for numbers of a dtype: measured when first asked for, and kept."""
    work = WORK.get(device.kind, REAL)
    nbytes = host_dtype(dtype).itemsize * work.copied
    if device.is_gpu:
        copy, nbytes = _copying(device, nbytes)
    else:
        copy, _ = _repeated(lambda v: [2.0 * v[0]], 1, work.copied, device, dtype)
    if device.is_real_gpu:
        _warm(copy)
    chains = partial(_chains, work.chain)
    compute, cost = _repeated(chains, INDEPENDENT_CHAINS, work.computed, device, dtype)
    return Limits(2 * nbytes / _seconds(copy), cost * work.computed / _seconds(compute))


def _chains(length: int, v: Any) -> list[Any]:
    """A chain of products and sums for each number, which devices fuse and cannot shorten."""
    numbers = list(v)
    for _ in range(length):
        numbers = [x * x - 0.5 for x in numbers]
    return numbers


def _copying(device: Device, nbytes: int) -> tuple[Callable[[int], None], int]:
    """A function that makes n calls, and the bytes that a call of it copies on a GPU.

    It copies so many `COPIES` times, or as many as the GPU binds.
    """
    backend, options = backend_of(device), Options("copy", "accurate", "float32", False, False)
    owner = backend.owner
    assert owner, f"{device} is no GPU"
    quads = min(nbytes, owner.max_binding, owner.max_buffer) // (4 * QUAD)
    source, copied = (backend.array(np.zeros(QUAD * quads, np.float32)) for _ in range(2))
    call = backend.launch(_copies(quads), options).bind([source], [copied])

    def run(iterations: int) -> None:
        for _ in range(iterations):
            call()
        backend.wait()

    return run, COPIES * source.nbytes


def _copies(quads: int) -> Launch:
    """The launch of `COPIES` copies of an array of so many quads."""
    source, copied = (Array(name, (QUAD * quads,)) for name in ("source", "copied"))
    target = WorkgroupTarget(GROUP_INVOCATIONS)
    groups = min(-(-quads // target.width), MAX_WORKGROUPS)
    names = tuple((a.name, a.name) for a in (source, copied))
    dispatch = Dispatch(_copy_program, target, names, quads, groups)
    return Launch("copy", (source,), (copied,), (), (dispatch,) * COPIES)


def _copy_program(target: Target) -> KernelIR:
    """The kernel that moves most bytes in a second: a copy, of four numbers at a time."""
    k = KernelIR(target, "copy")
    source, copied = (
        k.buffer("source", "read", vector=QUAD),
        k.buffer("copied", "write", vector=QUAD),
    )
    first, stride = Index(k, k.cell), Index(k, k.groups) * target.width

    def quad(i: int, _: object) -> tuple[()]:
        for place in (first + Index(k, i) * stride).lanes(QUAD):
            k.store(copied, place, k.load(source, place))
        return ()

    more = Index(k, k.count) + stride - 1 - first
    k.loop(k.word(0), k.add(ops.word_div, more.id, stride.id), (), quad)
    return k


def _repeated(
    f: Callable[[Any], list[Any]], width: int, count: int, device: Device, dtype: DTypeName
) -> tuple[Callable[[int], None], int]:
    """A function that computes f at ``count`` points n times, and the cost of a point."""
    options = Options("limits", "accurate", dtype, False, False)
    built = build(f, width, VALUES, options)
    computation = built.computation
    (ids,) = (output.nodes for output in computation.outputs)
    cost = flops(computation.graph, ids)
    backend = backend_of(device)
    launched = backend.map(computation, options, "limits")
    x, y = (backend.array(np.ones((count, width)), dtype) for _ in range(2))
    call = launched.bind([x], [y])

    def run(iterations: int) -> None:
        for _ in range(iterations):
            call()
        backend.wait()

    return run, cost


def _seconds(run: Callable[[int], None]) -> float:
    """The seconds of one call among as few as take long enough to be measured."""
    iterations, spent = 1, _spent(run, 1)
    while spent < LEAST_SECONDS:
        iterations *= max(2, min(64, int(LEAST_SECONDS / max(spent, 1e-9))))
        spent = _spent(run, iterations)
    return min(spent, *(_spent(run, iterations) for _ in range(MEASUREMENTS - 1))) / iterations


def _warm(run: Callable[[int], None]) -> None:
    """Repeat a call until clocks are those of a device that is busy."""
    end = time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < end:
        run(1)


def _spent(run: Callable[[int], None], iterations: int) -> float:
    start = time.perf_counter()
    run(iterations)
    return time.perf_counter() - start


# --- memory ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Bytes of a device's memory; see `memory`.

    Example:
        >>> import symgrad as sg
        >>> str(sg.Memory(in_use=4096, kept=1024, limit=None))
        '4,096 bytes in use, 1,024 kept to be used again, no limit is set'
    """

    in_use: int
    kept: int
    limit: int | None

    def __str__(self) -> str:
        most = "no limit is set" if self.limit is None else f"at most {self.limit:,} in all"
        return f"{self.in_use:,} bytes in use, {self.kept:,} kept to be used again, {most}"


def memory(device: DeviceChoice = None) -> Memory:
    """The memory of a device that symgrad holds, in bytes.

    ``in_use`` is in arrays that are alive, in bound rows and in the workspaces of kernels; ``kept``
    is in none of these, and will be used again by the next calls, or given back when it has not
    been for ten seconds, when the device is full, or by `free_memory`. ``limit`` is how many bytes
    arrays may have in all, for a GPU in software the machine's memory, or None: as many as the
    device gives.

    Of the CPU's memory, results of 128 KiB or more are counted.

    Args:
        device: as everywhere; None is the first real GPU, or the CPU if there is none.

    Raises:
        DeviceError: if there is no such device.

    Example:
        >>> import symgrad as sg
        >>> sg.memory("cpu").limit is None
        True
    """
    return Memory(*backend_of(choose(device)).memory)


def free_memory(device: DeviceChoice = None) -> int:
    """Give back what symgrad keeps of a device's memory and nothing uses: how many bytes it was.

    It waits until the device has done what was queued. Kernels' workspaces are given back too, and
    made again by their next call.

    Args:
        device: as for `memory`.

    Raises:
        DeviceError: if there is no such device, or it was lost.

    Example:
        >>> import symgrad as sg
        >>> sg.free_memory("cpu") >= 0
        True
        >>> sg.memory("cpu").kept
        0
    """
    return backend_of(choose(device)).free()
