"""Columns that hold no numbers: labels and dates, and the numbers that stand for them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.values.arrays import real_numbers

DAY: Final = np.timedelta64(1, "D")

MOST_LABELS_LISTED: Final = 5
"""Labels that an error lists, at most."""


@dataclass
class Codes:
    """What the codes of columns stand for, from the first table on that a kernel has read.

    ``known`` has for a column of labels an array of them: label k is number k. For one of dates it
    has the date that is 0, from which days are counted.
    """

    known: dict[str, Any] = field(default_factory=dict)

    def declare(self, name: str, labels: Any) -> None:
        """Say beforehand what a column holds: all its labels in order, or the date that is 0."""
        if isinstance(labels, (np.datetime64, datetime.date)):
            self.known[name] = np.datetime64(labels)
            return
        found = np.asarray(labels if isinstance(labels, np.ndarray) else list(labels))
        if found.ndim != 1 or not found.size or len(set(found.tolist())) < len(found):
            raise InputError(f"columns={{{name!r}: ...}}: different labels, in a list, are needed")
        self.known[name] = found

    def numbers(self, name: str, values: Any) -> np.ndarray:
        """A column as real numbers, those that are missing as NaN.

        Raises:
            InputError: for a label that was in no table before. InputTypeError: for objects.
        """
        categories = _categories(values)
        if categories is not None:
            labels, codes = categories
            self.known.setdefault(name, labels)
            return self._again(name, labels, codes)
        array = _plain(values, name)
        if array.dtype.kind in "mM":
            return self._days(name, array)
        if array.dtype.kind in "US" or _holds(array, str):
            return self._labelled(name, array)
        if array.dtype.kind == "O":
            _require_numbers(array, name)
        return real_numbers(array, name, missing=True)

    def _days(self, name: str, array: np.ndarray) -> np.ndarray:
        """Days since the first date of the first table, or a duration in days."""
        if array.dtype.kind == "m":
            return array / DAY
        dates = array[~np.isnat(array)]
        if name not in self.known and dates.size:
            self.known[name] = dates.min()
        return (array - self.known.get(name, np.datetime64(0, "D"))) / DAY

    def _labelled(self, name: str, array: np.ndarray) -> np.ndarray:
        missing = np.array([_is_missing(v) for v in array.tolist()], bool)
        texts = array[~missing].astype(str if array.dtype.kind != "S" else "S")
        labels, codes = np.unique(texts, return_inverse=True)
        self.known.setdefault(name, labels)
        found = np.full(len(array), np.nan)
        found[~missing] = self._again(name, labels, codes)
        return found

    def _again(self, name: str, labels: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The numbers of labels, as they were when the column was first read; NaN below 0."""
        known = {label: k for k, label in enumerate(self.known[name].tolist())}
        new = [label for label in labels.tolist() if label not in known]
        used = set(labels[np.unique(codes[codes >= 0])].tolist())
        if used & set(new):
            label = next(label for label in new if label in used)
            some = ", ".join(map(repr, [*known][:MOST_LABELS_LISTED])) + ", ..." * (
                len(known) > MOST_LABELS_LISTED
            )
            raise InputError(
                f"{name} holds {label!r}, which is none of the labels so far, {some}: name them "
                f"all beforehand, by columns={{{name!r}: [...]}} with None for other columns"
            )
        place = np.array([known.get(label, -1) for label in labels.tolist()], np.float64)
        return np.append(place, np.nan)[codes]  # -1 is the last


def _categories(values: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """The labels and codes of a pandas categorical; None for anything else."""
    made = getattr(values, "cat", values)
    codes, labels = getattr(made, "codes", None), getattr(made, "categories", None)
    if codes is None or labels is None:
        return None
    return np.asarray(labels), np.asarray(codes)


def _plain(values: Any, name: str) -> np.ndarray:
    """The values as an array; dates with a zone as those of UTC."""
    if getattr(getattr(values, "dtype", None), "tz", None) is not None:
        values = values.dt.tz_convert("UTC").dt.tz_localize(None)
    if isinstance(values, np.ma.MaskedArray):
        return real_numbers(values, name, missing=True)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is no column of numbers: {error}") from error
    if _holds(array, datetime.date):
        return np.array([None if _is_missing(v) else v for v in array], "datetime64[us]")
    return array


def _holds(array: np.ndarray, kind: type) -> bool:
    """Whether objects are all of a kind, or missing."""
    if array.dtype.kind != "O" or array.ndim != 1:
        return False
    there = [v for v in array if not _is_missing(v)]
    return bool(there) and all(isinstance(v, kind) for v in there)


def _is_missing(value: Any) -> bool:
    plain = value is None or type(value).__name__ in ("NAType", "NaTType")
    return plain or (isinstance(value, float) and value != value)


def _require_numbers(array: np.ndarray, name: str) -> None:
    """Refuse objects that are neither numbers nor missing, by the first of them."""
    numbers = (bool, int, float, np.number, np.bool_)
    for row, value in enumerate(array.ravel()):
        if not (_is_missing(value) or isinstance(value, numbers)):
            mixed = " beside numbers" if isinstance(value, str) else ""
            raise InputTypeError(
                f"{name} holds objects, {value!r} at row {row}{mixed}: a column is of numbers, "
                "booleans, strings, categories or dates"
            )


def declared(columns: Any) -> tuple[Sequence[str], Codes]:
    """The names in ``columns=``, and what it says of those that hold labels or dates."""
    codes = Codes()
    if isinstance(columns, Mapping):
        for name, labels in columns.items():
            if labels is not None:
                codes.declare(name, labels)
    names: Iterable[str] = (columns,) if isinstance(columns, str) else columns
    return tuple(names), codes
