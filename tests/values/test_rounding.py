"""Columns that float32 rounds coarsely beside their spread: a warning that names the remedy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.values.arrays import excessive_rounding

DAYS = 2459000.1 + np.arange(50) / 24.0
RNG = np.random.default_rng(5)
ROUNDED = {
    "Julian dates of years, of which no two are equal": 2_450_000 + RNG.uniform(0, 2000, 80),
    "a million of 16,000 steps of float32": 1000.0 + RNG.uniform(size=1_000_000),
    "Julian dates": DAYS,
    "three of them": DAYS[:3],
    "with gaps": np.where(np.arange(50) % 7, DAYS, np.nan),
    "identities": 100_000_001 + np.arange(500),
    "seconds since 1970, a long column": 1_700_000_000 + np.arange(300_000),
    "the same, shuffled": RNG.permutation(1_700_000_000 + np.arange(300_000)),
    "below zero": -DAYS,
}
KEPT = {
    "uniform": RNG.uniform(size=100_000),
    "kelvin": 273.15 + 0.01 * np.arange(3000),
    "rounded in the last digit": np.array([0.3, 0.1 + 0.2, 0.3]),
    "constant": np.full(20, 2459000.1),
    "empty": np.zeros(0),
    "missing": np.full(3, np.nan),
    "hours in days": DAYS - 2459000.0,
    "saturated": 1.0 - np.exp(-np.linspace(0.0, 50.0, 1000)),
    "tiny": np.exp(-np.linspace(0.0, 200.0, 1000)),
    "small integers": np.arange(100_000),
    "a million of 200,000 steps of float32": 100.0 + RNG.uniform(size=1_000_000) * 1.5,
    "years": np.arange(1950, 2025),
    "Julian dates that float32 has": 2_450_000.0 + 0.25 * np.arange(80),
    "infinities": np.array([1.0, np.inf, 2.0, -np.inf]),
    "squares beyond float64": np.array([1e200, 2e200]),
    "beyond float32": np.array([1e39, 1e39 * (1 + 1e-9)]),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_that_matters(name: str) -> None:
    values = ROUNDED[name]
    known = values[~np.isnan(values)]
    lost = known - known.astype(np.float32)
    found = excessive_rounding(values)
    assert found is not None
    assert 0.8 * np.abs(lost).max() <= found.largest <= np.abs(lost).max()
    assert found.spread == pytest.approx(known.std(), rel=0.05)


@pytest.mark.parametrize("name", KEPT)
def test_rounding_that_does_not(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert excessive_rounding(KEPT[name]) is None


def line(p: Any, r: Any) -> Any:
    return (p[0] + p[1] * r.day - r.y) ** 2


def test_the_column_and_the_remedy_are_named() -> None:
    table = {"day": DAYS, "y": np.sin(DAYS)}
    kernel = sg.fused_forward_backward(2, line, columns=["day", "y"], device="cpu")
    for run in (lambda: kernel.run([0.0, 1.0], table), lambda: kernel.bind(table)):
        with pytest.warns(sg.PrecisionWarning, match=r"^'day' has .* offset .*float64") as found:
            run()
        assert [w.filename for w in found] == [__file__]
    with pytest.warns(sg.PrecisionWarning, match="^'day'"):
        kernel.minimize([0.0, 0.0], sg.LBFGS(), rows=table, steps=2)
    with pytest.warns(sg.PrecisionWarning, match="^column 0 "):
        sg.fused_forward(1, lambda p, r: p[0] * r[0], row=1, device="cpu").run([1.0], DAYS[:, None])


def test_optimisers_name_it_too() -> None:
    columns = np.stack([DAYS, np.sin(DAYS)], axis=1)
    with pytest.warns(sg.PrecisionWarning, match=r"^column 0 of shared has"):
        sg.minimize_from(
            lambda v, r: (v[0] * r[0] - r[1]) ** 2, 1, [[0.0]], sg.LBFGS(), 2, shared=columns,
            device="cpu",
        )  # fmt: skip
    with pytest.warns(sg.PrecisionWarning, match="^x has"):
        sg.fit_many(
            lambda x, a: a * x, DAYS, [np.sin(DAYS)], [1.0], device="cpu", dtype="float32", steps=2
        )


def test_arguments_are_looked_at_too() -> None:
    wave = lambda p, t, y: np.sum((p * t - y) ** 2)  # noqa: E731
    run = sg.value_and_grad(wave, device="cpu")
    with pytest.warns(sg.PrecisionWarning, match="^an argument has") as found:
        run(1.0, DAYS, np.sin(DAYS))
    assert [w.filename for w in found] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(1.0, DAYS - DAYS[0], np.sin(DAYS))
        sg.value_and_grad(wave, device="cpu", dtype="float64")(1.0, DAYS, np.sin(DAYS))
        sg.curve_fit(lambda t, a, b: a * t + b, DAYS - DAYS[0], 2 * DAYS, dtype="float32")
        sg.curve_fit(lambda t, a: a * (t - np.mean(t)), DAYS, DAYS - DAYS[0], dtype="float32")


def test_where_nothing_is_lost_there_is_no_warning() -> None:
    table = {"day": DAYS, "y": np.sin(DAYS)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        double = sg.fused_forward_backward(
            2, line, columns=["day", "y"], device="cpu", dtype="float64"
        )
        double.run([0.0, 1.0], table)
        single = sg.fused_forward_backward(2, line, columns=["day", "y"], device="cpu")
        single.run([0.0, 1.0], table | {"day": DAYS - 2459000.0})
        single.run([0.0, 1.0], {"day": DAYS.astype(np.float32), "y": np.sin(DAYS)})
        sg.fit_many(lambda x, a: a * x, DAYS, [DAYS], [1.0], device="cpu")


def test_data_of_closures_are_looked_at_too() -> None:
    wave = np.sin(DAYS)
    misfit = lambda p: np.sum((p[0] * DAYS - wave) ** 2)  # noqa: E731
    lookup = lambda p, r: (p[0] * sg.array(DAYS)[r.k] - r.y) ** 2  # noqa: E731
    table = {"k": np.arange(50), "y": wave}
    kernels = (
        lambda: sg.fused_forward_backward(1, misfit, device="cpu"),
        lambda: sg.fused_forward(1, lambda p: sg.array(DAYS + 1.0) * p[0], device="cpu"),
        lambda: sg.fused_forward(1, lookup, columns=["k", "y"], device="cpu").run([1.0], table),
        lambda: sg.minimize_from(misfit, 1, [[1.0]], sg.LBFGS(), 1, device="cpu"),
    )
    for made in kernels:
        with pytest.warns(sg.PrecisionWarning, match=r"^the data in .*test_rounding.*DAYS") as seen:
            made()
        assert [w.filename for w in seen] == [__file__]


def test_data_of_whole_arrays_are_looked_at_too() -> None:
    days, ones = 2459000.1 + np.arange(300) / 24.0, np.ones(300)
    with pytest.warns(sg.PrecisionWarning, match="^an array that .*takes from elsewhere has"):
        sg.jit(lambda p: p * days, device="cpu")(ones)
    with pytest.warns(sg.PrecisionWarning, match="^an argument has"):
        sg.jit(lambda p, t: p * t, device="cpu")(ones, days)


def test_constants_that_float32_keeps_or_that_are_no_data() -> None:
    near = lambda v: np.where(v[0] < 1.0 - 1e-9, v[0] * 1.000000001, 1.0)  # noqa: E731
    kept = DAYS.astype(np.float32).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sg.fused_forward(1, near, device="cpu")
        sg.fused_forward(1, lambda v: np.sum(v[0] * kept), device="cpu")
        sg.fused_forward(1, lambda v: np.sum(v[0] * DAYS), device="cpu", dtype="float64")
