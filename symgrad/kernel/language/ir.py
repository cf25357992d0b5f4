"""The kernel language: one arena of values in nested scopes, and statements where order matters."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, TRUTH, WORD, Graph, Node, Op, float_bits
from symgrad.kernel.language.statements import (
    BOUND,
    VALUES,
    Barrier,
    Buffer,
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
    Space,
    Statement,
    Store,
    StoreRow,
    scopes_of,
)


class Arena:
    """The nodes of a kernel: ``at`` is the scope where things go now.

    Every node is computed in the innermost scope that one of its arguments stands in, so what a
    loop does not change is computed before it; and an equal node of a scope around is taken
    instead. Both are hash-consing along the chain of scopes. Only the sides of an `If` keep what
    is written in them.

    The arena may begin as a copy of another ``graph``'s, of which `compute` takes what is needed.
    Or it is that graph, and its nodes are ``floating``: they stand in no scope, and are computed
    wherever a statement needs them. So programs are written; `place` gives each node a scope.
    """

    def __init__(self, graph: Graph | None = None, floating: bool = False) -> None:
        graph = Graph() if graph is None else graph
        self.graph, self.floating = graph if floating else graph.copy(), floating
        self.at = self.main = Scope()
        self.home: dict[int, Scope] = {}
        """The scope of each node."""
        if not floating:
            self.graph.tracing = False
            self.main.index.update(zip(self.graph.nodes, range(len(self.graph)), strict=True))
            self.home.update(dict.fromkeys(range(len(self.graph)), self.main))
        self.columns: dict[int, tuple[int, int]] = {}
        """Words that are `offset`s: those of the first column, and the numbers of the columns."""
        self.computed: list[int] = []
        """The computed ones of the nodes that the arena began with: see `compute`."""

    @contextmanager
    def inside(self, scope: Scope) -> Generator[None]:
        """A context in which things go to this scope."""
        before, place, self.at = self.at, self.graph.place, scope
        yield
        self.at, self.graph.place = before, place

    def value(self, kind: str, name: str = "value") -> int:
        """A new value of this kind, known from the start of the scope or from a statement on.

        Of one that floats, ``name`` is told to the user.
        """
        if self.floating:
            return self.graph.input(name, kind)
        return self._made((VALUES[kind], len(self.graph)), self.at)

    def add(self, op: Op, *args: int) -> int:
        """The value ``op(*args)``, computed as far out as it can be."""
        if op.commutative and args[0] > args[1]:
            args = (args[1], args[0], *args[2:])
        if op in _NEUTRAL:
            folded = self._folded(op, args)
            if folded is not None:
                return folded
        return self.intern((op, *args), self._home(args) if self.at.depth else self.main)

    def compute(self, order: Iterable[int]) -> None:
        """Compute nodes that the arena began with, in the outermost scope; leaves are left out."""
        nodes = self.graph.nodes
        self.computed = [i for i in order if nodes[i][0].arity]
        self.main.items += self.computed

    def extend(
        self, graph: Graph, order: Iterable[int], known: dict[int, int], places: Sequence[int]
    ) -> None:
        """Add nodes of a graph to the outermost scope, and what they have become to ``known``.

        ``places`` are the numbers that the graph's lines have here.
        """
        assert self.at is self.main, "other scopes have scopes around them that may have the node"
        nodes, lines = self.graph.nodes, self.graph.places
        index, items = self.main.index, self.main.items
        first = len(nodes)
        for i in order:
            node = graph.nodes[i]
            op = node[0]
            if op.arity == 2:
                a, b = known[node[1]], known[node[2]]
                copy = (op, b, a) if a > b and op.commutative else (op, a, b)
            elif op.arity:
                copy = (op, *[known[a] for a in node[1:]])
            else:
                continue
            if op in _NEUTRAL:
                self.graph.place = places[graph.places[i]]
                known[i] = self.add(op, *copy[1:])
                continue
            number = index.get(copy)
            if number is None:
                number = index[copy] = len(nodes)
                nodes.append(copy)
                lines.append(places[graph.places[i]])
                items.append(number)
            known[i] = number
        self.home.update(dict.fromkeys(range(first, len(nodes)), self.main))

    def intern(self, node: Node, home: Scope) -> int:
        """The id of a node in ``home`` or a scope around it; it is made there unless it exists."""
        scope: Scope | None = home
        while scope is not None:
            if node in scope.index:
                return scope.index[node]
            scope = scope.parent
        i = self._made(node, home)
        home.index[node] = i
        if node[0].arity:
            home.items.append(i)
        return i

    def word(self, n: int) -> int:
        """A word that is known."""
        return self.intern((WORD, n), self.main)

    def constant(self, x: float) -> int:
        """A float that is known."""
        return self.intern((CONST, float_bits(float(x))), self.main)

    def truth(self, b: bool) -> int:
        """A truth that is known."""
        return self.intern((TRUTH, int(b)), self.main)

    def offset(self, i: int, scale: int, c: int) -> int:
        """The word ``i * scale + c``, which is no larger than words can be: column c of row i."""
        return self.shifted(self.add(ops.word_mul, i, self.word(scale)), c)

    def shifted(self, first: int, c: int) -> int:
        """The word ``first + c``, which is no larger than words can be: column c of a row."""
        if not c:
            return first
        column = self.add(ops.word_add, first, self.word(c))
        self.columns[column] = first, c
        return column

    def type(self, i: int) -> str:
        """The kind of a value: one of `KINDS`."""
        return self.graph.type(i)

    def _made(self, node: Node, home: Scope) -> int:
        i = len(self.graph.nodes)
        self.graph.nodes.append(node)
        self.graph.places.append(self.graph.place)
        self.home[i] = home
        return i

    def _home(self, args: Sequence[int]) -> Scope:
        """Where what is made of these is computed."""
        home, scope = self.home, self.at
        innermost = max([home[a].depth for a in args])
        while not scope.branch and scope.depth > innermost:
            assert scope.parent, "the outermost scope encloses all others"
            scope = scope.parent
        return scope

    def _folded(self, op: Op, args: Sequence[int]) -> int | None:
        """A sum, a difference or a product of words, folded with what is known of its arguments."""
        nodes, neutral = self.graph.nodes, _NEUTRAL[op]
        for a, b in (args, args[::-1]) if op.commutative else (args,):
            known, word, *_ = nodes[b]
            if known is not WORD:
                continue
            if nodes[a][0] is WORD:
                return self.word(int(op.reference(np.uint32(nodes[a][1]), np.uint32(word))))
            if word == neutral:
                return a
            if op is ops.word_mul and not word:
                return b
        return None


_NEUTRAL: Final = {ops.word_add: 0, ops.word_sub: 0, ops.word_mul: 1}
"""The word that changes nothing, as the second of two; as the first too, if they commute."""


widen: Final = Op(
    name="widen", signature="f->d", reference=np.float64, meaning="a float as a wide one"
)
narrow: Final = Op(
    name="narrow", signature="d->f", reference=np.positive, meaning="a wide float as a float"
)
wide_add: Final = Op(
    name="wide_add", signature="dd->d", reference=np.add, meaning="a + b of wide floats"
)


@dataclass(frozen=True)
class Target:
    """The traits that programs ask of the target that they are written for."""

    width: int
    """The invocations of a group."""
    whole: bool = False
    """Whether the host runs whole groups only: every invocation has a point of its own."""
    block: int = 16
    """How many rows an invocation adds up in floats before they go to a wide sum."""
    carried: int = 1024
    """The numbers that a loop carries as values, at most: more stand in an array."""
    together: int = 1
    """How many rows stand one behind the other in a turn of a loop over them."""
    wide: str = "ff"
    """The kinds of the parts of a wide sum: "d", or "ff" for a pair of floats."""
    grid: bool = False
    """Whether groups stand in several rows, as many of them as the host likes."""
    bindings: int | None = None
    """How many of the host's arrays a kernel takes, at most; None for any number."""
    itemsize: int = 4
    """The bytes of a float, as far as they matter: registers hold fewer wide ones."""
    in_step: ClassVar[bool]
    """Whether a group's invocations see at once what one of them stores."""

    @property
    def threads(self) -> int:
        """The invocations that share a problem, where there is much to do for each: 1 is alone."""
        return 1

    @property
    def by_columns(self) -> bool:
        """Whether the host's arrays are transposed: a number of all points is contiguous."""
        return False

    def of_width(self, width: int) -> Target:
        """This target with groups of so many invocations; itself where a vector is a group."""
        return self

    def working_alone(self) -> Target:
        """This target with invocations that each work for themselves."""
        return self

    def in_grid(self, groups: int) -> Target:
        """This target for so many groups: in several rows if they are too many for one."""
        return self

    def point(self, k: KernelIR) -> int:
        """The number of the invocation's point, or past the end that of the last."""
        if self.whole:
            return k.cell
        last = k.add(ops.word_sub, k.count, k.word(1))
        point = k.add(ops.word_min, k.cell, last)
        k.names[point] = "point"
        return point

    def grouped(self, totals: Sequence[int]) -> list[tuple[int, ...]]:
        """The parts of wide sums in a row, those of each sum together."""
        return list(zip(*[iter(totals)] * len(self.wide), strict=True))

    def wide_zero(self, k: KernelIR) -> tuple[int, ...]:
        """A wide sum of nothing."""
        zero = k.constant(0.0)
        return (zero, zero) if self.wide == "ff" else (k.add(widen, zero),)

    def wide_add(self, k: KernelIR, total: tuple[int, ...], x: int) -> tuple[int, ...]:
        """A wide sum and a float."""
        if self.wide == "ff":
            return pair_add(k, total, x)
        return (k.add(wide_add, total[0], k.add(widen, x)),)

    def narrow(self, k: KernelIR, total: tuple[int, ...]) -> int:
        """A wide sum as a float; what an infinite one has lost is no number."""
        raise NotImplementedError

    def sum_group(self, k: KernelIR, values: Sequence[int]) -> list[int]:
        """The sums of values over the group, known to all of its invocations."""
        raise NotImplementedError


