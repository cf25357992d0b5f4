"""THE OP TABLE: one row for each operation, with everything particular to it.

Meaning, derivatives, laws, domain, edge conventions, test points, cost (in units of an addition)
and the WGSL built-in stand here and nowhere else. Derivatives are in the forms that keep their
accuracy in float32; the textbook ones often do not (1 - tanh(x)**2 is 0 from x = 9 on).

The rows stand in files, by their kinds; what a file defines, this module has. Each file uses rows
of its own and of the files before it.
"""

from __future__ import annotations

import copyreg
from typing import Any, Final

from symgrad.errors import PickleError
from symgrad.expr.graph.node import LEAVES, Op
from symgrad.expr.ops.arithmetic import *
from symgrad.expr.ops.comparison import *
from symgrad.expr.ops.rounding import *
from symgrad.expr.ops.trigonometric import *
from symgrad.expr.ops.exponential import *
from symgrad.expr.ops.error_function import *
from symgrad.expr.ops.activations import *
from symgrad.expr.ops.primitives import *
from symgrad.expr.ops.gamma import *
from symgrad.expr.ops.bessel import *
from symgrad.expr.ops.elliptic import *
from symgrad.expr.ops.faddeeva import *
from symgrad.expr.ops.incomplete import *

TABLE: Final[dict[str, Op]] = {
    entry.name: entry for entry in (*LEAVES, *globals().values()) if isinstance(entry, Op)
}
"""Every row by its name."""


def row(name: str) -> Op:
    """The row of this name: how pickled graphs find their operations again."""
    return TABLE[name]


def _reduce(op: Op) -> tuple[Any, tuple[str]]:
    if TABLE.get(op.name) is not op:
        raise PickleError(
            f"{op.name} has a derivative written in Python, whose code a pickle cannot hold"
        )
    return row, (op.name,)


copyreg.pickle(Op, _reduce)
