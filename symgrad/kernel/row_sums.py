"""Sums over rows as launches, bound to rows, whose host adds up in float64 what kernels leave.

There are two kernels, which read rows alike (`skeletons.lookup.Rows`), for lanes and workgroups add
in ways of their own. In the lanes of a vector (`skeletons.sums_in_lanes`) a group has a piece of
the rows and computes all results at once. Its sums stay in registers or in the cache, and go to
float64 after a few rows; to entries of tables, lanes add one after the other. In workgroups
(`skeletons.row_sums_workgroup`) there is no float64 and little memory: an invocation has few rows,
sums are added in trees, results are cut into tiles, and rows leave what they add to entries to
kernels of their own. What results are (products of few factors, `products`), what rows look up, and
what the host makes of it all, are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.kernel.shapes import Reduction


class RowSums:
    """A reduction that is compiled for a device, which plans its launches, bound to rows or not.

    Any number of threads may use it.
    """

    seconds: float
    """How long it took to compile."""

    def __init__(self, reduction: Reduction) -> None:
        self.reduction = reduction

    def hold(self, rows: Any, indices: np.ndarray | None) -> Any:
        """A launch over these rows, which stay, and so do the entries that they look up.

        Raises:
            DeviceMemoryError: if there is no memory for them.
        """
        raise NotImplementedError

    def run(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The sums in float64 over rows (N, columns), C-contiguous, as ``bind(rows)`` has them."""
        return self.bind(rows).run(numbers)

    def bind(self, rows: Any, indices: np.ndarray | None = None) -> Any:
        """The launch over these rows: ``run(numbers)`` gives the sums in float64.

        The numbers are those of `Reduction.call`, and the sums (results,) are followed by what is
        added to the entries of tables. The rows (N, columns) of the host are copied to a device,
        and are read by the CPU where they are; so are the indices (N, count) of the entries.
        """
        self.require(rows, indices)
        return self.hold(rows, indices)

    def require(self, rows: Any, indices: np.ndarray | None) -> None:
        """Refuse rows of another width, or without their indices."""
        columns, count = self.reduction.columns, self.reduction.indices
        if rows.ndim != 2 or rows.shape[1] != columns:
            raise InputError(f"rows of shape {rows.shape}: expected (N, {columns})")
        if count and (indices is None or indices.shape != (len(rows), count)):
            raise InputError(f"indices for {len(rows)} rows: expected ({len(rows)}, {count})")
