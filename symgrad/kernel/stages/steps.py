"""A step of a plan: a dispatch of a kernel, whose arrays have no names yet, or what NumPy does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from symgrad.arrays.scalars import Affine, Array, Read, Reduce, Scalars
from symgrad.kernel.language import Target
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


AnyStep = Step | HostStep


def replaced(scalars: Scalars, root: int, known: Mapping[int, int], within: bool = False) -> int:
    """A scalar with other nodes in the place of some.

    Reductions that are not among them stay, unless nodes ``within`` them are replaced too.
    """
    ids = dict(known)
    for i in scalars.walk([root]) if within else scalars.shallow([root]):
        if i in ids:
            continue
        op, args = scalars.op(i), scalars.args(i)
        new = [ids.get(a, a) for a in args]
        if list(args) == new or (isinstance(op, Reduce) and not within):
            ids[i] = i
        elif isinstance(op, Reduce):
            ids[i] = scalars.reduction(op.operator, op.counters, *new)
        elif isinstance(op, Affine):
            ids[i] = scalars.affine(op.offset, zip(op.coefficients, new, strict=True))
        elif isinstance(op, Read):
            ids[i] = scalars.read(op.array, new)
        else:
            ids[i] = scalars.graph.add(op, *new)
    return ids[root]
