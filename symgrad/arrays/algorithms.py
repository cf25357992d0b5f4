"""Algorithms on whole arrays: factorisations, solutions and sorts, what they mean, and derivatives.

Each is a `Call` of a program. Operands are batches of matrices (.., n, n), as NumPy takes them.
Cotangents are arrays of the program again, so that they have cotangents themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Call, Result
from symgrad.arrays.scalars import Array
from symgrad.errors import UnsupportedError
from symgrad.expr import ops
from symgrad.expr.linear import dense

Shape = tuple[int, ...]

BLOCK: Final = 64
"""Rows of a triangular system that are eliminated together."""

MODERATE: Final = 512
"""Rows of matrices up to which work on them is not worth several threads."""

WELL_CONDITIONED: Final = 1e3
"""A condition number up to which cofactors are made of inverses."""

Pull = Callable[[Builder, Call, int, Array], Sequence[Array | None]]
"""``pull(b, call, k, cotangent)`` are the cotangents of the operands for that of result k."""


Together = Callable[[Builder, Call, Mapping[int, Array], set[Array]], Sequence[tuple[Array, Array]]]
"""``together(b, call, cotangents, active)``: (operand, its cotangent), by those of results."""


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: its results, their shapes and kinds by those of operands, its derivative."""

    name: str
    reference: Callable[..., list[np.ndarray]]
    shapes: Callable[..., tuple[Shape, ...]]
    """The shapes of the results, by those of the operands and by the options."""
    kinds: str = "f"
    """The kinds of the results, or that of all; of a loop its options say them."""
    pull: Pull | None = None
    together: Together | None = None
    """A derivative for the cotangents of all results at once."""


def calling(
    b: Builder, name: str, operands: Sequence[Array], options: tuple[Any, ...] = ()
) -> Call:
    """A call of an algorithm; equal ones of a program are one."""
    key = name, tuple(operands), options
    if key not in b.calls:
        a = ALGORITHMS[name]
        shapes = a.shapes(*[o.shape for o in operands], *options)
        kinds = a.kinds or options[0].kinds
        kinds *= len(shapes) if len(kinds) == 1 else 1
        results: dict[int, Result] = {}
        call = Call(
            name=name, operands=tuple(operands), options=options, shapes=shapes, kinds=kinds,
            reference=a.reference,
        )  # fmt: skip
        for k, (shape, kind) in enumerate(zip(shapes, kinds, strict=True)):
            results[k] = Result(shape=shape, kind=kind, call=call, index=k)
        b.calls[key] = call, results
    return b.calls[key][0]


def result(b: Builder, call: Call, k: int = 0) -> Array:
    """Result number k of a call."""
    return b.calls[call.name, call.operands, call.options][1][k]


def again(b: Builder, old: Result, operands: Sequence[Array]) -> Array:
    """A result of a call, or of the one that keeps more, for other operands."""
    call = b.keeping.get(old.call, old.call)
    return result(b, calling(b, call.name, operands, call.options), old.index)


def pulled(
    b: Builder, of: Call, cotangents: Mapping[int, Array], active: set[Array]
) -> list[tuple[Array, Array]]:
    """(operand, its cotangent) for operands that are active, by the cotangents of results."""
    call = calling(b, of.name, of.operands, of.options)
    algorithm = ALGORITHMS[call.name]
    if algorithm.together is not None:
        pieces = algorithm.together(b, call, cotangents, active)
        return [p for p in pieces if p[0] in active]
    if algorithm.pull is None:
        raise UnsupportedError(f"{call.name} has no derivative")
    pairs: list[tuple[Array, Array]] = []
    for k, cotangent in cotangents.items():
        each = zip(call.operands, algorithm.pull(b, call, k, cotangent), strict=True)
        pairs += [(o, piece) for o, piece in each if piece is not None and o in active]
    return pairs


# --- arithmetic of batches of matrices ------------------------------------------------------------


def matrix(b: Builder, shape: Shape, element: Callable[..., int]) -> Array:
    """The array of ``element(batch, i, j)``."""
    return b.tabulate(shape, lambda *index: element(index[:-2], *index[-2:]))


def transposed(b: Builder, a: Array) -> Array:
    """The matrices, transposed."""
    *batch, m, n = a.shape
    return matrix(b, (*batch, n, m), lambda z, i, j: b.element(a, (*z, j, i)))


