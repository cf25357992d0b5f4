"""Regions, graphs that stand on their own, and the operations made of them: loops and choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from symgrad.errors import UnsupportedError
from symgrad.expr.graph.arrays import size_of
from symgrad.expr.graph.node import (
    ANY_HOLE,
    HOLES,
    INPUTS,
    STRUCTURED,
    Graph,
    Node,
    Op,
    flags,
    inputs_of,
    reachable,
)
from symgrad.expr.graph.place import Place, resolve_places
from symgrad.expr.graph.rebuild import continued, rebuild


@dataclass(frozen=True, eq=False)
class Region:
    """A function of values as a graph of its own: the body of a loop, or the sides of a choice.

    Invariants:
      1. ``params[k]`` is input number k of the graph, of any type, and there are no other inputs.
      2. What the yields need are these inputs, constants, and operations on them.
      3. Nothing is added to the graph. Who builds on it takes a `copy`.
    """

    graph: Graph
    params: tuple[int, ...]
    yields: tuple[int, ...]

    @cached_property
    def cost(self) -> int:
        """The cost of its operations, in additions."""
        nodes = self.graph.nodes
        return sum(
            nodes[i][0].cost for i in reachable(self.graph, self.yields) if nodes[i][0].arity
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """A key of its content and of the source lines that its places are of."""
        return tuple(self.graph.nodes), self.params, self.yields, id(self.graph.sources)

    def types(self, ids: Sequence[int]) -> str:
        """The types of some of its nodes."""
        return "".join(self.graph.type(i) for i in ids)

    def copy(self) -> Graph:
        """Its nodes in an arena to build on."""
        copy = self.graph.copy()
        copy.sources = self.graph.sources
        return copy

    def __reduce__(self) -> Any:
        return Region, (self.graph, self.params, self.yields)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, weakref_slot=True, repr=False)
class Loop(Op):
    """``loop(lo, hi, *inits, *captures)``: a region applied to the inits, iteration by iteration.

    The region's parameters are the counter, the carries and the captures; it yields the next
    carries and, with ``test``, whether the iteration is done at all: the loop ends where it is not.
    The counter k is lo, lo + 1, .., hi - 1, or ``down`` from hi - 1 to lo. No loop takes more than
    ``most`` iterations; None: there is no known limit.
    """

    body: Region
    carries: int
    test: bool
    down: bool
    most: int | None

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The values of the carries, and those of the captures."""
        return list(values[: self.carries]), list(values[self.carries :])

    def __reduce__(self) -> Any:
        return loop_op, (self.body, self.carries, self.test, self.down, self.most)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, weakref_slot=True, repr=False)
