"""Sums over rows as launches, and in float64 of the numbers that their kernels leave behind.

There are two kernels, for lanes and workgroups add in ways of their own. In the lanes of a vector
(`skeletons.row_sums_simd`) a group has a piece of the rows and computes all results at once. Its
sums stay in registers or in the cache, and go to float64 after a few rows; to entries of tables,
lanes add one after the other. In workgroups (`skeletons.row_sums_workgroup`) there is no float64
and little memory: an invocation has few rows, sums are added in trees, results are cut into tiles,
and rows leave what they add to entries to kernels of their own. What results are (products of few
factors, `products`), what rows look up, and what the host makes of it all, are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from symgrad.kernel.launch import Launch

Added = tuple[np.ndarray, list[np.ndarray]]
"""Sums (results,), and for each lookup what was added to its table's entries, all in float64."""


Read = Callable[[str], np.ndarray]
"""Reads the numbers of an array of a launch, by its name, as the last call has left them."""


class SumsLaunch(Protocol):
    """A launch that sums over rows of which the number is known, and what its outputs add up to.

    Each call has the parameters and what is looked up; its other inputs stay from call to call.
    Arrays may be shorter than the launch says: what is behind may be anything.
    """

    @property
    def launch(self) -> Launch:
        """The arrays and the dispatches of a call."""
        ...

    def resident(self, rows: Any, indices: np.ndarray | None) -> dict[str, Any]:
        """The inputs that stay, by their names: of rows (N, columns) and indices (N, count)."""
        ...

    def looked_up(self, tables: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The inputs of a call besides the parameters, of tables (entries, width)."""
        ...

    def total(self, outputs: Sequence[np.ndarray], read: Read) -> np.ndarray:
        """The sums (results,) in float64."""
        ...

    def added(
        self, tables: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """The sums that belong to the entries of each table, in float64."""
        ...


@dataclass(frozen=True, eq=False)
class Results:
    """The results of a kernel that sums some of them: which they are, and where their numbers are.

    It writes ``head`` numbers, the factors of the results and then the values of those that no row
    changes, and after them, for each of the others, the partial sums of all groups.
    """

    numbers: range
    """Which of all results they are."""
    summed: tuple[int, ...]
    """The results that depend on the rows."""
    cells: tuple[int, ...] = ()
    """For each sum its number among those that are written, if these are others as well."""

    @cached_property
    def fixed(self) -> tuple[int, ...]:
        """The results that no row changes."""
        return tuple(k for k in self.numbers if k not in self.summed)

    @cached_property
    def head(self) -> int:
        """Numbers before the partial sums."""
        return len(self.numbers) + len(self.fixed)

    @cached_property
    def columns(self) -> int:
        """Sums that are written, in whole sixteens if there are others among them."""
        return max(self.cells) // 16 * 16 + 16 if self.cells else len(self.summed)

    @cached_property
    def wanted(self) -> Any:
        """Where the sums are among those that are written."""
        return np.array(self.cells) if self.cells else slice(None)

    def size(self, groups: int) -> int:
        """Numbers that this many groups write."""
        return self.head + groups * self.columns


@dataclass(frozen=True)
class PartialSums:
    """The numbers that one kernel has written of so many rows.

    Where ``folded`` names an array, that has the partial sums, and what comes back has for each sum
    a pair of numbers that make it up, and then the head.
    """

    results: Results
    rows: int
    groups: int
    folded: str | None

    @property
    def size(self) -> int:
        """Numbers that come back."""
        r = self.results
        return 2 * r.columns + r.head if self.folded else r.size(self.groups)

    def add_to(self, sums: np.ndarray, numbers: np.ndarray, read: Read) -> None:
        """Add the sums to those of all results, in a fixed order and times their factors.

        ``read`` gives the numbers of an array.
        """
        r = self.results
        if self.folded:
            pairs, head = 2 * r.columns, numbers[2 * r.columns :]
            totals = numbers[:pairs].reshape(-1, 2)[r.wanted].sum(axis=1, dtype=np.float64)
            if not np.isfinite(totals).all():  # what float32 cannot hold, float64 may
                totals = self._added(read(self.folded))
        else:
            head, totals = numbers, self._added(numbers)
        count = len(r.numbers)
        if len(r.summed) < count:
            totals = self._with_fixed(totals, head[count : r.head])
        sums[r.numbers.start : r.numbers.stop] += totals * head[:count]

    def _added(self, numbers: np.ndarray) -> np.ndarray:
        """The partial sums of each result, added up."""
        r = self.results
        partial = numbers[r.head :].reshape(-1, self.groups)
        return partial[r.wanted].sum(axis=1, dtype=np.float64)

    def _with_fixed(self, summed: np.ndarray, values: np.ndarray) -> np.ndarray:
        """All results: the sums, and those that have one value at every row."""
        start = self.results.numbers.start
        totals = np.empty(len(self.results.numbers))
        totals[np.array(self.results.summed, int) - start] = summed
        totals[np.array(self.results.fixed, int) - start] = self.rows * values.astype(np.float64)
        return totals
