"""Values of operations that NumPy has no function for: their definitions in float64, run by NumPy.

A definition is written as a Python function of as few local variables as its values need at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import Op, reachable
from symgrad.expr.semantics.evaluate import leaf
from symgrad.mathlib.define import DOUBLE, INLINE, Formula, define

Array = Any

NUMBERS_AT_A_TIME: Final = 2**19
"""Numbers in all variables together, about: they are to stay in the processor's caches."""

OPERATORS: Final[dict[Op, str]] = {
    ops.add: "{} + {}", ops.sub: "{} - {}", ops.mul: "{} * {}", ops.div: "{} / {}", ops.neg: "-{}",
    ops.lt: "{} < {}", ops.le: "{} <= {}", ops.reciprocal: "1.0 / {}", ops.opaque: "+{}",
}  # fmt: skip
"""Operators of Python, which compute of single numbers in less time than NumPy's functions do."""


def _where(condition: Any, a: Any, b: Any) -> Any:
    """NumPy's choice, of single numbers without its overhead."""
    if isinstance(condition, np.bool_):
        return a if condition else b
    return np.where(condition, a, b)


class Written(NamedTuple):
    """A definition as a Python function, and of how many local variables."""

    run: Callable[..., Array]
    variables: int


def value(op: Op, *arguments: Array) -> Array:
    """The operation, computed in float64; its value has the type of the last argument."""
    written, given = written_out(op), [np.asarray(a) for a in arguments]
    dtype = given[-1].dtype
    with np.errstate(all="ignore"):
        if not any(a.ndim for a in given):
            return dtype.type(written.run(*map(np.float64, given)))
        wide = np.broadcast_arrays(*[np.asarray(a, np.float64) for a in given])
        result = np.empty(wide[0].shape, dtype)
        flat, columns = result.reshape(-1), [a.reshape(-1) for a in wide]
        block = NUMBERS_AT_A_TIME // written.variables
        for k in range(0, flat.size, block):
            flat[k : k + block] = written.run(*[column[k : k + block] for column in columns])
    return result


@cache
def written_out(op: Op) -> Written:
    """An operation's definition in float64."""
    function = define(op, _formula(op), "float64")
    graph, order = function.graph, reachable(function.graph, [function.root])
    last = {a: i for i in order for a in graph.args(i)}
    text = {i: f"v{k}" for k, i in enumerate(function.arguments)}
    head = f"def run({', '.join(text.values())}):"
    scope: dict[str, Any] = {"where": _where, "round": np.rint}
    lines, free, variables = [head], list[str](), len(text)
    for i in order:
        node = graph.nodes[i]
        of: Op = node[0]
        if i in text:
            continue
        if not of.arity:
            text[i] = f"c{i}"
            scope[text[i]] = leaf(node, np.float64)
            continue
        arguments = dict.fromkeys(graph.args(i))
        free += [text[a] for a in arguments if last[a] == i and graph.nodes[a][0].arity]
        if not free:
            free.append(f"v{variables}")
            variables += 1
        template = OPERATORS.get(of) or f"{of.name}({', '.join(['{}'] * of.arity)})"
        scope.setdefault(of.name, of.reference)
        call = template.format(*[text[a] for a in graph.args(i)])
        text[i] = free.pop()
        lines.append(f"    {text[i]} = {call}")
    lines.append(f"    return {text[function.root]}")
    exec("\n".join(lines), scope)
    return Written(scope["run"], variables)


def _formula(op: Op) -> Formula:
    """The definition in float64 that kernels have."""
    formula = DOUBLE.get(op) or INLINE.get(op) or op.compose
    assert formula, f"{op.name} has neither a reference nor a definition"
    return formula
