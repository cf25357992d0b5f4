"""Kernels in float32x2 have twice float32's digits, on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.mathlib.pair.arithmetic import split

HAS_GPU = any(d.is_gpu for d in sg.devices())
DEVICES = ["cpu", pytest.param("gpu", marks=pytest.mark.skipif(not HAS_GPU, reason="no GPU"))]

FUNCTIONS: dict[str, tuple[Callable[..., Any], float]] = {
    "a + b": (lambda a, b: 3.0 * a + b + 99.0, 1e-13),
    "a - b": (lambda a, b: np.pi - a * b, 1e-11),
    "a b": (lambda a, b: 0.1 * a * b, 1e-13),
    "a / b": (lambda a, b: np.pi * a / (12 * b), 1e-13),
    "a**3": (lambda a, b: a**3, 1e-13),
    "a**-2": (lambda a, b: a**-2, 1e-13),
    "|a|**b": (lambda a, b: abs(a) ** b, 1e-12),
    "sqrt": (lambda a, b: np.sqrt(a * a + b * b), 1e-13),
    "exp": (lambda a, b: np.exp(a) + np.exp2(b), 1e-12),
    "log": (lambda a, b: np.log(abs(a) + 2) * np.log2(b * b + 2) + np.log10(b * b + 2), 1e-13),
    "sin": (lambda a, b: 2 + np.sin(20 * a), 1e-11),
    "sin of many turns": (lambda a, b: 3 + np.sin(2e5 * a) + np.cos(1e4 * b), 1e-7),
    "cos": (lambda a, b: 2 + np.cos(20 * a), 1e-11),
    "tan": (lambda a, b: np.tan(0.1 * a), 1e-12),
    "atan": (lambda a, b: np.arctan(a), 1e-13),
    "|a|": (lambda a, b: abs(a) + np.maximum(a, b) ** 2 + np.clip(a, -1.0, b * b), 1e-11),
    "min": (lambda a, b: np.minimum(a, b) - 20.0, 1e-13),
    "mod": (lambda a, b: np.mod(1e5 * a, 1.7) + 9.0, 1e-9),
    "fmod": (lambda a, b: np.fmod(1e5 * a, 1.7) + 9.0, 1e-9),
    "trunc": (lambda a, b: np.trunc(1e7 * a) + np.round(1e7 * b) + 0.5, 1e-13),
    "tanh": (lambda a, b: np.tanh(a) + 3.0, 1e-13),
}

ARITHMETIC = {"a + b", "a - b", "a b", "a / b", "a**-2", "sqrt", "|a|", "trunc", "exp"}
"""The ones that a GPU compiles here; all are tested in other files."""


def rounded(x: np.ndarray) -> np.ndarray:
    """The numbers as the sums of two float32."""
    high = x.astype(np.float32)
    return high + (x - high).astype(np.float32).astype(float)


@pytest.mark.parametrize("device", DEVICES)
def test_digits(device: Any) -> None:
    x = rounded(4 * np.random.default_rng(0).normal(size=(3000, 2)))
    tested = {n: FUNCTIONS[n] for n in FUNCTIONS if device == "cpu" or n in ARITHMETIC}
    every = {name: f for name, (f, _) in tested.items()}
    kernel = sg.fused_forward(
        2, lambda v: {n: f(v[0], v[1]) for n, f in every.items()}, device=device, dtype="float32x2"
    )
    for (name, (f, most)), values in zip(tested.items(), kernel.run(x).values(), strict=True):
        assert values.dtype == np.float64
        assert np.abs(values / f(*x.T) - 1).max() < most, name


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_that_differ_in_their_low_parts_are_told_apart(device: Any) -> None:
    def compared(v: Any) -> Any:
        a, b = v
        bits = [a < b, a <= b, a == b, a != b, a > b, a >= b]
        return sum(2.0**k * sg.where(bit, 1.0, 0.0) for k, bit in enumerate(bits))

    less, equal, more = 0b001011, 0b100110, 0b111000
    points = [[2400000.1, 2400000.125], [1, 1], [7, 7 - 1e-7], [np.nan, 1], [np.inf, np.inf]]
    kernel = sg.fused_forward(2, compared, device=device, dtype="float32x2")
    assert kernel.run(np.array(points)).tolist() == [less, equal, more, 0b001000, equal]


@pytest.mark.parametrize("device", DEVICES)
def test_a_whole_number_is_not_rounded_up_from_below_it(device: Any) -> None:
    def f(v: Any) -> Any:
        return {name: getattr(np, name)(v[0]) for name in ("floor", "ceil", "round", "trunc")}

    x = np.array([9 - 1e-8, 9 + 1e-8, -2.5 + 1e-8, 2.0**24 - 0.5, -7, 2.5, 3.5, 2.5 - 1e-9,
                  2.0**23 + 1.5, 2.0**40 + 0.5, -0.5 - 1e-9, 1 - 1e-8, 1e-8 - 1, 1 - 2.0**-40,
                  1 + 1e-8, -1 - 1e-8, 1, -1, 0.0, -0.0])  # fmt: skip
    values = sg.fused_forward(1, f, device=device, dtype="float32x2").run(x[:, None])
    for name, got in values.items():
        whole = getattr(np, name)
        np.testing.assert_array_equal(got, whole(rounded(x)), err_msg=name)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(whole(x)), err_msg=name)


@pytest.mark.parametrize("device", DEVICES)
def test_beyond_its_range_a_pair_is_float32s(device: Any) -> None:
    def f(v: Any) -> Any:
        a, b = v
        return {"sum": a + b, "product": a * b, "quotient": a / b, "root": sg.sqrt(abs(a)),
                "logistic": 1.0 / (1.0 + np.exp(a)) + b}  # fmt: skip

    values = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**100, -(2.0**127), 200.0, 1e39, 0.25]
    a, b = (n.ravel() for n in np.meshgrid(values, values))
    found = sg.fused_forward(2, f, device=device, dtype="float32x2").run(np.stack([a, b], 1))
    with np.errstate(all="ignore"):
        x, y = (n.astype(np.float32).astype(float) for n in (a, b))
        want = {"sum": x + y, "product": x * y, "quotient": x / y, "root": np.sqrt(abs(x)),
                "logistic": 1 / (1 + np.exp(x)) + y}  # fmt: skip
        for name, exact in want.items():
            ends = np.where(abs(exact) < 2.0**128, exact, np.sign(exact) * np.inf)
            ends = np.where(np.isnan(exact), np.nan, ends)
            np.testing.assert_allclose(found[name], ends, rtol=1e-12, atol=1e-30, err_msg=name)
            zeros = (exact == 0) & (name != "logistic")
            assert (np.signbit(found[name]) == np.signbit(exact))[zeros].all(), name


def test_numbers_are_split_without_a_rest() -> None:
    for value in (np.pi, -0.1, 3.0, 0.0, 1e-30):
        found = split(value, (16, 16))
        assert sum(map(float, found)) == pytest.approx(value, rel=1e-15, abs=0.0)
        assert all(float(np.float32(part)) == part for part in found)
