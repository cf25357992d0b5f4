"""Arrays of expressions, and NumPy's functions on them and on single expressions.

NumPy hands its calls over through ``__array_ufunc__`` and ``__array_function__``. What is known to
mean the same for expressions is mapped to the op table; everything else is an error, since NumPy's
loops over objects would compare or convert expressions, or go wrong silently.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.expression import Expr, located
from symgrad.expr.node import Handle, Op

NOT_GIVEN: Final = inspect.signature(np.sum).parameters["initial"].default
"""What NumPy hands on for an argument that the user did not give."""


class ExprArray(np.ndarray):
    """A NumPy object array of expressions (and numbers): what a traced function is given.

    Indexing, slicing, iteration, arithmetic, ``@`` and NumPy's functions work as on numbers.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return apply_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply_function(func, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except IndexError as error:
            if not _holds_expressions(key):
                raise
            raise TraceError(
                located("which elements v[condition] has depends on values: use sg.where")
            ) from error

    def __bool__(self) -> bool:
        return bool(self.item()) if self.size == 1 else super().__bool__()


def array(values: Any) -> ExprArray:
    """An array of expressions from nested lists, arrays and expressions.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> sg.array([[x, 1.0], [y, x * y]]).shape
        (2, 2)
    """
    if isinstance(values, Handle):
        result = np.empty((), dtype=object)
        result[()] = values
        return result.view(ExprArray)
    return np.asarray(values, dtype=object).view(ExprArray)


def _plain(value: Any) -> Any:
    """As an ordinary object array, whose elements NumPy moves around without looking."""
    return np.asarray(array(value)) if isinstance(value, Handle) else np.asarray(value)


