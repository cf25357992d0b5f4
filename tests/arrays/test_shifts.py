"""Extremes that cancel have no derivative; others have theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.arrays.program import listing
from symgrad.arrays.trace import gradients, program_of
from symgrad.front.whole import WholeTrace

X = np.random.default_rng(2).normal(size=(9, 41))
CHOSEN = np.arange(9)[:, None] % 5


def softmax(x: Any) -> Any:
    p = np.exp(x - x.max(-1, keepdims=True))
    return np.sum((p / p.sum(-1, keepdims=True)) ** 2)


def cross_entropy(x: Any) -> Any:
    shifted = x - np.max(x, axis=1)[:, None]
    return np.mean(
        np.log(np.sum(np.exp(shifted), 1)) - np.take_along_axis(shifted, CHOSEN, 1)[:, 0]
    )


def log_sum(x: Any) -> Any:
    low = np.min(2.0 * x, 1)
    return np.sum((np.log(np.sum(np.exp(2.0 * x - low[:, None]), 1)) + low) ** 2)


def masked(x: Any) -> Any:
    s = np.where(X > 1.0, -np.inf, x * 3.0)
    p = np.exp(s - s.max(0))
    return np.sum((x * p).sum(0) / (1e-3 * p.sum(0) + np.where(X[0] > 0, p[0], 0.0)))


def unscaled(x: Any) -> Any:
    return np.sum(np.exp(x - x.max(1, keepdims=True)))


def of_another_row(x: Any) -> Any:
    top = x.max(1, keepdims=True)
    return np.sum(np.exp(x - np.roll(top, 1, 0)).sum(1) / np.exp(x - top).sum(1))


def with_a_constant(x: Any) -> Any:
    p = np.exp(x - x.max(1, keepdims=True))
    return np.sum(p / (p.sum(1, keepdims=True) + 0.5))


def doubled(x: Any) -> Any:
    p = np.exp(x - x.max(1, keepdims=True))
    return np.sum(p / np.sum(p * p, 1, keepdims=True))


def solved(x: Any) -> Any:
    shifted = x - x.max(1, keepdims=True)
    return softmax(x) + np.sum(np.linalg.solve(np.eye(41) * 3.0 + 0.1, shifted.T) ** 2)


def scanned(x: Any) -> Any:
    """By `scan` when traced, by Python's loop of numbers."""
    shifted = x - x.max(1, keepdims=True)
    if isinstance(x, np.ndarray):
        return softmax(x) + sum(np.sum(np.sin(row) ** 2) for row in shifted)
    total, _ = sg.scan(lambda c, row: (c + np.sum(np.sin(row) ** 2), row), 0.0, shifted)
    return softmax(x) + total


CANCEL = [softmax, cross_entropy, log_sum, masked]


@pytest.mark.parametrize(
    "f",
    [*CANCEL, unscaled, of_another_row, with_a_constant, doubled, solved, scanned],
)
def test_derivatives_are_those_of_differences(f: Any) -> None:
    value, gradient = sg.value_and_grad(f, device="cpu", dtype="float64")(X)
    assert np.isclose(value, f(X), rtol=1e-13)
    rng = np.random.default_rng(0)
    for _ in range(3):
        way, h = rng.normal(size=X.shape), 1e-4
        first, second = ((f(X + k * h * way) - f(X - k * h * way)) / (2 * k * h) for k in (1, 2))
        expected = (4 * first - second) / 3
        assert np.isclose(np.sum(gradient * way), expected, rtol=1e-7, atol=1e-9)
    trace = WholeTrace(f, [X])
    result = trace.call(lambda arrays: iter([*arrays, {}]))
    text = listing(program_of(trace.tape, [result, *gradients(result, trace.variables)]))
    is_shared = "< 1, where(" in text  # by what attains an extreme
    assert is_shared == (f not in CANCEL)
