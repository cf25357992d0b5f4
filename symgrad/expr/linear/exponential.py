"""The exponential of a matrix, by scaling and squaring of a rational approximation.

See Higham, 2005, "The scaling and squaring method for the matrix exponential revisited": the
diagonal Pade approximant of degree 13 is accurate to float64's unit for matrices whose norm is at
most `LARGEST_NORM`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.loops.control import fori_loop
from symgrad.expr.tracers.array import array

LARGEST_NORM: Final = 5.371920351148152
"""The norm, the largest sum of a column's magnitudes, up to which no scaling is needed."""

MOST_SQUARINGS: Final = 24
"""Squarings at most: of a matrix of a larger norm nothing is left that a float holds."""

COEFFICIENTS: Final = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
"""Coefficients of the numerator, the constant first; the denominator's odd ones are negative."""


def fraction(a: Any, eye: Any) -> tuple[Any, Any]:
    """The numerator and the denominator of the approximant at a matrix."""
    b = COEFFICIENTS
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    high = a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2)
    odd = a @ (high + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * eye)
    even = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2)
    even = even + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * eye
    return even + odd, even - odd


def of_numbers(a: np.ndarray) -> np.ndarray:
    """The exponentials of matrices (..., n, n) of numbers; NaN of what is not finite."""
    a = np.asarray(a, np.result_type(a, np.float32))
    result = np.empty_like(a)
    for k in np.ndindex(a.shape[:-2]):
        result[k] = _of_one(a[k])
    return result


def _of_one(a: np.ndarray) -> np.ndarray:
    norm = np.abs(a).sum(axis=0).max(initial=0.0)
    if not np.isfinite(norm):
        return np.full_like(a, np.nan)
    doublings = np.ceil(np.log2(norm / LARGEST_NORM)) if norm > LARGEST_NORM else 0.0
    squarings = int(min(doublings, MOST_SQUARINGS))
    # the coefficients are beyond float32's largest number, once they are multiplied
    scaled = np.asarray(a, np.float64) * 0.5**squarings
    over, under = fraction(scaled, np.eye(len(a)))
    result = np.linalg.solve(under, over)
    with np.errstate(all="ignore"):
        for _ in range(squarings):
            result = result @ result
    return result.astype(a.dtype)


def of_expressions(a: np.ndarray, solve: Any) -> np.ndarray:
    """The exponential of a matrix of expressions, as an array of these; ``solve`` is linalg's.

    Which of the squarings are done is no number yet: all are computed, and chosen from.
    """
    norm: Any = 0.0
    for column in a.T:
        size: Any = 0.0
        for element in column:
            size = size + ops.abs(element)
        norm = ops.maximum(norm, size)
    doublings = ops.ceil(ops.log2(ops.maximum(norm / LARGEST_NORM, 1.0)))
    squarings = ops.minimum(doublings, float(MOST_SQUARINGS))
    scaled = array(a) * ops.exp2(-squarings)
    over, under = fraction(scaled, np.eye(len(a)))
    scale = 1.0 / COEFFICIENTS[0]
    first = solve(under * scale, over * scale)

    def squared(k: Any, x: Any) -> Any:
        product = x @ x
        return np.where(k < squarings, product, x)

    return fori_loop(0, MOST_SQUARINGS, squared, first)
