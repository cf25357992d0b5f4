"""Small dense linear algebra as loops of run-time sizes: what each step of a fit needs.

All sums are in order, by one invocation; matrices are in C order, a column of ``columns`` stands in
a row. Sizes are words in the buffer ``sizes``.
"""

from __future__ import annotations

from collections.abc import Callable

from symgrad.expr import ops
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.statements import Buffer


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
    d = _Dense(k)
    sizes = k.buffer("sizes", "read", "u")
    values, slopes, y, weights = (
        k.buffer(name, "read") for name in ("values", "slopes", "y", "weights")
    )
    columns, rest, triangle = (k.buffer(name, "write") for name in ("columns", "rest", "found"))
    m, n = k.load(sizes, k.word(0)), k.load(sizes, k.word(1))
    z, last = d.times(n, n), d.times(n, m)

    def weigh(i: int) -> None:
        weight = k.load(weights, i)
        idle = k.add(ops.eq, weight, d.zero)

        def put(at: int, value: int) -> None:
            k.store(columns, at, d.where(idle, d.zero, d.mul(value, weight)))

        put(d.plus(last, i), k.add(ops.sub, k.load(values, i), k.load(y, i)))
        d.each(n, lambda j: put(d.at(j, m, i), k.load(slopes, d.at(i, n, j))))

    d.each(m, weigh)
    cost = d.dot(k.word(0), m, columns, last, columns, last)
    d.each(n, lambda j: d.each(n, lambda c: k.store(triangle, d.at(j, n, c), d.zero)))
    d.each(n, lambda j: k.store(triangle, d.plus(z, j), d.zero))
    d.each(k.add(ops.word_min, m, n), lambda j: _reflect(d, columns, triangle, m, n, j))
    finite = _measure(d, triangle, n)
    _invert(d, triangle, rest, n)
    k.store(triangle, d.plus(z, d.times(k.word(2), n)), k.add(ops.add, cost, finite))
    return k


def _reflect(d: _Dense, columns: Buffer, triangle: Buffer, m: int, n: int, j: int) -> None:
    """Column j by a reflection that leaves its first j + 1 numbers alone, and those behind it."""
    k, own = d.k, d.times(j, m)
    most = d.fold(ops.maximum, j, m, lambda i: k.add(ops.abs, k.load(columns, d.plus(own, i))))
    unit = d.where(k.add(ops.lt, d.zero, most), most, d.one)
    d.each(m, lambda i: d.scale(columns, d.plus(own, i), unit), j)
    length = k.add(ops.sqrt, d.dot(j, m, columns, own, columns, own))
    first = k.load(columns, d.plus(own, j))
    signed = k.add(ops.copysign, length, first)
    pivot = k.add(ops.add, first, signed)
    k.store(columns, d.plus(own, j), pivot)
    scale = k.add(ops.mul, signed, pivot)
    gain = d.where(k.add(ops.lt, d.zero, scale), k.add(ops.div, d.one, scale), d.zero)
    k.store(triangle, d.at(j, n, j), k.add(ops.neg, d.mul(signed, unit)))

    def iteration(c: int) -> None:
        other = d.times(c, m)
        part = d.mul(gain, d.dot(j, m, columns, own, columns, other))

        def move(i: int) -> None:
            moved = d.mul(part, k.load(columns, d.plus(own, i)))
            at = d.plus(other, i)
            k.store(columns, at, k.add(ops.sub, k.load(columns, at), moved))

        d.each(m, move, j)

    d.each(d.plus(n, k.word(1)), iteration, d.plus(j, k.word(1)))

    def keep(c: int) -> None:
        k.store(triangle, d.at(j, n, c), k.load(columns, d.at(c, m, j)))

    d.each(n, keep, d.plus(j, k.word(1)))
    k.store(triangle, d.at(n, n, j), k.load(columns, d.at(n, m, j)))


def _measure(d: _Dense, triangle: Buffer, n: int) -> int:
    """The lengths of T's columns, behind z; 0, or NaN if anything in T is not finite.

    Squares are those of numbers divided by the largest, as they may be beyond the range.
    """
    k, behind = d.k, d.times(n, d.plus(n, d.k.word(1)))

    def column(c: int, finite: list[int]) -> list[int]:
        def entry(i: int) -> int:
            return k.load(triangle, d.at(i, n, c))

        def add(i: int, sums: list[int]) -> list[int]:
            part = k.add(ops.div, entry(i), unit)
            squares = k.add(ops.add, sums[0], d.mul(part, part))
            return [squares, k.add(ops.add, sums[1], d.mul(entry(i), d.zero))]

        end = d.plus(c, k.word(1))
        most = d.fold(ops.maximum, k.word(0), end, lambda i: k.add(ops.abs, entry(i)))
        unit = d.where(k.add(ops.lt, d.zero, most), most, d.one)
        (squares, still), _ = k.loop(k.word(0), end, [d.zero, finite[0]], add)
        length = d.mul(unit, k.add(ops.sqrt, squares))
        some = d.where(k.add(ops.lt, d.zero, length), length, d.one)
        k.store(triangle, d.plus(behind, c), some)
        return [still]

    return k.loop(k.word(0), n, [d.zero], column)[0][0]


