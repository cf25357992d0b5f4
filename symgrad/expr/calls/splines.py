"""Cubic splines through values that may be expressions, as SciPy's `CubicSpline`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.calls.numpy_functions import piece_of, points_of, require_table
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.tracers.array import map_elements, plain

NAMED: Final = {"natural": (2, 0.0), "clamped": (1, 0.0)}
"""The order of a derivative at an end, and its value there."""

ENDS: Final = ("not-a-knot", "periodic", *NAMED)

Row = tuple[dict[int, float], Any]
"""An equation of slopes: their factors, and what they add up to."""


class CubicSpline:
    """The cubic spline through values at points: two derivatives of it are continuous.

    Its slopes at the points solve a system of three diagonals with constant factors, so that it
    costs a few operations for each value, and has derivatives by values and by where it is
    evaluated.

    Args:
        x: The points (k,), numbers that increase, at least 2.
        y: The values there (k,), numbers or expressions.
        bc_type: What holds at the ends: "not-a-knot" (the first two pieces are one cubic, and the
            last two), "natural" (no second derivative), "clamped" (no first one), "periodic" (the
            first value is the last), or a pair, for each end, of one of these but "periodic" or of
            (order, value), a derivative of order 1 or 2, number or expression.
        extrapolate: Whether the outer pieces go on beyond the ends, where it is NaN otherwise; a
            periodic one comes again.

    Raises:
        InputError: for points that are expressions or do not increase, values that are not as many,
            or other ends.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> knots = np.linspace(0.0, 6.0, 7)
        >>> def loss(v):
        ...     spline = sg.CubicSpline(knots, v, bc_type="natural")
        ...     return spline(2.5) + spline(2.5, 1) + spline.integrate(0.0, 6.0)
        >>> kernel = sg.fused_forward_backward(7, loss, device="cpu", dtype="float64")
        >>> value, slopes = kernel.run(np.sin(knots))
        >>> round(value, 4)
        -0.16
    """

    def __init__(
        self, x: Any, y: Any, bc_type: Any = "not-a-knot", extrapolate: bool = True
    ) -> None:
        points, values = points_of(x), plain(y).astype(object)
        require_table(points, values)
        if len(points) < 2:
            raise InputError(located("a spline needs at least 2 points"))
        self.x = points
        """The points (k,)."""
        self.periodic = bc_type == "periodic"
        """Whether it comes again beyond the ends."""
        self._extrapolate = extrapolate
        h = np.diff(points)
        rises = [(b - a) * (1.0 / w) for a, b, w in zip(values, values[1:], h, strict=False)]
        if self.periodic:
            if not isinstance(values[0], Handle) and values[0] != values[-1]:
                raise InputError(located("a periodic spline ends with the value it begins with"))
            slopes = _around(h, rises)
        else:
            slopes = _solved(_rows(h, rises, *_ends(bc_type, rises)))
        self._pieces = [
            (points[k], values[k], slopes[k], *_bent(rises[k], slopes[k], slopes[k + 1], w))
            for k, w in enumerate(h)
        ]

    def __call__(self, x: Any, nu: int = 0) -> Any:
        """The value, or the derivative of order ``nu``, at numbers or expressions of any shape.

        Raises:
            InputError: for an order that is no whole number >= 0.
        """
        if isinstance(nu, Handle) or int(nu) != nu or nu < 0:
            raise InputError(located(f"nu={nu!r}: the order of a derivative is a whole number"))
        pieces = [(at, *_derivative(c, int(nu))) for at, *c in self._pieces]
        return map_elements(lambda v: self._at(v, pieces), x)

    def integrate(self, a: Any, b: Any) -> Any:
        """The integral from a to b, numbers or expressions."""
        total: Any = 0.0
        pieces = []
        for (at, *c), w in zip(self._pieces, np.diff(self.x), strict=True):
            integrated = [total, *(part * (1.0 / (k + 1)) for k, part in enumerate(c))]
            pieces.append((at, *integrated))
            total = total + _horner(integrated[1:], w) * w

        def up_to(v: Any) -> Any:
            inside = self._at(v, pieces)
            if not self.periodic:
                return inside
            return inside + total * ops.floor((v - self.x[0]) * (1.0 / (self.x[-1] - self.x[0])))

        return map_elements(lambda low, high: up_to(high) - up_to(low), a, b)

    def _at(self, x: Any, pieces: Sequence[tuple[Any, ...]]) -> Any:
        first, last = float(self.x[0]), float(self.x[-1])
        if self.periodic:
            x = first + ops.remainder(x - first, last - first)
        value = piece_of(x, self.x, pieces)
        if self._extrapolate or self.periodic:
            return value
        outside = ops.logical_or(ops.lt(x, first), ops.lt(last, x))
        return ops.where(outside, math.nan, value)


def _bent(rise: Any, first: Any, last: Any, h: float) -> tuple[Any, Any]:
    """The coefficients of the second and the third power of a piece."""
    third = (first + last - 2.0 * rise) * (1.0 / h)
    return (rise - first) * (1.0 / h) - third, third * (1.0 / h)


def _derivative(coefficients: Sequence[Any], nu: int) -> list[Any]:
    """The coefficients of a derivative, constant first."""
    terms = [math.perm(k, nu) * c for k, c in enumerate(coefficients) if k >= nu]
    return terms or [0.0]


def _horner(coefficients: Sequence[Any], x: float) -> Any:
    value = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        value = value * x + c
    return value


# --- the slopes -----------------------------------------------------------------------------------


def _ends(bc_type: Any, rises: Sequence[Any]) -> tuple[Any, Any]:
    """The conditions at both ends: None for not-a-knot, or the order and value of a derivative.

    Raises:
        InputError: for anything else.
    """
    pair = (bc_type, bc_type) if isinstance(bc_type, str) else tuple(bc_type)
    conditions = []
    for end in pair:
        order = end[0] if not isinstance(end, str) and len(end) == 2 else None
        if len(pair) != 2 or (end not in (*NAMED, "not-a-knot") if order is None else
                              order not in (1, 2)):  # fmt: skip
            names = ", ".join(map(repr, ENDS))
            raise InputError(
                located(f"bc_type={bc_type!r}: use {names}, or a pair such as ((1, 0.0), (2, 0.0))")
            )
        conditions.append(tuple(end) if order is not None else NAMED.get(end))
    if len(rises) == 1:  # as SciPy: without another piece to be one with, the line's slope
        conditions = [(1, rises[0]) if end is None else end for end in conditions]
    return conditions[0], conditions[1]


def _rows(h: np.ndarray, rises: list[Any], first: Any, last: Any) -> list[Row]:
    """The equations of slopes: that second derivatives are continuous, and those of the ends."""
    n = len(h) + 1
    if n == 3 and first is None and last is None:  # one parabola
        rows = [({0: 1.0, 1: 1.0}, 2.0 * rises[0])]
        ending: Row = ({1: 1.0, 2: 1.0}, 2.0 * rises[1])
    else:
        rows = [_end(0, 1, h, rises, first)]
        ending = _end(n - 1, -1, h[::-1], rises[::-1], last)
    for k in range(1, n - 1):
        before, after = float(h[k - 1]), float(h[k])
        factors = {k - 1: after, k: 2.0 * (before + after), k + 1: before}
        rows.append((factors, 3.0 * (after * rises[k - 1] + before * rises[k])))
    return [*rows, ending]


def _end(k: int, step: int, h: np.ndarray, rises: list[Any], end: Any) -> Row:
    """The equation at an end k, from which points and pieces are counted."""
    if end is None:
        a, b = float(h[0]), float(h[1])
        right = ((a + 2.0 * (a + b)) * b * rises[0] + a * a * rises[1]) * (1.0 / (a + b))
        return {k: b, k + step: a + b}, right
    order, value = end
    if order == 1:
        return {k: 1.0}, value
    return {k: 2.0, k + step: 1.0}, 3.0 * rises[0] - (0.5 * float(h[0]) * step) * value


def _solved(rows: list[Row]) -> list[Any]:
    """The unknowns of three diagonals, whose factors are numbers (Thomas' algorithm)."""
    pivots, rights = [rows[0][0][0]], [rows[0][1]]
    for k, (factors, right) in enumerate(rows[1:], 1):
        share = factors.get(k - 1, 0.0) / pivots[-1]
        pivots.append(factors[k] - share * rows[k - 1][0].get(k, 0.0))
        rights.append(right - share * rights[-1] if share else right)
    unknowns = [rights[-1] * (1.0 / pivots[-1])]
    for k in range(len(rows) - 2, -1, -1):
        above = rows[k][0].get(k + 1, 0.0)
        unknowns.append(
            (rights[k] - above * unknowns[-1] if above else rights[k]) * (1.0 / pivots[k])
        )
    return unknowns[::-1]


def _around(h: np.ndarray, rises: list[Any]) -> list[Any]:
    """The slopes of a periodic spline, the last of which is the first.

    The two corners of the system are a matrix of rank 1 (Sherman and Morrison, 1950).
    """
    n = len(h)
    if n == 1:
        return [rises[0], rises[0]]
    if n == 2:  # both slopes are one
        share = (h[1] * rises[0] + h[0] * rises[1]) * (1.0 / (h[0] + h[1]))
        return [share, share, share]
    rows: list[Row] = []
    for k in range(n):
        before, after = float(h[k - 1]), float(h[k])
        factors = {k: 2.0 * (before + after), k - 1: after, k + 1: before}
        rows.append((factors, 3.0 * (after * rises[k - 1] + before * rises[k])))
    top, bottom = rows[0][0].pop(-1), rows[-1][0].pop(n)
    pivot = -rows[0][0][0]
    rows[0][0][0] -= pivot
    rows[-1][0][n - 1] -= top * bottom / pivot
    ones = [pivot, *[0.0] * (n - 2), bottom]
    inner = _solved(rows)
    q = _solved([(factors, u) for (factors, _), u in zip(rows, ones, strict=True)])
    share = top / pivot
    factor = (inner[0] + share * inner[-1]) * (1.0 / (1.0 + q[0] + share * q[-1]))
    slopes = [z - factor * float(v) for z, v in zip(inner, q, strict=True)]
    return [*slopes, slopes[0]]
