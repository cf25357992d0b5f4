"""Arrays of the host that are worked on block by block, of which two at a time are on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.device.guard import lifted

Fetched = Iterable[tuple[DeviceArray, np.ndarray]]
"""Arrays on the device, and those of the host that they fill, of the same shapes."""


def in_blocks(
    gpu: Gpu,
    blocks: Sequence[slice],
    arrays: Sequence[np.ndarray | None],
    run: Callable[..., Fetched],
    prepare: Callable[[], Any],
    dtype: np.dtype[Any],
) -> None:
    """Call ``run(block, *parts)`` for each block, with the parts of the arrays on the device.

    There they have the ``dtype``. What it returns is filled when the transfer has time for it.
    While threads copy the first block, ``prepare`` is called, whose errors are the user's.
    """
    with gpu.guard, gpu.transfers.upload() as up, gpu.transfers.download() as down:

        def worked_on(block: slice, parts: Sequence[DeviceArray | None]) -> None:
            down.get(*(array.into(target) for array, target in run(block, *parts)))

        queue: deque[tuple[slice, list[DeviceArray | None]]] = deque()
        for block in blocks:
            parts = [a if a is None else DeviceArray.sent(gpu, a[block], up, dtype) for a in arrays]
            queue.append((block, parts))
            with lifted():
                prepare()
            if len(queue) > 1:  # threads copy this block meanwhile
                worked_on(*queue.popleft())
            up.flush()
        while queue:
            worked_on(*queue.popleft())
