"""The table of NumPy's functions on arrays of expressions; those that whole arrays have otherwise.

The functions that both have are in `compositions` and `reductions`, the ufuncs in `numpy_calls`.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, counted
from symgrad.expr import ops
from symgrad.expr.calls.compositions import COMPOSITIONS, take, where
from symgrad.expr.calls.reductions import REDUCTIONS
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.tracers.along import reduce
from symgrad.expr.tracers.array import array, call, holds_expressions, map_elements, plain
from symgrad.expr.tracers.expression import as_real
from symgrad.lazy import linalg

INTERPOLATIONS: Final = ("linear", "cubic")
"""How `table` interpolates."""


# --- by indices and conditions ------------------------------------------------------------------


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """np.take_along_axis, also at indices that are expressions."""
    if not holds_expressions(indices):
        return array(np.take_along_axis(plain(arr), plain(indices).astype(np.intp), axis))
    if axis is None:
        return take(arr, array(indices).reshape(-1))
    lines, places = (np.moveaxis(array(x), axis, -1) for x in (arr, indices))
    lead = np.broadcast_shapes(lines.shape[:-1], places.shape[:-1])
    elements = np.empty((*lead, places.shape[-1]), dtype=object)
    for k in np.ndindex(*lead):
        line, at = (np.broadcast_to(plain(x), (*lead, x.shape[-1]))[k] for x in (lines, places))
        elements[k] = plain(take(line, at))
    return np.moveaxis(array(elements), -1, axis)


def heaviside(x: Any, middle: Any) -> Any:
    """np.heaviside of one element; its derivative is 0."""
    x, middle = as_real(x), as_real(middle)
    middle_or_nan = call(ops.where, x == 0.0, middle, call(ops.stop_gradient, x))
    step = call(ops.where, x < 0.0, 0.0, middle_or_nan)
    return call(ops.where, x > 0.0, 1.0, step)


def any_of(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """np.any: of conditions, or of what is not 0."""
    return reduce(operator.or_, map_elements(_truth, a), axis, keepdims)


def all_of(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """np.all."""
    return reduce(operator.and_, map_elements(_truth, a), axis, keepdims)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """np.count_nonzero, as a float."""
    ones = map_elements(lambda v: call(ops.where, _truth(v), 1.0, 0.0), a)
    return reduce(operator.add, ones, axis, keepdims)


def _truth(v: Any) -> Any:
    if isinstance(v, Handle):
        return v if v.graph.type(v.id) == "b" else ops.ne(v, 0.0)
    return bool(v)


# --- by order -------------------------------------------------------------------------------------


def sort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """np.sort, by a network of exchanges: NaN come last."""
    a = plain(a).ravel() if axis is None else plain(a)
    rows = np.moveaxis(a, -1 if axis is None else axis, -1).astype(object)
    rows = rows.copy()
    for index in np.ndindex(rows.shape[:-1]):
        rows[index] = _sorted(list(rows[index]))
    return array(np.moveaxis(rows, -1, -1 if axis is None else axis))


def _sorted(values: list[Any]) -> list[Any]:
    for i, j in exchanges(len(values)):
        a, b = values[i], values[j]
        out_of_order = b < a
        if not (isinstance(a, Handle) and a.is_integer):
            out_of_order = call(ops.logical_or, out_of_order, call(ops.isnan, a))
        values[i], values[j] = where(out_of_order, b, a), where(out_of_order, a, b)
    return values


def exchanges(n: int) -> Iterator[tuple[int, int]]:
    """Batcher's merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M)."""
    top = 1 << max(n - 1, 0).bit_length() >> 1
    p = top
    while p:
        q, r, d = top, 0, p
        while d:
            for i in range(n - d):
                if i & p == r:
                    yield i, i + d
            d, q, r = q - p, q >> 1, p
        p >>= 1


# --- by place in a table --------------------------------------------------------------------------


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None
) -> Any:
    """Piecewise linear interpolation, as np.interp: ``fp`` at ``xp``, between them a line.

    The derivative by x is the slope of the line, 0 beyond the ends; at a point it is that of the
    line to its right.

    Args:
        x: expressions or numbers, of any shape.
        xp: the points (k,), numbers that increase.
        fp: the values there (k,), numbers or expressions.
        left: the value below the first point; by default that of the first point.
        right: likewise above the last one.
        period: the length after which the points come again.

    Raises:
        InputError: if the points are expressions, do not increase, or are not as many as values.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> y = sg.interp(x, [0.0, 1.0, 3.0], [10.0, 20.0, 0.0])
        >>> sg.evaluate([y, sg.grad(y, x)], {x: 2.0})
        array([ 10., -10.])
    """
    points, values = points_of(xp), plain(fp).astype(object)
    if period is not None:
        points, order = np.unique(points % period, return_index=True)
        values = values[order]
        points = np.concatenate([[points[-1] - period], points, [points[0] + period]])
        values = np.concatenate([values[-1:], values, values[:1]])
        x = map_elements(lambda v: v % period, x)
    require_table(points, values)
    low = values[0] if left is None else left
    high = values[-1] if right is None else right
    pieces = [_line(*s) for s in zip(points, points[1:], values, values[1:], strict=False)]
    return map_elements(lambda v: _outside(v, points, low, high, piece_of(v, points, pieces)), x)


