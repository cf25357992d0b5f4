"""Results that are sums of products of few values: what is kept of rows for them, and their sums.

To add to a result in memory costs more than to compute it: a load and a store for each vector. But
many results are products of few factors, as the gradient of a layer of a network is of its inputs
and of the slopes of its outputs. So blocks of rows leave nothing but the factors behind, and from
time to time some results at once, a tile, stay in registers while all these blocks are added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.expr.node import Graph
from symgrad.kernel.plan import Reduction
from symgrad.llvm.instruction import single
from symgrad.llvm.skeletons import Lines, add_wide

TERMS: Final = 16
"""Products that one result is the sum of, at most."""

ALONE: Final = -1
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


def products_of(reduction: Reduction, each: Iterable[int]) -> Products:
    """The results for which keeping factors pays: there are fewer of them than of results.

    ``each`` are the nodes that differ from row to row.
    """
    roots, varying = [i for o in reduction.summed for i in o.nodes], set(each)
    found = {k: t for k, i in enumerate(roots) if (t := _terms(reduction.graph, i, varying))}
    uses = Counter(_factors(found))
    shared = {k: t for k, t in found.items() if all(uses[a] + uses[b] > 2 for a, b in t)}
    taken = _needed(roots, shared)
    kept = dict.fromkeys(_factors(taken))
    if len(kept) >= len(shared):
        return Products({}, ())
    alone = {k: ((i, ALONE),) for k, i in enumerate(roots) if i in kept}
    return Products(taken | alone, tuple(kept))


def _needed(roots: Sequence[int], shared: Mapping[int, Terms]) -> dict[int, Terms]:
    """The results to be taken apart: not those that are kept anyhow, as factors of others.

    A node is a factor of later ones only, so these are looked at first.
    """
    kept: set[int] = set()
    taken: dict[int, Terms] = {}
    for k in sorted(shared, key=lambda k: -roots[k]):
        if roots[k] not in kept:
            taken[k] = shared[k]
            kept.update(a for pair in shared[k] for a in pair)
    return {k: taken[k] for k in shared if k in taken}


def _factors(found: Mapping[int, Terms]) -> Iterator[int]:
    """The factors of all products, as often as they occur."""
    return (a for terms in found.values() for pair in terms for a in pair)


def _terms(graph: Graph, i: int, varying: Container[int]) -> Terms:
    """The products that a node is the sum of; none if it is something else, or the same always."""
    found: list[tuple[int, int]] = []
    stack = [i]
    while stack and len(found) + len(stack) <= TERMS:
        at = stack.pop()
        op, *args = graph.nodes[at]
        if at not in varying:
            return ()
        if op is ops.mul:
            found.append((args[0], args[1]))
        elif op is ops.add:
            stack += reversed(args)
        else:
            return ()
    return () if stack else tuple(found)


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
    found: dict[int, dict[int, list[int]]] = {}
    for (a, b), results in pairs.items():
        found.setdefault(a, {})[b] = results
        found.setdefault(b, {})[a] = results
    return found


def write_tiles(write: Lines, products: Products, stride: int, count: str, registers: int) -> None:
    """Add to ``%wide`` the sums over the ``count`` blocks whose factors are from ``%kept`` on.

    What a block has kept takes ``stride`` bytes.
    """
    for number, tile in enumerate(tiles(products.terms, registers)):
        _Tile(write, products, f"tile{number}", tile).write(stride, count)


class _Tile:
    """A loop over blocks that adds to some results."""

    def __init__(self, write: Lines, products: Products, name: str, results: Sequence[int]) -> None:
        self.lines, self.shape, self.name, self.results = write, write.shape, name, results
        self.terms = {k: products.terms[k] for k in results}
        self.column = {i: k for k, i in enumerate(products.kept)}

    def write(self, stride: int, count: str) -> None:
        """Write the loop."""
        write, name, kind = self.lines, self.name, self.shape.float
        write.do(f"br label %{name}.before")
        write.label(f"{name}.before")
        write.do(f"br label %{name}")
        write.label(name)
        write.do(f"%{name}.k = phi i64 [ 0, %{name}.before ], [ %{name}.next, %{name} ]")
        for k in self.results:
            write.do(f"%{name}.s{k} = phi {kind} [ {self.shape.number(0.0)}, %{name}.before ], "
                     f"[ %{name}.s{k}.next, %{name} ]")  # fmt: skip
        self._block(stride)
        write.do(f"%{name}.next = add i64 %{name}.k, 1")
        write.do(f"%{name}.more = icmp slt i64 %{name}.next, {count}")
        write.do(f"br i1 %{name}.more, label %{name}, label %{name}.end")
        write.label(f"{name}.end")
        for k in self.results:
            add_wide(write, f"%{name}.s{k}.next", k * self.shape.lanes)

    def _block(self, stride: int) -> None:
        """Add what a block has kept."""
        write, name = self.lines, self.name
        at = write.value(f"mul i64 %{name}.k, {stride}")
        base = write.value(f"getelementptr i8, ptr %kept, i64 {at}")
        wanted = dict.fromkeys(i for t in self.terms.values() for pair in t for i in pair)
        lanes = self.shape.lanes
        values = {i: write.load(base, self.column[i] * lanes, True) for i in wanted if i != ALONE}
        for k, terms in self.terms.items():
            total = f"%{name}.s{k}"
            for number, (a, b) in enumerate(terms):
                new = f"%{name}.s{k}.next" if number == len(terms) - 1 else write.fresh()
                self._add(new, total, values[a], values.get(b))
                total = new

    def _add(self, new: str, total: str, a: str, b: str | None) -> None:
        """Name a sum with a product, in one instruction if the shape fuses."""
        write, kind = self.lines, self.shape.float
        if b is None:
            write.do(f"{new} = fadd {kind} {total}, {a}")
        elif self.shape.fused:
            write.do(f"{new} = {single(ops.fma, self.shape).format(a, b, total)}")
        else:
            product = write.value(f"fmul {kind} {a}, {b}")
            write.do(f"{new} = fadd {kind} {total}, {product}")
