"""Points of a batch, and rows of a table, that are shared out over devices.

Devices of one name have equal shares of a table, others those that they do in the same time, which
is measured at the first run. Sums are added in the devices' order, in float64: while shares stay as
they are, the same devices give the same bits in every run.

A run takes a GPU a fraction of a millisecond, in which threads would only wait for one another. So
one thread has all GPUs begin, and then waits for each of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.errors import DeviceLostError, DeviceWarning, warn
from symgrad.kernel.memory import POOL
from symgrad.kernel.row_sums import Added
from symgrad.multi_device.pool import DevicePool, Member
from symgrad.targets import Device

ROWS: Final = 256
"""Shares are multiples of this many rows, except the last."""

SLOW: Final = 4.0
"""How many times as long as the quickest run so far one takes that is called slow."""

SLOW_SECONDS: Final = 0.01
"""Seconds of a run that are never called slow."""

SLOW_RUNS: Final = 3
"""Slow runs, one after another, after which the devices are measured again."""


class SharedSums:
    """A reduction that several devices run: see `Backend.sums`."""

    def __init__(self, sums: Sequence[tuple[Device, Any]]) -> None:
        self.pool = DevicePool([Member(*pair) for pair in sums], ROWS)
        self.seconds = sum(each.seconds for _, each in sums)

    def run(self, parameters: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """parameters (n,), rows (N, columns), C-contiguous -> the sums (results,) in float64."""
        return self.bind(rows).run(parameters)

    def bind(self, rows: np.ndarray, indices: np.ndarray | None = None) -> BoundShares:
        """The sums over these rows, for any parameters, and any tables that they look up."""
        return BoundShares(self.pool, rows, indices)


class BoundShares:
    """A reduction with its rows, each share where it is needed; a copy of all stays on the host."""

    def __init__(self, pool: DevicePool, rows: np.ndarray, indices: np.ndarray | None) -> None:
        self.pool, self.rows, self.indices = pool, rows, indices
        self._lock = threading.Lock()
        self._shares: list[tuple[Member, slice, Any]] = []
        self._slow, self._quickest = 0, np.inf
        self._cut_for(pool.present)

    @property
    def shares(self) -> list[tuple[Device, int]]:
        """How many rows each device has."""
        return [(m.device, part.stop - part.start) for m, part, _ in self._shares]

    def run(self, parameters: np.ndarray) -> np.ndarray:
        """parameters (n,) -> the sums (results,) in float64."""
        return self.run_with_tables(parameters, ())[0]

    def run_with_tables(self, parameters: np.ndarray, tables: Sequence[np.ndarray]) -> Added:
        """The sums, and for each lookup what was added to its table's entries, all in float64."""
        with self._lock:
            if self.pool.shares([m for m, _, _ in self._shares]) is None:
                self._measure(parameters, tables)
            start = time.perf_counter()
            sums = self._tried(parameters, tables)
            while sums is None:
                start = time.perf_counter()
                sums = self._tried(parameters, tables)
            self._watch(time.perf_counter() - start, parameters, tables)
            return _added(sums)

    def _tried(self, parameters: np.ndarray, tables: Sequence[np.ndarray]) -> list[Added] | None:
        """Sums of all shares, begun together; None if a device was lost, and they were cut."""
        ends = [
            (m, self._without_loss(m, partial(_begun, m, share, parameters, tables)))
            for m, _, share in self._shares
        ]
        sums = [end and self._without_loss(member, end) for member, end in ends]
        if any(m.is_lost for m, _, _ in self._shares):
            self._cut_for(self.pool.present)
            return None
        return sums

    def _without_loss(self, member: Member, call: Callable[[], Any]) -> Any:
        """The result of a call; None if the member was lost."""
        try:
            return call()
        except DeviceLostError:
            self.pool.lose(member)
            return None

    def _measure(self, parameters: np.ndarray, tables: Sequence[np.ndarray]) -> None:
        """Cut the rows anew, in proportion to how fast each device sums up its share alone."""
        for member, part, share in self._shares:
            run = partial(share.run_with_tables, parameters, tables)
            member.speed = None
            while member.speed is None and not member.is_lost:  # the first run is not measured
                start = time.perf_counter()
                self._without_loss(member, run)
                member.measure(max(part.stop - part.start, 1), time.perf_counter() - start)
        self._cut_for(self.pool.present)

    def _watch(self, took: float, parameters: np.ndarray, tables: Sequence[np.ndarray]) -> None:
        """Measure the devices again after several slow runs, and say so if one has become slow."""
        self._quickest = min(self._quickest, took)
        slow = took > max(SLOW * self._quickest, SLOW_SECONDS)
        self._slow = self._slow + 1 if slow else 0
        if self._slow < SLOW_RUNS:
            return
        self._slow, self._quickest = 0, np.inf
        before = dict(self.shares)
        self._measure(parameters, tables)
        for device, rows in self.shares:
            if 2 * rows < before[device]:
                warn(f"{device} has become slow: the others take rows from it", DeviceWarning)

    def _cut_for(self, members: Sequence[Member]) -> None:
        """Give each device its share of the rows, equal ones as long as speeds are not known."""
        count = len(self.rows)
        shares = self.pool.shares(members) or [1.0 / len(members)] * len(members)
        ends = np.round(np.cumsum(shares) * count / ROWS).astype(int) * ROWS
        ends = [*np.minimum(ends[:-1], count).tolist(), count]
        parts = [slice(*pair) for pair in zip([0, *ends[:-1]], ends, strict=True)]
        self._shares.clear()  # what they keep is given back first
        futures = [
            m.thread.start(partial(self._bound, m.tool, part))
            for m, part in zip(members, parts, strict=True)
        ]
        bound = [future.result() for future in futures]
        self._shares += zip(members, parts, bound, strict=True)

    def _bound(self, sums: Any, part: slice) -> Any:
        """Some of the rows, bound to a device."""
        indices = None if self.indices is None else self.indices[part]
        return sums.bind(self.rows[part], indices)


