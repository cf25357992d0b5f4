"""Random programs of loops, choices and arrays, drawn from the op table, that numbers run as well.

What is drawn depends on the seed alone, so the same function is traced, or called with numbers:
then loops are Python's, and arrays are lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final

import numpy as np
from strategies import EXPONENTS, Drawn, types

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Handle, Op
from symgrad.expr.loops.control import cond, fori_loop, scan, switch, while_loop
from symgrad.expr.loops.open_loop import Tracing
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.memory import Array, array_of

TAME: Final = (
    ops.add, ops.sub, ops.mul, ops.sin, ops.cos, ops.tanh, ops.sigmoid, ops.atan, ops.neg,
    ops.exp_neg_square, ops.hypot, ops.softplus,
)  # fmt: skip
"""Smooth rows without poles."""

LIMIT: Final = 3.0
"""What carries are kept below, by a smooth function: loops may not run away."""

LENGTH: Final = 3
"""Elements of the arrays of a program."""


@dataclass(frozen=True)
class Kinds:
    """What a program is drawn from."""

    table: Sequence[Op] = TAME
    arrays: bool = True
    """Whether there are arrays."""
    whiles: bool = True
    """Whether there are while loops."""
    scans: bool = False
    """Whether there are scans and switches."""
    bounds: bool = True
    """Whether points may take different numbers of iterations."""
    depth: int = 2
    """How deep loops and choices are nested."""
    size: int = 5
    """The steps of a body."""

    def inner(self) -> Kinds:
        """What a body within is drawn from."""
        return replace(self, depth=self.depth - 1, size=max(2, self.size - 1))


Program = Callable[[Sequence[Any]], list[Any]]
"""Two results of several numbers, or expressions of expressions."""


class Numbers(list[float]):
    """An array of numbers, as `Array` is one of expressions."""

    def __getitem__(self, i: Any) -> Any:
        return super().__getitem__(min(int(i), len(self) - 1))

    def put(self, i: Any, value: float) -> Numbers:
        made = Numbers(self)
        made[min(int(i), len(self) - 1)] = float(value)
        return made


def program(seed: int, kinds: Kinds = Kinds()) -> Program:
    """The program of a seed."""

    def run(v: Sequence[Any]) -> list[Any]:
        known = _Known([*v], [_array([v[k % len(v)] for k in range(LENGTH)])], [])
        _steps(seed, known, kinds)
        return [_limited(x) for x in known.values[-2:]]

    return run


def random_program(seed: int, inputs: int = 3, kinds: Kinds = Kinds()) -> Drawn:
    """The graph of a program, whose results are the last two of the floats."""
    graph = Graph()
    graph.tracing = False
    variables = [Expr(graph, graph.input(f"x{k}")) for k in range(inputs)]
    with Tracing(graph):
        return Drawn(graph, variables, program(seed, kinds)(variables))


def called(run: Program, at: np.ndarray) -> np.ndarray:
    """The results (2, count) of a program at points (inputs, count), each by Python's own loops."""
    return np.array([run([float(x) for x in point]) for point in at.T], np.float64).T


def points(inputs: int = 3, count: int = 7, seed: int = 0) -> np.ndarray:
    """Points (inputs, count) that TAME rows keep finite."""
    return np.random.default_rng(seed).uniform(-2, 2, (inputs, count))


@dataclass
class _Known:
    """What a step may use: numbers, arrays, and counters of the loops around it."""

    values: list[Any]
    arrays: list[Any]
    counters: list[Any]

    def copy(self) -> _Known:
        return _Known([*self.values], [*self.arrays], [*self.counters])


def _steps(seed: int, known: _Known, kinds: Kinds) -> None:
    """Draw the steps of a body, which add to what is known."""
    random = Random(seed)
    for _ in range(kinds.size):
        own, nested = random.getrandbits(32), random.random()
        draw = _operation
        if kinds.depth and nested < 0.4:
            draw = (
                _loop if nested < 0.2 else _choice if nested < 0.3 or not kinds.whiles else _while
            )
            if kinds.scans and own % 2:
                draw = {_loop: _scan, _choice: _switch}.get(draw, draw)
        elif kinds.arrays and nested > 0.8:
            draw = _read if nested > 0.9 else _write
        draw(Random(own), known, kinds)


def _any(random: Random, known: _Known) -> Any:
    """One of the numbers; new ones are likelier."""
    return known.values[-1 - min(random.randrange(len(known.values)), random.randrange(8))]


def _index(random: Random, known: _Known) -> Any:
    if known.counters and random.random() < 0.7:
        return random.choice(known.counters) * random.choice((1, 2)) + random.choice((0, 1))
    return random.randrange(LENGTH)


def _operation(random: Random, known: _Known, kinds: Kinds) -> None:
    op, args = random.choice(list(kinds.table)), []
    for kind in types(op):
        a, b, exponent = _any(random, known), _any(random, known), random.choice(EXPONENTS)
        args.append({"f": a, "b": a < b, "i": exponent}[kind])
    value = op(*args)
    known.values.append(ops.where(value, 1.0, 0.0) if op.result == "b" else value)


