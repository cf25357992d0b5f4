"""Selective scans where invocations run in step: each has a channel, and all of its states."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from symgrad.expr import ops
from symgrad.kernel.index import Index, all_hold
from symgrad.kernel.language import KernelIR
from symgrad.kernel.skeletons.selective import Given, Place, Recurrence, Split, Written
from symgrad.kernel.statements import Buffer, lane_sum


class _Alone:
    """Common parts of both directions: what an invocation reads of a step."""

    def __init__(self, k: KernelIR, recurrence: Recurrence, names: Sequence[str]) -> None:
        self.k, self.recurrence = k, recurrence
        self.split = Split.of(recurrence.states, k.target)
        self.place = Place(k, self.split)
        self.inputs = {name: k.buffer(name, "read") for name in names}
        self.exists = all_hold(k, self.place.inside, self.place.real)

    def every_state(
        self, body: Callable[[Index, list[int]], Sequence[int]], inits: Sequence[int] = ()
    ) -> list[int]:
        """``body(n, carries)`` for all states, and what is carried from one to the next."""
        k = self.k
        iterations = k.word(self.split.states)
        return k.loop(k.word(0), iterations, inits, lambda n, c: body(Index(k, n), c), some=True)[0]

    def tiles(self, body: Callable[[Index], None], *, down: bool = False) -> None:
        """``body(tile)`` for all tiles."""
        k = self.k

        def iteration(tile: int, _: object) -> tuple[()]:
            body(Index(k, tile))
            return ()

        k.loop(k.word(0), self.place.length.ceil_div(self.split.steps).id, (), iteration, down=down)

    def steps(
        self, tile: Index, body: Callable[[Index, Index], None], *, down: bool = False
    ) -> None:
        """``body(t, step)`` for the steps of a tile: its number in it, and in all."""
        k, first = self.k, tile * self.split.steps
        many = (self.place.length - first).at_most(self.split.steps)

        def iteration(t: int, _: object) -> tuple[()]:
            body(Index(k, t), first + Index(k, t))
            return ()

        k.loop(k.word(0), many.id, (), iteration, down=down, most=self.split.steps)

    def number(self, name: str, step: Index) -> int:
        """The number of the invocation's channel in a step; 0 where there is no channel."""
        p, k = self.place, self.k
        value = k.load(self.inputs[name], p.at(step, p.channel).id)
        return k.add(ops.where, p.inside, value, k.constant(0.0))

    def factor(self, name: Given, step: Index, n: Index) -> int:
        """The number of a state in a step."""
        p = self.place
        return p.of(name, (p.sequence * p.length + step) * self.split.states + n)

    def weight(self, n: Index) -> int:
        """The element of A of a state."""
        return self.place.of("A", self.place.weight(n))

    def copy(self, load: Callable[[Index], int], target: Buffer, first: Index) -> None:
        """Write a number of every state to where an array of the invocation's has them."""

        def each(n: Index, _: object) -> tuple[()]:
            self.k.store(target, (first + n).id, load(n))
            return ()

        self.every_state(each)

    def sum_lanes(self, value: int, buffer: Buffer, at: Index) -> None:
        """Write the sum over the group's channels."""
        k = self.k
        total = k.add(lane_sum, value)
        first = all_hold(k, Index(k, k.local).below(1), self.place.real)
        k.when(first, lambda: k.store(buffer, at.id, total))

    def store(self, buffer: Buffer, at: Index, value: int) -> None:
        """Write a number of the invocation's channel."""
        self.k.when(self.exists, lambda: self.k.store(buffer, at.id, value))


class ForwardAlone(_Alone):
    """The way forward: see `symgrad.kernel.skeletons.selective_forward.Forward`."""

    def __init__(self, k: KernelIR, recurrence: Recurrence, back: bool) -> None:
        super().__init__(k, recurrence, ["u", "delta", *["dy"] * back])
        self.written, self.back = Written(k, recurrence.stateful, back), back
        self.states = k.buffer("states", "own", size=self.split.states)
        self.zero = Index(k, k.word(0))

    def kernel(self) -> KernelIR:
        """The whole program."""
        k, p = self.k, self.place
        self.copy(self._first, self.states, self.zero)
        self.tiles(self._tile)
        if (last := self.written.last) is not None:
            self._keep(last, p.own)
        return k

    def _first(self, n: Index) -> int:
        if self.recurrence.stateful:
            return self.place.of("state", self.place.own(n))
        return self.k.constant(0.0)

    def _keep(self, buffer: Buffer, at: Callable[[Index], Index]) -> None:
        def each(n: Index, _: object) -> tuple[()]:
            self.store(buffer, at(n), self.k.load(self.states, n.id))
            return ()

        self.every_state(each)

    def _tile(self, tile: Index) -> None:
        if (checkpoints := self.written.checkpoints) is not None:
            self._keep(checkpoints, lambda n: self.place.checkpoint(tile, n))
        self.steps(tile, self._step)

    def _step(self, _: Index, step: Index) -> None:
        k, r, p = self.k, self.recurrence, self.place
        (d,) = r.size(k, self.number("delta", step))
        u = self.number("u", step)
        dy = self.number("dy", step) if self.back else None

        def each(n: Index, sums: Sequence[int]) -> Sequence[int]:
            c = self.factor("C", step, n)
            b = self.factor("B", step, n)
            (s,) = r.advance(k, k.load(self.states, n.id), d, self.weight(n), b, u)
            k.store(self.states, n.id, s)
            if dy is not None:
                assert self.written.readings is not None, "there is a way back"
                read = k.add(ops.where, p.inside, r.weighed(k, c, s, dy)[0], k.constant(0.0))
                self.sum_lanes(read, self.written.readings, p.partial(step, n))
            return [k.add(ops.add, sums[0], r.weigh(k, c, s)[0])]

        (total,) = self.every_state(each, [k.constant(0.0)])
        (skip,) = r.weigh(k, p.of("D", p.channel), u)
        self.store(self.written.y, p.at(step, p.channel), k.add(ops.add, total, skip))


