"""Functions that a lone point calls several times: their calls stand side by side, in vectors.

A function of the library takes tens of instructions, and a vector's no more than a number's. So
calls of one that do not wait for one another are brought together, and done as one. They give the
same bits: what a function does to a lane does not depend on the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

from symgrad.expr.graph.node import Graph, Op
from symgrad.kernel.statements import For, If, results_of
from symgrad.llvm.printing.needs import Item

LEAST_CALLS: Final = 3
"""Calls that are done as one, at least."""

Values = Callable[[Item], Iterable[int]]
"""What a statement needs."""


class Packed(dict[Op, bool]):
    """Whether operations are functions of numbers that give a number: each is asked once."""

    def __init__(self, functions: Container[Op]) -> None:
        super().__init__()
        self._functions = functions

    def __missing__(self, op: Op) -> bool:
        is_packed = op in self._functions and {*op.signature[: op.arity], op.result} == {"f"}
        self[op] = is_packed
        return is_packed


def side_by_side(
    items: Sequence[Item], graph: Graph, packed: Packed, values: Values
) -> Sequence[Item]:
    """The items in an order in which calls that need none of each other stand together."""
    order: list[Item] = []
    run: list[Item] = []
    for item in items:
        if item.__class__ is not int and isinstance(item, (For, If)):
            order += [*_ordered(run, graph, packed, values), item]
            run = []
        else:
            run.append(item)
    return [*order, *_ordered(run, graph, packed, values)]


def _ordered(run: Sequence[Item], graph: Graph, packed: Packed, values: Values) -> Sequence[Item]:
    """By how many calls one behind another each item waits for; statements keep their order."""
    nodes, level = graph.nodes, dict[int, int]()
    groups: defaultdict[tuple[int, str], list[Item]] = defaultdict(list)
    """What waits for so many calls, and, by the names of the functions, the calls among it."""
    last = 0
    for item in run:
        if isinstance(item, int):
            node, depth = nodes[item], 0
            op = node[0]
            if op.arity:
                for a in node[1:]:
                    if a in level and level[a] > depth:
                        depth = level[a]
            if packed[op]:
                level[item] = depth + 1
                groups[depth, op.name].append(item)
                continue
            if depth:
                level[item] = depth
        else:
            depth = last = max([last, *[level.get(a, 0) for a in values(item)]])
            level.update(dict.fromkeys(results_of(item), depth))
        groups[depth, ""].append(item)
    if max([len(calls) for (_, name), calls in groups.items() if name], default=0) < LEAST_CALLS:
        return run
    return [item for key in sorted(groups) for item in groups[key]]
