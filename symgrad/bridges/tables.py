"""Collections of Dask's as blocks of rows, and the blocks of several that belong together."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.values.codes import require_shape


def dask() -> Any:
    """Dask, which is installed where there are collections of its own."""
    return import_module("dask")


def dask_arrays() -> Any:
    """Dask's arrays."""
    return import_module("dask.array")


def in_blocks(value: Any) -> bool:
    """Whether this is a collection of Dask's, or a dict with some."""
    if "dask" not in sys.modules:
        return False
    values = value.values() if isinstance(value, Mapping) else (value,)
    return any(hasattr(type(v), "to_delayed") for v in values)


def array_of(collection: Any) -> Any:
    """A collection of Dask's as an array, also a data frame or a column of it."""
    return collection.to_dask_array() if hasattr(collection, "to_dask_array") else collection


def by_rows(array: Any) -> Any:
    """The array in blocks that are cut along the first axis only."""
    return array.rechunk(dict.fromkeys(range(1, array.ndim), -1))


def parts(array: Any) -> list[Any]:
    """The blocks of such an array, each as a delayed array."""
    return list(array.to_delayed().ravel())


def aligned(value: Any, like: Any, name: str) -> list[Any]:
    """The part of a value for each block of ``like``: its rows, of an array of as many rows.

    Raises:
        InputError: for another number of rows, or blocks of unknown lengths that do not match.
    """
    lengths = like.chunks[0]
    cut = in_blocks(value)
    value = by_rows(array_of(value)) if cut else value
    own = value.chunks[0] if cut else [len(value)]
    if np.isnan([*lengths, *own]).any():
        if cut and len(own) == len(lengths):
            return parts(value)
        raise InputError(
            f"blocks of unknown lengths, and {name} is not cut as they are: compute_chunk_sizes() "
            "finds the lengths, or give Dask's arrays in the same blocks"
        )
    if sum(own) != sum(lengths):
        raise InputError(f"{name} has {sum(own)} rows beside {sum(lengths)} in the other blocks")
    if cut:
        return parts(value if own == lengths else value.rechunk({0: lengths}))
    ends = np.cumsum((0, *lengths))
    return [value[a:b] for a, b in pairwise(ends)]


def tables_of(rows: Any, shapes: Mapping[str, tuple[int, ...]]) -> list[Any]:
    """The blocks of a table, each as a delayed table.

    ``shapes`` are those of columns at a row.

    Raises:
        InputError: for what is no table, and for columns that do not go together.
    """
    if isinstance(rows, Mapping):
        return _tables_of_columns(rows, shapes)
    if not hasattr(rows, "chunks"):
        return list(rows.to_delayed())
    if rows.ndim != 2:
        raise InputError(f"rows have {rows.ndim} dimensions: an array of (rows, columns) is needed")
    return parts(by_rows(rows))


def _tables_of_columns(
    columns: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> list[Any]:
    """The blocks of columns, cut as the first of Dask's is, each as a delayed dict."""
    arrays = {k: array_of(c) if in_blocks(c) else np.asarray(c) for k, c in columns.items()}
    for name, array in arrays.items():
        require_shape(name, array.shape, shapes.get(name, array.shape[1:]))
    like = next(array for array in arrays.values() if in_blocks(array))
    cut = [aligned(array, like, f"column {name!r}") for name, array in arrays.items()]
    return [
        dask().delayed(dict)(list(zip(columns, blocks, strict=True)))
        for blocks in zip(*cut, strict=True)
    ]
