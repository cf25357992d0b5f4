"""What follows a product of matrices element by element is computed in its kernel, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tint import check_with_tint, needs_tint

import symgrad as sg

RNG = np.random.default_rng(0)


def layer(x: Any, w: Any, b: Any) -> Any:
    """Two arrays of a product: the derivative needs the first one."""
    sums = x @ w + b
    return sums, np.maximum(sums, 0.0)


def residual(x: Any, w: Any, b: Any) -> Any:
    return x + (x @ w[:, : x.shape[-1]]) * 0.5


def masked(x: Any, w: Any, b: Any) -> Any:
    """A batch of products, to each of which the same matrix is added, and a number by column."""
    many = np.stack([x, x * b[: x.shape[-1]], -x])
    return many @ np.swapaxes(many, -1, -2) * 0.1 + (x @ x.T)[None] + b


def transposed(x: Any, w: Any, b: Any) -> Any:
    """Results that stand otherwise than the product's are computed behind it."""
    return (x @ w + b).T * 2.0


def of_rows(x: Any, w: Any, b: Any) -> Any:
    """A number for each row is none of those that an epilogue reads."""
    return x @ w + x[:, :1]


def squared(x: Any, w: Any, b: Any) -> Any:
    return (x @ w) ** 2


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "layer": (layer, 1),
    "residual": (residual, 1),
    "squared": (squared, 1),
    "masked": (masked, 3),
    "transposed": (transposed, 2),
    "rows": (of_rows, 2),
}
"""Functions, and how many kernels they are."""

SHAPES = [(100, 64, 128), (71, 67, 93), (24, 1600, 20)]


def drawn(m: int, k: int, n: int) -> list[np.ndarray]:
    return [RNG.normal(size=s).astype(np.float32) / 4 for s in ((m, k), (k, n), n)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_results_are_numpys(case: str, shape: tuple[int, int, int]) -> None:
    f, kernels = CASES[case]
    m, k, n = shape if case not in ("residual", "masked") else (shape[0], *sorted(shape[1:]))
    n = m if case == "masked" else n
    arrays = drawn(m, k, n)
    run = sg.jit(f, device="gpu")
    results, wanted = run(*arrays), f(*map(np.float64, arrays))
    for result, right in zip(np.atleast_1d(results), np.atleast_1d(wanted), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=2e-5)
    if shape == SHAPES[0]:
        assert len(str(run.stages).splitlines()) == kernels


def test_a_long_sum_ends_where_its_parts_are_added_up() -> None:
    x, w, b = drawn(32, 4096, 32)
    run = sg.jit(layer, device="gpu")
    for result, right in zip(run(x, w, b), layer(*map(np.float64, (x, w, b))), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-4)
    parts, finish = str(run.stages).splitlines()
    assert "matmul" in parts and "elements" in finish and "y1" in finish


def test_costly_functions_are_kernels_of_their_own() -> None:
    run = sg.jit(lambda x, w: np.exp(np.tanh(x @ w)), device="gpu")
    x, w, _ = drawn(100, 64, 128)
    np.testing.assert_allclose(run(x, w), np.exp(np.tanh(x @ w)), rtol=1e-5)
    assert len(str(run.stages).splitlines()) == 2


@needs_tint
def test_tint_takes_the_kernels() -> None:
    modules = list[str]()
    for case in ("layer", "masked"):
        run = sg.jit(CASES[case][0], device="gpu")
        run(*drawn(100, 64, 100))
        modules += [f"struct Params{m}" for m in run.wgsl.split("struct Params")[1:]]
    assert check_with_tint(modules) == [None] * len(modules)
