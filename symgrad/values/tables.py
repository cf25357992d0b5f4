"""Tables of data, whole or block by block, with columns of numbers, labels or dates.

A table is an array, a structured array, a dict or a data frame.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, get_args

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr.tracers.tree import Block, Tree
from symgrad.expr.tracing.trace import require_feasible
from symgrad.values.arrays import host_dtype, real_numbers, warn_if_rounded

# Columns that hold no numbers: labels and dates, and the numbers that stand for them.

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


NanPolicy = Literal["propagate", "raise", "omit"]

NAN_POLICIES: Final = get_args(NanPolicy)
"""The policies for rows in which a number is NaN, in SciPy's words."""


Reduce = Literal["sum", "mean"]
"""The reductions of the losses of all rows."""

ColumnNames = Sequence[str] | Mapping[str, Any]
"""Names of columns; or for each of them the shape of its array at a row, what its codes stand for,
see `Codes`, or None."""


@dataclass(frozen=True)
class Columns:
    """The columns of a row, and where its ``count`` numbers stand in them.

    Without names each number is a column. A column with a name may be an array, of the shape that
    ``tree`` has: its numbers stand in C order. ``indices`` are the numbers that are indices.
    """

    count: int
    tree: Tree | None = None
    indices: tuple[int, ...] = ()
    codes: Codes = field(default_factory=Codes, compare=False)
    """The codes of the labels and dates of columns that hold no numbers."""
    quantities: tuple[int, ...] = ()
    """The numbers that are computed with, other than by comparisons and as indices."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of columns, if they have any."""
        return self.tree.keys if self.tree else None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The columns with names, and where the numbers of each stand."""
        return self.tree.blocks if self.tree else ()

    @property
    def numbers(self) -> list[int]:
        """The numbers that are no indices."""
        return [k for k in range(self.count) if k not in self.indices]

    def column(self, name: str) -> Block:
        """The column of this name."""
        return self.blocks[(self.names or ()).index(name)]

    def holding(self, k: int) -> Block:
        """The column with a name that a number stands in."""
        return next(b for b in self.blocks if b.start <= k < b.start + b.size)

    def describe(self, k: int) -> str:
        """How a user knows a number of a row."""
        return self._described[k]

    @cached_property
    def _described(self) -> tuple[str, ...]:
        """How a user knows each number of a row."""
        if not self.tree:
            return tuple(f"column {k}" for k in range(self.count))
        names: list[str] = []
        for column in self.blocks:
            for place in np.ndindex(column.shape):
                where = f"[{', '.join(map(str, place))}]" if place else ""
                names.append(repr(column.name) + where)
        return tuple(names)

    def real(self, column: Block, values: Any) -> np.ndarray:
        """A column of a table, as an array (N, numbers): see `Codes.numbers`."""
        is_quantity = any(0 <= k - column.start < column.size for k in self.quantities)
        numbers = self.codes.numbers(column.name, values, is_quantity, column.shape)
        return numbers.reshape(len(numbers), column.size)


def columns_of(row: Any, columns: Any, codes: Any = None) -> Columns:
    """The columns for ``row=`` or ``columns=``, of which one is given, and ``codes=``."""
    if columns is None:
        if codes is not None:
            raise InputError("codes= are of columns with names: give columns= too")
        if row is None:
            raise InputError("a loss over data needs row=, the number of columns, or columns=")
        if isinstance(row, bool) or not isinstance(row, (int, np.integer)) or row < 1:
            raise InputError(f"row={row!r}: a row has at least 1 column")
        require_feasible(int(row))
        return Columns(int(row))
    if row is not None:
        raise InputError("row= and columns= say the same: give one of them")
    return _named_columns(columns, codes)


def _named_columns(columns: Any, codes: Any) -> Columns:
    """The columns of ``columns=``, each an identifier, once."""
    names, shapes, codes = declared(columns, codes)
    if not names or not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise InputError(f"columns={columns!r}: names of columns, each an identifier")
    if len(set(names)) != len(names):
        raise InputError(f"columns={columns!r}: a name comes twice")
    arrays = [shapes.get(name, ()) for name in names]
    tree = Tree("dict", tuple(names), tuple(Tree("array", s) if s else Tree() for s in arrays))
    require_feasible(tree.size)
    return Columns(tree.size, tree, codes=codes)


def _is_block(rows: Any) -> bool:
    """Whether it is a table itself, in a list of them."""
    if isinstance(rows, Mapping):
        return any(np.ndim(values) for values in rows.values())
    return isinstance(rows, np.ndarray) and rows.ndim > 1 or hasattr(rows, "columns")


def is_table(rows: Any) -> bool:
    """Whether it is one table, rather than an iterator of blocks."""
    return (
        isinstance(rows, (np.ndarray, Mapping, list, tuple))
        or hasattr(rows, "columns")
        or hasattr(rows, "__array__")
    )


def blocks_of(rows: Any, size: int) -> Iterator[Any]:
    """The blocks of an iterator of tables, or of one table, ``size`` rows each at most."""
    if not is_table(rows):
        if not hasattr(rows, "__iter__"):
            raise InputTypeError(f"rows is a table, or an iterator of tables, not {rows!r}")
        yield from rows
        return
    count = len_of(rows)
    for start in range(0, count, size):
        yield rows if count <= size else take(rows, start, start + size)
    if not count:
        yield rows


def len_of(rows: Any) -> int:
    """The number of rows of a table."""
    first = next(iter(rows.values()), ()) if isinstance(rows, Mapping) else rows
    try:
        return len(first)
    except TypeError as error:
        hint = "collect() it first" if hasattr(rows, "collect") else "arrays are needed"
        raise InputTypeError(f"rows, {type(rows).__name__}, has no length: {hint}") from error


def take(rows: Any, start: int, end: int) -> Any:
    """Some rows of a table."""
    if isinstance(rows, Mapping):
        return {name: values[start:end] for name, values in rows.items()}
    return rows[start:end]


def read(
    rows: Any, columns: Columns, dtype: str, policy: str, own: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """A table as arrays: numbers (N, count) of this dtype, and indices (N, indices) of int64.

    The numbers are the user's own array if it is fit for it, or always a copy if ``own``. Rows that
    hold a NaN are as the policy says.

    Warns of columns that this dtype rounds coarsely beside their spread: see `PrecisionWarning`.

    Raises:
        InputError: for columns that are missing, too many or of different lengths, for indices that
        are no whole numbers, and, by the policy, for a NaN.
        InputTypeError: for what holds no real numbers.
    """
    len_of(rows)  # refuses what only promises a table
    kind = host_dtype(dtype)
    parts = _columns_by_name(rows, columns) if columns.names else [_by_number(rows, columns)]
    starts = list(itertools.accumulate((part.shape[1] for part in parts), initial=0))
    indices = [
        whole(part[:, k - start], columns, k, policy)
        for k in columns.indices
        for start, part in zip(starts, parts, strict=False)
        if start <= k < start + part.shape[1]
    ]
    for start, part in zip(starts, parts, strict=False):
        warn_of_rounding(part, start, columns, dtype)
    with np.errstate(over="ignore"):
        if len(parts) > 1:
            numbers = np.empty((len(parts[0]), columns.count), kind)
            np.concatenate(parts, axis=1, out=numbers, casting="unsafe")
        elif own:
            numbers = np.array(parts[0], dtype=kind, order="C")
        else:
            numbers = np.ascontiguousarray(parts[0], dtype=kind)
    index_columns = np.stack(indices, axis=1) if indices else np.empty((len(numbers), 0), np.int64)
    return _screened(numbers, index_columns, policy, columns)


def warn_of_rounding(part: np.ndarray, start: int, columns: Columns, dtype: str) -> None:
    """Warn of numbers (N, k), those from ``start`` on, that this dtype rounds by much.

    There is one warning for a column.
    """
    if dtype != "float32" or part.dtype == np.float32:
        return
    warned = range(0)
    for k, values in enumerate(part.T, start):
        if k in warned or k in columns.indices:
            continue
        if warn_if_rounded(values, columns.describe(k), dtype) and columns.tree:
            column = columns.holding(k)
            warned = range(column.start, column.start + column.size)


def _by_number(rows: Any, columns: Columns) -> np.ndarray:
    """A table without names as an array of its columns."""
    if isinstance(rows, (list, tuple)) and len(rows) and _is_block(rows[0]):
        raise InputTypeError("rows is a list of tables: iter(rows) gives them one after another")
    try:
        table = real_numbers(rows, "rows", missing=True)
    except InputTypeError as error:
        raise InputTypeError(
            f"{error}; labels and dates are coded in columns with names: a dict or a data frame, "
            "and columns=[...]"
        ) from error
    if table.ndim == 1 and columns.count == 1:
        table = table[:, None]
    if table.ndim != 2 or table.shape[1] != columns.count:
        raise InputError(f"rows has shape {table.shape}: (N, {columns.count}) is needed")
    return table


def _columns_by_name(rows: Any, columns: Columns) -> Sequence[np.ndarray]:
    """The columns of a table with names, or all of them in one array without."""
    names = names_in(rows)
    if names is None:
        return [_by_number(rows, columns)]
    require_columns(columns, names)
    parts = [columns.real(column, rows[column.name]) for column in columns.blocks]
    require_equal_lengths(columns, parts)
    return parts


def require_columns(columns: Columns, names: Collection[Any]) -> None:
    """Refuse a table, with columns of these names, where one is missing."""
    for name in columns.names or ():
        if name not in names:
            has = ", ".join(map(str, names))
            raise InputError(f"rows has no column {name!r}: it has {has}")


def require_equal_lengths(columns: Columns, parts: Sequence[Any]) -> None:
    """Refuse columns of which some have more rows than others."""
    lengths = [len(part) for part in parts]
    if len(set(lengths)) > 1:
        named = dict(zip(columns.names or (), lengths, strict=True))
        raise InputError(f"columns differ in length: {named}")


def names_in(rows: Any) -> Sequence[str] | None:
    """The names of a table's columns; None if it has none."""
    if isinstance(rows, Mapping):
        return list(rows)
    if isinstance(rows, np.ndarray):
        return rows.dtype.names
    return list(rows.columns) if hasattr(rows, "columns") else None