def _read(random: Random, known: _Known, _: Kinds) -> None:
    known.values.append(known.arrays[-1][_index(random, known)])


def _write(random: Random, known: _Known, _: Kinds) -> None:
    known.arrays[-1] = known.arrays[-1].put(_index(random, known), _any(random, known))


def _loop(random: Random, known: _Known, kinds: Kinds) -> None:
    """A loop over some of what is known; its trip count may depend on values, or counters."""
    seed, count = random.getrandbits(32), random.randrange(1, 4)
    inits = tuple(_any(random, known) for _ in range(count))
    lo, hi, most = _bounds(random, known, kinds)

    def body(k: Any, carry: Any) -> Any:
        inner = known.copy()
        numbers, inner.arrays[-1] = carry
        inner.values += [*numbers, ops.mul(k, 0.125)]
        inner.counters.append(k)
        _steps(seed, inner, kinds.inner())
        return tuple(_limited(x) for x in inner.values[-count:]), inner.arrays[-1]

    ends, known.arrays[-1] = fori_loop(lo, hi, body, (inits, known.arrays[-1]), most)
    known.values += ends


def _bounds(random: Random, known: _Known, kinds: Kinds) -> tuple[Any, Any, int | None]:
    kind = random.random()
    if known.counters and kind < 0.4:
        return 0, known.counters[-1] + 1, None
    if kinds.bounds and kind < 0.7:
        return 0, _whole(_any(random, known)), 3
    lo = random.randrange(2)
    return lo, lo + random.randrange(5), None


def _scan(random: Random, known: _Known, kinds: Kinds) -> None:
    """A scan over an array and numbers, from either end, of whose ys one is taken."""
    seed, start, weights = random.getrandbits(32), _any(random, known), [0.5, -1.0, 0.25]

    def step(carry: Any, x: Any) -> Any:
        inner = known.copy()
        number, inner.arrays[-1] = carry
        inner.values += [number, x[0], ops.mul(x[1], 0.5)]
        _steps(seed, inner, kinds.inner())
        y = {"y": inner.values[-1], "z": np.array([inner.values[-2], x[0]], dtype=object)}
        return (_limited(inner.values[-1]), inner.arrays[-1]), y

    xs = known.arrays[-1], np.array(weights)
    (end, known.arrays[-1]), ys = scan(
        step, (start, known.arrays[-1]), xs, reverse=random.random() < 0.5
    )
    i = _index(random, known)
    known.values += [end, _element(ys["y"], i), _element(ys["z"][:, random.randrange(2)], i)]


def _element(a: Any, i: Any) -> Any:
    """Element i of an array, past the end the last one."""
    return a[i] if isinstance(i, Handle) else a[min(int(i), len(a) - 1)]


def _while(random: Random, known: _Known, kinds: Kinds) -> None:
    """A while loop of at most four iterations."""
    seed, limit = random.getrandbits(32), _any(random, known)

    def going(carry: Any) -> Any:
        x, steps = carry
        return (x < limit) & (steps < 4.0)

    def body(carry: Any) -> Any:
        x, steps = carry
        inner = known.copy()
        inner.values.append(x)
        _steps(seed, inner, replace(kinds.inner(), arrays=False))
        return _limited(inner.values[-1]), steps + 1.0

    known.values.append(while_loop(going, body, (_any(random, known), 0.0), max_steps=5)[0])


def _choice(random: Random, known: _Known, kinds: Kinds) -> None:
    seeds, condition = random.getrandbits(32), _any(random, known) < _any(random, known)

    def side(seed: int) -> Any:
        inner = known.copy()
        _steps(seed, inner, replace(kinds.inner(), arrays=False))
        return inner.values[-1], inner.values[-2]

    known.values += cond(condition, lambda: side(seeds), lambda: side(seeds + 1))


def _switch(random: Random, known: _Known, kinds: Kinds) -> None:
    seed, index = random.getrandbits(32), _whole(_any(random, known))

    def branch(seed: int) -> Any:
        inner = known.copy()
        _steps(seed, inner, replace(kinds.inner(), arrays=False))
        return {"a": inner.values[-1], "b": [inner.values[-2]]}

    found = switch(index, [partial(branch, seed + j) for j in range(3)])
    known.values += [found["a"], found["b"][0]]


def _limited(x: Any) -> Any:
    return ops.mul(ops.tanh(ops.mul(x, 1 / LIMIT)), LIMIT)


def _whole(x: Any) -> Any:
    """A whole number from 0 to 3."""
    return ops.minimum(ops.floor(ops.abs(x)), 3.0)


def _array(values: Sequence[Any]) -> Array | Numbers:
    graph = next((v.graph for v in values if isinstance(v, Handle)), None)
    return Numbers(values) if graph is None else array_of(graph, values)
