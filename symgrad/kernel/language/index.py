"""Values of kernels with operators: indices and floats, arrays of floats, and conditions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from symgrad.expr import ops
from symgrad.expr.graph.node import WORD, Graph, Op
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer, Space

# --- indices of vectors ---------------------------------------------------------------------------
# Indices of buffers of vectors: which vector, and which number of it.


class Vector(NamedTuple):
    """Numbers that stand together: the vector number ``node``, or, if it is None, ``number``."""

    node: int | None
    number: int


def vector_of(graph: Graph, index: int, width: int) -> tuple[Vector, int] | None:
    """The vector of an index, and the number's place in it; None if the index does not tell.

    ``width`` are the numbers of a vector.

    Example:
        >>> from symgrad.kernel.language.ir import KernelIR
        >>> from symgrad.kernel.language.target import SimdTarget
        >>> k = KernelIR(SimdTarget(4))
        >>> vector_of(k.graph, k.offset(k.cell, 4, 3), 4) == (Vector(k.cell, 0), 3)
        True
        >>> vector_of(k.graph, k.word(7), 4)
        (Vector(node=None, number=1), 3)
    """
    op, *args = graph.nodes[index]
    if op is WORD:
        return Vector(None, args[0] // width), args[0] % width
    if op is ops.word_add:
        for base, c in _orders(args):
            word, *payload = graph.nodes[c]
            node = _factor(graph, base, width)
            if node is not None and word is WORD and payload[0] < width:
                return Vector(node, 0), payload[0]
    node = _factor(graph, index, width)
    return None if node is None else (Vector(node, 0), 0)


class InRow(NamedTuple):
    """The vector at column ``node`` + ``first`` of the row ``row``, or ``number`` if it is None."""

    row: int | None
    number: int
    node: int
    first: int


def in_row(graph: Graph, i: int, row: int) -> InRow | None:
    """The row and the column of a vector, if its number i tells; a row has so many.

    Example:
        >>> from symgrad.kernel.language.ir import KernelIR
        >>> from symgrad.kernel.language.target import SimdTarget
        >>> k = KernelIR(SimdTarget(4))
        >>> in_row(k.graph, k.shifted(k.cell, 35), 16) == InRow(None, 2, k.cell, 3)
        True
    """
    op, *args = graph.nodes[i]
    if op is ops.word_add:
        for a, b in _orders(args):
            word, *payload = graph.nodes[b]
            if word is WORD:
                return InRow(None, payload[0] // row, a, payload[0] % row)
            node = _factor(graph, a, row)
            if node is not None:
                return InRow(node, 0, b, 0)
    return None if op is WORD or op is ops.word_mul else InRow(None, 0, i, 0)


def _factor(graph: Graph, i: int, width: int) -> int | None:
    """The factor of the width in a word, if it is such a product."""
    op, *args = graph.nodes[i]
    if op is ops.word_mul:
        for node, times in _orders(args):
            if graph.nodes[times] == (WORD, width):
                return node
    return None


def _orders(args: list[int]) -> Iterator[tuple[int, int]]:
    a, b = args
    yield a, b
    yield b, a


# --- indices --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """A value of a kernel."""

    k: KernelIR
    id: int


class Index(Value):
    """A word of a kernel that counts or addresses: operators add what they compute to the kernel.

    Example:
        >>> from symgrad.kernel.language.target import SimdTarget
        >>> k = KernelIR(SimdTarget(4))
        >>> index = Index(k, k.cell) * 4 + 1
        >>> k.graph.nodes[index.id][0]
        <op word_add>
    """

    def _with(self, op: Op, other: Index | int) -> Index:
        return Index(self.k, self.k.add(op, self.id, self._id(other)))

    def _id(self, other: Index | int) -> int:
        return other.id if isinstance(other, Index) else self.k.word(other)

    def __add__(self, other: Index | int) -> Index:
        return self._with(ops.word_add, other)

    def __sub__(self, other: Index | int) -> Index:
        op, *terms = self.k.graph.nodes[self.id]
        if op is ops.word_add and self._id(other) in terms:  # of a sum, the other term is left
            terms.remove(self._id(other))
            return Index(self.k, terms[0])
        return self._with(ops.word_sub, other)

    def __mul__(self, other: Index | int) -> Index:
        return self._with(ops.word_mul, other)

    def __floordiv__(self, other: Index | int) -> Index:
        return self if other == 1 else self._with(ops.word_div, other)

    def __mod__(self, other: Index | int) -> Index:
        return divmod(self, other)[1]

    def __divmod__(self, other: Index | int) -> tuple[Index, Index]:
        if other == 1:
            return self, Index(self.k, self.k.word(0))
        quotient = self // other
        return quotient, self - quotient * other

    def ceil_div(self, other: Index | int) -> Index:
        """The quotient, rounded up."""
        return (self + (other - 1)) // other

    def at_most(self, other: Index | int) -> Index:
        """The smaller of two."""
        return self._with(ops.word_min, other)

    def below(self, other: Index | int) -> int:
        """Whether it is less than the other one: a truth."""
        return self.k.add(ops.word_lt, self.id, self._id(other))

    def shifted(self, c: int) -> Index:
        """The index ``c`` after this one, which is no larger than indices can be."""
        return Index(self.k, self.k.shifted(self.id, c))

    def lanes(self, vector: int) -> list[int]:
        """The places of the numbers of the vector that this is the index of."""
        return [self.k.offset(self.id, vector, lane) for lane in range(vector)]


class Truth(Value):
    """A condition of a kernel: operators add what they compute to the kernel."""

    def __and__(self, other: Truth) -> Truth:
        return Truth(self.k, self.k.add(ops.logical_and, self.id, other.id))

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.k, self.k.add(ops.logical_or, self.id, other.id))

    def __invert__(self) -> Truth:
        return Truth(self.k, self.k.add(ops.logical_not, self.id))


class Number(Value):
    """A float of a kernel: operators add what they compute to the kernel.

    Example:
        >>> from symgrad.kernel.language.target import SimdTarget
        >>> k = KernelIR(SimdTarget(4))
        >>> x = Numbers.of(k, "x", "read")[Index(k, k.cell)]
        >>> k.graph.nodes[(2.0 / (x * x + 1.0)).id][0]
        <op div>
    """

    def _with(self, op: Op, *others: Number | float) -> Number:
        return Number(self.k, self.k.add(op, self.id, *map(self._id, others)))

    def _id(self, other: Number | float) -> int:
        return other.id if isinstance(other, Number) else self.k.constant(other)

    def __add__(self, other: Number | float) -> Number:
        return self._with(ops.add, other)

    def __sub__(self, other: Number | float) -> Number:
        return self._with(ops.sub, other)

    def __mul__(self, other: Number | float) -> Number:
        return self._with(ops.mul, other)

    def __truediv__(self, other: Number | float) -> Number:
        return self._with(ops.div, other)

    def __rtruediv__(self, other: float) -> Number:
        return Number(self.k, self._id(other)) / self

    def __neg__(self) -> Number:
        return self._with(ops.neg)

    def __abs__(self) -> Number:
        return self._with(ops.abs)

    def sqrt(self) -> Number:
        """The square root."""
        return self._with(ops.sqrt)

    def at_least(self, other: Number | float) -> Number:
        """The larger of two."""
        return self._with(ops.maximum, other)

    def with_sign(self, other: Number) -> Number:
        """The magnitude, with the sign of another number."""
        return self._with(ops.copysign, other)

    def opaque(self) -> Number:
        """The number, rounded, through which no compiler sees."""
        return self._with(ops.opaque)

    def at_most(self, other: Number | float) -> Number:
        """The smaller of two."""
        return self._with(ops.minimum, other)

    def above(self, other: Number | float) -> Truth:
        """Whether it is larger than the other one."""
        return Truth(self.k, self.k.add(ops.lt, self._id(other), self.id))

    def within(self, other: Number | float) -> Truth:
        """Whether it is no larger than the other one."""
        return Truth(self.k, self.k.add(ops.le, self.id, self._id(other)))

    def is_finite(self) -> Truth:
        """Whether it is neither NaN nor infinite."""
        return Truth(self.k, self.k.add(ops.isfinite, self.id))

    def equals(self, other: Number | float) -> Truth:
        """Whether it equals the other one."""
        return Truth(self.k, self.k.add(ops.eq, self.id, self._id(other)))


def where(condition: Truth | int, a: Number, b: Number | float) -> Number:
    """The first of two numbers where a condition holds, else the second."""
    holds = condition.id if isinstance(condition, Truth) else condition
    other = b.id if isinstance(b, Number) else a.k.constant(b)
    return Number(a.k, a.k.add(ops.where, holds, a.id, other))


def word_where(condition: int, a: Index, b: Index | int) -> Index:
    """The first of two words where a condition holds, else the second."""
    other = b.id if isinstance(b, Index) else a.k.word(b)
    return Index(a.k, a.k.add(ops.word_where, condition, a.id, other))


@dataclass(frozen=True)
class Numbers:
    """An array of floats, of which ``numbers[i]`` is what stands at an index."""

    k: KernelIR
    buffer: Buffer

    @classmethod
    def of(cls, k: KernelIR, name: str, space: Space) -> Numbers:
        """A new array of the host's."""
        return cls(k, k.buffer(name, space))

    def _at(self, i: Index | int) -> int:
        return i.id if isinstance(i, Index) else self.k.word(i)

    def __getitem__(self, i: Index | int) -> Number:
        return Number(self.k, self.k.load(self.buffer, self._at(i)))

    def store(self, i: Index | int, value: Number | float) -> None:
        """Write a number to an index."""
        at = self._at(i)
        number = value.id if isinstance(value, Number) else self.k.constant(value)
        self.k.store(self.buffer, at, number)


