"""Array programs drawn at random: tabulations, reductions, scatters and scans of one another."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from symgrad.arrays.program import ArrayProgram, Input, Scan, Scatter, Tabulate
from symgrad.arrays.scalars import (
    Array,
    Scalars,
    as_float,
    integer_where,
    is_negative,
    is_zero,
    modulo,
    quotient,
)
from symgrad.expr import ops

UNARY = ops.tanh, ops.neg, ops.sin, ops.abs, ops.logistic
BINARY = ops.add, ops.sub, ops.mul, ops.maximum, ops.minimum


class Drawn:
    """A program drawn from a seed; ``sizes`` are the extents that axes may have."""

    def __init__(
        self, seed: int, sizes: Sequence[int] = (1, 2, 3, 5, 9, 17), scalars: Scalars | None = None
    ) -> None:
        self.random, self.sizes = random.Random(seed), sizes
        self.s = scalars or Scalars()
        self.arrays: list[Array] = []
        inputs = [Input(shape=self.shape(), number=n) for n in range(self.random.randint(1, 3))]
        inputs.append(Input(shape=self.shape(), number=len(inputs), kind="i"))
        self.arrays += inputs
        for _ in range(self.random.randint(1, 4)):
            self.arrays.append(self.array())
        made = self.arrays[len(inputs) :]
        outputs = (made[-1], *(a for a in made[:-1] if self.random.random() < 0.3))
        self.program = ArrayProgram(self.s, tuple(inputs), outputs)

    def shape(self) -> tuple[int, ...]:
        """Up to three axes."""
        return tuple(self.random.choice(self.sizes) for _ in range(self.random.randint(0, 3)))

    def values(self) -> list[np.ndarray]:
        """Numbers for the inputs."""
        rng = np.random.default_rng(self.random.randrange(2**32))
        return [
            rng.normal(size=a.shape) if a.kind == "f" else rng.integers(-3, 12, a.shape)
            for a in self.program.inputs
        ]

    # arrays --------------------------------------------------------------------------------------

    def array(self) -> Array:
        """A new array."""
        shape, kind = self.shape(), self.random.random()
        counters = tuple(map(self.s.counter, shape))
        if kind < 0.12 and shape:
            index = tuple(self.integer(counters, 2) for _ in range(self.random.randint(1, 2)))
            target = tuple(self.random.choice(self.sizes) for _ in index)
            body = self.scalar(counters, 2)
            return Scatter(shape=target, counters=counters, index=index, body=body)
        if kind < 0.24 and shape:
            return Scan(
                shape=shape, counters=counters, body=self.scalar(counters, 2),
                axis=self.random.randrange(len(shape)),
                operator=self.random.choice(["add", "max", "min"]),
                reverse=self.random.random() < 0.5,
            )  # fmt: skip
        if kind < 0.34:
            body = self.integer(counters, 3)
            return Tabulate(shape=shape, counters=counters, body=body, kind="i")
        return Tabulate(shape=shape, counters=counters, body=self.scalar(counters, 4))

    # scalars -------------------------------------------------------------------------------------

    def scalar(self, counters: Sequence[int], depth: int) -> int:
        """A float."""
        s, r = self.s, self.random.random()
        if depth == 0 or r < 0.2:
            if r < 0.05 and counters:
                return s.graph.add(as_float, self.integer(counters, 1))
            floats = [a for a in self.arrays if a.kind == "f"]
            return self.read(self.random.choice(floats), counters)
        if r < 0.4:
            return s.graph.add(self.random.choice(UNARY), self.scalar(counters, depth - 1))
        if r < 0.65:
            pair = (self.scalar(counters, depth - 1) for _ in range(2))
            return s.graph.add(self.random.choice(BINARY), *pair)
        if r < 0.75:
            condition = self.condition(counters)
            pair = (self.scalar(counters, depth - 1) for _ in range(2))
            return s.graph.add(ops.where, condition, *pair)
        return self.reduction(counters, depth)

    def reduction(self, counters: Sequence[int], depth: int) -> int:
        """A reduction, or an element of one of tuples."""
        s = self.s
        sizes = self.random.choices(self.sizes, k=self.random.randint(1, 2))
        bound = [s.counter(n) for n in sizes]
        inner = [*counters, *bound]
        operator = self.random.choice(["add", "add", "add", "max", "min", "argmax", "rescale"])
        part = self.scalar(inner, depth - 1)
        moving = [c for c in bound if s.extent(c) != 1]
        if operator == "argmax" and moving:
            extents = [s.extent(c) for c in moving]
            strides = [int(np.prod(extents[k + 1 :])) for k in range(len(extents))]
            position = s.plus(*zip(strides, moving, strict=True))
            chosen = s.reduction("argmax", moving, part, position)
            k = self.random.randrange(2)
            result = s.pick(chosen, k)
            return result if k == 0 else s.graph.add(as_float, result)
        if operator == "rescale" and moving:
            scaled = s.reduction("rescale", moving, part, self.scalar(inner, depth - 1))
            return s.pick(scaled, self.random.randrange(2))
        operator = operator if operator in ("add", "max", "min") else "add"
        return s.reduction(operator, moving, part) if moving else part

    def condition(self, counters: Sequence[int]) -> int:
        """A truth value."""
        op = self.random.choice([is_negative, is_zero])
        return self.s.graph.add(op, self.integer(counters, 2))

    def integer(self, counters: Sequence[int], depth: int) -> int:
        """An integer, some negative."""
        s, r = self.s, self.random.random()
        moving = [c for c in counters if s.extent(c) != 1]
        if depth == 0 or r < 0.4:
            terms = [(self.random.choice([1, 1, 2, -1, 3]), c) for c in moving if r < 0.3]
            return s.plus(*terms[-2:], offset=self.random.randint(-3, 3))
        if r < 0.6:
            op = self.random.choice([quotient, modulo])
            a = self.integer(counters, depth - 1)
            return s.graph.add(op, a, s.number(self.random.randint(2, 5)))
        if r < 0.7:
            pair = (self.integer(counters, depth - 1) for _ in range(2))
            return s.graph.add(integer_where, self.condition(counters), *pair)
        integers = [a for a in self.arrays if a.kind == "i"]
        if r < 0.85 and integers:
            return self.read(self.random.choice(integers), counters)
        return s.plus(self.integer(counters, depth - 1), self.integer(counters, depth - 1))

    def read(self, array: Array, counters: Sequence[int]) -> int:
        """An element, at indices that stay within the array."""
        index = [self.index(n, counters) for n in array.shape]
        return self.s.read(array, index)

    def index(self, n: int, counters: Sequence[int]) -> int:
        """An integer from 0 to below n."""
        s = self.s
        fitting = [c for c in counters if 1 < s.extent(c) <= n]
        if fitting and self.random.random() < 0.8:
            c = self.random.choice(fitting)
            room = n - s.extent(c)
            if self.random.random() < 0.25:
                return s.plus((-1, c), offset=s.extent(c) - 1 + self.random.randint(0, room))
            return s.plus(c, offset=self.random.randint(0, room))
        if self.random.random() < 0.3:
            place = self.integer(counters, 1)
            return s.graph.add(modulo, place, s.number(n)) if n > 1 else s.number(0)
        return s.number(self.random.randrange(n))
