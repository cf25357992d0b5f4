"""Tapes of whole arrays: what a function did, as operations, and the programs that they become.

A tape is what is written at every call, so that it is made with little: shapes are worked out, and
nothing else. Equal tapes share all that follows from them (`Lowering`). Arrays of
numbers that the function takes from elsewhere are inputs of the tape, as its arguments are, so that
their numbers do not matter to what is compiled.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Call, Input
from symgrad.arrays.recording import Recorded, is_recorded
from symgrad.arrays.scalars import Array, integer_where
from symgrad.expr.graph.node import OPEN_TAPE
from symgrad.expr.tracing.snapshot import snapshot

Rule = Callable[..., Any]
"""``rule(lowering, attribute, shape, *views)`` is the view that an operation becomes."""

KINDS: Final = {"f": "f", "i": "i", "u": "i", "b": "b"}
"""The kinds of elements, by the kinds of NumPy's data types."""


class Operation(NamedTuple):
    """One operation: its rule, what it is told besides, its operands, and the result's shape."""

    rule: Rule
    attribute: Any
    operands: tuple[int, ...]
    shape: tuple[int, ...]


class Tape:
    """Operations in the order of their making; equal ones are one.

    ``arrays`` are the numbers of the inputs, those of the arguments first.
    """

    def __init__(
        self, outer: Tape | None = None, checkpoint: Any = "auto", by_elements: bool = False
    ) -> None:
        self.outer, self.depth = outer, 0 if outer is None else outer.depth + 1
        """The tape of the function around one that is mapped."""
        self.checkpoint: Any = checkpoint if outer is None else outer.checkpoint
        """The carries that loops keep for derivatives: see `fused_forward_backward`."""
        self.by_elements: bool = by_elements if outer is None else outer.by_elements
        """Whether loops of the function that write single elements are sooner traced by them."""
        self.taken: list[int] = []
        """The operations of the outer tape that are operands, by their numbers there."""
        self.operations: list[Operation] = []
        self.shapes: list[tuple[int, ...]] = []
        self.kinds: list[str] = []
        self.arrays: list[Any] = []
        self.recorded: dict[int, Recorded] = {}
        """The inputs, by their places among ``arrays``, that are recorded."""
        self._index: dict[Operation, int] = {}
        self._operands: dict[int, int] = {}
        self._arrays: dict[int, tuple[Any, int]] = {}

    def add(
        self, rule: Rule, attribute: Any, operands: tuple[int, ...], shape: tuple[int, ...],
        kind: str = "f",
    ) -> int:  # fmt: skip
        """The number of an operation of this shape and kind."""
        operation = Operation(rule, attribute, operands, shape)
        number = self._index.setdefault(operation, len(self.operations))
        if number == len(self.operations):
            self.operations.append(operation)
            self.shapes.append(shape)
            self.kinds.append(kind)
        return number

    def input(self, array: Any) -> int:
        """The number of an input with these numbers, apart from all others."""
        shape, kind = array.shape, KINDS[array.dtype.kind]
        number = self.add(input_rule, (len(self.arrays), shape, kind), (), shape, kind)
        self.arrays.append(array)
        return number

    def captured(self, array: Any) -> int:
        """The number of an array that the function takes from elsewhere, as it is now.

        A function may write to an array of NumPy's after it has used it, so that it is copied.
        """
        if self.outer is not None:
            return self.operand(self.outer.captured(array))
        is_step = is_recorded(array) and not array.is_fixed
        numbers = np.asarray(array.value) if is_recorded(array) else array
        now = snapshot(numbers) if isinstance(numbers, np.ndarray) else numbers
        origin = array if is_step else now
        known = self._arrays.get(id(origin))
        if known is None:
            if is_step:
                self.recorded[len(self.arrays)] = array
            known = self._arrays[id(origin)] = origin, self.input(now)
        return known[1]

    def operand(self, number: int, axis: int | None = None, fresh: bool = False) -> int:
        """The number of an operand of a function that is mapped: one along an axis, or whole.

        A ``fresh`` one is another than those of the same number.
        """
        assert self.outer is not None, "only functions that are mapped have operands"
        whole = self.outer.shapes[number]
        shape = whole if axis is None else (*whole[:axis], *whole[axis + 1 :])
        if axis is None and not fresh and number in self._operands:
            return self._operands[number]
        attribute = len(self.taken), axis
        self.taken.append(number)
        new = self.add(operand_rule, attribute, (), shape, self.outer.kinds[number])
        if axis is None and not fresh:
            self._operands[number] = new
        return new

    @property
    def key(self) -> tuple[Operation, ...]:
        """All that what is compiled depends on."""
        return tuple(self.operations)


def open_tape() -> Tape | None:
    """The tape of the innermost function that is being traced as a whole, if there is one."""
    return OPEN_TAPE.get()


@contextmanager
def opened(tape: Tape) -> Generator[None]:
    """Within, a function is traced on this tape."""
    token = OPEN_TAPE.set(tape)
    try:
        yield
    finally:
        OPEN_TAPE.reset(token)


def number_key(value: Any) -> tuple[Any, ...]:
    """A number as a key: 1, 1.0, True, 0.0 and -0.0 are five."""
    if isinstance(value, float) and not abs(value) > 0:  # zeros and NaN
        return "f", repr(value)
    return type(value).__name__, value


