"""Python's loops, written out while tracing, become loops: what they compute stays the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.graph.arrays import PUT
from symgrad.expr.graph.node import CONST, WORD
from symgrad.expr.graph.region import Loop, regions
from symgrad.expr.graph.verify import verify
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracing.roll import rolled
from symgrad.expr.tracing.trace import Trace, trace
from symgrad.targets import DeviceChoice

ROUNDING = 2.0**-51

DATA = np.random.default_rng(0).normal(size=1000)

F = TypeVar("F", bound=Callable[..., Any])

PROGRAMS: dict[str, Callable[[Any], Any]] = {}
"""Functions of four numbers, each of a loop of Python's."""


def program(f: F) -> F:
    """A decorator that adds a function to the programs."""
    PROGRAMS[f.__name__] = f
    return f


@program
def runge_kutta(v: Any, iterations: int = 300) -> Any:
    """Lotka and Volterra's equations."""
    a, b, x, y = v

    def slopes(x: Any, y: Any) -> Any:
        return a * x - b * x * y, 0.3 * x * y - 0.4 * y

    for _ in range(iterations):
        p = slopes(x, y)
        q = slopes(x + 0.005 * p[0], y + 0.005 * p[1])
        r = slopes(x + 0.01 * q[0], y + 0.01 * q[1])
        x = x + 0.01 / 6 * (p[0] + 4 * q[0] + r[0])
        y = y + 0.01 / 6 * (p[1] + 4 * q[1] + r[1])
    return (x - 1) ** 2 + y**2


@program
def driven(v: Any) -> Any:
    """What is computed at t + h is computed again at the next t, where that is the same float."""
    w, g, x, p = v
    for k in range(400):
        t = k * 0.01
        here, there = sg.cos(w * t), sg.cos(w * (t + 0.01))
        p = p + 0.005 * (here + there - sg.sin(x) - g * p)
        x = x + 0.01 * p
    return x * p


@program
def two_iterations_ago(v: Any) -> Any:
    a, b, w, _ = v
    for _k in range(500):
        a, b = b, (a + b * w) / 2
    return a * b


@program
def swapped(v: Any) -> Any:
    """A product of carries has them in the order of their ids, another in the first turn."""
    a, b, c, _ = v
    for _k in range(400):
        a, b, c = a * b, b * c, (c + a) / 2
    return a + b + c


@program
def first_turn_kept(v: Any) -> Any:
    a, b, x, _ = v
    kept: Any = None
    for k in range(600):
        x = x + 0.01 * sg.sin(a * x)
        kept = x if k == 0 else kept
        x = x * (1 + 0.001 * b * kept)
    return x


@program
def same_in_all_turns(v: Any) -> Any:
    a, b, m, x = v
    for _k in range(400):
        x = x + (a / m) * sg.cos(x) * 0.01 - (b / m) * x * 0.02
    return x


@program
def nested(v: Any) -> Any:
    a, b, x, _ = v
    for _i in range(40):
        x = x * (1 + 0.001 * b)
        for j in range(20):
            x = x + 0.01 * sg.sin(a * x) / (1 + j)
    return x


@program
def nested_deep(v: Any) -> Any:
    """The inner loop is longer than what would be a body."""
    a, b, x, _ = v
    for _i in range(10):
        x = x * (1 + 0.001 * b)
        for _j in range(300):
            x = x + 0.01 * sg.sin(a * x)
    return x


@program
def now_and_then(v: Any) -> Any:
    a, b, x, y = v
    loss: Any = 0.0
    for k in range(1000):
        x = x + 0.01 * (a * x - b * x * x)
        if k % 50 == 49:
            loss = loss + (x - y) ** 2
    return loss


@program
def some_turns_kept(v: Any) -> Any:
    a, b, x, _ = v
    kept: list[Any] = []
    for k in range(1500):
        x = x + 0.01 * sg.sin(a * x) + b * 0.01 * k
        kept.append(x)
    return kept[0] * kept[700] + kept[-1] + kept[-5]


