"""Sums over rows in groups: an invocation adds up its rows, and a group what its invocations have.

Each invocation takes every stride-th load of the table; the first numbers of the sums are what
they are to be multiplied with, and then come those of all groups. Nothing is atomic: the same rows
give the same bits.

Rounding errors stay those of short sums: an invocation has few rows. Where there are few results it
adds them in blocks of `ROWS_PER_BLOCK`, and then the sums of the blocks; where there are many, one
by one. What a row adds to entries of tables, its slopes, is written as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, reachable
from symgrad.kernel.language.index import Index, word_where
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import WorkgroupTarget, add_up, branches_of
from symgrad.kernel.passes.lower import Value, inlined
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.row_inputs import GroupEntries, RowInputs
from symgrad.kernel.skeletons.row_tile import NO_FACTOR, ROWS_PER_BLOCK, Tile, cut, products_of

HOISTED_PARAMETERS: Final = 64
"""Parameters up to which they are read before the loop, rather than at every row."""


def row_sums_workgroup(tile: Tile, width: int, most: int) -> KernelIR:
    """The kernel in which groups of so many invocations sum the results of a tile.

    An invocation has ``most`` rows at most. Buffers that are read are ``rows``, ``parameters``,
    those of `GroupEntries`, and ``constants``, if there are tables of them; ``partials`` takes the
    factors of the results, and then the values of those that no row changes, and for each of the
    others the sums of all groups.
    """
    return _Sums(tile, width, most).kernel()


class TileRows(RowInputs[GroupEntries]):
    """Common parts of programs of tiles: what is known at a row, and where results go."""

    def __init__(self, tile: Tile, width: int) -> None:
        k = KernelIR(WorkgroupTarget(width), tile.whole.name)
        roots = tile.reduction.outputs[0].nodes
        super().__init__(k, tile.whole, GroupEntries, roots, tile.load, tile.rows)
        self.tile, self.width = tile, width
        self.partials = k.buffer("partials", "write")
        self.entries.write_to()
        self.head = 2 * len(tile.results) - len(tile.summed)
        """Where the sums of groups begin."""
        self.invariants |= self._fixed()

    def _fixed(self) -> dict[int, Value]:
        """Values of parameters that rows need, but for these themselves if they are too many."""
        nodes, carried = self.graph.nodes, self.tile.split.carried
        inputs = [i for i in carried if nodes[i][0] is INPUT]
        computed = [i for i in carried if nodes[i][0] is not INPUT]
        fixed: dict[int, Value] = dict(zip(computed, self.known(computed), strict=True))
        if len(inputs) <= HOISTED_PARAMETERS:
            fixed |= {i: self.parameter(i) for i in inputs}
        return fixed

    def store_fixed(self) -> None:
        """Write the factors, and what no row changes."""
        k, tile = self.k, self.tile
        fixed = [i for c, i in tile.roots.items() if c not in tile.summed]
        values = [*tile.reduction.factors, *fixed]

        def store() -> None:
            for c, value in enumerate(self.known(values)):
                k.store(self.partials, k.word(c), value)

        if values:
            k.when(Index(k, k.cell).below(1), store)


class _Sums(TileRows):
    """A tile whose sums each invocation has for itself."""

    def __init__(self, tile: Tile, width: int, most: int) -> None:
        super().__init__(tile, width)
        self.most, k = most, self.k
        self.count = len(tile.summed)
        self.block = max(1, min(ROWS_PER_BLOCK, most) // tile.rows)
        """Loads of a block."""
        self.sums = k.buffer("sums", "own", size=max(self.count, 1))
        two_levels = tile.two_levels
        self.totals = k.buffer("totals", "own", size=max(self.count, 1)) if two_levels else None
        """The sums of blocks, if there are any: those of rows are of a block then."""
        self.add_row = self._routine() if tile.rows > 1 or tile.flat else self._add
        self.cell, self.jump = Index(k, k.cell), Index(k, k.groups) * width
        loads = Index(k, k.count).ceil_div(tile.rows)
        self.loads = (loads + (self.jump - 1) - self.cell) // self.jump
        """How many loads of the table an invocation has."""
        k.names |= {self.jump.id: "jump", self.loads.id: "loads"}

    def kernel(self) -> KernelIR:
        """The whole program."""
        if self.tile.has_rows:
            self.k.fill(self.sums)
            if self.totals:
                self._blocks(self.totals)
            else:
                self._loads(self.k.word(0), self.loads.id)
            self._write(self.totals or self.sums)
        self.store_fixed()
        return self.k

    # the rows of an invocation -------------------------------------------------------------------

    def _blocks(self, totals: Buffer) -> None:
        """Add up blocks of rows."""
        k = self.k
        k.fill(totals)

        def iteration(b: int, start: Sequence[int]) -> Sequence[int]:
            first = Index(k, b) * self.block
            last = (first + self.block).at_most(self.loads)
            k.names |= {b: "block", last.id: "last"}
            if self.tile.flat:
                self._flat(Index(k, start[0]), first.id, last.id)
            else:
                self._loads(first.id, last.id)
            for n in map(k.word, range(self.count)):
                k.store(totals, n, k.load(self.sums, n), add=True)
            k.fill(self.sums)
            return [(Index(k, at) + self.jump * self.block).id for at in start]

        blocks = self.loads.ceil_div(self.block).id
        k.names[blocks] = "blocks"
        most = -(-self.most // (self.block * self.tile.rows))
        k.loop(k.word(0), blocks, [k.cell] * self.tile.flat, iteration, most=most)

    def _loads(self, first: int, last: int) -> None:
        """Add up some loads, in a loop."""
        k, rows = self.k, self.tile.rows

        def iteration(t: int, _: Sequence[int]) -> Sequence[int]:
            at = (self.cell + Index(k, t) * self.jump).id
            k.names[at] = "row" if rows == 1 else "load"
            if rows > 1 or self.tile.whole.is_structured:
                self._load(at)
            self.add_row(at, 0)
            for part in range(1, rows):
                exists = Index(k, k.offset(at, rows, part)).below(Index(k, k.count))
                k.when(exists, partial(self.add_row, at, part))
            return ()

        k.loop(first, last, (), iteration, most=self.block if self.totals else self.most // rows)

    def _flat(self, start: Index, first: int, last: int) -> None:
        """Add up a block without the loop, all loads before the work, unless the end cuts it.

        ``start`` is the first load, and ``first`` its number among those of the invocation.
        """
        k, rows = self.k, self.tile.rows
        steps = [self.jump * j for j in range(self.block)]
        places = [start, *((start + step) for step in steps[1:])]
        k.names |= {start.id: "start"} | {at.id: f"load{j}" for j, at in enumerate(places) if j}

        def whole() -> Sequence[int]:
            for at in places:
                self._load(at.id)
            for at in places:
                for part in range(rows):
                    self.add_row(at.id, part)
            return ()

        def cut() -> Sequence[int]:
            self._loads(first, last)
            return ()

        ends = Index(k, k.count) // rows
        k.names[ends.id] = "end"
        k.choose(places[-1].below(ends), whole, cut)

    def _load(self, at: int) -> None:
        """Read all columns of all rows of a load."""
        for part in range(self.tile.rows):
            for i in self.tile.whole.row_inputs:
                self.column(at, part, i)

    def _routine(self) -> Callable[[int, int], None]:
        """The routine that adds row number ``part`` of a load to the sums, written once."""
        k = self.k
        needed = set(reachable(self.graph, [*self.tile.roots.values()]))
        columns = [i for i in self.tile.whole.row_inputs if i in needed]

        def body(*values: int) -> None:
            value_of = dict(zip(columns, values, strict=True))
            for i, value in value_of.items():
                k.names[value] = self.graph.names[self.graph.nodes[i][1]]
            self._sum(lambda i: value_of[i] if i in value_of else self.parameter(i, at_use=True))

        routine = k.routine("add_row", "f" * len(columns), body)
        return lambda at, part: routine(*[self.column(at, part, i) for i in columns])

    def _add(self, at: int, part: int) -> None:
        """Add a row to the sums; its slopes are written, if it is alone in the load ``at``."""
        written = self.tile.written
        slopes = self._sum(
            partial(self.column, at, part), [s.node for quad in written.values() for s in quad]
        )
        for number, quad in written.items():
            self.entries.write(at, number, [next(slopes) for _ in quad])

    def _sum(self, column: Callable[[int], int], more: Sequence[int] = ()) -> Iterator[int]:
        """Add a row, of which ``column`` gives the inputs, to the sums; the values of ``more``."""
        k, roots = self.k, [self.tile.roots[c] for c in self.tile.summed]
        order = sorted(range(self.count), key=roots.__getitem__)  # as they become known
        wanted = [*(roots[n] for n in order), *more]
        values = inlined(k, self.graph, wanted, self.invariants, column)
        for n in order:
            k.store(self.sums, k.word(n), next(values), add=True)
        return values

    # the sums of a group -------------------------------------------------------------------------

    def _write(self, sums: Buffer) -> None:
        """Write the sums of the group, as many together as its memory takes."""
        k, together = self.k, self.width // branches_of(self.width)
        if self.count:
            size = min(together, self.count) * self.width
            tile = k.buffer("tile", "group", size=size)
            for start in range(0, self.count, together):
                if start:
                    k.barrier()
                some = range(start, min(start + together, self.count))
                values = [partial(k.load, sums, k.word(n)) for n in some]
                add_up(k, tile, values, partial(self._write_sum, start))

    def _write_sum(self, start: int, total: int) -> None:
        """Write the sum that an invocation has, of those from a number on."""
        k = self.k
        number, first = Index(k, k.local) + start, Index(k, k.group) + self.head
        k.store(self.partials, (first + number * Index(k, k.groups)).id, total)


# --- products of factors --------------------------------------------------------------------------
# Sums of products over rows in groups: a group's rows leave factors behind, which all multiply.
#
# An invocation computes a row and writes the factors of its results to the group's memory, in
# quads. Then each adds up the products of two quads over many of these rows, in registers: so one
# kernel has very many results, and what a row needs is computed once. What is no product is one
# with 1. Where the memory does not take all factors of a row, they come in steps.

WIDTH: Final = 64
"""Invocations of a workgroup, and rows whose factors are in its memory."""

QUADS: Final = 15
"""Quads of a row there, at most: odd, so that neighbours are in different banks of it."""

PAIRS: Final = WIDTH // 4
"""Pairs of quads of a stage, at most: so an invocation adds up at most 16 rows one by one,
which rounds no more than elsewhere."""

MOST_RESULTS: Final = 1024
"""Results of a module, at most."""

PRODUCTS_PER_RESULT: Final = 3
"""Products that are added up for each that is wanted, at most: the others in a pair of quads."""

CELLS_OF_PAIR: Final = 16
"""Products of a pair of quads."""

Quad = tuple[int, ...]
"""Up to four factors, of which a row's are written and read together."""


