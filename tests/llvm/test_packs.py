"""Calls of one function by a lone point are done side by side, and give the same bits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.skeletons.map import map_program
from symgrad.llvm.dispatch.compiled import definitions_for
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.printer import print_kernel

LANES = 4


def layer(v: Any) -> Any:
    """Functions that need none of one another, of each argument."""
    return np.sum(np.exp(v) * np.tanh(v))


def behind(v: Any) -> Any:
    """Functions of functions, in chains of several lengths, of both kinds in between."""
    a = [sg.exp(-x) for x in v]
    b = [sg.exp(-sg.exp(-y)) + sg.atan2(y, x) for x, y in zip(v, a, strict=True)]
    return sum(sg.exp(-y) * sg.log(1 + x * x) for x, y in zip(v, b, strict=True))


def recurrent(v: Any) -> Any:
    """Functions in the iterations of a loop, whose transpose reads what was kept."""
    step = lambda _, h: np.tanh(h * v[1:] + np.cos(v[0] * h[::-1]))  # noqa: E731
    return np.sum(sg.fori_loop(0, 20, step, v[1:]))


def extreme(v: Any) -> Any:
    """Functions of which some calls are rarely done another way, and edges among them."""
    return sum(sg.sin(1e7 * x) + sg.gammaln(10 * x) + sg.log(x) for x in v)


MODELS = [layer, behind, recurrent, extreme]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [2, 3, 9, 20])
@pytest.mark.parametrize("f", MODELS)
def test_a_point_has_the_bits_of_a_batch(f: Any, n: int, dtype: Any) -> None:
    x = np.random.default_rng(n).uniform(0.1, 1.2, (16, n)).astype(dtype)
    if f is extreme:
        x[3, :3] = [0.0, np.inf, np.nan][: min(n, 3)]
    kernel = sg.fused_forward_backward(n, f, device="cpu", dtype=dtype)
    losses, slopes = kernel.run(x)
    for k in (0, 3, 9):
        value, gradient = kernel.run(x[k])
        np.testing.assert_array_equal(value, losses[k])
        np.testing.assert_array_equal(gradient, slopes[k])


@pytest.mark.parametrize(("n", "calls"), [(2, 0), (3, 1), (4, 1), (6, 1), (7, 2), (8, 2)])
def test_so_many_calls_are_vectors(n: int, calls: int) -> None:
    kernel = sg.fused_forward(n, lambda v: np.prod(np.exp(v)), device="cpu", dtype="float64")
    made = map_program(kernel._computation, SimdTarget(1))
    one = Shape("float64", 1, True)
    many = Shape("float64", LANES, True)
    text = print_kernel(made, definitions_for("accurate", "float64"), one, many).text
    body = text[text.index("@run(") :]
    assert len(re.findall(r"= call <4 x double>", body)) == calls
    alone = {2: 2, 6: 2}.get(n, 0)
    assert len(re.findall(r"= call double @(?!llvm)", body)) == alone


def long(v: Any) -> Any:
    """So many operations that they are cut into functions, with calls of two arguments too."""
    a, b = list(v), list(v[::-1])
    for k in range(60):
        a = [sg.sin(x * y + 0.1 * k) + sg.atan2(x, 1 + y * y) for x, y in zip(a, b, strict=True)]
        b = [y + 0.3 * x * x for x, y in zip(a, b, strict=True)]
    return sum(a)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_points_have_the_bits_of_a_batch(dtype: Any) -> None:
    x = np.random.default_rng(7).uniform(0.1, 1.2, (16, 7)).astype(dtype)
    kernel = sg.fused_forward_backward(7, long, device="cpu", dtype=dtype)
    losses, slopes = kernel.run(x)
    for k in (0, 5):
        value, gradient = kernel.run(x[k])
        np.testing.assert_array_equal(value, losses[k])
        np.testing.assert_array_equal(gradient, slopes[k])


@pytest.mark.parametrize("thorough", [False, True])
def test_what_is_compiled_quickly_takes_no_vectors_apart(thorough: bool) -> None:
    kernel = sg.fused_forward(7, long, device="cpu", dtype="float64", roll=False)
    made = map_program(kernel._computation, SimdTarget(1))
    one, many = Shape("float64", 1, True), Shape("float64", LANES, True)
    functions = definitions_for("accurate", "float64")
    text = print_kernel(made, functions, one, many, thorough).text
    body = text[text.index("@part0(") :]
    assert ("insertelement" in body) == ("extractelement" in body) == thorough
    assert (re.search(r"call void @sg_atan2\.v4f64\.each\(", body) is None) == thorough
