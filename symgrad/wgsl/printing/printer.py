"""KernelIR -> WGSL: one invocation a cell, as a person would write it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

from symgrad.cache import Once
from symgrad.expr.graph.node import INPUT, Graph, Op, reachable
from symgrad.expr.graph.verify import is_verified
from symgrad.kernel.language.ir import KernelIR, accesses
from symgrad.kernel.language.statements import BOUND, Buffer
from symgrad.kernel.language.target import POINTS_PER_WORKGROUP, WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.passes.schedule import Limits, Plan, schedule
from symgrad.kernel.passes.split import MOST_ITERATIONS, Split, split
from symgrad.kernel.passes.uses import Uses, bind
from symgrad.kernel.shapes import Computation
from symgrad.kernel.skeletons.map import map_program
from symgrad.mathlib.define import Function, functions, name_of
from symgrad.mathlib.pair.expression import TAKEN_APART
from symgrad.wgsl.printing.analysis import Own
from symgrad.wgsl.printing.functions import Shader, place_of
from symgrad.wgsl.printing.operations import (
    FLOATS,
    OPAQUE,
    PAIR,
    PART,
    PRIMARY,
    SINGLE,
    Floats,
    Text,
    render,
)
from symgrad.wgsl.printing.source import Printed, Style, header, identifier, is_reserved
from symgrad.wgsl.printing.statements import Body
from symgrad.wgsl.printing.values import OURS, STAGED

# --- the library's functions ----------------------------------------------------------------------
# The library's own functions, as WGSL functions: each once, before those that call it.


class Library:
    """The functions that kernels may call, and their texts, each written once for all of them."""

    def __init__(self, functions: Mapping[Op, Function], floats: Floats = SINGLE) -> None:
        self.names = {op: name_of(op) for op in functions}
        self._functions, self._in_pairs = functions, floats is PAIR
        self._floats = PART if self._in_pairs else floats
        self._texts: dict[Op, list[str]] = {}

    def definitions(self, used: Iterable[Op]) -> Iterator[str]:
        """The lines of the functions that these operations need."""
        needed = _in_order(used, self._functions)
        if needed and self._in_pairs:
            yield from OPAQUE
        for op in needed:
            if op not in self._texts:
                self._texts[op] = list(_function(self._functions[op], self.names, self._floats))
            yield from self._texts[op]


@cache
def library_of(math: str, dtype: str) -> Library:
    """The functions for some mathematics in a dtype."""
    return Library(functions(math, dtype), FLOATS[dtype])


def _in_order(used: Iterable[Op], functions: Mapping[Op, Function]) -> list[Op]:
    """The operations that are functions, callees before callers, in the order of their names."""
    done: dict[Op, None] = {}
    stack = sorted((op for op in used if op in functions), key=lambda op: op.name, reverse=True)
    while stack:
        op = stack[-1]
        callees = sorted(
            {c for c in _calls(functions[op]) if c in functions and c not in done},
            key=lambda c: c.name,
        )
        if callees:
            stack.extend(callees)
        else:
            done.setdefault(stack.pop())
    return list(done)


@cache
def _calls(function: Function) -> set[Op]:
    graph = function.graph
    return {graph.nodes[i][0] for i in reachable(graph, [function.root])}


def _function(function: Function, names: Mapping[Op, str], floats: Floats) -> Iterator[str]:
    graph = function.graph
    texts: dict[int, Text] = {
        i: (graph.names[graph.nodes[i][1]], PRIMARY) for i in function.arguments
    }
    texts |= {  # parts of pairs need no names
        i: (f"{texts[node[1]][0]}{node[0].wgsl[-2:]}", PRIMARY)
        for i, node in enumerate(graph.nodes)
        if node[0] in TAKEN_APART and node[1] in texts
    }
    parameters = ", ".join(
        f"{texts[i][0]}: {floats.types[kind]}"
        for i, kind in zip(function.arguments, function.op.signature, strict=False)
    )
    yield f"// {function.doc}"
    yield f"fn {function.name}({parameters}) -> {floats.types[function.op.result]} {{"
    root = function.root
    if rare := function.rare:
        yield from _statements(graph, rare, texts, names, floats)
        yield f"  if ({texts[rare[0]][0]}) {{ return {texts[rare[1]][0]}; }}"
        root = graph.nodes[root][3]
    yield from _statements(graph, [root], texts, names, floats)
    result = texts[root] if root in texts else floats.literal(graph.nodes[root])
    yield f"  return {result[0]};"
    yield "}"
    yield ""


def _statements(
    graph: Graph,
    roots: Sequence[int],
    texts: dict[int, Text],
    names: Mapping[Op, str],
    floats: Floats,
) -> Iterator[str]:
    """Lines for what the roots need and has no text yet; their own texts are expressions."""
    order = [i for i in reachable(graph, roots) if graph.nodes[i][0].arity and i not in texts]
    bound = bind(graph, order, roots) - set(roots)
    for i in order:
        assert graph.nodes[i][0] is not INPUT, "arguments are no operations"
        expression = render(graph, i, texts, names, floats)
        if i in bound:
            yield f"  let t{i} = {expression[0]};"
            expression = (f"t{i}", PRIMARY)
        texts[i] = expression


# --- kernels --------------------------------------------------------------------------------------

STAGED_ITERATIONS: Final = 64
"""Iterations of all loops up to which results go through a tile: what runs more often takes so long
that it does not matter how they are stored."""


def plan_map(computation: Computation, limits: Limits | None = None) -> Plan:
    """The plan of the shaders of a computation without loops at every point of a batch."""
    return schedule(map_program(computation, WorkgroupTarget(computation.workgroup)), limits)


def print_map(computation: Computation, style: Style, plan: Plan | None = None) -> Printed:
    """The WGSL of a computation at every point of a batch; see `map_program` for its buffers.

    If there are no loops, ``plan`` says what stands in which module.
    """
    if computation.is_structured:
        kernel = map_program(computation, WorkgroupTarget(computation.workgroup))
        return print_kernel(kernel, style, [*header(computation, style)])
    plan = plan or plan_map(computation)
    head = header(computation, style, len(plan.kernel.computed))
    return print_plan(plan, style, [*head])


CACHED_NODES: Final = 2**17
"""Nodes, all together, of the computations whose sources are cached."""

_maps: Once[Any, Printed] = Once(CACHED_NODES)


def printed_map(computation: Computation, style: Style, plan: Plan | None = None) -> Printed:
    """`print_map`, once for all who ask for the same: those who read it, and those who run it."""
    nodes, print_once = len(computation.graph), partial(print_map, computation, style, plan)
    return _maps.get((computation, style), print_once, max(nodes, CACHED_NODES // 256))


def print_plan(plan: Plan, style: Style, head: Sequence[str] = ()) -> Printed:
    """The WGSL of a straight kernel, a module for each of its pieces; ``head`` begins each."""
    kernel, library = plan.kernel, library_of(style.math, style.dtype)
    if is_verified(len(kernel.graph)):
        verify(kernel)
    if plan.scratch:  # its rows are of whole workgroups of the least size
        kernel.target = WorkgroupTarget(POINTS_PER_WORKGROUP)
    own = Own.placed(_names_of_buffers([kernel]), [kernel], style.floats)
    sources: list[str] = []
    for k, piece in enumerate(plan.pieces):
        if len(plan.pieces) == 1 and len(piece.parts) < 2:
            body = Body(kernel, own, library.names, style, uses=plan.uses)
            sources.append(_module(body, body.lines(), _scratch(own), library, head))
        else:
            shader = Shader(plan, piece, own, library.names, style)
            parts = shader.lines(), shader.scratch, library, [*head, *place_of(plan, k)]
            sources.append(_module(shader.body, *parts))
    slots, width = 4 * len(plan.scratch), kernel.target.width
    return Printed(tuple(sources), _bound(kernel), slots, 0, width)


MOST_SHARED: Final = 16_384
"""Bytes that the invocations of a group share, at most, on any device: WebGPU's default."""


