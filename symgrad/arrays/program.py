"""Array programs: inputs, constants, and arrays that are tabulated, scattered, scanned or called.

    x0 = input [300, 300]
    a1 = for i < 300, j < 300 { tanh(x0[i, j]) * tanh(x0[i, j]) }
    a2 = { reduce i < 300, j < 300; add { a1[i, j] } }

An array is a function of its indices, of which the body is a scalar of `symgrad.arrays.scalars`. An
array that another one reads is stored, so that a program is at once a list of what is to be
computed, one after the other: a stage is an array. To fuse two of them is to replace a read by the
body that it reads (`symgrad.arrays.fuse`), which the program then no longer holds.

Invariants:
  1. An array is closed: its scalars have no counters but those that it binds.
  2. An array reads such arrays only as were made before it.
  3. Shapes are of known sizes; any may be 0. An array of shape () is a scalar.
  4. Elements are floats (kind f) or integers (kind i). Truth values are stored as 1 and 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from symgrad.arrays.scalars import (
    COUNTER,
    Affine,
    Array,
    Read,
    Reduce,
    Scalars,
    is_negative,
    is_zero,
    modulo,
    quotient,
)
from symgrad.expr.semantics.show import PRIMARY, PRODUCT, RELATION, SUM, Text, leaf_text, write_text


@dataclass(frozen=True, eq=False, kw_only=True)
class Input(Array):
    """Argument number ``number`` of the program."""

    number: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(Array):
    """An array of known numbers: ``data`` is float64 or int64, C-contiguous, never written to."""

    data: np.ndarray = field(repr=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class Tabulate(Array):
    """``for counters { body }``: a counter for each axis, in any order, no carry."""

    counters: tuple[int, ...]
    body: int

    @property
    def scalars(self) -> tuple[int, ...]:
        """The body."""
        return (self.body,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scatter(Array):
    """Zeros, to which for all values of the counters ``body`` is added at ``index``.

    What has an index outside the array is dropped. The sum of an element is the same at each run.
    """

    counters: tuple[int, ...]
    index: tuple[int, ...]
    body: int

    @property
    def scalars(self) -> tuple[int, ...]:
        """The indices, and the body."""
        return (*self.index, self.body)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scan(Array):
    """Running totals along the axis ``axis`` of what the body tabulates.

    Element k is the total of elements 0..k; of k..n - 1 if ``reverse``. ``operator`` is add, mul,
    max or min.
    """

    counters: tuple[int, ...]
    body: int
    axis: int
    operator: str = "add"
    reverse: bool = False

    @property
    def scalars(self) -> tuple[int, ...]:
        """The body."""
        return (self.body,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Call:
    """An algorithm on whole arrays, such as a factorisation or a sort.

    ``name`` is that of the algorithm (`symgrad.arrays.algorithms`), ``options`` what it is told;
    ``shapes`` and ``kinds`` are those of its results.
    """

    name: str
    operands: tuple[Array, ...]
    options: tuple[Any, ...]
    shapes: tuple[tuple[int, ...], ...]
    kinds: str
    reference: Any
    """Its meaning: a NumPy function of the operands and options, which gives a list of arrays."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(Array):
    """Result number ``index`` of a call."""

    call: Call
    index: int

    @property
    def arguments(self) -> tuple[Array, ...]:
        """The operands of the call."""
        return self.call.operands