def multiplied(b: Builder, a: Array, c: Array) -> Array:
    """The products of matrices (.., m, k) and (.., k, n)."""
    *batch, m, depth = a.shape

    def element(z: Sequence[int], i: int, j: int) -> int:
        k = b.counter(depth)
        (at,) = b.indices([k])
        factors = b.element(a, (*z, i, at)), b.element(c, (*z, at, j))
        return b.reduce("add", [k], b.apply(ops.mul, *factors))

    return matrix(b, (*batch, m, c.shape[-1]), element)


def chained(b: Builder, a: Array, c: Array, d: Array) -> Array:
    """The products of three matrices, in the order that takes fewer operations."""
    (m, n), (k, last) = a.shape[-2:], d.shape[-2:]
    if m * k * (n + last) <= n * last * (m + k):
        return multiplied(b, multiplied(b, a, c), d)
    return multiplied(b, a, multiplied(b, c, d))


def elementwise(b: Builder, f: Callable[..., int], *arrays: Array) -> Array:
    """A function of elements of arrays of one shape; it takes the indices, and then elements."""
    return b.tabulate(
        arrays[0].shape, lambda *index: f(index, *(b.element(a, index) for a in arrays))
    )


def scaled(b: Builder, a: Array, factor: float) -> Array:
    """A multiple of an array."""
    number = b.graph.constant(factor)
    return elementwise(b, lambda _, x: b.apply(ops.mul, number, x), a)


def below(b: Builder, a: Array, half: bool = False, strict: bool = False) -> Array:
    """The lower triangles, ``strict``-ly, or with ``half`` of the diagonals."""
    factor = b.graph.constant(0.5)

    def element(index: Sequence[int], x: int) -> int:
        i, j = index[-2:]
        if strict:
            return b.where(b.below(j, i), x)
        if half:
            x = b.graph.add(ops.where, b.same(i, j), b.apply(ops.mul, factor, x), x)
        return b.where(b.opposite(b.below(i, j)), x)

    return elementwise(b, element, a)


def added(b: Builder, a: Array, c: Array) -> Array:
    """The sum of arrays."""
    return elementwise(b, lambda _, x, y: b.apply(ops.add, x, y), a, c)


def solved(b: Builder, a: Array, c: Array, lower: bool | None = None, trans: bool = False) -> Array:
    """x of ``a x = c``; of a triangular a if it is told which, or of its transpose."""
    if lower is None:
        return result(b, calling(b, "solve", (a, c), (trans,)))
    return result(b, calling(b, "solve_triangular", (a, c), (lower, trans)))


# --- what they mean -------------------------------------------------------------------------------


