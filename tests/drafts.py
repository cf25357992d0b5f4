"""Kernels of the language, built by hand: each with points, for all that print or run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from symgrad.expr import ops
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import StoreRow
from symgrad.kernel.language.target import WorkgroupTarget

POINTS: Final = np.random.default_rng(7).uniform(-2.0, 2.0, (150, 3)).astype(np.float32)


@dataclass
class Draft:
    """A map kernel that is being written: x (B, 3) in, y (B, columns) out."""

    columns: int
    k: KernelIR = field(default_factory=lambda: KernelIR(WorkgroupTarget(64)))

    def __post_init__(self) -> None:
        k = self.k
        x, self.y = k.buffer("x", "read"), k.buffer("y", "write")
        self.point = k.target.point(k)
        k.names[self.point] = "point"
        self.x = [k.load(x, k.offset(self.point, 3, c)) for c in range(3)]

    def named(self, *names: str) -> Draft:
        """The same, with names for the inputs."""
        self.k.names |= dict(zip(self.x, names, strict=True))
        return self

    def store(self, *values: int) -> KernelIR:
        """The kernel, which stores these, floats or words."""
        k = self.k
        assert len(values) == self.columns, "a value for each column"
        floats = [k.add(ops.word_float, v) if k.type(v) == "u" else v for v in values]

        k.store_row(self.y, floats)
        return k

    def iterations(self, x: int, most: int = 5) -> int:
        """A word below ``most``, another one in each invocation."""
        k = self.k
        size = k.add(ops.nearest_word, k.add(ops.mul, k.add(ops.abs, x), k.constant(2.0)))
        return k.add(ops.word_min, size, k.word(most - 1))


def columns_of(kernel: KernelIR) -> int:
    """The numbers that such a kernel stores at each point."""
    y = next(b for b in kernel.buffers if b.name == "y")
    rows = [s.values for _, s in kernel.items() if isinstance(s, StoreRow) and s.buffer is y]
    return sum(map(len, rows))


def swap() -> KernelIR:
    """Carries that become one another, and one that is needed after the loop as it was before."""
    d = Draft(4).named("a", "x", "y")
    k, (a, x, y) = d.k, d.x

    def body(_: int, c: list[int]) -> Sequence[int]:
        k.names |= dict(zip(c, "xyz", strict=True))
        return c[1], c[2], k.add(ops.add, k.add(ops.mul, a, c[0]), k.constant(0.5))

    results, _ = k.loop(k.word(0), k.word(7), [x, y, a], body)
    return d.store(*results, x)


def made_of_each_other() -> KernelIR:
    """Carries whose next values are made of those that another one has now."""
    d = Draft(3)
    k, (a, b, c) = d.k, d.x
    half = k.constant(0.5)

    def body(_: int, s: list[int]) -> Sequence[int]:
        p, q, r = s
        mean = k.add(ops.mul, half, k.add(ops.add, p, q))
        return k.add(ops.sub, q, r), mean, k.add(ops.mul, half, k.add(ops.add, p, r))

    results, _ = k.loop(k.word(0), k.word(6), [a, b, c], body)
    return d.store(*results)


def own_iterations() -> KernelIR:
    """Own bounds, no iteration at all, iterations in reverse, and how many there were."""
    d = Draft(6)
    k, (a, b, c) = d.k, d.x
    longest, inner = d.iterations(a), d.iterations(b)

    def digits(i: int, s: list[int]) -> Sequence[int]:
        ten = k.add(ops.mul, s[0], k.constant(10.0))
        return (k.add(ops.add, ten, k.add(ops.word_float, i)),)

    def nested(i: int, s: list[int]) -> Sequence[int]:
        hi = k.add(ops.word_min, inner, k.add(ops.word_add, i, k.word(1)))
        return k.loop(k.word(1), hi, s, digits, down=True)[0]

    zero = k.constant(0.0)
    (up,), ups = k.loop(inner, longest, [zero], digits)
    (down,), downs = k.loop(inner, longest, [zero], digits, down=True)
    (both,), _ = k.loop(k.word(0), longest, [zero], nested)
    return d.store(up, ups, down, downs, both, k.loop(longest, k.word(0), [c], digits)[0][0])


def tested() -> KernelIR:
    """A loop that a test ends, what it carries when it does, and how often it turned."""
    d = Draft(2)
    k, (a, b, _) = d.k, d.x
    limit = k.add(ops.abs, a)

    def body(i: int, s: list[int]) -> Sequence[int]:
        return (k.add(ops.add, s[0], k.add(ops.mul, b, b)),)

    def test(_: int, s: list[int]) -> int:
        return k.add(ops.lt, k.add(ops.abs, s[0]), limit)

    (up,), ups = k.loop(k.word(2), k.word(40), [b], body, test=test)
    return d.store(up, ups)


def tape(size: int) -> Callable[[], KernelIR]:
    """What a loop leaves in an array of this size, read backwards by another."""

    def build() -> KernelIR:
        d = Draft(3).named("rate", "start", "t1")
        k, (rate, start, other) = d.k, d.x
        kept = k.buffer("x kept", "own", size=size)
        shrunk = k.add(ops.mul, rate, k.constant(0.25))

        def forward(i: int, c: list[int]) -> Sequence[int]:
            k.names[c[0]] = "x"
            k.store(kept, i, c[0])
            return (k.add(ops.sub, c[0], k.add(ops.mul, shrunk, k.add(ops.sin, c[0]))),)

        def back(i: int, c: list[int]) -> Sequence[int]:
            k.names |= {c[0]: "x", c[1]: "k"}
            x = k.load(kept, i)
            slope = k.add(ops.sub, k.constant(1.0), k.add(ops.mul, shrunk, k.add(ops.cos, x)))
            step = k.add(ops.mul, c[0], k.add(ops.sin, x))
            return k.add(ops.mul, slope, c[0]), k.add(ops.sub, c[1], step)

        (x,), _ = k.loop(k.word(0), k.word(size), [start], forward)
        sums, _ = k.loop(k.word(0), k.word(size), [k.constant(1.0), other], back, down=True)
        return d.store(x, *sums)

    build.__name__ = f"tape_{size}"
    return build


def words(size: int) -> Callable[[], KernelIR]:
    """Arrays of words, whose bits are no floats', beside one of floats."""

    def build() -> KernelIR:
        d = Draft(2)
        k, (a, b, _) = d.k, d.x
        some, floats = k.buffer("w", "own", "u", size), k.buffer("f", "own", size=size)
        bits = k.word(0x7F80BEEF)  # a signalling NaN; with other ends, subnormals

        def write(i: int, _: list[int]) -> Sequence[int]:
            high = k.add(ops.word_mul, i, k.word(0x1000001))
            k.store(some, i, k.add(ops.word_xor, bits, high))
            k.store(floats, i, k.add(ops.mul, a, k.add(ops.word_float, i)))
            k.store(floats, i, b, add=True)
            return ()

        def read(i: int, c: list[int]) -> Sequence[int]:
            word = k.add(ops.word_xor, c[0], k.load(some, i))
            mixed = k.add(ops.word_xor, word, k.add(ops.word_shift_left, word, k.word(5)))
            return mixed, k.add(ops.add, c[1], k.load(floats, i))

        k.loop(k.word(0), k.word(size), [], write)
        (word, total), _ = k.loop(k.word(0), k.word(size), [k.word(0), k.constant(0.0)], read)
        return d.store(k.add(ops.word_and, word, k.word(0xFFFFFF)), total)

    build.__name__ = f"words_{size}"
    return build


