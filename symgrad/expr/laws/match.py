"""Matching: the left side of a law, compiled into straight-line Python.

For ``add(a, neg(b))`` the compiler writes, once for each order of commutative arguments,

    def match(nodes, x0, x1):
        n1 = nodes[x1]
        if n1[0] is not neg: return None
        return (x0, n1[1])

which runs ten times as fast as an interpreter of patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from itertools import product
from types import CodeType
from typing import Any

from symgrad.expr.graph.node import CONST, INPUT, Node, Op
from symgrad.expr.ops.law import Pattern

Matcher = Callable[..., tuple[int, ...] | None]
"""``matcher(nodes, *argument ids)``: the ids that the pattern variables stand for, or None."""


def matchers(pattern: Pattern, heads: Sequence[Op], fixed: Collection[int] = ()) -> list[Matcher]:
    """The matchers of a pattern for arguments of these heads, one an order of the arguments.

    The variables in ``fixed`` stand for constants only.
    """
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
    op: Op = part[0]
    if op is INPUT:
        known = variables.setdefault(part[1], name)
        if known != name:
            lines.append(f"if {name} != {known}: return None")
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
