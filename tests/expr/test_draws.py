"""Distributions of `symgrad.random`: JAX's numbers, in kernels and outside of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import symgrad as sg

JAX = json.loads((Path(__file__).parent / "jax_draws.json").read_text())["cases"]
WHERE: list[tuple[Any, Any]] = [("cpu", "float64"), ("gpu", "float32")]

LOGITS: Final = np.array([[0.1, -1.0, 2.0, 0.5], [3.0, 3.0, -4.0, 2.9], [0.0, 0.0, 0.0, -30.0]])
SHARES: Final = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
GRID: Final = np.arange(12.0).reshape(4, 3)
MEANS: Final = (0.0, 0.3, 2.5, 9.9, 10.0, 50.0, 3000.0)

DRAWS: Final[dict[str, Callable[[Any], Any]]] = {
    "exponential_4": lambda k: sg.random.exponential(k, (4,)),
    "gumbel_5": lambda k: sg.random.gumbel(k, 5),
    "gumbel": sg.random.gumbel,
    "bernoulli_12": lambda k: sg.random.bernoulli(k, 0.3, (12,)),
    "bernoulli_p": lambda k: sg.random.bernoulli(k, np.array([0.0, 0.2, 0.5, 0.9, 1.0])),
    "randint_8": lambda k: sg.random.randint(k, (8,), -5, 1000),
    "randint_p": lambda k: sg.random.randint(k, (2, 3), np.array([0, -7, 5]), [10, 7, 5]),
    "categorical": lambda k: sg.random.categorical(k, LOGITS),
    "categorical_axis": lambda k: sg.random.categorical(k, LOGITS, axis=0),
    "categorical_shape": lambda k: sg.random.categorical(k, LOGITS, shape=(5, 3)),
    "permutation_10": lambda k: sg.random.permutation(k, 10),
    "permutation_rows": lambda k: sg.random.permutation(k, GRID),
    "permutation_columns": lambda k: sg.random.permutation(k, GRID, axis=1),
    "permutation_independent": lambda k: sg.random.permutation(k, GRID, 1, independent=True),
    "choice": lambda k: sg.random.choice(k, np.array([2.5, -1.0, 7.0, 9.0]), (6,)),
    "choice_p": lambda k: sg.random.choice(k, 5, (8,), p=SHARES),
    "choice_unique": lambda k: sg.random.choice(k, 7, (4,), replace=False),
    "choice_unique_p": lambda k: sg.random.choice(k, 5, (3,), replace=False, p=SHARES),
    "choice_1": lambda k: sg.random.choice(k, 9),
    "poisson_6": lambda k: sg.random.poisson(k, 4.0, (6,)),
    "poisson": lambda k: np.array([sg.random.poisson(k, m) for m in MEANS]),
}
"""What JAX has drawn too; Poisson's numbers of large means one by one, for in an array of them JAX
goes on with those that it has accepted until all are."""


@pytest.mark.parametrize("name", [*DRAWS, "permutation_2000", "randint_wide"])
@pytest.mark.parametrize("case", JAX, ids=lambda c: str(c["seed"]))
def test_numbers_are_jaxs(name: str, case: dict[str, Any]) -> None:
    key = sg.random.key(case["seed"])
    if name == "permutation_2000":
        found = sg.random.permutation(key, 2000)[:20]
    elif name == "randint_wide":
        found = sg.random.randint(key, 4, -(2**31), 2**31 - 1)
    else:
        found = DRAWS[name](key)
    np.testing.assert_allclose(found, case[name], rtol=3e-6)


@pytest.mark.parametrize(("device", "dtype"), WHERE)
def test_kernels_draw_the_same(device: Any, dtype: Any) -> None:
    """Of a key that is an expression, all in one kernel."""

    def f(v: Any) -> list[Any]:
        key = sg.random.key(v[0])
        found = [e for name in short for e in np.ravel(DRAWS[name](key))]
        return [*found, sg.random.poisson(key, 2.5), sg.random.poisson(key, 50.0)]

    short = [name for name in DRAWS if name != "poisson"]
    cases = [c for c in JAX if c["seed"] < 2**24]
    found = sg.fused_forward(1, f, device=device, dtype=dtype).run([[c["seed"]] for c in cases])
    for n, case in enumerate(cases):
        wanted = np.concatenate([np.ravel(case[name]) for name in [*short, "poisson"]])
        wanted = np.delete(wanted, [-7, -6, -4, -3, -1])
        np.testing.assert_allclose([float(e[n]) for e in found], wanted, rtol=4e-6)


def test_long_arrays_are_drawn_by_loops() -> None:
    """Orders and categories of many, also by parameters that are expressions."""
    logits = np.sin(np.arange(300.0))

    def f(v: Any) -> list[Any]:
        key = sg.random.key(v[0])
        means = v[1] * np.arange(1, 301.0)
        return [
            sg.random.categorical(key, logits * v[1]),
            *sg.random.permutation(key, 70),
            np.sum(sg.random.poisson(key, means) * np.arange(300.0)),
            *sg.random.choice(key, 6, (3,), p=SHARES_OF_6 * v[1]),
        ]

    kernel = sg.fused_forward(2, f, device="cpu", dtype="float64")
    assert len(kernel.wgsl.splitlines()) < 9000
    key = sg.random.key(3)
    wanted = [
        sg.random.categorical(key, logits * 0.5), *sg.random.permutation(key, 70),
        np.dot(sg.random.poisson(key, 0.5 * np.arange(1, 301.0)), np.arange(300.0)),
        *sg.random.choice(key, 6, (3,), p=SHARES_OF_6),
    ]  # fmt: skip
    np.testing.assert_array_equal(kernel.run([3.0, 0.5]), wanted)


SHARES_OF_6: Final = np.array([0.2, 0.1, 0.1, 0.3, 0.1, 0.2])


def test_poisson_numbers_of_large_means_have_their_moments() -> None:
    """In float32, where the logarithm of the probability has no digits left."""
    draw = lambda v: sg.random.poisson(sg.random.key(v[0]), 1e6)  # noqa: E731
    n = 4000
    made = sg.fused_forward(1, draw, device="cpu").run(np.arange(float(n))[:, None])
    z = (np.float64(made) - 1e6) / 1e3
    assert abs(np.mean(z)) < 4 / np.sqrt(n)
    assert abs(np.mean(z * z) - 1.0) < 4 * np.sqrt(2 / n)
    assert abs(np.mean(z**4) - 3.0) < 4 * np.sqrt(96 / n)


def test_rare_means() -> None:
    key = sg.random.key(0)
    np.testing.assert_array_equal(sg.random.poisson(key, np.array([-1.0, np.nan])), [np.nan] * 2)


def test_whole_numbers_have_no_slope() -> None:
    f = lambda v: v[0] * sg.random.poisson(sg.random.key(1), v[1])  # noqa: E731
    kernel = sg.fused_forward_backward(2, f, device="cpu", dtype="float64")
    value, slopes = kernel.run([2.0, 20.0])
    np.testing.assert_array_equal(slopes, [value / 2.0, 0.0])


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda k: sg.random.randint(k, (), 0.5, 3), "minval of sg.random.randint is an integer"),
        (lambda k: sg.random.randint(k, (), 0, 2**33), "maxval of sg.random.randint"),
        (lambda k: sg.random.categorical(k, LOGITS, shape=(2, 4)), r"shapes that end in \(3,\)"),
        (lambda k: sg.random.categorical(k, 1.0), "no axis -1 of categories"),
        (lambda k: sg.random.choice(k, 3, (4,), replace=False), "4 elements cannot be chosen"),
        (lambda k: sg.random.choice(k, 3, p=[0.5, 0.5]), "not one for each of 3"),
        (lambda k: sg.random.bernoulli(k, [0.5, 0.2], (3,)), "do not broadcast"),
    ],
)
def test_what_does_not_go_together_is_refused(draw: Any, message: str) -> None:
    with pytest.raises(sg.InputError, match=message):
        draw(sg.random.key(0))


SHAPES: Final = np.array([0.05, 0.3, 1.0, 2.5, 40.0, 3000.0])


@pytest.mark.parametrize("case", JAX, ids=lambda c: str(c["seed"]))
def test_gamma_numbers_are_jaxs(case: dict[str, Any]) -> None:
    key = sg.random.key(case["seed"])
    np.testing.assert_allclose(sg.random.gamma(key, SHAPES), case["gamma"], rtol=4e-6)
    np.testing.assert_allclose(sg.random.gamma(key, 1.5, (6,)), case["gamma_6"], rtol=4e-6)


@pytest.mark.parametrize(("device", "dtype"), WHERE)
def test_gamma_numbers_have_jaxs_slopes_by_their_shape(device: Any, dtype: Any) -> None:
    case = JAX[1]
    draw = lambda v: sg.random.gamma(sg.random.key(case["seed"]), v[0])  # noqa: E731
    kernel = sg.fused_forward_backward(1, draw, device=device, dtype=dtype)
    values, slopes = kernel.run([[0.3], [1.0], [2.5], [40.0]])
    np.testing.assert_allclose(slopes[:, 0], case["gamma_slope"], rtol=5e-6)
    step = [kernel.run([2.5 + h])[0] for h in (1e-2, -1e-2)]
    assert abs((step[0] - step[1]) / 2e-2 - slopes[2, 0]) < 0.05
    assert values[2] == pytest.approx(float(sg.random.gamma(sg.random.key(42), 2.5)), rel=1e-6)


def test_gamma_numbers_of_no_shape_are_nan() -> None:
    found = sg.random.gamma(sg.random.key(0), np.array([0.0, -1.0, np.nan, 1.0]))
    np.testing.assert_array_equal(np.isnan(found), [True, True, True, False])
