"""Iteration with a matrix -> WGSL: a workgroup a problem, whose matrix is in its memory.

Code and registers grow with the number of variables alone; what grows with its square or its cube
are loops that the invocations share. Of `ROWS` rows at a time each invocation computes some, the
derivatives and the residual, into ``tile``. Then they add up products: `SIDE` by `SIDE` of them
an invocation, over all rows of the tile or, where the matrix is small, some of them. Of the linear
system L D Lᵀ x = right, the right side is the last row of the factor, which forward substitution
then comes with.

Bindings are those of `iterate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from symgrad.errors import InputError
from symgrad.expr.node import INPUT, Op, reachable
from symgrad.kernel.plan import Call, Iteration, Output, Reduction
from symgrad.kernel.stage import Stages, stages
from symgrad.mathlib.define import Function
from symgrad.wgsl.definitions import Library
from symgrad.wgsl.emit import Style
from symgrad.wgsl.iterate import (
    BINDINGS,
    STATEMENTS,
    Stage,
    indented,
    row_columns,
)
from symgrad.wgsl.names import printable
from symgrad.wgsl.solve import (
    LENGTH,
    MEMORY,
    ROWS,
    SIDE,
    UNROLLED,
    add_products,
    blocks,
    both,
    fits,
    functions_for,
    lanes,
    multiply,
    quads,
    solve,
    teams,
)


def emit_with_matrix(
    iteration: Iteration, functions: Mapping[Op, Function], style: Style | None = None
) -> str:
    """The module of an iteration with a matrix; entry point "main", of `lanes` invocations.

    Raises:
        InputError: the iteration is too long for a kernel, or its matrix too large.
    """
    return "\n".join(_Module(iteration, functions, style or Style()).lines()) + "\n"


class _Module:
    """The parts of one module."""

    def __init__(
        self, iteration: Iteration, functions: Mapping[Op, Function], style: Style
    ) -> None:
        assert iteration.matrix and iteration.rows, "there is a matrix, of sums over rows"
        self.iteration, self.functions, self.style = iteration, functions, style
        self.matrix, self.n = iteration.matrix, iteration.matrix.n
        self.size = self.matrix.size
        graph = iteration.update.graph
        self.roots = [o.nodes for o in iteration.update.outputs]
        every = [i for nodes in self.roots for i in nodes]
        self.order = reachable(graph, every)
        made = [i for i in self.order if graph.nodes[i][0].arity]
        self.update = Stage(graph, made, every, "", functions, style)
        self.update.name_inputs(self._name)
        self._split(iteration.rows)
        self._require_size()

    def _name(self, k: int) -> str:
        """The name of the k-th input of the update."""
        state = self.iteration.state
        sums = state + 1 + self.n + self.size
        return f"s{k}" if k < state else f"sum{k - state}" if k < sums else f"found{k - sums}"

    def _split(self, rows: Reduction) -> None:
        split, parameters = stages(rows), rows.parameters
        self.once = Stage(rows.graph, split.once, split.carried, "row_", self.functions, self.style)
        self.once.name_inputs(lambda k: f"s{k}" if k < parameters else f"c{k - parameters}")
        self.each = [self._residual(rows, split, output) for output in rows.outputs]

    def _residual(self, rows: Reduction, split: Stages, output: Output) -> Stage:
        """What a row is to do for one residual: nothing is kept for the next one."""
        needed = {*reachable(rows.graph, output.nodes)}
        order = [i for i in split.each if i in needed]
        return Stage(rows.graph, order, output.nodes, "row_", self.functions, self.style)

    def _require_size(self) -> None:
        count = sum(len(s.bound) for s in (self.once, *self.each, self.update))
        if count > STATEMENTS or not fits(self.n):
            raise InputError(
                f"a step of {count:,} statements and a matrix of {self.n} variables: a kernel on a "
                f'GPU has at most {STATEMENTS:,}, and {MEMORY:,} bytes of memory; use device="cpu"'
            )

    def lines(self) -> Iterator[str]:
        """The source."""
        main = list(self._main())
        used = set[Op]().union(*(s.used for s in (self.once, *self.each, self.update)))
        yield from self._header()
        yield from self._preamble()
        yield from Library(self.functions).definitions(used)
        yield from functions_for(self.matrix)
        yield from main

    def _header(self) -> Iterator[str]:
        it = self.iteration
        yield f"// {printable(self.style.title or it.update.name)}: a workgroup a problem, whose"
        yield f"// state of {it.state} numbers changes in every step until the last number is 0"
        yield (
            f"// a step sums the products of {self.n} derivatives and a residual over rows of "
            f"{it.shared} shared columns"
        )
        yield f"// and {it.own} of each problem's own, and solves a linear system"
        yield ""

    def _preamble(self) -> Iterator[str]:
        yield from BINDINGS
        yield f"var<workgroup> tile: array<vec4<f32>, {quads(self.n) * LENGTH}>;"
        yield f"var<workgroup> work: array<f32, {self.size + self.n + 1}>;  // the sums, the factor"
        yield f"var<workgroup> matrix: array<f32, {self.size}>;"
        yield "var<workgroup> going: u32;"
        yield "var<workgroup> row_count: u32;"
        yield ""

    # the loop over steps --------------------------------------------------------------------------

    def _main(self) -> Iterator[str]:
        state = self.iteration.state
        yield f"@compute @workgroup_size({lanes(self.n)})"
        yield "fn main(@builtin(workgroup_id) group: vec3<u32>,"
        yield "        @builtin(num_workgroups) groups: vec3<u32>,"
        yield "        @builtin(local_invocation_index) local: u32) {"
        yield f"  let problems = arrayLength(&states) / {state}u;"
        yield "  let number = group.y * groups.x + group.x;"
        yield "  let problem = min(number, problems - 1u);"
        yield "  if (local == 0u) { row_count = atomicLoad(&progress[2]); }"
        yield "  let rows = workgroupUniformLoad(&row_count);"
        yield from self._block_of_products()
        yield from self._load()
        yield "  var done = 0u;"
        yield "  for (; done < params.count; done += 1u) {"
        active = f"(bitcast<u32>(s{state - 1}) & 0x7fffffffu) != 0u"
        yield f"    if (local == 0u) {{ going = u32({active} && number < problems); }}"
        yield "    if (workgroupUniformLoad(&going) == 0u) { break; }"
        yield from indented(self._step())
        yield "  }"
        yield from self._store()
        yield "  if (local == 0u && number < problems) {"
        yield "    atomicAdd(&progress[0], done);"
        yield f"    if ({active}) {{ atomicAdd(&progress[1], 1u); }}"
        yield "  }"
        yield "}"

    def _block_of_products(self) -> Iterator[str]:
        yield "  // the invocation's products: a block of the lower half, and its team's share"
        yield f"  let team = local / {blocks(self.n)}u;"
        yield "  var down = 0u;"
        yield f"  var across = local % {blocks(self.n)}u;"
        yield "  for (; across > down; down += 1u) { across -= down + 1u; }"

    def _load(self) -> Iterator[str]:
        """The state, its numbers by way of an array: drivers take long for many loads or stores."""
        numbers = [*self._numbers()]
        yield f"  var state: array<f32, {len(numbers)}>;"
        yield f"  for (var k = 0u; k < {len(numbers)}u; k += 1u) {{ state[k] = {self._number()}; }}"
        for place, k in enumerate(numbers):
            yield f"  var s{k} = state[{place}];"
        yield f"  for (var k = local; k < {self.size}u; k += {lanes(self.n)}u) {{"
        yield f"    matrix[k] = {self._element()};"
        yield "  }"

    def _store(self) -> Iterator[str]:
        numbers = [*self._numbers()]
        for place, k in enumerate(numbers):
            yield f"  state[{place}] = s{k};"
        yield "  if (number < problems) {"
        yield f"    for (var k = local; k < {len(numbers)}u; k += {lanes(self.n)}u) {{"
        yield f"      {self._number()} = state[k];"
        yield "    }"
        yield f"    for (var k = local; k < {self.size}u; k += {lanes(self.n)}u) {{"
        yield f"      {self._element()} = matrix[k];"
        yield "    }"
        yield "  }"

    def _number(self) -> str:
        """The k-th number of the state that is not in its matrix."""
        first = self.matrix.first
        skipped = f"select(k, k + {self.size}u, k >= {first}u)"
        return f"states[problem * {self.iteration.state}u + {skipped}]"

    def _element(self) -> str:
        """The k-th number of the matrix."""
        return f"states[problem * {self.iteration.state}u + {self.matrix.first}u + k]"

    def _numbers(self) -> Iterator[int]:
        """The numbers of a state that are not in its matrix."""
        return (k for k in range(self.iteration.state) if k not in self.matrix.places)

    # a step ---------------------------------------------------------------------------------------

    def _step(self) -> Iterator[str]:
        yield from self.once.lines()
        yield from self._sums()
        yield from self._read()
        done: set[int] = set()
        for call, nodes in zip(self.matrix.calls, self.roots[1:], strict=True):
            yield from self._statements(nodes, done)
            yield from self._call(call, [self.update.text(i) for i in nodes])
        yield from self._statements(self.roots[0], done)
        yield from self._assign()

    def _statements(self, roots: Sequence[int], done: set[int]) -> Iterator[str]:
        """The statements that some roots need and that are not done yet."""
        nodes = self.update.graph.nodes
        for i in reachable(self.update.graph, roots):
            if nodes[i][0].arity and i not in done:
                done.add(i)
                if line := self.update.write(i):
                    yield line

    def _read(self) -> Iterator[str]:
        """The sums, and the numbers of the matrix, that the update has a name for."""
        state = self.iteration.state
        for k in self._used_inputs():
            if k in self.matrix.places:
                yield f"  let s{k} = matrix[{k - self.matrix.first}u];"
            elif state <= k < state + 1 + self.n + self.size:
                yield f"  let sum{k - state} = {self._sum(k - state)};"

    def _sum(self, k: int) -> str:
        """The k-th sum: the last row of the work are the derivatives of the loss, and the loss."""
        if k == 0:
            return f"0.5f * work[{self.size + self.n}u]"
        return f"work[{self.size + k - 1 if k <= self.n else k - self.n - 1}u]"

    def _used_inputs(self) -> list[int]:
        """The numbers of the inputs of which the update makes something."""
        nodes = self.update.graph.nodes
        after = [self.roots[0][k] for k in self._numbers()]
        used = {a for i in self.update.order for a in self.update.graph.args(i)}
        used.update(after, *self.roots[1:])
        return sorted(nodes[i][1] for i in used if nodes[i][0] is INPUT)

    def _assign(self) -> Iterator[str]:
        """The next state in place of this one; all of it is computed before."""
        texts = {k: self.update.text(self.roots[0][k]) for k in self._numbers()}
        changed = {k: text for k, text in texts.items() if text != f"s{k}"}
        yield from (f"  let next{k} = {text};" for k, text in changed.items())
        yield from (f"  s{k} = next{k};" for k in changed)

    # sums over rows -------------------------------------------------------------------------------

    def _sums(self) -> Iterator[str]:
        sums = range(SIDE)
        for k in sums:
            yield f"  var high{k} = vec4<f32>(); var low{k} = vec4<f32>();"
        yield f"  for (var start = 0u; start < rows; start += {ROWS}u) {{"
        for each in self.each:
            yield "    {"
            yield from indented(self._fill(each), 2)
            yield "      workgroupBarrier();"
            yield f"      if (team < {teams(self.n)}u) {{"
            yield from indented(add_products(self.n), 4)
            yield "      }"
            yield "      workgroupBarrier();"
            yield "    }"
        yield "  }"
        for k in sums:
            yield f"  let products{k} = {both(k)};"
        yield f"  for (var turn = 0u; turn < {teams(self.n)}u; turn += 1u) {{"
        yield "    if (team == turn) {"
        for i in range(SIDE):
            for j in range(SIDE):
                where = f"{SIDE}u * down + {i}u, {SIDE}u * across + {j}u"
                yield f"      add({where}, products{i}.{'xyzw'[j]}, turn);"
        yield "    }"
        yield "    workgroupBarrier();"
        yield "  }"

    def _fill(self, each: Stage) -> Iterator[str]:
        """Rows' derivatives and residuals, zeros behind the last row."""
        count = quads(self.n)
        up = f"(rows - start + {UNROLLED - 1}u) / {UNROLLED}u * {UNROLLED}u"
        yield f"  let filled = min({ROWS}u, {up});"
        yield f"  for (var slot = local; slot < filled; slot += {lanes(self.n)}u) {{"
        yield "    if (start + slot < rows) {"
        yield "      let row = start + slot;"
        yield from indented(row_columns(self.iteration, True), 2)
        each.texts.update(self.once.texts)
        yield from indented(each.lines(), 2)
        texts = [each.text(i) for i in each.roots]
        texts += ["0.0f"] * (SIDE * count - len(texts))
        for k in range(count):
            four = ", ".join(texts[SIDE * k : SIDE * (k + 1)])
            yield f"      tile[{k * LENGTH}u + slot] = vec4<f32>({four});"
        yield "    } else {"
        for k in range(count):
            yield f"      tile[{k * LENGTH}u + slot] = vec4<f32>();"
        yield "    }"
        yield "  }"

    # calls ----------------------------------------------------------------------------------------

    def _call(self, call: Call, texts: Sequence[str]) -> Iterator[str]:
        yield "  workgroupBarrier();"
        if call.kind == "keep":
            yield f"  if ({texts[0]} != 0.0f) {{"
            yield f"    for (var k = local; k < {self.size}u; k += {lanes(self.n)}u) {{"
            yield "      matrix[k] = work[k];"
            yield "    }"
            yield "  }"
            return
        yield "  if (local == 0u) {"
        for k in range(self.n):
            four = ", ".join([*texts[k :: self.n], *["0.0f"] * 3][:4])
            yield f"    tile[{k}u] = vec4<f32>({four});"
        yield "  }"
        yield "  workgroupBarrier();"
        yield from indented(multiply(self.n) if call.kind == "product" else solve(self.n))
        yield "  workgroupBarrier();"
        before = self.iteration.state + 1 + self.n + self.size
        used = {*self._used_inputs()}
        for place, k in enumerate(call.results):
            if k in used:
                yield f"  let found{k - before} = tile[{place}u].x;"
