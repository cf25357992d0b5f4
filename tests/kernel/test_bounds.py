"""Between which numbers the words of a kernel lie: drawn words, asked of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.expr.graph.node import Op
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.passes.lower import ALL, Bounds

WORDS = [ops.word_add, ops.word_sub, ops.word_mul, ops.word_div, ops.word_min, ops.word_and,
         ops.word_or, ops.word_xor]  # fmt: skip


def test_what_is_known_of_simple_words() -> None:
    k = KernelIR(SimdTarget(4))
    found = Bounds(k)
    assert found.of(k.word(7)) == (7, 7)
    assert found.of(k.count) == ALL
    assert found.of(k.local) == (0, 3)
    assert found.of(k.add(ops.word_sub, k.word(9), k.local)) == (6, 9)
    assert found.of(k.add(ops.word_sub, k.local, k.word(1))) == ALL
    assert found.of(k.add(ops.word_mul, k.count, k.local)) == ALL
    assert found.of(k.add(ops.word_div, k.count, k.word(2**16))) == (0, 2**16 - 1)
    assert found.of(k.add(ops.word_min, k.count, k.word(5))) == (0, 5)


def test_counters_of_loops() -> None:
    k = KernelIR(SimdTarget(4))
    found, counters = Bounds(k), [k.value("u") for _ in range(4)]
    fixed, ended, dynamic, empty = counters
    found.begin(fixed, k.word(2), k.word(9), None)
    found.begin(ended, k.local, k.count, 5)
    found.begin(dynamic, k.count, k.groups, 5)
    found.begin(empty, k.word(9), k.word(2), None)
    assert found.of(fixed) == (2, 8)
    assert found.of(ended) == (0, 7)
    assert found.of(dynamic) == (0, ALL[1] - 1)
    assert found.of(empty) == (9, 9)
    assert found.of(k.add(ops.word_sub, fixed, k.word(2))) == (0, 6)
    assert found.of(k.add(ops.word_sub, ended, k.local)) == (0, 4)
    assert found.of(k.add(ops.word_sub, dynamic, k.count)) == (0, 4)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_words_lie_within(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = KernelIR(SimdTarget(8))
    known = [k.local, k.count, *(k.word(int(n)) for n in rng.integers(1, 60, 4))]
    for _ in range(12):
        op: Op = WORDS[rng.integers(len(WORDS))]
        a, b = (known[i] for i in rng.integers(len(known), size=2))
        known.append(k.add(op, a, known[3] if op is ops.word_div else b))
    y, bounds = k.buffer("y", "write", "u"), Bounds(k)
    for c, i in enumerate(known):
        k.store(y, k.offset(k.cell, len(known), c), i)
    found = np.zeros((8, len(known)), np.uint32)
    execute(k, {"y": found}, 8)
    for i, column in zip(known, found.T, strict=True):
        low, high = bounds.of(i)
        assert low <= column.min() and column.max() <= high
