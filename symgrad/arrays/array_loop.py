"""Loops over array programs, and their derivatives.

The body of a loop has roles for its inputs, carries, and rows that it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, Final

import numpy as np

from symgrad.arrays import algorithms
from symgrad.arrays.algorithms import ALGORITHMS, Algorithm, calling, result
from symgrad.arrays.gradient import cotangents, summed
from symgrad.arrays.interpret import interpret
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import (
    ArrayProgram,
    Call,
    Constant,
    Counted,
    Input,
    Result,
    Tabulate,
    ordered,
)
from symgrad.arrays.scalars import Array, Read, Reduce, integer_where
from symgrad.errors import UnsupportedError
from symgrad.expr import ops

COUNTER, CARRY, ROW, AROUND = "counter", "carry", "row", "around"
"""Roles of inputs of a body: its number, a carry, a row of an array, an array from around."""

LONG: Final = 64
"""Terms from which sums in a body are kept for the derivative."""

MOST_SUMS: Final = 2**24
"""Numbers that such sums are in all iterations, at most."""


@dataclass(frozen=True, eq=False)
class ArrayLoop:
    """A loop over a program: inputs by their roles; outputs are the carries, then rows to stack.

    Arrays have ``axis`` axes, of functions that are mapped, before those that the body knows.
    """

    body: ArrayProgram
    roles: tuple[str, ...]
    count: int
    axis: int = 0
    reverse: bool = False
    tested: bool = False
    """Whether the first carry says if there is another iteration."""
    of_strips: bool = False
    """Whether its iterations are strips of large arrays, which they store as they are."""

    @cached_property
    def carries(self) -> int:
        """The number of carries."""
        return self.roles.count(CARRY)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the results: the last carries, and rows, stacked."""
        k = self.axis
        shapes = [o.shape for o in self.body.outputs]
        stacked = [(*s[:k], self.count, *s[k:]) for s in shapes[self.carries :]]
        return (*shapes[: self.carries], *stacked)

    @property
    def kinds(self) -> str:
        """The kinds of the results."""
        return "".join(o.kind for o in self.body.outputs)

    @cached_property
    def sums(self) -> tuple[Array, ...]:
        """The arrays of the body that are sums of many terms: its derivative reads them as rows."""
        s, sums = self.body.scalars, []
        for array in self.body.stages:
            if isinstance(array, Tabulate) and array not in self.body.outputs:
                ops = map(s.op, s.shallow([array.body]))
                counters = [op.counters for op in ops if isinstance(op, Reduce)]
                if any(prod(map(s.extent, some)) >= LONG for some in counters):
                    sums.append(array)
        few = self.count * sum(a.size for a in sums) <= MOST_SUMS
        return tuple(sums) if few and not self.axis else ()

    @cached_property
    def keeping(self) -> ArrayLoop:
        """This loop with more results, stacked: what iterations begin with, and sums in them."""
        pairs = zip(self.body.inputs, self.roles, strict=True)
        begins = tuple(i for i, role in pairs if role == CARRY)
        outputs = (*self.body.outputs, *begins, *self.sums)
        return replace(self, body=ArrayProgram(self.body.scalars, self.body.inputs, outputs))

    @cached_property
    def staying(self) -> ArrayProgram:
        """The body, with carries that stay as they are when the first one ends the loop."""
        b, n = self.body.scalars, self.carries
        assert isinstance(b, Builder), "bodies of tapes are built by one"
        pairs = zip(self.body.inputs, self.roles, strict=True)
        carries = [i for i, role in pairs if role == CARRY]

        def kept(new: Array, old: Array) -> Array:
            where = integer_where if new.kind == "i" else ops.where

            def element(*index: int) -> int:
                going = b.opposite(b.same(b.element(carries[0], ()), b.number(0)))
                return b.apply(where, going, b.element(new, index), b.element(old, index))

            return b.tabulate(new.shape, element)

        outputs = tuple(map(kept, self.body.outputs[:n], carries))
        return ArrayProgram(b, self.body.inputs, (*outputs, *self.body.outputs[n:]))

    def run(
        self,
        operands: Sequence[Any],
        step: Callable[[list[Any]], Sequence[Any]],
        stack: Any,
        counted: Callable[[int], Any] = np.int32,
    ) -> list[Any]:
        """The results, by a function that runs the body and one that stacks rows.

        The number of an iteration is ``counted`` as the body takes it.
        """
        carried = [o for o, role in zip(operands, self.roles, strict=True) if role == CARRY]
        rows: list[Sequence[Any]] = []
        before = (slice(None),) * self.axis
        order = range(self.count)
        for k in reversed(order) if self.reverse else order:
            if self.tested and not np.any(np.asarray(carried[0])):
                break
            given = iter(carried)
            inputs = list(operands)
            for n, role in enumerate(self.roles):
                if role == CARRY:
                    inputs[n] = next(given)
                elif role == ROW:
                    inputs[n] = inputs[n][(*before, k)]
                elif role == COUNTER:
                    inputs[n] = counted(k)
            results = step(inputs)
            carried = results[: self.carries]
            rows.append(results[self.carries :])
        shapes = self.shapes[self.carries :]
        columns = zip(*(rows[::-1] if self.reverse else rows), strict=True)
        stacked = [stack(c, self.axis) for c in columns] if rows else [np.empty(s) for s in shapes]
        return [*carried, *stacked]