def whole(values: np.ndarray, columns: Columns, k: int, policy: str) -> np.ndarray:
    """A column of indices; 0 for a NaN that the policy will meet with its row."""
    missing = np.isnan(values) if values.dtype.kind == "f" else np.False_
    if missing.any():
        if policy == "propagate":
            raise InputError(
                f"{columns.describe(k)} is an index, and NaN at row {int(np.argmax(missing))}: "
                'mend it, or use nan_policy="omit"'
            )
        values = np.where(missing, 0, values)
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    if not np.array_equal(whole, values):
        raise InputError(f"{columns.describe(k)} is an index: whole numbers are needed")
    return whole


def _screened(
    numbers: np.ndarray, indices: np.ndarray, policy: str, columns: Columns
) -> tuple[np.ndarray, np.ndarray]:
    """The rows, with those that hold a NaN, indices among them, as the policy says."""
    if policy == "propagate":
        return numbers, indices
    bad = np.isnan(numbers).any(axis=1)
    if not bad.any():
        return numbers, indices
    if policy == "raise":
        row = int(np.argmax(bad))
        column = columns.describe(int(np.argmax(np.isnan(numbers[row]))))
        raise InputError(
            f"{int(bad.sum())} rows hold a NaN, the first at row {row}, {column}: mend them, or "
            'use nan_policy="omit" or "propagate"'
        )
    return np.ascontiguousarray(numbers[~bad]), np.ascontiguousarray(indices[~bad])
