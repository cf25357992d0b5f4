"""A kernel of the language as text: its buffers, and its scopes line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from symgrad.expr.graph.node import CONST, Graph
from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import (
    Barrier,
    Call,
    Fill,
    For,
    If,
    Load,
    Read,
    ReadRow,
    Routine,
    Scope,
    Statement,
    Store,
    StoreRow,
)


def listing(kernel: KernelIR) -> str:
    """The kernel as text.

    Values are called as the user calls them, and numbered where several have one name.

    Example:
        >>> from symgrad.expr import ops
        >>> from symgrad.kernel.target import SimdTarget
        >>> k = KernelIR(SimdTarget(8), "squares")
        >>> x, y = k.buffer("x", "read"), k.buffer("y", "write")
        >>> value = k.load(x, k.cell)
        >>> k.names[value] = "x0"
        >>> k.store(y, k.cell, k.add(ops.mul, value, value))
        >>> print(listing(k))
        kernel squares(read x: f, write y: f)
          x0 = x[cell]
          v1 = mul(x0, x0)
          y[cell] = v1
    """
    return "\n".join(_Listing(kernel).lines())


class _Listing:
    def __init__(self, kernel: KernelIR) -> None:
        self.kernel, self.graph = kernel, kernel.graph
        self.names = dict(kernel.given)
        self.times = Counter(self.names.values())

    def lines(self) -> Iterator[str]:
        size = (f"[{b.size}]" if b.size else "" for b in self.kernel.buffers)
        buffers = (
            f"{b.space} {b.name}{n}: {b.kind}"
            for b, n in zip(self.kernel.buffers, size, strict=True)
        )
        yield f"kernel {self.kernel.name}({', '.join(buffers)})"
        yield from self._scope(self.kernel.main, "  ")

    def _scope(self, scope: Scope, indent: str) -> Iterator[str]:
        for item in scope.items:
            for line in self._item(item):
                yield indent + line

    def _item(self, item: int | Statement) -> Iterator[str]:
        match item:
            case int():
                yield f"{self._name(item)} = {self._operation(item)}"
            case Load(result=result, buffer=buffer, index=index):
                agreed = "agreed " * item.agreed
                yield f"{self._name(result)} = {agreed}{buffer.name}[{self._name(index)}]"
            case Store(buffer=buffer, index=index, value=value):
                sign = "+=" if item.add else "="
                yield f"{buffer.name}[{self._name(index)}] {sign} {self._name(value)}"
            case ReadRow():
                row = f"{item.buffer.name}[{self._name(item.row)}"
                for c, result in item.results.items():
                    yield f"{self._name(result)} = {row}, {c}]"
            case StoreRow(buffer=buffer, values=values):
                yield f"{buffer.name}[cell] = {', '.join(map(self._name, values))}"
            case Fill(buffer=buffer):
                yield f"{buffer.name} = 0"
            case Barrier():
                yield "barrier"
            case Routine(name=name, params=params):
                yield f"routine {name}({', '.join(map(self._name, params))})"
                yield from self._scope(item.scope, "  ")
            case Call(routine=routine, args=args):
                yield f"{routine.name}({', '.join(map(self._name, args))})"
            case If():
                yield from self._choice(item)
            case For():
                yield from self._loop(item)

    def _loop(self, loop: For) -> Iterator[str]:
        lo, hi = self._name(loop.lo), self._name(loop.hi)
        down = " down" if loop.down else ""
        carries = f" with{self._set(loop.params, loop.inits)}" if loop.params else ""
        yield f"for {self._name(loop.k)} in {lo} .. {hi}{down}{carries}"
        for n, item in enumerate(loop.scope.items):
            yield from self._test(loop, n)
            for line in self._item(item):
                yield "  " + line
        yield from self._test(loop, len(loop.scope.items))
        if loop.params:
            yield f"  next{self._set(loop.params, loop.yields)}"
            yield f"end{self._set(loop.results, loop.params)}"

    def _test(self, loop: For, n: int) -> Iterator[str]:
        if loop.test is not None and n == loop.test_at:
            yield f"  while {self._name(loop.test)}"

    def _choice(self, choice: If) -> Iterator[str]:
        heads = f"if {self._name(choice.condition)}", "else"
        for head, side, yields in zip(heads, choice.sides, choice.yields, strict=True):
            if side.items or yields:
                yield head
                yield from self._scope(side, "  ")
            if yields:
                yield f"  give{self._set(choice.results, yields)}"

    def _set(self, names: list[int], values: list[int]) -> str:
        pairs = zip(names, values, strict=True)
        return " " * bool(names) + ", ".join(f"{self._name(a)} = {self._name(b)}" for a, b in pairs)

    def _operation(self, i: int) -> str:
        op, *args = self.graph.nodes[i]
        arguments = ", ".join(map(self._name, args))
        return (
            f"{op.buffer.name}[{arguments}]" if isinstance(op, Read) else f"{op.name}({arguments})"
        )

    def _name(self, i: int) -> str:
        node = self.graph.nodes[i]
        if node[0].constant:
            value = Graph.leaf_value(node)
            return f"{value:.9g}" if node[0] is CONST else str(value)
        if i not in self.names:
            self.names[i] = self._new(self.kernel.names.get(i))
        return self.names[i]

    def _new(self, name: str | None) -> str:
        """A name that no other value has: the user's, or else ``v`` and a number."""
        stem = name or "v"
        self.times[stem] += 1
        number = self.times[stem]
        return stem if name and number == 1 else f"{stem}{'_' * bool(name)}{number}"
