"""Iterations on a GPU: against their meaning, in both forms, in one dispatch and in many."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
from iterations import (
    compiled,
    computation,
    countdown,
    fit,
    long_chain,
    long_starts,
    rosenbrock,
    rosenbrock_starts,
    sums_over_rows,
)
from reference_kernels import iterate
from tables import row
from tint import check_with_tint, needs_tint

from symgrad.errors import DeviceError, InputError
from symgrad.kernel.shapes import NO_DATA, Iteration, Problems, RowData
from symgrad.kernel.skeletons.steps import iterate_launch
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch import compiled as emitting
from symgrad.wgsl.dispatch import until as running
from symgrad.wgsl.dispatch.compiled import printed_kernel, rows_together, steps_target
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.dispatch.until import printed_transpose
from symgrad.wgsl.printing.source import Style

FORMS = pytest.mark.parametrize("together", [False, True], ids=["invocation", "workgroup"])


def launched(gpu: Gpu, iteration: Iteration, together: bool = False) -> Launched:
    """The launch in this form, whatever the sizes."""
    launch = iterate_launch(iteration, steps_target(iteration, together))
    return Launched(gpu, launch, Style())


def run(loop: Launched, state: Any, steps: int, data: RowData = NO_DATA) -> Any:
    """The states after these steps."""
    return loop.run(state, *data.arrays(len(state)), steps=steps)[0]


class Noting:
    """A GPU that notes the steps of each dispatch of a loop."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.steps = gpu, list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.gpu, name)

    def bind(self, count: int, arrays: Any, readable: int, words: Any, floats: Any) -> Any:
        if len(words) == 2:  # not of a transposition
            self.steps.append(words[0])
        return self.gpu.bind(count, arrays, readable, words, floats)


def noted(loop: Launched) -> list[int]:
    """The steps of each dispatch to come."""
    loop.steps.gpu = noting = cast(Any, Noting(loop.gpu))
    return noting.steps


@FORMS
def test_rosenbrock(gpu: Gpu, together: bool) -> None:
    loop, starts = launched(gpu, rosenbrock(), together), rosenbrock_starts(1000)
    want = iterate(rosenbrock(), starts, 300)
    for count in (0, 1, 3, 64, 65, 1000):
        found = run(loop, starts[:count], 300)
        assert found.dtype == np.float32 and found.shape == (count, 4)
        np.testing.assert_allclose(found, want[:count], rtol=0, atol=2e-5)


@FORMS
def test_every_problem_stops_by_itself(gpu: Gpu, together: bool) -> None:
    left = np.random.default_rng(0).integers(0, 100, 300)
    state = np.stack([np.zeros(300), left], axis=1)
    loop = launched(gpu, countdown(), together)
    for steps in (0, 1, 50, 99, 200, 10**12):
        want = np.minimum(left, steps)
        np.testing.assert_array_equal(run(loop, state, steps), np.stack([want, left - want], 1))
    np.testing.assert_array_equal(state[:, 1], left)


@FORMS
@pytest.mark.parametrize("data", ["shared", "own", "both"])
def test_sums_over_rows(gpu: Gpu, data: str, together: bool) -> None:
    whole = fit(35, 100, data)
    loop = launched(gpu, whole.iteration, together)
    for count in (1, 7, 100):
        made = whole.first(count)
        found = run(loop, made.state, 60, made.data)
        want = sums_over_rows(data, count)
        np.testing.assert_array_equal(found[:, 4:], want[:, 4:])
        np.testing.assert_allclose(found[:, :4], want[:, :4], rtol=0, atol=1e-5)


def test_any_number_of_problems_with_data(gpu: Gpu) -> None:
    loop = launched(gpu, fit(1, 5, "both").iteration)
    for problems in (1, 16, 17, 1000):
        with row(problems=problems):
            made = fit(problems, 5, "both")
            found = run(loop, made.state, 10, made.data)
            np.testing.assert_allclose(found, made.expected(10), rtol=0, atol=1e-5)


@FORMS
def test_no_rows_sum_to_nothing(gpu: Gpu, together: bool) -> None:
    made = fit(20, 1, "both")
    assert made.shared is not None and made.own is not None
    loop = launched(gpu, made.iteration, together)
    found = run(loop, made.state, 3, RowData(made.shared[:0], made.own[:, :0]))
    active = made.state[:, 5] != 0
    np.testing.assert_array_equal(found[:, :3], made.state[:, :3].astype(np.float32))
    np.testing.assert_array_equal(found[active, 4:], [[1, 0]] * active.sum())


@FORMS
def test_more_sums_than_workgroup_memory_holds(gpu: Gpu, together: bool) -> None:
    made = fit(5, 150, "both", more=70)
    found = run(launched(gpu, made.iteration, together), made.state, 10, made.data)
    np.testing.assert_allclose(found, made.expected(10), rtol=0, atol=3e-5)


