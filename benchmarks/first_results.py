"""The seconds to a first value and gradient on the CPU, beside JAX, each in a process of its own.

A result counts from before the function is traced until the numbers are there, with nothing on
disk; only imports of the libraries and of their compilers are left out, by a small function that is
compiled before. All is in float64. Seconds of user CPU stand beside the wall's, as machines are
shared; peers take turns, and the least of some rounds is kept.

    python benchmarks/first_results.py [--rounds 3] [word of a name ...]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import loop_programs
import numpy as np
import small_calls
from measure import bar, in_fresh_process, report

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["SYMGRAD_CACHE"] = ""

import itertools

import symgrad as sg

ON_CPU: dict[str, Any] = {"device": "cpu", "dtype": "float64"}
DRAW = np.random.default_rng(0)
PLACES = np.linspace(0.0, 1.0, 16)
COSTS = DRAW.uniform(size=(8, 8))
SWEEPS = 100
"""Iterations of Sinkhorn's algorithm."""

First = Callable[[], Any]


@dataclass(frozen=True)
class Work:
    """What gives the first loss and gradient, by symgrad and by JAX, whose module it takes."""

    ours: First
    theirs: Callable[[Any], Any]


def network(width: int) -> Work:
    """A network of two hidden layers as a loss of 1,000 rows."""
    sizes = (8, width, width, 1)
    n = sum((a + 1) * b for a, b in itertools.pairwise(sizes))
    p, data = 0.1 * DRAW.normal(size=n), DRAW.normal(size=(1000, sizes[0] + 1))

    def loss(p: Any, x: Any, y: Any, m: Any) -> Any:
        at = 0
        for a, b in itertools.pairwise(sizes):
            weights, at = p[at : at + a * b].reshape(b, a), at + a * b
            x, at = weights @ x + p[at : at + b].reshape((b,) + (1,) * (x.ndim - 1)), at + b
            x = m.tanh(x) if b > 1 else x
        return m.sum((x[0] - y) ** 2)

    def ours() -> Any:
        one = lambda p, r: loss(p, r[: sizes[0]], r[sizes[0]], np)  # noqa: E731
        return sg.fused_forward_backward(n, one, row=sizes[0] + 1, **ON_CPU).run(p, data)

    def theirs(jax: Any) -> Any:
        whole = lambda p: loss(p, data[:, :-1].T, data[:, -1], jax.numpy)  # noqa: E731
        return jax.jit(jax.value_and_grad(whole))(p)

    return Work(ours, theirs)


def gaussian_process() -> Work:
    """The likelihood of a Gaussian process at 16 places, by its three parameters."""
    y, start = np.sin(6 * PLACES), np.array([1.0, 0.3, 0.1])

    def loss(p: Any, m: Any, cholesky: Any, solve: Any) -> Any:
        apart = (PLACES[:, None] - PLACES) / p[1]
        lower = cholesky(p[0] ** 2 * m.exp(-0.5 * apart**2) + p[2] ** 2 * np.eye(len(PLACES)))
        z = solve(lower, y, lower=True)
        return 0.5 * m.sum(z * z) + m.sum(m.log(m.diag(lower)))

    def ours() -> Any:
        f = lambda p: loss(p, np, sg.linalg.cholesky, sg.linalg.solve_triangular)  # noqa: E731
        return sg.fused_forward_backward(3, f, **ON_CPU).run(start)

    def theirs(jax: Any) -> Any:
        solve = jax.scipy.linalg.solve_triangular
        f = lambda p: loss(p, jax.numpy, jax.numpy.linalg.cholesky, solve)  # noqa: E731
        return jax.jit(jax.value_and_grad(f))(start)

    return Work(ours, theirs)


def sinkhorn() -> Work:
    """The cost of moving one distribution into another, by the logits of both."""
    start, kernel = np.linspace(0.0, 1.0, 16), np.exp(-COSTS / 0.1)

    def loss(v: Any, m: Any, softmax: Any) -> Any:
        a, b, u, w = softmax(v[:8]), softmax(v[8:]), np.ones(8), np.ones(8)
        for _ in range(SWEEPS):
            w = b / (kernel.T @ u)
            u = a / (kernel @ w)
        return m.sum(u[:, None] * kernel * w * COSTS)

    def ours() -> Any:
        f = lambda v: loss(v, np, sg.softmax)  # noqa: E731
        return sg.fused_forward_backward(16, f, **ON_CPU).run(start)

    def theirs(jax: Any) -> Any:
        return jax.jit(jax.value_and_grad(lambda v: loss(v, jax.numpy, jax.nn.softmax)))(start)

    return Work(ours, theirs)


