"""Iterations with a matrix on the CPU: against their meaning, and however they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from iterations import compiled
from matrices import Waves

import symgrad as sg
from symgrad.llvm.dispatch import until
from symgrad.pipeline import DTypeName

STEPS = 3


def run(case: Waves, steps: int = STEPS) -> np.ndarray:
    loop = compiled(case.made(), dtype=case.dtype)
    return loop.run(case.states(), steps, case.data)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "points", "residuals"), [(3, 130, 2), (7, 63, 1), (17, 64, 1)])
def test_steps(n: int, points: int, residuals: int, dtype: DTypeName) -> None:
    """What is added in another order may differ by half an ulp for each operation of a sum.

    That is Higham's gamma_m, *Accuracy and Stability of Numerical Algorithms*, section 3.1.
    """
    case = Waves(n, 11, points, (0.3, 0.8), 0.25, residuals, dtype)
    operations = points * residuals + 4 * n  # over the rows, and of the wave of a row
    found, want = run(case), case.expected(STEPS)
    (x, memory, tail), (x2, memory2, tail2) = (case.layout.split(s) for s in (found, want))
    single = case.expected(STEPS, dtype=np.dtype(dtype).type)
    x3, memory3, _ = case.layout.split(single)
    gamma = operations * float(np.finfo(dtype).eps) / 2
    for a, b, c in ((x, x2, x3), *zip(memory[:4], memory2[:4], memory3[:4], strict=True)):
        allowed = 5.0 * np.abs(c - b).max() + gamma * np.abs(b).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=allowed)
    np.testing.assert_array_equal(tail[:, 0], tail2[:, 0])


def test_no_rows_sum_to_nothing() -> None:
    case = Waves(4, 3, 0)
    found = run(case, 1)
    _, memory, tail = case.layout.split(found)
    np.testing.assert_array_equal(memory[3], 0.0)
    np.testing.assert_array_equal(tail[:, 2], 0.0)


def test_how_it_is_cut_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Waves(6, 70, 20)
    want = run(case)
    monkeypatch.setattr(until, "MOST_PER_CALL", 20 * 16)
    np.testing.assert_array_equal(run(case), want)


def test_a_problem_alone_has_the_bits_that_it_has_among_others() -> None:
    case = Waves(9, 40, 33)
    want, loop = run(case), compiled(case.made())
    for k in (0, 17, 39):
        alone = loop.run(case.states()[k : k + 1], STEPS, case.data.of(slice(k, k + 1)))
        np.testing.assert_array_equal(alone[0], want[k])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fits_of_many_parameters_find_what_scipy_does(dtype: Any) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    n, x = 12, np.linspace(0.0, 6.0, 80)
    draw = np.random.default_rng(3)

    def series(x: Any, *p: Any) -> Any:
        found = p[0] * np.exp(-p[1] * x)
        for k, c in enumerate(p[2:]):
            phase = (k // 2 + 1) * x
            found = found + c * (np.cos(phase) if k % 2 else np.sin(phase))
        return found

    true = draw.uniform(0.4, 1.0, (3, n))
    Y = np.array([series(x, *p) for p in true]) + 0.01 * draw.normal(size=(3, len(x)))
    found = sg.fit_many(series, x, Y, [0.5] * n, device="cpu", dtype=dtype, covariance=True)
    assert found.success.all()
    for y, p, cov in zip(Y, found.x, found.cov, strict=True):
        want, pcov = optimize.curve_fit(series, x, y, [0.5] * n)
        deviations = np.sqrt(np.diagonal(pcov))
        assert (np.abs(p - want) < (0.02 if dtype == "float32" else 1e-4) * deviations).all()
        np.testing.assert_allclose(np.sqrt(np.diagonal(cov)), deviations, rtol=0.02)
