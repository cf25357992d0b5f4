"""Arrays in memory: which elements an index takes, and what is written where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg

X = np.arange(24.0).reshape(2, 3, 4)


def read(f: Any, k: Any) -> np.ndarray:
    """What f makes of an array in memory and an index, at values of the index."""
    x, i = sg.symbols("x i")
    a = sg.array(X * 1.0).at[0, 0, i * 0].set(x)
    return np.moveaxis(sg.evaluate(sg.array(f(a, i)), {x: 0.0, i: np.asarray(k, float)}), -1, 0)


@pytest.mark.parametrize(
    "key",
    [
        lambda k: (k,),
        lambda k: (k, 1),
        lambda k: (slice(None), k),
        lambda k: (1, slice(0, 3, 2), k),
        lambda k: (..., k),
        lambda k: (k, ..., None, 2),
        lambda k: (k, slice(None, None, -1), slice(1, 3)),
        lambda k: (k, k, k),
        lambda k: (None, k),
    ],
)
def test_an_index_takes_what_numpy_s_takes(key: Any) -> None:
    got = read(lambda a, k: a[key(k)], [0.0, 1.0])
    for k in (0, 1):
        np.testing.assert_array_equal(got[k], X[key(k)])


def test_indices_of_values_are_clamped_and_count_from_the_end() -> None:
    got = read(lambda a, k: a[1, 2, k], [-9, -4, -1, 0, 3, 4, 1e9, 0.6, 1.4, np.nan])
    np.testing.assert_array_equal(got, X[1, 2][[0, 0, 3, 0, 3, 3, 3, 1, 1, 0]])
    got = read(lambda a, k: a[0, k, 3], [-5, -3, 2, 3])
    np.testing.assert_array_equal(got, X[0, :, 3][[0, 0, 2, 2]])


def test_what_is_written_out_of_range_is_dropped() -> None:
    got = read(lambda a, k: a.at[1, k].set(-1.0)[1, :, 2], [-4, -3, -1, 0, 2, 3, np.nan])
    want = np.tile(X[1, :, 2], (7, 1))
    for row, k in enumerate([None, 0, 2, 0, 2, None, None]):
        if k is not None:
            want[row, k] = -1.0
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "minimum", "maximum"])
@pytest.mark.parametrize(
    ("shape", "key", "values"),
    [
        ((3,), [0, 2, 0], np.array([5.0, -3.0, 0.5])),
        ((3,), np.array([1, 1, 1, -2]), np.array(3.0)),
        ((2, 3), (slice(None), [2, 2]), np.array([[0.5, 4.0], [-1.0, 2.0]])),
        ((2, 3), ([0, 1, 0], [1, 1, 1]), np.array([2.0, -7.0, 3.0])),
        ((2, 3), [1, 1], np.array([2.0, -7.0, 3.0])),
    ],
)
def test_an_index_that_is_repeated_updates_each_time(
    name: str, shape: tuple[int, ...], key: Any, values: np.ndarray
) -> None:
    """As a histogram, or a sum of segments, needs it: NumPy's ``ufunc.at`` is the reference."""
    x = np.arange(1.0, 1.0 + np.prod(shape))
    update = {"minimum": "min", "maximum": "max"}.get(name, name)

    def updated(v: Any) -> Any:
        return getattr(v.reshape(shape).at[key], update)(values).reshape(-1)

    want = x.reshape(shape).copy()
    getattr(np, name).at(want, key, values)
    got = sg.fused_forward(x.size, updated, device="cpu", dtype="float64").run(x)
    np.testing.assert_allclose(got, want.ravel(), rtol=1e-15)


def test_numpy_s_own_update_names_what_to_use() -> None:
    with pytest.raises(sg.TraceError, match=r"np\.add\.at is not defined .*v\.at\[k\]\.add\(x\)"):
        sg.fused_forward(2, lambda v: np.add.at(v, [0, 0], v[1]), device="cpu")


def test_gradients_of_a_histogram_reach_each_of_its_values() -> None:
    def energy(v: Any) -> Any:
        return np.sum(sg.array([0.0 * v[0], 0.0 * v[0]]).at[[0, 1, 0]].add(v) ** 2)

    value, slopes = sg.fused_forward_backward(3, energy, device="cpu").run([1.0, 2.0, 3.0])
    assert value == 20.0
    np.testing.assert_array_equal(slopes, [8.0, 4.0, 8.0])


@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("set", lambda a, b: b), ("add", np.add), ("subtract", np.subtract),
        ("multiply", np.multiply), ("divide", np.divide), ("min", np.minimum),
        ("max", np.maximum),
    ],
)  # fmt: skip
@pytest.mark.parametrize("known", [True, False])
def test_updates(name: str, done: Any, known: bool) -> None:
    """At places that are known, and at a value; numbers are broadcast as NumPy does."""
    new = np.array([3.0, -1.0, 20.0, 2.0])

    def updated(a: Any, k: Any) -> Any:
        return getattr(a.at[1, 1 if known else k], name)(new)[1]

    want = X[1].copy()
    want[1] = done(want[1], new)
    np.testing.assert_array_equal(read(updated, [1.0])[0], want)
    x = sg.var("x")
    ours = getattr(sg.array(X * 1.0).at[1, 1], name)(new)
    np.testing.assert_array_equal(sg.evaluate(ours[1] + x, {x: 0.0}), want)


