"""SymPy's expressions as expressions of ours, in the forms that keep their accuracy in floats."""

# Tables of functions on values of an untyped library:
# pyright: reportMissingTypeStubs=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import sympy

from symgrad.errors import InputTypeError
from symgrad.expr import ops
from symgrad.expr.calls.special import betaln, polygamma
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle, Op
from symgrad.expr.tracers.along import extreme_of
from symgrad.expr.tracers.expression import Expr, as_float, power, var

sp: Final[Any] = sympy
Builder = Callable[..., Any]

# --- functions ------------------------------------------------------------------------------------


def _apply(op: Op, *arguments: Any) -> Any:
    """The operation on expressions, or on numbers if there are no others."""
    if any(isinstance(a, Handle) for a in arguments):
        return op(*arguments)
    with np.errstate(all="ignore"):
        return op.reference(*[np.float64(a) if type(a) is float else a for a in arguments]).item()


def _of(op: Op) -> Builder:
    return lambda *arguments: _apply(op, *arguments)


def _inverse_of(op: Op) -> Builder:
    """1/f(x), such as sec for cos."""
    return lambda x: _apply(ops.reciprocal, _apply(op, x))


def _of_inverse(op: Op) -> Builder:
    """f(1/x), such as asec for acos."""
    return lambda x: _apply(op, _apply(ops.reciprocal, x))


def _balanced(op: Op) -> Builder:
    """One operation on any number of arguments, paired so that no chain is longer than need be."""

    def combine(*arguments: Any) -> Any:
        parts = list(arguments)
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [_apply(op, a, b) for a, b in pairs] + parts[len(parts) & ~1 :]
        return parts[0]

    return combine


def _where(c: Any, a: Any, b: Any) -> Any:
    return _apply(ops.where, c, a, b) if isinstance(c, Handle) else a if c else b


def _piecewise(*pairs: tuple[Any, Any]) -> Any:
    return reduce(lambda rest, pair: _where(pair[1], pair[0], rest), reversed(pairs), float("nan"))


def _heaviside(x: Any, at_zero: Any = 0.5) -> Any:
    below = _apply(ops.lt, x, 0.0)
    return _where(below, 0.0, _where(_apply(ops.lt, 0.0, x), 1.0, at_zero))


def _sinc(x: Any) -> Any:
    """sin(x)/x, SymPy's; ours is that of pi x."""
    return _apply(ops.sinc, _apply(ops.div, x, math.pi))


def _first_kind(n: Any, x: Any) -> Any:
    """The Bessel function J_n(x), n being 0 or 1."""
    if isinstance(n, Handle) or n not in (0, 1):
        raise InputTypeError(
            located(f"SymPy's besselj({n}, x) has a counterpart for n = 0 and n = 1 only")
        )
    return _apply(ops.j1 if n else ops.j0, x)


def _unscaled(op: Op) -> Builder:
    """The incomplete gamma function that SymPy does not divide by gamma(a)."""
    return lambda a, x: _apply(ops.mul, _apply(op, a, x), _apply(ops.exp, _apply(ops.gammaln, a)))


def _regularized_beta(a: Any, b: Any, start: Any, end: Any) -> Any:
    """I_end(a, b) - I_start(a, b)."""
    if start == 0 if not isinstance(start, Handle) else False:
        return _apply(ops.betainc, a, b, end)
    if end == 1 if not isinstance(end, Handle) else False:
        return _apply(ops.betaincc, a, b, start)
    return _apply(ops.sub, _apply(ops.betainc, a, b, end), _apply(ops.betainc, a, b, start))


def _unscaled_beta(a: Any, b: Any, start: Any, end: Any) -> Any:
    """The incomplete beta function that SymPy does not divide by B(a, b)."""
    return _apply(ops.mul, _regularized_beta(a, b, start, end), _apply(ops.exp, betaln(a, b)))


def _power(base: Any, exponent: Any) -> Any:
    if exponent == -1 if not isinstance(exponent, Handle) else False:
        return _apply(ops.reciprocal, base)
    if isinstance(base, Expr):
        return power(as_float(base), exponent)
    return base**exponent if isinstance(exponent, Handle) else _apply(ops.pow, base, exponent)


_SAME: Final = (
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh",
    "atanh", "erf", "erfc", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "hypot", "fma",
    "sign", "floor", "isnan", "isinf",
)  # fmt: skip
"""Functions that have the same name and arguments in SymPy (or in its ``codegen.cfunctions``)."""

