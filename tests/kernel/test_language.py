"""Small kernels, built by hand: what stands where."""

from __future__ import annotations

from typing import TypeVar

import pytest
from strategies import random_graph

from symgrad.expr import ops
from symgrad.kernel.language.ir import KernelIR, operands
from symgrad.kernel.language.statements import (
    Fill,
    For,
    If,
    Load,
    Scope,
    Store,
    results_of,
    scopes_of,
)
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget

T = TypeVar("T")


def kernel() -> KernelIR:
    return KernelIR(SimdTarget(4))


def names(k: KernelIR, scope: Scope) -> list[str]:
    """The items of a scope: the names of operations, and of statements."""
    return [
        k.graph.nodes[i][0].name if isinstance(i, int) else type(i).__name__ for i in scope.items
    ]


def only(scope: Scope, kind: type[T]) -> T:
    (found,) = (item for item in scope.items if isinstance(item, kind))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_nodes_added_in_one_go_are_those_added_one_by_one(seed: int) -> None:
    drawn = random_graph(seed, size=60).graph
    order = list(range(len(drawn)))
    alone, together = kernel(), kernel()
    leaves = [
        {i: k.value(drawn.type(i)) for i in order if not drawn.nodes[i][0].arity}
        for k in (alone, together)
    ]
    found, known = (dict(some) for some in leaves)
    for i in order:
        op = drawn.nodes[i][0]
        if op.arity:
            found[i] = alone.add(op, *[found[a] for a in drawn.args(i)])
    together.graph.sources = drawn.sources
    for _ in range(2):  # what is there is not added again
        together.extend(drawn, order, known, range(len(drawn.sources)))
    assert known == found and together.main.items == alone.main.items
    assert together.graph.nodes == alone.graph.nodes
    assert [together.graph.place_of(known[i]) for i in order if drawn.nodes[i][0].arity] == [
        drawn.place_of(i) for i in order if drawn.nodes[i][0].arity
    ]
    assert {together.home[i] for i in known.values()} == {together.main}


def test_equal_nodes_are_one() -> None:
    k = kernel()
    a, b = k.value("f"), k.value("f")
    assert k.add(ops.add, a, b) == k.add(ops.add, b, a)
    assert k.add(ops.sub, a, b) != k.add(ops.sub, b, a)
    assert names(k, k.main) == ["add", "sub", "sub"]


def test_constants_are_of_the_main_scope_and_no_items() -> None:
    k = kernel()
    k.loop(
        k.word(0), k.word(3), [k.constant(0.5)], lambda _, c: [k.add(ops.add, *c, k.constant(2.5))]
    )
    assert names(k, k.main) == ["For"]
    assert k.home[k.constant(2.5)] is k.main
    assert k.constant(-0.0) != k.constant(0.0)
    assert k.truth(True) != k.truth(False)


def test_words_that_are_known_are_computed() -> None:
    k = kernel()
    i = k.local
    assert k.offset(i, 1, 0) == i
    assert k.offset(i, 0, 7) == k.word(7)
    assert k.add(ops.word_sub, i, k.word(0)) == i
    assert k.add(ops.word_mul, k.word(1), i) == i
    assert k.add(ops.word_sub, k.word(2), k.word(3)) == k.word(0xFFFFFFFF)
    assert k.add(ops.word_sub, k.word(0), i) != i
    assert names(k, k.main) == ["word_sub"]


def test_what_a_loop_does_not_change_is_computed_before_it() -> None:
    k = kernel()
    a, b = k.value("f"), k.value("f")

    def body(_: int, carries: list[int]) -> list[int]:
        return [k.add(ops.mul, carries[0], k.add(ops.exp, k.add(ops.add, a, b)))]

    (result,), count = k.loop(k.word(0), k.count, [a], body)
    loop = only(k.main, For)
    assert names(k, k.main) == ["add", "exp", "For"]
    assert names(k, loop.scope) == ["mul"]
    assert (loop.results, loop.count) == ([result], count)
    assert operands(k, loop) == (k.word(0), k.count, a)
    assert results_of(loop) == (result, count)
    assert scopes_of(loop) == (loop.scope,)


def test_each_loop_of_a_nest_has_what_it_changes() -> None:
    k = kernel()

    def outer(i: int, carries: list[int]) -> list[int]:
        def inner(j: int, sums: list[int]) -> list[int]:
            both = k.add(ops.word_add, i, j)
            twice = k.add(ops.word_mul, i, k.word(2))
            term = k.add(ops.word_float, k.add(ops.word_add, both, twice))
            return [k.add(ops.add, sums[0], term)]

        return k.loop(k.word(0), i, carries, inner)[0]

    k.loop(k.word(0), k.word(5), [k.constant(0.0)], outer)
    first = only(k.main, For)
    second = only(first.scope, For)
    assert names(k, k.main) == ["For"]
    assert names(k, first.scope) == ["word_mul", "For"]
    assert names(k, second.scope) == ["word_add", "word_add", "word_float", "add"]


