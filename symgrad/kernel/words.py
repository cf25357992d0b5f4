"""Arithmetic of words, for programs that compute many indices."""

from __future__ import annotations

from dataclasses import dataclass

from symgrad.expr import ops
from symgrad.expr.graph.node import Op
from symgrad.kernel.language import Kernel


@dataclass(frozen=True)
class Word:
    """A word of a kernel: operators write what they compute to where the kernel is.

    Example:
        >>> from symgrad.kernel.target import InStep
        >>> k = Kernel(InStep(4))
        >>> index = Word(k, k.cell) * 4 + 1
        >>> k.graph.nodes[index.id][0]
        <op word_add>
    """

    k: Kernel
    id: int

    def _with(self, op: Op, other: Word | int) -> Word:
        return Word(self.k, self.k.add(op, self.id, self._id(other)))

    def _id(self, other: Word | int) -> int:
        return other.id if isinstance(other, Word) else self.k.word(other)

    def __add__(self, other: Word | int) -> Word:
        return self._with(ops.word_add, other)

    def __sub__(self, other: Word | int) -> Word:
        return self._with(ops.word_sub, other)

    def __mul__(self, other: Word | int) -> Word:
        return self._with(ops.word_mul, other)

    def __floordiv__(self, other: Word | int) -> Word:
        return self if other == 1 else self._with(ops.word_div, other)

    def __mod__(self, other: Word | int) -> Word:
        if other == 1:
            return Word(self.k, self.k.word(0))
        return self - self // other * other

    def at_most(self, other: Word | int) -> Word:
        """The smaller of two."""
        return self._with(ops.word_min, other)

    def below(self, other: Word | int) -> int:
        """Whether it is less than the other one: a truth."""
        return self.k.add(ops.word_lt, self.id, self._id(other))

    def up(self, step: int) -> Word:
        """How many steps it takes to come so far."""
        return (self + (step - 1)) // step


class Words:
    """What indices are made with; all arguments are values of the kernel, but for ``number``.

    Example:
        >>> from symgrad.kernel.target import InStep
        >>> w = Words(Kernel(InStep(4)))
        >>> w.last(w.times(w.number(5), w.number(8))) == w.number(39)
        True
    """

    def __init__(self, k: Kernel) -> None:
        self.k = k

    def number(self, n: int) -> int:
        """A word that is known."""
        return self.k.word(n)

    def plus(self, a: int, b: int) -> int:
        """The sum."""
        return self.k.add(ops.word_add, a, b)

    def minus(self, a: int, b: int) -> int:
        """The difference."""
        return self.k.add(ops.word_sub, a, b)

    def times(self, a: int, b: int) -> int:
        """The product."""
        return self.k.add(ops.word_mul, a, b)

    def over(self, a: int, b: int) -> int:
        """The quotient, rounded down."""
        return self.k.add(ops.word_div, a, b)

    def least(self, a: int, b: int) -> int:
        """The smaller one."""
        return self.k.add(ops.word_min, a, b)

    def below(self, a: int, b: int) -> int:
        """Whether a < b."""
        return self.k.add(ops.word_lt, a, b)

    def where(self, condition: int, a: int, b: int) -> int:
        """One of the two."""
        return self.k.add(ops.word_where, condition, a, b)

    def parts(self, a: int, b: int) -> tuple[int, int]:
        """The quotient and the rest."""
        quotient = self.over(a, b)
        return quotient, self.minus(a, self.times(quotient, b))

    def ceiling(self, a: int, b: int) -> int:
        """The quotient, rounded up."""
        return self.over(self.plus(a, self.minus(b, self.number(1))), b)

    def last(self, a: int) -> int:
        """The last index of so many."""
        return self.minus(a, self.number(1))
