"""Sums over rows in the lanes of a vector as a launch: pieces of the rows, and those of the rest.

Where rows add to the entries of tables, there are copies of these, each for some of the pieces, so
that threads need not wait for each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, paused_gc
from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target, widen
from symgrad.kernel.language.statements import Buffer, wide_mul
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.launch import Array, Dispatch, Launch, Part, Read
from symgrad.kernel.passes.lower import Adding, Value, inline, numbers, written
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.skeletons.lookup import Added, Case, added_to, cases
from symgrad.kernel.skeletons.row_inputs import LaneEntries, RowInputs
from symgrad.kernel.skeletons.row_tile import NO_FACTOR, Products, Terms, product_tiles, products_of
from symgrad.kernel.stage import at_each_row

# --- the kernel -----------------------------------------------------------------------------------
# Sums over rows in the lanes of a vector: each adds up its rows, a group what its lanes have.

ROWS_WITH_NEAR_FACTORS: Final = 4
"""Rows of an invocation whose factors have to stay in the cache, or results are not taken apart: to
read factors from memory again takes longer than to add to results."""


@paused_gc()
def row_sums_simd(reduction: Reduction, target: SimdTarget) -> KernelIR:
    """The kernel in which each group sums what its piece of ``count`` rows contributes.

    Its buffers are ``rows`` (count, columns) and ``parameters``, which are read, and ``sums``
    (groups, results), of float64. Where rows look entries up, those of `LaneEntries` follow.
    Rows are read in whole vectors, also behind the last.
    """
    return _Sums(reduction, target).kernel()


class _Sums(RowInputs[LaneEntries]):
    """Rows are added up in floats for a stretch, and the sums of stretches in wide sums, in memory.

    What is done for each wide sum is a loop. Sums of few results are carried from row to row, or
    are in memory, with the same bits. Of rows with many results nothing but factors are kept there
    for a stretch, and products of these added up in tiles of results, if that is possible.
    """

    def __init__(self, reduction: Reduction, target: SimdTarget) -> None:
        few = sum(len(o.nodes) for o in reduction.summed) <= target.summing.carried
        arrays = Added(reduction) if few else added_to(reduction)
        k, self.reduction = KernelIR(target, reduction.name), arrays.reduction
        reduction, self.target, self.summing = arrays.reduction, target, target.summing
        self.roots = [i for o in reduction.summed for i in o.nodes]
        super().__init__(k, reduction, LaneEntries, self.roots)
        self.sums = k.buffer("sums", "write", "d")
        self.count = len(self.roots)
        first, count = self._piece()
        self.first, self.iterations = first, count.ceil_div(target.width)
        nodes, first = enumerate(reduction.graph.nodes), reduction.parameters
        self.inputs = [i for i, n in nodes if n[0] is INPUT and n[1] >= first]
        """The inputs that differ from row to row."""
        each = at_each_row(reduction)
        if few and len(each) <= self.summing.together:
            self.carried, self.products = len(each) <= self.summing.operations, Products({}, ())
        else:
            self.carried, self.products = False, self._products(each)
        self.others = [c for c in range(self.count) if c not in self.products.terms]
        """Results that are no products of factors which are kept."""
        size, factors = max(self.count, 1), len(self.products.kept)
        self.block = min(target.block, self.summing.cached // factors) if factors else target.block
        self.factor_cache = k.buffer("kept", "own", size=self.block * factors) if factors else None
        self.added = k.buffer("added", "own", size=size)
        """The sums over a stretch, but for those in ``arrays``."""
        slopes = [k.buffer(f"slopes{n}", "own", size=size) for n, size in enumerate(arrays.sizes)]
        self.arrays: dict[int, Buffer] = dict(zip(arrays.starts, slopes, strict=True))
        """Arrays to which rows add, by the leaves that they start as."""
        self.ends = arrays.ends
        """The nodes that they are then."""
        pairs = zip(slopes, arrays.conditions, strict=True)
        self.conditions = {array: (i, holds) for array, (i, holds) in pairs if i >= 0}
        """Conditions for adding to them, and whether these have to hold."""
        self.homes = {c: (slopes[n], at) for c, (n, at) in arrays.places.items()}
        """Where in them the sum of a result is over a stretch, if it is."""
        kinds = enumerate(target.wide)
        self.totals = [k.buffer(f"total{c}", "own", kind, size) for c, kind in kinds]

    def _piece(self) -> tuple[Index, Index]:
        """The first row of a lane, and how many rows the group has."""
        k, piece = self.k, self.summing.piece
        cell, count, group = Index(k, k.cell), Index(k, k.count), Index(k, k.group)
        if not piece:
            return cell, count
        return cell + group * (piece - k.target.width), (count - group * piece).at_most(piece)

    def iteration(
        self,
        first: Index,
        last: Index,
        inits: Sequence[int],
        body: Callable[[int, list[int]], Sequence[int]],
    ) -> list[int]:
        """A loop over the rows of a stretch."""
        return self.k.loop(first.id, last.id, inits, body, most=self.block, some=True)[0]

    def contributed(self, t: int, nodes: Sequence[int]) -> tuple[int, list[int]]:
        """Whether there is a row for a turn, and the values of some nodes at it.

        What the row adds to entries of tables is added to them.
        """
        k, graph = self.k, self.graph
        row = (self.first + Index(k, t) * k.target.width).id
        k.names[row] = "row"
        values = self.invariants | {i: self.column(row, 0, i) for i in self.inputs}
        inside = Index(k, row).below(Index(k, k.count))
        adding = Adding(self.arrays, self._adder(inside, values))
        roots = [*nodes, *self.entries.nodes, *self.ends]
        results = numbers(written(k, graph, roots, values, self.parameter, adding))
        self.entries.add(row, [self._or_nothing(inside, v) for v in results[len(nodes) :]])
        return inside, results[: len(nodes)]

    def _adder(self, inside: int, values: Mapping[int, Value]) -> Callable[[Buffer, int], int]:
        """Adds to an array where an iteration would add a value."""
        nodes = [condition for condition, _ in self.conditions.values()]
        conditions = inline(self.k, self.graph, nodes, values, self.parameter)
        adds: dict[Buffer, int] = {}
        for (array, (_, holds)), condition in zip(self.conditions.items(), conditions, strict=True):
            wanted = condition if holds else self.k.add(ops.logical_not, condition)
            adds[array] = self.k.add(ops.logical_and, inside, wanted)
        return lambda array, value: self._or_nothing(adds.get(array, inside), value)

    def _or_nothing(self, inside: int, value: int) -> int:
        """The value that an iteration adds: nothing, if it is at no row."""
        return self._kept(inside, value, self.k.constant(0.0))

    def _kept(self, inside: int, new: int, old: int) -> int:
        """The value that an iteration makes of another: some lanes are at rows beyond the last."""
        return self.k.add(ops.where, inside, new, old)

    def _carry(self, t: int, sums: Sequence[int]) -> Sequence[int]:
        """The sums after one more row."""
        k = self.k
        k.names.update((s, f"sum{c}") for c, s in enumerate(sums))
        inside, values = self.contributed(t, self.roots)
        new = [k.add(ops.add, s, v) for s, v in zip(sums, values, strict=True)]
        return [self._kept(inside, n, s) for n, s in zip(new, sums, strict=True)]

    def _products(self, each: Sequence[int]) -> Products:
        """The results that are taken apart: none, if their factors do not stay in the cache."""
        products = products_of(self.reduction, each)
        fits = len(products.kept) * ROWS_WITH_NEAR_FACTORS <= self.summing.cached
        return products if fits else Products({}, ())

    def kernel(self) -> KernelIR:
        """The whole program."""
        k = self.k
        self._each(range(self.count), self._clear)
        for array in self.arrays.values():
            k.fill(array)
        k.loop(k.word(0), self.iterations.ceil_div(self.block).id, (), self._stretch)
        start = Index(k, k.group) * self.count
        for factor, first, end in _alike(self.known(self.reduction.factors)):
            wide = k.add(widen, factor)

            def store(c: int, wide: int = wide) -> None:
                k.store(self.sums, (start + Index(k, c)).id, wide)

            self._iterations(first, end, store)
        self._each(range(self.count), self._finish)
        return k

    def _each(self, results: Sequence[int], body: Callable[[int], None]) -> None:
        """Loops of what is done for some results."""
        for first, end in _runs(results):
            self._iterations(first, end, body)

    def _iterations(self, first: int, end: int, body: Callable[[int], None]) -> None:
        """A loop of what is done for results whose numbers follow each other."""

        def iteration(c: int, _: Sequence[int]) -> Sequence[int]:
            body(c)
            return ()

        self.k.loop(self.k.word(first), self.k.word(end), (), iteration)

    # a stretch -----------------------------------------------------------------------------------

    def _stretch(self, number: int, _: Sequence[int]) -> Sequence[int]:
        """Rows of an invocation that are added up in floats, and then to the wide sums."""
        k = self.k
        first = Index(k, number) * self.block
        last = (first + self.block).at_most(self.iterations)
        if self.carried:
            zeros = [k.constant(0.0)] * self.count
            for c, x in enumerate(self.iteration(first, last, zeros, self._carry)):
                k.store(self.added, k.word(c), x)
        else:
            self.iteration(first, last, (), partial(self._keep, first.id))
            for tile in product_tiles(self.products.terms, self.summing.registers):
                self._add_products(tile, (last - first).id)
        self._add_all(range(self.count) if self.summing.brief else self.others)
        return ()

    def _keep(self, first: int, t: int, _: Sequence[int]) -> Sequence[int]:
        """Add what a row contributes to sums in memory, and keep its factors there."""
        k, factors = self.k, self.products.kept
        singly = {c: self.roots[c] for c in self.others if c not in self.homes}
        chosen = cases(self.graph, singly, [*factors, *self.ends])
        for case in chosen:
            for c in case.values:
                del singly[c]
        more = dict.fromkeys(i for case in chosen for i in (case.condition, *case.needed))
        inside, values = self.contributed(t, [*singly.values(), *factors, *more])
        for c, v in zip(singly, values, strict=False):
            old = k.load(self.added, k.word(c))
            k.store(self.added, k.word(c), self._kept(inside, k.add(ops.add, old, v), old))
        value_of = dict(zip(more, values[len(singly) + len(factors) :], strict=True))
        for case in chosen:
            self._add_case(case, inside, value_of)
        if self.factor_cache:
            row = k.add(ops.word_sub, t, first)
            for c, v in enumerate(values[len(singly) : len(singly) + len(factors)]):
                stored = self._kept(inside, v, k.constant(0.0))
                k.store(self.factor_cache, k.offset(row, len(factors), c), stored)
        return ()

    def _add_case(self, case: Case, inside: int, value_of: Mapping[int, int]) -> None:
        """Add what a row contributes in a case to sums in memory."""
        k, condition = self.k, value_of[case.condition]
        if not case.holds:
            condition = k.add(ops.logical_not, condition)

        def add() -> None:
            values = inline(k, self.graph, [*case.values.values()], value_of, self.parameter)
            for c, v in zip(case.values, values, strict=True):
                k.store(self.added, k.word(c), v, add=True)

        k.when(k.add(ops.logical_and, inside, condition), add)

    def _add_products(self, results: Sequence[int], rows: int) -> None:
        """Add up results of so many rows whose factors have been kept."""
        k, factors = self.k, self.factor_cache
        assert factors, "factors are kept somewhere"
        terms = [self.products.terms[c] for c in results]
        place = {i: c for c, i in enumerate(self.products.kept)}
        wanted = dict.fromkeys(i for pairs in terms for pair in pairs for i in pair)
        wanted.pop(NO_FACTOR, None)

        def iteration(t: int, sums: Sequence[int]) -> Sequence[int]:
            at = {i: k.load(factors, k.offset(t, len(place), place[i])) for i in wanted}
            return [self._with(s, at, pairs) for s, pairs in zip(sums, terms, strict=True)]

        totals, _ = k.loop(k.word(0), rows, [k.constant(0.0)] * len(terms), iteration, some=True)
        for c, x in zip(results, totals, strict=True):
            if self.summing.brief:
                k.store(self.added, k.word(c), x)
            else:
                self._add_to_total(k.word(c), x)

    def _with(self, total: int, at: Mapping[int, int], pairs: Terms) -> int:
        """A sum and products of the factors at a row, one after the other."""
        k = self.k
        for a, b in pairs:
            product = at[a] if b == NO_FACTOR else k.add(ops.mul, at[a], at[b])
            total = k.add(ops.add, total, product)
        return total

    # wide sums -----------------------------------------------------------------------------------

    def _store(self, c: int, total: Sequence[int]) -> None:
        for buffer, part in zip(self.totals, total, strict=True):
            self.k.store(buffer, c, part)

    def _total(self, c: int) -> tuple[int, ...]:
        return tuple(self.k.load(buffer, c) for buffer in self.totals)

    def _clear(self, c: int) -> None:
        """The sums of a result before all rows."""
        self._store(c, self.target.wide_zero(self.k))
        if not self.carried:
            self.k.store(self.added, c, self.k.constant(0.0))

    def _add_all(self, results: Sequence[int]) -> None:
        """Add the sums of results over a stretch to the wide ones."""
        for first, end in _runs(results):
            for (array, step), run in itertools.groupby(range(first, end), self._home):
                numbers = list(run)
                self._iterations(numbers[0], numbers[-1] + 1, partial(self._add, array, step))

    def _home(self, c: int) -> tuple[Buffer, int]:
        """Where the sum of a result over a stretch is: an array, and how much further on than c."""
        array, at = self.homes.get(c, (self.added, c))
        return array, at - c

    def _add(self, array: Buffer, step: int, c: int) -> None:
        """Add the sum of a result over a stretch to the wide one."""
        k = self.k
        at = k.add(ops.word_add if step >= 0 else ops.word_sub, c, k.word(abs(step)))
        self._add_to_total(c, k.load(array, at))
        if not self.carried:
            k.store(array, at, k.constant(0.0))

    def _add_to_total(self, c: int, x: int) -> None:
        self._store(c, self.target.wide_add(self.k, self._total(c), x))

    def _finish(self, c: int) -> None:
        """The sum of a result over the group, times the factor that stands in its place."""
        k = self.k
        at = (Index(k, k.group) * self.count + Index(k, c)).id
        total = self.target.over_lanes(k, self._total(c))
        k.store(self.sums, at, k.add(wide_mul, k.load(self.sums, at), total))


def _alike(factors: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Runs of results that have one factor: it, the first of them, and the one after the last."""
    first = 0
    for factor, run in itertools.groupby(factors):
        end = first + len(list(run))
        yield factor, first, end
        first = end


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first of each run of numbers that follow each other, and the one after its last."""
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [n for _, n in run]
        yield members[0], members[-1] + 1


# --- the launch -----------------------------------------------------------------------------------

MOST_NUMBERS: Final = 2**31
"""Numbers that a dispatch over rows reads, at most: words have to count them."""

TABLE_COPIES: Final = 8
"""Tables that results are added to side by side, if they go to the entries of tables."""


@dataclass(frozen=True, eq=False)
class LaneSums:
    """The program of the kernel of sums over rows in the lanes of a vector."""

    reduction: Reduction

    def __call__(self, target: SimdTarget) -> KernelIR:
        """The kernel for its target."""
        return row_sums_simd(self.reduction, target)


def cleared(target: Target) -> KernelIR:
    """The kernel that sets float64 numbers to 0, one in each invocation."""
    k = KernelIR(target, "cleared")
    k.store(k.buffer("sums", "write", "d"), k.cell, k.add(widen, k.constant(0.0)))
    return k


@dataclass(frozen=True)
class LaneSumsLaunch:
    """A launch that sums over rows in lanes: its total are all sums, see `RowSums.bind`.

    It is over ``count`` rows, which cost about ``weight`` additions each. Its inputs are the
    ``parameters``, with tables behind them, and what stays from call to call: the ``rows`` that
    fill whole vectors, and the ``rest``, which is filled up by the last of them again, as loops of
    rows have to end there too; so with the indices of both, where rows look entries up. Its outputs
    are the ``sums`` of pieces of the rows, and those of the rest, in float64; and the copies of the
    tables that rows add to.
    """

    program: LaneSums
    target: SimdTarget
    count: int
    weight: int

    @property
    def rest(self) -> int:
        """How many rows are left behind those that fill vectors."""
        return self.count % self.target.width

    @property
    def whole(self) -> int:
        """How many rows fill vectors."""
        return self.count - self.rest

    def resident(self, rows: Any, indices: np.ndarray | None) -> dict[str, Any]:
        """The rows, and their indices, where they are."""
        kept = dict[str, np.ndarray]()
        arrays = [("rows", rows)] if indices is None else [("rows", rows), ("index", indices)]
        for name, array in arrays:
            if self.whole:
                kept[name] = array[: self.whole]
            if self.rest:
                kept[f"{name}_rest"] = _filled_up(array[self.whole :], self.target.width)
        return kept

    def total(self, outputs: Sequence[np.ndarray], read: Read) -> np.ndarray:
        """The sums, in float64: the same whoever has computed which piece."""
        if not self.sizes:
            return self._results(outputs)
        sums, added = outputs[: -len(self.sizes)], outputs[-len(self.sizes) :]
        entries = (a.sum(axis=0)[:size] for a, size in zip(added, self.sizes, strict=True))
        return np.concatenate([self._results(sums), *entries])

    def _results(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """The sums over all rows."""
        if not outputs:
            return np.zeros(self.program.reduction.results)
        first = outputs[0]
        if not self.whole:
            return first.copy()
        rest = outputs[1] if self.rest else 0.0
        if len(first) == 1:
            return first[0] + rest
        pieces = np.empty(first.T.shape + np.array([0, 1]))
        pieces[:, :-1], pieces[:, -1] = first.T, rest
        return pieces.sum(axis=1)  # NumPy adds whole rows in turn, within a row in halves

    # the launch ----------------------------------------------------------------------------------

    @property
    def launch(self) -> Launch:
        """The arrays and the dispatches of a call."""
        dispatches = *self._clear(), *self._sum(), *self._sum_rest()
        name, inputs, outputs = self.program.reduction.name, self._inputs(), self._outputs()
        return Launch(name, tuple(inputs), tuple(outputs), (), dispatches, total=self.total)

    @cached_property
    def sizes(self) -> list[int]:
        """The numbers of the tables."""
        return [lookup.size for lookup in self.program.reduction.lookups]

    @property
    def _pieces(self) -> int:
        return -(-self.whole // self.target.summing.piece)

    @property
    def _copies(self) -> int:
        return max(1, min(TABLE_COPIES, self._pieces)) if self.sizes else 1

    @property
    def _strides(self) -> list[int]:
        """Numbers from one copy of a table to the next."""
        lanes = self.target.width
        return [(-(-size // lanes) + 1) * lanes for size in self.sizes]

    def _inputs(self) -> Iterator[Array]:
        reduction, lanes = self.program.reduction, self.target.width
        yield Array("parameters", (reduction.packed_size,))
        for suffix, rows in (("", self.whole), ("_rest", lanes if self.rest else 0)):
            if rows:
                yield Array(f"rows{suffix}", (rows, reduction.columns))
                if reduction.indices:
                    yield Array(f"index{suffix}", (rows, reduction.indices), "u")

    def _outputs(self) -> Iterator[Array]:
        if self._pieces:
            yield Array("sums", (self._pieces, self.program.reduction.results), "d")
        if self.rest:
            yield Array("sums_rest", (self.program.reduction.results,), "d")
        for n, stride in enumerate(self._strides):
            yield Array(f"added{n}", (self._copies, stride), "d")

    def _clear(self) -> Iterator[Dispatch]:
        """The dispatches that set the copies of the tables to 0."""
        for copy in range(self._copies):
            for n, stride in enumerate(self._strides):
                bound = ("sums", self._copy(n, copy))
                yield Dispatch(cleared, self.target, (bound,), stride, cost=1)

    def _copy(self, n: int, copy: int) -> Part:
        return Part(f"added{n}", copy * self._strides[n], self._strides[n])

    def _sum(self) -> Iterator[Dispatch]:
        """The dispatches over the pieces: those of each copy of the tables, and not too many."""
        reduction, piece = self.program.reduction, self.target.summing.piece
        most = max(1, MOST_NUMBERS // (piece * max(reduction.columns, reduction.indices, 1)))
        for copy in range(self._copies):
            begin, last = (self._pieces * k // self._copies for k in (copy, copy + 1))
            for first in range(begin, last, most):
                end = min(first + most, last)
                start, stop = first * piece, min(end * piece, self.whole)
                yield self._dispatch("", start, stop - start, copy, first, end - first)

    def _sum_rest(self) -> Iterator[Dispatch]:
        """The dispatch over the last rows."""
        if self.rest:
            yield self._dispatch("_rest", 0, self.rest, 0, 0, 1)

    def _dispatch(
        self, suffix: str, start: int, rows: int, copy: int, first: int, groups: int
    ) -> Dispatch:
        """The sums of so many groups over so many rows, to numbers ``first`` and on."""
        whole, reduction = bool(suffix) or rows == self.whole, self.program.reduction
        places = {"sums": (first, groups, reduction.results)}
        places["rows"] = start, rows, reduction.columns
        if reduction.indices:
            places["index"] = start, rows, reduction.indices
        table = reduction.parameters
        arrays: list[tuple[str, str | Part]] = [("parameters", "parameters")]
        for name, (begin, count, columns) in places.items():
            part = Part(name, begin * columns, count * columns)
            arrays.append((name, f"{name}{suffix}" if whole else part))
        for n, size in enumerate(self.sizes):
            part = Part("parameters", table, size + self.target.width)
            arrays += [(f"table{n}", part), (f"added{n}", self._copy(n, copy))]
            table += size
        cost = max(1, rows * self.weight // (groups * self.target.width))
        return Dispatch(self.program, self.target, tuple(arrays), rows, groups, cost=cost)


def _filled_up(rows: np.ndarray, count: int) -> np.ndarray:
    """The rows, and the last one again as often as makes up this count."""
    filled = np.empty((count, rows.shape[1]), rows.dtype)
    filled[: len(rows)], filled[len(rows) :] = rows, rows[-1:]
    return filled
