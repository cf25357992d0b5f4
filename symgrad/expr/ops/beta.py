"""The beta function's logarithm, of rows of the table."""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr.ops.comparison import where
from symgrad.expr.ops.exponential import log, log1p
from symgrad.expr.ops.gamma import BERNOULLI as _BERNOULLI
from symgrad.expr.ops.gamma import gammaln

LARGE: Final = 6.0
"""From here on Stirling's series has all digits of a float64."""

STEPS: Final = 4
"""By how many steps a smaller argument, at least 2, is made one of these."""

_STIRLING: Final = tuple(b / (c * 2 * j * (2 * j - 1)) for j, (b, c) in enumerate(_BERNOULLI, 1))


def stirling(x: Any) -> Any:
    """gammaln(x) - (x - 1/2) log x + x - log(2 pi)/2 for a large x."""
    w = 1.0 / x
    square, total = w * w, 0.0
    for c in reversed(_STIRLING):
        total = total * square + c
    return total * w


def _steps(x: Any, s: Any) -> Any:
    """gammaln(x) - gammaln(x + s) less the same of x + STEPS: the logarithm of a product."""
    above, below = x + s, x
    for k in range(1, STEPS):
        above, below = above * ((x + s) + float(k)), below * (x + float(k))
    return log(above / below)


def log_beta(a: Any, b: Any) -> Any:
    """log |B(a, b)|, without the difference of large logarithms where an argument is large."""
    first = a <= b
    low, high = where(first, a, b), where(first, b, a)
    stepped = (low > 0.0) & (low < 1.0) & (high >= LARGE - STEPS) & (high < LARGE)
    one = ((low > 0.0) & (high >= LARGE)) | stepped
    both = one & (low >= LARGE)
    s, t = where(one, low, 1.0), where(both, low, LARGE)
    large = where(stepped, high + float(STEPS), where(one, high, LARGE))
    ratio = s / large
    shift = stirling(large) - stirling(large + s) - (large - 0.5) * log1p(ratio)
    far = t * (log(ratio) - log1p(ratio)) - 0.5 * log(t) + 0.5 * math.log(2.0 * math.pi)
    taken = _steps(where(stepped, high, LARGE), where(stepped, low, 1.0))
    mixed = gammaln(where(both, 1.0, low)) + (s - s * log(large + s) + shift)
    mixed = mixed + where(stepped, taken, 0.0)
    low, high = where(one, 1.0, low), where(one, 1.0, high)
    near = gammaln(low) + (gammaln(high) - gammaln(low + high))
    value = where(both, far + stirling(t) + shift, where(one, mixed, near))
    return where(one & (large == math.inf), -math.inf, value)
