"""What is said of problems whose loops needed more turns than they may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from symgrad.errors import ExhaustedError, ExhaustedWarning, InputError, warn
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import deriving
from symgrad.expr.laws.exhausted import exhausted
from symgrad.kernel.plan import Computation, Output
from symgrad.pipeline import Options, simplified

if TYPE_CHECKING:
    from symgrad.report.expressions import Expressions

WhenExhausted = Literal["warn", "raise"]


def flags(expressions: Expressions, options: Options) -> Computation | None:
    """What computes 1 for a problem whose loops have not ended, else 0; None if all end."""
    graph = expressions.graph.copy()
    with deriving(graph):
        found = exhausted(graph, expressions.groups[0])
        if found is None:
            return None
        root = graph.add(ops.where, found, graph.constant(1.0), graph.constant(0.0))
    made, roots = simplified(graph, [root], options)
    return Computation(f"{options.name}_exhausted", made, (Output("exhausted", tuple(roots)),))


def require_choice(when: Any) -> None:
    """Refuse another choice than there is."""
    if when not in ("warn", "raise"):
        raise InputError(f'exhausted={when!r}: use "warn" or "raise", or None to go on with NaN')


def report(found: Any, when: WhenExhausted) -> None:
    """Say which problems did not end, of flags (...) that are 1 there.

    Raises:
        ExhaustedError: if that is asked for.
    """
    flat = np.ravel(np.asarray(found))
    count = int(np.count_nonzero(flat))
    if not count:
        return
    which = "the problem" if flat.size == 1 else f"{count:,} of {flat.size:,} problems"
    first = "" if flat.size == 1 else f", the first of them number {int(np.argmax(flat > 0))}"
    message = (
        f"{which} needed more turns than a loop may take{first}: the results are NaN there; give "
        "the loop more max_steps"
    )
    if when == "raise":
        raise ExhaustedError(message)
    warn(message, ExhaustedWarning)
