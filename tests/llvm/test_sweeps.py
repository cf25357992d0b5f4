"""Loops over arrays of a single point do several iterations at once, and give the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.skeletons.map import map_program
from symgrad.llvm.compiler import SWEEPING
from symgrad.llvm.dispatch.compiled import definitions_for
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.printer import print_kernel

N = 1000


def squeezed(v: Any) -> Any:
    """A loop that carries an array."""
    return np.sum(sg.fori_loop(0, 3, lambda _, y: y - 0.1 * np.tanh(y * y), v))


def powered(v: Any) -> Any:
    """A loop that carries a number."""
    return sg.fori_loop(0, N, lambda _, y: y - 0.1 * y * y, v[0])


@pytest.mark.parametrize(("f", "swept"), [(squeezed, True), (powered, False)])
def test_what_it_is_compiled_for(f: Any, swept: bool) -> None:
    kernel = sg.fused_forward_backward(N, f, device="cpu", dtype="float64")
    made = map_program(kernel._computation, SimdTarget(1))
    functions = definitions_for("accurate", "float64")
    source = print_kernel(made, functions, Shape("float64", 1, True))
    assert (source.effort == SWEEPING) is swept


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_point_has_the_bits_of_many(dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=(16, N))
    kernel = sg.fused_forward_backward(N, squeezed, device="cpu", dtype=dtype)
    losses, slopes = kernel.run(x)
    value, gradient = kernel.run(x[5])
    assert value == losses[5]
    assert np.array_equal(gradient, slopes[5])
