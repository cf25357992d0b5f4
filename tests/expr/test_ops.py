"""The op table: meaning against mpmath, derivatives against differences, conventions at edges."""

from __future__ import annotations

import math
from typing import Any, Final

import mpmath
import numpy as np
import pytest
from bounds import PARTS
from meaning import MEANING
from mpmath import mp, mpf
from strategies import EDGES, bits, types
from tables import row
from true_derivatives import (
    DIFFERENTIABLE,
    is_derived,
    smooth_points,
    true_derivative,
    variables_of,
)

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.node import LEAVES, Graph, Op
from symgrad.expr.tracers.expression import Expr

INF, NAN = math.inf, math.nan
ROWS: Final = [op for op in ops.TABLE.values() if op not in LEAVES]
BARE: Final = (
    ops.bits_float, ops.word_float, ops.signed_float, ops.wide_div, ops.ratio, ops.decay_between,
    ops.root, ops.saturate, ops.modulus, ops.far_modulus, ops.quarters,
    ops.angle, ops.far_quarters, ops.far_angle, ops.far_sin, ops.far_cos, ops.far_tan,
    ops.sin_turns, ops.cos_turns,
    ops.sine, ops.cosine, ops.tangent, ops.scalb, ops.power_of_two,
    ops.exponent, ops.significand, ops.upper, ops.first_digits, ops.uint32_float, ops.int32_float,
)  # fmt: skip
"""Rows without a derivative: the library's own functions are made of them, nothing else is."""


SMOOTH: Final = [op for op in DIFFERENTIABLE if smooth_points(op)]


def close(found: float, true: Any, tolerance: float, unit: float = 0.0) -> bool:
    """Whether a double is the true value to a relative tolerance; the same if it is no number.

    The tolerance is relative to ``unit`` where that is larger than the value.
    """
    if isinstance(true, mpmath.mpc):
        return True  # the exponent of a negative base: see CONVENTIONS
    if not mp.isfinite(true):
        return bool(mp.isnan(true)) == math.isnan(found) and (math.isnan(found) or found == true)
    return abs(mpf(found) - true) <= tolerance * max(abs(true), unit) + mpf(10) ** -300


def applied(op: Op, point: tuple[float, ...]) -> tuple[Expr, list[Expr], dict[Expr, float]]:
    """The operation on variables for its float arguments, the variables, and their values."""
    graph = Graph()
    graph.tracing = False
    given: dict[Expr, float] = {}
    arguments: list[Any] = []
    for k, (kind, value) in enumerate(zip(types(op), point, strict=True)):
        if k in variables_of(op):
            arguments.append(Expr(graph, graph.input(f"x{k}")))
            given[arguments[-1]] = value
        else:
            arguments.append(value if kind == "f" else int(value))
    return op(*arguments), list(given), given


def test_every_row_has_a_meaning_and_points() -> None:
    assert [op.name for op in ROWS if op.name not in MEANING] == []
    assert [op.name for op in ROWS if not op.points or not op.meaning] == []
    assert [op.name for op in ROWS if any(len(p) != op.arity for p in op.points)] == []
    assert [name for name, op in ops.TABLE.items() if op.name != name] == []


def test_rows_with_an_edge_say_what_happens_there() -> None:
    assert [op.name for op in ROWS if op.domain and not op.edges] == []


def test_every_row_can_be_differentiated_or_is_piecewise_constant() -> None:
    without = [
        op for op in ROWS
        if op.result == "f" and not (op.partials or op.vjp or op.compose)
    ]  # fmt: skip
    assert set(without) == set(BARE)
    assert [op.name for op in ROWS if op.partials and op.vjp] == []


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_reference(op: Op) -> None:
    kinds = {"f": np.float64, "b": np.bool_, "i": np.int32, "u": np.uint32}
    for point in op.points:
        with row(point=point), mp.workdps(50):
            found = op.reference(*[kinds[k](v) for k, v in zip(types(op), point, strict=True)])
            true = MEANING[op.name](*map(mpf, point))
            unit = abs(float(PARTS[op][0](*point))) if op in PARTS else 0.0
            assert close(float(found), mpf(true), 2e-15, unit)


