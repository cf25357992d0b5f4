"""Layers of networks beside PyTorch, float32 without TF32, and NumPy: products and rows.

A product of matrices with a bias and gelu, forward, and forward and backward; softmax and layer
norms of long rows. Arrays stay on the device. Where there is no PyTorch, only symgrad is measured.

    python benchmarks/layers.py [--device gpu] [--batch 8] [--size 1024] [--rounds 6] [--calls 20]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from measure import bar, interleaved, report

import symgrad as sg
from symgrad.targets import choose

LEAST = 0.65
"""The rate that products are asked to reach, of PyTorch's."""

Call = Callable[[], Any]


def torch_or_none() -> Any:
    """PyTorch in float32, if it is there."""
    try:
        import torch
    except ImportError:
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def drawn(batch: int, size: int) -> list[np.ndarray]:
    """Two matrices for each of a batch, a bias and a cotangent."""
    draw = np.random.default_rng(0)
    shapes = (batch, size, size), (batch, size, size), (size,), (batch, size, size)
    return [draw.normal(size=s).astype(np.float32) for s in shapes]


def finished(call: Call, count: int, wait: Callable[[Any], Any]) -> Call:
    """So many calls, until the last is done."""

    def calls() -> None:
        for _ in range(count - 1):
            call()
        wait(call())

    return calls


def ours(arrays: Sequence[np.ndarray], device: Any) -> dict[str, Call]:
    """The work by symgrad."""
    there = list(arrays)
    if choose(device).is_gpu:
        there = [sg.device_array(a, device) for a in arrays]
    a, b, bias, g = there
    rows, slopes = a.reshape(-1, a.shape[-1]), g.reshape(-1, g.shape[-1])
    gelu = sg.gemm_bias(sg.gelu_tanh, device=device)
    fast = sg.gemm_bias(sg.gelu_tanh, device=device, math="fast")
    plain = sg.gemm_bias(bias=False, device=device)
    softmax = sg.rowwise(sg.softmax, device=device)
    norm = sg.rowwise(layer_norm, device=device)
    return {
        "product": lambda: plain.run(a, b),
        "product, bias and gelu": lambda: gelu.run(a, b, bias),
        "the same, fast": lambda: fast.run(a, b, bias),
        "forward and backward": lambda: gelu.vjp(a, b, bias, g)[0],
        "forward and backward, fast": lambda: fast.vjp(a, b, bias, g)[0],
        "softmax": lambda: softmax.run(rows),
        "softmax, forward and backward": lambda: softmax.vjp(rows, slopes)[0],
        "layer norm": lambda: norm.run(rows, bias, bias),
        "layer norm, forward and backward": lambda: norm.vjp(rows, bias, bias, slopes)[0],
    }


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    """Rows of mean 0 and variance 1, scaled and shifted."""
    return weight * (x - x.mean()) / np.sqrt(x.var() + 1e-5) + bias


def of_torch(torch: Any, arrays: Sequence[np.ndarray], device: str) -> dict[str, Call]:
    """The same work by PyTorch."""
    a, b, bias, g = (torch.tensor(x, device=device) for x in arrays)
    own = [x.clone().requires_grad_() for x in (a, b, bias)]
    rows, slopes = a.reshape(-1, a.shape[-1]), g.reshape(-1, g.shape[-1])
    of_rows = [x.clone().requires_grad_() for x in (rows, bias, bias)]
    f = torch.nn.functional

    def layer(x: Any, w: Any, c: Any) -> Any:
        return f.gelu(x @ w + c, approximate="tanh")

    def norm(x: Any, w: Any, c: Any) -> Any:
        return f.layer_norm(x, x.shape[-1:], w, c)

    def both(function: Callable[..., Any], inputs: Sequence[Any], cotangent: Any) -> Any:
        return torch.autograd.grad(function(*inputs), inputs, cotangent)

    return {
        "product": lambda: a @ b,
        "product, bias and gelu": lambda: layer(a, b, bias),
        "the same, fast": lambda: layer(a, b, bias),
        "forward and backward": lambda: both(layer, own, g),
        "forward and backward, fast": lambda: both(layer, own, g),
        "softmax": lambda: torch.softmax(rows, -1),
        "softmax, forward and backward": lambda: both(
            lambda x: torch.softmax(x, -1), of_rows[:1], slopes
        ),
        "layer norm": lambda: norm(rows, bias, bias),
        "layer norm, forward and backward": lambda: both(norm, of_rows, slopes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--keep", action="store_true", help="write the results down")
    given = parser.parse_args()
    arrays, torch = drawn(given.batch, given.size), torch_or_none()
    gpu = choose(given.device).is_gpu
    works = {"symgrad": ours(arrays, given.device)}
    waits: dict[str, Callable[[Any], Any]] = {"symgrad": lambda y: y.wait() if gpu else None}
    if torch and (not gpu or torch.cuda.is_available()):
        works["PyTorch"] = of_torch(torch, arrays, "cuda" if gpu else "cpu")
        waits["PyTorch"] = lambda _: torch.cuda.synchronize() if gpu else None
    rows, bars = measured(works, waits, given)
    report("layers", rows, bars, given.keep, device=str(choose(given.device)))


def measured(works: Any, waits: Any, given: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    """A row for each work, and how products compare."""
    rows, bars = list[dict[str, Any]](), list[Any]()
    flops = 2.0 * given.batch * given.size**3
    for name in works["symgrad"]:
        calls = {by: finished(w[name], given.calls, waits[by]) for by, w in works.items()}
        for call in calls.values():
            call()
        took = {by: s.wall / given.calls for by, s in interleaved(calls, given.rounds).items()}
        times = 3 if "backward" in name else 1
        is_product = "softmax" not in name and "norm" not in name
        for by, seconds in took.items():
            rate = {"TFLOP/s": times * flops / seconds / 1e12} if is_product else {}
            rows.append({"work": name, "by": by, "ms": 1e3 * seconds, **rate})
        if is_product and "PyTorch" in took:
            ratio = took["PyTorch"] / took["symgrad"]
            bars.append(bar(f"{name}: rate over PyTorch's", ratio, LEAST, at_least=True))
    return rows, bars


if __name__ == "__main__":
    main()
