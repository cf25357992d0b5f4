"""What a program consists of: arrays, dispatches, and statements over the values of one graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from symgrad.expr.graph.node import Graph

Space = Literal["input", "output", "temporary", "workgroup", "private"]
"""Whose an array is: the caller's, which is read or returned, a program's own between dispatches, a
workgroup's, or an invocation's."""

GLOBAL: Final = ("input", "output", "temporary")
"""The spaces of arrays that all invocations have in common."""

Kind = Literal["f32", "i32", "u32", "bool"]
"""The types of numbers. Floats are as wide as the program computes: float64 if it does."""

TYPES: Final = {"f32": "f", "i32": "u", "u32": "u", "bool": "b"}
"""The types of their nodes: a signed integer is the word of its bits."""

Operation = Literal["sum", "max", "min"]


@dataclass(eq=False)
class Array:
    """Numbers of one kind, of a known shape, in memory."""

    name: str
    space: Space
    kind: Kind
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def is_active(self) -> bool:
        """Whether there are derivatives by its numbers."""
        return self.kind == "f32"

    def __repr__(self) -> str:
        return f"<{self.space} {self.name}: {self.kind}{list(self.shape)}>"


@dataclass(eq=False)
class Name:
    """A variable: a number of each invocation that assignments change."""

    name: str
    kind: Kind


@dataclass(eq=False)
class Let:
    """``let name = value``: what a value is called; it is computed where it is needed."""

    name: str
    value: int


@dataclass(eq=False)
class Declare:
    """``var name = value``: a variable, and what it begins with."""

    variable: Name
    value: int


@dataclass(eq=False)
class Assign:
    """``name = value``."""

    variable: Name
    value: int


@dataclass(eq=False)
class Get:
    """``result`` is what a variable is here."""

    result: int
    variable: Name


@dataclass(eq=False)
class Load:
    """``result`` is the number at an index of an array here.

    ``index`` counts the elements in C order; ``axes`` are what it is made of, one for each axis, or
    it alone.
    """

    result: int
    array: Array
    index: int
    axes: tuple[int, ...]


@dataclass(eq=False)
class Store:
    """``array[index] = value``, or, to ``add``, ``+=``; ``index`` and ``axes`` are as in `Load`."""

    array: Array
    index: int
    axes: tuple[int, ...]
    value: int
    add: bool = False


@dataclass(eq=False)
class Reduce:
    """``result`` is made of the values of all invocations of a workgroup, or ``among`` so many.

    These are neighbours, and each of them gets the result.
    """

    result: int
    operation: Operation
    value: int
    among: int


@dataclass(eq=False)
class Barrier:
    """All invocations of a workgroup wait for each other, and see what each has stored."""


@dataclass(eq=False)
class If:
    """One of two blocks."""

    condition: int
    then: list[Statement] = field(default_factory=list)
    otherwise: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class For:
    """A block for each counter from lo to hi - 1, or ``down`` from there; ``most`` iterations."""

    counter: int
    name: str
    lo: int
    hi: int
    down: bool = False
    most: int | None = None
    body: list[Statement] = field(default_factory=list)


Statement = Let | Declare | Assign | Get | Load | Store | Reduce | Barrier | If | For

GIVES: Final = (Get, Load, Reduce)
"""The statements whose result is a leaf of the graph."""


@dataclass(eq=False)
class Dispatch:
    """What each of so many ``invocations`` does, in workgroups of ``width``.

    ``cell`` is the number of an invocation, ``local`` that in its group, ``group`` the group's.
    """

    invocations: int
    width: int
    cell: int
    local: int
    group: int
    arrays: list[Array] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class Code:
    """A program: what its text says.

    Invariants:
      1. No two arrays, variables or named values that are known at one place have one name.
      2. The leaves of a value are made before it is needed, in its block or one around it.
    """

    name: str
    graph: Graph = field(default_factory=Graph)
    arrays: list[Array] = field(default_factory=list)
    dispatches: list[Dispatch] = field(default_factory=list)

    def of(self, space: Space) -> list[Array]:
        """The arrays of a space, in order."""
        return [a for a in self.arrays if a.space == space]


def blocks(statement: Statement) -> Sequence[list[Statement]]:
    """The blocks of a statement."""
    match statement:
        case If(then=then, otherwise=otherwise):
            return then, otherwise
        case For(body=body):
            return (body,)
        case _:
            return ()


def everything(block: Sequence[Statement]) -> Iterator[Statement]:
    """The statements of a block and all that is within them, in order."""
    for statement in block:
        yield statement
        for inner in blocks(statement):
            yield from everything(inner)


def operands(statement: Statement) -> Sequence[int]:
    """The values that a statement needs, in the order in which its text has them."""
    match statement:
        case Let(value=v) | Declare(value=v) | Assign(value=v) | Reduce(value=v):
            return (v,)
        case Load(axes=axes):
            return axes
        case Store(axes=axes, value=value):
            return *axes, value
        case If(condition=condition):
            return (condition,)
        case For(lo=lo, hi=hi):
            return lo, hi
        case Get() | Barrier():
            return ()


def assigned(block: Sequence[Statement]) -> list[Name]:
    """The variables that a block changes, of those that are declared outside."""
    inner = {s.variable for s in everything(block) if isinstance(s, Declare)}
    variables = (s.variable for s in everything(block) if isinstance(s, Assign))
    return [v for v in dict.fromkeys(variables) if v not in inner]


def is_collective(block: Sequence[Statement]) -> bool:
    """Whether all invocations of a workgroup have to be there."""
    return any(isinstance(s, Barrier | Reduce) for s in everything(block))
