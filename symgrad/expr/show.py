"""Expressions as text, as LaTeX and as Graphviz source; long ones with names for what they share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from symgrad.expr.node import CONST, INPUT, INTEGER, TRUTH, WORD, Graph, Handle, Op, reachable

PRIMARY, POWER, UNARY, PRODUCT, SUM, LOOSE = 9, 8, 7, 6, 5, 0
_BINDING: Final = {"*": PRODUCT, "/": PRODUCT, "+": SUM, "-": SUM}
_INFIX: Final = re.compile(r"^\{0\} (\S+) \{1\}$")
_LATEX_BINDING: Final = {
    "add": SUM, "sub": SUM, "neg": UNARY, "mul": PRODUCT, "integer_pow": POWER, "pow": POWER,
    "lt": LOOSE, "le": LOOSE, "eq": LOOSE, "ne": LOOSE, "remainder": PRODUCT,
}  # fmt: skip

LONGEST = 400
"""Characters of a shared value beyond which it gets a name of its own."""

REPR = 200
"""Characters of a ``repr``."""

_GREEK: Final = frozenset(
    """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau
    upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega""".split()
)

Text = tuple[str, int]
Writer = Callable[[Op, list[Text]], Text]


def text(expr: Handle) -> str:
    """The expression as Python-like text; values used again and again come first, with names.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.text(x ** 3 - 2 / x)
        'x**3 - 2 / x'
    """
    return "\n".join(_lines(expr, _write_text, _leaf_text, "{} = {}"))


def short_text(expr: Handle) -> str:
    """The text, or, where it is long, its beginning and its size: for ``repr``."""
    graph = expr.graph
    size = len(reachable(graph, [expr.id])) if len(graph) < 20_000 else len(graph)
    if size > 2_000:
        return f"<expression of {size:,} nodes>"
    full = text(expr).replace("\n", "; ")
    return full if len(full) <= REPR else f"{full[: REPR - 3]}... <{size:,} nodes>"


def latex(expr: Handle) -> str:
    """The expression as LaTeX.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> print(sg.latex(sg.sqrt(x) / 2))
        \\frac{\\sqrt{x}}{2}
    """
    lines = _lines(expr, _write_latex, _leaf_latex, "{} &= {}")
    if len(lines) == 1:
        return lines[0]
    body = r" \\ ".join(lines[:-1] + ["& " + lines[-1]])
    return rf"\begin{{aligned}} {body} \end{{aligned}}"


def dot(exprs: Handle | Iterable[Handle]) -> str:
    """The DAG of one or several expressions as Graphviz source; the user's lines are tooltips.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> print(sg.dot(x * x).splitlines()[0])
        digraph expression {
    """
    roots = [exprs] if isinstance(exprs, Handle) else list(exprs)
    graph = roots[0].graph
    lines = ["digraph expression {", "  rankdir=BT;", '  node [fontname="monospace"];']
    for i in reachable(graph, [r.id for r in roots]):
        node = graph.nodes[i]
        shape = "ellipse" if node[0].arity else "box"
        label = node[0].name if node[0].arity else _leaf_text(graph, i)[0]
        lines.append(f'  n{i} [label="{_escaped(label)}", shape={shape}{_tooltip(graph, i)}];')
        lines.extend(f"  n{a} -> n{i};" for a in graph.args(i))
    return "\n".join([*lines, "}"])


def _tooltip(graph: Graph, i: int) -> str:
    place = graph.place_of(i)
    if place is None or isinstance(place, tuple):
        return ""
    return f', tooltip="{_escaped(str(place))}"'


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _lines(
    expr: Handle, write: Writer, leaf: Callable[[Graph, int], Text], binding: str
) -> list[str]:
    """The lines of definitions, and at the end the expression itself."""
    graph = expr.graph
    order = reachable(graph, [expr.id])
    uses = _uses(graph, order)
    texts: dict[int, Text] = {}
    lines: list[str] = []
    for i in order:
        node = graph.nodes[i]
        if not node[0].arity:
            texts[i] = leaf(graph, i)
            continue
        found = write(node[0], [texts[a] for a in node[1:]])
        limit = LONGEST if uses[i] == 1 else LONGEST // (2 * max(uses[i], 1))
        if len(found[0]) > limit and i != expr.id:
            name = _name(len(lines), binding)
            lines.append(binding.format(name, found[0]))
            found = (name, PRIMARY)
        texts[i] = found
    return [*lines, texts[expr.id][0]]


def _name(k: int, binding: str) -> str:
    return f"t_{{{k}}}" if "&" in binding else f"t{k}"


def _uses(graph: Graph, order: list[int]) -> Mapping[int, int]:
    uses = dict.fromkeys(order, 0)
    for i in order:
        for a in graph.args(i):
            uses[a] += 1
    return uses


def _wrapped(argument: Text, least: int, brackets: str = "()") -> str:
    shown, binding = argument
    return shown if binding >= least else f"{brackets[:-1]}{shown}{brackets[-1]}"


# --- text -----------------------------------------------------------------------------------------


def number(value: float) -> str:
    """The shortest text of a float: 2 for 2.0, -0.0 for -0.0."""
    if value == int(value) if abs(value) < 1e16 else False:
        return "-0.0" if str(value) == "-0.0" else str(int(value))
    return repr(value)


def _leaf_text(graph: Graph, i: int) -> Text:
    node = graph.nodes[i]
    if node[0] is INPUT:
        return graph.names[node[1]], PRIMARY
    value = Graph.leaf_value(node)
    shown = {
        CONST: lambda: number(float(value)),
        TRUTH: lambda: str(bool(value)),
        INTEGER: lambda: str(value),
        WORD: lambda: hex(int(value)),
    }[node[0]]()
    return shown, UNARY if shown.startswith("-") else PRIMARY


def _write_text(op: Op, args: list[Text]) -> Text:
    found = _INFIX.match(op.wgsl)
    if op.transparent:
        return f"{op.name}({args[0][0]})", PRIMARY
    if found:
        return _infix(found[1], args)
    if op.name in ("integer_pow", "pow"):
        return f"{_wrapped(args[0], PRIMARY)}**{_wrapped(args[1], PRIMARY)}", POWER
    if op.name == "neg":
        return f"-{_wrapped(args[0], POWER)}", UNARY
    if op.name == "reciprocal":
        return f"1 / {_wrapped(args[0], UNARY)}", PRODUCT
    if op.name == "logical_not":
        return f"~{_wrapped(args[0], PRIMARY)}", UNARY
    return f"{op.name}({', '.join(a for a, _ in args)})", PRIMARY


def _infix(symbol: str, args: list[Text]) -> Text:
    binding = _BINDING.get(symbol, LOOSE)
    left = binding or SUM
    right = UNARY if binding == PRODUCT else (PRODUCT if binding == SUM else SUM)
    return f"{_wrapped(args[0], left)} {symbol} {_wrapped(args[1], right)}", binding


# --- LaTeX ----------------------------------------------------------------------------------------


def _leaf_latex(graph: Graph, i: int) -> Text:
    shown, binding = _leaf_text(graph, i)
    if graph.nodes[i][0] is INPUT:
        return _name_latex(shown), PRIMARY
    shown = shown.replace("inf", r"\infty")
    mantissa, _, exponent = shown.partition("e")
    return (rf"{mantissa} \cdot 10^{{{int(exponent)}}}", PRODUCT) if exponent else (shown, binding)


def _name_latex(name: str) -> str:
    """x0 as x_{0}, alpha as \\alpha, other long names upright."""
    found = re.fullmatch(r"([A-Za-z]+)_?(\w*)", name)
    if not found:
        return rf"\mathrm{{{name}}}".replace("_", r"\_")
    head, rest = found[1], found[2]
    shown = rf"\{head}" if head in _GREEK else head if len(head) == 1 else rf"\mathrm{{{head}}}"
    return shown + (rf"_{{{rest}}}".replace("_{_", "_{") if rest else "")


def _write_latex(op: Op, args: list[Text]) -> Text:
    binding = _LATEX_BINDING.get(op.name, PRIMARY)
    if op.transparent or not op.latex:
        name = op.name.replace("_", r"\_")
        shown = [args[0]] if op.transparent else args
        return rf"\mathrm{{{name}}}\left({', '.join(a for a, _ in shown)}\right)", PRIMARY
    return op.latex.format(*_latex_arguments(op, args, binding)), binding


def _latex_arguments(op: Op, args: list[Text], binding: int) -> list[str]:
    def wrapped(argument: Text, least: int) -> str:
        return argument[0] if argument[1] >= least else rf"\left({argument[0]}\right)"

    if binding == POWER:
        return [wrapped(args[0], PRIMARY), *[a for a, _ in args[1:]]]
    if binding in (SUM, PRODUCT, UNARY):
        least = {SUM: PRODUCT, PRODUCT: POWER, UNARY: PRODUCT}[binding]
        first = wrapped(args[0], binding if len(args) > 1 else least)
        return [first, *[wrapped(a, least if binding == SUM else UNARY + 1) for a in args[1:]]]
    return [a for a, _ in args]

