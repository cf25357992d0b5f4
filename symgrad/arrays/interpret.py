"""The meaning of array programs: NumPy in float64, over grids in which every counter is an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from symgrad.arrays.program import (
    ArrayProgram,
    Constant,
    Input,
    Joined,
    Part,
    Result,
    Scan,
    Scatter,
    Tabulate,
)
from symgrad.arrays.scalars import COUNTER, Array, Read, Reduce, Scalars
from symgrad.expr.graph.region import Pick
from symgrad.expr.semantics.evaluate import leaf

FOLDS: Final[dict[str, Callable[..., Any]]] = {
    "add": np.sum,
    "mul": np.prod,
    "max": np.max,
    "min": np.min,
}
SCANS: Final[dict[str, np.ufunc]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def interpret(program: ArrayProgram, inputs: Sequence[Any]) -> list[np.ndarray]:
    """The values of a program's outputs; memory is that of the grid of each array's counters.

    Example:
        >>> from symgrad.expr import ops
        >>> scalars = Scalars()
        >>> x = Input(shape=(3,), number=0)
        >>> i = scalars.counter(3)
        >>> element = scalars.read(x, [i])
        >>> total = scalars.reduction("add", [i], scalars.graph.add(ops.mul, element, element))
        >>> squares = Tabulate(shape=(), counters=(), body=total)
        >>> interpret(ArrayProgram(scalars, (x,), (squares,)), [[1.0, 2.0, 3.0]])
        [array(14.)]
    """
    values: dict[Array, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for array in program.arrays:
            values[array] = _value(array, program.scalars, values, inputs)
    return [np.asarray(values[a]) for a in program.outputs]


def _value(
    array: Array, scalars: Scalars, values: Mapping[Array, np.ndarray], inputs: Sequence[Any]
) -> Any:
    """The elements of an array, given those that it reads."""
    match array:
        case Input():
            return np.asarray(inputs[array.number], np.float64 if array.kind == "f" else np.int64)
        case Constant():
            return array.data
        case Result():
            call = array.call
            return call.reference(*[values[a] for a in call.operands], *call.options)[array.index]
        case Part():
            numbers = values[array.whole].reshape(-1)
            return numbers[array.first : array.first + array.size].reshape(array.shape)
        case Joined():
            return np.concatenate([values[a].reshape(-1) for a in array.parts]).reshape(array.shape)
        case Tabulate() | Scatter() | Scan():
            grid = _Grid(scalars, array.counters, values, None)
            extents = tuple(scalars.extent(c) for c in array.counters)
            parts = [np.broadcast_to(grid.value(i), extents) for i in array.scalars]
            return _assembled(array, parts)
    raise AssertionError(f"{array} is no array of a program")


def _assembled(array: Array, parts: Sequence[np.ndarray]) -> np.ndarray:
    """An array of the values of its scalars over the grid of its counters."""
    match array:
        case Scatter():
            *index, body = parts
            result = np.zeros(array.shape, body.dtype)
            inside = np.ones(body.shape, bool)
            for i, n in zip(index, array.shape, strict=True):
                inside &= (i >= 0) & (i < n)
            np.add.at(result, tuple(i[inside] for i in index), body[inside])
            return result
        case Scan():
            way = slice(None, None, -1 if array.reverse else 1)
            order = (*[slice(None)] * array.axis, way)
            totals: np.ndarray = SCANS[array.operator].accumulate(parts[0][order], array.axis)
            return totals[order]
    return parts[0]


class _Grid:
    """The values of scalars for all values of the counters around them, new axes in front."""

    def __init__(
        self,
        scalars: Scalars,
        counters: Sequence[int],
        arrays: Mapping[Array, np.ndarray],
        outer: _Grid | None,
    ) -> None:
        self._scalars, self._arrays, self._outer = scalars, arrays, outer
        self._depth = len(counters) + (outer._depth if outer else 0)
        self._counters = frozenset(counters)
        self._known: dict[int, Any] = {}
        for k, c in enumerate(counters):
            shape = [1] * self._depth
            shape[k] = scalars.extent(c)
            self._known[c] = np.arange(scalars.extent(c)).reshape(shape)

    def value(self, i: int) -> Any:
        """The values of node i, to be broadcast over the grid."""
        home = self
        while home._outer and home._counters.isdisjoint(self._scalars.free(i)):
            home = home._outer
        for k in self._scalars.shallow([i]):
            if k not in home._known:
                home._known[k] = home._computed(k)
        return home._known[i]

    def _computed(self, i: int) -> Any:
        node = self._scalars.graph.nodes[i]
        op = node[0]
        if op is COUNTER:
            assert self._outer is not None, f"counter {i} is free"
            return self._outer.value(i)
        if not op.arity and not isinstance(op, Read):
            return node[1] if op.result == "i" else leaf(node, np.float64)
        if isinstance(op, Reduce):
            return self._reduced(op, node[1:])
        arguments = [self._known[a] for a in node[1:]]
        if isinstance(op, Read):
            return self._read(op.array, arguments)
        if isinstance(op, Pick):
            return arguments[0][op.index]
        return op.reference(*arguments)

    def _read(self, array: Array, index: Sequence[Any]) -> Any:
        values = self._arrays[array]
        if not values.size:
            return np.zeros((), values.dtype)
        inside = [np.clip(i, 0, n - 1) for i, n in zip(index, array.shape, strict=True)]
        return values[tuple(inside)]

    def _reduced(self, op: Reduce, parts: Sequence[int]) -> Any:
        inner = _Grid(self._scalars, op.counters, self._arrays, self)
        extents = tuple(self._scalars.extent(c) for c in op.counters)
        values = [np.asarray(inner.value(p)) for p in parts]
        full = np.broadcast_shapes(*(v.shape for v in values), (*extents, *[1] * self._depth))
        grids = [np.broadcast_to(v, full) for v in values]
        axes = tuple(range(len(extents)))
        if op.operator == "rescale":
            top = np.max(grids[0], axes)
            weights = np.exp(grids[0] - top)
            return [top, *(np.sum(weights * w, axes) for w in grids[1:])]
        if op.operator in ("argmax", "argmin"):
            flat = [g.reshape(-1, *g.shape[len(axes) :]) for g in grids]
            where = getattr(np, op.operator)(flat[0], 0)[None]
            return [np.take_along_axis(g, where, 0)[0] for g in flat]
        return FOLDS[op.operator](grids[0], axis=axes)
