"""Programs in the kernel language, drawn at random, and how they are run here and in NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from symgrad.expr import ops
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import SimdTarget
from symgrad.llvm.device.cpu import compile_source
from symgrad.llvm.dispatch.compiled import definitions_for
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.printer import print_kernel

from .running import aligned

Write = Callable[[int], KernelIR]
"""Writes a kernel for groups of so many invocations."""


def run_kernel(
    kernel: KernelIR, shape: Shape, vector: Shape | None, arrays: Sequence[np.ndarray], count: int,
    cells: int = 0, thorough: bool = False,
) -> None:  # fmt: skip
    """Run ``count`` invocations of a kernel on arrays, or so many ``cells`` in groups.

    With one lane, those of arrays (count, ..) one by one.
    """
    functions = definitions_for("accurate", shape.dtype)
    source = print_kernel(kernel, functions, shape, vector, thorough)
    room = aligned((source.workspace + 64,), np.uint8)
    code = compile_source(source)
    call = ctypes.CFUNCTYPE(None)(code.address)

    def address(array: np.ndarray, row: int = 0) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data + row * array.strides[0])

    if shape.lanes == 1:
        for r in range(count):
            call(*[address(a, r) for a in arrays], address(room))
        return
    cells = cells or count
    groups = cells // shape.lanes
    numbers = ctypes.c_int64(0), ctypes.c_int64(cells), ctypes.c_bool(False)
    call(
        *[address(a) for a in (*arrays, room)], *numbers, ctypes.c_int32(count),
        ctypes.c_int32(groups),
    )  # fmt: skip


def meaning(write: Write, points: np.ndarray, columns: int) -> np.ndarray:
    """What a map kernel does with points (B, n), by the language's interpreter."""
    found = np.zeros((len(points), columns), points.dtype)
    arrays = {"x": points.copy(), "out": found}
    execute(write(4), arrays, len(points), dtype=points.dtype)
    return found


def printed(
    write: Write, shape: Shape, points: np.ndarray, columns: int, vector: Shape | None = None,
    thorough: bool = False,
) -> np.ndarray:  # fmt: skip
    """The same, compiled."""
    found = aligned((len(points), columns), points.dtype)
    at = aligned(points.shape, points.dtype)
    at[...] = points
    kernel = write(shape.lanes)
    run_kernel(kernel, shape, vector, [at, found], len(points), thorough=thorough)
    return found


class Drawn:
    """A map kernel from x (B, 3) to out (B, 3), with loops, branches and arrays at random."""

    SIZE = 8
    """Numbers of each array."""

    def __init__(self, seed: int, width: int, items: int = 4) -> None:
        self.random = Random(seed)
        self.kernel = k = KernelIR(SimdTarget(width))
        x, out = k.buffer("x", "read"), k.buffer("out", "write")
        self.arrays = [k.buffer(f"a{n}", "own", size=self.SIZE) for n in range(2)]
        for array in self.arrays:
            k.fill(array)
        floats = [k.load(x, k.offset(k.cell, 3, c)) for c in range(3)]
        scaled = k.add(ops.mul, floats[0], k.constant(4.0))
        whole = k.add(ops.word_and, k.add(ops.nearest_word, scaled), k.word(7))
        words = [k.word(0), k.word(2), k.word(5), whole]
        floats, _ = self.block(0, items, floats, words)
        for c in range(3):
            k.store(out, k.offset(k.cell, 3, c), floats[-1 - c])

    def block(
        self, depth: int, items: int, floats: list[int], words: list[int]
    ) -> tuple[list[int], list[int]]:
        """Some items at random; the values that are known behind them."""
        floats, words = list(floats), list(words)
        for _ in range(items):
            choices = [self.sum_, self.sum_, self.where, self.word, self.put, self.get, self.get]
            if depth < 3:
                choices += [self.loop, self.loop, self.branch, self.branch]
            self.random.choice(choices)(depth, floats, words)
        return floats, words

    def sum_(self, depth: int, floats: list[int], words: list[int]) -> None:
        a, b = self.random.choices(floats, k=2)
        half = self.kernel.add(ops.mul, a, self.kernel.constant(0.5))
        op = self.random.choice([ops.add, ops.sub, ops.mul])
        floats.append(self.kernel.add(op, half, b))

    def where(self, depth: int, floats: list[int], words: list[int]) -> None:
        a, b = self.random.choices(floats, k=2)
        floats.append(self.kernel.add(ops.where, self.truth(floats, words), a, b))

    def truth(self, floats: list[int], words: list[int]) -> int:
        if self.random.random() < 0.4:
            return self.kernel.add(ops.word_lt, *self.random.choices(words, k=2))
        return self.kernel.add(ops.lt, *self.random.choices(floats, k=2))

    def word(self, depth: int, floats: list[int], words: list[int]) -> None:
        a, b = self.random.choices(words, k=2)
        op = self.random.choice([ops.word_add, ops.word_sub, ops.word_mul])
        words.append(self.index(self.kernel.add(op, a, b)))

    def index(self, word: int) -> int:
        return self.kernel.add(ops.word_and, word, self.kernel.word(self.SIZE - 1))

    def array(self) -> Buffer:
        return self.random.choice(self.arrays)

    def put(self, depth: int, floats: list[int], words: list[int]) -> None:
        if self.random.random() < 0.1:
            self.kernel.fill(self.array())
            return
        value, at = self.random.choice(floats), self.random.choice(words)
        add = self.random.random() < 0.3
        self.kernel.store(self.array(), self.index(at), value, add=add)

    def get(self, depth: int, floats: list[int], words: list[int]) -> None:
        at = self.index(self.random.choice(words))
        floats.append(self.kernel.load(self.array(), at))

    def loop(self, depth: int, floats: list[int], words: list[int]) -> None:
        random, k = self.random, self.kernel
        lo, hi = (self.index(random.choice(words)) for _ in range(2))
        inits = [random.choice(floats), random.choice(floats), self.index(random.choice(words))]
        asked = random.random() < 0.4
        down = not asked and random.random() < 0.4

        def known(iteration: int, carries: list[int]) -> tuple[list[int], list[int]]:
            return [*floats, *carries[:2]], [*words, self.index(iteration), carries[2]]

        def test(iteration: int, carries: list[int]) -> int:
            return self.truth(*known(iteration, carries))

        def body(iteration: int, carries: list[int]) -> Sequence[int]:
            inner, numbers = self.block(depth + 1, random.randrange(4), *known(iteration, carries))
            return inner[-1], inner[-2], self.index(numbers[-1])

        results, count = k.loop(lo, hi, inits, body, down=down, test=test if asked else None)
        floats += results[:2]
        words += [results[2], self.index(count)]

    def branch(self, depth: int, floats: list[int], words: list[int]) -> None:
        def side() -> Sequence[int]:
            inner, numbers = self.block(depth + 1, self.random.randrange(3), floats, words)
            return inner[-1], self.index(numbers[-1])

        one, two = self.kernel.choose(self.truth(floats, words), side, side)
        floats.append(one)
        words.append(two)
