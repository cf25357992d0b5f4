"""Kernels in several, whose loops are short enough: the same numbers as of the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from drafts import KERNELS, POINTS, Draft, columns_of
from programs import random_program

from symgrad.expr import ops
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import For
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.passes.split import MOST_ITERATIONS, Split, split
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.skeletons.map import map_program

DTYPES: Mapping[str, type] = {"f": np.float32, "u": np.uint32, "b": np.bool_}


def run(found: Split) -> np.ndarray:
    """What the kernels compute, one after the other; what no one has left for others is NaN."""
    first = found.kernels[0]
    y = np.full((len(POINTS), columns_of(found.kernels[-1])), np.nan, np.float32)
    arrays = {"x": POINTS, "y": y}
    if len(found.kernels) > 1:
        cells = -(-len(POINTS) // first.target.width) * first.target.width
        for b in first.buffers:
            if b.space == "own":
                poison = np.full(b.size * cells, 0x7FC0BEEF, np.uint32)
                arrays[b.name] = (
                    poison.view(np.float32) if b.kind == "f" else poison.astype(DTYPES[b.kind])
                )
    for k in found.kernels:
        assert k.buffers == first.buffers
        verify(k)
        execute(k, arrays, len(POINTS), dtype=np.float32)
    return y


@pytest.mark.parametrize("most", [100, 20, 7, 2, 1])
@pytest.mark.parametrize("build", KERNELS, ids=lambda build: build.__name__)
def test_a_kernel_in_pieces_has_the_bits_of_the_whole(
    build: Callable[[], KernelIR], most: int
) -> None:
    found = split(build(), most)
    np.testing.assert_array_equal(run(found), run(Split((build(),), 0)))
    assert len(found.kernels) == 1 or found.iterations <= max(most, 81)


@pytest.mark.parametrize("most", [30, 4])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_in_pieces(seed: int, most: int) -> None:
    drawn = random_program(seed)
    outputs = (Output("y", tuple(y.id for y in drawn.floats[-2:])),)
    whole = map_program(Computation("f", drawn.graph, outputs), WorkgroupTarget(64))
    found = split(whole, most)
    np.testing.assert_array_equal(run(found), run(Split((whole,), 0)))


def nested(outer: int, inner: int) -> KernelIR:
    """Iterations within iterations, each of which adds 1; and a loop of one turn behind it."""
    d = Draft(2)
    k = d.k

    def add(_: int, c: list[int]) -> list[int]:
        return [k.add(ops.add, c[0], k.constant(1.0))]

    def many(_: int, c: list[int]) -> list[int]:
        return k.loop(k.word(0), k.word(inner), c, add)[0]

    (total,), count = k.loop(k.word(3), k.word(3 + outer), [k.constant(0.0)], many)
    return d.store(k.loop(k.word(0), k.word(1), [total], add)[0][0], count)


def test_a_long_loop_is_done_by_one_kernel_several_times() -> None:
    found = split(nested(10, 4), 20)
    assert [found.kernels.index(k) for k in found.kernels] == [0, 1, 1, 1, 4]
    assert found.iterations == 20
    np.testing.assert_array_equal(run(found), np.broadcast_to([41.0, 13.0], (len(POINTS), 2)))


def test_a_kernel_of_few_turns_is_left_as_it_is() -> None:
    k = nested(3, 4)
    assert split(k, 16).kernels == (k,)
    assert split(k, 16).iterations == 3 * 5 + 1


def test_a_loop_within_a_loop_is_not_cut() -> None:
    found = split(nested(2, 40), 20)
    assert found.iterations == 41
    assert len(found.kernels) == 4


def test_turns_that_nobody_knows_are_said_to_be_many() -> None:
    d = Draft(1)
    k = d.k
    size = k.add(ops.nearest_word, k.add(ops.abs, d.x[0]))
    (x,), _ = k.loop(k.word(0), size, [d.x[1]], lambda _, c: [k.add(ops.neg, c[0])])
    found = split(d.store(x))
    assert len(found.kernels) == 1
    assert found.iterations > 2**31
    loop = next(item for _, item in k.items() if isinstance(item, For))
    loop.most = 100
    assert split(k).iterations == 100


def test_what_is_cut_are_loops_that_drivers_end() -> None:
    assert MOST_ITERATIONS < 65_535