@dataclass(frozen=True, eq=False, kw_only=True)
class Part(Array):
    """Elements of an array that stand one behind the other, from number ``first`` on."""

    whole: Array
    first: int

    @property
    def arguments(self) -> tuple[Array, ...]:
        """The array that it is of."""
        return (self.whole,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Joined(Array):
    """The elements of some arrays, one behind the other."""

    parts: tuple[Array, ...]

    @property
    def arguments(self) -> tuple[Array, ...]:
        """The arrays."""
        return self.parts


Counted = (Tabulate, Scatter, Scan)
"""Arrays with counters."""


@dataclass(frozen=True, eq=False)
class ArrayProgram:
    """Arrays computed from inputs: ``outputs`` in order; they may be inputs, and twice the same."""

    scalars: Scalars
    inputs: tuple[Input, ...]
    outputs: tuple[Array, ...]

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays that the outputs need, inputs and constants too, those that are read first."""
        return tuple(ordered(self.scalars, self.outputs))

    @property
    def stages(self) -> tuple[Array, ...]:
        """The arrays that are computed."""
        return tuple(a for a in self.arrays if not isinstance(a, Input | Constant))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The constants that are read."""
        return tuple(a for a in self.arrays if isinstance(a, Constant))


def sources(scalars: Scalars, array: Array) -> list[Array]:
    """The arrays that an array reads or takes, each once."""
    read = (op.array for _, op in scalars.reads(array.scalars))
    return list(dict.fromkeys((*array.arguments, *read)))


def ordered(scalars: Scalars, roots: Sequence[Array]) -> Iterator[Array]:
    """The arrays that some arrays need, and these, each behind those that it reads."""
    done: set[Array] = set()
    stack = [(a, False) for a in reversed(roots)]
    while stack:
        array, ready = stack.pop()
        if array in done:
            continue
        if ready:
            done.add(array)
            yield array
        else:
            stack.append((array, True))
            stack += [(a, False) for a in reversed(sources(scalars, array)) if a not in done]


def readers(scalars: Scalars, arrays: Iterable[Array]) -> dict[Array, list[Array]]:
    """For each of these arrays those that read its elements, or are results of a call with it."""
    known: dict[Array, list[Array]] = {}
    for array in arrays:
        known.setdefault(array, [])
        for source in sources(scalars, array):
            known.setdefault(source, []).append(array)
    return known


def element_reads(
    scalars: Scalars, arrays: Sequence[Array]
) -> Mapping[Array, list[tuple[Array, int]]]:
    """For each of these arrays the reads of its elements, as (array that reads, node)."""
    reads: dict[Array, list[tuple[Array, int]]] = {a: [] for a in arrays}
    for a in arrays:
        for i, op in scalars.reads(a.scalars):
            assert isinstance(op, Read)
            reads[op.array].append((a, i))
    return reads


# Array programs as text: one line for each array that is not read away by another.

LETTERS = "ijklmnpqrstuvw"


def listing(program: ArrayProgram) -> str:
    """The program, an array a line, in the order in which they are computed."""
    names: dict[Array, str] = {}
    lines = []
    for k, array in enumerate(program.arrays):
        kind = "x" if isinstance(array, Input) else "t" if isinstance(array, Constant) else "a"
        names[array] = f"{kind}{array.number if isinstance(array, Input) else k}"
        lines.append(f"{names[array]} = {_Line(program.scalars, names).array(array)}")
    outputs = ", ".join(names[a] for a in program.outputs)
    return "\n".join([*lines, f"return {outputs}"])


class _Line:
    """The text of one array: counters get letters as they are bound."""

    def __init__(self, scalars: Scalars, names: Mapping[Array, str]) -> None:
        self._scalars, self._arrays = scalars, names
        self._texts: dict[int, Text] = {}
        self._letters: dict[int, str] = {}

    def array(self, array: Array) -> str:
        """The definition of an array."""
        shape = str(list(array.shape))
        match array:
            case Input():
                return f"input {shape}" + (" of integers" if array.kind == "i" else "")
            case Constant():
                return f"constant {shape}"
            case Result():
                operands = ", ".join(self._arrays[a] for a in array.call.operands)
                return f"{array.call.name}({operands})[{array.index}]"
            case Part():
                return f"part {shape} of {self._arrays[array.whole]} from {array.first} on"
            case Joined():
                return f"joined {shape}: {', '.join(self._arrays[a] for a in array.parts)}"
            case Tabulate():
                head = self._bound(array.counters)
                return f"for {head} {{ {self.text(array.body)} }}" if head else self._scalar(array)
            case Scatter():
                head = self._bound(array.counters)
                index = ", ".join(self.text(i) for i in array.index)
                return f"scatter {shape}; {head} {{ [{index}] += {self.text(array.body)} }}"
            case Scan():
                head, way = self._bound(array.counters), " reversed" if array.reverse else ""
                axis = self._letters[array.counters[array.axis]]
                return (
                    f"scan {array.operator} along {axis}{way}; {head} {{ {self.text(array.body)} }}"
                )
        raise AssertionError(f"{array} is no array of a program")

    def _scalar(self, array: Tabulate) -> str:
        return f"{{ {self.text(array.body)} }}"

    def _bound(self, counters: Sequence[int]) -> str:
        for c in counters:
            count = len(self._letters)
            letter, more = LETTERS[count % len(LETTERS)], count // len(LETTERS)
            self._letters[c] = letter + (str(more) if more else "")
        return ", ".join(f"{self._letters[c]} < {self._scalars.extent(c)}" for c in counters)

    def text(self, root: int) -> str:
        """The text of a scalar."""
        for i in self._scalars.shallow([root]):
            if i not in self._texts:
                self._texts[i] = self._node(i)
        return self._texts[root].shown

    def _node(self, i: int) -> Text:
        node = self._scalars.graph.nodes[i]
        op = node[0]
        if op is COUNTER:
            return Text(self._letters.get(i, f"_{i}"))
        if isinstance(op, Reduce):
            head = self._bound(op.counters)
            return Text(f"reduce {head}; {op.operator} {{ {', '.join(map(self.text, node[1:]))} }}")
        arguments = [self._texts[a] for a in self._scalars.args(i)]
        if isinstance(op, Read):
            return Text(f"{self._arrays[op.array]}[{', '.join(a.shown for a in arguments)}]")
        if isinstance(op, Affine):
            return _sum(op, arguments)
        if op in (quotient, modulo):
            symbol = "//" if op is quotient else "%"
            return Text(f"{arguments[0].wrapped(PRIMARY)} {symbol} {arguments[1].shown}", PRODUCT)
        if op in (is_negative, is_zero):
            return Text(f"{arguments[0].shown} {'<' if op is is_negative else '=='} 0", RELATION)
        return write_text(op, arguments) if op.arity else leaf_text(self._scalars.graph, i)


def _sum(op: Affine, arguments: Sequence[Text]) -> Text:
    """An affine integer, its constant last."""
    parts = [
        a.wrapped(SUM if c == 1 else PRODUCT) if c == 1 else f"{c}*{a.wrapped(PRIMARY)}"
        for c, a in zip(op.coefficients, arguments, strict=True)
    ]
    shown = " + ".join([*parts, *([str(op.offset)] if op.offset else [])])
    return Text(shown.replace("+ -", "- "), SUM)
