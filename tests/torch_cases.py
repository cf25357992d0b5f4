"""Cases of kernels of arrays of which PyTorch knows the gradients: inputs, and what is compared.

``tools/torch_gradients.py`` computes the results and the gradients of all of them by PyTorch in
float64, and writes what is compared to ``tests/data/torch_gradients.npz``: of every array its
largest number, and samples all over it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Shape = tuple[int, ...]

PATH = Path(__file__).parent / "data" / "torch_gradients.npz"
SAMPLES = 61
"""Numbers of an array that are compared, at most."""

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "own")
STEPS = 3
"""Steps of AdamW."""


@dataclass(frozen=True)
class Case:
    """A kernel of a kind, its options, and the shapes of what it takes."""

    kind: str
    options: tuple[object, ...]
    shapes: tuple[Shape, ...]

    @property
    def name(self) -> str:
        """What it is called."""
        known = [*map(str, self.options), *("x".join(map(str, s)) or "1" for s in self.shapes[:3])]
        return " ".join([self.kind, *known])

    def arrays(self) -> list[np.ndarray]:
        """Numbers that float32 has exactly, in float64, all of which the kernel is smooth at."""
        rng = np.random.default_rng(13)
        ranges = dict(RANGES.get(self.kind, ()))
        found = []
        for n, shape in enumerate(self.shapes):
            low, high = ranges.get(n, ranges.get("all", (-1.0, 1.0)))
            found.append(_drawn(rng, shape, low, high))
        if self.kind in ("gemm_bias", "linear"):
            found[0] *= 2.0 ** -(self.shapes[0][-1].bit_length() // 2)
        if self.kind == "selective_scan" and self.options[1]:
            found[1] = 6.0 * found[1] - 2.0  # a softplus is made of it
        return [a.astype(np.float32).astype(np.float64) for a in found]

    def cotangents(self, shapes: Sequence[Shape]) -> list[np.ndarray]:
        """One for each result."""
        rng = np.random.default_rng(14)
        return [_drawn(rng, shape, -1.0, 1.0).astype(np.float32) * 1.0 for shape in shapes]


def _drawn(rng: np.random.Generator, shape: Shape, low: float, high: float) -> np.ndarray:
    return low + (high - low) * rng.random(shape)


RANGES = {
    "selective_scan": {1: (0.01, 0.5), 2: (-2.0, -0.01)},
    "associative_scan": {"all": (0.5, 1.1)},
}
"""Where the arrays' numbers are, by their place, if it is not between -1 and 1."""


def _products() -> Iterator[Case]:
    shapes: list[tuple[Shape, Shape]] = [
        ((1, 1), (1, 1)), ((33, 129), (129, 7)), ((5, 4), (6, 4, 9)),
        ((3, 1, 8, 8), (4, 8, 9)), ((64, 2049), (2049, 5)), ((0, 4), (4, 3)),
    ]  # fmt: skip
    for a, b in shapes:
        yield Case("gemm_bias", ("gelu",), (a, b, b[-1:]))
    for f in ACTIVATIONS:
        yield Case("linear", (f,), ((2, 9, 33), (7, 33), (7,)))
    yield Case("linear", ("silu",), ((0, 3), (2, 3), (2,)))


def _rows() -> Iterator[Case]:
    for shape in ((5, 3), (3, 33), (2, 3, 300), (70, 4), (0, 4)):
        n = shape[-1:]
        kinds: dict[str, tuple[Shape, ...]] = {
            "softmax": (shape,), "log_softmax": (shape,), "layer_norm": (shape, n, n),
            "rms_norm": (shape, n), "residual": (shape, shape, n), "cross_entropy": (shape, shape),
        }  # fmt: skip
        yield from (Case("rowwise", (f,), shapes) for f, shapes in kinds.items())
    yield Case("rowwise", ("softmax",), ((5, 1),))
    yield Case("rowwise", ("cross_entropy",), ((5, 1), (5, 1)))


