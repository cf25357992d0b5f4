"""The meaning of a graph over the real numbers: an interpreter to any number of digits.

It owes nothing to the NumPy references, so that the two can be held against each other.
"""

# Tables of functions on values of an untyped library:
# pyright: reportMissingTypeStubs=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import mpmath

from symgrad.errors import InputError, InputTypeError
from symgrad.expr.calls.sympy_bridge import real_or_nan
from symgrad.expr.graph.arrays import FRESH, ZEROS
from symgrad.expr.graph.node import CONST, TRUTH, Graph, Node, Op, bits_float, reachable
from symgrad.expr.graph.region import Choice, Loop, Pick, Region
from symgrad.expr.ops import TABLE

mp: Final[Any] = mpmath
Function = Callable[..., Any]

GUARD_DIGITS: Final = 15
"""Digits that a computation carries beyond those it promises."""

_HUGE: Final = 10**7
"""exp of more than this is infinity: far beyond every float, and mpmath would need a minute."""


def evaluate_exactly(
    graph: Graph, roots: Sequence[int], inputs: Mapping[int, float], digits: int = 50
) -> list[Any]:
    """The values of the roots at one point, each an ``mpmath.mpf`` (a bool for a condition).

    ``inputs`` maps input nodes (their ids) to numbers. NaN stands outside an operation's domain,
    an infinity at its poles; zeros have no sign, so 1/-0.0 is +inf.

    Raises:
        InputError: if an input that the roots need has no value.
        InputTypeError: if an operation works on the bits of a float.
    """
    with mp.workdps(digits + GUARD_DIGITS):
        return _values(graph, roots, {i: mp.mpf(x) for i, x in inputs.items()})


def _values(graph: Graph, roots: Sequence[int], inputs: Mapping[int, Any]) -> list[Any]:
    """The values of the roots; those of words are integers, those of arrays are tuples."""
    values: dict[int, Any] = {}
    for i in reachable(graph, roots):
        node = graph.nodes[i]
        if node[0].arity:
            values[i] = _evaluated(node[0], [values[a] for a in graph.args(i)])
        else:
            values[i] = _leaf(graph, node, inputs.get(i))
    return [values[i] for i in roots]


def _evaluated(op: Op, arguments: Sequence[Any]) -> Any:
    """The value of an operation on mpmath's numbers."""
    if op.transparent:
        return arguments[0]
    if isinstance(op, Loop):
        return _looped(op, *arguments)
    if isinstance(op, Choice):
        side = op.sides()[0 if arguments[0] else 1]
        return _values(op.body.graph, side, _inputs(op.body, arguments[1:]))
    if isinstance(op, Pick):
        return arguments[0][op.index]
    if op.name in _STRUCTURE:
        return _STRUCTURE[op.name](*arguments)
    assert op.name in EXACT or "u" in op.signature, f"{op.name} needs an entry in EXACT"
    if op.name not in EXACT:
        raise InputTypeError(f"{op.name} works on the bits of a float, not on real numbers")
    if op.name not in _TAKES_NAN and any(a != a for a in arguments):
        return False if op.result == "b" else mp.nan
    return real_or_nan(EXACT[op.name], *arguments)


def _looped(op: Loop, lo: int, hi: int, *rest: Any) -> list[Any]:
    """The last carries of a loop, and how many iterations it took."""
    body, (carries, captures) = op.body, op.split(rest)
    iterations = 0
    for k in range(lo, hi)[:: -1 if op.down else 1][: op.most]:
        inputs = _inputs(body, [k, *carries, *captures])
        if not all(_values(body.graph, body.yields[op.carries :], inputs)):  # its test
            break
        carries = _values(body.graph, body.yields[: op.carries], inputs)
        iterations += 1
    return [*carries, iterations]


def _inputs(body: Region, values: Sequence[Any]) -> dict[int, Any]:
    return dict(zip(body.params, values, strict=True))


