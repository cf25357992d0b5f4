"""Explicit methods of Runge and Kutta, as the tables of their coefficients.

Rooted trees are the conditions that a method of an order meets, one for each (Butcher).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError

Tree = tuple[Any, ...]
"""A rooted tree: the trees below its root, in order."""


@functools.cache
def trees(size: int) -> tuple[Tree, ...]:
    """All rooted trees with this number of vertices."""
    return tuple(_forests(size - 1, None))


def _forests(size: int, largest: Tree | None) -> Iterator[Tree]:
    """The multisets of trees with so many vertices, none after ``largest``."""
    if size == 0:
        yield ()
        return
    for first in range(size, 0, -1):
        for tree in trees(first):
            if largest is None or _key(tree) <= _key(largest):
                for rest in _forests(size - first, tree):
                    yield (tree, *rest)


@functools.cache
def _key(tree: Tree) -> tuple[Any, ...]:
    return _size(tree), tuple(_key(child) for child in tree)


@functools.cache
def _size(tree: Tree) -> int:
    return 1 + sum(_size(child) for child in tree)


@functools.cache
def density(tree: Tree) -> int:
    """The product of the sizes of all subtrees of a tree."""
    product = _size(tree)
    for child in tree:
        product *= density(child)
    return product


def order_residual(
    order: int, weights: np.ndarray, several: np.ndarray, single: np.ndarray
) -> float:
    """How far a method with these weights is from meeting all conditions up to an order.

    For each tree ``weights @ phi(tree) = 1 / density(tree)``, where phi multiplies, at each vertex,
    what a matrix makes of the vertices above it: ``several`` at vertices with several, ``single``
    at those with one. Both are A of methods of Runge and Kutta; of Rosenbrock's, ``single`` has the
    coefficients of the Jacobian added (Hairer & Wanner, 1996, Solving Ordinary Differential
    Equations II, IV.7).
    """

    @functools.cache
    def phi(tree: Tree) -> np.ndarray:
        product = np.ones(len(weights))
        for child in tree:
            product = product * ((single if len(tree) == 1 else several) @ phi(child))
        return product

    return max(
        abs(float(weights @ phi(tree)) - 1.0 / density(tree))
        for size in range(1, order + 1)
        for tree in trees(size)
    )


ROUNDING: Final = 1e-12
"""How far rounding may put coefficients from meeting the conditions of their order."""

HIGHEST_CHECKED: Final = 8
"""The highest order whose conditions are checked: there are 200 up to it."""

Rows = Sequence[Sequence[float]]


@dataclass(frozen=True, eq=False)
class Tableau:
    """An explicit method of Runge and Kutta of s stages, for `solve_ivp`.

    Args:
        order: The order of the method, up to 8. All conditions of it are checked.
        a: For each stage the weights of the stages before it: s rows, the first one empty.
        b: The weights of the step (s,).
        error: The weights of the error estimate: those of the step less those of another method
            (s,), or with one more for the slope at the end. None makes a method of fixed steps.
        error_order: The order of that other method: one less than ``order``.
        dense: The solution within a step: row i has the weights of stage i, and after the last of
            the slope at the end, times x, x², .. for the share x of the step. None is the cubic of
            Hermite.

    Raises:
        InputError: for tables that are no explicit method of this order.

    Example:
        >>> import symgrad as sg
        >>> heun = sg.Tableau(order=2, a=[[], [1.0]], b=[0.5, 0.5], error=[-0.5, 0.5])
        >>> decay = lambda t, y: -y
        >>> sg.solve_ivp(decay, (0, 1), [1.0], heun, rtol=1e-6).y[0, -1].round(5)
        np.float64(0.36788)
    """

    order: int
    a: Rows
    b: Sequence[float]
    error: Sequence[float] | None = None
    error_order: int | None = None
    dense: Any = None

    def __post_init__(self) -> None:
        s = len(self.b)
        if s < 1 or [len(row) for row in self.a] != list(range(s)):
            raise InputError(
                f"a tableau of {s} weights b has rows a of 0 to {s - 1} weights, one for each "
                f"stage before it, and not of {[len(row) for row in self.a]}"
            )
        if self.error is not None and len(self.error) not in (s, s + 1):
            raise InputError(
                f"the error estimate of {s} stages has {s} weights, or {s + 1} with that of the "
                f"slope at the end, not {len(self.error)}"
            )
        if self.dense is not None and np.shape(self.dense)[:1] != (s + 1,):
            raise InputError(
                f"the dense output of {s} stages has {s + 1} rows, the last of the slope at the "
                f"end, not shape {np.shape(self.dense)}"
            )
        if not 1 <= self.order <= HIGHEST_CHECKED:
            raise InputError(f"the order of a tableau is from 1 to {HIGHEST_CHECKED}")
        residual = order_residual(self.order, np.array(self.b, float), self.matrix, self.matrix)
        if not residual <= ROUNDING * max(1.0, np.abs(self.matrix).max()):
            raise InputError(
                f"these coefficients are not of order {self.order}: a condition of it is off by "
                f"{residual:.1e}; check them digit by digit, or say a lower order"
            )

    @property
    def matrix(self) -> np.ndarray:
        """The coefficients a as a matrix (s, s)."""
        s = len(self.b)
        return np.array([[*row, *[0.0] * (s - len(row))] for row in self.a], float)

    @cached_property
    def c(self) -> tuple[float, ...]:
        """The share of the step at which each stage is evaluated."""
        return tuple(round(math.fsum(row), 14) for row in self.a)

    @property
    def ends_as_it_begins(self) -> bool:
        """Whether the last stage is the solution at the end, whose slope the next one needs."""
        return list(self.a[-1]) == list(self.b[:-1]) and self.b[-1] == 0 and len(self.b) > 1
