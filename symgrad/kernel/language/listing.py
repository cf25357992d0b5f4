"""Kernels as text, line by line, in the language that programs are written in.

The lines of a kernel whose values float are what `symgrad.programs.parse` reads: a value is written
where it is needed. Of one that is placed each operation has a line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from symgrad.errors import UnsupportedError
from symgrad.expr import ops
from symgrad.expr.graph.node import (
    ANY_INPUT,
    CONST,
    INTEGER,
    TRUTH,
    WORD,
    Graph,
    Op,
    reachable,
)
from symgrad.kernel.language.index import remainder
from symgrad.kernel.language.ir import KernelIR, operands
from symgrad.kernel.language.statements import (
    NAMES,
    Barrier,
    Call,
    Fill,
    For,
    GroupReduce,
    If,
    Let,
    Load,
    Read,
    ReadRow,
    Routine,
    Scope,
    Statement,
    Store,
    StoreRow,
    declarations,
    within,
)

# --- values ---------------------------------------------------------------------------------------

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

    Those that are ``signed`` are integers with a sign. Only what `symgrad.programs.parse` reads is
    written of a graph that is the user's, and ``floating``.
    """

    def __init__(
        self,
        graph: Graph,
        leaf: Leaf,
        names: Mapping[int, str],
        signed: Container[int] = (),
        floating: bool = False,
    ) -> None:
        self.graph, self.leaf, self.names = graph, leaf, names
        self._signed, self._floating = signed, floating

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
        if self._floating and (rest := remainder(self.graph, i)):
            return self._infix("%", PRODUCT, rest)
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
        if isinstance(op, Read):
            return f"{op.buffer.name}[{self(args[0])}]", PRIMARY
        if self._floating and ops.TABLE.get(op.name) is not op:
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

    def _infix(self, sign: str, level: int, args: Sequence[int]) -> Text:
        a, b = args
        left = level + (level == COMPARED)
        return f"{self._within(a, left)} {sign} {self._within(b, level + 1)}", level

    def _within(self, i: int, level: int) -> str:
        text, own = self._part(i)
        return text if own >= level else f"({text})"


# --- statements -----------------------------------------------------------------------------------

DEEPEST: Final = 12
"""Operations within one another that stand in one line, at most."""

Line = tuple[str, tuple[Statement, ...]]
"""A line, and the statements that it says."""

GIVES: Final = (Load, GroupReduce)
"""The statements whose result is a leaf of the graph."""


def listing(kernel: KernelIR) -> str:
    """The kernel, with its buffers, as text.

    Values are called as the user calls them, and numbered where several have one name.

    Example:
        >>> from symgrad.kernel.language.target import SimdTarget
        >>> k = KernelIR(SimdTarget(8), "squares")
        >>> x, y = k.buffer("x", "read"), k.buffer("y", "write")
        >>> value = k.load(x, k.cell)
        >>> k.names[value] = "x0"
        >>> k.store(y, k.cell, k.add(ops.mul, value, value))
        >>> print(listing(k))
        kernel squares(read x: f32, write y: f32):
          let x0 = x[cell]
          let v1 = x0 * x0
          y[cell] = v1
    """
    sizes = (f"[{b.size}]" if b.size else "" for b in kernel.buffers)
    pairs = zip(kernel.buffers, sizes, strict=True)
    buffers = ", ".join(
        f"{b.space} {b.name}: {b.floats or NAMES[b.kind]}{size}" for b, size in pairs
    )
    kind = FloatingListing([kernel]) if kernel.floating else PlacedListing(kernel)
    lines = kind.lines(kernel, "  ")
    return "\n".join([f"kernel {kernel.name}({buffers}):", *(line for line, _ in lines)])