def test_examples_are_values() -> None:
    examples = {op: op.example for op in ROWS if op.example is not None}
    assert len(examples) > 20
    for op, example in examples.items():
        with row(op=op.name), mp.workdps(50):
            assert close(example, mpf(MEANING[op.name](*map(mpf, op.points[0]))), 1e-11)


def test_values_of_definitions_are_those_of_each_number() -> None:
    """Of arrays of any shape, in blocks, and in float32 rounded once."""
    a, b = np.linspace(0.1, 5.0, 70)[:, None], np.linspace(0.2, 9.0, 90)
    whole = sg.gammainc(a, b)
    assert whole.shape == (70, 90)
    for i, j in ((3, 7), (69, 89)):
        assert whole[i, j] == pytest.approx(sg.gammainc(a[i, 0], b[j]), rel=1e-15)
    single = ops.gammainc.reference(np.float32(a), np.float32(b))
    wide = ops.gammainc.reference(np.float64(np.float32(a)), np.float64(np.float32(b)))
    np.testing.assert_array_equal(single, np.float32(wide), strict=True)
    assert sg.gammainc(a[:0], b).shape == (0, 90)


def test_references_keep_float32() -> None:
    for op in ROWS:
        if op.result == "f" and set(types(op)) == {"f"}:
            for point in op.points:
                with row(op=op.name, point=point):
                    single = [np.full(3, v, np.float32) for v in point]
                    assert np.asarray(op.reference(*single)).dtype == np.float32


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_first_derivatives(op: Op) -> None:
    for point in smooth_points(op):
        with row(point=point):
            check_first_derivatives(op, point)


@pytest.mark.parametrize("op", SMOOTH, ids=lambda op: op.name)
def test_second_derivatives(op: Op) -> None:
    for point in smooth_points(op):
        with row(point=point):
            check_second_derivatives(op, point)


def check_first_derivatives(op: Op, point: tuple[float, ...]) -> None:
    y, variables, given = applied(op, point)
    for k, x in zip(variables_of(op), variables, strict=True):
        true = true_derivative(op, point, (k,))
        reverse = verbs.evaluate(verbs.grad(y, x), given)
        forward = verbs.evaluate(verbs.jvp(y, [x], [1.0]), given)
        assert close(reverse, true, 1e-14), (k, reverse, true)
        assert close(forward, true, 1e-14), (k, forward, true)


def check_second_derivatives(op: Op, point: tuple[float, ...]) -> None:
    y, variables, given = applied(op, point)
    for j, first in zip(variables_of(op), variables, strict=True):
        for k, second in zip(variables_of(op), variables, strict=True):
            if not is_derived(op, (j, k)):
                continue
            true = true_derivative(op, point, (j, k))
            slope = verbs.grad(y, first)
            reverse = verbs.evaluate(verbs.grad(slope, second), given)
            forward = verbs.evaluate(verbs.jvp(slope, [second], [1.0]), given)
            with mp.workdps(50):
                small = mpf(10) ** -12  # where the truth is 0 and both sides cancel
                assert close(reverse, true, 1e-12) or abs(true) + abs(reverse) < small, (j, k)
                assert close(forward, true, 1e-12) or abs(true) + abs(forward) < small, (j, k)


