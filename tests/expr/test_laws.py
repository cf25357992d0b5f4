"""Every law, for the strength that it claims; and that rewriting by all of them ends."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import mpmath
import numpy as np
import pytest
from meaning import MEANING
from mpmath import mp, mpf
from strategies import EDGES, bits

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INPUT, Graph
from symgrad.expr.graph.verify import verify
from symgrad.expr.laws.facts import Facts
from symgrad.expr.laws.simplify import LAWS, simplify
from symgrad.expr.ops.law import Law, Pattern
from symgrad.expr.semantics.evaluate import leaf
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.functions import uint32
from symgrad.expr.tracers.integers import Word

EXACT: Final = [law for law in LAWS if law.strength == "exact"]
REAL: Final = [law for law in LAWS if law.strength == "real"]
CONSTANTS: Final = (
    2.0, -2.0, 1.0, -1.0, 4.0, 0.5, -0.75, 3.0, 0.1, -0.1, 1 / 3, 1.1, 16777217.0, 1e30, -1e30,
    1e-30, 1e-44, 0.0, -0.0, 2.0**100, 2.0**127, -(2.0**64), 1e10, math.inf, -math.inf, math.nan,
)  # fmt: skip
ALLOWS: Final = {
    "finite": np.isfinite,
    "positive": lambda v: np.isnan(v) | (v > 0),
    "nonnegative": lambda v: np.isnan(v) | ~np.signbit(v),
    "nonzero": lambda v: np.isfinite(v) & (v != 0),
}
PROVEN: Final = {
    "finite": lambda x: ops.where(x < 1.0, 2.0, 3.0),
    "positive": ops.cosh,
    "nonnegative": lambda x: x * x,
    "nonzero": lambda x: 3.0,
}
"""Expressions of x that the prover must know to be what a guard asks for."""


def name(law: Law) -> str:
    return law.text.replace(" ", "")


def variables(pattern: Pattern) -> Counter[int]:
    """How often each variable occurs."""
    if pattern[0] is INPUT:
        return Counter([pattern[1]])
    parts = [variables(p) for p in pattern[1:]] if pattern[0].arity else []
    return sum(parts, Counter())


def kinds(pattern: Pattern, kind: str = "f") -> dict[int, str]:
    """The type of each variable."""
    if pattern[0] is INPUT:
        return {pattern[1]: kind}
    found: dict[int, str] = {}
    if pattern[0].arity:
        for p, t in zip(pattern[1:], pattern[0].signature, strict=False):
            found |= kinds(p, t)
    return found


def constants_of(law: Law) -> Iterator[dict[int, float]]:
    """Choices of constants for the variables that must be constants."""
    if law.guard is None or not law.guard.structural:
        yield {}
        return
    count = len(law.guard.variables)
    for chosen in itertools.product(CONSTANTS, repeat=count):
        graph = Graph()
        if law.guard.holds(Facts(graph), *[graph.constant(c) for c in chosen]):
            yield dict(zip(law.guard.variables, chosen, strict=True))


def single(pattern: Pattern, bound: dict[int, Any]) -> Any:
    """The value in float32; what has constants only is folded in double and rounded once."""
    op = pattern[0]
    if op is INPUT:
        return bound[pattern[1]]
    if not op.arity:
        return leaf(pattern, np.float64).item() if op is CONST else leaf(pattern, np.float32)
    args = [single(p, bound) for p in pattern[1:]]
    with np.errstate(all="ignore"):
        if all(isinstance(a, float) for a in args):
            return float(op.reference(*[np.float64(a) for a in args]))
        return op.reference(*[np.float32(a) if isinstance(a, float) else a for a in args])


WORDS = np.array([0, 1, 2, 7, 31, 2**31 - 1, 2**31, 2**32 - 1], np.uint32)
"""Words at the edges of both ranges, and some between."""


def grid(law: Law, fixed: dict[int, float]) -> dict[int, Any]:
    """All combinations of edge values, and some ordinary ones, for the free variables."""
    types = kinds(law.left)
    free = [v for v in sorted(types) if v not in fixed]
    rng = np.random.default_rng(3)
    ordinary = rng.normal(size=12).astype(np.float32) * np.float32(10.0) ** rng.integers(-3, 4, 12)
    reals = np.concatenate([EDGES, ordinary]).astype(np.float32)
    values = {"f": reals, "b": np.array([False, True]), "u": WORDS}
    axes = [values[types[v]] for v in free]
    mesh = [m.ravel() for m in np.meshgrid(*axes, indexing="ij")]
    keep = np.ones(mesh[0].shape if mesh else 1, dtype=bool)
    if law.guard is not None and not law.guard.structural:
        (v,) = law.guard.variables
        keep = ALLOWS[law.guard.text.partition("(")[0]](mesh[free.index(v)])
    return {v: m[keep] for v, m in zip(free, mesh, strict=True)} | fixed


@pytest.mark.parametrize("law", EXACT, ids=name)
def test_exact_laws_keep_every_bit(law: Law) -> None:
    tried = 0
    for fixed in constants_of(law):
        bound = grid(law, fixed)
        left, right = (np.asarray(single(p, bound)) for p in (law.left, law.right))
        left, right = np.broadcast_arrays(left, right)
        if left.dtype.kind == "f":
            left, right = bits(left.astype(np.float32)), bits(right.astype(np.float32))
        wrong = np.flatnonzero(left != right)
        where = {v: np.broadcast_to(a, left.shape)[wrong[:1]] for v, a in bound.items()}
        assert not len(wrong), f"{law.text}: {where}"
        tried += left.size
    assert tried, "no constants satisfy the guard"


def high(pattern: Pattern, bound: dict[int, Any]) -> Any:
    op = pattern[0]
    if op is INPUT:
        return bound[pattern[1]]
    if not op.arity:
        return mpf(leaf(pattern, np.float64).item())
    return MEANING[op.name](*[high(p, bound) for p in pattern[1:]])


@pytest.mark.parametrize("law", REAL, ids=name)
def test_real_laws_hold_to_40_digits(law: Law) -> None:
    rng = np.random.default_rng(5)
    tried = 0
    with mp.workdps(50):
        for _ in range(40):
            bound = {v: mpf(float(rng.normal())) for v in variables(law.left)}
            try:
                left = high(law.left, bound)
            except (ValueError, ZeroDivisionError):
                continue
            if isinstance(left, mpmath.mpc):
                continue  # outside the domain
            right = high(law.right, bound)
            assert abs(left - right) <= mpf(10) ** -40 * max(1, abs(left)), (law.text, bound)
            tried += 1
    assert tried > 5


def weight(pattern: Pattern, fixed: dict[int, float]) -> float:
    """What rewriting lowers first. Constants count 1, also where they still are to be folded."""
    op = pattern[0]
    if op is INPUT or not op.arity or set(variables(pattern)) <= set(fixed):
        return 1
    own = {ops.neg: 1, ops.add: 4, ops.sub: 4, ops.div: 5}.get(op, 3 if op.transcendental else 2)
    return own + sum(weight(p, fixed) for p in pattern[1:])


def under_negations(pattern: Pattern, fixed: dict[int, float]) -> float:
    """The weights of what negations apply to, summed up: it grows as they move out."""
    if not pattern[0].arity or set(variables(pattern)) <= set(fixed):
        return 0
    own = weight(pattern[1], fixed) if pattern[0] is ops.neg else 0
    return own + sum(under_negations(p, fixed) for p in pattern[1:])


def negative_constants(pattern: Pattern, fixed: dict[int, float]) -> int:
    if set(variables(pattern)) <= set(fixed):
        return int(single(pattern, dict(fixed)) < 0)
    return sum(negative_constants(p, fixed) for p in pattern[1:]) if pattern[0].arity else 0


def measure(pattern: Pattern, fixed: dict[int, float]) -> tuple[float, float, int]:
    """The term order: lighter, then negations further out, then fewer negative constants.

    A weight is a sum over nodes and no law repeats a variable: lighter parts make lighter wholes;
    a step of equal weight leaves what outer negations apply to as heavy as it was.
    """
    return (
        weight(pattern, fixed),
        -under_negations(pattern, fixed),
        negative_constants(pattern, fixed),
    )


@pytest.mark.parametrize("law", LAWS, ids=name)
def test_laws_descend(law: Law) -> None:
    assert variables(law.right) <= variables(law.left), "a variable is repeated or new"
    for fixed in constants_of(law):
        assert measure(law.right, fixed) < measure(law.left, fixed), fixed


def test_laws_are_different() -> None:
    assert [t for t, count in Counter(law.text for law in LAWS).items() if count > 1] == []


@pytest.mark.parametrize("law", [law for law in LAWS if law.guard], ids=name)
def test_guards_take_any_constant(law: Law) -> None:
    assert law.guard
    graph = Graph()
    for values in itertools.product(CONSTANTS, repeat=len(law.guard.variables)):
        law.guard.holds(Facts(graph), *[graph.constant(v) for v in values])


def instance(law: Law) -> tuple[Graph, int, int]:
    """Both sides in one graph, the variables such that the guard is proven."""
    graph = Graph()
    graph.tracing = False
    types = kinds(law.left)
    graph.input("spare")
    bound: dict[int, Any] = {}
    fixed = next(iter(constants_of(law)))
    for v, kind in sorted(types.items()):
        x = Expr(graph, graph.input(f"x{v}"))
        bound[v] = {"f": x, "b": x < 1.0, "u": uint32(x)}[kind]
    if law.guard and not law.guard.structural:
        for v in law.guard.variables:
            bound[v] = PROVEN[law.guard.text.partition("(")[0]](bound[v])
    bound |= fixed

    def build(p: Pattern) -> Any:
        if p[0] is INPUT:
            return bound[p[1]]
        if p[0] is CONST:
            return Graph.leaf_value(p)
        if not p[0].arity:
            return Word(graph, graph.intern(p))
        args = [build(q) for q in p[1:]]
        if all(isinstance(a, float) for a in args):
            return float(p[0].reference(*[np.float64(a) for a in args]))
        return p[0](*args)

    left, right = build(law.left), build(law.right)
    right = graph.constant(right) if isinstance(right, float) else right.id
    left = graph.constant(left) if isinstance(left, float) else left.id
    return graph, left, right


@pytest.mark.parametrize("law", LAWS, ids=name)
def test_laws_are_applied(law: Law) -> None:
    graph, left, right = instance(law)
    level = True if law.strength == "exact" or (law.guard and not law.guard.structural) else "real"
    simpler, (a, b) = simplify(graph, [left, right], level)
    verify(simpler, [a, b])
    assert a == b, f"{law.text}: {simpler.nodes}"
