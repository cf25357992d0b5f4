"""The arena: hash-consing, order, constants by their bits, and the life of a graph."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import struct
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Drawn, graphs, values

from symgrad.errors import SymgradError
from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.node import (
    CONST,
    LEAVES,
    Graph,
    Op,
    bits_float,
    float_bits,
    leaves,
    reachable,
    users,
)
from symgrad.expr.graph.verify import verify
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracing.trace import trace


def test_equal_nodes_are_one() -> None:
    graph = Graph()
    x, y = graph.input("x"), graph.input("y")
    assert graph.add(ops.add, x, y) == graph.add(ops.add, y, x)
    assert graph.add(ops.sub, x, y) != graph.add(ops.sub, y, x)
    assert graph.add(ops.sin, x) == graph.add(ops.sin, x) != graph.add(ops.sin, y)
    assert len(graph) == 7
    verify(graph)


def test_operators_share_nodes() -> None:
    t = trace(lambda v: (v[0] + v[1]) * 2 - 2 * (v[1] + v[0]), 2)
    left, right = t.graph.args(t.outputs[0])
    assert left == right


@given(graphs(25))
def test_random_graphs_hold_the_invariants(drawn: Drawn) -> None:
    verify(drawn.graph, [x.id for x in drawn.floats])


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 5e-324, 0.1])
def test_constants_are_keyed_by_their_bits(value: float) -> None:
    graph = Graph()
    i = graph.constant(value)
    assert graph.constant(float(str(value))) == i == graph.intern((CONST, float_bits(value)))
    assert struct.pack("<d", graph.value(i)) == struct.pack("<d", value)
    assert len(graph) == 1


def test_zeros_of_both_signs_differ() -> None:
    graph = Graph()
    assert len({graph.constant(v) for v in (0.0, -0.0, 1, 1.0, True)}) == 3


@given(st.integers(0, 2**64 - 1))
def test_bits_of_doubles(word: int) -> None:
    value = bits_float(word)
    assert math.isnan(value) or float_bits(value) == word


def test_what_nodes_say() -> None:
    graph = Graph()
    x = graph.input("x")
    c = graph.add(ops.lt, x, graph.constant(2.0))
    assert (graph.type(x), graph.type(c)) == ("f", "b")
    assert graph.args(c) == (x, 1) and graph.args(x) == ()
    assert graph.value(1) == 2.0 and graph.value(x) is None
    assert repr(graph) == "<Graph of 3 nodes, 1 inputs>"


def test_what_is_reachable_and_used() -> None:
    graph = Graph()
    x, y = graph.input("x"), graph.input("y")
    s = graph.add(ops.mul, x, x)
    graph.add(ops.sin, y)
    order = reachable(graph, [s, s])
    assert order == [x, s]
    assert users(graph, order) == {x: 2, s: 0}
    assert list(leaves(graph, order)) == [x]
    assert reachable(graph, []) == []


def test_every_row_has_its_name_in_the_table() -> None:
    assert set(LEAVES) <= set(ops.TABLE.values())
    for op in ops.TABLE.values():
        assert pickle.loads(pickle.dumps(op)) is op is copy.deepcopy(op)


def test_arity_and_result_come_from_the_signature() -> None:
    op = Op(name="f", signature="bff->f", reference=max)
    assert (op.arity, op.result, repr(op)) == (3, "f", "<op f>")


def test_a_graph_pickles() -> None:
    t = trace(lambda v: functions.where(v[0] > 0, v[0] ** 3, 1.5) + math.inf, 1)
    again = pickle.loads(pickle.dumps(t.graph))
    verify(again, t.outputs)
    assert again.nodes == t.graph.nodes
    assert again.add(ops.add, 0, t.outputs[0]) == len(t.graph)
    assert again.constant(1.5) < len(t.graph)
    assert [str(p) for p in again.sources] == [str(p) for p in t.graph.sources]


def test_a_graph_with_a_derivative_of_one_s_own_pickles_or_says_why_not() -> None:
    square = functions.custom_vjp(lambda x: x * x, lambda g, y, x: (g * x,))
    graph = trace(lambda v: square(v[0]), 1).graph
    try:
        stored = pickle.dumps(graph)
    except SymgradError:
        return
    assert len(pickle.loads(stored)) == len(graph)


def freed(make: Any) -> bool:
    """Whether a graph is freed by reference counting alone, once nobody holds it."""
    gc.collect()
    gc.disable()
    try:
        held = make()
        gone = weakref.ref(held.graph)
        assert gone() is not None
        del held
        return gone() is None
    finally:
        gc.enable()


def derived() -> Expr:
    t = trace(lambda v: functions.tanh(v @ v) + v[0] ** 2, 3)
    loss = Expr(t.graph, t.outputs[0])
    return verbs.grad(loss, [Expr(t.graph, i) for i in t.inputs])[0]


MAKERS = {
    "a trace": lambda: trace(lambda v: v[0] * 2, 1),
    "its gradient": derived,
    "a Hessian": lambda: verbs.hessian((e := derived()), [Expr(e.graph, 0)]).entries[0],
    "a derivative of one's own": lambda: trace(
        lambda v: functions.custom_vjp(lambda x: x * x, lambda g, y, x: (g,))(v[0]), 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
def test_a_graph_goes_with_its_last_handle(name: str) -> None:
    assert freed(MAKERS[name])


def test_an_expression_keeps_its_graph() -> None:
    e = derived()
    gc.collect()
    assert values(e.graph, [e.id], np.array([[0.1], [0.2], [0.3]])).shape == (1, 1)
