"""Derivatives through loops, choices and arrays: reverse, forward, second, in strips."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytest
from looped import SAMPLES, Sample, array, cholesky
from programs import Kinds, points, random_program

import symgrad as sg
from symgrad.errors import DifferentiationError
from symgrad.expr import ops
from symgrad.expr.derivatives import transpose
from symgrad.expr.derivatives.accumulate import Sought, accumulated
from symgrad.expr.derivatives.differentiate import jvp, vjp
from symgrad.expr.derivatives.transpose import CheckpointPolicy, MemoryBudget
from symgrad.expr.graph.arrays import ADD_AT, EMPTY, ZEROS
from symgrad.expr.graph.node import Graph, Op, inputs_of
from symgrad.expr.graph.region import Loop, regions
from symgrad.expr.graph.verify import verify
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.loops.control import fori_loop, while_loop
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracing.trace import trace

EVERYTHING = 10**9
"""Numbers that are kept where no loop is to run in strips."""


class Derived:
    """A function's graph, and the roots that a test asks for."""

    def __init__(self, f: Any, n: int) -> None:
        made = trace(f, n)
        self.graph, self.inputs, self.roots = made.graph, made.inputs, list(made.outputs)

    def gradient(self, kept: int = EVERYTHING) -> list[int]:
        one = {self.roots[0]: self.graph.constant(1.0)}
        self.graph.notes[CheckpointPolicy] = CheckpointPolicy(budget=MemoryBudget(kept, kept))
        return [self.or_zero(i) for i in vjp(self.graph, one, self.inputs)]

    def or_zero(self, i: int | None) -> int:
        return self.graph.constant(0.0) if i is None else i

    def simplified(self, roots: Sequence[int]) -> tuple[Graph, list[int]]:
        graph, ends = simplify(self.graph, [*self.roots, *roots])
        verify(graph, ends)
        for region in regions(graph, ends):
            verify(region.graph, region.yields)
        return graph, ends

    def values(self, roots: Sequence[int], at: np.ndarray) -> np.ndarray:
        return values(*self.simplified(roots), at)


def values(graph: Graph, roots: Sequence[int], at: np.ndarray) -> np.ndarray:
    """The values of roots at points (inputs, count)."""
    return np.array(evaluate_graph(graph, roots, dict(zip(inputs_of(graph), at, strict=True))))


def loops(graph: Graph) -> list[Loop]:
    return [node[0] for node in graph.nodes if isinstance(node[0], Loop)]


def heads(graph: Graph, roots: Sequence[int]) -> set[Op]:
    """The operations of a graph and of all its regions."""
    graphs = [graph, *[region.graph for region in regions(graph, roots)]]
    return {node[0] for g in graphs for node in g.nodes}


