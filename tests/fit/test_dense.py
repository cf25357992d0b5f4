"""Small dense least squares, compiled: what LAPACK finds, whatever the shapes and sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from symgrad.fit.dense import Descent, Strategy, Triangle, at_end
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.skeletons.descent import descent_program
from symgrad.kernel.skeletons.solve import triangle_program
from symgrad.optimize.result import Box, Point

SHAPES = [(1, 1), (2, 3), (5, 5), (50, 3), (40, 12)]


def triangle_of(J: np.ndarray, r: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """What is found of residuals, as values of a model beside data of zeros."""
    made = Triangle(len(r), J.shape[1])
    made.values[: len(r)], made.slopes[: len(r)] = r, J
    made.y[:], made.weights[:] = 0.0, 1.0 if weights is None else weights
    made.call()
    return made.row.copy()


def parts(found: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """T, z, the lengths, the cost and the norm of the inverse."""
    square = n * n
    T, z, lengths = found[:square].reshape(n, n), found[square:][:n], found[square + n :][:n]
    return T, z, lengths, found[-2], found[-1]


@pytest.mark.parametrize("program", [triangle_program, descent_program])
def test_the_programs_are_sound(program: Callable[[Target], KernelIR]) -> None:
    verify(program(SimdTarget(1)))


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_the_triangle_is_that_of_a_qr_decomposition(m: int, n: int) -> None:
    draw = np.random.default_rng(m)
    J, r, weights = draw.normal(size=(m, n)), draw.normal(size=m), draw.normal(size=m)
    T, z, lengths, cost, inverse = parts(triangle_of(J, r, weights), n)
    J, r = J * weights[:, None], r * weights
    want = np.linalg.qr(np.concatenate([J, r[:, None]], axis=1), mode="r")[:n]
    want = np.pad(want, ((0, n - len(want)), (0, 0)))
    signs = np.where(T.diagonal() * want.diagonal() < 0, -1.0, 1.0)
    np.testing.assert_allclose(T, signs[:, None] * want[:, :n], rtol=0, atol=1e-13)
    if n < m:  # the last z is the length of all that is left otherwise
        np.testing.assert_allclose(z, signs * want[:, n], rtol=0, atol=1e-13)
    np.testing.assert_allclose(T.T @ z, J.T @ r, rtol=0, atol=1e-12)
    np.testing.assert_allclose(lengths, np.linalg.norm(J, axis=0), rtol=1e-13)
    assert cost == pytest.approx(r @ r, rel=1e-13)
    if n <= m:
        assert inverse == pytest.approx(np.linalg.norm(np.linalg.inv(T / lengths)), rel=1e-9)


def test_what_is_large_or_small_neither_overflows_nor_vanishes() -> None:
    J = np.random.default_rng(0).normal(size=(20, 3))
    T = parts(triangle_of(J, J[:, 0]), 3)[0]
    for unit in 1e-160, 1e140:
        scaled = parts(triangle_of(J * unit, J[:, 0]), 3)[0]
        np.testing.assert_allclose(scaled / unit, T, rtol=1e-13, atol=1e-13)


def test_a_column_of_zeros_has_no_inverse_and_a_length_of_1() -> None:
    J = np.random.default_rng(0).normal(size=(20, 3))
    J[:, 1] = 0.0
    T, _, lengths, cost, inverse = parts(triangle_of(J, J[:, 0]), 3)
    assert not T[:, 1].any()
    assert lengths[1] == 1.0
    assert np.isfinite(cost)
    assert not np.isfinite(inverse)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("column", [-1, 0, 2])
def test_what_is_not_finite_is_said_but_for_rows_of_weight_0(bad: float, column: int) -> None:
    draw = np.random.default_rng(0)
    table, weights = draw.normal(size=(9, 4)), np.ones(9)
    table[4, column] = bad
    assert not np.isfinite(triangle_of(table[:, :3], table[:, 3], weights)[-2])
    weights[4] = 0.0
    found = triangle_of(table[:, :3], table[:, 3], weights)
    kept = np.delete(table, 4, axis=0)
    assert found[-2] == pytest.approx(kept[:, 3] @ kept[:, 3])
    T = parts(found, 3)[0]
    np.testing.assert_allclose(T.T @ T, kept[:, :3].T @ kept[:, :3], atol=1e-13)


def box_of(n: int) -> Box:
    """Bounds that are none."""
    return Box(np.full(n, -np.inf), np.full(n, np.inf))


def step(
    T: np.ndarray, z: np.ndarray, damping: float, p: np.ndarray, box: Box | None = None
) -> np.ndarray | None:
    """The parameters after the first step from a point; None if there is none."""
    descent = Descent(len(p))
    point = Point.of(p, float(z @ z) + 1.0, T, z)
    going = descent.begin(point, box or box_of(len(p)), Strategy(damping, local=True), 100)
    return descent.p.copy() if going else None


@pytest.mark.parametrize("damping", [0.0, 1e-20, 0.3, 1e8])
@pytest.mark.parametrize("n", [1, 3, 12])
def test_a_step_is_the_least_squares_solution(n: int, damping: float) -> None:
    draw = np.random.default_rng(n)
    T, z, p = np.triu(draw.normal(size=(n, n)) + 2 * np.eye(n)), *draw.normal(size=(2, n))
    moved = step(T, z, damping, p)
    system = np.concatenate([T, np.sqrt(damping) * np.diag(np.linalg.norm(T, axis=0))])
    h = np.linalg.lstsq(system, -np.append(z, np.zeros(n)))[0]
    assert moved is not None
    np.testing.assert_allclose(moved, p + h, rtol=1e-12, atol=1e-12 * np.abs(h).max())


@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(8))
def test_a_step_in_a_box_is_the_least_squares_solution_there(seed: int, damping: float) -> None:
    """By SciPy's `lsq_linear`, whose set of active bounds it shares where only those of one round
    are active; and no step is better than the bounds allow."""
    optimize = pytest.importorskip("scipy.optimize")
    draw = np.random.default_rng(seed)
    T, z, p = np.triu(draw.normal(size=(4, 4)) + 2 * np.eye(4)), *draw.normal(size=(2, 4))
    low, high = np.array([-np.inf, p[1] - 0.05, -np.inf, p[3]]), np.array([np.inf] * 4)
    moved = step(T, z, damping, p, Box(low, high))
    assert moved is not None
    assert (moved >= low).all()
    held = (moved == low).nonzero()[0]
    system = np.concatenate([T, np.sqrt(damping) * np.diag(np.linalg.norm(T, axis=0))])
    right = -np.append(z, np.zeros(4))
    free = np.delete(np.arange(4), held)
    h = moved - p
    left = right - system[:, held] @ h[held]
    np.testing.assert_allclose(h[free], np.linalg.lstsq(system[:, free], left)[0], atol=1e-12)
    best = optimize.lsq_linear(system, right, (low - p, np.full(4, np.inf)))
    if len(held) == (best.active_mask != 0).sum():
        np.testing.assert_allclose(h, best.x, atol=1e-6)


def test_a_step_has_nothing_to_say_of_what_nothing_depends_on() -> None:
    moved = step(np.diag([2.0, 0.0]), np.array([1.0, 0.0]), 0.0, np.array([1.0, 5.0]))
    assert moved is not None
    assert moved.tolist() == [0.5, 5.0]


def test_a_step_from_0_is_one_and_rounding_is_none() -> None:
    T, z = np.ones((1, 1)), np.array([-1e-30])
    assert step(T, z, 0.0, np.zeros(1)) == 1e-30
    assert step(T, np.zeros(1), 0.0, np.zeros(1)) is None
    assert step(T, z, 0.0, np.ones(1)) is None


def test_points_of_several_sizes_take_turns() -> None:
    for n in (*range(1, 20), 3, 1):
        end = at_end(Point.of(np.zeros(n), 2.0 * n, np.eye(n), np.ones(n)), box_of(n))
        assert end.offset == pytest.approx(0.5**0.5)


def test_a_descent_goes_by_the_model_until_the_offset_is_rounding() -> None:
    """Rosenbrock's residuals and one that stays: all evaluations are by hand."""
    descent, box = Descent(2), Box(np.array([-2.0, -np.inf]), np.array([0.5, np.inf]))

    def at(p: np.ndarray) -> Point:
        r = np.array([1 - p[0], 10 * (p[1] - p[0] ** 2), 0.3])
        J = np.array([[-1.0, 0.0], [-20 * p[0], 10.0], [0.0, 0.0]])
        R = np.asarray(np.linalg.qr(np.column_stack([J, r]), mode="r"))
        return Point.of(p, float(r @ r), R[:2, :2], R[:2, 2])

    going = descent.begin(at(np.array([-1.2, 1.0])), box, Strategy(1e-3, local=False), 1000)
    while going:
        assert descent.p[0] <= 0.5
        going = descent.advance(at(descent.p.copy()))
    np.testing.assert_allclose(descent.end.p, [0.5, 0.25], rtol=1e-9)
    assert descent.end.offset < 1e-8
    assert descent.count < 60
