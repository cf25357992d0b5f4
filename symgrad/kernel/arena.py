"""Nodes in nested scopes: each is computed as far out as it can be, and once where it is known."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, TRUTH, WORD, Graph, Node, Op, float_bits
from symgrad.kernel.statements import VALUES, Scope


class Arena:
    """The nodes of a kernel: ``at`` is the scope where things go now.

    Every node is computed in the innermost scope that one of its arguments stands in, so what a
    loop does not change is computed before it; and an equal node of a scope around is taken
    instead. Both are hash-consing along the chain of scopes. Only the sides of an `If` keep what
    is written in them.

    The arena may begin as a copy of another ``graph``'s, of which `compute` takes what is needed.
    Or it is that graph, and its nodes are ``floating``: they stand in no scope, and are computed
    wherever a statement needs them. So programs are written; `place` gives each node a scope.
    """

    def __init__(self, graph: Graph | None = None, floating: bool = False) -> None:
        graph = Graph() if graph is None else graph
        self.graph, self.floating = graph if floating else graph.copy(), floating
        self.at = self.main = Scope()
        self.home: dict[int, Scope] = {}
        """The scope of each node."""
        if not floating:
            self.graph.tracing = False
            self.main.index.update(zip(self.graph.nodes, range(len(self.graph)), strict=True))
            self.home.update(dict.fromkeys(range(len(self.graph)), self.main))
        self.columns: dict[int, tuple[int, int]] = {}
        """Words that are `offset`s: those of the first column, and the numbers of the columns."""
        self.computed: list[int] = []
        """The computed ones of the nodes that the arena began with: see `compute`."""

    @contextmanager
    def inside(self, scope: Scope) -> Generator[None]:
        """A context in which things go to this scope."""
        before, place, self.at = self.at, self.graph.place, scope
        yield
        self.at, self.graph.place = before, place

    def value(self, kind: str, name: str = "value") -> int:
        """A new value of this kind, known from the start of the scope or from a statement on.

        Of one that floats, ``name`` is told to the user.
        """
        if self.floating:
            return self.graph.input(name, kind)
        return self._made((VALUES[kind], len(self.graph)), self.at)

    def add(self, op: Op, *args: int) -> int:
        """The value ``op(*args)``, computed as far out as it can be."""
        if op.commutative and args[0] > args[1]:
            args = (args[1], args[0], *args[2:])
        if op in _NEUTRAL:
            folded = self._folded(op, args)
            if folded is not None:
                return folded
        return self.intern((op, *args), self._home(args) if self.at.depth else self.main)

    def compute(self, order: Iterable[int]) -> None:
        """Compute nodes that the arena began with, in the outermost scope; leaves are left out."""
        nodes = self.graph.nodes
        self.computed = [i for i in order if nodes[i][0].arity]
        self.main.items += self.computed

    def extend(
        self, graph: Graph, order: Iterable[int], known: dict[int, int], places: Sequence[int]
    ) -> None:
        """Add nodes of a graph to the outermost scope, and what they have become to ``known``.

        ``places`` are the numbers that the graph's lines have here.
        """
        assert self.at is self.main, "other scopes have scopes around them that may have the node"
        nodes, lines = self.graph.nodes, self.graph.places
        index, items = self.main.index, self.main.items
        first = len(nodes)
        for i in order:
            node = graph.nodes[i]
            op = node[0]
            if op.arity == 2:
                a, b = known[node[1]], known[node[2]]
                copy = (op, b, a) if a > b and op.commutative else (op, a, b)
            elif op.arity:
                copy = (op, *[known[a] for a in node[1:]])
            else:
                continue
            if op in _NEUTRAL:
                self.graph.place = places[graph.places[i]]
                known[i] = self.add(op, *copy[1:])
                continue
            number = index.get(copy)
            if number is None:
                number = index[copy] = len(nodes)
                nodes.append(copy)
                lines.append(places[graph.places[i]])
                items.append(number)
            known[i] = number
        self.home.update(dict.fromkeys(range(first, len(nodes)), self.main))

    def intern(self, node: Node, home: Scope) -> int:
        """The id of a node in ``home`` or a scope around it; it is made there unless it exists."""
        scope: Scope | None = home
        while scope is not None:
            if node in scope.index:
                return scope.index[node]
            scope = scope.parent
        i = self._made(node, home)
        home.index[node] = i
        if node[0].arity:
            home.items.append(i)
        return i

    def word(self, n: int) -> int:
        """A word that is known."""
        return self.intern((WORD, n), self.main)

    def constant(self, x: float) -> int:
        """A float that is known."""
        return self.intern((CONST, float_bits(float(x))), self.main)

    def truth(self, b: bool) -> int:
        """A truth that is known."""
        return self.intern((TRUTH, int(b)), self.main)

    def offset(self, i: int, scale: int, c: int) -> int:
        """The word ``i * scale + c``, which is no larger than words can be: column c of row i."""
        return self.shifted(self.add(ops.word_mul, i, self.word(scale)), c)

    def shifted(self, first: int, c: int) -> int:
        """The word ``first + c``, which is no larger than words can be: column c of a row."""
        if not c:
            return first
        column = self.add(ops.word_add, first, self.word(c))
        self.columns[column] = first, c
        return column

    def type(self, i: int) -> str:
        """The kind of a value: one of `KINDS`."""
        return self.graph.type(i)

    def _made(self, node: Node, home: Scope) -> int:
        i = len(self.graph.nodes)
        self.graph.nodes.append(node)
        self.graph.places.append(self.graph.place)
        self.home[i] = home
        return i

    def _home(self, args: Sequence[int]) -> Scope:
        """Where what is made of these is computed."""
        home, scope = self.home, self.at
        innermost = max([home[a].depth for a in args])
        while not scope.branch and scope.depth > innermost:
            assert scope.parent, "the outermost scope encloses all others"
            scope = scope.parent
        return scope

    def _folded(self, op: Op, args: Sequence[int]) -> int | None:
        """A sum, a difference or a product of words, folded with what is known of its arguments."""
        nodes, neutral = self.graph.nodes, _NEUTRAL[op]
        for a, b in (args, args[::-1]) if op.commutative else (args,):
            known, word, *_ = nodes[b]
            if known is not WORD:
                continue
            if nodes[a][0] is WORD:
                return self.word(int(op.reference(np.uint32(nodes[a][1]), np.uint32(word))))
            if word == neutral:
                return a
            if op is ops.word_mul and not word:
                return b
        return None


_NEUTRAL: Final = {ops.word_add: 0, ops.word_sub: 0, ops.word_mul: 1}
"""The word that changes nothing, as the second of two; as the first too, if they commute."""
