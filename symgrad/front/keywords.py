"""Keyword arguments that the verbs of `symgrad.front` share, and what they say of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from symgrad.errors import InputError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.derivatives.strips import Checkpoint
from symgrad.expr.laws.simplify import Level
from symgrad.expr.tracers.tree import Sizes
from symgrad.front.kernels import Kernel
from symgrad.mathlib.define import Math
from symgrad.pipeline import DType, Options
from symgrad.report.progress import Asked
from symgrad.rows.penalty import Penalty
from symgrad.targets import DeviceChoice
from symgrad.values.tables import ColumnNames, Columns, NanPolicy, Reduce, columns_of

Function = Callable[..., Any]


class Common(TypedDict, total=False):
    """What all kernels take: see `fused_forward_backward`."""

    device: DeviceChoice
    math: Math
    dtype: DType
    simplify: Level
    name: str | None
    comments: bool
    roll: bool
    checkpoint: Checkpoint
    progress: Asked


class Matrix(TypedDict, total=False):
    """What matrices of derivatives take: see `fused_jacobian`."""

    mode: Mode
    sparse: bool


class OfPoints(Common, total=False):
    """What makes a kernel one of points: there are no rows."""

    row: None
    columns: None


class OfNamed(OfPoints, total=False):
    """What kernels of points take besides."""

    names: Sequence[str] | None


class OfTable(Common, total=False):
    """What kernels over data take besides, ``row`` or ``columns`` at least."""

    row: int | None
    columns: ColumnNames | None
    codes: Mapping[str, Any] | None
    weights: str | int | None
    nan_policy: NanPolicy


class OfRows(OfTable):
    """What makes a kernel over data one of a result for each row."""

    reduce: None


class OfSums(OfTable, total=False):
    """What sums over rows take besides."""

    reduce: Reduce
    regularizer: Function | None


class MatrixOfPoints(OfNamed, Matrix):
    """What matrices of derivatives at points take."""


class MatrixOfSums(OfSums, Matrix):
    """What sums of matrices over rows take."""


class MatrixOfRows(OfRows, Matrix):
    """What matrices of each row take."""


class Jacobian(MatrixOfPoints, total=False):
    """What Jacobians at points take besides."""

    wrt: Any


def asked_of_rows(
    row: int | None,
    columns: ColumnNames | None,
    codes: Mapping[str, Any] | None,
    reduce: Reduce | None,
    weights: str | int | None,
    nan_policy: NanPolicy,
    names: Sequence[str] | None,
    regularizer: Function | None,
) -> tuple[Columns, Reduce | None, str | int | None, NanPolicy] | None:
    """What is asked for of rows; None for kernels of points, which have none."""
    if row is not None or columns is not None:
        if names is not None:
            raise InputError(
                "names= is for kernels of points: over rows, n= names parameters and "
                "columns= columns"
            )
        if reduce is None and regularizer is not None:
            raise InputError(
                "regularizer= is added to a sum over rows, and reduce=None makes no sum: make a "
                "kernel of the regularizer alone, without rows"
            )
        return columns_of(row, columns, codes), reduce, weights, nan_policy
    if codes is not None:
        raise InputError("codes= is for rows: give columns= too")
    if weights is not None or (reduce, nan_policy) != ("sum", "propagate"):
        raise InputError(
            "reduce=, weights= and nan_policy= are for rows: give row= or columns= too"
        )
    if regularizer is not None:
        raise InputError("regularizer= is for rows: add it to f, or give row= or columns= too")
    return None


def penalty_of(
    make: Callable[..., Kernel], n: Sizes, regularizer: Function | None, options: Options
) -> Penalty | None:
    """What is added once to sums over rows: the same of the regularizer, on the CPU."""
    if regularizer is None:
        return None
    o = options
    kernel = make(n, regularizer, device="cpu", math=o.math, dtype=o.dtype, simplify=o.simplify)
    return Penalty(regularizer, kernel)
