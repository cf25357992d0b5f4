"""Kernels on the CPU beside compiled peers: one point, many points, and a long unrolled loop.

For each work and peer: the time from a Python function to the first result, and the least time of
a call once that is done, all in float32 and in turns. "In place" means results written to arrays
that are given.

    python benchmarks/cpu.py [--rounds 20] [work ...]
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import workloads
from measure import bar, interleaved, report

os.environ.setdefault("SYMGRAD_CACHE", "")  # code on disk would make every first call but one quick

import symgrad as sg

Call = Callable[[], Any]
Losses = Callable[..., Any]


@dataclass
class Work:
    """A loss, its points, and what is asked of us: (peer or milliseconds, name of ours)."""

    name: str
    loss: Losses
    points: np.ndarray
    limits: dict[str, float] = field(default_factory=dict)
    """The most seconds for each way of ours that is measured: steady, or "first ...": the first."""

    @property
    def single(self) -> bool:
        """Whether it is one point rather than a batch."""
        return self.points.ndim == 1


def works() -> list[Work]:
    """What is measured."""
    draw = np.random.default_rng(0)

    def some(*shape: int) -> np.ndarray:
        return draw.uniform(0.2, 1.2, shape).astype(np.float32)

    return [
        Work("one point, Rosenbrock n = 100", workloads.rosenbrock, some(100),
             {"symgrad": 3e-6, "symgrad, in place": 1e-6, "first symgrad": 0.3}),
        Work("1 M points, Rosenbrock n = 10, (B, n)", workloads.rosenbrock, some(1_000_000, 10),
             {"symgrad": 3e-3, "first symgrad": 0.3}),
        Work("reprojection error, 500,000 observations", workloads.reprojection,
             some(500_000, 12) * np.array([0.1] * 3 + [1] * 9, np.float32)
             + np.array([0] * 11 + [4], np.float32),
             {"symgrad": 1.6e-3, "first symgrad": 0.3}),
        Work("RK4, 200 unrolled steps", workloads.lotka_volterra(200), some(6),
             {"symgrad": 15e-6, "first symgrad": 0.5}),
    ]  # fmt: skip


# ours ---------------------------------------------------------------------------------------------


def ours(work: Work) -> dict[str, Call]:
    """The kernel, with fresh results and with given ones."""
    x = work.points
    kernel = sg.fused_forward_backward(x.shape[-1], work.loss, device="cpu")
    out = tuple(np.empty_like(a, np.float32) for a in kernel.run(x))
    return {"symgrad": lambda: kernel.run(x), "symgrad, in place": lambda: kernel.run(x, out=out)}


# peers --------------------------------------------------------------------------------------------


def jax(work: Work) -> dict[str, Call]:
    """jit of value_and_grad, mapped over a batch."""
    module, numpy = importlib.import_module("jax"), importlib.import_module("jax.numpy")
    loss = _scanned(module) if work.name.startswith("RK4") else lambda v: work.loss(v, numpy)
    both = module.value_and_grad(loss)
    compiled = module.jit(both if work.single else module.vmap(both))
    x = module.device_put(work.points)
    return {"JAX": lambda: module.block_until_ready(compiled(x))}


def _scanned(module: Any) -> Losses:
    """The RK4 loss with a scan: unrolled, JAX compiles it for minutes."""

    def slope(v: Any, x: Any, y: Any) -> Any:
        return v[0] * x - v[1] * x * y, v[3] * x * y - v[2] * y

    def loss(v: Any) -> Any:
        h = 0.001

        def step(state: Any, _: Any) -> Any:
            x, y = state
            a1, b1 = slope(v, x, y)
            a2, b2 = slope(v, x + h / 2 * a1, y + h / 2 * b1)
            a3, b3 = slope(v, x + h / 2 * a2, y + h / 2 * b2)
            a4, b4 = slope(v, x + h * a3, y + h * b3)
            x = x + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
            return (x, y + h / 6 * (b1 + 2 * b2 + 2 * b3 + b4)), None

        (x, y), _ = module.lax.scan(step, (v[4], v[5]), None, length=200)
        return (x - 1) ** 2 + (y - 2) ** 2

    return loss


def casadi(work: Work) -> dict[str, Call]:
    """A function of SX, in CasADi's interpreter; its numbers are float64."""
    if not work.single:
        return {}
    ca = importlib.import_module("casadi")
    v = ca.SX.sym("v", len(work.points))
    loss = work.loss(_Components(v, len(work.points)), ca)
    function = ca.Function("f", [v], [loss, ca.gradient(loss, v)])
    x = work.points.astype(float)
    buffer, call = function.buffer()
    value, slope = np.empty(1), np.empty(len(x))
    buffer.set_arg(0, memoryview(x.data))
    buffer.set_res(0, memoryview(value.data))
    buffer.set_res(1, memoryview(slope.data))

    def in_place(kept: Any = (function, buffer)) -> Any:  # CasADi does not keep them alive
        call()
        return value, slope

    return {"CasADi SX, in place": in_place}


class _Components:
    """A vector of CasADi that loops can take apart."""

    def __init__(self, v: Any, n: int) -> None:
        self.v, self.shape = v, (n,)

    def __getitem__(self, k: int) -> Any:
        return self.v[k]

    def __len__(self) -> int:
        return self.shape[0]


