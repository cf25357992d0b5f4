"""Where a loss of one row is evaluated: at the rows of a table, with their parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from symgrad.expr.tracing.gather import Gather
from symgrad.rows.loss import Traced


@dataclass(frozen=True)
class RowPoints:
    """Values for the expressions of a row at each of them: parts of an array (N, inputs).

    ``flat`` are all parameters, ``numbers`` (N, columns) and ``indices`` (N, count) the table, and
    ``divisor`` is what sums over the rows are divided by. ``uniform`` is what is the same at all
    rows and comes first: the parameters that rows read, unless it is given.
    """

    traced: Traced
    flat: np.ndarray
    numbers: np.ndarray
    indices: np.ndarray
    divisor: float
    uniform: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.filled(self.points(len(self.numbers[rows])), rows)

    def points(self, count: int) -> np.ndarray:
        """An array (count, inputs) that has what is the same at all rows."""
        looked = sum(g.block.width for g in self.traced.gathers)
        same = self.same
        points = np.empty((count, len(same) + self.numbers.shape[1] + looked), self.flat.dtype)
        points[:, : len(same)] = same
        return points

    @property
    def same(self) -> np.ndarray:
        """The values that are the same at all rows."""
        return self.flat[list(self.traced.read)] if self.uniform is None else self.uniform

    def filled(self, points: np.ndarray, rows: slice) -> np.ndarray:
        """The first of some `points`, with what differs at some rows."""
        numbers, indices = self.numbers[rows], self.indices[rows]
        assert numbers.dtype == points.dtype, "columns and parameters have one dtype"
        filled, start = points[: len(numbers)], len(self.same)
        end = start + numbers.shape[1]
        _items(filled[:, start:end])[...] = _items(numbers)
        for gather in self.traced.gathers:
            block, start = gather.block, end
            end = start + block.width
            entries = self.flat[block.start : block.start + block.size].reshape(-1, block.width)
            _items(filled[:, start:end])[...] = _items(entries)[indices[:, self._position(gather)]]
        return filled

    def table(self) -> np.ndarray:
        """The table as one array (N, columns) of float64, indices among them."""
        columns = self.traced.columns
        table = np.empty((len(self), columns.count))
        table[:, list(columns.indices)] = self.indices
        table[:, columns.numbers] = self.numbers
        return table

    def summed(self, slopes: np.ndarray) -> np.ndarray:
        """The derivatives for all parameters, of those of each row (N, wrt), as `Traced` has them.

        They are added in float64, or as Python's numbers if they are objects.
        """
        count = len(self.traced.read)
        kind = object if slopes.dtype == object else np.float64
        gradient = np.zeros(len(self.flat), kind)
        gradient[list(self.traced.read)] = slopes[:, :count].sum(axis=0, dtype=kind)
        for gather in self.traced.gathers:
            block, end = gather.block, count + gather.block.width
            index = self.indices[:, self._position(gather)]
            entries = gradient[block.start : block.start + block.size].reshape(-1, block.width)
            np.add.at(entries, index, slopes[:, count:end].astype(kind))
            count = end
        return gradient

    def _position(self, gather: Gather) -> int:
        """The column of ``indices`` that an index stands in."""
        return self.traced.columns.indices.index(gather.column)


def _items(rows: np.ndarray) -> np.ndarray:
    """The rows as one item each: NumPy copies them up to ten times as fast as so many numbers."""
    if rows.strides[-1] != rows.itemsize or not rows.size:
        return rows
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))
