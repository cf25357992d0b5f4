"""Graphs with regions, written into kernels: against the meaning of the graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.expr.graph.arrays import ADD_AT, EMPTY, EMPTY_W, GET, GET_W, PUT, PUT_W, ZEROS, length
from symgrad.expr.graph.node import ARRAYS, WORD, Graph
from symgrad.expr.graph.place import Place
from symgrad.expr.graph.region import TURNS, choice_op, close, hole, loop_op, pick
from symgrad.expr.graph.verify import verify as verify_graph
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import For, If
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.skeletons.map import map_program

TARGETS = [SimdTarget(4), WorkgroupTarget(4)]
X = np.linspace(-1.5, 2.0, 8)


class Program:
    """A graph of two inputs, on which loops and choices are built by hand."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.graph.tracing = False
        self.x, self.n = self.graph.input("x"), self.graph.input("n")

    def word(self, n: int) -> int:
        return self.graph.intern((WORD, n))

    def fresh(self, op: object, size: int) -> int:
        return self.graph.intern((op, size))

    def iterations(self) -> int:
        """A word of the point's own, from 0 to 5."""
        return self.graph.add(ops.nearest_word, self.n)

    def put(self, a: int, i: int, x: int) -> int:
        return self.graph.add(PUT, a, i, x)

    def get(self, a: int, i: int) -> int:
        return self.graph.add(GET, a, i)

    def all_of(self, a: int) -> list[int]:
        return [self.get(a, self.word(i)) for i in range(length(self.graph, a))]

    def _within(self, of: Sequence[int], roots: Sequence[int]) -> Callable[[int], bool]:
        """Whether a node does not depend on these."""
        inner = set(of)
        for i in range(min(of, default=0), len(self.graph)):
            if not inner.isdisjoint(self.graph.args(i)):
                inner.add(i)
        return lambda i: i not in inner

    def loop(
        self, lo: int, hi: int, inits: Sequence[int], body: Callable[..., Sequence[int]],
        test: Callable[..., int] | None = None, down: bool = False, most: int | None = None,
        names: Sequence[str] = (),
    ) -> list[int]:  # fmt: skip
        """The results of a loop of ``body(k, *carries)``, and its iterations."""
        g = self.graph
        kinds, known = [g.type(i) for i in inits], [*names, *[""] * len(inits)]
        k = hole(g, "u", name="k")
        sizes = [length(g, i) if t in ARRAYS else None for i, t in zip(inits, kinds, strict=True)]
        carries = [hole(g, t, s, n) for t, s, n in zip(kinds, sizes, known, strict=False)]
        yields = [*body(k, *carries), *([test(k, *carries)] if test else [])]
        region, captured = close(
            g, [k, *carries], yields, capture=self._within([k, *carries], yields)
        )
        op = loop_op(region, len(inits), bool(test), down, most)
        made = g.add(op, lo, hi, *inits, *captured)
        return [*(pick(g, made, j, t) for j, t in enumerate(kinds)), pick(g, made, TURNS, "u")]

    def cond(
        self, condition: int, then: Callable[[], Sequence[int]],
        otherwise: Callable[[], Sequence[int]],
    ) -> list[int]:  # fmt: skip
        mark = len(self.graph)
        first, second = then(), otherwise()
        region, captured = close(self.graph, [], [*first, *second], capture=lambda i: i < mark)
        made = self.graph.add(choice_op(region, len(first)), condition, *captured)
        return [pick(self.graph, made, j, self.graph.type(i)) for j, i in enumerate(first)]


def lowered(p: Program, roots: Sequence[int], target: Target) -> KernelIR:
    verify_graph(p.graph, roots)
    k = map_program(Computation("f", p.graph, (Output("out", tuple(roots)),)), target)
    verify(k)
    return k


def agrees(p: Program, roots: Sequence[int]) -> list[KernelIR]:
    """The kernels of a program for each target, which compute what it means."""
    points = np.stack([X, np.arange(8) % 6.0], 1)
    want = evaluate_graph(p.graph, roots, {p.x: points[:, 0], p.n: points[:, 1]})
    kernels = [lowered(p, roots, target) for target in TARGETS]
    for k in kernels:
        out = np.full((8, len(roots)), 99.0)
        execute(k, {"x": points, "out": out}, 8)
        np.testing.assert_array_equal(out.T, want)
    return kernels


