"""The program of iterations, by the language's interpreter: SIMD, alone, in thread groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from iterations import countdown, fit, rosenbrock, rosenbrock_starts
from reference_kernels import iterate

from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import Target
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.shapes import NO_DATA, Iteration, RowData
from symgrad.kernel.skeletons.iterate import iterate_program

TARGETS = [
    SimdTarget(4),
    SimdTarget(4, carried=0),
    WorkgroupTarget(8, grid=True, alone=True),
    WorkgroupTarget(8, grid=True, alone=True, together=1),
    WorkgroupTarget(8, grid=True),
]
NAMES = ["in step", "in memory", "alone", "row by row", "teams"]
targets = pytest.mark.parametrize("target", TARGETS, ids=NAMES)


def run(
    iteration: Iteration, target: Any, state: np.ndarray, steps: int, data: RowData = NO_DATA
) -> tuple[np.ndarray, np.ndarray]:
    """The states after these steps, and what the program says of its progress."""
    kernel, count = iterate_program(iteration, target), len(state)
    verify(kernel)
    groups = count if target.threads > 1 else -(-count // target.width)
    rows, own = data.rows, data.own
    states = np.array(state.T if target.by_columns else state, float, order="C")
    mine = np.zeros(1) if own is None else np.moveaxis(own, 0, -1) if target.by_columns else own
    arrays = {
        "states": states, "own": np.ascontiguousarray(mine), "progress": np.zeros(2, np.uint32),
        "shared": np.zeros(1) if data.shared is None else data.shared,
    }  # fmt: skip
    if any(not b.size and b.space == "own" for b in kernel.buffers):
        arrays["local"] = np.zeros(rows * iteration.own * groups * target.width)
    execute(kernel, arrays, count, groups, arguments={"steps": steps, "rows": rows})
    return states.T if target.by_columns else states, arrays["progress"]


@targets
def test_steps_until_the_flag_is_0(target: Target) -> None:
    left = np.array([0, 3, 50, 7, 7, 1, 12, 2, 9, 40, 5, 6])
    state = np.stack([np.zeros(12), left], axis=1).astype(float)
    for steps in (0, 1, 10):
        done = np.minimum(left, steps)
        found, progress = run(countdown(), target, state, steps)
        np.testing.assert_array_equal(found, np.stack([done, left - done], axis=1))
        if not target.whole:
            assert progress.tolist() == [done.sum(), (left > steps).sum()]


@targets
def test_a_state_of_some_numbers(target: Target) -> None:
    made, state = rosenbrock("float64"), rosenbrock_starts(20)
    np.testing.assert_allclose(run(made, target, state, 30)[0], iterate(made, state, 30))


@targets
@pytest.mark.parametrize("data", ["shared", "own", "both"])
@pytest.mark.parametrize("rows", [0, 1, 5, 70])
def test_sums_over_rows(rows: int, data: str, target: Target) -> None:
    made = fit(4, max(rows, 1), data, "float64")
    some = RowData(*(a if a is None else a[..., :rows, :] for a in (made.shared, made.own)))
    found, _ = run(made.iteration, target, made.state, 5, some)
    want = iterate(made.iteration, made.state, 5, some)
    np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-12)
