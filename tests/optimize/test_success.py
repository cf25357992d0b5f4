"""What methods claim of their ends holds: on classic problems, at saddles, in any unit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from optimize.judge import Counts, Judge, starts_of
from optimize.losses import LOSSES
from optimize.sums_of_squares import SQUARES

import symgrad as sg
from symgrad.pipeline import DTypeName

METHODS = [sg.LBFGS(), sg.Newton(), sg.LevenbergMarquardt()]
DTYPES = ["float32", "float64"]
SOME = ["Rosenbrock", "gulf research", "Powell, singular", "Wood", "Kowalik and Osborne",
        "Shekel, 5", "Easom"]  # fmt: skip
"""All of them are for benchmarks/success.py."""


def by_name(method: Any) -> str:
    return type(method).__name__


@pytest.mark.parametrize("name", sorted({*SQUARES} - {"gulf research", "Brown, almost linear"}))
def test_sums_of_squares_have_their_published_minima(name: str) -> None:
    problem = SQUARES[name]
    columns = () if problem.data is None else (problem.data.T,)
    end = scipy.optimize.least_squares(
        lambda x: np.ravel(np.asarray(problem.residuals(x, *columns), float)), problem.start,
        method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=5000,
    )  # fmt: skip
    assert min(abs(2 * end.cost - m) for m in problem.minima) <= 1e-6 * 2 * end.cost + 1e-20


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_nowhere_below_their_published_minima(name: str) -> None:
    problem = LOSSES[name]
    if name == "McCormick":
        pytest.skip("it has no lowest value outside of its box")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends = [scipy.optimize.minimize(problem.value, x).fun for x in starts_of(name)[:4]]
    assert min(ends) >= problem.lowest - 2e-7 * max(1.0, abs(problem.lowest))


@pytest.fixture(scope="module")
def judges() -> dict[str, Judge]:
    return {name: Judge(name) for name in SOME}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS, ids=by_name)
def test_successes_are_minima(method: Any, dtype: DTypeName, judges: dict[str, Judge]) -> None:
    total = Counts(0, 0, 0, 0, 0, 0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name, judge in judges.items():
            if name in SQUARES or method.needs != "squares":
                total += judge.run(method, dtype)
    assert total.false == 0
    assert total.missed <= 0.06 * total.runs
    assert total.successes >= 0.75 * total.runs


VALLEYS = ["sine, slight", "decay, slight", "Lanczos3, start 2", "Beale",
           "Powell, badly scaled, other starts"]  # fmt: skip
"""Columns of the Jacobian become so nearly the same there that JᵀJ in float32 does not tell them
apart, or far shorter than they were."""


def test_least_squares_in_valleys_claim_no_more_than_float32_can_tell() -> None:
    total = Counts(0, 0, 0, 0, 0, 0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name in VALLEYS:
            total += Judge(name).run(sg.LevenbergMarquardt(), "float32")
    assert total.false == 0
    assert total.missed <= 0.1 * total.runs
    assert total.successes >= 0.5 * total.runs


NOISY = ["logistic curve, slight", "peak, slight", "two decays, slight", "Hill, slight"]
"""Residuals are so much less than what they are differences of that rounding is a thousandth of the
loss, or more, where steps end."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS[:2], ids=by_name)
def test_minima_in_the_noise_of_the_loss_are_claimed(method: Any, dtype: DTypeName) -> None:
    total = Counts(0, 0, 0, 0, 0, 0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name in NOISY:
            total += Judge(name).run(method, dtype)
    assert (total.false, total.missed) == (0, 0)
    assert total.successes >= 0.75 * total.runs


def test_a_model_that_became_flat_is_said_whatever_ended_the_steps() -> None:
    """Every exponential of Meyer's model underflows in the end; steps went on to the last one.

    Rounding decides which starts lead there, so there are some, side by side.
    """
    meyer = SQUARES["Meyer"]
    starts = np.asarray(starts_of("Meyer")[4]) * np.linspace(0.99, 1.01, 32)[:, None]
    found = sg.minimize_from(
        meyer.residuals, 3, starts, sg.LevenbergMarquardt(), 1000, shared=meyer.data, device="cpu"
    )
    flat = np.isclose(found.fun, 0.5 * np.sum(np.square(np.asarray(meyer.data)[:, -1])), rtol=1e-6)
    assert flat.any()
    assert (found.status[flat] == -3).all() and (found.nit[flat] < 1000).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS, ids=by_name)
def test_the_saddle_of_woods_function_is_no_success(method: Any, dtype: DTypeName) -> None:
    wood = SQUARES["Wood"]
    f = wood.residuals if method.needs == "squares" else wood.loss
    found = sg.minimize_from(f, 4, [wood.start], method, 1000, device="cpu", dtype=dtype)
    assert found.success.all() == (found.fun < 1e-6).all()