def copies(k: KernelIR) -> int:
    """How often an array is copied: a loop that loads and stores, and no more."""
    return sum(
        isinstance(item, For) and [type(i).__name__ for i in item.scope.items] == ["Load", "Store"]
        for _, item in k.items()
    )  # fmt: skip


def own(k: KernelIR) -> list[str]:
    return [b.name for b in k.buffers if b.space == "own"]


def test_straight_lines() -> None:
    p = Program()
    agrees(p, [p.graph.add(ops.sin, p.x), p.graph.constant(2.5), p.x])


def test_carries_that_trade_places_and_a_value_from_before() -> None:
    p = Program()
    g = p.graph
    before = g.add(ops.exp, p.x)
    a, b, iterations = p.loop(
        p.word(0), p.iterations(), [p.x, before], lambda k, a, b: [g.add(ops.mul, b, p.x), a],
        names=["a", "b"],
    )  # fmt: skip
    kernels = agrees(p, [a, b, before, g.add(ops.word_float, iterations)])
    for k in kernels:
        (loop,) = (item for _, item in k.items() if isinstance(item, For))
        assert [k.names[i] for i in (loop.k, *loop.params)] == ["k", "a", "b"]
        assert [k.names[i] for i in loop.results] == ["a", "b"]
        assert "x" in k.names.values()


@pytest.mark.parametrize("down", [False, True])
def test_nested_loops_whose_bounds_are_counters(down: bool) -> None:
    p = Program()
    g = p.graph

    def outer(i: int, s: int) -> list[int]:
        inner = p.loop(
            p.word(0), i, [p.x],
            lambda j, t: [g.add(ops.add, g.add(ops.mul, t, s), g.add(ops.word_float, j))],
            down=down, most=5,
        )  # fmt: skip
        return [g.add(ops.mul, inner[0], g.constant(0.5))]

    first, _ = p.loop(p.word(0), p.iterations(), [p.x], outer, most=6, down=down)
    agrees(p, [first])


def test_no_more_turns_than_there_may_be() -> None:
    p = Program()
    y, _ = p.loop(
        p.word(1), p.iterations(), [p.x], lambda k, y: [p.graph.add(ops.add, y, p.x)], most=4
    )
    agrees(p, [y])
    many = p.loop(
        p.word(0), p.iterations(), [p.x], lambda k, y: [p.graph.add(ops.add, y, p.x)], most=2
    )
    k = lowered(p, [many[0]], SimdTarget(4))
    out = np.zeros((8, 1))
    execute(k, {"x": np.stack([X, np.full(8, 5.0)], 1), "out": out}, 8)
    np.testing.assert_array_equal(out[:, 0], 3 * X)


@pytest.mark.parametrize("first", [0, 2**32 - 3])
def test_bounds_that_are_read_end_a_loop_that_would_be_too_long(first: int) -> None:
    p = Program()
    lo = p.graph.add(ops.word_add, p.iterations(), p.word(first))
    y, iterations = p.loop(
        lo, p.word(4), [p.x], lambda k, y: [p.graph.add(ops.add, y, p.x)], most=2
    )
    k = lowered(p, [y, p.graph.add(ops.word_float, iterations)], SimdTarget(4))
    out = np.zeros((8, 2))
    execute(k, {"x": np.stack([X, np.arange(8.0)], 1), "out": out}, 8)
    taken = [min(2, max(0, 4 - (n + first) % 2**32)) for n in range(8)]
    np.testing.assert_array_equal(out[:, 1], taken)
    np.testing.assert_allclose(out[:, 0], X * (1 + out[:, 1]))


def test_a_loop_with_a_test() -> None:
    p = Program()
    g = p.graph
    y, iterations = p.loop(
        p.word(0), p.word(9), [p.x], lambda k, y: [g.add(ops.mul, y, g.constant(2.0))],
        test=lambda k, y: g.add(ops.lt, g.add(ops.mul, y, y), p.n),
    )  # fmt: skip
    agrees(p, [y, g.add(ops.word_float, iterations)])


def test_a_test_that_writes_to_an_array_leaves_it_as_it_was() -> None:
    p = Program()
    g = p.graph

    def test(k: int, a: int) -> int:
        return g.add(ops.lt, p.get(p.put(a, p.word(0), p.x), p.word(1)), p.n)

    def body(k: int, a: int) -> list[int]:
        return [p.put(a, p.word(1), g.add(ops.add, p.get(a, p.word(1)), g.constant(1.0)))]

    a, _ = p.loop(p.word(0), p.word(9), [p.fresh(ZEROS, 2)], body, test=test)
    assert [copies(k) for k in agrees(p, p.all_of(a))] == [1, 1]


