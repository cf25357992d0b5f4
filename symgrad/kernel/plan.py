"""What a kernel is, in no language: which values are bound, in which order, in which piece."""

from __future__ import annotations

from dataclasses import dataclass

from symgrad.expr.node import Graph
from symgrad.kernel.layout import Layout


@dataclass(frozen=True)
class Output:
    """One result array: ``nodes[k]`` is its k-th column."""

    name: str
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Store:
    """The value of ``node`` goes to a column of an output array."""

    output: int
    column: int
    node: int


@dataclass(frozen=True)
class Piece:
    """One shader of a submit.

    ``parts`` are its functions: the nodes that each binds to a name, in order. ``fetches`` and
    ``spills`` are the scratch rows, of up to four values, that it reads and writes.
    """

    parts: tuple[tuple[int, ...], ...]
    fetches: tuple[int, ...]
    spills: tuple[int, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True)
class Plan:
    """A map kernel: every point is computed by itself.

    Invariants:
      1. Every node in a part depends only on inputs, constants, nodes bound before it in its
         piece, nodes of the piece's fetched rows, and nodes bound nowhere, which are folded into
         the expression of their only user.
      2. Every column of every output is stored exactly once.
    """

    name: str
    graph: Graph
    outputs: tuple[Output, ...]
    bound: frozenset[int]
    pieces: tuple[Piece, ...]
    scratch: tuple[tuple[int, ...], ...]
    """The rows of the scratch array: the nodes that are kept in each."""

    @property
    def layout(self) -> Layout:
        """The buffers of the kernel."""
        counts = tuple(len(o.nodes) for o in self.outputs)
        return Layout(len(self.graph.names), counts, len(self.scratch))

    def __repr__(self) -> str:
        statements = sum(len(part) for piece in self.pieces for part in piece.parts)
        return f"<Plan {self.name}: {statements} statements in {len(self.pieces)} kernels>"