def _invert(d: _Dense, triangle: Buffer, rest: Buffer, n: int) -> None:
    """The norm of the inverse of T with columns of length 1, as the last number: by columns."""
    k, behind = d.k, d.times(n, d.plus(n, d.k.word(1)))

    def column(c: int, sums: list[int]) -> list[int]:
        def solve(i: int, squares: list[int]) -> list[int]:
            def term(j: int) -> int:
                return d.mul(k.load(triangle, d.at(i, n, j)), k.load(rest, j))

            right = d.where(k.add(ops.word_lt, i, c), d.zero, d.one)
            solved = d.fold(ops.add, d.plus(i, k.word(1)), d.plus(c, k.word(1)), term)
            pivot = k.load(triangle, d.at(i, n, i))
            k.store(rest, i, k.add(ops.div, k.add(ops.sub, right, solved), pivot))
            value = d.mul(k.load(rest, i), k.load(triangle, d.plus(behind, i)))
            return [k.add(ops.add, squares[0], d.mul(value, value))]

        return k.loop(k.word(0), d.plus(c, k.word(1)), sums, solve, down=True)[0]

    (total,), _ = k.loop(k.word(0), n, [d.zero], column)
    last = d.plus(d.times(n, d.plus(n, k.word(2))), k.word(1))
    k.store(triangle, last, k.add(ops.sqrt, total))


def step_program(target: Target) -> KernelIR:
    """The step h for which |T h + z|² + damping |scales h|² is least, by rotations.

    Of ``sizes`` (n,), ``point`` with T (n, n) and z (n,), ``scales`` (n,), ``damping`` (1,) and the
    parameters ``p`` (n,) it writes to ``found`` p + h (n,), the decrease of |T h + z|² that h
    promises for the rounded p + h, and the largest |h| / |p|. ``rotated`` (n + 2, n + 1) is memory
    to work in. Directions that neither T nor the damping knows are left as they are.
    """
    k = KernelIR(target, "step")
    d = _Dense(k)
    sizes = k.buffer("sizes", "read", "u")
    point, scales, damping, p = (
        k.buffer(name, "read") for name in ("point", "scales", "damping", "p")
    )
    rotated, outcome = (k.buffer(name, "write") for name in ("rotated", "found"))
    n = k.load(sizes, k.word(0))
    z, width = d.times(n, n), d.plus(n, k.word(1))

    def copy(i: int) -> None:
        def put(j: int) -> None:
            entry = k.add(ops.div, k.load(point, d.at(i, n, j)), k.load(scales, j))
            k.store(rotated, d.at(i, width, j), entry)

        d.each(n, put)
        k.store(rotated, d.at(i, width, n), k.load(point, d.plus(z, i)))

    d.each(n, copy)
    root = k.add(ops.sqrt, k.load(damping, k.word(0)))
    d.each(n, lambda j: _rotate(d, rotated, n, j, root))
    h = d.times(width, d.plus(n, k.word(1)))

    def back(i: int, _: list[int]) -> list[int]:
        def term(j: int) -> int:
            return d.mul(k.load(rotated, d.at(i, width, j)), k.load(rotated, d.plus(h, j)))

        solved = d.fold(ops.add, d.plus(i, k.word(1)), n, term)
        right = k.add(ops.add, k.load(rotated, d.at(i, width, n)), solved)
        pivot = k.load(rotated, d.at(i, width, i))
        none = k.add(ops.eq, pivot, d.zero)
        quotient = k.add(ops.div, right, d.where(none, d.one, pivot))
        k.store(rotated, d.plus(h, i), d.where(none, d.zero, k.add(ops.neg, quotient)))
        return []

    k.loop(k.word(0), n, [], back, down=True)
    _take(d, point, scales, p, rotated, outcome, n, h)
    return k


