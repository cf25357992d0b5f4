"""The time to the first result of long unrolled kernels on a GPU, each in a process of its own.

``first result`` is from before tracing to the result of ``kernel.run`` at one point; only imports
are left out. ``build`` is up to the WGSL, ``compile`` the modules and pipelines (naga, and part of
the driver), ``run`` the first dispatch, in which llvmpipe does the rest. ``CPU s`` is of all
threads, up to the first result. Mesa's cache of compiled
shaders is off. ``again`` is a second run.

    python benchmarks/compile_time.py [--sizes 20000 100000]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import workloads
from measure import bar, in_fresh_process, once, report

import symgrad as sg

os.environ["MESA_SHADER_CACHE_DISABLE"] = "true"

BARS = {20_000: 5.0, 100_000: 25.0}

POINTS = {
    "lotka": [1.1, 0.4, 0.4, 0.1, 1.0, 0.5],
    "logistic": [3.2, 0.3],
    "chain": None,
}

WORK: dict[str, tuple[str, Callable[..., sg.Kernel], Callable[[int], Any]]] = {
    "RK4 Lotka-Volterra, value": ("lotka", sg.fused_forward, workloads.lotka_volterra),
    "RK4 Lotka-Volterra, loss+gradient": (
        "lotka", sg.fused_forward_backward, workloads.lotka_volterra,
    ),
    "logistic map, value": ("logistic", sg.fused_forward, workloads.logistic),
    "logistic map, loss+gradient": ("logistic", sg.fused_forward_backward, workloads.logistic),
}  # fmt: skip


def first_result(work: str, steps: int, device: str) -> dict[str, Any]:
    """Build, compile and run; check against the CPU's reference."""
    kind, make, unrolled = WORK[work]
    point = np.array(POINTS[kind], np.float32)
    kernel, built = once(lambda: make(len(point), unrolled(steps), device=device, name="loss"))
    result, ran = once(lambda: kernel.run(point))
    _, again = once(lambda: kernel.run(point))
    reference = kernel.to("cpu").run(point)
    worst = max(
        float(np.max(np.abs(np.subtract(a, b)) / (1 + np.abs(b))))
        for a, b in zip(_parts(result), _parts(reference), strict=True)
    )
    stats = kernel.stats
    return {
        "operations": stats.operations, "shaders": stats.shaders, "wgsl": len(kernel.wgsl),
        "build": built.wall, "compile": stats.seconds["compile"],
        "run": ran.wall - stats.seconds["compile"], "again": again.wall,
        "first result": built.wall + ran.wall, "CPU s": built.cpu + ran.cpu,
        "device": str(kernel.device), "difference": worst,
    }  # fmt: skip


def _parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def steps_for(work: str, operations: int) -> int:
    """How many steps make a kernel of about that many operations."""
    kind, make, unrolled = WORK[work]
    n = len(POINTS[kind] or ())
    one, two = (
        make(n, unrolled(k), device="cpu", comments=False).stats.operations for k in (10, 20)
    )
    return round(operations / ((two - one) / 10))


def main() -> None:
    """Measure every case, or one for a process that was started for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(BARS))
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--limit", type=float, default=200, help="seconds that one case may take")
    parser.add_argument("--work", nargs="+", default=list(WORK), help="which cases")
    parser.add_argument("--only", nargs=2, metavar=("WORK", "STEPS"))
    options = parser.parse_args()
    if options.only:
        print(json.dumps(first_result(options.only[0], int(options.only[1]), options.device)))
        return
    rows, bars = [], []
    for work in options.work:
        for size in options.sizes:
            args = ("--device", options.device, "--only", work, str(steps_for(work, size)))
            took = in_fresh_process(__file__, *args, limit=options.limit)
            if took is None:  # too long
                took = {"operations": size, "first result": options.limit, "stopped": "yes"}
            rows.append({"work": work, **took})
            if size in BARS:
                what = f"seconds to the first result, {work}, {took['operations']:,} operations"
                bars.append(bar(what, took["first result"], BARS[size]))
        mine = [r["CPU s"] / r["operations"] for r in rows if r["work"] == work and "CPU s" in r]
        if len(mine) > 1:
            what = f"linear: CPU seconds an operation, last over first, {work}"
            bars.append(bar(what, mine[-1] / mine[0], 1.25))
    report("compile_time", rows, bars)


if __name__ == "__main__":
    main()
