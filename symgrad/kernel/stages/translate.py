"""From the scalars of an array program to the body of a stage, whose sizes are arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any, Final

from symgrad.arrays import scalars as s
from symgrad.arrays.scalars import COUNTER, Affine, Array, Read, Reduce, Scalars
from symgrad.expr import ops
from symgrad.expr.graph.node import INTEGER, WORD, Graph, Op
from symgrad.expr.graph.region import Pick
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.body import (
    TUPLES,
    Body,
    Counter,
    Element,
    Extent,
    Leaf,
    Reduction,
    Total,
)
from symgrad.kernel.stages.sizes import FEW_TERMS, FOUR

Simplify = Callable[[Graph, Sequence[int]], tuple[Graph, list[int]]]
"""``simplify(graph, roots)`` is a graph of what back ends know, and its roots."""

WORDS: Final = 2**32

EXACT: Final = 2**24
"""Integers up to which float32 has every one."""

KINDS: Final = {"f": "f", "i": "u"}
"""The kinds of the kernel language for those of array programs."""

ANY: Final = (-(2**31), 2**31 - 1)
"""The bounds of any integer."""

MOST_ARGUMENTS: Final = 64
"""Integers that are arguments, at most: a body that has more is long, and others know its text."""


NOT_PACKED: Final[Mapping[Array, tuple[Array, int]]] = MappingProxyType({})


@dataclass(frozen=True)
class Share:
    """A part of a reduction's range: counter ``counter`` begins at ``number * length``."""

    counter: int
    length: int


@dataclass(eq=False)
class _Loop:
    """A reduction that is being put together."""

    counters: tuple[int, ...]
    extents: tuple[int, ...]
    free: frozenset[int]
    operators: list[str] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    members: set[int] = field(default_factory=set)
    """The nodes of the scalars that it gives."""
    long: bool = False
    terms: int = 1
    """How far the innermost counter runs."""


