"""Nodes as WGSL expressions: operators with the fewest parentheses, calls and literals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INTEGER, TRUTH, WORD, Graph, Node, Op

PRIMARY, UNARY, PRODUCT, SUM, LOOSE = 8, 7, 6, 5, 0
"""How tightly an expression holds together; LOOSE ones are always put in parentheses."""

_BINDING: Final = {"*": PRODUCT, "/": PRODUCT, "+": SUM, "-": SUM}
_INFIX: Final = re.compile(r"^\{0\} (\S+) \{1\}$")
_PREFIX: Final = re.compile(r"^([-!])\{0\}$")
_AFTER: Final = re.compile(r"^(\S+) / \{0\}$")
_CALL: Final = re.compile(r"^[\w<>]+\(.*\)$")

Text = tuple[str, int]
"""An expression and how tightly it binds."""

LARGEST: Final = float(np.finfo(np.float32).max)

TYPES: Final = {"f": "f32", "b": "bool", "i": "i32", "u": "u32"}


@lru_cache(maxsize=4096)
def literal(node: Node) -> Text:
    """A constant leaf; infinities and NaN, which WGSL cannot write, come from the uniform block."""
    value = Graph.leaf_value(node)
    if node[0] is not CONST:
        return _typed(node[0], int(value)), PRIMARY
    with np.errstate(over="ignore"):
        single = np.float32(value)
    if np.isnan(single):
        return "params.nan", PRIMARY
    if np.isinf(single):
        return ("params.infinity", PRIMARY) if single > 0 else ("-params.infinity", UNARY)
    text = _finite(single)
    return text, UNARY if text.startswith("-") else PRIMARY


def _typed(op: Op, value: int) -> str:
    return {
        TRUTH: "true" if value else "false",
        INTEGER: f"{value}i",
        WORD: f"{value}u" if 0 <= value < 256 else f"{value & 0xFFFFFFFF:#x}u",
    }[op]


def _finite(value: np.float32) -> str:
    """NumPy's shortest text that reads back as the same bits; subnormals by their bits.

    Tint refuses one that is beyond the largest number, though it would be rounded to that.
    """
    if value != 0 and abs(value) < np.finfo(np.float32).tiny:
        return f"bitcast<f32>({int(value.view(np.uint32)):#x}u)"
    text = str(value)
    return (text if abs(float(text)) <= LARGEST else repr(float(value))) + "f"


def wrapped(argument: Text, least: int) -> str:
    """An expression, in parentheses unless it holds together at least so tightly."""
    text, binding = argument
    return text if binding >= least else f"({text})"


@cache
def form_of(pattern: str) -> Callable[..., Text]:
    """The writer of a WGSL pattern such as ``"{0} + {1}"`` or ``"exp({0})"``."""
    if match := _INFIX.match(pattern):
        return _infix(match[1])
    if match := _PREFIX.match(pattern):
        sign = match[1]
        return lambda a: (f"{sign}{wrapped(a, PRIMARY)}", UNARY)
    if match := _AFTER.match(pattern):
        head = match[1]
        return lambda a: (f"{head} / {wrapped(a, PRIMARY)}", PRODUCT)
    binding = PRIMARY if _CALL.match(pattern) and _balanced(pattern) else LOOSE
    return lambda *args: (pattern.format(*[a[0] for a in args]), binding)


def _infix(symbol: str) -> Callable[[Text, Text], Text]:
    binding = _BINDING.get(symbol, LOOSE)
    left = binding or UNARY
    right = PRIMARY if binding == PRODUCT else (PRODUCT if binding == SUM else UNARY)

    def render(a: Text, b: Text) -> Text:
        first, second = a[0], b[0]
        if a[1] < left:
            first = f"({first})"
        # a unary minus on the right is put in parentheses: naga refuses "x--1.0"
        if b[1] < right or (b[1] < PRIMARY and second.startswith("-")):
            second = f"({second})"
        return f"{first} {symbol} {second}", binding

    return render


def _balanced(pattern: str) -> bool:
    """Whether the first parenthesis is closed by the last character."""
    depth = 0
    for k, c in enumerate(pattern):
        depth += (c == "(") - (c == ")")
        if c == ")" and not depth:
            return k == len(pattern) - 1
    return False


def render(graph: Graph, i: int, texts: Mapping[int, Text], functions: Mapping[Op, str]) -> Text:
    """The expression of node i from those of its arguments."""
    nodes = graph.nodes
    node = nodes[i]
    op = node[0]
    args = [texts.get(a) or literal(nodes[a]) for a in node[1:]]
    if op in functions:
        return f"{functions[op]}({', '.join([a[0] for a in args])})", PRIMARY
    assert op.wgsl, f"no WGSL for {op.name}: neither a built-in nor a definition"
    if op is ops.mul and nodes[node[2]][0] is CONST:
        args.reverse()  # an expert writes 2.0f * a
    if op in (ops.word_add, ops.word_mul) and nodes[node[1]][0] is WORD:
        args.reverse()  # and an index as i * 2u + 1u
    return form_of(op.wgsl)(*args)


def render_wide(graph: Graph, i: int, texts: Mapping[int, Text], name: str) -> Text:
    """The quotient of node i as a call of the function of `ops.wide_div`."""
    args = [texts[a][0] if a in texts else literal(graph.nodes[a])[0] for a in graph.nodes[i][1:]]
    return f"{name}({', '.join(args)})", PRIMARY