class _Listing:
    """The lines of statements, without what is within them."""

    def __init__(self, kernel: KernelIR, signed: Container[int] = ()) -> None:
        self.kernel, self.graph = kernel, kernel.graph
        self._names: dict[int, str] = {}
        """The names of values at the place of the text that is being written."""
        self._formula = Formulas(self.graph, self._leaf, self._names, signed, kernel.floating)
        self._declarations: set[Store] = set()

    def _leaf(self, i: int) -> str:
        """The name of a leaf that the user gave none."""
        raise NotImplementedError

    def _element(self, s: Load | Store) -> str:
        if s.buffer.space == "variable":
            return s.buffer.name
        return f"{s.buffer.name}[{', '.join(map(self._formula, s.axes or [s.index]))}]"

    def _written(self, s: Statement) -> str:
        """The text of a statement that gives no value."""
        formula = self._formula
        match s:
            case Let(name=name, value=value):
                text = formula(value)
                self._names.setdefault(value, name)
                return f"let {name} = {text}"
            case Store(buffer=v, value=value) if s in self._declarations:
                return f"var {v.name}: {NAMES[v.kind]} = {formula(value)}"
            case Store(value=value, add=add):
                return f"{self._element(s)} {'+' * add}= {formula(value)}"
            case StoreRow(buffer=buffer, values=values):
                return f"{buffer.name}[cell] = {', '.join(map(formula, values))}"
            case Fill(buffer=buffer):
                return f"{buffer.name} = 0"
            case Barrier():
                return "barrier"
            case Call(routine=routine, args=args):
                return f"{routine.name}({', '.join(map(formula, args))})"
            case Routine(name=name, params=params):
                return f"routine {name}({', '.join(map(formula, params))}):"
            case If(condition=condition):
                return f"if {formula(condition)}:"
            case For(k=k, lo=lo, hi=hi):
                return f"for {self._leaf(k)} in {formula(lo)} .. {formula(hi)}{self._rest(s)}:"
            case _:
                raise AssertionError("what gives a value has a line of its own")

    def _rest(self, s: For) -> str:
        """The end of a loop's line."""
        return " down" * s.down


class FloatingListing(_Listing):
    """The lines of kernels that float, of one graph, where some names are ``taken``.

    Values that several statements need, or that are long, are called ``t1``, ``t2`` and so on.
    """

    def __init__(self, kernels: Sequence[KernelIR], taken: Iterable[str] = ()) -> None:
        statements = [s for k in kernels for s in within(k.main)]
        loads = (s for s in statements if isinstance(s, Load))
        super().__init__(kernels[0], {s.result for s in loads if s.buffer.kind == "i"})
        self._inline: dict[int, Statement] = {}
        """The statements that leaves stand for in the text of others."""
        self._order: list[int] = []
        """The leaves that have been written so, in order, as often as they were."""
        self._declarations = {s for k in kernels for s in declarations(k.main)}
        self._numbered = 0
        self._taken = {*taken, *(b.name for k in kernels for b in k.buffers)}
        self._taken |= {s.name for s in statements if isinstance(s, Let)}
        self._taken |= {s.buffer.name for s in statements if isinstance(s, Store)}
        self._taken |= {self._leaf(s.k) for s in statements if isinstance(s, For)}

    def lines(self, kernel: KernelIR, indent: str) -> Iterator[Line]:
        """The lines of one of the kernels."""
        self.kernel = kernel
        self._names.update(kernel.given)
        self._users: dict[int, set[int]] = {}
        for s in within(kernel.main):
            for i in operands(kernel, s):
                for leaf in self._leaves(i):
                    self._users.setdefault(leaf, set()).add(id(s))
        yield from self._block(kernel.main, indent)

    def _leaves(self, i: int) -> list[int]:
        nodes = self.graph.nodes
        return [n for n in reachable(self.graph, [i]) if nodes[n][0] in ANY_INPUT]

    def _operands(self, s: Statement) -> Sequence[int]:
        """The values that a statement needs, in the order in which its text has them."""
        return operands(self.kernel, s)

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
            lines = [*self._named(s, shared, indent), (indent + self._written(s), (s,))]
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
        yield indent + self._written(s), (s,)
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

    def _leaf(self, i: int) -> str:
        """The text for a leaf that has no name: the statement that gives it."""
        if i not in self._inline:
            return self.kernel.leaf_name(i)
        expression = self._giving(self._inline[i])
        self._order.append(i)
        return expression

    def _giving(self, s: Statement) -> str:
        match s:
            case Load():
                return self._element(s)
            case GroupReduce(operation=operation, value=value, among=among):
                return f"group_{operation}({self._formula(value)}, {among})"
            case _:
                raise AssertionError("the statement gives no value")

    def _rest(self, s: For) -> str:
        return super()._rest(s) + (f" most {s.most}" if s.most is not None else "")

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