def _leaf(graph: Graph, node: Node, value: Any) -> Any:
    """The value of a leaf, ``value`` of an input."""
    if node[0] in FRESH:
        return (mp.mpf(0) if node[0] is ZEROS else mp.nan,) * node[1]
    if not node[0].constant:
        if value is None:
            raise InputError(f"no value for {graph.names[node[1]]}: give one for every input")
        return value
    if node[0] is TRUTH:
        return bool(node[1])
    return mp.mpf(bits_float(node[1])) if node[0] is CONST else int(node[1])


# --- words and arrays -----------------------------------------------------------------------------


def _put(a: tuple[Any, ...], i: int, value: Any) -> tuple[Any, ...]:
    i = min(i, len(a) - 1)
    return (*a[:i], value, *a[i + 1 :])


def _get(a: tuple[Any, ...], i: int) -> Any:
    return a[min(i, len(a) - 1)]


_WORDS: Final = 2**32

_STRUCTURE: Final[dict[str, Function]] = {
    "get": _get,
    "get_w": _get,
    "put": _put,
    "put_w": _put,
    "add_at": lambda a, i, value: _put(a, i, _get(a, i) + value),
    "word_add": lambda a, b: (a + b) % _WORDS,
    "word_sub": lambda a, b: (a - b) % _WORDS,
    "word_mul": lambda a, b: (a * b) % _WORDS,
    "word_div": operator.floordiv,
    "word_min": min,
    "word_and": operator.and_,
    "word_or": operator.or_,
    "word_xor": operator.xor,
    "word_lt": operator.lt,
    "word_eq": operator.eq,
    "word_where": lambda c, a, b: a if c else b,
    "word_float": mpmath.mpf,
    "nearest_word": lambda x: int(mp.nint(x)) % _WORDS,
}
"""Operations on words and arrays, by which loops count, compare and index."""

# --- operations -----------------------------------------------------------------------------------


def _quotient(a: Any, b: Any) -> Any:
    return a / b if b else (mp.nan if not a else mp.sign(a) * mp.inf)


def _limited(function: Function) -> Function:
    """A function that grows as exp does, odd or even or 0 to the left, cut off far outside."""

    def bounded(x: Any) -> Any:
        return function(x if abs(x) <= _HUGE else mp.sign(x) * mp.inf)

    return bounded


_exp: Final = _limited(mp.exp)


def _power(x: Any, p: Any) -> Any:
    if not x and p < 0:
        return mp.inf
    if x and abs(x) != 1 and abs(p * mp.log(abs(x))) > _HUGE:
        return _exp(p * mp.log(abs(x))) * (-1 if x < 0 and p % 2 else 1)
    return mp.power(x, p)


def _integer_power(x: Any, k: int) -> Any:
    if not x and k < 0:
        return mp.inf
    return x**k


def _remainder(a: Any, b: Any) -> Any:
    """a modulo b with the sign of b, exact however large a/b is."""
    if mp.isinf(b) and mp.isfinite(a):
        return a if a * b >= 0 else b
    return a % b


def _fmod(a: Any, b: Any) -> Any:
    return mp.sign(a) * _remainder(abs(a), abs(b))


def _softplus(x: Any) -> Any:
    return max(x, mp.mpf(0)) + mp.log1p(_exp(-abs(x)))


def _sigmoid_slope(z: Any, b: Any) -> Any:
    """s(z)(1 + b s(-z)), s the sigmoid: the derivative of x s(z), b = x z'."""
    return (1 + b / (1 + _exp(z))) / (1 + _exp(-z))


def _scale() -> Any:
    return 2 * mp.sqrt(2 / mp.pi)


def _cubic(x: Any) -> Any:
    """2 sqrt(2/pi)(x + 0.044715 x**3)."""
    return _scale() * (x + mp.mpf(44715) / 10**6 * x**3)


def _logaddexp(a: Any, b: Any) -> Any:
    return a if a == b == -mp.inf else max(a, b) + mp.log1p(_exp(-abs(a - b)) if a != b else 1)


def _logistic(x: Any) -> Any:
    return _exp(-abs(x)) / (1 + _exp(-abs(x))) ** 2


def _reciprocal(a: Any, b: Any) -> Any:
    """1/(a + ib), 0 at 0 and at infinity."""
    away = (a or b) and mp.isfinite(a) and mp.isfinite(b)
    return 1 / mp.mpc(a, b) if away else mp.mpc(0)


