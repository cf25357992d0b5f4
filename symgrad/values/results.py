"""How the columns that a kernel computes become what its ``run`` returns."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from symgrad.errors import InputError, SymgradError
from symgrad.expr.tracers.tree import Tree

Values = Any
"""An array (..., columns): NumPy's, or on a device."""

Reader = Callable[[], Any]
"""A function that reads a result, as an array or a number of its own."""


@dataclass(frozen=True)
class Scalar:
    """One number a point: a Python float for a single one."""

    shapes = ((),)
    """The shapes of the arrays that a result consists of, at a point."""

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        if batch or not isinstance(values, np.ndarray):
            return values.reshape(batch)
        return float(values[0, 0])

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return values.item

    def parts(self, result: Any, name: str) -> Iterator[Any]:
        """The arrays that a result, or what is nested like it, consists of."""
        yield result


@dataclass(frozen=True)
class Array:
    """An array of fixed shape a point."""

    shape: tuple[int, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays that a result consists of, at a point."""
        return (self.shape,)

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        return values.reshape(batch + self.shape)

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return values.reshape(self.shape).copy

    def parts(self, result: Any, name: str) -> Iterator[Any]:
        """The arrays that a result, or what is nested like it, consists of."""
        yield result


@dataclass(frozen=True)
class Nested:
    """The nesting that the traced function returned."""

    tree: Tree

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays that a result consists of, at a point."""
        return tuple(block.shape for block in self.tree.blocks)

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        rows = values.reshape((*batch, self.tree.size))
        return self.tree.build(rows) if isinstance(values, np.ndarray) else self.tree.seen(rows)

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return partial(self.tree.build, values)

    def parts(self, result: Any, name: str) -> Iterator[Any]:
        """The arrays that a result, or what is nested like it, consists of."""
        return self.tree.parts(result, name)


@dataclass(frozen=True)
class Derivatives:
    """Derivatives for nested variables, nested as these: of numbers, an array ``lead`` of them.

    Second derivatives, if ``second``, are nested twice: ``hessian["a"]["b"]`` has the axes of the
    variables a and then those of b.
    """

    tree: Tree
    lead: tuple[int, ...] = ()
    second: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays that a result consists of, at a point."""
        shapes = [block.shape for block in self.tree.blocks]
        firsts = shapes if self.second else [self.lead]
        return tuple(first + shape for first in firsts for shape in shapes)

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        n = self.tree.size
        rows = values.reshape((*batch, *(self.lead or (n,) * self.second), n))
        nest = self.tree.arrays if isinstance(values, np.ndarray) else self.tree.seen
        if not self.second:
            return nest(rows)
        return self.tree.nest(
            nest(rows[..., b.start : b.start + b.size, :].reshape((*batch, *b.shape, n)))
            for b in self.tree.blocks
        )

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        if self.second:
            return partial(self.of, values, ())
        rows = values.reshape((*self.lead, self.tree.size))
        views = [block.of(rows) for block in self.tree.blocks]
        reads = [v.copy if v.ndim else partial(v.__getitem__, ()) for v in views]
        return self.tree.reading(iter(reads))

    def matrix(self, hessian: Any) -> np.ndarray:
        """Second derivatives, nested or sparse as they are, as one array (n, n) of float64."""
        if hasattr(hessian, "toarray"):
            return hessian.toarray().astype(float)
        sizes = [block.size for block in self.tree.blocks]
        blocks = self.parts(hessian, "hessian")
        rows = [[np.reshape(next(blocks), (a, b)) for b in sizes] for a in sizes]
        return np.block(rows).astype(float)

    def parts(self, result: Any, name: str) -> Iterator[Any]:
        """The arrays that a result, or what is nested like it, consists of."""
        parts = self.tree.parts(result, name)
        if not self.second:
            return parts
        return itertools.chain.from_iterable(self.tree.parts(row, name) for row in parts)


@dataclass(frozen=True)
class Sparse:
    """A SciPy CSR matrix a point; for a batch, an object array of them."""

    shape: tuple[int, int]
    indices: tuple[int, ...]
    indptr: tuple[int, ...]
    shapes = ()

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        if not isinstance(values, np.ndarray):
            return values.reshape((*batch, len(self.indices)))
        matrices = np.empty(len(values), dtype=object)
        for k, row in enumerate(values):
            matrices[k] = self._matrix(row)
        return matrices.reshape(batch) if batch else matrices[0]

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return partial(self._matrix, values)

    def parts(self, result: Any, name: str) -> Iterator[Any]:
        """Refuse: a matrix of SciPy is no array that could be written to."""
        raise InputError(f"out= takes numbers and arrays: {name} is sparse")

    def _matrix(self, data: np.ndarray) -> Any:
        return scipy_sparse().csr_array((data.copy(), self.indices, self.indptr), shape=self.shape)


def scipy_sparse() -> Any:
    """SciPy's module of sparse matrices."""
    try:
        return importlib.import_module("scipy.sparse")
    except ImportError as error:
        raise SymgradError("sparse matrices need SciPy: pip install 'symgrad[sparse]'") from error


Result = Scalar | Array | Nested | Derivatives | Sparse


def nested_result(tree: Tree) -> Result:
    """The result of a function, nested as it was returned."""
    if tree.is_leaf:
        return Array(tree.keys) if tree.keys else Scalar()
    return Nested(tree)


def derivatives(tree: Tree, lead: tuple[int, ...] = (), second: bool = False) -> Result:
    """Derivatives for the variables of a tree, of an array of numbers or of one; or second ones."""
    if tree.is_leaf:
        return Array((tree.keys if second else lead) + tree.keys)
    return Derivatives(tree, lead, second)
