"""Sums of many terms, carried with their rounding errors: the hundred-thousandth is not lost."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from symgrad.expr import ops
from symgrad.expr.derivatives.cotangents import balanced_sum
from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.region import Loop, close, hole, loop_op
from symgrad.expr.laws.laws import FLOAT32_LARGEST

LEAST_ITERATIONS: Final = 2**12
"""Iterations from which on the sums that a loop carries are compensated."""

PLAIN: Final = 2**5
"""Terms of a sum that is one of those of another sum up to which it is not compensated."""

MOST_TERMS: Final = 64
"""Terms of a sum up to which the carry is looked for among them."""


def compensated(op: Loop, runs: int = 1, anew: Container[int] = ()) -> tuple[Loop, int]:
    """The loop, and how many carries it has more, each 0 at first, behind its own.

    A carry x that becomes a sum x + d has another one, what its sums have lost by rounding: it is
    added to the next d (Dekker's sum, exact where d is the smaller). No derivative sees it. The
    iterations that count are those of all ``runs``, as a sum may go on from run to run, but for
    carries ``anew``, which begin at 0 in each, and have few terms. A loop inside has iterations as
    well.
    """
    terms = (op.most or 0) * _iterations_inside(op)
    if terms * runs < LEAST_ITERATIONS:
        return op, 0
    short = terms <= PLAIN
    graph, m, yields = op.body.copy(), op.carries, list(op.body.yields)
    k, *params = op.body.params
    errors: list[int] = []
    lost: list[int] = []
    for j in range(m):
        term = None if short and j in anew else _term(graph, params[j], yields[j])
        if term is not None:
            name = f"{graph.names[1 + j]}_error"
            graph.place = graph.places[yields[j]]
            errors.append(hole(graph, "f", name=name))
            yields[j], after = _two_sum(graph, params[j], graph.add(ops.add, term, errors[-1]))
            lost.append(after)
    region, _ = close(
        graph, [k, *params[:m], *errors, *params[m:]], [*yields[:m], *lost, *yields[m:]]
    )
    return loop_op(region, m + len(lost), op.test, op.down, op.most), len(lost)


def _iterations_inside(op: Loop) -> int:
    """The most iterations of a loop inside an iteration of this one, with those inside that."""
    inside = (node[0] for node in op.body.graph.nodes if isinstance(node[0], Loop))
    return max(((loop.most or 1) * _iterations_inside(loop) for loop in inside), default=1)


def _two_sum(graph: Graph, x: int, d: int) -> tuple[int, int]:
    """x + d rounded, and what was lost by rounding."""
    total = graph.add(ops.opaque, graph.add(ops.add, x, d))
    taken = graph.add(ops.opaque, graph.add(ops.sub, total, x))
    finite = graph.add(ops.le, graph.add(ops.abs, total), graph.constant(FLOAT32_LARGEST))
    lost = graph.add(ops.where, finite, graph.add(ops.sub, d, taken), graph.constant(0.0))
    return total, graph.add(ops.stop_gradient, lost)


def _term(graph: Graph, carry: int, then: int) -> int | None:
    """The term added to a carry; None of a whole number, as those are counted exactly."""
    parts, terms = [(then, False)], list[int]()
    seen = 0
    while parts and len(terms) < MOST_TERMS:
        i, negative = parts.pop()
        op, *args = graph.nodes[i]
        if i == carry and not negative:
            seen += 1
        elif op is ops.add or op is ops.sub:
            parts += [(args[0], negative), (args[1], negative != (op is ops.sub))]
        else:
            terms.append(graph.add(ops.neg, i) if negative else i)
    if parts or seen != 1 or not terms:
        return None
    value = graph.value(terms[0])
    counted = len(terms) == 1 and value is not None and value.is_integer()
    return None if counted else balanced_sum(graph, terms)
