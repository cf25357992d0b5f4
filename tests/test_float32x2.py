"""Kernels in float32x2, pairs of float32, through every verb, beside float64 on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from three_variables import halvings, leaves, looked_up, points, predators
from tint import check_with_tint, tint_available

import symgrad as sg

GPUS = [d for d in sg.devices() if d.is_gpu]
needs_gpu = pytest.mark.skipif(not GPUS, reason="no GPU here")
DEVICES = ["cpu", pytest.param("gpu", marks=needs_gpu)]
PAIRS: dict[str, Any] = {"dtype": "float32x2"}
DOUBLE: dict[str, Any] = {"dtype": "float64", "device": "cpu"}


def rosenbrock(v: Any) -> Any:
    return (1 - v[0]) ** 2 + 100 * (v[1] - v[0] ** 2) ** 2


def smooth(v: Any) -> Any:
    return v[0] * v[1] / (1.0 + v[2] ** 2) + sg.sqrt(1.0 + v[2] ** 2) * abs(v[0])


def drawn(v: Any) -> Any:
    return v[0] * sg.random.uniform(sg.random.key(7)) + sg.int32(1e6 * v[1]) % 1000


VERBS: list[tuple[Callable[..., Any], Any]] = [
    (sg.fused_hessian, smooth),
    (sg.fused_forward_backward, predators(60)),
    (sg.fused_forward_backward, halvings),
    (sg.fused_forward, drawn),
    (sg.fused_forward_backward, looked_up),
]


def rounded(x: np.ndarray) -> np.ndarray:
    """The numbers as pairs have them."""
    with np.errstate(over="ignore"):
        high = x.astype(np.float32)
    return high + (x - high).astype(np.float32).astype(float)


def rounded_points(count: int = 301) -> np.ndarray:
    return rounded(points(count))


def require_close(got: Any, want: Any, rtol: float = 1e-12) -> None:
    for a, b in zip(leaves(got), leaves(want), strict=True):
        assert a.dtype == np.float64
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("verb", "f"), VERBS)
def test_points_have_the_digits_of_pairs(verb: Any, f: Any, device: Any) -> None:
    want = verb(3, f, **DOUBLE).run(rounded_points())
    require_close(verb(3, f, device=device, **PAIRS).run(rounded_points()), want)


@needs_gpu
@pytest.mark.parametrize(("verb", "f"), VERBS[:3])
def test_strict_kernels_have_the_bits_of_the_cpu(verb: Any, f: Any) -> None:
    how = {"math": "strict", "checkpoint": "keep", **PAIRS}
    gpu, cpu = (leaves(verb(3, f, device=d, **how).run(rounded_points())) for d in ("gpu", "cpu"))
    for a, b in zip(gpu, cpu, strict=True):
        np.testing.assert_array_equal(a, b)


@needs_gpu
def test_large_batches_and_wide_rows_go_through_all_kinds_of_memory() -> None:
    """Rows of 20 results through a tile, in fours that are matrices, and streamed."""

    def ring(v: Any) -> Any:
        return [v[k] * v[(k + 1) % 20] - v[(3 * k) % 20] for k in range(20)]

    x = rounded(np.random.default_rng(1).normal(size=(40_000, 20)))
    want = sg.fused_forward(20, ring, **DOUBLE).run(x)
    require_close(sg.fused_forward(20, ring, device="gpu", **PAIRS).run(x), want)


@needs_gpu
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_of_any_order_are_rounded_to_pairs(order: Any) -> None:
    """More numbers than are converted at a time, zeros and infinities among them."""
    magnitudes = 10.0 ** np.random.default_rng(1).uniform(-20, 20, (10_000, 3))
    x = np.asarray(magnitudes * [1.0, -1.0, 1.0], order=order)
    x[::1000] = [[0.0, -0.0, np.inf]]
    values = sg.fused_forward(3, lambda v: sg.array(list(v)), device="cpu", **PAIRS).run(x)
    with np.errstate(invalid="ignore"):
        want = np.where(np.isinf(x), x, rounded(x))
    np.testing.assert_array_equal(values, want)
    np.testing.assert_array_equal(np.signbit(values), np.signbit(x))


def test_a_kernel_names_its_operations() -> None:
    kernel = sg.fused_forward(2, lambda v: v[0] * v[1] + 0.1, device="gpu", comments=False, **PAIRS)
    main = kernel.wgsl.partition("fn main")[2]
    assert "pair_fma(x0, x1, " in main and "f64" not in kernel.wgsl
    assert "vec2<f32>(0.1f, -1.4901161e-09f)" in main and "bitcast" not in main
    strict = sg.fused_forward(2, lambda v: v[0] * v[1] + 0.1, math="strict", device="gpu", **PAIRS)
    assert "pair_mul(x0, x1)" in strict.wgsl and "pair_fma" not in strict.wgsl
    for definition in kernel.wgsl.split("\nfn pair_")[1:]:
        assert len(definition.partition("\n}")[0].splitlines()) < 30


@pytest.mark.skipif(not tint_available(), reason="no Tint here")
@needs_gpu
def test_tint_takes_kernels_of_pairs() -> None:
    long = sg.fused_forward_backward(135, lambda v: sg.sqrt(1.0 + v @ v), device="gpu", **PAIRS)
    assert "scratch: array<mat4x2<f32>>" in long.wgsl
    kernels = [long, *(verb(3, f, device="gpu", **PAIRS) for verb, f in VERBS)]
    sources = [module for kernel in kernels for module in kernel.modules]
    assert [fault for fault in check_with_tint(sources) if fault] == []


@needs_gpu
def test_arrays_on_the_device_are_pairs() -> None:
    a = rounded_points(40)
    x, y = sg.device_array(a, "gpu", "float32x2"), sg.device_array(a.astype(np.float32)[0], "gpu")
    b = a.astype(np.float32)[0].astype(float)
    for got, want in (
        (x + y, a + b), (2.5 * x - x / 3.0, 2.5 * a - a / 3), (x[1:, ::2], a[1:, ::2]),
        (x.sum(axis=0), a.sum(axis=0)), (x.T.mean(), a.mean()), (x.max(axis=1), a.max(axis=1)),
        (np.concatenate([x, a])[5:50], np.concatenate([a, a])[5:50]),
    ):  # fmt: skip
        assert "float32x2" in repr(got)
        require_close(np.asarray(got), want, 1e-13)
    kernel = sg.fused_forward_backward(3, smooth, device="gpu", **PAIRS)
    for there, here in zip(kernel.run(x), kernel.run(a), strict=True):
        assert isinstance(there, sg.DeviceArray)
        np.testing.assert_array_equal(there.numpy(), here)
    with pytest.raises(sg.InputTypeError, match="with float32x2, and this array is float32"):
        kernel.run(sg.device_array(a, "gpu"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", [sg.LBFGS(), sg.LevenbergMarquardt()])
def test_optimisers_end_where_float64_does(method: Any, device: Any) -> None:
    squares = isinstance(method, sg.LevenbergMarquardt)
    f = (lambda v: [1 - v[0], 10 * (v[1] - v[0] ** 2)]) if squares else rosenbrock
    ends = sg.minimize_from(
        f, 2, rounded_points(30)[:, :2], method, steps=200, device=device, **PAIRS
    )
    assert ends.success.all() and ends.x.dtype == np.float64
    np.testing.assert_allclose(ends.x, 1.0, rtol=1e-9)


def of_row(p: Any, r: Any) -> Any:
    return (p.level[r.group] + p.slope[0] * r.x / (1.0 + r.x**2) - r.y) ** 2


@pytest.mark.parametrize("device", DEVICES)
def test_sums_over_rows(device: Any) -> None:
    draw = np.random.default_rng(2)
    rows = {
        "group": draw.integers(0, 9, 3000),
        "x": draw.normal(size=3000),
        "y": draw.normal(size=3000),
    }
    at = {"level": draw.normal(size=9), "slope": np.array([0.3])}

    def loss(**how: Any) -> Any:
        options = {"columns": list(rows), **how}
        value, slopes = sg.fused_forward_backward({"level": 9, "slope": 1}, of_row, **options).run(
            at, rows
        )
        return value, slopes["level"], slopes["slope"]

    require_close(loss(device=device, **PAIRS), loss(**DOUBLE))


@pytest.mark.parametrize("device", DEVICES)
def test_least_squares_and_fits(device: Any) -> None:
    def residual(p: Any, r: Any) -> Any:
        return p[0] + p[1] * r[0] / (1 + p[2] * r[0] ** 2) - r[1]

    x = np.linspace(-2, 2, 500)
    y = 1 + 2 * x / (1 + 0.5 * x**2) + 1e-3 * np.random.default_rng(0).normal(size=500)
    kernel = sg.fused_least_squares(3, residual, row=2, device=device, **PAIRS)
    rows, start = np.stack([x, y], 1), [1.0, 1.0, 1.0]
    double = sg.fused_least_squares(3, residual, row=2, **DOUBLE)
    want = double.fit(start, rows, device="cpu").x
    got = kernel.fit(start, rows, device=device, **PAIRS).x
    np.testing.assert_allclose(got, want, rtol=1e-11)

    def model(x: Any, a: Any, b: Any, c: Any) -> Any:
        return a + b * x / (1 + c * x**2)

    popt, _ = sg.curve_fit(model, x, y, start, device=device, **PAIRS)
    np.testing.assert_allclose(popt, want, rtol=1e-10)
    fits = sg.fit_many(model, x, np.stack([y, 2 * y]), start, device=device, **PAIRS)
    np.testing.assert_allclose(fits.x[0], want, rtol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_programs_and_kernels_of_arrays(device: Any) -> None:
    def running(p: Any) -> None:
        x, y = p.input("x", 64), p.output("y", 64)
        with p.dispatch(64) as i:
            total = p.var("total", 0.0)
            with p.for_(0, i + 1) as k:
                p.assign(total, total.value + p.load(x, k) ** 2)
            p.store(y, i, total.value / (i + 1))

    x = rounded(np.random.default_rng(6).normal(size=(70, 33)))
    flat = x.ravel()[:64]
    want = np.cumsum(flat * flat) / np.arange(1, 65)
    require_close(sg.program(running, device=device, **PAIRS).run(flat), want)
    means = sg.rowwise(lambda r: (r - r.mean()) / r.max(), device=device, **PAIRS).run(x)
    require_close(means, (x - x.mean(1, keepdims=True)) / x.max(1, keepdims=True))
    if device == "cpu":
        pairs, double = (
            sg.value_and_grad(lambda a: ((a[1:] - a[:-1] ** 2) ** 2).sum(), **how)(flat)
            for how in ({"device": device, **PAIRS}, DOUBLE)
        )
        require_close(pairs, double)


@needs_gpu
def test_several_devices_share_points_and_problems() -> None:
    both = [sg.devices()[0], sg.devices()[-1]]
    want = sg.fused_forward(3, smooth, **DOUBLE).run(rounded_points(5000))
    require_close(sg.fused_forward(3, smooth, device=both, **PAIRS).run(rounded_points(5000)), want)
    starts = np.tile(rounded_points(30)[:, :2], (100, 1))
    ends = sg.minimize_from(rosenbrock, 2, starts, sg.LBFGS(), steps=200, device=both, **PAIRS)
    np.testing.assert_allclose(ends.x, 1.0, rtol=1e-9)


def test_numbers_beyond_float32_are_refused_or_infinite() -> None:
    with pytest.raises(sg.InputError, match="beyond float32's largest number"):
        sg.fused_forward(1, lambda v: 1e300 * v[0], device="cpu", **PAIRS).run([[1.0]])
    kernel = sg.fused_forward(1, lambda v: v[0], device="cpu", **PAIRS)
    given = np.array([[1e300], [-1e39], [0.1], [np.nan], [-0.0]])
    values = kernel.run(given)
    np.testing.assert_array_equal(values, [np.inf, -np.inf, rounded(np.array(0.1)), np.nan, 0.0])
    assert np.signbit(values[4])


def test_a_kernel_says_what_it_computes_in() -> None:
    kernel = sg.fused_forward(1, lambda v: v[0], device="cpu", **PAIRS)
    assert kernel.precision == "float32x2" and kernel.dtype == np.float64
    assert "float32x2" in repr(kernel)
