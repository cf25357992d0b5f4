"""Data whose x has columns with names, some of them arrays, and whose y may hold vectors.

Fits are of plain columns and of one number in each row: a vector of d numbers becomes d rows. Two
columns behind those of x say which point a row is of, and which entry of the vector.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from symgrad.bridges.cluster import device_here, kept, tree_sum
from symgrad.bridges.tables import aligned, as_dask_array, dask, dask_arrays, in_blocks, parts
from symgrad.errors import InputError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Handle
from symgrad.expr.tracers.tree import Block, Blocks, Tree
from symgrad.fit.curves import TravellingModel
from symgrad.fit.model import ROWS_SUMMED_FIRST, Rows, Shape, system, triangle
from symgrad.optimize.arguments import MISTAKES, as_given, real
from symgrad.optimize.result import Point
from symgrad.pipeline import DTypeName
from symgrad.targets import DeviceChoice
from symgrad.values.tables import columns_of, names_in

NanPolicy = Literal["raise", "omit"] | None


@dataclass(frozen=True)
class Refused:
    """The things that data may not hold."""

    check_finite: bool = True
    nan_policy: NanPolicy = None

    def __post_init__(self) -> None:
        if self.nan_policy not in (None, "raise", "omit"):
            raise InputError(f'nan_policy={self.nan_policy!r}: use None, "raise" or "omit"')


@dataclass(frozen=True, eq=False)
class Data:
    """x (k, M), or of another shape, y (M,), what residuals are divided by, and how f takes x."""

    x: np.ndarray
    y: np.ndarray
    scale: np.ndarray | None
    shape: Shape

    @classmethod
    def of(cls, xdata: Any, ydata: Any, sigma: Any, refused: Refused) -> Data:
        """The data, checked, without the rows that are to be left out.

        Raises:
            InputError: for data that do not fit together, or that are not finite.
        """
        x, y, shape = _taken(xdata, ydata, refused.check_finite, refused.nan_policy)
        x, y, scale = _omitted(x, y, _scale(sigma, len(y)), refused.nan_policy, shape)
        return cls(x, y, scale, shape)

    def rows(
        self,
        f: Callable[..., Any],
        n: int,
        mode: Mode,
        device: DeviceChoice,
        dtype: DTypeName,
    ) -> Rows:
        """The model of n parameters at these rows."""
        return Rows(f, self.x, self.y, self.scale, n, self.shape, device, dtype, mode=mode)


def _taken(
    xdata: Any, ydata: Any, check_finite: bool, nan_policy: str | None
) -> tuple[np.ndarray, np.ndarray, Shape]:
    """x as (k, M) if it is that, y as (M,), and how f takes x."""
    x, y = real(xdata, "xdata"), real(ydata, "ydata")
    if y.size == 0:
        raise InputError("`ydata` must not be empty!")
    if y.ndim != 1:
        raise InputError(
            f"xdata has shape {x.shape} and ydata {y.shape}: (M,) or (k, M), and (M,), are needed"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        _require_finite(x, y, check_finite, nan_policy)
    if x.ndim in (1, 2) and x.shape[-1] == len(y):
        return np.atleast_2d(x), y, "flat" if x.ndim == 1 else "columns"
    return x, y, "other"


def _require_finite(
    x: np.ndarray, y: np.ndarray, check_finite: bool, nan_policy: str | None
) -> None:
    """Refuse NaN and infinities, as far as that is asked for; in y they leave nothing to fit."""
    if nan_policy == "raise" and (np.isnan(x).any() or np.isnan(y).any()):
        raise InputError("The input contains nan values: nan_policy='omit' leaves those rows out")
    if (
        nan_policy != "omit"
        and check_finite
        and not (np.isfinite(x).all() and np.isfinite(y).all())
    ):
        raise InputError("array must not contain infs or NaNs; nan_policy='omit' leaves NaN out")
    if not (np.isfinite(y) | (np.isnan(y) & (nan_policy == "omit"))).all():
        raise InputError("ydata holds NaN or infinities; nan_policy='omit' leaves NaN out")


def _scale(sigma: Any, count: int) -> np.ndarray | None:
    """Deviations (M,), or the Cholesky factor (M, M) of a covariance."""
    if sigma is None:
        return None
    deviations = real(sigma, "sigma")
    if np.isnan(deviations).any() or (deviations.ndim < 2 and np.any(deviations == 0.0)):
        raise InputError("sigma holds NaN or 0: deviations are numbers other than 0")
    if deviations.size == 1:
        return np.full(count, deviations.item())
    if deviations.shape == (count,):
        return deviations
    if deviations.shape != (count, count):
        raise InputError("`sigma` has incorrect shape.")
    try:
        return np.linalg.cholesky(deviations)
    except np.linalg.LinAlgError as error:
        raise InputError("`sigma` must be positive definite.") from error


def _omitted(
    x: np.ndarray, y: np.ndarray, scale: np.ndarray | None, nan_policy: str | None, shape: Shape
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The data without rows that hold NaN, if these are to be left out."""
    if nan_policy != "omit":
        return x, y, scale
    rows = 0 if shape == "other" else -1
    if x.ndim == 0 or x.shape[rows] != len(y):
        raise InputError(f"nan_policy='omit' needs rows of xdata, and its shape is {x.shape}")
    keep = ~(np.isnan(np.moveaxis(x, rows, 0).reshape(len(y), -1)).any(axis=1) | np.isnan(y))
    if scale is not None and scale.ndim == 2:
        scale = np.linalg.cholesky((scale @ scale.T)[np.ix_(keep, keep)])
    elif scale is not None:
        scale = scale[keep]
    return np.compress(keep, x, axis=rows), y[keep], scale


