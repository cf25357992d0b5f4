"""Array programs that are written by hand: what they compute, and their text."""

from __future__ import annotations

import numpy as np

from symgrad.arrays.interpret import interpret
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import ArrayProgram, Input, Scan, Scatter, Tabulate, listing
from symgrad.arrays.scalars import Scalars, is_negative
from symgrad.expr import ops

RNG = np.random.default_rng(1)


def squares_of_tanh(shape: tuple[int, int] = (4, 3)) -> ArrayProgram:
    """``sum(tanh(A)**2)``."""
    s = Scalars()
    a = Input(shape=shape, number=0)
    i, j = map(s.counter, shape)
    t = s.graph.add(ops.tanh, s.read(a, [i, j]))
    t = Tabulate(shape=shape, counters=(i, j), body=s.graph.add(ops.mul, t, t))
    k, m = map(s.counter, shape)
    total = s.reduction("add", [k, m], s.read(t, [k, m]))
    return ArrayProgram(s, (a,), (Tabulate(shape=(), counters=(), body=total),))


def matrix_vector(shape: tuple[int, int] = (4, 3)) -> ArrayProgram:
    """``A @ x``."""
    s = Scalars()
    a, x = Input(shape=shape, number=0), Input(shape=shape[1:], number=1)
    i, k = map(s.counter, shape)
    body = s.graph.add(ops.mul, s.read(a, [i, k]), s.read(x, [k]))
    product = Tabulate(shape=shape[:1], counters=(i,), body=s.reduction("add", [k], body))
    return ArrayProgram(s, (a, x), (product,))


def concatenated(n: int = 3, m: int = 4) -> ArrayProgram:
    """``concatenate([a, b[::-1]])``."""
    s = Scalars()
    a, b = Input(shape=(n,), number=0), Input(shape=(m,), number=1)
    i = s.counter(n + m)
    first = s.graph.add(is_negative, s.plus(i, offset=-n))
    other = s.read(b, [s.plus((-1, i), offset=n + m - 1)])
    body = s.graph.add(ops.where, first, s.read(a, [i]), other)
    return ArrayProgram(s, (a, b), (Tabulate(shape=(n + m,), counters=(i,), body=body),))


def test_a_sum_of_squares() -> None:
    a = RNG.normal(size=(4, 3))
    [total] = interpret(squares_of_tanh(), [a])
    assert np.allclose(total, np.sum(np.tanh(a) ** 2), rtol=1e-14)
    assert listing(squares_of_tanh()) == (
        "x0 = input [4, 3]\n"
        "a1 = for i < 4, j < 3 { tanh(x0[i, j]) * tanh(x0[i, j]) }\n"
        "a2 = { reduce i < 4, j < 3; add { a1[i, j] } }\n"
        "return a2"
    )


def test_a_product_with_a_vector() -> None:
    a, x = RNG.normal(size=(4, 3)), RNG.normal(size=3)
    [product] = interpret(matrix_vector(), [a, x])
    assert np.allclose(product, a @ x, rtol=1e-14)
    assert "reduce j < 3; add { x0[i, j] * x1[j] }" in listing(matrix_vector())


def test_what_is_read_under_a_condition_that_is_false_does_not_matter() -> None:
    a, b = RNG.normal(size=3), RNG.normal(size=4)
    [joined] = interpret(concatenated(), [a, b])
    assert np.array_equal(joined, np.concatenate([a, b[::-1]]))
    assert "where(i - 3 < 0, x0[i], x1[-1*i + 6])" in listing(concatenated())


def test_integers_have_one_form() -> None:
    s = Scalars()
    i, j = s.counter(5), s.counter(3)
    flat = s.plus((3, i), j)
    assert s.plus((3, i), (1, j)) == flat == s.plus(flat, (2, j), (-2, j))
    assert s.plus(flat, (-3, i)) == j
    assert s.integer(s.plus(flat, (-1, flat), offset=7)) == 7
    assert s.plus(s.counter(1), offset=2) == s.number(2)


def test_conditions_on_one_integer_that_cover_all_of_its_values_hold() -> None:
    b = Builder()
    part, _ = b.divide(b.counter(36 * 64), 64)
    first, last = b.below(part, b.number(12)), b.below(b.number(23), part)
    for end, holds in ((24, True), (23, None)):
        middle = b.both(b.below(b.number(11), part), b.below(part, b.number(end)))
        assert b.truth_of(b.either(b.either(last, middle), first)) is holds
    other = b.below(b.counter(50), b.number(30))
    assert b.truth_of(b.either(other, first)) is None


def test_a_scatter_adds_where_indices_repeat_and_drops_what_is_outside() -> None:
    s = Scalars()
    x, at = Input(shape=(5,), number=0), Input(shape=(5,), number=1, kind="i")
    i = s.counter(5)
    sums = Scatter(shape=(3,), counters=(i,), index=(s.read(at, [i]),), body=s.read(x, [i]))
    [values] = interpret(
        ArrayProgram(s, (x, at), (sums,)), [[1.0, 2.0, 3.0, 4.0, 5.0], [0, 2, 0, 3, 2]]
    )
    assert values.tolist() == [4.0, 0.0, 7.0]


def test_scans_run_both_ways() -> None:
    s = Scalars()
    x = Input(shape=(2, 4), number=0)
    i, j = s.counter(2), s.counter(4)
    scans = tuple(
        Scan(shape=(2, 4), counters=(i, j), body=s.read(x, [i, j]), axis=1, reverse=r)
        for r in (False, True)
    )
    a = RNG.normal(size=(2, 4))
    up, down = interpret(ArrayProgram(s, (x,), scans), [a])
    assert np.allclose(up, np.cumsum(a, 1))
    assert np.allclose(down, np.cumsum(a[:, ::-1], 1)[:, ::-1])


def test_reductions_of_tuples() -> None:
    s = Scalars()
    x = Input(shape=(6,), number=0)
    j = s.counter(6)
    element = s.read(x, [j])
    largest = s.reduction("argmax", [j], element, j)
    running = s.reduction("rescale", [j], element, s.graph.constant(1.0))
    outputs = tuple(
        Tabulate(shape=(), counters=(), body=s.pick(r, k), kind=s.graph.type(s.pick(r, k)))
        for r, k in ((largest, 0), (largest, 1), (running, 0), (running, 1))
    )
    a = np.array([0.5, 3.0, -1.0, 3.0, 2.0, 0.0])
    top, position, m, total = interpret(ArrayProgram(s, (x,), outputs), [a])
    assert (top, position, m) == (3.0, 1, 3.0)
    assert np.isclose(total, np.sum(np.exp(a - 3.0)), rtol=1e-14)