class Choice(Op):
    """``choice(condition, *captures)``: the results of one side of a region; only it is computed.

    The region's parameters are the captures. It yields the ``results`` of the side where the
    condition holds, and then those of the other.
    """

    body: Region
    results: int

    def sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The yields where the condition holds, and those where it does not."""
        return self.body.yields[: self.results], self.body.yields[self.results :]

    def __reduce__(self) -> Any:
        return choice_op, (self.body, self.results)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, weakref_slot=True, repr=False)
class Pick(Op):
    """The result number ``index`` of a loop or a choice; ITERATIONS: how many the loop took."""

    index: int

    def origin(self, graph: Graph, i: int) -> tuple[Graph, int]:
        """Of which node, and in which graph, the result of node i that is an array is a version."""
        op, *args = graph.nodes[i]
        if isinstance(op, Loop):
            return graph, args[2 + self.index]
        return op.body.graph, op.body.yields[self.index]

    def __reduce__(self) -> Any:
        return pick_op, (self.index, self.result)


Regional = (Loop, Choice)
"""The operations that have a region, ``body``."""

TURNS: Final = -1
"""The index of the iterations that a loop took, among its results."""

# --- equal operations are one ---------------------------------------------------------------------

_Kind = TypeVar("_Kind", Loop, Choice, Pick)
_known: WeakValueDictionary[Any, Any] = WeakValueDictionary()
"""By their content, for as long as a graph has them."""


def _meaning(*_: Any) -> Any:
    raise AssertionError("regions are evaluated by evaluate_graph")


def _interned(kind: type[_Kind], key: tuple[Any, ...], signature: str, **said: Any) -> _Kind:
    """The operation of this content, made once while any graph has it."""
    op = _known.get((kind, key))
    if op is None:
        name = kind.__name__.lower()
        new = kind(name=name, signature=signature, reference=_meaning, **said)
        op = _known.setdefault((kind, key), new)
    return op


def loop_op(
    body: Region, carries: int, test: bool = False, down: bool = False, most: int | None = None
) -> Loop:
    """The loop with this region; equal ones of one program are the same."""
    kinds, cost = body.types(body.params[1:]), body.cost * (1 if most is None else most)
    return _interned(
        Loop, (body.key, carries, test, down, most), f"uu{kinds}->t", cost=cost,
        body=body, carries=carries, test=test, down=down, most=most,
    )  # fmt: skip


def choice_op(body: Region, results: int) -> Choice:
    """The choice between the sides of this region; equal ones of one program are the same."""
    kinds = body.types(body.params)
    return _interned(
        Choice, (body.key, results), f"b{kinds}->t", cost=body.cost, body=body, results=results
    )


def pick_op(index: int, kind: str) -> Pick:
    """The operation that gives the result of this number and this type."""
    return _interned(Pick, (index, kind), f"t->{kind}", cost=0, index=index)


def pick(graph: Graph, i: int, index: int, kind: str) -> int:
    """The result of this number, of this type, of a loop or a choice."""
    return graph.add(pick_op(index, kind), i)


# --- closing --------------------------------------------------------------------------------------


def has_holes(graph: Graph) -> bool:
    """Whether a region has ever been traced in this graph."""
    return not ANY_HOLE.isdisjoint(graph.heads)


def hole(graph: Graph, kind: str, length: int | None = None, name: str = "") -> int:
    """A new leaf that stands for a parameter of a region that is not closed yet."""
    size = () if length is None else (length,)
    return graph.intern((HOLES[kind], len(graph), name, *size))


def close(
    graph: Graph,
    params: Sequence[int],
    roots: Sequence[int],
    replace: Mapping[int, int] | None = None,
    capture: Callable[[int], bool] | None = None,
) -> tuple[Region, list[int]]:
    """The region of these roots, and the nodes outside that it captures.

    Its parameters are the nodes ``params`` and after them those that it needs of which ``capture``
    says that they lie outside. ``replace`` stands nodes in for others. Constants are copied.
    """
    closing = _Closing(graph, replace or {}, capture)
    ids = [closing.take(p) for p in params]
    for root in roots:
        closing.visit(root)
    body = closing.finished()
    ids += [closing.new[i] for i in closing.captured]
    return Region(body, tuple(ids), tuple(closing.new[r] for r in roots)), closing.captured


class _Closing:
    """A region that is being closed: ``new`` are the ids there of nodes of the graph."""

    def __init__(
        self, graph: Graph, replace: Mapping[int, int], capture: Callable[[int], bool] | None
    ) -> None:
        self.graph, self._replace, self._capture = graph, replace, capture
        self.target = Graph()
        self.target.tracing, self.target.sources = False, graph.sources
        self.new: dict[int, int] = {}
        self.captured: list[int] = []
        self._derived = flags(graph, graph.derived)
        self._begun: set[int] = set()

    def take(self, i: int) -> int:
        """A parameter for node i."""
        name = name_of(self.graph, i) or f"c{len(self.target.names)}"
        new = self.target.input(name, self.graph.type(i), size_of(self.graph, i))
        self.new[i] = new
        return new

    def visit(self, root: int) -> None:
        """Copy what a root needs, arguments first."""
        nodes, new, begun, replace = self.graph.nodes, self.new, self._begun, self._replace
        stack = [root]
        while stack:
            i = stack[-1]
            missing: Sequence[int] = ()
            if i not in new:
                node = nodes[i]
                if node[0].arity and i not in replace and (i in begun or not self._captures(i)):
                    missing = [a for a in node[1:] if a not in new]
                    if not missing:
                        self._copy(i, node)
                else:
                    missing = self._stand_in(i, node)
            if missing:
                assert i not in begun, f"node {i} depends on what stands in for it"
                begun.add(i)
                stack += missing
            else:
                stack.pop()

    def _captures(self, i: int) -> bool:
        return self._capture is not None and self._capture(i)

    def _stand_in(self, i: int, node: Node) -> list[int]:
        """Know what stands in for node i, or is captured; or what has to be known before it."""
        if i in self._replace:
            other = self._replace[i]
            if other in self.new:
                self.new[i] = self.new[other]
            return [] if other in self.new else [other]
        if node[0].constant:
            self.new[i] = self.target.intern(node)
            return []
        assert self._captures(i), f"node {i}, {node[0].name}, is open"
        self.captured.append(i)
        self.take(i)
        return []

    def _copy(self, i: int, node: Node) -> None:
        target, new = self.target, self.new
        before = len(target.nodes)
        target.place = self.graph.places[i]
        new[i] = number = target.add(node[0], *[new[a] for a in node[1:]])
        if number == before and self._derived[i]:
            start = target.derived.pop().start if self._goes_on(before) else before
            target.derived.append(range(start, before + 1))

    def _goes_on(self, new: int) -> bool:
        """Whether the last range of derived nodes ends where a new node stands."""
        return bool(self.target.derived) and self.target.derived[-1].stop == new

    def finished(self) -> Graph:
        """The graph of the region."""
        self.target.place = 0
        self.target.release()
        return self.target


def name_of(graph: Graph, i: int) -> str:
    """The name of an input, or of a parameter of an open region; empty for other nodes."""
    op, *payload = graph.nodes[i]
    if op is INPUTS.get(op.result):
        return graph.names[payload[0]]
    return payload[1] if op is HOLES.get(op.result) else ""


def has_regions(graph: Graph) -> bool:
    """Whether there is a loop or a choice in a graph, needed or not; far quicker than a walk."""
    return any(op.__class__ in Regional for op in graph.heads)


def from_regions_on(graph: Graph, roots: Sequence[int]) -> list[int]:
    """The nodes that the roots need, from the first loop or choice in the graph on."""
    if not has_regions(graph):
        return []
    first = next(i for i, node in enumerate(graph.nodes) if node[0].__class__ in Regional)
    return reachable(graph, roots, first)


def regions(graph: Graph, roots: Sequence[int]) -> Iterator[Region]:
    """The regions of all loops and choices that the roots need, those within others too."""
    for i in from_regions_on(graph, roots):
        op = graph.nodes[i][0]
        if isinstance(op, Regional):
            yield op.body
            yield from regions(op.body.graph, op.body.yields)


def require_straight(graph: Graph, roots: Sequence[int], what: str) -> None:
    """Refuse loops, choices and arrays where nothing can be made of them yet.

    Raises:
        UnsupportedError: it says of ``what`` nothing can be, and names the line of the loop.
    """
    concerned = [i for i in reachable(graph, roots) if graph.type(i) in STRUCTURED]
    if not concerned:
        return
    resolve_places(graph)
    of_loops = (i for i in concerned if isinstance(graph.nodes[i][0], Regional))
    first = next(of_loops, concerned[0])
    op, place = graph.nodes[first][0], _line_of(graph, first)
    name = f"a {op.name}" if isinstance(op, Regional) else "an array"
    raise UnsupportedError(
        f"{what} cannot contain {name}, though kernels can: write a loop as Python's for with "
        "roll=False, and a choice as sg.where, which computes both sides"
        + (f"\n  at {place}" if place else "")
    )


def _line_of(graph: Graph, i: int) -> Place | None:
    """The user's line that led to a node, or to what is in its region."""
    op = graph.nodes[i][0]
    place = graph.place_of(i)
    if place or not isinstance(op, Regional):
        return place
    inner = (op.body.graph.place_of(j) for j in reachable(op.body.graph, op.body.yields))
    return next((line for line in inner if line), None)


