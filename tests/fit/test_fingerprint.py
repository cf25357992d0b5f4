"""Fingerprints of functions: a fit never uses what was traced of a model that has changed since."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr.tracing.fingerprint import fingerprint
from symgrad.fit import model

X = np.linspace(0.1, 2.0, 12)
RATE = 2.0
TABLE = [1.0, 2.0]


def slower(x: Any) -> Any:
    return np.exp(-0.5 * x)


def with_global(x: Any, a: Any) -> Any:
    return a * np.exp(-RATE * x)


def by_another(x: Any, a: Any) -> Any:
    return a * slower(x)


def closing_over(rate: Any) -> Callable[..., Any]:
    return lambda x, a: a * np.exp(-rate * x)


def with_defaults(rate: Any, power: Any) -> Callable[..., Any]:
    def power_law(x: Any, a: Any, *, rate: Any = rate, power: Any = power) -> Any:
        return a * x**power * sg.exp(-rate * x)

    return power_law


def growth(t: Any, y: Any, rate: Any) -> Any:
    return rate * y


def growing(x: Any, a: Any) -> Any:
    return sg.solve_ivp(growth, (0.0, 4.0), [a], t_eval=x, args=(1.0,), rtol=1e-8).y[0]


def imports(x: Any, a: Any) -> Any:
    import random

    return a * x * random.random()


def looks_up(x: Any, a: Any) -> Any:
    return a * x * TABLE[0]


def draws(x: Any, a: Any) -> Any:
    return a * x * np.random.default_rng(0).normal()


def prints(x: Any, a: Any) -> Any:
    print(x)
    return a * x


def recursive(x: Any, a: Any) -> Any:
    return recursive(x, a)


def counting(calls: int) -> Callable[..., Any]:
    def alternating(x: Any, a: Any) -> Any:
        nonlocal calls
        calls += 1
        return a * x * (calls % 2)

    return alternating


KNOWN = [with_global, by_another, closing_over(1.5), closing_over(slower), closing_over(-0.0),
         with_defaults(1.0, 2), lambda x, a: np.where(x > 1.0, a, abs(x)),
         lambda x, a: sum(a * np.pi * x**k for k in range(3)),
         lambda x, a: a * x * (np.zeros(3) + np.arange(3.0) @ np.eye(3)).sum(),
         lambda x, a: a * sg.linalg.solve_triangular(np.eye(2), x * np.ones(2))[0],
         closing_over(np.ones(1)), with_defaults(np.float64(1.0), 2), growing]  # fmt: skip
OTHERS = [closing_over(sg.custom_vjp(lambda x: x, lambda g, y, x: (TABLE[0] * g,))),
          imports, looks_up, draws, prints, recursive, np.exp.__call__, closing_over([1.0]),
          counting(0),
          closing_over(np.ones(2**19)), closing_over(random.random),
          lambda x, a: TABLE.append(1.0) or a * x,
          lambda x, a: a * np.fromfile("x") * x, SimpleNamespace]  # fmt: skip


@pytest.mark.parametrize("f", KNOWN)
def test_plain_functions_have_one(f: Any) -> None:
    again = FunctionType(f.__code__, f.__globals__, "again", f.__defaults__, f.__closure__)
    again.__kwdefaults__ = f.__kwdefaults__
    assert fingerprint(f) == fingerprint(again) is not None
    hash(fingerprint(f))


@pytest.mark.parametrize("f", OTHERS)
def test_others_have_none(f: Any) -> None:
    assert fingerprint(f) is None


def test_what_a_function_refers_to_is_a_part() -> None:
    values = [0.0, -0.0, 0, False, None, "0", 1.0, 1, True, math.inf, slower]
    values += [np.zeros(1), np.ones(1), np.ones(1, np.float32), np.ones((1, 1)), np.float64(1.0)]
    prints_of = [fingerprint(closing_over(value)) for value in values]
    assert len({*prints_of}) == len(values)
    both = {fingerprint(with_defaults(*pair)) for pair in ((1.0, 2.0), (2.0, 1.0), (1.0, 2))}
    assert len(both) == 3


def fitted(f: Any) -> float:
    """The amplitude of a fit to ones."""
    return float(sg.curve_fit(f, X, np.ones(X.size))[0][0])


def amplitude(factors: Any) -> float:
    """The best amplitude of these factors, by the normal equation of one parameter."""
    return float(np.sum(factors) / np.sum(factors * factors))


def test_fits_follow_what_changes() -> None:
    numpy: Any = ModuleType("numpy of mine")
    numpy.exp, module = np.exp, {**globals(), "np": numpy}
    exponential, another, table = (
        FunctionType(f.__code__, module) for f in (with_global, by_another, looks_up)
    )
    assert fitted(exponential) == pytest.approx(amplitude(np.exp(-2.0 * X)), rel=1e-12)
    module["RATE"] = 1.0
    assert fitted(exponential) == pytest.approx(amplitude(np.exp(-X)), rel=1e-12)
    assert fitted(another) == pytest.approx(amplitude(np.exp(-0.5 * X)), rel=1e-12)
    module["slower"] = np.cos
    assert fitted(another) == pytest.approx(amplitude(np.cos(X)), rel=1e-12)
    assert fitted(table) == pytest.approx(amplitude(X), rel=1e-12)
    module["TABLE"] = [4.0]
    assert fitted(table) == pytest.approx(amplitude(4.0 * X), rel=1e-12)
    for rate in (1.0, 2.0, 1.0):
        assert fitted(closing_over(rate)) == pytest.approx(amplitude(np.exp(-rate * X)), rel=1e-12)
    numpy.exp = np.cos
    assert fitted(exponential) == pytest.approx(amplitude(np.cos(-X)), rel=1e-12)


def test_fits_follow_defaults_that_are_replaced() -> None:
    """The names of a function's defaults stay, and the dictionary that has them is another."""
    f: Any = with_defaults(1.0, 1)
    assert fitted(f) == pytest.approx(amplitude(X * np.exp(-X)))
    f.__kwdefaults__ = {"rate": 2.0, "power": 1}
    assert fitted(f) == pytest.approx(amplitude(X * np.exp(-2.0 * X)))
    f.__kwdefaults__["power"] = 2
    assert fitted(f) == pytest.approx(amplitude(X**2 * np.exp(-2.0 * X)))


