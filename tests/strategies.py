"""Random graphs drawn from the op table: a new row is drawn by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Op, inputs_of, reachable
from symgrad.expr.graph.rebuild import Copy, rebuild
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Condition, Expr

Choose = Callable[[int], int]
"""``choose(m)`` is one of 0, 1, .., m - 1."""

CONSTANTS: Final = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, -0.75, 8.0, 1e-30, 1e30)
EXPONENTS: Final = (2, 3, -1, -2, 4, 5)


def types(op: Op) -> str:
    """The types of an operation's arguments."""
    return op.signature.split("->")[0]


CONTINUED: Final = (
    ops.gamma_density, ops.beta_density, ops.faddeeva_real, ops.faddeeva_imag,
    ops.faddeeva_real_slope, ops.faddeeva_imag_slope, ops.faddeeva_real_bend,
    ops.faddeeva_imag_bend, ops.voigt_profile,
)  # fmt: skip
"""Rows that mpmath continues to where they are NaN, negative shapes and widths."""

ENDING: Final = (ops.gammainc, ops.gammaincc, ops.gammainc_slope, ops.betainc, ops.betaincc)
"""Rows whose derivatives by a shape end with the first or the second one, and continued as well."""


def drawable(op: Op) -> bool:
    """Whether a row is an operation on floats and conditions, as users call them.

    It has derivatives of all orders by all of its arguments, and is NaN where mpmath has no number.
    """
    if op in CONTINUED or op in ENDING:
        return False
    derived = op.result == "b" or bool(op.partials or op.vjp or op.compose) and not op.parameters
    return bool(op.arity) and op.result in "fb" and set(types(op)) <= set("fbi") and derived


OPS: Final = tuple(op for op in ops.TABLE.values() if drawable(op))
ARITHMETIC: Final = (
    ops.add, ops.sub, ops.mul, ops.div, ops.neg, ops.reciprocal, ops.integer_pow, ops.abs, ops.sqrt,
    ops.where, ops.lt, ops.le, ops.logical_and, ops.logical_not, ops.minimum, ops.maximum,
)  # fmt: skip
"""What most laws are about."""

CALLABLE: Final = tuple(
    op for op in OPS
    if hasattr(sg, op.name) or op in (ops.add, ops.sub, ops.mul, ops.div, ops.neg, ops.lt, ops.le,
                                      ops.eq, ops.ne, ops.integer_pow)
)  # fmt: skip
"""What users can write."""

SMOOTH: Final = tuple(
    op for op in OPS
    if op.result == "f" and (op.partials or op.compose) and op not in (
        ops.abs, ops.sign, ops.floor, ops.ceil, ops.round, ops.trunc, ops.fract, ops.floor_divide,
        ops.remainder, ops.fmod, ops.copysign, ops.clip, ops.stop_gradient, ops.pow,
    )
)  # fmt: skip
"""Rows without kinks or jumps."""


@dataclass(frozen=True)
class Drawn:
    """A random graph: its inputs, and every float expression in it, the last drawn last."""

    graph: Graph
    inputs: list[Expr]
    floats: list[Expr]

    @property
    def ids(self) -> list[int]:
        return [x.id for x in self.inputs]

    @property
    def root(self) -> int:
        return self.floats[-1].id

    def __repr__(self) -> str:  # what hypothesis prints of a failing example
        rows = [f"{i}: {node[0].name}{node[1:]}" for i, node in enumerate(self.graph.nodes)]
        return f"root {self.root} of\n" + "\n".join(rows)


def draw_graph(
    choose: Choose, inputs: int = 3, size: int = 12, table: Sequence[Op] = OPS,
    constants: Sequence[float] = CONSTANTS,
) -> Drawn:  # fmt: skip
    """A graph of ``size`` operations; none of them has constants only as arguments."""
    graph = Graph()
    graph.tracing = False
    variables = [Expr(graph, graph.input(f"x{k}")) for k in range(inputs)]
    floats: list[Any] = list(variables)
    conditions: list[Any] = []
    for _ in range(size):
        op = table[choose(len(table))]
        value = op(*_arguments(choose, types(op), floats, conditions, constants))
        (conditions if isinstance(value, Condition) else floats).append(value)
    return Drawn(graph, variables, floats)


def _arguments(
    choose: Choose, wanted: str, floats: list[Any], conditions: list[Any],
    constants: Sequence[float],
) -> list[Any]:  # fmt: skip
    made: list[Any] = []
    for kind in wanted:
        if kind == "i":
            made.append(EXPONENTS[choose(len(EXPONENTS))])
        elif kind == "b":
            if not conditions or not choose(4):
                conditions.append(floats[choose(len(floats))] < floats[choose(len(floats))])
            made.append(conditions[choose(len(conditions))])
        elif made and constants and not choose(4):
            made.append(constants[choose(len(constants))])
        else:
            made.append(floats[-1 - choose(min(len(floats), 8))])
    if made and constants and wanted == "ff" and not isinstance(made[1], float) and not choose(4):
        made[0] = constants[choose(len(constants))]
    return made


def random_graph(seed: int, **options: Any) -> Drawn:
    """The graph of a seed."""
    return draw_graph(random.Random(seed).randrange, **options)


def copied(graph: Graph, root: int, variables: Sequence[Any]) -> Expr:
    """A node, and what it needs, in the graph of other variables."""
    copy = Copy(variables[0].graph, {i: variables[graph.nodes[i][1]].id for i in inputs_of(graph)})
    rebuild(graph, reachable(graph, [root]), copy)
    return Expr(copy.graph, copy.ids[root])


def graphs(size: int = 12, **options: Any) -> st.SearchStrategy[Drawn]:
    """Graphs for hypothesis, which shrinks them."""

    @st.composite
    def strategy(draw: Any) -> Drawn:
        count = draw(st.integers(1, size))
        return draw_graph(lambda m: draw(st.integers(0, m - 1)), size=count, **options)

    return strategy()


EDGES: Final = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-45,
        1.2e-38,
        -1.2e-38,
        3.4e38,
        -3.4e38,
        0.5,
        -0.5,
        2.0,
        -3.0,
        1.5,
        1e-20,
        -1e20,
        7.25,
        -0.1,
        88.0,
        1000000.0,
    ],
    np.float32,
)


def points(n: int, count: int = 200, seed: int = 0) -> np.ndarray:
    """Points (n, count) of float32: edge values among ordinary ones."""
    rng = np.random.default_rng(seed)
    ordinary = rng.normal(scale=2.0, size=(n, count)).astype(np.float32)
    return np.where(rng.random((n, count)) < 0.5, rng.choice(EDGES, (n, count)), ordinary)


def values(graph: Graph, roots: Sequence[int], at: np.ndarray, dtype: Any = np.float32) -> Any:
    """The roots (m, count) at points (n, count)."""
    given = dict(zip(inputs_of(graph), np.asarray(at, dtype), strict=True))
    found = evaluate_graph(graph, roots, given, dtype)
    return np.array(found, dtype).reshape(len(roots), np.shape(at)[1])


def bits(a: Any) -> np.ndarray:
    """The bits of floats, every NaN the same."""
    a = np.ascontiguousarray(a)
    words = a.view({4: np.uint32, 8: np.uint64}[a.itemsize])
    return np.where(np.isnan(a), np.array(-1).astype(words.dtype), words)
