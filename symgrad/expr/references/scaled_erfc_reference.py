"""What the scaled complement of the error function means, by those of its parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from symgrad.expr.references.reference import erfc
from symgrad.expr.references.special_reference import in_double, inverse_mills

Array = Any


@in_double
def exp_square(x: Array) -> Array:
    """exp(x**2), the square in two parts."""
    high = np.clip(x, -30, 30).astype(np.float32).astype(np.float64)
    value = np.exp(high * high) * np.exp((x - high) * (x + high))
    return np.where(np.abs(x) > 27.0, np.inf, value)


@in_double
def erfcx(x: Array) -> Array:
    """By erfc up to 1, by Mills' ratio beyond."""
    far = math.sqrt(2 / math.pi) / np.asarray(inverse_mills(-math.sqrt(2) * np.maximum(x, 1.0)))
    near = np.asarray(exp_square(np.minimum(x, 1.0))) * np.asarray(erfc(np.minimum(x, 1.0)))
    return np.where(x > 1.0, far, near)
