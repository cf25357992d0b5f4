"""Which values of a kernel are the same in all invocations of a group, and which vary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from symgrad.expr.graph.node import reachable
from symgrad.kernel.language.ir import KernelIR, operands
from symgrad.kernel.language.statements import (
    OVER_LANES,
    Buffer,
    For,
    GroupReduce,
    If,
    Load,
    ReadRow,
    Routine,
    Statement,
    Store,
)


def varying(kernel: KernelIR, memory: bool = False) -> frozenset[int]:
    """The values that may differ among the invocations of a group.

    With ``memory`` also those that are loaded from what invocations write to, at one index or not:
    compilers of WGSL take no such value for uniform.
    """
    return frozenset(Uniformity(kernel, memory).variant)


class Uniformity:
    """The values of a kernel that vary, and where invocations part, item by item.

    ``variant`` are the values that may differ among the invocations of a group, or ``among`` groups
    as well; of a kernel that floats, also what is made of such values does. ``parted`` are the
    statements that stand where invocations may go different ways, and the outermost statement at
    which they part.
    """

    def __init__(
        self,
        kernel: KernelIR,
        memory: bool = False,
        among: Literal["invocations", "groups"] = "invocations",
    ) -> None:
        self.kernel, self.nodes, self.memory, self.among = kernel, kernel.graph.nodes, memory, among
        self.variant = {kernel.cell, kernel.local if among == "invocations" else kernel.group}
        self.parted: dict[Statement, For | If] = {}
        self._variables: set[Buffer] = set()
        """The variables that vary."""
        self._follow(kernel.main.items, None)

    def varies(self, i: int) -> bool:
        """Whether a value of a kernel that floats may differ."""
        return not self.variant.isdisjoint(reachable(self.kernel.graph, [i]))

    def _follow(self, items: Iterable[int | Statement], head: For | If | None) -> None:
        """Find what varies of what some items make, where invocations have parted at a ``head``."""
        nodes, variant = self.nodes, self.variant
        for item in items:
            if not isinstance(item, int):
                if head is not None:
                    self.parted[item] = head
                if self.kernel.floating:
                    self._compute(item)
                self._statement(item, head)
                continue
            node = nodes[item]
            varies = node[1] in variant or not variant.isdisjoint(node[2:])
            if varies and node[0] not in OVER_LANES:
                variant.add(item)

    def _compute(self, item: Statement) -> None:
        """Follow what a statement needs, which stands nowhere."""
        index = [item.index] if isinstance(item, Load | Store) else []
        needed = reachable(self.kernel.graph, [*operands(self.kernel, item), *index])
        self._follow([i for i in needed if self.nodes[i][0].arity], None)

    def _statement(self, item: Statement, head: For | If | None) -> None:
        match item:
            case Load(result=result, buffer=buffer, index=index, agreed=False):
                memory = self.memory and buffer.space in ("write", "group")
                stored = buffer.space == "own" or buffer in self._variables
                if memory or stored or index in self.variant:
                    self.variant.add(result)
            case Store(buffer=buffer, value=value) if buffer.space == "variable":
                if head is not None or value in self.variant:
                    self._variables.add(buffer)
            case GroupReduce(result=result, value=value, among=among):
                width = self.kernel.target.width
                agreed = among == width and self.among == "invocations"
                if among not in (1, width) or (value in self.variant and not agreed):
                    self.variant.add(result)
            case ReadRow(row=row, results=columns):
                if row in self.variant:
                    self.variant.update(columns.values())
            case Routine(scope=scope, params=params):
                self.variant.update(params)
                self._follow(scope.items, head)
            case If():
                self._if(item, head)
            case For():
                self._for(item, head)
            case _:
                pass

    def _if(self, item: If, head: For | If | None) -> None:
        parts = item.condition in self.variant
        for side in item.sides:
            self._follow(side.items, head or (item if parts else None))
        for result, *values in zip(item.results, *item.yields, strict=False):
            if not self.variant.isdisjoint((item.condition, *values)):
                self.variant.add(result)

    def _for(self, loop: For, head: For | If | None) -> None:
        """Follow the iterations, until what is carried varies no more than before.

        Where one invocation takes more iterations than another, what a carry is differs too.
        """
        variant, new = self.variant, {loop.k} if loop.lo in self.variant else set[int]()
        while True:
            new.update(self._carried(loop))
            variant |= new
            variables = len(self._variables)
            self._follow(loop.scope.items, head or (loop if self._ends(loop) else None))
            new = set(self._carried(loop))
            if new <= variant and len(self._variables) == variables:
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
