"""What simplification makes of loops and choices: the laws of regions, and loops that are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from looped import array

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.arrays import GET, PUT
from symgrad.expr.graph.node import Graph, Op, inputs_of, reachable
from symgrad.expr.graph.rebuild import outline, rebuild
from symgrad.expr.graph.region import Choice, Loop, regions
from symgrad.expr.graph.verify import verify
from symgrad.expr.laws.simplify import Level, simplify
from symgrad.expr.loops.control import cond, fori_loop, while_loop
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracing.trace import trace

POINTS = np.array([[0.5, -1.25, 2.0, 0.0], [1.0, 0.25, -2.0, 1.5]])


def simplified(f: Callable[[Any], Any], level: Level = True) -> Graph:
    """The simplified graph of a function, which gives the same numbers, bit by bit."""
    made = trace(f, 2)
    graph, roots = simplify(made.graph, made.outputs, level)
    verify(graph, roots)
    for region in regions(graph, roots):
        verify(region.graph, region.yields)
    want = values(made.graph, made.outputs)
    np.testing.assert_array_equal(values(graph, roots), want)
    return rebuild(graph, reachable(graph, roots), outline(graph)).graph


def values(graph: Graph, roots: Sequence[int]) -> np.ndarray:
    return np.array(evaluate_graph(graph, roots, dict(zip(inputs_of(graph), POINTS, strict=True))))


def found(graph: Graph, kind: type[Op]) -> list[Any]:
    return [node[0] for node in graph.nodes if isinstance(node[0], kind)]


def heads(graph: Graph) -> list[Op]:
    return [node[0] for node in graph.nodes]


def step(_: Any, x: Any) -> Any:
    return sg.sin(x) + 0.5 * x


# --- loops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [False, True, "real"])
def test_a_loop_of_constants_is_a_constant(level: Level) -> None:
    def f(v: Any) -> Any:
        inner = lambda k, c: (sg.tanh(c[0]) + k, c[1] + v[0])  # noqa: E731
        return v[1] * fori_loop(2, 9, inner, (2.0, v[1]))[0]

    graph, want = simplified(f, level), 2.0
    for k in range(2, 9):
        want = np.tanh(want) + k
    assert not found(graph, Loop)
    assert any(graph.value(i) == pytest.approx(want, rel=1e-14) for i in range(len(graph)))


def test_loops_of_constants_within_loops_are_constants() -> None:
    def body(_: Any, x: Any) -> Any:
        twice = lambda k, c: fori_loop(0, 6, step, c)  # noqa: E731
        return x * fori_loop(0, 7, twice, 2.0)

    assert len(found(simplified(lambda v: fori_loop(0, 9, body, v[0])), Loop)) == 1


def test_how_many_turns_a_loop_of_constants_takes_is_known() -> None:
    graph = simplified(lambda v: v[0] + while_loop(lambda x: x < 100, lambda x: 2 * x, 3.0, 20))
    assert not found(graph, Loop)
    assert any(graph.value(i) == 192.0 for i in range(len(graph)))


def test_long_loops_of_constants_are_left_to_the_kernel() -> None:
    long = lambda v: v[0] + fori_loop(0, 10**6, step, 0.5)  # noqa: E731
    made = trace(long, 2)
    assert found(simplify(made.graph, made.outputs)[0], Loop)
    endless = lambda v: v[0] + while_loop(lambda x: x > 1, lambda x: x + 1, 2.0)  # noqa: E731
    made = trace(endless, 2)
    assert found(simplify(made.graph, made.outputs)[0], Loop)


@pytest.mark.parametrize(("iterations", "stay"), [(0, 0), (1, 0), (4, 0), (5, 1)])
def test_a_loop_of_few_turns_is_written_out(iterations: int, stay: int) -> None:
    graph = simplified(lambda v: fori_loop(2, 2 + iterations, lambda k, x: step(k, x) * k, v[0]))
    assert len(found(graph, Loop)) == stay
    if iterations == 1:
        assert heads(graph).count(ops.sin) == 1


def test_a_loop_with_a_large_body_is_written_out_for_one_turn_only() -> None:
    def body(k: Any, x: Any) -> Any:
        for _ in range(40):
            x = sg.sin(x) * 0.5
        return x

    assert len(found(simplified(lambda v: fori_loop(0, 2, body, v[0])), Loop)) == 1
    assert not found(simplified(lambda v: fori_loop(0, 1, body, v[0])), Loop)


def test_carries_that_nobody_needs_are_gone() -> None:
    def body(_: Any, c: Any) -> Any:
        return step(0, c[0]), c[1] * c[2], sg.exp(c[2])

    (loop,) = found(simplified(lambda v: fori_loop(0, 9, body, (v[0], v[1], v[1]))[0]), Loop)
    assert loop.carries == 1
    assert len(loop.body.params) == 2


def test_carries_that_never_change_are_captures_and_constants_are_no_captures() -> None:
    def body(_: Any, c: Any) -> Any:
        x, w, one, zero = c
        return x * w + one * v1[0] + zero, w, one, 0.0 * one

    v1: list[Any] = []

    def f(v: Any) -> Any:
        v1[:] = [v[1]]
        return fori_loop(0, 9, body, (v[0], v[1], 1.0, 0.0))[0]

    (loop,) = found(simplified(f), Loop)
    assert loop.carries == 1
    assert len(loop.body.params) == 3  # the counter, x, and v[1], once


def test_what_the_last_turn_makes_of_captures_alone_stands_behind_the_loop() -> None:
    def body(_: Any, c: Any) -> Any:
        return step(0, c[0]), sg.cos(v1[0])

    v1: list[Any] = []

    def f(v: Any) -> Any:
        v1[:] = [v[1]]
        return sum(fori_loop(0, 9, body, (v[0], v[0])))

    graph = simplified(f)
    (loop,) = found(graph, Loop)
    assert loop.carries == 1
    assert ops.cos in heads(graph)


def test_loops_that_share_carries_are_one() -> None:
    def longer(_: Any, c: Any) -> Any:
        return step(0, c[0]), c[1] + c[0] * c[0]

    def f(v: Any) -> Any:
        return fori_loop(0, 9, step, v[0]) * fori_loop(0, 9, longer, (v[0], v[1]))[1]

    (loop,) = found(simplified(f), Loop)
    assert loop.carries == 2


def test_nested_loops_that_share_carries_are_one_at_each_level() -> None:
    def outer(_: Any, x: Any) -> Any:
        return fori_loop(0, 6, step, x * 0.5)

    def longer(_: Any, c: Any) -> Any:
        x, y = fori_loop(0, 6, lambda k, d: (step(k, d[0]), d[1] * d[0]), (c[0] * 0.5, c[1]))
        return x, y

    def f(v: Any) -> Any:
        return fori_loop(0, 7, outer, v[0]) + fori_loop(0, 7, longer, (v[0], v[1]))[1]

    (loop,) = found(simplified(f), Loop)
    assert [inner.carries for inner in found(loop.body.graph, Loop)] == [2]


@pytest.mark.parametrize(
    "other",
    [
        lambda v: fori_loop(0, 8, step, v[0]),
        lambda v: fori_loop(0, 9, step, v[1]),
        lambda v: fori_loop(0, 9, lambda k, x: step(k, x) - 1.0, v[0]),
        lambda v: while_loop(lambda x: x > 1.0, lambda x: step(0, x) * 0.1, v[0], max_steps=9),
        lambda v: fori_loop(0, 9, step, fori_loop(0, 9, step, v[0])),
    ],
)
def test_other_loops_stay_apart(other: Callable[[Any], Any]) -> None:
    """Of other iterations, inits or bodies, with a test, or one behind the other."""
    graph = simplified(lambda v: fori_loop(0, 9, step, v[0]) * 2.0 + other(v))
    assert len(found(graph, Loop)) == 2


# --- choices --------------------------------------------------------------------------------------


def test_a_choice_with_a_known_condition_is_one_side() -> None:
    def body(k: Any, x: Any) -> Any:
        return cond(k > 0, lambda: sg.sin(x), lambda: sg.cos(x))

    graph = simplified(lambda v: fori_loop(0, 2, body, v[0]))
    assert not found(graph, Choice)
    assert heads(graph)[-2:] == [ops.cos, ops.sin]


def test_what_both_sides_give_is_no_result() -> None:
    def f(v: Any) -> Any:
        a, b = cond(v[0] > 0, lambda: (v[1] * 3, 1 / v[0]), lambda: (v[1] * 3, v[0]))
        return a + b

    (choice,) = found(simplified(f), Choice)
    assert choice.results == 1


def test_not_changes_the_sides() -> None:
    graph = simplified(lambda v: cond(~(v[0] > 0), lambda: v[0], lambda: 1 / v[0]))
    assert len(found(graph, Choice)) == 1
    assert ops.logical_not not in heads(graph)


def test_within_a_side_the_condition_is_known() -> None:
    def f(v: Any) -> Any:
        positive = v[0] > 0
        return cond(
            positive, lambda: cond(positive, lambda: 1 / v[0], lambda: v[1]) + 1, lambda: v[0]
        )

    (choice,) = found(simplified(f), Choice)
    assert not found(choice.body.graph, Choice)


def test_choices_on_one_condition_are_one() -> None:
    def f(v: Any) -> Any:
        a = cond(v[0] > 0, lambda: 1 / v[0], lambda: v[0])
        b = cond(v[0] > 0, lambda: 1 / v[0] + v[1], lambda: v[0] * 2)
        return a * b

    (choice,) = found(simplified(f), Choice)
    assert choice.results == 2


def test_without_laws_nothing_is_written_out() -> None:
    def f(v: Any) -> Any:
        return fori_loop(0, 2, step, v[0]) + cond(v[0] > -9, lambda: v[0] * 1, lambda: v[0] * 1)

    graph = simplified(f, False)
    assert len(found(graph, Loop)) == len(found(graph, Choice)) == 1


# --- arrays ---------------------------------------------------------------------------------------


def test_what_is_read_where_it_was_written_is_known() -> None:
    def f(v: Any) -> Any:
        a = fori_loop(0, 3, lambda k, a: a.put(k, a[k] * v[1] + k), array([v[0], v[1], v[0]]))
        return a[0] * a[1] + a[2]

    assert not {GET, PUT} & set(heads(simplified(f)))


def test_indices_past_the_end_are_those_of_the_last_element() -> None:
    def f(v: Any) -> Any:
        return array([v[0], v[1]]).put(5, v[0] * 3)[7]

    simplified(f)
