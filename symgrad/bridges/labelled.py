"""Curves in an array of xarray: their data as NumPy's, and results as a dataset of xarray."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from symgrad.bridges.cluster import in_blocks
from symgrad.errors import InputError

PARAM = "param"
"""The dimension of the parameters, as ``DataArray.curvefit`` names it."""


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
        return Labelled(array.transpose(*kept, *along), along, kept)

    @property
    def count(self) -> int:
        """How many curves there are."""
        return int(np.prod([self.array.sizes[d] for d in self.kept], dtype=int))

    @property
    def curves(self) -> Any:
        """All curves, (S, M), in blocks of Dask's if the array is."""
        return self.array.data.reshape(self.count, -1)

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

    def starts(self, given: Any) -> Any:
        """Starts as `fit_many` takes them: those of a ``DataArray`` are (S, n), or (S,) by name."""
        if isinstance(given, Mapping):
            return {name: self._each(value) for name, value in given.items()}
        if not is_labelled(given):
            return given
        if PARAM not in given.dims:
            raise InputError(f"p0 has the dimensions {list(given.dims)}: {PARAM!r} is needed")
        return np.stack([self._each(one) for one in given.transpose(PARAM, ...)], axis=-1)

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
            variables["covariance"] = (*dims, "cov_i", "cov_j"), self._folded(found.cov)
            coords |= {"cov_i": list(names), "cov_j": list(names)}
        order = "parameters", "errors", "covariance", "fun", "success", "status", "nit"
        data = {name: variables[name] for name in order if name in variables}
        return import_module("xarray").Dataset(data, coords, self.array.attrs)

    def _folded(self, values: Any) -> Any:
        flat = values if in_blocks(values) else np.asarray(values)
        return flat.reshape([self.array.sizes[d] for d in self.kept] + list(flat.shape[1:]))

    def _spread(self, place: Any, own: bool) -> np.ndarray:
        """Numbers along some dimensions, at all of those that are fitted, or at all there are."""
        like = self.array if own else self.array.isel(dict.fromkeys(self.kept, 0), drop=True)
        dims = (*self.kept, *self.along) if own else self.along
        values = place.broadcast_like(like).transpose(*dims).values
        return values.reshape(self.count, -1) if own else values.ravel()

    def _each(self, value: Any) -> Any:
        """A number, or one of each curve, (S,)."""
        if not is_labelled(value):
            return value
        self._require_known(value, "p0", self.kept)
        value = value.reset_coords(drop=True)
        first = self.array.isel(dict.fromkeys(self.along, 0), drop=True)
        return value.broadcast_like(first).transpose(*self.kept).values.ravel()

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
