"""Kernels with one fault each, which is named."""

from __future__ import annotations

import pytest

from symgrad.expr import ops
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer, Fill, For, If, Load, Scope, Store, lane_sum
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.language.verify import faults, verify


def kernel() -> KernelIR:
    return KernelIR(WorkgroupTarget(4))


def loop_of(k: KernelIR) -> For:
    """The first one: sums over a group are made in another."""
    return next(item for item in k.main.items if isinstance(item, For))


def sound() -> KernelIR:
    """A kernel with everything in it, and no fault."""
    k = kernel()
    x, y, a = k.buffer("x", "read"), k.buffer("y", "write"), k.buffer("a", "own", size=4)
    value = k.load(x, k.target.point(k))
    k.fill(a)

    def body(i: int, carries: list[int]) -> list[int]:
        k.store(a, i, carries[0], add=True)
        return [k.add(ops.mul, k.load(a, i), value)]

    (last,), _ = k.loop(
        k.word(0), k.word(4), [value], body, test=lambda _, c: k.add(ops.lt, c[0], k.constant(9.0))
    )
    positive = k.add(ops.lt, k.constant(0.0), last)
    (kept,) = k.choose(positive, lambda: [k.add(ops.log, last)], lambda: [last])
    (total,) = k.target.sum_group(k, [kept])
    k.when(k.add(ops.word_lt, k.cell, k.count), lambda: k.store(y, k.cell, total))
    return k


def test_a_kernel_without_faults() -> None:
    verify(sound())


def refused(k: KernelIR, words: str) -> None:
    found = list(faults(k))
    assert any(words in fault for fault in found), found
    with pytest.raises(AssertionError, match="kernel: "):
        verify(k)


def test_a_value_is_used_where_it_is_known() -> None:
    k = kernel()
    k.when(
        k.truth(True), lambda: k.store(k.buffer("y", "write"), k.cell, k.add(ops.exp, k.value("f")))
    )
    refused(k, "which is not known there")
    k = kernel()
    loop_value: list[int] = []
    k.loop(k.word(0), k.word(2), [k.constant(1.0)], lambda _, c: loop_value.extend(c) or c)
    k.store(k.buffer("y", "write"), k.cell, loop_value[0])
    refused(k, f"needs {loop_value[0]}, which is not known there")


def test_a_value_is_used_after_it_is_made() -> None:
    k = sound()
    k.main.items.reverse()
    refused(k, "which is not known there")


def test_a_test_is_known_where_it_is_asked() -> None:
    k = sound()
    loop_of(k).test_at = 0
    refused(k, "is not known where it is asked")


def test_yields_are_known_at_the_end() -> None:
    k = sound()
    choice = next(item for item in k.main.items if isinstance(item, If))
    choice.yields[1][0] = choice.yields[0][0]
    refused(k, "the end of a scope needs")


def test_a_node_stands_in_its_scope_and_once_on_the_way_out() -> None:
    k = sound()
    loop = loop_of(k)
    inner = next(i for i in loop.scope.items if isinstance(i, int))
    k.home[inner] = k.main
    refused(k, "which is of another scope")
    k = kernel()
    a = k.value("f")
    k.loop(k.word(0), k.word(2), [], lambda *_: k.store(k.buffer("y", "write"), k.cell, a) or [])
    loop = loop_of(k)
    known = k.add(ops.exp, k.constant(1.0))
    k.main.items.reverse()
    with k.inside(loop.scope):
        again = len(k.graph)
        k.graph.nodes.append(k.graph.nodes[known])
        k.home[again] = loop.scope
        loop.scope.items.append(again)
    refused(k, "is known in a scope around its own")


def test_a_side_may_make_what_is_made_behind_it() -> None:
    k = kernel()
    x = k.load(k.buffer("x", "read"), k.cell)
    y = k.buffer("y", "write")
    k.when(k.truth(True), lambda: k.store(y, k.cell, k.add(ops.exp, x)))
    k.store(y, k.cell, k.add(ops.exp, x))
    verify(k)


def test_kinds_of_values() -> None:
    k = kernel()
    y, words = k.buffer("y", "write"), k.buffer("w", "write", "u")
    number, word = k.value("f"), k.word(1)
    k.main.items += [
        Store(y, number, number), Store(words, word, number), Load(k.value("u"), y, word),
        If(number, (Scope(k.main, True), Scope(k.main, True)), ([], []), []),
    ]  # fmt: skip
    k.add(ops.exp, word)
    found = "\n".join(faults(k))
    for wanted in ("takes uf, not ff", "takes uu, not uf", "takes uf, not uu", "takes b, not f",
                   "takes f, not u"):  # fmt: skip
        assert wanted in found


def test_kinds_of_carries() -> None:
    k = sound()
    loop_of(k).inits[0] = k.word(0)
    refused(k, "takes f, not u")
    k = sound()
    loop_of(k).yields.append(k.word(0))
    refused(k, "takes f, not fu")


def test_commuting_arguments_are_in_order() -> None:
    k = kernel()
    a, b = k.value("f"), k.value("f")
    k.intern((ops.add, b, a), k.main)
    refused(k, "out of order")