def input_rule(lowering: Any, attribute: Any, shape: tuple[int, ...]) -> Any:
    """An input, as it stands."""
    return lowering.input(*attribute)


def operand_rule(lowering: Any, attribute: Any, shape: tuple[int, ...]) -> Any:
    """An operand of a function that is mapped."""
    return lowering.operands[attribute[0]]


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    first = shapes[0]
    for shape in shapes:
        if shape != first:
            break
    else:
        return first
    others = {s for s in shapes if s}
    return others.pop() if len(others) == 1 else np.broadcast_shapes(*shapes)


def size_of(shape: Sequence[int]) -> int:
    """The number of elements."""
    return math.prod(shape)


# From a tape to an array program: every operation becomes a view, and what costs is stored.
#
# A view has a shape and says how to read an element. Slices, transposes, reshapes and broadcasts
# only change how; so do truths and integers, which cost little. Floats are arrays of their own,
# until `symgrad.arrays.fuse` decides which of them are.

Index = Sequence[int]
"""Integers of a builder, one for each axis."""


@dataclass(frozen=True)
class View:
    """An array as a function of its indices; ``stored`` if it is one of a program."""

    shape: tuple[int, ...]
    kind: str
    read: Callable[[Index], int]
    stored: Array | None = None

    def remembered(self) -> View:
        """A view that reads each element once, however many paths lead to it."""
        read = functools.cache(lambda *index: self.read(index))
        return replace(self, read=lambda index: read(*index))


class Lowering:
    """Builds the views of a tape's operations."""

    def __init__(self, builder: Builder | None = None, outer: Sequence[int] = ()) -> None:
        self.builder = builder or Builder()
        self.outer = tuple(outer)
        """The counters of functions that are mapped: the first axes of arrays that are stored."""
        self.inputs: list[Input] = []
        self.views: list[View] = []
        self.gradients: dict[tuple[int | Array, ...], list[Array]] = {}
        """Cotangents by the arrays that they are of: outputs, so many, seeds and variables."""
        self.operands: list[View] = []
        """Operands of a function that is mapped, at one place along its axis."""
        self.mapped: dict[Any, tuple[Lowering, list[View]]] = {}
        """The results of functions that are mapped, by the functions and their operands."""
        self.loops: dict[Any, Call] = {}
        """Loops, by their bodies and operands."""

    def run(self, operations: Sequence[Operation]) -> list[View]:
        """The views of operations, each of those before it."""
        for rule, attribute, operands, shape in operations:
            view = rule(self, attribute, shape, *[self.views[k] for k in operands])
            self.views.append(view if view.stored else view.remembered())
        return self.views

    def input(self, number: int, shape: tuple[int, ...], kind: str) -> View:
        """The view of input ``number``; truth values come as integers."""
        array = Input(shape=shape, kind="f" if kind == "f" else "i", number=number)
        self.inputs.append(array)
        view = self.of(array)
        return View(shape, "b", lambda i: self.truth(view.read(i))) if kind == "b" else view

    def truth(self, i: int) -> int:
        """Whether an integer is not 0."""
        return self.builder.opposite(self.builder.same(i, self.builder.number(0)))

    def of(self, array: Array) -> View:
        """The view of an array, at the counters of functions that are mapped."""
        b, shape = self.builder, array.shape[len(self.outer) :]
        lead = b.indices(self.outer)
        return View(shape, array.kind, lambda i: b.element(array, [*lead, *i]), array)

    def closed(self, counters: Sequence[int], scalar: int) -> tuple[list[int], int]:
        """All counters of an array that is stored, and a scalar in these."""
        names = {c: self.builder.counter(self.builder.extent(c)) for c in self.outer}
        [inner] = self.builder.substituted([scalar], names) if names else [scalar]
        return [*names.values(), *counters], inner

    def stored(self, view: View) -> Array:
        """The array of a view's elements; truth values are 1 and 0."""
        if view.stored is not None:
            return view.stored
        return self.tabled(view)

    def batched(self, view: View) -> Array:
        """The array of a view's elements for all counters of functions that are mapped."""
        array = view.stored
        if array is not None and len(array.shape) == len(self.outer) + len(view.shape):
            return array
        return self.tabled(view)

    def tabled(self, view: View) -> Array:
        """A new array of a view's elements."""
        b = self.builder
        counters = [b.counter(n) for n in view.shape]
        value = view.read(b.indices(counters))
        if view.kind == "b":
            value = b.apply(integer_where, value, b.number(1), b.number(0))
        return b.array(*self.closed(counters, value))

    def tabulated(self, shape: tuple[int, ...], kind: str, read: Callable[[Index], int]) -> View:
        """The view of elements that are computed: floats once, others wherever they are read."""
        view = View(shape, kind, read)
        return self.of(self.stored(view)) if kind == "f" else view

    def at(self, view: View, index: Index) -> int:
        """The element of a view at the index of what it is broadcast to."""
        own = index[len(index) - len(view.shape) :]
        zero = self.builder.number(0)
        return view.read([zero if n == 1 else i for i, n in zip(own, view.shape, strict=True)])
