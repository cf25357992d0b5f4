"""Loops as calls of a program, and their derivatives.

A derivative is a loop over the cotangents of the body, backwards. It reads what the loop keeps: the
carries that iterations begin with, and the long sums in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from symgrad.arrays import algorithms
from symgrad.arrays.algorithms import ALGORITHMS, Algorithm, calling, result
from symgrad.arrays.array_loop import AROUND, CARRY, COUNTER, ROW, ArrayLoop, meaning
from symgrad.arrays.gradient import cotangents, summed
from symgrad.arrays.laws import Builder
from symgrad.arrays.outer_products import OuterProducts, outer_products
from symgrad.arrays.program import ArrayProgram, Call, Constant, Counted, Input, Result, ordered
from symgrad.arrays.scalars import Array
from symgrad.errors import UnsupportedError


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
        new = Input(shape=like.shape, number=len(self._inputs))
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
