"""What JAX reads and writes at indices that may be traced: slices, gathers and scatters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from symgrad.bridges.jax import jax
from symgrad.errors import UnsupportedError
from symgrad.expr.tracers import functions as sg
from symgrad.expr.tracers.array import array

Values = list[Any]


def dynamic_slice(equation: Any, x: Any, *starts: Any) -> Values:
    """Elements from starts on, which are moved so that all of them are there."""
    sizes = equation.params["slice_sizes"]
    first = [_start(s, n, k) for s, n, k in zip(starts, np.shape(x), sizes, strict=True)]
    return [_taken(x, sizes, lambda place: _sum(first, place))]


def dynamic_update_slice(equation: Any, x: Any, update: Any, *starts: Any) -> Values:
    """An array with others from starts on, which are moved likewise."""
    sizes = np.shape(update)
    first = [_start(s, n, k) for s, n, k in zip(starts, np.shape(x), sizes, strict=True)]
    for place in np.ndindex(*sizes):
        x = array(x).at[_sum(first, place)].set(np.asarray(update, object)[place])
    return [x]


def gather(equation: Any, x: Any, indices: Any) -> Values:
    """Elements of windows; what is filled in where a window is not within x, if that is asked."""
    params = equation.params
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    if numbers.operand_batching_dims:
        raise UnsupportedError("from_jax: gather with batching axes of vmap at traced indices")
    window_axes = [axis for axis in range(len(sizes)) if axis not in numbers.collapsed_slice_dims]
    index, lengths = np.asarray(indices, object), np.shape(x)
    filled = math.nan if params["fill_value"] is None else params["fill_value"]

    def at(place: tuple[int, ...]) -> Any:
        batch = tuple(p for i, p in enumerate(place) if i not in numbers.offset_dims)
        offsets = dict(zip(window_axes, (place[i] for i in numbers.offset_dims), strict=True))
        starts = {axis: index[(*batch, k)] for k, axis in enumerate(numbers.start_index_map)}
        start = {axis: _start(s, lengths[axis], sizes[axis]) for axis, s in starts.items()}
        where = tuple(start.get(axis, 0) + offsets.get(axis, 0) for axis in range(len(sizes)))
        element = array(x)[where]
        return (
            sg.where(_within(starts, lengths, sizes), element, filled)
            if _drops(params)
            else element
        )

    shape = equation.outvars[0].aval.shape
    return [_array([at(place) for place in np.ndindex(*shape)], shape)]


WRITTEN: Final[Mapping[str, str]] = {
    "scatter": "set", "scatter-add": "add", "scatter-mul": "multiply", "scatter-max": "max",
    "scatter-min": "min",
}  # fmt: skip
"""How a scatter writes, by the names of ``x.at[...]``."""

UNWRITTEN: Final[Mapping[str, float]] = {
    "add": 0.0, "multiply": 1.0, "max": -math.inf, "min": math.inf,
}  # fmt: skip
"""What leaves an element as it is."""


def scatter(equation: Any, x: Any, indices: Any, updates: Any) -> Values:
    """An array with windows written to; those that are not within it are dropped, or moved."""
    params, how = equation.params, WRITTEN[equation.primitive.name]
    numbers = params["dimension_numbers"]
    if numbers.operand_batching_dims:
        raise UnsupportedError("from_jax: scatter with batching axes (of vmap)")
    lengths, result = np.shape(x), array(x)
    window_axes = [axis for axis in range(len(lengths)) if axis not in numbers.inserted_window_dims]
    windows = zip(
        window_axes, (np.shape(updates)[i] for i in numbers.update_window_dims), strict=True
    )
    sizes = [1] * len(lengths)
    for axis, size in windows:
        sizes[axis] = size
    index, values = np.asarray(indices, object), np.asarray(updates, object)
    for place in np.ndindex(*np.shape(updates)):
        batch = tuple(p for i, p in enumerate(place) if i not in numbers.update_window_dims)
        offsets = dict(
            zip(window_axes, (place[i] for i in numbers.update_window_dims), strict=True)
        )
        axes = enumerate(numbers.scatter_dims_to_operand_dims)
        starts = {axis: index[(*batch, k)] for k, axis in axes}
        start = {axis: _start(s, lengths[axis], sizes[axis]) for axis, s in starts.items()}
        where = tuple(start.get(a, 0) + offsets.get(a, 0) for a in range(len(lengths)))
        value = values[place]
        if _drops(params):
            unwritten = UNWRITTEN[how] if how in UNWRITTEN else result[where]
            value = sg.where(_within(starts, lengths, sizes), value, unwritten)
        result = getattr(result.at[where], how)(value)
    return [result]


def is_traced(value: Any) -> bool:
    """Whether this is an expression, or an array of some."""
    if isinstance(value, np.ndarray):
        return value.dtype == object
    return not isinstance(value, (np.generic, int, float, bool, jax().Array))


def _drops(params: Mapping[str, Any]) -> bool:
    return params["mode"] == jax().lax.GatherScatterMode.FILL_OR_DROP


def _within(starts: Mapping[int, Any], lengths: Sequence[int], sizes: Sequence[int]) -> Any:
    """Whether windows that begin there are within the array."""
    within: Any = True
    for axis, start in starts.items():
        inside = sg.logical_and(start >= 0, start <= lengths[axis] - sizes[axis])
        within = sg.logical_and(within, inside)
    return within


def _start(start: Any, length: int, size: int) -> Any:
    """Where a slice begins: moved, as JAX does, so that it lies within the axis."""
    if not is_traced(start):
        return int(np.clip(start, 0, length - size))
    return 0 if length == size else sg.minimum(sg.maximum(start, 0), length - size)


def _sum(first: Sequence[Any], place: Sequence[int]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(first, place, strict=True))


def _taken(x: Any, shape: Sequence[int], at: Callable[[tuple[int, ...]], Any]) -> Any:
    """The elements of x at what ``at`` gives for each place of an array of a shape."""
    source = array(x)
    elements = [source[tuple(at(place))] for place in itertools.product(*map(range, shape))]
    return _array(elements, shape)


def _array(elements: Sequence[Any], shape: Sequence[int]) -> Any:
    return array(elements).reshape(tuple(shape)) if shape else elements[0]
