"""Columns that hold no numbers: labels and dates, and the numbers that stand for them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.values.arrays import real_numbers

DAY: Final = np.timedelta64(1, "D")

CONVERTED: Final = "numpy.asarray({}, float)"
"""How text becomes numbers."""

MOST_LABELS_LISTED: Final = 5
"""Labels that an error lists, at most."""


@dataclass(eq=False)
class Codes(Mapping[str, Any]):
    """The meaning of the codes of columns, from the first table on that a kernel has read.

    For a column of labels it has an array of them: label k is number k. For one of dates it has the
    date that is 0, from which days are counted. Kernels to which it is given as ``codes=`` share
    it: whichever reads a column first says what its codes are.
    """

    known: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)

    def __repr__(self) -> str:
        return repr(self.known)

    def declare(self, name: str, labels: Any) -> None:
        """Say beforehand what a column holds: all its labels in order, or the date that is 0."""
        if isinstance(labels, (np.datetime64, datetime.date)):
            self.known[name] = np.datetime64(labels)
            return
        if not isinstance(labels, Iterable):
            raise InputError(
                f"columns={{{name!r}: {labels!r}}}: labels in a list, the date that is 0, or the "
                "shape of an array, such as (3,), is needed"
            )
        array = np.asarray(labels if isinstance(labels, np.ndarray) else list(labels))
        if array.ndim != 1 or not array.size or len(set(array.tolist())) < len(array):
            raise InputError(f"columns={{{name!r}: ...}}: different labels, in a list, are needed")
        self.known[name] = array

    def numbers(
        self, name: str, values: Any, quantity: bool = False, shape: tuple[int, ...] = ()
    ) -> np.ndarray:
        """A column as real numbers (N, *shape), those that are missing as NaN.

        Of labels these are codes, which are no ``quantity`` that could be computed with.

        Raises:
            InputError: for another shape, and for a label that was in no table before.
            InputTypeError: for objects, for labels as a quantity, and for text that reads as
            numbers.
        """
        if type(values) is np.ndarray and values.dtype.kind in "fiub":
            require_shape(name, values.shape, shape)
            return values
        categories = _categories(values)
        if categories is not None:
            labels, codes = categories
            require_shape(name, codes.shape, shape)
            if quantity:
                _refuse_quantity(
                    name, labels[codes[codes >= 0]].tolist(), np.flatnonzero(codes >= 0)
                )
            self.known.setdefault(name, labels)
            return self._again(name, labels, codes)
        array = _plain(values, name, len(shape))
        require_shape(name, array.shape, shape)
        if array.dtype.kind in "mM":
            return self._days(name, array)
        if array.dtype.kind in "US" or _holds(array, str):
            return self._labelled(name, array, quantity)
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

    def _labelled(self, name: str, array: np.ndarray, quantity: bool) -> np.ndarray:
        """The codes of a column of labels, NaN where one is missing."""
        missing = np.array([_is_missing(v) for v in array.ravel().tolist()], bool)
        missing = missing.reshape(array.shape)
        texts = array[~missing].astype(str if array.dtype.kind != "S" else "S")
        if quantity:
            _refuse_quantity(name, texts.tolist(), np.nonzero(~missing)[0])
        labels, codes = np.unique(texts, return_inverse=True)
        numeral = next((text for text in labels.tolist() if _is_numeral(text)), None)
        if name not in self.known and numeral is not None:
            raise InputTypeError(
                f"{name} holds text that reads as a number, {numeral!r}: convert it beforehand, by "
                f"{CONVERTED.format(name)}; or, if these are labels, name all of them in order, by "
                f"columns={{{name!r}: [...]}} with None for other columns"
            )
        self.known.setdefault(name, labels)
        column = np.full(array.shape, np.nan)
        column[~missing] = self._again(name, labels, codes)
        return column

    def _again(self, name: str, labels: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The numbers of labels, as they were when the column was first read; NaN below 0."""
        numbers = {label: k for k, label in enumerate(self.known[name].tolist())}
        new = [label for label in labels.tolist() if label not in numbers]
        used = set(labels[np.unique(codes[codes >= 0])].tolist())
        if used & set(new):
            label = next(label for label in new if label in used)
            some = ", ".join(map(repr, [*numbers][:MOST_LABELS_LISTED])) + ", ..." * (
                len(numbers) > MOST_LABELS_LISTED
            )
            raise InputError(
                f"{name} holds {label!r}, which is not among the labels so far, {some}: name them "
                f"all beforehand, by columns={{{name!r}: [...]}} with None for other columns"
            )
        place = np.array([numbers.get(label, -1) for label in labels.tolist()], np.float64)
        return np.append(place, np.nan)[codes]  # -1 is the last


def _is_numeral(text: Any) -> bool:
    """Whether a text reads as a number."""
    try:
        return bool(np.isfinite(float(text)))
    except (TypeError, ValueError):
        return False


