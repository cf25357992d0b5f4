"""The keyword arguments that the verbs of `symgrad.fused` share, and what they say of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from symgrad.errors import InputError
from symgrad.expr.simplify import Level
from symgrad.expr.tree import Sizes
from symgrad.kernels import Kernel
from symgrad.mathlib.define import Math
from symgrad.penalty import Penalty
from symgrad.pipeline import DType, Options
from symgrad.rows import ColumnNames, Columns, NanPolicy, Reduce, columns_of
from symgrad.targets import DeviceChoice

Function = Callable[..., Any]


class Common(TypedDict, total=False):
    """What all kernels take: see `fused_forward_backward`."""

    device: DeviceChoice
    math: Math
    dtype: DType
    simplify: Level
    name: str | None
    comments: bool


class OfPoints(Common, total=False):
    """What makes a kernel one of points: there are no rows."""

    row: None
    columns: None


class OfNamed(OfPoints, total=False):
    """What kernels of points take besides."""

    names: Sequence[str] | None


class OfRows(Common, total=False):
    """What kernels over data take besides, ``row`` or ``columns`` at least."""

    row: int | None
    columns: ColumnNames | None
    weights: str | int | None
    nan_policy: NanPolicy


class OfSums(OfRows, total=False):
    """What sums of losses over rows take besides."""

    regularizer: Function | None


def asked_of_rows(
    row: int | None, columns: ColumnNames | None, reduce: Reduce | None,
    weights: str | int | None, nan_policy: NanPolicy, names: Sequence[str] | None,
    regularizer: Function | None = None,
) -> tuple[Columns, Reduce | None, str | int | None, NanPolicy] | None:  # fmt: skip
    """What is asked for of rows; None for kernels of points, which have none."""
    if row is not None or columns is not None:
        if names is not None:
            raise InputError("names= are of kernels of points: columns= and n= name those of rows")
        if reduce is None and regularizer is not None:
            raise InputError("regularizer= is added to a sum over rows: reduce=None has none")
        return columns_of(row, columns), reduce, weights, nan_policy
    if weights is not None or (reduce, nan_policy) != ("sum", "propagate"):
        raise InputError("reduce=, weights= and nan_policy= are of rows: give row= or columns= too")
    if regularizer is not None:
        raise InputError("regularizer= is of rows: add it to f, or give row= or columns= too")
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
