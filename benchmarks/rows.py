"""Losses over data, loss and gradient, host to host: parameters go up, 1 + n numbers come back.

Four Gaussians with 12 parameters, a network with 337, and a bundle adjustment, whose gradient is
scattered into cameras and points, beside JAX and torch.compile in the same run. Each takes its turn
with several calls, as the first after another's has to wait: on a GPU for the driver to change
over, on a CPU for threads that still spin. On a GPU the kernel of the first loss alone is timed
beside a copy.

    python benchmarks/rows.py [--device cpu] [--rows 1000000] [--rounds 20] [word of a name ...]
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from measure import bar, interleaved, report

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import symgrad as sg
from symgrad.mathlib.define import Math

Call = Callable[[], Any]


@dataclass
class Work:
    """A loss of one row, its parameters and data, and the same loss for peers, of arrays.

    Peers get the formulation that suits them best: where a compiler fuses elementwise work over
    columns of their own, ``columns`` has these, and the loss is written out over them.
    """

    name: str
    loss: Callable[[Any, Any], Any]
    params: Any
    table: Any
    arrays: Callable[[Any, Any, Any], Any]
    columns: Any
    """The data as peers get them."""

    limit: float
    """The most seconds on a CPU."""

    kinds: tuple[Math, ...] = ("accurate",)


def gaussians(p: Any, r: Any) -> Any:
    bells = [p[3 * k] * np.exp(-(((r[0] - p[3 * k + 1]) / p[3 * k + 2]) ** 2)) for k in range(4)]
    return (sum(bells) - r[1]) ** 2


def gaussians_of(p: Any, d: Any, m: Any) -> Any:
    bells = [p[3 * k] * m.exp(-(((d["x"] - p[3 * k + 1]) / p[3 * k + 2]) ** 2)) for k in range(4)]
    return ((sum(bells) - d["y"]) ** 2).sum()


def network(p: Any, r: Any) -> Any:
    first = np.tanh(p[:32].reshape(16, 2) @ r[:2] + p[32:48])
    second = np.tanh(p[48:304].reshape(16, 16) @ first + p[304:320])
    return (second @ p[320:336] + p[336] - r[2]) ** 2


def network_of(p: Any, d: Any, m: Any) -> Any:
    first = m.tanh(d[:, :2] @ p[:32].reshape(16, 2).T + p[32:48])
    second = m.tanh(first @ p[48:304].reshape(16, 16).T + p[304:320])
    return ((second @ p[320:336] + p[336] - d[:, 2]) ** 2).sum()


def projected(c: Any, x: Any, u: Any, v: Any, m: Any) -> Any:
    """The squared error of the BAL camera: rotation, translation, f, k1, k2."""
    w = c[:3]
    angle = m.sqrt(w[0] * w[0] + w[1] * w[1] + w[2] * w[2] + 1e-20)
    k = w / angle
    cosine, sine = m.cos(angle), m.sin(angle)
    cross = [k[1] * x[2] - k[2] * x[1], k[2] * x[0] - k[0] * x[2], k[0] * x[1] - k[1] * x[0]]
    along = (k[0] * x[0] + k[1] * x[1] + k[2] * x[2]) * (1 - cosine)
    q = [x[i] * cosine + cross[i] * sine + k[i] * along + c[3 + i] for i in range(3)]
    a, b = -q[0] / q[2], -q[1] / q[2]
    r2 = a * a + b * b
    scale = c[6] * (1 + c[7] * r2 + c[8] * r2 * r2)
    return (scale * a - u) ** 2 + (scale * b - v) ** 2


def bundle(p: Any, r: Any) -> Any:
    return projected(p.cameras[r.camera], p.points[r.point], r.u, r.v, sg)


def bundle_of(p: Any, d: Any, m: Any) -> Any:
    return projected(
        p["cameras"][d["camera"]].T, p["points"][d["point"]].T, d["u"], d["v"], m
    ).sum()


def works(count: int) -> list[Work]:
    """What is measured, with this many rows of the first."""
    draw = np.random.default_rng(0)

    def some(*shape: int) -> np.ndarray:
        return draw.uniform(0.5, 1.5, shape).astype(np.float32)

    pairs = draw.uniform(-3, 3, (count, 2)).astype(np.float32)
    seen = count // 2
    scene = {
        "camera": draw.integers(0, 500, seen).astype(np.int32),
        "point": draw.integers(0, 50_000, seen).astype(np.int32),
        "u": some(seen), "v": some(seen),
    }  # fmt: skip
    blocks = {
        "cameras": 0.1 * some(500, 9),
        "points": some(50_000, 3) + np.array([0, 0, 4], np.float32),
    }
    weights = draw.normal(0, 0.3, 337).astype(np.float32)
    samples = draw.normal(size=(count // 10, 3)).astype(np.float32)
    x, y = np.ascontiguousarray(pairs.T)
    return [
        Work("4 Gaussians", gaussians, some(12), pairs, gaussians_of, {"x": x, "y": y}, 0.8e-3,
             ("accurate", "fast")),
        Work("network, 337 parameters", network, weights, samples, network_of, samples, 2.4e-3),
        Work("bundle adjustment", bundle, blocks, scene, bundle_of, scene, 0.0),
    ]  # fmt: skip


def ours(work: Work, device: Any) -> dict[str, Call]:
    """The kernel with its data where it runs."""
    found: dict[str, Call] = {}
    for math in work.kinds:
        if isinstance(work.table, dict):
            shapes = {k: v.shape for k, v in work.params.items()}
            kernel = sg.fused_forward_backward(
                shapes, work.loss, columns=list(work.table), math=math,
                device=None if isinstance(device, int) else device,
            )  # fmt: skip
        else:
            kernel = sg.fused_forward_backward(
                len(work.params), work.loss, row=work.table.shape[1], math=math, device=device
            )
        bound = kernel.bind(work.table)
        found[f"symgrad {math}"] = lambda bound=bound: bound.run(work.params)
    return found


def jax(work: Work, _: Any) -> dict[str, Call]:
    """jit of value_and_grad over arrays on its device."""
    module, numpy = importlib.import_module("jax"), importlib.import_module("jax.numpy")
    compiled = module.jit(module.value_and_grad(lambda p, d: work.arrays(p, d, numpy)))
    data = module.device_put(work.columns)

    def call() -> Any:
        value, slopes = compiled(work.params, data)
        return float(value), module.tree.map(np.asarray, slopes)

    return {"JAX": call}


def torch(work: Work, device: Any) -> dict[str, Call]:
    """torch.compile of the gradient."""
    module = importlib.import_module("torch")
    tree = importlib.import_module("torch.utils._pytree")
    where = "cuda" if device != "cpu" and module.cuda.is_available() else "cpu"

    def there(arrays: Any) -> Any:
        return tree.tree_map(lambda a: module.from_numpy(a).to(where), arrays)

    data = there(work.columns)
    compiled = module.compile(module.func.grad_and_value(lambda p: work.arrays(p, data, module)))

    def call() -> Any:
        slopes, value = compiled(there(work.params))
        return value.item(), tree.tree_map(lambda a: a.cpu().numpy(), slopes)

    return {"torch.compile": call}


def alone(work: Work, device: int, rounds: int) -> tuple[list[Any], list[Any]]:
    """The kernels over rows alone, by the clock of this GPU, and the bandwidth of a copy."""
    table = sg.device_array(work.table, device)
    profiles: dict[str, Callable[[], sg.Profile]] = {
        "a copy": lambda: sg.profile(lambda: table * 1.0)
    }
    for math in work.kinds:
        bound = sg.fused_forward_backward(
            len(work.params), work.loss, row=work.table.shape[1], math=math, device=device
        ).bind(work.table)
        profiles[f"symgrad {math}"] = lambda bound=bound: bound.profile(work.params)
    nbytes = work.table.nbytes
    seconds = {
        name: min(profile().seconds["kernel"] for _ in range(rounds))
        for name, profile in profiles.items()
    }
    copied = 2 * nbytes / seconds["a copy"]
    rows = [
        {"work": f"{work.name}, the kernel alone", "by": name, "us": 1e6 * took,
         "GB/s": (1 + (name == "a copy")) * nbytes / took / 1e9}
        for name, took in seconds.items()
    ]  # fmt: skip
    share = nbytes / seconds["symgrad fast"] / copied
    return rows, [bar(f"{work.name}: bandwidth over a copy's, fast", share, 0.6, at_least=True)]


def measured(work: Work, options: argparse.Namespace, device: Any) -> tuple[list[Any], list[Any]]:
    """The rows and bars of a work."""
    calls: dict[str, Call] = {}
    first: dict[str, float] = {}
    for make in (
        lambda: ours(work, device),
        lambda: jax(work, device),
        lambda: torch(work, device),
    ):
        start = time.perf_counter()
        try:
            for name, call in make().items():
                value = call()[0]
                first[name] = time.perf_counter() - start
                calls[name] = call
                want = calls["symgrad accurate"]()[0]
                assert abs(value - want) < 1e-3 * abs(want), f"{name} computes something else"
        except ImportError as error:
            print(f"not here: {error}", file=sys.stderr)
        except Exception:
            traceback.print_exc()
    found = interleaved(calls, options.rounds, dict.fromkeys(calls, 10))
    base = found["symgrad accurate"].wall
    rows = [
        {"work": work.name, "by": k, "us": s.wall * 1e6, "ours over this": base / s.wall,
         "first result, s": first[k]}
        for k, s in found.items()
    ]  # fmt: skip
    bars = [
        bar(f"{work.name}: time over {k}", base / s.wall, 1.0)
        for k, s in found.items() if not k.startswith("symgrad")
    ]  # fmt: skip
    if device == "cpu" and work.limit and options.rows == 1_000_000:
        bars.append(bar(f"{work.name}, ms", base * 1e3, work.limit * 1e3))
    return rows, bars


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    device = int(options.device) if options.device.isdecimal() else options.device
    rows: list[Any] = []
    bars: list[Any] = []
    for work in works(options.rows):
        if not options.names or any(name in work.name for name in options.names):
            more, limits = measured(work, options, device)
            rows += more
            bars += limits
            if device != "cpu" and len(work.kinds) > 1:
                more, limits = alone(work, device, options.rounds)
                rows += more
                bars += limits
    where = (
        next(d for d in sg.devices() if not d.is_gpu) if device == "cpu" else sg.devices()[device]
    )
    report(f"rows_{'cpu' if device == 'cpu' else 'gpu'}", rows, bars, keep=not options.names,
           device=str(where), rows_of_data=options.rows)  # fmt: skip


if __name__ == "__main__":
    main()
