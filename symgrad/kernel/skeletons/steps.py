"""An iteration as a launch that is repeated: its arrays, their transposes, the cost of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, Graph, paused_gc, reachable
from symgrad.expr.graph.region import Loop, Regional
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target
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
from symgrad.kernel.passes.lower import Value, inline
from symgrad.kernel.shapes import Call, Computation, Iteration, Matrix, Output
from symgrad.kernel.skeletons.iterate import StepsKernel, iterate_program
from symgrad.kernel.skeletons.products import (
    ROWS_PER_PRODUCT_SUM,
    ROWS_PER_TILE,
    ROWS_UNROLLED,
    SIDE,
    Residuals,
    products_of,
    rows_per_tile,
    shares,
    tile_numbers,
)
from symgrad.kernel.skeletons.solve import ACROSS, FIXED, RIGHT, System, half, multiply
from symgrad.kernel.stats import operations

# --- with the matrix of normal equations ----------------------------------------------------------
# Iterations with the matrix of normal equations in an array, a thread group for each problem.
#
# Code grows with the number of variables alone; what grows with its square or its cube are loops
# that a thread group shares.

DONE, ACTIVE = range(2)
"""Words of progress: the steps of all problems, and problems that are active."""


@paused_gc()
def normal_program(iteration: Iteration, target: Target) -> KernelIR:
    """The kernel that does steps of an iteration with a matrix: see `iterate_program`.

    It has the same buffers and arguments, problem by problem.
    """
    return _Program(iteration, target).k


class _Program(StepsKernel):
    def __init__(self, iteration: Iteration, target: Target) -> None:
        assert iteration.matrix and iteration.rows, "there is a matrix, of sums over rows"
        super().__init__(iteration, target)
        self.data, self.matrix, self.k = iteration.rows, iteration.matrix, self.kernel
        self.n, self.size, k = self.matrix.n, self.matrix.size, self.kernel
        self.numbers = [k for k in range(iteration.state) if k not in self.matrix.places]
        length = max(SIDE * len(self.numbers), tile_numbers(self.n))
        self.tile = self.threads.array("factors", length, vector=4)
        self.work = self.threads.array("work", half(self.n + 1))
        self.entries = self.threads.array("matrix", self.size)
        self.products = products_of(self.threads, self.n, self.tile, self.work)
        k.names[self.problem] = "problem"
        self._write()

    def _write(self) -> None:
        k = self.k
        first = self._load()
        state, done = k.loop(
            k.word(0),
            self.steps,
            first,
            lambda _, state: self._step(state),
            test=lambda _, state: self.goes_on(state[-1]),
        )
        self._store(state)
        if (exists := self.exists) is not None:
            progress = k.buffer("progress", "write", "u", atomic=True)
            active = k.add(ops.word_where, self.is_active(state[-1]), k.word(1), k.word(0))

            def report() -> None:
                k.store(progress, k.word(DONE), done, add=True)
                k.store(progress, k.word(ACTIVE), active, add=True)

            self.threads.first(lambda: k.when(exists, report))

    # the state -----------------------------------------------------------------------------------

    def _load(self) -> list[int]:
        """The numbers of the state that are not in its matrix, by way of the tile."""
        k = self.k

        def number(i: int) -> None:
            k.store(self.tile, k.offset(i, SIDE, 0), k.load(self.states, self._number(i)))

        self.threads.share(k.word(len(self.numbers)), number)
        self.threads.share(
            k.word(self.size),
            lambda i: k.store(self.entries, i, k.load(self.states, self._element(i))),
        )
        self.threads.wait()
        return [k.load(self.tile, k.word(SIDE * i)) for i in range(len(self.numbers))]

    def _store(self, state: Sequence[int]) -> None:
        k = self.k
        self.threads.wait()
        self.threads.first(lambda: self._stage(state))
        self.threads.wait()

        def number(i: int) -> None:
            k.store(self.states, self._number(i), k.load(self.tile, k.offset(i, SIDE, 0)))

        def store() -> None:
            self.threads.share(k.word(len(self.numbers)), number)
            self.threads.share(
                k.word(self.size),
                lambda i: k.store(self.states, self._element(i), k.load(self.entries, i)),
            )

        store() if self.exists is None else k.when(self.exists, store)

    def _stage(self, state: Sequence[int]) -> None:
        for i, value in enumerate(state):
            self.k.store(self.tile, self.k.word(SIDE * i), value)

    def _number(self, i: int) -> int:
        """Where the i-th number stands that is not in the matrix."""
        k = self.k
        before = k.add(ops.word_lt, i, k.word(self.matrix.first))
        skipped = k.add(ops.word_where, before, i, k.add(ops.word_add, i, k.word(self.size)))
        return k.add(ops.word_add, self._start(), skipped)

    def _element(self, i: int) -> int:
        """Where the i-th number of the matrix stands."""
        k = self.k
        first = k.add(ops.word_add, self._start(), k.word(self.matrix.first))
        return k.add(ops.word_add, first, i)

    def _start(self) -> int:
        return self.k.add(ops.word_mul, self.problem, self.k.word(self.iteration.state))

    # a step --------------------------------------------------------------------------------------

    def _step(self, state: Sequence[int]) -> list[int]:
        """The next state."""
        k, update = self.k, self.iteration.update
        k.names |= {v: f"s{i}" for v, i in zip(state, self.numbers, strict=True)}
        current = dict(zip(self.numbers, state, strict=True))
        self.products.add_up(self.rows, self._residuals(current), self.matrix.weight)
        inputs = _inputs(update.graph, update.outputs)
        values: dict[int, Value] = {**self.tables[0]}
        values |= {
            i: self._input(number, current)
            for number, i in inputs.items()
            if number < self.iteration.state + 1 + self.n + self.size
        }
        for call, output in zip(self.matrix.calls, update.outputs[1:], strict=True):
            results = self._call(call, inline(k, update.graph, output.nodes, values))
            values |= {inputs[i]: v for i, v in results.items() if i in inputs}
        after = [update.outputs[0].nodes[i] for i in self.numbers]
        return inline(k, update.graph, after, values)

    def _residuals(self, state: dict[int, int]) -> list[Residuals]:
        """All residuals of a row with their derivatives, in parts."""
        parts = parts_of(self.data, self.threads.alone)
        return [Residuals(len(some), partial(self._row, state, some)) for some in parts]

    def _row(self, state: dict[int, int], outputs: Sequence[Output], row: int) -> list[list[int]]:
        """The numbers of some residuals of a row."""
        data, inputs = self.data, _inputs(self.data.graph, outputs)
        values = {
            i: state[n] if n < data.parameters else self._column(row, n) for n, i in inputs.items()
        }
        nodes = [i for o in outputs for i in o.nodes]
        numbers = iter(inline(self.k, data.graph, nodes, {**self.tables[1], **values}))
        return [[*islice(numbers, len(o.nodes))] for o in outputs]

    def _column(self, row: int, number: int) -> int:
        """A column of a row: what is shared comes first."""
        k, it = self.k, self.iteration
        c = number - self.data.parameters
        if c < it.shared:
            return k.load(self.shared, k.offset(row, it.shared, c))
        before = k.add(ops.word_mul, self.problem, self.rows)
        return k.load(self.own, k.offset(k.add(ops.word_add, before, row), it.own, c - it.shared))

    def _input(self, number: int, state: dict[int, int]) -> int:
        """An input of the update: a number of the state, or a sum."""
        k = self.k
        if number < self.iteration.state:
            if number in state:
                return state[number]
            return k.load(self.entries, k.word(number - self.matrix.first))
        sum_ = number - self.iteration.state
        if sum_ == 0:
            loss = k.load(self.work, k.word(self.size + self.n))
            return k.add(ops.mul, k.constant(0.5), loss)
        return k.load(
            self.work, k.word(self.size + sum_ - 1 if sum_ <= self.n else sum_ - self.n - 1)
        )

    def _call(self, call: Call, arguments: Sequence[int]) -> dict[int, int]:
        """Do a call; its results by the numbers of the inputs that they are."""
        k, threads = self.k, self.threads
        threads.wait()
        if call.kind == "keep":
            k.when(
                k.add(ops.ne, arguments[0], k.constant(0.0)),
                lambda: threads.share(
                    k.word(self.size), lambda i: k.store(self.entries, i, k.load(self.work, i))
                ),
            )
            return {}
        threads.first(lambda: self._give(arguments))
        threads.wait()
        if call.kind == "product":
            multiply(threads, self.n, self.entries, self.tile)
        else:
            system = System(threads, self.n, self.entries, self.tile, self.work)
            system.solve(fixed=len(arguments) > FIXED * self.n)
        threads.wait()
        place_ = 1 if call.kind == "product" else RIGHT
        return {i: k.load(self.tile, k.word(SIDE * v + place_)) for v, i in enumerate(call.results)}

    def _give(self, arguments: Sequence[int]) -> None:
        """Write the arguments of a call to quads, one for each variable."""
        k, zero = self.k, self.k.constant(0.0)
        for v in range(self.n):
            quad = [*arguments[v :: self.n], *[zero] * SIDE][:SIDE]
            for c, value in enumerate(quad):
                k.store(self.tile, k.word(SIDE * v + c), value)


def _inputs(graph: Graph, outputs: Iterable[Output]) -> dict[int, int]:
    """The inputs that some outputs need, by their numbers."""
    nodes = graph.nodes
    order = reachable(graph, [i for o in outputs for i in o.nodes])
    return {nodes[i][1]: i for i in order if nodes[i][0] is INPUT}


def parts_of(rows: Computation, alone: bool) -> list[tuple[Output, ...]]:
    """The outputs of rows, the residuals, in parts that an invocation computes together.

    All are one part where an invocation works ``alone``, but for those that fill no tile.
    """
    count = len(rows.outputs)
    most = ROWS_PER_TILE if alone else _worth_computing_together(rows)
    parts = -(-count // min(most, ROWS_PER_TILE))
    ends = [count * part // parts for part in range(parts + 1)]
    return [tuple(rows.outputs[a:b]) for a, b in pairwise(ends)]


def _worth_computing_together(rows: Computation) -> int:
    """How many residuals of a row one of a group should compute, so that most of it is shared.

    All of a group have rows to compute as long as each computes one residual of them, and many do
    not otherwise; but then what the residuals share is computed, and written, once for each.
    """
    each = sum(operations(rows.graph, output.nodes) for output in rows.outputs)
    together = operations(rows.graph, [i for output in rows.outputs for i in output.nodes])
    count = len(rows.outputs)
    shared = (each - together) // max(count - 1, 1)
    return max(1, shared * count // max(together - shared, 1))


# --- launches of steps ----------------------------------------------------------------------------

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
