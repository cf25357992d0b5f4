"""Random numbers of keys are JAX's, the same on every device, and constants to derivatives."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import InputError, InputTypeError
from symgrad.expr import ops

JAX = json.loads((Path(__file__).parent / "jax_random.json").read_text())
WHERE: list[tuple[Any, Any]] = [("cpu", "float64"), ("cpu", "float32"), ("gpu", "float32")]

KNOWN = (
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
)
"""Known answers of Random123 for threefry2x32 with 20 rounds: key, counter, result."""


@pytest.mark.parametrize(("key", "block", "result"), KNOWN)
def test_threefry_gives_the_known_answers(
    key: tuple[int, int], block: tuple[int, int], result: tuple[int, int]
) -> None:
    found = [op(*key, *block) for op in (ops.threefry_first, ops.threefry_second)]
    assert found == list(result)


def words(keys: Any) -> list[int]:
    """The integers in a key, or in nested tuples of keys."""
    if isinstance(keys, sg.random.Key):
        return [int(keys.first), int(keys.second)]
    return [w for k in keys for w in words(k)]


@pytest.mark.parametrize("case", JAX["cases"], ids=lambda c: str(c["seed"]))
def test_keys_and_bits_are_jaxs(case: dict[str, Any]) -> None:
    random = sg.random
    key = random.key(case["seed"])
    assert words(key) == case["key"]
    assert words(random.split(key)) == case["split"]
    assert words(random.split(key, 3)) == case["split_3"]
    assert words(random.split(key, (2, 2))) == case["split_2_2"]
    assert words(random.fold_in(key, 7)) == case["fold_in_7"]
    assert words(random.fold_in(key, 2**32 - 5)) == case["fold_in_big"]
    assert [int(random.bits(key))] == case["bits"]
    assert random.bits(key, (2, 3)).ravel().tolist() == case["bits_2_3"]


@pytest.mark.parametrize("case", JAX["cases"], ids=lambda c: str(c["seed"]))
def test_numbers_are_jaxs(case: dict[str, Any]) -> None:
    key = sg.random.key(case["seed"])
    assert sg.random.uniform(key, 4).tolist() == case["uniform_4"]
    limited = sg.random.uniform(key, (4,), minval=-1.0, maxval=3.0)
    np.testing.assert_allclose(limited, case["uniform_minus_1_3"], rtol=2e-7)
    np.testing.assert_allclose(sg.random.normal(key, 6), case["normal_6"], rtol=3e-6)


def halves(word: Any) -> list[Any]:
    return [word >> 16, word & 0xFFFF]


@pytest.mark.parametrize(("device", "dtype"), WHERE)
def test_kernels_draw_the_same_bits(device: Any, dtype: Any) -> None:
    """Of keys that differ from point to point, as what is computed outside of kernels."""

    def draw(v: Any) -> list[Any]:
        key = sg.random.fold_in(sg.random.key(v[0]), sg.uint32(v[1]) << 8)
        first, second = sg.random.split(key)
        return [*halves(sg.random.bits(first)), sg.random.uniform(second)]

    seeds = [0.0, 1.0, 77.0, 2.0**24 - 1, 12345.0]
    folded = [3.0, 0.0, 2.0**23, 1.0, 2.0**24 - 1]
    made = sg.fused_forward(2, draw, device=device, dtype=dtype).run(np.transpose([seeds, folded]))
    for n, (seed, data) in enumerate(zip(seeds, folded, strict=True)):
        key = sg.random.fold_in(sg.random.key(int(seed)), int(data) * 2**8 % 2**32)
        first, second = sg.random.split(key)
        wanted = int(sg.random.bits(first))
        assert [part[n] for part in made] == [*halves(wanted), sg.random.uniform(second)]


def many(v: Any) -> Any:
    """A function of a thousand random numbers."""
    key = sg.random.key(v[0] if isinstance(v[0], sg.Expr) else int(v[0]))
    z = sg.random.normal(key, (20, 50))
    u = sg.random.uniform(sg.random.fold_in(key, 3), (1000,), minval=v[1], maxval=3.0)
    return np.sum(z * v[1]) + np.mean(u * u) + z[3, 7] * v[1]


POINTS_OF_MANY: Final = np.array([[3.0, 0.5], [2.0**24, 1.5]])


@cache
def values_and_slopes_of_many() -> tuple[np.ndarray, np.ndarray]:
    """What it is of numbers, drawn one by one, and how steep."""
    step = np.array([0.0, 1e-6])
    above, at, below = (np.array([many(x + k * step) for x in POINTS_OF_MANY]) for k in (1, 0, -1))
    return at, (above - below) / 2e-6


@pytest.mark.parametrize(("device", "dtype"), WHERE)
def test_many_numbers_are_drawn_by_a_loop(device: Any, dtype: Any) -> None:
    kernel = sg.fused_forward_backward(2, many, device=device, dtype=dtype)
    values, gradients = kernel.run(POINTS_OF_MANY)
    tolerance = 1e-10 if dtype == "float64" else 1e-5
    true_values, true_slopes = values_and_slopes_of_many()
    np.testing.assert_allclose(values, true_values, rtol=tolerance)
    np.testing.assert_allclose(gradients[:, 1], true_slopes, rtol=max(tolerance, 1e-7))
    assert len(kernel.wgsl.splitlines()) < 500


def test_points_in_a_batch_draw_what_they_draw_alone() -> None:
    kernel = sg.fused_forward(1, lambda v: sg.random.normal(sg.random.key(v[0]), 3), device="cpu")
    together = kernel.run(np.arange(40.0)[:, None])
    np.testing.assert_array_equal(together, [kernel.run([float(k)]) for k in range(40)])


def test_loops_carry_keys() -> None:
    def walk(v: Any) -> Any:
        def step(k: Any, carry: Any) -> Any:
            key, x = carry
            key, use = sg.random.split(key)
            return key, x + v[0] * sg.random.normal(use)

        return sg.fori_loop(0, 20, step, (sg.random.key(5), v[1]))[1]

    key, total = sg.random.key(5), 0.0
    for _ in range(20):
        key, use = sg.random.split(key)
        total += sg.random.normal(use)
    kernel = sg.fused_forward_backward(2, walk, device="cpu", dtype="float64")
    value, gradient = kernel.run([0.5, 3.0])
    assert value == pytest.approx(3.0 + 0.5 * total, rel=1e-12)
    np.testing.assert_allclose(gradient, [total, 1.0], rtol=1e-12)


def test_gradients_flow_through_mean_and_spread_only() -> None:
    """The slope of the mean of (mean + spread z)**2, to which a key's seed adds nothing."""

    def f(v: Any) -> Any:
        mean, spread, seed = v
        z = sg.random.normal(sg.random.key(seed))
        return (mean + spread * z) ** 2

    kernel = sg.fused_forward_backward(3, f, device="cpu", dtype="float64")
    z = sg.random.normal(sg.random.key(9))
    _, gradient = kernel.run([1.5, 0.25, 9.0])
    slope = 2 * (1.5 + 0.25 * z)
    np.testing.assert_allclose(gradient, [slope, slope * z, 0.0], rtol=1e-12)


