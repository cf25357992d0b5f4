"""Sums over rows as a program of the language, in the interpreter: carried, in memory, in tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel.test_stage import bells, choice, plain, reduction
from reference_kernels import reduce_rows

import symgrad as sg
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.statements import If
from symgrad.kernel.language.target import SimdTarget, Summing
from symgrad.kernel.language.verify import verify
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.lookup import CASES, cases
from symgrad.kernel.skeletons.sums_in_lanes import row_sums_simd
from symgrad.kernel.stage import hoisted

LANES = 4


def layers(p: Any, r: Any) -> Any:
    """A network of eight hidden values, whose slopes are products of few factors."""
    return (p[16:24] @ np.tanh(p[:16].reshape(8, 2) @ r[:2]) - r[0]) ** 2


def summed(made: Reduction, target: SimdTarget, p: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The sums of one group, which is called with rows that fill its last turn."""
    kernel = row_sums_simd(made, target)
    verify(kernel)
    count = sum(len(o.nodes) for o in made.summed)
    padded = np.zeros((-(-len(rows) // LANES) * LANES, rows.shape[1]))
    padded[: len(rows)] = rows
    sums = np.full(count, np.nan)
    arrays = {"parameters": p, "rows": padded, "sums": sums}
    execute(kernel, arrays, len(rows), groups=1)
    return sums


@pytest.mark.parametrize("f", [bells, choice, plain, layers])
@pytest.mark.parametrize("count", [1, 4, 5, 67])
@pytest.mark.parametrize("wide", ["d", "ff"])
@pytest.mark.parametrize(
    "summing",
    [Summing(30), Summing(0), Summing(0, registers=8, cached=100), Summing(0, brief=True)],
)
def test_sums_are_those_of_the_rows(f: Any, count: int, wide: str, summing: Summing) -> None:
    n = 24 if f is layers else 6
    draw = np.random.default_rng(count)
    p, rows = draw.uniform(0.5, 1.5, n), draw.uniform(-1, 1, (count, 2))
    made = hoisted(reduction(f, n))
    found = summed(made, SimdTarget(LANES, block=3, wide=wide, summing=summing), p, rows)
    np.testing.assert_allclose(found, reduce_rows(made, p, rows), rtol=1e-12, atol=1e-13)


def test_what_is_kept_for_results_of_few_factors_fits_the_cache() -> None:
    made = hoisted(reduction(layers, 24))

    def kept(cached: int) -> list[int]:
        kernel = row_sums_simd(made, SimdTarget(LANES, summing=Summing(0, cached=cached)))
        return [b.size for b in kernel.buffers if b.name == "kept"]

    (whole,) = kept(4096)
    factors = whole // SimdTarget(LANES).block
    assert kept(4 * factors) == [4 * factors]
    assert kept(4 * factors - 1) == []


# results of cases -------------------------------------------------------------------------------

CLUSTERS, SIZE = 9, 5


def nearest(p: Any, r: Any) -> Any:
    """The squared distance to the nearest of some points."""
    x = np.array([r[c] for c in range(SIZE)])
    return np.min(np.sum((x - p) ** 2, axis=1))


def slopes_of(p: np.ndarray, v: np.ndarray, rows: np.ndarray) -> tuple[Any, Any, Any]:
    """Its sum over rows, the gradient, and the Hessian times v, by hand; ties are shared."""
    squares = np.sum((rows[:, None] - p) ** 2, axis=2)
    share = squares == squares.min(axis=1, keepdims=True)
    share = share / share.sum(axis=1, keepdims=True)
    gradient = -2 * np.einsum("nk,nkj->kj", share, rows[:, None] - p)
    return squares.min(axis=1).sum(), gradient, 2 * share.sum(axis=0)[:, None] * v


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 6, 301])
def test_rows_add_to_the_results_of_their_case(dtype: Any, count: int) -> None:
    draw = np.random.default_rng(3)
    rows = draw.normal(size=(count, SIZE))
    p, v = draw.normal(size=(CLUSTERS, SIZE)), draw.normal(size=(CLUSTERS, SIZE))
    rows[0], p[0], p[1] = np.full((3, SIZE), [[9.0], [8.0], [10.0]])  # two are as near
    p[5] = 1e200 if dtype == "float64" else 1e30  # nobody's, and its square is infinite
    kernel = sg.fused_hvp((CLUSTERS, SIZE), nearest, row=SIZE, device="cpu", dtype=dtype)
    rtol = 1e-12 if dtype == "float64" else 2e-5
    with np.errstate(over="ignore"):
        want = slopes_of(p, v, rows)
    for a, b in zip(kernel.run(p, v, rows), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())


def test_a_case_is_looked_at_only_by_rows_that_are_in_it() -> None:
    kernel = sg.fused_hvp((CLUSTERS, SIZE), nearest, row=SIZE, device="cpu")
    reduction = kernel._traced.reduction
    roots = dict(enumerate(i for o in reduction.summed for i in o.nodes))
    found = cases(reduction.graph, roots, ())
    assert [len(case.values) for case in found] == [2 * SIZE] * CLUSTERS
    assert all(case.needed for case in found)
    program = row_sums_simd(reduction, SimdTarget(LANES))
    verify(program)
    assert sum(isinstance(item, If) for _, item in program.items()) == CLUSTERS
    few = {c: roots[c] for case in found[: CASES - 1] for c in case.values}
    assert not cases(reduction.graph, few, ())
