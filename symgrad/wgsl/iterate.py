"""Iteration -> WGSL: many steps of many problems in one dispatch, the states in registers.

There are two forms. An *invocation* a problem: own data are turned, so that neighbouring
invocations read neighbouring numbers. Or a *workgroup* a problem, for few problems with many rows:
its invocations share the rows out, add up their sums in workgroup memory, and all compute the same
update. Either way, sums of `BLOCK` rows are added with their rounding errors kept.

Bindings: 0 is the uniform block (count, zero, infinity, nan), whose count is that of the steps; 1
the own data, (R, own, S) for invocations and (S, R, own) for workgroups; 2 the shared data
(R, shared); 3 the states, (state, S) for invocations and (S, state) for workgroups; 4 the
`PROGRESS` words: steps done, problems that are still active, rows. Data that an iteration does not
have are an array of one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.errors import InputError
from symgrad.expr.node import INPUT, Graph, Op, reachable
from symgrad.kernel.plan import Iteration, Reduction
from symgrad.kernel.schedule import bind
from symgrad.kernel.stage import stages
from symgrad.mathlib.define import Function, name_of
from symgrad.wgsl.definitions import Library
from symgrad.wgsl.emit import Style, Writer
from symgrad.wgsl.expression import PRIMARY
from symgrad.wgsl.names import printable

WORKGROUP: Final = 64
"""Invocations of a workgroup."""

BLOCK: Final = 16
"""Rows that are added up before their sum is added with its rounding error kept."""

TOGETHER: Final = 4
"""Rows whose loads an invocation has on their way at once, where there is little to do at a row."""

SHORT: Final = 64
"""Statements at a row up to which that is so: they stand there once for each of these rows."""

STATEMENTS: Final = 12_000
"""The most statements of a step: drivers take a minute for kernels that are longer."""

STATE: Final = 1024
"""The most numbers of a state: each is loaded and stored by a statement of its own."""

SUMS: Final = 48
"""Sums that a workgroup's invocations add up at a time: they fit in its 16,384 bytes of memory."""

TOTALS: Final = 16_384 // 4 - SUMS * (WORKGROUP + 1) - 1
"""The most sums of a workgroup, which stand in what is left of that memory."""

PROGRESS: Final = 3
"""Words by which host and device tell each other how far the work is."""


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
        return 1 if self.workgroup else WORKGROUP


def emit_iteration(
    iteration: Iteration, functions: Mapping[Op, Function], form: Form, style: Style | None = None
) -> str:
    """The module of an iteration; entry point "main", workgroups of `WORKGROUP` in two dimensions.

    Raises:
        InputError: the iteration is too long for a kernel.
    """
    return "\n".join(_Module(iteration, functions, form, style or Style()).lines()) + "\n"


BINDINGS: Final = (
    "struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }",
    "",
    "@group(0) @binding(0) var<uniform> params: Params;  // count: the steps to do",
    "@group(0) @binding(1) var<storage, read> own: array<f32>;",
    "@group(0) @binding(2) var<storage, read> table: array<f32>;",
    "@group(0) @binding(3) var<storage, read_write> states: array<f32>;",
    "@group(0) @binding(4) var<storage, read_write> progress: array<atomic<u32>>;  "
    "// steps done, active, rows",
)
"""What every kernel of an iteration begins with."""


class Stage(Writer):
    """Some of a step's statements; values of the rows' graph have names of their own."""

    def __init__(
        self, graph: Graph, order: Sequence[int], roots: Sequence[int], prefix: str,
        functions: Mapping[Op, Function], style: Style,
    ) -> None:  # fmt: skip
        calls = {op: name_of(op) for op in functions}
        super().__init__(graph, bind(graph, order, roots), calls, style)
        self.order, self.roots, self._prefix = order, roots, prefix

    def declare(self, i: int, name: str) -> str:
        """The left side of the statement that gives the value of node i its name."""
        return super().declare(i, self._prefix + name)

    def lines(self) -> Iterator[str]:
        """The statements; what has a text already needs none."""
        for i in self.order:
            if i not in self.texts and (line := self.write(i)):
                yield line

    def name_inputs(self, name: Callable[[int], str]) -> None:
        """Give inputs their names by their numbers."""
        for i, node in enumerate(self.graph.nodes):
            if node[0] is INPUT:
                self.texts[i] = (name(node[1]), PRIMARY)


