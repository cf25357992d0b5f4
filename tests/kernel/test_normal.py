"""Iterations with a matrix as programs of the kernel language: against their meaning."""

from __future__ import annotations

import numpy as np
import pytest
from matrices import Waves

from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import Target
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.skeletons.steps import ACTIVE, DONE, normal_program, parts_of

STEPS = 3


def run(case: Waves, target: Target) -> tuple[np.ndarray, np.ndarray]:
    """The states after some steps, and what the kernel tells of them."""
    kernel = normal_program(case.made(), target)
    verify(kernel)
    states, progress = case.states().copy(), np.zeros(2, np.uint32)
    arrays = {"own": np.ascontiguousarray(case.y), "shared": case.x, "states": states}
    groups = case.problems if target.threads > 1 else case.problems // target.width
    arguments = {"steps": STEPS, "rows": case.points}
    execute(kernel, arrays | {"progress": progress}, case.problems, groups, arguments=arguments)
    return states, progress


@pytest.mark.parametrize(
    "target", [WorkgroupTarget(32, grid=True), SimdTarget(2)], ids=["group", "alone"]
)
@pytest.mark.parametrize("n", [3, 6])
def test_steps(n: int, target: Target) -> None:
    case = Waves(n, 4, 70, (0.3, 0.8), 0.25, residuals=2 if n == 3 else 1)
    found, progress = run(case, target)
    want = case.expected(STEPS)
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12 * np.abs(want).max())
    if target.threads > 1:
        taken = case.layout.split(want)[2][:, 0]
        assert progress[DONE] >= taken.sum() and progress[ACTIVE] == (want[:, -1] != 0).sum()


def test_residuals_of_a_row_that_share_their_computation() -> None:
    case = Waves(3, 2, 17, residuals=9)
    rows, many = case.made().rows, Waves(3, 1, 1, residuals=70).made().rows
    assert rows and many
    assert [len(part) for part in parts_of(rows, alone=False)] == [9]
    assert [len(part) for part in parts_of(many, alone=True)] == [35, 35]
    for target in WorkgroupTarget(32, grid=True), SimdTarget(2):
        want, (found, _) = case.expected(STEPS), run(case, target)
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12 * np.abs(want).max())


def test_more_groups_than_problems() -> None:
    case, target = Waves(3, 2, 5), WorkgroupTarget(32, grid=True)
    kernel, states = normal_program(case.made(), target), case.states().copy()
    progress = np.zeros(2, np.uint32)
    arrays = {"own": np.ascontiguousarray(case.y), "shared": case.x}
    arrays |= {"states": states, "progress": progress}
    execute(kernel, arrays, 2, groups=5, arguments={"steps": 1, "rows": case.points})
    np.testing.assert_allclose(states, case.expected(1), rtol=1e-9)
    assert progress[DONE] == 2
