"""Plans: the invariants, the limits, and that pieces together compute what the whole does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from strategies import bits, points, random_graph, values

from symgrad.expr.derivatives import differentiate
from symgrad.expr.graph.node import INPUT, Graph, reachable
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.semantics.evaluate import leaf
from symgrad.expr.tracers import functions
from symgrad.expr.tracing.trace import trace
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.passes import schedule as scheduling
from symgrad.kernel.passes import uses as module
from symgrad.kernel.passes.schedule import Limits, Plan, schedule
from symgrad.kernel.passes.uses import bind
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.skeletons.map import map_program
from symgrad.mathlib.define import inlined

TINY = Limits(statements=12, transcendentals=5, accesses=10, crossing=10**9, private=10**9)


def gradient(f: Callable[[Any], Any], n: int) -> tuple[Graph, list[Output]]:
    """A loss and its gradient, as a kernel computes them."""
    t = trace(f, n)
    loss = t.outputs[0]
    found = differentiate.vjp(t.graph, {loss: t.graph.constant(1.0)}, t.inputs)
    zero = t.graph.constant(0.0)
    roots = [loss, *[zero if i is None else i for i in found]]
    graph, roots = simplify(t.graph, roots, True, inlined("accurate"))
    return graph, [Output("loss", (roots[0],)), Output("grad", tuple(roots[1:]))]


def planned(
    graph: Graph, outputs: Sequence[Output], limits: Limits | None = None, name: str = "f"
) -> Plan:
    """The plan of a computation at every point."""
    return schedule(
        map_program(Computation(name, graph, tuple(outputs)), WorkgroupTarget()), limits
    )


def results(plan: Plan) -> list[list[int]]:
    """The nodes of the columns of each result."""
    return [row.values for row in plan.uses.stored]


def rosenbrock(v: Any) -> Any:
    return sum((1 - a) ** 2 + 100 * (b - a**2) ** 2 for a, b in itertools.pairwise(v))


def dense(v: Any) -> Any:
    z = v[0]
    for x in v:
        z = functions.sin(z * x + z)
    return z


def choices(v: Any) -> Any:
    """Conditions that are used far from where they are made."""
    c = [a > b for a, b in itertools.pairwise(v)]
    z = sum(functions.tanh(a * b) for a, b in itertools.pairwise(v))
    return z + sum(functions.where(k, a * z, a - z) for k, a in zip(c, v, strict=False))


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "rosenbrock": (rosenbrock, 12), "dense": (dense, 10), "choices": (choices, 9),
    "an input": (lambda v: v[1], 3), "a constant": (lambda v: 4.0, 3), "product": (np.prod, 20),
    "squares": (lambda v: v @ v, 40), "one of many": (lambda v: v[0] ** 2, 40),
    "softmax": (lambda v: np.log(np.sum(np.exp(v - v[0]))), 15),
    "an input of many": (lambda v: v[0], 40), "a constant of many": (lambda v: 1.0, 40),
    "the sum of many": (np.sum, 40),
}  # fmt: skip
LIMITS = {
    "whole": Limits(),
    "tiny": TINY,
    "narrow": Limits(8, 2, 6, crossing=10**9, private=10**9),
    "parts": Limits(10**9, 10**9, 10**9, function=7, private=10**9),
}


def plan_of(name: str, limits: str) -> Plan:
    f, n = FUNCTIONS[name]
    return planned(*gradient(f, n), LIMITS[limits], name)


PLANS = [pytest.param(f, limit, id=f"{f}-{limit}") for f in FUNCTIONS for limit in LIMITS]


class Machine:
    """A plan run piece by piece, with nothing but scratch and outputs between the pieces.

    It is as strict as a shader: a value is there only if it was bound in this piece before, fetched
    from a row of scratch that an earlier piece has written, or can be folded from such values.
    """

    def __init__(self, plan: Plan, at: np.ndarray) -> None:
        self.plan, self.at = plan, at
        self.rows: dict[int, list[Any]] = {}
        self.results = [[None] * len(nodes) for nodes in results(plan)]

    def run(self) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            for piece in self.plan.pieces:
                self._piece(piece)
        return [
            np.array([np.broadcast_to(np.asarray(c), self.at.shape[1:]) for c in r])
            for r in self.results
        ]

    def _piece(self, piece: Any) -> None:
        known: dict[int, Any] = {}
        for r in piece.fetches:
            assert r in self.rows, f"row {r} is fetched before it is written"
            known.update(zip(self.plan.scratch[r], self.rows[r], strict=True))
        for part in piece.parts:
            for i in part:
                assert i not in known, f"node {i} is computed twice in a piece"
                known[i] = self._compute(i, known, top=True)
        for r in piece.spills:
            assert r not in self.rows and 1 <= len(self.plan.scratch[r]) <= 4
            self.rows[r] = [known[i] for i in self.plan.scratch[r]]
        for s in piece.stores:
            assert self.results[s.output][s.column] is None, "a column is stored twice"
            assert results(self.plan)[s.output][s.column] == s.node
            leafy = not self.plan.graph.nodes[s.node][0].arity
            value = self._compute(s.node, known) if leafy else known[s.node]
            self.results[s.output][s.column] = value

    def _compute(self, i: int, known: dict[int, Any], top: bool = False) -> Any:
        op, *rest = self.plan.graph.nodes[i]
        if i in known:
            return known[i]
        if op is INPUT:
            return self.at[rest[0]]
        if not op.arity:
            return leaf((op, *rest), np.float32)
        assert top or i not in self.plan.bound, f"node {i} is bound, but not here yet"
        return op.reference(*[self._compute(a, known) for a in rest])


@pytest.mark.parametrize(("name", "limits"), PLANS)
def test_the_pieces_compute_what_the_graph_means(name: str, limits: str) -> None:
    plan = plan_of(name, limits)
    at = points(len(plan.graph.names), 60)
    found = Machine(plan, at).run()
    roots = [i for nodes in results(plan) for i in nodes]
    np.testing.assert_array_equal(bits(np.concatenate(found)), bits(values(plan.graph, roots, at)))


@pytest.mark.parametrize(("name", "limits"), PLANS)
def test_every_column_is_stored_once(name: str, limits: str) -> None:
    plan = plan_of(name, limits)
    stored = sorted((s.output, s.column) for p in plan.pieces for s in p.stores)
    assert stored == [(o, c) for o, ids in enumerate(results(plan)) for c in range(len(ids))]


@pytest.mark.parametrize("limits", ["tiny", "narrow"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_limits(name: str, limits: str) -> None:
    """No piece is beyond a limit, but for the last statement, which may be long."""
    plan, limit = plan_of(name, limits), LIMITS[limits]
    for piece in plan.pieces:
        statements = [i for part in piece.parts for i in part]
        assert len(statements) <= limit.statements
        for whole in (statements[:-1],):
            folded = inside(plan, whole)
            assert (
                sum(plan.graph.nodes[i][0].transcendental for i in folded) <= limit.transcendentals
            )
        assert all(1 <= len(part) <= limit.function for part in piece.parts)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_piece_of_a_cut_kernel_stores_more_than_it_may(name: str) -> None:
    plan = plan_of(name, "tiny")
    if len(plan.pieces) > 1 or len(plan.graph.names) > 10:
        assert max(len(p.stores) for p in plan.pieces) <= 2 * TINY.accesses


def inside(plan: Plan, statements: Sequence[int]) -> set[int]:
    """The operations of statements, folded ones among them."""
    found = set(statements)
    stack = list(statements)
    while stack:
        for a in plan.graph.args(stack.pop()):
            if a not in plan.bound and plan.graph.nodes[a][0].arity and a not in found:
                found.add(a)
                stack.append(a)
    return found


def test_what_is_small_is_not_cut() -> None:
    plan = plan_of("dense", "whole")
    assert len(plan.pieces) == 1 and not plan.scratch
    assert repr(plan).startswith("<Plan dense: ") and repr(plan).endswith("in 1 kernels>")
    assert [len(ids) for ids in results(plan)] == [1, 10]


def test_what_is_large_is_cut() -> None:
    assert len(plan_of("dense", "tiny").pieces) > 3
    graph, outputs = gradient(dense, 300)
    plan = planned(graph, outputs)
    assert len(plan.pieces) > 1, "600 sines and cosines"


def test_how_far_is_looked_ahead_changes_no_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, outputs = gradient(dense, 60)
    limits = Limits(40, 10**9, 12, crossing=2, function=9, private=1)
    far = planned(graph, outputs, limits).pieces
    monkeypatch.setattr(scheduling, "LOOK_AHEAD", 1)
    assert planned(graph, outputs, limits).pieces == far and len(far) > 2


def test_cuts_are_where_few_values_are_alive() -> None:
    """Two independent chains after each other: between them, one value is alive."""

    def f(v: Any) -> Any:
        def chain(z: Any, n: int) -> Any:
            for _ in range(n):
                z = functions.where(z > 1, z * z + z, z - v[1])
            return z

        return chain(chain(v[0], 9), 9)

    t = trace(f, 2)
    plan = planned(t.graph, [Output("loss", t.outputs)], Limits(statements=12))
    assert len(plan.pieces) > 1
    assert max(map(len, plan.scratch)) <= 2 and len(plan.scratch) == len(plan.pieces) - 1


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_in_small_pieces(seed: int) -> None:
    drawn = random_graph(seed, size=60)
    roots = tuple(x.id for x in drawn.floats[::5])
    plan = planned(drawn.graph, [Output("values", roots)], TINY)
    at = points(3, 60, seed)
    found = Machine(plan, at).run()
    np.testing.assert_array_equal(bits(found[0]), bits(values(drawn.graph, roots, at)))


# --- naming ---------------------------------------------------------------------------------------


def depths(graph: Graph, bound: frozenset[int], order: Sequence[int]) -> tuple[int, int]:
    """The most operations, and the deepest nesting, of a statement."""
    size: dict[int, int] = {}
    depth: dict[int, int] = {}
    for i in order:
        folded = [a for a in graph.nodes[i][1:] if a in size and a not in bound]
        size[i] = 1 + sum(size[a] for a in folded)
        depth[i] = 1 + max((depth[a] for a in folded), default=0)
    return max(size.values()), max(depth.values())


@pytest.mark.parametrize("seed", range(20))
def test_statements_are_short(seed: int) -> None:
    drawn = random_graph(seed, size=200)
    roots = [x.id for x in drawn.floats[-3:]]
    order = [i for i in reachable(drawn.graph, roots) if drawn.graph.nodes[i][0].arity]
    bound = bind(drawn.graph, order, roots)
    most, deepest = depths(drawn.graph, bound, order)
    assert most <= module.MAX_FOLDED + 2 and deepest <= module.MAX_DEPTH + 1


def test_long_chains_and_wide_sums_are_broken_up() -> None:
    for f in (
        lambda v: math.prod([v[0] + k for k in range(500)]),
        lambda v: sum(v[k % 3] / (k + 2) for k in range(500)),
    ):
        t = trace(f, 3)
        order = [i for i in reachable(t.graph, t.outputs) if t.graph.nodes[i][0].arity]
        most, deepest = depths(t.graph, bind(t.graph, order, t.outputs), order)
        assert most <= module.MAX_FOLDED + 2 and deepest <= module.MAX_DEPTH + 1


def test_shared_values_and_results_are_bound_single_ones_are_not() -> None:
    t = trace(lambda v: (v[0] * v[1] + 1, (s := v[0] - v[1]) * s), 2)
    order = [i for i in reachable(t.graph, t.outputs) if t.graph.nodes[i][0].arity]
    names = {t.graph.nodes[i][0].name for i in bind(t.graph, order, t.outputs)}
    assert names == {"add", "sub", "mul"}
    assert len(bind(t.graph, order, t.outputs)) == 3


def test_the_order_is_that_of_the_arena() -> None:
    plan = plan_of("dense", "tiny")
    statements = [i for piece in plan.pieces for part in piece.parts for i in part]
    assert statements == sorted(statements)


@pytest.mark.parametrize("f", [lambda v: v[0], lambda v: 2.0, lambda v: v[0] ** 2, np.sum])
def test_more_results_than_a_shader_may_store(f: Any) -> None:
    plan = planned(*gradient(f, 1000))
    found = Machine(plan, np.ones((1000, 2), np.float32)).run()
    assert found[1].shape == (1000, 2)
