"""A launch over a batch, whose points are shared out over devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.kernel.memory import POOL
from symgrad.multi_device.pool import DevicePool, Member
from symgrad.targets import Device

FLOAT: Final = np.dtype(np.float32)

LEAST_POINTS: Final = 2**15
"""Points that are worth a piece."""


class Launched:
    """A map that several devices have compiled, each for the points that it is given.

    Every point has the bits that the device gives it that computes it.
    """

    def __init__(
        self,
        compiled: Sequence[tuple[Device, Any]],
        outputs: Sequence[int],
        dtype: np.dtype[Any] = FLOAT,
    ) -> None:
        self.pool = DevicePool([Member(*pair) for pair in compiled], LEAST_POINTS)
        self._outputs, self._dtype = outputs, dtype
        self.seconds = sum(launched.seconds for _, launched in compiled)

    def run(self, points: np.ndarray) -> Sequence[np.ndarray]:
        """Results (B, k) of points (B, n), which are rounded; fresh, writable arrays."""
        results = [POOL.empty((len(points), k), self._dtype, False) for k in self._outputs]
        return self.pool.fill(len(points), results, partial(_compute, points))

    def bind(
        self, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]
    ) -> Callable[[], None]:
        """A call that computes these points (B, n) into these arrays (B, k), every time."""
        (points,) = inputs
        work = partial(_compute, points)
        return lambda: self._into(results, self.pool.fill(len(points), results, work))

    def run_filled(
        self, fill: Callable[[slice], np.ndarray], step: int, results: Sequence[np.ndarray]
    ) -> None:
        """Write to arrays (B, k) what is computed of points, of which ``fill`` makes ``step``."""

        def work(member: Member, part: slice, arrays: Sequence[np.ndarray]) -> None:
            def filled(some: slice) -> np.ndarray:
                return fill(slice(part.start + some.start, part.start + some.stop))

            member.tool.run_filled(filled, step, [array[part] for array in arrays])

        self._into(results, self.pool.fill(len(results[0]), results, work))

    def _into(self, results: Sequence[np.ndarray], arrays: Sequence[np.ndarray]) -> None:
        """Copy what was computed elsewhere than it should be."""
        if arrays is not results:
            for result, array in zip(results, arrays, strict=True):
                np.copyto(result, array)


def _compute(
    points: np.ndarray, member: Member, part: slice, results: Sequence[np.ndarray]
) -> None:
    """Some of the points by one device, in the dtype that all compute in."""
    some = np.ascontiguousarray(points[part], results[0].dtype if results else None)
    member.tool.bind([some], [result[part] for result in results])()