@program
def last_slope(v: Any) -> Any:
    """A method of two steps: a slope is used in the next turn once more."""
    a, x, b, _ = v
    before = a * x
    for _k in range(500):
        now = -a * x
        x = x + 0.01 * (1.5 * now - 0.5 * b * before)
        before = now
    return x


@program
def table(v: Any) -> Any:
    a, b, s, _ = v
    for k in range(1000):
        s = sg.sin(a * s + b * DATA[k])
    return s


@program
def long_table(v: Any) -> Any:
    """What puts the table together is as long as a loop, and no loop."""
    z, step, _, _ = v
    for k in range(2500):
        z = z * (0.99 - 1e-3 * (k % 3)) + 0.01 * step
    return z


@program
def several_elements(v: Any) -> Any:
    """A period that no single line shows: all elements come from the same ones."""
    matrix = np.arange(16).reshape(4, 4) / 20
    x = v
    for _k in range(60):
        x = x + 0.01 * np.tanh(matrix @ x) * v[0]
    return np.sum(x * x)


@program
def of_any_dimension(v: Any) -> Any:
    """Each line is done for all elements, and for two slopes: no line comes once a turn."""

    def slope(s: tuple[Any, ...]) -> tuple[Any, ...]:
        return v[0] * s[0] - v[1] * s[0] * s[1], 0.3 * s[0] * s[1] - 0.4 * s[1]

    def moved(s: tuple[Any, ...], k: tuple[Any, ...], by: float) -> tuple[Any, ...]:
        return tuple(x + by * dx for x, dx in zip(s, k, strict=True))

    s = v[2], v[3]
    for _ in range(150):
        s = moved(s, slope(moved(s, slope(s), 0.005)), 0.01)
    return s[0] * s[1]


@program
def choices(v: Any) -> Any:
    a, x, b, _ = v
    most = x
    for k in range(600):
        x = x + 0.1 * sg.sin(x * a + k)
        most = sg.maximum(most, sg.where(x > a, x, most * b))
    return most * x


def both(f: Callable[[Any], Any], n: int = 4) -> tuple[Trace, Trace]:
    """A trace, and the same rolled."""
    traced = trace(f, n)
    made = rolled(traced, ROUNDING)
    verify(made.graph, made.outputs)
    return traced, made


def values(traced: Trace, at: np.ndarray, gradient: bool = False) -> np.ndarray:
    """The outputs, or the gradient of the first, at points (n, count)."""
    graph, roots = traced.graph, list(traced.outputs)
    if gradient:
        found = vjp(graph, {roots[0]: graph.constant(1.0)}, traced.inputs)
        roots = [graph.constant(0.0) if i is None else i for i in found]
    inputs = dict(zip(traced.inputs, at, strict=True))
    shape = at.shape[1:]
    return np.array([np.broadcast_to(x, shape) for x in evaluate_graph(graph, roots, inputs)])


AT = np.random.default_rng(3).uniform(0.5, 0.9, (4, 5))


@pytest.mark.parametrize("f", PROGRAMS.values(), ids=PROGRAMS)
def test_values_and_gradients_stay(f: Callable[[Any], Any]) -> None:
    traced, made = both(f)
    made_of = [made.graph, *[region.graph for region in regions(made.graph, made.outputs)]]
    inside = sum(1 for g in made_of for node in g.nodes if node[0] not in (PUT, WORD, CONST))
    assert inside < len(traced.graph) / 8
    assert any(isinstance(n[0], Loop) for n in made.graph.nodes)
    np.testing.assert_allclose(values(made, AT), values(traced, AT), rtol=1e-13)
    np.testing.assert_allclose(
        values(made, AT, gradient=True), values(traced, AT, gradient=True), rtol=1e-10, atol=1e-13
    )


