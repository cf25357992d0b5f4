"""Arrays that are far larger than what they are made of are computed in strips, never stored."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

import symgrad as sg
from symgrad.arrays import strips
from symgrad.tensor import stages


def scores(q: Any, k: Any, mask: Any) -> Any:
    return np.where(mask, q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), -np.inf)


def attention(*args: Any) -> Any:
    q, k, v, mask = args
    s = scores(q, k, mask)
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p @ v) / p.sum(-1, keepdims=True)


def attention_gradients(*args: Any) -> Any:
    """The derivatives of the sum of squares of attention, by hand."""
    q, k, v, mask = args
    s = scores(q, k, mask)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    y = p @ v
    slope = 2 * y @ np.swapaxes(v, -1, -2)
    slope = p * (slope - np.sum(p * slope, -1, keepdims=True)) / np.sqrt(q.shape[-1])
    return slope @ k, np.swapaxes(slope, -1, -2) @ q, np.swapaxes(p, -1, -2) @ (2 * y)


def drawn(*shape: int, count: int = 3) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape) for _ in range(count)]


def largest(text: str) -> int:
    """The elements of the largest array that some stages write."""
    shapes = re.findall(r"y\d+\[([\d, ]*)\] = |s\d+\[([\d, ]*)\] = ", text)
    return max(math.prod(int(n) for n in (a or b).split(", ") if n) for a, b in shapes)


def with_gradients(mask: Any, **options: Any) -> Any:
    def loss(q: Any, k: Any, v: Any) -> Any:
        return np.sum(attention(q, k, v, mask) ** 2)

    return sg.jit(lambda *a: sg.value_and_grad(loss, argnums=(0, 1, 2))(*a), **options)


def test_memory_of_attention_is_linear_forward_and_backward() -> None:
    written = list[int]()
    for heads, n in ((6, 839), (3, 1200)):
        args, mask = drawn(heads, n, 40), np.tri(n, dtype=bool)
        run = with_gradients(mask, device="cpu", dtype="float64")
        value, gradients = run(*args)
        assert np.allclose(value, np.sum(attention(*args, mask) ** 2), rtol=1e-13)
        for mine, theirs in zip(gradients, attention_gradients(*args, mask), strict=True):
            assert np.allclose(mine, theirs, rtol=1e-11, atol=1e-13)
        written.append(largest(str(run.stages)))
    assert max(written) <= 2**21, written  # of 4.2 million scores


@contextmanager
def large_from(elements: int, rows: int = strips.ROWS) -> Iterator[None]:
    """A context in which arrays of so many elements are worth strips of so many rows."""
    with (
        mock.patch.multiple(stages, LARGE=elements, HOST_LARGE=elements),
        mock.patch.object(strips, "ROWS", rows),
    ):
        yield


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "float64"), ("gpu", "float32")])
@pytest.mark.parametrize("n", [96, 101])
def test_strips_give_the_numbers_of_whole_arrays(device: str, dtype: Any, n: int) -> None:
    args, mask = drawn(2, 3, n, 4), np.tri(n, dtype=bool)
    mask[n - 1] = np.arange(n) % 2
    with large_from(2**14, rows=1):
        run = with_gradients(mask, device=device, dtype=dtype)
        value, gradients = run(*args)
    rtol = 1e-12 if dtype == "float64" else 1e-4
    assert np.isclose(value, np.sum(attention(*args, mask) ** 2), rtol=rtol)
    for mine, theirs in zip(gradients, attention_gradients(*args, mask), strict=True):
        assert np.allclose(mine, theirs, rtol=rtol, atol=rtol)
    assert "call loop" in str(run.stages)
    assert largest(str(run.stages)) < 6 * n * n


def test_few_rows_of_many_elements_are_two_strips_at_least() -> None:
    """A strip of as many rows as products take would be all there are."""
    x, y = drawn(50, count=2)

    def columns(x: Any, y: Any) -> Any:
        a = np.sinh(np.tanh(x[:, None] * y[None]))
        return (a / (1 + np.abs(a).sum(1, keepdims=True))).sum(0), a @ a.T

    run = sg.jit(columns, device="cpu", dtype="float64")
    with large_from(2**10):
        results = run(x, y)
    for mine, theirs in zip(results, columns(x, y), strict=True):
        assert np.allclose(mine, theirs, rtol=1e-12, atol=1e-14)
    assert "call loop, 2 times" in str(run.stages)


def test_a_query_without_keys_is_nan_as_in_numpy() -> None:
    args, mask = drawn(32, 4), np.ones((32, 32), bool)
    mask[5] = False
    run = sg.jit(lambda *a: attention(*a, mask), device="cpu", dtype="float64")
    with np.errstate(invalid="ignore"):
        expected = attention(*args, mask)
    with large_from(2**10):
        found = run(*args)
    assert np.isnan(expected[5]).all()
    assert np.allclose(found, expected, rtol=1e-12, equal_nan=True)


def test_strips_of_what_reads_rows_and_columns_differently() -> None:
    """Rows of one array and columns of another, sums over both, and what must stay whole."""
    x, y = drawn(40, count=2)

    def rows(x: Any, y: Any) -> Any:
        a = np.sinh(np.tanh(x[:, None] * y[None]))
        return np.cumsum(a, 1)[:, -1], (a / (1 + np.abs(a).sum(1, keepdims=True))).sum(0), a @ a.T

    with large_from(2**10):
        results = sg.jit(rows, device="cpu", dtype="float64")(x, y)
    for mine, theirs in zip(results, rows(x, y), strict=True):
        assert np.allclose(mine, theirs, rtol=1e-12)
