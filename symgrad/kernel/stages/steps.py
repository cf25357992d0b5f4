"""A step of a plan: a dispatch of a kernel, whose arrays have no names yet, or what NumPy does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from symgrad.arrays.scalars import Array
from symgrad.kernel.language.ir import Target
from symgrad.kernel.launch import Dispatch, Program
from symgrad.kernel.stages.host_steps import HostStep


@dataclass(frozen=True, eq=False)
class Step:
    """A dispatch of a program.

    ``reads`` and ``writes`` are its buffers, by their names, and the arrays that they are bound to.
    """

    program: Program
    target: Target
    reads: tuple[tuple[str, Array], ...]
    writes: tuple[tuple[str, Array], ...]
    count: int
    groups: int
    words: tuple[tuple[str, int], ...]
    title: str

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The arrays that are read."""
        return tuple(a for _, a in self.reads)

    @property
    def outputs(self) -> tuple[Array, ...]:
        """The arrays that are written."""
        return tuple(a for _, a in self.writes)

    def dispatch(self, names: Mapping[Array, Any]) -> Dispatch:
        """The dispatch on arrays of these names."""
        arrays = tuple((buffer, names[a]) for buffer, a in (*self.reads, *self.writes))
        return Dispatch(self.program, self.target, arrays, self.count, self.groups, self.words)


def numbered(letter: str, arrays: Iterable[Array]) -> tuple[tuple[str, Array], ...]:
    """Arrays bound to the buffers of this letter and their number."""
    return tuple((f"{letter}{n}", a) for n, a in enumerate(arrays))


def widths(writes: Sequence[Array]) -> tuple[int, ...]:
    """How many neighbours are the same array, for each array; nothing if all are one each."""
    counts = tuple(len(list(group)) for _, group in groupby(writes, key=id))
    return () if len(counts) == len(writes) else counts


AnyStep = Step | HostStep
