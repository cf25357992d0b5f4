"""Blocks of rows transposed to vectors and back: every width, on vectors of every size."""

from __future__ import annotations

import numpy as np
import pytest
from tables import row

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers.expression import Expr
from symgrad.kernel.shapes import Computation
from symgrad.llvm.device.cpu import host
from symgrad.llvm.printing.functions import UNROLLED_COLUMNS
from symgrad.llvm.printing.operations import Shape

from .running import computation, run

WIDEST = host().vector_bits // 32


def shuffled(inputs: int, columns: int) -> tuple[Computation, np.ndarray]:
    """A computation that adds different numbers to inputs in another order, and that order."""
    graph = Graph()
    graph.tracing = False
    x = [Expr(graph, graph.input(f"x{k}")) for k in range(inputs)]
    order = np.random.default_rng(inputs * 1000 + columns).integers(inputs, size=columns)
    results = [(x[order[k]] + float(k + 1)).id for k in range(columns)]
    return computation(graph, [x[0].id], results), order


def expected(points: np.ndarray, order: np.ndarray) -> np.ndarray:
    return points[:, order] + np.arange(1, len(order) + 1, dtype=points.dtype)


WIDTHS = {
    **dict.fromkeys((1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 33), (5,)), 7: (1, 2, 5, 16, 18),
    16: (1, 5, 16), 33: (2, 5, 18),
}  # fmt: skip
"""Inputs, and with how many columns: what is read is transposed whatever is written."""


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("inputs", WIDTHS)
def test_every_width_is_transposed(lanes: int, inputs: int) -> None:
    for columns in WIDTHS[inputs]:
        made, order = shuffled(inputs, columns)
        points = np.random.default_rng(1).random((3 * lanes, inputs), dtype=np.float32)
        first, rest = run(made, Shape("float32", lanes, True), points)
        with row(columns=columns):
            np.testing.assert_array_equal(first[:, 0], points[:, 0])
            np.testing.assert_array_equal(rest, expected(points, order))


@pytest.mark.parametrize("inputs", [3, WIDEST, UNROLLED_COLUMNS, UNROLLED_COLUMNS + 1, 200])
@pytest.mark.parametrize("columns", [2, UNROLLED_COLUMNS + 3, 150])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_wide_rows_go_through_memory(inputs: int, columns: int, dtype: str) -> None:
    made, order = shuffled(inputs, columns)
    lanes = WIDEST if dtype == "float32" else WIDEST // 2
    points = np.random.default_rng(1).random((2 * lanes, inputs)).astype(dtype)
    _, rest = run(made, Shape(dtype, lanes, True), points)
    np.testing.assert_array_equal(rest, expected(points, order))


@pytest.mark.parametrize("columns", [1, 3, 16, 30])
def test_streamed_results_are_the_same(columns: int) -> None:
    made, order = shuffled(5, columns)
    points = np.random.default_rng(1).random((4 * WIDEST, 5), dtype=np.float32)
    _, rest = run(made, Shape("float32", WIDEST, True), points, stream=True)
    np.testing.assert_array_equal(rest, expected(points, order))


def test_nothing_is_read_beyond_the_points() -> None:
    """The points end where the pages of the process do."""
    import mmap

    made, order = shuffled(3, 4)
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    whole = np.frombuffer(pages, np.float32)
    count = 2 * WIDEST
    points = whole[len(whole) - count * 3 :].reshape(count, 3)
    points[...] = np.random.default_rng(1).random(points.shape)
    _, rest = run(made, Shape("float32", WIDEST, True), points)
    np.testing.assert_array_equal(rest, expected(points, order))


def test_unused_inputs_are_no_obstacle() -> None:
    graph = Graph()
    graph.tracing = False
    x = [Expr(graph, graph.input(f"x{k}")) for k in range(20)]
    made = computation(graph, [ops.sqrt(x[13]).id], [graph.constant(2.5), x[19].id])
    points = np.random.default_rng(1).random((WIDEST, 20), dtype=np.float32)
    root, rest = run(made, Shape("float32", WIDEST, True), points)
    np.testing.assert_array_equal(root[:, 0], np.sqrt(points[:, 13]))
    np.testing.assert_array_equal(rest[:, 0], np.float32(2.5))
    np.testing.assert_array_equal(rest[:, 1], points[:, 19])
