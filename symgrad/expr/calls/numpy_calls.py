"""NumPy's calls with expressions: what becomes of them, and that everything else is an error.

NumPy hands its calls over through ``__array_ufunc__`` and ``__array_function__``. What is known to
mean the same for expressions is mapped to the op table; everything else is an error, since NumPy's
loops over objects would compare or convert expressions, or go wrong silently.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.calls.compositions import UFUNCS_COMPOSED, clip, where
from symgrad.expr.calls.numpy_functions import FUNCTIONS, JOINS, MOVES, heaviside
from symgrad.expr.calls.reductions import REDUCING
from symgrad.expr.calls.special import INSTEAD, SCIPY, UNDERNEATH, logsumexp
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import ElementsNeededError, Handle, real_number, whole_among
from symgrad.expr.graph.place import scipy_function
from symgrad.expr.loops import totals
from symgrad.expr.tracers.along import (
    accumulate,
    add_elements,
    matmul,
    multiply_elements,
    reduce,
    subtract_elements,
    unless_nan,
)
from symgrad.expr.tracers.array import (
    ExprArray,
    TracedArray,
    array,
    holds_expressions,
    map_elements,
    plain,
    unknown,
)
from symgrad.expr.tracers.expression import Condition, Expr, as_real
from symgrad.expr.tracers.integers import BITS, Word, divided
from symgrad.lazy import control

# Functions of integers: common divisors and multiples, counts of bits, powers of 2.

EUCLID: Final = 47
"""The most divisions that Euclid's algorithm takes of numbers below 2**32: a Fibonacci number."""


