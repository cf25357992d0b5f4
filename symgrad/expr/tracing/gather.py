"""Tracing a loss of one row: parameters in blocks, columns by name, and columns that are indices.

``p[r.camera]`` with a column r.camera takes the row of a block of parameters that the column names.
Its numbers are inputs of the row's graph like the columns themselves. Columns of labels, which hold
codes, can be compared and index arrays; anything else would depend on the order of the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, NameUnknownError, TraceError
from symgrad.expr.calls.numpy_calls import apply_function, apply_ufunc
from symgrad.expr.graph.misuse import Explaining
from symgrad.expr.graph.node import Graph, reachable
from symgrad.expr.graph.place import describe, resolve_places
from symgrad.expr.graph.region import TURNS, Choice, Loop, Pick, Region, has_holes
from symgrad.expr.loops.open_loop import Tracing, require_closed
from symgrad.expr.tracers.array import ExprArray, TracedArray, in_memory, takes_values
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.tree import Block, Blocks, Tree
from symgrad.expr.tracing.trace import WatchingRandomNumbers, flatten_result, require_feasible

# --- columns that are quantities: more than compared, or used as indices --------------------------

Columns = int
"""A set of columns: bit k is the one of number k."""


def quantities(graph: Graph, columns: Sequence[int], outputs: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the columns, input nodes, that are quantities for these outputs."""
    dependence = _Dependence()
    masks = {i: 1 << k for k, i in enumerate(columns)}
    by_node = dependence.of(graph, masks)
    every = dependence.together
    for i in outputs:
        every |= by_node[i]
    return tuple(k for k in range(len(columns)) if every >> k & 1)


class _Dependence:
    """The columns that nodes depend on, and those that are compared with each other."""

    def __init__(self) -> None:
        self.together: Columns = 0

    def of(self, graph: Graph, inputs: dict[int, Columns]) -> list[Columns]:
        """The columns that each node of a graph depends on, by those of its inputs."""
        masks: list[Columns] = []
        results: dict[int, list[Columns]] = {}
        for i, (op, *args) in enumerate(graph.nodes):
            if not op.arity:
                masks.append(inputs.get(i, 0))
                continue
            each = [masks[a] for a in args]
            if isinstance(op, Pick):
                mine = results[args[0]]
                masks.append(mine[0] if op.index == TURNS else mine[1 + op.index])
            elif isinstance(op, Loop):
                results[i] = self._loop(op, each)
                masks.append(0)
            elif isinstance(op, Choice):
                results[i] = self._choice(op, each)
                masks.append(0)
            elif graph.type(i) == "b":
                masks.append(self._compared(each))
            elif op.name == "get":
                masks.append(each[0])
            else:
                masks.append(_union(each if op.name != "put" else [each[0], each[2]]))
        return masks

    def _compared(self, each: list[Columns]) -> Columns:
        """Nothing; codes of different columns stand for different labels."""
        masks = [columns for columns in each if columns]
        if any(columns != masks[0] for columns in masks):
            self.together |= _union(masks)
        return 0

    def _loop(self, op: Loop, each: list[Columns]) -> list[Columns]:
        """The columns that the number of iterations and the carries depend on."""
        ends, (carries, captures) = _union(each[:2]), op.split(each[2:])
        while True:
            yields = self._region(op.body, [ends, *carries, *captures])[: op.carries]
            after = [a | b | ends for a, b in zip(carries, yields, strict=True)]
            if after == carries:
                return [ends, *carries]
            carries = after

    def _choice(self, op: Choice, each: list[Columns]) -> list[Columns]:
        """The columns that the results depend on."""
        yields = self._region(op.body, each[1:])
        halves = zip(yields[: op.results], yields[op.results :], strict=True)
        return [0, *(a | b for a, b in halves)]

    def _region(self, body: Region, params: list[Columns]) -> list[Columns]:
        masks = self.of(body.graph, dict(zip(body.params, params, strict=True)))
        return [masks[i] for i in body.yields]


def _union(each: list[Columns]) -> Columns:
    union = 0
    for columns in each:
        union |= columns
    return union


MOST_PLACES: Final = 2**26
"""Parameters of a block that is read other than by indices: a place takes eight bytes."""


# --- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gather:
    """The inputs that are the numbers of ``block`` at the index in ``column``."""

    block: Block
    column: int
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class RowTrace:
    """The trace of a loss of one row: node ids in ``graph``."""

    graph: Graph
    parameters: dict[int, int]
    """The inputs that are parameters, by their places among all, in ascending order: those that
    something reads other than by an index."""
    columns: tuple[int, ...]
    gathers: tuple[Gather, ...]
    outputs: tuple[int, ...]
    structure: Tree
    quantities: tuple[int, ...] = ()
    """The numbers of the columns that are more than indices or compared: no codes of labels."""


