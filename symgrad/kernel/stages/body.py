"""The body of a stage: scalars of counters, reads and reductions, and how these combine results.

Counters run through the index space of a stage, those that are parallel first, and through its
reductions. There is no size in it: sizes are arguments of the kernel, so that stages that differ in
sizes alone are one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.graph.node import ANY_INPUT, Graph, reachable
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import lane_max, lane_min, lane_sum
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


# How reductions combine two results: sums and products, extremes, positions, running rescale.

Values = Sequence[int]

SIGN: Final = 1 << 31
"""The bit that turns the order of signed words into that of words, and back."""

LEAST, LARGEST = SIGN, SIGN - 1
"""The least and the largest signed integer, as words."""

HALF_BITS: Final = 16
HALF: Final = 1 << HALF_BITS
"""The bits of half a word, and how many such halves there are."""

TUPLES: Final = ("argmax", "argmin", "rescale")
"""The operators of tuples."""


def signed_below(k: KernelIR, a: int, b: int) -> int:
    """Whether a signed word is less than another one."""
    sign = k.word(SIGN)
    return k.add(ops.word_lt, k.add(ops.word_xor, a, sign), k.add(ops.word_xor, b, sign))


def _extreme(k: KernelIR, a: int, b: int, largest: bool) -> int:
    below = signed_below(k, a, b)
    return k.add(ops.word_where, below, *((b, a) if largest else (a, b)))


FLOATS: Final = {"add": ops.add, "mul": ops.mul, "max": ops.maximum, "min": ops.minimum}

INTEGERS: Final[dict[str, Callable[[KernelIR, int, int], int]]] = {
    "add": lambda k, a, b: k.add(ops.word_add, a, b),
    "mul": lambda k, a, b: k.add(ops.word_mul, a, b),
    "max": lambda k, a, b: _extreme(k, a, b, largest=True),
    "min": lambda k, a, b: _extreme(k, a, b, largest=False),
}

NOTHING: Final = {"add": 0.0, "mul": 1.0, "max": -float("inf"), "min": float("inf")}
NO_INTEGERS: Final = {"add": 0, "mul": 1, "max": LEAST, "min": LARGEST}


def combined(k: KernelIR, operator: str, a: Values, b: Values) -> list[int]:
    """The results of one part of what is reduced, and then of another."""
    if operator == "rescale":
        return _rescaled(k, a, b)
    if operator in TUPLES:
        return _first_extreme(k, operator == "argmax", a, b)
    (x,), (y,) = a, b
    if k.type(x) == "f":
        return [k.add(FLOATS[operator], x, y)]
    return [INTEGERS[operator](k, x, y)]


def nothing(k: KernelIR, operator: str, kinds: str) -> list[int]:
    """The results of a reduction of nothing, whose parts are of these kinds."""
    if operator == "rescale":
        return [k.constant(-float("inf")), *[k.constant(0.0)] * (len(kinds) - 1)]
    extreme = operator.removeprefix("arg")
    value = k.constant(NOTHING[extreme]) if kinds[0] == "f" else k.word(NO_INTEGERS[extreme])
    return [value, k.word(LARGEST)] if operator in TUPLES else [value]


def _rescaled(k: KernelIR, a: Values, b: Values) -> list[int]:
    """Sums of exp(s - m) w, brought to the larger of two maxima m.

    See Milakov and Gimelshein, 2018, "Online normalizer calculation for softmax". What rounding the
    difference of maxima does to a factor is much only where the factor is little.
    """
    (top, *sums), (other, *terms) = a, b
    rises, one = k.add(ops.lt, top, other), k.constant(1.0)
    distance = k.add(ops.abs, k.add(ops.sub, top, other))
    factor = k.add(ops.exp, k.add(ops.neg, distance))
    factor = k.add(ops.where, k.add(ops.eq, top, other), one, factor)
    old, new = k.add(ops.where, rises, factor, one), k.add(ops.where, rises, one, factor)
    pairs = zip(sums, terms, strict=True)
    both = [(k.add(ops.mul, x, old), k.add(ops.mul, y, new)) for x, y in pairs]
    return [k.add(ops.maximum, top, other), *[k.add(ops.add, x, y) for x, y in both]]


def _first_extreme(k: KernelIR, largest: bool, a: Values, b: Values) -> list[int]:
    """The extreme of two values, and the lower position of those where it is attained."""
    (x, i), (y, j) = a, b
    earlier = signed_below(k, j, i)
    if k.type(x) != "f":
        above = signed_below(k, *((x, y) if largest else (y, x)))
        ties = k.add(ops.word_eq, x, y)
    else:
        x_nan, y_nan = k.add(ops.isnan, x), k.add(ops.isnan, y)
        greater = k.add(ops.lt, *((x, y) if largest else (y, x)))
        first_nan = k.add(ops.logical_and, y_nan, k.add(ops.logical_not, x_nan))
        above = k.add(ops.logical_or, greater, first_nan)
        both = k.add(ops.logical_and, x_nan, y_nan)
        ties = k.add(ops.logical_or, both, k.add(ops.eq, x, y))
    takes = k.add(ops.logical_or, above, k.add(ops.logical_and, ties, earlier))
    choose = ops.where if k.type(x) == "f" else ops.word_where
    return [k.add(choose, takes, y, x), k.add(ops.word_where, takes, j, i)]


# --- over the lanes of a vector -------------------------------------------------------------------

LANES: Final = {"add": lane_sum, "max": lane_max, "min": lane_min}
"""Operations of a group in step for reductions of floats."""


def lanes_reduce(operator: str, kinds: str) -> bool:
    """Whether `over_lanes` can reduce parts of these kinds."""
    return kinds[0] == "f" and (operator in LANES or operator in TUPLES)


def over_lanes(k: KernelIR, operator: str, parts: Values) -> list[int]:
    """The reduction of what the lanes of a vector have."""
    if operator in LANES:
        return [k.add(LANES[operator], parts[0])]
    first, *rest = parts
    if operator == "rescale":
        top = k.add(lane_max, first)
        distance, equal = k.add(ops.sub, first, top), k.add(ops.eq, first, top)
        factor = k.add(ops.where, equal, k.constant(1.0), k.add(ops.exp, distance))
        return [top, *(k.add(lane_sum, k.add(ops.mul, x, factor)) for x in rest)]
    return _extreme_lane(k, operator, first, rest[0])


def _extreme_lane(k: KernelIR, operator: str, x: int, position: int) -> list[int]:
    """The extreme of lanes, and the lowest position where it is attained: its halves in turn.

    Positions are below 2**31: floats hold each half.
    """
    extreme = k.add(LANES[operator.removeprefix("arg")], x)
    holds = k.add(ops.logical_or, k.add(ops.eq, x, extreme), k.add(ops.isnan, x))
    none, lowest = k.constant(float(HALF)), list[int]()
    high = k.add(ops.word_shift_right, position, k.word(HALF_BITS))
    for part in (high, k.add(ops.word_and, position, k.word(HALF - 1))):
        candidate = k.add(ops.where, holds, k.add(ops.word_float, part), none)
        least = k.add(lane_min, candidate)
        holds = k.add(ops.logical_and, holds, k.add(ops.eq, candidate, least))
        lowest.append(k.add(ops.nearest_word, least))
    first = k.add(ops.word_shift_left, lowest[0], k.word(HALF_BITS))
    return [extreme, k.add(ops.word_add, first, lowest[1])]
