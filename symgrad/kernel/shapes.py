"""Computations, before they are kernels: of points, of rows, and again and again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.graph.node import INPUT, STRUCTURED, Graph, reachable
from symgrad.kernel.language.target import POINTS_PER_WORKGROUP, invocations


@dataclass(frozen=True)
class Output:
    """One result array: ``nodes[k]`` is its k-th column."""

    name: str
    nodes: tuple[int, ...]


def unique(names: list[str]) -> list[str]:
    """The names, made different by a number where two are the same."""
    taken = set(names)
    seen: set[str] = set()
    result: list[str] = []
    for name in names:
        k = 2
        fresh = name
        while fresh in seen:
            fresh, k = f"{name}_{k}", k + 1
            fresh = f"{fresh}_" if fresh in taken else fresh
        seen.add(fresh)
        result.append(fresh)
    return result


@dataclass(frozen=True)
class Computation:
    """The computation of a kernel at every point, and nothing of how: a graph, and its results."""

    name: str
    graph: Graph
    outputs: tuple[Output, ...]

    @cached_property
    def is_structured(self) -> bool:
        """Whether there are loops, choices or arrays in it."""
        graph = self.graph
        if all(op.result not in STRUCTURED for op in graph.heads):
            return False
        first = next(i for i in range(len(graph)) if graph.type(i) in STRUCTURED)
        roots = [i for o in self.outputs for i in o.nodes]
        return any(graph.type(i) in STRUCTURED for i in reachable(graph, roots, first))

    @cached_property
    def workgroup(self) -> int:
        """The invocations of a workgroup that computes it at every point."""
        if self.is_structured:
            return POINTS_PER_WORKGROUP
        roots = [i for o in self.outputs for i in o.nodes]
        cost = sum(self.graph.nodes[i][0].cost for i in reachable(self.graph, roots))
        return invocations(len(self.graph.names) + len(roots), cost)


@dataclass(frozen=True)
class Lookup:
    """Inputs of a row that stand in a table, in the entry that one of the row's indices names.

    The table, (entries, width), stands behind the parameters. What kernels are does not depend on
    how many entries there are.
    """

    index: int
    width: int
    entries: int

    @property
    def size(self) -> int:
        """The numbers of the table."""
        return self.entries * self.width


PADDING: Final = 16
"""Zeros behind tables: as many as the widest vector has numbers."""


@dataclass(frozen=True)
class Reduction(Computation):
    """A computation at every row of a table, whose results are summed over the rows.

    Invariants:
      1. The inputs are the parameters, which are the same for all rows, a row's columns, and then
         those of each lookup.
      2. The last outputs belong to the lookups, one each, as wide: they are added up in the entries
         of a table that the same indices name. The others are summed over all rows.
      3. ``factors`` are nodes of the parameters alone, one for each of the results that are summed
         over all rows, by which the sums are multiplied.
      4. If it is ``normal``, each output is a residual's derivatives by n variables and then the
         residual, and what is summed are products of these: see `Matrix`.
    """

    parameters: int
    factors: tuple[int, ...]
    lookups: tuple[Lookup, ...] = ()
    normal: bool = False

    @property
    def columns(self) -> int:
        """The numbers in a row."""
        return len(self.graph.names) - self.parameters - sum(k.width for k in self.lookups)

    @property
    def indices(self) -> int:
        """The number of a row's indices."""
        return max((k.index for k in self.lookups), default=-1) + 1

    @property
    def results(self) -> int:
        """How many results are summed over all rows."""
        return sum(len(o.nodes) for o in self.summed)

    @property
    def packed_size(self) -> int:
        """The numbers of a call: the parameters, and behind them tables, and zeros for a vector."""
        tables = sum(k.size for k in self.lookups)
        return self.parameters + tables + (PADDING if self.lookups else 0)

    def packed(self, parameters: np.ndarray, tables: Iterable[np.ndarray] = ()) -> np.ndarray:
        """The numbers of a call, one behind the other."""
        if not self.lookups:
            return parameters
        zeros = np.zeros(PADDING, parameters.dtype)
        return np.concatenate([parameters, *(t.ravel() for t in tables), zeros])

    def entries(self, totals: np.ndarray) -> list[np.ndarray]:
        """Of the sums over rows, those of each table's entries, which stand behind the results."""
        tables, start = list[np.ndarray](), self.results
        for k in self.lookups:
            tables.append(totals[start : start + k.size].reshape(k.entries, k.width))
            start += k.size
        return tables

    @property
    def row_inputs(self) -> list[int]:
        """The nodes of the inputs that differ from row to row: columns, and what is looked up."""
        inputs = {n[1]: i for i, n in enumerate(self.graph.nodes) if n[0] is INPUT}
        return [inputs[k] for k in range(self.parameters, len(self.graph.names))]

    @property
    def summed(self) -> tuple[Output, ...]:
        """The outputs that are summed over all rows, as they are."""
        return () if self.normal else self.outputs[: len(self.outputs) - len(self.lookups)]


