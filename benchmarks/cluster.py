"""A loss over data in Dask blocks: two workers beside one, and what a step of 100 blocks adds.

Workers are processes of this machine, with a thread each. The efficiency is the throughput of two
of them over that of one; two processes without Dask, which say what the machine gives, stand beside
it. The overhead is the time of a step of blocks that have next to no rows.

    python benchmarks/cluster.py [--seconds 5] [--blocks 100] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # before NumPy, for workers too

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from measure import bar, interleaved, once, report

import symgrad as sg

BARS = {"throughput": 1.7, "overhead": 30e-3}
"""The throughput of two workers over that of one, and seconds a step of 100 blocks may add."""

BLOCKS, ROWS = 64, 2**18
"""Blocks of the workload, 256 MiB, and rows of each: an optimisation of some 40 steps takes 5 s."""

P = np.array([1.0, -0.5, 0.8, 1.2, 0.3, 0.5])


def waves(p: Any, r: Any) -> Any:
    """Two damped waves, beside a measurement of them."""
    first = p[0] * np.exp(-p[1] * r[0]) * np.sin(p[2] * r[0])
    return (first + p[3] * np.exp(-p[4] * r[0]) * np.sin(p[5] * r[0]) - r[1]) ** 2


def table(blocks: int, rows: int) -> Any:
    """Rows that workers make themselves, in blocks."""
    return da.random.default_rng(0).uniform(0.0, 3.0, (blocks * rows, 2), chunks=(rows, 2))


def kernel() -> sg.DataKernel:
    """The loss and its gradient."""
    return sg.fused_forward_backward(6, waves, row=2, device="cpu", dtype="float64")


@cache
def _here(rows: int) -> Any:
    return kernel().bind(np.random.default_rng(0).uniform(0.0, 3.0, (rows, 2)))


def alone(rows: int, calls: int) -> None:
    """Calls without Dask, in this process."""
    bound = _here(rows)
    for _ in range(calls):
        bound.run(P)


@contextmanager
def clients(*workers: int) -> Iterator[list[Any]]:
    """A client of as many workers as each number says."""
    made = [
        LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=":0") for n in workers
    ]
    found = [Client(cluster, set_as_default=False) for cluster in made]
    yield found
    for closing in (*found, *made):
        closing.close()


def bound(client: Any, blocks: int, rows: int) -> Any:
    """The loss, bound to blocks on a client's workers, and called once."""
    with client.as_current():
        found = kernel().bind(table(blocks, rows))
    found.run(P)
    return found


def throughput(seconds: float, blocks: int, rounds: int) -> list[dict[str, Any]]:
    """The time of as many steps as one worker does in some seconds, by one worker and by two."""
    os.environ["SYMGRAD_THREADS"] = "1"
    with clients(1, 2) as (one, two), ProcessPoolExecutor(2, get_context("spawn")) as pool:
        singly, doubly = bound(one, blocks, ROWS), bound(two, blocks, ROWS)
        singly.run(P)
        steps = max(1, round(seconds / once(lambda: singly.run(P))[1].wall))
        rows = blocks * ROWS // 2
        list(pool.map(alone, [rows] * 2, [1] * 2))

        def many(held: Any) -> None:
            for _ in range(steps):
                held.run(P)

        found = interleaved(
            {
                "Dask, 1 worker": lambda: many(singly),
                "Dask, 2 workers": lambda: many(doubly),
                "1 process by itself": lambda: pool.submit(alone, rows, 2 * steps).result(),
                "2 processes by themselves": lambda: list(pool.map(alone, [rows] * 2, [steps] * 2)),
            },
            rounds,
        )
    return [
        {"who": name, "blocks": blocks, "rows": blocks * ROWS, "steps": steps, "s": took.wall}
        for name, took in found.items()
    ]


def overhead(blocks: int, rounds: int) -> dict[str, Any]:
    """The least and the median time of a step of blocks with ten rows each, on two workers."""
    with clients(2) as (two,):
        held, took = bound(two, blocks, 10), []
        for _ in range(50 * rounds):
            start = time.perf_counter()
            held.run(P)
            took.append(time.perf_counter() - start)
    return {
        "who": "Dask, 2 workers, a step", "blocks": blocks, "rows": 10 * blocks,
        "steps": len(took), "s": float(np.min(took)), "median s": float(np.median(took)),
    }  # fmt: skip


def main() -> None:
    """Measure both, and report them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of the workload, by one worker")
    parser.add_argument("--blocks", type=int, default=100, help="of the step that is timed")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    found = throughput(args.seconds, BLOCKS, args.rounds)
    step = overhead(args.blocks, args.rounds)
    s = {row["who"]: row["s"] for row in found}
    ratio = s["Dask, 1 worker"] / s["Dask, 2 workers"]
    possible = s["1 process by itself"] / s["2 processes by themselves"]
    bars = [
        bar(f"2 workers over 1 ({possible:.3g} without Dask)", ratio, BARS["throughput"], True),
        bar(f"seconds of a step of {args.blocks} blocks", step["s"], BARS["overhead"]),
    ]
    report("cluster", [*found, step], bars)


if __name__ == "__main__":
    main()
