"""From a tape to an array program: every operation becomes a view, and what costs is stored.

A view has a shape and says how to read an element. Slices, transposes, reshapes and broadcasts only
change how; so do truths and integers, which cost little. Floats are arrays of their own, until
`symgrad.arrays.fuse` decides which of them are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Call, Input
from symgrad.arrays.scalars import Array, integer_where
from symgrad.arrays.tape import Operation

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
