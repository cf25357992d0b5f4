"""Linear systems and determinants of dense matrices: derivatives of solutions, not of elimination.

The matrix is factored once. Derivatives, of every order, are solutions of systems of the same
matrix or of its transpose, by the same factors: of 8 x 8 to 24 x 24 they take half the time of
those of elimination, and are as accurate for matrices of any condition. Those of triangular systems
and of Cholesky's factor are no quicker than what their loops give, and are left to these.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final, NamedTuple

from symgrad.expr import ops
from symgrad.expr.graph.arrays import DETACHED, EMPTY, array_rule
from symgrad.expr.linear.dense import Entry, eliminated, iterations, substituted
from symgrad.expr.tracers.memory import Array, WordArray, zeros


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


def _pulled(
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


def _pushed(
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
    partial(_pulled, False),
    partial(_pushed, False),
)
TRANSPOSED: Final = array_rule(
    __name__,
    "transposed",
    "FFWFF->F",
    "x of aᵀ x = b, the factors of a and the order of its rows, a and b",
    partial(_pulled, True),
    partial(_pushed, True),
)
LOGARITHM: Final = array_rule(
    __name__,
    "logarithm",
    "FFWF->F",
    "log(abs(det(a))), the factors of a and the order of its rows, and a",
    _pulled_logarithm,
    _pushed_logarithm,
)
