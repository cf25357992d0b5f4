"""Factors and solutions of dense matrices as loops over arrays in memory, row by row.

A matrix of n columns is an `Array` whose element (i, j) has the number ``i * n + j``. Sums of
products are made before a number is written, each once, so that little is kept for the gradient,
which is the loops' own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.arrays import DETACHED, EMPTY, EMPTY_W, array_rule
from symgrad.expr.linear.matrices import powers
from symgrad.expr.loops.control import fori_loop, while_loop
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.functions import uint32
from symgrad.expr.tracers.memory import Array, WordArray, zeros

# --- the exponential ------------------------------------------------------------------------------
# By scaling and squaring of a rational approximation (Higham, 2005, "The scaling and squaring
# method for the matrix exponential revisited"): the diagonal Pade approximant of degree 13 is
# accurate to float64's unit for matrices whose norm is at most `LARGEST_NORM`.

LARGEST_NORM: Final = 5.371920351148152
"""The norm, the largest sum of a column's magnitudes, up to which no scaling is needed."""

MOST_SQUARINGS: Final = 24
"""Squarings at most: of a matrix of a larger norm nothing is left that a float holds."""

COEFFICIENTS: Final = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
"""Coefficients of the numerator, the constant first; the denominator's odd ones are negative."""


def fraction(a: Any, eye: Any) -> tuple[Any, Any]:
    """The numerator and the denominator of the approximant at a matrix."""
    b = COEFFICIENTS
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    high = a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2)
    odd = a @ (high + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * eye)
    even = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2)
    even = even + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * eye
    return even + odd, even - odd


def of_numbers(a: np.ndarray) -> np.ndarray:
    """The exponentials of matrices (..., n, n) of numbers; NaN of what is not finite."""
    a = np.asarray(a, np.result_type(a, np.float32))
    result = np.empty_like(a)
    for k in np.ndindex(a.shape[:-2]):
        result[k] = _of_one(a[k])
    return result


def _of_one(a: np.ndarray) -> np.ndarray:
    norm = np.abs(a).sum(axis=0).max(initial=0.0)
    if not np.isfinite(norm):
        return np.full_like(a, np.nan)
    doublings = np.ceil(np.log2(norm / LARGEST_NORM)) if norm > LARGEST_NORM else 0.0
    squarings = int(min(doublings, MOST_SQUARINGS))
    # the coefficients are beyond float32's largest number, once they are multiplied
    scaled = np.asarray(a, np.float64) * 0.5**squarings
    over, under = fraction(scaled, np.eye(len(a)))
    result = np.linalg.solve(under, over)
    with np.errstate(all="ignore"):
        for _ in range(squarings):
            result = result @ result
    return result.astype(a.dtype)


def of_expressions(a: np.ndarray, solve: Any) -> np.ndarray:
    """The exponential of a matrix of expressions, as an array of these; ``solve`` is linalg's.

    Which of the squarings are done is no number yet: all are computed, and chosen from.
    """
    norm: Any = 0.0
    for column in a.T:
        size: Any = 0.0
        for element in column:
            size = size + ops.abs(element)
        norm = ops.maximum(norm, size)
    doublings = ops.ceil(ops.log2(ops.maximum(norm / LARGEST_NORM, 1.0)))
    squarings = ops.minimum(doublings, float(MOST_SQUARINGS))
    scaled = array(a) * ops.exp2(-squarings)
    over, under = fraction(scaled, np.eye(len(a)))
    scale = 1.0 / COEFFICIENTS[0]
    first = solve(under * scale, over * scale)

    def squared(k: Any, x: Any) -> Any:
        product = x @ x
        return np.where(k < squarings, product, x)

    return fori_loop(0, MOST_SQUARINGS, squared, first)


# --- symmetric eigenproblems ----------------------------------------------------------------------
# Jacobi's method. How eigenvalues and vectors were computed is not differentiated: their
# derivatives are those of eigenpairs, of every order, made of the eigenpairs alone.

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


# --- factors and solutions ------------------------------------------------------------------------

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


# --- systems and determinants ---------------------------------------------------------------------
# Linear systems and determinants of dense matrices: derivatives of solutions, not of elimination.
#
# The matrix is factored once. Derivatives, of every order, are solutions of systems of the same
# matrix or of its transpose, by the same factors: of 8 x 8 to 24 x 24 they take half the time of
# those of elimination, and are as accurate for matrices of any condition. Those of triangular
# systems and of Cholesky's factor are no quicker than what their loops give, and are left to these.


class Factors(NamedTuple):
    """The factors of a matrix by elimination: L and U in one, and the order of its rows."""

    both: Array
    order: WordArray


def solution(a: Array, b: Array) -> Array:
    """x of ``a @ x == b``."""
    both, order, _ = eliminated(DETACHED(a), math.isqrt(len(a)))
    return _solved(False, Factors(both, order), a, b)


def sign_and_logarithm(a: Array) -> tuple[Any, Any]:
    """The sign of the determinant, and the logarithm of its magnitude."""
    n = math.isqrt(len(a))
    both, order, sign = eliminated(DETACHED(a), n)

    def diagonal(k: Any, carry: Any) -> Any:
        sign, total = carry
        pivot = both[k * n + k]
        return sign * ops.sign(pivot), total + ops.log(abs(pivot))

    sign, total = iterations(0, n, diagonal, (sign, 0.0))
    return sign, LOGARITHM(zeros(a.graph, 1).put(0, total), both, order, a)[0]


