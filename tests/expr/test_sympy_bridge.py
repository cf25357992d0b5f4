"""SymPy: every row of the op table there and back, its derivatives, and messages of misuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import mpmath
import numpy as np
import pytest
import sympy as sp
from exact import EXACT, evaluate_exactly
from tables import row

from symgrad.errors import InputError, InputTypeError
from symgrad.expr import ops
from symgrad.expr.calls.sympy_bridge import (
    TO_SYMPY,
    compile_sympy,
    from_sympy,
    to_sympy,
)
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.graph.node import LEAVES, Graph, Handle, Op
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers import functions as F
from symgrad.expr.tracers.expression import Expr, symbols, var

INF, NAN = math.inf, math.nan


def compiled(expression: Any, digits: int = 50) -> Callable[[dict[Any, float]], Any]:
    """The value as a function of a point, which has a number for every symbol, or for its name."""
    free = sorted(sp.sympify(expression).free_symbols, key=lambda s: s.name)
    function = compile_sympy(expression, free, digits)

    def value(point: dict[Any, float]) -> Any:
        values = {getattr(key, "name", key): number for key, number in point.items()}
        return function(*[values[s.name] for s in free])

    return value


def evaluate_sympy(expression: Any, point: dict[Any, float], digits: int = 50) -> Any:
    """The value at a point."""
    return compiled(expression, digits)(point)


BITS: Final = {
    "float_bits", "bits_float", "word_add", "word_and", "word_div",
    "word_sub", "word_mul", "word_or", "word_xor", "word_shift_left", "word_shift_right",
    "word_lt", "word_min", "word_where", "word_float", "signed_float", "nearest_word", "modulus",
    "far_modulus", "saturate", "wide_div", "ratio", "root", "decay_between",
    "quarters", "angle", "far_quarters", "far_angle", "sine", "cosine", "tangent",
    "far_sin", "far_cos", "far_tan", "sin_turns", "cos_turns",
    "scalb", "power_of_two", "exponent", "significand", "upper", "first_digits",
    "word_eq", "uint32_float", "int32_float", "threefry_first",
    "threefry_second",
}  # fmt: skip
ROWS: Final = [op for op in ops.TABLE.values() if op not in LEAVES and op.name not in BITS]
by_row: Final = pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
UNLIKE: Final = {
    "stop_gradient",  # SymPy sees through it
    "pow(-2.0, 3.0)",  # d/dp is complex in SymPy, 0 by convention here
    "sinc(0.0,)",  # SymPy's divides by 0 before it chooses
    "gamma_density(2.5, 1.5)",  # its maximum: SymPy's two terms leave 1e-102 there
}
UNKNOWN: Final = {("betainc", 0), ("betainc", 1), ("betaincc", 0), ("betaincc", 1)}
"""Arguments by which SymPy has no derivative of a row: it writes Derivative there."""


class Case:
    """A row's operation on variables, at a point or another with the same whole numbers."""

    def __init__(self, op: Op, point: tuple[float, ...]) -> None:
        self.graph = Graph()
        self.variables = [Expr(self.graph, self.graph.input(f"x{k}")) for k in range(len(point))]
        self.point = {f"x{k}": float(v) for k, v in enumerate(point)}
        kinds = op.signature.split("->")[0]
        arguments: list[Any] = list(self.variables)
        for k, kind in enumerate(kinds):
            if kind != "f":
                arguments[k] = self.variables[k] > 0.5 if kind == "b" else int(point[k])
        self.wrt = [k for k, kind in enumerate(kinds) if kind == "f" and k >= op.parameters]
        self.expr = op(*arguments)

    def move(self, point: tuple[float, ...]) -> None:
        """Be at this point from now on."""
        self.point = {f"x{k}": float(v) for k, v in enumerate(point)}

    def value(self, i: int) -> float:
        arrays = {
            v.id: np.array([x]) for v, x in zip(self.variables, self.point.values(), strict=True)
        }
        return float(evaluate_graph(self.graph, [i], arrays)[0][0])

    def exactly(self, i: int) -> Any:
        inputs = {v.id: x for v, x in zip(self.variables, self.point.values(), strict=True)}
        return evaluate_exactly(self.graph, [i], inputs)[0]


