"""A small network trained on rows that are read from a memory-mapped file, block by block.

The loss of one row is a Python function of 337 parameters, named and shaped; the kernel sums it,
and its gradient, over as many rows as there are. Adam's step is six lines of NumPy, on batches of
rows; the loss over the whole file is one call.

    python examples/09_network_from_disk.py [--device cpu] [--rows 400000] [--output network.png]

A GPU driver that computes on the CPU gets fewer rows, in smaller batches, unless told otherwise.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

SHAPES = {"w1": (16, 2), "b1": (16,), "w2": (16, 16), "b2": (16,), "w3": (16,), "b3": (1,)}
NOISE = 0.1


def network(p, x):
    hidden = np.tanh(p["w1"] @ x + p["b1"])
    hidden = np.tanh(p["w2"] @ hidden + p["b2"])
    return p["w3"] @ hidden + p["b3"][0]


def squared_error(p, row):
    return (network(p, row[:2]) - row[2]) ** 2


def target(x, y):
    """What is to be learned."""
    return np.sin(3 * x) * np.cos(2 * y) + 0.5 * x * y


def write(path: Path, count: int, rng: np.random.Generator) -> None:
    """Rows x, y and the target with noise, as a .npy file that never is in memory as a whole."""
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (count, 3))
    for start in range(0, count, 2**16):
        x, y = rng.uniform(-1.5, 1.5, (2, min(2**16, count - start)))
        measured = target(x, y) + NOISE * rng.normal(size=x.shape)
        rows[start : start + len(x)] = np.column_stack([x, y, measured])
    rows.flush()


def batches(
    rows: np.ndarray, size: int, epochs: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Blocks of neighbouring rows, each once in an epoch, in a new order each time."""
    for _ in range(epochs):
        for start in rng.permutation(np.arange(0, len(rows), size)):
            yield rows[start : start + size]


def initial(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights of a variance that keeps that of the signal, and biases of 0."""
    return {
        name: rng.normal(size=shape) / shape[-1] ** 0.5 if name[0] == "w" else np.zeros(shape)
        for name, shape in SHAPES.items()
    }


def adam(p, grads, mean, square, step, steps, b1=0.9, b2=0.99):
    """A step of Adam, in place; its length falls from 0.05 to nearly 0."""
    rate = 0.05 * (1 - step / (steps + 1))
    for name, g in grads.items():
        mean[name] = b1 * mean[name] + (1 - b1) * g
        square[name] = b2 * square[name] + (1 - b2) * g * g
        size = np.sqrt(square[name] / (1 - b2**step)) + 1e-8
        p[name] = p[name] - rate * mean[name] / (1 - b1**step) / size


def train(
    kernel: sg.DataKernel, rows: np.ndarray, batch: int, epochs: int
) -> tuple[dict, list[float]]:
    """The parameters in the end, and the loss of every batch."""
    rng = np.random.default_rng(1)
    p = initial(rng)
    mean, square = ({name: np.zeros(shape) for name, shape in SHAPES.items()} for _ in range(2))
    losses: list[float] = []
    steps = epochs * -(-len(rows) // batch)
    for step, block in enumerate(batches(rows, batch, epochs, rng), 1):
        loss, grads = kernel.run(p, block)
        adam(p, grads, mean, square, step, steps)
        losses.append(loss)
    return p, losses


def draw(p: dict, losses: list[float], device: Any, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    axis = np.linspace(-1.5, 1.5, 200)
    points = np.stack(np.meshgrid(axis, axis), axis=-1)
    learned = sg.fused_forward(2, lambda x: network(p, x), device=device).run(points)
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes = figure.subplots(1, 3)
    pictures = {"learned": learned, "the function": target(*np.moveaxis(points, -1, 0))}
    for ax, (title, values) in zip(axes, pictures.items(), strict=False):
        ax.contourf(
            axis, axis, values, levels=np.linspace(-1.8, 1.8, 25), cmap="RdBu_r", extend="both"
        )
        ax.set(aspect="equal", title=title)
    axes[2].semilogy(losses, color="#2e6f95", lw=0.8, label="batches")
    axes[2].axhline(NOISE**2, color="#d1495b", ls="--", label="variance of the noise")
    axes[2].set(xlabel="steps of Adam", title="mean squared error")
    axes[2].legend()
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-network.png")
    )
    given = parser.parse_args()

    kernel = sg.fused_forward_backward(
        SHAPES, squared_error, row=3, reduce="mean", device=given.device
    )
    sizes = (60_000, 500, 5) if kernel.device.kind == "software" else (400_000, 4000, 20)
    asked = given.rows, given.batch, given.epochs
    count, batch, epochs = (a or size for a, size in zip(asked, sizes, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.npy")
        write(path, count, np.random.default_rng(0))
        rows = np.load(path, mmap_mode="r")
        begin = time.perf_counter()
        p, losses = train(kernel, rows, batch, epochs)
        seconds = time.perf_counter() - begin
        loss, _ = kernel.run(p, rows)
        del rows  # a file that is mapped cannot be removed everywhere
    print(f"{kernel}")
    print(f"{len(losses)} steps of {batch:,} rows in {seconds:.2f} s")
    print(f"mean squared error over {count:,} rows: {loss:.5f}, of which noise {NOISE**2:.5f}")
    draw(p, losses, given.device, given.output)
    assert loss < 1.4 * NOISE**2, "the network has not learned the function"


if __name__ == "__main__":
    main()
