"""The results of a kernel as expressions, before they are lowered: to be read, audited, pickled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.region import require_straight
from symgrad.expr.laws.simplify import Level, simplify
from symgrad.expr.tracers.expression import Expr
from symgrad.report.audit import Audit, audit
from symgrad.report.progress import Asked


@dataclass(frozen=True)
class Expressions:
    """Groups of nodes: for each of a kernel's results those of its numbers."""

    graph: Graph
    groups: tuple[tuple[int, ...], ...]

    @property
    def nodes(self) -> list[int]:
        """The nodes of all groups."""
        return [i for ids in self.groups for i in ids]

    def in_groups(self) -> tuple[tuple[Expr, ...], ...]:
        """The expressions themselves."""
        return tuple(tuple(Expr(self.graph, i) for i in ids) for ids in self.groups)

    def without_code(self) -> Expressions:
        """The same without what only differentiation needs, such as a user's own functions."""
        clean, roots = simplify(self.graph, self.nodes, level=False)
        ends = iter(roots)
        return Expressions(clean, tuple(tuple(next(ends) for _ in ids) for ids in self.groups))

    def audit(
        self,
        name: str,
        labels: Sequence[str],
        points: Any,
        level: Level,
        least: float,
        progress: Asked = False,
    ) -> Audit:
        """Their audit at points (B, n) of float32, as a kernel that simplifies so far runs them."""
        require_straight(self.graph, self.nodes, f"the audit of {name}")
        named = list(zip(labels, self.nodes, strict=True))
        return audit(name, self.graph, named, points, level, least, progress)
