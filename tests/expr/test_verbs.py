"""The verbs on expressions: grad, vjp, jvp, hvp, jacobian, hessian, evaluate, subs, count_ops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from symgrad.errors import ForeignExpressionError, InputError, SymgradError, TraceError
from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import ExprArray
from symgrad.expr.tracers.expression import Expr, symbols, var


def variables(n: int) -> list[Expr]:
    graph = Graph()
    return [Expr(graph, graph.input(f"x{k}")) for k in range(n)]


def test_grad_has_the_shape_of_wrt() -> None:
    x, y, z = v = variables(3)
    f = x * y**2 + functions.sin(z)
    assert isinstance(verbs.grad(f, x), Expr)
    g = verbs.grad(f, np.array([[x, y], [z, x]]))
    assert isinstance(g, ExprArray) and g.shape == (2, 2)
    found = verbs.evaluate(g, dict(zip(v, (2.0, 3.0, 0.5), strict=True)))
    np.testing.assert_allclose(found, [[9.0, 12.0], [math.cos(0.5), 9.0]])
    assert verbs.evaluate(verbs.grad(f, (y,)), {x: 2.0, y: 3.0, z: 0.0}).tolist() == [12.0]
    assert verbs.grad(f, []).shape == (0,)


def test_the_gradient_by_what_does_not_matter_is_zero() -> None:
    x, y = variables(2)
    assert x.graph.value(verbs.grad(x * 2, y).id) == 0.0


def test_vjp_and_jvp() -> None:
    x, y = v = variables(2)
    outputs = [x * y, x + y, x]
    at = {x: 2.0, y: 5.0}
    jacobian = np.array([[5.0, 2.0], [1.0, 1.0], [1.0, 0.0]])
    w, t = [1.0, -2.0, 0.5], [3.0, 4.0]
    assert verbs.evaluate(verbs.vjp(outputs, v, w), at).tolist() == (w @ jacobian).tolist()
    assert verbs.evaluate(verbs.jvp(outputs, v, t), at).tolist() == (jacobian @ t).tolist()
    both = verbs.vjp([x * y, x * y], v, [1.0, 2.0])
    assert verbs.evaluate(both, at).tolist() == [15.0, 6.0]
    with pytest.raises(ValueError):  # noqa: PT011
        verbs.vjp(outputs, v, [1.0])


def rosenbrock(v: Any) -> Any:
    return sum((1 - a) ** 2 + 100 * (b - a**2) ** 2 for a, b in itertools.pairwise(v))


def test_hvp_is_the_hessian_times_a_vector() -> None:
    v = variables(4)
    f = rosenbrock(v)
    at = dict(zip(v, [0.5, -1.0, 2.0, 1.5], strict=True))
    h = verbs.evaluate(verbs.hessian(f, v).toarray(), at)
    d = [1.0, -2.0, 0.5, 3.0]
    np.testing.assert_allclose(verbs.evaluate(verbs.hvp(f, v, d), at), h @ d, rtol=1e-13)


def test_the_hessian_is_symmetric_and_as_sparse_as_the_function() -> None:
    v = variables(6)
    h = verbs.hessian(rosenbrock(v), v)
    band = np.abs(np.subtract.outer(np.arange(6), np.arange(6))) <= 1
    np.testing.assert_array_equal(h.pattern, band)
    assert h.nnz == 16 and h.shape == (6, 6)
    cells = {(r, c): e.id for r, c, e in zip(h.rows, h.columns, h.entries, strict=True)}
    assert all(cells[c, r] == i for (r, c), i in cells.items())
    assert list(zip(h.rows, h.columns, strict=True)) == sorted(cells)
    at = dict(zip(v, np.linspace(-1, 2, 6), strict=True))
    found, step = verbs.evaluate(h.toarray(), at), 1e-6
    gradient = verbs.grad(rosenbrock(v), v)
    for k, x in enumerate(v):
        up, down = (verbs.evaluate(gradient, at | {x: at[x] + s}) for s in (step, -step))
        np.testing.assert_allclose(found[k], (up - down) / (2 * step), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("f", "nnz"), [
    (lambda x, y: x + y, 0), (lambda x, y: x * y, 2), (lambda x, y: x**2 + y, 1),
    (lambda x, y: functions.where(x > 0, x**2, y), 1), (lambda x, y: functions.floor(x) * y, 0),
    (lambda x, y: x**3 + y**3, 2), (lambda x, y: functions.exp(x) * y, 3),
])  # fmt: skip
def test_structurally_zero_second_derivatives_are_absent(f: Any, nnz: int) -> None:
    x, y = variables(2)
    assert verbs.hessian(f(x, y), [x, y]).nnz == nnz


def test_jacobians() -> None:
    x, y, z = v = variables(3)
    j = verbs.jacobian([x * y, z, 3.0 + y * 0 + functions.floor(z), x], v)
    expected = [[1, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]]
    np.testing.assert_array_equal(j.pattern, np.array(expected, bool))
    assert repr(j) == "<Jacobian 4 x 3 with 4 entries>"
    values = verbs.evaluate(j.toarray(), {x: 2.0, y: 3.0, z: 4.0})
    np.testing.assert_array_equal(values, [[3, 2, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]])
    assert j[1, 2] is not None and j[0].shape == (3,)
    assert verbs.jacobian([x], [x, x]).pattern.tolist() == [[True, True]]
    assert verbs.jacobian([x, 2.0], [x, y]).pattern.tolist() == [[True, False], [False, False]]


def test_a_jacobian_by_many_variables_costs_its_entries() -> None:
    v = variables(800)
    j = verbs.jacobian([v[k] * v[(7 * k) % 800] for k in range(800)], v)
    assert 1400 < j.nnz <= 1600 and len(v[0].graph) < 2_700


def test_evaluate_broadcasts() -> None:
    x, y = variables(2)
    found = verbs.evaluate(x * y, {x: [[1.0], [2.0]], y: [1.0, 2.0, 3.0]})
    np.testing.assert_array_equal(found, np.outer([1, 2], [1, 2, 3]))
    assert found.dtype == np.float64
    assert verbs.evaluate(x * y, {"x0": 2, "x1": 3}) == 6.0
    single = verbs.evaluate(x / 3, {x: 1.0}, np.float32)
    assert single == np.float32(1) / np.float32(3)
    assert verbs.evaluate([x, y * 2, 1.0], {x: [1.0, 2.0], y: 3.0}).shape == (3, 2)
    assert verbs.evaluate(x, {x: np.zeros((0, 3))}).shape == (0, 3)


def test_evaluate_gives_fresh_arrays() -> None:
    x, _ = variables(2)
    given = np.arange(3.0)
    found = verbs.evaluate(x, {x: given})
    assert not np.shares_memory(found, given) and found.flags.writeable
    found[0] = 9.0
    assert given[0] == 0.0


def test_evaluate_errors() -> None:
    x, y = variables(2)
    with pytest.raises(InputError, match="no value for x1"):
        verbs.evaluate(x * y, {x: 1.0})
    with pytest.raises(InputError, match="no variable named 'z'"):
        verbs.evaluate(x, {"z": 1.0})
    with pytest.raises(ForeignExpressionError):
        verbs.evaluate(x, {variables(1)[0]: 1.0})
    with pytest.raises(TraceError, match="at least one expression"):
        verbs.evaluate([1.0, 2.0], {})


def test_what_is_no_expression() -> None:
    (x,) = variables(1)
    for call in (
        lambda: verbs.grad(cast(Any, 3.0), x),
        lambda: verbs.grad(x, 3.0),
        lambda: verbs.hessian(cast(Any, "x"), x),
    ):
        with pytest.raises(SymgradError) as caught:
            call()
        assert isinstance(caught.value, TypeError)


def test_subs() -> None:
    x, y, z = variables(3)
    f = functions.sin(x * y) + x * y
    assert f.subs({x: y, y: x}).id == f.id
    assert f.subs({}).id == f.id
    assert f.subs({x * y: z}).id == (functions.sin(z) + z).id
    assert verbs.evaluate(f.subs({x: 2, y: 0.5}), {}) == pytest.approx(math.sin(1) + 1)
    assert (x > 0).subs({x: y}).id == (y > 0).id


def test_substituting_a_variable_into_its_own_place_is_done_once() -> None:
    x, y = variables(2)
    found = (x * x).subs({x: x + y})
    assert verbs.evaluate(found, {x: 1.0, y: 2.0}) == 9.0


class Read(list[Any]):
    """Nodes, and how often one of them was looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        self.looks += len(self)
        return super().__iter__()


