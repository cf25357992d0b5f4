"""Scans that NumPy's names ask for, of arrays on a device along any axis."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from symgrad.kernel.resident import ResidentArray
from symgrad.tensor.kernel import TensorKernel
from symgrad.tensor.scans import associative_scan
from symgrad.values.dtypes import name_of


@functools.cache
def _kernel(ufunc: np.ufunc, axis: int, device: int, dtype: Any) -> TensorKernel:
    return associative_scan(ufunc, axis=axis, device=device, dtype=dtype)


def accumulated(ufunc: np.ufunc, x: ResidentArray, axis: int) -> ResidentArray:
    """The array that ``ufunc.accumulate`` gives along an axis, counted from the first."""
    rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    shape = (rows, x.shape[axis], columns) if columns > 1 else (rows, x.shape[axis])
    kernel = _kernel(ufunc, -2 if columns > 1 else -1, x.device.index, name_of(x.dtype))
    return kernel.run(x.reshape(shape)).reshape(x.shape)