def _line(x0: float, x1: float, y0: Any, y1: Any) -> tuple[Any, ...]:
    """A piece's point of origin and its coefficients, the constant one first."""
    return x0, y0, (y1 - y0) * (1.0 / (x1 - x0))


def table(values: Any, low: float, high: float, kind: str = "linear") -> Callable[[Any], Any]:
    """A function that interpolates values on a regular grid from ``low`` to ``high``.

    ``kind`` "linear" joins them by lines; "cubic" by the spline with two continuous derivatives
    whose outer pieces are one ("not-a-knot"), as ``scipy.interpolate.CubicSpline``. Beyond the ends
    the value is that of the end, and the derivative 0.

    Args:
        values: the values (k,), numbers or expressions; at least 2, for a cubic at least 4.
        low: where the first value stands.
        high: where the last one stands.
        kind: "linear" or "cubic".

    Raises:
        InputError: for too few values, ``low >= high``, or another kind.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> sine = sg.table(np.sin(np.linspace(0, 6, 61)), 0.0, 6.0, "cubic")
        >>> kernel = sg.fused_forward_backward(1, lambda v: sine(v[0]), device="cpu")
        >>> loss, slope = kernel.run([1.0])
        >>> round(loss, 5), round(float(slope[0]), 4)
        (0.84147, 0.5403)
    """
    if kind not in INTERPOLATIONS:
        raise InputError(f"kind={kind!r}: use {' or '.join(map(repr, INTERPOLATIONS))}")
    ordinates = plain(values).astype(object)
    if not low < high or ordinates.ndim != 1 or len(ordinates) < (4 if kind == "cubic" else 2):
        raise InputError(
            f"{counted(len(ordinates), 'value')} from {low} to {high}: a table needs low < high "
            "and a one-dimensional array of at least 2 values, or 4 for a cubic"
        )
    points = np.linspace(low, high, len(ordinates))
    if kind == "linear":
        return functools.partial(interp, xp=points, fp=ordinates)
    pieces = _cubics(points, ordinates)
    return lambda x: map_elements(
        lambda v: _outside(v, points, ordinates[0], ordinates[-1], piece_of(v, points, pieces)), x
    )


def _cubics(points: np.ndarray, values: np.ndarray) -> list[tuple[Any, ...]]:
    """The pieces of the cubic spline, whose slopes at the points are linear in the values."""
    h = points[1] - points[0]
    numbers = not any(isinstance(v, Handle) for v in values)
    slopes = plain(_slopes(len(values)) / h @ (values.astype(float) if numbers else array(values)))
    rises = [(b - a) * (1.0 / h) for a, b in itertools.pairwise(values)]
    pieces: list[tuple[Any, ...]] = []
    for k, rise in enumerate(rises):
        first, last = slopes[k], slopes[k + 1]
        second = (3.0 * rise - 2.0 * first - last) * (1.0 / h)
        third = (first + last - 2.0 * rise) * (1.0 / h**2)
        pieces.append((points[k], values[k], first, second, third))
    return pieces


def _slopes(n: int) -> np.ndarray:
    """The matrix from the values of a not-a-knot spline with steps of 1 to its slopes (n, n)."""
    left, right = np.zeros((n, n)), np.zeros((n, n))
    for k in range(1, n - 1):
        left[k, k - 1 : k + 2] = 1.0, 4.0, 1.0
        right[k, [k - 1, k + 1]] = -3.0, 3.0
    left[0, :2], right[0, :3] = (1.0, 2.0), (-2.5, 2.0, 0.5)
    left[-1, -2:], right[-1, -3:] = (2.0, 1.0), (-0.5, -2.0, 2.5)
    return np.linalg.solve(left, right)


def points_of(xp: Any) -> np.ndarray:
    """The points of a table, which are numbers.

    Raises:
        InputError: for an expression.
    """
    points = plain(xp)
    if points.dtype == object and any(isinstance(p, Handle) for p in points.flat):
        raise InputError(
            located("the points of a table must be numbers; only its values may be expressions")
        )
    return points.astype(float)


def require_table(points: np.ndarray, values: np.ndarray) -> None:
    """Require points that increase, and as many values.

    Raises:
        InputError: for anything else.
    """
    if points.ndim != 1 or points.shape != values.shape or not len(points):
        raise InputError(
            located(f"points {points.shape} and values {values.shape} must be as many, in a row")
        )
    if not np.all(np.diff(points) > 0):
        raise InputError(located("the points of a table must increase"))


def _outside(x: Any, points: np.ndarray, low: Any, high: Any, inside: Any) -> Any:
    below = call(ops.where, x < points[0], low, inside)
    return call(ops.where, x > points[-1], high, below)