@pytest.mark.parametrize(("device", "dtype"), WHERE)
def test_moments_are_those_of_the_distributions(device: Any, dtype: Any) -> None:
    def draw(v: Any) -> list[Any]:
        first, second = sg.random.split(sg.random.key(v[0]))
        return [sg.random.normal(first), sg.random.uniform(second, minval=2.0, maxval=4.0)]

    n = 40_000
    made = sg.fused_forward(1, draw, device=device, dtype=dtype).run(np.arange(float(n))[:, None])
    z, u = (np.asarray(m, np.float64) for m in made)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(z**power) - moment) < 4 * np.sqrt(variance / n)
    assert abs(np.mean(u) - 3.0) < 4 * np.sqrt(1 / 3 / n)
    assert u.min() >= 2.0
    assert u.max() < 4.0
    assert abs(np.mean(z * u)) < 4 * np.sqrt(28 / 3 / n)


def test_bounds_of_uniform_numbers_are_differentiated() -> None:
    kernel = sg.fused_forward_backward(
        2, lambda v: sg.random.uniform(sg.random.key(3), minval=v[0], maxval=v[1]), device="cpu"
    )
    share = sg.random.uniform(sg.random.key(3))
    np.testing.assert_allclose(kernel.run([1.0, 5.0])[1], [1 - share, share], rtol=1e-6)


def test_what_is_no_seed_and_no_key_is_refused() -> None:
    with pytest.raises(InputTypeError, match="a seed is a whole number, not"):
        sg.random.key(1.5)
    with pytest.raises(InputError, match=r"2\*\*64"):
        sg.random.key(2**64)
    with pytest.raises(InputTypeError, match="42 is not a key"):
        sg.random.normal(42)  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="whole numbers, one at a time"):
        sg.random.fold_in(sg.random.key(0), 0.5)
    with pytest.raises(InputError, match="known while tracing"):
        sg.random.normal(sg.random.key(0), (2.5,))  # type: ignore[arg-type]
