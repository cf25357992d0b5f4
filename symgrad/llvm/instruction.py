"""Nodes as LLVM instructions, on single numbers or on vectors of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from typing import Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.node import CONST, INPUT, INTEGER, TRUTH, Graph, Node, Op, float_bits

NAMES: Final = {"float32": "float", "float64": "double"}
DIGITS: Final = {"float32": 23, "float64": 52}
BITS: Final = {"float32": 32, "float64": 64}

_ONE: Final = (CONST, float_bits(1.0))


@dataclass(frozen=True)
class Shape:
    """What instructions work on: ``lanes`` numbers of ``dtype`` at once.

    ``fused`` says whether a product and a sum become one instruction: where the CPU has it, and
    always or never for the same graph, so that a point alone gives the bits it gives in a batch.
    """

    dtype: str
    lanes: int
    fused: bool
    avx512: bool = False
    """Whether the CPU has the instructions of AVX-512 for vectors of eight float64."""

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
        return {"f": self.float, "b": self.vector("i1"), "i": self.vector("i32"),
                "u": self.vector("i32")}  # fmt: skip

    @property
    def suffix(self) -> str:
        """How the names of intrinsics end."""
        scalar = f"f{BITS[self.dtype]}"
        return scalar if self.lanes == 1 else f"v{self.lanes}{scalar}"

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return BITS[self.dtype] // 8

    def number(self, value: float) -> str:
        """A constant of the shape's dtype, rounded to it."""
        with np.errstate(over="ignore"):
            rounded = float(np.dtype(self.dtype).type(value))
        (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
        return self.splat(NAMES[self.dtype], f"0x{bits:016X}")

    def word(self, value: int) -> str:
        """A word as wide as a number."""
        return self.splat(f"i{BITS[self.dtype]}", str(value))

    @cached_property
    def vocabulary(self) -> dict[str, str]:
        """What the texts of the op table's rows may name beside their arguments."""
        digits, bits = DIGITS[self.dtype], BITS[self.dtype]
        bias = (1 << (bits - digits - 2)) - 1
        return {
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
        known = {s.name: f"{{{s.name}_}}" for s in steps}
        words = shape.vocabulary | known
        steps.append(Step(name, body.format(*opened.values(), **words)))
    return tuple(steps)


@cache
def single(op: Op, shape: Shape) -> str:
    """The text of an operation of one instruction, or "" if it has more."""
    steps = steps_of(op, shape)
    return steps[0].text.replace("{v", "{") if len(steps) == 1 else ""


def constant(node: Node, shape: Shape) -> str:
    """A constant leaf."""
    value = Graph.leaf_value(node)
    if node[0] is CONST:
        return shape.number(float(value))
    if node[0] is TRUTH:
        return shape.splat("i1", "true" if value else "false")
    return shape.splat("i32", str(int(value) if node[0] is INTEGER else int(value) & 0xFFFFFFFF))


class Writer:
    """Writes the instructions of nodes, one after the other, and knows the name of each value.

    A value is named as its node, ``%t7``; where ``numbered``, all have the numbers that LLVM gives
    to values without names, which it reads in half the time.
    """

    def __init__(
        self, graph: Graph, shape: Shape, calls: Mapping[Op, str], names: dict[int, str],
        products: frozenset[int], numbered: bool = False,
    ) -> None:  # fmt: skip
        self.graph, self.shape, self.calls, self.names = graph, shape, calls, names
        self.lines: list[str] = []
        self._products = products
        self._numbers = count(1) if numbered else None  # the first block has number 0
        self._texts: dict[Op, str] = {}

    def value(self, text: str, name: str) -> str:
        """The name of a new value, which this instruction makes."""
        if self._numbers is not None:
            name = f"%{next(self._numbers)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def operand(self, i: int) -> str:
        """The name of a value, or a constant."""
        name = self.names.get(i)
        if name is None:
            node = self.graph.nodes[i]
            assert not node[0].arity and node[0] is not INPUT, f"node {i} was never computed"
            name = self.names[i] = constant(node, self.shape)
        return name

    def write(self, i: int) -> None:
        """The instructions of node i, whose arguments have been written."""
        node = self.graph.nodes[i]
        op = node[0]
        if i in self._products:
            return
        if op is ops.opaque:
            self.names[i] = self.operand(node[1])
        elif op is ops.mul and (same := self._times_one(node)) is not None:
            self.names[i] = self.operand(same)
        elif op in self.calls:
            self.names[i] = self._call(i, self.calls[op], node)
        elif not ((op is ops.add or op is ops.sub) and self._fuse(i, node)):
            self._steps(i, op, [self.operand(a) for a in self.graph.args(i)])

    def _times_one(self, node: Node) -> int | None:
        """The other factor of a product with 1, which need not be written: it is that factor."""
        nodes = self.graph.nodes
        for one, other in (node[1:], node[:0:-1]):
            factor = nodes[one]
            if factor[0] is ops.opaque:
                factor = nodes[factor[1]]
            if factor[0] is CONST and factor == _ONE:
                return other
        return None

    def _steps(self, i: int, op: Op, arguments: Sequence[str]) -> None:
        name = f"%t{i}"
        text = self._texts.get(op)
        if text is None:
            text = self._texts[op] = single(op, self.shape)
        if text:
            self.names[i] = self.value(text.format(*arguments), name)
            return
        known = {f"v{k}": a for k, a in enumerate(arguments)}
        for step in steps_of(op, self.shape):
            target = f"{name}.{step.name}" if step.name else name
            known[f"{step.name}_"] = self.value(step.text.format(**known), target)
        self.names[i] = known["_"]

    def _call(self, i: int, function: str, node: Node) -> str:
        kinds = node[0].signature
        arguments = ", ".join(
            f"{self.shape.types[kind]} {self.operand(a)}"
            for kind, a in zip(kinds, self.graph.args(i), strict=False)
        )
        result = self.shape.types[node[0].result]
        return self.value(f"call {result} @{function}({arguments})", f"%t{i}")

    def _fuse(self, i: int, node: Node) -> bool:
        """a * b + c in one instruction, where the product is used nowhere else."""
        op, first, second = node
        if second in self._products:
            product, rest = second, self.operand(first)
        elif first in self._products:
            product, rest = first, self.operand(second)
        else:
            return False
        same = self._times_one(self.graph.nodes[product])
        if same is not None:
            args = (same if a == product else a for a in self.graph.args(i))
            self._steps(i, op, [self.operand(a) for a in args])
            return True
        _, left, right = self.graph.nodes[product]
        a, b = self.operand(left), self.operand(right)
        if op is ops.sub and product == second:
            a = self._negated(i, a)
        elif op is ops.sub:
            rest = self._negated(i, rest)
        self._steps(i, ops.fma, [a, b, rest])
        return True

    def _negated(self, i: int, value: str) -> str:
        return self.value(f"fneg {self.shape.float} {value}", f"%n{i}")


def lone_products(graph: Graph, order: Sequence[int], kept: Iterable[int]) -> frozenset[int]:
    """The products that one sum uses and nothing else; of two in one sum, the second.

    ``kept`` are values that are needed as they are.
    """
    nodes = graph.nodes
    uses = [0] * len(nodes)
    for i in kept:
        uses[i] = 2
    for i in order:
        for a in graph.args(i):
            uses[a] += 1
    found: set[int] = set()
    mine = set(order)
    for i in order:
        if nodes[i][0] is ops.add or nodes[i][0] is ops.sub:
            for a in (nodes[i][2], nodes[i][1]):
                if nodes[a][0] is ops.mul and uses[a] == 1 and a in mine:
                    found.add(a)
                    break
    return frozenset(found)
