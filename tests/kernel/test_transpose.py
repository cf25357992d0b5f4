"""The transpose as a program: what NumPy's is, whatever the shape."""

from __future__ import annotations

import numpy as np
import pytest

from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.skeletons.steps import TILE_SIDE, transpose_program


@pytest.mark.parametrize("shape", [(1, 1), (5, 40), (33, 3), (70, 65)])
def test_it_is_the_transpose(shape: tuple[int, int]) -> None:
    kernel = transpose_program(WorkgroupTarget(64, grid=True))
    verify(kernel)
    x, y = np.random.default_rng(0).normal(size=shape), np.full(shape[::-1], np.nan)
    rows, columns = shape
    groups = -(-rows // TILE_SIDE) * -(-columns // TILE_SIDE)
    execute(kernel, {"x": x, "y": y}, rows, groups + 1, arguments={"columns": columns})
    np.testing.assert_array_equal(y, x.T)
