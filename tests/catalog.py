"""Kernels of every kind, small and awkward: what all devices and both front ends must agree on."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from strategies import CALLABLE, copied, random_graph

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import LEAVES, Op


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel, and the points that it is tried at; of one operation, its row of the table."""

    name: str
    make: Callable[..., sg.Kernel]
    points: np.ndarray
    has_loops: bool = False
    row: Op | None = None

    def __str__(self) -> str:
        return self.name


def uniform(n: int, count: int = 70, low: float = -1.5, high: float = 1.5) -> np.ndarray:
    return np.random.default_rng(n).uniform(low, high, (count, n)).astype(np.float32)


def rosenbrock(v: Any) -> Any:
    return np.sum((1 - v[:-1]) ** 2 + 100 * (v[1:] - v[:-1] ** 2) ** 2)


def dense_chain(v: Any) -> Any:
    z = v[0]
    for x in v:
        z = sg.sin(z * x + z)
    return z


def network(v: Any) -> Any:
    hidden = np.tanh(v[:8].reshape(4, 2) @ np.array([0.3, -0.7]) + v[8:12])
    return sg.softplus(hidden @ v[12:16] + v[16]) + sg.sigmoid(v[16])


def awkward(v: Any) -> Any:
    """Infinities, NaN, zeros of both signs, huge and tiny constants, all where they do no harm."""
    big = sg.where(v[0] > 1e30, float("inf"), v[0] * 2e38 * 1e-38)
    return big + sg.where(v[1] > 1e30, float("nan"), 1e-40 * v[1]) + v[0] * -0.0 + 2.0**-126


def powers(v: Any) -> Any:
    return v[0] ** 7 + v[0] ** -3 + v[1] ** 2.5 + v[0] ** v[1]


def choices(v: Any) -> Any:
    return np.sum(np.where(v > 0, np.maximum(v, 0.5), np.minimum(v, -0.5)))


def logic(v: Any) -> Any:
    return sg.where(((v[0] < v[1]) | (v[0] < 0)) & ~(v[1] > 1), v[0], v[1])


def nested(v: Any) -> Any:
    return {"a": v * 2, "b": [v[0] - v[1]]}


def wide(v: Any) -> Any:
    return [v[k % 3] * (k + 1) for k in range(130)]


def runge_kutta(v: Any) -> Any:
    """The end of 150 steps of a predator and its prey, with four parameters."""

    def slope(s: dict[str, Any]) -> dict[str, Any]:
        x, y = s["x"], s["y"]
        return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}

    def moved(s: dict[str, Any], k: dict[str, Any], dt: float) -> dict[str, Any]:
        return {n: s[n] + dt * k[n] for n in s}

    def step(_: Any, s: dict[str, Any]) -> dict[str, Any]:
        k1 = slope(s)
        k2 = slope(moved(s, k1, 0.005))
        k3 = slope(moved(s, k2, 0.005))
        k4 = slope(moved(s, k3, 0.01))
        return {n: s[n] + 0.01 / 6 * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]) for n in s}

    end = sg.fori_loop(0, 150, step, {"x": v[4], "y": v[5]})
    return (end["x"] - 1) ** 2 + (end["y"] - 1) ** 2


def walk(v: Any) -> Any:
    """Random steps, and integers of all kinds."""
    own = sg.random.key(sg.int32(v[0] * 100) % 7)

    def step(k: Any, x: Any) -> Any:
        drawn = sg.random.normal(sg.random.fold_in(own, k))
        return x + v[1] * drawn * (k >> 1 & 3)

    return sg.fori_loop(0, 40, step, v[0])


def eigenvalues(v: Any) -> Any:
    """The squares of two eigenvalues, weighted."""
    values = sg.linalg.eigvalsh(sg.array([[v[0], v[1]], [v[1], v[2]]]))
    return values[0] ** 2 + 2.0 * values[1] ** 2


@cache
def losses() -> list[Case]:
    """Losses and gradients."""
    kernels: list[tuple[str, int, Callable[[Any], Any], np.ndarray]] = [
        ("square", 1, lambda v: v[0] ** 2, uniform(1)),
        ("constant", 2, lambda v: 3.0, uniform(2)),
        ("one input", 3, lambda v: v[1], uniform(3)),
        ("rosenbrock 2", 2, rosenbrock, uniform(2)),
        ("rosenbrock 100", 100, rosenbrock, uniform(100)),
        ("chain 10", 10, dense_chain, uniform(10, low=-0.6, high=0.6)),
        ("network", 17, network, uniform(17)),
        ("awkward", 2, awkward, uniform(2)),
        ("powers", 2, powers, uniform(2, low=0.5)),
        ("choices", 3, choices, uniform(3)),
        ("logic", 2, logic, uniform(2)),
        ("keywords", 3, lambda v: v @ v, uniform(3)),
    ]  # fmt: skip
    cases = []
    for name, n, f, points in kernels:
        names = ["let", "loss", "t1"] if name == "keywords" else None

        def make(f: Any = f, n: int = n, names: Any = names, **options: Any) -> sg.Kernel:
            return sg.fused_forward_backward(n, f, names=names, **options)

        cases.append(Case(name, make, points))
    return cases


