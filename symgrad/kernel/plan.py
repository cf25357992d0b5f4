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
class Computation:
    """What a kernel computes at every point, and nothing of how: a graph, and its results."""

    name: str
    graph: Graph
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class Plan(Computation):
    """A computation in shaders: every point is computed by itself.

    Invariants:
      1. Every node in a part depends only on inputs, constants, nodes bound before it in its
         piece, nodes of the piece's fetched rows, and nodes bound nowhere, which are folded into
         the expression of their only user.
      2. Every column of every output is stored exactly once.
    """

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


@dataclass(frozen=True)
class Lookup:
    """Inputs of a row that stand in a table, in the line that one of the row's indices names."""

    index: int
    width: int


@dataclass(frozen=True)
class Reduction(Computation):
    """A computation at every row of a table, whose results are summed over the rows.

    Invariants:
      1. The inputs are the parameters, which are the same for all rows, a row's columns, and then
         those of each lookup.
      2. The last outputs belong to the lookups, one each, as wide: they are added up in the lines
         of a table that the same indices name. The others are summed over all rows.
      3. ``factors`` are nodes of the parameters alone, one for each of the results that are summed
         over all rows, by which the sums are multiplied.
    """

    parameters: int
    factors: tuple[int, ...]
    lookups: tuple[Lookup, ...] = ()

    @property
    def columns(self) -> int:
        """The numbers in a row."""
        return len(self.graph.names) - self.parameters - sum(k.width for k in self.lookups)

    @property
    def summed(self) -> tuple[Output, ...]:
        """The outputs that are summed over all rows."""
        return self.outputs[: len(self.outputs) - len(self.lookups)]


@dataclass(frozen=True)
class Iteration:
    """A computation that is repeated for each of many problems, each with a state of its own.

    A step is: where the state's last number, the flag, is not 0, the state becomes
    ``update(state, sums)``; elsewhere it stays. ``sums`` are those of ``rows`` over the rows of the
    problem's data, times their factors, at the first ``rows.parameters`` numbers of the state.

    Invariants:
      1. The inputs of ``update`` are the state and then the sums, if there are rows; it has one
         output, the next state, of as many columns as the state.
      2. Of a row's columns the first ``shared`` are the same for all problems.
    """

    update: Computation
    state: int
    rows: Reduction | None = None
    shared: int = 0

    @property
    def own(self) -> int:
        """The columns of which each problem has its own."""
        return self.rows.columns - self.shared if self.rows else 0
