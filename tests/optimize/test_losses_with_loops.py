"""Losses with loops, minimised inside kernels: as where Python writes the iterations out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg

GPUS = [d for d in sg.devices() if d.is_gpu]
DTYPES = [(d, "float32") for d in GPUS] + [("cpu", "float32"), ("cpu", "float64")]
TOLERANCE = {"float32": 2e-4, "float64": 1e-9}
Loop = Callable[[int, Callable[[Any, Any], Any], Any], Any]

on_devices = pytest.mark.parametrize(("device", "dtype"), DTYPES)


def looped(iterations: int, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """``iterations`` iterations in a loop of the kernel."""
    return sg.fori_loop(0, iterations, body, init)


def written_out(iterations: int, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """The same, one after the other."""
    for k in range(iterations):
        init = body(float(k), init)
    return init


def valley(loop: Loop) -> Callable[[Any], Any]:
    """A loss of two variables, summed up by a loop."""

    def loss(v: Any) -> Any:
        def iteration(k: Any, s: Any) -> Any:
            return 0.9 * s + (v[0] - 1) ** 2 + 0.1 * k * (v[1] + 0.5) ** 2 + 0.01 * sg.sin(s)

        return loop(12, iteration, 0.1 * v[0] * v[0])

    return loss


def decay(loop: Loop) -> Callable[..., Any]:
    """Euler's method for y' = -a y, of rows at which it steps by x / 10; b is where it begins.

    The damping, a loop of the variables alone, is the same in all rows.
    """

    def model(x: Any, a: Any, b: Any) -> Any:
        damping = loop(6, lambda k, s: 0.5 * s + 0.1 * a, a)
        return loop(20, lambda k, y: y - damping * 0.5 * y * x + 0.001 * k, b)

    return model


X = np.linspace(0.0, 2.0, 25)
Y = np.exp(-np.random.default_rng(0).uniform(0.5, 1.5, (37, 1)) * X)
STARTS = np.random.default_rng(1).uniform(-1.0, 1.0, (40, 2))


def same(found: Any, want: Any, dtype: str) -> None:
    """Both end at the same points, with the same losses."""
    np.testing.assert_allclose(found.x, want.x, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    np.testing.assert_allclose(found.fun, want.fun, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@on_devices
@pytest.mark.parametrize(
    ("method", "steps"),
    [(sg.Adam(0.05), 50), (sg.LBFGS(), 40), (sg.Newton(), 30)],
    ids=["Adam", "LBFGS", "Newton"],
)
def test_from_many_starts(method: Any, steps: int, device: Any, dtype: Any) -> None:
    found, want = (
        sg.minimize_from(valley(loop), 2, STARTS, method, steps, device=device, dtype=dtype)
        for loop in (looped, written_out)
    )
    same(found, want, dtype)
    kernel = sg.fused_forward_backward(2, valley(looped), device=device, dtype=dtype)
    np.testing.assert_array_equal(kernel.minimize(STARTS, method, steps).x, found.x)


@on_devices
@pytest.mark.parametrize("data", ["shared", "own", "both"])
def test_over_rows(data: str, device: Any, dtype: Any) -> None:
    x, y = np.broadcast_to(X, Y.shape), Y if data != "shared" else np.broadcast_to(Y[0], Y.shape)
    rows = {
        "shared": {"shared": np.stack([X, Y[0]], axis=1)},
        "own": {"own": np.stack([x, y], axis=2)},
        "both": {"shared": X[:, None], "own": y[:, :, None]},
    }[data]

    def residual(loop: Loop) -> Callable[[Any, Any], Any]:
        return lambda p, row: decay(loop)(row[0], p[0], p[1]) - row[1]

    found, want = (
        sg.minimize_from(
            residual(loop), 2, np.ones((37, 2)), sg.LevenbergMarquardt(), 40, device=device,
            dtype=dtype, **rows,
        )
        for loop in (looped, written_out)
    )  # fmt: skip
    assert found.success.all()
    same(found, want, dtype)


@on_devices
def test_many_fits(device: Any, dtype: Any) -> None:
    found, want = (
        sg.fit_many(decay(loop), X, Y, device=device, dtype=dtype) for loop in (looped, written_out)
    )
    same(found, want, dtype)


def test_one_minimum_and_one_fit() -> None:
    found, want = (sg.minimize(valley(loop), STARTS[0]) for loop in (looped, written_out))
    np.testing.assert_allclose(found.x, want.x, rtol=1e-9)
    found, want = (
        sg.curve_fit(decay(loop), X, Y[0], p0=[1.0, 1.0]) for loop in (looped, written_out)
    )
    np.testing.assert_allclose(found[0], want[0], rtol=1e-9)


@on_devices
def test_own_turns_in_each_problem_and_arrays(device: Any, dtype: Any) -> None:
    """A loop whose trip count is a variable of each problem, over a table that it has filled."""

    def loss(v: Any) -> Any:
        iterations = sg.floor(3.0 + 2.0 * abs(sg.sin(v[2])))
        total = sg.fori_loop(
            0, iterations, lambda k, s: s + (v[0] - 0.1 * k) ** 2, v[1] ** 2, max_steps=8
        )
        return total + v[2] ** 2

    def by_numbers(v: np.ndarray) -> float:
        iterations = int(3 + 2 * abs(np.sin(v[2])))
        return sum((v[0] - 0.1 * k) ** 2 for k in range(iterations)) + v[1] ** 2 + v[2] ** 2

    starts = np.random.default_rng(2).uniform(-2.0, 2.0, (33, 3))
    found = sg.minimize_from(loss, 3, starts, sg.GradientDescent(0.05), 60, device=device,
                             dtype=dtype)  # fmt: skip
    want = [by_numbers(v) for v in found.x.astype(float)]
    np.testing.assert_allclose(found.fun, want, rtol=TOLERANCE[dtype], atol=1e-6)
    assert (abs(found.x[:, 1:]) < 0.1).all()
