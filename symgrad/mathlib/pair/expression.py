"""Pairs as values of formulas: their operators, their parts, and calls.

A pair (high, low) of float32 stands for high + low, low at most half a ULP of high. In graphs it
is a value of the type "p". An operation of the op table on floats has one on pairs beside it,
which back ends print as a call of the function that `symgrad.mathlib.pair` defines for it.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import ANY_INPUT, CONST, Graph, Handle, Op, inputs_of, reachable
from symgrad.expr.laws.simplify import Definition, simplify
from symgrad.expr.tracers.expression import WRAP, Expr, operand


def only_in_kernels(*_: Any) -> Any:
    """The reference of operations on pairs, of which NumPy has no type."""
    raise AssertionError("pairs are computed by kernels alone")


PAIR: Final = Op(
    name="pair", signature="ff->p", reference=only_in_kernels, meaning="high + low, as one number",
    wgsl="vec2<f32>({0}, {1})",
    llvm="a = bitcast {s} {0} to {sv}; b = bitcast {s} {1} to {sv}; "
    "c = shufflevector {sv} {a}, {sv} {b}, {zipped}; bitcast {ss} {c} to {d}",
)  # fmt: skip
HIGH: Final = Op(
    name="pair_high", signature="p->f", reference=only_in_kernels,
    meaning="the float32 nearest to a pair",
    wgsl="{0}.x",
    llvm="v = bitcast {d} {0} to {ss}; e = shufflevector {ss} {v}, {ss} poison, {even}; "
    "bitcast {sv} {e} to {s}",
)  # fmt: skip
LOW: Final = Op(
    name="pair_low", signature="p->f", reference=only_in_kernels, meaning="what that leaves of it",
    wgsl="{0}.y",
    llvm="v = bitcast {d} {0} to {ss}; o = shufflevector {ss} {v}, {ss} poison, {odd}; "
    "bitcast {sv} {o} to {s}",
)  # fmt: skip

TAKEN_APART: Final = frozenset({HIGH, LOW})
"""The operations that take pairs apart."""

PARTS: Final = TAKEN_APART | {PAIR}
"""The operations that take pairs apart, and the one that puts them together."""


@cache
def paired(op: Op) -> Op:
    """The operation on pairs that means what one of the op table means on floats."""
    signature = op.signature.replace("f", "p")
    return Op(
        name=f"pair_{op.name}",
        signature=signature,
        reference=only_in_kernels,
        meaning=op.meaning,
        cost=12 * op.cost,
        commutative=op.commutative,
    )


def parts(value: float) -> tuple[float, float]:
    """A number of float64 as a pair: the nearest float32, and the one nearest to the rest.

    What is beyond float32's largest number is infinite.
    """
    with np.errstate(over="ignore"):
        high = float(np.float32(value))
        return high, float(np.float32(value - high)) if math.isfinite(high) else 0.0


def less(value: float) -> float:
    """The rest that the pair of a number of float64 lacks: 0, or below 2**-48 of it."""
    lost = value - sum(parts(value))
    return lost if math.isfinite(lost) else 0.0


class Paired(Handle):
    """A pair, with Python's operators, each a call of the function of that name."""

    __slots__ = ()

    def build(self, op: Op, args: Sequence[Any]) -> Any:
        """The value of an operation of the op table, on pairs; numbers beside them are pairs."""
        if op.compose is not None:
            return op.compose(*args)
        if op in PARTS:
            return _node(self.graph, op, args)
        return _node(self.graph, paired(op), args)

    @property
    def high(self) -> Expr:
        """The float32 nearest to it."""
        return self._part(HIGH, 1)

    @property
    def low(self) -> Expr:
        """The rest of it, rounded to float32."""
        return self._part(LOW, 2)

    def _part(self, op: Op, which: int) -> Expr:
        node = self.graph.nodes[self.id]
        i = node[which] if node[0] is PAIR else self.graph.add(op, self.id)
        return Expr(self.graph, i)

    def __add__(self, other: Any) -> Paired:
        return ops.add(self, other)

    def __radd__(self, other: Any) -> Paired:
        return ops.add(other, self)

    def __sub__(self, other: Any) -> Paired:
        return ops.sub(self, other)

    def __rsub__(self, other: Any) -> Paired:
        return ops.sub(other, self)

    def __mul__(self, other: Any) -> Paired:
        return ops.mul(self, other)

    def __rmul__(self, other: Any) -> Paired:
        return ops.mul(other, self)

    def __truediv__(self, other: Any) -> Paired:
        return ops.div(self, other)

    def __rtruediv__(self, other: Any) -> Paired:
        return ops.div(other, self)

    def __neg__(self) -> Paired:
        return ops.neg(self)

    def __abs__(self) -> Paired:
        return ops.abs(self)

    def __lt__(self, other: Any) -> Any:
        return ops.lt(self, other)

    def __le__(self, other: Any) -> Any:
        return ops.le(self, other)

    def __gt__(self, other: Any) -> Any:
        return ops.lt(other, self)

    def __ge__(self, other: Any) -> Any:
        return ops.le(other, self)

    def __eq__(self, other: Any) -> Any:
        return ops.eq(self, other)

    def __ne__(self, other: Any) -> Any:
        return ops.ne(self, other)

    def __hash__(self) -> int:
        return hash((id(self.graph), self.id))