def test_buffers_that_are_read_are_not_written() -> None:
    k = kernel()
    x = k.buffer("x", "read")
    k.store(x, k.cell, k.constant(1.0))
    refused(k, "is of the space 'read'")
    k = kernel()
    y = k.buffer("y", "write")
    k.add(y.read, k.cell)
    refused(k, "is of the space 'write'")
    k = kernel()
    k.fill(k.buffer("y", "write"))
    refused(k, "is not the invocation's own")


def test_buffers_are_the_kernels() -> None:
    k = kernel()
    k.main.items.append(Fill(Buffer("a", "own", size=2)))
    refused(k, "that the kernel does not have")


def test_indices_are_within_what_is_known() -> None:
    k = kernel()
    a = k.buffer("a", "own", size=4)
    k.store(a, k.word(3), k.constant(0.0))
    verify(k)
    k.store(a, k.word(4), k.constant(0.0))
    refused(k, "is beyond the 4 numbers of a")
    k = kernel()
    a = k.buffer("a", "own", size=4)
    k.loop(k.word(4), k.word(9), [], lambda i, _: k.store(a, i, k.constant(0.0)) or [])
    refused(k, "is beyond the 4 numbers of a")


def test_barriers_are_reached_by_all() -> None:
    k = kernel()
    k.when(k.add(ops.word_lt, k.group, k.count), k.barrier)
    verify(k)
    k.when(k.add(ops.word_lt, k.cell, k.count), k.barrier)
    refused(k, "Barrier() stands where control flow may vary within a group")


def test_what_routines_need() -> None:
    k = kernel()
    a = k.buffer("a", "own", size=1)
    given = k.add(ops.exp, k.constant(2.0))
    add = k.routine("add", "f", lambda x: k.store(a, k.word(0), k.add(ops.mul, x, given)))
    k.when(k.add(ops.word_lt, k.cell, k.count), lambda: add(k.constant(1.0)))
    verify(k)
    add(k.word(1))
    refused(k, "takes f, not u")
    k = kernel()
    a = k.buffer("a", "own", "u", size=1)
    k.routine("own", "", lambda: k.store(a, k.word(0), k.cell))
    refused(k, "which its calls have to tell it")
    k = kernel()
    (total,), _ = k.loop(k.word(0), k.word(4), [k.constant(0.0)], lambda _, c: c)
    a = k.buffer("a", "own", size=1)
    k.routine("sum", "", lambda: k.store(a, k.word(0), total))
    refused(k, "which its calls have to tell it")


def test_where_routines_stand() -> None:
    k = kernel()
    k.routine("wait", "", k.barrier)
    refused(k, "stands where control flow may vary")
    k = kernel()
    k.routine("nothing", "", lambda: None)()
    k.main.items.reverse()
    refused(k, "is not known there")
    k = kernel()
    k.routine("nothing", "", lambda: None)
    routine = k.main.items.pop()
    k.when(k.truth(True), lambda: k.at.items.append(routine))
    refused(k, "stands in a scope within another")


def test_barriers_under_what_was_loaded() -> None:
    k = kernel()
    flag = k.load(k.buffer("state", "write"), k.group)
    k.when(k.add(ops.lt, flag, k.constant(0.0)), k.barrier)
    refused(k, "Barrier()")
    k = kernel()
    flag = k.load(k.buffer("state", "read"), k.group)
    k.when(k.add(ops.lt, flag, k.constant(0.0)), k.barrier)
    verify(k)


def test_barriers_in_loops() -> None:
    k = kernel()
    k.loop(k.word(0), k.count, [], lambda *_: k.barrier() or [])
    verify(k)
    k.loop(k.word(0), k.local, [], lambda *_: k.barrier() or [])
    refused(k, "Barrier()")


def test_sums_over_a_group_are_reached_by_all() -> None:
    k = kernel()
    mine = k.add(ops.word_float, k.local)
    y = k.buffer("y", "write")
    positive = k.add(ops.lt, k.constant(1.0), mine)
    k.when(positive, lambda: k.store(y, k.cell, k.add(lane_sum, mine)))
    refused(k, "lane_sum")


def test_what_a_group_agrees_on() -> None:
    k = kernel()
    place = k.buffer("place", "group", "u", 1)
    going = k.add(ops.word_lt, k.word(0), k.agreed(place, k.word(0)))
    k.when(going, k.barrier)
    verify(k)
    own = k.add(ops.word_lt, k.word(0), k.load(place, k.word(0)))
    k.when(own, k.barrier)
    refused(k, "stands where control flow may vary")
    k = kernel()
    own = k.add(ops.word_lt, k.local, k.word(1))
    place = k.buffer("place", "group", "u", 1)
    k.when(own, lambda: k.names.update({k.agreed(place, k.word(0)): "first"}))
    refused(k, "stands where control flow may vary")
    k = kernel()
    k.agreed(k.buffer("y", "write"), k.word(0))
    refused(k, "y is not a group's")


def test_quads_and_numbers_that_groups_add_to() -> None:
    k = kernel()
    tile = k.buffer("tile", "group", size=16, vector=4)
    k.store(tile, k.offset(k.local, 4, 3), k.constant(0.0))
    k.load(tile, k.word(9))
    verify(k)
    k.load(tile, k.local)
    refused(k, "tile has vectors")
    k = kernel()
    k.store(k.buffer("total", "write", "u", atomic=True), k.word(0), k.local)
    refused(k, "several groups write to total")