def print_kernel(kernel: KernelIR, style: Style, head: Sequence[str] = ()) -> Printed:
    """The WGSL of a kernel, its long loops in modules of their own; ``head`` begins each."""
    if is_verified(len(kernel.graph)):
        verify(kernel)
    shared = 4 * sum(b.size for b in kernel.buffers if b.space == "group")
    assert shared <= MOST_SHARED, f"{kernel.name}: groups share {shared} bytes"
    parts = split(kernel)
    kernels = list(dict.fromkeys(parts.kernels))
    own = Own.placed(_names_of_buffers(kernels), kernels, style.floats)
    library = library_of(style.math, style.dtype)
    sources: dict[KernelIR, str] = {}
    for k in kernels:
        body = Body(k, own, library.names, style, parts.iterations <= STAGED_ITERATIONS)
        scratch, first = _scratch(own), [*head, *_place_of(k, parts)]
        sources[k] = _module(body, body.lines(), scratch, library, first)
    modules, width = tuple(sources[k] for k in parts.kernels), kernel.target.width
    shared *= style.floats.dtype.itemsize // 4
    return Printed(modules, _bound(kernel), own.slots, parts.iterations, width, shared)


def _bound(kernel: KernelIR) -> tuple[Buffer, ...]:
    """The buffers of the host's, those that are only read before the others."""
    bound = (b for b in kernel.buffers if b.space in BOUND)
    return tuple(sorted(bound, key=lambda b: b.space))


