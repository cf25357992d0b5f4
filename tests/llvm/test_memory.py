"""Reads and writes of printed kernels: rows of any width, shared arrays, sums, ends of buffers."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers.expression import Expr
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import KernelIR, narrow, wide_add, widen
from symgrad.kernel.language.statements import lane_sum
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.shapes import Computation
from symgrad.kernel.skeletons.map import map_program
from symgrad.llvm.device.cpu import host
from symgrad.llvm.printing.functions import UNROLLED_COLUMNS
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.printer import print_kernel

from .programs import run_kernel
from .running import aligned, computation

WIDEST = host().vector_bits // 32


def shuffled(inputs: int, columns: int) -> tuple[Computation, np.ndarray]:
    """A computation that adds different numbers to inputs in another order, and that order."""
    graph = Graph()
    graph.tracing = False
    x = [Expr(graph, graph.input(f"x{k}")) for k in range(inputs)]
    order = np.random.default_rng(inputs * 1000 + columns).integers(inputs, size=columns)
    results = [(x[order[k]] + float(k + 1)).id for k in range(columns)]
    return computation(graph, [x[0].id], results), order


def at_the_end_of_memory(shape: tuple[int, int]) -> np.ndarray:
    """An array of float32 behind which there is no memory."""
    pages = mmap.mmap(-1, 8 * mmap.PAGESIZE)
    whole = np.frombuffer(pages, np.float32)
    found = whole[len(whole) - shape[0] * shape[1] :].reshape(shape)
    found[...] = np.random.default_rng(1).random(shape)
    return found


@pytest.mark.parametrize("inputs", [1, 2, 5, 7, 16, 33, UNROLLED_COLUMNS + 1])
@pytest.mark.parametrize("columns", [1, 3, 18, UNROLLED_COLUMNS + 3])
def test_every_width_is_transposed(inputs: int, columns: int) -> None:
    made, order = shuffled(inputs, columns)
    lanes, wide = [1, 4, WIDEST], inputs + columns + 1 > UNROLLED_COLUMNS
    shapes: list[tuple[Shape, Shape | None]] = [(Shape("float32", n, True), None) for n in lanes]
    if not wide:
        shapes.append((Shape("float32", 2 * WIDEST, True), Shape("float32", WIDEST, True)))
    points = at_the_end_of_memory((2 * WIDEST, inputs))
    for shape, vector in shapes:
        first, rest = (aligned((len(points), n), np.float32) for n in (1, columns))
        kernel = map_program(made, SimdTarget(shape.lanes))
        run_kernel(kernel, shape, vector, [points, first, rest], len(points))
        np.testing.assert_array_equal(first[:, 0], points[:, 0])
        want = points[:, order] + np.arange(1, columns + 1, dtype=np.float32)
        np.testing.assert_array_equal(rest, want, err_msg=str(shape))


def both_ways(
    k: KernelIR, dtype: str, arrays: Sequence[np.ndarray], count: int, cells: int
) -> None:
    """Run a kernel for groups, and compare its last array with the interpreter's."""
    lanes = k.target.width
    *given, want = (a.copy() for a in arrays)
    named = dict(zip([b.name for b in k.buffers], [*given, want], strict=False))
    execute(k, named, count, cells // lanes, dtype=np.dtype(dtype))
    run_kernel(k, Shape(dtype, lanes, False), None, arrays, count, cells)
    np.testing.assert_array_equal(arrays[-1], want)


def summed(lanes: int, columns: int) -> KernelIR:
    """Sums of whole numbers over rows, of which each group takes some, the last turn masked."""
    k = KernelIR(SimdTarget(lanes))
    x, out = k.buffer("x", "read"), k.buffer("out", "write")
    width = k.word(lanes)
    every = k.add(ops.word_mul, k.groups, width)
    whole = k.add(ops.word_div, k.count, every)

    def add(t: int, totals: list[int]) -> list[int]:
        row = k.add(ops.word_add, k.add(ops.word_mul, t, every), k.cell)
        found = [k.load(x, k.offset(row, columns, c)) for c in range(columns)]
        product = k.add(ops.mul, found[0], found[-1])
        return [k.add(wide_add, totals[0], k.add(widen, product))]

    zero = k.add(widen, k.constant(0.0))
    totals, _ = k.loop(k.word(0), whole, [zero], add)
    last = k.add(ops.word_add, k.add(ops.word_mul, whole, every), k.cell)
    inside = k.add(ops.word_lt, last, k.count)
    (total,) = k.choose(inside, lambda: add(whole, totals), lambda: totals)
    value = k.add(lane_sum, k.add(narrow, total))
    k.when(k.add(ops.word_lt, k.local, k.word(1)), lambda: k.store(out, k.group, value))
    return k


@pytest.mark.parametrize("columns", [2, 3, 20])
@pytest.mark.parametrize(("dtype", "lanes"), [("float32", WIDEST), ("float64", 4)])
def test_rows_are_summed_with_a_masked_last_turn(dtype: str, lanes: int, columns: int) -> None:
    for count in (2 * lanes, 8 * lanes + 3):
        rows = np.random.default_rng(count).integers(0, 9, (count, columns)).astype(dtype)
        sums = np.zeros(2, dtype)
        both_ways(summed(lanes, columns), dtype, [rows, sums], count, 2 * lanes)
        assert sums.sum() == (rows[:, 0] * rows[:, -1]).sum()


def test_groups_share_arrays() -> None:
    k = KernelIR(SimdTarget(WIDEST))
    x, out = k.buffer("x", "read"), k.buffer("out", "write")
    tile = k.buffer("tile", "group", size=2 * WIDEST)
    k.store(tile, k.local, k.load(x, k.cell))
    k.store(tile, k.add(ops.word_add, k.local, k.word(WIDEST)), k.constant(3.0))
    k.barrier()
    other = k.add(ops.word_sub, k.word(WIDEST - 1), k.local)
    one, half = k.load(tile, k.word(1)), k.load(tile, other)
    three = k.load(tile, k.add(ops.word_add, other, k.word(WIDEST)))
    k.barrier()
    k.store(tile, other, k.add(ops.mul, three, half), add=True)
    k.barrier()
    k.store(out, k.cell, k.add(ops.add, one, k.load(tile, k.local)))
    points = np.random.default_rng(0).random((2 * WIDEST, 1), dtype=np.float32)
    found = np.zeros((2 * WIDEST, 1), np.float32)
    both_ways(k, "float32", [points, found], 2 * WIDEST, 2 * WIDEST)
    reverse = points.reshape(2, -1)[:, ::-1]
    assert np.allclose(found.reshape(2, -1), points.reshape(2, -1) * 4 + reverse[:, -2:-1])


@pytest.mark.parametrize("stride", [1, 3])
def test_lanes_that_do_not_go_on_read_nothing(stride: int) -> None:
    """The row behind the last one is not there."""
    k = KernelIR(SimdTarget(WIDEST))
    x, out = k.buffer("x", "read"), k.buffer("out", "write")
    following = k.add(ops.word_add, k.cell, k.word(1))
    (value,) = k.choose(
        k.add(ops.word_lt, following, k.count),
        lambda: [k.load(x, k.offset(following, stride, stride - 1))],
        lambda: [k.constant(7.0)],
    )
    k.store(out, k.cell, value)
    points = at_the_end_of_memory((2 * WIDEST, stride))
    found = np.zeros(2 * WIDEST, np.float32)
    both_ways(k, "float32", [points, found], 2 * WIDEST, 2 * WIDEST)
    np.testing.assert_array_equal(found, [*points[1:, -1], 7.0])


@pytest.mark.parametrize("start", [1, WIDEST - 1, WIDEST, WIDEST + 1])
@pytest.mark.parametrize("stride", [1, 3])
def test_lanes_before_the_first_row_read_and_write_nothing(start: int, stride: int) -> None:
    """Their words are below 0, which is far behind the last row."""
    k = KernelIR(SimdTarget(WIDEST))
    x, out = k.buffer("x", "read"), k.buffer("out", "write")
    before = k.add(ops.word_sub, k.cell, k.word(start))

    def copy() -> None:
        k.store(out, before, k.load(x, k.offset(before, stride, stride - 1)))

    k.when(k.add(ops.word_lt, before, k.count), copy)
    points = at_the_end_of_memory((4 * WIDEST, stride))
    found = np.zeros(4 * WIDEST, np.float32)
    both_ways(k, "float32", [points, found], 4 * WIDEST, 4 * WIDEST)
    np.testing.assert_array_equal(found[:-start], points[:-start, -1])


@pytest.mark.parametrize("start", [-3 * WIDEST, -WIDEST, -1, 0, 1, WIDEST - 1, 3 * WIDEST])
@pytest.mark.parametrize("size", [1, WIDEST - 2, WIDEST - 1, WIDEST, WIDEST + 1, 3 * WIDEST])
@pytest.mark.parametrize("some", [False, True])
def test_lanes_beyond_a_limit_read_what_stands_there(start: int, size: int, some: bool) -> None:
    """Whether that is one lane of a vector, or all; below 0 a word is beyond it as well."""
    k = KernelIR(SimdTarget(WIDEST))
    x, out = k.buffer("x", "read"), k.buffer("out", "write")
    word = k.add(ops.word_add if start > 0 else ops.word_sub, k.cell, k.word(abs(start)))
    place = k.add(ops.word_add, k.add(ops.word_min, word, k.word(size - 1)), k.word(size))

    def copy() -> None:
        k.store(out, k.cell, k.load(x, place))

    if some:
        k.when(k.add(ops.word_lt, k.cell, k.count), copy)
    else:
        copy()
    cells = 5 * WIDEST
    count = cells - WIDEST - 1 if some else cells
    points, found = at_the_end_of_memory((2, size)), np.zeros(cells, np.float32)
    both_ways(k, "float32", [points, found], count, cells)
    wanted = points[1, np.minimum((np.arange(count) + start) % 2**32, size - 1)]
    np.testing.assert_array_equal(found, [*wanted, *np.zeros(cells - count)])
    gathered = "gather" in print_kernel(k, {}, Shape("float32", WIDEST, True)).text
    assert gathered == (WIDEST == 4)  # small vectors are not read in part by one instruction


def test_rows_within_a_loop_are_stored_whole_where_all_lanes_are() -> None:
    """And one column at a time in the iterations that only some lanes take."""
    k = KernelIR(SimdTarget(WIDEST))
    x, out = k.buffer("x", "read"), k.buffer("out", "write")
    trips = k.add(ops.nearest_word, k.load(x, k.cell))

    def body(t: int, _: list[int]) -> list[int]:
        row = k.add(ops.word_add, k.add(ops.word_mul, t, k.count), k.cell)
        for c in range(3):
            k.store(
                out, k.offset(row, 3, c), k.add(ops.word_float, k.add(ops.word_add, t, k.word(c)))
            )
        return []

    k.loop(k.word(0), trips, [], body)
    count = 2 * WIDEST
    points = np.random.default_rng(0).integers(1, 4, count).astype(np.float32)
    found = np.zeros((4 * count, 3), np.float32)
    both_ways(k, "float32", [points, found], count, count)
    assert found[:count].tolist() == [[0.0, 1.0, 2.0]] * count


def test_a_counted_loop_ends_where_its_lanes_do() -> None:
    k = KernelIR(SimdTarget(WIDEST))
    x, out = k.buffer("x", "read"), k.buffer("out", "write")
    hi = k.add(ops.nearest_word, k.load(x, k.cell))
    _, count = k.loop(k.word(2), hi, [], lambda t, _: [])
    k.store(out, k.cell, k.add(ops.word_float, count))
    points = np.arange(2 * WIDEST, dtype=np.float32)
    found = np.zeros(2 * WIDEST, np.float32)
    both_ways(k, "float32", [points, found], 2 * WIDEST, 2 * WIDEST)
    np.testing.assert_array_equal(found, np.maximum(points, 2.0))