FROM_SYMPY: Final[dict[str, Builder]] = {
    **{name: _of(ops.TABLE[name]) for name in _SAME},
    "Abs": _of(ops.abs),
    "ceiling": _of(ops.ceil),
    "frac": _of(ops.fract),
    "Mod": _of(ops.remainder),
    "Sqrt": _of(ops.sqrt),
    "Cbrt": _of(ops.cbrt),
    "Min": lambda *a: extreme_of(ops.minimum, list(a)),
    "Max": lambda *a: extreme_of(ops.maximum, list(a)),
    "Heaviside": _heaviside,
    "sinc": _sinc,
    "gamma": _of(ops.gamma),
    "loggamma": _of(ops.gammaln),
    "polygamma": polygamma,
    "besselj": _first_kind,
    "elliptic_k": _of(ops.ellipk),
    "elliptic_e": _of(ops.ellipe),
    "lowergamma": _unscaled(ops.gammainc),
    "uppergamma": _unscaled(ops.gammaincc),
    "betainc": _unscaled_beta,
    "betainc_regularized": _regularized_beta,
    **{op.name: _of(op) for op in ops.TABLE.values() if op.exact and not op.sympy},
    "sec": _inverse_of(ops.cos),
    "csc": _inverse_of(ops.sin),
    "cot": _inverse_of(ops.tan),
    "sech": _inverse_of(ops.cosh),
    "csch": _inverse_of(ops.sinh),
    "coth": _inverse_of(ops.tanh),
    "asec": _of_inverse(ops.acos),
    "acsc": _of_inverse(ops.asin),
    "acot": _of_inverse(ops.atan),
    "asech": _of_inverse(ops.acosh),
    "acsch": _of_inverse(ops.asinh),
    "acoth": _of_inverse(ops.atanh),
    "StrictLessThan": _of(ops.lt),
    "LessThan": _of(ops.le),
    "StrictGreaterThan": lambda a, b: _apply(ops.lt, b, a),
    "GreaterThan": lambda a, b: _apply(ops.le, b, a),
    "Equality": _of(ops.eq),
    "Unequality": _of(ops.ne),
    "And": _balanced(ops.logical_and),
    "Or": _balanced(ops.logical_or),
    "Xor": _balanced(ops.logical_xor),
    "Not": _of(ops.logical_not),
    "ITE": _where,
    "ExprCondPair": lambda value, condition: (value, condition),
    "Piecewise": _piecewise,
    "Pow": _power,
    "re": lambda x: x,
    "im": lambda _: 0.0,
    "conjugate": lambda x: x,
    "UnevaluatedExpr": lambda x: x,
}
"""symgrad's functions by the names of SymPy's classes; sums and products are below."""


# --- the traversal --------------------------------------------------------------------------------

_THIRD: Final = sp.Rational(1, 3)
_UNEVALUATED: Final = ("Integral", "Derivative", "Sum", "Product", "Limit", "Subs")


def from_sympy(expression: Any, symbols: Mapping[Any, Any] | None = None) -> Any:
    """The expression of a SymPy expression; every symbol stands for a real number.

    A number, if no symbol and no expression is in it.

    Args:
        expression: a scalar SymPy expression or condition.
        symbols: what symbols (or their names) stand for: expressions or numbers. One that is not
            named becomes the variable ``sg.var(name)``.

    Raises:
        InputTypeError: if there is something in it that has no meaning here, with its name.

    Example:
        >>> import sympy, symgrad as sg
        >>> a, b = sympy.symbols("a b")
        >>> loss = (a - 1) ** 2 + 100 * (b - a**2) ** 2
        >>> kernel = sg.fused_forward_backward(2, lambda v: sg.from_sympy(loss, {a: v[0], b: v[1]}))
        >>> kernel.run([1.0, 1.0])[0]
        0.0
    """
    try:
        root = sp.sympify(expression, strict=True)
    except sp.SympifyError as error:
        raise InputTypeError(located(f"{expression!r} is no SymPy expression")) from error
    meanings = {getattr(key, "name", key): value for key, value in (symbols or {}).items()}
    values: dict[Any, Any] = {}
    for node in _arguments_first(root):
        values[node] = _converted(node, values, meanings)
    return _number(values[root])


def _arguments_first(root: Any) -> list[Any]:
    """The different nodes of a SymPy expression, arguments before their users."""
    order: dict[Any, None] = {}
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order[node] = None
        elif node not in order:
            _require_scalar(node)
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args) if a not in order)
    return list(order)


def _require_scalar(node: Any) -> None:
    name = type(node).__name__
    if isinstance(node, (sp.core.function.AppliedUndef, sp.MatrixBase, sp.MatrixExpr)):
        raise InputTypeError(located(f"{node} is no scalar expression of known functions"))
    if name in _UNEVALUATED:
        raise InputTypeError(located(f"{node} is not evaluated: call .doit() on the expression"))
    if name not in FROM_SYMPY and node.args and name not in ("Add", "Mul"):
        names = ", ".join(sorted(FROM_SYMPY.keys() - {"ExprCondPair"}))
        raise InputTypeError(located(f"SymPy's {name} has no counterpart; there are {names}"))


def _converted(node: Any, values: dict[Any, Any], meanings: Mapping[str, Any]) -> Any:
    """A node's value: still SymPy's own object where it is a number that SymPy knows exactly."""
    if isinstance(node, sp.Symbol):
        return _symbol(node.name, meanings)
    if all(isinstance(values[a], sp.Basic) for a in node.args):
        return node
    special = _SPECIAL.get(type(node).__name__)
    value = special(node, values) if special else None
    if value is not None:
        return value
    return FROM_SYMPY[type(node).__name__](*[_number(values[a]) for a in node.args])


