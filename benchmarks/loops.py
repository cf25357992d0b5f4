"""Loops with their gradients beside JAX's scan: ODEs, steady and from a function to the result.

Each work is written once, for both: a step of a method, and how often it is done. symgrad gets it
as a loop of its own, ``sg.fori_loop``, and as Python's ``for``, which it rolls; JAX gets it as
``lax.scan``, differentiated in reverse, in reverse with checkpoints, and forward. JAX's best is
what bars compare with.

On the CPU programs of one problem follow, those of `loop_programs`, in float64.

    python benchmarks/loops.py [--rounds 10] [--device cpu]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import loop_programs
import numpy as np
from measure import bar, interleaved, report

os.environ.setdefault("SYMGRAD_CACHE", "")  # code on disk would make every first call but one quick

import symgrad as sg

Call = Callable[[], Any]


@dataclass
class Work:
    """A loss of the state after some steps, for many points; ``step(v, state)`` is one of them."""

    name: str
    start: Callable[[Any], tuple[Any, ...]]
    step: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
    loss: Callable[[tuple[Any, ...]], Any]
    turns: int
    points: np.ndarray
    least: float
    """How many times JAX's best time there has to be in ours."""

    def looped(self, v: Any) -> Any:
        """The loss by a loop."""
        return self.loss(
            sg.fori_loop(0, self.turns, lambda _, state: self.step(v, state), self.start(v))
        )

    def written(self, v: Any) -> Any:
        """The loss by Python's loop."""
        state = self.start(v)
        for _ in range(self.turns):
            state = self.step(v, state)
        return self.loss(state)

    def scanned(self, v: Any, jax: Any, checkpoint: bool = False) -> Any:
        """The loss by JAX's loop."""

        def body(state: Any, _: Any) -> Any:
            return self.step(v, state), None

        step = jax.checkpoint(body) if checkpoint else body
        return self.loss(jax.lax.scan(step, self.start(v), None, length=self.turns)[0])


def runge_kutta(
    slope: Callable[[tuple[Any, ...]], tuple[Any, ...]], s: tuple[Any, ...], h: float
) -> Any:
    """A step of the classical method of Runge and Kutta."""

    def moved(k: tuple[Any, ...], by: float) -> tuple[Any, ...]:
        return tuple(x + by * dx for x, dx in zip(s, k, strict=True))

    a = slope(s)
    b = slope(moved(a, h / 2))
    c = slope(moved(b, h / 2))
    d = slope(moved(c, h))
    return tuple(
        x + h / 6 * (p + 2 * q + 2 * r + t)
        for x, p, q, r, t in zip(s, a, b, c, d, strict=True)
    )  # fmt: skip


def lotka_volterra(v: Any, s: tuple[Any, ...]) -> Any:
    """A step of predators and prey."""

    def slope(s: tuple[Any, ...]) -> tuple[Any, ...]:
        x, y = s
        return v[0] * x - v[1] * x * y, v[3] * x * y - v[2] * y

    return runge_kutta(slope, s, 0.01)


def decay(v: Any, s: tuple[Any, ...]) -> Any:
    """A step of an equation that each element has for itself."""
    return runge_kutta(lambda s: (v[0] - s[0] * s[0] * s[0],), s, 0.01)


def works(device: str) -> list[Work]:
    """What is measured: on a GPU many problems in float32."""
    draw = np.random.default_rng(0)
    count, least = (2000, 25) if device == "cpu" else (100_000, 12)
    usual = np.array([1.1, 0.4, 0.4, 0.1, 2.0, 1.0])
    problems = (usual * draw.uniform(0.9, 1.1, (count, 6))).astype(np.float32)

    def distance(s: tuple[Any, ...]) -> Any:
        return (s[0] - 1) ** 2 + (s[1] - 1) ** 2

    def ends(v: Any) -> tuple[Any, ...]:
        return v[4], v[5]

    name = f"RK4, {count:,} problems x 1,000 steps"
    found = [
        Work(name, ends, lotka_volterra, distance, 1000, problems, least),
        Work("RK4, 10,000 elements x 100 steps, float64", lambda v: (v[1],), decay,
             lambda s: s[0] * s[0], 100, draw.uniform(0.2, 1.2, (10_000, 2)), 1),
    ]  # fmt: skip
    return found if device == "cpu" else found[:1]


def of_jax(work: Work, device: Any) -> dict[str, Call]:
    """The modes of JAX, compiled, on a device of the same kind; each blocks until it is done."""
    jax = importlib.import_module("jax")
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", work.points.dtype == np.float64)
    x = jax.numpy.asarray(work.points)

    def reverse(checkpoint: bool) -> Any:
        return jax.value_and_grad(lambda v: work.scanned(v, jax, checkpoint))

    def forward(v: Any) -> Any:
        return work.scanned(v, jax), jax.jacfwd(lambda v: work.scanned(v, jax))(v)

    modes = {"JAX": reverse(False), "JAX, checkpoints": reverse(True), "JAX, forward": forward}
    compiled = {name: jax.jit(jax.vmap(mode)) for name, mode in modes.items()}
    return {name: (lambda f=f: jax.block_until_ready(f(x))) for name, f in compiled.items()}


