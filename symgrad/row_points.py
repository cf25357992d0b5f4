"""Where a loss of one row is evaluated: at the rows of a table, with their parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from symgrad.expr.gather import Gather
from symgrad.row_loss import Traced


@dataclass(frozen=True)
class RowPoints:
    """What the expressions of a row are given at each of them: parts of an array (N, inputs).

    ``flat`` are all parameters, ``numbers`` (N, columns) and ``indices`` (N, count) the table, and
    ``divisor`` is what sums over the rows are divided by.
    """

    traced: Traced
    flat: np.ndarray
    numbers: np.ndarray
    indices: np.ndarray
    divisor: float

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: slice) -> np.ndarray:
        numbers, indices = self.numbers[rows], self.indices[rows]
        uniform = self.flat[list(self.traced.read)]
        parts = [np.broadcast_to(uniform, (len(numbers), len(uniform))), numbers]
        for gather in self.traced.gathers:
            lines = self.flat[gather.block.start :][: gather.block.size]
            index = indices[:, self._position(gather)]
            parts.append(lines.reshape(-1, gather.block.width)[index])
        return np.concatenate(parts, axis=1, dtype=self.flat.dtype)

    def table(self) -> np.ndarray:
        """The table as one array (N, columns) of float64, indices among them."""
        columns = self.traced.columns
        found = np.empty((len(self), columns.count))
        found[:, list(columns.indices)] = self.indices
        found[:, columns.numbers] = self.numbers
        return found

    def summed(self, slopes: np.ndarray) -> np.ndarray:
        """The derivatives for all parameters, of those of each row (N, wrt), as `Traced` has them.

        They are added in float64, or as Python's numbers if they are objects.
        """
        count = len(self.traced.read)
        kind = object if slopes.dtype == object else np.float64
        found = np.zeros(len(self.flat), kind)
        found[list(self.traced.read)] = slopes[:, :count].sum(axis=0, dtype=kind)
        for gather in self.traced.gathers:
            block, end = gather.block, count + gather.block.width
            index = self.indices[:, self._position(gather)]
            lines = found[block.start : block.start + block.size].reshape(-1, block.width)
            np.add.at(lines, index, slopes[:, count:end].astype(kind))
            count = end
        return found

    def _position(self, gather: Gather) -> int:
        """The column of ``indices`` that an index stands in."""
        return self.traced.columns.indices.index(gather.column)