# the value and the derivatives by each float argument; None is not asked for
CONVENTIONS: Final[list[tuple[Op, tuple[float, ...], float | None, Any]]] = [
    (ops.abs, (0.0,), 0.0, (0.0,)),
    (ops.abs, (-0.0,), 0.0, (0.0,)),
    (ops.abs, (NAN,), NAN, (NAN,)),
    (ops.relu, (0.0,), 0.0, (0.0,)),
    (ops.relu, (NAN,), NAN, (NAN,)),
    (ops.relu, (INF,), INF, (1,)),
    (ops.sign, (0.0,), 0.0, (0.0,)),
    (ops.sign, (NAN,), NAN, (0.0,)),
    (ops.minimum, (2.0, 2.0), 2.0, (0.5, 0.5)),
    (ops.maximum, (2.0, 2.0), 2.0, (0.5, 0.5)),
    (ops.minimum, (INF, INF), INF, (0.5, 0.5)),
    (ops.maximum, (-INF, 1.0), 1.0, (0.0, 1.0)),
    (ops.minimum, (NAN, 1.0), NAN, (NAN, NAN)),
    (ops.maximum, (1.0, NAN), NAN, (NAN, NAN)),
    (ops.sqrt, (0.0,), 0.0, (INF,)),
    (ops.sqrt, (-1.0,), NAN, (NAN,)),
    (ops.sqrt, (INF,), INF, (0,)),
    (ops.cbrt, (0.0,), 0.0, (INF,)),
    (ops.cbrt, (-8.0,), -2.0, (1 / 12,)),
    (ops.rsqrt, (0.0,), INF, (-INF,)),
    (ops.rsqrt, (-1.0,), NAN, (NAN,)),
    (ops.pow, (0.0, 0.5), 0.0, (INF, 0.0)),
    (ops.pow, (0.0, 0.0), 1.0, (0.0, 0.0)),
    (ops.pow, (3.0, 0.0), 1.0, (0.0, math.log(3))),
    (ops.pow, (0.0, 1.0), 0.0, (1.0, 0.0)),
    (ops.pow, (0.0, 2.0), 0.0, (0.0, 0.0)),
    (ops.pow, (0.0, 1.5), 0.0, (0.0, 0.0)),
    (ops.pow, (-2.0, 3.0), -8.0, (12.0, 0.0)),
    (ops.pow, (-2.0, 2.5), NAN, (NAN, None)),
    (ops.pow, (-2.0, -1.0), -0.5, (-0.25, 0.0)),
    (ops.pow, (INF, 2.0), INF, (INF, INF)),
    (ops.pow, (1e-200, 2.0), 0.0, (2e-200, 0.0)),
    (ops.pow, (NAN, 2.0), NAN, (NAN, NAN)),
    (ops.hypot, (0.0, 0.0), 0.0, (0.0, 0.0)),
    (ops.hypot, (1e300, 0.0), 1e300, (1.0, 0.0)),
    (ops.hypot, (INF, 1.0), INF, (1.0, 0.0)),
    (ops.hypot, (2.0, -INF), INF, (0.0, -1.0)),
    (ops.hypot, (3.0, 0.0), 3.0, (1.0, 0.0)),
    (ops.hypot, (NAN, 1.0), NAN, (NAN, NAN)),
    (ops.atan2, (0.0, 0.0), 0.0, (0.0, 0.0)),
    (ops.atan2, (0.0, -0.0), math.pi, (0.0, 0.0)),
    (ops.atan2, (-0.0, 0.0), -0.0, (0.0, 0.0)),
    (ops.atan2, (1e300, 1e300), math.pi / 4, None),
    (ops.atan2, (INF, 1.0), math.pi / 2, (0.0, 0.0)),
    (ops.atan2, (1.0, INF), 0.0, (0.0, 0.0)),
    (ops.atan2, (INF, -INF), 0.75 * math.pi, (0.0, 0.0)),
    (ops.atan2, (NAN, 1.0), NAN, (NAN, NAN)),
    (ops.floor, (2.0,), 2.0, (0.0,)),
    (ops.ceil, (2.5,), 3.0, (0.0,)),
    (ops.round, (0.5,), 0.0, (0.0,)),
    (ops.round, (1.5,), 2.0, (0.0,)),
    (ops.round, (-2.5,), -2.0, (0.0,)),
    (ops.trunc, (-2.5,), -2.0, (0.0,)),
    (ops.fract, (2.0,), 0.0, (1.0,)),
    (ops.fract, (-0.25,), 0.75, (1.0,)),
    (ops.remainder, (-7.0, 2.0), 1.0, (1.0, 4.0)),
    (ops.remainder, (7.0, -2.0), -1.0, (1.0, 4.0)),
    (ops.remainder, (6.0, 2.0), 0.0, (1.0, -3.0)),
    (ops.remainder, (1.0, 0.0), NAN, (1.0, NAN)),
    (ops.fmod, (-7.0, 2.0), -1.0, (1.0, 3.0)),
    (ops.fmod, (7.0, -2.0), 1.0, (1.0, 3.0)),
    (ops.clip, (0.0, 0.0, 1.0), 0.0, (0.5, 0.5, 0.0)),
    (ops.clip, (1.0, 0.0, 1.0), 1.0, (0.5, 0, 0.5)),
    (ops.clip, (NAN, 0.0, 1.0), NAN, (NAN, None, None)),
    (ops.where, (1, 2.0, NAN), 2.0, (1.0, 0.0)),
    (ops.where, (0, NAN, 3.0), 3.0, (0.0, 1.0)),
    (ops.log, (0.0,), -INF, (INF,)),
    (ops.log, (-1.0,), NAN, (NAN,)),
    (ops.log, (INF,), INF, (0,)),
    (ops.log2, (-1.0,), NAN, (NAN,)),
    (ops.log10, (-1.0,), NAN, (NAN,)),
    (ops.log1p, (-1.0,), -INF, (INF,)),
    (ops.log1p, (-2.0,), NAN, (NAN,)),
    (ops.asin, (1.0,), math.pi / 2, (INF,)),
    (ops.asin, (2.0,), NAN, (NAN,)),
    (ops.acos, (-1.0,), math.pi, (-INF,)),
    (ops.acos, (-2.0,), NAN, (NAN,)),
    (ops.acosh, (1.0,), 0.0, (INF,)),
    (ops.acosh, (0.5,), NAN, (NAN,)),
    (ops.acosh, (-2.0,), NAN, (NAN,)),
    (ops.acosh, (1e300,), None, (1e-300,)),
    (ops.atanh, (1.0,), INF, (INF,)),
    (ops.atanh, (-1.0,), -INF, (INF,)),
    (ops.atanh, (2.0,), NAN, (NAN,)),
    (ops.asinh, (1e300,), None, (1e-300,)),
    (ops.asinh, (-1e300,), None, (1e-300,)),
    (ops.div, (1.0, 0.0), INF, (INF, -INF)),
    (ops.div, (1.0, -0.0), -INF, (-INF, -INF)),
    (ops.div, (0.0, 0.0), NAN, (INF, NAN)),
    (ops.div, (1e200, 1e200), 1.0, (1e-200, -1e-200)),
    (ops.reciprocal, (0.0,), INF, (-INF,)),
    (ops.reciprocal, (-0.0,), -INF, (-INF,)),
    (ops.exp, (-INF,), 0.0, (0.0,)),
    (ops.exp, (INF,), INF, (INF,)),
    (ops.exp, (NAN,), NAN, (NAN,)),
    (ops.expm1, (-60.0,), -1.0, (math.exp(-60),)),
    (ops.tanh, (30.0,), 1.0, (4 * math.exp(-60),)),
    (ops.tanh, (INF,), 1.0, (0.0,)),
    (ops.tanh, (NAN,), NAN, (NAN,)),
    (ops.sigmoid, (60.0,), 1.0, (math.exp(-60),)),
    (ops.sigmoid, (-INF,), 0.0, (0.0,)),
    (ops.softplus, (1e4,), 1e4, (1.0,)),
    (ops.softplus, (-800.0,), 0.0, (0.0,)),
    (ops.logaddexp, (1e4, 1e4), 1e4 + math.log(2), (0.5, 0.5)),
    (ops.logaddexp, (INF, INF), INF, (0.5, 0.5)),
    (ops.logaddexp, (-INF, -INF), -INF, (0.5, 0.5)),
    (ops.gelu_tanh, (1e200,), 1e200, (1.0,)),
    (ops.gelu_tanh, (-1e200,), None, (0.0,)),
    (ops.gelu, (1e200,), 1e200, (1.0,)),
    (ops.silu, (1e300,), 1e300, (1.0,)),
    (ops.silu, (-1e300,), None, (0.0,)),
    (ops.logaddexp, (-INF, 1.0), 1.0, (0.0, 1.0)),
    (ops.erf, (INF,), 1.0, (0.0,)),
    (ops.erfc, (NAN,), NAN, (NAN,)),
    (ops.sin, (INF,), NAN, (NAN,)),
    (ops.mul, (0.0, INF), NAN, (INF, 0.0)),
    (ops.add, (INF, -INF), NAN, (1.0, 1.0)),
    (ops.stop_gradient, (3.0,), 3.0, (0.0,)),
]


