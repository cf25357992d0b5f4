"""Loops and choices that carry whole arrays, beside the same in NumPy and differences of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg

RNG = np.random.default_rng(3)
N = 300
X, Y = RNG.normal(size=(2, N))
ROWS = RNG.normal(size=(11, N)) / 4


class Python:
    """The loops as Python has them, for numbers."""

    @staticmethod
    def fori_loop(lo: int, hi: int, body: Any, carry: Any) -> Any:
        for k in range(lo, hi):
            carry = body(k, carry)
        return carry

    @staticmethod
    def scan(step: Any, carry: Any, xs: Any, length: int = 0, reverse: bool = False) -> Any:
        ys: list[Any] = []
        order = range(length if xs is None else len(xs))
        for k in reversed(order) if reverse else order:
            carry, y = step(carry, None if xs is None else xs[k])
            ys.append(y)
        ys = ys[::-1] if reverse else ys
        if isinstance(ys[0], tuple):
            return carry, tuple(np.array(part) for part in zip(*ys, strict=True))
        return carry, None if ys[0] is None else np.array(ys)

    @staticmethod
    def while_loop(going: Any, body: Any, carry: Any, max_steps: int | None = None) -> Any:
        while going(carry):
            carry = body(carry)
        return carry

    @staticmethod
    def cond(pred: Any, then: Any, otherwise: Any) -> Any:
        return then() if pred else otherwise()


def recurrence(lib: Any, x: Any, y: Any) -> Any:
    def step(k: Any, c: Any) -> Any:
        return c + 0.02 * np.concatenate([x[:1] * k, x[1:] * np.sin(c[:-1])])

    return np.sum(lib.fori_loop(2, 9, step, y) ** 2)


def nested(lib: Any, x: Any, y: Any) -> Any:
    def step(k: Any, c: Any) -> Any:
        return lib.fori_loop(0, 3, lambda j, d: d + 0.1 * np.tanh(d * x) * j, c) + y * k

    return np.sum(lib.fori_loop(0, 4, step, y) ** 2) / N


def scanned(lib: Any, x: Any, y: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        new = np.tanh(carry["h"] * x + row), carry["k"] + 1
        return {"h": new[0], "k": new[1]}, (new[0] * row, np.mean(new[0]) * carry["k"])

    end, (rows, sums) = lib.scan(step, {"h": y, "k": 0}, ROWS)
    return np.sum(rows[3] ** 2) + np.sum(np.sin(sums)) + np.sum(end["h"]) * end["k"]


def backwards(lib: Any, x: Any, y: Any) -> Any:
    end, rows = lib.scan(lambda c, row: (c * 0.9 + row * x, c), y, ROWS, reverse=True)
    return np.sum(end**2) + np.sum(rows[1] ** 3)


def looked_up(lib: Any, x: Any, y: Any) -> Any:
    return lib.fori_loop(0, N, lambda k, s: s + x[k] * y[N - 1 - k], 0.0) ** 2


def without_rows(lib: Any, x: Any, y: Any) -> Any:
    return np.sum(lib.scan(lambda c, _: (np.cos(c * x), None), y, None, 4)[0])


def chosen(lib: Any, x: Any, y: Any) -> Any:
    return np.sum(lib.cond(np.sum(x) > 0, lambda: x * y, lambda: x - y**2))


def swapped(lib: Any, x: Any, y: Any) -> Any:
    """Carries that change places, stay as they are, and are computed twice."""

    def step(k: Any, c: Any) -> Any:
        a, b, same, _ = c
        new = np.sin(a) + 0.1 * k
        return b, new, same, new * same

    return sum(np.sum(c**2) for c in lib.fori_loop(0, 5, step, (x, y, x * y, y)))


def multiplied(lib: Any, x: Any, y: Any) -> Any:
    """Products of matrices, of their transposes and of a batch of them, and a solution, in turn."""
    a, b = np.reshape(x, (10, 30)) / 5, np.reshape(y, (30, 10)) / 5

    def step(k: Any, c: Any) -> Any:
        new = np.tanh(a @ b @ c + (c.T @ a).T[:10])
        many = np.stack([new, c + k]) @ np.stack([c.T @ c, a.T @ a])
        return c + np.linalg.solve(np.eye(10) + new @ new.T / 9, many[0] + many[1])

    return np.sum(lib.fori_loop(0, 4, step, a) ** 2)


LOOPS = [
    recurrence, nested, scanned, backwards, looked_up, without_rows, chosen, swapped, multiplied,
]  # fmt: skip


def slope(f: Callable[..., Any], args: list[Any], k: int, along: Any) -> Any:
    """The derivative of a function along a direction of argument k, by central differences."""
    h = 1e-6
    ends = []
    for sign in (1, -1):
        moved = [*args]
        moved[k] = args[k] + sign * h * along
        ends.append(f(Python, *moved))
    return (ends[0] - ends[1]) / (2 * h)


@pytest.mark.parametrize("f", LOOPS)
def test_loops_are_what_they_are_in_python(f: Any) -> None:
    run = sg.value_and_grad(lambda x, y: f(sg, x, y), (0, 1), device="cpu", dtype="float64")
    value, grads = run(X, Y)
    assert value == pytest.approx(f(Python, X, Y), rel=1e-12)
    along = RNG.normal(size=N)
    for k, grad in enumerate(grads):
        assert grad @ along == pytest.approx(slope(f, [X, Y], k, along), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("f", [recurrence, scanned, backwards])
@pytest.mark.parametrize("checkpoint", ["sqrt", 5])
def test_strips_give_the_same(f: Any, checkpoint: Any) -> None:
    results = [
        sg.value_and_grad(lambda x: f(sg, x, Y), device="cpu", dtype="float64", checkpoint=choice)(
            X
        )
        for choice in ("keep", checkpoint)
    ]
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-13)
    np.testing.assert_allclose(*[grad for _, grad in results], rtol=1e-10, atol=1e-12)


def test_a_loop_ends_by_a_test() -> None:
    def grown(lib: Any, x: Any) -> Any:
        return lib.while_loop(lambda v: np.sum(v) < 1e4, lambda v: v * 1.1, np.abs(x), max_steps=99)

    run = sg.jit(lambda x: grown(sg, x), device="cpu", dtype="float64")
    np.testing.assert_allclose(run(X), grown(Python, X), rtol=1e-12)
    never = sg.jit(lambda x: sg.while_loop(lambda v: v[0] < 2, lambda v: v, x, max_steps=3))
    assert np.isnan(never(X * 0)).all()


def test_what_loops_keep_is_a_result() -> None:
    def kept(lib: Any, x: Any, reverse: bool) -> Any:
        return lib.scan(lambda c, row: (np.cos(c * row), (c, row)), x, ROWS, reverse=reverse)

    for reverse in (False, True):
        run = sg.jit(lambda x, r=reverse: kept(sg, x, r), device="cpu", dtype="float64")
        end, (carries, rows) = run(X)
        wanted, (wanted_carries, wanted_rows) = kept(Python, X, reverse)
        np.testing.assert_allclose(end, wanted, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(carries, wanted_carries, rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(rows, wanted_rows)
        assert not np.may_share_memory(carries, run(X)[1][0])


def test_a_test_may_be_mapped() -> None:
    def ended(lib: Any, v: Any) -> Any:
        return lib.while_loop(lambda u: np.sum(u) < 100.0, lambda u: u * 1.5, v, max_steps=50)

    rows = np.abs(RNG.normal(size=(5, 4)))
    run = sg.vmap(lambda v: ended(sg, v), device="cpu", dtype="float64")
    np.testing.assert_allclose(run(rows), [ended(Python, v) for v in rows], rtol=1e-12)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
def test_a_loop_without_end_is_interrupted() -> None:
    def stopped(*_: Any) -> None:
        raise TimeoutError

    run = sg.jit(lambda x: sg.while_loop(lambda c: c[0] < 9, lambda c: np.sin(c), x), device="cpu")
    before = signal.signal(signal.SIGALRM, stopped)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(TimeoutError):
            run(X)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_large_carries_take_all_threads() -> None:
    x = np.linspace(0.0, 1.0, 300_000)
    run = sg.jit(
        lambda v: sg.fori_loop(0, 3, lambda k, c: np.exp(np.sin(c)) / (k + 2), v),
        device="cpu", dtype="float64",
    )  # fmt: skip
    wanted = Python.fori_loop(0, 3, lambda k, c: np.exp(np.sin(c)) / (k + 2), x)
    np.testing.assert_allclose(run(x), wanted, rtol=1e-13)


def test_bounds_may_be_values() -> None:
    run = sg.jit(lambda n, x: sg.fori_loop(0, n, lambda k, c: c + k, x), device="cpu")
    np.testing.assert_allclose(run(np.array(4), X), X + 6, rtol=1e-5)


def test_second_derivatives_and_derivatives_within_loops() -> None:
    def inner(v: Any) -> Any:
        return np.sum(sg.fori_loop(0, 3, lambda _, c: np.sin(c * v) + c, Y) ** 2)

    run = sg.value_and_grad(lambda x: np.sum(sg.grad(inner)(x) ** 2), device="cpu", dtype="float64")
    grad = run(X)[1]
    along = RNG.normal(size=N)
    ends = [run(X + h * along)[0] for h in (1e-6, -1e-6)]
    assert grad @ along == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)

    descent = sg.jit(
        lambda x: sg.fori_loop(0, 40, lambda _, c: c - 0.2 * sg.grad(bowl)(c), x), device="cpu"
    )
    bowl = lambda c: np.sum((c - Y) ** 2)  # noqa: E731
    np.testing.assert_allclose(descent(X), Y, atol=1e-6)


def test_loops_are_mapped() -> None:
    def one(row: Any) -> Any:
        end, ys = sg.scan(lambda c, r: (np.tanh(c + r * Y), c * r), Y * 0.5, row)
        return np.sum(end) + np.sum(ys**2)

    rows = RNG.normal(size=(4, 3))
    mapped = sg.vmap(one, device="cpu", dtype="float64")(rows)
    alone = [sg.jit(one, device="cpu", dtype="float64")(row) for row in rows]
    np.testing.assert_allclose(mapped, alone, rtol=1e-13)
    run = sg.value_and_grad(lambda r: np.sum(sg.vmap(one)(r)), device="cpu", dtype="float64")
    grads = run(np.tile(rows, (30, 1)))[1]
    each = sg.value_and_grad(lambda r: np.sum(sg.vmap(one)(r)), device="cpu", dtype="float64")
    np.testing.assert_allclose(grads[:4], each(rows)[1], rtol=1e-10)


def test_on_each_device() -> None:
    for device in sg.devices():
        value, _ = sg.value_and_grad(lambda x: nested(sg, x, Y), device=device)(X)
        assert value == pytest.approx(nested(Python, X, Y), rel=1e-5)


def test_the_text_does_not_depend_on_iterations() -> None:
    lengths = set()
    for n in (10, 1000):
        run = sg.jit(lambda x, n=n: sg.fori_loop(0, n, lambda _, c: np.cos(c * x), x))
        run(X)
        lengths.add(len(run.wgsl))
    assert len(lengths) == 1 and "cos" in run.wgsl


def test_what_a_loop_cannot_carry_is_refused() -> None:
    with pytest.raises(sg.TraceError, match=r"shapes \(299,\) for carries of shapes \(300,\)"):
        sg.jit(lambda x: sg.fori_loop(0, 3, lambda _, c: c[1:], x))(X)
    with pytest.raises(sg.TraceError, match="no pair of a carry"):
        sg.jit(lambda x: sg.scan(lambda c, _: c, x, None, 3))(X)


FIRST_CALL = """
import numpy as np, symgrad as sg
x = np.linspace(-1.0, 1.0, 65536)
run = sg.jit(lambda x: sg.fori_loop(0, 3, lambda k, c: np.sin(c) + 0.1 * k, x), device="gpu")
wanted = x
for k in range(3):
    wanted = np.sin(wanted) + 0.1 * k
