"""Who needs the values of a kernel: which get a name, which are part of what needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import WORD, Graph
from symgrad.kernel.language.copy import needs
from symgrad.kernel.language.ir import KernelIR, operands
from symgrad.kernel.language.statements import (
    Barrier,
    Call,
    For,
    If,
    Load,
    ReadRow,
    Routine,
    Scope,
    Statement,
    StoreRow,
    scopes_of,
)

# --- which values get a name ----------------------------------------------------------------------
# Which values get a name, and which are part of the expression of what needs them.

MAX_FOLDED = 12
"""Operations in one statement, at most."""

MAX_DEPTH = 8
"""Nested operations in one statement, at most."""


def bind(
    graph: Graph,
    order: Sequence[int],
    roots: Sequence[int],
    others: Mapping[int, int] | None = None,
) -> frozenset[int]:
    """The nodes that get a name.

    These are outputs, values used more than once, and enough others to keep expressions short.
    ``others`` says how often something else than the nodes in ``order`` uses a value.
    """
    nodes = graph.nodes
    uses = [0] * len(nodes)
    for i, count in (others or {}).items():
        uses[i] = count
    for i in order:
        for a in nodes[i][1:]:
            uses[a] += 1
    bound = {i for i in order if uses[i] != 1}
    bound.update(i for i in roots if nodes[i][0].arity)
    size = [0] * len(nodes)
    depth = [0] * len(nodes)
    for i in order:
        total = deepest = 0
        for a in nodes[i][1:]:
            if size[a] and a not in bound:
                total += size[a]
                deepest = max(deepest, depth[a])
        if total >= MAX_FOLDED or deepest >= MAX_DEPTH:
            total, deepest = _shorten(nodes[i][1:], size, depth, bound)
        size[i], depth[i] = total + 1, deepest + 1
    return frozenset(bound)


def _shorten(
    args: Sequence[int], size: Sequence[int], depth: Sequence[int], bound: set[int]
) -> tuple[int, int]:
    """Bind the largest arguments until the rest is short; its size and depth."""
    folded = [a for a in args if size[a] and a not in bound]
    while folded and (
        sum(size[a] for a in folded) >= MAX_FOLDED or max(depth[a] for a in folded) >= MAX_DEPTH
    ):
        largest = max(folded, key=size.__getitem__)
        bound.add(largest)
        folded = [a for a in folded if a != largest]
    return sum(size[a] for a in folded), max((depth[a] for a in folded), default=0)


# --- who needs values -----------------------------------------------------------------------------

_LINEAR: Final = frozenset((ops.word_add, ops.word_sub, ops.word_mul, ops.word_lt))
"""Operations that indices are made of, and that ask about them."""


_BITWISE: Final = frozenset({ops.word_and, ops.word_or, ops.word_xor, ops.bits_float})
"""Operations that take words for bits."""


@dataclass
class Uses:
    """How often what a kernel does needs each of its values; a node that is not needed is missing.

    ``elsewhere`` are those that are needed in another scope than the one where they are computed,
    the ends of loops, which every turn asks for, results in rows, which are stored at the end, and
    the numbers of rows. ``captured`` are those that routines need of the scope around them.
    """

    kernel: KernelIR

    def __post_init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.stated: Counter[int] = Counter()
        """Needs of statements alone."""
        self.elsewhere: set[int] = set()
        self.captured: set[int] = set()
        self.read: list[ReadRow] = []
        self.stored: list[StoreRow] = []
        """The rows of points that are read, and those of results."""
        self._scope(self.kernel.main)

    def _scope(self, scope: Scope) -> None:
        counts, nodes, inner = self.counts, self.kernel.graph.nodes, scope.depth > 0
        for item in reversed(scope.items):
            if isinstance(item, int):
                if item in counts:
                    values = nodes[item][1:]
                    for v in values:
                        counts[v] = counts.get(v, 0) + 1
                    if inner:
                        self._from(scope, values)
            elif not isinstance(item, Load) or item.result in self.counts:
                self._state(item, scope)

    def _state(self, item: Statement, scope: Scope) -> None:
        if isinstance(item, For):
            self._asked(_ends(item), item.scope)
            self.elsewhere.add(item.hi)
        if isinstance(item, StoreRow):
            self.elsewhere.update(item.values)
            self.stored.insert(0, item)
        if isinstance(item, ReadRow):
            self.elsewhere.add(item.row)
            self.read.insert(0, item)
        if isinstance(item, If):
            for side, yields in zip(item.sides, item.yields, strict=True):
                self._asked(yields, side)
        for inner in scopes_of(item):
            self._scope(inner)
        if isinstance(item, Routine):
            self._capture(item)
        self._asked(operands(self.kernel, item), scope)

    def _capture(self, routine: Routine) -> None:
        """Note what a routine needs of the outermost scope, which knows what is given itself."""
        kernel = self.kernel
        needed = needs(kernel, routine.scope.items) - kernel.given.keys()
        own = {*routine.params, *kernel.lengths.values()}
        self.captured |= {i for i in needed - own if not kernel.graph.nodes[i][0].constant}

    def _asked(self, values: Sequence[int], scope: Scope) -> None:
        """Note what a statement needs, or the end of a scope."""
        self.stated.update(values)
        self._need(values, scope)

    def _need(self, values: Sequence[int], scope: Scope) -> None:
        counts = self.counts
        for v in values:
            counts[v] = counts.get(v, 0) + 1
        if scope.depth:  # what the outermost scope needs stands there
            self._from(scope, values)

    def _from(self, scope: Scope, values: Sequence[int]) -> None:
        """Note which of the values that a scope needs are of another."""
        self.elsewhere.update(v for v in values if self.kernel.home[v] is not scope)

    @cached_property
    def indices(self) -> frozenset[int]:
        """Indices that are too cheap to be named: a * n + c, parts of it, and a < n."""
        nodes, depths = self.kernel.graph.nodes, dict[int, int]()
        for i in sorted([i for i in self.counts if nodes[i][0] in _LINEAR]):
            args = nodes[i][1:]
            depth = max(depths.get(a, 0) for a in args)
            if depth < 2 and i not in self.kernel.names and any(nodes[a][0] is WORD for a in args):
                depths[i] = depth + 1
        return frozenset(depths.keys() - self.captured)

    @cached_property
    def _repeated(self) -> set[int]:
        """The parts of indices without a name that are written several times."""
        nodes, repeated = self.kernel.graph.nodes, set[int]()
        for i in sorted(self.indices, reverse=True):
            if self.counts[i] > 1 or i in repeated:
                repeated.update(nodes[i][1:])
        return repeated

    @cached_property
    def columns(self) -> dict[int, tuple[ReadRow, int]]:
        """The numbers of rows that are read: the statements, and the columns."""
        return {i: (s, c) for s in self.read for c, i in s.results.items()}

    @cached_property
    def over_barriers(self) -> Set[int]:
        """The named floats that are computed before a barrier, and needed behind one."""
        return _Waiting(self).crossing

    @cached_property
    def lone(self) -> Set[int]:
        """The values that are needed, except indices and numbers that are read."""
        nodes, reading = self.kernel.graph.nodes, {b.read for b in self.kernel.buffers}
        return {i for i in self.counts if nodes[i][0] not in reading} - self.indices

    @cached_property
    def numbers(self) -> Set[int]:
        """The known words that are numbers, rather than masks and other patterns of bits."""
        nodes = self.kernel.graph.nodes
        words = {i for i in self.counts if nodes[i][0] is WORD}
        users = [i for i in self.counts if nodes[i][0] in _BITWISE] if words else ()
        return words.difference(*(nodes[i][1:] for i in users))

    def is_named(self, i: int) -> bool:
        """Whether the user has a name for what more than one statement needs."""
        needed = i in self.kernel.names and i in self.counts
        return needed and not self.stated[i] == self.counts[i] == 1

    @cached_property
    def bound(self) -> frozenset[int]:
        """The nodes that get a name: what the user named, and what `bind` says."""
        graph, names = self.kernel.graph, self.kernel.names
        nodes = graph.nodes
        order = sorted([i for i in self.counts if nodes[i][0].arity])
        named = self.elsewhere.union(filter(self.is_named, names), self._repeated)
        roots = named.intersection(order)
        return bind(graph, order, sorted(roots), self.stated) - self.indices


class _Waiting:
    """Goes through a kernel, and counts the barriers before what is computed, and what needs it."""

    def __init__(self, uses: Uses) -> None:
        self.crossing: set[int] = set()
        self._uses, self._kernel = uses, uses.kernel
        self._passed = 0
        """Barriers up to here, and the starts and ends of loops that have some."""
        self._known: dict[int, int] = {}
        """Named floats, and the barriers before them."""
        if _any_waits([self._kernel.main]):
            self._scope(self._kernel.main)

    def _scope(self, scope: Scope) -> None:
        for item in scope.items:
            if isinstance(item, int):
                if item in self._uses.bound:
                    self._need(self._kernel.graph.args(item))
                    if self._is_made(item):
                        self._known[item] = self._passed
                continue
            self._need(operands(self._kernel, item))
            passed, waits = self._passed, _waits_in(item)
            self._passed += waits
            for inner in scopes_of(item):
                self._scope(inner)
            self._need(_ends(item))
            self._passed = passed if isinstance(item, Routine) else self._passed + waits

    def _is_made(self, i: int) -> bool:
        """Whether a named node is a float that is made where it stands, and not for routines."""
        graph = self._kernel.graph
        return graph.type(i) == "f" and i not in self._uses.captured

    def _need(self, values: Sequence[int]) -> None:
        """Note who waits among values, and what those that have no name are made of."""
        waiting = list(values)
        while waiting:
            i = waiting.pop()
            if i in self._known:
                if self._known[i] < self._passed:
                    self.crossing.add(i)
            elif i not in self._uses.bound:
                waiting += self._kernel.graph.args(i)


def _ends(item: Statement) -> Sequence[int]:
    """The values that the scopes of a statement need at their ends."""
    match item:
        case For(yields=yields, test=test):
            return yields if test is None else [*yields, test]
        case If(yields=yields):
            return [i for side in yields for i in side]
        case _:
            return ()


def _waits_in(item: Statement) -> bool:
    """Whether invocations wait for each other in a statement; of a routine, its calls do."""
    match item:
        case Barrier():
            return True
        case Call(routine=routine):
            return _any_waits([routine.scope])
        case For() | If():
            return _any_waits(scopes_of(item))
        case _:
            return False


def _any_waits(scopes: Iterable[Scope]) -> bool:
    return any(
        _waits_in(item) for scope in scopes for item in scope.items if not isinstance(item, int)
    )
