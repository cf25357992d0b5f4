"""SymPy: expressions to it and from it, and the values of its expressions to many digits."""

# Tables of functions on values of an untyped library:
# pyright: reportMissingTypeStubs=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import mpmath
import sympy

from symgrad.errors import InputError, InputTypeError
from symgrad.expr import ops
from symgrad.expr.calls.from_sympy import from_sympy as from_sympy
from symgrad.expr.graph.node import (
    CONST,
    INPUT,
    TRUTH,
    Graph,
    Handle,
    Op,
    bits_float,
    reachable,
    users,
)
from symgrad.expr.graph.region import require_straight
from symgrad.expr.tracers.expression import Expr

sp: Final[Any] = sympy
mp: Final[Any] = mpmath
Builder = Callable[..., Any]

_ONLY_BITS: Final = "it works on the bits of a float and has no meaning over the real numbers"


# --- functions of a real variable whose derivatives SymPy would leave unevaluated -----------------
# They print and convert as SymPy's own, whose names they have.


class floor(sympy.floor):  # noqa: D101
    def _eval_derivative(self, s: Any) -> Any:
        return sp.S.Zero


class ceiling(sympy.ceiling):  # noqa: D101
    def _eval_derivative(self, s: Any) -> Any:
        return sp.S.Zero


class sign(sympy.sign):  # noqa: D101
    def _eval_derivative(self, x: Any) -> Any:
        return sp.S.Zero


class Abs(sympy.Abs):  # noqa: D101
    def _eval_derivative(self, x: Any) -> Any:
        inner: Any = self.args[0]
        return inner.diff(x) * sign(inner)


# --- to SymPy -------------------------------------------------------------------------------------


def _truncated(x: Any) -> Any:
    return sign(x) * floor(Abs(x))


def _rounded(x: Any) -> Any:
    """The nearest integer, half to even."""
    quarter = (2 * x - 1) / 4
    return floor(x + sp.Rational(1, 2)) + ceiling(quarter) - floor(quarter) - 1


_SCALE: Final = 2 * sp.sqrt(2 / sp.pi)


def _cubic(x: Any) -> Any:
    """2 sqrt(2/pi)(x + 0.044715 x**3), of which x times the derivative is 3 z - 4 sqrt(2/pi) x."""
    return _SCALE * (x + sp.Rational(44715, 10**6) * x**3)


def _choice(c: Any, a: Any, b: Any) -> Any:
    return sp.Piecewise((a, c), (b, True), evaluate=False)


def _relation(relation: Any) -> Builder:
    def related(a: Any, b: Any) -> Any:
        if sp.nan in (a, b):
            return sp.true if relation is sp.Ne else sp.false
        # Decided where that is plain; else SymPy would subtract the two and may take minutes.
        return relation(a, b, evaluate=a == b or (a.is_Number and b.is_Number))

    return related


def _extremum(extremum: Any) -> Builder:
    def chosen(a: Any, b: Any) -> Any:
        if not {a, b}.isdisjoint((sp.nan, sp.zoo)):
            return sp.nan
        # Unevaluated: SymPy would compare the two symbolically, which may take minutes.
        return a if a == b else extremum(a, b, evaluate=False)

    return chosen


