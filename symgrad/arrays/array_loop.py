"""Loops over array programs: a body with roles for its inputs, carries, and rows that it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np

from symgrad.arrays.interpret import interpret
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import ArrayProgram, Tabulate
from symgrad.arrays.scalars import Array, Reduce, integer_where
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