def _integers(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Both operands as integers of one type.

    Raises:
        TraceError: if one of them is a real number, or they have no type in common.
    """
    if isinstance(a, Word):
        operands = a, a.same(b)
    else:
        operands = (b.same(a) if isinstance(b, Word) else None), b
    if not all(isinstance(x, Word) for x in operands):
        raise TraceError(
            located(f"np.{name} is for integers, not {a!r} and {b!r}: cast by sg.int32")
        )
    return operands


def _common(a: Word, b: Word) -> Word:
    """The greatest common divisor of unsigned integers, by Euclid's algorithm."""

    def step(pair: Any) -> Any:
        return pair[1], divided(*pair)[1]

    return control.while_loop(lambda pair: pair[1].is_true(), step, (a, b), EUCLID)[0]


def gcd(a: Any, b: Any) -> Any:
    """np.gcd of two integers."""
    a, b = _integers("gcd", a, b)
    return type(a)(a.graph, _common(abs(a).bits(), abs(b).bits()).id)


def lcm(a: Any, b: Any) -> Any:
    """np.lcm of two integers: modulo 2**32, and 0 if one of them is."""
    a, b = _integers("lcm", a, b)
    first, second = abs(a).bits(), abs(b).bits()
    quotient, _ = divided(first, _common(first, second))
    return type(a)(a.graph, (quotient * second).id)


def ldexp(x: Any, k: Any) -> Any:
    """np.ldexp: x * 2**k, by three factors, as 2**k alone may leave the range.

    Raises:
        TraceError: if k is no integer.
    """
    if isinstance(k, Handle) and (k.is_integer or isinstance(k, Condition)):
        whole = as_real(k)
    elif isinstance(k, numbers.Integral):
        whole = float(k)
    else:
        raise TraceError(
            located(f"np.ldexp(x, k) takes integers k, not {k!r}: write x * 2.0**k, or sg.int32(k)")
        )
    third = ops.round(whole * (1.0 / 3.0))
    value = as_real(x)
    for part in (third, third, whole - 2.0 * third):
        value = ops.opaque(value * ops.exp2(part))
    return ops.where((x == 0.0) | ops.isinf(x), x, value)


def bitwise_count(x: Any) -> Any:
    """np.bitwise_count: how many bits of |x| are set, a uint32."""
    if isinstance(x, Condition):
        return Word(x.graph, ops.word_where(x, *(Word.of(x.graph, k) for k in (1, 0))).id)
    if not isinstance(x, Word):
        raise TraceError(located(f"np.bitwise_count is for integers, not {x!r}: cast by sg.int32"))
    return bits_of(abs(x).bits())


def bits_of(x: Any) -> Any:
    """How many bits are set of integers of 32 bits, none negative.

    They are added up in pairs, in fours, in bytes, and the bytes by a product (Warren, Hacker's
    Delight, 5-1).
    """
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return (x * 0x01010101) >> BITS - 8


# The calls that NumPy hands over.

REMEDIES: Final = {
    "arg": "which element it is depends on values; np.sort, np.max and np.min give the elements",
    "fft": "expressions are real; multiply by np.cos and np.sin of 2 pi k n / N, for the real and "
    "the imaginary part",
    "linalg.eig": "np.linalg.eigh has those of symmetric matrices",
    "linalg.svd": "np.linalg.lstsq gives singular values, np.linalg.eigh(A.T @ A) their vectors",
    "linalg.pinv": "sg.jit and sg.value_and_grad have it of arrays; np.linalg.lstsq solves by it",
    "linalg.qr": "np.linalg.cholesky(A.T @ A).T is its R",
    "histogram": "which bin it is depends on values; sum sg.where of comparisons",
    "bincount": "which bin it is depends on values; sg.array(np.zeros(n)).at[k].add(weights)",
    "unique": "which elements are equal depends on values",
    "nonzero": "which elements are not 0 depends on values; use sg.where",
    "isclose": "compare with abs(a - b) <= tolerance",
    "allclose": "compare with np.all(abs(a - b) <= tolerance)",
}
"""The remedy, by how the name of NumPy's function begins."""

NOT_GIVEN: Final = inspect.signature(np.sum).parameters["initial"].default
"""The default of an argument that the user did not give, as NumPy hands it on."""


def reciprocal(x: Any) -> Any:
    """np.reciprocal of one element."""
    if isinstance(x, Handle) and x.is_integer:
        raise TraceError(
            located("np.reciprocal of integers is 0 beyond 1 and -1: write 1 / x for a real number")
        )
    return ops.reciprocal(x)


UFUNCS: Final[dict[Any, Callable[..., Any]]] = {
    row.reference: row
    for row in ops.TABLE.values()
    if isinstance(row.reference, np.ufunc) and (row.partials or row.vjp or row.result == "b")
    if "u" not in row.signature
} | {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.power: operator.pow,
    np.float_power: lambda x, p: as_real(x) ** as_real(p),
    np.floor_divide: operator.floordiv,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.absolute: operator.abs,
    np.fabs: lambda x: abs(as_real(x)),
    np.positive: operator.pos,
    np.reciprocal: reciprocal,
    np.square: lambda x: x * x,
    np.rint: lambda x: ops.round(as_real(x)),
    np.deg2rad: lambda x: x * (np.pi / 180),
    np.radians: lambda x: x * (np.pi / 180),
    np.rad2deg: lambda x: x * (180 / np.pi),
    np.degrees: lambda x: x * (180 / np.pi),
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.invert: operator.invert,
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
    np.bitwise_count: bitwise_count,
    np.gcd: gcd,
    np.lcm: lcm,
    np.ldexp: ldexp,
    np.conjugate: operator.pos,
    np.heaviside: heaviside,
    np.fmax: functools.partial(unless_nan, ops.maximum),
    np.fmin: functools.partial(unless_nan, ops.minimum),
    np.logaddexp2: lambda a, b: (
        ops.logaddexp(a * np.log(2.0), b * np.log(2.0)) * (1.0 / np.log(2.0))
    ),
    np.signbit: lambda x: ops.copysign(1.0, x) < 0.0,
}

STRUCTURAL: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    np.add: add_elements,
    np.subtract: subtract_elements,
    np.multiply: multiply_elements,
}
"""Ufuncs of elements of arrays whose zeros are structural, by the function that keeps them so."""

BITWISE: Final = {
    np.bitwise_and,
    np.bitwise_or,
    np.bitwise_xor,
    np.invert,
    np.left_shift,
    np.right_shift,
    np.bitwise_count,
    np.gcd,
    np.lcm,
}
"""Ufuncs that take truth values and integers only."""

OWN: Final = {"logsumexp", "softmax", "log_softmax"}
"""Python functions of scipy.special for which symgrad has its own."""

WHOLE: Final[dict[str, Callable[..., Any]]] = {
    "matmul": matmul,
    "clip": clip,  # what the method v.clip calls
    "real": lambda x: x,  # what .real is, as v.var calls it
}
"""Functions for the ufuncs of whole arrays, by name: NumPy does not export all of them."""

