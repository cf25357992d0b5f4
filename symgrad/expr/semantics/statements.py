"""Graphs as lines of text: what is shared has a name, loops and choices are statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from symgrad.expr.graph.node import Graph, Op, reachable, users
from symgrad.expr.graph.region import TURNS, Choice, Loop, Pick, pick_op

PRIMARY, POWER, UNARY, QUOTIENT, PRODUCT, SUM, RELATION, LOGIC, LOOSE = 9, 8, 7, 6, 5, 4, 3, 2, 0

LONGEST: Final = 400
"""Characters beyond which a value gets a name of its own, and what is shared gets names at all."""

SHARED_CHARACTERS: Final = 12
"""Characters of a shared value that then gets a name."""


class Text(NamedTuple):
    """What is shown of a node, and how tightly its outermost operation binds."""

    shown: str
    binding: int = PRIMARY
    constant: bool = False

    def wrapped(self, least: int, brackets: tuple[str, str] = ("(", ")")) -> str:
        """The text, in brackets if it binds less tightly than that."""
        return self.shown if self.binding >= least else self.shown.join(brackets)


@dataclass(frozen=True)
class Style:
    """How operations, leaves, names and statements are written."""

    write: Callable[[Op, Sequence[Text]], Text]
    leaf: Callable[[Graph, int], Text]
    name: str
    """The name number ``{}`` of what the user has no name for."""
    named: Callable[[str], str]
    """A name of the user's."""
    assign: str
    """That names are values. In this and what follows, ``{i}`` is the indentation."""
    change: str
    """The same within a loop or a choice."""
    up: str
    """The head of a loop over ``{0}`` from ``{1}`` to before ``{2}``."""
    down: str
    stop: str
    """The end of a loop where ``{0}`` does not hold."""
    then: str
    otherwise: str
    indent: str
    apart: str
    """What stands between several names or values."""


def written(graph: Graph, roots: Sequence[int], style: Style) -> tuple[list[str], list[Text]]:
    """The lines that give names to values, and the texts of the roots after them."""
    writer = _Writer(style, {*graph.names})
    texts = writer.block(graph, roots, {}, "")
    return writer.lines, texts


class _Writer:
    """Lines that are being written, and the names that are taken."""

    def __init__(self, style: Style, taken: set[str]) -> None:
        self._style, self._taken = style, taken
        self._numbers = count()
        self.lines: list[str] = []

    def block(
        self, graph: Graph, roots: Sequence[int], given: Mapping[int, Text], indent: str
    ) -> list[Text]:
        """Write the lines before the roots, whose texts these are."""
        order = reachable(graph, roots)
        uses, texts = users(graph, order), dict(given)
        limit = SHARED_CHARACTERS if _is_long(graph, order) else LONGEST
        results: dict[int, dict[int, Text]] = {}
        counted = {graph.nodes[i][1] for i in order if graph.nodes[i][0] is pick_op(TURNS, "u")}
        for i in order:
            op, *args = graph.nodes[i]
            if i in texts:
                continue
            if isinstance(op, Loop):
                results[i] = self._loop(op, [texts[a] for a in args], indent, i in counted)
            elif isinstance(op, Choice):
                results[i] = self._choice(op, [texts[a] for a in args], indent)
            elif isinstance(op, Pick):
                texts[i] = results[args[0]][op.index]
            else:
                texts[i] = text = self._text(graph, i, texts)
                if (
                    op.arity
                    and i not in roots
                    and len(text.shown) > (LONGEST if uses[i] == 1 else limit)
                ):
                    texts[i] = self._assigned(text, indent)
        return [texts[i] for i in roots]

    def _text(self, graph: Graph, i: int, texts: Mapping[int, Text]) -> Text:
        op, *args = graph.nodes[i]
        if not op.arity:
            return self._style.leaf(graph, i)
        return self._style.write(op, [texts[a] for a in args])

    def _assigned(self, value: Text, indent: str) -> Text:
        name = self._new_name()
        self._set(indent, [name], [value])
        return Text(name)

    def _loop(self, op: Loop, args: Sequence[Text], indent: str, counted: bool) -> dict[int, Text]:
        """Write a loop; its results are the names of its carries, and of its iterations."""
        style, body = self._style, op.body
        (lo, hi), (inits, captures) = args[:2], op.split(args[2:])
        k, *names = [self._own_name(n) for n in body.graph.names[: 1 + op.carries]]
        iterations = [self._own_name("turns")] * counted
        self._set(indent, [*names, *iterations], [*inits, *(Text("0") for _ in iterations)])
        head = style.down if op.down else style.up
        self._line(indent, head, k, lo.shown, hi.shown)
        params = [Text(k), *map(Text, names), *captures]
        given, within = dict(zip(body.params, params, strict=True)), indent + style.indent
        if op.test:
            test = self.block(body.graph, body.yields[op.carries :], given, within)[0]
            self._line(within, style.stop, test.shown)
        new = self.block(body.graph, body.yields[: op.carries], given, within)
        self._set(within, [*names, *iterations], [*new, *(Text(f"{t} + 1") for t in iterations)])
        results = dict(enumerate(map(Text, names)))
        for name in iterations:
            results[TURNS] = Text(name)
        return results

    def _choice(self, op: Choice, args: Sequence[Text], indent: str) -> dict[int, Text]:
        """Write a choice; its results have names."""
        style, within = self._style, indent + self._style.indent
        names = [self._new_name() for _ in range(op.results)]
        given = dict(zip(op.body.params, args[1:], strict=True))
        heads = style.then, style.otherwise
        for head, side in zip(heads, op.sides(), strict=True):
            self._line(indent, head, args[0].shown)
            values = self.block(op.body.graph, side, given, within)
            self._set(within, names, values)
        return dict(enumerate(map(Text, names)))

    def _set(self, indent: str, names: Sequence[str], values: Sequence[Text]) -> None:
        pairs = [(n, v.shown) for n, v in zip(names, values, strict=True) if n != v.shown]
        if pairs:
            left, right = (self._style.apart.join(part) for part in zip(*pairs, strict=True))
            self._line(indent, self._style.change if indent else self._style.assign, left, right)

    def _line(self, indent: str, pattern: str, *parts: str) -> None:
        self.lines.append(pattern.format(*parts, i=indent))

    def _new_name(self) -> str:
        """A name for what the user has none for."""
        return self._free(self._style.name.format(k) for k in self._numbers)

    def _own_name(self, name: str) -> str:
        """The user's name for a counter or a carry, or one that is like it."""
        tries = (name if k == 1 else f"{name}_{k}" for k in count(1))
        return self._style.named(self._free(tries))

    def _free(self, names: Iterator[str]) -> str:
        name = next(n for n in names if n not in self._taken)
        self._taken.add(name)
        return name


def _is_long(graph: Graph, order: Sequence[int]) -> bool:
    """Whether the text would be long if every value were written out wherever it is used."""
    lengths: dict[int, int] = {}
    for i in order:
        lengths[i] = 3 + sum(lengths[a] for a in graph.args(i))
        if lengths[i] > LONGEST:
            return True
    return False
