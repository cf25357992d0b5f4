"""Layers: products with biases and activations, and their gradients, on every device."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from tensor_arrays import Shape, drawn, errors, summed

import symgrad as sg
from symgrad.kernel.skeletons import tiles as tile_choice
from symgrad.kernel.skeletons.tiles import CHOICES, WIDE_CHOICES, Tiles, chosen
from symgrad.targets import DeviceChoice, choose

DEVICES: list[Literal["cpu", "gpu"]] = ["cpu", "gpu"]
BOUND = {"float32": 2e-5, "float64": 1e-12}

SHAPES: list[tuple[Shape, Shape]] = [
    ((1, 1), (1, 1)), ((7, 5), (5, 3)), ((33, 129), (129, 7)), ((2, 33, 17), (17, 1)),
    ((2, 3, 16, 8), (3, 8, 12)), ((5, 4), (6, 4, 9)), ((3, 1, 8, 8), (4, 8, 8)),
    ((2, 1, 3, 4), (5, 4, 2)), ((130, 260), (260, 132)), ((1, 300), (300, 1)),
    ((64, 2049), (2049, 5)),
    ((2, 1, 2, 2, 2), (3, 1, 2, 2)),
    ((0, 4), (4, 3)), ((3, 0), (0, 2)), ((0, 3, 4), (4, 2)), ((2, 0, 5), (2, 5, 3)),
]  # fmt: skip


def of_gelu(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tanh form of gelu, and its derivative by hand."""
    a, b = np.sqrt(2 / np.pi), 0.044715
    t = np.tanh(a * (z + b * z**3))
    return 0.5 * z * (1 + t), 0.5 * (1 + t) + 0.5 * z * (1 - t**2) * a * (1 + 3 * b * z**2)


def of_exact_gelu(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    phi = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    whole = 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(z / np.sqrt(2)))
    return z * whole, whole + z * phi