def close_to(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


samples = pytest.mark.parametrize("sample", SAMPLES.values(), ids=list(SAMPLES))


@samples
def test_gradients_are_those_of_differences(sample: Sample) -> None:
    derived, at = Derived(sample.f, sample.n), sample.points()
    gradient = derived.gradient()
    verify(derived.graph, gradient)
    want = np.array([sample.values(at), *sample.gradients(at)])
    close_to(values(derived.graph, [*derived.roots, *gradient], at)[1:], want[1:], 1e-6)
    close_to(derived.values(gradient, at), want, 1e-6)


@samples
def test_strips_agree_with_none(sample: Sample) -> None:
    at, found = sample.points(), list[np.ndarray]()
    for kept in (EVERYTHING, 12, 1):
        derived = Derived(sample.f, sample.n)
        found.append(derived.values(derived.gradient(kept), at))
    for other in found[1:]:
        close_to(other, found[0], 1e-12)


@samples
def test_forward_agrees_with_reverse_and_hessians_are_symmetric(sample: Sample) -> None:
    derived, at, n = Derived(sample.f, sample.n), sample.points(4), sample.n
    graph, gradient = derived.graph, derived.gradient()
    one = graph.constant(1.0)
    forward = [derived.or_zero(jvp(graph, {x: one}, derived.roots)[0]) for x in derived.inputs]
    entries, _ = accumulated(graph, Sought(gradient, derived.inputs))
    hessian = [derived.or_zero(entries.get((r, c))) for r in range(n) for c in range(n)]
    got = derived.values([*gradient, *forward, *hessian], at)[1:]
    close_to(got[n : 2 * n], got[:n], 1e-11)
    matrices = got[2 * n :].reshape(n, n, -1)
    close_to(matrices, matrices.transpose(1, 0, 2), 1e-9)
    if sample is not SAMPLES["newton"]:  # whose last step differs from one point to the next
        close_to(matrices, slopes_of_gradient(derived, gradient, at), 2e-5)


def slopes_of_gradient(derived: Derived, gradient: list[int], at: np.ndarray) -> np.ndarray:
    """The derivatives (n, n, count) of a gradient, by differences."""
    graph, roots = derived.simplified(gradient)
    step = 1e-6
    moves = step * np.eye(len(at))[:, :, None]
    return np.array([
        (values(graph, roots[1:], at + m) - values(graph, roots[1:], at - m)) / (2 * step)
        for m in moves
    ])  # fmt: skip


@pytest.mark.parametrize(("seed", "depth", "k"), [*[(k, 2, -1) for k in range(24)], (294, 3, -2)])
def test_random_programs(seed: int, depth: int, k: int) -> None:
    """Reverse agrees with forward, strips with none, and what is simplified with what is not."""
    drawn = random_program(seed, kinds=Kinds(bounds=depth > 2, depth=depth))
    graph, at, n = drawn.graph, points(), len(drawn.ids)
    root, one, zero = drawn.floats[k].id, graph.constant(1.0), graph.constant(0.0)
    found = vjp(graph, {root: one}, drawn.ids)
    graph.notes[CheckpointPolicy] = CheckpointPolicy(budget=MemoryBudget(2, 2))
    found += vjp(graph, {root: one}, drawn.ids)
    found += [jvp(graph, {x: one}, [root])[0] for x in drawn.ids]
    roots = [root, *[zero if i is None else i for i in found]]
    want = values(graph, roots, at)
    close_to(want[1 : 1 + n], want[1 + 2 * n :], 1e-9)
    close_to(want[1 : 1 + n], want[1 + n : 1 + 2 * n], 1e-9)
    close_to(values(*simplify(graph, roots), at), want, 1e-9)


@pytest.mark.parametrize("n", [3, 6])
def test_cholesky_in_place(n: int) -> None:
    """The adjoint of the determinant of a symmetric matrix, of which the lower half is read."""
    half = np.random.default_rng(3).uniform(-1, 1, (5, n, n))
    matrices = half @ half.transpose(0, 2, 1) + n * np.eye(n)
    derived = Derived(lambda v: cholesky(v, n), n * n)
    got = derived.values(derived.gradient(), matrices.reshape(5, -1).T)
    inverse = np.linalg.inv(matrices)
    lower = np.tril(2 * inverse) - inverse * np.eye(n)
    np.testing.assert_allclose(got[0], np.linalg.slogdet(matrices)[1], rtol=1e-13)
    np.testing.assert_allclose(got[1:].T, lower.reshape(5, -1), rtol=1e-11, atol=1e-13)


# --- what is kept and computed --------------------------------------------------------------------


def kept(graph: Graph, roots: Sequence[int]) -> int:
    """How many numbers are kept in all."""
    graphs = [graph, *[region.graph for region in regions(graph, roots)]]
    return sum(node[1] for g in graphs for node in g.nodes if node[0] is EMPTY)


def test_the_loss_and_its_gradient_are_two_loops() -> None:
    for kept_most, carries in ((EVERYTHING, 4), (12, 4)):
        derived = Derived(SAMPLES["counter_in_strips"].f, 2)
        graph, _ = derived.simplified(derived.gradient(kept_most))
        assert len(loops(graph)) == 2
        assert min(loop.carries for loop in loops(graph)) <= carries


def test_strips_keep_two_square_roots() -> None:
    def f(v: Any) -> Any:
        return fori_loop(0, 900, lambda _, x: sg.sin(x * v[1]) + v[0], v[0])

    for most, want in ((EVERYTHING, 900), (60, 60), (25, 0)):
        derived = Derived(f, 2)
        graph, roots = derived.simplified(derived.gradient(most))
        assert kept(graph, roots) == want if want else kept(graph, roots) <= 60


def test_what_is_linear_keeps_nothing() -> None:
    derived = Derived(lambda v: fori_loop(0, 50, lambda _, x: x * 0.9 + v[1], v[0]), 2)
    graph, roots = derived.simplified(derived.gradient())
    assert kept(graph, roots) == 0


def test_what_no_turn_changes_is_not_kept() -> None:
    """Neither a factor that is made of captures, nor a carry that stays the same."""

    def body(_: Any, c: Any) -> Any:
        x, w = c
        return x * sg.sin(w) * 0.5 + x * sg.cos(w), w

    derived = Derived(lambda v: fori_loop(0, 30, body, (v[0], v[1]))[0], 2)
    graph, roots = derived.simplified(derived.gradient())
    assert kept(graph, roots) == 30


def test_dead_carries_are_not_computed() -> None:
    derived = Derived(SAMPLES["dead_carries"].f, 2)
    graph, roots = derived.simplified(derived.gradient())
    assert ops.exp not in heads(graph, roots)
    assert max(loop.carries for loop in loops(graph)) <= 3


def grown(c: Sequence[Any], v: Any) -> tuple[Any, Any]:
    """Two carries, of which the second overflows and the first does not need it."""
    return c[0] * v[0] + 0.001 * sg.sin(c[0]), c[1] * c[1] * 1.01


def in_a_choice(c: Sequence[Any], v: Any) -> Any:
    return sg.cond(c[0] > 0.5, lambda: grown(c, v), lambda: (0.9 * c[0], c[1] * c[1]))


def in_a_loop(c: Sequence[Any], v: Any) -> Any:
    return fori_loop(0, 3, lambda _, d: grown(d, v), (c[0], c[1]))


def in_a_search(c: Sequence[Any], v: Any) -> Any:
    def step(d: Any) -> Any:
        return *grown(d, v), d[2] + 1

    return while_loop(lambda d: d[2] < 3, step, (c[0], c[1], 0.0), max_steps=5)[:2]


def alone(x: Any, v: Any) -> Any:
    return grown((x, 0.0), v)[0]


ALONE: dict[Any, Any] = {
    grown: alone,
    in_a_choice: lambda x, v: sg.where(x > 0.5, alone(x, v), 0.9 * x),
    in_a_loop: lambda x, v: alone(alone(alone(x, v), v), v),
    in_a_search: lambda x, v: alone(alone(alone(x, v), v), v),
}
"""What each makes of the first carry alone, without loops and choices."""


@pytest.mark.parametrize("kept", [EVERYTHING, 12, 1])
@pytest.mark.parametrize("iteration", ALONE)
def test_carries_that_overflow_and_are_not_needed_have_no_cotangents(
    iteration: Any, kept: int
) -> None:
    def f(v: Any) -> Any:
        return fori_loop(0, 40, lambda _, c: iteration(c, v), (v[2], v[1]))[0]

    def written_out(v: Any) -> Any:
        return reduce(lambda x, _: ALONE[iteration](x, v), range(40), v[2])

    at = np.array([[0.99], [20.0], [0.9]])
    derived, plain = Derived(f, 3), Derived(written_out, 3)
    want, one = plain.values(plain.gradient(), at), derived.graph.constant(1.0)
    with np.errstate(over="ignore"):
        close_to(derived.values(derived.gradient(kept), at), want, 1e-12)
        (forward,) = jvp(derived.graph, dict.fromkeys(derived.inputs, one), derived.roots)
        close_to(derived.values([derived.or_zero(forward)], at)[1], want[1:].sum(0), 1e-12)


def test_cotangents_of_an_array_are_added_to_in_place() -> None:
    """A turn that reads one element of a captured array touches one of its cotangents."""

    def f(v: Any) -> Any:
        a = array(list(v))
        return fori_loop(0, 20, lambda k, s: sg.sin(s * a[k]), v[0])

    derived = Derived(f, 20)
    graph, roots = derived.simplified(derived.gradient())
    bodies = [region.graph for region in regions(graph, roots)]
    assert not any(loops(body) for body in bodies)
    assert not any(node[0] is ZEROS for body in bodies for node in body.nodes)
    assert sum(node[0] is ADD_AT for body in bodies for node in body.nodes) == 1


def test_derivatives_are_the_same_each_time() -> None:
    sample = SAMPLES["guarded_division"]

    def made() -> Any:
        derived = Derived(sample.f, sample.n)
        graph, roots = derived.simplified(derived.gradient())
        return [node[0].name for node in graph.nodes], [node[1:] for node in graph.nodes], roots

    first = made()
    assert all(made() == first for _ in range(20))


def nest(depth: int) -> Any:
    """A function of loops within loops."""

    def level(d: int, x: Any, v: Any) -> Any:
        if d == 0:
            return sg.sin(x * v[0])
        return fori_loop(0, 5, lambda _, y: level(d - 1, y, v) + 0.1 * y, x)

    return lambda v: level(depth, v[1], v)


def test_nests_are_transposed_once_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Op] = []
    transposed_loop = transpose.transposed_loop

    def counted(op: Loop, *rest: Any) -> Any:
        calls.append(op)
        return transposed_loop(op, *rest)

    monkeypatch.setattr(transpose, "transposed_loop", counted)
    Derived(nest(7), 2).gradient()
    assert len(calls) == 7