def _solved(transposed: bool, factors: Factors, a: Array, b: Array) -> Array:
    """x of ``a @ x == b``, or of ``a.T @ x == b``, by what a was factored into."""
    find, rule = (_by_transposed, TRANSPOSED) if transposed else (_by_factors, SOLUTION)
    return rule(find(factors, DETACHED(b), *_sizes(a, b)), *factors, a, b)


def _by_factors(factors: Factors, b: Array, n: int, m: int) -> Array:
    both, order = factors
    x = _filled(b, n, m, lambda i, c: b[order[i] * m + c])
    x = substituted(lambda i, j: both[i * n + j], x, n, m, down=False, unit=True)
    return substituted(lambda i, j: both[i * n + j], x, n, m, down=True)


def _by_transposed(factors: Factors, b: Array, n: int, m: int) -> Array:
    """x of ``a.T @ x == b`` by the factors of a."""
    both, order = factors
    x = substituted(lambda i, j: both[j * n + i], b, n, m, down=False)
    x = substituted(lambda i, j: both[j * n + i], x, n, m, down=True, unit=True)

    def row(i: Any, moved: Array) -> Array:
        return iterations(0, m, lambda c, y: y.put(order[i] * m + c, x[i * m + c]), moved)

    return iterations(0, n, row, Array(b.graph, b.graph.intern((EMPTY, n * m))))


def _sizes(a: Array, b: Array) -> tuple[int, int]:
    n = math.isqrt(len(a))
    return n, len(b) // n


# --- derivatives ----------------------------------------------------------------------------------


def _filled(start: Array, n: int, m: int, element: Entry) -> Array:
    """The array with these elements of a matrix of n rows and m columns."""

    def row(i: Any, matrix: Array) -> Array:
        return iterations(0, m, lambda j, matrix: matrix.put(i * m + j, element(i, j)), matrix)

    return iterations(0, n, row, start)


def _minus_outer(x: Array, y: Array, n: int, m: int) -> Array:
    """``-x @ y.T`` of matrices of n rows and m columns."""

    def element(i: Any, j: Any) -> Any:
        return iterations(0, m, lambda c, s: s - x[i * m + c] * y[j * m + c], 0.0)

    return _filled(zeros(x.graph, n * n), n, n, element)


def _solution_pulled(
    transposed: bool,
    g: Array,
    x: Array,
    _: Array,
    both: Array,
    order: WordArray,
    a: Array,
    b: Array,
) -> Any:
    """The cotangents of the arguments of a system (Giles, 2008, 2.3.1)."""
    pulled = _solved(not transposed, Factors(both, order), a, g)
    outer = (x, pulled) if transposed else (pulled, x)
    return None, None, None, _minus_outer(*outer, *_sizes(a, b)), pulled


def _solution_pushed(
    transposed: bool,
    x: Array,
    _: Array,
    both: Array,
    order: WordArray,
    a: Array,
    b: Array,
    *changes: Array | None,
) -> Array:
    """The tangent of a solution: that of ``a @ dx == db - da @ x``."""
    (n, m), (da, db) = _sizes(a, b), changes[-2:]

    def element(i: Any, c: Any) -> Any:
        first = 0.0 if db is None else db[i * m + c]
        return first if da is None else iterations(0, n, partial(less, da, i, c), first)

    def less(da: Array, i: Any, c: Any, k: Any, s: Any) -> Any:
        return s - da[k * n + i if transposed else i * n + k] * x[k * m + c]

    right = _filled(zeros(x.graph, n * m), n, m, element)
    return _solved(transposed, Factors(both, order), a, right)


def _slope(factors: Factors, a: Array, scale: Any) -> Array:
    """The derivative of log(abs(det(a))), times a number (Giles, 2008, 2.2.4)."""
    n = math.isqrt(len(a))
    scaled = iterations(0, n, lambda k, e: e.put(k * (n + 1), scale), zeros(a.graph, n * n))
    return _solved(True, factors, a, scaled)


def _pulled_logarithm(
    g: Array, _: Array, __: Array, both: Array, order: WordArray, a: Array
) -> Any:
    return None, None, None, _slope(Factors(both, order), a, g[0])


def _pushed_logarithm(
    _: Array, __: Array, both: Array, order: WordArray, a: Array, *changes: Array | None
) -> Array:
    slope, da = _slope(Factors(both, order), a, 1.0), changes[-1]
    assert da is not None, "only the matrix changes"
    total = iterations(0, len(a), lambda k, s: s + slope[k] * da[k], 0.0)
    return zeros(a.graph, 1).put(0, total)


SOLUTION: Final = array_rule(
    __name__,
    "solution",
    "FFWFF->F",
    "x of a x = b, the factors of a and the order of its rows, a and b",
    partial(_solution_pulled, False),
    partial(_solution_pushed, False),
)
TRANSPOSED: Final = array_rule(
    __name__,
    "transposed",
    "FFWFF->F",
    "x of aᵀ x = b, the factors of a and the order of its rows, a and b",
    partial(_solution_pulled, True),
    partial(_solution_pushed, True),
)
LOGARITHM: Final = array_rule(
    __name__,
    "logarithm",
    "FFWF->F",
    "log(abs(det(a))), the factors of a and the order of its rows, and a",
    _pulled_logarithm,
    _pushed_logarithm,
)
