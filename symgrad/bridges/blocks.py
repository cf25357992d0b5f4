"""Functions of arrays in blocks of Dask's: a task for each block along the first axis."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from symgrad.bridges.cluster import arrived, dask, dask_arrays, in_blocks
from symgrad.errors import InputError
from symgrad.expr.handles.tree import flatten


def by_rows(array: Any) -> Any:
    """The array in blocks that are cut along the first axis only."""
    return array.rechunk(dict.fromkeys(range(1, array.ndim), -1))


def parts(array: Any) -> list[Any]:
    """The blocks of such an array, each as a delayed array."""
    return list(array.to_delayed().ravel())


def aligned(value: Any, like: Any) -> list[Any]:
    """What belongs to each block of ``like``: of an array of as many rows, the rows it has."""
    if in_blocks(value):
        value = by_rows(value)
        if value.numblocks[0] != like.numblocks[0] or value.chunks[0] != like.chunks[0]:
            value = value.rechunk({0: like.chunks[0]})
        return parts(value)
    ends = np.cumsum((0, *like.chunks[0]))
    if np.isnan(ends).any():
        raise InputError(
            "the blocks have unknown lengths: compute_chunk_sizes() finds them, or give Dask's "
            "arrays in the same blocks"
        )
    return [value[a:b] for a, b in pairwise(ends)]


def mapped(
    task: Callable[..., list[np.ndarray]],
    given: Sequence[Sequence[Any]],
    like: Any,
    results: Sequence[np.ndarray],
) -> list[Any]:
    """The results of ``task(*given)`` of each block, one behind the other: arrays of Dask's.

    ``results`` are like those of a block: their dtypes, and their shapes but for the first axis.
    """
    arrays = dask_arrays()
    delayed = dask().delayed(task, pure=False, traverse=False, nout=len(results))
    found = [delayed(*block) for block in zip(*given, strict=True)]
    return [
        arrays.concatenate(
            [
                arrays.from_delayed(block[k], (rows, *r.shape[1:]), meta=r[:0])
                for block, rows in zip(found, like.chunks[0], strict=True)
            ]
        )
        for k, r in enumerate(results)
    ]


def run_blocks(kernel: Any, x: Any) -> Any:
    """What ``kernel.run`` gives of points (B, n) in blocks: nested alike, of arrays of Dask's.

    The kernel travels to whoever computes a block. Nothing is computed before it is asked for.
    """
    if x.ndim != 2:
        raise InputError(f"x has shape {x.shape}: points in blocks are (B, {kernel.n_inputs})")
    x = by_rows(x)
    results, tree = flatten(kernel.run(np.zeros((0, x.shape[1]), x.dtype)), lambda _: None)
    sent = [pickle.dumps(kernel)] * x.numblocks[0]
    return tree.nest(iter(mapped(_run, [sent, parts(x)], x, results)))


def _run(kernel: bytes, points: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(a) for a in flatten(arrived(kernel).run(points), lambda _: None)[0]]