def jacobian_step(y: Any, x: Any) -> Any:
    return verbs.jacobian([y, y * x[0]], x)[0]


STEPS: dict[str, Any] = {
    "grad": verbs.grad,
    "vjp": lambda y, x: verbs.vjp([y], x, [2.0]),
    "jvp": lambda y, x: [verbs.jvp(y, x, [1.0, 0.5]), x[1]],
    "hvp": lambda y, x: verbs.hvp(y, x, [1.0, 0.5]),
    "jacobian": jacobian_step,
    "hessian": lambda y, x: verbs.hessian(y, x)[0],
    "subs": lambda y, x: [y.subs({x[0]: x[1]}), y.subs({x[1]: 2.0})],
}


@pytest.mark.parametrize("name", STEPS)
def test_what_a_traced_loop_differentiates_costs_the_same_at_every_step(name: str) -> None:
    graph = Graph()
    x = [Expr(graph, graph.input(n)) for n in "ab"]
    graph.nodes = nodes = Read(graph.nodes)
    counts: list[int] = []
    for _ in range(24):
        before = nodes.looks
        y = (1 - x[0]) ** 2 + 3 * functions.where(x[0] > 0, x[1] - x[0] ** 2, x[1]) ** 2
        found = STEPS[name](y, x)
        x = [x[0] - 0.01 * found[0], x[1] - 0.01 * found[1]]
        counts.append(nodes.looks - before)
    assert counts[23] <= 1.1 * counts[3]


def test_count_ops() -> None:
    x, y = variables(2)
    s = functions.sin(x)
    assert verbs.count_ops(s * s + y) == {"add": 1, "mul": 1, "sin": 1}
    assert verbs.count_ops([s, s * y, 2.0]) == {"mul": 1, "sin": 1}
    assert verbs.count_ops(x) == {}


def test_free_variables() -> None:
    x, y = symbols("x y")
    assert x.graph is y.graph and var("x").id == x.id
    assert verbs.evaluate(verbs.grad(x**2 * y, x), {x: 3.0, y: 2.0}) == 12.0
    assert x.graph.nodes[(x + y).id][0] is ops.add
