"""Nodes as WGSL expressions: operators with the fewest parentheses, calls and literals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INTEGER, TRUTH, WORD, Graph, Node, Op
from symgrad.mathlib.define import operation
from symgrad.mathlib.pair.expression import parts
from symgrad.values.arrays import PAIRS

PRIMARY, UNARY, PRODUCT, SUM, LOOSE = 8, 7, 6, 5, 0
"""How tightly an expression holds together; LOOSE ones are always put in parentheses."""

_BINDING: Final = {"*": PRODUCT, "/": PRODUCT, "+": SUM, "-": SUM}
_INFIX: Final = re.compile(r"^\{0\} (\S+) \{1\}$")
_PREFIX: Final = re.compile(r"^([-!])\{0\}$")
_AFTER: Final = re.compile(r"^(\S+) / \{0\}$")
COMPONENTS: Final = "xyzw"

_PART: Final = re.compile(r"^\{0\}(\.[xy])$")
_CALL: Final = re.compile(r"^[\w<>]+\(.*\)$")

Text = tuple[str, int]
"""An expression and how tightly it binds."""


@dataclass(frozen=True, eq=False)
class Floats:
    """How WGSL has the floats of a kernel: their type, their literals, and words of their bits."""

    dtype: np.dtype[Any]
    digits: int
    """Bits of a significand that are stored."""
    suffix: str

    @property
    def bits(self) -> int:
        """The bits of a float."""
        return 8 * self.dtype.itemsize

    @property
    def type(self) -> str:
        """WGSL's name of the type."""
        return f"f{self.bits}"

    @property
    def word(self) -> str:
        """The type of words as wide as they are."""
        return f"u{self.bits}"

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The types of values by their letters in signatures."""
        return {"f": self.type, "b": "bool", "i": "i32", "u": "u32", "p": "vec2<f32>"}

    def vector(self, size: int, kind: str = "") -> str:
        """The type of several floats, or of values of another kind, side by side."""
        return f"vec{size}<{kind or self.type}>"

    def component(self, k: int) -> str:
        """The text behind the name of such a vector that takes one of its numbers."""
        return f".{COMPONENTS[k]}"

    def operation(self, op: Op) -> Op:
        """The operation that a kernel has of one of the op table."""
        return op

    @cached_property
    def vocabulary(self) -> Mapping[str, str]:
        """Names that the texts of the op table's rows may use beside their arguments."""
        digits, bits, largest = self.digits, self.bits, (1 << self.bits) - 1
        bias = (1 << (bits - digits - 2)) - 1
        words = {
            "magnitude": largest >> 1,
            "sign": 1 << (bits - 1),
            "infinite": (2 * bias + 1) << digits,
            "exponents": 2 * bias + 1,
            "one_word": bias << digits,
            "unscaled": ((1 << digits) - 1) | (1 << (bits - 1)),
            "leading": largest - (1 << (digits // 2 + 1)) + 1,
            "quarter": largest - (1 << (digits + 1 - (digits + 1) // 4)) + 1,
        }
        numbers = {"one": 1.0, "whole": 1.5 * 2.0**digits, "biased": 1.5 * 2.0**digits + bias}
        return {
            "f": self.type,
            "w": self.word,
            "digits": f"{digits}u",
            "second": f"{bits - 2}u",
            "unit": self.bit_pattern(1, hexadecimal=False),
            "bias": str(bias),
            **{name: self.bit_pattern(value) for name, value in words.items()},
            **{name: self._finite(self.dtype.type(value)) for name, value in numbers.items()},
        }

    def params(self, more: str = "") -> str:
        """The type of the uniform block, and of what else is in it."""
        f = self.type
        return f"struct Params {{ count: u32, zero: {self.word}, infinity: {f}, nan: {f}{more} }}"

    def bit_pattern(self, word: int, hexadecimal: bool = True) -> str:
        """A word of bits."""
        suffix = "u" if self.bits == 32 else "lu"
        return f"{word:#x}{suffix}" if hexadecimal else f"{word}{suffix}"

    def pattern(self, op: Op) -> str:
        """The text of an operation, with ``{0}``, ``{1}``, .. for its arguments."""
        own = op.wgsl_f64 if self.bits == 64 else ""
        arguments = (f"{{{k}}}" for k in range(op.arity))
        return (own or op.wgsl).format(*arguments, **self.vocabulary)

    def literal(self, node: Node) -> Text:
        """A constant leaf; infinities and NaN, which WGSL cannot write, come from the block."""
        return _literal(self, node)

    def number(self, value: float) -> Text:
        """A constant, rounded to a float."""
        with np.errstate(over="ignore"):
            rounded = self.dtype.type(value)
        if np.isnan(rounded):
            return "params.nan", PRIMARY
        if np.isinf(rounded):
            return ("params.infinity", PRIMARY) if rounded > 0 else ("-params.infinity", UNARY)
        text = self._finite(rounded)
        return text, UNARY if text.startswith("-") else PRIMARY

    def _finite(self, value: Any) -> str:
        """NumPy's shortest text that reads back as the same bits; subnormals by their bits.

        Tint refuses one that is beyond the largest number, though it would be rounded to that.
        """
        limits = np.finfo(self.dtype)
        if value != 0 and abs(value) < limits.tiny:
            word = int(value.view(f"u{self.dtype.itemsize}"))
            return f"bitcast<{self.type}>({self.bit_pattern(word)})"
        text = str(value)
        fits = abs(float(text)) <= float(limits.max)
        return (text if fits else repr(float(value))) + self.suffix


SINGLE: Final = Floats(np.dtype(np.float32), 23, "f")
DOUBLE: Final = Floats(np.dtype(np.float64), 52, "lf")


@lru_cache(maxsize=4096)
def _literal(floats: Floats, node: Node) -> Text:
    value = Graph.leaf_value(node)
    if node[0] is CONST:
        return floats.number(float(value))
    return _typed(node[0], int(value)), PRIMARY


def _typed(op: Op, value: int) -> str:
    return {
        TRUTH: "true" if value else "false",
        INTEGER: f"{value}i",
        WORD: f"{value}u" if 0 <= value < 256 else f"{value & 0xFFFFFFFF:#x}u",
    }[op]


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
    if match := _PART.match(pattern):
        part = match[1]
        return lambda a: (wrapped(a, PRIMARY) + part, PRIMARY)
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


_COMMUTED: Final = {ops.mul: (2, CONST), ops.word_add: (1, WORD), ops.word_mul: (1, WORD)}
"""Operations that are written in the other order if an argument, by its place, is such a leaf.

An expert writes 2.0f * a, and an index as i * 2u + 1u.
"""


def render(
    graph: Graph,
    i: int,
    texts: Mapping[int, Text],
    functions: Mapping[Op, str],
    floats: Floats = SINGLE,
) -> Text:
    """The expression of node i from those of its arguments."""
    nodes = graph.nodes
    node = nodes[i]
    op = floats.operation(node[0])
    args = [texts.get(a) or floats.literal(nodes[a]) for a in node[1:]]
    if op in functions:
        return f"{functions[op]}({', '.join([a[0] for a in args])})", PRIMARY
    assert op.wgsl, f"no WGSL for {op.name}: neither a built-in nor a definition"
    if op in _COMMUTED:
        place, leaf = _COMMUTED[op]
        if nodes[node[place]][0] is leaf:
            args.reverse()
    return _form(floats, op)(*args)


@cache
def _form(floats: Floats, op: Op) -> Callable[..., Text]:
    """The writer of an operation."""
    return form_of(floats.pattern(op))


def render_wide(graph: Graph, i: int, texts: Mapping[int, Text], name: str) -> Text:
    """The quotient of node i as a call of the function of `ops.wide_div`."""
    args = [
        texts[a][0] if a in texts else SINGLE.literal(graph.nodes[a])[0] for a in graph.nodes[i][1:]
    ]
    return f"{name}({', '.join(args)})", PRIMARY


# --- pairs of float32 -----------------------------------------------------------------------------
# How WGSL has floats that are pairs of float32, and what functions of pairs are written with.

OF_VECTORS: Final = frozenset({ops.neg, ops.where})
"""The operations whose texts are right for pairs as they are."""

OPAQUE_PAIR: Final = "bitcast<vec2<f32>>(bitcast<vec2<u32>>({0}) + params.zero)"
"""A pair that compilers cannot see through."""


class Pairs(Floats):
    """Floats that are pairs of float32: operations on them are calls, and the rest is float32's."""

    @property
    def type(self) -> str:
        """The name in WGSL: see `Floats`."""
        return "vec2<f32>"

    @property
    def word(self) -> str:
        """Two words: see `Floats`."""
        return "vec2<u32>"

    @cached_property
    def vocabulary(self) -> Mapping[str, str]:
        """Float32's: see `Floats`."""
        return SINGLE.vocabulary

    def vector(self, size: int, kind: str = "") -> str:
        """Several pairs side by side, which are a matrix: see `Floats`."""
        return super().vector(size, kind) if kind not in ("", self.type) else f"mat{size}x2<f32>"

    def component(self, k: int) -> str:
        """A column: see `Floats`."""
        return f"[{k}]"

    def operation(self, op: Op) -> Op:
        """The operation on pairs, unless WGSL's own text is right for vectors: see `Floats`."""
        return op if op in OF_VECTORS else operation(op, "float32x2")

    def params(self, more: str = "") -> str:
        """Float32's: see `Floats`."""
        return SINGLE.params(more)

    def pattern(self, op: Op) -> str:
        """The text of an operation on what is no pair, and of some on vectors: see `Floats`."""
        return OPAQUE_PAIR if op is ops.opaque else SINGLE.pattern(op)

    def number(self, value: float) -> Text:
        """A constant as a pair, each part rounded to float32: see `Floats`."""
        return f"vec2<f32>({', '.join(SINGLE.number(part)[0] for part in parts(value))})", PRIMARY


class Parts(Floats):
    """Floats in functions of pairs: as float32's, but what is opaque is a call."""

    def pattern(self, op: Op) -> str:
        """The text of an operation: see `Floats`."""
        return "opaque({0})" if op is ops.opaque else super().pattern(op)


OPAQUE: Final = (
    "// x, as a value that compilers cannot see through.",
    "fn opaque(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) + params.zero); }",
    "",
)
"""The function that functions of pairs call, for they do what compilers would undo."""


PAIR: Final = Pairs(PAIRS, 23, "f")
PART: Final = Parts(np.dtype(np.float32), 23, "f")

FLOATS: Final[Mapping[str, Floats]] = {"float32": SINGLE, "float64": DOUBLE, "float32x2": PAIR}
"""How WGSL has the floats of a kernel, by its dtype."""