TO_SYMPY: Final[dict[str, Builder]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "reciprocal": lambda a: 1 / a,
    "fma": lambda a, b, c: a * b + c,
    "remainder": lambda a, b: a - b * floor(a / b),
    "fmod": lambda a, b: a - b * _truncated(a / b),
    "integer_pow": operator.pow,
    "pow": operator.pow,
    "sqrt": sp.sqrt,
    "rsqrt": lambda x: 1 / sp.sqrt(x),
    "cbrt": lambda x: sign(x) * Abs(x) ** sp.Rational(1, 3),
    "pow_times": lambda c, x, p, k: c * x ** (p + k),
    "hypot": lambda a, b: sp.sqrt(a**2 + b**2),
    "direction": lambda a, b: a / sp.sqrt(a**2 + b**2),
    "real_reciprocal": lambda a, b: a / (a**2 + b**2),
    "real_reciprocal_square": lambda a, b: (a - b) * (a + b) / (a**2 + b**2) ** 2,
    "exp": sp.exp,
    "exp2": lambda x: sp.Integer(2) ** x,
    "expm1": lambda x: sp.exp(x) - 1,
    "log": sp.log,
    "log2": lambda x: sp.log(x) / sp.log(2),
    "log10": lambda x: sp.log(x) / sp.log(10),
    "log1p": lambda x: sp.log(1 + x),
    "logaddexp": lambda a, b: sp.log(sp.exp(a) + sp.exp(b)),
    "sin": sp.sin,
    "cos": sp.cos,
    "tan": sp.tan,
    "asin": sp.asin,
    "acos": sp.acos,
    "atan": sp.atan,
    "atan2": sp.atan2,
    "sinh": sp.sinh,
    "cosh": sp.cosh,
    "tanh": sp.tanh,
    "asinh": sp.asinh,
    "acosh": sp.acosh,
    "atanh": sp.atanh,
    "exp_neg_square": lambda x: sp.exp(-(x**2)),
    "bell": lambda x: sp.exp(-(x**2) / 2),
    "normal_cdf": lambda x: sp.erfc(-x / sp.sqrt(2)) / 2,
    "erf": sp.erf,
    "erfc": sp.erfc,
    "sigmoid": lambda x: 1 / (1 + sp.exp(-x)),
    "logistic": lambda x: 1 / ((1 + sp.exp(x)) * (1 + sp.exp(-x))),
    "sigmoid_difference": lambda a, b: 1 / (1 + sp.exp(b - a)),
    "logistic_difference": lambda a, b: 1 / ((1 + sp.exp(a - b)) * (1 + sp.exp(b - a))),
    "softplus": lambda x: sp.log(1 + sp.exp(x)),
    "silu": lambda x: x / (1 + sp.exp(-x)),
    "silu_slope": lambda x: (1 + x / (1 + sp.exp(x))) / (1 + sp.exp(-x)),
    "gelu": lambda x: x * sp.erfc(-x / sp.sqrt(2)) / 2,
    "gelu_slope": lambda x: (
        sp.erfc(-x / sp.sqrt(2)) / 2 + x * sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)
    ),
    "gelu_tanh": lambda x: x / (1 + sp.exp(-_cubic(x))),
    "gelu_tanh_slope": lambda x: (
        (1 + (3 * _cubic(x) - 2 * _SCALE * x) / (1 + sp.exp(_cubic(x)))) / (1 + sp.exp(-_cubic(x)))
    ),
    "relu": lambda x: _choice(sp.Gt(x, 0, evaluate=False), x, sp.S.Zero),
    "abs": Abs,
    "sign": sign,
    "floor": floor,
    "ceil": ceiling,
    "round": _rounded,
    "trunc": _truncated,
    "one_minus_square": lambda x: (1 - x) * (1 + x),
    "copysign": lambda a, b: Abs(a) * _choice(sp.Lt(b, 0, evaluate=False), -sp.S.One, sp.S.One),
    "minimum": _extremum(sp.Min),
    "maximum": _extremum(sp.Max),
    "lt": _relation(sp.Lt),
    "le": _relation(sp.Le),
    "eq": _relation(sp.Eq),
    "ne": _relation(sp.Ne),
    "logical_and": sp.And,
    "logical_or": sp.Or,
    "logical_xor": sp.Xor,
    "logical_not": sp.Not,
    "isnan": lambda _: sp.false,
    "isinf": lambda _: sp.false,
    "isfinite": lambda _: sp.true,
    "where": _choice,
    "stop_gradient": lambda x: x,
    "opaque": lambda x: x,
}
"""SymPy's form of each operation, by its name."""


def _own_function(op: Op) -> Any:
    """A function of SymPy with the name of a row, its derivatives and its value."""

    def fdiff(self: Any, argindex: int = 1) -> Any:
        graph = Graph()
        graph.tracing = False
        variables = [Expr(graph, graph.input(f"a{k}")) for k in range(op.arity)]
        assert op.partials, f"{op.name} needs partials, or a meaning in SymPy"
        slope = op.partials(op(*variables), *variables)[argindex - 1]
        return to_sympy(slope, {f"a{k}": a for k, a in enumerate(self.args)}, 50)

    return type(op.name, (sp.Function,), {"fdiff": fdiff, "nargs": op.arity, "is_real": True})


TO_SYMPY.update({op.name: op.sympy or _own_function(op) for op in ops.TABLE.values() if op.exact})


def to_sympy(expr: Handle, names: Mapping[str, Any] | None = None, digits: int = 17) -> Any:
    """The expression in SymPy, its variables as real symbols of the same names.

    Every constant has exactly its value as a double: an integer or a fraction where that is short,
    else a ``Float`` of ``digits`` digits (at least 17), to which SymPy rounds when it combines
    constants. -0.0 becomes 0. ``stop_gradient`` and ``custom_vjp`` leave their value only, so SymPy
    differentiates through them.

    Args:
        expr: an expression or a condition.
        names: what to put for variables, by name, instead of a real symbol.
        digits: the precision of constants.

    Raises:
        InputTypeError: if an operation on the bits of a float is in the expression.
        UnsupportedError: if a loop or a choice of sides is.
        InputError: if it is nested deeper than SymPy, which recurses, can go, or compares what
            SymPy knows to be no real number (1/0).

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> sg.to_sympy(sg.sin(x) ** 2 / y + 0.5)
        1/2 + sin(x)**2/y
    """
    try:
        return _converted(expr.graph, expr.id, names or {}, max(digits, 17))
    except RecursionError:  # the thousand frames of its traceback say nothing
        raise InputError(
            "the expression is nested too deeply for SymPy, which recurses: raise "
            "sys.setrecursionlimit, or convert parts of it"
        ) from None