class Translation:
    """Builds a body of scalars: ``parallel`` are the counters of its index space, in order.

    Of reductions over the counter of ``share`` only a part is done, that of the number that the
    first parallel counter is, ahead of all others. What is ``packed`` stands in another array, from
    a number of it on. Those in ``stored`` are not computed, but read:
    the mapping gives nodes of the new graph. Neighbours are read ``in_fours`` where they stand so.
    """

    def __init__(
        self,
        scalars: Scalars,
        parallel: Sequence[int],
        share: Share | None = None,
        packed: Mapping[Array, tuple[Array, int]] = NOT_PACKED,
        in_fours: bool = False,
    ) -> None:
        self.scalars, self.share, self._packed = scalars, share, packed
        self._in_fours = in_fours
        self.graph = Graph()
        self.graph.tracing = False
        self._leaves: dict[Leaf, int] = {}
        self._sizes: dict[int, int] = {}
        self._sources: dict[tuple[Array, bool], int] = {}
        """The arrays that are read, and whether in fours."""
        self._kinds: list[str] = []
        self._loops: list[_Loop] = []
        self._numbers: dict[int, int] = {}
        """The numbers of counters."""
        self._counted = 0
        self._ids: dict[int, int] = {}
        self._needs: dict[int, frozenset[int]] = {}
        self._spans: dict[int, tuple[int, int]] = {}
        if share is not None:
            self._part = self._new_counter()
        for c in parallel:
            self._numbers[c] = self._counted
            self._counter(c)
        self.parallel = self._counted

    # leaves --------------------------------------------------------------------------------------

    def leaf(self, leaf: Leaf, kind: str) -> int:
        """The node of a leaf."""
        if leaf not in self._leaves:
            self._leaves[leaf] = self.graph.input(f"v{len(self._leaves)}", kind)
        return self._leaves[leaf]

    def word(self, value: int) -> int:
        """A known integer: 0 and 1 as they are, others as arguments, unless there are many."""
        value %= WORDS
        if value < 2 or (value not in self._sizes and len(self._sizes) >= MOST_ARGUMENTS):
            return self.graph.intern((WORD, value))
        return self.leaf(Extent(self._sizes.setdefault(value, len(self._sizes))), "u")

    def _new_counter(self) -> int:
        number = self._counted
        self._counted += 1
        return self.leaf(Counter(number), "u")

    def _counter(self, c: int) -> int:
        """The value of a counter of the program."""
        if c not in self._ids:
            value = self._new_counter()
            self._numbers.setdefault(c, self._counted - 1)
            if self.share and c == self.share.counter:
                start = self.graph.add(ops.word_mul, self._part, self.word(self.share.length))
                value = self.graph.add(ops.word_add, start, value)
            self._ids[c] = value
        return self._ids[c]

    def _extent(self, c: int) -> int:
        """How far a counter of a reduction counts."""
        whole = self.word(self.scalars.extent(c))
        if not self.share or c != self.share.counter:
            return whole
        length = self.word(self.share.length)
        start = self.graph.add(ops.word_mul, self._part, length)
        rest = self.graph.add(ops.word_sub, whole, start)
        return self.graph.add(ops.word_min, rest, length)

    def element(self, source: Array, kind: str, index: int, lane: int | None = None) -> int:
        """The number at a flat index of an array, a node of the new graph.

        With a ``lane`` the index is that of fours.
        """
        while source in self._packed:
            assert lane is None, "what is packed is not read in fours"
            source, first = self._packed[source]
            index = self.graph.add(ops.word_add, index, self.word(first)) if first else index
        key = source, lane is not None
        if key not in self._sources:
            self._sources[key] = len(self._sources)
            self._kinds.append(kind)
        return self.leaf(Element(self._sources[key], index, lane), kind)

    @property
    def sources(self) -> list[Array]:
        """The arrays that are read, in order: twice those that are read in fours and singly."""
        return [array for array, _ in self._sources]

    def read_at(self, read: int, index: int) -> int:
        """The number that a read finds where its flat index is this node of the new graph."""
        op = self.scalars.op(read)
        assert isinstance(op, Read), "a read"
        return self.element(op.array, KINDS[op.array.kind], index)

    # nodes ---------------------------------------------------------------------------------------

    def values(self, roots: Sequence[int], stored: Mapping[int, int] | None = None) -> list[int]:
        """Nodes of the new graph for scalars; those that are ``stored`` are known."""
        self._ids |= stored or {}
        for i in self._order(roots):
            self._ids[i] = self._node(i)
        return [self._ids[i] for i in roots]

    def four_of(self, root: int, reads: Iterable[int], four: int) -> list[int]:
        """Nodes for a scalar whose reads find the four numbers at an index, one after the other."""
        values, known, reads = list[int](), dict(self._ids), list(reads)
        for lane in range(FOUR):
            stored = dict[int, int]()
            for i in reads:
                op = self.scalars.op(i)
                assert isinstance(op, Read), "a read"
                stored[i] = self.element(op.array, KINDS[op.array.kind], four, lane)
            values += self.values([root], stored)
            self._ids = dict(known)
        return values

    def _order(self, roots: Sequence[int]) -> list[int]:
        """The nodes to translate, arguments first; nothing below those that are known."""
        needed, stack = set[int](), list(roots)
        while stack:
            i = stack.pop()
            if i not in needed and i not in self._ids:
                needed.add(i)
                stack += self._needed(i)
        return sorted(needed)

    def _needed(self, i: int) -> Sequence[int]:
        """The arguments of a node that are translated: of rows of the op table no integers."""
        op, args = self.scalars.op(i), self.scalars.args(i)
        if op in _RULES or isinstance(op, Affine | Read | Reduce | Pick):
            return args
        return [a for k, a in enumerate(args) if op.signature[k] != "i"]

    def _node(self, i: int) -> int:
        node = self.scalars.graph.nodes[i]
        op = node[0]
        if op is COUNTER:
            return self._counter(i)
        if op is INTEGER:
            return self.word(node[1])
        if not op.arity and not isinstance(op, Read):
            return self.graph.intern(node)
        args = node[1:]
        match op:
            case Affine():
                return self._affine(op.offset, list(zip(op.coefficients, args, strict=True)))
            case Read():
                return self._read(op, args)
            case Reduce():
                return self._reduction(i, op, args)
            case Pick():
                loop = self._loop_of(args[0])
                return self.leaf(Total(loop, op.index), KINDS[op.result])
        if op in _RULES:
            return _RULES[op](self, args)
        raw = [self._raw(op, k, a) for k, a in enumerate(args)]
        return self.graph.add(op, *raw)

    def _raw(self, op: Op, k: int, a: int) -> int:
        """An argument of a row of the op table, of which integers are known numbers."""
        if op.signature[k] == "i":
            return self.graph.intern(self.scalars.graph.nodes[a])
        return self._ids[a]

    # integers ------------------------------------------------------------------------------------

    def span(self, i: int) -> tuple[int, int]:
        """The least and the largest value of an integer."""
        if i not in self._spans:
            self._spans[i] = self._span(i)
        return self._spans[i]

    def _span(self, i: int) -> tuple[int, int]:
        node = self.scalars.graph.nodes[i]
        op, args = node[0], node[1:]
        if op is COUNTER:
            return 0, node[2] - 1
        if op is INTEGER:
            return node[1], node[1]
        if isinstance(op, Affine):
            terms = zip(op.coefficients, args, strict=True)
            ends = [sorted(c * x for x in self.span(a)) for c, a in terms]
            low, high = (op.offset + sum(e[k] for e in ends) for k in (0, 1))
            return (low, high) if ANY[0] <= low and high <= ANY[1] else ANY
        if op is s.quotient:
            (low, high), n = self.span(args[0]), self.scalars.integer(args[1])
            return (low // n, high // n) if n else ANY
        if op is s.modulo:
            n = self.scalars.integer(args[1])
            return (0, n - 1) if n else ANY
        if op is s.integer_where:
            spans = [self.span(a) for a in args[1:]]
            return min(x for x, _ in spans), max(x for _, x in spans)
        return ANY

    def _sum(self, constant: int, terms: Sequence[tuple[int, int]]) -> int | None:
        """A sum of positive multiples, the slowest counters first; None where there is nothing."""
        total = self.word(constant) if constant else None
        for c, a in sorted(terms, key=lambda term: self._depth(term[1])):
            term = self._ids[a]
            if c != 1:
                term = self.graph.add(ops.word_mul, term, self.word(c))
            total = term if total is None else self.graph.add(ops.word_add, total, term)
        return total

    def _depth(self, i: int) -> int:
        """The innermost counter that an integer depends on."""
        return max((self._numbers.get(c, 0) for c in self.scalars.free(i)), default=-1)

    def _split(
        self, constant: int, terms: Sequence[tuple[int, int]]
    ) -> tuple[int | None, int | None]:
        """The sums of what is added and of what is subtracted."""
        positive = self._sum(max(constant, 0), [(c, a) for c, a in terms if c > 0])
        negative = self._sum(max(-constant, 0), [(-c, a) for c, a in terms if c < 0])
        return positive, negative

    def _affine(self, constant: int, terms: Sequence[tuple[int, int]]) -> int:
        positive, negative = self._split(constant, terms)
        if negative is None:
            return self.word(0) if positive is None else positive
        first = self.word(0) if positive is None else positive
        return self.graph.add(ops.word_sub, first, negative)

    def _shifted_right(self, x: int, by: int) -> int:
        """A signed word divided by a power of 2, rounded down."""
        g = self.graph
        mask = g.add(ops.word_sub, self.word(0), g.add(ops.word_shift_right, x, self.word(31)))
        moved = g.add(ops.word_shift_right, g.add(ops.word_xor, x, mask), by)
        return g.add(ops.word_xor, moved, mask)

    def _below_zero(self, i: int) -> int:
        """Whether an integer is negative: of a difference, whether one is below the other."""
        constant, terms = self.scalars.terms(i)
        if all(self.span(a)[0] >= 0 for _, a in terms) and self.span(i) != ANY:
            sums = self._split(constant, terms)
            first, second = (self.word(0) if x is None else x for x in sums)
            return self.graph.add(ops.word_lt, first, second)
        return self._is_negative(self._ids[i])

    def _is_negative(self, word: int) -> int:
        return self.graph.add(ops.word_lt, self.graph.intern((WORD, 2**31 - 1)), word)

    def _is_zero(self, i: int) -> int:
        constant, terms = self.scalars.terms(i)
        sums = self._split(constant, terms)
        first, second = (self.word(0) if x is None else x for x in sums)
        return self.graph.add(ops.word_eq, first, second)

    def _quotient(self, a: int, n: int) -> int:
        """An integer divided by n > 0, rounded down: -1 - (-1 - a) // n of a negative one."""
        word, divisor = self._ids[a], self._ids[n]
        if self.span(a)[0] >= 0:
            return self.graph.add(ops.word_div, word, divisor)
        all_bits = self.graph.intern((WORD, WORDS - 1))
        negative = self._is_negative(word)
        flipped = self.graph.add(ops.word_xor, word, all_bits)
        size = self.graph.add(ops.word_where, negative, flipped, word)
        divided = self.graph.add(ops.word_div, size, divisor)
        back = self.graph.add(ops.word_xor, divided, all_bits)
        return self.graph.add(ops.word_where, negative, back, divided)

    def _modulo(self, a: int, n: int) -> int:
        product = self.graph.add(ops.word_mul, self._quotient(a, n), self._ids[n])
        return self.graph.add(ops.word_sub, self._ids[a], product)

    def _as_float(self, a: int) -> int:
        low, high = self.span(a)
        op = ops.signed_float if low >= -EXACT and high <= EXACT else ops.int32_float
        return self.graph.add(op, self._ids[a])

    # reads and reductions ------------------------------------------------------------------------

    def _read(self, op: Read, index: Sequence[int]) -> int:
        """An element, at an index within the array, whatever the indices are."""
        array, stride = op.array, prod(op.array.shape)
        if not stride:  # of no elements, none of which is ever asked for
            return self.graph.constant(0.0) if array.kind == "f" else self.word(0)
        constant, terms = 0, list[tuple[int, int]]()
        total: int | None = None
        for i, n in zip(index, array.shape, strict=True):
            stride //= n
            low, high = self.span(i)
            if low >= 0 and high < n:
                own, inner = self.scalars.terms(i)
                constant += stride * own
                terms += [(stride * c, a) for c, a in inner]
                continue
            clamped = self.graph.add(ops.word_min, self._ids[i], self.word(n - 1))
            if stride != 1:
                clamped = self.graph.add(ops.word_mul, clamped, self.word(stride))
            total = clamped if total is None else self.graph.add(ops.word_add, total, clamped)
        constant, terms = self.scalars.terms(self.scalars.affine(constant, terms))
        merged = {a: c for c, a in terms}
        self.values([*merged])  # of quotients and remainders what they are of may be left
        if self._in_fours and total is None and self._is_four(array, merged):
            fours = [(c // FOUR, a) for a, c in merged.items()]
            at, lane = self._affine(constant // FOUR, fours), constant % FOUR
            return self.element(array, KINDS[array.kind], at, lane)
        at = self._affine(constant, [(c, a) for a, c in merged.items()])
        if total is not None:
            is_zero = self.graph.nodes[at] == (WORD, 0)
            at = total if is_zero else self.graph.add(ops.word_add, total, at)
        return self.element(array, KINDS[array.kind], at)

    def _is_four(self, array: Array, terms: Mapping[int, int]) -> bool:
        """Whether places of an array that move like this are those of fours, or next to them."""
        moves = bool(terms) and not any(c % FOUR for c in terms.values())
        return moves and not array.size % FOUR and array.kind == "f" and array not in self._packed

    def _reduction(self, i: int, op: Reduce, parts: Sequence[int]) -> int:
        """A reduction; those that run side by side and need not wait for each other are one."""
        needs = frozenset(
            k for k in self.scalars.walk([i]) if isinstance(self.scalars.op(k), Reduce)
        )
        self._needs[i] = needs
        free = self.scalars.free(i)
        if not op.counters:
            return self._ids[parts[0]]
        loop = self._home(op, free, needs)
        loop.members.add(i)
        loop.parts += [self._ids[p] for p in parts]
        loop.operators.append(op.operator)
        kind = KINDS[self.scalars.graph.type(parts[0])]
        return self.leaf(Total(self._loops.index(loop), len(loop.parts) - len(parts)), kind)

    def _home(self, op: Reduce, free: frozenset[int], needs: frozenset[int]) -> _Loop:
        if op.operator not in TUPLES:
            for loop in self._loops:
                alike = loop.counters == op.counters and loop.free == free
                if alike and loop.operators[0] not in TUPLES and loop.members.isdisjoint(needs):
                    return loop
        for c in op.counters:
            self._counter(c)
        extents = tuple(self._extent(c) for c in op.counters)
        is_long = prod(map(self.scalars.extent, op.counters)) >= sizes.LONG
        loop = _Loop(op.counters, extents, free)
        loop.long = is_long and op.operator == "add"
        loop.terms = self._terms(op.counters[-1])
        self._loops.append(loop)
        return loop

    def _terms(self, counter: int) -> int:
        """How far a counter runs, in a part of its range if it is cut."""
        if self.share is not None and self.share.counter == counter:
            return self.share.length
        return self.scalars.extent(counter)

    def _loop_of(self, i: int) -> int:
        """The number of the loop that gives a reduction of tuples."""
        return next(n for n, loop in enumerate(self._loops) if i in loop.members)

    # the whole -----------------------------------------------------------------------------------

    def body(
        self, roots: Sequence[int], simplify: Simplify, lanes: Mapping[int, int] | None = None
    ) -> Body:
        """The body with these roots, nodes of the new graph, simplified.

        Terms that wait for memory are computed together if ``lanes`` are there: they say among how
        many invocations the terms of a reduction are dealt out, of those where they are.
        """
        elements = [leaf for leaf in self._leaves if isinstance(leaf, Element)]
        flat = [*roots, *(e.index for e in elements)]
        for loop in self._loops:
            flat += [*loop.extents, *loop.parts]
        graph, new = simplify(self.graph, flat)
        ids = dict(zip(flat, new, strict=True))
        leaves = tuple(
            replace(leaf, index=ids[leaf.index]) if isinstance(leaf, Element) else leaf
            for leaf in self._leaves
        )
        reductions = tuple(
            Reduction(
                tuple(self._numbers[c] for c in loop.counters),
                tuple(ids[e] for e in loop.extents),
                tuple(ids[p] for p in loop.parts),
                tuple(loop.operators),
                loop.long,
                lanes is not None and -(-loop.terms // lanes.get(n, 1)) >= FEW_TERMS,
            )
            for n, loop in enumerate(self._loops)
        )
        kinds, own = tuple(self._kinds), tuple(ids[r] for r in roots)
        quads = frozenset(n for (_, in_fours), n in self._sources.items() if in_fours)
        return Body(graph, leaves, reductions, own, self.parallel, kinds, quads)

    @property
    def words(self) -> list[tuple[str, int]]:
        """The arguments of the body: names and values."""
        return [(f"n{number}", value) for value, number in self._sizes.items()]

    def number(self, counter: int) -> int:
        """The number of a counter of the program."""
        return self._numbers[counter]

    def totals(self, reductions: Iterable[int]) -> list[int]:
        """The nodes of all results of reductions."""
        nodes = list[int]()
        for r in reductions:
            parts = self.scalars.args(r)
            loop, kinds = self._loop_of(r), [KINDS[self.scalars.graph.type(p)] for p in parts]
            if len(parts) == 1:
                nodes.append(self._ids[r])
            else:
                nodes += [self.leaf(Total(loop, n), kind) for n, kind in enumerate(kinds)]
        return nodes

    def loops_of(self, reductions: Iterable[int]) -> list[int]:
        """The numbers of the loops that give reductions."""
        return [self._loop_of(i) for i in reductions]


_RULES: Final[dict[Op, Callable[[Any, Sequence[int]], int]]] = {
    s.quotient: lambda t, a: t._quotient(*a),
    s.modulo: lambda t, a: t._modulo(*a),
    s.division: lambda t, a: t._quotient(*a),
    **{
        op: lambda t, a, word=word: t.graph.add(word, *(t._ids[x] for x in a))
        for op, word in (
            (s.integer_mul, ops.word_mul),
            (s.integer_and, ops.word_and),
            (s.integer_or, ops.word_or),
            (s.integer_xor, ops.word_xor),
            (s.shift_left, ops.word_shift_left),
            (s.integer_where, ops.word_where),
        )
    },
    s.shift_right: lambda t, a: t._shifted_right(*(t._ids[x] for x in a)),
    s.is_negative: lambda t, a: t._below_zero(a[0]),
    s.is_zero: lambda t, a: t._is_zero(a[0]),
    s.as_float: lambda t, a: t._as_float(a[0]),
    s.truncated: lambda t, a: t.graph.add(ops.int32, t._ids[a[0]]),
}
"""Rules for integers."""
