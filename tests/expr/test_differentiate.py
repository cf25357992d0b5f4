"""Differentiation: right, cheap, without recursion, and silent about branches not taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from meaning import MEANING
from mpmath import mp, mpf
from strategies import OPS, SMOOTH, Drawn, graphs, random_graph, values

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.derivatives import differentiate
from symgrad.expr.derivatives.differentiate import balanced_sum, jvp, vjp
from symgrad.expr.graph.node import CONST, INPUT, INTEGER, Graph, inputs_of, reachable
from symgrad.expr.graph.verify import verify
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.expression import Expr, symbols
from symgrad.expr.tracing.trace import trace

ONCE = tuple(op for op in SMOOTH if op.name not in ("opaque", "fma"))


def derivatives(graph: Graph, root: int, wrt: list[int]) -> list[int]:
    """The gradient with zeros filled in."""
    found = vjp(graph, {root: graph.constant(1.0)}, wrt)
    return [graph.constant(0.0) if i is None else i for i in found]


def high(graph: Graph, root: int, at: list[Any]) -> Any:
    """The value at 50 digits."""
    made: dict[int, Any] = {}
    for i in reachable(graph, [root]):
        op, *rest = graph.nodes[i]
        if op is INPUT:
            made[i] = at[rest[0]]
        elif not op.arity:
            value = Graph.leaf_value((op, *rest))
            made[i] = value if op is INTEGER else mpf(value)
        else:
            made[i] = MEANING[op.name](*[made[a] for a in rest])
    return made[root]


def regular(graph: Graph, root: int, at: list[Any]) -> bool:
    """Whether the value is a real number of a moderate size around the point."""
    try:
        for shift in (mpf(0), mpf("1e-9")):
            for i in reachable(graph, [root]):
                value = high(graph, i, [a + shift for a in at])
                if isinstance(value, mpmath.mpc) or not 1e-3 < abs(value) < 1e3:
                    return False
    except (ValueError, ZeroDivisionError, OverflowError):
        return False
    return True


def check_against_differences(drawn: Drawn) -> bool:
    at = [mpf(0.625), mpf(1.375), mpf(0.78125)]
    with mp.workdps(50):
        if not regular(drawn.graph, drawn.root, at):
            return False
        roots = derivatives(drawn.graph, drawn.root, drawn.ids)
        verify(drawn.graph, roots)
        found = values(drawn.graph, roots, np.array([[float(a)] for a in at]), np.float64)[:, 0]
        for k in range(3):
            true = mpmath.diff(
                lambda *x: high(drawn.graph, drawn.root, list(x)), tuple(at),
                tuple(int(j == k) for j in range(3)),
            )  # fmt: skip
            assert abs(mpf(found[k]) - true) <= 1e-9 * (1 + abs(true)), f"by x{k} of {drawn!r}"
    return True


@pytest.mark.parametrize("batch", range(8))
def test_gradients_against_differences_at_50_digits(batch: int) -> None:
    plain = [1.5, -0.5, 2.0]
    drawn = (
        random_graph(s, size=5, table=ONCE, constants=plain)
        for s in range(batch * 60, batch * 60 + 60)
    )
    assert sum(map(check_against_differences, drawn)) >= 8, "too few graphs stay in their domains"


def inner_products(drawn: Drawn) -> None:
    """<w, J v> = <J^T w, v>, at points where all is finite."""
    graph = drawn.graph
    rng = np.random.default_rng(2)
    at = rng.normal(size=(3, 40))
    v, w = rng.normal(size=3), rng.normal(size=2)
    roots = [x.id for x in drawn.floats[-2:]]
    forward = jvp(graph, {i: graph.constant(t) for i, t in zip(drawn.ids, v, strict=True)}, roots)
    seeds: dict[int, list[int]] = {}
    for i, g in zip(roots, w, strict=True):
        seeds.setdefault(i, []).append(graph.constant(g))
    backward = vjp(graph, {i: balanced_sum(graph, p) for i, p in seeds.items()}, drawn.ids)
    pushed = [(i, a) for i, a in zip(forward, w, strict=True) if i is not None]
    pulled = [(i, a) for i, a in zip(backward, v, strict=True) if i is not None]
    assert bool(pushed) == bool(pulled)
    verify(graph, [i for i, _ in pushed + pulled])
    left, right = (_dot(graph, side, at) for side in (pushed, pulled))
    sound = np.isfinite(left[1]) & np.isfinite(right[1]) & (left[1] < 1e6) & (right[1] < 1e6)
    np.testing.assert_allclose(
        left[0][sound],
        right[0][sound],
        rtol=1e-9,
        atol=1e-8 * (1 + np.max(left[1][sound], initial=0)),
    )


def _dot(graph: Graph, side: list[tuple[int, float]], at: np.ndarray) -> tuple[Any, Any]:
    if not side:
        return np.zeros(at.shape[1]), np.zeros(at.shape[1])
    terms = values(graph, [i for i, _ in side], at, np.float64)
    terms = terms * np.array([a for _, a in side])[:, None]
    with np.errstate(all="ignore"):
        return terms.sum(0), np.abs(terms).sum(0)


@given(graphs(8))
def test_reverse_mode_is_the_transpose_of_forward_mode(drawn: Drawn) -> None:
    inner_products(drawn)


@pytest.mark.parametrize("seed", range(30))
def test_the_transpose_in_larger_graphs(seed: int) -> None:
    inner_products(random_graph(seed, size=25, table=OPS if seed % 2 else SMOOTH))


def test_the_second_derivative_is_symmetric() -> None:
    for seed in range(20):
        drawn = random_graph(seed, size=8, table=SMOOTH)
        graph, at = drawn.graph, np.random.default_rng(1).uniform(0.5, 1.5, (3, 20))
        rows = [derivatives(graph, g, drawn.ids) for g in derivatives(graph, drawn.root, drawn.ids)]
        found = values(graph, [i for row in rows for i in row], at, np.float64).reshape(3, 3, -1)
        other = found.transpose(1, 0, 2)
        sound = np.isfinite(found) & np.isfinite(other) & (abs(found) < 1e9) & (abs(other) < 1e9)
        np.testing.assert_allclose(found[sound], other[sound], rtol=1e-6, atol=1e-8)


# --- what is absent -------------------------------------------------------------------------------


def traced(f: Callable[[Any], Any], n: int) -> tuple[Graph, int, list[int | None]]:
    t = trace(f, n)
    loss = t.outputs[0]
    return t.graph, loss, vjp(t.graph, {loss: t.graph.constant(1.0)}, t.inputs)


ABSENT: dict[str, tuple[Callable[[Any], Any], list[bool]]] = {
    "unused": (lambda v: v[0] * 2, [True, False]),
    "floor": (lambda v: functions.floor(v[0]) + v[1], [False, True]),
    "sign": (lambda v: functions.sign(v[0]) * v[1], [False, True]),
    "comparison": (lambda v: functions.where(v[0] > 0, v[1], 1.0), [False, True]),
    "stopped": (lambda v: functions.stop_gradient(v[0]) * v[1], [False, True]),
    "round": (lambda v: functions.round(v[0] * v[1]), [False, False]),
    "exponent": (lambda v: v[0] ** 3, [True, False]),
    "constant": (lambda v: 3.0, [False, False]),
    "an input": (lambda v: v[1], [False, True]),
    "quotient": (lambda v: v[0] // v[1], [False, False]),
    "sign of": (lambda v: functions.copysign(v[0], v[1]), [True, False]),
}


@pytest.mark.parametrize("name", ABSENT)
def test_structural_zeros_are_absent(name: str) -> None:
    f, present = ABSENT[name]
    t = trace(f, 2)
    seed = {t.outputs[0]: t.graph.constant(1.0)}
    assert [i is not None for i in vjp(t.graph, seed, t.inputs)] == present
    tangents = [jvp(t.graph, {i: t.graph.constant(1.0)}, t.outputs)[0] for i in t.inputs]
    assert [i is not None for i in tangents] == present


def test_the_seed_is_not_multiplied_in() -> None:
    _, _, (dx, dy) = traced(lambda v: v[0] * v[1], 2)
    assert (dx, dy) == (1, 0)


def test_no_zero_is_multiplied() -> None:
    graph, _, found = traced(lambda v: functions.floor(v[0]) * v[1] + v[2] ** 2, 3)
    for i in reachable(graph, [i for i in found if i is not None]):
        node = graph.nodes[i]
        if node[0] in (ops.mul, ops.add):
            assert all(graph.value(a) != 0.0 for a in node[1:])


# --- choices --------------------------------------------------------------------------------------

CHOICES: dict[str, tuple[Callable[..., Any], tuple[float, ...], tuple[float, ...]]] = {
    "log": (lambda x: functions.where(x > 0, functions.log(x), 0.0), (0.0,), (0.0,)),
    "log of a negative": (lambda x: functions.where(x > 0, functions.log(x), x), (-1.0,), (1.0,)),
    "sqrt": (lambda x: functions.where(x > 0, functions.sqrt(x), 0.0), (0.0,), (0.0,)),
    "reciprocal": (lambda x: functions.where(x != 0, 1 / x, 0.0), (0.0,), (0.0,)),
    "quotient": (lambda x, y: functions.where(y != 0, x / y, x), (2.0, 0.0), (1.0, 0.0)),
    "else": (lambda x: functions.where(x <= 0, x, functions.log(x)), (0.0,), (1.0,)),
    "sinc": (lambda x: functions.where(x == 0, 1.0, functions.sin(x) / x), (0.0,), (0.0,)),
    "deep": (
        lambda x: functions.where(x > 0, functions.exp(3 * functions.log(x) / x), x),
        (0.0,),
        (1.0,),
    ),
    "two uses": (
        lambda x: functions.where(
            x > 0, functions.log(x) * functions.sqrt(x) + functions.log(x), x
        ),
        (0.0,),
        (1.0,),
    ),
    "two conditions": (
        lambda x, y: (
            functions.where(x > 0, (z := functions.log(x)), 0.0)
            + functions.where(y > 0, 2 * z, 0.0)
        ),
        (0.0, -1.0),
        (0.0, 0.0),
    ),
    "nested": (
        lambda x, y: functions.where(y > 0, functions.where(x > 0, functions.log(x), x), y),
        (0.0, 1.0),
        (1.0, 0.0),
    ),
    "overflow": (lambda x: functions.where(x < 9, functions.exp(x), x), (1000.0,), (1.0,)),
    "kept": (lambda x: functions.where(x >= 0, functions.sqrt(x), 0.0), (0.0,), (math.inf,)),
    "norm": (lambda x: functions.where(x == 0, 0.0, functions.sqrt(x * x)), (0.0,), (0.0,)),
    "maximum": (lambda x: functions.maximum(functions.sqrt(x), 1.0), (0.0,), (0.0,)),
    "relu": (lambda x: functions.relu(functions.sqrt(x) - 1.0), (0.0,), (0.0,)),
    "clip": (lambda x: functions.clip(functions.log(x), -3.0, 3.0), (0.0,), (0.0,)),
    "abs": (lambda x: functions.where(x > 0, abs(functions.log(x)), 5 * x), (0.0,), (5.0,)),
    "x**1.5": (lambda x: x**1.5, (0.0,), (0.0,)),
    "x**2.5": (lambda x: x**2.5, (0.0,), (0.0,)),
    "x**0.5": (lambda x: x**0.5, (0.0,), (math.inf,)),
    "x**-0.5": (lambda x: x**-0.5, (0.0,), (-math.inf,)),
    "x**1": (lambda x: x**1, (0.0,), (1.0,)),
    "x**0": (lambda x: x**0, (0.0,), (0.0,)),
    "x**2": (lambda x: x**2, (0.0,), (0.0,)),
    "x**-1": (lambda x: x**-1, (-2.0,), (-0.25,)),
}


@pytest.mark.parametrize("mode", ["reverse", "forward", "simplified"])
@pytest.mark.parametrize("name", CHOICES)
def test_nothing_of_the_other_branch(name: str, mode: str) -> None:
    f, at, slopes = CHOICES[name]
    t = trace(lambda v: f(*v), len(at))
    graph = t.graph
    if mode == "forward":
        one = graph.constant(1.0)
        found = [jvp(graph, {i: one}, t.outputs)[0] for i in t.inputs]
        roots = [graph.constant(0.0) if i is None else i for i in found]
    else:
        roots = derivatives(graph, t.outputs[0], list(t.inputs))
    if mode == "simplified":
        graph, roots = simplify(graph, roots)
    found = values(graph, roots, np.array(at)[:, None], np.float64)[:, 0]
    np.testing.assert_array_equal(found, slopes)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("seed", range(40))
def test_nothing_of_a_random_branch_not_taken(seed: int, mode: int) -> None:
    """Where no choice takes f, its derivatives do not count, whatever f is and does there."""
    drawn = random_graph(seed, size=12)
    x, y, z = drawn.inputs
    f, g = drawn.floats[-1], drawn.floats[-2]
    loss = functions.where(x > 9, f, 2 * y)
    if mode == 2:  # two choices that share parts of f
        loss = loss + functions.where(y > 9, f * g, 3 * z) + functions.where(z > 9, g, x)
    at = np.random.default_rng(seed).choice([0.0, -0.0, -1.0, 1.0, -1e300, 5e-324], (3, 30))
    slopes = derivatives(drawn.graph, loss.id, drawn.ids)
    found = values(drawn.graph, slopes, at, np.float64)
    expected = [0.0, 2.0, 0.0] if mode == 1 else [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(found, np.broadcast_to(np.array(expected)[:, None], found.shape))


# --- derivatives of one's own ---------------------------------------------------------------------


def check_custom(vjp_rule: Callable[..., Any], expected: float) -> None:
    square = functions.custom_vjp(lambda x: x * x, vjp_rule)
    t = trace(lambda v: v[0] * 0 + square(v[1]), 2)
    for mode in ("reverse", "forward"):
        if mode == "reverse":
            (i,) = derivatives(t.graph, t.outputs[0], [t.inputs[1]])
        else:
            found = jvp(t.graph, {t.inputs[1]: t.graph.constant(1.0)}, t.outputs)[0]
            i = t.graph.constant(0.0) if found is None else found
        assert values(t.graph, [i], np.array([[7.0], [3.0]]), np.float64)[0, 0] == expected, mode


CUSTOM: dict[str, tuple[Callable[..., Any], float]] = {
    "of x": (lambda g, y, x: (10 * g * x,), 30.0),
    "of y": (lambda g, y, x: (g * y,), 9.0),
    "clipped": (lambda g, y, x: (functions.clip(g, -0.5, 0.5) * x,), 1.5),
    "list": (lambda g, y, x: [g], 1.0),
    "None": (lambda g, y, x: (None,), 0.0),
    "0": (lambda g, y, x: (0,), 0.0),
    "0.0": (lambda g, y, x: (0.0,), 0.0),
    "1": (lambda g, y, x: (1,), 1.0),
    "NumPy": (lambda g, y, x: (np.float32(2.0),), 2.0),
    "condition": (lambda g, y, x: (x > 0,), 1.0),
}


@pytest.mark.parametrize("name", CUSTOM)
def test_custom_vjp(name: str) -> None:
    check_custom(*CUSTOM[name])


def test_custom_vjp_of_several_arguments_and_of_a_function_of_it() -> None:
    product = functions.custom_vjp(lambda a, b: a * b, lambda g, y, a, b: (g, 2 * g))
    _, _, _ = traced(lambda v: product(v[0], 3.0), 1)
    t = trace(lambda v: functions.sin(product(v[0], v[1])), 2)
    found = derivatives(t.graph, t.outputs[0], list(t.inputs))
    slopes = values(t.graph, found, np.array([[0.5], [2.0]]), np.float64)[:, 0]
    np.testing.assert_allclose(slopes, [math.cos(1.0), 2 * math.cos(1.0)])


@pytest.mark.parametrize("shares", [(), (1.0, 2.0), 3.0, None])
def test_custom_vjp_must_give_one_cotangent_an_argument(shares: Any) -> None:
    f = functions.custom_vjp(lambda x: x * x, lambda g, y, x: shares)
    with pytest.raises(TraceError, match="must return 1 cotangents"):
        traced(lambda v: f(v[0]), 1)


def test_custom_vjp_must_compute_an_expression() -> None:
    f = functions.custom_vjp(lambda x: None, lambda g, y, x: (g,))
    with pytest.raises(TraceError, match="returned None"):
        traced(lambda v: f(v[0]), 1)


def test_stop_gradient_keeps_the_value() -> None:
    graph, loss, (dx,) = traced(lambda v: functions.stop_gradient(v[0] ** 2) * v[0], 1)
    assert values(graph, [loss, dx or 0], np.array([[3.0]]), np.float64)[:, 0].tolist() == [
        27.0,
        9.0,
    ]


# --- higher orders --------------------------------------------------------------------------------

NESTED: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "sin": (functions.sin, [math.sin(0.5), math.cos(0.5), -math.sin(0.5), -math.cos(0.5)]),
    "exp": (lambda x: functions.exp(2 * x), [math.e * 2**k for k in range(4)]),
    "power": (lambda x: x**4, [0.0625, 0.5, 3.0, 12.0]),
    "reciprocal": (lambda x: 1 / x, [2.0, -4.0, 16.0, -96.0]),
    "log": (functions.log, [math.log(0.5), 2.0, -4.0, 16.0]),
    "where": (lambda x: functions.where(x > 0, x**3, x), [0.125, 0.75, 3.0, 6.0]),
    "relu": (lambda x: functions.relu(x) ** 3, [0.125, 0.75, 3.0, 6.0]),
    "maximum": (lambda x: functions.maximum(x**3, 0.0), [0.125, 0.75, 3.0, 6.0]),
    "abs": (lambda x: abs(x) ** 3, [0.125, 0.75, 3.0, 6.0]),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_derivatives_to_third_order(name: str) -> None:
    f, expected = NESTED[name]
    graph = Graph()
    graph.tracing = False
    x = Expr(graph, graph.input("x"))
    y = f(x)
    reverse, mixed = [y], [y]
    for k in range(3):
        reverse.append(verbs.grad(reverse[-1], x))
        mixed.append(verbs.jvp(mixed[-1], [x], [1.0]) if k % 2 else verbs.grad(mixed[-1], x))
    for chain in (reverse, mixed):
        found = [float(verbs.evaluate(e, {x: 0.5})) for e in chain]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


# --- cost -----------------------------------------------------------------------------------------


def added(n: int) -> float:
    """Nodes that differentiation adds, for each node of a loss of n variables."""
    t = trace(lambda v: dense(v), n)
    before = len(reachable(t.graph, t.outputs))
    found = derivatives(t.graph, t.outputs[0], list(t.inputs))
    return len(reachable(t.graph, [*t.outputs, *found])) / before


def dense(v: Any) -> Any:
    z = v[0]
    for x in v:
        z = functions.sin(z * x + z)
    return z


def test_the_gradient_of_a_thousand_inputs_costs_as_much_a_node_as_that_of_ten() -> None:
    assert added(1000) <= 4.0
    assert added(1000) <= 1.05 * added(50)


def least_square(smaller: Any) -> tuple[Any, list[Expr]]:
    """The square of the distance to the nearest of some points, and the variables."""
    graph = Graph()
    x = [Expr(graph, graph.input(f"x{k}")) for k in range(120)]
    sums = [sum((v - 0.5) ** 2 for v in x[k : k + 10]) for k in range(0, 120, 10)]
    return reduce(smaller, sums), x


def test_second_derivatives_of_a_minimum_cost_what_those_of_a_choice_do() -> None:
    def size(smaller: Any) -> int:
        loss, x = least_square(smaller)
        products = list(verbs.hvp(loss, x, [float(k) for k in range(120)]))
        made = simplify(loss.graph, [e.id for e in [*verbs.grad(loss, x), *products]])
        return sum(1 for i in reachable(*made) if made[0].nodes[i][0].arity)

    choice = size(lambda a, b: functions.where(a < b, a, b))
    assert size(functions.minimum) <= 1.3 * choice


@pytest.mark.parametrize("op", [functions.minimum, functions.maximum])
def test_second_derivatives_of_a_minimum(op: Any) -> None:
    """Those of its smaller argument, the mean of both at a tie, NaN beside NaN."""
    x, y = symbols("x y")
    found = verbs.hessian(op(x**3, y**2), [x, y]).toarray()
    at = {x: [2.0, 1.0, math.nan], y: [1.0, 1.0, 1.0]}
    first, second = (np.array(verbs.evaluate(found[k, k], at)) for k in range(2))
    inner = op is functions.minimum
    np.testing.assert_allclose(first, [0.0 if inner else 12.0, 3.0, math.nan], rtol=1e-15)
    np.testing.assert_allclose(second, [2.0 if inner else 0.0, 1.0, math.nan], rtol=1e-15)


def test_sparse_jacobians_cost_as_much_as_their_entries() -> None:
    def size(n: int) -> int:
        t = trace(lambda v: [v[k] * v[k + 1] for k in range(n - 1)], n)
        found = verbs.jacobian(
            [Expr(t.graph, i) for i in t.outputs], [Expr(t.graph, i) for i in t.inputs]
        )
        assert found.nnz == 2 * (n - 1)
        return len(t.graph)

    assert size(800) <= 8.2 * size(100)


def depth(graph: Graph, root: int, only: Any) -> int:
    """The longest path of additions."""
    depths: dict[int, int] = {}
    for i in reachable(graph, [root]):
        node = graph.nodes[i]
        below = [depths[a] for a in node[1:]] if node[0].arity else [0]
        depths[i] = max(below) + (node[0] is only)
    return depths[root]


@pytest.mark.parametrize("m", [2, 3, 100, 777])
def test_sums_of_cotangents_are_balanced(m: int) -> None:
    t = trace(lambda v: sum(functions.sin(v[0] * (k + 0.5)) for k in range(m)), 1)
    (found,) = derivatives(t.graph, t.outputs[0], list(t.inputs))
    assert depth(t.graph, found, ops.add) <= math.ceil(math.log2(m))


@pytest.mark.parametrize("count", range(1, 20))
def test_balanced_sums_add_up(count: int) -> None:
    graph = Graph()
    parts = [graph.input(f"x{k}") for k in range(count)]
    total = balanced_sum(graph, list(parts))
    assert values(graph, [total], np.arange(count)[:, None])[0, 0] == count * (count - 1) / 2
    assert depth(graph, total, ops.add) <= math.ceil(math.log2(count)) if count > 1 else total == 0


def chain(n: int) -> None:
    def f(v: Any) -> Any:
        z = v[0]
        for k in range(n // 2):
            z = z * 0.5 + v[k & 1]
        return z

    t = trace(f, 2)
    roots = derivatives(t.graph, t.outputs[0], list(t.inputs))
    graph, roots = simplify(t.graph, [*t.outputs, *roots])
    loss, dx, dy = values(graph, roots, np.array([[1.0], [1.0]]))[:, 0]
    assert loss == pytest.approx(2.0) and dx + dy == pytest.approx(2.0)


def test_a_chain_of_50_000_operations() -> None:
    chain(50_000)


@pytest.mark.slow
def test_a_chain_of_1_000_000_operations() -> None:
    chain(1_000_000)


# --- interfaces -----------------------------------------------------------------------------------


def test_intermediate_values_may_stand_for_variables() -> None:
    graph = Graph()
    graph.tracing = False
    x = Expr(graph, graph.input("x"))
    y = x * x
    z = functions.sin(y) + x
    dx, dy = verbs.grad(z, [x, y])
    assert verbs.evaluate(dy, {x: 0.5}) == pytest.approx(math.cos(0.25))
    assert verbs.evaluate(dx, {x: 0.5}) == pytest.approx(math.cos(0.25) + 1.0)
    assert verbs.evaluate(verbs.jvp(z, [y], [2.0]), {x: 0.5}) == pytest.approx(2 * math.cos(0.25))


def test_cotangents_of_a_root_and_of_what_it_is_made_of() -> None:
    graph = Graph()
    x = graph.input("x")
    y = graph.add(ops.mul, x, x)
    z = graph.add(ops.neg, y)
    one = graph.constant(1.0)
    (found,) = vjp(graph, {y: graph.constant(5.0), z: one}, [x])
    assert found is not None
    assert values(graph, [found], np.array([[3.0]]))[0, 0] == 24.0  # (5 - 1) * 2 * 3


def test_differentiation_restores_the_graph_s_place() -> None:
    graph = Graph()
    x = graph.input("x")
    graph.place = 7
    graph.sources += [None] * 7
    vjp(graph, {graph.add(ops.sin, x): graph.constant(1.0)}, [x])
    assert (graph.place, graph.tracing) == (7, True)


def test_new_nodes_take_the_place_of_what_they_differentiate() -> None:
    t = trace(lambda v: functions.sin(v[0]), 1)
    (found,) = derivatives(t.graph, t.outputs[0], list(t.inputs))
    assert t.graph.places[found] == t.graph.places[t.outputs[0]] != 0


def test_inputs_stay_as_they_are() -> None:
    t = trace(lambda v: v @ v, 3)
    before = list(t.graph.nodes)
    derivatives(t.graph, t.outputs[0], list(t.inputs))
    assert t.graph.nodes[: len(before)] == before
    assert inputs_of(t.graph) == list(t.inputs)
    assert differentiate.active_between(t.graph, [t.inputs[0]], [t.inputs[1]]) == []
    assert t.graph.nodes[t.graph.constant(1.0)][0] is CONST
