"""Factors and solutions of dense matrices as loops over arrays in memory, row by row.

A matrix of n columns is an `Array` whose element (i, j) has the number ``i * n + j``. Sums of
products are made before a number is written, each once, so that little is kept for the gradient,
which is the loops' own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symgrad.expr import ops
from symgrad.expr.graph.arrays import DETACHED, EMPTY_W
from symgrad.expr.linear.matrices import powers
from symgrad.expr.loops.control import fori_loop
from symgrad.expr.tracers.casts import uint32
from symgrad.expr.tracers.memory import Array, WordArray, zeros

Entry = Callable[[Any, Any], Any]
"""``entry(i, j)``: an element of a matrix."""


def iterations(lo: Any, hi: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """`fori_loop`, whose counter is an integer."""
    return fori_loop(lo, hi, lambda k, carry: body(uint32(k), carry), init)


def column_powers(a: Array, m: int, n: int) -> tuple[Array, Array]:
    """For each of n columns of m rows the `powers` of its largest element."""
    a = DETACHED(a)

    def column(j: Any, parts: Any) -> Any:
        largest = iterations(0, m, lambda i, s: ops.maximum(s, abs(a[i * n + j])), 0.0)
        return tuple(part.put(j, power) for part, power in zip(parts, powers(largest), strict=True))

    return iterations(0, n, column, (zeros(a.graph, n), zeros(a.graph, n)))


def scaled(a: Array, scale: Array) -> Array:
    """The matrix with each of its columns multiplied by a number."""
    n = len(scale)
    return iterations(0, len(a), lambda k, y: y.put(k, a[k] * scale[k % n]), zeros(a.graph, len(a)))


def lower_factor(a: Array, n: int) -> Array:
    """L of ``L @ L.T == a`` in the lower triangle, of which alone it is made; NaN if there is none.

    Above the diagonal a remains.
    """

    def row(i: Any, a: Array) -> Array:
        def element(j: Any, a: Array) -> Array:
            return a.put(i * n + j, _rest(a, n, i, j) / a[j * n + j])

        def _rest(a: Array, n: int, i: Any, j: Any) -> Any:
            return iterations(0, j, lambda k, s: s - a[i * n + k] * a[j * n + k], a[i * n + j])

        a = iterations(0, i, element, a)
        return a.put(i * n + i, ops.sqrt(_rest(a, n, i, i)))

    return iterations(0, n, row, a)


def substituted(entry: Entry, b: Array, n: int, m: int, down: bool, unit: bool = False) -> Array:
    """x of ``t @ x == b`` for a triangular t, whose last row is solved for first if ``down``."""

    def column(c: Any, b: Array) -> Array:
        def row(t: Any, b: Array) -> Array:
            i = n - 1 - t if down else t
            ends = (i + 1, n) if down else (0, i)
            rest = iterations(*ends, lambda k, s: s - entry(i, k) * b[k * m + c], b[i * m + c])
            return b.put(i * m + c, rest if unit else rest / entry(i, i))

        return iterations(0, n, row, b)

    return iterations(0, m, column, b)


def eliminated(a: Array, n: int) -> tuple[Array, WordArray, Any]:
    """L and U of Gauss' elimination with partial pivoting, in place; the order of rows; its sign.

    By columns of L and rows of U, after Crout and Doolittle (Higham, 2002, section 9.2).
    """
    graph = a.graph

    def step(k: Any, carry: Any) -> Any:
        a, order, sign = carry
        a = iterations(k, n, lambda i, a: a.put(i * n + k, _reduced(a, n, i, k, k)), a)
        first = k, abs(a[k * n + k])
        pivot, _ = iterations(k + 1, n, lambda i, best: _larger(i, abs(a[i * n + k]), *best), first)
        a = iterations(0, n, lambda j, a: exchanged(a, k * n + j, pivot * n + j), a)
        a = iterations(k + 1, n, lambda j, a: a.put(k * n + j, _reduced(a, n, k, j, k)), a)
        largest = a[k * n + k]
        inverse = ops.where(largest == 0.0, 0.0, 1.0 / largest)  # all below it are 0 then
        a = iterations(k + 1, n, lambda i, a: a.put(i * n + k, a[i * n + k] * inverse), a)
        return a, exchanged(order, k, pivot), ops.where(pivot == k, sign, -sign)

    order = WordArray(graph, graph.intern((EMPTY_W, n)))
    order = iterations(0, n, lambda k, order: order.put(k, k), order)
    return iterations(0, n, step, (a, order, 1.0))


def _reduced(a: Array, n: int, i: Any, j: Any, k: Any) -> Any:
    """Element (i, j) less what the first k columns of L and rows of U make of it."""
    return iterations(0, k, lambda p, s: s - a[i * n + p] * a[p * n + j], a[i * n + j])


def _larger(i: Any, size: Any, at: Any, most: Any) -> Any:
    """The row of the larger of two elements, and its size."""
    return ops.where(size > most, i, at), ops.where(size > most, size, most)


def exchanged(a: Array, i: Any, j: Any) -> Array:
    """The array with two of its elements exchanged."""
    upper, lower = a[i], a[j]
    return a.put(i, lower).put(j, upper)


def determinant(a: Array, n: int) -> Any:
    """The product of the pivots, and the sign of their order."""
    factors, _, sign = eliminated(a, n)
    return iterations(0, n, lambda k, product: product * factors[k * n + k], sign)


def orthogonalized(a: Array, b: Array, m: int, n: int, p: int) -> tuple[Array, Array, Array]:
    """R of the factors Q and R of the matrix a of m rows and n columns; ``Q.T @ b``; what is left.

    By modified Gram and Schmidt with b as further columns, which is as stable as Householder's
    reflections (Björck, 1996, 2.4.4).
    """

    def step(k: Any, carry: Any) -> Any:
        a, b, r, c = carry
        size = ops.sqrt(iterations(0, m, lambda i, s: s + a[i * n + k] * a[i * n + k], 0.0))
        r, inverse = r.put(k * (n + 1), size), 1.0 / size
        a = iterations(0, m, lambda i, a: a.put(i * n + k, a[i * n + k] * inverse), a)
        a, r = iterations(k + 1, n, lambda j, ar: _projected((m, n, n), k, j, ar[0], *ar), (a, r))
        b, c = iterations(0, p, lambda j, bc: _projected((m, n, p), k, j, a, *bc), (b, c))
        return a, b, r, c

    r, c = zeros(a.graph, n * n), zeros(a.graph, n * p)
    _, left, r, c = iterations(0, n, step, (a, b, r, c))
    return r, c, left


def _projected(
    shape: tuple[int, int, int], k: Any, j: Any, q: Array, b: Array, r: Array
) -> tuple[Array, Array]:
    """Column j of b less its part along column k of q, and this as element (k, j) of r."""
    m, n, p = shape
    along = iterations(0, m, lambda i, s: s + q[i * n + k] * b[i * p + j], 0.0)
    b = iterations(0, m, lambda i, b: b.put(i * p + j, b[i * p + j] - q[i * n + k] * along), b)
    return b, r.put(k * p + j, along)