def _place_of(kernel: KernelIR, parts: Split) -> Iterator[str]:
    """Which of several kernels one is."""
    count, times = len(parts.kernels), parts.kernels.count(kernel)
    if count > 1:
        first = parts.kernels.index(kernel) + 1
        which = f"kernel {first}" if times == 1 else f"kernels {first} to {first + times - 1}"
        yield f"// {which} of {count}: none turns its loops more than {MOST_ITERATIONS:,} times"


_CLASH: Final = {"read": "in", "write": "out", "own": "own", "group": "all"}
"""Endings of the name of a buffer that a value has as well, by spaces."""


def _names_of_buffers(kernels: Sequence[KernelIR]) -> dict[Buffer, str]:
    """Names that WGSL takes, and that no value has, for the buffers that some kernels share."""
    values = {name for k in kernels for name in k.names.values()}
    shared = any(b.space == "group" for b in kernels[0].buffers)
    taken = {identifier(name, is_reserved) for name in values} | (OURS if shared else STAGED)
    names: dict[Buffer, str] = {}
    for b in kernels[0].buffers:
        name = identifier(b.name, is_reserved)
        while name in taken:
            name = f"{name}_{_CLASH[b.space]}"
        taken.add(name)
        names[b] = name
    return names


def _scratch(own: Own) -> str:
    """The type of what scratch memory consists of, or "" if there is none."""
    return own.element if own.slots else ""


def _module(
    body: Body, lines: Iterator[str], scratch: str, library: Library, head: Sequence[str]
) -> str:
    statements = list(lines)
    module = [
        *head,
        *[""] * bool(head),
        *_declarations(body, scratch),
        *body.records.stores.declaration(),
        *body.own.variables(everywhere=True),
        *body.values.private,
        "",
        *library.definitions(body.values.used),
        *body.values.functions,
        *_signature(body.kernel, body.uses),
        *_cell(body),
        *(f"  {line}" for line in body.own.variables(everywhere=False)),
        *statements,
        "}",
    ]
    return "\n".join(module) + "\n"


def _declarations(body: Body, scratch: str) -> Iterator[str]:
    """The uniform block, the bindings, arrays of workgroups, and where scratch memory has what."""
    kernel, own = body.kernel, body.own
    more = "".join(f", {name}: u32" for name in kernel.arguments.values())
    yield own.floats.params(more)
    yield ""
    yield "@group(0) @binding(0) var<uniform> params: Params;"
    bound = _bound(kernel)
    for n, b in enumerate(bound, 1):
        access = b.space.replace("write", "read_write")
        declared = _array(b, own, 4 if b in body.records.in_quads else b.vector)
        yield f"@group(0) @binding({n}) var<storage, {access}> {declared};"
    if scratch:
        n = len(bound) + 1
        yield f"@group(0) @binding({n}) var<storage, read_write> scratch: array<{scratch}>;"
    for b in kernel.buffers:
        if b.space == "group":
            yield f"var<workgroup> {_array(b, own, b.vector)};"
    if own.slots:
        yield ""
        yield from own.constants({b for _, i in kernel.items() for b, _ in accesses(kernel, i)})


def _array(b: Buffer, own: Own, vector: int) -> str:
    """The name of a buffer of vectors of so many numbers, and its type."""
    kind, size = FLOATS[b.floats].type if b.floats else own.floats.types[b.kind], b.size
    if vector > 1:
        kind, size = own.floats.vector(vector, kind), b.size // vector
    if b.atomic:
        kind = f"atomic<{kind}>"
    if b.row:
        kind, size = f"array<{kind}, {b.row}>", size // b.row
    return f"{own.names[b]}: array<{kind}{f', {size}' if b.space == 'group' else ''}>"


def _signature(kernel: KernelIR, uses: Uses) -> Iterator[str]:
    yield f"@compute @workgroup_size({kernel.target.width})"
    uses_groups = kernel.groups in uses.counts or kernel.target.grid
    groups = "@builtin(num_workgroups) groups: vec3<u32>, " * uses_groups
    yield (
        f"fn main(@builtin(workgroup_id) group: vec3<u32>, {groups}"
        "@builtin(local_invocation_index) local: u32) {"
    )


def _cell(body: Body) -> Iterator[str]:
    kernel, width, group = body.kernel, body.kernel.target.width, "group.x"
    if kernel.target.grid:
        yield "  let group_number = group.y * groups.x + group.x;"
        group = "group_number"
    if body.records.stores.rounds:
        yield f"  let first = {group} * {width}u;"
        yield "  let cell = first + local;"
    elif (
        kernel.cell in body.uses.counts
        or body.own.slots
        or body.records.stores.stores
        or body.values.functions
    ):
        yield f"  let cell = {group} * {width}u + local;"
    if body.own.slots:
        stride = f"(params.count + {width - 1}u) / {width}u * {width}u"
        if kernel.groups in body.uses.counts:
            stride = f"groups.x * {width}u"
        yield f"  let stride = {stride};"
