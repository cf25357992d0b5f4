"""Arrays in memory that are not made yet: what an element is, at an index that stands for all."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from symgrad.expr import ops
from symgrad.expr.graph.arrays import EMPTIES, PUTS
from symgrad.expr.graph.node import Graph, reachable
from symgrad.expr.graph.place import OnePlace
from symgrad.expr.graph.region import Loop, close, hole, loop_op, pick
from symgrad.expr.tracers.counter import limit, word
from symgrad.expr.tracers.expression import Scalar
from symgrad.expr.tracers.integers import Word
from symgrad.expr.tracers.versions import OF_KIND, Array
from symgrad.expr.tracers.view import View

LEAST_SWEPT: Final = 2**8
"""Elements from which on arithmetic of arrays in memory is a loop: fewer are written out."""

_indices: Final[WeakKeyDictionary[Graph, dict[int, int]]] = WeakKeyDictionary()
_bodies: Final[WeakKeyDictionary[Graph, list[object]]] = WeakKeyDictionary()
"""The loops whose bodies are being traced, the innermost last."""


def index_of(graph: Graph, n: int) -> int:
    """The index that stands for all of n elements: a hole, which a loop over them closes."""
    known = _indices.setdefault(graph, {})
    if n not in known:
        known[n] = hole(graph, "u", name="k")
        limit(graph, known[n], n - 1)
    return known[n]


@contextmanager
def body_of(graph: Graph) -> Generator[None]:
    """While the body of a loop is traced: sweeps from outside are made before the loop."""
    bodies = _bodies.setdefault(graph, [])
    bodies.append(object())
    try:
        yield
    finally:
        bodies.pop()


def here(graph: Graph) -> object:
    """The loop whose body is being traced, None outside of all."""
    bodies = _bodies.get(graph)
    return bodies[-1] if bodies else None


@dataclass(frozen=True, eq=False)
class Sweep:
    """An array of this shape, whose element at the index that stands for all is ``element``.

    It is of the body of the loop ``where``: what is made of it there takes its element, and what
    is made elsewhere reads it from memory, so that no turn computes it again.
    """

    graph: Graph
    shape: tuple[int, ...]
    size: int
    element: Scalar
    where: object

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
"""What makes another loop of one, which carries so many numbers more, 0 at first."""


def swept(
    graph: Graph,
    n: int,
    inits: dict[int, int],
    yields: Sequence[int],
    finish: Finish = lambda op: (op, 0),
) -> list[int]:
    """What a loop over n elements carries in the end; ``inits`` are those of its holes."""
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