def test_only_the_side_that_holds_is_computed() -> None:
    p = Program()
    g = p.graph
    positive = g.add(ops.lt, g.constant(0.0), p.x)
    (y,) = p.cond(positive, lambda: [g.add(ops.log, p.x)], lambda: [g.add(ops.mul, p.x, p.x)])
    for k in agrees(p, [y]):
        choice = next(item for _, item in k.items() if isinstance(item, If))
        assert [len(side.items) for side in choice.sides] == [1, 1]


# arrays -------------------------------------------------------------------------------------------


def test_an_array_is_written_in_place() -> None:
    p = Program()
    a = p.put(p.put(p.fresh(ZEROS, 3), p.word(0), p.x), p.word(2), p.n)
    a = p.graph.add(ADD_AT, a, p.word(2), p.x)
    for k in agrees(p, p.all_of(a)):
        assert own(k) == ["array_0"]
        assert copies(k) == 0


def test_an_array_of_words() -> None:
    p = Program()
    a = p.graph.add(PUT_W, p.fresh(EMPTY_W, 2), p.word(1), p.iterations())
    read = p.graph.add(GET_W, a, p.word(1))
    for k in agrees(p, [p.graph.add(ops.word_float, read)]):
        assert [b.kind for b in k.buffers] == ["f", "f", "u"]


def test_equal_arrays_of_zeros_are_two() -> None:
    p = Program()
    zeros = p.fresh(ZEROS, 2)
    one, other = p.put(zeros, p.word(0), p.x), p.put(zeros, p.word(1), p.n)
    agrees(p, [*p.all_of(one), *p.all_of(other), p.get(zeros, p.word(1))])


def test_a_version_is_read_before_it_is_overwritten() -> None:
    p = Program()
    first = p.put(p.fresh(ZEROS, 2), p.word(0), p.x)
    second = p.put(first, p.word(0), p.n)
    late = p.get(first, p.word(0))  # a node behind the writer, which needs nothing of it
    assert [copies(k) for k in agrees(p, [*p.all_of(second), late])] == [0, 0]


def test_a_reader_that_needs_what_the_writer_gives_makes_it_copy() -> None:
    p = Program()
    first = p.put(p.fresh(ZEROS, 2), p.word(0), p.x)
    second = p.put(first, p.word(0), p.n)
    index = p.graph.add(ops.nearest_word, p.get(second, p.word(1)))
    assert [copies(k) for k in agrees(p, [p.get(first, index), *p.all_of(second)])] == [1, 1]


def test_of_two_writers_one_has_a_copy() -> None:
    p = Program()
    first = p.put(p.fresh(ZEROS, 2), p.word(0), p.x)
    squares = [p.graph.add(ops.mul, value, value) for value in (p.x, p.n)]
    one, other = (p.put(first, p.word(1), value) for value in squares)
    roots = [*p.all_of(one), *p.all_of(other)]
    assert [copies(k) for k in agrees(p, roots)] == [1, 1]
    assert [copies(k) for k in agrees(p, [*roots, *p.all_of(first)])] == [1, 1]


def test_an_array_that_a_loop_carries_stays_where_it_is() -> None:
    p = Program()
    g = p.graph

    def body(k: int, a: int, s: int) -> list[int]:
        old = p.get(a, k)
        return [p.put(a, k, g.add(ops.add, old, s)), g.add(ops.add, s, old)]

    start = p.put(p.fresh(ZEROS, 6), p.word(2), p.x)
    a, s, _ = p.loop(p.word(0), p.iterations(), [start, p.n], body, most=6, names=["kept", "s"])
    for k in agrees(p, [*p.all_of(a), s]):
        assert copies(k) == 0
        assert own(k) == ["array_0"]
    fresh, _, _ = p.loop(
        p.word(0), p.iterations(), [p.fresh(EMPTY, 6), p.n], body, names=["kept", "s"]
    )
    assert own(lowered(p, [p.get(fresh, p.word(0))], SimdTarget(4))) == ["kept_0"]