def _selective() -> Iterator[Case]:
    """Batch, length, channels and states; the kind of step, softplus, and whether states go in."""
    cases = [
        ((2, 1, 33, 16), ("zoh", False, True)), ((1, 7, 1, 64), ("zoh", False, True)),
        ((2, 7, 33, 1), ("zoh", False, True)), ((1, 2049, 33, 16), ("zoh", False, True)),
        ((1, 2049, 1, 64), ("zoh", False, True)), ((1, 2049, 1, 1), ("zoh", False, True)),
        ((1, 7, 33, 64), ("zoh", False, True)), ((1, 1, 1, 1), ("zoh", False, True)),
        ((0, 7, 33, 16), ("zoh", False, True)), ((2, 7, 33, 16), ("zoh", True, False)),
        ((2, 7, 33, 16), ("euler", True, False)), ((2, 7, 33, 16), ("euler", False, False)),
    ]  # fmt: skip
    for (batch, length, channels, states), options in cases:
        row, cell = (batch, length, channels), (batch, length, states)
        more = ((batch, channels, states),) if options[2] else ()
        shapes = (row, row, (channels, states), cell, cell, (channels,), *more)
        yield Case("selective_scan", options, shapes)


def _associative() -> Iterator[Case]:
    """The operation, the axis, and whether it is reversed."""
    rows: list[Shape] = [(3, 1), (3, 7), (2, 2049)]
    for f in ("add", "multiply", "maximum", "logaddexp"):
        yield from (Case("associative_scan", (f, -1, False), (shape,)) for shape in rows)
    yield Case("associative_scan", ("logaddexp", -2, True), ((2, 41, 3),))
    yield from (Case("associative_scan", ("affine", -1, False), (shape,) * 2) for shape in rows)
    yield Case("associative_scan", ("affine", -2, True), ((2, 41, 33),) * 2)
    yield Case("associative_scan", ("add", -1, False), ((0, 7),))


def _convolutions() -> Iterator[Case]:
    """The activation; batch, length and channels, and taps."""
    for u, taps in (
        ((2, 7, 33), 4), ((1, 1, 1), 4), ((3, 2049, 5), 4), ((2, 70, 9), 1), ((2, 3, 4), 7),
        ((0, 7, 3), 4),
    ):  # fmt: skip
        yield Case("causal_convolution", ("silu",), (u, (u[2], taps), u[2:]))
    yield Case("causal_convolution", ("none",), ((2, 65, 3), (3, 2), (3,)))


GRADIENTS = [*_convolutions(), *_products(), *_rows(), *_selective(), *_associative()]
"""The cases with gradients."""

PARAMS: tuple[Shape, ...] = ((33, 7), (1,), (2049,))
UPDATES = [
    Case("adamw_update", (None,), PARAMS * (1 + STEPS)),
    Case("adamw_update", (0.5,), PARAMS * (1 + STEPS)),
    Case("clip_by_global_norm", (0.5,), PARAMS),
    Case("clip_by_global_norm", (1e6,), PARAMS),
]
"""Updates: parameters, and behind them gradients of each step; the largest norm is an option."""


def compared(array: np.ndarray) -> np.ndarray:
    """The largest number of an array, and samples of it."""
    flat = np.asarray(array, np.float64).ravel()
    at = np.linspace(0, flat.size - 1, min(flat.size, SAMPLES)).astype(int)
    return np.array([np.abs(flat).max(initial=0.0), *flat[at]])


def checksum(arrays: Sequence[np.ndarray]) -> float:
    """What tells that inputs are those that results are known of."""
    return float(sum(np.sum(a * np.cos(np.arange(a.size).reshape(a.shape))) for a in arrays))


def expected() -> dict[str, list[np.ndarray]]:
    """What is known, by the names of cases: ``checksum`` first, and then all arrays."""
    found: dict[str, list[np.ndarray]] = {}
    with np.load(PATH) as file:
        values, sizes, names = file["values"], file["sizes"], file["names"]
    parts = np.split(values, list(itertools.accumulate(sizes))[:-1])
    for name, part in zip(names, parts, strict=True):
        found.setdefault(str(name), []).append(part)
    return found
