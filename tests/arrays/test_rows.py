"""Arrays that are made of the same rows are one kernel: its numbers beside NumPy's in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special
from tint import check_with_tint, needs_tint

import symgrad as sg

RNG = np.random.default_rng(0)
DEVICES = ["cpu", "gpu"]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normalised(x: Any, w: Any) -> Any:
    """Elements, and two numbers of each row."""
    mean = x.mean(-1, keepdims=True)
    spread = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True))
    return (x - mean) / spread * w, mean, spread[..., 0]


def stages(run: Any) -> list[str]:
    return str(run.stages).splitlines()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "shape", [(7, 3), (2, 3, 33), (70, 64), (5, 300), (256, 9001), (256, 9004)]
)
def test_a_softmax_is_one_kernel(shape: tuple[int, ...], device: Any) -> None:
    x = RNG.normal(size=shape) * 3
    run = sg.jit(softmax, device=device)
    np.testing.assert_allclose(run(x), scipy.special.softmax(x, axis=-1), rtol=1e-5, atol=1e-8)
    assert len(stages(run)) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_elements_and_numbers_of_rows_are_written_by_one_kernel(device: Any) -> None:
    x, w = RNG.normal(size=(6, 20, 32)), RNG.normal(size=32)
    run = sg.jit(normalised, device=device)
    for got, wanted in zip(run(x, w), normalised(x, w), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert len(stages(run)) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_of_the_rows_too(device: Any) -> None:
    x, w, c = RNG.normal(size=(40, 48)), RNG.normal(size=48), RNG.normal(size=(40, 48))
    run = sg.value_and_grad(lambda x, w: np.sum(normalised(x, w)[0] * c), (0, 1), device=device)
    value, (dx, dw) = run(x, w)
    y, _, spread = normalised(x, 1.0)
    g = c * w
    wanted = (g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True)) / spread[:, None]
    assert np.isclose(value, np.sum(y * w * c), rtol=1e-4)
    np.testing.assert_allclose(dx, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dw, (c * y).sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_infinities_and_nan_stay_in_their_rows(device: Any) -> None:
    x = RNG.normal(size=(5, 40))
    x[1, 3], x[2, 7], x[3, 39] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(
            sg.jit(softmax, device=device)(x), softmax(x), rtol=1e-5, equal_nan=True
        )


@pytest.mark.parametrize("device", DEVICES)
def test_counts_products_and_columns(device: Any) -> None:
    """Reductions that lanes of a vector do not do, and those that are not over rows."""

    def counted(x: Any) -> Any:
        above = (x > x.mean(-1, keepdims=True)).sum(-1, keepdims=True)
        return x / above, np.prod(x / np.abs(x).max(-1, keepdims=True), -1), x - x.sum(0)

    x = RNG.uniform(0.9, 1.1, size=(40, 32))
    for got, wanted in zip(sg.jit(counted, device=device)(x), counted(x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_elements_that_other_kernels_read_are_written(device: Any) -> None:
    x, a = RNG.normal(size=(2, 48, 48))

    def twice(x: Any, a: Any) -> Any:
        p = softmax(x)
        return softmax(p @ a) * p.sum(0)

    np.testing.assert_allclose(sg.jit(twice, device=device)(x, a), twice(x, a), rtol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", [1, 2])
def test_rows_along_an_axis_that_is_not_the_last(axis: int, device: Any) -> None:
    """The last axes have one element: slopes of a product that is read in two sums over rows."""
    x, y, w = (np.expand_dims(a, axis) for a in (X[:, :1], X[:1], X))

    def loss(x: Any) -> Any:
        return np.sum(w * np.tanh(x * np.maximum(x, y)))

    slope = 1 - np.tanh(x * np.maximum(x, y)) ** 2
    inner = np.maximum(x, y) + np.where(x > y, x, np.where(x == y, x / 2, 0))
    wanted = np.sum(w * slope * inner, (1, 2)).reshape(x.shape)
    got = sg.jit(sg.grad(loss), device=device)(x)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


X = RNG.normal(size=(40, 30))
"""Numbers in rows."""


def test_nothing_passes_a_stopped_gradient_within_a_function_that_is_mapped() -> None:
    x = RNG.normal(size=(30, 12))
    mapped = sg.vmap(lambda r: sg.stop_gradient(r.max()) * r[0])
    _, slope = sg.value_and_grad(lambda x: np.sum(mapped(x)), device="cpu")(x)
    wanted = np.zeros(x.shape)
    wanted[:, 0] = x.max(1)
    np.testing.assert_allclose(slope, wanted, rtol=1e-6)


def weighed(x: Any, w: Any) -> Any:
    """A number of each row, and a sum over all rows of elements times it."""
    t = np.tanh(x @ w)
    return (x * (1 - t * t)[..., None]).sum(tuple(range(x.ndim - 1))) + w, t


@pytest.mark.parametrize("shape", [(1500, 1600), (9, 250, 1003), (9000, 250)])
def test_sums_over_rows_are_added_up_by_the_kernel_of_the_rows(shape: tuple[int, ...]) -> None:
    x, w = (RNG.normal(size=s).astype(np.float32) / 20 for s in (shape, shape[-1]))
    run = sg.jit(weighed, device="gpu")
    for got, wanted in zip(run(x, w), weighed(*map(np.float64, (x, w))), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-5)
    first, second = stages(run)
    assert "s0" in first.split("=")[0] and first.endswith("rows")
    assert "s0" in second.split("=")[1]


def misfit(p: Any, x: Any, y: Any) -> Any:
    return np.sum((x @ p - y) ** 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1500, 64), (9, 250, 32), (3000, 33), (300, 101)])
def test_the_cpu_reads_rows_once_for_a_misfit_and_its_slopes(
    shape: tuple[int, ...], dtype: Any
) -> None:
    p, x, y = (RNG.normal(size=s) for s in (shape[-1], shape, shape[:-1]))
    run = sg.jit(sg.value_and_grad(misfit), device="cpu", dtype=dtype)
    value, slope = run(p, x, y)
    rtol = 1e-5 if dtype == "float32" else 1e-12
    wanted = 2 * np.tensordot(x @ p - y, x, x.ndim - 1)
    np.testing.assert_allclose(value, misfit(p, x, y), rtol=rtol)
    np.testing.assert_allclose(slope, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())
    first, *others = stages(run)
    assert first.endswith("rows") and "x" in first.split("=")[1]
    assert not any("x" in other.split("=")[1] for other in others)
    curvature = sg.jit(lambda p: sg.hvp(lambda q: misfit(q, x, y), p, p), device="cpu", dtype=dtype)
    second = curvature(p)
    curved = 2 * np.tensordot(x @ p, x, x.ndim - 1)
    np.testing.assert_allclose(second, curved, rtol=rtol, atol=rtol * np.abs(curved).max())


def seen(table: Any, w: Any, i: Any) -> Any:
    """Numbers of points that are looked up, made of short sums."""
    x = table[i]
    square = np.sum(x * x, -1)
    far = np.sqrt(square)
    return np.exp(-far) * w, far * w, np.sum(x, -1) / (1 + square)


@pytest.mark.parametrize("n", [5, 64, 1003])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lanes_compute_together_what_is_looked_up_at_the_same_places(n: int, dtype: Any) -> None:
    table, w, i = RNG.normal(size=(9, 3)), RNG.normal(size=n), RNG.integers(0, 9, n)
    run = sg.jit(seen, device="cpu", dtype=dtype)
    for got, wanted in zip(run(table, w, i), seen(table, w, i), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert len(stages(run)) == 1


def test_many_arrays_of_the_same_elements_are_few_kernels_of_lanes() -> None:
    x = RNG.normal(size=(40, 33))

    def powers(x: Any) -> list[Any]:
        return [np.sin(x * k) + np.exp(x / k) for k in range(1, 80)]

    run = sg.jit(powers, device="cpu", dtype="float64")
    np.testing.assert_allclose(run(x), powers(x), rtol=1e-12, atol=1e-14)
    assert 1 < len(stages(run)) < 10


@needs_tint
def test_tint_takes_the_kernel_of_rows_and_sums_over_them() -> None:
    run = sg.jit(weighed, device="gpu")
    run(np.zeros((1500, 1600)), np.zeros(1600))
    modules = run.wgsl.split("// rows\n")[1:]
    assert modules and check_with_tint(modules) == [None] * len(modules)