def blocking(kernel: sg.Kernel, points: np.ndarray, device: Any) -> Call:
    """A call that is done when it returns; a GPU has the points, and keeps the results."""
    if device == "cpu":
        return lambda: kernel.run(points)
    there, marker = sg.device_array(points, device), sg.device_array([0.0], device)

    def call() -> None:
        kernel.run(there)
        np.asarray(marker)  # fetching it waits for all that was queued before

    return call


def measured(
    work: Work, device: Any, rounds: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows and bars of one work."""
    dtype: Any = str(work.points.dtype)
    first: dict[str, float] = {}
    calls: dict[str, Call] = {}
    lines = 0
    for name, f in (("symgrad", work.looped), ("symgrad, Python's for", work.written)):
        start = time.perf_counter()
        kernel = sg.fused_forward_backward(work.points.shape[1], f, device=device, dtype=dtype)
        calls[name] = blocking(kernel, work.points, device)
        calls[name]()
        first[name] = time.perf_counter() - start
        lines = len(kernel.wgsl.splitlines())
    try:
        peers = of_jax(work, device)
    except ImportError:
        print("JAX is not installed")
        peers = {}
    for name, call in peers.items():
        start = time.perf_counter()
        call()
        first[name] = time.perf_counter() - start
    found = interleaved(calls | peers, rounds)
    rows = [
        {"work": work.name, "way": name, "first s": round(first[name], 3), "ms": s.wall * 1e3}
        for name, s in found.items()
    ]
    bars = [
        bar(f"{work.name}: seconds to the first result, from a loop", first["symgrad"], 0.3),
        bar(f"{work.name}: from Python's for", first["symgrad, Python's for"], 0.6),
        bar(f"{work.name}: lines of source", lines, 150),
    ] if work.turns == 1000 else []  # fmt: skip
    if peers:
        ratio = min(found[name].wall for name in peers) / found["symgrad"].wall
        bars.append(bar(f"{work.name}: JAX's best over ours", ratio, work.least, at_least=True))
        quickest = min(first[name] for name in peers) / first["symgrad"]
        bars.append(bar(f"{work.name}: JAX's quickest first result", quickest, 1, at_least=True))
    return rows, bars


def alone(program: loop_programs.Program) -> dict[str, Callable[[], Call]]:
    """What makes the calls of one program, in float64: from its function to what can be called."""
    ours, x = loop_programs.ours(), program.point

    def of_symgrad() -> Call:
        make = sg.fused_forward_backward if program.gradient else sg.fused_forward
        f = lambda v: program.f(ours, v)  # noqa: E731
        kernel = make(len(x), f, device="cpu", dtype="float64")
        return lambda: kernel.run(x)

    def of_jax(remade: bool) -> Call:
        jax = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        lib = loop_programs.of_jax(remade)
        f = lambda v: program.f(lib, v)  # noqa: E731
        compiled = jax.jit(jax.value_and_grad(f) if program.gradient else f)
        there = jax.numpy.asarray(x)
        return lambda: jax.block_until_ready(compiled(there))

    makers: dict[str, Callable[[], Call]] = {"symgrad": of_symgrad}
    if importlib.util.find_spec("jax"):
        ways = {"JAX": False} | ({"JAX, checkpoints": True} if program.remade else {})
        makers |= {name: (lambda remade=remade: of_jax(remade)) for name, remade in ways.items()}
    return makers


def measured_alone(
    program: loop_programs.Program, rounds: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows and bars of one program; results are compared with JAX's."""
    first: dict[str, float] = {}
    calls: dict[str, Call] = {}
    values: dict[str, float] = {}
    for name, make in alone(program).items():
        start = time.perf_counter()
        calls[name] = make()
        result = calls[name]()
        first[name] = time.perf_counter() - start
        values[name] = float(result[0] if program.gradient else result)
    found = interleaved(calls, rounds)
    rows: list[dict[str, Any]] = [
        {"work": program.name, "way": name, "first s": round(first[name], 3), "ms": s.wall * 1e3}
        for name, s in found.items()
    ]
    peers = [name for name in calls if name != "symgrad"]
    assert all(np.isclose(values[p], values["symgrad"], 1e-9, 1e-12) for p in peers), values
    if not peers:
        return rows, []
    ratio = min(found[name].wall for name in peers) / found["symgrad"].wall
    quickest = min(first[name] for name in peers) / first["symgrad"]
    return rows, [
        bar(f"{program.name}: JAX's best over ours", ratio, 1, at_least=True),
        bar(f"{program.name}: JAX's quickest first result", quickest, 1, at_least=True),
    ]


def main() -> None:
    """Measure all works, each in turns with JAX."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="cpu", help='"cpu", or the index of a GPU')
    options = parser.parse_args()
    device: Any = int(options.device) if options.device.isdecimal() else options.device
    sg.fused_forward_backward(1, lambda v: v[0] * v[0], device=device).run([1.0])  # imports
    rows: list[dict[str, Any]] = []
    bars: list[dict[str, Any]] = []
    for work in works(options.device):
        more = measured(work, device, options.rounds)
        rows += more[0]
        bars += more[1]
    for program in loop_programs.programs() if options.device == "cpu" else ():
        more = measured_alone(program, options.rounds)
        rows += more[0]
        bars += more[1]
    where = sg.devices()[-1 if device == "cpu" else device]
    report("loops" if device == "cpu" else "loops_gpu", rows, bars, device=str(where))


if __name__ == "__main__":
    main()