def cleared(size: int) -> Callable[[], KernelIR]:
    """An array that is zeros again in every turn, of which some are added to at run time."""

    def build() -> KernelIR:
        d = Draft(2)
        k, (a, b, _) = d.k, d.x
        counts = k.buffer("counts", "own", size=size)
        place = d.iterations(a)

        def iteration(i: int, c: list[int]) -> Sequence[int]:
            k.fill(counts)
            k.store(counts, place, b, add=True)
            k.store(counts, k.add(ops.word_min, i, k.word(size - 1)), a, add=True)
            found = k.load(counts, place)
            return k.add(ops.add, c[0], found), k.add(ops.add, c[1], k.load(counts, k.word(3)))

        zero = k.constant(0.0)
        results, _ = k.loop(k.word(0), k.word(9), [zero, zero], iteration)
        return d.store(*results)

    build.__name__ = f"cleared_{size}"
    return build


def choices() -> KernelIR:
    """Sides that may not be computed elsewhere, in each other and in a loop; truths carried."""
    d = Draft(3)
    k, (a, b, c) = d.k, d.x
    zero, one = k.constant(0.0), k.constant(1.0)
    a_is_less, seen = k.add(ops.lt, a, zero), k.buffer("seen", "own", size=2)
    k.fill(seen)

    def other() -> Sequence[int]:
        k.store(seen, k.word(1), b)
        inner = k.choose(
            k.add(ops.lt, b, zero), lambda: [k.add(ops.exp, b)], lambda: [k.add(ops.log, b)]
        )
        return inner[0], k.truth(True)

    def iteration(_: int, s: list[int]) -> Sequence[int]:
        x, flag = s
        following = k.choose(flag, lambda: [k.add(ops.div, x, c)], lambda: [k.add(ops.sub, x, one)])
        return following[0], k.add(ops.lt, following[0], zero)

    first, flag = k.choose(
        a_is_less, lambda: [k.add(ops.sqrt, k.add(ops.neg, a)), a_is_less], other
    )
    results, _ = k.loop(k.word(0), k.word(4), [first, flag], iteration)
    return d.store(first, results[0], k.load(seen, k.word(1)))


