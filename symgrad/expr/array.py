"""Arrays of expressions: what is done element by element, and along an axis."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr.misuse import located
from symgrad.expr.node import Graph, Handle, Op, real_number
from symgrad.expr.place import OnePlace


class ExprArray(np.ndarray):
    """A NumPy object array of expressions (and numbers): what a traced function is given.

    Indexing, slicing, iteration, arithmetic, ``@`` and NumPy's functions work as on numbers, but
    that a number 0 among the elements of an array, as in a matrix that is mostly zeros, says that
    nothing is there: in sums, differences and products of arrays it vanishes, also beside infinity
    and NaN. A 0 that is no element of an array, as in ``0.0 * x``, is a number like others.
    """

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except IndexError as error:
            if not holds_expressions(key):
                raise
            raise TraceError(located(unknown("which elements v[k] has"))) from error

    def __setitem__(self, key: Any, value: Any) -> None:
        try:
            super().__setitem__(key, _as_elements(value))
        except IndexError as error:
            if not holds_expressions(key):
                raise
            raise TraceError(located(unknown("where v[k] = x puts its elements"))) from error

    def fill(self, value: Any) -> None:
        """Put one expression, or number, everywhere."""
        super().fill(_as_elements(value))

    def __bool__(self) -> bool:
        return bool(self.item()) if self.size == 1 else super().__bool__()


def unknown(what: str) -> str:
    """The message that something would have to be known of elements before there are values."""
    return (
        f"{what} depends on values where an index is a condition or an expression, as the counter "
        "of a loop is: write turns out with Python's for, or use np.choose, or use sg.where"
    )


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
    return _unpacked(np.asarray(values, dtype=object)).view(ExprArray)


def plain(value: Any) -> Any:
    """As an ordinary object array, whose elements NumPy moves around without looking."""
    if isinstance(value, Handle):
        return np.asarray(array(value))
    found = np.asarray(value)
    return _unpacked(found) if found.dtype == object else found


def _unpacked(a: np.ndarray) -> np.ndarray:
    """Objects without arrays of no axes among them, as which NumPy keeps what stands in lists."""
    if not any(isinstance(e, np.ndarray) for e in a.flat):
        return a
    result = np.empty(a.shape, dtype=object)
    result.reshape(-1)[:] = [e[()] if isinstance(e, np.ndarray) else e for e in a.flat]
    return result


def _as_elements(value: Any) -> Any:
    """What is put into an array: expressions and numbers, or arrays of them with axes."""
    value = plain(value) if isinstance(value, (list, tuple, np.ndarray)) else value
    return value[()] if isinstance(value, np.ndarray) else value


def map_elements(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function`` of the elements of the broadcast arguments; a scalar if all are scalars."""
    if all(isinstance(a, Handle) for a in arguments):
        return function(*arguments)
    arrays = [plain(a) for a in arguments]
    if not any(a.ndim for a in arrays):
        return function(*[a.item() if a.dtype != object else a[()] for a in arrays])
    shape, rows = _broadcast([a.astype(object) for a in arrays])
    result = np.empty(shape, dtype=object)
    with OnePlace(_graph_of(arrays)):
        result.reshape(-1)[:] = [function(*elements) for elements in zip(*rows, strict=False)]
    return result.view(ExprArray)


def _broadcast(arrays: Sequence[np.ndarray]) -> tuple[tuple[int, ...], list[Iterable[Any]]]:
    """The shape of the broadcast arrays, and the elements of each: one for all without an end."""
    shapes = {a.shape for a in arrays if a.ndim}
    if len(shapes) > 1:
        arrays = np.broadcast_arrays(*arrays)
        shapes = {arrays[0].shape}
    return shapes.pop(), [a.flat if a.ndim else itertools.repeat(a[()]) for a in arrays]


def _graph_of(arrays: Sequence[np.ndarray]) -> Graph | None:
    """The graph of the first expression in them."""
    return next((e.graph for a in arrays for e in a.flat if isinstance(e, Handle)), None)


