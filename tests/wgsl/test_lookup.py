"""Parameters that rows look up, on a GPU: what is added to entries is as NumPy and the CPU say."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launched import executed, memory_of_nan, sums_on
from reference_kernels import compute
from scenes import Scene, read_bal, reprojection
from tables import row
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.errors import DeviceError, DeviceMemoryError, InputError
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers.expression import Expr
from symgrad.kernel.language import target
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.shapes import Lookup, Output, Reduction
from symgrad.kernel.skeletons import row_tile
from symgrad.kernel.skeletons.lookup import RUNS_PER_GROUP, Place, RunSums
from symgrad.kernel.skeletons.row_tile import (
    ROWS_PER_RUN,
    in_order,
    quads,
    segments,
    sorted_order,
)
from symgrad.kernel.stage import hoisted
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch import sums as reduce_dispatch
from symgrad.wgsl.dispatch.sums import Summation, emit_reduction
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Style

MOST_EXECUTED = 1001
"""Rows up to which the interpreter is quick."""

BAL = os.environ.get("SYMGRAD_BAL")
"""A file that holds a bundle adjustment problem as grail.cs.washington.edu/projects/bal has it."""

Case = tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]


def looking(*lookups: tuple[int, int, int], columns: int = 2, absent: bool = False) -> Reduction:
    """A sum and slopes of many kinds: of rows, entries and parameters, and constant ones."""
    graph = Graph()
    graph.tracing = False
    p = [Expr(graph, graph.input(f"p{k}")) for k in range(2)]
    r = [Expr(graph, graph.input(f"r{k}")) for k in range(columns)]
    entries = [[Expr(graph, graph.input(f"t{k}_{c}")) for c in range(width)]
             for k, (_, width, _) in enumerate(lookups)]  # fmt: skip
    terms = [(v * v + v) / len(entry) for entry in entries for v in entry] + [x * p[0] for x in r]
    total = functools.reduce(operator.add, terms)
    outputs = [Output("loss", (total.id,))]
    for k, entry in enumerate(entries):
        found = [_slope(graph, p, total, v, 3 * k + c) for c, v in enumerate(entry)]
        nodes = [graph.constant(0.0) if absent and c % 2 == 0 else n for c, n in enumerate(found)]
        outputs.append(Output(f"grad_{k}", tuple(nodes)))
    kinds = tuple(Lookup(*lookup) for lookup in lookups)
    return hoisted(Reduction("looking", graph, tuple(outputs), 2, (graph.constant(1.0),), kinds))


def _slope(graph: Graph, p: Sequence[Expr], total: Expr, value: Expr, kind: int) -> int:
    if kind % 7 == 5:
        return (p[0] * p[1]).id
    if kind % 7 == 6:
        return (value, p[1])[kind % 2].id
    return graph.constant(0.25 * kind) if kind % 7 == 4 else (p[1] * total * value + kind).id


def case(made: Reduction, count: int, seed: int = 0) -> Case:
    """Parameters, rows, indices, and tables."""
    draw = np.random.default_rng(seed)
    of_index = {k.index: k.entries for k in made.lookups}
    indices = [draw.integers(0, of_index[k], count) for k in range(len(of_index))]
    tables = [draw.uniform(-1, 1, (k.entries, k.width)) for k in made.lookups]
    return (
        draw.uniform(0.5, 1.5, made.parameters).astype(np.float32),
        draw.uniform(-1, 1, (count, made.columns)).astype(np.float32),
        np.stack(indices, axis=1).astype(np.int32),
        [t.astype(np.float32) for t in tables],
    )


def truth(made: Reduction, given: Case) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
    """The sum and the tables in float64, and for these the sizes that errors are a share of."""
    p, rows, indices, tables = given
    taken = [t[indices[:, k.index]] for k, t in zip(made.lookups, tables, strict=True)]
    points = np.concatenate([np.tile(p, (len(rows), 1)), rows, *taken], axis=1).astype(np.float64)
    results = compute(made, points)
    found = [np.zeros(t.shape) for t in tables]
    sizes = [np.zeros(t.shape) for t in tables]
    start = 1
    for lookup, entry, size in zip(made.lookups, found, sizes, strict=True):
        mine = results[:, start : start + lookup.width]
        np.add.at(entry, indices[:, lookup.index], mine)
        np.add.at(size, indices[:, lookup.index], np.abs(mine) + 1.0)
        start += lookup.width
    return float(results[:, 0].sum()), found, sizes


def compiled(gpu: Gpu, made: Reduction) -> Any:
    return sums_on(gpu, made)


def run(sums: Any, given: Case, bound: Any = None) -> tuple[np.ndarray, list[np.ndarray]]:
    """The sums over all rows, and those of the tables' entries."""
    p, rows, indices, tables = given
    bound = bound or sums.bind(rows, indices)
    return parted(sums.reduction, bound.run(sums.reduction.packed(p, tables)))


