"""The operations as public functions: on expressions, on arrays of them, and on numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

import numpy as np

from symgrad.errors import TraceError, counted
from symgrad.expr import ops, references
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle, Op
from symgrad.expr.tracers.array import call, holds_expressions, map_elements
from symgrad.expr.tracers.expression import Expr, as_float, lift, power
from symgrad.expr.tracers.integers import SignedWord, Word, as_word
from symgrad.expr.tracers.tree import Tree, flatten

# --- casts ----------------------------------------------------------------------------------------
# Casts between real numbers and integers of 32 bits.

_Integer = TypeVar("_Integer", bound=Word)


def uint32(x: Any) -> Any:
    """The number as an unsigned integer of 32 bits, rounded towards 0.

    What lies beyond 0 and 2**32 - 1 becomes the nearer of them, and NaN 0; a signed integer keeps
    its bits. The operators of integers are NumPy's: see `Word`. An integer has no
    derivative: where it is made a real number again, by arithmetic with one or as the result of a
    kernel, that is taken for a constant.

    Args:
        x: An expression, an array of them, or numbers; counters of loops are taken as they are.

    Returns:
        An integer expression, an array of them, or NumPy's uint32.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(1, lambda v: sg.uint32(v[0]) % 8 ^ 1, device="cpu")
        >>> kernel.run([21.7])
        4.0
    """
    return _cast(x, Word)


def int32(x: Any) -> Any:
    """The number as a signed integer of 32 bits, rounded towards 0: as `uint32`, of either sign.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(1, lambda v: sg.int32(v[0]) // 4, device="cpu")
        >>> kernel.run([-7.9])
        -2.0
    """
    return _cast(x, SignedWord)


def _cast(x: Any, kind: type[_Integer]) -> Any:
    if holds_expressions(x):
        return map_elements(lambda e: as_word(e, kind), x)
    values = np.asarray(x)
    if values.dtype.kind in "iub":
        return values.astype(kind.name)[()]
    integers = (references.int32 if kind is SignedWord else references.uint32)(values)
    return integers.view(kind.name)[()]


# --- operations -----------------------------------------------------------------------------------


def names(op: Op) -> list[str]:
    """The names of an operation's arguments, taken from the code of its derivative."""
    source, skipped = (op.compose, 0) if op.compose else (op.partials, 1)
    source, skipped = (source, skipped) if source else (op.vjp, 2)
    if source is None:
        return ["x"] if op.arity == 1 else list("abc"[: op.arity])
    return list(signature(source).parameters)[skipped : skipped + op.arity]


def document(op: Op) -> str:
    """The docstring of an operation, from its row."""
    lines = [op.meaning[0].upper() + op.meaning[1:] + ".", ""]
    lines += ["Takes expressions, arrays of them, or numbers, and broadcasts as NumPy does."]
    lines += [f"Domain: {op.domain}."] if op.domain else []
    lines += [f"Edges: {op.edges}."] if op.edges else []
    types, (result,) = op.signature.split("->")
    point = [_TYPES[t](v) for t, v in zip(types, op.points[0], strict=True)]
    call = f"sg.{op.name}({', '.join(map(repr, point))})"
    value = op.example
    if value is None:
        value = _TYPES[result](op.reference(*map(np.asarray, point)))
    return "\n".join([*lines, "", "Example:", "    >>> import symgrad as sg",
                      f"    >>> {_TYPES[result].__name__}({call})", f"    {value!r}"])  # fmt: skip


_TYPES: dict[str, Callable[[Any], Any]] = {"f": float, "b": bool, "i": int, "u": int}
"""The Python types of numbers of an operation's types."""


def _public(op: Op) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        if len(arguments) != op.arity:
            raise TraceError(
                located(f"sg.{op.name} takes {counted(op.arity, 'argument')}, not {len(arguments)}")
            )
        return call(op, *arguments)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = document(op)
    parameters = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in names(op)]
    vars(function)["__signature__"] = Signature(parameters)
    return function


