"""Iteration -> WGSL: the forms in which problems are shared out, and what fits in a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from symgrad.errors import InputError
from symgrad.expr.graph.node import Graph, Op, reachable
from symgrad.expr.graph.region import Loop, Regional
from symgrad.kernel.layout import GROUP_BYTES
from symgrad.kernel.shapes import Iteration, Matrix
from symgrad.kernel.skeletons.iterate import GROUP_SUMS_AT_A_TIME, iterate_program
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
from symgrad.wgsl.printing.names import printable
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Printed, Style

STEP_INVOCATIONS: Final = 64
"""Invocations of a workgroup."""

ROWS_PER_FLOAT_SUM: Final = 16
"""Rows that are added up before their sum is added with its rounding error kept."""

ROWS_LOADED: Final = 4
"""Rows whose loads an invocation has on their way at once, where there is little to do at a row."""

SHORT_ROW_OPERATIONS: Final = 64
"""Operations at a row up to which that is so: they stand there once for each of these rows."""

MOST_LINES: Final = 12_000
"""The most lines of a kernel: drivers take a minute for those that are longer."""

MOST_STATE_NUMBERS: Final = 1024
"""The most numbers of a state: each is loaded and stored by a statement of its own."""

MOST_SUMS: Final = GROUP_BYTES // 4 - GROUP_SUMS_AT_A_TIME * (STEP_INVOCATIONS + 1) - 1
"""The most sums of a workgroup, which stand in what its other arrays leave of 16,384 bytes."""

PROGRESS_WORDS: Final = 2
"""Words by which the device tells how far the work is."""

UNKNOWN_ITERATIONS: Final = 2**32
"""Iterations of a loop of which nobody knows how many it takes."""

MATRIX_INVOCATIONS: Final = 32, 64
"""Invocations of a workgroup: the fewest that have a block of products each."""


@dataclass(frozen=True)
class Form:
    """How problems are shared out: an invocation for each, or a workgroup."""

    workgroup: bool

    @property
    def by_columns(self) -> bool:
        """Whether the numbers of neighbouring problems are neighbours, which invocations read."""
        return not self.workgroup

    @property
    def lanes(self) -> int:
        """Problems of a workgroup."""
        return 1 if self.workgroup else STEP_INVOCATIONS


def emit_iteration(
    iteration: Iteration, functions: Mapping[Op, Function], form: Form, style: Style | None = None
) -> Printed:
    """The module of an iteration; entry point "main", `STEP_INVOCATIONS` in a workgroup.

    Its arguments are those of `iterate_program`. Own data are (R, own, S) for invocations, and
    states (state, S); for workgroups (S, R, own) and (S, state).

    Raises:
        InputError: the iteration is too long for a kernel.
    """
    style = style or Style()
    sums = sum(len(o.nodes) for o in iteration.rows.outputs) if iteration.rows else 0
    if form.workgroup and sums > MOST_SUMS:
        raise InputError(
            f"{sums:,} sums over rows: a workgroup of a GPU has memory for {MOST_SUMS:,}; "
            'use device="cpu"'
        )
    if iteration.state > MOST_STATE_NUMBERS:
        raise _too_long(iteration, len(iteration.update.graph))
    alone = not form.workgroup
    together = (
        ROWS_LOADED if iteration.rows and len(iteration.rows.graph) <= SHORT_ROW_OPERATIONS else 1
    )
    target = WorkgroupTarget(
        STEP_INVOCATIONS, block=ROWS_PER_FLOAT_SUM, together=together, grid=True, alone=alone
    )
    printed = print_kernel(
        iterate_program(iteration, target), functions, style, [*_head(iteration, form, style)]
    )
    if (lines := printed.modules[0].count("\n")) > MOST_LINES:
        raise _too_long(iteration, lines)
    return printed


def _too_long(iteration: Iteration, lines: int) -> InputError:
    return InputError(
        f"a step of {lines:,} statements and {iteration.state:,} numbers: a kernel on a GPU has at "
        f'most {MOST_LINES:,} and {MOST_STATE_NUMBERS:,}; use device="cpu"'
    )


def _head(it: Iteration, form: Form, style: Style) -> Iterator[str]:
    who = "a workgroup" if form.workgroup else "an invocation"
    yield f"// {printable(style.title or it.update.name)}: {who} a"
    yield f"// problem, whose state of {it.state} numbers changes in every step until the last"
    yield "// number is 0"
    if it.rows is not None:
        yield (
            f"// a step sums {sum(len(o.nodes) for o in it.rows.outputs)} numbers over rows of "
            f"{it.shared} shared columns and {it.own} of each problem's own"
        )


def iterations_of(graph: Graph, roots: tuple[int, ...]) -> int:
    """The iterations of all loops of a graph, `UNKNOWN_ITERATIONS` or more if that is unknown."""
    total = 0
    for i in reachable(graph, roots):
        op = graph.nodes[i][0]
        if isinstance(op, Regional):
            inner = iterations_of(op.body.graph, tuple(op.body.yields))
            most = op.most if isinstance(op, Loop) else None
            total += (
                inner if not isinstance(op, Loop) else (most or UNKNOWN_ITERATIONS) * (1 + inner)
            )
    return total


# with a matrix: a workgroup a problem -------------------------------------------------------------


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
        printed = print_kernel(kernel, functions, style, _head_with_matrix(iteration, style))
        lines = printed.modules[0].count("\n")
        if lines <= MOST_LINES:
            return printed
    raise InputError(
        f"a step of {lines:,} lines and a matrix of {n} variables: a kernel on a GPU has at most "
        f'{MOST_LINES:,}, and {GROUP_BYTES:,} bytes of memory; use device="cpu"'
    )


def _head_with_matrix(it: Iteration, style: Style) -> list[str]:
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
