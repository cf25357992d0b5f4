"""Sums over rows in groups, as programs of the language, in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel.test_stage import bells, choice, plain, reduction
from reference_kernels import reduce_rows

from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Load
from symgrad.kernel.language.verify import verify
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.row_sums_workgroup import (
    group_products,
    in_products,
    row_sums_workgroup,
)
from symgrad.kernel.skeletons.row_tile import Tile, cut
from symgrad.kernel.stage import hoisted

GROUPS = 2


def powers(columns: int) -> Any:
    return lambda p, r: sum(p[k % 6] * r[k] ** (1 + k % 3) for k in range(columns)) ** 2


def layers(p: Any, r: Any) -> Any:
    """A network of two layers, whose slopes are products of few factors: 72 parameters."""
    first = np.tanh(p[:16].reshape(8, 2) @ r[:2])
    return (sum(np.tanh(p[16:].reshape(7, 8) @ first)) - r[0]) ** 2


def drawn(n: int, count: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(count)
    return draw.uniform(0.5, 1.5, n), draw.uniform(-1, 1, (count, columns))


def padded(numbers: np.ndarray) -> np.ndarray:
    """The numbers in a row, in whole vectors; what is behind them is not to be seen."""
    found = np.full(-(-numbers.size // 4) * 4 + 4, np.nan)
    found[: numbers.size] = numbers.ravel()
    return found


def summed(
    kernel: KernelIR, tile: Tile, p: np.ndarray, rows: np.ndarray, cells: tuple[int, ...] = ()
) -> np.ndarray:
    """The results of a tile, as the host makes them of what groups write."""
    verify(kernel)
    count, fixed = len(tile.results), len(tile.results) - len(tile.summed)
    size = max(cells, default=len(tile.summed) - 1) // 16 * 16 + 16
    sums = np.full(count + fixed + size * GROUPS, np.nan)
    arrays = {"parameters": padded(p), "rows": padded(rows), "partials": sums}
    execute(kernel, arrays, len(rows), GROUPS)
    parts = sums[count + fixed :].reshape(size, GROUPS)
    wanted = list(cells) if cells else range(len(tile.summed))
    found = np.zeros(count)
    first = tile.results.start
    found[[k - first for k in tile.summed]] = parts[wanted].sum(axis=1)
    still = [k - first for k in tile.results if k not in tile.summed]
    found[still] = len(rows) * sums[count : count + fixed]
    return found * sums[:count]


def agree(made: Reduction, n: int, count: int, size: int, width: int = 64) -> None:
    p, rows = drawn(n, count, made.columns)
    found = [summed(row_sums_workgroup(t, width, t.most), t, p, rows) for t in cut(made, size)]
    want = reduce_rows(made, p, rows)
    np.testing.assert_allclose(np.concatenate(found), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("f", [bells, choice, plain])
@pytest.mark.parametrize("count", [1, 64, 65, 1500])
def test_sums_are_those_of_the_rows(f: Any, count: int) -> None:
    agree(hoisted(reduction(f)), 6, count, 64)


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 1021])
def test_rows_of_any_width(columns: int, count: int) -> None:
    agree(hoisted(reduction(powers(columns), 6, columns)), 6, count, 64)


@pytest.mark.parametrize("columns", [1, 2])
def test_more_than_a_load_has_of_much_to_do(columns: int) -> None:
    """Rows that are read together, but stand in no block without a loop."""
    made = hoisted(reduction(lambda p, r: sum(np.sin(p[k] * r[0]) for k in range(20)), 20, columns))
    (tile,) = cut(made, 64)
    assert tile.rows > 1 and not tile.flat
    agree(made, 20, 1021, 64)


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 300, 301, 303])
def test_many_results_one_by_one_and_in_tiles(columns: int, count: int) -> None:
    """Of rows that are read together, the last may be alone."""
    made = hoisted(reduction(lambda p, r: sum(np.sin(p[k] * r[0]) for k in range(40)), 40, columns))
    assert not cut(made, 64)[0].two_levels
    for size in (64, 15):
        agree(made, 40, count, size)


def test_many_parameters_are_read_where_they_are_needed() -> None:
    made = hoisted(reduction(lambda p, r: sum(np.sin(p[k] * r[0]) for k in range(70)), 70, 2))
    (tile,) = cut(made, 100)
    kernel = row_sums_workgroup(tile, 64, tile.most)
    loads = [i for s, i in kernel.items() if isinstance(i, Load) and i.buffer.name == "parameters"]
    assert loads and not any(i in kernel.main.items for i in loads)
    agree(made, 70, 100, 100)


@pytest.mark.parametrize("count", [1, 64, 65, 300])
def test_products_of_few_factors(count: int) -> None:
    made = hoisted(reduction(layers, 72))
    p, rows = drawn(72, count, 2)
    (products,) = in_products(made)
    found = summed(group_products(products), products.tile, p, rows, products.cells)
    np.testing.assert_allclose(found, reduce_rows(made, p, rows), rtol=1e-12, atol=1e-12)
