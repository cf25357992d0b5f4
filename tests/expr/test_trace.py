"""Tracing: what functions may do, what they may return, and that the same is traced the same."""

from __future__ import annotations

import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import (
    ForeignExpressionError,
    InputError,
    InputTypeError,
    SymgradError,
    TraceError,
)
from symgrad.expr.graph.node import CONST, INPUT
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import ExprArray
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.tree import Tree
from symgrad.expr.tracing.trace import scalar, trace

ROOT = Path(__file__).parents[2]
Pair = namedtuple("Pair", "a b")


def test_what_a_function_gets() -> None:
    def f(v: Any) -> Any:
        assert isinstance(v, ExprArray) and v.shape == (3,) and len(v) == 3
        assert all(isinstance(x, Expr) for x in v)
        first, *rest = v
        return first + rest[0] * v[-1] + v[:2].sum() + sum(x for x in v[::2])

    t = trace(f, 3)
    assert t.inputs == (0, 1, 2) and t.graph.names == ["x0", "x1", "x2"]
    assert not t.graph.tracing


def test_names() -> None:
    assert trace(lambda v: v[0], 2, ["mass", "speed"]).graph.names == ["mass", "speed"]


def test_helpers_closures_loops_and_comprehensions() -> None:
    scale = 3.0

    def helper(x: Any, *, power: int = 2) -> Any:
        return scale * x**power

    def f(v: Any) -> Any:
        total = 0
        for k, x in enumerate(v):
            total += helper(x, power=k + 2)
        return total + sum([helper(x) for x in v]) + float(np.pi)

    t = trace(f, 2)
    assert t.structure == Tree()


RETURNS: dict[str, tuple[Any, Tree, int]] = {
    "scalar": (lambda v: v[0] * 2, Tree(), 1),
    "input": (lambda v: v[1], Tree(), 1),
    "number": (lambda v: 3, Tree(), 1),
    "NumPy number": (lambda v: np.float32(3), Tree(), 1),
    "condition": (lambda v: v[0] > 0, Tree("condition"), 1),
    "vector": (lambda v: v * 2, Tree("array", (2,)), 2),
    "matrix": (lambda v: np.outer(v, v), Tree("array", (2, 2)), 4),
    "0-d array": (lambda v: np.array(1.5), Tree(), 1),
    "tuple": (lambda v: (v[0], v[1], 1.0), Tree(tuple, (), (Tree(),) * 3), 3),
    "list": (lambda v: [v[0], v], Tree(list, (), (Tree(), Tree("array", (2,)))), 3),
    "dict": (
        lambda v: {"b": v[0], "a": v[1]},
        Tree("dict", ("b", "a"), (Tree(),) * 2),
        2,
    ),
    "named tuple": (lambda v: Pair(v[0], v[1]), Tree(Pair, (), (Tree(),) * 2), 2),
    "numeric array": (lambda v: np.arange(4.0), Tree("array", (4,)), 4),
}


@pytest.mark.parametrize("name", RETURNS)
def test_results(name: str) -> None:
    f, structure, count = RETURNS[name]
    t = trace(f, 2)
    assert t.structure == structure and len(t.outputs) == count == t.structure.size
    assert all(t.graph.type(i) == "f" for i in t.outputs)


def test_results_that_are_inputs_and_constants() -> None:
    t = trace(lambda v: [v[1], 4.0], 2)
    assert t.graph.nodes[t.outputs[0]] == (INPUT, 1)
    assert t.graph.nodes[t.outputs[1]][0] is CONST


@pytest.mark.parametrize("name", RETURNS)
def test_results_are_nested_again(name: str) -> None:
    _, structure, count = RETURNS[name]
    numbers = np.arange(float(count))
    one, many = structure.build(numbers), structure.build(np.stack([numbers, numbers + 10]))
    flat = np.concatenate([np.ravel(p) for p in _leaves(one)])
    np.testing.assert_array_equal(flat, numbers)
    np.testing.assert_array_equal(_leaves(many)[0][1], np.asarray(_leaves(one)[0]) + 10)
    if isinstance(one, tuple):
        assert type(one) is structure.kind


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in _leaves(v)]
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in _leaves(v)]
    return [value]


