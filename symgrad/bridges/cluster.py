"""Data in blocks, which Dask has on many machines: what is done with each of them, and the sums."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from operator import add
from typing import Any, Final, Protocol

import numpy as np

from symgrad.bridges.tables import dask, tables_of
from symgrad.errors import DeviceError, InputError, SymgradError

SECONDS_BETWEEN_LOOKS: Final = 2.0
"""How long an answer of all workers may take before it is looked which of them are still there."""

MOST_LOSSES: Final = 20
"""How often in a row workers may be lost during one call."""


def _distributed() -> Any:
    """The package of clusters; None where nobody has imported it: then there is no client."""
    return "distributed" in sys.modules and import_module("distributed")


def tree_sum(values: Sequence[Any], plus: Callable[[Any, Any], Any] = add) -> Any:
    """The sum of neighbours, of neighbours of these, and so on: its order is known beforehand."""
    found = list(values)
    while len(found) > 1:
        pairs = [plus(a, b) for a, b in zip(found[::2], found[1::2], strict=False)]
        found = [*pairs, *found[2 * len(pairs) :]]
    return found[0]


class Rows(Protocol):
    """Rows that a kernel over data is bound to."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        ...

    def totals(self, flat: np.ndarray) -> Any:
        """The sums over the rows, for parameters in a row."""
        ...

    def unended(self, flat: np.ndarray) -> int:
        """How many rows have loops that did not end."""
        ...


class BlocksOfRows:
    """The rows of a collection of Dask's: each block is bound once, where it is.

    With a client of ``distributed``, that is on its workers. A block whose worker is lost is made
    again of what the collection is made of, and bound by another. Without one, all of them are
    bound in this process. Sums are added in the order of the blocks, whoever has them.
    """

    def __init__(self, rows: Any, kernel: Any, counting: bool) -> None:
        self._blocks = kept(kernel, tables_of(rows), counting)
        self.count = sum(self._blocks.ask(_count))

    def totals(self, flat: np.ndarray) -> Any:
        """The sums over all rows."""
        return tree_sum(self._blocks.ask(_totals, flat))

    def unended(self, flat: np.ndarray) -> int:
        """How many rows have loops that did not end."""
        return sum(self._blocks.ask(_unended, flat))


class Blocks(Protocol):
    """What has been made of each block of a collection, where it is."""

    def ask(self, what: Callable[..., Any], *given: Any) -> list[Any]:
        """What each of them answers, ``what(block, *given)``, in the order of the blocks."""
        ...


def kept(kernel: Any, tables: Sequence[Any], *options: Any) -> Blocks:
    """``kernel.keep(table, *options)`` of each table, a delayed one, where that is.

    Raises:
        InputError: if there is none.
    """
    if not tables:
        raise InputError("the collection has no blocks")
    client = _client()
    if client is None:
        return _Here([kernel.keep(t.compute(), *options) for t in tables])
    return _OnWorkers(client, tables, pickle.dumps(kernel), options)


def _count(rows: Rows) -> int:
    return rows.count


def _totals(rows: Rows, flat: np.ndarray) -> Any:
    return rows.totals(flat)


def _unended(rows: Rows, flat: np.ndarray) -> int:
    return rows.unended(flat)


