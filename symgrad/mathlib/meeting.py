"""Where compilers would fold two constants that a kernel adds, or multiplies by, one after another.

``(x + c) - d`` is ``x + (c - d)`` for real numbers, and WGSL lets compilers take floats for them.
But c - d is rounded, as x + c need not be: ``1 - (2*t - 0.99999994)`` becomes ``2 - 2*t``. And
``(x * 1e-30) * 1e-30`` becomes 0, as the product of the constants underflows.

Compilers follow constants through all that is linear: sums, signs, multiples, choices, functions,
the carries of loops, arrays. Here they are followed in the same way, first up from where they are
added, then down from the sums in which two of them meet. Of those two, the one that stands deeper
has to be opaque where it was added. Linear in the operations of a kernel.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from symgrad.expr import ops
from symgrad.expr.graph.arrays import ADD_AT, DETACHED, GET, PUT
from symgrad.expr.graph.node import CONST, Graph, Op, float_bits, reachable
from symgrad.expr.graph.region import Choice, Loop, Pick

SUMS: Final = frozenset({ops.add, ops.sub})
PRODUCTS: Final = frozenset({ops.mul, ops.neg, ops.div, ops.wide_div, ops.reciprocal})

HANDED_ON: Final[Mapping[Op, tuple[int, ...]]] = {
    ops.where: (1, 2), GET: (0,), PUT: (0, 2), ADD_AT: (0, 2), DETACHED: (0,),
}  # fmt: skip
"""Which arguments of an operation its value may be, or be a sum with."""

ZEROS: Final = (float_bits(0.0), float_bits(-0.0))

UNROLLED: Final = 64
"""The most iterations of a loop that compilers are taken to write out."""

Scale = tuple[float, float]
"""Of the constants that a value is a multiple of, the binary logarithms of all below 1, added up,
and of all above.
"""

UNSCALED: Final = (0.0, 0.0)

NORMAL: Final[Mapping[str, Scale]] = {"float32": (-126.0, 128.0), "float64": (-1022.0, 1024.0)}
"""The binary logarithms between which products of constants are normal numbers, by dtypes."""

State = tuple[bool, Scale]
"""Whether a value is a sum with a constant, seen through all that is linear, and its scale."""


@dataclass(frozen=True)
class Passage:
    """The passage through a function of constants that were added to its arguments.

    Attributes:
        shifted: whether the function adds a constant to its value itself.
        met: the arguments that meet with constants of its own, or with each other.
        handed_on: those that its value is a sum with, or a multiple of.
    """

    shifted: bool
    met: frozenset[int]
    handed_on: frozenset[int]


Callee = Callable[[Op], Passage | None]
"""The passage of an operation that is a function; None for all others."""

Kind = Literal["constant", "sum", "fma", "product", "region", "pick"] | Passage | None


@dataclass
class Seen:
    """The findings in one graph; if it is a region, in all places where it stands.

    Attributes:
        order: the nodes that the roots need.
        normal: where products of constants are normal numbers.
        constants: those of them that are numbers, but 0.
        concerned: those of them that are shifted, or have regions or functions.
        shifted, scales: what is known of nodes.
        results: what is known of what loops and choices give.
        hidden: the nodes that have to be opaque, for all that uses them.
    """

    order: Sequence[int]
    normal: Scale
    constants: set[int] = field(default_factory=set[int])
    concerned: list[int] = field(default_factory=list[int])
    shifted: set[int] = field(default_factory=set[int])
    scales: dict[int, Scale] = field(default_factory=dict[int, Scale])
    results: dict[int, list[State]] = field(default_factory=dict[int, Any])
    hidden: set[int] = field(default_factory=set[int])

    def state(self, i: int) -> State:
        """The state of a node."""
        return i in self.shifted, self.scales.get(i, UNSCALED)

    def note(self, i: int, state: State) -> None:
        """Add to what is known of a node."""
        shifted, scale = _either(state, self.state(i))
        if shifted:
            self.shifted.add(i)
        if scale != UNSCALED:
            self.scales[i] = scale


class _Kinds(dict[Op, Kind]):
    """Kinds of operations, each determined when it is first met."""

    def __init__(self, callee: Callee) -> None:
        super().__init__({CONST: "constant", ops.fma: "fma"})
        self.update(dict.fromkeys(SUMS, "sum"))
        self.update(dict.fromkeys(PRODUCTS, "product"))
        self.update({op: Passage(False, frozenset(), frozenset(k)) for op, k in HANDED_ON.items()})
        self._callee = callee

    def __missing__(self, op: Op) -> Kind:
        kind: Kind = "region" if isinstance(op, (Loop, Choice)) else None
        if isinstance(op, Pick) and op.result in "fF":
            kind = "pick"
        elif kind is None and op.arity:
            kind = self._callee(op)
        self[op] = kind
        return kind


class Meetings:
    """Where constants meet in a graph and in its regions.

    They compute in a ``dtype``. ``sums`` says whether it matters in their sums, and not only in
    functions; ``given``
    which of the graph's inputs may be sums with constants, ``ends`` which roots, by their numbers,
    meet with constants. ``met`` are the inputs that do, among other nodes.
    """

    def __init__(
        self,
        graph: Graph,
        roots: Sequence[int],
        callee: Callee,
        dtype: str,
        sums: bool = True,
        given: Iterable[int] = (),
        ends: Iterable[int] = (),
    ) -> None:
        self._kinds, self._sums, self._normal = _Kinds(callee), sums, NORMAL[dtype]
        self._seen: dict[Graph, Seen] = {}
        self._up(graph, roots, dict.fromkeys(given, (True, UNSCALED)))
        self.met = self._down(graph, roots, ends)

    def of(self, graph: Graph) -> Seen:
        """The findings in the graph, or in a region."""
        return self._seen[graph]

    # up, from where constants are added ----------------------------------------------------------

    def _up(self, graph: Graph, roots: Sequence[int], given: Mapping[int, State]) -> Seen:
        """Find out which nodes are shifted, and their scales, from what is given of inputs."""
        seen = self._seen.get(graph)
        if seen is None:
            seen = self._seen[graph] = Seen(reachable(graph, roots), self._normal)
        for i, state in given.items():
            seen.note(i, state)
        nodes, kinds = graph.nodes, self._kinds
        shifted, constants, scales = seen.shifted, seen.constants, seen.scales
        seen.concerned = concerned = list[int]()
        for i in seen.order:
            node = nodes[i]
            kind = kinds[node[0]]
            if kind is None:
                continue
            if kind == "constant":
                if node[1] not in ZEROS:
                    constants.add(i)
            elif kind == "sum":
                _, a, b = node
                if a in shifted or b in shifted or a in constants or b in constants:
                    shifted.add(i)
                    concerned.append(i)
            elif kind == "fma":
                c = node[3]
                if c in shifted or c in constants or _scaled_sum(seen, node[1:]):
                    shifted.add(i)
                    concerned.append(i)
            elif kind == "product":
                a, b = node[1], node[-1]
                if a in constants or b in constants or a in scales or b in scales or b in shifted:
                    _multiply(graph, seen, i)
                    if i in shifted:
                        concerned.append(i)
            elif kind == "region":
                seen.results[i] = self._results(seen, *node)
                concerned.append(i)
            elif kind == "pick":
                seen.note(i, seen.results[node[1]][node[0].index])
                concerned.append(i)
            elif kind.shifted or not shifted.isdisjoint(node[1:]):
                if kind.shifted or any(node[k + 1] in shifted for k in kind.handed_on):
                    shifted.add(i)
                concerned.append(i)
        return seen

    def _results(self, seen: Seen, op: Loop | Choice, *args: int) -> list[State]:
        """States of the results of a loop or a choice."""
        body, values = op.body, args[2 if isinstance(op, Loop) else 1 :]
        params = body.params[len(body.params) - len(values) :]
        given = {p: seen.state(a) for p, a in zip(params, values, strict=True)}
        inside = self._up(body.graph, body.yields, given)
        if isinstance(op, Choice):
            sides = zip(*op.sides(), strict=True)
            return [_either(inside.state(a), inside.state(b)) for a, b in sides]
        carried = list(zip(params[: op.carries], body.yields, strict=False))
        while moved := [p for p, y in carried if y in inside.shifted and p not in inside.shifted]:
            self._up(body.graph, body.yields, dict.fromkeys(moved, (True, UNSCALED)))
        turns = UNROLLED if op.most is None else min(op.most, UNROLLED)
        return [_after(inside, *pair, turns) for pair in carried]

    # down, from where they meet ------------------------------------------------------------------

    def _down(self, graph: Graph, roots: Sequence[int], ends: Iterable[int]) -> set[int]:
        """Find out what has to be opaque, where the roots of these numbers meet with constants.

        Returns:
            The nodes that meet with constants, and have some from nodes below them.
        """
        seen, nodes, kinds = self._seen[graph], graph.nodes, self._kinds
        constants = seen.constants
        met, results = set[int](), defaultdict[int, set[int]](set[int])
        for k in ends:
            self._meet(graph, roots[k], met)
        for i in reversed(seen.concerned):
            op, *args = nodes[i]
            kind = kinds[op]
            taken: Iterable[int] = ()
            if kind == "region":
                taken = self._within(op, len(args), results[i])
            elif kind == "pick":
                results[args[0]] |= {op.index} if i in met else set()
            elif isinstance(kind, Passage):
                taken = kind.met | kind.handed_on if i in met else kind.met
            elif i in met:
                taken = range(len(args))
            elif kind == "sum" and self._sums:
                taken = _meeting(seen, *args)
            elif kind == "fma" and self._sums and (args[2] in constants or args[2] in seen.shifted):
                taken = _scaled_sum(seen, args)
            for k in taken:
                self._meet(graph, args[k], met)
        return met

    def _meet(self, graph: Graph, a: int, met: set[int]) -> None:
        """Note that a node meets with constants."""
        seen = self._seen[graph]
        if a not in seen.shifted:
            return
        op, *args = graph.nodes[a]
        kind = self._kinds[op]
        if kind == "sum":
            own = not seen.constants.isdisjoint(args)
        else:
            own = args[2] in seen.constants if kind == "fma" else _adds(kind)
        (seen.hidden if own else met).add(a)

    def _within(self, op: Loop | Choice, arity: int, results: Set[int]) -> list[int]:
        """The arguments of a region that meet with constants, where some of its results do.

        What a carry meets in one iteration, the one before it may have yielded.
        """
        body, ends = op.body, set(results)
        if isinstance(op, Choice):
            ends |= {k + op.results for k in results}
        skipped = arity - len(body.params)  # the bounds are two, the counter is one
        while True:
            met = self._down(body.graph, body.yields, ends)
            taken = [k + skipped for k, p in enumerate(body.params) if p in met]
            carried = {k - 2 for k in taken if k - 2 < op.carries} if isinstance(op, Loop) else ends
            if carried <= ends:
                return taken
            ends |= carried


def _meeting(seen: Seen, a: int, b: int) -> Sequence[int]:
    """Which argument of a sum has constants that meet with those of the other one."""
    if a in seen.constants:
        return (1,)
    return (0,) if b in seen.constants else (1,) if a in seen.shifted and b in seen.shifted else ()


def _scaled_sum(seen: Seen, factors: Sequence[int]) -> Sequence[int]:
    """Which of the first two factors is a sum with a constant, if the other one is a constant."""
    known, shifted = seen.constants, seen.shifted
    return [k for k in (0, 1) if factors[k] in shifted and factors[1 - k] in known]


def _adds(kind: Kind) -> bool:
    """Whether it is a function that adds a constant of its own to its value."""
    return isinstance(kind, Passage) and kind.shifted


def _multiply(graph: Graph, seen: Seen, i: int) -> None:
    """Find out what is known of a product, a quotient, or what is negative.

    One of its factors is opaque if a product of constants in it may be 0 or infinite; but not if
    a constant is subnormal alone, which devices take for 0 unless it meets with another one.
    """
    op, *args = graph.nodes[i]
    constants, scales = seen.constants, seen.scales
    parts = [_scale(graph, a) if a in constants else scales.get(a, UNSCALED) for a in args]
    if op is not ops.mul and op is not ops.neg:
        parts[-1] = -parts[-1][1], -parts[-1][0]
    if len(parts) == 2 and not _usual(seen, _sum(*parts)):
        k = 1 if args[0] in constants else 0
        if args[k] not in constants and (
            args[1 - k] not in constants or _usual(seen, parts[1 - k])
        ):
            seen.hidden.add(args[k])
            parts[k] = UNSCALED
    scale = _sum(*parts)
    if scale != UNSCALED:
        scales[i] = scale
    linear = op is ops.neg or args[-1] in constants or (op is ops.mul and args[0] in constants)
    if linear and not seen.shifted.isdisjoint(args):
        seen.shifted.add(i)


def _after(inside: Seen, p: int, y: int, turns: int) -> State:
    """The state of a carry after a loop; p is what it was, y what it becomes."""
    before, after = inside.scales.get(p, UNSCALED), inside.scales.get(y, UNSCALED)
    low, high = (b + turns * (a - b) for a, b in zip(after, before, strict=True))
    scale = min(low, before[0]), max(high, before[1])
    if not _usual(inside, scale):
        inside.hidden.add(y)
        scale = before
    return p in inside.shifted or y in inside.shifted, scale


def _scale(graph: Graph, i: int) -> Scale:
    """The scale of a constant."""
    size = abs(graph.value(i) or 1.0)
    log = math.log2(size) if math.isfinite(size) else 0.0
    return min(log, 0.0), max(log, 0.0)


def _sum(a: Scale, b: Scale = UNSCALED) -> Scale:
    return a[0] + b[0], a[1] + b[1]


def _usual(seen: Seen, scale: Scale) -> bool:
    """Whether no product of such constants is 0, subnormal or infinite."""
    least, most = seen.normal
    return scale[0] >= least and scale[1] < most


def _either(a: State, b: State) -> State:
    """The state of one of two values."""
    (low, high), (first, last) = a[1], b[1]
    return a[0] or b[0], (min(low, first), max(high, last))


def passage(
    graph: Graph, root: int, arguments: Sequence[int], callee: Callee, dtype: str
) -> Passage:
    """The passage of constants through the function with this graph, in a dtype."""
    alone = Meetings(graph, [root], callee, dtype)
    inside = Meetings(graph, [root], callee, dtype, given=arguments)
    beyond = Meetings(graph, [root], callee, dtype, given=arguments, ends=(0,))
    positions = {a: k for k, a in enumerate(arguments)}
    met, handed_on = (
        frozenset(positions[a] for a in meetings.met & positions.keys())
        for meetings in (inside, beyond)
    )
    return Passage(root in alone.of(graph).shifted, met, handed_on)
