"""Simplification: the same bits, a normal form, kernels an expert would have written; one pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from strategies import ARITHMETIC, EDGES, OPS, Drawn, bits, graphs, points, random_graph, values

from symgrad.expr import ops
from symgrad.expr.derivatives import differentiate
from symgrad.expr.graph.node import CONST, INPUT, Graph, reachable
from symgrad.expr.graph.verify import verify
from symgrad.expr.laws import simplify as module
from symgrad.expr.laws.simplify import Rewriter, laws_for, simplify
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracing.trace import trace
from symgrad.mathlib.define import inlined


@pytest.fixture
def exact_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the laws of real numbers that a proven fact allows."""
    exact = [law for law in module.LAWS if law.strength == "exact"]
    monkeypatch.setattr(module, "LAWS", exact)


def show(graph: Graph, root: int) -> str:
    """The term, in prefix form; for short ones."""
    node = graph.nodes[root]
    if node[0] is INPUT:
        return graph.names[node[1]]
    if not node[0].arity:
        return repr(Graph.leaf_value(node))
    return f"{node[0].name}({', '.join(show(graph, a) for a in node[1:])})"


def signed_by_nan(drawn: Drawn, roots: Sequence[int], at: np.ndarray) -> np.ndarray:
    """Where a NaN, whose sign IEEE arithmetic leaves open, gives its sign to something."""
    nodes = drawn.graph.nodes
    signs = [nodes[i][2] for i in reachable(drawn.graph, roots) if nodes[i][0] is ops.copysign]
    return np.isnan(values(drawn.graph, signs, at)).any(axis=0)


def check_bits(drawn: Drawn, roots: Sequence[int]) -> None:
    simpler, found = simplify(drawn.graph, roots)
    verify(simpler, found)
    at = points(3)
    before, after = values(drawn.graph, roots, at), values(simpler, found, at)
    wrong = np.argwhere((bits(before) != bits(after)) & ~signed_by_nan(drawn, roots, at))
    if len(wrong):
        r, k = wrong[0]
        raise AssertionError(
            f"at {at[:, k]}: {before[r, k]} became {after[r, k]}\nin {drawn!r}\n"
            f"root {roots[r]} became {show(simpler, found[r])}"
        )


@pytest.mark.usefixtures("exact_only")
@given(graphs(10, table=ARITHMETIC))
def test_random_arithmetic_keeps_its_bits(drawn: Drawn) -> None:
    check_bits(drawn, [drawn.root])


@pytest.mark.usefixtures("exact_only")
@given(graphs(10))
def test_random_graphs_keep_their_bits(drawn: Drawn) -> None:
    check_bits(drawn, [drawn.root])


@pytest.mark.usefixtures("exact_only")
@pytest.mark.parametrize("seed", range(60))
def test_larger_graphs_keep_their_bits(seed: int) -> None:
    drawn = random_graph(seed, size=60, table=ARITHMETIC if seed % 2 else OPS)
    check_bits(drawn, [x.id for x in drawn.floats])


@pytest.mark.usefixtures("exact_only")
@pytest.mark.parametrize("seed", range(30))
def test_gradients_keep_their_bits(seed: int) -> None:
    """Derivatives have constant parts, p - 1 and the like, which are folded in double: not here."""
    drawn = random_graph(seed, size=15, table=ARITHMETIC, constants=())
    graph = drawn.graph
    found = differentiate.vjp(graph, {drawn.root: graph.constant(1.0)}, drawn.ids)
    check_bits(drawn, [i for i in found if i is not None])


def check_again(drawn: Drawn, level: Any) -> None:
    roots = [x.id for x in drawn.floats]
    once, first = simplify(drawn.graph, roots, level)
    twice, second = simplify(once, first, level)
    verify(twice, second)
    assert [show(once, i) for i in set(first)] == [show(twice, i) for i in set(second)] or len(
        reachable(once, first)
    ) == len(reachable(twice, second)), f"{[show(once, i) for i in first]}"