def map_elements(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function`` of the elements of the broadcast arguments; a scalar if all are scalars."""
    arrays = [_plain(a) for a in arguments]
    if not any(a.ndim for a in arrays):
        return function(*[a.item() if a.dtype != object else a[()] for a in arrays])
    broadcast = np.broadcast_arrays(*[a.astype(object) for a in arrays])
    result = np.empty(broadcast[0].shape, dtype=object)
    flat = zip(*[b.flat for b in broadcast], strict=True)
    result.reshape(-1)[:] = [function(*elements) for elements in flat]
    return result.view(ExprArray)


def call(op: Op, *arguments: Any) -> Any:
    """The operation on expressions, on arrays of them, or, with no expression, on numbers."""
    if any(isinstance(a, Handle) for a in arguments) and not any(map(_is_array, arguments)):
        return op(*arguments)
    if any(isinstance(a, Handle) or _holds_expressions(a) for a in arguments):
        return map_elements(functools.partial(_element, op), *arguments)
    with np.errstate(all="ignore"):
        return op.reference(*[np.asarray(a)[()] for a in arguments])


def _element(op: Op, *arguments: Any) -> Any:
    if any(isinstance(a, Handle) for a in arguments):
        return op(*arguments)
    return np.asarray(op.reference(*[np.float64(a) for a in arguments])).item()


def _is_array(a: Any) -> bool:
    return isinstance(a, (list, tuple)) or (isinstance(a, np.ndarray) and a.ndim > 0)


def _holds_expressions(a: Any) -> bool:
    return _is_array(a) and np.asarray(a).dtype == object


# --- ufuncs ---------------------------------------------------------------------------------------

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
    np.float_power: operator.pow,
    np.floor_divide: operator.floordiv,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.absolute: operator.abs,
    np.fabs: operator.abs,
    np.positive: operator.pos,
    np.square: lambda x: x * x,
    np.rint: ops.round,
    np.deg2rad: lambda x: x * (np.pi / 180),
    np.radians: lambda x: x * (np.pi / 180),
    np.rad2deg: lambda x: x * (180 / np.pi),
    np.degrees: lambda x: x * (180 / np.pi),
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.invert: operator.invert,
    np.conjugate: operator.pos,
}

_REDUCTIONS: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    np.add: operator.add,
    np.multiply: operator.mul,
    np.maximum: ops.maximum,
    np.minimum: ops.minimum,
    np.logical_and: operator.and_,
    np.logical_or: operator.or_,
    np.logaddexp: ops.logaddexp,
}


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Any) -> Any:
    """A NumPy ufunc, or one of its methods, on expressions."""
    target = options.pop("out", None)
    options = {k: v for k, v in options.items() if v is not NOT_GIVEN}
    if options.get("initial", 0) is None:
        del options["initial"]
    if options.pop("where", True) is not True:
        raise TraceError(
            located(f"np.{ufunc.__name__}(..., where=) is not defined for expressions")
        )
    options.pop("dtype", None)
    if method == "reduce" and ufunc in _REDUCTIONS:
        result = _reduce(_REDUCTIONS[ufunc], *inputs, **options)
    elif method == "accumulate" and ufunc in _REDUCTIONS:
        result = _accumulate(_REDUCTIONS[ufunc], *inputs, **options)
    elif method == "outer" and ufunc in UFUNCS:
        a, b = (_plain(v) for v in inputs)
        result = map_elements(UFUNCS[ufunc], a.reshape(a.shape + (1,) * b.ndim), b)
    elif method == "__call__" and ufunc is np.matmul:
        result = matmul(*inputs)
    elif method == "__call__" and ufunc in UFUNCS:
        result = map_elements(functools.partial(_apply, UFUNCS[ufunc]), *inputs)
    elif method == "__call__" and ufunc.__name__ == "clip":  # what the method v.clip calls
        result = _clip(*inputs)
    else:
        called = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        raise TraceError(located(f"np.{called} is not defined for expressions"))
    return _into(target, result)


def _apply(function: Callable[..., Any], *arguments: Any) -> Any:
    if isinstance(function, Op) and not any(isinstance(a, Handle) for a in arguments):
        return _element(function, *arguments)
    return function(*arguments)


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


def _reduce(
    function: Callable[[Any, Any], Any], a: Any, axis: Any = 0, keepdims: bool = False,
    initial: Any = None,
) -> Any:  # fmt: skip
    a = _plain(a)
    axes = range(a.ndim) if axis is None else np.atleast_1d(np.asarray(axis))
    axes = sorted({int(k) % a.ndim for k in axes}) if a.ndim else []
    kept = [k for k in range(a.ndim) if k not in axes]
    rows = a.transpose(kept + axes).reshape([a.shape[k] for k in kept] + [-1])
    result = np.empty(rows.shape[:-1], dtype=object)
    for index in np.ndindex(result.shape):
        result[index] = balanced(function, list(rows[index]), initial)
    if keepdims:
        result = np.expand_dims(result, tuple(axes))
    return result.view(ExprArray) if result.ndim else result[()]


def balanced(function: Callable[[Any, Any], Any], values: list[Any], initial: Any = None) -> Any:
    """The values combined as a balanced tree, so that rounding errors grow with its depth only."""
    if initial is not None:
        values = [initial, *values]
    if not values:
        if function is operator.add or function is operator.mul:
            return 0.0 if function is operator.add else 1.0
        raise TraceError(located("an empty array has no largest or smallest element"))
    while len(values) > 1:
        paired = [function(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = paired + values[len(paired) * 2 :]
    return values[0]


def _accumulate(function: Callable[[Any, Any], Any], a: Any, axis: int = 0) -> Any:
    rows = np.moveaxis(_plain(a).astype(object), axis, 0).copy()
    for k in range(1, len(rows)):
        rows[k] = map_elements(function, rows[k - 1], rows[k])
    return np.moveaxis(rows, 0, axis).view(ExprArray)


def _cumulate(function: Callable[[Any, Any], Any], a: Any, axis: int | None) -> Any:
    return _accumulate(function, _plain(a).ravel() if axis is None else a, axis or 0)


def matmul(a: Any, b: Any) -> Any:
    """``a @ b``, each sum a balanced tree."""
    a, b = _plain(a), _plain(b)
    if not a.ndim or not b.ndim:
        raise TraceError(located("matmul needs arrays: use * to multiply by a scalar"))
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        raise TraceError(located(f"matmul: shapes {a.shape} and {b.shape} do not match"))
    products = map_elements(operator.mul, left[..., :, :, None], right[..., None, :, :])
    result = _plain(_reduce(operator.add, products, axis=-2))
    result = result[..., 0] if b.ndim == 1 else result
    result = (
        result[..., 0, :]
        if a.ndim == 1 and b.ndim > 1
        else result[..., 0]
        if a.ndim == 1
        else result
    )
    return result.view(ExprArray) if result.ndim else result[()]


# --- functions ------------------------------------------------------------------------------------


def _dot(a: Any, b: Any) -> Any:
    a, b = _plain(a), _plain(b)
    if not a.ndim or not b.ndim:
        return map_elements(operator.mul, a, b)
    if a.ndim > 2 or b.ndim > 2:
        raise TraceError(located("np.dot of expressions takes at most 2 dimensions; use @"))
    return matmul(a, b)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = _plain(x)
    if ord not in (None, 2, "fro", 1, np.inf) or (
        ord in (1, 2, np.inf) and axis is None and x.ndim > 1
    ):
        raise TraceError(located(f"np.linalg.norm(ord={ord!r}) is not defined for expressions"))
    if ord in (1, np.inf):
        function = operator.add if ord == 1 else ops.maximum
        return _reduce(function, map_elements(operator.abs, x), axis, keepdims)
    total = _reduce(operator.add, map_elements(lambda v: v * v, x), axis, keepdims)
    return call(ops.sqrt, total)


def _where(condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        raise TraceError(located("np.where(condition) alone depends on values; give both branches"))
    return call(ops.where, condition, *branches)


def _mean(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    a = _plain(a)
    count = a.size if axis is None else np.prod([a.shape[k] for k in np.atleast_1d(axis)])
    return _reduce(operator.add, a, axis, keepdims) / int(count)


def _var(a: Any, axis: Any = None, ddof: int = 0) -> Any:
    a = _plain(a)
    count = a.size if axis is None else a.shape[axis]
    centred = array(a) - _mean(a, axis, keepdims=True)
    return _reduce(operator.add, centred * centred, axis) / (count - ddof)


def _average(a: Any, axis: Any, weights: Any) -> Any:
    if weights is None:
        return _mean(a, axis)
    return _sum(array(a) * weights, axis) / _sum(weights, axis)


def _trapezoid(y: Any, x: Any, dx: float) -> Any:
    y = array(y)
    steps = dx if x is None else np.diff(x)
    return _sum((y[..., 1:] + y[..., :-1]) * steps * 0.5, axis=-1)


def _cross(a: Any, b: Any) -> Any:
    a, b = array(a), array(b)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise TraceError(located("np.cross of expressions takes vectors of 3 components"))
    left = a[..., [1, 2, 0]] * b[..., [2, 0, 1]]
    return left - a[..., [2, 0, 1]] * b[..., [1, 2, 0]]


def _tensordot(a: Any, b: Any, axes: Any) -> Any:
    if not isinstance(axes, int):
        raise TraceError(
            located("np.tensordot of expressions takes a number of axes; use np.einsum")
        )
    a, b = _plain(a), _plain(b)
    letters = "abcdefghijklmnopqrstuvwxyz"
    left, right = letters[: a.ndim], letters[a.ndim - axes :][: b.ndim]
    return _einsum(f"{left},{right}->{left[: a.ndim - axes]}{right[axes:]}", a, b)


def _einsum(subscripts: str, *operands: Any) -> Any:
    """np.einsum with letters only: broadcast to all indices, multiply, sum as balanced trees."""
    inputs, _, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if "." in subscripts or any(len(set(t)) < len(t) for t in terms):
        raise TraceError(located(f"np.einsum({subscripts!r}): no ellipsis, no repeated letter"))
    once = sorted(c for c in set(inputs) - {","} if inputs.count(c) == 1)
    output = output if "->" in subscripts else "".join(once)
    letters = output + "".join(sorted(set(inputs) - set(output) - {","}))
    aligned = [_align(_plain(a), t, letters) for a, t in zip(operands, terms, strict=True)]
    product = functools.reduce(lambda a, b: map_elements(operator.mul, a, b), aligned)
    summed = tuple(range(len(output), len(letters)))
    return _sum(product, summed) if summed else product


def _align(a: Any, term: str, letters: str) -> Any:
    moved = a.transpose([term.index(c) for c in letters if c in term])
    return moved[tuple(slice(None) if c in term else None for c in letters)]


def _clip(a: Any, low: Any = None, high: Any = None) -> Any:
    """Limits of None leave that side open."""
    a = a if low is None else call(ops.maximum, a, low)
    return a if high is None else call(ops.minimum, a, high)


def _round(a: Any, decimals: int = 0) -> Any:
    if decimals:
        raise TraceError(located("np.round of expressions rounds to whole numbers only"))
    return call(ops.round, a)


def _sum(a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    return _reduce(operator.add, a, axis, keepdims, initial)


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.where: _where,
    np.sum: _sum,
    np.prod: lambda a, axis=None: _reduce(operator.mul, a, axis),
    np.amax: lambda a, axis=None: _reduce(ops.maximum, a, axis),
    np.amin: lambda a, axis=None: _reduce(ops.minimum, a, axis),
    np.max: lambda a, axis=None: _reduce(ops.maximum, a, axis),
    np.min: lambda a, axis=None: _reduce(ops.minimum, a, axis),
    np.average: lambda a, axis=None, weights=None: _average(a, axis, weights),
    np.einsum: lambda *args: _einsum(*args),
    np.tensordot: lambda a, b, axes=2: _tensordot(a, b, axes),
    np.cross: lambda a, b: _cross(a, b),
    np.polyval: lambda p, x: functools.reduce(lambda y, c: y * x + c, p, 0),
    np.trapezoid: lambda y, x=None, dx=1.0: _trapezoid(y, x, dx),
    np.mean: _mean,
    np.var: _var,
    np.std: lambda a, axis=None, ddof=0: call(ops.sqrt, _var(a, axis, ddof)),
    np.dot: _dot,
    np.vdot: lambda a, b: matmul(_plain(a).ravel(), _plain(b).ravel()),
    np.inner: lambda a, b: _dot(a, _plain(b).T),
    np.linalg.norm: _norm,
    np.clip: lambda a, *limits, **named: _clip(a, *limits, **named),
    np.round: _round,
    np.cumsum: lambda a, axis=None: _cumulate(operator.add, a, axis),
    np.cumprod: lambda a, axis=None: _cumulate(operator.mul, a, axis),
    np.trace: lambda a: _reduce(operator.add, np.diagonal(_plain(a))),
    np.outer: lambda a, b: map_elements(operator.mul, _plain(a).reshape(-1, 1), _plain(b).ravel()),
    np.diff: lambda a, n=1: functools.reduce(_differences, range(n), array(a)),
    np.sinc: lambda x: map_elements(_sinc, x),
    np.real: lambda x: x,
}  # fmt: skip

MOVES: Final = {
    np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.squeeze, np.expand_dims,
    np.concatenate, np.stack, np.hstack, np.vstack, np.dstack, np.column_stack, np.split,
    np.array_split, np.hsplit, np.vsplit, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.tile,
    np.repeat, np.roll, np.flip, np.flipud, np.fliplr, np.rot90, np.diag, np.diagonal, np.take,
    np.broadcast_to, np.broadcast_arrays, np.shape, np.ndim, np.size, np.copy, np.append,
    np.delete, np.insert, np.zeros_like, np.ones_like, np.full_like, np.empty_like, np.tril,
    np.triu, np.meshgrid, np.array_repr, np.array_str, np.array2string, np.result_type, np.rollaxis,
    np.copyto, np.may_share_memory, np.shares_memory, np.resize, np.pad, np.kron,
}  # fmt: skip
"""Functions that only move elements, and so are right for any objects."""


def _differences(v: Any, _: int) -> Any:
    return v[..., 1:] - v[..., :-1]


def _sinc(x: Any) -> Any:
    y = np.pi * x
    return ops.where(x == 0.0, 1.0, ops.sin(y) / ops.where(x == 0.0, 1.0, y))


def apply_function(func: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function that is no ufunc, on expressions."""
    if func in FUNCTIONS:
        kwargs = {k: v for k, v in kwargs.items() if v is not None and v is not NOT_GIVEN}
        return _called(func, args, kwargs)
    if func in MOVES:
        return _as_expressions(func(*_demote(args), **_demote(kwargs)))
    name = f"{func.__module__}.{func.__name__}".replace("numpy", "np", 1)
    raise TraceError(located(f"{name} is not defined for expressions"))


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    try:
        inspect.signature(FUNCTIONS[func]).bind(*args, **kwargs)
    except TypeError as error:
        raise TraceError(located(f"np.{func.__name__} of expressions: {error}")) from error
    return FUNCTIONS[func](*args, **kwargs)


def _demote(value: Any) -> Any:
    """The arguments with arrays of expressions as ordinary object arrays."""
    if isinstance(value, Handle):
        return np.asarray(array(value))
    if isinstance(value, ExprArray):
        return value.view(np.ndarray)
    if isinstance(value, dict):
        return {k: _demote(v) for k, v in value.items()}
    return type(value)([_demote(v) for v in value]) if type(value) in (list, tuple) else value


def _as_expressions(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.view(ExprArray)
    return (
        type(value)([_as_expressions(v) for v in value]) if type(value) in (list, tuple) else value
    )


# --- single expressions take part too -------------------------------------------------------------


def _expr_ufunc(self: Expr, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    return apply_ufunc(ufunc, method, inputs, options)


def _expr_function(self: Expr, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    return apply_function(func, args, kwargs)


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Expr, *others: Any) -> Any:
        return function(self, *others)

    return method


def install() -> None:
    """Give `Expr` NumPy's protocols, and the methods that loops over object arrays look for."""
    Expr.__array_ufunc__ = _expr_ufunc  # type: ignore[attr-defined]
    Expr.__array_function__ = _expr_function  # type: ignore[attr-defined]
    for ufunc, function in UFUNCS.items():
        if not hasattr(Expr, ufunc.__name__):
            setattr(Expr, ufunc.__name__, _method(function))


install()
