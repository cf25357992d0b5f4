"""Sums over rows on a GPU: what the source says, and that the sums are those of the rows."""

from __future__ import annotations

import functools
import operator
import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel.test_stage import bells, choice, plain, reduction
from launched import executed, memory_of_nan, sums_on
from reference_kernels import compute, reduce_rows
from tables import row
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.errors import DeviceError, DeviceLostError, DeviceMemoryError, InputError
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers.expression import Expr
from symgrad.kernel.shapes import Computation, Output, Reduction
from symgrad.kernel.skeletons import row_sums_workgroup, row_tile
from symgrad.kernel.skeletons.row_tile import Tile
from symgrad.kernel.skeletons.sums_in_workgroups import fold_program
from symgrad.kernel.stage import hoisted
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch import sums as reduce_dispatch
from symgrad.wgsl.dispatch.sums import (
    SUM_INVOCATIONS,
    Summation,
    emit_reduction,
    groups_of,
    workgroups,
)
from symgrad.wgsl.printing.source import Style

MOST_EXECUTED = 1001
"""Rows up to which the interpreter is quick."""

GOLDEN = Path(__file__).parents[1] / "golden"


def gaussians(p: Any, r: Any) -> Any:
    model = sum(p[k] * sg.exp(-(((r[0] - p[k + 1]) / p[k + 2]) ** 2)) for k in range(0, len(p), 3))
    return (model - r[1]) ** 2


def network(p: Any, r: Any) -> Any:
    h = np.tanh(p[:20].reshape(10, 2) @ r[:2] + p[20:30])
    h = np.tanh(p[30:130].reshape(10, 10) @ h + p[130:140])
    return (p[140:150] @ h + p[150] - r[2]) ** 2


def kinks(p: Any, r: Any) -> Any:
    """Conditions of parameters, of rows and of both."""
    chosen = sg.where(p[0] > p[1], r[0] * p[2], sg.sin(r[1] * p[3]))
    return sg.where(r[0] > 0, chosen, p[4] / 3) * sg.where(r[1] < p[5], 2.0, r[0])


def polynomial(columns: int) -> Any:
    return lambda p, r: sum(p[k % 6] * r[k] ** (1 + k % 3) for k in range(columns))


def powers(results: int) -> Reduction:
    """That many sums: of products of the two columns, and of what no row changes."""
    graph = Graph()
    graph.tracing = False
    p, x, y = [Expr(graph, graph.input(n)) for n in "pxy"]
    nodes = [(p * x + k * y * y).id if k % 5 else (p * (k + 2)).id for k in range(results)]
    return hoisted(Reduction("powers", graph, (Output("sums", tuple(nodes)),), 1, ()))


def emitted(made: Reduction, math: str = "accurate", **style: Any) -> tuple[Summation, ...]:
    return emit_reduction(made, Style(math, **style))


def data(count: int, columns: int = 2, n: int = 6) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(count)
    return (
        draw.uniform(0.5, 1.5, n).astype(np.float32),
        draw.uniform(-1, 1, (count, columns)).astype(np.float32),
    )


