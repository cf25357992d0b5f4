"""Every float32 through every function of one argument, and 10**9 pairs through those of two.

A kernel gives a function and its derivatives; the library's own compiled functions in double
precision are the reference, themselves compared with NumPy's on a sample. What counts as an error
and as wrong, `deviation` says; the worst and the first wrong arguments are shown, to become tests.
Results are written as the run goes, so that nothing is lost when it ends early; each block is an
even sample of all, so that a part of them says something about the rest.

    python benchmarks/exhaustive.py [exp sin ..] [--every 4099] [--device 0 | cpu | interpreter]
    python benchmarks/exhaustive.py --pairs [1000000000] [pow atan2 ..] [--seconds 60]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
from deviation import EXTREME, Array, Unit, Worst, none, right, ulps
from measure import report, save
from pairs import pairs

import symgrad as sg
from symgrad.expr import ops, references
from symgrad.expr.graph.node import Graph
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.define import Math, primitive
from symgrad.pipeline import DTypeName

ONE: Final = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "normal_cdf",
    "sigmoid", "softplus", "silu", "gelu", "gelu_tanh", "cbrt", "sqrt", "rsqrt", "reciprocal",
    "exp_neg_square", "bell", "logistic", "abs", "sign", "relu", "floor", "ceil", "round", "trunc",
    "fract",
)  # fmt: skip
TWO: Final = (
    "pow", "atan2", "hypot", "logaddexp", "remainder", "fmod", "floor_divide", "div", "add", "sub",
    "mul", "minimum", "maximum", "copysign",
)  # fmt: skip
BLOCK: Final = 1 << 20
Outcome = list[Array]
Run = Callable[[Array], Outcome]
"""Arguments (B, n) -> the values, and the derivatives by each argument."""


def constant(size: float) -> Unit:
    """The size of two terms that cancel, where it is a constant."""
    return lambda points: np.full(len(points), size)


def falling(share: Callable[[Array], Array]) -> Unit:
    """The smaller of two terms of a derivative that has a root, as both fall off on the left."""
    return lambda points: np.minimum(0.2, share(np.minimum(points[:, 0].astype(np.float64), 0.0)))


def gelu_tanh_share(x: Array) -> Array:
    """The sigmoid that x is multiplied with."""
    a, b = references.GELU_TANH
    return references.sigmoid(a * (x + b * x**3))


def of_logaddexp(points: Array) -> Array:
    """The larger of a negative larger argument and the logarithm that is added to it."""
    wide = points.astype(np.float64)
    most, apart = np.max(wide, axis=1), np.abs(wide[:, 0] - wide[:, 1])
    return np.where(most < 0.0, np.maximum(-most, np.log1p(np.exp(-apart))), 0.0)


UNITS: Final[dict[tuple[str, int], Unit]] = {
    ("silu", 1): falling(references.sigmoid), ("gelu", 1): falling(references.normal_cdf),
    ("gelu_tanh", 1): falling(gelu_tanh_share), ("logistic", 1): constant(0.05),
    ("logaddexp", 0): of_logaddexp,
}  # fmt: skip
"""Where a result is a sum of two terms that cancel, their size: the unit of errors below it."""


def far(truth: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Whether results are NaN or true where a quotient has more than 45 bits."""

    def excused(points: Array, got: Array) -> Array:
        a, b = points.astype(np.float64).T
        wanted = truth(a, b)
        near = np.abs(got - wanted) <= EXTREME * np.abs(wanted)
        return ~(np.abs(a / b) < 2.0**45) & (np.isnan(got) | near)

    return excused


EXCUSED: Final = {
    ("remainder", 0): far(np.remainder), ("remainder", 2): far(lambda a, b: -a / b),
    ("fmod", 0): far(np.fmod), ("fmod", 2): far(lambda a, b: -a / b),
    ("floor_divide", 0): far(lambda a, b: a / b),
}  # fmt: skip
"""Remainders of far larger numbers may be NaN; also the reference's, which has 72 bits."""


def compiled(name: str, device: Any, math: Math, dtype: DTypeName) -> Run:
    """A kernel's values and derivatives."""
    count = arguments(name)
    device = int(device) if str(device).isdecimal() else device
    kernel = sg.fused_forward_backward(
        count, lambda v: ops.TABLE[name](*v), device=device, math=math, dtype=dtype
    )

    def run(points: Array) -> Outcome:
        value, slopes = kernel.run(points)
        return [value, *slopes.reshape(len(points), count).T]

    return run


def interpreted(name: str, dtype: Any, math: Math = "accurate") -> Run:
    """The same by NumPy: for float32 the library's definitions, for float64 NumPy's functions."""
    graph = Graph()
    graph.tracing = False
    variables = [Expr(graph, graph.input(f"x{k}")) for k in range(arguments(name))]
    y = ops.TABLE[name](*variables)
    roots = [y.id, *[sg.grad(y, v).id for v in variables]]
    ids = [v.id for v in variables]
    if dtype is np.float32:
        graph, roots = simplify(graph, roots, True, primitive(math))

    def run(points: Array) -> Outcome:
        inputs = {i: points[:, k].astype(dtype) for k, i in enumerate(ids)}
        return evaluate_graph(graph, roots, inputs, dtype)

    return run


