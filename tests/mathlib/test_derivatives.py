"""Derivatives in float32 against double: within 8 ULP on NumPy and on a GPU, 4 for most."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mpmath import mp

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.node import Graph
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.define import primitive

from .cases import BOUNDS, WORST_PAIRS, cancelling, grid, truth, ulps
from .test_gpu import exact

LIMITS = {
    "exp": 2, "exp2": 3.2, "expm1": 2, "log": 1, "log2": 2, "log10": 2, "log1p": 2,
    "sin": 2.5, "cos": 2.5, "tan": 7.1, "asin": 3, "acos": 3, "atan": 3, "atan2": 6, "hypot": 3,
    "sinh": 3, "cosh": 3, "tanh": 5.2, "asinh": 3, "acosh": 4, "atanh": 3,
    "erf": 3.5, "erfc": 3.5, "normal_cdf": 3.5, "sigmoid": 5, "softplus": 4, "logaddexp": 6.5,
    "cbrt": 5, "pow": 6,
    "log_ndtr": 3.5, "inverse_mills": 7.6, "erfinv": 4, "ndtri": 4.5, "xlogy": 2, "xlog1py": 2,
    "logit": 2.5, "log1mexp": 4, "gammaln": 3.2,
    "digamma": 3.2, "trigamma": 4, "tetragamma": 6, "pentagamma": 8,
    "ellipkm1": 4.4, "ellipe": 4, "elliptic_b": 4.7, "elliptic_d": 4.6,
}  # fmt: skip
"""The largest errors of any partial derivative, in ULP of values in the normal range."""

INEXACT = {
    "log10": 2.4,
    "tanh": 5.5,
    "sigmoid": 5.5,
    "xlog1py": 2.3,
    "ndtri": 4.8,
    "ellipkm1": 6,
    "ellipe": 5.6,
    "elliptic_b": 7.8,
    "elliptic_d": 6.4,
}
"""Those on an H200 that are larger: GPUs need not round quotients and roots correctly."""

SMALLEST, LARGEST = 2.0**-110, 2.0**125
"""Derivatives beyond may be made of numbers that are subnormal or infinite."""


def arguments(name: str) -> tuple[Any, ...]:
    """Those of the value's test, no base of a power negative."""
    given = grid(name, 5000)
    return (np.abs(given[0]), given[1]) if name == "pow" else given


def traced(name: str) -> tuple[Graph, list[int], list[int]]:
    graph = Graph()
    graph.tracing = False
    op = ops.TABLE[name]
    variables = [Expr(graph, graph.input(f"x{k}")) for k in range(op.arity)]
    y = op(*variables)
    return graph, [v.id for v in variables], [verbs.grad(y, v).id for v in variables]


def truths(name: str, given: tuple[Any, ...]) -> list[Any]:
    graph, variables, slopes = traced(name)
    inputs = {i: np.float64(a) for i, a in zip(variables, given, strict=True)}
    return evaluate_graph(graph, slopes, inputs, np.float64)


def check(name: str, given: tuple[Any, ...], got: list[Any], limit: float) -> None:
    for k, (slope, want) in enumerate(zip(got, truths(name, given), strict=True)):
        kept = (np.abs(want) > SMALLEST) & (np.abs(want) < LARGEST)
        if name == "hypot":  # that is not finite itself
            kept &= np.hypot(np.float64(given[0]), np.float64(given[1])) < 2.0**128
        errors = np.where(kept, ulps(slope, want), 0.0)
        at = int(np.argmax(errors))
        where = [float(a[at]) for a in given]
        assert errors[at] <= limit, (k, errors[at], where, slope[at], want[at])


@pytest.mark.parametrize("name", LIMITS)
def test_derivatives_on_numpy(name: str) -> None:
    graph, variables, slopes = traced(name)
    graph, slopes = simplify(graph, slopes, True, primitive("accurate"))
    given = arguments(name)
    inputs = dict(zip(variables, given, strict=True))
    check(name, given, evaluate_graph(graph, slopes, inputs, np.float32), LIMITS[name])


@pytest.mark.parametrize("name", LIMITS)
def test_derivatives_on_a_gpu(name: str) -> None:
    if not any(d.is_gpu for d in sg.devices()):
        pytest.skip("no GPU and no software Vulkan driver here")
    given = arguments(name)
    op = ops.TABLE[name]
    kernel = sg.fused_forward_backward(op.arity, lambda v: op(*v), device=0)
    _, slopes = kernel.run(np.stack(given, axis=1))
    limit = LIMITS[name] if exact() else max(LIMITS[name], INEXACT.get(name, 0.0))
    check(name, given, list(np.asarray(slopes).T), limit)


