"""Arrays on a GPU are NumPy's arrays, as far as they go: tables of calls, and random shapes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import symgrad as sg
from symgrad.errors import DeviceError, InputError, InputTypeError
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu, list_gpus, open_gpu

pytestmark = pytest.mark.skipif(not list_gpus(), reason="no GPU and no software driver here")

EPS = float(np.finfo(np.float32).eps)


def there(array: Any, dtype: Any = np.float32) -> DeviceArray:
    return DeviceArray.from_numpy(open_gpu(), np.asarray(array), np.dtype(dtype))


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def check(found: Any, wanted: Any, ulp: float = 0.0) -> None:
    """That a device array is NumPy's array, to so many units of the last place of its elements."""
    assert isinstance(found, DeviceArray)
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.numpy(), wanted, rtol=ulp * EPS, atol=0.0)


ELEMENTWISE: dict[str, tuple[Callable[..., Any], float]] = {
    "a + 1": (lambda a, b: a + 1, 0),
    "1 - a": (lambda a, b: 1 - a, 0),
    "a * b": (lambda a, b: a * b, 0),
    "a - 0.1 * b": (lambda a, b: a - np.float32(0.1) * b, 0),
    "a / b": (lambda a, b: a / b, 2),
    "-a": (lambda a, b: -a, 0),
    "abs(a)": (lambda a, b: abs(a), 0),
    "a ** 2": (lambda a, b: a**2, 0),
    "a ** -3": (lambda a, b: a**-3, 4),
    "abs(a) ** b": (lambda a, b: abs(a) ** b, 4),
    "abs(a) ** 0.5": (lambda a, b: abs(a) ** 0.5, 2),
    "a % b": (lambda a, b: a % b, 0),
    "np.exp": (lambda a, b: np.exp(a), 3),
    "np.maximum": (lambda a, b: np.maximum(a, b), 0),
    "np.minimum(a, 0)": (lambda a, b: np.minimum(a, 0), 0),
    "np.clip": (lambda a, b: np.clip(a, -0.5, np.float32(0.25)), 0),
    "a * row": (lambda a, b: a * b[:1], 0),
    "a * column": (lambda a, b: a * b[:, :1], 0),
    "a + a": (lambda a, b: a + a, 0),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_arithmetic(name: str) -> None:
    function, ulp = ELEMENTWISE[name]
    a, b = drawn(37, 11), drawn(37, 11, seed=1)
    check(function(there(a), there(b)), function(a, b), ulp)


@pytest.mark.parametrize("name", ["a * b", "a + 1", "a * row"])
def test_arrays_of_numpy_take_part(name: str) -> None:
    function, _ = ELEMENTWISE[name]
    a, b = drawn(37, 11), drawn(37, 11, seed=1)
    check(function(there(a), b), function(a, b))
    if "b" in name:
        check(function(a, there(b)), function(a, b))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_indexing(data: st.DataObject) -> None:
    shape = data.draw(npst.array_shapes(min_dims=1, max_dims=4, max_side=70))
    key = data.draw(npst.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    dtype = data.draw(st.sampled_from([np.float32, np.int32, np.uint32]))
    a = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    check(there(a, dtype)[key], a[key])


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_reductions(data: st.DataObject) -> None:
    shape = data.draw(npst.array_shapes(min_dims=1, max_dims=3, max_side=90))
    axis = data.draw(st.none() | npst.valid_tuple_axes(len(shape), min_size=1))
    name = data.draw(st.sampled_from(["sum", "max", "min", "mean", "prod"]))
    keepdims = data.draw(st.booleans())
    a = 1 + 1e-4 * drawn(*shape)
    wanted = getattr(np, name)(a.astype(float), axis=axis, keepdims=keepdims)
    longest = a.size / np.size(wanted)
    check(getattr(np, name)(there(a), axis=axis, keepdims=keepdims), wanted, 4 + longest / 2)


def test_sums_of_many_are_as_exact_as_numpys() -> None:
    a = drawn(3, 700_001)
    errors = [
        np.abs(np.asarray(found) - a.sum(1, dtype=float)) for found in (there(a).sum(1), a.sum(1))
    ]
    assert errors[0].max() <= 2 * errors[1].max() + EPS * np.abs(a).sum(1).max() / 64


def test_extremes_know_nan_and_infinity() -> None:
    a = drawn(4, 1000)
    a[1, 500], a[2, 7], a[3, 9] = np.nan, np.inf, -np.inf
    for name in ("max", "min", "sum"):
        check(getattr(there(a), name)(1), getattr(a.astype(float), name)(1), 1000)


def test_spread() -> None:
    a = drawn(50, 8)
    check(there(a).std(axis=0), a.astype(float).std(axis=0), 20)
    check(np.var(there(a), axis=1, ddof=1), a.astype(float).var(axis=1, ddof=1), 20)


def test_transposes_and_shapes() -> None:
    a = drawn(5, 70, 3)
    x = there(a)
    check(x.T, a.T)
    check(np.transpose(x, (1, 0, 2)), a.transpose(1, 0, 2))
    check(x.transpose(2, -2, 0), a.transpose(2, 1, 0))
    check(np.reshape(x, (350, -1)), a.reshape(350, 3))
    check(x.ravel(), a.ravel())
    assert (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1)) == (a.shape, 3, 1050, 70)
    with pytest.raises(InputError, match="not a permutation of the 3"):
        x.transpose(0, 0, 1)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_arrays_are_put_together(axis: int | None) -> None:
    a, b = drawn(7, 5), drawn(7, 5, seed=1)
    check(
        np.concatenate([there(a), b, there(a)[::-1]], axis), np.concatenate([a, b, a[::-1]], axis)
    )
    if axis is not None:
        check(np.stack([there(a), there(b)], axis), np.stack([a, b], axis))


def test_indices_keep_their_bits() -> None:
    a = np.array([[2**31 - 1, -(2**31)], [2**24 + 1, -1]], np.int32)
    check(there(a, np.int32).T, a.T)
    check(np.concatenate([there(a, np.int32), a]), np.concatenate([a, a]))
    assert sg.device_array(a, "gpu", dtype="int32").numpy().dtype == np.int32
    assert int(there(a, np.int32).max()) == 2**31 - 1
    assert isinstance(there(a, np.int32) + 1, np.ndarray)
    for wrong in ([0.5], [2**31], [np.nan]):
        with pytest.raises(InputError, match="not int32"):
            sg.device_array(wrong, "gpu", dtype="int32")
    with pytest.raises(InputTypeError, match="float32, float32x2, float64, int32 or uint32"):
        sg.device_array([1.0], "gpu", dtype="float16")


def test_views_share_memory_where_they_can() -> None:
    x = there(drawn(300, 64))
    live = open_gpu().pool.live
    views = [x[:100], x[100:], x[5], x.reshape(64, 300), x.ravel()[64:128]]
    assert open_gpu().pool.live == live and all(v.is_shared for v in views)
    assert not x[:, 1].is_shared and not x.copy().is_shared and not copy.copy(x).is_shared


def test_kernels_take_views() -> None:
    kernel = sg.fused_forward_backward(3, lambda v: v[0] * v[1] + v[2], device="gpu")
    a = drawn(500, 64)
    for key in (slice(100, 300), slice(128, None), slice(None, None, 3)):
        values, slopes = kernel.run(there(a)[key].reshape(-1, 64)[:, :3])
        wanted = kernel.run(a[key][:, :3])
        np.testing.assert_array_equal(values.numpy(), wanted[0])
        np.testing.assert_array_equal(slopes.numpy(), wanted[1])
    flat = there(a.reshape(-1, 1))
    square = sg.fused_forward(1, lambda v: v[0] * v[0], device="gpu")
    check(square.run(flat[64:]), (a * a).ravel()[64:])


def test_what_kernels_cannot_do_numpy_does() -> None:
    a = drawn(30)
    x = there(a)
    for found, wanted in (
        (x > 0, a > 0), (x == a, a == a), (np.sort(x), np.sort(a)), (np.isnan(x), np.isnan(a)),
        (np.cumsum(x, dtype=np.float64), np.cumsum(a, dtype=np.float64)),
        (np.sum(x, where=a > 0), np.sum(a, where=a > 0)),
        (np.subtract.accumulate(x), np.subtract.accumulate(a)), (x @ a, a @ a),
    ):  # fmt: skip
        assert not isinstance(found, DeviceArray)
        np.testing.assert_array_equal(found, wanted)
    out = np.empty(30, np.float32)
    assert np.add(x, 1, out=out) is out
    np.testing.assert_array_equal(out, a + 1)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_sums_and_others_up_to_each_element(axis: int | None) -> None:
    a = 1.0 + 0.1 * drawn(3, 70, 5)
    x, exact = there(a), a.astype(np.float64)
    check(np.cumsum(x, axis), np.cumsum(exact, axis), 20)
    check(x.cumprod(axis), np.cumprod(exact, axis), 500)
    if axis is not None:
        for ufunc in (np.add, np.maximum, np.minimum, np.logaddexp):
            check(ufunc.accumulate(x, axis), ufunc.accumulate(exact, axis), 20)
    whole = there(np.arange(6).reshape(2, 3), "int32").cumsum(0)
    assert whole.dtype == np.int32 and whole.tolist() == [[0, 1, 2], [3, 5, 7]]
    with pytest.raises(InputError, match="axis"):
        x.cumsum(3)


def test_a_number_of_its_own() -> None:
    x = there(drawn(3))
    assert float(x[1]) == x[1].item() == drawn(3)[1] and int(there([7])) == 7 and bool(there(1))
    assert x.tolist() == drawn(3).tolist()
    assert x.wait() is x
    assert x.astype("float64").dtype == np.float64
    assert [float(e) for e in x] == drawn(3).tolist()
    with pytest.raises(InputError, match="not a single number"):
        float(x)


def test_empty_arrays() -> None:
    x = there(np.zeros((0, 3)))
    check(x + 1, np.zeros((0, 3)))
    check(x.sum(0), np.zeros(3))
    check(x.prod(0), np.ones(3))
    check(x.max(1), np.zeros(0))
    check(x.T, np.zeros((3, 0)))
    check(np.concatenate([x, drawn(2, 3)]), drawn(2, 3))
    with pytest.raises(InputError, match="no elements"):
        x.max(0)


def test_misuse_is_explained() -> None:
    x = there(drawn(4, 3))
    with pytest.raises(InputTypeError, match="cannot be changed"):
        x[0] = 1
    with pytest.raises(InputTypeError, match="not an index for an array on a device"):
        _ = x[[0, 2]]
    with pytest.raises(InputError, match="out of bounds for axis 1"):
        _ = x[0, 3]
    with pytest.raises(InputError, match="3 indices for an array of 2"):
        _ = x[0, 0, 0]
    with pytest.raises(InputError, match="axis 2"):
        x.sum(2)
    with pytest.raises(InputError, match="beside axis 0"):
        np.concatenate([x, drawn(4, 2)])
    with pytest.raises(ValueError, match="broadcast"):
        _ = x + drawn(5)
    with pytest.raises(InputError, match="beyond float32"):
        _ = x * 1e300
    with pytest.raises(InputTypeError, match="no real numbers"):
        _ = x + "a"
    with pytest.raises(InputTypeError, match="out= of a ufunc"):
        np.add(x, 1, out=x)  # type: ignore[call-overload]
    other = copy.copy(x.gpu)
    with pytest.raises(DeviceError, match="bring them together"):
        _ = x + DeviceArray(other, x.shape, x._storage)


def test_arrays_beyond_a_binding_are_cut(own_gpu: Gpu) -> None:
    own_gpu.max_binding = 4096
    a, b = drawn(61, 90), drawn(61, 90, seed=1)
    x, y = (DeviceArray.from_numpy(own_gpu, numbers) for numbers in (a, b))
    check(x * y, a * b)
    check(x.T - 1, a.T - 1)
    check(np.concatenate([x, y], axis=1)[:, ::2], np.concatenate([a, b], axis=1)[:, ::2])
    for axis in (0, 1, None):
        check(x.max(axis), a.max(axis))
        check(np.abs(x).sum(axis), np.abs(a.astype(float)).sum(axis), 50)


def test_results_go_where_they_are_wanted() -> None:
    kernel = sg.fused_forward_backward(2, lambda v: v[0] * v[1] ** 2, device="gpu")
    a = drawn(1000, 2)
    x, out = there(a), (there(np.zeros(1000)), there(np.zeros((1000, 2))))
    assert kernel.run(x, out=out) is out
    for found, wanted in zip(out, kernel.run(a), strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)
    refused = {
        "takes 2 arrays": out[:1],
        "float32 array on": (np.zeros(1000, np.float32), out[1]),
        "must hold 1000 numbers": (out[1], out[1]),
        "shares its memory": (there(np.zeros((1000, 1)))[:], out[1].reshape(-1, 2)),
        "shares its memory with": (out[0], x),
    }
    for message, wrong in refused.items():
        with pytest.raises(InputError, match=message):
            kernel.run(x, out=wrong)
    square = sg.fused_forward_backward(1, lambda v: v[0] ** 2, device="gpu")
    with pytest.raises(InputError, match="each needs its own"):
        square.run(x[:, :1], out=(out[0], out[0]))


def test_several_arrays_go_together_on_the_device() -> None:
    product = sg.fused_hvp(2, lambda v: v[0] * v[1] ** 2, device="gpu")
    x, d = drawn(100, 2), drawn(1, 2, seed=1)
    for arrays in ((there(x), there(d)), (there(x), d), (x, there(d))):
        for found, wanted in zip(product.run(*arrays), product.run(x, d), strict=True):
            check(found, wanted)


def test_nests_stay_on_the_device() -> None:
    kernel = sg.fused_forward_backward(
        {"a": (), "b": (2, 3)}, lambda v: v["a"] * np.sum(v["b"] ** 2), device="gpu"
    )
    given = {"a": drawn(20), "b": drawn(20, 2, 3)}
    values, slopes = kernel.run({name: there(a) for name, a in given.items()})
    wanted = kernel.run(given)
    check(values, wanted[0])
    for name in given:
        check(slopes[name], wanted[1][name])
    several = sg.fused_forward(2, lambda v: {"sum": v[0] + v[1], "both": v * 2}, device="gpu")
    found, wanted = several.run(there(drawn(50, 2))), several.run(drawn(50, 2))
    for name in ("sum", "both"):
        check(found[name], wanted[name])
    hessian = sg.fused_hessian({"a": (), "b": ()}, lambda v: v["a"] * v["b"] ** 2, device="gpu")
    found, wanted = hessian.run(there(drawn(9, 2)))[2], hessian.run(drawn(9, 2))[2]
    check(found["b"]["a"], wanted["b"]["a"])


def test_kernels_refuse_arrays_of_indices() -> None:
    kernel = sg.fused_forward(2, lambda v: v[0] * v[1], device="gpu")
    with pytest.raises(InputTypeError, match="compute with float32, and this array is int32"):
        kernel.run(there([[1, 2]], np.int32))


def test_arrays_are_broadcast() -> None:
    check(np.broadcast_to(there(drawn(3, 1)), (2, 3, 4)), np.broadcast_to(drawn(3, 1), (2, 3, 4)))
    with pytest.raises(InputError, match="does not broadcast"):
        np.broadcast_to(there(drawn(3)), (4,))


def test_numbers_are_told_apart_by_their_bits() -> None:
    a, x = np.ones(3, np.float32), there(np.ones(3))
    for number in (math.nan, 0.0, -0.0, 1.0, math.inf, -0.0):
        result = (x * number).numpy()
        np.testing.assert_array_equal(result, a * np.float32(number))
        assert np.signbit(result[0]) == np.signbit(number) or math.isnan(number)


def test_a_loop_stays_on_the_device() -> None:
    kernel = sg.fused_forward_backward(2, lambda v: (v[0] - 1) ** 2 + v[1] ** 2, device="gpu")
    x = there(drawn(100, 2))
    for _ in range(60):
        _, g = kernel.run(x)
        x = x - 0.2 * g
    np.testing.assert_allclose(x.numpy(), np.tile([1, 0], (100, 1)), atol=1e-6)
