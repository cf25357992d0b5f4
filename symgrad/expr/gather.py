"""Tracing a loss of one row: parameters in blocks, columns by name, and columns that are indices.

``p[r.camera]`` with a column r.camera takes the row of a block of parameters that the column names.
Its numbers are inputs of the row's graph like the columns themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr.array import ExprArray
from symgrad.expr.expression import Expr
from symgrad.expr.node import Graph
from symgrad.expr.place import resolve_places
from symgrad.expr.trace import Structure, describe, flatten_result


@dataclass(frozen=True)
class Block:
    """An array of parameters: where it begins among all of them, and its shape."""

    name: str
    start: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The numbers in it."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """The numbers that one index takes from it."""
        return math.prod(self.shape[1:])


@dataclass(frozen=True)
class Gather:
    """The inputs that are the numbers of ``block`` at the index in ``column``."""

    block: Block
    column: int
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class RowTrace:
    """What a loss of one row turned out to compute: node ids in ``graph``."""

    graph: Graph
    parameters: tuple[int, ...]
    columns: tuple[int, ...]
    gathers: tuple[Gather, ...]
    outputs: tuple[int, ...]
    structure: Structure


class Parameters(ExprArray):
    """A block of parameters, from which a column of indices may take rows."""

    lookup: Callable[[Expr], Any] | None = None

    def __getitem__(self, key: Any) -> Any:
        first, *rest = key if isinstance(key, tuple) else (key,)
        if not isinstance(first, Expr) or self.lookup is None:
            return super().__getitem__(key)
        taken = self.lookup(first)
        return taken[tuple(rest)] if rest else taken


class Row:
    """A row with named columns: ``r.x``, ``r["x"]`` or ``r[0]``."""

    def __init__(self, values: ExprArray, names: Sequence[str]) -> None:
        self._values, self._names = values, tuple(names)

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__") or name not in self._names:
            known = ", ".join(self._names)
            raise AttributeError(f"a row has no column {name!r}: its columns are {known}")
        return self._values[self._names.index(name)]

    def __getitem__(self, key: Any) -> Any:
        return getattr(self, key) if isinstance(key, str) else self._values[key]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self._values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._values, dtype=object)


class Blocks:
    """Several blocks of parameters: ``p.cameras`` or ``p["cameras"]``."""

    def __init__(self, blocks: Mapping[str, Parameters]) -> None:
        self._blocks = dict(blocks)

    def __getattr__(self, name: str) -> Parameters:
        if name.startswith("__") or name not in self._blocks:
            known = ", ".join(self._blocks)
            raise AttributeError(f"there are no parameters {name!r}: the blocks are {known}")
        return self._blocks[name]

    def __getitem__(self, name: str) -> Parameters:
        return getattr(self, name)


@dataclass
class _Tracer:
    """Makes inputs, and remembers what each of them is."""

    graph: Graph
    columns: Sequence[int]
    names: Sequence[str] | None
    gathers: dict[tuple[str, int], Gather] = field(default_factory=dict)

    def gather(self, block: Block, column: Expr) -> Any:
        """The row of a block at the index in a column."""
        if column.graph is not self.graph or column.id not in self.columns:
            raise TraceError(
                f"parameters are taken by a column itself, not by {column!r}: put the index into "
                "a column of its own, or the parameters into a block of their own"
            )
        number = self.columns.index(column.id)
        key = (block.name, number)
        if key not in self.gathers:
            label = self.names[number] if self.names else f"r{number}"
            stem = f"{block.name}_{label}"
            inputs = tuple(self.graph.input(f"{stem}_{k}") for k in range(block.width))
            self.gathers[key] = Gather(block, number, inputs)
        found = np.empty(block.width, dtype=object)
        found[:] = [Expr(self.graph, i) for i in self.gathers[key].inputs]
        taken = found.reshape(block.shape[1:]).view(ExprArray)
        return taken if block.shape[1:] else taken.item()


def blocks_of(n: Any) -> tuple[Block, ...]:
    """The blocks that ``n`` asks for: a number, a shape, or a dict of names and either."""
    parts = n.items() if isinstance(n, Mapping) else [("p", n)]
    found: list[Block] = []
    start = 0
    for name, size in parts:
        shape = tuple(size) if isinstance(size, (tuple, list)) else (size,)
        plain = all(isinstance(s, (int, np.integer)) and not isinstance(s, bool) for s in shape)
        if not shape or not plain or min(shape) < 1:
            raise InputError(f"n={n!r}: a number of parameters, a shape, or a dict of them")
        if not isinstance(name, str) or not name.isidentifier():
            raise InputError(f"n={n!r}: the name of a block is an identifier, not {name!r}")
        found.append(Block(name, start, tuple(int(s) for s in shape)))
        start += found[-1].size
    if not found:
        raise InputError("a kernel needs at least one parameter")
    return tuple(found)


def trace_row(
    f: Callable[..., Any], n: Any, blocks: Sequence[Block], count: int,
    names: Sequence[str] | None = None,
) -> RowTrace:  # fmt: skip
    """Call ``f(p, r)`` on symbolic parameters and one symbolic row."""
    graph = Graph()
    parameters = [graph.input(f"{block.name}{k}") for block in blocks for k in range(block.size)]
    columns = [graph.input(name) for name in names or [f"r{k}" for k in range(count)]]
    tracer = _Tracer(graph, columns, names)
    made = {block.name: _parameters(tracer, block, parameters) for block in blocks}
    p = Blocks(made) if isinstance(n, Mapping) else made["p"]
    values = _array(graph, columns)
    outputs, structure = flatten_result(graph, f(p, Row(values, names) if names else values), f)
    resolve_places(graph)
    graph.tracing = False
    gathers = tuple(tracer.gathers.values())
    _require_indices(f, graph, gathers, columns, outputs, names)
    return RowTrace(graph, tuple(parameters), tuple(columns), gathers, tuple(outputs), structure)


def _parameters(tracer: _Tracer, block: Block, parameters: Sequence[int]) -> Parameters:
    ids = parameters[block.start : block.start + block.size]
    array = _array(tracer.graph, ids).reshape(block.shape).view(Parameters)
    array.lookup = lambda column: tracer.gather(block, column)
    return array


def _array(graph: Graph, ids: Sequence[int]) -> ExprArray:
    found = np.empty(len(ids), dtype=object)
    found[:] = [Expr(graph, i) for i in ids]
    return found.view(ExprArray)


def _require_indices(
    f: Any, graph: Graph, gathers: Sequence[Gather], columns: Sequence[int],
    outputs: Sequence[int], names: Sequence[str] | None,
) -> None:  # fmt: skip
    """Refuse a column that is an index and a number as well: a float32 holds no large index."""
    used = {a for node in graph.nodes if node[0].arity for a in node[1:]} | set(outputs)
    for gather in gathers:
        if columns[gather.column] in used:
            column = names[gather.column] if names else gather.column
            raise TraceError(
                f"{describe(f)}: column {column!r} is an index and a number as well; give it twice"
            )