print(np.abs(run(x) - wanted).max())
"""


@pytest.mark.skipif(not any(d.is_gpu for d in sg.devices()), reason="no GPU")
def test_loops_keep_what_they_begin_with_until_it_is_copied() -> None:
    """In a new process, whose first memory of this size is given back, and taken again."""
    done = subprocess.run([sys.executable, "-c", FIRST_CALL], stdout=subprocess.PIPE, check=True)
    assert float(done.stdout) < 1e-6


def test_more_iterations_than_numbers_that_stand_together() -> None:
    """The number of an iteration is read from pages of 1,024."""

    def f(x: Any) -> Any:
        return sg.fori_loop(0, 2_100, lambda k, c: c + k * x, 0 * x)

    x = np.arange(1.0, 301.0)
    run = sg.jit(f, device="gpu", dtype="float32")
    for scale in (1.0, 2.0):  # the second call finds the steps of the first
        found = run(scale * x)
        np.testing.assert_allclose(found, scale * x * (2_100 * 2_099 / 2), rtol=1e-4)


def test_a_loop_that_changes_nothing() -> None:
    x = np.arange(300.0)
    found = sg.jit(lambda x: sg.fori_loop(0, 5, lambda _, c: c, x), device="gpu")(x)
    np.testing.assert_array_equal(found, x)
