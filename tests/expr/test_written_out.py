"""Lines that write out very many operations are told of, once, by their place."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symgrad as sg

N = 145
"""Rows of a matrix of which a product with a vector is more operations than go without a word."""


def product(v: Any) -> Any:
    a = np.array([*v[: N * N]]).reshape(N, N)  # which is traced element by element
    x = v[N * N :]
    y = a @ x  # the product
    return y @ y


def steps(v: Any) -> Any:
    x = v[0]
    for k in range(30_000):
        x = x + 0.001 * np.sin(x) if k % 7 else x * v[k * k % 11]  # irregular: no loop
    return x


def iterations(v: Any) -> Any:
    x = v[0]
    for _ in range(30_000):
        x = x + 0.001 * np.sin(x)
    return x


def told(make: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make()
    return [w for w in found if w.category is sg.SizeWarning]


def line_of(text: str) -> int:
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(k for k, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize(
    ("f", "n", "text"), [(product, N * N + N, "# the product"), (steps, 11, "# irregular")]
)
def test_a_line_that_writes_out_much_is_named_once(f: Any, n: int, text: str) -> None:
    (found,) = told(lambda: sg.fused_forward(n, f, device="cpu"))
    message = str(found.message)
    assert f"test_written_out.py:{line_of(text)}" in message
    assert "sg.fori_loop" in message and "sg.jit" in message
    assert found.filename == __file__


def test_value_and_grad_is_told_of_before_it_is_differentiated() -> None:
    class Stop(Exception):
        pass

    def loss(a: Any, x: Any) -> Any:
        elements = np.array([*a.ravel()]).reshape(a.shape)  # which is traced element by element
        with pytest.warns(sg.SizeWarning, match=r"21,025 operations(?s:.*)loss_of_a"):
            y = elements @ x  # loss_of_a
        raise Stop(y)

    with pytest.raises(Stop):
        sg.value_and_grad(loss, device="cpu")(np.ones((N, N)), np.ones(N))


def test_a_trace_that_grows_begins_again_as_whole_arrays() -> None:
    """Its elements, 4,800 operations, once were one kernel: minutes of compilation on GPUs."""
    traces: list[Any] = []

    def loss(x: Any, y: Any) -> Any:
        traces.append(x)
        return np.sum(np.tanh(x * np.maximum(x, y)) * np.cos(y))

    x, y = np.linspace(-1.0, 1.0, 40)[:, None], np.linspace(0.0, 2.0, 30)
    step = sg.value_and_grad(loss, device="cpu", dtype="float64")
    value, slope = step(x, y)
    assert len(traces) == 2 and np.isclose(value, loss(x, y))
    ends = [loss(x + h * np.eye(40)[:, :1], y) for h in (1e-6, -1e-6)]
    assert np.isclose(slope[0, 0], (ends[0] - ends[1]) / 2e-6, rtol=1e-6)
    traces.clear()
    step(x[:4], y[:5])
    assert len(traces) == 1


def test_many_operations_on_few_elements_are_one_kernel_of_numbers() -> None:
    traces: list[Any] = []

    def loss(x: Any) -> Any:
        traces.append(x)
        for _ in range(100):
            x = x + 0.01 * np.tanh(x[::-1] * x)
        return np.sum(x**2)

    x, h = np.array([0.3, -0.2, 0.5, 0.9]), np.array([1e-6, 0, 0, 0])
    value, slope = sg.value_and_grad(loss, device="cpu", dtype="float64")(x)
    assert len(traces) == 3 and np.isclose(value, loss(x))
    assert np.isclose(slope[0], (loss(x + h) - loss(x - h)) / 2e-6, rtol=1e-6)


def test_losses_of_rows_are_told_of_too() -> None:
    def loss(p: Any, r: Any) -> Any:
        return np.sum(p[: N * N].reshape(N, N) @ p[N * N :]) * r.x

    columns = ["x"]
    make = lambda: sg.fused_forward(N * N + N, loss, columns=columns, device="cpu")  # noqa: E731
    assert len(told(make)) == 1


def test_loops_that_become_loops_are_not_told_of() -> None:
    assert not told(lambda: sg.fused_forward(1, iterations, device="cpu"))


def test_loops_that_are_to_be_written_out_are_not_told_of() -> None:
    assert not told(lambda: sg.fused_forward(11, steps, roll=False, device="cpu"))
