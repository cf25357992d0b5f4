"""Eigenvalues and eigenvectors of symmetric matrices: Jacobi's method, and implicit derivatives.

How they were found is not differentiated: their derivatives are those of eigenpairs, of every
order, made of the eigenpairs alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.graph.arrays import DETACHED, array_rule
from symgrad.expr.linear.dense import Entry, column_powers, exchanged, iterations, scaled
from symgrad.expr.loops.control import while_loop
from symgrad.expr.tracers.memory import Array, zeros

MOST_SWEEPS: Final = 24
"""Sweeps over all pairs of rows; some 6 to 10 are needed."""

SMALL: Final = 1e-5
"""The tangent of angles after which two sweeps more leave nothing: they square each time."""


def eigenpairs(a: Array, n: int) -> Array:
    """The eigenvalues of a symmetric matrix, ascending, and behind them the matrix of vectors.

    Column k of this belongs to eigenvalue k. They are NaN where a has NaN or infinite elements.
    """
    detached = DETACHED(a)
    return EIGENPAIRS(_jacobi_eigenpairs(detached, n), a)


# --- Jacobi's method ------------------------------------------------------------------------------


def _jacobi_eigenpairs(a: Array, n: int) -> Array:
    """Jacobi rotations until the matrix is diagonal (Golub and Van Loan, 2013, 8.5)."""
    up, down = column_powers(a, n * n, 1)
    a = scaled(a, up)
    total = iterations(0, n * n, lambda k, s: s + a[k] * a[k], 0.0)
    identity = iterations(0, n, lambda k, v: v.put(k * (n + 1), 1.0), zeros(a.graph, n * n))

    def sweep(state: Any) -> Any:
        a, v, largest, _ = state
        start = a, v, 0.0
        row = lambda p, s: iterations(p + 1, n, lambda q, s: _rotated(n, p, q, *s), s)  # noqa: E731
        a, v, now = iterations(0, n, row, start)
        return a, v, now, largest

    going = lambda state: state[3] > SMALL  # noqa: E731
    a, v, *_ = while_loop(going, sweep, (a, identity, 1.0, 1.0), MOST_SWEEPS)
    valid = ops.isfinite(total)
    pairs = zeros(a.graph, n + n * n)
    value = lambda k: ops.where(valid, a[k * (n + 1)] * down[0], math.nan)  # noqa: E731
    pairs = iterations(0, n, lambda k, y: y.put(k, value(k)), pairs)
    pairs = iterations(0, n * n, lambda k, y: y.put(k + n, ops.where(valid, v[k], math.nan)), pairs)
    return iterations(0, n, lambda k, y: _smallest_first(y, n, k), pairs)


def _rotated(n: int, p: Any, q: Any, a: Array, v: Array, most: Any) -> tuple[Array, Array, Any]:
    """Rows and columns p and q rotated so that element (p, q) vanishes; the largest tangent."""
    apart, coupling = a[q * (n + 1)] - a[p * (n + 1)], a[p * n + q]
    ratio = apart / (2.0 * coupling)
    tangent = ops.copysign(1.0, ratio) / (abs(ratio) + ops.sqrt(ratio * ratio + 1.0))
    tangent = ops.where(coupling == 0.0, 0.0, tangent)
    cosine = 1.0 / ops.sqrt(tangent * tangent + 1.0)
    sine = tangent * cosine

    def rotated(a: Array, place: Callable[[Any, Any], Any]) -> Array:
        def pair(k: Any, a: Array) -> Array:
            i, j = place(k, p), place(k, q)
            x, y = a[i], a[j]
            return a.put(i, cosine * x - sine * y).put(j, sine * x + cosine * y)

        return iterations(0, n, pair, a)

    columns = lambda k, p: k * n + p  # noqa: E731
    rows = lambda k, p: p * n + k  # noqa: E731
    a = rotated(rotated(a, columns), rows)
    a = a.put(p * n + q, 0.0).put(q * n + p, 0.0)
    return a, rotated(v, columns), ops.maximum(most, abs(tangent))


def _smallest_first(pairs: Array, n: int, k: Any) -> Array:
    """The pairs with the smallest of the eigenvalues from k on in place k."""

    def smaller(i: Any, best: Any) -> Any:
        at, least = best
        below = pairs[i] < least
        return ops.where(below, i, at), ops.where(below, pairs[i], least)

    at, _ = iterations(k + 1, n, smaller, (k, pairs[k]))
    pairs = exchanged(pairs, k, at)
    return iterations(0, n, lambda i, y: exchanged(y, n + i * n + k, n + i * n + at), pairs)


# --- derivatives ----------------------------------------------------------------------------------


def _product(a: Entry, b: Entry, n: int, start: Array, first: int = 0) -> Array:
    """The product of two n x n matrices, put into an array from element ``first`` on."""

    def row(i: Any, product: Array) -> Array:
        def element(j: Any, product: Array) -> Array:
            total = iterations(0, n, lambda k, s: s + a(i, k) * b(k, j), 0.0)
            return product.put(i * n + j + first, total)

        return iterations(0, n, element, product)

    return iterations(0, n, row, start)


def _over_gaps(y: Array, m: Array, n: int, diagonal: Callable[[Any], Any]) -> Array:
    """Element (i, j) of m divided by the gap between eigenvalues j and i; another diagonal.

    What is 0 stays so where there is no gap.
    """

    def row(i: Any, m: Array) -> Array:
        def element(j: Any, m: Array) -> Array:
            numerator = m[i * n + j]
            is_divided = (i != j) & (numerator != 0.0)
            share = numerator / ops.where(is_divided, y[j] - y[i], 1.0)
            return m.put(
                i * n + j, ops.where(i == j, diagonal(i), ops.where(is_divided, share, 0.0))
            )

        return iterations(0, n, element, m)

    return iterations(0, n, row, m)


def _pulled(g: Array, y: Array, _: Array, a: Array) -> tuple[None, Array]:
    """The cotangent of the matrix (Giles, 2008, 3.1, for vectors of length 1)."""
    n = math.isqrt(len(a))
    empty = zeros(a.graph, n * n)
    vector = lambda i, j: y[i * n + j + n]  # noqa: E731
    m = _product(lambda i, k: vector(k, i), lambda k, j: g[k * n + j + n], n, empty)
    m = _over_gaps(y, m, n, lambda i: g[i])
    left = _product(vector, lambda k, j: m[k * n + j], n, empty)
    return None, _product(lambda i, k: left[i * n + k], lambda k, j: vector(j, k), n, empty)


def _pushed(y: Array, _: Array, a: Array, __: None, change: Array) -> Array:
    """The tangents of eigenpairs of a matrix that changes."""
    n = math.isqrt(len(a))
    empty = zeros(a.graph, n * n)
    vector = lambda i, j: y[i * n + j + n]  # noqa: E731
    right = _product(lambda i, k: change[i * n + k], vector, n, empty)
    m = _product(lambda i, k: vector(k, i), lambda k, j: right[k * n + j], n, empty)
    values = iterations(0, n, lambda k, t: t.put(k, m[k * (n + 1)]), zeros(a.graph, n + n * n))
    m = _over_gaps(y, m, n, lambda _: 0.0)
    return _product(vector, lambda k, j: m[k * n + j], n, values, n)


EIGENPAIRS: Final = array_rule(
    __name__,
    "eigenpairs",
    "FF->F",
    "eigenpairs, and the matrix whose they are",
    _pulled,
    _pushed,
)
