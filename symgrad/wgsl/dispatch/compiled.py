"""Kernels of the language as pipelines of a GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import DeviceError, InputError
from symgrad.kernel.host import watch
from symgrad.kernel.host.threads import cores, threads
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.target import GROUP_BYTES, WorkgroupTarget
from symgrad.kernel.launch import Dispatch, StepCost
from symgrad.kernel.passes.split import MOST_ITERATIONS
from symgrad.kernel.shapes import Iteration, Problems
from symgrad.kernel.skeletons.iterate import GROUP_SUMS_AT_A_TIME
from symgrad.kernel.skeletons.map import Map
from symgrad.kernel.skeletons.products import blocks, tile_numbers
from symgrad.kernel.skeletons.solve import half
from symgrad.kernel.skeletons.steps import Iterate, cost_of
from symgrad.wgsl.device.gpu import FLOAT
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.printing.printer import print_kernel, printed_map
from symgrad.wgsl.printing.source import Printed, Style, printable

# --- steps of iterations --------------------------------------------------------------------------
# Iteration -> WGSL: how problems are shared out, and what fits in a kernel.

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

MANY_ROWS: Final = 64
"""Rows from which a workgroup may be worth while for a problem."""

FEW_PROBLEMS: Final = 8_192
"""Problems up to which it is: beyond, an invocation for each keeps the device busy."""

MATRIX_INVOCATIONS: Final = 32, 64
"""Invocations of a workgroup: the fewest that have a block of products each."""

_costs: Once[Any, StepCost] = Once(64)
"""Costs of steps that are done by an invocation each."""


def steps_target(iteration: Iteration, together: bool) -> WorkgroupTarget:
    """The target of a kernel of steps: an invocation for each problem, or a workgroup.

    It is a workgroup where the rows of a problem are worked on ``together``, and for a matrix.

    Raises:
        InputError: a workgroup has no memory for so many sums, or for the matrix; or the state is
            too long for a kernel.
    """
    rows, matrix = iteration.rows, iteration.matrix
    if matrix:
        if not fits(matrix.n):
            raise _too_large(matrix.n)
        return WorkgroupTarget(lanes(matrix.n), grid=True)
    if together and (sums := sums_of(iteration)) > MOST_SUMS:
        raise InputError(
            f"{sums:,} sums over rows: a workgroup of a GPU has memory for {MOST_SUMS:,}; "
            'use device="cpu"'
        )
    if iteration.state > MOST_STATE_NUMBERS:
        raise _too_long(iteration, len(iteration.update.graph))
    loaded = ROWS_LOADED if rows and len(rows.graph) <= SHORT_ROW_OPERATIONS else 1
    return WorkgroupTarget(
        STEP_INVOCATIONS, block=ROWS_PER_FLOAT_SUM, together=loaded, grid=True, alone=not together
    )


def rows_together(iteration: Iteration, problems: Problems) -> bool:
    """Whether workgroups are to share the rows of a problem, for problems of these sizes."""
    if iteration.matrix:
        return True
    few = problems.count <= FEW_PROBLEMS and problems.rows >= MANY_ROWS
    if few and sums_of(iteration) <= MOST_SUMS:
        return True
    cost = _costs.get(iteration, lambda: cost_of(iteration, steps_target(iteration, False)))
    return cost.iterations_at(problems.rows) > MOST_ITERATIONS


def sums_of(iteration: Iteration) -> int:
    """How many sums over rows a step needs."""
    return sum(len(o.nodes) for o in iteration.rows.outputs) if iteration.rows else 0


def printed_steps(iteration: Iteration, kernel: KernelIR, style: Style) -> Printed:
    """The module of steps of an iteration; entry point "main".

    Its arguments are those of `iterate_program`. Own data are (R, own, S) for invocations, and
    states (state, S); for workgroups (S, R, own) and (S, state).

    Raises:
        InputError: the iteration is too long for a kernel.
    """
    head = (
        _head_with_matrix(iteration, style)
        if iteration.matrix
        else _head(iteration, kernel.target.threads > 1, style)
    )
    printed = print_kernel(kernel, style, [*head])
    if (lines := printed.modules[0].count("\n")) > MOST_LINES:
        n = iteration.matrix and iteration.matrix.n
        raise _too_large(n, lines) if n else _too_long(iteration, lines)
    return printed


def _too_long(iteration: Iteration, lines: int) -> InputError:
    return InputError(
        f"a step of {lines:,} statements and {iteration.state:,} numbers: a kernel on a GPU has at "
        f'most {MOST_LINES:,} and {MOST_STATE_NUMBERS:,}; use device="cpu"'
    )


def _too_large(n: int, lines: int = 0) -> InputError:
    return InputError(
        f"a step of {lines:,} lines and a matrix of {n} variables: a kernel on a GPU has at most "
        f'{MOST_LINES:,}, and {GROUP_BYTES:,} bytes of memory; use device="cpu"'
    )


def _head(it: Iteration, together: bool, style: Style) -> Iterator[str]:
    who = "a workgroup" if together else "an invocation"
    yield f"// {printable(style.title or it.update.name)}: {who} a"
    yield f"// problem, whose state of {it.state} numbers changes in every step until the last"
    yield "// number is 0"
    if it.rows is not None:
        yield (
            f"// a step sums {sums_of(it)} numbers over rows of "
            f"{it.shared} shared columns and {it.own} of each problem's own"
        )


def _head_with_matrix(it: Iteration, style: Style) -> Iterator[str]:
    assert it.matrix, "there is a matrix"
    yield f"// {printable(style.title or it.update.name)}: a workgroup a problem, whose state of"
    yield f"// {it.state} numbers changes in every step until the last number is 0"
    yield (
        f"// a step sums the products of {it.matrix.n} derivatives and a residual over rows of "
        f"{it.shared} shared columns"
    )
    yield f"// and {it.own} of each problem's own, and solves a linear system"


def fits(n: int) -> bool:
    """Whether a workgroup can work on a matrix of so many variables."""
    nbytes = 4 * (tile_numbers(n) + half(n + 1) + half(n)) + 8
    return nbytes <= GROUP_BYTES and blocks(n) <= MATRIX_INVOCATIONS[-1]


def lanes(n: int) -> int:
    """The invocations of a workgroup."""
    return MATRIX_INVOCATIONS[blocks(n) > MATRIX_INVOCATIONS[0]]


# --- pipelines ------------------------------------------------------------------------------------

CACHED_PIPELINES: Final = 256
"""Most compiled kernels that are cached."""


class Compiled:
    """A kernel of the language as pipelines, which run one after the other.

    They may be made ``apart``, by threads, while others are planned. Some buffers may be bound
    where each step says: they are ``moving``, by their names.
    """

    def __init__(
        self,
        gpu: Gpu,
        printed: Printed,
        floats: np.dtype[Any] = FLOAT,
        apart: bool = False,
        moving: Collection[str] = (),
    ) -> None:
        self.printed, self.bound = printed, printed.bound
        """The kernel's buffers that are bound, in the order of the bindings."""
        self.readable = sum(b.space == "read" for b in self.bound)
        self.moving = tuple(n for n, b in enumerate(self.bound) if b.name in moving)
        """The numbers of those whose place each step says."""
        self.tables = {b: gpu.constants(b.data, floats) for b in self.bound if b.data is not None}
        writable = len(self.bound) - self.readable + bool(printed.slots)
        if (needed := self.readable + writable) > gpu.max_arrays:
            raise DeviceError(
                f"{gpu.info.name} binds {gpu.max_arrays} arrays, the kernel has {needed}"
            )
        if printed.shared > gpu.max_shared:
            raise DeviceError(
                f"{gpu.info.name} has {gpu.max_shared:,} bytes of memory for a workgroup, too few "
                f'for the {printed.shared:,} of a kernel in pairs: use dtype="float32", or '
                'device="cpu"'
            )
        self._make = partial(
            gpu.pipeline, writable=writable, readable=self.readable, moving=self.moving
        )
        apart = apart and cores() > 1
        self._waiting = [threads().submit(self._make, m) for m in printed.modules] if apart else []
        self._pipelines: list[Any] = []
        if not apart:
            self.wait()

    def wait(self) -> None:
        """Wait until all pipelines are made, or raise what was wrong with one."""
        if self._pipelines:
            return
        waiting, self._waiting = self._waiting, []
        with watch.stage("compile"):
            for future in waiting:
                future.result()
        self._pipelines = [self._make(source) for source in self.printed.modules]

    @property
    def pipelines(self) -> list[Any]:
        """The pipelines."""
        self.wait()
        return self._pipelines


