"""What no row changes is computed once, and reductions mean the same with less to do at each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference_kernels import reduce_rows

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.derivatives import differentiate
from symgrad.expr.graph.node import inputs_of, reachable
from symgrad.expr.graph.verify import verify
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracing.trace import trace
from symgrad.kernel.shapes import Output, Reduction
from symgrad.kernel.stage import arranged, hoisted, stages
from symgrad.pipeline import Options, simplified


def bells(p: Any, r: Any) -> Any:
    return (sum(p[k] * np.exp(-(((r[0] - p[k + 1]) / p[k + 2]) ** 2)) for k in (0, 3)) - r[1]) ** 2


def choice(p: Any, r: Any) -> Any:
    return sg.where(p[0] > p[1], -3.0 * p[2] * (r[0] / (p[3] + p[4])), p[5] * r[1] * r[1] - r[0])


def plain(p: Any, r: Any) -> Any:
    return p[0] * p[1] + 0.0 * sum(p)


def reduction(f: Any, n: int = 6, columns: int = 2) -> Reduction:
    traced = trace(lambda v: f(v[:n], v[n:]), n + columns)
    graph, (loss,) = traced.graph, traced.outputs
    slopes = differentiate.vjp(graph, {loss: graph.constant(1.0)}, traced.inputs[:n])
    wanted = [loss, *[graph.constant(0.0) if i is None else i for i in slopes]]
    graph, (loss, *grad) = simplified(graph, wanted, Options("r"), regroup=False)
    outputs = (Output("loss", (loss,)), Output("grad", tuple(grad)))
    return Reduction("r", graph, outputs, n, (graph.constant(1.0),) * (1 + n))


@pytest.mark.parametrize("f", [bells, choice, plain])
def test_the_sums_are_the_same(f: Any) -> None:
    draw = np.random.default_rng(0)
    before = reduction(f)
    after = hoisted(before)
    p, rows = draw.uniform(0.5, 1.5, 6), draw.uniform(-1, 1, (20, 2))
    want = reduce_rows(before, p, rows)
    np.testing.assert_allclose(reduce_rows(after, p, rows), want, rtol=1e-12, atol=1e-12)


def test_rows_divide_by_nothing_that_they_do_not_change() -> None:
    made = hoisted(reduction(bells))
    nodes, split = made.graph.nodes, stages(made)
    assert not any(nodes[i][0] in (ops.div, ops.reciprocal) for i in split.each)
    assert any(nodes[i][0] is ops.reciprocal for i in split.once)


def test_factors_of_whole_results_are_applied_to_the_sums() -> None:
    made = hoisted(reduction(lambda p, r: -p[0] * (p[1] * r[0])))
    (inner,) = made.outputs[0].nodes
    assert made.graph.nodes[inner][0].name == "input"
    assert stages(made).each == []


@pytest.mark.parametrize("f", [bells, lambda p, r: p[0] * (p[1] * r[0])])
def test_factors_have_one_constant_at_most(f: Any) -> None:
    """No 1.0 * t, no -(1.0), no 2.0 * (3.0 * t)."""
    made = hoisted(reduction(f))
    for i in made.factors:
        inside = reachable(made.graph, [i])[:-1]
        values = [made.graph.value(k) for k in inside if made.graph.value(k) is not None]
        assert len(values) <= 1 and not {1.0, -1.0}.intersection(values)


def test_results_that_differ_by_what_no_row_changes_have_one_core() -> None:
    made = hoisted(reduction(lambda p, r: p[0] * (3.0 * r[0] * -r[1])))
    ((loss,), (slope, *_)) = (o.nodes for o in made.outputs)
    assert loss == slope
    assert [made.graph.nodes[a][0].name for a in made.graph.nodes[loss][1:]] == ["input", "input"]
    assert stages(made).each == [loss]


@pytest.mark.parametrize("first", [True, False])
def test_constants_leave_choices_between_a_value_and_zero(first: bool) -> None:
    def chosen(p: Any, r: Any) -> Any:
        sides = [-(3.0 * r[1]), 0.0]
        return sg.where(r[0] > 0, *(sides if first else sides[::-1]))

    made = hoisted(reduction(chosen))
    (inner,) = made.outputs[0].nodes
    op, _, *values = made.graph.nodes[inner]
    assert op is ops.where
    assert sorted(made.graph.nodes[i][0].name for i in values) == ["const", "input"]
    assert made.graph.value(made.factors[0]) == -3.0
    rows = np.array([[1.0, 2.0], [-1.0, 7.0]])
    want = -6.0 if first else -21.0
    assert reduce_rows(made, np.full(6, 0.5), rows)[0] == pytest.approx(want, rel=1e-15)


def test_what_may_be_infinite_stays_in_choices() -> None:
    made = hoisted(reduction(lambda p, r: sg.where(r[0] > 0, p[0] * r[1], 0.0)))
    assert reduce_rows(made, np.full(6, np.inf), np.array([[-1.0, 1.0]]))[0] == 0.0


def test_scaled_data_stay_scaled() -> None:
    """(x/s)**2 exp(-(x/s)**2) for x and s near 1e25, whose squares overflow."""
    before = reduction(lambda p, r: ((r[0] / p[0]) * np.exp(-((r[0] / p[0]) ** 2)) - r[1]) ** 2)
    p, rows = np.full(6, 1e25, np.float32), np.array([[2e25, 1.0], [1e25, 0.5]], np.float32)
    found = reduce_rows(hoisted(before), p, rows, np.float32)
    np.testing.assert_allclose(found, reduce_rows(before, p, rows), 1e-5)
    assert np.isfinite(found).all() and found[1]


def test_constants_that_would_overflow_together_stay_where_they_are() -> None:
    before = reduction(lambda p, r: 1e30 * (1e-30 * (1e30 * (1e-30 * r[0]))))
    after, rows = hoisted(before), np.ones((4, 2), np.float32)
    found = reduce_rows(after, np.ones(6, np.float32), rows, np.float32)
    np.testing.assert_allclose(found[0], 4.0, rtol=1e-6)


def test_every_operation_is_in_one_stage_and_after_its_arguments() -> None:
    made = hoisted(reduction(choice))
    split, nodes = stages(made), made.graph.nodes
    known = {i for i, node in enumerate(nodes) if not node[0].arity}
    for i in split.once:
        assert known.issuperset(nodes[i][1:])
        known.add(i)
    carried = set(split.carried) | {i for i, node in enumerate(nodes) if not node[0].arity}
    assert all(made.graph.type(i) == "f" for i in split.carried)
    for i in split.each:
        assert carried.issuperset(nodes[i][1:])
        carried.add(i)


@pytest.mark.parametrize("left_out", [0, 1])
def test_inputs_get_the_order_that_is_asked_for(left_out: int) -> None:
    traced = trace(lambda v: v[0] - v[1] / v[2], 3 + left_out)
    (root,), wanted = traced.outputs, [*traced.inputs[2::-1]]
    graph, roots = arranged(traced.graph, [root], wanted)
    verify(graph, roots)
    assert graph.names == [traced.graph.names[k] for k in (2, 1, 0)]
    points = dict(zip(inputs_of(graph), np.array([[4.0], [2.0], [1.0]]), strict=True))
    (found,) = evaluate_graph(graph, roots, points)
    assert found == 1.0 - 2.0 / 4.0
