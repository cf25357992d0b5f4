"""Kernels in float64 on GPUs that have it: the bits of the CPU, and errors where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from three_variables import halvings, leaves, looked_up, points, predators

import symgrad as sg

GPUS = [d for d in sg.devices() if d.is_gpu and "float64" in d.dtypes]
needs_float64 = pytest.mark.skipif(not GPUS, reason="no GPU with float64 here")


def smooth(v: Any) -> Any:
    wave = sg.sin(v[0] * v[1]) * sg.exp(-(v[2] ** 2))
    return wave + sg.log1p(v[0] ** 2) / (1.0 + v[1] ** 2) + abs(v[2]) ** 1.5


def solved(v: Any) -> Any:
    matrix = sg.array([[2.0 + v[0] ** 2, v[1], 0.1], [v[1], 3.0, v[2]], [0.1, v[2], 4.0]])
    return np.linalg.solve(matrix, sg.array([v[0], 1.0, v[1]]))[0] + np.linalg.slogdet(matrix)[1]


def drawn(v: Any) -> Any:
    key = sg.random.key(7)
    return v @ sg.random.normal(key, (3,)) + sg.random.uniform(sg.random.fold_in(key, 3))


VERBS: list[tuple[Callable[..., Any], Any]] = [
    (sg.fused_forward_backward, smooth),
    (sg.fused_hessian, smooth),
    (sg.fused_forward_backward, predators(300)),
    (sg.fused_forward_backward, halvings),
    (sg.fused_forward_backward, solved),
    (sg.fused_forward, drawn),
    (sg.fused_forward_backward, looked_up),
    (sg.fused_jacobian, lambda v: {"r": np.hypot(v[0], v[1]), "a": np.arctan2(v[1], v[2])}),
]


def require_equal(made: Callable[[Any], Any], *arrays: np.ndarray) -> None:
    """Whether all devices with float64 give the bits of the CPU."""
    expected = leaves(made("cpu").run(*arrays))
    for gpu in GPUS:
        for got, want in zip(leaves(made(gpu).run(*arrays)), expected, strict=True):
            assert got.dtype == np.float64
            np.testing.assert_array_equal(got, want)


@needs_float64
@pytest.mark.parametrize(("verb", "f"), VERBS)
def test_strict_kernels_have_the_bits_of_the_cpu(verb: Any, f: Any) -> None:
    """Loops keep all of their states, however much memory a device has: that decides on sums."""
    options = {"dtype": "float64", "math": "strict", "checkpoint": "keep"}
    require_equal(lambda d: verb(3, f, device=d, **options), points())


@needs_float64
def test_products_with_second_derivatives_have_the_bits_of_the_cpu() -> None:
    at = points(40)
    require_equal(
        lambda d: sg.fused_hvp(3, smooth, device=d, dtype="float64", math="strict"), at, at[::-1]
    )


@needs_float64
def test_shaders_of_long_kernels_hand_float64_on_in_memory() -> None:
    def made(device: Any) -> Any:
        options = {"device": device, "dtype": "float64", "math": "strict"}
        return sg.fused_forward_backward(135, lambda v: sg.sqrt(1.0 + v @ v), **options)

    assert "scratch: array<vec4<f64>>" in made(GPUS[0]).wgsl
    require_equal(made, np.random.default_rng(5).normal(size=(70, 135)))


@needs_float64
def test_accurate_kernels_are_right_to_float64() -> None:
    at = points()
    for f in (smooth, predators(300), solved):
        cpu, gpu = (
            sg.fused_forward_backward(3, f, device=d, dtype="float64").run(at)
            for d in ("cpu", GPUS[0])
        )
        for got, want in zip(gpu, cpu, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@needs_float64
@pytest.mark.parametrize("count", [1, 63, 257, 70_000])
def test_batches_of_all_sizes_and_dtypes(count: int) -> None:
    kernel = sg.fused_forward_backward(
        2, lambda v: v[0] * v[1] ** 2, device=GPUS[0], dtype="float64"
    )
    x = np.random.default_rng(count).normal(size=(count, 2)).astype(np.float32)
    loss, grads = kernel.run(x)
    a, b = x.astype(np.float64).T
    np.testing.assert_allclose(loss, a * b**2, rtol=1e-15)
    np.testing.assert_allclose(grads, np.stack([b**2, 2 * a * b], axis=1), rtol=1e-15)
    out = np.empty(count), np.empty((count, 2))
    assert kernel.run(x, out=out) is out
    np.testing.assert_array_equal(out[0], loss)


@needs_float64
def test_constants_beyond_float32_and_numbers_that_are_none() -> None:
    def f(v: Any) -> Any:
        return {
            "large": 1e300 * v[0], "small": v[0] * 5e-324, "digits": v[0] + 0.1,
            "infinite": sg.where(v[0] > 0, np.inf, v[0]), "zero": -0.0 * v[0],
            "none": sg.where(v[0] > 0, v[0], np.nan),
        }  # fmt: skip

    at = np.array([[1.0], [-2.5], [1e10], [np.inf], [np.nan], [1e-320]])
    require_equal(lambda d: sg.fused_forward(1, f, device=d, dtype="float64", math="strict"), at)


@needs_float64
def test_arrays_on_the_device_compute_in_float64() -> None:
    a, b = points(40), points(40).astype(np.float32)[0]
    x = sg.device_array(a, GPUS[0], "float64")
    y, pairs = sg.device_array(b, GPUS[0]), sg.device_array(a, GPUS[0], "float32x2")
    exact = pairs.numpy()
    for got, want in (
        (x + y, a + b), (pairs[::2] - x[::2], (exact - a)[::2]),
        (2.5 * x - np.exp(x), 2.5 * a - np.exp(a)), (x[1:, ::2], a[1:, ::2]),
        (x.sum(axis=0), a.sum(axis=0)), (x.T.mean(), a.mean()), (x.std(axis=1), a.std(axis=1)),
        (np.concatenate([x, a]).cumsum(axis=1), np.concatenate([a, a]).cumsum(axis=1)),
    ):  # fmt: skip
        assert got.dtype == np.float64
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-14, atol=1e-14)
    kernel = sg.fused_forward_backward(3, smooth, device=GPUS[0], dtype="float64")
    for there, here in zip(kernel.run(x), kernel.run(a), strict=True):
        assert isinstance(there, sg.DeviceArray)
        np.testing.assert_array_equal(there.numpy(), here)
    with pytest.raises(sg.InputTypeError, match="compute with float64, and this array is float32"):
        kernel.run(sg.device_array(a, GPUS[0]))


METHODS: list[tuple[Any, Any]] = [
    (sg.LBFGS(), lambda v: (1 - v[0]) ** 2 + 100 * (v[1] - v[0] ** 2) ** 2),
    (sg.Newton(), lambda v: (1 - v[0]) ** 2 + 100 * (v[1] - v[0] ** 2) ** 2),
    (sg.LevenbergMarquardt(), lambda v: [1 - v[0], 10 * (v[1] - v[0] ** 2)]),
]


@needs_float64
@pytest.mark.parametrize(("method", "f"), METHODS)
def test_optimisers_take_the_steps_of_the_cpu(method: Any, f: Any) -> None:
    starts = points(30)[:, :2]
    options = {"steps": 200, "dtype": "float64", "math": "strict"}
    gpu, cpu = (
        sg.minimize_from(f, 2, starts, method, device=d, **options) for d in (GPUS[0], "cpu")
    )
    assert cpu.success.all() and gpu.x.dtype == np.float64
    np.testing.assert_array_equal(gpu.x, cpu.x)
    np.testing.assert_array_equal(gpu.nit, cpu.nit)
    np.testing.assert_allclose(cpu.x, 1.0, rtol=1e-9)


def of_row(p: Any, r: Any) -> Any:
    return (p.level[r.group] + sg.exp(p.slope[0] * r.x) - r.y) ** 2


@needs_float64
@pytest.mark.parametrize("verb", [sg.fused_forward_backward, sg.fused_hessian, sg.fused_jacobian])
def test_sums_over_rows_that_look_entries_up(verb: Any) -> None:
    draw = np.random.default_rng(2)
    rows = {
        "group": draw.integers(0, 9, 3000),
        "x": draw.normal(size=3000),
        "y": draw.normal(size=3000),
    }
    at = {"level": draw.normal(size=9), "slope": np.array([0.3])}
    reduce = None if verb is sg.fused_jacobian else "sum"

    def made(device: Any) -> Any:
        options = {"columns": list(rows), "device": device, "dtype": "float64", "reduce": reduce}
        return verb({"level": 9, "slope": 1}, of_row, **options)

    for got, want in zip(
        leaves(made(GPUS[0]).run(at, rows)), leaves(made("cpu").run(at, rows)), strict=True
    ):
        got, want = (getattr(a.item(), "data", a) if a.dtype == object else a for a in (got, want))
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


@needs_float64
def test_rows_with_loops_and_bound_rows() -> None:
    def f(p: Any, r: Any) -> Any:
        return sg.fori_loop(0, 20, lambda k, c: c + 0.1 * sg.sin(c * p[0] + r[0]), p[1]) - r[1]

    rows = np.random.default_rng(4).normal(size=(700, 2))
    results = []
    for device in (GPUS[0], "cpu"):
        kernel = sg.fused_least_squares(2, f, row=2, device=device, dtype="float64")
        held = sg.device_array(rows, device, "float64") if device != "cpu" else rows
        results.append(leaves(kernel.bind(held).run([0.7, 0.2])))
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


@needs_float64
def test_programs_and_kernels_of_arrays() -> None:
    def running(p: Any) -> None:
        x, y = p.input("x", 64), p.output("y", 64)
        with p.dispatch(64) as i:
            total = p.var("total", 0.0)
            with p.for_(0, i + 1) as k:
                p.assign(total, total.value + sg.exp(p.load(x, k)))
            p.store(y, i, total.value / (i + 1))

    draw = np.random.default_rng(6)
    x, w, g = draw.normal(size=(70, 33)), draw.normal(size=(20, 33)), draw.normal(size=(70, 20))
    calls: list[tuple[Callable[[Any], Any], tuple[Any, ...]]] = [
        (lambda d: sg.program(running, device=d, dtype="float64"), (x.ravel()[:64],) * 2),
        (lambda d: sg.linear(sg.tanh, bias=False, device=d, dtype="float64"), (x, w, g)),
        (lambda d: sg.rowwise(lambda r: sg.exp(r - r.max()), device=d, dtype="float64"), (x, x)),
    ]
    for made, arrays in calls:
        gpu, cpu = (leaves(made(d).vjp(*arrays)) for d in (GPUS[0], "cpu"))
        for got, want in zip(gpu, cpu, strict=True):
            assert got.dtype == np.float64
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@needs_float64
def test_a_kernel_reads_as_in_float32() -> None:
    def rosenbrock(v: Any) -> Any:
        return (1 - v[0]) ** 2 + 100 * (v[1] - v[0] ** 2) ** 2

    def made(dtype: Any) -> str:
        return sg.fused_forward_backward(
            2, rosenbrock, device="cpu", dtype=dtype, comments=False
        ).wgsl

    double = made("float64").replace("zero: u64", "zero: u32").replace("40 bytes", "20 bytes")
    for wide, narrow in (("f64", "f32"), ("float64", "float32"), ("0lf", "0f")):
        double = double.replace(wide, narrow)
    assert double == made("float32")


def test_devices_say_what_they_compute_in() -> None:
    for device in sg.devices():
        assert device.dtypes in (("float32", "float32x2"), ("float32", "float32x2", "float64"))
    assert "float64" in sg.devices()[-1].dtypes


@pytest.mark.parametrize(("name", "rate"), [
    ("NVIDIA H200", 1 / 2), ("NVIDIA A100-SXM4-80GB", 1 / 2), ("NVIDIA GeForce RTX 4090", 1 / 64),
    ("NVIDIA GeForce RTX 2080 Ti", 1 / 32), ("NVIDIA L40S", 1 / 64), ("NVIDIA A10", 1 / 64),
    ("AMD Radeon RX 6800 XT (RADV NAVI21)", 1 / 16), ("AMD Radeon RX 7600", 1 / 32),
    ("Tesla V100-SXM2-16GB", 1 / 2), ("Quadro RTX 5000", 1 / 32), ("Some GPU", None),
    ("NVIDIA H2000", None), ("NVIDIA GeForce RTX 2050", 1 / 64),
    ("NVIDIA RTX 2000 Ada Generation", 1 / 64),
])  # fmt: skip
def test_devices_say_how_fast_float64_is(name: str, rate: float | None) -> None:
    """As NVIDIA's programming guide and AMD's data sheets have it, and unknown elsewhere."""
    gpu = sg.Device(0, name, "discrete", "Vulkan", dtypes=("float32", "float32x2", "float64"))
    assert gpu.float64_rate == rate
    assert sg.devices()[-1].float64_rate == 0.5
    assert sg.Device(0, name, "discrete", "Metal").float64_rate == 0.0


def test_a_gpu_without_float64_is_named() -> None:
    lacking = sg.Device(0, "Small GPU", "integrated", "Metal")
    with pytest.raises(
        sg.DeviceError, match=r'Small GPU .* has no float64.*"float32x2".*device="cpu"'
    ):
        sg.fused_forward(1, lambda v: v[0], device=lacking, dtype="float64")
