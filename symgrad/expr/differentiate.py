"""Derivatives: reverse and forward mode, both from the rows' partials, with symbolic zeros.

A zero cotangent or tangent is absent, never a node: it absorbs whatever it would be multiplied by,
also infinity and NaN. No function here recurses over the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from symgrad.expr import ops
from symgrad.expr.expression import WRAP, Expr, lift, real_number
from symgrad.expr.node import CONST, Graph, Handle, Masked, float_bits, reachable

_ONE = (CONST, float_bits(1.0))


@contextmanager
def deriving(graph: Graph) -> Generator[None]:
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
    parts: dict[int, list[Part]] = {root: [(None, g)] for root, g in cotangents.items()}
    found: dict[int, int] = {}
    active = set(order)
    with deriving(graph):
        for i in reversed(order):
            if i not in parts:
                continue
            graph.place = graph.places[i]
            mask, g = _collect(graph, parts.pop(i))
            if i in wanted:
                found[i] = g if mask is None else _select(graph, mask, g)
            for argument, part in _pull_back(graph, i, g, active):
                parts.setdefault(argument, []).append(_masked(graph, mask, part))
    return [found.get(i) for i in wrt]


Part = tuple[int | None, int]
"""A share of a cotangent: the condition outside of which it is 0 (None: it holds everywhere), and
its value where the condition holds."""


def _collect(graph: Graph, parts: list[Part]) -> Part:
    """The sum of the shares of one node."""
    if len(parts) == 1:
        return parts[0]
    grouped: dict[int | None, list[int]] = {}
    for mask, g in parts:
        grouped.setdefault(mask, []).append(g)
    sums = {mask: balanced_sum(graph, found) for mask, found in grouped.items()}
    if len(sums) == 2:
        (first, a), (second, b) = sums.items()
        choice = _choice(graph, first, second)
        if choice is not None:
            condition, outer = choice
            return outer, graph.add(ops.where, condition, a, b)
    if len(sums) == 1:
        return next(iter(sums.items()))
    total = balanced_sum(
        graph, [g if mask is None else _select(graph, mask, g) for mask, g in sums.items()]
    )
    masks = list(sums)
    if None in masks:
        return None, total
    return functools.reduce(lambda a, b: graph.add(ops.logical_or, a, b), masks), total  # type: ignore[arg-type]


def _choice(graph: Graph, a: int | None, b: int | None) -> tuple[int, int | None] | None:
    """For masks that are the two sides of one choice: what is chosen by, and where at all."""
    if a is None or b is None:
        return None
    if _opposite(graph, a, b):
        return a, None
    left, right = graph.nodes[a], graph.nodes[b]
    if left[0] is right[0] is ops.logical_and:
        for outer in set(left[1:]) & set(right[1:]):
            inner, other = sum(left[1:]) - outer, sum(right[1:]) - outer
            if _opposite(graph, inner, other):
                return inner, outer
    return None


def _opposite(graph: Graph, a: int, b: int) -> bool:
    return graph.nodes[a] == (ops.logical_not, b) or graph.nodes[b] == (ops.logical_not, a)


def _select(graph: Graph, mask: int, g: int) -> int:
    return graph.add(ops.where, mask, g, graph.constant(0.0))


def _masked(graph: Graph, mask: int | None, share: Any) -> Part:
    """The share of an argument, 0 wherever its user's cotangent is."""
    if not isinstance(share, Masked):
        return mask, share
    inner = share.condition.id
    both = inner if mask is None else graph.add(ops.logical_and, mask, inner)
    return both, lift(graph, share.value).id


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


def _pull_back(graph: Graph, i: int, g: int, active: set[int]) -> list[tuple[int, Any]]:
    """The cotangents, ids, numbers or `Masked`, that node i hands to its active arguments."""
    node = graph.nodes[i]
    op = node[0]
    if not op.arity:
        return []
    arguments = node[1:]
    handles = [WRAP[graph.nodes[a][0].result](graph, a) for a in arguments]
    if op.partials is not None:
        partials = op.partials(Expr(graph, i), *handles)
        return [
            (a, scaled(graph, g, p))
            for a, p in zip(arguments, partials, strict=True)
            if p is not None and a in active
        ]
    if op.vjp is None:
        return []  # a condition: piecewise constant
    shares = op.vjp(Expr(graph, g), Expr(graph, i), *handles)
    pairs = [(a, _share(graph, s)) for a, s in zip(arguments, shares, strict=True) if a in active]
    return [(a, share) for a, share in pairs if share is not None]


def _share(graph: Graph, value: Any) -> Any:
    """What a row's ``vjp`` gave, as a node id or `Masked`; None for a zero."""
    if value is None or isinstance(value, Masked):
        return value
    if isinstance(value, Handle):
        return lift(graph, value).id
    return graph.constant(real_number(value)) if value != 0 else None


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
            share = _share(graph, op.vjp(Expr(graph, t), Expr(graph, i), *handles)[k])
        if isinstance(share, Masked):
            shares.append(_select(graph, share.condition.id, lift(graph, share.value).id))
        elif share is not None:
            shares.append(share)
    return shares


def scaled(graph: Graph, g: int, partial: Any) -> int:
    """``g * partial``, without the node where one factor is 1 or -1."""
    if partial.__class__ is Expr:
        p = partial.id
        if graph.nodes[g][0] is CONST and graph.nodes[g] == _ONE:
            return p
        return graph.add(ops.mul, p, g)
    if partial == 1:
        return g
    if partial == -1:
        return graph.add(ops.neg, g)
    return graph.add(ops.mul, graph.constant(float(partial)), g)
