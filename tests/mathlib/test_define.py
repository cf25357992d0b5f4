"""What is emitted as a function and what is expanded in place, and that expanding shares parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpmath import mp

import symgrad as sg
from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Op, inputs_of, reachable
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.references import is_split
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib import exponential
from symgrad.mathlib.define import Function, Functions, functions, inlined
from symgrad.pipeline import DTypeName


def expanded(op: Op, *extra: int) -> tuple[Graph, int]:
    graph = Graph()
    graph.tracing = False
    count = op.arity - len(extra)
    root = op(*[Expr(graph, graph.input("ab"[k])) for k in range(count)], *extra)
    simple, (top,) = simplify(graph, [root.id], True, inlined("accurate"))
    return simple, top


def count(graph: Graph, roots: list[int], op: Op) -> int:
    return sum(graph.nodes[i][0] is op for i in reachable(graph, roots))


def test_an_unknown_mathematics_names_the_choices() -> None:
    exact: Any = "exact"
    with pytest.raises(InputError, match='use "accurate", "fast" or "strict"'):
        sg.fused_forward(2, sum, math=exact)
    with pytest.raises(InputError, match='use "accurate", "fast" or "strict"'):
        sg.stencil(sum, [(0, 0), (0, 1)], math=exact)


def test_every_row_is_a_builtin_a_function_a_definition_or_composed() -> None:
    own = {*functions("accurate"), *inlined("accurate")}
    for op in ops.TABLE.values():
        known = op.wgsl or op.compose or op in own or op is ops.stop_gradient
        assert known or not op.arity, op


def test_fast_leaves_to_the_device_what_it_can_do() -> None:
    left = {op.name for op in set(functions("accurate")) - set(functions("fast"))}
    assert left == {
        "exp", "exp2", "log", "log2", "sin", "cos", "tan", "cosh", "asin", "acos", "atan",
        "wide_div",
    }  # fmt: skip


def test_a_function_is_defined_when_it_is_first_asked_for() -> None:
    made: list[str] = []

    def note(function: Function) -> Function:
        made.append(function.name)
        return function

    some = Functions({ops.exp: exponential.exp, ops.log: exponential.log}, note)
    assert ops.log in some and ops.sin not in some and list(some) == [ops.exp, ops.log]
    assert made == []
    assert some[ops.log] is some[ops.log] and made == ["sg_log"]


def test_functions_call_no_circle() -> None:
    done: set[Op] = set()
    waiting = dict(functions("accurate"))
    while waiting:
        ready = [
            op for op, f in waiting.items()
            if all(f.graph.nodes[i][0] not in waiting for i in reachable(f.graph, [f.root]))
        ]  # fmt: skip
        assert ready, f"a circle among {sorted(op.name for op in waiting)}"
        done.update(ready)
        waiting = {op: f for op, f in waiting.items() if op not in done}


def test_function_graphs_hold_no_inline_operation() -> None:
    for f in functions("accurate").values():
        heads = {f.graph.nodes[i][0] for i in reachable(f.graph, [f.root])}
        expanded = set(inlined("accurate")) - {ops.pow}  # pow is, for some constant exponents
        assert not heads & expanded, f.name
        assert f.name == f"sg_{f.op.name}"
        assert f.doc.endswith(".")


def test_sigmoid_and_its_derivative_share_one_exponential() -> None:
    graph = Graph()
    graph.tracing = False
    x = Expr(graph, graph.input("x"))
    y = ops.sigmoid(x)
    (slope,) = ops.sigmoid.partials(y, x)  # type: ignore[misc]
    simple, roots = simplify(graph, [y.id, slope.id], True, inlined("accurate"))
    assert count(simple, roots, ops.exp) == 1
    assert count(simple, roots, ops.reciprocal) == 1


@pytest.mark.parametrize("op", [ops.relu, ops.sigmoid, ops.softplus, ops.logaddexp])
def test_definition_agrees_with_the_reference(op: Op) -> None:
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, 0.5, -0.5, 3.0, -3.0, 30.0, -30.0, 200.0]
    graph, root = expanded(op)
    grid = [v.ravel() for v in np.meshgrid(*[np.array(edges, np.float32)] * op.arity)]
    inputs = dict(zip(inputs_of(graph), grid, strict=True))
    (got,) = evaluate_graph(graph, [root], inputs, np.float32)
    with np.errstate(all="ignore"):
        want = op.reference(*[np.float64(v) for v in grid])
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("k", [*range(-14, 0), *range(2, 17), 2**24 + 1])
def test_integer_powers_are_the_products_of_the_reference(k: int) -> None:
    graph, root = expanded(ops.integer_pow, k)
    x = np.array([1.5, -1.25, 0.3, 0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**70, 3e38], np.float32)
    (got,) = evaluate_graph(graph, [root], {inputs_of(graph)[0]: x}, np.float32)
    with np.errstate(all="ignore"):
        want = ops.integer_pow.reference(x, k)
        true = (x.astype(np.longdouble) ** k).astype(np.float32)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(got, true, rtol=5e-7, atol=1.2e-38)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(true))
    assert count(graph, [root], ops.mul) <= (4 if is_split(k) else 2) * abs(k).bit_length()
    assert count(graph, [root], ops.reciprocal) == (k < 0)


@pytest.mark.parametrize("k", [*range(-14, 0), *range(2, 17)])
def test_products_are_within_4_ulp_for_all_significands(k: int) -> None:
    """Powers of 2 go through a product unchanged: these are all of a stretch, and every 11th."""
    steps = np.concatenate([np.arange(2**15), np.arange(0, 2**23, 11)]).astype(np.uint32)
    x = (steps + np.uint32(0x3F800000)).view(np.float32)
    found, true = ops.integer_pow.reference(x, k), x.astype(np.float64) ** k
    errors = np.abs(found.astype(np.float64) - true) / np.spacing(true.astype(np.float32))
    assert errors.max() <= 4.0


@pytest.mark.parametrize("math", ["accurate", "fast"])
def test_powers_and_their_derivatives_share_their_products(math: Any) -> None:
    """x**12 and 12 x**11: of a logarithm, each takes 30 additions' time at least."""
    kernel = sg.fused_forward_backward(1, lambda v: v[0] ** 12, device="cpu", math=math)
    assert kernel.stats.flops <= {"accurate": 25, "fast": 7}[math]