# --- passes within regions ------------------------------------------------------------------------


Pass = Callable[[Graph, Sequence[int]], tuple[Graph, list[int]]]
"""``(graph, roots) -> (graph, roots)``, which keeps all inputs, in order."""


def in_regions(graph: Graph, roots: Sequence[int], transform: Pass) -> tuple[Graph, list[int]]:
    """The graph with each region that the roots need as ``transform`` makes it.

    The regions within regions are left to ``transform``; so is the graph itself.
    """
    order = from_regions_on(graph, roots)
    regional = {i: graph.nodes[i][0] for i in order if isinstance(graph.nodes[i][0], Regional)}
    new = {op: _transformed(op, transform) for op in set(regional.values())}
    if all(op is other for op, other in new.items()):
        return graph, list(roots)
    start = min(regional)
    copy, later = continued(graph, start), (i for i in order if i >= start)

    def make(op: Op, *args: int) -> int:
        return copy.graph.add(new[op], *args)

    return rebuild(graph, later, copy, changed=dict.fromkeys(regional, make)).of(roots)


def _transformed(op: Loop | Choice, transform: Pass) -> Loop | Choice:
    """The loop or choice whose region a pass has transformed."""
    body = op.body
    graph, yields = transform(body.graph, body.yields)
    if graph is body.graph and tuple(yields) == body.yields:
        return op
    region = Region(graph, tuple(inputs_of(graph)), tuple(yields))
    if isinstance(op, Loop):
        return loop_op(region, op.carries, op.test, op.down, op.most)
    return choice_op(region, op.results)