class PlacedListing(_Listing):
    """The lines of a kernel that is placed: loops have carries, and branches have results."""

    def __init__(self, kernel: KernelIR) -> None:
        super().__init__(kernel)
        self._names.update(kernel.given)
        self._times = Counter(self._names.values())

    def lines(self, kernel: KernelIR, indent: str) -> Iterator[Line]:
        """All lines."""
        yield from self._scope(kernel.main, indent)

    def _scope(self, scope: Scope, indent: str) -> Iterator[Line]:
        for item in scope.items:
            yield from self._item(item, indent)

    def _item(self, item: int | Statement, indent: str) -> Iterator[Line]:
        match item:
            case int():
                yield indent + self._let(item, self._formula(item)), ()
            case Load(result=result, agreed=agreed):
                yield indent + self._let(result, "agreed " * agreed + self._element(item)), (item,)
            case ReadRow(buffer=buffer, row=row):
                for c, result in item.results.items():
                    read = f"{buffer.name}[{self._formula(row)}, {c}]"
                    yield indent + self._let(result, read), (item,)
            case If():
                yield from self._choice(item, indent)
            case For():
                yield from self._loop(item, indent)
            case _:
                yield indent + self._written(item), (item,)
                for scope in [item.scope] if isinstance(item, Routine) else []:
                    yield from self._scope(scope, indent + "  ")

    def _loop(self, loop: For, indent: str) -> Iterator[Line]:
        inner, items = indent + "  ", loop.scope.items
        yield indent + self._written(loop), (loop,)
        for n in range(len(items) + 1):
            if loop.test is not None and n == loop.test_at:
                yield f"{inner}while {self._formula(loop.test)}", (loop,)
            if n < len(items):
                yield from self._item(items[n], inner)
        if loop.params:
            yield f"{inner}next {self._set(loop.params, loop.yields)}", (loop,)
            yield f"{indent}end {self._set(loop.results, loop.params)}", (loop,)

    def _rest(self, s: For) -> str:
        carries = f" with {self._set(s.params, s.inits)}" if s.params else ""
        return super()._rest(s) + carries

    def _choice(self, choice: If, indent: str) -> Iterator[Line]:
        heads = self._written(choice), "else:"
        for head, side, yields in zip(heads, choice.sides, choice.yields, strict=True):
            if side.items or yields:
                yield indent + head, (choice,)
                yield from self._scope(side, indent + "  ")
            if yields:
                yield f"{indent}  give {self._set(choice.results, yields)}", (choice,)

    def _set(self, names: Sequence[int], values: Sequence[int]) -> str:
        pairs = zip(names, values, strict=True)
        return ", ".join(f"{self._formula(a)} = {self._formula(b)}" for a, b in pairs)

    def _let(self, i: int, value: str) -> str:
        return f"let {self._leaf(i)} = {value}"

    def _leaf(self, i: int) -> str:
        """A name that no other value has: the user's, or else ``v`` and a number."""
        if i not in self._names:
            name = self.kernel.names.get(i)
            stem = name or "v"
            self._times[stem] += 1
            number = self._times[stem]
            self._names[i] = stem if name and number == 1 else f"{stem}{'_' * bool(name)}{number}"
        return self._names[i]
