"""Data whose x has columns with names, some of them arrays, and whose y may hold vectors.

Fits are of plain columns and of one number in each row: a vector of d numbers becomes d rows. Two
columns behind those of x say which point a row is of, and which entry of the vector.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Handle
from symgrad.expr.tracers.tree import Block, Blocks, Tree
from symgrad.fit.model import Rows, Shape
from symgrad.optimize.arguments import as_given, real
from symgrad.pipeline import DTypeName
from symgrad.targets import DeviceChoice
from symgrad.values.tables import columns_of, names_in

# --- data that are checked ------------------------------------------------------------------------
# Data as `curve_fit` takes them: what is checked, and what is left out.

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
