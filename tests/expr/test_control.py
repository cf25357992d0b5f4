"""Loops and choices as users write them: what is traced, what they give, what goes wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import ForeignExpressionError, InputError, InputTypeError, TraceError
from symgrad.expr.graph.node import INPUT
from symgrad.expr.graph.region import Loop, regions
from symgrad.expr.graph.verify import verify
from symgrad.expr.loops.control import cond, fori_loop, scan, switch, while_loop
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.tree import Blocks
from symgrad.expr.tracing.trace import Trace, trace

POINTS = np.array([[0.5, -1.25, 2.0, 0.75, 3.5], [1.0, 0.25, -2.0, 1.5, 0.0]])


def values(f: Callable[..., Any], at: np.ndarray = POINTS) -> np.ndarray:
    """What the trace of a function gives at points (variables, points)."""
    made = trace(f, len(at))
    verify(made.graph, made.outputs)
    for body in regions(made.graph, made.outputs):
        verify(body.graph, body.yields)
    return np.array(
        evaluate_graph(made.graph, made.outputs, dict(zip(made.inputs, at, strict=True)))
    )


def agree(f: Callable[..., Any], at: np.ndarray = POINTS) -> None:
    """The trace gives what the function itself gives of numbers."""
    want = [np.ravel(f(point)).astype(float) for point in at.T]
    np.testing.assert_allclose(values(f, at).T, want, rtol=1e-13, atol=1e-300)


def loops(made: Trace) -> list[Loop]:
    return [node[0] for node in made.graph.nodes if isinstance(node[0], Loop)]


def test_the_body_is_traced_once() -> None:
    calls: list[Any] = []

    def f(v: Any) -> Any:
        return fori_loop(0, 1000, lambda k, y: calls.append(k) or y * v[0] + k, v[1])

    made = trace(f, 2)
    assert len(calls) == 1
    assert len(made.graph) < 20
    assert loops(made)[0].most == 1000


def test_numbers_alone_are_python() -> None:
    assert fori_loop(-2, 3, lambda k, y: y + k, 1) == 1
    assert while_loop(lambda y: y < 10, lambda y: y * 3, 1) == 27
    assert cond(True, lambda x: 1 / x, lambda _: 5, 2) == 0.5


@pytest.mark.parametrize(("lo", "hi"), [(0, 4), (2, 5), (-3, 2), (3, 3), (5, 2), (0, 1)])
def test_bounds_that_are_numbers(lo: int, hi: int) -> None:
    agree(lambda v: fori_loop(lo, hi, lambda k, y: y * v[0] + 2 * k - 1, v[1]))


def test_bounds_that_are_expressions() -> None:
    """The iterations are those with k < hi, from any lo; NaN takes none."""

    def f(v: Any) -> Any:
        return fori_loop(v[0], v[1], lambda k, y: y * 2 + k, 1.0)

    def iterations(lo: float, hi: float) -> float:
        y, k = 1.0, lo
        while k < hi:
            y, k = y * 2 + k, k + 1
        return y

    bounds = [(0, 3), (-2.5, 1.5), (2, 2), (3, 1), (1, 3.5), (0, math.nan), (0.0, -math.inf)]
    got = values(f, np.array(bounds).T)[0]
    np.testing.assert_array_equal(got, [iterations(*b) for b in bounds])


def test_a_counter_is_an_exact_bound_of_a_loop_within() -> None:
    """How many iterations it takes is seen, and no float is turned into a word."""

    def f(v: Any) -> Any:
        def outer(i: Any, y: Any) -> Any:
            return fori_loop(i, 2 * i + 1, lambda j, s: s * 0.5 + j * i, y * v[0])

        return fori_loop(0, 4, outer, v[1])

    agree(f)
    made = trace(f, 2)
    body = next(regions(made.graph, made.outputs))
    assert [n[0].most for n in body.graph.nodes if isinstance(n[0], Loop)] == [7]
    assert "nearest_word" not in {node[0].name for node in body.graph.nodes}


@pytest.mark.parametrize(
    ("iterations", "most", "seen"),
    [
        (lambda v: sg.minimum(v[0], 3), None, 3),
        (lambda v: sg.floor(sg.minimum(5, sg.minimum(v[0], 3))), None, 3),
        (lambda v: sg.minimum(v[0], 2.5), None, 3),
        (lambda v: 5 - sg.maximum(v[0], 2), None, 3),
        (lambda v: -sg.maximum(v[0], 0) * 2 + 3, None, 3),
        (lambda v: sg.where(v[0] > 2, 3, v[0] * 0.0), None, None),
        (lambda v: sg.where(v[0] > 2, 3, 1), None, 3),
        (lambda v: sg.minimum(v[0], 3), 7, 3),
        (lambda v: v[0], 4, 4),
        (lambda v: v[0], None, None),
    ],
)
def test_how_many_turns_a_loop_takes_is_seen(iterations: Any, most: Any, seen: Any) -> None:
    """That limits its counter too, and so the iterations of a loop within."""

    def f(v: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return fori_loop(0, i + 1, lambda j, s: s + j * y, y)

        return fori_loop(0, iterations(v), body, v[1], most)

    made = trace(f, 2)
    bodies = list(regions(made.graph, made.outputs))
    inner = [node[0].most for node in bodies[0].graph.nodes if isinstance(node[0], Loop)]
    assert (loops(made)[0].most, inner) == (seen, [seen])
    at = np.array([[0.0, 1, 2, 2.5, 3, 6], [0.25] * 6])
    want = [
        _nested(iterations(point)) if iterations(point) <= (most or 9) else math.nan
        for point in at.T
    ]
    np.testing.assert_allclose(values(f, at)[0], want)


@pytest.mark.parametrize(
    ("lo", "hi", "iterations", "most"),
    [(0, 6, lambda i: 5 - i, 5), (-2, 3, lambda i: i + 1, 3), (1, 4, lambda i: 2 - i * i, 1)],
)
def test_turns_of_a_loop_within_that_counts_down(
    lo: int, hi: int, iterations: Any, most: int
) -> None:
    def f(v: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return fori_loop(0, iterations(i), lambda j, s: s * 0.5 + j + i, y)

        return fori_loop(lo, hi, body, v[1])

    agree(f)
    made = trace(f, 2)
    body = next(regions(made.graph, made.outputs))
    assert [n[0].most for n in body.graph.nodes if isinstance(n[0], Loop)] == [most]


@pytest.mark.parametrize(
    ("iterations", "most"),
    [
        (lambda i: i // 2, 2), (lambda i: (i + 1) // 2 + 1, 4), (lambda i: i % 3, 2),
        (lambda i: (7 - i) % 4 * 2, 6), (lambda i: sg.floor(i / 2), 3), (lambda i: sg.sqrt(i), 3),
        (lambda i: abs(i - 3), 3), (lambda i: 9 - i, 9), (lambda i: sg.round(i * 0.5), 5),
        (lambda i: sg.clip(i - 2, 0, 4), 3), (lambda i: (i - 3) // 2 + 2, 3),
    ],
)  # fmt: skip
def test_bounds_made_of_counters_are_seen(iterations: Any, most: int | None) -> None:
    """A quotient or a remainder of what is not below 0 is that of integers, exactly."""

    def f(v: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            hi = iterations(i) if isinstance(i, sg.Expr) else math.ceil(iterations(i))
            return fori_loop(0, hi, lambda j, s: s * 0.5 + j + i, y)

        return fori_loop(0, 6, body, v[1])

    agree(f)
    made = trace(f, 2)
    body = next(regions(made.graph, made.outputs))
    assert [n[0].most for n in body.graph.nodes if isinstance(n[0], Loop)] == [most]


def test_indices_made_of_counters_are_words() -> None:
    """They are in range, which is seen, and no float is turned into a word."""

    def body(k: Any, a: Any) -> Any:
        return a.at[k].set(a[k - 1] + a[k // 2] + a[k % 4] + a[6 - k] + a[(2 * k + 1) // 3])

    made = trace(lambda v: fori_loop(1, 7, body, sg.array([v[0], *[1.0] * 6]))[6], 1)
    (region,) = regions(made.graph, made.outputs)
    names = {node[0].name for node in region.graph.nodes}
    assert names & {"nearest_word", "where", "word_min", "floor", "remainder"} == set()
    assert {"word_sub", "word_div"} <= names


def _nested(iterations: float) -> float:
    y = 0.25
    for i in range(math.ceil(iterations)):
        y += sum(j * y for j in range(i + 1))
    return y


def test_more_turns_than_said_give_nan() -> None:
    def f(v: Any) -> Any:
        return fori_loop(0, v[0], lambda k, y: y + 1, 0.0, max_steps=3)

    got = values(f, np.array([[0.0, 2, 3, 3.5, 1e9, math.inf]]))[0]
    np.testing.assert_array_equal(got, [0, 2, 3, math.nan, math.nan, math.nan])
    bounds = np.array([[0.0, 1.0]])
    none = values(lambda v: fori_loop(0, v[0], lambda k, y: y + 1, 0.0, max_steps=0), bounds)
    np.testing.assert_array_equal(none, [[0, math.nan]])
    got = values(
        lambda v: while_loop(lambda y: y < 10, lambda y: y * 2, v[0], max_steps=2),
        np.array([[1.0, 3.0, 12.0, 6.0]]),
    )[0]
    np.testing.assert_array_equal(got, [math.nan, 12, 12, 12])


@pytest.mark.parametrize("init", [
    lambda v: (v[0], 1.0), lambda v: [v[0], v[1]], lambda v: {"b": v[0], "a": (v[1], 2)},
    lambda v: np.array([1.0, 2.0]), lambda v: sg.array([[v[0], 1.0], [2.0, v[1]]]),
    lambda v: v, lambda v: np.float64(2.0), lambda v: {"one": np.zeros((2, 1)), "two": v[0]},
])  # fmt: skip
def test_carries_are_nests(init: Callable[[Any], Any]) -> None:
    """The body gets and returns what the first carry is, with expressions for its numbers."""

    def grown(value: Any, k: Any) -> Any:
        if isinstance(value, dict):
            return {name: grown(part, k) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(grown(part, k) for part in value)
        return value * 0.5 + k

    def numbers(value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [x for part in value.values() for x in numbers(part)]
        if isinstance(value, (list, tuple)):
            return [x for part in value for x in numbers(part)]
        return list(np.ravel(value))

    def f(v: Any) -> Any:
        def body(k: Any, carry: Any) -> Any:
            return grown(carry, k)

        return np.array(numbers(fori_loop(0, 3, body, init(v))), dtype=object)

    agree(f)


def test_dataclasses_and_named_parameters_are_carried() -> None:
    @dataclass
    class Particle:
        x: Any
        v: Any

    def f(v: Any) -> Any:
        def body(_: Any, p: Particle) -> Particle:
            return Particle(p.x + 0.5 * p.v, p.v - 0.5 * p.x)

        end = fori_loop(0, 3, body, Particle(v[0], v[1]))
        return end.x + end.v

    agree(f)

    def g(p: Any) -> Any:
        return fori_loop(0, 2, lambda _, q: {"a": q.a * 2, "b": q.b + q.a}, p).b

    made = trace(lambda v: g(Blocks({"a": v[0], "b": v[1]})), 2)
    got = evaluate_graph(made.graph, made.outputs, dict(zip(made.inputs, POINTS, strict=True)))
    np.testing.assert_allclose(got[0], POINTS[1] + 3 * POINTS[0])


def test_conditions_are_carried() -> None:
    def f(v: Any) -> Any:
        def body(k: Any, carry: Any) -> Any:
            y, found = carry
            found = found | (y > 3.0)
            return sg.where(found, y, y + 1.0), found

        y, found = fori_loop(0, 5, body, (v[0], False))
        return sg.where(found, y, -y)

    got = values(f, np.array([[0.0, 1.5, -9.0]]))[0]
    np.testing.assert_array_equal(got, [4.0, 3.5, 4.0])


def test_a_while_loop_goes_on_for_each_point_alone() -> None:
    def f(v: Any) -> Any:
        start = (v[0] * 8 + 1, 0.0)
        y, steps = while_loop(lambda c: abs(c[0]) > 1.0, lambda c: (c[0] / 2, c[1] + 1), start)
        return np.array([y, steps], dtype=object)

    agree(f)


def test_a_scan_keeps_its_ys() -> None:
    def f(v: Any) -> Any:
        last, ys = scan(lambda h, x: (h * v[0] + x, {"h": h, "sum": h + x}), v[1], [1.0, v[0], 3.0])
        total = fori_loop(0, 3, lambda k, s: s + ys["h"][k] * ys["sum"][2 - k], 0.0)
        return last + 10 * total

    def want(a: float, h: float) -> float:
        hs, sums = [], []
        for x in (1.0, a, 3.0):
            hs.append(h)
            sums.append(h + x)
            h = h * a + x
        return h + 10 * sum(hs[k] * sums[2 - k] for k in range(3))

    np.testing.assert_allclose(values(f)[0], [want(*point) for point in POINTS.T], rtol=1e-13)


def test_only_the_side_that_is_taken_is_computed() -> None:
    agree(lambda v: cond(v[1] != 0.0, lambda a: a / v[1], lambda a: a * 2, v[0]))
    agree(lambda v: fori_loop(0, 3, lambda k, y: cond(y > k, lambda: y / 2, lambda: y + k), v[0]))


def test_a_choice_between_a_condition_and_a_number_is_a_number() -> None:
    agree(lambda v: cond(v[0] > 1.0, lambda: v[1] > 0.0, lambda: v[1]))
    agree(lambda v: cond(v[0] > 1.0, lambda: v[1], lambda: True))


def test_what_does_not_change_in_the_body_is_computed_before_the_loop() -> None:
    made = trace(lambda v: fori_loop(0, 9, lambda _, y: y * sg.exp(v[0]), v[1]), 2)
    (loop,) = loops(made)
    assert "exp" not in {node[0].name for node in loop.body.graph.nodes}
    assert loop.body.graph.names == ["_", "y", "c2"]


def test_names_are_those_of_the_user() -> None:
    def body(step: Any, state: Any) -> Any:
        return {"x": state["x"] + step, "v": (state["v"][0] * 2, state["v"][1])}

    made = trace(lambda v: fori_loop(0, 9, body, {"x": v[0], "v": (1.0, v[0])})["x"], 1)
    assert loops(made)[0].body.graph.names == ["step", "x", "v_0", "v_1"]


def test_equal_traces_with_loops_have_equal_keys() -> None:
    def f(v: Any) -> Any:
        return fori_loop(0, 3, lambda k, y: fori_loop(0, k, lambda j, z: z + j, y * v[0]), v[1])

    def g(v: Any) -> Any:
        return fori_loop(0, 3, lambda k, y: fori_loop(0, k, lambda j, z: z - j, y * v[0]), v[1])

    keys = [trace(f, 2).key, trace(f, 2).key, trace(g, 2).key]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0] is not None


def test_a_derivative_of_the_user_s_own_in_a_body_is_no_key() -> None:
    double = sg.custom_vjp(lambda x: 2 * x, lambda g, y, x: 2 * g)
    made = trace(lambda v: fori_loop(0, 3, lambda _, y: double(y), v[0]), 1)
    assert made.key is None


# --- misuse ---------------------------------------------------------------------------------------


def message(f: Callable[[Any], Any], error: type[Exception] = TraceError) -> str:
    """What is said of a function that is misused, in which the user's line is named."""
    with pytest.raises(error) as caught:
        trace(f, 2)
    assert __file__ in str(caught.value)
    return str(caught.value)


