"""How the columns that a kernel computes become what its ``run`` returns."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from symgrad.errors import SymgradError
from symgrad.expr.trace import Structure

Values = Any
"""An array (..., columns): NumPy's, or on a device."""

Reader = Callable[[], Any]
"""What reads a result, as an array or a number of its own."""


@dataclass(frozen=True)
class Scalar:
    """One number a point: a Python float for a single one."""

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        if batch or not isinstance(values, np.ndarray):
            return values.reshape(batch)
        return float(values[0, 0])

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return values.item


@dataclass(frozen=True)
class Array:
    """An array of fixed shape a point."""

    shape: tuple[int, ...]

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        return values.reshape(batch + self.shape)

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return values.reshape(self.shape).copy


@dataclass(frozen=True)
class Nested:
    """The nesting that the traced function returned."""

    structure: Structure

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        if not isinstance(values, np.ndarray):
            return values.reshape((*batch, self.structure.size))
        return self.structure.build(values.reshape((*batch, self.structure.size)))

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return partial(self.structure.build, values)


@dataclass(frozen=True)
class Sparse:
    """A SciPy CSR matrix a point; for a batch, an object array of them."""

    shape: tuple[int, int]
    indices: tuple[int, ...]
    indptr: tuple[int, ...]

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

    def _matrix(self, data: np.ndarray) -> Any:
        return csr_class()((data.copy(), self.indices, self.indptr), shape=self.shape)


def csr_class() -> Any:
    """SciPy's CSR array."""
    try:
        return importlib.import_module("scipy.sparse").csr_array
    except ImportError as error:
        raise SymgradError("sparse=True needs SciPy: pip install 'symgrad[sparse]'") from error


Result = Scalar | Array | Nested | Sparse