BAD: dict[str, tuple[Any, str]] = {
    "None": (lambda v: None, "does it lack a return statement"),
    "str": (lambda v: "x", "returned 'x'"),
    "complex": (lambda v: 1j, "returned 1j"),
    "a function": (lambda v: abs, "returned <built-in function abs>"),
    "None inside": (lambda v: (v[0], None), "lack a return"),
    "an array of strings": (lambda v: np.array(["a"]), "real number"),
    "complex array": (lambda v: np.array([1j]), "real number"),
    "a set": (lambda v: {v[0]}, "returned"),
}


@pytest.mark.parametrize("name", BAD)
def test_results_that_are_none(name: str) -> None:
    f, text = BAD[name]
    with pytest.raises(SymgradError, match=text) as caught:
        trace(f, 2)
    assert isinstance(caught.value, TypeError)


def test_messages_about_results_say_which_function() -> None:
    with pytest.raises(TraceError, match=r"nothing \(.*test_trace\.py:\d+\) returned None"):
        trace(nothing, 1)
    assert "nothing (" in describe(nothing) and describe(cast(Any, 3)) == "3"


def nothing(v: Any) -> None:
    _ = v[0] + 1


@pytest.mark.parametrize(
    "f", [lambda v: (v[0], v[1]), lambda v: v, lambda v: {"a": v[0]}, lambda v: [v[0]]]
)
def test_a_loss_is_one_scalar(f: Any) -> None:
    with pytest.raises(TraceError, match="a loss is one scalar"):
        scalar(trace(f, 2), f)


def test_a_loss_is_no_condition() -> None:
    """Its derivative is 0 wherever it has one, so that whoever returns it forgot something."""
    losses: list[Any] = [
        lambda v: v[0] > 0, lambda v: ~(v[0] > v[1]), lambda v: True, lambda v: np.bool_(False),
        lambda v: np.array(v[0] > 0),
    ]  # fmt: skip
    for f in losses:
        with pytest.raises(TraceError, match=r"returned a condition.*sg\.where"):
            sg.fused_forward_backward(2, f)
        with pytest.raises(TraceError, match="returned a condition"):
            sg.minimize_from(f, 2, [1.0, 1.0], sg.LBFGS(), device="cpu")
        with pytest.raises(TraceError, match="returned a condition"):
            sg.minimize_from(f, 2, [1.0, 1.0], sg.LevenbergMarquardt(), device="cpu")
    with pytest.raises(TraceError, match="returned a condition"):
        sg.fused_forward_backward(2, lambda p, r: p[0] > r[0], row=1)
    with pytest.raises(TraceError, match="returned a condition"):
        sg.value_and_grad(lambda x: (x > 0, x), has_aux=True)(1.0)
    held = sg.fused_forward(1, lambda v: {"is": v[0] > 0, "both": (v[0] > 1, v[0])}, device="cpu")
    assert held.run([0.5]) == {"is": 1.0, "both": (0.0, 0.5)}


def test_a_0_d_array_is_a_scalar() -> None:
    def f(v: Any) -> Any:
        return np.sum(v, keepdims=True).reshape(())

    assert len(scalar(trace(f, 2), f).outputs) == 1


