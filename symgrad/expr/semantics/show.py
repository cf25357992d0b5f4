"""Expressions as text, as LaTeX and as Graphviz source; in long ones, what is shared has a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Final, NamedTuple

from symgrad.expr.graph.arrays import FRESH, READS
from symgrad.expr.graph.node import CONST, INTEGER, TRUTH, WORD, Graph, Handle, Op, reachable, users
from symgrad.expr.graph.place import resolve_places
from symgrad.expr.graph.region import TURNS, Choice, Loop, Pick, Regional, name_of, pick_op, regions
from symgrad.expr.ops import word_float

# --- statements -----------------------------------------------------------------------------------


PRIMARY, POWER, UNARY, QUOTIENT, PRODUCT, SUM, RELATION, LOGIC, LOOSE = 9, 8, 7, 6, 5, 4, 3, 2, 0

LONGEST: Final = 400
"""Characters beyond which a value gets a name of its own, and what is shared gets names at all."""

SHARED_CHARACTERS: Final = 12
"""Characters of a shared value that then gets a name."""


class Text(NamedTuple):
    """The text of a node, and how tightly its outermost operation binds."""

    shown: str
    binding: int = PRIMARY
    constant: bool = False

    def wrapped(self, least: int, brackets: tuple[str, str] = ("(", ")")) -> str:
        """The text, in brackets if it binds less tightly than that."""
        return self.shown if self.binding >= least else self.shown.join(brackets)


@dataclass(frozen=True)
class Notation:
    """How operations, leaves, names and statements are written."""

    write: Callable[[Op, Sequence[Text]], Text]
    leaf: Callable[[Graph, int], Text]
    name: str
    """The name number ``{}`` of a value that the user has not named."""
    named: Callable[[str], str]
    """A name of the user's."""
    assign: str
    """The assignment of values to names. Here and below, ``{i}`` is the indentation."""
    change: str
    """An assignment within a loop or a choice."""
    up: str
    """The head of a loop over ``{0}`` from ``{1}`` to before ``{2}``."""
    down: str
    stop: str
    """The end of a loop where ``{0}`` does not hold."""
    then: str
    otherwise: str
    indent: str
    apart: str
    """The separator of names and values."""


def written(graph: Graph, roots: Sequence[int], style: Notation) -> tuple[list[str], list[Text]]:
    """The lines that give names to values, and the texts of the roots after them."""
    writer = _Writer(style, {*graph.names})
    texts = writer.block(graph, roots, {}, "")
    return writer.lines, texts


class _Writer:
    """Lines that are being written, and the names that are taken."""

    def __init__(self, style: Notation, taken: set[str]) -> None:
        self._style, self._taken = style, taken
        self._numbers = count()
        self.lines: list[str] = []

    def block(
        self, graph: Graph, roots: Sequence[int], inputs: Mapping[int, Text], indent: str
    ) -> list[Text]:
        """Write the lines before the roots; the texts of the roots, by those of the inputs."""
        order = reachable(graph, roots)
        uses, texts = users(graph, order), dict(inputs)
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
        inputs, within = dict(zip(body.params, params, strict=True)), indent + style.indent
        if op.test:
            test = self.block(body.graph, body.yields[op.carries :], inputs, within)[0]
            self._line(within, style.stop, test.shown)
        new = self.block(body.graph, body.yields[: op.carries], inputs, within)
        self._set(within, [*names, *iterations], [*new, *(Text(f"{t} + 1") for t in iterations)])
        results = dict(enumerate(map(Text, names)))
        for name in iterations:
            results[TURNS] = Text(name)
        return results

    def _choice(self, op: Choice, args: Sequence[Text], indent: str) -> dict[int, Text]:
        """Write a choice; its results have names."""
        style, within = self._style, indent + self._style.indent
        names = [self._new_name() for _ in range(op.results)]
        inputs = dict(zip(op.body.params, args[1:], strict=True))
        heads = style.then, style.otherwise
        for head, side in zip(heads, op.sides(), strict=True):
            self._line(indent, head, args[0].shown)
            values = self.block(op.body.graph, side, inputs, within)
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


REPR = 200
"""Characters of a ``repr``."""

COUNTED = 10_000
"""Operations that a ``repr`` counts: it must not walk a million nodes."""


@cache
def _symbol(pattern: str) -> str | None:
    """The operator of ``{0} + {1}``; None for what is not infix."""
    match = re.fullmatch(r"\{0\} (\S+) \{1\}", pattern)
    return match[1] if match else None


def text(expr: Handle) -> str:
    """The whole expression as Python-like text; in a long one, what is used twice comes first.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.text(x ** 3 - 2 / x)
        'x**3 - 2 / x'
    """
    lines, [last] = written(expr.graph, [expr.id], _TEXT)
    return "\n".join([*lines, last.shown])


