"""Each rule against the update of its paper, written out in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from optimize.problems import DOUBLE, interpreted, rosenbrock

import symgrad as sg

STARTS = np.array([[-1.2, 1.0], [0.3, -0.7], [2.0, 2.0]])
Update = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def gradient(v: np.ndarray) -> np.ndarray:
    a, b = v
    return np.array([-400 * a * (b - a * a) - 2 * (1 - a), 200 * (b - a * a)])


def descent(lr: Callable[[int], float]) -> Update:
    return lambda x, g, k: x - lr(k) * g


class Heavy:
    def __init__(self, nesterov: bool) -> None:
        self.m, self.nesterov = np.zeros(2), nesterov

    def __call__(self, x: np.ndarray, g: np.ndarray, k: int) -> np.ndarray:
        self.m = 0.9 * self.m + g
        return x - 1e-4 * (g + 0.9 * self.m if self.nesterov else self.m)


class Moments:
    def __init__(self, decay: float = 0.0) -> None:
        self.m, self.v, self.decay = np.zeros(2), np.zeros(2), decay

    def __call__(self, x: np.ndarray, g: np.ndarray, k: int) -> np.ndarray:
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.99 * self.v + 0.01 * g * g
        x = x - 0.02 * self.decay * x
        m, v = self.m / (1 - 0.9 ** (k + 1)), self.v / (1 - 0.99 ** (k + 1))
        return x - 0.02 * m / (np.sqrt(v) + 1e-8)


def clipped(x: np.ndarray, g: np.ndarray, k: int) -> np.ndarray:
    g = np.clip(g, -30.0, 30.0)
    return x - 1e-2 * g * min(1.0, 20.0 / np.linalg.norm(g))


RULES: dict[str, tuple[Any, Callable[[], Update]]] = {
    "gradient descent": (sg.GradientDescent(1e-3), lambda: descent(lambda k: 1e-3)),
    "momentum": (sg.Momentum(1e-4), lambda: Heavy(False)),
    "nesterov": (sg.Momentum(1e-4, nesterov=True), lambda: Heavy(True)),
    "adam": (sg.Adam(0.02, b2=0.99), Moments),
    "adamw": (sg.AdamW(0.02, b2=0.99, weight_decay=0.1), lambda: Moments(0.1)),
    "clipped": (
        sg.Clipped(sg.GradientDescent(1e-2), value=30.0, norm=20.0),
        lambda: clipped,
    ),
    "constant": (
        sg.GradientDescent(sg.schedules.Constant(1e-3)),
        lambda: descent(lambda k: 1e-3),
    ),
    "cosine": (
        sg.GradientDescent(sg.schedules.Cosine(1e-3, 10, 1e-4)),
        lambda: descent(lambda k: 1e-4 + 9e-4 * (1 + np.cos(np.pi * min(k, 10) / 10)) / 2),
    ),
    "exponential": (
        sg.GradientDescent(sg.schedules.Exponential(1e-3, 0.5, 5)),
        lambda: descent(lambda k: 1e-3 * 0.5 ** (k / 5)),
    ),
    "warmup": (
        sg.GradientDescent(sg.schedules.Warmup(sg.schedules.Exponential(1e-3, 0.5), 4)),
        lambda: descent(lambda k: 1e-3 * k / 4 if k < 4 else 1e-3 * 0.5 ** (k - 4)),
    ),
}


@pytest.mark.parametrize("steps", [0, 1, 2, 15])
@pytest.mark.parametrize("name", RULES)
def test_steps_are_those_of_the_textbook(name: str, steps: int) -> None:
    rule, reference = RULES[name]
    found = sg.minimize_from(rosenbrock, 2, STARTS, rule, steps, **DOUBLE)
    for start, x, fun in zip(STARTS, found.x, found.fun, strict=True):
        update, want = reference(), start
        for k in range(steps):
            want = update(want, gradient(want), k)
        np.testing.assert_allclose(x, want, rtol=1e-12)
        np.testing.assert_allclose(fun, rosenbrock(want), rtol=1e-11)
    np.testing.assert_array_equal(found.nit, steps)
    np.testing.assert_array_equal(found.status, 0)
    assert not found.success.any()


@pytest.mark.parametrize("name", RULES)
def test_in_float32_and_by_the_interpreter(name: str) -> None:
    rule, _ = RULES[name]
    want = sg.minimize_from(rosenbrock, 2, STARTS, rule, 15, **DOUBLE)
    single = sg.minimize_from(rosenbrock, 2, STARTS, rule, 15, device="cpu")
    slow = sg.minimize_from(rosenbrock, 2, STARTS, rule, 15, runner=interpreted, **DOUBLE)
    assert single.x.dtype == np.float32
    np.testing.assert_allclose(single.x, want.x, rtol=1e-4)
    np.testing.assert_allclose(slow.x, want.x, rtol=1e-12)


def test_a_memory_that_changes_its_shape_is_refused() -> None:
    class Wrong(sg.Rule):
        def start(self, n: int) -> Any:
            return (np.zeros(n),)

        def update(self, x: Any, gradient: Any, memory: Any, step: Any) -> Any:
            return x, (0.0,)

    with pytest.raises(sg.InputError, match=r"began with shapes \[\(2,\)\] and went on with"):
        sg.minimize_from(rosenbrock, 2, STARTS, Wrong(), 1, device="cpu")


def a_rule(returned: Any, first: Any = ()) -> sg.Rule:
    class Odd(sg.Rule):
        def start(self, n: int) -> Any:
            return first

        def update(self, x: Any, gradient: Any, memory: Any, step: Any) -> Any:
            return returned(x)

    return Odd()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (a_rule(lambda x: None), "Odd.update returned NoneType: the next point and the next"),
        (a_rule(lambda x: x), "Odd.update returned ExprArray"),
        (a_rule(lambda x: (x[:1], ())), r"a point of shape \(1,\): \(2,\) is needed"),
        (a_rule(lambda x: (x, ()), None), "Odd.start returned NoneType"),
    ],
)
def test_rules_that_return_something_else(rule: sg.Rule, message: str) -> None:
    with pytest.raises(sg.TraceError, match=message):
        sg.minimize_from(lambda v: v @ v, 2, [[1.0, 2.0]], rule, 3, device="cpu")


@pytest.mark.parametrize("limits", [{}, {"value": -1.0}, {"norm": 0.0}, {"value": 1, "norm": 0}])
def test_clipping_needs_a_positive_limit(limits: dict[str, float]) -> None:
    with pytest.raises(sg.InputError, match="one of them is needed, above 0"):
        sg.Clipped(sg.Adam(), **limits)


def test_only_rules_are_given_a_clipped_gradient() -> None:
    with pytest.raises(sg.InputTypeError, match="only first-order rules"):
        sg.Clipped(sg.LBFGS(), norm=1.0)  # type: ignore


class Steepest(sg.Method):
    """A method of the gradient alone, that says nothing of losses."""

    needs = "slope"

    def start(self, n: int) -> tuple[Any, ...]:
        return (np.zeros(n),)

    def advance(self, at: sg.Evaluation, memory: tuple[Any, ...]) -> sg.Move:
        (last,) = memory
        step = 1e-3 * at.gradient + 0.1 * last
        return sg.Move(at.x - step, (step,))


def test_a_method_may_leave_the_loss_out() -> None:
    found = sg.minimize_from(rosenbrock, 2, STARTS, Steepest(), 15, **DOUBLE)
    for start, x, fun in zip(STARTS, found.x, found.fun, strict=True):
        want, last = start, np.zeros(2)
        for _ in range(15):
            last = 1e-3 * gradient(want) + 0.1 * last
            want = want - last
        np.testing.assert_allclose(x, want, rtol=1e-12)
        np.testing.assert_allclose(fun, rosenbrock(want), rtol=1e-11)
    seen = sg.minimize_from(rosenbrock, 2, STARTS, Steepest(), 15, history=True, **DOUBLE)
    np.testing.assert_allclose(seen.history[-1], found.fun, rtol=1e-12)
    ended = sg.minimize_from(rosenbrock, 2, STARTS, Steepest(), 50_000, 1e-3, **DOUBLE)
    assert ended.success.all() and (ended.status == 1).all()
