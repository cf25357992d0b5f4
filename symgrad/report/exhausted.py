"""What is said of problems, or rows, whose loops needed more iterations than they may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from symgrad.errors import ExhaustedError, ExhaustedWarning, InputError, warn
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import deriving
from symgrad.expr.graph.node import Graph
from symgrad.expr.laws.exhausted import exhausted
from symgrad.kernel.shapes import Computation, Output
from symgrad.pipeline import Options, simplified
from symgrad.report.expressions import Expressions

WhenExhausted = Literal["warn", "raise"]


def flags(expressions: Expressions, options: Options) -> Computation | None:
    """What computes 1 for a problem whose loops have not ended, else 0; None if all end."""
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


def require_choice(when: Any) -> None:
    """Refuse another choice than there is."""
    if when not in ("warn", "raise"):
        raise InputError(f'exhausted={when!r}: use "warn" or "raise", or None to go on with NaN')


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