def test_the_array_itself_stays_what_it_is() -> None:
    x, k = sg.symbols("x k")
    v = sg.array([x, 2.0, 3.0])
    a = v.at[1].set(9.0)
    b = v.at[k].apply(lambda old: old * old + 1)
    at = {x: 1.0, k: 2.0}
    assert sg.evaluate(v, at).tolist() == [1, 2, 3]
    assert sg.evaluate(a, at).tolist() == [1, 9, 3]
    assert sg.evaluate(b, at).tolist() == [1, 2, 10]
    assert sg.evaluate(b.at[0].get(), at) == 1


def test_it_takes_part_in_arithmetic_and_numpy_s_functions() -> None:
    def f(a: Any, k: Any) -> Any:
        return [
            a[k, 0] * 2 + np.arange(4.0), 2 - a[k, 0], a[k] @ a[0].T @ a[k, :, 0],
            np.concatenate([a[k, 0], a[0, k]]), np.sum(a), np.exp(-a[k, 0]), sg.maximum(a[k, 1], 5),
            a.sum(axis=0)[0], a[k].T[0], np.sqrt(a[k, 2]), x_of(a) * a[k, 0], -a[k, 0],
            abs(a[k, 0]),
        ]  # fmt: skip

    def x_of(a: Any) -> Any:
        return a[0, 0, 1]

    for part, (want, k) in enumerate([(X, 1)] * 13):
        got = read(lambda a, k, part=part: f(a, k)[part], [1.0])[0]
        np.testing.assert_allclose(got, np.asarray(f(want, k)[part]), rtol=1e-14)
    assert len(list(sg.array([sg.var("x"), 1.0]).at[sg.var("x") * 0].set(1.0))) == 2


def test_arrays_of_indices() -> None:
    got = read(lambda a, k: a[[0, k], [k, 2]], [1.0])[0]
    np.testing.assert_array_equal(got, X[[0, 1], [1, 2]])
    got = read(lambda a, k: a[np.array([[k, 0]], dtype=object), 2], [1.0])[0]
    np.testing.assert_array_equal(got, X[np.array([[1, 0]]), 2])


def test_gradients_by_elements_that_are_read_and_written() -> None:
    def f(v: Any) -> Any:
        a = sg.array([v[0], v[1], v[2]]).at[v[3]].multiply(v[0])
        return a[0] * a[1] + a[v[3] + 1] * a[2]

    at = np.array([[2.0, 3.0, 5.0, 0.0], [2.0, 3.0, 5.0, 1.0]])
    kernel = sg.fused_forward_backward(4, f, device="cpu", dtype="float64")
    values, gradients = kernel.run(at)
    np.testing.assert_array_equal(values, [4 * 3 + 3 * 5, 2 * 6 + 25])
    np.testing.assert_array_equal(gradients, [[12, 9, 3, 0], [12, 4, 10, 0]])


@pytest.mark.parametrize(
    ("key", "error", "said"),
    [
        (lambda v: sg.array([1.0, v[0]])[v[0]][0], TypeError, "not subscriptable"),
        (lambda v: sg.array([1.0, v[0]]).at[v[0]].set(1.0)[2], sg.InputError, "index 2 is out"),
        (lambda v: sg.array([1.0, v[0]]).at[v[0]].set(1.0)[-3], sg.InputError, "index -3 is out"),
        (lambda v: sg.array([1.0, v[0]])[v[0], 0], sg.InputError, "1 axes takes no 2 indices"),
        (lambda v: sg.array([1.0, v[0]])[v[0] :], sg.TraceError, "its bounds are integers"),
        (lambda v: sg.array([1.0, v[0]])[v > 0], sg.TraceError, "use sg.where"),
        (lambda v: sg.array([[1.0, v[0]]])[0, [0, v[0]]], sg.TraceError, "stand before"),
        (lambda v: sg.array([1.0, v[0]]).at[5].set(1.0), IndexError, "out of bounds"),
        (lambda v: np.zeros(2)[v[0]], sg.TraceError, r"use sg.array\(a\)\[k\]"),
    ],
)
def test_misuse(key: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        sg.fused_forward(1, key, device="cpu")


@pytest.mark.parametrize("nested", [True, False])
def test_nothing_is_differentiated_by_an_array_in_memory(nested: bool) -> None:
    """What was made of it does not depend on its elements, which are read anew."""

    def f(v: Any) -> Any:
        a = sg.array([v[0], 2.0]).at[v[0]].set(3.0)
        return sg.grad(a[0] * a[1], [a] if nested else a)[0]

    with pytest.raises(sg.TraceError, match=r"expressions that it was made of\n.*sg.grad"):
        sg.fused_forward(1, f, device="cpu")
