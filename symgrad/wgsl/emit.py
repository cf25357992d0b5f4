"""Plan -> WGSL: source that a person can read and that naga and Tint both take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, Graph, Op
from symgrad.expr.graph.place import Place
from symgrad.expr.laws.facts import Facts
from symgrad.kernel.plan import Piece, Plan
from symgrad.mathlib.define import Function
from symgrad.mathlib.quotient import LARGE
from symgrad.wgsl.definitions import Library
from symgrad.wgsl.expression import PRIMARY, TYPES, Text, literal, render, render_wide
from symgrad.wgsl.names import names_of_inputs, printable
from symgrad.wgsl.skeletons import Skeleton, header, main_function, operations, preamble
from symgrad.wgsl.stores import place

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


def emit(
    plan: Plan, functions: Mapping[Op, Function], style: Style | None = None
) -> tuple[str, ...]:
    """The WGSL modules of a plan, in the order in which they run."""
    style = style or Style()
    names = names_of_inputs(plan.graph)
    count = operations(plan)
    library = Library(functions)
    sources = []
    for k in range(len(plan.pieces)):
        body = _Body(plan, plan.pieces[k], names, library.names, style)
        by_columns = style.columns_in, style.columns_out
        head = header(plan, k, count, style.math, style.title, by_columns)
        sources.append(_module(head, body, library))
    return tuple(sources)


def _module(head: Iterable[str], body: _Body, library: Library) -> str:
    # a function is kept as one text: a line of its own takes three times its length
    texts = ["\n".join(body.part(k)) for k in range(len(body.piece.parts))]
    parts = [[text] if text else [] for text in texts]
    skeleton = Skeleton(body.plan, body.piece, body.text, body.style.columns_out)
    lines = [
        *head,
        *preamble(skeleton),
        *library.definitions(body.used),
        *body.private,
        *main_function(skeleton, parts),
    ]
    return "\n".join(lines) + "\n"


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

    def write(self, i: int) -> str:
        """The line that makes the value of an operation; "" if it has none of its own.

        Its text is then part of its user's, and forgotten with that.
        """
        expression = self.expression(i)
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


class _Body(Writer):
    """The statements of one shader of a plan."""

    def __init__(
        self, plan: Plan, piece: Piece, names: list[str], calls: Mapping[Op, str], style: Style
    ) -> None:
        super().__init__(plan.graph, plan.bound, calls, style)
        self.plan, self.piece, self.names = plan, piece, names
        self.private: list[str] = []
        self._rows = {i: r for r in piece.fetches for i in plan.scratch[r]}
        self._lists = [_expression_nodes(plan.graph, part, plan.bound) for part in piece.parts]
        self._shared = self._nodes_of_several_parts()

    def _nodes_of_several_parts(self) -> set[int]:
        """What one function makes and another, or the end of the shader, needs."""
        if len(self.piece.parts) < 2:
            return set()
        rows = self.plan.scratch
        shared = {i for r in self.piece.spills for i in rows[r]}
        shared.update(s.node for s in self.piece.stores)
        shared.update(i for r in self.piece.fetches for i in rows[r])
        first: dict[int, int] = {}
        for k, part in enumerate(self._lists):
            named = [i for i in part if i in self.bound or self.graph.nodes[i][0] is INPUT]
            shared.update([i for i in named if first.setdefault(i, k) != k])
        return shared

    def text(self, i: int) -> str:
        """The value of a node, for a store at the end of the shader."""
        if i not in self.texts and self.graph.nodes[i][0] is INPUT:
            return self._address(i)
        return super().text(i)

    def part(self, k: int) -> Iterator[str]:
        """The lines of one function."""
        nodes = self.graph.nodes
        for i in self._lists[k]:
            if i in self.texts:
                continue
            if i in self._rows or nodes[i][0] is INPUT:
                yield from self._load(i)
            elif line := self.write(i):
                yield line

    def declare(self, i: int, name: str) -> str:
        """The left side of a statement; what several functions need is a variable of them all."""
        left = super().declare(i, name)
        if i not in self._shared:
            return left
        self.private.append(f"var<private> {name}: {TYPES[self.graph.type(i)]};")
        return name

    def _load(self, i: int) -> Iterator[str]:
        if i in self._rows:
            yield from self._fetch(self._rows[i])
        else:
            name = self.names[self.graph.nodes[i][1]]
            yield f"  {self.declare(i, name)} = {self._address(i)};"

    def _address(self, i: int) -> str:
        number, n = self.graph.nodes[i][1], len(self.graph.names)
        return f"x[{place(number, n, self.style.columns_in)}]"

    def _fetch(self, row: int) -> Iterator[str]:
        yield f"  let s{row} = scratch[{row}u * stride() + cell];"
        for i, component in zip(self.plan.scratch[row], "xyzw", strict=False):
            test = " != 0.0f" if self.graph.type(i) == "b" else ""
            yield f"  {self.declare(i, f't{i}')} = s{row}.{component}{test};"


def _expression_nodes(graph: Graph, part: Iterable[int], bound: frozenset[int]) -> list[int]:
    """The nodes of some statements: the bound ones, what is folded into them, what they load."""
    found = set(part)
    stack = list(found)
    nodes = graph.nodes
    loads: list[int] = []
    for i in stack:
        if nodes[i][0].arity:
            for a in nodes[i][1:]:
                if a in found:
                    continue
                if a not in bound and nodes[a][0].arity:
                    found.add(a)
                    stack.append(a)
                elif a in bound or nodes[a][0] is INPUT:
                    loads.append(a)
    return _loads_first(sorted(found), graph, set(loads))


def _loads_first(order: Sequence[int], graph: Graph, outside: set[int]) -> list[int]:
    """The nodes in order, each value from outside just before the first that needs it."""
    result: list[int] = []
    for i in order:
        for a in graph.nodes[i][1:]:
            if a in outside:
                outside.discard(a)
                result.append(a)
        result.append(i)
    return result