def pair_add(k: KernelIR, total: tuple[int, ...], x: int) -> tuple[int, ...]:
    """Knuth's TwoSum: the sum of a pair's first float and another, with its rounding error.

    Rounded numbers are opaque, so that no compiler simplifies their differences.
    """
    high, low = total
    after = k.add(ops.opaque, k.add(ops.add, high, x))
    part = k.add(ops.opaque, k.add(ops.sub, after, high))
    before = k.add(ops.opaque, k.add(ops.sub, after, part))
    error = k.add(ops.add, k.add(ops.sub, high, before), k.add(ops.sub, x, part))
    return after, k.add(ops.add, low, error)


class KernelIR(Arena):
    """A kernel, and what builds it. Statements stay in the order in which they are written.

    Invariants:
      1. A value is used where it stands or within, and behind what makes it.
      2. No node is made where an equal one stands in a scope around; it may be made there later.
      3. ``graph.places`` names the user's line of each node, where there is one.
    """

    def __init__(
        self,
        target: Target,
        name: str = "kernel",
        graph: Graph | None = None,
        floating: bool = False,
    ) -> None:
        super().__init__(graph, floating)
        self.target, self.name = target, name
        self.names: dict[int, str] = {}
        """The user's names of some of the nodes."""
        self.buffers: list[Buffer] = []
        names = "cell", "count", "local", "group", "groups"
        mine = [self.value("u", name) for name in names]
        self.cell, self.count = mine[:2]
        """The invocation's number, and how many there are to do."""
        self.local, self.group, self.groups = mine[2:]
        """Its number in its group; the group's number, and how many of them there are."""
        self.lengths: dict[Buffer, int] = {}
        """How long some of the host's buffers are."""
        self.given: dict[int, str] = dict(zip(mine, names, strict=True))
        """Names of the values that an invocation has before anything is computed."""
        self.arguments: dict[int, str] = {}
        """The words among them that are the caller's, by `argument`, in order."""

    def __repr__(self) -> str:
        return f"<KernelIR {self.name}: {len(self.graph)} nodes, {len(self.buffers)} buffers>"

    def argument(self, name: str) -> int:
        """A new word that whoever runs the kernel gives: the same for all invocations."""
        word = self._made((VALUES["u"], len(self.graph)), self.main)
        self.given[word] = self.arguments[word] = self.names[word] = name
        return word

    def leaf_name(self, i: int) -> str:
        """The name of a leaf, in a kernel that floats."""
        return self.graph.names[self.graph.nodes[i][1]]

    # buffers -------------------------------------------------------------------------------------

    def buffer(
        self,
        name: str,
        space: Space,
        kind: str = "f",
        size: int = 0,
        *,
        vector: int = 1,
        atomic: bool = False,
        padded: bool = False,
        open_ended: bool = False,
        data: tuple[float, ...] | None = None,
        row: int = 0,
        floats: str = "",
    ) -> Buffer:
        """A new buffer; no two of a kernel have one name.

        One array of the invocations' own may be ``open_ended``: the host says how long it is.
        """
        assert all(b.name != name for b in self.buffers), f"there are two buffers named {name}"
        assert size or space in BOUND or open_ended, f"{name} is the kernel's own, of unknown size"
        one_by_one = kind == "f" and vector == 1 and data is None and not row
        assert not floats or (space == "read" and one_by_one), f"{name} has the kernel's floats"
        buffer = Buffer(name, space, kind, size, vector, atomic, padded, data, row, floats)
        self.buffers.append(buffer)
        return buffer

    def length(self, buffer: Buffer) -> int:
        """How many numbers of a buffer the host has bound: a value that is known from the start."""
        if buffer not in self.lengths:
            with self.inside(self.main):
                self.lengths[buffer] = self.value("u")
        return self.lengths[buffer]

    def load(self, buffer: Buffer, index: int, at_use: bool = False) -> int:
        """The number at an index of a buffer.

        A buffer that is only read is loaded as far out as possible, or ``at_use``, each time anew.
        """
        if buffer.space == "read" and not at_use:
            return self.add(buffer.read, index)
        result = self.value(buffer.kind)
        self.at.items.append(Load(result, buffer, index))
        return result

    def agreed(self, buffer: Buffer, index: int) -> int:
        """The number at an index of a group's buffer that is the same for all: see `Load`."""
        result = self.value(buffer.kind)
        self.at.items.append(Load(result, buffer, index, agreed=True))
        return result

    def store(self, buffer: Buffer, index: int, value: int, add: bool = False) -> None:
        """Write a number to an index of a buffer, or ``add`` it to what is there."""
        self.at.items.append(Store(buffer, index, value, add))

    def read_row(
        self, buffer: Buffer, row: int, width: int, columns: Mapping[int, int] | Iterable[int]
    ) -> dict[int, int]:
        """Numbers of the invocation's row, by columns; a mapping says which leaves they are."""
        if not isinstance(columns, Mapping):
            columns = {c: self.value(buffer.kind) for c in columns}
        self.at.items.append(ReadRow(buffer, row, width, dict(columns)))
        return dict(columns)

    def store_row(self, buffer: Buffer, values: Sequence[int]) -> None:
        """Write all numbers of the invocation's row, if it has one."""
        self.at.items.append(StoreRow(buffer, list(values)))

    def fill(self, buffer: Buffer) -> None:
        """Write zeros to all of a buffer."""
        self.at.items.append(Fill(buffer))

    def barrier(self, results: bool = True) -> None:
        """Wait for the group, and for what it has stored in ``results``: see `Barrier`."""
        self.at.items.append(Barrier(results))

    # statements with scopes ----------------------------------------------------------------------

    def loop(
        self,
        lo: int,
        hi: int,
        inits: Sequence[int],
        body: Callable[[int, list[int]], Sequence[int]],
        *,
        down: bool = False,
        test: Callable[[int, list[int]], int] | None = None,
        most: int | None = None,
        some: bool = False,
    ) -> tuple[list[int], int]:
        """A `For`, of which ``body(k, carries)`` gives the next carries; its results and its count.

        ``test(k, carries)`` says whether to go on; ``most`` how many iterations there are at most,
        and ``some`` that there is one.
        """
        assert not (down and test), "a loop with a test goes up"
        scope = Scope(self.at)
        kinds = [self.type(i) for i in inits]
        with self.inside(scope):
            k, params = self.value("u"), [self.value(kind) for kind in kinds]
            going = None if test is None else test(k, params)
            test_at = len(scope.items)
            yields = list(body(k, params))
        assert kinds == [self.type(y) for y in yields], "a loop yields what it carries"
        results, count = [self.value(kind) for kind in kinds], self.value("u")
        iterations = scope, k, lo, hi, down
        carries = params, list(inits), yields, results
        self.at.items.append(For(*iterations, *carries, count, going, test_at, most, some))
        return results, count

    def choose(
        self,
        condition: int,
        then: Callable[[], Sequence[int]],
        otherwise: Callable[[], Sequence[int]],
    ) -> list[int]:
        """An `If`, of two functions that write a side each and give what it yields; the results."""
        sides = Scope(self.at, branch=True), Scope(self.at, branch=True)
        yields: list[list[int]] = []
        for scope, side in zip(sides, (then, otherwise), strict=True):
            with self.inside(scope):
                yields.append(list(side()))
        kinds = [[self.type(y) for y in ys] for ys in yields]
        assert kinds[0] == kinds[1], "both sides yield the same kinds"
        results = [self.value(kind) for kind in kinds[0]]
        self.at.items.append(If(condition, sides, (yields[0], yields[1]), results))
        return results

    def when(self, condition: int, body: Callable[[], None]) -> None:
        """An `If` with one side."""

        def then() -> Sequence[int]:
            body()
            return ()

        self.choose(condition, then, tuple)

    def routine(
        self, name: str, kinds: Sequence[str], body: Callable[..., None]
    ) -> Callable[..., None]:
        """A function that does ``body`` with values of these kinds, as calls of a `Routine`.

        In groups in step, what is to be done is written where it is called.
        """
        if self.target.in_step:
            return body
        assert self.at is self.main, "a routine stands in the outermost scope"
        scope = Scope(self.main)
        with self.inside(scope):
            params = [self.value(kind) for kind in kinds]
            body(*params)
        routine = Routine(name, scope, params)
        self.main.items.append(routine)
        return lambda *args: self.at.items.append(Call(routine, list(args)))

    def items(self, scope: Scope | None = None) -> Iterator[tuple[Scope, int | Statement]]:
        """All items of a scope, or of the whole kernel, and their scopes, as they are written."""
        scope = scope or self.main
        for item in scope.items:
            yield scope, item
            if not isinstance(item, int):
                for inner in scopes_of(item):
                    yield from self.items(inner)


