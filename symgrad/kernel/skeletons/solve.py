"""Small linear systems inside kernels: loops of a thread group over a symmetric matrix.

Of L D Lᵀ x = right, the right side is the last row of the factor, which forward substitution then
comes with. The factorization is by outer products, column after column (Golub and Van Loan, "Matrix
computations", 4th edition, 2013, chapter 4); small pivots are raised. Code is as long for few
variables as for many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.index import Index, Number, Numbers, all_hold, where
from symgrad.kernel.statements import Buffer
from symgrad.kernel.thread_group import ThreadGroup

ACROSS: Final = 8
"""Invocations that work on a row of the factor: others work on the next ones."""

RIGHT, DIAGONAL, FLOOR, FIXED = range(4)
"""Numbers of a variable in a quad of ``quads``; the solution comes to stand where RIGHT is."""


def half(n: int) -> int:
    """The numbers of the lower half of a matrix of so many variables."""
    return n * (n + 1) // 2


def place(i: Index, j: Index) -> Index:
    """Where the element (i, j) of a lower half stands, j <= i."""
    return i * (i + 1) // 2 + j


def multiply(threads: ThreadGroup, n: int, matrix: Buffer, quads: Buffer) -> None:
    """The first numbers of the quads in ``quads`` times the matrix, to their second ones."""
    k, entries, of_variables = threads.k, Numbers(threads.k, matrix), Numbers(threads.k, quads)

    def row(i: int) -> None:
        def add(j: int, sums: list[int]) -> list[int]:
            low = Index(k, i).at_most(Index(k, j))
            high = Index(k, i) + Index(k, j) - low
            product = entries[place(high, low)] * of_variables[Index(k, k.offset(j, 4, 0))]
            return [(Number(k, sums[0]) + product).id]

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
        self.matrix, self.quads, self.work = (Numbers(self.k, b) for b in (matrix, quads, work))
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
            at = Index(k, i)
            self.quads.store(self._place(at, RIGHT), self.work[self._right(at)] * self._inverse(at))

        self.threads.share(n, finish)

    def _begin(self, fixed: bool) -> None:
        """The lower half of A, and the right side below it."""
        k, n = self.k, self.k.word(self.n)

        def row(i: Index) -> None:
            def element(j: Index) -> None:
                at = place(i, j)
                value = self.matrix[at]
                if fixed:
                    some = [self._of(v, FIXED).equals(0.0).id for v in (i, j)]
                    value = where(all_hold(k, *some), value, 0.0)
                self.work.store(at, where(j.below(i), value, self._of(i, DIAGONAL)))

            self._each_column(i + 1, element)

        def right(j: Index) -> None:
            self.work.store(self._right(j), self._of(j, RIGHT))

        self.threads.every(self.down, self.row, n, lambda i: row(Index(k, i)))
        self.threads.share(n, lambda j: right(Index(k, j)))

    def _eliminate(self, j: int, _: object) -> tuple[()]:
        """Take the j-th variable out of the rows below."""
        k, variable = self.k, Index(self.k, j)
        after = variable + 1
        scale = self._inverse(variable)

        def row(i: Index) -> None:
            factor = self.work[place(i, variable)] * scale

            def element(c: Index) -> None:
                taken = factor * self.work[place(c, variable)]
                at = place(i, c)
                self.work.store(at, self.work[at] - taken)

            self._each_column((i + 1).at_most(self.n), element, after)

        rows = k.word(self.n + 1)
        self.threads.every(self.down, self.row, rows, lambda i: row(Index(k, i)), after.id)
        self.threads.wait()
        return ()

    def _each_column(
        self, end: Index, element: Callable[[Index], None], start: Index | None = None
    ) -> None:
        """Do something for the columns below the end of a row that the invocation has."""
        k, first = self.k, None if start is None else start.id
        self.threads.every(self.across, self.column, end.id, lambda c: element(Index(k, c)), first)

    def _substitute(self, j: int, _: object) -> tuple[()]:
        """Take the j-th variable, which is known, out of the right side above."""
        k, variable = self.k, Index(self.k, j)
        x = self.work[self._right(variable)] * self._inverse(variable)

        def row(i: Index) -> None:
            taken = self.work[place(variable, i)] * x
            at = self._right(i)
            self.work.store(at, self.work[at] - taken)

        self.threads.share(j, lambda i: row(Index(k, i)))
        self.threads.wait()
        return ()

    def _inverse(self, j: Index) -> Number:
        """One over the j-th number of D."""
        k, pivot, floor = self.k, self.work[place(j, j)], self._of(j, FLOOR)
        raised = where(k.add(ops.lt, pivot.id, floor.id), floor, pivot)
        return Number(k, k.add(ops.ratio, k.constant(1.0), raised.id))

    def _of(self, i: Index, what: int) -> Number:
        """A number of the quad of the i-th variable."""
        return self.quads[self._place(i, what)]

    def _place(self, i: Index, what: int) -> Index:
        return Index(self.k, self.k.offset(i.id, 4, what))

    def _right(self, i: Index) -> Index:
        """Where the right side stands."""
        return Index(self.k, self.k.word(half(self.n))) + i