def close(found: Any, true: Any, tolerance: float = 4e-15) -> bool:
    return bool(np.isclose(float(found), float(true), rtol=tolerance, atol=0, equal_nan=True))


def test_the_tables_have_every_row() -> None:
    nodes = {op.name for op in ROWS if op.compose is None}
    assert set(TO_SYMPY) == nodes
    assert set(EXACT) | {op.name for op in ROWS if op.transparent} == nodes


def cases(op: Op) -> Iterator[tuple[Case, list[tuple[float, ...]]]]:
    """A row's operation, and the finite points of the table that it takes, of each whole number."""
    kinds = op.signature.split("->")[0]
    groups: dict[tuple[float, ...], list[tuple[float, ...]]] = {}
    for point in op.points:
        if all(math.isfinite(v) for v in point):
            whole = tuple(v for kind, v in zip(kinds, point, strict=True) if kind not in "fb")
            groups.setdefault(whole, []).append(point)
    for points in groups.values():
        yield Case(op, points[0]), points


@by_row
def test_values_agree_there_and_back(op: Op) -> None:
    for case, points in cases(op):
        there = to_sympy(case.expr)
        back = from_sympy(there, dict(zip(case.point, case.variables, strict=True)))
        true = compiled(there)
        for point in points:
            case.move(point)
            with row(point=point):
                expected = case.value(case.expr.id)
                assert close(true(case.point), expected)
                assert close(case.exactly(case.expr.id), expected)
                found = case.value(back.id) if isinstance(back, Handle) else back
                assert close(found, expected)


@by_row
def test_derivatives_agree(op: Op) -> None:
    if op.name in UNLIKE or op.result != "f":
        pytest.skip("by convention, or there are none")
    for case, points in cases(op):
        loss = to_sympy(case.expr, digits=50)
        wrt = [case.variables[k] for k in case.wrt]
        ours = vjp(case.graph, {case.expr.id: case.graph.constant(1.0)}, [v.id for v in wrt])
        for k, cotangent in zip(case.wrt, ours, strict=True):
            theirs = sp.diff(loss, sp.Symbol(f"x{k}", real=True))
            assert theirs.has(sp.Derivative, sp.Subs) == ((op.name, k) in UNKNOWN)
            if (op.name, k) in UNKNOWN:
                continue
            true = compiled(theirs)
            for point in points:
                case.move(point)
                if f"{op.name}{point}" not in UNLIKE:
                    with row(point=point, by=k):
                        found = 0.0 if cotangent is None else case.value(cotangent)
                        assert close(found, true(case.point), 4e-14)


# --- to SymPy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.1, -1e-30, 1e300, 5e-324, 0.5, -3.0, 1 / 3, 2.0**60])
def test_constants_are_exactly_the_double(value: float) -> None:
    x = var("x")
    found = evaluate_sympy(to_sympy(x + value), {"x": 0.0}, digits=400)
    assert found == mpmath.mpf(value)


def test_constants_are_short_where_they_can_be() -> None:
    x = var("x")
    assert str(to_sympy(2.0 * x + 0.75)) == "2*x + 3/4"


def test_infinite_constants() -> None:
    x = var("x")
    assert to_sympy(F.where(x > 0, INF, -INF)).subs("x", 1).has(sp.oo)
    assert to_sympy(F.where(x > 0, NAN, 0.0)).has(sp.nan)


def test_plain_comparisons_are_decided() -> None:
    x = var("x")
    assert to_sympy(x < x) == sp.false
    assert to_sympy(x < NAN) == sp.false
    assert to_sympy(x != NAN) == sp.true
    assert to_sympy((x - x) < 1) == sp.true


