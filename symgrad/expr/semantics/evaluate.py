"""The meaning of a graph: a NumPy interpreter, and where float32 loses precision in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.arrays import ADD_AT, FRESH, WRITES, write
from symgrad.expr.graph.node import (
    ARRAYS,
    CONST,
    INPUT,
    TRUTH,
    WORD,
    Graph,
    Node,
    Op,
    float_bits,
    inputs_of,
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


# Where float32 loses precision: a graph evaluated in float32 and float64, node beside node.
#
# Three questions, each answered for all nodes or for one: how wrong is a node, what does it do to
# the errors that come in, and what of the error of the results is its doing.

DIGITS: Final = 24
"""Significant bits of a float32."""

SMALLEST: Final = 2.0**-149
"""The smallest float32 above 0."""

NORMAL: Final = 2.0**-126
"""The smallest float32 with all its bits."""

TIMES: Final = 4.0
"""How much larger than the errors that come in an error is that its node is asked about."""

KINDS: Final = (
    "NaN",
    "overflow",
    "infinity",
    "decision",
    "underflow",
    "cancellation",
    "amplification",
)
"""The kinds of loss of precision at a node, of which the first that fits is named."""

SUMS: Final = (ops.add, ops.sub, ops.fma)

Floats = Any
"""A NumPy array of float64."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Every node that the roots need, in float32 and in float64.

    Invariants:
      1. Row k of ``single`` and ``double`` is node ``order[k]``; columns are points.
      2. Both are float64; ``single`` holds what was computed in float32, conditions are 1 and 0.
      3. ``error`` is the difference in ULP of ``double``, as if exponents had no limits.
      4. ``rows[k]`` are the rows of the arguments of row k.
    """

    graph: Graph
    order: list[int]
    rows: list[list[int]]
    roots: list[int]
    single: Floats
    double: Floats
    error: Floats

    @property
    def outcome(self) -> Floats:
        """The errors of the roots (roots, points) in ULP of float32; infinite where not finite."""
        single, double = self.single[self.roots], self.double[self.roots]
        return np.where(np.isfinite(single), ulps(single, double, SMALLEST), np.inf)


def compare(graph: Graph, roots: Sequence[int], points: Any) -> Comparison:
    """The graph at points (B, n), which float32 holds exactly."""
    order = reachable(graph, roots)
    row = {i: k for k, i in enumerate(order)}
    runs: list[Floats] = []
    for dtype in (np.float32, np.float64):
        inputs = {i: points[:, k].astype(dtype) for k, i in enumerate(inputs_of(graph))}
        values = evaluate_graph(graph, order, inputs, dtype)
        runs.append(np.array([v.astype(np.float64) for v in values]))
    single, double = runs
    return Comparison(
        graph,
        order,
        [[row[a] for a in graph.args(i)] for i in order],
        [row[i] for i in roots],
        single,
        double,
        ulps(single, double),
    )


def ulps(single: Floats, double: Floats, smallest: float = 0.0) -> Floats:
    """The differences in ULP of a float32; infinite if one is NaN or infinite, the other not.

    ``smallest`` is the least that a ULP may be: 0 for exponents without limits.
    """
    with np.errstate(all="ignore"):
        exponent = np.frexp(double)[1]
        ulp = np.maximum(np.where(double == 0.0, 0.0, np.ldexp(1.0, exponent - DIGITS)), smallest)
        error = np.abs(single - double) / ulp
    same = (single == double) | (np.isnan(single) & np.isnan(double))
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


def incoming(comparison: Comparison) -> Floats:
    """The largest error of the arguments of each node, in their ULP.

    For a sum it is measured in ULP of the larger argument: noise in a small one does no harm.
    """
    result = np.zeros_like(comparison.error)
    for k, arguments in enumerate(comparison.rows):
        if comparison.graph.nodes[comparison.order[k]][0] in SUMS:
            single, double = comparison.single[arguments], comparison.double[arguments]
            largest = np.max(np.abs(double), axis=0)
            with np.errstate(invalid="ignore"):
                result[k] = np.max(ulps(largest + np.abs(single - double), largest), axis=0)
        elif arguments:
            result[k] = np.max(comparison.error[arguments], axis=0)
    return result


def kinds(comparison: Comparison, least: float) -> Any:
    """The kind of loss at each node and point, as an index of KINDS, or -1.

    ``least`` is the error in ULP from which a node is asked about. What is wrong already when it
    comes in is not the node's doing.
    """
    operations = [comparison.graph.nodes[i][0] for i in comparison.order]
    nan, infinite = np.isnan(comparison.single), np.isinf(comparison.single)
    nan_in, infinite_in = _any_argument(comparison, nan), _any_argument(comparison, nan | infinite)
    computed = np.array([[bool(op.arity)] for op in operations])
    worse = (comparison.error >= least) & (
        comparison.error >= TIMES * np.maximum(incoming(comparison), 1.0)
    )
    worse &= ~(nan | infinite) & np.array([[op is not INPUT] for op in operations])
    born = infinite & ~infinite_in & computed
    tiny = (np.abs(comparison.double) < NORMAL) & (comparison.double != 0.0)
    tests = [
        nan & ~nan_in & computed,
        born & np.isfinite(comparison.double),
        born,
        worse & np.array([[op.result == "b"] for op in operations]),
        worse & tiny,
        worse & np.array([[op in SUMS] for op in operations]),
        worse & np.array([[op is not CONST] for op in operations]),
    ]
    return np.select(tests, range(len(tests)), -1)


def _any_argument(comparison: Comparison, mask: Any) -> Any:
    rows = [mask[a].any(axis=0) if a else np.zeros(mask.shape[1], bool) for a in comparison.rows]
    return np.array(rows).reshape(mask.shape)


def effect(comparison: Comparison, row: int, columns: Any) -> Floats:
    """The errors in ULP (roots, columns) of results whose only error is that of one node.

    Everything else is computed in float64. A node that is not finite in float64 either is charged
    with every result that is not finite because of it.
    """
    if not np.isfinite(comparison.double[row, columns]).all():
        return np.where(_spread(comparison, row, columns)[comparison.roots], np.inf, 0.0)
    injected = _injected(comparison, row, columns)
    return ulps(injected, comparison.double[np.ix_(comparison.roots, columns)], SMALLEST)


def _spread(comparison: Comparison, row: int, columns: Any) -> Any:
    """Where (rows, columns) nodes are not finite because one of them is not."""
    broken = ~np.isfinite(comparison.single[:, columns])
    broken[:row] = False
    for k in range(row + 1, len(comparison.rows)):
        if broken[k].any():
            broken[k] &= broken[comparison.rows[k]].any(axis=0)
    return broken


def _injected(comparison: Comparison, row: int, columns: Any) -> Floats:
    """The roots in float64, after one node was given its float32 value."""
    nodes, order = comparison.graph.nodes, comparison.order
    changed = {row: _typed(comparison, row, comparison.single[row, columns])}
    for k in range(row + 1, len(order)):
        arguments = comparison.rows[k]
        if not changed.keys().isdisjoint(arguments):
            inputs = [
                changed[a] if a in changed else _value(comparison, a, columns) for a in arguments
            ]
            with np.errstate(all="ignore"):
                changed[k] = nodes[order[k]][0].reference(*inputs)
    return np.array(
        [
            np.asarray(changed.get(r, comparison.double[r, columns]), np.float64)
            for r in comparison.roots
        ]
    )


def _value(comparison: Comparison, row: int, columns: Any) -> Any:
    node = comparison.graph.nodes[comparison.order[row]]
    if not node[0].arity and node[0] is not INPUT:
        return leaf(node, np.float64)
    return _typed(comparison, row, comparison.double[row, columns])


def _typed(comparison: Comparison, row: int, values: Floats) -> Any:
    """Values as the type of a node: conditions are kept as numbers."""
    kind = comparison.graph.type(comparison.order[row])
    return values.astype({"f": np.float64, "b": np.bool_, "i": np.int32, "u": np.uint32}[kind])