@dataclass(frozen=True)
class Call:
    """An operation on the matrix M (n, n) of an iteration between two parts of its update.

    - "keep", of a number c: M becomes the matrix of the sums if c is not 0.
    - "product", of v (n,): M v.
    - "solve", of a right side, a diagonal and floors, each (n,), and optionally active bounds:
      the solution x of A x = right by A = L D Lᵀ, no number of D less than its floor. A is M with
      that diagonal, and with zeros beside it in the rows and columns where a bound is active.

    ``results`` are the numbers of the update's inputs that take the answer.
    """

    kind: Literal["keep", "product", "solve"]
    results: range


@dataclass(frozen=True)
class Matrix:
    """A symmetric matrix in each state of an iteration, for loops rather than single statements.

    Its lower half, row by row, are the numbers of the state from ``first`` on. The rows of the
    iteration are `Reduction.normal`: with residuals r and their derivatives J, the sums are
    rᵀr/2, Jᵀr and the lower half of JᵀJ, each times ``weight``.

    Invariants:
      1. The inputs of the update are the state, the sums, and the results of the calls.
      2. Its outputs are the next state, of which the numbers of the matrix are left as they are,
         and the arguments of each call, which depend on results of earlier calls only.
      3. No "keep" comes after a "solve": one may need the memory of the other.
    """

    n: int
    first: int
    weight: float
    calls: tuple[Call, ...]

    @property
    def size(self) -> int:
        """The numbers in the lower half."""
        return self.n * (self.n + 1) // 2

    @property
    def places(self) -> range:
        """Where in the state they are."""
        return range(self.first, self.first + self.size)


@dataclass(frozen=True)
class Iteration:
    """A computation that is repeated for each of many problems, each with a state of its own.

    A step is: where the state's last number, the flag, is not 0, the state becomes
    ``update(state, sums)``; elsewhere it stays. ``sums`` are those of ``rows`` over the rows of the
    problem's data, times their factors, at the first ``rows.parameters`` numbers of the state.

    Invariants:
      1. The inputs of ``update`` are the state and then the sums, if there are rows; it has one
         output, the next state, of as many columns as the state. With a ``matrix`` both go on: see
         there. Where the sums are ``given`` from outside, it says how many.
      2. Of a row's columns the first ``shared`` are the same for all problems.
      3. The rows look nothing up: no problem has a table. They sum at least one result, and they
         are `Reduction.normal` only for a ``matrix``.
    """

    update: Computation
    state: int
    rows: Reduction | None = None
    shared: int = 0
    matrix: Matrix | None = None
    given: int = 0
    mode: str | None = field(default=None, compare=False)
    """How the Jacobian or Hessian that it needs was made."""

    def __post_init__(self) -> None:
        roots = [i for o in self.update.outputs for i in o.nodes]
        assert self.state > 0, "a state has a flag at least"
        types = {self.update.graph.type(i) for i in roots}
        assert types == {"f"}, f"a step's results are floats, not {sorted(types)}"
        if self.rows:
            self._require_rows(self.rows)
        if not self.matrix:
            sums = sum(len(o.nodes) for o in self.rows.outputs) if self.rows else self.given
            self._require_update(sums)

    def _require_rows(self, rows: Reduction) -> None:
        """Checks what back ends rely on, of the rows of a step."""
        assert not rows.lookups, f"{rows.name}: the rows of a step look nothing up"
        assert rows.outputs, f"{rows.name}: nothing is summed over the rows of a step"
        assert rows.parameters <= self.state, (
            f"{rows.name}: rows of {rows.parameters} parameters, in a state of {self.state} numbers"
        )
        assert 0 <= self.shared <= rows.columns, (
            f"{rows.name}: {self.shared} columns of {rows.columns} are shared"
        )
        assert self.matrix or not rows.normal, f"{rows.name}: normal equations without a matrix"

    def _require_update(self, sums: int) -> None:
        """Checks what back ends rely on, of an update without a matrix."""
        counts = [len(o.nodes) for o in self.update.outputs]
        assert counts == [self.state], f"{self.update.name}: results {counts}, not {[self.state]}"
        inputs = len(self.update.graph.names)
        assert inputs == self.state + sums, (
            f"{self.update.name}: {inputs} inputs for a state of {self.state} and {sums} sums"
        )

    @property
    def own(self) -> int:
        """The columns of which each problem has its own."""
        return self.rows.columns - self.shared if self.rows else 0