@pytest.mark.parametrize(
    ("op", "point", "value", "slopes"), CONVENTIONS, ids=[f"{c[0].name}{c[1]}" for c in CONVENTIONS]
)
def test_conventions(op: Op, point: Any, value: float | None, slopes: Any) -> None:
    y, variables, given = applied(op, point)
    if value is not None:
        np.testing.assert_allclose(verbs.evaluate(y, given), value, rtol=1e-15)
        zero = "sign of zero"
        if value == 0:
            assert math.copysign(1, verbs.evaluate(y, given)) == math.copysign(1, value), zero
    for x, slope in zip(variables, slopes or (), strict=bool(slopes)):
        if slope is not None:
            found = verbs.evaluate(verbs.grad(y, x), given)
            np.testing.assert_allclose(found, slope, rtol=1e-14, err_msg=f"by {x.id}")


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_nan_in_gives_nan_out(op: Op) -> None:
    if op.result != "f" or set(types(op)) != {"f"} or op in BARE:
        return
    for k in range(op.arity):
        point = list(op.points[0])
        point[k] = NAN
        y, _, given = applied(op, tuple(point))
        by_sign_only = op is ops.copysign and k == 1
        assert math.isnan(verbs.evaluate(y, given)) != by_sign_only


@pytest.mark.parametrize("op", [o for o in ROWS if o.commutative], ids=lambda op: op.name)
def test_commutative_rows_commute(op: Op) -> None:
    """To the bit, since which argument comes first is an accident of the graph."""
    kind = {"b": np.bool_, "u": np.uint32, "f": np.float32}[types(op)[0]]
    edges = EDGES if kind is np.float32 else np.arange(9).astype(kind)
    a, b = (m.ravel() for m in np.meshgrid(edges, edges))
    with np.errstate(all="ignore"):
        there, back = (np.asarray(op.reference(*p)) for p in ((a, b), (b, a)))
    same = bits(there) == bits(back) if op.result == "f" else there == back
    wrong = np.flatnonzero(~same)
    assert not len(wrong), f"{a[wrong]}, {b[wrong]}"


