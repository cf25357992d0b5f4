"""Runs launches on a GPU: all dispatches of one in a submit, on arrays that stay on the device."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import DeviceError
from symgrad.kernel.launch import Dispatch, Launch
from symgrad.kernel.layout import MAX_WORKGROUPS, grid_of
from symgrad.kernel.memory import POOL
from symgrad.kernel.statements import BOUND, Buffer
from symgrad.mathlib.define import functions
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.stored import FLOAT
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.dispatch.points import require_iterations
from symgrad.wgsl.memory.encoding import Step
from symgrad.wgsl.memory.pool import Storage
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Printed, Style

CACHED_PIPELINES: Final = 256
"""Most compiled kernels that are cached."""

NUMBER_BYTES: Final = 4
"""Bytes of a number."""

QUAD_BYTES: Final = 16
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
class _Slot:
    """What is bound to a buffer: a table of the kernel's, or an array of a call."""

    table: Range | None
    array: int
    """Its number among the arrays of a call: inputs, outputs, scratch and temporary ones."""
    nbytes: int


@dataclass(frozen=True)
class _Planned:
    """A dispatch with all that does not change from call to call."""

    compiled: Compiled
    slots: Sequence[_Slot]
    numbers: Sequence[int]
    """How many invocations there are, and the arguments."""
    across: int
    down: int


