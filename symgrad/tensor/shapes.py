"""The shapes of products of matrices: which matrices are multiplied."""

from __future__ import annotations

import math

import numpy as np

from symgrad.errors import InputError, UnsupportedError
from symgrad.kernel.skeletons.tiles import ONE, Batch, Problem

Shape = tuple[int, ...]


def problem(a: Shape, b: Shape) -> Problem:
    """The products of arrays (.., m, k) and (.., k, n).

    Where all have the same second matrix, the rows of the first ones are those of one.

    Raises:
        UnsupportedError: if one is repeated along several axes that are not neighbours.
    """
    *first, m, k = a
    n = b[-1]
    if len(b) == 2:
        return Problem(math.prod(first) * m, n, k)
    batch = np.broadcast_shapes(tuple(first), b[:-2])
    repeats = [repeated(tuple(shape), batch) for shape in (first, b[:-2])]
    return Problem(m, n, k, math.prod(batch), *repeats)


def repeated(shape: Shape, batch: Shape) -> Batch:
    """Which matrix of a shape each one of a batch has, to which the shape is broadcast."""
    full = (1,) * (len(batch) - len(shape)) + shape
    own = [axis for axis, (n, many) in enumerate(zip(full, batch, strict=True)) if n == many > 1]
    if not own:
        return ONE
    first, last = own[0], own[-1]
    if full[first : last + 1] != batch[first : last + 1]:
        raise UnsupportedError(
            f"matrices of shape {shape} are repeated along axes of {batch} that are not "
            "neighbours: bring them to that shape by np.broadcast_to"
        )
    return Batch(math.prod(batch[last + 1 :]), math.prod(full))


def require_columns(name: str, shape: Shape, wanted: int) -> None:
    """Refuse a bias that has other than a number for each column."""
    if shape != (wanted,):
        raise InputError(
            f"{name} has shape {shape}: the result has {wanted} columns, so ({wanted},)"
        )
