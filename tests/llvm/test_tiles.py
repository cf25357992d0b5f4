"""Results that are sums of products of few values: which they are, their tiles, their sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel.test_stage import reduction
from launched import sums_on
from machines import code_sizes, cores
from reference_kernels import reduce_rows
from tables import row

from symgrad.expr.graph.node import CONST
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.row_tile import NO_FACTOR, Terms, product_tiles, products_of
from symgrad.kernel.skeletons.sums_in_lanes import row_sums_simd
from symgrad.kernel.stage import hoisted, stages
from symgrad.llvm.dispatch import sums as cpu_sums


def network(p: Any, r: Any) -> Any:
    """Two inputs, eight hidden values, eight more: 97 parameters."""
    first = np.tanh(p[:16].reshape(8, 2) @ r[:2] + p[16:24])
    second = np.tanh(p[24:88].reshape(8, 8) @ first)
    return (second @ p[88:96] + p[96] - r[2]) ** 2


def recurrent(p: Any, r: Any) -> Any:
    """The same 36 weights twice: each slope is the sum of two products."""
    state = np.tanh(p[36:42] * r[0])
    for k in (1, 2):
        state = np.tanh(p[:36].reshape(6, 6) @ state + r[k])
    return sum(state**2)


def alike(p: Any, r: Any) -> Any:
    """Two parameters have the same slope; that of the last one is the same for all rows."""
    hidden = np.tanh(p[:30] * r[0] + p[30:60] * r[1])
    return sum(hidden) * (p[60] + p[61]) + p[62] * p[62]


def made(f: Any) -> tuple[Reduction, np.ndarray]:
    n = {network: 97, recurrent: 42, alike: 63}[f]
    draw = np.random.default_rng(n)
    return hoisted(reduction(f, n, 3)), draw.uniform(-0.6, 0.6, n)


def products(f: Any) -> dict[int, Terms]:
    found = made(f)[0]
    return dict(products_of(found, stages(found).each).terms)


def kernel_of(found: Reduction, dtype: str) -> KernelIR:
    return row_sums_simd(found, cpu_sums.target_of(found, cpu_sums.host().shape(dtype, True)))


def test_a_layer_leaves_its_inputs_and_slopes_behind() -> None:
    found = made(network)[0]
    kept = products_of(found, stages(found).each)
    assert len(kept.terms) > 90
    assert len(kept.kept) <= 2 + 8 + 8 + 8 + 8 + 2


def test_what_is_a_factor_is_added_alone() -> None:
    assert sum(pair[0][1] == NO_FACTOR for pair in products(network).values()) >= 8


@pytest.mark.parametrize("f", [network, recurrent, alike])
def test_what_is_kept_is_not_taken_apart(f: Any) -> None:
    """The slope of the output is twice the residual: the factor 2 need not be kept with it."""
    found = made(f)[0]
    kept = products_of(found, stages(found).each)
    results = [i for output in found.summed for i in output.nodes]
    for k, terms in kept.terms.items():
        assert (results[k] in kept.kept) == (terms == ((results[k], NO_FACTOR),))
    assert CONST not in {found.graph.nodes[i][0] for i in kept.kept}


def test_weights_that_are_used_twice_are_sums_of_two_products() -> None:
    assert sum(len(terms) == 2 for terms in products(recurrent).values()) >= 36


def test_results_without_common_factors_are_not_taken_apart() -> None:
    def f(p: Any, r: Any) -> Any:
        return sum(np.exp(p[k] * r[0]) * np.sin(p[k] * r[1]) for k in range(30))

    found = hoisted(reduction(f, 30, 2))
    assert not products_of(found, stages(found).each).terms


@pytest.mark.parametrize("f", [network, recurrent])
@pytest.mark.parametrize("registers", [16, 32])
def test_tiles_hold_each_result_once_and_fit(f: Any, registers: int) -> None:
    terms = products(f)
    found = list(product_tiles(terms, registers))
    assert sorted(k for tile in found for k in tile) == sorted(terms)
    assert max(map(len, found)) <= registers * 3 // 4


def test_tiles_take_few_factors() -> None:
    terms = {8 * j + k: ((j, 100 + k),) for j in range(8) for k in range(8)}
    factors = [{i for k in tile for i in terms[k][0]} for tile in product_tiles(terms, 32)]
    assert sum(map(len, factors)) <= len(terms) // 2


@pytest.mark.parametrize("f", [network, recurrent, alike])
@pytest.mark.parametrize("math", ["accurate", "strict"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_are_those_of_the_rows(f: Any, math: str, dtype: str) -> None:
    found, p = made(f)
    sums, p = sums_on("cpu", found, math, dtype), p.astype(dtype)
    slack = 4e-6 if dtype == "float32" else 1e-14
    for count in (1, 16, 511, 1024, 5003):
        rows = np.random.default_rng(count).uniform(-1, 1, (count, 3)).astype(dtype)
        want, close = reduce_rows(found, p.astype(float), rows.astype(float)), slack * count**0.5
        with row(count=count):
            np.testing.assert_allclose(sums.run(p, rows), want, rtol=slack, atol=close)


def test_many_factors_are_kept_of_few_blocks() -> None:
    found, p = made(network)
    rows = np.random.default_rng(0).uniform(-1, 1, (2000, 3)).astype(np.float32)
    want = sums_on("cpu", found).run(p.astype(np.float32), rows)
    with code_sizes(factor_bytes=1):
        few = sums_on("cpu", found)
    np.testing.assert_allclose(few.run(p.astype(np.float32), rows), want, rtol=1e-5, atol=1e-4)


def test_long_rows_have_smaller_pieces_and_the_same_bits_whatever_the_cores() -> None:
    found, p = made(network)
    sums = sums_on("cpu", found)
    assert sums.target.summing.piece < cpu_sums.ROWS_PER_PIECE
    rows = np.random.default_rng(0).uniform(-1, 1, (60_000, 3)).astype(np.float32)
    want = sums.run(p.astype(np.float32), rows)
    with cores(5):
        again = sums_on("cpu", found).run(p.astype(np.float32), rows)
    np.testing.assert_array_equal(again, want)


def test_a_row_of_nan_spoils_the_sums_and_what_is_beyond_the_rows_does_not() -> None:
    found, p = made(network)
    rows = np.zeros((37, 3), np.float32)
    sums = sums_on("cpu", found)
    assert np.isfinite(sums.run(p.astype(np.float32), rows)).all()
    rows[36] = np.nan
    assert np.isnan(sums.run(p.astype(np.float32), rows)).any()


def test_factors_that_the_cache_does_not_hold_are_not_kept() -> None:
    found, p = made(network)
    rows = np.random.default_rng(0).uniform(-1, 1, (1000, 3))
    want = sums_on("cpu", found, dtype="float64").run(p, rows)
    kept = [b.name for b in kernel_of(found, "float64").buffers]
    assert "kept" in kept
    with code_sizes(factor_bytes=128 * cpu_sums.host().vector_bits // 8):
        assert "kept" not in [b.name for b in kernel_of(found, "float64").buffers]
        sums = sums_on("cpu", found, dtype="float64")
    np.testing.assert_allclose(sums.run(p, rows), want, rtol=1e-13)
