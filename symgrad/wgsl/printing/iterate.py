"""Iterations on a GPU: the forms in which problems are shared out, and what fits in a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from symgrad.errors import InputError
from symgrad.expr.graph.node import Graph, Op, reachable
from symgrad.expr.graph.region import Loop, Regional
from symgrad.kernel.layout import GROUP_BYTES
from symgrad.kernel.shapes import Iteration
from symgrad.kernel.skeletons.iterate import GROUP_SUMS_AT_A_TIME, iterate_program
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
