"""Iterations with a matrix on a GPU: against their meaning, and within the limits of devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matrices import Waves
from reference_kernels import iterate
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.errors import InputError
from symgrad.kernel.launch import StepCost
from symgrad.kernel.shapes import Iteration, Problems, RowData
from symgrad.kernel.skeletons.products import shares
from symgrad.kernel.skeletons.steps import cost_of, iterate_launch
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch import until as running
from symgrad.wgsl.dispatch.compiled import fits, lanes, printed_kernel, rows_together, steps_target
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.printing.source import Style

BOXES = [(-np.inf, np.inf), (0.3, 0.8)]
LARGEST = 37


def module(iteration: Iteration) -> str:
    (dispatch,) = iterate_launch(iteration, steps_target(iteration, together=True)).dispatches
    return printed_kernel(dispatch, Style()).modules[0]


def cost(case: Waves) -> StepCost:
    """What a step of a problem costs on a GPU."""
    iteration = case.made()
    return cost_of(iteration, steps_target(iteration, together=True))


def launched(gpu: Gpu, case: Waves) -> Launched:
    """The compiled launch of a case."""
    iteration = case.made()
    launch = iterate_launch(iteration, steps_target(iteration, together=True))
    return Launched(gpu, launch, Style())


def run(gpu: Gpu, case: Waves, steps: int) -> np.ndarray:
    """The states after these steps."""
    arrays = case.states(), *case.data.arrays(case.problems)
    return launched(gpu, case).run(*arrays, steps=steps)[0]


def compared(case: Waves, found: np.ndarray, steps: int) -> None:
    """All of a state that is continuous: no more than a few times the errors of NumPy's float32.

    What fewer points than parameters lead to is rounding error, and is left out.
    """
    want, single = case.expected(steps), case.expected(steps, dtype=np.float32)
    (x, memory, tail), (x2, memory2, tail2), (x3, memory3, _) = (
        case.layout.split(s) for s in (found, want, single)
    )
    trials = [(x, x2, x3)] if case.points > case.n else []
    for a, b, c in (*trials, *zip(memory[:4], memory2[:4], memory3[:4], strict=True)):
        allowed = 5.0 * np.abs(c - b).max() + 2e-6 * np.abs(b).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=allowed)
    np.testing.assert_array_equal(tail[:, 0], tail2[:, 0])


@pytest.mark.parametrize("points", [1, 63, 64, 65, 700])
def test_rows_by_the_tile(gpu: Gpu, points: int) -> None:
    case = Waves(5, 9, points)
    found = run(gpu, case, 1)
    assert rows_together(case.made(), Problems(1_000_000, points))
    compared(case, found, 1)


@pytest.mark.parametrize(
    ("n", "bounds"),
    [
        (3, BOXES[0]), (3, BOXES[1]), (17, BOXES[0]), (28, BOXES[1]),
        pytest.param(17, BOXES[1], marks=pytest.mark.slow),  # which takes long to compile
        pytest.param(28, BOXES[0], marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_steps(gpu: Gpu, n: int, bounds: tuple[float, float]) -> None:
    case = Waves(n, 7, 100, bounds, 0.25)
    found = run(gpu, case, 3)
    compared(case, found, 3)


def test_workgroups_and_teams_are_of_all_sizes() -> None:
    sizes = [(lanes(n), shares(n, lanes(n))) for n in (3, 17, 27, 28)]
    assert sizes == [(32, 4), (32, 2), (32, 1), (64, 1)]


def test_several_residuals_of_a_row(gpu: Gpu) -> None:
    case = Waves(4, 70, 90, residuals=3)
    found = run(gpu, case, 2)
    compared(case, found, 2)


def test_no_rows_sum_to_nothing(gpu: Gpu) -> None:
    case = Waves(4, 3, 0)
    found = run(gpu, case, 1)
    _, memory, tail = case.layout.split(found)
    np.testing.assert_array_equal(memory[3], 0.0)
    np.testing.assert_array_equal(tail[:, 2], 0.0)


def test_sums_keep_their_rounding_errors(gpu: Gpu) -> None:
    case = Waves(4, 2, 12_000)
    y = case.y
    y[:, 0] = (
        23_000.0  # half the last bit of its square is more than what a tile's others add up to
    )
    (found,) = launched(gpu, case).run(case.states(), case.x, y, steps=1)
    want = iterate(case.made(), case.states(), 1, RowData(case.x, y), np.float64)
    for k in (1, 2):
        a, b = (case.layout.split(s)[1][k] for s in (found, want))
        np.testing.assert_allclose(a, b, rtol=0, atol=2.4e-7 * np.abs(b).max())


def test_one_bad_problem_harms_no_other(gpu: Gpu) -> None:
    case = Waves(4, 5, 30)
    loop, y = launched(gpu, case), case.y
    (clean,) = loop.run(case.states(), case.x, y, steps=5)
    y[1], y[2] = np.nan, 1e30
    (found,) = loop.run(case.states(), case.x, y, steps=5)
    others = np.array([0, 3, 4])
    np.testing.assert_array_equal(found[others], clean[others])
    assert (found[1:3, -2] == -2).all() and not found[1:3, -1].any()


def test_how_it_is_cut_changes_nothing(gpu: Gpu) -> None:
    case = Waves(5, 20, 80)
    want, loop = run(gpu, case, 6), launched(gpu, case)
    limits = {"most_operations": 1, "most_groups": 64, "most_iterations": 500}
    for name, value in limits.items():
        setattr(loop.steps, name, value)
        (found,) = loop.run(case.states(), case.x, case.y, steps=6)
        np.testing.assert_array_equal(found, want)


def test_turns_are_bounded(gpu: Gpu) -> None:
    case = Waves(30, 1, 1)
    loop, once = launched(gpu, case), cost(case)
    assert loop.steps.most(10_000) * once.iterations_at(10_000) <= running.MOST_ITERATIONS
    assert once.iterations_at(64_000) - once.iterations_at(0) == 1_000 * 22
    twice = cost(Waves(30, 1, 1, residuals=2))
    assert twice.iterations_at(6_400) == once.iterations_at(12_800)
    state, x = case.states(), np.zeros((400_000, 1), np.float32)
    with pytest.raises(InputError, match="400,000 rows are too many for a problem on a GPU"):
        loop.run(state, x, x[None], steps=1)


def test_what_fits_in_a_workgroup() -> None:
    assert [n for n in range(1, 100) if fits(n)] == [*range(1, LARGEST + 1)]
    with pytest.raises(InputError, match="a matrix of 38 variables"):
        module(Waves(LARGEST + 1, 1, 1).made())


def test_code_grows_with_the_variables_alone() -> None:
    lengths = [len(module(Waves(n, 1, 1).made()).splitlines()) for n in (10, 20, 30)]
    assert abs(lengths[2] - 2 * lengths[1] + lengths[0]) <= 0.02 * lengths[2]


@needs_tint
def test_tint_takes_them() -> None:
    cases = [Waves(n, 1, 1, box, 0.3, r) for n in (3, LARGEST) for box in BOXES for r in (1, 2)]
    sources = [module(case.made()) for case in cases]
    assert check_with_tint(sources) == [None] * len(sources)


@pytest.mark.parametrize("bounds", [None, (0.3, 0.8)], ids=["free", "bounded"])
def test_fits_of_many_parameters_are_those_of_the_cpu(gpu: Gpu, bounds: Any) -> None:
    n, x = 13, np.linspace(0.05, 6.0, 150)  # one more than straight-line code is for
    draw = np.random.default_rng(1)
    true = draw.uniform(0.2, 1.0, (100, n))
    phases = np.outer(np.arange(n - 2) // 2 + 1, x)
    series = np.where(np.arange(n - 2)[:, None] % 2, np.cos(phases), np.sin(phases))
    Y = true[:, :1] * np.exp(-true[:, 1:2] * x) + true[:, 2:] @ series
    Y = Y + 0.01 * draw.normal(size=Y.shape)

    def f(x: Any, *p: Any) -> Any:
        found = p[0] * np.exp(-p[1] * x)
        for k, c in enumerate(p[2:]):
            phase = (k // 2 + 1) * x
            found = found + c * (np.cos(phase) if k % 2 else np.sin(phase))
        return found

    options: dict[str, Any] = {"bounds": bounds, "covariance": True}
    want = sg.fit_many(f, x, Y, [0.5] * n, device="cpu", **options)
    found = sg.fit_many(f, x, Y, [0.5] * n, device="gpu", **options)
    assert found.success.all() and want.success.all()
    np.testing.assert_allclose(found.fun, want.fun, rtol=1e-4)
    deviations = np.sqrt(np.diagonal(want.cov, axis1=1, axis2=2))
    assert np.max(np.abs(found.x - want.x) / deviations) < 0.02
    np.testing.assert_allclose(np.sqrt(np.diagonal(found.cov, axis1=1, axis2=2)), deviations, 1e-2)