def test_a_value_of_a_scope_around_is_not_computed_again() -> None:
    k = kernel()
    a = k.value("f")
    there = k.add(ops.exp, a)
    found: list[int] = []
    k.when(k.truth(True), lambda: found.append(k.add(ops.exp, a)))
    k.loop(k.word(0), k.word(2), [a], lambda _, c: [k.add(ops.add, c[0], k.add(ops.exp, a))])
    assert found == [there]
    assert names(k, k.main) == ["exp", "If", "For"]


def test_the_sides_of_an_if_are_lazy() -> None:
    k = kernel()
    a, b = k.value("f"), k.value("f")
    positive = k.add(ops.lt, k.constant(0.0), a)

    def body(_: int, carries: list[int]) -> list[int]:
        return k.choose(
            positive, lambda: [k.add(ops.div, b, a)], lambda: [k.add(ops.mul, carries[0], b)]
        )

    k.loop(k.word(0), k.word(2), [b], body)
    choice = only(only(k.main, For).scope, If)
    assert names(k, k.main) == ["lt", "For"]
    assert [names(k, side) for side in choice.sides] == [["div"], ["mul"]]
    assert k.home[choice.results[0]] is only(k.main, For).scope
    outside = k.add(ops.div, b, a)
    assert k.home[outside] is k.main
    assert outside not in choice.sides[0].index.values()


def test_a_loop_in_a_side_hoists_as_far_as_the_side() -> None:
    k = kernel()
    a = k.value("f")

    def then() -> list[int]:
        return k.loop(
            k.word(0), k.word(2), [a], lambda _, c: [k.add(ops.add, *c, k.add(ops.exp, a))]
        )[0]

    k.choose(k.truth(True), then, lambda: [a])
    assert names(k, k.main) == ["If"]
    assert names(k, only(k.main, If).sides[0]) == ["exp", "For"]


def test_the_test_of_a_loop_comes_before_its_body() -> None:
    k = kernel()
    a = k.value("f")
    k.loop(
        k.word(0), k.word(9), [a], lambda _, c: [k.add(ops.exp, c[0])],
        test=lambda _, c: k.add(ops.lt, c[0], k.constant(5.0)),
    )  # fmt: skip
    loop = only(k.main, For)
    assert names(k, loop.scope) == ["lt", "exp"]
    assert (loop.test, loop.test_at) == (loop.scope.items[0], 1)


def test_reads_float_and_loads_stay() -> None:
    k = kernel()
    x, own = k.buffer("x", "read"), k.buffer("a", "own", size=4)
    k.fill(own)

    def body(i: int, _: list[int]) -> list[int]:
        k.store(own, i, k.load(x, k.cell), add=True)
        k.load(own, k.word(0))
        return []

    k.loop(k.word(0), k.word(4), [], body)
    loop = only(k.main, For)
    assert names(k, k.main) == ["Fill", "read_x", "For"]
    store, load = loop.scope.items
    assert isinstance(store, Store)
    assert isinstance(load, Load)
    assert operands(k, store) == (loop.k, k.load(x, k.cell))
    assert results_of(load) == (load.result,)
    assert k.home[load.result] is loop.scope
    assert (operands(k, Fill(own)), results_of(Fill(own)), scopes_of(store)) == ((), (), ())


def test_places_are_those_of_the_arena() -> None:
    k = kernel()
    k.graph.place = 3
    i = k.add(ops.exp, k.value("f"))
    assert k.graph.places[i] == 3


def test_all_items_in_order() -> None:
    k = kernel()
    a = k.value("f")
    k.when(k.truth(True), lambda: k.store(k.buffer("y", "write"), k.cell, k.add(ops.exp, a)))
    k.barrier()
    kinds = [type(item).__name__ for _, item in k.items()]
    assert kinds == ["If", "int", "Store", "Barrier"]
    assert len({id(scope) for scope, _ in k.items()}) == 2


def test_faults_of_programs_are_refused() -> None:
    k = kernel()
    k.buffer("x", "read")
    with pytest.raises(AssertionError, match="two buffers named x"):
        k.buffer("x", "write")
    with pytest.raises(AssertionError, match="unknown size"):
        k.buffer("a", "own")
    with pytest.raises(AssertionError, match="yields what it carries"):
        k.loop(k.word(0), k.word(1), [k.word(0)], lambda *_: [k.constant(1.0)])
    with pytest.raises(AssertionError, match="a loop with a test goes up"):
        k.loop(k.word(0), k.word(1), [], lambda *_: [], down=True, test=lambda *_: k.truth(True))
    with pytest.raises(AssertionError, match="same kinds"):
        k.choose(k.truth(True), lambda: [k.word(0)], lambda: [k.constant(1.0)])


def test_the_point_of_an_invocation() -> None:
    k = kernel()
    assert k.target.point(k) == k.cell
    grouped = KernelIR(WorkgroupTarget())
    point = grouped.target.point(grouped)
    assert names(grouped, grouped.main) == ["word_sub", "word_min"]
    assert grouped.type(point) == "u"