WRAP["p"] = Paired


def _node(graph: Graph, op: Op, args: Sequence[Any]) -> Any:
    """The value of an operation, of pairs or not."""
    ids = [_operand(graph, a, kind) for a, kind in zip(args, op.signature, strict=False)]
    return WRAP[op.result](graph, graph.add(op, *ids))


def _operand(graph: Graph, value: Any, kind: str) -> int:
    if kind != "p":
        return operand(graph, value, kind)
    if isinstance(value, Paired):
        return value.id
    assert not isinstance(value, Handle), "a float32 becomes a pair by pair(x, 0.0)"
    return graph.add(PAIR, *map(graph.constant, parts(float(value))))


def call(op: Op, *args: Any) -> Any:
    """The value of an operation of the op table on pairs, also where a condition comes first."""
    graph = next(a.graph for a in args if isinstance(a, Handle))
    return op.compose(*args) if op.compose is not None else _node(graph, paired(op), args)


def pair(high: Any, low: Any = 0.0) -> Paired:
    """Two float32, the second at most half a ULP of the first, as a pair."""
    graph = next(a.graph for a in (high, low) if isinstance(a, Handle))
    if all(isinstance(a, Expr) for a in (high, low)):
        first, second = graph.nodes[high.id], graph.nodes[low.id]
        if first[0] is HIGH and second[0] is LOW and first[1] == second[1]:
            return Paired(graph, first[1])
    return _node(graph, PAIR, (high, low))


def constant(like: Handle, value: float) -> Paired:
    """A number of float64 as a pair, in the graph of another value."""
    return Paired(like.graph, _operand(like.graph, value, "p"))


# Definitions of float64 on pairs: operation by operation, where that keeps the digits.

Formula = Callable[..., Any]


def on_pairs(formula: Formula, definitions: Callable[[], Mapping[Op, Definition]]) -> Formula:
    """A definition on floats as one on pairs, the operations with ``definitions`` expanded."""

    @wraps(formula)
    def on(*arguments: Paired) -> Paired:
        graph = Graph()
        graph.tracing = False
        names = inspect.unwrap(formula).__code__.co_varnames
        inputs = [graph.input(n) for n, _ in zip(names, arguments, strict=False)]
        value = formula(*[Expr(graph, i) for i in inputs])
        simple, (root,) = simplify(graph, [value.id], True, definitions())
        given = dict(zip(inputs_of(simple), arguments, strict=True))
        return translated(simple, root, given)

    return on


def translated(graph: Graph, root: int, given: Mapping[int, Paired]) -> Paired:
    """The value of a graph of floats on pairs, its inputs being given.

    What is opaque on floats is a sum, and sums of pairs are so anyway. A product that nothing but a
    sum with a constant uses is one with it, as in Horner's rule.
    """
    order = reachable(graph, [root])
    uses = Counter(a for i in order if graph.nodes[i][0].arity for a in graph.nodes[i][1:])
    values: dict[int, Any] = dict(given)
    like = next(iter(given.values()))
    for i in order:
        op, *arguments = graph.nodes[i]
        if op is ops.opaque:
            values[i] = values[arguments[0]]
        elif op is ops.sub and (origin := graph.value(arguments[1])):
            values[i] = _from_root(values[arguments[0]], origin)
        elif op is ops.add and (terms := _fused(graph, arguments, uses)):
            values[i] = call(ops.fma, *[values[t] for t in terms])
        elif op.arity:
            values[i] = _applied(op, [values[a] for a in arguments], like.graph)
        elif op is CONST:
            values[i] = constant(like, Graph.leaf_value(graph.nodes[i]))
        elif op not in ANY_INPUT:
            values[i] = WRAP[op.result](like.graph, like.graph.intern(graph.nodes[i]))
    return values[root]


def _applied(op: Op, arguments: list[Any], graph: Graph) -> Any:
    if "f" in op.signature:
        return call(op, *arguments)
    return WRAP[op.result](graph, graph.add(op, *[a.id for a in arguments]))


def _fused(graph: Graph, terms: Sequence[int], uses: Mapping[int, int]) -> tuple[int, ...]:
    """The factors and the constant of a sum, if it is one of a product and a constant."""
    for product, other in (terms, reversed(terms)):
        node = graph.nodes[product]
        if node[0] is ops.mul and uses[product] == 1 and graph.nodes[other][0] is CONST:
            return *node[1:], other
    return ()


def _from_root(value: Paired, root: float) -> Paired:
    """The distance from a constant, which may be a root, and has more digits than a pair."""
    lost = less(root)
    return value - root - lost if lost else value - root