def _or_nan(matrices: np.ndarray, f: Callable[[np.ndarray], Any], shapes: Any) -> Any:
    """A function of a batch that gives NaN instead of an error."""
    try:
        return f(matrices)
    except np.linalg.LinAlgError:
        return [np.full(shape, np.nan, matrices.dtype) for shape in shapes]


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of matrices, in pieces that OpenBLAS does in the thread that calls it.

    Larger ones it does by threads that spin, which on a busy machine takes a hundred times as long.
    """
    if max(*a.shape[-2:], b.shape[-1]) > MODERATE:
        return a @ b
    rows, terms, columns = (range(0, n, BLOCK) for n in (*a.shape[-2:], b.shape[-1]))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*batch, a.shape[-2], b.shape[-1]), a.dtype)
    for i, j, k in itertools.product(rows, columns, terms):
        left, right = a[..., i : i + BLOCK, k : k + BLOCK], b[..., k : k + BLOCK, j : j + BLOCK]
        total[..., i : i + BLOCK, j : j + BLOCK] += left @ right
    return total


def _factor(a: np.ndarray) -> np.ndarray:
    """The Cholesky factor, by blocks of columns where a matrix is of moderate size."""
    n = a.shape[-1]
    if n <= BLOCK or n > MODERATE:
        return np.linalg.cholesky(a)
    factor = np.zeros_like(a)
    for start in range(0, n, BLOCK):
        block, below = slice(start, start + BLOCK), slice(start + BLOCK, n)
        known = factor[..., start:, :start]
        rest = a[..., start:, block] - _product(known, known[..., :BLOCK, :].mT)
        factor[..., block, block] = top = np.linalg.cholesky(rest[..., :BLOCK, :])
        if start + BLOCK < n:
            factor[..., below, block] = np.linalg.solve(top, rest[..., BLOCK:, :].mT).mT
    return factor


def _cholesky(a: np.ndarray) -> list[np.ndarray]:
    return _or_nan(a, lambda x: [_factor(x)], [a.shape])


def _solve(a: np.ndarray, c: np.ndarray, trans: bool) -> list[np.ndarray]:
    return _or_nan(a.mT if trans else a, lambda x: [np.linalg.solve(x, c)], [c.shape])


def _inv(a: np.ndarray) -> list[np.ndarray]:
    return _or_nan(a, lambda x: [np.linalg.inv(x)], [a.shape])


def solve_triangular(a: np.ndarray, c: np.ndarray, lower: bool, trans: bool) -> list[np.ndarray]:
    """x of ``a x = c``, or of ``a.T x = c``, by blocks of rows (forward or back substitution)."""
    n, x = a.shape[-1], np.array(c)
    matrices = (np.tril if lower else np.triu)(a)
    if trans:
        matrices = matrices.mT
    forward = lower != trans
    starts = range(0, n, BLOCK)
    for start in starts if forward else reversed(starts):
        block = slice(start, start + BLOCK)
        known = slice(0, start) if forward else slice(start + BLOCK, n)
        right = x[..., block, :] - _product(matrices[..., block, known], x[..., known, :])
        x[..., block, :] = _solve(matrices[..., block, block], right, False)[0]
    return [x]


def _qr(a: np.ndarray) -> list[np.ndarray]:
    q, r = np.linalg.qr(a)
    return [q, r]


def _eigh(a: np.ndarray) -> list[np.ndarray]:
    *batch, n = a.shape[:-1]
    shapes = (*batch, n), a.shape
    return _or_nan(a, lambda x: list(np.linalg.eigh(x)), shapes)


def _svd(a: np.ndarray) -> list[np.ndarray]:
    *batch, m, n = a.shape
    k = min(m, n)
    shapes = (*batch, m, k), (*batch, k), (*batch, k, n)
    return _or_nan(a, lambda x: list(np.linalg.svd(x, full_matrices=False)), shapes)


def _pinv(a: np.ndarray, rcond: float | None) -> list[np.ndarray]:
    """The pseudo-inverses, and the ranks: of singular values up to ``rcond`` of the largest."""
    *batch, m, n = a.shape
    u, s, v = _svd(a)
    least = max(m, n) * np.finfo(a.dtype).eps if rcond is None else rcond
    counts = s > least * s.max(-1, keepdims=True, initial=0.0)
    inverses = np.divide(1.0, s, out=np.zeros_like(s), where=counts)
    inverses[np.isnan(s)] = np.nan
    return [(v.mT * inverses[..., None, :]) @ u.mT, counts.sum(-1).reshape(batch)]


def _slogdet(a: np.ndarray) -> list[np.ndarray]:
    return list(np.linalg.slogdet(a))


def _det(a: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(np.linalg.det(a))]


def _cofactors(a: np.ndarray) -> list[np.ndarray]:
    """The derivatives of determinants by elements: by inverses, or of ill conditions by an SVD."""
    with np.errstate(all="ignore"):
        inverses = _inv(a)[0]
        conditions = np.linalg.norm(a, axis=(-2, -1)) * np.linalg.norm(inverses, axis=(-2, -1))
        if np.all(conditions < WELL_CONDITIONED):
            return [np.asarray(np.linalg.det(a))[..., None, None] * inverses.mT]
    u, s, v = _svd(a)
    return [_handedness(u, v) * (u * _products_but_one(s)[..., None, :]) @ v]


def _cofactor_slopes(a: np.ndarray, g: np.ndarray) -> list[np.ndarray]:
    """The derivatives of sum(g cofactors): those of diagonal matrices, in the bases of an SVD."""
    u, s, v = _svd(a)
    eye = np.eye(s.shape[-1], dtype=bool)
    but_two = _products_but_one(np.where(eye, 1.0, s[..., None, :]).astype(a.dtype))
    inner = u.mT @ g @ v.mT
    diagonal = np.diagonal(inner, axis1=-2, axis2=-1)[..., None, :] @ np.where(eye, 0.0, but_two)
    slopes = np.where(eye, diagonal, -(inner * but_two).mT).astype(a.dtype)
    return [_handedness(u, v) * u @ slopes @ v]


def _products_but_one(s: np.ndarray) -> np.ndarray:
    """The products of all numbers along the last axis but each."""
    ahead, behind = np.ones_like(s), np.ones_like(s)
    ahead[..., 1:] = np.cumprod(s, -1)[..., :-1]
    behind[..., :-1] = np.cumprod(s[..., ::-1], -1)[..., -2::-1]
    return ahead * behind


def _handedness(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The determinants of products of orthogonal matrices, 1 or -1."""
    return np.asarray(np.linalg.det(u) * np.linalg.det(v))[..., None, None]