def piece_of(x: Any, points: np.ndarray, pieces: Sequence[tuple[Any, ...]]) -> Any:
    """The polynomial of the piece that x lies in, at x."""
    if not pieces:  # a single point
        return x * 0.0
    origin, *coefficients = (
        _option_at(x, points[1:-1], list(c)) for c in zip(*pieces, strict=True)
    )
    offset = x - origin
    return functools.reduce(lambda y, c: y * offset + c, reversed(coefficients))


def _option_at(x: Any, cuts: np.ndarray, options: list[Any]) -> Any:
    """The option of the interval between cuts that x lies in, by halving."""
    if len(options) == 1:
        return options[0]
    half = len(options) // 2
    below = _option_at(x, cuts[: half - 1], options[:half])
    above = _option_at(x, cuts[half:], options[half:])
    if (
        below is above
        or not (isinstance(below, Handle) or isinstance(above, Handle))
        and below == above
    ):
        return below
    return call(ops.where, x < cuts[half - 1], below, above)


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """np.searchsorted of expressions in numbers that increase: how many of these are below."""
    points = points_of(a)
    points = points if sorter is None else points[sorter]
    counts: list[Any] = [float(k) for k in range(len(points) + 1)]

    def count_below(x: Any, low: int, high: int) -> Any:
        if low == high:
            return counts[low]
        half = (low + high) // 2
        beyond = x <= points[half] if side == "left" else x < points[half]
        return call(ops.where, beyond, count_below(x, low, half), count_below(x, half + 1, high))

    return map_elements(lambda x: count_below(x, 0, len(points)), v)


def _last(a: Any, axis: int) -> Any:
    return array(np.moveaxis(plain(a), axis, -1))


def _apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    rows = _last(arr, axis)
    results = [plain(func1d(rows[k], *args, **kwargs)) for k in np.ndindex(rows.shape[:-1])]
    whole = np.stack([f.astype(object) for f in results]).reshape(
        rows.shape[:-1] + results[0].shape
    )
    return array(np.moveaxis(whole, -1, axis) if results[0].ndim else whole)[()]


def _blocks(arrays: Any) -> Any:
    """The blocks that np.block puts together: its lists are places, and no arrays themselves."""
    nested = isinstance(arrays, list)
    return [_blocks(a) for a in arrays] if nested else plain(arrays)


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = (
    COMPOSITIONS
    | REDUCTIONS
    | {
        np.block: lambda arrays: array(np.block(_blocks(arrays))),
        np.any: any_of,
        np.all: all_of,
        np.count_nonzero: count_nonzero,
        np.take_along_axis: take_along_axis,
        np.sort: sort,
        np.interp: interp,
        np.searchsorted: searchsorted,
        np.apply_along_axis: _apply_along_axis,
        np.linalg.solve: lambda a, b: linalg.solve(a, b),
        np.linalg.inv: lambda a: linalg.inv(a),
        np.linalg.det: lambda a: linalg.det(a),
        np.linalg.slogdet: lambda a: linalg.slogdet(a),
        np.linalg.cholesky: lambda a, /, *, upper=False: linalg.cholesky(a, upper=upper),
        np.linalg.eigh: lambda a, UPLO="L": linalg.eigh(a, UPLO),
        np.linalg.eigvalsh: lambda a, UPLO="L": linalg.eigvalsh(a, UPLO),
        np.linalg.lstsq: lambda a, b, rcond=None: linalg.lstsq(a, b, rcond),
    }
)
"""NumPy's functions, for expressions."""

JOINS: Final = {np.concatenate, np.stack, np.hstack, np.vstack, np.dstack, np.column_stack}
"""Functions that take a list of arrays."""

MOVES: Final = JOINS | {
    np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.squeeze, np.expand_dims,
    np.split, np.put, np.array_split, np.hsplit, np.vsplit, np.dsplit, np.atleast_1d, np.atleast_2d,
    np.atleast_3d, np.tile, np.repeat, np.roll, np.flip, np.flipud, np.fliplr, np.rot90, np.diag,
    np.diagflat, np.diagonal, np.compress, np.fill_diagonal,
    np.broadcast_to, np.broadcast_arrays, np.shape, np.ndim, np.size, np.copy, np.append,
    np.delete, np.insert, np.zeros_like, np.ones_like, np.full_like, np.empty_like, np.tril,
    np.triu, np.meshgrid, np.array_repr, np.array_str, np.array2string, np.result_type, np.rollaxis,
    np.copyto, np.put_along_axis, np.putmask, np.may_share_memory, np.shares_memory, np.resize,
    np.pad, np.linalg.diagonal, np.linalg.matrix_transpose, np.matrix_transpose, np.iscomplexobj,
    np.isrealobj, np.lib.stride_tricks.sliding_window_view,
}  # fmt: skip
"""Functions that only move elements, and so are right for any objects."""
