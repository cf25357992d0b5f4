"""Expressions: handles on nodes with Python's operators, and what goes wrong with them."""

from __future__ import annotations

import numbers
import operator
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from symgrad.errors import ForeignExpressionError, InputError, InputTypeError, TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located, refuse_bool, refuse_number
from symgrad.expr.graph.node import INPUT, INTEGER, TRUTH, WORD, Graph, Handle, Op, real_number
from symgrad.expr.graph.place import place_here, resolve_places
from symgrad.expr.graph.rebuild import substitute
from symgrad.expr.semantics.show import dot, formula, short_text

_LARGEST_EXPONENT = 2**31 - 1


def _binary(op: Op, a: Any, b: Any) -> Any:
    """The node of a binary operator; NotImplemented where the other operand decides."""
    if type(b) is not Expr and _are_integers(a, b):
        return NotImplemented  # b's own operator does it
    graph = a.graph
    if graph.tracing:
        graph.place = place_here(graph)
    if type(a) is not Expr:
        a = as_float(a)
    if type(b) is not Expr or b.graph is not graph:
        b = lift(graph, b)
        if b is NotImplemented:
            return b
    i, j = a.id, b.id
    if i > j and op.commutative:
        i, j = j, i
    return WRAP[op.result](graph, graph.intern((op, i, j)))


def _reflected(op: Op, b: Any, a: Any) -> Any:
    """``op(a, b)`` where a is not an expression."""
    if _are_integers(b, a):
        return NotImplemented
    if b.graph.tracing:
        b.graph.place = place_here(b.graph)
    lifted = lift(b.graph, a)
    return lifted if lifted is NotImplemented else _binary(op, lifted, b)


def _are_integers(a: Handle, b: Any) -> bool:
    """Whether b is an integer, and a counts as one beside it."""
    return a.counts and isinstance(b, Handle) and b.is_integer


def _of_bits(function: Callable[[Any, Any], Any], swapped: bool = False) -> Any:
    """An operator that integers have; of expressions of real numbers only counters do."""

    def method(self: Expr, other: Any) -> Any:
        if (isinstance(other, np.ndarray) and other.ndim) or _are_integers(self, other):
            return NotImplemented
        own = self.counter()
        return function(other, own) if swapped else function(own, other)

    return method


def _operators(op: Op) -> tuple[Any, Any]:
    """The operator that an operation is, and the one that a right operand has."""

    def method(self: Scalar, other: Any) -> Any:
        return _binary(op, self, other)

    def swapped(self: Scalar, other: Any) -> Any:
        return _reflected(op, self, other)

    return method, swapped


def _of_truths(op: Op, of_integers: Callable[[Any, Any], Any]) -> Any:
    """An operator of two truth values, also of numbers; beside an integer it is that of these."""

    def method(self: Condition, other: Any) -> Any:
        if _are_integers(self, other):
            return NotImplemented
        counts = isinstance(other, Expr) and other.counts and other.type == "f"
        return of_integers(other.counter(), self) if counts else op(self, other)

    return method


def _method(function: Callable[..., Any]) -> Any:
    """A function of NumPy's as the method that its numbers have."""

    def method(self: Scalar, *args: Any, **named: Any) -> Any:
        return function(self, *args, **named)

    method.__doc__ = f"See `numpy.{function.__name__}`."
    return method


class Scalar(Handle):
    """A number: a real one, a truth value or an integer.

    It has the attributes and methods of NumPy's numbers, and so those of an array without axes.
    """

    __slots__ = ()
    type: ClassVar[str]
    dtype: ClassVar[np.dtype[Any]] = np.dtype(object)
    shape: ClassVar[tuple[int, ...]] = ()
    ndim: ClassVar[int] = 0
    size: ClassVar[int] = 1

    @property
    def T(self) -> Any:
        """The number: it has no axes."""
        return self

    all, any = _method(np.all), _method(np.any)
    clip, round, conj = _method(np.clip), _method(np.round), _method(np.conj)
    cumprod, cumsum, repeat = _method(np.cumprod), _method(np.cumsum), _method(np.repeat)
    max, min, mean = _method(np.max), _method(np.min), _method(np.mean)
    prod, std, sum, var = _method(np.prod), _method(np.std), _method(np.sum), _method(np.var)
    ravel = flatten = _method(np.ravel)
    squeeze = _method(np.squeeze)

    def reshape(self, *shape: Any, **named: Any) -> Any:
        """See `numpy.reshape`; the lengths of axes may be arguments, too."""
        number: Any = self
        return np.reshape(number, shape[0] if len(shape) == 1 else shape, **named)

    def astype(self, dtype: Any, **_: Any) -> Any:
        """The number as another type: integers have 32 bits, as those of `int32` and `uint32`."""
        return cast_to(dtype)(self)

    def __getstate__(self) -> Any:
        resolve_places(self.graph)  # a pickle holds lines of text, but no code
        return None, {"graph": self.graph, "id": self.id}

    def as_float(self) -> Expr:
        """As a real number."""
        raise NotImplementedError

    def is_true(self) -> Condition:
        """Whether it is not 0."""
        return ops.ne(self, 0.0)

    def as_bound(self) -> Expr:
        """As a real number of which loops know the integer that it was."""
        return self.as_float()