@pytest.mark.parametrize(
    ("n", "error"),
    [
        (0, InputError),
        (-1, InputError),
        (1.5, TypeError),
        ("3", TypeError),
        (None, TypeError),
        (True, TypeError),
    ],
)
def test_bad_counts(n: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        trace(lambda v: v[0], n)
    assert isinstance(caught.value, SymgradError)


HUGE = 2**31


@pytest.mark.parametrize("make", [
    lambda: trace(lambda v: v[0], HUGE),
    lambda: sg.fused_forward_backward(HUGE, lambda v: v[0]),
    lambda: sg.fused_hvp(HUGE, lambda v: v[0]),
    lambda: sg.fused_hvp(2**20 - 1, lambda v: v[0]),
    lambda: sg.forward_backward(lambda v: v[0], np.broadcast_to(0.0, HUGE)),
    lambda: sg.value_and_grad(lambda v: v[0])(np.broadcast_to(0.0, HUGE)),
    lambda: sg.fused_forward_backward(1, lambda p, r: p[0] * r[0], row=HUGE),
    lambda: sg.fused_forward_backward(HUGE, lambda p, r: p[0] * r.x, columns=["k", "x"]),
    lambda: sg.fused_forward_backward((9, HUGE), lambda p, r: p[r.k, 0], columns=["k", "x"]),
    lambda: sg.minimize_from(lambda v: v @ v, 2, [1, 1], sg.LBFGS(history=HUGE), device="cpu"),
    lambda: sg.minimize_from(lambda v: v @ v, 2, [1, 1], sg.LBFGS(history=2**19), device="cpu"),
], ids=range(11))  # fmt: skip
def test_more_variables_than_memory_holds(make: Any) -> None:
    with pytest.raises(InputError, match=r"are feasible|memory holds|than by a column"):
        make()


def test_any_number_of_parameters_may_be_looked_up() -> None:
    loss = lambda p, r: p[r.k] * r.x  # noqa: E731
    kernel = sg.fused_forward_backward(HUGE, loss, columns=["k", "x"], device="cpu")
    assert kernel.n_inputs == HUGE


def test_expressions_kept_from_another_trace() -> None:
    kept: list[Any] = []

    def f(v: Any) -> Any:
        kept.append(v[0])
        return kept[0] * v[0]

    trace(f, 1)
    with pytest.raises(ForeignExpressionError, match="x0 belongs to another trace"):
        trace(f, 1)
    with pytest.raises(ForeignExpressionError):
        trace(lambda v: kept[0], 1)


def test_too_many_inputs_to_unpack_is_python_s_error() -> None:
    with pytest.raises(ValueError, match="unpack"):
        trace(lambda v: (lambda a, b: a)(*v) if False else [0 for a, b in [v]], 3)


def test_constants_that_are_no_floats() -> None:
    with pytest.raises(InputTypeError):
        trace(lambda v: v[0] * np.datetime64("2020-01-01"), 1)


PROGRAM = """
import numpy as np
from symgrad.expr.tracers import functions as sg
from symgrad.expr.derivatives import differentiate
from symgrad.pipeline import Derivation, Options, Wanted, build
from symgrad.report.kernel import Shaders
from symgrad.values.nested import Array, Scalar

def f(v):
    names = {"a", "b", "c", "d"}  # a set of strings: its order depends on the hash seed
    w = {name: v[k] for k, name in enumerate(sorted(names))}
    z = sum(sg.tanh(w[k]) * sg.erf(v[1]) for k in "abcd") + sg.logaddexp(v[0], v[1]) % 2
    z = sg.where(z > 0, sg.pow(abs(z), v[2]), np.linalg.norm(v))
    return z + sg.gelu(v[3]) / sg.hypot(v[0], v[1])

def derive(t):
    loss = t.outputs[0]
    g = differentiate.vjp(t.graph, {loss: t.graph.constant(1.0)}, t.inputs)
    return [Wanted("loss", (loss,), Scalar()), Wanted("grad", tuple(g), Array((4,)))]

computation = build(f, 4, Derivation("slopes", derive), Options("f")).computation
for module in Shaders(computation, Options("f"), "f").modules:
    print(module)
"""


def test_the_same_function_gives_the_same_kernel_in_every_process() -> None:
    sources = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=ROOT, env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True, check=True, timeout=120,
        ).stdout
        for seed in ("0", "1", "4242")
    }  # fmt: skip
    assert len(sources) == 1
    assert b"fn main" in sources.pop()


def test_the_same_function_traced_twice_is_the_same_graph() -> None:
    def f(v: Any) -> Any:
        return functions.sin(v @ v) + np.prod(v) / (1 + v[0] ** 2)

    first, second = trace(f, 3), trace(f, 3)
    assert first.graph.nodes == second.graph.nodes and first.outputs == second.outputs
    assert first.graph.places == second.graph.places