class _Module:
    """The parts of one module."""

    def __init__(
        self, iteration: Iteration, functions: Mapping[Op, Function], form: Form, style: Style
    ) -> None:
        self.iteration, self.functions, self.form, self.style = iteration, functions, form, style
        update, state = iteration.update, iteration.state
        self.next = [i for o in update.outputs for i in o.nodes]
        order = [i for i in reachable(update.graph, self.next) if update.graph.nodes[i][0].arity]
        self.update = Stage(update.graph, order, self.next, "", functions, style)
        self.update.name_inputs(lambda k: f"s{k}" if k < state else f"sum{k - state}")
        self.once: Stage | None = None
        self.each: Stage | None = None
        self.terms: list[int] = []
        self.summed: list[int] = []
        """The numbers of the terms that differ from row to row."""
        if iteration.rows is not None:
            self._split(iteration.rows)
        self._require_size()

    def _split(self, rows: Reduction) -> None:
        split, parameters = stages(rows), rows.parameters
        self.terms = [i for o in rows.outputs for i in o.nodes]
        self.factors = rows.factors
        once = [*split.carried, *rows.factors]
        self.once = Stage(rows.graph, split.once, once, "row_", self.functions, self.style)
        self.once.name_inputs(lambda k: f"s{k}" if k < parameters else f"c{k - parameters}")
        self.each = Stage(rows.graph, split.each, self.terms, "row_", self.functions, self.style)
        varying = {*split.each, *rows.row_inputs}
        self.summed = [k for k, i in enumerate(self.terms) if i in varying]

    def _require_size(self) -> None:
        if self.form.workgroup and len(self.summed) > TOTALS:
            raise InputError(
                f"{len(self.summed):,} sums over rows: a workgroup of a GPU has memory for "
                f'{TOTALS:,}; use device="cpu"'
            )
        count = sum(len(s.bound) for s in (self.once, self.each, self.update) if s)
        if count > STATEMENTS or self.iteration.state > STATE:
            raise InputError(
                f"a step of {count:,} statements and {self.iteration.state:,} numbers: a kernel "
                f'on a GPU has at most {STATEMENTS:,} and {STATE:,}; use device="cpu"'
            )

    def lines(self) -> Iterator[str]:
        """The source."""
        main = list(self._main())
        used = set[Op]().union(*(s.used for s in (self.once, self.each, self.update) if s))
        yield from self._header()
        yield from self._preamble()
        yield from Library(self.functions).definitions(used)
        yield from main

    def _header(self) -> Iterator[str]:
        it = self.iteration
        title = self.style.title or it.update.name
        yield f"// {printable(title)}: {'a workgroup' * self.form.workgroup or 'an invocation'} a"
        yield f"// problem, whose state of {it.state} numbers changes in every step until the last"
        yield "// number is 0"
        if it.rows is not None:
            yield (
                f"// a step sums {len(self.terms)} numbers over rows of {it.shared} shared columns "
                f"and {it.own} of each problem's own"
            )
        yield ""

    def _preamble(self) -> Iterator[str]:
        yield from BINDINGS
        if self.form.workgroup:
            size = min(SUMS, len(self.summed))
            if size:
                yield f"var<workgroup> tile: array<f32, {size * (WORKGROUP + 1)}>;"
                yield f"var<workgroup> totals: array<f32, {len(self.summed)}>;"
            yield "var<workgroup> going: u32;"
        else:
            yield "var<workgroup> steps_done: atomic<u32>;"
            yield "var<workgroup> active_left: atomic<u32>;"
        yield ""

    def _main(self) -> Iterator[str]:
        state = self.iteration.state
        yield f"@compute @workgroup_size({WORKGROUP})"
        yield "fn main(@builtin(workgroup_id) group: vec3<u32>,"
        yield "        @builtin(num_workgroups) groups: vec3<u32>,"
        yield "        @builtin(local_invocation_index) local: u32) {"
        yield f"  let problems = arrayLength(&states) / {state}u;"
        yield "  let rows = atomicLoad(&progress[2]);"
        yield "  let number = group.y * groups.x + group.x;"
        yield from self._by_workgroups() if self.form.workgroup else self._by_invocations()
        yield "}"

    @property
    def _active(self) -> str:
        """Whether the flag is not 0, by its bits: NaN is not."""
        return f"(bitcast<u32>(s{self.iteration.state - 1}) & 0x7fffffffu) != 0u"

    # an invocation a problem ----------------------------------------------------------------------

    def _by_invocations(self) -> Iterator[str]:
        yield "  // WGSL promises zeros here, and llvmpipe breaks the promise"
        yield "  if (local == 0u) { atomicStore(&steps_done, 0u); atomicStore(&active_left, 0u); }"
        yield "  workgroupBarrier();"
        yield f"  let problem = number * {WORKGROUP}u + local;"
        yield "  if (problem < problems) {"
        yield from indented(self._load())
        yield "    var done = 0u;"
        yield f"    for (; done < params.count && {self._active}; done += 1u) {{"
        yield from indented(self._step("0u", "1u"), 2)
        yield "    }"
        yield from indented(self._store())
        yield "    atomicAdd(&steps_done, done);"
        yield f"    if ({self._active}) {{ atomicAdd(&active_left, 1u); }}"
        yield "  }"
        yield "  workgroupBarrier();"
        yield "  if (local == 0u) {"
        yield "    atomicAdd(&progress[0], atomicLoad(&steps_done));"
        yield "    atomicAdd(&progress[1], atomicLoad(&active_left));"
        yield "  }"

    def _load(self) -> Iterator[str]:
        return (f"  var s{k} = {self._number(k)};" for k in range(self.iteration.state))

    def _store(self) -> Iterator[str]:
        return (f"  {self._number(k)} = s{k};" for k in range(self.iteration.state))

    def _number(self, k: int) -> str:
        """The k-th number of the problem's state."""
        if self.form.by_columns:
            return f"states[{k}u * problems + problem]"
        return f"states[problem * {self.iteration.state}u + {k}u]"

    # a workgroup a problem ------------------------------------------------------------------------

    def _by_workgroups(self) -> Iterator[str]:
        yield "  let problem = min(number, problems - 1u);"
        yield from self._load()
        yield "  var done = 0u;"
        yield "  for (; done < params.count; done += 1u) {"
        yield f"    if (local == 0u) {{ going = u32({self._active} && number < problems); }}"
        yield "    if (workgroupUniformLoad(&going) == 0u) { break; }"
        yield from indented(self._step("local", f"{WORKGROUP}u"))
        yield "  }"
        yield "  if (local == 0u && number < problems) {"
        yield from indented(self._store())
        yield "    atomicAdd(&progress[0], done);"
        yield f"    if ({self._active}) {{ atomicAdd(&progress[1], 1u); }}"
        yield "  }"

    def _gathered(self) -> Iterator[str]:
        """The sums of all invocations, added up: as many at a time as workgroup memory holds."""
        length = WORKGROUP + 1
        for start in range(0, len(self.summed), SUMS):
            part = self.summed[start : start + SUMS]
            if start:
                yield "  workgroupBarrier();"
            for place, k in enumerate(part):
                yield f"  tile[{place * length}u + local] = {held(_both(k))};"
            yield "  workgroupBarrier();"
            yield f"  if (local < {len(part)}u) {{"
            yield f"    let at = local * {length}u;"
            yield "    var four = vec4<f32>();"
            yield f"    for (var k = 0u; k < {WORKGROUP}u; k += 4u) {{"
            cells = ", ".join(f"tile[at + k + {j}u]" if j else "tile[at + k]" for j in range(4))
            yield f"      four += vec4<f32>({cells});"
            yield "    }"
            yield f"    totals[{start}u + local] = (four.x + four.y) + (four.z + four.w);"
            yield "  }"
        yield "  workgroupBarrier();"

    # a step ---------------------------------------------------------------------------------------

    def _step(self, first: str, stride: str) -> Iterator[str]:
        """A step of one problem, of whose rows the invocation has those from ``first`` on."""
        if self.once and self.each:
            yield from self.once.lines()
            yield from self._sum(self.once, self.each, first, stride)
            if self.form.workgroup:
                yield from self._gathered()
            for k, factor in enumerate(self.factors):
                yield f"  let sum{k} = {_times(self._total(k), self.once.text(factor))};"
        yield from self.update.lines()
        yield from self._assign()

    def _total(self, k: int) -> str:
        """The sum of term k over all rows."""
        if k not in self.summed:
            assert self.once, "there are no rows"
            return _times("f32(rows)", self.once.text(self.terms[k]))
        return f"totals[{self.summed.index(k)}u]" if self.form.workgroup else _both(k)

    def _assign(self) -> Iterator[str]:
        """The next state in place of this one; what is of this one is copied before."""
        texts = [self.update.text(i) for i in self.next]
        nodes = self.update.graph.nodes
        copied = [
            k for k, i in enumerate(self.next) if nodes[i][0] is INPUT and texts[k] != f"s{k}"
        ]
        for k in copied:
            yield f"  let next{k} = {texts[k]};"
            texts[k] = f"next{k}"
        for k, text in enumerate(texts):
            if text != f"s{k}":
                yield f"  s{k} = {held(text) if self.form.workgroup else text};"

    def _sum(self, once: Stage, each: Stage, first: str, stride: str) -> Iterator[str]:
        step = str(BLOCK * (WORKGROUP if self.form.workgroup else 1)) + "u"
        for k in self.summed:
            yield f"  var high{k} = 0.0f; var low{k} = 0.0f;"
        yield f"  for (var start = {first}; start < rows; start += {step}) {{"
        for k in self.summed:
            yield f"    var add{k} = 0.0f;"
        yield f"    let end = min(start + {step}, rows);"
        yield "    var row = start;"
        each.texts.update(once.texts)
        body = [*each.lines()]
        body += [f"  add{k} += {each.text(self.terms[k])};" for k in self.summed]
        if not self.form.workgroup and len(each.bound) <= SHORT:
            yield from indented(self._together(body))
        yield f"    for (; row < end; row += {stride}) {{"
        yield from indented([*row_columns(self.iteration, self.form.workgroup), *body], 2)
        yield "    }"
        for k in self.summed:
            yield from indented(_two_sum(k))
        yield "  }"

    def _together(self, body: Sequence[str]) -> Iterator[str]:
        """Rows by fours, as long as there are so many."""
        columns = range(self.iteration.shared + self.iteration.own)
        yield f"  for (; row + {TOGETHER - 1}u < end; row += {TOGETHER}u) {{"
        yield "    // all loads come before the work"
        for k in range(TOGETHER):
            columns_of = row_columns(self.iteration, False, f"(row + {k}u)", f"_{k}")
            yield from indented(columns_of)
        for k in range(TOGETHER):
            yield "    {"
            yield from (f"      let c{c} = c{c}_{k};" for c in columns)
            yield from indented(body, 2)
            yield "    }"
        yield "  }"


