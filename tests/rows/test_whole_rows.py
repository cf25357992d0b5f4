"""Losses over data whose rows hold large arrays: whole arrays, beside NumPy and kernels of rows."""

from __future__ import annotations

import warnings
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad

import symgrad as sg
from symgrad.front import whole_rows
from symgrad.front.whole_rows import WholeDataKernel

RNG = np.random.default_rng(8)
ROWS, SHAPES = 40, {"inner": (300, 8), "shift": (8,), "outer": (8, 3)}
POINT = {name: 0.1 * RNG.normal(size=shape) for name, shape in SHAPES.items()}
TABLE = {
    "x": RNG.normal(size=(ROWS, 20, 15)),
    "y": np.eye(3)[RNG.integers(0, 3, ROWS)],
    "w": RNG.uniform(0.5, 2.0, ROWS),
}
COLUMNS = {"x": (20, 15), "y": (3,), "w": ()}


def network(p: Any, r: Any) -> Any:
    """The cross entropy of a network, of one row."""
    hidden = np.tanh(r.x.reshape(300) @ p.inner + p.shift)
    scores = hidden @ p.outer
    return np.log(np.sum(np.exp(scores))) - np.sum(r.y * scores)


def of_all(p: dict[str, np.ndarray], table: dict[str, np.ndarray]) -> np.ndarray:
    """The same of all rows, in NumPy."""
    hidden = np.tanh(table["x"].reshape(-1, 300) @ p["inner"] + p["shift"])
    scores = hidden @ p["outer"]
    return np.log(np.sum(np.exp(scores), 1)) - np.sum(table["y"] * scores, 1)


def kernel_of(f: Any = network, **options: Any) -> Any:
    options = {"columns": COLUMNS, "device": "cpu", "dtype": "float64"} | options
    return sg.fused_forward_backward(SHAPES, f, **options)


def test_a_network_as_a_loss_of_rows_is_of_whole_arrays() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = kernel_of()
    assert isinstance(kernel, WholeDataKernel)
    value, grad = kernel.run(POINT, TABLE)
    assert np.isclose(value, of_all(POINT, TABLE).sum(), rtol=1e-13)
    loss = kernel.bind(TABLE).as_scipy()
    start = kernel.in_a_row(POINT)
    some = RNG.normal(size=start.size)
    along = check_grad(
        lambda t: loss(start + t[0] * some)[0], lambda t: loss(start + t[0] * some)[1] @ some, [0.0]
    )
    assert along < 1e-4
    assert grad["inner"].shape == (300, 8)
    assert kernel.stats.operations > 10_000 and "product" in str(kernel.stages)
    with pytest.raises(sg.InputError, match="no expressions"):
        _ = kernel.expr


def test_weights_means_regularizers_and_missing_numbers() -> None:
    ridge = lambda p: 0.1 * np.sum(p.outer**2)  # noqa: E731
    kernel = kernel_of(weights="w", reduce="mean", nan_policy="omit", regularizer=ridge)
    table = {k: v.copy() for k, v in TABLE.items()}
    table["x"][3, 0, 0] = np.nan
    table["w"][5], table["x"][5] = 0.0, np.inf
    value, grad = kernel.run(POINT, table)
    kept = [k for k in range(ROWS) if k not in (3, 5)]
    losses, weights = of_all(POINT, {k: v[kept] for k, v in TABLE.items()}), TABLE["w"][kept]
    wanted = losses @ weights / weights.sum() + 0.1 * np.sum(POINT["outer"] ** 2)
    assert np.isclose(value, wanted, rtol=1e-12)
    assert np.isfinite(grad["inner"]).all()


def test_blocks_of_rows_and_streams_have_one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    value, grad = kernel_of().run(POINT, TABLE)
    monkeypatch.setattr(whole_rows, "BLOCK_ELEMENTS", 5_000)
    kernel = kernel_of()
    halves = iter([{k: v[:13] for k, v in TABLE.items()}, {k: v[13:] for k, v in TABLE.items()}])
    for other, slopes in (
        kernel.run(POINT, TABLE),
        kernel.bind(TABLE).run(POINT),
        kernel(POINT, halves),
    ):
        assert np.isclose(other, value, rtol=1e-12)
        assert np.allclose(slopes["inner"], grad["inner"], rtol=1e-10, atol=1e-12)


SCALE = 1.0


def scaled(p: Any, r: Any) -> Any:
    return np.sum(np.tanh(r.x.reshape(300) @ p.inner) ** 2) * SCALE


def test_a_function_that_has_changed_is_refused() -> None:
    """For each number of rows it is traced again: no sum is of two functions."""
    module = dict(globals())
    kernel = kernel_of(FunctionType(scaled.__code__, module, "scaled"))
    whole = kernel.run(POINT, TABLE)[0]
    module["SCALE"] = 10.0
    assert kernel.run(POINT, TABLE)[0] == whole
    with pytest.raises(sg.TraceError, match="is not what it was when the kernel scaled was made"):
        kernel.run(POINT, {k: v[:7] for k, v in TABLE.items()})