def test_many_carries_take_linear_time() -> None:
    """The nodes of the derivative of a loop of many carries are so many times its own."""

    def f(v: Any, n: int) -> Any:
        def body(_: Any, c: Any) -> Any:
            return [sg.sin(c[j - 1]) * v[0] for j in range(n)]

        return sum(fori_loop(0, 9, body, [v[0]] * n))

    def nodes(n: int) -> int:
        derived = Derived(lambda v: f(v, n), 1)
        derived.gradient()
        return len(derived.graph) + sum(len(loop.body.graph) for loop in loops(derived.graph))

    assert nodes(80) < 2.2 * nodes(40)


# --- errors ---------------------------------------------------------------------------------------


def test_turns_that_nobody_knows_how_many_are_refused_in_reverse_only() -> None:
    derived = Derived(lambda v: while_loop(lambda y: y > 1, lambda y: y * 0.5, v[0]), 1)
    with pytest.raises(DifferentiationError, match=r"max_steps=100.*\n.*test_transpose"):
        derived.gradient()
    with pytest.raises(DifferentiationError, match=r" max_steps=100.*\n.*test_transpose"):
        Derived(lambda v: fori_loop(0, v[0], lambda _, y: y * v[0], v[0]), 1).gradient()
    slope = jvp(derived.graph, {derived.inputs[0]: derived.graph.constant(1.0)}, derived.roots)
    assert slope[0] is not None
    np.testing.assert_array_equal(values(derived.graph, [slope[0]], np.array([[3.0]])), 0.25)


def test_more_turns_than_said_give_nan() -> None:
    """Neither the value nor the gradient is a number of a loop that was cut short."""
    derived = Derived(lambda v: fori_loop(0, v[1], lambda _, x: x * v[0], v[0], max_steps=5), 2)
    got = derived.values(derived.gradient(), np.array([[2.0, 2.0], [5.0, 6.0]]))
    np.testing.assert_array_equal(got[:2, 0], [64.0, 192.0])
    assert np.isnan(got[:2, 1]).all()
