"""Causal convolutions of channels, beside a loop of NumPy's; PyTorch's are among its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from tensor_arrays import Shape, drawn, errors

import symgrad as sg
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.targets import DeviceChoice

DEVICES: list[Literal["cpu", "gpu"]] = ["cpu", "gpu"]


def arrays_of(shape: Shape, taps: int) -> list[np.ndarray]:
    """u, weights, bias and a cotangent."""
    rng, channels = np.random.default_rng(0), shape[2]
    shapes: list[Shape] = [shape, (channels, taps), (channels,), shape]
    return [drawn(rng, s) for s in shapes]


def wanted(u: np.ndarray, w: np.ndarray, bias: np.ndarray, dy: np.ndarray) -> list[np.ndarray]:
    """tanh of the sums, and the gradients."""
    taps, length = w.shape[1], u.shape[1]
    padded = np.concatenate([np.zeros((len(u), taps - 1, u.shape[2])), u], axis=1)
    seen = np.stack([padded[:, j : j + length] for j in range(taps)], axis=-1)
    y = np.tanh((seen * w).sum(-1) + bias)
    slope = dy * (1 - y**2)
    du = np.zeros_like(padded)
    for j in range(taps):
        du[:, j : j + length] += slope * w[:, j]
    return [y, du[:, taps - 1 :], (slope[..., None] * seen).sum((0, 1)), slope.sum((0, 1))]


@pytest.mark.parametrize(
    "device_target", [WorkgroupTarget(), SimdTarget(4, whole=False)], ids=["groups", "in_step"]
)
def test_the_programs_have_no_races(device_target: Any) -> None:
    """The interpreter refuses those, and indices that are out of bounds."""
    given = arrays_of((2, 131, 3), 4)
    kernel = sg.causal_convolution(np.tanh, dtype="float64", device="cpu")
    launch = kernel._work.launch("vjp", [a.shape for a in given], device_target)
    launch.verify()
    assert max(errors(launch.execute(given), wanted(*given))) <= 1e-12


@pytest.mark.parametrize("device", DEVICES)
def test_many_channels_of_long_sequences(device: DeviceChoice) -> None:
    given = arrays_of((3, 300, 70), 3)
    y, gradients = sg.causal_convolution(np.tanh, device=device).vjp(*given)
    assert max(errors([y, *gradients], wanted(*given))) <= 2e-5


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_is_seen_of_later_steps_or_other_channels(device: DeviceChoice) -> None:
    u, w, bias, _ = arrays_of((1, 9, 3), 4)
    kernel = sg.causal_convolution(device=device)
    before = kernel.run(u, w, bias)
    u[0, 5, 1] = np.nan
    after = kernel.run(u, w, bias)
    changed = np.isnan(after)
    assert changed[0, 5:9, 1].all() and changed.sum() == 4
    assert np.array_equal(after[~changed], before[~changed])
    w[:, 0] = np.inf  # what is before the first step is 0, whatever is its weight
    assert np.isfinite(kernel.run(u, w, bias)[0, :3]).all()


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda k: k.run(np.ones((3, 2)), np.ones((2, 4)), np.ones(2)), sg.InputError,
         r"u has shape \(3, 2\): \(batch, length, channels\)"),
        (lambda k: k.run(np.ones((1, 3, 2)), np.ones((3, 4)), np.ones(2)), sg.InputError,
         r"weights has shape \(3, 4\): with u \(1, 3, 2\) \(2, taps\)"),
        (lambda k: k.run(np.ones((1, 3, 2)), np.ones((2, 0)), np.ones(2)), sg.InputError,
         r"weights has shape \(2, 0\)"),
        (lambda k: k.run(np.ones((1, 3, 2)), np.ones((2, 4)), np.ones(3)), sg.InputError,
         r"bias has shape \(3,\)"),
        (lambda k: sg.causal_convolution("silu"), sg.InputTypeError,  # type: ignore[arg-type]
         "activation='silu'"),
        (lambda k: sg.causal_convolution(lambda z: (z, z)).run(
            np.ones((1, 3, 2)), np.ones((2, 4)), np.ones(2)), sg.TraceError, "one number"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Callable[[Any], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call(sg.causal_convolution(device="cpu"))
