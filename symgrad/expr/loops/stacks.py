"""What a scan goes through, and what it gives: arrays in nests, taken and made row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr import ops
from symgrad.expr.derivatives.sweep import copied
from symgrad.expr.graph.arrays import EMPTIES, PUTS, length
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import WORD, Graph
from symgrad.expr.graph.place import describe
from symgrad.expr.loops.carry import HANDLES, OF_TYPE, flattened, is_memory
from symgrad.expr.loops.open_loop import OpenLoop
from symgrad.expr.tracers.array import TracedArray, array, in_memory
from symgrad.expr.tracers.expression import WRAP
from symgrad.expr.tracers.memory import Array, View
from symgrad.expr.tracers.tree import Tree, apart, flatten


@dataclass(frozen=True)
class Rows:
    """Arrays in a nest, whose first axes are of one length, ``count``."""

    arrays: tuple[Any, ...]
    tree: Tree | None
    count: int

    @classmethod
    def of(cls, xs: Any, count: int | None) -> Rows:
        """The arrays that a scan goes through; none has the rows None.

        Raises:
            InputError: if they differ in length, or nothing says how many rows there are.
        """
        arrays, tree = flatten(xs, _array) if xs is not None else ([], None)
        counts = {len(a) for a in arrays} | ({count} if count is not None else set[int]())
        if len(counts) != 1:
            known = " and ".join(map(str, sorted(counts)))
            wrong = f"lengths {known} differ" if counts else "the number of steps is unknown"
            raise InputError(located(f"scan: {wrong}: give arrays xs of one length, or length="))
        return cls(tuple(arrays), tree, counts.pop())

    def in_memory(self, graph: Graph) -> Rows:
        """The same arrays, of which a row may be taken by an expression."""
        if not self.count:
            return self
        kinds = TracedArray, Array
        kept = (a if isinstance(a, kinds) else in_memory(graph, a) for a in self.arrays)
        return Rows(tuple(kept), self.tree, self.count)

    def __getitem__(self, k: Any) -> Any:
        """The rows of this number, nested as the arrays are."""
        return self._nested(a[k] for a in self.arrays)

    def blank(self) -> Any:
        """Rows of zeros, nested as the arrays are."""
        return self._nested(array(np.zeros(a.shape[1:]))[()] for a in self.arrays)

    def _nested(self, rows: Iterator[Any]) -> Any:
        return None if self.tree is None else self.tree.nest(rows, None)

    def stacked(self, ys: Sequence[Any], like: Any) -> Any:
        """What each step gives, nested as ``like``, numbers as arrays with another axis."""
        shapes, tree = flatten(like, _shape)
        columns = (
            zip(*[flatten(y, _number)[0] for y in ys], strict=True) if ys else [()] * len(shapes)
        )
        pairs = zip(columns, shapes, strict=True)
        return tree.nest((array_like([*c], (self.count, *s)) for c, s in pairs), None)


def array_like(values: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    """The values as one array, of expressions if there are any among them."""
    stacked = np.asarray(values).reshape(shape)
    return array(stacked) if stacked.dtype == object else stacked


def paired(result: Any, step: Callable[..., Any]) -> tuple[Any, Any]:
    """What a step gives: a carry and a y."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise TraceError(
            located(f"{describe(step)} returns the next carry and a y, not {result!r}")
        )
    return result


def _array(value: Any) -> tuple[list[Any], Tree] | None:
    """An array with a first axis, or a list of numbers; None of other containers."""
    if isinstance(value, (TracedArray, Array)) or (isinstance(value, np.ndarray) and value.ndim):
        return [value], Tree()
    outer = apart(value)
    if outer is None:
        raise InputError(located(f"a scan goes through arrays, and {value!r} is not one"))
    listed = isinstance(value, list) and all(apart(v) is None or type(v) is list for v in value)
    return ([array(value)], Tree()) if listed else None


def _number(value: Any) -> tuple[list[Any], Tree] | None:
    return ([value], Tree()) if value is None or apart(value) is None else None


def _shape(value: Any) -> tuple[list[Any], Tree] | None:
    if value is None:
        return [], Tree(tuple)
    return ([np.shape(value)], Tree()) if apart(value) is None else None


class Kept:
    """What iterations of a loop give besides the carry: an array in memory for each number."""

    def __init__(self, graph: Graph, count: int, y: Any, what: str) -> None:
        self._graph, self._count = graph, count
        self._nothing = y is None
        self._arrays: list[type[Array]] = []
        self._ids, self._nest = flattened(graph, () if y is None else y, what)

    def written(self, loop: OpenLoop) -> list[int]:
        """Where each turn leaves them: arrays that the loop carries, with the turn's numbers."""
        graph, ids, puts = self._graph, iter(self._ids), list[int]()
        for block, kind in zip(self._nest.tree.blocks, self._nest.kinds, strict=True):
            memory = next(ids) if is_memory(kind) else None
            size = block.size if memory is None else length(graph, memory)
            stacked = OF_TYPE.get(kind[:1], Array) if len({*kind}) < 2 else Array
            self._arrays.append(stacked)
            blank = graph.intern((EMPTIES[stacked.type], self._count * size))
            home = loop.carry(blank, f"{block.name.replace('.', '_')}_all")
            start = graph.add(ops.word_mul, loop.index, graph.intern((WORD, size)))
            if memory is not None:
                zero = graph.intern((WORD, 0))
                puts.append(copied(graph, (home, start), (memory, zero), size))
                continue
            for j in range(size):
                at = graph.add(ops.word_add, start, graph.intern((WORD, j)))
                value = HANDLES[kind[j]](graph, next(ids))
                home = PUTS[stacked.type](stacked(graph, home), WRAP["u"](graph, at), value).id
            puts.append(home)
        return puts

    def wrap(self, ids: Sequence[int]) -> Any:
        """The nest of these arrays."""
        if self._nothing:
            return None
        pairs = zip(self._arrays, ids, strict=True)
        arrays = (stacked(self._graph, i) for stacked, i in pairs)
        blocks = zip(self._nest.tree.blocks, arrays, strict=True)
        return self._nest.tree.nest(
            (TracedArray(View.whole(a, (self._count, *block.shape))) for block, a in blocks), None
        )
