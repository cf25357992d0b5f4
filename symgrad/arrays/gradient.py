"""Reverse mode: the cotangent of an array is what the elements that read it send back.

Within a body the rows of the op table hand cotangents down, as everywhere. What a read ``A[e]``
gets is added to A's cotangent at e, for all values of the counters around it: a scatter, which the
transposition law makes a sum again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from symgrad.arrays import algorithms
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Result, Scan, Scatter, Tabulate, ordered, sources
from symgrad.arrays.scalars import Array, Read, Reduce
from symgrad.arrays.shifts import without_effect
from symgrad.arrays.transpose import transposed
from symgrad.errors import UnsupportedError
from symgrad.expr import ops
from symgrad.expr.derivatives.cotangents import (
    Contribution,
    collected,
    differentiating,
    masked,
    pull_back,
    selected,
)
from symgrad.expr.graph.node import Op
from symgrad.expr.graph.region import Pick

MOST_ADDED: Final = 8
"""Cotangents of an array that are added in one expression."""
MOST_COMPARED: Final = 2**24
"""Elements, at most, that are stored to find those that equal an extreme."""
LONGEST: Final = 24
"""The nodes of a condition that is computed again with each derivative, at most."""


def cotangents(
    b: Builder, outputs: Sequence[Array], wrt: Sequence[Array], seeds: Sequence[Array]
) -> list[Array]:
    """The cotangents of ``wrt``, arrays of floats, for those of outputs."""
    order = list(ordered(b, outputs))
    active = set(wrt)
    for array in order:
        if array.kind == "f" and not active.isdisjoint(sources(b, array)):
            active.add(array)
    active -= without_effect(b, order, outputs).difference(wrt)
    calls: dict[Any, list[Result]] = {}
    for array in order:
        if isinstance(array, Result):
            calls.setdefault(array.call, []).append(array)
    conditions = _Conditions(b)
    pieces: dict[Array, list[Array]] = {}
    for output, seed in zip(outputs, seeds, strict=True):
        pieces.setdefault(output, []).append(seed)
    for array in reversed(order):
        if not sources(b, array):
            continue
        if isinstance(array, Result):
            results = calls[array.call]
            if array is not results[0]:
                continue  # they go together, when all that read one of them has been gone through
            given = {r.index: summed(b, pieces[r]) for r in results if r in pieces and r in active}
            pulled = algorithms.pulled(b, array.call, given, active) if given else []
        elif array in active and array in pieces:
            pulled = of_elements(b, array, summed(b, pieces[array]), active, conditions)
        else:
            continue
        for source, piece in pulled:
            pieces.setdefault(source, []).append(piece)
    zero = b.graph.constant(0.0)
    return [
        summed(b, pieces[w]) if w in pieces else b.tabulate(w.shape, lambda *_: zero) for w in wrt
    ]


def summed(b: Builder, pieces: Sequence[Array]) -> Array:
    """The sum of arrays of one shape; of many, of sums of a few each, which kernels can bind."""
    if len(pieces) == 1:
        return pieces[0]
    if len(pieces) > MOST_ADDED:
        parts = range(0, len(pieces), MOST_ADDED)
        return summed(b, [summed(b, pieces[k : k + MOST_ADDED]) for k in parts])

    def body(*index: int) -> int:
        total = b.element(pieces[0], index)
        for piece in pieces[1:]:
            total = b.apply(ops.add, total, b.element(piece, index))
        return total

    return b.tabulate(pieces[0].shape, body)


def of_elements(
    b: Builder, array: Array, cotangent: Array, active: set[Array], choices: _Conditions
) -> list[tuple[Array, Array]]:
    """(array that is read, its share of the cotangent) for each read in an array."""
    if isinstance(array, Scan):
        cotangent = _scan_cotangent(b, array, cotangent)
    if not isinstance(array, Tabulate | Scatter | Scan):
        raise UnsupportedError(f"{type(array).__name__} has no derivative as an array yet")
    index = array.index if isinstance(array, Scatter) else b.indices(array.counters)
    seed = b.element(cotangent, index)
    if isinstance(array, Scatter):
        conditions = [b.inside(i, n) for i, n in zip(index, array.shape, strict=True)]
        seed = b.where(b.all_of(conditions), seed)
    pulling = _Pulling(b, array, active)
    pulling.body(array.body, seed, array.counters, choices.of(seed))
    return pulling.pieces


class _Conditions:
    """Outside of which conditions cotangents are 0, for what they come from was not chosen.

    They hold of what cotangents are multiplied by, too: partial derivatives may be infinite there.
    """

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._known: dict[int, int | None] = {}

    def of(self, i: int) -> int | None:
        """The condition of a scalar; None if there is none, or a long one."""
        if i not in self._known:
            condition = self._of(i)
            if condition is not None and self._is_long(condition):
                condition = None
            self._known[i] = condition
        return self._known[i]

    def _of(self, i: int) -> int | None:
        b, op, args = self._b, self._b.op(i), self._b.args(i)
        if op is ops.where and b.value(args[2]) == 0.0:
            return args[0]
        if op is ops.where and b.value(args[1]) == 0.0:
            return b.opposite(args[0])
        if op is ops.add:
            first, second = self.of(args[0]), self.of(args[1])
            if first is None or second is None or b.opposite(first) == second:
                return None
            return first if first == second else b.apply(ops.logical_or, first, second)
        if isinstance(op, Read) and isinstance(op.array, Tabulate):
            inner = self.of(op.array.body)
            names = dict(zip(op.array.counters, args, strict=True))
            return None if inner is None else b.substituted([inner], names)[0]
        return None

    def _is_long(self, condition: int) -> bool:
        nodes = self._b.shallow([condition])
        return len(nodes) > LONGEST or any(isinstance(self._b.op(i), Reduce) for i in nodes)


def _scan_cotangent(b: Builder, array: Scan, cotangent: Array) -> Array:
    """The cotangent of the elements that a scan goes through.

    Of a running sum it is the running sum of the cotangent, backwards. Else a total y[k] is made of
    the one before and of x[k]: what reaches y[k] is ``r[k] = g[k] + a[k + 1] * r[k + 1]``, where a
    is how y[k] depends on y[k - 1]. Such a recurrence is solved in steps of doubling lengths
    (Kogge and Stone, 1973), without a division, so that zeros are as good as any number.
    """
    if array.operator == "add":
        counters = [b.counter(n) for n in array.shape]
        body = b.element(cotangent, b.indices(counters))
        return Scan(
            shape=array.shape, counters=tuple(counters), body=body, axis=array.axis,
            reverse=not array.reverse,
        )  # fmt: skip
    of_total, of_element = _slopes(b, array)
    reached, factor, step = cotangent, _shifted(b, array, of_total, 1), 1
    while step < array.shape[array.axis]:
        later = _shifted(b, array, reached, step)
        reached = _combined(b, ops.add, reached, _combined(b, ops.mul, factor, later))
        factor = _combined(b, ops.mul, factor, _shifted(b, array, factor, step))
        step *= 2
    return _combined(b, ops.mul, reached, of_element)


def _slopes(b: Builder, scan: Scan) -> tuple[Array, Array]:
    """The derivatives of each total by the one before, and by its element; ties share equally."""
    one, half, zero = map(b.graph.constant, (1.0, 0.5, 0.0))
    elements = b.array(scan.counters, scan.body)
    before = _shifted(b, scan, scan, -1)
    if scan.operator == "mul":
        return elements, _combined(b, ops.add, before, _first(b, scan))

    def of_total(*index: int) -> int:
        x, y = b.element(elements, index), b.element(before, index)
        smaller = b.apply(ops.lt, x, y) if scan.operator == "max" else b.apply(ops.lt, y, x)
        equal = b.apply(ops.where, b.apply(ops.eq, x, y), half, zero)
        inside = b.opposite(_begins(b, scan, index))
        return b.where(inside, b.apply(ops.where, smaller, one, equal))

    through = b.tabulate(scan.shape, of_total)
    return through, algorithms.elementwise(b, lambda _, a: b.apply(ops.sub, one, a), through)


def _begins(b: Builder, scan: Scan, index: Sequence[int]) -> int:
    """Whether an index is where totals begin."""
    last = scan.shape[scan.axis] - 1
    return b.same(index[scan.axis], b.number(last if scan.reverse else 0))


def _first(b: Builder, scan: Scan) -> Array:
    """1 where totals begin, else 0."""
    one = b.graph.constant(1.0)
    return b.tabulate(scan.shape, lambda *index: b.where(_begins(b, scan, index), one))


def _shifted(b: Builder, scan: Scan, array: Array, step: int) -> Array:
    """The elements of an array so many steps later in a scan; 0 where there is none."""

    def element(*index: int) -> int:
        at = list(index)
        k = b.plus(at[scan.axis], offset=-step if scan.reverse else step)
        at[scan.axis] = k
        return b.where(b.inside(k, scan.shape[scan.axis]), b.element(array, at))

    return b.tabulate(scan.shape, element)


def _combined(b: Builder, op: Op, x: Array, y: Array) -> Array:
    """An operation on the elements of two arrays."""
    return algorithms.elementwise(b, lambda _, *pair: b.apply(op, *pair), x, y)


class _Pulling:
    """The reverse sweep through the body of one array."""

    def __init__(self, b: Builder, array: Array, active: set[Array]) -> None:
        self._b, self._array, self._active = b, array, active
        self.pieces: list[tuple[Array, Array]] = []

    def body(
        self, root: int, seed: int, counters: Sequence[int], condition: int | None = None
    ) -> None:
        """Hand the cotangent of a scalar down to the reads and reductions in it."""
        b, graph = self._b, self._b.graph
        order = b.shallow([root])
        moving = self._moving(order)
        parts: dict[int, list[Contribution]] = {root: [(condition, seed)]}
        leaves: list[tuple[int, int]] = []
        with differentiating(graph):
            for i in reversed(order):
                if i not in moving or i not in parts:
                    continue
                mask, g = collected(graph, parts.pop(i))
                if isinstance(b.op(i), Read | Reduce | Pick):
                    leaves.append((i, selected(graph, (mask, g))))
                    continue
                for argument, part in pull_back(graph, i, g, moving):
                    parts.setdefault(argument, []).append(masked(graph, mask, part))
        raw = [g for _, g in leaves]
        for (i, _), g in zip(leaves, b.simplified(raw), strict=True):
            self._leaf(i, g, counters)

    def _moving(self, order: Sequence[int]) -> set[int]:
        """The floats among the nodes that depend on active arrays."""
        b, moving = self._b, set[int]()
        for i in order:
            op = b.op(i)
            if isinstance(op, Read):
                is_moving = op.array in self._active
            elif isinstance(op, Reduce):
                is_moving = any(r.array in self._active for _, r in b.reads([i]))
            else:
                is_moving = not moving.isdisjoint(b.args(i))
            if is_moving and b.graph.type(i) in "ft":
                moving.add(i)
        return moving

    def _leaf(self, i: int, g: int, counters: Sequence[int]) -> None:
        """Pass the cotangent of a read or a reduction on to its operands."""
        b, op = self._b, self._b.op(i)
        if g == b.graph.constant(0.0):
            return
        if isinstance(op, Read):
            index = b.args(i)
            self.pieces.append((op.array, transposed(b, op.array.shape, counters, index, g)))
        elif isinstance(op, Reduce):
            self._reduction(i, op, g, counters)
        else:
            raise UnsupportedError("a reduction of tuples has no derivative as an array yet")

    def _reduction(self, i: int, op: Reduce, g: int, counters: Sequence[int]) -> None:
        """Hand the cotangent of a reduction to its body, at each of its counters."""
        b = self._b
        inner, [body] = b.opened(i)
        if op.operator == "mul":
            g = b.apply(ops.mul, g, self._others(i, counters, body))
        elif op.operator in ("max", "min"):
            g = self._of_extreme(i, g, inner, body, counters)
        self.body(body, g, [*counters, *inner])

    def _of_extreme(
        self, i: int, g: int, inner: Sequence[int], body: int, counters: Sequence[int]
    ) -> int:
        """The cotangent of an element that an extreme may be: all that equal it share it.

        Elements are compared as they are stored, for rounded otherwise the extreme were none of
        them; where these are very many, the first extreme has all.
        """
        b, op = self._b, self._b.op(i)
        assert isinstance(op, Reduce), "an extreme is one"
        value = self._stored(i, counters)
        if _is_exact(b, body):
            b.computed_once.update(r.array for _, r in b.reads([body]))
        else:
            free = b.free(body)
            axes = [*(c for c in counters if c in free), *inner]
            if math.prod(map(b.extent, axes)) > MOST_COMPARED:
                flat = b.plus(*zip(_strides(b, inner), inner, strict=True))
                first = b.pick(b.reduction(op.operator, inner, body, flat), 1)
                return b.where(b.same(flat, self._stored(first, counters)), g)
            names = {c: b.counter(b.extent(c)) for c in axes}
            [own] = b.substituted([body], names)
            array = b.array(list(names.values()), own)
            b.computed_once.add(array)
            body = b.element(array, b.indices(axes))
            value = self._stored(b.reduction(op.operator, inner, body), counters)
        beside = (body, value) if op.operator == "max" else (value, body)
        share = self._share(inner, body, value, g, counters)
        return b.where(b.opposite(b.apply(ops.lt, *beside)), b.apply(ops.mul, g, share))

    def _share(
        self, inner: Sequence[int], body: int, value: int, g: int, counters: Sequence[int]
    ) -> int:
        """The share that each of the elements that equal an extreme has of it.

        It is NaN at NaN, unless nothing comes of that: 0 of it is 0.
        """
        b, zero, one = self._b, *map(self._b.graph.constant, (0.0, 1.0))
        ties = b.total(inner, b.where(b.apply(ops.eq, body, value), one))
        ties = self._stored(ties, counters)
        none = b.graph.constant(math.nan)
        none = b.apply(ops.where, b.apply(ops.eq, g, zero), zero, none)
        return b.apply(ops.where, b.apply(ops.lt, ties, one), none, b.apply(ops.div, one, ties))

    def _stored(self, i: int, counters: Sequence[int]) -> int:
        """A scalar as an element of an array, computed once for each value of the counters."""
        b, array = self._b, self._array
        if isinstance(array, Tabulate) and i == array.body:
            return b.read(array, b.indices(counters))
        free = b.free(i)
        needed = [c for c in counters if c in free]
        names = {c: b.counter(b.extent(c)) for c in needed}
        [body] = b.substituted([i], names)
        return b.element(b.array(list(names.values()), body), b.indices(needed))

    def _others(self, i: int, counters: Sequence[int], body: int) -> int:
        """The product of all factors of a product but one: that of the others where one is 0.

        Where two are 0, it is the other one times the rest; where three are, e times the rest,
        with the elementary symmetric polynomial e of the others: both are 0, and have derivatives.
        """
        b, value = self._b, self._stored(i, counters)
        zero, one, half = map(b.graph.constant, (0.0, 1.0, 0.5))
        again, [factor] = b.opened(i)
        is_zero = b.apply(ops.eq, factor, zero)
        rest = b.reduction("mul", again, b.graph.add(ops.where, is_zero, one, factor))
        rest = self._stored(rest, counters)

        def vanishing(x: int) -> int:
            return self._stored(b.total(again, b.where(is_zero, x)), counters)

        zeros = vanishing(one)
        others = b.apply(ops.sub, vanishing(factor), body)
        squares = vanishing(b.apply(ops.mul, factor, factor))
        squares = b.apply(ops.sub, squares, b.apply(ops.mul, body, body))
        pairs = b.apply(ops.sub, b.apply(ops.mul, others, others), squares)
        alone = b.where(b.apply(ops.eq, zeros, one), rest)
        for many, product in enumerate((others, b.apply(ops.mul, half, pairs)), 2):
            are_many = b.apply(ops.eq, zeros, b.graph.constant(float(many)))
            term = b.where(are_many, b.apply(ops.mul, product, rest))
            alone = b.apply(ops.add, alone, term)
        quotient = b.apply(ops.div, value, body)
        return b.graph.add(ops.where, b.apply(ops.eq, body, zero), alone, quotient)


EXACT: Final = {ops.neg, ops.abs, ops.minimum, ops.maximum, ops.where}
"""Operations whose results are never rounded."""


def _is_exact(b: Builder, body: int) -> bool:
    """Whether a scalar has the same bits wherever it is computed, if what it reads has."""
    nodes = (i for i in b.walk([body]) if b.graph.type(i) == "f" and b.args(i))
    return all(isinstance(b.op(i), Read) or b.op(i) in EXACT for i in nodes)


def _strides(b: Builder, counters: Sequence[int]) -> list[int]:
    """How far apart the places of two neighbours are, for each counter, in C order."""
    extents = [b.extent(c) for c in counters]
    return [math.prod(extents[k + 1 :]) for k in range(len(extents))]
