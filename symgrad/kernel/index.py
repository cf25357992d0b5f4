"""Indices that kernels compute, as unsigned integers with operators, and conditions on them."""

from __future__ import annotations

from dataclasses import dataclass

from symgrad.expr import ops
from symgrad.expr.graph.node import Op
from symgrad.kernel.language import KernelIR


@dataclass(frozen=True)
class Index:
    """A word of a kernel that counts or addresses: operators add what they compute to the kernel.

    Example:
        >>> from symgrad.kernel.target import SimdTarget
        >>> k = KernelIR(SimdTarget(4))
        >>> index = Index(k, k.cell) * 4 + 1
        >>> k.graph.nodes[index.id][0]
        <op word_add>
    """

    k: KernelIR
    id: int

    def _with(self, op: Op, other: Index | int) -> Index:
        return Index(self.k, self.k.add(op, self.id, self._id(other)))

    def _id(self, other: Index | int) -> int:
        return other.id if isinstance(other, Index) else self.k.word(other)

    def __add__(self, other: Index | int) -> Index:
        return self._with(ops.word_add, other)

    def __sub__(self, other: Index | int) -> Index:
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


def all_hold(k: KernelIR, *conditions: int) -> int:
    """Whether all of some conditions hold."""
    conjunction = conditions[0]
    for condition in conditions[1:]:
        conjunction = k.add(ops.logical_and, conjunction, condition)
    return conjunction