@dataclass(frozen=True)
class Step:
    """Pairs of quads whose products are added up together, by the numbers of their quads."""

    quads: tuple[Quad, ...]
    blocks: tuple[tuple[int, int], ...]

    @property
    def thread_groups(self) -> int:
        """Invocations that share the rows of a pair: a power of 2."""
        return 1 << ((WIDTH // len(self.blocks)).bit_length() - 1)


class Products:
    """The results of a tile as products, and the stages in which they are added up."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        terms = products_of(tile.reduction, tile.split.each, most=1).terms
        self.pairs = [(tile.roots[k], NO_FACTOR) for k in tile.summed]
        places = {k: c for c, k in enumerate(tile.summed)}
        for k, ((a, b),) in terms.items():
            if (place := places.get(tile.results.start + k)) is not None:
                self.pairs[place] = (a, b)
        self._quads = list(_quads(self.pairs))
        self._place = {i: (q, c) for q, quad in enumerate(self._quads) for c, i in enumerate(quad)}
        self._blocks = list(dict.fromkeys(sorted(self._block(pair) for pair in self.pairs)))
        self.steps = list(self._steps())

    @property
    def cells(self) -> tuple[int, ...]:
        """For each result its number among all products that are added up."""
        start = {block: 16 * k for k, block in enumerate(self._blocks)}
        numbers: list[int] = []
        for a, b in self.pairs:
            if self._place[a] > self._place[b]:
                a, b = b, a
            row, column = self._place[a][1], self._place[b][1]
            numbers.append(start[self._block((a, b))] + 4 * row + column)
        return tuple(numbers)

    def pay(self) -> bool:
        """Whether they are worth it: there are few factors, and products, for many results."""
        factors, results = len(self._place), len(self.pairs)
        return 2 * factors <= results and 16 * len(self._blocks) <= PRODUCTS_PER_RESULT * results

    def _block(self, pair: tuple[int, int]) -> tuple[int, int]:
        a, b = sorted(self._place[i][0] for i in pair)
        return a, b

    def _steps(self) -> Iterator[Step]:
        """As many pairs of quads together as the memory and the invocations take."""
        taken: list[tuple[int, int]] = []
        for block in self._blocks:
            if len({q for pair in (*taken, block) for q in pair}) > QUADS or len(taken) == PAIRS:
                yield self._step(taken)
                taken = []
            taken.append(block)
        if taken:
            yield self._step(taken)

    def _step(self, blocks: list[tuple[int, int]]) -> Step:
        used = {q: k for k, q in enumerate(dict.fromkeys(q for pair in blocks for q in pair))}
        return Step(
            tuple(self._quads[q] for q in used), tuple((used[a], used[b]) for a, b in blocks)
        )


def _quads(pairs: Iterable[tuple[int, int]]) -> Iterator[Quad]:
    """All factors in fours: those with the same partners together."""
    partners: dict[int, dict[int, None]] = {}
    for a, b in pairs:
        partners.setdefault(a, {})[b] = None
        partners.setdefault(b, {})[a] = None
    alike: dict[frozenset[int], list[int]] = {}
    for i, others in partners.items():
        alike.setdefault(frozenset(others), []).append(i)
    rest: list[int] = []
    for factors in alike.values():
        whole = len(factors) // 4 * 4
        yield from (tuple(factors[k : k + 4]) for k in range(0, whole, 4))
        rest += factors[whole:]
    yield from (tuple(rest[k : k + 4]) for k in range(0, len(rest), 4))


def in_products(reduction: Reduction) -> list[Products]:
    """The results of a reduction in tiles of products, or none if it does not pay."""
    if reduction.lookups:
        return []
    tiles = [Products(tile) for tile in cut(reduction, MOST_RESULTS, one_row=True)]
    return tiles if all(products.pay() for products in tiles) else []


def group_products(products: Products) -> KernelIR:
    """The kernel in which groups sum the products of a tile, `WIDTH` invocations each.

    Its buffers are those of `row_sums_workgroup`; of the sums, those number ``products.cells`` are
    wanted.
    """
    return _Program(products).kernel()


class _Program(TileRows):
    def __init__(self, products: Products) -> None:
        super().__init__(products.tile, WIDTH)
        k, self.steps = self.k, products.steps
        self.stride = max(len(step.quads) for step in self.steps) | 1
        """Quads from one row in the group's memory to the next."""
        size = 4 * max(self.stride, 4) * WIDTH
        self.memory = k.buffer("tile", "group", size=size, vector=4)
        self.local, self.mine = Index(k, k.local), [_Mine(k, step) for step in self.steps]

    def kernel(self) -> KernelIR:
        """The whole program."""
        k, zero = self.k, self.k.constant(0.0)
        begin, jump = Index(k, k.group) * WIDTH, Index(k, k.groups) * WIDTH
        iterations = (Index(k, k.count) + (jump - 1) - begin) // jump

        def iteration(t: int, sums: list[int]) -> list[int]:
            first = begin + Index(k, t) * jump
            factors, added = self._factors(first + self.local), list[int]()
            for mine, some in zip(self.mine, _cut(sums, CELLS_OF_PAIR), strict=True):
                added += self._added(mine, factors, some)
            return added

        inits = [zero] * (CELLS_OF_PAIR * len(self.steps))
        sums, _ = k.loop(k.word(0), iterations.id, inits, iteration, most=self.tile.most)
        start = 0
        for mine, some in zip(self.mine, _cut(sums, CELLS_OF_PAIR), strict=True):
            self._write(mine, some, start)
            start += 4 * len(mine.step.blocks)
        self.store_fixed()
        return k

    def _factors(self, row: Index) -> dict[int, int]:
        """The factors at a row, or 0 for each past the end."""
        k, zero = self.k, self.k.constant(0.0)
        inside = row.below(Index(k, k.count))
        at = row.at_most(Index(k, k.count) - 1).id
        k.names[at] = "row"
        wanted = sorted({i for s in self.steps for quad in s.quads for i in quad} - {NO_FACTOR})
        values = inlined(k, self.graph, wanted, self.invariants, lambda i: self.column(at, 0, i))
        factors = {NO_FACTOR: k.constant(1.0)}
        for i, value in zip(wanted, values, strict=True):
            factors[i] = k.add(ops.where, inside, value, zero)
        return factors

    def _added(self, mine: _Mine, factors: Mapping[int, int], sums: Sequence[int]) -> list[int]:
        """The sums of a pair after the rows in the group's memory, where factors are written."""
        k, step, zero = self.k, mine.step, self.k.constant(0.0)
        row = self.local * self.stride
        for c, quad in enumerate(step.quads):
            values = [factors[i] for i in quad] + [zero] * (4 - len(quad))
            self._put(row + c, values)
        k.barrier()

        def iteration(t: int, parts: list[int]) -> list[int]:
            at = (mine.threads + Index(k, t) * step.thread_groups) * self.stride
            left, right = self._got(at + mine.left), self._got(at + mine.right)
            pairs = zip(parts, itertools.product(left, right), strict=True)
            return [k.add(ops.add, part, k.add(ops.mul, a, b)) for part, (a, b) in pairs]

        parts, _ = k.loop(
            k.word(0), k.word(WIDTH // step.thread_groups), [zero] * CELLS_OF_PAIR, iteration
        )
        k.barrier()
        return [k.add(ops.add, total, part) for total, part in zip(sums, parts, strict=True)]

    def _write(self, mine: _Mine, sums: Sequence[int], start: int) -> None:
        """Add up the sums of thread groups, and write them from quad number ``start`` on."""
        k, step, first = self.k, mine.step, self.local * 4
        for c, quad in enumerate(_cut(sums, 4)):
            self._put(first + c, quad)
        k.barrier()
        count = 4 * len(step.blocks)

        def store() -> None:
            def iteration(t: int, parts: list[int]) -> list[int]:
                more = self._got(self.local + Index(k, t) * count)
                return [k.add(ops.add, a, b) for a, b in zip(parts, more, strict=True)]

            inits, groups = self._got(self.local), Index(k, k.groups)
            totals, _ = k.loop(k.word(1), k.word(step.thread_groups), inits, iteration)
            for c, value in enumerate(totals):
                number = Index(k, (self.local + start).lanes(4)[c])
                to = Index(k, k.group) + number * groups + self.head
                k.store(self.partials, to.id, value)

        k.when(self.local.below(count), store)
        k.barrier()

    def _put(self, quad: Index, values: Sequence[int]) -> None:
        for place, value in zip(quad.lanes(4), values, strict=True):
            self.k.store(self.memory, place, value)

    def _got(self, quad: Index) -> list[int]:
        return [self.k.load(self.memory, place) for place in quad.lanes(4)]


class _Mine:
    """The sums of an invocation in a step: its pair of quads, and its thread group's rows."""

    def __init__(self, k: KernelIR, step: Step) -> None:
        self.step = step
        threads, pair = divmod(Index(k, k.local), Index(k, k.word(len(step.blocks))))
        self.threads = threads.at_most(step.thread_groups - 1)
        self.left, self.right = (_chosen(pair, side) for side in zip(*step.blocks, strict=True))


def _chosen(which: Index, words: Sequence[int]) -> Index:
    """The word number ``which`` of some constants, chosen at run time."""
    k = which.k
    chosen = Index(k, k.word(words[0]))
    for n, word in enumerate(words[1:], 1):
        if word != words[n - 1]:
            chosen = word_where(which.below(n), chosen, word)
    return chosen


def _cut(values: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Values in pieces of this size."""
    return (values[k : k + size] for k in range(0, len(values), size))
