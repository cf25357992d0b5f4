"""Arrays that remember what has computed them: a tape of steps, and the way back along it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from symgrad.errors import InputError, TraceError
from symgrad.kernel.resident import ResidentArray

Shape = tuple[int, ...]

Pull = Callable[..., Sequence[Any]]
"""Takes a cotangent of each result and gives one for each argument."""


class Step(NamedTuple):
    """Something that was computed: the places of its arguments on the tape, and of its results."""

    arguments: tuple[int | None, ...]
    results: tuple[int, ...]
    pull: Pull


class Recordable(Protocol):
    """A kernel whose calls a tape takes."""

    def recorded(self, *arrays: Any) -> tuple[Any, Pull]:
        """The results for arrays, and what gives gradients."""
        ...


Elementwise = Callable[[np.ufunc, Sequence[Any]], Recordable]
"""The kernel of a ufunc of some operands: numbers are part of it, and it takes the arrays."""


class Tape:
    """The steps of a call, in order, with the shape of every array at its place.

    Arguments and results of steps are `Recorded`; what is none has no gradient.
    """

    def __init__(self, elementwise: Elementwise) -> None:
        self.elementwise = elementwise
        self._steps: list[Step] = []
        self._shapes: list[Shape] = []

    def begin(self, value: Any) -> Recorded:
        """An array that nothing on the tape has computed."""
        self._shapes.append(tuple(value.shape))
        return Recorded(self, len(self._shapes) - 1, value)

    def call(self, kernel: Recordable, arrays: Sequence[Any]) -> Any:
        """The results of a kernel, which goes on the tape."""
        return self.add(arrays, *kernel.recorded(*map(value_of, arrays)))

    def add(self, arguments: Sequence[Any], values: Any, pull: Pull) -> Any:
        """Record a step; its results are ``values``, an array or a tuple of them."""
        recorded = [self.begin(y) for y in (values if isinstance(values, tuple) else (values,))]
        places = tuple(self._place(a) if isinstance(a, Recorded) else None for a in arguments)
        self._steps.append(Step(places, tuple(y.place for y in recorded), pull))
        return tuple(recorded) if isinstance(values, tuple) else recorded[0]

    def _place(self, array: Recorded) -> int:
        if array.tape is not self:
            raise InputError("an array of another call of a network cannot be used in this one")
        return array.place

    def back(self, results: Sequence[Any], cotangents: Sequence[Any]) -> dict[int, Any]:
        """The cotangents of all arrays that have any, by their places, from those of results."""
        by_place: dict[int, Any] = {}
        for y, g in zip(results, cotangents, strict=True):
            if isinstance(y, Recorded):
                _gather(by_place, self._place(y), g)
        for step in reversed(self._steps):
            if not any(place in by_place for place in step.results):
                continue
            incoming = [by_place.pop(p) if p in by_place else self._zeros(p) for p in step.results]
            for place, g in zip(step.arguments, step.pull(*incoming), strict=True):
                if place is not None:
                    _gather(by_place, place, g)
        return by_place

    def _zeros(self, place: int) -> np.ndarray:
        return np.zeros(self._shapes[place], np.float32)


def _gather(by_place: dict[int, Any], place: int, more: Any) -> None:
    """Add to a cotangent."""
    by_place[place] = by_place[place] + more if place in by_place else more


class Recorded(NDArrayOperatorsMixin):
    """An array on a tape, as functions of `network` see it.

    Kernels of arrays take it, as do operators and NumPy's ufuncs, ``sum``, ``mean``, ``reshape``
    and basic indices.
    """

    __slots__ = ("place", "tape", "value")
    __array_priority__ = 2000.0

    def __init__(self, tape: Tape, place: int, value: Any) -> None:
        self.tape, self.place, self.value = tape, place, value

    @property
    def shape(self) -> Shape:
        """The lengths of the axes."""
        return tuple(self.value.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"Recorded(shape={self.shape})"

    def sum(self, axis: Any = None, keepdims: bool = False) -> Recorded:
        """The sum over an axis, over several, or over all."""
        total = self.value.sum(axis=axis, keepdims=keepdims)
        axes = range(self.ndim) if axis is None else np.atleast_1d(axis) % max(self.ndim, 1)
        unreduced, shape = [1 if k in axes else n for k, n in enumerate(self.shape)], self.shape
        return self._result(total, lambda g: np.broadcast_to(g.reshape(unreduced), shape))

    def mean(self, axis: Any = None, keepdims: bool = False) -> Recorded:
        """The mean over an axis, over several, or over all."""
        total = self.sum(axis, keepdims)
        return total * (total.size / self.size)

    def reshape(self, *shape: Any) -> Recorded:
        """These elements in another shape."""
        own = self.shape
        return self._result(self.value.reshape(*shape), lambda g: g.reshape(own))

    def __getitem__(self, key: Any) -> Recorded:
        own = self.shape
        return self._result(self.value[key], lambda g: _placed(g, key, own))

    def __bool__(self) -> bool:
        raise TraceError(
            "a branch cannot depend on what a network computes: use np.where in sg.rowwise"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TraceError(
            "an array within a network goes to kernels, operators and NumPy's ufuncs: for other "
            "functions of its elements and rows make a kernel, by sg.rowwise"
        )

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Calls NumPy's functions on recorded arrays: few are known."""
        if func not in _FUNCTIONS or not isinstance(args[0], Recorded):
            raise TraceError(
                f"np.{func.__name__} is not defined within a network: make a kernel, by sg.rowwise"
            )
        return _FUNCTIONS[func](*args, **kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Calls operators and NumPy's ufuncs: a kernel of each element."""
        if method != "__call__" or options or ufunc.nout > 1 or ufunc.signature:
            raise TraceError(f"np.{ufunc.__name__}.{method} is not defined within a network")
        arrays = [a for a in inputs if np.ndim(a)]
        shape = np.broadcast_shapes(*(tuple(a.shape) for a in map(value_of, arrays)))
        return self._elementwise(ufunc, inputs, shape)

    def _elementwise(self, ufunc: np.ufunc, inputs: Sequence[Any], shape: Shape) -> Recorded:
        rows = shape or (1,)
        wanted = [a if _is_number(a) else self._broadcast(a, rows) for a in inputs]
        kernel = self.tape.elementwise(ufunc, wanted)
        result = self.tape.call(kernel, [a for a in wanted if not _is_number(a)])
        return result if shape else result.reshape(())

    def _broadcast(self, array: Any, shape: Shape) -> Any:
        """The array in a larger shape."""
        own = tuple(array.shape)
        if own == shape:
            return array
        pull = lambda g: [_summed(g, own)]  # noqa: E731
        return self.tape.add([array], np.broadcast_to(value_of(array), shape), pull)

    def _result(self, value: Any, pull: Callable[[Any], Any]) -> Recorded:
        return self.tape.add([self], value, lambda g: [pull(g)])


def _summed(x: Any, shape: Shape) -> Any:
    """The sum over what was broadcast from a shape."""
    more = x.ndim - len(shape)
    axes = tuple(k for k, n in enumerate(x.shape) if k < more or shape[k - more] == 1 != n)
    return (x.sum(axis=axes) if axes else x).reshape(shape)


def _placed(g: Any, key: Any, shape: Shape) -> Any:
    """Zeros, with what an index has taken in its place."""
    if isinstance(g, ResidentArray):
        return g.placed(key, shape)
    scattered = np.zeros(shape, g.dtype)
    np.add.at(scattered, key, g)
    return scattered


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)


def value_of(array: Any) -> Any:
    """The array itself, without the tape."""
    return array.value if isinstance(array, Recorded) else array


def tape_of(arrays: Sequence[Any]) -> Tape | None:
    """The tape of the arrays, if one of them is on any."""
    return next((a.tape for a in arrays if isinstance(a, Recorded)), None)


_FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.sum: Recorded.sum,
    np.mean: Recorded.mean,
    np.reshape: Recorded.reshape,
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a: a.size,
}
"""NumPy's functions that are known."""
