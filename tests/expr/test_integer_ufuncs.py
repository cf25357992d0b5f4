"""Every ufunc of every type: integers of either type, truth values and real numbers, as NumPy."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import InputError, TraceError
from symgrad.expr import ops
from symgrad.expr.calls.numpy_calls import BITWISE, UFUNCS
from symgrad.expr.tracers.expression import Condition
from symgrad.expr.tracers.integers import AS_REAL, OF_INTEGERS, Word

LISTED = sorted({*UFUNCS, np.divmod, np.modf}, key=lambda u: u.__name__)

VALUES: dict[str, np.ndarray] = {
    "int32": np.array([-(2**31), -7, -1, 0, 1, 3, 2**24 + 1, 2**31 - 1], np.int32),
    "uint32": np.array([0, 1, 3, 2**24 + 1, 2**31, 2**32 - 1], np.uint32),
    "bool": np.array([False, True]),
    "float64": np.array([-2.5, -1.0, 0.5, 3.0, 2.0**24 + 1]),
}
CASTS: dict[str, Callable[[Any], Any]] = {
    "int32": sg.int32,
    "uint32": sg.uint32,
    "bool": lambda x: x > 0,
    "float64": lambda x: x,
}
CONSTANTS: tuple[Any, ...] = (3, 0.5)

INTEGERS = {"int32", "uint32"}
ROUNDED = {np.floor, np.ceil, np.trunc}
"""Of integers these are integers since NumPy 2.1."""

SHIFTS = {np.left_shift, np.right_shift}
OF_INTEGERS_ALONE = {np.gcd, np.lcm, np.bitwise_count}
"""What NumPy has of integers, and not of real numbers."""


def is_refused(ufunc: np.ufunc, kinds: tuple[str, ...]) -> bool:
    """Whether there is an error that says what to do instead."""
    if ufunc in OF_INTEGERS_ALONE:
        unlike = {*kinds} >= INTEGERS or ufunc.nin == 2 and {*kinds} == {"bool"}
        return "float64" in kinds or unlike
    if ufunc is np.ldexp and kinds[1] == "float64":
        return True
    if ufunc in BITWISE:
        shifted = {*kinds} == {"bool"} and ufunc in SHIFTS
        return "float64" in kinds or {*kinds} >= INTEGERS or shifted
    if {*kinds} >= INTEGERS:
        real = ("log", "arctan", "hypot", "copysign", "float_power", "ldexp")
        as_real = ufunc.__name__.startswith(real)
        return not as_real and ufunc not in (np.heaviside,)
    return ufunc is np.reciprocal and bool({*kinds} & INTEGERS)


def are_defined(ufunc: np.ufunc, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where NumPy says what it is of integers."""
    integers = a.dtype.kind in "iub" and b.dtype.kind in "iub"
    if ufunc in SHIFTS:
        return (b >= 0) & (b <= 40)
    return b >= 0 if ufunc is np.power and integers else np.full(a.shape, True)


def points(ufunc: np.ufunc, kinds: tuple[str, ...]) -> list[np.ndarray]:
    grid = np.meshgrid(*[VALUES[k] for k in kinds], indexing="ij")
    found = [g.ravel() for g in grid]
    kept = are_defined(ufunc, *found) if len(found) == 2 else np.full(found[0].shape, True)
    return [g[kept] for g in found]


def expected(ufunc: np.ufunc, given: list[Any]) -> tuple[np.ndarray, ...]:
    """NumPy's results, truth values in arithmetic as the numbers that symgrad counts them as."""
    if ufunc not in {*BITWISE, np.ldexp} and all(g.dtype.kind == "b" for g in given):
        given = [g.astype(float) for g in given]
    with np.errstate(all="ignore"):
        made = ufunc(*given)
    return made if isinstance(made, tuple) else (made,)


def of_type(made: Any, wanted: np.ndarray, ufunc: np.ufunc) -> bool:
    """Whether a result is of NumPy's type."""
    if isinstance(made, Word):
        return wanted.dtype.name == made.name or ufunc in ROUNDED | {np.bitwise_count}
    if isinstance(made, Condition):
        return wanted.dtype.kind == "b"
    return isinstance(made, sg.Expr) and wanted.dtype.kind == "f"


def same(made: Any, at: dict[str, Any], wanted: np.ndarray, ufunc: np.ufunc) -> None:
    assert of_type(made, wanted, ufunc), (made, wanted.dtype)
    got = sg.evaluate(made, at)
    exact = wanted.dtype.kind != "f"
    np.testing.assert_allclose(got, wanted.astype(float), rtol=0 if exact else 1e-13)


def compared(ufunc: np.ufunc, kinds: tuple[str, ...], operands: list[Any], given: list[Any],
             at: dict[str, Any]) -> None:  # fmt: skip
    """The ufunc of scalars, and of arrays of two, against NumPy's of the same type."""
    if is_refused(ufunc, kinds):
        for form in (operands, [sg.array([o, o]) for o in operands]):
            with pytest.raises((TraceError, InputError), match=r"cast|integers|has no bits|1 / x"):
                ufunc(*form)
        return
    wanted = expected(ufunc, given)
    scalar, several = ufunc(*operands), ufunc(*[sg.array([o, o]) for o in operands])
    scalars = scalar if isinstance(scalar, tuple) else (scalar,)
    arrays = several if isinstance(several, tuple) else (several,)
    for one, two, want in zip(scalars, arrays, wanted, strict=True):
        same(one, at, want, ufunc)
        assert two[0].id == two[1].id == one.id
        assert type(two[0]) is type(one)


