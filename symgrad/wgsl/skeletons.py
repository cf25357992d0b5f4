"""The frames that kernels are built into: header, bindings, tail handling.

A map kernel has one invocation a point. It reads its row of ``x`` directly, computes, and stores
its results: see `Stores`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from symgrad.expr.graph.reach import reachable
from symgrad.kernel.layout import WORKGROUP
from symgrad.kernel.plan import Computation, Piece, Plan
from symgrad.wgsl.names import printable
from symgrad.wgsl.stores import Stores


@dataclass(frozen=True)
class Skeleton:
    """A shader, but for its statements; ``text`` gives the value of a node at its end.

    ``columns`` says whether its results stand column by column.
    """

    plan: Plan
    piece: Piece
    text: Callable[[int], str]
    columns: bool = False

    @cached_property
    def stores(self) -> Stores:
        """What is stored."""
        outputs = self.plan.outputs
        names, widths = [o.name for o in outputs], [len(o.nodes) for o in outputs]
        workgroup = self.plan.workgroup
        return Stores(names, widths, self.piece.stores, self.text, workgroup, self.columns)


def header(
    plan: Plan, number: int, count: int, math: str, title: str, by_columns: tuple[bool, bool]
) -> Iterator[str]:
    """What the kernel computes, for its reader; whether points and results stand by columns."""
    yield from shapes(plan, title, _order(*by_columns))
    yield f"// {count:,} operations and {moved(plan):,} bytes a point; math: {math}"
    if len(plan.pieces) > 1:
        yield (
            f"// kernel {number + 1} of {len(plan.pieces)}: one shader of this length compiles "
            "slowly, so the graph"
        )
        yield (
            f"// is cut where few values are alive; {sum(map(len, plan.scratch)):,} values cross "
            "through scratch memory"
        )
    yield ""


def _order(columns_in: bool, columns_out: bool) -> str:
    """How arrays stand in memory."""
    if columns_in == columns_out:
        return "by columns" if columns_in else "C order"
    return f"{'x' if columns_in else 'results'} by columns"


def shapes(computation: Computation, title: str, order: str = "C order") -> Iterator[str]:
    """What is computed, of what, in arrays of which order, for the reader of a map kernel."""
    n, outputs = len(computation.graph.names), computation.outputs
    columns = ", ".join(f"{o.name} (B, {len(o.nodes)})" for o in outputs)
    yield f"// {printable(title or computation.name)}"
    yield f"// in: x (B, {n}); out: {columns}; float32, {order}, one invocation a point"


def moved(computation: Computation) -> int:
    """The bytes of a point and its results."""
    return 4 * (len(computation.graph.names) + sum(len(o.nodes) for o in computation.outputs))


def operations(plan: Plan) -> int:
    """The operations that the kernel does for each point."""
    graph = plan.graph
    roots = [i for o in plan.outputs for i in o.nodes]
    return sum(1 for i in reachable(graph, roots) if graph.nodes[i][0].arity)


def preamble(skeleton: Skeleton) -> Iterator[str]:
    """The uniform block, the bindings and the tile."""
    yield "struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }"
    yield ""
    yield "@group(0) @binding(0) var<uniform> params: Params;"
    yield "@group(0) @binding(1) var<storage, read> x: array<f32>;"
    outputs = skeleton.plan.outputs
    for k, output in enumerate(outputs):
        yield _binding(k + 2, output.name, "f32")
    if skeleton.plan.scratch:
        yield _binding(len(outputs) + 2, "scratch", "vec4<f32>")
    yield from skeleton.stores.declaration()
    yield ""
    if skeleton.plan.scratch:
        yield "// the length of a row of scratch: the points, rounded up to whole workgroups"
        rounded = f"(params.count + {WORKGROUP - 1}u) / {WORKGROUP}u * {WORKGROUP}u"
        yield f"fn stride() -> u32 {{ return {rounded}; }}"
        yield ""


def _binding(k: int, name: str, kind: str) -> str:
    return f"@group(0) @binding({k}) var<storage, read_write> {name}: array<{kind}>;"


def main_function(skeleton: Skeleton, parts: Sequence[Iterable[str]]) -> Iterator[str]:
    """The entry point, and before it the functions that a long body is cut into."""
    several = len(parts) > 1
    if several:
        for k, part in enumerate(parts):
            yield f"fn part_{k}(point: u32, cell: u32) {{"
            yield from part
            yield "}"
            yield ""
    yield f"@compute @workgroup_size({skeleton.plan.workgroup})"
    yield (
        "fn main(@builtin(workgroup_id) group: vec3<u32>, "
        "@builtin(local_invocation_index) local: u32) {"
    )
    yield f"  let first = group.x * {skeleton.plan.workgroup}u;"
    yield "  let cell = first + local;"
    yield "  let point = min(cell, params.count - 1u);  // past the end: the last point again"
    for k, part in enumerate(parts):
        yield from [f"  part_{k}(point, cell);"] if several else part
    yield from _spills(skeleton)
    yield from skeleton.stores.lines()
    yield "}"


def _spills(skeleton: Skeleton) -> Iterator[str]:
    graph = skeleton.plan.graph
    for row in skeleton.piece.spills:
        nodes = skeleton.plan.scratch[row]
        values = [
            skeleton.text(i) if graph.type(i) == "f" else f"f32({skeleton.text(i)})" for i in nodes
        ]
        packed = ", ".join(values + ["0.0f"] * (4 - len(values)))
        yield f"  scratch[{row}u * stride() + cell] = vec4<f32>({packed});"
