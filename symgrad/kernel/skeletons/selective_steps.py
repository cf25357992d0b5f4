"""Steps of selective scans: of invocations alone, and of tiles that invocations share.

In step, each invocation has a channel, and all of its states. Where memory is shared, the numbers
of a tile of steps stand in it, and sums go over the lanes of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.index import Index, all_hold
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer, lane_sum
from symgrad.kernel.skeletons.selective import Given, Place, Recurrence, Split, Written, stride_of


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
    """The way forward: see `symgrad.kernel.skeletons.selective_passes.Forward`."""

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
    """The way back: see `symgrad.kernel.skeletons.selective_passes.Backward`."""

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


# tiles of steps, in shared memory ----------------------------------------------------------------

FACTORS: Final[tuple[Given, ...]] = ("B", "C")
"""The arrays that have a number for each state of a step."""


def total(k: KernelIR, values: Sequence[int]) -> int:
    """The sum of some values."""
    partial_sum = values[0]
    for value in values[1:]:
        partial_sum = k.add(ops.add, partial_sum, value)
    return partial_sum


class Tile:
    """The numbers of a tile of some columns, which a group brings to shared memory together.

    Invocation number i has every ``width``-th of them, from the i-th on.
    """

    def __init__(self, k: KernelIR, name: str, steps: int, columns: int) -> None:
        self.k, self.steps, self.columns = k, steps, columns
        self.width = k.target.width
        self.count = steps * columns
        self.rounds = -(-self.count // self.width)
        self.buffer = k.buffer(name, "group", size=self.rounds * self.width)

    def places(self) -> list[tuple[Index, Index]]:
        """The step and the column of each number of an invocation."""
        places: list[tuple[Index, Index]] = []
        for i in range(self.rounds):
            index = Index(self.k, self.k.local) + self.width * i
            row = index // self.columns
            places.append((row, index - row * self.columns))
        return places

    def write(self, values: Sequence[int]) -> None:
        """Store what an invocation has brought."""
        for i, value in enumerate(values):
            self.k.store(self.buffer, (Index(self.k, self.k.local) + self.width * i).id, value)

    def read(self, t: Index, column: Index) -> int:
        """The number of a step."""
        return self.k.load(self.buffer, (t * self.columns + column).id)


class Gathered:
    """Sums of numbers that the invocations of a group have: each sum has a row of memory.

    A row is longer by one, so that neighbouring rows begin in different banks.
    """

    def __init__(self, k: KernelIR, name: str, rows: int, parts: int) -> None:
        self.k, self.rows, self.parts = k, rows, parts
        self.stride = stride_of(parts)
        self.buffer = k.buffer(name, "group", size=rows * self.stride)

    def put(self, row: Index, part: Index, value: int) -> None:
        """Store what an invocation adds to a sum."""
        self.k.store(self.buffer, (row * self.stride + part).id, value)

    def sum(self, row: Index) -> int:
        """The sum, behind a barrier."""
        first = row * self.stride
        return total(self.k, [self.k.load(self.buffer, (first + p).id) for p in range(self.parts)])

    def each(self, body: Callable[[Index, int], None]) -> None:
        """Do ``body(row, there)`` for all rows, each by one invocation; if it is ``there`` at all.

        Indices are made outside of branches, so that all who need them have the same.
        """
        local = Index(self.k, self.k.local)
        for start in range(0, self.rows, self.k.target.width):
            row = local + start
            body(row.at_most(self.rows - 1), row.below(self.rows))


class Tiles:
    """Common parts of both directions: the tiles, and what an invocation has of its channel."""

    def __init__(
        self, k: KernelIR, split: Split, recurrence: Recurrence, names: Sequence[str]
    ) -> None:
        self.k, self.split, self.recurrence = k, split, recurrence
        self.place = Place(k, split)
        self.inputs = {name: k.buffer(name, "read") for name in names}
        self.tiles = {name: Tile(k, f"{name}_tile", split.steps, split.channels) for name in names}
        self.factors: dict[Given, Tile] = {
            name: Tile(k, f"{name}_tile", split.steps, split.states) for name in FACTORS
        }
        self.padded = split.lanes * split.each != split.states
        self.numbers = [self.place.lane * split.each + j for j in range(split.each)]
        """The states that an invocation has: the last ones may be beyond the last."""
        self.weights = [self.place.of("A", self.place.weight(n)) for n in self._within()]
        self.count = self.place.length.ceil_div(split.steps)

    def _within(self) -> list[Index]:
        last = self.split.states - 1
        return [n.at_most(last) for n in self.numbers] if self.padded else self.numbers

    def real(self, j: int) -> int:
        """Whether there is a j-th state of the invocation's."""
        return self.numbers[j].below(self.split.states)

    def states(self, load: Callable[[Index], int]) -> list[int]:
        """The value of each state of the invocation, and 0 where there is none."""
        inside = self.place.inside
        return [self._masked(j, load(n), inside) for j, n in enumerate(self._within())]

    def _masked(self, j: int, value: int, inside: int) -> int:
        if self.padded:
            inside = self.k.add(ops.logical_and, inside, self.real(j))
        return self.where(inside, value)

    def where(self, condition: int, value: int) -> int:
        """A value, or 0."""
        return self.k.add(ops.where, condition, value, self.k.constant(0.0))

    def store_states(
        self, buffer: Buffer, values: Sequence[int], at: Callable[[Index], Index]
    ) -> None:
        """Write a number of each state of the invocation's."""
        places = [at(n).id for n in self._within()]

        def store() -> None:
            for j, (at, value) in enumerate(zip(places, values, strict=True)):
                self.when_real(j, lambda at=at, value=value: self.k.store(buffer, at, value))

        self.k.when(self.k.add(ops.logical_and, self.place.inside, self.place.real), store)

    def when_real(self, j: int, body: Callable[[], None]) -> None:
        """Do a body with the j-th state, if there is one."""
        if self.padded:
            self.k.when(self.real(j), body)
        else:
            body()

    # tiles ---------------------------------------------------------------------------------------

    def load(self, tile: Index) -> list[int]:
        """An invocation's numbers of a tile: 0 behind the last step and the last channel."""
        first = tile * self.split.steps
        numbers: list[int] = []
        for name, buffer in self.inputs.items():
            for t, c in self.tiles[name].places():
                numbers.append(self._number(buffer, first + t, self.place.first + c))
        for name, factor in self.factors.items():
            numbers += [self._factor(name, first + t, n) for t, n in factor.places()]
        return numbers

    def _number(self, buffer: Buffer, step: Index, channel: Index) -> int:
        p, k = self.place, self.k
        index = p.at(step.at_most(p.length - 1), channel.at_most(p.wide - 1))
        inside = k.add(ops.logical_and, step.below(p.length), channel.below(p.wide))
        return self.where(inside, k.load(buffer, index.id, at_use=True))

    def _factor(self, name: Given, step: Index, n: Index) -> int:
        p = self.place
        row = p.sequence * p.length + step.at_most(p.length - 1)
        value = p.of(name, row * self.split.states + n, at_use=True)
        return self.where(step.below(p.length), value)

    def parted(self, loaded: Sequence[int]) -> dict[str, list[int]]:
        """The loaded numbers, by names."""
        by_name: dict[str, list[int]] = {}
        rest = iter(loaded)
        for name, tile in [*self.tiles.items(), *self.factors.items()]:
            by_name[name] = [next(rest) for _ in range(tile.rounds)]
        return by_name

    def stage(self, tile: Index, loaded: dict[str, list[int]], slope: Tile | None = None) -> None:
        """Write a tile to shared memory; a step behind the last has no size."""
        for name, values in loaded.items():
            if name == "delta":
                sizes = self._sizes(tile, values)
                self.tiles[name].write([d for d, _ in sizes])
                if slope is not None:
                    slope.write([s for _, s in sizes])
            elif name in self.tiles:
                self.tiles[name].write(values)
        for name, factor in self.factors.items():
            factor.write(loaded[name])

    def _sizes(self, tile: Index, values: Sequence[int]) -> list[tuple[int, int]]:
        """The size of each step that an invocation brings, and its derivative."""
        sizes: list[tuple[int, int]] = []
        for value, (t, _) in zip(values, self.tiles["delta"].places(), strict=True):
            (d,) = self.recurrence.size(self.k, value)
            (slope,) = self.recurrence.slope(self.k, value, self.k.constant(1.0))
            inside = (tile * self.split.steps + t).below(self.place.length)
            sizes.append((self.where(inside, d), slope))
        return sizes

    def number(self, name: str, t: Index) -> int:
        """The number of the invocation's channel in a step of the tile."""
        return self.tiles[name].read(t, self.place.column)

    def factor(self, name: Given, t: Index) -> list[int]:
        """The numbers of the invocation's states in a step of the tile, 0 where there is none."""
        values = [self.factors[name].read(t, n) for n in self._within()]
        if not self.padded:
            return values
        return [self.where(self.real(j), value) for j, value in enumerate(values)]


def store_sums(tiles: Tiles, sums: Gathered, first: Index, buffer: Buffer) -> None:
    """Behind a barrier, the sums over the group's channels of some steps, with one after it."""
    k, p, states = tiles.k, tiles.place, tiles.split.states
    k.barrier()

    def store(row: Index, inside: int) -> None:
        t = row // states
        step, n = first + t, row - t * states
        value, at = sums.sum(row), p.partial(step, n).id
        inside = all_hold(k, inside, step.below(p.length), p.real)
        k.when(inside, lambda: k.store(buffer, at, value))

    sums.each(store)
    k.barrier()
