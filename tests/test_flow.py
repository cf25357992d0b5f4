"""Loops and choices as users write them: values and derivatives in every kind of kernel."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from flow import FLOWS, Flow
from tint import check_with_tint, needs_tint

import symgrad as sg

GPUS = [d for d in sg.devices() if d.is_gpu]
NAMES = sorted(FLOWS)


@cache
def found(name: str) -> tuple[Any, Any]:
    """Values and gradients in float64."""
    f = FLOWS[name]
    kernel = sg.fused_forward_backward(f.n, f.f, device="cpu", dtype="float64")
    return kernel.run(f.points())


def differences(f: Any, at: np.ndarray, step: float) -> np.ndarray:
    """The derivatives of a function of a point, by differences, last axis."""
    moves = step * np.eye(at.shape[-1])
    return np.stack([(f(at + h) - f(at - h)) / (2 * step) for h in moves], axis=-1)


def slopes(f: Flow) -> np.ndarray:
    return np.array([differences(f.value, point, 1e-6) for point in f.points()])


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name: str) -> None:
    f = FLOWS[name]
    values, gradients = found(name)
    np.testing.assert_allclose(values, [f.value(x) for x in f.points()], rtol=1e-12)
    np.testing.assert_allclose(gradients, slopes(f), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in NAMES if FLOWS[name].smooth])
def test_second_derivatives(name: str) -> None:
    f, at = FLOWS[name], FLOWS[name].points()
    kernel = sg.fused_forward_backward(f.n, f.f, device="cpu", dtype="float64")
    hessians = sg.fused_hessian(f.n, f.f, device="cpu", dtype="float64").run(at)[-1]
    np.testing.assert_allclose(hessians, hessians.swapaxes(1, 2), rtol=1e-12, atol=1e-12)
    want = differences(lambda x: kernel.run(x)[1], at, 1e-5)
    np.testing.assert_allclose(hessians, want, rtol=1e-6, atol=1e-6)
    product = sg.fused_hvp(f.n, f.f, device="cpu", dtype="float64").run(at, np.ones_like(at))[-1]
    np.testing.assert_allclose(product, hessians.sum(axis=-1), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES[::3])
def test_jacobians(name: str) -> None:
    f = FLOWS[name]
    kernel = sg.fused_jacobian(
        f.n, lambda v: [v[0], f.f(v)], device="cpu", dtype="float64", mode="forward"
    )
    slope = kernel.run(f.points())[1][:, 1]
    np.testing.assert_allclose(slope, found(name)[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("device", GPUS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu(name: str, device: Any) -> None:
    f = FLOWS[name]
    values, gradients = sg.fused_forward_backward(f.n, f.f, device=device).run(f.points())
    want, slope = found(name)
    np.testing.assert_allclose(values, want, rtol=3e-5)
    np.testing.assert_allclose(gradients, slope, rtol=3e-4, atol=3e-5)


@needs_tint
def test_tint_takes_their_kernels() -> None:
    makers = sg.fused_forward_backward, sg.fused_hessian
    sources = [m for f in FLOWS.values() for make in makers for m in make(f.n, f.f).modules]
    assert check_with_tint(sources) == [None] * len(sources)


OVER_DATA = "carried_product", "scan_of_nests_from_the_end", "matrices_in_place"


def over_data(name: str) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """A loss of a row of data, points of which the parameter is the same, values and slopes."""
    f = FLOWS[name]
    at = f.points()
    at[:, 0] = at[0, 0]
    values = np.array([f.value(x) for x in at])
    slopes = np.array([differences(f.value, x, 1e-6)[:1] for x in at])
    return (lambda p, r: f.f(np.concatenate([p, r])), at, values, slopes)


@pytest.mark.parametrize("name", OVER_DATA)
def test_a_result_for_each_row_of_data(name: str) -> None:
    """The same of columns of data, with derivatives by the parameters."""
    f, at, values, slopes = over_data(name)
    kernel = sg.fused_forward_backward(
        1, f, row=at.shape[1] - 1, reduce=None, device="cpu", dtype="float64"
    )
    found = kernel.run(at[0, :1], at[:, 1:])
    np.testing.assert_allclose(found[0], values, rtol=1e-12)
    np.testing.assert_allclose(found[1], slopes, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("device", ["cpu", *GPUS], ids=str)
@pytest.mark.parametrize("name", OVER_DATA)
def test_a_sum_over_rows_of_data(name: str, device: Any) -> None:
    f, at, values, slopes = over_data(name)
    kernel = sg.fused_forward_backward(1, f, row=at.shape[1] - 1, device=device)
    loss, slope = kernel.run(at[0, :1], at[:, 1:])
    np.testing.assert_allclose(loss, values.sum(), rtol=1e-5)
    np.testing.assert_allclose(slope, slopes.sum(axis=0), rtol=1e-4, atol=1e-5)
