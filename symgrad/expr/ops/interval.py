"""Intervals of values: what is proven of an operation by those of its arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

Interval = tuple[float, float]
"""Its ends; -0.0 counts as negative, so that low >= 0 says that the sign bit is clear."""

ANY: Final = (-math.inf, math.inf)
BELOW_ZERO: Final = -5e-324
"""The low end of an interval that contains -0.0 and nothing below it."""
POSITIVE: Final = (0.0, math.inf)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The rule of an operation whose values are in an interval whatever its arguments are."""

    interval: Interval

    def __call__(self, *_: Interval) -> Interval:
        """The interval."""
        return self.interval


def at_least(low: float) -> Fixed:
    """Whatever the arguments are: not less than this."""
    return Fixed((low, math.inf))


def within(low: float, high: float) -> Fixed:
    """Whatever the arguments are: between these."""
    return Fixed((low, high))


def add(a: Interval, b: Interval) -> Interval:
    """a + b."""
    low, high = a[0] + b[0], a[1] + b[1]
    return (-math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high)


def neg(a: Interval) -> Interval:
    """-a."""
    return (-a[1] if a[1] else BELOW_ZERO, -a[0])


def signed(low: float, high: float) -> Interval:
    """The interval of values that may be -0.0 wherever they may be 0."""
    return (BELOW_ZERO if low == 0.0 else low, high)


def mul(a: Interval, b: Interval) -> Interval:
    """a b."""
    if a[0] >= 0 and b[0] >= 0:
        low, high = a[0] * b[0], a[1] * b[1]
        return (0.0 if math.isnan(low) else low, math.inf if math.isnan(high) else high)
    if a == ANY or b == ANY:
        return ANY
    products = [x * y for x in a for y in b]
    return ANY if any(map(math.isnan, products)) else signed(min(products), max(products))


def abs(a: Interval) -> Interval:
    """|a|."""
    return (a[0] if a[0] >= 0 else 0.0, max(math.fabs(a[0]), math.fabs(a[1])))


def reciprocal(a: Interval) -> Interval:
    """1/a."""
    return (0.0, 1.0 / a[0] if a[0] > 0 else math.inf) if a[0] >= 0 else ANY


def sqrt(a: Interval) -> Interval:
    """The square root of a."""
    return (math.sqrt(a[0]), math.sqrt(a[1])) if a[0] >= 0 else (BELOW_ZERO, math.inf)


def power(a: Interval, _: Interval = ANY) -> Interval:
    """A power of a."""
    return POSITIVE if a[0] >= 0 else ANY


def log(a: Interval) -> Interval:
    """The logarithm of a."""
    low, high = (math.log(v) if 0 < v < math.inf else v for v in a)
    return signed(low, high) if a[0] > 0 else (-math.inf, high if a[1] > 0 else math.inf)


def log1p(a: Interval) -> Interval:
    """The logarithm of 1 + a."""
    return log((a[0] + 1.0, a[1] + 1.0))


def maximum(a: Interval, b: Interval) -> Interval:
    """The larger of a and b."""
    low = max(a[0], b[0])
    tie = low == 0.0 and min(a[0], b[0]) < 0.0  # of +0.0 and -0.0 either may be the larger
    return (BELOW_ZERO if tie else low, max(a[1], b[1]))


def join(_: Any, a: Interval, b: Interval) -> Interval:
    """Either a or b, as a condition says."""
    return (min(a[0], b[0]), max(a[1], b[1]))
