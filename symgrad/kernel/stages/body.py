"""The body of a stage: scalars of counters, reads and reductions, without a size in it.

Counters run through the index space of a stage, those that are parallel first, and through its
reductions. Sizes are arguments of the kernel, so that stages that differ in sizes alone are one
kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from symgrad.expr.graph.node import ANY_INPUT, Graph, reachable
from symgrad.kernel.stages.combine import TUPLES
from symgrad.kernel.stages.sizes import READS_TOGETHER, TERMS_TOGETHER, WAITING_COST


@dataclass(frozen=True)
class Counter:
    """An index: of the parallel ones number 0, 1, .., behind them those of reductions."""

    number: int


@dataclass(frozen=True)
class Extent:
    """A word that the host gives: argument number so many."""

    number: int


@dataclass(frozen=True)
class Element:
    """The number at an index of array number so many; the index is a node of the body.

    Of an array that is read in fours it is number ``lane`` of the four at that index.
    """

    array: int
    index: int
    lane: int | None = None


@dataclass(frozen=True)
class Total:
    """Result number ``part`` of a reduction."""

    reduction: int
    part: int


Leaf = Counter | Extent | Element | Total
"""The thing that an input of a body's graph stands for."""


@dataclass(frozen=True)
class Reduction:
    """Loops over ``counters``, each up to a node of the body, that reduce ``parts``.

    Part number k is reduced by ``operators[k]``, or all of them are the tuple of one operator. Of a
    ``long`` one, sums keep their rounding errors. In the innermost loop terms are computed
    ``together`` where they wait for memory rather than for each other.
    """

    counters: tuple[int, ...]
    extents: tuple[int, ...]
    parts: tuple[int, ...]
    operators: tuple[str, ...]
    long: bool = False
    together: bool = False

    @property
    def is_tuple(self) -> bool:
        """Whether the parts are reduced together."""
        return self.operators[0] in TUPLES


@dataclass(frozen=True, eq=False)
class Body:
    """A graph whose input number k stands for ``leaves[k]``; two of equal content are equal.

    ``parallel`` are how many of the counters are parallel, ``kinds`` the kinds of the arrays that
    are read, in order, those in ``quads`` in fours, and ``roots`` the values of an element.
    """

    graph: Graph
    leaves: tuple[Leaf, ...]
    reductions: tuple[Reduction, ...]
    roots: tuple[int, ...]
    parallel: int
    kinds: tuple[str, ...]
    quads: frozenset[int] = frozenset()

    @cached_property
    def key(self) -> Any:
        """All that it is."""
        nodes = tuple(self.graph.nodes)
        read = self.kinds, self.quads
        return nodes, self.leaves, self.reductions, self.roots, self.parallel, read

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Body) and self.key == other.key

    @cached_property
    def extents(self) -> int:
        """How many arguments are sizes."""
        return sum(isinstance(leaf, Extent) for leaf in self.leaves)

    @cached_property
    def leaf_of(self) -> Mapping[int, Leaf]:
        """The leaves that input nodes stand for, by their ids."""
        nodes = self.graph.nodes
        return {i: self.leaves[n[1]] for i, n in enumerate(nodes) if n[0] in ANY_INPUT}

    def leaves_below(self, roots: Sequence[int]) -> Iterator[tuple[int, Leaf]]:
        """The leaves that nodes are made of at once: what these need in turn is left out."""
        leaf_of = self.leaf_of
        return ((i, leaf_of[i]) for i in reachable(self.graph, roots) if i in leaf_of)

    def free(self, roots: Sequence[int]) -> frozenset[int]:
        """The counters that nodes depend on, except those that a reduction below runs through."""
        return frozenset[int]().union(*map(self._free_of, roots))

    @cached_property
    def _known(self) -> dict[int, frozenset[int]]:
        return {}

    def _free_of(self, root: int) -> frozenset[int]:
        if root not in self._known:
            counters = set[int]()
            for _, leaf in self.leaves_below([root]):
                match leaf:
                    case Counter(number):
                        counters.add(number)
                    case Element(index=index):
                        counters |= self._free_of(index)
                    case Total(reduction):
                        counters |= self.free_of_reduction(reduction)
                    case Extent():
                        pass
            self._known[root] = frozenset(counters)
        return self._known[root]

    def free_of_reduction(self, number: int) -> frozenset[int]:
        """The counters that a reduction depends on, and does not run through."""
        r = self.reductions[number]
        return self.free([*r.extents, *r.parts]) - set(r.counters)

    def together(self, r: Reduction) -> int:
        """How many terms of a reduction are computed together: fewer where they read much.

        One after the other are those that cost more than the memory that they wait for.
        """
        if not r.together or r.is_tuple:
            return 1
        last, leaves = r.counters[-1], list(self.leaves_below(r.parts))
        elements = [leaf for _, leaf in leaves if isinstance(leaf, Element)]
        reads = sum(last in self.free([e.index]) for e in elements)
        nested = any(isinstance(x, Total) and last in self._free_of(i) for i, x in leaves)
        cost = sum(self.graph.nodes[i][0].cost for i in reachable(self.graph, r.parts))
        if not reads or nested or cost > WAITING_COST:
            return 1
        return max(1, min(TERMS_TOGETHER, READS_TOGETHER // reads))

    def reductions_below(self, roots: Sequence[int]) -> list[int]:
        """The reductions that nodes are made of, each once, those first that others need."""
        order = dict[int, None]()

        def visit(nodes: Sequence[int]) -> None:
            for _, leaf in self.leaves_below(nodes):
                if isinstance(leaf, Element):
                    visit([leaf.index])
                elif isinstance(leaf, Total) and leaf.reduction not in order:
                    r = self.reductions[leaf.reduction]
                    visit([*r.extents, *r.parts])
                    order[leaf.reduction] = None

        visit(roots)
        return list(order)
