"""Derivatives of functions, called with numbers: beside formulas, and traced or not the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg

W, B = np.array([1.0, 2.0, 3.0]), 2.0
OUTER = np.array([2.0, 0.0, 1.0])


def loss(w: Any, b: Any) -> Any:
    return (w @ w) * b**3


def nested_loss(p: Any) -> Any:
    return loss(p["w"], p["b"])


def outer(w: Any) -> Any:
    return w[:, None] * w[None]


def outer_jacobian(w: np.ndarray) -> np.ndarray:
    one = np.eye(len(w))
    return one[:, None, :] * w[None, :, None] + w[:, None, None] * one[None]


def pulled(value_and_pull: Any, cotangent: Any) -> Any:
    value, pull = value_and_pull
    return value, pull(cotangent)


CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "grad": (lambda: sg.grad(loss)(W, B), 16 * W),
    "grad by two": (lambda: sg.grad(loss, (0, 1))(W, B), (16 * W, 12 * W @ W)),
    "grad of a dict": (lambda: sg.grad(nested_loss)({"w": W, "b": B})["b"], 12 * W @ W),
    "grad by name": (lambda: sg.grad(loss)(W, b=B), 16 * W),
    "grad with aux": (
        lambda: sg.grad(lambda w: (loss(w, B), w + 1), has_aux=True)(W),
        (16 * W, W + 1),
    ),
    "grad of a large array": (
        lambda: sg.grad(lambda a: np.sum(a**2))(np.ones((300, 300))),
        np.full((300, 300), 2.0),
    ),
    "grad of grad": (lambda: sg.grad(sg.grad(lambda t: t**4))(0.5), 3.0),
    "grad of integers": (lambda: sg.grad(lambda w: np.sum(w**2))(np.arange(3)), [0.0, 2.0, 4.0]),
    "jacobian": (lambda: sg.jacobian(outer)(W), outer_jacobian(W)),
    "jacobian by two": (
        lambda: sg.jacobian(lambda w, b: w * b, (0, 1))(W, B),
        (B * np.eye(3), W),
    ),
    "hessian": (lambda: sg.hessian(loss)(W, B), 16 * np.eye(3)),
    "hessian of a dict": (
        lambda: sg.hessian(nested_loss)({"w": W, "b": B})["w"]["b"],
        24 * W,
    ),
    "hessian of a number": (lambda: sg.hessian(lambda t: t**3)(2.0), 12.0),
    "jvp": (
        lambda: sg.jvp(loss, (W, B), (OUTER, 1.0)),
        (8 * W @ W, 16 * W @ OUTER + 12 * W @ W),
    ),
    "vjp": (lambda: pulled(sg.vjp(lambda w, b: w * b, W, B), OUTER), (W * B, (OUTER * B, 5.0))),
    "hvp": (lambda: sg.hvp(lambda w: loss(w, B), W, OUTER), 16 * OUTER),
    "vmap of hessian": (
        lambda: sg.vmap(sg.hessian(lambda w: np.sum(w**3)))(np.stack([W, OUTER])),
        [np.diag(6 * W), np.diag(6 * OUTER)],
    ),
}


def require_equal(result: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            require_equal(one, other)
    else:
        assert np.shape(result) == np.shape(expected)
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_derivative_at_numbers(name: str) -> None:
    run, expected = CASES[name]
    require_equal(run(), expected)


def test_aux_of_a_vjp() -> None:
    value, pull, aux = sg.vjp(lambda w: (w * 2, {"w": w + 1}), W, has_aux=True)
    require_equal((value, pull(OUTER)[0], aux["w"]), (2 * W, 2 * OUTER, W + 1))


def test_options_are_those_of_jit() -> None:
    run = sg.jit(sg.hessian(lambda t: np.sum(np.exp(t))), dtype="float64", device="cpu")
    np.testing.assert_allclose(run(W), np.diag(np.exp(W)), rtol=1e-15)


def test_what_changes_in_a_closure_is_seen() -> None:
    factor = [2.0]
    slope = sg.grad(lambda x: factor[0] * x)
    first = slope(1.0)
    factor[0] = 5.0
    assert (first, slope(1.0)) == (2.0, 5.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sg.grad(loss, W), sg.InputError, r"at a point, sg\.grad\(f\)\(x\)"),
        (lambda: sg.hessian(loss, W), sg.InputError, r"at a point, sg\.hessian\(f\)\(x\)"),
        (lambda: sg.grad(lambda w: w * 2)(W), sg.TraceError, "a loss is one scalar"),
        (lambda: sg.grad(loss, 2)(W, B), sg.InputError, "only 2 arguments came by position"),
    ],
)
def test_what_has_no_derivative_says_so(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
