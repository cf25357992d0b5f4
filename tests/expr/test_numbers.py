"""Operations take numbers in any place: of numbers alone they compute what kernels mean by them."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from strategies import OPS, types

import symgrad as sg
from symgrad.errors import SymgradError
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Op
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.expression import Expr

PUBLIC = [op for op in OPS if hasattr(functions, op.name)]


def meaning(op: Op, numbers: tuple[float, ...]) -> Any:
    """The reference of an operation, in double precision."""
    kinds = {"f": np.float64, "b": np.bool_}
    values = [kinds[k](v) for k, v in zip(types(op), numbers, strict=True)]
    with np.errstate(all="ignore"):
        return op.reference(*values)


def value_of(found: Any, given: dict[str, float]) -> float:
    return float(sg.evaluate(found, given) if isinstance(found, sg.Expr) else found)


@pytest.mark.parametrize("op", PUBLIC, ids=lambda op: op.name)
def test_numbers_in_any_place(op: Op) -> None:
    function = getattr(sg, op.name)
    for point in (*op.points, (1.0, 0.0, 0.25)[: op.arity]):
        for places in itertools.product((False, True), repeat=op.arity):
            graph = Graph()
            variables = [Expr(graph, graph.input(f"x{k}")) for k in range(op.arity)]
            given = {f"x{k}": v for k, v in enumerate(point)}
            mixed = [x if free else v for x, v, free in zip(variables, point, places, strict=True)]
            want = pytest.approx(float(meaning(op, point)), rel=1e-14, nan_ok=True)
            assert value_of(function(*mixed), given) == want
            array = function(*[[m, v] for m, v in zip(mixed, point, strict=True)])
            assert [value_of(e, given) for e in np.asarray(array).flat] == [want, want]


@pytest.mark.parametrize("op", [o for o in PUBLIC if o.result == "f"], ids=lambda op: op.name)
def test_whole_numbers_and_truth_values_are_numbers(op: Op) -> None:
    function = getattr(sg, op.name)
    for numbers in itertools.product((0, 1, 2), repeat=op.arity):
        want = meaning(op, tuple(map(float, numbers)))
        np.testing.assert_allclose(function(*numbers), want, rtol=1e-15)
        if max(numbers) < 2:
            np.testing.assert_allclose(function(*map(bool, numbers)), want, rtol=1e-15)
    assert np.shape(function(*[1] * op.arity)) == ()


@pytest.mark.parametrize("name", ["abs", "clip", "maximum", "minimum", "round", "sign", "where"])
def test_what_chooses_or_rounds_leaves_integers_integers(name: str) -> None:
    found = getattr(sg, name)(*[1] * ops.TABLE[name].arity)
    assert range(3)[found] == 1


BAD = [None, "2", 1j, object(), {}, [None, 1.0], 10**400, np.array(["a"])]


@pytest.mark.parametrize(
    "op", [o for o in PUBLIC if o is not ops.stop_gradient], ids=lambda op: op.name
)
def test_what_is_no_number_is_refused_in_any_place(op: Op) -> None:
    x = sg.var("x")
    for place, bad, others in itertools.product(range(op.arity), BAD, (2.0, x, [x, 1.0])):
        arguments = [others] * op.arity
        arguments[place] = bad
        with pytest.raises(SymgradError):
            getattr(sg, op.name)(*arguments)


def test_two_numbers_side_by_side_in_an_array() -> None:
    x = sg.var("x")
    values = [1.0, 0.5, x, -3.0, True, Fraction(1, 4), np.float32(2.0)]
    numbers = np.array([1.0, 0.5, 0.75, -3.0, 1.0, 0.25, 2.0])
    for reduction in (
        np.max, np.min, np.sum, np.prod, np.maximum.reduce, np.minimum.reduce, np.logaddexp.reduce,
        np.add.reduce, np.multiply.reduce, np.linalg.norm, lambda a: np.linalg.norm(a, np.inf),
        lambda a: np.maximum.accumulate(a)[-1], lambda a: np.logaddexp.accumulate(a)[-1],
    ):  # fmt: skip
        found = reduction(sg.array(values))
        np.testing.assert_allclose(sg.evaluate(found, {x: 0.75}), reduction(numbers), rtol=1e-14)
    logical: list[Any] = [np.logical_and.reduce, np.logical_or.reduce]
    for reduction in logical:
        for row in ([x], [x, 0.0, 2.0], [1.0, 2.0, x], [0.0, 0.0, x]):
            numbers = [0.75 if isinstance(v, sg.Expr) else v for v in row]
            want = reduction(numbers)
            assert sg.evaluate(reduction(sg.array(row)), {x: 0.75}) == want


@pytest.mark.parametrize("ufunc", [np.divide, np.power, np.hypot, np.floor_divide, np.remainder])
def test_numbers_in_arrays_are_computed_as_numpy_does(ufunc: np.ufunc) -> None:
    """Python's own division and power raise errors, or leave the real numbers."""
    x = sg.var("x")
    first, second = np.array([1.0, -8.0, 0.0, 1e300]), np.array([0.0, 1 / 3, -1.0, 1e3])
    found = ufunc(sg.array([x, *first]), sg.array([x, *second]))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.asarray(found[1:], float), ufunc(first, second))


def test_powers_of_numbers_and_lists() -> None:
    x = sg.var("x")
    assert np.isnan(sg.pow(-8.0, 1 / 3)) and sg.pow(0.0, -1.0) == np.inf == sg.pow(10.0, 400)
    assert sg.pow(2, -1) == 0.5
    found = sg.pow([x, 2.0], [[1.0], [3.0]])
    np.testing.assert_allclose(
        [[sg.evaluate(e, {x: 1.5}) if isinstance(e, sg.Expr) else e for e in row] for row in found],
        [[1.5, 2.0], [3.375, 8.0]],
    )


def test_an_array_without_axes_is_its_element() -> None:
    x = sg.var("x")
    held = sg.array(x)
    for found in (sg.sin(held), x + held, held * x, sg.maximum(held, x), sg.clip(x, held, 2.0)):
        assert sg.evaluate(found, {x: 0.5}) > 0


def test_long_doubles_are_numbers() -> None:
    two = np.longdouble(2.0)
    kernel = sg.fused_forward(
        2, lambda v: (two * v[0] - v[1] / two, np.full(2, two) * v), device="cpu"
    )
    first, second = kernel.run([3.0, 5.0])
    assert first == 3.5 and second.tolist() == [6.0, 10.0]
