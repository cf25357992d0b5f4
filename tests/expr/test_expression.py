"""Python's operators on expressions, and what happens where a number is needed."""

from __future__ import annotations

import copy
import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import (
    ForeignExpressionError,
    InputError,
    InputTypeError,
    SymgradError,
    TraceError,
)
from symgrad.expr import ops
from symgrad.expr.calls import verbs
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.expr.tracing.trace import trace


def variables(n: int = 2) -> list[Expr]:
    graph = Graph()
    return [Expr(graph, graph.input(f"x{k}")) for k in range(n)]


BINARY: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.floordiv,
    operator.pow, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
    operator.imod, operator.ipow,
]  # fmt: skip
UNARY: list[Callable[[Any], Any]] = [
    operator.neg, operator.pos, operator.abs, round, math.floor, math.ceil, math.trunc,
    lambda x: divmod(x, 2)[0], lambda x: divmod(x, 2)[1], lambda x: divmod(7, x)[0],
    lambda x: divmod(7, x)[1], lambda x: x**3, lambda x: x**-2, lambda x: x**0, lambda x: x**1,
    lambda x: 2**x, lambda x: 3.5**x, lambda x: abs(x) ** 0.5, lambda x: abs(x) ** -0.5,
    lambda x: abs(x) ** 1.5, lambda x: x**13, lambda x: sum([x, x, x]), lambda x: +(x > 1),
    lambda x: (x > 1) + (x < 9), lambda x: (x > 1) * x, lambda x: 1 - (x > 1), lambda x: -(x > 1),
    lambda x: abs(x > 1), lambda x: (x > 1) == (x > 2),
]  # fmt: skip
NUMBERS: list[Any] = [
    2, -3, 0, 2.5, True, np.float32(2), np.float64(-1.5), np.int64(3), np.uint8(2), np.bool_(True),
    Fraction(1, 2), np.array(2.0), np.float16(0.5), math.inf,
]  # fmt: skip
AT = [0.5, 1.75, 3.0, -2.25, 7.0]


def compare(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-15)


@pytest.mark.parametrize("op", BINARY, ids=lambda f: f.__name__)
def test_binary_operators_on_two_expressions(op: Callable[[Any, Any], Any]) -> None:
    x, y = variables()
    for a in (0.5, 2.0, 3.0):
        for b in (2.0, -1.0, 3.0):
            compare(
                verbs.evaluate(
                    functions.where(op(x, y), 1, 0)
                    if isinstance(op(x, y), Condition)
                    else op(x, y),
                    {x: a, y: b},
                ),
                op(a, b),
            )


