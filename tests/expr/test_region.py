"""Regions: closing them, equal loops, pickles, and what verification finds in them."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.expr.graph.arrays import ADD_AT, EMPTY, GET, PUT, ZEROS, length
from symgrad.expr.graph.node import HOLES, INPUTS, WORD, Graph
from symgrad.expr.graph.region import (
    TURNS,
    Choice,
    Loop,
    Region,
    choice_op,
    close,
    hole,
    loop_op,
    pick,
    regions,
)
from symgrad.expr.graph.verify import faults, verify
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.semantics.evaluate import evaluate_graph


def word(graph: Graph, n: int) -> int:
    return graph.intern((WORD, n))


def powers(graph: Graph, x: int, iterations: int = 3) -> Loop:
    """The loop y <- y * x + k, with x from outside."""
    k, y = hole(graph, "u", name="k"), hole(graph, "f", name="y")
    then = graph.add(ops.add, graph.add(ops.mul, y, x), graph.add(ops.word_float, k))
    region, captured = close(graph, [k, y], [then], capture=lambda i: i == x)
    assert captured == [x]
    return loop_op(region, 1, most=iterations)


def program(iterations: int = 3) -> tuple[Graph, int, int]:
    """A graph, its input, and what the loop makes of it."""
    graph = Graph()
    graph.tracing = False
    x = graph.input("x")
    made = graph.add(powers(graph, x, iterations), word(graph, 0), word(graph, iterations), x, x)
    return graph, x, pick(graph, made, 0, "f")


def expected(x: np.ndarray, iterations: int = 3) -> np.ndarray:
    y = x
    for k in range(iterations):
        y = y * x + k
    return y


def test_parameters_are_the_inputs_of_a_region() -> None:
    graph = Graph()
    body = powers(graph, graph.input("x")).body
    assert body.graph.names == ["k", "y", "x"]
    assert [body.graph.nodes[i] for i in body.params] == [
        (INPUTS["u"], 0), (INPUTS["f"], 1), (INPUTS["f"], 2),
    ]  # fmt: skip
    verify(body.graph, body.yields)


def test_equal_loops_are_one_operation_of_a_program() -> None:
    graph = Graph()
    x = graph.input("x")
    assert powers(graph, x) is powers(graph, x)
    assert powers(graph, x) is not powers(graph, x, iterations=4)
    other = Graph()
    assert powers(other, other.input("x")) is not powers(graph, x)  # their lines are others


def test_an_operation_lives_as_long_as_its_graphs() -> None:
    graph, _, root = program()
    seen = weakref.ref(graph.nodes[graph.nodes[root][1]][0])
    assert seen() is not None
    del graph
    gc.collect()
    assert seen() is None


def test_a_pickle_holds_regions() -> None:
    graph, x, root = program()
    copy = pickle.loads(pickle.dumps(graph))
    verify(copy, [root])
    at = np.linspace(-1, 1, 5)
    np.testing.assert_array_equal(evaluate_graph(copy, [root], {x: at})[0], expected(at))
    assert [node[0].name for node in copy.nodes] == [node[0].name for node in graph.nodes]


def test_array_rows_are_themselves_in_a_pickle() -> None:
    for op in (ZEROS, EMPTY, GET, PUT, ADD_AT, *INPUTS.values(), *HOLES.values()):
        assert pickle.loads(pickle.dumps(op)) is op


def test_evaluation_of_a_loop() -> None:
    graph, x, root = program(5)
    at = np.linspace(-2, 2, 9)
    np.testing.assert_array_equal(evaluate_graph(graph, [root], {x: at})[0], expected(at, 5))


@pytest.mark.parametrize("down", [False, True])
def test_each_point_takes_its_own_turns(down: bool) -> None:
    graph = Graph()
    x, n = graph.input("x"), graph.input("n")
    k, y = hole(graph, "u"), hole(graph, "f")
    then = graph.add(ops.sub, graph.add(ops.word_float, k), graph.add(ops.mul, y, x))
    body, captured = close(graph, [k, y], [then], capture=lambda i: i == x)
    last = graph.add(ops.nearest_word, n)
    op = loop_op(body, 1, down=down)
    made = graph.add(op, word(graph, 2), last, x, *captured)
    ends = pick(graph, made, 0, "f"), graph.add(ops.word_float, pick(graph, made, TURNS, "u"))
    verify(graph, ends)
    bounds = np.array([0, 2, 3, 5, 9.0])
    at = np.array([0.5, 0.25, 1.5, -1.0, 2.0])
    got = evaluate_graph(graph, ends, {x: at, n: bounds})
    for j, (value, bound) in enumerate(zip(at, bounds, strict=True)):
        iterations = list(range(2, int(bound)))
        want = value
        for t in reversed(iterations) if down else iterations:
            want = t - want * value
        assert (got[0][j], got[1][j]) == (want, len(iterations))


def test_a_loop_with_a_test_ends_where_it_does_not_hold() -> None:
    """The turn is not taken whose test fails, and arrays are as the last turn left them."""
    graph = Graph()
    x = graph.input("x")
    k, y, a = hole(graph, "u"), hole(graph, "f"), hole(graph, "F", 4)
    goes_on = graph.add(ops.lt, y, graph.constant(10.0))
    put = graph.add(PUT, a, k, y)
    body, captured = close(
        graph, [k, y, a], [graph.add(ops.mul, y, x), put, goes_on], capture=lambda i: i == x
    )
    op = loop_op(body, 2, test=True, most=4)
    made = graph.add(op, word(graph, 0), word(graph, 4), x, graph.intern((ZEROS, 4)), *captured)
    ends = [pick(graph, made, 0, "f"), pick(graph, made, 1, "F"), pick(graph, made, TURNS, "u")]
    verify(graph, ends)
    assert length(graph, ends[1]) == 4
    y, kept, iterations = evaluate_graph(graph, ends, {x: np.array([2.0, 20.0, 1.5])})
    np.testing.assert_array_equal(y, [16, 20, 1.5**5])
    np.testing.assert_array_equal(kept.T, [[2, 4, 8, 0], [0] * 4, [1.5, 1.5**2, 1.5**3, 1.5**4]])
    np.testing.assert_array_equal(iterations, [3, 0, 4])


def test_versions_of_an_array_do_not_change_each_other() -> None:
    graph = Graph()
    x = graph.input("x")
    empty, one, zero = graph.intern((ZEROS, 3)), word(graph, 1), word(graph, 0)
    first = graph.add(PUT, empty, zero, x)
    second, third = graph.add(ADD_AT, first, zero, x), graph.add(PUT, first, one, x)
    beyond = graph.add(GET, third, word(graph, 9))  # past the end is the last one
    roots = [first, second, third, empty, beyond]
    got = evaluate_graph(graph, roots, {x: np.array([5.0])})
    assert [v.ravel().tolist() for v in got] == [[5, 0, 0], [10, 0, 0], [5, 5, 0], [0, 0, 0], [0]]


def test_swapped_arrays_of_a_loop_stay_apart() -> None:
    graph = Graph()
    x = graph.input("x")
    k, a, b = hole(graph, "u"), hole(graph, "F", 2), hole(graph, "F", 2)
    body, _ = close(graph, [k, a, b], [b, graph.add(ADD_AT, a, k, graph.constant(1.0))])
    start = graph.add(PUT, graph.intern((ZEROS, 2)), word(graph, 0), x)
    made = graph.add(loop_op(body, 2), word(graph, 0), graph.add(ops.nearest_word, x), start, start)
    ends = [pick(graph, made, j, "F") for j in (0, 1)]
    got = evaluate_graph(graph, ends, {x: np.array([0.0, 1.0, 2.0])})
    np.testing.assert_array_equal(got[0].T, [[0, 0], [1, 0], [3, 0]])
    np.testing.assert_array_equal(got[1].T, [[0, 0], [2, 0], [2, 1]])


def test_a_choice_computes_the_side_that_is_taken() -> None:
    graph = Graph()
    x = graph.input("x")
    sides = [graph.add(ops.reciprocal, x), graph.add(ops.neg, x)]
    body, captured = close(graph, [], sides, capture=lambda i: i == x)
    op = choice_op(body, 1)
    made = graph.add(op, graph.add(ops.ne, x, graph.constant(0.0)), *captured)
    root = pick(graph, made, 0, "f")
    verify(graph, [root])
    got = evaluate_graph(graph, [root], {x: np.array([2.0, 0.0])})[0]
    np.testing.assert_array_equal(got, [0.5, -0.0])
    assert isinstance(op, Choice)
    assert [r is body for r in regions(graph, [root])] == [True]


def test_simplification_sees_an_operation_like_others() -> None:
    graph, x, root = program(9)  # too many iterations to be written out
    twice = graph.add(ops.neg, graph.add(ops.neg, root))
    made, [new] = simplify(graph, [twice])
    verify(made, [new])
    assert made.nodes[new][0] is graph.nodes[root][0]
    at = np.linspace(-1, 1, 5)
    np.testing.assert_array_equal(evaluate_graph(made, [new], {x: at})[0], expected(at, 9))


def test_parameters_of_a_region_are_no_constants_to_simplification() -> None:
    """Its words and truths are leaves that are not folded."""
    graph = Graph()
    k, c = hole(graph, "u"), hole(graph, "b")
    root = graph.add(ops.where, c, graph.add(ops.word_float, k), graph.constant(2.0))
    body, _ = close(graph, [k, c], [root])
    made, [new] = simplify(body.graph, body.yields)
    assert made.nodes[new][0] is ops.where
    assert made.names == body.graph.names
    inputs = {i: np.array([5]) for i in body.params}
    assert evaluate_graph(made, [new], inputs)[0] == 5.0


def test_verification_looks_into_regions() -> None:
    graph, *_ = program()
    assert list(faults(graph)) == []
    body = powers(graph, 0).body
    wrong = graph.add(
        loop_op(Region(body.graph, body.params, (0,)), 1), *[word(graph, 0)] * 2, 0, 0
    )
    assert any("but u is yielded" in fault for fault in faults(graph))
    pick(graph, wrong, 7, "f")
    assert any("is no result" in fault for fault in faults(graph))


def test_an_open_leaf_is_no_parameter() -> None:
    graph = Graph()
    k, y, other = hole(graph, "u"), hole(graph, "f"), hole(graph, "f")
    with pytest.raises(AssertionError, match="is open"):
        close(graph, [k, y], [graph.add(ops.add, y, other)])