def of_silu(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = 1 / (1 + np.exp(-z))
    return z * s, s * (1 + z * (1 - s))


def of_sigmoid(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = 1 / (1 + np.exp(-z))
    return s, s * (1 - s)


def own(z: Any) -> Any:
    """A function of the user's, with a branch and a square."""
    return sg.where(z > 0.5, z**2, 0.1 * z)


def of_own(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.where(z > 0.5, z**2, 0.1 * z), np.where(z > 0.5, 2 * z, 0.1)


Meaning = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

ACTIVATIONS: dict[str, tuple[Any, Meaning]] = {
    "none": (None, lambda z: (z, np.ones_like(z))),
    "relu": (sg.relu, lambda z: (np.maximum(z, 0), (z > 0).astype(float))),
    "gelu": (sg.gelu, of_exact_gelu),
    "gelu_tanh": (sg.gelu_tanh, of_gelu),
    "silu": (sg.silu, of_silu),
    "sigmoid": (sg.sigmoid, of_sigmoid),
    "tanh": (np.tanh, lambda z: (np.tanh(z), 1 - np.tanh(z) ** 2)),
    "own": (own, of_own),
}


def wanted(a: np.ndarray, b: np.ndarray, bias: np.ndarray, g: np.ndarray, of: Meaning) -> Any:
    """The result and the gradients of gemm_bias, in float64."""
    value, derivative = of(a @ b + bias)
    slope = g * derivative
    rows = slope.reshape(int(np.prod(slope.shape[:-1])), slope.shape[-1])
    return [value, summed(slope @ b.mT, a.shape), summed(a.mT @ slope, b.shape), rows.sum(0)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_gemm_bias_and_its_gradients(shapes: tuple[Shape, Shape], device: DeviceChoice) -> None:
    rng = np.random.default_rng(0)
    f, of = ACTIVATIONS["tanh"]
    a, b = drawn(rng, shapes[0], max(shapes[0][-1], 1) ** -0.5), drawn(rng, shapes[1])
    bias = drawn(rng, shapes[1][-1:])
    g = drawn(rng, (a @ b).shape)
    kernel = sg.gemm_bias(f, device=device)
    result, gradients = kernel.vjp(a, b, bias, g)
    found = errors([result, *gradients], wanted(a, b, bias, g, of))
    assert max(found) <= BOUND["float32"]
    alone = kernel.run(a, b, bias)
    assert alone.dtype == result.dtype == np.float32
    assert max(errors([alone], [of(a @ b + bias)[0]])) <= BOUND["float32"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation(name: str, device: DeviceChoice) -> None:
    rng = np.random.default_rng(1)
    f, of = ACTIVATIONS[name]
    a, b, bias, g = (drawn(rng, s) for s in ((2, 9, 7), (7, 12), (12,), (2, 9, 12)))
    result, gradients = sg.gemm_bias(f, device=device).vjp(a, b, bias, g)
    assert max(errors([result, *gradients], wanted(a, b, bias, g, of))) <= BOUND["float32"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(5,), (2, 9, 33), (129, 64), (1, 1), (0, 3)], ids=str)
def test_linear_is_a_product_with_the_transposed(shape: Shape, device: DeviceChoice) -> None:
    rng = np.random.default_rng(2)
    f, of = ACTIVATIONS["silu"]
    x, w, b = drawn(rng, shape, shape[-1] ** -0.5), drawn(rng, (7, shape[-1])), drawn(rng, (7,))
    g = drawn(rng, (x @ w.T).shape)
    result, gradients = sg.linear(f, device=device).vjp(x, w, b, g)
    rows = x.reshape(-1, shape[-1]) if x.size else np.empty((0, shape[-1]))
    value, dx, dw, db = wanted(rows, w.T, b, g.reshape(len(rows), 7), of)
    expected = [value.reshape(g.shape), dx.reshape(x.shape), dw.T, db]
    assert max(errors([result, *gradients], expected)) <= BOUND["float32"]


TILES = [*[(tiles, "float32") for tiles, _ in CHOICES], (WIDE_CHOICES[0][0], "float64")]


@pytest.mark.parametrize(("tiles", "dtype"), TILES, ids=str)
def test_all_tiles_that_large_products_choose(
    tiles: Tiles, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype not in choose("gpu").dtypes:
        pytest.skip("the GPU has no float64")
    for name in ("CHOICES", "WIDE_CHOICES"):
        monkeypatch.setattr(tile_choice, name, ((tiles, 1.0),))
    rng = np.random.default_rng(5)
    x, w, g = drawn(rng, (140, 68)), drawn(rng, (20, 68)), drawn(rng, (140, 20))
    y, gradients = sg.linear(bias=False, device="gpu", dtype=dtype).vjp(x, w, g)
    assert max(errors([y, *gradients], [x @ w.T, g @ w, g.T @ x])) <= BOUND[dtype]


def test_float64_on_the_cpu() -> None:
    rng = np.random.default_rng(3)
    f, of = ACTIVATIONS["gelu"]
    a, b, bias, g = (drawn(rng, s) for s in ((9, 7), (7, 12), (12,), (9, 12)))
    result, gradients = sg.gemm_bias(f, device="cpu", dtype="float64").vjp(a, b, bias, g)
    assert max(errors([result, *gradients], wanted(a, b, bias, g, of))) <= BOUND["float64"]
    assert result.dtype == np.float64
    lacking = sg.Device(0, "Small GPU", "integrated", "Metal")
    with pytest.raises(sg.DeviceError, match="has no float64"):
        sg.gemm_bias(dtype="float64", device=lacking)


@pytest.mark.parametrize("device", DEVICES)
def test_without_a_bias(device: DeviceChoice) -> None:
    x, w = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(4, 3)
    kernel = sg.linear(sg.relu, bias=False, device=device)
    result, (dx, dw) = kernel.vjp(x, w, np.ones((2, 4)))
    assert result.tolist() == (x @ w.T).tolist()
    on = (x @ w.T > 0) * 1.0
    assert dx.tolist() == (on @ w).tolist() and dw.tolist() == (on.T @ x).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_infinities_and_nan_stay_in_their_rows(device: DeviceChoice) -> None:
    a = np.ones((5, 3))
    a[1, 2], a[3, 0] = np.inf, np.nan
    found = sg.gemm_bias(device=device).run(a, np.ones((3, 2)), np.zeros(2))
    assert found[[0, 2, 4]].tolist() == [[3.0, 3.0]] * 3
    assert np.isinf(found[1]).all() and np.isnan(found[3]).all()


def test_device_arrays_stay_on_the_device() -> None:
    rng = np.random.default_rng(4)
    arrays = [drawn(rng, s) for s in ((9, 7), (7, 12), (12,), (9, 12))]
    kernel = sg.gemm_bias(sg.tanh, device="gpu")
    there = [sg.device_array(a, device="gpu") for a in arrays]
    result, gradients = kernel.vjp(*there)
    plain, expected = kernel.vjp(*arrays)
    assert isinstance(result, sg.DeviceArray) and result.shape == (9, 12)
    assert np.array_equal(result.numpy(), plain)
    for found, same in zip(gradients, expected, strict=True):
        assert isinstance(found, sg.DeviceArray) and np.array_equal(found.numpy(), same)
    mixed = kernel.run(there[0], *arrays[1:3])
    assert isinstance(mixed, sg.DeviceArray) and np.array_equal(mixed.numpy(), plain)
    with pytest.raises(sg.InputTypeError, match="A is on"):
        kernel.to("cpu").run(*there[:3])
    whole = sg.device_array(np.ones((9, 7)), device="gpu", dtype="int32")
    with pytest.raises(sg.InputTypeError, match="A is of int32"):
        kernel.run(whole, *there[1:3])


def test_the_same_bits_every_time() -> None:
    rng = np.random.default_rng(5)
    arrays = [drawn(rng, s) for s in ((40, 300), (300, 33), (33,), (40, 33))]
    kernel = sg.gemm_bias(sg.gelu, device="gpu")
    (y, first), (z, second) = kernel.vjp(*arrays), kernel.vjp(*arrays)
    assert all(np.array_equal(a, b) for a, b in zip((y, *first), (z, *second), strict=True))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: sg.gemm_bias(device="cpu").run(np.ones((2, 3)), np.ones((4, 5)), np.ones(5)),
         r"B has shape \(4, 5\): it must have 3 rows, for A has shape \(2, 3\)"),
        (lambda: sg.linear(device="cpu").run(np.ones((2, 3)), np.ones((4, 5)), np.ones(4)),
         r"W has shape \(4, 5\): it must have 3 columns, for X has shape \(2, 3\)"),
        (lambda: sg.gemm_bias(device="cpu").run(np.ones((2, 3)), np.ones((3, 5)), np.ones(4)),
         r"bias has shape \(4,\): the result has 5 columns"),
        (lambda: sg.gemm_bias(device="cpu").run(np.ones(3), np.ones((3, 5)), np.ones(5)),
         r"A has shape \(3,\)"),
        (lambda: sg.gemm_bias(device="cpu").run(
            np.ones((2, 2, 3)), np.ones((4, 3, 5)), np.ones(5)), "batches do not broadcast"),
        (lambda: sg.gemm_bias(device="cpu").run(np.ones((2, 3)), np.ones((3, 5))),
         r"takes 3 arrays \(A, B, bias\), not 2"),
        (lambda: sg.gemm_bias(device="cpu").vjp(
            np.ones((2, 3)), np.ones((3, 5)), np.ones(5), np.ones((2, 4))),
         r"the cotangent has shape \(2, 4\), the result \(2, 5\)"),
        (lambda: sg.linear(device="cpu").wgsl, "call run or vjp first"),
    ],
)  # fmt: skip
def test_wrong_shapes_are_refused(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(sg.InputError, match=text):
        call()


def test_wrong_values_are_refused() -> None:
    kernel = sg.gemm_bias(device="cpu")
    with pytest.raises(sg.InputTypeError, match="B holds complex"):
        kernel.run(np.ones((2, 3)), np.ones((3, 5)) * 1j, np.ones(5))
    with pytest.raises(sg.InputTypeError, match="activation='relu'"):
        sg.gemm_bias("relu", device="cpu")  # pyright: ignore[reportArgumentType]
    with pytest.raises(sg.TraceError, match=r"the activation returned \(.*one number is needed"):
        sg.linear(lambda z: (z, z), device="cpu")


def test_a_kernel_tells_what_it_runs() -> None:
    kernel = sg.linear(sg.gelu, device="cpu")
    x, w, b = np.ones((64, 32)), np.ones((48, 32)), np.ones(48)
    kernel.run(x, w, b)
    assert kernel.wgsl.count("@compute") == len(kernel.modules) == kernel.stats.kernels
    assert kernel.stats.flops > 64 * 32 * 48
    assert kernel.stats.bytes == 4 * (64 * 32 + 48 * 32 + 48 + 64 * 48)
    kernel.vjp(x, w, b, np.ones((64, 48)))
    assert kernel.stats.kernels >= 4
    assert repr(kernel).startswith("<symgrad kernel linear(X, W, b); float32 on ")
    profile = kernel.profile(x, w, b)
    assert profile.result.shape == (64, 48) and profile.bytes


def test_a_kernel_pickles_and_moves() -> None:
    kernel = sg.linear(sg.gelu, device="cpu")
    arrays = np.arange(6.0).reshape(2, 3), np.ones((4, 3)), np.zeros(4)
    expected = kernel.run(*arrays)
    copy = pickle.loads(pickle.dumps(kernel))
    assert np.array_equal(copy.run(*arrays), expected)
    np.testing.assert_allclose(copy.to("gpu").run(*arrays), expected, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["none", "gelu_tanh"])
def test_what_the_activation_is_of_can_be_kept(name: str, device: DeviceChoice) -> None:
    rng = np.random.default_rng(6)
    f, of = ACTIVATIONS[name]
    a, b, bias, g = (drawn(rng, s) for s in ((2, 9, 7), (7, 12), (12,), (2, 9, 12)))
    kernel = sg.gemm_bias(f, device=device)
    result, kept = kernel.run(a, b, bias, keep=True)
    assert max(errors([result, kept], [of(a @ b + bias)[0], a @ b + bias])) <= 2e-6
    again, gradients = kernel.vjp(a, b, bias, g, kept=kept)
    assert max(errors([again, *gradients], wanted(a, b, bias, g, of))) <= BOUND["float32"]
    with pytest.raises(sg.InputError, match=r"the kept has shape \(2,\)"):
        kernel.vjp(a, b, bias, g, kept=np.ones(2))


def test_gradients_from_what_was_kept_need_a_product_less() -> None:
    kernel = sg.linear(sg.gelu, device="cpu")
    arrays = np.ones((256, 128)), np.ones((192, 128)), np.ones(192), np.ones((256, 192))
    kernel.vjp(*arrays)
    products = kernel.stats.flops
    kernel.vjp(*arrays, kept=np.ones((256, 192)))
    assert kernel.stats.flops < 0.8 * products
    empty = np.ones((0, 32)), np.ones((48, 32)), np.ones(48)
    result, kept = kernel.run(*empty, keep=True)
    assert result.shape == kept.shape == (0, 48)
    _, (_, dw, _) = kernel.vjp(*empty, result, kept=kept)
    assert not dw.any()


def test_work_is_shared_out_by_the_shape() -> None:
    large, whole = chosen(8192, 1024, 1024, 1)
    small, parts = chosen(64, 64, 65536, 1)
    narrow, _ = chosen(8192, 1, 1024, 1)
    assert whole == 1 < parts and large.width * parts > small.width
    assert large.rows == large.columns > narrow.columns
    assert chosen(8192, 1024, 1024, 1, 8)[0].down < large.down  # of wide numbers fewer
    every = (*CHOICES, *WIDE_CHOICES)
    assert all(tiles.nbytes <= 16_384 and tiles.width <= 256 for tiles, _ in every)
