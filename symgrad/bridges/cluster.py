"""Data in blocks, which Dask has on many machines: tasks for each of them, and their sums."""

from __future__ import annotations

import os
import pickle
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from operator import add
from typing import Any, Final, Protocol

import numpy as np

from symgrad.bridges.tables import as_dask_array, by_rows, dask, dask_arrays, parts, tables_of
from symgrad.errors import DeviceError, InputError, SymgradError
from symgrad.expr.tracers.tree import flatten

SECONDS_BETWEEN_LOOKS: Final = 2.0
"""How long an answer of all workers may take before it is looked which of them are still there."""

SECONDS_BEFORE_ANOTHER: Final = 0.05
"""How long the scheduler has to see that a worker is lost, before it is asked again."""

MOST_LOSSES: Final = 20
"""How often in a row workers may be lost during one call."""


def _distributed() -> Any:
    """The package of clusters; False where it is not imported, as there is no client then."""
    return "distributed" in sys.modules and import_module("distributed")


def tree_sum(values: Sequence[Any], plus: Callable[[Any, Any], Any] = add) -> Any:
    """The sum of neighbours, of neighbours of these, and so on: its order is known beforehand."""
    sums = list(values)
    while len(sums) > 1:
        pairs = [plus(a, b) for a, b in zip(sums[::2], sums[1::2], strict=False)]
        sums = [*pairs, *sums[2 * len(pairs) :]]
    return sums[0]


class Rows(Protocol):
    """Rows that a kernel over data is bound to."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        ...

    @property
    def codes(self) -> Mapping[str, Any]:
        """The codes of labels and dates in them."""
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
    bound in this process. Sums are added in the order of the blocks, on whichever worker they are.
    """

    def __init__(self, rows: Any, kernel: Any, counting: bool) -> None:
        shapes = {c.name: c.shape for c in kernel.request.columns.blocks}
        self._blocks = kept(kernel, tables_of(rows, shapes), counting)
        self.count = sum(self._blocks.ask(_count))
        _require_same(self._blocks.ask(_codes))

    def totals(self, flat: np.ndarray) -> Any:
        """The sums over all rows."""
        return tree_sum(self._blocks.ask(_totals, flat))

    def unended(self, flat: np.ndarray) -> int:
        """How many rows have loops that did not end."""
        return sum(self._blocks.ask(_unended, flat))


