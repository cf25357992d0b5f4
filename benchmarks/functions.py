"""What the library's own functions cost beside the device's, and beside CUDA's through CuPy.

A point adds up 32 values of a function at neighbouring arguments, so that arithmetic is what takes
the time, not memory. Arrays stay on the device. CUDA's expf is eight instructions, one of which is
the hardware's 2**x, and its tanhf uses it too; other GPUs have others, so the library's own exp has
a polynomial in its place, and about twenty operations, products fused with sums.

    python benchmarks/functions.py [--device 0] [--points 30000000]
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import bar, interleaved, report

import symgrad as sg
from symgrad.mathlib.define import Math

NAMES = ("exp", "log", "sin", "cos", "tanh", "erf", "atan", "cbrt")
TERMS = 32
BARRED = ("exp", "log", "sin", "tanh")
"""The functions that may take 1.3 times as long as CUDA's, at most."""

CUDA = """
float total = 0.0f;
#pragma unroll
for (int k = 0; k < 32; k++) {{ total += {name}f(x * (1.0f + 0.03125f * k)); }}
y = total;
"""


def ours(name: str, points: np.ndarray, math: Math, device: Any) -> tuple[Callable[[], Any], Any]:
    """A call that queues the work, and the kernel's results."""
    function = getattr(sg, name)

    def f(v: Any) -> Any:
        total = function(v[0])
        for k in range(1, TERMS):
            total = total + function(v[0] * (1.0 + 0.03125 * k))
        return total

    kernel = sg.fused_forward(1, f, device=device, math=math)
    if not kernel.device.is_gpu:
        return lambda: kernel.run(points), kernel.run(points)
    x = sg.device_array(points, device)
    marker = sg.device_array([0.0], device)

    def call() -> None:
        for _ in range(10):
            kernel.run(x)
        marker.numpy()  # waits for all that was queued before

    return call, kernel.run(x).numpy()


def cuda(name: str, points: np.ndarray) -> Callable[[], Any] | None:
    """The same by CUDA's functions."""
    try:
        cupy = importlib.import_module("cupy")
        x = cupy.asarray(points.ravel())
    except Exception:
        return None
    kernel = cupy.ElementwiseKernel("float32 x", "float32 y", CUDA.format(name=name), name + "32")
    y = cupy.empty_like(x)

    def call() -> None:
        for _ in range(10):
            kernel(x, y)
        cupy.cuda.Device().synchronize()

    return call


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="0")
    parser.add_argument("--points", type=int, default=30_000_000)
    options = parser.parse_args()
    device = int(options.device) if options.device.isdecimal() else options.device
    points = np.random.default_rng(0).uniform(0.1, 6.0, (options.points, 1)).astype(np.float32)
    rows: list[dict[str, Any]] = []
    bars: list[dict[str, Any]] = []
    for name in NAMES:
        works = {m: ours(name, points, m, device)[0] for m in ("accurate", "fast")}
        other = cuda(name, points)
        if other:
            works["CUDA"] = other
        found = interleaved(works, 7)
        calls = 10 * options.points * TERMS
        row = {"function": name, **{f"{k}, ps": s.wall / calls * 1e12 for k, s in found.items()}}
        if other:
            row["over CUDA"] = found["accurate"].wall / found["CUDA"].wall
            if name in BARRED:
                bars.append(bar(f"{name}, time over CUDA's", row["over CUDA"], 1.3))
        rows.append(row)
    where = sg.fused_forward(1, lambda v: v[0], device=device).device
    report("functions", rows, bars, keep=where.is_real_gpu, device=str(where), terms=TERMS)


if __name__ == "__main__":
    main()
