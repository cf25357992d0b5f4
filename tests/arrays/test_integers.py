"""Integers that are computed: their operations beside NumPy's, on all devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import TraceError, UnsupportedError
from symgrad.targets import DeviceChoice

DEVICES = ["cpu", *(d.index for d in sg.devices() if d.is_gpu)]
A = np.array([7, -9, 12, 0, 5, -6, 2**31 - 1])
B = np.array([2, 4, -8, 6, -3, 3, -2])
C = np.array([1, 2, 3, 1, 0, 2, 0])

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "divided": lambda a, b, c: a // b,
    "remainder": lambda a, b, c: a % b,
    "both": lambda a, b, c: sum(np.divmod(a, b)),
    "by zero": lambda a, b, c: (a // c) * 10 + a % c,
    "by negative numbers": lambda a, b, c: (a // -4) + 100 * (a % -4),
    "of numbers": lambda a, b, c: 17 // b + 100 * (17 % b),
    "truncated": lambda a, b, c: np.fmod(a, b),
    "gcd": lambda a, b, c: np.gcd(a, b),
    "gcd of a number": lambda a, b, c: np.gcd(a[:, None], np.array([6, 4])),
    "lcm": lambda a, b, c: np.lcm(a[:-1], b[:-1]),
    "powers": lambda a, b, c: b**c + np.power(a[:-1, None], c).sum(),
    "powers of two": lambda a, b, c: 2 ** (c + 20) + b**3,
    "signs": lambda a, b, c: np.sign(a),
    "rounded": lambda a, b, c: np.floor(a) + np.trunc(b) + np.ceil(c) + np.round(a),
    "chosen": lambda a, b, c: np.choose(c, [a, b, a - b, a & b]),
    "digits": lambda a, b, c: np.digitize(a, [-5, 0, 7]) + np.digitize(a, [7, 0, -5], right=True),
    "members": lambda a, b, c: np.isin(a, [7, 12]) | np.isin(c, [2], invert=True),
    "truths among integers": lambda a, b, c: (a < b) * 1 + (a < b) * b - (1 - (b > 0)) + (c > b),
    "chosen numbers": lambda a, b, c: np.where(a > b, 1, 0) + np.where(a > b, c, a < 0),
    "chosen truths": lambda a, b, c: np.where(a > b, c > 0, a < 0),
    "extremes of truths": lambda a, b, c: np.max(np.stack([a > b, c > 0]), axis=0),
    "extremes of some": lambda a, b, c: np.min(b, where=c > 0, initial=3),
    "sizes": lambda a, b, c: np.floor(10 * np.linalg.norm(b) + np.mean(a[:6] > 0)),
    "rounded to tens": lambda a, b, c: np.round(b * 7, -1) + np.nan_to_num(c),
    "rolled": lambda a, b, c: np.roll(b, c[1]) + np.roll(c, b[3]) + np.roll(b[None], b[1], axis=1),
    "keys": lambda a, b, c: np.lexsort((a, c)) * 10 + np.lexsort((c[::-1], b, c)),
    "bits": lambda a, b, c: ((a & 255) << 3) ^ (b >> 1) | ~c,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("device", DEVICES)
def test_operations_are_numpys(name: str, device: DeviceChoice) -> None:
    f = FUNCTIONS[name]
    small = A if name != "rounded" else A // 4
    x, y, z = (v.astype(float) for v in (small, B, C))
    run = sg.jit(
        lambda x, y, z: f(*(v.astype(int) for v in (x, y, z))), device=device, dtype="float32x2"
    )
    with np.errstate(all="ignore"):
        wanted = np.asarray(f(small, B, C))
    computed = run(x, y, z)
    assert computed.dtype.kind == wanted.dtype.kind
    assert computed.tolist() == wanted.tolist()


def test_powers_wrap_around_and_negative_ones_are_rounded_to_zero() -> None:
    def f(x: Any) -> Any:
        k = x.astype(int)
        return k**40, k ** (k * 0 - 3)

    high, low = sg.jit(f, device="cpu")(np.array([3.0, -1.0, 1.0]))
    assert high.tolist() == [(3**40 + 2**31) % 2**32 - 2**31, 1, 1]
    assert low.tolist() == [0, -1, 1]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16])
def test_integers_of_other_widths_are_refused(dtype: Any) -> None:
    with pytest.raises(sg.TraceError, match=r"32 bits.*x\.astype\(int\), and & 255"):
        sg.jit(lambda x: x.astype(dtype), device="cpu")(A.astype(float))


@pytest.mark.parametrize("many", [1, 100])
def test_unsigned_integers_have_no_sign(many: int) -> None:
    """Whole arrays have none of them: they once were signed, so that shifts were wrong."""
    x = np.array([7.0, 3e9, 2.0**31, 2.0**32 - 1] * many)
    run = sg.jit(
        lambda x: (x.astype(np.uint32) >> 3, x.astype(np.uint32) > 5), device="cpu", dtype="float64"
    )
    shifted, above = run(x)
    assert np.array_equal(shifted, x.astype(np.uint32) >> 3)
    assert np.all(above)


def test_the_least_integer_is_divided() -> None:
    values = np.array([-(2**31), -(2**31) + 1, 2**31 - 1, 7, -7], np.int32)
    by = np.array([-31, -2, -3, 2, 1], np.int32)
    for n in (*by.tolist(), by):
        run = sg.jit(
            lambda x, n=n: (x.astype(int) // n, x.astype(int) % n), device="cpu", dtype="float64"
        )
        down, rest = run(values.astype(float))
        np.testing.assert_array_equal(
            down, values // np.int32(n) if np.ndim(n) == 0 else values // n
        )
        np.testing.assert_array_equal(rest, values % np.int32(n) if np.ndim(n) == 0 else values % n)


FAR: dict[str, Any] = {
    "<": lambda x, y: x < y, "<=": lambda x, y: x <= y, ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y, "maximum": np.maximum, "minimum": np.minimum,
    "clip": lambda x, y: np.clip(x, -(10**9), 10**9),
}  # fmt: skip


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize("device", ["cpu", *["gpu"] * any(d.is_gpu for d in sg.devices())])
def test_integers_that_are_far_apart_compare(name: str, device: Any) -> None:
    each = np.array([-(2.0**31), -2e9, -5.0, -1.0, 0.0, 5.0, 1.5e9, 2.0**31 - 128])
    x, y = (a.ravel() for a in np.meshgrid(each, each))
    got = sg.jit(lambda x, y: FAR[name](x.astype(int), y.astype(int)), device=device)(x, y)
    np.testing.assert_array_equal(got, FAR[name](x.astype(np.int64), y.astype(np.int64)))


@pytest.mark.parametrize("name", ["<", ">=", "maximum", "//", "%", "=="])
def test_integers_beyond_32_bits_are_refused_where_they_matter(name: str) -> None:
    more: dict[str, Any] = {
        **FAR, "//": lambda x, y: x // y, "%": lambda x, y: x % y, "==": lambda x, y: x == y,
    }  # fmt: skip
    with pytest.raises(sg.InputError, match=r"4294967296 is not int32.*: cast the other") as caught:
        sg.jit(lambda x: more[name](x.astype(int), 2**32), device="cpu")(A.astype(float))
    assert "x.astype(float)" in str(caught.value.__cause__)
    wrapped = sg.jit(lambda x: x.astype(int) * (2**32 + 3), device="cpu")(np.array([2.0, -5.0]))
    assert wrapped.tolist() == [6, -15]


def test_truth_values_by_elements_are_such() -> None:
    x = np.linspace(0.0, 80.0, 320).reshape(20, 16)
    run: Any = sg.jit(
        lambda x: (x * 5e7).astype(np.uint32) > np.uint32(2**30), device="cpu", dtype="float64"
    )
    result = run(x)
    assert result.dtype == bool
    np.testing.assert_array_equal(result, (x * 5e7).astype(np.uint32) > 2**30)


def test_places_may_be_unsigned() -> None:
    x = np.random.default_rng(1).normal(size=(40, 40))
    value, _ = sg.value_and_grad(
        lambda x: np.sum(x[np.argsort(x[:, 0]).astype(np.uint32)][:3]),
        device="cpu",
        dtype="float64",
    )(x)
    assert value == pytest.approx(np.sum(x[np.argsort(x[:, 0])][:3]), rel=1e-13)


@pytest.mark.parametrize("dtype", [int, bool])
def test_means_of_other_types_are_refused(dtype: Any) -> None:
    with pytest.raises((UnsupportedError, TraceError), match="dtype"):
        sg.jit(lambda x: np.mean(x, axis=1, dtype=dtype), device="cpu")(np.ones((20, 16)))


def test_results_without_elements_are_numbers() -> None:
    def f(x: Any) -> Any:
        return np.cumsum(x[:0]), np.array([*x])

    empty, all_of = sg.jit(f, device="cpu", dtype="float64")(np.ones(3))
    assert (empty.dtype, empty.shape, all_of.dtype) == (np.float64, (0,), np.float64)
