"""Numbers that stand together in vectors, which are read and written whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr.graph.node import Graph
from symgrad.kernel.accesses import accesses
from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import Buffer, Load, Scope, Statement, Store, scopes_of
from symgrad.kernel.uses import Uses
from symgrad.kernel.vectors import Vector, vector_of

COMPONENTS: Final = "xyzw"


@dataclass(frozen=True)
class Together:
    """The stores of all numbers of a vector, in their order."""

    buffer: Buffer
    vector: Vector
    values: tuple[int, ...]


class Vectors:
    """The accesses of a kernel to buffers of vectors.

    ``first`` says of each number that is read together with others which of them is read first.
    """

    def __init__(self, kernel: KernelIR, uses: Uses) -> None:
        self._kernel, self._uses = kernel, uses
        self.indices: set[int] = set()
        """Indices of these buffers, and where vectors begin: nobody needs their values."""
        self.first: dict[int, int] = {}
        if any(b.vector > 1 for b in kernel.buffers):
            self._scope(kernel.main)

    def of(self, buffer: Buffer, index: int) -> tuple[Vector, str]:
        """The vector of an index, and which component of it."""
        location = vector_of(self._kernel.graph, index, buffer.vector)
        assert location is not None, f"the index {index} is of no known number of a vector"
        return location[0], COMPONENTS[location[1]]

    def joined(self, items: Iterable[int | Statement]) -> Iterator[int | Statement | Together]:
        """The items, stores of all numbers of a vector as one."""
        waiting: list[Store] = []
        for item in items:
            if isinstance(item, int):
                yield item
                continue
            if not self._goes_on(waiting, item):
                yield from waiting
                waiting = []
            if isinstance(item, Store) and self._goes_on(waiting, item):
                waiting.append(item)
                if len(waiting) == item.buffer.vector:
                    vector, _ = self.of(item.buffer, item.index)
                    yield Together(item.buffer, vector, tuple(s.value for s in waiting))
                    waiting = []
            else:
                yield item
        yield from waiting

    def _goes_on(self, waiting: Sequence[Store], item: Statement) -> bool:
        """Whether a store is that of the next number of a vector."""
        if not isinstance(item, Store) or item.add or item.buffer.vector == 1:
            return False
        buffer = item.buffer
        vector, component = self.of(buffer, item.index)
        same = [s.buffer is buffer and self.of(buffer, s.index)[0] == vector for s in waiting]
        return all(same) and component == COMPONENTS[len(waiting)]

    def _scope(self, scope: Scope) -> None:
        """Find what is read together: nodes of a scope, or loads with no other statement between.

        A run of loads ends where something else than a load stands.
        """
        loads, reads = defaultdict[object, list[int]](list), defaultdict[object, list[int]](list)
        for item in scope.items:
            for buffer, index in accesses(self._kernel, item):
                if buffer.vector > 1 and index is not None:
                    self._note(buffer, index, item, reads if isinstance(item, int) else loads)
            if not isinstance(item, int | Load) or (isinstance(item, Load) and item.agreed):
                self._join(loads.values())
                loads.clear()
                for inner in scopes_of(item):
                    self._scope(inner)
        self._join([*loads.values(), *reads.values()])

    def _note(
        self, buffer: Buffer, index: int, item: int | Statement, groups: dict[object, list[int]]
    ) -> None:
        graph = self._kernel.graph
        self.indices |= {index, *_starts(graph, index, buffer.vector)}
        result = item if isinstance(item, int) else item.result if isinstance(item, Load) else None
        if result is not None and result in self._uses.counts:
            groups[buffer, self.of(buffer, index)[0]].append(result)

    def _join(self, groups: Iterable[Sequence[int]]) -> None:
        for together in groups:
            if len(together) > 1:
                self.first.update((i, together[0]) for i in together)


def _starts(graph: Graph, index: int, width: int) -> Iterator[int]:
    """The arguments of an index that are operations: where its vector begins."""
    return (
        a for a in graph.args(index) if graph.args(a) and vector_of(graph, a, width) is not None
    )
