"""Small dense least squares, compiled: what LAPACK finds, whatever the shapes and sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from symgrad.fit.dense import Triangle, step
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.skeletons.dense import step_program, triangle_program
from symgrad.kernel.target import SimdTarget
from symgrad.kernel.verify import verify

SHAPES = [(1, 1), (2, 3), (5, 5), (50, 3), (40, 12)]


def triangle_of(J: np.ndarray, r: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """What is found of residuals, as values of a model beside data of zeros."""
    made = Triangle(np.zeros(len(r)), np.ones(len(r)) if weights is None else weights, J.shape[1])
    made.values[:], made.slopes[:] = r, J
    return made()


def parts(found: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """T, z, the lengths, the cost and the norm of the inverse."""
    square = n * n
    T, z, lengths = found[:square].reshape(n, n), found[square:][:n], found[square + n :][:n]
    return T, z, lengths, found[-2], found[-1]


@pytest.mark.parametrize("program", [triangle_program, step_program])
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


@pytest.mark.parametrize("damping", [0.0, 1e-20, 0.3, 1e20])
@pytest.mark.parametrize("n", [1, 3, 12])
def test_a_step_is_the_least_squares_solution(n: int, damping: float) -> None:
    draw = np.random.default_rng(n)
    T, z, p = np.triu(draw.normal(size=(n, n)) + 2 * np.eye(n)), *draw.normal(size=(2, n))
    scales = np.abs(draw.normal(size=n)) + 0.1
    moved, promised, size = step(np.append(T.ravel(), z), scales, damping, p)
    system = np.concatenate([T, np.sqrt(damping) * np.diag(scales)])
    h = np.linalg.lstsq(system, -np.append(z, np.zeros(n)))[0]
    np.testing.assert_allclose(moved, p + h, rtol=1e-12, atol=1e-12 * np.abs(h).max())
    left = z + T @ (moved - p)
    assert promised == pytest.approx(z @ z - left @ left, rel=1e-9, abs=1e-14)
    assert size == np.max(np.abs(moved - p) / np.abs(p))


def test_a_step_has_nothing_to_say_of_what_nothing_depends_on() -> None:
    T, z = np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([1.0, 0.0])
    moved, promised, size = step(np.append(T.ravel(), z), np.ones(2), 0.0, np.array([1.0, 5.0]))
    assert moved.tolist() == [0.5, 5.0]
    assert (promised, size) == (1.0, 0.5)


def test_a_step_from_0_is_large_and_none_is_none() -> None:
    point = np.array([1.0, -1e-30])
    assert step(point, np.ones(1), 0.0, np.zeros(1))[2] == np.inf
    assert step(np.array([1.0, 0.0]), np.ones(1), 0.0, np.zeros(1))[2] == 0.0
    assert step(point, np.ones(1), 0.0, np.ones(1))[2] == 0.0


def test_arrays_of_several_sizes_take_turns() -> None:
    for n in (*range(1, 20), 3, 1):
        moved, _, _ = step(np.append(np.eye(n).ravel(), np.ones(n)), np.ones(n), 0.0, np.zeros(n))
        assert moved.tolist() == [-1.0] * n
