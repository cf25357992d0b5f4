"""Scans and updates of arrays that stay on a GPU, beside a copy of as many bytes, JAX and PyTorch.

Associative scans of 2^24 elements (sums; affine functions), the selective scan of a state-space
model, and a step of AdamW with a clipped norm for 100 million parameters in 50 arrays. A
measurement queues calls and waits once, at the end. Peers that are not installed are left out.

    python benchmarks/scans.py [--device gpu] [--share 1.0] [--rounds 6] [--calls 20]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from layers import finished, torch_or_none
from measure import bar, interleaved, report

import symgrad as sg
from symgrad.targets import choose

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

Call = Callable[[], Any]


@dataclass
class Work:
    """Something to do: ``bytes`` have to move, and calls that do it, by whom, with their waits."""

    name: str
    bytes: int
    calls: dict[str, tuple[Call, Callable[[Any], Any]]]
    share: float | None = None
    """The share of the copy's bandwidth that is asked for."""
    ms: float | None = None
    """The milliseconds that are asked for, of the whole size."""


def waited(array: Any) -> Any:
    """Wait for what makes an array of symgrad's."""
    return array.wait()


def affine(f: Any, g: Any) -> Any:
    """The function g after f, of slope and value."""
    return g[0] * f[0], g[0] * f[1] + g[1]


def jax_or_none() -> Any:
    """JAX, if it is there with a GPU."""
    try:
        import jax
    except ImportError:
        return None
    return jax if jax.default_backend() == "gpu" else None


def associative(count: int, device: Any) -> list[Work]:
    """Sums and affine functions."""
    draw = np.random.default_rng(0)
    slopes = draw.uniform(0.5, 1.0, count).astype(np.float32)
    values = draw.normal(size=count).astype(np.float32)
    a, b = sg.device_array(slopes, device), sg.device_array(values, device)
    add, then = (sg.associative_scan(f, device=device) for f in (np.add, affine))
    sums = Work("sums", 8 * count, {"symgrad": (lambda: add.run(b), waited)}, 0.5)
    both = Work(
        "affine functions", 16 * count, {"symgrad": (lambda: then.run(a, b)[1], waited)}, 0.5
    )
    if jax := jax_or_none():
        x, y = jax.numpy.array(slopes), jax.numpy.array(values)
        scan = jax.lax.associative_scan
        of_sums = jax.jit(lambda y: scan(jax.numpy.add, y))
        of_both = jax.jit(lambda x, y: scan(affine, (x, y)))
        cumsum = jax.jit(jax.numpy.cumsum)
        sums.calls["JAX"] = (lambda: of_sums(y), jax.block_until_ready)
        sums.calls["JAX, cumsum"] = (lambda: cumsum(y), jax.block_until_ready)
        both.calls["JAX"] = (lambda: of_both(x, y), jax.block_until_ready)
    if torch := _torch():
        t = torch.tensor(values, device="cuda")
        sums.calls["PyTorch"] = (lambda: torch.cumsum(t, 0), lambda _: torch.cuda.synchronize())
    return [sums, both]


def selective(batch: int, length: int, channels: int, states: int, device: Any) -> list[Work]:
    """The recurrence of Mamba, with Euler's steps, forward and with all gradients."""
    draw = np.random.default_rng(1)

    def there(*shape: int) -> Any:
        return sg.device_array(draw.uniform(0.1, 1.0, shape).astype(np.float32), device)

    u, delta, g = (there(batch, length, channels) for _ in range(3))
    A = sg.device_array(-draw.uniform(0.5, 2.0, (channels, states)).astype(np.float32), device)
    B, C, D = there(batch, length, states), there(batch, length, states), there(channels)
    kernel = sg.selective_scan(discretization="euler", device=device)
    each, few = 4 * batch * length * channels, 8 * batch * length * states
    run = {"symgrad": (lambda: kernel.run(u, delta, A, B, C, D), waited)}
    vjp = {"symgrad": (lambda: kernel.vjp(u, delta, A, B, C, D, g)[0], waited)}
    return [
        Work("selective scan", 3 * each + few, run, ms=0.75),
        Work("selective scan, forward and backward", 8 * each + 3 * few, vjp),
    ]


