"""NumPy's products, linear algebra, and sorts, on whole arrays of any size."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.algorithms import ALGORITHMS
from symgrad.arrays.shapes import (
    axes_of,
    ravel,
    take_along_axis,
    whole,
)
from symgrad.arrays.tape import broadcast
from symgrad.arrays.views import broadcast_to, moveaxis, squeeze, swapaxes
from symgrad.arrays.whole import WholeArray
from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.calls.compositions import where
from symgrad.expr.calls.reductions import largest, total
from symgrad.expr.graph.misuse import located
from symgrad.expr.linear.einsum import lengths
from symgrad.expr.linear.matrices import powers

# NumPy's products of whole arrays, and lengths.


def contract(terms: Sequence[tuple[str, Any]], output: str) -> WholeArray:
    """A sum of products, by the letters of the operands' axes and of the result's.

    Of integers it is one, modulo 2**32, and of truths whether any product holds, as in NumPy.
    """
    inputs, operands = zip(*terms, strict=True)
    arrays = [whole(a, operands) for a in operands]
    sizes = lengths(list(zip(inputs, arrays, strict=True)))
    shape = tuple(sizes[c] for c in output)
    kinds = {a.kind for a in arrays}
    kind = "f" if "f" in kinds else "i"
    attribute = inputs, output, kind
    product = arrays[0].then(rules.contracted, attribute, shape, *arrays[1:], kind=kind)
    return product if kinds != {"b"} else product.astype(bool)


def matmul(a: Any, b: Any, /) -> WholeArray:
    """``a @ b``."""
    a, b = whole(a, b), whole(b, a)
    if not a.ndim or not b.ndim:
        raise ValueError("matmul needs arrays: use * to multiply by a number")
    if a.shape[-1] != b.shape[max(0, b.ndim - 2)]:
        raise ValueError(f"matmul: shapes {a.shape} and {b.shape} do not match")
    lead = "abcdefghij"
    batch = broadcast([a.shape[:-2], b.shape[:-2]]) if a.ndim > 1 and b.ndim > 1 else ()
    first = (
        lead[len(batch) - max(0, a.ndim - 2) : len(batch)] if batch else lead[: max(0, a.ndim - 2)]
    )
    second = (
        lead[len(batch) - max(0, b.ndim - 2) : len(batch)] if batch else lead[: max(0, b.ndim - 2)]
    )
    rows, columns = "x" * (a.ndim > 1), "z" * (b.ndim > 1)
    output = (first if len(first) > len(second) else second) + rows + columns
    return contract([(f"{first}{rows}y", a), (f"{second}y{columns}", b)], output)


def length(x: WholeArray, axis: Any, keepdims: bool) -> WholeArray:
    """The root of the sum of squares, scaled by a power of two: none overflows or vanishes.

    Its derivative is 0 at 0, as that of `numpy.linalg.norm` is here.
    """
    x, axes = x.astype(float), axes_of(x, axis)
    if not x.size:
        return total(abs(x), axes, keepdims=keepdims)
    size = largest(abs(x.mapped(ops.stop_gradient, (x,))), axes, keepdims=True)
    scaled = x * size.mapped(_up, (size,))
    squares = total(scaled * scaled, axes, keepdims=True)
    nothing = squares == 0.0
    root = where(nothing, 0.0, np.sqrt(where(nothing, 1.0, squares)))
    result = root * size.mapped(_down, (size,))
    return result if keepdims else squeeze(result, axes)


def _up(size: Any) -> Any:
    """The power of two by which a number of this size is near 1."""
    return powers(size)[0]


def _down(size: Any) -> Any:
    """The inverse of `_up`."""
    return powers(size)[1]


SLOGDET: Final[Any] = type(np.linalg.slogdet(np.eye(1)))
EIGH: Final[Any] = type(np.linalg.eigh(np.eye(1)))
QR: Final[Any] = type(np.linalg.qr(np.eye(1)))
NO_VALUE: Final = inspect.signature(np.linalg.pinv).parameters["rtol"].default
SVD: Final[Any] = type(np.linalg.svd(np.eye(1)))


def called(name: str, *operands: WholeArray, options: tuple[Any, ...] = ()) -> list[WholeArray]:
    """The results of an algorithm."""
    first, *others = (o.astype(float) if o.kind != "f" else o for o in operands)
    shapes = ALGORITHMS[name].shapes(*(o.shape for o in (first, *others)), *options)
    kinds = ALGORITHMS[name].kinds
    return [
        first.then(rules.called, (name, options, k), shape, *others, kind=kind)
        for k, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
    ]


def square(name: str, a: Any, *others: Any) -> WholeArray:
    """A batch of square matrices."""
    a = whole(a, *others)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise TraceError(located(f"linalg.{name} takes square matrices, not shape {a.shape}"))
    return a


def sides(name: str, a: Any, b: Any) -> tuple[WholeArray, WholeArray, bool]:
    """A matrix and right sides (.., n, m), of one batch; whether these are one vector."""
    a, b = square(name, a, b), whole(b, a)
    vector = b.ndim == 1
    right = b[:, None] if vector else b
    if right.ndim < 2 or right.shape[-2] != a.shape[-1]:
        raise TraceError(
            located(f"{name}: a has shape {a.shape} and b {b.shape}: b must be (n,) or (..., n, m)")
        )
    batch = np.broadcast_shapes(a.shape[:-2], right.shape[:-2])
    return (
        broadcast_to(a, (*batch, *a.shape[-2:])),
        broadcast_to(right, (*batch, *right.shape[-2:])),
        vector,
    )


def cholesky(a: Any, *, upper: bool = False) -> WholeArray:
    """np.linalg.cholesky."""
    (lower,) = called("cholesky", square("cholesky", a))
    return swapaxes(lower, -1, -2) if upper else lower


def solve(a: Any, b: Any) -> WholeArray:
    """np.linalg.solve."""
    a, right, vector = sides("solve", a, b)
    (x,) = called("solve", a, right, options=(False,))
    return x[..., 0] if vector else x


def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False, **_: Any
) -> WholeArray:
    """scipy.linalg.solve_triangular, of batches too."""
    a, right, vector = sides("solve_triangular", a, b)
    if unit_diagonal:
        eye = np.eye(a.shape[-1])
        a = np.where(eye == 1, 1.0, a)
    (x,) = called("solve_triangular", a, right, options=(bool(lower), trans in (1, "T", "C", 2)))
    return x[..., 0] if vector else x


def inv(a: Any) -> WholeArray:
    """np.linalg.inv."""
    return called("inv", square("inv", a))[0]


def slogdet(a: Any) -> Any:
    """np.linalg.slogdet."""
    return SLOGDET(*called("slogdet", square("slogdet", a)))


def det(a: Any) -> WholeArray:
    """np.linalg.det."""
    return called("det", square("det", a))[0]


def eigh(a: Any, UPLO: str = "L") -> Any:
    """np.linalg.eigh."""
    a = square("eigh", a)
    return EIGH(*called("eigh", a if UPLO.upper() == "L" else swapaxes(a, -1, -2)))


def eigvalsh(a: Any, UPLO: str = "L") -> WholeArray:
    """np.linalg.eigvalsh."""
    return eigh(a, UPLO)[0]


def qr(a: Any, mode: str = "reduced") -> Any:
    """np.linalg.qr, reduced."""
    a = whole(a)
    if a.ndim < 2 or mode not in ("reduced", "r"):
        raise TraceError(located(f"qr of shape {a.shape} in mode {mode!r}: use mode='reduced'"))
    m = a.shape[-2]
    q, r = called("qr", a[..., :m])
    if a.shape[-1] > m:  # whose factor Q is that of the first columns
        r = np.concatenate([r, swapaxes(q, -1, -2) @ a[..., m:]], axis=-1)
    return r if mode == "r" else QR(q, r)


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """np.linalg.svd: singular values, or reduced."""
    a = mirrored("svd", a) if hermitian else whole(a)
    if not compute_uv:
        return svdvals(a)
    if full_matrices and a.shape[-1] != a.shape[-2]:
        raise TraceError(located("svd with full matrices: use full_matrices=False"))
    return SVD(*called("svd", a))


def svdvals(x: Any) -> WholeArray:
    """np.linalg.svdvals."""
    return called("svd", whole(x))[1]


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> WholeArray:
    """np.linalg.pinv: singular values count as 0 up to the precision of their type, if not said."""
    return _pinv("pinv", a, rcond if _is_none(rtol) else rtol, hermitian)[0]


def mirrored(name: str, a: Any) -> WholeArray:
    """The symmetric matrices of which NumPy reads the lower triangles."""
    a = square(name, a)
    return where(np.tri(a.shape[-1]) > 0, a, swapaxes(a, -1, -2))


def _pinv(name: str, a: Any, rcond: Any = None, hermitian: bool = False) -> list[WholeArray]:
    """The pseudo-inverses, and the ranks."""
    a = mirrored(name, a) if hermitian else whole(a)
    if a.ndim < 2:
        raise TraceError(located(f"linalg.{name} takes matrices, not shape {a.shape}"))
    if _is_none(rcond) or (isinstance(rcond, float | int) and rcond < 0):
        return called("pinv", a, options=(None,))
    if not isinstance(rcond, float | int | np.number):
        raise TraceError(located(f"linalg.{name}: rcond={rcond!r} is to be one known number"))
    return called("pinv", a, options=(float(rcond),))


def _is_none(option: Any) -> bool:
    """Whether an option is not given: NumPy has a value that says so."""
    return option is None or option is NO_VALUE


def matrix_rank(
    A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None
) -> WholeArray:
    """np.linalg.matrix_rank."""
    a = whole(A)
    if a.ndim < 2:
        return np.any(a != 0).astype(int)
    if tol is None:
        return _pinv("matrix_rank", a, rtol, hermitian)[1]
    a = mirrored("matrix_rank", a) if hermitian else a
    return np.count_nonzero(svdvals(a) > np.asarray(tol)[..., None], axis=-1)


def cond(x: Any, p: Any = None) -> WholeArray:
    """np.linalg.cond."""
    x = whole(x)
    if p not in (None, 2, -2):
        result = np.linalg.norm(x, p, (-2, -1)) * np.linalg.norm(inv(x), p, (-2, -1))
    else:
        values = svdvals(x)
        first, last = values[..., 0], values[..., -1]
        result = last / first if p == -2 else first / last
    is_singular = np.isnan(result) & ~np.any(np.isnan(x), axis=(-2, -1))
    return where(is_singular, np.inf, result)


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """np.linalg.lstsq; the sums of squares are given of fewer ranks than columns, too."""
    a, b = whole(a, b), whole(b, a)
    if a.ndim != 2 or b.ndim not in (1, 2) or len(a) != len(b):
        raise TraceError(located(f"linalg.lstsq: shapes {a.shape} and {b.shape} do not match"))
    (m, n), right = a.shape, b[:, None] if b.ndim == 1 else b
    inverse, rank = _pinv("lstsq", a, rcond)
    x = inverse @ right
    left = total((a @ x - right) ** 2, 0) if m > n else total(right[:0], 1)
    return (x[:, 0] if b.ndim == 1 else x), left, rank, svdvals(a)


def expm(A: Any) -> WholeArray:
    """scipy.linalg.expm."""
    return called("expm", square("expm", A))[0]


# --- sorts ----------------------------------------------------------------------------------------


def argsort(a: Any, axis: int | None = -1, kind: Any = None, **_: Any) -> WholeArray:
    """np.argsort, stable."""
    a = ravel(whole(a)) if axis is None else whole(a)
    last = -1 if axis is None else axis
    (order,) = called("argsort", moveaxis(a, last, -1))
    return moveaxis(order, -1, last)


def lexsort(keys: Any, axis: int = -1) -> WholeArray:
    """np.lexsort: by the last of the keys, then the one before it, and so on."""
    first, *others = keys
    order = argsort(whole(first, *others), axis)
    for key in others:
        key = whole(key, order)
        order = take_along_axis(order, argsort(take_along_axis(key, order, axis), axis), axis)
    return order


def sort(a: Any, axis: int | None = -1, kind: Any = None, **_: Any) -> WholeArray:
    """np.sort: elements in the order of `argsort`, so derivatives go where they came from."""
    a = ravel(whole(a)) if axis is None else whole(a)
    last = -1 if axis is None else axis
    return take_along_axis(a, argsort(a, last), last)


TABLE: Final[dict[Any, Callable[..., Any]]] = {
    np.matmul: matmul,
    (np.matmul, "__call__"): matmul,
    "contract": contract,
    "length": length,
    np.linalg.cholesky: cholesky,
    np.linalg.solve: solve,
    np.linalg.inv: inv,
    np.linalg.det: det,
    np.linalg.slogdet: slogdet,
    np.linalg.eigh: eigh,
    np.linalg.eigvalsh: eigvalsh,
    np.linalg.qr: qr,
    np.linalg.svd: svd,
    np.linalg.svdvals: svdvals,
    np.linalg.lstsq: lstsq,
    np.linalg.pinv: pinv,
    np.linalg.matrix_rank: matrix_rank,
    np.linalg.cond: cond,
    np.argsort: argsort,
    np.lexsort: lexsort,
    np.sort: sort,
    "solve_triangular": solve_triangular,
    "expm": expm,
}
"""NumPy's functions on whole arrays."""
