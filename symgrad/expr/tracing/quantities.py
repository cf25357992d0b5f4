"""Which columns of a row are quantities: more than compared, or used as indices.

A column of labels holds codes, and these can be compared and index arrays; anything else that is
done with them would depend on the order of the labels.
"""

from __future__ import annotations

from collections.abc import Sequence

from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.region import TURNS, Choice, Loop, Pick, Region

Columns = int
"""A set of columns: bit k is the one of number k."""


def quantities(graph: Graph, columns: Sequence[int], outputs: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the columns, input nodes, that are quantities for these outputs."""
    dependence = _Dependence()
    masks = {i: 1 << k for k, i in enumerate(columns)}
    by_node = dependence.of(graph, masks)
    every = dependence.together
    for i in outputs:
        every |= by_node[i]
    return tuple(k for k in range(len(columns)) if every >> k & 1)


class _Dependence:
    """What nodes depend on, and the columns that are compared with each other."""

    def __init__(self) -> None:
        self.together: Columns = 0

    def of(self, graph: Graph, given: dict[int, Columns]) -> list[Columns]:
        """What each node of a graph depends on, if its inputs do on these."""
        masks: list[Columns] = []
        results: dict[int, list[Columns]] = {}
        for i, (op, *args) in enumerate(graph.nodes):
            if not op.arity:
                masks.append(given.get(i, 0))
                continue
            each = [masks[a] for a in args]
            if isinstance(op, Pick):
                mine = results[args[0]]
                masks.append(mine[0] if op.index == TURNS else mine[1 + op.index])
            elif isinstance(op, Loop):
                results[i] = self._loop(op, each)
                masks.append(0)
            elif isinstance(op, Choice):
                results[i] = self._choice(op, each)
                masks.append(0)
            elif graph.type(i) == "b":
                masks.append(self._compared(each))
            elif op.name == "get":
                masks.append(each[0])
            else:
                masks.append(_union(each if op.name != "put" else [each[0], each[2]]))
        return masks

    def _compared(self, each: list[Columns]) -> Columns:
        """Nothing; codes of different columns stand for different labels."""
        masks = [columns for columns in each if columns]
        if any(columns != masks[0] for columns in masks):
            self.together |= _union(masks)
        return 0

    def _loop(self, op: Loop, each: list[Columns]) -> list[Columns]:
        """What the number of iterations and the carries depend on."""
        ends, (carries, captures) = _union(each[:2]), op.split(each[2:])
        while True:
            yields = self._region(op.body, [ends, *carries, *captures])[: op.carries]
            after = [a | b | ends for a, b in zip(carries, yields, strict=True)]
            if after == carries:
                return [ends, *carries]
            carries = after

    def _choice(self, op: Choice, each: list[Columns]) -> list[Columns]:
        """What the results depend on."""
        yields = self._region(op.body, each[1:])
        halves = zip(yields[: op.results], yields[op.results :], strict=True)
        return [0, *(a | b for a, b in halves)]

    def _region(self, body: Region, params: list[Columns]) -> list[Columns]:
        masks = self.of(body.graph, dict(zip(body.params, params, strict=True)))
        return [masks[i] for i in body.yields]


def _union(each: list[Columns]) -> Columns:
    union = 0
    for columns in each:
        union |= columns
    return union
