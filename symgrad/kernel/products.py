"""Results of a sum over rows that are sums of products of few values, which are kept instead.

Many results are products of few factors, as the gradient of a layer of a network is of its inputs
and of the slopes of its outputs, or as JᵀJ is of the derivatives of a residual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.kernel.shapes import Reduction

MOST_TERMS: Final = 16
"""Products that one result is the sum of, at most."""

NO_FACTOR: Final = -1
"""In the place of a second factor where there is none."""

Terms = tuple[tuple[int, int], ...]
"""The factors of each of the products that a result is the sum of."""


@dataclass(frozen=True)
class Products:
    """The results that are sums of products: ``terms``, of nodes, by the number of the result.

    ``kept`` are the nodes that occur in them.
    """

    terms: Mapping[int, Terms]
    kept: tuple[int, ...]


def products_of(reduction: Reduction, each: Iterable[int], most: int = MOST_TERMS) -> Products:
    """The results for which keeping factors pays: there are fewer of them than of results.

    ``each`` are the nodes that differ from row to row; a result has ``most`` products, at most.
    """
    roots, varying = [i for o in reduction.summed for i in o.nodes], set(each)
    terms = {k: t for k, i in enumerate(roots) if (t := _terms(reduction.graph, i, varying, most))}
    uses = Counter(_factors(terms))
    shared = {k: t for k, t in terms.items() if all(uses[a] + uses[b] > 2 for a, b in t)}
    taken = _needed(roots, shared)
    factors = dict.fromkeys(_factors(taken))
    if len(factors) >= len(shared):
        return Products({}, ())
    alone = {k: ((i, NO_FACTOR),) for k, i in enumerate(roots) if i in factors}
    return Products(taken | alone, tuple(factors))


def _needed(roots: Sequence[int], shared: Mapping[int, Terms]) -> dict[int, Terms]:
    """The results to be taken apart: not those that are kept anyhow, as factors of others.

    A node is a factor of later ones only, so these are looked at first.
    """
    factors: set[int] = set()
    taken: dict[int, Terms] = {}
    for k in sorted(shared, key=lambda k: -roots[k]):
        if roots[k] not in factors:
            taken[k] = shared[k]
            factors.update(a for pair in shared[k] for a in pair)
    return {k: taken[k] for k in shared if k in taken}


def _factors(products: Mapping[int, Terms]) -> Iterator[int]:
    """The factors of all products, as often as they occur."""
    return (a for terms in products.values() for pair in terms for a in pair)


def _terms(graph: Graph, i: int, varying: Container[int], most: int) -> Terms:
    """The products that a node is the sum of; none if it is something else, or the same always."""
    products: list[tuple[int, int]] = []
    stack = [i]
    while stack and len(products) + len(stack) <= most:
        at = stack.pop()
        op, *args = graph.nodes[at]
        if at not in varying:
            return ()
        if op is ops.mul:
            products.append((args[0], args[1]))
        elif op is ops.add:
            stack += reversed(args)
        else:
            return ()
    return () if stack else tuple(products)


def tiles(terms: Mapping[int, Terms], registers: int) -> Iterator[list[int]]:
    """The results in groups that fit the registers, and whose first products share factors.

    Three registers of four hold results. A tile is about as wide as high, so that it takes few
    factors for many products.
    """
    most, left = registers * 3 // 4, _pairs(terms)
    width = round(most**0.5) + 1
    for first in sorted(left, key=lambda a: (-len(left[a]), a)):
        while left[first]:
            columns = list(left[first])[:width]
            rows = Counter(a for c in columns for a in left[c])
            rows[first] = len(terms) + 1
            tile: list[int] = []
            for row, _ in rows.most_common():
                for c in columns:
                    if len(tile) < most and c in left[row]:
                        tile += left[row].pop(c)
                        left[c].pop(row, None)
            yield tile


def _pairs(terms: Mapping[int, Terms]) -> dict[int, dict[int, list[int]]]:
    """For each factor those that it is multiplied with in first products, and the results."""
    pairs: dict[tuple[int, int], list[int]] = {}
    for k, (first, *_) in terms.items():
        pairs.setdefault(first, []).append(k)
    partners: dict[int, dict[int, list[int]]] = {}
    for (a, b), results in pairs.items():
        partners.setdefault(a, {})[b] = results
        partners.setdefault(b, {})[a] = results
    return partners