def _refuse_quantity(name: str, texts: Sequence[Any], rows: np.ndarray) -> None:
    """Refuse labels where numbers are computed with."""
    numerals = [_is_numeral(text) for text in texts]
    if not any(numerals):
        shown = f"{texts[0]!r} at row {rows[0]}, " if texts else ""
        raise InputTypeError(
            f"{name} holds labels, {shown}and is computed with: the numbers that stand for labels "
            f"are no quantities; compare them, as in sg.where(row.{name} == 1, 1.0, 0.0), take "
            f"parameters by them, as in p.levels[row.{name}], or give a column of numbers"
        )
    if all(numerals):
        raise InputTypeError(
            f"{name} holds text, {texts[0]!r} at row {rows[0]}, and is computed with: convert it "
            f"beforehand, by {CONVERTED.format(name)}"
        )
    k = numerals.index(False)
    raise InputTypeError(
        f"{name} holds text, {texts[k]!r} at row {rows[k]}, which is not a number, and is computed "
        f'with: convert it beforehand, as by pandas.to_numeric({name}, errors="coerce"), which '
        'makes NaN of such text, and use nan_policy="omit"'
    )


def _categories(values: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """The labels and codes of a pandas categorical; None for anything else."""
    accessor = getattr(values, "cat", values)
    codes, labels = getattr(accessor, "codes", None), getattr(accessor, "categories", None)
    if codes is None or labels is None:
        return None
    return np.asarray(labels), np.asarray(codes)


def require_shape(name: str, actual: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Refuse a column of a shape other than (N, *shape)."""
    if actual[1:] == shape and actual:
        return
    axes = ", ".join(map(str, shape))
    declaration = f"columns={{{name!r}: {shape or actual[1:]}}}"
    raise InputError(
        f"{name} has shape {actual}: "
        + (f"(N, {axes}) is needed, as {declaration} says" if shape else "(N,) is needed")
        + (f", or {declaration} for an array at each row" if actual[1:] and not shape else "")
    )


def _plain(values: Any, name: str, axes: int) -> np.ndarray:
    """The values as an array of rows of ``axes`` axes; dates with a zone as those of UTC."""
    if getattr(getattr(values, "dtype", None), "tz", None) is not None:
        values = values.dt.tz_convert("UTC").dt.tz_localize(None)
    if isinstance(values, np.ma.MaskedArray):
        return real_numbers(values, name, missing=True)
    try:
        array = np.asarray(values)
        if axes and array.ndim == 1 and array.dtype.kind == "O":  # an object for each row
            array = np.array([np.asarray(row) for row in array])
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is not a column of numbers: {error}") from error
    if _holds(array, datetime.date):
        dates = [None if _is_missing(v) else v for v in array.ravel()]
        return np.array(dates, "datetime64[us]").reshape(array.shape)
    return array


def _holds(array: np.ndarray, kind: type) -> bool:
    """Whether objects are all of a kind, or missing."""
    if array.dtype.kind != "O":
        return False
    present = [v for v in array.ravel() if not _is_missing(v)]
    return bool(present) and all(isinstance(v, kind) for v in present)


def _is_missing(value: Any) -> bool:
    plain = value is None or type(value).__name__ in ("NAType", "NaTType")
    return plain or (isinstance(value, float) and value != value)


def _require_numbers(array: np.ndarray, name: str) -> None:
    """Refuse objects that are neither numbers nor missing, by the first of them."""
    numbers = (bool, int, float, np.number, np.bool_)
    for (row, *_), value in np.ndenumerate(array):
        if not (_is_missing(value) or isinstance(value, numbers)):
            mixed = " beside numbers" if isinstance(value, str) else ""
            raise InputTypeError(
                f"{name} holds objects, {value!r} at row {row}{mixed}: a column holds numbers, "
                "booleans, strings, categories or dates"
            )


def declared(
    columns: Any, shared: Any = None
) -> tuple[Sequence[str], Mapping[str, tuple[int, ...]], Codes]:
    """The names in ``columns=``, their shapes, and what stands for labels and dates.

    ``codes=`` says the latter too, and ``columns=`` the shapes that are not ().

    Codes of a kernel are shared; those of columns that there are none of do not matter.
    """
    codes = shared if isinstance(shared, Codes) else Codes()
    if shared is not None and shared is not codes:
        if not isinstance(shared, Mapping):
            raise InputTypeError(
                f"codes={shared!r}: a mapping from columns to their labels is needed, such as "
                "another kernel's codes"
            )
        for name, labels in shared.items():
            codes.declare(name, labels)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, what in columns.items() if isinstance(columns, Mapping) else ():
        if _is_shape(what):
            shapes[name] = tuple(map(int, what))
        elif what is not None:
            codes.declare(name, what)
    if any(size < 1 for shape in shapes.values() for size in shape):
        raise InputError(f"columns={columns!r}: an array has at least 1 number along each axis")
    names: Iterable[str] = (columns,) if isinstance(columns, str) else columns
    return tuple(names), shapes, codes


def _is_shape(what: Any) -> bool:
    """Whether it is a tuple of whole numbers; labels are in a list."""
    return isinstance(what, tuple) and all(
        isinstance(size, (int, np.integer)) and not isinstance(size, bool) for size in what
    )