# Written by tools/generate_docs.py from the rows that are public:
reciprocal = _public(ops.reciprocal)
fma = _public(ops.fma)
sqrt = _public(ops.sqrt)
rsqrt = _public(ops.rsqrt)
abs = _public(ops.abs)
sign = _public(ops.sign)
copysign = _public(ops.copysign)
logical_and = _public(ops.logical_and)
logical_or = _public(ops.logical_or)
logical_xor = _public(ops.logical_xor)
logical_not = _public(ops.logical_not)
isnan = _public(ops.isnan)
isinf = _public(ops.isinf)
isfinite = _public(ops.isfinite)
where = _public(ops.where)
minimum = _public(ops.minimum)
maximum = _public(ops.maximum)
clip = _public(ops.clip)
floor = _public(ops.floor)
ceil = _public(ops.ceil)
round = _public(ops.round)
trunc = _public(ops.trunc)
fract = _public(ops.fract)
remainder = _public(ops.remainder)
fmod = _public(ops.fmod)
floor_divide = _public(ops.floor_divide)
sinh = _public(ops.sinh)
cosh = _public(ops.cosh)
tanh = _public(ops.tanh)
asinh = _public(ops.asinh)
acosh = _public(ops.acosh)
atanh = _public(ops.atanh)
sigmoid = _public(ops.sigmoid)
hypot = _public(ops.hypot)
atan2 = _public(ops.atan2)
sin = _public(ops.sin)
cos = _public(ops.cos)
tan = _public(ops.tan)
asin = _public(ops.asin)
acos = _public(ops.acos)
atan = _public(ops.atan)
sinc = _public(ops.sinc)
exp = _public(ops.exp)
exp2 = _public(ops.exp2)
expm1 = _public(ops.expm1)
log = _public(ops.log)
log2 = _public(ops.log2)
log10 = _public(ops.log10)
log1p = _public(ops.log1p)
logaddexp = _public(ops.logaddexp)
softplus = _public(ops.softplus)
cbrt = _public(ops.cbrt)
xlogy = _public(ops.xlogy)
xlog1py = _public(ops.xlog1py)
entr = _public(ops.entr)
logit = _public(ops.logit)
log1mexp = _public(ops.log1mexp)
huber = _public(ops.huber)
erf = _public(ops.erf)
erfc = _public(ops.erfc)
ndtr = _public(ops.ndtr)
log_ndtr = _public(ops.log_ndtr)
erfinv = _public(ops.erfinv)
ndtri = _public(ops.ndtri)
erfcx = _public(ops.erfcx)
relu = _public(ops.relu)
silu = _public(ops.silu)
gelu = _public(ops.gelu)
gelu_tanh = _public(ops.gelu_tanh)
gamma = _public(ops.gamma)
gammaln = _public(ops.gammaln)
digamma = _public(ops.digamma)
i0e = _public(ops.i0e)
i1e = _public(ops.i1e)
k0e = _public(ops.k0e)
k1e = _public(ops.k1e)
j0 = _public(ops.j0)
j1 = _public(ops.j1)
ellipkm1 = _public(ops.ellipkm1)
ellipk = _public(ops.ellipk)
ellipe = _public(ops.ellipe)
dawsn = _public(ops.dawsn)
voigt_profile = _public(ops.voigt_profile)
gammainc = _public(ops.gammainc)
gammaincc = _public(ops.gammaincc)
betainc = _public(ops.betainc)
betaincc = _public(ops.betaincc)

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "betainc",
    "betaincc",
    "cbrt",
    "ceil",
    "clip",
    "copysign",
    "cos",
    "cosh",
    "custom_vjp",
    "dawsn",
    "digamma",
    "ellipe",
    "ellipk",
    "ellipkm1",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "floor_divide",
    "fma",
    "fmod",
    "fract",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gelu",
    "gelu_tanh",
    "huber",
    "hypot",
    "i0e",
    "i1e",
    "isfinite",
    "isinf",
    "isnan",
    "j0",
    "j1",
    "k0e",
    "k1e",
    "log",
    "log1mexp",
    "log1p",
    "log2",
    "log10",
    "log_ndtr",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "maximum",
    "minimum",
    "ndtr",
    "ndtri",
    "pow",
    "reciprocal",
    "relu",
    "remainder",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "softplus",
    "sqrt",
    "stop_gradient",
    "tan",
    "tanh",
    "trunc",
    "voigt_profile",
    "where",
    "xlog1py",
    "xlogy",
]
# The end of what is written by it.

