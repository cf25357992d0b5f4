"""To and from SymPy; neither direction recurses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import sympy as sp

from symgrad.errors import InputTypeError
from symgrad.expr import ops
from symgrad.expr.node import CONST, INPUT, TRUTH, Graph, Handle, Op, reachable
from symgrad.expr.variables import var

# --- to SymPy -------------------------------------------------------------------------------------


def _half_to_even(x: Any) -> Any:
    """The nearest integer; SymPy has no such function, so it is floor(x + 1/2), less 1 at odd ties."""
    up = sp.floor(x + sp.Rational(1, 2))
    return sp.Piecewise((up - 1, sp.And(sp.Eq(up - x, sp.Rational(1, 2)), sp.Eq(sp.Mod(up, 2), 1))),
                        (up, True))  # fmt: skip


def _trunc(x: Any) -> Any:
    return sp.Piecewise((sp.floor(x), x >= 0), (sp.ceiling(x), True))


def _copysign(a: Any, b: Any) -> Any:
    return sp.Piecewise((sp.Abs(a), b >= 0), (-sp.Abs(a), True))


_SYMPY: Final[dict[Op, Callable[..., Any]]] = {
    ops.add: lambda a, b: a + b,
    ops.sub: lambda a, b: a - b,
    ops.mul: lambda a, b: a * b,
    ops.div: lambda a, b: a / b,
    ops.neg: lambda a: -a,
    ops.reciprocal: lambda a: 1 / a,
    ops.fma: lambda a, b, c: a * b + c,
    ops.remainder: lambda a, b: a - b * sp.floor(a / b),
    ops.fmod: lambda a, b: a - b * _trunc(a / b),
    ops.integer_pow: lambda a, k: a**k,
    ops.pow: lambda a, p: a**p,
    ops.sqrt: sp.sqrt,
    ops.rsqrt: lambda a: 1 / sp.sqrt(a),
    ops.cbrt: lambda a: sp.sign(a) * sp.Abs(a) ** sp.Rational(1, 3),
    ops.hypot: lambda a, b: sp.sqrt(a**2 + b**2),
    ops.exp: sp.exp,
    ops.exp2: lambda a: 2**a,
    ops.expm1: lambda a: sp.exp(a) - 1,
    ops.log: sp.log,
    ops.log2: lambda a: sp.log(a) / sp.log(2),
    ops.log10: lambda a: sp.log(a) / sp.log(10),
    ops.log1p: lambda a: sp.log(1 + a),
    ops.logaddexp: lambda a, b: sp.log(sp.exp(a) + sp.exp(b)),
    ops.sin: sp.sin,
    ops.cos: sp.cos,
    ops.tan: sp.tan,
    ops.asin: sp.asin,
    ops.acos: sp.acos,
    ops.atan: sp.atan,
    ops.atan2: sp.atan2,
    ops.sinh: sp.sinh,
    ops.cosh: sp.cosh,
    ops.tanh: sp.tanh,
    ops.asinh: sp.asinh,
    ops.acosh: sp.acosh,
    ops.atanh: sp.atanh,
    ops.exp_neg_square: lambda a: sp.exp(-(a**2)),
    ops.erf: sp.erf,
    ops.erfc: sp.erfc,
    ops.sigmoid: lambda a: 1 / (1 + sp.exp(-a)),
    ops.softplus: lambda a: sp.log(1 + sp.exp(a)),
    ops.relu: lambda a: sp.Piecewise((a, a > 0), (0, True)),
    ops.abs: sp.Abs,
    ops.sign: sp.sign,
    ops.floor: sp.floor,
    ops.ceil: sp.ceiling,
    ops.round: _half_to_even,
    ops.trunc: _trunc,
    ops.copysign: _copysign,
    ops.minimum: lambda a, b: sp.Piecewise((a, a <= b), (b, True)),
    ops.maximum: lambda a, b: sp.Piecewise((a, a >= b), (b, True)),
    ops.lt: lambda a, b: a < b,
    ops.le: lambda a, b: a <= b,
    ops.eq: lambda a, b: sp.Eq(a, b),
    ops.ne: lambda a, b: sp.Ne(a, b),
    ops.logical_and: lambda a, b: sp.And(a, b),
    ops.logical_or: lambda a, b: sp.Or(a, b),
    ops.logical_xor: lambda a, b: sp.Xor(a, b),
    ops.logical_not: lambda a: sp.Not(a),
    ops.isnan: lambda a: sp.false,
    ops.isinf: lambda a: sp.false,
    ops.isfinite: lambda a: sp.true,
    ops.where: lambda c, a, b: sp.Piecewise((a, c), (b, True)),
    ops.opaque: lambda a: a,
}


def to_sympy(expr: Handle) -> Any:
    """The expression in SymPy, over real symbols of the variables' names; constants are exact.

    Functions become what they mean over the real numbers: sigmoid(x) is 1/(1 + exp(-x)), where a
    Piecewise, minimum and maximum too. NaN and rounding have no place there.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.to_sympy(sg.sin(x) ** 2 / 2)
        sin(x)**2/2
    """
    graph = expr.graph
    made: dict[int, Any] = {}
    for i in reachable(graph, [expr.id]):
        node = graph.nodes[i]
        if not node[0].arity:
            made[i] = _sympy_leaf(graph, i)
        elif node[0].transparent:
            made[i] = made[node[1]]
        else:
            made[i] = _builder(node[0])(*[made[a] for a in node[1:]])
    return made[expr.id]


def _builder(op: Op) -> Callable[..., Any]:
    if op not in _SYMPY:
        raise InputTypeError(f"{op.name} works on bits and has no meaning in SymPy")
    return _SYMPY[op]


def _sympy_leaf(graph: Graph, i: int) -> Any:
    op, payload = graph.nodes[i]
    if op is INPUT:
        return sp.Symbol(graph.names[payload], real=True)
    value = Graph.leaf_value(graph.nodes[i])
    if op is CONST:
        return exactly(float(value))
    return sp.true if op is TRUTH and value else sp.false if op is TRUTH else sp.Integer(value)


def exactly(value: float) -> Any:
    """The double as the rational number that it is."""
    if value != value:
        return sp.nan
    if value in (float("inf"), float("-inf")):
        return sp.oo if value > 0 else -sp.oo
    return sp.Rational(*value.as_integer_ratio())


# --- from SymPy -----------------------------------------------------------------------------------


def _total(*terms: Any) -> Any:
    return _tree(lambda a, b: a + b, terms)


def _product(*factors: Any) -> Any:
    """The product; factors 1/b become divisors, as one would write it."""
    return _tree(lambda a, b: a * b, factors)


def _tree(join: Callable[[Any, Any], Any], parts: Any) -> Any:
    parts = list(parts)
    while len(parts) > 1:
        paired = [join(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = paired + parts[2 * len(paired) :]
    return parts[0]


def _call(op: Op) -> Callable[..., Any]:
    return lambda *args: op(*args) if any(isinstance(a, Handle) for a in args) else _fold(op, args)


def _fold(op: Op, args: tuple[Any, ...]) -> float:
    return float(op.reference(*[float(a) for a in args]))


def _power(x: Any, p: Any) -> Any:
    if not isinstance(x, Handle) and not isinstance(p, Handle):
        return float(x) ** p
    if isinstance(p, float) and p == int(p):
        p = int(p)
    return _exp(p) if isinstance(x, float) and x == float(sp.E) else x**p


_exp = _call(ops.exp)

_FROM: Final[dict[Any, Callable[..., Any]]] = {
    sp.Add: _total,
    sp.Mul: _product,
    sp.Pow: _power,
    sp.exp: _exp,
    sp.log: lambda x, base=None: _call(ops.log)(x) / (_call(ops.log)(base) if base else 1.0),
    sp.sin: _call(ops.sin),
    sp.cos: _call(ops.cos),
    sp.tan: _call(ops.tan),
    sp.cot: lambda x: 1.0 / _call(ops.tan)(x),
    sp.sec: lambda x: 1.0 / _call(ops.cos)(x),
    sp.csc: lambda x: 1.0 / _call(ops.sin)(x),
    sp.asin: _call(ops.asin),
    sp.acos: _call(ops.acos),
    sp.atan: _call(ops.atan),
    sp.atan2: _call(ops.atan2),
    sp.sinh: _call(ops.sinh),
    sp.cosh: _call(ops.cosh),
    sp.tanh: _call(ops.tanh),
    sp.asinh: _call(ops.asinh),
    sp.acosh: _call(ops.acosh),
    sp.atanh: _call(ops.atanh),
    sp.erf: _call(ops.erf),
    sp.erfc: _call(ops.erfc),
    sp.Abs: _call(ops.abs),
    sp.sign: _call(ops.sign),
    sp.floor: _call(ops.floor),
    sp.ceiling: _call(ops.ceil),
    sp.Mod: lambda a, b: a % b,
    sp.Min: lambda *args: _tree(_call(ops.minimum), args),
    sp.Max: lambda *args: _tree(_call(ops.maximum), args),
    sp.Heaviside: lambda x, at_0=0.5: ops.where(x > 0.0, 1.0, ops.where(x < 0.0, 0.0, at_0)),
    sp.StrictLessThan: lambda a, b: a < b,
    sp.LessThan: lambda a, b: a <= b,
    sp.StrictGreaterThan: lambda a, b: a > b,
    sp.GreaterThan: lambda a, b: a >= b,
    sp.Equality: lambda a, b: a == b,
    sp.Unequality: lambda a, b: a != b,
    sp.And: lambda *args: _tree(lambda a, b: a & b, args),
    sp.Or: lambda *args: _tree(lambda a, b: a | b, args),
    sp.Xor: lambda *args: _tree(lambda a, b: a ^ b, args),
    sp.Not: lambda a: ~a,
    sp.ITE: lambda c, a, b: (c & a) | (~c & b),
}


def from_sympy(expression: Any, symbols: Mapping[Any, Any] | None = None) -> Any:
    """A SymPy expression as one of symgrad's.

    ``symbols`` maps SymPy's symbols, or their names, to expressions or numbers; with
    ``dict(zip(symbols, v))`` a SymPy expression is a loss. A symbol that is not in it becomes the
    variable ``sg.var`` of its name.

    Raises:
        InputTypeError: for a function that symgrad has not, complex numbers, and unevaluated
            integrals and derivatives.

    Example:
        >>> import sympy as sp, symgrad as sg
        >>> x, y = sp.symbols("x y")
        >>> kernel = sg.fused_forward_backward(
        ...     2, lambda v: sg.from_sympy(sp.cos(x) + y**2, {x: v[0], y: v[1]}))
        >>> kernel.run([0.0, 3.0])[0]
        10.0
    """
    given = {str(k): v for k, v in (symbols or {}).items()}
    made: dict[Any, Any] = {}
    for part in _postorder(sp.sympify(expression)):
        if part not in made:
            made[part] = _convert(part, made, given)
    return made[sp.sympify(expression)]


def _postorder(expression: Any) -> Iterator[Any]:
    """Every part after its own parts, the same one only once."""
    stack, seen = [(expression, False)], set()
    while stack:
        part, ready = stack.pop()
        if ready:
            yield part
        elif part not in seen:
            seen.add(part)
            stack.append((part, True))
            stack.extend((a, False) for a in reversed(part.args))


def _convert(part: Any, made: Mapping[Any, Any], given: Mapping[str, Any]) -> Any:
    if part.is_Symbol:
        return given[part.name] if part.name in given else var(part.name)
    if part in (sp.true, sp.false):
        return bool(part)
    if not part.free_symbols and part.is_number:
        return _number(part)
    if isinstance(part, sp.functions.elementary.piecewise.ExprCondPair):
        return (made[part.args[0]], made[part.args[1]])
    if isinstance(part, sp.Piecewise):
        return _piecewise([made[a] for a in part.args])
    builder = _FROM.get(type(part)) or next(
        (b for kind, b in _FROM.items() if isinstance(part, kind)), None
    )
    if builder is None:
        raise InputTypeError(_unknown(part))
    return builder(*[made[a] for a in part.args])


def _number(part: Any) -> float:
    if part is sp.nan:
        return float("nan")
    if part.is_extended_real is False or part is sp.zoo:
        raise InputTypeError(f"{part} is not a real number")
    return float(part)


def _piecewise(pairs: list[tuple[Any, Any]]) -> Any:
    """Nested choices; where no condition holds the value is NaN, as in SymPy."""
    result: Any = float("nan")
    for value, condition in reversed(pairs):
        if isinstance(condition, Handle):
            result = ops.where(condition, value, result)
        elif condition:
            result = value
    return result


def _unknown(part: Any) -> str:
    name = type(part).__name__
    if isinstance(part, (sp.Integral, sp.Derivative, sp.Sum, sp.Limit)):
        return f"{part} is not evaluated: call .doit() on it first"
    known = ", ".join(sorted(kind.__name__ for kind in _FROM if issubclass(kind, sp.Function)))
    return f"SymPy's {name} has no counterpart: {known} and Piecewise have; rewrite {part}"

