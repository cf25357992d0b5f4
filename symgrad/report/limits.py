"""What a device can do at most: how many bytes it moves, and how much it computes, in a second."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.backend import backend_of
from symgrad.kernel.stats import flops
from symgrad.pipeline import VALUES, DTypeName, Options, Shaders, build
from symgrad.targets import Device
from symgrad.wgsl.device.bandwidth import copying

LEAST_SECONDS: Final = 0.01
"""Seconds that a measurement takes at least."""

WARM_UP_SECONDS: Final = 0.5
"""Seconds that a GPU is kept busy before it is measured: an idle one has slow clocks."""

MEASUREMENTS: Final = 3
"""Measurements, of which the quickest counts: others may be at work."""

INDEPENDENT_CHAINS: Final = 8
"""Chains of operations, none of which waits for another."""


@dataclass(frozen=True)
class _Work:
    """What is measured: so many numbers copied, and at so many points chains of so many sums."""

    copied: int
    computed: int
    chain: int


WORK: Final = {
    "cpu": _Work(2**24, 2**16, 128),
    "software": _Work(2**20, 2**14, 32),
}
"""For a CPU, and a GPU's driver there, which takes long for what is long."""

REAL: Final = _Work(2**26, 2**20, 512)
"""For a GPU: more than its caches hold, and enough to do for all of it."""


@dataclass(frozen=True)
class Limits:
    """What a device was seen to do at most.

    ``bandwidth`` is in bytes moved a second, those read and those written; ``rate`` in operations
    a second, as `Stats` counts them: a product and a sum are two, though devices fuse them.
    """

    bandwidth: float
    rate: float


@functools.cache
def limits_of(device: Device, dtype: DTypeName) -> Limits:
    """The limits of a device for numbers of a dtype: measured when first asked for, and kept."""
    work = WORK.get(device.kind, REAL)
    nbytes = np.dtype(dtype).itemsize * work.copied
    owner = backend_of(device).owner
    if owner is not None:
        copy, nbytes = copying(owner, nbytes)
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


def _repeated(
    f: Callable[[Any], list[Any]], width: int, count: int, device: Device, dtype: DTypeName
) -> tuple[Callable[[int], None], int]:
    """What computes f of so many numbers at so many points, over and over, and a point's cost."""
    options = Options("limits", "accurate", dtype, False, False)
    built = build(f, width, VALUES, options)
    computation = built.computation
    (ids,) = (output.nodes for output in computation.outputs)
    cost = flops(computation.graph, ids)
    backend, shaders = backend_of(device), Shaders(computation, options, "limits")
    program = backend.program(shaders)
    x, y = (backend.array(np.ones((count, width), dtype)) for _ in range(2))
    call = program.bind(x, [y])

    def run(iterations: int) -> None:
        for _ in range(iterations):
            call()
        backend.wait()

    return run, cost


def _seconds(run: Callable[[int], None]) -> float:
    """The seconds of one turn of many, as few as take long enough to be measured."""
    iterations, spent = 1, _spent(run, 1)
    while spent < LEAST_SECONDS:
        iterations *= max(2, min(64, int(LEAST_SECONDS / max(spent, 1e-9))))
        spent = _spent(run, iterations)
    return min(spent, *(_spent(run, iterations) for _ in range(MEASUREMENTS - 1))) / iterations


def _warm(run: Callable[[int], None]) -> None:
    """Repeat a turn until clocks are those of a device that is busy."""
    end = time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < end:
        run(1)


def _spent(run: Callable[[int], None], iterations: int) -> float:
    start = time.perf_counter()
    run(iterations)
    return time.perf_counter() - start
