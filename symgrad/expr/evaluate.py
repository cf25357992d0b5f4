"""The meaning of a graph: a NumPy interpreter, which every back end must agree with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from symgrad.expr.node import INPUT, Graph, Node, Op, reachable

Array = Any


def evaluate_graph(
    graph: Graph, roots: Sequence[int], inputs: Mapping[int, Array], dtype: Any = np.float64
) -> list[Array]:
    """The values of the roots, as arrays of one length.

    ``inputs`` maps input nodes (their ids) to 1-D arrays of that length. Values are dropped after
    their last use, so memory stays at the width of the graph, not its length.
    """
    order = reachable(graph, roots)
    last = _last_use(graph, order, roots)
    length = max((len(a) for a in inputs.values()), default=1)
    values: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for i in order:
            node = graph.nodes[i]
            if node[0].arity:
                values[i] = node[0].reference(*[values[a] for a in node[1:]])
                for a in node[1:]:
                    if last[a] == i:
                        values.pop(a, None)
            else:
                values[i] = inputs[i] if node[0] is INPUT else leaf(node, dtype)
    return [np.broadcast_to(values[i], (length,)) for i in roots]


def leaf(node: Node, dtype: Any) -> Any:
    """The value of a constant, a NumPy scalar so that it takes part in no type promotion."""
    value = Graph.leaf_value(node)
    with np.errstate(over="ignore"):
        return {"f": dtype, "b": np.bool_, "i": np.int32, "u": np.uint32}[node[0].result](value)


def _last_use(graph: Graph, order: Sequence[int], roots: Sequence[int]) -> dict[int, int]:
    last: dict[int, int] = {}
    for i in order:
        if graph.nodes[i][0].arity:
            last.update(dict.fromkeys(graph.nodes[i][1:], i))
    last.update(dict.fromkeys(roots, -1))
    return last


@lru_cache(maxsize=4096)
def fold(op: Op, arguments: tuple[Node, ...]) -> float | bool | int:
    """The value of an operation on constants: its reference, in double precision."""
    with np.errstate(all="ignore"):
        result = op.reference(*[leaf(a, np.float64) for a in arguments])
    return np.asarray(result).item()
