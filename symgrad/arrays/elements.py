"""Integers among the elements of whole arrays, with Python's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from symgrad.arrays.laws import Builder
from symgrad.arrays.scalars import (
    as_float,
    integer_and,
    integer_mul,
    integer_or,
    integer_where,
    integer_xor,
    shift_left,
    shift_right,
)
from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import ElementsNeededError, Op
from symgrad.expr.tracers.expression import WRAP, Condition, Expr, Scalar


def _operators(op: Op) -> tuple[Any, Any]:
    """The operator that an operation is, and the one that a right operand has."""

    def method(self: IntegerElement, other: Any) -> Any:
        return self.build(op, (self, other))

    def swapped(self: IntegerElement, other: Any) -> Any:
        return self.build(op, (other, self))

    return method, swapped


class IntegerElement(Scalar):
    """An integer of a builder: sums, products and comparisons stay integers, others are floats."""

    __slots__ = ("builder",)
    type: ClassVar[str] = "i"
    is_integer: ClassVar[bool] = True

    def __init__(self, builder: Builder, i: int) -> None:
        super().__init__(builder.graph, i)
        self.builder = builder

    def build(self, op: Op, args: Sequence[Any]) -> Any:
        """``op(*args)``: of integers where it is one of theirs, and else of real numbers."""
        rule = INTEGER_RULES.get(op)
        operands = [self._integer(a) if k or op is not ops.where else a for k, a in enumerate(args)]
        if rule is not None and all(o is not None for o in operands):
            return rule(self, *operands)
        return op(*[a.as_float() if isinstance(a, IntegerElement) else a for a in args])

    def _integer(self, value: Any) -> int | None:
        """The node of an integer; None for what is none."""
        if isinstance(value, IntegerElement):
            return value.id
        if isinstance(value, (bool, int, np.integer, np.bool_)):
            return self.builder.number(int(value))
        if isinstance(value, Condition):
            b = self.builder
            return b.apply(integer_where, value.id, b.number(1), b.number(0))
        return None

    def of(self, i: int) -> IntegerElement:
        """Another integer of the builder."""
        return IntegerElement(self.builder, i)

    def truth(self, i: int) -> Condition:
        """A truth value of the builder."""
        return Condition(self.graph, i)

    def as_float(self) -> Expr:
        """As a real number."""
        b = self.builder
        value = b.integer(self.id)
        constant = None if value is None else b.graph.constant(float(value))
        return Expr(self.graph, b.graph.add(as_float, self.id) if constant is None else constant)

    def is_true(self) -> Condition:
        """Whether it is not 0."""
        b = self.builder
        return self.truth(b.opposite(b.same(self.id, b.number(0))))

    __add__, __radd__ = _operators(ops.add)
    __sub__, __rsub__ = _operators(ops.sub)
    __mul__, __rmul__ = _operators(ops.mul)
    __floordiv__, __rfloordiv__ = _operators(ops.floor_divide)
    __mod__, __rmod__ = _operators(ops.remainder)
    __pow__, __rpow__ = _operators(ops.pow)
    __and__, __rand__ = _operators(integer_and)
    __or__, __ror__ = _operators(integer_or)
    __xor__, __rxor__ = _operators(integer_xor)
    __lshift__, __rlshift__ = _operators(shift_left)
    __rshift__, __rrshift__ = _operators(shift_right)
    __lt__, __gt__ = _operators(ops.lt)
    __le__, __ge__ = _operators(ops.le)
    __eq__, __ne__ = _operators(ops.eq)[0], _operators(ops.ne)[0]

    def __truediv__(self, other: Any) -> Any:
        return self.as_float() / _real(other)

    def __rtruediv__(self, other: Any) -> Any:
        return _real(other) / self.as_float()

    def __invert__(self) -> Any:
        return self.of(self.builder.plus((-1, self.id), offset=-1))

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return ops.abs(self)

    def __hash__(self) -> int:
        return hash((id(self.graph), self.id))


def _real(value: Any) -> Any:
    return value.as_float() if isinstance(value, IntegerElement) else value


def element(builder: Builder, i: int) -> Any:
    """The handle of a node, by its type."""
    kind = builder.graph.type(i)
    return IntegerElement(builder, i) if kind == "i" else WRAP[kind](builder.graph, i)


def counted_truth(builder: Builder, value: Any) -> Any:
    """A truth value among operands of integers as 1 or 0; any other value as it is."""
    if not isinstance(value, Condition):
        return value
    return IntegerElement(builder, node_of(builder, value, "i"))


def node_of(builder: Builder, value: Any, kind: str) -> int:
    """The node of an element, or of a number, as one of this kind."""
    if isinstance(value, IntegerElement):
        return value.id if kind == "i" else _cast(value, kind)
    if isinstance(value, Scalar):
        if value.type == kind:
            return value.id
        if kind == "f":
            return value.as_float().id
        if kind == "b":
            return value.is_true().id
        if isinstance(value, Condition):
            return builder.apply(integer_where, value.id, builder.number(1), builder.number(0))
        raise ElementsNeededError("a real number where an integer is expected")
    if kind == "f":
        return builder.graph.constant(float(value))
    return builder.number(int(value)) if kind == "i" else builder.truth(bool(value))


def _cast(value: IntegerElement, kind: str) -> int:
    return value.as_float().id if kind == "f" else value.is_true().id


def _of_32_bits(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of two integers whose results are not those of integers that wrap around."""

    def checked(own: IntegerElement, a: int, b: int) -> Any:
        for i in (a, b):
            known = own.builder.integer(i)
            if known is not None and not -(2**31) <= known < 2**31:
                raise TraceError(
                    located(
                        f"integers here have 32 bits, {known} has more: compare and divide by it "
                        f"as real numbers, x.astype(float) and {float(known)!r}"
                    )
                )
        return rule(own, a, b)

    return checked


