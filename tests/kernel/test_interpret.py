"""The interpreter: a plan run with NumPy, block by block, in either precision."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from symgrad.expr import functions
from symgrad.expr.trace import trace
from symgrad.kernel import interpret
from symgrad.kernel.interpret import Interpreter
from symgrad.kernel.plan import Output, Plan
from symgrad.kernel.schedule import schedule


def plan() -> Plan:
    t = trace(
        lambda v: [v[0] * v[1], functions.exp(v[0]), 3.0, v[1], functions.pow(abs(v[0]), v[1])], 3
    )
    return schedule("f", t.graph, [Output("a", t.outputs[:1]), Output("b", t.outputs[1:])])


def batch(count: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, 3)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "count", [0, 1, 2, 7, interpret.BLOCK, interpret.BLOCK + 1, 3 * interpret.BLOCK]
)
def test_results(count: int, dtype: str) -> None:
    x = batch(count, dtype)
    a, b = Interpreter(plan(), dtype).run(x)
    assert (a.shape, b.shape, a.dtype) == ((count, 1), (count, 4), np.dtype(dtype))
    np.testing.assert_array_equal(a[:, 0], x[:, 0] * x[:, 1])
    np.testing.assert_array_equal(b[:, 1:3], np.stack([np.full(count, 3.0), x[:, 1]], 1))
    assert a.flags.writeable and a.flags.c_contiguous and not np.shares_memory(b, x)


@pytest.mark.parametrize("count", [2, 3, 5, 9, 17, 33, 100])
def test_a_row_of_a_batch_is_the_point_alone(count: int) -> None:
    run = Interpreter(plan(), "float32").run
    x = batch(count)
    whole = run(x)
    for k in range(count):
        for together, alone in zip(whole, run(x[k : k + 1]), strict=True):
            np.testing.assert_array_equal(
                together[k : k + 1].view(np.uint32), alone.view(np.uint32)
            )


def test_memory_order_does_not_matter() -> None:
    run = Interpreter(plan(), "float32").run
    x = batch(50)
    for other in (np.asfortranarray(x), np.repeat(x, 2, 0)[::2], x[::-1][::-1]):
        for a, b in zip(run(x), run(other), strict=True):
            np.testing.assert_array_equal(a, b)


def test_threads() -> None:
    run = Interpreter(plan(), "float32").run
    inputs = [batch(2000) + k for k in range(4)]
    expected = [run(x) for x in inputs]
    found: list[Any] = [None] * 4

    def work(k: int) -> None:
        for _ in range(5):
            found[k] = run(inputs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(found, expected, strict=True):
        assert all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))
