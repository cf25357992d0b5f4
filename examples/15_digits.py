"""A network of two layers that learns to read scikit-learn's digits, with all arrays on the device.

The loss is a function that calls kernels: a layer with its activation, another one, and the
cross-entropy of each row. Its gradients are derived. Images go up once an epoch, in a new order,
and batches are slices of them there; parameters, gradients and the optimiser's state never leave
the device but to be saved. With ``--checkpoint`` they are after every epoch, and a run goes on
where the file's ended, to the same bits as if it had never stopped.

    pip install 'symgrad[learn]'
    python examples/15_digits.py [--device cpu] [--hidden 64] [--output digits.png]
    python examples/15_digits.py --checkpoint digits.safetensors --epochs 10
    python examples/15_digits.py --checkpoint digits.safetensors --epochs 20
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

SEED = 0


@dataclass
class Examples:
    """Images (n, 64) of numbers from 0 to 1, and which digits they are."""

    images: np.ndarray
    digits: np.ndarray

    def part(self, which: np.ndarray) -> Examples:
        return Examples(self.images[which], self.digits[which])


def load() -> tuple[Examples, Examples]:
    """What is learned from, and every fifth image, which tests it."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit("the digits are scikit-learn's: pip install 'symgrad[learn]'") from None
    data: Any = load_digits()
    whole, test = Examples(data.data / 16.0, data.target), np.arange(len(data.target)) % 5 == 0
    return whole.part(~test), whole.part(test)


class Network:
    """The kernels, and what they make of parameters."""

    def __init__(self, device: Any, rate: float) -> None:
        self.hidden = sg.linear(sg.gelu, device=device)
        self.out = sg.linear(device=device)
        self.entropy = sg.rowwise(
            lambda z, is_it: -(is_it * sg.log_softmax(z)).sum(), device=device
        )
        self.loss = sg.network(lambda p, x, is_it: self.entropy(self.scores(p, x), is_it).mean())
        self.update = sg.adamw_update(
            lambda step: rate / (1.0 + step / 300.0), max_norm=1.0, device=device
        )
        self.device = self.hidden.device

    def scores(self, p: Any, x: Any) -> Any:
        """Of each image, a number for each digit."""
        return self.out(self.hidden(x, p["W1"], p["b1"]), p["W2"], p["b2"])

    def start(self, hidden: int) -> dict[str, Any]:
        """Weights of a variance that keeps the signal's, biases of 0, and no step done."""
        rng = np.random.default_rng(SEED)
        weights = {
            "W1": rng.normal(size=(hidden, 64)) * (2 / 64) ** 0.5, "b1": np.zeros(hidden),
            "W2": rng.normal(size=(10, hidden)) * (1 / hidden) ** 0.5, "b2": np.zeros(10),
        }  # fmt: skip
        p = sg.device_put(weights, self.device)
        return {"p": p, "state": self.update.start(p), "epoch": 0}

    def epoch(self, at: dict[str, Any], data: Examples, batch: int) -> np.ndarray:
        """Go once through the data, in batches; the losses."""
        order = np.random.default_rng([SEED, at["epoch"]]).permutation(len(data.images))
        shuffled = data.part(order)
        x, is_it = sg.device_put((shuffled.images, np.eye(10)[shuffled.digits]), self.device)
        losses = []
        for start in range(0, len(order) - batch + 1, batch):
            part = slice(start, start + batch)
            loss, (slopes, _, _) = self.loss.vjp(at["p"], x[part], is_it[part], 1.0)
            at["p"], at["state"] = self.update.run(at["p"], slopes, at["state"])
            losses.append(loss)
        at["epoch"] += 1
        return np.asarray(np.stack(losses))

    def read(self, p: Any, images: np.ndarray) -> np.ndarray:
        """Which digits these are."""
        return np.asarray(self.scores(p, sg.device_put(images, self.device))).argmax(axis=1)


def train(net: Network, given: argparse.Namespace, path: Path) -> tuple[Any, np.ndarray, Examples]:
    """The parameters, the losses of this run, and the images for tests."""
    data, test = load()
    about, at, losses = f"digits, {given.hidden} hidden", net.start(given.hidden), []
    if path.exists():
        at = sg.load_arrays(path, at, about)
        print(f"{path}: goes on behind epoch {at['epoch']}")
    while at["epoch"] < given.epochs:
        begin = time.perf_counter()
        losses.append(net.epoch(at, data, given.batch))
        sg.save_arrays(path, at, about)
        right = (net.read(at["p"], test.images) == test.digits).mean()
        print(
            f"epoch {at['epoch']:3} of {given.epochs}: loss {losses[-1].mean():.4f}, "
            f"{right:.1%} of test images right, {time.perf_counter() - begin:.2f} s",
            flush=True,
        )
    saved = sg.load_arrays(path, at, about)["p"]
    assert (net.read(saved, test.images) == net.read(at["p"], test.images)).all()
    return saved, np.concatenate([*losses, []]), test


def draw(losses: np.ndarray, wrong: Examples, found: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    columns = figure.add_gridspec(1, 2, width_ratios=(3, 2))
    ax, right = figure.add_subfigure(columns[0]).subplots(), figure.add_subfigure(columns[1])
    ax.semilogy(losses, color="#2e6f95", lw=0.7)
    ax.set(xlabel="step of AdamW", ylabel="cross-entropy of a batch")
    right.suptitle("read wrongly")
    for ax, n in zip(right.subplots(2, 4).flat, range(8), strict=True):
        ax.axis("off")
        if n < len(found):
            ax.imshow(wrong.images[n].reshape(8, 8), cmap="gray_r")
            ax.set_title(f"{wrong.digits[n]} as {found[n]}", fontsize=9)
    figure.savefig(output, dpi=110)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-digits.png")
    )
    given = parser.parse_args()
    net = Network(given.device, given.rate)
    print(f"{net.loss} on {net.device}")
    with tempfile.TemporaryDirectory() as folder:
        path = given.checkpoint or Path(folder, "digits.safetensors")
        p, losses, test = train(net, given, path)
    found = net.read(p, test.images)
    wrong = found != test.digits
    draw(losses, test.part(wrong), found[wrong], given.output)
    assert wrong.mean() < 0.06 or given.epochs < 10, "the network has not learned to read"


if __name__ == "__main__":
    main()