def sizes(made: Reduction, p: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The sums of the absolute values, which errors are a share of."""
    points = np.concatenate([np.tile(p, (len(rows), 1)), rows], axis=1)
    graph = made.graph
    factors = Computation("factors", graph, (Output("factors", made.factors),))
    return np.abs(compute(made, points)).sum(axis=0) * np.abs(compute(factors, points[:1]))[0]


def agree(
    gpu: Gpu, made: Reduction, p: np.ndarray, rows: np.ndarray, math: str = "accurate"
) -> None:
    """The sums on the GPU, in memory that was NaN, are those of the rows, and the launch's."""
    check_sums(sums_on(gpu, made, math), p, rows, math)


def check_sums(sums: Any, p: np.ndarray, rows: np.ndarray, math: str = "accurate") -> None:
    made = sums.reduction
    with memory_of_nan(sums.gpu):
        found = sums.bind(rows).run(p)
    assert found.dtype == np.float64
    if not len(rows):
        assert not found.any() and len(found) == sums.reduction.results
        return
    size, want = sizes(made, p, rows) + 1e-30, reduce_rows(made, p, rows)
    slack = {"fast": 2e-5}.get(math, 5e-7) * size
    np.testing.assert_array_less(np.abs(found - want), slack)
    if len(rows) <= MOST_EXECUTED:
        np.testing.assert_array_less(np.abs(executed(sums, p, rows) - want), 1e-12 * size)


# the source ---------------------------------------------------------------------------------------


CASES = {
    "bells": lambda: reduction(bells),
    "choice": lambda: reduction(choice),
    "no row": lambda: reduction(plain),
    "kinks": lambda: reduction(kinks),
    "gaussians": lambda: reduction(gaussians, 12),
    "network": lambda: reduction(network, 151, 3),
    "one column": lambda: reduction(polynomial(1), 6, 1),
    "300 columns": lambda: reduction(polynomial(300), 6, 300),
    "70 results": lambda: powers(70),
    "no parameters": lambda: reduction(lambda p, r: r[0] * r[1], 0),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("math", ["accurate", "fast", "strict"])
def test_naga_takes_it(name: str, math: str, gpu: Gpu) -> None:
    for module in emitted(hoisted(CASES[name]()), math):
        gpu.pipeline(module.source, 1, module.readable)


@needs_tint
def test_tint_takes_it() -> None:
    kernels = [emitted(hoisted(make()), m) for make in CASES.values() for m in ("accurate", "fast")]
    sources = [module.source for modules in kernels for module in modules]
    assert [v for v in check_with_tint(sources) if v] == []


@pytest.mark.parametrize("name", CASES)
def test_limits(name: str) -> None:
    for module in emitted(hoisted(CASES[name]())):
        tile = re.search(r"tile: array<(f32|vec4<f32>), (\d+)>", module.source)
        size = 4 if tile and tile[1] == "f32" else 16
        assert (int(tile[2]) if tile else 0) * size <= 16_384
        assert len(module.program.results.numbers) <= row_sums_workgroup.MOST_RESULTS
        assert all(len(line) < 1500 for line in module.source.splitlines())


def test_every_result_is_in_one_module() -> None:
    modules = emitted(powers(338))
    assert len(modules) > 1 and max(len(m.program.results.numbers) for m in modules) < 200
    assert [k for module in modules for k in module.program.results.numbers] == list(range(338))
    assert all("this kernel sums" in module.source for module in modules)
    assert "this kernel sums sums[0] to sums[34]; others" in emitted(powers(70))[0].source


def test_much_to_do_at_a_row_is_not_repeated_for_few_results() -> None:
    made = hoisted(reduction(lambda p, r: sum(sg.sin(x * r[0]) for x in p) ** 2, 3000))
    assert len(emitted(made)) == 6


def test_the_header_says_what_is_summed() -> None:
    (module,) = emitted(hoisted(reduction(gaussians, 12)), title="four bells")
    head = module.source.splitlines()
    assert head[0] == "// four bells"
    assert (
        head[1] == "// in: 12 parameters, rows (N, 2); out: sums over rows of loss (1), grad (12)"
    )
    assert re.match(r"// \d+ operations and 8 bytes a row, \d+ operations once; ", head[2])


@pytest.mark.parametrize(
    ("columns", "load"),
    [(1, "vec4<f32>"), (2, "vec4<f32>"), (3, "f32"), (4, "vec4<f32>"), (6, "vec2<f32>")],
)
def test_rows_are_read_in_vectors(columns: int, load: str) -> None:
    (module,) = emitted(hoisted(reduction(polynomial(columns), 6, columns)))
    assert f"rows: array<{load}>" in module.source


def test_what_needs_no_row_is_computed_before_the_loop() -> None:
    (module,) = emitted(hoisted(reduction(gaussians, 12)), "fast")
    before, _, rest = module.source.partition("for (")
    assert "/" not in re.sub(r"//[^\n]*", "", rest.partition("workgroupBarrier")[0])
    assert before.count("= 1.0f / x") == 4


NAMES = ["sum0 total0 row quad0 parameters at", "x y t0 s0 add_row main", "end loads p q fn größe"]


@pytest.mark.parametrize("names", NAMES)
def test_names_of_the_user(names: str, gpu: Gpu) -> None:
    made = reduction(bells)
    made.graph.names[:] = [*names.split(), "loaded", "first"]
    agree(gpu, hoisted(made), *data(10))


def test_users_lines_stand_beside_the_code() -> None:
    (told,) = emitted(hoisted(reduction(kinks)))
    (plain_,) = emitted(hoisted(reduction(kinks)), comments=False)
    assert "// return sg.where(r[0] > 0, chosen, p[4] / 3)" in told.source
    assert "sg.where" not in plain_.source


def test_golden() -> None:
    """What has been read and found good; SYMGRAD_UPDATE_GOLDEN=1 rewrites it, to be read again."""
    made = reduction(gaussians, 12)
    made.graph.names[:] = [f"{c}{k}" for k in range(4) for c in "abc"] + ["time", "count"]
    (module,) = emitted(hoisted(made), "fast", title="four bells: loss and gradient over rows")
    path = GOLDEN / "four_bells_sum.wgsl"
    if os.environ.get("SYMGRAD_UPDATE_GOLDEN"):
        path.write_text(module.source, "utf-8")
    assert module.source == path.read_text("utf-8")


# the sums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [bells, choice, plain, kinks])
def test_sums_are_those_of_the_rows(f: Any, gpu: Gpu) -> None:
    sums = sums_on(gpu, hoisted(reduction(f)))
    for count in (0, 1, 63, 64, 65, 1000, 100_003):
        with row(count=count):
            check_sums(sums, *data(count))


@pytest.mark.parametrize("math", ["accurate", "fast", "strict"])
@pytest.mark.parametrize("f", [bells, kinks])
def test_mathematics(math: str, f: Any, gpu: Gpu) -> None:
    p, rows = data(3001)
    sums = sums_on(gpu, hoisted(reduction(f)), math)
    for p[:2] in ((1.5, 0.5), (0.5, 1.5)):
        check_sums(sums, p, rows, math)


@pytest.mark.parametrize("columns", range(1, 10))
def test_any_number_of_columns(columns: int, gpu: Gpu) -> None:
    sums = sums_on(gpu, hoisted(reduction(polynomial(columns), 6, columns)))
    for count in (1, 2, 3, 5, 1001):
        with row(count=count):
            check_sums(sums, *data(count, columns))


@pytest.mark.parametrize("columns", [1, 2])
def test_long_rows_of_few_columns(columns: int, gpu: Gpu) -> None:
    """Their code does not stand there once for each row of a load."""
    f = polynomial(columns)
    made = hoisted(reduction(lambda p, r: sum(f(p, r * (1 + k)) for k in range(150)), 6, columns))
    assert len(Tile(made, range(1)).split.each) > row_tile.LOAD_OPERATIONS
    sums = sums_on(gpu, made)
    for count in (1, 2, 3, 5, 1001):
        with row(count=count):
            check_sums(sums, *data(count, columns))


@pytest.mark.parametrize("results", [1, 15, 16, 17, 32, 33, 41, 64, 65, 70])
def test_any_number_of_results(results: int, gpu: Gpu) -> None:
    agree(gpu, powers(results), *data(2222, 2, 1))


def test_a_network(gpu: Gpu) -> None:
    made = hoisted(reduction(network, 151, 3))
    draw = np.random.default_rng(0)
    agree(gpu, made, (draw.normal(size=151) * 0.3).astype(np.float32), data(4000, 3)[1])


@pytest.mark.parametrize("count", [9, 90])
def test_many_parameters_are_read_at_every_row(count: int, gpu: Gpu) -> None:
    graph = Graph()
    graph.tracing = False
    *p, x, y = (Expr(graph, graph.input(f"x{k}")) for k in range(count + 2))
    total = functools.reduce(operator.add, [sg.sin(a * x) * y for a in p])
    made = hoisted(Reduction("waves", graph, (Output("sums", (total.id,)),), count, ()))
    row = emitted(made)[0].source.partition("fn add_row(")[2].partition("@")[0]
    assert ("parameters[" in row) == (count > 64)
    agree(gpu, made, *data(333, n=count))


@pytest.mark.parametrize("f", [bells, choice, kinks])
def test_reductions_with_nothing_hoisted(f: Any, gpu: Gpu) -> None:
    agree(gpu, reduction(f), *data(333))


def test_rows_and_results_without_anything_to_compute(gpu: Gpu) -> None:
    agree(gpu, hoisted(reduction(lambda p, r: r[0] + 0 * p[0], 1)), *data(777, 2, 1))
    agree(gpu, hoisted(reduction(lambda p, r: 3.0 + 0 * p[0], 1)), *data(777, 2, 1))


def test_errors_do_not_grow_with_the_rows(gpu: Gpu) -> None:
    p, rows = data(2_000_000)
    made = hoisted(reduction(bells))
    found = sums_on(gpu, made).run(p, rows)
    want = reduce_rows(made, p, rows)
    assert np.max(np.abs(found - want) / np.abs(want)) < 2e-7


def test_rows_that_are_all_the_same(gpu: Gpu) -> None:
    p, rows = data(1_000_000)
    rows[:] = 0.1
    made = hoisted(reduction(lambda p, r: p[0] * r[0]))
    found = sums_on(gpu, made).run(p, rows)[0]
    want = reduce_rows(made, p, rows)[0]
    assert abs(found - want) < 2e-7 * want


def test_the_bits_are_the_same_every_time(gpu: Gpu) -> None:
    p, rows = data(50_000)
    bound = sums_on(gpu, hoisted(reduction(bells))).bind(rows)
    want = bound.run(p)
    for _ in range(20):
        np.testing.assert_array_equal(bound.run(p), want)


def test_bound_rows_serve_many_parameters(gpu: Gpu) -> None:
    _, rows = data(500)
    sums = sums_on(gpu, hoisted(reduction(choice)))
    bound = sums.bind(rows)
    for seed in range(5):
        p, _ = data(seed)
        np.testing.assert_array_equal(bound.run(p), sums.run(p, rows))


@pytest.mark.parametrize("block", [64, 128, 960])
def test_rows_in_several_bindings(block: int, gpu: Gpu) -> None:
    p, rows = data(1000)
    made = hoisted(reduction(choice))
    sums = sums_on(gpu, made)
    sums.block = block
    assert len(sums.plan(1000).rows) == -(-1000 // block)
    want = reduce_rows(made, p, rows)
    with memory_of_nan(gpu):
        np.testing.assert_allclose(sums.bind(rows).run(p), want, rtol=1e-5)
    np.testing.assert_allclose(executed(sums, p, rows), want, rtol=1e-12)


def test_host_rows_go_through_in_blocks(gpu: Gpu) -> None:
    p, rows = data(1000)
    made = hoisted(reduction(choice))
    sums = sums_on(gpu, made)
    sums.host_bytes = 8 * 256
    found = sums.run(p, rows)
    np.testing.assert_allclose(found, reduce_rows(made, p, rows), rtol=1e-5)


def test_host_rows_go_through_in_smaller_blocks_where_memory_is_short(own_gpu: Gpu) -> None:
    p, rows = data(10_000)
    made = hoisted(reduction(choice))
    sums = sums_on(own_gpu, made)
    sums.run(p, rows[:9_000])
    own_gpu.free()
    assert not sums._streams
    sums.run(p, rows[:4_000])
    own_gpu.pool.limit = own_gpu.pool.live + 16 * 1024
    np.testing.assert_allclose(sums.run(p, rows), reduce_rows(made, p, rows), rtol=1e-5)
    assert max(sums._streams) <= 5_000
    with pytest.raises(DeviceMemoryError, match="beyond the limit"):
        sums.bind(np.tile(rows, (4, 1)))


def test_a_row_of_nan_spoils_its_sums_and_padding_none(gpu: Gpu) -> None:
    p, rows = data(1001)
    made = hoisted(reduction(lambda p, r: p[0] * r[0] + p[1] * r[1]))
    rows[700, 0] = np.nan
    with memory_of_nan(gpu):
        found = sums_on(gpu, made).bind(rows).run(p)
    assert np.array_equal(np.isnan(found), [True, True, False, *[False] * 4])


def test_infinite_rows(gpu: Gpu) -> None:
    p, rows = data(300)
    rows[7, 0], rows[8, 1] = np.inf, -np.inf
    made = hoisted(reduction(lambda p, r: p[0] * r[0] + p[1] * r[1]))
    found = sums_on(gpu, made).run(p, rows)
    assert np.isnan(found[0]) and found[1] == np.inf and found[2] == -np.inf


def test_threads(gpu: Gpu) -> None:
    sums = sums_on(gpu, hoisted(reduction(bells)))
    inputs = [data(1000 + k) for k in range(4)]
    want = [sums.run(*pair) for pair in inputs]
    bound = [sums.bind(rows) for _, rows in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(10):
            same = [sums.run(*inputs[k]), bound[k].run(inputs[k][0])]
            if not all(np.array_equal(f, want[k]) for f in same):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k % 4,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_wrong_shapes(gpu: Gpu) -> None:
    sums = sums_on(gpu, hoisted(reduction(bells)))
    p, rows = data(5)
    with pytest.raises(InputError, match=r"rows of shape \(5, 1\): expected \(N, 2\)"):
        sums.bind(rows[:, :1])
    with pytest.raises(InputError, match=r"parameters of shape \(3,\): expected \(6,\)"):
        sums.run(p[:3], rows)


def test_a_device_that_is_too_small(own_gpu: Gpu) -> None:
    made = hoisted(reduction(bells))
    own_gpu.max_binding = 256
    with pytest.raises(DeviceError, match="too few for 64 rows of 2 numbers"):
        sums_on(own_gpu, made)
    own_gpu.max_arrays = 2
    with pytest.raises(DeviceError, match="binds 2 arrays, a sum has 3"):
        sums_on(own_gpu, made)


def test_rows_that_the_device_cannot_hold(own_gpu: Gpu) -> None:
    sums = sums_on(own_gpu, hoisted(reduction(bells)))
    own_gpu.max_buffer = 1 << 20
    with pytest.raises(DeviceMemoryError, match="at most 1,048,576"):
        sums.bind(data(1_234_567)[1])


def test_a_lost_device_says_so(own_gpu: Gpu) -> None:
    p, rows = data(10)
    bound = sums_on(own_gpu, hoisted(reduction(bells))).bind(rows)
    own_gpu.lost = True
    with pytest.raises(DeviceLostError):
        bound.run(p)


def folding(gpu: Gpu, made: Reduction) -> Any:
    """Partial sums of more than one workgroup, of which there are up to 64, are added there."""
    sums = sums_on(gpu, made)
    sums.busy, sums.most_partials = 64, 1
    return sums


@pytest.mark.parametrize("f", [bells, choice, kinks, plain])
def test_partial_sums_are_added_up_on_the_device(f: Any, gpu: Gpu) -> None:
    made = hoisted(reduction(f))
    p, rows = data(40_000)
    sums = folding(gpu, made)
    plan, summed = sums.plan(len(rows)), [bool(m.program.results.summed) for m in sums.modules]
    folds = [d for d in plan.launch.dispatches if d.program is fold_program]
    assert len(folds) == sum(summed) and len(plan.launch.outputs) == len(summed)
    bound = sums.bind(rows)
    found, want = bound.run(p), reduce_rows(made, p, rows)
    assert np.max(np.abs(found - want) / np.maximum(sizes(made, p, rows), 1e-30)) < 2e-7
    np.testing.assert_array_equal(bound.run(p), found)


def test_partial_sums_in_blocks_of_rows_and_tiles_of_results(own_gpu: Gpu) -> None:
    own_gpu.max_binding = 8 * 10_000
    sums = folding(own_gpu, powers(140))
    check_sums(sums, *data(25_000, 2, 1))
    p, rows = data(5000, 2, 1)
    dispatches = sums.plan(len(rows)).launch.dispatches
    assert sum(d.program is fold_program for d in dispatches) == 3
    np.testing.assert_allclose(
        executed(sums, p, rows), reduce_rows(sums.reduction, p, rows), rtol=1e-12
    )


def test_partial_sums_that_overflow_together_and_those_that_are_nan(gpu: Gpu) -> None:
    made = hoisted(reduction(lambda p, r: p[0] * r[0] * r[1]))
    p, rows = data(20_000)
    rows[:] = 1e17, 1e17
    sums = folding(gpu, made)
    bound = sums.bind(rows)
    assert bound.run(p)[0] == pytest.approx(float(p[0]) * 2e38, rel=1e-6)
    assert bound.run(4 * p)[0] == pytest.approx(float(p[0]) * 8e38, rel=1e-6)
    rows[777] = np.nan
    assert np.isnan(sums.bind(rows).run(p)[0])


@pytest.mark.parametrize("busy", [8, 512])
@pytest.mark.parametrize("count", [1, 100, 2048, 10**6, 2**24, 65_535 * 256 * 32])
@pytest.mark.parametrize("most", row_tile.ROWS_PER_INVOCATION)
@pytest.mark.parametrize("fewest", [1, 8])
def test_no_invocation_has_more_rows_than_it_may(
    busy: int, count: int, most: int, fewest: int
) -> None:
    groups, each = workgroups(count, most, busy, fewest=fewest), SUM_INVOCATIONS * most
    assert 1 <= groups <= 65_535
    assert count <= groups * each
    assert groups <= max(busy, -(-count // each))
    assert groups <= max(1, -(-count // (SUM_INVOCATIONS * fewest)))


def test_few_sums_have_more_workgroups(gpu: Gpu) -> None:
    few, many = (
        sums_on(gpu, hoisted(reduction(f, n)))
        for f, n in ((lambda p, r: (p[0] - r[0]) ** 2, 1), (gaussians, 12))
    )
    for sums, busy in ((few, reduce_dispatch.BUSIER), (many, reduce_dispatch.BUSY)):
        (module,) = sums.modules
        program = module.program
        assert groups_of(program, 1 << 24, reduce_dispatch.BUSY, 65_535) == busy
        assert groups_of(program, 1 << 24, reduce_dispatch.BUSY, 300) == max(
            300, -(-(1 << 24) // (program.width * program.most))
        )


def test_rows_that_turn_in_loops_are_one_for_each_invocation(gpu: Gpu) -> None:
    made = hoisted(reduction(lambda p, r: sg.fori_loop(0, 9, lambda _, s: s * p[0], r[0]), 1, 1))
    sums = sums_on(gpu, made)
    for sums.busy in (reduce_dispatch.BUSY, reduce_dispatch.BUSY_SOFTWARE):
        bound = sums.bind(np.ones((1000, 1), np.float32))
        (step,) = sums.plan(1000).launch.dispatches
        assert step.groups == (16 if sums.busy == reduce_dispatch.BUSY else 2)  # of 64 invocations
        assert bound.run(np.ones(1, np.float32))[0] == 1000
    agree(gpu, made, *data(1000, 1, 1))