class Expr(Scalar):
    """A scalar float expression: one node of a graph.

    Made by ``sg.var`` or given to a traced function. It takes Python's operators, NumPy's
    functions and symgrad's; comparing it makes a `Condition` for ``sg.where``. It has no value, so
    ``if``, ``float`` and the functions of ``math`` refuse it.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> sg.sin(x) * 2 - y
        sin(x) * 2 - y
    """

    __slots__ = ()
    type: ClassVar[str] = "f"

    def build(self, op: Op, args: Sequence[Any]) -> Any:
        """The expression ``op(*args)``, or what the operation is composed of."""
        if op.compose is not None:
            return op.compose(*map(as_real, args))
        if op.special is not None and (special := op.special(*args)) is not None:
            return special
        graph = self.graph
        if graph.tracing:
            graph.place = place_here(graph)
        types = op.signature
        ids = [operand(graph, a, types[k]) for k, a in enumerate(args)]
        return WRAP[op.result](graph, graph.add(op, *ids))

    def as_float(self) -> Expr:
        """As a real number, which it is."""
        return self

    # arithmetic ---------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if type(other) is int and other == 0:  # sum() begins with the integer 0, which has no sign
            return as_float(self)
        return _binary(ops.add, self, other)

    __radd__ = __add__
    __sub__, __rsub__ = _operators(ops.sub)
    __mul__ = __rmul__ = _operators(ops.mul)[0]
    __truediv__, __rtruediv__ = _operators(ops.div)
    __mod__, __rmod__ = _operators(ops.remainder)
    __lt__, __gt__ = _operators(ops.lt)
    __le__, __ge__ = _operators(ops.le)

    def __eq__(self, other: Any) -> Any:
        return _binary(ops.eq, self, other)

    def __ne__(self, other: Any) -> Any:
        return _binary(ops.ne, self, other)

    def __floordiv__(self, other: Any) -> Any:
        if _are_integers(self, other):
            return NotImplemented
        other = lift(self.graph, other)
        return other if other is NotImplemented else ops.floor_divide(as_float(self), other)

    def __rfloordiv__(self, other: Any) -> Any:
        other = lift(self.graph, other)
        return other if other is NotImplemented else ops.floor_divide(other, as_float(self))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return ops.neg(as_float(self))

    def __pos__(self) -> Any:
        return as_float(self)

    def __abs__(self) -> Any:
        return ops.abs(as_float(self))

    def __pow__(self, exponent: Any, modulus: None = None) -> Any:
        if modulus is not None:
            raise TraceError(located("pow(x, y, modulus) is not defined for expressions"))
        if _are_integers(self, exponent):
            return NotImplemented
        return power(as_float(self), exponent)

    def __rpow__(self, base: Any) -> Any:
        if isinstance(base, numbers.Real) and base == 2:
            return ops.exp2(as_float(self))
        return _reflected(ops.pow, self, base)

    def __round__(self, digits: int | None = None) -> Any:
        if digits:
            raise TraceError(
                f"round(x, {digits}) is not defined for expressions: use round(x * 10**k) / 10**k"
            )
        return ops.round(as_float(self))

    def __floor__(self) -> Any:
        return ops.floor(as_float(self))

    def __ceil__(self) -> Any:
        return ops.ceil(as_float(self))

    def __trunc__(self) -> Any:
        return ops.trunc(as_float(self))

    # bits, which the counters of loops have as integers do ---------------------------------------

    __and__, __rand__ = _of_bits(operator.and_), _of_bits(operator.and_, swapped=True)
    __or__, __ror__ = _of_bits(operator.or_), _of_bits(operator.or_, swapped=True)
    __xor__, __rxor__ = _of_bits(operator.xor), _of_bits(operator.xor, swapped=True)
    __lshift__, __rlshift__ = _of_bits(operator.lshift), _of_bits(operator.lshift, swapped=True)
    __rshift__, __rrshift__ = _of_bits(operator.rshift), _of_bits(operator.rshift, swapped=True)

    def __invert__(self) -> Any:
        return ~self.counter()

    def counter(self) -> Any:
        """The integer that a loop counts by; an error for any other real number."""
        op, *args = self.graph.nodes[self.id]
        if op is not ops.word_float:
            raise TraceError(
                located(f"{self!r} has no bits: it is a real number; cast it by sg.int32(...)")
            )
        return WRAP["u"](self.graph, *args)

    def __hash__(self) -> int:
        return hash((id(self.graph), self.id))

    # what it is ---------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return short_text(self)

    def _repr_latex_(self) -> str | None:
        return formula(self)

    def to_dot(self) -> str:
        """The DAG as Graphviz source, with the lines that made each node as tooltips."""
        resolve_places(self.graph)
        return dot(self)

    def subs(self, replacements: Mapping[Any, Any]) -> Any:
        """The expression with variables, or any of its parts, replaced: ``x.subs({x: 2})``."""
        graph = self.graph
        chosen = {
            graph.input_named(k) if isinstance(k, str) else operand(graph, k, "f"): lift(
                graph, v
            ).id
            for k, v in replacements.items()
        }
        return WRAP[self.type](graph, substitute(graph, self.id, chosen))

    # misuse -------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        refuse_bool()

    def __float__(self) -> float:
        refuse_number("float")

    def __int__(self) -> int:
        refuse_number("int")

    def __index__(self) -> int:
        refuse_number("index")

    def __complex__(self) -> complex:
        refuse_number("complex")

    def __format__(self, spec: str) -> str:
        return repr(self) if not spec else refuse_number(f"the format {spec!r}")

    def __matmul__(self, other: Any) -> NoReturn:
        raise TraceError(located("@ multiplies arrays; use * for scalar expressions"))

    __rmatmul__ = __matmul__

    def __iter__(self) -> NoReturn:
        raise TraceError(located("a scalar expression cannot be iterated over"))


