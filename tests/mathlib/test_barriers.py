"""What compilers must not see through: divisors that they may know to be 0, and little else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, inputs_of, reachable
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.barriers import DIVISIONS, Vanishing, with_barriers
from symgrad.mathlib.define import Math, functions


def body(f: Callable[[Any], Any], math: Math) -> str:
    """The statements of a kernel's loss and gradient, without its functions and comments."""
    source = sg.fused_forward_backward(3, f, device="cpu", math=math).wgsl
    return re.sub(r"//.*", "", source[source.index("fn main") :])


ORDINARY: dict[str, Callable[[Any], Any]] = {
    "an input": lambda v: v[0] / v[1],
    "a reciprocal": lambda v: 1.0 / v[0],
    "a product": lambda v: v[0] / (v[1] * v[2]),
    "a multiple": lambda v: v[0] / (3.0 * v[1]) + v[0] / (v[1] * 1e-15),
    "a sum of two inputs": lambda v: v[0] / (v[1] + v[2]),
    "a difference": lambda v: v[0] / (v[1] - 2.0) + 1.0 / (v[1] - v[2]),
    "a positive sum": lambda v: v[0] / (1.0 + v[0] * v[0]) + v[1] / (v[1] * v[1] + 1e-8),
    "a norm": lambda v: v[0] / sg.sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]),
    "a power": lambda v: v[0] / (v[0] * v[0] * v[0]) + 2.0 / sg.abs(-v[1]),
    "an exponential": lambda v: v[0] / sg.exp(v[1]) + 1.0 / (1.0 + sg.exp(-v[2])),
    "a softmax": lambda v: sg.exp(v[0]) / (sg.exp(v[0]) + sg.exp(v[1]) + sg.exp(v[2])),
    "functions of one input": lambda v: v[0] / (sg.sin(v[1]) + 2.0) + 1.0 / sg.log(v[2]),
    "a square root": lambda v: sg.sqrt(v[0]) + sg.rsqrt(v[1]),
}


@pytest.mark.parametrize("math", ["accurate", "fast"])
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_divisors_stay_as_they_are(name: str, math: Math) -> None:
    assert "params.zero" not in body(ORDINARY[name], math)


FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "0": lambda x, y: 0.0,
    "-0": lambda x, y: -0.0,
    "underflow": lambda x, y: 1e-50,
    "0*x": lambda x, y: 0.0 * x,
    "x-x": lambda x, y: x - x,
    "underflow of products": lambda x, y: x * 1e-30 * 1e-30,
    "underflow of quotients": lambda x, y: x * 1e-30 / 1e30,
    "cancelled sums": lambda x, y: (x + y) - x - y,
    "cancelled products": lambda x, y: x * y - y * x * 1.0,
    "distributed": lambda x, y: x * (y + 1.0) - x * y - x,
    "a function of 0": lambda x, y: sg.sin(0.0 * x),
    "an exponential that underflows": lambda x, y: sg.exp(0.0 * x - 200.0),
    "a logarithm of 1": lambda x, y: sg.log(0.0 * x + 1.0),
    "a root of 0": lambda x, y: sg.sqrt(0.0 * x),
    "chosen": lambda x, y: sg.where(y > 1e9, 0.0 * x, 0.0),
    "never chosen": lambda x, y: sg.where(x * x < 0.0, 1.0, 0.0),
    "whole numbers": lambda x, y: sg.floor(x) - sg.floor(sg.floor(x)),
    "the part of a whole number": lambda x, y: sg.fract(sg.floor(x)),
    "inverse functions": lambda x, y: sg.log(sg.exp(x)) - x,
    "a power of 0": lambda x, y: (0.0 * x) ** 2,
    "the larger": lambda x, y: sg.maximum(0.0 * x, 0.0),
    "negligible": lambda x, y: 1e-20 * (1e-20 * (x * y)),
}
"""Divisors that compilers may find to be 0, whatever x and y are."""


LAST = (ops.div, ops.reciprocal)