def short_text(expr: Handle) -> str:
    """The text; where it is long, what is next to the result, and the size: for ``repr``."""
    graph = expr.graph
    near = _near(graph, expr.id, COUNTED)
    operations = sum(1 for i in near if graph.nodes[i][0].arity)
    if operations <= REPR and not any(isinstance(graph.nodes[i][0], Regional) for i in near):
        full = text(expr).replace("\n", "; ")
        if len(full) <= REPR:
            return full
    count = f"{operations:,}" if len(near) < COUNTED else f"over {operations:,}"
    size = f" <{count} operations>"
    excerpt = _excerpt(graph, near[:24])
    width = REPR - len(size)
    return (excerpt if len(excerpt) <= width else f"{excerpt[: width - 3]}...") + size


def summary(expr: Handle, width: int) -> str:
    """The operations nearest to the result, in at most ``width`` characters."""
    shown = ""
    for most in (24, 12, 8, 6, 4, 3, 2, 1):
        shown = _excerpt(expr.graph, _near(expr.graph, expr.id, most))
        if len(shown) <= width and shown != "...":
            return shown
    return f"{shown[: width - 3]}..."


def latex(expr: Handle) -> str:
    r"""The expression as LaTeX.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> print(sg.latex(sg.sqrt(x) / 2))
        \frac{\sqrt{x}}{2}
    """
    lines, [last] = written(expr.graph, [expr.id], _LATEX)
    if not lines:
        return last.shown
    body = r" \\ ".join([*lines, f"& {last.shown}"])
    return rf"\begin{{aligned}} {body} \end{{aligned}}"


MOST_TERMS: Final = 500
"""The nodes of the largest expression that a notebook shows as a formula."""


def formula(expr: Handle) -> str | None:
    """The expression as a notebook shows it; None if it is too large to be read."""
    inner = sum(len(body.graph) for body in regions(expr.graph, [expr.id]))
    small = len(reachable(expr.graph, [expr.id])) + inner <= MOST_TERMS
    return f"$${latex(expr)}$$" if small else None


def dot(exprs: Handle | Iterable[Handle]) -> str:
    """The DAG of one or several expressions as Graphviz source; the user's lines are tooltips.

    Inputs stand in boxes, results in bold ellipses, arguments from left to right. The body of a
    loop, and the sides of a choice, stand in a frame of their own.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> print(sg.dot(x * x).splitlines()[0])
        digraph expression {
    """
    handles = [exprs] if isinstance(exprs, Handle) else list(exprs)
    roots = {h.id for h in handles}
    lines = ["digraph expression {", "  rankdir=BT; ordering=in;", '  node [fontname="monospace"];']
    if handles:
        resolve_places(handles[0].graph)
        lines += _dot_graph(handles[0].graph, roots, "n", "  ")
    return "\n".join([*lines, "}"])


def _dot_graph(graph: Graph, roots: Collection[int], prefix: str, indent: str) -> Iterator[str]:
    """The nodes that roots need; their names begin with a prefix."""
    for i in reachable(graph, roots):
        style = ", style=bold" if i in roots else ""
        yield from (indent + line for line in _dot_node(graph, i, style, prefix))
        op = graph.nodes[i][0]
        if isinstance(op, Regional):
            yield f'{indent}subgraph cluster_{prefix}{i} {{ label="{op.name}";'
            yield from _dot_graph(op.body.graph, op.body.yields, f"{prefix}{i}_", f"{indent}  ")
            yield f"{indent}}}"


def _dot_node(graph: Graph, i: int, style: str, prefix: str) -> Iterator[str]:
    op = graph.nodes[i][0]
    label = op.name if op.arity else leaf_text(graph, i).shown
    shape = "ellipse" if op.arity else "plaintext" if op.constant else "box"
    place = graph.place_of(i)
    tooltip = f', tooltip="{_escaped(str(place))}"' if place else ""
    yield f'{prefix}{i} [label="{_escaped(label)}", shape={shape}{style}{tooltip}];'
    yield from (f"{prefix}{a} -> {prefix}{i};" for a in graph.args(i))


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


# --- long expressions -----------------------------------------------------------------------------


def _near(graph: Graph, root: int, most: int) -> list[int]:
    """The nodes that an expression depends on, the nearest first, at most ``most`` of them."""
    near = {root: None}
    queue = [root]
    for i in queue:
        for a in graph.args(i):
            if a not in near and len(near) < most:
                near[a] = None
                queue.append(a)
    return queue


def _excerpt(graph: Graph, near: Sequence[int]) -> str:
    """The text of these nodes; ellipses stand for the operations below them."""
    texts: dict[int, Text] = {}
    for i in sorted(near):
        op = graph.nodes[i][0]
        arguments = [texts.get(a) or _elided(graph, a) for a in graph.args(i)]
        written = write_text(op, arguments) if op.arity else leaf_text(graph, i)
        texts[i] = written if len(written.shown) <= REPR else Text("...")
    return texts[near[0]].shown


