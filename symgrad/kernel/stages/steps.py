"""A step of a plan: a dispatch of a kernel, whose arrays have no names yet, or what NumPy does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from symgrad.arrays.scalars import Array, Reduce, Scalars, rebuilt, replaced
from symgrad.kernel.language import Target
from symgrad.kernel.launch import Dispatch, Program
from symgrad.kernel.stages.combine import FLOATS
from symgrad.kernel.stages.host_steps import HostStep
from symgrad.kernel.stages.sizes import SHORT_AXIS, WRITTEN_OUT


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


def unrolled(scalars: Scalars, roots: Sequence[int]) -> tuple[int, ...]:
    """Scalars in which short reductions of floats that stand within others are written out.

    So what does not move with the outer one is loaded once, as a point whose distances from all
    others are summed.
    """
    s, ids = scalars, dict[int, int]()
    top = [s.args(i) for i in s.shallow(roots) if isinstance(s.op(i), Reduce)]
    inner = set(s.walk([a for args in top for a in args]))
    for i in s.walk(roots):
        ids[i] = rebuilt(s, i, ids)
        if i in inner and isinstance(op := s.op(ids[i]), Reduce):
            ids[i] = _written_out(s, ids[i], op)
    return tuple(ids[root] for root in roots)


def _written_out(s: Scalars, reduction: int, op: Reduce) -> int:
    """A reduction as its terms, one after the other; itself if it is not short."""
    terms, (body, *_) = prod(map(s.extent, op.counters)), s.args(reduction)
    if op.operator not in FLOATS or s.graph.type(body) != "f" or terms > SHORT_AXIS:
        return reduction
    if terms * len(s.walk([body])) > WRITTEN_OUT:
        return reduction
    total: int | None = None
    for index in product(*(range(s.extent(c)) for c in op.counters)):
        known = {c: s.number(n) for c, n in zip(op.counters, index, strict=True)}
        term = replaced(s, body, known, within=True)
        total = term if total is None else s.graph.add(FLOATS[op.operator], total, term)
    return reduction if total is None else total
