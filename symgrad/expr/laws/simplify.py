"""Simplification: one pass over the arena that folds, rewrites and expands as it rebuilds.

Every node is rebuilt from simplified arguments by `Rewriter.make`, which folds constants, decides
comparisons, applies the first law that fits, and replaces operations by their definitions. The
right-hand sides of laws are built by ``make`` as well; laws descend, so this ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from symgrad.expr import ops
from symgrad.expr.graph.arrays import ADD_AT, GET, GET_W, WRITES, ZEROS, Writes
from symgrad.expr.graph.node import INPUT, INTEGER, TRUTH, Graph, Node, Op, reachable
from symgrad.expr.graph.rebuild import Copy, Make, outline, rebuild
from symgrad.expr.graph.region import Pick, Region, has_regions
from symgrad.expr.laws.facts import Facts
from symgrad.expr.laws.fuse import fused
from symgrad.expr.laws.laws import FLOAT32_LARGEST, FLOAT32_SMALLEST, LAWS, Rule, rules_of
from symgrad.expr.laws.shrink import Shrinking, Simplify
from symgrad.expr.ops.law import Law, Pattern
from symgrad.expr.semantics.evaluate import FOLDED, constant_node, fold

Level = Literal["real"] | bool
"""How much to simplify: not at all, by exact laws (True), or by all laws of real numbers."""

Definition = Callable[..., int]
"""``definition(rewriter, *argument ids)`` builds what an operation stands for."""

Finish = Callable[["Rewriter", Op, Sequence[int]], "int | None"]


def simplify(
    graph: Graph,
    roots: Sequence[int],
    level: Level = True,
    definitions: Mapping[Op, Definition] | None = None,
    regroup: bool = True,
) -> tuple[Graph, list[int]]:
    """A graph of what the roots need, simplified, and the roots in it.

    All inputs are kept, in their order. ``definitions`` replaces operations by others, in the same
    pass, so that what an operation and its derivative share is shared. With ``regroup``, products
    of derivatives use those that are there already.
    """
    if has_regions(graph):
        graph, roots = fused(graph, roots)
    order = reachable(graph, roots)
    copy = outline(graph)
    target = Rewriter(copy.graph, laws_for(level), definitions or {}, regroup)
    again = partial(simplify, level=level, definitions=definitions, regroup=regroup)
    return _Rebuilding(target, bool(level), again).build(graph, order, copy).of(roots)


class _Rebuilding:
    """A pass that rebuilds nodes of a graph and of its regions in the graph of a rewriter."""

    def __init__(self, target: Rewriter, laws: bool, again: Simplify) -> None:
        self._target, self._laws = target, laws
        self._shrinking = Shrinking(target.graph, again, self._inline, laws)

    def build(self, graph: Graph, order: Sequence[int], copy: Copy) -> Copy:
        """Make these nodes, in order, and what they need."""
        target, nodes = self._target, graph.nodes
        derived = (i for part in graph.derived for i in part) if self._laws else ()
        rounded = (i for i in derived if nodes[i][0] in _REGROUPED)
        changed: dict[int, Make] = dict.fromkeys(rounded, target.make_derived)
        if has_regions(graph):
            changed |= self._structures(graph, order)
        return rebuild(graph, order, copy, target.make, changed, kept=target.kept)

    def _inline(self, region: Region, roots: Sequence[int], params: Mapping[int, int]) -> list[int]:
        """The roots of a region, where its parameters are these nodes."""
        copy = Copy(self._target.graph, [params.get(i, -1) for i in range(len(region.graph))])
        return self.build(region.graph, reachable(region.graph, roots), copy).of(roots)[1]

    def _structures(self, graph: Graph, order: Sequence[int]) -> dict[int, Make]:
        """How loops, choices and their results are rebuilt, after they have been shrunk."""
        used: dict[int, list[int]] = {}
        makes: dict[int, Make] = {}
        results: dict[int, dict[int, int]] = {}
        for i in order:
            node = graph.nodes[i]
            if node[0].__class__ is Pick:
                used.setdefault(node[1], []).append(node[0].index)
                makes[i] = partial(_result, results, node[1])
        for i, numbers in used.items():
            makes[i] = partial(self._shrunk, results, i, numbers)
        return makes

    def _shrunk(
        self, results: dict[int, dict[int, int]], i: int, used: Sequence[int], op: Any, *args: int
    ) -> int:
        results[i] = self._shrinking.results(op, used, args)
        return -1  # its results stand for it


def _result(results: Mapping[int, Mapping[int, int]], owner: int, op: Pick, _: int) -> int:
    return results[owner][op.index]


def laws_for(level: Level) -> dict[Op, list[tuple[Law, bool]]]:
    """The laws of a level by head operation, each with whether its guard must be proven."""
    index: dict[Op, list[tuple[Law, bool]]] = {}
    for law in LAWS if level else ():
        if law.strength == "exact" or (level != "real" and law.guard and not law.guard.structural):
            index.setdefault(law.left[0], []).append((law, True))
        elif level == "real":
            proven = law.guard is not None and law.guard.structural
            index.setdefault(law.left[0], []).append((law, proven))
    return index


_REGROUPED: Final = frozenset((ops.mul, ops.integer_pow))
"""Operations that are rewritten otherwise in derivatives: see `Rewriter.make_derived`."""


@dataclass(frozen=True, slots=True)
class _Case:
    rules: list[Rule]
    finish: Finish


class Rewriter:
    """Builds simplified nodes in a graph."""

    def __init__(
        self,
        graph: Graph,
        laws: Mapping[Op, Sequence[tuple[Law, bool]]],
        definitions: Mapping[Op, Definition],
        regroup: bool = True,
    ) -> None:
        self.graph = graph
        self.facts = Facts(self.graph)
        self._nodes = self.graph.nodes
        self.definitions = definitions
        self._laws = laws
        self._regroup = regroup
        self.expanded: dict[Node, int] = {}
        self.writes = Writes(graph)
        self.kept = set[tuple[Op, ...]]()
        """The heads, of a node and of its arguments, for which there is nothing to try."""
        self._cases: dict[tuple[Op, ...], _Case | None] = {}

    def make(self, op: Op, *args: int) -> int:
        """The id of a node that means ``op(*args)``."""
        nodes = self._nodes
        if len(args) == 2:  # as the next, but most are: in half the time
            a, b = args
            heads = (op, nodes[a][0], nodes[b][0])
        else:
            heads = (op, *[nodes[a][0] for a in args])
        try:
            case = self._cases[heads]
        except KeyError:
            case = self._cases[heads] = self._case(heads)
            if case is None:
                self.kept.add(heads)
        if case is not None:
            for match, guard, right in case.rules:
                bound = match(nodes, *args)
                if bound is not None and (
                    guard is None or guard.holds(self.facts, *[bound[v] for v in guard.variables])
                ):
                    return self._instantiate(right, bound)
            node = case.finish(self, op, args)
            if node is not None:
                return node
        if op.commutative and args[0] > args[1]:
            args = (args[1], args[0])
        return self.graph.intern((op, *args))

    def make_derived(self, op: Op, *args: int) -> int:
        """The id of a node that means ``op(*args)``, a derivative, which the user did not write.

        A product takes its constant factors together, and a product that is there already. So does
        a power 1/x**k.
        """
        if op is ops.integer_pow and (power := self._next_power(*args)) is not None:
            return power
        if op is ops.mul:
            (a, b), nodes = args, self._nodes
            factors = self._regrouped(a, b) if nodes[b][0] is ops.mul else None
            if factors is None and nodes[a][0] is ops.mul:
                factors = self._regrouped(b, a)
            if factors is not None:
                return self.make(op, *factors)
        return self.make(op, *args)

    def _next_power(self, x: int, exponent: int) -> int | None:
        """x**k, k < -2, as x**(k + 1), where that is there, times 1/x: all such powers share it."""
        k: int = self._nodes[exponent][1]
        known = None
        if self._regroup and k < -2:
            known = self.expanded.get((ops.integer_pow, x, self.graph.intern((INTEGER, k + 1))))
        return None if known is None else self.make(ops.mul, known, self.make(ops.reciprocal, x))

    def _regrouped(self, a: int, product: int) -> tuple[int, int] | None:
        """The factors of ``a * (b * c)`` as ``a * b``, known to be of use, and ``c``."""
        _, first, second = self._nodes[product]
        x, graph = self.graph.value(a), self.graph
        for b, c in ((first, second), (second, first)):
            y = None if x is None else graph.value(b)
            if x is not None and y is not None:
                both = x * y
                if FLOAT32_SMALLEST <= abs(both) <= FLOAT32_LARGEST:
                    return self.constant(both), c
            elif self._regroup and (factor := graph.find(ops.mul, a, b)) is not None:
                return factor, c
        return None

    def constant(self, value: float) -> int:
        """The id of a constant."""
        return self.graph.constant(value)

    def _case(self, heads: tuple[Op, ...]) -> _Case | None:
        """The laws to try for nodes of these heads; None if there are none, as most often."""
        op = heads[0]
        rules = rules_of(self._laws.get(op, ()), heads[1:])
        finish = self._finisher(op, heads[1:])
        return _Case(rules, finish or _nothing) if rules or finish else None

    def _finisher(self, op: Op, heads: Sequence[Op]) -> Finish | None:
        """The function that finishes an operation on nodes of these heads, if there is one."""
        if op is ops.opaque:
            return None
        if op.arity and op.result in FOLDED and all(head.constant for head in heads):
            return _fold
        if op is ops.where and heads[0] is TRUTH:
            return _choose
        if op in (GET, GET_W) and self._laws and (heads[0] in WRITES or heads[0] is ZEROS):
            return _read
        if op.transparent:
            return _see_through
        if op in (ops.lt, ops.le) and self._laws:
            return _decide
        return _expand if op in self.definitions else None

    def _instantiate(self, pattern: Pattern, bound: Sequence[int]) -> int:
        """The right side of a law, with its variables bound to nodes."""
        head = pattern[0]
        if head is INPUT:
            return bound[pattern[1]]
        if not head.arity:
            return self.graph.intern(pattern)
        return self.make(head, *[self._instantiate(p, bound) for p in pattern[1:]])


def _nothing(*_: Any) -> None:
    return None


def _fold(rewriter: Rewriter, op: Op, args: Sequence[int]) -> int:
    nodes = rewriter.graph.nodes
    value = fold(op, tuple([nodes[a] for a in args]))
    return rewriter.graph.intern(constant_node(op.result, value))


def _choose(rewriter: Rewriter, _: Op, args: Sequence[int]) -> int:
    return args[1] if rewriter.graph.nodes[args[0]][1] else args[2]


def _read(rewriter: Rewriter, get: Op, args: Sequence[int]) -> int | None:
    """The number that was written where it is read, if that is seen."""
    graph, (array, at) = rewriter.graph, args
    array = rewriter.writes.last(array, at)
    op, *rest = graph.nodes[array]
    if op is ZEROS:
        return graph.constant(0.0)
    if op in WRITES and rest[1] == at:
        last, value = rest[0], rest[2]
        if op is ADD_AT:
            value = rewriter.make(ops.add, rewriter.make(get, last, at), value)
        return value
    return None if array == args[0] else rewriter.make(get, array, at)


def _see_through(_: Rewriter, __: Op, args: Sequence[int]) -> int:
    return args[0]


def _decide(rewriter: Rewriter, op: Op, args: Sequence[int]) -> int | None:
    decided = rewriter.facts.decide(op, args[0], args[1])
    return None if decided is None else rewriter.graph.intern((TRUTH, int(decided)))


def _expand(rewriter: Rewriter, op: Op, args: Sequence[int]) -> int:
    """The definition of an operation; those of f(a, b) and f(b, a) are shared."""
    ordered = (
        sorted(args) if op.commutative else args
    )  # so that what f(a, b), f(b, a) are is shared
    expansion = rewriter.definitions[op](rewriter, *ordered)
    rewriter.expanded[(op, *ordered)] = expansion
    return expansion
