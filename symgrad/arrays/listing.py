"""Array programs as text: one line for each array that is not read away by another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symgrad.arrays.program import (
    ArrayProgram,
    Constant,
    Input,
    Joined,
    Part,
    Result,
    Scan,
    Scatter,
    Tabulate,
)
from symgrad.arrays.scalars import (
    COUNTER,
    Affine,
    Array,
    Read,
    Reduce,
    Scalars,
    is_negative,
    is_zero,
    modulo,
    quotient,
)
from symgrad.expr.semantics.show import PRIMARY, PRODUCT, RELATION, SUM, Text, leaf_text, write_text

LETTERS = "ijklmnpqrstuvw"


def listing(program: ArrayProgram) -> str:
    """The program, an array a line, in the order in which they are computed."""
    names: dict[Array, str] = {}
    lines = []
    for k, array in enumerate(program.arrays):
        kind = "x" if isinstance(array, Input) else "t" if isinstance(array, Constant) else "a"
        names[array] = f"{kind}{array.number if isinstance(array, Input) else k}"
        lines.append(f"{names[array]} = {_Line(program.scalars, names).array(array)}")
    outputs = ", ".join(names[a] for a in program.outputs)
    return "\n".join([*lines, f"return {outputs}"])


class _Line:
    """The text of one array: counters get letters as they are bound."""

    def __init__(self, scalars: Scalars, names: Mapping[Array, str]) -> None:
        self._scalars, self._arrays = scalars, names
        self._texts: dict[int, Text] = {}
        self._letters: dict[int, str] = {}

    def array(self, array: Array) -> str:
        """The definition of an array."""
        shape = str(list(array.shape))
        match array:
            case Input():
                return f"input {shape}" + (" of integers" if array.kind == "i" else "")
            case Constant():
                return f"constant {shape}"
            case Result():
                operands = ", ".join(self._arrays[a] for a in array.call.operands)
                return f"{array.call.name}({operands})[{array.index}]"
            case Part():
                return f"part {shape} of {self._arrays[array.whole]} from {array.first} on"
            case Joined():
                return f"joined {shape}: {', '.join(self._arrays[a] for a in array.parts)}"
            case Tabulate():
                head = self._bound(array.counters)
                return f"for {head} {{ {self.text(array.body)} }}" if head else self._scalar(array)
            case Scatter():
                head = self._bound(array.counters)
                index = ", ".join(self.text(i) for i in array.index)
                return f"scatter {shape}; {head} {{ [{index}] += {self.text(array.body)} }}"
            case Scan():
                head, way = self._bound(array.counters), " reversed" if array.reverse else ""
                axis = self._letters[array.counters[array.axis]]
                return (
                    f"scan {array.operator} along {axis}{way}; {head} {{ {self.text(array.body)} }}"
                )
        raise AssertionError(f"{array} is no array of a program")

    def _scalar(self, array: Tabulate) -> str:
        return f"{{ {self.text(array.body)} }}"

    def _bound(self, counters: Sequence[int]) -> str:
        for c in counters:
            count = len(self._letters)
            letter, more = LETTERS[count % len(LETTERS)], count // len(LETTERS)
            self._letters[c] = letter + (str(more) if more else "")
        return ", ".join(f"{self._letters[c]} < {self._scalars.extent(c)}" for c in counters)

    def text(self, root: int) -> str:
        """The text of a scalar."""
        for i in self._scalars.shallow([root]):
            if i not in self._texts:
                self._texts[i] = self._node(i)
        return self._texts[root].shown

    def _node(self, i: int) -> Text:
        node = self._scalars.graph.nodes[i]
        op = node[0]
        if op is COUNTER:
            return Text(self._letters.get(i, f"_{i}"))
        if isinstance(op, Reduce):
            head = self._bound(op.counters)
            return Text(f"reduce {head}; {op.operator} {{ {', '.join(map(self.text, node[1:]))} }}")
        arguments = [self._texts[a] for a in self._scalars.args(i)]
        if isinstance(op, Read):
            return Text(f"{self._arrays[op.array]}[{', '.join(a.shown for a in arguments)}]")
        if isinstance(op, Affine):
            return _sum(op, arguments)
        if op in (quotient, modulo):
            symbol = "//" if op is quotient else "%"
            return Text(f"{arguments[0].wrapped(PRIMARY)} {symbol} {arguments[1].shown}", PRODUCT)
        if op in (is_negative, is_zero):
            return Text(f"{arguments[0].shown} {'<' if op is is_negative else '=='} 0", RELATION)
        return write_text(op, arguments) if op.arity else leaf_text(self._scalars.graph, i)


def _sum(op: Affine, arguments: Sequence[Text]) -> Text:
    """An affine integer, its constant last."""
    parts = [
        a.wrapped(SUM if c == 1 else PRODUCT) if c == 1 else f"{c}*{a.wrapped(PRIMARY)}"
        for c, a in zip(op.coefficients, arguments, strict=True)
    ]
    shown = " + ".join([*parts, *([str(op.offset)] if op.offset else [])])
    return Text(shown.replace("+ -", "- "), SUM)
