"""Orders of axes in memory on the CPU, and orders of sums: numbers are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.arrays.program import ArrayProgram, listing
from symgrad.arrays.trace import gradients, program_of
from symgrad.front.whole import WholeTrace
from symgrad.pipeline import Options
from symgrad.targets import choose_any
from symgrad.tensor.stages import compile_arrays

RNG = np.random.default_rng(8)


def distances(m: Any, x: Any, c: Any) -> Any:
    """Mahalanobis' distances of points from centres, as a mixture has them."""
    apart = np.einsum("kij,nkj->nki", m, x[:, None, :] - c[None])
    return np.log(np.sum(np.exp(-0.5 * np.sum(apart**2, -1)), 1) + 0.1)


def short_axes(m: Any, x: Any, c: Any) -> Any:
    """Arrays with a short last axis that are read in other orders, shifted and rolled."""
    a = np.cos(x[:, None, :] * c[None])
    b = np.moveaxis(a, 0, 1)[:, ::-1] + 0.5 * np.roll(np.transpose(a, (1, 0, 2)), 1, axis=2)
    return np.sum(b[:, 1:] * b[:, :-1], axis=(0, 2)) + np.sum(np.einsum("knd,kde->ne", b, m))


def running(m: Any, x: Any, c: Any) -> Any:
    """A scan, integers and a scatter among arrays with a short last axis."""
    a = np.tanh(x[:, None, :] - c[None])
    total = np.cumsum(a, axis=0)
    largest = np.argmax(a, axis=2)
    picked = np.take_along_axis(total, largest[..., None], 2)[..., 0]
    return np.sum(picked * np.max(a, axis=2), axis=1) + np.sum(np.einsum("nkd,kde->ke", a, m) ** 2)


def arrays(d: int) -> list[np.ndarray]:
    n, k = 700, 6
    return [RNG.normal(size=(k, d, d)) / d, RNG.normal(size=(n, d)), RNG.normal(size=(k, d))]


@pytest.mark.parametrize("f", [distances, short_axes, running])
@pytest.mark.parametrize("d", [5, 40])
def test_numbers_are_those_of_numpy(f: Any, d: int) -> None:
    given = arrays(d)
    loss = lambda *a: np.sum(f(*a) ** 2)  # noqa: E731
    run = sg.jit(f, device="cpu", dtype="float64")
    np.testing.assert_allclose(run(*given), f(*given), rtol=1e-11, atol=1e-12)
    slopes = sg.value_and_grad(loss, (0, 1, 2), device="cpu", dtype="float64")(*given)[1]
    for k, slope in enumerate(slopes):
        along, ends = RNG.normal(size=given[k].shape), []
        for h in (1e-6, -1e-6):
            moved = [*given]
            moved[k] = given[k] + h * along
            ends.append(loss(*moved))
        assert np.sum(slope * along) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=2e-6)


def gradient_program(f: Any, given: list[np.ndarray]) -> ArrayProgram:
    """The program of a sum's value and its gradients."""
    trace = WholeTrace(lambda *a: np.sum(f(*a)), given)
    value = trace.call(lambda a: iter([*a, {}]))
    return program_of(trace.tape, [value, *gradients(value, trace.variables)])


def test_long_axes_are_the_last_ones() -> None:
    program = gradient_program(distances, arrays(10))
    compiled = compile_arrays(program, Options("distances", dtype="float64"), choose_any("cpu"))
    plan = str(compiled.plan)
    assert "[6, 10, 700]" in plan and "[700, 6, 10]" not in plan


def test_arrays_that_read_reordered_ones_are_reordered_with_them() -> None:
    program = gradient_program(short_axes, arrays(5))
    plan = str(compile_arrays(program, Options("f", dtype="float64"), choose_any("cpu")).plan)
    assert plan.count("[6, 5, 700] =") > 1 and "[700, 6, 5]" not in plan


@pytest.mark.parametrize("d", [10, 40])
def test_what_was_broadcast_before_a_product_is_summed_before_its_transpose(d: int) -> None:
    text = listing(gradient_program(distances, arrays(d)))
    sums = [line for line in text.splitlines() if "reduce k < 700; add { reduce" in line]
    assert not sums
    products = [line for line in text.splitlines() if f"for i < 700, j < 6, k < {d}" in line]
    assert sum("reduce" in line for line in products) == 2, "forward, and for the points"
