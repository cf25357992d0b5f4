"""The kernel language: one arena of values in nested scopes, and statements where order matters."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import numpy as np

from symgrad.expr import ops
from symgrad.expr.node import CONST, TRUTH, WORD, Graph, Node, Op, float_bits

Space = Literal["read", "write", "own", "group"]
"""Whose memory a buffer is: the host's, only read or also written; an invocation's; a group's."""

BOUND: Final = ("read", "write")
"""The spaces of the host's buffers, which are arguments of a kernel."""

KINDS: Final = "fdbiu"
"""The types of values: the kernel's floats, wide floats for sums, truths, integers and words."""


def _given(*_: Any) -> Any:
    raise AssertionError("a value of the kernel language is given by its statement")


VALUES: Final = {
    kind: Op(name=f"value_{kind}", signature=f"->{kind}", reference=_given) for kind in KINDS
}
"""Leaves ``(op, number)``: parameters of scopes, results of statements, what an invocation is."""

lane_sum: Final = Op(
    name="lane_sum", signature="f->f", reference=_given, meaning="the sum over a group in step"
)
wide_lane_sum: Final = Op(
    name="wide_lane_sum", signature="d->d", reference=_given, meaning="the same of wide floats"
)
wide_mul: Final = Op(
    name="wide_mul", signature="dd->d", reference=np.multiply, meaning="a * b of wide floats"
)
widen: Final = Op(
    name="widen", signature="f->d", reference=np.float64, meaning="a float as a wide one"
)
narrow: Final = Op(
    name="narrow", signature="d->f", reference=np.positive, meaning="a wide float as a float"
)
wide_add: Final = Op(
    name="wide_add", signature="dd->d", reference=np.add, meaning="a + b of wide floats"
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Read(Op):
    """The number at an index of a buffer that nobody writes to: a node like any other.

    It may be computed earlier than it is needed, so the index is in bounds wherever it is known.
    """

    buffer: Buffer


@dataclass(eq=False)
class Buffer:
    """An array of numbers of one kind; ``size`` is how many, or 0 where only the host knows it.

    Of ``quads`` every index is 4 q + c, with c a known number below 4: targets may read or write
    numbers of one q together. Of one that is ``atomic``, several invocations add to the same
    numbers at the same time. Behind one that is ``padded`` is room for a vector, which may be read,
    and have zeros added to it. ``data`` are the numbers of one that is read, if the kernel knows
    them, and not the host.
    """

    name: str
    space: Space
    kind: str = "f"
    size: int = 0
    quads: bool = False
    atomic: bool = False
    padded: bool = False
    data: tuple[float, ...] | None = field(default=None, repr=False)
    read: Read = field(init=False, repr=False)

    def __post_init__(self) -> None:
        name, signature = f"read_{self.name}", f"u->{self.kind}"
        self.read = Read(name=name, signature=signature, reference=_given, buffer=self)


@dataclass(eq=False)
class Scope:
    """What is done one after the other: ids of nodes to compute, and statements.

    A ``branch`` is a side of an `If`, which no value leaves: it may not be computed elsewhere.
    """

    parent: Scope | None = None
    branch: bool = False
    items: list[int | Statement] = field(default_factory=list)
    index: dict[Node, int] = field(default_factory=dict)
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        self.depth = self.parent.depth + 1 if self.parent else 0

    def enclosing(self) -> Iterator[Scope]:
        """The scope itself, and those around it, from within."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


@dataclass(eq=False)
class For:
    """``scope`` for k = lo, lo + 1, .., hi - 1, or ``down`` from hi - 1; no turn where hi <= lo.

    ``params`` are the carries at the start of a turn, first ``inits`` and then what the turn before
    ``yields``; ``results`` are what the last one yields. A loop that goes up may have a ``test``,
    known before the item number ``test_at`` of the scope: it ends where that does not hold.
    ``count`` is the k at which the loop ended: lo and the turns taken, ``most`` at most; ``some``
    says that lo < hi.
    """

    scope: Scope
    k: int
    lo: int
    hi: int
    down: bool
    params: list[int]
    inits: list[int]
    yields: list[int]
    results: list[int]
    count: int
    test: int | None = None
    test_at: int = 0
    most: int | None = None
    some: bool = False


@dataclass(eq=False)
class If:
    """One of two sides; ``results`` are what the side that is taken yields."""

    condition: int
    sides: tuple[Scope, Scope]
    yields: tuple[list[int], list[int]]
    results: list[int]


@dataclass(eq=False)
class Load:
    """``result = buffer[index]`` of a buffer that somebody writes to.

    Where it is ``agreed``, all invocations of a group read the same number, and wait for each other
    before that and behind it.
    """

    result: int
    buffer: Buffer
    index: int
    agreed: bool = False


@dataclass(eq=False)
class Store:
    """``buffer[index] = value``, or with ``add``, ``+=``."""

    buffer: Buffer
    index: int
    value: int
    add: bool = False


@dataclass(eq=False)
class Fill:
    """Zeros in all of a buffer of an invocation's own."""

    buffer: Buffer


@dataclass(eq=False)
class Barrier:
    """All invocations of a group wait here for each other, and see what each has stored."""


Statement = For | If | Load | Store | Fill | Barrier


class Target(Protocol):
    """What programs ask of the target that they are written for: its traits."""

    @property
    def width(self) -> int:
        """The invocations of a group."""
        ...

    @property
    def team(self) -> int:
        """The invocations that share a problem, where there is much to do for each: 1 is alone."""
        ...

    @property
    def grid(self) -> bool:
        """Whether groups stand in several rows, as many of them as the host likes."""
        ...

    @property
    def whole(self) -> bool:
        """Whether the host runs whole groups only: every invocation has a point of its own."""
        ...

    @property
    def block(self) -> int:
        """How many rows an invocation adds up in floats before they go to a wide sum."""
        ...

    @property
    def together(self) -> int:
        """How many rows stand one behind the other in a turn of a loop over them."""
        ...

    @property
    def by_columns(self) -> bool:
        """Whether the host has turned arrays: the numbers of neighbouring points are neighbours."""
        ...

    @property
    def carried(self) -> int:
        """The numbers that a loop carries as values, at most: more stand in an array."""
        ...

    @property
    def wide(self) -> str:
        """The kinds of the parts of a wide sum: "d", or "ff" for a pair of floats."""
        ...

    @property
    def in_step(self) -> bool:
        """Whether a group's invocations see at once what one of them stores."""
        ...

    def point(self, k: Kernel) -> int:
        """The number of the invocation's point, which exists also where ``k.cell`` does not."""
        ...

    def grouped(self, totals: Sequence[int]) -> list[tuple[int, ...]]:
        """The parts of wide sums in a row, those of each sum together."""
        ...

    def wide_zero(self, k: Kernel) -> tuple[int, ...]:
        """A wide sum of nothing."""
        ...

    def wide_add(self, k: Kernel, total: tuple[int, ...], x: int) -> tuple[int, ...]:
        """A wide sum and a float."""
        ...

    def narrow(self, k: Kernel, total: tuple[int, ...]) -> int:
        """A wide sum as a float."""
        ...

    def sum_group(self, k: Kernel, values: Sequence[int]) -> list[int]:
        """The sums of values over the group, known to all of its invocations."""
        ...


class Kernel:
    """A kernel, and what builds it: ``at`` is the scope where things go now.

    Every node is computed in the innermost scope that one of its arguments stands in, so what a
    loop does not change is computed before it; and an equal node of a scope around is taken
    instead. Both are hash-consing along the chain of scopes. Only the sides of an `If` keep what
    is written in them. Statements stay in the order in which they are written.

    Invariants:
      1. A value is used where it stands or within, and behind what makes it.
      2. In no scope is there a node that is also in one around it.
      3. ``graph.places`` names the user's line of each node, where there is one.
    """

    def __init__(self, target: Target, name: str = "kernel") -> None:
        self.target, self.name = target, name
        self.graph = Graph()
        self.graph.tracing = False
        self.home: dict[int, Scope] = {}
        """The scope of each node."""
        self.names: dict[int, str] = {}
        """What the user calls some of the nodes."""
        self.columns: dict[int, tuple[int, int]] = {}
        """Words that are `offset`s: those of the first column, and the numbers of the columns."""
        self.buffers: list[Buffer] = []
        self.at = self.main = Scope()
        self.cell, self.count = self.value("u"), self.value("u")
        """The invocation's number, and how many there are to do."""
        self.local, self.group, self.groups = self.value("u"), self.value("u"), self.value("u")
        """Its number in its group; the group's number, and how many of them there are."""
        self.lengths: dict[Buffer, int] = {}
        """How long some of the host's buffers are."""
        mine = self.cell, self.count, self.local, self.group, self.groups
        names = "cell", "count", "local", "group", "groups"
        self.given: dict[int, str] = dict(zip(mine, names, strict=True))
        """What an invocation is told before anything is computed: names, by values."""
        self.arguments: dict[int, str] = {}
        """The words among them that are the caller's, by `argument`, in order."""

    def __repr__(self) -> str:
        return f"<Kernel {self.name}: {len(self.graph)} nodes, {len(self.buffers)} buffers>"

    # nodes ---------------------------------------------------------------------------------------

    def value(self, kind: str) -> int:
        """A new value of this kind, known from the start of the scope or from a statement on."""
        return self._made((VALUES[kind], len(self.graph)), self.at)

    def argument(self, name: str) -> int:
        """A new word that whoever runs the kernel gives: the same for all invocations."""
        made = self._made((VALUES["u"], len(self.graph)), self.main)
        self.given[made] = self.arguments[made] = self.names[made] = name
        return made

    def add(self, op: Op, *args: int) -> int:
        """The value ``op(*args)``, computed as far out as it can be."""
        if op.commutative and args[0] > args[1]:
            args = (args[1], args[0], *args[2:])
        if op in _NEUTRAL:
            known = self._folded(op, args)
            if known is not None:
                return known
        return self.intern((op, *args), self._home(args) if self.at.depth else self.main)

    def extend(
        self, graph: Graph, order: Iterable[int], known: dict[int, int], places: Sequence[int]
    ) -> None:
        """Add nodes of a graph to the outermost scope, and what they have become to ``known``.

        ``places`` are the numbers that the graph's lines have here.
        """
        assert self.at is self.main, "other scopes have scopes around them that may have the node"
        nodes, lines, index, items = (
            self.graph.nodes, self.graph.places, self.main.index, self.main.items,
        )  # fmt: skip
        first = len(nodes)
        for i in order:
            node = graph.nodes[i]
            op = node[0]
            if op.arity == 2:
                a, b = known[node[1]], known[node[2]]
                made = (op, b, a) if a > b and op.commutative else (op, a, b)
            elif op.arity:
                made = (op, *[known[a] for a in node[1:]])
            else:
                continue
            if op in _NEUTRAL:
                self.graph.place = places[graph.places[i]]
                known[i] = self.add(op, *made[1:])
                continue
            found = index.get(made)
            if found is None:
                found = index[made] = len(nodes)
                nodes.append(made)
                lines.append(places[graph.places[i]])
                items.append(found)
            known[i] = found
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
        found = self.add(ops.word_add, first, self.word(c))
        self.columns[found] = first, c
        return found

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
        innermost = max(self.home[a].depth for a in args)
        for scope in self.at.enclosing():
            if scope.branch or scope.depth <= innermost:
                return scope
        raise AssertionError("the outermost scope encloses all others")

    def _folded(self, op: Op, args: Sequence[int]) -> int | None:
        """What is known of a sum, a difference or a product of words."""
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

    # buffers -------------------------------------------------------------------------------------

    def buffer(
        self, name: str, space: Space, kind: str = "f", size: int = 0, *,
        quads: bool = False, atomic: bool = False, padded: bool = False, open_ended: bool = False,
        data: tuple[float, ...] | None = None,
    ) -> Buffer:  # fmt: skip
        """A new buffer; no two of a kernel have one name.

        One array of the invocations' own may be ``open_ended``: the host says how long it is.
        """
        assert all(b.name != name for b in self.buffers), f"there are two buffers named {name}"
        assert size or space in BOUND or open_ended, f"{name} is the kernel's own, of unknown size"
        self.buffers.append(Buffer(name, space, kind, size, quads, atomic, padded, data))
        return self.buffers[-1]

    def length(self, buffer: Buffer) -> int:
        """How many numbers of a buffer the host has bound: a value that is known from the start."""
        if buffer not in self.lengths:
            with self.inside(self.main):
                self.lengths[buffer] = self.value("u")
        return self.lengths[buffer]

    def load(self, buffer: Buffer, index: int) -> int:
        """The number at an index of a buffer."""
        if buffer.space == "read":
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

    def fill(self, buffer: Buffer) -> None:
        """Write zeros to all of a buffer."""
        self.at.items.append(Fill(buffer))

    def barrier(self) -> None:
        """Wait for the group."""
        self.at.items.append(Barrier())

    # statements with scopes ----------------------------------------------------------------------

    @contextmanager
    def inside(self, scope: Scope) -> Generator[None]:
        """A context in which things go to this scope."""
        before, place, self.at = self.at, self.graph.place, scope
        yield
        self.at, self.graph.place = before, place

    def loop(
        self, lo: int, hi: int, inits: Sequence[int],
        body: Callable[[int, list[int]], Sequence[int]], *, down: bool = False,
        test: Callable[[int, list[int]], int] | None = None, most: int | None = None,
        some: bool = False,
    ) -> tuple[list[int], int]:  # fmt: skip
        """A `For`, of which ``body(k, carries)`` gives the next carries; its results and its count.

        ``test(k, carries)`` says whether to go on; ``most`` how many turns there are at most, and
        ``some`` that there is one.
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
        turns = scope, k, lo, hi, down
        carries = params, list(inits), yields, results
        self.at.items.append(For(*turns, *carries, count, going, test_at, most, some))
        return results, count

    def choose(
        self, condition: int, then: Callable[[], Sequence[int]],
        otherwise: Callable[[], Sequence[int]],
    ) -> list[int]:  # fmt: skip
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

    def items(self, scope: Scope | None = None) -> Iterator[tuple[Scope, int | Statement]]:
        """All items of a scope, or of the whole kernel, and their scopes, as they are written."""
        scope = scope or self.main
        for item in scope.items:
            yield scope, item
            if not isinstance(item, int):
                for inner in scopes_of(item):
                    yield from self.items(inner)


def scopes_of(item: int | Statement) -> Sequence[Scope]:
    """The scopes of a statement."""
    if isinstance(item, For):
        return (item.scope,)
    return item.sides if isinstance(item, If) else ()


def everything(items: Iterable[int | Statement]) -> list[int | Statement]:
    """Items and all that is within them, as they are written."""
    found: list[int | Statement] = []
    for item in items:
        found.append(item)
        if not isinstance(item, int):
            for scope in scopes_of(item):
                found += everything(scope.items)
    return found


def operands(kernel: Kernel, item: int | Statement) -> Sequence[int]:
    """The values that an item needs where it stands: not those that its scopes need."""
    match item:
        case int():
            return kernel.graph.args(item)
        case For(lo=lo, hi=hi, inits=inits):
            return lo, hi, *inits
        case If(condition=condition):
            return (condition,)
        case Load(index=index):
            return (index,)
        case Store(index=index, value=value):
            return index, value
        case _:
            return ()


def results_of(item: int | Statement) -> Sequence[int]:
    """The values that are known behind an item."""
    match item:
        case int():
            return (item,)
        case For(results=results, count=count):
            return *results, count
        case If(results=results):
            return results
        case Load(result=result):
            return (result,)
        case _:
            return ()


def accesses(kernel: Kernel, item: int | Statement) -> Iterator[tuple[Buffer, int | None]]:
    """The buffer that an item reads or writes, and the index; None for all of it."""
    if isinstance(item, int):
        op, *args = kernel.graph.nodes[item]
        if isinstance(op, Read):
            yield op.buffer, args[0]
    elif isinstance(item, Load | Store):
        yield item.buffer, item.index
    elif isinstance(item, Fill):
        yield item.buffer, None


_NEUTRAL: Final = {ops.word_add: 0, ops.word_sub: 0, ops.word_mul: 1}
"""The word that changes nothing, as the second of two; as the first too, if they commute."""