def _integral(rounding: Function) -> Function:
    return lambda x: x if mp.isinf(x) else rounding(x)


def _truncated(x: Any) -> Any:
    return mp.floor(x) if x > 0 else mp.ceil(x)


def _log(base: Function) -> Function:
    return lambda x: base(x) if x else -mp.inf


def _atanh(x: Any) -> Any:
    return x * mp.inf if abs(x) == 1 else mp.atanh(x)


EXACT: Final[dict[str, Function]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _quotient,
    "neg": operator.neg,
    "reciprocal": lambda x: _quotient(mp.mpf(1), x) if x else mp.inf,
    "fma": lambda a, b, c: a * b + c,
    "remainder": _remainder,
    "fmod": _fmod,
    "integer_pow": _integer_power,
    "pow": _power,
    "pow_times": lambda c, x, p, k: c * _power(x, p + k) if c else c,
    "sqrt": mp.sqrt,
    "rsqrt": lambda x: 1 / mp.sqrt(x) if x else mp.inf,
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "hypot": mp.hypot,
    "direction": lambda a, b: mp.sign(a) if mp.isinf(a) else a / (mp.hypot(a, b) or 1),
    "real_reciprocal": lambda a, b: mp.re(_reciprocal(a, b)),
    "real_reciprocal_square": lambda a, b: mp.re(_reciprocal(a, b) ** 2),
    "exp": _exp,
    "exp2": lambda x: _exp(x * mp.ln2),
    "expm1": _limited(mp.expm1),
    "log": _log(mp.log),
    "log2": _log(lambda x: mp.log(x) / mp.ln2),
    "log10": _log(mp.log10),
    "log1p": lambda x: mp.log1p(x) if x != -1 else -mp.inf,
    "logaddexp": _logaddexp,
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "atan2": mp.atan2,
    "sinh": _limited(mp.sinh),
    "cosh": _limited(mp.cosh),
    "tanh": mp.tanh,
    "asinh": mp.asinh,
    "acosh": mp.acosh,
    "atanh": _atanh,
    "exp_neg_square": lambda x: _exp(-x * x),
    "bell": lambda x: _exp(-x * x / 2),
    "normal_cdf": mp.ncdf,
    "erf": mp.erf,
    "erfc": mp.erfc,
    "sigmoid": lambda x: 1 / (1 + _exp(-x)),
    "logistic": _logistic,
    "sigmoid_difference": lambda a, b: 1 / (1 + _exp(b - a if a != b else 0)),
    "logistic_difference": lambda a, b: _logistic(a - b if a != b else 0),
    "softplus": _softplus,
    "silu": lambda x: x / (1 + _exp(-x)),
    "silu_slope": lambda x: _sigmoid_slope(x, x),
    "gelu": lambda x: x * mp.ncdf(x),
    "gelu_slope": lambda x: mp.ncdf(x) + x * mp.npdf(x),
    "gelu_tanh": lambda x: x / (1 + _exp(-_cubic(x))),
    "gelu_tanh_slope": lambda x: _sigmoid_slope(_cubic(x), 3 * _cubic(x) - 2 * _scale() * x),
    "relu": lambda x: max(x, mp.mpf(0)),
    "abs": abs,
    "sign": mp.sign,
    "floor": _integral(mp.floor),
    "ceil": _integral(mp.ceil),
    "round": _integral(mp.nint),
    "trunc": _integral(_truncated),
    "one_minus_square": lambda x: (1 - x) * (1 + x),
    "copysign": lambda a, b: -abs(a) if b < 0 else abs(a),
    "minimum": min,
    "maximum": max,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "logical_and": lambda a, b: bool(a and b),
    "logical_or": lambda a, b: bool(a or b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
    "logical_not": operator.not_,
    "isnan": mp.isnan,
    "isinf": mp.isinf,
    "isfinite": mp.isfinite,
    "where": lambda c, a, b: a if c else b,
    "opaque": operator.pos,
    **{op.name: op.exact for op in TABLE.values() if op.exact},
}
"""The operations on mpmath's numbers, by name."""

_TAKES_NAN: Final = frozenset({"where", "isnan", "isinf", "isfinite", "ne"})
