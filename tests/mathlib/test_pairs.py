"""Pairs of float32 have the digits of float64, nearly, on every device."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.mathlib.pairs import in_pairs, parts

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
    "tanh": (lambda a, b: np.tanh(a) + 3.0, 3e-7),  # float32's own
}


def paired(f: Callable[..., Any], device: Any) -> sg.Kernel:
    """The kernel of two variables in pairs: their high parts and low parts to those of f."""

    def both(v: Any) -> list[Any]:
        given = {v[k].id: (v[k], v[2 + k]) for k in (0, 1)}
        return list(in_pairs([f(v[0], v[1])], given)[0])

    return sg.fused_forward(4, both, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_digits(name: str, device: Any) -> None:
    f, most = FUNCTIONS[name]
    x = 4 * np.random.default_rng(0).normal(size=(3000, 2))
    high = x.astype(np.float32)
    low = (x - high).astype(np.float32)
    found = np.asarray(paired(f, device).run(np.concatenate([high, low], axis=1)), float)
    want = f(*(high + low.astype(float)).T)
    assert np.abs(found.sum(axis=0) / want - 1).max() < most
    assert (np.abs(found[1]) <= np.spacing(np.abs(found[0]).astype(np.float32))).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_is_opaque_twice(name: str) -> None:
    """Sums with constants are where they are rounded, and where they meet with other constants."""
    body = paired(FUNCTIONS[name][0], "cpu").wgsl.split("fn main")[1]
    opaque = re.findall(r"let (\w+) = bitcast<f32>\(bitcast<u32>\(.*\) \+ params.zero\);", body)
    again = re.findall(r"bitcast<u32>\((\w+)\) \+ params.zero", body)
    assert opaque and not set(opaque) & set(again)


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_that_differ_in_their_low_parts_are_told_apart(device: Any) -> None:
    def compared(a: Any, b: Any) -> Any:
        bits = [a < b, a <= b, a == b, a != b, a > b, a >= b]
        return sum(2.0**k * sg.where(bit, 1.0, 0.0) for k, bit in enumerate(bits))

    less, equal, more = 0b001011, 0b100110, 0b111000
    points = np.array([[2400000, 2400000, 0.1, 0.125], [1, 1, 0, 0], [7, 7, 0, -1e-7],
                       [np.nan, 1, 0, 0], [np.inf, np.inf, 0, 0]])  # fmt: skip
    found = np.asarray(paired(compared, device).run(points), float)[0]
    assert found.tolist() == [less, equal, more, 0b001000, equal]


@pytest.mark.parametrize("device", DEVICES)
def test_a_whole_number_is_not_rounded_up_from_below_it(device: Any) -> None:
    kernel = paired(lambda a, b: np.floor(a) + 1000.0 * np.ceil(b), device)
    points = np.array([[9, 9, -1e-8, -1e-8], [9, 9, 1e-8, 1e-8], [-2.5, -2.5, 1e-8, 0],
                       [2.0**24, 0, -0.5, 0], [-7, -7, 0, 0]])  # fmt: skip
    found = np.asarray(kernel.run(points), float).sum(axis=0)
    assert found.tolist() == [9008, 10009, -2003, 2**24 - 1, -7007]


@pytest.mark.parametrize("device", DEVICES)
def test_beyond_its_range_a_pair_is_float32s(device: Any) -> None:
    kernel = paired(lambda a, b: 1.0 / (1.0 + np.exp(a)) + b, device)
    points = np.array([[200.0, 1.0, 0, 0], [-200.0, 0.0, 0, 0], [95.0, 2.0, 0, 0]])
    found = np.asarray(kernel.run(points), float)
    np.testing.assert_allclose(found.sum(axis=0), [1.0, 1.0, 2.0], rtol=1e-12)


def test_parts_add_up_to_the_number() -> None:
    for value in (np.pi, -0.1, 3.0, 0.0, 1e-30):
        found = parts(value, (16, 16))
        assert sum(map(float, found)) == pytest.approx(value, rel=1e-15, abs=0.0)
        assert all(float(np.float32(part)) == part for part in found)
