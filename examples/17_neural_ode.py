"""A neural differential equation: a network learns how a system moves, from noisy paths of it.

The network gives the velocity, Runge and Kutta's method the path, and the gradient of the misfit of
all paths goes back through every step (Chen et al., 2018, "Neural ordinary differential equations",
whose spiral this is). Each path is a row of data and a scan of its own; L-BFGS of SciPy finds the
weights. What was learned is then followed from new starts, and beyond the time of the data.

    python examples/17_neural_ode.py [--paths 24] [--device cpu] [--output spiral.png]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize

import symgrad as sg

TIMES, STEPS, SPACING = 20, 2, 0.1
"""Times at which a path is seen, steps of the method between two of them, and the time between."""

HIDDEN = 12
SHAPES = {"in": (HIDDEN, 2), "bias": (HIDDEN,), "out": (2, HIDDEN)}
NOISE = 0.03
ROUNDS, LARGEST = 4, 4.0
"""How often the optimiser begins, and the largest weight."""


def spiral(y: Any) -> Any:
    """How the system moves, which the network does not know."""
    u, v = y[0] ** 3, y[1] ** 3
    return np.stack([-0.1 * u + 2.0 * v, -2.0 * u - 0.1 * v])


def network(p: Any, y: Any) -> Any:
    """How the network says that it moves: odd in y, as a system without a preferred side is."""
    inner = p["in"] @ y
    return p["out"] @ (np.tanh(inner + p["bias"]) + np.tanh(inner - p["bias"]))


def path(velocity: Any, start: Any, looks: int) -> Any:
    """Where a point is at each of so many times after its start, (2, looks)."""
    times = SPACING * np.arange(1, looks + 1)
    return sg.solve_ivp(
        lambda t, y: velocity(y), (0.0, times[-1]), start, "RK4", times, first_step=SPACING / STEPS,
        max_steps=STEPS * looks + 1,
    ).y  # fmt: skip


def misfit(p: Any, row: Any) -> Any:
    """The squared distance of a path from what the network makes of its start."""
    seen = row.reshape(TIMES + 1, 2)
    way = path(lambda y: network(p, y), seen[0], TIMES)
    return np.sum((way - seen[1:].T) ** 2) / (2 * TIMES)


def paths(starts: np.ndarray, times: int) -> np.ndarray:
    """The true paths (paths, times + 1, 2) from these starts."""
    ways = path(spiral, starts, times)
    return np.concatenate([starts[:, None], ways.swapaxes(1, 2)], axis=1)


def draw(weights: Any, truth: np.ndarray, found: np.ndarray, seen: np.ndarray, to: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    grid = np.stack(np.meshgrid(*[np.linspace(-2.2, 2.2, 22)] * 2))
    flat = grid.reshape(2, -1)
    true, learned = spiral(flat), network({k: v[..., None] if v.ndim == 1 else v
                                           for k, v in weights.items()}, flat)  # fmt: skip
    for field, color, name in ((true, "#9aa5b1", "true"), (learned, "#d1495b", "learned")):
        left.quiver(*flat, *(field / np.linalg.norm(field, axis=0) ** 0.7), color=color,
                    width=0.004, label=name)  # fmt: skip
    left.plot(*seen.reshape(-1, 2).T, ".", color="#2e6f95", ms=2, label="seen")
    left.set(title="The field, and what was seen of it", xlim=(-2.2, 2.2), ylim=(-2.2, 2.2))
    left.legend(loc="upper right")
    for k, (a, b) in enumerate(zip(truth, found, strict=True)):
        right.plot(*a.T, color="#9aa5b1", lw=3, label="true" if not k else None)
        right.plot(*b.T, color="#d1495b", lw=1, label="learned" if not k else None)
        right.plot(*a[0], "o", color="k", ms=4)
    right.set(title="Paths from new starts, for twice the time of the data")
    right.legend(loc="upper right")
    for ax in (left, right):
        ax.set_aspect("equal")
    figure.savefig(to, dpi=100)
    print(f"picture: {to}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--paths", type=int, default=24)
    parser.add_argument("--device")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-spiral.png")
    )
    given = parser.parse_args()

    rng = np.random.default_rng(0)
    starts = rng.uniform(-1.6, 1.6, (given.paths, 2))
    seen = paths(starts, TIMES)
    seen[:, 1:] += NOISE * rng.normal(size=seen[:, 1:].shape)

    kernel = sg.fused_forward_backward(
        SHAPES, misfit, row=2 * (TIMES + 1), reduce="mean", device=given.device
    )
    loss = kernel.bind(seen.reshape(given.paths, -1)).as_scipy()
    weights, gradients = 0.5 * rng.normal(size=kernel.n_inputs), 0
    for _ in range(ROUNDS):  # a new round forgets what it took for curvature
        fit = scipy.optimize.minimize(loss, weights, jac=True, method="L-BFGS-B",
                                      bounds=[(-LARGEST, LARGEST)] * kernel.n_inputs,
                                      options={"maxiter": 100})  # fmt: skip
        weights, gradients = fit.x, gradients + fit.nfev
    rms = loss(weights)[0] ** 0.5
    steps = given.paths * TIMES * STEPS
    print(f"{kernel.n_inputs} weights, {steps:,} steps of Runge and Kutta's method a gradient, "
          f"{len(kernel.wgsl.splitlines())} lines of source")  # fmt: skip
    print(f"after {gradients} gradients: rms misfit {rms:.4f}, noise {NOISE}")

    known = kernel.tree.build(weights)
    new = rng.uniform(0.8, 1.5, (3, 2)) * [[1, 1], [-1, 1], [1, -1]]
    truth = paths(new, 2 * TIMES)
    follow = sg.fused_forward(
        SHAPES | {"y": (2,)},
        lambda v: path(lambda y: network(v, y), v["y"], 2 * TIMES), device=given.device,
    )  # fmt: skip
    ways = np.asarray(follow.run(known | {"y": new}))
    found = np.concatenate([new[:, None], ways.swapaxes(1, 2)], axis=1)
    off = np.linalg.norm(found - truth, axis=-1).max()
    print(f"from new starts, for twice the time: at most {off:.2f} off")
    draw(known, truth, found, seen, given.output)

    assert rms < 1.5 * NOISE, "the network has not learned the paths"
    assert off < 0.5, "it does not know how the system moves"


if __name__ == "__main__":
    main()