def meaning(*given: Any) -> list[np.ndarray]:
    """The results of a loop by the interpreter of array programs."""
    *operands, loop = given
    return loop.run(operands, lambda inputs: interpret(loop.body, inputs), np.stack)


# Loops as calls of a program, and their derivatives.
#
# A derivative is a loop over the cotangents of the body, backwards. It reads what the loop keeps:
# the carries that iterations begin with, and the long sums in them.


def looping(b: Builder, loop: ArrayLoop, operands: Sequence[Array]) -> Call:
    """The call that a loop is in a program."""
    return calling(b, "loop", operands, (loop,))


def _pulled(
    b: Builder, call: Call, given: Mapping[int, Array], active: set[Array]
) -> list[tuple[Array, Array]]:
    """The cotangents of a loop's operands: a loop over the cotangents of its body, backwards."""
    loop: ArrayLoop = call.options[0]
    if loop.tested:
        raise UnsupportedError("while_loop over whole arrays has no derivative: use sg.fori_loop")
    kept = looping(b, loop.keeping, call.operands)
    b.keeping[call] = kept
    back = _Backwards(b, call, kept, given, active)
    return back.pieces()


class _Backwards:
    """The loop that takes the cotangents of a loop's results back to its operands."""

    def __init__(
        self, b: Builder, call: Call, kept: Call, given: Mapping[int, Array], active: set[Array]
    ) -> None:
        self._b, self._loop, self._operands = b, call.options[0], call.operands
        body = self._loop.body
        assert isinstance(body.scalars, Builder), "bodies of tapes are built by one"
        self._inner, self._inputs = body.scalars, list(body.inputs)
        self._kept, self._given, self._active = kept, given, active
        self.roles = [ROW if role == CARRY else role for role in self._loop.roles]
        more = iter(range(len(body.outputs), len(kept.shapes)))
        self.arrays = [
            result(b, kept, next(more)) if role == CARRY else operand
            for operand, role in zip(self._operands, self._loop.roles, strict=True)
        ]
        self._sums = {a: self._input(a, ROW, result(b, kept, next(more))) for a in self._loop.sums}

    def _input(self, like: Array, role: str, array: Array) -> Input:
        """Another input of the backward body, and what the loop is given for it."""
        new = Input(shape=like.shape, kind=like.kind, number=len(self._inputs))
        self._inputs.append(new)
        self.roles.append(role)
        self.arrays.append(array)
        return new

    def _zeros(self, shape: tuple[int, ...]) -> Array:
        zero = self._b.graph.constant(0.0)
        return self._b.tabulate(shape, lambda *_: zero)

    def _of(self, role: str) -> list[int]:
        """The real operands of this role that matter; all carries may come to."""
        return [
            k
            for k, r in enumerate(self._loop.roles)
            if r == role and self._operands[k].kind == "f"
            and (role == CARRY or self._operands[k] in self._active)
        ]  # fmt: skip

    def pieces(self) -> list[tuple[Array, Array]]:
        """(operand, its cotangent) for each real operand that matters."""
        loop, inner, given = self._loop, self._inner, self._given
        begins, sums, rows = self._of(CARRY), self._of(AROUND), self._of(ROW)
        body, n = loop.body, loop.carries
        places = [k for k in range(n) if body.outputs[k].kind == "f"]
        seeds: list[tuple[Array, Array]] = []
        for place, k in zip(places, begins, strict=True):
            operand = self._operands[k]
            end = given.get(place) or self._zeros(operand.shape)
            seeds.append((body.outputs[place], self._input(operand, CARRY, end)))
        for place, y in enumerate(body.outputs[n:], n):
            if place in given:
                seeds.append((y, self._input(y, ROW, given[place])))
        wrt = [body.inputs[k] for k in (*begins, *sums, *rows)]
        slopes = cotangents(inner, [o for o, _ in seeds], wrt, [s for _, s in seeds])
        slopes = self._reading_sums(slopes)
        first, last = len(begins), len(begins) + len(sums)
        shares = dict(zip(sums, slopes[first:last], strict=True))
        apart = {k: p for k, s in shares.items() if (p := self._apart(s))}
        added: dict[int, Array] = {}
        for k in (k for k in sums if k not in apart):
            total = self._input(self._operands[k], CARRY, self._zeros(self._operands[k].shape))
            added[k] = summed(inner, (total, shares[k]))
        kept = list(dict.fromkeys(a for p in apart.values() for a in p.kept))
        outputs = (*slopes[:first], *added.values(), *slopes[last:], *kept)
        program = ArrayProgram(inner, tuple(self._inputs), outputs)
        back = ArrayLoop(program, tuple(self.roles), loop.count, loop.axis, not loop.reverse)
        call = looping(self._b, back, self.arrays)
        results = [result(self._b, call, k) for k in range(len(outputs))]
        pieces = list(zip((*begins, *added, *rows), results, strict=False))
        stacked = dict(zip(kept, results[len(pieces) :], strict=True))
        pieces += [
            (k, p.total(self._b, loop.count, partial(self._element, stacked)))
            for k, p in apart.items()
        ]
        return [(self._operands[k], piece) for k, piece in pieces]

    def _reading_sums(self, arrays: Sequence[Array]) -> list[Array]:
        """Arrays of the body, with rows in the place of the sums that the loop keeps."""
        b, new = self._inner, dict[Array, Array](self._sums)

        def element(array: Array, index: Sequence[int]) -> int:
            return b.element(new[array], index)

        for array in ordered(b, arrays):
            if array in new:
                continue
            new[array] = array
            if isinstance(array, Counted):
                new[array] = b.rebuilt(array, b.substituted(array.scalars, {}, element))
            elif isinstance(array, Result):
                new[array] = algorithms.again(b, array, [new[a] for a in array.arguments])
        return [new[a] for a in arrays]

    def _apart(self, share: Array) -> OuterProducts | None:
        """The share of each iteration in a cotangent, where it is better added behind the loop."""
        if self._loop.axis:
            return None
        count = self._loop.count
        return outer_products(self._inner, share, count, self._is_constant, self._stands)

    def _is_constant(self, array: Array) -> bool:
        """Whether an array of the body is the same in each iteration."""
        return isinstance(array, Constant) or (
            isinstance(array, Input) and self.roles[array.number] == AROUND
        )

    def _stands(self, array: Array) -> bool:
        """Whether an array of the body is a row of what stands around the loop, or its number."""
        return isinstance(array, Input) and self.roles[array.number] in (ROW, COUNTER)

    def _element(
        self, stacked: Mapping[Array, Array], t: int, array: Array, index: Sequence[int]
    ) -> int:
        """An element of an array of the body as it is in iteration ``t``, around the loop."""
        b = self._b
        if array in stacked:
            return b.element(stacked[array], [t, *index])
        if not isinstance(array, Input):
            return b.element(array, index)
        role, whole = self.roles[array.number], self.arrays[array.number]
        if role == COUNTER:
            return t
        return b.element(whole, [t, *index] if role == ROW else index)