def _symbol(name: str, meanings: Mapping[str, Any]) -> Any:
    value = meanings[name] if name in meanings else var(name)
    return value if isinstance(value, Handle) else float(value)


def _number(value: Any) -> Any:
    """The value, rounded to a double if it is still SymPy's."""
    if not isinstance(value, sp.Basic):
        return value
    if value in (sp.true, sp.false):
        return bool(value)
    if isinstance(value, sp.functions.elementary.piecewise.ExprCondPair):
        return tuple(_number(a) for a in value.args)
    try:
        return float(value.evalf(25))
    except TypeError as error:
        raise InputTypeError(located(f"{value} is not a real number")) from error


# --- nodes whose arguments are looked at ----------------------------------------------------------


def _sum(node: Any, values: dict[Any, Any]) -> Any:
    """A balanced sum, less the balanced sum of what has a minus sign; exp(x) - 1 is expm1(x)."""
    plus: list[Any] = []
    minus: list[Any] = []
    terms = list(node.args)
    powers = [t for t in terms if isinstance(t, sp.exp)]
    if terms[0] == -1 and powers:
        terms = [t for t in terms[1:] if t != powers[0]]
        plus.append(_apply(ops.expm1, _number(values[powers[0].args[0]])))
    for term in terms:
        negative = term.is_Mul and term.args[0].is_Number and term.args[0].is_negative
        if negative and not isinstance(values[term], sp.Basic):
            minus.append(_factors((-term.args[0], *term.args[1:]), values))
        else:
            plus.append(_number(values[term]))
    return _difference(plus, minus)


def _difference(plus: list[Any], minus: list[Any]) -> Any:
    if not plus:
        return _apply(ops.neg, _balanced(ops.add)(*minus))
    total = _balanced(ops.add)(*plus)
    return _apply(ops.sub, total, _balanced(ops.add)(*minus)) if minus else total


def _product(node: Any, values: dict[Any, Any]) -> Any:
    return _factors(node.args, values)


def _factors(factors: Sequence[Any], values: dict[Any, Any]) -> Any:
    """The product of the factors above the line, divided by that of those below."""
    above: list[Any] = []
    below: list[Any] = []
    for factor in factors:
        if factor in (1, -1):
            continue
        if factor.is_Pow and factor.exp.is_Rational and factor.exp < 0 and not _logistic(factor):
            below.append(_power(_number(values[factor.base]), -_number(factor.exp)))
        else:
            above.append(_number(values.get(factor, factor)))
    top = _balanced(ops.mul)(*above) if above else 1.0
    result = _apply(ops.div, top, _balanced(ops.mul)(*below)) if below else top
    return _apply(ops.neg, result) if factors[0] == -1 else result


def _one_plus_exp(node: Any) -> bool:
    """Whether the node is 1 + exp(x)."""
    return node.is_Add and len(node.args) == 2 and node.args[0] == 1 and node.args[1].func is sp.exp


def _logistic(node: Any) -> bool:
    return node.exp.is_Integer and node.exp < 0 and _one_plus_exp(node.base)


def _root(node: Any, values: dict[Any, Any]) -> Any:
    """1/(1 + exp(-x)) as sigmoid, and the cube root of what cannot be negative."""
    if _logistic(node):
        x = _number(values[node.base.args[1].args[0]])
        return _power(_apply(ops.sigmoid, _apply(ops.neg, x)), -int(node.exp))
    if node.exp in (_THIRD, -_THIRD) and node.base.is_nonnegative:
        root = _apply(ops.cbrt, _number(values[node.base]))
        return root if node.exp == _THIRD else _apply(ops.reciprocal, root)
    return None


def _logarithm(node: Any, values: dict[Any, Any]) -> Any:
    """log(1 + exp(x)) as softplus, log(1 - exp(x)) as log1mexp of -x, log(1 + x) as log1p.

    log(exp(x) + exp(y)) is logaddexp.
    """
    inner = node.args[0]
    if (1 - inner).func is sp.exp:
        return _apply(ops.log1mexp, _apply(ops.neg, _number(values[(1 - inner).args[0]])))
    if _one_plus_exp(inner):
        return _apply(ops.softplus, _number(values[inner.args[1].args[0]]))
    if inner.is_Add and all(isinstance(t, sp.exp) for t in inner.args):
        return _balanced(ops.logaddexp)(*[_number(values[t.args[0]]) for t in inner.args])
    if inner.is_Add and inner.args[0] == 1:
        return _apply(ops.log1p, _balanced(ops.add)(*[_number(values[t]) for t in inner.args[1:]]))
    return None


_SPECIAL: Final[dict[str, Callable[[Any, dict[Any, Any]], Any]]] = {
    "Add": _sum,
    "Mul": _product,
    "Pow": _root,
    "log": _logarithm,
}
"""Conversions that look at more than the values of the arguments; None leaves it to the table."""
