"""First, second and third derivatives of every row of the op table, on every back end, by mpmath.

Each row is tested at its own points, where formulas branch among them: ties, zero exponents, the
thresholds of series. The truths are those at the float32 next to each point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pytest
from mpmath import mp, mpf
from strategies import types
from tables import row
from true_derivatives import (
    DIFFERENTIABLE,
    Point,
    orders_of,
    smooth_points,
    true_derivative,
    variables_of,
)

import symgrad as sg
from symgrad.expr.graph.node import Graph, Op
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Expr, lift
from symgrad.pipeline import DTypeName

HIGHEST: Final = 3
LIMITS: Final = {1: 5.1, 2: 6.0, 3: 15.0}
"""The largest error of a derivative of each order, in ULP."""

INEXACT: Final = {1: 8.0, 2: 12.0, 3: 24.0}
"""That on GPUs, which need not round quotients and roots correctly."""

ROOTS: Final[dict[str, set[Point]]] = {
    "real_reciprocal": {(2.0, -2.0001)}, "real_reciprocal_square": {(2.0, -2.0001)},
    "gelu_slope": {(-2.0,)}, "i1e": {(3.0,)}, "gammainc": {(1.0, 1.0), (20.0, 19.0)},
    "gammaincc": {(1.0, 1.0), (20.0, 19.0)}, "gammainc_slope": {(1.0, 1.0), (20.0, 12.0)},
    "gammainc_bend": {(3.0, 7.0)}, "betainc_slope_a": {(2.5, 1.5, 0.75)},
    "betainc_slope_b": {(2.5, 1.5, 0.75)},
    **{
        name: {(0.5, 0.5, 0.0625), (2.5, 1.5, 0.75), (3.0, 7.0, 0.125), (0.25, 0.125, 0.984375)}
        for name in ("betainc", "betaincc", "beta_density")
    },
    "voigt_profile": {(0.5, 1.0, 0.25)},
}  # fmt: skip
"""Points next to a root of a derivative, whose error is measured in ULP of the arguments there."""

TOGETHER: Final = 12
"""Rows in one kernel: compiling many small ones takes longer, and so does one of all."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """Partial derivatives of a row at points that differ in their floats only."""

    op: Op
    fixed: Point
    points: tuple[Point, ...]
    roots: frozenset[Point]
    """Those of the points at which errors are measured in ULP of the arguments."""

    def trace(self, variables: Any) -> list[Any]:
        """The expressions of all of them, in the order of `orders_of`."""
        given = dict(zip(variables_of(self.op), variables, strict=False))
        rest = iter(self.fixed)
        kinds: dict[str, Callable[..., Any]] = {"i": int, "b": bool, "f": float}
        arguments = [
            given[k] if k in given else kinds[kind](next(rest))
            for k, kind in enumerate(types(self.op))
        ]
        made: dict[tuple[int, ...], Any] = {(): self.op(*arguments)}
        for by in orders_of(self.op, HIGHEST):
            made[by] = sg.grad(made[by[:-1]], given[by[-1]])
        del made[()]
        return list(made.values())

    def truths(self, point: Point) -> Iterator[tuple[tuple[int, ...], Any]]:
        """The order of each derivative that there is at a point, and its value."""
        for by in orders_of(self.op, HIGHEST):
            value = true_derivative(self.op, point, by)
            if not isinstance(value, mp.mpc):
                yield by, value

    def size(self, point: Point, by: tuple[int, ...]) -> Any:
        """What is the ULP of the arguments times their derivatives, in ULP."""
        return sum(
            abs(point[k] * true_derivative(self.op, point, (*by, k))) for k in variables_of(self.op)
        )


def as_single(op: Op, point: Point) -> Point:
    """The point with floats that float32 has exactly."""
    return tuple(
        float(np.float32(v)) if kind == "f" else v for v, kind in zip(point, types(op), strict=True)
    )


def wanted_of(op: Op) -> list[Wanted]:
    """The derivatives of a row, by what stands for arguments that are no variables."""
    groups: dict[Point, dict[Point, None]] = {}
    for p in smooth_points(op):
        slots = variables_of(op)
        fixed = tuple(v for k, v in enumerate(as_single(op, p)) if k not in slots)
        groups.setdefault(fixed, {})[as_single(op, p)] = None
    roots = frozenset(as_single(op, p) for p in ROOTS.get(op.name, ()))
    return [Wanted(op, fixed, tuple(points), roots) for fixed, points in groups.items()]


WANTED: Final = [w for op in DIFFERENTIABLE for w in wanted_of(op)]
MOST: Final = max(len(variables_of(op)) for op in DIFFERENTIABLE)
"""The most variables of a row."""


def floats_of(wanted: Wanted) -> np.ndarray:
    """The points (B, MOST), filled up with ones."""
    slots = variables_of(wanted.op)
    rows = [[p[k] for k in slots] + [1.0] * (MOST - len(slots)) for p in wanted.points]
    return np.array(rows)


Run = Callable[[Callable[[Any], list[Any]], np.ndarray], Any]
"""``run(trace, points)`` evaluates the expressions of variables at points: (expressions, B)."""


def on_numpy(trace: Callable[[Any], list[Any]], points: np.ndarray) -> Any:
    """The expressions as NumPy's references have them, in float64."""
    graph = Graph()
    graph.tracing = False
    variables = [Expr(graph, graph.input(f"x{k}")) for k in range(MOST)]
    roots = [lift(graph, e).id for e in trace(variables)]
    given = {v.id: x for v, x in zip(variables, points.T, strict=True)}
    return [
        np.broadcast_to(v, len(points)) for v in evaluate_graph(graph, roots, given, np.float64)
    ]