@pytest.mark.parametrize("ufunc", LISTED, ids=lambda u: u.__name__)
def test_every_ufunc_of_every_type_is_numpys(ufunc: np.ufunc) -> None:
    for kinds in itertools.product(VALUES, repeat=ufunc.nin):
        if ufunc in BITWISE - SHIFTS - OF_INTEGERS_ALONE and {*kinds} == {"bool", "float64"}:
            continue  # a real number is true where it is not 0, as choices of conditions are
        graph_of = sg.symbols("x y")[: ufunc.nin]
        given = points(ufunc, kinds)
        operands = [CASTS[k](x) for k, x in zip(kinds, graph_of, strict=True)]
        at: dict[str, Any] = dict(zip(("x", "y"), (g.astype(float) for g in given), strict=False))
        compared(ufunc, kinds, operands, given, at)


BINARY = [u for u in LISTED if u.nin == 2 and u not in BITWISE]


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
def test_every_ufunc_beside_a_number_is_numpys(ufunc: np.ufunc) -> None:
    for kind, number, first in itertools.product(VALUES, CONSTANTS, (False, True)):
        if (
            kind == "bool"
            or ufunc is np.ldexp
            and (kind if first else type(number)) not in ("int32", "uint32", int)
        ):
            continue
        x = sg.var("x")
        given = VALUES[kind]
        if ufunc is np.power and first and kind in INTEGERS and isinstance(number, int):
            given = given[given >= 0]
        order = (lambda a, b: (b, a)) if first else (lambda a, b: (a, b))
        with np.errstate(all="ignore"):
            wanted = ufunc(*order(given, number))
        made = ufunc(*order(CASTS[kind](x), number))
        pairs = zip(made, wanted, strict=True) if ufunc.nout > 1 else [(made, wanted)]
        for one, want in pairs:
            same(one, {"x": given.astype(float)}, want, ufunc)


def test_operators_of_arrays_are_those_of_their_elements() -> None:
    x, y = sg.symbols("x y")
    for cast in (sg.int32, sg.uint32):
        a, b = cast(x), cast(y)
        one, two = sg.array([a]), sg.array([b])
        for f in (
            lambda a, b: a % b, lambda a, b: -a + b, lambda a, b: a == b, lambda a, b: a != b,
            lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a >= b, lambda a, b: a // b,
            lambda a, b: abs(a) * b, lambda a, b: a**2 - b, lambda a, b: 5 - a, lambda a, b: 7 % a,
        ):  # fmt: skip
            assert f(one, two)[0].id == f(a, b).id
            assert type(f(one, two)[0]) is type(f(a, b))


def test_numbers_among_integers_stay_integers() -> None:
    x = sg.var("x")
    a = sg.array([sg.uint32(x), 7, 0])
    assert (a % 4).tolist()[1:] == [3, 0]
    assert all(type(e) is int for made in (a % 4, a * a, a + a, a << 2) for e in made[1:])
    shifted = (a * a + a << 1)[1]
    assert shifted == 112


def halves(made: Any) -> list[Any]:
    bits = sg.uint32(made)
    return [bits >> 16, bits & 0xFFFF]


def joined(parts: Any) -> int:
    return int(parts[0]) << 16 | int(parts[1])


def test_integers_stay_so_in_arrays_that_expressions_index() -> None:
    def f(v: Any) -> Any:
        a = sg.array([sg.int32(v[0]) * 65539, -1, 2**24 + 1])
        b = a.at[v[1]].add(1).at[v[1] - 1].set(a[v[1]] * 3)
        return [part for made in (a[v[1]], b[v[1]], b[v[1] - 1]) for part in halves(made)]

    found = sg.fused_forward(2, f, device="cpu").run([40003.0, 2.0])
    values = [joined(found[2 * k : 2 * k + 2]) for k in range(3)]
    assert values == [2**24 + 1, 2**24 + 2, 3 * (2**24 + 1)]
    x = sg.var("x")
    with pytest.raises(TraceError, match="the array of int32: cast it"):
        sg.array([sg.int32(x), 1]).at[x].set(0.5)


def test_loops_carry_and_stack_arrays_of_integers() -> None:
    def f(v: Any) -> Any:
        def step(s: Any, x: Any) -> Any:
            s = s.at[v[1]].set(s[v[1]] * 31 + x)
            return s, (s, -sg.int32(x))

        last, (all_of_them, negative) = sg.scan(
            step, sg.uint32(np.arange(2) + 5) * sg.uint32(v[0]), np.array([1, 2, 3], np.uint32)
        )
        assert isinstance(negative[0], Word)
        return [*halves(last[1]), *halves(all_of_them[1][1]), negative[2]]

    found = sg.fused_forward(2, f, device="cpu").run([40003.0, 1.0])
    s = [6 * 40003]
    for x in (1, 2, 3):
        s.append((s[-1] * 31 + x) % 2**32)
    assert [joined(found[:2]), joined(found[2:4]), found[4]] == [s[3], s[2], -3]


