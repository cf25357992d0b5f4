"""Simplification: one pass over the arena that folds, rewrites and expands as it rebuilds.

Every node is rebuilt from simplified arguments by `Rewriter.make`, which folds constants, decides
comparisons, applies the first law that fits, and replaces operations by their definitions. The
right-hand sides of laws are built by ``make`` as well; laws descend, so this ends. The table of
laws between operations stands first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product, repeat
from types import CodeType
from typing import Any, Final, Literal

from symgrad.expr import ops
from symgrad.expr.graph.arrays import ADD_AT, GET, GET_W, WRITES, ZEROS, Writes
from symgrad.expr.graph.node import CONST, INPUT, INTEGER, TRUTH, Graph, Node, Op, reachable
from symgrad.expr.graph.rebuild import Copy, Make, outline, rebuild
from symgrad.expr.graph.region import Pick, Region, has_regions
from symgrad.expr.laws.facts import FLOAT32_LARGEST, FLOAT32_SMALLEST, Facts
from symgrad.expr.laws.fuse import fused
from symgrad.expr.laws.shrink import Shrinking, Simplify
from symgrad.expr.ops.law import Guard, Law, Pattern, constants, exact, real
from symgrad.expr.semantics.evaluate import FOLDED, constant_node, fold
from symgrad.expr.tracers.expression import WRAP

# Identities between operations, and how they are matched.
#
# Those that concern one operation stand in its row. The left side of a law is compiled into
# straight-line Python: for ``add(a, neg(b))`` it is, once for each order of commutative arguments,
#
#     def match(nodes, x0, x1):
#         n1 = nodes[x1]
#         if n1[0] is not neg: return None
#         return (x0, n1[1])
#
# which runs ten times as fast as an interpreter of patterns.


def _is_scale(p: float) -> bool:
    """Whether p is 2**k, k >= 0."""
    return 1 <= p < math.inf and math.frexp(p)[0] == 0.5


def _scales(c: float, p: float) -> bool:
    """Whether c * (p * x) is (c * p) * x to the bit: p a power of two, |c| and p at least 1.

    p * x is then exact or overflows, and where it overflows so does the product with c.
    """
    return _is_scale(p) and abs(c) >= 1 and abs(c * p) <= FLOAT32_LARGEST


def _doubles(p: float, c: float) -> bool:
    """Whether p * (c * x) is (p * c) * x to the bit: p = 2**k >= 1, and c an integer.

    c * x is then rounded in the same place or, among subnormals, not at all.
    """
    return _is_scale(p) and float(c).is_integer() and abs(c * p) <= FLOAT32_LARGEST


def _inverts(c: float) -> bool:
    """Whether 1/c is exact, and as a constant no subnormal: a / c is then a * (1/c) to the bit."""
    return math.frexp(c)[0] in (0.5, -0.5) and FLOAT32_SMALLEST <= abs(c) <= 1 / FLOAT32_SMALLEST


def _divides(c: float) -> bool:
    return FLOAT32_SMALLEST <= abs(c) <= 1 / FLOAT32_SMALLEST


def _any(*_: float) -> bool:
    return True


def _negative(c: float) -> bool:
    return c < 0


def _variables(types: str) -> list[Any]:
    graph = Graph()
    graph.tracing = False
    return [WRAP[t](graph, graph.input("abcd"[k])) for k, t in enumerate(types)]


def between_ops() -> tuple[Law, ...]:
    """The laws that relate several operations."""
    a, y, c, p = _variables("ffff")
    x = a
    return (
        exact(c * (p * a), (c * p) * a, when=constants("p is 2**k, |c| >= 1", _scales, c, p)),
        exact(p * (c * a), (p * c) * a, when=constants("p is 2**k, c whole", _doubles, p, c)),
        exact(a / c, a * ops.reciprocal(c), when=constants("c is ±2**k", _inverts, c)),
        exact(-(c * a), -c * a, when=constants("c is a constant", _any, c)),
        exact(a + c, a - -c, when=constants("c < 0", _negative, c)),
        exact(a + c * y, a - (-c) * y, when=constants("c < 0", _negative, c)),
        exact(a - c * y, a + (-c) * y, when=constants("c < 0", _negative, c)),
        real(c * (p * a), (c * p) * a, when=constants("c, p are constants", _any, c, p)),
        real(a / c, a * ops.reciprocal(c), when=constants("1/c is finite", _divides, c)),
        real(ops.exp(x) * ops.exp(y), ops.exp(x + y)),
        real(ops.exp(-x) * ops.exp(x), 1.0),
        real(ops.log(x) + ops.log(y), ops.log(x * y)),
        real(ops.sin(x) * ops.sin(x) + ops.cos(x) * ops.cos(x), 1.0),
        real(ops.cosh(x) * ops.cosh(x) - ops.sinh(x) * ops.sinh(x), 1.0),
        real(x * y + x * p, x * (y + p)),
        real(x / y + p / y, (x + p) / y),
        real(ops.sqrt(x) * ops.sqrt(x), x),
        real(x * ops.reciprocal(x), 1.0),
    )


def all_laws() -> tuple[Law, ...]:
    """Every law of the library: the rows' own and those between operations."""
    own = [law for op in ops.TABLE.values() if op.laws for law in op.laws(*_variables(_types(op)))]
    return (*own, *between_ops())


