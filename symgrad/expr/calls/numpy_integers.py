"""NumPy's functions of integers: common divisors and multiples, counts of bits, powers of 2."""

from __future__ import annotations

import numbers
from typing import Any, Final

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.tracers.expression import Condition, as_real
from symgrad.expr.tracers.integers import BITS, Word, divided
from symgrad.lazy import control

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
    if isinstance(k, Word | Condition):
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
    """np.bitwise_count: how many bits of |x| are set, a uint32.

    They are added up in pairs, in fours, in bytes, and the bytes by a product (Warren, Hacker's
    Delight, 5-1).
    """
    if isinstance(x, Condition):
        return Word(x.graph, ops.word_where(x, *(Word.of(x.graph, k) for k in (1, 0))).id)
    if not isinstance(x, Word):
        raise TraceError(located(f"np.bitwise_count is for integers, not {x!r}: cast by sg.int32"))
    x = abs(x).bits()
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return (x * 0x01010101) >> BITS - 8
