"""Forward, reverse and mixed accumulation: the same Jacobian, and the cheapest is taken."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given
from mpmath import mp, mpf
from strategies import ARITHMETIC, OPS, SMOOTH, Drawn, graphs, random_graph, values

import symgrad as sg
from symgrad.errors import InputError
from symgrad.expr.derivatives import accumulate
from symgrad.expr.derivatives.accumulate import Mode, Sought, accumulated, simplified_size
from symgrad.expr.derivatives.differentiate import jvp, vjp
from symgrad.expr.graph.verify import verify

PURE: tuple[Mode, ...] = ("reverse", "forward")
MODES: tuple[Mode, ...] = (*PURE, "mixed")


def sizes_of(drawn: Drawn, sought: Sought) -> dict[Mode, int]:
    """The operations of each mode, simplified."""
    sizes: dict[Mode, int] = {}
    for mode in (*MODES, "auto"):
        graph = drawn.graph.copy()
        entries, _ = accumulated(graph, sought, mode)
        sizes[mode] = simplified_size(graph, [*sought.ends, *entries.values()])
    return sizes


def tall(seed: int) -> tuple[Drawn, Sought]:
    """Several of the last nodes of a random graph, as functions of 1 to 5 variables."""
    table = (OPS, SMOOTH, ARITHMETIC)[seed % 3]
    drawn = random_graph(seed, size=(8, 20, 45)[seed // 3 % 3], inputs=1 + seed % 5, table=table)
    return drawn, Sought([x.id for x in drawn.floats[-1 - seed % 7 :]], drawn.ids)


@pytest.mark.parametrize("seed", range(36))
def test_modes_agree_and_the_choice_is_never_dearer_than_a_pure_mode(seed: int) -> None:
    drawn, sought = tall(seed)
    sizes = sizes_of(drawn, sought)
    assert sizes["auto"] <= min(sizes[mode] for mode in PURE)
    at = np.random.default_rng(seed).normal(size=(len(drawn.ids), 40))
    found = {mode: numbers(drawn, sought, mode, at) for mode in MODES}
    for mode in ("forward", "mixed"):
        assert found[mode].keys() == found["reverse"].keys()
        for place, other in found[mode].items():
            both = np.isfinite(other) & np.isfinite(found["reverse"][place])
            np.testing.assert_allclose(
                other[both], found["reverse"][place][both], rtol=1e-5, atol=1e-8
            )


def test_a_mode_is_tried_whose_count_folding_makes_less() -> None:
    drawn = random_graph(419, size=80, inputs=5, table=OPS)
    sizes = sizes_of(drawn, Sought([x.id for x in drawn.floats[-7:]], drawn.ids))
    assert sizes["auto"] <= min(sizes[mode] for mode in PURE)


def numbers(drawn: Drawn, sought: Sought, mode: Mode, at: np.ndarray) -> dict[Any, np.ndarray]:
    graph = drawn.graph.copy()
    entries, _ = accumulated(graph, sought, mode)
    verify(graph, [*entries.values()])
    rows = values(graph, [*entries.values()], at, np.float64) if entries else []
    return dict(zip(entries, rows, strict=True))


@given(graphs(8))
def test_the_choice_on_small_graphs(drawn: Drawn) -> None:
    sizes = sizes_of(drawn, Sought([x.id for x in drawn.floats[-3:]], drawn.ids))
    assert sizes["auto"] <= min(sizes[mode] for mode in PURE)


@pytest.mark.parametrize("mode", MODES)
def test_modes_against_differences_at_50_digits(mode: Mode) -> None:
    def f(v: Sequence[Any], exp: Any, log: Any, sin: Any) -> list[Any]:
        a = exp(v[0] * v[1]) + v[2]
        b = log(a * a + v[1]) / (v[0] + 3)
        return [sin(a) * b, a - b, b * b * b, v[2] * v[0], sin(b + a * b)]

    at = [0.375, -0.75, 1.25]
    x = sg.symbols("x y z")
    matrix = sg.jacobian(f(x, sg.exp, sg.log, sg.sin), x, mode=mode)
    found = sg.evaluate(matrix.toarray(), dict(zip(x, at, strict=True)))
    with mp.workdps(50):
        for r in range(5):
            for c in range(3):
                true = mpmath.diff(
                    lambda *p, r=r: f(p, mp.exp, mp.log, mp.sin)[r],
                    tuple(mpf(a) for a in at), tuple(int(k == c) for k in range(3)),
                )  # fmt: skip
                assert abs(mpf(float(found[r, c])) - true) <= 2e-15 * (1 + abs(true))


def euler(steps: int, states: int = 1, parameters: int = 3) -> Any:
    """The states of a simulation at all its steps, and its parameters."""
    p = sg.symbols(" ".join(f"p{k}" for k in range(parameters)))
    y: list[Any] = [1.0 + 0.1 * k for k in range(states)]
    found: list[Any] = []
    for _ in range(steps):
        rate = sum(q * sg.sin((k + 1) * y[k % states]) for k, q in enumerate(p))
        y = [s + 0.01 * (k + 1) * rate * y[k - 1] for k, s in enumerate(y)]
        found += y
    return found, p


def size_by(outputs: Any, wrt: Any, mode: Mode) -> int:
    """The operations of outputs and their Jacobian."""
    entries = sg.jacobian(outputs, wrt, mode=mode).entries
    return simplified_size(outputs[0].graph, [e.id for e in (*outputs, *entries)])


def test_simulations_are_not_differentiated_step_by_step_for_each_step() -> None:
    outputs, p = euler(60)
    sizes = {mode: size_by(outputs, p, mode) for mode in MODES}
    assert sizes["forward"] < sizes["reverse"] / 6
    assert size_by(outputs, p, "auto") == min(sizes.values())


def test_mixed_mode_makes_the_derivatives_of_steps_first() -> None:
    outputs, p = euler(14, states=2, parameters=10)
    sizes = {mode: size_by(outputs, p, mode) for mode in MODES}
    assert sizes["mixed"] < 0.75 * min(sizes["forward"], sizes["reverse"])


def test_a_narrow_place_is_passed_in_both_directions() -> None:
    x = sg.symbols(" ".join(f"x{k}" for k in range(30)))
    waist = sum(sg.sin(k * v) for k, v in enumerate(x, 1))
    outputs = [sg.exp(-k * waist) / (k + waist) for k in range(1, 31)]
    sizes = {mode: size_by(outputs, x, mode) for mode in MODES}
    assert sizes["mixed"] < 0.65 * min(sizes["forward"], sizes["reverse"])
    assert size_by(outputs, x, "auto") == sizes["mixed"]


def coloured(pattern: np.ndarray) -> list[list[int]]:
    """Columns in groups that share no row, greedily."""
    groups: list[list[int]] = []
    for c in range(pattern.shape[1]):
        free = [g for g in groups if not (pattern[:, g].any(axis=1) & pattern[:, c]).any()]
        (free[0] if free else groups.append([]) or groups[-1]).append(c)
    return groups


def test_a_tangent_for_each_variable_costs_what_coloured_columns_cost() -> None:
    x = sg.symbols(" ".join(f"x{k}" for k in range(24)))
    e = [sg.exp(v) * v for v in x]
    outputs = [sg.sin(e[k] * e[k + 1]) + e[k + 2] for k in range(22)]
    graph, one = x[0].graph, x[0].graph.constant(1.0)
    matrix = sg.jacobian(outputs, x, mode="forward")
    groups = coloured(matrix.pattern)
    assert len(groups) == 3, "a band of three"
    roots = [o.id for o in outputs]
    sweeps = [jvp(graph, {x[c].id: one for c in group}, roots) for group in groups]
    compressed = [i for sweep in sweeps for i in sweep if i is not None]
    ours = [e.id for e in matrix.entries]
    assert {*compressed} == {*ours}, "the same nodes, without decompression"
    assert size_by(outputs, x, "auto") <= size_by(outputs, x, "reverse")


def test_many_sparse_outputs_of_many_variables_are_counted_quickly() -> None:
    x = sg.symbols(" ".join(f"x{k}" for k in range(2000)))
    outputs = [sg.exp(a) * b for a, b in itertools.pairwise(x)]
    graph, ids = x[0].graph, [v.id for v in x]
    sought = Sought([o.id for o in outputs], ids)
    of = accumulate.linearize(graph, sought).of
    edges = sum(map(len, of.edges.values()))
    counted, _ = accumulate.counted(of)
    assert max(counted.values()) <= edges, "a product or less for each"


def test_counting_ends_where_a_mode_is_clearly_the_dearer_one() -> None:
    outputs, p = euler(120)
    graph, ids = p[0].graph, [v.id for v in p]
    sought = Sought([o.id for o in outputs], ids)
    of = accumulate.linearize(graph, sought).of
    counted = accumulate.sweeps(of)
    width = max(map(len, of.edges.values())) * len(outputs)
    assert 2 * counted["forward"] < counted["reverse"] <= 2 * counted["forward"] + width


# --- what derivatives are of ----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_what_a_branch_does_not_take_is_absent_in_every_mode(mode: Mode) -> None:
    x, y = sg.symbols("x y")
    root = sg.where(x > 0, sg.sqrt(x), x * x)
    outputs = [
        sg.where(x > 0, sg.log(x) * y, y),
        1 / sg.where(x > 0, x * y, 1.0),
        sg.where(y > 0, root, sg.sqrt(y)) * y,
        sg.relu(x * y) * sg.log(sg.where(x > 0, x, 1.0)),
    ]
    matrix = sg.jacobian(outputs, [x, y], mode=mode).toarray()
    found = np.array(sg.evaluate(matrix, {x: [-1.0, 0.0, 4.0], y: [2.0, 3.0, 2.0]}))
    want = [
        [[0.0, 0.0, 0.5], [1.0, 1.0, np.log(4.0)]],
        [[0.0, 0.0, -1 / 32], [0.0, 0.0, -1 / 16]],
        [[-4.0, 0.0, 0.5], [1.0, 0.0, 2.0]],
        [[0.0, 0.0, 2 * np.log(4.0) + 2.0], [0.0, 0.0, 4 * np.log(4.0)]],
    ]
    np.testing.assert_allclose(found, want, rtol=1e-15)


@pytest.mark.parametrize("mode", MODES)
def test_a_zero_tangent_absorbs_what_it_meets_later_on(mode: Mode) -> None:
    x, y = sg.symbols("x y")
    guarded = sg.where(x > 0, x, 0.0)
    outputs = [1 / guarded, y / guarded + y]
    found = sg.evaluate(sg.jacobian(outputs, [x, y], mode=mode).toarray()[:, 0], {x: -1.0, y: 1.0})
    assert found.tolist() == [0.0, 0.0], "the slope of what was chosen is 0, whatever follows"
    pushed = sg.jvp(outputs, [x], [1.0])
    assert sg.evaluate(pushed, {x: -1.0, y: 1.0}).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("mode", MODES)
def test_variables_may_depend_on_each_other_and_roots_be_variables(mode: Mode) -> None:
    x, y = sg.symbols("x y")
    z = x * y
    matrix = sg.jacobian([z, z * z, x, 3.0, z, z * x], [x, z, y, z], mode=mode)
    at = {x: 2.0, y: 5.0}
    want = [[5, 1, 2, 1], [100, 20, 40, 20], [1, 0, 0, 0], [0, 0, 0, 0], [5, 1, 2, 1],
            [20, 2, 4, 2]]  # fmt: skip
    assert sg.evaluate(matrix.toarray(), at).tolist() == want
    assert matrix.pattern.tolist() == (np.array(want) != 0).tolist()


@pytest.mark.parametrize("mode", MODES)
def test_steps_have_no_derivative_in_any_mode(mode: Mode) -> None:
    x, y = sg.symbols("x y")
    outputs = [sg.floor(x) * y, sg.stop_gradient(x) + y, sg.sign(x), x * y]
    assert sg.jacobian(outputs, [x, y], mode=mode).pattern.tolist() == [
        [False, True], [False, True], [False, False], [True, True]
    ]  # fmt: skip


def test_a_derivative_that_is_the_users_own_is_taken_in_reverse() -> None:
    own = sg.custom_vjp(lambda x: x * x, lambda g, y, x: (sg.clip(g, -1, 1) * x,))
    x, y = sg.symbols("x y")
    outputs = [own(x) * k * y for k in range(2, 12)]
    graph, ids = x.graph, [x.id, y.id]
    _, mode = accumulated(graph, Sought([o.id for o in outputs], ids))
    assert mode == "reverse"
    assert sg.evaluate(sg.jacobian(outputs, [x, y]).toarray()[3, 0], {x: 2.0, y: 1.0}) == 2.0


def test_a_mode_that_does_not_exist() -> None:
    x = sg.var("x")
    with pytest.raises(InputError, match=r"backward.* is not a choice"):
        sg.jacobian([x * x], [x], mode="backward")  # type: ignore[arg-type]


# --- second derivatives ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_hessians_against_sympy(mode: Mode) -> None:
    x = sg.symbols("x y z")
    symbols = sympy.symbols("x y z")

    def f(v: Sequence[Any], exp: Any, sin: Any) -> Any:
        return exp(v[0] * v[1]) / (v[2] ** 2 + 1) + sin(v[0] + 2 * v[2]) * v[1] ** 3

    matrix = sg.hessian(f(x, sg.exp, sg.sin), x, mode=mode)
    at = [0.5, -1.25, 2.0]
    true = sympy.hessian(f(symbols, sympy.exp, sympy.sin), symbols)
    want = np.array(true.subs(dict(zip(symbols, at, strict=True))).evalf(30), float)
    found = np.array(sg.evaluate(matrix.toarray(), dict(zip(x, at, strict=True))))
    np.testing.assert_allclose(found, want, rtol=1e-14)
    for r, c in zip(matrix.rows, matrix.columns, strict=True):
        assert matrix[r, c] is matrix[c, r] or matrix[r, c].id == matrix[c, r].id


@pytest.mark.parametrize("seed", range(12))
def test_hessians_of_random_graphs(seed: int) -> None:
    drawn = random_graph(seed, size=14, inputs=4, table=SMOOTH)
    at = np.random.default_rng(seed).uniform(0.5, 1.5, (4, 30))
    found: dict[Mode, np.ndarray] = {}
    sizes: dict[Mode, int] = {}
    for mode in (*MODES, "auto"):
        loss, x = drawn.floats[-1], drawn.inputs
        matrix = sg.hessian(loss, x, mode=mode)
        ids = [e.id for e in matrix.entries]
        dense = np.zeros((4, 4, 30))
        if ids:
            dense[list(matrix.rows), list(matrix.columns)] = values(
                drawn.graph, ids, at, np.float64
            )
        gradient = [g.id for g in sg.grad(loss, x)]
        found[mode], sizes[mode] = dense, simplified_size(drawn.graph, [*gradient, *ids])
    for mode in ("forward", "mixed"):
        both = np.isfinite(found[mode]) & np.isfinite(found["reverse"])
        np.testing.assert_allclose(found[mode][both], found["reverse"][both], rtol=1e-6, atol=1e-7)
    assert sizes["auto"] <= min(sizes[mode] for mode in PURE)


def test_only_half_of_a_hessian_is_made() -> None:
    x = sg.symbols(" ".join(f"x{k}" for k in range(12)))
    loss = sg.exp(sum(sg.sin(a * b) for a, b in itertools.pairwise(x)))
    for mode in MODES:
        matrix = sg.hessian(loss, x, mode=mode)
        assert len({e.id for e in matrix.entries}) <= 12 * 13 // 2
        gradient = [g.id for g in sg.grad(loss, x)]
        half = simplified_size(loss.graph, [*gradient, *[e.id for e in matrix.entries]])
        whole = size_of_all(loss, x, mode)
        assert half < 0.8 * whole


def size_of_all(loss: Any, x: Any, mode: Mode) -> int:
    gradient = list(sg.grad(loss, x))
    entries = sg.jacobian(gradient, x, mode=mode).entries
    return simplified_size(loss.graph, [e.id for e in (*gradient, *entries)])


def test_where_reverse_mode_is_best_its_nodes_are_those_of_a_sweep_a_row() -> None:
    x, y = sg.symbols("x y")
    graph, ids = x.graph, [x.id, y.id]
    outputs = [(x * sg.sin(y)).id, (x + y).id]
    entries, mode = accumulated(graph, Sought(outputs, ids))
    made = len(graph)
    rows = [vjp(graph, {i: graph.constant(1.0)}, ids) for i in outputs]
    assert mode == "reverse"
    assert rows == [[entries[r, c] for c in range(2)] for r in range(2)]
    assert len(graph) == made, "what was tried left nothing behind"
