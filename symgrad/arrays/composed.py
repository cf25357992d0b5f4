"""Functions composed of reductions: differences, integrals, averages, softmaxes, polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.arrays.arguments import axes_of, whole
from symgrad.arrays.choices import where
from symgrad.arrays.reductions import largest, total
from symgrad.arrays.shapes import (
    squeeze,
)
from symgrad.arrays.whole import WholeArray
from symgrad.expr import ops


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> WholeArray:
    """log(sum(b*exp(a))): see `symgrad.logsumexp`."""
    a = whole(a)
    shift = _shift(a, axis)
    terms = np.exp(a - shift) if b is None else b * np.exp(a - shift)
    sums = np.log(total(terms, axis, keepdims=True)) + shift
    return sums if keepdims else squeeze(sums, axes_of(a, axis))


def _shift(a: WholeArray, axis: Any) -> WholeArray:
    """The largest element, a constant to differentiation; 0 where it is not finite."""
    top = largest(a, axis, keepdims=True)
    top = top.mapped(ops.stop_gradient, (top,))
    return where(np.isfinite(top), top, 0.0)


def softmax(x: Any, axis: Any = None) -> WholeArray:
    """exp(x)/sum(exp(x)): see `symgrad.softmax`."""
    x = whole(x)
    terms = np.exp(x - _shift(x, axis))
    return terms / total(terms, axis, keepdims=True)


def log_softmax(x: Any, axis: Any = None) -> WholeArray:
    """The logarithm of `softmax`."""
    x = whole(x)
    shifted = x - _shift(x, axis)
    return shifted - np.log(total(np.exp(shifted), axis, keepdims=True))
