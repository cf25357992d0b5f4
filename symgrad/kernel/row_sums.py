"""Sums over rows as launches, bound to rows, and in float64 of what their kernels leave behind.

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
from functools import cached_property, partial
from typing import Any, Final, Protocol

import numpy as np

from symgrad.errors import DeviceMemoryError, InputError
from symgrad.kernel.host.memory import in_pieces
from symgrad.kernel.launch import Launch, Use
from symgrad.kernel.shapes import Reduction

ROWS_ALIGNED: Final = 64
"""Rows that parts of a table which go through a device are whole multiples of."""

STREAMS: Final = 2
"""Numbers of rows for which there is memory on a device, for rows that go through it."""


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


class RowSums:
    """A reduction that is compiled for a device, which plans its launches, bound to rows or not.

    Any number of threads may use it.
    """

    seconds: float
    """How long it took to compile."""
    needs_sizes: bool
    """Whether launches are for tables of certain sizes."""

    def __init__(self, reduction: Reduction) -> None:
        self.reduction = reduction
        self.results = sum(len(o.nodes) for o in reduction.summed)
        self._streams: dict[int, tuple[SumsLaunch, Held]] = {}

    @property
    def streamed(self) -> int:
        """Rows of the host that go through the device at a time; 0 if they are read there."""
        raise NotImplementedError

    def hold(
        self, rows: Any, indices: np.ndarray | None, sizes: Sequence[int]
    ) -> tuple[SumsLaunch, Held]:
        """A launch over these rows, whose lookups are in tables of these sizes.

        Raises:
            DeviceMemoryError: if there is no memory for them.
        """
        raise NotImplementedError

    def shrink(self, count: int) -> bool:
        """Whether a launch over so many rows takes less memory from now on."""
        raise NotImplementedError

    def run(self, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """parameters (n,), rows (N, columns), C-contiguous -> the sums (results,) in float64.

        The rows go through the memory of a device in parts.
        """
        self.require(parameters)
        self._require_rows(rows)
        most = self.streamed
        if not most and len(rows):
            plan, held = self.hold(rows, None, ())
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
        stream = self._streams.pop(len(rows), None)
        if stream is None:
            while len(self._streams) >= STREAMS:
                self._streams.pop(next(iter(self._streams)))
            try:
                stream = self.hold(rows, None, ())
            except DeviceMemoryError:
                self._streams.clear()
                raise
        else:
            stream[1].replace(stream[0].resident(rows, None))
        plan, held = stream
        sums = held.run(plan.total, parameters)
        self._streams[len(rows)] = stream
        return sums

    def bind(self, rows: Any, indices: np.ndarray | None = None) -> BoundSums:
        """The sums over these rows, for any parameters, and any tables that they look up.

        The rows (N, columns) of the host are copied to a device, and are read by the CPU where they
        are; so are the indices (N, count) of the entries that they look up.
        """
        self._require_rows(rows)
        count = self.reduction.indices
        if count and (indices is None or indices.shape != (len(rows), count)):
            raise InputError(f"indices for {len(rows)} rows: expected ({len(rows)}, {count})")
        while True:
            try:
                return BoundSums(self, rows, indices)
            except DeviceMemoryError:
                if not self.shrink(len(rows)):
                    raise

    def require(self, parameters: np.ndarray) -> None:
        """Refuse another number of parameters."""
        expected = (self.reduction.parameters,)
        if parameters.shape != expected:
            raise InputError(f"parameters of shape {parameters.shape}: expected {expected}")

    def _require_rows(self, rows: Any) -> None:
        """Refuse rows of another width."""
        if rows.ndim != 2 or rows.shape[1] != self.reduction.columns:
            raise InputError(f"rows of shape {rows.shape}: expected (N, {self.reduction.columns})")

    def let_go(self) -> None:
        """Give back the memory that is kept between calls."""
        self._streams.clear()


class BoundSums:
    """A reduction with its rows. Any number of threads may use it."""

    def __init__(self, sums: RowSums, rows: Any, indices: np.ndarray | None) -> None:
        self._sums, self._shape, self._count = sums, (sums.reduction.parameters,), len(rows)
        self._held: tuple[SumsLaunch, Held] | None = None
        self._sizes: tuple[int, ...] = ()
        self._rows, self._indices = (rows, indices) if sums.needs_sizes else (None, None)
        self._run: Callable[[np.ndarray], np.ndarray] | None = None
        if self._count and not sums.needs_sizes:
            plan, held = self._held = sums.hold(rows, indices, ())
            self._run = partial(held.run, plan.total)

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
        self._sums.require(parameters)
        if not self._count:
            return lambda: (np.zeros(self._sums.results), [np.zeros(t.shape) for t in tables])
        plan, held = self._over(tables)

        def use(outputs: Sequence[np.ndarray], read: Read) -> Added:
            return plan.total(outputs, read), plan.added(tables, outputs) if tables else []

        return held.begin(use, parameters, *plan.looked_up(tables))

    def _over(self, tables: Sequence[np.ndarray]) -> tuple[SumsLaunch, Held]:
        """The launch that looks entries up in tables of these sizes, if these matter."""
        sizes = tuple(t.size for t in tables) if self._sums.needs_sizes else ()
        held = self._held
        if held is None or self._sizes != sizes:
            held = self._sums.hold(self._rows, self._indices, sizes)
            self._held, self._sizes = held, sizes
        return held
