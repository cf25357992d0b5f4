"""Sums over the rows of tables on any device: planned there, bound to rows once, and called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from symgrad.errors import DeviceMemoryError, InputError
from symgrad.kernel.launch import Use
from symgrad.kernel.memory import in_pieces
from symgrad.kernel.partial_sums import Added, Read, SumsLaunch
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.table_gradients import indices_of

ROWS_ALIGNED: Final = 64
"""Rows that parts of a table which go through a device are whole multiples of."""

STREAMS: Final = 2
"""Numbers of rows for which there is memory on a device, for rows that go through it."""


class Held(Protocol):
    """A compiled launch some of whose inputs stay where they are."""

    def replace(self, resident: dict[str, Any]) -> None:
        """Have other arrays in the place of those that stay."""
        ...

    def run(self, use: Use[Any], *inputs: np.ndarray) -> Any:
        """Run the launch, and give the result of ``use``, a function of the outputs."""
        ...

    def begin(self, use: Use[Any], *inputs: np.ndarray) -> Callable[[], Any]:
        """Start `run`, and give the function that waits for it: it has to be called."""
        ...


class Planner(Protocol):
    """Plans the launches that sum over rows on a device, and has their kernels compiled."""

    @property
    def reduction(self) -> Reduction:
        """The computation at a row whose results are summed."""
        ...

    @property
    def seconds(self) -> float:
        """How long it took to compile."""
        ...

    @property
    def needs_sizes(self) -> bool:
        """Whether launches are for tables of certain sizes."""
        ...

    @property
    def streamed(self) -> int:
        """Rows of the host that go through the device at a time; 0 if they are read there."""
        ...

    def hold(
        self, rows: Any, indices: np.ndarray | None, sizes: Sequence[int]
    ) -> tuple[SumsLaunch, Held]:
        """A launch over these rows, whose lookups are in tables of these sizes.

        Raises:
            DeviceMemoryError: if there is no memory for them.
        """
        ...

    def shrink(self, count: int) -> bool:
        """Whether a launch over so many rows takes less memory from now on."""
        ...


class RowSums:
    """A reduction that is compiled for a device. Any number of threads may use it."""

    def __init__(self, planner: Planner) -> None:
        self.planner, self.reduction = planner, planner.reduction
        self._columns = planner.reduction.columns
        self.results = sum(len(o.nodes) for o in planner.reduction.summed)
        self.seconds = planner.seconds
        self._streams: dict[int, BoundSums] = {}

    def run(self, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """parameters (n,), rows (N, columns), C-contiguous -> the sums (results,) in float64.

        The rows go through the memory of a device in parts.
        """
        self._require(rows)
        most = self.planner.streamed
        if not most and len(rows):
            plan, held = self.planner.hold(rows, None, ())
            return held.run(plan.total, parameters)
        totals = np.zeros(self.results)

        def add(start: int, end: int) -> None:
            sums = self._over(parameters, rows[start:end])
            with np.errstate(invalid="ignore"):
                np.add(totals, sums, out=totals)

        in_pieces(len(rows), most, ROWS_ALIGNED, add)
        return totals

    def _over(self, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The sums over rows in memory for as many, which stays for the next."""
        bound = self._streams.pop(len(rows), None)
        if bound is None:
            while len(self._streams) >= STREAMS:
                self._streams.pop(next(iter(self._streams)))
            try:
                bound = BoundSums(self.planner, rows, None)
            except DeviceMemoryError:
                self._streams.clear()
                raise
        else:
            bound.replace(rows)
        sums = bound.run(parameters)
        self._streams[len(rows)] = bound
        return sums

    def run_with_tables(
        self,
        parameters: np.ndarray,
        rows: np.ndarray,
        indices: np.ndarray,
        tables: Sequence[np.ndarray],
    ) -> Added:
        """The sums, and for each lookup what was added to its table's entries, all in float64.

        parameters (n,), rows (N, columns), indices (N, count) int32 and tables (entries, width) are
        C-contiguous, all but the indices of the kernel's dtype.
        """
        return self.bind(rows, indices).run_with_tables(parameters, tables)

    def bind(self, rows: Any, indices: np.ndarray | None = None) -> BoundSums:
        """The sums over these rows, for any parameters, and any tables that they look up.

        The rows (N, columns) of the host are copied to a device, and are read by the CPU where they
        are; so are the indices (N, count) of the entries that they look up.
        """
        self._require(rows)
        count = indices_of(self.reduction)
        if count and (indices is None or indices.shape != (len(rows), count)):
            raise InputError(f"indices for {len(rows)} rows: expected ({len(rows)}, {count})")
        while True:
            try:
                return BoundSums(self.planner, rows, indices)
            except DeviceMemoryError:
                if not self.planner.shrink(len(rows)):
                    raise

    def _require(self, rows: Any) -> None:
        """Refuse rows of another width."""
        if rows.ndim != 2 or rows.shape[1] != self._columns:
            raise InputError(f"rows of shape {rows.shape}: expected (N, {self._columns})")

    def let_go(self) -> None:
        """Give back the memory that is kept between calls."""
        self._streams.clear()


