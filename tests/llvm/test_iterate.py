"""Iterations on the CPU: against their meaning, in registers and in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from iterations import (
    compiled,
    countdown,
    fit,
    long_chain,
    long_starts,
    rosenbrock,
    rosenbrock_starts,
    sums_over_rows,
)
from machines import code_sizes, cores
from reference_kernels import iterate
from tables import row

from symgrad.errors import InputError
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.shapes import Iteration, Lookup, RowData
from symgrad.kernel.skeletons.iterate import iterate_program
from symgrad.llvm.dispatch import compiled as dispatch
from symgrad.llvm.dispatch.until import Steps, stream
from symgrad.llvm.printing.printer import print_kernel
from symgrad.pipeline import DTypeName

DTYPES = ["float32", "float64"]
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


PARTS = {"long_batch": 0, "function": 5}
FORMS: dict[str, dict[str, int]] = {
    "registers": {},
    "once": {"written_twice": -1},
    "parts": PARTS,
    "memory": {**PARTS, "carried_numbers": 0},
}
"""All forms of a step, for iterations that are short enough for the first, by sizes of code."""


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    with code_sizes(**FORMS[request.param]):
        yield request.param


@pytest.mark.parametrize("dtype", DTYPES)
def test_rosenbrock(dtype: DTypeName, form: str) -> None:
    made, starts = rosenbrock(dtype), rosenbrock_starts(1000)
    loop, want = compiled(made, dtype=dtype), iterate(made, starts, 300)
    assert len(set(want[:, 2])) > 20, "they should end at different steps"
    for count in (0, 1, 3, 16, 17, 1000):
        found = loop.run(starts[:count], 300)
        assert found.dtype == dtype and found.shape == (count, 4)
        np.testing.assert_allclose(found, want[:count], rtol=0, atol=3 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_problem_stops_by_itself(dtype: DTypeName, form: str) -> None:
    left = np.random.default_rng(0).integers(0, 100, 1000)
    state = np.stack([np.zeros(1000), left], axis=1)
    loop = compiled(countdown(dtype), dtype=dtype)
    for steps in (0, 1, 50, 99, 200, 10**15):
        want = np.minimum(left, steps)
        np.testing.assert_array_equal(loop.run(state, steps), np.stack([want, left - want], 1))
    np.testing.assert_array_equal(state[:, 1], left)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data", ["shared", "own", "both"])
def test_sums_over_rows(data: str, dtype: DTypeName, form: str) -> None:
    whole = fit(35, 100, data, dtype)
    loop = compiled(whole.iteration, dtype=dtype)
    for count in (1, 7, 32, 100):
        made = whole.first(count)
        found = loop.run(made.state, 60, made.data)
        want = sums_over_rows(data, count)
        np.testing.assert_array_equal(found[:, 4:], want[:, 4:])
        np.testing.assert_allclose(found[:, :4], want[:, :4], rtol=0, atol=TOLERANCE[dtype])


def test_any_number_of_problems_with_data() -> None:
    loop = compiled(fit(1, 5, "both").iteration)
    for problems in (1, 3, 16, 17, 1000):
        with row(problems=problems):
            made = fit(problems, 5, "both")
            found = loop.run(made.state, 10, made.data)
            np.testing.assert_allclose(found, made.expected(10), rtol=0, atol=1e-5)


def test_no_rows_sum_to_nothing(form: str) -> None:
    made = fit(20, 1, "both")
    assert made.shared is not None and made.own is not None
    loop = compiled(made.iteration)
    found = loop.run(made.state, 3, RowData(made.shared[:0], made.own[:, :0]))
    active = made.state[:, 5] != 0
    np.testing.assert_array_equal(found[:, :3], made.state[:, :3].astype(np.float32))
    np.testing.assert_array_equal(found[active, 4:], [[1, 0]] * active.sum())


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_bodies(dtype: DTypeName) -> None:
    made, state = long_chain(3_500, dtype), long_starts(37)
    assert len(made.update.graph) > 3_000
    found = compiled(made, dtype=dtype).run(state, 10)
    np.testing.assert_allclose(found, iterate(made, state, 10), rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_bodies_at_rows(dtype: DTypeName) -> None:
    made = fit(20, 40, "both", dtype, more=130)
    with code_sizes(long_batch=300):
        found = compiled(made.iteration, dtype=dtype).run(made.state, 10, made.data)
    np.testing.assert_allclose(found, made.expected(10), rtol=0, atol=5 * TOLERANCE[dtype])


def test_sums_in_float32_are_as_good_as_in_float64() -> None:
    made = fit(16, 20_000, "shared")
    found = compiled(made.iteration).run(made.state, 1, RowData(made.shared))
    loss = made.expected(1)[:, 3]
    some = loss > 0
    assert some.sum() > 10
    np.testing.assert_allclose(found[some, 3], loss[some], rtol=1e-6)


def test_nan_in_one_problem_stays_there(form: str) -> None:
    made = fit(33, 10, "own")
    assert made.own is not None
    loop = compiled(made.iteration)
    clean = loop.run(made.state, 20, RowData(own=made.own))
    broken = made.own.copy()
    broken[5] = np.nan
    found = loop.run(made.state, 20, RowData(own=broken))
    others = np.arange(33) != 5
    np.testing.assert_array_equal(found[others], clean[others])
    assert np.isnan(found[5, :3]).all() and found[5, 4] == 20


def test_nothing_is_active(form: str) -> None:
    state = np.full((40, 4), np.nan)
    state[:, 3] = 0
    found = compiled(rosenbrock()).run(state, 10)
    np.testing.assert_array_equal(found, state.astype(np.float32))


def test_a_flag_that_is_nan_is_active(form: str) -> None:
    found = compiled(countdown()).run(np.array([[0.0, np.nan]]), 7)
    assert found[0, 0] == 7


def test_the_same_bits_however_it_is_shared_out() -> None:
    made = fit(1000, 7, "both")
    loop = compiled(made.iteration)

    def run(_: int = 0) -> np.ndarray:
        return loop.run(made.state, 30, made.data)

    want = run()
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(run, range(8)):
            np.testing.assert_array_equal(found, want)
    with cores(2, pieces=50):
        np.testing.assert_array_equal(run(), want)


def test_arrays_of_any_memory_order_and_dtype() -> None:
    made = fit(20, 9, "both")
    assert made.shared is not None and made.own is not None
    loop = compiled(made.iteration)
    want = loop.run(made.state, 5, made.data)
    own = np.asfortranarray(made.own.astype(np.float32))
    found = loop.run(np.asfortranarray(made.state), 5, RowData(made.shared[::-1][::-1], own))
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("state", "shared", "own", "message"),
    [
        ((4, 5), (3, 2), (4, 3, 1), r"state of shape \(4, 5\): expected \(S, 6\)"),
        ((4, 6), None, (4, 3, 1), "no array as shared data: its rows have 2 columns"),
        ((4, 6), (3, 2), (4, 3, 2), r"own data of shape \(4, 3, 2\): expected \(4, 3, 1\)"),
        ((4, 6), (3, 2), (4, 5, 1), r"own data of shape \(4, 5, 1\): expected \(4, 3, 1\)"),
        ((4, 6), (3, 2), (5, 3, 1), r"own data of shape \(5, 3, 1\): expected \(4, 3, 1\)"),
        ((4, 6), (3, 1), (4, 3, 1), r"shared data of shape \(3, 1\): expected \(R, 2\)"),
    ],
)
def test_wrong_shapes_are_refused(state: tuple, shared: tuple, own: tuple, message: str) -> None:
    loop = compiled(fit(4, 3, "both").iteration)
    arrays = [None if s is None else np.zeros(s) for s in (shared, own)]
    with pytest.raises(InputError, match=message):
        loop.run(np.zeros(state), 1, RowData(*arrays))


def test_the_source_is_the_same_every_time() -> None:
    shape = dispatch.host().shape("float32", True)
    functions = dispatch.definitions_for("accurate", "float32")
    made = fit(1, 1, "both").iteration
    kernels = [iterate_program(made, SimdTarget(shape.lanes)) for _ in range(2)]
    first, second = (print_kernel(k, functions, shape) for k in kernels)
    assert first == second


def _without(iteration: Iteration, **said: Any) -> Callable[[], Iteration]:
    """An iteration that is none, with something else in the place of what it needs."""
    return lambda: replace(iteration, **said)


def test_an_iteration_that_no_loop_can_do_is_none() -> None:
    simple, data = countdown(), fit(3, 5, "both").iteration
    assert data.rows is not None
    first, looked = data.rows.outputs[0], Lookup(0, 1, 1)
    columns = data.rows.columns
    for made, message in (
        (_without(simple, state=1), "results"),
        (_without(simple, state=0), "flag"),
        (_without(data, rows=None), "inputs"),
        (_without(data, shared=columns + 1), "shared"),
        (_without(data, rows=replace(data.rows, normal=True)), "normal"),
        (_without(data, rows=replace(data.rows, outputs=())), "summed"),
        (
            _without(data, rows=replace(data.rows, outputs=(first, first), lookups=(looked,))),
            "look",
        ),
    ):
        with pytest.raises(AssertionError, match=message):
            made()


def steps_of(iteration: Iteration) -> Steps:
    """The machine code of an iteration."""
    return compiled(iteration).launched().steps


def test_compiled_code_gets_whole_blocks_of_its_dtype() -> None:
    loop = steps_of(countdown())
    room = np.zeros(loop.workspace(0) + 64, np.uint8)
    never, whole = threading.Event(), np.zeros((loop.lanes, 2), np.float32)
    data = RowData(*RowData().arrays(loop.lanes)).contiguous(np.float32)
    for state in (whole[1:], whole.astype(np.float64), np.asfortranarray(whole)):
        with pytest.raises(AssertionError, match=r"whole vectors|C order"):
            loop.call(state, data, room, 3, never)
    with pytest.raises(AssertionError, match="steps"):
        loop.run(whole, data, -1)


def test_loops_one_after_the_other_have_the_same_states_and_data() -> None:
    def ignored(*_: Any) -> None:
        pass

    loops = [(steps_of(made), 3) for made in (countdown(), rosenbrock())]
    with pytest.raises(AssertionError, match="other states"):
        stream(loops, 4, ignored, ignored, RowData(*RowData().arrays(4)))
    fitted = steps_of(fit(3, 5, "both").iteration)
    with pytest.raises(AssertionError, match="data of shapes"):
        stream([(fitted, 3)], 4, ignored, ignored, RowData(*RowData().arrays(4)))