@pytest.mark.parametrize("math", ["accurate", "fast", "strict"])
@pytest.mark.parametrize("simplify", [True, False])
@pytest.mark.parametrize("name", FOLDED)
def test_divisors_that_may_be_known_to_be_0_are_opaque(
    name: str, simplify: bool, math: Math
) -> None:
    made = sg.fused_forward(
        2, lambda v: [v[0] / FOLDED[name](v[0], v[1])], device="cpu", math=math, simplify=simplify
    )
    graph = made._computation.graph
    divisor = [node[-1] for node in graph.nodes if node[0] in LAST][-1]
    assert graph.nodes[divisor][0] is ops.opaque


@pytest.mark.parametrize("math", ["accurate", "fast", "strict"])
def test_functions_may_be_called_with_constants(math: Math) -> None:
    """So their divisors are positive or opaque, but those of division itself."""
    for op, f in functions(math).items():
        vanishing = Vanishing(f.graph, variable=op in DIVISIONS)
        for i in reachable(f.graph, [f.root]):
            node = f.graph.nodes[i]
            assert node[0] not in DIVISIONS or not vanishing.possible(node[-1]), op.name


def test_what_a_number_is_beside_itself_is_said_by_its_bits() -> None:
    graph = Graph()
    graph.tracing = False
    x = Expr(graph, graph.input("x"))
    y = ops.where(ops.eq(x, x) & ops.le(x, x), ops.sub(x, x), ops.div(x, x))
    made, roots = with_barriers(graph, [y.id], "fast")
    heads = {made.nodes[i][0] for i in reachable(made, roots)}
    assert not heads & {ops.eq, ops.le, ops.sub, ops.div}
    given = np.array([0.0, 2.0, np.inf, -np.inf, np.nan, -1e-40], np.float32)
    with np.errstate(all="ignore"):
        (want,), (got,) = (
            evaluate_graph(g, r, {inputs_of(g)[0]: given}, np.float32)
            for g, r in ((graph, [y.id]), (made, roots))
        )
    np.testing.assert_array_equal(got, want)


WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "fract": lambda x, c: sg.fract(x) + c,
    "floor": lambda x, c: (x - sg.floor(x)) - c,
    "ceil": lambda x, c: c - (sg.ceil(x) - x),
    "round": lambda x, c: -(x - sg.round(x)) + c,
    "trunc": lambda x, c: c + (x - sg.trunc(x)) * 2.0,
    "periods": lambda x, c: (x - 0.5 * sg.floor(x / 0.5)) + c,
    "negative": lambda x, c: (x + -sg.floor(x)) + c,
    "a function": lambda x, c: sg.sin(x - sg.floor(x)) + c,
}


@pytest.mark.parametrize("name", WHOLE)
def test_digits_below_whole_numbers_are_kept_on_every_device(name: str) -> None:
    """Added to something else, x - floor(x) was taken apart: 1.6484 at 1e5, 2.0 at 1e7."""
    x = np.array([1e5, 123456.7, -3e5 + 0.25, 1e7, 2.0**22 + 0.5, 0.3], np.float32)
    c = np.array([1.65, 0.1, 3.3, 1.65, 1e-3, 7.7], np.float32)
    points = np.stack([x, c], axis=1)
    f = lambda v: [WHOLE[name](v[0], v[1])]  # noqa: E731
    (want,) = sg.fused_forward(2, f, device="cpu", dtype="float64").run(points)
    for device in sg.devices():
        (got,) = sg.fused_forward(2, f, device=device).run(points)
        np.testing.assert_allclose(got, want, rtol=1e-6)


CHOICES: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "the smaller": (lambda x, y: sg.where(x < y, x, y), True),
    "the larger": (lambda x, y: sg.where(x < y, y, x), True),
    "not the smaller": (lambda x, y: sg.where(~(x <= y), x, y), True),
    "the larger of a constant": (lambda x, y: sg.where(x > 0.5, x, 0.5), True),
    "another number": (lambda x, y: sg.where(x < y, x, 2.0 * y), False),
    "by equality": (lambda x, y: sg.where(x == y, x, y), False),
    "a minimum": (sg.minimum, False),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_of_the_smaller_is_no_minimum(name: str) -> None:
    """Compilers of GPUs make a minimum of it, which drops a NaN: where(x < nan, x, nan) was x."""
    f, hidden = CHOICES[name]
    kernel = sg.fused_forward(2, lambda v: f(v[0], v[1]), device="cpu")
    assert ("params.zero" in kernel.wgsl.split("fn main")[1]) == hidden