def _expm(a: np.ndarray) -> list[np.ndarray]:
    return [dense.of_numbers(a)]


def _argsort(a: np.ndarray) -> list[np.ndarray]:
    return [np.argsort(a, -1, kind="stable")]


# --- cotangents -----------------------------------------------------------------------------------
# Giles, 2008, "Collected matrix derivative results for forward and reverse mode algorithmic
# differentiation"; Murray, 2016, "Differentiation of the Cholesky decomposition"; Seeger, Hetzel,
# Dai and Lawrence, 2017, "Auto-differentiating linear algebra" (QR, symmetric eigenvalues).


def _pull_cholesky(b: Builder, call: Call, _: int, g: Array) -> Sequence[Array]:
    """L' P(L.T g) L^-1, call symmetric: P takes the lower half, half of the diagonal."""
    factor = result(b, call)
    inner = below(b, multiplied(b, transposed(b, factor), g), half=True)
    left = solved(b, factor, inner, lower=True, trans=True)
    whole = transposed(b, solved(b, factor, transposed(b, left), lower=True, trans=True))
    return [scaled(b, added(b, whole, transposed(b, whole)), 0.5)]


def _pull_solve(b: Builder, call: Call, _: int, g: Array) -> Sequence[Array]:
    a, (trans,), x = call.operands[0], call.options, result(b, call)
    of_c = solved(b, a, g, trans=not trans)
    pair = (x, of_c) if trans else (of_c, x)
    return [scaled(b, multiplied(b, pair[0], transposed(b, pair[1])), -1.0), of_c]


def _pull_triangular(b: Builder, call: Call, _: int, g: Array) -> Sequence[Array]:
    a, (lower, trans), x = call.operands[0], call.options, result(b, call)
    of_c = solved(b, a, g, lower, not trans)
    pair = (x, of_c) if trans else (of_c, x)
    whole = scaled(b, multiplied(b, pair[0], transposed(b, pair[1])), -1.0)
    if lower:
        return [below(b, whole), of_c]
    return [transposed(b, below(b, transposed(b, whole))), of_c]


def _pull_inv(b: Builder, call: Call, _: int, g: Array) -> Sequence[Array]:
    inverse = transposed(b, result(b, call))
    return [scaled(b, multiplied(b, multiplied(b, inverse, g), inverse), -1.0)]


def _pull_pinv(b: Builder, call: Call, _: int, g: Array) -> Sequence[Array]:
    """-P.T g P.T + (I - a P) g.T P P.T + P.T P g.T (I - P a), where the rank does not change.

    Golub and Pereyra, 1973, "The differentiation of pseudo-inverses and nonlinear least squares
    problems whose variables separate".
    """
    a, p = call.operands[0], result(b, call)
    back, turned = transposed(b, p), transposed(b, g)
    total = scaled(b, chained(b, back, g, back), -1.0)
    left, right = chained(b, turned, p, back), chained(b, back, p, turned)
    for piece in (left, right):
        total = added(b, total, piece)
    for piece in (chained(b, a, p, left), chained(b, right, p, a)):
        total = added(b, total, scaled(b, piece, -1.0))
    return [total]


def _pull_slogdet(b: Builder, call: Call, k: int, g: Array) -> Sequence[Array | None]:
    if k == 0:
        return [None]
    (a,) = call.operands
    inverse = result(b, calling(b, "inv", (a,)))

    def element(z: Sequence[int], i: int, j: int) -> int:
        return b.apply(ops.mul, b.element(g, z), b.element(inverse, (*z, j, i)))

    return [matrix(b, a.shape, element)]


def _pull_det(b: Builder, call: Call, _: int, g: Array) -> Sequence[Array]:
    (a,) = call.operands
    cofactors = result(b, calling(b, "cofactors", (a,)))
    return [elementwise(b, lambda i, x: b.apply(ops.mul, b.element(g, i[:-2]), x), cofactors)]