def arguments(name: str) -> int:
    """How many there are."""
    return ops.TABLE[name].arity


class Blocks:
    """What a function is tried at: ``count`` blocks, each an even sample of all."""

    def __init__(self, name: str, every: int, tried: int) -> None:
        self.two = arguments(name) == 2
        self.total = tried if self.two else -(-(1 << 32) // every)
        self.count = -(-self.total // BLOCK)
        self._every = every
        self._order = np.random.default_rng(0).permutation(self.count)  # of all last bits alike

    def __getitem__(self, k: int) -> Array:
        if self.two:
            return pairs(k, min(BLOCK, self.total - k * BLOCK))
        k = int(self._order[k])
        step = self._every * self.count
        words = np.arange(k * self._every, 1 << 32, step, dtype=np.uint64)
        return words.astype(np.uint32).view(np.float32)[:, None]


class Survey:
    """The worst of one function on one device, so far."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        self.name, self.given = name, given
        self.blocks = Blocks(name, given.every, given.pairs or 10**9)
        self.reference = compiled(name, "cpu", "accurate", "float64")
        interpreter = given.device == "interpreter"
        self.run = (
            interpreted(name, np.float32, given.math)
            if interpreter
            else compiled(name, given.device, given.math, "float32")
        )
        self.labels = ("value", *["derivative"] * (not self.blocks.two), *"ab" * self.blocks.two)
        self.worst = [self._worst(k) for k in range(len(self.labels))]
        self.tried, self.seconds = 0, 0.0
        self.spot = self._spot_check()

    def _worst(self, k: int) -> Worst:
        unit = UNITS.get((self.name, k), none)
        return Worst(lambda p: self.reference(p)[k], unit, EXCUSED.get((self.name, k)))

    def _spot_check(self) -> float:
        """The largest difference between the reference and NumPy, in ULP of float32."""
        points = self.blocks[0][:: max(1, BLOCK >> 14)]
        most = 0.0
        with np.errstate(all="ignore"):
            double = interpreted(self.name, np.float64)(points)
            for one, want, other in zip(self.worst, self.reference(points), double, strict=True):
                unit = one.unit(points)
                same = right(other, want, unit)
                if one.excused is not None:
                    same |= one.excused(points, want)
                assert same.all(), (self.name, points[~same][0], want[~same][0], other[~same][0])
                most = max(most, float(np.max(ulps(other, want, unit))))
        return most

    def block(self, k: int) -> int:
        """Try a block."""
        with np.errstate(all="ignore"):
            points = self.blocks[k]
            got, want = self.run(points), self.reference(points)
            for one, a, b in zip(self.worst, got, want, strict=True):
                one.add(points, a, b)
        return len(points)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Try all, in several threads: the row every few seconds, and when done."""
        start = shown = time.perf_counter()
        with ThreadPoolExecutor(self.given.threads) as pool:
            for size in pool.map(self._until(start), range(self.blocks.count)):
                self.tried += size
                self.seconds = time.perf_counter() - start
                if start + self.seconds > shown + 5.0:
                    shown = start + self.seconds
                    yield self.row()
        yield self.row()

    def _until(self, start: float) -> Callable[[int], int]:
        def work(k: int) -> int:
            late = time.perf_counter() - start > self.given.seconds
            return 0 if late else self.block(k)

        return work

    def row(self) -> dict[str, Any]:
        """What was found."""
        row: dict[str, Any] = {
            "function": self.name, "tried": self.tried, "of": self.blocks.total,
            "seconds": round(self.seconds, 1), "reference ULP": float(f"{self.spot:.1e}"),
        }  # fmt: skip
        for label, one in zip(self.labels, self.worst, strict=True):
            row |= one.row(label if len(label) > 1 else f"d/d{label}")
        return row


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="functions; all of one argument if none is named")
    parser.add_argument("--every", type=int, default=1, help="try every so many bit patterns only")
    parser.add_argument(
        "--pairs", type=int, nargs="?", const=10**9, default=0,
        help="functions of two arguments: how many pairs",
    )  # fmt: skip
    parser.add_argument("--device", default="0", help='an index, "cpu" or "interpreter"')
    parser.add_argument("--math", default="accurate")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each function")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    given.names = given.names or (TWO if given.pairs else ONE)
    return given


def main() -> None:
    """Write a row for each function; a sample is kept only where BENCHMARK_RESULTS says."""
    given = options()
    keep = given.every == 1 or "BENCHMARK_RESULTS" in os.environ
    kind = "pairs" if given.pairs else "exhaustive"
    title = f"{kind}_{given.device}_{given.math}"
    more = {"device": given.device, "every": given.every}
    done: list[dict[str, Any]] = []
    for name in given.names:
        row: dict[str, Any] = {}
        for row in Survey(name, given).rows():
            if keep:
                save(title, [*done, row], [], **more)
        done.append(row)
        print(row, flush=True)
    report(title, done, [], keep=keep, **more)


if __name__ == "__main__":
    main()