@pytest.mark.parametrize("op", [o for o in ROWS if o.compose], ids=lambda op: op.name)
def test_definitions_mean_what_the_reference_means(op: Op) -> None:
    y, variables, _ = applied(op, op.points[0])
    axes = [np.array([-7.5, -1.0, -0.1, -0.0, 0.0, 0.1, 0.3, 1.0, 2.0, 7.0, 88.0])] * op.arity
    at = [m.ravel() for m in np.meshgrid(*axes)]
    with np.errstate(all="ignore"):
        expected = op.reference(*at)
    found = verbs.evaluate(y, dict(zip(variables, at, strict=True)))
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-300)


def test_transcendental_rows_are_the_expensive_ones() -> None:
    assert {op.name for op in ROWS if op.transcendental and op.cost < 10} == set()


THIRD: Final = [
    (ops.tanh, (0.0,), -2.0), (ops.sigmoid, (0.0,), -0.125), (ops.sin, (0.0,), -1.0),
    (ops.asinh, (0.0,), -1.0), (ops.atan, (0.0,), -2.0), (ops.erf, (0.0,), -4 / math.sqrt(math.pi)),
    (ops.sinh, (0.0,), 1.0), (ops.tan, (0.0,), 2.0), (ops.exp, (0.0,), 1.0),
    (ops.softplus, (0.0,), 0.0), (ops.silu, (0.0,), 0.0), (ops.gelu, (0.0,), 0.0),
    (ops.atanh, (0.0,), 2.0), (ops.log1p, (0.0,), 2.0), (ops.expm1, (0.0,), 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("op", "point", "third"), THIRD, ids=[c[0].name for c in THIRD])
def test_third_derivatives_at_the_origin(op: Op, point: Any, third: float) -> None:
    y, (x,), given = applied(op, point)
    for _ in range(3):
        y = verbs.grad(y, x)
    np.testing.assert_allclose(verbs.evaluate(y, given), third, rtol=1e-13, atol=1e-15)