def test_inputs_in_a_row_are_elements_of_an_array() -> None:
    n = 1000

    def f(v: Any) -> Any:
        s = v[0]
        for k in range(n // 2):
            s = sg.sin(s * v[2 * k + 1] + v[2 * k]) * s + sg.cos(s * v[0]) * v[2 * k] - s * 0.25
            s = s + 0.1 * sg.exp(-s * s) * v[1]
        return s

    traced, made = both(f, n)
    assert sum(len(region.graph) for region in regions(made.graph, made.outputs)) < 40
    at = np.random.default_rng(2).uniform(0.1, 0.9, (n, 3))
    np.testing.assert_allclose(values(made, at), values(traced, at), rtol=1e-12)
    slopes = [values(t, at, gradient=True) for t in (made, traced)]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-9, atol=1e-14)
    kernel = sg.fused_forward_backward(n, f, device="cpu", dtype="float64")
    assert len(kernel.wgsl.splitlines()) < n / 2  # most of them functions
    np.testing.assert_allclose(kernel.run(at.T)[1].T, slopes[0], rtol=1e-9, atol=1e-14)


def test_what_is_long_within_a_body_is_a_loop_too() -> None:
    made = both(nested_deep)[1]
    bodies = list(regions(made.graph, made.outputs))
    assert len(bodies) == 2 and all(len(body.graph) < 20 for body in bodies)


def test_turns_that_are_short_stay() -> None:
    def f(v: Any) -> Any:
        return runge_kutta(v, 20)

    traced, made = both(f)
    assert made is traced


def test_the_lines_of_the_user_stay() -> None:
    made = both(runge_kutta)[1]
    (body,) = regions(made.graph, made.outputs)
    lines = {place.text for place in body.graph.sources if place}
    assert "y = y + 0.01 / 6 * (p[1] + 4 * q[1] + r[1])" in lines
    assert body.graph.names[1:3] == ["x", "y"] or body.graph.names[1:3] == ["y", "x"]


def test_what_has_no_turns_is_left_alone() -> None:
    """Operations come again in no order."""
    rng = np.random.default_rng(1)
    steps: list[Callable[[Any], Any]] = [sg.sin, sg.cos, sg.exp, sg.tanh, sg.atan]
    order = rng.integers(0, len(steps), 4000)

    def f(v: Any) -> Any:
        x = v[0]
        for k in order:
            x = steps[k](x)
        return x

    traced, made = both(f, 1)
    assert made is traced


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_kernels_roll_unless_they_are_told_not_to(device: DeviceChoice) -> None:
    names = ["a", "b", "x", "y"]
    kernel = sg.fused_forward_backward(
        4, runge_kutta, names=names, device=device, checkpoint="keep"
    )
    plain = sg.fused_forward(4, runge_kutta, device="cpu", roll=False)
    assert len(kernel.wgsl.splitlines()) < 150 and "k < 300u" in kernel.wgsl
    assert len(plain.wgsl.splitlines()) > 2000
    loss, gradient = kernel.run(AT.T)
    traced = trace(runge_kutta, 4)
    np.testing.assert_allclose(loss, values(traced, AT)[0], rtol=2e-5)
    slopes = values(traced, AT, gradient=True)
    np.testing.assert_allclose(gradient, slopes.T, rtol=5e-5, atol=5e-5)


def test_a_loss_with_loops_is_minimised() -> None:
    def f(v: Any) -> Any:
        x = v[0]
        for _ in range(300):
            x = x + 0.01 * (v[1] * x - v[2] * x * x)
        return (x - v[3]) ** 2

    kernel = sg.fused_forward_backward(4, f, device="cpu", dtype="float64")
    assert "for (var k" in kernel.wgsl
    found = kernel.minimize(AT.T, sg.GradientDescent(0.01), 3)
    assert found.fun.shape == (5,) and (found.fun <= kernel.run(AT.T)[0]).all()


def test_a_derivative_of_the_user_s_own_is_in_a_loop() -> None:
    cubed = sg.custom_vjp(lambda x: x**3, lambda g, y, x: (3.0 * g * x**2,))

    def f(v: Any) -> Any:
        x = v[0]
        for _ in range(250):
            x = x + 0.001 * sg.sin(cubed(x) * v[1])
        return x

    kernel = sg.fused_forward_backward(2, f, device="cpu", dtype="float64")
    plain = sg.fused_forward_backward(2, f, device="cpu", dtype="float64", roll=False)
    assert kernel.stats.nodes < plain.stats.nodes / 10
    for found, want in zip(kernel.run([0.5, 0.7]), plain.run([0.5, 0.7]), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-12)