_stop_gradient = _public(ops.stop_gradient)


def stop_gradient(x: Any) -> Any:
    """The value, whose derivative is 0.

    Takes expressions, arrays of them, numbers, and dicts, lists and tuples of these, nested: then
    the result is nested likewise.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> fixed = sg.stop_gradient({"x": x})
        >>> sg.grad(fixed["x"] * y + x, x)
        1
    """
    leaves, tree = flatten(x, _unless_nested)
    return tree.nest(map(_stop_gradient, leaves), None)


def _unless_nested(x: Any) -> tuple[list[Any], Tree] | None:
    """A value as one leaf, unless it is a mapping, or a list or tuple of containers or arrays."""
    if isinstance(x, Mapping) or (
        isinstance(x, (list, tuple))
        and any(isinstance(v, (Mapping, list, tuple, np.ndarray)) for v in x)
    ):
        return None
    return [x], Tree()


def pow(x: Any, p: Any) -> Any:
    """x**p: a chain of multiplications for a constant integer p, a square root for a half.

    Takes expressions, arrays of them, or numbers, and broadcasts as NumPy does.

    Example:
        >>> import symgrad as sg
        >>> float(sg.pow(2.0, 3.0)), sg.pow(sg.var("x"), 0.5)
        (8.0, sqrt(x))
    """
    if holds_expressions(x) or holds_expressions(p):
        return map_elements(_power, x, p)
    return call(ops.pow, x, p)


def _power(x: Any, p: Any) -> Any:
    if isinstance(x, Handle):
        return power(as_float(x), p)  # type: ignore[arg-type]
    return x**p if isinstance(p, Handle) else ops.pow(x, p)


def custom_vjp(f: Callable[..., Any], vjp: Callable[..., Any]) -> Callable[..., Any]:
    """A function of scalars with a derivative of its own.

    ``f(*args)`` gives the value, an expression; ``vjp(g, y, *args)`` gives the cotangents of the
    arguments (None for a zero) from the cotangent g of the value y. It must be linear in g.

    Raises:
        TraceError: if f does not return one expression, or vjp not one entry an argument.

    Example:
        >>> import symgrad as sg
        >>> clipped = sg.custom_vjp(lambda x: x * x, lambda g, y, x: (sg.clip(g, -1, 1) * 2 * x,))
        >>> x = sg.var("x")
        >>> sg.evaluate(sg.grad(5 * clipped(x), x), {x: 3.0})
        6.0
    """
    rows: dict[int, Op] = {}

    def wrapped(*arguments: Any) -> Any:
        handle = next((a for a in arguments if isinstance(a, Handle)), None)
        if handle is None:
            return f(*arguments)
        lifted = [lift(handle.graph, a) for a in arguments]
        value = f(*lifted)
        if not isinstance(value, Expr):
            raise TraceError(located(f"a custom_vjp function returned {value!r}, no expression"))
        if len(lifted) not in rows:
            rows[len(lifted)] = _custom_row(getattr(f, "__name__", "f"), len(lifted), vjp)
        return rows[len(lifted)](value, *lifted)

    wrapped.__name__, wrapped.__doc__ = getattr(f, "__name__", "f"), f.__doc__
    return wrapped


def _custom_row(name: str, count: int, vjp: Callable[..., Any]) -> Op:
    """The operation that is its first argument, and whose derivative is the user's."""

    def checked(g: Any, y: Any, _: Any, *arguments: Any) -> tuple[Any, ...]:
        cotangents = vjp(g, y, *arguments)
        if not isinstance(cotangents, (tuple, list)) or len(cotangents) != count:
            raise TraceError(
                f"the vjp of {name} must return {count} cotangents, not {cotangents!r}"
            )
        return (None, *cotangents)

    return Op(
        name=f"custom_{name}",
        signature=f"{'f' * (count + 1)}->f",
        cost=0,
        vjp=checked,
        reference=lambda y, *_: y,
        meaning="the first argument, with the user's derivative",
        transparent=True,
    )
