"""Kernels run by NumPy, against the same written in Python, for each invocation by itself."""

from __future__ import annotations

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.kernel.language.execute import POISON, execute
from symgrad.kernel.language.ir import KernelIR, Target, widen
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.language.verify import verify

X = np.array([0.5, -1.5, 2.0, 3.0, -0.25, 1.0, 4.0, -2.0])


def run(k: KernelIR, x: np.ndarray = X, columns: int = 1, dtype: type = np.float64) -> np.ndarray:
    """What a kernel writes to y (cells, columns), at x (cells,)."""
    verify(k)
    y = np.full((len(x), columns), 99.0, dtype)
    execute(k, {"x": np.asarray(x, dtype), "y": y}, len(x), dtype=dtype)
    return y


def own_number(k: KernelIR) -> int:
    return k.load(k.buffer("x", "read"), k.target.point(k))


def written(k: KernelIR, *values: int) -> KernelIR:
    """The kernel that writes these values of each invocation."""
    y = k.buffer("y", "write")

    def store() -> None:
        for c, value in enumerate(values):
            k.store(y, k.offset(k.cell, len(values), c), value)

    k.when(k.add(ops.word_lt, k.cell, k.count), store)
    return k


TARGETS = [SimdTarget(4), SimdTarget(8), WorkgroupTarget(4), WorkgroupTarget(8)]


@pytest.mark.parametrize("target", TARGETS, ids=repr)
def test_a_loop_whose_turns_differ(target: Target) -> None:
    k = KernelIR(target)
    x = own_number(k)
    iterations = k.add(ops.nearest_word, k.add(ops.abs, x))

    def body(i: int, carries: list[int]) -> list[int]:
        a, b = carries
        return [k.add(ops.add, b, k.add(ops.word_float, i)), k.add(ops.mul, a, x)]

    (a, b), count = k.loop(k.word(0), iterations, [x, k.constant(1.0)], body)
    found = run(written(k, a, b, k.add(ops.word_float, count)), columns=3)
    for value, row in zip(X, found, strict=True):
        a, b = value, 1.0
        for i in range(round(abs(value))):
            a, b = b + i, a * value
        assert row.tolist() == [a, b, round(abs(value))]


@pytest.mark.parametrize("down", [False, True])
def test_loops_up_and_down_from_bounds_of_the_invocation(down: bool) -> None:
    k = KernelIR(SimdTarget(4))
    own_number(k)
    lo = k.add(ops.word_div, k.local, k.word(2))

    def body(i: int, carries: list[int]) -> list[int]:
        longer = k.add(ops.mul, carries[0], k.constant(10.0))
        return [k.add(ops.add, longer, k.add(ops.word_float, i))]

    (digits,), count = k.loop(lo, k.word(3), [k.constant(0.0)], body, down=down)
    found = run(written(k, digits, k.add(ops.word_float, count)), columns=2)
    assert found[:, 0].tolist() == ([210, 210, 21, 21] if down else [12, 12, 12, 12]) * 2
    assert (found[:, 1] == 3).all()


def test_no_turn_where_the_bounds_are_the_other_way_round() -> None:
    k = KernelIR(SimdTarget(4))
    x = own_number(k)
    (y,), count = k.loop(k.word(5), k.local, [x], lambda _, c: [k.add(ops.exp, c[0])])
    found = run(written(k, y, k.add(ops.word_float, count)), columns=2)
    assert found.tolist() == [[value, 5] for value in X]


def test_a_test_ends_the_loop_of_those_it_fails() -> None:
    k = KernelIR(SimdTarget(8))
    x = own_number(k)
    (y,), count = k.loop(
        k.word(0), k.word(5), [x], lambda _, c: [k.add(ops.mul, c[0], k.constant(2.0))],
        test=lambda _, c: k.add(ops.lt, c[0], k.constant(3.0)),
    )  # fmt: skip
    found = run(written(k, y, k.add(ops.word_float, count)), columns=2)
    for value, row in zip(X, found, strict=True):
        iterations = 0
        while iterations < 5 and value < 3.0:
            value, iterations = value * 2.0, iterations + 1
        assert row.tolist() == [value, iterations]


def test_the_sides_of_an_if_are_taken_by_their_own() -> None:
    k = KernelIR(SimdTarget(4))
    x, divisions = own_number(k), k.buffer("a", "own", size=2)
    k.fill(divisions)
    positive = k.add(ops.lt, k.constant(0.0), x)

    def then() -> list[int]:
        k.store(divisions, k.word(1), k.constant(5.0))
        return [k.add(ops.log, x)]

    (y,) = k.choose(positive, then, lambda: [k.add(ops.mul, x, x)])
    found = run(written(k, y, k.load(divisions, k.word(1))), columns=2)
    np.testing.assert_array_equal(found[:, 0], [np.log(v) if v > 0 else v * v for v in X])
    np.testing.assert_array_equal(found[:, 1], np.where(X > 0, 5.0, 0.0))


