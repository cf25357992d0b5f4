"""Every float32 through every function of one argument: the worst errors of value and derivative.

All 2**32 bit patterns, in blocks, are run by a kernel that gives a function and its derivative, and
are compared with NumPy's functions in double precision.
Errors are in ULP of the true result where that is above 2**-120. ``wrong`` counts the results that
are NaN where they must not be or not NaN where they must be, or off by more than 2**-16; below
2**-120 and for subnormal arguments, 0 and the result at 0 are allowed too, as some devices flush
subnormals. The first wrong argument is shown.

    python benchmarks/exhaustive.py [exp sin ..] [--every 4099] [--device 0 | cpu | interpreter]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from measure import report

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.evaluate import evaluate_graph
from symgrad.expr.expression import Expr
from symgrad.expr.node import Graph
from symgrad.expr.simplify import simplify
from symgrad.mathlib.define import primitive

NAMES: Final = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "softplus",
    "silu", "gelu", "cbrt", "sqrt", "rsqrt", "reciprocal",
)  # fmt: skip
SUMS: Final = {"silu": 0.2, "gelu": 0.2}
"""Where a derivative is a sum of two terms that cancel, their size: the unit of errors below it."""
BLOCK: Final = 1 << 22
TINY: Final = float(np.finfo(np.float32).tiny)
Pair = tuple[np.ndarray, np.ndarray]


@dataclass
class Worst:
    """The largest error so far, where it was, and what is wrong altogether."""

    unit: float = 0.0
    ulps: float = 0.0
    at: float = 0.0
    wrong: int = 0
    first: float | None = None

    def add(self, x: np.ndarray, got: np.ndarray, want: np.ndarray, at_zero: np.ndarray) -> None:
        """Take a block into account."""
        errors, wrong = compare(x, got, want, at_zero, self.unit)
        k = int(np.argmax(errors))
        if errors[k] > self.ulps:
            self.ulps, self.at = float(errors[k]), float(x[k])
        if wrong.any():
            self.wrong += int(wrong.sum())
            self.first = float(x[np.argmax(wrong)]) if self.first is None else self.first


def compare(
    x: np.ndarray, got: np.ndarray, want: np.ndarray, at_zero: np.ndarray, unit: float
) -> Pair:
    """The errors in ULP where the true results are large enough, and where results are wrong.

    ``at_zero`` has the true results at 0 and -0.0; results below ``unit`` count as it.
    """
    with np.errstate(all="ignore"):
        nearest = np.abs(want.astype(np.float32))
        error = np.abs(got - want)
        ulps = error / np.spacing(np.maximum(nearest, np.float32(max(unit, TINY))))
        large = (nearest > 2.0**-120) & np.isfinite(nearest)
        right = (
            (error <= 2.0**-16 * np.maximum(np.abs(want), unit))
            | (got == want)
            | (got == want.astype(got.dtype))
        )
        right |= (np.isnan(got) & np.isnan(want)) | ((got == 0.0) & (nearest <= 2.0**-120))
        right |= (nearest < TINY) & (error <= TINY * 2.0**-16)
        flushed = (np.abs(x) < TINY) & (got == np.where(np.signbit(x), at_zero[1], at_zero[0]))
    wrong = ~(right | flushed)
    return np.where(large & np.isfinite(got) & ~flushed, ulps, 0.0), wrong


def blocks(every: int) -> Iterator[np.ndarray]:
    """All float32, or every so many of their bit patterns."""
    step = BLOCK * every
    for start in range(0, 1 << 32, step):
        words = np.arange(start, min(start + step, 1 << 32), every, dtype=np.uint64)
        yield words.astype(np.uint32).view(np.float32)


def on_device(name: str, device: Any, math: str) -> Callable[[np.ndarray], Pair]:
    """A kernel's value and derivative."""
    device = device if device == "cpu" else int(device)
    kernel = sg.fused_forward_backward(1, lambda v: ops.TABLE[name](v[0]), device=device, math=math)

    def run(x: np.ndarray) -> Pair:
        value, slope = kernel.run(x[:, None])
        return np.ravel(value), np.ravel(slope)

    return run


def interpreted(name: str, dtype: Any, math: str = "accurate") -> Callable[[np.ndarray], Pair]:
    """The same by NumPy: for float32 the library's definitions, for float64 NumPy's functions."""
    graph = Graph()
    graph.tracing = False
    x = Expr(graph, graph.input("x"))
    y = ops.TABLE[name](x)
    roots = [y.id, sg.grad(y, x).id]
    if dtype is np.float32:
        graph, roots = simplify(graph, roots, True, primitive(math))

    def run(points: np.ndarray) -> Pair:
        value, slope = evaluate_graph(graph, roots, {x.id: points.astype(dtype)}, dtype)
        return value, slope

    return run


def survey(name: str, device: str, every: int, math: str) -> dict[str, Any]:
    """The worst of one function on one device."""
    double = interpreted(name, np.float64)
    single = (
        interpreted(name, np.float32, math)
        if device == "interpreter"
        else on_device(name, device, math)
    )
    worst = Worst(), Worst(SUMS.get(name, 0.0))
    zeros = double(np.array([0.0, -0.0], np.float32))
    for x in blocks(every):
        for one, got, want, zero in zip(worst, single(x), double(x), zeros, strict=True):
            one.add(x, got, want, zero)
    row: dict[str, Any] = {"function": name}
    for label, one in zip(("value", "derivative"), worst, strict=True):
        row |= {
            f"{label} ULP": round(one.ulps, 3), f"{label} at": repr(one.at),
            f"{label} wrong": one.wrong, f"first {label} wrong": repr(one.first),
        }  # fmt: skip
    return row


def main() -> None:
    """Print the table, and keep it unless only a sample was tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--device", default="0")
    parser.add_argument("--math", default="accurate")
    given = parser.parse_args()
    rows = []
    for name in given.names:
        rows.append(survey(name, given.device, given.every, given.math))
        print(rows[-1], flush=True)
    title = f"exhaustive_{given.device}_{given.math}"
    report(title, rows, [], keep=given.every == 1, device=given.device, every=given.every)


if __name__ == "__main__":
    main()