def test_symbols_are_real_and_can_be_replaced() -> None:
    x, y = symbols("x y")
    assert all(s.is_real for s in to_sympy(x * y).free_symbols)
    assert to_sympy(x * y, {"x": sp.pi}) == sp.pi * sp.Symbol("y", real=True)


def test_a_sum_of_thousands_of_terms_is_one_sum() -> None:
    xs = symbols("x0:3000")
    total: Any = sum(x * x for x in xs)
    assert len(to_sympy(total).args) == 3000


def test_a_shared_sum_is_taken_once_by_each_user() -> None:
    x, y = symbols("x y")
    s = x + y
    total = sum(sp.symbols("x y", real=True))
    assert to_sympy(s * s + s) == total**2 + total


def test_too_deep_for_sympy_is_our_error() -> None:
    x = var("x")
    for _ in range(5000):
        x = F.sin(x) + 1
    with pytest.raises(InputError, match="nested too deeply for SymPy"):
        to_sympy(x)


def test_bits_have_no_meaning_there() -> None:
    x = var("x")
    with pytest.raises(InputTypeError, match="float_bits cannot go to SymPy"):
        to_sympy(ops.bits_float(ops.float_bits(x)))


def test_custom_vjp_leaves_its_value() -> None:
    x = var("x")
    square = F.custom_vjp(lambda x: x * x, lambda g, y, x: (g,))
    assert str(to_sympy(square(x))) == "x**2"


# --- from SymPy -----------------------------------------------------------------------------------

abc: Any = sp.symbols("a b c")
a, b, c = abc
SAMPLES: Final = [
    a + 2 * b - c,
    -a - b,
    -3 * a * b / c**2,
    a ** sp.Rational(5, 2) + sp.sqrt(b) + 1 / sp.sqrt(c) + 1 / a,
    a ** sp.Rational(2, 3) + b**-3 + b**2.5 + 2**c + 10**a + a**b,
    sp.exp(a) + sp.log(b, 7) + sp.log(c),
    sp.sin(a) + sp.cos(b) + sp.tan(c) + sp.sec(a) + sp.csc(b) + sp.cot(c),
    sp.asin(a / 9) + sp.acos(b / 9) + sp.atan(c) + sp.asec(a + 2) + sp.acsc(b + 2) + sp.acot(c),
    sp.sinh(a) + sp.cosh(b) + sp.tanh(c) + sp.sech(a) + sp.csch(b) + sp.coth(c),
    sp.asinh(a) + sp.acosh(b + 1) + sp.atanh(c / 9) + sp.asech(c / 9) + sp.acsch(b),
    sp.acoth(a + 2) + sp.atan2(a, b),
    sp.Abs(a - b) + sp.sign(a - b) + sp.floor(3 * a) + sp.ceiling(3 * b) + sp.frac(c),
    sp.Min(a, b, c) + sp.Max(a, b, c, 1),
    sp.Piecewise((a, a > b), (b, sp.Ne(b, c)), (c, sp.Eq(a, c)), (2, True)),
    sp.Piecewise((a, sp.Xor(a < b, a < c)), (c, True)),
    sp.Piecewise((a, sp.And(a < b, b <= c)), (b, sp.Or(a > c, b >= c)), (c, sp.Not(a < b))),
    sp.Piecewise((a, a < b), (b, True)) + sp.Piecewise((1, a > b), (2, a <= b)),
    sp.Mod(a, b) + sp.Mod(-a, b),
    sp.erf(a) + sp.erfc(b) + sp.cbrt(c),
    sp.Heaviside(a - b) + sp.Heaviside(b - a) + sp.sinc(c),
    sp.pi * a + sp.E * b + sp.GoldenRatio * c + sp.Rational(1, 3) + sp.Float("0.1"),
    1 / (1 + sp.exp(-a)) + b / (1 + sp.exp(c)) + (1 + sp.exp(a)) ** -2,
    sp.log(1 + sp.exp(a)) + sp.log(sp.exp(a) + sp.exp(b)) + sp.log(1 + a + b),
    sp.exp(a) - 1 + b,
    2 * sp.exp(a) - 1,
    sp.lowergamma(a, b) + sp.uppergamma(c, a) + sp.lowergamma(3, b),
    sp.betainc_regularized(a, c, 0, b) + sp.betainc_regularized(c, 2, b, 1),
    sp.betainc(a, c, 0, b) + sp.betainc_regularized(2, c, b, a) + sp.betainc(3, c, b, 1),
    sp.UnevaluatedExpr(a) * 2,
    sp.Add(*[sp.sin(k * a) * b**k / k for k in range(1, 300)]),
]


