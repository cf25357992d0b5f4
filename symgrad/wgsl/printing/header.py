"""What a kernel says of itself, for its reader."""

from __future__ import annotations

from collections.abc import Iterator

from symgrad.kernel.shapes import Computation
from symgrad.wgsl.printing.emit import Style
from symgrad.wgsl.printing.names import printable


def header(computation: Computation, style: Style, operations: int = 0) -> Iterator[str]:
    """What a map computes, of what, in arrays of which order; how many operations, if known."""
    n, outputs = len(computation.graph.names), computation.outputs
    columns = ", ".join(f"{o.name} (B, {len(o.nodes)})" for o in outputs)
    order = _order(style.columns_in, style.columns_out)
    moved = 4 * (n + sum(len(o.nodes) for o in outputs))
    yield f"// {printable(style.title or computation.name)}"
    yield f"// in: x (B, {n}); out: {columns}; float32, {order}, one invocation a point"
    counted = f"{operations:,} operations and " * bool(operations)
    yield f"// {counted}{moved:,} bytes a point; math: {style.math}"


def _order(columns_in: bool, columns_out: bool) -> str:
    """How arrays stand in memory."""
    if columns_in == columns_out:
        return "by columns" if columns_in else "C order"
    return f"{'x' if columns_in else 'results'} by columns"
