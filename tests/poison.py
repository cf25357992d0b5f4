"""Memory of GPUs that holds what no kernel writes, so that what a kernel leaves out is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.memory.buffers import Storage

POISON: Final = 0x7FDEAD01
"""The bits of a NaN that no kernel computes."""

POISONED: Final = 1 << 20
"""Bytes at the start of a buffer that are poisoned."""


@pytest.fixture(autouse=True, scope="session")
def poisoned_memory() -> Iterator[None]:
    """What a kernel does not write is neither what another left, nor 0."""
    fresh = Gpu.storage

    def storage(gpu: Gpu, nbytes: int) -> Storage:
        made = fresh(gpu, nbytes)
        gpu.upload(made, np.full(min(made.buffer.size, POISONED) // 4, POISON, np.uint32))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gpu, "storage", storage)
        yield


def is_poison(results: Any) -> np.ndarray:
    """Where results in float32 have not been written."""
    return np.ascontiguousarray(results, np.float32).view(np.uint32) == POISON
