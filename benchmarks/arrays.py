"""Functions of arrays on the CPU, value and all gradients, beside JAX: first and later.

Besides, the time from Python to a program, and the length of its text, for n = 10 to 10,000. JAX's
functions are compiled, and its arguments are its arrays already; symgrad traces at every call.

    python benchmarks/arrays.py
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import bar, in_fresh_process, interleaved, report

os.environ["JAX_PLATFORMS"] = "cpu"

import symgrad as sg
from symgrad.arrays.program import listing
from symgrad.arrays.trace import gradients, program_of
from symgrad.front.whole import WholeTrace

ROUNDS = 20
DRAW = np.random.default_rng(0)
NODES, WEIGHTS = (a.astype(np.float32) for a in np.polynomial.legendre.leggauss(20))

Function = Callable[..., Any]


def drawn(*shape: int) -> np.ndarray:
    """Normal numbers in float32."""
    return DRAW.normal(size=shape).astype(np.float32)


def network(xp: Any, w: Any, b: Any, v: Any, c: Any, x: Any, y: Any) -> Any:
    """The cross entropy of a network with one hidden layer."""
    scores = xp.tanh(x @ w + b) @ v + c
    shifted = scores - xp.max(scores, axis=1, keepdims=True)
    log_sums = xp.log(xp.sum(xp.exp(shifted), axis=1, keepdims=True))
    return -xp.mean(xp.sum(y * (shifted - log_sums), axis=1))


def quadrature(xp: Any, p: Any, t: Any, y: Any) -> Any:
    """A curve whose model is an integral, by 20 nodes and broadcasting."""
    u = 0.5 * (NODES + 1.0)
    parts = 0.5 * WEIGHTS * xp.exp(-p[0] * t[:, None] * u) * (1.0 + p[1] * u * u)
    return xp.sum((xp.sum(parts, axis=1) - y) ** 2)


def sinkhorn(xp: Any, c: Any, a: Any, b: Any) -> Any:
    """The cost of a transport plan after ten iterations, written out by Python."""
    k = xp.exp(-c)
    u, v = a, b
    for _ in range(10):
        u = a / (k @ v)
        v = b / (k.T @ u)
    return xp.sum(u[:, None] * k * c * v[None])


SHARES = np.full(200, 0.005, np.float32)
LABELS = np.eye(10, dtype=np.float32)[DRAW.integers(0, 10, 64)]
RATES, TIMES = np.array([1.3, 0.4], np.float32), np.linspace(0, 2, 1500, dtype=np.float32)
A300, A60, X300 = drawn(300, 300), drawn(60, 60), drawn(300)
CASES: dict[str, tuple[Function, tuple[np.ndarray, ...], tuple[int, ...]]] = {
    "sum(tanh(A)**2), 300": (lambda xp, a: xp.sum(xp.tanh(a) ** 2), (A300,), (0,)),
    "sum(tanh(A @ x)), 300": (lambda xp, a, x: xp.sum(xp.tanh(a @ x)), (A300, X300), (0, 1)),
    "centred columns, 300": (lambda xp, a: xp.sum((a - a.mean(axis=0)) ** 2), (A300,), (0,)),
    "sum((A @ A)**2), 60": (lambda xp, a: xp.sum((a @ a) ** 2), (A60,), (0,)),
    "network 64-32-10, 64": (
        network,
        (drawn(64, 32) / 8, drawn(32), drawn(32, 10) / 5, drawn(10), drawn(64, 64), LABELS),
        (0, 1, 2, 3),
    ),
    "20 quadrature nodes, 1,500": (
        quadrature, (RATES, TIMES, drawn(1500)), (0,),
    ),
    "pairs 1,000 x 1,000 x 3": (
        lambda xp, x, y: xp.sum(xp.exp(-xp.sum((x[:, None] - y[None]) ** 2, -1))),
        (drawn(1000, 3), drawn(1000, 3)), (0, 1),
    ),
    "Sinkhorn 200 x 200, 10": (
        sinkhorn, (np.abs(drawn(200, 200)), SHARES, SHARES), (0,),
    ),
}  # fmt: skip


def own(name: str) -> Callable[[], Any]:
    """The case by symgrad."""
    f, arrays, argnums = CASES[name]
    run = sg.value_and_grad(lambda *x: f(np, *x), argnums, device="cpu")
    return lambda: run(*arrays)


def peer(name: str) -> Callable[[], Any]:
    """The case by JAX."""
    jax: Any = importlib.import_module("jax")
    f, arrays, argnums = CASES[name]
    run = jax.jit(jax.value_and_grad(lambda *x: f(jax.numpy, *x), argnums))
    there = jax.device_put(arrays)
    return lambda: jax.block_until_ready(run(*there))


def sizes() -> list[dict[str, Any]]:
    """The time from Python to the program, and the length of its text, by the size of arrays."""
    rows = []
    for n in (10, 100, 1000, 10_000):
        trace = WholeTrace(
            lambda a, x: np.sum(np.tanh(a @ x) ** 2), [np.broadcast_to(0.0, (n, n)), np.zeros(n)]
        )
        start = time.perf_counter()
        value = trace.call(lambda arrays: iter([*arrays, {}]))
        text = listing(program_of(trace.tape, [value, *gradients(value, trace.variables)]))
        rows.append(
            {
                "case": f"to a program, n = {n}",
                "ms": 1e3 * (time.perf_counter() - start),
                "lines": len(text.splitlines()),
            }
        )
    return rows


def first_call(maker: str, name: str) -> None:
    """Print the seconds of a first call, as JSON; imports and devices are there already."""
    make = {"own": own, "peer": peer}[maker]
    warm = np.zeros((64, 64), np.float32)
    if maker == "own":
        sg.value_and_grad(lambda a: np.sum(np.cos(a)), device="cpu")(warm)
    else:
        jax: Any = importlib.import_module("jax")
        jax.block_until_ready(jax.jit(lambda a: jax.numpy.sum(jax.numpy.cos(a)))(warm))
    start = time.perf_counter()
    make(name)()
    print(json.dumps(time.perf_counter() - start))


def main() -> None:
    """Measure every case, peers in turns, and first calls in processes of their own."""
    makers = {"own": own} | ({"peer": peer} if importlib.util.find_spec("jax") else {})
    table, bars = sizes(), []
    for name in CASES:
        works = {maker: make(name) for maker, make in makers.items()}
        for work in works.values():
            work()
        steady = interleaved(works, ROUNDS, dict.fromkeys(works, 5))
        first = {m: in_fresh_process(__file__, m, name) for m in makers}
        table.append(
            {"case": name}
            | {f"first, s: {m}": s for m, s in first.items()}
            | {f"steady, ms: {m}": 1e3 * s.wall for m, s in steady.items()}
        )
        if "peer" in makers:
            bars.append(bar(f"first call over JAX's: {name}", first["own"] / first["peer"], 1.0))
            bars.append(
                bar(f"steady over JAX's: {name}", steady["own"].wall / steady["peer"].wall, 1.2)
            )
    report("arrays", table, bars)


if __name__ == "__main__":
    first_call(*sys.argv[1:]) if len(sys.argv) > 1 else main()