# --- columns with names and vectors ---------------------------------------------------------------


@dataclass(frozen=True)
class DataForm:
    """The numbers at a point of the data: ``tree`` has the columns of x, None where x is no table.

    ``vector`` is the shape of y at one x, () for a number.
    """

    tree: Tree | None
    vector: tuple[int, ...]
    flat: bool = False
    """Whether the model takes x as one number."""

    @classmethod
    def of(cls, x: Any, y_shape: tuple[int, ...], curves: bool) -> DataForm | None:
        """The form of x and of y, (M, *vector), or (S, M, *vector) of curves; None if it is plain.

        Raises:
            InputError: for columns that have not the rows of y, and for arrays as x beside vectors.
        """
        lead = y_shape[: 1 + curves]
        named, vector = _columns(x), y_shape[len(lead) :]
        if named is None and not vector:
            return None
        if named is None:
            shape = np.shape(x)
            if shape[-1:] != lead[-1:] or len(shape) > 2 + curves:
                raise InputError(
                    f"x has shape {shape}, and y {y_shape}, a vector at each x: x of shape "
                    f"({lead[-1]},) or (k, {lead[-1]}) is needed, or a dict of columns"
                )
            return cls(None, vector, len(shape) == 1 or (curves and shape == lead))
        shapes = {name: _shape_at_row(name, c, lead) for name, c in named.items()}
        return cls(columns_of(None, shapes).tree, vector)

    @property
    def size(self) -> int:
        """How many numbers y has at one x."""
        return math.prod(self.vector)

    def x(self, given: Any, count: int | None = None) -> np.ndarray:
        """The plain columns of x, (k, rows), or (count, k, rows) if some are each curve's own."""
        columns = self._rows(given, count)
        if not self.vector:
            return columns
        repeated = np.repeat(columns, self.size, axis=-1)
        point, entry = np.divmod(np.arange(repeated.shape[-1]), self.size)
        places = np.stack([point, entry]).astype(repeated.dtype)
        last = np.broadcast_to(places, (*repeated.shape[:-2], *places.shape))
        return np.concatenate([repeated, last], axis=-2)

    def _rows(self, given: Any, count: int | None) -> np.ndarray:
        if self.tree is None:
            x = as_given(given, "x")
            return x[..., None, :] if self.flat else x
        named = _columns(given)
        if named is None or not {*self.tree.keys} <= set(named):
            names = ", ".join(map(repr, self.tree.keys))
            raise InputError(f"x is a table with the columns {names}, as in the fit")
        parts = [_numbers(block, named[block.name], count) for block in self.tree.blocks]
        if len({part.shape[-1] for part in parts}) > 1:
            lengths = {
                b.name: part.shape[-1] for b, part in zip(self.tree.blocks, parts, strict=True)
            }
            raise InputError(f"the columns of x differ in length: {lengths}")
        if any(part.ndim == 3 for part in parts):
            parts = [np.broadcast_to(part, (count or 1, *part.shape[-2:])) for part in parts]
        return np.concatenate(parts, axis=-2)

    def y(self, given: Any) -> Any:
        """The numbers of y in one row, or in one for each curve."""
        given = given if hasattr(given, "reshape") else as_given(given, "y")
        lead = given.shape[: given.ndim - len(self.vector)]
        return given.reshape(*lead[:-1], lead[-1] * self.size) if self.vector else given

    def sigma(self, given: Any, y_shape: tuple[int, ...]) -> Any:
        """The deviations as `y` has its numbers; a number, or one for each x, holds for vectors.

        Raises:
            InputError: for other shapes.
        """
        if given is None or not self.vector or np.ndim(given) == 0:
            return given
        deviations, lead = as_given(given, "sigma"), y_shape[: -len(self.vector)]
        numbers = (lead[-1] * self.size,)
        if deviations.shape in (lead, lead[-1:]):
            return np.repeat(deviations, self.size, axis=-1)
        if deviations.shape == y_shape or deviations.shape == y_shape[len(lead) - 1 :]:
            return self.y(deviations)
        if deviations.shape == 2 * numbers:
            return deviations
        raise InputError(
            f"sigma has shape {deviations.shape}: a number, {lead[-1:]} or "
            f"{y_shape[len(lead) - 1 :]} is needed"
        )

    def model(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """The model of plain columns, at one row or at all of them."""

        @functools.wraps(f)
        def plain(x: Any, *parameters: Any) -> Any:
            if not self.vector:
                return f(self._seen(x), *parameters)
            (point, entry), x = x[-2:], x[:-2]
            if np.ndim(entry):
                return self._at_all(f, x, point, entry, parameters)
            values = array(f(self._seen(x), *parameters))
            self._require(f, values, self.vector)
            place: Any = entry if isinstance(entry, Handle) else int(entry)
            return values.reshape(-1)[place]

        return plain

    def _at_all(
        self, f: Callable[..., Any], x: Any, point: Any, entry: Any, parameters: Any
    ) -> Any:
        """The numbers of vectors at all points of which there are some.

        Where points are no numbers, as a curve has its own x, there are all of them, or there is
        one number.
        """
        rows = np.shape(entry)[0]
        if isinstance(entry, np.ndarray) and entry.dtype != object:
            _, first, place = np.unique(point, return_index=True, return_inverse=True)
            chosen: Any = place * self.size + np.asarray(entry, int)
        else:
            first = np.arange(0, rows, self.size)
            chosen = slice(rows) if rows > 1 else entry
        points = x[:, first]
        values = array(f(self._seen(points), *parameters))
        self._require(f, values, (points.shape[1], *self.vector))
        return values.reshape(-1)[chosen]

    def _seen(self, x: Any) -> Any:
        """x as the user's model takes it, of columns (k,) or (k, rows)."""
        if self.tree is not None:
            return self.tree.nest((block.of(x.T) for block in self.tree.blocks), Blocks)
        return x[0] if self.flat else x

    def _require(self, f: Callable[..., Any], values: Any, shape: tuple[int, ...]) -> None:
        if np.shape(values) != shape:
            raise InputError(
                f"{describe(f)} gave values of shape {np.shape(values)}, and y has {shape} there"
            )


def _columns(x: Any) -> dict[str, np.ndarray] | None:
    """The columns of a table with names; None of what is none."""
    names = names_in(x)
    return None if names is None else {name: as_given(x[name], f"x[{name!r}]") for name in names}


def _shape_at_row(name: str, column: np.ndarray, lead: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a column at one row, where rows are (M,), or (S, M) if curves have their own."""
    for rows in (lead, lead[-1:]):
        if column.shape[: len(rows)] == rows:
            return column.shape[len(rows) :]
    raise InputError(f"x[{name!r}] has shape {column.shape}: y has {lead[-1]} rows")


def _numbers(block: Block, column: np.ndarray, count: int | None) -> np.ndarray:
    """A column as (numbers, M), or (count, numbers, M)."""
    lead = column.shape[: column.ndim - len(block.shape)]
    if column.shape[len(lead) :] != block.shape or len(lead) not in (1, 1 + bool(count)):
        raise InputError(
            f"x[{block.name!r}] has shape {column.shape}: (M, *{block.shape}) is needed"
        )
    return np.swapaxes(column.reshape(*lead, block.size), -1, -2)


# Data of `curve_fit` that stand in Dask blocks: a triangle of each, and that of all.

ROWS_COMPARED: Final = 100
"""Rows of which a model has the same values one by one as together, if it has those of all."""

ONE_BY_ONE: Final = (
    "xdata and ydata come in blocks, of which f is traced for one x, and {}: compute what depends "
    "on all of x, such as its mean, beforehand, or bring the data here, by xdata.compute() and "
    "ydata.compute()"
)


@dataclass(frozen=True, eq=False)
class DataInBlocks:
    """x (M,) or (k, M), y (M,) and deviations, cut into the same blocks.

    ``tables`` are those blocks, delayed: x (m, ...) with the rows first, y (m,) and sigma.
    """

    tables: Sequence[Any]
    predictors: int | None
    """k, or None if x is one number."""
    refused: Refused

    @classmethod
    def of(cls, xdata: Any, ydata: Any, sigma: Any, refused: Refused) -> DataInBlocks:
        """The data, in the blocks that y has, or, where only x is in blocks, in those.

        Raises:
            InputError: for data that do not fit together.
        """
        x, y = _array(xdata), _array(ydata)
        sigma = None if sigma is None else _array(sigma)
        if y.ndim != 1 or x.ndim not in (1, 2) or not _as_long(x.shape[-1], y.shape[0]):
            raise InputError(
                f"xdata has shape {x.shape} and ydata {y.shape}: in blocks, (M,) or (k, M), and "
                "(M,), are needed"
            )
        if np.ndim(sigma) > 1 or not (_is_one(sigma) or _as_long(np.shape(sigma)[0], y.shape[0])):
            raise InputError(
                f"sigma has shape {np.shape(sigma)}: with data in blocks it is one number, or "
                "(M,), the deviation of each row"
            )
        rows_first = x.T
        if not in_blocks(y):
            (lengths, *_) = rows_first.chunks
            y = dask_arrays().from_array(y, chunks=(lengths,))
        each = [sigma] * y.npartitions if _is_one(sigma) else aligned(sigma, y, "sigma")
        together = dask().delayed(_together, pure=False)
        tables = map(together, aligned(rows_first, y, "xdata"), parts(y), each)
        return cls(list(tables), None if x.ndim == 1 else x.shape[0], refused)

    def rows(
        self,
        f: Callable[..., Any],
        n: int,
        mode: Mode,
        device: DeviceChoice,
        dtype: DTypeName,
    ) -> RowsInBlocks:
        """The model of n parameters at the rows of each block, bound where that is."""
        return RowsInBlocks(self, f, n, Making(mode, device, dtype))

    def some(self) -> Data:
        """A few rows."""
        for table in self.tables:
            x, y = dask().delayed(_first, pure=False)(table).compute()
            if len(y):
                data = Data.of(x.T, y, None, self.refused)
                if len(data.y):
                    return data
        raise InputError("`ydata` must not be empty!")


@dataclass(frozen=True)
class Making:
    """How the kernels of a model are made."""

    mode: Mode
    device: DeviceChoice
    dtype: DTypeName


@dataclass(frozen=True, eq=False)
class ModelOfBlocks:
    """A model that travels to blocks of data, and is bound to them there."""

    model: TravellingModel
    n: int
    refused: Refused
    making: Making

    def to(self, device: DeviceChoice) -> ModelOfBlocks:
        """The model for another device; float64 is for the CPU."""
        if self.making.dtype == "float64":
            return self
        return replace(self, making=replace(self.making, device=device))

    def keep(self, table: tuple[np.ndarray, np.ndarray, Any]) -> Rows | None:
        """The model at the rows of a block; None if it has none."""
        x, y, sigma = table
        if len(y) == 0 == len(x):
            return None
        data, how = Data.of(x.T, y, sigma, self.refused), self.making
        if len(data.y) == 0:
            return None
        rows = data.rows(self.model, self.n, how.mode, how.device, how.dtype)
        rows.trace_row()
        return rows


class RowsInBlocks:
    """`Rows` of data in blocks: their triangles stand one above the other, in order.

    The triangle of these is the one of all rows (Demmel, Grigori, Hoemmen, Langou, 2012,
    "Communication-optimal parallel and sequential QR and LU factorizations").
    """

    unit: float = 1.0
    """The divisor of residuals, beside their deviations."""

    def __init__(self, data: DataInBlocks, f: Callable[..., Any], n: int, making: Making) -> None:
        device_here(None)  # so many threads as this process has, if it is a worker
        self.calls, self.dtype, self._n = 0, making.dtype, n
        self._some = data.some().rows(f, n, making.mode, "cpu", "float64")
        self._f, self._data, self._making = f, data, making
        model = _travelling(f, data.predictors, n)
        self._blocks = kept(ModelOfBlocks(model, n, data.refused, making), data.tables)
        self.count, self.counted = (
            sum(each) for each in zip(*self._blocks.ask(_counts), strict=True)
        )

    def prepare(self, p: np.ndarray) -> None:
        """Compare the model of one row with that of some of them together.

        Raises:
            InputError: if they differ.
        """
        self._some.prepare(p)
        if not self._some.rowwise:
            raise InputError(ONE_BY_ONE.format("its value there is not that among several x"))

    def in_unit(self, unit: float) -> RowsInBlocks:
        """These rows, with residuals in another unit; see `Rows.in_unit`."""
        if unit == self.unit:
            return self
        other = copy.copy(self)
        other.unit = unit
        return other

    def largest(self, p: np.ndarray | None = None) -> float:
        """The largest y, or, at some parameters, the largest residual, in deviations."""
        return max(self._of_all(Rows.largest, p))

    def in_range(self) -> bool:
        """Whether numbers of y's size are ones that the dtype has, with their digits."""
        return all(self._of_all(Rows.in_range))

    def linear(self) -> Sequence[int]:
        """Parameters that, together, the model is linear in, as far as is known."""
        return self._some.linear()

    @property
    def made(self) -> str | None:
        """How derivatives were made."""
        return self._some.made

    @property
    def many(self) -> bool:
        """Whether sums are worth their compilation."""
        return self.count >= ROWS_SUMMED_FIRST and self.dtype == "float64"

    def at(self, p: np.ndarray) -> Point:
        """The point, by QR decompositions."""
        return self._joined(p, Rows.at)

    def quick(self, p: np.ndarray) -> Point:
        """The point, by sums over the rows of each block."""
        return self._joined(p, Rows.quick)

    def residuals(self, p: np.ndarray) -> np.ndarray:
        """The residuals (M,), divided by their deviations: all of them, here."""
        return np.concatenate(self._of_all(Rows.residuals, p))

    def length(self) -> float:
        """The length of y (M,) in deviations."""
        return float(np.linalg.norm(self._of_all(Rows.length)))

    def _joined(self, p: np.ndarray, how: Callable[..., Point]) -> Point:
        """The point of all rows, of what each block finds."""
        self.calls += 1
        points, n = self._of_all(how, p), self._n
        cost = tree_sum([point.cost for point in points])
        if not np.isfinite(cost):
            return Point.nowhere(p)
        stacked = np.concatenate([np.column_stack([point.T, point.z]) for point in points])
        return Point.of(p, cost, *system(triangle(stacked), n))

    def _of_all(self, how: Callable[..., Any], *given: Any) -> list[Any]:
        """Answers of the blocks that have rows, in order."""
        answers = self._blocks.ask(_answer, self.unit, how, *given)
        return [a for a in answers if a is not None]


def _answer(rows: Rows | None, unit: float, how: Callable[..., Any], *given: Any) -> Any:
    with np.errstate(all="ignore"):
        return None if rows is None else how(rows.in_unit(unit), *given)


def _counts(rows: Rows | None) -> tuple[int, int]:
    """How many rows there are, and how many of them count."""
    return (0, 0) if rows is None else (rows.count, rows.counted)


def _together(*columns: Any) -> tuple[Any, ...]:
    return columns


def _first(table: tuple[np.ndarray, np.ndarray, Any]) -> tuple[np.ndarray, np.ndarray]:
    x, y, _ = table
    return x[:ROWS_COMPARED], y[:ROWS_COMPARED]


def _array(value: Any) -> Any:
    """A Dask array, also of a column of a data frame, or one of NumPy's."""
    return as_dask_array(value) if in_blocks(value) else real(value, "data")


def _is_one(sigma: Any) -> bool:
    """Whether all rows have the same deviation."""
    return not in_blocks(sigma) and (sigma is None or np.size(sigma) == 1)


def _as_long(a: float, b: float) -> bool:
    """Whether two lengths are the same, as far as they are known."""
    return a == b or np.isnan(a) or np.isnan(b)


def _travelling(f: Callable[..., Any], k: int | None, n: int) -> TravellingModel:
    try:
        return TravellingModel(f, k, n)
    except MISTAKES as error:
        raise InputError(ONE_BY_ONE.format(f"there it fails, {error}")) from error
