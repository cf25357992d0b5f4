"""Arrays of inputs in a row, and of constants: loops read them where they stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg

TABLE = np.random.default_rng(0).normal(size=40)
POINTS = np.random.default_rng(1).uniform(0.3, 0.9, (70, 42))


def of_constants(v: Any) -> Any:
    """A sequence driven by a table, and one element of it by a computed index."""

    def step(s: Any, y: Any) -> Any:
        return sg.sin(v[0] * s + v[1] * y), None

    return sg.scan(step, v[2], TABLE)[0]


def of_inputs(v: Any) -> Any:
    """All but two of the inputs in a row, and every other one of them."""

    def step(s: Any, y: Any) -> Any:
        return sg.sin(s + y * v[0]), s

    end = sg.scan(step, v[1], v[2:])[0]
    return sg.fori_loop(0, 20, lambda k, s: s + v[2 * k + 2] * v[2 * k + 3], end)


def of_both(v: Any) -> Any:
    """An array that is written to begins as a table, of which another loop reads more."""

    def step(k: Any, carry: Any) -> Any:
        a, s = carry
        a = a.at[k].set(a[k] * v[0])
        return a, s + a[k] * v[k + 1]

    a, s = sg.fori_loop(0, 30, step, (TABLE[:30], v[1]))
    return s + a[3] + sg.fori_loop(0, 30, lambda k, t: t + TABLE[7] * v[k], v[2])


FUNCTIONS = [of_constants, of_inputs, of_both]


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", "float64"), ("cpu", "float32"), ("gpu", "float32")]
)
def test_values_and_gradients(f: Any, device: Any, dtype: Any) -> None:
    """Beside the same function on numbers, whose slopes are differences."""
    kernel = sg.fused_forward_backward(42, f, device=device, dtype=dtype)
    loss, gradient = kernel.run(POINTS.astype(dtype))
    moves = 1e-6 * np.eye(42)
    at = POINTS[:2]
    slopes = np.array([[(number(f, x + h) - number(f, x - h)) / 2e-6 for h in moves] for x in at])
    off = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(loss, [number(f, x) for x in POINTS], rtol=off, atol=off / 5)
    np.testing.assert_allclose(gradient[:2], slopes, rtol=1e-5, atol=3e-6)
    alone = kernel.run(POINTS[5].astype(dtype))
    assert alone[0] == loss[5]


def number(f: Any, x: np.ndarray) -> float:
    """The function of numbers, by Python's loops."""
    v, s = x, float(x[2])
    if f is of_constants:
        for y in TABLE:
            s = np.sin(v[0] * s + v[1] * y)
        return s
    if f is of_inputs:
        s = float(v[1])
        for y in v[2:]:
            s = np.sin(s + y * v[0])
        return s + sum(v[2 * k + 2] * v[2 * k + 3] for k in range(20))
    a, s = TABLE[:30] * v[0], float(v[1])
    return s + a @ v[1:31] + a[3] + v[2] + TABLE[7] * v[:30].sum()


def test_nothing_is_copied() -> None:
    """Sources do not grow with the arrays: neither has statements for their elements."""

    def long(n: int) -> sg.Kernel:
        table = np.linspace(0.0, 1.0, n) ** 2

        def f(v: Any) -> Any:
            def iteration(k: Any, s: Any) -> Any:
                return (s + v[k]) * v[0]

            end = sg.scan(lambda s, y: (s * y + v[0], None), v[1], table)[0]
            return end + sg.fori_loop(0, n, iteration, v[1])

        return sg.fused_forward(n, f, device="cpu")

    few, many = (len(long(n).wgsl.splitlines()) for n in (20, 200))
    assert few == many < 50


DRIVE = np.sin(np.arange(100.0))
"""More numbers than variables of a GPU's invocations hold."""

DEVICES = [("cpu", "float64"), ("cpu", "float32"), ("gpu", "float32")]


