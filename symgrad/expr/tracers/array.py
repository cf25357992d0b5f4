"""Arrays of expressions, also in memory, and what is done with them element by element."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.arrays import ADD_AT
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import (
    ElementsNeededError,
    Graph,
    Handle,
    Op,
    real_number,
    whole_among,
)
from symgrad.expr.graph.place import OnePlace
from symgrad.expr.graph.written_out import warn_of_elements
from symgrad.expr.tracers.expression import Condition, Scalar, cast_to
from symgrad.expr.tracers.memory import (
    LEAST_SWEPT,
    Sweep,
    View,
    WordArray,
    array_of,
    element_of,
    innermost_body,
)


def plain(value: Any) -> Any:
    """As an ordinary object array, whose elements NumPy moves around without looking."""
    if isinstance(value, Handle):
        if value.is_row:
            raise TraceError(located("the elements of a row are not known one by one"))
        result = np.empty((), dtype=object)
        result[()] = value
        return result
    elements = np.asarray(value)
    if elements.dtype.char == "g":  # long doubles, which are not among Python's numbers
        elements = elements.astype(np.float64)
    return unpacked(elements) if elements.dtype == object else elements


def unpacked(a: np.ndarray) -> np.ndarray:
    """Objects without arrays of no axes among them, as which NumPy keeps what stands in lists."""
    if not any(isinstance(e, np.ndarray) for e in a.flat):
        return a
    result = np.empty(a.shape, dtype=object)
    result.reshape(-1)[:] = [e[()] if isinstance(e, np.ndarray) else e for e in a.flat]
    return result


def as_elements(value: Any) -> Any:
    """A value to put into an array: expressions and numbers, or arrays of them with axes."""
    value = plain(value) if isinstance(value, (list, tuple, np.ndarray)) else value
    return value[()] if isinstance(value, np.ndarray) else value


def parts_of(key: Any) -> tuple[Any, ...]:
    """The parts of an index, one for each axis."""
    return key if isinstance(key, tuple) else (key,)


def takes_values(key: Any) -> bool:
    """Whether an index holds expressions."""
    return any(isinstance(e, Handle) for e in each_of(key))


def each_of(key: Any) -> Iterator[Any]:
    """All that stands in an index."""
    for part in parts_of(key):
        if isinstance(part, slice):
            yield from (part.start, part.stop, part.step)
        else:
            yield from plain(part).flat if isinstance(part, (list, np.ndarray)) else (part,)


def numbers_of(values: Any, whole: bool) -> Any:
    """The values as NumPy's floating-point numbers, or integers that may stay so."""
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "fiub":
        numbers = np.reshape([real_number(v) for v in numbers.flat], numbers.shape)
    if numbers.dtype.kind not in ("fiu" if whole else "f"):
        numbers = numbers.astype(np.float64)
    return numbers[()]


def graph_of(arrays: Sequence[np.ndarray]) -> Graph | None:
    """The graph of the first expression in them."""
    several = (a for a in arrays if a.dtype.kind == "O")  # numbers alone may be very many
    return next((e.graph for a in several for e in a.flat if isinstance(e, Handle)), None)


