"""Every function and its derivatives on devices that are worse than the ones at hand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln
from tables import row

from symgrad.expr import ops, references
from symgrad.expr.graph.node import Graph, inputs_of, reachable
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.pair import arithmetic
from symgrad.mathlib.pair.expression import pair

from .cases import BOUNDS, EDGES, FADDEEVA, INEXACT, RANGES, TINY, cancelling, grid, truth, ulps
from .emulate import Array, Emulated, expanded, primitives, with_derivatives

ELLIPTIC = ("ellipkm1", "ellipe", "elliptic_b", "elliptic_d")
NAMES = [
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "atan2", "hypot", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
    "normal_cdf", "gelu", "gelu_tanh", "sigmoid", "softplus", "logaddexp", "silu", "cbrt", "pow",
    "sqrt", "rsqrt", "reciprocal", "div", "remainder", "fmod", "exp_neg_square", "bell",
    "xlogy", "xlog1py", "logit", "log1mexp", "gammaln", "digamma", "trigamma",
    "tetragamma", "pentagamma", "sinc", "j0", "j1", "j1_ratio",
    *ELLIPTIC, "gammainc", "gammaincc", "gammainc_slope", "betainc_slope_a", "betainc_slope_b",
    *FADDEEVA,
]  # fmt: skip
SMALL = 2.0**-120
"""Results below it may be 0 where subnormals are."""

LARGE = (1.0 - 2.0**-16) * 2.0**128
"""Results above it may be infinite."""

SHARES: dict[str, Any] = {
    "silu": references.sigmoid, "gelu": references.normal_cdf,
    "gelu_tanh": lambda x: references.sigmoid(
        references.GELU_TANH[0] * (x + references.GELU_TANH[1] * x**3)
    ),
}  # fmt: skip
"""Of derivatives that have a root below 0, the smaller one of the two terms left of it."""

WAVES = {
    "sinc", "j0", "j1", "j1_ratio", "gammainc", "gammaincc", "gammainc_slope", "betainc_slope_a",
    "betainc_slope_b", *FADDEEVA,
}  # fmt: skip
"""Functions whose derivatives pass through 0."""

H200 = [Emulated(off=1.4), Emulated(off=1.4, fuses=1), Emulated(off=1.4, fuses=2)]
FLUSHING = [Emulated(flushes=True), Emulated(flushes=True, fuses=1)]


@cache
def arguments(name: str) -> tuple[Array, ...]:
    """Those of the other tests, more of them, and the ends of the range."""
    names = {"sqrt": "log", "rsqrt": "log", "reciprocal": "log"}
    given = grid("hypot" if name == "div" else names.get(name, name), 12_000)
    if len(given) != 1 or name in RANGES:
        return given
    random = np.random.default_rng(7)
    ends = np.concatenate([random.uniform(-105, -80, 7_000), random.uniform(80, 130, 7_000)])
    return (np.concatenate([given[0], np.float32(ends)]),)


def wanted_of(name: str) -> int | None:
    """How many results of a function are looked at, its value first; None is all."""
    return 1 if name in WAVES else None


def true_values(name: str) -> list[tuple[Array, Array]]:
    """Value and derivatives in float64, and the size of terms that cancel."""
    given = arguments(name)
    graph, inputs, roots = with_derivatives(name)
    wide = {i: a.astype(np.float64) for i, a in zip(inputs, given, strict=True)}
    want = evaluate_graph(graph, roots[: wanted_of(name)], wide)
    units = [np.zeros(len(given[0])) for _ in want]
    units[0] = units[0] + cancelling(name, given)
    if name in SHARES:
        units[1] = np.minimum(0.2, SHARES[name](np.minimum(given[0].astype(np.float64), 0.0)))
    return list(zip(want, units, strict=True))


Deviations = Iterator[tuple[Array, Array, Array]]
"""Of a value and its derivatives: those of a device, the true ones, and what cancels in them."""


def reached(name: str, want: Array) -> Array:
    """Where remainders are not out of reach, nor of numbers that are hardly normal."""
    if name not in ("remainder", "fmod"):
        return np.ones(len(want), bool)
    a, b = (v.astype(np.float64) for v in arguments(name))
    return (np.abs(a / b) < 2.0**45) & (np.abs(b) > 2.0**-100)


@pytest.mark.parametrize("name", NAMES)
def test_functions_on_worse_devices(name: str) -> None:
    """Those that flush subnormals; those whose quotients are off, and whose products are fused."""
    graph, inputs, roots = expanded(name)
    roots, true = roots[: wanted_of(name)], true_values(name)
    given = dict(zip(inputs, arguments(name), strict=True))
    inexact = H200 if adds_two_products(graph, roots) else H200[:2]
    for device in (*FLUSHING, *inexact):
        got = device.evaluate(graph, roots, given)
        results = ((np.broadcast_to(a, w.shape), w, u) for a, (w, u) in zip(got, true, strict=True))
        with row(device=device):
            (check_flushed if device.flushes else check_inexact)(name, results)


def adds_two_products(graph: Graph, roots: list[int]) -> bool:
    """Whether it matters which product of a sum is fused with it."""
    nodes = [graph.nodes[i] for i in reachable(graph, roots)]
    return any(
        op in (ops.add, ops.sub) and all(graph.nodes[a][0] is ops.mul for a in args)
        for op, *args in nodes
    )


def check_flushed(name: str, results: Deviations) -> None:
    """Flushing subnormals spoils no normal result."""
    for k, (got, want, unit) in enumerate(results):
        with np.errstate(all="ignore"):
            error = np.abs(got - want) / np.maximum(np.abs(want), unit)
            kept = (np.abs(want) > SMALL) & np.isfinite(np.float32(want)) & reached(name, want)
        if name == "gelu" and k:  # Phi is flushed where its density times x is normal
            kept &= np.abs(want) > 2.0**-118
        if name == "logaddexp":  # of a tiny number and one whose exponential is flushed
            kept &= np.abs(np.max(arguments(name), axis=0)) > 1e-30
        wrong = np.flatnonzero(kept & ~(error <= 2.0**-16))
        assert not len(wrong), (k, [float(a[wrong[0]]) for a in arguments(name)], got[wrong[0]])


def check_inexact(name: str, results: Deviations) -> None:
    """Values within the bounds of such GPUs, derivatives within 8, as quotients are off by 1.9."""
    for k, (got, want, unit) in enumerate(results):
        with np.errstate(all="ignore"):
            step = np.spacing(np.maximum(np.abs(want), np.maximum(unit, TINY)).astype(np.float32))
            error = np.abs(got - want) / step
            kept = (np.abs(want) > SMALL) & np.isfinite(np.float32(want)) & reached(name, want)
        error = np.where(kept, error, 0.0)
        worst = int(np.argmax(error))
        where = [float(a[worst]) for a in arguments(name)]
        limit = 8.0 if k else max(4.0, BOUNDS.get(name, (4.0, 4.0))[1], INEXACT.get(name, 0.0))
        assert error[worst] <= limit, (k, error[worst], where, got[worst])


@pytest.mark.parametrize("device", [Emulated(), *FLUSHING], ids=str)
def test_powers_at_the_ends_of_the_range(device: Emulated) -> None:
    """Powers overflow, or are subnormal, where their derivatives need not be."""
    random = np.random.default_rng(11)
    near = 1.0 + random.uniform(-1.0, 1.0, 40_000) * np.exp2(random.uniform(-24.0, 0.0, 40_000))
    bases = np.concatenate([near, np.exp2(random.uniform(-126.0, 128.0, 40_000))])
    bases = bases.astype(np.float32)
    sizes = random.choice([-126.0, 128.0], 80_000) + random.uniform(-9.0, 9.0, 80_000)
    with np.errstate(all="ignore"):
        exponents = (sizes / np.log2(bases.astype(np.float64))).astype(np.float32)
    graph, inputs, roots = expanded("pow")
    got = device.evaluate(graph, roots, dict(zip(inputs, (bases, exponents), strict=True)))
    graph, inputs, roots = with_derivatives("pow")
    wide = [v.astype(np.float64) for v in (bases, exponents)]
    want = evaluate_graph(graph, roots, dict(zip(inputs, wide, strict=True)))
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        with np.errstate(all="ignore"):
            kept = (np.abs(b) > SMALL) & (np.abs(b) < LARGE) & np.isfinite(exponents)
            wrong = np.flatnonzero(kept & ~(np.abs(a - b) <= 2.0**-16 * np.abs(b)))
        assert not len(wrong), (k, bases[wrong[0]], exponents[wrong[0]], a[wrong[0]], b[wrong[0]])


def test_a_device_without_faults_is_numpy() -> None:
    graph, inputs, roots = expanded("erfc")
    x = arguments("erfc")[0]
    got = Emulated().evaluate(graph, roots, {inputs[0]: x})
    want = evaluate_graph(graph, roots, {inputs[0]: x}, np.float32)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_emulated_faults_show() -> None:
    """A quotient that is off, a sum that is fused, a subnormal that is flushed."""
    x, y = (np.float32(v) for v in (np.linspace(1.0, 2.0, 1001), np.linspace(1.5, 1.7, 1001)))
    graph, inputs, roots = with_derivatives("div")
    (got, *_) = Emulated(off=1.4).evaluate(graph, roots, dict(zip(inputs, (x, y), strict=True)))
    assert 1.5 < ulps(got, np.float64(x) / y).max() < 1.91
    graph = Graph()
    a = Expr(graph, graph.input("a"))
    given = {a.id: np.array([1 + 2.0**-12, 2.0**-130], np.float32)}
    square, double = (a * a - 1.0).id, (a + a).id
    assert Emulated().evaluate(graph, [square], given)[0][0] == 2.0**-11
    assert Emulated(fuses=1).evaluate(graph, [square], given)[0][0] == 2.0**-11 + 2.0**-24
    assert Emulated().evaluate(graph, [double], given)[0][1] == 2.0**-129
    assert Emulated(flushes=True).evaluate(graph, [double], given)[0][1] == 0.0


@pytest.mark.parametrize("device", [FLUSHING[0], H200[0]], ids=["flushes", "off"])
@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "gamma_density"])
def test_edges_of_the_incomplete_functions(name: str, device: Emulated) -> None:
    """A reciprocal of a large shape is subnormal, and the peak of the density was 0."""
    edges = [v.ravel() for v in np.meshgrid(EDGES, EDGES)]
    want = truth(name, *edges)
    graph, inputs, roots = expanded(name)
    given = [np.float32(e) for e in edges]
    got = device.evaluate(graph, roots[:1], dict(zip(inputs, given, strict=True)))[0]
    known = ~(np.abs(want) < SMALL)
    np.testing.assert_allclose(got[known], want[known], rtol=2e-6)


@pytest.mark.parametrize("device", [FLUSHING[0], H200[0]], ids=["flushes", "off"])
@pytest.mark.parametrize("name", [*ELLIPTIC, *FADDEEVA, "voigt_profile"])
def test_edges_are_within_the_bounds(name: str, device: Emulated) -> None:
    """All edges with all: where parts of a sum are flushed, the sum is not."""
    graph, inputs, roots = expanded(name)
    edges = [v.ravel() for v in np.meshgrid(*[EDGES] * len(inputs))]
    (got,) = device.evaluate(graph, roots[:1], dict(zip(inputs, edges, strict=True)))
    errors = ulps(got, truth(name, *edges), cancelling(name, edges))
    worst = int(np.argmax(errors))
    where = [float(e[worst]) for e in edges]
    limit = max(BOUNDS[name][1], INEXACT.get(name, 0.0))
    assert errors[worst] <= limit, (errors[worst], where, got[worst])


@pytest.mark.parametrize("name", ["betainc_slope_a", "betainc_slope_b"])
def test_edges_of_derivatives_by_parameters_are_within_the_bounds(name: str) -> None:
    """The square of a tiny parameter, which a quotient was by, is flushed."""
    graph, inputs, roots = expanded(name)
    edges = [v.ravel() for v in np.meshgrid(*[EDGES] * 3)]
    given = dict(zip(inputs, edges, strict=True))
    (got,) = FLUSHING[0].evaluate(graph, roots[:1], given)
    assert np.max(ulps(got, truth(name, *edges))) <= BOUNDS[name][1]


@pytest.mark.parametrize("device", FLUSHING, ids=str)
def test_derivatives_by_a_shape_are_flushed_only_where_they_are_subnormal(device: Emulated) -> None:
    """Of their factors, the density is smaller than they are, for a logarithm is large."""
    random = np.random.default_rng(5)
    a = np.float32(random.uniform(1.1, 30.0, 20_000))
    x = np.float32(np.exp((-87.0 - random.uniform(-1.0, 5.0, 20_000) + gammaln(a + 1.0)) / a))
    want = truth("gammainc_slope", a, x)
    graph, inputs, roots = expanded("gammainc_slope")
    (got,) = device.evaluate(graph, roots[:1], dict(zip(inputs, (a, x), strict=True)))
    normal = np.abs(want) > 1.001 * TINY
    assert 5_000 < np.sum(normal) < 15_000
    assert np.max(ulps(got, want)[normal]) <= BOUNDS["gammainc_slope"][1]


@pytest.mark.parametrize("device", [FLUSHING[0], H200[0]], ids=["flushes", "off"])
@pytest.mark.parametrize("k", [*range(-14, -1), *range(2, 17)])
def test_products_that_are_powers(k: int, device: Emulated) -> None:
    """Within 4 ULP, but where the power that 1 is divided by is subnormal and flushed."""
    graph = Graph()
    graph.tracing = False
    graph, roots = primitives(graph, [(Expr(graph, graph.input("x")) ** k).id])
    random = np.random.default_rng(3)
    sizes = np.concatenate([random.uniform(0.5, 2.0, 5000), np.exp(random.uniform(-30, 30, 3000))])
    x = np.float32(sizes * random.choice([-1.0, 1.0], len(sizes)))
    (got,) = device.evaluate(graph, roots, {inputs_of(graph)[0]: x})
    want = np.asarray(x, np.longdouble) ** k
    usable = (np.abs(want) > TINY) & (np.abs(want) < 2.0 ** (126 if device.flushes else 127))
    assert np.max(ulps(got[usable], want[usable])) <= 4.0


@pytest.mark.parametrize(
    "device", [*H200, *FLUSHING, Emulated(folds=True)], ids=lambda d: f"{d.off} {d.fuses} {d.folds}"
)
@pytest.mark.parametrize("name", ["add", "mul", "div", "sqrt", "floor", "round"])
def test_arithmetic_of_pairs_keeps_its_digits(name: str, device: Emulated) -> None:
    """Sums that cancel among them; quotients are as good as the device's own squared."""
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(2, 20_000)) * 10.0 ** draw.integers(-6, 6, (2, 20_000))
    b[::3] = -a[::3] * (
        1.0 + draw.normal(size=b[::3].shape) * 2.0 ** -draw.integers(1, 45, b[::3].shape)
    )
    a = np.abs(a) if name == "sqrt" else a
    graph = Graph()
    graph.tracing = False
    inputs, pairs, exact = dict[int, Any](), list[Any](), list[Any]()
    for x in (a, b)[: ops.TABLE[name].arity]:
        high = x.astype(np.float32)
        parts = high, (x - high).astype(np.float32)
        nodes = [Expr(graph, graph.input(f"x{len(inputs)}{k}")) for k in (0, 1)]
        inputs |= {node.id: part for node, part in zip(nodes, parts, strict=True)}
        pairs.append(pair(*nodes))
        exact.append(parts[0].astype(np.longdouble) + parts[1])
    result = getattr(arithmetic, name)(*pairs)
    high, low = device.evaluate(graph, [result.high.id, result.low.id], inputs)
    want = getattr(np, {"mul": "multiply", "div": "divide"}.get(name, name))(*exact)
    off = np.abs(high.astype(np.longdouble) + low - want)
    assert (off <= (2.0**-43 if name == "div" else 2.0**-44) * np.abs(want)).all()
