"""Whole arrays as a traced function has them: a tape, the number of an operation on it, a shape."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.recording import is_number, is_recorded, known
from symgrad.arrays.tape import KINDS, Operation, Rule, Tape, broadcast, number_key, size_of
from symgrad.arrays.views import VIEWS, is_view, written_through
from symgrad.errors import TraceError
from symgrad.expr.calls.numpy_calls import elementary, refuse_function, refuse_ufunc, without_out
from symgrad.expr.graph.misuse import located, refuse_bool, refuse_number
from symgrad.expr.graph.node import (
    ANY_INPUT,
    ElementsNeededError,
    Graph,
    Handle,
    NoSuchNameError,
    Op,
    Whole,
    real_number,
    whole_among,
)
from symgrad.expr.graph.region import has_regions
from symgrad.expr.tracers.expression import WRAP, Expr


def _operator(ufunc: np.ufunc, swapped: bool = False) -> Any:
    def method(self: WholeArray, other: Any) -> Any:
        return self.mapped(ufunc, (other, self) if swapped else (self, other))

    return method


def _operators(ufunc: np.ufunc) -> tuple[Any, Any]:
    """The operator that a ufunc is, and the one that a right operand has."""
    return _operator(ufunc), _operator(ufunc, swapped=True)


def _in_place(ufunc: np.ufunc) -> Any:
    """The operator that writes its result to the left operand; numbers never change."""

    def method(self: WholeArray, other: Any) -> Any:
        if not self.shape and self.base is None:
            return NotImplemented
        result = self.mapped(ufunc, (self, other))
        if result.tape is not self.tape:
            raise ElementsNeededError("a write to an array from around a function that is mapped")
        if result.shape != self.shape:
            raise ValueError(
                f"non-broadcastable output operand with shape {self.shape} doesn't match the "
                f"broadcast shape {result.shape}"
            )
        if result.kind != self.kind:
            raise TypeError(
                f"np.{ufunc.__name__} in place gives {result.dtype}, which an array of "
                f"{self.dtype} does not hold: write a = a + b, or cast it by a.astype(...)"
            )
        self.become(result)
        return self

    return method


def _sign(ufunc: np.ufunc) -> Any:
    return lambda self: self.mapped(ufunc, (self,))


MOST_COMPARED: Final = 4096
"""Elements of an array of numbers up to which it is looked at, whether they are all one number."""

POSITIONS: Final = frozenset({rules.positioned, rules.called})
"""The operations whose integers are places along an axis: a sign does not matter to them."""

DTYPES: Final = {"f": np.dtype(np.float64), "i": np.dtype(np.int64), "b": np.dtype(np.bool_)}
"""The data types that NumPy would have for elements of each kind."""


class WholeArray(Whole):
    """An array of any size in a traced function: NumPy's functions, operators and methods take it.

    It has a shape and a dtype, and no numbers: what asks for one of them is an error, as for an
    expression. A result of no axes is one too.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> def loss(a):
        ...     assert a.shape == (100, 100) and a.T.ndim == 2
        ...     return np.sum((a - a.mean(axis=0))**2)
        >>> value, grad = sg.value_and_grad(loss, device="cpu")(np.eye(100))
        >>> round(float(value), 3)
        99.0
    """

    __slots__ = ("_number", "_seen", "base", "kind", "shape", "tape")
    __array_priority__ = 1000
    methods: ClassVar[dict[str, Callable[..., Any]]] = {}
    """NumPy's functions that are methods of arrays, by their names."""

    def __init__(self, tape: Tape, number: int, base: WholeArray | None = None) -> None:
        self.tape, self._number = tape, number
        self.shape, self.kind = tape.shapes[number], tape.kinds[number]
        self.base = base
        """The array whose elements this one shows, if it is a view."""
        self._seen = 0 if base is None else base.number

    # --- what it is -------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The operation that has its elements as they are now, by its number on the tape."""
        base = self.base
        if base is not None and base.number != self._seen:
            if is_view(self, base):
                self._seen = base.number
                rule, attribute, *_ = self.operation
                operands = (self._seen,)
                self._number = self.tape.add(rule, attribute, operands, self.shape, self.kind)
            else:
                self.base = None
        return self._number

    @property
    def operation(self) -> Operation:
        """The operation that it is the result of."""
        return self.tape.operations[self._number]

    def become(self, value: WholeArray) -> None:
        """Have the elements of another array of this shape, and so has what it is a view of."""
        if self.base is None or not is_view(self, self.base):
            self.base, self._number = None, value.number
        else:
            self.base.become(written_through(self, self.base, value))

    def copied(self) -> WholeArray:
        """An array with the same elements, which later writes to this one leave as they are."""
        return WholeArray(self.tape, self.number)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return size_of(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of its elements."""
        return DTYPES[self.kind]

    @property
    def T(self) -> WholeArray:
        """The array with its axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> WholeArray:
        """The array with its last two axes exchanged."""
        return self.transpose(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)

    @property
    def real(self) -> WholeArray:
        """Itself."""
        return self

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array of no axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[WholeArray]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        return f"<WholeArray of shape {self.shape}>"

    def __bool__(self) -> NoReturn:
        refuse_bool()

    def __float__(self) -> NoReturn:
        refuse_number("float")

    def __int__(self) -> NoReturn:
        refuse_number("int")

    def __index__(self) -> NoReturn:
        refuse_number("index")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise ElementsNeededError(
            located(
                "NumPy asks for the elements of a whole array: np.array and np.asarray of traced "
                "arrays are sg.array, or np.stack; if it is an index of an array of numbers, give "
                "these to the function as an argument, and index the argument"
            )
        )

    def __format__(self, spec: str) -> str:
        return repr(self) if not spec else refuse_number(f"the format {spec!r}")

    def __hash__(self) -> int:
        return hash((id(self.tape), self.number))

    # --- operators --------------------------------------------------------------------------------

    __add__, __radd__ = _operators(np.add)
    __sub__, __rsub__ = _operators(np.subtract)
    __mul__, __rmul__ = _operators(np.multiply)
    __truediv__, __rtruediv__ = _operators(np.divide)
    __floordiv__, __rfloordiv__ = _operators(np.floor_divide)
    __mod__, __rmod__ = _operators(np.remainder)
    __pow__, __rpow__ = _operators(np.power)
    __and__, __rand__ = _operators(np.bitwise_and)
    __or__, __ror__ = _operators(np.bitwise_or)
    __xor__, __rxor__ = _operators(np.bitwise_xor)
    __lshift__, __rlshift__ = _operators(np.left_shift)
    __rshift__, __rrshift__ = _operators(np.right_shift)
    __lt__, __le__ = _operator(np.less), _operator(np.less_equal)
    __gt__, __ge__ = _operator(np.greater), _operator(np.greater_equal)
    __eq__, __ne__ = _operator(np.equal), _operator(np.not_equal)
    __iadd__, __isub__ = _in_place(np.add), _in_place(np.subtract)
    __imul__, __itruediv__ = _in_place(np.multiply), _in_place(np.divide)
    __ifloordiv__, __imod__ = _in_place(np.floor_divide), _in_place(np.remainder)
    __ipow__, __iand__ = _in_place(np.power), _in_place(np.bitwise_and)
    __ior__, __ixor__ = _in_place(np.bitwise_or), _in_place(np.bitwise_xor)
    __neg__, __abs__ = _sign(np.negative), _sign(np.absolute)
    __pos__, __invert__ = _sign(np.positive), _sign(np.invert)

    def __matmul__(self, other: Any) -> Any:
        return self.functions[np.matmul](self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self.functions[np.matmul](other, self)

    # --- operations -------------------------------------------------------------------------------

    def then(
        self, rule: Rule, attribute: Any, shape: tuple[int, ...], *others: WholeArray,
        kind: str | None = None,
    ) -> WholeArray:  # fmt: skip
        """The result of a rule for it and others, a view of it where NumPy has one."""
        assert all(o.tape is self.tape for o in others), "operands are of one tape"
        operands = (self.number, *(o.number for o in others))
        number = self.tape.add(rule, attribute, operands, shape, kind or self.kind)
        return WholeArray(self.tape, number, self if rule in VIEWS else None)

    def lift(self, value: Any) -> WholeArray:
        """Numbers, or a nest of numbers and whole arrays, as a whole array of the same tape."""
        if isinstance(value, WholeArray):
            return value if value.tape is self.tape else self._from_outside(value)
        if isinstance(value, (list, tuple)) and whole_among(list(flat(value))) is not None:
            return self.functions[np.stack]([self.lift(v) for v in value])
        if isinstance(value, (Handle, Whole)):
            raise ElementsNeededError("an expression beside a whole array")
        array: Any = value if hasattr(value, "dtype") else np.asarray(value)
        if array.dtype == object and not any(isinstance(e, Handle) for e in array.flat):
            array = np.array(array.tolist())
        if array.dtype.kind not in KINDS:
            for element in array.flat[:1]:
                real_number(element)
            raise ElementsNeededError(f"an array of {array.dtype}")
        return WholeArray(self.tape, _known(self.tape, array))

    def _from_outside(self, value: WholeArray) -> WholeArray:
        """An array of a function around this one, which is mapped."""
        if self.tape.outer is None:
            raise ElementsNeededError("an array of another trace")
        around = WholeArray(self.tape.outer, 0).lift(value)
        return WholeArray(self.tape, self.tape.operand(around.number))

    def mapped(self, function: Callable[..., Any], arguments: Sequence[Any]) -> WholeArray:
        """A function of elements, of these arguments broadcast against each other."""
        inmost = innermost(arguments)
        if inmost.tape is not self.tape:
            return inmost.mapped(function, arguments)
        if not isinstance(function, Op | np.ufunc):
            arguments = [self._real(a) for a in arguments]
        if function is np.power and is_number(arguments[1]):
            arguments = arguments[0], known(arguments[1])  # squares are products
        kind = _result_kind(function, tuple(map(_kind_of, arguments)))
        parts: list[Any] = []
        operands: list[int] = []
        shapes: list[tuple[int, ...]] = []
        for argument in arguments:
            a = argument.item() if _is_number(argument) else argument
            if type(a) in _NUMBERS:
                parts.append((a,) if a else (a, number_key(a)))
                continue
            whole = a if type(a) is WholeArray and a.tape is self.tape else self.lift(a)
            parts.append(None)
            operands.append(whole.number)
            shapes.append(whole.shape)
        if isinstance(function, np.ufunc):
            element = elementary(function)
        elif isinstance(function, Op):
            element = function
        else:
            element, kind = written_out(function, tuple(map(_kind_of, arguments)))
        attribute = element, tuple(parts), tuple(map(type, arguments)), kind
        number = self.tape.add(
            rules.elementwise, attribute, tuple(operands), broadcast(shapes), kind
        )
        return WholeArray(self.tape, number)

    def _real(self, argument: Any) -> Any:
        """An argument of a function of real numbers: arrays of integers are made real."""
        is_number = _kind_of(argument) in "fFIB"
        return argument if is_number else self.lift(argument).astype(float)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if "out" in options:
            refuse_ufunc(ufunc, method)
        own = self.functions.get((ufunc, method))
        if own is not None:
            return own(*inputs, **options)
        if method == "outer" and len(inputs) == 2:
            first, second = (x if isinstance(x, WholeArray) else self.lift(x) for x in inputs)
            inputs = first.reshape((*first.shape, *[1] * second.ndim)), second
            method = "__call__"
        if method != "__call__" or not elementary(ufunc) or options.keys() - {"dtype"}:
            refuse_ufunc(ufunc, method)
        return self.mapped(ufunc, inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        own = self.functions.get(func)
        if own is None:
            refuse_function(func)
        args, kwargs = without_out(func, args, kwargs)
        if kwargs:
            _require_options(own, func.__name__, kwargs)
        return own(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        method = self.methods.get(name)
        if method is None:
            raise NoSuchNameError(f"a whole array has no {name!r}")
        return functools.partial(method, self)

    def __getitem__(self, key: Any) -> Any:
        return self.functions["index"](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        is_mask = isinstance(key, WholeArray) and key.kind == "b"
        if isinstance(value, WholeArray) and not is_mask and value.number == self[key].number:
            return  # a[key] += b has written it already
        self.become(self.at[key].set(value))

    @property
    def at(self) -> Any:
        """Updates that give another array: ``a.at[k].set(x)`` is a with x as element k."""
        return self.functions["at"](self)

    def transpose(self, *axes: Any) -> WholeArray:
        """The array with its axes in another order, the reverse one by default."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return self.functions[np.transpose](self, order or None)

    def reshape(self, *shape: Any, **options: Any) -> WholeArray:
        """The elements in another shape."""
        one = shape[0] if len(shape) == 1 else shape
        return self.functions[np.reshape](self, one, **options)

    def astype(self, dtype: Any, **_: Any) -> WholeArray:
        """The elements as another type; real ones as integers are rounded towards 0."""
        kind = KINDS.get(np.dtype(dtype).kind)
        if kind is None:
            raise TraceError(located(f"a whole array has no elements of {np.dtype(dtype)}"))
        if kind == "i" and self.kind != "b":
            if np.dtype(dtype).itemsize < 4:
                raise TraceError(
                    located(
                        f"integers here have 32 bits, not those of {np.dtype(dtype)}"
                        ": write x.astype(int), and & 255 or the like for what should wrap around"
                    )
                )
            if np.dtype(dtype).kind == "u" and self.operation.rule not in POSITIONS:
                raise ElementsNeededError(
                    f"{np.dtype(dtype)}, as integers of whole arrays have a sign: x.astype(int) has"
                    " the same sums, products, bits; (x >> n) & (2**(32 - n) - 1) shifts zeros in"
                )
        if kind == self.kind:
            return self.copied()
        return self.then(rules.cast, kind, self.shape, kind=kind)

    def item(self) -> NoReturn:
        """Its one number, which is not known yet."""
        refuse_number("float")


def _require_options(function: Callable[..., Any], name: str, options: dict[str, Any]) -> None:
    """Refuse options that a function of whole arrays does not have: elements may."""
    unknown = options.keys() - _parameters(function)
    if unknown and None not in _parameters(function):
        raise ElementsNeededError(f"{name}(..., {min(unknown)}=) of whole arrays")


@functools.lru_cache(512)
def _parameters(function: Callable[..., Any]) -> frozenset[str | None]:
    """The names of a function's parameters; None among them where it takes any."""
    parameters = inspect.signature(function).parameters.values()
    return frozenset(None if p.kind is p.VAR_KEYWORD else p.name for p in parameters)


_NUMBERS: Final = frozenset((int, float, bool))


def _is_number(a: Any) -> bool:
    """Whether it is one of NumPy's numbers, which are constants."""
    return isinstance(a, np.generic) and not is_recorded(a)


def _kind_of(a: Any) -> str:
    """The kind of an argument: of numbers in lower case, as NumPy's weak types, of arrays too."""
    if type(a) is WholeArray:
        return a.kind
    if _is_number(a):
        a = a.item()
    if type(a) in _NUMBERS:
        return {int: "I", float: "F", bool: "B"}[type(a)]
    dtype = a.dtype if hasattr(a, "dtype") else np.asarray(a).dtype
    return KINDS.get(dtype.kind, "f")


@functools.lru_cache(4096)
def _result_kind(function: Any, kinds: tuple[str, ...]) -> str:
    """The kind of a function's results, by those of its arguments."""
    if isinstance(function, Op):
        if function.result == "b":
            return "b"
        values = set(kinds)
        if function.name == "where":
            values = {k.lower() for k in kinds[1:]}
            if values <= {"i", "b"}:
                return "b" if values == {"b"} else "i"
        return "i" if function.whole and values <= {"i", "I"} else "f"
    if not isinstance(function, np.ufunc):
        return "f"
    types: dict[str, Any] = {"f": np.float64, "F": float, "i": np.int64, "I": int}
    types |= {"b": np.bool_, "B": np.bool_}
    wanted = [t if t in (int, float) else np.dtype(t) for t in (types[k] for k in kinds)]
    if all(isinstance(t, type) for t in wanted):
        wanted = [np.dtype(t) for t in wanted]
    try:
        resolved = function.resolve_dtypes((*wanted, *[None] * function.nout))
    except TypeError as error:
        raise TraceError(located(f"np.{function.__name__}: {error}")) from error
    return KINDS.get(resolved[function.nin].kind, "f")


def _known(tape: Tape, array: Any) -> int:
    """An array of numbers on a tape: one number, a sequence of integers, or an input."""
    if is_recorded(array):
        return tape.captured(array)
    if isinstance(array, np.ndarray) and (sequence := _sequence(array)) is not None:
        return tape.add(rules.counted, sequence, (), array.shape, "i")
    if isinstance(array, (np.ndarray, np.generic)) and 0 < array.size <= MOST_COMPARED:
        first, kind = np.ravel(array)[0], KINDS[array.dtype.kind]
        if not array.ndim or bool(np.all(array == first)):
            number = first.item()
            key = (kind, number) if number else (kind, number, number_key(number))
            return tape.add(rules.filled, key, (), array.shape, kind)
    return tape.captured(array)


def _sequence(array: np.ndarray) -> tuple[int, int, int] | None:
    """The first of integers in a line, their distance, and the axis that they are along."""
    if array.dtype.kind not in "iu" or array.size < 2 or array.size != max(array.shape):
        return None
    line = array.reshape(-1)
    first, second, last = int(line[0]), int(line[1]), int(line[-1])
    step = second - first
    is_short = max(abs(first), abs(last)) < 2**31
    if not step or not is_short or last != first + step * (line.size - 1):
        return None
    if not np.array_equal(line, first + step * np.arange(line.size)):
        return None
    return first, step, array.shape.index(line.size)


def anchor_of(tape: Tape) -> WholeArray:
    """The number 0 on a tape, which lifts others onto it."""
    return WholeArray(tape, _known(tape, np.zeros(())))


def innermost(values: Sequence[Any]) -> WholeArray:
    """The first whole array of the tape of the innermost function that is traced."""
    wholes = [v for v in values if type(v) is WholeArray]
    return max(wholes, key=lambda w: w.tape.depth)


@dataclass(frozen=True)
class Written:
    """A function of elements as the operations that it makes: equal ones are one."""

    nodes: tuple[tuple[Any, ...], ...]
    root: int

    def __call__(self, *elements: Any) -> Any:
        """The function of these elements, numbers among them."""
        graph = next(e.graph for e in elements if isinstance(e, Handle))
        values: list[Any] = []
        for node in self.nodes:
            op = node[0]
            if op in ANY_INPUT:
                values.append(elements[node[1]])
            elif op.constant:
                values.append(_constant(graph, node))
            else:
                values.append(op(*[values[k] for k in node[1:]]))
        return values[self.root]


def _constant(graph: Graph, node: tuple[Any, ...]) -> Any:
    i = graph.intern(node)
    return WRAP[node[0].result](graph, i)


def written_out(function: Callable[..., Any], kinds: Sequence[str]) -> tuple[Written, str]:
    """A function of elements, called once with symbols, and the kind of its result."""
    graph = Graph()
    graph.tracing = False
    variables = [Expr(graph, graph.input(f"x{k}")) for k in range(len(kinds))]
    result = function(*variables)
    if not isinstance(result, Expr):
        raise ElementsNeededError("a function of elements that gives no expression")
    if has_regions(graph):
        raise ElementsNeededError("a loop over elements")
    return Written(tuple(graph.nodes), result.id), "b" if result.type == "b" else "f"


def flat(value: Any) -> Iterator[Any]:
    """The values in nested lists and tuples, in order."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from flat(part)
    else:
        yield value
