"""Nodes a second from a Python function to WGSL, and bytes a node, at three sizes.

A node is one of the graph that differentiation leaves: inputs, constants and operations of the loss
and of its gradient, each once. All of them pass through simplification; the time is that of the
whole call ``sg.fused_forward_backward``, which traces, differentiates, simplifies, schedules and
emits (default options: source comments on), and ends before a driver compiles anything. Every
case runs in a process of its own, where each repetition adds another constant to the loss: equal
ones would share what the first has made.

Memory is counted by tracemalloc in another run: ``graph`` is the differentiated graph alone;
``kernel`` is all that the kernel keeps, which is two graphs, plan and source; ``peak`` the most
that was allocated while it was made. All are divided by the nodes. Rates that are compared with a
bar are those of CPU time, as the work is single-threaded and machines are shared; so on a machine
with many cores several cases may run at a time.

    python benchmarks/throughput.py [--sizes 10000 100000] [--jobs 9]
"""

from __future__ import annotations

import argparse
import gc
import json
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import workloads
from measure import bar, in_fresh_process, once, report

import symgrad as sg

SIZES = 10_000, 100_000, 1_000_000

WORK: dict[str, Callable[[int], tuple[int, Callable[..., Any]]]] = {
    "chain": lambda size: (size // 9, workloads.chain),
    "rosenbrock": lambda size: (size // 17, workloads.rosenbrock),
    "random DAG": lambda size: (64, workloads.random_dag(size * 10 // 39)),
}
"""For about how many nodes: the number of variables, and the function."""


def build(work: str, size: int, constant: float = 1.0) -> sg.Kernel:
    """The kernel of a loss and a constant, and its source, compiled for no device."""
    n, f = WORK[work](size)
    loss = lambda x: f(x) + constant  # noqa: E731
    kernel = sg.fused_forward_backward(n, loss, device="cpu", name="loss", roll=False)
    assert kernel.wgsl, "the source is made when it is asked for"
    return kernel


def speed(work: str, size: int, repeat: int) -> dict[str, Any]:
    """The quickest of some runs."""
    build(work, 1000)
    best: dict[str, Any] = {}
    for k in range(repeat):
        gc.collect()
        kernel, took = once(lambda: build(work, size, 2.0 + k))  # noqa: B023
        if not best or took.cpu < best["cpu"]:
            best = {"seconds": took.wall, "cpu": took.cpu} | kernel.stats.seconds
        nodes = len(graph_of(kernel))
        best |= {"nodes": nodes, "kernel nodes": kernel.stats.nodes, "forward": forward(kernel)}
        best |= {"source bytes": len(kernel.wgsl), "shaders": kernel.stats.shaders}
        del kernel
    return best


def graph_of(kernel: sg.Kernel) -> Any:
    """The graph of loss and gradient, before it is simplified."""
    return kernel.expr[0].graph


def forward(kernel: sg.Kernel) -> int:
    """Nodes of the loss alone: all up to it, since the gradient comes later."""
    return kernel.expr[0].id + 1


def memory(work: str, size: int) -> dict[str, float]:
    """Bytes a node."""
    build(work, 1000)
    gc.collect()
    tracemalloc.start()
    kernel = build(work, size)
    kept, peak = tracemalloc.get_traced_memory()
    graph = graph_of(kernel)
    nodes = len(graph)
    del kernel
    gc.collect()
    alone = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {"graph": alone / nodes, "kernel": kept / nodes, "peak": peak / nodes}


def main() -> None:
    """Measure every case, or one for a process that was started for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--only", nargs=3, metavar=("KIND", "WORK", "SIZE"))
    options = parser.parse_args()
    if options.only:
        kind, work, size = options.only[0], options.only[1], int(options.only[2])
        repeat = 5 if size <= 10_000 else 3 if size <= 100_000 else 2
        print(json.dumps(speed(work, size, repeat) if kind == "speed" else memory(work, size)))
        return
    cases = [(work, size) for size in sorted(options.sizes, reverse=True) for work in WORK]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = dict(zip(cases, pool.map(lambda case: row(*case), cases), strict=True))
    rows = [found[work, size] for work in WORK for size in options.sizes]
    bars = []
    for r in rows:
        what = f"{r['work']}, {r['nodes']:,} nodes"
        bars.append(bar(f"nodes a CPU second, {what}", r["nodes/CPU s"], 100_000, at_least=True))
        rate = r["forward nodes/CPU s"]
        bars.append(bar(f"nodes of a loss with its gradient, {what}", rate, 16_000, at_least=True))
        bars.append(bar(f"bytes a node of the graph, {what}", r["graph B/node"], 400))
        bars.append(bar(f"bytes a node at the peak, {what}", r["peak B/node"], 400))
    for work in WORK:
        rates = [r["nodes/CPU s"] for r in rows if r["work"] == work]
        bars.append(bar(f"least rate over greatest, {work}", min(rates) / max(rates), 0.75, True))
    report("throughput", rows, bars, jobs=options.jobs)


def row(work: str, size: int) -> dict[str, Any]:
    """One case: its speed and its memory, measured one after the other."""
    took = in_fresh_process(__file__, "--only", "speed", work, str(size))
    used = in_fresh_process(__file__, "--only", "memory", work, str(size))
    stages = ("trace", "differentiate", "simplify")
    return {
        "work": work, "nodes": took["nodes"], "forward nodes": took["forward"],
        "kernel nodes": took["kernel nodes"], "shaders": took["shaders"],
        "s": took["seconds"], "CPU s": took["cpu"],
        **{stage: took[stage] for stage in stages},
        "nodes/s": took["nodes"] / took["seconds"],
        "nodes/CPU s": took["nodes"] / took["cpu"],
        "forward nodes/CPU s": took["forward"] / took["cpu"],
        "source B/node": took["source bytes"] / took["nodes"],
        **{f"{name} B/node": value for name, value in used.items()},
    }  # fmt: skip


if __name__ == "__main__":
    main()