class Condition(Expr):
    """A truth value of expressions, made by comparing them; for ``sg.where``, ``&``, ``|``, ``~``.

    In arithmetic it counts as 1.0 where it holds and 0.0 where it does not, as in NumPy.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> inside = (x > 0) & ~(x > 1)
        >>> sg.evaluate(sg.where(inside, x, -1.0), {x: [0.5, 2.0]})
        array([ 0.5, -1. ])
    """

    __slots__ = ()
    type: ClassVar[str] = "b"
    counts: ClassVar[bool] = True

    def build(self, op: Op, args: Sequence[Any]) -> Any:
        """The expression ``op(*args)``, which is one of integers if there are any."""
        for a in args:
            if isinstance(a, Handle) and a.is_integer:
                return a.build(op, args)
        return super().build(op, args)

    def as_float(self) -> Expr:
        """As 1.0 where it holds, and 0.0 elsewhere."""
        return ops.where(self, 1.0, 0.0)

    __and__ = _of_truths(ops.logical_and, operator.and_)
    __or__ = _of_truths(ops.logical_or, operator.or_)
    __xor__ = _of_truths(ops.logical_xor, operator.xor)

    def __invert__(self) -> Any:
        return ops.logical_not(self)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__


class Integer(Handle):
    """A constant integer, such as the exponent of ``x**3``."""

    __slots__ = ()

    @property
    def number(self) -> int:
        """Its value."""
        return self.graph.nodes[self.id][1]


WRAP: dict[str, Callable[[Graph, int], Any]] = {"f": Expr, "b": Condition, "i": Integer}
"""The handles of values by their types; those of integers and arrays stand in their own files."""


# --- numbers and other things as operands ---------------------------------------------------------


def as_float(a: Any) -> Expr:
    """A number as a real one: a condition is 1.0 or 0.0."""
    return a.as_float() if isinstance(a, Scalar) else a


CASTS: Final[dict[str, Callable[[Any], Any]]] = {}
"""Casts of an element of an array, by the kind of the dtype: `integers` has them."""


def cast_to(dtype: Any) -> Callable[[Any], Any]:
    """The cast to the kind of a dtype.

    Raises:
        TraceError: for complex numbers and other kinds that no expression is of.
    """
    kind = np.dtype(dtype).kind
    if kind not in CASTS:
        raise TraceError(
            located(f"expressions are real numbers, integers and conditions, not {np.dtype(dtype)}")
        )
    return CASTS[kind]


def as_real(a: Any) -> Any:
    """An integer as the real number that it is; anything else as it is."""
    return a.as_float() if isinstance(a, Handle) and a.is_integer else a  # type: ignore[attr-defined]


