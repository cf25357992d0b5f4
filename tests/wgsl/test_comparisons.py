"""Comparisons are IEEE's beside NaN, infinities and zeros of either sign, on every device."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

import symgrad as sg
from symgrad.mathlib.define import Math
from symgrad.wgsl.device.gpus import Gpu

EDGES: Final = np.array(
    [0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, 1e-30, 3e38], np.float32
)
POINTS: Final = np.array(list(itertools.product(EDGES, EDGES)), np.float32)
COMPARISONS: Final = (
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
)  # fmt: skip
OPERANDS: Final[tuple[Callable[[Any, Any], tuple[Any, Any]], ...]] = (
    lambda x, y: (x, y),
    lambda x, y: (x, 0.0),
    lambda x, y: (1.0, x),
    lambda x, y: (x, x),  # what compilers may know the answer of, but for NaN
    lambda x, y: (x + y, y + x),
    lambda x, y: (abs(x), 0.0),
    lambda x, y: (0.0, x * x),
    lambda x, y: (-x, -y),
)
FORMS: Final[tuple[Callable[[Any, Any], Any], ...]] = (
    lambda c, other: c,
    lambda c, other: ~c,
    lambda c, other: ~(c & other),
    lambda c, other: ~c | ~other,
    lambda c, other: c ^ other,
)


def answers(x: Any, y: Any, where: Callable[..., Any]) -> Iterator[Any]:
    """A binary digit for every form of a comparison; and what it chooses of its operands.

    The forms share a result, as drivers take longer to compile a store than a comparison.
    """
    for compare, operands in itertools.product(COMPARISONS, OPERANDS):
        a, b = operands(x, y)
        other = y < 2.0
        yield sum(where(f(compare(a, b), other), 2.0**k, 0.0) for k, f in enumerate(FORMS))
        yield where(compare(a, b), a, b)
        yield where(~compare(a, b), a, b)


@pytest.mark.parametrize("simplify", [True, False])
@pytest.mark.parametrize("math", ["accurate", "fast", "strict"])
@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_the_whole_table_is_numpys(device: Any, math: Math, simplify: bool, gpu: Gpu) -> None:
    made = sg.fused_forward(
        2, lambda v: list(answers(v[0], v[1], sg.where)), device=device, math=math,
        simplify=simplify,
    )  # fmt: skip
    with np.errstate(invalid="ignore", over="ignore"):
        x, y = POINTS.T
        want = list(answers(x, y, np.where))
    wrong = [
        (k, float(x), float(y))
        for k, (got, w) in enumerate(zip(made.run(POINTS), want, strict=True))
        for (x, y), a, b in zip(POINTS, got, w, strict=True)
        if not np.array_equal(a, b, equal_nan=True)
    ]
    assert not wrong


def test_a_nan_is_mended(gpu: Gpu) -> None:
    for math in ("accurate", "fast", "strict"):
        made = sg.fused_forward(
            1, lambda v: sg.where(v[0] != v[0], 0.0, v[0]), device="gpu", math=math
        )
        assert np.ravel(made.run([[np.nan], [2.0], [np.inf]])).tolist() == [0.0, 2.0, np.inf]


def test_a_number_that_is_not_itself_is_nan_by_its_bits() -> None:
    made = sg.fused_forward(1, lambda v: sg.where(v[0] != v[0], 1.0, 0.0), device="cpu")
    code = re.sub(r"//.*", "", made.wgsl)
    assert "> 0x7f800000u" in code and "==" not in code
