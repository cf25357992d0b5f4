"""Functions of large arrays: traced as a whole, compiled once for equal traces, and run.

`value_and_grad` and `jit` take this way where an argument is large. A function that asks for the
elements of an array one by one is traced by them instead, as small ones are.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from symgrad.arrays.kernels import kernel_rule
from symgrad.arrays.loops import looped
from symgrad.arrays.recording import Recording
from symgrad.arrays.rules import contracted, mapped, positioned, reduced, strided, written
from symgrad.arrays.tape import Operation, Tape, input_rule, opened, operand_rule
from symgrad.arrays.trace import program_of, variables
from symgrad.arrays.whole import WholeArray
from symgrad.backend import backend_of, placed
from symgrad.cache import Once
from symgrad.errors import InputError, SizeWarning, TraceError, warn
from symgrad.expr.derivatives.transpose import Checkpoint
from symgrad.expr.graph.node import ElementsNeededError, Graph
from symgrad.expr.graph.place import describe
from symgrad.expr.graph.written_out import MOST_WRITTEN_OUT
from symgrad.expr.loops.open_loop import Tracing
from symgrad.kernel.host.memory import ResidentArray
from symgrad.pipeline import Options
from symgrad.targets import Device, DeviceChoice, choose_any
from symgrad.tensor.stages import CompiledArrays, compile_arrays
from symgrad.values.arrays import warn_if_rounded

MOST_ELEMENTS: Final = 2**31 - 1
"""Elements of the largest array that there may be: indices have 32 bits."""

CACHED_PROGRAMS: Final = 64
"""Most compiled programs that are kept."""

CACHED_RUNNERS: Final = 64
"""Most choices of options and a device whose meaning is kept."""

MOST_ON_NUMBERS: Final = 500
"""Operations on few elements up to which it does not matter that whole arrays have so few."""

FEW_ELEMENTS: Final = 8
"""Elements of an operation up to which it is sooner compiled for each of them."""

MOST_READ_ALONE: Final = 200
"""Single elements that are read among whole arrays, up to which nothing is said."""

_compiled: Once[Any, CompiledArrays] = Once(CACHED_PROGRAMS)


class ManyOnNumbersError(ElementsNeededError):
    """A function works on the elements of arrays one by one: it is sooner traced by them."""


def require_countable(arrays: Sequence[Any]) -> int:
    """The elements of the largest array; refuse one of more than 32 bits count."""
    largest = max((a.size for a in arrays), default=0)
    if largest > MOST_ELEMENTS:
        raise InputError(f"an array of {largest:,} elements: {MOST_ELEMENTS:,} are feasible")
    return largest


@dataclass(frozen=True)
class Runner:
    """Where and how programs of whole arrays run."""

    options: Options
    device: Device

    def run(self, compiled: CompiledArrays, arrays: Sequence[Any], on_device: bool) -> list[Any]:
        """The values of a program, from the numbers of its inputs."""
        return compiled.run([compiled.given(a) for a in arrays], on_device)

    def compiled(self, tape: Tape, outputs: Sequence[WholeArray]) -> CompiledArrays:
        """The program of some arrays of a tape, compiled once for equal tapes."""
        numbers = tuple(o.number for o in outputs)
        key = tape.key, numbers, self.options, self.device
        return _compiled.get(key, functools.partial(self._compile, tape, outputs))

    def _compile(self, tape: Tape, outputs: Sequence[WholeArray]) -> CompiledArrays:
        return compile_arrays(program_of(tape, outputs), self.options, self.device)

    def call(
        self, traced: WholeTrace, outputs: Sequence[WholeArray], stays: bool,
        nest: Nest, others: bool = False, recording: Recording | None = None,
    ) -> TracedCall:  # fmt: skip
        """A call whose result is nested of these outputs, and on the device if it ``stays``."""
        compiled, taken = self.compiled(traced.tape, outputs), traced.taken
        for array in taken:
            if isinstance(array, np.ndarray) and array.dtype.kind == "f":
                name = f"an array that {describe(traced.f)} takes from elsewhere"
                warn_if_rounded(array, name, self.options.dtype)
        constants = [compiled.resident(compiled.given(a)) for a in taken]
        kinds, recorded = [o.kind for o in outputs], traced.recorded
        values = () if recording is None else recording.values
        return TracedCall(self, compiled, constants, stays, nest, kinds, others, recorded, values)


def runner(options: Options, device: DeviceChoice) -> Runner:
    """The runner for the device that a choice names now."""
    choice = tuple(device) if isinstance(device, list) else device
    return _runner(options, choice, os.environ.get("SYMGRAD_DEVICE"))


@functools.lru_cache(CACHED_RUNNERS)
def _runner(options: Options, device: Any, _: str | None) -> Runner:
    chosen = choose_any(device)
    return Runner(placed(options, chosen), backend_of(chosen).device)


Nest = Callable[[Iterator[Any], Sequence[Any]], Any]
"""The result of a call, of the values of its program and of what is recorded."""


@dataclass(frozen=True)
class TracedCall:
    """A call as a program: the numbers that it takes from elsewhere, and what it returns."""

    runner: Runner
    compiled: CompiledArrays
    constants: Sequence[Any]
    stays: bool
    nest: Nest
    kinds: Sequence[str]
    """The kinds of these values."""
    others: bool = False
    """Whether the result holds what the program does not compute."""
    recorded: Mapping[int, int] = field(default_factory=dict)
    """The constants that are recorded, by their places, and the numbers of their values."""
    recorded_values: Sequence[Any] = ()
    """The values of what is recorded."""

    def run(self, arrays: Sequence[Any]) -> Any:
        """The result of a call with these arrays."""
        values = self.runner.run(self.compiled, (*arrays, *self.constants), self.stays)
        return self.nest(values_of(self.kinds, values), self.recorded_values)

    def having(self, values: Sequence[Any]) -> TracedCall:
        """The call with these values of what is recorded; with none, to be kept for others."""
        constants = [*self.constants]
        for place, number in self.recorded.items():
            constants[place] = self.compiled.given(np.asarray(values[number])) if values else None
        return replace(self, constants=constants, recorded_values=values)


class WholeTrace:
    """A call of a function with whole arrays in the place of its arrays."""

    def __init__(
        self, f: Callable[..., Any], arrays: Sequence[Any], checkpoint: Checkpoint = "auto",
        by_elements: bool = True,
    ) -> None:  # fmt: skip
        self.f, self.tape = f, Tape(checkpoint=checkpoint, by_elements=by_elements)
        self.variables = variables(self.tape, arrays)

    @property
    def taken(self) -> list[Any]:
        """The numbers of the arrays that the function takes from elsewhere."""
        return self.tape.arrays[len(self.variables) :]

    @property
    def recorded(self) -> dict[int, int]:
        """The places among these of arrays that are recorded, and the numbers of their values."""
        first = len(self.variables)
        return {k - first: array.number for k, array in self.tape.recorded.items()}

    def call(self, filled: Callable[[Sequence[WholeArray]], Iterator[Any]]) -> Any:
        """The result of the function for arguments that ``filled`` makes of the whole arrays."""
        with opened(self.tape), Tracing(Graph()):
            *args, named = filled([v.copied() for v in self.variables])
            return self.f(*args, **named)

    def require_whole(self, small: bool = False) -> None:
        """Refuse a function that takes arrays apart, and works on their elements one by one.

        Each operation of a program of whole arrays takes a hundred times as long to compile as one
        on numbers, and is worth it where it has as many elements. Of ``small`` arrays, whose kernel
        by elements is feasible, most operations have to be on more than a few.

        Raises:
            ManyOnNumbersError: where many operations have few elements, and the others not many.
        """
        few, elements = _written_out(self.tape.operations)
        most = 2 * FEW_ELEMENTS * few if small else max(MOST_WRITTEN_OUT, FEW_ELEMENTS * few)
        if (small or few > MOST_ON_NUMBERS) and elements <= most:
            raise ManyOnNumbersError("a function that works on elements one by one")
        if (reads := _read_alone(self.tape.operations)) > MOST_READ_ALONE:
            warn(
                f"{describe(self.f)} reads {reads:,} elements one by one beside operations on "
                "whole arrays: kernels grow with them, and take seconds to minutes to compile; "
                "write one operation on all of them, as x[i] with an array i of integers",
                SizeWarning,
            )

    def number(self, value: Any) -> WholeArray:
        """A result that is one real number.

        Raises:
            TraceError: if it is something else.
        """
        if isinstance(value, (int, float, np.number)) and self.variables:
            value = self.variables[0].lift(float(value))
        if not isinstance(value, WholeArray):
            raise ElementsNeededError("a result that is no whole array")
        if value.shape or value.kind != "f":
            what = f"an array of shape {value.shape}" if value.shape else "no real number"
            raise TraceError(
                f"{describe(self.f)} returned {what}; a loss is one scalar: sum it up, or use "
                "sg.jit for several values"
            )
        return value


def _written_out(operations: Sequence[Operation]) -> tuple[int, float]:
    """The operations on few elements, and the elements of all others: infinitely many of a map.

    The body of a loop counts once, since it is one if it is written out, too.
    """
    few, elements, shapes = 0, 0.0, [o.shape for o in operations]
    bodies = {o.attribute[0]: None for o in operations if o.rule is looped}
    for rule, attribute, operands, shape in operations:
        if rule in (mapped, kernel_rule):
            elements = math.inf
        if rule in (input_rule, operand_rule, looped):
            continue
        count = math.prod(shape)
        if rule is written:
            count = math.prod(shapes[operands[1]])
        elif rule is contracted:
            count = _products(attribute[0], [shapes[k] for k in operands])
        elif rule in (reduced, positioned):
            count = math.prod(shapes[operands[0]])
        if count <= FEW_ELEMENTS:
            few += 1
        else:
            elements += count
    inner = [_written_out(body.operations) for body in bodies]
    return few + sum(n for n, _ in inner), elements + sum(n for _, n in inner)


def _read_alone(operations: Sequence[Operation]) -> int:
    """The single elements of arrays that are read, also in functions that are mapped and loops."""
    reads, inner = 0, dict[tuple[Operation, ...], None]()
    for rule, attribute, operands, shape in operations:
        if rule is strided and not shape:
            reads += math.prod(operations[operands[0]].shape) > FEW_ELEMENTS
        elif rule is mapped:
            inner[attribute[0]] = None
        elif rule is looped:
            inner[attribute[0].operations] = None
    return reads + sum(map(_read_alone, inner))


def _products(letters: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> int:
    """The products of a contraction, of operands whose axes have these letters."""
    named = (zip(axes, shape, strict=True) for axes, shape in zip(letters, shapes, strict=True))
    pairs = itertools.chain.from_iterable(named)
    return math.prod(dict(sorted(pairs, key=lambda pair: pair[1])).values())


def values_of(kinds: Sequence[str], results: Sequence[Any]) -> Iterator[Any]:
    """Results of whole arrays of these kinds as NumPy has them: numbers, truth values as such."""
    for kind, result in zip(kinds, results, strict=True):
        if isinstance(result, ResidentArray):
            yield result
        else:
            yield (result != 0 if kind == "b" else result)[()]
