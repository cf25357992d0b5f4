"""Which operations are defined here rather than by a device, and their definitions as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.expression import Expr
from symgrad.expr.node import Graph, Node, Op, reachable
from symgrad.expr.reference import power_chain
from symgrad.expr.simplify import Definition, Rewriter, inputs_of, simplify
from symgrad.mathlib import (
    error_function,
    exponential,
    hyperbolic,
    inline,
    order,
    powers,
    quotient,
    trigonometric,
)

MATH: Final = ("accurate", "fast")
"""The choices of ``math=``."""

Formula = Callable[..., Expr]

INLINE: Final[tuple[Formula, ...]] = (
    inline.relu, inline.sigmoid, inline.logistic, inline.softplus, inline.logaddexp,
)  # fmt: skip
FORMULAS: Final[tuple[Formula, ...]] = (
    order.minimum, order.maximum, order.sign, quotient.remainder, quotient.fmod,
    powers.pow, powers.cbrt, powers.hypot,
    exponential.expm1, exponential.log1p, exponential.log10, exponential.exp_neg_square,
    hyperbolic.sinh, hyperbolic.cosh, hyperbolic.tanh,
    hyperbolic.asinh, hyperbolic.acosh, hyperbolic.atanh,
    trigonometric.asin, trigonometric.acos, trigonometric.atan, trigonometric.atan2,
    error_function.erf, error_function.erfc,
)  # fmt: skip
"""The definitions, each named as its operation."""


@dataclass(frozen=True)
class Function:
    """An operation that a back end emits as a function of its own, and calls.

    ``graph`` is simplified and holds nothing but the definition; it may use operations that are
    functions themselves, never in a circle. ``arguments`` are its input nodes, in order.
    """

    op: Op
    name: str
    graph: Graph
    root: int
    arguments: tuple[int, ...]
    doc: str


@cache
def functions(math: str) -> Mapping[Op, Function]:
    """The operations to be emitted as functions; some call others of them, never in a circle.

    With ``math="fast"``, only those that WGSL lacks or has wrong by design: a row of the op table
    that carries a WGSL text is then left to the device.

    Raises:
        InputError: for a name that is not in `MATH`.
    """
    _require(math)
    formulas = [f for f in FORMULAS if math == "accurate" or not ops.TABLE[f.__name__].wgsl]
    return MappingProxyType({ops.TABLE[f.__name__]: _function(f) for f in formulas})


@cache
def inlined(math: str) -> Mapping[Op, Definition]:
    """The operations that ``simplify(..., definitions=)`` expands, and how.

    Raises:
        InputError: for a name that is not in `MATH`.
    """
    _require(math)
    expanded: dict[Op, Definition] = {ops.TABLE[f.__name__]: _expansion(f) for f in INLINE}
    return MappingProxyType(
        {**expanded, ops.integer_pow: _expand_integer_pow, ops.pow: _expand_pow}
    )


def _require(math: str) -> None:
    if math not in MATH:
        choices = " or ".join(f'"{name}"' for name in MATH)
        raise InputError(f"math={math!r} is not a choice: use {choices}")


@cache
def _function(formula: Formula) -> Function:
    op = ops.TABLE[formula.__name__]
    traced, root = _trace(formula)
    graph, (root,) = simplify(traced, [root], True, inlined("accurate"))
    doc = (formula.__doc__ or "").partition("\n")[0]
    return Function(op, f"sg_{op.name}", graph, root, tuple(inputs_of(graph)), doc)


@cache
def _trace(formula: Formula) -> tuple[Graph, int]:
    """The graph of a definition, whose inputs are named as its parameters, and its root."""
    graph = Graph()
    graph.tracing = False
    code = formula.__code__
    names = code.co_varnames[: code.co_argcount]
    return graph, formula(*[Expr(graph, graph.input(name)) for name in names]).id


def _expansion(formula: Formula) -> Definition:
    """The definition that writes the formula's graph into a rewriter's."""

    def expand(rewriter: Rewriter, *arguments: int) -> int:
        return _replay(_formula_steps(formula), rewriter, arguments)

    return expand


@cache
def _formula_steps(formula: Formula) -> Steps:
    return _steps(*_trace(formula))


def _expand_integer_pow(rewriter: Rewriter, x: int, exponent: int) -> int:
    """x**k by the products of `power_chain`; a reciprocal at the end if k < 0."""
    k: int = rewriter.graph.nodes[exponent][1]
    if k == 0:
        return rewriter.constant(1.0)
    power = _replay(_power(abs(k)), rewriter, (x,))
    return rewriter.make(ops.reciprocal, power) if k < 0 else power


def _expand_pow(rewriter: Rewriter, x: int, exponent: int) -> int:
    """x**1.5 as x * sqrt(x); the function for all other exponents."""
    if rewriter.graph.value(exponent) == 1.5:
        return rewriter.make(ops.mul, x, rewriter.make(ops.sqrt, x))
    return rewriter.graph.add(ops.pow, x, exponent)


Steps = tuple[Node, ...]
"""A graph as a list of nodes, whose ids are positions: inputs first, then these, the root last."""


@cache
def _power(k: int) -> Steps:
    graph = Graph()
    graph.tracing = False
    return _steps(graph, power_chain(Expr(graph, graph.input("x")), k).id)


def _steps(graph: Graph, root: int) -> Steps:
    position = {i: k for k, i in enumerate(inputs_of(graph))}
    steps: list[Node] = []
    for i in reachable(graph, [root]):
        if i not in position:
            node = graph.nodes[i]
            steps.append((node[0], *[position[a] for a in node[1:]]) if node[0].arity else node)
            position[i] = len(position)
    return tuple(steps)


def _replay(steps: Steps, rewriter: Rewriter, arguments: tuple[int, ...]) -> int:
    made = list(arguments)
    for step in steps:
        if step[0].arity:
            made.append(rewriter.make(step[0], *[made[a] for a in step[1:]]))
        else:
            made.append(rewriter.graph.intern(step))
    return made[-1]