def _elided(graph: Graph, i: int) -> Text:
    return Text("...") if graph.nodes[i][0].arity else leaf_text(graph, i)


# --- text -----------------------------------------------------------------------------------------

_TEXT_BINDING: Final = {"*": PRODUCT, "/": QUOTIENT, "+": SUM, "-": SUM}


def number(value: float) -> str:
    """The shortest text of a float: 2 for 2.0, -0.0 for -0.0."""
    if abs(value) < 1e16 and value == int(value) and str(value) != "-0.0":
        return str(int(value))
    return repr(value)


def _truth(value: float) -> str:
    return str(bool(value))


_WRITE_LEAF: Final[dict[Op, Callable[..., str]]] = {
    CONST: number,
    TRUTH: _truth,
    INTEGER: str,
    WORD: lambda n: str(n) if n < 2**16 else hex(n),
}


def leaf_text(graph: Graph, i: int) -> Text:
    """A constant, or the name of an input."""
    node = graph.nodes[i]
    if node[0] in FRESH:
        return Text(f"{node[0].name}({node[1]})")
    if not node[0].constant:
        return Text(name_of(graph, i) or f"_{i}")
    shown = _WRITE_LEAF[node[0]](Graph.leaf_value(node))
    return Text(shown, UNARY if shown.startswith("-") else PRIMARY, constant=True)


def write_text(op: Op, args: Sequence[Text]) -> Text:
    """An operation as Python would have it."""
    symbol = _symbol(op.wgsl)
    if op is word_float:
        return args[0]
    if isinstance(op, Pick):
        return Text(f"{args[0].wrapped(PRIMARY)}[{op.index}]")
    if op in READS.values():
        return Text(f"{args[0].wrapped(PRIMARY)}[{args[1].shown}]")
    if op.transparent:
        return Text(f"{op.name}({args[0].shown})")
    if symbol:
        return _infix(symbol, _in_order(op, args))
    if op.name in ("integer_pow", "pow"):
        exponent = args[1].wrapped(UNARY if args[1].binding == UNARY else PRIMARY)
        return Text(f"{args[0].wrapped(PRIMARY)}**{exponent}", POWER)
    if op.name == "neg":
        return Text(f"-{args[0].wrapped(POWER)}", UNARY)
    if op.name == "reciprocal":
        return Text(f"1 / {args[0].wrapped(UNARY)}", QUOTIENT)
    if op.name == "logical_not":
        return Text(f"~{args[0].wrapped(PRIMARY)}", UNARY)
    return Text(f"{op.name}({', '.join(a.shown for a in args)})")


def _infix(symbol: str, args: Sequence[Text]) -> Text:
    binding = _TEXT_BINDING.get(symbol, LOOSE)
    left, right = _OPERANDS.get(binding, (SUM, SUM))
    return Text(f"{args[0].wrapped(left)} {symbol} {args[1].wrapped(right)}", binding)


_OPERANDS: Final = {SUM: (SUM, PRODUCT), PRODUCT: (PRODUCT, UNARY), QUOTIENT: (PRODUCT, UNARY)}
"""How tightly the two operands of an operation must bind to need no brackets."""

_SUM_ORDER: Final = {SUM: 0, PRODUCT: 1, QUOTIENT: 1, POWER: 1}
_PRODUCT_ORDER: Final = {PRODUCT: 0}


def _in_order(op: Op, args: Sequence[Text]) -> Sequence[Text]:
    """The operands as people write them: longer terms first, constants last."""
    if not op.commutative:
        return args
    ranks = _SUM_ORDER if op.wgsl == "{0} + {1}" else _PRODUCT_ORDER
    first, second = [3 if a.constant else ranks.get(a.binding, 2) for a in args]
    return args if first <= second else args[::-1]


# --- LaTeX ----------------------------------------------------------------------------------------

_LATEX_BINDING: Final = {
    "+": SUM,
    "-": SUM,
    r"\bmod": RELATION,
    "<": RELATION,
    r"\le": RELATION,
    "=": RELATION,
    r"\ne": RELATION,
}
_SCRIPT_OR_FRACTION: Final = re.compile(r"\w\^|\{0\}\^|\\frac")
_BRACKETS: Final = (r"\left(", r"\right)")
_GREEK: Final = frozenset((
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda",
    "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
    "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega",
))  # fmt: skip


