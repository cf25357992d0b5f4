"""Results share memory with nothing that is alive, and large memory is used again."""

from __future__ import annotations

import numpy as np

from symgrad.kernel.host.memory import (
    ALIGNMENT_BYTES,
    IDLE_BYTES,
    LARGE_BYTES,
    MOST_KEPT,
    Pool,
    is_aligned,
)

SHAPE = (LARGE_BYTES // 4 + 3, 1)
FLOAT = np.dtype(np.float32)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_arrays_are_aligned_and_writable() -> None:
    pool = Pool()
    for shape in ((3, 5), SHAPE):
        array = pool.empty(shape, FLOAT)
        assert is_aligned(array)
        assert array.shape == shape
        array[...] = 1.0


def test_what_is_alive_is_not_given_twice() -> None:
    pool = Pool()
    arrays = [pool.empty(SHAPE, FLOAT) for _ in range(2 * IDLE_BYTES // LARGE_BYTES)]
    for k, array in enumerate(arrays):
        array[...] = k
    assert all(np.all(array == k) for k, array in enumerate(arrays))


def test_a_view_keeps_the_memory_alive() -> None:
    pool = Pool()
    first = pool.empty(SHAPE, FLOAT)
    view, where = first[10:20], address(first)
    del first
    assert address(pool.empty(SHAPE, FLOAT)) != where
    other = pool.empty(SHAPE, FLOAT)
    del view
    assert address(pool.empty(SHAPE, FLOAT)) == where != address(other)


def test_memory_is_used_again() -> None:
    pool = Pool()
    first = pool.empty(SHAPE, FLOAT)
    where = address(first)
    del first
    assert address(pool.empty(SHAPE, FLOAT)) == where


def test_small_arrays_need_not_be_aligned() -> None:
    pool = Pool()
    assert pool.empty((3, 5), FLOAT, aligned=False).shape == (3, 5)
    assert is_aligned(pool.empty(SHAPE, FLOAT, aligned=False))


def test_kept_memory_is_counted_and_let_go() -> None:
    pool = Pool()
    first = pool.empty(SHAPE, FLOAT)
    first[...] = 7.0
    assert first.nbytes <= pool.nbytes < 1.01 * first.nbytes
    pool.clear()
    assert pool.nbytes == 0
    pool.empty(SHAPE, FLOAT)[...] = 1.0
    assert np.all(first == 7.0)


def test_a_steady_loop_has_the_same_memory_whatever_is_computed_between() -> None:
    pool, large = Pool(), (IDLE_BYTES // 4, 1)
    first = pool.empty(large, FLOAT)
    where = address(first)
    del first
    for _ in range(3 * MOST_KEPT):
        held = [pool.empty(SHAPE, FLOAT) for _ in range(MOST_KEPT // 2)]
        del held
        assert address(pool.empty(large, FLOAT)) == where


def test_many_arrays_are_kept_if_they_are_not_too_large() -> None:
    pool = Pool()

    def places(count: int, size: int) -> set[int]:
        arrays = [pool.empty((size // 4, 1), FLOAT) for _ in range(count)]
        return {address(a) for a in arrays}

    few = IDLE_BYTES // (LARGE_BYTES + ALIGNMENT_BYTES)
    assert places(few, LARGE_BYTES) == places(few, LARGE_BYTES)
    large = 2 * IDLE_BYTES // MOST_KEPT
    arrays = [pool.empty((large // 4, 1), FLOAT) for _ in range(2 * MOST_KEPT)]
    last = {address(a) for a in arrays[MOST_KEPT:]}
    del arrays
    again = [pool.empty((large // 4, 1), FLOAT) for _ in range(MOST_KEPT)]
    assert {address(a) for a in again} == last, "the most that are kept are the last"


def test_no_more_is_kept_than_fits() -> None:
    pool = Pool()
    arrays = [pool.empty(SHAPE, FLOAT) for _ in range(4)]
    pool.most_bytes = int(2.5 * arrays[0].nbytes)
    arrays.append(pool.empty(SHAPE, FLOAT))
    assert 2 * arrays[0].nbytes <= pool.nbytes < 2.1 * arrays[0].nbytes
    pool.most_bytes = 1000
    for k in range(3):
        pool.empty(SHAPE, FLOAT)[...] = k
        assert pool.nbytes == 0
