"""Transfers between the host and a GPU, as users' calls make them, beside torch and JAX.

Uploads and downloads of an array, and calls that take arrays of the host and return such arrays:
a batch of points, predictions, many fits, many descents. Peers do what transfers are in the call
alone, from memory that the system may page and, where they can, from memory that it may not.

    python benchmarks/transfers.py [--device 0] [--megabytes 480] [--count 1000000] [--rounds 10]
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from measure import Seconds, bar, interleaved, report
from optimisers import rastrigin
from workloads import rosenbrock

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import symgrad as sg
from symgrad.wgsl.device.gpus import open_gpu

Call = Callable[[], Any]

WARM = 0.3
"""Seconds for which a call is repeated before it is timed."""

TOGETHER = 4
"""Calls that are timed together: the first after a peer's finds clocks as that has left them."""

BUDGET = 2.0
"""Seconds for all rounds of a work, about, if that leaves it `FEWEST`."""

FEWEST = 3
"""Rounds of a work, at least."""

DIFFERENT = 10_000
"""Images that differ: more are these again."""

BARS = {"11 x 11": 40e-3, "5 x 5": 15e-3, "15 x 15": 45e-3, "200 Adam steps": 4e-3}
"""Seconds that a call may take on one H200 with a million fits (15 x 15: half of them)."""


