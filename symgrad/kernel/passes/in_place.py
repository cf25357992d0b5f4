"""In which order versions of arrays are read and overwritten, so that they need few copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from symgrad.expr.graph.arrays import FRESH, WRITES, ArrayOp
from symgrad.expr.graph.node import ARRAYS, STRUCTURED, Graph
from symgrad.expr.graph.region import Choice, Loop, Pick


@dataclass(frozen=True)
class Order:
    """The nodes in an order, and which of them write to a copy: pairs (node, version)."""

    nodes: list[int]
    copied: frozenset[tuple[int, int]]
    is_straight: bool = False
    """Whether there are neither arrays nor loops nor choices among them."""


class Writers:
    """Which versions of arrays a node overwrites, if it may do so in place."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[int, int]] = {}
        self._alive: list[Choice] = []

    def overwritten(self, graph: Graph, i: int) -> Sequence[int]:
        """The arguments of node i that it overwrites, except those made for it alone."""
        op, args = graph.nodes[i][0], graph.args(i)
        if op in WRITES:
            arrays: Iterable[int] = args[:1]
        elif isinstance(op, Loop):
            arrays = (a for a in args[2 : 2 + op.carries] if graph.type(a) in ARRAYS)
        elif isinstance(op, Choice):
            arrays = (args[1 + p] for p in self.chosen(op).values())
        else:
            return ()
        return [a for a in arrays if graph.nodes[a][0] not in FRESH]

    def chosen(self, op: Choice) -> dict[int, int]:
        """The results of a choice that both sides make of one parameter, and its number."""
        choices = self._kept.get(id(op))
        if choices is None:
            self._alive.append(op)  # so that no other has its id
            choices = self._kept[id(op)] = dict(self._alike(op))
        return choices

    def _alike(self, op: Choice) -> Iterator[tuple[int, int]]:
        graph, yields = op.body.graph, op.body.yields
        numbers = {p: n for n, p in enumerate(op.body.params)}
        pairs = zip(yields[: op.results], yields[op.results :], strict=True)
        used: set[int] = set()
        for result, sides in enumerate(pairs):
            if graph.type(sides[0]) in ARRAYS:
                a, b = (self.origin(graph, side) for side in sides)
                if a == b and a is not None and a not in used:
                    used.add(a)
                    yield result, numbers[a]

    def origin(self, graph: Graph, i: int) -> int | None:
        """The leaf that an array is a version of; None if it is made anew."""
        while graph.nodes[i][0].arity:
            op, args = graph.nodes[i][0], graph.args(i)
            if not isinstance(op, Pick):
                i = args[0]
                continue
            owner, inner = graph.nodes[args[0]][0], graph.args(args[0])
            if isinstance(owner, Loop):
                i = inner[2 + op.index]
                continue
            number = self.chosen(owner).get(op.index)
            if number is None:
                return None
            i = inner[1 + number]
        return None if graph.nodes[i][0] in FRESH else i


def in_place(
    graph: Graph,
    roots: Sequence[int],
    known: Container[int],
    writers: Writers,
    frozen: Callable[[int], bool],
) -> Order:
    """The nodes that the roots need, except those that are ``known``, in order.

    All that reads a version of an array comes before what overwrites it. Where that cannot be, as
    with two writers, or a reader that needs what the writer gives, the writer gets a copy; and
    always where the version is ``frozen``. Else the nodes keep the order of the arena.
    """
    array_roots = {r for r in roots if graph.type(r) in ARRAYS}
    needed = _needed(graph, roots, known)
    nodes = graph.nodes
    operations = {nodes[i][0] for i in needed}
    if not any(op.result in STRUCTURED or isinstance(op, ArrayOp) for op in operations):
        return Order(needed, frozenset(), is_straight=True)
    return _Ordering(graph, needed, writers, lambda a: a in array_roots or frozen(a)).run()


