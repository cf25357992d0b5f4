"""Points of kernels over rows, put together: parameters, columns, and entries of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.kernel.index import Index
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.statements import Buffer
from symgrad.kernel.target import WorkgroupTarget

JOIN_INVOCATIONS: Final = 256
"""Invocations of a workgroup that puts points together."""


@dataclass(frozen=True)
class Entry:
    """An entry of a table that a row's index names.

    The index stands in ``column`` of all indices, the table begins at ``start`` of the parameters.
    """

    column: int
    start: int
    width: int


@dataclass(frozen=True)
class Pattern:
    """The parts of a point: the first of the parameters, the columns of a row, and entries.

    As a program it writes the kernel that puts points together, an invocation for each of their
    numbers. Its buffers are ``parameters``, ``numbers`` (rows, columns) and ``indices`` (rows,
    indices), those of them that there are, and ``points``; numbers are moved bit by bit.
    """

    uniform: int
    columns: int
    indices: int
    entries: tuple[Entry, ...]
    dtype: str = "float32"
    """The dtype of the numbers of points."""

    @property
    def width(self) -> int:
        """The numbers of a point."""
        return self.uniform + self.columns + sum(entry.width for entry in self.entries)

    @property
    def sources(self) -> list[str]:
        """The names of the arrays that points are put together from."""
        present = {
            "parameters": self.uniform or self.entries,
            "numbers": self.columns,
            "indices": self.entries,
        }
        return [name for name, is_present in present.items() if is_present]

    def launch(self, rows: int, parameters: int) -> Launch:
        """The launch for so many rows, and so many parameters."""
        shapes = {
            "parameters": (parameters,),
            "numbers": (rows, self.columns),
            "indices": (rows, self.indices),
        }
        inputs = tuple(Array(name, shapes[name], self._kind_of(name)) for name in self.sources)
        points = Array("points", (rows, self.width), self._kind)
        names = tuple((a.name, a.name) for a in (*inputs, points))
        target = WorkgroupTarget(JOIN_INVOCATIONS, grid=True)
        dispatch = Dispatch(self, target, names, rows * self.width)
        return Launch("row_points", inputs, (points,), (), (dispatch,))

    @property
    def _kind(self) -> str:
        """The kind of what is moved: words, or floats where these are wider."""
        return "u" if self.dtype == "float32" else "f"

    def _kind_of(self, name: str) -> str:
        return "u" if name == "indices" else self._kind

    def __call__(self, target: Target) -> KernelIR:
        """The kernel for a target."""
        k = KernelIR(target, "row_points")
        buffers = {name: k.buffer(name, "read", self._kind_of(name)) for name in self.sources}
        points = k.buffer("points", "write", self._kind)
        row, number = divmod(Index(k, k.target.point(k)), self.width)
        (value,) = _Number(k, self, buffers, row, number).chosen()
        k.when(Index(k, k.cell).below(Index(k, k.count)), lambda: k.store(points, k.cell, value))
        return k


@dataclass(frozen=True)
class _Number:
    """A number of a row's point, which comes from one of several places."""

    k: KernelIR
    pattern: Pattern
    buffers: dict[str, Buffer]
    row: Index
    number: Index

    def chosen(self) -> Sequence[int]:
        """The value, by a branch for each place."""
        p, ends = self.pattern, [self.pattern.uniform]
        ends.append(p.uniform + p.columns)
        for entry in p.entries:
            ends.append(ends[-1] + entry.width)
        return self._after(0, ends)

    def _after(self, part: int, ends: Sequence[int]) -> Sequence[int]:
        first = ends[part - 1] if part else 0
        if part == len(ends) - 1:
            return [self._of(part, first)]
        if ends[part] == first:
            return self._after(part + 1, ends)
        return self.k.choose(
            self.number.below(ends[part]),
            lambda: [self._of(part, first)],
            lambda: self._after(part + 1, ends),
        )

    def _of(self, part: int, first: int) -> int:
        """The value in a part of a point that begins at this number."""
        k, p, buffers = self.k, self.pattern, self.buffers
        at = self.number - first
        if part == 0:
            return k.load(buffers["parameters"], at.id)
        if part == 1:
            return k.load(buffers["numbers"], (self.row * p.columns + at).id)
        entry = p.entries[part - 2]
        index = k.load(buffers["indices"], (self.row * p.indices + entry.column).id)
        place = Index(k, index) * entry.width + at + entry.start
        return k.load(buffers["parameters"], place.id)