def loops() -> list[Case]:
    """Losses and gradients of what iterations."""
    make = partial(sg.fused_forward_backward, 6, runge_kutta, names="abcdxy")
    return [
        Case("loop of Runge and Kutta", make, uniform(6, low=0.5), has_loops=True),
        Case(
            "random walk", partial(sg.fused_forward_backward, 2, walk), uniform(2), has_loops=True
        ),
        Case(
            "eigenvalues", partial(sg.fused_forward_backward, 3, eigenvalues),
            uniform(3), has_loops=True,
        ),
    ]  # fmt: skip


def others() -> list[Case]:
    """The other kinds of kernels."""
    makers: list[tuple[str, int, Callable[..., sg.Kernel]]] = [
        ("forward", 3, lambda **o: sg.fused_forward(3, nested, **o)),
        ("jacobian", 4, lambda **o: sg.fused_jacobian(4, lambda v: np.sin(v) * v[::-1], **o)),
        ("hessian", 5, lambda **o: sg.fused_hessian(5, rosenbrock, **o)),
        ("wide", 3, lambda **o: sg.fused_forward(3, wide, **o)),
    ]  # fmt: skip
    return [Case(name, make, uniform(n)) for name, n, make in makers]


def rows() -> list[Op]:
    """The rows of the op table that take and give floats, or make conditions of them."""
    return [
        row
        for row in ops.TABLE.values()
        if row not in LEAVES
        and not set("iu") & set(row.signature.replace("->", ""))
        and row is not ops.integer_pow
        and (row.result == "b" or row.partials or row.vjp or row.compose)
    ]


def row_case(row: Op) -> Case:
    """Value and gradient of one operation at its test points."""
    n = row.arity

    def f(v: Any) -> Any:
        args = [x > 0.5 if t == "b" else x for x, t in zip(v, row.signature, strict=False)]
        args[: row.parameters] = map(sg.stop_gradient, args[: row.parameters])
        result = row(*args)
        return sg.where(result, 1.0, 0.0) if row.result == "b" else result

    points = np.array(row.points, dtype=np.float32)
    return Case(
        row.name,
        lambda **options: sg.fused_forward_backward(n, f, name=row.name, **options),
        points,
        row=row,
    )


EXAMPLES: Final = Path(__file__).parents[1] / "examples"


@cache
def example(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def examples() -> list[Case]:
    """The kernels of the examples."""
    kernels: list[tuple[str, str, Callable[..., sg.Kernel], int]] = [
        ("01_rosenbrock_descent", "rosenbrock", sg.fused_forward_backward, 2),
        ("02_inverse_kinematics", "hand", sg.fused_jacobian, 5),
        ("03_himmelblau_basins", "newton", sg.fused_forward, 3),
        ("03_himmelblau_basins", "himmelblau", sg.fused_hessian, 2),
        ("04_sympy_lagrangian", "advance", sg.fused_forward, 4),
        ("05_audit", "mended", sg.fused_forward_backward, 1),
    ]

    def make(verb: Any, n: int, module: str, f: str, **options: Any) -> sg.Kernel:
        return verb(n, getattr(example(module), f), **options)

    return [
        Case(f"{module} {f}", partial(make, verb, n, module, f), uniform(n))
        for module, f, verb, n in kernels
    ]


def drawn(seeds: range, verb: Callable[..., sg.Kernel], **options: Any) -> sg.Kernel:
    """A kernel of several random graphs, one result each."""
    graphs = [random_graph(seed, table=CALLABLE) for seed in seeds]
    return verb(3, lambda v: [copied(d.graph, d.root, v) for d in graphs], **options)


@cache
def random_cases() -> list[Case]:
    """A thousand random graphs, and the derivatives of some of them, many in one kernel."""
    points = np.random.default_rng(0).normal(scale=2.0, size=(64, 3)).astype(np.float32)
    points[:8] = np.random.default_rng(1).choice([0.0, 1.0, -1.0, 0.5, -2.0], (8, 3))
    values = [range(k, k + 50) for k in range(0, 1000, 50)]
    slopes = [range(k, k + 25) for k in range(0, 200, 25)]
    return [
        *[Case(f"random {r[0]}-{r[-1]}", partial(drawn, r, sg.fused_forward), points)
          for r in values],
        *[Case(f"random slopes {r[0]}-{r[-1]}", partial(drawn, r, sg.fused_jacobian), points)
          for r in slopes],
    ]  # fmt: skip


INNER: Final = (
    sg.exp, sg.exp2, sg.expm1, sg.log, sg.log2, sg.log1p, sg.sin, sg.cos, sg.tan, sg.asinh, sg.sinh,
    sg.cosh, sg.tanh, sg.atan, sg.sigmoid, sg.softplus, sg.erf, sg.gelu,
)  # fmt: skip
"""Functions with a reduction of their argument, or of bits, that compilers may take apart."""


def composed(outer: Callable[[Any], Any], **options: Any) -> sg.Kernel:
    """A kernel of a function of others, which compilers write into one another."""
    return sg.fused_forward(1, lambda v: [outer(inner(-v[0])) for inner in INNER], **options)


def compositions() -> list[Case]:
    """Functions of a reduced argument, of every other; no poles and zeros, which lose digits."""
    points = uniform(1, low=-3.0, high=3.0).astype(np.float32)
    steep = (sg.tan, sg.log, sg.log1p, sg.log2)
    outer = [f for f in INNER if f not in steep]
    return [Case(f"{f.__name__} of others", partial(composed, f), points) for f in outer]


@cache
def every() -> list[Case]:
    """All but the examples and the random ones."""
    return [*losses(), *loops(), *others(), *compositions(), *(row_case(row) for row in rows())]