@pytest.mark.parametrize("expression", SAMPLES, ids=lambda e: str(e.func(*e.args[:9]))[:40])
def test_from_sympy(expression: Any) -> None:
    point = {"a": 0.7, "b": 0.4, "c": 1.3}
    expr = from_sympy(expression)
    inputs = {var(n).id: np.array([v]) for n, v in point.items()}
    found = evaluate_graph(expr.graph, [expr.id], inputs)[0][0]
    exact = expression.doit().subs({n: sp.Float(v, 40) for n, v in point.items()}).evalf(30)
    assert close(found, exact, 1e-13)


STABLE: Final = [
    (1 / (1 + sp.exp(-a)), "sigmoid(a)"),
    (sp.log(1 + sp.exp(a)), "softplus(a)"),
    (sp.log(sp.exp(a) + sp.exp(b)), "logaddexp(a, b)"),
    (sp.log(1 + a * b), "log1p(a * b)"),
    (sp.exp(a) - 1, "expm1(a)"),
    (a / b, "a / b"),
    (a - b, "a - b"),
    (1 / a, "1 / a"),
    (a**-2, "1 / a**2"),
    (sp.sqrt(a), "sqrt(a)"),
    (2**a, "exp2(a)"),
    (sp.Mod(a, b), "remainder(a, b)"),
]


@pytest.mark.parametrize(("expression", "expected"), STABLE)
def test_stable_forms_are_chosen(expression: Any, expected: str) -> None:
    variables = symbols("a b")
    found = from_sympy(expression, dict(zip((a, b), variables, strict=True)))
    simplified = str(found).replace("-(-a)", "a")
    assert simplified in (expected, "a**-2" if expected == "1 / a**2" else expected)


def test_symbols_may_be_expressions_names_or_numbers() -> None:
    x = var("x")
    assert str(from_sympy(a * b + c, {a: x, "b": 2.0, "c": 0.5})) == "x * 2 + 0.5"
    assert from_sympy(a * b + sp.sin(c), {a: 2, b: 3.0, c: 0}) == 6.0
    assert from_sympy(sp.sqrt(2) * sp.pi) == math.sqrt(2) * math.pi
    assert from_sympy(sp.oo) == INF
    assert from_sympy(3) == 3.0


def test_what_sympy_shares_is_one_node() -> None:
    inner = sp.sin(a * b)
    expr = from_sympy(inner**2 + sp.exp(inner))
    sines = [n for n in expr.graph.nodes if n[0] is ops.sin]
    assert len(sines) == 1


MISUSE: Final = [
    (sp.zeta(a), "SymPy's zeta has no counterpart; there are Abs, And, "),
    (sp.Integral(sp.sin(a), a), r"call .doit\(\)"),
    (sp.Derivative(sp.Function("f")(a), a), r"call .doit\(\)"),
    (sp.Sum(a, (b, 1, 3)), r"call .doit\(\)"),
    (sp.Function("f")(a), r"f\(a\) is no scalar expression"),
    (sp.I * a, "I is not a real number"),
    (sp.sqrt(-2) * a, "is not a real number"),
    (sp.zoo, "zoo is not a real number"),
    (sp.Matrix([a, b]), "no scalar expression"),
    (sp.MatrixSymbol("M", 2, 2), "no scalar expression"),
    ("a + b", "'a \\+ b' is no SymPy expression"),
]