@given(graphs(8, table=ARITHMETIC))
def test_simplifying_again_changes_nothing(drawn: Drawn) -> None:
    check_again(drawn, True)


@given(graphs(8))
def test_simplifying_again_changes_nothing_over_the_reals(drawn: Drawn) -> None:
    check_again(drawn, "real")


@pytest.mark.parametrize("seed", range(40))
def test_simplified_graphs_have_no_needless_node(seed: int) -> None:
    drawn = random_graph(seed, size=80, table=ARITHMETIC)
    roots = [x.id for x in drawn.floats]
    graph, found = simplify(drawn.graph, roots)
    verify(graph, found)
    for i in reachable(graph, found):
        op, *args = graph.nodes[i]
        heads = [graph.nodes[a][0] for a in args] if op.arity else []
        constants = [graph.value(a) for a in args] if op.arity else []
        assert not (op is ops.neg and heads[0] is ops.neg)
        assert not (op is ops.mul and (1.0 in constants or -1.0 in constants))
        assert not (op is ops.mul and ops.neg in heads)
        assert not (op is ops.div and constants[1] == 1.0)
        assert not (op is ops.div and constants[0] == 1.0)
        assert not (op in (ops.add, ops.sub) and heads[1] is ops.neg)
        assert not (op is ops.abs and heads[0] in (ops.abs, ops.neg))
        assert not (op.arity and all(not h.arity and h is not INPUT for h in heads))


def simplified(f: Callable[[Any], Any], n: int = 3, level: Any = True) -> list[str]:
    traced = trace(f, n)
    graph, roots = simplify(traced.graph, traced.outputs, level)
    return [show(graph, r) for r in roots]


TERMS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda v: v[0] * 1.0, "x0"), (lambda v: -(-v[0]), "x0"), (lambda v: v[0] - 0.0, "x0"),  # noqa: B002
    (lambda v: v[0] + 0.0, "add(x0, 0.0)"), (lambda v: v[0] + -0.0, "x0"),
    (lambda v: v[0] * 0.0, "mul(x0, 0.0)"), (lambda v: v[0] - v[0], "sub(x0, x0)"),
    (lambda v: v[0] / v[0], "div(x0, x0)"), (lambda v: 0.0 - v[0], "sub(0.0, x0)"),
    (lambda v: v[0] * -1.0, "neg(x0)"), (lambda v: v[0] + -v[1], "sub(x0, x1)"),
    (lambda v: v[0] - -v[1], "add(x0, x1)"), (lambda v: -v[0] * -v[1], "mul(x0, x1)"),
    (lambda v: 1 / v[0], "reciprocal(x0)"), (lambda v: v[0] + -3.0, "sub(x0, 3.0)"),
    (lambda v: 2 * (3 * v[0]), "mul(x0, 6.0)"), (lambda v: -(3 * v[0]), "mul(x0, -3.0)"),
    (lambda v: v[1] - 3 * -v[0], "add(mul(x0, 3.0), x1)"), (lambda v: abs(-v[0]), "abs(x0)"),
    (lambda v: abs(v[0] * v[0]), "mul(x0, x0)"), (lambda v: np.where(True, v[0], v[1]), "x0"),
    (lambda v: functions.where(v[0] > 1, v[2], v[2]), "x2"),
    (lambda v: functions.sqrt(4.0) * v[0], "mul(x0, 2.0)"),
    (lambda v: functions.sin(v[0]) * 0 + 2.0, "add(mul(sin(x0), 0.0), 2.0)"),
    (lambda v: functions.where(v[0] * v[0] < 0, v[1], v[2]), "x2"),
    (lambda v: functions.minimum(v[1], v[1]), "x1"),
    (lambda v: functions.log(functions.exp(v[0])), "log(exp(x0))"),
    (lambda v: functions.stop_gradient(v[0]) + 1, "add(x0, 1.0)"),
]  # fmt: skip


