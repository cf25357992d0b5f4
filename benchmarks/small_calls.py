"""Small calls on the CPU as users make them, where not the kernel but what stands about it counts.

The import beside NumPy's own, a repeated `curve_fit` beside SciPy's, a gradient that is traced at
every call, one point with names and in a row, a result for each row of a table, logsumexp with its
gradient and the log-likelihood of a mixture with all of its gradients, beside JAX on the CPU.

    python benchmarks/small_calls.py
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
from measure import bar, in_fresh_process, interleaved, report

os.environ["JAX_PLATFORMS"] = "cpu"

import symgrad as sg

Call = Callable[[], Any]

ROUNDS = 30
ON_CPU: dict[str, Any] = {"device": "cpu", "dtype": "float64"}
DRAW = np.random.default_rng(0)
COMPONENTS, SIZE = 25, 32
"""Gaussians of the mixture, and their dimensions."""

IMPORT = """
import json, time, numpy
start = time.process_time()
import symgrad as sg
loaded = time.process_time()
sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu").run([2.0, 3.0])
print(json.dumps({"import": loaded - start, "with a first kernel": time.process_time() - start}))
"""
"""The CPU seconds of importing symgrad once NumPy is there, with bytecode that is cached."""


def decay(x: Any, a: Any, b: Any, c: Any) -> Any:
    return a * np.exp(-b * x) + c


def fits() -> dict[str, Call]:
    """The same fit again and again."""
    x = np.linspace(0.0, 4.0, 50)
    y = decay(x, 2.5, 1.3, 0.5) + 0.05 * DRAW.normal(size=50)
    start = [1.0, 1.0, 1.0]
    return {
        "curve_fit": lambda: sg.curve_fit(decay, x, y, p0=start, device="cpu"),
        "curve_fit: SciPy": lambda: scipy.optimize.curve_fit(decay, x, y, p0=start),
    }


def points() -> dict[str, Call]:
    """One point of small kernels."""
    x = np.array([1.0, 2.0, 3.0])
    named = {"a": x[:2].copy(), "b": 3.0}
    row = sg.fused_forward_backward(3, lambda v: v[0] ** 2 + v[1] * v[2], **ON_CPU)
    nest = sg.fused_forward_backward(
        {"a": (2,), "b": ()}, lambda p: p.a[0] ** 2 + p.a[1] * p.b, **ON_CPU
    )
    traced = sg.value_and_grad(lambda v: np.sum((v - 1.0) ** 2), **ON_CPU)
    return {
        "a point": lambda: row.run(x),
        "a point with names": lambda: nest.run(named),
        "value_and_grad": lambda: traced(x),
    }


def rows() -> dict[str, Call]:
    """A loss and its gradient at each of a million rows, and at as many points."""
    table = DRAW.normal(size=(1_000_000, 2)).astype("float32")
    where = np.concatenate([np.ones((len(table), 3), "float32"), table], axis=1)

    def loss(p: Any, r: Any) -> Any:
        return (p[0] * sg.exp(-p[1] * r[0]) + p[2] - r[1]) ** 2

    each = sg.fused_forward_backward(3, loss, row=2, reduce=None, device="cpu")
    flat = sg.fused_forward_backward(5, lambda v: loss(v[:3], v[3:]), device="cpu")
    return {
        "each of a million rows": lambda: each.run([1.0, 1.0, 1.0], table),
        "a million points": lambda: flat.run(where),
    }


def sums() -> dict[str, Call]:
    """10,000 times logsumexp of 64 numbers, with the gradient."""
    x = DRAW.normal(size=(10_000, 64))
    kernel = sg.fused_forward_backward(64, sg.logsumexp, **ON_CPU)
    works: dict[str, Call] = {"logsumexp": lambda: kernel.run(x)}
    if importlib.util.find_spec("jax") is not None:
        jax = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        compiled = jax.jit(jax.vmap(jax.value_and_grad(jax.nn.logsumexp)))
        there = jax.device_put(x)
        works["logsumexp: JAX"] = lambda: jax.block_until_ready(compiled(there))
    return works


def density(p: Any, r: Any) -> Any:
    """The log-density of a mixture, with Cholesky factors of the components' precisions."""
    x = np.array([r[c] for c in range(SIZE)])

    def add(k: Any, total: Any) -> Any:
        factor, logs = p["factor"][k], p["logs"][k]
        c = x - p["mean"][k]
        z = [sg.exp(logs[i]) * c[i] + sum(factor[i, j] * c[j] for j in range(i))
             for i in range(SIZE)]  # fmt: skip
        return np.logaddexp(total, p["weight"][k] + np.sum(logs) - 0.5 * sum(e * e for e in z))

    return sg.fori_loop(0, COMPONENTS, add, -1e300)


