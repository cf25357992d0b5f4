"""Reverse mode through loops and choices, by transposition, with checkpoints.

The transpose of a loop is a loop that goes the other way over the same counter. It carries the
cotangents of the loop's carries, and the sums of those of captures. The values that it reads are
residuals, which the loop keeps, one number an iteration: a loop that keeps them stands beside the
one that does not, until they are simplified to one. Loops inside are run again, keeping theirs, in
each iteration of the transpose; but where a loop writes an array that has to be restored, the loops
around it keep its residuals. The transpose of a choice is a choice between the transposes of its
sides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from symgrad.errors import DifferentiationError, InputError
from symgrad.expr import ops
from symgrad.expr.derivatives.adjoint_regions import (
    Demand,
    Source,
    TransposedRegion,
    transposed_choice,
    transposed_loop,
)
from symgrad.expr.derivatives.cotangents import PLAIN, Contribution, selected
from symgrad.expr.derivatives.sweep import RegionSweep, ReverseSweep, versions, zero_like
from symgrad.expr.graph.arrays import EMPTIES, size_of
from symgrad.expr.graph.node import TRUTH, WORD, Graph
from symgrad.expr.graph.place import resolve_places
from symgrad.expr.graph.region import TURNS, Choice, Loop, Pick, Region, close, hole, loop_op, pick
from symgrad.expr.laws.fuse import LoopsInStrips

# Checkpoints: a loop over strips, each a loop of a part of the iterations.
#
# Its transpose keeps the carries at the start of each strip, and runs the strip again, keeping them
# at each iteration: of n iterations some sqrt(n) are kept twice instead of n, for one more forward
# run. A strip that is too long itself is run in strips again. The loop over strips of a loop with a
# test goes on as long as they take all of their iterations.

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


class TransposedNode:
    """A loop or choice that a sweep has come to, beside which its transpose is put.

    ``parts`` are the cotangents of its results, and ``results`` the nodes of these. If the sweep
    restores arrays that it wrote, its residuals are kept by the loop around it, and it is not run
    again.
    """

    def __init__(
        self,
        sweep: ReverseSweep,
        i: int,
        parts: Mapping[int, Contribution],
        results: Mapping[int, int],
    ) -> None:
        self.sweep, self.i, self.graph = sweep, i, sweep.graph
        self.op: Loop | Choice
        self.op, *rest = self.graph.nodes[i]
        is_loop = isinstance(self.op, Loop)
        self.ends, arguments = (rest[:2], rest[2:]) if is_loop else (rest[:1], rest[1:])
        n = self.op.carries if isinstance(self.op, Loop) else 0
        self.inits, self.captures = arguments[:n], arguments[n:]
        self.parts = {j: part for j, part in parts.items() if j >= 0}
        self.results = dict(results)
        self.restore = {j for j, r in results.items() if r in sweep.restored}

    def demand(self, zero: bool = False) -> Demand | None:
        """The task of its transpose; None if it has none."""
        moved = self.sweep.is_moved
        inits = frozenset(n for n, a in enumerate(self.inits) if moved(a))
        captures = frozenset(n for n, a in enumerate(self.captures) if moved(a))
        bars = frozenset(self.parts) if inits or captures else frozenset[int]()
        if not bars and not self.restore:
            return None
        iterations = self._around.iterations if self.restore else 0
        return Demand(
            bars, inits, captures, frozenset(self.restore), iterations, self.sweep.runs, zero
        )

    @property
    def _around(self) -> RegionSweep:
        """The sweep, where arrays are to be restored."""
        assert isinstance(self.sweep, RegionSweep), "only what may run many times is restored"
        return self.sweep

    def put(self, transposed: TransposedRegion) -> None:
        """Put the transpose beside it, and hand on its cotangents."""
        self._node, self._residuals, self._extras = self.i, list[int](), list[int]()
        if transposed.forward is not None:
            self._keep(transposed.forward, transposed)
        ends = self._ends_back()
        arguments = [self._argument(source) for source in transposed.arguments]
        if self.restore:
            self._around.settle([*ends, *arguments], self.i)
        self._hand_on(transposed, self.graph.add(transposed.reverse, *ends, *arguments))

    # --- residuals --------------------------------------------------------------------------------

    def _keep(self, op: Loop | Choice, transposed: TransposedRegion) -> None:
        """Put beside it the loop or choice that does the same and keeps the residuals."""
        graph = self.graph
        new = self._leaf if self.restore else self._empty
        residuals = [new(kind, size) for kind, size in transposed.residuals]
        last = [self.ends[0], self._run] if isinstance(op, Loop) else [self._run]
        self._node = graph.add(op, *self.ends, *self.inits, *residuals, *self.captures, *last)
        for j in list(self.results):
            self._result(j)
        n = (
            len(self.inits)
            if isinstance(op, Loop)
            else op.results - len(transposed.extras) - len(transposed.residuals)
        )
        extras = [self._pick(n + m, kind) for m, kind in enumerate(transposed.extras)]
        n += len(extras)
        ends = [self._pick(n + m, kind) for m, (kind, _) in enumerate(transposed.residuals)]
        if self.restore:
            self._around.residuals += zip(residuals, ends, strict=True)
            self._extras = [self._around.keep(e) for e in extras]
        self._residuals = residuals if self.restore else ends

    def _leaf(self, kind: str, size: int) -> int:
        return hole(self.graph, kind, size, "kept")

    def _empty(self, kind: str, size: int) -> int:
        return self.graph.intern((EMPTIES[kind], size))

    @property
    def _run(self) -> int:
        """The number of the run, among those of the loops that keep its residuals."""
        return self._around.slot if self.restore else self.graph.intern((WORD, 0))

    def _pick(self, j: int, kind: str) -> int:
        return pick(self.graph, self._node, j, kind)

    def _result(self, j: int) -> int:
        """Result j in the reverse sweep, unless that restores it."""
        kind = (
            "u"
            if j == TURNS
            else self.graph.type(self.inits[j])
            if self.inits
            else (self.op.body.graph.type(self.op.body.yields[j]))
        )
        old = self.results.setdefault(j, pick(self.graph, self.i, j, kind))
        if self._node == self.i:
            return old
        new = self._pick(j, kind)
        (self._around.forward if self.restore else self.sweep.replace)[old] = new
        return old if self.restore else new

    # --- arguments and results of the transpose ---------------------------------------------------

    def _ends_back(self) -> list[int]:
        """The bounds of a loop that goes back, or the condition of a choice."""
        if not (isinstance(self.op, Loop) and self.op.test):
            return list(self.ends)
        iterations = self._result(TURNS)
        iterations = self._around.keep(iterations) if self.restore else iterations
        return [self.ends[0], self.graph.add(ops.word_add, self.ends[0], iterations)]

    def _argument(self, source: Source) -> int:
        kind, n = source
        match kind:
            case "bar":
                part = self.parts.get(n)
                return (
                    zero_like(self.graph, self.inits[n])
                    if part is None
                    else (selected(self.graph, part))
                )
            case "sum":
                bar = self.sweep.bars.pop(self.captures[n], None)
                return zero_like(self.graph, self.captures[n]) if bar is None else bar
            case "error":
                return self.graph.constant(0.0)
            case "old":
                return self._last_version(n)
            case "residual":
                return self._residuals[n]
            case "extra":
                return self._extras[n]
            case "capture":
                return self.captures[n]
            case "init":
                return self.inits[n]
            case "first":
                return self.ends[0]
            case _:
                return self._run

    def _last_version(self, j: int) -> int:
        """An array behind the loop or choice, from which its transpose goes back."""
        if j in self.restore:
            return self.sweep.restored[self.results[j]]
        result = self._result(j)
        return self._around.keep(result) if self.restore else result

    def _hand_on(self, transposed: TransposedRegion, back: int) -> None:
        """Give cotangents to the arguments, and to the sweep arrays as they were."""
        graph, sweep, mask = self.graph, self.sweep, self._mask()
        for n, (kind, k) in enumerate(transposed.results):
            if kind == "error":
                continue
            own = isinstance(self.op, Loop) and kind != "sum"
            target = (self.inits if own else self.captures)[k]
            result = pick(graph, back, n, graph.type(target))
            if kind == "old":
                if not own or k in self.restore:
                    sweep.restored.setdefault(target, result)
            elif sweep.is_moved(target):
                sweep.give(target, (mask if graph.type(target) == "f" else None, result))

    def _mask(self) -> int | None:
        """Where any result has a cotangent."""
        masks = dict.fromkeys(mask for mask, _ in self.parts.values())
        if None in masks or not masks:
            return None
        return functools.reduce(lambda a, b: self.graph.add(ops.logical_or, a, b), masks)  # type: ignore[arg-type]


class Transposer:
    """The transposes of loops and choices, each made once for each demand."""

    def __init__(self, keeping: CheckpointPolicy) -> None:
        self._keeping = keeping
        self._mined: set[Loop] = set()
        self._chosen: set[Loop] = set()
        """Loops over strips and the iterations of these: the user's choice is made for them."""
        self._loops: dict[tuple[Loop, Demand], TransposedRegion] = {}
        self._choices: dict[tuple[Choice, Demand], TransposedRegion] = {}
        self._origins: dict[tuple[Loop | Choice, int], int | None] = {}
        self._picks: dict[Graph, tuple[int, dict[int, dict[int, int]]]] = {}

    # --- what arrays are versions of --------------------------------------------------------------

    def origin(self, op: Loop | Choice, index: int) -> int | None:
        """Which argument a result is a version of, if all writes in between can be undone."""
        key = op, index
        if key not in self._origins:
            self._origins[key] = (
                self._loop_origin(op, index)
                if isinstance(op, Loop)
                else self._choice_origin(op, index)
            )
        return self._origins[key]

    def _first(self, region: Region, last: int) -> int:
        return min([last, *[v for v, _ in versions(region.graph, last, self)]])

    def _loop_origin(self, op: Loop, index: int) -> int | None:
        if op in self._mined:
            return None  # what it carries at the start of each strip is kept whole
        first = self._first(op.body, op.body.yields[index])
        return 2 + index if first == op.body.params[1 + index] else None

    def _choice_origin(self, op: Choice, index: int) -> int | None:
        ends = {self._first(op.body, op.body.yields[j]) for j in (index, op.results + index)}
        first = ends.pop()
        params = op.body.params
        return None if ends or first not in params else 1 + params.index(first)

    # --- cotangents -------------------------------------------------------------------------------

    def pull_loop(self, sweep: ReverseSweep, i: int, parts: Mapping[int, Contribution]) -> None:
        """Hand on the cotangents of a loop's results, and restore the arrays that it wrote."""
        op, lo = sweep.graph.nodes[i][:2]
        node = TransposedNode(sweep, i, parts, self.picks(sweep.graph, i))
        demand = node.demand(sweep.graph.nodes[lo] == (WORD, 0))
        if demand is None:
            return
        if op.most is None:
            raise _unbounded(sweep.graph, i)
        if (op, demand) not in self._loops:
            self._loops[op, demand] = transposed_loop(op, demand, self)
        transposed = self._loops[op, demand]
        numbers = sum(size for _, size in transposed.residuals)
        keeping = self._keeping
        if op in self._chosen:
            keeping = replace(keeping, choice="auto")
        length = 0 if demand.restore else strip_length(op, numbers, keeping)
        if length:
            self.pull_loop(sweep, self._in_strips(sweep, i, length), parts)
        else:
            node.put(transposed)

    def _in_strips(self, sweep: ReverseSweep, i: int, length: int) -> int:
        """The loop in strips, which stands for loop i from now on."""
        graph = sweep.graph
        results = in_strips(graph, i, length)
        loop, noted = graph.nodes[results[0]][1], graph.note(LoopsInStrips)
        self._mined.add(graph.nodes[loop][0])
        self._chosen |= {graph.nodes[loop][0], strip_of(graph.nodes[i][0], length)}
        for j, old in self.picks(graph, i).items():
            if j in results:
                sweep.replace[old] = noted[old] = results[j]
        return loop

    def pull_choice(self, sweep: ReverseSweep, i: int, parts: Mapping[int, Contribution]) -> None:
        """Hand on the cotangents of a choice's results, and restore the arrays that it wrote."""
        op = sweep.graph.nodes[i][0]
        node = TransposedNode(sweep, i, parts, self.picks(sweep.graph, i))
        demand = node.demand()
        if demand is None:
            return
        if (op, demand) not in self._choices:
            self._choices[op, demand] = transposed_choice(op, demand, self)
        node.put(self._choices[op, demand])

    def picks(self, graph: Graph, i: int) -> dict[int, int]:
        """The nodes that are results of node i, by their numbers."""
        start, picks = self._picks.get(graph, (0, {}))
        for n in range(start, len(graph)):
            node = graph.nodes[n]
            if node[0].__class__ is Pick:
                picks.setdefault(node[1], {})[node[0].index] = n
        self._picks[graph] = len(graph), picks
        return picks.setdefault(i, {})


_LIMITED: Final = {
    False: "sg.fori_loop(lo, hi, body, init, max_steps=100)",
    True: "sg.while_loop(cond, body, init, max_steps=100)",
}
"""How a loop says how many iterations it takes at most, one that counts and one with a test."""


def _unbounded(graph: Graph, i: int) -> DifferentiationError:
    """The error of a loop without a limit of iterations, which names its line."""
    resolve_places(graph)
    place = graph.place_of(i)
    return DifferentiationError(
        "the gradient of a loop whose number of iterations is known at run time only keeps "
        "something of each, and nobody knows how many there are: say how many there are at most, "
        f"as in {_LIMITED[graph.nodes[i][0].test]}, or differentiate forward"
        + (f"\n  at {place}" if place else "")
    )