def canonical(term: str) -> set[str]:
    """The term, and with the arguments of its outermost operation the other way round."""
    head, _, rest = term.partition("(")
    left, _, right = rest.rpartition(")")[0].rpartition(", ")
    return {term, f"{head}({right}, {left})"} if head in ("add", "mul") else {term}


@pytest.mark.parametrize(("f", "term"), TERMS, ids=[t for _, t in TERMS])
def test_terms(f: Callable[[Any], Any], term: str) -> None:
    assert simplified(f)[0] in canonical(term)


REAL_TERMS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda v: v[0] * 0.0, "0.0"),
    (lambda v: v[0] - v[0], "0.0"),
    (lambda v: v[0] / v[0], "1.0"),
    (lambda v: functions.log(functions.exp(v[0])), "x0"),
    (lambda v: functions.sin(v[0]) ** 2 + functions.cos(v[0]) ** 2, "1.0"),
    (lambda v: functions.exp(v[0]) * functions.exp(-v[0]), "1.0"),
    (lambda v: functions.sqrt(v[0] * v[0]), "abs(x0)"),
    (lambda v: 0.1 * (0.3 * v[0]), "mul(x0, 0.03)"),
]


@pytest.mark.parametrize(("f", "term"), REAL_TERMS, ids=[t for _, t in REAL_TERMS])
def test_terms_over_the_reals(f: Callable[[Any], Any], term: str) -> None:
    traced = trace(f, 3)
    graph, roots = simplify(traced.graph, traced.outputs, "real", inlined("accurate"))
    assert show(graph, roots[0]) in canonical(term)


def test_no_simplification_keeps_every_operation() -> None:
    graph, roots = simplify((t := trace(lambda v: -(-v[0]) * 1.0, 1)).graph, t.outputs, False)  # noqa: B002
    assert show(graph, roots[0]) in canonical("mul(neg(neg(x0)), 1.0)")


@pytest.mark.parametrize("c", [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, 5e-324])
@pytest.mark.parametrize("p", [2.0, -2.0, 3.0, 0.5])
@pytest.mark.parametrize("level", [True, "real"])
def test_odd_constants_are_no_obstacle(c: float, p: float, level: Any) -> None:
    f = [
        lambda v: p * (c * v[0]),
        lambda v: c * (p * v[0]),
        lambda v: v[0] + c * v[1],
        lambda v: v[0] / c,
    ]
    for g in (*f, lambda v: v[0] - c, lambda v: -(c * v[0]), lambda v: v[0] ** 2 + c):
        simplified(g, 2, level)


def gradient(f: Callable[[Any], Any], n: int) -> tuple[Graph, list[int]]:
    """A loss and its gradient, simplified as for a kernel."""
    traced = trace(f, n)
    graph, loss = traced.graph, traced.outputs[0]
    found = differentiate.vjp(graph, {loss: graph.constant(1.0)}, traced.inputs)
    roots = [loss, *[graph.constant(0.0) if i is None else i for i in found]]
    return simplify(graph, roots, True, inlined("accurate"))


def counts(f: Callable[[Any], Any], n: int) -> dict[str, int]:
    graph, roots = gradient(f, n)
    found: dict[str, int] = {}
    for i in reachable(graph, roots):
        if graph.nodes[i][0].arity:
            name = graph.nodes[i][0].name
            found[name] = found.get(name, 0) + 1
    return found


