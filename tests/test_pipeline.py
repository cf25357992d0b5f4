"""The pipeline: functions are traced at every call, and what follows of equal traces is kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad import pipeline

POWER = 1.0
X = np.linspace(0.5, 2.0, 20)


class Law:
    """A model with a state."""

    def __init__(self) -> None:
        self.power = 1.0

    def __call__(self, x: Any, a: Any) -> Any:
        return a * x**self.power

    def at(self, x: Any, a: Any) -> Any:
        return self(x, a)

    def become(self, power: float) -> None:
        self.power = power


def by_closure() -> tuple[Callable[..., Any], Callable[[float], None]]:
    power = 1.0

    def become(value: float) -> None:
        nonlocal power
        power = value

    return lambda x, a: a * x**power, become


def by_global() -> tuple[Callable[..., Any], Callable[[float], None]]:
    def become(value: float) -> None:
        global POWER
        POWER = value

    return lambda x, a: a * x**POWER, become


def by_method() -> tuple[Callable[..., Any], Callable[[float], None]]:
    law = Law()
    return law.at, law.become


def by_object() -> tuple[Callable[..., Any], Callable[[float], None]]:
    law = Law()
    return law, law.become


def by_partial() -> tuple[Callable[..., Any], Callable[[float], None]]:
    law = Law()
    return functools.partial(lambda law, x, a: a * x**law.power, law), law.become


def by_array() -> tuple[Callable[..., Any], Callable[[float], None]]:
    powers = np.array([1.0])
    return lambda x, a: a * x ** powers[0], lambda value: powers.fill(value)


def by_default() -> tuple[Callable[..., Any], Callable[[float], None]]:
    def f(x: Any, a: Any, *, power: float = 1.0) -> Any:
        return a * x**power

    return f, lambda value: setattr(f, "__kwdefaults__", {"power": value})


CHANGING = [by_closure, by_global, by_method, by_object, by_partial, by_array, by_default]


@pytest.mark.parametrize("make", CHANGING)
def test_what_a_function_depends_on_may_change_between_calls(make: Callable[[], Any]) -> None:
    f, become = make()
    loss = lambda v: f(v[1], v[0])  # noqa: E731
    for power in (1.0, 2.0, 3.5, 1.0):
        become(power)
        y = 3.0 * X**power
        # nothing of the power is seen where the fits begin: a = 0
        assert sg.curve_fit(f, X, y, [0.0])[0][0] == pytest.approx(3.0, rel=1e-12)
        many = sg.fit_many(f, X, y[None], [0.0], device="cpu")
        assert many.x[0, 0] == pytest.approx(3.0, rel=1e-12)
        kernel = sg.fused_forward_backward(2, loss, device="cpu", dtype="float64")
        assert kernel.run([0.0, 2.0])[1].tolist() == pytest.approx([2.0**power, 0.0])
        found = sg.minimize(lambda v: sg.grad(f(2.0, v[0]), v[0]) + (v[0] - 1) ** 2, [0.0])
        assert found.fun == pytest.approx(2.0**power)


def test_lambdas_of_a_loop_are_their_own() -> None:
    laws = [lambda x, a, k=k: a * x**k for k in range(1, 4)]
    for k, law in enumerate(laws, 1):
        assert sg.curve_fit(law, X, 2.0 * X**k, [0.0])[0][0] == pytest.approx(2.0, rel=1e-12)


def test_a_derivative_of_the_users_own_may_change() -> None:
    factor = 1.0
    f = sg.custom_vjp(lambda x: x * x, lambda g, y, x: (factor * g,))
    for factor in (1.0, 2.0):
        kernel = sg.fused_forward_backward(1, lambda v: f(v[0]), device="cpu")
        assert kernel.run([3.0])[1].tolist() == [factor]


def test_rates_and_losses_of_a_run_may_change() -> None:
    now = np.zeros(2)
    loss = lambda v: (v[0] - now[1]) ** 2  # noqa: E731
    scheduled = sg.GradientDescent(lambda _: now[0])
    for rate, centre in ((0.5, 1.0), (0.25, 1.0), (0.25, 3.0)):
        now[:] = rate, centre
        for method in (scheduled, sg.GradientDescent(rate)):
            found = sg.minimize_from(loss, 1, [[0.0]], method, 1, device="cpu")
            assert found.x.tolist() == [[2.0 * rate * centre]]


def test_equal_runs_trace_their_steps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, scales = np.zeros(2, int), [0.0]
    original = sg.Adam.update

    def counted(*args: Any) -> Any:
        counts[1] += 1
        return original(*args)

    def loss(v: Any) -> Any:
        counts[0] += 1
        return 1.37 * v[0] ** 2 + scales[0] * v[1] ** 2

    monkeypatch.setattr(sg.Adam, "update", counted)
    seen = []
    for scales[0] in (0.111, 0.111, 0.222):
        sg.minimize_from(loss, 2, [[1.0, 1.0]], sg.Adam(0.1), 3, device="cpu")
        seen.append(counts.tolist())
    assert seen[0][1] == seen[1][1] == 1 and seen[2][1] == 2
    assert seen[1][0] == seen[0][0] + 1, "the loss alone is traced again"


def test_equal_traces_are_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[int] = []
    original = pipeline.simplify_outputs
    monkeypatch.setattr(
        pipeline, "simplify_outputs", lambda *args: derived.append(1) or original(*args)
    )
    constants = [0.123, 0.456, 0.123]
    loss = lambda v: constants[0] * v[0] ** 2 + v[1]  # noqa: E731
    kinds = [sg.fused_forward_backward, sg.fused_hessian, sg.fused_hvp]
    for k in range(3):
        constants[0] = constants[k]
        for fused in kinds:
            fused(2, loss, device="cpu", dtype="float64")
    assert len(derived) == 2 * len(kinds)


def test_kernels_of_equal_traces_share_no_expressions() -> None:
    loss = lambda v: v[0] * v[1]  # noqa: E731
    one, other = (sg.fused_forward_backward(2, loss, device="cpu") for _ in range(2))
    before = repr(other.expr)
    grown = one.expr[0] * 17.0
    assert "17" in repr(grown) and repr(other.expr) == before
    assert one.expr[0].graph is not other.expr[0].graph
    assert one.wgsl == other.wgsl


def test_equal_traces_of_other_lines_quote_their_own() -> None:
    one = sg.fused_forward_backward(1, lambda v: sg.exp(v[0]), device="cpu", name="f")
    other = sg.fused_forward_backward(1, lambda u: sg.exp(u[0]), device="cpu", name="f")
    assert "sg.exp(v[0])" in one.wgsl and "sg.exp(u[0])" in other.wgsl


SHARED: dict[str, Callable[[Any], Any]] = {
    "a product that is needed": lambda v: (
        (v[0] * v[1] + v[0] * v[2]) * sg.exp(v[0] * v[1]) + sg.sin(v[0] * v[2])
    ),
    "exponentials that are needed": lambda v: (
        sg.exp(v[0]) * sg.exp(v[1]) + sg.exp(v[0]) + sg.exp(v[1])
    ),
    "a quotient that is needed": lambda v: sg.sin(v[0] / v[2]) * (v[0] / v[2] + v[1] / v[2]),
    "none": lambda v: sg.exp(v[0]) * sg.exp(v[1]) + v[2] * 0.0,
}


@pytest.mark.parametrize("name", SHARED)
def test_laws_of_real_numbers_make_no_kernel_dearer(name: str) -> None:
    make = functools.partial(sg.fused_forward_backward, 3, SHARED[name], device="cpu")
    exact, real = make(simplify=True), make(simplify="real")
    assert real.stats.flops <= exact.stats.flops
    x = [0.3, -0.7, 1.2]
    np.testing.assert_allclose(np.hstack(real.run(x)), np.hstack(exact.run(x)), rtol=1e-5)
