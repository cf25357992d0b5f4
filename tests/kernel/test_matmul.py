"""The program of products of matrices, by the interpreter and by both front ends."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tint import check_with_tint, tint_available

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers.expression import Expr
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.launch import Array, Launch
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.skeletons.matmul import ARGUMENTS, Epilogue, MatmulProgram
from symgrad.kernel.skeletons.tiles import CHOICES, Operand, Tiles
from symgrad.tensor.dispatches import sums_of
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Style

SMALL = [Tiles(16, 16, 8, 4, 4), Tiles(32, 16, 8, 4, 4), Tiles(16, 16, 16, 8, 4)]
SIZES = [(16, 16, 16), (20, 12, 20), (5, 7, 3)]


def epilogue(activation: Any, *names: str) -> Epilogue:
    """An activation of a sum, and of a bias, and its slope, times a gradient, if they are named."""
    graph = Graph()
    total, *others = [Expr(graph, graph.input(name)) for name in ("sum", *names)]
    z = total + others[0] if "bias" in names else total
    values = {"result": activation(z)}
    if "gradient" in names:
        values |= {"kept": z, "slope": others[-1] * (1.0 - values["result"] * values["result"])}
    outputs = tuple(Output(name, (value.id,)) for name, value in values.items())
    return Epilogue(Computation("gemm", graph, outputs), ("bias",))


FULL = epilogue(sg.tanh, "bias", "gradient")


def words(
    tiles: Tiles, size: tuple[int, int, int], operands: tuple[Operand, Operand], splits: int
) -> dict[str, int]:
    """The arguments for two products with the same second matrix."""
    (m, n, k), many = size, [4 if o.quads else 1 for o in operands]
    rows = [k if o.along else beside for o, beside in zip(operands, (m, n), strict=True)]
    steps = math.ceil(k / tiles.depth)
    total = -(-m // tiles.rows) * -(-n // tiles.columns) * splits * 2
    values = (
        m, n, k, rows[0] // many[0], rows[1] // many[1], m * k // many[0], n * k // many[1],
        1, 2, 1, 1, splits, math.ceil(steps / splits), total,
    )  # fmt: skip
    return dict(zip(ARGUMENTS, values, strict=True))


@pytest.mark.parametrize("tiles", SMALL, ids=str)
@pytest.mark.parametrize("a", [True, False], ids=["a along", "a across"])
@pytest.mark.parametrize("b", [True, False], ids=["b along", "b across"])
@pytest.mark.parametrize("quads", [True, False], ids=["quads", "numbers"])
def test_products_of_any_size_and_layout(tiles: Tiles, a: bool, b: bool, quads: bool) -> None:
    rng = np.random.default_rng(1)
    operands = Operand(a, quads), Operand(b, quads)
    for m, n, k in SIZES:
        if quads and (m % 4 or n % 4 or k % 4):
            continue
        program = MatmulProgram(tiles, *operands, FULL, k % tiles.depth > 0, True, n % 4 == 0)
        kernel = program(program.target)
        verify(kernel)
        left, right = rng.normal(size=(2, m, k)), rng.normal(size=(k, n))
        bias, gradient = rng.normal(size=n), rng.normal(size=(2, m, n))
        given = words(tiles, (m, n, k), operands, 1)
        arrays = {
            "a": np.ascontiguousarray(left if a else left.mT),
            "b": np.ascontiguousarray(right.T if b else right),
            "bias": bias, "gradient": gradient,
        }  # fmt: skip
        outputs = {name: np.zeros((2, m, n)) for name in ("result", "kept", "slope")}
        execute(kernel, arrays | outputs, 1, groups=given["total"], arguments=given)
        z = left @ right + bias
        np.testing.assert_allclose(outputs["kept"], z, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(outputs["result"], np.tanh(z), rtol=1e-12, atol=1e-12)
        slope = gradient * (1 - np.tanh(z) ** 2)
        np.testing.assert_allclose(outputs["slope"], slope, rtol=1e-10, atol=1e-12)


def test_a_reduction_is_done_in_parts() -> None:
    rng = np.random.default_rng(2)
    tiles, operands, splits = SMALL[0], (Operand(True, False), Operand(False, False)), 3
    m, n, k = 9, 5, 50
    plain = epilogue(lambda z: z)
    program = MatmulProgram(tiles, *operands, plain)
    left, right = rng.normal(size=(2, m, k)), rng.normal(size=(k, n))
    given = words(tiles, (m, n, k), operands, splits)
    parts = np.zeros((2, splits, m, n))
    arrays = {"a": left, "b": right, "result": parts}
    execute(program(program.target), arrays, 1, groups=given["total"], arguments=given)
    np.testing.assert_allclose(parts.sum(1), left @ right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("target", [WorkgroupTarget(64), SimdTarget(4, whole=False)], ids=str)
@pytest.mark.parametrize(("rows", "each"), [(1, 1), (7, 7), (50, 8), (33, 1)])
def test_columns_are_summed_in_chunks(rows: int, each: int, target: Target) -> None:
    table = np.random.default_rng(3).normal(size=(rows, 9))
    dispatch = sums_of("table", rows, 9, each, "sums", target)
    shape = -(-rows // each), 9
    arrays = (Array("table", table.shape),), (Array("sums", shape),), ()
    (sums,) = Launch("sums", *arrays, (dispatch,)).execute([table])
    wanted = [table[k * each : (k + 1) * each].sum(0) for k in range(shape[0])]
    np.testing.assert_allclose(sums, wanted, rtol=1e-12, atol=1e-12)


def test_a_group_has_no_more_memory_than_webgpu_gives() -> None:
    assert Tiles().nbytes <= 16_384 and Tiles().width <= 256
    with pytest.raises(AssertionError, match="bytes"):
        Tiles(128, 128, 32)


def module(tiles: Tiles, a: Operand, b: Operand, of: Epilogue, exact: bool) -> str:
    program = MatmulProgram(tiles, a, b, of, not exact, not exact, a.quads)
    style = Style("accurate", False, "gemm")
    (found,) = print_kernel(program(program.target), style).modules
    return found


@pytest.mark.skipif(not tint_available(), reason="SYMGRAD_TINT is not set")
def test_tint_takes_products() -> None:
    sources = [
        module(tiles, Operand(along, quads), Operand(not along, quads), FULL, exact)
        for tiles in (*(tiles for tiles, _ in CHOICES), SMALL[1])
        for along, quads, exact in ((True, True, True), (False, False, False), (True, True, False))
    ]
    assert check_with_tint(sources) == [None] * len(sources)


@pytest.mark.parametrize(("shift", "known"), [(0, True), (3, True), (4, False)])
def test_a_column_stays_within_its_row(shift: int, known: bool) -> None:
    k = KernelIR(WorkgroupTarget(8), "rows")
    out = k.buffer("out", "write")
    table = k.buffer("table", "group", size=32, row=8)
    for row in range(4):
        k.store(table, k.shifted(k.local, 8 * row), k.constant(float(row)))
    k.barrier()
    half = k.add(ops.word_div, k.local, k.word(2))
    k.store(out, k.cell, k.load(table, k.shifted(half, 8 + shift)))
    if not known:  # the last column is one beyond
        k.store(out, k.cell, k.load(table, k.shifted(k.local, 8 + shift)))
    (source,) = print_kernel(k, Style("accurate", False, "")).modules
    assert "array<array<f32, 8>, 4>" in source and "table[3u][local]" in source
    found = np.zeros(8)
    if known:
        execute(k, {"out": found}, 8)
        assert found.tolist() == [1.0] * 8
    else:
        with pytest.raises(AssertionError, match="column 11 of table, whose rows have 8"):
            execute(k, {"out": found}, 8)