def test_an_if_on_a_carry() -> None:
    def body(k: Any, y: Any) -> Any:
        return y * 2 if y > 1 else y

    assert "return y * 2 if y > 1 else y" in message(lambda v: fori_loop(0, 3, body, v[0]))


def test_a_carry_of_another_kind() -> None:
    for init, after, what in [
        (lambda v: (v[0], v[1]), lambda y: y[0], "must be a list or a tuple of 2 parts"),
        (lambda v: (v[0], v[1]), lambda y: (*y, 1.0), "must be a list or a tuple of 2 parts"),
        (lambda v: {"a": v[0]}, lambda y: {"b": y["a"]}, "must be a dict with the keys 'a'"),
        (lambda v: v, lambda y: y[:1], r"has shape (1,): (2,) is needed"),
        (lambda v: v[0], lambda y: sg.array([y, y]), "has shape (2,): () is needed"),
        (lambda v: v[0], lambda y: None, "returns holds None (NoneType), which is not a number"),
        (lambda v: v[0], lambda y: "y", "which is not a number"),
        (lambda v: True, lambda y: 1.5, "is a number where it has to be a condition"),
    ]:
        said = message(lambda v, i=init, a=after: fori_loop(0, 3, lambda _, y: a(y), i(v)))
        assert what in said