def test_an_array_from_before_a_loop_is_still_there() -> None:
    p = Program()
    start = p.put(p.fresh(ZEROS, 3), p.word(2), p.x)
    a, _ = p.loop(p.word(0), p.word(3), [start], lambda k, a: [p.put(a, k, p.n)])
    late = p.graph.add(ops.nearest_word, p.get(a, p.word(0)))
    for k in agrees(p, [*p.all_of(a), p.get(start, late)]):
        assert copies(k) == 1


def test_arrays_that_trade_places() -> None:
    p = Program()
    a, b = (p.put(p.fresh(ZEROS, 2), p.word(0), v) for v in (p.x, p.n))
    a, b, _ = p.loop(
        p.word(0), p.iterations(), [a, b], lambda k, a, b: [p.put(b, p.word(1), p.n), a]
    )
    agrees(p, [*p.all_of(a), *p.all_of(b)])


def test_two_carries_that_begin_as_one_array() -> None:
    p = Program()
    start = p.put(p.fresh(ZEROS, 2), p.word(0), p.x)
    a, b, _ = p.loop(
        p.word(0), p.word(2), [start, start], lambda k, a, b: [p.put(a, k, p.n), p.put(b, k, p.x)]
    )
    agrees(p, [*p.all_of(a), *p.all_of(b)])


def test_a_loop_that_reads_the_array_with_which_a_carry_begins() -> None:
    p = Program()
    start = p.put(p.fresh(ZEROS, 2), p.word(0), p.x)

    def body(k: int, a: int) -> list[int]:
        return [p.put(a, k, p.graph.add(ops.add, p.get(start, p.word(0)), p.n))]

    a, _ = p.loop(p.word(0), p.word(2), [start], body)
    agrees(p, p.all_of(a))


def test_an_array_from_outside_that_each_turn_writes_to_anew() -> None:
    p = Program()
    start = p.put(p.fresh(ZEROS, 2), p.word(0), p.x)

    def body(k: int, s: int) -> list[int]:
        changed = p.put(start, p.word(0), p.graph.add(ops.add, p.get(start, p.word(0)), s))
        return [p.graph.add(ops.add, s, p.get(changed, p.word(0)))]

    s, _ = p.loop(p.word(0), p.word(3), [p.n], body)
    assert [copies(k) for k in agrees(p, [s, *p.all_of(start)])] == [1, 1]


def test_a_carry_that_is_an_array_made_anew_in_each_turn() -> None:
    p = Program()
    g = p.graph

    def body(k: int, a: int) -> list[int]:
        return [p.put(p.fresh(ZEROS, 2), p.word(1), g.add(ops.add, p.get(a, p.word(1)), p.x))]

    a, _ = p.loop(p.word(0), p.iterations(), [p.fresh(ZEROS, 2)], body)
    agrees(p, p.all_of(a))


def test_a_loop_that_yields_an_array_before_and_after_a_write() -> None:
    p = Program()
    start = p.put(p.fresh(ZEROS, 2), p.word(0), p.x)
    a, b, _ = p.loop(
        p.word(0), p.word(2), [start, p.fresh(ZEROS, 2)], lambda k, a, b: [p.put(a, k, p.n), a]
    )
    agrees(p, [*p.all_of(a), *p.all_of(b)])


def test_nested_loops_over_one_array() -> None:
    p = Program()
    g = p.graph

    def outer(i: int, a: int) -> list[int]:
        def inner(j: int, b: int) -> list[int]:
            at = g.add(ops.word_add, g.add(ops.word_mul, i, p.word(3)), j)
            return [g.add(ADD_AT, b, at, g.add(ops.add, p.x, p.get(b, j)))]

        return [p.loop(p.word(0), p.word(3), [a], inner)[0]]

    a, _ = p.loop(p.word(0), p.word(2), [p.put(p.fresh(ZEROS, 6), p.word(1), p.n)], outer)
    assert [copies(k) for k in agrees(p, p.all_of(a))] == [0, 0]


def test_a_choice_writes_in_place_what_both_sides_make_of_one_array() -> None:
    p = Program()
    start = p.put(p.fresh(ZEROS, 2), p.word(0), p.x)
    positive = p.graph.add(ops.lt, p.graph.constant(0.0), p.x)
    a, s = p.cond(
        positive,
        lambda: [p.put(start, p.word(1), p.n), p.get(start, p.word(0))],
        lambda: [start, p.n],
    )
    for k in agrees(p, [*p.all_of(a), s]):
        assert copies(k) == 0
        assert len(own(k)) == 1