def likelihood(jax: Any) -> Callable[[Any, Any], Any]:
    """The sum of it over rows in JAX."""
    numpy = jax.numpy

    def summed(p: Any, rows: Any) -> Any:
        c = rows[:, None, :] - p["mean"]
        whole = numpy.tril(p["factor"], -1) + numpy.exp(p["logs"])[:, :, None] * numpy.eye(SIZE)
        z = numpy.einsum("kij,nkj->nki", whole, c)
        terms = p["weight"] + p["logs"].sum(1) - 0.5 * (z * z).sum(2)
        return jax.nn.logsumexp(terms, axis=1).sum()

    return summed


def mixtures() -> tuple[dict[str, Call], dict[str, float]]:
    """The log-likelihood of 1,000 points with all gradients, and the seconds until the first."""
    shape = COMPONENTS, SIZE
    shapes = {"weight": (COMPONENTS,), "mean": shape, "logs": shape, "factor": (*shape, SIZE)}
    p = {name: 0.1 * DRAW.normal(size=s) for name, s in shapes.items()}
    rows = DRAW.normal(size=(1_000, SIZE))
    start = time.perf_counter()
    kernel = sg.fused_forward_backward(shapes, density, row=SIZE, **ON_CPU)
    value, _ = kernel.run(p, rows)
    first = {"mixture": time.perf_counter() - start}
    works: dict[str, Call] = {"mixture": lambda: kernel.run(p, rows)}
    if importlib.util.find_spec("jax") is not None:
        jax = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        start = time.perf_counter()
        compiled = jax.jit(jax.value_and_grad(likelihood(jax)))
        there = jax.device_put((p, rows))
        found, _ = jax.block_until_ready(compiled(*there))
        first["mixture: JAX"] = time.perf_counter() - start
        assert abs(value / found - 1) < 1e-9, "both compute the same"
        works["mixture: JAX"] = lambda: jax.block_until_ready(compiled(*there))
    return works, first


def main() -> None:
    """Measure the groups one after the other, peers in turns."""
    fresh = [in_fresh_process("-c", IMPORT) for _ in range(10)]
    found: dict[str, Any] = {}
    mixture, first = mixtures()
    for works in (fits(), points(), rows(), sums(), mixture):
        for work in works.values():
            work()
        many = {name: 50 for name in works if "million" not in name and "mixture" not in name}
        found |= interleaved(works, ROUNDS, many)
    table: list[dict[str, Any]] = [
        {"call": name, "us": took.wall * 1e6, "CPU us, all threads": took.cpu * 1e6}
        for name, took in found.items()
    ]
    table += [{"call": f"{name}, the first", "us": 1e6 * s} for name, s in first.items()]
    for name in fresh[0]:
        table.append({"call": name, "CPU us, all threads": min(f[name] for f in fresh) * 1e6})
    us = {name: took.wall * 1e6 for name, took in found.items()}
    bars = [
        bar("CPU seconds of the import beyond NumPy", min(f["import"] for f in fresh), 0.15),
        bar("curve_fit again over SciPy", us["curve_fit"] / us["curve_fit: SciPy"], 0.3 / 0.24),
        bar("us of a point", us["a point"], 1.8),
        bar("us of a point with names", us["a point with names"], 23.0 / 3.0),
        bar("us of value_and_grad", us["value_and_grad"], 34.0 / 3.0),
    ]
    bars.append(bar("seconds to the first result of a mixture", first["mixture"], 2.0))
    for name in ("logsumexp", "mixture"):
        if f"{name}: JAX" in us:
            bars.append(bar(f"{name} over JAX", us[name] / us[f"{name}: JAX"], 1.0))
    report("small_calls", table, bars)


if __name__ == "__main__":
    main()