EXTREME: list[tuple[str, tuple[float, ...]]] = [
    ("exp2", (128.0,)), ("exp2", (128.4002,)), ("silu", (-87.38491,)), ("silu", (-91.5,)),
    ("pow", (-1.0487468, 2.8169718e-09)), ("pow", (0.99999994, 1.7444447e09)),
    ("pow", (-0.125, -256.0)), ("pow", (1.8417063e-38, -0.042928413)),
    ("pow", (2.5158684e38, 1.9947816)), ("pow", (-2.2920068e29, 3.6758885)),
    ("pow", (8.130094e-12, 3.4116085)),
    ("hypot", (-1.395117e38, -3.3472519e38)), ("hypot", (3.4028235e38, -1.0361159e35)),
    ("hypot", (3.4028235e38, -3.3201699e37)), ("remainder", (-2.716804e38, 1.8215143e38)),
    ("remainder", (1.9672826e-38, -2.661795e38)), ("remainder", (-2.0157565e09, -0.00011615568)),
    ("div", (-0.0074532144, -0.0019093374)),
]  # fmt: skip
"""Wrong arguments found by benchmarks/exhaustive.py, and some next to them."""


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", [n for n in WORST_PAIRS if n in LIMITS])
def test_the_worst_pairs_are_within_the_bounds(name: str, device: str) -> None:
    """Values as well as derivatives, also those beyond which other tests do not look."""
    if device == "gpu" and not any(d.is_gpu for d in sg.devices()):
        pytest.skip("no GPU and no software Vulkan driver here")
    op, given = ops.TABLE[name], tuple(np.array(WORST_PAIRS[name], np.float32).T)
    kernel = sg.fused_forward_backward(2, lambda v: op(*v), device=0 if device == "gpu" else "cpu")
    values, slopes = kernel.run(np.stack(given, axis=1))
    errors = ulps(values, truth(name, *given), cancelling(name, given))
    assert np.max(errors) <= BOUNDS[name][1]
    for slope, want in zip(slopes.T, truths(name, given), strict=True):
        assert np.max(ulps(slope, want)) <= 8.0, (slope, want)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(("name", "point"), EXTREME)
def test_what_was_wrong_is_right(name: str, point: tuple[float, ...], device: str) -> None:
    if device == "gpu" and not any(d.is_gpu for d in sg.devices()):
        pytest.skip("no GPU and no software Vulkan driver here")
    op = ops.TABLE[name]
    x = np.array([point], np.float32)
    kernel = sg.fused_forward_backward(
        op.arity, lambda v: op(*v), device=0 if device == "gpu" else "cpu"
    )
    slopes = kernel.run(x)[1].ravel()
    want = np.array([np.ravel(w)[0] for w in truths(name, tuple(x.T))])
    largest = np.abs(want) > np.finfo(np.float32).max
    want = np.where(largest, np.copysign(np.inf, want), want)
    np.testing.assert_allclose(slopes, want, rtol=2.0**-16, atol=2.0**-120)


CONSTANT_BASES = [
    (1.4122177, 259.64398), (0.5, -128.4), (0.99999994, -1.5e9), (1.0001, 900000.0),
    (1e38, -0.99999), (3e-38, 1.0001),
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(("base", "exponent"), CONSTANT_BASES)
def test_powers_of_constants_overflow_before_their_slopes(
    base: float, exponent: float, device: str
) -> None:
    if device == "gpu" and not any(d.is_gpu for d in sg.devices()):
        pytest.skip("no GPU and no software Vulkan driver here")
    base, exponent = (float(np.float32(v)) for v in (base, exponent))
    kernel = sg.fused_forward_backward(
        1, lambda v: base ** v[0], device=0 if device == "gpu" else "cpu"
    )
    slope = kernel.run(np.array([[exponent]], np.float32))[1].item()
    assert slope == pytest.approx(base**exponent * math.log(base), rel=2.0**-16)


@pytest.mark.parametrize("point", [(5e-39, 0.0), (1e-42, 0.0), (0.0, -4e-39), (1e-45, 3e-39)])
def test_angles_of_subnormals(point: tuple[float, float]) -> None:
    """The sums of squares are far below the range, and so is what the largest is the inverse of."""
    y, x = (float(np.float32(v)) for v in point)
    kernel = sg.fused_forward_backward(2, lambda v: sg.atan2(v[0], v[1]), device="cpu")
    slopes = kernel.run(np.array([point], np.float32))[1].ravel()
    with np.errstate(over="ignore"):
        want = np.array([x / (y * y + x * x), -y / (y * y + x * x)]).astype(np.float32)
    np.testing.assert_allclose(slopes, want, rtol=2.0**-16)


POWERS = [k for k in range(-15, 19) if abs(k) > 1]


@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", "float32"), ("cpu", "float64"), (0, "float32")]
)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_of_all_integer_powers(device: Any, dtype: Any, order: int) -> None:
    """Those of x**-k may be x**-k times 1/x: two roundings more, and one of the factor k."""
    if device == 0 and not any(d.is_gpu for d in sg.devices()):
        pytest.skip("no GPU and no software Vulkan driver here")

    def derivatives(v: Any) -> list[Any]:
        found = []
        for k in POWERS:
            y = v[0] ** k
            for _ in range(order):
                y = sg.grad(y, v[0])
            found.append([v[0] ** k, y])
        return found

    random = np.random.default_rng(5)
    x = (random.uniform(0.5, 2.0, 300) * random.choice([-1.0, 1.0], 300)).astype(dtype)
    found = sg.fused_forward(1, derivatives, device=device, dtype=dtype).run(x[:, None])
    for k, (_, slopes) in zip(POWERS, found, strict=True):
        factor = math.prod(k - i for i in range(order))
        with mp.workdps(40):
            true = [factor * mp.mpf(float(v)) ** (k - order) for v in x]
            spacing = np.spacing(np.abs(np.array(true, dtype=float)).astype(dtype))
            errors = [
                float(abs(mp.mpf(float(f)) - t) / mp.mpf(float(s)))
                for f, t, s in zip(np.broadcast_to(slopes, x.shape), true, spacing, strict=True)
            ]
        assert max(errors) <= 5.1, (k, max(errors))
