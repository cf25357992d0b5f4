"""Nodes as LLVM instructions, on single numbers or on vectors of them."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import count
from typing import Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INPUT, INTEGER, TRUTH, Graph, Node, Op, float_bits
from symgrad.llvm.printing.source import USUAL_SIZES, CodeSizes
from symgrad.mathlib.define import name_of, operation
from symgrad.mathlib.pair.expression import only_in_kernels, parts

NAMES: Final = {"float32": "float", "float64": "double", "float32x2": "double"}
"""The types of numbers; a pair of float32 has the bits of both in one of float64."""
DIGITS: Final = {"float32": 23, "float64": 52, "float32x2": 23}
BITS: Final = {"float32": 32, "float64": 64, "float32x2": 64}

_ONE: Final = (CONST, float_bits(1.0))

_MERGED: Final = frozenset((ops.add, ops.sub, ops.mul))
"""Operations that may be written otherwise than by an instruction of their own."""

_MAY_BE_ONE: Final = frozenset((CONST, ops.opaque))


@dataclass(frozen=True)
class Shape:
    """The shape that instructions work on: ``lanes`` numbers of ``dtype`` at once.

    ``fused`` says whether a product and a sum become one instruction: where the CPU has it, and
    always or never for the same graph, so that a point alone gives the bits it gives in a batch.
    """

    dtype: str
    lanes: int
    fused: bool
    avx512: bool = False
    """Whether the CPU has the instructions of AVX-512 for vectors of eight float64."""
    sizes: CodeSizes = USUAL_SIZES

    def vector(self, scalar: str) -> str:
        """The type of as many of these."""
        return scalar if self.lanes == 1 else f"<{self.lanes} x {scalar}>"

    def splat(self, scalar: str, text: str) -> str:
        """The constant, in every lane."""
        return text if self.lanes == 1 else f"splat ({scalar} {text})"

    @cached_property
    def float(self) -> str:
        """The type of a value."""
        return self.vector(NAMES[self.dtype])

    @cached_property
    def types(self) -> dict[str, str]:
        """The types of values by their letters in signatures."""
        return {
            "f": self.float,
            "b": self.vector("i1"),
            "i": self.vector("i32"),
            "u": self.vector("i32"),
            "p": self.vector("double"),
        }

    @property
    def in_pairs(self) -> bool:
        """Whether numbers are pairs of float32."""
        return self.dtype == "float32x2"

    @property
    def parts(self) -> Shape:
        """The shape of what functions compute with: of pairs, of their parts, never fused."""
        return replace(self, dtype="float32", fused=False) if self.in_pairs else self

    def operation(self, op: Op) -> Op:
        """The operation that a kernel has of one of the op table."""
        return op if op is ops.where else operation(op, self.dtype)

    @property
    def suffix(self) -> str:
        """How the names of intrinsics, and of functions, end."""
        scalar = "f64" if self.dtype == "float64" else "f32"
        return scalar if self.lanes == 1 else f"v{self.lanes}{scalar}"

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return BITS[self.dtype] // 8

    def number(self, value: float) -> str:
        """A constant of the shape's dtype, rounded to it."""
        if self.in_pairs:
            packed = struct.pack("<ff", *parts(value))
        else:
            with np.errstate(over="ignore"):
                packed = struct.pack("<d", float(np.dtype(self.dtype).type(value)))
        (bits,) = struct.unpack("<Q", packed)
        return self.splat(NAMES[self.dtype], f"0x{bits:016X}")

    def word(self, value: int) -> str:
        """A word as wide as a number."""
        return self.splat(f"i{BITS[self.dtype]}", str(value))

    @cached_property
    def vocabulary(self) -> dict[str, str]:
        """Names that the texts of the op table's rows may use beside their arguments."""
        digits, bits = DIGITS[self.dtype], BITS[self.dtype]
        bias = (1 << (bits - digits - 2)) - 1
        return self._of_parts | {
            "f": self.float, "b": self.types["b"], "u": self.types["u"], "m": self.suffix,
            "w": self.vector(f"i{bits}"), "true": self.splat("i1", "true"),
            "zero": self.number(0.0), "half": self.number(0.5), "one": self.number(1.0),
            "infinity": self.number(np.inf),
            "digits": self.word(digits), "exponents": self.word(2 * bias + 1),
            "one_word": self.word(bias << digits),
            "unscaled": self.word(((1 << (digits + 1)) - 1) ^ (1 << digits) | (1 << (bits - 1))),
            "leading": self.word((1 << bits) - (1 << (digits // 2 + 1))),
            "quarter": self.word((1 << bits) - (1 << (digits + 1 - (digits + 1) // 4))),
            "second": self.word(bits - 2), "unit": self.word(1),
            "biased": self.number(1.5 * 2.0**digits + bias),
            "whole": self.word((bias + digits) << digits),
            "whole_bias": self.number(2.0**digits + bias),
        }  # fmt: skip

    @property
    def _of_parts(self) -> dict[str, str]:
        """The words that texts may name which take pairs apart."""
        n = self.lanes
        masks = {
            "even": [*range(0, 2 * n, 2)],
            "odd": [*range(1, 2 * n, 2)],
            "zipped": [k + n * half for k in range(n) for half in (0, 1)],
        }
        texts = {
            name: f"<{len(lanes)} x i32> <{', '.join(f'i32 {k}' for k in lanes)}>"
            for name, lanes in masks.items()
        }
        types = {"s": self.vector("float"), "d": self.vector("double")}
        return texts | types | {"sv": f"<{n} x float>", "ss": f"<{2 * n} x float>"}


@dataclass(frozen=True)
class Step:
    """One instruction of an operation's text: the name that later ones use, or "" for the last."""

    name: str
    text: str


@cache
def steps_of(op: Op, shape: Shape) -> tuple[Step, ...]:
    """The instructions of an operation, with ``{0}``, ``{1}``, .. and earlier names left open."""
    assert op.llvm, f"no LLVM for {op.name}: neither instructions nor a definition"
    steps: list[Step] = []
    opened = {str(k): f"{{v{k}}}" for k in range(op.arity)}
    own = op.llvm_v8f64 if shape.avx512 and shape.suffix == "v8f64" else ""
    for text in (own or op.llvm).split("; "):
        name, equals, body = text.partition(" = ")
        if not equals:
            name, body = "", text
        earlier = {s.name: f"{{{s.name}_}}" for s in steps}
        words = shape.vocabulary | earlier
        steps.append(Step(name, body.format(*opened.values(), **words)))
    return tuple(steps)


@cache
def single(op: Op, shape: Shape) -> str:
    """The text of an operation of one instruction, or "" if it has more."""
    steps = steps_of(op, shape)
    return steps[0].text.replace("{v", "{") if len(steps) == 1 else ""


def called(op: Op, shape: Shape) -> str:
    """The name of the library's function of an operation, for numbers of this shape."""
    return f"{name_of(shape.operation(op))}.{shape.suffix}"


@cache
def _line_of(op: Op, shape: Shape) -> str:
    """The line of an operation of one instruction that takes its arguments once, in order."""
    text = single(op, shape)
    if re.findall(r"\{\d\}", text) != [f"{{{k}}}" for k in range(op.arity)]:
        return ""
    return "  %s = " + text.replace("%", "%%").format(*["%s"] * op.arity)


def constant(node: Node, shape: Shape) -> str:
    """A constant leaf."""
    value = Graph.leaf_value(node)
    if node[0] is CONST:
        return shape.number(float(value))
    if node[0] is TRUTH:
        return shape.splat("i1", "true" if value else "false")
    return shape.splat("i32", str(int(value) if node[0] is INTEGER else int(value) & 0xFFFFFFFF))


class _Names(dict[int, str]):
    """The names of values; one that has none yet is asked for when it is first needed."""

    def __init__(self, names: Mapping[int, str], missing: Callable[[int], str]) -> None:
        super().__init__(names)
        self._missing = missing

    def __missing__(self, i: int) -> str:
        return self._missing(i)


class Writer:
    """Writes the instructions of nodes, one after the other, and knows the name of each value.

    Args:
        graph: the nodes.
        shape: what they are computed on.
        calls: the operations that are functions.
        names: what values are called that are known from the start.
        products: those that are written with the sum that needs them.
        fresh: the names of new values. LLVM reads those that it gives to values itself, ``%0``,
            ``%1``, .. in each function, in half the time.
        lines: where instructions go.
    """

    def __init__(
        self,
        graph: Graph,
        shape: Shape,
        calls: Container[Op],
        names: Mapping[int, str],
        products: frozenset[int],
        fresh: Iterator[str] | None = None,
        lines: list[str] | None = None,
    ) -> None:
        self.graph, self.shape, self.calls = graph, shape, calls
        self.names = _Names(names, self.missing)
        self.lines: list[str] = [] if lines is None else lines
        self.used = Counter[Op]()
        """How often each function is called."""
        self._products = products
        self._fresh = fresh or (f"%t.{k}" for k in count())
        self._counted: set[Op] = set()
        self._forms = {ops.fma: self._form(ops.fma)}

    def value(self, text: str) -> str:
        """The name of a new value, which this instruction makes."""
        name = next(self._fresh)
        self.lines.append(f"  {name} = {text}")
        return name

    def missing(self, i: int) -> str:
        """The name of a value that has none yet: a constant."""
        node = self.graph.nodes[i]
        assert not node[0].arity and node[0] is not INPUT, f"node {i} was never computed"
        name = self.names[i] = constant(node, self.shape)
        return name

    def write(self, order: Iterable[int]) -> None:
        """The instructions of nodes, whose arguments have been written or come before them."""
        nodes, names, products, forms = self.graph.nodes, self.names, self._products, self._forms
        write, fresh, counted = self.lines.append, self._fresh, self._counted
        for i in order:
            node = nodes[i]
            op = node[0]
            form = forms.get(op)
            if form is None:
                form = forms[op] = self._form(op)
            if not form or i in products:
                self._write_long(i, op, node)
            elif len(node) == 2:
                a = names[node[1]]
                name = names[i] = next(fresh)
                write(form % (name, a))
            elif len(node) == 3:  # a product may be a factor, and a sum and a product be fused
                _, first, second = node
                if op not in _MERGED:
                    is_merged = False
                elif op is ops.mul:
                    is_merged = nodes[first][0] in _MAY_BE_ONE or nodes[second][0] in _MAY_BE_ONE
                else:
                    is_merged = first in products or second in products
                if is_merged:
                    names[i] = self._merged(op, first, second)
                else:
                    a, b = names[first], names[second]
                    name = names[i] = next(fresh)
                    write(form % (name, a, b))
            else:
                names[i] = self.made(op, *[names[a] for a in node[1:]])
            if op in counted:
                self.used[self.shape.operation(op)] += 1

    def _form(self, op: Op) -> str:
        """The line of an operation of one instruction, or "" if it has none, or more.

        The names of the value and of the arguments are left open.
        """
        if self.shape.operation(op) in self.calls:
            self._counted.add(op)
            types, kinds = self.shape.types, op.signature[: op.arity]
            arguments = ", ".join(f"{types[kind]} %s" for kind in kinds)
            return f"  %s = call {types[op.result]} @{called(op, self.shape)}({arguments})"
        return "" if op is ops.opaque else _line_of(op, self.shape)

    def _write_long(self, i: int, op: Op, node: Node) -> None:
        """The instructions of a node that has more than one, or none."""
        if op is ops.opaque:
            self.names[i] = self.names[node[1]]
        elif i not in self._products:
            self.names[i] = self.made(op, *[self.names[a] for a in node[1:]])

    def _merged(self, op: Op, a: int, b: int) -> str:
        """A product that may be one of its factors; a sum, and a product that it alone needs."""
        if op is ops.mul:
            same = self._times_one(a, b)
            return self.made(op, self.names[a], self.names[b]) if same is None else self.names[same]
        if b in self._products:
            return self._fused(op, b, a, op is ops.sub)
        return self._fused(op, a, b, False)

    def _times_one(self, a: int, b: int) -> int | None:
        """The factor of a product with 1 that is not 1."""
        nodes = self.graph.nodes
        for one, other in ((a, b), (b, a)):
            node = nodes[one]
            if node[0] in _MAY_BE_ONE:
                if node[0] is ops.opaque:
                    node = nodes[node[1]]
                if node == _ONE:
                    return other
        return None

    def made(self, op: Op, *arguments: str) -> str:
        """The value of an operation."""
        form = self._forms.get(op) or self._form(op)
        if form:
            name = next(self._fresh)
            self.lines.append(form % (name, *arguments))
            return name
        values = {f"v{k}": a for k, a in enumerate(arguments)}
        for step in steps_of(op, self.shape):
            values[f"{step.name}_"] = self.value(step.text.format(**values))
        return values["_"]

    def _fused(self, op: Op, product: int, rest: int, negative: bool) -> str:
        """a * b + c in one instruction, where the product, or what it is ``negative`` of, is lone.

        Else the rest of a difference is what is subtracted.
        """
        nodes, names = self.graph.nodes, self.names
        _, left, right = nodes[product]
        if nodes[left][0] in _MAY_BE_ONE or nodes[right][0] in _MAY_BE_ONE:
            same = self._times_one(left, right)
            if same is not None:
                pair = (rest, same) if negative or op is ops.add else (same, rest)
                return self.made(op, *[names[a] for a in pair])
        c, a, b = names[rest], names[left], names[right]
        if op is ops.sub:
            a, c = (self._negated(a), c) if negative else (a, self._negated(c))
        name = next(self._fresh)
        self.lines.append(self._forms[ops.fma] % (name, a, b, c))
        return name

    def _negated(self, value: str) -> str:
        return self.value(f"fneg {self.shape.float} {value}")


def uses_of(graph: Graph, order: Iterable[int], roots: Iterable[int]) -> list[int]:
    """How often each node is an argument of those in ``order``.

    The ``roots``, which are needed as they are, count for more than one.
    """
    nodes = graph.nodes
    uses = [0] * len(nodes)
    for i in roots:
        uses[i] = 2
    for i in order:
        for a in nodes[i][1:]:
            uses[a] += 1
    return uses


def lone_products(graph: Graph, order: Sequence[int], uses: Sequence[int]) -> frozenset[int]:
    """The products that one sum uses and nothing else; of two in one sum, the second."""
    nodes = graph.nodes
    products: set[int] = set()
    mine = set(order)
    for i in order:
        node = nodes[i]
        if node[0] is ops.add or node[0] is ops.sub:
            for a in (node[2], node[1]):
                if uses[a] == 1 and nodes[a][0] is ops.mul and a in mine:
                    products.add(a)
                    break
    return frozenset(products)


# --- pairs of float32 -----------------------------------------------------------------------------
# Pairs of float32 in registers: each has the bits of both where float64 has its own.
#
# So they are moved, chosen and kept as float64 is. Arrays of the host have the sum of both, in
# float64: what is read is taken apart, and what is written put together.

TAKEN_APART: Final = Op(
    name="pair_from_float64", signature="d->f", reference=only_in_kernels,
    meaning="the float32 nearest to a float64, and to the rest, which is 0 of an infinite one",
    llvm="h = fptrunc {d} {0} to {s}; w = fpext {s} {h} to {d}; z = fsub {d} {w}, {w}; "
    "r = fsub {d} {0}, {w}; rest = fptrunc {d} {r} to {s}; finite = fcmp ord {d} {z}, {z}; "
    "l = select {b} {finite}, {s} {rest}, {s} zeroinitializer; "
    "hv = bitcast {s} {h} to {sv}; lv = bitcast {s} {l} to {sv}; "
    "both = shufflevector {sv} {hv}, {sv} {lv}, {zipped}; bitcast {ss} {both} to {d}",
)  # fmt: skip

PUT_TOGETHER: Final = Op(
    name="float64_of_pair", signature="f->d", reference=only_in_kernels,
    meaning="the sum of a pair, rounded to float64, with the sign of 0 that the first has",
    llvm="v = bitcast {d} {0} to {ss}; "
    "e = shufflevector {ss} {v}, {ss} poison, {even}; h = bitcast {sv} {e} to {s}; "
    "o = shufflevector {ss} {v}, {ss} poison, {odd}; l = bitcast {sv} {o} to {s}; "
    "hw = fpext {s} {h} to {d}; lw = fpext {s} {l} to {d}; both = fadd {d} {hw}, {lw}; "
    "none = fcmp oeq {s} {h}, zeroinitializer; select {b} {none}, {d} {hw}, {d} {both}",
)  # fmt: skip
