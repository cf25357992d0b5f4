"""Selective scans, forward: outputs, and what the way back starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symgrad.expr import ops
from symgrad.kernel.index import Index, all_hold
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.skeletons.selective import (
    FORWARD_TILE_STEPS,
    TILE_STEPS,
    Recurrence,
    Split,
    Written,
)
from symgrad.kernel.skeletons.selective_alone import ForwardAlone
from symgrad.kernel.skeletons.selective_tiles import Gathered, Tiles, store_sums, total


@dataclass(frozen=True)
class Forward:
    """The program of y, and if it is stateful of the states behind the last step, ``last``.

    If there is a way back, states before each tile are ``kept``, (tiles, batch, channels, states),
    and it makes the sums over the channels of each group that dC consists of,
    ``readings``, (batch * groups of a sequence, length, states).
    """

    recurrence: Recurrence
    back: bool = False

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "selective_scan_kept" if self.back else "selective_scan")
        return (ForwardAlone if target.in_step else ForwardTogether)(
            k, self.recurrence, self.back
        ).kernel()


class ForwardTogether(Tiles):
    """Invocations that share memory, and divide the states of a channel."""

    def __init__(self, k: KernelIR, recurrence: Recurrence, back: bool) -> None:
        split = Split.of(recurrence.states, k.target, TILE_STEPS if back else FORWARD_TILE_STEPS)
        names = ["u", "delta", *["dy"] * back]
        super().__init__(k, split, recurrence, names)
        self.written = Written(k, recurrence.stateful, back)
        self.sums = Gathered(k, "sums", split.steps * split.channels, split.lanes)
        rows = split.flushed * split.states
        self.reads = Gathered(k, "reads", rows, split.channels) if back else None

    def kernel(self) -> KernelIR:
        """The whole program."""
        k, p = self.k, self.place
        states = [k.constant(0.0)] * self.split.each
        if self.recurrence.stateful:
            states = self.states(lambda n: p.of("state", p.own(n)))
        inits = [*states, *self.load(Index(k, k.word(0)))]
        ends, _ = k.loop(k.word(0), self.count.id, inits, self._iteration)
        if self.written.last is not None:
            self.store_states(self.written.last, ends[: self.split.each], p.own)
        return k

    def _iteration(self, number: int, carries: Sequence[int]) -> Sequence[int]:
        """A tile: what the next one needs is loaded before anything is done with this one."""
        k, each, tile = self.k, self.split.each, Index(self.k, number)
        states, loaded = carries[:each], self.parted(carries[each:])
        if self.written.checkpoints is not None:
            self.store_states(
                self.written.checkpoints, states, lambda n: self.place.checkpoint(tile, n)
            )
        self.stage(tile, loaded)
        k.barrier()
        ahead = self.load(tile + 1)
        states = self._steps(tile, states)
        k.barrier()
        self._store(tile, loaded["u"])
        return [*states, *ahead]

    def _steps(self, tile: Index, states: Sequence[int]) -> list[int]:
        """The states behind a tile; what its steps add to sums is in shared memory."""
        k, steps, together = self.k, self.split.steps, self.split.flushed

        def some(part: int, states: Sequence[int]) -> Sequence[int]:
            first = Index(k, part) * together
            for t in range(together):
                states = self._step((first + t).id, states, t)
            if self.reads is not None and self.written.readings is not None:
                store_sums(self, self.reads, tile * steps + first, self.written.readings)
            return states

        parts = steps // together
        return k.loop(k.word(0), k.word(parts), states, some, most=parts, some=True)[0]

    def _step(self, number: int, states: Sequence[int], row: int = 0) -> list[int]:
        k, r, t = self.k, self.recurrence, Index(self.k, number)
        d, u = self.number("delta", t), self.number("u", t)
        b, weights = self.factor("B", t), self.factor("C", t)
        terms = zip(states, self.weights, b, strict=True)
        states = [r.advance(k, s, d, a, b, u)[0] for s, a, b in terms]
        parts = [r.weigh(k, c, s)[0] for s, c in zip(states, weights, strict=True)]
        p = self.place
        self.sums.put(t * self.split.channels + p.column, p.lane, total(k, parts))
        if self.reads is not None:
            dy = self.number("dy", t)
            for j, (s, c) in enumerate(zip(states, weights, strict=True)):
                self._gather(j, row, r.weighed(k, c, s, dy)[0])
        return states

    def _gather(self, j: int, row: int, value: int) -> None:
        """Put a cotangent of C to those of the other channels."""
        reads, n = self.reads, self.numbers[j]
        assert reads is not None, "there is no way back"
        at = n + row * self.split.states

        def put() -> None:
            reads.put(at, self.place.column, value)

        self.when_real(j, put)

    def _store(self, tile: Index, loaded: Sequence[int]) -> None:
        """The outputs of a tile, each by the invocation that has brought its input."""
        k, p, split = self.k, self.place, self.split
        places = self.tiles["u"].places()
        for i, ((t, c), u) in enumerate(zip(places, loaded, strict=True)):
            step, channel = tile * split.steps + t, p.first + c
            weight, at = p.of("D", channel.at_most(p.wide - 1)), p.at(step, channel).id
            row = (Index(k, k.local) + k.target.width * i).at_most(self.sums.rows - 1)
            (skip,) = self.recurrence.weigh(k, weight, u)
            y = k.add(ops.add, self.sums.sum(row), skip)
            inside = t.below(split.steps), step.below(p.length), channel.below(p.wide), p.real
            k.when(all_hold(k, *inside), lambda at=at, y=y: k.store(self.written.y, at, y))