@pytest.mark.parametrize(("expression", "message"), MISUSE, ids=lambda e: str(e)[:30])
def test_misuse(expression: Any, message: str) -> None:
    with pytest.raises(InputTypeError, match=message):
        from_sympy(expression)


# --- values ---------------------------------------------------------------------------------------

EDGES: Final = [
    (ops.log, (0.0,), -INF), (ops.log, (-1.0,), NAN), (ops.sqrt, (-1.0,), NAN),
    (ops.reciprocal, (0.0,), INF), (ops.div, (0.0, 0.0), NAN), (ops.div, (-1.0, 0.0), -INF),
    (ops.asin, (2.0,), NAN), (ops.acosh, (0.5,), NAN), (ops.atanh, (1.0,), INF),
    (ops.atanh, (-1.0,), -INF), (ops.log1p, (-1.0,), -INF), (ops.pow, (0.0, 0.0), 1.0),
    (ops.pow, (-2.0, 0.5), NAN), (ops.pow, (0.0, -1.0), INF), (ops.remainder, (1.0, 0.0), NAN),
    (ops.remainder, (-5.0, INF), INF), (ops.fmod, (-5.0, INF), -5.0), (ops.atan2, (0.0, 0.0), 0.0),
    (ops.hypot, (0.0, 0.0), 0.0), (ops.exp, (INF,), INF), (ops.exp, (-INF,), 0.0),
    (ops.exp, (1e300,), INF), (ops.tanh, (INF,), 1.0), (ops.softplus, (-INF,), 0.0),
    (ops.logaddexp, (-INF, -INF), -INF), (ops.minimum, (NAN, 1.0), NAN), (ops.floor, (INF,), INF),
    (ops.round, (2.5,), 2.0), (ops.round, (-0.5,), 0.0), (ops.isnan, (NAN,), 1.0),
    (ops.isinf, (INF,), 1.0), (ops.isfinite, (NAN,), 0.0), (ops.ne, (NAN, NAN), 1.0),
    (ops.eq, (NAN, NAN), 0.0), (ops.rsqrt, (0.0,), INF), (ops.sin, (INF,), NAN),
    (ops.mul, (0.0, INF), NAN), (ops.sinh, (-1e300,), -INF), (ops.cbrt, (-8.0,), -2.0),
]  # fmt: skip


@pytest.mark.parametrize(("op", "point", "expected"), EDGES)
def test_exact_values_follow_ieee_at_edges(
    op: Op, point: tuple[float, ...], expected: float
) -> None:
    case = Case(op, point)
    assert close(case.exactly(case.expr.id), expected)


def test_fifty_digits_survive_cancellation() -> None:
    x = var("x")
    value = evaluate_exactly(x.graph, [(F.expm1(x) / x).id], {x.id: 1e-30})[0]
    with mpmath.workdps(50):
        assert abs(value - 1 - mpmath.mpf(1e-30) / 2) < mpmath.mpf(10) ** -50


def test_a_chain_of_a_hundred_thousand() -> None:
    x = y = var("x")
    for _ in range(100_000):
        y = y + 0.5
    assert evaluate_exactly(x.graph, [y.id], {x.id: 1.0})[0] == 50_001


def test_second_derivatives_of_kinks() -> None:
    x = sp.Symbol("x", real=True)
    loss = to_sympy(F.abs(F.sin(var("x"))) * F.maximum(var("x"), 1.0))
    assert close(evaluate_sympy(sp.diff(loss, x, x), {"x": 0.5}), -math.sin(0.5))


def test_missing_values_are_named() -> None:
    x = var("x")
    with pytest.raises(InputError, match="no value for x"):
        evaluate_exactly(x.graph, [x.id], {})


def test_compiled_expressions_are_nan_outside_their_domain() -> None:
    x = sp.Symbol("x", real=True)
    assert mpmath.isnan(compile_sympy(sp.log(x), [x])(-1.0))
    assert mpmath.isnan(compile_sympy(sp.Max(sp.log(x), 1), [x])(-1.0))
    assert mpmath.isnan(compile_sympy(x * sp.zoo, [x])(2.0))
