"""Kernels of the language, compiled: bit by bit what the interpreter says, on all vectors."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.target import SimdTarget
from symgrad.llvm.device.cpu import host
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.printer import LOOPED, MOST_BLOCK_BYTES, block_of, print_kernel
from symgrad.llvm.printing.source import USUAL_SIZES, CodeSizes

from .programs import Drawn, meaning, printed

WIDEST = host().vector_bits // 32


def drawn(seed: int, width: int) -> KernelIR:
    return Drawn(seed, width).kernel


def shapes(
    dtype: str, fused: bool = False, sizes: CodeSizes = USUAL_SIZES
) -> list[tuple[Shape, Shape | None]]:
    """One lane, few, a register, and two of them side by side."""
    lanes = WIDEST if dtype == "float32" else WIDEST // 2
    one, few, register, two = (
        Shape(dtype, n, fused, sizes=sizes) for n in (1, 4, lanes, 2 * lanes)
    )
    return [(one, None), (few, None), (register, None), (two, register)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(15))
def test_random_programs_mean_what_the_interpreter_says(seed: int, dtype: str) -> None:
    points = np.random.default_rng(seed).uniform(-1.5, 1.5, (2 * WIDEST, 3)).astype(dtype)
    want = meaning(partial(drawn, seed), points, 3)
    for shape, vector in shapes(dtype):
        found = printed(partial(drawn, seed), shape, points, 3, vector)
        np.testing.assert_array_equal(found, want, err_msg=str(shape))


@pytest.mark.parametrize("seed", range(100, 112))
def test_what_is_cut_gives_the_same_bits(seed: int) -> None:
    points = np.random.default_rng(seed).uniform(-1.5, 1.5, (2 * WIDEST, 3)).astype("float32")
    want = meaning(partial(drawn, seed), points, 3)
    for shape, vector in shapes("float32", sizes=CodeSizes(5, 5, 3, 2))[:3]:
        for thorough in (False, True):
            found = printed(partial(drawn, seed), shape, points, 3, vector, thorough)
            np.testing.assert_array_equal(found, want, err_msg=str(shape))


@pytest.mark.parametrize("seed", range(200, 208))
def test_masked_turns_alone_give_the_same_bits(seed: int) -> None:
    points = np.random.default_rng(seed).uniform(-1.5, 1.5, (2 * WIDEST, 3)).astype("float32")
    shape = Shape("float32", WIDEST, False)
    want = printed(partial(drawn, seed), shape, points, 3)
    shape = replace(shape, sizes=CodeSizes(written_twice=0))
    np.testing.assert_array_equal(printed(partial(drawn, seed), shape, points, 3), want)


@pytest.mark.parametrize("seed", range(300, 310))
def test_a_point_alone_has_the_bits_that_it_has_in_a_batch(seed: int) -> None:
    points = np.random.default_rng(seed).uniform(-1.5, 1.5, (2 * WIDEST, 3)).astype("float32")
    (one, _), *others = shapes("float32", host().fused)
    want = printed(partial(drawn, seed), one, points, 3)
    for shape, vector in others:
        found = printed(partial(drawn, seed), shape, points, 3, vector)
        np.testing.assert_array_equal(found, want, err_msg=str(shape))


def looped(size: int, iterations: int = 50, operations: int = 1) -> KernelIR:
    """A loop that writes to an array of its own, beside which there is little."""
    k = KernelIR(SimdTarget(WIDEST))
    x, out = k.buffer("x", "read"), k.buffer("out", "write")
    array = k.buffer("array", "own", size=size)

    def body(t: int, carries: list[int]) -> list[int]:
        value = carries[0]
        for n in range(operations):
            value = k.add(ops.add, k.add(ops.mul, value, value), k.constant(float(n)))
        k.store(array, t, value)
        return [value]

    (last,), _ = k.loop(k.word(0), k.word(iterations), [k.load(x, k.cell)], body)
    k.store(out, k.cell, last)
    return k


def test_registers_lie_side_by_side_where_a_loop_has_room_for_them() -> None:
    vector = Shape("float32", WIDEST, True)
    two, four = (Shape("float32", n * WIDEST, True) for n in (2, 4))
    assert block_of(looped(100), vector) == four
    assert block_of(looped(100, operations=200), vector) == two
    assert block_of(looped(MOST_BLOCK_BYTES), vector) == vector
    assert block_of(looped(100, operations=2 * USUAL_SIZES.long_batch), vector) == vector
    straight = KernelIR(SimdTarget(WIDEST))
    x, out = straight.buffer("x", "read"), straight.buffer("out", "write")
    straight.store(out, straight.cell, straight.load(x, straight.cell))
    assert block_of(straight, vector) == vector


def test_a_loop_is_written_once_however_many_turns_it_takes() -> None:
    shape = Shape("float32", WIDEST, True)
    texts = [print_kernel(looped(size, size), {}, shape).text for size in (50, 5000)]
    assert texts[0].replace(" 50", " 5000") == texts[1]


def test_loops_are_never_compiled_in_the_quickest_way_beside_little_else() -> None:
    shape = Shape("float32", WIDEST, True)
    source = print_kernel(looped(100, operations=USUAL_SIZES.long_batch + 1), {}, shape)
    assert "@part" in source.text
    assert source.effort == 1
    assert print_kernel(looped(100, operations=LOOPED + 1), {}, shape).effort == 0


def test_loops_of_one_point_are_compiled_quickly_at_first_and_soon_again() -> None:
    many, one = (Shape("float32", lanes, True) for lanes in (WIDEST, 1))
    kernel = looped(100, operations=USUAL_SIZES.long + 1)
    batch, point = (print_kernel(kernel, {}, shape) for shape in (many, one))
    assert (batch.effort, point.effort) == (1, 0)
    assert 0.0 < point.hot < batch.hot < math.inf
    assert print_kernel(kernel, {}, one, thorough=True).effort == 1
