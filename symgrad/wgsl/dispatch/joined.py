"""Points of kernels over rows, put together on a GPU: parameters, columns, and entries of tables.

So rows that stay there are not copied again, and those that do not go up as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.kernel.host.memory import in_pieces
from symgrad.kernel.host.threads import converted
from symgrad.kernel.skeletons.map import Pattern
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.stored import FLOAT
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.printing.source import Style

POINTS_BYTES: Final = 1 << 26
"""Memory for points that are put together: of more rows there are some at a time."""

ROWS_ALIGNED: Final = 64
"""Rows that are put together are whole multiples of these, so that bindings may start there."""

WORD_TYPE: Final = np.dtype(np.uint32)


class Rows:
    """Rows on a GPU, of which a kernel computes something at each. Any number of threads may.

    Args:
        gpu: where they go.
        pattern: what a point consists of.
        numbers: (N, columns), which are rounded to the kernel's floats, or are there already.
        indices: (N, indices), whole numbers of 32 bits that are not negative.
    """

    def __init__(
        self,
        gpu: Gpu,
        pattern: Pattern,
        numbers: np.ndarray | DeviceArray,
        indices: np.ndarray,
    ) -> None:
        self.gpu, self.pattern, self._style = gpu, pattern, Style(dtype=pattern.dtype)
        self._floats = self._style.floats.dtype
        self._launches: Once[tuple[int, int], Launched] = Once(4)
        on_device = isinstance(numbers, DeviceArray) and numbers.size
        some = numbers if on_device else _some(np.asarray(numbers))
        on_gpu = isinstance(some, DeviceArray)
        self._numbers = some if on_gpu else DeviceArray.from_numpy(gpu, some, self._floats)
        words = converted(_some(indices), WORD_TYPE)
        self._indices = DeviceArray.from_numpy(gpu, words.view(FLOAT))

    def empty(self, shape: tuple[int, ...]) -> DeviceArray:
        """An array beside them with anything in it, for results."""
        return DeviceArray.empty(self.gpu, shape, self._floats)

    def compute(
        self, launched: Launched, parameters: np.ndarray, results: Sequence[Any], first: int
    ) -> None:
        """Fill results (count, k), here or there, of as many rows from ``first`` on.

        ``first`` is a multiple of 64.

        ``parameters`` are those of every point, and then all that entries are taken from.
        """
        count, gpu = len(results[0]), self.gpu
        gpu.check()
        sent = DeviceArray.from_numpy(gpu, _some(parameters), self._floats)
        width = self._floats.itemsize * self.pattern.width
        step = max(POINTS_BYTES // width // ROWS_ALIGNED, 1) * ROWS_ALIGNED
        with gpu.guard, gpu.transfers.download() as down:

            def run(start: int, end: int) -> None:
                points = self._points(sent, first + start, end - start)
                if isinstance(results[0], DeviceArray):
                    launched.bind([points], [result[start:end] for result in results])()
                    return
                pairs = zip(launched.run(points), results, strict=True)
                down.get(*(array.into(result[start:end]) for array, result in pairs))

            in_pieces(count, step, ROWS_ALIGNED, run)

    def _points(self, parameters: DeviceArray, start: int, count: int) -> DeviceArray:
        """The points (count, width) of some rows."""
        points = DeviceArray.empty(self.gpu, (count, self.pattern.width), self._floats)
        sources = {
            "parameters": (parameters, 0, len(parameters)),
            "numbers": (self._numbers, start, count),
            "indices": (self._indices, start, count),
        }
        ranges = [a.rows(*some) for a, *some in map(sources.__getitem__, self.pattern.sources)]
        launched = self._launches.get(
            (count, len(parameters)), partial(self._launched, count, len(parameters))
        )
        launched.submit(1, [*ranges, points.rows(0, count)])
        return points

    def _launched(self, count: int, parameters: int) -> Launched:
        """The launch that puts so many points together."""
        return Launched(self.gpu, self.pattern.launch(count, parameters), self._style)


def _some(array: np.ndarray) -> np.ndarray:
    """The array, or another that is there, for one without elements cannot be bound."""
    return array if array.size else np.zeros(1, array.dtype)
