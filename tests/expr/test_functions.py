"""The public functions: on expressions, arrays of them, and numbers."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from strategies import OPS, types

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.node import Graph, Op
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import ExprArray
from symgrad.expr.tracers.expression import Expr

PUBLIC = [
    op for op in OPS if hasattr(functions, op.name) and op not in (ops.pow, ops.stop_gradient)
]
OPERATORS = {
    "add", "sub", "mul", "div", "neg", "integer_pow", "pow", "lt", "le", "eq", "ne", "opaque",
    "exp_neg_square", "bell", "normal_cdf", "logistic",
    "silu_slope", "gelu_slope", "gelu_tanh_slope", "stop_gradient", "sinc_ratio",
    "trigamma", "tetragamma", "pentagamma",
    "one_minus_square", "pow_times", "direction",
    "real_reciprocal", "real_reciprocal_square", "sigmoid_difference", "logistic_difference",
    "inverse_mills", "mills_excess", "erfinv_slope", "ndtri_slope", "gamma_density", "j1_ratio",
    "beta_density", "exp_square", "elliptic_b", "elliptic_d", "gammainc_slope",
    "gammainc_bend", "betainc_slope_a", "betainc_slope_b",
    "faddeeva_real", "faddeeva_imag", "faddeeva_real_slope", "faddeeva_imag_slope",
    "faddeeva_real_bend", "faddeeva_imag_bend",
}  # fmt: skip
"""Rows that users write as operators, or reach by functions that take more, or never."""


def test_every_row_is_public_or_an_operator() -> None:
    assert {op.name for op in OPS} - {op.name for op in PUBLIC} <= OPERATORS


def variables(op: Op) -> list[Any]:
    graph = Graph()
    found = []
    for k, kind in enumerate(types(op)):
        x = Expr(graph, graph.input(f"x{k}"))
        found.append(x if kind == "f" else x > 0)
    return found


@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_on_expressions_arrays_and_numbers(op: Op) -> None:
    function = getattr(functions, op.name)
    point = op.points[0]
    args = variables(op)
    scalar, vector = function(*args), function(*[np.array([a, a]) for a in args])
    assert isinstance(scalar, Expr)
    assert isinstance(vector, ExprArray) and [e.id for e in vector] == [scalar.id] * 2
    given = {f"x{k}": v for k, v in enumerate(point)}
    value = scalar if op.result == "f" else functions.where(scalar, 1.0, 0.0)
    found = float(verbs.evaluate(value, given))
    numbers = function(*[bool(v) if k == "b" else v for k, v in zip(types(op), point, strict=True)])
    np.testing.assert_allclose(found, float(numbers), rtol=1e-15)
    again = function(*[np.full((2, 3), v) for v in point])
    assert again.shape == (2, 3)
    np.testing.assert_allclose(np.asarray(again, float), found, rtol=1e-15)


@pytest.mark.parametrize("op", [op for op in PUBLIC if op.arity == 2], ids=lambda op: op.name)
def test_expressions_mix_with_numbers_and_broadcast(op: Op) -> None:
    function = getattr(functions, op.name)
    x, y = variables(op)
    a, b = op.points[0]
    assert isinstance(function(x, b), Expr) and isinstance(function(a, y), Expr)
    grid = function(np.array([[x], [x]]), np.array([b, b, b]))
    assert grid.shape == (2, 3) and {e.id for e in grid.flat} == {function(x, b).id}


@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_the_wrong_number_of_arguments(op: Op) -> None:
    with pytest.raises(
        TraceError, match=rf"sg.{op.name} takes {op.arity} arguments?, not {2 * op.arity}"
    ):
        getattr(functions, op.name)(*variables(op), *variables(op))


@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_documentation(op: Op) -> None:
    text = inspect.getdoc(getattr(functions, op.name))
    assert text and text[0] == (op.meaning[0].upper())
    assert not op.edges or op.edges in text
    assert len(inspect.signature(getattr(functions, op.name)).parameters) == op.arity


@pytest.mark.parametrize(
    ("p", "row"),
    [
        (2, ops.integer_pow),
        (3.0, ops.integer_pow),
        (-1, ops.reciprocal),
        (0.5, ops.sqrt),
        (-0.5, ops.rsqrt),
        (2.5, ops.pow),
        (np.int64(4), ops.integer_pow),
        (1e10, ops.pow),
        (float("nan"), ops.pow),
    ],
)
def test_pow(p: Any, row: Op) -> None:
    graph = Graph()
    x = Expr(graph, graph.input("x"))
    assert graph.nodes[functions.pow(x, p).id][0] is row
    assert functions.pow(x, p).id == (x**p).id


def test_pow_of_arrays_and_numbers() -> None:
    graph = Graph()
    x = Expr(graph, graph.input("x"))
    assert functions.pow(np.array([x, x]), 2).shape == (2,)
    assert functions.pow(x, np.array([1.0, 2.0])).shape == (2,)
    assert functions.pow(2.0, 3) == 8.0
    assert graph.nodes[functions.pow(x, x).id][0] is ops.pow


def test_where_takes_numbers_as_conditions_as_numpy_does() -> None:
    graph = Graph()
    x = Expr(graph, graph.input("x"))
    assert verbs.evaluate(functions.where(x, 1.0, 2.0), {x: [0.0, 3.0]}).tolist() == [2.0, 1.0]
    assert functions.where(np.array([True, False]), x, 2.0).shape == (2,)


def test_custom_vjp_on_numbers_is_the_function() -> None:
    f = functions.custom_vjp(lambda x: x * x, lambda g, y, x: (g,))
    assert f(3.0) == 9.0
