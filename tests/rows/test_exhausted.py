"""Rows whose loops need more iterations than they may take: NaN, and a warning or an error."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg

ROWS = np.array([[1.0, 0.5], [2.0, 0.7], [300.0, 0.6], [16.0, 0.9], [17.0, 0.9]])
"""Of these the third and the last are halved more than four times, with a parameter of 1."""
LINES = {"k": [0, 1, 1, 0, 1], "x": ROWS[:, 0], "y": ROWS[:, 1]}


def halved(x: Any) -> Any:
    return sg.while_loop(lambda y: y > 1.0, lambda y: y * 0.5, x, max_steps=4)


def residual(p: Any, r: Any) -> Any:
    return halved(p[0] * r[0]) - r[1]


def squared(p: Any, r: Any) -> Any:
    return residual(p, r) ** 2


def looked_up(p: Any, r: Any) -> Any:
    return (halved(p.a[r.k] * r.x) - r.y) ** 2


def of_lines(device: Any) -> Any:
    return sg.fused_forward_backward({"a": 2}, looked_up, columns=["k", "x", "y"], device=device)


def mean(device: Any) -> Any:
    return sg.fused_forward_backward(1, squared, row=2, reduce="mean", device=device)


def as_list(p: Any, r: Any) -> Any:
    return [squared(p, r)]


KERNELS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "loss": (lambda d: sg.fused_forward_backward(1, squared, row=2, device=d), ROWS),
    "mean": (mean, ROWS),
    "squares": (lambda d: sg.fused_least_squares(1, residual, row=2, device=d), ROWS),
    "each": (lambda d: sg.fused_forward(1, squared, row=2, reduce=None, device=d), ROWS),
    "jacobian": (lambda d: sg.fused_jacobian(1, as_list, row=2, device=d), ROWS),
    "hessian": (lambda d: sg.fused_hessian(1, squared, row=2, device=d), ROWS),
    "looked up": (of_lines, LINES),
}
DEVICES = ["cpu", *[d for d in sg.devices() if d.is_gpu]]


def head(table: Any, count: int) -> Any:
    if isinstance(table, dict):
        return {name: column[:count] for name, column in table.items()}
    return table[:count]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_it_is_said_how_many_rows_have_not_ended(name: str, device: Any) -> None:
    make, table = KERNELS[name]
    kernel = make(device)
    at = np.ones(kernel.n_inputs)
    assert np.isnan(np.asarray(first(kernel.run(at, table)))).any()
    with pytest.warns(sg.ExhaustedWarning, match="2 of 5 rows needed more iterations"):
        kernel.run(at, table, exhausted="warn")
    with pytest.raises(sg.ExhaustedError, match="1 of 3 rows"):
        kernel.run(at, head(table, 3), exhausted="raise")
    with pytest.raises(sg.ExhaustedError, match="2 of 5 rows"):
        kernel.bind(table, exhausted="raise").run(at)
    bound = kernel.bind(head(table, 2), exhausted="raise")
    assert np.isfinite(np.asarray(first(bound.run(at)))).all()
    with pytest.raises(sg.ExhaustedError, match="1 of 2 rows"):
        bound.run(10.0 * at)


def first(results: Any) -> Any:
    return results[0] if isinstance(results, tuple) else results


def test_tables_that_come_one_by_one_are_counted_together() -> None:
    kernel = pickle.loads(pickle.dumps(KERNELS["loss"][0]("cpu")))
    with pytest.raises(sg.ExhaustedError, match="4 of 10 rows"):
        kernel.run([1.0], iter([ROWS, ROWS]), exhausted="raise")


def test_rows_without_weight_do_not_count() -> None:
    kernel = sg.fused_forward_backward(1, squared, row=3, weights=2, device="cpu")
    rows = np.column_stack([ROWS, [1.0, 1.0, 0.0, 1.0, 0.0]])
    assert np.isfinite(kernel.run([1.0], rows, exhausted="raise")[0])
    rows[4, 2] = 0.5
    with pytest.raises(sg.ExhaustedError, match="1 of 5 rows"):
        kernel.run([1.0], rows, exhausted="raise")


def test_where_all_loops_end_nothing_is_said() -> None:
    kernel = sg.fused_forward_backward(1, lambda p, r: (p[0] * r[0] - r[1]) ** 2, row=2)
    loss, _ = kernel.run([1.0], ROWS, exhausted="raise")
    assert kernel.bind(ROWS, exhausted="raise").run([1.0])[0] == loss
    with pytest.raises(sg.InputError, match='use "warn" or "raise"'):
        kernel.run([1.0], ROWS, exhausted="error")  # pyright: ignore[reportArgumentType]


def test_fits_that_start_there_say_so() -> None:
    """A step that would go there is not taken, and a start there is no success."""
    squares = KERNELS["squares"][0]("cpu")
    loss = KERNELS["loss"][0]("cpu")
    bowl = sg.fused_forward_backward(1, lambda v: (halved(v[0]) - 0.5) ** 2, device="cpu")
    found = {
        "fit": squares.fit([1.0], ROWS),
        "squares": squares.minimize([1.0], sg.LevenbergMarquardt(), rows=ROWS),
        "loss": loss.minimize([1.0], sg.LBFGS(), rows=ROWS),
        "points": bowl.minimize([300.0], sg.LBFGS()),
    }
    for result in found.values():
        assert not np.any(result.success)
        assert "not finite" in str(result.message)
    model = lambda x, a: halved(a * x)  # noqa: E731
    many = sg.fit_many(model, ROWS[:, 0], [ROWS[:, 1]], [1.0])
    assert not many.success.any()
    with pytest.raises(sg.FitError, match="not finite"):
        sg.curve_fit(model, ROWS[:, 0], ROWS[:, 1], [1.0])