class ExprArray(np.ndarray):
    """A NumPy object array of expressions (and numbers): what a traced function is given.

    Indexing, slicing, iteration, arithmetic, ``@`` and NumPy's functions work as on numbers, but
    that a number 0 among the elements of an array, as in a matrix that is mostly zeros, says that
    nothing is there: in sums, differences and products of arrays it vanishes, also beside infinity
    and NaN. A 0 that is no element of an array, as in ``0.0 * x``, is a number like others.

    An index may be an expression, as the counter of a loop is: see `TracedArray`.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> def length(v):
        ...     assert isinstance(v, sg.ExprArray) and v.shape == (3,)
        ...     return np.sqrt(np.sum(v[:2]**2)) + v[-1]
        >>> sg.fused_forward(3, length, device="cpu").run([3.0, 4.0, 1.0])
        6.0
    """

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except (IndexError, ElementsNeededError):
            if (whole := whole_among(parts_of(key))) is not None:
                return whole.lift(self)[key]
            if not takes_values(key):
                raise
            return in_memory(_graph_with(self, key), self)[key]

    @property
    def at(self) -> At:
        """Updates that give another array: ``a.at[k].set(x)`` is a with x as element k."""
        return At(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        try:
            super().__setitem__(key, as_elements(value))
        except IndexError as error:
            if not holds_expressions(key):
                raise
            what = "where v[k] = x puts its elements"
            raise TraceError(located(unknown(what, "use v = v.at[k].set(x)"))) from error

    def take(  # type: ignore[override]
        self, indices: Any, axis: int | None = None, out: None = None, mode: Any = "raise"
    ) -> Any:
        """As ``np.take``."""
        return np.take(self, indices, axis, out, mode)  # type: ignore[call-overload]

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        """The elements as another type: integers have 32 bits, as those of `int32`, `uint32`."""
        if np.dtype(dtype) == object:
            return super().astype(dtype, *args, **options)
        return map_elements(cast_to(dtype), self)

    def fill(self, value: Any) -> None:
        """Put one expression, or number, everywhere."""
        super().fill(as_elements(value))

    def __bool__(self) -> bool:
        return bool(self.item()) if self.size == 1 else super().__bool__()


def unknown(what: str, instead: str = "write turns out with Python's for") -> str:
    """The message that something would have to be known of elements before there are values."""
    return (
        f"{what} depends on values where an index is a condition or an expression, as the counter "
        f"of a loop is: {instead}, or use np.choose, or use sg.where"
    )


REDUCTIONS: Final = frozenset({"sum", "prod", "mean", "var", "std", "max", "min"})
"""Methods of arrays in memory that are NumPy's functions of these names."""


class TracedArray(NDArrayOperatorsMixin):
    """An array that is kept in memory, so that an index may be an expression.

    ``v[k]`` reads an array of expressions so, ``v.at[k].set(x)`` gives one, and loops carry them.
    An index that is an expression is its nearest whole number, a negative one counts from the end,
    and what is out of range is, as in JAX, the nearest element where it is read, and dropped where
    it is written. Elsewhere, in arithmetic and in NumPy's functions, it is the array of all its
    elements; of a long one a loop computes them, one by one, where that is seen (`swept`).

    Example:
        >>> import symgrad as sg
        >>> x, k = sg.symbols("x k")
        >>> a = sg.array([x, 2.0, 3.0]).at[k].add(10.0)
        >>> sg.evaluate(a, {x: 1.0, k: 2.0})
        array([ 1.,  2., 13.])
    """

    __slots__ = ("_elements", "_holds", "_source", "graph", "shape")
    functions: ClassVar[dict[Any, Callable[..., Any]]] = {}
    """NumPy's functions that take it as it stands in memory, or give None."""

    def __init__(self, source: View | Sweep) -> None:
        self._source = source
        self._elements: ExprArray | None = None
        self.graph = source.graph if isinstance(source, Sweep) else source.array.graph
        """The graph of its expressions."""
        self.shape = source.shape
        """The length of each axis."""
        self._holds = isinstance(source, Sweep) and isinstance(source.element, Condition)

    @property
    def view(self) -> View:
        """Where the elements stand in memory."""
        if isinstance(self._source, Sweep):
            self._source = self._source.view()
        return self._source

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def element(self) -> Any:
        """An element, at the index that stands for all; None if they are at all distances."""
        if isinstance(self._source, Sweep) and self._source.body is innermost_body(self.graph):
            return self._source.element
        return element_of(self.view)

    @property
    def T(self) -> TracedArray:
        """The array with its axes in reverse order."""
        return TracedArray(self.view.transposed())

    @property
    def at(self) -> At:
        """Updates that give another array: ``a.at[k].set(x)`` is a with x as element k."""
        return At(self)

    def astype(self, dtype: Any, **_: Any) -> Any:
        """The elements as another type: integers have 32 bits, as those of `int32`, `uint32`."""
        return map_elements(cast_to(dtype), self)

    def elements(self) -> ExprArray:
        """The array of all elements, each read at its place."""
        if self._elements is None:
            reads = np.empty(self.size, dtype=object)
            with OnePlace(self.graph):
                reads[:] = [self.view.array[place] for place in self.view.words()]
                if self._holds:
                    reads[:] = [e > 0.5 for e in reads]
            self._elements = reads.reshape(self.shape).view(ExprArray)
        return self._elements

    def __getitem__(self, key: Any) -> Any:
        several = [p for p in parts_of(key) if isinstance(p, (list, np.ndarray)) and np.ndim(p)]
        if several:
            return _gathered(self, key)
        part = TracedArray(self.view.part(key))
        return part if part.shape else part.elements()[()]

    def __len__(self) -> int:
        return len(self.elements()) if not self.shape else self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.elements(), dtype=dtype, subok=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "__call__" and not options:
            own = self.functions.get(ufunc)
            result = own(*inputs) if own else None if ufunc.signature else swept(ufunc, inputs)
            if result is not None:
                return result
        return getattr(ufunc, method)(*_as_elements_of(inputs), **_as_elements_of(options))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        own = self.functions.get(func)
        result = own(*args, **kwargs) if own else None
        return func(*_as_elements_of(args), **_as_elements_of(kwargs)) if result is None else result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        own = getattr(np, name, None) if name in REDUCTIONS else None
        return functools.partial(own, self) if own else getattr(self.elements(), name)

    def __bool__(self) -> bool:
        return bool(self.elements())

    def __repr__(self) -> str:
        return f"<TracedArray of shape {self.shape}>"


class Updates(ABC):
    """``a.at[key]``: arrays that differ from one in the elements that an index takes."""

    __slots__ = ("_array", "_key")

    def __init__(self, a: Any, key: Any = ...) -> None:
        self._array, self._key = a, key

    def __getitem__(self, key: Any) -> Self:
        return type(self)(self._array, key)

    def get(self) -> Any:
        """The elements themselves."""
        return self._array[self._key]

    @abstractmethod
    def set(self, values: Any) -> Any:
        """The array with these in their place; the last one of an index that is repeated."""

    @abstractmethod
    def add(self, values: Any) -> Any:
        """The array with these added to them, each one where an index is repeated."""

    def subtract(self, values: Any) -> Any:
        """The array with these subtracted from them."""
        return self._combined(operator.sub, np.sum, values)

    def multiply(self, values: Any) -> Any:
        """The array with them multiplied by these."""
        return self._combined(operator.mul, np.prod, values)

    def divide(self, values: Any) -> Any:
        """The array with them divided by these."""
        return self._combined(operator.truediv, np.prod, values)

    def min(self, values: Any) -> Any:
        """The array with the lesser of them and these."""
        return self._combined(np.minimum, np.min, values)

    def max(self, values: Any) -> Any:
        """The array with the greater of them and these."""
        return self._combined(np.maximum, np.max, values)

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """The array with what a function makes of them in their place."""
        return self.set(function(self.get()))

    @abstractmethod
    def _combined(self, combine: Callable[[Any, Any], Any], reduce: Any, values: Any) -> Any:
        """The array with them combined with the reduction of those values that each one gets."""


class At(Updates):
    """Updates of arrays of expressions, of numbers by whole arrays too, and of memory."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        whole = whole_among(parts_of(key))
        return super().__getitem__(key) if whole is None else whole.lift(self._array).at[key]

    def set(self, values: Any) -> Any:
        """The array with these in their place; the last one of an index that is repeated."""
        return self._combined(lambda _, new: new, None, values)

    def add(self, values: Any) -> Any:
        """The array with these added to them, each one where an index is repeated."""
        if (whole := whole_among((values,))) is not None:
            return whole.lift(self._array).at[self._key].add(values)
        if isinstance(self._array, ExprArray) and not takes_values(self._key):
            return self._combined(operator.add, np.sum, values)
        return self._written(values, ADD_AT)

    def _combined(self, combine: Callable[[Any, Any], Any], reduce: Any, values: Any) -> Any:
        """The array with them combined with values, one after another where an index repeats.

        Equal extremes of one element share its derivative.
        """
        a, key = self._array, self._key
        if (whole := whole_among((values,))) is not None:
            return whole.lift(a).at[key]._combined(combine, reduce, values)
        if isinstance(a, TracedArray) or takes_values(key):
            return self._written(combine(self.get(), values), None)
        combined, places = a.copy(), np.arange(a.size).reshape(a.shape)[key]
        if len(np.unique(places)) == places.size:
            combined[key] = combine(a[key], values)
            return combined
        elements, operands = combined.reshape(-1), np.broadcast_to(plain(values), places.shape)
        groups = dict[int, list[Any]]()
        for place, value in zip(places.flat, operands.flat, strict=True):
            groups.setdefault(int(place), [elements[place]]).append(value)
        for place, group in groups.items():
            is_extreme = reduce in (np.min, np.max)
            elements[place] = (
                reduce(array(group)) if is_extreme else functools.reduce(combine, group)
            )
        return combined

    def _written(self, values: Any, op: Op | None) -> Any:
        """The array in memory with these written to it, in range."""
        a, key = self._array, self._key
        whole = in_memory(_graph_with(a, key), a).view
        graph = whole.array.graph
        part, memory = whole.part(key), whole.array
        if op is not None and isinstance(memory, WordArray):
            return self._written(self.get() + values, None)
        elements = np.broadcast_to(plain(values), part.shape)
        for place, value in zip(part.words(), elements.flat, strict=True):
            new = memory.element(value)
            if new is None and isinstance(memory, WordArray):
                name = memory.kind.name
                raise TraceError(
                    located(f"{value!r} is a real number, and the array of {name}: cast it first")
                )
            if part.inside is not None:
                previous = 0.0 if op else memory[place]
                new = ops.where(Condition(graph, part.inside), new, previous)
            memory = op(memory, place, new) if op else memory.put(place, new)
        return TracedArray(View.whole(memory, whole.shape))


def _graph_with(a: Any, key: Any) -> Graph:
    """The graph of an array and of an index that is not all known."""
    if isinstance(a, TracedArray):
        return a.graph
    graph = next((e.graph for e in (*each_of(key), *plain(a).flat) if isinstance(e, Handle)), None)
    assert graph is not None, "an index that is an expression is of a graph"
    return graph


def in_memory(graph: Graph, a: Any) -> TracedArray:
    """An array of expressions, or of numbers, in memory: all of one array, in order."""
    if isinstance(a, TracedArray) and a.view.is_whole:
        return a
    elements = plain(a)
    with OnePlace(graph):
        memory = array_of(graph, list(elements.flat))
    return TracedArray(View.whole(memory, elements.shape))


def swept(function: Callable[..., Any], arguments: Sequence[Any]) -> TracedArray | None:
    """A function of the elements of long arrays in memory, for a loop over them to compute.

    None if they are short, or are not of one shape, or if there is anything else among them.
    """
    first = next((a for a in arguments if isinstance(a, TracedArray)), None)
    if first is None or first.size < LEAST_SWEPT:
        return None
    graph, elements = first.graph, list[Any]()
    with OnePlace(graph):
        for a in arguments:
            elements.append(_element(graph, a, first.shape))
            if elements[-1] is None:
                return None
        element = function(*elements)
    if not isinstance(element, Scalar):
        return None
    return TracedArray(Sweep(graph, first.shape, first.size, element, innermost_body(graph)))


def _element(graph: Graph, a: Any, shape: tuple[int, ...]) -> Any:
    """An element of an array of this shape, or a number for all; None if it is neither.

    An array with a number 0 in it, which is not there in sums and products, is left alone.
    """
    if isinstance(a, TracedArray):
        return a.element() if a.shape == shape else None
    if isinstance(a, np.ndarray) and a.shape == shape:
        all_nonzero = all(isinstance(e, Handle) or e != 0 for e in a.flat)
        return in_memory(graph, a).element() if all_nonzero else None
    return a if isinstance(a, (Scalar, int, float, np.number)) else None


def _gathered(a: TracedArray, key: Any) -> ExprArray:
    """The elements at arrays of indices, which stand before all others."""
    parts = parts_of(key)
    indices = [plain(p) for p in parts if isinstance(p, (list, np.ndarray)) and np.ndim(p)]
    rest = parts[len(indices) :]
    if any(isinstance(p, (list, np.ndarray)) and np.ndim(p) for p in rest):
        raise TraceError(located("arrays of indices stand before all other indices"))
    places = np.broadcast_arrays(*[p.astype(object) for p in indices])
    reads = [plain(a[(*index, *rest)]) for index in zip(*[p.flat for p in places], strict=True)]
    inner = reads[0].shape if reads else ()
    gathered = np.empty((len(reads), *inner), dtype=object)
    for k, one in enumerate(reads):
        gathered[k] = one[()] if not one.ndim else one
    return gathered.reshape((*places[0].shape, *inner)).view(ExprArray)


def _as_elements_of(value: Any) -> Any:
    """Arguments of NumPy's, with the elements of arrays in memory for these."""
    if isinstance(value, TracedArray):
        return value.elements()
    if isinstance(value, dict):
        return {name: _as_elements_of(part) for name, part in value.items()}
    return type(value)(map(_as_elements_of, value)) if type(value) in (list, tuple) else value


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
    if isinstance(values, TracedArray):
        return values.elements()
    nested = isinstance(values, (list, tuple))
    if (whole := whole_among(values if nested else [values])) is not None:
        return whole.functions[np.stack if nested else np.copy](values)
    return unpacked(np.asarray(values, dtype=object)).view(ExprArray)


def map_elements(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function`` of the elements of the broadcast arguments; a scalar if all are scalars."""
    if all(isinstance(a, Handle) for a in arguments):
        return function(*arguments)
    if (whole := whole_among(arguments)) is not None:
        return whole.mapped(function, arguments)
    arrays = [plain(a) for a in arguments]
    if not any(a.ndim for a in arrays):
        return function(*[a.item() if a.dtype != object else a[()] for a in arrays])
    graph = graph_of(arrays)
    warn_of_elements(graph, max(a.size for a in arrays))  # before they become objects
    shape, rows = _broadcast([a.astype(object) for a in arrays])
    result = np.empty(shape, dtype=object)
    warn_of_elements(graph, result.size)
    with OnePlace(graph):
        result.reshape(-1)[:] = [function(*elements) for elements in zip(*rows, strict=False)]
    return result.view(ExprArray)


def _broadcast(arrays: Sequence[np.ndarray]) -> tuple[tuple[int, ...], list[Iterable[Any]]]:
    """The shape of the broadcast arrays, and the elements of each: one for all without an end."""
    shapes = {a.shape for a in arrays if a.ndim}
    if len(shapes) > 1:
        arrays = np.broadcast_arrays(*arrays)
        shapes = {arrays[0].shape}
    return shapes.pop(), [a.flat if a.ndim else itertools.repeat(a[()]) for a in arrays]


def call(op: Op, *arguments: Any) -> Any:
    """The operation on expressions, on arrays of them, or, with no expression, on numbers."""
    if (whole := whole_among(arguments)) is not None:
        return whole.mapped(op, arguments)
    if (result := swept(op, arguments)) is not None:
        return result
    arguments = _as_elements_of(arguments)
    arrays = any(isinstance(a, (list, tuple, np.ndarray)) for a in arguments)
    if not arrays and any(isinstance(a, Handle) for a in arguments):
        return op(*arguments)
    if any(map(holds_expressions, arguments)):
        return map_elements(op, *arguments)
    with np.errstate(all="ignore"):
        values = [numbers_of(a, op.whole) for a in arguments]
        return np.asarray(op.reference(*values))[()]


def holds_expressions(a: Any) -> bool:
    """Whether it is an expression, or an array of objects, as expressions are."""
    if isinstance(a, (list, tuple, np.ndarray)):
        return np.asarray(a).dtype == object
    return isinstance(a, (Handle, TracedArray))
