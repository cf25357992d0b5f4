"""Kernels of strided arrays compute what NumPy does, in the interpreter; Tint takes their WGSL."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tint import check_with_tint, needs_tint

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.launch import Array, Dispatch, Launch, Program
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.stages.strided import TARGET, Elementwise, Layout, ReduceProgram
from symgrad.wgsl.arrays.stored import View, c_strides
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Style

RNG = np.random.default_rng(3)


def hypotenuse() -> Computation:
    graph = Graph()
    x, y = graph.input("x"), graph.input("y")
    squares = graph.add(ops.mul, x, x), graph.add(ops.mul, y, y)
    root = graph.add(ops.sqrt, graph.add(ops.add, *squares))
    return Computation("hypotenuse", graph, (Output("y", (root,)),))


def view_of(array: np.ndarray) -> View:
    """A view as a kernel sees it, of an array that begins where the memory does or later."""
    base: Any = array if array.base is None else array.base
    first = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    strides = tuple(s // array.itemsize for s in array.strides)
    return View(None, first // array.itemsize, array.shape, strides)


def layout_of(views: Sequence[View], name: str = "") -> Layout:
    return Layout(len(views[0].shape), tuple(v.is_contiguous for v in views), name)


def run(
    program: Program,
    inputs: Sequence[Array],
    arrays: Sequence[np.ndarray],
    size: int,
    count: int,
    arguments: tuple[tuple[str, int], ...],
    groups: int = 0,
) -> np.ndarray:
    """What a kernel of strided arrays writes to an array of so many numbers."""
    output = Array("y", (size,), "u" if arrays[0].dtype.kind == "u" else "f")
    names = tuple((a.name, a.name) for a in (*inputs, output))
    dispatch = Dispatch(program, TARGET, names, count, groups, arguments)
    launch = Launch("strided", tuple(inputs), (output,), (), (dispatch,))
    launch.verify()
    return launch.execute(arrays)[0]


BASE = RNG.normal(size=(4, 6, 5))

VIEWS = {
    "contiguous": BASE,
    "a part": BASE[1:3],
    "every other one, back": BASE[::-2, :, 1:],
    "transposed": BASE.T,
    "of one axis": BASE[2, 3, ::2],
}


@pytest.mark.parametrize("name", VIEWS)
def test_elements_of_views(name: str) -> None:
    x = VIEWS[name]
    y = np.empty(x.shape)
    views = [view_of(x), View(None, 0, y.shape, c_strides(y.shape))]
    layout = layout_of(views)
    program = Elementwise(hypotenuse(), ("", None), layout)
    inputs = Array("x0", (BASE.size,)), Array("numbers", (1,))
    given = BASE.ravel(), np.array([1.5])
    result = run(
        program, inputs, given, x.size, x.size, layout.arguments([v.places for v in views])
    )
    np.testing.assert_allclose(result.reshape(x.shape), np.hypot(x, 1.5), rtol=1e-15)


def test_words_are_copied() -> None:
    words = RNG.integers(0, 2**32, (7, 300), dtype=np.uint32)
    x = words[::-1, ::3]
    views = [view_of(x), View(None, 0, x.shape, c_strides(x.shape))]
    layout = layout_of(views)
    inputs = (Array("x0", (words.size,), "u"),)
    program, words_of = (
        Elementwise(None, ("",), layout),
        layout.arguments([v.places for v in views]),
    )
    result = run(program, inputs, (words.ravel(),), x.size, x.size, words_of)
    np.testing.assert_array_equal(result.reshape(x.shape), x)


def test_floats_with_fewer_digits_are_converted() -> None:
    x, y = RNG.normal(size=300).astype(np.float32), RNG.normal(size=300)
    views = [View(None, 0, (300,), (1,))] * 3
    layout = layout_of(views)
    program = Elementwise(hypotenuse(), ("float32", ""), layout)
    inputs = Array("x0", (300,), floats="float32"), Array("x1", (300,))
    result = run(program, inputs, (x, y), 300, 300, layout.arguments([v.places for v in views]))
    np.testing.assert_allclose(result, np.hypot(x.astype(float), y), rtol=1e-15)
    with pytest.raises(AssertionError, match="x0 of hypotenuse has other floats than x0"):
        run(
            program,
            (Array("x0", (300,)), inputs[1]),
            (x, y),
            300,
            300,
            layout.arguments([v.places for v in views]),
        )
    with pytest.raises(AssertionError, match="y has the kernel's floats"):
        KernelIR(TARGET).buffer("y", "write", floats="float32")


REDUCED = {"add": np.sum, "mul": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("by_groups", [False, True])
@pytest.mark.parametrize("operator", REDUCED)
def test_axes_are_reduced(operator: str, by_groups: bool) -> None:
    x = np.moveaxis(RNG.uniform(0.9, 1.1, (3, 700 if by_groups else 12, 5)), 1, 2)
    outer, inner = View(None, 0, (3, 5), (x.shape[2] * 5, 1)), View(None, 0, (x.shape[2],), (5,))
    layouts = layout_of([outer]), layout_of([inner], "inner_")
    part = 300
    parts = math.ceil(x.shape[2] / part) if by_groups else 1
    words = [*layouts[0].arguments([outer.places]), *layouts[1].arguments([inner.places])]
    words += [("length", x.shape[2]), ("y_first", 2)]
    words += [("part", part), ("parts", parts)] if by_groups else []
    program, groups = ReduceProgram(operator, *layouts, by_groups), 15 * parts if by_groups else 0
    inputs, memory = (Array("x", (x.size,)),), np.ascontiguousarray(np.moveaxis(x, 2, 1))
    result = run(program, inputs, (memory,), 2 + 15 * parts, 15, tuple(words), groups)
    assert np.isnan(result[:2]).all()
    blocks = [x[..., k * part : (k + 1) * part] for k in range(parts)]
    want = np.stack([REDUCED[operator](block, axis=2) for block in blocks], 2)
    np.testing.assert_allclose(result[2:].reshape(want.shape), want, rtol=1e-12)


@needs_tint
def test_tint_takes_them() -> None:
    strided = [Layout(3, (False,) * 3), Layout(2, (True, False, True)), Layout(1, (True,) * 3)]
    programs: list[tuple[Program, str]] = [
        (Elementwise(hypotenuse(), arguments, layout), dtype)
        for layout in strided
        for arguments, dtype in ((("", ""), "float32"), (("", "float32"), "float32x2"))
    ]
    programs.append((Elementwise(None, ("",), Layout(3, (False, False))), "float32"))
    dense, apart = Layout(1, (True,)), Layout(3, (False,), "inner_")
    programs += [
        (ReduceProgram(operator, dense, apart, by_groups), "float32")
        for operator, by_groups in itertools.product(REDUCED, (False, True))
    ]
    sources = [
        module
        for program, dtype in programs
        for module in print_kernel(program(TARGET), Style(dtype=dtype)).modules
    ]
    assert [fault for fault in check_with_tint(sources) if fault] == []
