"""Arithmetic of long arrays in memory: loops over their elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tint import check_with_tint, needs_tint

import symgrad as sg

N = 300
"""More elements than are written out."""

Model = Callable[[Any, Any], Any]
"""A number, of an array in memory and of a parameter; NumPy's arrays do as well."""


def stencil(y: Any, p: Any) -> Any:
    """A function of neighbours, of slices of one array."""
    curved = y[2:] - 2 * y[1:-1] + y[:-2]
    return np.sum(p * curved * curved)


def chosen(y: Any, p: Any) -> Any:
    """Conditions of elements."""
    return np.sum(np.where(y > 0.7, y * p, np.sin(y)))


def counted(y: Any, p: Any) -> Any:
    """Conditions as numbers, a comparison with another array, and both together."""
    more = (y > 0.7) & (y < p * y[::-1])
    return np.sum(np.where(more, y**3, y)) + 2 * y[3]


def several(y: Any, p: Any) -> Any:
    """Of arrays that are made of each other."""
    a = np.exp(-y) * p
    b = a / (1 + a) - y
    return np.sum(a * b) + b @ a + np.dot(a, y) + (a - 0.5).sum()


def of_data(y: Any, p: Any) -> Any:
    """Beside an array of numbers, one with zeros, and one of another shape."""
    table = np.linspace(0.5, 2.0, N)
    sparse = np.where(np.arange(N) % 100 == 0, table, 0.0)
    grid = np.reshape(y * table, (N // 10, 10))
    return np.sum(y * table * p) + np.sum(y * sparse) + np.sum(grid * table[:10])


def in_a_loop(y: Any, p: Any) -> Any:
    """An array of outside that is used in the iterations of a loop, and one that they carry."""
    outer = np.cos(y)
    return np.sum(sg.fori_loop(0, 4, lambda _, z: z + 0.1 * outer * np.tanh(p * z), y))


def reduced(y: Any, p: Any) -> Any:
    """All that takes the elements together, as functions and as methods."""
    z = y * p
    spread = np.var(z) + z.std(ddof=1) + np.std(y) * z.var()
    return spread + np.mean(z**2) * z.mean() + np.max(z) * y.min() + np.prod(1 + 0.01 * z)


MODELS: list[Model] = [reduced, stencil, chosen, counted, several, of_data, in_a_loop]


def loss(model: Model) -> Callable[[Any], Any]:
    """The model of an array that a loop has put into memory."""

    def traced(v: Any) -> Any:
        y = sg.fori_loop(0, 1, lambda k, y: y, v[1:])
        assert isinstance(y, sg.TracedArray)
        return model(y, v[0])

    return traced


def points(count: int) -> np.ndarray:
    """Parameters, and elements that are no ties."""
    return np.random.default_rng(3).uniform(0.4, 1.1, (count, N + 1))


@pytest.mark.parametrize("model", MODELS)
def test_it_is_numpys(model: Model) -> None:
    x = points(1)[0]
    kernel = sg.fused_forward_backward(N + 1, loss(model), device="cpu", dtype="float64")
    value, slopes = kernel.run(x)
    assert value == pytest.approx(model(x[1:], x[0]), rel=1e-13)
    for k in (0, 1, 4, 8, N // 2, N):
        step = 1e-6 * np.eye(N + 1)[k]
        ends = [model((x + s)[1:], (x + s)[0]) for s in (step, -step)]
        assert slopes[k] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("model", [stencil, chosen, several, in_a_loop])
def test_one_point_has_the_bits_of_many(model: Model) -> None:
    x = points(16)
    kernel = sg.fused_forward_backward(N + 1, loss(model), device="cpu", dtype="float64")
    losses, slopes = kernel.run(x)
    for k in (0, 7):
        value, gradient = kernel.run(x[k])
        assert value == losses[k]
        assert np.array_equal(gradient, slopes[k])


def test_forward_and_second_derivatives() -> None:
    x = points(1)[0]
    direction = points(2)[1]
    product = sg.fused_hvp(N + 1, loss(several), device="cpu", dtype="float64")
    kernel = sg.fused_forward_backward(N + 1, loss(several), device="cpu", dtype="float64")
    slopes = [kernel.run(x + s * 1e-6 * direction)[1] for s in (1, -1)]
    expected = (slopes[0] - slopes[1]) / 2e-6
    np.testing.assert_allclose(product.run(x, direction)[-1], expected, rtol=1e-6, atol=1e-7)


def test_on_a_gpu() -> None:
    x = points(5).astype(np.float32)
    there = sg.fused_forward_backward(N + 1, loss(in_a_loop), device="gpu").run(x)
    here = sg.fused_forward_backward(N + 1, loss(in_a_loop), device="cpu").run(x)
    np.testing.assert_allclose(there[0], here[0], rtol=3e-6)
    np.testing.assert_allclose(there[1], here[1], rtol=2e-5, atol=2e-6)


@needs_tint
def test_tint_takes_the_kernels() -> None:
    sources = [m for f in MODELS for m in sg.fused_forward_backward(N + 1, loss(f)).modules]
    assert check_with_tint(sources) == [None] * len(sources)


@pytest.mark.parametrize("model", [stencil, chosen, several, in_a_loop])
def test_the_source_does_not_grow_with_the_array(model: Model) -> None:
    def lines(n: int) -> int:
        kernel = sg.fused_forward_backward(n + 1, loss(model), device="cpu")
        return len(kernel.wgsl.splitlines())

    assert lines(2 * N) == lines(N) < 400


def test_a_sum_of_many_terms_keeps_the_small_ones() -> None:
    x = np.concatenate([[1.0], np.full(20_000, 1e-3), [3e3]]).astype(np.float32)

    def total(v: Any) -> Any:
        return np.sum(sg.fori_loop(0, 1, lambda k, y: y[::-1] * 1.0, v[1:]))

    found = sg.fused_forward(len(x), total, device="cpu").run(x)
    assert found == pytest.approx(3020.0, rel=3e-7)
