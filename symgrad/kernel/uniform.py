"""Which values of a kernel are the same in all invocations of a group, and which vary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import (
    OVER_LANES,
    For,
    If,
    Load,
    ReadRow,
    Routine,
    Statement,
)


def varying(kernel: KernelIR, memory: bool = False) -> frozenset[int]:
    """The values that may differ among the invocations of a group.

    With ``memory`` also those that are loaded from what invocations write to, at one index or not:
    compilers of WGSL take no such value for uniform.
    """
    flow = _Flow(kernel, memory)
    flow.follow(kernel.main.items)
    return frozenset(flow.variant)


class _Flow:
    """What is found to vary, following the items of a kernel in their order."""

    def __init__(self, kernel: KernelIR, memory: bool) -> None:
        self.nodes, self.memory = kernel.graph.nodes, memory
        self.variant = {kernel.cell, kernel.local}

    def follow(self, items: Iterable[int | Statement]) -> None:
        """Find what varies of what some items make."""
        nodes, variant = self.nodes, self.variant
        for item in items:
            if not isinstance(item, int):
                self._statement(item)
                continue
            node = nodes[item]
            varies = node[1] in variant or not variant.isdisjoint(node[2:])
            if varies and node[0] not in OVER_LANES:
                variant.add(item)

    def _statement(self, item: Statement) -> None:
        match item:
            case Load(result=result, buffer=buffer, index=index, agreed=False):
                if self.memory or buffer.space == "own" or index in self.variant:
                    self.variant.add(result)
            case ReadRow(row=row, results=columns):
                if row in self.variant:
                    self.variant.update(columns.values())
            case Routine(scope=scope, params=params):
                self.variant.update(params)
                self.follow(scope.items)
            case If():
                self._if(item)
            case For():
                self._for(item)
            case _:
                pass

    def _if(self, item: If) -> None:
        for side in item.sides:
            self.follow(side.items)
        for result, *values in zip(item.results, *item.yields, strict=False):
            if not self.variant.isdisjoint((item.condition, *values)):
                self.variant.add(result)

    def _for(self, loop: For) -> None:
        """Follow the iterations, until what is carried varies no more than before.

        Where one invocation takes more iterations than another, what a carry is differs too.
        """
        variant, new = self.variant, {loop.k} if loop.lo in self.variant else set[int]()
        while True:
            new.update(self._carried(loop))
            variant |= new
            self.follow(loop.scope.items)
            new = set(self._carried(loop))
            if new <= variant:
                break
        pairs = zip(loop.params, loop.results, strict=False)
        variant.update(result for param, result in pairs if param in variant)
        if self._ends(loop):
            variant.add(loop.count)

    def _ends(self, loop: For) -> bool:
        """Whether some invocations turn more often than others."""
        return not self.variant.isdisjoint((loop.lo, loop.hi, loop.test))

    def _carried(self, loop: For) -> Iterator[int]:
        """The carries that vary."""
        ends = self._ends(loop)
        for param, init, following in zip(loop.params, loop.inits, loop.yields, strict=False):
            if ends or init in self.variant or following in self.variant:
                yield param


def diverges(statement: For | If, varying: frozenset[int]) -> bool:
    """Whether invocations of a group may part at a statement."""
    if isinstance(statement, If):
        return statement.condition in varying
    return not varying.isdisjoint((statement.lo, statement.hi, statement.test))
