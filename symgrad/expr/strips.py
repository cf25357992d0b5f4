"""Checkpoints: a loop over strips, each a loop of a part of the turns.

Its transpose keeps what is carried at the start of each strip, and runs the strip again, keeping
what is carried at each turn of that one: of n turns some sqrt(n) are kept twice instead of n, for
one more forward run. A strip that is too long itself is run in strips again.
"""

from __future__ import annotations

import math
from typing import Final

from symgrad.expr import ops
from symgrad.expr.arrays import size_of
from symgrad.expr.node import WORD, Graph
from symgrad.expr.region import Loop, close, loop_op, pick

KEPT: Final = 2**12
"""Numbers that a loop keeps for its transpose at most, for each point: 16 KiB in float32."""


def strip_length(op: Loop, numbers: int, kept: int = KEPT) -> int:
    """The turns of a strip of a loop that would keep so many numbers; 0 if it runs as it is."""
    if numbers <= kept or op.test or op.most is None:
        return 0
    each = -(-numbers // op.most)
    length = max(math.isqrt(op.most - 1) + 1, -(-op.most * each // max(1, kept)))
    return length if length < op.most else 0


def in_strips(graph: Graph, i: int, length: int) -> int:
    """The node of a loop that does the same as loop i in strips of ``length`` turns."""
    op, lo, hi, *given = graph.nodes[i]
    zero, size = graph.intern((WORD, 0)), graph.intern((WORD, length))
    turns = graph.add(
        ops.word_where, graph.add(ops.word_lt, lo, hi), graph.add(ops.word_sub, hi, lo), zero
    )
    last = graph.add(ops.word_add, turns, graph.intern((WORD, length - 1)))
    strips = graph.add(ops.word_div, last, size)
    return graph.add(strip_mined(op, length), zero, strips, *given, lo, hi)


def strip_mined(op: Loop, length: int) -> Loop:
    """The loop over strips; its captures are those of the loop, and then the bounds of that one."""
    assert op.most is not None and not op.test, "strips are counted"
    body, made = op.body.graph, Graph()
    made.tracing, made.sources, made.place = False, body.sources, body.places[-1]
    n, *params = [
        made.input(name, body.type(p), size_of(body, p))
        for p, name in zip(op.body.params, body.names, strict=True)
    ]
    lo, hi = made.input("first", "u"), made.input("end", "u")
    size = made.intern((WORD, length))
    start = made.add(ops.word_add, lo, made.add(ops.word_mul, n, size))
    end = made.add(ops.word_min, made.add(ops.word_add, start, size), hi)
    strip = made.add(loop_op(op.body, op.carries, False, op.down, length), start, end, *params)
    carries, _ = op.split(params)
    results = [pick(made, strip, j, made.type(c)) for j, c in enumerate(carries)]
    region, _ = close(made, [n, *params, lo, hi], results)
    return loop_op(region, op.carries, False, op.down, -(-op.most // length))