def test_sums_keep_their_rounding_errors(gpu: Gpu) -> None:
    made = fit(16, 20_000, "shared")
    loss = made.expected(1)[:, 3]
    some = loss > 0
    for together in (False, True):
        found = run(launched(gpu, made.iteration, together), made.state, 1, RowData(made.shared))
        np.testing.assert_allclose(found[some, 3], loss[some], rtol=1e-6)


@FORMS
def test_sums_that_overflow_are_infinite(gpu: Gpu, together: bool) -> None:
    made = fit(3, 40, "own")
    assert made.own is not None
    own = made.own.copy()
    own[1, :, 2] = 1e30
    found = run(launched(gpu, made.iteration, together), made.state, 1, RowData(own=own))
    assert found[1, 3] == np.inf
    assert np.isfinite(found[[0, 2]]).all()


def test_long_bodies(gpu: Gpu) -> None:
    made, state = long_chain(3_500), long_starts(37)
    assert len(made.update.graph) > 3_000
    found = run(launched(gpu, made), state, 10)
    np.testing.assert_allclose(found, iterate(made, state, 10), rtol=0, atol=2e-5)


def test_too_long_bodies_are_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitting, "MOST_LINES", 5)
    with pytest.raises(InputError, match=r"a step of [\d,]+ statements and 4 numbers"):
        launched(gpu, rosenbrock())


def test_too_many_sums_are_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitting, "MOST_SUMS", 3)
    iteration = fit(1, 1, "own").iteration
    assert not rows_together(iteration, Problems(100, 1_000))
    with pytest.raises(InputError, match="4 sums over rows: a workgroup of a GPU has memory for 3"):
        launched(gpu, iteration, together=True)


@FORMS
def test_nan_in_one_problem_stays_there(gpu: Gpu, together: bool) -> None:
    made = fit(33, 10, "own")
    assert made.own is not None
    loop = launched(gpu, made.iteration, together)
    clean = run(loop, made.state, 20, RowData(own=made.own))
    broken = made.own.copy()
    broken[5] = np.nan
    found = run(loop, made.state, 20, RowData(own=broken))
    others = np.arange(33) != 5
    np.testing.assert_array_equal(found[others], clean[others])
    assert np.isnan(found[5, :3]).all() and found[5, 4] == 20


@FORMS
def test_nothing_is_active(gpu: Gpu, together: bool) -> None:
    state = np.full((40, 4), np.nan)
    state[:, 3] = -0.0
    loop = launched(gpu, rosenbrock(), together)
    steps = noted(loop)
    np.testing.assert_array_equal(run(loop, state, 10**6), state.astype(np.float32))
    assert len(steps) == 1


@FORMS
def test_a_flag_that_is_nan_is_active(gpu: Gpu, together: bool) -> None:
    found = run(launched(gpu, countdown(), together), np.array([[0.0, np.nan]]), 7)
    assert found[0, 0] == 7


# dispatches ---------------------------------------------------------------------------------------


@FORMS
def test_loops_do_not_end_at_65535(gpu: Gpu, together: bool) -> None:
    loop = launched(gpu, countdown(), together)
    steps = noted(loop)
    found = run(loop, np.array([[0.0, 70_000.0], [0.0, 5.0], [0.0, 1e7]]), 150_000)
    np.testing.assert_array_equal(found, [[70_000, 0], [5, 0], [150_000, 1e7 - 150_000]])
    assert sum(steps) == 150_000 and max(steps) <= running.MOST_ITERATIONS


def test_rows_count_as_turns(gpu: Gpu) -> None:
    made = fit(3, 50_000, "shared")
    loop = launched(gpu, made.iteration, False)
    steps = noted(loop)
    made.state[:, 5] = 1
    found = run(loop, made.state, 3, RowData(made.shared))
    assert steps == [1, 1, 1]
    np.testing.assert_allclose(found, made.expected(3), rtol=1e-5, atol=1e-5)


def test_ten_thousand_steps(gpu: Gpu) -> None:
    made, state = rosenbrock(), rosenbrock_starts(200)
    state[:, 3] = 1
    loop = launched(gpu, made)
    steps = noted(loop)
    loop.steps.most_operations = 20_000
    found = run(loop, state, 10_000)
    assert len(steps) > 3
    np.testing.assert_allclose(found, iterate(made, state, 10_000), rtol=0, atol=1e-4)


@FORMS
def test_how_it_is_cut_changes_nothing(gpu: Gpu, together: bool) -> None:
    made = fit(300, 70, "both")
    loop = launched(gpu, made.iteration, together)
    want = run(loop, made.state, 50, made.data)
    for loop.steps.most_operations, loop.steps.points_transposed in ((1, 1 << 20), (1, 64)):
        np.testing.assert_array_equal(run(loop, made.state, 50, made.data), want)


@pytest.mark.parametrize("problems", [64, 130])
def test_chunks_of_own_data(gpu: Gpu, problems: int) -> None:
    made = fit(problems, 9, "own")
    loop = launched(gpu, made.iteration)
    want = run(loop, made.state, 20, RowData(own=made.own))
    loop.steps.points_transposed = 64
    assert made.own is not None
    for own in (made.own, DeviceArray.from_numpy(gpu, made.own)):
        np.testing.assert_array_equal(run(loop, made.state, 20, RowData(own=own)), want)


