"""Sums whose results are products of factors in workgroup memory."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from kernel.test_stage import reduction
from launched import sums_on
from reference_kernels import compute, reduce_rows
from tables import row
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers.expression import Expr
from symgrad.kernel.shapes import Output, Reduction
from symgrad.kernel.skeletons import row_sums_workgroup
from symgrad.kernel.skeletons.row_sums_workgroup import QUADS, WIDTH, in_products
from symgrad.kernel.skeletons.row_tile import NO_FACTOR
from symgrad.kernel.stage import hoisted
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.sums import emit_reduction
from symgrad.wgsl.printing.source import Style


def network(p: Any, r: Any) -> Any:
    """97 parameters."""
    first = np.tanh(p[:16].reshape(8, 2) @ r[:2] + p[16:24])
    second = np.tanh(p[24:88].reshape(8, 8) @ first + p[88:96])
    return (sum(second) + p[96] - r[2]) ** 2


def outer(count: int, columns: str = "xyz") -> Reduction:
    """The products of ``count`` waves with one another and themselves, and the waves alone."""
    graph = Graph()
    graph.tracing = False
    p, *row = [Expr(graph, graph.input(n)) for n in f"p{columns}"]
    waves = [sg.cos(p * row[k % len(row)] * (1 + k)) for k in range(count)]
    nodes = [a * b for a, b in combinations_with_replacement(waves, 2)] + waves
    return hoisted(
        Reduction("outer", graph, (Output("sums", tuple(n.id for n in nodes)),), 1,
                  (graph.constant(1.0),) * len(nodes))
    )  # fmt: skip


MADE = {"network": lambda: hoisted(reduction(network, 97, 3)), "outer": lambda: outer(13),
        "in stages": lambda: outer(20), "narrow": lambda: outer(13, "xy")}  # fmt: skip


def drawn(made: Reduction, count: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(count)
    return (
        draw.uniform(-0.6, 0.6, made.parameters).astype(np.float32),
        draw.uniform(-1, 1, (count, made.columns)).astype(np.float32),
    )


def agree(gpu: Gpu, made: Reduction, count: int, slack: float = 5e-6, **sizes: int) -> None:
    """The slack is what rounding makes of a row's own numbers, which a network adds to."""
    sums = sums_on(gpu, made)
    vars(sums).update(sizes)
    check_sums(sums, count, slack)


def check_sums(sums: Any, count: int, slack: float) -> None:
    made = sums.reduction
    p, rows = drawn(made, count)
    found = sums.run(p, rows)
    points = np.concatenate([np.tile(p, (count, 1)), rows], axis=1)
    scale = np.abs(compute(made, points)).sum(axis=0) + 1e-30
    assert np.max(np.abs(found - reduce_rows(made, p, rows)) / scale) < slack


@pytest.mark.parametrize("name", MADE)
def test_sums_are_those_of_the_rows(gpu: Gpu, name: str) -> None:
    sums = sums_on(gpu, MADE[name]())
    for count in (1, 63, 64, 65, 1500):
        with row(count=count):
            check_sums(sums, count, 5e-6 if name == "network" else 5e-7)


def test_partial_sums_that_are_added_on_the_device(gpu: Gpu) -> None:
    agree(gpu, MADE["network"](), 20_000, most_partials=1)


def test_blocks_of_rows_and_tiles_of_results(own_gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sums_workgroup, "MOST_RESULTS", 70)
    own_gpu.max_binding = 12 * 1024
    assert len(in_products(MADE["network"]())) == 2
    agree(own_gpu, MADE["network"](), 3000)


@pytest.mark.parametrize("name", MADE)
def test_equal_rows_are_added_as_exactly_as_others(gpu: Gpu, name: str) -> None:
    """Rounding errors of one sign add up: of 4,096 rows one by one they are 1e-5 of the sum."""
    made = MADE[name]()
    p, rows = drawn(made, 1)
    sums = sums_on(gpu, made)
    one, found = sums.run(p, rows), sums.run(p, np.repeat(rows, 100_003, axis=0))
    np.testing.assert_allclose(found, 100_003 * one, rtol=1e-6)


def test_a_row_that_is_nan_is_in_its_sums(gpu: Gpu) -> None:
    """And the invocations without a row, which compute the last one again, are not."""
    made = MADE["outer"]()
    p, rows = drawn(made, 70)
    rows[:, 0] = np.nan
    found = sums_on(gpu, made).run(p, rows)
    assert np.array_equal(np.isnan(found), np.isnan(reduce_rows(made, p, rows)))
    assert 0 < np.isnan(found).sum() < len(found)


def test_the_same_bits_again(gpu: Gpu) -> None:
    made = MADE["network"]()
    p, rows = drawn(made, 5000)
    bound = sums_on(gpu, made).bind(rows)
    np.testing.assert_array_equal(bound.run(p), bound.run(p))


@pytest.mark.parametrize("name", MADE)
def test_stages_fit_and_have_all_products(name: str) -> None:
    for products in in_products(MADE[name]()):
        found = {}
        blocks = [(step.quads[a], step.quads[b]) for s in products.steps for step, a, b in
                  ((s, *block) for block in s.blocks)]  # fmt: skip
        for cell, pair in zip(products.cells, products.pairs, strict=True):
            left, right = blocks[cell // 16]
            found[cell] = {left[cell % 16 // 4], right[cell % 4]}
            assert found[cell] == set(pair)
        for step in products.steps:
            assert len(step.quads) <= QUADS
            assert len(step.blocks) * step.thread_groups <= WIDTH


def test_a_network_is_one_module_that_computes_each_row_once() -> None:
    (module,) = emit_reduction(MADE["network"](), Style())
    assert module.source.count("sg_tanh(") == 1 + 16
    assert len(module.program.results.numbers) == 98


def test_results_without_common_factors_are_left_alone() -> None:
    def f(p: Any, r: Any) -> Any:
        return sum(np.exp(p[k] * r[0]) * np.sin(p[k] * r[1]) for k in range(80))

    assert not in_products(hoisted(reduction(f, 80, 2)))


def test_the_loss_and_what_is_a_factor_are_multiplied_by_1() -> None:
    (products,) = in_products(MADE["outer"]())
    assert sum(NO_FACTOR in pair for pair in products.pairs) == 13
    assert sum(a == b for a, b in products.pairs) == 13


@needs_tint
def test_tint_takes_them() -> None:
    sources = [m.source for f in MADE.values() for m in emit_reduction(f(), Style())]
    assert [v for v in check_with_tint(sources) if v] == []


@pytest.mark.parametrize("name", MADE)
def test_naga_takes_them_in_any_mode(gpu: Gpu, name: str) -> None:
    for module in emit_reduction(MADE[name](), Style("strict")):
        gpu.pipeline(module.source, 1, module.readable)
        assert all(len(line) < 1500 for line in module.source.splitlines())
