"""Runs of rows that name one line, added up by a program of the kernel language."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.skeletons.lookup import ROWS_PER_TILE, STEP, Place, RunSums

COLUMNS = 3
LENGTHS = np.array([0, 1, 7, 8, 9, 32, ROWS_PER_TILE + 5, 0, 3, 2 * ROWS_PER_TILE, 1, 5])


def padded(count: int) -> int:
    return -(-count // STEP) * STEP


@pytest.mark.parametrize("place", [None, Place(2, 4 * COLUMNS - 2, 15)], ids=["columns", "entry"])
def test_runs(place: Place | None) -> None:
    draw, count = np.random.default_rng(0), int(LENGTHS.sum())
    starts, step = np.append(0, LENGTHS.cumsum()).astype(np.uint32), padded(count)
    order = np.zeros(step, np.uint32)
    order[:count] = draw.permutation(count)
    quads = draw.normal(size=(COLUMNS, step, 4))
    runs = len(LENGTHS)
    size = COLUMNS * padded(runs) * 4 if place is None else runs * place.width
    sums = np.full(size, np.nan)
    kernel = RunSums(COLUMNS, place, int(LENGTHS.max()))(WorkgroupTarget(8, grid=True))
    verify(kernel)
    execute(kernel, {"starts": starts, "order": order, "quads": quads, "sums": sums}, runs, 3)
    parts = [quads[:, order[a:b]].sum(1) for a, b in pairwise(starts)]
    want = np.array(parts).reshape(runs, -1)  # (runs, columns * 4)
    if place is None:
        found = sums.reshape(COLUMNS, -1, 4)[:, :runs].transpose(1, 0, 2).reshape(runs, -1)
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-12)
    else:
        found = sums.reshape(runs, place.width)
        there = slice(place.first, place.first + place.count)
        np.testing.assert_allclose(found[:, there], want[:, : place.count], rtol=0, atol=1e-12)
        assert np.isnan(np.delete(found, np.r_[there], axis=1)).all()