class Launched:
    """A launch that is compiled for a GPU. Any number of threads may run it."""

    def __init__(self, gpu: Gpu, launch: Launch, style: Style) -> None:
        start = time.perf_counter()
        launch.verify()
        self.gpu, self.launch = gpu, launch
        for a in launch.arrays:
            if NUMBER_BYTES * a.size > gpu.max_binding:
                raise DeviceError(
                    f"{gpu.info.name} holds {gpu.max_binding:,} bytes in one array, too few for "
                    f'{a.name} of shape {a.shape}: use device="cpu"'
                )
        self._key = object()
        self._kinds = {a.name: a.dtype(FLOAT) for a in launch.arrays}
        self._sizes = [NUMBER_BYTES * a.size for a in (*launch.outputs, *launch.scratch)]
        self._places = {a.name: n for n, a in enumerate(launch.arrays)}
        self._temporaries = list[int]()
        """Bytes of the temporary arrays of dispatches: scratch memory, or what stands for none."""
        self._plan = [self._planned(d, style) for d in launch.dispatches if d.number_of_groups]
        self.seconds = time.perf_counter() - start
        """How long it took to compile."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The WGSL of all kernels, each once, in the order in which they run."""
        modules = (source for p in self._plan for source in p.compiled.printed.modules)
        return tuple(dict.fromkeys(modules))

    def _planned(self, d: Dispatch, style: Style) -> _Planned:
        require_iterations(self.gpu, d.iterations)
        key = self.gpu, d.program, d.target, style
        compiled = _compiled.get(key, lambda: Compiled(self.gpu, d, style))
        groups = d.number_of_groups
        across, down = grid_of(groups) if d.target.grid else (groups, 1)
        assert max(across, down) <= MAX_WORKGROUPS, f"{groups:,} groups, and no grid of them"
        names, sizes = dict(d.arrays), {a.name: a.size for a in self.launch.arrays}
        slots = [self._slot(compiled, b, names, sizes) for b in compiled.buffers]
        if compiled.printed.slots:
            slots.append(
                self._temporary(
                    NUMBER_BYTES * compiled.printed.slots * across * down * d.target.width
                )
            )
        return _Planned(compiled, slots, (d.count, *d.words), across, down)

    def _slot(
        self, compiled: Compiled, b: Buffer, names: Mapping[str, str], sizes: Mapping[str, int]
    ) -> _Slot:
        """What is bound to a buffer: of an array all, to the end of the last of its vectors."""
        if b in compiled.tables:
            return _Slot(_whole(compiled.tables[b]), 0, 0)
        name = names[b.name]
        if not sizes[name]:
            return self._temporary(QUAD_BYTES)
        vectors = -(-sizes[name] // b.vector)
        return _Slot(None, self._places[name], NUMBER_BYTES * b.vector * vectors)

    def _temporary(self, nbytes: int) -> _Slot:
        """Memory that every call takes anew."""
        self._temporaries.append(nbytes)
        return _Slot(None, len(self._places) + len(self._temporaries) - 1, nbytes)

    def run(self, *inputs: Any) -> list[Any]:
        """The outputs, before they are computed: arrays on the device; NumPy's if all inputs are.

        Inputs are in the shapes that the launch says.
        """
        gpu = self.gpu
        gpu.check()
        with gpu.guard:
            arrays = [*self._sent(inputs), *self._made()]
            temporaries = [gpu.storage(n) for n in self._temporaries]  # until it is submitted
            gpu.submit_unwaited(self._steps(arrays, temporaries))
            results = arrays[len(inputs) : len(inputs) + len(self.launch.outputs)]
            if any(isinstance(x, DeviceArray) for x in inputs):
                return results
            return self._fetched(results)

    def _made(self) -> list[DeviceArray]:
        """The outputs and scratch arrays, with anything in them."""
        gpu, kinds = self.gpu, self._kinds
        return [
            DeviceArray(gpu, a.shape, gpu.storage(n) if n else None, kinds[a.name])
            for a, n in zip((*self.launch.outputs, *self.launch.scratch), self._sizes, strict=True)
        ]

    def _sent(self, inputs: Sequence[Any]) -> list[DeviceArray]:
        """The inputs on the device."""
        arrays = list(inputs)
        hosted = list[int]()
        for n, (a, x) in enumerate(zip(self.launch.inputs, inputs, strict=True)):
            if not isinstance(x, DeviceArray):
                hosted.append(n)
                continue
            if x.gpu is not self.gpu:
                raise DeviceError(f"{a.name} is on {x.device}, the kernel on {self.gpu.info}")
            assert x.shape == a.shape or x.size == a.size, f"{a.name} has other than {a.size}"
            assert x.dtype == self._kinds[a.name], f"{a.name} has numbers of kind {a.kind}"
        if hosted:
            with self.gpu.transfers.upload() as up:
                for n in hosted:
                    a, x = self.launch.inputs[n], inputs[n]
                    assert x.size == a.size, f"{a.name} has other than {a.size} numbers"
                    arrays[n] = DeviceArray.sent(self.gpu, x, up, self._kinds[a.name])
                up.flush()
        return arrays

    def _fetched(self, results: Sequence[DeviceArray]) -> list[np.ndarray]:
        """Results on the host."""
        arrays = [POOL.empty(r.shape, r.dtype, aligned=False) for r in results]
        with self.gpu.transfers.download() as down:
            down.get(*(r.into(x) for r, x in zip(results, arrays, strict=True) if r.size))
        return arrays

    def _steps(self, arrays: Sequence[DeviceArray], temporaries: Sequence[Storage]) -> list[Step]:
        """The dispatches, with these arrays bound."""
        places = [*(a.place for a in arrays), *((t.buffer, 0) for t in temporaries)]
        key = self._key, *[(id(buffer), start) for buffer, start in places]
        groups = self.gpu.bound(key, lambda: [self._bound(p, places) for p in self._plan])
        return [
            Step(pipeline, group, p.across, p.down)
            for p, group in zip(self._plan, groups, strict=True)
            for pipeline in p.compiled.pipelines
        ]

    def _bound(self, p: _Planned, places: Sequence[tuple[Any, int]]) -> Any:
        """The bind group of a dispatch."""
        ranges = [s.table or (*places[s.array], s.nbytes) for s in p.slots]
        count, *arguments = p.numbers
        return self.gpu.bind(count, ranges, p.compiled.readable, arguments)


def _whole(storage: Storage) -> Range:
    return storage.buffer, 0, storage.nbytes