def test_a_choice_between_two_arrays() -> None:
    p = Program()
    one, other = (p.put(p.fresh(ZEROS, 2), p.word(0), v) for v in (p.x, p.n))
    positive = p.graph.add(ops.lt, p.graph.constant(0.0), p.x)
    a, b = p.cond(positive, lambda: [p.put(one, p.word(1), p.n), other], lambda: [other, one])
    agrees(p, [*p.all_of(a), *p.all_of(b), *p.all_of(one), *p.all_of(other)])


def test_a_choice_and_the_array_as_it_was() -> None:
    p = Program()
    start = p.put(p.fresh(ZEROS, 2), p.word(0), p.x)
    positive = p.graph.add(ops.lt, p.graph.constant(0.0), p.x)
    (a,) = p.cond(positive, lambda: [p.put(start, p.word(0), p.n)], lambda: [start])
    late = p.graph.add(ops.nearest_word, p.graph.add(ops.abs, p.get(a, p.word(0))))
    assert [copies(k) for k in agrees(p, [p.get(start, late), *p.all_of(a)])] == [1, 1]


def test_a_choice_in_a_loop_over_an_array() -> None:
    p = Program()
    g = p.graph

    def body(k: int, a: int) -> list[int]:
        def then() -> list[int]:
            return [p.put(a, k, g.add(ops.exp, p.x))]

        return p.cond(g.add(ops.lt, p.get(a, k), p.x), then, lambda: [a])

    a, _ = p.loop(p.word(0), p.word(4), [p.put(p.fresh(ZEROS, 4), p.word(2), p.n)], body)
    assert [copies(k) for k in agrees(p, p.all_of(a))] == [0, 0]


# indices ------------------------------------------------------------------------------------------


def test_past_the_end_is_the_last_element() -> None:
    p = Program()
    a = p.put(p.put(p.fresh(ZEROS, 3), p.word(2), p.x), p.iterations(), p.n)
    agrees(p, [*p.all_of(a), p.get(a, p.iterations())])


def test_indices_that_are_known_to_be_within_are_taken_as_they_are() -> None:
    p = Program()
    g = p.graph

    def body(k: int, a: int) -> list[int]:
        return [p.put(a, g.add(ops.word_sub, k, p.iterations()), p.x)]

    end = g.add(ops.word_add, p.iterations(), p.word(3))
    a, _ = p.loop(p.iterations(), end, [p.fresh(ZEROS, 3)], body, most=3)
    for k in agrees(p, p.all_of(a)):
        loop = next(i for _, i in k.items() if isinstance(i, For))
        names = [k.graph.nodes[i][0].name for i in loop.scope.items if isinstance(i, int)]
        assert names == ["word_sub"]


# lines --------------------------------------------------------------------------------------------


def test_lines_of_nodes_are_kept_in_regions_too() -> None:
    p = Program()
    g = p.graph
    g.sources.extend(Place("f.py", n, f"line {n}") for n in (1, 2))
    g.place = 1
    y = g.add(ops.exp, p.x)

    def body(k: int, c: int) -> list[int]:
        g.place = 2
        found = [g.add(ops.log, g.add(ops.mul, c, y))]
        g.place = 1
        return found

    (z, _) = p.loop(p.word(0), p.word(2), [p.x], body)
    k = lowered(p, [z], SimdTarget(4))
    (loop,) = (item for _, item in k.items() if isinstance(item, For))
    assert {str(k.graph.place_of(i)) for i in (loop.k, *loop.params, *loop.results)} == {
        'f.py:1: "line 1"'
    }
    lines = {node[0].name: k.graph.place_of(i) for i, node in enumerate(k.graph.nodes)}
    assert str(lines["exp"]) == 'f.py:1: "line 1"'
    assert str(lines["log"]) == str(lines["mul"]) == 'f.py:2: "line 2"'


def test_a_long_chain_of_versions_takes_linear_time() -> None:
    p = Program()
    a, read = p.fresh(ZEROS, 4), []
    for n in range(1000):
        a = p.put(a, p.word(n % 4), p.graph.add(ops.add, p.x, p.graph.constant(float(n))))
        read.append(p.get(a, p.word(1)))
    total = read[0]
    for value in read[1:]:
        total = p.graph.add(ops.add, total, value)
    k = lowered(p, [total], SimdTarget(4))
    assert copies(k) == 0
