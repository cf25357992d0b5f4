"""Every operation that LLVM knows, against its NumPy meaning, on vectors and on single numbers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Op
from symgrad.expr.tracers.expression import Expr
from symgrad.llvm.device.cpu import host
from symgrad.llvm.printing.operations import Shape, constant, steps_of
from symgrad.llvm.printing.source import CodeSizes

from .running import computation, emitted, run

LANES = host().vector_bits // 32
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-40, -3e38, 1e30, np.inf, -np.inf, np.nan, 7.25, 1e-3]
NATIVE = [op for op in ops.TABLE.values() if op.llvm and op.signature in ("f->f", "ff->f")]
TESTS = [op for op in ops.TABLE.values() if op.llvm and op.signature in ("f->b", "ff->b")]
LIBM = (ops.exp, ops.exp2, ops.log, ops.log2, ops.sin, ops.cos, ops.tan)
SCALED = (ops.scalb, ops.exponent, ops.significand)


def arguments(op: Op) -> np.ndarray:
    """All pairs of edges, and as many random numbers; whole exponents, normal numbers."""
    draw = np.random.default_rng(0)
    edges = list(itertools.product(EDGES, repeat=op.arity))
    drawn = draw.normal(scale=10.0, size=(300, op.arity))
    if op in SCALED:
        edges, drawn[:, 1:] = [], np.round(drawn[:, 1:])
    if op is ops.power_of_two:
        edges, drawn = [], np.round(drawn)
    if op is ops.saturate:  # of NaN it may make any number
        edges = [edge for edge in edges if not np.isnan(edge).any()]
    return np.concatenate([np.reshape(edges, (-1, op.arity)), drawn]).astype(np.float32)


def evaluated(op: Op, points: np.ndarray, shape: Shape) -> np.ndarray:
    """The operation at whole blocks of points; a condition as 1 or 0."""
    graph = Graph()
    graph.tracing = False
    values = [Expr(graph, graph.input(f"x{k}")) for k in range(op.arity)]
    result = op(*values)
    if op.result == "b":
        result = ops.where(result, 1.0, 0.0)
    return run(computation(graph, [result.id]), shape, points)[0][:, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", [*NATIVE, *TESTS], ids=lambda op: op.name)
def test_operation_means_what_numpy_says(op: Op, dtype: str) -> None:
    points = arguments(op)
    points = points[: len(points) // LANES * LANES].astype(dtype)
    with np.errstate(all="ignore"):
        want = np.asarray(op.reference(*points.T)).astype(dtype)
    lanes = LANES if dtype == "float32" else LANES // 2
    many = evaluated(op, points, Shape(dtype, lanes, True))
    one = evaluated(op, points, Shape(dtype, 1, True))
    np.testing.assert_array_equal(many, one)
    np.testing.assert_array_equal(np.isnan(many), np.isnan(want))
    ulp = 2.0 if op in (*LIBM, ops.rsqrt) else 0.0
    with np.errstate(invalid="ignore"):
        error = np.where(many == want, 0.0, np.abs(many - want)) / np.spacing(np.abs(want))
    assert np.nanmax(error) <= ulp
    signs = np.signbit(many) == np.signbit(want)
    assert signs[~np.isnan(want)].all() or op is ops.saturate


def test_powers_of_two_are_the_same_bits_in_vectors_to_both_ends() -> None:
    draw = np.random.default_rng(0)
    k = np.tile(np.round(np.linspace(-1100.0, 1040.0, 1071)), 8)
    points = np.stack([draw.uniform(0.5, 2.0, k.size), k], axis=1)
    points[:LANES, 0] = np.nan
    points = points[: len(points) // LANES * LANES]
    with np.errstate(all="ignore"):
        want = np.ldexp(points[:, 0], points[:, 1].astype(int))
    for shape in (host().shape("float64", True), Shape("float64", LANES // 2, True),
                  Shape("float64", 1, True)):  # fmt: skip
        np.testing.assert_array_equal(evaluated(ops.scalb, points, shape), want)


def test_instructions_of_a_cpu_are_used_where_it_has_them_alone() -> None:
    assert "avx512" in steps_of(ops.scalb, Shape("float64", 8, True, avx512=True))[0].text
    for shape in (Shape("float64", 8, True), Shape("float64", 16, True, avx512=True),
                  Shape("float32", 8, True, avx512=True)):  # fmt: skip
        assert not any("x86" in step.text for step in steps_of(ops.scalb, shape))


@pytest.mark.parametrize("value", [0.1, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4028235e38])
@pytest.mark.parametrize("lanes", [1, LANES])
def test_constants_are_rounded_once(value: float, lanes: int) -> None:
    graph = Graph()
    graph.tracing = False
    graph.input("x")
    made = computation(graph, [graph.constant(value)])
    points = np.zeros((LANES, 1), np.float32)
    (found,) = run(made, Shape("float32", lanes, True), points)
    assert np.all(found.view(np.uint32) == np.float32(value).view(np.uint32))


def test_constants_of_every_type() -> None:
    graph = Graph()
    shape = Shape("float64", 8, True)
    assert constant(graph.nodes[graph.constant(0.5)], shape) == "splat (double 0x3FE0000000000000)"
    assert constant(graph.nodes[graph.constant(0.5)], Shape("float32", 1, True)) == (
        "0x3FE0000000000000"
    )


def product_and_sum(times: int, minus: bool) -> tuple[Graph, int]:
    graph = Graph()
    graph.tracing = False
    a, b, c = (Expr(graph, graph.input(n)) for n in "abc")
    product = a * b
    result = product - c if minus else c - product
    return graph, (result * product if times > 1 else result).id


@pytest.mark.parametrize("minus", [True, False])
def test_a_lone_product_is_fused_into_its_sum(minus: bool) -> None:
    graph, root = product_and_sum(1, minus)
    made = computation(graph, [root])
    x = np.array([[1.0 + 2.0**-12, 1.0 + 2.0**-12, 1.0]], np.float32)
    fused, plain = (run(made, Shape("float32", 1, fused), x)[0][0, 0] for fused in (True, False))
    exact = float(x[0, 0]) ** 2 - 1.0
    assert abs(fused) == np.float32(exact)
    assert abs(plain) == np.float32(np.float32(float(x[0, 0]) ** 2) - 1.0)
    assert fused != plain


def test_a_shared_product_is_not() -> None:
    graph, root = product_and_sum(2, True)
    text = emitted(computation(graph, [root]), Shape("float32", 1, True)).text
    assert "fma" not in text
    assert text.count("fmul") == 2


@pytest.mark.parametrize("lanes", [1, LANES])
def test_values_of_long_code_have_numbers_in_the_order_of_their_making(lanes: int) -> None:
    """Operations of several instructions, fused and negated ones, across functions."""
    graph = Graph()
    graph.tracing = False
    x, y = (Expr(graph, graph.input(name)) for name in "xy")
    results = [op(*(x, y)[: op.arity]) for op in NATIVE]
    results += [a * y - b for a, b in itertools.pairwise(results)]
    results += [a - b * y for a, b in itertools.pairwise(results[: len(NATIVE)])]
    made, shape = computation(graph, [r.id for r in results]), Shape("float32", lanes, True)
    points = np.random.default_rng(0).uniform(0.1, 0.9, (LANES, 2)).astype(np.float32)
    whole = run(made, shape, points)[0]
    shape = replace(shape, sizes=CodeSizes(10, 10, 7))
    text = emitted(made, shape).text
    assert "@part9(" in text and "%t" not in text[text.index("@part0(") :]
    np.testing.assert_array_equal(run(made, shape, points)[0], whole)