def _divided(part: int) -> Callable[..., Any]:
    return _of_32_bits(lambda own, a, n: own.of(own.builder.divided(a, n)[part]))


def _truncated_remainder(own: IntegerElement, a: int, n: int) -> Any:
    """The remainder with the sign of what is divided."""
    first, second = own.of(a), own.of(n)
    rest = abs(first) % abs(second)
    return ops.where(first < 0, -rest, rest)


def _sign(own: IntegerElement, a: int) -> Any:
    minus, zero, one = map(own.builder.number, (-1, 0, 1))
    b = own.builder
    positive = b.chosen(b.below(zero, a), one, zero)
    return own.of(b.chosen(b.below(a, zero), minus, positive))


def _power(own: IntegerElement, a: int, k: int) -> Any:
    """A power modulo 2**32, by squares; of a negative exponent the power is rounded towards 0."""
    b, base, power = own.builder, own.of(a), own.of(own.builder.number(1))
    exponent, square = b.integer(k), base
    for bit in range(31 if exponent is None else exponent.bit_length()):
        has = own.of(k) & (1 << bit)
        power = ops.where(has.is_true(), power * square, power)
        square = square * square
    if exponent is not None and exponent >= 0:
        return power
    odd = ops.where((own.of(k) & 1).is_true(), base, base * base)
    return ops.where(own.of(k) < 0, ops.where(base * base == 1, odd, 0), power)


def _applied(op: Op) -> Callable[..., Any]:
    return lambda own, a, b: own.of(own.builder.apply(op, a, b))


def _choice(own: IntegerElement, condition: Any, a: int, b: int) -> Any:
    held = node_of(own.builder, condition, "b")
    return own.of(own.builder.apply(integer_where, held, a, b))


INTEGER_RULES: Final[dict[Op, Callable[..., Any]]] = {
    ops.add: lambda own, a, b: own.of(own.builder.plus(a, b)),
    ops.sub: lambda own, a, b: own.of(own.builder.plus(a, (-1, b))),
    ops.mul: _applied(integer_mul),
    **{op: _applied(op) for op in (integer_and, integer_or, integer_xor, shift_left, shift_right)},
    ops.floor_divide: _divided(0),
    ops.remainder: _divided(1),
    ops.fmod: _truncated_remainder,
    ops.pow: _power,
    ops.sign: _sign,
    **{op: lambda own, a: own.of(a) for op in (ops.floor, ops.ceil, ops.trunc)},
    ops.lt: _of_32_bits(lambda own, a, b: own.truth(own.builder.less(a, b))),
    ops.le: _of_32_bits(lambda own, a, b: own.truth(own.builder.opposite(own.builder.less(b, a)))),
    ops.eq: _of_32_bits(lambda own, a, b: own.truth(own.builder.same(a, b))),
    ops.ne: _of_32_bits(lambda own, a, b: own.truth(own.builder.opposite(own.builder.same(a, b)))),
    ops.abs: lambda own, a: _choice(
        own, own.truth(own.builder.below(a, own.builder.number(0))), own.builder.plus((-1, a)), a
    ),
    ops.neg: lambda own, a: own.of(own.builder.plus((-1, a))),
    ops.minimum: _of_32_bits(
        lambda own, a, b: _choice(own, own.truth(own.builder.less(a, b)), a, b)
    ),
    ops.maximum: _of_32_bits(
        lambda own, a, b: _choice(own, own.truth(own.builder.less(b, a)), a, b)
    ),
    ops.where: _choice,
}
"""The operations of integers, by the operations of real numbers."""
