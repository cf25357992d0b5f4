"""Constants that are added, or multiplied by, one after another: no compiler makes one of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Op, inputs_of
from symgrad.expr.tracers.expression import Expr

from .cases import BOUNDS, Array, cancelling, grid, truth, ulps
from .emulate import Emulated, compiled, primitives

FOLDING: Final = Emulated(folds=True)

C: Final = 0.99999994
"""The largest float32 below 1, whose sum with 1 is rounded."""

FORMS: Final[dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = {
    "a*t + c": (lambda t, c: 2.0 * t + c, lambda x, c: (x - c) / 2.0),
    "c - a*t": (lambda t, c: c - 2.0 * t, lambda x, c: (c - x) / 2.0),
    "t + c": (lambda t, c: t + c, lambda x, c: x - c),
    "t - c": (lambda t, c: t - c, lambda x, c: x + c),
}
"""Sums with a constant, and what they are of an argument."""

ROWS: Final = [
    row for name in BOUNDS if set((row := ops.TABLE[name]).signature.removesuffix("->f")) == {"f"}
]
"""Every function of numbers that the library defines."""

LONG: Final = {
    "betainc", "betaincc", "beta_density", "betainc_slope_a", "betainc_slope_b",
    "gammainc", "gammaincc", "gamma_density", "gammainc_slope", "gammainc_bend",
}  # fmt: skip
"""Functions that take compilers seconds, and NumPy: fewer numbers, and none on devices."""

GPUS: Final = [d for d in sg.devices() if d.is_gpu]


def arguments(row: Op, k: int, count: int) -> list[Array]:
    """Arguments, number k of them where a sum with C has digits, half of them next to 1 and -1."""
    given = grid(row.name, 4 * count)
    sizes = np.abs(given[k])
    random = np.random.default_rng(3)
    usual = np.flatnonzero((sizes > 1e-5) & (sizes < 60.0))
    near = np.flatnonzero(np.abs(sizes - 1.0) < 0.01)
    chosen = [random.permutation(places)[: count // 2] for places in (usual, near)]
    return [a[np.concatenate(chosen)] for a in given]


def cases(row: Op, count: int) -> list[tuple[list[Array], Callable[..., Any]]]:
    """What each form of each argument is computed at, and the function of that."""
    found: list[tuple[list[Array], Callable[..., Any]]] = []
    for k in range(row.arity):
        given = arguments(row, k, count)
        for form, inverse in FORMS.values():

            def f(*x: Any, k: int = k, form: Callable[..., Any] = form) -> Any:
                return row(*x[:k], form(x[k], C), *x[k + 1 :])

            t = inverse(given[k].astype(np.float64), C).astype(np.float32)
            found.append(([*given[:k], t, *given[k + 1 :]], f))
    return found


def rounded(row: Op, at: list[Array], case: int) -> list[Array]:
    """The arguments of the function itself in a case, rounded to float32."""
    k, form = case // len(FORMS), list(FORMS.values())[case % len(FORMS)][0]
    return [*at[:k], form(at[k], np.float32(C)).astype(np.float32), *at[k + 1 :]]


def errors(row: Op, at: list[Array], case: int, got: Array) -> Array:
    """How far off it is, in ULP."""
    exact = rounded(row, at, case)
    found = ulps(got, truth(row.name, *exact), cancelling(row.name, exact))
    return np.where(np.isnan(found), np.inf, found)


def emulated(
    f: Callable[..., Any], at: list[Array], lower: Any = compiled, device: Emulated = FOLDING
) -> Array:
    """What a compiler that folds makes of a function."""
    graph = Graph()
    graph.tracing = False
    y = f(*[Expr(graph, graph.input(f"x{k}")) for k in range(len(at))])
    graph, roots = lower(graph, [y.id])
    return device.evaluate(graph, roots, dict(zip(inputs_of(graph), at, strict=True)))[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_arguments_reach_functions_rounded(row: Op) -> None:
    """Within the bound, or what the function is off by in the same place without folding."""
    for case, (at, f) in enumerate(cases(row, 100 if row.name in LONG else 600)):
        off = errors(row, at, case, emulated(f, at))
        limit = max(4.0, BOUNDS[row.name][1])
        if np.max(off) > limit:
            limit = np.maximum(limit, errors(row, at, case, emulated(f, at, device=Emulated())))
        wrong = np.flatnonzero(off > limit)
        assert not len(wrong), (case, [float(a[wrong[0]]) for a in at], off[wrong])


@pytest.mark.parametrize("name", ["erfinv", "acosh", "one_minus_square", "gammaln", "sin"])
def test_the_emulated_folding_shows(name: str) -> None:
    """Without what is opaque, functions are off by hundreds of ULP."""
    row = ops.TABLE[name]
    at, f = cases(row, 600)[0]
    assert np.max(errors(row, at, 0, emulated(f, at, primitives))) > 100.0


T: Final = np.array([C, 0.7, 0.1, 0.5, 0.85, 0.6369617, 1.3, 3.0], np.float32)
"""Where sums are formed below."""

SUMS: Final[dict[str, Callable[[Any], Any]]] = {
    "a constant less a difference": lambda t: 1.0 - (2.0 * t - C),
    "a difference less a constant": lambda t: (t - 0.7) - 0.3,
    "rounding to multiples of 2": lambda t: (1e7 * t + 3e7) - 3e7,
    "a negative sum": lambda t: -(t + 0.7) + 1.3,
    "a multiple": lambda t: 2.0 * (t + 0.7) - 1.3,
    "a half": lambda t: (t + 0.7) / 2.0 - 0.3,
    "a sum between": lambda t: ((t + 0.7) + t) - 1.3,
    "two sums": lambda t: (t + 0.7) + (t - 1.3),
    "a sum of many": lambda t: (((t + 0.7) + t) + (t + t)) - (0.1 - t),
    "a choice": lambda t: sg.where(t > 0.6, t + 0.7, 1.0) - 1.3,
    "the larger": lambda t: sg.maximum(t + 0.7, 1.0) - 1.3,
    "one side": lambda t: sg.cond(t > 0.6, lambda x: x + 0.7, lambda x: x - 0.7, t) - 1.3,
    "a fused product": lambda t: sg.fma(t, 2.0, 0.7) - 1.3,
    "iterations": lambda t: sg.fori_loop(0, 4, lambda k, x: x + 0.7, t) - 2.3,
    "two carries": lambda t: sg.fori_loop(0, 3, lambda k, c: (c[1] - 0.3, c[0] + 0.7), (t, t))[0],
    "within iterations": lambda t: sg.fori_loop(0, 3, lambda k, x: 0.5 * (x + 0.7), t) - 1.2,
    "before iterations": lambda t: sg.fori_loop(0, 3, lambda k, x: x - 0.3, t + 0.7),
    "seen in iterations": lambda t: sg.fori_loop(
        0, 3, lambda k, x, s=t + 0.7: sg.maximum(x, s - 1.3), 0.0 * t
    ),
    "nested iterations": lambda t: sg.fori_loop(
        0, 2, lambda k, x: sg.fori_loop(0, 2, lambda j, y: y - 0.1, x + 0.7), t
    ),
    "elements": lambda t: sg.fori_loop(
        0, 2, lambda k, a: sg.array([a[1], a[0] - 0.3]), sg.array([t + 0.7, t])
    )[0],
    "squares of them": lambda t: ((t + 0.7) - 1.3) * ((t + 0.7) - 1.3),
}
"""Sums that compilers fold, every product in which is exact."""


@pytest.mark.parametrize("device", GPUS, ids=str)
def test_sums_have_the_bits_of_the_cpu(device: sg.Device) -> None:
    kernel = sg.fused_forward(1, lambda v: [f(v[0]) for f in SUMS.values()], device=device)
    got, want = (np.array(k.run(T[:, None])) for k in (kernel, kernel.to("cpu")))
    wrong = [name for name, a, b in zip(SUMS, got, want, strict=True) if (a != b).any()]
    assert not wrong


PRODUCTS: Final[dict[str, Callable[[Any], Any]]] = {
    "underflow": lambda x: (x * 1e-30) * 1e-30,
    "overflow": lambda x: (1e-30 * x * 1e-30 * 1e30) * 1e30,
    "of both factors": lambda x: (x * 1e-25) * ((x / x) * 1e-25),
    "quotients": lambda x: (x / 1e30) / 1e30,
    "a quotient of a quotient": lambda x: 1e30 / ((1e35 / x) * 1e30),
    "negative": lambda x: -(x * 1e-30) * 1e-30,
    "a square": lambda x: (x * 1e-30) * (x * 1e-30),
    "iterations": lambda x: sg.fori_loop(0, 8, lambda k, y: (y * 1e-10) * (x / 1e25), x),
}
"""Products of numbers of about 1e35 that are normal, though those of their constants are not."""


@pytest.mark.parametrize("device", GPUS, ids=str)
def test_products_of_constants_neither_underflow_nor_overflow(device: sg.Device) -> None:
    def f(v: Any) -> Any:
        return [g(v[0]) for g in PRODUCTS.values()]

    points = np.array([[1e35], [1.2e35], [8e34]], np.float32)
    double = sg.fused_forward(1, f, device="cpu", dtype="float64").run(points)
    for k in (single := sg.fused_forward(1, f, device=device), single.to("cpu")):
        np.testing.assert_allclose(np.array(k.run(points)), np.array(double), rtol=2e-6)


PLAIN: Final[dict[str, Callable[[Any], Any]]] = {
    "Rosenbrock": lambda v: (1.0 - v[0]) ** 2 + 100.0 * (v[1] - v[0] ** 2) ** 2,
    "two factors": lambda v: (v[0] - 1.0) * (v[0] + 1.0),
    "Horner": lambda v: ((0.3 * v[0] + 0.7) * v[0] - 1.3) * v[0] + 0.1,
    "a sum of squares": lambda v: (v[0] - 0.7) ** 2 + (v[1] - 1.3) ** 2,
    "functions of products": lambda v: sg.exp(-v[0] * v[1]) + sg.sin(3.0 * v[0]) + 1.0,
    "functions of sums": lambda v: sg.sqrt(v[0] + 0.7) + 1.0 / (v[1] + 1.3),
    "a step of a loop": lambda v: sg.fori_loop(0, 9, lambda k, y: y - 0.1 * (y - 1.0) * v[1], v[0]),
    "constants between products": lambda v: 6.6e-34 * v[0] * v[1] / 1.4e-23,
}


@pytest.mark.parametrize("name", PLAIN)
def test_nothing_else_is_opaque(name: str) -> None:
    kernel = sg.fused_forward(2, PLAIN[name], device="cpu")
    assert "params.zero" not in re.sub(r"//.*", "", kernel.wgsl.split("fn main")[1])


def test_a_sum_is_opaque_where_its_constant_is_added() -> None:
    """Products are fused with sums all the same, and nothing is opaque twice."""

    def f(v: Any) -> Any:
        return (2.0 * (v[0] * v[1] + 0.7) - 1.3) * sg.erfinv(v[0] - 0.7)

    body = sg.fused_forward(2, f, device="cpu").wgsl.split("fn main")[1]
    assert body.count("params.zero") == 2
    assert "2.0f * bitcast<f32>(bitcast<u32>(x0 * x1 + 0.7f) + params.zero) - 1.3f" in body
    assert "sg_erfinv(bitcast<f32>(bitcast<u32>(x0 - 0.7f) + params.zero))" in body


@pytest.mark.parametrize("device", GPUS, ids=str)
def test_variables_of_programs_hold_rounded_sums(device: sg.Device) -> None:
    def shifts(p: sg.Builder) -> None:
        x, y = p.input("x", len(T)), p.output("y", len(T))
        with p.dispatch(len(T)) as i:
            kept = p.private("kept", 2)
            sum_ = p.var("sum_", p.load(x, i) + 0.7)
            with p.for_(0, 3):
                p.assign(sum_, sum_.value - 0.3)
            p.store(kept, 1, sum_.value + 0.1)
            p.store(y, i, p.load(kept, 1) - 1.3)

    got, want = (sg.program(shifts, device=d).run(T) for d in (device, "cpu"))
    np.testing.assert_array_equal(got, want)


TOGETHER: Final = 12
"""Functions in one kernel."""


def on_device(device: sg.Device, rows: list[Op]) -> None:
    """Each form of the last argument, and one in a loop, within twice the bound."""
    count = 256
    plans = [(row, case, *c) for row in rows for case, c in enumerate(cases(row, count))]
    plans = [p for p in plans if p[1] // len(FORMS) == p[0].arity - 1]
    offsets = np.cumsum([0, *[len(at) for _, _, at, _ in plans]])

    def kernel(v: Any) -> list[Any]:
        found: list[Any] = []
        for (_, case, at, f), start in zip(plans, offsets, strict=False):
            x = [v[start + j] for j in range(len(at))]
            if case % len(FORMS):
                found.append(f(*x))
            else:
                step = lambda k, c, x=x, f=f: (c[0], f(*x[:-1], c[0]))  # noqa: E731
                found.append(sg.fori_loop(0, 2, step, (x[-1], 0.0 * x[-1]))[1])
        return found

    columns = [np.resize(a, count) for _, _, at, _ in plans for a in at]
    made = sg.fused_forward(int(offsets[-1]), kernel, device=device)
    results = made.run(np.stack(columns, axis=1))
    for (row, case, at, _), got in zip(plans, results, strict=True):
        off = errors(row, at, case, got[: len(at[0])])
        if row.name == "gelu":  # x Phi(x), where Phi is subnormal and may be flushed
            off[got[: len(at[0])] == 0.0] = 0.0
        worst = int(np.argmax(off))
        limit = 2.0 * max(4.0, BOUNDS[row.name][1])
        assert off[worst] <= limit, (row.name, case, [float(a[worst]) for a in at], got[worst])


SHORT: Final = [row for row in ROWS if row.name not in LONG]


@pytest.mark.parametrize("device", GPUS, ids=str)
@pytest.mark.parametrize("start", range(0, len(SHORT), TOGETHER))
def test_every_function_of_a_sum_on_every_device(device: sg.Device, start: int) -> None:
    on_device(device, SHORT[start : start + TOGETHER])


@pytest.mark.parametrize("device", GPUS, ids=str)
def test_normal_numbers_are_the_same_on_all_devices(device: sg.Device) -> None:
    """In their tails too, where 865 of a million differed by 1e-5 to 0.05."""

    def draws(v: Any) -> list[Any]:
        key = sg.random.fold_in(sg.random.key(7), sg.uint32(v[0]))
        looped = sg.fori_loop(0, 2, lambda k, s: sg.random.normal(key), 0.0 * v[0])
        return [sg.random.normal(key), looped]

    kernel = sg.fused_forward(1, draws, device=device)
    points = np.arange(10**6, dtype=np.float32)[:, None]
    got, want = (np.array(k.run(points), np.float64) for k in (kernel, kernel.to("cpu")))
    assert np.max(np.abs(want)) > 4.5
    assert np.max(np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))) <= 6.0


SWIFTSHADER: Final = Path("/usr/lib/chromium/vk_swiftshader_icd.json")


@pytest.mark.skipif(not SWIFTSHADER.exists(), reason="no SwiftShader: it comes with chromium")
@pytest.mark.skipif("VK_DRIVER_FILES" in os.environ, reason="this is another driver's run")
def test_swiftshader_folds_no_constants() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", __file__, "-k",
         "SwiftShader and (sums or products or programs or normal)"],
        cwd=Path(__file__).parents[2], text=True, capture_output=True, timeout=300,
        env={**os.environ, "VK_DRIVER_FILES": str(SWIFTSHADER)},
    )  # fmt: skip
    if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
        pytest.skip("wgpu does not show SwiftShader")
    assert done.returncode == 0, done.stdout[-4000:]
