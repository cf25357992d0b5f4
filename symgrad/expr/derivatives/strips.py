"""Checkpoints: a loop over strips, each a loop of a part of the iterations.

Its transpose keeps the carries at the start of each strip, and runs the strip again, keeping them
at each iteration: of n iterations some sqrt(n) are kept twice instead of n, for one more forward
run. A strip that is too long itself is run in strips again. The loop over
strips of a loop with a test goes on as long as they take all of their iterations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.derivatives.cotangents import PLAIN
from symgrad.expr.graph.arrays import size_of
from symgrad.expr.graph.node import TRUTH, WORD, Graph
from symgrad.expr.graph.region import TURNS, Loop, close, loop_op, pick
from symgrad.expr.laws.fuse import LoopsInStrips

KEPT_NUMBERS: Final = 2**12
"""Numbers that a loop keeps for each point, at most, if nothing is known of the device."""

NUMBERS_PER_STRIP: Final = 2**6
"""Numbers that a strip keeps if it can: an invocation of a GPU has them in its own memory."""

Checkpoint = Literal["auto", "keep", "sqrt"] | int
"""The values that loops keep for their transposes: those that "auto" takes to be best, all of them,
or the carries into strips of sqrt(n) iterations, or of this many."""

CHECKPOINTS: Final = get_args(get_args(Checkpoint)[0])


def require_checkpoint(choice: Checkpoint) -> None:
    """Refuse what is no choice of what loops keep."""
    if choice not in CHECKPOINTS and (not isinstance(choice, int) or choice < 2):
        raise InputError(
            f'checkpoint={choice!r}: use "auto", "keep" for all, "sqrt" for strips of sqrt(n) of a '
            "loop's n iterations, or the number of iterations of a strip, at least 2"
        )


@dataclass(frozen=True)
class MemoryBudget:
    """How much loops may keep of their iterations on a device: numbers for each point.

    Up to ``near`` are in its caches, and are kept. Up to ``most`` are in its memory: they are kept
    where it takes ``worth`` additions, or more, to compute each again.
    """

    near: int = KEPT_NUMBERS
    most: int = KEPT_NUMBERS
    worth: int = 0

    @property
    def starts(self) -> int:
        """Numbers that are carried into all strips together, read once in many iterations."""
        return max(self.near, min(KEPT_NUMBERS, self.most))

    def keeps(self, numbers: int, cost: int) -> bool:
        """Whether this many numbers are kept, which take ``cost`` additions together."""
        return numbers <= self.near or (numbers <= self.most and cost >= self.worth * numbers)


UNKNOWN_DEVICE: Final = MemoryBudget()
"""The memory of a device of which nothing is known."""


@dataclass(frozen=True)
class CheckpointPolicy:
    """How much loops keep of their iterations: the user's choice, and the memory for the default.

    It is a note of the graph whose loops are differentiated.
    """

    choice: Checkpoint = "auto"
    budget: MemoryBudget = UNKNOWN_DEVICE


def strip_length(op: Loop, numbers: int, keeping: CheckpointPolicy) -> int:
    """The iterations of a strip of a loop that keeps this many numbers; 0 if it has no strips."""
    choice, budget = keeping.choice, keeping.budget
    if op.most is None or not numbers or choice == "keep":
        return 0
    root = math.isqrt(max(op.most, 1) - 1) + 1
    if choice == "auto":
        if budget.keeps(numbers, op.most * sum(node[0].cost for node in op.body.graph.nodes)):
            return 0
        length = _shortest(op.most, -(-numbers // op.most), root, budget.starts)
    else:
        length = root if choice == "sqrt" else choice
    return length if length < op.most else 0


def _shortest(iterations: int, each: int, root: int, starts: int) -> int:
    """A strip that stays near if what there is at the start of all fits; else sqrt(n), or more.

    Sums within one that is so short need no care.
    """
    near = min(NUMBERS_PER_STRIP // each, PLAIN)
    fits = near and -(-iterations // near) * each <= starts // 2
    return near if fits and near < root else max(root, -(-iterations * each // max(1, starts)))


def in_strips(graph: Graph, i: int, length: int) -> dict[int, int]:
    """The results, by number, of a loop that does the same as loop i in strips of this length."""
    op, lo, hi, *arguments = graph.nodes[i]
    zero, size = graph.intern((WORD, 0)), graph.intern((WORD, length))
    iterations = graph.add(
        ops.word_where, graph.add(ops.word_lt, lo, hi), graph.add(ops.word_sub, hi, lo), zero
    )
    last = graph.add(ops.word_add, iterations, graph.intern((WORD, length - 1)))
    strips = graph.add(ops.word_div, last, size)
    inits, captures = op.split(arguments)
    if op.test:
        inits += [zero, graph.intern((TRUTH, 1))]
    mined = strip_mined(op, length)
    loop = graph.add(mined, zero, strips, *inits, *captures, lo, hi)
    types = op.body.types(op.body.yields[: op.carries])
    results = {j: pick(graph, loop, j, kind) for j, kind in enumerate(types)}
    return results | ({TURNS: pick(graph, loop, op.carries, "u")} if op.test else {})


def strip_mined(op: Loop, length: int) -> Loop:
    """The loop over strips; its captures are those of the loop, and then the bounds of that one.

    With a test it carries two more: how many iterations have been taken, and whether that goes on.
    """
    assert op.most is not None, "strips are counted"
    body, outer = op.body.graph, Graph()
    outer.tracing, outer.sources, outer.place = False, body.sources, body.places[-1]
    n, *params = [
        outer.input(name, body.type(p), size_of(body, p))
        for p, name in zip(op.body.params, body.names, strict=True)
    ]
    lo, hi = outer.input("first", "u"), outer.input("end", "u")
    more = [outer.input("turns", "u"), outer.input("going", "b")] if op.test else []
    size = outer.intern((WORD, length))
    start = outer.add(ops.word_add, lo, outer.add(ops.word_mul, n, size))
    end = outer.add(ops.word_min, outer.add(ops.word_add, start, size), hi)
    strip = outer.add(strip_of(op, length), start, end, *params)
    carries, captures = op.split(params)
    results = [pick(outer, strip, j, outer.type(c)) for j, c in enumerate(carries)]
    if op.test:
        results += _counted(outer, strip, more, length)
    region, _ = close(outer, [n, *carries, *more, *captures, lo, hi], [*results, *more[1:]])
    count = op.carries + len(more)
    return loop_op(region, count, op.test, op.down, -(-op.most // length))


def strip_of(op: Loop, length: int) -> Loop:
    """The loop over the iterations of one strip."""
    return loop_op(op.body, op.carries, op.test, op.down, length)


def lengths_of_strips(graph: Graph) -> tuple[int, ...]:
    """The iterations of the strips of all loops that were differentiated in strips."""
    return tuple(sorted({_length_of_strips(graph, i) for i in graph.note(LoopsInStrips)}))


def _length_of_strips(graph: Graph, i: int) -> int:
    """The iterations of a strip of the loop of which node i is a result."""
    op = graph.nodes[graph.nodes[graph.note(LoopsInStrips)[i]][1]][0]
    strips = (node[0] for node in op.body.graph.nodes if isinstance(node[0], Loop))
    return next(strips).most or 0


def _counted(graph: Graph, strip: int, more: Sequence[int], length: int) -> list[int]:
    """The iterations up to the end of this strip, and whether it took all it may."""
    taken = pick(graph, strip, TURNS, "u")
    all_taken = graph.add(ops.word_lt, graph.intern((WORD, length - 1)), taken)
    return [graph.add(ops.word_add, more[0], taken), all_taken]
