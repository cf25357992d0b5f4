"""The values of a kernel: what they are called in WGSL, and which expressions they are."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final, Protocol

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Op
from symgrad.expr.graph.place import Place
from symgrad.expr.laws.facts import Facts
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.passes.uses import Uses
from symgrad.mathlib.quotient import LARGE
from symgrad.wgsl.printing.analysis import Own
from symgrad.wgsl.printing.operations import PRIMARY, Text, render, render_wide
from symgrad.wgsl.printing.source import Style, identifier, is_reserved, printable

COMMENT_COLUMN = 56

OURS: Final = frozenset(
    {"main", "params", "scratch", "cell", "stride", "group", "groups", "group_number", "local"}
)
"""Names that every kernel may define."""

STAGED: Final = OURS | {"first", "rows", "tile", "tile_quad"}
"""Names that one may define whose results go through a group's memory."""


class Writer:
    """The statements of straight-line code: names, loads where first needed, comments.

    A node in ``bound`` gets a name; the others are folded into the expression of their user.
    """

    def __init__(
        self, graph: Graph, bound: frozenset[int], calls: Mapping[Op, str], style: Style
    ) -> None:
        self.graph, self.bound, self.calls, self.style = graph, bound, calls, style
        self.floats = style.floats
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
        return self.texts[i][0] if i in self.texts else self.floats.literal(self.graph.nodes[i])[0]

    def write(self, i: int, expression: Text | None = None) -> str:
        """The line that makes the value of an operation; "" if it has none of its own.

        Its text is then part of its user's, and forgotten with that.
        """
        expression = expression or self.expression(i)
        if self._folded:
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

    def repeat_place(self) -> None:
        """Have the next line say the user's line again, as if no statement stood before it."""
        self._last = None

    def declare(self, i: int, name: str) -> str:
        """The left side of the statement that gives the value of node i its name."""
        self.texts[i] = (name, PRIMARY)
        return f"let {name}"

    def expression(self, i: int) -> Text:
        """An operation, of the texts of its arguments."""
        op = self.floats.operation(self.graph.nodes[i][0])
        if op is ops.div and ops.wide_div in self.calls and self._may_divide_by_much(i):
            self.used.add(ops.wide_div)
            return render_wide(self.graph, i, self.texts, self.calls[ops.wide_div])
        self.used.add(op)
        return render(self.graph, i, self.texts, self.calls, self.floats)

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


class Lazy(Protocol):
    """Where the numbers of rows are that are read where they are needed."""

    def in_row(self, i: int) -> str:
        """The text of a number of a row."""
        ...


class Values(Writer):
    """The state of a kernel that is being written: names of its values, and of all else.

    ``shared`` are values that functions need besides their arguments: these are variables of them
    all, which ``private`` lines declare. ``functions`` are the lines of functions that statements
    call. ``lazy`` has the numbers of rows that are not read yet.
    """

    lazy: Lazy

    def __init__(
        self,
        kernel: KernelIR,
        own: Own,
        calls: Mapping[Op, str],
        style: Style,
        uses: Uses,
        shared: Set[int],
    ) -> None:
        super().__init__(kernel.graph, uses.bound, calls, style)
        self.kernel, self.uses, self.shared = kernel, uses, shared
        self.private, self.functions = list[str](), list[str]()
        self.taken: set[str] = {*STAGED, *own.names.values()}
        """The names that something around has."""
        self._suggested: dict[int, str] = {}
        """Names of values that nobody else has named."""
        self._numbered = 0
        names = {kernel.cell: "cell", kernel.count: "params.count", kernel.local: "local"}
        names |= {kernel.group: "group_number" if kernel.target.grid else "group.x"}
        names |= {kernel.groups: "groups.x"}
        names |= {i: f"params.{name}" for i, name in kernel.arguments.items()}
        names |= {i: f"arrayLength(&{own.names[b]})" for b, i in kernel.lengths.items()}
        self.texts |= {i: (name, PRIMARY) for i, name in names.items()}
        self.texts |= {i: (f"{kernel.graph.nodes[i][1]}u", PRIMARY) for i in uses.numbers}

    # names ---------------------------------------------------------------------------------------

    def declare(self, i: int, name: str = "") -> str:
        """The left side of the statement that gives a value its name."""
        left = super().declare(i, self.named(i))
        if i not in self.shared:
            return left
        variable = self.texts[i][0]
        self.private.append(f"var<private> {variable}: {self.floats.types[self.graph.type(i)]};")
        return variable

    def named(self, i: int, default: str = "") -> str:
        """A new name for a value: the user's if there is one."""
        preferred = self.kernel.names.get(i) or self._suggested.get(i, "")
        wanted = preferred.strip("_") or default
        if not wanted:
            self._numbered += 1
            return f"t{self._numbered}"
        return self.free(identifier(wanted, is_reserved))

    def free(self, wanted: str) -> str:
        """A name that nothing around has, from here on taken."""
        name, k = wanted, 2
        while name in self.taken:
            name, k = f"{wanted}_{k}", k + 1
        self.taken.add(name)
        return name

    def suggest(self, i: int, name: str) -> None:
        """A name for a value, if nobody else has named it."""
        self._suggested.setdefault(i, name)

    # texts ---------------------------------------------------------------------------------------

    def text(self, i: int) -> str:
        """The value of a node that has been written, of a constant, or of a number of a row."""
        unread = i in self.uses.columns and i not in self.texts
        return self.lazy.in_row(i) if unread else super().text(i)

    def word(self, i: int) -> Text:
        """A word, and how tightly it binds."""
        text = self.text(i)
        return self.texts.get(i, (text, PRIMARY))

    def write(self, i: int, expression: Text | None = None) -> str:
        """A line as everywhere; but what a function or a choice gives is opaque over a barrier.

        llvmpipe makes parts of it anew behind the barrier, and takes others for them.
        """
        if i in self.uses.over_barriers:
            op = self.floats.operation(self.graph.nodes[i][0])
            if op in self.calls or op is ops.where:
                text, _ = expression or self.expression(i)
                expression = self.floats.pattern(ops.opaque).format(text), PRIMARY
        return super().write(i, expression)

    def has_sums(self, kind: str) -> bool:
        """Whether WGSL adds two values of a kind by an operator."""
        return kind != "f" or self.floats.operation(ops.add) is ops.add

    def sum(self, kind: str, a: str, b: str) -> str:
        """The text of the sum of two values of a kind."""
        if self.has_sums(kind):
            return f"{a} + {b}"
        op = self.floats.operation(ops.add)
        self.used.add(op)
        return f"{self.calls[op]}({a}, {b})"

    def assigned(self, text: str, i: int) -> str:
        """A line that gives a value to something: the user's is behind what computes it."""
        computed = self.graph.args(i) and i not in self.bound
        return self.line(text, i) if computed else self.indent + text
