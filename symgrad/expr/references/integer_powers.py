"""Integer powers as products that are within 4 ULP, of arrays and of expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

Split = tuple[Any, Any, Any]
"""A power as a large number less a small one of the other sign, and that difference rounded."""

FACTOR: Final = {5: 4, 6: 4, 7: 4, 8: 4, 9: 4, 10: 8, 11: 8, 12: 8, 13: 7, 14: 8, 15: 8, 16: 12}
"""The exponent of one of two factors: cheap, none near an end of the range, and within 4 ULP."""


def is_product(k: int) -> bool:
    """Whether x**k is a product that is within 4 ULP, so that it needs no logarithm.

    Exponents that float32 does not have are products too, for their parity.
    """
    return -15 < k < 17 or abs(k) > 2**24


def is_split(k: int) -> bool:
    """Whether repeated squaring, off by |k| - 1 roundings, is too far off for x**k."""
    return is_product(k) and abs(k) in FACTOR and not 0 < k < 7


def power_product(x: Any, k: int, first_digits: Callable[[Any], Any]) -> Any:
    """x**|k| for k != 0, from which x**k comes within 4 ULP.

    By repeated squaring, or as the product of two powers each of which is hardly off by more than
    its last rounding. These are powers of h, the ``first_digits`` of x, exact up to the fourth,
    less a small rest of the other sign: nothing cancels, so that compilers may reassociate. As each
    of the two is far from the ends of the range where their product is inside, no rest is flushed.
    """
    size = abs(k)
    if not is_split(k):
        return power_chain(x, size)
    h = first_digits(x)
    given = (h, h - x, x)
    one, other = (
        power_chain(given, n, _split_product) for n in (FACTOR[size], size - FACTOR[size])
    )
    return one[2] * other[2]


def power_chain(x: Any, k: int, times: Callable[[Any, Any], Any] = operator.mul) -> Any:
    """x**k for k >= 1 by repeated squaring: k = 13 is (x * x**4) * x**8."""
    product, square = None, x
    while k:
        if k & 1:
            product = square if product is None else times(product, square)
        k >>= 1
        square = times(square, square) if k else square
    return product


def _split_product(a: Split, b: Split) -> Split:
    (large, small, x), (other, rest, y) = a, b
    low = small * (large + x) if a is b else large * rest + small * y
    high = large * other
    return high, low, high - low