def _pull_cofactors(b: Builder, call: Call, _: int, g: Array) -> Sequence[Array]:
    return [result(b, calling(b, "cofactor_slopes", (call.operands[0], g)))]


def _pull_cofactor_slopes(b: Builder, call: Call, _: int, h: Array) -> Sequence[Array]:
    """By g they are symmetric; by a those of sum(g C) W - C g.T W with W = a^-T, regular."""
    a, g = call.operands
    cofactors = result(b, calling(b, "cofactors", (a,)))
    w = transposed(b, result(b, calling(b, "inv", (a,))))

    def along(x: Array, y: Array, z: Array) -> Array:
        """sum(x y) z of each matrix."""

        def element(index: Sequence[int], own: int) -> int:
            at = [b.counter(n) for n in x.shape[-2:]]
            bound = (*index[:-2], *b.indices(at))
            term = b.apply(ops.mul, b.element(x, bound), b.element(y, bound))
            return b.apply(ops.mul, b.reduce("add", at, term), own)

        return elementwise(b, element, z)

    of_c = chained(b, h, transposed(b, w), g)
    of_c = added(b, along(h, w, g), scaled(b, of_c, -1.0))
    of_w = chained(b, g, transposed(b, cofactors), h)
    of_w = added(b, along(g, cofactors, h), scaled(b, of_w, -1.0))
    through_w = scaled(b, chained(b, w, transposed(b, of_w), w), -1.0)
    through_c = result(b, calling(b, "cofactor_slopes", (a, of_c)))
    return [added(b, through_c, through_w), result(b, calling(b, "cofactor_slopes", (a, h)))]


def _pull_eigh(b: Builder, call: Call, k: int, g: Array) -> Sequence[Array]:
    values, vectors = result(b, call, 0), result(b, call, 1)
    back, zero, one = transposed(b, vectors), b.graph.constant(0.0), b.graph.constant(1.0)
    if k == 0:

        def scaled_column(z: Sequence[int], i: int, j: int) -> int:
            return b.apply(ops.mul, b.element(vectors, (*z, i, j)), b.element(g, (*z, j)))

        return [multiplied(b, matrix(b, vectors.shape, scaled_column), back)]

    def over_gap(index: Sequence[int], x: int) -> int:
        *z, i, j = index
        same = b.same(i, j)
        gap = b.apply(ops.sub, b.element(values, (*z, j)), b.element(values, (*z, i)))
        safe = b.graph.add(ops.where, same, one, gap)
        return b.graph.add(ops.where, same, zero, b.apply(ops.div, x, safe))

    inner = elementwise(b, over_gap, multiplied(b, back, g))
    whole = multiplied(b, multiplied(b, vectors, inner), back)
    return [scaled(b, added(b, whole, transposed(b, whole)), 0.5)]


def _pull_qr(b: Builder, call: Call, k: int, g: Array) -> Sequence[Array]:
    q, r = result(b, call, 0), result(b, call, 1)
    if k == 0:
        square = scaled(b, multiplied(b, transposed(b, g), q), -1.0)
    else:
        square = multiplied(b, r, transposed(b, g))
    half = below(b, square, half=True)
    left = multiplied(b, q, added(b, half, transposed(b, half)))
    if k == 0:
        left = added(b, left, g)
    solution = solved(b, r, transposed(b, left), lower=False)
    return [transposed(b, solution)]


def _pull_svd(b: Builder, call: Call, k: int, g: Array) -> Sequence[Array]:
    u, s, v = (result(b, call, i) for i in range(3))
    if k == 0:
        return [_of_singular_vectors(b, u, s, v, g)]
    if k == 2:
        v, u, g = (transposed(b, x) for x in (v, u, g))
        return [transposed(b, _of_singular_vectors(b, v, s, u, g))]

    def scaled_column(z: Sequence[int], i: int, j: int) -> int:
        return b.apply(ops.mul, b.element(u, (*z, i, j)), b.element(g, (*z, j)))

    return [multiplied(b, matrix(b, u.shape, scaled_column), v)]


