"""Kernels in Chromium, on SwiftShader, against the same kernels on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chromium import Chromium, Page
from web.modules import assert_near, calls

import symgrad as sg

RNG = np.random.default_rng(14)


def rosenbrock(v: Any) -> Any:
    return (1 - v[0]) ** 2 + 100 * (v[1] - v[0] ** 2) ** 2


def transcendental(v: Any) -> Any:
    return sg.exp(-v[0]) * sg.sin(3 * v[1]) + sg.log1p(v[0] ** 2) + sg.erf(v[1]) + np.arctan2(*v)


def predators_and_prey(v: Any) -> Any:
    """A thousand steps of Runge and Kutta's method."""
    growth, hunting, x, y = v

    def slope(x: Any, y: Any) -> Any:
        return growth * x - hunting * x * y, hunting * x * y - y

    def step(k: Any, now: Any) -> Any:
        x, y = now
        h = 0.01
        a, b = slope(x, y)
        c, d = slope(x + h / 2 * a, y + h / 2 * b)
        e, f = slope(x + h / 2 * c, y + h / 2 * d)
        p, q = slope(x + h * e, y + h * f)
        return x + h / 6 * (a + 2 * c + 2 * e + p), y + h / 6 * (b + 2 * d + 2 * f + q)

    x, y = sg.fori_loop(0, 1000, step, (x, y))
    return (x - 1.5) ** 2 + (y - 0.5) ** 2


def collatz_like(v: Any) -> Any:
    """Newton's method to convergence, which takes more iterations for some points."""

    def step(state: Any) -> Any:
        x, _ = state
        move = (x**3 - v[0]) / (3 * x * x)
        return x - move, abs(move)

    return sg.while_loop(lambda s: s[1] > 1e-6, step, (v[0] + 1.0, 1.0), max_steps=60)[0]


def stages_of_cholesky(v: Any) -> Any:
    """A loss of a factor and a solution, of a matrix that is positive definite."""
    a = np.outer(v, v) + np.diag([4.0, 5.0, 6.0])
    factor = np.linalg.cholesky(a)
    return np.sum(np.log(np.diagonal(factor))) + np.sum(np.linalg.solve(a, 1.0 * v) ** 2)


def chain(v: Any) -> Any:
    """Hamiltonian Monte Carlo: where a chain of its own random numbers is after twenty steps."""
    own = sg.random.fold_in(sg.random.key(2024), v[0])

    def step(k: Any, x: Any) -> Any:
        push, choose = sg.random.split(sg.random.fold_in(own, k))
        p = sg.random.normal(push, 2)
        there, speed = sg.fori_loop(0, 5, leapfrog, (x, p))
        gained = 0.5 * np.sum(x * x + p * p - there * there - speed * speed)
        return np.where(np.log(sg.random.uniform(choose)) < gained, there, x)

    def leapfrog(k: Any, state: Any) -> Any:
        x, p = state
        p = p - 0.1 * x
        x = x + 0.2 * p
        return x, p - 0.1 * x

    return sg.fori_loop(0, 20, step, sg.random.normal(sg.random.fold_in(own, 99), 2))


def many_outputs(v: Any) -> dict[str, Any]:
    return {"both": [v[0] * v[1], v[0] - v[1]], "bits": v[0] % 3.0, "table": sg.interp(
        v[0], np.arange(300.0), np.cos(np.arange(300.0)))}  # fmt: skip


POINTS = {
    "a map": (rosenbrock, 2, sg.fused_forward_backward, RNG.normal(size=(1000, 2))),
    "mathematics": (transcendental, 2, sg.fused_forward_backward, RNG.normal(size=(257, 2))),
    "a Hessian": (rosenbrock, 2, sg.fused_hessian, RNG.normal(size=(65, 2))),
    "a simulation": (
        predators_and_prey, 4, sg.fused_forward_backward,
        RNG.uniform(0.5, 1.2, size=(20, 4)),
    ),
    "Cholesky": (stages_of_cholesky, 3, sg.fused_forward_backward, RNG.normal(size=(50, 3))),
    "a while loop": (collatz_like, 1, sg.fused_forward, np.geomspace(1e-3, 1e4, 100)[:, None]),
}  # fmt: skip


