"""Newton's method for each lane: lanes stop after 1 to 40 iterations, each as it would alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg

DEVICES = [pytest.param("cpu"), *[d for d in sg.devices() if d.is_gpu]]
TOLERANCE = 1e-3


def newton(v: Any) -> Any:
    """The root of x**3 = a from a start that may be far off, and how many iterations it took."""

    def step(carry: Any) -> Any:
        x, iterations = carry
        return x - (x * x * x - v[0]) / (3.0 * x * x), iterations + 1.0

    def going(carry: Any) -> Any:
        x, _ = carry
        return abs(x * x * x - v[0]) > TOLERANCE * v[0]

    x, iterations = sg.while_loop(going, step, (v[1], 0.0), max_steps=40)
    return {"x": x, "iterations": iterations}


def problems() -> np.ndarray:
    """Starts that need each number of iterations from 0 to 40, out of order."""
    found = {}
    for start in np.geomspace(1.0, 3e7, 2_000):
        found.setdefault(alone(np.array([1.0, start], np.float32))[1], start)
    starts = [found[iterations] for iterations in sorted(found) if iterations <= 40]
    rng = np.random.default_rng(0)
    return np.stack([np.ones(164), rng.permutation(np.resize(starts, 164))], axis=1)


def alone(v: np.ndarray) -> tuple[float, int]:
    """The same for one point of the precision that it has, by Python's own loop."""
    x, iterations = v[1], 0
    while abs(x * x * x - v[0]) > np.float32(TOLERANCE) * v[0]:
        x, iterations = x - (x * x * x - v[0]) / (3 * x * x), iterations + 1
    return float(x), iterations


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_each_lane_is_as_it_would_be_alone(device: Any) -> None:
    at = problems().astype(np.float32)
    found = sg.fused_forward(2, newton, device=device).run(at)
    want = np.array([alone(x) for x in at])
    assert set(range(1, 41)) <= {*want[:, 1]}
    np.testing.assert_array_equal(found["iterations"], want[:, 1])
    np.testing.assert_allclose(found["x"], want[:, 0], rtol=3e-7)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_the_gradient_of_each_lane(device: Any) -> None:
    """That of the last iterate: of a root it is 1/(3 x**2), of its start almost nothing."""
    at = problems()
    kernel = sg.fused_forward_backward(2, lambda v: newton(v)["x"], device=device)
    values, slopes = kernel.run(at)
    reference = sg.fused_jacobian(
        2, lambda v: [newton(v)["x"]], mode="forward", device="cpu", dtype="float64"
    ).run(at)[1][:, 0]
    np.testing.assert_allclose(values, 1.0, rtol=1e-3)
    np.testing.assert_allclose(slopes, reference, rtol=1e-2, atol=1e-3)
