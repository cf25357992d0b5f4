"""Least squares around a kernel: derivatives, starts, and what a bad start may not do."""

from __future__ import annotations

import numpy as np

from symgrad.demo import demonstration


def test_the_jacobian_is_that_of_the_residuals() -> None:
    data = demonstration.load("Misra1a")
    kernel = demonstration.residual_kernel(data, "cpu", "float64")
    residuals, jacobian = kernel.run(data.certified)
    b1, b2 = data.certified
    np.testing.assert_allclose(residuals, b1 * (1 - np.exp(-b2 * data.x)) - data.y, rtol=1e-9)
    expected = np.stack([1 - np.exp(-b2 * data.x), b1 * data.x * np.exp(-b2 * data.x)], axis=1)
    np.testing.assert_allclose(jacobian, expected, rtol=1e-12)


def test_starts_that_overflow_harm_no_other() -> None:
    data = demonstration.load("Misra1a")
    starts = np.array([*data.starts, [1e30, -1e6], [np.nan, 1.0]])
    *_, end = demonstration.levenberg_marquardt(
        demonstration.residual_kernel(data, "cpu"), starts, 40
    )
    np.testing.assert_allclose(end.parameters[:2], [data.certified] * 2, rtol=1e-3)
    assert np.isinf(end.costs[2:]).all()


def test_starts_are_nists_own_first_and_the_same_every_time() -> None:
    data = demonstration.load("MGH17")
    starts = demonstration.scatter(data, 10)
    np.testing.assert_array_equal(starts[:2], data.starts)
    np.testing.assert_array_equal(starts, demonstration.scatter(data, 10))
    assert (np.sign(starts) == np.sign(data.starts[0])).all()
    np.testing.assert_array_equal(demonstration.scatter(data, 1), data.starts)


def test_agreeing_digits() -> None:
    found = np.array([1.0, 1.001, 2.0, -1.0])
    np.testing.assert_allclose(
        demonstration.agreeing_digits(found, np.ones(4)), [11, 3, 0, 0], atol=1e-3
    )