def test_forms_are_chosen_by_sizes(gpu: Gpu) -> None:
    iteration = fit(1, 1, "both").iteration
    assert not rows_together(iteration, Problems(1_000_000, 121))
    assert not rows_together(iteration, Problems(100, 5))
    assert rows_together(iteration, Problems(100, 10_000))
    assert rows_together(iteration, Problems(1_000_000, 100_000))


def test_too_many_rows_are_refused(gpu: Gpu) -> None:
    loop = launched(gpu, fit(1, 1, "shared").iteration, together=True)
    state, shared = np.zeros((1, 6)), np.zeros((5_000_000, 3), np.float32)
    with pytest.raises(InputError, match="5,000,000 rows are too many for a problem on a GPU"):
        run(loop, state, 1, RowData(shared))


# arrays -------------------------------------------------------------------------------------------


@FORMS
def test_arrays_on_the_device(gpu: Gpu, together: bool) -> None:
    made = fit(100, 30, "both")
    assert made.shared is not None and made.own is not None
    loop = launched(gpu, made.iteration, together)
    want = run(loop, made.state, 20, made.data)
    arrays = [DeviceArray.from_numpy(gpu, a) for a in (made.state, made.shared, made.own)]
    found = run(loop, arrays[0], 20, RowData(*arrays[1:]))
    assert isinstance(found, DeviceArray)
    np.testing.assert_array_equal(found.numpy(), want)
    np.testing.assert_array_equal(arrays[0].numpy(), made.state.astype(np.float32))


def test_data_that_stay_on_the_device(gpu: Gpu) -> None:
    made = fit(70, 30, "both")
    loop = launched(gpu, made.iteration)
    data = loop.steps.hold(70, made.data)
    once = loop.steps.run(made.state, data, 10)
    twice = loop.steps.run(once, data, 10)
    np.testing.assert_array_equal(twice, run(loop, made.state, 20, made.data))


@pytest.mark.usefixtures("gpu")
def test_wrong_shapes_are_refused() -> None:
    runner = compiled(fit(4, 3, "both").iteration, "gpu")
    with pytest.raises(InputError, match=r"own data of shape \(4, 5, 1\): expected \(4, 3, 1\)"):
        runner.run(np.zeros((4, 6)), 1, RowData(np.zeros((3, 2)), np.zeros((4, 5, 1))))


def test_shared_data_that_no_binding_holds(own_gpu: Gpu) -> None:
    own_gpu.max_binding = 4096
    loop = launched(own_gpu, fit(1, 1, "shared").iteration)
    with pytest.raises(DeviceError, match="too few for shared data of 12,000"):
        run(loop, np.zeros((1, 6)), 1, RowData(np.zeros((1000, 3))))


def test_own_data_that_no_binding_holds(own_gpu: Gpu) -> None:
    own_gpu.max_binding = 4096
    loop = launched(own_gpu, fit(1, 1, "own").iteration)
    with pytest.raises(DeviceError, match="too few for 64 problems of 1,200"):
        run(loop, np.zeros((1, 6)), 1, RowData(own=np.zeros((1, 100, 3))))


def test_threads_take_turns(gpu: Gpu) -> None:
    made = fit(200, 7, "both")
    loop = launched(gpu, made.iteration)
    want = run(loop, made.state, 30, made.data)
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: run(loop, made.state, 30, made.data), range(8))
    for one in found:
        np.testing.assert_array_equal(one, want)


# source -------------------------------------------------------------------------------------------


def source(iteration: Iteration, together: bool) -> str:
    (dispatch,) = iterate_launch(iteration, steps_target(iteration, together)).dispatches
    return printed_kernel(dispatch, Style()).modules[0]


def test_an_order_that_changes_places() -> None:
    made = Iteration(computation(lambda s: [s[1], s[0], s[2]], 3), 3)
    text = source(made, together=False)
    assert "let next_x0 = x1;" in text and "x0 = next_x0;" in text


def test_places_are_changed(gpu: Gpu) -> None:
    made = Iteration(computation(lambda s: [s[1], s[2], s[0], 1.0, s[4] - 1], 5), 5)
    found = run(launched(gpu, made), np.array([[1.0, 2, 3, 4, 2]]), 5)
    np.testing.assert_array_equal(found, [[3, 1, 2, 1, 0]])


@needs_tint
def test_tint_takes_them_all() -> None:
    iterations = [rosenbrock(), countdown(), long_chain(3_500)]
    iterations += [fit(1, 1, data).iteration for data in ("shared", "own", "both")]
    iterations.append(fit(1, 1, "both", more=130).iteration)
    sources = [source(made, together) for made in iterations for together in (False, True)]
    assert check_with_tint([*sources, *printed_transpose().modules]) == [None] * (len(sources) + 1)
