"""Loops that are being traced, and their carries.

Carries and results of choices are nests of numbers, as the user has them and as nodes. An open loop
is the graph, and one loop with its bounds, parameters and end.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.expr import ops
from symgrad.expr.derivatives.cotangents import compensated
from symgrad.expr.graph.arrays import GET, PUT, length, size_of
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import ANY_HOLE, OPEN_TAPE, WORD, Graph, Handle, reachable
from symgrad.expr.graph.place import OnePlace, resolve_places
from symgrad.expr.graph.region import choice_op, close, hole, loop_op, pick
from symgrad.expr.tracers.array import TracedArray, array, in_memory
from symgrad.expr.tracers.counter import Counter, TracedLoops, ceiling, largest, limit, whole, word
from symgrad.expr.tracers.expression import WRAP, Condition, Expr, operand, require_graph
from symgrad.expr.tracers.integers import KINDS, SignedWord, Word, is_typed, kind_of
from symgrad.expr.tracers.memory import LEAST_SWEPT, Array, SignedArray, View, WordArray
from symgrad.expr.tracers.tree import Tree, apart, flatten

_WORDS: Final = {
    "f": "a number",
    "b": "a condition",
    "u": "a uint32",
    "s": "an int32",
    "F": "an array",
    "W": "an array of uint32",
    "S": "an array of int32",
}
"""The names of types in messages; signed integers are words in the graph."""

_INTEGERS: Final = {"u": Word, "s": SignedWord}

_ARRAYS: Final = {"F": Array, "W": WordArray, "S": SignedArray}
"""Arrays in memory by their types."""

HANDLES: Final = WRAP | _INTEGERS | _ARRAYS
"""The handles of values of each type."""

OF_TYPE: Final = _ARRAYS | {"f": Array, "b": Array, "u": WordArray, "s": SignedArray}
"""The arrays in memory of values of a type."""


@dataclass(frozen=True)
class Nest:
    """How numbers are nested, and of each block of the tree the types of its nodes.

    A block of several numbers that are kept in memory is one node, an array.
    """

    tree: Tree
    kinds: tuple[str, ...]

    @property
    def types(self) -> str:
        """The type of each node."""
        return "".join(self.kinds)

    def wrap(self, graph: Graph, ids: Sequence[int]) -> Any:
        """The nest of these nodes."""
        pairs = zip(self.types, ids, strict=True)
        handles = iter([HANDLES[kind](graph, i) for kind, i in pairs])
        blocks = zip(self.tree.blocks, self.kinds, strict=True)
        parts = (_leaf(block.shape, [next(handles) for _ in kind]) for block, kind in blocks)
        return self.tree.nest(parts, None)

    def names(self, name: str) -> list[str]:
        """A name for each node, those without one after ``name``."""
        names: list[str] = []
        for block, kind in zip(self.tree.blocks, self.kinds, strict=True):
            path = "" if self.tree.is_leaf else block.name.replace(".", "_")
            start = path if path.isidentifier() else f"{name}{path}"
            single = not block.shape or is_memory(kind)
            names += [start] if single else [f"{start}{k}" for k in range(block.size)]
        return names

    def joined(self, other: Nest) -> Nest:
        """This nest, with numbers where either has a number and the other a condition.

        Arrays are in memory where they are so in either.
        """
        if self.tree != other.tree:
            return self
        pairs = zip(self.kinds, other.kinds, strict=True)
        return replace(self, kinds=tuple(_joined(a, b) for a, b in pairs))

    def in_memory(self, other: Nest) -> Nest:
        """This nest, with arrays in memory where the other has them in memory."""
        if self.tree != other.tree:
            return self
        pairs = zip(self.kinds, other.kinds, strict=True)
        return replace(self, kinds=tuple(b if is_memory(b) else a for a, b in pairs))

    def ids(self, graph: Graph, value: Any, what: str) -> list[int]:
        """The nodes of a value that is nested like this.

        Raises:
            TraceError: if it is not; ``what`` is what it is called there.
        """
        try:
            parts = list(self.tree.parts(value, what))
        except (InputError, KeyError) as error:
            same = "the initial carry, or the other branch, has this structure"
            raise TraceError(located(f"{error}: {same}")) from error
        leaves: list[Any] = []
        for part, block, kind in zip(parts, self.tree.blocks, self.kinds, strict=True):
            name = what if self.tree.is_leaf else f"{what}: {block.name}"
            if is_memory(kind) and block.shape:
                _require_shape(part, block.shape, name)
                leaves.append(in_memory(graph, part).view.array)
            else:
                leaves += _elements(part, block.shape, name)
        return [_of_type(graph, x, t, what) for x, t in zip(leaves, self.types, strict=True)]


def flattened(graph: Graph, value: Any, what: str) -> tuple[list[int], Nest]:
    """The nodes of a nest of numbers, and how they are nested.

    Raises:
        TraceError: if there is anything else in it.
    """
    values, tree = flatten(value, lambda part: _read(graph, part, what))
    leaves, kinds = iter(values), list[str]()
    for block in tree.blocks:
        first = next(leaves) if block.size else None
        alone = not block.size or not block.shape or isinstance(first, Array)
        rest = [] if alone else [next(leaves) for _ in range(block.size - 1)]
        kinds.append("".join(_type(x) for x in (first, *rest)) if block.size else "")
    nest = Nest(tree, tuple(kinds))
    return [_of_type(graph, x, t, what) for x, t in zip(values, nest.types, strict=True)], nest


def is_memory(kind: str) -> bool:
    """Whether a block of this type is an array in memory."""
    return kind in _ARRAYS


def _joined(a: str, b: str) -> str:
    """The types of what is chosen from two blocks of the same shape."""
    if is_memory(a) or is_memory(b):
        return a if is_memory(a) else b
    return "".join("f" if {*pair} == {"b", "f"} else pair[0] for pair in zip(a, b, strict=True))


def _read(graph: Graph, value: Any, what: str) -> tuple[list[Any], Tree] | None:
    """The numbers of an array, one handle if it is in memory, or a number; None of a container.

    A long array is put into memory.
    """
    if isinstance(value, TracedArray) and value.shape:
        return [in_memory(value.graph, value).view.array], Tree("array", value.shape)
    if isinstance(value, np.ndarray) and value.ndim:
        elements = _elements(value, value.shape, what)
        if value.size >= LEAST_SWEPT and set(map(_type, elements)) == {"f"}:
            elements = [in_memory(graph, value).view.array]
        return elements, Tree("array", value.shape)
    return (_elements(value, (), what), Tree()) if apart(value) is None else None


def _elements(value: Any, shape: tuple[int, ...], what: str) -> list[Any]:
    """The numbers of an array of this shape; () is one number."""
    _require_shape(value, shape, what)
    if isinstance(value, np.ndarray) and value.dtype.name in KINDS:
        return list(value.flat)
    if shape or isinstance(value, np.ndarray):
        return list(np.ravel(array(value)).tolist())
    if not isinstance(value, (Handle, int, float, np.number, np.bool_)):
        kind = type(value).__name__
        raise TraceError(located(f"{what} holds {value!r} ({kind}), which is not a number"))
    return [value]


def _require_shape(value: Any, shape: tuple[int, ...], what: str) -> None:
    in_memory = isinstance(value, TracedArray)
    actual = () if isinstance(value, Handle) else value.shape if in_memory else np.shape(value)
    if actual != shape:
        needed = f"{shape} is needed, as the initial carry or the other branch has it"
        raise TraceError(located(f"{what} has shape {actual}: {needed}"))


def _leaf(shape: tuple[int, ...], handles: Sequence[Handle]) -> Any:
    if not shape:
        return handles[0]
    if handles and isinstance(handles[0], Array):
        return TracedArray(View.whole(handles[0], shape))
    parts = np.empty(len(handles), dtype=object)
    parts[:] = handles
    return array(parts.reshape(shape))


def _type(value: Any) -> str:
    if isinstance(value, (bool, np.bool_, Condition)):
        return "b"
    if is_typed(value):
        return "s" if kind_of(value) is SignedWord else "u"
    if isinstance(value, SignedArray):
        return "S"
    return value.type if isinstance(value, Array) else "f"


def _of_type(graph: Graph, value: Any, expected: str, what: str) -> int:
    """The node of a number, which is to be of this type; a condition may be a number, 1 or 0."""
    kind = _type(value)
    if isinstance(value, Handle):
        require_graph(graph, value)
    elif expected in _INTEGERS and isinstance(value, numbers.Integral):
        return _INTEGERS[expected].of(graph, int(value)).id
    if kind != expected and (kind, expected) != ("b", "f"):
        raise TraceError(located(f"{what} is {_WORDS[kind]} where it has to be {_WORDS[expected]}"))
    return value.id if expected in _INTEGERS else operand(graph, value, expected)


# Loops that are being traced: the graph, and one loop with its bounds, parameters and end.

_traced: ContextVar[Graph | None] = ContextVar("_traced", default=None)
"""The graph of the function that is being traced."""


def traced_graph() -> Graph | None:
    """The graph of the function that is being traced, if there is one."""
    return _traced.get()


class Tracing:
    """A context in which a function is traced into a graph."""

    __slots__ = ("_graph", "_token")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __enter__(self) -> None:
        self._token = _traced.set(self._graph)

    def __exit__(self, *_: object) -> None:
        _traced.reset(self._token)


def require_closed(graph: Graph, roots: Iterable[int]) -> None:
    """Refuse a value of a loop's body that is used outside of it.

    Raises:
        TraceError: it names the line of the value.
    """
    holes = {i for i, node in enumerate(graph.nodes) if node[0] in ANY_HOLE}
    needed = reachable(graph, roots, min(holes, default=len(graph)))
    open_ones = holes.intersection(needed)
    if not open_ones:
        return
    resolve_places(graph)
    users = (i for i in needed if not open_ones.isdisjoint(graph.args(i)))
    places = (graph.place_of(i) for i in (next(users, min(open_ones)), min(open_ones)))
    place = next((p for p in places if p), None)
    raise TraceError(
        "a value of a loop's body is used outside of the loop, where it has no value: return it "
        "as a part of the carry" + (f"\n  at {place}" if place else "")
    )


# --- arguments of loops and choices ---------------------------------------------------------------


def condition(graph: Graph, value: Any, what: str) -> int:
    """The node of what says whether to go on, or which side to take."""
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if not isinstance(value, (Expr, bool, int, float, np.number, np.bool_)):
        raise TraceError(located(f"{what}: a condition is needed, not {value!r}"))
    return operand(graph, value, "b")


def require_functions(*bodies: Any) -> None:
    """Refuse what a loop or a choice cannot do."""
    for body in bodies:
        if not callable(body):
            raise InputTypeError(
                located(f"the body of a loop or a branch of a choice is a function, not {body!r}")
            )


def graph_among(*values: Any) -> Graph | None:
    """The graph that expressions in nests are of, or else of the function that is traced."""
    return graph_of(*values) or _traced.get()


def is_whole(*values: Any) -> bool:
    """Whether a function of whole arrays is traced, and there are no expressions in nests."""
    return OPEN_TAPE.get() is not None and graph_of(*values) is None


def graph_of(*values: Any) -> Graph | None:
    """The graph that expressions in nests are of, if there are any."""
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, (Handle, TracedArray)):
            return value.graph
        if isinstance(value, np.ndarray):
            stack += list(value.flat) if value.dtype == object else []
        else:
            outer = apart(value)
            stack += [] if outer is None else outer[1]
    return None


# --- one loop -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoopBounds:
    """The bounds of a loop as words, what is added to its counter, and its trip count."""

    first: int
    last: int
    most: int | None
    shift: int | Expr | None = None
    exceeded: int | None = None
    """The condition that there would be more iterations than the user said."""

    @classmethod
    def between(
        cls, graph: Graph, start: int | Expr, end: int | Expr, most: int | None
    ) -> LoopBounds:
        """The iterations for k = start, start + 1, .., k < end."""
        first, last = whole(graph, start), whole(graph, end)
        shift: int | Expr | None = None
        if first is None:  # the counter begins at 0
            first, last, shift = word(graph, 0), None, start
            end = end - start
        if last is None:
            last = word(graph, max(0, end)) if isinstance(end, int) else ceiling(end)
        upper = largest(graph, last)
        if upper is not None and graph.nodes[first][0] is WORD:
            upper = max(0, upper - graph.nodes[first][1])
        if most is None or (upper is not None and upper <= most):
            return cls(first, last, upper, shift)
        exceeded = graph.add(ops.word_lt, graph.add(ops.word_add, first, word(graph, most)), last)
        return cls(first, last, most, shift, exceeded)

    def ended(self, graph: Graph, ids: Sequence[int]) -> list[int]:
        """The final carry, NaN where there would be more iterations than there may be."""
        return list(ids) if self.exceeded is None else nan_where(graph, self.exceeded, ids)


class OpenLoop:
    """A loop whose body is being traced: its parameters are holes."""

    def __init__(self, graph: Graph, iterations: LoopBounds, names: Sequence[str]) -> None:
        self._graph, self._iterations, self._name = graph, iterations, names[-1]
        self._inits: list[int] = []
        self._holes: list[int] = []
        with OnePlace(graph):
            self.index = hole(graph, "u", name=names[0])
            limit(graph, self.index, self._largest(), self._least())
            self.counter: Any = Counter(graph, graph.add(ops.word_float, self.index))
            if iterations.shift is not None:
                self.counter = self.counter + iterations.shift

    def _least(self) -> int:
        """A lower bound of the counter."""
        op, first = self._graph.nodes[self._iterations.first][:2]
        return first if op is WORD else 0

    def _largest(self) -> int | None:
        """An upper bound of the counter, if one is known."""
        iterations = self._iterations
        first, last = (largest(self._graph, i) for i in (iterations.first, iterations.last))
        ends = [] if last is None else [last]
        if first is not None and iterations.most is not None:
            ends.append(first + iterations.most)
        return max(min(ends) - 1, 0) if ends else None

    def carry(self, init: int, name: str) -> int:
        """A hole for a carry that begins as this node."""
        graph = self._graph
        with OnePlace(graph):
            carry = hole(graph, graph.type(init), size_of(graph, init), name)
        runs = graph.note(TracedLoops).runs
        runs[carry] = (self._iterations.most or 1) * runs.get(init, 1)
        self._inits.append(init)
        self._holes.append(carry)
        return carry

    def carries(self, inits: Sequence[int], nest: Nest) -> list[int]:
        """Holes for all numbers of a nest."""
        return [self.carry(i, n) for i, n in zip(inits, nest.names(self._name), strict=True)]

    def closed(
        self, yields: Sequence[int], test: int | None = None, down: bool = False
    ) -> list[int]:
        """The final carries of the loop whose next carries are these."""
        graph, iterations = self._graph, self._iterations
        require_lengths(graph, self._inits, yields, "an array that a loop carries")
        roots = [*yields] if test is None else [*yields, test]
        inner = self._inner(roots)
        params = [self.index, *self._holes]
        with OnePlace(graph):
            region, captured = close(graph, params, roots, capture=lambda i: i not in inner)
            op = loop_op(region, len(yields), test is not None, down, iterations.most)
            runs = graph.note(TracedLoops).runs
            op, errors = compensated(op, max((runs.get(i, 1) for i in self._inits), default=1))
            inits = [*self._inits, *[graph.constant(0.0)] * errors]
            loop = graph.add(op, iterations.first, iterations.last, *inits, *captured)
            ends = [pick(graph, loop, j, graph.type(y)) for j, y in enumerate(yields)]
        return iterations.ended(graph, ends)

    def _inner(self, roots: Sequence[int]) -> set[int]:
        """The nodes that change with the iterations; others are computed before the loop."""
        graph = self._graph
        inner = {self.index, *self._holes}
        for i in reachable(graph, roots, self.index):
            if not inner.isdisjoint(graph.args(i)):
                inner.add(i)
        return inner


def nan_where(graph: Graph, exceeded: int, ids: Sequence[int]) -> list[int]:
    """The nodes, with numbers and their derivatives NaN where a loop has not ended."""
    with OnePlace(graph):
        factor = graph.add(ops.where, exceeded, graph.constant(math.nan), graph.constant(1.0))
        spoilt = {"f": lambda i: graph.add(ops.mul, i, factor), "F": _all_nan(graph, exceeded)}
        return [spoilt[graph.type(i)](i) if graph.type(i) in spoilt else i for i in ids]


def _all_nan(graph: Graph, exceeded: int) -> Callable[[int], int]:
    """A function that makes an array and its derivatives NaN where a condition holds."""

    def spoilt(i: int) -> int:
        n, iteration, side = length(graph, i), Graph(), Graph()
        iteration.tracing = side.tracing = False
        k, a, array = hole(iteration, "u", name="k"), hole(iteration, "F", n), hole(side, "F", n)
        nan = iteration.add(ops.mul, iteration.add(GET, a, k), iteration.constant(math.nan))
        body, _ = close(iteration, [k, a], [iteration.add(PUT, a, k, nan)])
        looped = side.add(loop_op(body, 1, most=n), word(side, 0), word(side, n), array)
        sides, _ = close(side, [array], [pick(side, looped, 0, "F"), array])
        return pick(graph, graph.add(choice_op(sides, 1), exceeded, i), 0, "F")

    return spoilt


def require_lengths(graph: Graph, a: Sequence[int], b: Sequence[int], what: str) -> None:
    """Refuse arrays of different lengths in the same place."""
    for i, j in zip(a, b, strict=True):
        if size_of(graph, i) != size_of(graph, j):
            sizes = f"{size_of(graph, i)} and {size_of(graph, j)}"
            raise TraceError(located(f"{what}: it has different lengths, {sizes}"))
