"""Laws: identities between two expressions, with their strength, and when they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from symgrad.expr.graph.node import CONST, INPUT, Graph, Handle, Op, bits_float, float_bits

Strength = Literal["exact", "real"]
Pattern = tuple[Any, ...]
"""``(op, *patterns)``; ``(INPUT, k)`` is the k-th variable, ``(CONST, bits)`` a constant."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on what the pattern variables ``variables`` are bound to.

    ``holds(prove, *ids)`` asks the prover (facts.py) about the bound nodes. A ``structural`` guard
    says which terms are meant rather than where the law is true, and is never waived.
    """

    text: str
    holds: Callable[..., bool]
    variables: tuple[int, ...]
    structural: bool = False


@dataclass(frozen=True, slots=True)
class Law:
    """``left`` may be replaced by ``right``.

    An exact law gives the same bits for every input that its guard allows, and is always used. A
    real law is true of real numbers: it is used where its guard is proven, or, proven or not, with
    ``simplify="real"``.
    """

    strength: Strength
    left: Pattern
    right: Pattern
    guard: Guard | None
    text: str


def exact(left: Handle, right: Any, when: Guard | None = None) -> Law:
    """A law that keeps every bit, -0.0, infinities and NaN included."""
    return _law("exact", left, right, when)


def real(left: Handle, right: Any, when: Guard | None = None) -> Law:
    """A law of real numbers, which may change rounding, signed zeros or the domain."""
    return _law("real", left, right, when)


def _law(strength: Strength, left: Handle, right: Any, guard: Guard | None) -> Law:
    target = pattern_of(right)
    text = f"{show(pattern_of(left))} -> {show(target)}" + (f"  when {guard.text}" if guard else "")
    return Law(strength, pattern_of(left), target, guard, text)


def pattern_of(side: Any) -> Pattern:
    """The pattern of one side of a law, written with the library's own operators."""
    if isinstance(side, (int, float)):
        return (CONST, float_bits(float(side)))
    return _pattern(side.graph, side.id)


def _pattern(graph: Graph, i: int) -> Pattern:
    node = graph.nodes[i]
    return (node[0], *(_pattern(graph, a) for a in node[1:])) if node[0].arity else node


def show(pattern: Pattern, names: str = "abcd") -> str:
    """The pattern as text, such as ``mul(neg(a), b)``."""
    op: Op = pattern[0]
    if op is INPUT:
        return names[pattern[1]]
    if not op.arity:
        return repr(Graph.leaf_value(pattern))
    return f"{op.name}({', '.join(show(p, names) for p in pattern[1:])})"


def _guard(name: str) -> Callable[[Handle], Guard]:
    def guard(x: Handle) -> Guard:
        variable = x.graph.nodes[x.id][1]
        return Guard(
            f"{name}({'abcd'[variable]})", lambda prove, i: getattr(prove, name)(i), (variable,)
        )

    guard.__doc__ = f"The guard that the variable is proven to be {name}."
    return guard


finite = _guard("finite")
positive = _guard("positive")
nonnegative = _guard("nonnegative")
nonzero = _guard("nonzero")


def constants(text: str, test: Callable[..., bool], *variables: Handle) -> Guard:
    """The guard that these variables are constants, whose values pass the test."""

    def holds(prove: Any, *ids: int) -> bool:
        nodes = prove.graph.nodes
        return test(*[bits_float(nodes[i][1]) for i in ids])

    return Guard(text, holds, tuple(v.graph.nodes[v.id][1] for v in variables), structural=True)