def test_arrays_that_are_taken_from_elsewhere_are_those_of_the_making() -> None:
    shift = RNG.normal(size=8)
    kernel = kernel_of(lambda p, r: np.sum((r.x.reshape(300) @ p.inner + shift) ** 2))
    wanted = np.sum((TABLE["x"].reshape(-1, 300) @ POINT["inner"] + shift) ** 2, 1)
    shift *= 2.0
    for count in (5, 3, ROWS):
        value, _ = kernel.run(POINT, {k: v[:count] for k, v in TABLE.items()})
        assert np.isclose(value, wanted[:count].sum(), rtol=1e-12)


def test_a_loop_over_the_arrays_of_a_row() -> None:
    def rolled(p: Any, r: Any) -> Any:
        x = r.x.reshape(300)
        return np.sum(sg.fori_loop(0, 3, lambda k, c: np.tanh(c) + x, x @ p.inner @ p.inner.T))

    kernel = kernel_of(rolled)
    x = TABLE["x"].reshape(-1, 300)
    carry = x @ POINT["inner"] @ POINT["inner"].T
    for _ in range(3):
        carry = np.tanh(carry) + x
    assert isinstance(kernel, WholeDataKernel)
    assert np.isclose(kernel.run(POINT, TABLE)[0], carry.sum(), rtol=1e-12)


def test_blocks_are_of_what_rows_make_and_not_of_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole_rows, "BLOCK_ELEMENTS", 90_000 * 4)

    def outer(p: Any, r: Any) -> Any:
        x = r.x.reshape(300)
        return np.sum(np.tanh(x[:, None] * x * np.sum(p.outer)) ** 2)

    assert kernel_of(outer)._traced.block_rows == 4
    table = {"inner": (600, 600)}
    large = sg.fused_forward_backward(
        table, lambda p, r: np.sum(np.tanh(r.x @ p.inner)), columns={"x": (600,)}, device="cpu"
    )
    assert isinstance(large, WholeDataKernel)
    assert large._traced.block_rows == 90_000 * 4 // 600


def test_on_a_gpu() -> None:
    kernel = kernel_of(device="gpu", dtype="float32")
    value, grad = kernel.bind(TABLE).run(POINT)
    wanted, slopes = kernel_of().run(POINT, TABLE)
    assert np.isclose(value, wanted, rtol=1e-5)
    assert np.allclose(grad["inner"], slopes["inner"], rtol=1e-3, atol=1e-4)


def test_rows_without_names_and_rows_that_look_up_parameters() -> None:
    rows = RNG.normal(size=(9, 301))
    kernel = sg.fused_forward_backward(
        (300, 8), lambda p, r: np.sum((r[:300] @ p) ** 2) * r[300], row=301, device="cpu",
        dtype="float64",
    )  # fmt: skip
    value, _ = kernel.run(POINT["inner"], rows)
    wanted = np.sum(np.sum((rows[:, :300] @ POINT["inner"]) ** 2, 1) * rows[:, 300])
    assert isinstance(kernel, WholeDataKernel) and np.isclose(value, wanted, rtol=1e-12)

    def looked_up(p: Any, r: Any) -> Any:
        return np.sum(p.table[r.k] * r.x) + 0 * np.sum(r.x[:, None] * r.x)

    kernel = sg.fused_forward_backward(
        {"table": (4, 50)}, looked_up, columns={"k": (), "x": (50,)}, device="cpu", dtype="float64"
    )
    table = {"k": RNG.integers(0, 4, 9), "x": RNG.normal(size=(9, 50))}
    value, grad = kernel.run({"table": np.ones((4, 50))}, table)
    assert np.isclose(value, table["x"].sum(), rtol=1e-12)
    assert np.allclose(grad["table"][1], table["x"][table["k"] == 1].sum(0))


def test_counts_of_rows_that_weigh_something_share_programs() -> None:
    """Sums of 9 to 12 of 16 rows are by one program; what weighs nothing may be anything."""
    kernel = kernel_of(weights="w")
    values = list[float]()
    for idle in range(4, 8):
        table = {k: np.concatenate([v] * 3)[:16].copy() for k, v in TABLE.items()}
        table["w"][:idle], table["x"][:idle] = 0.0, np.nan
        value, _ = kernel.run(POINT, table)
        rest = {k: v[idle:] for k, v in table.items()}
        assert np.isclose(value, of_all(POINT, rest) @ rest["w"], rtol=1e-12)
        values.append(kernel.stats.seconds["compile"])
    assert len(set(values)) == 1