class Parameters(np.lib.mixins.NDArrayOperatorsMixin):
    """A block of parameters, from which a column of indices may take rows.

    It behaves as an array of expressions, and says that it is one; but these are made when they
    are first needed, so that what only lookups read costs nothing for each parameter.
    """

    def __init__(
        self,
        block: Block,
        make: Callable[[int], Expr],
        lookup: Callable[[Parameters, Expr], Any],
        is_column: Callable[[Any], bool],
    ) -> None:
        self._block, self._make, self._lookup = block, make, lookup
        self._is_column = is_column

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ExprArray

    @property
    def shape(self) -> tuple[int, ...]:
        """NumPy's, as the next three."""
        return self._block.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._block.shape)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self._block.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of arrays of expressions."""
        return np.dtype(object)

    @cached_property
    def _places(self) -> np.ndarray:
        """Where each stands among all parameters."""
        if self.size > MOST_PLACES:
            raise InputError(
                f"{self!r}: they are too many to be read other than by a column of indices"
            )
        return np.arange(self._block.start, self._block.start + self.size).reshape(self.shape)

    @cached_property
    def _whole(self) -> ExprArray:
        """All of them."""
        return self._elements(self._places)

    @cached_property
    def in_memory(self) -> TracedArray:
        """All of them, as an array that an expression may index."""
        return in_memory(self._whole.flat[0].graph, self._whole)

    def _elements(self, places: np.ndarray) -> ExprArray:
        require_feasible(places.size)
        elements = np.empty(places.shape, dtype=object)
        elements.reshape(-1)[:] = [self._make(k) for k in places.ravel().tolist()]
        return elements.view(ExprArray)

    def __getitem__(self, key: Any) -> Any:
        first, *rest = key if isinstance(key, tuple) else (key,)
        if isinstance(first, Expr):
            taken = self._lookup(self, first)
            return taken[tuple(rest)] if rest else taken
        alone = not any(isinstance(k, (list, np.ndarray)) for k in rest)
        if alone and isinstance(first, ExprArray) and all(map(self._is_column, first.flat)):
            each = np.empty((*first.shape, *self.shape[1:]), dtype=object)
            for place in np.ndindex(first.shape):
                each[place] = self._lookup(self, first[place])
            return each.view(ExprArray)[(slice(None),) * first.ndim + tuple(rest)]
        if "_whole" in vars(self) or takes_values(key):
            return self._whole[key]
        places = self._places[key]
        return self._elements(places) if np.ndim(places) else self._make(int(places))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._whole[key] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._whole, name)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._whole)

    def __contains__(self, value: Any) -> bool:
        return value in self._whole

    def __bool__(self) -> bool:
        return bool(self._whole)

    def __repr__(self) -> str:
        return f"<{self.size:,} parameters {self._block.name} of shape {self.shape}>"

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._whole, dtype=object)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return apply_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply_function(func, args, kwargs)


class TracedRow:
    """A row with named columns: ``r.x`` or ``r["x"]``, a number or an array.

    It is an array of all its numbers too: ``r[0]`` is the first of them.
    """

    def __init__(self, values: ExprArray, columns: Sequence[Block]) -> None:
        self._values, self._columns = values, {column.name: column for column in columns}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._columns:
            names = ", ".join(self._columns)
            raise NameUnknownError(f"a row has no column {name!r}: its columns are {names}")
        return self._columns[name].of(self._values)[()]

    def __getitem__(self, key: Any) -> Any:
        return getattr(self, key) if isinstance(key, str) else self._values[key]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self._values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._values, dtype=object)


@dataclass
class _Tracer:
    """Makes inputs, and remembers what each of them is."""

    graph: Graph
    columns: Sequence[int]
    names: Sequence[str]
    parameters: dict[int, int] = field(default_factory=dict)
    gathers: dict[tuple[str, int], Gather] = field(default_factory=dict)

    def parameter(self, block: Block, place: int) -> Expr:
        """A parameter by its place among all."""
        if place not in self.parameters:
            self.parameters[place] = self.graph.input(block.name_of(place))
        return Expr(self.graph, self.parameters[place])

    def block(self, block: Block) -> Any:
        """A block of parameters; one alone is an expression."""
        if not block.shape:
            return self.parameter(block, block.start)
        return Parameters(
            block,
            lambda place: self.parameter(block, place),
            lambda all_of_it, index: self.taken(block, all_of_it, index),
            self.is_column,
        )

    def taken(self, block: Block, parameters: Parameters, index: Expr) -> Any:
        """The row of a block at an index: one in a column, or one that no column decides."""
        if self.is_column(index):
            return self.gather(block, index)
        if index.graph is not self.graph or not set(self.columns).isdisjoint(
            reachable(self.graph, [index.id])
        ):
            raise TraceError(
                f"parameters are taken by a column itself, not by {index!r}: put the index into "
                "a column of its own, or the parameters into a block of their own"
            )
        return parameters.in_memory[index]

    def is_column(self, index: Any) -> bool:
        """Whether it is a number of the row as it stands there."""
        return isinstance(index, Expr) and index.graph is self.graph and index.id in self.columns

    def gather(self, block: Block, column: Expr) -> Any:
        """The row of a block at the index in a column."""
        number = self.columns.index(column.id)
        key = (block.name, number)
        if key not in self.gathers:
            require_feasible(block.width)
            stem = f"{block.name}_{self.names[number]}"
            inputs = tuple(self.graph.input(f"{stem}_{k}") for k in range(block.width))
            self.gathers[key] = Gather(block, number, inputs)
        elements = np.empty(block.width, dtype=object)
        elements[:] = [Expr(self.graph, i) for i in self.gathers[key].inputs]
        taken = elements.reshape(block.shape[1:]).view(ExprArray)
        return taken if block.shape[1:] else taken.item()


def trace_row(
    f: Callable[..., Any], tree: Tree, count: int, named: Sequence[Block] = ()
) -> RowTrace:
    """Call ``f(p, r)`` on symbolic parameters and one symbolic row of ``count`` numbers.

    These are the numbers of the columns with names, if there are any.
    """
    graph = Graph()
    graph.repeats = []
    names = [*_names_of(named)] or [f"r{k}" for k in range(count)]
    columns = [graph.input(name) for name in names]
    tracer = _Tracer(graph, columns, names)
    p = tree.nest(map(tracer.block, tree.blocks), Blocks)
    values = _array(graph, columns)
    with WatchingRandomNumbers(f), Explaining(), Tracing(graph):
        row = TracedRow(values, named) if named else values
        try:
            result = f(p, row)
        except AttributeError as error:
            _refuse_part(error, f, values, named)
            _refuse_swapped(error, f, p, row, [column.name for column in named])
            raise
    outputs, structure = flatten_result(graph, result, f)
    if has_holes(graph):
        require_closed(graph, outputs)
    resolve_places(graph)
    graph.tracing = False
    gathers = tuple(tracer.gathers.values())
    _require_indices(f, graph, gathers, columns, outputs, names if named else None)
    read = dict(sorted(tracer.parameters.items()))
    numbers = quantities(graph, columns, outputs) if named else ()
    return RowTrace(graph, read, tuple(columns), gathers, tuple(outputs), structure, numbers)


def _names_of(columns: Sequence[Block]) -> Iterator[str]:
    """The names of the numbers in columns with names."""
    for column in columns:
        places = range(column.start, column.start + column.size)
        yield from map(column.name_of, places) if column.shape else (column.name,)


def _refuse_part(
    error: AttributeError, f: Callable[..., Any], values: ExprArray, named: Sequence[Block]
) -> None:
    """Say so if an array that is a column, or a part of it, was asked for a part by name."""
    if not isinstance(error.obj, ExprArray) or not error.obj.size:
        return
    for column in named:
        numbers = values[column.start : column.start + column.size]
        if column.shape and any(error.obj.flat[0] is number for number in numbers.flat):
            raise NameUnknownError(
                f"{describe(f)} asks the column {column.name!r} for {error.name!r}: it is an array "
                f"of shape {column.shape} at each row, whose elements have no names; index it, as "
                f"in row.{column.name}[0]"
            ) from error


def _refuse_swapped(
    error: AttributeError, f: Callable[..., Any], p: Any, row: Any, columns: Sequence[str]
) -> None:
    """Say so if the parameters were asked for a column, or the row for parameters."""
    if error.name in columns and (error.obj is p or isinstance(error.obj, np.ndarray)):
        swapped = "the parameters for the column"
    elif error.obj is row and isinstance(p, Blocks) and error.name in p:
        swapped = "the row for the parameter"
    else:
        return
    raise NameUnknownError(
        f"{describe(f)} asks {swapped} {error.name!r}: it is called with the parameters first and "
        "the row second, as in lambda p, row: ..."
    ) from error


def _array(graph: Graph, ids: Sequence[int]) -> ExprArray:
    elements = np.empty(len(ids), dtype=object)
    elements[:] = [Expr(graph, i) for i in ids]
    return elements.view(ExprArray)


def _require_indices(
    f: Any,
    graph: Graph,
    gathers: Sequence[Gather],
    columns: Sequence[int],
    outputs: Sequence[int],
    names: Sequence[str] | None,
) -> None:
    """Refuse a column that is an index and a number as well: a float32 holds no large index."""
    used = {a for i in range(len(graph)) for a in graph.args(i)} | set(outputs)
    for gather in gathers:
        if columns[gather.column] in used:
            column = names[gather.column] if names else gather.column
            raise TraceError(
                f"{describe(f)}: column {column!r} is an index and a number as well; give it twice"
            )
