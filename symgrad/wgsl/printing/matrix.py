"""Iterations with a matrix on a GPU: a workgroup a problem, and what fits in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from symgrad.errors import InputError
from symgrad.expr.graph.node import Op
from symgrad.kernel.layout import GROUP_BYTES
from symgrad.kernel.shapes import Iteration, Matrix
from symgrad.kernel.skeletons.normal import normal_program
from symgrad.kernel.skeletons.products import (
    ROWS_PER_PRODUCT_SUM,
    ROWS_PER_TILE,
    ROWS_UNROLLED,
    blocks,
    shares,
    tile_numbers,
)
from symgrad.kernel.skeletons.solve import ACROSS, half
from symgrad.kernel.target import WorkgroupTarget
from symgrad.mathlib.define import Function
from symgrad.wgsl.printing.iterate import MOST_LINES
from symgrad.wgsl.printing.names import printable
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Printed, Style

MATRIX_INVOCATIONS: Final = 32, 64
"""Invocations of a workgroup: the fewest that have a block of products each."""


def with_matrix(iteration: Iteration, functions: Mapping[Op, Function], style: Style) -> Printed:
    """The module of an iteration with a matrix.

    Raises:
        InputError: the iteration is too long for a kernel, or its matrix too large.
    """
    assert iteration.matrix, "there is a matrix"
    n = iteration.matrix.n
    lines = 0
    if fits(n):
        kernel = normal_program(iteration, WorkgroupTarget(lanes(n), grid=True))
        printed = print_kernel(kernel, functions, style, _head(iteration, style))
        lines = printed.modules[0].count("\n")
        if lines <= MOST_LINES:
            return printed
    raise InputError(
        f"a step of {lines:,} lines and a matrix of {n} variables: a kernel on a GPU has at most "
        f'{MOST_LINES:,}, and {GROUP_BYTES:,} bytes of memory; use device="cpu"'
    )


def _head(it: Iteration, style: Style) -> list[str]:
    assert it.matrix, "there is a matrix"
    return [
        f"// {printable(style.title or it.update.name)}: a workgroup a problem, whose state of",
        f"// {it.state} numbers changes in every step until the last number is 0",
        f"// a step sums the products of {it.matrix.n} derivatives and a residual over rows of "
        f"{it.shared} shared columns",
        f"// and {it.own} of each problem's own, and solves a linear system",
    ]


def fits(n: int) -> bool:
    """Whether a workgroup can work on a matrix of so many variables."""
    nbytes = 4 * (tile_numbers(n) + half(n + 1) + half(n)) + 8
    return nbytes <= GROUP_BYTES and blocks(n) <= MATRIX_INVOCATIONS[-1]


def lanes(n: int) -> int:
    """The invocations of a workgroup."""
    return MATRIX_INVOCATIONS[blocks(n) > MATRIX_INVOCATIONS[0]]


def iterations(matrix: Matrix, rows: int) -> int:
    """The iterations of all loops that an invocation makes in a step; each residual is a row."""
    n, tiles, width = matrix.n, -(-rows // ROWS_PER_TILE), lanes(matrix.n)
    shared = shares(n, width)
    block = 1 + ROWS_PER_PRODUCT_SUM // ROWS_UNROLLED
    tile = 1 + ROWS_PER_TILE // width + ROWS_PER_TILE // ROWS_PER_PRODUCT_SUM // shared * block
    down, across = ([-(-(n + 1 - j) // k) for j in range(n + 1)] for k in (width // ACROSS, ACROSS))
    inner = sum(1 + a * (1 + b) for a, b in zip(down, across, strict=True))
    system = 2 * (n // width + 1) + down[0] * (1 + across[0]) + inner + 3 * n
    solves = sum(call.kind == "solve" for call in matrix.calls)
    others = len(matrix.calls) - solves
    sums = half(n + 1) // width + 2 + shared + tiles * tile
    return 8 + n + sums + solves * system + others * (2 * n + matrix.size // width + 1)