def _begun(
    member: Member, share: Any, parameters: np.ndarray, tables: Sequence[np.ndarray]
) -> Callable[[], Added]:
    """A function that waits for the sums of a share that a GPU, or the CPU's thread, has begun."""
    if not member.device.is_gpu:
        call = partial(share.run_with_tables, parameters, tables)
        return member.thread.start(call).result
    return share.begin(parameters, tables)


def _added(shares: Sequence[Added]) -> Added:
    """The sums of all shares, in their order."""
    sums, entries = shares[0]
    for more, others in shares[1:]:
        sums = sums + more
        entries = [a + b for a, b in zip(entries, others, strict=True)]
    return sums, entries


FLOAT: Final = np.dtype(np.float32)

LEAST_POINTS: Final = 2**15
"""Points that are worth a piece."""


class Launched:
    """A map that several devices have compiled, each for the points that it is given.

    Every point has the bits that the device gives it that computes it.
    """

    def __init__(
        self,
        compiled: Sequence[tuple[Device, Any]],
        outputs: Sequence[int],
        dtype: np.dtype[Any] = FLOAT,
    ) -> None:
        self.pool = DevicePool([Member(*pair) for pair in compiled], LEAST_POINTS)
        self._outputs, self._dtype = outputs, dtype
        self.seconds = sum(launched.seconds for _, launched in compiled)

    def run(self, points: np.ndarray) -> Sequence[np.ndarray]:
        """Results (B, k) of points (B, n), which are rounded; fresh, writable arrays."""
        results = [POOL.empty((len(points), k), self._dtype, False) for k in self._outputs]
        return self.pool.fill(len(points), results, partial(_compute, points))

    def bind(
        self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]
    ) -> Callable[[], None]:
        """A call that computes these points (B, n) into these arrays (B, k), every time."""
        (points,) = inputs
        work = partial(_compute, points)
        return lambda: self._into(results, self.pool.fill(len(points), results, work))

    def run_filled(
        self, fill: Callable[[slice], np.ndarray], step: int, results: Sequence[np.ndarray]
    ) -> None:
        """Write to arrays (B, k) what is computed of points, of which ``fill`` makes ``step``."""

        def work(member: Member, part: slice, arrays: Sequence[np.ndarray]) -> None:
            def filled(some: slice) -> np.ndarray:
                return fill(slice(part.start + some.start, part.start + some.stop))

            member.tool.run_filled(filled, step, [array[part] for array in arrays])

        self._into(results, self.pool.fill(len(results[0]), results, work))

    def _into(self, results: Sequence[np.ndarray], arrays: Sequence[np.ndarray]) -> None:
        """Copy what was computed elsewhere than it should be."""
        if arrays is not results:
            for result, array in zip(results, arrays, strict=True):
                np.copyto(result, array)


def _compute(
    points: np.ndarray, member: Member, part: slice, results: Sequence[np.ndarray]
) -> None:
    """Some of the points by one device, in the dtype that all compute in."""
    some = np.ascontiguousarray(points[part], results[0].dtype if results else None)
    member.tool.bind([some], [result[part] for result in results])()
