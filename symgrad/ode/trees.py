"""Rooted trees, and the conditions that a method of an order meets, one for each (Butcher)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

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
