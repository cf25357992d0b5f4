"""Values as text that Python's grammar reads, and that gives the same nodes again."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final

from symgrad.errors import UnsupportedError
from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INTEGER, TRUTH, WORD, Graph, Op

COMPARED, OR, XOR, AND, SHIFTED, SUM, PRODUCT, SIGN, POWER, PRIMARY = range(10)
"""How tightly the parts of a text are bound, as in Python."""

Text = tuple[str, int]

INFIX: Final[dict[Op, tuple[str, int]]] = {
    ops.add: ("+", SUM), ops.sub: ("-", SUM), ops.mul: ("*", PRODUCT), ops.div: ("/", PRODUCT),
    ops.lt: ("<", COMPARED), ops.le: ("<=", COMPARED), ops.eq: ("==", COMPARED),
    ops.ne: ("!=", COMPARED), ops.word_add: ("+", SUM), ops.word_sub: ("-", SUM),
    ops.word_mul: ("*", PRODUCT), ops.word_and: ("&", AND), ops.word_or: ("|", OR),
    ops.word_xor: ("^", XOR), ops.word_lt: ("<", COMPARED), ops.word_eq: ("==", COMPARED),
    ops.logical_and: ("&", AND), ops.logical_or: ("|", OR), ops.logical_xor: ("^", XOR),
}  # fmt: skip
"""Operations as operators that make the same node of values of these types."""

BY_NUMBERS: Final[dict[Op, tuple[str, int, int]]] = {
    ops.word_div: ("//", PRODUCT, 2**32),
    ops.word_shift_left: ("<<", SHIFTED, 32),
    ops.word_shift_right: (">>", SHIFTED, 32),
}
"""Operators of this kind whose second operand is a number above 0, and below a limit."""

Leaf = Callable[[int], str]
"""``leaf(i)`` is what a leaf of the graph is called."""


class Formulas:
    """Texts of nodes. Those in ``names`` are called so; ``leaf`` names the leaves.

    Those that are ``signed`` are integers with a sign.
    """

    def __init__(
        self, graph: Graph, leaf: Leaf, names: Mapping[int, str], signed: Container[int]
    ) -> None:
        self.graph, self.leaf, self.names, self._signed = graph, leaf, names, signed

    def __call__(self, i: int) -> str:
        """The text of a value."""
        return self._text(i)[0]

    def _part(self, i: int) -> Text:
        """The text of an operand: of a signed integer its bits, whose operations nodes are."""
        text = self._text(i)
        return (f"uint32({text[0]})", PRIMARY) if i in self._signed else text

    def _text(self, i: int) -> Text:
        if i in self.names:
            return self.names[i], PRIMARY
        node = self.graph.nodes[i]
        if not node[0].arity:
            return self._leaf(i)
        op, *args = node
        constant = all(self.graph.nodes[a][0].constant for a in args)
        return (None if constant else self._operator(op, args)) or self._call(op, args)

    def _leaf(self, i: int) -> Text:
        op, payload = self.graph.nodes[i][:2]
        if op in (WORD, INTEGER):
            return str(payload), PRIMARY if payload >= 0 else SIGN
        if op is TRUTH:
            return str(bool(payload)), PRIMARY
        if op is CONST:
            text = repr(Graph.leaf_value(self.graph.nodes[i]))
            return text, SIGN if text.startswith("-") else PRIMARY
        return self.leaf(i), PRIMARY

    def _call(self, op: Op, args: list[int]) -> Text:
        if ops.TABLE.get(op.name) is not op:
            raise UnsupportedError(
                f"{op.name} stands for a loop, an array or a derivative of the user's own, which "
                "values of programs have none of: use the program's own for_, if_ and arrays"
            )
        return f"{op.name}({', '.join(self._part(a)[0] for a in args)})", PRIMARY

    def _operator(self, op: Op, args: list[int]) -> Text | None:
        if op in INFIX:
            return self._infix(*INFIX[op], args)
        if op in BY_NUMBERS:
            sign, level, limit = BY_NUMBERS[op]
            operand_op, number, *_ = self.graph.nodes[args[1]]
            fits = operand_op is WORD and 0 < number < limit
            return self._infix(sign, level, args) if fits else None
        if op is ops.neg or op is ops.logical_not:
            return f"{'-' if op is ops.neg else '~'}{self._within(args[0], SIGN)}", SIGN
        if op is ops.integer_pow and self.graph.nodes[args[1]][1] not in (-1, 0, 1):
            return f"{self._within(args[0], PRIMARY)} ** {self._within(args[1], SIGN)}", POWER
        return None

    def _infix(self, sign: str, level: int, args: list[int]) -> Text:
        a, b = args
        left = level + (level == COMPARED)
        return f"{self._within(a, left)} {sign} {self._within(b, level + 1)}", level

    def _within(self, i: int, level: int) -> str:
        text, own = self._part(i)
        return text if own >= level else f"({text})"
