"""The meaning of a graph: a NumPy interpreter, which every back end must agree with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

from symgrad.expr.graph.arrays import ADD_AT, FRESH, WRITES, write
from symgrad.expr.graph.node import (
    ARRAYS,
    CONST,
    TRUTH,
    WORD,
    Graph,
    Node,
    Op,
    float_bits,
    reachable,
)
from symgrad.expr.graph.region import Choice, Loop, Pick, Region

Array = Any

FOLDED: Final = {"b": TRUTH, "u": WORD, "f": CONST}
"""The leaves of constants, by the type of the operation that makes them."""

Mask = Any
"""Which points something is computed for: truths, or None for all."""


def evaluate_graph(
    graph: Graph, roots: Sequence[int], inputs: Mapping[int, Array], dtype: Any = np.float64
) -> list[Array]:
    """The values of the roots, as arrays of one length.

    ``inputs`` maps input nodes (their ids) to 1-D arrays of that length. A root that is an array
    gives one of shape (elements, length). Values are dropped after
    their last use, so memory stays at the width of the graph, not its length. Of points that take
    different ways through loops and choices, each goes its own.
    """
    length = max((len(a) for a in inputs.values()), default=1)
    run = _Run(length, dtype)
    with np.errstate(all="ignore"):
        values = run.values(_Order.of(graph, roots, dtype), inputs, None, frozenset())
    sizes = [(*np.shape(v)[:-1], length) for v in values]
    return [np.broadcast_to(v, size) for v, size in zip(values, sizes, strict=True)]


def leaf(node: Node, dtype: Any) -> Any:
    """The value of a constant, a NumPy scalar so that it takes part in no type promotion."""
    if node[0] in FRESH:
        array = node[0].reference(node[1])
        return array.astype(dtype) if node[0].result == "F" else array
    value = Graph.leaf_value(node)
    with np.errstate(over="ignore"):
        return {"f": dtype, "b": np.bool_, "i": np.int32, "u": np.uint32}[node[0].result](value)


class _Step(NamedTuple):
    """A node to compute: ``function`` is its meaning, unless it has regions, or writes.

    ``over`` are the arguments that no later node needs.
    """

    id: int
    node: Node
    function: Callable[..., Array] | None
    arguments: tuple[int, ...]
    over: tuple[int, ...]


@dataclass(frozen=True)
class _Order:
    """The nodes that roots need, in order, and the last user of each."""

    graph: Graph
    roots: tuple[int, ...]
    inputs: tuple[int, ...]
    constants: Mapping[int, Any]
    steps: tuple[_Step, ...]
    last: Mapping[int, int]

    @classmethod
    def of(cls, graph: Graph, roots: Sequence[int], dtype: Any) -> _Order:
        nodes = {i: graph.nodes[i] for i in reachable(graph, roots)}
        last: dict[int, int] = {}
        for i in nodes:
            last.update(dict.fromkeys(graph.args(i), i))
        last.update(dict.fromkeys(roots, -1))
        inputs, constants, steps = [], dict[int, Any](), []
        for i, node in nodes.items():
            op, *arguments = node
            if op in FRESH:
                steps.append(_Step(i, node, partial(leaf, node, dtype), (), ()))
            elif op.constant:
                constants[i] = leaf(node, dtype)
            elif not op.arity:
                inputs.append(i)
            else:
                by_itself = isinstance(op, Loop | Choice | Pick) or op in WRITES
                function = None if by_itself else op.reference
                over = tuple(a for a in dict.fromkeys(arguments) if last[a] == i)
                steps.append(_Step(i, node, function, tuple(arguments), over))
        return cls(graph, tuple(roots), tuple(inputs), constants, tuple(steps), last)


class _Run:
    """One evaluation of a graph at a batch of points.

    Arrays are (elements, points). One that has no other user is written in place, as a loop that
    writes to an array iteration by iteration would otherwise copy it as often.
    """

    def __init__(self, length: int, dtype: Any) -> None:
        self._length, self._dtype = length, dtype
        self._orders: dict[tuple[int, tuple[int, ...]], _Order] = {}

    def values(
        self, order: _Order, inputs: Mapping[int, Array], mask: Mask, own: frozenset[int]
    ) -> list[Array]:
        """The values of the roots, where the mask holds; ``own`` inputs may be overwritten."""
        values = _Values(order.last, own)
        values.update(order.constants)
        for i in order.inputs:
            values[i] = inputs[i]
        for i, node, function, arguments, over in order.steps:
            if function is None:
                self._operate(values, i, node, mask)
            else:
                values[i] = function(*[values[a] for a in arguments])
            for a in over:
                del values[a]
        return self._results(values, order)

    def _results(self, computed: _Values, order: _Order) -> list[Array]:
        """The roots; arrays, which the caller may overwrite, each its own."""
        values, taken = [], set[int]()
        for i in order.roots:
            shared = i in taken or i not in computed.own
            values.append(
                np.array(computed[i]) if order.graph.type(i) in ARRAYS and shared else computed[i]
            )
            taken.add(i)
        return values

    def _operate(self, values: _Values, i: int, node: Node, mask: Mask) -> None:
        """Compute a node with regions, or a write; it reuses an array that no other node needs."""
        op, *ids = node
        args = [values[a] for a in ids]
        if isinstance(op, Loop):
            values[i] = self._loop(op, args, mask, [values.is_free(i, a, ids) for a in ids])
        elif isinstance(op, Choice):
            values[i] = self._choice(op, args, mask)
        elif isinstance(op, Pick):
            values[i] = args[0][op.index]
            values.own.add(i)
        else:
            free = values.is_free(i, ids[0], ids) and self._is_whole(args[0])
            target = args[0] if free else self._whole(args[0])
            write(target, args[1], args[2], op is ADD_AT, mask)
            values[i] = target
            values.own.add(i)

    def _loop(self, op: Loop, args: Sequence[Array], mask: Mask, free: Sequence[bool]) -> Any:
        """The carries after the last iteration, and how many iterations there were."""
        (lo, hi), (carries, captures) = args[:2], op.split(args[2:])
        owned = zip(carries, free[2:], strict=False)
        carries = [
            x if x.ndim < 2 or (mine and self._is_whole(x)) else self._whole(x) for x, mine in owned
        ]
        iterations, taken, going = np.clip(np.int64(hi) - lo, 0, op.most), np.uint32(0), mask
        for t in range(np.max(iterations)):
            inside = self._also(going, t < iterations)
            k = (hi - 1 - t if op.down else lo + t).astype(np.uint32)
            inputs = dict(zip(op.body.params, [k, *carries, *captures], strict=True))
            if op.test:
                going = inside = self._also(inside, self._goes_on(op, inputs, inside))
            if inside is not None and not inside.any():
                break
            carries = self._iteration(op, inputs, inside, carries)
            taken = taken + (np.uint32(1) if inside is None else inside.astype(np.uint32))
        return *carries, taken

    def _goes_on(self, op: Loop, inputs: Mapping[int, Array], mask: Mask) -> Array:
        order = self._order(op.body, op.body.yields[op.carries :])
        return self.values(order, inputs, mask, frozenset())[0]

    def _iteration(
        self, op: Loop, inputs: Mapping[int, Array], mask: Mask, carries: Sequence[Array]
    ) -> list[Array]:
        """The next carries, where the mask holds, and elsewhere what they were."""
        order = self._order(op.body, op.body.yields[: op.carries])
        own = frozenset(op.body.params[1 : 1 + op.carries])
        new = self.values(order, inputs, mask, own)
        if mask is None:
            return new
        return [b if a is b else np.where(mask, b, a) for a, b in zip(carries, new, strict=True)]

    def _choice(self, op: Choice, args: Sequence[Array], mask: Mask) -> list[Array]:
        """The results of the side that each point takes; a side that none takes is not computed."""
        inputs = dict(zip(op.body.params, args[1:], strict=True))
        orders = [self._order(op.body, side) for side in op.sides()]
        if np.size(args[0]) == 1:
            order = orders[0 if np.all(args[0]) else 1]
            return self.values(order, inputs, mask, frozenset())
        condition = np.asarray(args[0])
        masks = [self._also(mask, condition), self._also(mask, ~condition)]
        for held, order in zip(masks, orders[::-1], strict=True):
            if held is not None and not held.any():
                return self.values(order, inputs, mask, frozenset())
        both = [self.values(o, inputs, m, frozenset()) for o, m in zip(orders, masks, strict=True)]
        return [np.where(condition, a, b) for a, b in zip(*both, strict=True)]

    def _also(self, mask: Mask, condition: Array) -> Mask:
        """Where a mask holds and a condition too."""
        if np.all(condition):
            return mask
        condition = np.broadcast_to(condition, (self._length,))
        return condition if mask is None else mask & condition

    def _is_whole(self, array: Array) -> bool:
        """Whether an array has a column for each point."""
        return array.shape[1] == self._length

    def _whole(self, array: Array) -> Array:
        """A copy of an array, with a column for each point."""
        return np.array(np.broadcast_to(array, (len(array), self._length)))

    def _order(self, body: Region, roots: tuple[int, ...]) -> _Order:
        key = id(body), roots
        if key not in self._orders:
            self._orders[key] = _Order.of(body.graph, roots, self._dtype)
        return self._orders[key]


class _Values(dict[int, Array]):
    """The values of nodes that are still needed; ``own`` are arrays that only they refer to."""

    def __init__(self, last: Mapping[int, int], own: frozenset[int]) -> None:
        self._last, self.own = last, set(own)

    def is_free(self, user: int, i: int, args: Sequence[int]) -> bool:
        """Whether the array i may be overwritten by what ``user`` makes of its arguments."""
        return i in self.own and self._last[i] == user and list(args).count(i) == 1


@lru_cache(maxsize=4096)
def fold(op: Op, arguments: tuple[Node, ...]) -> float | bool | int:
    """The value of an operation on constants: its reference, in double precision."""
    with np.errstate(all="ignore"):
        result = op.reference(*[leaf(a, np.float64) for a in arguments])
    return np.asarray(result).item()


def constant_node(kind: str, value: Any) -> Node:
    """The leaf that is a value of this type."""
    return FOLDED[kind], float_bits(float(value)) if kind == "f" else int(value)