@pytest.mark.parametrize("name", POINTS)
def test_points(name: str, browser: Chromium, page: Page) -> None:
    f, n, make, points = POINTS[name]
    kernel = make(n, f, device="cpu")
    points = points.astype(np.float32)
    found = calls(browser, page, kernel.export_js, "await kernel.run(x)", x=points)
    wanted = kernel.run(points)
    for name, result in zip(kernel.outputs, wanted if len(found) > 1 else [wanted], strict=True):
        assert_near(found[name], result)


@pytest.mark.parametrize("f", [rosenbrock, transcendental, collatz_like])
def test_points_beyond_all_numbers(f: Any, browser: Chromium, page: Page) -> None:
    """NaN and infinities come out where they do on the CPU, with their signs."""
    kernel = sg.fused_forward(2, f, device="cpu")
    edges = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e18, 1e-30], np.float32)
    points = np.stack(np.meshgrid(edges, edges), -1).reshape(-1, 2)
    found = calls(browser, page, kernel.export_js, "await kernel.run(x)", x=points)["values"]
    wanted = kernel.run(points)
    beyond = ~np.isfinite(wanted)
    np.testing.assert_array_equal(found[beyond], wanted[beyond])
    np.testing.assert_allclose(found[~beyond], wanted[~beyond], rtol=1e-5, atol=1e-6)


def test_loops_of_several_modules(browser: Chromium, page: Page) -> None:
    """Loops that turn more often than drivers stand in one dispatch."""

    def orbit(v: Any) -> Any:
        return sg.fori_loop(0, 150_000, lambda k, x: x + 1e-5 * (v[0] - x), 0.0)

    kernel = sg.fused_forward(1, orbit, device="cpu")
    assert len(kernel.modules) > 1
    points = np.linspace(0, 2, 5, dtype=np.float32)[:, None]
    found = calls(browser, page, kernel.export_js, "await kernel.run(x)", x=points)["values"]
    np.testing.assert_allclose(found, kernel.run(points), rtol=1e-4)


def test_a_hundred_chains_draw_the_same_random_numbers(browser: Chromium, page: Page) -> None:
    kernel = sg.fused_forward(1, chain, device="cpu")
    points = np.arange(100, dtype=np.float32)[:, None]
    found = calls(browser, page, kernel.export_js, "await kernel.run(x)", x=points)
    wanted = kernel.run(points)
    same = np.isclose(found["values"].reshape(-1, 2), wanted, rtol=1e-4, atol=1e-4).all(axis=1)
    assert same.mean() >= 0.98  # a chain whose choice hangs on the last bit may go another way


def test_kernels_in_pairs_of_float32(browser: Chromium, page: Page) -> None:
    """Numbers of double precision in and out, with the digits of pairs: points, sums, arrays."""
    how: dict[str, Any] = {"device": "cpu", "dtype": "float32x2"}
    points = RNG.normal(size=(70, 2))
    kernel = sg.fused_forward_backward(2, rosenbrock, **how)
    found = calls(browser, page, kernel.export_js, "await kernel.run(x)", x=points)
    for name, want in zip(kernel.outputs, kernel.run(points), strict=True):
        assert_close_in_pairs(found[name], want)

    def line(p: Any, r: Any) -> Any:
        return (p[0] + p[1] * r[0] - r[1]) ** 2

    sums, rows = sg.fused_forward_backward(2, line, row=2, **how), RNG.normal(size=(3000, 2))
    found = calls(browser, page, sums.export_js, "await kernel.run(p, r)", p=points[0], r=rows)
    for name, want in zip(sums.outputs, sums.run(points[0], rows), strict=True):
        assert_close_in_pairs(found[name], want)
    squares = sg.rowwise(lambda r: r * r / r.max(), **how)
    want = squares.run(points)
    [result] = calls(browser, page, squares.export_js, "await kernel.run({r})", r=points).values()
    assert_close_in_pairs(result, want)


def assert_close_in_pairs(found: Any, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(np.reshape(found, wanted.shape), wanted, rtol=0, atol=1e-12 * scale)
