"""Work that is shared out between threads, where it is worth that."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

from symgrad.expr.node import Graph
from symgrad.llvm.device import host

PARALLEL: Final = 50_000
"""Operations on vectors, and bytes of them for each lane, that are worth a thread: about 20 us."""

CHUNKS: Final = 8
"""Pieces of work for each thread: enough that a slow core does not keep the others waiting."""

_executor: ThreadPoolExecutor | None = None


def weight_of(graph: Graph) -> int:
    """What a graph costs, in additions."""
    return sum(node[0].cost for node in graph.nodes)


def worth(operations: int, lanes: int) -> int:
    """How many threads so many operations are worth, which are done on vectors of numbers."""
    return max(1, min(host().threads, operations // (lanes * PARALLEL)))


def share_out(work: Callable[[int, int], None], count: int, lanes: int, threads: int) -> None:
    """Call ``work(first, end)`` for all of ``count`` points, whole blocks of them, on all cores."""
    global _executor
    blocks = count // lanes
    pieces = min(blocks, CHUNKS * threads)
    if pieces == 1 or threads == 1:
        work(0, count)
        return
    if _executor is None:
        _executor = ThreadPoolExecutor(max(threads, host().threads), "symgrad")
    ends = [lanes * (blocks * k // pieces) for k in range(pieces + 1)]
    pending = itertools.pairwise(ends)
    lock = threading.Lock()

    def worker() -> None:
        while True:
            with lock:
                piece = next(pending, None)
            if piece is None:
                return
            work(*piece)

    others = [_executor.submit(worker) for _ in range(min(threads, pieces) - 1)]
    worker()
    wait(others)
    for other in others:
        other.result()


def _forget_threads() -> None:
    """A child process has none of its parent's threads."""
    global _executor
    _executor = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
