"""Points of a batch, and rows of a table, that are shared out over devices.

Devices of one name have equal shares of a table, others those that they do in the same time, which
is measured at the first run. Sums are added in the devices' order, in float64: while shares stay as
they are, the same devices give the same bits in every run.

A run takes a GPU a fraction of a millisecond, in which threads would only wait for one another. So
one thread has all GPUs begin, and then waits for each of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial, reduce
from queue import SimpleQueue
from typing import Any, Final

import numpy as np

from symgrad.errors import DeviceLostError, DeviceWarning, warn
from symgrad.kernel.host.memory import POOL
from symgrad.targets import Device

# --- the device pool ------------------------------------------------------------------------------
# Devices that share work: how much each gets, and what becomes of the share of one that is lost.
#
# Work is some number of things that do not depend on each other: points, or problems. It is given
# out in pieces, to each device as many as it does in the time in which the others do theirs. Its
# speed is measured by the pieces that it has done; devices of one name are taken for equally fast
# at first.

Job = tuple[Callable[[], Any], "Future[Any]"]


class Thread:
    """A daemon thread that does calls one after another: none is waited for at exit."""

    def __init__(self, device: Device) -> None:
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._hanging: Future[Any] | None = None
        threading.Thread(target=self._work, name=f"symgrad: {device}", daemon=True).start()

    def start(self, call: Callable[[], Any]) -> Future[Any]:
        """The future of what a call returns or raises."""
        future: Future[Any] = Future()
        self._jobs.put((call, future))
        return future

    def give_up(self, future: Future[Any]) -> None:
        """Note that nobody waits for a call any more: the thread hangs until that is done."""
        self._hanging = future

    @property
    def hangs(self) -> bool:
        """Whether it is still at a call that was given up."""
        return self._hanging is not None and not self._hanging.done()

    def _work(self) -> None:
        while True:
            call, future = self._jobs.get()
            try:
                future.set_result(call())
            except BaseException as error:  # whoever waits for it raises it
                future.set_exception(error)
            del call, future  # the arrays of a call are not kept until the next


_threads: dict[Device, Thread] = {}
_lock = threading.Lock()


def thread_of(device: Device) -> Thread:
    """The thread of a device, of which there is one in a process."""
    with _lock:
        if device not in _threads:
            _threads[device] = Thread(device)
        return _threads[device]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.clear)  # threads do not survive a fork


FIRST: Final = 0.75
"""The part of all work that is given out at first, to devices whose speeds are known."""

MOMENT: Final = 0.1
"""Seconds of work for all devices together that are given out at once: pieces take a device time
between them."""

PIECE_SECONDS: Final = 0.01
"""Seconds that a piece takes, at least, on a device whose speed is known."""

REST: Final = 0.5
"""The part of what is left that is given out next, in proportion to speeds."""

NEWEST: Final = 0.5
"""The weight of the newest measurement of a speed, beside all earlier ones."""

WAITED_SECONDS: Final = 2.0
"""Seconds for which a device is waited for when the others are done, at least."""

WAITED_TIMES: Final = 20.0
"""How many times as long as all others took a device is waited for, at most."""


Arrays = Sequence[np.ndarray]
"""Arrays to fill: the first axis of each is that of the items of work."""

Work = Callable[["Member", slice, Arrays], None]
"""Has a member fill a part of the arrays."""


@dataclass
class Member:
    """A device of a device pool, what it computes with, and how fast it has been seen to be."""

    device: Device
    tool: Any
    speed: float | None = None
    """Things a second; None before it was measured."""
    is_warm: bool = False
    """Whether it has done a piece: its first may have been compiled for."""
    is_lost: bool = False

    @property
    def thread(self) -> Thread:
        """The thread that drives it."""
        return thread_of(self.device)

    @property
    def is_there(self) -> bool:
        """Whether it can be given work."""
        return not self.is_lost and not self.thread.hangs

    def measure(self, count: int, seconds: float) -> None:
        """Note how long ``count`` things have taken."""
        if self.is_warm:
            new = count / max(seconds, 1e-9)
            self.speed = new if self.speed is None else NEWEST * new + (1 - NEWEST) * self.speed
        self.is_warm = True


@dataclass
class DevicePool:
    """Devices that share work, in the order in which they were named.

    ``least`` is the number of things that are worth a piece.
    """

    members: Sequence[Member]
    least: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def present(self) -> list[Member]:
        """The members that can be given work.

        Raises:
            DeviceLostError: if there are none.
        """
        present = [m for m in self.members if m.is_there]
        if not present:
            names = ", ".join(str(m.device) for m in self.members)
            raise DeviceLostError(f"all devices were lost, or hang: {names}")
        return present

    def shares(self, members: Sequence[Member]) -> list[float] | None:
        """The parts of work that members get, which sum to 1; None while speeds are unknown."""
        speeds = [m.speed for m in members]
        if None in speeds:
            alike = len({(m.device.name, m.device.backend) for m in members}) == 1
            speeds = [1.0 for _ in members] if alike else None
        rates = None if speeds is None else [s or 0.0 for s in speeds]
        return None if rates is None else [s / sum(rates) for s in rates]

    def lose(self, member: Member) -> None:
        """Go on without a member that was lost, and say so."""
        member.is_lost = True
        warn(f"{member.device} was lost: its share goes to the other devices", DeviceWarning)

    def give_up(self, member: Member, future: Future[Any]) -> None:
        """Go on without a member until it has done what it is doing, and say so."""
        member.thread.give_up(future)
        warn(
            f"{member.device} takes much longer than the other devices: they do its share",
            DeviceWarning,
        )

    def fill(
        self, count: int, arrays: Arrays, work: Work, progress: Callable[[int], bool] | None = None
    ) -> Arrays:
        """Have ``work(member, part, arrays)`` fill the parts of arrays (count, ...): they are.

        If a device hangs they are others than were given, for it may still write to these.
        Work of one piece is the fastest member's, in the caller's thread. ``progress`` is called
        with how many things are done, and may end the work by a true answer.
        """
        with self.lock:
            present = self.present
            if len(present) == 1 or count < 2 * self.least:
                return self._alone(present, count, arrays, work)
            return _Run(self, present, count, arrays, work, progress).done()

    def _alone(self, present: list[Member], count: int, arrays: Arrays, work: Work) -> Arrays:
        """All of the work by one member; by another if that is lost."""
        while True:
            member = max(present, key=lambda m: m.speed or 0.0)
            try:
                work(member, slice(0, count), arrays)
                return arrays
            except DeviceLostError:
                self.lose(member)
                present = self.present


class _Run:
    """Work that is being done: what is left of it, and who does which piece."""

    def __init__(
        self,
        pool: DevicePool,
        present: list[Member],
        count: int,
        arrays: Arrays,
        work: Work,
        progress: Callable[[int], bool] | None,
    ) -> None:
        self.progress, self.finished = progress, 0
        self.pool, self.members, self.arrays, self.work = pool, present, arrays, work
        self.left: deque[slice] = deque([slice(0, count)])
        self.running: dict[Future[float], tuple[Member, slice]] = {}
        self.begun = time.perf_counter()

    def done(self) -> Arrays:
        """Give out everything, and wait for it: the arrays."""
        least, shares = self.pool.least, self.pool.shares(self.members)
        count = self.left[0].stop
        for k, member in enumerate(self.members):
            size = least if shares is None else int(self._first(count) * shares[k] * count)
            self._start(member, size if 4 * size >= least else 0)
        if not self.running:
            self._idle()
        try:
            while self.running:
                ended, _ = wait(self.running, self._patience(), FIRST_COMPLETED)
                for future in ended:
                    self._ended(future)
                if not ended:
                    self._abandon()
        finally:  # nothing is written to the user's arrays after an error
            wait(self.running, WAITED_SECONDS)
        return self.arrays

    def _first(self, count: int) -> float:
        """The part of all work that is given out at first: all, if that takes a moment only."""
        speeds = [m.speed or 0.0 for m in self.members]
        return FIRST if all(speeds) and count > MOMENT * sum(speeds) else 1.0

    def _start(self, member: Member, size: int) -> None:
        """Give a piece to a member, if it is worth one."""
        part = self._taken(size) if size else None
        if part is None:
            return
        arrays, work = self.arrays, self.work

        def timed() -> float:
            start = time.perf_counter()
            work(member, part, arrays)
            return time.perf_counter() - start

        self.running[member.thread.start(timed)] = member, part

    def _taken(self, size: int) -> slice | None:
        """The next ``size`` things of those that are left, or a few more."""
        if not self.left:
            return None
        part = self.left.popleft()
        end = part.start + size
        if part.stop - end < self.pool.least:
            return part
        self.left.appendleft(slice(end, part.stop))
        return slice(part.start, end)

    def _ended(self, future: Future[float]) -> None:
        """Give the next piece to who has done one; that of who was lost to the others."""
        member, part = self.running.pop(future)
        try:
            seconds = future.result()
        except DeviceLostError:
            self.left.append(part)
            self.pool.lose(member)
            self._idle()
            return
        member.measure(part.stop - part.start, seconds)
        self.finished += part.stop - part.start
        if self.progress is not None and self.progress(self.finished):
            self.left.clear()
        self._start(member, self._next(member))

    def _next(self, member: Member) -> int:
        """How many things a member is given next."""
        least = self.pool.least
        if member.speed is None:
            return least
        left = sum(part.stop - part.start for part in self.left)
        total = sum(m.speed or 0.0 for m in self.members if m.is_there)
        size = int(REST * left * member.speed / total)
        least = max(least, int(PIECE_SECONDS * member.speed))
        return max(size, least) if 4 * size >= least or not self.running else 0

    def _idle(self) -> None:
        """Give pieces to whoever has none."""
        busy = [m for m, _ in self.running.values()]
        for member in self.members:
            if member.is_there and member not in busy:
                self._start(member, max(self._next(member), self.pool.least))
        if self.left and not self.running:
            raise DeviceLostError("all devices were lost: make the kernel again")

    def _patience(self) -> float | None:
        """Seconds until what still runs is given to others; None while it is not."""
        busy = [m for m, _ in self.running.values()]
        idle = any(m.is_there and m not in busy for m in self.members)
        if self.left or not idle or not all(m.is_warm for m in busy):
            return None
        return max(WAITED_SECONDS, WAITED_TIMES * (time.perf_counter() - self.begun))

    def _abandon(self) -> None:
        """Go on without those that others have waited for too long, in other arrays than theirs."""
        self.arrays = [array.copy() for array in self.arrays]
        for future, (member, part) in self.running.items():
            self.left.append(part)
            self.pool.give_up(member, future)
        self.running.clear()
        self._idle()


# --- shares ---------------------------------------------------------------------------------------

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

    def run(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The sums over rows (N, columns), C-contiguous: see `RowSums.run`."""
        return self.bind(rows).run(numbers)

    def bind(self, rows: np.ndarray, indices: np.ndarray | None = None) -> BoundShares:
        """The sums over these rows: see `RowSums.bind`."""
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

    def run(self, numbers: np.ndarray) -> np.ndarray:
        """The sums in float64: those of all shares, in their order."""
        with self._lock:
            if self.pool.shares([m for m, _, _ in self._shares]) is None:
                self._measure(numbers)
            start = time.perf_counter()
            sums = self._tried(numbers)
            while sums is None:
                start = time.perf_counter()
                sums = self._tried(numbers)
            self._watch(time.perf_counter() - start, numbers)
            return reduce(np.add, sums)

    def _tried(self, numbers: np.ndarray) -> list[np.ndarray] | None:
        """Sums of all shares, begun together; None if a device was lost, and they were cut."""
        ends = [
            (m, self._without_loss(m, partial(_begun, m, share, numbers)))
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

    def _measure(self, numbers: np.ndarray) -> None:
        """Cut the rows anew, in proportion to how fast each device sums up its share alone."""
        for member, part, share in self._shares:
            run = partial(share.run, numbers)
            member.speed = None
            while member.speed is None and not member.is_lost:  # the first run is not measured
                start = time.perf_counter()
                self._without_loss(member, run)
                member.measure(max(part.stop - part.start, 1), time.perf_counter() - start)
        self._cut_for(self.pool.present)

    def _watch(self, took: float, numbers: np.ndarray) -> None:
        """Measure the devices again after several slow runs, and say so if one has become slow."""
        self._quickest = min(self._quickest, took)
        slow = took > max(SLOW * self._quickest, SLOW_SECONDS)
        self._slow = self._slow + 1 if slow else 0
        if self._slow < SLOW_RUNS:
            return
        self._slow, self._quickest = 0, np.inf
        before = dict(self.shares)
        self._measure(numbers)
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


def _begun(member: Member, share: Any, numbers: np.ndarray) -> Callable[[], np.ndarray]:
    """A function that waits for the sums of a share that a GPU, or the CPU's thread, has begun."""
    if not member.device.is_gpu:
        return member.thread.start(partial(share.run, numbers)).result
    return share.begin(numbers)


FLOAT: Final = np.dtype(np.float32)

LEAST_POINTS: Final = 2**15
"""Points that are worth a piece."""


class SharedMap:
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
