"""What is known of a least-squares problem at some parameters."""

from __future__ import annotations

import numpy as np
import pytest

from symgrad.fit.dense import Triangle, at_end
from symgrad.optimize.result import Box, Point


def points(J: np.ndarray, r: np.ndarray) -> tuple[Point, Point]:
    """The same point, by loops and by LAPACK."""
    n = J.shape[1]
    made = Triangle(len(r), n)
    made.values[: len(r)], made.slopes[: len(r)], made.y[:] = r, J, 0.0
    made.call()
    R = np.asarray(np.linalg.qr(np.concatenate([J, r[:, None]], axis=1), mode="r"))
    p = np.zeros(n)
    return Point(p, made.row.copy()), Point.of(p, float(r @ r), R[:n, :n], R[:n, n])


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e9, 1e13, 1e20])
def test_both_ways_to_a_point_say_the_same_of_it(condition: float) -> None:
    draw = np.random.default_rng(0)
    J, r = draw.normal(size=(30, 3)), draw.normal(size=30)
    J[:, 2] = J[:, 1] + J[:, 2] / condition
    looped, lapacks = points(J * [1.0, 1e8, 1e-8], r)
    box = Box(np.full(3, -np.inf), np.full(3, np.inf))
    units = J / np.linalg.norm(J, axis=0)
    true = np.linalg.cond(units)
    for point in (looped, lapacks):
        if true < 1e13:
            assert true * 0.999 <= point.condition <= 3 * true
        else:
            assert point.condition > 1e12
    basis = np.linalg.qr(units[:, : 2 if condition > 1e15 else 3])[0]
    want = np.linalg.norm(basis.T @ r) / np.linalg.norm(r)
    assert at_end(looped, box).offset == pytest.approx(want, rel=1e-6 if true < 1e9 else 0.3)
    assert at_end(lapacks, box).offset == pytest.approx(want, rel=1e-6 if true < 1e9 else 0.3)
    np.testing.assert_allclose(looped.lengths, lapacks.lengths, rtol=1e-12)
    np.testing.assert_allclose(looped.row[:9], np.ravel(looped.T))


def test_a_column_of_zeros_is_no_condition() -> None:
    J = np.random.default_rng(0).normal(size=(30, 2))
    J[:, 1] = 0.0
    for point in points(J, J[:, 0] + 1.0):
        assert point.condition == np.inf
