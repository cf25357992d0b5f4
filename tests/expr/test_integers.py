"""Integers of 32 bits: NumPy's arithmetic, the same bits on every device, and no derivatives."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg

DRAW = np.random.default_rng(7)
COUNT = 96

WHERE: list[tuple[Any, Any]] = [("cpu", "float64"), ("cpu", "float32"), ("gpu", "float32")]

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "difference": lambda a, b: a - b,
    "product": lambda a, b: a * b,
    "quotient": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "real quotient": lambda a, b: a / b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "less": lambda a, b: a < b,
    "at most": lambda a, b: a <= b,
    "more": lambda a, b: a > b,
    "at least": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
    "unequal": lambda a, b: a != b,
    "smaller": np.minimum,
    "larger": np.maximum,
    "chosen": lambda a, b: np.where(a < b, a, b),
    "complement": lambda a, b: ~a,
    "negative": lambda a, b: -a,
    "magnitude": lambda a, b: abs(a),
    "cube": lambda a, b: a**3,
    "by a constant": lambda a, b: a // 7 + a % 7,
    "of a constant": lambda a, b: 1000 // b + (5 - a),
    "shifts by constants": lambda a, b: (a << 3) ^ (a >> 5),
    "NumPy's shifts": lambda a, b: np.left_shift(a, 31) | np.right_shift(b, 1),
}
SHIFTS: dict[str, Callable[[Any, Any], Any]] = {
    "shifted up": lambda a, s: a << s,
    "shifted down": lambda a, s: a >> s,
}


def points(kind: str) -> np.ndarray:
    """Two integers each, large and small, of either sign, zeros and the extremes among them."""
    info = np.iinfo(kind)
    edges = np.array([info.min, info.max, 0, 1, 2, 7, info.max // 2])
    wide = DRAW.integers(info.min, info.max, COUNT)
    small = DRAW.integers(-9 if info.min else 0, 9, COUNT)
    first = np.concatenate([np.repeat(edges, len(edges)), wide, small])
    return np.stack([first, np.concatenate([np.tile(edges, len(edges)), small, wide])], 1)


def halves(values: np.ndarray) -> np.ndarray:
    """Integers as two numbers each that float32 holds."""
    bits = values.astype(np.int64) % 2**32
    return np.concatenate([bits >> 16, bits & 0xFFFF], axis=1).astype(np.float64)


def parts(made: Any) -> list[Any]:
    """A result as numbers that float32 holds: an integer by its halves."""
    if isinstance(made, sg.Expr):
        return [made]
    bits = sg.uint32(made)
    return [bits >> 16, bits & 0xFFFF]


def expected(made: np.ndarray) -> list[np.ndarray]:
    if made.dtype.kind in "fb":
        return [made.astype(float)]
    return list(halves(made[:, None]).T)


def found(
    f: Callable[..., Any], at: np.ndarray, kind: str, device: Any, dtype: Any
) -> list[np.ndarray]:
    cast = getattr(sg, kind)

    def traced(v: Any) -> list[Any]:
        joined = [sg.uint32(v[k]) << 16 | sg.uint32(v[k + 2]) for k in range(2)]
        return parts(f(*[cast(j) for j in joined]))

    kernel = sg.fused_forward(4, traced, device=device, dtype=dtype)
    return [np.asarray(part, float) for part in kernel.run(halves(at))]


@pytest.mark.parametrize("kind", ["int32", "uint32"])
@pytest.mark.parametrize("name", BINARY)
def test_operators_are_numpys(name: str, kind: str) -> None:
    at = points(kind)
    a, b = at.T.astype(kind)
    with np.errstate(all="ignore"):
        wanted = np.asarray(BINARY[name](a, b))
    if name == "real quotient":
        at, wanted = at[b != 0], wanted[b != 0]
    for part, want in zip(
        found(BINARY[name], at, kind, "cpu", "float64"), expected(wanted), strict=True
    ):
        np.testing.assert_array_equal(part, want)


@pytest.mark.parametrize("kind", ["int32", "uint32"])
@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_by_any_number_of_bits_are_numpys(name: str, kind: str) -> None:
    first = np.repeat(points(kind)[:20, 0], 41)
    at = np.stack([first, np.tile(np.arange(41), 20)], axis=1)
    a, s = at.T.astype(kind)
    for part, want in zip(
        found(SHIFTS[name], at, kind, "cpu", "float32"), expected(SHIFTS[name](a, s)), strict=True
    ):
        np.testing.assert_array_equal(part, want)


def everything(kind: str) -> Callable[..., Any]:
    cast = getattr(sg, kind)

    def mixed(a: Any, b: Any) -> Any:
        total = cast(17)
        for name, f in (BINARY | SHIFTS).items():
            if name == "real quotient":
                continue  # which devices round in ways of their own
            made = f(a, b)
            total = total * 31 + (made if not isinstance(made, sg.Expr) else cast(made))
        return total

    return mixed


@pytest.mark.parametrize("kind", ["int32", "uint32"])
def test_all_devices_and_types_give_the_same_bits(kind: str) -> None:
    at = points(kind)
    at = at[at[:, 1] != 0]  # of a / 0 infinities, or NaN, would be cast
    f = everything(kind)
    runs = [found(f, at, kind, *where) for where in (("cpu", "float32"), ("gpu", "float32"))]
    for part, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(part, other)


VALUES = np.array([0.0, 0.99, -0.99, 5.5, -5.5, 2.0**31, 2.0**31 - 1, -(2.0**31), 3e9, 2.0**32,
                   4294967295.0, 1e20, -1e20, np.inf, -np.inf, np.nan])  # fmt: skip


def saturated(kind: str, dtype: str) -> np.ndarray:
    info = np.iinfo(kind)
    numbers = [float(v) for v in VALUES.astype(dtype)]
    return np.array([0 if v != v else int(min(max(v, info.min), info.max)) for v in numbers])


@pytest.mark.parametrize("kind", ["int32", "uint32"])
def test_casts_round_towards_zero_and_saturate(kind: str) -> None:
    cast = getattr(sg, kind)
    for device, dtype in WHERE:
        kernel = sg.fused_forward(1, lambda v: parts(cast(v[0])), device=device, dtype=dtype)
        got = [np.asarray(p, float) for p in kernel.run(VALUES[:, None])]
        for part, want in zip(got, halves(saturated(kind, dtype)[:, None]).T, strict=True):
            np.testing.assert_array_equal(part, want)
    np.testing.assert_array_equal(cast(VALUES), saturated(kind, "float64").astype(kind))


@pytest.mark.parametrize("kind", ["int32", "uint32"])
def test_integers_become_the_nearest_real_numbers(kind: str) -> None:
    at = points(kind)
    for device, dtype in WHERE:
        (got,) = found(lambda a, b: 1.0 * a, at, kind, device, dtype)
        np.testing.assert_array_equal(got, at[:, 0].astype(dtype).astype(float))


def test_loops_carry_integers_and_count_by_them() -> None:
    def collatz(v: Any) -> Any:
        def step(k: Any, carry: Any) -> Any:
            n, steps = carry
            even = n % 2 == 0
            after = np.where(even, n // 2, 3 * n + 1)
            return np.where(n == 1, n, after), steps + (n != 1)

        return sg.fori_loop(0, 120, step, (sg.int32(v[0]), sg.uint32(0) + sg.uint32(v[1])))[1]

    kernel = sg.fused_forward(2, collatz, device="cpu")
    np.testing.assert_array_equal(kernel.run([[27, 0], [1, 0], [6, 2]]), [111, 0, 10])
    counted = sg.fused_forward(
        1, lambda v: sg.fori_loop(0, sg.uint32(v[0]), lambda k, s: s + (k & 1), v[0] * 0)
    )
    np.testing.assert_array_equal(counted.run([[7.0], [0.0], [20.0]]), [3, 0, 10])


def test_an_integer_carry_stays_one_of_its_type() -> None:
    with pytest.raises(sg.TraceError, match="is a uint32 where it has to be an int32"):
        sg.fused_forward(1, lambda v: sg.fori_loop(0, 9, lambda k, i: sg.uint32(i), sg.int32(v[0])))


def test_an_integer_is_a_constant_to_derivatives() -> None:
    kernel = sg.fused_hessian(1, lambda v: v[0] ** 2 * sg.int32(v[0]), device="cpu")
    value, gradient, hessian = kernel.run([3.5])
    assert (value, gradient[0], hessian[0, 0]) == (36.75, 21.0, 6.0)
    through = sg.fused_forward_backward(
        1, lambda v: v[0] + sg.stop_gradient(sg.int32(v[0]) - v[0]), device="cpu"
    )
    assert through.run([3.5])[0] == 3.0
    assert through.run([3.5])[1][0] == 1.0


def test_derivatives_of_integers_and_by_them_are_refused() -> None:
    x = sg.var("x")
    i = sg.uint32(x) * 3
    here = r"test_integers.py:\d+: .*\* 3"
    for wrong in (
        lambda: sg.grad(i, x),
        lambda: sg.grad(x, i),
        lambda: sg.hessian(i, [x]),
        lambda: sg.jvp(i, x, 1.0),
        lambda: sg.fused_forward_backward(1, lambda v: sg.int32(v[0]) * 3),
    ):
        with pytest.raises(sg.DifferentiationError, match=r"int32\(x0?\) \* 3") as raised:
            wrong()
        assert "no derivative" in str(raised.value)
        raised.match(here)


def test_what_is_no_integer_is_refused() -> None:
    x = sg.var("x")
    i, j = sg.uint32(x), sg.int32(x)
    with pytest.raises(sg.TraceError, match="no common type"):
        _ = i + j
    with pytest.raises(sg.TraceError, match="& is for integers"):
        _ = i & 0.5
    with pytest.raises(sg.InputError, match="-1 is not uint32"):
        _ = i + -1
    with pytest.raises(sg.InputError, match="divided by 0"):
        _ = j // 0
    with pytest.raises(sg.TraceError, match="x has no bits"):
        _ = x << 2
    with pytest.raises(sg.InputError, match="negative power"):
        _ = j**-1


def test_integers_are_indices() -> None:
    kernel = sg.fused_forward(
        4, lambda v: [v[:3][sg.int32(v[3])], v[:3][sg.uint32(v[3])]], device="cpu"
    )
    at = [[1.0, 2.0, 3.0, k] for k in (0.0, 1.0, -1.0, 7.0)]
    np.testing.assert_array_equal(kernel.run(at), [[1, 2, 3, 3], [1, 2, 1, 3]])


def test_integers_and_eigenpairs_pickle() -> None:
    x, y = sg.symbols("x y")
    whole = pickle.loads(pickle.dumps(sg.int32(x) * 3))
    assert sg.evaluate(whole, {"x": -2.0}) == -6.0
    value = pickle.loads(pickle.dumps(sg.linalg.eigvalsh(sg.array([[x, y], [y, x]]))[1]))
    assert sg.evaluate(value, {"x": 2.0, "y": 0.5}) == pytest.approx(2.5)


TYPES: list[Any] = [int, np.int32, np.uint32, bool, float, np.float32]
REALS = np.array([-2.75, -0.5, 0.0, 0.5, 3.625])


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("size", [5, 500], ids=["elements", "whole"])
def test_astype_is_numpys(dtype: Any, size: int) -> None:
    x = np.abs(np.resize(REALS, size)) if dtype is np.uint32 else np.resize(REALS, size)
    each: list[Callable[[Any], Any]] = [
        lambda v: v.astype(dtype) * 2.0,
        lambda v: (v > 0.1).astype(dtype) * 2.0,
        lambda v: np.trunc(v).astype(int).astype(dtype) * 2.0,
        lambda v: v[4].astype(dtype) * 2.0,
        lambda v: np.sum(v, axis=0).astype(dtype) * 2.0,
    ]
    for f in each:
        got = sg.jit(f, device="cpu", dtype="float64")(x)
        np.testing.assert_allclose(got, f(x), rtol=1e-12)


def test_no_expression_is_complex() -> None:
    with pytest.raises(sg.TraceError, match="not complex128"):
        sg.fused_forward(1, lambda v: v.astype(complex)[0], device="cpu")


@pytest.mark.parametrize("size", [3, 30, 300])
def test_casts_look_up_elements(size: int) -> None:
    """Bilinear interpolation, as image registration has it: cells have no derivative."""
    table = DRAW.normal(size=(6, 5))

    def interpolated(table: Any, x: Any) -> Any:
        i, j = x[:, 0].astype(int), np.floor(x[:, 1]).astype(int)
        u, v = x[:, 0] - i, x[:, 1] - j
        low = (1.0 - v) * table[i, j] + v * table[i, j + 1]
        high = (1.0 - v) * table[i + 1, j] + v * table[i + 1, j + 1]
        return np.sum((1.0 - u) * low + u * high)

    x = DRAW.uniform([0.0, 0.0], [4.9, 3.9], (size, 2))
    loss = sg.value_and_grad(
        lambda x: interpolated(sg.array(table), x), device="cpu", dtype="float64"
    )
    value, gradient = loss(x)
    assert value == pytest.approx(interpolated(table, x), rel=1e-12)
    for place in np.ndindex(2, 2):
        step = np.zeros_like(x)
        step[place] = 1e-6
        slope = (interpolated(table, x + step) - interpolated(table, x - step)) / 2e-6
        assert gradient[place] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("size", [3, 300])
def test_arrays_of_numpys_say_how_they_are_looked_up(size: int) -> None:
    table = np.arange(4.0)
    for f in (
        lambda x: np.sum(table[x.astype(int)]),
        lambda x: np.sum(np.take(table, x.astype(int))),
    ):
        with pytest.raises(sg.TraceError, match=r"use sg.array\(a\)\[k\]|index the argument"):
            sg.value_and_grad(f, device="cpu")(np.linspace(0.1, 3.1, size))