def test_arrays_of_an_invocations_own() -> None:
    k = KernelIR(SimdTarget(4))
    x, a = own_number(k), k.buffer("a", "own", size=3)
    words = k.buffer("w", "own", "u", size=1)
    k.fill(a)
    k.store(words, k.word(0), k.add(ops.word_div, k.local, k.word(2)))
    at = k.load(words, k.word(0))
    k.store(a, at, x)
    k.store(a, at, x, add=True)
    found = run(written(k, *(k.load(a, k.word(c)) for c in range(3))), columns=3)
    wanted = np.zeros((8, 3))
    wanted[range(8), np.arange(8) % 4 // 2] = 2 * X
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("target", TARGETS, ids=repr)
def test_a_sum_over_a_group(target: Target) -> None:
    k = KernelIR(target)
    x = own_number(k)
    total, twice = k.target.sum_group(k, [x, k.add(ops.mul, x, x)])
    found = run(written(k, total, twice), columns=2)
    for row, group in zip(
        found, np.repeat(X.reshape(-1, target.width), target.width, 0), strict=True
    ):
        np.testing.assert_allclose(row, [group.sum(), (group * group).sum()], rtol=1e-15)


@pytest.mark.parametrize("target", TARGETS, ids=repr)
def test_wide_sums_keep_what_floats_lose(target: Target) -> None:
    k = KernelIR(target)
    x = own_number(k)
    zero = k.constant(0.0)

    def body(_: int, totals: list[int]) -> list[int]:
        return [t for total in target.grouped(totals) for t in target.wide_add(k, total, x)]

    inits = [k.add(widen, zero) if kind == "d" else zero for kind in target.wide]
    totals, _ = k.loop(k.word(0), k.word(1000), inits, body)
    result = target.narrow(k, target.grouped(totals)[0])
    x32 = np.full(8, 0.1, np.float32)
    found = run(written(k, result), x32, dtype=np.float32)
    assert (found == np.float32(np.float64(np.float32(0.1)) * 1000)).all()


def test_past_the_end_nothing_is_written() -> None:
    k = KernelIR(WorkgroupTarget(4))
    k = written(k, own_number(k))
    assert run(k, X[:5])[:, 0].tolist() == X[:5].tolist()


def test_memory_that_nobody_has_written_is_poison() -> None:
    k = KernelIR(SimdTarget(4))
    own_number(k)
    k = written(k, k.load(k.buffer("a", "own", size=2), k.word(0)))
    assert np.isnan(run(k)).all()
    assert np.isnan(POISON["f"])


def test_an_index_out_of_bounds_is_found() -> None:
    k = KernelIR(SimdTarget(4))
    own_number(k)
    k.store(k.buffer("a", "own", size=2), k.local, k.constant(0.0))
    with pytest.raises(AssertionError, match="index 3 of a, which has 2 numbers"):
        run(written(k, k.constant(0.0)))


def test_a_missing_barrier_is_found() -> None:
    def kernel(barrier: bool, add: bool = False) -> KernelIR:
        k = KernelIR(WorkgroupTarget(4))
        tile = k.buffer("tile", "group", size=4)
        k.store(tile, k.local, own_number(k))
        if barrier:
            k.barrier()
        next_one = k.add(ops.word_min, k.add(ops.word_add, k.local, k.word(1)), k.word(3))
        found = k.load(tile, next_one)
        if add:
            k.store(tile, k.local, found)
        return written(k, found)

    found = run(kernel(barrier=True))
    assert found[:, 0].tolist() == X[[1, 2, 3, 3, 5, 6, 7, 7]].tolist()
    for wrong in (kernel(barrier=False), kernel(barrier=True, add=True)):
        with pytest.raises(AssertionError, match="two invocations meet in tile"):
            run(wrong)


def test_all_of_a_group_agree() -> None:
    k = KernelIR(WorkgroupTarget(4))
    x, place = own_number(k), k.buffer("place", "group", size=4)
    k.store(place, k.local, x)
    first = k.agreed(place, k.word(0))
    k.store(place, k.local, first)
    assert run(written(k, first))[:, 0].tolist() == [X[0]] * 4 + [X[4]] * 4

    k = KernelIR(WorkgroupTarget(4))
    x, place = own_number(k), k.buffer("place", "group", size=4)
    k.store(place, k.local, x)
    found = k.agreed(place, k.local)
    with pytest.raises(AssertionError, match="ask for different numbers"):
        run(written(k, found))


def test_groups_that_add_to_one_number() -> None:
    k = KernelIR(WorkgroupTarget(4))
    own_number(k)
    total = k.buffer("total", "write", "u", atomic=True)
    k.store(total, k.word(1), k.add(ops.word_add, k.local, k.word(1)), add=True)
    y, found = np.zeros((8, 1)), np.zeros(2, np.uint32)
    execute(written(k, k.constant(0.0)), {"x": X, "y": y, "total": found}, len(X))
    assert found.tolist() == [0, 20]


def test_the_length_of_a_buffer() -> None:
    k = KernelIR(WorkgroupTarget(4))
    own_number(k)
    length = k.length(k.buffers[0])
    assert length == k.length(k.buffers[0])
    assert (run(written(k, k.add(ops.word_float, length))) == len(X)).all()


def test_two_writers_of_one_place_are_found() -> None:
    k = KernelIR(SimdTarget(4))
    own_number(k)
    k.store(k.buffer("y", "write"), k.word(0), k.constant(1.0))
    with pytest.raises(AssertionError, match="two invocations meet in y"):
        run(k)
