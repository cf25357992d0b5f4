"""Small dense linear algebra as loops of run-time sizes: what each step of a fit needs.

All sums are in order, by one invocation; matrices are in C order, a column of ``columns`` stands in
a row. Sizes are words in the buffer ``sizes``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from symgrad.kernel.index import Index, Number, Numbers, loop, where
from symgrad.kernel.language import KernelIR, Target


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
