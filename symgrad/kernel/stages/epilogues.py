"""Epilogues of products of matrices: elements that are computed in the kernel of the product.

A bias, an activation and its derivative, or what is added to a product, read numbers of the same
element, of its column, or of its row and column in every matrix of a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from symgrad.arrays.scalars import COUNTER, Array, Read, Reduce, Scalars
from symgrad.cache import Once
from symgrad.expr.graph.node import Graph, paused_gc, reachable
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.skeletons.epilogue import Epilogue
from symgrad.kernel.stages.one_pass import is_at
from symgrad.kernel.stages.products import Contraction
from symgrad.kernel.stages.sizes import EPILOGUE_COST
from symgrad.kernel.stages.translate import Simplify, Translation

CACHED: Final = 256
"""Most epilogues that are kept."""

Elements = Collection[tuple[Array, int]]
"""Arrays, and the scalars that their elements are."""

_known: Once[Any, Epilogue] = Once(CACHED)
"""Epilogues by all that they are: kernels of equal ones are the same."""


@dataclass(frozen=True, eq=False)
class Ending:
    """The epilogue of a product, with the arrays that it reads and writes, by its buffers."""

    epilogue: Epilogue
    reads: tuple[tuple[str, Array], ...] = ()
    writes: tuple[tuple[str, Array], ...] = ()


def _nothing() -> Epilogue:
    graph = Graph()
    graph.tracing = False
    sums = graph.input("sum")
    return Epilogue(Computation("product", graph, (Output("result", (sums,)),)))


NOTHING: Final = _nothing()
"""The sums themselves: one object, as equal kernels have equal epilogues."""


@paused_gc()
def ending(s: Scalars, elements: Elements, c: Contraction, simplify: Simplify) -> Ending | None:
    """The epilogue that writes arrays whose elements are made of a product's, if there is one.

    The elements stand as the product's results do: matrix by matrix, and row by row.
    """
    t = Translation(s, ())
    known, names, arrays = {c.reduction: t.graph.input("sum")}, dict[Any, str](), list[Array]()
    places: dict[str, list[str]] = {"column": [], "matrix": []}
    roots = [root for _, root in elements]
    stack, seen = [*roots], {c.reduction}
    while stack:
        i = stack.pop()
        if i in seen:
            continue
        seen.add(i)
        op = s.op(i)
        if op is COUNTER or isinstance(op, Reduce):
            return None
        if not isinstance(op, Read):
            stack.extend(s.args(i))
            continue
        place = _place(s, i, op.array, c)
        if place is None or op.array.kind != "f":
            return None
        if (op.array, place) not in names:
            name = names[op.array, place] = f"e{len(names)}"
            arrays.append(op.array)
            known[i] = t.graph.input(name)
            if place in places:
                places[place].append(name)
        else:
            known[i] = t.graph.input_named(names[op.array, place])
    graph, nodes = simplify(t.graph, t.values(roots, known))
    if sum(graph.nodes[i][0].cost for i in reachable(graph, nodes)) > EPILOGUE_COST:
        return None
    results = [f"result{n or ''}" for n in range(len(nodes))]
    outputs = tuple(Output(name, (i,)) for name, i in zip(results, nodes, strict=True))
    by = [tuple(names) for names in places.values()]
    key = tuple(graph.nodes), tuple(graph.names), outputs, *by
    new = Epilogue(Computation("product", graph, outputs), by[0], by_matrix=by[1])
    epilogue = _known.get(key, lambda: new)
    reads = zip(names.values(), arrays, strict=True)
    writes = zip(results, (array for array, _ in elements), strict=True)
    return Ending(epilogue, tuple(reads), tuple(writes))


def _place(s: Scalars, read: int, array: Array, c: Contraction) -> str | None:
    """Which of a product's elements read the same number: none, those of a column, or a batch."""
    index: dict[str, Sequence[int]] = {
        "element": (*c.batch, *c.rows, *c.columns),
        "column": c.columns,
        "matrix": (*c.rows, *c.columns),
    }
    return next((name for name, counters in index.items() if is_at(s, read, array, counters)), None)
