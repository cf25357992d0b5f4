"""Functions of arrays in Dask blocks: a task for each block along the first axis."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from symgrad.bridges.cluster import arrived
from symgrad.bridges.tables import array_of, by_rows, dask, dask_arrays, parts
from symgrad.errors import InputError
from symgrad.expr.tracers.tree import flatten


def mapped(
    task: Callable[..., list[np.ndarray]],
    arguments: Sequence[Sequence[Any]],
    like: Any,
    results: Sequence[np.ndarray],
) -> list[Any]:
    """The results of ``task(*arguments)`` of each block, one behind the other: Dask arrays.

    ``results`` are like those of a block: their dtypes, and their shapes but for the first axis.
    """
    arrays = dask_arrays()
    delayed = dask().delayed(task, pure=False, traverse=False, nout=len(results))
    computed = [delayed(*block) for block in zip(*arguments, strict=True)]
    return [
        arrays.concatenate(
            [
                arrays.from_delayed(block[k], (rows, *r.shape[1:]), meta=r[:0])
                for block, rows in zip(computed, like.chunks[0], strict=True)
            ]
        )
        for k, r in enumerate(results)
    ]


def run_blocks(kernel: Any, x: Any) -> Any:
    """What ``kernel.run`` gives of points (B, n) in blocks: nested alike, of Dask arrays.

    The kernel travels to whoever computes a block. Nothing is computed before it is asked for.
    """
    if isinstance(x, Mapping) or array_of(x).ndim != 2:
        form = "is a dict" if isinstance(x, Mapping) else f"has shape {x.shape}"
        raise InputError(
            f"x {form}: points in blocks are (B, {kernel.n_inputs}), in one array, such as "
            "dask.array.stack(columns, axis=1)"
        )
    x = by_rows(array_of(x))
    results, tree = flatten(kernel.run(np.zeros((0, x.shape[1]), x.dtype)), lambda _: None)
    if any(r.dtype == object for r in results):
        raise InputError("results in blocks are dense: make the kernel with sparse=False")
    sent = [pickle.dumps(kernel)] * x.numblocks[0]
    return tree.nest(iter(mapped(_run, [sent, parts(x)], x, results)))


def _run(kernel: bytes, points: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(a) for a in flatten(arrived(kernel).run(points), lambda _: None)[0]]
