"""Five hundred random programs of nested loops, choices, scans and arrays: their derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from programs import Kinds, called, points, program, random_program

import symgrad as sg
from symgrad.expr.derivatives.differentiate import jvp, vjp
from symgrad.expr.semantics.evaluate import evaluate_graph

KINDS = Kinds(scans=True), Kinds(depth=3), Kinds(depth=3, scans=True), Kinds(size=9)
QUICK = range(6)
ALL = [*QUICK, *[pytest.param(n, marks=pytest.mark.slow) for n in range(6, 125)]]
"""Each number is that of a program of each kind."""


def loss(seed: int, kinds: Kinds) -> Any:
    """A program as a function of three numbers."""

    def f(v: Any) -> Any:
        a, b = program(seed, kinds)(v)
        return a * b + a

    return f


def interpreted(seed: int, kinds: Kinds, at: np.ndarray) -> Iterator[np.ndarray]:
    """The values (points), and the gradients (3, points) in reverse and in forward mode."""
    drawn = random_program(seed, kinds=kinds)
    graph, inputs = drawn.graph, list(drawn.ids)
    a, b = drawn.floats
    root, one = (a * b + a).id, graph.constant(1.0)
    reverse = vjp(graph, {root: one}, inputs)
    forward = [jvp(graph, {i: one}, [root])[0] for i in inputs]
    given = dict(zip(inputs, at, strict=True))
    for roots in ([root], reverse, forward):
        ids = [graph.constant(0.0) if i is None else i for i in roots]
        yield np.array(evaluate_graph(graph, ids, given))


@pytest.mark.parametrize("seed", ALL)
def test_values_and_both_modes_agree(seed: int) -> None:
    at = points()
    for kinds in KINDS:
        values, reverse, forward = interpreted(seed, kinds, at)
        a, b = called(program(seed, kinds), at)
        np.testing.assert_allclose(values[0], a * b + a, rtol=1e-9, atol=1e-12)
        scale = 1.0 + np.abs(forward)
        np.testing.assert_allclose(reverse / scale, forward / scale, atol=1e-9)


@pytest.mark.parametrize("seed", ALL[::3])
def test_a_kernel_does_what_the_interpreter_does(seed: int) -> None:
    at = points()
    for kinds in KINDS[::2]:
        kernel = sg.fused_forward_backward(3, loss(seed, kinds), device="cpu", dtype="float64")
        values, gradients = kernel.run(at.T)
        want, slopes, _ = interpreted(seed, kinds, at)
        np.testing.assert_allclose(values, want[0], rtol=1e-8, atol=1e-10)
        scale = 1.0 + np.abs(slopes.T)
        np.testing.assert_allclose(gradients / scale, slopes.T / scale, atol=1e-8)
