"""Functions that a lone point calls several times: their calls stand side by side, in vectors.

A function of the library takes tens of instructions, and a vector's no more than a number's. So
calls of one that do not wait for one another are brought together, and done as one. They give the
same bits: what a function does to a lane does not depend on the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

from symgrad.expr.graph.node import Graph, Op
from symgrad.kernel.statements import For, If, results_of
from symgrad.llvm.printing.needs import Item

LEAST_CALLS: Final = 3
"""Calls that are done as one, at least."""

Values = Callable[[Item], Iterable[int]]
"""What a statement needs."""


def is_packed(op: Op, functions: Container[Op]) -> bool:
    """Whether an operation is a function of numbers that gives a number."""
    return op in functions and {*op.signature[: op.arity], op.result} == {"f"}


def side_by_side(
    items: Sequence[Item], graph: Graph, functions: Container[Op], values: Values
) -> list[Item]:
    """The items in an order in which calls that need none of each other stand together."""
    found: list[Item] = []
    run: list[Item] = []
    for item in items:
        if isinstance(item, (For, If)):
            found += [*_ordered(run, graph, functions, values), item]
            run = []
        else:
            run.append(item)
    return [*found, *_ordered(run, graph, functions, values)]


def _ordered(
    run: Sequence[Item], graph: Graph, functions: Container[Op], values: Values
) -> Sequence[Item]:
    """By how many calls one behind another each item waits for; statements keep their order."""
    level: dict[int, int] = {}
    keys: list[tuple[int, bool, str]] = []
    last = 0
    for item in run:
        if isinstance(item, int):
            op, here = (
                graph.nodes[item][0],
                max((level.get(a, 0) for a in graph.args(item)), default=0),
            )
            is_call = is_packed(op, functions)
            level[item] = here + is_call
            keys.append((here, is_call, op.name if is_call else ""))
            continue
        here = last = max([last, *[level.get(a, 0) for a in values(item)]])
        level.update(dict.fromkeys(results_of(item), here))
        keys.append((here, False, ""))
    calls = Counter(key for key in keys if key[1])
    if max(calls.values(), default=0) < LEAST_CALLS:
        return run
    return [run[n] for n in sorted(range(len(run)), key=keys.__getitem__)]
