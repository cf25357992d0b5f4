"""Arrays that live on a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.kernel.memory import POOL
from symgrad.wgsl.device import Gpu, GpuInfo, Range
from symgrad.wgsl.memory import Storage


class DeviceArray:
    """A float32 array that lives on a GPU, to be passed to kernels there and fetched when wanted.

    It cannot be changed, so views may share its memory, which is freed with the last of them.
    """

    __slots__ = ("__weakref__", "_storage", "gpu", "shape")

    dtype = np.dtype(np.float32)

    def __init__(self, gpu: Gpu, shape: tuple[int, ...], storage: Storage | None) -> None:
        """Wraps a buffer (None if the array has no elements); users call ``sg.device_array``."""
        self.gpu = gpu
        self.shape = shape
        self._storage = storage

    @classmethod
    def from_numpy(cls, gpu: Gpu, array: np.ndarray) -> DeviceArray:
        """A copy of ``array`` on the GPU, as float32."""
        result = cls.empty(gpu, array.shape)
        if result._storage is not None:
            gpu.upload(result._storage, array, cls.dtype)
        return result

    @classmethod
    def empty(cls, gpu: Gpu, shape: tuple[int, ...]) -> DeviceArray:
        """An array with anything in it, for a kernel to fill."""
        gpu.check()
        nbytes = 4 * math.prod(shape)
        return cls(gpu, shape, gpu.storage(nbytes) if nbytes else None)

    def rows(self, start: int, count: int) -> Range:
        """Where some rows, elements of the first axis, stand in a buffer, to be bound."""
        assert self._storage, "an array without elements has no buffer"
        width = 4 * math.prod(self.shape[1:])
        return self._storage.buffer, start * width, count * width

    @property
    def device(self) -> GpuInfo:
        """The GPU that holds the array."""
        return self.gpu.info

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return 4 * self.size

    def numpy(self) -> np.ndarray:
        """A copy on the host, fresh and writable; waits until the array is computed."""
        result = POOL.empty(self.shape, self.dtype, aligned=False)
        if self._storage is not None:
            self.gpu.download(self._storage, result)
        return result

    def reshape(self, *shape: int | Sequence[int]) -> DeviceArray:
        """The same elements in another shape, of which one length may be -1; nothing is copied."""
        wanted = tuple(np.array(shape, int).ravel().tolist())
        known = math.prod(length for length in wanted if length != -1)
        rest = self.size // known if known else 0
        lengths = tuple(rest if length == -1 else length for length in wanted)
        if wanted.count(-1) > 1 or min(lengths, default=0) < 0 or math.prod(lengths) != self.size:
            raise InputError(f"an array of shape {self.shape} has no shape {wanted}")
        return DeviceArray(self.gpu, lengths, self._storage)

    def __len__(self) -> int:
        if not self.shape:
            raise InputTypeError("an array without axes has no length")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise InputError("an array on a GPU cannot be a NumPy array without a copy")
        return self.numpy().astype(dtype or np.float32, copy=False)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype=float32, device={str(self.device)!r})"

    def __reduce__(self) -> NoReturn:
        raise InputTypeError("an array on a GPU cannot be pickled or copied: use its .numpy()")
