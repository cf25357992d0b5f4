"""Printed kernels: their modules, and what they say of themselves, for their reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import POINTS_PER_WORKGROUP
from symgrad.kernel.shapes import Computation
from symgrad.wgsl.printing.names import printable
from symgrad.wgsl.printing.operations import FLOATS, Floats


@dataclass(frozen=True)
class Style:
    """The remarks of the source beside the code."""

    math: str = "accurate"
    comments: bool = True
    title: str = ""
    columns_in: bool = False
    """Whether points stand column by column, and not row by row, each of ``params.count``."""
    columns_out: bool = False
    """Whether results stand column by column."""
    dtype: str = "float32"
    """The dtype that the kernel computes in."""

    @property
    def floats(self) -> Floats:
        """How WGSL has its floats."""
        return FLOATS[self.dtype]


@dataclass(frozen=True)
class Printed:
    """The source of a kernel: modules with the entry point "main", to be run in this order.

    Each has the uniform block as binding 0, then the buffers that are read, those that are written,
    and, if there are any ``slots``, scratch memory: so many numbers for each invocation of whole
    workgroups.
    """

    modules: tuple[str, ...]
    bound: tuple[Buffer, ...]
    """The buffers that are bound, in the order of the bindings."""
    slots: int
    iterations: int
    """The most iterations of an invocation in all loops of a module together."""
    width: int = POINTS_PER_WORKGROUP
    """The invocations of a workgroup."""
    shared: int = 0
    """The most bytes that the arrays of a workgroup may have."""

    @property
    def tables(self) -> tuple[tuple[float, ...], ...]:
        """The constants of the buffers that have any."""
        return tuple(b.data for b in self.bound if b.data is not None)


def header(computation: Computation, style: Style, operations: int = 0) -> Iterator[str]:
    """The head of a map: what it computes, of what, in which arrays, in how many operations."""
    n, outputs = len(computation.graph.names), computation.outputs
    columns = ", ".join(f"{o.name} (B, {len(o.nodes)})" for o in outputs)
    order = _order(style.columns_in, style.columns_out)
    moved = style.floats.dtype.itemsize * (n + sum(len(o.nodes) for o in outputs))
    yield f"// {printable(style.title or computation.name)}"
    yield f"// in: x (B, {n}); out: {columns}; {style.dtype}, {order}, one invocation a point"
    counted = f"{operations:,} operations and " * bool(operations)
    yield f"// {counted}{moved:,} bytes a point; math: {style.math}"


def _order(columns_in: bool, columns_out: bool) -> str:
    """How arrays stand in memory."""
    if columns_in == columns_out:
        return "by columns" if columns_in else "C order"
    return f"{'x' if columns_in else 'results'} by columns"
