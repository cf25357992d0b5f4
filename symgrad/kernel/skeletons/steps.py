"""An iteration as a launch that is repeated: its arrays, their transposes, the cost of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, reachable
from symgrad.expr.graph.region import Loop, Regional
from symgrad.kernel.index import Index
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.launch import (
    BATCH,
    ROWS,
    STEPS,
    Array,
    Dispatch,
    Launch,
    Size,
    StepCost,
    Until,
)
from symgrad.kernel.shapes import Computation, Iteration, Matrix
from symgrad.kernel.skeletons.iterate import iterate_program
from symgrad.kernel.skeletons.normal import normal_program, parts_of
from symgrad.kernel.skeletons.products import (
    ROWS_PER_PRODUCT_SUM,
    ROWS_PER_TILE,
    ROWS_UNROLLED,
    rows_per_tile,
    shares,
)
from symgrad.kernel.skeletons.solve import ACROSS, half
from symgrad.kernel.stats import operations

PROGRESS_WORDS: Final = 2
"""Words by which a dispatch tells how far the work is: see `Until`."""

UNKNOWN_ITERATIONS: Final = 2**32
"""Iterations of a loop of which nobody knows how many it takes."""


@dataclass(frozen=True)
class Iterate:
    """The program of the kernel that does steps of an iteration."""

    iteration: Iteration

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for a target."""
        program = normal_program if self.iteration.matrix else iterate_program
        return program(self.iteration, target)


def iterate_launch(iteration: Iteration, target: Target) -> Launch:
    """The launch that does steps of an iteration: see `Until`.

    Its inputs are ``start`` (S, state), and the data of the rows, ``shared`` (R, columns) and
    ``own`` (S, R, columns); its output are the ``states`` (S, state). Where the target wants it by
    columns, they are (state, S) and (R, columns, S). A thread group does a problem, or each
    invocation one.
    """

    def shape(*lengths: int | Size) -> tuple[int | Size, ...]:
        return (*lengths, BATCH) if target.by_columns else (BATCH, *lengths)

    inputs = (
        Array("start", shape(iteration.state)),
        Array("shared", (ROWS, iteration.shared)),
        Array("own", shape(ROWS, iteration.own)),
    )
    outputs = (Array("states", shape(iteration.state)),)
    scratch = () if target.whole else (Array("progress", (PROGRESS_WORDS,), "u"),)
    bound = tuple((a.name, a.name) for a in (*inputs[1:], *outputs, *scratch))
    groups = BATCH if target.threads > 1 else 0
    arguments = ("steps", STEPS), ("rows", ROWS)
    dispatch = Dispatch(Iterate(iteration), target, bound, BATCH, groups, arguments)
    until = Until(cost_of(iteration, target))
    return Launch(iteration.update.name, inputs, outputs, scratch, (dispatch,), until)


# what a step costs --------------------------------------------------------------------------------


def cost_of(iteration: Iteration, target: Target) -> StepCost:
    """The cost of a step of a problem, and of each row of it."""
    update, rows = _weight(iteration.update), iteration.rows
    row = _weight(rows) if rows else 0
    if iteration.matrix and rows:
        return _cost_with_matrix(iteration.matrix, rows, update, target)
    gathering = target.threads // 4 if target.threads > 1 and rows else 0
    return StepCost(
        operations=update,
        iterations=1 + gathering + _iterations(iteration.update),
        row_operations=row,
        row_iterations=1 + (_iterations(rows) if rows else 0),
        block_iterations=1,
        block=target.block,
        threads=target.threads,
    )