def test_a_first_carry_that_is_no_number() -> None:
    assert "the first carry holds 'x'" in message(lambda v: fori_loop(0, 3, lambda k, y: v[0], "x"))


@pytest.mark.parametrize("bound", [2.5, "3", None, 1j])
def test_bounds_that_are_no_whole_numbers(bound: Any) -> None:
    with pytest.raises((InputError, TypeError), match=r"whole number|as a real number"):
        trace(lambda v: fori_loop(0, bound, lambda k, y: y, v[0]), 1)


@pytest.mark.parametrize("most", [-1, 2.5, True, "3"])
def test_a_number_of_turns_that_is_none(most: Any) -> None:
    with pytest.raises(InputError, match="max_steps is a whole number"):
        trace(lambda v: fori_loop(0, v[0], lambda k, y: y, v[0], max_steps=most), 1)


@pytest.mark.parametrize("most", [2**31, 2**40])
def test_more_turns_than_a_counter_has(most: int) -> None:
    with pytest.raises(InputError, match=r"fewer than 2\*\*31 iterations"):
        trace(lambda v: fori_loop(5, v[0], lambda k, y: y, v[0], max_steps=most), 1)


@pytest.mark.parametrize("hi", [10**12, -(2**31)])
def test_bounds_that_no_counter_reaches(hi: int) -> None:
    with pytest.raises(InputError, match=r"bounds are below 2\*\*31"):
        trace(lambda v: fori_loop(0, hi, lambda k, y: y, v[0]), 1)


