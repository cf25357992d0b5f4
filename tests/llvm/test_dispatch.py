"""Kernels on the CPU: batches of every size, arrays given for results, threads, forks, pickles."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from machines import cores

import symgrad as sg
from symgrad.errors import InputError
from symgrad.kernel.host import threads
from symgrad.llvm.device.cpu import host
from symgrad.llvm.dispatch.compiled import STREAMED_BYTES


def loss(v: Any) -> Any:
    return np.sum(100 * (v[1:] - v[:-1] ** 2) ** 2 + (1 - v[:-1]) ** 2)


KERNEL = sg.fused_forward_backward(5, loss, device="cpu")
LANES = host().vector_bits // 32


def points(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 5)).astype(np.float32)


@pytest.mark.parametrize("count", [0, 1, 2, LANES - 1, LANES, LANES + 1, 1000, 100_003])
def test_a_row_of_a_batch_is_the_point_alone(count: int) -> None:
    x = points(count)
    values, slopes = KERNEL.run(x)
    assert values.shape == (count,)
    assert slopes.shape == (count, 5)
    for k in {0, count // 2, count - 1} & set(range(count)):
        alone = KERNEL.run(x[k])
        assert alone[0] == values[k]
        np.testing.assert_array_equal(alone[1], slopes[k])


@pytest.mark.parametrize("count", [50_000, STREAMED_BYTES // 24 + 1])
def test_streamed_and_shared_out_results_are_the_same(count: int) -> None:
    x = points(count)
    with cores(1):
        want = KERNEL.run(x)
    for n, pieces in ((2, 8), (5, 100)):
        with cores(n, pieces):
            for a, b in zip(KERNEL.run(x), want, strict=True):
                np.testing.assert_array_equal(a, b)
    short = KERNEL.run(x[-1000:])
    for a, b in zip(short, want, strict=True):
        np.testing.assert_array_equal(a, b[-1000:])


def test_every_memory_order_and_dtype_is_taken() -> None:
    x = points(40)
    want = KERNEL.run(x)
    unaligned = np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    for same in (np.asfortranarray(x), x[::1], x.astype(np.float64), x.tolist(), unaligned):
        np.testing.assert_array_equal(KERNEL.run(same)[1], want[1])
    np.testing.assert_array_equal(KERNEL.run(x[::-1])[1], want[1][::-1])
    np.testing.assert_array_equal(KERNEL.run(np.ascontiguousarray(x.T).T[3])[1], want[1][3])


def test_results_are_fresh() -> None:
    x = points(300_000)
    first = KERNEL.run(x)
    kept = [a.copy() for a in first]
    second = KERNEL.run(-x)
    assert not any(np.may_share_memory(a, b) for a in first for b in second)
    for a, b in zip(first, kept, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.flags.writeable


# out= ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (37,), (20_000,)])
def test_results_are_written_to_out(shape: tuple[int, ...]) -> None:
    x = points(int(np.prod(shape))).reshape(*shape, 5)
    out = np.empty(shape, np.float32), np.empty((*shape, 5), np.float32)
    for scale in (1.0, 2.0, 2.0):  # the same arrays, with other numbers in them
        x *= np.float32(scale)
        assert KERNEL.run(x, out=out) is out
        for a, b in zip(out, KERNEL.run(x), strict=True):
            np.testing.assert_array_equal(a, b)


def test_out_may_be_where_the_points_are() -> None:
    x = points(1000)
    values, slopes = KERNEL.run(x)
    other = np.empty(1000, np.float32)
    KERNEL.run(x, out=(other, x))
    np.testing.assert_array_equal(x, slopes)
    np.testing.assert_array_equal(other, values)


def test_out_of_a_kernel_with_one_result() -> None:
    kernel = sg.fused_forward(2, lambda v: v[0] + v[1], device="cpu")
    with pytest.raises(InputError, match=r"must be a NumPy array of float32 and shape \(\)"):
        kernel.run([1.0, 2.0], out=np.empty(()))
    out = np.empty((), np.float32)
    assert kernel.run([1.0, 2.0], out=out) is out and out == 3.0


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ((np.empty((), np.float32),), "takes 2 arrays: loss, grad"),
        (
            (np.empty((), np.float32), np.empty(4, np.float32)),
            r"must be a NumPy array of float32 and shape \(5,\)",
        ),
        ((np.empty((), np.float32), np.empty(5)), "float64"),
        ((np.empty((), np.float32), [0.0] * 5), "a NumPy array of float32"),
        ((np.empty((), np.float32), np.empty(10, np.float32)[::2]), "C-contiguous"),
        ((np.empty((), np.float32), np.broadcast_to(np.float32(0), (5,))), "C-contiguous"),
    ],
)
def test_a_wrong_out_is_refused(out: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        KERNEL.run(np.zeros(5), out=out)


# threads and processes ----------------------------------------------------------------------------


def test_threads_share_a_kernel() -> None:
    kernel = sg.fused_forward_backward(5, loss, device="cpu")
    batches = [points(n, n) for n in (1, 3, 100, 30_000) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(kernel.run, batches))
        alone = list(pool.map(lambda x: kernel.run(x[0]), batches))
    for x, (values, slopes), (value, slope) in zip(batches, found, alone, strict=True):
        want = KERNEL.run(x)
        np.testing.assert_array_equal(values, want[0])
        np.testing.assert_array_equal(slopes, want[1])
        assert value == want[0][0]
        np.testing.assert_array_equal(slope, want[1][0])


def _child(connection: Any, kernel: sg.Kernel) -> None:
    connection.send(kernel.run(points(200_000))[0][-1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_computes_as_well() -> None:
    kernel = sg.fused_forward_backward(5, loss, device="cpu")
    want = kernel.run(points(200_000))[0][-1]
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_child, args=(there, kernel))
    process.start()
    assert here.poll(60), "the child hangs"
    assert here.recv() == want
    process.join(10)


def test_pickles_are_compiled_again() -> None:
    x = points(10)
    copy = pickle.loads(pickle.dumps(KERNEL))
    np.testing.assert_array_equal(copy.run(x)[1], KERNEL.run(x)[1])


def test_every_numpy_exception_stays_away() -> None:
    with np.errstate(all="raise"):
        value, slope = KERNEL.run(np.full(5, 1e30))
    assert value == np.inf
    assert not np.isfinite(slope).all()


@pytest.mark.parametrize(("waking", "most"), [(1e-5, 16), (2e-4, 4), (1.0, 1)])
def test_work_is_shared_between_as_many_threads_as_it_is_worth(waking: float, most: int) -> None:
    """4 ms of it, where waking a thread is cheap or dear; 20 us never."""
    assert threads.worth(round(4e-3 * 8 / threads.OPERATION), 8, 16, waking) == most
    assert threads.worth(round(2e-5 * 8 / threads.OPERATION), 8, 16, waking) == 1
