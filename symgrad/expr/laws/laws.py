"""Identities between operations, and how they are matched.

Those that concern one operation stand in its row. The left side of a law is compiled into
straight-line Python: for ``add(a, neg(b))`` it is, once for each order of commutative arguments,

    def match(nodes, x0, x1):
        n1 = nodes[x1]
        if n1[0] is not neg: return None
        return (x0, n1[1])

which runs ten times as fast as an interpreter of patterns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import product, repeat
from types import CodeType
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INPUT, Graph, Node, Op
from symgrad.expr.ops.law import Guard, Law, Pattern, constants, exact, real
from symgrad.expr.tracers.expression import WRAP

FLOAT32_LARGEST: Final = (2 - 2.0**-23) * 2.0**127
FLOAT32_SMALLEST: Final = 2.0**-126
"""The smallest number that no device flushes to 0."""


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
