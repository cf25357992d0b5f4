"""The table of NumPy's functions on arrays of expressions: reductions, differences, and all others.

Functions that take more than a line stand here, in `compositions`, `numpy_choices` and `einsum`;
the ufuncs are in `numpy_calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.expr.calls import numpy_choices as choices
from symgrad.expr.calls.compositions import COMPOSITIONS
from symgrad.expr.calls.reductions import REDUCTIONS
from symgrad.expr.tracers.array import array, plain
from symgrad.lazy import linalg

# --- along an axis --------------------------------------------------------------------------------


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
        np.any: choices.any_of,
        np.all: choices.all_of,
        np.count_nonzero: choices.count_nonzero,
        np.choose: choices.choose,
        np.take_along_axis: choices.take_along_axis,
        np.sort: choices.sort,
        np.interp: choices.interp,
        np.searchsorted: choices.searchsorted,
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