# --- reads and writes of the items of a scope -----------------------------------------------------


def operands(kernel: KernelIR, item: int | Statement) -> Sequence[int]:
    """The values that an item needs where it stands: not those that its scopes need.

    Of an index they are what it is made of, where the item knows that.
    """
    match item:
        case int():
            return kernel.graph.args(item)
        case For(lo=lo, hi=hi, inits=inits):
            return lo, hi, *inits
        case If(condition=condition):
            return (condition,)
        case Load(index=index, axes=axes):
            return axes or (index,)
        case Store(index=index, axes=axes, value=value):
            return (*axes, value) if axes else (index, value)
        case Let(value=value) | GroupReduce(value=value):
            return (value,)
        case ReadRow(row=row):
            return (row,)
        case StoreRow(values=values):
            return values
        case Call(args=args):
            return args
        case _:
            return ()


def accesses(kernel: KernelIR, item: int | Statement) -> Iterator[tuple[Buffer, int | None]]:
    """The buffer that an item reads or writes, and the index; None for many."""
    if isinstance(item, int):
        op, *args = kernel.graph.nodes[item]
        if isinstance(op, Read):
            yield op.buffer, args[0]
    elif isinstance(item, (Load, Store)):  # a union would be made anew at every call
        yield item.buffer, item.index
    elif isinstance(item, (Fill, ReadRow, StoreRow)):
        yield item.buffer, None