# --- problems -------------------------------------------------------------------------------------
# The arrays that an iteration runs on: one state for each problem, and the data of its rows.


@dataclass(frozen=True)
class RowData:
    """The data of rows: ``shared`` (R, ks) by all problems, ``own`` (S, R, ko) of each.

    Either is None where an iteration has no such columns.
    """

    shared: Any = None
    own: Any = None

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of both kinds."""
        shared, own = (0 if a is None else a.shape[-1] for a in (self.shared, self.own))
        return shared, own

    @property
    def rows(self) -> int:
        """The rows of a problem; 0 if there are no data."""
        array = self.own if self.shared is None else self.shared
        return 0 if array is None else array.shape[-2]

    def of(self, part: slice) -> RowData:
        """The data of some of the problems."""
        return self if self.own is None else RowData(self.shared, self.own[part])

    def arrays(self, count: int) -> tuple[Any, Any]:
        """Both, of so many problems: arrays without columns in the place of None."""
        shared = np.empty((self.rows, 0)) if self.shared is None else self.shared
        return shared, np.empty((count, self.rows, 0)) if self.own is None else self.own

    def contiguous(self, dtype: Any) -> RowData:
        """The data in this dtype and in C order, on the host."""
        arrays = self.shared, self.own
        return RowData(*(a if a is None else np.ascontiguousarray(a, dtype) for a in arrays))


NO_DATA: Final = RowData()
"""The data of iterations without rows."""


@dataclass(frozen=True)
class Problems:
    """How many problems there are, and how many rows of data each has."""

    count: int
    rows: int


def problems_of(iteration: Iteration, state: tuple[int, ...], data: RowData) -> Problems:
    """The sizes of a state of this shape and of data.

    Raises:
        InputError: an array is missing, is there for nothing, or has another shape.
    """
    if len(state) != 2 or state[1] != iteration.state:
        raise InputError(f"a state of shape {state}: expected (S, {iteration.state})")
    count, rows = state[0], None
    for name, array, columns, axes in (
        ("shared", data.shared, iteration.shared, ()),
        ("own", data.own, iteration.own, (count,)),
    ):
        if (array is None) == (columns > 0):
            shown = "no array" if array is None else f"an array of shape {array.shape}"
            raise InputError(f"{shown} as {name} data: its rows have {columns} columns")
        if array is not None:
            rows = _rows(name, array.shape, (*axes, rows, columns))
    return Problems(count, rows or 0)


def _rows(name: str, shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> int:
    """The rows of an array whose shape must be the wanted one, where that is known."""
    if len(shape) != len(wanted) or any(
        w not in (None, s) for s, w in zip(shape, wanted, strict=True)
    ):
        axes = ", ".join("R" if w is None else str(w) for w in wanted)
        raise InputError(f"{name} data of shape {shape}: expected ({axes})")
    return shape[-2]
