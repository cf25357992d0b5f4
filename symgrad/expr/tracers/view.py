"""Parts of arrays in memory: which elements an index takes, also one that is known at run time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.tracers.counter import within, word
from symgrad.expr.tracers.expression import Condition
from symgrad.expr.tracers.integers import Word
from symgrad.expr.tracers.versions import Array


@dataclass(frozen=True)
class View:
    """Elements of an array in memory, at regular distances from a first one.

    The first is number ``start``, and as many further on as the word ``offset`` says, if there is
    one. ``inside`` is the condition that all indices which led here were in range; None: they were.
    """

    array: Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int = 0
    offset: int | None = None
    inside: int | None = None

    @classmethod
    def whole(cls, array: Array, shape: Sequence[int]) -> View:
        """All elements of an array, in C order."""
        strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        return cls(array, tuple(shape), tuple(strides))

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its array, in order."""
        return self == View.whole(self.array, self.shape) and len(self.array) == self.size

    @property
    def size(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    def transposed(self) -> View:
        """The same elements with the axes the other way round."""
        start, offset, inside = self.start, self.offset, self.inside
        return View(self.array, self.shape[::-1], self.strides[::-1], start, offset, inside)

    def words(self) -> Iterator[Word]:
        """Where the elements stand in the array, in C order."""
        graph = self.array.graph
        places = np.full(self.shape, self.start, dtype=np.int64)
        for axis, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = stride * np.arange(n)
            places += steps.reshape([-1 if k == axis else 1 for k in range(len(self.shape))])
        for place in places.flat:
            position = word(graph, int(place))
            if self.offset is not None:
                position = graph.add(ops.word_add, self.offset, position) if place else self.offset
            yield Word(graph, position)

    def part(self, key: Any) -> View:
        """The elements that an index takes, as NumPy has them.

        Raises:
            InputError: for an index that is out of range, or too many.
            TraceError: for an index that is a condition.
        """
        view, axis = View(self.array, (), (), self.start, self.offset, self.inside), 0
        for one in _one_for_each_axis(key, len(self.shape)):
            if one is None:
                view = view._with(1, 0, 0)
                continue
            n, stride = self.shape[axis], self.strides[axis]
            axis += 1
            if isinstance(one, slice):
                taken = range(n)[one]
                view = view._with(len(taken), taken.step * stride, taken.start * stride)
            else:
                view = view._at(one, n, stride)
        rest = zip(self.shape[axis:], self.strides[axis:], strict=True)
        for n, stride in rest:
            view = view._with(n, stride, 0)
        return view

    def _with(self, n: int, stride: int, start: int) -> View:
        """The same with another axis, whose first element stands further on."""
        shape, strides = (*self.shape, n), (*self.strides, stride)
        return View(self.array, shape, strides, self.start + start, self.offset, self.inside)

    def _at(self, i: Any, n: int, stride: int) -> View:
        """The same at index i of an axis of n elements."""
        if isinstance(i, (Condition, bool, np.bool_)):
            raise TraceError(
                located(f"which elements there are where {i!r} depends on values: use sg.where")
            )
        graph = self.array.graph
        place, inside = within(graph, i, n)
        if inside is None and isinstance(place, int):
            start = self.start + place * stride
            return View(self.array, self.shape, self.strides, start, self.offset, self.inside)
        at = graph.add(ops.word_mul, place.id, word(graph, stride)) if stride != 1 else place.id
        offset = at if self.offset is None else graph.add(ops.word_add, self.offset, at)
        known = [c for c in (self.inside, inside) if c is not None]
        both = graph.add(ops.logical_and, *known) if len(known) == 2 else (known or [None])[0]
        return View(self.array, self.shape, self.strides, self.start, offset, both)


def _one_for_each_axis(key: Any, axes: int) -> list[Any]:
    """An index as a list: whole numbers, expressions, slices, and None for new axes."""
    parts = list(key) if isinstance(key, tuple) else [key]
    parts = [p.item() if isinstance(p, np.ndarray) and not p.ndim else p for p in parts]
    taken = sum(p is not None and p is not Ellipsis for p in parts)
    if taken > axes:
        raise InputError(located(f"an array with {axes} axes takes no {taken} indices"))
    if any(p is Ellipsis for p in parts):
        n = next(n for n, p in enumerate(parts) if p is Ellipsis)
        parts[n : n + 1] = [slice(None)] * (axes - taken)
    for p in parts:
        if isinstance(p, slice) and any(isinstance(e, Handle) for e in (p.start, p.stop, p.step)):
            raise TraceError(
                located(
                    "how many elements a slice has is known before: its bounds are integers; take "
                    "them one by one in a loop, as a[start + k]"
                )
            )
    return parts