class Blocks(Protocol):
    """The results of the blocks of a collection, each where it was computed."""

    def ask(self, what: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The answers ``what(block, *arguments)``, in the order of the blocks."""
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


def _codes(rows: Rows) -> Mapping[str, Any]:
    return rows.codes


def _require_same(codes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse blocks in which the same number stands for different labels, or dates.

    Raises:
        InputError: if there are such, which workers read by themselves.
    """
    first_labels: dict[str, Any] = {}
    for block in codes:
        for name, labels in block.items():
            if not np.array_equal(first_labels.setdefault(name, labels), labels):
                raise InputError(
                    f"{name} holds other labels, or other first dates, in some blocks than in "
                    f"others: say beforehand what its numbers stand for, by codes={{{name!r}: ...}}"
                )


def _totals(rows: Rows, flat: np.ndarray) -> Any:
    return rows.totals(flat)


def _unended(rows: Rows, flat: np.ndarray) -> int:
    return rows.unended(flat)


class _Here:
    """Blocks that are bound in this process."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self._blocks = blocks

    def ask(self, what: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The answers of all blocks."""
        return [what(block, *arguments) for block in self._blocks]


class _OnWorkers:
    """Blocks that workers have bound; each of them is asked once for all that it has."""

    def __init__(
        self, client: Any, tables: Sequence[Any], kernel: bytes, options: tuple[Any, ...]
    ) -> None:
        self._client, self._distributed = client, _distributed()
        self._tables, self._options = tables, options
        self._kernel = kernel
        self._meant = self._shared_out()
        self._futures = client.compute(self._binding(range(len(tables))))
        self._holders: list[_Holder] = []
        self._actors: list[Any] = []

    def _shared_out(self) -> list[str | None]:
        """Which worker each block is to be bound by: as many as it has threads, and neighbours.

        Blocks of a collection that workers have already are bound where they are.
        """
        threads, blocks = self._client.nthreads(), len(self._tables)
        if not threads or self._distributed.futures_of(self._tables):
            return [None] * blocks
        ends = np.cumsum(list(threads.values())) / sum(threads.values()) * blocks
        whose = np.searchsorted(np.rint(ends), np.arange(blocks), side="right")
        return [list(threads)[w] for w in whose]

    def _binding(self, blocks: Sequence[int]) -> list[Any]:
        """The tasks that bind blocks. What these are made of may be anywhere."""
        name = f"symgrad-kernel-{uuid.uuid4().hex}"
        kernel = dask().delayed(self._kernel, name=name, traverse=False)
        bound, tasks = dask().delayed(_bound, pure=False, traverse=False), []
        for k in blocks:
            address = self._meant[k]
            where = {"workers": [address], "allow_other_workers": True} if address else {}
            with dask().annotate(**where):
                tasks.append(bound(kernel, self._tables[k], *self._options))
        return tasks

    def ask(self, what: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The answers of all blocks, in their order."""
        why = None
        with self._client.as_current():  # whichever client the caller has meanwhile
            for _ in range(MOST_LOSSES):
                try:
                    return self._asked(what, arguments)
                except _Lost as lost:
                    why, self._actors, self._holders = lost, [], []
                    time.sleep(SECONDS_BEFORE_ANOTHER)
        raise DeviceError(
            f"{MOST_LOSSES} workers were lost one after the other: the call gave up"
        ) from why

    def _asked(self, what: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
        """The answers. All workers are asked before the first is waited for."""
        if not self._actors:
            self._holders = self._all_holders()
            self._actors = [self._of(holder.held) for holder in self._holders]
        message = pickle.dumps((what, arguments))
        try:
            calls = [actor.ask(message) for actor in self._actors]
        except RuntimeError as lost:
            raise _Lost from lost
        answers: list[Any] = [None] * len(self._futures)
        for holder, call in zip(self._holders, calls, strict=True):
            reply = pickle.loads(self._of(call))
            if isinstance(reply, Exception):
                raise reply
            for k, answer in zip(holder.blocks, reply, strict=True):
                answers[k] = answer
        return answers

    def _all_holders(self) -> list[_Holder]:
        """Who has which blocks, once all of them are bound."""
        while not self._all_bound():
            self._bind_elsewhere()
        for future in self._futures:
            if future.status == "error":
                raise future.exception()
        places: dict[str, list[int]] = {}
        has = self._client.who_has(self._futures)
        for k, future in enumerate(self._futures):
            if not has.get(future.key):
                raise _Lost
            places.setdefault(sorted(has[future.key])[0], []).append(k)
        return [self._holder(address, blocks) for address, blocks in places.items()]

    def _all_bound(self) -> bool:
        """Wait for a while: whether all blocks are bound, or failed."""
        try:
            self._distributed.wait(self._futures, timeout=SECONDS_BETWEEN_LOOKS)
        except TimeoutError:
            return False
        except CancelledError as gone:
            raise DeviceError("bound blocks were cancelled: bind the collection again") from gone
        return True

    def _bind_elsewhere(self) -> None:
        """Bind blocks again, by anybody, that are to be a worker's who is not there any more.

        Dask keeps such tasks for that worker if there was no other when it was lost.
        """
        workers = self._client.nthreads()
        left = [
            k
            for k, (future, address) in enumerate(zip(self._futures, self._meant, strict=True))
            if address and address not in workers and future.status != "finished"
        ]
        for k in left:
            self._meant[k] = None
        for k, future in zip(left, self._client.compute(self._binding(left)), strict=True):
            self._futures[k] = future

    def _holder(self, address: str, blocks: Sequence[int]) -> _Holder:
        held = [self._futures[k] for k in blocks]
        actor = self._client.submit(_Held, held, workers=[address], actor=True, pure=False)
        return _Holder(address, blocks, actor)

    def _of(self, future: Any) -> Any:
        """The function that a worker runs in its own time."""
        while True:
            try:
                return future.result(timeout=SECONDS_BETWEEN_LOOKS)
            except TimeoutError:
                if not self._all_there():
                    raise _Lost from None
            except Exception as lost:
                raise _Lost from lost

    def _all_there(self) -> bool:
        """Whether no worker was lost, nor what it holds."""
        workers = self._client.nthreads()
        return all(
            holder.address in workers and holder.held.status in ("pending", "finished")
            for holder in self._holders
        )


class _Lost(Exception):
    """A worker is not there any more, or has not what it had."""


@dataclass(frozen=True)
class _Holder:
    """A worker's address, the numbers of the blocks that it has, and the future of its `_Held`."""

    address: str
    blocks: Sequence[int]
    held: Any


class _Held:
    """The blocks that a worker has: an actor, which answers without a task of the scheduler's."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self._blocks = blocks

    def ask(self, message: bytes) -> bytes:
        """The answer of each of them, or its exception.

        Both travel pickled: as one message, and Dask's actors have no answer to what their worker
        fails to read.
        """
        try:
            what, arguments = pickle.loads(message)
            return pickle.dumps([what(block, *arguments) for block in self._blocks])
        except Exception as wrong:
            return pickle.dumps(wrong)


def _bound(kernel: bytes, table: Any, *options: Any) -> Any:
    return arrived(kernel).keep(table, *options)


@lru_cache(maxsize=8)
def arrived(kernel: bytes) -> Any:
    """A kernel on a worker, for its device.

    Raises:
        DeviceError: if it cannot run there.
    """
    named = device_here(None)
    own_kernel = pickle.loads(kernel)
    try:
        return own_kernel if named is None else own_kernel.to(named)
    except SymgradError as error:
        raise DeviceError(
            f"the kernel cannot run on a worker whose SYMGRAD_DEVICE is {named!r}: {error}; start "
            "that worker with SYMGRAD_DEVICE=cpu, or make a kernel for its device"
        ) from error


def device_here(default: Any) -> Any:
    """The device that a worker's SYMGRAD_DEVICE names, or else the one that was asked for.

    The CPU has as many threads as the worker.
    """
    distributed = _distributed()
    with suppress(ValueError):  # this is no worker
        if distributed:
            threads = distributed.get_worker().state.nthreads
            os.environ.setdefault("SYMGRAD_THREADS", str(threads))
    named = os.environ.get("SYMGRAD_DEVICE")
    return (int(named) if named.isdecimal() else named) if named else default


def _client() -> Any:
    """The client of ``distributed`` that this process has, if it has one."""
    try:
        distributed = _distributed()
        return distributed.get_client() if distributed else None
    except ValueError:
        return None


# --- tasks for the blocks of an array -------------------------------------------------------------


def mapped(
    task: Callable[..., list[np.ndarray]],
    arguments: Sequence[Sequence[Any]],
    like: Any,
    results: Sequence[np.ndarray],
) -> list[Any]:
    """The results of ``task(*arguments)`` of each block, one behind the other: Dask arrays.

    ``results`` are like those of a block: their dtypes, and their shapes except for the first axis.
    """
    arrays = dask_arrays()
    delayed = dask().delayed(task, pure=False, traverse=False, nout=len(results))
    computed = [delayed(*block) for block in zip(*arguments, strict=True)]
    return [
        arrays.concatenate(
            [
                arrays.from_delayed(block[k], (rows, *r.shape[1:]), meta=r[:0])
                for block, rows in zip(computed, like.chunks[0], strict=True)
            ]
        )
        for k, r in enumerate(results)
    ]


def run_blocks(kernel: Any, x: Any) -> Any:
    """The results of ``kernel.run`` of points (B, n) in blocks: nested alike, of Dask arrays.

    The kernel travels to the worker that computes a block, when its result is asked for.
    """
    if isinstance(x, Mapping) or as_dask_array(x).ndim != 2:
        form = "is a dict" if isinstance(x, Mapping) else f"has shape {x.shape}"
        raise InputError(
            f"x {form}: points in blocks are (B, {kernel.n_inputs}), in one array, such as "
            "dask.array.stack(columns, axis=1)"
        )
    x = by_rows(as_dask_array(x))
    results, tree = flatten(kernel.run(np.zeros((0, x.shape[1]), x.dtype)), lambda _: None)
    if any(r.dtype == object for r in results):
        raise InputError("results in blocks are dense: make the kernel with sparse=False")
    sent = [pickle.dumps(kernel)] * x.numblocks[0]
    return tree.nest(iter(mapped(_run, [sent, parts(x)], x, results)))


def _run(kernel: bytes, points: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(a) for a in flatten(arrived(kernel).run(points), lambda _: None)[0]]