def test_a_body_that_is_no_function() -> None:
    with pytest.raises(InputTypeError, match=r"is a function, not None\n  at .*fori_loop"):
        trace(lambda v: fori_loop(0, 3, None, v[0]), 1)  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_an_index_that_is_a_counter() -> None:
    given = np.array([1.0, 2.0, 3.0])
    said = message(lambda v: fori_loop(0, 3, lambda k, s: s + given[k], v[0]))
    assert "s + given[k]" in said
    assert "use sg.array(a)[k]" in said

    def steps(k: Any, s: Any) -> Any:
        for _ in range(k):
            s = s + 1
        return s

    assert "sg.fori_loop for a loop" in message(lambda v: fori_loop(0, 3, steps, v[0]))


def test_an_index_error_of_the_user_is_his() -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        trace(lambda v: v[5], 2)


def test_a_value_that_leaves_the_body_another_way() -> None:
    def f(v: Any) -> Any:
        kept: list[Any] = []
        fori_loop(0, 3, lambda k, y: kept.append(y * v[0]) or y, v[0])
        return kept[0] + 1.0

    said = message(f)
    assert "used outside of the loop" in said
    assert "kept.append(y * v[0])" in said


def test_a_value_that_leaves_a_loop_for_the_one_around_it() -> None:
    def f(v: Any) -> Any:
        def outer(i: Any, y: Any) -> Any:
            kept: list[Any] = []
            fori_loop(0, 3, lambda k, z: kept.append(z * i) or z, y)
            return kept[0]

        return fori_loop(0, 2, outer, v[0])

    assert "used outside of the loop" in message(f)