def _cost_with_matrix(matrix: Matrix, rows: Computation, update: int, target: Target) -> StepCost:
    """The cost with a matrix: tiles of rows are shared, for each part of their residuals."""
    n, width = matrix.n, target.threads
    parts = [len(part) for part in parts_of(rows, width == 1)]
    at_a_time = rows_per_tile(parts)
    shared = shares(n, width)
    block = 1 + ROWS_PER_PRODUCT_SUM // ROWS_UNROLLED
    fill = -(-at_a_time // width) * (1 + _iterations(rows))
    tile = 1 + fill + ROWS_PER_TILE // ROWS_PER_PRODUCT_SUM // shared * block
    across = max(width // ACROSS, 1), ACROSS
    down, over = ([-(-(n + 1 - j) // k) for j in range(n + 1)] for k in across)
    inner = sum(1 + a * (1 + b) for a, b in zip(down, over, strict=True))
    system = 2 * (n // width + 1) + down[0] * (1 + over[0]) + inner + 3 * n
    solves = sum(call.kind == "solve" for call in matrix.calls)
    others = len(matrix.calls) - solves
    sums = half(n + 1) // width + 2 + shared
    matrix_iterations = solves * system + others * (2 * n + matrix.size // width + 1)
    return StepCost(
        operations=width * update + solves * n**3 // 3,
        iterations=8 + n + sums + matrix_iterations,
        row_operations=_weight(rows) + n * n,
        row_iterations=tile,
        threads=ROWS_PER_TILE,
        terms=len(parts) * -(-ROWS_PER_TILE // at_a_time),
    )


def _weight(computation: Computation) -> int:
    """About the additions that a computation takes."""
    graph = computation.graph
    roots = [i for o in computation.outputs for i in o.nodes]
    if computation.is_structured:
        return 1 + operations(graph, roots)
    return 1 + sum(graph.nodes[i][0].cost for i in reachable(graph, roots))


def _iterations(computation: Computation) -> int:
    """The iterations of the loops of a computation."""
    return iterations_of(computation.graph, [i for o in computation.outputs for i in o.nodes])


def iterations_of(graph: Graph, roots: Sequence[int]) -> int:
    """The iterations of all loops of a graph, `UNKNOWN_ITERATIONS` or more if that is unknown."""
    total = 0
    for i in reachable(graph, roots):
        op = graph.nodes[i][0]
        if isinstance(op, Regional):
            inner = iterations_of(op.body.graph, op.body.yields)
            most = op.most if isinstance(op, Loop) else None
            total += (
                inner if not isinstance(op, Loop) else (most or UNKNOWN_ITERATIONS) * (1 + inner)
            )
    return total


TILE_SIDE: Final = 32
"""Rows and columns that a group transposes at a time: a line of memory for each."""


def transpose_program(target: Target) -> KernelIR:
    """The kernel from x (count, columns) to y (columns, count), a tile for each group.

    Groups go down the tiles of the first columns, then of the next; ``columns`` is its argument.
    Tiles stand in the group's memory, whose lines have a number more than they hold, so that
    columns of it are in different banks (Ruetsch and Micikevicius, 2009, "Optimizing matrix
    transpose in CUDA").
    """
    k = KernelIR(target, "transpose")
    x, y = k.buffer("x", "read"), k.buffer("y", "write")
    square = k.buffer("square", "group", size=TILE_SIDE * (TILE_SIDE + 1))
    count, columns = Index(k, k.count), Index(k, k.argument("columns"))
    local, group, tiles = Index(k, k.local), Index(k, k.group), count.ceil_div(TILE_SIDE)
    row, column = group % tiles * TILE_SIDE, group // tiles * TILE_SIDE
    lane, line = local % TILE_SIDE, local // TILE_SIDE
    k.names |= {row.id: "row", column.id: "column", lane.id: "lane", line.id: "line"}

    def each(inside: Callable[[Index], int], move: Callable[[Index], None]) -> None:
        """Do something for the group's lines, as many at a time as it has invocations for."""
        abreast = target.width // TILE_SIDE

        def some(i: int, _: list[int]) -> tuple[()]:
            own_line = line + Index(k, i) * abreast
            k.when(inside(own_line), lambda: move(own_line))
            return ()

        k.loop(k.word(0), k.word(TILE_SIDE // abreast), (), some)

    def both(a: int, b: int) -> int:
        return k.add(ops.logical_and, a, b)

    def read(i: Index) -> None:
        at = (row + i) * columns + (column + lane)
        k.store(square, (i * (TILE_SIDE + 1) + lane).id, k.load(x, at.id))

    def write(i: Index) -> None:
        at = (column + i) * count + (row + lane)
        k.store(y, at.id, k.load(square, (lane * (TILE_SIDE + 1) + i).id))

    each(lambda i: both((row + i).below(count), (column + lane).below(columns)), read)
    k.barrier()
    each(lambda i: both((row + lane).below(count), (column + i).below(columns)), write)
    return k