class BoundSums:
    """A reduction with its rows. Any number of threads may use it."""

    def __init__(self, planner: Planner, rows: Any, indices: np.ndarray | None) -> None:
        self._planner, self._reduction = planner, planner.reduction
        self._shape, self._count = (planner.reduction.parameters,), len(rows)
        self._held: tuple[SumsLaunch, Held] | None = None
        self._sizes: tuple[int, ...] = ()
        self._rows, self._indices = (rows, indices) if planner.needs_sizes else (None, None)
        self._run: Callable[[np.ndarray], np.ndarray] | None = None
        if self._count and not planner.needs_sizes:
            plan, held = self._held = planner.hold(rows, indices, ())
            self._run = partial(held.run, plan.total)

    def replace(self, rows: np.ndarray) -> None:
        """Have other rows, as many, in the place of these."""
        assert self._held and len(rows) == self._count, "there is memory for other rows"
        plan, held = self._held
        held.replace(plan.resident(rows, None))

    def run(self, parameters: np.ndarray) -> np.ndarray:
        """parameters (n,) -> the sums (results,) in float64."""
        if self._run is None or parameters.shape != self._shape:
            return self.run_with_tables(parameters, ())[0]
        return self._run(parameters)

    def run_with_tables(self, parameters: np.ndarray, tables: Sequence[np.ndarray]) -> Added:
        """The sums, and for each lookup what was added to its table's entries, all in float64."""
        return self.begin(parameters, tables)()

    def begin(self, parameters: np.ndarray, tables: Sequence[np.ndarray]) -> Callable[[], Added]:
        """Start `run_with_tables`, and give the function that waits for it: it has to be called."""
        if parameters.shape != self._shape:
            raise InputError(f"parameters of shape {parameters.shape}: expected {self._shape}")
        if not self._count:
            results = sum(len(o.nodes) for o in self._reduction.summed)
            return lambda: (np.zeros(results), [np.zeros(t.shape) for t in tables])
        plan, held = self._over(tables)

        def use(outputs: Sequence[np.ndarray], read: Read) -> Added:
            return plan.total(outputs, read), plan.added(tables, outputs) if tables else []

        return held.begin(use, parameters, *plan.looked_up(tables))

    def _over(self, tables: Sequence[np.ndarray]) -> tuple[SumsLaunch, Held]:
        """The launch that looks entries up in tables of these sizes, if these matter."""
        sizes = tuple(t.size for t in tables) if self._planner.needs_sizes else ()
        held = self._held
        if held is None or self._sizes != sizes:
            held = self._planner.hold(self._rows, self._indices, sizes)
            self._held, self._sizes = held, sizes
        return held
