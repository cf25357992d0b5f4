"""Array programs on a device: planned, compiled, and run on NumPy's arrays or on the device's."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.arrays.array_loop import ROW, ArrayLoop
from symgrad.arrays.fuse import fused
from symgrad.arrays.kernels import WHEREVER
from symgrad.arrays.laws import Builder
from symgrad.arrays.parts import in_parts
from symgrad.arrays.program import ArrayProgram, Call, Constant
from symgrad.arrays.scalars import Array
from symgrad.arrays.strips import in_strips
from symgrad.backend import Backend, backend_of, plan_on_host
from symgrad.errors import InputError
from symgrad.expr.graph.node import Graph, paused_gc
from symgrad.kernel.host.memory import ResidentArray, ResidentRows
from symgrad.kernel.language.ir import Target
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.launch import Launch
from symgrad.kernel.stages.layouts import added_up, laid_out
from symgrad.kernel.stages.plan import Plan, Segment, plan
from symgrad.kernel.stages.steps import (
    CallStep,
    HostStep,
    JoinStep,
    PartStep,
    ProductStep,
    ScanStep,
    ScatterStep,
)
from symgrad.pipeline import Options, simplified
from symgrad.report.kernel import sources_of
from symgrad.targets import Device
from symgrad.values.arrays import memory_dtype

LARGE: Final = 2**25
"""Elements from which an array is computed in strips: 128 MiB, the most that a GPU binds."""

KEPT_NUMBERS: Final = 1024
"""Numbers of iterations that are kept on a device."""

HOST_LARGE: Final = 2**22
"""Elements from which it is on the host, whose caches strips stay in."""


def planned(program: ArrayProgram, target: Target, options: Options, binding: int = 0) -> Plan:
    """The plan of a program on a target, with those of the bodies of its loops.

    Arrays of more elements than a ``binding`` has are in parts, if it says so.
    """

    def simplify(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
        return simplified(graph, roots, options)

    # of wider numbers a group has no memory for the tiles of algorithms
    on_host = target.in_step or options.dtype != "float32"
    if binding:
        program = in_parts(program, binding)
    with paused_gc():
        if target.in_step:
            program = laid_out(program, target)
        whole = plan(program, target, simplify, on_host)
    for part in whole.parts:
        if isinstance(part, CallStep) and part.call.name == "loop":
            loop: ArrayLoop = part.call.options[0]
            body = planned(_body(loop, target), target, options, binding)
            whole.bodies[part] = loop.count, body
    return whole


def _body(loop: ArrayLoop, target: Target) -> ArrayProgram:
    """The program of a loop's body; one that is of strips is not computed in such again."""
    in_blocks = loop.tested and not loop.axis and not target.in_step
    program = loop.staying if in_blocks else loop.body
    assert isinstance(program.scalars, Builder), "bodies of tapes are built by one"
    outputs = tuple(fused(program.scalars, program.outputs))
    body = ArrayProgram(program.scalars, program.inputs, outputs)
    return body if loop.of_strips else _without_large(body, target)


def _without_large(program: ArrayProgram, target: Target) -> ArrayProgram:
    """A program that stores no array far larger than what that is made of, where it needs none."""
    if target.in_step:
        return in_strips(program, HOST_LARGE)
    return in_strips(added_up(program), LARGE)


def compile_arrays(program: ArrayProgram, options: Options, device: Device) -> CompiledArrays:
    """A program of arrays, compiled for a device."""
    backend = backend_of(device)
    target = backend.device_target(options.dtype, options.math)
    owner, itemsize = backend.owner, memory_dtype(options.dtype).itemsize
    binding = 0 if owner is None else owner.max_binding // itemsize
    whole = planned(_without_large(program, target), target, options, binding)
    return CompiledArrays(whole, options, backend)


