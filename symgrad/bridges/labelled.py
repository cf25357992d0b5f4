"""Curves in an array of xarray: their data as NumPy's, and results as a dataset of xarray."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from symgrad.bridges.tables import in_blocks
from symgrad.errors import InputError

PARAM = "param"
"""The dimension of the parameters, as ``DataArray.curvefit`` names it."""


COVARIANCE = "cov_i", "cov_j"
"""Those of the covariance."""


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
        asked = set(places if dim is None else [dim] if isinstance(dim, str) else dim)
        if unknown := sorted(asked - set(array.dims)):
            raise InputError(f"dim names {unknown}: the array has {list(array.dims)}")
        along = tuple(d for d in array.dims if d in asked)
        kept = tuple(d for d in array.dims if d not in asked)
        if taken := sorted({PARAM, *COVARIANCE} & set(kept)):
            raise InputError(
                f"the array has the dimension {taken[0]!r}, which results have of their own: "
                f"array.rename({taken[0]}=...)"
            )
        return Labelled(array.transpose(*kept, *along), along, kept)

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

    def x(self, given: Any) -> np.ndarray:
        """What `fit_many` takes as x: (M,) or (k, M), or (S, M) or (S, k, M) of each curve."""
        places = [_numbers(_coordinate(self.array, name), name) for name in _names(given)]
        own = any(set(place.dims) & set(self.kept) for place in places)
        found = [self._spread(place, own) for place in places]
        return found[0] if isinstance(given, str) else np.stack(found, axis=-2)

    def sigma(self, given: Any) -> Any:
        """Deviations as a number, (M,) or (S, M)."""
        if not is_labelled(given):
            return given
        self._require_known(given, "sigma", (*self.kept, *self.along))
        return self._spread(given, bool(set(given.dims) & set(self.kept)))

    def starts(self, given: Any, names: Sequence[str]) -> Any:
        """Starts as `fit_many` takes them: those of a ``DataArray`` are (S, n), or (S,) by name.

        ``names`` are those of the parameters, in order.
        """
        if isinstance(given, Mapping):
            return {name: self._each(value) for name, value in given.items()}
        if not is_labelled(given):
            return given
        if PARAM not in given.dims:
            raise InputError(f"p0 has the dimensions {list(given.dims)}: {PARAM!r} is needed")
        each = {str(k.item()): given.isel({PARAM: i}) for i, k in enumerate(given[PARAM])}
        if PARAM in given.coords and set(each) != set(names):
            return {name: self._each(one) for name, one in each.items()}
        order = names if PARAM in given.coords else each
        return np.stack([self._each(each[name]) for name in order], axis=-1)

    def dataset(self, found: Any, names: Sequence[str], covariance: bool) -> Any:
        """What `fit_many` found, with the coordinates of the curves."""
        dims = self.kept
        each = {"fun": found.fun, "nit": found.nit, "success": found.success}
        each["status"] = found.status
        wide = {"parameters": found.x, "errors": np.sqrt(np.einsum("sii->si", found.cov))}
        variables = {name: (dims, self._folded(values)) for name, values in each.items()}
        variables |= {k: ((*dims, PARAM), self._folded(v)) for k, v in wide.items()}
        coords = {k: c for k, c in self.array.coords.items() if not set(c.dims) & set(self.along)}
        coords[PARAM] = list(names)
        if covariance:
            variables["covariance"] = (*dims, *COVARIANCE), self._folded(found.cov)
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

    def _at(self, given: Any, dims: Sequence[str]) -> np.ndarray:
        """Numbers at all places along dimensions of the array, by their labels."""
        labels = self.array.indexes
        for d in set(given.dims) & set(labels) & set(given.indexes):
            found = given.indexes[d].get_indexer(labels[d])
            if given.indexes[d].is_unique and (found < 0).any():
                missing = labels[d][found < 0][0]
                raise InputError(f"{given.name or 'an array'} has no value at {d} = {missing!r}")
            if given.indexes[d].is_unique:
                given = given.isel({d: found})
        sizes = {d: self.array.sizes[d] for d in dims}
        if wrong := [d for d in given.dims if given.sizes[d] != sizes[d]]:
            raise InputError(
                f"{given.name or 'an array'} has {given.sizes[wrong[0]]} values along "
                f"{wrong[0]!r}: {sizes[wrong[0]]} are needed"
            )
        axes = [d for d in dims if d in given.dims]
        values = given.variable.transpose(*axes).values
        values = values.reshape([sizes[d] if d in axes else 1 for d in dims])
        return np.broadcast_to(values, list(sizes.values()))

    def _each(self, value: Any) -> Any:
        """A number, or one of each curve, (S,)."""
        if not is_labelled(value):
            return value
        self._require_known(value, "p0", self.kept)
        return self._at(value, self.kept).ravel()

    def _require_known(self, given: Any, what: str, dims: Sequence[str]) -> None:
        if unknown := sorted(set(given.dims) - set(dims)):
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
        known = ", ".join(sorted(map(str, {*array.coords, *array.dims})))
        raise InputError(f"x names {name!r}: the array has the coordinates {known}")
    return array[name]


def _numbers(place: Any, name: str) -> Any:
    if place.dtype.kind not in "biuf":
        raise InputError(
            f"the coordinate {name!r} holds {place.dtype}: numbers are needed; of times, such as "
            f"(array.{name} - array.{name}[0]) / np.timedelta64(1, 'D'), by assign_coords"
        )
    return place.reset_coords(drop=True)
