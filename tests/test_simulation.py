"""Loops through the verbs of the library: thousands of steps of a simulation and its gradient."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg

GPUS = [d for d in sg.devices() if d.is_gpu]
DEVICES = [(d, "float32") for d in GPUS] + [("cpu", "float32"), ("cpu", "float64")]
B = 70
"""Problems: no whole number of vectors or workgroups."""


def slopes(x: Any, y: Any, a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    return a * x - b * x * y, d * x * y - c * y


def step(s: Any, p: Any, dt: float) -> tuple[Any, Any]:
    """One step of Runge and Kutta through the equations of Lotka and Volterra."""
    x, y = s
    k1, l1 = slopes(x, y, *p)
    k2, l2 = slopes(x + 0.5 * dt * k1, y + 0.5 * dt * l1, *p)
    k3, l3 = slopes(x + 0.5 * dt * k2, y + 0.5 * dt * l2, *p)
    k4, l4 = slopes(x + dt * k3, y + dt * l3, *p)
    return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y + dt / 6 * (l1 + 2 * l2 + 2 * l3 + l4)


def loss_of(steps: int) -> Callable[[Any], Any]:
    """How far from (1, 1) the system ends, of its 4 parameters and where it begins."""

    def loss(v: Any) -> Any:
        x, y = sg.fori_loop(0, steps, lambda k, s: step(s, v[:4], 10 / steps), (v[4], v[5]))
        return (x - 1.0) ** 2 + (y - 1.0) ** 2

    return loss


def problems() -> np.ndarray:
    rng = np.random.default_rng(0)
    low, high = [0.8, 0.5, 0.8, 0.4, 0.6, 0.6], [1.2, 0.9, 1.2, 0.8, 1.6, 1.6]
    return rng.uniform(low, high, (B, 6))


def sensitivities(v: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The loss and its gradient, from the equations of the derivatives, written by hand."""
    a, b, c, d = v[:, :4].T
    dt, z, s = 10 / steps, v[:, 4:].copy(), np.zeros((B, 2, 6))
    s[:, 0, 4] = s[:, 1, 5] = 1

    def rates(z: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = z.T
        matrix = np.array([[a - b * y, -b * x], [d * y, d * x - c]]).transpose(2, 0, 1)
        own = np.zeros((B, 2, 6))
        own[:, 0, 0], own[:, 0, 1], own[:, 1, 2], own[:, 1, 3] = x, -x * y, -y, x * y
        return np.stack(slopes(x, y, a, b, c, d), 1), matrix @ s + own

    for _ in range(steps):
        k1, s1 = rates(z, s)
        k2, s2 = rates(z + dt / 2 * k1, s + dt / 2 * s1)
        k3, s3 = rates(z + dt / 2 * k2, s + dt / 2 * s2)
        k4, s4 = rates(z + dt * k3, s + dt * s3)
        z = z + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        s = s + dt / 6 * (s1 + 2 * s2 + 2 * s3 + s4)
    return ((z - 1) ** 2).sum(1), np.einsum("bi,bij->bj", 2 * (z - 1), s)


X, STEPS = problems(), 1000
LOSS, GRADIENT = sensitivities(X, STEPS)


def kernel(device: Any, dtype: Any = "float32", steps: int = STEPS) -> sg.Kernel:
    return sg.fused_forward_backward(6, loss_of(steps), device=device, dtype=dtype)


@pytest.mark.parametrize(("device", "dtype"), DEVICES, ids=str)
def test_a_simulation_and_its_gradient(device: Any, dtype: Any) -> None:
    made = kernel(device, dtype)
    tolerance = 3e-5 if dtype == "float32" else 1e-12
    value, gradient = made.run(X)
    size = np.linalg.norm(GRADIENT, axis=1)
    assert (np.abs(value - LOSS) / (LOSS + 1e-3)).max() < tolerance
    assert (np.linalg.norm(gradient - GRADIENT, axis=1) / size).max() < tolerance
    alone, slope = made.run(X[3].astype(dtype))
    assert alone == value[3]
    np.testing.assert_array_equal(slope, gradient[3])


def test_the_source_is_as_long_as_a_person_would_write_it() -> None:
    """Whatever the number of steps, with the lines of the user's program beside what they do."""
    source = kernel("cpu").wgsl
    assert len(source.splitlines()) == len(kernel("cpu", steps=300).wgsl.splitlines())
    assert len(source.splitlines()) < 120
    for line in (
        "return a * x - b * x * y, d * x * y - c * y",
        "k2, l2 = slopes(x + 0.5 * dt * k1, y + 0.5 * dt * l1, *p)",
        "return (x - 1.0) ** 2 + (y - 1.0) ** 2",
    ):
        assert f"// {line}" in source


def test_what_a_kernel_with_loops_says_of_itself() -> None:
    made = kernel("cpu")
    stats = made.stats
    assert stats.shaders == 1 and stats.bytes_per_point == 4 * 13
    assert 50 * STEPS < stats.operations_loss < 80 * STEPS < stats.operations < 400 * STEPS
    copy = pickle.loads(pickle.dumps(made))
    np.testing.assert_array_equal(copy.run(X)[1], made.run(X)[1])
    assert copy.wgsl == made.wgsl


@pytest.mark.parametrize("device", GPUS, ids=str)
def test_arrays_on_the_device(device: Any) -> None:
    made = kernel(device)
    value, gradient = made.run(sg.device_array(X, device=device))
    np.testing.assert_array_equal(value.numpy(), made.run(X)[0])
    np.testing.assert_array_equal(gradient.numpy(), made.run(X)[1])
    out = np.empty(B, "float32"), np.empty((B, 6), "float32")
    made.run(X, out=out)
    np.testing.assert_array_equal(out[1], gradient.numpy())


# other verbs --------------------------------------------------------------------------------------


def power(v: Any) -> Any:
    """x**n, n of the point's own."""
    return sg.fori_loop(0, v[1], lambda k, y: y * v[0], 1.0, max_steps=6)


POWERS = np.stack([np.linspace(0.5, 1.5, B), np.arange(B) % 7], 1)
x, n = POWERS.T


def test_turns_of_a_point_s_own() -> None:
    for device in ["cpu", *GPUS]:
        value, gradient = sg.fused_forward_backward(2, power, device=device).run(POWERS)
        np.testing.assert_allclose(value, x**n, rtol=1e-6)
        np.testing.assert_allclose(gradient[:, 0], n * x ** (n - 1), rtol=1e-6)
        np.testing.assert_array_equal(gradient[:, 1], 0)


def test_second_derivatives_and_values_alone() -> None:
    for device in ["cpu", *GPUS]:
        second = sg.fused_hessian(2, power, device=device).run(POWERS)[-1]
        np.testing.assert_allclose(second[:, 0, 0], n * (n - 1) * x ** (n - 2), rtol=2e-6)
        vector = sg.fused_hvp(2, power, device=device).run(POWERS, POWERS)[-1]
        np.testing.assert_allclose(vector[:, 0], second[:, 0, 0] * x, rtol=2e-6)
        found = sg.fused_forward(2, lambda v: {"y": power(v)}, device=device).run(POWERS)
        np.testing.assert_allclose(found["y"], x**n, rtol=1e-6)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
def test_jacobians(mode: Any) -> None:
    made = sg.fused_jacobian(2, lambda v: [power(v), v[0] * v[1]], mode=mode, device="cpu")
    found = made.run(POWERS)[1]
    np.testing.assert_allclose(found[:, 0, 0], n * x ** (n - 1), rtol=1e-6)
    np.testing.assert_array_equal(found[:, 0, 1], 0)


def test_more_turns_than_there_may_be_are_nan() -> None:
    for device in ["cpu", *GPUS]:
        many = np.array([[1.5, 7.0], [1.5, 6.0]])
        value, gradient = sg.fused_forward_backward(2, power, device=device).run(many)
        assert np.isnan([value[0], gradient[0, 0]]).all()
        np.testing.assert_allclose([value[1], gradient[1, 0]], [1.5**6, 6 * 1.5**5], rtol=1e-6)


# over data ----------------------------------------------------------------------------------------


def decayed(p: Any, r: Any) -> Any:
    """What is left after 9 steps, each with the rate of the row's own group."""
    return sg.fori_loop(0, 9, lambda k, s: s - 0.1 * p.rate[r.group] * sg.sin(s), p.start * r.x)


def written_out(p: Any, r: Any) -> Any:
    s = p.start * r.x
    for _ in range(9):
        s = s - 0.1 * p.rate[r.group] * sg.sin(s)
    return s


@pytest.mark.parametrize("device", ["cpu", *GPUS], ids=str)
def test_results_for_each_row(device: Any) -> None:
    shapes, columns = {"rate": 3, "start": ()}, ["group", "x"]
    p = {"rate": np.array([0.1, 0.5, 0.9]), "start": 1.25}
    rows = {"group": np.arange(B) % 3, "x": np.linspace(0.5, 1.5, B)}
    options: Any = {"columns": columns, "reduce": None, "device": device}
    loops, plain = (
        sg.fused_forward(shapes, f, **options).run(p, rows) for f in (decayed, written_out)
    )
    np.testing.assert_allclose(loops, plain, rtol=1e-6)
    (value, slopes), (_, wanted) = (
        sg.fused_forward_backward(shapes, f, **options).run(p, rows) for f in (decayed, written_out)
    )
    np.testing.assert_allclose(value, plain, rtol=1e-6)
    np.testing.assert_allclose(slopes.toarray(), wanted.toarray(), rtol=1e-5, atol=1e-7)


# where there are none yet -------------------------------------------------------------------------


def refuses(make: Callable[[], Any], what: str) -> None:
    with pytest.raises(sg.UnsupportedError, match="cannot contain a loop") as caught:
        make()
    assert what in str(caught.value)


def test_what_cannot_take_loops_says_so() -> None:
    refuses(lambda: sg.to_sympy(power(sg.symbols("x n"))), "return sg.fori_loop(0, v[1]")
    refuses(lambda: kernel("cpu").audit(X), 'test_simulation.py:38: "x, y = sg.fori_loop(0, steps')
