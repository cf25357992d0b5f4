"""What operations mean where NumPy has no function, or another convention, for them.

Each takes and returns arrays of one floating-point type, and follows IEEE 754 in the edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any


def pointwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A NumPy function from one on Python floats, computed in double and rounded once."""
    ufunc = np.frompyfunc(function, 1, 1)

    def reference(x: Array) -> Array:
        x = np.asarray(x)
        return np.asarray(ufunc(x.astype(np.float64)), dtype=x.dtype)

    return reference


erf = pointwise(math.erf)
erfc = pointwise(math.erfc)


def exp_neg_square(x: Array) -> Array:
    """exp(-x**2), squared in double so that the exponent is exact to its last bit."""
    x = np.asarray(x)
    wide = np.clip(x.astype(np.float64), -1e3, 1e3)  # beyond, the value is 0 anyhow
    high = wide.astype(np.float32).astype(np.float64)  # high**2 is exact in double
    return (np.exp(-high * high) * np.exp(-(wide - high) * (wide + high))).astype(x.dtype)


def integer_power(x: Array, exponent: Array) -> Array:
    """x**k by repeated squaring, the product that kernels compute."""
    k = int(exponent)
    chain = power_chain(np.asarray(x), abs(k))
    return np.reciprocal(chain) if k < 0 else chain


def power_chain(x: Any, k: int) -> Any:
    """x**k for k >= 1 by repeated squaring: k = 13 is (x * x**4) * x**8."""
    product, square = None, x
    while k:
        if k & 1:
            product = square if product is None else product * square
        k >>= 1
        if k:
            square = square * square
    return product if product is not None else np.ones_like(x)


def sigmoid(x: Array) -> Array:
    """1/(1 + exp(-x)) without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(np.asarray(x) >= 0, 1, e) / (1 + e)


def logistic(x: Array) -> Array:
    """exp(-x)/(1 + exp(-x))**2 without overflow: an even function."""
    e = np.exp(-np.abs(x))
    r = np.reciprocal(1 + e)
    return e * (r * r)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def fma(a: Array, b: Array, c: Array) -> Array:
    """a*b + c; float32 is computed in double, so that it is rounded once (nearly always)."""
    wide = [np.asarray(v, dtype=np.float64) for v in (a, b, c)]
    return (wide[0] * wide[1] + wide[2]).astype(np.result_type(a, b, c))


def rsqrt(x: Array) -> Array:
    """1/sqrt(x)."""
    return np.reciprocal(np.sqrt(x))


def where(c: Array, a: Array, b: Array) -> Array:
    """The elements of a where c holds, else those of b."""
    return np.where(c, a, b)