class CompiledArrays:
    """A plan that is compiled for a device. Several threads may run it."""

    def __init__(self, whole: Plan, options: Options, backend: Backend) -> None:
        self.plan, self.program = whole, whole.program
        self.options, self.backend = options, backend
        self._takes_resident = backend.owner is not None
        self._dtypes = {"f": options.floats, "i": np.dtype(np.int32)}
        self._on_host = plan_on_host(whole, options) if backend.on_host else None
        self._rows = _rows(whole)
        self._parts = [] if backend.on_host else [self._part(part) for part in whole.parts]
        parts, outputs = whole.parts, self.program.outputs
        written = {a for part in parts if isinstance(part, Segment) for a in part.outputs}
        owning = ProductStep, ScanStep, ScatterStep, JoinStep
        written |= {a for p in parts if isinstance(p, owning) for a in p.writes}
        if backend.on_host:
            written = {*outputs}.difference(self.program.inputs, self.program.constants)
        self._own = len({*outputs}) == len(outputs) and written.issuperset(outputs)
        """Whether each output has memory of its own, as all have that kernels and BLAS write."""
        self._known: dict[Array, Any] = {}
        for constant in self.program.constants:
            self._known[constant] = self._constant(constant)

    @property
    def weight(self) -> int:
        """The cost on the CPU, in additions; 0 on other devices, whose threads are their own."""
        return 0 if self._on_host is None else self._on_host.weight

    def _constant(self, constant: Constant) -> Any:
        """Numbers that are known, where they are read."""
        return self.resident(np.ascontiguousarray(constant.data, self._dtypes[constant.kind]))

    def given(self, array: Any) -> Any:
        """An input as programs take it: floats in the dtype, others as int32."""
        if isinstance(array, ResidentArray):
            if self._takes_resident:
                return array
            array = array.numpy()
        if array.dtype.kind == "f":
            return np.asarray(array, self.options.floats, order="C")
        if array.size and not np.can_cast(array.dtype, np.int32):
            low, high = array.min(), array.max()
            if low < -(2**31) or high >= 2**31:
                wrong = low if low < -(2**31) else high
                raise InputError(f"an array of integers holds {wrong}, beyond 32 bits")
        return np.asarray(array, np.int32, order="C")

    def resident(self, data: Any) -> Any:
        """An array that many calls read, in the memory of the device."""
        if self.backend.on_host or isinstance(data, ResidentArray):
            return data
        return self.backend.array(
            data, self.options.dtype if data.dtype.kind == "f" else data.dtype
        )

    @property
    def wgsl(self) -> str:
        """The kernels as a GPU gets them, each once, in the order in which they run."""
        return "\n".join(self.modules)

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules, each complete in itself, with the entry point ``main``."""
        gpu_plan = self.plan
        if self.backend.on_host:
            gpu_plan = planned(self.program, WorkgroupTarget(), self.options)
        launches = list(_launches(gpu_plan))
        sources = [s for launch in launches for s in sources_of(launch, self.options, "")]
        return tuple(dict.fromkeys(sources))

    def run(self, inputs: Sequence[Any], on_device: bool = False) -> list[Any]:
        """The outputs: arrays of the host, or of the device where that is asked for."""
        arrays = self._known | {a: inputs[a.number] for a in self.program.inputs}
        if self._on_host is not None:
            arrays |= self._on_host.run(inputs)
        for part in self._parts:
            part(arrays)
        outputs = [self._output(arrays, a, on_device) for a in self.program.outputs]
        return outputs if self._own else _apart(outputs, [*inputs, *self._known.values()])

    def _read(self, arrays: dict[Array, Any], array: Array) -> Any:
        """An array that has been computed, or one that has no elements."""
        return arrays[array] if array.size else np.empty(array.shape, self._dtypes[array.kind])

    def _output(self, arrays: dict[Array, Any], array: Array, on_device: bool) -> Any:
        value = self._read(arrays, array)
        if isinstance(value, ResidentArray) and not on_device:
            return value.numpy()
        return value

    def _part(self, part: Segment | HostStep) -> Any:
        """The function of all arrays that computes a part of the plan."""
        if isinstance(part, Segment):
            return self._segment(part)
        if isinstance(part, CallStep) and part.call.name == "loop":
            return self._loop(part.call, part)
        if isinstance(part, CallStep) and part.call.name in WHEREVER:
            return partial(self._wherever, part)
        if isinstance(part, PartStep | JoinStep):
            return partial(self._moved, part)
        return partial(self._host, part)

    def _loop(self, call: Call, step: CallStep) -> Any:
        """A loop: its body is compiled once, and carries stay on the device."""
        loop: ArrayLoop = call.options[0]
        plan = self.plan.bodies[step][1]
        recorded = self.backend.loop(loop, plan, self.options)
        if recorded is not None:
            rows = [k for k, array in step.results.items() if array in self._rows]
            return partial(self._recorded, recorded, step, rows)
        body = CompiledArrays(plan, self.options, self.backend)

        @functools.lru_cache(KEPT_NUMBERS)
        def counted(k: int) -> Any:
            return self.resident(np.array(k, np.int32))

        def run(arrays: dict[Array, Any]) -> None:
            operands = [self._read(arrays, a) for a in call.operands]
            operands = [
                x.joined(loop.count, loop.axis) if isinstance(x, ResidentRows) else x
                for x in operands
            ]
            with self.backend.together():
                results = loop.run(operands, lambda x: body.run(x, True), np.stack, counted)
            arrays |= {array: results[k] for k, array in step.results.items()}

        return run

    def _recorded(
        self, loop: Any, step: CallStep, rows: Sequence[int], arrays: dict[Array, Any]
    ) -> None:
        """Runs a loop that the device has by itself; results of these numbers stay rows."""
        results = loop.run([self._read(arrays, a) for a in step.call.operands], rows)
        arrays |= {array: results[k] for k, array in step.results.items()}

    def _wherever(self, step: CallStep, arrays: dict[Array, Any]) -> None:
        """Calls a kernel of its own, which takes arrays of the device or of the host."""
        call, floats = step.call, self.options.floats
        given = [self._read(arrays, a) for a in call.operands]
        results = call.reference(*given, *call.options)
        for k, array in step.results.items():
            on_device = isinstance(results[k], ResidentArray)
            arrays[array] = results[k] if on_device else np.asarray(results[k], floats, order="C")

    def _segment(self, segment: Segment) -> Any:
        launched = self.backend.launch(segment.launch, self.options)

        def run(arrays: dict[Array, Any]) -> None:
            given = [arrays[a] for a in segment.inputs]
            arrays |= zip(segment.outputs, launched.run(*given), strict=True)

        return run

    def _moved(self, step: PartStep | JoinStep, arrays: dict[Array, Any]) -> None:
        """Takes arrays apart, or puts them together, where they are."""
        arrays |= zip(step.writes, step.run([arrays[a] for a in step.inputs]), strict=True)

    def _host(self, step: HostStep, arrays: dict[Array, Any]) -> None:
        """Does a step on the host, on arrays of which some may be on the device."""
        given = [self._read(arrays, a) for a in step.inputs]
        hosted = [x.numpy() if isinstance(x, ResidentArray) else x for x in given]
        for array, values in zip(step.writes, step.run(hosted), strict=True):
            values = np.ascontiguousarray(values, self._dtypes[array.kind])
            arrays[array] = values.reshape(array.shape)  # which has an axis too many of a number


def _rows(whole: Plan) -> set[Array]:
    """The results of loops that only loops read, row by row."""
    rows, others = set[Array](), {*whole.program.outputs}
    for part in whole.parts:
        if part in whole.bodies and isinstance(part, CallStep):
            loop: ArrayLoop = part.call.options[0]
            rows |= {array for k, array in part.results.items() if k >= loop.carries}
            pairs = zip(part.call.operands, loop.roles, strict=True)
            others |= {a for a, role in pairs if role != ROW}
        else:
            others.update(part.inputs)
    return rows - others


def _launches(whole: Plan) -> Iterator[Launch]:
    """The launches of a plan, and of the bodies of its loops after them."""
    yield from (part.launch for part in whole.parts if isinstance(part, Segment))
    for _, body in whole.bodies.values():
        yield from _launches(body)


def _apart(outputs: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Arrays of the host, of which none is in the memory of another one, or of these others."""
    taken = {_address(x) for x in others if isinstance(x, np.ndarray)}
    apart = []
    for output in outputs:
        if isinstance(output, np.ndarray):
            if _address(output) in taken:
                output = output.copy()
            taken.add(_address(output))
        apart.append(output)
    return apart


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