def updates(arrays: int, count: int, device: Any) -> list[Work]:
    """AdamW with a clipped norm: five numbers are read for each parameter, and three written."""
    draw = np.random.default_rng(2)
    own = [sg.device_array(draw.random(count, dtype=np.float32), device) for _ in range(arrays)]
    slopes = [sg.device_array(draw.random(count, dtype=np.float32), device) for _ in range(arrays)]
    update = sg.adamw_update(1e-3, max_norm=1.0, device=device)
    state = {"now": (own, update.start(own))}

    def step() -> Any:
        state["now"] = update.run(state["now"][0], slopes, state["now"][1])
        return state["now"][1].shared

    work = Work("clipped AdamW", 32 * arrays * count, {"symgrad": (step, waited)}, 0.7)
    if torch := _torch():
        tensors = [torch.rand(count, device="cuda", requires_grad=True) for _ in range(arrays)]
        for tensor in tensors:
            tensor.grad = torch.rand_like(tensor)
        adamw = torch.optim.AdamW(tensors, lr=1e-3, fused=True)

        def theirs() -> None:
            torch.nn.utils.clip_grad_norm_(tensors, 1.0, foreach=True)
            adamw.step()

        work.calls["PyTorch"] = (theirs, lambda _: torch.cuda.synchronize())
    return [work]


def copies(count: int, device: Any) -> Work:
    """A copy of so many numbers, by PyTorch if it is there."""
    if torch := _torch():
        source = torch.zeros(count, device="cuda")
        copied = torch.empty_like(source)
        call = lambda: copied.copy_(source)  # noqa: E731
        return Work("copy", 8 * count, {"PyTorch": (call, lambda _: torch.cuda.synchronize())})
    x = sg.device_array(np.zeros(count, np.float32), device)
    return Work("copy", 8 * count, {"symgrad": (lambda: x * 1.0, waited)})


def _torch() -> Any:
    torch = torch_or_none()
    return torch if torch and torch.cuda.is_available() else None


def measured(work: Work, given: Any) -> dict[str, float]:
    """The seconds of a call, by whom."""
    calls = {by: finished(call, given.calls, wait) for by, (call, wait) in work.calls.items()}
    for call in calls.values():
        call()
    return {by: s.wall / given.calls for by, s in interleaved(calls, given.rounds).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--share", type=float, default=1.0, help="of the sizes")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--keep", action="store_true", help="write the results down")
    given = parser.parse_args()

    def part(n: int) -> int:
        return max(1, int(n * given.share))

    device, rows, bars = given.device, list[dict[str, Any]](), list[Any]()
    copy = copies(part(2**24), device)
    rate = copy.bytes / min(measured(copy, given).values())
    rows.append({"work": "copy", "by": next(iter(copy.calls)), "GB/s": rate / 1e9})
    for make in (
        lambda: associative(part(2**24), device),
        lambda: selective(8, part(2048), part(1536), 16, device),
        lambda: updates(50, part(2_000_000), device),
    ):
        for work in make():
            took = measured(work, given)
            for by, s in took.items():
                share = work.bytes / s / rate
                rows.append({"work": work.name, "by": by, "ms": 1e3 * s, "share of copy": share})
            if work.share:
                share = work.bytes / took["symgrad"] / rate
                bars.append(bar(f"{work.name}: share of copy", share, work.share, at_least=True))
            if work.ms:
                bars.append(bar(f"{work.name}: ms", 1e3 * took["symgrad"], work.ms))
    report("scans", rows, bars, given.keep, device=str(choose(device)))


if __name__ == "__main__":
    main()