def _leaf_latex(graph: Graph, i: int) -> Text:
    """A leaf as LaTeX."""
    shown = leaf_text(graph, i).shown
    op = graph.nodes[i][0]
    if not op.constant:
        return Text(_name_latex(shown))
    if op in FRESH or op is TRUTH or shown == "nan" or "x" in shown:
        return Text(rf"\mathrm{{{shown}}}", constant=True)
    mantissa, _, exponent = shown.replace("inf", r"\infty").partition("e")
    if exponent:
        ones = {"1": "", "-1": "-"}.get(mantissa, rf"{mantissa} \cdot ")
        mantissa = rf"{ones}10^{{{int(exponent)}}}"
    binding = SUM if shown.startswith("-") else PRODUCT if exponent else PRIMARY
    return Text(mantissa, binding, constant=True)


def _name_latex(name: str) -> str:
    r"""x0 as x_{0}, alpha as \alpha, other long names upright."""
    match = re.fullmatch(r"([A-Za-z]+?)_?(\d\w*|(?<=_)[^_]\w*|)", name)
    if not match:
        return _upright(name)
    head, rest = match[1], match[2].replace("_", ",")
    shown = rf"\{head}" if head in _GREEK else _upright(head)
    return f"{shown}_{{{_upright(rest) if rest.isalpha() else rest}}}" if rest else shown


def _upright(name: str) -> str:
    return name if len(name) == 1 and name.isalpha() else rf"\mathrm{{{name}}}".replace("_", r"\_")


def _write_latex(op: Op, args: Sequence[Text]) -> Text:
    """An operation as LaTeX."""
    symbol = _symbol(op.latex)
    if op is word_float:
        return args[0]
    if op in READS.values():
        return Text(f"{args[0].wrapped(PRIMARY, _BRACKETS)}_{{{args[1].shown}}}")
    if op.transparent or not op.latex:
        name = op.name.replace("_", r"\_")
        shown = ", ".join(a.shown for a in (args[:1] if op.transparent else args))
        return Text(rf"\mathrm{{{name}}}\left({shown}\right)")
    if symbol == r"\,":
        return _product_latex(_in_order(op, args))
    if symbol:
        return _infix_latex(symbol, _in_order(op, args))
    shown = [a.wrapped(_least(op, k), _BRACKETS) for k, a in enumerate(args)]
    return Text(op.latex.format(*shown), _outermost(op))


def _product_latex(args: Sequence[Text]) -> Text:
    """A product, a number in front; a dot where two numbers would run together."""
    a, b = sorted(args, key=lambda a: not a.constant)
    left = a.shown if a.constant else a.wrapped(PRODUCT, _BRACKETS)
    right = b.wrapped(POWER, _BRACKETS)
    sign = r"\cdot" if right[0].isdigit() else r"\,"
    return Text(f"{left} {sign} {right}", SUM if left.startswith("-") else PRODUCT)


def _infix_latex(symbol: str, args: Sequence[Text]) -> Text:
    binding = _LATEX_BINDING.get(symbol, LOGIC)
    left, right = {SUM: (SUM, PRODUCT), LOGIC: (RELATION, RELATION)}.get(binding, (SUM, SUM))
    if symbol == r"\bmod":
        left = right = PRODUCT
    first, second = args[0].wrapped(left, _BRACKETS), args[1].wrapped(right, _BRACKETS)
    return Text(f"{first} {symbol} {second}", binding)


def _least(op: Op, k: int) -> int:
    """How tightly argument k must bind where it stands in the row's LaTeX."""
    if f"{{{k}}}^" in op.latex:
        return PRIMARY
    return {"-": PRODUCT, "\\": PRIMARY}[op.latex[0]] if _is_prefix(op) else LOOSE


def _is_prefix(op: Op) -> bool:
    return op.latex.endswith("{0}")


def _outermost(op: Op) -> int:
    if _is_prefix(op):
        return SUM if op.latex[0] == "-" else UNARY
    if op.latex.startswith(r"\begin"):
        return LOOSE
    return POWER if _SCRIPT_OR_FRACTION.match(op.latex) else PRIMARY


# --- statements -----------------------------------------------------------------------------------

_TEXT: Final = Notation(
    write_text, leaf_text, "t{}", str,
    assign="{} = {}", change="{i}{} = {}", up="{i}for {} in range({}, {}):",
    down="{i}for {} in reversed(range({}, {})):", stop="{i}if not ({}): break",
    then="{i}if {}:", otherwise="{i}else:", indent="    ", apart=", ",
)  # fmt: skip
_LATEX: Final = Notation(
    _write_latex, _leaf_latex, "t_{{{}}}", _name_latex,
    assign="{} &= {}", change=r"& {i}{} \leftarrow {}",
    up=r"& {i}\mathbf{{for}}\ {1} \le {0} < {2}:",
    down=r"& {i}\mathbf{{for}}\ {2} > {0} \ge {1}:",
    stop=r"& {i}\mathbf{{as\ long\ as}}\ {}:", then=r"& {i}\mathbf{{if}}\ {}:",
    otherwise=r"& {i}\mathbf{{else}}:", indent=r"\quad ", apart=r",\, ",
)  # fmt: skip
