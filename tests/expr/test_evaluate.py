"""The interpreter: the meaning of every row, in both precisions, in little memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from strategies import OPS, random_graph, types

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INTEGER, TRUTH, WORD, Graph, Op, float_bits
from symgrad.expr.semantics.evaluate import evaluate_graph, fold, leaf
from symgrad.expr.tracers.expression import Expr


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", [o for o in OPS if not o.compose], ids=lambda o: o.name)
def test_rows(op: Op, dtype: Any) -> None:
    graph = Graph()
    args, inputs = [], {}
    for k, (kind, value) in enumerate(zip(types(op), op.points[0], strict=True)):
        if kind == "f":
            args.append(graph.input(f"x{k}"))
            inputs[args[-1]] = np.full(4, value, dtype)
        else:
            args.append(graph.intern((TRUTH if kind == "b" else INTEGER, int(value))))
    i = graph.intern((op, *args))
    (found,) = evaluate_graph(graph, [i], inputs, dtype)
    kinds = {"f": dtype, "b": np.bool_, "i": np.int32}
    with np.errstate(all="ignore"):
        arguments = [np.full(4, kinds[k](v)) if k == "f" else kinds[k](v)
                     for k, v in zip(types(op), op.points[0], strict=True)]  # fmt: skip
        expected = (
            np.broadcast_to(op.reference(*arguments), (4,)) if inputs else op.reference(*arguments)
        )
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == (dtype if op.result == "f" else np.bool_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(20))
def test_the_type_stays(seed: int, dtype: Any) -> None:
    drawn = random_graph(seed, size=30)
    at = {i: np.linspace(0.1, 2, 5).astype(dtype) for i in drawn.ids}
    assert {
        a.dtype for a in evaluate_graph(drawn.graph, [x.id for x in drawn.floats], at, dtype)
    } == {np.dtype(dtype)}


def test_constants_alone_are_broadcast() -> None:
    graph = Graph()
    x = graph.input("x")
    roots = [graph.constant(3.0), x, graph.constant(3.0)]
    found = evaluate_graph(graph, roots, {x: np.arange(4.0)})
    assert [f.tolist() for f in found] == [[3.0] * 4, [0, 1, 2, 3], [3.0] * 4]
    assert evaluate_graph(graph, [roots[0]], {})[0].shape == (1,)


def test_an_empty_batch() -> None:
    graph = Graph()
    x = graph.input("x")
    assert evaluate_graph(graph, [graph.add(ops.sin, x), graph.constant(1.0)], {x: np.zeros(0)})[
        1
    ].shape == (0,)


def test_no_warnings(recwarn: pytest.WarningsRecorder) -> None:
    graph = Graph()
    x = graph.input("x")
    roots = [graph.add(op, x) for op in (ops.log, ops.sqrt, ops.reciprocal, ops.exp, ops.acosh)]
    roots.append(graph.add(ops.mul, x, graph.constant(1e300)))
    evaluate_graph(
        graph, roots, {x: np.array([-1, 0, np.inf, np.nan, 1e38], np.float32)}, np.float32
    )
    assert not recwarn.list


def test_leaves() -> None:
    assert leaf((CONST, float_bits(0.1)), np.float32) == np.float32(0.1)
    assert leaf((CONST, float_bits(1e300)), np.float32) == np.inf
    assert leaf((TRUTH, 1), np.float64) is np.True_
    assert leaf((INTEGER, -3), np.float64).dtype == np.int32
    assert leaf((WORD, 0x80000000), np.float64) == np.uint32(0x80000000)


def test_folding_is_done_in_double_and_gives_python_s_numbers() -> None:
    third = (CONST, float_bits(1 / 3))
    found = fold(ops.add, (third, third))
    assert type(found) is float and found == 2 / 3
    assert fold(ops.lt, (third, third)) is False
    assert math.isnan(fold(ops.log, ((CONST, float_bits(-1.0)),)))
    assert fold(ops.integer_pow, (third, (INTEGER, 2))) == (1 / 3) ** 2


def test_memory_stays_at_the_width_of_the_graph() -> None:
    alive, most = 0, 0

    class Counted(np.ndarray):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def reference(a: Any) -> Any:
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        return (a + 1.0).view(Counted)

    op = Op(name="counted", signature="f->f", reference=reference)
    graph = Graph()
    x = graph.input("x")
    for _ in range(500):
        x = graph.add(op, x)
    (found,) = evaluate_graph(graph, [x], {0: np.zeros(3)})
    assert found[0] == 500.0 and most <= 4


def test_a_root_that_others_need_is_kept() -> None:
    graph = Graph()
    graph.tracing = False
    x = Expr(graph, graph.input("x"))
    y = x * 2.0
    z = ops.sin(y)
    a, b, c = evaluate_graph(graph, [y.id, z.id, y.id], {x.id: np.array([1.0])})
    assert a[0] == c[0] == 2.0 and b[0] == np.sin(2.0)
