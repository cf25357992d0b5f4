"""Integers of 32 bits as expressions: words in the graph, with NumPy's arithmetic.

A signed integer is the same word as the unsigned one of its bits. Sums, products and bits are the
same of both; what differs is made of the rows that there are for words.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NoReturn, Self

import numpy as np

from symgrad.errors import DifferentiationError, InputError, TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import WORD, Graph, Op
from symgrad.expr.graph.place import OnePlace, resolve_places
from symgrad.expr.tracers.counter import Counter, largest, modulo, whole
from symgrad.expr.tracers.expression import (
    CASTS,
    WRAP,
    Condition,
    Expr,
    Scalar,
    as_float,
    as_real,
    require_graph,
)


def _itself(x: Any) -> Any:
    return x


OF_INTEGERS: Final[dict[Op, Callable[..., Any]]] = {
    ops.add: operator.add,
    ops.sub: operator.sub,
    ops.mul: operator.mul,
    ops.fma: lambda a, b, c: a * b + c,
    ops.neg: operator.neg,
    ops.abs: abs,
    ops.sign: lambda x: x.signum(),
    ops.remainder: operator.mod,
    ops.fmod: lambda a, b: a.truncated_remainder(b.divisor()),
    ops.floor_divide: operator.floordiv,
    ops.pow: operator.pow,
    ops.lt: operator.lt,
    ops.le: operator.le,
    ops.eq: operator.eq,
    ops.ne: operator.ne,
    ops.minimum: lambda a, b: a.chosen(a < b, b),
    ops.maximum: lambda a, b: a.chosen(b < a, b),
    ops.clip: lambda x, low, high: ops.minimum(ops.maximum(x, low), high),
    ops.relu: lambda x: ops.maximum(x, 0),
    ops.where: lambda condition, a, b: a.chosen(condition, b),
    ops.stop_gradient: _itself,
    ops.floor: _itself,
    ops.ceil: _itself,
    ops.round: _itself,
    ops.trunc: _itself,
    ops.fract: lambda x: x.of(x.graph, 0),
}
"""These operations on integers of one type: an integer of that type, or a condition."""

AS_REAL: Final[frozenset[Op]] = frozenset(
    {op for op in ops.TABLE.values() if op.transcendental}
    | {
        ops.div, ops.reciprocal, ops.sqrt, ops.rsqrt, ops.cbrt, ops.hypot, ops.copysign, ops.huber,
        ops.isnan, ops.isinf, ops.isfinite, ops.uint32, ops.int32, ops.ndtr, ops.integer_pow,
    }
)  # fmt: skip
"""Operations that take integers as real numbers."""


EXACT: Final = 2**24
"""Words below it are float32 numbers."""

SIGN: Final = 2**31
"""The bit that is set in negative integers."""

BITS: Final = 32


def _operator(
    op: Callable[[Any, Any], Any], of_reals: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """The operator of two integers of one type; of an integer and a real number that of reals."""

    def method(self: Word, other: Any) -> Any:
        same = self.same(other)
        if same is not None:
            with OnePlace(self.graph):
                return op(self, same)
        return NotImplemented if isinstance(other, np.ndarray) else of_reals(self.as_float(), other)

    return method


def _of_bits(op: Callable[[Any, Any], Any], shown: str) -> Callable[[Any, Any], Any]:
    """An operator that real numbers do not have, but counters of loops."""

    def refused(_: Any, other: Any) -> Any:
        raise TraceError(
            located(f"{shown} is for integers, not {other!r}: cast it by sg.int32 or sg.uint32")
        )

    integers = _operator(op, refused)

    def method(self: Word, other: Any) -> Any:
        counter = isinstance(other, Expr) and other.type == "f"
        return integers(self, type(self)(self.graph, other.counter().id) if counter else other)

    return method


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operator where the integer is the second operand."""

    def reflected(self: Word, other: Any) -> Any:
        same = self.same(other)
        if same is not None:
            return function(same, self)
        return NotImplemented if isinstance(other, np.ndarray) else function(other, self.as_float())

    return reflected


_power = _operator(lambda a, b: a.raised(b), lambda a, b: a**b)