def loop(
    k: KernelIR,
    first: Index | int,
    end: Index | int,
    inits: Sequence[Number | float],
    body: Callable[[Index, Sequence[Number]], Sequence[Number]],
    down: bool = False,
    test: Callable[[Sequence[Number]], Truth] | None = None,
) -> list[Number]:
    """The results of a loop from ``first`` up to ``end``, which carries these numbers.

    ``body(i, carries)`` gives the next ones, and ``test(carries)`` whether to go on: see
    `KernelIR.loop`.
    """

    def iteration(i: int, carries: Sequence[int]) -> list[int]:
        return [x.id for x in body(Index(k, i), [Number(k, c) for c in carries])]

    lo, hi = (i.id if isinstance(i, Index) else k.word(i) for i in (first, end))
    numbers = [x.id if isinstance(x, Number) else k.constant(x) for x in inits]
    going = test and (lambda _, carries: test([Number(k, c) for c in carries]).id)
    results, _ = k.loop(lo, hi, numbers, iteration, down=down, test=going)
    return [Number(k, i) for i in results]


def remainder(graph: Graph, i: int) -> tuple[int, int] | None:
    """The x and n of ``x - x // n * n``, which is ``x % n``, for a known word n."""
    nodes = graph.nodes
    if nodes[i][0] is not ops.word_sub or nodes[nodes[i][2]][0] is not ops.word_mul:
        return None
    x, factors = nodes[i][1], nodes[nodes[i][2]][1:]
    for a, b in (factors, factors[::-1]):
        if nodes[a] == (ops.word_div, x, b) and nodes[b][0] is WORD:
            return x, b
    return None


def all_hold(k: KernelIR, *conditions: int) -> int:
    """Whether all of some conditions hold."""
    return functools.reduce(functools.partial(k.add, ops.logical_and), conditions)
