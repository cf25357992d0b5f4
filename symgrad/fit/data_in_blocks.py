"""Data of `curve_fit` that stand in Dask blocks: a triangle of each, and that of all."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from symgrad.bridges.cluster import device_here, kept, tree_sum
from symgrad.bridges.tables import aligned, as_dask_array, dask, dask_arrays, in_blocks, parts
from symgrad.errors import InputError, SymgradError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.fit.curves import TravellingModel
from symgrad.fit.data_form import Data, Refused
from symgrad.fit.model import ROWS_SUMMED_FIRST, Rows, system, triangle
from symgrad.optimize.arguments import real
from symgrad.optimize.result import Point
from symgrad.pipeline import DTypeName
from symgrad.targets import DeviceChoice

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
    except (SymgradError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(ONE_BY_ONE.format(f"there it fails, {error}")) from error