class Word(Scalar):
    """An unsigned integer of 32 bits: one node of a graph.

    Made by `uint32`. It takes Python's operators as NumPy's ``uint32`` does: results are modulo
    2**32, ``//`` and ``%`` by 0 are 0, shifts by 32 and more give 0. With a real number, and
    divided by ``/``, it is a real number; where it becomes one its derivative is 0.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> i = sg.uint32(x)
        >>> sg.evaluate([i + 1, i // 3 << 4, (i ^ 5) % 4, 0.5 * i], {x: 20.5})
        array([21., 96.,  1., 10.])
    """

    __slots__ = ()
    type: ClassVar[str] = "u"
    is_integer: ClassVar[bool] = True
    name: ClassVar[str] = "uint32"
    least: ClassVar[int] = 0

    def build(self, op: Op, args: Sequence[Any]) -> Any:
        """The operation of integers, or of the real numbers that they are.

        Raises:
            TraceError: if it is known for neither.
        """
        kinds = op.signature
        of_reals = [k for k in range(op.arity) if kinds[k] == "f"]
        if not of_reals:
            return Expr.build(self, op, args)  # type: ignore[arg-type]
        arguments = list(args)
        if op in OF_INTEGERS:
            same = [self.same(args[k]) for k in of_reals]
            if all(s is not None for s in same):
                for k, value in zip(of_reals, same, strict=True):
                    arguments[k] = value
                with OnePlace(self.graph):
                    return OF_INTEGERS[op](*arguments)
        elif op not in AS_REAL:
            raise TraceError(
                located(f"{op.name} of integers is not defined: cast them, as in 1.0 * i")
            )
        for k in of_reals:
            arguments[k] = as_float(arguments[k])
        return op(*arguments)

    # what it is made of -------------------------------------------------------------------------

    @classmethod
    def of(cls, graph: Graph, value: int) -> Self:
        """The integer as a constant.

        Raises:
            InputError: if it is none of this type.
        """
        if not cls.least <= value < cls.least + 2**BITS:
            raise InputError(
                located(
                    f"{value} is not {cls.name}, whose values begin at {cls.least}: "
                    "cast the other operand"
                )
            )
        return cls(graph, graph.intern((WORD, value % 2**BITS)))

    def same(self, other: Any) -> Self | None:
        """The other operand as an integer of this type; None of a real number, or an array.

        Raises:
            TraceError: if it is an integer of the other type.
        """
        if isinstance(other, np.ndarray):
            return None if other.ndim else self.same(other.item())
        if isinstance(other, Word):
            require_graph(self.graph, other)
            if type(other) is not type(self):
                raise TraceError(
                    located(
                        "an int32 and a uint32 have no common type in a kernel: cast one of them, "
                        "as in sg.int32(i) or sg.uint32(i)"
                    )
                )
            return other
        if isinstance(other, Condition):
            require_graph(self.graph, other)
            return type(self)(self.graph, ops.word_where(other, self.number(1), self.number(0)).id)
        if isinstance(other, Counter):
            require_graph(self.graph, other)
            counted = modulo(self.graph, other.id)
            return None if counted is None else type(self)(self.graph, counted)
        is_whole = isinstance(other, (numbers.Integral, np.bool_))
        return self.of(self.graph, int(other)) if is_whole else None

    def number(self, value: int) -> Word:
        """A constant, unsigned, of the same graph."""
        return Word(self.graph, self.graph.intern((WORD, value)))

    def bits(self) -> Word:
        """The unsigned integer of the same bits."""
        return Word(self.graph, self.id)

    def _as_this(self, word: Word) -> Self:
        return type(self)(self.graph, word.id)

    def constant(self) -> int | None:
        """Its bits, if they are known."""
        op, *payload = self.graph.nodes[self.id]
        return payload[0] if op is WORD else None

    # what it becomes ----------------------------------------------------------------------------

    def as_float(self) -> Expr:
        """As a real number, rounded to the nearest that the kernel has."""
        most = largest(self.graph, self.id)
        return (ops.word_float if most is not None and most < EXACT else ops.uint32_float)(self)

    def as_bound(self) -> Expr:
        """As a real number of which loops know the integer that it was."""
        return ops.word_float(self)

    # arithmetic ---------------------------------------------------------------------------------

    __add__ = _operator(lambda a, b: a._as_this(ops.word_add(a, b)), lambda a, b: a + b)
    __sub__ = _operator(lambda a, b: a._as_this(ops.word_sub(a, b)), lambda a, b: a - b)
    __mul__ = _operator(lambda a, b: a._as_this(ops.word_mul(a, b)), lambda a, b: a * b)
    __floordiv__ = _operator(lambda a, b: a.quotient(b.divisor()), lambda a, b: a // b)
    __mod__ = _operator(lambda a, b: a.remainder(b.divisor()), lambda a, b: a % b)
    __truediv__ = _operator(lambda a, b: a.as_float() / b.as_float(), lambda a, b: a / b)
    __and__ = _of_bits(lambda a, b: a._as_this(ops.word_and(a, b)), "&")
    __or__ = _of_bits(lambda a, b: a._as_this(ops.word_or(a, b)), "|")
    __xor__ = _of_bits(lambda a, b: a._as_this(ops.word_xor(a, b)), "^")
    __lshift__ = _of_bits(lambda a, b: a.shifted(ops.word_shift_left, b), "<<")
    __rshift__ = _of_bits(lambda a, b: a.shifted_down(b), ">>")

    __radd__, __rmul__ = __add__, __mul__
    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__
    __rsub__, __rtruediv__ = _reflected(operator.sub), _reflected(operator.truediv)
    __rfloordiv__, __rmod__ = _reflected(operator.floordiv), _reflected(operator.mod)
    __rlshift__, __rrshift__ = _reflected(operator.lshift), _reflected(operator.rshift)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Self:
        return self._as_this(ops.word_sub(self.number(0), self))

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self

    def __invert__(self) -> Self:
        return self._as_this(ops.word_xor(self, self.number(2**BITS - 1)))

    def __pow__(self, exponent: Any, modulus: None = None) -> Any:
        if modulus is not None:
            raise TraceError(located("pow(x, y, modulus) is not defined for expressions"))
        return _power(self, exponent)

    __rpow__ = _reflected(operator.pow)

    def raised(self, exponent: Word) -> Self:
        """The integer to a power, modulo 2**32, by repeated squaring; 0 where that is negative.

        Raises:
            InputError: if the power is a negative constant.
        """
        graph, constant = self.graph, exponent.constant()
        if constant is not None and constant >= SIGN and isinstance(exponent, SignedWord):
            raise InputError(located("an integer to a negative power is none: cast it first"))
        most = largest(graph, exponent.id) if constant is None else constant
        result, square = self.of(graph, 1), self
        for bit in range(BITS if most is None else most.bit_length()):
            square = square * square if bit else square
            if constant is None:
                one = ops.word_and(ops.word_shift_right(exponent.bits(), self.number(bit)), 1)
                result = (result * square).chosen(one.is_true(), result)
            elif constant >> bit & 1:
                result = result * square
        if constant is not None or not isinstance(exponent, SignedWord):
            return result
        return self.of(graph, 0).chosen(exponent.is_negative(), result)

    def divisor(self) -> Self:
        """Itself, if it may divide.

        Raises:
            InputError: if it is the constant 0.
        """
        if self.constant() == 0:
            raise InputError(located("an integer is divided by 0"))
        return self

    def quotient(self, divisor: Any) -> Self:
        """The quotient, rounded down; 0 where the divisor is."""
        quotient, _ = divided(self.bits(), divisor.bits())
        return self._as_this(quotient)

    def remainder(self, divisor: Any) -> Self:
        """The remainder of the quotient; 0 where the divisor is."""
        _, rest = divided(self.bits(), divisor.bits())
        return self._as_this(rest)

    def truncated_remainder(self, divisor: Any) -> Self:
        """The remainder of the quotient rounded towards 0, as C's %; 0 where the divisor is."""
        return self.remainder(divisor)

    def signum(self) -> Self:
        """-1, 0 or 1, as it is below 0, 0 or above."""
        return self._as_this(ops.word_min(self.bits(), self.number(1)))

    def shifted(self, op: Op, by: Any) -> Self:
        """Shifted as words are: 0 is left by shifts of 32 and more."""
        count = by.constant()
        if count is not None and count >= BITS:
            return self.of(self.graph, 0)
        if count is not None:
            return self._as_this(op(self, by))
        shifted_bits = op(self.bits(), ops.word_and(by, self.number(BITS - 1)))
        fits = ops.word_lt(by, self.number(BITS))
        return self._as_this(ops.word_where(fits, shifted_bits, self.number(0)))

    def shifted_down(self, by: Any) -> Self:
        """Divided by 2**by, rounded down."""
        return self.shifted(ops.word_shift_right, by)

    # comparisons and choices --------------------------------------------------------------------

    __lt__ = _operator(lambda a, b: ops.word_lt(a.order(), b.order()), lambda a, b: a < b)
    __gt__ = _operator(lambda a, b: ops.word_lt(b.order(), a.order()), lambda a, b: a > b)
    __le__ = _operator(lambda a, b: ~ops.word_lt(b.order(), a.order()), lambda a, b: a <= b)
    __ge__ = _operator(lambda a, b: ~ops.word_lt(a.order(), b.order()), lambda a, b: a >= b)
    __eq__ = _operator(lambda a, b: ops.word_eq(a, b), lambda a, b: a == b)  # type: ignore[assignment]
    __ne__ = _operator(lambda a, b: ~ops.word_eq(a, b), lambda a, b: a != b)  # type: ignore[assignment]

    def is_true(self) -> Condition:
        """Whether it is not 0."""
        return ~ops.word_eq(self, self.number(0))

    def __hash__(self) -> int:
        return hash((id(self.graph), self.id))

    def order(self) -> Word:
        """A word that is below another's where this integer is below that one."""
        return self.bits()

    def chosen(self, condition: Any, other: Any) -> Self:
        """This integer where the condition holds, and the other one elsewhere."""
        return self._as_this(ops.word_where(condition, self.bits(), other.bits()))

    def __repr__(self) -> str:
        text = repr(Expr(self.graph, self.id))
        is_cast = self.graph.nodes[self.id][0].name == self.name
        return text if is_cast else f"{self.name}({text})"


class SignedWord(Word):
    """A signed integer of 32 bits, made by `int32`: with operators as NumPy's ``int32`` has.

    Results are modulo 2**32, between -2**31 and 2**31 - 1. ``//`` rounds down, ``%`` has the
    divisor's sign, and both are 0 where the divisor is; ``>>`` keeps the sign.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> i = sg.int32(x)
        >>> sg.evaluate([i // 4, i % 4, i >> 1, abs(i), i < -6], {x: -7.0})
        array([-2.,  1., -4.,  7.,  1.])
    """

    __slots__ = ()
    name: ClassVar[str] = "int32"
    least: ClassVar[int] = -SIGN

    def sign(self) -> Word:
        """All bits set where it is negative, and none elsewhere."""
        zero = self.number(0)
        return ops.word_sub(zero, ops.word_shift_right(self.bits(), self.number(BITS - 1)))

    def is_negative(self) -> Condition:
        """Whether it is below 0."""
        return ops.word_lt(self.number(SIGN - 1), self.bits())

    def magnitude(self) -> Word:
        """Its absolute value, which of -2**31 is 2**31."""
        sign = self.sign()
        return ops.word_sub(ops.word_xor(self.bits(), sign), sign)

    def as_float(self) -> Expr:
        """As a real number, rounded to the nearest that the kernel has."""
        return ops.int32_float(self)

    as_bound = as_float

    def __abs__(self) -> Self:
        with OnePlace(self.graph):
            return self._as_this(self.magnitude())

    def quotient(self, divisor: Any) -> Self:
        """The quotient, rounded down; 0 where the divisor is."""
        size, rest = divided(self.magnitude(), divisor.magnitude())
        up = ops.word_min(rest, self.number(1))
        down = ops.word_sub(self.number(0), ops.word_add(size, up))
        unlike = SignedWord(self.graph, ops.word_xor(self.bits(), divisor.bits()).id)
        return self._as_this(ops.word_where(unlike.is_negative(), down, size))

    def remainder(self, divisor: Any) -> Self:
        """The remainder of the quotient; 0 where the divisor is."""
        size, sign = divisor.magnitude(), divisor.sign()
        _, rest = divided(self.magnitude(), size)
        unlike = SignedWord(self.graph, ops.word_xor(self.bits(), divisor.bits()).id)
        apart = unlike.is_negative() & ops.word_lt(self.number(0), rest)
        size_left = ops.word_where(apart, ops.word_sub(size, rest), rest)
        return self._as_this(ops.word_sub(ops.word_xor(size_left, sign), sign))

    def truncated_remainder(self, divisor: Any) -> Self:
        """The remainder of the quotient rounded towards 0, as C's %; 0 where the divisor is."""
        sign = self.sign()
        _, rest = divided(self.magnitude(), divisor.magnitude())
        return self._as_this(ops.word_sub(ops.word_xor(rest, sign), sign))

    def signum(self) -> Self:
        """-1, 0 or 1, as it is below 0, 0 or above."""
        above = ops.word_min(self.bits(), self.number(1))
        return self._as_this(ops.word_or(self.sign(), above))

    def shifted_down(self, by: Any) -> Self:
        """Divided by 2**by, rounded down."""
        sign = self.sign()
        positive = self._as_this(ops.word_xor(self.bits(), sign))
        return self._as_this(ops.word_xor(positive.shifted(ops.word_shift_right, by), sign))

    def order(self) -> Word:
        """A word that is below another's where this integer is below that one."""
        return ops.word_xor(self.bits(), self.number(SIGN))


WRAP["u"] = Word

KINDS: Final[dict[str, type[Word]]] = {"uint32": Word, "int32": SignedWord}
"""Integers by the names that NumPy has for their types."""


def is_typed(value: Any) -> bool:
    """Whether it is an integer of 32 bits, an expression or NumPy's."""
    return isinstance(value, Word) or isinstance(value, np.integer) and value.dtype.name in KINDS


def kind_of(value: Any) -> type[Word]:
    """The type of such an integer."""
    return type(value) if isinstance(value, Word) else KINDS[value.dtype.name]


def refuse_integer(value: Scalar, what: str) -> NoReturn:
    """Raise the error of a derivative of an integer, or by one.

    Raises:
        DifferentiationError: it shows the integer, and names its line.
    """
    resolve_places(value.graph)
    place = value.graph.place_of(value.id)
    raise DifferentiationError(
        f"{what} is an integer, {value!r}, and has no derivative: use "
        "real numbers (sg.floor and % have derivatives), or x + sg.stop_gradient(i - x) for the "
        "value of the integer i and the derivative of x" + (f"\n  at {place}" if place else "")
    )


def divided(a: Word, b: Word) -> tuple[Word, Word]:
    """Quotient and remainder; both 0 where b is 0."""
    zero, one = a.number(0), a.number(1)
    none = ops.word_lt(b, one)
    safe = b if b.constant() else ops.word_where(none, one, b)  # a division by 0 ends a program
    quotient = ops.word_div(a, safe)
    rest = ops.word_sub(a, ops.word_mul(quotient, safe))
    return (quotient if b.constant() else ops.word_where(none, zero, quotient)), rest


def as_word(x: Any, kind: type[Word]) -> Any:
    """An element of an array as an integer; a number among expressions stays one of Python's."""
    if isinstance(x, Word):
        return kind(x.graph, x.id)
    if isinstance(x, Condition):
        return kind(x.graph, ops.word_where(x, 1, 0).id)
    if not isinstance(x, Expr):
        return _as_integer(x, kind.least)
    counted = whole(x.graph, x)
    if counted is not None:
        return kind(x.graph, counted)
    return kind(x.graph, (ops.int32 if kind is SignedWord else ops.uint32)(x).id)


def _as_integer(x: Any, least: int) -> int:
    """A number as an integer from ``least`` on: integers keep their bits, others are clipped."""
    if isinstance(x, numbers.Integral):
        return (int(x) - least) % 2**BITS + least
    return 0 if np.isnan(x) else int(np.clip(x, least, least + 2**BITS - 1))


def _is_true(x: Any) -> Any:
    return x.is_true() if isinstance(x, Scalar) else bool(x)


CASTS.update(
    f=as_real,
    i=lambda x: as_word(x, SignedWord),
    u=lambda x: as_word(x, Word),
    b=_is_true,
)