def _needed(graph: Graph, roots: Sequence[int], known: Container[int]) -> list[int]:
    nodes = graph.nodes
    needed = {r for r in roots if r not in known}
    stack = list(needed)
    while stack:
        node = nodes[stack.pop()]
        if node[0].arity:
            for a in node[1:]:
                if a not in needed and a not in known:
                    needed.add(a)
                    stack.append(a)
    return sorted(needed)


class _Ordering:
    """Nodes are taken as they become ready, a writer when all others have read what it overwrites.

    If nothing else is ready, the first writer that waits gets copies, and does not wait any more.
    """

    def __init__(
        self, graph: Graph, needed: list[int], writers: Writers, frozen: Callable[[int], bool]
    ) -> None:
        self.graph, self.nodes = graph, set(needed)
        self.users: defaultdict[int, list[int]] = defaultdict(list)
        """Who needs a node that is not yet there."""
        self.missing: dict[int, int] = {}
        """How many of a node's arguments are not yet there."""
        self.readers: defaultdict[int, int] = defaultdict(int)
        """How many users of an array have not yet been taken."""
        self.writes: dict[int, list[int]] = {}
        """The versions that a node overwrites in place, if it does."""
        self.waiting: defaultdict[int, list[int]] = defaultdict(list)
        """The writers that wait for the readers of a version."""
        self.copied: set[tuple[int, int]] = set()
        self.ready: list[int] = []
        self.patient: list[int] = []
        """Writers whose arguments are there, as a heap; some have been taken since."""
        for i in needed:
            self._enter(i, writers, frozen)

    def _enter(self, i: int, writers: Writers, frozen: Callable[[int], bool]) -> None:
        nodes, args, missing = self.graph.nodes, self.graph.args(i), 0
        for a in dict.fromkeys(args):
            if a in self.nodes:
                missing += 1
                self.users[a].append(i)
            if nodes[a][0].result in ARRAYS:
                self.readers[a] += 1
        self.missing[i] = missing
        if writes := writers.overwritten(self.graph, i):
            fixed = {a for a in writes if args.count(a) > 1 or frozen(a)}
            self.copied.update((i, a) for a in fixed)
            self.writes[i] = [a for a in writes if a not in fixed]
        if not missing:
            self._offer(i)

    def _offer(self, i: int) -> None:
        """A node whose arguments are there is ready, unless it would overwrite too early."""
        writes = self.writes.get(i, ())
        if any(self.readers[a] > 1 for a in writes):
            heappush(self.patient, i)
            for a in writes:
                self.waiting[a].append(i)
        else:
            heappush(self.ready, i)

    def run(self) -> Order:
        order: list[int] = []
        taken: set[int] = set()
        while self.ready or self.patient:
            i = heappop(self.ready) if self.ready else self._impatient(taken)
            if i not in taken:
                taken.add(i)
                order.append(i)
                self._leave(i, taken)
        assert len(order) == len(self.nodes), "a node depends on itself"
        return Order(order, frozenset(self.copied))

    def _impatient(self, taken: set[int]) -> int:
        """The first writer that waits, with copies of what others still have to read."""
        i = heappop(self.patient)
        if i not in taken:
            self.copied.update((i, a) for a in self.writes[i] if self.readers[a] > 1)
        return i

    def _leave(self, i: int, taken: set[int]) -> None:
        for user in self.users.pop(i, ()):
            self.missing[user] -= 1
            if not self.missing[user]:
                self._offer(user)
        for a in set(self.graph.args(i)) if self.readers else ():
            if a in self.readers:
                self.readers[a] -= 1
                if self.readers[a] == 1:
                    self._wake(a, taken)

    def _wake(self, a: int, taken: set[int]) -> None:
        """The last user of a version may overwrite it, if it is a writer that waits for that."""
        for i in self.waiting.pop(a, ()):
            if i not in taken and all(self.readers[b] <= 1 for b in self.writes[i]):
                heappush(self.ready, i)
