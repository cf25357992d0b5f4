"""Strided arrays of any shape: functions of their elements, copies, and reductions of axes.

Lengths and strides are arguments, so that one kernel serves all shapes of so many axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from symgrad.expr.graph.node import inputs_of
from symgrad.kernel.language.index import Index, Number, Numbers
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.target import GROUP_INVOCATIONS, WorkgroupTarget, in_halves
from symgrad.kernel.passes.lower import inline
from symgrad.kernel.shapes import Computation
from symgrad.kernel.stages.body import combined, nothing

TARGET: Final = WorkgroupTarget(GROUP_INVOCATIONS, grid=True)
"""The target of these kernels."""

ELEMENTS_PER_INVOCATION: Final = 64
"""Elements that an invocation reduces one after another, which bounds the rounding errors."""

Place = tuple[int, tuple[int, ...], tuple[int, ...]]
"""The first element, the lengths of axes, and the distances of neighbours along them."""

Arguments = tuple[tuple[str, int], ...]
"""The words that a kernel takes, by their names."""


@dataclass(frozen=True)
class Layout:
    """How kernels find the elements of arrays of one shape: names of lengths, and of places."""

    axes: int
    dense: tuple[bool, ...]
    """Which of the arrays are contiguous."""
    name: str = ""
    """The beginning of the names of all arguments."""

    def arguments(self, places: Sequence[Place]) -> Arguments:
        """The arguments for arrays at these places."""
        _, shape, _ = places[0]
        words = [*zip(self._lengths, shape[1:], strict=False)]
        for n, (first, _, strides) in enumerate(places):
            words.append((self._first(n), first))
            if not self.dense[n]:
                words += zip(self._strides(n), strides, strict=True)
        return tuple([(name, word & 0xFFFFFFFF) for name, word in words])

    def places(self, k: KernelIR, index: Index) -> list[Index]:
        """Where each of the arrays has the element of an index in C order."""
        parts = [] if all(self.dense) else self._parts(k, index)
        return [self._place(k, n, index, parts) for n in range(len(self.dense))]

    def _parts(self, k: KernelIR, index: Index) -> list[Index]:
        """The index of each axis."""
        parts = list[Index]()
        for length in reversed(self._lengths):
            index, part = divmod(index, _argument(k, length))
            parts.insert(0, part)
        return [index, *parts]

    def _place(self, k: KernelIR, number: int, index: Index, parts: Sequence[Index]) -> Index:
        place = _argument(k, self._first(number))
        if self.dense[number]:
            return place + index
        for part, stride in zip(parts, self._strides(number), strict=True):
            place = place + part * _argument(k, stride)
        return place

    @property
    def _lengths(self) -> list[str]:
        """The names of the lengths of all axes but the first, if any array needs them."""
        return (
            [] if all(self.dense) else [f"{self.name}length{axis}" for axis in range(1, self.axes)]
        )

    def _first(self, number: int) -> str:
        return f"{self.name}first{number}"

    def _strides(self, number: int) -> list[str]:
        return [f"{self.name}stride{number}_{axis}" for axis in range(self.axes)]


def _argument(k: KernelIR, name: str) -> Index:
    """The argument of a name, which is made once."""
    by_name = {taken: i for i, taken in k.arguments.items()}
    return Index(k, by_name[name] if name in by_name else k.argument(name))


@dataclass(frozen=True)
class Elementwise:
    """A function of the elements of arrays and of numbers; without one the words are copied.

    ``arguments`` are the floats of each argument: of an array its own dtype, or "" for that of the
    kernel, and None of a number. The kernel's buffers are ``x0``, .. of the arrays, ``numbers`` if
    there are any, and ``y``, which ``layout`` has last.
    """

    computation: Computation | None
    arguments: tuple[str | None, ...]
    layout: Layout

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for a target."""
        k = KernelIR(target, self.computation.name if self.computation else "copy")
        kind = "f" if self.computation else "u"
        floats = [a for a in self.arguments if a is not None]
        arrays = [k.buffer(f"x{n}", "read", kind, floats=f) for n, f in enumerate(floats)]
        numbers = k.buffer("numbers", "read", kind) if None in self.arguments else None
        y, index = k.buffer("y", "write", kind), Index(k, k.cell)

        def compute() -> None:
            *places, result = self.layout.places(k, index)
            elements = (k.load(x, place.id) for x, place in zip(arrays, places, strict=True))
            constants = (k.load(numbers, k.word(n)) for n in itertools.count() if numbers)
            values = [next(constants if a is None else elements) for a in self.arguments]
            k.store(y, result.id, self._value(k, values))

        k.when(index.below(Index(k, k.count)), compute)
        return k

    def _value(self, k: KernelIR, values: Sequence[int]) -> int:
        """The result, of the values of the arguments."""
        if self.computation is None:
            return values[0]
        (output,), graph = self.computation.outputs, self.computation.graph
        known = dict(zip(inputs_of(graph), values, strict=True))
        return inline(k, graph, output.nodes, known)[0]


@dataclass(frozen=True)
class ReduceProgram:
    """A reduction of some axes of an array, of which it makes an element of each ``output``.

    The operator is one of `combine.FLOATS`. An output is made by an invocation, or by groups, each
    of a ``part`` of the elements, of which there are so many ``parts``; then a tree of halves makes
    one number of each group. The buffers are ``x``, and ``y``, in which an output's parts stand
    side by side.
    """

    operator: str
    outputs: Layout
    reduced: Layout
    by_groups: bool

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for a target."""
        k = KernelIR(target, f"reduce_{self.operator}")
        x, y = Numbers.of(k, "x", "read"), Numbers.of(k, "y", "write")
        length, first, count = _argument(k, "length"), _argument(k, "y_first"), Index(k, k.count)
        if not self.by_groups:
            output = Index(k, k.cell)

            def whole() -> None:
                y.store(first + output, self._sum(x, output, Index(k, k.word(0)), length, 1))

            k.when(output.below(count), whole)
            return k
        number, local, width = Index(k, k.group), Index(k, k.local), target.width
        part, (output, position) = _argument(k, "part"), divmod(number, _argument(k, "parts"))

        def by_group() -> None:
            start = position * part
            mine = ((start + part).at_most(length) - start + (width - 1) - local) // width
            tile = Numbers(k, k.buffer("tile", "group", size=width))
            tile.store(local, self._sum(x, output, start + local, mine, width))
            in_halves(k, partial(self._join, tile, local))
            k.when(local.below(1), lambda: y.store(first + number, tile[0]))

        k.when(output.below(count), by_group)
        return k

    def _sum(self, x: Numbers, output: Index, first: Index, count: Index, step: int) -> Number:
        """The reduction of so many elements of an output, each ``step`` behind the one before."""
        k = x.k
        (base,) = self.outputs.places(k, output)

        def iteration(t: int, carries: Sequence[int]) -> Sequence[int]:
            (place,) = self.reduced.places(k, first + Index(k, t) * step)
            return combined(k, self.operator, carries, [x[base + place].id])

        zero, most = nothing(k, self.operator, "f"), ELEMENTS_PER_INVOCATION
        results, _ = k.loop(k.word(0), count.id, zero, iteration, most=most)
        return Number(k, results[0])

    def _join(self, tile: Numbers, local: Index, half: Index) -> None:
        """Combine a number of the first half of a group with one of the second."""
        pair = [tile[local].id], [tile[local + half].id]
        tile.store(local, Number(tile.k, combined(tile.k, self.operator, *pair)[0]))