def _converted(graph: Graph, root: int, names: Mapping[str, Any], digits: int) -> Any:
    require_straight(graph, [root], "an expression of SymPy")
    order = reachable(graph, [root])
    once = {i for i, n in users(graph, order).items() if n == 1}
    values: dict[int, Any] = {}
    sums: dict[int, list[Any]] = {}  # a sum that only another sum uses: its terms so far
    for i in order:
        node = graph.nodes[i]
        if node[0] is ops.add:
            sums[i] = _gathered(graph.args(i), values, sums, once)
        elif node[0].arity:
            arguments = [_realized(a, values, sums) for a in graph.args(i)]
            values[i] = _built(node[0], arguments)
        else:
            values[i] = _leaf(graph, i, names, digits)
    return _realized(root, values, sums)


def _gathered(
    arguments: Sequence[int], values: dict[int, Any], sums: dict[int, list[Any]], once: set[int]
) -> list[Any]:
    """The terms of a sum, taken over from its arguments: one flat sum, not one within the other."""
    own = [a for a in arguments if a in sums and a in once]
    terms = sums.pop(own[0]) if own else []
    for a in arguments:
        if not own or a != own[0]:
            terms.append(_realized(a, values, sums))
    return terms


def _realized(i: int, values: dict[int, Any], sums: dict[int, list[Any]]) -> Any:
    if i in sums:
        values[i] = sp.Add(*sums.pop(i))
    return values[i]


def _built(op: Op, arguments: Sequence[Any]) -> Any:
    build = _operation(op)
    try:
        return build(*arguments)
    except (TypeError, ValueError) as error:  # a comparison of what SymPy knows not to be real
        raise InputError(f"SymPy cannot express {op.name} here: {error}") from error


def _operation(op: Op) -> Builder:
    if op.name in TO_SYMPY:
        return TO_SYMPY[op.name]
    if op.transparent:
        return _first
    assert "u" in op.signature, f"{op.name} needs an entry in TO_SYMPY"
    raise InputTypeError(f"{op.name} cannot go to SymPy: {_ONLY_BITS}")


def _first(value: Any, *_: Any) -> Any:
    return value


def _leaf(graph: Graph, i: int, names: Mapping[str, Any], digits: int) -> Any:
    node = graph.nodes[i]
    if node[0] is INPUT:
        name = graph.names[node[1]]
        return names.get(name, sp.Symbol(name, real=True))
    if node[0] is TRUTH:
        return sp.true if node[1] else sp.false
    return _constant(bits_float(node[1]), digits) if node[0] is CONST else sp.Integer(node[1])


def _constant(value: float, digits: int) -> Any:
    if not math.isfinite(value):
        return sp.nan if value != value else sp.oo if value > 0 else -sp.oo
    numerator, denominator = value.as_integer_ratio()
    short = denominator <= 1024 and abs(numerator) < 10**9
    return sp.Rational(numerator, denominator) if short else sp.Float(value, digits)


# --- values ---------------------------------------------------------------------------------------

_MODULES: Final[list[Any]] = [
    {
        "Heaviside": lambda x, at_zero=0.5: at_zero if x == 0 else mp.mpf(x > 0),
        "DiracDelta": lambda x, *_: mp.inf if x == 0 else mp.mpf(0),
        "loggamma": ops.gammaln.exact,
        "betainc_regularized": lambda a, b, x, y: mp.betainc(a, b, x, y, regularized=True),
        **{op.name: op.exact for op in ops.TABLE.values() if op.exact and not op.sympy},
    },
    "mpmath",
]


def compile_sympy(expression: Any, symbols: Sequence[Any], digits: int = 50) -> Callable[..., Any]:
    """A function of numbers, one for each symbol, that gives an ``mpmath.mpf`` by SymPy's own code.

    NaN where the value is not real. It carries twice the digits against cancellation. SymPy's
    derivatives of ``Min`` and ``Max`` (``Heaviside``) are understood.
    """
    pole = sp.Dummy("pole", real=True)  # SymPy's 1/0, which has no sign: a variable that is NaN
    shown = sp.sympify(expression).xreplace({sp.zoo: pole})
    function = sp.lambdify([*symbols, pole], shown, modules=_MODULES, cse=True)

    def evaluate(*numbers: float) -> Any:
        with mp.workdps(2 * digits):
            return real_or_nan(function, *[mp.mpf(n) for n in numbers], mp.nan)

    return evaluate


def real_or_nan(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's value; NaN where it has none among the real numbers."""
    try:
        value = function(*arguments)
    except (ArithmeticError, ValueError, TypeError):
        return mp.nan
    if isinstance(value, int):
        return value
    return mp.nan if isinstance(value, mp.mpc) and value.imag else mp.mpf(mp.re(value))
