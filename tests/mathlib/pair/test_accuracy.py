"""Every function of pairs, and its derivatives, to 42 bits: also on devices that are worse."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from meaning import MEANING
from mpmath import mp, mpf
from true_derivatives import (
    DIFFERENTIABLE,
    is_derived,
    smooth_points,
    true_derivative,
    variables_of,
)

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import Op

from ..cases import BETA, BOUNDS, FADDEEVA, GAMMA, RANGES, cancelling, grid, truth
from ..emulate import Array, Emulated
from .flat import as_pairs, flat

DIGITS = 2.0**-42
SMALL, LARGE = 2.0**-78, 2.0**126
"""Numbers between them have all digits of a pair, and so have products of some of them."""

ROOTED = {"gammaln": lambda x: np.abs(x - 1.5) > 0.75}
"""Arguments at which SciPy has as many digits as are asked for."""

SUMS = {*BETA, *GAMMA, *FADDEEVA, "voigt_profile"} - {"gamma_density"}
"""Sums over nodes, of which each is a call of a function: but for one, for slow tests."""
INNER = {"sign", "wide_div", "sin_turns", "cos_turns", "decay_between"}
"""Rows without points of their own, and those whose derivatives are asked of others."""
EXACT = {"fmod", "remainder"}
SMOOTH = (
    "exp", "expm1", "log", "log1p", "sin", "tan", "atan2", "asinh", "tanh", "hypot", "pow", "erf",
    "normal_cdf", "softplus", "silu", "gammaln", "sinc", "ellipe", "erfinv", "log_ndtr",
)  # fmt: skip
"""Functions whose second derivatives are looked at where tests are to be quick."""

DEVICES = [
    Emulated(flushes=True, fuses=1, off=1.9, folds=True),
    Emulated(fuses=2, off=1.4),
]


def named(names: Any) -> list[Any]:
    slow = [pytest.mark.slow]
    return [pytest.param(name, marks=slow if name in SUMS else []) for name in names]


def close(found: Any, true: Any) -> bool:
    """Whether a number has 42 bits, where it is real, neither tiny nor more than float32 has."""
    if isinstance(true, mp.mpc) or not mp.isfinite(true) or not SMALL < abs(true) < LARGE:
        return True
    with mp.workdps(60):
        return bool(abs(mpf(float(found)) - true) <= DIGITS * abs(true))


def points_of(op: Op) -> list[tuple[float, ...]]:
    """The points of a row, as pairs, that are neither tiny nor large."""
    kept = [p for p in smooth_points(op) if all(not v or SMALL < abs(v) < LARGE for v in p)]
    return [tuple(as_pairs(np.array(p)).tolist()) for p in kept]


def check_derivatives(name: str, order: int) -> None:
    """The derivatives of an order at the points of a row, or its values, against mpmath."""
    op = ops.TABLE[name]
    points = points_of(op)
    assert points
    found = flat(name, order).run(Emulated(), *np.array(points).T)
    every = itertools.product(variables_of(op), repeat=order)
    for by, values in zip(every, found, strict=True):
        for at, value in zip(points, np.broadcast_to(values, len(points)), strict=True):
            if not order:
                with mp.workdps(60):
                    true = MEANING[name](*map(mpf, at))
            elif not is_derived(op, by):
                continue
            else:
                true = true_derivative(op, at, by)
            assert close(value, true), (at, by, value, true)


@pytest.mark.parametrize("name", named(name for name in BOUNDS if name not in INNER | EXACT))
def test_values_and_slopes_at_the_points_of_a_row(name: str) -> None:
    check_derivatives(name, 0)
    if ops.TABLE[name] in DIFFERENTIABLE:
        check_derivatives(name, 1)


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_at_the_points_of_a_row(name: str) -> None:
    check_derivatives(name, 2)


def arguments(name: str, count: int) -> tuple[Array, ...]:
    """Pairs all over the range, and where float32's function is worst."""
    draw = np.random.default_rng(5)
    given = [
        np.float64(v) * (1.0 + draw.uniform(-(2.0**-25), 2.0**-25, len(v)))
        for v in grid(name, count)
    ]
    low, high = RANGES.get(name, (-np.inf, np.inf))
    kept = [(np.abs(v) > SMALL) & (np.abs(v) < LARGE) & (v >= low) & (v <= high) for v in given]
    kept += [ROOTED[name](given[0])] if name in ROOTED else []
    return tuple(as_pairs(v[np.all(kept, axis=0)]) for v in given)