@pytest.mark.parametrize("op", BINARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_binary_operators_with_numbers_on_either_side(
    op: Callable[[Any, Any], Any], number: Any
) -> None:
    (x,) = variables(1)
    if isinstance(number, np.ndarray) and op.__name__.startswith("i"):
        op = getattr(operator, op.__name__[1:])  # an array of numbers cannot take expressions in
    if number == math.inf and "floordiv" in op.__name__:
        return  # NumPy's inf // 2 is NaN, but floor(inf / 2) is inf
    plain = np.float64(float(number))
    with np.errstate(all="ignore"):
        for a in (0.5, 2.0, 3.0):
            left, right = op(x, number), op(number, x)
            assert isinstance(left, Expr) and isinstance(right, Expr), (type(left), type(right))
            compare(verbs.evaluate(left, {x: a}), op(np.float64(a), plain))
            compare(verbs.evaluate(right, {x: a}), op(plain, np.float64(a)))


@pytest.mark.parametrize("k", range(len(UNARY)))
def test_unary_operators(k: int) -> None:
    (x,) = variables(1)
    e = UNARY[k](x)
    for a in AT:
        compare(verbs.evaluate(functions.where(e, 1, 0) if isinstance(e, Condition) else e, {x: a}),
                UNARY[k](a))  # fmt: skip


@pytest.mark.parametrize(("a", "b"), [(0.5, 3.0), (4.0, 3.0), (4.0, 0.0)])
def test_logic(a: float, b: float) -> None:
    x, y = variables()
    p, q = x > 1, y > 1
    for found, expected in [
        (p & q, a > 1 and b > 1), (p | q, a > 1 or b > 1), (p ^ q, (a > 1) != (b > 1)),
        (~p, not a > 1), (p & True, a > 1), (True & p, a > 1), (False | p, a > 1),
        (p ^ np.bool_(True), not a > 1),
    ]:  # fmt: skip
        assert isinstance(found, Condition)
        assert verbs.evaluate(functions.where(found, 1.0, 0.0), {x: a, y: b}) == expected


def test_adding_the_integer_zero_is_nothing_and_adding_0_0_is_not() -> None:
    (x,) = variables(1)
    assert (0 + x).id == x.id and (x + 0).id == x.id
    assert (x + 0.0).id != x.id


def test_integer_powers_are_exact_chains() -> None:
    (x,) = variables(1)
    assert x.graph.nodes[(x**5).id][0] is ops.integer_pow
    assert x.graph.nodes[(x**5.0).id] == x.graph.nodes[(x ** np.float32(5)).id]
    assert x.graph.nodes[(x**0.5).id][0] is ops.sqrt
    assert x.graph.nodes[(x**-1).id][0] is ops.reciprocal
    assert (x**1).id == x.id and x.graph.value((x**0).id) == 1.0
    assert verbs.evaluate(x**3, {x: -2.0}) == -8.0


def test_hash_and_copies() -> None:
    x, y = variables()
    assert hash(x + y) == hash(y + x) != hash(x)
    assert {x: 1, y: 2}[x] == 1


def test_expressions_of_other_traces() -> None:
    (x,), (y,) = variables(1), variables(1)
    uses = (lambda: x + y, lambda: functions.where(y > 0, x, 1.0), lambda: functions.atan2(x, y),
            lambda: x < y, lambda: verbs.grad(x, y), lambda: x**y)  # fmt: skip
    for make in uses:
        with pytest.raises(ForeignExpressionError, match="belongs to another trace"):
            make()
    with pytest.raises(ForeignExpressionError, match="the variable x0 belongs"):
        trace(lambda v: v[0] + y, 1)


def test_what_is_no_real_number() -> None:
    (x,) = variables(1)
    for value in ("a", None, 1j, np.complex64(1), object(), [1.0], (1,), {}, b"1", Decimal(1)):
        for op in (operator.add, operator.mul, operator.pow, operator.lt):
            with pytest.raises(SymgradError) as caught:
                op(x, value)  # pyright: ignore[reportArgumentType]
            assert isinstance(caught.value, InputTypeError)
    with pytest.raises(InputError, match="beyond the range of a float"):
        _ = x + 10**400


def test_pow_with_a_modulus_and_round_with_digits() -> None:
    (x,) = variables(1)
    with pytest.raises(TraceError, match="modulus"):
        pow(x, 2, 3)  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(TraceError, match="is not defined for expressions"):
        round(x, 2)


# --- misuse: the message says what, where, and the remedy ---------------------------------------


def conditional(v: Any) -> Any:
    if v[0] > 0:
        return v[0]
    return v[1]


def loops(v: Any) -> Any:
    while v[0] < 3:
        v[0] = v[0] + 1
    return v[0]


MISUSE: dict[str, tuple[Callable[[Any], Any], list[str], str]] = {
    "if": (conditional, ["sg.where"], "if v[0] > 0:"),
    "while": (loops, ["sg.where"], "while v[0] < 3:"),
    "inline if": (lambda v: v[0] if v[0] > v[1] else v[1], ["sg.where"], "v[0] if v[0] > v[1]"),
    "and": (lambda v: functions.where(v[0] > 0 and v[1] > 0, 1, 2), ["&"], "v[0] > 0 and v[1] > 0"),
    "not": (lambda v: functions.where(not v[0] > 0, 1, 2), ["~"], "not v[0] > 0"),
    "chained": (lambda v: functions.where(0 < v[0] < 1, 1, 2), ["sg.where"], "0 < v[0] < 1"),
    "bool": (lambda v: bool(v[0]), ["sg.where"], "bool(v[0])"),
    "float": (lambda v: float(v[0]), ["sg."], "float(v[0])"),
    "int": (lambda v: int(v[0]), ["sg."], "int(v[0])"),
    "complex": (lambda v: complex(v[0]), ["no value"], "complex(v[0])"),
    "range": (lambda v: sum(range(v[0])), ["no value"], "range(v[0])"),
    "index": (lambda v: [1, 2, 3][v[0]], ["no value"], "[1, 2, 3][v[0]]"),
    "math.sin": (lambda v: math.sin(v[0]), ["sg.sin", "math.sin"], "math.sin(v[0])"),
    "math.exp": (lambda v: math.exp(v[0]), ["sg.exp"], "math.exp(v[0])"),
    "math.fabs": (lambda v: math.fabs(v[0]), ["sg.abs"], "math.fabs(v[0])"),
    "math.pow": (lambda v: math.pow(v[0], 2), ["sg.pow"], "math.pow(v[0], 2)"),
    "min": (lambda v: min(v[0], v[1]), ["sg.minimum"], "min(v[0], v[1])"),
    "max": (lambda v: max(v[0], 0), ["sg.maximum"], "max(v[0], 0)"),
    "max of the vector": (lambda v: max(v), ["sg.maximum"], "max(v)"),
    "sorted": (lambda v: sorted(v)[0], ["sorting"], "sorted(v)"),
    "in": (lambda v: 1.0 if v[0] in [1.0, 2.0] else 2.0, ["sg.where"], "v[0] in [1.0, 2.0]"),
    "iterate": (lambda v: sum(x for x in v[0]), ["iterated"], "for x in v[0]"),
    "setitem": (lambda v: np.zeros(2).__setitem__(0, v[0]), ["no value"], "__setitem__(0, v[0])"),
    "foreign ufunc": (lambda v: np.spacing(v[0]), ["np.spacing", "not defined"], "np.spacing"),
    "argsort": (lambda v: np.argsort(v)[0], ["np.argsort", "np.sort"], "np.argsort(v)"),
    "complex constant": (lambda v: v[0] * 1j, ["real number"], "v[0] * 1j"),
    "str": (lambda v: v[0] + "1", ["'1'", "str"], 'v[0] + "1"'),
    "None": (lambda v: v[0] * None, ["None"], "v[0] * None"),
    "array of numbers": (
        lambda v: operator.iadd(np.zeros(2), v),
        ["sg.array"],
        "iadd(np.zeros(2), v)",
    ),
    "nonzero": (lambda v: np.where(v > 0), ["both branches"], "np.where(v > 0)"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_quotes_the_user_s_line_and_names_the_remedy(name: str) -> None:
    f, remedies, line = MISUSE[name]
    with pytest.raises(SymgradError) as caught:
        trace(f, 2)
    message = str(caught.value)
    assert isinstance(caught.value, TypeError)
    for part in remedies:
        assert part in message
    assert line in message and re.search(r"test_expression\.py:\d+", message), message


GOLDEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "if": (
        conditional,
        "an expression is neither true nor false while f is traced: use sg.where(condition, a, b), "
        "which takes both branches into the kernel",
    ),
    "math": (
        lambda v: math.sin(v[0]),
        "an expression has no value while f is traced: use sg.sin instead of math.sin",
    ),
    "min": (
        lambda v: min(v[0], v[1]),
        "an expression is neither true nor false while f is traced: Python's min and max compare "
        "values; use sg.minimum and sg.maximum",
    ),
    "float": (
        lambda v: float(v[0]),
        "an expression has no value while f is traced: leave out float(...); for the functions of "
        "math use sg.sin, sg.exp, ...",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_messages(name: str) -> None:
    f, text = GOLDEN[name]
    with pytest.raises(TraceError) as caught:
        trace(f, 2)
    assert str(caught.value).partition("\n")[0] == text


def test_deep_copies_are_the_same_expression_or_refused() -> None:
    (x,) = variables(1)
    y = copy.copy(x)
    assert y.graph is x.graph and y.id == x.id


NUMBER_METHODS: dict[str, Any] = {
    "sum": lambda x: x.sum(), "mean": lambda x: x.mean(), "prod": lambda x: x.prod(),
    "var": lambda x: x.var(), "std": lambda x: x.std(), "max": lambda x: x.max(),
    "min": lambda x: x.min(), "clip": lambda x: x.clip(0.0, 1.0), "round": lambda x: x.round(),
    "ravel": lambda x: x.ravel(), "flatten": lambda x: x.flatten(), "T": lambda x: x.T,
    "reshape": lambda x: x.reshape(1, -1), "reshape to axes": lambda x: x.reshape((1, 1)),
    "squeeze": lambda x: x.squeeze(), "cumsum": lambda x: x.cumsum(),
    "cumprod": lambda x: x.cumprod(), "repeat": lambda x: x.repeat(3), "conj": lambda x: x.conj(),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBER_METHODS)
@pytest.mark.parametrize("value", [2.5, -0.75])
def test_a_number_has_the_methods_of_numpys(name: str, value: float) -> None:
    """As a result of no axes has in functions of whole arrays."""
    x, f = sg.var("x"), NUMBER_METHODS[name]
    result, want = f(x), f(np.float64(value))
    assert np.shape(result) == np.shape(want)
    assert np.array_equal(sg.evaluate(result, {x: value}), want)


def test_truths_and_integers_have_shapes_and_reductions() -> None:
    x = sg.var("x")
    for number in (x, x > 0, sg.int32(x)):
        assert (number.shape, number.ndim, number.size) == ((), 0, 1)
    kernel = sg.fused_forward(
        1, lambda v: [(v[0] > 0).any(), (v[0] > 0).all(), sg.int32(v[0]).max()], device="cpu"
    )
    assert kernel.run([3.0]) == [1.0, 1.0, 3.0]
