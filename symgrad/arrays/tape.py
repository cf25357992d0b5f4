"""What a traced function did to whole arrays: a list of operations, each a rule and its operands.

A tape is what is written at every call, so that it is made with little: shapes are worked out, and
nothing else. Equal tapes share all that follows from them (`symgrad.arrays.lower`). Arrays of
numbers that the function takes from elsewhere are inputs of the tape, as its arguments are, so that
their numbers do not matter to what is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

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

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.shapes: list[tuple[int, ...]] = []
        self.kinds: list[str] = []
        self.arrays: list[Any] = []
        self._index: dict[Operation, int] = {}
        self._captured: dict[int, int] = {}

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
        """The number of an input with these numbers, an array of NumPy's or of a device."""
        known = self._captured.get(id(array))
        if known is None:
            shape, kind = array.shape, KINDS[array.dtype.kind]
            attribute = len(self.arrays), shape, kind
            known = self._captured[id(array)] = self.add(input_rule, attribute, (), shape, kind)
            self.arrays.append(array)
        return known

    @property
    def key(self) -> tuple[Operation, ...]:
        """All that what is compiled depends on."""
        return tuple(self.operations)


def number_key(value: Any) -> tuple[Any, ...]:
    """A number as a key: 1, 1.0, True, 0.0 and -0.0 are five."""
    if isinstance(value, float) and not abs(value) > 0:  # zeros and NaN
        return "f", repr(value)
    return type(value).__name__, value


def input_rule(lowering: Any, attribute: Any, shape: tuple[int, ...]) -> Any:
    """An input, as it stands."""
    return lowering.input(*attribute)


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