SADDLES: dict[str, tuple[Any, list[float], float]] = {
    "on its ridge": (lambda v: v[0] ** 2 - v[1] ** 2 + v[1] ** 4, [1.0, 0.0], -0.25),
    "at it": (lambda v: v[0] ** 2 - v[1] ** 2 + v[1] ** 4, [0.0, 0.0], -0.25),
    "no diagonal": (lambda v: v[0] * v[1] + v[0] ** 4 + v[1] ** 4, [0.0, 0.0], -0.125),
    "a maximum": (lambda v: np.cos(v[0]) + np.cos(2 * v[1]), [0.0, 0.0], -2.0),
    "three directions": (
        lambda v: v[0] ** 2 + np.sum(v[1:] ** 4 - v[1:] ** 2), [3.0, 0.0, 0.0], -0.5
    ),
    "large variables": (lambda v: (v[0] - 1e6) ** 2 + np.cos(1e-5 * v[1]), [0.0, 0.0], -1.0),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SADDLES)
def test_newton_leaves_saddles_and_maxima(case: str, dtype: DTypeName) -> None:
    f, start, lowest = SADDLES[case]
    found = sg.minimize_from(f, len(start), [start], sg.Newton(), 300, device="cpu", dtype=dtype)
    assert found.success.all() and found.fun[0] == pytest.approx(lowest, abs=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds_that_hold_the_curvature_make_a_minimum_of_a_saddle(dtype: DTypeName) -> None:
    found = sg.minimize_from(
        lambda v: v[0] ** 2 - (v[1] - 2.0) ** 2, 2, [[1.0, 0.5]], sg.Newton(), 100,
        bounds=([-3.0, 0.0], [3.0, 1.0]), device="cpu", dtype=dtype,
    )  # fmt: skip
    assert found.success[0] and found.x[0].tolist() == pytest.approx([0.0, 0.0], abs=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS, ids=by_name)
def test_singular_hessians_at_minima_are_successes(method: Any, dtype: DTypeName) -> None:
    powell = SQUARES["Powell, singular"]
    f = powell.residuals if method.needs == "squares" else powell.loss
    found = sg.minimize_from(
        f, 4, starts_of("Powell, singular"), method, 1000, device="cpu", dtype=dtype
    )
    assert found.success.all() and (found.fun < 1e-8).all()


@pytest.mark.parametrize("unit", [1e-6, 2.0**-20, 2.0**20, 1e6])
@pytest.mark.parametrize("method", METHODS[:2], ids=by_name)
def test_the_unit_of_the_loss_does_not_matter(method: Any, unit: float) -> None:
    loss = SQUARES["Kowalik and Osborne"].loss
    found = sg.minimize_from(
        lambda v, r: unit * loss(v, r), 4, starts_of("Kowalik and Osborne"), method, 1000,
        shared=SQUARES["Kowalik and Osborne"].data, device="cpu",
    )  # fmt: skip
    assert (found.fun[found.success] / unit < 3.0752e-4).all() and found.success.sum() >= 4


def test_rounding_that_hides_the_rest_is_said() -> None:
    meyer = SQUARES["Meyer"]
    found = sg.minimize_from(
        meyer.loss, 3, [meyer.start], sg.LBFGS(), 1000, shared=meyer.data, device="cpu"
    )
    assert found.status[0] == -1 and found.message[0].startswith("precision loss")


FALLING: dict[str, tuple[Any, list[float]]] = {
    "an exponential": (lambda v: np.exp(-v[0]) + v[1] ** 2, [0.0, 1.0]),
    "a power": (lambda v: (1.0 + v[0] ** 2) ** -3 + (v[1] - 1.0) ** 2, [1.0, 0.0]),
    "separable data": (
        lambda v: sg.softplus(-v[0] - v[1]) + sg.softplus(-2.0 * v[0] - v[1]),
        [0.0, 0.0],
    ),
    "flat": (lambda v: (v[0] - 2.0) ** 6 + (v[1] + 1.0) ** 4, [0.0, 0.0]),
}
"""Losses that fall to 0, three of them at infinity, and starts where they are about 1."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS[:2], ids=by_name)
@pytest.mark.parametrize("name", FALLING)
def test_a_loss_that_falls_to_0_ends_where_it_is_rounding(
    name: str, method: Any, dtype: DTypeName
) -> None:
    """Of the exponential float32 hides the last steps from L-BFGS, which says so."""
    f, start = FALLING[name]
    found = sg.minimize_from(f, 2, [start], method, 1000, device="cpu", dtype=dtype)
    hides = name == "an exponential" and isinstance(method, sg.LBFGS) and dtype == "float32"
    assert found.success[0] == (not hides)
    assert found.status[0] == -1 if hides else found.fun[0] <= 2 * np.finfo(dtype).eps ** 1.5


@pytest.mark.parametrize(
    "f",
    [lambda v: 1e-30 * np.exp(-v[0]), lambda v: 1e-20 / v[0], lambda v: v[0] ** -0.1],
    ids=["exponential", "inverse", "power"],
)
def test_newton_goes_on_where_the_curvature_is_subnormal(f: Any) -> None:
    """Its inverse is none there, and steps by it would be nowhere."""
    found = sg.minimize_from(f, 1, [[1.0]], sg.Newton(), 200, device="cpu")
    assert found.success[0]
