"""Hamiltonian Monte Carlo: a million chains that sample a bent density, all in one kernel.

Each invocation is a chain. It draws its own random numbers, from a key that its number is folded
into, walks along the gradient of the log-density in leapfrogs, which symgrad derives, and accepts
or rejects where it came: a loop of steps with a loop of leapfrogs in it. The picture shows where
the chains end, and lines on which the density is the same.

    python examples/14_a_million_chains.py [--chains 20000] [--device cpu] [--output chains.png]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import symgrad as sg

STEPS = 100
LEAPFROGS = 10
LENGTH = 0.15
BEND, WIDTH = 0.7, 0.7


def energy(x):
    """Minus the logarithm of the density: u is normal, and v is BEND (u² - 1) + WIDTH normal."""
    u, v = x
    return 0.5 * u**2 + 0.5 * ((v - BEND * (u**2 - 1)) / WIDTH) ** 2


def leapfrog(k, state):
    x, p = state
    p = p - 0.5 * LENGTH * sg.grad(energy(x), x)
    x = x + LENGTH * p
    return x, p - 0.5 * LENGTH * sg.grad(energy(x), x)


def chain(v):
    """Where chain number v[0] is after STEPS steps, and how many of them were accepted."""
    own = sg.random.fold_in(sg.random.key(2024), v[0])

    def step(k, state):
        x, accepted = state
        push, choose = sg.random.split(sg.random.fold_in(own, k))
        p = sg.random.normal(push, 2)
        there, speed = sg.fori_loop(0, LEAPFROGS, leapfrog, (x, p))
        gained = energy(x) + 0.5 * np.sum(p**2) - energy(there) - 0.5 * np.sum(speed**2)
        accept = np.log(sg.random.uniform(choose)) < gained
        return np.where(accept, there, x), accepted + np.where(accept, 1.0, 0.0)

    start = sg.random.normal(sg.random.fold_in(own, STEPS), 2)
    return sg.fori_loop(0, STEPS, step, (start, 0.0))


def draw(ends: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(7, 5), layout="constrained")
    ax = figure.subplots()
    bins = np.linspace(-3.2, 3.2, 321), np.linspace(-3, 8, 321)
    counts, _, _ = np.histogram2d(*ends.T, bins=bins)
    extent = (bins[0][0], bins[0][-1], bins[1][0], bins[1][-1])
    ax.imshow(np.sqrt(counts.T), origin="lower", extent=extent, aspect="auto", cmap="magma")
    grid = np.meshgrid(*(np.linspace(b[0], b[-1], 200) for b in bins))
    ax.contour(*grid, energy(grid), levels=[0.5, 2.0, 4.5], colors="white", linewidths=0.6)
    ax.set(xlabel="u", ylabel="v", title=f"where {len(ends):,} chains end, and 1, 2, 3 sigma")
    figure.savefig(output, dpi=110)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chains", type=int, default=1_000_000)
    parser.add_argument("--device", default=None)
    parser.add_argument("--output", type=Path, default=Path("chains.png"))
    given = parser.parse_args()
    start = time.perf_counter()
    kernel = sg.fused_forward(1, chain, device=given.device, name="chain")
    ends, accepted = kernel.run(np.arange(given.chains, dtype=np.float32)[:, None])
    seconds = time.perf_counter() - start
    steps = given.chains * STEPS
    print(f"{given.chains:,} chains x {STEPS} steps of {LEAPFROGS} leapfrogs: {seconds:.2f} s")
    print(f"accepted: {accepted.sum() / steps:.1%}")

    # of u², whose mean is 1, and so on: all within 4 standard errors of what they have to be
    u, v = ends.astype(np.float64).T
    moments = {
        "u": (u, 0.0), "u²": (u**2, 1.0), "v": (v, 0.0),
        "v²": (v**2, 2 * BEND**2 + WIDTH**2), "u² v": (u**2 * v, 2 * BEND),
    }  # fmt: skip
    for name, (sample, mean) in moments.items():
        error = sample.std() / np.sqrt(len(sample))
        print(f"mean of {name:5} {sample.mean():8.4f} +- {error:.4f}, exactly {mean}")
        assert abs(sample.mean() - mean) < 4 * error
    draw(ends, given.output)


if __name__ == "__main__":
    main()
