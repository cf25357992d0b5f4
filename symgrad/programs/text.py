"""Programs as text, statement by statement: what `symgrad.programs.parse` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from symgrad.expr.graph.node import ANY_INPUT, reachable
from symgrad.kernel.accesses import operands
from symgrad.kernel.statements import (
    Barrier,
    For,
    If,
    Let,
    Load,
    Reduce,
    Scope,
    Statement,
    Store,
)
from symgrad.programs.code import NAMES, Array, Code, Dispatch
from symgrad.programs.formulas import Formulas

DEEPEST: Final = 12
"""Operations within one another that stand in one line, at most."""


def text(code: Code) -> str:
    """A program as text.

    Values that several statements need, or that are long, are called ``t1``, ``t2`` and so on.
    """
    return "\n".join(line for line, _ in Listing(code).lines()) + "\n"


def shown(code: Code, statement: Statement | None) -> str:
    """A statement as its line in the program's text, for messages."""
    for number, (line, owner) in enumerate(Listing(code).lines(), 1):
        if statement in owner:
            return f"{line.strip().rstrip(':')!r}, line {number} of {code.name}"
    raise AssertionError("the statement is none of the program's")


Line = tuple[str, tuple[Statement, ...]]

GIVES: Final = (Load, Reduce)
"""The statements whose result is a leaf of the graph."""


