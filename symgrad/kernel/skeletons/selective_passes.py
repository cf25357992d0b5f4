"""Selective scans, forward and backward: outputs, and gradients of all that they come from.

The way back goes tile after tile from the last to the first. The states of a tile are computed
again from those before it, which the forward pass has kept; that none of the others is stored is
from Gu and Dao (2023, "Mamba: linear-time sequence modeling with selective state spaces", section
3.3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symgrad.expr import ops
from symgrad.kernel.language.index import Index, all_hold
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.skeletons.selective import (
    FORWARD_TILE_STEPS,
    TILE_STEPS,
    Recurrence,
    Split,
    Written,
)
from symgrad.kernel.skeletons.selective_steps import (
    BackwardAlone,
    ForwardAlone,
    Gathered,
    Tile,
    Tiles,
    store_sums,
    total,
)


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


# the way back ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backward:
    """The program of the cotangents of u and delta, and of ``sums`` that the others consist of.

    These are, one behind the other: the sums over the channels of each group for dB, as of
    `Forward` for dC; dA of each sequence, (batch, channels, states); dD in parts of each sequence,
    (batch, lanes, channels); and the cotangent of the first state, if it is stateful.
    """

    recurrence: Recurrence

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "selective_scan_backward")
        return (BackwardAlone if target.in_step else _Together)(k, self.recurrence).kernel()


class _Together(Tiles):
    """Invocations that share memory, and divide the states of a channel.

    They go through a tile in stretches, the last first: from the states that are kept to those
    before the stretch, on through it, with the states in registers, and back.
    """

    def __init__(self, k: KernelIR, recurrence: Recurrence) -> None:
        split = Split.of(recurrence.states, k.target)
        super().__init__(k, split, recurrence, ["u", "delta", "dy"])
        self.checkpoints = k.buffer("kept", "read")
        self.du, self.ddelta = k.buffer("du", "write"), k.buffer("ddelta", "write")
        self.sums = k.buffer("sums", "write")
        self._inputs = self.tiles["u"], self.tiles["dy"]
        self.slope = Tile(k, "slope_tile", split.steps, split.channels)
        rows = split.flushed * split.channels
        self.sizes = Gathered(k, "size_sums", rows, split.lanes)
        self.drives = Gathered(k, "drive_sums", rows, split.lanes)
        self.factor_sums = Gathered(k, "B_sums", split.flushed * split.states, split.channels)

    def kernel(self) -> KernelIR:
        """The whole program."""
        k, p, each = self.k, self.place, self.split.each
        zero, last = k.constant(0.0), self.count - 1
        carried = [zero] * each
        if self.recurrence.stateful:
            carried = self.states(lambda n: p.of("end", p.own(n)))
        inits = [*carried, *[zero] * (each + 1), *self.load(last)]
        ends, _ = k.loop(k.word(0), self.count.id, inits, self._iteration, down=True)
        self.store_states(self.sums, ends[each : 2 * each], lambda n: p.sums["A"] + p.own(n))
        self._store_skip(ends[2 * each])
        if self.recurrence.stateful:
            self.store_states(self.sums, ends[:each], lambda n: p.sums["state"] + p.own(n))
        return k

    def _store_skip(self, value: int) -> None:
        """The part of dD that the invocation has, of the channel whose numbers it has brought."""
        k, p, channels = self.k, self.place, self.split.channels
        part = p.local // channels
        channel = p.first + (p.local - part * channels)
        at = p.sums["D"] + (p.sequence * self.split.lanes + part) * p.wide + channel
        exists = all_hold(k, channel.below(p.wide), p.real)
        k.when(exists, lambda: k.store(self.sums, at.id, value))

    def _iteration(self, number: int, carries: Sequence[int]) -> Sequence[int]:
        """A tile: the one before it is loaded first of all."""
        k, each, tile = self.k, self.split.each, Index(self.k, number)
        carried, weights = carries[:each], carries[each : 2 * each]
        loaded = self.parted(carries[2 * each + 1 :])
        self.stage(tile, loaded, self.slope)
        skip = self._skips(carries[2 * each], loaded)
        k.barrier()
        ahead = self.load(tile - tile.at_most(1))
        first = self.states(lambda n: k.load(self.checkpoints, self.place.checkpoint(tile, n).id))
        stretches = self.split.steps // self.split.kept

        def stretch(part: int, carries: Sequence[int]) -> Sequence[int]:
            start = Index(k, part) * self.split.kept
            return self._stretch(tile, start, first, carries[:each], carries[each:])

        inits = [*carried, *weights]
        iterations = k.word(0), k.word(stretches)
        results, _ = k.loop(*iterations, inits, stretch, down=True, most=stretches, some=True)
        return [*results, skip, *ahead]

    def _skips(self, sum_: int, loaded: dict[str, list[int]]) -> int:
        """The sum of the cotangents of D over the steps that an invocation has brought."""
        k, zero = self.k, self.k.constant(0.0)
        for u, dy in zip(loaded["u"], loaded["dy"], strict=True):
            sum_ = k.add(ops.add, sum_, self.recurrence.weighed(k, zero, u, dy)[0])
        return sum_

    def _stretch(
        self,
        tile: Index,
        start: Index,
        states: Sequence[int],
        carried: Sequence[int],
        weights: Sequence[int],
    ) -> Sequence[int]:
        """The cotangents before a stretch, and the sums for dA with it."""
        k, flushed = self.k, self.split.flushed

        def onward(t: int, states: Sequence[int]) -> Sequence[int]:
            d = self.number("delta", Index(k, t))
            return self._advance(Index(k, t), d, states)

        if self.split.kept < self.split.steps:
            most = self.split.steps - self.split.kept
            states, _ = k.loop(k.word(0), start.id, states, onward, most=most)
        steps = [start + t for t in range(self.split.kept)]
        sizes = [self.number("delta", t) for t in steps]
        before = [list(states)]
        for t, d in zip(steps[:-1], sizes[:-1], strict=True):
            before.append(self._advance(t, d, before[-1]))
        for t in reversed(range(self.split.kept)):
            d = self.number("delta", steps[t]) if self.recurrence.again else sizes[t]
            carried, weights = self._back(t % flushed, steps[t], d, before[t], carried, weights)
            if t % flushed == 0:
                self._flush(tile, steps[t])
        return [*carried, *weights]

    def _advance(self, t: Index, d: int, states: Sequence[int]) -> list[int]:
        u, b = self.number("u", t), self.factor("B", t)
        terms = zip(states, self.weights, b, strict=True)
        return [self.recurrence.advance(self.k, s, d, a, b, u)[0] for s, a, b in terms]

    def _back(
        self,
        row: int,
        t: Index,
        d: int,
        states: Sequence[int],
        carried: Sequence[int],
        weights: Sequence[int],
    ) -> tuple[list[int], list[int]]:
        """A step back: what it adds to sums over lanes and channels goes to shared memory."""
        k, p, split = self.k, self.place, self.split
        u, dy = self.number("u", t), self.number("dy", t)
        factors = zip(self.factor("B", t), self.factor("C", t), strict=True)
        cotangents = [
            self.recurrence.reverse(k, s, d, a, b, u, c, ds, dy)
            for s, a, (b, c), ds in zip(states, self.weights, factors, carried, strict=True)
        ]
        at = p.column + row * split.channels
        self.sizes.put(at, p.lane, total(k, [f[1] for f in cotangents]))
        self.drives.put(at, p.lane, total(k, [f[4] for f in cotangents]))
        for j, f in enumerate(cotangents):
            self._gather(j, row, f[3])
        added = [k.add(ops.add, w, f[2]) for w, f in zip(weights, cotangents, strict=True)]
        return [f[0] for f in cotangents], added

    def _gather(self, j: int, row: int, value: int) -> None:
        at = self.numbers[j] + row * self.split.states
        self.when_real(j, lambda: self.factor_sums.put(at, self.place.column, value))

    def _flush(self, tile: Index, first: Index) -> None:
        """Store the cotangents of some steps."""
        k, p, split = self.k, self.place, self.split
        k.barrier()

        def store(row: Index, inside: int) -> None:
            t = row // split.channels
            column = row - t * split.channels
            step, channel, at = tile * split.steps + first + t, p.first + column, first + t
            u, dy, slope = (x.read(at, column) for x in (*self._inputs, self.slope))
            more = self.recurrence.weighed(k, p.of("D", channel.at_most(p.wide - 1)), u, dy)[1]
            du = k.add(ops.add, self.drives.sum(row), more)
            dd = k.add(ops.mul, self.sizes.sum(row), slope)
            place = p.at(step, channel).id

            def both() -> None:
                k.store(self.du, place, du)
                k.store(self.ddelta, place, dd)

            inside = all_hold(k, inside, step.below(p.length), channel.below(p.wide), p.real)
            k.when(inside, both)

        self.sizes.each(store)
        store_sums(self, self.factor_sums, tile * split.steps + first, self.sums)
