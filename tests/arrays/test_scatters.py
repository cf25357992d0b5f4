"""Gradients of gathers: sums of all that goes to an element, beside NumPy's ``add.at``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.wgsl.device.gpus import list_gpus

RNG = np.random.default_rng(0)
K, N, D = 7, 50, 4
INDEX, SELECTED = RNG.integers(0, N, (D, 9)), RNG.integers(0, N, K)
EACH = np.arange(K)
SQUARE, FLAT = RNG.normal(size=(K, N)), RNG.normal(size=(300,))
GATHERS: dict[str, tuple[np.ndarray, Callable[[Any], Any]]] = {
    "a counter, then indices": (SQUARE, lambda a: a[:, INDEX]),
    "indices, then a counter": (SQUARE.T, lambda a: a[INDEX]),
    "a part of the counter's axis": (SQUARE, lambda a: a[2:5, INDEX]),
    "turned round": (SQUARE, lambda a: a[::-1, INDEX]),
    "one index for each line": (SQUARE, lambda a: a[EACH, SELECTED]),
    "a diagonal, and indices": (SQUARE[:, :K], lambda a: a[EACH, EACH] * a[SELECTED % K, 0]),
    "indices alone": (FLAT, lambda a: a[INDEX]),
}


@pytest.mark.parametrize("device", ["cpu", *["gpu"] * bool(list_gpus())])
def test_gradients_of_gathers(device: Any) -> None:
    for name, (a, gather) in GATHERS.items():
        weights = RNG.normal(size=gather(a).shape)
        run = sg.value_and_grad(lambda a, w, g=gather: np.sum(g(a) * w), device=device)
        value, gradient = run(a, weights)
        assert value == pytest.approx(np.sum(gather(a) * weights), rel=1e-4, abs=1e-4), name
        step = 1e-30  # a complex step is exact, as these are polynomials
        wanted = np.array([
            np.imag(np.sum(gather(a + 1j * step * e.reshape(a.shape)) * weights)) / step
            for e in np.eye(a.size)
        ])  # fmt: skip
        np.testing.assert_allclose(gradient, wanted.reshape(a.shape), rtol=1e-4, atol=1e-4)


def test_long_lists_of_what_goes_to_many_elements() -> None:
    """Here 3,000 numbers are read of 800, 12 of them in each step of a loop, and of nowhere."""
    a, weights = RNG.normal(size=(800,)), RNG.normal(size=(12, 3000))
    rows, columns = RNG.integers(0, 40, (12, 3000)), RNG.integers(-20, 20, (12, 3000))

    def read(x: Any, w: Any) -> Any:
        square = x.reshape(40, 20)
        return np.sum(square[rows, columns] * w)

    wanted = np.zeros((40, 20))
    np.add.at(wanted, (rows, columns), weights)
    run = sg.value_and_grad(read, device="cpu", dtype="float64")
    value, gradient = run(a, weights)
    assert value == pytest.approx(np.sum(a.reshape(40, 20)[rows, columns] * weights), rel=1e-12)
    np.testing.assert_allclose(gradient, wanted.ravel(), rtol=1e-12, atol=1e-12)

    def looped(x: Any, w: Any) -> Any:
        at = sg.int32(np.floor(np.abs(x) * 1e6)) % 1000  # some of them are nowhere

        def step(k: Any, total: Any) -> Any:
            return total + np.sum(np.where(at < 800, x[np.minimum(at, 799)], 0.0) * w[k, :800])

        return sg.fori_loop(0, 12, step, 0.0)

    places = np.floor(np.abs(a) * 1e6).astype(int) % 1000
    inside, totals = places < 800, weights[:, :800].sum(0)
    wanted = np.bincount(places[inside], totals[inside], 800)
    _, gradient = sg.value_and_grad(looped, device="cpu", dtype="float64")(a, weights)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-11, atol=1e-11)
