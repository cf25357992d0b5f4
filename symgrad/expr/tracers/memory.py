"""Arrays in memory: their versions, views of their elements, and arrays not written yet."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr import ops
from symgrad.expr.graph.arrays import EMPTIES, EMPTY_W, PUT, PUTS, READS, ZEROS, length
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import WORD, Graph, Handle, reachable
from symgrad.expr.graph.place import OnePlace
from symgrad.expr.graph.region import Loop, close, hole, loop_op, pick
from symgrad.expr.tracers.counter import TracedLoops, index, limit, within, word
from symgrad.expr.tracers.expression import WRAP, Condition, Expr, Scalar, as_float, lift, operand
from symgrad.expr.tracers.integers import SignedWord, Word, is_typed, kind_of


class Array(Handle):
    """An array of floats, or of words, of a length that is known."""

    __slots__ = ()
    type: ClassVar[str] = "F"
    build = Expr.build

    def __len__(self) -> int:
        return length(self.graph, self.id)

    def __getitem__(self, i: Any) -> Any:
        return READS[self.type](self, self._index(i))

    def element(self, value: Any) -> Any:
        """A number as an element of it; None if it is none."""
        return as_float(lift(self.graph, value))

    def put(self, i: Any, value: Any) -> Any:
        """The array with another element i."""
        return PUTS[self.type](self, self._index(i), value)

    def _index(self, i: Any) -> Word:
        return Word(self.graph, index(self.graph, i))


class WordArray(Array):
    """An array of words, which are unsigned integers."""

    __slots__ = ()
    type: ClassVar[str] = "W"
    kind: ClassVar[type[Word]] = Word
    """The class of its elements."""

    def __getitem__(self, i: Any) -> Any:
        return self.kind(self.graph, super().__getitem__(i).id)

    def element(self, value: Any) -> Any:
        """An integer as an element of it; None if it is a real number."""
        return self.kind.of(self.graph, 0).same(value)

    def put(self, i: Any, value: Any) -> Any:
        """The array with another element i."""
        return type(self)(self.graph, super().put(i, value).id)


class SignedArray(WordArray):
    """An array of words, which are signed integers."""

    __slots__ = ()
    kind: ClassVar[type[Word]] = SignedWord


OF_KIND: Final[dict[type[Word], type[WordArray]]] = {Word: WordArray, SignedWord: SignedArray}
"""The arrays whose elements are integers of a type."""


class Results(Handle):
    """All results of a loop or a choice together, of which a `Pick` is one."""

    __slots__ = ()
    build = Expr.build


WRAP.update({"F": Array, "W": WordArray, "t": Results})


def zeros(graph: Graph, n: int) -> Array:
    """An array of n zeros."""
    if n < 1:
        raise InputError(located(f"an array has at least one element, not {n}"))
    return Array(graph, graph.intern((ZEROS, n)))


def array_of(graph: Graph, values: Sequence[Any]) -> Array:
    """The array of these numbers: of integers, if all are integers of one type."""
    first = next((v for v in values if is_typed(v)), None)
    if first is not None:
        kind = kind_of(first)
        zero = kind.of(graph, 0)
        same = [zero.same(v) for v in values]
        integers = [w for w in same if w is not None]
        if len(integers) == len(values):
            empty = OF_KIND[kind](graph, graph.intern((EMPTY_W, len(values))))
            return functools.reduce(lambda a, iv: a.put(*iv), enumerate(integers), empty)
    array, nothing = zeros(graph, len(values)).id, graph.constant(0.0)
    for i, value in enumerate(values):
        element = operand(graph, value, "f")
        if element != nothing:
            array = graph.add(PUT, array, graph.intern((WORD, i)), element)
    return Array(graph, array)


# --- views ----------------------------------------------------------------------------------------


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
        """The elements with the axes in reverse order."""
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
        """The view with another axis, whose first element stands ``start`` further on."""
        shape, strides = (*self.shape, n), (*self.strides, stride)
        return View(self.array, shape, strides, self.start + start, self.offset, self.inside)

    def _at(self, i: Any, n: int, stride: int) -> View:
        """The view at index i of an axis of n elements."""
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
        conditions = [c for c in (self.inside, inside) if c is not None]
        both = (
            graph.add(ops.logical_and, *conditions)
            if len(conditions) == 2
            else (conditions or [None])[0]
        )
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


# --- arrays that are not written yet --------------------------------------------------------------


LEAST_SWEPT: Final = 2**8
"""Elements from which on arithmetic of arrays in memory is a loop: fewer are written out."""


def index_of(graph: Graph, n: int) -> int:
    """The index that stands for all of n elements: a hole, which a loop over them closes."""
    indices = graph.note(TracedLoops).indices
    if n not in indices:
        indices[n] = hole(graph, "u", name="k")
        limit(graph, indices[n], n - 1)
    return indices[n]


@contextmanager
def body_of(graph: Graph) -> Generator[None]:
    """While the body of a loop is traced: sweeps from outside are made before the loop."""
    bodies = graph.note(TracedLoops).bodies
    bodies.append(object())
    try:
        yield
    finally:
        bodies.pop()


def innermost_body(graph: Graph) -> object:
    """The loop whose body is being traced, None outside of all."""
    bodies = graph.note(TracedLoops).bodies
    return bodies[-1] if bodies else None


@dataclass(frozen=True, eq=False)
class Sweep:
    """An array of this shape, whose element at the index that stands for all is ``element``.

    It is of the body of the loop ``body``: what is made of it there takes its element, and what
    is made elsewhere reads it from memory, so that no iteration computes it again.
    """

    graph: Graph
    shape: tuple[int, ...]
    size: int
    element: Scalar
    body: object

    def view(self) -> View:
        """All elements, in memory: a loop puts them there."""
        graph, n = self.graph, self.size
        with OnePlace(graph):
            kind, element = Array, self.element
            if isinstance(element, Word):
                kind = OF_KIND[type(element)]
            else:
                element = element.as_float()
            index, array = index_of(graph, n), hole(graph, kind.type, n)
            put = graph.add(PUTS[kind.type], array, index, element.id)
            (end,) = swept(graph, n, {array: graph.intern((EMPTIES[kind.type], n))}, [put])
        return View.whole(kind(graph, end), self.shape)


Finish = Callable[[Loop], tuple[Loop, int]]
"""A change of a loop: another one, and how many carries it has more, 0 at first."""


def swept(
    graph: Graph,
    n: int,
    inits: dict[int, int],
    yields: Sequence[int],
    finish: Finish = lambda op: (op, 0),
) -> list[int]:
    """The final carries of a loop over n elements; ``inits`` are the first ones, by their holes."""
    params = [index_of(graph, n), *inits]
    inner = set(params)
    for i in reachable(graph, yields, min(params)):
        if not inner.isdisjoint(graph.args(i)):
            inner.add(i)
    region, captured = close(graph, params, yields, capture=lambda i: i not in inner)
    op, more = finish(loop_op(region, len(inits), most=n))
    zeros = [graph.constant(0.0)] * more
    loop = graph.add(op, word(graph, 0), word(graph, n), *inits.values(), *zeros, *captured)
    return [pick(graph, loop, j, graph.type(y)) for j, y in enumerate(yields)]


def element_of(view: View) -> Any:
    """An element of an array in memory, at the index that stands for all of them; else None.

    That is where they stand at equal distances.
    """
    array, graph = view.array, view.array.graph
    in_order = view.strides == View.whole(array, view.shape).strides
    if not (in_order or len(view.shape) == 1):
        return None
    stride = 1 if in_order else view.strides[0]
    at = index_of(graph, view.size)
    if abs(stride) != 1:
        at = graph.add(ops.word_mul, at, word(graph, abs(stride)))
    first = [word(graph, view.start)] if view.start else []
    first += [] if view.offset is None else [view.offset]
    if first:
        start = graph.add(ops.word_add, *first) if len(first) == 2 else first[0]
        at = graph.add(ops.word_add if stride > 0 else ops.word_sub, start, at)
    return array[Word(graph, at)]
