"""A step of a plan: a dispatch of a kernel, whose arrays have no names yet, or what NumPy does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symgrad.arrays.scalars import Affine, Array, Read, Reduce, Scalars
from symgrad.kernel.language import Target
from symgrad.kernel.launch import Dispatch, Program
from symgrad.kernel.stages.host_steps import HostStep


@dataclass(frozen=True, eq=False)
class Step:
    """A dispatch of a program.

    ``reads`` are the arrays that its buffers ``a0``, .. are bound to, and ``writes`` those of
    ``y0``, ..; ``more`` are other buffers that are read, with their arrays.
    """

    program: Program
    target: Target
    reads: tuple[Array, ...]
    writes: tuple[Array, ...]
    count: int
    groups: int
    words: tuple[tuple[str, int], ...]
    title: str
    more: tuple[tuple[str, Array], ...] = ()

    @property
    def inputs(self) -> tuple[Array, ...]:
        """All arrays that are read."""
        return *self.reads, *(a for _, a in self.more)

    def dispatch(self, names: Mapping[Array, Any]) -> Dispatch:
        """The dispatch on arrays of these names."""
        bound = [(f"a{n}", names[a]) for n, a in enumerate(self.reads)]
        bound += [(f"y{n}", names[a]) for n, a in enumerate(self.writes)]
        bound += [(name, names[a]) for name, a in self.more]
        arrays = tuple(bound)
        return Dispatch(self.program, self.target, arrays, self.count, self.groups, self.words)


AnyStep = Step | HostStep


def replaced(scalars: Scalars, root: int, known: Mapping[int, int]) -> int:
    """A scalar with other nodes in the place of some; reductions that are not among them stay."""
    ids = dict(known)
    for i in scalars.shallow([root]):
        if i in ids:
            continue
        op, args = scalars.op(i), scalars.args(i)
        new = [ids.get(a, a) for a in args]
        if isinstance(op, Reduce) or list(args) == new:
            ids[i] = i
        elif isinstance(op, Affine):
            ids[i] = scalars.affine(op.offset, zip(op.coefficients, new, strict=True))
        elif isinstance(op, Read):
            ids[i] = scalars.read(op.array, new)
        else:
            ids[i] = scalars.graph.add(op, *new)
    return ids[root]
