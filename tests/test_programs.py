"""Random programs of loops, choices and arrays mean what Python's own loops do."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from exact import evaluate_exactly
from programs import Kinds, Numbers, called, points, program, random_program
from strategies import OPS, Drawn

from symgrad.expr import ops
from symgrad.expr.graph.node import HOLES
from symgrad.expr.graph.region import Choice, Loop, regions
from symgrad.expr.graph.verify import verify
from symgrad.expr.laws.facts import Facts
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.semantics.show import REPR, dot, latex, text

SEEDS = range(60)


def values(drawn: Drawn, at: np.ndarray) -> np.ndarray:
    roots = [x.id for x in drawn.floats]
    return np.array(evaluate_graph(drawn.graph, roots, dict(zip(drawn.ids, at, strict=True))))


@pytest.mark.parametrize("seed", SEEDS)
def test_evaluation_is_python_s(seed: int) -> None:
    at, drawn = points(), random_program(seed)
    verify(drawn.graph, [x.id for x in drawn.floats])
    np.testing.assert_allclose(values(drawn, at), called(program(seed), at), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_every_row_means_in_a_body_what_it_means_elsewhere(seed: int) -> None:
    """Poles, infinities and NaN among the values; simplified, the programs mean the same."""
    kinds = Kinds(table=OPS, size=6, bounds=False)
    at, drawn = points(), random_program(seed, kinds=kinds)
    want = called(program(seed, kinds), at)
    made, roots = simplify(drawn.graph, [x.id for x in drawn.floats])
    simplified = evaluate_graph(made, roots, dict(enumerate(at)))
    for found in (values(drawn, at), np.array(simplified)):
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_point_alone_is_as_among_others(seed: int) -> None:
    """Masks change nothing: a point does not depend on the iterations that others take."""
    at, drawn = points(), random_program(seed, kinds=Kinds(size=6))
    alone = [values(drawn, at[:, [j]]) for j in range(at.shape[1])]
    np.testing.assert_allclose(values(drawn, at), np.concatenate(alone, 1), rtol=1e-12)


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_a_pickled_program_is_the_same(seed: int) -> None:
    drawn, at = random_program(seed), points()
    copy = pickle.loads(pickle.dumps(drawn))
    verify(copy.graph, [x.id for x in copy.floats])
    np.testing.assert_array_equal(values(copy, at), values(drawn, at))


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_a_simplified_program_is_the_same(seed: int) -> None:
    drawn, at = random_program(seed, kinds=Kinds(size=7)), points()
    made, roots = simplify(drawn.graph, [x.id for x in drawn.floats])
    verify(made, roots)
    inputs = dict(zip(range(len(at)), at, strict=True))
    got = np.array(evaluate_graph(made, roots, inputs))
    np.testing.assert_allclose(got, values(drawn, at), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS[:15])
def test_the_exact_value_of_a_program(seed: int) -> None:
    """Fifty digits by another interpreter agree with NumPy's sixteen."""
    drawn, at = random_program(seed), points(count=2)
    want = values(drawn, at)
    for j, point in enumerate(at.T):
        given = dict(zip(drawn.ids, map(float, point), strict=True))
        exact = evaluate_exactly(drawn.graph, [x.id for x in drawn.floats], given)
        np.testing.assert_allclose([float(x) for x in exact], want[:, j], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_proven_intervals_hold(seed: int) -> None:
    drawn, at = random_program(seed, kinds=Kinds(size=6)), points(count=50)
    floats = [i for i in range(len(drawn.graph)) if drawn.graph.type(i) == "f"]
    open_ones = {i for i, node in enumerate(drawn.graph.nodes) if node[0] in HOLES.values()}
    for i in range(len(drawn.graph)):
        if not open_ones.isdisjoint(drawn.graph.args(i)):
            open_ones.add(i)
    closed = [i for i in floats if i not in open_ones]
    facts = Facts(drawn.graph)
    found = evaluate_graph(drawn.graph, closed, dict(zip(drawn.ids, at, strict=True)))
    for i, x in zip(closed, found, strict=True):
        low, high = facts.interval(i)
        assert ((low <= x) & (x <= high) | np.isnan(x)).all()


@pytest.mark.parametrize("seed", SEEDS[:30])
def test_the_text_of_a_program_is_python_that_means_the_same(seed: int) -> None:
    drawn, at = random_program(seed), points(count=3)
    scope: dict[str, Any] = {name: op.reference for name, op in ops.TABLE.items()}
    scope |= {"zeros": lambda n: Numbers([0.0] * n), "put": Numbers.put, "nan": math.nan}
    want = values(drawn, at)
    for result, expected in zip(drawn.floats, want, strict=True):
        *lines, last = text(result).splitlines()
        for j, point in enumerate(at.T):
            inner = scope | {f"x{k}": x for k, x in enumerate(point)}
            exec("\n".join(lines), inner)
            np.testing.assert_allclose(eval(last, inner), expected[j], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_a_program_is_shown(seed: int) -> None:
    """Brackets of LaTeX and of Graphviz match, and a repr stays short."""
    result = random_program(seed).floats[-1]
    for shown in (latex(result), dot(result)):
        assert shown.count("{") == shown.count("}")
    assert latex(result).count(r"\left") - latex(result).count(r"\leftarrow") == latex(
        result
    ).count(r"\right")
    assert len(repr(result)) <= REPR


def test_programs_have_what_they_are_drawn_for() -> None:
    """All kinds of loops and choices are among them, nested, with arrays; and edges of all rows."""
    found = [d for seed in SEEDS for d in [random_program(seed)]]
    operations = [node[0] for d in found for node in d.graph.nodes]
    loops = [op for op in operations if isinstance(op, Loop)]
    assert sum(isinstance(op, Choice) for op in operations) > 20
    assert sum(op.test for op in loops) > 10
    assert sum("F" in op.body.types(op.body.yields) for op in loops) > 20
    assert sum(any(regions(op.body.graph, op.body.yields)) for op in loops) > 20
    every = random_program(3, kinds=Kinds(table=OPS, size=9))
    verify(every.graph, [x.id for x in every.floats])
