"""Sums over rows in the lanes of a vector as a launch: pieces of the rows, and those of the rest.

Where rows add to the entries of tables, there are copies of these, each for some of the pieces, so
that threads need not wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.kernel.language import KernelIR, Target, widen
from symgrad.kernel.launch import Array, Dispatch, Launch, Part
from symgrad.kernel.row_sums import Read
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.row_sums_simd import row_sums_simd
from symgrad.kernel.table_gradients import indices_of
from symgrad.kernel.target import SimdTarget

MOST_NUMBERS: Final = 2**31
"""Numbers that a dispatch over rows reads, at most: words have to count them."""

TABLE_COPIES: Final = 8
"""Tables that results are added to side by side, if they go to the entries of tables."""


@dataclass(frozen=True, eq=False)
class LaneSums:
    """The program of the kernel of sums over rows in the lanes of a vector."""

    reduction: Reduction

    def __call__(self, target: SimdTarget) -> KernelIR:
        """The kernel for its target."""
        return row_sums_simd(self.reduction, target)

    @property
    def results(self) -> int:
        """How many results are summed over all rows."""
        return sum(len(o.nodes) for o in self.reduction.summed)


def cleared(target: Target) -> KernelIR:
    """The kernel that sets float64 numbers to 0, one in each invocation."""
    k = KernelIR(target, "cleared")
    k.store(k.buffer("sums", "write", "d"), k.cell, k.add(widen, k.constant(0.0)))
    return k


@dataclass(frozen=True)
class LaneSumsLaunch:
    """A launch that sums over rows in lanes: see `symgrad.kernel.row_sums.SumsLaunch`.

    Its inputs are the ``parameters`` and the ``table`` of each lookup, with zeros behind it for a
    vector, and what stays from call to call: the ``rows`` that fill whole vectors, and the
    ``rest``, which is filled up by the last of them again, as loops of rows have to end there too;
    so with the indices of both, where rows look entries up. Its outputs are the ``sums`` of pieces
    of the rows, and those of the rest, in float64; and the copies of the tables that rows add to.
    """

    launch: Launch
    whole: int
    """How many rows fill vectors."""
    rest: int
    """How many rows are left."""
    lanes: int

    def resident(self, rows: Any, indices: np.ndarray | None) -> dict[str, Any]:
        """The rows, and their indices, where they are."""
        kept = dict[str, np.ndarray]()
        arrays = [("rows", rows)] if indices is None else [("rows", rows), ("index", indices)]
        for name, array in arrays:
            if self.whole:
                kept[name] = array[: self.whole]
            if self.rest:
                kept[f"{name}_rest"] = _filled_up(array[self.whole :], self.lanes)
        return kept

    def looked_up(self, tables: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The tables with zeros behind."""
        return [np.concatenate([t.ravel(), np.zeros(self.lanes, t.dtype)]) for t in tables]

    def total(self, outputs: Sequence[np.ndarray], read: Read) -> np.ndarray:
        """The sums (results,) in float64: the same whoever has computed which piece."""
        first = outputs[0]
        if not self.whole:
            return first.copy()
        rest = outputs[1] if self.rest else 0.0
        if len(first) == 1:
            return first[0] + rest
        pieces = np.empty(first.T.shape + np.array([0, 1]))
        pieces[:, :-1], pieces[:, -1] = first.T, rest
        return pieces.sum(axis=1)  # NumPy adds whole rows in turn, within a row in halves

    def added(
        self, tables: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """The sums that belong to the entries of each table, in float64."""
        pairs = zip(outputs[-len(tables) :], tables, strict=True)
        return [a.sum(axis=0)[: t.size].reshape(t.shape) for a, t in pairs]


def lane_sums_launch(
    program: LaneSums, target: SimdTarget, count: int, sizes: Sequence[int], weight: int
) -> LaneSumsLaunch:
    """The launch that sums over so many rows, which look entries up in tables of these sizes.

    A row costs about ``weight`` additions.
    """
    launch = _LaneSums(program, target, count, sizes, weight).launch()
    rest = count % target.width
    return LaneSumsLaunch(launch, count - rest, rest, target.width)


class _LaneSums:
    """The parts of a launch."""

    def __init__(
        self, program: LaneSums, target: SimdTarget, count: int, sizes: Sequence[int], weight: int
    ) -> None:
        self._program, self._target, self._weight = program, target, weight
        self._lanes, self._piece = target.width, target.summing.piece
        self._rest = count % self._lanes
        self._whole, self._sizes = count - self._rest, sizes
        self._pieces = -(-self._whole // self._piece)
        self._copies = max(1, min(TABLE_COPIES, self._pieces)) if sizes else 1
        self._strides = [(-(-size // self._lanes) + 1) * self._lanes for size in sizes]
        """Numbers from one copy of a table to the next."""
        self._columns = program.reduction.columns
        self._indices = indices_of(program.reduction)

    def launch(self) -> Launch:
        """The launch."""
        dispatches = [*self._clear(), *self._sum(), *self._sum_rest()]
        name = self._program.reduction.name
        return Launch(name, tuple(self._inputs()), tuple(self._outputs()), (), tuple(dispatches))

    def _inputs(self) -> Iterator[Array]:
        reduction = self._program.reduction
        yield Array("parameters", (reduction.parameters,))
        yield from (Array(f"table{n}", (s + self._lanes,)) for n, s in enumerate(self._sizes))
        for suffix, rows in (("", self._whole), ("_rest", self._lanes if self._rest else 0)):
            if rows:
                yield Array(f"rows{suffix}", (rows, self._columns))
                if self._indices:
                    yield Array(f"index{suffix}", (rows, self._indices), "u")

    def _outputs(self) -> Iterator[Array]:
        if self._pieces:
            yield Array("sums", (self._pieces, self._program.results), "d")
        if self._rest:
            yield Array("sums_rest", (self._program.results,), "d")
        for n, stride in enumerate(self._strides):
            yield Array(f"added{n}", (self._copies, stride), "d")

    def _clear(self) -> Iterator[Dispatch]:
        """The dispatches that set the copies of the tables to 0."""
        for copy in range(self._copies):
            for n, stride in enumerate(self._strides):
                bound = ("sums", self._copy(n, copy))
                yield Dispatch(cleared, self._target, (bound,), stride, cost=1)

    def _copy(self, n: int, copy: int) -> Part:
        return Part(f"added{n}", copy * self._strides[n], self._strides[n])

    def _sum(self) -> Iterator[Dispatch]:
        """The dispatches over the pieces: those of each copy of the tables, and not too many."""
        columns = max(self._columns, self._indices, 1)
        most = max(1, MOST_NUMBERS // (self._piece * columns))
        for copy in range(self._copies):
            first, end = (self._pieces * k // self._copies for k in (copy, copy + 1))
            for begin in range(first, end, most):
                yield self._sum_pieces(copy, begin, min(begin + most, end))

    def _sum_pieces(self, copy: int, first: int, end: int) -> Dispatch:
        start, stop = first * self._piece, min(end * self._piece, self._whole)
        return self._dispatch("", start, stop - start, copy, first, end - first)

    def _sum_rest(self) -> Iterator[Dispatch]:
        """The dispatch over the last rows."""
        if self._rest:
            yield self._dispatch("_rest", 0, self._rest, 0, 0, 1)

    def _dispatch(
        self, suffix: str, start: int, rows: int, copy: int, first: int, groups: int
    ) -> Dispatch:
        """The sums of so many groups over so many rows, to numbers ``first`` and on."""
        whole = bool(suffix) or rows == self._whole
        places = {"sums": (first, groups, self._program.results)}
        places["rows"] = start, rows, self._columns
        if self._indices:
            places["index"] = start, rows, self._indices
        arrays: list[tuple[str, str | Part]] = [("parameters", "parameters")]
        for name, (begin, count, columns) in places.items():
            part = Part(name, begin * columns, count * columns)
            arrays.append((name, f"{name}{suffix}" if whole else part))
        for n in range(len(self._sizes)):
            arrays += [(f"table{n}", f"table{n}"), (f"added{n}", self._copy(n, copy))]
        cost = max(1, rows * self._weight // (groups * self._lanes))
        return Dispatch(self._program, self._target, tuple(arrays), rows, groups, cost=cost)


def _filled_up(rows: np.ndarray, count: int) -> np.ndarray:
    """The rows, and the last one again as often as makes up this count."""
    filled = np.empty((count, rows.shape[1]), rows.dtype)
    filled[: len(rows)], filled[len(rows) :] = rows, rows[-1:]
    return filled