def call(op: Op, *arguments: Any) -> Any:
    """The operation on expressions, on arrays of them, or, with no expression, on numbers."""
    arrays = any(isinstance(a, (list, tuple, np.ndarray)) for a in arguments)
    if not arrays and any(isinstance(a, Handle) for a in arguments):
        return op(*arguments)
    if any(map(holds_expressions, arguments)):
        return map_elements(op, *arguments)
    with np.errstate(all="ignore"):
        values = [_numbers(a, op.whole) for a in arguments]
        return np.asarray(op.reference(*values))[()]


def _numbers(values: Any, whole: bool) -> Any:
    """The values as NumPy's floating-point numbers, or integers that may stay so."""
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "fiub":
        numbers = np.reshape([real_number(v) for v in numbers.flat], numbers.shape)
    if numbers.dtype.kind not in ("fiu" if whole else "f"):
        numbers = numbers.astype(np.float64)
    return numbers[()]


def holds_expressions(a: Any) -> bool:
    """Whether it is an expression, or an array of objects, as expressions are."""
    if isinstance(a, (list, tuple, np.ndarray)):
        return np.asarray(a).dtype == object
    return isinstance(a, Handle)


def is_zero(a: Any) -> bool:
    """Whether an element of an array is the number 0, which says that nothing is there."""
    return not isinstance(a, Handle) and bool(a == 0)


def add_elements(a: Any, b: Any) -> Any:
    """a + b of elements of arrays, where a number 0 says that nothing is there."""
    return b if is_zero(a) else a if is_zero(b) else a + b


def subtract_elements(a: Any, b: Any) -> Any:
    """a - b of elements of arrays, where a number 0 says that nothing is there."""
    return a if is_zero(b) else -b if is_zero(a) else a - b


def multiply_elements(a: Any, b: Any) -> Any:
    """a * b of elements of arrays, where a number 0 says that nothing is there."""
    return 0.0 if is_zero(a) or is_zero(b) else a * b


def reduce(
    function: Callable[[Any, Any], Any], a: Any, axis: Any = 0, keepdims: bool = False,
    initial: Any = None,
) -> Any:  # fmt: skip
    """The elements along one or several axes, or all of them, combined by ``function``."""
    a = plain(a)
    axes = range(a.ndim) if axis is None else np.atleast_1d(np.asarray(axis))
    axes = sorted({int(k) % a.ndim for k in axes}) if a.ndim else []
    kept = [k for k in range(a.ndim) if k not in axes]
    rows = a.transpose(kept + axes).reshape([a.shape[k] for k in kept] + [-1])
    result = np.empty(rows.shape[:-1], dtype=object)
    with OnePlace(_graph_of([rows])):
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
        if function is add_elements or function is operator.mul:
            return 0.0 if function is add_elements else 1.0
        raise TraceError(located("an empty array has no largest or smallest element"))
    while len(values) > 1:
        paired = [function(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = paired + values[len(paired) * 2 :]
    return values[0]


def accumulate(function: Callable[[Any, Any], Any], a: Any, axis: int = 0) -> Any:
    """What `reduce` gives of the elements up to each one along an axis, one after another."""
    rows = np.moveaxis(plain(a).astype(object), axis, 0).copy()
    for k in range(1, len(rows)):
        rows[k] = map_elements(function, rows[k - 1], rows[k])
    return np.moveaxis(rows, 0, axis).view(ExprArray)


def matmul(a: Any, b: Any) -> Any:
    """``a @ b``, each sum a balanced tree."""
    a, b = plain(a), plain(b)
    if not a.ndim or not b.ndim:
        raise TraceError(located("matmul needs arrays: use * to multiply by a scalar"))
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        raise TraceError(located(f"matmul: shapes {a.shape} and {b.shape} do not match"))
    products = map_elements(multiply_elements, left[..., :, :, None], right[..., None, :, :])
    result = plain(reduce(add_elements, products, axis=-2))
    result = result[..., 0] if b.ndim == 1 else result
    if a.ndim == 1:
        result = result[..., 0, :] if b.ndim > 1 else result[..., 0]
    return result.view(ExprArray) if result.ndim else result[()]
