"""Statements of WGSL that a person can read, and that naga and Tint both take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Op
from symgrad.expr.graph.place import Place
from symgrad.expr.laws.facts import Facts
from symgrad.mathlib.quotient import LARGE
from symgrad.wgsl.printing.expression import PRIMARY, Text, literal, render, render_wide
from symgrad.wgsl.printing.names import printable

COMMENT_COLUMN = 56


@dataclass(frozen=True)
class Style:
    """What the source says beside the code."""

    math: str = "accurate"
    comments: bool = True
    title: str = ""
    columns_in: bool = False
    """Whether points stand column by column, and not row by row, each of ``params.count``."""
    columns_out: bool = False
    """The same for results."""


class Writer:
    """The statements of straight-line code: names, loads where first needed, comments.

    A node in ``bound`` gets a name; the others are folded into the expression of their user.
    """

    def __init__(
        self, graph: Graph, bound: frozenset[int], calls: Mapping[Op, str], style: Style
    ) -> None:
        self.graph, self.bound, self.calls, self.style = graph, bound, calls, style
        self.used: set[Op] = set()
        """The operations that have been written, among them those that are functions."""
        self.texts: dict[int, Text] = {}
        self._facts = Facts(graph)
        self._folded: set[int] = set()
        self._last: Place | None = None
        self._source = 0
        self.indent = "  "

    def text(self, i: int) -> str:
        """The value of a node that has been written, or of a constant."""
        return self.texts[i][0] if i in self.texts else literal(self.graph.nodes[i])[0]

    def write(self, i: int, expression: Text | None = None) -> str:
        """The line that makes the value of an operation; "" if it has none of its own.

        Its text is then part of its user's, and forgotten with that.
        """
        expression = expression or self.expression(i)
        for a in self.graph.nodes[i][1:]:
            if a in self._folded:  # no other expression needs it
                self._folded.remove(a)
                del self.texts[a]
        if i not in self.bound:
            self._folded.add(i)
            self.texts[i] = expression
            return ""
        return self.line(f"{self.declare(i, f't{i}')} = {expression[0]};", i)

    def line(self, text: str, i: int) -> str:
        """A line, and behind it that of the user's that made node i."""
        line = self.indent + text
        return line + self._comment(i, len(line)) if self.style.comments else line

    def declare(self, i: int, name: str) -> str:
        """The left side of the statement that gives the value of node i its name."""
        self.texts[i] = (name, PRIMARY)
        return f"let {name}"

    def expression(self, i: int) -> Text:
        """An operation, of the texts of its arguments."""
        op = self.graph.nodes[i][0]
        if op is ops.div and ops.wide_div in self.calls and self._may_divide_by_much(i):
            self.used.add(ops.wide_div)
            return render_wide(self.graph, i, self.texts, self.calls[ops.wide_div])
        self.used.add(op)
        return render(self.graph, i, self.texts, self.calls)

    def _may_divide_by_much(self, i: int) -> bool:
        """Whether the divisor of node i may be too large for a device's reciprocal.

        A reciprocal itself is subnormal there, and may be flushed.
        """
        return self._facts.largest(self.graph.nodes[i][-1]) > LARGE

    def _comment(self, i: int, width: int) -> str:
        """The user's line, where it is another than that of the statement before."""
        number = self.graph.places[i]
        if number == self._source:
            return ""
        self._source = number
        place = self.graph.place_of(i)
        if place is None or place == self._last or not place.text:
            return ""
        self._last = place
        return " " * max(2, COMMENT_COLUMN - width) + "// " + printable(place.text)