def driven(p: Any, r: Any) -> Any:
    """A row's misfit to a sequence that a table drives, and reads at an index that it computes."""
    end = sg.scan(lambda s, y: (0.99 * s + p[0] * y * r[0], None), p[1], DRIVE)[0]
    table = sg.array(DRIVE)
    return (end + sg.fori_loop(0, 9, lambda k, s: s + table[3 * k] * p[2], 0.0) - r[1]) ** 2


def written_out(p: Any, r: Any) -> Any:
    """The same without loops."""
    s = p[1]
    for y in DRIVE:
        s = 0.99 * s + p[0] * y * r[0]
    return (s + sum(DRIVE[3 * k] * p[2] for k in range(9)) - r[1]) ** 2


ROWS = np.random.default_rng(2).uniform(0.5, 1.5, (300, 2))


@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_rows_read_tables_where_they_stand(device: Any, dtype: Any) -> None:
    kernel = sg.fused_forward_backward(3, driven, row=2, device=device, dtype=dtype)
    plain = sg.fused_forward_backward(
        3, written_out, row=2, device="cpu", dtype="float64", roll=False
    )
    found, want = (k.run([0.3, 0.7, 0.2], ROWS) for k in (kernel, plain))
    off = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(found[0], want[0], rtol=off)
    np.testing.assert_allclose(found[1], want[1], rtol=off, atol=off * np.abs(want[1]).max())
    if device == "gpu":
        assert "constants: array<f32>" in kernel.wgsl
        assert kernel.wgsl.count("[") < 100, "no table is made element by element"


@pytest.mark.parametrize(("device", "dtype"), DEVICES)
@pytest.mark.parametrize("method", [sg.Adam(0.05), sg.LevenbergMarquardt()])
def test_steps_read_tables_where_they_stand(method: Any, device: Any, dtype: Any) -> None:
    power = 1 if isinstance(method, sg.LevenbergMarquardt) else 2

    def looped(p: Any, r: Any) -> Any:
        end = sg.scan(lambda s, y: (0.99 * s + p[0] * y * r[0], None), p[1], DRIVE)[0]
        return (end - r[1]) ** power

    def plain(p: Any, r: Any) -> Any:
        s = p[1]
        for y in DRIVE:
            s = 0.99 * s + p[0] * y * r[0]
        return (s - r[1]) ** power

    starts, data = np.random.default_rng(3).uniform(0.2, 0.6, (5, 2)), ROWS[:40]
    found, want = (
        sg.minimize_from(loss, 2, starts, method, 12, shared=data, device=device, dtype=dtype)
        for loss in (looped, plain)
    )
    off = 1e-9 if dtype == "float64" else 2e-4
    np.testing.assert_allclose(found.x, want.x, rtol=off, atol=off)


@pytest.mark.parametrize(("device", "dtype", "n"), [("cpu", "float64", 9), ("gpu", "float32", 14)])
def test_so_do_steps_with_a_matrix(device: Any, dtype: Any, n: int) -> None:
    """The best sum of many waves and of what a table drives, as NumPy's least squares have it."""

    def residual(p: Any, r: Any) -> Any:
        waves = sum(p[k] * sg.cos(k * r[0]) for k in range(n))
        return waves + sg.scan(lambda s, y: (0.5 * s + y * r[0], None), 0.0, DRIVE)[0] - r[1]

    rows = np.stack([np.linspace(0.0, np.pi, 50), np.random.default_rng(4).normal(size=50)], axis=1)
    found = sg.minimize_from(
        residual, n, np.zeros((3, n)), sg.LevenbergMarquardt(), 30, shared=rows,
        device=device, dtype=dtype,
    )  # fmt: skip
    driven = rows[:, 0] * sum(y * 0.5 ** (99 - k) for k, y in enumerate(DRIVE))
    design = np.cos(np.arange(n) * rows[:, :1])
    x, left, *_ = np.linalg.lstsq(design, rows[:, 1] - driven)
    off = 1e-9 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(found.x, np.broadcast_to(x, (3, n)), rtol=off, atol=off)
    np.testing.assert_allclose(found.fun, 0.5 * left[0], rtol=off)
