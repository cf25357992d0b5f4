"""Small linear systems inside kernels: loops of a thread group over a symmetric matrix.

Of L D Lᵀ x = right, the right side is the last row of the factor, which forward substitution then
comes with. The factorization is by outer products, column after column (Golub and Van Loan, "Matrix
computations", 4th edition, 2013, chapter 4); small pivots are raised. Code is as long for few
variables as for many.
"""

from __future__ import annotations

from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import Buffer
from symgrad.kernel.thread_group import ThreadGroup

ACROSS: Final = 8
"""Invocations that work on a row of the factor: others work on the next ones."""

RIGHT, DIAGONAL, FLOOR, FIXED = range(4)
"""What a quad of ``quads`` has of a variable; the solution comes to stand where RIGHT is."""


def half(n: int) -> int:
    """The numbers of the lower half of a matrix of so many variables."""
    return n * (n + 1) // 2


def place(k: KernelIR, i: int, j: int) -> int:
    """Where the element (i, j) of a lower half stands, j <= i."""
    row = k.add(ops.word_mul, i, k.add(ops.word_add, i, k.word(1)))
    return k.add(ops.word_add, k.add(ops.word_div, row, k.word(2)), j)


def multiply(threads: ThreadGroup, n: int, matrix: Buffer, quads: Buffer) -> None:
    """The first numbers of the quads in ``quads`` times the matrix, to their second ones."""
    k = threads.k

    def row(i: int) -> None:
        def add(j: int, sums: list[int]) -> list[int]:
            low = k.add(ops.word_min, i, j)
            high = k.add(ops.word_sub, k.add(ops.word_add, i, j), low)
            number = k.load(matrix, place(k, high, low))
            product = k.add(ops.mul, number, k.load(quads, k.offset(j, 4, 0)))
            return [k.add(ops.add, sums[0], product)]

        (total,), _ = k.loop(k.word(0), k.word(n), [k.constant(0.0)], add)
        k.store(quads, k.offset(i, 4, 1), total)

    threads.share(k.word(n), row)


class System:
    """The system A x = right of n variables, which a thread group solves.

    A is ``matrix``, but for what is ``quads`` in a quad of each variable: the diagonal, and which
    are fixed, whose rows and columns are else 0. A pivot that is below its floor becomes the floor.
    ``work`` takes the factor, the lower half of one variable more.
    """

    def __init__(
        self, threads: ThreadGroup, n: int, matrix: Buffer, quads: Buffer, work: Buffer
    ) -> None:
        self.threads, self.k, self.n = threads, threads.k, n
        self.matrix, self.quads, self.work = matrix, quads, work
        self.across = min(ACROSS, threads.size)
        self.down = threads.size // self.across
        if threads.alone:
            self.row = self.column = threads.member
        else:
            self.row = self.k.add(ops.word_div, threads.member, self.k.word(self.across))
            self.column = self.k.add(ops.word_and, threads.member, self.k.word(self.across - 1))

    def solve(self, fixed: bool) -> None:
        """Find the solution, to stand in place of the right side."""
        k, n = self.k, self.k.word(self.n)
        self._begin(fixed)
        self.threads.wait()
        k.loop(k.word(0), n, (), self._eliminate)
        k.loop(k.word(1), n, (), self._substitute, down=True)

        def finish(i: int) -> None:
            x = k.add(ops.mul, k.load(self.work, self._right(i)), self._inverse(i))
            k.store(self.quads, k.offset(i, 4, RIGHT), x)

        self.threads.share(n, finish)

    def _begin(self, fixed: bool) -> None:
        """The lower half of A, and the right side below it."""
        k, n = self.k, self.k.word(self.n)

        def row(i: int) -> None:
            def element(j: int) -> None:
                at = place(k, i, j)
                value = k.load(self.matrix, at)
                if fixed:
                    some = [k.add(ops.eq, self._of(v, FIXED), k.constant(0.0)) for v in (i, j)]
                    free = k.add(ops.logical_and, *some)
                    value = k.add(ops.where, free, value, k.constant(0.0))
                aside = k.add(ops.word_lt, j, i)
                value = k.add(ops.where, aside, value, self._of(i, DIAGONAL))
                k.store(self.work, at, value)

            end = k.add(ops.word_add, i, k.word(1))
            self.threads.every(self.across, self.column, end, element)

        self.threads.every(self.down, self.row, n, row)
        self.threads.share(n, lambda j: k.store(self.work, self._right(j), self._of(j, RIGHT)))

    def _eliminate(self, j: int, _: object) -> tuple[()]:
        """Take the j-th variable out of the rows below."""
        k, n, after = self.k, self.k.word(self.n), self.k.add(ops.word_add, j, self.k.word(1))
        scale = self._inverse(j)

        def row(i: int) -> None:
            factor = k.add(ops.mul, k.load(self.work, place(k, i, j)), scale)

            def element(c: int) -> None:
                taken = k.add(ops.mul, factor, k.load(self.work, place(k, c, j)))
                at = place(k, i, c)
                k.store(self.work, at, k.add(ops.sub, k.load(self.work, at), taken))

            end = k.add(ops.word_min, k.add(ops.word_add, i, k.word(1)), n)
            self.threads.every(self.across, self.column, end, element, after)

        self.threads.every(self.down, self.row, k.word(self.n + 1), row, after)
        self.threads.wait()
        return ()

    def _substitute(self, j: int, _: object) -> tuple[()]:
        """Take the j-th variable, which is known, out of the right side above."""
        k = self.k
        x = k.add(ops.mul, k.load(self.work, self._right(j)), self._inverse(j))

        def row(i: int) -> None:
            taken = k.add(ops.mul, k.load(self.work, place(k, j, i)), x)
            at = self._right(i)
            k.store(self.work, at, k.add(ops.sub, k.load(self.work, at), taken))

        self.threads.share(j, row)
        self.threads.wait()
        return ()

    def _inverse(self, j: int) -> int:
        """One over the j-th number of D."""
        k, pivot = self.k, self.k.load(self.work, place(self.k, j, j))
        floor = self._of(j, FLOOR)
        low = k.add(ops.lt, pivot, floor)
        return k.add(ops.ratio, k.constant(1.0), k.add(ops.where, low, floor, pivot))

    def _of(self, i: int, what: int) -> int:
        """A number of the quad of the i-th variable."""
        return self.k.load(self.quads, self.k.offset(i, 4, what))

    def _right(self, i: int) -> int:
        """Where the right side stands."""
        return self.k.add(ops.word_add, self.k.word(half(self.n)), i)