def _types(op: Op) -> str:
    return op.signature.split("->")[0]


LAWS: Final = all_laws()
"""Every law, in the order in which they are tried."""


# --- matching -------------------------------------------------------------------------------------


Matcher = Callable[..., tuple[int, ...] | None]
"""``matcher(nodes, *argument ids)``: the ids that the pattern variables stand for, or None."""


Rule = tuple[Matcher, Guard | None, Pattern]
"""How the left side of a law is matched, when it holds, and its right side."""


def rules_of(laws: Iterable[tuple[Law, bool]], heads: Sequence[Op]) -> list[Rule]:
    """The rules of laws for arguments of these heads; the flags say whose guards are asked."""
    return [
        (match, law.guard if guarded else None, law.right)
        for law, guarded in laws
        for match in _matchers(law, heads)
    ]


def _inner_heads(pattern: Pattern) -> Iterator[Op]:
    for part in pattern[1:] if pattern[0].arity else ():
        yield part[0]
        yield from _inner_heads(part)


INNER_HEADS: Final = frozenset({CONST}.union(*(_inner_heads(law.left) for law in LAWS)))
"""The operations that laws ask for among arguments."""

_known: dict[tuple[int, tuple[Op, ...]], tuple[Law, list[Matcher]]] = {}
"""Laws and their matchers, by the law's identity and the heads of arguments."""


def _matchers(law: Law, heads: Sequence[Op]) -> list[Matcher]:
    """The matchers of a law for arguments of these heads, of which those in no law are alike."""
    alike = tuple([h if h in INNER_HEADS else INPUT for h in heads])
    known = _known.get((id(law), alike))
    if known is None:
        known = _known[id(law), alike] = law, _written(law, alike)
    return known[1]


def _written(law: Law, heads: Sequence[Op]) -> list[Matcher]:
    """The matchers of a law's left side for arguments of these heads, one an order of them."""
    pattern, guard = law.left, law.guard
    fixed = guard.variables if guard and guard.structural else ()  # they stand for constants only
    outer = [pattern[1:], pattern[:0:-1]] if pattern[0].commutative else [pattern[1:]]
    if not any(all(map(_fits, args, heads, repeat(fixed))) for args in outer):
        return []
    functions: dict[str, Matcher] = {}
    for ordered in _orders(pattern):
        if all(_fits(p, h, fixed) for p, h in zip(ordered[1:], heads, strict=True)):
            source, constants = _write(ordered, fixed)
            if source not in functions:
                scope: dict[str, Any] = dict(constants)
                exec(_compiled(source), scope)
                functions[source] = scope["match"]
    return list(functions.values())


@cache
def _compiled(source: str) -> CodeType:
    """The code of a matcher: those of many laws differ in nothing but the operations they name."""
    return compile(source, "<matcher>", "exec")


def _fits(part: Pattern, head: Op, fixed: Collection[int]) -> bool:
    if part[0] is INPUT:
        return head is CONST or part[1] not in fixed
    return part[0] is head


def _orders(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern with the arguments of its commutative operations in every order."""
    op: Op = pattern[0]
    if not op.arity:
        yield pattern
        return
    for args in product(*[list(_orders(p)) for p in pattern[1:]]):
        yield (op, *args)
        if op.commutative and args[0] != args[1]:
            yield (op, *reversed(args))


def _write(pattern: Pattern, fixed: Collection[int]) -> tuple[str, dict[str, Any]]:
    """The source of a matcher, and the objects that it names."""
    lines: list[str] = []
    constants: dict[str, Op | Node] = {}
    variables: dict[int, str] = {}
    arguments = [f"x{k}" for k in range(len(pattern) - 1)]
    for name, part in zip(arguments, pattern[1:], strict=True):
        _write_part(part, name, lines, constants, variables)
    lines += [f"if nodes[{variables[v]}][0] is not CONST: return None" for v in fixed]
    constants["CONST"] = CONST
    bound = ", ".join(variables.get(v, "None") for v in range(max(variables, default=-1) + 1))
    lines.append(f"return ({bound},)")
    head = f"def match(nodes, {', '.join(arguments)}):"
    return "\n    ".join([head, *lines]), constants


def _write_part(
    part: Pattern,
    name: str,
    lines: list[str],
    constants: dict[str, Op | Node],
    variables: dict[int, str],
) -> None:
    """Write the lines that match a part of a pattern with the node ``name``."""
    op: Op = part[0]
    if op is INPUT:
        first = variables.setdefault(part[1], name)
        if first != name:
            lines.append(f"if {name} != {first}: return None")
        return
    label = f"c{len(constants)}"
    constants[label] = op if op.arity else part
    if not op.arity:
        lines.append(f"if nodes[{name}] != {label}: return None")
        return
    node = f"n{len(lines)}"
    lines.append(f"{node} = nodes[{name}]")
    lines.append(f"if {node}[0] is not {label}: return None")
    for k, inner in enumerate(part[1:], 1):
        _write_part(inner, f"{node}[{k}]", lines, constants, variables)


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