def test_an_expression_of_another_trace() -> None:
    other = sg.var("other")
    with pytest.raises(ForeignExpressionError, match="other"):
        trace(lambda v: fori_loop(0, 3, lambda k, y: y + other, v[0]), 1)


def test_the_sides_of_a_choice_give_the_same_kind() -> None:
    assert "must be a list or a tuple of 2 parts" in message(
        lambda v: cond(v[0] > 0, lambda: (v[0], v[1]), lambda: v[0])
    )


@pytest.mark.parametrize(
    ("f", "error", "said"),
    [
        (lambda v: scan(lambda c, x: (c, c), v[0], (np.ones(3), np.ones(4))), InputError,
         "scan: lengths 3 and 4 differ"),
        (lambda v: scan(lambda c, x: (c, c), v[0], np.ones(3), length=2), InputError,
         "scan: lengths 2 and 3 differ"),
        (lambda v: scan(lambda c, x: (c, c), v[0]), InputError, "nothing says how many"),
        (lambda v: scan(lambda c, x: (c, c), v[0], v[1]), InputError, "x1 is none"),
        (lambda v: scan(lambda c, x: c, v[0], v), TraceError, "the next carry and a y, not c"),
        (lambda v: switch(v[0], []), InputError, "at least one branch"),
        (lambda v: switch(v[0], [lambda: v[0], cast("Any", 3)]), InputTypeError, "not 3"),
        (lambda v: switch(v[0], [lambda: v[0], lambda: v[1], lambda: (v[0], 1.0)]), TraceError,
         "what branch 1 returns must be a list or a tuple of 2 parts"),
        (lambda v: cond(v > 1.0, lambda: v[0], lambda: v[1]), TraceError, "a condition is needed"),
        (lambda v: while_loop(lambda c: "x", lambda c: c, v[0]), TraceError, "not 'x'"),
    ],
)  # fmt: skip
def test_misuse_of_scans_and_choices(f: Any, error: type[Exception], said: str) -> None:
    assert said in message(f, error)


def test_lines_of_a_body_are_known_in_its_region() -> None:
    def body(k: Any, y: Any) -> Any:
        return y * y

    made = trace(lambda v: fori_loop(0, 3, body, v[0]), 1)
    region = loops(made)[0].body
    place = region.graph.place_of(region.yields[0])
    assert place is not None
    assert place.text == "return y * y"
    inputs = [i for i, node in enumerate(made.graph.nodes) if node[0] is INPUT]
    assert inputs == list(made.inputs)