def hoisted() -> KernelIR:
    """What a loop does not change stands before it, once, and a long expression is cut."""
    d = Draft(2).named("alpha", "beta", "gamma")
    k, (a, b, c) = d.k, d.x

    def iteration(_: int, s: list[int]) -> Sequence[int]:
        fixed = k.add(ops.exp, k.add(ops.neg, k.add(ops.mul, a, a)))
        long = s[0]
        for n in range(30):
            long = k.add(ops.add, k.add(ops.mul, long, fixed), k.constant(n / 64.0))
        return (k.add(ops.mul, long, k.constant(0.5)),)

    results, _ = k.loop(k.word(0), k.word(3), [b], iteration)
    return d.store(results[0], k.add(ops.mul, c, results[0]))


def hostile_names() -> KernelIR:
    """Names that WGSL reserves, that the kernel has itself, and that are no names at all."""
    d = Draft(4).named("auto", "t1", "y")
    k, inputs = d.k, d.x
    own = [k.buffer(name, "own", size=2) for name in ("x", "for", "a b") if name != "x"]

    def iteration(i: int, s: list[int]) -> Sequence[int]:
        k.names |= {i: "var", s[0]: "params", s[1]: "x", s[2]: "λ", s[3]: "cell"}
        k.store(own[0], k.word(1), s[0])
        k.store(own[1], k.word(0), s[1])
        later = k.add(ops.sub, k.load(own[0], k.word(1)), k.load(own[1], k.word(0)))
        return s[1], later, k.add(ops.add, s[2], s[0]), k.add(ops.word_add, s[3], i)

    start = [inputs[0], inputs[1], inputs[2], k.word(1)]
    results, _ = k.loop(k.word(0), k.word(3), start, iteration)
    again, _ = k.loop(k.word(0), results[3], results, iteration, most=9)
    return d.store(*again)


def group_sums() -> KernelIR:
    """Sums over workgroups, with barriers, in a loop of as many iterations for all."""
    d = Draft(2)
    k, (a, b, _) = d.k, d.x
    inside = k.add(ops.word_lt, k.cell, k.count)
    mine = k.choose(inside, lambda: [a, b], lambda: [k.constant(0.0)] * 2)

    def iteration(_: int, s: list[int]) -> Sequence[int]:
        total = k.target.sum_group(k, [k.add(ops.mul, s[0], mine[1])])[0]
        return (k.add(ops.mul, total, k.constant(0.125)),)

    results, _ = k.loop(k.word(0), k.word(2), [mine[0]], iteration)
    return d.store(results[0], k.target.sum_group(k, [mine[0]])[0])


def quads() -> KernelIR:
    """Numbers in fours that a group shares: all of one, single ones, some after others changed."""
    d = Draft(6).named("a", "b", "c")
    k, (a, b, c) = d.k, d.x
    tile = k.buffer("tile", "group", size=4 * 64, vector=4)
    said = k.buffer("said", "group", size=1)
    for place, value in enumerate((a, b, c, k.add(ops.mul, a, b))):
        k.store(tile, k.offset(k.local, 4, place), value)
    k.when(k.add(ops.word_lt, k.local, k.word(1)), lambda: k.store(said, k.word(0), a))
    k.barrier()
    other = k.add(ops.word_xor, k.local, k.word(1))
    four = [k.load(tile, k.offset(other, 4, place)) for place in range(4)]
    k.barrier()
    k.store(tile, k.offset(k.local, 4, 1), c, add=True)
    k.barrier()
    second = k.load(tile, k.offset(other, 4, 1))
    first = k.agreed(said, k.word(0))
    return d.store(*four, second, k.add(ops.sub, first, a))


KERNELS: Final[tuple[Callable[[], KernelIR], ...]] = (
    swap, made_of_each_other, own_iterations, tested, tape(5), tape(200), words(4), words(100),
    cleared(5), cleared(80), choices, hoisted, hostile_names, group_sums, quads,
)  # fmt: skip
