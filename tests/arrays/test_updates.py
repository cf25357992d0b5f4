"""Updates of whole arrays at indices, known and computed, repeated and masked, beside NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg

RNG = np.random.default_rng(4)
A = RNG.normal(size=(6, 5, 4))
AT, SQUARE = np.array([1, -2, 1, 3]), np.array([[0, 2], [1, 1]])
EXACT: Any = {"device": "cpu", "dtype": "float64"}

KEYS: dict[str, Any] = {
    "rows": AT,
    "an axis": np.s_[:, AT % 5],
    "slices behind": np.s_[AT, 1:3],
    "slices before": np.s_[::2, SQUARE],
    "apart": np.s_[SQUARE, :, SQUARE],
    "beside a number": np.s_[2, :, SQUARE],
    "a new axis": np.s_[None, AT],
    "a new axis between": np.s_[AT, None, 2],
    "backwards": np.s_[AT, ::-2],
    "nothing": np.s_[np.zeros(0, int)],
    "an empty slice": np.s_[1:1],
}
UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}


def updated(a: np.ndarray, key: Any, name: str, values: Any) -> np.ndarray:
    """What NumPy makes of it, in place, of a copy."""
    copy = a.copy()
    if name == "set":
        copy[key] = values
    else:
        UFUNCS[name].at(copy, key, values)
    return copy


def shifted(key: Any, by: Any) -> Any:
    """A key whose arrays are computed."""
    parts = key if isinstance(key, tuple) else (key,)
    return tuple(p + by if isinstance(p, np.ndarray) else p for p in parts)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("name", KEYS)
def test_updates_are_numpys_at_any_index(name: str, is_known: bool) -> None:
    key = KEYS[name]
    values = RNG.normal(size=A[key].shape)

    def all_of(a: Any, values: Any, by: Any) -> list[Any]:
        at = key if is_known else shifted(key, by.astype(int))
        return [getattr(a.at[at], n)(values) for n in ("set", *UFUNCS)]

    got = sg.jit(all_of, **EXACT)(A, values, 0.0)
    for g, n in zip(got, ("set", *UFUNCS), strict=True):
        np.testing.assert_allclose(g, updated(A, key, n, values), rtol=1e-12, err_msg=n)


def test_updates_of_integers_stay_such() -> None:
    x = RNG.normal(size=(3, 4))

    def integers(x: Any) -> list[Any]:
        n: Any = np.argsort(x, axis=1)
        repeated = n.at[[0, 0, 1]].add(2), n.at[[0, 0]].multiply(3), n.at[:, [1, 1]].max(3)
        return [*repeated, n.at[n > 1].add(5), n.at[1].subtract(1)]

    n = np.argsort(x, axis=1)
    rows, column = np.array([[4], [2], [0]]), np.array([False, True, False, False])
    want = [n + rows, n * [[9], [1], [1]], np.where(column, np.maximum(n, 3), n)]
    want += [np.where(n > 1, n + 5, n), n - [[0], [1], [0]]]
    for got, wanted in zip(sg.jit(integers, **EXACT)(x), want, strict=True):
        assert got.dtype.kind == "i"
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_loops_write_where_their_counter_says(device: Any) -> None:
    def swept(x: Any) -> Any:
        step = lambda k, c: c.at[k].set(np.tanh(c[k] + c[k - 1]))  # noqa: E731
        return np.sum(sg.fori_loop(0, 6, step, x) ** 2)

    def by_numpy(x: np.ndarray) -> Any:
        c = x.copy()
        for k in range(6):
            c[k] = np.tanh(c[k] + c[k - 1])
        return np.sum(c**2)

    x, h = RNG.normal(size=8), 1e-6
    value, slope = sg.jit(sg.value_and_grad(swept), device=device)(x)
    assert np.isclose(value, by_numpy(x), rtol=1e-5)
    wanted = [(by_numpy(x + h * e) - by_numpy(x - h * e)) / (2 * h) for e in np.eye(8)]
    np.testing.assert_allclose(slope, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [8, 300])
def test_slopes_of_repeated_products_at_computed_places(count: int) -> None:
    x = RNG.uniform(0.5, 1.5, size=count)

    def loss(x: Any) -> Any:
        places = np.argsort(x)[:6] // 2 * 2
        return np.sum(x.at[places].multiply(x[:6]) ** 2)

    def by_numpy(x: np.ndarray) -> Any:
        return np.sum(updated(x, np.argsort(x)[:6] // 2 * 2, "multiply", x[:6]) ** 2)

    h = 1e-6
    value, slope = sg.value_and_grad(loss, **EXACT)(x)
    assert np.isclose(value, by_numpy(x), rtol=1e-12)
    wanted = [(by_numpy(x + h * e) - by_numpy(x - h * e)) / (2 * h) for e in np.eye(count)[:8]]
    np.testing.assert_allclose(slope[:8], wanted, rtol=1e-7, atol=1e-8)


TIES = {  # the slopes by both, as jax.grad gives them
    "max": ([1 / 3, 1 / 2, 0.0, 1.0], [1 / 3, 1 / 3, 1 / 2, 1.0, 0.0]),
    "min": ([1 / 3, 1 / 2, 1.0, 0.0], [1 / 3, 1 / 3, 1 / 2, 0.0, 1.0]),
}


@pytest.mark.parametrize("name", TIES)
@pytest.mark.parametrize("verb", ["elements", "whole", "computed"])
def test_equal_values_share_the_slope_as_jaxs(name: str, verb: str) -> None:
    """In turn they once had a quarter, a quarter and a half of it."""
    x, v = np.array([1.0, 1.0, 1.0, 5.0]), np.array([1.0, 1.0, 1.0, 2.0, 3.0])
    places, order = np.array([0, 0, 1, 2, 3]), np.arange(4)
    if name == "min":
        x, v = -x, -v
        x[2:], v[3:] = [-1.0, -2.0], [0.0, -5.0]

    def loss(x: Any, v: Any) -> Any:
        at = np.argsort(np.where(order < 9, order, x * 0))[places] if verb == "computed" else places
        return np.sum(getattr(x.at[at], name)(v))

    step = sg.value_and_grad(loss, (0, 1), **EXACT)
    if verb != "elements":
        step = sg.jit(sg.value_and_grad(loss, (0, 1)), **EXACT)
    _, slopes = step(x, v)
    for slope, want in zip(slopes, TIES[name], strict=True):
        np.testing.assert_allclose(slope, want, rtol=1e-12)


def test_what_no_index_meets_keeps_its_slope() -> None:
    """Also where it is what an extreme begins with."""
    x = np.full(300, -np.inf)
    x[5] = 1.0
    run = sg.value_and_grad(lambda x: np.sum(x.at[[0, 0, 1]].max([1.0, 2.0, 3.0])), **EXACT)
    assert run(x)[1].tolist() == [0.0, 0.0, *[1.0] * 298]


def test_results_that_are_numbers_have_no_axis() -> None:
    for f in (lambda x: x, lambda x: np.maximum(x, x), lambda x: x + 1.0):
        assert sg.jit(f, device="cpu")(np.array(2.0)).shape == ()


def test_arrays_of_no_elements_join_and_pad() -> None:
    x = np.zeros((3, 0))

    def joined(x: Any) -> list[Any]:
        padded = np.pad(x, [(0, 1), (1, 0)])
        moved = np.roll(x, 1), np.all(x > 0), np.any(x > 0, axis=1)
        return [np.concatenate([x, x * 2.0]), *moved, padded, np.hstack([x, padded[:3]])]

    for got, wanted in zip(sg.jit(joined, **EXACT)(x), joined(x), strict=True):
        np.testing.assert_array_equal(got, wanted)


FAR = np.array([7.0, -9.0, 1.0])
"""Places of which two lie beyond an axis of five."""

BEYOND: dict[str, tuple[Callable[..., Any], float, list[float]]] = {
    "read": (lambda x, k: np.sum(x[k] ** 2), 30, [2, 4, 0, 0, 10]),
    "read as a number": (lambda x, k: x[k[0]] ** 2 + x[k[1]], 26, [1, 0, 0, 0, 10]),
    "read backwards": (lambda x, k: np.sum(x[::-1][k] ** 2), 42, [2, 0, 0, 8, 10]),
    "read of counters": (lambda x, k: np.sum((x[0] * np.arange(5))[k]), 5, [5, 0, 0, 0, 0]),
    "read of parts": (lambda x, k: np.sum(np.concatenate([x, x])[k + 4]), 7, [2, 0, 0, 0, 1]),
    "taken": (lambda x, k: np.sum(np.take(x, k) ** 2), 30, [2, 4, 0, 0, 10]),
    "taken along": (lambda x, k: np.sum(np.take_along_axis(x, k, 0) ** 2), 30, [2, 4, 0, 0, 10]),
    "got": (lambda x, k: np.sum(x.at[k].get() ** 2), 30, [2, 4, 0, 0, 10]),
    "two axes": (lambda x, k: np.sum(np.outer(x, x)[k, k]), 30, [2, 4, 0, 0, 10]),
    "set": (lambda x, k: np.sum(x.at[k].set(0.0) ** 2), 51, [2, 0, 6, 8, 10]),
    "added": (lambda x, k: np.sum(x.at[k].add(1.0) ** 2), 60, [2, 6, 6, 8, 10]),
    "multiplied": (lambda x, k: np.sum(x.at[k].multiply(2.0) ** 2), 67, [2, 16, 6, 8, 10]),
    "raised": (lambda x, k: np.sum(x.at[k].max(9.0) ** 2), 132, [2, 0, 6, 8, 10]),
    "added to a number": (lambda x, k: np.sum(x.at[k[0]].add(1.0) ** 2), 55, [2, 4, 6, 8, 10]),
}  # fmt: skip
"""Functions, their values and slopes."""


@pytest.mark.parametrize("name", BEYOND)
@pytest.mark.parametrize("verb", ["jit", "value_and_grad"])
def test_beyond_an_axis_the_nearest_is_read_and_nothing_written(name: str, verb: str) -> None:
    f, value, slope = BEYOND[name]
    x = np.arange(1.0, 6.0)

    def loss(x: Any, k: Any) -> Any:
        return f(x, k.astype(int))

    if verb == "jit":
        computed, by_x = sg.jit(sg.value_and_grad(loss), **EXACT)(x, FAR)
    else:
        computed, (by_x, _) = sg.value_and_grad(loss, (0, 1), **EXACT)(x, FAR)
    assert computed == value and by_x.tolist() == slope


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("is_known", [True, False])
def test_nan_does_not_reach_the_slopes_of_others(name: str, is_known: bool) -> None:
    """Neither of an element nor of a value that is NaN: what the loss leaves out has no slope."""
    x, v = np.array([1.0, np.nan, 3.0, 4.0, np.nan]), np.array([10.0, 2.0, 3.0, np.nan])
    places = np.array([0, 0, 2, 1])

    def loss(x: Any, v: Any, k: Any) -> Any:
        y = getattr(x.at[places if is_known else k.astype(int)], name)(v)
        return y[0] + 2.0 * y[2] + 3.0 * y[3]

    step = sg.jit(sg.grad(loss, (0, 1)), **EXACT)
    by_x, by_v = step(x, v, places.astype(float))
    assert by_x.tolist() == [0.0 if name == "max" else 1.0, 0.0, 1.0, 3.0, 0.0]
    assert by_v.tolist() == [1.0 if name == "max" else 0.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("rows", [slice(3, 1), slice(-1, 1, 1), slice(0, 0)])
def test_writes_to_no_elements_change_nothing(rows: slice) -> None:
    """Also where derivatives of derivatives go through them."""
    x = np.linspace(-1.0, 2.0, 20).reshape(4, 5)

    def slopes(x: Any) -> Any:
        def loss(x: Any) -> Any:
            b = x[:, np.array([-3, 2, 1, -2])].copy()
            b[rows] *= -1.0
            b[rows, 1:3] = 7.0
            return np.sum(np.sin(b))

        return sg.grad(lambda x: np.sum(np.cos(sg.grad(loss)(x))))(x)

    times = np.array([0.0, 1.0, 2.0, 1.0, 0.0])
    wanted = np.sin(times * np.cos(x)) * times * np.sin(x)
    run = sg.jit(slopes, device="cpu", dtype="float64")
    np.testing.assert_allclose(run(x), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["set", *UFUNCS])
@pytest.mark.parametrize("is_known", [True, False])
def test_arrays_of_numbers_take_whole_arrays(name: str, is_known: bool) -> None:
    """As sums by segments do: of an array of the function's own, which no argument is."""
    places = np.array([3, 0, 5, 2] if name == "set" else [3, 0, 3, 2])
    values, numbers = RNG.normal(size=(4, 2)), RNG.normal(size=(6, 2))

    def f(x: Any, k: Any) -> Any:
        at = places if is_known else k.astype(int)
        return getattr(sg.array(numbers).at[at], name)(x)

    got = sg.jit(f, **EXACT)(values, places * 1.0)
    np.testing.assert_allclose(got, updated(numbers, places, name, values), rtol=1e-14)


def test_arrays_like_others_are_written_to() -> None:
    """And those of integers and truth values are known, to be indices."""

    def f(x: Any) -> Any:
        slopes, ends = np.zeros_like(x), np.ones_like(x, dtype=bool)
        slopes[1:-1] = x[2:] - x[:-2]
        ends[1:-1] = False
        return slopes, x[ends], np.full_like(x, 2.0).at[0].add(x[1])

    x = RNG.normal(size=300)
    slopes, ends, twos = sg.jit(f, **EXACT)(x)
    assert np.array_equal(slopes, [0.0, *(x[2:] - x[:-2]), 0.0])
    assert np.array_equal(ends, x[[0, -1]]) and np.array_equal(twos, [2 + x[1], *[2.0] * 299])
