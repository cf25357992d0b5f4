"""Programs drawn at random, from a grammar of statements, and their slopes by differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import numpy as np

import symgrad as sg

WIDTH: Final = 8
"""Invocations of a workgroup."""

TABLE: Final = 5
"""Elements of an array that all invocations read anywhere."""

OWN: Final = 3
"""Elements of an invocation's own array."""

TURNS: Final = 3

Body = Callable[[sg.Builder], None]


@dataclass
class _Drawing:
    """A program that is being drawn; what is known in the open blocks."""

    p: sg.Builder
    random: Random
    cell: Any
    arrays: dict[str, Any]
    collective: bool
    values: list[Any] = field(default_factory=list)
    words: list[Any] = field(default_factory=list)
    variables: list[Any] = field(default_factory=list)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A block: what is made in it is not known behind it."""
        before = [list(known) for known in (self.values, self.words, self.variables)]
        yield
        self.values, self.words, self.variables = before

    # values --------------------------------------------------------------------------------------

    def number(self) -> Any:
        """A smooth function of some of the values that there are."""
        a, b = self.random.choice(self.values), self.random.choice(self.values)
        c = round(self.random.uniform(-1.5, 1.5), 3)
        made = self.random.choice([
            lambda: sg.sin(a + c), lambda: sg.tanh(a * b), lambda: a - c * b, lambda: a * b,
            lambda: sg.fma(a, sg.cos(b), c), lambda: a / (2.0 + b * b), lambda: c * sg.atan(b),
            lambda: sg.where(self.condition(), a, b), lambda: sg.exp(-a * a) + b,
            lambda: 1.0 * self.word() * a,
        ])()  # fmt: skip
        return sg.tanh(made) if self.random.random() < 0.5 else made

    def word(self) -> Any:
        """A small integer."""
        w = self.random.choice(self.words)
        return self.random.choice([w % 7, (w + 3) % 5, (w * 5 + 1) % 6, w // 2 % 4])

    def condition(self) -> Any:
        """Something that some invocations find to hold."""
        if self.random.random() < 0.5:
            return self.word() < 3
        return self.random.choice(self.values) > round(self.random.uniform(-0.5, 0.5), 2)

    def load(self) -> Any:
        """A number from memory."""
        p, chosen = self.p, self.random.choice(["x", "table", "own", "looked up"])
        if chosen == "x":
            return p.load(self.arrays["x"], self.cell)
        if chosen == "own":
            return p.load(self.arrays["own"], self.word() % OWN)
        if chosen == "looked up":
            return p.load(self.arrays["table"], p.load(self.arrays["places"], self.cell) % TABLE)
        return p.load(self.arrays["table"], self.word() % TABLE)

    # statements ----------------------------------------------------------------------------------

    def block(self, depth: int, uniform: bool) -> None:
        """Some statements, at a depth, in which all invocations are or not."""
        for _ in range(self.random.randint(2, 4)):
            makers: list[Callable[[], None]] = [self.let, self.assign, self.change, self.read]
            if depth:
                makers += [lambda: self.branch(depth), lambda: self.loop(depth, uniform)]
            if uniform and self.collective:
                makers += [self.share, self.reduce]
            self.random.choice(makers)()

    def let(self) -> None:
        self.values.append(self.p.let("a", self.number()))

    def read(self) -> None:
        self.values.append(self.load())

    def assign(self) -> None:
        variable = self.random.choice(self.variables)
        self.p.assign(variable, sg.tanh(self.number() + 0.5 * variable.value))
        self.values.append(variable.value)

    def change(self) -> None:
        write = self.random.choice([self.p.store, self.p.add])
        write(self.arrays["own"], self.word() % OWN, self.number())

    def branch(self, depth: int) -> None:
        with self.p.if_(self.condition()), self.inside():
            self.block(depth - 1, False)
        if self.random.random() < 0.5:
            with self.p.else_(), self.inside():
                self.block(depth - 1, False)

    def loop(self, depth: int, uniform: bool) -> None:
        p, down = self.p, self.random.random() < 0.3
        known = uniform or self.random.random() < 0.5
        hi = TURNS if known else p.load(self.arrays["places"], self.cell) % 4
        most = None if known else TURNS
        with p.for_(0, hi, down=down, most=most) as k, self.inside():
            self.words.append(k)
            self.block(depth - 1, uniform)

    def share(self) -> None:
        p, tile = self.p, self.arrays["tile"]
        p.store(tile, p.local, self.number())
        p.barrier()
        at = self.random.choice([
            lambda: (p.local + 1) % WIDTH, lambda: p.local * 3 % 5, lambda: self.word() % WIDTH,
            lambda: 2, lambda: p.load(self.arrays["places"], self.cell) % WIDTH,
        ])()  # fmt: skip
        if self.random.random() < 0.3:
            got = p.var("got", 0.0)
            with p.if_(self.condition()):
                p.assign(got, p.load(tile, at) * 1.5)
            self.values.append(got.value)
        else:
            self.values.append(p.load(tile, at))
        p.barrier()

    def reduce(self) -> None:
        reduce = self.random.choice([self.p.group_sum, self.p.group_max, self.p.group_min])
        self.values.append(sg.tanh(reduce(self.number(), self.random.choice([None, 2, 4]))))


def drawn(seed: int) -> Body:
    """The body of the program that a seed draws."""

    def body(p: sg.Builder) -> None:
        random = Random(seed)
        collective = random.random() < 0.6
        n = 2 * WIDTH if collective else 11
        arrays: dict[str, Any] = {
            "x": p.input("x", n), "table": p.input("table", TABLE),
            "places": p.input("places", n, "u32"), "y": p.output("y", (n, 2)),
        }  # fmt: skip
        with p.dispatch(n, group=WIDTH) as cell:
            arrays["own"] = p.private("own", OWN)
            arrays["tile"] = p.workgroup("tile", WIDTH)
            with p.for_(0, OWN) as k:
                p.store(arrays["own"], k, 0.25)
            drawing = _Drawing(p, random, cell, arrays, collective)
            drawing.values.append(p.load(arrays["x"], cell))
            drawing.words.append(cell)
            drawing.variables += [p.var("u", 0.5), p.var("v", drawing.values[0])]
            drawing.block(2, True)
            drawing.block(2, True)
            p.store(arrays["y"], (cell, 0), sum(v.value for v in drawing.variables))
            p.store(arrays["y"], (cell, 1), drawing.number())

    body.__name__ = f"drawn{seed}"
    return body


def points(p: sg.Program, seed: int) -> list[np.ndarray]:
    """Numbers for the inputs of a program."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(0, 40, a.shape).astype(np.uint32)
        if a.kind != "f"
        else rng.normal(size=a.shape)
        for a in p.code.of("input")
    ]


def as_tuple(found: Any) -> tuple[Any, ...]:
    """One output or several, as several."""
    return found if isinstance(found, tuple) else (found,)


def slope(
    p: sg.Program, inputs: Sequence[Any], cotangents: Sequence[Any], step: Sequence[Any]
) -> float:
    """The derivative of the outputs times cotangents along a step, by differences in float64."""

    def value(t: float) -> float:
        moved = [x if d is None else x + t * d for x, d in zip(inputs, step, strict=True)]
        found = as_tuple(p.interpret(*moved))
        return float(sum(np.sum(c * y) for c, y in zip(cotangents, found, strict=True)))

    h = 1e-4
    near, far = value(h) - value(-h), value(2 * h) - value(-2 * h)
    return (8 * near - far) / (12 * h)
