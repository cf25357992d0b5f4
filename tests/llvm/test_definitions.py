"""The library's functions in float64, compiled: within their bounds, also of huge angles."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from mathlib.double.cases import BOUNDS, NAMES, errors_of, grid
from mathlib.double.test_accuracy import SLOW

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers.expression import Expr
from symgrad.llvm.device.cpu import host
from symgrad.llvm.dispatch.compiled import definitions_for
from symgrad.llvm.printing.operations import Shape
from symgrad.pipeline import DTypeName

from .running import computation, run

LANES = host().vector_bits // 64


def values(name: str, points: np.ndarray, lanes: int, dtype: DTypeName = "float64") -> np.ndarray:
    graph = Graph()
    graph.tracing = False
    inputs = [Expr(graph, graph.input(f"x{k}")) for k in range(points.shape[1])]
    made = computation(graph, [ops.TABLE[name](*inputs).id])
    return run(made, Shape(dtype, lanes, host().fused), points)[0][:, 0]


@pytest.mark.parametrize("name", NAMES)
def test_float64_functions_are_within_their_bounds(name: str) -> None:
    arguments = grid(name, 10 if name in SLOW else 30)
    if name in ("fmod", "remainder"):
        reached = np.abs(arguments[0] / arguments[1]) < 2.0**72
        arguments = tuple(a[reached] for a in arguments)
    points = np.stack([a[: len(a) // LANES * LANES] for a in arguments], axis=1)
    many, one = values(name, points, LANES), values(name, points, 1)
    np.testing.assert_array_equal(many, one)
    found = errors_of(name, many, *points.T)
    worst = int(np.argmax(found))
    assert found[worst] <= BOUNDS[name], (found[worst], points[worst])


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("lanes", [1, LANES])
def test_huge_angles_are_numpys(name: str, lanes: int) -> None:
    points = np.array([1.5, 2.0**24, 3e7, -1e15, 1e300, np.inf, np.nan, -0.0] * LANES)[:, None]
    found = values(name, points, lanes)
    with np.errstate(invalid="ignore"):
        want = getattr(np, name)(points[:, 0])
    np.testing.assert_allclose(found, want, rtol=3e-16)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_extremes_are_numpys_and_nan_passes(name: str, lanes: int, dtype: DTypeName) -> None:
    some = [np.nan, -np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 1e-42]
    points = np.array(list(product(some, some)), dtype)
    found = values(name, points, lanes, dtype)
    np.testing.assert_array_equal(found, getattr(np, name)(*points.T))


def test_fast_mathematics_is_the_accurate_one() -> None:
    accurate, fast = (definitions_for(m, "float32") for m in ("accurate", "fast"))
    assert accurate is fast
