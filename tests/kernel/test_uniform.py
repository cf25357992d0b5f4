"""Which values of a kernel vary among the invocations of a group."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import For, If, lane_sum
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.language.verify import diverges, varying


def kernel() -> KernelIR:
    return KernelIR(SimdTarget(4))


def test_what_an_invocation_is_varies_and_so_does_what_is_made_of_it() -> None:
    k = kernel()
    x = k.buffer("x", "read")
    own = k.load(x, k.cell)
    common = k.load(x, k.group)
    both, total = k.add(ops.add, own, common), k.add(lane_sum, own)
    found = varying(k)
    assert {k.cell, k.local, own, both} <= found
    assert not {k.count, k.group, k.groups, common, total} & found


def test_arrays_of_an_invocations_own_vary() -> None:
    k = kernel()
    a, tile = k.buffer("a", "own", size=4), k.buffer("tile", "group", size=4)
    y = k.buffer("y", "write")
    own, shared, written = (k.load(b, k.word(0)) for b in (a, tile, y))
    mine = k.load(tile, k.local)
    assert varying(k) == {k.cell, k.local, own, mine}
    assert varying(k, memory=True) == {k.cell, k.local, own, mine, shared, written}


def test_carries_vary_with_what_they_begin_with_or_become() -> None:
    k = kernel()
    x = k.load(k.buffer("x", "read"), k.cell)
    zero = k.constant(0.0)

    def body(_: int, carries: list[int]) -> list[int]:
        same, turned, late, shifted = carries
        return [k.add(ops.exp, same), x, k.add(ops.add, late, shifted), turned]

    (same, turned, late, shifted), count = k.loop(k.word(0), k.count, [zero] * 4, body)
    (loop,) = (item for item in k.main.items if isinstance(item, For))
    found = varying(k)
    assert same not in found and loop.params[0] not in found
    assert {turned, late, shifted, *loop.params[1:]} <= found
    assert not {loop.k, count} & found
    assert not diverges(loop, found)


def test_a_bound_that_varies_leaves_the_turn_alone() -> None:
    k = kernel()
    (same,), count = k.loop(k.word(0), k.local, [k.constant(0.0)], lambda _, c: c)
    (loop,) = (item for item in k.main.items if isinstance(item, For))
    found = varying(k)
    assert {same, count, *loop.params} <= found
    assert loop.k not in found
    assert diverges(loop, found)


def test_a_lower_bound_that_varies_makes_the_counter_vary() -> None:
    k = kernel()
    k.loop(k.local, k.word(9), [], lambda *_: [])
    (loop,) = (item for item in k.main.items if isinstance(item, For))
    assert loop.k in varying(k)


def test_a_test_that_varies() -> None:
    k = kernel()
    x = k.load(k.buffer("x", "read"), k.cell)
    (y,), count = k.loop(
        k.word(0), k.word(9), [k.constant(0.0)], lambda _, c: [k.add(ops.add, *c, *c)],
        test=lambda _, c: k.add(ops.lt, c[0], x),
    )  # fmt: skip
    assert {y, count} <= varying(k)


def test_what_is_chosen_varies_with_the_condition_or_with_either_side() -> None:
    k = kernel()
    x = k.load(k.buffer("x", "read"), k.cell)
    zero, one = k.constant(0.0), k.constant(1.0)
    positive, known = k.add(ops.lt, zero, x), k.add(ops.word_lt, k.group, k.count)
    (a,) = k.choose(positive, lambda: [zero], lambda: [one])
    (b,) = k.choose(known, lambda: [zero], lambda: [one])
    (c,) = k.choose(known, lambda: [zero], lambda: [x])
    found = varying(k)
    assert {a, c} <= found
    assert b not in found
    parts = [diverges(item, found) for item in k.main.items if isinstance(item, If)]
    assert parts == [True, False, False]