def test_counters_and_conditions_beside_integers_are_integers() -> None:
    def f(v: Any) -> Any:
        seen = sg.fori_loop(0, 10, lambda k, h: (k + h * 31) ^ (k > 4) * (k - h), sg.uint32(v[0]))
        return halves(seen)

    h = 7
    for k in range(10):
        h = ((k + h * 31) ^ ((k > 4) * (k - h))) % 2**32
    assert joined(sg.fused_forward(1, f, device="cpu").run([7.0])) == h


def test_means_and_norms_of_integers_do_not_wrap() -> None:
    x = sg.var("x")
    big = sg.uint32(np.array([3e9, 4e9]))
    a = sg.array([sg.uint32(x), sg.uint32(x + 1e9)])
    solved = functools.partial(np.linalg.solve, b=np.ones(2))
    for f in (np.mean, np.var, np.std, np.linalg.norm, lambda a: np.linalg.norm(a, 1),
              lambda a: solved(np.stack([a, a[::-1]]))[0]):  # fmt: skip
        np.testing.assert_allclose(sg.evaluate(f(a), {"x": 3e9}), f(big), rtol=1e-14)


@pytest.mark.parametrize("shape", [40, 300])
def test_random_bits_are_integers_in_arithmetic(shape: int) -> None:
    def f(v: Any) -> Any:
        b = sg.random.bits(sg.random.fold_in(sg.random.key(1), v[0]), (shape,))
        return [np.sum(b % 65536), np.max(b % 65536), np.mean(b)]

    b = np.asarray(sg.random.bits(sg.random.fold_in(sg.random.key(1), 3), (shape,)))
    found = sg.fused_forward(1, f, device="cpu", dtype="float64").run([3.0])
    np.testing.assert_allclose(
        found, [(b % 65536).sum(), (b % 65536).max(), b.mean(dtype=float)], rtol=1e-12
    )


@pytest.mark.parametrize("choose", ["cond", "switch"])
def test_integers_of_choices_in_real_arithmetic_have_derivatives(choose: str) -> None:
    def f(v: Any) -> Any:
        sides = [lambda: -sg.int32(v[0]), lambda: sg.int32(v[0])]
        made = sg.cond(v[0] > 0, *sides[::-1]) if choose == "cond" else sg.switch(v[0], sides)
        assert isinstance(made, Word)
        return made * v[0] ** 2

    value, slope, curve = sg.fused_hessian(1, f, device="cpu").run([3.5])
    assert (value, slope[0], curve[0, 0]) == (36.75, 21.0, 6.0)


def test_every_public_operation_has_a_rule_for_integers() -> None:
    of_reals = {op for op in ops.TABLE.values() if op.public and "f" in op.signature[: op.arity]}
    assert of_reals <= OF_INTEGERS.keys() | AS_REAL


@pytest.mark.parametrize("device", ["cpu", 0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_two_are_exact_beyond_the_range(dtype: Any, device: Any) -> None:
    """Of constant exponents and of integers, where 2**k is no float or the number is none."""
    if device == 0 and (dtype == "float64" or not any(d.is_gpu for d in sg.devices())):
        pytest.skip("no GPU and no software Vulkan driver here, or float64, which is the CPU's")
    x = np.array([1.5, -3.0, 1e-30, 0.0, -0.0, np.inf, np.nan, 1e30, 2.0**-120], dtype)
    k = np.array([-300, -200, -150, -10, 0, 1, 30, 126, 200, 300])
    with np.errstate(all="ignore"):
        want = np.ldexp(x[:, None], k)
    usable = ~((np.abs(want) < np.finfo(dtype).tiny) & (want != 0))  # GPUs may flush them
    fixed = sg.fused_forward(1, lambda v: list(np.ldexp(v[0], k)), device=device, dtype=dtype)
    found = np.stack(fixed.run(x[:, None]), axis=1)
    np.testing.assert_array_equal(found[usable], want[usable])
    drawn = sg.fused_forward(
        2, lambda v: np.ldexp(v[0], sg.int32(v[1])), device=device, dtype=dtype
    )
    points = np.stack(np.broadcast_arrays(x[:, None], k.astype(dtype)), axis=-1)
    np.testing.assert_array_equal(drawn.run(points)[usable], want[usable])


def test_exponents_of_two_are_integers() -> None:
    with pytest.raises(sg.TraceError, match=r"takes integers k, not x1: write x \* 2.0\*\*k"):
        sg.fused_forward(2, lambda v: np.ldexp(v[0], v[1]), device="cpu")
    value, slope = sg.fused_forward_backward(1, lambda v: np.ldexp(v[0] ** 2, -3)).run([2.0])
    assert (value, slope.tolist()) == (0.5, [0.5])
