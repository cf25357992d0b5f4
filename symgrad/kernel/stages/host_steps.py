"""The work of NumPy on the host between kernels: products by its BLAS, scans, whole algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from symgrad.arrays.program import Call, Joined, Part, Scan, Scatter, Tabulate
from symgrad.arrays.scalars import Array
from symgrad.kernel.host.memory import POOL
from symgrad.kernel.host.resident import ResidentArray
from symgrad.kernel.stages.products import Contraction, Operand


class HostStep:
    """A step that NumPy does: what it reads and writes, and how.

    ``run`` takes the arrays that it reads, and gives those that it writes.
    """

    inputs: tuple[Array, ...]
    writes: tuple[Array, ...]
    title: str

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of these arrays, which stay as they are."""
        raise NotImplementedError


class CallStep(HostStep):
    """An algorithm on whole arrays, by its NumPy function."""

    def __init__(self, call: Call, results: Mapping[int, Array]) -> None:
        self.call, self.results, self.title = call, results, f"call {call.name}"
        self.inputs, self.writes = tuple(dict.fromkeys(call.operands)), tuple(results.values())
        self._numbers = tuple(results)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results that are needed: see `HostStep`."""
        known = dict(zip(self.inputs, arrays, strict=True))
        operands = [known[a] for a in self.call.operands]
        results = self.call.reference(*operands, *self.call.options)
        return [np.asarray(results[n]) for n in self._numbers]


class PartStep(HostStep):
    """Part of an array, of the host or of a device, which is a view of it."""

    def __init__(self, part: Part) -> None:
        self.inputs, self.writes = (part.whole,), (part,)
        self.title = f"part {list(part.shape)} from {part.first} on"
        self._place, self._shape = slice(part.first, part.first + part.size), part.shape

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The part: see `HostStep`."""
        return [arrays[0].reshape(-1)[self._place].reshape(self._shape)]


class JoinStep(HostStep):
    """Arrays of the host, or of a device, one behind the other in one."""

    def __init__(self, joined: Joined) -> None:
        self.inputs, self.writes = joined.parts, (joined,)
        self.title = f"joined {list(joined.shape)}"

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The whole: see `HostStep`."""
        (joined,) = self.writes
        flat = [a.reshape(-1) for a in arrays]
        if isinstance(flat[0], ResidentArray):
            return [flat[0].joined(flat[1:]).reshape(joined.shape)]
        whole = POOL.empty((joined.size,), flat[0].dtype)
        np.concatenate(flat, out=whole)
        return [whole.reshape(joined.shape)]


ACCUMULATED: Final[dict[str, np.ufunc]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


class ScanStep(HostStep):
    """Running totals of an array along an axis."""

    def __init__(self, scan: Scan, elements: Array) -> None:
        self.inputs, self.writes, self.title = (elements,), (scan,), f"scan {scan.operator}"
        self._function, self._axis = ACCUMULATED[scan.operator], scan.axis
        way = slice(None, None, -1 if scan.reverse else 1)
        self._order = (*[slice(None)] * scan.axis, way)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The totals: see `HostStep`."""
        (elements,) = arrays
        totals = POOL.empty(elements.shape, elements.dtype)
        with np.errstate(all="ignore"):
            order = self._order
            self._function.accumulate(elements[order], self._axis, out=totals[order])
        return [totals]


def places_of(index: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """The numbers of elements in C order, by their indices; that behind the last one is nowhere."""
    place = np.zeros(index[0].shape, np.intp)
    inside = np.ones(index[0].shape, bool)
    for i, n in zip(index, shape, strict=True):
        place *= n
        place += i
        inside &= i.view(np.uint32) < n
    place[~inside] = prod(shape)
    return place


class ScatterStep(HostStep):
    """Zeros, to which what stands in a list is added in its order: the list's axes are indices."""

    def __init__(self, scatter: Scatter, parts: Sequence[Tabulate]) -> None:
        self.inputs, self.writes, self.title = tuple(parts), (scatter,), "scatter"

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums: see `HostStep`."""
        *index, values = arrays
        (scatter,) = self.writes
        place = places_of(index, scatter.shape)
        sums = np.bincount(place.reshape(-1), values.reshape(-1), scatter.size + 1)
        return [sums[:-1].astype(values.dtype).reshape(scatter.shape)]


# --- products -------------------------------------------------------------------------------------


def matrices(operand: Operand, values: np.ndarray, batch: int, outer: int) -> np.ndarray:
    """Matrices of an operand, (batch, outer, inner), of which so many axes each are made."""
    strides = [n * values.itemsize for n in operand.strides]
    view: Any = np.ndarray(
        operand.shape, values.dtype, values, operand.first * values.itemsize, strides
    )
    many, rows = prod(operand.shape[:batch]), prod(operand.shape[batch : batch + outer])
    view = view.reshape(many, rows, prod(operand.shape[batch + outer :]))
    steps = [n // values.itemsize for n in view.strides[1:]]
    return view if 1 in steps and min(steps) > 0 else np.ascontiguousarray(view)


class ProductStep(HostStep):
    """Products of matrices, by the BLAS of NumPy: an array (batch, rows, columns)."""

    def __init__(self, left: Operand, right: Operand, c: Contraction, result: Array) -> None:
        self.left, self.right = left, right
        self.inputs = tuple(dict.fromkeys((left.array, right.array)))
        self.writes, self.title = (result,), "product"
        self._batch, self._rows, self._columns = len(c.batch), len(c.rows), len(c.columns)

    @property
    def sides(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]] | None:
        """The lengths and strides of both factors: of the batch, of rows or columns, of the sum.

        None where matrices stand in memory as no BLAS takes them.
        """
        batch, shapes = self._batch, (self.left.shape, self.right.shape)
        left, right = (
            factor.merged((batch, batch + outer, len(shape)))
            for factor, outer, shape in zip(
                (self.left, self.right), (self._rows, self._columns), shapes, strict=True
            )
        )
        return None if left is None or right is None else (left, right)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The products: see `HostStep`."""
        known = dict(zip(self.inputs, arrays, strict=True))
        a = matrices(self.left, known[self.left.array], self._batch, self._rows)
        b = matrices(self.right, known[self.right.array], self._batch, self._columns)
        result = POOL.empty(self.writes[0].shape, a.dtype)
        stacked = result.reshape(len(a), a.shape[1], b.shape[1])
        with np.errstate(all="ignore"):
            if len(a) == 1:
                np.matmul(a[0], b[0].T, out=stacked[0])
            else:
                np.matmul(a, b.mT, out=stacked)
        return [result]