def _rotate(d: _Dense, rotated: Buffer, n: int, j: int, root: int) -> None:
    """Rotate the damping of one variable into the triangle, row by row."""
    k, width = d.k, d.plus(n, d.k.word(1))
    extra = d.times(width, n)
    d.each(width, lambda c: k.store(rotated, d.plus(extra, c), d.zero), j)
    k.store(rotated, d.plus(extra, j), root)

    def eliminate(i: int) -> None:
        pivot, below = k.load(rotated, d.at(i, width, i)), k.load(rotated, d.plus(extra, i))
        length = k.add(ops.sqrt, k.add(ops.add, d.mul(pivot, pivot), d.mul(below, below)))
        none = k.add(ops.eq, below, d.zero)
        safe = d.where(none, d.one, length)
        cosine = d.where(none, d.one, k.add(ops.div, pivot, safe))
        sine = d.where(none, d.zero, k.add(ops.div, below, safe))

        def iteration(c: int) -> None:
            at, under = d.at(i, width, c), d.plus(extra, c)
            a, b = k.load(rotated, at), k.load(rotated, under)
            k.store(rotated, at, k.add(ops.add, d.mul(cosine, a), d.mul(sine, b)))
            k.store(rotated, under, k.add(ops.sub, d.mul(cosine, b), d.mul(sine, a)))

        d.each(width, iteration, i)

    d.each(n, eliminate, j)


def _take(
    d: _Dense,
    point: Buffer,
    scales: Buffer,
    p: Buffer,
    rotated: Buffer,
    outcome: Buffer,
    n: int,
    h: int,
) -> None:
    """p + h, what of it is a step after rounding, what that promises, and how large it is."""
    k, z = d.k, d.times(n, n)

    def move(i: int, largest: list[int]) -> list[int]:
        old = k.load(p, i)
        step = k.add(ops.div, k.load(rotated, d.plus(h, i)), k.load(scales, i))
        new = k.add(ops.opaque, k.add(ops.add, old, step))
        moved = k.add(ops.sub, new, old)
        k.store(outcome, i, new)
        k.store(rotated, d.plus(h, i), moved)
        part = k.add(ops.div, k.add(ops.abs, moved), k.add(ops.abs, old))
        still = k.add(ops.eq, moved, d.zero)
        return [k.add(ops.maximum, largest[0], d.where(still, d.zero, part))]

    (largest,), _ = k.loop(k.word(0), n, [d.zero], move)

    def decrease(i: int) -> int:
        def term(j: int) -> int:
            return d.mul(k.load(point, d.at(i, n, j)), k.load(rotated, d.plus(h, j)))

        change, was = d.fold(ops.add, i, n, term), k.load(point, d.plus(z, i))
        left = k.add(ops.add, was, change)
        return k.add(ops.sub, d.mul(was, was), d.mul(left, left))

    k.store(outcome, n, d.fold(ops.add, k.word(0), n, decrease))
    k.store(outcome, d.plus(n, k.word(1)), largest)


class _Dense:
    """What these programs are written with."""

    def __init__(self, k: KernelIR) -> None:
        self.k = k
        self.zero, self.one = k.constant(0.0), k.constant(1.0)

    def plus(self, a: int, b: int) -> int:
        """The sum of words."""
        return self.k.add(ops.word_add, a, b)

    def times(self, a: int, b: int) -> int:
        """The product of words."""
        return self.k.add(ops.word_mul, a, b)

    def at(self, i: int, width: int, j: int) -> int:
        """The place of column j of row i."""
        return self.plus(self.times(i, width), j)

    def mul(self, a: int, b: int) -> int:
        """The product."""
        return self.k.add(ops.mul, a, b)

    def where(self, condition: int, a: int, b: int) -> int:
        """One of two numbers."""
        return self.k.add(ops.where, condition, a, b)

    def each(self, end: int, body: Callable[[int], None], first: int | None = None) -> None:
        """Do this for all words from ``first``, or 0, up to ``end``."""

        def iteration(i: int, _: list[int]) -> list[int]:
            body(i)
            return []

        self.k.loop(self.k.word(0) if first is None else first, end, [], iteration)

    def fold(self, op: ops.Op, first: int, end: int, term: Callable[[int], int]) -> int:
        """The sum, or the maximum, of numbers that are not negative, from 0."""
        return self.k.loop(first, end, [self.zero], lambda i, s: [self.k.add(op, s[0], term(i))])[
            0
        ][0]

    def dot(self, first: int, end: int, a: Buffer, at: int, b: Buffer, other: int) -> int:
        """The inner product of two columns, of which these are the beginnings."""
        return self.fold(
            ops.add,
            first,
            end,
            lambda i: self.mul(
                self.k.load(a, self.plus(at, i)), self.k.load(b, self.plus(other, i))
            ),
        )

    def scale(self, buffer: Buffer, at: int, unit: int) -> None:
        """Divide a number by a unit."""
        self.k.store(buffer, at, self.k.add(ops.div, self.k.load(buffer, at), unit))
