"""The transpose of a loop: one turn of it, taken back."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.expr.derivatives.compensate import compensated
from symgrad.expr.derivatives.cotangents import differentiating
from symgrad.expr.derivatives.flow import between
from symgrad.expr.derivatives.restore import Origins, Restoring
from symgrad.expr.derivatives.sweep import like, zero_like
from symgrad.expr.derivatives.transposed import Asked, Source, Transposed
from symgrad.expr.graph.arrays import length
from symgrad.expr.graph.node import WORD, Graph
from symgrad.expr.graph.region import Loop, close, hole, loop_op


def transposed_loop(op: Loop, asked: Asked, regions: Origins) -> Transposed:
    """The loop that keeps what its transpose reads, and the transpose."""
    live = between(op, asked.bars, asked.inits, asked.captures)
    restored = asked.restore
    while True:
        iteration = _Iteration(op, asked, live, restored, regions)
        if not iteration.lacking:
            return iteration.transposed()
        restored |= iteration.lacking  # these are read as well: undo what is written to them


class _Iteration(Restoring):
    """The reverse sweep over one turn.

    ``lacking`` are the arrays among the carries that it reads and does not restore yet.
    """

    def __init__(
        self,
        op: Loop,
        asked: Asked,
        live: frozenset[int],
        restored: frozenset[int],
        regions: Origins,
    ) -> None:
        graph = op.body.copy()
        size = len(graph)
        self.op, self.asked = op, asked
        self.k, *rest = op.body.params
        self.carries, self.captures = op.split(rest)
        self.number = {c: j for j, c in enumerate(self.carries)}
        self.lo, self.base = hole(graph, "u", name="first"), hole(graph, "u", name="run")
        yields = op.body.yields
        self.live = {("bar", j): like(graph, self.carries[j], "bar") for j in sorted(live)}
        self.olds = {j: like(graph, self.carries[j]) for j in sorted(restored)}
        self.sums = {q: like(graph, self.captures[q], "bar") for q in sorted(asked.captures)}
        slot = self._slot(graph)
        iterations = (op.most or 0) * (asked.iterations or 1)
        given = {yields[j]: old for j, old in self.olds.items()}
        seeds = [(yields[j], bar) for (_, j), bar in self.live.items()]
        seeds += [(self.captures[q], s) for q, s in self.sums.items() if graph.type(s) == "F"]
        wrt = [*[self.carries[j] for j in sorted(live)], *[self.captures[q] for q in self.sums]]
        super().__init__(graph, seeds, wrt, regions, given, slot, iterations, size)
        self.runs = (op.most or 0) * asked.runs
        self.lacking: frozenset[int] = frozenset()
        self.fixed: list[tuple[int, int]] = []
        self.run()
        with differentiating(graph):
            self._results()
            self.taken = self.take(self.results.values())

    def _slot(self, graph: Graph) -> int:
        step = self.k if self.asked.zero else graph.add(ops.word_sub, self.k, self.lo)
        if not self.asked.iterations:
            return step
        most = graph.intern((WORD, self.op.most))
        return graph.add(ops.word_add, graph.add(ops.word_mul, self.base, most), step)

    def _results(self) -> None:
        """What the transpose makes of its carries, and the carries, in the same order."""
        graph, cotangents = self.graph, self.found
        self.starts: dict[Source, int] = dict(self.live)
        self.results: dict[Source, int] = {}
        for kind, j in self.live:
            carry = self.carries[j]
            self.results[kind, j] = (
                cotangents[carry] if carry in cotangents else zero_like(graph, carry)
            )
        for q, total in self.sums.items():
            more = cotangents.get(self.captures[q])
            if more is not None and more != total:
                number = graph.type(total) == "f"
                self.starts["sum", q] = total
                self.results["sum", q] = graph.add(ops.add, total, more) if number else more
        for j, old in self.olds.items():
            self.starts["old", j] = old
            self.results["old", j] = self.restored[self.carries[j]]

    def stand(self, i: int) -> int:
        """What stands for node i in the transpose: a carry was kept, or is restored."""
        j = self.number.get(i)
        if j is not None and i not in self.replace and i not in self.restored:
            if self.op.body.yields[j] == i:
                self.replace[i] = like(self.graph, i)
                self.fixed.append((self.replace[i], j))
            elif self.graph.type(i) in "FW" and self.regions.origin(self.op, j) is not None:
                self.lacking |= {j}
                return i
            else:
                self.replace[i] = self.keep(i)
        return super().stand(i)

    def transposed(self) -> Transposed:
        """The two loops."""
        op, graph, m = self.op, self.graph, self.op.carries
        ends = [self.lo, self.base]
        homes = [home for home, _ in self.homes]
        yields = [*op.body.yields[:m], *[end for _, end in self.homes], *op.body.yields[m:]]
        params = [self.k, *self.carries, *homes, *self.captures, *ends]
        forward, _ = close(graph, params, yields, self.forward)
        sources: dict[int, Source] = {
            **{start: source for source, start in self.starts.items()},
            **{home: ("home", n) for n, home in enumerate(homes) if home in self.taken},
            **{c: ("capture", q) for q, c in enumerate(self.captures) if c in self.taken},
            **{stands: ("init", j) for stands, j in self.fixed},
            **{
                end: (name, 0)
                for end, name in zip(ends, ("first", "run"), strict=True)
                if end in self.taken
            },
        }
        reverse, _ = close(graph, [self.k, *sources], list(self.results.values()), self.replace)
        back = loop_op(reverse, len(self.results), False, not op.down, op.most)
        anew = {j for j, (kind, _) in enumerate(self.results) if kind == "sum"}
        back, count = compensated(back, self.asked.runs, anew)
        errors: list[Source] = [("error", 0)] * count
        given, n = list(sources.values()), len(self.results)
        return Transposed(
            loop_op(forward, m + len(homes), op.test, op.down, op.most) if homes else None,
            back,
            tuple((graph.type(home), length(graph, home)) for home in homes),
            (*given[:n], *errors, *given[n:]),
            (*self.results, *errors),
        )