def on_device(device: Any, dtype: DTypeName) -> Run:
    """The same in a kernel."""

    def run(trace: Callable[[Any], list[Any]], points: np.ndarray) -> Any:
        kernel = sg.fused_forward(MOST, trace, device=device, dtype=dtype, comments=False)
        return kernel.run(points)

    return run


@dataclass(frozen=True)
class BackEnd:
    """What computes the derivatives, and the type in which it does."""

    name: str
    dtype: Any
    run: Run
    limits: dict[int, float] = field(default_factory=lambda: LIMITS, compare=False)

    def __str__(self) -> str:
        return self.name


GPUS: Final = [d for d in sg.devices() if d.is_gpu][:1]
BACK_ENDS: Final = [
    BackEnd("numpy", np.float64, on_numpy),
    BackEnd("cpu-float64", np.float64, on_device("cpu", "float64")),
    BackEnd("cpu-float32", np.float32, on_device("cpu", "float32")),
    *[BackEnd("gpu", np.float32, on_device(d.index, "float32"), INEXACT) for d in GPUS],
]  # fmt: skip


def found_by(back_end: BackEnd, part: int) -> dict[Wanted, np.ndarray]:
    """The derivatives (B, orders) of some of the rows."""
    some = WANTED[part * TOGETHER : (part + 1) * TOGETHER]
    traced: list[int] = []

    def trace(variables: Any) -> list[Any]:
        made = [w.trace(variables) for w in some]
        traced[:] = [len(m) for m in made]
        return [e for m in made for e in m]

    points = [floats_of(w) for w in some]
    values = np.array(back_end.run(trace, np.concatenate(points)), np.float64)
    rows = np.cumsum([0, *map(len, points)])
    columns = np.cumsum([0, *traced])
    return {
        w: values[columns[k] : columns[k + 1], rows[k] : rows[k + 1]].T for k, w in enumerate(some)
    }


def error(found: float, true: Any, size: Any, dtype: Any) -> float:
    """The error in ULP of the truth, or of the size if that is larger; subnormals may be 0."""
    limits = np.finfo(dtype)
    if abs(true) > float(limits.max):
        return 0.0 if found == np.copysign(np.inf, float(mp.sign(true))) else np.inf
    size = max(abs(true), size, mpf(float(limits.tiny)) / float(limits.eps))
    return float(abs(mpf(found) - true) / (size * float(limits.eps))) if found == found else np.inf


@pytest.mark.parametrize("part", range(-(-len(WANTED) // TOGETHER)))
def test_derivatives_to_third_order(part: int) -> None:
    for back_end in BACK_ENDS:
        for wanted, found in found_by(back_end, part).items():
            with row(back_end=str(back_end), op=wanted.op.name, fixed=wanted.fixed):
                check(wanted, back_end, found)


def check(wanted: Wanted, back_end: BackEnd, found: np.ndarray) -> None:
    for point, values in zip(wanted.points, found, strict=True):
        at = dict(zip(orders_of(wanted.op, HIGHEST), values.tolist(), strict=True))
        for by, true in wanted.truths(point):
            off = error(at[by], true, mpf(0), back_end.dtype)
            if off > back_end.limits[len(by)] and point in wanted.roots:
                off = error(at[by], true, wanted.size(point, by), back_end.dtype)
            assert off <= back_end.limits[len(by)], (
                f"d{by} at {point}: {at[by]} for {mp.nstr(true)}: {off}"
            )
