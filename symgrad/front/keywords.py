"""Keyword arguments that the verbs of `symgrad.front` share: of rows, and of variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.derivatives.transpose import Checkpoint
from symgrad.expr.laws.simplify import Level
from symgrad.expr.tracers.tree import Sizes, Tree
from symgrad.front.kernels import Kernel
from symgrad.mathlib.define import Math
from symgrad.pipeline import DType, Options
from symgrad.report.progress import Asked
from symgrad.rows.loss import Penalty
from symgrad.targets import DeviceChoice
from symgrad.values.tables import ColumnNames, Columns, NanPolicy, Reduce, columns_of

Function = Callable[..., Any]


class Common(TypedDict, total=False):
    """Keywords of all kernels: see `fused_forward_backward`."""

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
    """Keywords of matrices of derivatives: see `fused_jacobian`."""

    mode: Mode
    sparse: bool


class OfPoints(Common, total=False):
    """Keywords of a kernel of points: there are no rows."""

    row: None
    columns: None


class OfNamed(OfPoints, total=False):
    """Keywords of kernels of points whose variables have names."""

    names: Sequence[str] | None


class OfTable(Common, total=False):
    """Keywords of kernels over data, ``row`` or ``columns`` at least."""

    row: int | None
    columns: ColumnNames | None
    codes: Mapping[str, Any] | None
    weights: str | int | None
    nan_policy: NanPolicy


class OfRows(OfTable):
    """Keywords of a kernel over data with a result for each row."""

    reduce: None


class OfSums(OfTable, total=False):
    """Keywords of sums over rows."""

    reduce: Reduce
    regularizer: Function | None


class MatrixOfPoints(OfNamed, Matrix):
    """Keywords of matrices of derivatives at points."""


class MatrixOfSums(OfSums, Matrix):
    """Keywords of sums of matrices over rows."""


class MatrixOfRows(OfRows, Matrix):
    """Keywords of matrices of each row."""


class Jacobian(MatrixOfPoints, total=False):
    """Keywords of Jacobians at points."""

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
    """The choices about rows; None for kernels of points, which have none."""
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
    """The penalty that is added once to sums over rows: a kernel of the regularizer, on the CPU."""
    if regularizer is None:
        return None
    o = options
    kernel = make(n, regularizer, device="cpu", math=o.math, dtype=o.dtype, simplify=o.simplify)
    return Penalty(regularizer, kernel)


# Which variables a Jacobian is made for: positions or names, as a user gives them.

Chosen = tuple[tuple[int, ...], Tree]
"""The places of variables in the row of all, and how they are nested."""


def chosen(tree: Tree, names: Sequence[str], wrt: Any) -> Chosen:
    """The variables of a tree that ``wrt`` asks for; None asks for all.

    Raises:
        InputError: if one of them does not exist, or there are none.
    """
    if wrt is None:
        return tuple(range(tree.size)), tree
    selection = _indexed(tree, names, wrt) if tree.is_leaf else _named(tree, wrt)
    if selection is None or not selection[0]:
        choices = names if tree.is_leaf else [block.name for block in tree.blocks]
        shown = ", ".join(choices[:5]) + ", ..." * (len(choices) > 5)
        raise InputError(
            f"wrt={wrt!r} is not one of the variables: give names out of {shown}"
            + (f", or positions in {tree.keys}" if tree.is_leaf else "")
        )
    return selection


def _indexed(tree: Tree, names: Sequence[str], wrt: Any) -> Chosen | None:
    """The chosen variables of an array, by an index or by names."""
    places = np.arange(tree.size).reshape(tree.keys)
    index = list(wrt) if isinstance(wrt, (tuple, range)) and len(tree.keys) == 1 else wrt
    keys = [wrt] if isinstance(wrt, str) else index
    if isinstance(keys, (list, tuple)) and all(isinstance(k, str) for k in keys):
        if not {*keys} <= {*names}:
            return None
        positions = [names.index(k) for k in keys]
        places, index = places.ravel(), positions[0] if isinstance(wrt, str) else positions
    try:
        picked = places[index]
    except (IndexError, TypeError, ValueError):
        return None
    if isinstance(wrt, (bool, np.bool_)):
        return None
    shape = np.shape(picked)
    return tuple(np.ravel(picked).tolist()), Tree("array", shape) if shape else Tree()


def _named(tree: Tree, wrt: Any) -> Chosen | None:
    """A part of a dict, or a dict of several parts."""
    if isinstance(wrt, str):
        return _part(tree, wrt)
    if not isinstance(wrt, (list, tuple)) or not all(isinstance(name, str) for name in wrt):
        return None
    parts = {name: _part(tree, name) for name in wrt}
    existing = {name: part for name, part in parts.items() if part is not None}
    if len(existing) < len(parts):
        return None
    places = tuple(k for part_places, _ in existing.values() for k in part_places)
    return places, Tree("dict", tuple(existing), tuple(part for _, part in existing.values()))


def _part(tree: Tree, name: str) -> Chosen | None:
    """The variables under a key, or under keys joined by dots."""
    part = tree
    for key in name.split("."):
        if part.kind != "dict" or key not in part.keys:
            return None
        part = part.children[part.keys.index(key)]
    blocks = [b for b in tree.blocks if b.name == name or b.name.startswith(f"{name}.")]
    return tuple(k for b in blocks for k in range(b.start, b.start + b.size)), part