def arrays(device: int, nbytes: int) -> tuple[dict[str, dict[str, Call]], int]:
    """An array that goes up, and one that comes back, by each library; and the bytes of them."""
    gpu = open_gpu(device)
    x = np.random.default_rng(0).random(nbytes // 4, np.float32)
    double, there = x.astype(np.float64), sg.device_array(x, device)

    def up(values: np.ndarray) -> Any:
        found = sg.device_array(values, device)
        gpu.wait()
        return found

    assert np.array_equal(there.numpy(), x), "what came back is something else"
    works = {
        "upload": {"symgrad": lambda: up(x)},
        "upload of float64": {"symgrad": lambda: up(double)},
        "download": {"symgrad": there.numpy},
    }
    for name, make in (("torch", torch_arrays), ("JAX", jax_arrays)):
        try:
            for work, calls in make(x, double).items():
                works[work] |= calls
        except ImportError as error:
            print(f"{name} is not here: {error}", file=sys.stderr)
    return works, x.nbytes


def torch_arrays(x: np.ndarray, double: np.ndarray) -> dict[str, dict[str, Call]]:
    """torch's ways, from and to pageable and pinned memory."""
    torch = importlib.import_module("torch")
    here = torch.from_numpy(x)
    pinned, there, room = here.pin_memory(), here.to("cuda"), torch.empty_like(here).pin_memory()

    def done(found: Any) -> Any:
        torch.cuda.synchronize()
        return found

    return {
        "upload": {
            "torch, pageable": lambda: done(here.to("cuda")),
            "torch, pinned": lambda: done(pinned.to("cuda", non_blocking=True)),
        },
        "upload of float64": {
            "torch, pageable": lambda: done(torch.from_numpy(double).to("cuda", torch.float32))
        },
        "download": {
            "torch, pageable": there.cpu,
            "torch, pinned": lambda: done(room.copy_(there, non_blocking=True)),
        },
    }


def jax_arrays(x: np.ndarray, double: np.ndarray) -> dict[str, dict[str, Call]]:
    """JAX's ways; an array that was downloaded is kept, so each time it is a new one."""
    jax = importlib.import_module("jax")
    there = jax.block_until_ready(jax.device_put(x))
    return {
        "upload": {"JAX": lambda: jax.block_until_ready(jax.device_put(x))},
        "upload of float64": {"JAX": lambda: jax.block_until_ready(jax.numpy.asarray(double))},
        "download": {"JAX, with an addition": lambda: np.asarray(there + 0)},
    }


def images(count: int, pixels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spots with noise (count, pixels**2), where their pixels are, and where fits start."""
    draw, drawn = np.random.default_rng(1), min(count, DIFFERENT)
    y, x = (a.ravel().astype(np.float32) for a in np.mgrid[:pixels, :pixels])
    middle = (pixels - 1) / 2
    low = [500, middle - 0.5, middle - 0.5, 1.0, 20]
    high = [1500, middle + 0.5, middle + 0.5, 1.5, 40]
    a, x0, y0, width, offset = draw.uniform(low, high, (drawn, 5)).astype(np.float32).T[:, :, None]
    seen = a * np.exp(-((x - x0) ** 2 + (y - y0) ** 2) / (2 * width**2)) + offset
    seen += np.sqrt(seen) * draw.standard_normal(seen.shape, np.float32)
    first = np.full((drawn, 5), [0, middle, middle, 1.2, 0], np.float32)
    first[:, 0], first[:, 4] = np.ptp(seen, axis=1), seen.min(axis=1)
    again = np.arange(count) % drawn
    return np.stack([x, y]), seen[again], first[again]


def spot(r: Any, height: Any, x: Any, y: Any, width: Any, offset: Any) -> Any:
    """A round Gaussian on a background."""
    return height * sg.exp(-((r[0] - x) ** 2 + (r[1] - y) ** 2) / (2 * width**2)) + offset


def fits(count: int, device: int, pixels: int) -> Call:
    """Fits of as many images, host to host."""
    x, seen, first = images(count, pixels)

    def fit() -> Any:
        return sg.fit_many(spot, x, seen, first, steps=50, device=device)

    good = fit().success.mean()
    print(f"{pixels} x {pixels}: {good:.3%} converged")
    assert good > 0.99, f"only {good:.2%} of the fits converged"
    return fit


def calls(count: int, device: int) -> dict[str, dict[str, Call]]:
    """Calls with arrays of the host, by their names."""
    draw = np.random.default_rng(2)
    points = draw.uniform(-1, 1, (count, 10)).astype(np.float32)
    kernel = sg.fused_forward_backward(10, rosenbrock, device=device)
    starts = draw.uniform(-5, 5, (count, 4)).astype(np.float32)
    rows = draw.uniform(-1, 1, (count, 3)).astype(np.float32)
    line = sg.fused_forward(
        3, lambda p, r: p[0] * np.exp(-p[1] * r[0]) + p[2] * r[1] * r[2], row=3, reduce=None,
        device=device,
    )  # fmt: skip
    bound, p = line.bind(rows), np.array([1.0, 0.5, 2.0])
    found: dict[str, Call] = {
        "Rosenbrock-10, loss and gradient": lambda: kernel.run(points),
        "200 Adam steps": lambda: sg.minimize_from(
            rastrigin, 4, starts, sg.Adam(0.01), 200, device=device
        ),
        "predictions": lambda: line.run(p, rows),
        "predictions, rows bound": lambda: bound.run(p),
    }
    for pixels, share in ((11, 1), (5, 1), (15, 2)):
        found[f"{pixels} x {pixels} fits"] = fits(count // share, device, pixels)
    return {
        name: {"symgrad": call} | jax_calls(name, points, starts) for name, call in found.items()
    }


def jax_calls(name: str, points: np.ndarray, starts: np.ndarray) -> dict[str, Call]:
    """The same in JAX, where it has such a thing."""
    try:
        jax = importlib.import_module("jax")
    except ImportError:
        return {}
    if name.startswith("Rosenbrock"):
        run = jax.jit(jax.vmap(jax.value_and_grad(rosenbrock)))
        return {"JAX": lambda: [np.asarray(a) for a in run(points)]}
    if name.startswith("200 Adam"):
        descend = importlib.import_module("optimisers").jax_descend(jax)
        return {"JAX": lambda: np.asarray(descend(starts))}
    return {}


def measured(by: Mapping[str, Call], rounds: int) -> dict[str, Seconds]:
    """The least times; each call is repeated before, as a GPU that was idle has slow clocks."""
    once = sum(map(warmed, by.values()))
    rounds = max(FEWEST, min(rounds, int(BUDGET / (TOGETHER * once))))
    return interleaved(by, rounds, dict.fromkeys(by, TOGETHER))


def warmed(call: Call) -> float:
    """Repeat a call for a while: the seconds that it takes."""
    start, times = time.perf_counter(), 0
    while time.perf_counter() < start + WARM:
        call()
        times += 1
    return (time.perf_counter() - start) / times


def rows_of(work: str, found: Mapping[str, Seconds], nbytes: int | None) -> list[dict[str, Any]]:
    """The lines of a work in the table."""
    base = found["symgrad"].wall
    return [
        {"work": work, "by": name, "ms": 1e3 * s.wall, "ours over this": base / s.wall}
        | ({"GiB/s": nbytes / s.wall / 2**30} if nbytes else {})
        for name, s in found.items()
    ]


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=480)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args()
    rows: list[Any] = []
    bars: list[Any] = []
    works, nbytes = arrays(chosen.device, chosen.megabytes * 10**6)
    for work, by in works.items():
        found = measured(by, chosen.rounds)
        rows += rows_of(work, found, nbytes)
        if "torch, pageable" in found:
            share = found["symgrad"].wall / found["torch, pageable"].wall
            bars.append(bar(f"{work}: time over torch's from pageable memory", share, 1.0))
    works.clear()  # their arrays take memory of the device
    for work, by in calls(chosen.count, chosen.device).items():
        found = measured(by, chosen.rounds)
        rows += rows_of(work, found, None)
        limit = next((s for name, s in BARS.items() if work.startswith(name)), None)
        if limit and chosen.count == 1_000_000:
            bars.append(bar(f"{work}, ms", 1e3 * found["symgrad"].wall, 1e3 * limit))
    report(
        "transfers", rows, bars, device=str(sg.devices()[chosen.device]),
        megabytes=chosen.megabytes, count=chosen.count,
    )  # fmt: skip


if __name__ == "__main__":
    main()
