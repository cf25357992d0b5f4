"""Data in the collections of other libraries: blocks of rows of Dask's, curves of xarray's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.values.tables import require_shape


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


def as_dask_array(collection: Any) -> Any:
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
    value = by_rows(as_dask_array(value)) if cut else value
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
    arrays = {k: as_dask_array(c) if in_blocks(c) else np.asarray(c) for k, c in columns.items()}
    for name, array in arrays.items():
        require_shape(name, array.shape, shapes.get(name, array.shape[1:]))
    like = next(array for array in arrays.values() if in_blocks(array))
    cut = [aligned(array, like, f"column {name!r}") for name, array in arrays.items()]
    return [
        dask().delayed(dict)(list(zip(columns, blocks, strict=True)))
        for blocks in zip(*cut, strict=True)
    ]


# Curves in an array of xarray.

PARAM = "param"
"""The dimension of the parameters, as ``DataArray.curvefit`` names it."""


COVARIANCE = "cov_i", "cov_j"
"""The dimensions of the covariance."""


def is_labelled(value: Any) -> bool:
    """Whether this is a ``DataArray``."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, xarray.DataArray)


@dataclass(frozen=True)
class Labelled:
    """A ``DataArray`` of curves along ``along``; its other dimensions, ``kept``, number them."""

    array: Any
    along: tuple[str, ...]
    kept: tuple[str, ...]

    @staticmethod
    def of(array: Any, x: Any, dim: str | Sequence[str] | None) -> Labelled:
        """The curves along ``dim``, or along the dimensions of the coordinates that x names."""
        places = [d for name in _names(x) for d in _coordinate(array, name).dims]
        chosen = set(places if dim is None else [dim] if isinstance(dim, str) else dim)
        if unknown := sorted(chosen - set(array.dims)):
            raise InputError(f"dim names {unknown}: the array has {list(array.dims)}")
        along = tuple(d for d in array.dims if d in chosen)
        remaining = tuple(d for d in array.dims if d not in chosen)
        if taken := sorted({PARAM, *COVARIANCE} & set(remaining)):
            raise InputError(
                f"the array has the dimension {taken[0]!r}, which results have of their own: "
                f"array.rename({taken[0]}=...)"
            )
        return Labelled(array.transpose(*remaining, *along), along, remaining)

    @property
    def count(self) -> int:
        """How many curves there are."""
        return int(np.prod([self.array.sizes[d] for d in self.kept], dtype=int))

    @property
    def _rows(self) -> int:
        return int(np.prod([self.array.sizes[d] for d in self.along], dtype=int))

    @property
    def curves(self) -> Any:
        """All curves, (S, M), in Dask blocks if the array is."""
        return self.array.data.reshape(self.count, self._rows)

    def x(self, names: Any) -> np.ndarray:
        """The x of `fit_many`: (M,) or (k, M), or (S, M) or (S, k, M) of each curve."""
        places = [_numbers(_coordinate(self.array, name), name) for name in _names(names)]
        own = any(set(place.dims) & set(self.kept) for place in places)
        coordinates = [self._spread(place, own) for place in places]
        return coordinates[0] if isinstance(names, str) else np.stack(coordinates, axis=-2)

    def sigma(self, deviations: Any) -> Any:
        """Deviations as a number, (M,) or (S, M)."""
        if not is_labelled(deviations):
            return deviations
        self._require_known(deviations, "sigma", (*self.kept, *self.along))
        return self._spread(deviations, bool(set(deviations.dims) & set(self.kept)))

    def starts(self, p0: Any, names: Sequence[str]) -> Any:
        """Starts as `fit_many` takes them: those of a ``DataArray`` are (S, n), or (S,) by name.

        ``names`` are those of the parameters, in order.
        """
        if isinstance(p0, Mapping):
            return {name: self._each(value) for name, value in p0.items()}
        if not is_labelled(p0):
            return p0
        if PARAM not in p0.dims:
            raise InputError(f"p0 has the dimensions {list(p0.dims)}: {PARAM!r} is needed")
        each = {str(k.item()): p0.isel({PARAM: i}) for i, k in enumerate(p0[PARAM])}
        if PARAM in p0.coords and set(each) != set(names):
            return {name: self._each(one) for name, one in each.items()}
        order = names if PARAM in p0.coords else each
        return np.stack([self._each(each[name]) for name in order], axis=-1)

    def dataset(self, fits: Any, names: Sequence[str], covariance: bool) -> Any:
        """The result of `fit_many`, with the coordinates of the curves."""
        dims = self.kept
        each = {"fun": fits.fun, "nit": fits.nit, "success": fits.success}
        each["status"] = fits.status
        wide = {"parameters": fits.x, "errors": np.sqrt(np.einsum("sii->si", fits.cov))}
        variables = {name: (dims, self._folded(values)) for name, values in each.items()}
        variables |= {k: ((*dims, PARAM), self._folded(v)) for k, v in wide.items()}
        coords = {k: c for k, c in self.array.coords.items() if not set(c.dims) & set(self.along)}
        coords[PARAM] = list(names)
        if covariance:
            variables["covariance"] = (*dims, *COVARIANCE), self._folded(fits.cov)
            coords |= {name: list(names) for name in COVARIANCE}
        order = "parameters", "errors", "covariance", "fun", "success", "status", "nit"
        data = {name: variables[name] for name in order if name in variables}
        return import_module("xarray").Dataset(data, coords, self.array.attrs)

    def _folded(self, values: Any) -> Any:
        flat = values if in_blocks(values) else np.asarray(values)
        return flat.reshape([self.array.sizes[d] for d in self.kept] + list(flat.shape[1:]))

    def _spread(self, place: Any, own: bool) -> np.ndarray:
        """Numbers along some dimensions, at all of those that are fitted, or at all there are."""
        dims = (*self.kept, *self.along) if own else self.along
        values = self._at(place, dims)
        return values.reshape(self.count, self._rows) if own else values.ravel()

    def _at(self, other: Any, dims: Sequence[str]) -> np.ndarray:
        """Numbers at all places along dimensions of the array, by their labels."""
        labels = self.array.indexes
        for d in set(other.dims) & set(labels) & set(other.indexes):
            positions = other.indexes[d].get_indexer(labels[d])
            if other.indexes[d].is_unique and (positions < 0).any():
                missing = labels[d][positions < 0][0]
                raise InputError(f"{other.name or 'an array'} has no value at {d} = {missing!r}")
            if other.indexes[d].is_unique:
                other = other.isel({d: positions})
        sizes = {d: self.array.sizes[d] for d in dims}
        if wrong := [d for d in other.dims if other.sizes[d] != sizes[d]]:
            raise InputError(
                f"{other.name or 'an array'} has {other.sizes[wrong[0]]} values along "
                f"{wrong[0]!r}: {sizes[wrong[0]]} are needed"
            )
        axes = [d for d in dims if d in other.dims]
        values = other.variable.transpose(*axes).values
        values = values.reshape([sizes[d] if d in axes else 1 for d in dims])
        return np.broadcast_to(values, list(sizes.values()))

    def _each(self, value: Any) -> Any:
        """A number, or one of each curve, (S,)."""
        if not is_labelled(value):
            return value
        self._require_known(value, "p0", self.kept)
        return self._at(value, self.kept).ravel()

    def _require_known(self, other: Any, what: str, dims: Sequence[str]) -> None:
        if unknown := sorted(set(other.dims) - set(dims)):
            raise InputError(f"{what} has the dimensions {unknown}: it may have {list(dims)}")


def _names(x: Any) -> Sequence[str]:
    named = isinstance(x, str) or (isinstance(x, Sequence) and all(isinstance(n, str) for n in x))
    if not named or not x:
        raise InputError(
            f"x is {type(x).__name__}: with an array of xarray, it is the name of the coordinate "
            'to fit along, such as "time", or a list of such names'
        )
    return [x] if isinstance(x, str) else x


def _coordinate(array: Any, name: str) -> Any:
    if name not in array.coords and name not in array.dims:
        names = ", ".join(sorted(map(str, {*array.coords, *array.dims})))
        raise InputError(f"x names {name!r}: the array has the coordinates {names}")
    return array[name]


def _numbers(place: Any, name: str) -> Any:
    if place.dtype.kind not in "biuf":
        raise InputError(
            f"the coordinate {name!r} holds {place.dtype}: numbers are needed; of times, such as "
            f"(array.{name} - array.{name}[0]) / np.timedelta64(1, 'D'), by assign_coords"
        )
    return place.reset_coords(drop=True)