KERNELS: list[tuple[str, Callable[[Any], Any], int, dict[str, int]]] = [
    ("one exp", lambda v: functions.exp(v[0] * v[1]), 2, {"exp": 1, "mul": 3}),
    ("one sqrt", lambda v: functions.sqrt(v[0]), 1, {"sqrt": 1, "div": 1}),
    ("one exp in a sigmoid", lambda v: functions.sigmoid(v[0]), 1, {"exp": 1, "reciprocal": 1}),
    ("one exp in a softplus", lambda v: functions.softplus(v[0]), 1, {"exp": 1, "reciprocal": 1}),
    ("a shared reciprocal", lambda v: v[0] / v[2] + v[1] / v[2], 3, {"reciprocal": 1}),
    ("shared powers", lambda v: v[0] ** 4, 1, {"mul": 4}),
    ("a sum of squares", lambda v: v @ v, 3, {"mul": 6, "add": 2}),
    (
        "sin and cos once",
        lambda v: functions.sin(v[0]) * functions.cos(v[0]),
        1,
        {"sin": 1, "cos": 1},
    ),
    ("log", lambda v: functions.log(v[0] * v[0] + 1), 1, {"log": 1, "reciprocal": 1}),
]


@pytest.mark.parametrize(("f", "n", "most"), [k[1:] for k in KERNELS], ids=[k[0] for k in KERNELS])
def test_kernels_share_what_they_need(f: Any, n: int, most: dict[str, int]) -> None:
    found = counts(f, n)
    assert {op: found.get(op, 0) for op in most if found.get(op, 0) > most[op]} == {}, found


def test_rosenbrock_costs_what_an_expert_needs() -> None:
    found = counts(lambda v: (1 - v[0]) ** 2 + 100 * (v[1] - v[0] ** 2) ** 2, 2)
    assert sum(found.values()) <= 15, found


def test_inputs_are_kept_in_order() -> None:
    traced = trace(lambda v: v[3], 5)
    graph, roots = simplify(traced.graph, traced.outputs)
    assert graph.names == ["x0", "x1", "x2", "x3", "x4"]
    assert graph.nodes[roots[0]] == (INPUT, 3)


def test_constants_are_folded_by_the_reference() -> None:
    for op in OPS:
        if op.compose is None and op.signature.split("->")[0] in ("f", "ff") and op.result == "f":
            graph = Graph()
            i = graph.add(op, *[graph.constant(v) for v in op.points[0]])
            simpler, (root,) = simplify(graph, [i])
            expected = op.reference(*map(np.float64, op.points[0]))
            assert op.transparent or (simpler.nodes[root][0] is CONST) == (op is not ops.opaque)
            assert op is ops.opaque or simpler.value(root) == expected, op.name


def visits(monkeypatch: pytest.MonkeyPatch, n: int) -> int:
    """How often a node is made to simplify a graph of 10 n operations and its gradient."""
    made = itertools.count()
    make = Rewriter.make

    def counted(self: Rewriter, *args: Any) -> int:
        next(made)
        return make(self, *args)

    def f(v: Any) -> Any:
        z = v[0]
        for k in range(n):
            z = functions.sin(-z * v[k % 7]) * 2 - (-(3 * z)) / (1 + z * z)
        return z

    monkeypatch.setattr(Rewriter, "make", counted)
    gradient(f, 7)
    return next(made)


def test_simplification_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = visits(monkeypatch, 50), visits(monkeypatch, 800)
    assert large <= 16.5 * small


def test_laws_of_a_level() -> None:
    assert laws_for(False) == {}
    default = {law.text for laws in laws_for(True).values() for law, _ in laws}
    everything = {law.text for laws in laws_for("real").values() for law, _ in laws}
    assert default < everything
    assert all(guarded for laws in laws_for(True).values() for _, guarded in laws)


def test_deciding_on_nan() -> None:
    """What is never true is False for NaN too; what is always true of numbers is not decided."""
    graph = Graph()
    graph.tracing = False
    x = Expr(graph, graph.input("x"))
    roots = [ops.where(c, 1.0, 2.0).id for c in (x * x < 0.0, x * x >= 0.0, x * x <= -1.0)]
    simpler, found = simplify(graph, roots)
    at = EDGES[None, :]
    np.testing.assert_array_equal(values(graph, roots, at), values(simpler, found, at))
