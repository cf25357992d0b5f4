"""Reverse mode through loops and choices, by transposition.

The transpose of a loop is a loop that goes the other way over the same counter. It carries the
cotangents of what the loop carries, and the sums of those of captures. What it reads of the carries
the loop keeps, one number a turn: a loop that keeps stands beside the one that does not, until they
are simplified to one. Loops inside are run again, keeping theirs, in each turn of the transpose;
but where a loop writes an array that has to be restored, the loops around it keep what it has to.
The transpose of a choice is a choice between the transposes of its sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from symgrad.errors import DifferentiationError
from symgrad.expr.derivatives.cotangents import Contribution
from symgrad.expr.derivatives.iteration import transposed_loop
from symgrad.expr.derivatives.pulled import Pulled
from symgrad.expr.derivatives.restore import versions
from symgrad.expr.derivatives.side import transposed_choice
from symgrad.expr.derivatives.strips import Keeping, in_strips, strip_length, strip_of
from symgrad.expr.derivatives.sweep import Sweep
from symgrad.expr.derivatives.transposed import Asked, Transposed
from symgrad.expr.graph.node import WORD, Graph
from symgrad.expr.graph.place import resolve_places
from symgrad.expr.graph.region import Choice, Loop, Pick, Region


class Transposer:
    """The transposes of loops and choices, each made once for all that may be asked of it."""

    def __init__(self, keeping: Keeping | None = None) -> None:
        self._keeping = keeping or Keeping()
        self._mined: set[Loop] = set()
        self._chosen: set[Loop] = set()
        """Loops over strips and the iterations of these: the user's choice is made for them."""
        self._loops: dict[tuple[Loop, Asked], Transposed] = {}
        self._choices: dict[tuple[Choice, Asked], Transposed] = {}
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

    def pull_loop(self, sweep: Sweep, i: int, parts: Mapping[int, Contribution]) -> None:
        """Hand on the cotangents of a loop's results, and restore the arrays that it wrote."""
        op, lo = sweep.graph.nodes[i][:2]
        node = Pulled(sweep, i, parts, self.picks(sweep.graph, i))
        asked = node.asked(sweep.graph.nodes[lo] == (WORD, 0))
        if asked is None:
            return
        if op.most is None:
            raise _unbounded(sweep.graph, i)
        if (op, asked) not in self._loops:
            self._loops[op, asked] = transposed_loop(op, asked, self)
        transposed = self._loops[op, asked]
        numbers = sum(size for _, size in transposed.homes)
        keeping = self._keeping
        if op in self._chosen:
            keeping = replace(keeping, choice="auto")
        length = 0 if asked.restore else strip_length(op, numbers, keeping)
        if length:
            self.pull_loop(sweep, self._in_strips(sweep, i, length), parts)
        else:
            node.put(transposed)

    def _in_strips(self, sweep: Sweep, i: int, length: int) -> int:
        """The loop in strips, which stands for loop i from now on."""
        graph = sweep.graph
        results = in_strips(graph, i, length)
        loop = graph.nodes[results[0]][1]
        self._mined.add(graph.nodes[loop][0])
        self._chosen |= {graph.nodes[loop][0], strip_of(graph.nodes[i][0], length)}
        for j, old in self.picks(graph, i).items():
            if j in results:
                sweep.replace[old] = graph.strips[old] = results[j]
        return loop

    def pull_choice(self, sweep: Sweep, i: int, parts: Mapping[int, Contribution]) -> None:
        """Hand on the cotangents of a choice's results, and restore the arrays that it wrote."""
        op = sweep.graph.nodes[i][0]
        node = Pulled(sweep, i, parts, self.picks(sweep.graph, i))
        asked = node.asked()
        if asked is None:
            return
        if (op, asked) not in self._choices:
            self._choices[op, asked] = transposed_choice(op, asked, self)
        node.put(self._choices[op, asked])

    def picks(self, graph: Graph, i: int) -> dict[int, int]:
        """The results of node i that there are, by their numbers."""
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
    resolve_places(graph)
    place = graph.place_of(i)
    return DifferentiationError(
        "the gradient of a loop whose number of iterations is known at run time only keeps "
        "something of each, and nobody knows how many there are: say how many there are at most, "
        f"as in {_LIMITED[graph.nodes[i][0].test]}, or differentiate forward"
        + (f"\n  at {place}" if place else "")
    )