def row_columns(
    iteration: Iteration, workgroup: bool, row: str = "row", suffix: str = ""
) -> Iterator[str]:
    """A row's columns, those that are shared first."""
    shared, own = iteration.shared, iteration.own
    for c in range(shared):
        yield f"  let c{c}{suffix} = table[{row} * {shared}u + {c}u];"
    for c in range(own):
        at = (f"(problem * rows + {row}) * {own}u + {c}u" if workgroup else
              f"({row} * {own}u + {c}u) * problems + problem")  # fmt: skip
        yield f"  let c{shared + c}{suffix} = own[{at}];"


def _two_sum(k: int) -> Iterator[str]:
    """Add a block's sum to the k-th, and the rounding error of that to what is lost otherwise."""
    yield f"  let sum{k} = {held(f'high{k} + add{k}')};"
    yield f"  let part{k} = {held(f'sum{k} - high{k}')};"
    yield f"  low{k} += (high{k} - {held(f'sum{k} - part{k}')}) + (add{k} - part{k});"
    yield f"  high{k} = sum{k};"


def _both(k: int) -> str:
    """The k-th sum: what was lost is no number where the sum is infinite."""
    lost = f"(bitcast<u32>(low{k}) & 0x7f800000u) == 0x7f800000u"
    return f"select(high{k} + low{k}, high{k}, {lost})"


def held(text: str) -> str:
    """A value that compilers round where it stands: they cannot take it apart."""
    return f"bitcast<f32>(bitcast<u32>({text}) ^ params.zero)"


def _times(value: str, factor: str) -> str:
    return value if factor == "1.0f" else f"{value} * ({factor})"


def indented(lines: Iterable[str], levels: int = 1) -> Iterator[str]:
    """The lines, so many levels further to the right."""
    return (f"{'  ' * levels}{line}" for line in lines)
