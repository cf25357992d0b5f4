"""What passes over NaN is NumPy's of numbers, and NaN does not leak into gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from expr.test_array import agree

import symgrad as sg

HOLES = np.array([0.5, np.nan, -0.625, 2.25, np.nan, -1.125, np.nan, np.nan, 3.0])
M: Callable[[Any], Any] = lambda v: v.reshape(3, 3)  # noqa: E731

CASES: dict[str, Callable[[Any], Any]] = {
    "nansum": np.nansum,
    "nansum along an axis": lambda v: np.nansum(M(v), axis=1, keepdims=True),
    "nansum of NaN alone": lambda v: np.nansum(v[6:8]),
    "nansum from": lambda v: np.nansum(v, initial=2.0),
    "nansum with numbers": lambda v: np.nansum(np.stack([v[0], np.nan, 1.0])),
    "nanprod": lambda v: np.nanprod(M(v), axis=0),
    "nanmean": lambda v: np.nanmean(M(v), axis=0),
    "nanmean of NaN alone": lambda v: np.nanmean(v[6:8]),
    "nanvar": lambda v: np.nanvar(M(v), axis=0, ddof=1),
    "nanvar of all": lambda v: np.nanvar(v, keepdims=True),
    "nanstd": lambda v: np.nanstd(M(v), axis=1),
    "nanmax": lambda v: np.nanmax(M(v), axis=0),
    "nanmax of NaN alone": lambda v: np.nanmax(v[6:8]),
    "nanmax from": lambda v: np.nanmax(v, initial=7.0),
    "nanmin": lambda v: np.nanmin(M(v), axis=1),
    "isposinf": lambda v: np.isposinf(v / [0, 1, 0, 1, 0, 1, 1, 1, 0]),
    "isneginf": lambda v: np.isneginf(v / [0, 1, 0, 1, 0, 1, 1, 1, 0]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_passes_over_nan(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        agree(CASES[name], HOLES, rtol=1e-14)


def test_integers_stay_integers() -> None:
    x = sg.var("x")
    i = sg.array([sg.uint32(x), sg.uint32(x) * 2])
    for f in (np.nansum, np.nanprod, np.nanmax, np.nanmin):
        assert f(i).is_integer
    assert sg.evaluate(np.nansum(i) % 65536, {x: 2**25 + 1}) == 3
    assert sg.evaluate(np.nanmean(i), {x: 3e9}) == (3e9 + 6e9 % 2**32) / 2


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda v: np.nansum(np.sqrt(v)),
    "mean": lambda v: np.nanmean(np.sqrt(v)),
    "variance": lambda v: np.nanvar(np.sqrt(v)),
    "deviation": lambda v: np.nanstd(np.sqrt(v), ddof=1),
    "largest": lambda v: np.nanmax(np.sqrt(v)),
    "smallest": lambda v: np.nanmin(np.log(v)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_gradients_are_those_of_the_other_elements(name: str, device: Any) -> None:
    f, at = REDUCTIONS[name], np.array([4.0, -1.0, 9.0, 2.0, -3.0])
    there = at > 0
    value, slopes = sg.fused_forward_backward(5, f, device=device).run(at)
    of_others = sg.fused_forward_backward(3, f, device="cpu", dtype="float64").run(at[there])
    assert value == pytest.approx(of_others[0], rel=1e-6)
    np.testing.assert_allclose(slopes[there], of_others[1], rtol=2e-6, atol=1e-7)
    assert np.all(slopes[~there] == 0.0)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_divisors_and_bits_of_integers_in_kernels(device: Any) -> None:
    rng = np.random.default_rng(2)
    pairs = np.vstack([rng.integers(0, 2**24, (60, 2)), [[0, 0], [0, 5], [6, 0], [2**24, 2**23]]])

    def f(v: Any) -> Any:
        a, b = sg.uint32(v[0]), sg.int32(-v[1])
        return [np.gcd(a, sg.uint32(v[1])), np.lcm(b, 6) % 65536, np.bitwise_count(b)]

    found = sg.fused_forward(2, f, device=device).run(pairs.astype(float))
    a, b = pairs.T
    wanted = [np.gcd(a, b), np.lcm(b, 6) % 65536, np.bitwise_count(b)]
    np.testing.assert_array_equal(found, wanted)


def test_euclids_longest_way() -> None:
    a, b = sg.symbols("a b")
    divisor = np.gcd(sg.uint32(a), sg.uint32(b))
    for pair in ((2971215073.0, 1836311903.0), (1836311903.0, 2971215073.0)):
        assert sg.evaluate(divisor, dict(zip((a, b), pair, strict=True))) == 1
