"""Write tests/data/torch_gradients.npz: results and gradients by PyTorch in float64.

    python -m venv torch && torch/bin/pip install torch==2.13.0 numpy
    PYTHONPATH=tests torch/bin/python tools/torch_gradients.py

What is computed and compared is told by ``tests/torch_cases.py``. symgrad is not needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch_cases
from torch_cases import STEPS, Case

torch: Any = importlib.import_module("torch")
functional = torch.nn.functional

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda z: z,
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda z: functional.gelu(z, approximate="tanh"),
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "own": lambda z: torch.where(z > 0.5, z**2, 0.1 * z),
}

ROWS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "layer_norm": lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b, 1e-5),
    "rms_norm": lambda x, w: functional.rms_norm(x, x.shape[-1:], w, 1e-6),
    "residual": lambda x, r, w: r + functional.rms_norm(x + r, x.shape[-1:], w, 1e-6),
    "cross_entropy": lambda x, t: -(torch.softmax(t, -1) * torch.log_softmax(x, -1)).sum(-1),
}

SCANS: dict[str, Callable[[Any, int], Any]] = {
    "add": torch.cumsum,
    "multiply": torch.cumprod,
    "maximum": lambda x, axis: torch.cummax(x, axis).values,
    "logaddexp": torch.logcumsumexp,
}


def gemm_bias(options: Sequence[Any], a: Any, b: Any, bias: Any) -> list[Any]:
    return [ACTIVATIONS[options[0]](a @ b + bias)]


def linear(options: Sequence[Any], x: Any, w: Any, b: Any) -> list[Any]:
    return [ACTIVATIONS[options[0]](functional.linear(x, w, b))]


def causal_convolution(options: Sequence[Any], u: Any, weights: Any, bias: Any) -> list[Any]:
    taps, channels = weights.shape[1], weights.shape[0]
    padded = functional.pad(u.transpose(1, 2), (taps - 1, 0))
    sums = functional.conv1d(padded, weights[:, None], bias, groups=channels)
    return [ACTIVATIONS[options[0]](sums).transpose(1, 2)]


def rowwise(options: Sequence[Any], *arrays: Any) -> list[Any]:
    return [ROWS[options[0]](*arrays)]


def selective_scan(
    options: Sequence[Any], u: Any, delta: Any, a: Any, b: Any, c: Any, skip: Any, *state: Any
) -> list[Any]:
    """One step after the other."""
    kind, softplus, _ = options
    d = torch.logaddexp(delta, torch.zeros_like(delta)) if softplus else delta
    h = state[0] if state else torch.zeros(u.shape[0], *a.shape, dtype=u.dtype)
    found = []
    for t in range(u.shape[1]):
        x = d[:, t, :, None] * a
        weight = torch.expm1(x) / x if kind == "zoh" else 1.0
        h = torch.exp(x) * h + weight * (d[:, t] * u[:, t])[..., None] * b[:, t, None]
        found.append((h * c[:, t, None]).sum(-1) + skip * u[:, t])
    return [torch.stack(found, 1), *[h] * len(state)]


def associative_scan(options: Sequence[Any], *elements: Any) -> list[Any]:
    name, axis, reverse = options
    given = [torch.flip(x, [axis]) for x in elements] if reverse else list(elements)
    found = affine(*given, axis=axis) if name == "affine" else [SCANS[name](given[0], axis)]
    return [torch.flip(y, [axis]) for y in found] if reverse else found


def affine(slopes: Any, values: Any, axis: int) -> list[Any]:
    """Of functions, all up to each one after another: one after the other."""
    both = zip(torch.unbind(slopes, axis), torch.unbind(values, axis), strict=True)
    (slope, value), found = next(both), []
    found.append((slope, value))
    for a, b in both:
        slope, value = a * slope, a * value + b
        found.append((slope, value))
    return [torch.stack(part, axis) for part in zip(*found, strict=True)]


KINDS = {
    f.__name__: f
    for f in (
        causal_convolution, gemm_bias, linear, rowwise, selective_scan, associative_scan,
    )
}  # fmt: skip


def with_gradients(case: Case) -> tuple[float, list[np.ndarray]]:
    """The checksum of what goes in, and what comes out: the results, and all gradients."""
    arrays = case.arrays()
    inputs = [torch.tensor(a, requires_grad=True) for a in arrays]
    results = KINDS[case.kind](case.options, *inputs)
    cotangents = case.cotangents([tuple(y.shape) for y in results])
    total: Any = sum((y * torch.tensor(g)).sum() for y, g in zip(results, cotangents, strict=True))
    total.backward()
    found = [*(y.detach() for y in results), *(x.grad for x in inputs)]
    return torch_cases.checksum([*arrays, *cotangents]), [x.numpy() for x in found]


def updated(case: Case) -> tuple[float, list[np.ndarray]]:
    """The same of updates, which have no gradients."""
    arrays, (limit,) = case.arrays(), case.options
    parts = [torch.tensor(a) for a in arrays]
    if case.kind == "clip_by_global_norm":
        for x in parts:
            x.grad = x.clone()
        norm = torch.nn.utils.clip_grad_norm_(parts, limit)
        return torch_cases.checksum(arrays), [*(x.grad.numpy() for x in parts), norm.numpy()]
    many = len(parts) // (1 + STEPS)
    params = [x.requires_grad_() for x in parts[:many]]
    method = torch.optim.AdamW(params, lr=0.02, weight_decay=0.1)
    for step in range(1, 1 + STEPS):
        for x, g in zip(params, parts[many * step : many * (step + 1)], strict=True):
            x.grad = g.clone()
        if limit is not None:
            torch.nn.utils.clip_grad_norm_(params, limit)
        method.step()
    return torch_cases.checksum(arrays), [x.detach().numpy() for x in params]


def main() -> None:
    names, values, sizes = [], [], []
    computed = [(case, with_gradients) for case in torch_cases.GRADIENTS]
    for case, compute in [*computed, *((case, updated) for case in torch_cases.UPDATES)]:
        checksum, arrays = compute(case)
        for part in (np.array([checksum]), *map(torch_cases.compared, arrays)):
            names.append(case.name)
            values.append(part)
            sizes.append(part.size)
        print(case.name)
    torch_cases.PATH.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        torch_cases.PATH, names=names, values=np.concatenate(values), sizes=sizes,
        torch=torch.__version__,
    )  # fmt: skip


if __name__ == "__main__":
    main()
