"""Arrays in the memory of a device, as rooms know them that are not of its back end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from symgrad.errors import InputTypeError
from symgrad.values.arrays import name_of


class ResidentArray:
    """An array that lives in the memory of a device: its shape, its dtype, and whose memory it is.

    Kernels of that device take it as it is. A back end's own arrays are a subclass, which has what
    is not implemented here.
    """

    __slots__ = ("_dtype", "_shape", "gpu")

    def __init__(self, gpu: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.gpu, self._shape, self._dtype = gpu, shape, dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes; `reshape` gives others."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    def __len__(self) -> int:
        if not self._shape:
            raise InputTypeError("an array without axes has no length")
        return self._shape[0]

    @property
    def device(self) -> Any:
        """The device that holds the array."""
        return self.gpu.info

    def require(self, dtype: np.dtype[Any]) -> None:
        """Refuse elements of another dtype than a kernel takes."""
        if self._dtype != dtype:
            mine, needed = name_of(self._dtype), name_of(dtype)
            raise InputTypeError(f"kernels compute with {needed}, and this array is {mine}")

    @property
    def is_shared(self) -> bool:
        """Whether other arrays have elements in the same memory."""
        raise NotImplementedError

    def shares_memory(self, other: ResidentArray) -> bool:
        """Whether another array has elements in the same buffer."""
        raise NotImplementedError

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """The elements in an array of another shape, a view."""
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Self:
        raise NotImplementedError

    def beside(self, values: np.ndarray) -> Self:
        """A copy of an array of the host's in the same memory, in this array's dtype."""
        raise NotImplementedError

    def empty_beside(self, shape: tuple[int, ...]) -> Self:
        """An array in the same memory with anything in it, for a kernel to fill."""
        raise NotImplementedError

    def joined(self, others: Sequence[Any]) -> Self:
        """Rows of numbers, one behind the other: this one, and others of its dtype."""
        raise NotImplementedError

    def numpy(self) -> np.ndarray:
        """The elements on the host, in a new array."""
        raise NotImplementedError


class ResidentRows:
    """Rows of an array that loops go through, each of which stands by itself."""

    def joined(self, count: int, axis: int) -> ResidentArray:
        """The first rows as an array, one behind the other along an axis."""
        raise NotImplementedError
