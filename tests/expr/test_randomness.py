"""Random numbers that a traced function draws are constants of its kernel: it warns."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg

RNG = np.random.default_rng(1)
OLD = np.random.RandomState(1)


def by_closure() -> Callable[[Any], Any]:
    rng = np.random.default_rng(2)
    return lambda v: v[0] * rng.normal()


def inner(v: Any) -> Any:
    return sum((lambda x: x + RNG.uniform())(x) for x in v)


DRAWING: dict[str, Callable[[Any], Any]] = {
    "rng": by_closure(),
    "RNG": lambda v: v[0] + RNG.integers(3),
    "OLD": lambda v: v[0] + OLD.rand(),
    "np.random": lambda v: v[0] + np.random.normal(),  # noqa: NPY002
    "random": lambda v: v[0] + random.random(),
}
QUIET: dict[str, Callable[[Any], Any]] = {
    "made within, with a seed": lambda v: v @ np.random.default_rng(3).normal(size=2),
    "not used": lambda v: v[0] if RNG is None else v[1],
    "none": lambda v: v @ v,
    "of C": np.sum,
}


@pytest.mark.parametrize("name", DRAWING)
def test_a_number_drawn_while_tracing_is_warned_of(name: str) -> None:
    with pytest.warns(sg.FrozenRandomWarning, match=f"^{name} drew random numbers while .*randomn"):
        kernel = sg.fused_forward_backward(2, DRAWING[name], device="cpu")
    assert kernel.run([1.0, 2.0])[0] == kernel.run([1.0, 2.0])[0]


def test_functions_within_a_function_are_looked_at() -> None:
    with pytest.warns(sg.FrozenRandomWarning, match="^RNG drew"):
        sg.fused_forward(2, inner, device="cpu")


def test_losses_of_rows_warn_too() -> None:
    with pytest.warns(sg.FrozenRandomWarning, match="as a column of data"):
        sg.fused_forward_backward(1, lambda p, r: p[0] * r[0] + RNG.normal(), row=1, device="cpu")


LASTING: dict[str, tuple[str, Callable[[], Any]]] = {
    "fused_hvp": ("kernel", lambda: sg.fused_hvp(2, calling, device="cpu")),
    "value_and_grad": ("each call", lambda: sg.value_and_grad(calling)(np.ones(2))),
    "forward_backward": ("each call", lambda: sg.forward_backward(calling, np.ones(2))),
    "minimize": ("this run", lambda: sg.minimize(calling, [0.0, 0.0], method="trust-exact")),
    "minimize_from": (
        "this run",
        lambda: sg.minimize_from(calling, 2, [0.0, 0.0], sg.LBFGS(), 3, device="cpu"),
    ),
    "curve_fit": ("this run", lambda: sg.curve_fit(model, np.arange(9.0), np.ones(9), [1.0, 1.0])),
}


def calling(v: Any) -> Any:
    return DRAWING["RNG"](v) ** 2 + v @ v + noise()


def noise() -> Any:
    return RNG.normal()


def model(x: Any, a: Any, b: Any) -> Any:
    return a + b * x + 1e-12 * noise()


@pytest.mark.parametrize("verb", LASTING)
def test_the_warning_says_once_for_how_long_the_numbers_last(verb: str) -> None:
    words, call = LASTING[verb]
    described = "model" if verb == "curve_fit" else "calling"
    with pytest.warns(
        sg.FrozenRandomWarning, match=f"^RNG .* {described} .* traced: .*{words}"
    ) as w:
        call()
    assert [found.filename for found in w] == [__file__]


class Noisy:
    """A model with a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)

    def loss(self, v: Any) -> Any:
        return v[0] * self.rng.normal()


def test_generators_of_objects_are_seen() -> None:
    with pytest.warns(sg.FrozenRandomWarning, match="^self.rng drew"):
        sg.fused_forward(1, Noisy().loss, device="cpu")


@pytest.mark.parametrize("name", QUIET)
def test_what_draws_nothing_is_quiet(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sg.fused_forward(2, QUIET[name], device="cpu")
