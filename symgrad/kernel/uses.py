"""Who needs the values of a kernel: which get a name, which are part of what needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from symgrad.expr import ops
from symgrad.expr.node import WORD
from symgrad.kernel.language import (
    For,
    If,
    Kernel,
    Load,
    Scope,
    Statement,
    operands,
    results_of,
    scopes_of,
)
from symgrad.kernel.schedule import bind

_LINEAR: Final = (ops.word_add, ops.word_sub, ops.word_mul, ops.word_lt)
"""What an index is made of, and what asks about it."""


@dataclass
class Uses:
    """How often what a kernel does needs each of its values; a node that nobody needs is missing.

    ``elsewhere`` are those that are needed in another scope than the one where they are computed,
    and ``again`` the ends of loops, which every turn asks for.
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.stated: Counter[int] = Counter()
        """Needs of statements alone."""
        self.elsewhere: set[int] = set()
        self._scope(self.kernel.main)

    def _scope(self, scope: Scope) -> None:
        for item in reversed(scope.items):
            if isinstance(item, int | Load) and not self._is_needed(item):
                continue
            if isinstance(item, For):
                ends = item.yields if item.test is None else [*item.yields, item.test]
                self._need(ends, item.scope)
                self.elsewhere.add(item.hi)
            if isinstance(item, If):
                for side, yields in zip(item.sides, item.yields, strict=True):
                    self._need(yields, side)
            for inner in scopes_of(item):
                self._scope(inner)
            self._need(operands(self.kernel, item), scope, not isinstance(item, int))

    def _is_needed(self, item: int | Statement) -> bool:
        return any(r in self.counts for r in results_of(item))

    def _need(self, values: Iterable[int], scope: Scope, stated: bool = True) -> None:
        for v in values:
            self.counts[v] += 1
            self.stated[v] += stated
            if self.kernel.home[v] is not scope:
                self.elsewhere.add(v)

    @cached_property
    def indices(self) -> frozenset[int]:
        """What is so cheap that nobody gives it a name: a * n + c, parts of it, and a < n."""
        nodes, found = self.kernel.graph.nodes, dict[int, int]()
        for i in sorted(self.counts):
            op, *args = nodes[i]
            if op not in _LINEAR or i in self.kernel.names:
                continue
            depth = max(found.get(a, 0) for a in args)
            if depth < 2 and any(nodes[a][0] is WORD for a in args):
                found[i] = depth + 1
        return frozenset(found)

    def _is_named(self, i: int) -> bool:
        """Whether the user has a name for it, and more than one statement needs it."""
        return i in self.kernel.names and not self.stated[i] == self.counts[i] == 1

    @cached_property
    def bound(self) -> frozenset[int]:
        """The nodes that get a name: what the user named, and what `bind` says."""
        graph = self.kernel.graph
        order = [i for i in sorted(self.counts) if graph.args(i)]
        roots = [i for i in order if i in self.elsewhere or self._is_named(i)]
        return bind(graph, order, roots, self.stated) - self.indices