IN_MEMORY: Final[dict[Any, Callable[..., Any]]] = {
    np.sum: totals.total, np.prod: totals.product, np.mean: totals.mean, np.var: totals.variance,
    np.std: totals.deviation, np.max: totals.largest, np.amax: totals.largest,
    np.min: totals.smallest, np.amin: totals.smallest, np.matmul: totals.inner,
    np.dot: totals.inner, np.where: where,
}  # fmt: skip
"""Functions of arrays in memory as they are; one that gives None takes their elements."""

ACCUMULATED: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    np.add: add_elements,
    np.multiply: operator.mul,
    np.maximum: ops.maximum,
    np.minimum: ops.minimum,
    np.logical_and: ops.logical_and,
    np.logical_or: ops.logical_or,
    np.logaddexp: ops.logaddexp,
}


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Any) -> Any:
    """A NumPy ufunc, or one of its methods, on expressions."""
    target = options.pop("out", None)
    return _into(target, _result(ufunc, method, inputs, _given(ufunc, method, options)))


def _given(ufunc: np.ufunc, method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the user gave, and that matter to expressions."""
    relevant = {k: v for k, v in options.items() if v is not NOT_GIVEN and k != "dtype"}
    if relevant.get("initial", 0) is None:
        del relevant["initial"]
    reduces = method == "reduce" and ufunc in REDUCING
    if not reduces and relevant.pop("where", True) is not True:
        raise TraceError(
            located(f"np.{ufunc.__name__}(..., where=) is not defined for expressions")
        )
    return relevant


def _result(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The value of the ufunc, or of its method, of expressions."""
    function = METHODS[method](ufunc) if method in METHODS else None
    if function is None:
        refuse_ufunc(ufunc, method)
    return _bound(_called(ufunc, method), function, inputs, options)


def _called(ufunc: np.ufunc, method: str) -> str:
    """The name of a ufunc's method."""
    return ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"


def refuse_ufunc(ufunc: np.ufunc, method: str) -> NoReturn:
    """Refuse a ufunc, or a method of it, that traced arrays do not have, with a remedy.

    Raises:
        ElementsNeededError: of one that arrays of elements have.
    """
    called = _called(ufunc, method)
    if method in METHODS and METHODS[method](ufunc) is not None:
        raise ElementsNeededError(f"{called} of whole arrays")
    own = ": use v = v.at[k].add(x), or another update of at" if method == "at" else ""
    of_scipy = _is_scipys(ufunc)
    home, remedy = ("scipy.special", _remedy(ufunc.__name__)) if of_scipy else ("np", own)
    raise TraceError(located(f"{home}.{called} is not defined for expressions{remedy}"))


def _remedy(name: str) -> str:
    """The remedy for a ufunc of scipy.special that is not known."""
    if name in INSTEAD:
        return f": write {INSTEAD[name]}"
    return (
        f": write it with those that are ({', '.join(sorted(SCIPY))}), or, if it has one variable, "
        "tabulate it: sg.table(values, low, high, kind='cubic')(x)"
    )


@functools.cache
def _call_of(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """The function that a call of the ufunc is, of arrays of expressions."""
    if ufunc.__name__ in WHOLE:
        return WHOLE[ufunc.__name__]
    if ufunc in UFUNCS_COMPOSED:
        return UFUNCS_COMPOSED[ufunc]
    if not elementary(ufunc):
        return None
    apply, structural = functools.partial(_apply, ufunc), STRUCTURAL.get(ufunc)

    def call(*inputs: Any, **_: Any) -> Any:
        if structural is None or any(map(_is_number, inputs)):
            return map_elements(apply, *inputs)
        return map_elements(structural, *inputs)

    return call


def _outer_of(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """The function that ``ufunc.outer`` is, of two arrays of expressions."""

    def outer(a: Any, b: Any) -> Any:
        a, b = plain(a), plain(b)
        apart = a.reshape(a.shape + (1,) * b.ndim)
        return map_elements(functools.partial(_apply, ufunc), apart, b)

    return outer if elementary(ufunc) else None


def _logaddexp_reduced(
    a: Any, axis: Any = 0, keepdims: bool = False, initial: Any = -np.inf
) -> Any:
    """np.logaddexp.reduce: one logarithm of a sum of exponentials, not one for each element."""
    some = np.size(a) or whole_among([a]) is not None
    total = logsumexp(a, axis, keepdims=keepdims) if some else -np.inf
    nothing = not isinstance(initial, Handle) and initial == -np.inf
    return total if nothing else map_elements(ops.logaddexp, total, initial)


def elementary(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """The function of expressions for a ufunc of NumPy or SciPy, if there is one."""
    name = UNDERNEATH.get(ufunc.__name__, ufunc.__name__)
    return UFUNCS.get(ufunc) if _is_numpys(ufunc) else SCIPY.get(name)


def _is_numpys(ufunc: np.ufunc) -> bool:
    return ufunc in UFUNCS or getattr(np, ufunc.__name__, None) is ufunc


def _is_scipys(ufunc: np.ufunc) -> bool:
    homes = [sys.modules.get(name) for name in ("scipy.special", "scipy.special._ufuncs")]
    return not _is_numpys(ufunc) and any(getattr(m, ufunc.__name__, 0) is ufunc for m in homes)


def _is_number(a: Any) -> bool:
    return not isinstance(a, Handle) and np.ndim(a) == 0


def _apply(ufunc: np.ufunc, *arguments: Any) -> Any:
    """The ufunc of one element of each argument; of numbers alone NumPy's, in double precision."""
    function = elementary(ufunc)
    if function and any(isinstance(a, Handle) for a in arguments):
        return function(*arguments)
    values = arguments if ufunc in BITWISE else [np.float64(real_number(a)) for a in arguments]
    with np.errstate(all="ignore"):
        value = np.asarray(ufunc(*values)).item()
        integers = all(isinstance(a, numbers.Integral) for a in arguments)
        whole = isinstance(value, float) and abs(value) < 2**63 and value.is_integer()
        if integers and whole and _keeps_integers(ufunc):
            return int(ufunc(*map(np.int64, arguments)))  # type: ignore[arg-type]
    return value


@functools.cache
def _keeps_integers(ufunc: np.ufunc) -> bool:
    """Whether NumPy has it of integers."""
    integer = np.dtype(np.int64).char
    return f"{integer * ufunc.nin}->{integer}" in ufunc.types


def _into(target: Any, result: Any) -> Any:
    """Put the result where an in-place operation or ``out=`` wants it."""
    if target is None:
        return result
    if target[0].dtype != object:
        raise TraceError(
            located("an array of numbers cannot hold expressions; begin with sg.array(a) instead")
        )
    target[0][...] = result
    return target[0]


def apply_function(func: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function that is no ufunc, on expressions."""
    if scipy_function() in OWN:
        raise TraceError(located("SciPy computes with the values of expressions"))
    if func in FUNCTIONS:
        function = FUNCTIONS[func]
        args, kwargs = without_out(func, args, kwargs)
        return _bound(func.__name__, function, args, _meant(function, kwargs))
    if func in MOVES:
        return _moved(func, args, kwargs)
    return refuse_function(func)


def refuse_function(func: Any) -> NoReturn:
    """Refuse a NumPy function that traced arrays do not have, with a remedy.

    Raises:
        ElementsNeededError: of one that arrays of elements have.
    """
    if func in FUNCTIONS or func in MOVES:
        raise ElementsNeededError(f"{func.__name__} of whole arrays")
    name = _name_of(func)
    family = next((k for k in REMEDIES if name.removeprefix("np.").startswith(k)), None)
    remedy = f": {REMEDIES[family]}" if family else ""
    raise TraceError(located(f"{name} is not defined for expressions{remedy}"))


def _name_of(func: Any) -> str:
    return f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)


def without_out(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments of a NumPy function without ``out``, which its own wrappers give as None.

    Raises:
        TraceError: for an array to write to.
        ElementsNeededError: for one that elements are moved to.
    """
    place, out = _place_of_out(func), kwargs.get("out")
    if place is not None and len(args) > place:
        out, args = args[place], (*args[:place], *args[place + 1 :])
    if out is not None:
        message = f"{_name_of(func)} of traced arrays cannot write to out=: use its result"
        raise (ElementsNeededError if func in MOVES else TraceError)(located(message))
    return args, {k: v for k, v in kwargs.items() if k != "out"} if "out" in kwargs else kwargs


@functools.lru_cache(512)
def _place_of_out(func: Any) -> int | None:
    """Which argument of a NumPy function ``out`` is; None if it is given by its name alone."""
    try:
        parameters = inspect.signature(func).parameters
    except ValueError:  # NumPy's ufuncs have none
        return None
    is_keyword = "out" not in parameters or parameters["out"].kind is inspect.Parameter.KEYWORD_ONLY
    return None if is_keyword else list(parameters).index("out")


def _moved(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of a function that moves elements, of whatever kind they are."""
    part = _demote if func in JOINS else _part
    options = {k: part(v) for k, v in kwargs.items()}
    try:
        return _as_expressions(func(*map(part, args), **options))
    except (IndexError, TypeError) as error:
        of_numbers = not any(map(holds_expressions, [*args[1:], *kwargs.values()]))
        if of_numbers or isinstance(error, TraceError):
            raise
        what = f"which elements np.{func.__name__} moves"
        raise TraceError(located(unknown(what))) from error


def _meant(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that say something: None does where the default is something else."""
    parameters = _signature(function).parameters
    defaults = {k: p.default for k, p in parameters.items()}
    return {
        k: v
        for k, v in kwargs.items()
        if v is not NOT_GIVEN and (v is not None or defaults.get(k) is not None and k in defaults)
    }


@functools.lru_cache(256)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function, kept: to find it out takes as long as a small trace."""
    return inspect.signature(function)


def _bound(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The function of these arguments, if it has them."""
    misfit = _misfit(function, len(args), tuple(kwargs))
    if misfit:
        raise TraceError(located(f"np.{name} of expressions: {misfit}"))
    return function(*args, **kwargs)


@functools.lru_cache(256)
def _misfit(function: Callable[..., Any], count: int, names: Sequence[str]) -> str:
    """Why a function does not take so many arguments, and others by these names; empty if it does.

    Functions are traced again and again: to find it out takes as long as an operation.
    """
    try:
        _signature(function).bind(*[None] * count, **dict.fromkeys(names))
    except TypeError as error:
        return str(error)
    return ""


def _demote(value: Any) -> Any:
    """Arrays of expressions, and lists of them, as ordinary object arrays, and lists of these."""
    if isinstance(value, (Handle, ExprArray)):
        return plain(value)
    return type(value)(map(_part, value)) if type(value) in (list, tuple) else value


def _part(value: Any) -> Any:
    """A part of an argument, where a list of expressions is an array itself."""
    is_array = type(value) in (list, tuple) and holds_expressions(value)
    return plain(value) if is_array else _demote(value)


def _as_expressions(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == object:
        return array(value)
    return (
        type(value)([_as_expressions(v) for v in value]) if type(value) in (list, tuple) else value
    )


REDUCE: Final[dict[Any, Callable[..., Any]]] = REDUCING | {
    np.logaddexp: _logaddexp_reduced,
    np.logical_and: functools.partial(reduce, ops.logical_and, initial=True),
    np.logical_or: functools.partial(reduce, ops.logical_or, initial=False),
}
"""The method reduce of ufuncs, for arrays of expressions."""

ACCUMULATE: Final = {ufunc: functools.partial(accumulate, f) for ufunc, f in ACCUMULATED.items()}
"""The method accumulate of ufuncs, for arrays of expressions."""

METHODS: Final[dict[str, Callable[[Any], Callable[..., Any] | None]]] = {
    "__call__": _call_of,
    "outer": _outer_of,
    "reduce": REDUCE.get,
    "accumulate": ACCUMULATE.get,
}
"""The functions for the methods of a ufunc, None for unknown ones."""


# --- arrays and single expressions take part ------------------------------------------------------


def _array_ufunc(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    for a in inputs:
        if isinstance(a, TracedArray):  # it knows whether to be taken as it stands
            return a.__array_ufunc__(ufunc, method, *inputs, **options)
    return apply_ufunc(ufunc, method, inputs, options)


def _array_function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    for a in args:
        if isinstance(a, TracedArray):
            return a.__array_function__(func, types, args, kwargs)
    return apply_function(func, args, kwargs)


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        return function(self, *others)

    return method


def install() -> None:
    """Give NumPy's protocols to `ExprArray` and `Expr`.

    They also get the methods that NumPy's loops over objects look for.
    """
    for kind in (ExprArray, Expr, Word):
        kind.__array_ufunc__ = _array_ufunc  # type: ignore[attr-defined]
        kind.__array_function__ = _array_function  # type: ignore[attr-defined]
    TracedArray.functions.update(IN_MEMORY)
    for ufunc, function in UFUNCS.items():
        for kind, method in ((Expr, function), (Word, function), (ExprArray, ufunc)):
            if not hasattr(kind, ufunc.__name__):
                setattr(kind, ufunc.__name__, _method(method))