ALGORITHMS["loop"] = Algorithm(
    "loop", meaning, lambda *given: given[-1].shapes, kinds="", together=_pulled
)


# Sums of outer products over the iterations of a loop, which are products of matrices behind it.
#
# A large array that a loop takes from around it has a cotangent to which each iteration adds. Where
# that is ``x[i] * y[j]``, the loop gives x and y of all iterations instead. The cotangent is ``for
# i, j { reduce t; add { xs[t, i] * ys[t, j] } }``, which a product of matrices writes once, instead
# of a kernel that reads and writes it in each iteration.

LARGE: Final = 2**14
"""Elements from which a cotangent is not carried through a loop, if it need not be."""
SMALLER: Final = 4
"""How much smaller than it the arrays are together that are read in each iteration, at least."""
MOST: Final = 2**24
"""Numbers that are kept of all iterations, at most."""

Element = Callable[[int, Array, Sequence[int]], int]
"""The scalar around a loop that stands for an element of an array in iteration t of its body."""

Term = tuple[int, int]
"""Factors of which each lacks a counter that the other has; the first one has the sign."""


@dataclass(frozen=True)
class OuterProducts:
    """The products that an iteration adds to an array, by the counters of the array."""

    inner: Builder
    shape: tuple[int, ...]
    counters: tuple[int, ...]
    terms: tuple[Term, ...]
    kept: tuple[Array, ...]
    """The arrays that the terms read which the loop has to give."""

    def total(self, b: Builder, count: int, element: Element) -> Array:
        """The sum over all iterations, of a program around the loop."""
        return summed(b, [self._of_term(b, count, element, term) for term in self.terms])

    def _of_term(self, b: Builder, count: int, element: Element, term: Term) -> Array:
        counters, t = [b.counter(n) for n in self.shape], b.counter(count)
        names = dict(zip(self.counters, b.indices(counters), strict=True))
        read = partial(element, b.indices([t])[0])
        factors = [self._moved(b, f, names, read) for f in term]
        return b.array(counters, b.total([t], b.apply(ops.mul, *factors)))

    def _moved(
        self, b: Builder, root: int, names: Mapping[int, int], read: Callable[..., int]
    ) -> int:
        """A scalar of the body as one of the program around it."""
        inner, memo = self.inner, dict(names)
        for i in inner.walk([root]):
            if i in memo:
                continue
            op, args = inner.op(i), [memo[a] for a in inner.args(i)]
            if isinstance(op, Read):
                memo[i] = read(op.array, args)
            else:
                memo[i] = b.apply(op, *args) if op.arity else b.graph.intern(inner.graph.nodes[i])
        return memo[root]