class _Here:
    """Blocks that are bound in this process."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self._blocks = blocks

    def ask(self, what: Callable[..., Any], *given: Any) -> list[Any]:
        """What each block answers."""
        return [what(block, *given) for block in self._blocks]


class _OnWorkers:
    """Blocks that workers have bound; each of them is asked once for all that it has."""

    def __init__(
        self, client: Any, tables: Sequence[Any], kernel: bytes, options: tuple[Any, ...]
    ) -> None:
        self._client, self._distributed = client, _distributed()
        name = f"symgrad-kernel-{uuid.uuid4().hex}"
        shared = dask().delayed(kernel, name=name, traverse=False)
        bound = dask().delayed(_bound, pure=False, traverse=False)
        tasks = [bound(shared, table, *options) for table in tables]
        self._futures = [
            future
            for part, where in self._shared_out(tasks)
            for future in client.compute(part, **where)
        ]
        self._places: dict[str, list[int]] = {}
        """The blocks that workers have, by their addresses."""

    def _shared_out(self, tasks: Sequence[Any]) -> list[tuple[Sequence[Any], dict[str, Any]]]:
        """Parts of the blocks, as large as the workers have threads, and whose they are to be.

        Blocks of a collection that workers have already are bound where they are.
        """
        threads = self._client.nthreads()
        if not threads or self._distributed.futures_of(tasks):
            return [(tasks, {})]
        ends = np.cumsum(list(threads.values())) / sum(threads.values()) * len(tasks)
        cuts = [0, *np.rint(ends).astype(int).tolist()]
        parts = (tasks[start:end] for start, end in itertools.pairwise(cuts))
        where = ({"workers": [address], "allow_other_workers": True} for address in threads)
        return [(part, its) for part, its in zip(parts, where, strict=True) if part]

    def ask(self, what: Callable[..., Any], *given: Any) -> list[Any]:
        """What each block answers, in their order."""
        with self._client.as_current():  # whichever client the caller has meanwhile
            for _ in range(MOST_LOSSES):
                self._places = self._places or self._found()
                answers = self._asked(what, given)
                if answers is not None:
                    return answers
                self._places = {}
        raise DeviceError(f"{MOST_LOSSES} workers were lost one after the other: the call gave up")

    def _found(self) -> dict[str, list[int]]:
        """Where the blocks are, once all of them are bound."""
        self._distributed.wait(self._futures)
        for future in self._futures:
            if future.status == "error":
                raise future.exception()
        places: dict[str, list[int]] = {}
        has = self._client.who_has(self._futures)
        for k, future in enumerate(self._futures):
            if not has.get(future.key):
                return {}  # it was lost meanwhile, and is made again
            places.setdefault(sorted(has[future.key])[0], []).append(k)
        return places

    def _asked(self, what: Callable[..., Any], given: tuple[Any, ...]) -> list[Any] | None:
        """The answers; None if a worker was lost."""
        if not self._places:
            time.sleep(0.05)
            return None
        tasks = [
            self._client.submit(
                _answers,
                what,
                [self._futures[k] for k in blocks],
                given,
                workers=[address],
                pure=False,
            )
            for address, blocks in self._places.items()
        ]
        if not self._all_there(tasks):
            self._client.cancel(tasks)
            return None
        answers: list[Any] = [None] * len(self._futures)
        for blocks, found in zip(self._places.values(), self._client.gather(tasks), strict=True):
            for k, answer in zip(blocks, found, strict=True):
                answers[k] = answer
        return answers

    def _all_there(self, tasks: Sequence[Any]) -> bool:
        """Wait for tasks: whether all of them were done, and no worker lost."""
        while True:
            try:
                self._distributed.wait(tasks, timeout=SECONDS_BETWEEN_LOOKS)
            except TimeoutError:
                if self._places.keys() - self._client.nthreads().keys():
                    return False
                continue
            wrong = [task for task in tasks if task.status != "finished"]
            if wrong and not self._places.keys() - self._client.nthreads().keys():
                raise wrong[0].exception()
            return not wrong


def _answers(what: Callable[..., Any], blocks: Sequence[Any], given: tuple[Any, ...]) -> list[Any]:
    return [what(block, *given) for block in blocks]


def _bound(kernel: bytes, table: Any, *options: Any) -> Any:
    return arrived(kernel).keep(table, *options)


@lru_cache(maxsize=8)
def arrived(kernel: bytes) -> Any:
    """A kernel on a worker, for its device.

    Raises:
        DeviceError: if it cannot run there.
    """
    named = device_here(None)
    found = pickle.loads(kernel)
    try:
        return found if named is None else found.to(named)
    except SymgradError as error:
        raise DeviceError(
            f"the kernel cannot run on a worker whose SYMGRAD_DEVICE is {named!r}: {error}; start "
            "that worker with SYMGRAD_DEVICE=cpu, or make a kernel for its device"
        ) from error


def device_here(asked: Any) -> Any:
    """The device that a worker's SYMGRAD_DEVICE names, or else the one that was asked for.

    The CPU has as many threads as the worker.
    """
    distributed = _distributed()
    with suppress(ValueError):  # this is no worker
        if distributed:
            threads = distributed.get_worker().state.nthreads
            os.environ.setdefault("SYMGRAD_THREADS", str(threads))
    named = os.environ.get("SYMGRAD_DEVICE")
    return (int(named) if named.isdecimal() else named) if named else asked


def _client() -> Any:
    """The client of ``distributed`` that this process has, if it has one."""
    try:
        distributed = _distributed()
        return distributed.get_client() if distributed else None
    except ValueError:
        return None
