"""Signs that cost nothing: a negation moves into a constant factor, or into a sum.

All of this is exact: -(c * x) is (-c) * x, and a - x is a + -x, to the last bit and for zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, Graph, Op, reachable
from symgrad.expr.graph.rebuild import outline, rebuild

PRODUCTS: Final = (ops.mul, ops.div)

SIGNED: Final = frozenset((*PRODUCTS, ops.sub))
"""Operations that may be computed with the other sign."""

FAR: Final = 4
"""Operations from a negation to the constant that takes it up, and to those that need no sign."""


def place_signs(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph, in which what is mostly needed with the other sign is computed with it."""
    if ops.neg not in graph.heads:
        return graph, list(roots)
    order = reachable(graph, roots)
    signs = _Negating(graph, roots, order)
    negated = signs.negated()
    if not negated:
        return graph, list(roots)
    concerned = negated.union(*(signs.users[i] for i in negated))
    return _with_negated(graph, roots, order, negated, concerned)


class _Negating:
    """Which nodes are to be computed with the other sign."""

    def __init__(self, graph: Graph, roots: Sequence[int], order: Sequence[int]) -> None:
        self.nodes, self.order, self.ends = graph.nodes, order, frozenset(roots)
        self.users = self._users()
        self._known: dict[tuple[int, int], tuple[int, set[int]]] = {}

    def _users(self) -> dict[int, list[int]]:
        """Who needs the products and differences: nothing else is ever of the other sign."""
        nodes = self.nodes
        users: dict[int, list[int]] = {i: [] for i in self.order if nodes[i][0] in SIGNED}
        for i in self.order:
            node = nodes[i]
            if node[0].arity:
                for a in {*node[1:]}:
                    if a in users:
                        users[a].append(i)
        return users

    def negated(self) -> set[int]:
        """The nodes."""
        negated_nodes: set[int] = set()
        for i in self.order:
            if self.nodes[i][0] is not ops.neg:
                continue
            of = self.nodes[i][1]
            if of in negated_nodes:
                continue
            sources = self._sources(of, FAR)
            origin = of if sources else self._shared_source(of)
            saved, follow = (0, set[int]()) if origin is None else self._saved(origin, FAR)
            if origin is not None and saved > 0:
                negated_nodes |= (sources or set()) | follow | {origin}
        return negated_nodes

    def _shared_source(self, i: int) -> int | None:
        """A factor of node i that has a constant for a factor, and that others need as well."""
        op, *args = self.nodes[i]
        return next((a for a in args if op in PRODUCTS and self._has_constant(a)), None)

    def _has_constant(self, i: int) -> bool:
        op, *args = self.nodes[i]
        return op in PRODUCTS and any(self.nodes[a][0] is CONST for a in args)

    def _sources(self, i: int, far: int) -> set[int] | None:
        """The nodes whose other sign gives node i its own for nothing; None if there are none."""
        op, *args = self.nodes[i]
        if op not in PRODUCTS:
            return None
        if self._has_constant(i):
            return {i}
        for a in args if far else ():
            alone = self.users.get(a) == [i] and a not in self.ends and args.count(a) == 1
            sources = self._sources(a, far - 1) if alone else None
            if sources is not None:
                return sources | {i}
        return None

    def _saved(self, i: int, far: int) -> tuple[int, set[int]]:
        """Negations that the other sign of node i saves, and who has the other sign with it."""
        if (i, far) not in self._known:
            self._known[i, far] = self._counted(i, far)
        return self._known[i, far]

    def _counted(self, i: int, far: int) -> tuple[int, set[int]]:
        saved, follow, again = 0, set[int](), i in self.ends
        for user in self.users[i]:
            op, *args = self.nodes[user]
            if op is ops.neg:
                saved += 1
            elif self._absorbs(op, args, i):
                continue
            elif far and self._passes(op, args, i):
                more, others = self._saved(user, far - 1)
                if more >= 0:
                    saved += more
                    follow |= others | {user}
                else:
                    again = True
            else:
                again = True
        return saved - again, follow

    def _absorbs(self, op: Op, args: Sequence[int], i: int) -> bool:
        """Whether an operation is as cheap, and its value the same, of the other sign of i."""
        if op in PRODUCTS:
            return args[0] == args[1] or any(self.nodes[a][0] is CONST for a in args)
        if op not in (ops.add, ops.sub) or args[0] == args[1]:
            return False
        return op is ops.add or args[1] == i

    def _passes(self, op: Op, args: Sequence[int], i: int) -> bool:
        """Whether an operation has the other sign for nothing if i has."""
        return op in PRODUCTS or (op is ops.sub and args[0] == i != args[1])


def _with_negated(
    graph: Graph,
    roots: Sequence[int],
    order: Sequence[int],
    negated: set[int],
    concerned: set[int],
) -> tuple[Graph, list[int]]:
    """The graph with some nodes of the other sign, and what uses them written accordingly.

    All of these are ``concerned``.
    """
    negative, copy = set[int](), outline(graph)
    target = copy.graph

    def build(i: int, op: Op, *arguments: int) -> int:
        signs = [a in negative for a in graph.args(i)]
        if op is ops.neg and signs[0]:
            return arguments[0]
        if op in PRODUCTS:
            sign = signs[0] != signs[1]
            if sign != (i in negated):
                arguments, sign = _with_constant_negated(target, arguments, sign)
        elif op in (ops.add, ops.sub) and any(signs):
            op, arguments, sign = _sum(op, arguments, signs)
        else:
            sign = False
            arguments = tuple(
                target.add(ops.neg, a) if s else a for a, s in zip(arguments, signs, strict=True)
            )
        node = target.add(op, *arguments)
        if sign and i in negated:
            negative.add(i)
        return target.add(ops.neg, node) if sign and i not in negated else node

    changed = {i: partial(build, i) for i in concerned}
    rebuilt, ends = rebuild(graph, order, copy, changed=changed).of(roots)
    for k, i in enumerate(roots):
        if i in negative:
            ends[k] = rebuilt.add(ops.neg, ends[k])
    return rebuilt, ends


def _with_constant_negated(
    target: Graph, arguments: tuple[int, ...], sign: bool
) -> tuple[tuple[int, ...], bool]:
    """The factors, a constant among them of the other sign, and what sign that gives."""
    for k, a in enumerate(arguments):
        value = target.value(a)
        if value is not None:
            other = target.constant(-value)
            return (*arguments[:k], other, *arguments[k + 1 :]), not sign
    return arguments, sign


def _sum(
    op: Op, arguments: tuple[int, ...], signs: Sequence[bool]
) -> tuple[Op, tuple[int, ...], bool]:
    """A sum or a difference of arguments with such signs: operation, arguments, and its sign."""
    a, b = arguments
    minus = signs[1] == (op is ops.add)
    """Whether b is taken off."""
    if not signs[0]:
        return (ops.sub if minus else ops.add), (a, b), False
    return (ops.add, (a, b), True) if minus else (ops.sub, (b, a), False)
