"""Functions with loops, branches and arrays, as the CPU runs them: batches, and points alone."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr.loops.control import cond, fori_loop, scan, while_loop
from symgrad.kernel.stats import weight_of
from symgrad.llvm.device.cpu import host

LANES = 4 * host().vector_bits // 32
"""Points in a block of a kernel with loops, at most."""


def swapped(v: Any) -> Any:
    a, b = fori_loop(0, 5, lambda k, c: (c[1] * v[0], c[0] + v[1]), (v[0] * v[1], v[1]))
    return a * b + v[0]


def swapped_by_hand(x: float, y: float) -> float:
    a, b = x * y, y
    for _ in range(5):
        a, b = b * x, a + y
    return a * b + x


def triangular(v: Any) -> Any:
    def outer(i: Any, s: Any) -> Any:
        return 0.5 * s + fori_loop(0, i + 1, lambda j, t: t * v[0] + s * j * 0.1, v[1], max_steps=6)

    return fori_loop(0, 6, outer, v[1])


def triangular_by_hand(x: float, y: float) -> float:
    s = y
    for i in range(6):
        t = y
        for j in range(i + 1):
            t = t * x + s * j * 0.1
        s = 0.5 * s + t
    return s


def halved(v: Any) -> Any:
    return while_loop(lambda c: c > v[1], lambda c: 0.5 * c, 20.0 * v[0], max_steps=30)


def halved_by_hand(x: float, y: float) -> float:
    c = 20.0 * x
    while c > y:
        c *= 0.5
    return c


def guarded(v: Any) -> Any:
    def body(k: Any, s: Any) -> Any:
        d = v[0] - 0.3 * k
        return s + cond(d > 0.0, lambda: d / (1.0 + d), lambda: 0.5 * v[1])

    return fori_loop(0, 4, body, v[1])


def guarded_by_hand(x: float, y: float) -> float:
    s = y
    for k in range(4):
        d = x - 0.3 * k
        s += d / (1.0 + d) if d > 0 else 0.5 * y
    return s


def filtered(v: Any) -> Any:
    last, kept = scan(lambda h, x: ((z := sg.tanh(v[0] * h + x)), z * v[1]), v[0], [0.1, 0.5, 0.9])
    return last + fori_loop(0, 3, lambda k, s: s + kept[k] * kept[2 - k], 0.0)


def filtered_by_hand(x: float, y: float) -> float:
    h, kept = x, list[float]()
    for a in (0.1, 0.5, 0.9):
        h = math.tanh(x * h + a)
        kept.append(h * y)
    return h + sum(kept[k] * kept[2 - k] for k in range(3))


def unturned(v: Any) -> Any:
    return fori_loop(3, 3.0 - 0.0 * v[0], lambda k, s: s * s, v[1], max_steps=5) * v[0]


CASES = [
    (swapped, swapped_by_hand),
    (triangular, triangular_by_hand),
    (halved, halved_by_hand),
    (guarded, guarded_by_hand),
    (filtered, filtered_by_hand),
    (unturned, lambda x, y: x * y),
]


@pytest.mark.parametrize(("f", "by_hand"), CASES, ids=[f.__name__ for f, _ in CASES])
@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 3e-6), ("float64", 1e-14)])
def test_loops_give_what_they_say(
    f: Callable[..., Any], by_hand: Callable[..., float], dtype: Any, rtol: float
) -> None:
    points = np.random.default_rng(0).uniform(0.4, 0.95, (2 * LANES + 3, 2)).astype(dtype)
    kernel = sg.fused_forward(2, f, device="cpu", dtype=dtype)
    want = [by_hand(*point) for point in points.astype(float)]
    found = kernel.run(points)
    np.testing.assert_allclose(found, want, rtol=rtol)
    for count in (1, 2, LANES - 1, LANES, LANES + 1):
        np.testing.assert_array_equal(kernel.run(points[:count]), found[:count])
    assert kernel.run(points[5]) == found[5]


@pytest.mark.parametrize("f", [f for f, _ in CASES])
def test_a_gradient_alone_has_the_bits_that_it_has_in_a_batch(f: Callable[..., Any]) -> None:
    points = np.random.default_rng(1).uniform(0.4, 0.95, (LANES + 7, 2)).astype(np.float32)
    kernel = sg.fused_forward_backward(2, f, device="cpu")
    values, slopes = kernel.run(points)
    for r in range(0, len(points), 5):
        value, slope = kernel.run(points[r])
        assert value == values[r]
        np.testing.assert_array_equal(slope, slopes[r])


def test_many_columns_beside_a_loop_go_through_memory() -> None:
    def f(v: Any) -> list[Any]:
        total = fori_loop(0, 4, lambda k, s: s * v[0] + v[1], v[2])
        return [total + 2.0 * x for x in v]

    points = np.random.default_rng(2).random((3 * LANES + 5, 130))
    found = sg.fused_forward(130, f, device="cpu", dtype="float64").run(points)
    total = points[:, 2]
    for _ in range(4):
        total = total * points[:, 0] + points[:, 1]
    np.testing.assert_allclose(np.transpose(found), total[:, None] + 2.0 * points, rtol=1e-14)


def test_a_loop_weighs_as_much_as_its_turns() -> None:
    def weight(iterations: int) -> int:
        kernel = sg.fused_forward(
            1, lambda v: fori_loop(0, iterations, lambda k, s: s * v[0], v[0])
        )
        return weight_of(kernel._computation.graph)

    assert weight(500) - weight(10) == 490
    unknown = sg.fused_forward(1, lambda v: while_loop(lambda s: s > 1, lambda s: s * v[0], v[0]))
    assert weight_of(unknown._computation.graph) > 10


def test_a_kernel_with_loops_is_pickled_and_writes_to_out() -> None:
    points = np.random.default_rng(3).uniform(0.4, 0.95, (LANES + 7, 2)).astype(np.float32)
    kernel = sg.fused_forward_backward(2, filtered, device="cpu")
    values, slopes = kernel.run(points)
    again = pickle.loads(pickle.dumps(kernel)).run(points)
    np.testing.assert_array_equal(again[0], values)
    np.testing.assert_array_equal(again[1], slopes)
    out = np.empty_like(values), np.empty_like(slopes)
    kernel.run(points, out=out)
    np.testing.assert_array_equal(out[1], slopes)
