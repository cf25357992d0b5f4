"""A loop or choice in a sweep, and its transpose put beside it."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from symgrad.expr import ops
from symgrad.expr.derivatives.cotangents import Contribution, selected
from symgrad.expr.derivatives.restore import Restoring
from symgrad.expr.derivatives.sweep import Sweep, zero_like
from symgrad.expr.derivatives.transposed import Asked, Source, Transposed
from symgrad.expr.graph.arrays import EMPTIES
from symgrad.expr.graph.node import WORD
from symgrad.expr.graph.region import TURNS, Choice, Loop, hole, pick


class Pulled:
    """A loop or choice of a sweep that comes to its transpose.

    ``parts`` are the cotangents of its results, and ``results`` the nodes of these. If the sweep
    wants arrays that it wrote as they were, then what it keeps is kept by what is around it, and it
    is not run again.
    """

    def __init__(
        self, sweep: Sweep, i: int, parts: Mapping[int, Contribution], results: Mapping[int, int]
    ) -> None:
        self.sweep, self.i, self.graph = sweep, i, sweep.graph
        self.op: Loop | Choice
        self.op, *rest = self.graph.nodes[i]
        is_loop = isinstance(self.op, Loop)
        self.ends, given = (rest[:2], rest[2:]) if is_loop else (rest[:1], rest[1:])
        n = self.op.carries if isinstance(self.op, Loop) else 0
        self.inits, self.captures = given[:n], given[n:]
        self.parts = {j: part for j, part in parts.items() if j >= 0}
        self.results = dict(results)
        self.restore = {j for j, r in results.items() if r in sweep.restored}

    def asked(self, zero: bool = False) -> Asked | None:
        """What is asked of its transpose, if anything is."""
        moved = self.sweep.is_moved
        inits = frozenset(n for n, a in enumerate(self.inits) if moved(a))
        captures = frozenset(n for n, a in enumerate(self.captures) if moved(a))
        bars = frozenset(self.parts) if inits or captures else frozenset[int]()
        if not bars and not self.restore:
            return None
        iterations = self._around.iterations if self.restore else 0
        return Asked(
            bars, inits, captures, frozenset(self.restore), iterations, self.sweep.runs, zero
        )

    @property
    def _around(self) -> Restoring:
        """The sweep, where arrays are to be restored."""
        assert isinstance(self.sweep, Restoring), "only what may run many times is restored"
        return self.sweep

    def put(self, transposed: Transposed) -> None:
        """Put the transpose beside it, and hand on the cotangents that it finds."""
        self._node, self._homes, self._extras = self.i, list[int](), list[int]()
        if transposed.forward is not None:
            self._keep(transposed.forward, transposed)
        ends = self._ends_back()
        arguments = [self._argument(source) for source in transposed.arguments]
        if self.restore:
            self._around.settle([*ends, *arguments], self.i)
        self._hand_on(transposed, self.graph.add(transposed.reverse, *ends, *arguments))

    # --- what keeps -------------------------------------------------------------------------------

    def _keep(self, op: Loop | Choice, transposed: Transposed) -> None:
        """Put beside it what does the same and keeps what the transpose reads."""
        graph = self.graph
        new = self._leaf if self.restore else self._empty
        homes = [new(kind, size) for kind, size in transposed.homes]
        last = [self.ends[0], self._run] if isinstance(op, Loop) else [self._run]
        self._node = graph.add(op, *self.ends, *self.inits, *homes, *self.captures, *last)
        for j in list(self.results):
            self._result(j)
        n = (
            len(self.inits)
            if isinstance(op, Loop)
            else op.results - len(transposed.extras) - len(transposed.homes)
        )
        extras = [self._pick(n + m, kind) for m, kind in enumerate(transposed.extras)]
        n += len(extras)
        ends = [self._pick(n + m, kind) for m, (kind, _) in enumerate(transposed.homes)]
        if self.restore:
            self._around.homes += zip(homes, ends, strict=True)
            self._extras = [self._around.keep(e) for e in extras]
        self._homes = homes if self.restore else ends

    def _leaf(self, kind: str, size: int) -> int:
        return hole(self.graph, kind, size, "kept")

    def _empty(self, kind: str, size: int) -> int:
        return self.graph.intern((EMPTIES[kind], size))

    @property
    def _run(self) -> int:
        """The number of the run, among those of the loops that keep for it."""
        return self._around.slot if self.restore else self.graph.intern((WORD, 0))

    def _pick(self, j: int, kind: str) -> int:
        return pick(self.graph, self._node, j, kind)

    def _result(self, j: int) -> int:
        """Result j as the reverse sweep has it, unless it restores it."""
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

    # --- what the transpose takes and gives -------------------------------------------------------

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
                known = self.sweep.bars.pop(self.captures[n], None)
                return zero_like(self.graph, self.captures[n]) if known is None else known
            case "error":
                return self.graph.constant(0.0)
            case "old":
                return self._last_version(n)
            case "home":
                return self._homes[n]
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

    def _hand_on(self, transposed: Transposed, back: int) -> None:
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
