"""Loops over whole arrays on a GPU: carries and rows of all kinds, beside the same on the CPU."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest
from poison import POISONED

import symgrad as sg
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.loops import COUNTED

RNG = np.random.default_rng(11)


def remembered(x: Any, rows: Any) -> Any:
    """What three carries remember of the last three iterations, and rows of all of them."""

    def step(carry: Any, row: Any) -> Any:
        before, last, now = carry
        new = np.sin(now * row) + 0.3 * last - 0.2 * before
        return (last, now, new), (before, last * row, new)

    return sg.scan(step, (x, 0.5 * x, x + 1.0), rows)


def backwards(x: Any, rows: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        before, now = carry
        return (now, np.cos(now) * row + before), (now, before, row)

    return sg.scan(step, (x, 2.0 * x), rows, reverse=True)


def given_on(x: Any, rows: Any) -> Any:
    """Rows that are what stays as it is, what is gone through, and what stands around."""

    def step(carry: Any, row: Any) -> Any:
        same, now = carry
        return (same, np.tanh(now * same + row)), (same, row, x, now)

    return sg.scan(step, (x * 0.5, x), rows)


def changing_places(x: Any, rows: Any) -> Any:
    """Carries that only change places: no kernel writes them."""
    return sg.scan(lambda c, row: ((c[1], c[0]), c[0] * row), (x, x + 1.0), rows)


def twice(x: Any, rows: Any) -> Any:
    """One array for two carries."""

    def step(carry: Any, row: Any) -> Any:
        new = np.cos(carry[0] + carry[1] * row)
        return (new, new), carry[1]

    return sg.scan(step, (x, 0.3 * x), rows)


def numbered(x: Any, rows: Any) -> Any:
    """Counts, whole numbers that are carried, and sums of them."""

    def step(k: Any, carry: Any) -> Any:
        n, total, c = carry
        return n + k, total + np.sum(c), c * 0.99 + rows[0] / (k + 1)

    return sg.fori_loop(0, COUNTED + 9, step, (0, 0.0, x))


def multiplied(x: Any, rows: Any) -> Any:
    """Products whose factors are rows, carries, and what stands around."""
    a = np.outer(x, x) / len(x)

    def step(carry: Any, row: Any) -> Any:
        new = np.tanh(a @ carry + np.outer(row, x) @ a.T)
        return new, np.sum(new * carry, axis=1)

    return sg.scan(step, np.outer(x, rows[0]), rows)


def mapped(x: Any, rows: Any) -> Any:
    """Loops that are mapped: rows are along a second axis."""

    def one(v: Any) -> Any:
        return sg.scan(lambda c, r: (np.sin(c + r * v), c * r), v[0] * x, rows[:, 0])

    return sg.vmap(one)(np.stack([x, x + 1.0, 2.0 * x]))


LOOPS = [
    remembered, backwards, given_on, changing_places, twice, numbered, multiplied, mapped,
]  # fmt: skip


def flat(value: Any) -> list[Any]:
    return [a for part in value for a in flat(part)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("f", LOOPS)
@pytest.mark.parametrize("shape", [(5, 64), (7, 9), (1, 9), (2, 1)])
def test_loops_are_those_of_the_cpu(gpu: Gpu, f: Any, shape: tuple[int, int]) -> None:
    """Rows fill what can be bound, or do not; there are as many as buffers take turns, or fewer."""
    x, rows = RNG.normal(size=shape[1]), RNG.normal(size=shape)

    def total(x: Any, rows: Any) -> Any:
        return sum(np.sum(np.sin(a)) for a in flat(f(x, rows)))

    wanted = flat(sg.jit(f, device="cpu", dtype="float64")(x, rows))
    results = flat(sg.jit(f, device="gpu", dtype="float32")(x, rows))
    for mine, other in zip(results, wanted, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-4, atol=2e-4)
    if f is numbered:
        return
    mine = sg.value_and_grad(total, (0, 1), device="gpu", dtype="float32")(x, rows)[1]
    wanted = sg.value_and_grad(total, (0, 1), device="cpu", dtype="float64")(x, rows)[1]
    for slope, other in zip(mine, wanted, strict=True):
        np.testing.assert_allclose(slope, other, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 30])
def test_a_loop_ends_when_its_test_says_so(gpu: Gpu, count: int) -> None:
    """Iterations are started several at a time, and those behind the last one change nothing."""

    def counted(x: Any, most: Any) -> Any:
        def body(carry: Any) -> Any:
            k, before, now = carry
            return k + 1, now, np.cos(now) + 0.1 * before

        return sg.while_loop(lambda c: c[0] < most, body, (0, x, x * 0.5))

    x = RNG.normal(size=33)
    k, before, now = sg.jit(counted, device="gpu")(x, np.array(count))
    wanted = x, x * 0.5
    for _ in range(count):
        wanted = wanted[1], np.cos(wanted[1]) + 0.1 * wanted[0]
    assert int(k) == count
    np.testing.assert_allclose((before, now), wanted, rtol=1e-4, atol=1e-5)


def test_a_loop_that_does_not_end_gives_nan(gpu: Gpu) -> None:
    run = sg.jit(
        lambda x: sg.while_loop(lambda v: v[0] < 2, lambda v: np.cos(v), x, max_steps=9),
        device="gpu",
    )
    assert np.isnan(run(np.ones(5))).all()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
def test_a_loop_without_end_is_interrupted(gpu: Gpu) -> None:
    def stopped(*_: Any) -> None:
        raise TimeoutError

    run = sg.jit(lambda x: sg.while_loop(lambda c: c[0] < 9, lambda c: np.sin(c), x), device="gpu")
    before = signal.signal(signal.SIGALRM, stopped)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(TimeoutError):
            run(np.ones(33))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    ended = sg.jit(lambda x: sg.fori_loop(0, 3, lambda _, c: np.sin(c), x), device="gpu")
    np.testing.assert_allclose(ended(np.ones(33)), np.sin(np.sin(np.sin(1.0))), rtol=1e-5)


def test_what_is_written_to_new_memory_is_kept(gpu: Gpu) -> None:
    """wgpu clears what it takes for unwritten, here what lies behind the tests' poison."""
    x, count = RNG.normal(size=POISONED // 8), 20
    run = sg.jit(
        lambda x: sg.scan(lambda c, _: (np.sin(c) + c, c), x, None, length=count), device="gpu"
    )
    gpu.free()
    end, rows = run(x)
    wanted = [x]
    for _ in range(count):
        wanted.append(np.sin(wanted[-1]) + wanted[-1])
    np.testing.assert_allclose(end, wanted[-1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rows, wanted[:-1], rtol=1e-5, atol=1e-5)


def test_results_of_a_call_stay_as_they_are(gpu: Gpu) -> None:
    """The memory of a call is used again only when nobody has its results."""
    run = sg.jit(remembered, device="gpu")
    rows = sg.device_array(RNG.normal(size=(6, 64)), device="gpu")
    xs = [sg.device_array(RNG.normal(size=64), device="gpu") for _ in range(3)]
    results = [flat(run(x, rows)) for x in xs]
    before = [[np.asarray(a) for a in some] for some in results]
    for x, some, first in zip(xs, results, before, strict=True):
        assert all(isinstance(a, type(x)) for a in some)
        for a, b, c in zip(some, first, flat(run(x, rows)), strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
            np.testing.assert_array_equal(c.numpy(), b)