@pytest.mark.parametrize("name", named(name for name in BOUNDS if name not in EXACT))
def test_values_on_devices_that_fuse_flush_fold_and_divide_badly(name: str) -> None:
    """Against NumPy and SciPy."""
    at = arguments(name, 100 if name in {*BETA, *GAMMA, *FADDEEVA, "voigt_profile"} else 40)
    want, function = truth(name, *at), flat(name)
    largest = 2.0**60 if name.endswith("gamma") else LARGE  # of powers of tiny numbers
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(want), cancelling(name, at))
        kept = (np.abs(want) > SMALL) & (np.abs(want) < largest)
    assert np.sum(kept) > len(want) / 8 and len(want) > 8
    for device in DEVICES[: 1 if len(function.graph.nodes) > 5000 else None]:
        (found,) = function.run(device, *at)
        with np.errstate(all="ignore"):
            wrong = np.flatnonzero(kept & ~(np.abs(found - want) <= DIGITS * size))
        assert not len(wrong), (device, [v[wrong[0]] for v in at], found[wrong[0]], want[wrong[0]])


EDGES = np.array([np.inf, 3.4e38, 1e18, 100.0, 2.5, 1.0, 1 - 2.0**-40, 0.5, 2.0**-13, 0.0])


@pytest.mark.parametrize("name", [name for name in BOUNDS if name not in SUMS])
def test_edges(name: str) -> None:
    """What is infinite, NaN or 0 is so, and all else has its digits."""
    values = as_pairs(np.concatenate([EDGES, -EDGES, [np.nan]]))
    at = [v.ravel() for v in np.meshgrid(*[values] * ops.TABLE[name].arity)]
    (found,) = flat(name).run(Emulated(), *at)
    with np.errstate(all="ignore"):
        want = truth(name, *at)
        want = np.where(np.abs(want) > 3.4028235e38, np.copysign(np.inf, want), want)
        wrong = np.abs(found - want) > DIGITS * np.maximum(np.abs(want), cancelling(name, at))
        wrong &= np.fmax(np.abs(want), np.abs(found)) > SMALL
        wrong &= ROOTED[name](at[0]) if name in ROOTED else True
    wrong |= np.isnan(found) != np.isnan(want)
    wrong |= np.where(np.isinf(want) | np.isinf(found), found != want, False)
    assert not wrong.any(), ([v[wrong][0] for v in at], found[wrong][0], want[wrong][0])


@pytest.mark.parametrize("name", sorted(EXACT))
def test_remainders_are_exact_however_large_the_quotient_is(name: str) -> None:
    draw = np.random.default_rng(0)
    b = (
        draw.choice([-1, 1], 300)
        * draw.integers(2**46, 2**47, 300)
        * 2.0 ** draw.integers(-90, 10, 300)
    )
    a = as_pairs(draw.normal(size=300) * 2.0 ** draw.uniform(-30, 120, 300))
    a[:100] = as_pairs(b[:100] * draw.integers(-(10**6), 10**6, 100))
    function = flat(name)
    for device in DEVICES:
        for x, y, found in zip(a, b, function.run(device, a, b)[0], strict=True):
            p, q = Fraction(x), Fraction(y)
            true = p - q * (math.trunc(p / q) if name == "fmod" else math.floor(p / q))
            assert abs(Fraction(found) - true) <= Fraction(2.0**-46) * abs(true), (device, x, y)


# What a kernel has of them, on the devices here.

GPUS = [d for d in sg.devices() if d.is_gpu]
NAMES = ("exp", "expm1", "log1p", "sin", "asin", "sinh", "cbrt", "erf")


def elementary(v: Any) -> list[Any]:
    return [ops.TABLE[name](v[0]) for name in NAMES] + [v[0] ** v[1], sg.atan2(v[0], v[1])]


@pytest.mark.parametrize("device", ["cpu", *GPUS])
def test_kernels_have_the_digits(device: Any) -> None:
    draw = np.random.default_rng(3)
    at = as_pairs(np.stack([draw.uniform(0.0, 1.0, 60), draw.uniform(-30, 30, 60)], axis=1))
    made = sg.fused_forward(2, elementary, device=device, dtype="float32x2")
    for (x, p), found in zip(at, np.stack(made.run(at), axis=-1), strict=True):
        with mp.workdps(60):
            true = [MEANING[name](mpf(x)) for name in NAMES] + [mpf(x) ** p, mp.atan2(x, p)]
        for name, value, want in zip((*NAMES, "pow", "atan2"), found, true, strict=True):
            assert close(value, want), (name, x, p, value)
