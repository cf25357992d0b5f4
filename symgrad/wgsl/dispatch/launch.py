"""Runs launches on a GPU: all dispatches of one in a submit, on arrays that stay on the device."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import DeviceError
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.layout import MAX_WORKGROUPS, grid_of
from symgrad.kernel.memory import POOL
from symgrad.kernel.statements import BOUND
from symgrad.mathlib.define import functions
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.stored import FLOAT
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.dispatch.points import require_turns
from symgrad.wgsl.memory.encoding import Step
from symgrad.wgsl.memory.pool import Storage
from symgrad.wgsl.printing.emit import Style
from symgrad.wgsl.printing.printer import Printed, print_kernel

CACHED_PIPELINES: Final = 256
"""Most compiled kernels that are cached."""

NUMBER: Final = 4
"""Bytes of a number."""

QUAD: Final = 16
"""Bytes of four numbers, of which arrays of quads are whole multiples."""


class Compiled:
    """A kernel of the language as pipelines, which run one after the other."""

    def __init__(self, gpu: Gpu, dispatch: Dispatch, style: Style) -> None:
        self.kernel = kernel = dispatch.kernel
        self.printed: Printed = print_kernel(
            kernel, functions(style.math), style, [f"// {kernel.name}"]
        )
        bound = sorted((b for b in kernel.buffers if b.space in BOUND), key=lambda b: b.space)
        self.readable = sum(b.space == "read" for b in bound)
        self.buffers = bound
        """Those that are bound, in the order of the bindings."""
        self.tables = {b: gpu.constants(b.data) for b in bound if b.data is not None}
        writable = len(bound) - self.readable + bool(self.printed.slots)
        if (needed := self.readable + writable) > gpu.max_arrays:
            raise DeviceError(
                f"{gpu.info.name} binds {gpu.max_arrays} arrays, {kernel.name} has {needed}"
            )
        self.pipelines = [
            gpu.pipeline(source, writable, self.readable) for source in self.printed.modules
        ]


_compiled: Once[Any, Compiled] = Once(CACHED_PIPELINES)


@dataclass(frozen=True)
class _Planned:
    """A dispatch with all that does not change from call to call."""

    compiled: Compiled
    names: Mapping[str, str]
    numbers: Sequence[int]
    """How many invocations there are, and the arguments."""
    across: int
    down: int
    scratch: int
    """Bytes for arrays of the invocations' own."""


class Launched:
    """A launch that is compiled for a GPU. Any number of threads may run it."""

    def __init__(self, gpu: Gpu, launch: Launch, style: Style) -> None:
        start = time.perf_counter()
        launch.verify()
        self.gpu, self.launch = gpu, launch
        for a in launch.arrays:
            if NUMBER * a.size > gpu.max_binding:
                raise DeviceError(
                    f"{gpu.info.name} holds {gpu.max_binding:,} bytes in one array, too few for "
                    f'{a.name} of shape {a.shape}: use device="cpu"'
                )
        self._plan = [self._planned(d, style) for d in launch.dispatches if d.number_of_groups]
        self.seconds = time.perf_counter() - start
        """How long it took to compile."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The WGSL of all kernels, each once, in the order in which they run."""
        modules = (source for p in self._plan for source in p.compiled.printed.modules)
        return tuple(dict.fromkeys(modules))

    def _planned(self, d: Dispatch, style: Style) -> _Planned:
        require_turns(self.gpu, d.turns)
        key = self.gpu, d.program, d.target, style
        compiled = _compiled.get(key, lambda: Compiled(self.gpu, d, style))
        groups = d.number_of_groups
        across, down = grid_of(groups) if d.target.grid else (groups, 1)
        assert max(across, down) <= MAX_WORKGROUPS, f"{groups:,} groups, and no grid of them"
        scratch = NUMBER * compiled.printed.slots * across * down * d.target.width
        return _Planned(compiled, dict(d.arrays), (d.count, *d.words), across, down, scratch)

    def run(self, *inputs: Any) -> list[Any]:
        """The outputs, before they are computed: arrays on the device; NumPy's if all inputs are.

        Inputs are in the shapes that the launch says.
        """
        gpu, launch = self.gpu, self.launch
        gpu.check()
        with gpu.guard:
            arrays = self._sent(inputs)
            arrays |= {
                a.name: DeviceArray.empty(gpu, a.shape, a.dtype(FLOAT))
                for a in (*launch.outputs, *launch.scratch)
            }
            held: list[Storage] = []  # until it is submitted, or another thread may have it
            gpu.submit_unwaited(list(self._steps(arrays, held)))
            results = [arrays[a.name] for a in launch.outputs]
            if any(isinstance(x, DeviceArray) for x in inputs):
                return results
            return self._fetched(results)

    def _sent(self, inputs: Sequence[Any]) -> dict[str, DeviceArray]:
        """The inputs on the device."""
        found: dict[str, DeviceArray] = {}
        hosted: list[tuple[Array, np.ndarray]] = []
        for a, x in zip(self.launch.inputs, inputs, strict=True):
            assert x.size == a.size, f"{a.name} has other than {a.size} numbers"
            if not isinstance(x, DeviceArray):
                hosted.append((a, x))
                continue
            if x.gpu is not self.gpu:
                raise DeviceError(f"{a.name} is on {x.device}, the kernel on {self.gpu.info}")
            assert x.dtype == a.dtype(FLOAT), f"{a.name} has numbers of kind {a.kind}"
            found[a.name] = x
        if hosted:
            with self.gpu.transfers.upload() as up:
                for a, x in hosted:
                    found[a.name] = DeviceArray.sent(self.gpu, x, up, a.dtype(FLOAT))
                up.flush()
        return found

    def _fetched(self, results: Sequence[DeviceArray]) -> list[np.ndarray]:
        """Results on the host."""
        found = [POOL.empty(r.shape, r.dtype, aligned=False) for r in results]
        with self.gpu.transfers.download() as down:
            down.get(*(r.into(x) for r, x in zip(results, found, strict=True) if r.size))
        return found

    def _steps(self, arrays: Mapping[str, DeviceArray], held: list[Storage]) -> Iterator[Step]:
        """The dispatches, with these arrays bound; ``held`` gets what else they work in."""

        def room(nbytes: int) -> Range:
            held.append(self.gpu.storage(nbytes))
            return _whole(held[-1])

        for p in self._plan:
            c = p.compiled
            bound = [
                _whole(c.tables[b])
                if b in c.tables
                else _range(arrays[p.names[b.name]], b.vector) or room(QUAD)
                for b in c.buffers
            ]
            if p.scratch:
                bound.append(room(p.scratch))
            count, *arguments = p.numbers
            bindings = self.gpu.bind(count, bound, c.readable, arguments)
            yield from (Step(pipeline, bindings, p.across, p.down) for pipeline in c.pipelines)


def _range(array: DeviceArray, vector: int) -> Range | None:
    """Where an array stands, if it has elements: to the end of the last of its vectors."""
    place = array.place
    if place is None or vector == 1:
        return place
    buffer, first, nbytes = place
    return buffer, first, -(-nbytes // (4 * vector)) * 4 * vector


def _whole(storage: Storage) -> Range:
    return storage.buffer, 0, storage.nbytes
