"""The frames that kernels are built into: header, bindings, tail handling, coalesced stores.

A map kernel has one invocation a point. It reads its row of ``x`` directly, computes, and hands
the columns of its results to the workgroup's tile, from which neighbouring invocations write
neighbouring floats: on an H200 this reaches 99 % of the copy bandwidth, direct stores 22 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from symgrad.expr.node import reachable
from symgrad.kernel.layout import WORKGROUP
from symgrad.kernel.plan import Computation, Piece, Plan, Store
from symgrad.wgsl.names import printable

UNROLLED = 16
"""Columns up to which the stores of a tile are written out: drivers do not unroll a loop whose
bound they do not know, which costs 8 % of the bandwidth on an H200."""

TILE_COLUMNS = 63
"""The most columns of a tile: an odd row length of at most 64 floats keeps the 64 rows within
WebGPU's 16,384 bytes and in different memory banks."""


@dataclass(frozen=True)
class Skeleton:
    """A shader, but for its statements; ``text`` gives the value of a node at its end.

    ``columns`` says whether its results stand column by column: then neighbours write side by side.
    """

    plan: Plan
    piece: Piece
    text: Callable[[int], str]
    columns: bool = False

    @cached_property
    def rounds(self) -> list[list[list[Store]]]:
        """The stores that go through the tile: runs of neighbouring columns, cut to its size.

        What fits in it together is one round, which needs one barrier.
        """
        runs = [run for run in _runs(self.piece.stores) if self._is_wide(run)]
        cut = [run[k : k + TILE_COLUMNS] for run in runs for k in range(0, len(run), TILE_COLUMNS)]
        rounds: list[list[list[Store]]] = []
        for run in cut:
            if not rounds or sum(map(len, rounds[-1])) + len(run) > TILE_COLUMNS:
                rounds.append([])
            rounds[-1].append(run)
        return rounds

    @cached_property
    def direct(self) -> list[Store]:
        """The stores that do without: single columns."""
        return [s for run in _runs(self.piece.stores) if not self._is_wide(run) for s in run]

    def _is_wide(self, run: Sequence[Store]) -> bool:
        return len(run) > 1 and not self.columns

    @cached_property
    def row_length(self) -> int:
        """Floats from one row of the tile to the next: no multiple of 4, for the banks' sake."""
        columns = max((sum(map(len, runs)) for runs in self.rounds), default=0)
        return columns if columns % 4 and columns < UNROLLED else columns | 1


def _runs(stores: Sequence[Store]) -> list[list[Store]]:
    runs: list[list[Store]] = []
    for s in stores:
        last = runs[-1][-1] if runs else None
        if last and (last.output, last.column + 1) == (s.output, s.column):
            runs[-1].append(s)
        else:
            runs.append([s])
    return runs


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


def place(column: int, width: int, by_columns: bool = False) -> str:
    """Where a column of a point is in an array (B, width)."""
    if width == 1:
        return "point"
    return f"{column}u * params.count + point" if by_columns else f"point * {width}u + {column}u"


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
    if skeleton.rounds:
        yield f"var<workgroup> tile: array<f32, {WORKGROUP * skeleton.row_length}>;"
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
    yield f"@compute @workgroup_size({WORKGROUP})"
    yield (
        "fn main(@builtin(workgroup_id) group: vec3<u32>, "
        "@builtin(local_invocation_index) local: u32) {"
    )
    yield f"  let first = group.x * {WORKGROUP}u;"
    yield "  let cell = first + local;"
    yield "  let point = min(cell, params.count - 1u);  // past the end: the last point again"
    for k, part in enumerate(parts):
        yield from [f"  part_{k}(point, cell);"] if several else part
    yield from _spills(skeleton)
    yield from _stores(skeleton)
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


def _stores(skeleton: Skeleton) -> Iterator[str]:
    names = [o.name for o in skeleton.plan.outputs]
    widths = [len(o.nodes) for o in skeleton.plan.outputs]
    direct = list(_direct(skeleton, names, widths))
    if direct:
        yield "  if (cell < params.count) {"
        yield from direct
        yield "  }"
    if skeleton.rounds:
        yield f"  let rows = min({WORKGROUP}u, params.count - first);"
    for runs in skeleton.rounds[1:]:
        yield from (_held(skeleton, s) for run in runs for s in run)
    for number, runs in enumerate(skeleton.rounds):
        if number:
            yield "  workgroupBarrier();"
        yield from _fill(skeleton, runs, held=number > 0)
        yield "  workgroupBarrier();"
        start = 0
        for run in runs:
            yield from _drain(skeleton, run, start, names[run[0].output], widths[run[0].output])
            start += len(run)


def _fill(skeleton: Skeleton, runs: Iterable[Sequence[Store]], held: bool) -> Iterator[str]:
    """The lines that write the columns of a round to the tile."""
    for c, s in enumerate(s for run in runs for s in run):
        value = _held_name(s) if held else skeleton.text(s.node)
        yield f"  tile[{_row(skeleton)} + {c}u] = {value};"


def _held(skeleton: Skeleton, s: Store) -> str:
    """A value that is needed behind a barrier, as a value that compilers cannot take apart.

    llvmpipe otherwise moves half of its operations behind the barrier, and gets them wrong.
    """
    value = f"bitcast<f32>(bitcast<u32>({skeleton.text(s.node)}) ^ params.zero)"
    return f"  let {_held_name(s)} = {value};"


def _held_name(s: Store) -> str:
    return f"held_{s.output}_{s.column}"


def _row(skeleton: Skeleton) -> str:
    return f"local * {skeleton.row_length}u"


def _direct(skeleton: Skeleton, names: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    for s in skeleton.direct:
        at = place(s.column, widths[s.output], skeleton.columns)
        yield f"    {names[s.output]}[{at}] = {skeleton.text(s.node)};"


def _drain(
    skeleton: Skeleton, run: Sequence[Store], start: int, name: str, width: int
) -> Iterator[str]:
    """The workgroup writes columns of the tile, from ``start`` on, neighbours to neighbours."""
    columns = len(run)

    def copy(k: str) -> str:
        index = f"({k})" if " " in k else k
        row, column = f"{index} / {columns}u", f"{index} % {columns}u"
        target = f"first * {width}u + {k}"
        if columns != width:
            target = f"(first + {row}) * {width}u + {run[0].column}u + {column}"
        length = skeleton.row_length
        source = k if columns == length else f"{row} * {length}u + {start}u + {column}"
        return f"{name}[{target}] = tile[{source}];"

    if columns > UNROLLED:
        yield f"  for (var k = local; k < rows * {columns}u; k += {WORKGROUP}u) {{ {copy('k')} }}"
        return
    for k in range(columns):
        at = f"{k * WORKGROUP}u + local" if k else "local"
        yield f"  if ({at} < rows * {columns}u) {{ {copy(at)} }}"