def outer_products(
    inner: Builder,
    slope: Array,
    count: int,
    constant: Callable[[Array], bool],
    stands: Callable[[Array], bool],
) -> OuterProducts | None:
    """The products that a large array is the sum of, if they are of much smaller arrays.

    ``constant`` arrays are the same in each of ``count`` iterations; what ``stands`` around the
    loop need not be kept of each.
    """
    if not isinstance(slope, Tabulate) or slope.size < LARGE:
        return None
    most = slope.size // SMALLER
    body = _written_out(inner, slope.body, most, constant)
    if any(isinstance(inner.op(i), Reduce) for i in inner.shallow([body])):
        return None
    read = dict.fromkeys(op.array for _, op in inner.reads([body]))
    moving = [a for a in read if not constant(a)]
    kept = tuple(a for a in moving if not stands(a))
    sizes = sum(a.size for a in moving)
    if not moving or sizes > most or count * sizes > MOST:
        return None
    terms: list[Term] = []
    for sign, part in _added(inner, body):
        term = _sides(inner, part, slope.counters, constant)
        if term is None:
            return None
        left, right = term
        terms.append((left if sign > 0 else inner.apply(ops.neg, left), right))
    return OuterProducts(inner, slope.shape, slope.counters, tuple(terms), kept)


def _written_out(b: Builder, root: int, most: int, constant: Callable[[Array], bool]) -> int:
    """A scalar in which the bodies of arrays stand for their elements, if they have so many."""

    def element(array: Array, index: Sequence[int]) -> int:
        if not isinstance(array, Tabulate) or array.size <= most or constant(array):
            return b.element(array, index)
        return _written_out(b, b.body_at(array, index), most, constant)

    return b.substituted([root], {}, element)[0]


def _added(b: Builder, root: int) -> Iterator[tuple[int, int]]:
    """The terms of a sum, with their signs."""
    stack = [(1, root)]
    while stack:
        sign, i = stack.pop()
        op, args = b.op(i), b.args(i)
        if op is ops.neg:
            stack.append((-sign, args[0]))
        elif op in (ops.add, ops.sub):
            stack += [(sign if op is ops.add else -sign, args[1]), (sign, args[0])]
        else:
            yield sign, i


def _sides(
    b: Builder, part: int, counters: Sequence[int], constant: Callable[[Array], bool]
) -> Term | None:
    """The factors that have the first counter which not all have, and the others.

    What is the same in each iteration leaves the sum, and may have all counters.
    """
    over, under = b.fraction(part)
    counted = [c for c in counters if b.extent(c) > 1]
    each = [f for f in (*over, *under) if not all(constant(op.array) for _, op in b.reads([f]))]
    first = next((c for c in counted if any(c not in b.free(f) for f in each)), None)
    if first is None or any(set(counted) <= b.free(f) for f in each):
        return None
    sides = []
    for has in (True, False):
        up, down = ([f for f in fs if (first in b.free(f)) == has] for fs in (over, under))
        side = b.product(up)
        sides.append(b.apply(ops.div, side, b.product(down)) if down else side)
    return sides[0], sides[1]