def lift(graph: Graph, value: Any) -> Any:
    """The value as a float expression of this graph; NotImplemented leaves it to NumPy."""
    if type(value) is float or (type(value) is int and abs(value) < 2**53):
        return Expr(graph, graph.constant(float(value)))
    if isinstance(value, Scalar):
        require_graph(graph, value)
        return value.as_float()
    if isinstance(value, NDArrayOperatorsMixin):
        return NotImplemented
    if isinstance(value, np.ndarray) and (value.ndim or value.dtype == object):
        return NotImplemented
    return Expr(graph, graph.constant(real_number(value)))


def operand(graph: Graph, value: Any, kind: str) -> int:
    """The id of an argument of the given type, made from an expression or a number."""
    if isinstance(value, Handle):
        require_graph(graph, value)
        if kind == "f":
            return as_float(value).id
        if kind == "b" and isinstance(value, Scalar) and value.type != "b":
            return value.is_true().id  # as NumPy's truth of a number
        return value.id
    if isinstance(value, np.ndarray) and value.dtype == object and not value.ndim:
        return operand(graph, value.item(), kind)
    if kind == "f":
        return graph.constant(real_number(value))
    if kind == "b":
        return graph.intern((TRUTH, int(bool(real_number(value)))))
    return graph.intern((INTEGER if kind == "i" else WORD, int(value)))


def require_graph(graph: Graph, value: Handle) -> None:
    """Refuse an expression of another trace."""
    if value.graph is not graph:
        names = [node_name(value)] if value.graph.nodes[value.id][0] is INPUT else []
        what = f"the variable {names[0]}" if names else "an expression"
        raise ForeignExpressionError(
            located(
                f"{what} belongs to another trace: a traced function may only use the variables "
                "it is given; pass the value in as one of them, or build both sides in one trace"
            )
        )


def node_name(value: Handle) -> str:
    """The name of an input."""
    return value.graph.names[value.graph.nodes[value.id][1]]


def power(x: Expr, exponent: Any) -> Any:
    """x**exponent: chains of products for constant integers, square roots for halves."""
    exponent = as_real(exponent)
    if isinstance(exponent, Expr) or (isinstance(exponent, np.ndarray) and exponent.ndim):
        return _binary(ops.pow, x, exponent)
    p = real_number(exponent)
    if p == int(p) if abs(p) <= _LARGEST_EXPONENT else False:
        return _integer_power(x, int(p))
    special = {0.5: ops.sqrt, -0.5: ops.rsqrt}.get(p)
    return special(x) if special else _binary(ops.pow, x, p)


def _integer_power(x: Expr, k: int) -> Any:
    if k == 0:
        return Expr(x.graph, x.graph.constant(1.0))
    if k in (1, -1):
        return x if k == 1 else ops.reciprocal(x)
    return ops.integer_pow(x, k)


# --- free variables -------------------------------------------------------------------------------


_here = threading.local()
"""Each thread's arena of free variables, kept alive by its expressions alone."""


def var(name: str) -> Expr:
    """A free variable; the same name gives the same one while any of its expressions lives.

    Raises:
        InputTypeError: if the name is no string. InputError: if it is no identifier.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.evaluate(x + 1, {x: 2.0})
        3.0
    """
    if not isinstance(name, str):
        raise InputTypeError(f"a variable's name is a string, not {name!r}")
    if not name.isidentifier():
        raise InputError(f"{name!r} is not a valid variable name: use letters, digits and _")
    graph = _arena()
    if name in graph.names:
        return Expr(graph, graph.intern((INPUT, graph.names.index(name))))
    return Expr(graph, graph.input(name))


def symbols(names: str) -> list[Expr]:
    """Several variables: ``"x y z"``, ``"x, y"``, or a range, ``"x0:4"`` for x0 to x3.

    Example:
        >>> import symgrad as sg
        >>> [repr(v) for v in sg.symbols("a b0:2")]
        ['a', 'b0', 'b1']
    """
    words = [w for w in re.split(r"[\s,]+", names) if w]
    if not words:
        raise InputError("symbols needs the name of at least one variable")
    graph = _arena()  # one arena for all, also where each would be freed before the next is made
    variables = [var(name) for word in words for name in _range(word)]
    assert all(v.graph is graph for v in variables), "variables made together share an arena"
    return variables


def _arena() -> Graph:
    graph = getattr(_here, "graph", lambda: None)()
    if graph is None:
        graph = Graph()
        _here.graph = weakref.ref(graph)
    return graph


def _range(word: str) -> list[str]:
    match = re.fullmatch(r"(\w*?)(\d*):(\d+)", word)
    if not match:
        return [word]
    return [f"{match[1]}{k}" for k in range(int(match[2] or 0), int(match[3]))]