class BackwardAlone(_Alone):
    """The way back: see `symgrad.kernel.skeletons.selective_backward.Backward`."""

    def __init__(self, k: KernelIR, recurrence: Recurrence) -> None:
        super().__init__(k, recurrence, ["u", "delta", "dy", "kept"])
        self.du, self.ddelta = k.buffer("du", "write"), k.buffer("ddelta", "write")
        self.sums = k.buffer("sums", "write")
        states = self.split.states
        self.states = k.buffer("states", "own", size=states * (self.split.steps + 1))
        self.carried = k.buffer("carried", "own", size=states)
        self.weights = k.buffer("weights", "own", size=states)
        self.skips = k.buffer("skips", "own", size=1)
        self.zero = Index(k, k.word(0))

    def kernel(self) -> KernelIR:
        """The whole program."""
        k, p = self.k, self.place
        self.copy(self._end, self.carried, self.zero)
        k.fill(self.weights)
        k.fill(self.skips)
        self.tiles(self._tile, down=True)

        def each(n: Index, _: object) -> tuple[()]:
            self.store(self.sums, p.sums["A"] + p.own(n), k.load(self.weights, n.id))
            if self.recurrence.stateful:
                at = p.sums["state"] + p.own(n)
                self.store(self.sums, at, k.load(self.carried, n.id))
            return ()

        self.every_state(each)
        skips = p.sums["D"] + p.sequence * p.wide + p.channel
        self.store(self.sums, skips, k.load(self.skips, k.word(0)))
        return k

    def _end(self, n: Index) -> int:
        if self.recurrence.stateful:
            return self.place.of("end", self.place.own(n))
        return self.k.constant(0.0)

    def _tile(self, tile: Index) -> None:
        k, p, r = self.k, self.place, self.recurrence
        checkpoints = self.inputs["kept"]
        self.copy(lambda n: k.load(checkpoints, p.checkpoint(tile, n).id), self.states, self.zero)

        def advance(t: Index, step: Index) -> None:
            (d,) = r.size(k, self.number("delta", step))
            u = self.number("u", step)

            def state(n: Index) -> int:
                s = k.load(self.states, (t * self.split.states + n).id)
                return r.advance(k, s, d, self.weight(n), self.factor("B", step, n), u)[0]

            self.copy(state, self.states, (t + 1) * self.split.states)

        self.steps(tile, advance)
        self.steps(tile, self._step, down=True)

    def _step(self, t: Index, step: Index) -> None:
        k, r, p = self.k, self.recurrence, self.place
        raw = self.number("delta", step)
        (d,) = r.size(k, raw)
        u, dy = self.number("u", step), self.number("dy", step)

        def each(n: Index, sums: Sequence[int]) -> Sequence[int]:
            s = k.load(self.states, (t * self.split.states + n).id)
            values = s, d, self.weight(n), self.factor("B", step, n), u, self.factor("C", step, n)
            ds, dd, da, db, du = r.reverse(k, *values, k.load(self.carried, n.id), dy)
            k.store(self.carried, n.id, ds)
            k.store(self.weights, n.id, da, add=True)
            db = k.add(ops.where, p.inside, db, k.constant(0.0))
            self.sum_lanes(db, self.sums, p.partial(step, n))
            return [k.add(ops.add, a, b) for a, b in zip(sums, (dd, du), strict=True)]

        dd, du = self.every_state(each, [k.constant(0.0)] * 2)
        dskip, more = r.weighed(k, p.of("D", p.channel), u, dy)
        k.store(self.skips, k.word(0), dskip, add=True)
        self.store(self.ddelta, p.at(step, p.channel), r.slope(k, raw, dd)[0])
        self.store(self.du, p.at(step, p.channel), k.add(ops.add, du, more))