def _of_singular_vectors(b: Builder, u: Array, s: Array, v: Array, g: Array) -> Array:
    """(u (F * (u.T g - g.T u)) s + (I - u u.T) g / s) v, with F_ij = 1 / (s_j^2 - s_i^2).

    Townsend, 2016, "Differentiating the singular value decomposition".
    """
    inner = multiplied(b, transposed(b, u), g)
    zero, one = b.graph.constant(0.0), b.graph.constant(1.0)

    def over_gap(index: Sequence[int], x: int, y: int) -> int:
        *z, i, j = index
        own, other = b.element(s, (*z, j)), b.element(s, (*z, i))
        gap = b.apply(ops.mul, *(b.apply(op, own, other) for op in (ops.sub, ops.add)))
        safe = b.graph.add(ops.where, b.same(i, j), one, gap)
        slope = b.apply(ops.div, b.apply(ops.mul, b.apply(ops.sub, x, y), own), safe)
        return b.graph.add(ops.where, b.same(i, j), zero, slope)

    left = multiplied(b, u, elementwise(b, over_gap, inner, transposed(b, inner)))
    if u.shape[-2] > u.shape[-1]:

        def outside(index: Sequence[int], x: int, y: int) -> int:
            size = b.element(s, (*index[:-2], index[-1]))
            return b.apply(ops.div, b.apply(ops.sub, x, y), size)

        left = added(b, left, elementwise(b, outside, g, multiplied(b, u, inner)))
    return multiplied(b, left, v)


def _pull_expm(b: Builder, call: Call, _: int, g: Array) -> Sequence[Array]:
    """The derivative of expm at a.T in the direction g: a block of expm([[a.T, g], [0, a.T]]).

    Najfeld and Havel, 1995, "Derivatives of the matrix exponential and their computation".
    """
    (a,) = call.operands
    *batch, n = a.shape[:-1]
    zero = b.graph.constant(0.0)

    def block(z: Sequence[int], i: int, j: int) -> int:
        down, right = (b.opposite(b.below(k, b.number(n))) for k in (i, j))
        row, column = (b.divide(k, n)[1] for k in (i, j))
        of_a = b.element(a, (*z, column, row))
        same = b.both(down, right)
        upper = b.graph.add(ops.where, right, b.element(g, (*z, row, column)), of_a)
        lower = b.graph.add(ops.where, same, of_a, zero)
        return b.graph.add(ops.where, down, lower, upper)

    whole = result(b, calling(b, "expm", (matrix(b, (*batch, 2 * n, 2 * n), block),)))
    return [matrix(b, a.shape, lambda z, i, j: b.element(whole, (*z, i, b.plus(j, offset=n))))]


def _of_svd(a: Shape) -> tuple[Shape, ...]:
    *batch, m, n = a
    k = min(m, n)
    return (*batch, m, k), (*batch, k), (*batch, k, n)


def _of_pinv(a: Shape, _: float | None) -> tuple[Shape, ...]:
    *batch, m, n = a
    return (*batch, n, m), (*batch,)


def _of_qr(a: Shape) -> tuple[Shape, ...]:
    return a, (*a[:-2], a[-1], a[-1])


ALGORITHMS: Final[dict[str, Algorithm]] = {
    a.name: a
    for a in (
        Algorithm("cholesky", _cholesky, lambda a: (a,), "f", _pull_cholesky),
        Algorithm("solve", _solve, lambda a, c, _: (c,), "f", _pull_solve),
        Algorithm(
            "solve_triangular", solve_triangular, lambda a, c, *_: (c,), "f", _pull_triangular
        ),
        Algorithm("inv", _inv, lambda a: (a,), "f", _pull_inv),
        Algorithm("slogdet", _slogdet, lambda a: (a[:-2], a[:-2]), "ff", _pull_slogdet),
        Algorithm("det", _det, lambda a: (a[:-2],), "f", _pull_det),
        Algorithm("cofactors", _cofactors, lambda a: (a,), "f", _pull_cofactors),
        Algorithm(
            "cofactor_slopes", _cofactor_slopes, lambda a, _: (a,), "f", _pull_cofactor_slopes
        ),
        Algorithm("eigh", _eigh, lambda a: (a[:-1], a), "ff", _pull_eigh),
        Algorithm("qr", _qr, _of_qr, "ff", _pull_qr),
        Algorithm("svd", _svd, _of_svd, "fff", _pull_svd),
        Algorithm("pinv", _pinv, _of_pinv, "fi", _pull_pinv),
        Algorithm("expm", _expm, lambda a: (a,), "f", _pull_expm),
        Algorithm("argsort", _argsort, lambda a: (a,), "i"),
    )
}
"""By their names."""
