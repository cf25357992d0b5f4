"""Arrays in the memory of a GPU: what they are, how they go to the host, and strided views."""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, Self, cast

import numpy as np

from symgrad import lazy
from symgrad.errors import DeviceError, InputError, InputTypeError
from symgrad.kernel.host.memory import POOL, ResidentArray
from symgrad.values.arrays import PAIRS, host_dtype, is_float, name_of
from symgrad.wgsl.device.adapters import LIMITS
from symgrad.wgsl.device.gpu import FLOAT
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.memory.buffers import Storage
from symgrad.wgsl.memory.queue import Copy
from symgrad.wgsl.memory.transfer import Segment, Upload

# Arrays as kernels see them: where each element stands in a buffer, and how such views are cut.

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


DOUBLE: Final = np.dtype(np.float64)

DTYPES: Final = (FLOAT, PAIRS, DOUBLE, np.dtype(np.int32), np.dtype(np.uint32))
"""Dtypes of elements; kernels compute in floats, the others are for indices."""


class StoredArray(ResidentArray):
    """Elements in a buffer, in C order, with a shape. They are not changed, so views share them."""

    __slots__ = ("__weakref__", "_first", "_storage")

    gpu: Gpu

    def __init__(
        self,
        gpu: Gpu,
        shape: tuple[int, ...],
        storage: Storage | None,
        dtype: np.dtype[Any] = FLOAT,
        first: int = 0,
    ) -> None:
        """Wraps a buffer (None if there are no elements) that has them from byte ``first`` on."""
        super().__init__(gpu, shape, dtype)
        self._storage = storage
        self._first = first

    @classmethod
    def from_numpy(cls, gpu: Gpu, array: np.ndarray, dtype: np.dtype[Any] = FLOAT) -> Self:
        """A copy of ``array`` on the GPU, which may be changed when this returns."""
        gpu.check()
        with gpu.guard, gpu.transfers.upload() as up:
            return cls.sent(gpu, array, up, dtype)

    @classmethod
    def sent(cls, gpu: Gpu, array: np.ndarray, up: Upload, dtype: np.dtype[Any] = FLOAT) -> Self:
        """A copy that is on its way, for what is submitted after `Upload.flush`."""
        result = cls.empty(gpu, array.shape, dtype)
        if result._storage is not None:
            up.put(array, result._storage.buffer, dtype=dtype)
        return result

    @classmethod
    def empty(cls, gpu: Gpu, shape: tuple[int, ...], dtype: np.dtype[Any] = FLOAT) -> Self:
        """An array with anything in it, for a kernel to fill."""
        gpu.check()
        if dtype == DOUBLE and not gpu.info.float64:
            raise DeviceError(
                f"{gpu.info} has no float64: use float32x2 or float32 there, or NumPy's arrays"
            )
        nbytes = dtype.itemsize * math.prod(shape)
        return cls(gpu, shape, gpu.storage(nbytes) if nbytes else None, dtype)

    def beside(self, values: np.ndarray) -> Self:
        """A copy of an array of the host's in the same memory, in this array's dtype."""
        return self.from_numpy(self.gpu, values, self.dtype)

    def empty_beside(self, shape: tuple[int, ...]) -> Self:
        """An array in the same memory with anything in it, for a kernel to fill."""
        return self.empty(self.gpu, shape, self.dtype)

    def joined(self, others: Sequence[Any]) -> Self:
        """The elements of this array and of others of its dtype, one behind the other."""
        arrays = [a for a in (self, *others) if a.size]
        result = self.empty_beside((sum(a.size for a in arrays),))
        copies, start = list[Copy](), 0
        for a in arrays:
            buffer, first = a.place
            copies.append(Copy(buffer, first, result.place[0], start, a.nbytes))
            start += a.nbytes
        with self.gpu.guard:
            self.gpu.submit_unwaited(copies)
        return result

    # what it is -----------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self._dtype.itemsize * self.size

    def rows(self, start: int, count: int) -> Range:
        """Where some rows, elements of the first axis, stand in a buffer, to be bound."""
        assert self._storage, "an array without elements has no buffer"
        if not is_float(self.dtype):
            raise InputTypeError(f"kernels compute with floats, and this array is {self.dtype}")
        width = self.dtype.itemsize * math.prod(self.shape[1:])
        return self._storage.buffer, self._first + start * width, count * width

    @property
    def place(self) -> tuple[Any, int]:
        """The buffer of the elements, and the byte of the first; None where there are none."""
        return self._storage and self._storage.buffer, self._first

    @property
    def is_shared(self) -> bool:
        """Whether other arrays have elements in the same memory."""
        return self._storage is not None and sys.getrefcount(self._storage) > 2

    def shares_memory(self, other: ResidentArray) -> bool:
        """Whether another array has elements in the same buffer."""
        mine = self._storage
        return mine is not None and isinstance(other, StoredArray) and mine is other._storage

    @property
    def view(self) -> View:
        """The elements as small kernels see them."""
        assert self._storage, "an array without elements has no buffer"
        return self._view

    @property
    def _view(self) -> View:
        buffer = self._storage and self._storage.buffer
        floats = name_of(self._dtype) if is_float(self._dtype) else "float32"
        first = self._first // self._dtype.itemsize
        return View(buffer, first, self.shape, c_strides(self.shape), floats)

    def __repr__(self) -> str:
        name, device = type(self).__name__, str(self.device)
        return f"{name}(shape={self.shape}, dtype={name_of(self.dtype)}, device={device!r})"

    def __str__(self) -> str:
        return str(self.numpy())

    def __reduce__(self) -> NoReturn:
        raise InputTypeError("an array on a GPU cannot be pickled: use its .numpy()")

    # to the host ----------------------------------------------------------------------------------

    def numpy(self) -> np.ndarray:
        """A copy on the host, fresh and writable; waits until the array is computed.

        Pairs of float32 are float64 there.
        """
        return self.astype(self.dtype)

    def astype(self, dtype: Any) -> np.ndarray:
        """A copy on the host with elements of this dtype; waits until the array is computed."""
        result = POOL.empty(self.shape, host_dtype(dtype), aligned=False)
        if self._storage is not None:
            self.gpu.download(self._storage, result, self._first, self.dtype)
        return result

    def into(self, target: np.ndarray) -> Segment:
        """The segment for `Download.get` of an array of this shape, with elements of its dtype."""
        buffer = self._storage and self._storage.buffer
        return Segment(target, buffer, self._first, self.dtype)

    def item(self) -> float | int:
        """The only element, as a number."""
        if self.size != 1:
            raise InputError(f"an array of shape {self.shape} is not a single number")
        return self.numpy().item()

    def tolist(self) -> Any:
        """The elements as numbers, in lists for every axis."""
        return self.numpy().tolist()

    def wait(self) -> Self:
        """The array itself, once it is computed, with all that was queued before it."""
        self.gpu.check()
        with self.gpu.guard:
            self.gpu.wait()
        return self

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __index__(self) -> int:
        return operator.index(cast(int, self.item()))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise InputError("an array on a GPU cannot be a NumPy array without a copy")
        return self.astype(dtype or self.dtype)

    # shapes ---------------------------------------------------------------------------------------

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """These elements in another shape, of which one length may be -1; nothing is copied."""
        requested = shape[0] if len(shape) == 1 and hasattr(shape[0], "__len__") else shape
        lengths = wanted = tuple(map(operator.index, cast(Sequence[int], requested)))
        if -1 in wanted:
            fixed_size = math.prod(length for length in wanted if length != -1)
            rest = self.size // fixed_size if fixed_size else 0
            lengths = tuple(rest if length == -1 else length for length in wanted)
        if math.prod(lengths) != self.size or wanted.count(-1) > 1 or min(lengths, default=0) < 0:
            raise InputError(f"an array of shape {self.shape} cannot be given the shape {wanted}")
        return type(self)(self.gpu, lengths, self._storage, self.dtype, self._first)

    def broadcast(self, shape: int | Sequence[int]) -> Self:
        """The array in a larger shape, as `numpy.broadcast_to` has it; a copy unless it is its."""
        wanted = tuple(np.atleast_1d(np.array(shape, int)).tolist())
        more = len(wanted) - self.ndim
        if more < 0 or any(n not in (1, m) for n, m in zip(self.shape, wanted[more:], strict=True)):
            raise InputError(f"an array of shape {self.shape} does not broadcast to {wanted}")
        return self if wanted == self.shape else self._seen(self._view.broadcast(wanted))

    def ravel(self) -> Self:
        """These elements with one axis; nothing is copied."""
        return self.reshape(-1)

    def copy(self) -> Self:
        """These elements in memory of their own."""
        return self._gathered(self.view) if self._storage else self

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Self:
        return self.copy()

    @property
    def T(self) -> Self:
        """The axes in reverse order."""
        return self.transpose()

    def transpose(self, *axes: int | Sequence[int] | None) -> Self:
        """The axes in another order, by default the reverse."""
        listed = np.array(axes if axes not in ((), (None,)) else range(self.ndim)[::-1], int)
        order = checked_axes(listed.ravel().tolist(), self.ndim)
        if sorted(order) != list(range(self.ndim)):
            raise InputError(
                f"axes {axes} are not a permutation of the {self.ndim} axes of this array"
            )
        return self._seen(self._view.transposed(order))

    def __getitem__(self, key: Any) -> Self:
        return self._seen(self._view.indexed(key))

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise InputTypeError(
            "an array on a device cannot be changed: make a new one, by arithmetic, by "
            "np.concatenate of slices, or by the out= of a kernel"
        )

    def __iter__(self) -> Iterator[Self]:
        return (self[k] for k in range(len(self)))

    def _seen(self, view: View) -> Self:
        """The elements of a view of this array: in place where kernels can bind them there."""
        if not math.prod(view.shape):
            return type(self)(self.gpu, view.shape, None, self.dtype)
        first = view.itemsize * view.first
        if view.is_contiguous and first % ALIGNMENT == 0:
            return type(self)(self.gpu, view.shape, self._storage, self.dtype, first)
        return self._gathered(view)

    def _gathered(self, view: View) -> Self:
        """A contiguous copy of a view of this array."""
        result = self.empty(self.gpu, view.shape, self.dtype)
        if view.is_contiguous:
            start = view.itemsize * view.first
            copy = Copy(view.buffer, start, result.view.buffer, 0, result.nbytes)
            with self.gpu.guard:
                self.gpu.submit_unwaited([copy])
        else:
            lazy.arithmetic.of(self.gpu).copy(view, result.view)
        return result
