"""The float64 functions on GPUs that have float64: their errors, and the bits of the CPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr import ops
from symgrad.mathlib.define import Math

from .cases import BOUNDS, NAMES, arity, errors_of, grid
from .test_accuracy import SLOW

GPUS = [d for d in sg.devices() if d.is_gpu and "float64" in d.dtypes]
LARGEST, SMALLEST = 1.797693134862315708e308, 5e-324
SOME = [0.0, SMALLEST, 1e-310, 0.5, 1.0, 2.0, 2.5, 1e10, 1e300, LARGEST, np.inf]
EDGES = np.array([*SOME, *(-v for v in SOME), np.nan])
SAMPLED = ("exp", "log", "sin", "tan", "atan2", "pow", "erfc", "remainder", "softplus", "gammaln")
"""What is held to these tests in any case; the others where slow tests run."""

FORMS = [pytest.param(name, marks=[] if name in SAMPLED else [pytest.mark.slow]) for name in NAMES]

needs_float64 = pytest.mark.skipif(not GPUS, reason="no GPU with float64 here")


def points(name: str) -> np.ndarray:
    """Arguments all over the range, and then edges: all pairs of them."""
    arguments = np.stack(grid(name, 20 if name in SLOW else 60), axis=1)
    edges = np.stack([v.ravel() for v in np.meshgrid(*[EDGES] * min(arity(name), 2))], axis=1)
    if arity(name) > 2:
        edges = np.concatenate([edges, np.full((len(edges), arity(name) - 2), 0.5)], axis=1)
    return np.concatenate([arguments, edges])


def values(name: str, at: np.ndarray, device: Any, math: Math = "accurate") -> np.ndarray:
    op = ops.TABLE[name]
    made = sg.fused_forward(
        at.shape[1], partial(_of, op), device=device, dtype="float64", math=math
    )
    return made.run(at)


def _of(op: Any, v: Any) -> Any:
    return op(*v)


@needs_float64
@pytest.mark.parametrize("name", FORMS)
def test_a_gpu_gives_the_bits_of_the_cpu(name: str) -> None:
    at = points(name)
    cpu = values(name, at, "cpu", "strict")
    for gpu in GPUS:
        np.testing.assert_array_equal(values(name, at, gpu, "strict"), cpu)


@needs_float64
@pytest.mark.parametrize("name", FORMS)
def test_an_accurate_gpu_is_within_the_bounds(name: str) -> None:
    at = points(name)
    arguments = grid(name, 20 if name in SLOW else 60)
    edges = values(name, at, "cpu")[len(arguments[0]) :]
    for gpu in GPUS:
        found = values(name, at, gpu)
        error = errors_of(name, found[: len(arguments[0])], *arguments)
        worst = int(np.argmax(error))
        assert error[worst] <= BOUNDS[name], (error[worst], at[worst])
        np.testing.assert_array_equal(np.isnan(found[len(arguments[0]) :]), np.isnan(edges))
