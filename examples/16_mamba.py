"""A small Mamba block that learns to remember: which symbol stood behind the last mark?

Sequences are random symbols with a mark now and then. At each step the symbol behind the last mark
is to be told, so the model has to notice a symbol by its neighbour, to keep it for as long as no
other mark comes, and to forget it then: a causal convolution, and a selective scan (Gu and Dao,
2023, "Mamba: linear-time sequence modeling with selective state spaces"). Each line of the block is
a call of a kernel; the gradients are derived, and all arrays stay on the device from one step to
the next. With ``--checkpoint`` a run goes on where the file ended, to the same bits as if it had
never stopped. The picture shows the losses, and how often a symbol is told by how long ago it was.

    pip install 'symgrad[learn]'
    python examples/16_mamba.py [--device cpu] [--length 64] [--output mamba.png]
    python examples/16_mamba.py --length 512 --width 64 --batch 64 --steps 2000  # for a real GPU
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

SYMBOLS = 8
MARK = SYMBOLS
TAPS = 4
MEAN = 12
"""Steps between marks, about."""

SEED = 0


def rms_norm(x, weight):
    return weight * x / np.sqrt(np.mean(x * x) + 1e-6)


def task(rng: np.random.Generator, batch: int, length: int) -> tuple[np.ndarray, ...]:
    """Sequences (batch, length) of symbols and marks, what is to be told, and the steps since.

    The first of each is a mark, and no two marks are neighbours.
    """
    marks = rng.random((batch, length)) < 1 / MEAN
    marks[:, 1:] &= ~marks[:, :-1]
    marks[:, 0], marks[:, 1] = True, False
    tokens = np.where(marks, MARK, rng.integers(0, SYMBOLS, (batch, length)))
    steps = np.arange(length)
    since = steps - np.maximum.accumulate(np.where(np.roll(marks, 1, 1) & (steps > 0), steps, 0), 1)
    told = np.take_along_axis(tokens, steps - since, axis=1)
    told[:, 0] = 0
    return tokens, told, since


class Mamba:
    """The kernels of the model, and what they make of parameters."""

    def __init__(self, device: Any, rate: float) -> None:
        self.map = sg.linear(bias=False, device=device)
        self.shifted = sg.linear(device=device)
        self.norm = sg.rowwise(rms_norm, device=device)
        self.convolution = sg.causal_convolution(sg.silu, device=device)
        self.scan = sg.selective_scan(delta_softplus=True, device=device)
        self.gate = sg.rowwise(lambda y, z: y * sg.silu(z), device=device, name="gate")
        self.entropy = sg.rowwise(
            lambda z, is_it: -(is_it * sg.log_softmax(z)).sum(), device=device
        )
        self.loss = sg.network(lambda p, x, is_it: self.entropy(self.scores(p, x), is_it).mean())
        self.update = sg.adamw_update(
            lambda step: rate * np.minimum(1.0, (step + 1.0) / 20.0), max_norm=1.0, device=device
        )
        self.device = self.map.device

    def block(self, p: Any, x: Any) -> Any:
        n = self.norm(x, p["norm"])
        u = self.convolution(self.map(n, p["in"]), p["taps"], p["bias"])
        delta = self.shifted(self.map(u, p["narrow"]), p["wide"], p["delta"])
        B, C = self.map(u, p["B"]), self.map(u, p["C"])
        y = self.scan(u, delta, -np.exp(p["log A"]), B, C, p["D"])
        return x + self.map(self.gate(y, self.map(n, p["gate"])), p["out"])

    def scores(self, p: Any, x: Any) -> Any:
        """At each step, a number for each symbol; x are tokens as rows with a 1 each."""
        found = self.block(p["block"], self.map(x, p["embed"]))
        return self.map(self.norm(found, p["norm"]), p["head"])

    def start(self, width: int, states: int) -> dict[str, Any]:
        """Parameters as in Mamba, with steps from 0.001 to 0.1, and no step of AdamW done."""
        rng, inner, narrow = np.random.default_rng(SEED), 2 * width, max(width // 16, 1)

        def weights(out: int, into: int) -> np.ndarray:
            return rng.uniform(-1.0, 1.0, (out, into)) * into**-0.5

        steps = np.exp(rng.uniform(np.log(0.001), np.log(0.1), inner))
        block = {
            "norm": np.ones(width), "in": weights(inner, width), "gate": weights(inner, width),
            "taps": weights(inner, TAPS), "bias": np.zeros(inner),
            "narrow": weights(narrow, inner), "wide": weights(inner, narrow),
            "delta": np.log(np.expm1(steps)), "B": weights(states, inner),
            "C": weights(states, inner), "D": np.ones(inner), "out": weights(width, inner),
            "log A": np.log(np.tile(np.arange(1.0, states + 1.0), (inner, 1))),
        }  # fmt: skip
        whole = {
            "embed": rng.normal(size=(width, SYMBOLS + 1)), "block": block,
            "norm": np.ones(width), "head": weights(SYMBOLS, width),
        }  # fmt: skip
        p = sg.device_put(whole, self.device)
        return {"p": p, "state": self.update.start(p), "step": 0}

    def step(self, at: dict[str, Any], batch: int, length: int) -> Any:
        """A step of AdamW with sequences of its own; the loss."""
        rng = np.random.default_rng([SEED, at["step"]])
        tokens, told, _ = task(rng, batch, length)
        given = np.eye(SYMBOLS + 1)[tokens], np.eye(SYMBOLS)[told]
        loss, (slopes, _, _) = self.loss.vjp(at["p"], *sg.device_put(given, self.device), 1.0)
        at["p"], at["state"] = self.update.run(at["p"], slopes, at["state"])
        at["step"] += 1
        return loss

    def recalled(self, p: Any, tokens: np.ndarray, told: np.ndarray) -> np.ndarray:
        """Whether the symbols are told, at each step behind the first mark."""
        scores = self.scores(p, sg.device_put(np.eye(SYMBOLS + 1)[tokens], self.device))
        return (np.asarray(scores).argmax(axis=-1) == told)[:, 1:]


def train(model: Mamba, given: argparse.Namespace, path: Path) -> tuple[Any, np.ndarray]:
    """The parameters in the end, and the losses of this run."""
    about = f"mamba, width {given.width}, {given.states} states"
    at, losses, begin = model.start(given.width, given.states), [], time.perf_counter()
    if path.exists():
        at = sg.load_arrays(path, at, about)
        print(f"{path}: goes on behind step {at['step']}")
    test = task(np.random.default_rng([SEED]), 4 * given.batch, given.length)
    while at["step"] < given.steps:
        losses.append(model.step(at, given.batch, given.length))
        if at["step"] % given.every == 0 or at["step"] == given.steps:
            sg.save_arrays(path, at, about)
            recent = np.mean([float(loss) for loss in losses[-given.every :]])
            print(
                f"step {at['step']:4} of {given.steps}: loss {recent:.4f}, "
                f"{model.recalled(at['p'], *test[:2]).mean():.1%} recalled, "
                f"{time.perf_counter() - begin:.1f} s",
                flush=True,
            )
    return sg.load_arrays(path, at, about)["p"], np.array([float(loss) for loss in losses])


def draw(losses: np.ndarray, ago: np.ndarray, recalled: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.semilogy(losses, color="#2e6f95", lw=0.8)
    left.axhline(np.log(SYMBOLS), color="#d1495b", ls="--", lw=0.8, label="a guess")
    left.set(xlabel="step of AdamW", ylabel="cross-entropy")
    left.legend()
    edges = np.linspace(0, ago.max() + 1, 9)
    which = np.digitize(ago, edges) - 1
    shares = [recalled[which == k].mean() if (which == k).any() else 0.0 for k in range(8)]
    right.bar(edges[:-1], shares, np.diff(edges), align="edge", color="#66a182", ec="white")
    right.axhline(1 / SYMBOLS, color="#d1495b", ls="--", lw=0.8, label="a guess")
    right.set(xlabel="steps since the symbol", ylabel="recalled", ylim=(0, 1.02))
    right.legend(loc="lower left")
    figure.savefig(output, dpi=110)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    for name, value in {
        "length": 64, "width": 32, "states": 8, "batch": 32, "steps": 100, "every": 25,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-mamba.png")
    )
    given = parser.parse_args()
    model = Mamba(given.device, given.rate)
    print(f"{model.scan}")
    with tempfile.TemporaryDirectory() as folder:
        path = given.checkpoint or Path(folder, "mamba.safetensors")
        p, losses = train(model, given, path)
    tokens, told, since = task(np.random.default_rng([SEED, 1, 1]), 200, given.length)
    recalled = model.recalled(p, tokens, told)
    draw(losses, since[:, 1:].ravel(), recalled.ravel(), given.output)
    print(f"{recalled.mean():.1%} of {recalled.size:,} symbols recalled")
    assert recalled.mean() > 0.7 or given.steps < 100, "the model has not learned to recall"


if __name__ == "__main__":
    main()