def mixture(size: int, components: int) -> Work:
    """The log-likelihood of 1,000 points under a mixture of Gaussians of full covariances."""
    shape = components, size
    shapes = {"weight": (components,), "mean": shape, "logs": shape, "factor": (*shape, size)}
    p = {name: 0.1 * DRAW.normal(size=s) for name, s in shapes.items()}
    data = DRAW.normal(size=(1000, size))

    def ours() -> Any:
        small_calls.COMPONENTS, small_calls.SIZE = components, size
        make = sg.fused_forward_backward
        return make(shapes, small_calls.density, row=size, **ON_CPU).run(p, data)

    def theirs(jax: Any) -> Any:
        small_calls.COMPONENTS, small_calls.SIZE = components, size
        return jax.jit(jax.value_and_grad(small_calls.likelihood(jax)))(p, data)

    return Work(ours, theirs)


def equation() -> Work:
    """An ordinary differential equation of 10,000 elements."""
    program = next(p for p in loop_programs.programs() if f"{loop_programs.ELEMENTS:,}" in p.name)
    n = len(program.point)

    def ours() -> Any:
        f = lambda v: program.f(loop_programs.ours(), v)  # noqa: E731
        return sg.fused_forward_backward(n, f, **ON_CPU).run(program.point)

    def theirs(jax: Any) -> Any:
        library = loop_programs.of_jax(remade=False)
        return jax.jit(jax.value_and_grad(lambda v: program.f(library, v)))(program.point)

    return Work(ours, theirs)


WORKS: dict[str, Callable[[], Work]] = {
    "network 8-16-16-1, rows": lambda: network(16),
    "network 8-64-64-1, rows": lambda: network(64),
    "Gaussian process, 16 places": gaussian_process,
    f"Sinkhorn, 8 x 8, {SWEEPS} iterations": sinkhorn,
    "mixture, d = 32, K = 25": lambda: mixture(32, 25),
    "mixture, d = 64, K = 50": lambda: mixture(64, 50),
    f"ODE, {loop_programs.ELEMENTS:,} elements": equation,
}
"""The works by their names."""


def first(name: str, library: str) -> dict[str, float]:
    """The seconds until the first result of a work, and its loss."""
    work = WORKS[name]()
    if library == "symgrad":
        sg.fused_forward_backward(2, lambda v: v[0] * v[1], **ON_CPU).run([2.0, 3.0])
        sg.fused_forward_backward(1, lambda p, r: p[0] * r[0], row=1, **ON_CPU).run([1.0], [[1.0]])
        make = work.ours
    else:
        jax = importlib.import_module("jax")
        importlib.import_module("jax.scipy.linalg")
        jax.config.update("jax_enable_x64", True)
        jax.jit(jax.value_and_grad(lambda v: v[0] * v[1]))(np.array([2.0, 3.0]))
        make = lambda: jax.block_until_ready(work.theirs(jax))  # noqa: E731
    wall, cpu = time.perf_counter(), os.times().user
    loss = float(make()[0])
    return {"s": time.perf_counter() - wall, "CPU s": os.times().user - cpu, "loss": loss}


def main() -> None:
    """Measure all works in turns, or one in a process that was started for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs=2, metavar=("WORK", "LIBRARY"))
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(first(*options.only)))
        return
    libraries = ["symgrad", *["JAX"] * (importlib.util.find_spec("jax") is not None)]
    table: list[dict[str, Any]] = []
    bars: list[dict[str, Any]] = []
    for name in WORKS:
        if options.words and not any(word in name for word in options.words):
            continue
        took: dict[str, list[dict[str, float]]] = {library: [] for library in libraries}
        for _ in range(options.rounds):
            for library in libraries:
                took[library].append(in_fresh_process(__file__, "--only", name, library))
        losses = [runs[0]["loss"] for runs in took.values()]
        assert np.allclose(losses, losses[0], rtol=1e-9), "both compute the same"
        row: dict[str, Any] = {"work": name}
        for library, runs in took.items():
            row |= {f"{library} {key}": min(r[key] for r in runs) for key in ("s", "CPU s")}
        table.append(row)
        if "JAX" in took:
            over = row["symgrad CPU s"] / row["JAX CPU s"]
            bars.append(bar(f"first result over JAX's, user CPU, {name}", over, 1.0))
    report("first_results", table, bars, keep=not options.words)


if __name__ == "__main__":
    main()
