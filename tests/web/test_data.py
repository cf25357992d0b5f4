"""Losses over data, minimisations and kernels of arrays in Chromium, against the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chromium import Chromium, Page
from web.modules import assert_near, calls

import symgrad as sg

RNG = np.random.default_rng(15)
X = np.linspace(0, 3, 40)
ROWS = np.stack([X, 2 * np.exp(-1.3 * X) + 0.5 + 0.01 * RNG.normal(size=40)], 1).astype("f")
MANY = np.tile(ROWS, (500, 1)) + RNG.normal(size=(20000, 2)).astype("f")


def decay(p: Any, r: Any) -> Any:
    return p[0] * sg.exp(-p[1] * r[0]) + p[2] - r[1]


def weighted(p: Any, r: Any) -> Any:
    return sg.log1p((p[0] + p[1] * r[0] - r[1]) ** 2)


KERNELS = {
    "a loss": lambda: sg.fused_forward_backward(
        3, lambda p, r: decay(p, r) ** 2, row=2, device="cpu"),
    "a mean of weighted rows": lambda: sg.fused_forward_backward(
        2, lambda p, r: weighted(p, r), row=3, weights=2, reduce="mean", device="cpu"),
    "least squares": lambda: sg.fused_least_squares(3, decay, row=2, device="cpu"),
    "a Hessian": lambda: sg.fused_hessian(3, lambda p, r: decay(p, r) ** 2, row=2, device="cpu"),
    "parameters that no row reads": lambda: sg.fused_forward_backward(
        3, lambda p, r: (p[2] * r[0] - r[1]) ** 2 + p[0] ** 2, row=2, device="cpu"),
    "a loop at each row": lambda: sg.fused_forward_backward(
        3, lambda p, r: sg.fori_loop(0, 50, lambda k, y: y + 0.02 * (p[0] - p[1] * y), r[0]) ** 2,
        row=2, device="cpu"),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_sums_over_rows(name: str, browser: Chromium, page: Page) -> None:
    kernel = KERNELS[name]()
    rows = MANY if kernel.columns == 2 else np.c_[MANY, RNG.uniform(0, 2, len(MANY))].astype("f")
    params = np.array([1.5, 1.0, 0.25], np.float32)[: kernel.n_inputs]
    found = calls(browser, page, kernel.export_js, "await kernel.run(p, r)", p=params, r=rows)
    for name, result in zip(kernel.outputs, kernel.run(params, rows), strict=True):
        assert_near(np.ravel(found[name]), np.ravel(result))


def test_rows_are_bound_once(browser: Chromium, page: Page) -> None:
    kernel = KERNELS["least squares"]()
    params = np.array([[1.0, 1.0, 0.0], [3.0, 0.5, 1.0]], np.float32)
    what = """await (async () => {
      const bound = kernel.bind(rows);
      const [a, b] = [bound.run(p), bound.run(q)];
      const size = rows.byteLength;
      const buffer = device.createBuffer({ size, usage: 0x80, mappedAtCreation: true });
      new Float32Array(buffer.getMappedRange()).set(rows);
      buffer.unmap();
      return [await a, await b, await kernel.bind(buffer).run(q), bound.count];
    })()"""
    found = calls(browser, page, kernel.export_js, what, p=params[0], q=params[1], rows=ROWS)
    for result, p in zip(found[:2], params, strict=True):
        assert_near(result["grad"], kernel.run(p, ROWS)[1])
    assert found[3] == len(ROWS)
    np.testing.assert_array_equal(found[2]["jtj"], found[1]["jtj"])


def bowl(v: Any) -> Any:
    return (v[0] - 1) ** 2 + sg.exp(v[1]) - v[1] + 0.1 * (v[0] * v[1]) ** 2


METHODS = {
    "Adam": (sg.Adam(0.05), 300),
    "L-BFGS": (sg.LBFGS(), 50),
    "Newton": (sg.Newton(), 30),
    "gradient descent": (sg.GradientDescent(0.1), 200),
}


@pytest.mark.parametrize("name", METHODS)
def test_minimisations(name: str, browser: Chromium, page: Page) -> None:
    method, steps = METHODS[name]
    kernel = sg.fused_forward_backward(2, bowl, device="cpu")
    starts = RNG.normal(size=(300, 2)).astype("f")
    wanted = kernel.minimize(starts, method, steps, bounds=(-2.0, 0.9))

    def export(path: Any) -> None:
        kernel.export_js(path, method, steps=steps, bounds=(-2.0, 0.9))

    found = calls(browser, page, export, "await kernel.minimize(x)", x=starts)
    np.testing.assert_allclose(found["x"].reshape(-1, 2), wanted.x, atol=2e-5)
    np.testing.assert_allclose(found["fun"], wanted.fun, rtol=1e-5)
    assert (found["status"] > 0).mean() == pytest.approx((wanted.status > 0).mean(), abs=0.05)
    assert np.array_equal(found["success"] == 1, found["status"] > 0)


@pytest.mark.parametrize(("curves", "points"), [(70, 40), (3, 400)])
def test_many_fits(curves: int, points: int, browser: Chromium, page: Page) -> None:
    """An invocation for each of many curves, and a workgroup for each of a few long ones."""
    x = np.linspace(0, 3, points)
    truth = RNG.uniform([1, 0.5, 0], [3, 2, 1], (curves, 3))
    noise = 0.01 * RNG.normal(size=(curves, points))
    y = truth[:, :1] * np.exp(-truth[:, 1:2] * x) + truth[:, 2:] + noise
    data = np.stack([np.broadcast_to(x, y.shape), y], -1).astype("f")
    starts = np.tile(np.array([1.0, 1.0, 0.0], np.float32), (curves, 1))
    kernel = KERNELS["least squares"]()
    wanted = kernel.minimize(starts, sg.LevenbergMarquardt(), 60, rows=data)

    def export(path: Any) -> None:
        kernel.export_js(path, sg.LevenbergMarquardt(), each=True, steps=60)

    what = """await (async () => {
      const whole = await kernel.minimize(starts, { data });
      let last, count = 0;
      for await (last of kernel.minimizing(starts, { data, every: 2 })) count += 1;
      return [whole, last, count];
    })()"""
    whole, last, count = calls(browser, page, export, what, starts=starts, data=data)
    np.testing.assert_allclose(whole["x"].reshape(-1, 3), wanted.x, atol=1e-4)
    np.testing.assert_allclose(whole["fun"], wanted.fun, rtol=1e-4)
    assert (whole["success"] == 1).all()
    np.testing.assert_array_equal(whole["x"], last["x"])
    assert 2 <= count <= 31


def test_fits_and_minimisations_in_pairs(browser: Chromium, page: Page) -> None:
    """Numbers of double precision in and out, with more digits than float32 has."""
    truth, x = RNG.uniform([1, 0.5], [3, 2], (70, 2)), np.linspace(0, 3, 40)
    y = truth[:, :1] / (1 + truth[:, 1:] * x)
    data, starts = np.stack([np.broadcast_to(x, y.shape), y], -1), np.ones((70, 2))
    how: dict[str, Any] = {"device": "cpu", "dtype": "float32x2"}
    squares = sg.fused_least_squares(
        2, lambda p, r: p[0] / (1 + p[1] * r[0]) - r[1], row=2, **how)  # fmt: skip

    def export(path: Any) -> None:
        squares.export_js(path, sg.LevenbergMarquardt(), each=True, steps=60)

    found = calls(browser, page, export, "await kernel.minimize(x, { data })", x=starts, data=data)
    np.testing.assert_allclose(found["x"].reshape(-1, 2), truth, rtol=0, atol=1e-11)
    assert (found["success"] == 1).all()
    points = sg.fused_forward_backward(2, bowl, **how)
    wanted = points.minimize(truth[:9], sg.Newton(), 30)
    found = calls(browser, page, lambda path: points.export_js(path, sg.Newton(), steps=30),
                  "await kernel.minimize(x)", x=truth[:9])  # fmt: skip
    np.testing.assert_allclose(found["x"].reshape(-1, 2), wanted.x, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(found["nit"], wanted.nit)


def affine(f: Any, g: Any) -> Any:
    return g[0] * f[0], g[0] * f[1] + g[1]


def softmax(v: Any) -> Any:
    return np.exp(v - np.max(v)) / np.sum(np.exp(v - np.max(v)))


TENSORS = {
    "linear": (lambda: sg.linear(sg.gelu, device="cpu"), [(37, 19), (21, 19), (21,)]),
    "gemm_bias": (lambda: sg.gemm_bias(np.tanh, device="cpu"), [(2, 33, 20), (20, 35), (35,)]),
    "associative_scan": (lambda: sg.associative_scan(affine, device="cpu"), [(3, 500), (3, 500)]),
    "rowwise": (lambda: sg.rowwise(softmax, device="cpu"), [(33, 100)]),
    "selective_scan": (
        lambda: sg.selective_scan(device="cpu"),
        [(2, 30, 4), (2, 30, 4), (4, 8), (2, 30, 8), (2, 30, 8), (4,)],
    ),
}


SLOW = {("vjp", name) for name in TENSORS} | {("run", "gemm_bias")}
"""What SwiftShader takes long to compile."""


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        pytest.param(verb, name, marks=[pytest.mark.slow] if (verb, name) in SLOW else [])
        for verb in ("run", "vjp")
        for name in TENSORS
    ],
)
def test_kernels_of_arrays(verb: str, name: str, browser: Chromium, page: Page) -> None:
    make, shapes = TENSORS[name]
    kernel = make()
    arrays = [RNG.uniform(0.1, 1.0, shape).astype("f") for shape in shapes]
    wanted = kernel.run(*arrays)
    results = wanted if isinstance(wanted, tuple) else (wanted,)
    if verb == "vjp":
        cotangents = [RNG.normal(size=r.shape).astype("f") for r in results]
        gradients = kernel.vjp(*arrays, *cotangents)[1]
        arrays, results = arrays + cotangents, (*results, *gradients)
    given = [f"a{k}" for k in range(len(arrays))]
    names = [a.name for a in kernel._launch().inputs]
    pairs = ", ".join(f"{n}: {g}" for n, g in zip(names, given, strict=True))
    values = dict(zip(given, arrays, strict=True))
    found = calls(browser, page, kernel.export_js, f"await kernel.run({{{pairs}}})", **values)
    for result, wanted in zip(found.values(), results, strict=True):
        assert_near(np.ravel(result), np.ravel(wanted), 256.0)
