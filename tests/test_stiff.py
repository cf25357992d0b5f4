"""Newton's method to convergence, in 1 to 40 iterations from lane to lane, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg

DEVICES = sg.devices()


def root(v: Any) -> Any:
    """The cube root of v[0] by Newton's method, and how many iterations it took."""

    def step(state: Any) -> Any:
        x, _, iterations = state
        move = (x * x * x - v[0]) / (3 * x * x)
        return x - move, abs(move) / x, iterations + 1

    start = v[0] * 1.0, 1.0, 0.0
    x, _, iterations = sg.while_loop(lambda state: state[1] > 1e-5, step, start, max_steps=64)
    return x, iterations


def alone(a: float, dtype: Any) -> tuple[float, int]:
    """The same for one number, by Python."""
    a = x = dtype(a)
    iterations, apart = 0, dtype(1)
    while apart > dtype(1e-5):
        move = (x * x * x - a) / (dtype(3) * x * x)
        x, apart, iterations = x - move, abs(move) / x, iterations + 1
    return float(x), iterations


def numbers(dtype: Any) -> np.ndarray:
    """One lane after the other with another number of iterations, in no order."""
    spread = np.concatenate([[1.0], np.geomspace(1.001, 3e9, 299)])
    return np.random.default_rng(0).permutation(spread).astype(dtype)[:, None]


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_each_lane_has_what_it_gets_alone(device: sg.Device, dtype: Any) -> None:
    if device.is_gpu and dtype is np.float64:
        pytest.skip("GPUs compute in float32")
    x = numbers(dtype)
    kernel = sg.fused_forward(1, root, device=device, dtype=dtype)
    roots, iterations = kernel.run(x)
    wanted = [alone(a, dtype) for a in x[:, 0]]
    np.testing.assert_allclose(roots, [r for r, _ in wanted], rtol=1e-6)
    assert np.abs(iterations - [t for _, t in wanted]).max() <= 1  # at the end by rounding
    assert iterations.min() == 1
    assert iterations.max() >= 40
    for k in range(0, len(x), 23):
        assert kernel.run(x[k]) == (roots[k], iterations[k])


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_so_have_gradients(device: sg.Device) -> None:
    x = numbers(np.float32)
    kernel = sg.fused_forward_backward(1, lambda v: root(v)[0], device=device)
    roots, slopes = kernel.run(x)
    np.testing.assert_allclose(slopes[:, 0], roots / x[:, 0] / 3, rtol=1e-4)
    for k in range(0, len(x), 23):
        value, slope = kernel.run(x[k])
        assert (value, slope[0]) == (roots[k], slopes[k, 0])