def parted(made: Reduction, totals: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    return totals[: made.results], made.entries(totals)


def agree(sums: Any, given: Case, on_cpu: Any = None) -> None:
    """The sums on the GPU, in memory that was NaN, are those of the rows, and the CPU's."""
    p, rows, indices, tables = given
    made = sums.reduction
    with memory_of_nan(sums.gpu):
        found, entries = run(sums, given)
    want, want_entries, sizes = truth(made, given)
    assert found.shape == (1,) and found.dtype == np.float64
    np.testing.assert_allclose(found[0], want, rtol=0, atol=2e-6 * (len(rows) + 1))
    cpu = on_cpu or sums_on("cpu", made)
    near, near_entries = run(cpu, given)
    np.testing.assert_allclose(found, near, rtol=0, atol=2e-6 * (len(rows) + 1))
    for entry, true, close, size in zip(entries, want_entries, near_entries, sizes, strict=True):
        assert entry.dtype == np.float64 and entry.shape == true.shape
        np.testing.assert_array_less(np.abs(entry - true), 2e-6 * size + 1e-30)
        np.testing.assert_array_less(np.abs(entry - close), 2e-6 * size + 1e-30)
    for each in (sums, cpu) if 0 < len(rows) <= MOST_EXECUTED else ():
        totals = executed(each, made.packed(p, tables), rows, indices)
        exact, exact_entries = parted(made, totals)
        np.testing.assert_allclose(exact[0], want, rtol=0, atol=1e-12 * (len(rows) + 1))
        for entry, true, size in zip(exact_entries, want_entries, sizes, strict=True):
            np.testing.assert_array_less(np.abs(entry - true), 1e-12 * size + 1e-30)


CASES: dict[str, Reduction] = {
    "one column": looking((0, 1, 40)),
    "points": looking((0, 3, 1000)),
    "cameras and points": looking((0, 9, 5), (1, 3, 300)),
    "a wide entry": looking((0, 20, 7)),
    "several of one index": looking((0, 3, 20), (0, 5, 20), (1, 1, 9), (0, 2, 20)),
    "a hundred columns": looking((0, 100, 11)),
    "most slopes are 0": looking((0, 9, 30), (1, 20, 4), absent=True),
    "all slopes are 0": looking((0, 1, 4), absent=True),
    "no columns": looking((0, 2, 40), columns=0),
    "four columns": looking((1, 2, 40), (0, 4, 3), columns=4),
}


# the source ---------------------------------------------------------------------------------------


def emitted(name: str, math: str = "accurate") -> tuple[Summation, ...]:
    return emit_reduction(CASES[name], Style(math))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("math", ["accurate", "fast", "strict"])
def test_naga_takes_it(name: str, math: str, gpu: Gpu) -> None:
    for module in emitted(name, math):
        gpu.pipeline(module.source, 2, module.readable)


def run_sums(columns: int, place: Place | None) -> str:
    """The source of the kernel that adds up runs."""
    kernel = RunSums(columns, place)(WorkgroupTarget(RUNS_PER_GROUP, grid=True))
    (source,) = print_kernel(kernel, Style()).modules
    return source


@needs_tint
def test_tint_takes_it() -> None:
    sources = [m.source for name in CASES for math in ("accurate", "fast")
               for m in emitted(name, math)]  # fmt: skip
    sources += [run_sums(n, place) for n in (1, 2, 4) for place in (None, Place(3, 4 * n, 40))]
    assert [v for v in check_with_tint(sources) if v] == []


def test_entries_are_found_once_and_slopes_of_0_left_out() -> None:
    (module,) = emitted("most slopes are 0")
    assert module.source.count("let entry0 =") == module.source.count("let entry1 =") == 1
    assert len(module.program.tile.slopes) == len(quads(CASES["most slopes are 0"])) == 4
    assert "looked up in tables: 9 by index 0, 20 by index 1" in module.source
    (module,) = emitted("all slopes are 0")
    assert not module.program.tile.slopes and "= vec4<f32>(" not in module.source


def test_many_slopes_are_cut_into_modules(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tile, "RESULTS_PER_MODULE", (3, 3))
    for name in ("a hundred columns", "several of one index"):
        made, modules = CASES[name], emitted(name)
        assert len(modules) > 1 and not modules[-1].program.results.numbers
        assert [k for m in modules for k in m.program.tile.slopes] == list(range(len(quads(made))))
        agree(compiled(gpu, made), case(made, 1000))


def test_names_of_the_user(gpu: Gpu) -> None:
    made = looking((0, 3, 5), (1, 1, 6))
    first = ["indices", "entry0", "entry0_0", "slopes"]
    made.graph.names[:] = [*first, "row", "padded", "table0", "x"]
    agree(compiled(gpu, made), case(made, 100))


# the order of rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [1, 300, 65_536, 65_537, 3_000_000])
def test_rows_are_sorted_by_entry(entries: int) -> None:
    indices = np.random.default_rng(entries).integers(0, entries, 5000).astype(np.int32)
    np.testing.assert_array_equal(sorted_order(indices), np.argsort(indices, kind="stable"))


@pytest.mark.parametrize("entries", [1, 2, 40, 5000])
@pytest.mark.parametrize("count", [1, 16, 17, 1000, 20_000, 3_000_000])
def test_segments_hold_every_row_once(count: int, entries: int) -> None:
    draw = np.random.default_rng(count)
    indices = draw.integers(0, entries, count).astype(np.int32)
    values = draw.integers(0, 100, count)
    found, part = segments(indices), values
    assert len(found.levels) > 1 or count < 3_000_000
    for level in found.levels:
        lengths = np.diff(level.starts.astype(int))
        assert lengths.min() >= 0 and lengths.max() <= ROWS_PER_RUN
        assert len(level.order) == len(part)
        ends = np.concatenate([[0], np.cumsum(part[level.order])])
        part = np.diff(ends[level.starts])
    sums = np.zeros(entries)
    sums[found.entries] = np.add.reduceat(part, found.firsts)
    np.testing.assert_array_equal(sums, np.bincount(indices, values, minlength=entries))
    assert len(found.entries) <= 2 * len(np.unique(indices))


# the entries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_slopes_are_added_to_entries(name: str, gpu: Gpu) -> None:
    made = CASES[name]
    sums, cpu = compiled(gpu, made), sums_on("cpu", made)
    for count in (0, 1, 63, 1000, 100_003):
        with row(count=count):
            agree(sums, case(made, count), cpu)


def test_few_entries_and_many(gpu: Gpu) -> None:
    """Among them entries without rows, and one with all rows."""
    for entries in ((1, 1), (2, 70_000), (100_000, 3)):
        made = looking((0, 9, entries[0]), (1, 3, entries[1]))
        with row(entries=entries):
            agree(compiled(gpu, made), case(made, 100_000))


def test_kernels_are_the_same_for_tables_of_any_length() -> None:
    sources = {emit_reduction(looking((0, 9, n), (1, 3, 7)), Style())[0].source for n in (2, 90)}
    assert len(sources) == 1


def test_one_line_has_all_rows_and_the_others_none(gpu: Gpu) -> None:
    made = looking((0, 9, 50))
    p, rows, indices, tables = case(made, 100_000)
    indices[:] = 31
    agree(compiled(gpu, made), (p, rows, indices, tables))


def test_errors_do_not_grow_with_the_rows_of_a_line(gpu: Gpu) -> None:
    graph = Graph()
    graph.tracing = False
    x, t = graph.input("x"), graph.input("t")
    made = Reduction("added", graph, (Output("loss", (t,)), Output("grad", (x,))), 0,
                     (graph.constant(1.0),), (Lookup(0, 1, 1),))  # fmt: skip
    rows = np.full((2_000_000, 1), 0.1, np.float32)
    nothing, table = np.zeros(0, np.float32), np.ones((1, 1), np.float32)
    given = nothing, rows, np.zeros((len(rows), 1), np.int32), [table]
    _, (entry,) = run(compiled(gpu, made), given)
    want = rows.sum(dtype=np.float64)
    assert abs(entry[0, 0] - want) < 3e-7 * want


def test_the_bits_are_the_same_every_time(gpu: Gpu) -> None:
    made = CASES["cameras and points"]
    p, rows, indices, tables = case(made, 50_000)
    sums, numbers = compiled(gpu, made), made.packed(p, tables)
    bound = sums.bind(rows, indices)
    want = bound.run(numbers)
    for k in range(20):
        again = (bound if k else sums.bind(rows, indices)).run(numbers)
        np.testing.assert_array_equal(again, want)


@pytest.mark.parametrize("block", [64, 128, 960])
def test_rows_in_several_blocks(block: int, gpu: Gpu) -> None:
    made = CASES["several of one index"]
    sums = compiled(gpu, made)
    sums.block = block
    given = case(made, 1000)
    assert len(sums.plan(1000, given[2]).rows) == -(-1000 // block)
    agree(sums, given)


def test_a_row_of_nan_spoils_its_lines_and_no_other(gpu: Gpu) -> None:
    made = looking((0, 2, 5), (1, 1, 100))
    given = case(made, 1001)
    rows, indices = given[1:3]
    rows[700, 0] = np.nan
    _, entries = run(compiled(gpu, made), given)
    for entry, k in zip(entries, indices[700], strict=True):
        assert np.isnan(entry[k]).all() and np.isnan(entry).sum() == entry.shape[1]


# what is refused ----------------------------------------------------------------------------------


def test_wrong_shapes(gpu: Gpu) -> None:
    made = CASES["cameras and points"]
    _, rows, indices, _ = case(made, 10)
    sums = compiled(gpu, made)
    with pytest.raises(InputError, match=r"indices for 10 rows: expected \(10, 2\)"):
        sums.bind(rows, indices[:, :1])
    with pytest.raises(InputError, match=r"expected \(10, 2\)"):
        sums.bind(rows)


def test_a_device_that_is_too_small(own_gpu: Gpu) -> None:
    made = CASES["cameras and points"]
    _, rows, indices, _ = case(made, 10)
    sums = compiled(own_gpu, made)
    own_gpu.max_binding = 1 << 11
    with pytest.raises(DeviceError, match="too few for parameters of shape"):
        sums.bind(rows, indices)
    with pytest.raises(DeviceError, match="too few for 64 rows of 16 numbers"):
        compiled(own_gpu, made)
    own_gpu.max_arrays = 4
    with pytest.raises(DeviceError, match="binds 4 arrays, a sum has 5"):
        compiled(own_gpu, made)


def test_more_runs_than_a_row_of_the_grid_has(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "MAX_WORKGROUPS", 3)
    made = CASES["points"]
    agree(compiled(gpu, made), case(made, 5000))


def test_slopes_of_fewer_rows_are_kept_where_memory_is_short(own_gpu: Gpu) -> None:
    made = CASES["a hundred columns"]
    sums, given = compiled(own_gpu, made), case(made, 20_000)
    own_gpu.free()
    own_gpu.pool.limit = own_gpu.pool.live + 4_000_000  # all slopes have 8,000,000
    bound = sums.bind(given[1], given[2])
    assert 64 <= sums.block < 20_000
    del bound
    agree(sums, given)
    own_gpu.free()
    own_gpu.pool.limit = own_gpu.pool.live
    with pytest.raises(DeviceMemoryError):
        sums.bind(given[1], given[2])


def test_rows_are_put_in_the_order_of_most_slopes() -> None:
    made = CASES["cameras and points"]
    _, rows, indices, _ = case(made, 1000)
    found, named = in_order(made, rows, indices)
    order = np.argsort(indices[:, 0], kind="stable")
    np.testing.assert_array_equal(found, rows[order])
    np.testing.assert_array_equal(named, indices[order])
    assert in_order(made, found, named)[0] is found
    nothing = CASES["all slopes are 0"]
    assert in_order(nothing, rows, indices[:, :1])[0] is rows


def test_scratch_memory_is_bounded(gpu: Gpu) -> None:
    sums = compiled(gpu, CASES["a hundred columns"])
    assert sums.block * 400 <= reduce_dispatch.SLOPE_BYTES


# bundle adjustment --------------------------------------------------------------------------------


def squared(p: Any, r: Any) -> Any:
    """The squared distance of a point's image from where a camera saw it."""
    u, v = reprojection(p, r)
    return u**2 + v**2


def drawn() -> Scene:
    """A scene of seven cameras around a hundred points."""
    draw = np.random.default_rng(5)
    cameras = np.concatenate(
        [draw.normal(0, 0.1, (7, 3)), draw.normal(0, 0.1, (7, 2)), np.full((7, 1), -5.0),
         draw.uniform(300, 500, (7, 1)), draw.normal(0, 0.01, (7, 2))], axis=1,
    )  # fmt: skip
    count = 3001
    table = {"camera": draw.integers(0, 7, count), "point": draw.integers(0, 100, count),
             "u": draw.normal(0, 40, count), "v": draw.normal(0, 40, count)}  # fmt: skip
    return {"camera": cameras, "point": draw.normal(0, 0.5, (100, 3))}, table


@pytest.mark.parametrize("scene", ["drawn", "read"])
def test_bundle_adjustment(scene: str, gpu: Gpu) -> None:
    if scene == "read" and not BAL:
        pytest.skip("SYMGRAD_BAL is not set")
    parameters, table = read_bal(Path(BAL or "")) if scene == "read" else drawn()
    shapes = {name: block.shape for name, block in parameters.items()}
    kernels = [
        sg.fused_forward_backward(shapes, squared, columns=list(table), device=device)
        for device in (gpu.info.index, "cpu")
    ]
    exact = sg.fused_forward_backward(
        shapes, squared, columns=list(table), device="cpu", dtype="float64"
    )
    want = exact.run(parameters, table)
    for found in (kernels[0].run(parameters, table), kernels[0].bind(table).run(parameters)):
        close = kernels[1].run(parameters, table)
        for other, rtol in ((want, 3e-4), (close, 3e-4)):
            np.testing.assert_allclose(found[0], other[0], rtol=rtol)
            for name, slope in found[1].items():
                size = np.abs(other[1][name]).max(axis=0)
                assert (np.abs(slope - other[1][name]).max(axis=0) < rtol * size).all()