class Listing:
    """The lines of a program, and the statements that each of them says."""

    def __init__(self, code: Code) -> None:
        self.code, self.graph = code, code.graph
        self._names: dict[int, str] = {}
        """What values are called where the text is at."""
        self._inline: dict[int, Statement] = {}
        """The statements that leaves stand for in the text of others."""
        self._order: list[int] = []
        """The leaves that have been written so, in order."""
        self._formula = Formulas(self.graph, self._leaf, self._names, _signed(code))
        self._declarations = {s for d in code.dispatches for s in d.declarations}
        self._taken, self._numbered = {a.name for a in code.arrays}, 0
        for d in code.dispatches:
            self._taken |= {a.name for a in d.arrays}
            for s in d.statements:
                match s:
                    case Let(name=name):
                        self._taken.add(name)
                    case Store(buffer=buffer):
                        self._taken.add(buffer.name)
                    case For():
                        self._taken.add(d.leaf_name(s.k))
                    case _:
                        pass

    def lines(self) -> Iterator[Line]:
        """All lines."""
        yield f"program {self.code.name}", ()
        for a in self.code.arrays:
            yield f"  {_declared(a)}", ()
        for d in self.code.dispatches:
            yield f"  dispatch {d.invocations} in groups of {d.width}:", ()
            yield from self._dispatch(d)

    def _dispatch(self, d: Dispatch) -> Iterator[Line]:
        self._kernel = d
        for a in d.arrays:
            yield f"    {_declared(a)}", ()
        self._names.update(d.given)
        self._users: dict[int, set[int]] = {}
        for s in d.statements:
            for i in operands(d, s):
                for leaf in self._leaves(i):
                    self._users.setdefault(leaf, set()).add(id(s))
        yield from self._block(d.main, "    ")

    def _leaves(self, i: int) -> list[int]:
        nodes = self.graph.nodes
        return [n for n in reachable(self.graph, [i]) if nodes[n][0] in ANY_INPUT]

    def _operands(self, s: int | Statement) -> Sequence[int]:
        """The values that a statement needs, in the order in which its text has them."""
        return operands(self._kernel, s)

    # blocks --------------------------------------------------------------------------------------

    def _block(self, scope: Scope, indent: str) -> Iterator[Line]:
        before, block = dict(self._names), scope.statements
        shared = self._shared(block)
        waiting: list[Statement] = []
        for s in block:
            if isinstance(s, GIVES):
                waiting.append(s)
                continue
            yield from self._statement(s, waiting, shared, indent)
            waiting = []
        for s in waiting:
            yield from self._given(s, shared, indent)
        if not block:
            yield f"{indent}pass", ()
        self._names.clear()
        self._names.update(before)

    def _shared(self, block: Sequence[Statement]) -> set[int]:
        """The operations that more than one place of a block needs, or that are deep."""
        roots = [i for s in block for i in self._operands(s)]
        order, nodes = reachable(self.graph, roots), self.graph.nodes
        times, depth = Counter(roots), dict[int, int]()
        deep: set[int] = set()
        for i in order:
            args = nodes[i][1:] if nodes[i][0].arity else ()
            times.update(args)
            depth[i] = 1 + max((depth[a] for a in args), default=-1)
            if depth[i] >= DEEPEST:
                deep.add(i)
                depth[i] = 0
        return {i for i in order if nodes[i][0].arity and (times[i] > 1 or i in deep)}

    def _statement(
        self, s: Statement, waiting: Sequence[Statement], shared: set[int], indent: str
    ) -> Iterator[Line]:
        """The lines of a statement; what gives it values stands in them, if the order allows."""
        names, numbered = dict(self._names), self._numbered
        self._inline, self._order = {w.result: w for w in waiting if isinstance(w, GIVES)}, []
        if waiting and all(self._is_alone(r, s) for r in self._inline):
            lines = [*self._named(s, shared, indent), *self._written(s, indent)]
            if self._order == list(self._inline):
                self._inline = {}
                yield from lines[:-1]
                yield lines[-1][0], (s, *waiting)
                yield from self._inner(s, indent)
                return
            self._names.clear()
            self._names.update(names)
            self._numbered = numbered
        self._inline = {}
        for w in waiting:
            yield from self._given(w, shared, indent)
        yield from self._named(s, shared, indent)
        yield from self._written(s, indent)
        yield from self._inner(s, indent)

    def _unnamed(self, s: Statement) -> list[int]:
        """The operations that a statement needs and that have no name yet, in order."""
        visited, stack = set[int](), [i for i in self._operands(s) if i not in self._names]
        while stack:
            i = stack.pop()
            if i in visited or i in self._names:
                continue
            visited.add(i)
            if self.graph.nodes[i][0].arity:
                stack += self.graph.nodes[i][1:]
            elif i in self._inline:
                stack += self._operands(self._inline[i])
        return sorted(i for i in visited if self.graph.nodes[i][0].arity)

    def _is_alone(self, leaf: int, s: Statement) -> bool:
        """Whether nothing but a statement needs a leaf; or it is what gives it its name."""
        users = self._users.get(leaf, set())
        if isinstance(s, Let) and s.value == leaf:
            return True
        waiting = {id(w) for w in self._inline.values()}
        return users <= {id(s)} | waiting or users == {id(s)}

    def _named(self, s: Statement, shared: set[int], indent: str) -> Iterator[Line]:
        """Lines that name what a statement and others need."""
        own = {s.value} if isinstance(s, Let) else set[int]()
        for i in self._unnamed(s):
            if i in shared and i not in own:
                yield self._let(i, self._formula(i), indent), ()

    def _let(self, i: int, value: str, indent: str) -> str:
        self._names[i] = name = self._new()
        return f"{indent}let {name} = {value}"

    def _new(self) -> str:
        while True:
            self._numbered += 1
            name = f"t{self._numbered}"
            if name not in self._taken:
                return name

    def _given(self, w: Statement, shared: set[int], indent: str) -> Iterator[Line]:
        """A line of its own for what gives a value."""
        assert isinstance(w, GIVES), "other statements give nothing"
        yield from self._named(w, shared, indent)
        yield self._let(w.result, self._giving(w), indent), (w,)

    # statements ----------------------------------------------------------------------------------

    def _leaf(self, i: int) -> str:
        """What stands for a leaf that has no name: the statement that gives it."""
        if i not in self._inline:
            return self.graph.names[self.graph.nodes[i][1]]
        expression = self._giving(self._inline[i])
        if i not in self._order:
            self._order.append(i)
        return expression

    def _giving(self, s: Statement) -> str:
        match s:
            case Load():
                return self._element(s)
            case Reduce(operation=operation, value=value, among=among):
                return f"group_{operation}({self._formula(value)}, {among})"
            case _:
                raise AssertionError("the statement gives no value")

    def _element(self, s: Load | Store) -> str:
        if s.buffer.space == "variable":
            return s.buffer.name
        return f"{s.buffer.name}[{', '.join(map(self._formula, s.axes))}]"

    def _written(self, s: Statement, indent: str) -> Iterator[Line]:
        formula = self._formula
        match s:
            case Let(name=name, value=value):
                text = formula(value)
                self._names.setdefault(value, name)
                yield f"{indent}let {name} = {text}", (s,)
            case Store(buffer=v, value=value) if s in self._declarations:
                yield f"{indent}var {v.name}: {NAMES[v.kind]} = {formula(value)}", (s,)
            case Store(value=value, add=add):
                yield f"{indent}{self._element(s)} {'+' * add}= {formula(value)}", (s,)
            case Barrier():
                yield f"{indent}barrier", (s,)
            case If(condition=condition):
                yield f"{indent}if {formula(condition)}:", (s,)
            case For():
                bounds = f"{formula(s.lo)} .. {formula(s.hi)}"
                more = " down" * s.down + (f" most {s.most}" if s.most is not None else "")
                yield f"{indent}for {self._leaf(s.k)} in {bounds}{more}:", (s,)
            case _:
                raise AssertionError("what gives a value has a line of its own")

    def _inner(self, s: Statement, indent: str) -> Iterator[Line]:
        """The blocks of a statement."""
        if isinstance(s, For):
            self._names[s.k] = self._leaf(s.k)
            yield from self._block(s.scope, indent + "  ")
        if isinstance(s, If):
            then, otherwise = s.sides
            yield from self._block(then, indent + "  ")
            if otherwise.items:
                yield f"{indent}else:", ()
                yield from self._block(otherwise, indent + "  ")


def _declared(a: Array) -> str:
    return f"{a.role} {a.name}: {NAMES[a.kind]}[{', '.join(map(str, a.shape))}]"


def _signed(code: Code) -> set[int]:
    """The leaves that are signed integers."""
    loads = (s for d in code.dispatches for s in d.statements if isinstance(s, Load))
    return {s.result for s in loads if s.buffer.kind == "i"}