@pytest.mark.parametrize("k", [17, -15, 25, -25, 100, -37, 2**24])
def test_powers_of_which_a_product_is_inexact_are_powers(k: int) -> None:
    graph, root = expanded(ops.integer_pow, k)
    assert graph.nodes[root][0] is ops.pow and graph.value(graph.nodes[root][2]) == k


@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", "float32"), ("cpu", "float64"), (0, "float32")]
)
def test_integer_powers_are_within_4_ulp(device: Any, dtype: DTypeName) -> None:
    """Repeated squaring is 7 ULP off at x**25 and more beyond, by either sign of base or power.

    Near the end of the range what a product is divided by is subnormal, and some GPUs flush it.
    """
    powers = [-100, -37, -25, *range(-16, 0), *range(2, 19), 25, 31, 64, 100]
    if device == 0 and not any(d.is_gpu for d in sg.devices()):
        pytest.skip("no GPU and no software Vulkan driver here")
    kernel = sg.fused_forward(1, lambda v: [v[0] ** k for k in powers], device=device, dtype=dtype)
    random = np.random.default_rng(3)
    sizes = np.concatenate([random.uniform(0.5, 2.0, 700), np.exp(random.uniform(-30, 30, 300))])
    x = (sizes * random.choice([-1.0, 1.0], len(sizes))).astype(dtype)
    limits = np.finfo(x.dtype)
    half = sg.fused_forward(1, lambda v: 0.5 * v[0], device=device, dtype=dtype)
    flushes = half.run([limits.tiny]) == 0.0
    for k, found in zip(powers, kernel.run(x[:, None]), strict=True):
        with mp.workdps(40):
            true = [mp.mpf(float(v)) ** k for v in x]
            most = float(limits.max) / (4.0 if flushes and -15 < k < 0 else 1.0)
            usable = [float(limits.tiny) < abs(t) < most for t in true]
            errors = [
                float(abs(mp.mpf(float(f)) - t) / np.spacing(np.abs(x.dtype.type(float(t)))))
                for f, t, u in zip(found, true, usable, strict=True)
                if u
            ]
        assert max(errors) <= 4.0, (k, max(errors))


def test_the_zeroth_power_is_one() -> None:
    graph, root = expanded(ops.integer_pow, 0)
    assert graph.value(root) == 1.0
