"""Array programs as kernels of arrays: named arguments, checked shapes, gradients, one launch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from symgrad.arrays.laws import Builder
from symgrad.arrays.program import ArrayProgram, Constant, Input, Tabulate
from symgrad.arrays.scalars import Array
from symgrad.arrays.tape import Tape, opened
from symgrad.arrays.trace import program_of, pulled_back, variables
from symgrad.arrays.whole import WholeArray
from symgrad.backend import Backend
from symgrad.cache import Once
from symgrad.errors import InputError, TraceError
from symgrad.expr.graph.node import ElementsNeededError, Graph
from symgrad.expr.loops.open_loop import Tracing
from symgrad.kernel import launch as launches
from symgrad.kernel.host.memory import ResidentArray
from symgrad.kernel.language.ir import Target
from symgrad.kernel.launch import Launch
from symgrad.kernel.stages.plan import Segment
from symgrad.pipeline import Options
from symgrad.tensor.kernel import Shape
from symgrad.tensor.stages import CompiledArrays, compile_arrays, planned

CACHED_TRACES: Final = 64
"""Most traces of functions that are kept."""

_traces: Once[Any, tuple[Tape, list[WholeArray]]] = Once(CACHED_TRACES)


@dataclass(frozen=True)
class ArrayWork:
    """The work of a function of whole arrays, one for each argument, that gives one: see `Work`.

    ``f`` is traced once for arguments of some shapes, which ``require`` refuses if they do not go
    together. It pickles where these do.
    """

    name: str
    arguments: tuple[str, ...]
    f: Callable[..., WholeArray]
    require: Callable[[Sequence[str], Sequence[Shape]], None]
    options: Options
    outputs: tuple[str, str] = ("result", "d_")
    """The name of the result, and what stands before the names of arguments in their gradients'."""
    cotangents: tuple[str, ...] = ("cotangent",)

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes of the results: see `Work`."""
        self.require(self.arguments, shapes)
        return [result.shape for result in self._traced("run", shapes)[1]]

    def called(self, kind: str, arrays: Sequence[WholeArray]) -> list[WholeArray]:
        """The results of a call with these arrays; of "vjp" also the gradients, behind them."""
        many = len(self.arguments)
        result = self.f(*[a.copied() for a in arrays[:many]])
        if kind == "run":
            return [result]
        return [result, *pulled_back([result], arrays[many:], arrays[:many])]

    def names(self, kind: str) -> list[str]:
        """The names of what a call gives."""
        result, before = self.outputs
        return [result, *(before + name for name in self.arguments if kind == "vjp")]

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """All stages of the program: see `Work`.

        Raises:
            InputError: if the host does some, as it sorts.
        """
        plan = planned(self._program(kind, shapes), device_target, self.options)
        program, segment = plan.program, plan.parts[0] if len(plan.parts) == 1 else None
        if not isinstance(segment, Segment):
            raise InputError(
                f"what {self.name} runs is no list of kernels: the host does a part, such as a sort"
            )
        inputs = [*self.arguments, *(self.cotangents if kind == "vjp" else ())]
        inputs += [f"taken{n}" for n in range(len(program.inputs) - len(inputs))]
        names = dict(zip(program.outputs, self.names(kind), strict=True))
        names |= {a: inputs[a.number] for a in program.inputs}
        return _named(segment, program, names, f"{self.name}_{kind}")

    def runner(
        self, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> Running:
        """The program, compiled: see `Work`."""
        start = time.perf_counter()
        compiled = compile_arrays(self._program(kind, shapes), options, backend.device)
        tape, _ = self._traced(kind, shapes)
        taken = [compiled.given(a) for a in tape.arrays[len(shapes) :]]
        arrays = [compiled.resident(a) for a in taken]
        return Running(compiled, arrays, time.perf_counter() - start)

    def _traced(self, kind: str, shapes: Sequence[Shape]) -> tuple[Tape, list[WholeArray]]:
        """The tape of a call and its results."""
        key = self, kind, tuple(map(tuple, shapes))
        return _traces.get(key, lambda: self._trace(kind, shapes))

    def _trace(self, kind: str, shapes: Sequence[Shape]) -> tuple[Tape, list[WholeArray]]:
        tape = Tape()
        given = variables(tape, [np.broadcast_to(0.0, shape) for shape in shapes])
        with opened(tape), Tracing(Graph()):
            try:
                return tape, self.called(kind, given)
            except ElementsNeededError as error:
                raise TraceError(f"{self.name} cannot be traced as a whole: {error}") from error

    def _program(self, kind: str, shapes: Sequence[Shape]) -> ArrayProgram:
        """The program of a call, each of whose outputs is computed, and an array of its own."""
        program = program_of(*self._traced(kind, shapes))
        builder, outputs = program.scalars, list[Array]()
        assert isinstance(builder, Builder), "programs of tapes are built by one"
        for array in program.outputs:
            is_own = not isinstance(array, Input | Constant) and array not in outputs
            outputs.append(array if is_own else _copy(builder, array))
        return replace(program, outputs=tuple(outputs))


class Running:
    """A compiled program, with the arrays that its function takes from elsewhere: see `Runner`."""

    def __init__(self, compiled: CompiledArrays, taken: Sequence[Any], seconds: float) -> None:
        self._compiled, self._taken, self.seconds = compiled, taken, seconds

    def run(self, *arrays: Any) -> list[Any]:
        """The results, on the device where arrays are."""
        on_device = any(isinstance(a, ResidentArray) for a in arrays)
        return self._compiled.run([*arrays, *self._taken], on_device)


def shifted(x: WholeArray, by: int, axis: int) -> WholeArray:
    """The elements moved on along an axis, behind zeros; those that leave are lost."""
    n = x.shape[axis]
    if not by or not n:
        return x
    kept, zeros = max(n - abs(by), 0), list(x.shape)
    zeros[axis] = n - kept
    start = 0 if by > 0 else n - kept
    index = [slice(None)] * x.ndim
    index[axis] = slice(start, start + kept)
    parts = [np.zeros(zeros), x[tuple(index)]]
    joined: Any = np.concatenate(parts if by > 0 else parts[::-1], axis)
    return joined


def _copy(builder: Builder, array: Array) -> Array:
    """An array of the same elements."""
    counters = tuple([builder.counter(n) for n in array.shape])
    body = builder.read(array, builder.indices(counters))
    return Tabulate(shape=array.shape, kind=array.kind, counters=counters, body=body)


def _named(segment: Segment, program: ArrayProgram, names: dict[Array, str], title: str) -> Launch:
    """The launch of a program whose inputs and outputs have these names, in their order."""
    written = dict.fromkeys(a for step in segment.steps for a in step.outputs)
    scratch = [a for a in written if a not in names]
    names = names | {a: f"s{n}" for n, a in enumerate(scratch)}

    def shown(arrays: Sequence[Array]) -> tuple[launches.Array, ...]:
        return tuple(launches.Array(names[a], a.shape, a.kind) for a in arrays)

    arrays = shown(program.inputs), shown(program.outputs), shown(scratch)
    return Launch(title, *arrays, tuple(step.dispatch(names) for step in segment.steps))
