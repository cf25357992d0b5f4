"""Arrays as kernels see them: where each element stands in a buffer, and how such views are cut."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from symgrad.errors import InputError, InputTypeError
from symgrad.wgsl.device.adapters import LIMITS

ALIGNMENT = LIMITS["min-storage-buffer-offset-alignment"]
"""Bytes: where what is bound of a buffer may start."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class View:
    """Elements of a buffer: element ``index`` stands at ``first + sum(index * strides)``."""

    buffer: Any
    first: int
    shape: Shape
    strides: Shape
    dtype: str = "float32"
    """The floats that elements are, or are as wide as."""

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return 4 if self.dtype == "float32" else 8

    @property
    def places(self) -> tuple[int, Shape, Shape]:
        """Where the elements stand, in whatever buffer."""
        return self.first, self.shape, self.strides

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements stand one after another, in C order."""
        return all(
            length == 1 or stride == wanted
            for length, stride, wanted in zip(
                self.shape, self.strides, c_strides(self.shape), strict=True
            )
        )

    @property
    def window(self) -> tuple[int, int]:
        """The first element that is seen, and the one after the last."""
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.first + sum(r for r in reach if r < 0)
        return low, self.first + sum(r for r in reach if r > 0) + 1

    def in_words(self) -> View:
        """The words of 32 bits of the elements, with an axis of its own where they are several."""
        if self.itemsize == 4:
            return self
        first, strides = 2 * self.first, tuple([2 * s for s in self.strides])
        return View(self.buffer, first, (*self.shape, 2), (*strides, 1))

    def transposed(self, axes: Sequence[int]) -> View:
        """The axes in this order."""
        return replace(
            self,
            shape=tuple(self.shape[a] for a in axes),
            strides=tuple(self.strides[a] for a in axes),
        )

    def broadcast(self, shape: Shape) -> View:
        """The view in a larger shape, to which NumPy would broadcast it."""
        if shape == self.shape:
            return self
        more = len(shape) - len(self.shape)
        strides = [
            0 if n == 1 != wanted else s
            for n, s, wanted in zip(self.shape, self.strides, shape[more:], strict=True)
        ]
        return replace(self, shape=shape, strides=(0,) * more + tuple(strides))

    def part(self, axis: int, start: int, stop: int) -> View:
        """The elements between two indices of an axis."""
        shape = (*self.shape[:axis], stop - start, *self.shape[axis + 1 :])
        return replace(self, first=self.first + start * self.strides[axis], shape=shape)

    def indexed(self, key: Any) -> View:
        """Takes a part by NumPy's basic indexing: integers, slices, ``...`` and None.

        Raises:
            InputTypeError: for any other index. InputError: for an index out of bounds.
        """
        keys = _expanded(key if isinstance(key, tuple) else (key,), len(self.shape))
        first, axis = self.first, 0
        shape: list[int] = []
        strides: list[int] = []
        for k in keys:
            if k is None:
                shape.append(1)
                strides.append(0)
                continue
            length, stride = self.shape[axis], self.strides[axis]
            if isinstance(k, slice):
                start, _, step = k.indices(length)
                count = len(range(*k.indices(length)))
                first += start * stride if count else 0
                shape.append(count)
                strides.append(step * stride)
            else:
                first += _checked(k, length, axis) * stride
            axis += 1
        return replace(self, first=first, shape=tuple(shape), strides=tuple(strides))


@functools.lru_cache(1024)
def c_strides(shape: Shape) -> Shape:
    """The strides of a contiguous array, in elements."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def _expanded(keys: tuple[Any, ...], ndim: int) -> list[Any]:
    """An index for every axis."""
    for k in keys:
        if not (k is None or k is Ellipsis or isinstance(k, slice) or _is_integer(k)):
            raise InputTypeError(
                f"{k!r} is not an index for an array on a device, which takes "
                "integers, slices, ... "
                "and None: index x.numpy() instead"
            )
    indexed = sum(k is not None and k is not Ellipsis for k in keys)
    if indexed > ndim or sum(k is Ellipsis for k in keys) > 1:
        raise InputError(f"{indexed} indices for an array of {ndim} axes")
    rest = [slice(None)] * (ndim - indexed)
    at = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
    return [*keys[:at], *rest, *keys[at + 1 :]]


def _is_integer(k: Any) -> bool:
    try:
        operator.index(k)
    except TypeError:
        return False
    return not isinstance(k, bool)


def _checked(k: Any, length: int, axis: int) -> int:
    index = operator.index(k)
    if not -length <= index < length:
        raise InputError(f"index {index} is out of bounds for axis {axis} of length {length}")
    return index % length


def checked_axes(axes: Iterable[int], ndim: int) -> list[int]:
    """Axes of an array, counted from the first.

    Raises:
        InputError: it has no such axis.
    """
    counted: list[int] = []
    for a in axes:
        if not -ndim <= a < ndim:
            raise InputError(f"axis {a} is out of bounds for an array of {ndim} axes")
        counted.append(a % ndim)
    return counted


def collapsed(views: Sequence[View]) -> list[View]:
    """Views of one shape with as few axes as they can have in common, but at least one."""
    shape = views[0].shape
    retained: list[int] = []
    lengths: list[int] = []
    for axis in (a for a, n in enumerate(shape) if n != 1):
        inner = shape[axis]
        if retained and all(v.strides[retained[-1]] == v.strides[axis] * inner for v in views):
            retained[-1], lengths[-1] = axis, lengths[-1] * inner
        else:
            retained.append(axis)
            lengths.append(inner)
    if not retained:
        return [replace(v, shape=(1,), strides=(1,)) for v in views]
    return [
        replace(v, shape=tuple(lengths), strides=tuple(v.strides[a] for a in retained))
        for v in views
    ]


def pieces(views: Sequence[View], most: int) -> Iterator[list[View]]:
    """Views of one shape, cut alike until no window has more than ``most`` elements."""
    if all(high - low <= most for low, high in (v.window for v in views)):
        yield list(views)
        return
    axis = next(a for a, n in enumerate(views[0].shape) if n > 1)
    length = views[0].shape[axis]
    for start, stop in ((0, length // 2), (length // 2, length)):
        yield from pieces([v.part(axis, start, stop) for v in views], most)


def bound(view: View) -> tuple[View, tuple[int, int]]:
    """The view from the start of what is bound of its buffer, and that: first byte, how many."""
    (low, high), each = view.window, view.itemsize
    start = low * each // ALIGNMENT * ALIGNMENT
    return replace(view, first=view.first - start // each), (start, high * each - start)