def test_fits_follow_arrays_that_change() -> None:
    factors = np.cos(X)

    def f(_: Any, a: Any) -> Any:
        return a * factors

    for _ in range(2):
        assert fitted(f) == pytest.approx(amplitude(factors), rel=1e-12)
        factors[:5] += 1.0
        factors[:] = factors[::-1].copy()


def test_models_of_all_rows_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They follow x, and what they close over."""
    made: list[int] = []
    trace = model.fused_jacobian
    monkeypatch.setattr(model, "fused_jacobian", lambda *a, **o: made.append(1) or trace(*a, **o))
    for x in (X, X, 2.0 * X, X):
        a = sg.curve_fit(growing, x, np.ones(X.size))[0]
        assert a == pytest.approx(amplitude(np.exp(x)), rel=1e-5)
    assert len(made) == 2


def test_models_without_one_are_traced_at_every_fit() -> None:
    calls: list[int] = []

    def noting(x: Any, a: Any) -> Any:
        calls.append(1)
        return a * x

    fitted(noting)
    each = len(calls)
    fitted(noting)
    assert fingerprint(noting) is None and len(calls) == 2 * each


def test_models_with_one_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    want = fitted(closing_over(0.75))

    def refuse(*_: Any) -> Any:
        pytest.fail("the model is traced again")

    monkeypatch.setattr(model, "row_kernel", refuse)
    assert fitted(closing_over(0.75)) == want
