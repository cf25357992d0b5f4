"""Rows of arrays on a GPU that stand where each can be bound alone: those that loops go through."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from symgrad import lazy
from symgrad.kernel.host.memory import ResidentRows
from symgrad.values.arrays import is_float, name_of
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.stored import ALIGNMENT, View, c_strides
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.memory.buffers import Storage
from symgrad.wgsl.memory.queue import Copy


def pitch_of(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """The bytes from a row to the next one of its buffer, which can be bound as well."""
    return -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Rows(ResidentRows):
    """Arrays of one shape in some buffers, one after the other, ``pitch`` bytes apart in each.

    Row ``k`` is number ``k + shift`` of what stands in them. With a pitch of 0 a buffer has but one
    place, which rows of the same buffer share: they are all the same, or of different times.
    """

    gpu: Gpu
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    homes: tuple[DeviceArray | Storage, ...]
    pitch: int = 0
    shift: int = 0

    @classmethod
    def of(cls, array: DeviceArray, axis: int) -> Rows:
        """The rows of an array along an axis: in place where they can be bound, else copies."""
        shape = (*array.shape[:axis], *array.shape[axis + 1 :])
        nbytes = math.prod(shape) * array.dtype.itemsize
        if nbytes % ALIGNMENT == 0 and math.prod(array.shape[:axis]) == 1:
            return cls(array.gpu, shape, array.dtype, (array,), nbytes)
        pitch, count = pitch_of(shape, array.dtype), array.shape[axis]
        rows = cls(array.gpu, shape, array.dtype, (array.gpu.storage(count * pitch),), pitch)
        rows._copy(array, axis, into_rows=True)
        return rows

    @cached_property
    def places(self) -> list[tuple[Any, int]]:
        """The buffers, and the byte of the first place in each."""
        return [h.place if isinstance(h, DeviceArray) else (h.buffer, 0) for h in self.homes]

    @property
    def key(self) -> tuple[int, ...]:
        """The pitch, the shift and all places, which bind groups depend on."""
        places = (n for buffer, start in self.places for n in (id(buffer), start))
        return self.pitch, self.shift, *places

    @property
    def nbytes(self) -> int:
        """The bytes of a row."""
        return math.prod(self.shape) * self.dtype.itemsize

    def place(self, k: int) -> tuple[Any, int]:
        """The buffer of a row, and where its places begin there."""
        return self.places[(k + self.shift) % len(self.homes)]

    def offset(self, k: int) -> int:
        """Where a row stands behind that."""
        return (k + self.shift) // len(self.homes) * self.pitch

    def shifted(self, shift: int) -> Rows:
        """Rows of other numbers in these places."""
        return replace(self, shift=shift)

    def filled(self, k: int, array: DeviceArray) -> Copy:
        """The copy that makes an array a row."""
        (source, start), (target, first) = array.place, self.place(k)
        return Copy(source, start, target, first + self.offset(k), self.nbytes)

    def row(self, k: int) -> DeviceArray:
        """A row as an array, which has no more memory than it needs."""
        home = self.homes[(k + self.shift) % len(self.homes)]
        if not self.pitch:
            if isinstance(home, DeviceArray):
                return home
            return DeviceArray(self.gpu, self.shape, home, self.dtype)
        result = DeviceArray.empty(self.gpu, self.shape, self.dtype)
        (source, first), (target, start) = self.place(k), result.place
        copy = Copy(source, first + self.offset(k), target, start, self.nbytes)
        self.gpu.submit_unwaited([copy])
        return result

    def joined(self, count: int, axis: int) -> DeviceArray:
        """The first rows as an array, along an axis: see `ResidentRows`."""
        shape = (*self.shape[:axis], count, *self.shape[axis:])
        home = self.homes[0]
        dense = self.pitch == self.nbytes and math.prod(shape[:axis]) == 1
        if dense and len(self.homes) == 1 and not self.shift:
            if isinstance(home, Storage):
                return DeviceArray(self.gpu, shape, home, self.dtype)
            if home.shape == shape:
                return home
        result = DeviceArray.empty(self.gpu, shape, self.dtype)
        self._copy(result, axis, into_rows=False)
        return result

    def _copy(self, array: DeviceArray, axis: int, into_rows: bool) -> None:
        """Copy the rows of an array here, or those that are here to the array."""
        each, count, period = self.dtype.itemsize, array.shape[axis], len(self.homes)
        view = array.view
        along, *strides = (view.strides[axis], *view.strides[:axis], *view.strides[axis + 1 :])
        floats = name_of(self.dtype) if is_float(self.dtype) else "float32"
        for n in range(min(period, count)):
            buffer, start = self.place(n)
            first = (start + self.offset(n)) // each
            shape = (-(-(count - n) // period), *self.shape)
            mine = View(buffer, first, shape, (self.pitch // each, *c_strides(self.shape)), floats)
            some = replace(
                view, first=view.first + n * along, shape=shape, strides=(period * along, *strides)
            )
            pair = (some, mine) if into_rows else (mine, some)
            lazy.arithmetic.of(self.gpu).copy(*pair)
