"""Barriers make opaque what compilers must not see through, for they use all that they know.

WGSL lets them take what is true of real numbers for true of floats. Five things follow that no
kernel can bear. A quotient by what they know to be 0 is undefined, and what depends on it may not
even be stored. A number is equal to itself, also NaN. And ``(x - floor(x)) + c`` becomes
``(x + c) - floor(x)``, which loses the digits that the difference was made for. And the choice of
what is smaller becomes a minimum, which drops a NaN. And constants that are added one after another
are added to each other: where they are, `symgrad.mathlib.meeting` finds out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from functools import cache, partial, reduce
from math import nan
from operator import or_
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import (
    CONST,
    INPUT,
    Graph,
    Handle,
    Node,
    Op,
    bits_float,
    reachable,
)
from symgrad.expr.graph.rebuild import outline, rebuild
from symgrad.expr.graph.region import in_regions
from symgrad.expr.laws.facts import Facts
from symgrad.expr.ops.interval import ANY
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.meeting import Meetings, Seen

DEPTH: Final = 8
"""Operations below a value that are looked at; of what lies deeper nothing is concluded."""

UNDERFLOW: Final = -126.0
"""The binary logarithm of the least product of constants that no device flushes to 0."""

_LEAVES: Final = frozenset({INPUT, ops.opaque})
"""Nodes that compilers know nothing of."""

_SUMS: Final = frozenset({ops.add, ops.sub})
_PRODUCTS: Final = frozenset({ops.mul, ops.div})

_ZERO_AT_ZERO: Final = frozenset({ops.neg, ops.abs, ops.sqrt})
"""0 where their argument is, and nowhere else."""

_STEPS: Final = frozenset({ops.floor, ops.ceil, ops.round, ops.trunc, ops.sign})
"""Constant over ranges of their argument."""

NEVER_NEGATIVE: Final = frozenset(
    op for op in ops.TABLE.values() if op.interval and op.interval(*[ANY] * op.arity)[0] >= 0.0
)
"""Operations whose values are NaN or not below 0, whatever their arguments are."""

LEAST: Final = 2.0**-125
"""A constant that is positive on every device, rounded or not."""

_CIRCULAR: Final = frozenset({ops.angle, ops.sine, ops.cosine, ops.tangent})
"""Functions of an angle whose quarter turns are their second argument."""


class Vanishing:
    """The proofs about the nodes of one graph.

    ``variable`` says whether inputs vary: those of a kernel do, but the arguments of a function may
    be constants where it is called.
    """

    def __init__(self, graph: Graph, variable: bool) -> None:
        self.graph, self.facts, self._variable = graph, Facts(graph), variable
        self._vanishes = cache(self._find_vanishing)
        self._varies = cache(self._find_varying)
        self._inputs = cache(self._find_inputs)
        self._underflow = cache(self._find_underflow)

    def possible(self, i: int) -> bool:
        """Whether node i may be known to be 0."""
        return self._vanishes(i, 0)

    def _find_vanishing(self, i: int, depth: int) -> bool:
        op, *args = self.graph.nodes[i]
        if op is ops.add and self._is_raised(*args):
            return False
        if op in _SUMS and depth <= DEPTH and self._apart(args, depth + 1):
            return False
        low, high = self.facts.interval(i)
        if low > 0.0 or high < 0.0:
            return False
        if depth > DEPTH or op is CONST:
            return True
        if op in _SUMS:
            return not self._of_one_sign(op, args, depth + 1)
        if op in _PRODUCTS:
            zero = any(self._vanishes(a, depth + 1) for a in args[: 2 if op is ops.mul else 1])
            return zero or self._underflow(i, depth) < UNDERFLOW
        if op in _ZERO_AT_ZERO or op is ops.where:
            return any(self._vanishes(a, depth + 1) for a in args[-2:])
        return not self._varies(i, depth)

    def _is_raised(self, a: int, b: int) -> bool:
        """Whether a sum is that of a positive constant and of what is never negative.

        So are most divisors, as 1 + exp(x): no other proof is as cheap.
        """
        nodes = self.graph.nodes
        for constant, other in ((a, b), (b, a)):
            if nodes[constant][0] is CONST and nodes[other][0] in NEVER_NEGATIVE:
                return bits_float(nodes[constant][1]) >= LEAST
        return False

    def _of_one_sign(self, op: Op, args: list[int], depth: int) -> bool:
        """Whether a sum is not 0, as both of its terms have one sign."""
        (low, high), (first, last) = (self.facts.interval(a) for a in args)
        first, last = (-last, -first) if op is ops.sub else (first, last)
        alike = min(low, first) >= 0.0 or max(high, last) <= 0.0
        return alike and not all(self._vanishes(a, depth) for a in args)

    def _apart(self, args: list[int], depth: int) -> bool:
        """Whether the arguments share no input, and one of them varies."""
        shared = self._inputs(args[0], depth) & self._inputs(args[-1], depth)
        return (len(args) == 1 or not shared) and any(self._varies(a, depth) for a in args)

    def _find_varying(self, i: int, depth: int) -> bool:
        """Whether node i is proven to be no constant."""
        op, *args = self.graph.nodes[i]
        if op in _LEAVES or depth > DEPTH:
            return op is ops.opaque or (op is INPUT and self._variable)
        if op in _PRODUCTS and any(self._vanishes(a, depth + 1) for a in args):
            return False
        if op in _CIRCULAR:
            return self._varies(args[0], depth + 1)
        known = op in _SUMS or op in _PRODUCTS or (op.signature == "f->f" and op not in _STEPS)
        return known and self._apart(args, depth + 1)

    def _find_inputs(self, i: int, depth: int) -> int:
        """The numbers of the inputs below node i, as bits; all bits where that is not known."""
        op, *args = self.graph.nodes[i]
        if op is INPUT:
            return 1 << args[0]
        if not op.arity or depth > DEPTH:
            return -1 if op.arity else 0
        return reduce(or_, (self._inputs(a, depth + 1) for a in args))

    def _find_underflow(self, i: int, depth: int) -> float:
        """The binary logarithm of the product of those constant factors of node i that are < 1."""
        op, *args = self.graph.nodes[i]
        if op is CONST:
            return min(_logarithm(self.graph, i), 0.0)
        if op not in _PRODUCTS or depth > DEPTH:
            return 0.0 if op not in _PRODUCTS else -math.inf
        first = self._underflow(args[0], depth + 1)
        if op is ops.mul:
            return first + self._underflow(args[1], depth + 1)
        return first + min(-_logarithm(self.graph, args[1]), 0.0)


def _logarithm(graph: Graph, i: int) -> float:
    """The binary logarithm of the size of a constant; 0 of anything else."""
    size = abs(graph.value(i) or 1.0)
    return math.log2(size) if math.isfinite(size) else 0.0


NOTHING_MET: Final = Seen((), (0.0, 0.0))
"""The findings where meetings of constants do not matter."""

Rule = Callable[..., Iterable[int]]
"""``rule(op, *arguments)``: which arguments, by position, have to be opaque."""

DIVISIONS: Final = frozenset({ops.div, ops.reciprocal, ops.wide_div, ops.ratio})
SUMS: Final = frozenset({ops.add, ops.sub})
ROUNDINGS: Final = frozenset({ops.floor, ops.ceil, ops.round, ops.trunc})

ORDER: Final = frozenset({ops.le, ops.lt})
COMPARISONS: Final = ORDER | {ops.eq, ops.ne}

UNMIXED: Final = COMPARISONS | {ops.mul, ops.div, ops.isnan, ops.opaque}
"""Operations that compilers do not mix with the sums in them."""

BITS: Final = frozenset({ops.opaque, ops.float_bits, ops.isnan, ops.isinf, ops.isfinite})
"""Operations of which compilers see bits, no number."""

COMPUTED: Final = ("f->f", "t->f", "Fu->f")
"""How the signatures of what computes a float end: an operation, a loop, an array that is read."""

OF_ITSELF: Final[dict[Op, Callable[[Expr], Handle]]] = {
    ops.sub: lambda x: ops.where(ops.isfinite(x), 0.0, nan),
    ops.div: lambda x: ops.where(ops.isfinite(x) & (x != 0.0), 1.0, nan),
    ops.eq: lambda x: ~ops.isnan(x),
    ops.le: lambda x: ~ops.isnan(x),
    ops.ne: lambda x: ops.isnan(x),
}
"""Results of two equal operands, said without them."""


def with_barriers(
    graph: Graph,
    roots: Sequence[int],
    math: str,
    variable: bool = True,
    within: bool = False,
    meetings: Meetings | None = None,
    compensated: bool = False,
) -> tuple[Graph, list[int]]:
    """The graph, and its regions, with what is opaque for a kernel of this ``math``.

    ``variable`` says whether inputs are known to vary: not where they are a function's arguments.
    ``within`` says that the graph is that of a region, whose inputs are results of operations.
    ``meetings`` are those of constants in it; none matter if they are not given. ``compensated``
    says that sums keep what the rounding of others has lost, so that each is rounded by itself.
    """
    opaque = _with_barriers(graph, roots, math, variable, within, meetings, compensated)
    again = partial(with_barriers, math=math, variable=variable, within=True, meetings=meetings)
    return in_regions(*opaque, again)


def _with_barriers(
    graph: Graph,
    roots: Sequence[int],
    math: str,
    variable: bool,
    within: bool,
    meetings: Meetings | None,
    compensated: bool,
) -> tuple[Graph, list[int]]:
    """The graph without its regions."""
    present = graph.heads
    met = meetings.of(graph) if meetings else NOTHING_MET
    rules = _rules(graph, present, math, variable, within, compensated)
    repeated = not present.isdisjoint(OF_ITSELF)
    if not (rules or repeated or met.hidden):
        return graph, list(roots)  # without a walk
    order, nodes = met.order or reachable(graph, roots), graph.nodes
    concerned = [i for i in order if nodes[i][0] in rules] if rules else ()
    taken = ((i, {k for rule in rules[nodes[i][0]] for k in rule(*nodes[i])}) for i in concerned)
    hidden = {i: operands for i, operands in taken if operands}
    inputs = {i for i in met.hidden if nodes[i][0] is INPUT}
    for i in order if inputs else ():
        if nodes[i][0].arity and not inputs.isdisjoint(nodes[i][1:]):
            of_inputs = {k for k, a in enumerate(nodes[i][1:]) if a in inputs}
            hidden[i] = hidden.get(i, set[int]()) | of_inputs
    opaque = order if met.hidden and ops.opaque in present else ()
    again = {i for i in opaque if nodes[i][0] is ops.opaque and nodes[i][1] in met.hidden}
    itself = [i for i in order if nodes[i][0] in OF_ITSELF] if repeated else ()
    changed = {*hidden, *met.hidden, *again, *(i for i in itself if _of_itself(nodes[i]))}
    if not changed:
        return graph, list(roots)
    copy = outline(graph)
    target = copy.graph

    def build(i: int, op: Op, *args: int) -> int:
        operands = hidden.get(i, ())
        arguments = [_opaque(target, a) if k in operands else a for k, a in enumerate(args)]
        if _of_itself(nodes[i]):
            return OF_ITSELF[op](Expr(target, arguments[0])).id
        new = arguments[0] if i in again else target.add(op, *arguments)
        return _opaque(target, new) if i in met.hidden else new

    return rebuild(graph, order, copy, changed={i: partial(build, i) for i in changed}).of(roots)


def _opaque(graph: Graph, i: int) -> int:
    """A node, opaque; it may be so already."""
    return i if graph.nodes[i][0] is ops.opaque else graph.add(ops.opaque, i)


def _rules(
    graph: Graph, present: Set[Op], math: str, variable: bool, within: bool, compensated: bool
) -> dict[Op, list[Rule]]:
    """The rules for a graph of these operations, by the operations that they concern."""
    every = {op for op in present if op.arity}
    rules: list[tuple[Set[Op], Rule]] = [(DIVISIONS, _divisors(graph, variable and not within))]
    if math == "strict":
        rules.append((every, _everything(graph, within)))
    elif variable or compensated:
        if present & ORDER:
            rules += [({ops.where}, _choices(graph)), (ORDER, _certainties(graph))]
        if math == "accurate" and present & ROUNDINGS:
            rules.append((every - UNMIXED, _remainders(graph)))
        if compensated:
            rules.append((SUMS, _sums_of_sums(graph)))
    by_op = {op: [rule for concerned, rule in rules if op in concerned] for op in every}
    return {op: chosen for op, chosen in by_op.items() if chosen}


def _of_itself(node: Node) -> bool:
    """Whether both operands are one node, and compilers know what comes out, but for NaN."""
    return node[0] in OF_ITSELF and node[1] == node[2]


def _divisors(graph: Graph, variable: bool) -> Rule:
    """Divisors that compilers may know to be 0."""
    vanishing = Vanishing(graph, variable)

    def rule(op: Op, *args: int) -> Iterable[int]:
        seen = graph.nodes[args[-1]][0] is not ops.opaque
        return (len(args) - 1,) if seen and vanishing.possible(args[-1]) else ()

    return rule


def _remainders(graph: Graph) -> Rule:
    """Remainders of a number without a whole one, unless it is only multiplied or compared."""
    nodes = graph.nodes

    def whole(i: int, depth: int = 3) -> bool:
        op, *args = nodes[i]
        taken = op in (ops.mul, ops.neg) and depth > 0
        return op in ROUNDINGS or (taken and any(whole(a, depth - 1) for a in args))

    def remains(i: int) -> bool:
        op, *args = nodes[nodes[i][1]] if nodes[i][0] is ops.neg else nodes[i]
        return op in SUMS and any(map(whole, args))

    def rule(op: Op, *args: int) -> Iterable[int]:
        return [k for k, a in enumerate(args) if remains(a)]

    return rule


def _sums_of_sums(graph: Graph) -> Rule:
    """Terms that are sums themselves."""
    nodes = graph.nodes

    def is_sum(i: int) -> bool:
        node = nodes[i]
        return nodes[node[1]][0] in SUMS if node[0] is ops.neg else node[0] in SUMS

    def rule(op: Op, *args: int) -> Iterable[int]:
        return [k for k, a in enumerate(args) if is_sum(a)]

    return rule


def _choices(graph: Graph) -> Rule:
    """One of two numbers of which the smaller or the larger is chosen."""
    nodes = graph.nodes

    def rule(op: Op, *args: int) -> Iterable[int]:
        condition, *branches = args
        node = nodes[condition]
        node = nodes[node[1]] if node[0] is ops.logical_not else node
        compared = node[0] in ORDER and set(node[1:]) == set(branches)
        return (1 if nodes[branches[1]][0] is CONST else 2,) if compared else ()

    return rule


def _certainties(graph: Graph) -> Rule:
    """Operands of a comparison that holds for all numbers, as 0 <= x*x: for NaN it does not."""
    facts, nodes = Facts(graph), graph.nodes

    def rule(op: Op, *args: int) -> Iterable[int]:
        if facts.interval(args[0])[1] > facts.interval(args[1])[0]:
            return ()
        return [k for k, a in enumerate(args) if nodes[a][0].arity]

    return rule


def _everything(graph: Graph, within: bool) -> Rule:
    """All results of operations, zeros, and what is compared."""
    nodes, value = graph.nodes, graph.value

    def seen(op: Op, a: int) -> bool:
        head = nodes[a][0]
        if head is CONST:
            return value(a) == 0.0
        if head is INPUT:
            return within or op in COMPARISONS
        return head.signature.endswith(COMPUTED) and head is not ops.opaque

    def rule(op: Op, *args: int) -> Iterable[int]:
        return () if op in BITS else [k for k, a in enumerate(args) if seen(op, a)]

    return rule
