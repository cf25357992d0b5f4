"""Values of operations that NumPy has no function for: their definitions in float64, run by NumPy.

A definition is a list of steps on registers, which later values reuse as soon as they may.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import Op, reachable
from symgrad.expr.semantics.evaluate import leaf
from symgrad.mathlib.define import DOUBLE, INLINE, Formula, define

Array = Any

BLOCK: Final = 2**12
"""How many numbers are computed at once: their registers stay in the processor's cache."""


def _where(condition: Any, a: Any, b: Any) -> Any:
    """NumPy's choice, of single numbers without its overhead."""
    if isinstance(condition, np.bool_):
        return a if condition else b
    return np.where(condition, a, b)


OPERATORS: Final[dict[Op, Callable[..., Any]]] = {
    ops.add: operator.add, ops.sub: operator.sub, ops.mul: operator.mul, ops.div: operator.truediv,
    ops.neg: operator.neg, ops.abs: operator.abs, ops.lt: operator.lt, ops.le: operator.le,
    ops.where: _where,
}  # fmt: skip
"""Operators that take single numbers in less time than NumPy's functions do, to the same values."""


class Step(NamedTuple):
    """``function`` of some registers, to be stored in another."""

    function: Callable[..., Array]
    result: int
    arguments: tuple[int, ...]


class Steps(NamedTuple):
    """A definition: its first registers are the arguments, others hold constants."""

    registers: tuple[Any, ...]
    steps: tuple[Step, ...]
    root: int

    def run(self, arguments: Sequence[Array]) -> Array:
        """The value of float64 arguments."""
        values = [*arguments, *self.registers[len(arguments) :]]
        for function, result, places in self.steps:
            values[result] = function(*[values[place] for place in places])
        return values[self.root]


def value(op: Op, *arguments: Array) -> Array:
    """The operation, computed in float64; its value has the type of the last argument."""
    steps, given = steps_of(op), [np.asarray(a) for a in arguments]
    dtype = given[-1].dtype
    with np.errstate(all="ignore"):
        if not any(a.ndim for a in given):
            return dtype.type(steps.run([np.float64(a) for a in given]))
        wide = np.broadcast_arrays(*[np.asarray(a, np.float64) for a in given])
        result = np.empty(wide[0].shape, dtype)
        flat, columns = result.reshape(-1), [a.reshape(-1) for a in wide]
        for k in range(0, flat.size, BLOCK):
            flat[k : k + BLOCK] = steps.run([column[k : k + BLOCK] for column in columns])
    return result


@cache
def steps_of(op: Op) -> Steps:
    """The steps of an operation's definition in float64."""
    function = define(op, _formula(op), "float64")
    graph, registers = function.graph, [None for _ in function.arguments]
    order = reachable(graph, [function.root])
    last = {a: i for i in order for a in graph.args(i)}
    place = {i: k for k, i in enumerate(function.arguments)}
    free, steps = list[int](), list[Step]()
    for i in order:
        node = graph.nodes[i]
        of: Op = node[0]
        if of.arity:
            places = tuple(place[a] for a in graph.args(i))
            over = {a for a in graph.args(i) if last[a] == i and graph.nodes[a][0].arity}
            free += [place[a] for a in over]
            if not free:
                free.append(len(registers))
                registers.append(None)
            place[i] = free.pop()
            steps.append(Step(OPERATORS.get(of, of.reference), place[i], places))
        elif i not in place:
            place[i] = len(registers)
            registers.append(leaf(node, np.float64))
    return Steps(tuple(registers), tuple(steps), place[function.root])


def _formula(op: Op) -> Formula:
    """The definition in float64 that kernels have."""
    formula = DOUBLE.get(op) or INLINE.get(op) or op.compose
    assert formula, f"{op.name} has neither a reference nor a definition"
    return formula
