"""A kernel's loss inside PyTorch's graph, and under one of Optax's optimisers.

A damped wave is fitted to 2,000 noisy samples. The kernel reads them in one pass, for the loss and
its gradient; PyTorch differentiates what stands around it, here a softplus that keeps two
parameters positive. Optax only needs the gradient. What is not installed is left out.

    pip install torch optax
    python examples/10_torch_and_optax.py [--device cpu] [--steps 400] [--output wave.png]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

TRUE = np.array([1.5, 0.6, 4.0])
"""Amplitude, decay rate and angular frequency."""

FIRST = np.array([1.0, 1.0, 3.8])
NOISE = 0.1

Fit = tuple[np.ndarray, list[float]]
"""The parameters at the end, and the loss of every step."""


def squared_error(p, row):
    amplitude, rate, frequency = p
    t, y = row
    return (amplitude * sg.exp(-rate * t) * sg.cos(frequency * t) - y) ** 2


def wave(p: Any, t: np.ndarray) -> np.ndarray:
    return p[0] * np.exp(-p[1] * t) * np.cos(p[2] * t)


def fit_with_torch(bound: Any, steps: int) -> Fit:
    torch: Any = importlib.import_module("torch")

    class Loss(torch.autograd.Function):
        """The kernel as a function of a tensor (3,): its gradient is known with its value."""

        @staticmethod
        def forward(ctx: Any, p: Any) -> Any:
            value, slopes = bound.run(p.detach().cpu().numpy())
            ctx.slopes = torch.as_tensor(slopes).to(p)
            return p.new_tensor(value)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0] * ctx.slopes

    def positive(raw: Any) -> Any:
        return torch.cat([torch.nn.functional.softplus(raw[:2]), raw[2:]])

    start = np.concatenate([np.log(np.expm1(FIRST[:2])), FIRST[2:]])
    raw = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    optimiser = torch.optim.Adam([raw], lr=0.03)
    losses: list[float] = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = Loss.apply(positive(raw))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return positive(raw).detach().numpy(), losses


def fit_with_optax(bound: Any, steps: int) -> Fit:
    optax: Any = importlib.import_module("optax")

    optimiser = optax.adam(0.03)
    p: Any = FIRST.astype(np.float32)
    state = optimiser.init(p)
    losses: list[float] = []
    for _ in range(steps):
        loss, slopes = bound.run(np.asarray(p))
        updates, state = optimiser.update(slopes, state, p)
        p = optax.apply_updates(p, updates)
        losses.append(loss)
    return np.asarray(p), losses


FITS: dict[str, Callable[[Any, int], Fit]] = {"torch": fit_with_torch, "optax": fit_with_optax}


def draw(samples: np.ndarray, found: dict[str, Fit], output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    t = np.linspace(0, samples[:, 0].max(), 500)
    left.plot(*samples.T, ".", ms=2, color="0.7", label="samples")
    for (name, (p, losses)), style in zip(found.items(), ("-", "--"), strict=False):
        left.plot(t, wave(p, t), style, label=name)
        right.semilogy(losses, style, label=name)
    right.axhline(NOISE**2, ls=":", color="0.4", label="the noise")
    left.set(xlabel="t", ylabel="y")
    right.set(xlabel="step", ylabel="mean squared error")
    for ax in (left, right):
        ax.legend()
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-wave.png")
    )
    given = parser.parse_args()
    installed = {k: fit for k, fit in FITS.items() if importlib.util.find_spec(k)}
    if not installed:
        raise SystemExit("neither of them is here: pip install torch, or pip install optax")

    random = np.random.default_rng(0)
    t = random.uniform(0, 5, 2000)
    samples = np.stack([t, wave(TRUE, t) + NOISE * random.normal(size=t.size)], axis=1)
    kernel = sg.fused_forward_backward(3, squared_error, row=2, reduce="mean", device=given.device)
    bound = kernel.bind(samples)
    found = {name: fit(bound, given.steps) for name, fit in installed.items()}
    for name, (p, losses) in found.items():
        print(
            f"{name}: {p.round(3)} after {given.steps} steps, mean squared error {losses[-1]:.5f}"
        )
    draw(samples, found, given.output)
    best, _ = sg.curve_fit(lambda t, a, r, f: wave((a, r, f), t), t, samples[:, 1], FIRST)
    for p, _ in found.values():
        assert np.abs(p - best).max() < 2e-3, f"{p} is not the least squares fit {best}"


if __name__ == "__main__":
    main()
