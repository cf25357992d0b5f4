"""Derivatives: reverse and forward mode, both from the rows' partials, with symbolic zeros.

A zero cotangent or tangent is absent, never a node: it absorbs whatever it would be multiplied by,
also infinity and NaN. No function here recurses over the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from symgrad.expr import ops
from symgrad.expr.expression import WRAP, Expr
from symgrad.expr.node import CONST, Graph, float_bits, reachable

_ONE = (CONST, float_bits(1.0))


@contextmanager
def deriving(graph: Graph) -> Iterator[None]:
    """Within, new nodes take the place of the node that is being differentiated."""
    tracing, place = graph.tracing, graph.place
    graph.tracing = False
    try:
        yield
    finally:
        graph.tracing, graph.place = tracing, place


def vjp(graph: Graph, cotangents: Mapping[int, int], wrt: Sequence[int]) -> list[int | None]:
    """The cotangents of ``wrt`` for given cotangents of some roots; None is structurally zero.

    One sweep from the roots down: its cost is that of the nodes between roots and ``wrt``, however
    many inputs there are.
    """
    order = active_between(graph, cotangents, wrt)
    wanted = set(wrt)
    sums: dict[int, list[int]] = {root: [g] for root, g in cotangents.items()}
    active = set(order)
    with deriving(graph):
        for i in reversed(order):
            parts = sums.get(i)
            if parts is None:
                continue
            graph.place = graph.places[i]
            g = balanced_sum(graph, parts)
            if i in wanted:
                sums[i] = [g]
            else:
                del sums[i]
            for argument, part in _pull_back(graph, i, g, active):
                sums.setdefault(argument, []).append(part)
    return [sums[i][0] if i in sums else None for i in wrt]


def jvp(graph: Graph, tangents: Mapping[int, int], roots: Sequence[int]) -> list[int | None]:
    """The tangents of the roots for given tangents of some nodes; None is structurally zero."""
    known: dict[int, int] = dict(tangents)
    with deriving(graph):
        for i in active_between(graph, roots, list(tangents)):
            if i in tangents:
                continue
            graph.place = graph.places[i]
            parts = _push_forward(graph, i, known)
            if parts:
                known[i] = balanced_sum(graph, parts)
    return [known.get(i) for i in roots]


def active_between(graph: Graph, roots: Any, wrt: Sequence[int]) -> list[int]:
    """The nodes that some root depends on and that depend on ``wrt``, in ascending order."""
    nodes = graph.nodes
    active = set(wrt)
    order: list[int] = []
    for i in reachable(graph, roots):
        node = nodes[i]
        if i in active or (node[0].arity and not active.isdisjoint(node[1:])):
            active.add(i)
            order.append(i)
    return order


def balanced_sum(graph: Graph, parts: list[int]) -> int:
    """The sum as a balanced tree: the error grows with the logarithm of the number of parts."""
    while len(parts) > 1:
        paired = [graph.add(ops.add, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = paired + parts[len(paired) * 2 :]
    return parts[0]


def _pull_back(graph: Graph, i: int, g: int, active: set[int]) -> list[tuple[int, int]]:
    """The cotangents that node i, with cotangent g, hands to its active arguments."""
    node = graph.nodes[i]
    op = node[0]
    if not op.arity:
        return []
    arguments = node[1:]
    handles = [WRAP[graph.nodes[a][0].result](graph, a) for a in arguments]
    if op.partials is not None:
        partials = op.partials(Expr(graph, i), *handles)
        pairs = [
            (a, scaled(graph, g, p))
            for a, p in zip(arguments, partials, strict=True)
            if p is not None and a in active
        ]
    elif op.vjp is not None:
        shares = op.vjp(Expr(graph, g), Expr(graph, i), *handles)
        pairs = [(a, s) for a, s in zip(arguments, shares, strict=True) if a in active]
    else:
        return []  # a condition: piecewise constant
    return [(a, _id(graph, p)) for a, p in pairs if not _is_zero(p)]


def _push_forward(graph: Graph, i: int, tangents: Mapping[int, int]) -> list[int]:
    """The shares of node i's tangent that come from its arguments' tangents.

    A row's ``vjp`` maps one number to one number for each argument, and such a linear map is its
    own transpose, so it serves here too.
    """
    node = graph.nodes[i]
    op, arguments = node[0], node[1:]
    if op.partials is None and op.vjp is None:
        return []
    handles = [WRAP[graph.nodes[a][0].result](graph, a) for a in arguments]
    partials = op.partials(Expr(graph, i), *handles) if op.partials else None
    shares: list[int] = []
    for k, a in enumerate(arguments):
        t = tangents.get(a)
        if t is None:
            continue
        if partials is not None:
            share = None if partials[k] is None else scaled(graph, t, partials[k])
        else:
            share = op.vjp(Expr(graph, t), Expr(graph, i), *handles)[k]
        if not _is_zero(share):
            shares.append(_id(graph, share))
    return shares


def scaled(graph: Graph, g: int, partial: Any) -> int:
    """``g * partial``, without the node where one factor is 1 or -1."""
    if partial.__class__ is Expr:
        p = partial.id
        if graph.nodes[g] == _ONE:
            return p
        return graph.add(ops.mul, p, g)
    if partial == 1:
        return g
    if partial == -1:
        return graph.add(ops.neg, g)
    return graph.add(ops.mul, graph.constant(float(partial)), g)


def _is_zero(share: Any) -> bool:
    return share is None or share.__class__ is float and share == 0.0


def _id(graph: Graph, share: Any) -> int:
    if share.__class__ is int:
        return share
    return share.id if isinstance(share, Expr) else graph.constant(float(share))
