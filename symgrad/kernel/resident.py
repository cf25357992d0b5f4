"""Arrays in the memory of a device, as rooms know them that are not of its back end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from symgrad.errors import InputTypeError


class ResidentArray:
    """An array that lives in the memory of a device: its shape, its dtype, and whose memory it is.

    Kernels of that device take it as it is. What a back end's own arrays are, is a subclass's.
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
        """What the elements are."""
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

    def numpy(self) -> np.ndarray:
        """The elements on the host, in a new array."""
        raise NotImplementedError
