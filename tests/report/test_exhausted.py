"""Problems whose loops need more iterations than they may take: NaN, and a warning or an error."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import ExhaustedError, ExhaustedWarning, InputError
from symgrad.expr.tracing.trace import trace
from symgrad.report.exhausted import exhausted


def halved(x: Any, steps: int = 4) -> Any:
    return sg.while_loop(lambda y: y > 1.0, lambda y: y * 0.5, x, max_steps=steps)


def counted(v: Any) -> Any:
    return sg.fori_loop(0, v[0], lambda _, s: s * v[1], 1.0, max_steps=16)


def in_a_loop(v: Any) -> Any:
    """One turn of the outer loop may spoil it, though what it carries may not show it."""
    body = lambda k, s: sg.where(k < 2, halved(v[0] * (3 - k)), s)  # noqa: E731
    return sg.fori_loop(0, 6, body, v[1])


def in_a_side(v: Any) -> Any:
    return sg.cond(v[1] > 0.5, lambda: halved(v[0]), lambda: v[0] * 1.0)


def carrying_an_array(v: Any) -> Any:
    def body(a: Any) -> Any:
        return a.at[1].multiply(0.5).at[a[2]].add(1e-9)

    a = sg.while_loop(lambda a: a[1] > 1.0, body, sg.array([v[1], v[0], 0.0]), max_steps=4)
    return a[0] + a[1]


AT = np.array([[3.0, 0.7], [16.0, 0.7], [17.0, 0.7], [100.0, 0.7]])
CASES = {
    "halved": (lambda v: halved(v[0]) * v[1], [0, 0, 1, 1]),
    "counted": (counted, [0, 0, 1, 1]),
    "in_a_loop": (in_a_loop, [0, 1, 1, 1]),
    "in_a_side": (in_a_side, [0, 0, 1, 1]),
    "carrying_an_array": (carrying_an_array, [0, 0, 1, 1]),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_derivatives_are_nan_and_it_is_said(name: str) -> None:
    f, ended = CASES[name]
    kernel = sg.fused_forward_backward(2, f, device="cpu")
    values, slopes = kernel.run(AT)
    assert np.isnan(values).tolist() == [bool(x) for x in ended]
    assert np.isnan(slopes).any(axis=1).tolist() == [bool(x) for x in ended]
    with pytest.warns(ExhaustedWarning, match=rf"{sum(ended)} of 4 problems needed more iter"):
        again = kernel.run(AT, exhausted="warn")
    np.testing.assert_array_equal(again[0], values)
    with pytest.raises(ExhaustedError, match="the problem needed more iterations"):
        kernel.run(AT[3], exhausted="raise")
    out = np.empty(1, np.float32), np.empty((1, 2), np.float32)
    kernel.run(AT[:1], out=out, exhausted="raise")
    with pytest.raises(ExhaustedError, match="number 2"):
        pickle.loads(pickle.dumps(kernel)).run(AT[[0, 0, 3]], exhausted="raise")


def test_the_side_that_is_not_taken_does_not_count() -> None:
    kernel = sg.fused_forward(2, in_a_side, device="cpu")
    assert kernel.run([[100.0, 0.1]], exhausted="raise") == 100.0


@pytest.mark.parametrize("device", [d for d in sg.devices() if d.is_gpu], ids=str)
def test_on_a_gpu(device: Any) -> None:
    for f, ended in CASES.values():
        kernel = sg.fused_forward_backward(2, f, device=device)
        values, _ = kernel.run(AT)
        assert np.isnan(values).tolist() == [bool(x) for x in ended]
        with pytest.raises(ExhaustedError):
            kernel.run(AT, exhausted="raise")


def test_where_all_loops_end_there_is_nothing_to_say() -> None:
    def f(v: Any) -> Any:
        return sg.fori_loop(0, 9, lambda k, s: s * v[0], v[1])

    traced = trace(f, 2)
    assert exhausted(traced.graph, traced.outputs) is None
    kernel = sg.fused_forward(2, f)
    kernel.run(AT, exhausted="raise")
    with pytest.raises(InputError, match='use "warn" or "raise"'):
        kernel.run(AT, exhausted="error")  # pyright: ignore[reportArgumentType]
