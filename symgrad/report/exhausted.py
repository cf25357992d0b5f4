"""Loops that need more iterations than they may take: the condition, and what is said of it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from symgrad.errors import ExhaustedError, ExhaustedWarning, InputError, warn
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import deriving
from symgrad.expr.graph.node import TRUTH, WORD, Graph, reachable
from symgrad.expr.graph.region import (
    TURNS,
    Choice,
    Loop,
    Region,
    choice_op,
    close,
    has_regions,
    hole,
    loop_op,
    pick,
)
from symgrad.expr.laws.fuse import copied
from symgrad.kernel.shapes import Computation, Output
from symgrad.pipeline import Options, simplified
from symgrad.report.audit import Expressions


def exhausted(graph: Graph, roots: Sequence[int]) -> int | None:
    """The condition that any loop which the roots need has not ended; None where all do.

    That is a loop with a test that still holds after the most iterations there may be, or one that
    counts further; in a loop around it, in any iteration.
    """
    conditions = list[int | None]()
    for i in reachable(graph, roots) if has_regions(graph) else ():
        op = graph.nodes[i][0]
        if isinstance(op, Loop):
            conditions += [_own(graph, i, op), _of_any_iteration(graph, i, op)]
        elif isinstance(op, Choice):
            conditions.append(_of_a_side(graph, i, op))
    return _any(graph, conditions)


def _any(graph: Graph, conditions: Iterable[int | None]) -> int | None:
    present = [c for c in conditions if c is not None]
    return (
        functools.reduce(lambda a, b: graph.add(ops.logical_or, a, b), present) if present else None
    )


def _own(graph: Graph, i: int, op: Loop) -> int | None:
    """Whether loop i itself has not ended."""
    lo, hi, *rest = graph.args(i)
    if op.most is None:
        return None
    if op.test:
        picks = [pick(graph, i, j, t) for j, t in enumerate(_types(op))]
        last = graph.add(ops.word_add, lo, pick(graph, i, TURNS, "u"))
        values = dict(zip(op.body.params, [last, *picks, *rest[op.carries :]], strict=True))
        test = Region(op.body.graph, op.body.params, op.body.yields[op.carries :])
        return copied(graph, test, values)[0]
    first, end = graph.nodes[lo], graph.nodes[hi]
    if first[0] is end[0] is WORD and end[1] - first[1] <= op.most:
        return None
    latest = graph.add(ops.word_add, lo, graph.intern((WORD, op.most)))
    return graph.add(ops.word_lt, latest, hi)


def _types(op: Loop) -> str:
    return op.body.types(op.body.params[1 : 1 + op.carries])


def _of_any_iteration(graph: Graph, i: int, op: Loop) -> int | None:
    """Whether a loop within loop i has not ended in some iteration, which a loop like i carries."""
    inner, m, params = op.body.copy(), op.carries, op.body.params
    within = exhausted(inner, op.body.yields)
    if within is None:
        return None
    before = hole(inner, "b", name="exhausted")
    after = inner.add(ops.logical_or, before, within)
    yields = [*op.body.yields[:m], after, *op.body.yields[m:]]
    region, _ = close(inner, [*params[: m + 1], before, *params[m + 1 :]], yields)
    wide = loop_op(region, m + 1, op.test, op.down, op.most)
    arguments = graph.args(i)
    not_yet = graph.intern((TRUTH, 0))
    return pick(graph, graph.add(wide, *arguments[: m + 2], not_yet, *arguments[m + 2 :]), m, "b")


def _of_a_side(graph: Graph, i: int, op: Choice) -> int | None:
    """Whether a loop within the side that choice i takes has not ended."""
    inner = op.body.copy()
    sides = [exhausted(inner, side) for side in op.sides()]
    if sides == [None, None]:
        return None
    yields = [inner.intern((TRUTH, 0)) if s is None else s for s in sides]
    region, _ = close(inner, op.body.params, yields)
    return pick(graph, graph.add(choice_op(region, 1), *graph.args(i)), 0, "b")


# --- what is said of it ---------------------------------------------------------------------------


WhenExhausted = Literal["warn", "raise"]


def flags(expressions: Expressions, options: Options) -> Computation | None:
    """A computation of 1 for problems whose loops have not ended, else 0; None if all end."""
    graph = expressions.graph.copy()
    root = flag(graph, expressions.groups[0])
    if root is None:
        return None
    simple, roots = simplified(graph, [root], options)
    return Computation(f"{options.name}_exhausted", simple, (Output("exhausted", tuple(roots)),))


def flag(graph: Graph, roots: Sequence[int]) -> int | None:
    """1 where a loop that the roots need has not ended, else 0; None if all end."""
    with deriving(graph):
        condition = exhausted(graph, roots)
        if condition is None:
            return None
        return graph.add(ops.where, condition, graph.constant(1.0), graph.constant(0.0))


def is_asked(when: Any) -> bool:
    """Whether loops that do not end are to be reported; other choices are refused."""
    if when not in (None, "warn", "raise"):
        raise InputError(f'exhausted={when!r}: use "warn" or "raise", or None to go on with NaN')
    return when is not None


def report(marks: Any, when: WhenExhausted) -> None:
    """Say which problems did not end, of flags (...) that are 1 there.

    Raises:
        ExhaustedError: if that is asked for.
    """
    flat = np.ravel(np.asarray(marks))
    count = int(np.count_nonzero(flat))
    if count and flat.size == 1:
        what = "the problem needed more iterations than a loop may take"
        _say(f"{what}: the results are NaN there", when)
    elif count:
        which, first = f"{count:,} of {flat.size:,} problems", int(np.argmax(flat > 0))
        _say(
            f"{which} needed more iterations than a loop may take, the first of them number "
            f"{first}: "
            "the results are NaN there",
            when,
        )


def report_rows(count: int, of: int, when: WhenExhausted) -> None:
    """Say of how many rows of a table loops did not end.

    Raises:
        ExhaustedError: if that is asked for.
    """
    if count:
        _say(
            f"{count:,} of {of:,} rows needed more iterations than a loop may take: what they "
            "contribute is NaN",
            when,
        )


def _say(what: str, when: WhenExhausted) -> None:
    message = f"{what}; give the loop more max_steps"
    if when == "raise":
        raise ExhaustedError(message)
    warn(message, ExhaustedWarning)
