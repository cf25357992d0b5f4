"""Launches in the interpreter of kernels, and in memory of a GPU in which there is NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from symgrad.kernel.partial_sums import Added
from symgrad.kernel.skeletons.row_sums import SumsLaunch, table_words, whole_quads
from symgrad.wgsl.device.gpus import Gpu


@contextmanager
def memory_of_nan(gpu: Gpu) -> Iterator[None]:
    """Has whatever is stored there anew in memory that was NaN before."""
    storage = gpu.storage

    def filled(nbytes: int) -> Any:
        result = storage(nbytes)
        gpu.upload(result, np.full(result.buffer.size // 4, np.nan, np.float32))
        return result

    with mock.patch.object(gpu, "storage", filled):
        yield


def executed(
    sums: Any,
    p: np.ndarray,
    rows: np.ndarray,
    indices: np.ndarray | None = None,
    tables: Sequence[np.ndarray] = (),
) -> Added:
    """What the launch of these `Sums` gives in float64, with NaN behind the rows."""
    plan: SumsLaunch = sums.launch(len(rows), indices)
    plan.launch.verify()
    parameters = np.zeros(whole_quads(p.size))
    parameters[: p.size] = p
    arrays = {"parameters": parameters, **plan.indices}
    arrays["tables"] = table_words(sums.reduction, tables)
    start = 0
    for name, count in plan.rows.items():
        arrays[name] = np.full(whole_quads(count * rows.shape[1]), np.nan)
        arrays[name][: count * rows.shape[1]] = rows[start : start + count].ravel()
        start += count
    outputs = plan.launch.execute([arrays[a.name] for a in plan.launch.inputs])
    return plan.total(outputs, _never), plan.added(tables, outputs)


def _never(name: str) -> np.ndarray:
    raise AssertionError(f"{name} has overflowed, in float64")