_compiled: Once[Any, Compiled] = Once(CACHED_PIPELINES)


def compiled_kernel(
    gpu: Gpu, dispatch: Dispatch, style: Style, apart: bool, moving: frozenset[str] = frozenset()
) -> Compiled:
    """A dispatch's kernel, compiled once for all launches: see `Compiled`."""
    key, floats = (gpu, dispatch.program, dispatch.target, style, moving), style.floats.dtype

    def compiled() -> Compiled:
        return Compiled(gpu, printed_kernel(dispatch, style), floats, apart, moving)

    return _compiled.get(key, compiled)


def printed_kernel(dispatch: Dispatch, style: Style) -> Printed:
    """The WGSL of a dispatch's kernel."""
    program = dispatch.program
    if isinstance(program, Map):
        return printed_map(program.computation, style)
    kernel = dispatch.kernel
    if isinstance(program, Iterate):
        return printed_steps(program.iteration, kernel, style)
    return print_kernel(kernel, style, [f"// {kernel.name}"])


def can_end(gpu: Gpu, iterations: int) -> bool:
    """Whether the GPU lets an invocation turn its loops so often."""
    return gpu.info.iterations is None or iterations <= gpu.info.iterations


def require_iterations(gpu: Gpu, iterations: int) -> None:
    """Refuse loops that the GPU would end, and give wrong results."""
    if not can_end(gpu, iterations):
        most = gpu.info.iterations
        raise DeviceError(
            f"{gpu.info.name} ends the loops of a kernel after {most:,} iterations, and those of "
            "this one may take more within one of the outermost, or an unknown number: give "
            "max_steps= to a loop whose bounds are computed and to sg.while_loop, or use "
            'device="cpu"'
        )
