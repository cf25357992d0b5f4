"""Sums over rows on the CPU: any number of rows, columns and results, the same bits every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel.test_stage import bells, choice, plain, reduction
from launched import executed, sums_on
from machines import code_sizes, cores, vectors_of
from reference_kernels import reduce_rows
from tables import row

import symgrad as sg
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.stage import hoisted
from symgrad.llvm.dispatch import sums as cpu_sums

MOST_EXECUTED = 1001
"""Rows up to which the interpreter is quick."""


def data(count: int, columns: int = 2, n: int = 6) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(count)
    return (
        draw.uniform(0.5, 1.5, n).astype(np.float32),
        draw.uniform(-1, 1, (count, columns)).astype(np.float32),
    )


def agree(made: Reduction, p: np.ndarray, rows: np.ndarray, dtype: str = "float32") -> None:
    check_sums(sums_on("cpu", made, "accurate", dtype), p, rows, dtype)


def check_sums(sums: Any, p: np.ndarray, rows: np.ndarray, dtype: str) -> None:
    p, rows, made = p.astype(dtype), rows.astype(dtype), sums.reduction
    found = sums.run(p, rows)
    want = reduce_rows(made, p.astype(np.float64), rows.astype(np.float64))
    sizes = reduce_rows(made, p.astype(np.float64), rows[:1].astype(np.float64)) if len(rows) else 0
    slack = 2e-7 if dtype == "float32" else 1e-15
    scale = np.abs(want) + np.abs(sizes) * np.sqrt(len(rows)) + 1e-30
    assert np.all(np.abs(found - want) <= 4 * slack * scale)
    if 0 < len(rows) <= MOST_EXECUTED:
        assert np.all(np.abs(executed(sums, p, rows) - want) <= 1e-13 * scale)


@pytest.mark.parametrize("f", [bells, choice, plain])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_are_those_of_the_rows(f: Any, dtype: str) -> None:
    sums = sums_on("cpu", hoisted(reduction(f)), "accurate", dtype)
    for count in (0, 1, 15, 16, 17, 1000, 100_003):
        with row(count=count):
            check_sums(sums, *data(count), dtype)


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("f", [bells, plain])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_where_vectors_are_narrower(f: Any, bits: int, dtype: str) -> None:
    with vectors_of(bits):
        agree(hoisted(reduction(f)), *data(100_003), dtype)


@pytest.mark.parametrize("columns", [1, 2, 3, 5, 9, 17, 40])
@pytest.mark.parametrize("registers", [24, 0])
def test_any_number_of_columns(columns: int, registers: int) -> None:
    def f(p: Any, r: Any) -> Any:
        return sum((r[k] - p[k % 6]) ** 2 for k in range(columns))

    with code_sizes(carried_results=registers):
        agree(hoisted(reduction(f, 6, columns)), *data(500, columns))


def test_many_results() -> None:
    def network(p: Any, r: Any) -> Any:
        hidden = np.tanh(p[:60].reshape(30, 2) @ r[:2] + p[60:90])
        return (hidden @ p[90:120] - r[2]) ** 2

    agree(hoisted(reduction(network, 120, 3)), *data(777, 3, 120))


def test_the_bits_are_the_same_whatever_the_cores() -> None:
    p, rows = data(300_000)
    made = hoisted(reduction(bells))
    want = sums_on("cpu", made).run(p, rows)
    for count in (1, 2, 5):
        with cores(count):
            np.testing.assert_array_equal(sums_on("cpu", made).run(p, rows), want)


def test_entries_of_tables_have_the_same_bits_whatever_the_cores() -> None:
    """Pieces of rows add to copies of the tables, which threads have in turn."""
    count = 10 * cpu_sums.ROWS_PER_PIECE + 3
    draw = np.random.default_rng(1)
    table = {"at": draw.integers(0, 7, count), "x": draw.random(count, np.float32)}
    kernel = sg.fused_forward_backward(
        7, lambda p, r: sg.sin(p[r.at] * r.x), columns=["at", "x"], device="cpu"
    )
    p = draw.random(7).astype(np.float32)
    results: list[Any] = []
    for n in (1, 2, 5):
        with cores(n):
            results.append(kernel.to("cpu").run(p, table))
    for value, slopes in results:
        assert value == results[0][0]
        np.testing.assert_array_equal(slopes, results[0][1])
    terms = np.cos(p[table["at"]] * table["x"].astype(float)) * table["x"]
    want = np.bincount(table["at"], terms, 7)
    np.testing.assert_allclose(results[0][1], want, rtol=1e-6)


def test_errors_do_not_grow_with_the_rows() -> None:
    p, rows = data(2_000_000)
    made = hoisted(reduction(bells))
    found = sums_on("cpu", made).run(p, rows)
    want = reduce_rows(made, p.astype(np.float64), rows.astype(np.float64))
    assert np.max(np.abs(found - want) / np.abs(want)) < 2e-7


@pytest.mark.parametrize(("results", "bound"), [(1, 1.5e-7), (40, 2e-7)])
@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1 / 3, 0.123])
def test_rows_that_are_all_the_same(value: float, results: int, bound: float) -> None:
    """Their rounding errors all have one sign, in registers as in memory."""
    rows = np.full((100_000, 1), value, np.float32)
    loss = lambda p, r: sum((k + 1) * p[k] for k in range(results)) * r[0]  # noqa: E731
    made = reduction(loss, results, 1)
    found = sums_on("cpu", made).run(np.ones(results, np.float32), rows)
    want = reduce_rows(made, np.ones(results), rows.astype(np.float64))
    assert np.max(np.abs(found - want) / want) < bound


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("results", [1, 40])
def test_rows_that_are_all_the_same_in_float64(bits: int, results: int) -> None:
    """However many rows a lane and a piece have, and however many pieces there are."""
    made = reduction(lambda p, r: sum((k + 1) * p[k] for k in range(results)) * r[0], results, 1)
    with vectors_of(bits):
        sums = sums_on("cpu", made, dtype="float64")
    for value in (0.1, 0.3, 0.7, 1 / 3):
        found = sums.run(np.ones(results), np.full((1_000_000, 1), value))
        want = reduce_rows(made, np.ones(results), np.full((1, 1), value)) * 1e6
        assert np.max(np.abs(found - want) / want) < 1.2e-15


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("registers", [24, 0])
def test_an_infinite_row_makes_an_infinite_sum(registers: int, dtype: str) -> None:
    rows = np.ones((5000, 1), dtype)
    rows[17] = np.inf
    made = reduction(lambda p, r: p[0] * r[0] * r[0], 1, 1)
    with code_sizes(carried_results=registers):
        sums = sums_on("cpu", made, "accurate", dtype)
    assert np.all(sums.run(np.ones(1, dtype), rows) == np.inf)


def test_what_is_beyond_the_rows_does_not_count() -> None:
    made = hoisted(reduction(lambda p, r: p[0] / r[0]))  # padding rows are 0: 1/0
    agree(made, *data(5))


def test_a_row_of_nan_spoils_the_sum_as_it_should() -> None:
    p, rows = data(40)
    rows[33, 0] = np.nan
    found = sums_on("cpu", hoisted(reduction(lambda p, r: p[0] * r[0] * r[1])))
    assert np.isnan(found.run(p, rows)[:1])


def test_strict_mathematics_fuses_nothing() -> None:
    p, rows = data(1000)
    made = hoisted(reduction(bells))
    strict = sums_on("cpu", made, "strict", "float32").run(p, rows)
    np.testing.assert_allclose(strict, sums_on("cpu", made).run(p, rows), rtol=1e-5)


def test_a_product_of_parameters_alone_is_computed_once() -> None:
    """It is used by one sum of each row, but is no part of the row's own instructions."""
    agree(hoisted(reduction(lambda p, r: p[2] * 0 + r[0] * r[0] + 2.0 * p[0])), *data(40))


@pytest.mark.parametrize("count", [1, 17, 16 * 4 - 1, 16 * 9 + 5, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_are_run_over_several_blocks(count: int, dtype: Any) -> None:
    """Rows that look up parameters and add to them, in one function and in many."""

    def loss(p: Any, r: Any) -> Any:
        waves = [sg.sin(p["all"][k] * r.x) * sg.exp(-(r.y**2) * k) for k in range(8)]
        return sum(w * p["own"][r.city][k % 2] for k, w in enumerate(waves))

    def results() -> tuple[float, Any]:
        kernel = sg.fused_forward_backward(
            {"all": (8,), "own": (5, 2)},
            loss,
            columns=["city", "x", "y"],
            device="cpu",
            dtype=dtype,
        )
        return kernel.run(params, rows)

    draw = np.random.default_rng(count)
    params = {"all": draw.random(8), "own": draw.random((5, 2))}
    rows = {"city": draw.integers(0, 5, count), "x": draw.random(count), "y": draw.random(count)}
    value, slopes = results()
    with code_sizes(long_batch=10, function=7):
        again, others = results()
    assert again == value
    for name, slope in slopes.items():
        np.testing.assert_array_equal(others[name], slope)
