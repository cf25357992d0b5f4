"""Small dense linear systems in kernels: loops of one thread, and of a thread group.

Of L D Lᵀ x = right, the right side is the last row of the factor, which forward substitution then
comes with. The factorization is by outer products, column after column (Golub and Van Loan, "Matrix
computations", 4th edition, 2013, chapter 4); small pivots are raised. Code is as long for few
variables as for many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.index import Index, Number, Numbers, all_hold, loop, where
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import ThreadGroup

# --- on one thread, of run-time sizes -------------------------------------------------------------
# Small dense linear algebra as loops of run-time sizes: what each step of a fit needs.
#
# All sums are in order, by one invocation; matrices are in C order, a column of ``columns`` stands
# in a row. Sizes are words in the buffer ``sizes``.


def triangle_program(target: Target) -> KernelIR:
    """The triangle of a weighted Jacobian and what its residuals are there, by reflections.

    Of ``sizes`` (m, n), ``values`` (m,), ``slopes`` (m, n), data ``y`` (m,) and ``weights`` (m,) it
    writes to ``found`` the upper triangle T (n, n) of the QR decomposition, z (n,), which is the
    first part of Qᵀr, the lengths (n,) of the columns, 1 for those that vanish, the sum of squared
    residuals, NaN if anything is not finite, and the Frobenius norm of T's inverse when its columns
    have length 1. Rows of weight 0 are left out, whatever is in them. ``columns`` (n + 1, m) and
    ``rest`` (n,) are memory to work in.
    """
    k = KernelIR(target, "triangle")
    zero, _ = constants(k)
    m, n = sizes(k, 2)
    names = "values", "slopes", "y", "weights"
    values, slopes, y, weights = (Numbers.of(k, name, "read") for name in names)
    columns, rest, triangle = (
        Numbers.of(k, name, "write") for name in ("columns", "rest", "found")
    )
    z, last = n * n, n * m

    def weigh(i: Index) -> None:
        weight = weights[i]
        idle = weight.equals(0.0)

        def put(at: Index, value: Number) -> None:
            columns.store(at, where(idle, zero, value * weight))

        put(last + i, values[i] - y[i])
        each(n, lambda j: put(j * m + i, slopes[i * n + j]))

    each(m, weigh)
    cost = dot(0, m, columns, last, columns, last)
    each(n, lambda j: each(n, lambda c: triangle.store(j * n + c, 0.0)))
    each(n, lambda j: triangle.store(z + j, 0.0))
    each(m.at_most(n), partial(_reflect, columns, triangle, m, n))
    finite = _measure(triangle, n)
    _invert(triangle, rest, n)
    triangle.store(z + n * 2, cost + finite)
    return k


def _reflect(columns: Numbers, triangle: Numbers, m: Index, n: Index, j: Index) -> None:
    """Column j by a reflection that leaves its first j + 1 numbers alone, and those behind it."""
    (zero, one), own = constants(j.k), j * m
    most = largest(j, m, lambda i: abs(columns[own + i]))
    unit = where(most.above(0.0), most, one)
    each(m, lambda i: columns.store(own + i, columns[own + i] / unit), j)
    length = dot(j, m, columns, own, columns, own).sqrt()
    first = columns[own + j]
    signed = length.with_sign(first)
    pivot = first + signed
    columns.store(own + j, pivot)
    scale = signed * pivot
    gain = where(scale.above(0.0), one / scale, zero)
    triangle.store(j * n + j, -(signed * unit))

    def reflect(c: Index) -> None:
        other = c * m
        part = gain * dot(j, m, columns, own, columns, other)

        def move(i: Index) -> None:
            moved = part * columns[own + i]
            columns.store(other + i, columns[other + i] - moved)

        each(m, move, j)

    each(n + 1, reflect, j + 1)
    each(n, lambda c: triangle.store(j * n + c, columns[c * m + j]), j + 1)
    triangle.store(n * n + j, columns[n * m + j])


def _measure(triangle: Numbers, n: Index) -> Number:
    """The lengths of T's columns, behind z; 0, or NaN if anything in T is not finite.

    Squares are those of numbers divided by the largest, as they may be beyond the range.
    """
    (zero, one), behind = constants(n.k), n * (n + 1)

    def column(c: Index, finite: Sequence[Number]) -> list[Number]:
        def entry(i: Index) -> Number:
            return triangle[i * n + c]

        def add(i: Index, sums: Sequence[Number]) -> list[Number]:
            part = entry(i) / unit
            return [sums[0] + part * part, sums[1] + entry(i) * zero]

        most = largest(0, c + 1, lambda i: abs(entry(i)))
        unit = where(most.above(0.0), most, one)
        squares, still = loop(n.k, 0, c + 1, [0.0, finite[0]], add)
        length = unit * squares.sqrt()
        triangle.store(behind + c, where(length.above(0.0), length, one))
        return [still]

    return loop(n.k, 0, n, [0.0], column)[0]


def _invert(triangle: Numbers, rest: Numbers, n: Index) -> None:
    """The norm of the inverse of T with columns of length 1, as the last number: by columns."""
    (zero, one), behind = constants(n.k), n * (n + 1)

    def column(c: Index, sums: Sequence[Number]) -> list[Number]:
        def solve(i: Index, squares: Sequence[Number]) -> list[Number]:
            right = where(i.below(c), zero, one)
            solved = total(i + 1, c + 1, lambda j: triangle[i * n + j] * rest[j])
            pivot = triangle[i * n + i]
            rest.store(i, (right - solved) / pivot)
            value = rest[i] * triangle[behind + i]
            return [squares[0] + value * value]

        return loop(n.k, 0, c + 1, sums, solve, down=True)

    (squares,) = loop(n.k, 0, n, [0.0], column)
    triangle.store(n * (n + 2) + 1, squares.sqrt())


# --- loops ----------------------------------------------------------------------------------------


def constants(k: KernelIR) -> tuple[Number, Number]:
    """0 and 1."""
    return Number(k, k.constant(0.0)), Number(k, k.constant(1.0))


def sizes(k: KernelIR, count: int) -> list[Index]:
    """The words of the buffer ``sizes``."""
    words = k.buffer("sizes", "read", "u")
    return [Index(k, k.load(words, k.word(i))) for i in range(count)]


def each(end: Index, body: Callable[[Index], None], first: Index | int = 0) -> None:
    """Do this for all words from ``first`` up to ``end``."""

    def iteration(i: Index, _: Sequence[Number]) -> list[Number]:
        body(i)
        return []

    loop(end.k, first, end, [], iteration)


def total(first: Index | int, end: Index, term: Callable[[Index], Number]) -> Number:
    """The sum of numbers, in order."""
    return loop(end.k, first, end, [0.0], lambda i, s: [s[0] + term(i)])[0]


def largest(first: Index | int, end: Index, term: Callable[[Index], Number]) -> Number:
    """The largest of numbers that are not negative; 0 of none."""
    return loop(end.k, first, end, [0.0], lambda i, s: [s[0].at_least(term(i))])[0]


def dot(first: Index | int, end: Index, a: Numbers, at: Index, b: Numbers, other: Index) -> Number:
    """The inner product of two columns, of which these are the beginnings."""
    return total(first, end, lambda i: a[at + i] * b[other + i])


# --- by a thread group ----------------------------------------------------------------------------

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