def numba(work: Work) -> dict[str, Call]:
    """Rosenbrock and its gradient written by hand, in loops over points and components."""
    if work.loss is not workloads.rosenbrock:
        return {}
    nb = importlib.import_module("numba")

    @nb.njit(fastmath=True)
    def one(x: Any, slope: Any) -> Any:
        total = np.float32(0)
        slope[0] = 0
        for i in range(x.shape[0] - 1):
            a, b = x[i + 1] - x[i] * x[i], np.float32(1) - x[i]
            total += np.float32(100) * a * a + b * b
            slope[i] += np.float32(-400) * a * x[i] - np.float32(2) * b
            slope[i + 1] = np.float32(200) * a
        return total

    @nb.njit(parallel=True, fastmath=True)
    def many(x: Any, values: Any, slopes: Any) -> None:
        for k in nb.prange(x.shape[0]):
            values[k] = one(x[k], slopes[k])

    x = work.points
    values, slopes = np.empty(x.shape[:-1], np.float32), np.empty_like(x)

    def call() -> Any:
        if work.single:
            return one(x, slopes), slopes
        many(x, values, slopes)
        return values, slopes

    return {"numba by hand, in place": call}


def drjit(work: Work) -> dict[str, Call]:
    """Dr.Jit over arrays of its own, one for each component."""
    dr, room = importlib.import_module("drjit"), importlib.import_module("drjit.llvm.ad")
    columns = [room.Float(np.ascontiguousarray(c)) for c in np.atleast_2d(work.points).T]

    def call() -> Any:
        x = [room.Float(c) for c in columns]
        dr.enable_grad(x)
        value = work.loss(_List(x), dr)
        dr.backward(value)
        found = [dr.detach(value), *[dr.grad(c) for c in x]]
        dr.eval(found)
        dr.sync_thread()
        return found[0].numpy(), np.stack([c.numpy() for c in found[1:]], axis=1)

    def steady() -> Any:
        x = [room.Float(c) for c in columns]
        dr.enable_grad(x)
        value = work.loss(_List(x), dr)
        dr.backward(value)
        dr.eval(dr.detach(value), [dr.grad(c) for c in x])
        dr.sync_thread()

    call()
    return {"Dr.Jit, n arrays (B,)": steady}


class _List(list[Any]):
    """A list with a shape, as losses ask for it."""

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)


def torch(work: Work) -> dict[str, Call]:
    """torch.compile of the gradient of the sum of all losses."""
    if work.single:
        return {}
    module = importlib.import_module("torch")
    x = module.from_numpy(work.points)

    def both(x: Any) -> Any:
        def summed(x: Any) -> Any:
            values = work.loss(x.T, module)
            return values.sum(), values

        slopes, (_, values) = module.func.grad_and_value(summed, has_aux=True)(x)
        return values, slopes

    compiled = module.compile(both)
    return {"torch.compile": lambda: compiled(x)}


PEERS = {"numba": numba, "CasADi": casadi, "JAX": jax, "Dr.Jit": drjit, "torch": torch}


# measuring ----------------------------------------------------------------------------------------


def prepared(work: Work) -> tuple[dict[str, Call], dict[str, float]]:
    """The calls that work here, and the seconds from the function to each one's first result."""
    calls: dict[str, Call] = {}
    first: dict[str, float] = {}
    want = None
    for name, make in {"symgrad": ours, **PEERS}.items():
        start = time.perf_counter()
        try:
            for key, call in make(work).items():
                result = call()
                first[key] = time.perf_counter() - start
                calls[key] = call
                want = _agreed(key, result, want)
        except ImportError as error:
            print(f"not here: {name}: {error}", file=sys.stderr)
        except Exception:
            traceback.print_exc()
            print(f"failed: {name}, {work.name}", file=sys.stderr)
    return calls, first


def _agreed(name: str, result: Any, want: Any) -> Any:
    """Compare a peer's results with ours, which come first."""
    if result is None:
        return want
    found = [np.asarray(a, np.float64).ravel() for a in result]
    if want is not None:
        for a, b in zip(found, want, strict=True):
            scale = np.maximum(np.abs(b), 1e-2 * np.abs(b).max())
            assert np.nanmax(np.abs(a - b) / scale) < 1e-2, f"{name} computes something else"
    return want or found


def measured(work: Work, rounds: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows and the bars of a work."""
    calls, first = prepared(work)
    counts = {}
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        counts[name] = max(1, min(2000, round(0.05 / (time.perf_counter() - start))))
    found = interleaved(calls, rounds, counts)
    base = found["symgrad"].wall
    rows = [
        {
            "work": work.name, "by": name, "us": took.wall * 1e6,
            "symgrad over this": base / took.wall, "first result, s": first[name],
        }
        for name, took in found.items()
    ]  # fmt: skip
    bars = [
        bar(f"{work.name}: first result, s", first["symgrad"], limit)
        if key.startswith("first")
        else bar(f"{work.name}: {key}, us", found[key].wall * 1e6, limit * 1e6)
        for key, limit in work.limits.items()
    ]
    return rows, bars


def main() -> None:
    """Measure the works that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", nargs="*", help="words of the names of works")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    bars: list[dict[str, Any]] = []
    for work in works():
        if not options.work or any(word in work.name for word in options.work):
            more, limits = measured(work, options.rounds)
            rows += more
            bars += limits
    device = next(d for d in sg.devices() if not d.is_gpu)
    report("cpu", rows, bars, keep=not options.work, device=str(device))


if __name__ == "__main__":
    main()
