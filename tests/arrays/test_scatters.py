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


MANY = 30_000
PLACES, OTHERS = RNG.integers(-5_000, 5_000, (2, MANY))


def each_its_own(a: Any, i: Any) -> Any:
    return np.take_along_axis(a, np.stack([i, ~i, i // 2], axis=1), axis=0)


LOOKED_UP: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "rows": ((5_000, 3), lambda a, i: a[i]),
    "columns": ((3, 5_000), lambda a, i: a[:, i]),
    "by two indices": ((5_000, 70), lambda a, i: a[i, OTHERS % 70]),
    "each its own": ((5_000, 3), each_its_own),
    "more than 16 bits": ((70_000,), lambda a, i: a[i * 14 % 70_000]),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKED_UP)
@pytest.mark.parametrize("dtype", ["float32", "float32x2"])
def test_large_tables_on_gpus_are_summed_by_segments(name: str, dtype: Any) -> None:
    """Each element once was compared with all numbers: minutes for 100,000 of 10,000 x 16."""
    shape, gather = LOOKED_UP[name]
    a = RNG.normal(size=shape)
    weights = RNG.normal(size=gather(a, PLACES).shape)
    slope = lambda a, w, i: sg.grad(lambda a: np.sum(w * gather(a, i)))(a)  # noqa: E731
    run = sg.jit(slope, device="gpu", dtype=dtype)
    got = run(a, weights, PLACES)
    wanted = np.zeros(shape)
    positions = gather(np.arange(a.size).reshape(shape), PLACES)
    np.add.at(wanted.reshape(-1), positions, weights)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=10 * tolerance)
    assert "segments" in str(run.stages)
    np.testing.assert_array_equal(got, run(a, weights, PLACES))


def test_many_numbers_of_one_place() -> None:
    """Some GPUs end long loops: the sums are several dispatches."""
    places, weights = np.arange(150_000) % 2, RNG.normal(size=150_000)
    run = sg.jit(lambda x, i, w: x.at[i].add(w), device="gpu")
    sums = run(np.zeros(1000), places, weights)
    np.testing.assert_allclose(sums[:2], np.bincount(places, weights), rtol=1e-4, atol=1e-3)
    assert not sums[2:].any() and "from 131072 on" in str(run.stages)


@pytest.mark.parametrize("device", ["cpu", *["gpu"] * bool(list_gpus())])
def test_what_goes_to_looked_up_rows_is_computed_once(device: Any) -> None:
    """Words through a layer to a cross entropy: a product for each is no part of a row's search."""
    words, size = 120, 16
    tokens, targets = RNG.integers(0, words, (2, 4, 32))
    table, weights = RNG.normal(size=(words, size)), RNG.normal(size=(size, words))

    def slopes(table: Any, weights: Any) -> Any:
        def loss(table: Any, weights: Any) -> Any:
            scores = np.tanh(table[tokens]) @ weights
            logs = scores - np.log(np.sum(np.exp(scores), -1, keepdims=True))
            return -np.mean(np.take_along_axis(logs, targets[..., None], -1))

        return sg.value_and_grad(loss, (0, 1))(table, weights)[1]

    run = sg.jit(slopes, device=device)
    of_table, of_weights = run(table.astype(np.float32), weights.astype(np.float32))
    hidden = np.tanh(table[tokens])
    shares = np.exp(hidden @ weights)
    shares /= shares.sum(-1, keepdims=True)
    shares -= np.eye(words)[targets]
    shares /= targets.size
    wanted = np.zeros_like(table)
    np.add.at(wanted, tokens, shares @ weights.T * (1.0 - hidden**2))
    np.testing.assert_allclose(of_table, wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        of_weights, np.einsum("btc,btw->cw", hidden, shares), rtol=1e-4, atol=1e-6
    )
    stages = str(run.stages)
    assert "sort" not in stages  # a target is compared with the one word that may be it
    assert device == "cpu" or stages.count("[4, 32, 16] =") == 2, (
        stages
    )  # hidden, and the product that goes to it


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sequences_of_integers_are_counters(axis: int) -> None:
    """An index array along one axis that counts, wherever it stands, is no array in memory."""
    a, at = RNG.normal(size=(6, 7, 8)), RNG.integers(0, 6, (6, 7, 8))
    for line in (np.arange(a.shape[axis]), np.arange(a.shape[axis])[::-1]):
        places = line.reshape([-1 if k == axis % 3 else 1 for k in range(3)])
        index = tuple(places if k == axis % 3 else at for k in range(3))
        run = sg.jit(lambda x, i=index: x[i] * x[i[0], i[1], i[2]], dtype="float64")
        np.testing.assert_allclose(run(a), a[index] ** 2, rtol=1e-14)
